"""Is a policy better than what people do now? The part of `discreet evaluate` that asks other people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.terminal import compilation_notice, say, say_json

if TYPE_CHECKING:
    from discreet.privacy.accounting import Budget

HeldOut = Annotated[
    list[str] | None,
    typer.Option("--log", help="A log of people who were not learned from, with propensities.", show_default=False),
]
Rollout = Annotated[float, typer.Option(help="With --log: share of all decisions at which the policy is followed.")]
LearnedFrom = Annotated[
    list[Path] | None,
    typer.Option(help="The log learned from, or its folder: its people are refused.", show_default="beside the log"),
]
#: Options that say something about a comparison only.
ASKED = (
    *("rollout", "epsilon", "delta", "rho", "neighbours", "propensity", "learned_from", "users", "table", "seed"),
    *("sign", "ledger", "total_epsilon", "purpose", "operator"),
)


def compare(folder: Path, log: list[str], budget: Budget, as_json: bool, **options: Any) -> None:
    """Ask, write the answer into the folder, and say it."""
    from discreet.offline import certificate, comparison

    with compilation_notice():
        answer = comparison.compare(folder, log, budget, **options)
    told = certificate.read(folder)["comparisons"][-1]
    if as_json:
        say_json(told)
        return
    say(answer.sentence)
    bound = "not above 0" if answer.lower is None else f"{answer.lower:.4g}"
    say(f"gain over as now: {answer.gain:.4g} per stay, 95 % lower bound: {bound}, in units of the reward")
    say(f"what the {answer.users:,} people who were asked are promised: {answer.guarantee.sentence()}")
    say(told["people"])
    if told["simulation"]:
        say("simulation: the noise came from a seed; nobody is protected")
