"""The command line. Commands import what they need when they run, so that help comes at once."""

from __future__ import annotations

import gc
import signal
from typing import Annotated

import typer

from discreet import __version__
from discreet.cli import (
    columns,
    demonstrating,
    deploying,
    doctoring,
    listing,
    offline,
    poisoning,
    privacy,
    reproducing,
    running,
    showing,
    suites,
    sweeping,
    theory,
)
from discreet.cli.commands import command, parts
from discreet.cli.settings import LearnerCommand
from discreet.cli.terminal import INTERRUPTED, Commands, say

_HELP, _EPILOG = (
    parts("""Reinforcement learning from people's trajectories, with differential privacy that can be checked.

[bold]Exit codes[/bold] 0 done; 1 the answer is no (verify, doctor), or some runs failed; 2 wrong input or usage;
74 a store failed; 130 interrupted; 141 nobody reads the output.

[bold]Examples[/bold]

discreet demo                                     see all of it once

discreet doctor                                   is it installed well?

discreet calibrate --epsilon 1 --pooled           what would privacy cost?

discreet run ucbvi --users 5000                   learn RiverSwim

discreet run dp-ucbvi --pooled --epsilon 1 --users 5000      the same with privacy

discreet COMMAND --help                           more, with examples of each
""")
)
app = typer.Typer(
    cls=Commands,
    help=_HELP,
    epilog=_EPILOG,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"discreet {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """The options of the program itself."""
    if context.invoked_subcommand is None:
        say(context.get_help())


_LOOK, _LEARN, _LOGS, _LIVE, _ASK = "Look around", "Learn online", "Learn from a log", "Learn live", "Ask first"
command(app, "demo", _LOOK)(demonstrating.demo)
command(app, "doctor", _LOOK)(doctoring.doctor)
command(app, "algorithms", _LOOK)(listing.algorithms)
command(app, "envs", _LOOK)(listing.envs)
command(app, "run", _LEARN, LearnerCommand)(running.run)
command(app, "plot", _LEARN)(running.plot)
command(app, "report", _LEARN)(showing.report)
command(app, "sweep", _LEARN)(sweeping.sweep)
command(app, "results", _LEARN)(sweeping.results)
app.add_typer(suites.app, name="suite", rich_help_panel=_LEARN)
command(app, "poison", _LEARN)(poisoning.poison)
command(app, "reproduce", _LEARN)(reproducing.reproduce)
command(app, "declare", _LOGS)(columns.declare)
command(app, "check", _LOGS)(columns.check)
command(app, "fit", _LOGS)(offline.fit)
command(app, "verify", _LOGS)(offline.verify)
command(app, "evaluate", _LOGS)(offline.evaluate)
app.add_typer(deploying.app, name="deploy", rich_help_panel=_LIVE)
command(app, "serve", _LIVE)(deploying.serve)
command(app, "visit", _LIVE)(deploying.visit)
command(app, "calibrate", _ASK)(privacy.calibrate)
command(app, "explore", _ASK)(showing.explore)
command(app, "audit", _ASK)(privacy.audit)
command(app, "bound", _ASK)(theory.bound)


def main() -> None:
    """The `discreet` program. A part of a short command would else be spent on looking for garbage among what was
    imported, where there is none."""
    gc.set_threshold(50_000)
    try:
        app(prog_name="discreet")
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would be heard by what closes files
        raise
