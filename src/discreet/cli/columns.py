"""Columns that people have: a declaration of them to fill in, and what a log holds before a fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.logs import declared, mapped, numbered, source_of
from discreet.cli.options import LOG, DatabaseTable, Delta, Json, Logs, budget_of, spoken, taking, written
from discreet.cli.terminal import say, say_json, show, working

if TYPE_CHECKING:
    from discreet.offline.declaration import Declaration, Grid
    from discreet.people.logs import LogFormat


def declare(
    logs: Logs,
    out: Annotated[Path | None, written("a file for the template.", "standard output")] = None,
    table: DatabaseTable = None,
) -> None:
    """Write a declaration to fill in: a commented TOML file with every column of a log in it.

    It comes from the schema alone, the names and types of columns: no value is looked at, so that nothing in it says
    anything about anybody. Columns that may be the user, the step, the action and so on are found by their names.
    Fill it in from what you know of the subject; `discreet check`, `calibrate --offline` and `fit` take it with
    --declare.

    [bold]Examples[/bold]

    discreet declare stays.parquet

    discreet declare stays.parquet --out template.toml
    """
    from discreet.offline.template import template

    text = template(logs, table)
    if out is None:
        say(text.rstrip("\n"))
        return
    if out.exists():
        raise ValueError(f"{out} is there already; give another name, for it may be filled in")
    out.write_text(text, encoding="utf-8")
    say(f"written: {out}; fill it in")


@taking(LOG)
def check(
    context: typer.Context,
    logs: Logs,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget per user: for the bins of columns that it would buy.")
    ] = None,
    delta: Delta = 0.0,
    as_json: Json = False,
    **said: Any,
) -> None:
    """What a log holds, before anything is spent on it: rows that would be lost, by column and reason.

    For whoever holds the data: the numbers are exact, [bold]not private[/bold], and must stay with the log. Nothing
    is released, no budget is spent and the ledger is left alone. The log is read as `discreet fit` reads it, so that
    the time it takes is what a fit takes to read it.

    [bold]Examples[/bold]

    discreet check stays.parquet                                                  before anything is declared

    discreet check stays.parquet --declare stays.toml --epsilon 1                 with the bins that ε = 1 would buy

    discreet check visits.csv --states 3 --actions 2 --horizon 4
    """
    from discreet.people import checking
    from discreet.people.stays import DeclaredLog

    declaration = declared(context)
    source, grid, table, number = source_of(logs, said["engine"]), None, said["table"], said["users"]
    what: Declaration | LogFormat | None = declaration
    with working("reading the log"):
        if declaration is not None and epsilon is not None:
            number = DeclaredLog(source, declaration, table).num_users if number is None else number
            grid = declaration.grid(number, budget_of(epsilon, delta))
        elif declaration is None and spoken(context, ("states", "actions", "horizon")):
            what = numbered(context)
        found = checking.check(source, what, table, grid=grid, columns=mapped(said["columns"]))
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
