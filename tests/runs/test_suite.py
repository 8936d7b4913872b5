"""The suite: its problems never change, its references can be made again, its scores mean what they say."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet.catalog import algorithm
from discreet.cli import app
from discreet.mdp import FiniteMDP
from discreet.privacy.accounting import Guarantee
from discreet.runs.results import RunResult
from discreet.runs.suite import reference
from discreet.runs.suite.contest import trials
from discreet.runs.suite.problems import BUDGETS, FIRST, V1, named, role_of, suite
from discreet.runs.suite.scores import board, overall, published, score, scored

SMALL = [problem for problem in V1 if problem.name != "large"]


def stored(problem: str, instance: int, seed: int, ratio: float, **settings: object) -> RunResult:
    standard = reference.standards("v1")[problem, instance]
    said = {"algorithm": "spotlight", "env": f"{problem}-{instance}@{standard.digest}", "model": "joint"}
    return RunResult(
        f"id-{problem}",
        {**said, "epsilon": 1.0, **settings},
        seed,
        checkpoints=np.array([10]),
        regret=np.array([ratio * 20.0]),
        random_regret=20.0,
        value_optimal=3.0,
        value_random=1.0,
        final_value=2.5,
        switches=1,
        guarantee=Guarantee("joint", 1.0),
        seconds=1.0,
    )


# Problems -----------------------------------------------------------------------------------------------------------


def test_the_suite_crosses_what_it_promises():
    assert len(V1) == 12
    models = {problem.name: problem.model(1000) for problem in V1}
    assert models["one-step"].horizon == 1
    assert models["large"].num_states >= 500
    assert models["long"].horizon >= 100
    assert not models["changing"].stationary
    assert np.count_nonzero(models["random-start"].initial) > 1
    even, odd = (next(p for p in V1 if p.name == "rewards").model(i) for i in (1000, 1001))
    assert np.mean(even.rewards > 0) < 0.2
    assert np.mean(odd.rewards > 0) > 0.9
    assert (models["branching"].transitions > 0).sum(axis=-1).min() == 10


@pytest.mark.parametrize("problem", V1, ids=lambda problem: problem.name)
def test_every_instance_is_the_one_that_was_frozen(problem):
    instances = (1000, 1009, 2000) if problem.name != "large" else (1000,)
    for instance in instances:
        standard = reference.standards("v1")[problem.name, instance]
        assert problem.model(instance).digest.startswith(standard.digest)


def test_instances_of_a_problem_differ_and_roles_share_none():
    known = reference.standards("v1")
    reporting, tuning = ({s.digest for (_, i), s in known.items() if (i < 2000) == first} for first in (True, False))
    assert len(known) == 12 * 20
    assert len(reporting) >= 119
    assert len(tuning) == 120
    assert not reporting & tuning
    assert {role_of(instance, FIRST["reporting"][1]) for _, instance in known if instance < 2000} == {"reporting"}
    assert role_of(1000, 5000) is None
    assert role_of(2000, 0) is None


def test_an_unknown_suite_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown suite 'v9'; choose one of v1"):
        suite("v9")
    with pytest.raises(ValueError, match="unknown problem 'gird'; did you mean 'grid'"):
        named("v1", ["gird"])


# References ---------------------------------------------------------------------------------------------------------


def test_references_can_be_made_again():
    """The stored outcome of a reference is the mean of three runs with seeds that belong to nobody else."""
    for problem, instance in (("one-step", 1002), ("changing", 2003)):
        standard = reference.standards("v1")[problem, instance]
        chosen = reference.Candidate(standard.learner, standard.scale)
        place = next(p for p in V1 if p.name == problem)
        first, seed = FIRST["reporting" if instance < 2000 else "tuning"]
        seeds = [10_000 + seed + 3 * (instance - first) + j for j in range(3)]
        runs = [reference.played(place, instance, each, chosen) for each in seeds]
        assert np.mean([run.ratio for run in runs]) == pytest.approx(standard.ratio, abs=1e-6)


def test_references_are_strong():
    """Far below the uniform policy: nearly everything is learned, but for single instances with heavy tails."""
    for (problem, instance), standard in reference.standards("v1").items():
        assert standard.ratio < (0.5 if problem == "heavy-tails" else 0.1), (problem, instance)


def test_q_learning_prefers_the_better_arm():
    """With one state, one step and two arms, all but a few users get the better one."""
    for better in (0, 1):
        rewards = np.where(np.arange(2) == better, 0.8, 0.2)[None]
        found = reference._q_learning(FiniteMDP(np.ones((1, 2, 1)), rewards, np.ones(1), 1), 5_000, 3, 0.1)
        assert found.gap == 0.0
        assert 0.0 <= found.ratio < 0.1


# Scores -------------------------------------------------------------------------------------------------------------


def test_a_score_is_1_at_the_reference_and_0_at_the_uniform_policy():
    standard = reference.standards("v1")["grid", 1000]
    rows = [stored("grid", 1000, 0, standard.ratio), stored("grid", 1000, 1, 1.0), stored("grid", 1000, 2, 2.0)]
    found = [run.score for run in scored(rows)]
    assert found[:2] == pytest.approx([1.0, 0.0])
    assert found[2] < 0
    assert all(run.gap == 0.25 for run in scored(rows))


def test_runs_of_the_other_role_of_another_model_or_without_a_seed_do_not_count():
    good = stored("grid", 1000, 0, 0.5)
    assert len(scored([good])) == 1
    strangers = [
        stored("grid", 1000, 5000, 0.5),
        stored("grid", 2000, 0, 0.5),
        stored("grid", 1000, 0, 0.5, env="grid-1000@000000000000"),
        stored("grid", 1000, 0, 0.5, env="riverswim"),
    ]
    assert scored(strangers) == []
    assert len(scored([stored("grid", 2000, 5000, 0.5)], role="tuning")) == 1


def test_budgets_weigh_the_same_however_many_runs_each_has():
    rows = [stored("grid", 1000, seed, 0.0, epsilon=1.0) for seed in range(8)]
    rows += [stored("grid", 1000, seed, 1.0, epsilon=0.3) for seed in range(2)]
    found = score(scored(rows))
    top = 1.0 / (1.0 - reference.standards("v1")["grid", 1000].ratio)
    assert found.mean == pytest.approx(top / 2)
    assert found.by_budget == {0.3: pytest.approx(0.0), 1.0: pytest.approx(top)}
    assert found.runs == 10
    assert found.worst == pytest.approx(0.0)


def test_the_board_keeps_trust_models_apart_and_the_best_first():
    rows = [stored(name, 1000, seed, 0.8, model="local") for seed in range(3) for name in ("deep", "grid")]
    rows += [stored(name, 1000, seed, 0.4) for seed in range(3) for name in ("deep", "grid")]
    rows += [stored("deep", 1000, seed, 0.0, model="shuffle") for seed in range(3)]
    found = board(scored(rows))
    assert list(found) == ["spotlight, joint", "spotlight, local", "spotlight, shuffle"]  # one axis alone comes last
    assert list(found["spotlight, local"]) == ["grid", "deep"]
    assert overall(found["spotlight, joint"]) > overall(found["spotlight, local"])


# Who is asked what --------------------------------------------------------------------------------------------------


def test_a_private_learner_is_asked_every_model_it_has_with_three_budgets():
    asked = list(trials("dp-ucbvi", SMALL, runs=2))
    assert {(trial.model, trial.epsilon) for trial in asked} == {
        (model, epsilon) for model in ("joint", "local") for epsilon in BUDGETS[model]
    }
    by_problem = {trial.problem: trial for trial in asked}
    assert "adversar" in by_problem["adversarial"].refused
    cells = by_problem["grid"].cells
    assert [(cell.experiment.env.name, cell.seed) for cell in cells] == [("grid-1000", 0), ("grid-1001", 1)]
    assert cells[0].experiment.pooled
    assert not by_problem["changing"].cells[0].experiment.pooled


def test_learners_of_losses_and_learners_without_privacy_are_asked_what_they_can_answer():
    asked = list(trials("uc-o-reps", SMALL, runs=1))
    assert [trial.problem for trial in asked if trial.cells] == ["adversarial"]
    assert {(trial.model, trial.epsilon) for trial in asked} == {("none", None)}
    tuning = list(trials("ucbvi", SMALL[:1], role="tuning", runs=1))
    (cell,) = tuning[0].cells
    assert (cell.experiment.env.name, cell.seed, cell.role) == ("rewards-2000", 5000, "tuning")


def test_somebody_elses_learner_is_asked_as_ours_are():
    asked = list(trials(algorithm("dp-ucbvi"), SMALL[:1], models=["joint"], budgets=[1.0], runs=1))
    assert [(trial.model, trial.refused, len(trial.cells)) for trial in asked] == [("joint", None, 1)]


def test_a_form_that_a_learner_does_not_have_is_refused():
    with pytest.raises(ValueError, match="pucb has no form named local; it has joint"):
        list(trials("pucb", SMALL, models=["local"]))


# From the command line ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small suite run: two problems, one budget, two runs of our learner and two of the learner without privacy."""
    path = tmp_path_factory.mktemp("suite")
    asked = ["--problem", "one-step", "--problem", "deep", "--runs", "2", "--out", str(path)]
    ours = invoke("suite", "run", "spotlight", "--model", "joint", "--epsilon", "1", *asked, "--json")
    twin = invoke("suite", "run", "ucbvi-bernstein", *asked)
    return path, json.loads(ours.stdout), twin.stdout


def invoke(*arguments: str):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result


def test_a_suite_run_prints_one_score_per_axis(folder):
    _, document, text = folder
    axes = document["contenders"]["spotlight, joint"]["axes"]
    assert list(axes) == ["one-step", "deep"]
    assert axes["deep"]["runs"] == 2
    assert 0.5 < axes["deep"]["score"] <= 1.1  # far above acting at random at ε = 1
    assert axes["deep"]["by_epsilon"] == {"1": axes["deep"]["score"]}
    assert "ucbvi-bernstein (reporting instances, suite v1)" in text


def test_runs_that_are_there_are_not_run_again(folder):
    path, document, _ = folder
    files = {file.name: file.stat().st_mtime_ns for file in path.glob("*.parquet")}
    asked = ["--problem", "deep", "--runs", "2", "--out", str(path), "--json"]
    again = json.loads(invoke("suite", "run", "spotlight", "--model", "joint", "--epsilon", "1", *asked).stdout)
    axes = document["contenders"]["spotlight, joint"]["axes"]
    assert again["contenders"]["spotlight, joint"]["axes"]["deep"] == axes["deep"]
    assert {file.name: file.stat().st_mtime_ns for file in path.glob("*.parquet")} == files


def test_the_page_shows_every_contender_and_loads_nothing(folder, tmp_path):
    path, document, _ = folder
    page = tmp_path / "compare.html"
    told = invoke("suite", "compare", str(path), "-o", str(page), "--no-ours").stdout
    text = page.read_text()
    for contender in ("spotlight, joint", "ucbvi-bernstein"):
        assert contender in told
        assert f"<td>{contender}</td>" in text
    score = document["contenders"]["spotlight, joint"]["axes"]["deep"]["score"]
    assert f"data-value='{score!r}'" in text
    assert not re.search(r"(?:src|href)=['\"]?(?:https?:)?//", text)


def test_scored_runs_can_be_written_and_read(folder, tmp_path):
    path, _, _ = folder
    invoke("suite", "compare", str(path), "--no-ours", "--scores", str(tmp_path / "scores.csv"))
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert {row["learner"] for row in rows} == {"spotlight", "ucbvi-bernstein"}


def test_our_own_learners_are_published_on_every_axis_they_can_play():
    runs = published("v1")
    known = reference.standards("v1")
    assert {run.problem for run in runs} == {problem.name for problem in V1}
    assert all(
        (run.problem, run.instance) in known and role_of(run.instance, run.seed) == "reporting" for run in runs
    )
    assert {run.model for run in runs if run.learner == "spotlight"} == set(BUDGETS)


def test_somebody_elses_learner_is_scored_and_compared_without_touching_ours(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(
        "import discreet\n"
        "class Greedy:\n"
        "    def plan(self, release, previous):\n"
        "        best = discreet.greedy_plan(release.model(), release.horizon)\n"
        "        return discreet.Plan(best.policy, best.value, best.quality, release.num_episodes)\n"
        "greedy = Greedy()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = ["--problem", "one-step", "--model", "joint", "--runs", "2", "--out", "runs"]
    told = invoke("suite", "run", "theirs:greedy", *asked, "--epsilon", "3").stdout
    assert "Greedy, joint (reporting instances, suite v1)" in told
    assert "Greedy, joint" in invoke("suite", "compare", "runs", "--no-ours").stdout


def test_a_folder_without_runs_of_the_suite_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["suite", "compare", str(tmp_path)])
    assert result.exit_code == 2
    assert "there are no runs of suite v1" in result.output
