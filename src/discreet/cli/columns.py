"""Columns that people have: a declaration of them, from a file or from options, and what a log holds before a fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.terminal import note, say, show

if TYPE_CHECKING:
    from discreet.offline.declaration import Declaration, Grid

Logs = Annotated[list[str], typer.Argument(help="Parquet, CSV, Arrow or DuckDB files, or globs of them.")]
Declare = Annotated[
    Path | None, typer.Option(help="A declaration of columns (TOML); `discreet declare LOG` writes one to fill in.")
]
State = Annotated[
    list[str] | None,
    typer.Option(
        help="A column, the most important first: map:20..140/edges:65,75,95, lactate:0..20/log,missing, "
        "ward:{A,B,C}; instead of --states.",
        show_default=False,
    ),
]
Propensity = Annotated[
    str | None, typer.Option(help="Column with the probability of the logged action.", show_default=False)
]
Time = Annotated[
    str | None, typer.Option(help="Column of timestamps, or seconds, instead of steps.", show_default=False)
]
Interval = Annotated[
    str | None, typer.Option(help="With --time: what is one step, such as 30min, 4h or 1d.", show_default=False)
]

#: Options that say what a declaration says.
SAID = (
    *("states", "state", "actions", "horizon", "pooled", "episodes_per_user", "columns", "first_step"),
    *("reward_range", "early_end", "ended_pays", "propensity", "time", "interval"),
)


def spoken(context: typer.Context, names: tuple[str, ...]) -> list[str]:
    """Which of these options stand on the command line."""
    said = ((name, context.get_parameter_source(name)) for name in names)
    return [
        f"--{name.replace('_', '-')}" for name, source in said if source is not None and source.name == "COMMANDLINE"
    ]


def declared(
    context: typer.Context,
    declare: Path | None,
    state: list[str] | None,
    actions: str | None,
    horizon: int | None,
    columns: str = "",
    **others: Any,
) -> Declaration | None:
    """The declaration that a file or options make; None: neither is there."""
    from discreet.cli.offline import listed, mapped, number_range, public_text
    from discreet.offline.declaration import Declaration

    if declare is not None:
        if twice := spoken(context, SAID):
            raise ValueError(f"{twice[0]} is said by the declaration; leave it out, or --declare")
        return Declaration.from_toml(public_text(declare))
    if not state:
        for option in spoken(context, ("propensity", "time", "interval")):
            raise ValueError(f"{option} is for logs of columns; give these with --state or --declare")
        return None
    if spoken(context, ("states",)):
        raise ValueError("--states and --state were given; expected one of both: numbered states, or columns")
    for option, value in (("--actions", actions), ("--horizon", horizon)):
        if value is None:
            raise ValueError(f"{option} is missing; columns need it, too")
    assert actions is not None
    assert horizon is not None
    number, names = listed("--actions", actions)
    if "reward_range" in others:
        others["reward_range"] = number_range(others["reward_range"])
    return Declaration.from_options(state, names or number, horizon, mapped(columns), **others)


def declare(
    logs: Logs,
    out: Annotated[
        Path | None, typer.Option(help="Write the template to this file.", show_default="standard output")
    ] = None,
    table: Annotated[str | None, typer.Option(help="Table of a DuckDB database.")] = None,
) -> None:
    """Write a declaration to fill in: a commented TOML file with every column of a log in it.

    It comes from the schema alone, the names and types of columns: no value is looked at, so that nothing in it says
    anything about anybody. Columns that may be the user, the step, the action and so on are found by their names.

    [bold]Examples[/bold]

    discreet declare stays.parquet --out stays.toml

    [bold]Then[/bold] fill it in from what you know of the subject, and

    discreet check stays.parquet --declare stays.toml

    discreet calibrate --offline --declare stays.toml --epsilon 1 --users 10000

    discreet fit stays.parquet --declare stays.toml --epsilon 1 --out policy/
    """
    from discreet.offline.template import template

    text = template(logs, table)
    if out is None:
        say(text.rstrip("\n"))
        return
    if out.exists():
        raise ValueError(f"{out} is there already; give another name, for it may be filled in")
    out.write_text(text, encoding="utf-8")
    note(f"written: {out}; fill it in")


def show_grid(grid: Grid, users: int) -> None:
    """What becomes of the declared columns."""
    from rich.table import Table

    sheet = Table("column", "bins", "cut", title=f"bins for {users:,} users, by a public rule", title_justify="left")
    for column, cuts, bins in zip(grid.declaration.states, grid.cuts, grid.bins, strict=True):
        words = " | ".join(column.texts(cuts)) if cuts else "not used: too few users for it"
        sheet.add_row(column.name, str(bins), words)
    show(sheet)


def grid_json(grid: Grid) -> dict[str, Any]:
    return {
        "states": grid.num_states,
        "bins": {column.name: bins for column, bins in zip(grid.declaration.states, grid.bins, strict=True)},
        "unused": list(grid.unused),
        "users_needed": grid.users_needed,
        "users_for_all_columns": grid.users_for_all,
        "declaration_digest": grid.declaration.digest,
    }
