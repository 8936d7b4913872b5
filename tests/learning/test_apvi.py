"""Pessimistic value iteration on counts: the printed formulas against loops, and what noise may do to it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import oracles_offline as oracle
from discreet.agents.apvi import APVI
from discreet.envs.registry import make
from discreet.envs.rewards import RewardLaw
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import MDPSimulator
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.one_shot import OneShot
from discreet.releases.counts import PerTable, PrivateCounts


def release_of(privatizer, episodes, spec, seed=0):
    stream = privatizer.open(spec, len(episodes), NoiseSource.seeded(seed))
    stream.add(Counts.of(episodes, spec))
    return stream.release()


def random_release(seed: int, width: float, stages: int = 4, times: float = 1.0) -> PrivateCounts:
    rng = np.random.default_rng(seed)
    T = times * rng.integers(0, 60, size=(stages, 3, 2, 3)).astype(float)
    T[rng.random((stages, 3, 2)) < 0.3] = 0.0
    visits = T.sum(axis=-1)
    return PrivateCounts(
        visits, T, rng.random((stages, 3, 2)) * visits, 4, 500, PerTable(width, width, width), PerTable(3.0, 3.0, 3.0)
    )


@pytest.mark.parametrize("stages", [1, 4])
@pytest.mark.parametrize("kind", ["bernstein", "hoeffding"])
@pytest.mark.parametrize("known", [True, False])
def test_the_printed_penalty(known, kind, stages):
    release = random_release(1, 10.0, stages, times=1e4)
    model = release.model()
    H, S, A = 4, 3, 2
    E, iota, n = 20.0, math.log(H * S * A / 0.1), model.visits

    def penalty(g, s, a, variance):
        spread, here = H * H if kind == "hoeffding" else variance, n[g, s, a]
        rewards = 0.0 if known else (math.sqrt((here + E) * (iota + math.log(2)) / 2) + E + 10.0) / here
        return math.sqrt(2 * spread * iota / (here - E)) + 16 * S * H * E * iota / here + rewards

    quality = APVI("paper", kind, model.rewards if known else None).plan(release).quality
    assert quality == pytest.approx(oracle.pessimistic_quality(model.transitions, model.rewards, penalty, n <= E, H))
    free = oracle.pessimistic_quality(model.transitions, model.rewards, lambda *_: 0.0, n <= E, H)
    assert 0.01 < (free - quality).max() < 0.5
    assert APVI("paper", kind).plan(random_release(1, 10.0, stages)).value.max() < 0.2  # vacuous at such counts


def test_the_practical_penalty_and_its_unknown_cells():
    release = random_release(2, 50.0)
    model, H = release.model(), 4
    iota, n = math.log(4 * 3 * 2 / 0.1), model.visits
    unknown = (n <= 0.2 * 100.0) | (n < 1)
    assert 0 < unknown.sum() < unknown.size

    def penalty(g, s, a, variance):
        return 0.1 * (math.sqrt(2 * variance * iota / n[g, s, a]) + H * iota / (3 * n[g, s, a]))

    plan = APVI().plan(release)
    assert plan.quality == pytest.approx(
        oracle.pessimistic_quality(model.transitions, model.rewards, penalty, unknown, H)
    )
    assert np.array_equal(APVI().known(release), ~unknown)


def test_without_noise_it_is_apvi_and_finds_the_best_policy():
    mdp = make("riverswim", 4, 10)
    episodes = MDPSimulator(mdp, RewardLaw(), 0).rollout(uniform_policy((10, 4, 2)), 20_000)
    spec = CountSpec(4, 2, 10, pooled=True)
    exact = release_of(Exact(), episodes, spec)
    infinite = release_of(OneShot(Budget.pure(math.inf)), episodes, spec)
    for mode in ("paper", "practical"):
        agent = APVI(mode, rewards=mdp.rewards if mode == "paper" else None)  # print knows rewards
        twin = agent.plan(exact)
        assert np.array_equal(twin.quality, agent.plan(infinite).quality)
        best = float(mdp.initial @ optimal_plan(mdp).value[0])
        assert policy_value(mdp, twin.policy) >= 0.97 * best
        assert twin.value[0] @ mdp.initial <= best * (1.0 if mode == "paper" else 1.01)
    doubted = APVI(confidence_scale=0.1).plan(exact).value[0] @ mdp.initial
    assert doubted < min(best, APVI().plan(exact).value[0] @ mdp.initial)


@pytest.mark.parametrize("stages", [1, 4])
def test_without_noise_it_is_value_iteration_on_counts(stages):
    release = replace(random_release(5, 0.0, stages), widths=PerTable())
    model = release.model()
    plain = oracle.pessimistic_quality(
        model.transitions, model.rewards, lambda *_: 0.0, model.visits < 1, release.horizon
    )
    assert APVI().plan(release).quality == pytest.approx(plain)


@pytest.mark.parametrize("mode", ["paper", "practical"])
@pytest.mark.parametrize("ended", [-1.5, 0.0, 0.4, 2.0])
def test_l1_those_who_left_earn_what_was_declared_at_every_remaining_step(mode, ended):
    """State 0: action 0 pays 1 and is the end, action 1 pays 0 and stays; nobody was ever in state 1."""
    T = np.zeros((1, 3, 2, 3))
    T[0, 0, 0, 2] = T[0, 0, 1, 0] = 1e6
    paid = np.zeros((1, 3, 2))
    paid[0, 0, 0] = 1e6
    release = PrivateCounts(T.sum(axis=-1), T, paid, 5, 10**6)
    plan = APVI(mode, confidence_scale=0.0, absorbing=True, ended=ended).plan(release)
    left = 5.0 - np.arange(6)
    assert plan.value[:, 2] == pytest.approx(left * ended)
    assert plan.value[:5, 0] == pytest.approx(np.maximum(1.0 + (left[:5] - 1) * ended, 1.0))
    assert plan.value[:5, 1] == pytest.approx(left[:5] * min(0.0, ended))


def test_l2_steps_that_lead_nobody_knows_where_count_for_what_they_paid():
    """Half of the steps are known to stay; the others pay 1 and lead somewhere unknown (the last successor)."""
    T = np.zeros((1, 2, 1, 2))
    T[0, 0, 0] = 500.0, 500.0
    release = PrivateCounts(T.sum(axis=-1), T, np.array([[[500.0], [0.0]]]), 4, 1000)
    plan = APVI(unknown=True).plan(release)
    assert plan.value[:, 0] == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0])
    assert plan.value.shape == (5, 1)
    lost = PrivateCounts(np.array([[[1000.0], [0.0]]]), T * [0.0, 2.0], np.array([[[500.0], [0.0]]]), 4, 1000)
    assert APVI(unknown=True).plan(lost).value[:, 0] == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.0])
    assert APVI(unknown=True).known(lost).all()


def test_larger_widths_never_raise_a_value():
    wide, narrow = random_release(3, 30.0), random_release(3, 2.0)
    agent = APVI("paper", confidence_scale=0.01)
    fixed_wide, fixed_narrow = agent.estimate(wide)[1].fixed, agent.estimate(narrow)[1].fixed
    assert (fixed_wide <= fixed_narrow).all()


def test_known_rewards_are_used_where_nothing_else_is_known():
    zeros = np.zeros((1, 2, 2))
    release = PrivateCounts(zeros, np.zeros((1, 2, 2, 2)), zeros, 3, 10, PerTable(1.0, 1.0, np.inf))
    rewards = np.array([[[0.3, 0.1], [0.0, 0.9]]])
    assert APVI(rewards=rewards).plan(release).value[0].tolist() == [0.3, 0.9]
    assert not APVI("paper", rewards=rewards).plan(release).value.any()


def test_the_state_of_those_who_left_is_worth_nothing_whatever_the_noise_says():
    T = np.full((1, 3, 2, 3), 100.0)
    release = PrivateCounts(T.sum(axis=-1), T, np.full((1, 3, 2), 300.0), 5, 10)
    assert APVI().plan(release).value[0, 2] > 1
    assert not APVI(absorbing=True).plan(release).value[:, 2].any()


def test_f4_the_noise_of_dp_apvi_is_that_of_the_paper():
    """σ² = 2H/ρ and b = 4H/ε with known rewards; 3H/ρ and 6H/ε with unknown ones, staged, replace."""
    spec, H = CountSpec(3, 2, 7, pooled=False), 7
    for budget, known, expected in (
        (Budget.zcdp(0.5), True, math.sqrt(2 * H / 0.5)),
        (Budget.zcdp(0.5), False, math.sqrt(3 * H / 0.5)),
        (Budget.pure(0.5), True, 4 * H / 0.5),
        (Budget.pure(0.5), False, 6 * H / 0.5),
    ):
        visits, transitions, rewards = OneShot(budget, shares=(1, 1, 0) if known else None).families(spec)
        assert visits.scale == pytest.approx(expected)
        assert transitions.scale == pytest.approx(expected)
        assert rewards.scale * rewards.unit == pytest.approx(0.0 if known else expected)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'practical' or 'paper'"):
        APVI("theory")
