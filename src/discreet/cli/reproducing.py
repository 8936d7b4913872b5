"""Figures of the papers, made again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import completing
from discreet.cli.options import Jobs, Json, number_of_users, written
from discreet.cli.terminal import compilation_notice, progress_bar, say, say_json
from discreet.runs.seeds import seed_list

if TYPE_CHECKING:
    from discreet.runs.verdicts import Row


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="A figure or table; --list names them.", show_default=False, autocompletion=completing.figures
        ),
    ] = "",
    out: Annotated[Path, written("a folder for runs, table and picture; what is there is not run again.")] = Path(
        "results/figures"
    ),
    seeds: Annotated[
        str | None, typer.Option(help="Seeds: 0:10 (half-open), 3, or 1,5,9.", show_default="0:10, quick 0:3")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="About a minute: fewer seeds, sizes and constants.")] = False,
    episodes: Annotated[str | None, number_of_users("several are joined by commas.", "the paper's")] = None,
    jobs: Jobs = 1,
    as_json: Json = False,
    names: Annotated[bool, typer.Option("--list", help="List the names: figures and what they claim.")] = False,
) -> None:
    """Make a figure or table of a paper again: table, picture, its claim, and whether it comes out.

    As the paper has it takes up to an hour, with --quick about a minute. Stop it, start it again: it goes on.

    [bold]Examples[/bold]

    discreet reproduce --list

    discreet reproduce qw22-figure-1b --quick --seeds 0 --users 20          a first look
    """
    from discreet.runs import figures

    if names:
        if as_json:
            facts = {each.name: {"title": each.title, "claim": each.claim} for each in figures.FIGURES.values()}
            say_json({"figures": facts})
            return
        for each in figures.FIGURES.values():
            say(f"{each.name}: {each.title}. Claim: {each.claim}.")
        return
    if not name:
        raise ValueError("name a figure, for example wzcw23-figure-4; discreet reproduce --list shows all of them")
    chosen = figures.figure(name)
    if jobs != -1 and jobs < 1:
        raise ValueError(f"--jobs is {jobs}; it must be at least 1, or -1 for every core")
    wanted = tuple(seed_list(seeds or ("0:3" if quick else "0:10")))
    work = figures.Work(out, wanted, quick, jobs, numbers(episodes))
    with compilation_notice(), progress_bar(name, chosen.total(work)) as advance:
        outcome = chosen.make(work, advance)
    made = figures.written(chosen, outcome, out)
    if as_json:
        told = {
            "name": name,
            "title": chosen.title,
            "claim": chosen.claim,
            "rows": [strict(row) for row in outcome.rows],
        }
        say_json(told | {"verdicts": list(chosen.judge(outcome.rows)), "written": list(map(str, made))})
        return
    say(chosen.title)
    say(f"claim: {chosen.claim}")
    say(f"here: {chosen.setting}")
    say(table(outcome.rows))
    for sentence in chosen.judge(outcome.rows):
        say(sentence)
    say(f"written: {', '.join(map(str, made))}")


def strict(row: Row) -> dict[str, Any]:
    """Values that JSON has."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }


def numbers(text: str | None) -> tuple[int, ...]:
    """`100` or `20,100`."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts) or len(set(parts)) < len(parts):
        raise ValueError(f"--episodes is {text!r}; expected whole numbers joined by commas, such as 20,100,1000")
    return tuple(map(int, parts))


def table(rows: Sequence[Row]) -> str:
    """For the eye: a mean and its spread in one column, in lines that are never cut."""
    names = [name for name in rows[0] if not name.endswith("_sd")]
    lines = [[name.replace("_", " ") for name in names], *([cell(row, name) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [any(isinstance(row[name], str) for row in rows) for name in names]

    def padded(line: Sequence[str]) -> str:
        parts = zip(line, widths, left, strict=True)
        return "  ".join(text.ljust(width) if start else text.rjust(width) for text, width, start in parts).rstrip()

    return "\n".join(map(padded, lines))


def cell(row: Row, name: str) -> str:
    value, sd = row[name], row.get(f"{name}_sd")
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int):
        return f"{value:,}" if isinstance(value, int) else value
    plain = f"{value:.3f}" if abs(value) < 100 and f"{name}_sd" in row else f"{value:,.4g}"
    return plain if sd is None else f"{plain} ± {sd:.3f}" if abs(value) < 100 else f"{plain} ± {sd:,.3g}"
