"""Runs against adversaries: exact hindsight regret, guarantees, failures in mid-run, and that learning happens."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from discreet import catalog
from discreet.envs.adversaries import LossSequence, adversary, from_array, from_function
from discreet.envs.tabular import layered, lock
from discreet.mdp import FiniteMDP
from discreet.people.episodes import MDPSimulator
from discreet.planning import occupancy, uniform_policy
from discreet.privacy.noise import NoiseSource
from discreet.runs import regret, report, results
from discreet.runs.experiment import Experiment, Setting, run
from discreet.runs.regret import Hindsight
from discreet.runs.results import RunResult
from discreet.runs.simulation import Clock, play
from discreet.schedules import TwoClocks
from discreet.session import Session

TINY = layered((1, 2), 2, instance=1)


def against(sequence: LossSequence, name: str, mdp: FiniteMDP, **options: object) -> Experiment:
    return Experiment(name, env=mdp, episodes=sequence.num_episodes, adversary=sequence, **options)


def played(sequence: LossSequence, name: str, mdp: FiniteMDP, seed: int = 0, **options: object) -> RunResult:
    return run(against(sequence, name, mdp, **options), seed)


# Regret ---------------------------------------------------------------------------------------------


def test_regret_is_against_the_best_of_all_fixed_policies():
    """Every deterministic policy of a tiny MDP, evaluated on every loss table."""
    K = 60
    losses = np.random.default_rng(0).random((K, 2, 2, 2))
    result = played(from_array(losses), "uc-o-reps", TINY, 3)
    totals = []
    for actions in itertools.product(range(2), repeat=3):
        policy = np.zeros((2, 2, 2))
        policy[0, 0, actions[0]] = policy[0, 1, 0] = policy[1, 0, actions[1]] = policy[1, 1, actions[2]] = 1.0
        totals.append((occupancy(TINY, policy) * losses.sum(axis=0)).sum())
    assert result.diagnostics["comparator_loss"][-1] == pytest.approx(min(totals), rel=1e-12)
    assert result.value_optimal == pytest.approx(min(totals) / K, rel=1e-12)
    even = (occupancy(TINY, uniform_policy((2, 2, 2))) * losses.sum(axis=0)).sum()
    assert result.value_random == pytest.approx(even / K, rel=1e-12)
    assert result.random_regret == pytest.approx(even - min(totals), rel=1e-12)
    assert result.checkpoints[-1] == K
    assert (np.diff(result.diagnostics["loss"]) > 0).all()
    assert result.regret[-1] == pytest.approx(result.diagnostics["loss"][-1] - min(totals), rel=1e-12)


def test_expected_losses_add_up_policy_by_policy():
    """With one block the uniform policy is played throughout: regret at every checkpoint is known."""
    K = 50
    losses = np.random.default_rng(1).random((K, 2, 2, 2))
    setting = Setting.of(against(from_array(losses), "uc-o-reps", TINY))
    agent, privatizer, _ = setting.triple()
    stream = privatizer.open(setting.spec, NoiseSource.seeded(0))
    session, clock = Session(agent, stream, TwoClocks(K, K, count_first=K), K), Clock()
    hindsight = Hindsight(MDPSimulator(TINY, setting.law, 0), setting.sequence, K, clock)
    for epoch in play(session, hindsight.arrive, clock):
        hindsight.add(*epoch.played)
    found = hindsight.measured()
    measure = occupancy(TINY, uniform_policy((2, 2, 2)))
    running = np.cumsum((losses * measure).sum(axis=(1, 2, 3)))
    np.testing.assert_allclose(found["diagnostics"]["loss"], running[found["checkpoints"] - 1], rtol=1e-12)
    assert found["final_value"] == pytest.approx(running[-1] / K, rel=1e-12)
    assert found["switches"] == 0


def test_checkpoints_and_chunks_change_nothing(monkeypatch):
    sequence, every = adversary("switch", layered(), 500), regret.checkpoints
    found = []
    for points, chunk in ((100, 8192), (7, 8192), (7, 11)):
        monkeypatch.setattr(regret, "CHUNK", chunk)
        monkeypatch.setattr(regret, "checkpoints", lambda episodes, points=points: every(episodes, points))
        result = played(sequence, "private-uc-o-reps", layered(), 4, epsilon=1.0)
        assert len(result.checkpoints) <= points
        found.append((result.diagnostics["loss"][-1], result.diagnostics["comparator_loss"][-1], result.switches))
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[0] == pytest.approx(found[2], rel=1e-12)


def test_seeds_decide_everything_and_noise_is_apart_from_the_environment():
    experiment = Experiment("private-uc-o-reps", env="layered", episodes=400, epsilon=1.0, adversary="flips")
    one, two, other = run(experiment, 3), run(experiment, 3), run(experiment, 4)
    np.testing.assert_array_equal(one.regret, two.regret)
    assert not np.array_equal(one.regret, other.regret)
    assert one.value_optimal == other.value_optimal  # the adversary belongs to the instance, not to the seed
    secure = run(experiment, None)
    assert not any("simulation" in line for line in secure.guarantee.assumptions)
    assert any("simulation" in line for line in one.guarantee.assumptions)


# The contract ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "model", "statistics"),
    [
        ("private-uc-o-reps", {"epsilon": 1.0}, "joint", {"transitions", "losses"}),
        ("private-uc-o-reps", {"epsilon": 1.0, "delta": 1e-6}, "joint", {"transitions", "losses"}),
        ("private-uc-o-reps", {"epsilon": 1.0, "losses": "public"}, "joint", {"transitions"}),
        ("private-uc-o-reps", {"epsilon": 1.0, "model": "local"}, "local", None),
        ("private-uc-o-reps", {"epsilon": 1.0, "mode": "paper"}, "joint", {"visits", "transitions", "losses"}),
        (
            "private-uc-o-reps",
            {"epsilon": 1.0, "mode": "paper", "model": "local"},
            "local",
            {"visits", "transitions", "losses"},
        ),
        ("private-uob-lbps", {"epsilon": 1.0}, "joint", {"transitions", "losses"}),
        ("private-uob-lbps", {"epsilon": 1.0, "delta": 1e-6}, "joint", {"transitions", "losses"}),
        ("private-uob-lbps", {"epsilon": 1.0, "model": "local"}, "local", {"steps"}),
        ("private-uob-lbps", {"epsilon": 1.0, "mode": "paper"}, "joint", {"visits", "transitions", "losses"}),
        (
            "private-uob-lbps",
            {"epsilon": 1.0, "mode": "paper", "model": "local", "estimator": "paper"},
            "local",
            {"visits", "transitions", "losses"},
        ),
    ],
)
def test_every_private_form_runs_and_states_what_it_spends(name, options, model, statistics):
    result = run(Experiment(name, env="layered", episodes=120, adversary="switch", **options), 1)
    guarantee = result.guarantee
    assert guarantee.model == model
    assert guarantee.neighbours == "replace"
    assert 1.0 - 1e-6 <= guarantee.epsilon <= 1.0
    assert guarantee.delta == options.get("delta", 0.0)
    entries = {entry.statistic: entry for entry in guarantee.entries}
    if statistics is not None:
        assert set(entries) == statistics
    units = 2**7  # grid of 120 episodes
    if "losses" in entries and not options.get("delta"):
        expected = 18 if name == "private-uc-o-reps" else 6  # X·A cells, or two per step
        assert entries["losses"].sensitivity == expected * units
    if "transitions" in entries and not options.get("delta"):
        assert entries["transitions"].sensitivity == 4
    diagnostics = result.diagnostics
    assert diagnostics["unsolved"] == 0
    assert diagnostics["largest_gap"] <= 1e-7
    assert diagnostics["largest_violation"] <= 1e-10
    assert diagnostics["regret_per_step"] == pytest.approx(result.regret[-1] / (120 * 3))
    assert result.regret_ratio == result.regret[-1] / result.random_regret


@pytest.mark.parametrize("name", ["uc-o-reps", "uob-lbps", "uob-reps", "follow-the-leader"])
def test_twins_run_without_privacy_in_both_modes(name):
    for mode in ("practical", "paper") if "mode" in catalog.algorithm(name).options else (None,):
        result = run(Experiment(name, env="lock", episodes=150, mode=mode), 0)
        assert result.guarantee.model == "none"
        assert result.diagnostics["unsolved"] == 0
        assert math.isfinite(result.regret[-1])
        assert result.value_optimal < result.value_random


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adversary": "nobody"}, "adversary"),
        ({"losses": "secret"}, "losses"),
        ({"estimator": "mine"}, "estimator"),
        ({"epsilon": None}, "budget"),
        ({"model": "shuffle"}, "no shuffle form"),
    ],
)
def test_bad_options_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Experiment(**({"algorithm": "private-uc-o-reps", "env": "layered", "epsilon": 1.0} | change))


def test_runs_are_stored_and_drawn_with_their_comparator(tmp_path):
    for name, budget in (("private-uc-o-reps", 1.0), ("uc-o-reps", None)):
        experiment = Experiment(name, env="layered", episodes=200, adversary="switch", epsilon=budget)
        results.write(run(experiment, 0), tmp_path / "runs")
    rows = results.read(tmp_path / "runs")
    (title,) = report.loss_panels(rows)
    assert title.endswith("switch losses")
    for row, curve in zip(rows, (report.curves([row])[0] for row in rows), strict=True):
        assert curve.mean[-1] == pytest.approx(row.regret_ratio)
        loss, best = np.array(row.diagnostics["loss"]), np.array(row.diagnostics["comparator_loss"])
        np.testing.assert_allclose(loss - best, row.regret)
    assert report.plot(tmp_path / "runs", tmp_path / "losses.svg").read_text().count("best fixed policy") >= 1


def test_where_every_policy_is_as_good_the_ratio_is_undefined_and_the_regret_per_step_is_not():
    result = run(Experiment("follow-the-leader", env="layered", episodes=200, adversary="alternating"), 0)
    assert result.regret_ratio is None
    assert result.diagnostics["regret_per_step"] >= 0.4


@pytest.mark.parametrize(
    ("name", "options", "few", "enough"),
    [
        ("private-uc-o-reps", {}, 2000, 0.5),
        ("private-uob-lbps", {}, 1000, 2.0),
        ("private-uc-o-reps", {"model": "local"}, 1000, 2.0),
    ],
)
def test_too_few_users_for_the_budget_are_warned_about_before_they_play(name, options, few, enough):
    said = Experiment(name, env="layered", episodes=few, epsilon=0.5, **options)
    setting = Setting.of(said)
    outlook = setting.forecast()
    assert not outlook.feasible
    assert f"{few:,} users" in outlook.verdict
    assert outlook.users_needed > few
    assert run(replace(said, episodes=few), 0).diagnostics["warning"] == outlook.verdict
    many = Setting.of(replace(said, episodes=10**6, epsilon=enough))
    assert many.forecast().feasible


# When losses fail in mid-run ------------------------------------------------------------------------


@pytest.mark.parametrize("failure", ["raise", "shape", "range", "nan"])
def test_failing_losses_end_the_run_and_keep_the_record(failure):
    mdp, K = layered(), 300
    good = np.full((3, 4, 2), 0.5)

    def losses(k: int) -> object:
        if k < 130:
            return good
        if failure == "raise":
            raise RuntimeError("the sensor is gone")
        return {"shape": good[:2], "range": good + 1.0, "nan": good * np.nan}[failure]

    sequence = from_function(losses, (3, 4, 2), K)
    result = played(sequence, "private-uc-o-reps", mdp, epsilon=1.0)
    assert "failed" in result.diagnostics["stopped"]
    episodes = int(result.checkpoints[-1])
    assert 100 <= episodes <= 130
    assert len(result.regret) == len(result.checkpoints)
    assert result.diagnostics["loss"][-1] == pytest.approx(0.5 * 3 * episodes)
    assert result.guarantee.epsilon <= 1.0


def test_losses_that_fail_at_once_are_an_error_with_their_reason():
    def losses(k: int) -> object:
        raise RuntimeError("the sensor is gone")

    with pytest.raises(ValueError, match="the losses of episodes 0 to 0 failed: the sensor is gone"):
        played(from_function(losses, (3, 4, 2), 30), "uc-o-reps", layered())


def test_losses_of_another_shape_are_refused_at_once():
    with pytest.raises(ValueError, match=r"the losses have shape \(2, 4, 2\); expected \(H, S, A\) = \(3, 4, 2\)"):
        played(from_array(np.zeros((10, 2, 4, 2))), "uc-o-reps", layered())
    with pytest.raises(ValueError, match="the losses are of 10 episodes; 20 are to be played"):
        run(Experiment("uc-o-reps", env="layered", episodes=20, adversary=from_array(np.zeros((10, 3, 4, 2)))))


def test_losses_of_ones_own_name_their_results():
    tables = np.random.default_rng(0).random((2, 20, 3, 4, 2))
    one, same, other = (against(from_array(t), "uc-o-reps", layered()) for t in (tables[0], tables[0], tables[1]))
    assert one == same
    assert one.id == same.id != other.id
    assert one.settings["adversary"].startswith("custom@")
    by_function = against(from_function(lambda k: tables[0][k], (3, 4, 2), 20), "uc-o-reps", layered())
    assert by_function.id != one.id
    assert np.array_equal(run(one, 1).regret, run(by_function, 1).regret)


# Learning -------------------------------------------------------------------------------------------


def two_armed(K: int, seed: int) -> np.ndarray:
    """One state, two actions; the good one becomes the bad one after a quarter of the users."""
    means = np.where(np.arange(K)[:, None] < K // 4, [0.1, 0.9], [0.9, 0.1])
    return (np.random.default_rng(seed).random((K, 2)) < means).astype(np.float64).reshape(K, 1, 1, 2)


@pytest.mark.parametrize(("mode", "K"), [("practical", 4000), ("paper", 800)])
def test_f18_the_printed_bandit_estimator_fails_where_the_corrected_one_learns(mode, K):
    """After the switch the printed one never tries the other action again: linear regret at every K."""
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2)), np.ones(1), 1)
    share = {}
    for estimator in ("corrected", "paper"):
        regrets = [
            played(
                *(from_array(two_armed(K, seed)), "private-uob-lbps", mdp, seed),
                epsilon=4.0,
                mode=mode,
                estimator=estimator,
            ).regret[-1]
            for seed in range(100, 103)
        ]
        share[estimator] = np.mean(regrets) / K
    assert share["paper"] >= 0.35
    assert share["corrected"] <= 0.2


@pytest.mark.parametrize(
    ("name", "options", "K"),
    [("uc-o-reps", {}, 3000), ("uc-o-reps", {"mode": "paper"}, 600), ("private-uc-o-reps", {"epsilon": 2.0}, 1500)],
    ids=str,
)
def test_regularisation_defeats_the_alternating_adversary(name, options, K):
    """Blocks of 3, 1 and 15 episodes: odd, so that losses do not cancel within a block."""
    mdp = layered()
    setup = against(adversary("alternating", mdp, K), name, mdp, **options)
    assert Setting.of(setup).triple().schedule.loss_length % 2 == 1
    assert run(setup, 0).regret[-1] <= 0.03 * K * 3


def test_following_the_leader_is_defeated_by_the_alternating_adversary():
    mdp = layered()
    assert played(adversary("alternating", mdp, 400), "follow-the-leader", mdp).regret[-1] >= 0.4 * 400 * 3


@pytest.mark.parametrize(
    ("name", "options", "bound"),
    [
        ("uc-o-reps", {}, 0.15),
        ("uob-lbps", {}, 0.35),
        ("uc-o-reps", {"mode": "paper"}, 0.25),
        ("uob-reps", {"mode": "paper"}, 0.45),
        ("private-uc-o-reps", {"epsilon": 10.0}, 0.25),
        ("private-uc-o-reps", {"epsilon": 2.0, "delta": 1e-6}, 0.25),
        ("private-uc-o-reps", {"epsilon": 1.0, "losses": "public"}, 0.2),
        ("private-uc-o-reps", {"epsilon": 8.0, "model": "local"}, 0.4),
        ("private-uob-lbps", {"epsilon": 20.0}, 0.5),
    ],
    ids=str,
)
def test_learners_learn_on_switching_losses(name, options, bound):
    """Mean over two instances; measured means lie below two thirds of the bounds."""
    ratios, K = [], 3000
    for seed in range(200, 202):
        mdp = layered(instance=seed)
        result = played(adversary("switch", mdp, K, seed), name, mdp, seed, **options)
        assert result.diagnostics["unsolved"] == 0
        ratios.append(result.regret_ratio)
    assert np.mean(ratios) <= bound


def test_the_lock_needs_planning_and_is_opened_without_noise():
    mdp = lock(instance=7)
    assert played(adversary("iid", mdp, 5000, 7), "uc-o-reps", mdp).regret_ratio <= 0.4
