"""Columns that people have: a declaration of them, from a file or from options, and what a log holds before a fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.terminal import note, say, say_json, show, working

if TYPE_CHECKING:
    from discreet.offline.declaration import Declaration, Grid
    from discreet.people.logs import LogFormat

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


def check(
    context: typer.Context,
    logs: Logs,
    declare: Declare = None,
    state: State = None,
    states: Annotated[
        str | None, typer.Option(help="How many, names as in a,b,c, or a file of one per line.", show_default=False)
    ] = None,
    actions: Annotated[
        str | None, typer.Option(help="How many, names as in a,b,c, or a file of one per line.", show_default=False)
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps per episode.", show_default=False)] = None,
    pooled: Annotated[bool, typer.Option("--pooled", help="Count over all steps together.")] = False,
    episodes_per_user: Annotated[int, typer.Option(help="Most episodes of one user that count.")] = 1,
    columns: Annotated[
        str, typer.Option(help="Names of columns where they differ: user=patient,reward=score.", show_default=False)
    ] = "",
    first_step: Annotated[int, typer.Option(help="Number of an episode's first step in the log.")] = 0,
    reward_range: Annotated[str, typer.Option(help="Rewards are clipped to LOW:HIGH.")] = "0:1",
    early_end: Annotated[str, typer.Option(help="Episodes that stop early: absorb or keep.")] = "absorb",
    ended_pays: Annotated[float, typer.Option(help="What a remaining step pays those who ended.")] = 0.0,
    propensity: Propensity = None,
    time: Time = None,
    interval: Interval = None,
    epsilon: Annotated[
        float | None, typer.Option(help="With columns: for the bins that this budget would buy.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Above 0: (epsilon, delta) and Gaussian noise.")] = 0.0,
    users: Annotated[int | None, typer.Option(help="Number of users, declared.", show_default="counted")] = None,
    table: Annotated[str | None, typer.Option(help="Table of a DuckDB database.")] = None,
    engine: Annotated[str, typer.Option(help="duckdb, or spark (needs discreet\\[spark]).")] = "duckdb",
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")] = False,
) -> None:
    """What a log holds, before anything is spent on it: rows that would be lost, by column and reason.

    For whoever holds the data: the numbers are exact, [bold]not private[/bold], and must stay with the log. Nothing
    is released, no budget is spent and the ledger is left alone. The log is read as `discreet fit` reads it, so that
    the time it takes is what a fit takes to read it.

    [bold]Examples[/bold]

    discreet check stays.parquet --columns user=patient                           before anything is declared

    discreet check stays.parquet --declare stays.toml --epsilon 1                 with the bins that ε = 1 would buy

    discreet check visits.csv --states 12 --actions 3 --horizon 10
    """
    from discreet.cli.offline import budget_of, log_format, mapped, needed, source_of
    from discreet.people import checking
    from discreet.people.stays import DeclaredLog

    declaration = declared(
        context,
        declare,
        state,
        actions,
        horizon,
        columns,
        reward_range=reward_range,
        early_end=early_end,
        episodes_per_user=episodes_per_user,
        first_step=first_step,
        ended_pays=ended_pays,
        propensity=propensity,
        time=time,
        interval=interval,
    )
    source, grid, number = source_of(logs, engine), None, users
    what: Declaration | LogFormat | None = declaration
    with working("reading the log"):
        if declaration is not None and epsilon is not None:
            number = DeclaredLog(source, declaration, table).num_users if users is None else users
            grid = declaration.grid(number, budget_of(epsilon, delta, None))
        elif declaration is None and spoken(context, ("states", "actions", "horizon")):
            what = log_format(
                needed("--states", states),
                needed("--actions", actions),
                needed("--horizon", horizon),
                pooled,
                columns,
                reward_range,
                early_end,
                episodes_per_user,
                users,
                True,
                first_step,
                ended_pays,
            )
        found = checking.check(source, what, table, grid=grid, columns=mapped(columns))
    if as_json:
        say_json({**found.to_json(), "grid": None if grid is None else grid_json(grid)})
        return
    say(f"NOT PRIVATE: {checking.NOT_PRIVATE.partition(': ')[2]}")
    for line in found.sentences():
        say(line)
    if grid is not None and number is not None:
        show_grid(grid, number)


def show_grid(grid: Grid, users: int, tree: bool = False) -> None:
    """What becomes of the declared columns; `tree`: cut by a private tree of what people do, not by the rule."""
    from rich.table import Table

    title = "cuts of a private tree of what people do" if tree else f"bins for {users:,} users, by a public rule"
    unused = "not used" if tree else "not used: too few users for it"
    sheet = Table("column", "bins", "cut", title=title, title_justify="left")
    for column, cuts, bins in zip(grid.declaration.states, grid.cuts, grid.bins, strict=True):
        words = " | ".join(column.texts(cuts)) if cuts else unused
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
