"""Sweeps, and tables of what they left."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.completing import learners
from discreet.cli.options import Jobs, Json, written
from discreet.cli.running import NOT_A_RELEASE, tell_sources
from discreet.cli.terminal import SAID_NO, compilation_notice, note, progress_bar, say, say_json, show, watched

if TYPE_CHECKING:
    from discreet.runs.engine import Cell, Outcome, Progress, Stored
    from discreet.runs.sweeps import Sweep


def sweep(
    file: Annotated[Path, typer.Argument(help="A sweep: a file of TOML.", show_default=False)],
    out: Annotated[Path, written("a folder for results, which holds nothing else.", False)],
    jobs: Jobs = 1,
    backend: Annotated[str, typer.Option(help="loky (this machine), dask or ray.")] = "loky",
    address: Annotated[
        str | None, typer.Option(help="Of a Dask scheduler or a Ray cluster.", show_default="one is started here")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Seeds of one role: tuning or reporting.", show_default="both")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and leave: nothing is computed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run algorithms × environments × epsilon × users × sizes × seeds. Stop it, start it again: it goes on.

    On a cluster: --backend dask --address tcp://scheduler:8786.

    [bold]A sweep[/bold] (lists are axes; `users` are episodes; every option of `discreet run` is a key)

    users = \\[5000, 20000]

    epsilon = \\[1, 4]                         not told to learners without privacy

    algorithms = \\["ucbvi-bernstein", {name = "spotlight", pooled = true}, "mine:learner"]

    environments = \\["two-rooms", {name = "riverswim", states = \\[6, 12]}]

    seeds = {tuning = "5000:5005", reporting = "0:10"}

    [bold]Examples[/bold]

    discreet sweep sweep.toml --out results/ --jobs 2

    discreet sweep sweep.toml --out results/ --dry-run           what would be computed?

    discreet sweep sweep.toml --out results/ --only tuning       first choose constants

    discreet results results/                                    tables of it
    """
    from discreet.runs import engine, report, results, sweeps

    if only is not None and only not in engine.ROLES:
        raise ValueError(f"--only is {only!r}; choose one of {', '.join(engine.ROLES)}")
    planned = sweeps.read_sweep(file)
    cells = planned.cells(only)
    if not cells:
        raise ValueError(f'{str(file)!r} has no seeds for {only}; give it some, such as [seeds] {only} = "0:10"')
    for reason in planned.skipped:
        note(f"left out: {reason}")
    stored = engine.Stored.of(out) if out.is_dir() else engine.Stored({}, {})
    say_plan(planned, cells, stored, out)
    if dry_run:
        if as_json:
            say_json({"cells": [cell.id for cell in cells], "stored": [c.id for c in cells if stored.has(c)]})
        else:
            say(f"{sum(not stored.has(cell) for cell in cells)} of {len(cells)} cells would be computed")
        return
    with compilation_notice(), told(cells) as progress:
        outcome = sweeps.run_cells(cells, out, jobs, backend, progress, address)  # type: ignore[arg-type]
    names = {cell.id for cell in cells}
    rows = [row for row in results.read(out) if f"{row.id}-seed{row.seed}" in names]
    if as_json:
        say_json(document(outcome, report.table(rows)))
    else:
        for role in engine.ROLES:
            if chosen := [row for row in rows if row.role == role]:
                show_tables(report.table(chosen), title(role))
        say(f"{len(outcome.done)} cells computed, {len(outcome.reused)} were there, {len(outcome.failed)} failed")
        say(f"results are in {out}; `discreet results {out}` shows them; {NOT_A_RELEASE}")
    for failure in outcome.failed[:10]:
        note(f"failed: {failure.cell.id}: {failure.error}", always=True)
    if outcome.failed:
        note(
            f"what happened is in {engine.desk(out)}; the same command tries {len(outcome.failed)} cells again",
            always=True,
        )
        raise typer.Exit(SAID_NO)


def say_plan(planned: Sweep, cells: Sequence[Cell], stored: Stored, out: Path) -> None:
    """What is about to happen, on standard error."""
    there, stale = sum(stored.has(cell) for cell in cells), stored.stale(cells)
    note(f"{len(planned.experiments)} experiments, {len(cells)} cells")
    if there:
        note(f"{there} of {len(cells)} cells are in {out} already; they are not run again")
    if stale:
        note(f"{stale} of {len(cells)} cells in {out} come from another version of the source; they are replaced")


def document(outcome: Outcome, table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "done": [cell.id for cell in outcome.done],
        "reused": [cell.id for cell in outcome.reused],
        "failed": [{"cell": each.cell.id, "error": each.error} for each in outcome.failed],
        "table": list(table),
    }


#: Seconds between two lines of progress where nobody watches a bar.
PAUSE = 30.0


@contextmanager
def told(cells: Sequence[Cell]) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a line now and then: how many cells are over, and how long the rest will take.

    Time is taken to go with users, over what was computed.
    """
    left = sum(cell.experiment.episodes for cell in cells)
    start = shown = time.monotonic()
    over = failed = worked = 0

    with progress_bar("sweep", left) as advance:

        def progress(cell: Cell, how: str) -> None:
            nonlocal left, shown, over, failed, worked
            users = cell.experiment.episodes
            advance(users)
            over, failed, left = over + 1, failed + (how == "failed"), left - users
            worked += users if how != "reused" else 0
            now = time.monotonic()
            if watched() or how == "reused" or (now - shown < PAUSE and over < len(cells)):
                return
            shown = now
            wrong = f", {failed} failed" if failed else ""
            note(f"{over} of {len(cells)} cells{wrong}; {eta(now - start, worked, left)} left")

        yield progress


def eta(seconds: float, worked: int, left: int) -> str:
    """How long `left` takes when `worked` took so many seconds."""
    rest = round(seconds * left / worked) if worked else 0
    hours, minutes = rest // 3600, rest % 3600 // 60
    if hours:
        return f"about {hours} h {minutes} min"
    return f"about {minutes} min {rest % 60} s" if minutes else f"about {rest} s"


# Tables -------------------------------------------------------------------------------------------------------------


def results(
    folder: Annotated[Path, typer.Argument(help="A folder of results.", show_default=False)],
    sql: Annotated[str | None, typer.Option(help="A query of DuckDB over the table `results`.")] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="A learner: differences at equal seeds, and how often others are better.", autocompletion=learners
        ),
    ] = None,
    only: Annotated[
        str, typer.Option(help="Seeds of one role: reporting, or tuning (what constants were chosen with).")
    ] = "reporting",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="Print the table as LaTeX (booktabs).")] = False,
    as_json: Json = False,
) -> None:
    """Tables of stored results: regret ratio and gap of the last policy, over seeds and environments.

    IQM is the mean of the middle half; the interval is its 95 % bootstrap interval, stratified by environment. Seeds
    for tuning are not in it. One row per run, and everything that a run was told, is for SQL.

    [bold]Examples[/bold]

    discreet results results/

    discreet results results/ --against ucbvi                  paired differences, probability of improvement

    discreet results results/ --sql "select algorithm, epsilon, avg(final_gap) from results group by all"

    discreet results results/ --csv                            also --latex, --json

    discreet results results/ --sql "describe results"         the columns
    """
    from discreet.runs import report
    from discreet.runs import results as store
    from discreet.runs.engine import ROLES, failures

    if as_csv + as_latex + as_json > 1:
        raise ValueError("--csv, --latex and --json exclude each other; leave all but one out")
    if only not in ROLES:
        raise ValueError(f"--only is {only!r}; choose one of {', '.join(ROLES)}")
    if sql is not None and (against is not None or only != "reporting"):
        raise ValueError("--sql sees every run; say what you want of them there, and leave --against and --only out")
    heading, names = title(only), None
    if sql is not None:
        (names, lines), heading = queried(folder, sql), ""
    else:
        rows = report.reportable(folder) if only == "reporting" else report.of_role(store.read(folder), only)
        if not rows:
            raise ValueError(f"there are no seeds for {only} in {str(folder)!r}; leave --only out")
        tell_sources(folder, rows)
        lines = report.table(rows) if against is None else report.against(rows, against)
        if against is not None:
            if not lines:
                raise ValueError(
                    f"nobody else ran where {against} did; run others on the same environments and seeds"
                )
            heading = "regret ratio minus theirs at equal seeds (below 0 is better), with 95 % intervals"
    if as_json:
        say_json({"role": None if sql else only, "table": _strict(lines)})
    elif as_csv:
        say(csv_text(lines, names).rstrip("\n"))
    elif as_latex:
        say(latex_text(lines, names))
    else:
        show_tables(lines, heading, names)
    if (failed := failures(folder)) and sql is None:
        note(f"{len(failed)} cells of the sweep have failed; the first: {failed[0]['cell']}: {failed[0]['error']}")


def title(role: str) -> str:
    what = "regret, and gap of the last policy, relative to the random policy (1 = learned nothing)"
    return what if role == "reporting" else f"seeds for tuning, not to be reported: {what}"


def queried(folder: Path, sql: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of a query over the files of the folder."""
    import duckdb

    if not sorted(folder.glob("*.parquet")):
        raise ValueError(f"there are no results in {str(folder)!r}; `discreet sweep FILE --out {folder}` writes some")
    files = str(folder / "*.parquet").replace("'", "''")
    with duckdb.connect() as database:
        database.execute(f"create view results as from read_parquet('{files}', union_by_name=true)")
        try:
            found = database.sql(sql)
            if found is None:
                raise ValueError("the query returns no table; expected a select")
            names = found.columns
            return names, [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        except duckdb.Error as error:
            raise ValueError(f"the query failed: {' '.join(str(error).split())}") from None


def _strict(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Values that JSON has; infinities and what is not a number are null."""
    return [{name: _json(value) for name, value in line.items()} for line in lines]


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def csv_text(lines: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> str:
    """All digits; what does not exist is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names or list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


_WORDS = ("environment", "learner", "against", "privacy")


def short(lines: Sequence[Mapping[str, Any]], digits: str = ".3f") -> list[dict[str, str]]:
    """The lines for the eye: few columns, few digits."""

    def text(value: Any) -> str:
        if value is None:
            return ""
        return f"{value:{digits}}" if isinstance(value, float) else str(value)

    def spread(mean: float | None, sd: float | None) -> str:
        return text(mean) + ("" if sd is None else f" ± {text(sd)}")

    def between(low: float | None, high: float | None) -> str:
        return "" if low is None else f"[{text(low)}, {text(high)}]"

    def summary(line: Mapping[str, Any]) -> dict[str, str]:
        return {
            "environment": line["environment"],
            "learner": line["learner"],
            "mean ± sd": spread(line["mean"], line["sd"]),
            "median": text(line["median"]),
            "worst": text(line["worst"]),
            "IQM": text(line["iqm"]),
            "95 % interval": between(line["low"], line["high"]),
            "last gap": text(line["gap_mean"]),
            "runs": text(line["runs"]),
        }

    def difference(line: Mapping[str, Any]) -> dict[str, str]:
        return {
            "learner": line["learner"],
            "against": line["against"],
            "pairs": text(line["pairs"]),
            "difference": text(line["difference"]),
            "95 % interval": between(line["low"], line["high"]),
            "P(better)": text(line["probability"]),
            "its interval": between(line["probability_low"], line["probability_high"]),
        }

    first: Mapping[str, Any] = lines[0] if lines else {}
    if "iqm" in first and "gap_mean" in first:
        return [summary(line) for line in lines]
    if "probability_low" in first:
        return [difference(line) for line in lines]
    return [{name: text(value) for name, value in line.items()} for line in lines]


def show_tables(lines: Sequence[Mapping[str, Any]], heading: str, names: Sequence[str] | None = None) -> None:
    """Tables for the eye: one per environment, unless it is a query's."""
    if heading:
        say(heading)
    shown = short(lines)
    if names is not None or "environment" not in shown[0]:
        show(plain(shown, names or list(shown[0])), wide=True)
        return
    for place in dict.fromkeys(line["environment"] for line in shown):
        there = [line for line in shown if line["environment"] == place]
        show(plain(there, list(shown[0])[1:], place), wide=True)


def plain(lines: Sequence[Mapping[str, str]], names: Sequence[str], place: str | None = None) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=place, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in names:
        number = name not in _WORDS
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for line in lines:
        table.add_row(*(line[name] for name in names))
    return table


_TEX = str.maketrans(
    {
        **{each: f"\\{each}" for each in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "±": r"$\pm$",
        "ε": r"$\varepsilon$",
        "δ": r"$\delta$",
        "ρ": r"$\rho$",
        "×": r"$\times$",
    }
)


def latex_text(lines: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> str:
    """A tabular of the package booktabs."""
    shown = short(lines)
    heads = names or list(shown[0])
    columns = "".join("l" if name in _WORDS else "r" for name in heads)
    texts = [heads, *(list(line.values()) for line in shown)]
    head, *body = (" & ".join(text.translate(_TEX) for text in row) + r" \\" for row in texts)
    start = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*start, *body, r"\bottomrule", r"\end{tabular}"])
