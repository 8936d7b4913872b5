"""Pages to look at: a report of results, and what privacy would cost."""

from __future__ import annotations

import shlex
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.options import Json, written
from discreet.cli.settings import SETTINGS
from discreet.cli.terminal import say, say_json

if TYPE_CHECKING:
    from discreet.runs.results import RunResult


def report(
    folder: Annotated[
        Path, typer.Argument(help="A folder that `discreet run … --out` has written.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        written("a page (HTML).", "FOLDER-report.html beside the folder"),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also put every figure into this folder, as PNG and SVG.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Everything a folder of results says, as one page that needs nothing else: it opens offline, prints, and works
    on a phone.

    Learning curves, regret and last gap against epsilon and against users, models of trust side by side, worst seeds,
    guarantees and ledgers in words, settings, versions, and the commands that repeat it.

    [bold]Examples[/bold]

    discreet report results/                                      results-report.html

    discreet report results/ -o report.html --figures figures/    the figures also as PNG and SVG
    """
    path, made = reported(folder, out, figures)
    if as_json:
        say_json({"page": str(path), "figures": list(map(str, made))})
        return
    if figures is not None:
        say(f"{len(made)} figures are in {figures}")
    say(f"the report is in {path}")


def explore(
    results: Annotated[
        Path | None, typer.Option(help="A folder of results: its measurements are shown too.", show_default=False)
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port to listen on, on this machine.", show_default="any that is free")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Move sliders for users, epsilon, sizes and trust, and see what privacy would cost: noise, users needed, and
    what was measured nearby.

    The page is served to this machine only, under an address that nobody can guess, and loads nothing from elsewhere.
    Its numbers are those of `discreet calibrate`, and it says with which command. Ctrl-C ends it.

    [bold]Examples[/bold]

    discreet explore

    discreet explore --results results/ --port 8765 --no-browser
    """
    from discreet.catalog import TRUST
    from discreet.pages import explore as pages
    from discreet.pages.serving import Local
    from discreet.runs import exploring

    if not 0 <= port < 2**16:
        raise ValueError(f"--port is {port}; it must lie between 1 and 65535, or be 0 for any that is free")
    measured = exploring.shipped() + ([] if results is None else exploring.of_folder(results))
    origin = "the families of docs/results-families.md" + ("" if results is None else f", and {results}")
    worker = exploring.Worker(measured)
    with Local(*pages.page(exploring.NUMBERS, TRUST, origin), worker, port) as server:
        worker.ready()
        say(f"open {server.url}")
        say("only this machine can see it; Ctrl-C ends it")
        if browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")
        finally:
            worker.close()


def reported(folder: Path, out: Path | None, figures: Path | None = None) -> tuple[Path, list[Path]]:
    """Write the page, and the figures where they are wanted."""
    from discreet import provenance
    from discreet.cli.running import beside
    from discreet.pages import charts
    from discreet.pages import report as pages
    from discreet.runs import report, results

    rows = report.reportable(folder)
    path = beside(folder, "report.html") if out is None else out
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"cannot write a page to {str(path)!r}: its ending must be .html")
    if path.resolve().parent == folder.resolve():
        raise ValueError(f"{str(path)!r} lies among the results, where every file is a table; put it elsewhere")
    results.prepare(path.parent)
    known = ("version", "command", "time")
    made_by = {name: value for name, value in provenance.facts().items() if name in known}
    name = folder.resolve().name
    results.replaced(path, lambda part: part.write_text(pages.page(rows, name, commands(rows), made_by), "utf-8"))
    if figures is None:
        return path, []
    results.prepare(figures)
    return path, [made for some in pages.contents(rows).sections for made in charts.save(some, figures)]


def commands(rows: list[RunResult]) -> dict[str, str]:
    """By experiment, the command that runs it again; those that no command names are left out."""
    found = {row.id: command_of(row.settings, row.id) for row in rows}
    return {name: command for name, command in found.items() if command is not None}


def command_of(settings: Mapping[str, Any], name: str) -> str | None:
    """`discreet run` with the settings that differ from what would hold anyway; None where that is not `name`."""
    from discreet.runs.experiment import Experiment

    known = ("algorithm", "env", "epsilon", "rho", "model")
    try:
        least: dict[str, Any] = {key: settings.get(key) for key in known}
        plain = Experiment(**least).resolved.settings
        said = {k: v for k, v in settings.items() if v is not None and (k in known or v != plain[k])}
        if Experiment(**said).id != name:
            return None
    except (ValueError, TypeError, KeyError):  # an object of somebody's own, or settings of another version
        return None
    shown = {
        k: v for k, v in said.items() if k != "algorithm" and (k in ("env", "epsilon", "rho") or v != plain.get(k))
    }
    if settings.get("model") and _first_model(settings["algorithm"]) != settings["model"]:
        shown["model"] = settings["model"]
    words = [word for key, value in shown.items() for word in _words(key, value)]
    return shlex.join(["discreet", "run", settings["algorithm"], *words])


def _first_model(algorithm: str) -> str:
    from discreet.catalog import ALGORITHMS

    return ALGORITHMS[algorithm].models[0]


def _words(name: str, value: Any) -> list[str]:
    flag = next(iter(SETTINGS[name].flags), "--" + name.replace("_", "-"))
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return [flag, short if not isinstance(value, float) or float(short) == value else repr(value)]
