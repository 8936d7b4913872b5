"""What the documents show is run: examples that stop working fail here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest
from typer.testing import CliRunner

from discreet import catalog
from discreet.cli import app
from discreet.planning import Agent
from discreet.runs.experiment import Experiment, run

ROOT = Path(__file__).parents[2]


def block(page: str, kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    return str(found)


@pytest.fixture
def contributed(monkeypatch):
    """The learner of CONTRIBUTING.md, added to the catalog by its one line."""
    module = ModuleType("discreet.agents.greedy")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(block("CONTRIBUTING.md", "python agent"), module.__dict__)
    agent = module.RandomlyExploringGreedy
    lines = block("CONTRIBUTING.md", "python catalog") + block("CONTRIBUTING.md", "python private")
    added = {entry.name: entry for entry in eval(f"({lines})", {**vars(catalog), "RandomlyExploringGreedy": agent})}
    monkeypatch.setattr(catalog, "ALGORITHMS", MappingProxyType({**catalog.ALGORITHMS, **added}))
    return agent


def test_the_contributed_learner_is_found_and_learns(contributed):
    assert "greedy" in CliRunner().invoke(app, ["algorithms"]).stdout
    agent: Agent = contributed()
    assert agent == contributed(0)
    result = run(Experiment("greedy", states=3, horizon=6, episodes=3000), 0)
    assert result.regret_ratio is not None
    assert result.regret_ratio < 0.5
    ran = CliRunner().invoke(app, ["run", "greedy", "--states", "3", "--horizon", "6", "--episodes", "300"])
    assert ran.exit_code == 0
    assert "no privacy" in ran.stdout
    private = Experiment("private-greedy", states=3, horizon=6, episodes=3000, epsilon=1.0)
    assert run(private, 0).guarantee.epsilon == 1.0
    assert private.twin == Experiment("greedy", states=3, horizon=6, episodes=3000)
    with pytest.raises(ValueError, match="private-greedy has no use for bonus"):
        Experiment("private-greedy", epsilon=1.0, bonus="bernstein")


def test_u8_the_contributed_lines_pass_strict_types(tmp_path):
    """As they stand in the catalog: the names that they use are those of its module."""
    source = (ROOT / "src" / "discreet" / "catalog.py").read_text()
    agent = block("CONTRIBUTING.md", "python agent").replace("from __future__ import annotations\n", "")
    lines = block("CONTRIBUTING.md", "python catalog") + block("CONTRIBUTING.md", "python private")
    page = tmp_path / "extended_catalog.py"
    page.write_text(f"{source}\n\n{agent}\n\n_ALGORITHMS += (\n{lines})\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(page)],
        text=True,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_contributed_file_passes_the_gate_of_the_house():
    code = block("CONTRIBUTING.md", "python agent")
    for command in (["check", "-"], ["format", "--check", "-"]):
        name = ["--stdin-filename", "src/discreet/agents/greedy.py"]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *name], input=code, text=True, capture_output=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands_of_the_readme_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = block("README.md", "console").splitlines()
    assert len(lines) >= 5
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "discreet"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (line, result.output)
    assert (tmp_path / "results-regret.png").is_file()


@pytest.mark.parametrize("page", ["docs/device.md", "docs/shuffle.md"])
def test_the_programs_of_devices_work(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(block(page, "python"), found)
    assert "report" in found or "release" in found


def test_the_program_of_the_readme_works(capsys):
    exec(block("README.md", "python"), {})
    ratio, none, guarantee, entry = capsys.readouterr().out.splitlines()
    assert 0 < float(ratio) < 1
    assert none == "no privacy"
    assert "ε = 1 per user, replace-one" in guarantee
    assert "discrete-laplace" in entry


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in sorted(ROOT.glob("docs/*.md")))]
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


def test_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(
        r"make ([a-z]+)", (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    ):
        assert re.search(rf"^{target}:", makefile, re.M), target
