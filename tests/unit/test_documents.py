"""What the documents show is run: examples that stop working fail here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest
from typer.testing import CliRunner

from discreet import catalog
from discreet.catalog import recipes
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
    made = {**vars(recipes), "RandomlyExploringGreedy": agent}
    exec(block("CONTRIBUTING.md", "python recipe"), made)
    monkeypatch.setattr(recipes, "greedy", made["greedy"], raising=False)
    lines = block("CONTRIBUTING.md", "python catalog")
    added = {entry.name: entry for entry in eval(f"({lines})", vars(catalog))}
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
    """As they stand in the catalog: the names that they use are those of its modules."""
    house = ROOT / "src" / "discreet" / "catalog"
    agent = block("CONTRIBUTING.md", "python agent").replace("from __future__ import annotations\n", "")
    recipe, lines = block("CONTRIBUTING.md", "python recipe"), block("CONTRIBUTING.md", "python catalog")
    pages = tmp_path / "extended_recipes.py", tmp_path / "extended_catalog.py"
    pages[0].write_text(f"{(house / 'recipes.py').read_text()}\n\n{agent}\n\n{recipe}")
    pages[1].write_text(f"{(house / '__init__.py').read_text()}\n\n_ALGORITHMS += (\n{lines})\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *map(str, pages)],
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


def test_u4_an_own_problem_and_learner_in_ten_lines(capsys):
    program = block("README.md", "python own")
    exec(program, {})
    first, second = capsys.readouterr().out.splitlines()
    assert 0 < float(first.split()[0]) < 1
    assert first.endswith("joint DP, ε = 1 per user, replace-one")
    assert second.endswith("(8, 3, 2)")
    measured = program[: program.index("learned =")].splitlines()
    assert len([line for line in measured if line]) <= 10


def test_u4_the_plug_in_of_the_page_is_found_by_the_program(tmp_path):
    """Installed as an installer would: the module, and its entry points as metadata."""
    (tmp_path / "swimmers.py").write_text(block("CONTRIBUTING.md", "python plugin"))
    groups = tomllib.loads(block("CONTRIBUTING.md", "toml plugin"))["project"]["entry-points"]
    info = tmp_path / "swimmers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: swimmers\nVersion: 1.0\n")
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in groups.items()
    )
    (info / "entry_points.txt").write_text(points)
    done = subprocess.run(
        [sys.executable, "-c", "from discreet.cli import main; main()"]
        + shlex.split("run swimmer --env pond --horizon 4 --epsilon 1 --episodes 2000 --pooled"),
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(tmp_path)])},
    )
    assert done.returncode == 0, done.stderr
    assert "swimmer on pond: 2 states, horizon 4" in done.stdout
    assert "joint DP, ε = 1 per user, replace-one" in done.stdout


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


def test_the_session_of_own_problems_works(capsys):
    found: dict[str, object] = {}
    exec(block("docs/own-problems.md", "python session"), found)
    assert capsys.readouterr().out == "joint DP, ε = 1 per user, replace-one\n"
    assert found["session"].ended
