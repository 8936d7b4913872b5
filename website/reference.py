"""Pages made from the program itself: every command with its help and what it printed, and the public names."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import typer
from typer import rich_utils
from typer.testing import CliRunner

import discreet
import sessions
from discreet.cli import app

#: Public names, by what one does with them.
NAMES = {
    "Learning": "learn Learned run run_seeds Experiment RunResult plot calibrate",
    "Problems": "FiniteMDP make register_env RewardLaw GymnasiumUsers Problem PublicStructure",
    "Learners": "Algorithm Triple register_algorithm Plan greedy_plan optimal_plan policy_value occupancy "
    "uniform_policy",
    "Logs": "fit Fitted compare evaluate verify LogFormat Declaration Policy",
    "Privacy": "Budget Guarantee LedgerEntry NoiseSource audit",
    "What is counted, and what is released": "Episodes Counts CountSpec PrivateCounts",
    "Privatizers": "Exact OneShot Epochs Tree Toeplitz Reports LocalReports LocalLaplace LocalSampled Shuffle",
}


def pages() -> dict[str, str]:
    """Page of the site → its Markdown."""
    found = {"reference/api.md": api(), "reference/commands/index.md": overview()}
    for path, command in commands():
        found[f"reference/commands/{'-'.join(path)}.md"] = page(path, command)
    return found


def commands() -> Iterator[tuple[tuple[str, ...], typer.core.TyperCommand]]:
    """Every command, those of groups too, in the order of the program's help."""

    def walk(command: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], typer.core.TyperCommand]]:
        inside = getattr(command, "commands", None)
        if inside is None:
            yield path, command
        else:
            for name, each in inside.items():
                yield from walk(each, (*path, name))

    yield from walk(typer.main.get_command(app), ())


def help_of(path: tuple[str, ...]) -> str:
    with patch.object(rich_utils, "MAX_WIDTH", int(sessions.WIDTH)):  # it reads TERMINAL_WIDTH once, when imported
        done = CliRunner(env=sessions.PLAIN).invoke(app, [*path, "--help"])
    assert done.exit_code == 0, done.output
    return "\n".join(line.rstrip() for line in done.output.strip("\n").splitlines())


def first_sentence(command: typer.core.TyperCommand) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return text.replace("|", "\\|")


def overview() -> str:
    rows = [
        f"| [`discreet {' '.join(path)}`]({'-'.join(path)}.md) | {first_sentence(command)} |"
        for path, command in commands()
    ]
    return "\n".join(
        [
            "# Commands",
            "",
            "Help texts are those of the program this site was built with. What is shown as printed was printed:",
            "`make docs` runs these commands again, and a test says when an answer has changed.",
            "",
            "| command | what it does |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def page(path: tuple[str, ...], command: typer.core.TyperCommand) -> str:
    name = " ".join(path)
    lines = [f"# discreet {name}", "", first_sentence(command), ""]
    shown = list(examples(path))
    if shown:
        lines += ["## As it runs", ""]
    for session, step in shown:
        if session.exact:
            said = "A test compares this with what the program prints."
        else:
            said = f"Printed once and kept ({session.kind.removeprefix('kept: ')})."
        kind = "text" if wide(step.printed) else "console"
        lines += [f"```{kind}", f"$ {step.command}", step.printed.rstrip("\n"), "```", "", said, ""]
        used = {file: text for file, text in session.files().items() if file in step.command}
        lines += [f"`{file}`:\n\n```toml\n{text.strip()}\n```\n" for file, text in used.items()]
    lines += ["## Help", "", "```text", f"$ discreet {name} --help", help_of(path), "```", ""]
    return "\n".join(lines)


def wide(printed: str) -> bool:
    """Whether it holds a table that is wider than the page: such a table scrolls, sentences are wrapped."""
    return any(len(line) > int(sessions.WIDTH) and len(line.split("  ")) > 3 for line in printed.splitlines())


def examples(path: tuple[str, ...]) -> Iterator[tuple[sessions.Session, sessions.Step]]:
    for session in sessions.every():
        for step in session.steps:
            words = step.command.split()
            if words[0] == "discreet" and tuple(words[1 : 1 + len(path)]) == path:
                yield session, step


def api() -> str:
    listed = [name for names in NAMES.values() for name in names.split()]
    if left := set(listed) ^ set(discreet.__all__):
        raise ValueError(f"NAMES of website/reference.py and discreet.__all__ differ in {sorted(left)}")
    lines = [
        "# Python",
        "",
        "The public names of `discreet`; everything else may change between versions. Names are imported when",
        "they are first asked for, so that `import discreet` is quick. Letters: [notation](../notation.md).",
        "",
    ]
    for title, names in NAMES.items():
        lines += [f"## {title}", ""]
        for name in names.split():
            lines += [f"::: discreet.{name}", ""]
    return "\n".join(lines)
