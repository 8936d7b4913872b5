"""What the documents show is run: examples that stop working fail here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet import catalog
from discreet.catalog import recipes
from discreet.cli import app, demonstrating
from discreet.envs import registry, tabular
from discreet.offline import fitting, learners
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat
from discreet.planning import Agent, optimal_plan
from discreet.privacy.accounting import Budget
from discreet.privacy.trust import two_servers
from discreet.privacy.trust.reports import Reports
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


def test_the_contributed_learner_from_logs_does_what_most_people_did(monkeypatch):
    made = dict(vars(learners))
    exec(block("CONTRIBUTING.md", "python from-logs"), made)
    monkeypatch.setattr(learners, "commonest", made["commonest"], raising=False)
    added = {
        entry.name: entry
        for entry in eval(f"({block('CONTRIBUTING.md', 'python from-logs-catalog')})", vars(catalog))
    }
    monkeypatch.setattr(fitting, "FROM_LOGS", {**fitting.FROM_LOGS, **added})
    rng = np.random.default_rng(0)
    states = rng.integers(3, size=(2000, 3))
    habit = np.array([1, 0, 1])
    actions = np.where(rng.random((2000, 2)) < 0.8, habit[states[:, :2]], 1 - habit[states[:, :2]])
    people = Episodes(states, actions, np.zeros((2000, 2)))
    found = fitting.fit(people, LogFormat(3, 2, 2, pooled=True), Budget.pure(1.0), algorithm="dp-commonest", seed=0)
    assert found.policy.actions.tolist() == [habit.tolist()] * 2
    assert found.policy.known.all()
    assert found.certificate["guarantee"]["epsilon"] == pytest.approx(1.0)
    assert [line["statistic"] for line in found.certificate["ledger"]] == ["visits", "transitions"]


def test_the_contributed_privatizer_passes_every_contract(tmp_path):
    """Its file, its proof note and its line beside those of all privatizers; and with too little noise it fails."""
    code = block("CONTRIBUTING.md", "python privatizer")
    (tmp_path / "discreet_rounds.py").write_text(code)
    shutil.copytree(ROOT / "tests" / "contract", tmp_path / "contract")
    page = tmp_path / "contract" / "conftest.py"
    line = block("CONTRIBUTING.md", "python contract")
    text = page.read_text().replace("CASES = [\n", f"CASES = [\n{line}")
    page.write_text(text.replace("\nPURE, ", "\nfrom discreet_rounds import Rounds\n\nPURE, "))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "rounds",
        "--rootdir",
        str(tmp_path),
    ]
    command += [str(tmp_path / "contract" / "test_privatizers.py")]
    paths = [str(tmp_path), str(ROOT / "src"), str(ROOT / "tests"), str(ROOT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, text=True, capture_output=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 20
    (tmp_path / "discreet_rounds.py").write_text(
        code.replace("uses=self.releases", "uses=1").replace("raw + ", "raw + 0 * ")
    )
    done = subprocess.run(command, text=True, capture_output=True, env=env, cwd=tmp_path)
    assert done.returncode == 1, done.stdout[-2000:]


def test_the_contributed_proof_note_has_the_sections_of_every_other():
    titles = re.findall(r"^## .*", block("CONTRIBUTING.md", "markdown proof"), re.M)
    assert titles == re.findall(r"^## .*", (ROOT / "src/discreet/privacy/sums/one_shot.md").read_text(), re.M)


def test_the_trust_model_of_the_page_is_the_one_that_runs():
    made: dict[str, Any] = {**vars(two_servers), "Reports": Reports}
    exec(block("CONTRIBUTING.md", "python trust"), made)
    shown = made["TwoServerReports"]
    facts = ("trust", "noises", "told")
    assert all(getattr(shown, name) == getattr(two_servers.TwoServerReports, name) for name in facts)
    line = block("CONTRIBUTING.md", "python trust-recipe")
    assert line in (ROOT / "src/discreet/catalog/recipes.py").read_text()
    (trust,) = re.findall(r'^    "(.*?)":', line)
    assert set(recipes.REPORTS) == set(catalog.TRUST) >= {trust}
    assert shown.trust == trust


def test_the_contributed_environment_is_worth_what_the_page_says(monkeypatch):
    made = dict(vars(tabular))
    exec(block("CONTRIBUTING.md", "python environment"), made)
    monkeypatch.setattr(tabular, "ladder", made["ladder"], raising=False)
    (spec,) = eval(f"({block('CONTRIBUTING.md', 'python environment-spec')})", vars(registry))
    (stated,) = re.findall(
        r"on two rungs and three steps it is .* = ([0-9.]+)\.", (ROOT / "CONTRIBUTING.md").read_text()
    )
    mdp = spec.build(2, 3, 0)
    assert optimal_plan(mdp).value[0] @ mdp.initial == pytest.approx(float(stated))
    monkeypatch.setattr(registry, "ENVIRONMENTS", MappingProxyType({**registry.ENVIRONMENTS, "ladder": spec}))
    ran = CliRunner().invoke(
        app, ["run", "ucbvi", "--env", "ladder", "--states", "2", "--horizon", "3", "--episodes", "300"]
    )
    assert ran.exit_code == 0, ran.output


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


@pytest.mark.parametrize(
    ("page", "made"), [("README.md", "results-report.html"), ("docs/first-steps.md", "results-regret.png")]
)
def test_the_commands_of_the_first_pages_work(page, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = block(page, "console").splitlines()
    assert len(lines) >= 4
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "discreet"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (line, result.output)
    assert (tmp_path / made).is_file()


def test_the_readme_shows_what_the_demonstration_prints():
    page = (ROOT / "README.md").read_text()
    for experiment in demonstrating.price_experiments(20_000):
        told = f"({'no privacy' if experiment.model is None and experiment.epsilon is None else experiment.model})"
        (line,) = [line for line in page.splitlines() if line.startswith("  ") and told in line]
        column = 0 if experiment.epsilon is None else demonstrating.EPSILONS.index(experiment.epsilon)
        shown = re.findall(r"\d\.\d{3}", line)[column]
        found = [run(experiment, seed).regret_ratio for seed in range(3)]
        assert float(shown) == pytest.approx(sum(found) / 3, abs=5.1e-4), experiment.id


@pytest.mark.parametrize("page", ["docs/device.md", "docs/shuffle.md", "docs/two-servers.md"])
def test_the_programs_of_devices_work(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    exec(block(page, "python"), found)
    assert "report" in found or "release" in found


def test_the_program_of_first_steps_works(capsys):
    exec(block("docs/first-steps.md", "python"), {})
    ratio, none, guarantee, entry = capsys.readouterr().out.splitlines()
    assert 0 < float(ratio) < 1
    assert none == "no privacy"
    assert "ε = 1 per user, replace-one" in guarantee
    assert "discrete-laplace" in entry


def test_u4_an_own_problem_and_learner_in_ten_lines(capsys):
    program = block("README.md", "python own")
    exec(program, {})
    exec(block("docs/first-steps.md", "python learn"), {})
    first, second = capsys.readouterr().out.splitlines()
    assert 0 < float(first.split()[0]) < 1
    assert first.endswith("joint DP, ε = 1 per user, replace-one")
    assert second.endswith("(8, 3, 2)")
    assert len([line for line in program.splitlines() if line]) <= 10


def test_u4_the_plug_in_of_the_page_is_found_by_the_program(tmp_path):
    """The package is built and installed by pip, into a folder of its own."""
    package, site = tmp_path / "swimmers", tmp_path / "site"
    package.mkdir()
    (package / "swimmers.py").write_text(block("CONTRIBUTING.md", "python plugin"))
    (package / "pyproject.toml").write_text(block("CONTRIBUTING.md", "toml plugin"))
    options = shlex.split("--quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation")
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(package)]
    installed = subprocess.run(pip, text=True, capture_output=True)
    assert installed.returncode == 0, installed.stderr
    done = subprocess.run(
        [sys.executable, "-c", "from discreet.cli import main; main()"]
        + shlex.split("run swimmer --env pond --horizon 4 --epsilon 1 --episodes 2000 --pooled"),
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(site)])},
    )
    assert done.returncode == 0, done.stderr
    assert "swimmer on pond: 2 states, horizon 4" in done.stdout
    assert "joint DP, ε = 1 per user, replace-one" in done.stdout


@pytest.mark.parametrize(
    "page", [str(p.relative_to(ROOT)) for p in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


def test_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    pages = "".join(path.read_text() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    shown = re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M)
    named = {*shown, *re.findall(r"`make\s([a-z-]+)", pages)}
    assert {"demo", "test", "dist-test", "results-trust"} <= named
    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.M)] == []


def test_the_session_of_own_problems_works(capsys):
    found: dict[str, object] = {}
    exec(block("docs/own-problems.md", "python session"), found)
    assert capsys.readouterr().out == "joint DP, ε = 1 per user, replace-one\n"
    assert found["session"].ended


def test_the_commands_of_reports_work(tmp_path, monkeypatch):
    """All but the one that waits for somebody to look; with fewer people and seeds."""
    monkeypatch.chdir(tmp_path)
    commands = [line for text in blocks("docs/reports.md") for line in text.splitlines()]
    assert [line for line in commands if "explore" in line]
    for line in commands:
        program, command, *words = shlex.split(line)
        assert program == "discreet"
        if command == "explore":
            assert CliRunner().invoke(app, [command, *words, "--help"]).exit_code == 0
            continue
        few = ["--seeds", "0:2", "--episodes", "50"] if command == "run" else []
        words = [word for word in words if word not in ("--seeds", "0:5")] if few else words
        done = CliRunner().invoke(app, [command, *words, *few])
        assert done.exit_code == 0, (line, done.output)
    assert {"report.html", "results-report.html", "figures"} <= {path.name for path in tmp_path.iterdir()}


def blocks(page: str) -> list[str]:
    return re.findall(r"^```\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def test_notes_and_docstrings_name_files_that_are_there():
    """Modules move, and what is said of them must go along; `mine.py` is the reader's own."""
    package = ROOT / "src" / "discreet"
    files = [
        path.relative_to(ROOT).parts
        for folder in ("src", "docs", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.*")
    ]
    known = {"/".join(parts[i:]) for parts in files for i in range(len(parts))} | {"mine.py"}
    named = re.compile(r"(?<![\w./-])(?:[a-z_]+/)*[a-z_0-9-]+\.(?:py|md)\b")
    pages = [*package.rglob("*.py"), *package.rglob("*.md")]
    assert {
        (page.name, name) for page in pages for name in named.findall(page.read_text()) if name not in known
    } == set()
