"""One vocabulary: an option means the same wherever it stands, and what it was called before is still understood."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from discreet.cli import app, terminal
from discreet.cli.commands import RENAMED, parts, translated
from discreet.live import server

#: In a simulation every episode is another user, so that one number has two names.
SYNONYMS = {"--episodes": "--users"}
#: First clauses that say what several options are about, and not what they are.
TOPICS = {"Heavy tails", "Adversarial losses", "For the ledger and the certificate"}
#: Numbers that may be given as text: names of states and actions, several numbers of users.
NUMBER_OR_TEXT = {"--states", "--actions", "--episodes", "--users"}


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    group = typer.main.get_command(app) if group is None else group
    for name, each in group.commands.items():
        here = f"{path} {name}".strip()
        if hasattr(each, "commands"):
            yield from commands(each, here)
        else:
            yield here, each


COMMANDS = dict(commands())


def kind(option: Any) -> str:
    """What is written behind an option; lists are options that may be repeated."""
    if hasattr(option, "type_descriptor"):
        return (
            re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", str(option.type_descriptor.annotation))
            .split("[")[-1]
            .rstrip("]")
        )
    return str(option.type.name)


def meaning(option: Any) -> str:
    """The first clause of its help; the rest says what is particular about it here."""
    return re.split(r"[.,:;(]", option.help)[0].strip()


def vocabulary() -> dict[str, dict[tuple[str, str], list[str]]]:
    found: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, command in COMMANDS.items():
        for option in command.params:
            if option.param_type_name == "option":
                for name in (*option.opts, *option.secondary_opts):
                    found[name][kind(option), meaning(option)].append(path)
    return found


def test_an_option_has_one_meaning_and_one_type_everywhere():
    wrong = {}
    for name, uses in vocabulary().items():
        kinds = {"int" if name in NUMBER_OR_TEXT and each == "str" else each for each, _ in uses}
        if len(kinds) > 1 or len({each for _, each in uses}) > 1:
            wrong[name] = dict(uses)
    assert not wrong


def test_a_meaning_has_one_name():
    """What is the same in two commands is not called differently."""
    names: dict[str, set[str]] = defaultdict(set)
    for name, uses in vocabulary().items():
        for _, each in uses:
            if name.startswith("--") and not name.startswith("--no-"):
                names[each].add(SYNONYMS.get(name, name))
    several = {text for text, found in names.items() if len(found) > 1}
    assert several == TOPICS


def test_synonyms_stand_together():
    for path, command in COMMANDS.items():
        for option in command.params:
            for one, other in SYNONYMS.items():
                if one in option.opts:
                    assert other in option.opts, path


def test_the_short_names_are_few():
    short = {name: set(uses) for name, uses in vocabulary().items() if not name.startswith("--")}
    assert set(short) == {"-o", "-j", "-q"}


@pytest.mark.parametrize(("path", "old"), [(path, old) for path, names in RENAMED.items() for old in names])
def test_an_old_name_is_understood_and_warned_about_once(path, old, capsys):
    new, *more = RENAMED[path][old].split()
    known = {name for option in COMMANDS[path].params for name in (*option.opts, *option.secondary_opts)}
    assert old not in known
    assert new in known
    assert translated(path, ["a", old, "x"]) == ["a", new, *more, "x"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {old} is called {' '.join([new, *more])} now")
    assert translated(path, [f"{old}=x"])[0] == f"{new}=x"
    assert translated(path, ["--", old]) == ["--", old]


def test_an_old_name_runs():
    small = ["run", "dp-ucbvi", "--epsilon", "1", "--states", "3", "--horizon", "3", "--episodes", "20", "--json"]
    old = CliRunner().invoke(app, [*small, "--mode", "paper", "--quiet"])
    new = CliRunner().invoke(app, [*small, "--constants", "paper"])
    assert (old.exit_code, new.exit_code) == (0, 0)
    assert '"mode": "paper"' in old.stdout
    assert "warning: --mode is called --constants now, and the old name will go" in old.stderr
    assert "--mode" not in new.stderr


def test_users_and_episodes_are_one_number():
    told = [
        CliRunner().invoke(app, ["run", "ucbvi", "--states", "3", "--horizon", "3", name, "30", "--json"]).stdout
        for name in ("--episodes", "--users")
    ]
    assert all('"episodes": 30' in text for text in told)


def test_help_and_examples_are_told_apart():
    text = "What it does, in\ntwo lines.\n\nMore.\n\n[bold]Examples[/bold]\n\na b\n\nc d"
    assert parts(text) == ("What it does, in two lines.\n\nMore.", "[bold]Examples[/bold]\n\na b\n\nc d")
    assert parts("Alone.") == ("Alone.", None)


# The page -----------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text()


def pages() -> list[Path]:
    """What people read; what strangers typed is left as they did."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").glob("*/README.md")]
    return sorted(page for page in found if page.stem != "walkthroughs")


def named(page: Path) -> Iterator[tuple[str, str]]:
    """Commands and options as they stand together in a line of a page."""
    for line in page.read_text().replace("\\\n", " ").splitlines():
        for told, rest in re.findall(r"\bdiscreet ([a-z-]+(?: [a-z]+)?)([^`|\"']*)", line):
            path = told if told in COMMANDS else told.partition(" ")[0]
            for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", rest.partition(" # ")[0]):
                if path in COMMANDS:
                    yield path, option


def test_pages_name_options_as_they_are_called_now():
    known = {
        path: {"--help", *(name for each in command.params for name in (*each.opts, *each.secondary_opts))}
        for path, command in COMMANDS.items()
    }
    told = [(page.name, path, option) for page in pages() for path, option in named(page)]
    assert len(told) > 300
    assert [each for each in told if each[2] not in known[each[1]]] == []


def words() -> list[str]:
    """The table of docs/commands.md: an option of several commands, what it means, and where."""
    found: dict[str, tuple[str, list[str]]] = {}
    for path, command in COMMANDS.items():
        for option in command.params:
            if option.param_type_name == "option" and not {"--quiet", "--json"} & set(option.opts):
                name = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
                short = meaning(option)
                text = option.help.rstrip(".").replace("|", r"\|") if short in TOPICS | {"With --time"} else short
                found.setdefault(name, (text, []))[1].append(path)
    lines = [f"| {name} | {text} | {', '.join(where)} |" for name, (text, where) in found.items() if len(where) > 1]
    return sorted(lines)


def test_the_page_has_the_words():
    """Written by hand from this list, which is the program's."""
    assert [line for line in PAGE.splitlines() if line.startswith("| `--")] == words()


def test_the_page_has_the_old_names():
    for path, names in RENAMED.items():
        for old, new in names.items():
            assert f"| `discreet {path}` | `{old}` | `{new}` |" in PAGE


@pytest.mark.parametrize("where", ["page", "help"])
def test_exit_codes_are_told(where):
    text = PAGE if where == "page" else CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout
    codes = {
        0,
        terminal.SAID_NO,
        terminal.WRONG_INPUT,
        server.STORE_FAILED,
        terminal.INTERRUPTED,
        terminal.NOBODY_READS,
    }
    told = re.findall(r"^\| (\d+) \|", text, re.M) if where == "page" else re.findall(r"(?:codes|;) (\d+) ", text)
    assert set(map(int, told)) == codes


@pytest.mark.parametrize("path", COMMANDS)
def test_the_page_names_every_command(path):
    assert f"`{path}`" in PAGE
