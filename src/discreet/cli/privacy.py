"""Questions about privacy: what it would cost, and whether a claim holds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from discreet.cli.terminal import say, say_json, show


def calibrate(
    epsilon: Annotated[float, typer.Option(help="Privacy budget per user.", show_default=False)],
    states: Annotated[int, typer.Option(help="Number of states.")] = 6,
    actions: Annotated[int, typer.Option(help="Number of actions.")] = 2,
    horizon: Annotated[int, typer.Option(help="Steps per episode.")] = 20,
    episodes: Annotated[int, typer.Option(help="Episodes; every episode is another user.")] = 20_000,
    delta: Annotated[float, typer.Option(help="Above 0: (epsilon, delta) and Gaussian noise.")] = 0.0,
    model: Annotated[str, typer.Option(help="joint or local.")] = "joint",
    schedule: Annotated[str, typer.Option(help="When to release: every (episode) or epochs (growing).")] = "epochs",
    neighbours: Annotated[str, typer.Option(help="replace or zero-out: what one user may change.")] = "replace",
    pooled: Annotated[bool, typer.Option("--pooled", help="Count over all steps together.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")] = False,
) -> None:
    """How much noise a budget needs, and whether one can learn with it. No data is touched.

    [bold]Examples[/bold]

    discreet calibrate --epsilon 1 --states 6 --actions 2 --horizon 20 --episodes 20000 --schedule every

    discreet calibrate --epsilon 1 --pooled                      sharing counts between steps helps

    discreet calibrate --epsilon 4 --model local --pooled --json
    """
    from discreet.privacy import calibration

    relation = one_of("--neighbours", neighbours)
    found = calibration.calibrate(
        states, actions, horizon, episodes, epsilon, delta, model, schedule, relation, pooled
    )
    if as_json:
        say_json(found.to_json())
        return
    show(noise_table(found))
    say(f"guarantee: {found.guarantee.sentence()}")
    say(f"verdict: {found.forecast.verdict}")


def one_of(option: str, value: str) -> Literal["replace", "zero-out"]:
    if value == "replace":
        return "replace"
    if value == "zero-out":
        return "zero-out"
    raise ValueError(f"{option} is {value!r}; it must be replace or zero-out")


def noise_table(found: Any) -> Any:
    """The families side by side."""
    from rich.table import Table

    title = f"noise per family; one user enters {found.levels} noisy value{'s' if found.levels > 1 else ''} of each"
    table = Table(title=title, title_justify="left")
    table.add_column("family", style="bold")
    for column in ("L1", "L2", "budget", "scale", "sd, last release", "width"):
        table.add_column(column, justify="right")
    words = {"N": "N visits", "T": "T transitions", "R": f"R rewards (integers of {found.grid:.3g})"}
    for letter, noise in found.families.items():
        numbers = (noise.l1, noise.l2, noise.budget, noise.scale, noise.deviation, noise.width)
        table.add_row(words.get(letter, letter), *(f"{number:,.5g}" for number in numbers))
    return table
