"""Budgets in zCDP: `run`, `learn` and `calibrate` take rho where noise is Gaussian, and refuse it elsewhere."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

import discreet
from discreet.catalog import ALGORITHMS
from discreet.cli import app
from discreet.privacy.accounting import epsilon_of
from discreet.privacy.noise import NoiseSource
from discreet.runs.experiment import Experiment, Setting, run
from discreet.runs.feasibility import calibrate
from discreet.session import Session

FORMS = [(name, model) for name, entry in ALGORITHMS.items() for model in entry.zcdp]
REFUSED = [
    (name, model)
    for name, entry in ALGORITHMS.items()
    if entry.private and entry.runner != "offline"
    for model in entry.models
    if model not in entry.zcdp
]


def settings(name: str, model: str, **more: object) -> dict:
    sizes = {"env": "layered"} if ALGORITHMS[name].runner == "adversarial" else {"states": 3, "horizon": 4}
    return {"rho": 0.1, "model": model, "episodes": 300, **sizes, **more}


def opened(name: str, model: str, **more: object) -> Session:
    setting = Setting.of(Experiment(name, **settings(name, model, **more)))
    return Session.open(setting.triple(), setting.problem, NoiseSource.seeded(0), setting.entry.feedback)


def told(*arguments: str) -> dict:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(("name", "model"), FORMS)
@pytest.mark.parametrize("mode", ["practical", "paper"])
def test_a_zcdp_budget_is_spent_whole_and_its_epsilon_is_stated(name, model, mode):
    promised = opened(name, model, mode=mode, delta=1e-7).guarantee
    assert promised.rho == pytest.approx(0.1, rel=1e-9)
    assert math.fsum(entry.cost for entry in promised.entries) == pytest.approx(0.1, rel=1e-9)
    assert all(entry.mechanism == "discrete-gaussian" for entry in promised.entries)
    assert (promised.epsilon, promised.delta) == (epsilon_of(promised.rho, 1e-7), 1e-7)


@pytest.mark.parametrize(("name", "model"), REFUSED)
def test_a_learner_without_gaussian_noise_refuses_rho_in_one_sentence(name, model):
    small = {"delta": 1e-6} if model == "shuffle" else {}
    with pytest.raises(ValueError, match=f"{name} has no noise that is measured in rho with the {model} model; give"):
        Experiment(name, **settings(name, model, **small))


def test_catalog_names_the_learners_with_gaussian_noise():
    joint = {"dp-ucbvi", "private-ucb-vi", "private-ucb-po", "pucb", "private-uc-o-reps", "private-uob-lbps"}
    assert {name for name, model in FORMS if model == "joint"} == joint


def test_run_states_rho_and_the_epsilon_it_implies():
    said = ["run", "dp-ucbvi", "--states", "3", "--horizon", "4", "--episodes", "200", "--pooled"]
    found = told(*said, "--rho", "0.1")
    assert found["guarantee"]["rho"] == pytest.approx(0.1)
    assert found["guarantee"]["delta"] == 1e-6
    assert found["guarantee"]["epsilon"] == epsilon_of(found["guarantee"]["rho"], 1e-6)
    assert "ρ = 0.1 per user" in found["guarantee"]["sentence"]
    assert found["id"] == told(*said, "--rho", ".1", "--delta", "1e-6")["id"]
    assert found["id"] != told(*said, "--rho", ".1", "--delta", "1e-7")["id"]


def test_a_field_for_rho_leaves_every_other_id_as_it_was():
    assert Experiment("dp-ucbvi", epsilon=1.0).id == "dp-ucbvi-riverswim-173914346f"
    assert (
        Experiment("private-uc-o-reps", env="layered", epsilon=1.0, delta=1e-6).id
        == "private-uc-o-reps-layered-7f4f77a106"
    )
    assert Experiment("ucbvi", episodes=10).id == "ucbvi-riverswim-a05ef353a5"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("dp-ucbvi --rho .1 --epsilon 1", "either epsilon (with or without delta) or rho"),
        ("dp-ucbvi --rho 0", "rho is 0; it must be above 0 and at most 200"),
        ("dp-ucbvi --rho nan", "it must be above 0"),
        ("dp-ucbvi --rho 201", "at most 200"),
        ("dp-ucbvi --rho .1 --delta 1", "delta is 1; it must be at least 0 and below 1"),
        ("dp-ucbvi --rho .1 --noise printed", "Laplace noise only; state epsilon alone"),
        ("ucbvi --rho .1", "ucbvi is not private: it takes no rho"),
        ("private-heavy-ucbvi --rho .1", "private-heavy-ucbvi has no noise that is measured in rho"),
        ("dp-ucbvi", "dp-ucbvi is private: give it a budget with epsilon"),
    ],
)
def test_what_is_no_zcdp_budget_is_refused_in_one_sentence(arguments, words):
    result = CliRunner().invoke(app, ["run", *arguments.split(), "--episodes", "20"])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line


@pytest.mark.parametrize(("model", "schedule"), [("joint", "epochs"), ("joint", "every"), ("local", "epochs")])
@pytest.mark.parametrize("pooled", [False, True])
def test_calibrate_and_run_agree_on_a_zcdp_budget(model, schedule, pooled):
    found = calibrate(3, 2, 4, 300, rho=0.1, model=model, schedule=schedule, pooled=pooled, delta=1e-7)
    experiment = Experiment("dp-ucbvi", **settings("dp-ucbvi", model, delta=1e-7, schedule=schedule, pooled=pooled))
    setting = Setting.of(experiment)
    promised = Session.open(setting.triple(), setting.problem, NoiseSource.seeded(0)).guarantee
    assert promised.entries == found.guarantee.entries
    assert (promised.rho, promised.epsilon) == (found.guarantee.rho, found.guarantee.epsilon)
    assert setting.forecast() == found.forecast
    assert [noise.budget for noise in found.families.values()] == pytest.approx([0.1 / 3] * 3)
    assert (found.spotlight, found.sampled) == (None, None)


def test_calibrate_says_which_rho_would_do():
    verdict = calibrate(6, 2, 20, 20_000, rho=0.01).forecast.verdict
    assert "(ρ = 0.01)" in verdict
    wanted = float(verdict.split("raise rho to about ")[1].split(",")[0])
    assert calibrate(6, 2, 20, 20_000, rho=wanted).forecast.feasible
    assert not calibrate(6, 2, 20, 20_000, rho=0.8 * wanted).forecast.feasible


def test_calibrate_takes_rho_on_the_command_line_and_of_losses():
    assert told(*["calibrate", "--rho", ".1", "--states", "3", "--horizon", "4"])["guarantee"][
        "rho"
    ] == pytest.approx(0.1)
    losses = told(*["calibrate", "--rho", ".1", "--adversarial", "--states", "3", "--horizon", "4"])["guarantee"]
    assert losses == calibrate(3, 2, 4, 20_000, rho=0.1, losses=True).guarantee.to_json() | {
        "entries": losses["entries"]
    }
    for arguments in ("--rho .1 --epsilon 1", "", "--rho .1 --offline", "--rho .1 --model shuffle"):
        result = CliRunner().invoke(app, ["calibrate", *arguments.split()])
        assert result.exit_code == 2, arguments
        assert len(result.stderr.splitlines()) == 1


def test_learn_takes_rho_and_own_agents_do():
    learned = discreet.learn("riverswim", "dp-ucbvi", 200, rho=0.1, pooled=True, seed=0)
    assert learned.guarantee.rho == pytest.approx(0.1)
    agent = Setting.of(Experiment("dp-ucbvi", rho=0.1, episodes=50)).triple().agent
    done = run(Experiment(agent, rho=0.1, episodes=50, states=3, horizon=4), 0)
    assert done.guarantee.rho == pytest.approx(0.1)
    assert Experiment(agent, rho=0.1).twin == Experiment(agent)


def test_twice_the_rho_has_half_the_variance():
    one, two = (opened("dp-ucbvi", "joint", rho=rho).guarantee.entries[0].scale for rho in (0.1, 0.2))
    assert one == pytest.approx(math.sqrt(2) * two)
