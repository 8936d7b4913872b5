"""Options that several commands take, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from discreet.privacy.accounting import Budget

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
Delta = Annotated[float, typer.Option(help="Above 0: (epsilon, delta) and Gaussian noise.")]
Rho = Annotated[float | None, typer.Option(help="zCDP budget per user, instead of epsilon.")]
Neighbours = Annotated[str, typer.Option(help="replace or zero-out: what one user may change.")]
Instance = Annotated[int, typer.Option(help="Which random environment.")]

# A log, and how it is written down ----------------------------------------------------------------------------------

Logs = Annotated[list[str], typer.Argument(help="Parquet, CSV, Arrow or DuckDB files, or globs of them.")]
DatabaseTable = Annotated[str | None, typer.Option(help="Table of a DuckDB database.")]
Engine = Annotated[str, typer.Option(help="duckdb, or spark (needs discreet\\[spark]).")]
Users = Annotated[int | None, typer.Option(help="Number of users, declared.", show_default="counted")]
Named = Annotated[
    str | None, typer.Option(help="How many, names as in a,b,c, or a file of one per line.", show_default=False)
]
Horizon = Annotated[int | None, typer.Option(help="Steps per episode.", show_default=False)]
Pooled = Annotated[
    bool, typer.Option("--pooled", help="Count over all steps together: what happens does not depend on the step.")
]
EpisodesPerUser = Annotated[int, typer.Option(help="Most episodes of one user that count.")]
ColumnNames = Annotated[
    str, typer.Option(help="Names of columns where they differ: user=patient,reward=score.", show_default=False)
]
FirstStep = Annotated[int, typer.Option(help="Number of an episode's first step in the log.")]
RewardRange = Annotated[str, typer.Option(help="Rewards are clipped to LOW:HIGH and scaled to [0, 1].")]
EarlyEnd = Annotated[
    str, typer.Option(help="Episodes that stop early: absorb (their people have left) or keep (rows as they are).")
]
EndedPays = Annotated[
    float, typer.Option(help="What a remaining step pays those whose episode has ended, in units of the reward.")
]

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

# What a fit and a comparison write down -----------------------------------------------------------------------------

Seed = Annotated[int | None, typer.Option(help="A simulation with repeatable noise: protects nobody.")]
Sign = Annotated[Path | None, typer.Option(help="Sign with this Ed25519 key (PEM).")]
Ledger = Annotated[
    Path | None,
    typer.Option(help="Where releases are written down.", show_default="beside the log: LOG.spent.jsonl"),
]


def one_of(option: str, value: str) -> Literal["replace", "zero-out"]:
    if value == "replace":
        return "replace"
    if value == "zero-out":
        return "zero-out"
    raise ValueError(f"{option} is {value!r}; it must be replace or zero-out")


def budget_of(epsilon: float | None, delta: float, rho: float | None) -> Budget:
    from discreet.privacy.accounting import Budget

    if (epsilon is None) == (rho is None):
        raise ValueError("state a budget: either --epsilon (with or without --delta) or --rho")
    if rho is not None:
        return Budget.zcdp(rho, delta or None)
    assert epsilon is not None
    return Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)


def spoken(context: typer.Context, names: tuple[str, ...]) -> list[str]:
    """Which of these options stand on the command line."""
    said = ((name, context.get_parameter_source(name)) for name in names)
    return [
        f"--{name.replace('_', '-')}" for name, source in said if source is not None and source.name == "COMMANDLINE"
    ]
