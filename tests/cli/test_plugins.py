"""Other packages add environments and learners: by a call, or by entry points that the program finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import copy
from pathlib import Path

import numpy as np
import pytest

import discreet
from discreet import catalog, plugins
from discreet.catalog import Algorithm, Triple
from discreet.envs import registry
from discreet.envs.rewards import RewardLaw
from discreet.privacy.sums.exact import Exact
from discreet.schedules import GeometricEpochs

SOURCE = Path(__file__).parents[2] / "src"

PACKAGE = '''
"""Somebody else's package."""
from dataclasses import dataclass

import numpy as np
from discreet import Algorithm, Epochs, FiniteMDP, Plan, Triple, greedy_plan, uniform_policy
from discreet.schedules import GeometricEpochs


def ring(states=5, horizon=6):
    """walk around a ring; one state pays"""
    P = np.zeros((states, 2, states))
    for s in range(states):
        P[s, 0, s] = P[s, 1, (s + 1) % states] = 1.0
    r = np.zeros((states, 2))
    r[states // 2] = 1.0
    return FiniteMDP(P, r, np.eye(states)[0], horizon)


@dataclass(frozen=True)
class Mixing:
    def plan(self, release, previous):
        best = greedy_plan(release.model(), release.horizon)
        policy = 0.5 * best.policy + 0.5 * uniform_policy(release.shape)
        return Plan(policy, best.value, best.quality, release.num_episodes)


learner = Algorithm(
    "their-learner",
    "half greedy, half random",
    "their paper",
    lambda problem: Triple(Mixing(), Epochs(problem.budget), GeometricEpochs(first=50)),
    private=True,
    options=frozenset({"pooled"}),
)
taken = Algorithm("ucbvi", "an impostor", "nowhere", learner.build)
'''


def installed(folder: Path, points: str, name: str = "theirs", package: str = PACKAGE) -> Path:
    """A package as an installer leaves it: its module, and a dist-info folder with entry points."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(package)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    return folder


def program(site: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """`discreet …` in a process that finds the packages of `site`."""
    paths = os.pathsep.join([str(SOURCE), str(site)])
    command = [sys.executable, "-c", "from discreet.cli import main; main()", *arguments]
    done = subprocess.run(command, text=True, capture_output=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


GOOD = "[discreet.envs]\nring = theirs:ring\n[discreet.algorithms]\ntheir-learner = theirs:learner\n"


def test_u4_another_package_adds_both_and_runs_from_the_command_line(tmp_path):
    site = installed(tmp_path / "site", GOOD)
    sizes = ("--env", "ring", "--states", "4", "--episodes", "400", "--epsilon", "2", "--pooled", "--seeds", "0:2")
    out = str(tmp_path / "results")
    told = json.loads(program(site, "run", "their-learner", *sizes, "--jobs", "2", "--out", out, "--json").stdout)
    assert (told["algorithm"], told["env"], told["states"], told["horizon"]) == ("their-learner", "ring", 4, 6)
    assert told["guarantee"]["epsilon"] == 2.0
    assert 0 < told["regret_ratio"]["mean"] < 1
    assert "2 of 2 seeds are in" in program(site, "run", "their-learner", *sizes, "--out", out).stderr
    learners = program(site, "algorithms", "--json")
    assert "their-learner" in {entry["name"] for entry in json.loads(learners.stdout)["algorithms"]}
    assert learners.stderr == ""
    (ring,) = (e for e in json.loads(program(site, "envs", "--json").stdout)["environments"] if e["name"] == "ring")
    assert (ring["states"], ring["actions"], ring["resizable_states"], ring["random"]) == (5, 2, True, False)
    assert ring["summary"] == "walk around a ring; one state pays"
    assert "their-learner" in program(site, "algorithms").stdout
    shown = program(site, "run", "their-learner", "--help").stdout
    assert "--pooled" in shown
    assert "--schedule" not in shown
    refused = program(site, "run", "their-learner", "--epsilon", "1", "--constants", "paper", status=2)
    assert refused.stderr == "Error: their-learner has one form only; leave mode out\n"


def test_u4_a_broken_plug_in_is_one_sentence_and_the_rest_works(tmp_path):
    broken = (
        "[discreet.envs]\nring = theirs:ring\nlost = theirs:nowhere\nriverswim = theirs:ring\nodd = theirs:np\n"
        "[discreet.algorithms]\ngone = no_such_package:learner\nucbvi = theirs:taken\nother = theirs:learner\n"
    )
    site = installed(tmp_path / "site", broken)
    envs = program(site, "envs")
    assert "ring" in envs.stdout
    assert "the plug-in 'lost' of theirs could not be loaded (AttributeError: " in envs.stderr
    assert (
        "'riverswim' of theirs could not be loaded (there is an environment named 'riverswim' already" in envs.stderr
    )
    assert "'odd' of theirs could not be loaded" in envs.stderr
    assert len(envs.stderr.splitlines()) == 3
    learners = program(site, "algorithms")
    assert "'gone' of theirs could not be loaded (ModuleNotFoundError: No module named" in learners.stderr
    assert "'ucbvi' of theirs could not be loaded (there is a learner named 'ucbvi' already" in learners.stderr
    assert "'other' of theirs could not be loaded (it is a learner named 'their-learner')" in learners.stderr
    unknown = program(site, "run", "gone", status=2).stderr
    assert unknown.startswith("Error: unknown algorithm 'gone'; did you mean ")
    assert "the plug-in 'gone' of theirs could not be loaded" in unknown
    assert program(site, "run", "ucbvi", "--episodes", "20", "--quiet").stderr == ""


def test_u4_plug_ins_are_not_imported_before_they_are_needed(tmp_path):
    site = installed(tmp_path / "site", GOOD, package="raise SystemError('imported')\n")
    program(site, "--help")
    assert program(site, "run", "ucbvi", "--episodes", "20", "--quiet").stderr == ""
    assert "could not be loaded (SystemError: imported)" in program(site, "envs").stderr


@pytest.fixture
def clean(monkeypatch):
    """What a test adds is gone after it."""
    monkeypatch.setattr(registry, "KNOWN", known := copy(registry.KNOWN))
    monkeypatch.setattr(registry, "ENVIRONMENTS", known)
    monkeypatch.setattr(catalog, "KNOWN", entries := copy(catalog.KNOWN))
    monkeypatch.setattr(catalog, "ALGORITHMS", entries)
    monkeypatch.setattr(plugins, "_FAILURES", {})


def two_states(horizon=3, instance=0):
    P = np.random.default_rng(instance).dirichlet(np.ones(2), (2, 2))
    return discreet.FiniteMDP(P, [[0.0, 2.0], [1.0, 0.0]], [1, 0], horizon)


def test_u4_an_environment_is_registered_by_a_call(clean):
    discreet.register_env("two", two_states, "two states")
    spec = registry.spec("two")
    assert (spec.states, spec.horizon, spec.actions, spec.random, spec.resizable_states) == (2, 3, 2, True, False)
    assert spec.law(two_states()) == RewardLaw("deterministic")
    assert discreet.make("two", horizon=7, instance=4).transitions.tolist() == two_states(7, 4).transitions.tolist()
    assert discreet.make("two").name == "two"
    result = discreet.run(discreet.Experiment("ucbvi", "two", horizon=4, episodes=30), 0)
    assert result.value_optimal > 0
    discreet.register_env("fixed", two_states(), "one model", RewardLaw("gaussian"))
    assert registry.spec("fixed").law(two_states()).kind == "gaussian"
    with pytest.raises(ValueError, match="fixed always has horizon 3"):
        discreet.make("fixed", horizon=4)


@pytest.mark.parametrize(
    ("name", "factory", "words"),
    [
        ("riverswim", two_states, "there is an environment named 'riverswim' already; choose another name"),
        ("icu-sepsis", two_states, "there is an environment named 'icu-sepsis' already"),
        ("gym:mine", two_states, "'gym:mine' cannot be the name of an environment; expected letters, digits"),
        ("", two_states, "'' cannot be the name of an environment"),
        ("mine", 5, "the environment mine is 5; expected a FiniteMDP or a function that makes one"),
        ("mine", lambda: 5, "the environment mine returned int; expected a FiniteMDP"),
    ],
)
def test_u4_an_environment_that_cannot_be_added_is_refused_in_one_sentence(clean, name, factory, words):
    with pytest.raises(ValueError, match=words):
        discreet.register_env(name, factory, "a test")
    assert "mine" not in registry.ENVIRONMENTS


def test_u4_a_factory_that_ignores_its_sizes_is_named(clean):
    discreet.register_env("stubborn", lambda horizon=3: two_states(3), "always three steps")
    with pytest.raises(
        ValueError, match="stubborn was asked for 2 states and horizon 5 and returned 2 states and hor"
    ):
        discreet.make("stubborn", horizon=5)


def entry(**changes) -> Algorithm:
    facts = {
        "name": "mine",
        "summary": "mine",
        "source": "mine",
        "build": lambda problem: Triple(None, Exact(), None),
    }
    return Algorithm(**facts | changes)


@pytest.mark.parametrize(
    ("added", "words"),
    [
        (5, "the learner is 5; expected a discreet.Algorithm"),
        (entry(name="spotlight"), "there is a learner named 'spotlight' already; choose another name"),
        (entry(name="my learner"), "'my learner' cannot be the name of a learner"),
        (entry(runner="offline"), "mine has the runner 'offline'; only learners that act can be added"),
        (entry(options=frozenset({"speed"})), "mine has the option 'speed'; the choices are pooled"),
        (entry(models=("blind",)), "mine has the model 'blind'; the choices are joint, two-servers, local, shuffle"),
    ],
)
def test_u4_a_learner_that_cannot_be_added_is_refused_in_one_sentence(clean, added, words):
    with pytest.raises(ValueError, match=words):
        discreet.register_algorithm(added)


def test_u4_a_twin_that_nobody_knows_is_said_before_the_run(clean):
    discreet.register_algorithm(entry(private=True, twin="no-such-twin"))
    with pytest.raises(ValueError, match="unknown algorithm 'no-such-twin'"):
        discreet.Experiment("mine", epsilon=1.0)


def test_u4_what_was_registered_is_known_to_parallel_runs(clean):
    from discreet.agents.ucbvi import UCBVI
    from discreet.bonuses import Azar

    def build(problem):
        return Triple(UCBVI(Azar(problem.num_episodes, "hoeffding", 0.01)), Exact(), GeometricEpochs())

    discreet.register_env("two", two_states, "two states")
    discreet.register_algorithm(entry(build=build))
    experiment = discreet.Experiment("mine", "two", episodes=40)
    alone, together = (discreet.run_seeds(experiment, [0, 1], jobs=jobs) for jobs in (1, 2))
    assert all((a.regret == b.regret).all() for a, b in zip(alone, together, strict=True))


def test_the_list_of_learners_needs_no_heavy_library():
    script = "import sys, discreet.catalog, discreet.envs.registry; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numba", "scipy", "duckdb", "pyarrow", "gymnasium", "matplotlib", "joblib", "discreet.catalog.recipes"}
    assert not heavy & set(loaded)
