"""One answer to "can it be learned?", whoever asks: calibrate, run, and fit."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import discreet
from discreet.cli import app
from discreet.mdp import FiniteMDP
from discreet.privacy.accounting import Budget
from discreet.runs.experiment import Experiment, Setting
from discreet.runs.feasibility import calibrate
from discreet.runs.forecasts import forecast_fit
from discreet.runs.rehearsal import MOST_PEOPLE, doubtful, rehearsed

SIZES = {"states": 6, "horizon": 20, "episodes": 20_000}  # RiverSwim: two actions


def of_run(name: str, **said: object):
    return Setting.of(Experiment(name, **{**SIZES, **said})).forecast()


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        {"epsilon": 1.0},
        {"epsilon": 1.0, "schedule": "every"},
        {"epsilon": 0.3, "neighbours": "zero-out"},
        {"epsilon": 1.0, "delta": 1e-6},
        {"epsilon": 5.0, "model": "local", "local_reports": "laplace"},
        {"epsilon": 1.0, "delta": 1e-6, "model": "shuffle"},
    ],
    ids=str,
)
def test_u7_calibrate_and_run_give_the_same_answer(said, pooled):
    """To the last digit and word: both ask the learner, with its own privatizer and schedule."""
    name = "shuffle-ucbvi" if said.get("model") == "shuffle" else "dp-ucbvi"
    asked = {key: value for key, value in said.items() if key != "local_reports"}
    found = calibrate(6, 2, 20, 20_000, pooled=pooled, **asked)
    assert found.forecast == of_run(name, pooled=pooled, **said)


@pytest.mark.parametrize("model", ["joint", "local"])
def test_u7_the_other_answers_of_calibrate_are_those_of_runs_too(model):
    found = calibrate(6, 2, 20, 20_000, 0.4, model=model, pooled=True)
    assert found.spotlight == of_run("spotlight", epsilon=0.4, model=model, pooled=True)
    if model == "local":
        assert found.sampled == of_run("dp-ucbvi", epsilon=0.4, model=model, pooled=True)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("schedule", "mode"), [("epochs", "practical"), ("every", "paper")])
def test_u7_losses_are_calibrated_as_they_are_learned(schedule, mode, delta):
    S, A, H, K = 3, 2, 4, 900
    rows = np.random.default_rng(0).dirichlet(np.ones(S), size=(1, S, A))
    everywhere = FiniteMDP(rows, np.full((1, S, A), 0.5), np.full(S, 1 / S), H)
    found = calibrate(S, A, H, K, 1.0, delta, schedule=schedule, losses=True).forecast
    said = Experiment("private-uc-o-reps", env=everywhere, episodes=K, epsilon=1.0, delta=delta, mode=mode)
    run = Setting.of(said).forecast()
    assert (found.verdict, found.feasible, found.signal) == (run.verdict, run.feasible, run.signal)
    assert discreet.run(said, 0).diagnostics["warning"] == (None if run.feasible else run.verdict)


def test_u7_the_command_line_says_one_thing():
    """What `run` warns with is what `calibrate` prints, for the problem that the finding is about."""
    runner = CliRunner()
    sizes = ["--states", "16", "--horizon", "15", "--episodes", "20000", "--epsilon", "1", "--pooled"]
    calibrated = runner.invoke(app, ["calibrate", *sizes, "--actions", "4", "--json"])
    verdict = json.loads(calibrated.stdout)["verdict"]
    small = ["run", "dp-ucbvi", "--env", "two-rooms", "--episodes", "20000", "--epsilon", "1", "--pooled", "--json"]
    warned = runner.invoke(app, small)
    assert "cannot be learned" in verdict
    assert f"warning: {verdict}" in " ".join(warned.stderr.split())


def rows(users: int, horizon: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    states = rng.integers(0, 3, (users, horizon + 1))
    return {
        "user": np.repeat(np.arange(users), horizon),
        "step": np.tile(np.arange(horizon), users),
        "state": states[:, :-1].ravel(),
        "action": rng.integers(0, 2, users * horizon),
        "reward": rng.integers(0, 2, users * horizon).astype(float),
        "next_state": states[:, 1:].ravel(),
    }


@pytest.mark.parametrize("algorithm", ["one-hot", "dp-apvi"])
def test_u7_calibrate_and_fit_give_the_same_answer(algorithm):
    """A fit of forty people learns nothing, and says why in the words of `calibrate --offline`."""
    log = discreet.LogFormat(3, 2, 4, pooled=True)
    fitted = discreet.fit(rows(40), log, Budget.pure(0.1), seed=0, algorithm=algorithm, anyway=True)
    asked = "calibrate --offline --epsilon 0.1 --states 3 --actions 2 --horizon 4 --episodes 40 --pooled --json"
    told = json.loads(CliRunner().invoke(app, asked.split()).stdout)["learners"][algorithm]
    assert told == forecast_fit(log, Budget.pure(0.1), 40, algorithm=algorithm).to_json()
    assert not told["feasible"]
    assert [line for line in fitted.certificate["warnings"] if line.endswith(told["verdict"])]


def test_every_answer_says_how_many_people_would_do():
    """Whoever gets that many is told that they are enough."""
    few = calibrate(6, 2, 20, 20_000, 1.0).forecast
    assert few.users_needed > 20_000
    assert calibrate(6, 2, 20, few.users_needed, 1.0).forecast.feasible
    losses = calibrate(3, 2, 4, 900, 1.0, losses=True).forecast
    assert calibrate(3, 2, 4, losses.users_needed, 1.0, losses=True).forecast.feasible
    log = discreet.LogFormat(3, 2, 4)
    fit = forecast_fit(log, Budget.pure(1.0), 10)
    assert forecast_fit(log, Budget.pure(1.0), fit.users_needed).feasible
    assert not forecast_fit(log, Budget.pure(1.0), fit.users_needed - 1).feasible


def test_a_raised_epsilon_takes_the_shorter_epochs_into_account_that_come_with_it():
    verdict = calibrate(6, 2, 20, 20_000, 1.0).forecast.verdict
    wanted = float(re.search(r"raise epsilon to about ([0-9.]+)", verdict)[1])
    assert calibrate(6, 2, 20, 20_000, wanted).forecast.feasible
    assert not calibrate(6, 2, 20, 20_000, 0.9 * wanted).forecast.feasible


def test_more_epsilon_never_asks_for_more_people():
    """Below a scale of one half noise is not what hides; how many reports each sends makes no difference to that."""
    lost = [calibrate(6, 2, 20, 20_000, epsilon, pooled=True, branching=2).spotlight for epsilon in (2, 4, 6, 8, 20)]
    needed = [each.users_needed for each in lost]
    assert needed == sorted(needed, reverse=True)
    assert needed[1] == needed[2] == needed[-1]
    assert ["one report each" in each.verdict for each in lost] == [True, True, True, False, False]
    assert "up to 5 reports each" in lost[-1].verdict
    assert [each.visits for each in lost] == pytest.approx([20_000 * each / 12 for each in (1, 1, 1, 2, 5)])


# Tried out ----------------------------------------------------------------------------------------------------------


def lost(env: str, users: int, **said: object) -> float:
    """Users lost in runs that no rehearsal knows."""
    experiment = Experiment("spotlight", env=env, episodes=users, epsilon=1.0, pooled=True, **said)
    return users * float(np.mean([discreet.run(experiment, seed).regret_ratio for seed in range(10)]))


@pytest.mark.parametrize(("env", "said"), [("chain", {"states": 8}), ("dirichlet", {"states": 5}), ("two-rooms", {})])
def test_what_is_tried_on_a_known_problem_is_what_others_lose(env, said):
    """Within a factor of 1.5 of other seeds, on problems of which the rule is off by up to 3."""
    options = [f"--{name}={value}" for name, value in said.items()]
    done = CliRunner().invoke(app, ["calibrate", "--epsilon=1", "--pooled", f"--env={env}", "--json", *options])
    told = json.loads(done.stdout)["spotlight"]
    assert told["users_needed"] / 2 == pytest.approx(lost(env, 20_000, **said), rel=0.5)
    assert told["feasible"] is True


def test_too_few_people_are_told_how_many_it_takes():
    """As those are told who have enough."""
    told = {
        users: rehearsed(setting, setting.forecast(), MOST_PEOPLE)
        for users in (200, 6400)
        for setting in [Setting.of(Experiment("spotlight", episodes=users, epsilon=1.0, pooled=True))]
    }
    assert (told[200].feasible, told[6400].feasible) == (False, True)
    assert told[200].users_needed == pytest.approx(told[6400].users_needed, rel=0.5)


@pytest.mark.parametrize(("users", "open_to_doubt"), [(400, False), (600, True), (4800, True), (5200, False)])
def test_a_run_is_tried_first_only_where_the_rule_leaves_it_open(users, open_to_doubt):
    setting = Setting.of(Experiment("spotlight", episodes=users, epsilon=1.0, pooled=True, known_successors=True))
    law = setting.forecast()
    assert law.users_needed == 990
    assert doubtful(setting, law) is open_to_doubt


def test_the_warning_of_a_run_is_what_was_tried_and_not_the_rule():
    """The rule says that 5,000 users of a lake are enough; they are not."""
    words = ["run", "spotlight", "--env", "frozenlake", "--pooled", "--epsilon", "1", "--episodes", "5000"]
    setting = Setting.of(Experiment("spotlight", env="frozenlake", episodes=5000, epsilon=1.0, pooled=True))
    done = CliRunner().invoke(app, words)
    assert "warning: on frozenlake, 5,000 users cannot be learned from" in done.stderr
    assert "simulated runs" in done.stderr
    assert float(re.search(r"random policy\s+│ (\d\.\d+)", done.stdout)[1]) > 0.5
    assert doubtful(setting, setting.forecast())


@pytest.mark.parametrize("option", ["--branching=2", "--rho=1", "--schedule=every", "--actions=2", "--adversarial"])
def test_what_is_tried_takes_no_option_of_a_rule(option):
    budget = [] if option == "--rho=1" else ["--epsilon=1"]
    done = CliRunner().invoke(app, ["calibrate", *budget, "--env", "two-rooms", "--pooled", option])
    assert done.exit_code == 2
    assert "has no use beside --env" in done.stderr


def test_who_learned_nothing_is_not_told_to_collect_fewer():
    """Where more than half of the people are lost, the rule may be far below what the problem needs."""
    rewards = [[-waiting - 0.8 * second for second in range(2)] for waiting in range(6)]
    moves = np.zeros((6, 2, 6))
    for waiting, second, come in np.ndindex(6, 2, 3):
        moves[waiting, second, min(max(waiting - 1 - second, 0) + come, 5)] += (0.3, 0.4, 0.3)[come]
    clinic = FiniteMDP(moves, rewards, np.eye(6)[2], 8, "clinic")
    setting = Setting.of(Experiment("spotlight", env=clinic, episodes=2000, epsilon=1.0, pooled=True))
    law = setting.forecast()
    found = rehearsed(setting, law)
    assert not found.feasible
    assert law.users_needed < 2000
    assert found.users_needed == pytest.approx(2 * found.width_share * 2000, rel=0.05)
    assert found.users_needed > 2000
    assert found.verdict.endswith(f"; raise epsilon or collect far more, perhaps {found.users_needed:,} users")
