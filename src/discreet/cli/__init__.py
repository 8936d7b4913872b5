"""The command line. Commands import what they need when they run, so that help comes at once."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from discreet.cli import columns, listing, offline, privacy, reproducing, running, showing, suites, sweeping, theory
from discreet.cli.settings import LearnerCommand
from discreet.cli.terminal import Commands, say

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"discreet {version('discreet')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Reinforcement learning from people's trajectories, with differential privacy that can be checked.

    [bold]First steps[/bold]

    discreet algorithms                      what can be run

    discreet envs                            where it can be run

    discreet run ucbvi --seeds 0:5           learn RiverSwim, five times

    discreet run dp-ucbvi --pooled --epsilon 1        the same with privacy

    discreet run ucbvi --out results/        keep the results, continue later

    discreet plot results/                   draw their learning curves

    discreet sweep sweep.toml --out results/          many experiments at once

    discreet results results/                tables of them

    discreet report results/                 everything they say, as one page

    discreet calibrate --epsilon 1           what would privacy cost?

    discreet explore                         the same with sliders, in a browser
    """
    if context.invoked_subcommand is None:
        say(context.get_help())


app.command("algorithms")(listing.algorithms)
app.command("envs")(listing.envs)
app.command("run", cls=LearnerCommand)(running.run)
app.command("plot")(running.plot)
app.command("sweep")(sweeping.sweep)
app.command("results")(sweeping.results)
app.command("report")(showing.report)
app.command("explore")(showing.explore)
app.command("demo")(running.demo)
app.command("calibrate")(privacy.calibrate)
app.command("audit")(privacy.audit)
app.command("declare")(columns.declare)
app.command("check")(columns.check)
app.command("bound")(theory.bound)
app.command("reproduce")(reproducing.reproduce)
app.add_typer(suites.app, name="suite")
app.command("fit")(offline.fit)
app.command("verify")(offline.verify)
app.command("evaluate")(offline.evaluate)


def main() -> None:
    """The `discreet` program. A part of a short command would else be spent on looking for garbage among what was
    imported, where there is none."""
    gc.set_threshold(50_000)
    app(prog_name="discreet")
