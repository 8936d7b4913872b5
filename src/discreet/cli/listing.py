"""What can be run, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.options import Json
from discreet.cli.terminal import say, say_json, show, warn

if TYPE_CHECKING:
    from discreet.catalog import Algorithm


def algorithms(
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/algorithms.md.")] = False,
) -> None:
    """List the learners that `discreet run` and `discreet fit` know.

    [bold]Examples[/bold]

    discreet algorithms

    discreet algorithms --json
    """
    from discreet.catalog import ALGORITHMS, dashed, load_plugins

    if markdown:
        say(markdown_page().rstrip())
        return
    for failure in load_plugins():
        warn(failure)
    entries = [
        {
            "name": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "practical": entry.practical,
            "private": entry.private,
            "models": list(entry.models) if entry.private else [],
            "twin": entry.twin,
            "command": command(entry),
            "options": sorted(map(dashed, entry.options)),
        }
        for entry in ALGORITHMS.values()
    ]
    if as_json:
        say_json({"algorithms": entries})
        return
    from rich.markup import escape
    from rich.table import Table

    for name, title in TITLES.items():
        table = Table(title=f"{title}: {escape(USAGE[name])}", title_justify="left")
        table.add_column("name", min_width=max(map(len, ALGORITHMS)))
        for column in ("what it does", "privacy", "source"):
            table.add_column(column)
        for entry in ALGORITHMS.values():
            if command(entry) == name:
                table.add_row(f"[bold]{entry.name}[/bold]", entry.summary, privacy(entry), escape(forms(entry)))
        show(table)


TITLES = {"run": "Learners", "fit": "Learners from logs"}
USAGE = {"run": "discreet run NAME", "fit": "discreet fit LOGS --algorithm NAME"}


def command(entry: Algorithm) -> str:
    return "fit" if entry.runner == "offline" else "run"


def privacy(entry: Algorithm) -> str:
    return ", ".join(entry.models) if entry.private else "none"


def forms(entry: Algorithm) -> str:
    """Whose learner it is: as printed, and by default."""
    return entry.source if entry.practical is None else f"paper: {entry.source}; practical: {entry.practical}"


def markdown_page() -> str:
    """The list of learners as a page of the documentation."""
    from discreet.catalog import ALGORITHMS

    lines = [
        "# Learners",
        "",
        "Written by `make docs` from `src/discreet/catalog`; a test compares the two. `discreet run` runs a",
        "triple (agent, privatizer, schedule), so what it may see and what it guarantees can be read off its parts;",
        "`discreet fit` makes one release from a log and plans on it ([offline.md](offline.md)).",
        "",
        "*paper* is `--constants paper`; *practical* is the default, and under every paper's name it is a learner of",
        "discreet's own. *Recalled* means that we know the paper but had no copy to compare with.",
    ]
    for name, title in TITLES.items():
        lines += [
            "",
            f"## {title}: `{USAGE[name]}`",
            "",
            "| name | what it does | privacy | source |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{entry.name}` | {entry.summary} | {privacy(entry)} | {forms(entry)} |"
            for entry in ALGORITHMS.values()
            if command(entry) == name
        ]
    return "\n".join(lines) + "\n"


def envs(as_json: Json = False) -> None:
    """List the environments that `--env` knows.

    [bold]Examples[/bold]

    discreet envs

    discreet envs --json
    """
    from discreet.envs.registry import ENVIRONMENTS, GYM_PREFIX, load_plugins

    for failure in load_plugins():
        warn(failure)
    if as_json:
        entries = [
            {
                "name": spec.name,
                "summary": spec.summary,
                "states": spec.states,
                "actions": spec.actions,
                "horizon": spec.horizon,
                "resizable_states": spec.resizable_states,
                "resizable_horizon": spec.resizable_horizon,
                "random": spec.random,
                "staged": spec.staged,
            }
            for spec in ENVIRONMENTS.values()
        ]
        say_json({"environments": entries})
        return
    from rich.table import Table

    table = Table(title="Environments: --env NAME", title_justify="left")
    table.add_column("name", min_width=max(map(len, ENVIRONMENTS)))
    for column in ("what it is", "states", "actions", "horizon"):
        table.add_column(column)
    for spec in ENVIRONMENTS.values():
        notes = [text for text, holds in (("random: --instance", spec.random), ("staged", spec.staged)) if holds]
        summary = spec.summary + (f" ({', '.join(notes)})" if notes else "")
        states = f"{spec.states}{' *' if spec.resizable_states else ''}"
        horizon = f"{spec.horizon}{' *' if spec.resizable_horizon else ''}"
        table.add_row(f"[bold]{spec.name}[/bold]", summary, states, str(spec.actions), horizon)
    show(table)
    say("* can be changed with --states or --horizon; staged environments change with the step and cannot be pooled")
    say(f"{GYM_PREFIX}ENV_ID reads any of Gymnasium's toy-text environments, for example {GYM_PREFIX}CliffWalking-v1")
