"""Completion: what the shells ask the program, and what it answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from discreet.catalog import ALGORITHMS, TRUST
from discreet.cli import app
from discreet.envs.registry import ENVIRONMENTS

PROGRAM = [sys.executable, "-c", "from discreet.cli import main; main()"]


def asked(shell: str, words: str, **more: str) -> list[str]:
    """The lines that the program answers while somebody types `words`."""
    number = len(words.split()) - (not words.endswith(" "))
    protocol = {"COMP_WORDS": words, "COMP_CWORD": str(number), "_TYPER_COMPLETE_ARGS": words, **more}
    done = CliRunner(env={"_DISCREET_COMPLETE": f"complete_{shell}", **protocol}).invoke(app, prog_name="discreet")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


ONLINE = [name for name, entry in ALGORITHMS.items() if entry.runner != "offline"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("discreet run ", ONLINE),
        ("discreet run dp-u", [name for name in ONLINE if name.startswith("dp-u")]),
        ("discreet run dp-ucbvi --env ", list(ENVIRONMENTS)),
        ("discreet run dp-ucbvi --mode paper --model ", list(TRUST)),
        ("discreet evaluate policy --env river", [name for name in ENVIRONMENTS if name.startswith("river")]),
        ("discreet fit log.csv --algorithm a", ["auto", "apvi"]),
        ("discreet re", ["report", "results", "reproduce"]),
        ("discreet deploy in", ["init"]),
        ("discreet calibrate --epi", ["--episodes"]),
        ("discreet audit paper-t", ["paper-tree", "paper-truncation"]),
        ("discreet suite run spotlight --problem q", ["queue"]),
        ("discreet bound dp-u", ["dp-ucbvi"]),
        ("discreet reproduce wz", ["wzcw23-figure-4"]),
    ],
)
def test_bash_completes_commands_options_learners_environments_and_models(words, answer):
    assert sorted(asked("bash", words)) == sorted(answer)


def test_zsh_and_fish_are_told_what_names_mean():
    (first, *_) = asked("zsh", "discreet run ucbvi-b")
    assert first.startswith("""_arguments '*: :(("ucbvi-bernstein":"optimistic value iteration""")
    fish = asked("fish", "discreet run ucbvi-b", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert fish == ["ucbvi-bernstein\toptimistic value iteration, Bernstein bonus"]


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish")])
def test_completion_is_shown_and_installed(shell, file, tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for option in ("--show-completion", "--install-completion"):
        words = [*PROGRAM, option, shell]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=True)
        assert (shell if "install" in option else "_DISCREET_COMPLETE") in done.stdout
    written = [path for path in (tmp_path / file).rglob("*") if path.is_file()] or [tmp_path / file]
    assert all("discreet" in path.read_text() or "compinit" in path.read_text() for path in written)


def test_bash_itself_completes_a_learner(tmp_path):
    """The script that is shown, in a real shell: what stands in COMPREPLY."""
    program = tmp_path / "discreet"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from discreet.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    script = (
        'export _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1; eval "$(discreet --show-completion bash)"\n'
        "unset _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION\n"
        'COMP_WORDS=(discreet run ucbvi-); COMP_CWORD=2; _discreet_completion discreet; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["ucbvi-bernstein"]
