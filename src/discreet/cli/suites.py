"""The suite: twelve frozen problems, one score per axis, and a page that compares learners."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import completing
from discreet.cli.commands import command, group
from discreet.cli.options import Jobs, Json, written
from discreet.cli.terminal import SAID_NO, compilation_notice, note, progress_bar, say, say_json

if TYPE_CHECKING:
    from discreet.runs.engine import Role
    from discreet.runs.suite.scores import Board, Score

app = group(
    """Score learners on twelve frozen problems, and compare them.

    [bold]Examples[/bold]

    discreet suite list
    """
)

Suite = Annotated[str, typer.Option("--suite", help="A version of the suite.")]


@command(app, "list")
def problems(version: Suite = "v1", as_json: Json = False) -> None:
    """List the problems of the suite, with their references.

    [bold]Examples[/bold]

    discreet suite list

    discreet suite list --json
    """
    from discreet.runs.suite.problems import BUDGETS
    from discreet.runs.suite.reference import described

    rows = described(version)
    if as_json:
        say_json({"suite": version, "budgets": {name: list(v) for name, v in BUDGETS.items()}, "problems": rows})
        return
    from discreet.cli.reproducing import table

    say(table(rows))
    for model, budgets in BUDGETS.items():
        say(f"{model}: ε = {', '.join(f'{epsilon:g}' for epsilon in budgets)}")


@command(app, "run")
def run(
    name: Annotated[
        str,
        typer.Argument(
            help="A learner, or package.module:learner of your own, installed or in this folder.",
            show_default=False,
            autocompletion=completing.learners,
        ),
    ],
    version: Suite = "v1",
    out: Annotated[Path, written("a folder for the runs; what is there is not run again.")] = Path("results/suite"),
    problem: Annotated[
        list[str] | None,
        typer.Option(help="One axis; may be repeated.", autocompletion=completing.problems, show_default="all"),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Whom users trust: joint, two-servers, shuffle or local; may be repeated.",
            autocompletion=completing.models,
            show_default="all it has",
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Privacy budget per user; may be repeated.", show_default="three per model"),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=10, help="Runs per budget, each on its own instance.")] = 5,
    only: Annotated[
        str, typer.Option(help="Seeds of one role: reporting, or tuning (to choose constants; never reported).")
    ] = "reporting",
    jobs: Jobs = 1,
    as_json: Json = False,
) -> None:
    """Run a learner on the suite, and print one score per axis.

    A score of 1 is a strong learner without privacy, 0 is acting at random. Runs are kept in a folder, so that a
    stopped suite goes on; `discreet suite compare FOLDER -o page.html` compares all learners in it. Without options
    these are twelve problems at three budgets: give it --jobs and an hour. Choose constants with --only tuning, and
    only there.

    [bold]Examples[/bold]

    discreet suite run spotlight --problem one-step --problem rewards --model joint --epsilon 1 --runs 1

    discreet suite run mine:learner --problem one-step --epsilon 1 --runs 1             a learner in mine.py

    discreet suite run spotlight --only tuning --out tuning --problem one-step --epsilon 1 --runs 1
    """
    from discreet.runs import results
    from discreet.runs.engine import run_cells
    from discreet.runs.suite.contest import trials
    from discreet.runs.suite.problems import named
    from discreet.runs.suite.scores import board, scored
    from discreet.runs.sweeps import importable, learner_of

    role: Role = role_of(only)
    importable(Path.cwd())
    learner = learner_of(name)
    with compilation_notice():
        asked = list(trials(learner, named(version, problem or ()), model or (), epsilon or (), role, runs))
        cells = [cell for trial in asked for cell in trial.cells]
        if not cells:
            raise ValueError(f"{name} can play none of these problems: {asked[0].refused}")
        with progress_bar(name, len(cells)) as advance:
            outcome = run_cells(cells, out, jobs, progress=lambda cell, how: advance(1))
    wanted = {cell.id for cell in cells}
    rows = [row for row in results.read(out) if f"{row.id}-seed{row.seed}" in wanted]
    found = board(scored(rows, version, role), version)
    if as_json:
        say_json(document(version, role, found, asked))
    else:
        for contender, axes in found.items():
            say(f"{contender} ({role} instances, suite {version})")
            say(lines(axes))
        for sentence in refusals(asked):
            note(sentence)
    for failure in outcome.failed:
        note(f"failed: {failure.cell.id}: {failure.error}", always=True)
    if outcome.failed:
        raise typer.Exit(SAID_NO)


@command(app, "compare")
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `suite run` has written.", show_default=False)],
    version: Suite = "v1",
    out: Annotated[Path | None, written("a page (HTML).", False)] = None,
    ours: Annotated[bool, typer.Option("--ours/--no-ours", help="Compare with the scores of discreet's own.")] = True,
    table: Annotated[
        Path | None, typer.Option("--scores", help="Also write the scored runs to this CSV file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare learners: one score per axis, with intervals, best first.

    [bold]Examples[/bold]

    discreet suite compare results/suite

    discreet suite compare results/suite -o compare.html        a page to look at, with discreet's own learners
    """
    from discreet.runs import results
    from discreet.runs.suite import scores

    runs = [run for folder in folders for run in scores.scored(results.read(folder), version)]
    if not runs:
        raise ValueError(
            f"there are no runs of suite {version} in {', '.join(map(str, folders))}; make some with "
            f"`discreet suite run NAME --out {folders[0]}`"
        )
    if table is not None:
        scores.write(runs, table)
    measured = {run.contender for run in runs}
    if ours:
        runs += [run for run in scores.published(version) if run.contender not in measured]
    found = scores.board(runs, version)
    if out is not None:
        from discreet.runs.suite import page

        out.write_text(page.page(found, version, measured), encoding="utf-8")
        note(f"written: {out}")
    if as_json:
        say_json(document(version, "reporting", found, ()))
        return
    say(summary(found, version))


def role_of(text: str) -> Role:
    if text == "tuning":
        return "tuning"
    if text == "reporting":
        return "reporting"
    raise ValueError(f"--only is {text!r}; it must be reporting or tuning")


def document(version: str, role: str, found: Board, asked: Any) -> dict[str, Any]:
    """What `--json` prints."""
    from discreet.runs.suite.scores import overall

    return {
        "suite": version,
        "role": role,
        "contenders": {
            name: {"overall": overall(axes), "axes": {axis: facts(score) for axis, score in axes.items()}}
            for name, axes in found.items()
        },
        "refused": refusals(asked),
    }


def facts(score: Score) -> dict[str, Any]:
    return {
        "score": score.mean,
        "interval": None if score.interval is None else list(score.interval),
        "worst": score.worst,
        "final_gap": score.gap,
        "by_epsilon": {"none" if budget is None else f"{budget:g}": v for budget, v in score.by_budget.items()},
        "runs": score.runs,
    }


def lines(axes: dict[str, Score]) -> str:
    """One contender, an axis a line."""
    from discreet.cli.reproducing import table
    from discreet.runs.suite.scores import overall

    rows: list[dict[str, Any]] = []
    for axis, score in axes.items():
        spread = "" if score.interval is None else f"{score.interval.low:.2f} to {score.interval.high:.2f}"
        by = "  ".join(f"{v:.2f}" if e is None else f"ε={e:g}: {v:.2f}" for e, v in score.by_budget.items())
        facts = {"score": f"{score.mean:.2f}", "95 %": spread, "worst": f"{score.worst:.2f}"}
        rows.append({"axis": axis, **facts, "last gap": f"{score.gap:.2f}", "by budget": by})
    rows.append(
        {"axis": "mean", "score": f"{overall(axes):.2f}", "95 %": "", "worst": "", "last gap": "", "by budget": ""}
    )
    return table(rows)


def summary(found: Board, version: str) -> str:
    """Contenders by axes."""
    from discreet.cli.reproducing import table
    from discreet.runs.suite.problems import suite
    from discreet.runs.suite.scores import overall

    names = [problem.name for problem in suite(version)]
    return table(
        [
            {"learner": contender, "mean": f"{overall(axes):.2f}", "axes": str(len(axes))}
            | {name: f"{axes[name].mean:.2f}" if name in axes else "–" for name in names}
            for contender, axes in found.items()
        ]
    )


def refusals(asked: Any) -> list[str]:
    """What a learner could not be asked, each reason once."""
    found: dict[str, list[str]] = {}
    for trial in asked:
        if trial.refused is not None:
            found.setdefault(trial.refused, []).append(f"{trial.problem} ({trial.model})")
    return [f"not asked: {', '.join(dict.fromkeys(places))}: {reason}" for reason, places in found.items()]
