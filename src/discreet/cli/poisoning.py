"""People who lie, among those who do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import completing
from discreet.cli.options import Instance, Json, Seeds, number_of_users, own_or_named
from discreet.cli.terminal import compilation_notice, progress_bar, say, say_json, show
from discreet.runs.seeds import seed_list

if TYPE_CHECKING:
    from discreet.runs.poisoning import Measured


def poison(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Whom users trust: joint, two-servers, shuffle or local; may be repeated.",
            autocompletion=completing.models,
            show_default="all four",
        ),
    ] = None,
    env: Annotated[
        str,
        typer.Option(
            help="An environment, whose steps can be pooled; or module:name of your own.",
            autocompletion=completing.environments,
        ),
    ] = "riverswim",
    attack: Annotated[
        str, typer.Option(help="claim (bad actions pay), deny (the best ones do not), swap (both) or garbage.")
    ] = "swap",
    share: Annotated[
        list[float] | None,
        typer.Option(help="Attackers among the people; may be repeated.", show_default="0, .01, .03, .05, .1"),
    ] = None,
    defence: Annotated[
        str,
        typer.Option(help="none, popcount or unary (local), or robust (believe only what attackers could not do)."),
    ] = "none",
    epsilon: Annotated[float, typer.Option(help="Privacy budget per user.")] = 1.0,
    episodes: Annotated[int | None, number_of_users(shown="20000, local 200000")] = None,
    instance: Instance = 0,
    seeds: Seeds = "0:3",
    measured: Annotated[
        bool, typer.Option("--measured", help="What was measured with 20 seeds (docs/poisoning.md); runs nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What attackers among the people do to Spotlight: the value of its last plan, for several shares of them.

    They send what the form of the trust model lets through: one item to a curator or to two servers, any bits where
    bits are shuffled or randomised at home.

    [bold]Examples[/bold]

    discreet poison --measured                                    the table of docs/poisoning.md, at once

    discreet poison --model joint --env chain --attack deny --share 0 --share .05 --seeds 0 --users 5000

    discreet poison --model local --defence popcount --share .05 --seeds 0 --users 5000
    """
    from discreet.runs import poisoning

    models, shares = model or list(poisoning.MODELS), share or list(poisoning.SHARES)
    if defence not in poisoning.DEFENCES:
        raise ValueError(f"unknown defence {defence!r}; choose one of {', '.join(poisoning.DEFENCES)}")
    if measured:
        rows = [row for each in models for row in poisoning.row(each, env, attack, defence)]
        if not rows:
            raise ValueError(f"{attack} on {env} with defence {defence} was not measured; leave --measured out")
    else:
        wanted = seed_list(seeds)
        place, instance = own_or_named(env, instance)
        asked = [poisoning.experiment_of(each, place, epsilon, episodes, instance=instance) for each in models]
        people = sum(experiment.episodes for experiment in asked)
        with compilation_notice(), progress_bar("poison", people * len(shares) * len(wanted)) as advance:
            rows = [
                poisoning.measured(experiment, attack, each, defence, wanted, advance)
                for experiment in asked
                for each in shares
            ]
    if as_json:
        say_json({"attack": attack, "env": env, "defence": defence, "rows": [_told(row) for row in rows]})
        return
    show(value_table(rows, attack), wide=True)
    first = rows[0]
    say(
        f"value of the last plan, mean over {first.seeds} seeds (worst); best plan {first.optimal:.2f}, acting at "
        f"random {first.random:.2f}; * an alarm in at least half of the runs"
    )


def _told(row: Measured) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(row)


def value_table(rows: list[Measured], attack: str) -> Any:
    """A line per trust model, a column per share."""
    from rich.table import Table

    shares = sorted({row.share for row in rows})
    table = Table(title=f"{rows[0].env}, attack: {attack}", title_justify="left")
    table.add_column("trust", style="bold")
    for share in shares:
        table.add_column(f"{share:.0%}" if share in (0.0,) or share >= 0.01 else f"{share:.2%}", justify="right")
    for model in dict.fromkeys(row.model for row in rows):
        found = {row.share: row for row in rows if row.model == model}
        cells = [
            f"{row.value:.2f} ({row.worst:.2f}){'*' if row.alarmed >= 0.5 else ''}" if row else "–"
            for row in map(found.get, shares)
        ]
        table.add_row(model, *cells)
    return table
