"""The tutorial from a raw file to a certificate: its commands run in order and print what it shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from discreet import Declaration, Policy
from discreet.cli import app
from discreet.offline import heldout

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial-log.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
#: Commands whose output no noise changes.
EXACT = ("declare", "check", "calibrate")
THREE = ("declare", "fit", "evaluate")


def sessions(text: str) -> list[tuple[str, list[str]]]:
    """Commands of a block, each with the lines it is shown to print."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def printed(command: str) -> list[str]:
    program, *arguments = shlex.split(command)
    if program == "python":
        subprocess.run([sys.executable, str(ROOT / arguments[0]), *arguments[1:]], check=True)
        return []
    assert program == "discreet"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (command, done.output)
    return done.output.splitlines()


def shape(line: str) -> str:
    return re.sub(r"\d[\d,.]*", "#", line)


def agrees(shown: list[str], lines: list[str], exact: bool) -> None:
    """Every line that is shown is printed, in this order; of noisy ones up to their numbers."""
    found = iter(lines if exact else map(shape, lines))
    for line in shown:
        wanted = line if exact else shape(line)
        assert any(wanted == other for other in found), (line, lines)


def test_the_tutorial_runs_in_order_and_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (three, *consoles), tomls, programs = (
        [body for kind, body in BLOCKS if kind == wanted] for wanted in ("console", "toml", "python")
    )
    commands = []
    for block in consoles:
        for command, shown in sessions(block):
            commands.append(command)
            lines = printed(command)
            agrees(shown, lines, command.split()[1] in EXACT)
            if command.split()[1] == "declare":
                template = Path("stays.toml").read_text()
                assert all(f'{name}"' in template for name in ("patient", "charttime", "p_drug", "map", "lactate"))
                Path("stays.toml").write_text(tomls[0])
            if command.split()[1] == "fit":
                names: dict[str, Policy] = {}
                exec(programs[0], names)
                answer = names["policy"].act({"map": 58, "lactate": 3.2, "age": 70}, step=0)
                assert answer in ("nothing", "fluids", "vasopressors", "both", "as now")
    assert [command for command, _ in sessions(three)] == [c for c in commands if c.split()[1] in THREE]
    document = json.loads(Path("policy", "certificate.json").read_text())
    assert document["comparisons"][0]["people"] == heldout.CHECKED
    assert document["declaration"]["text"] == Declaration.from_toml(tomls[0]).text
    page = Path("policy", "certificate.html").read_text()
    assert "Better than now by at least" in page
    assert "@page" in page  # it is set for paper
    assert "vasopressors" in page
