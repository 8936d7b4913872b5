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
from discreet.runs.feasibility import calibrate, forecast_fit

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
