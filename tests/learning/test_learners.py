"""The non-private learners: bonuses by hand, plans by an independent computation, learning where it must show."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from discreet import bonuses
from discreet.agents.policy_optimization import PolicyOptimization, mirror_step
from discreet.agents.ucbvi import UCBVI
from discreet.planning import uniform_policy
from discreet.releases.counts import PrivateCounts
from oracles import backward_induction


def hand_written_release(scale=1.0):
    """Two states, two actions, three stages; one cell never visited."""
    transitions = np.array(
        [
            [[[3, 1], [0, 2]], [[5, 5], [0, 0]]],
            [[[1, 1], [4, 0]], [[2, 6], [1, 0]]],
            [[[7, 1], [1, 1]], [[0, 3], [2, 2]]],
        ],
        dtype=float,
    )
    visits = transitions.sum(-1)
    rewards = visits * np.array([[0.5, 0.25], [1.0, 0.0]])
    return PrivateCounts(scale * visits, scale * transitions, scale * rewards, horizon=3, num_episodes=20)


def empirical(release):
    n = release.visits
    safe = np.maximum(n, 1)
    P = np.where(n[..., None] > 0, release.transitions / safe[..., None], 0.5)
    return P, np.where(n > 0, release.reward_sums / safe, 0.0), n


@pytest.mark.parametrize("scale", [0.01, 1.0])
@pytest.mark.parametrize("kind", ["hoeffding", "bernstein"])
def test_ucbvi_plans_by_its_formula(kind, scale):
    release = hand_written_release()
    agent = UCBVI(bonuses.Azar(500, kind, scale, beta=0.1))
    P, r, n = empirical(release)
    L = math.log(5 * 2 * 2 * 500 * 3 / 0.1)
    with np.errstate(divide="ignore"):
        if kind == "hoeffding":
            fixed, per_std = scale * 7 * 3 * L / np.sqrt(n), np.zeros(n.shape)
        else:
            fixed = scale * (14 * 3 * L / (3 * n) + 3 * np.sqrt(8 / n))
            per_std = np.where(n > 0, scale * np.sqrt(8 * L / np.maximum(n, 1)), 0.0)
    Q, V = backward_induction(P, r, 3, np.where(n > 0, fixed, np.inf), per_std)
    plan = agent.plan(release, None)
    np.testing.assert_allclose(plan.quality, Q, atol=1e-12)
    np.testing.assert_allclose(plan.value, V, atol=1e-12)
    best = plan.quality == plan.quality.max(axis=2, keepdims=True)
    assert (best[plan.policy == 1.0]).all()


def test_bonus_two_falls_below_its_cap_where_successors_are_frequent():
    """With 10⁹ visits the third term of bonus 2 is √(8·E[limit/N]·H²/n), below H·√(8/n)."""
    release = hand_written_release(scale=1e9)
    agent = UCBVI(bonuses.Azar(500, "bernstein", 1.0))
    P, r, n = empirical(release)
    L = math.log(5 * 2 * 2 * 500 * 3 / 0.1)
    following = bonuses.successor_counts(n)
    inner = np.minimum(1e4 * 27 * 4 * 2 * L**2 / np.maximum(following, 1), 9.0)
    assert (inner < 9.0).any()
    safe = np.maximum(n, 1)
    third = np.sqrt(8 * np.einsum("gsay,gy->gsa", P, inner) / safe)
    fixed = np.where(n > 0, 14 * 3 * L / (3 * safe) + third, np.inf)
    per_std = np.where(n > 0, np.sqrt(8 * L / safe), 0.0)
    Q, _ = backward_induction(P, r, 3, fixed, per_std)
    np.testing.assert_allclose(agent.plan(release, None).quality, Q, atol=1e-10)


def test_quality_never_rises_in_the_monotone_form_and_may_elsewhere():
    first, second = hand_written_release(50.0), hand_written_release(0.5)
    for monotone in (True, False):
        agent = UCBVI(bonuses.Azar(500, "hoeffding", 0.01), monotone)
        before = agent.plan(first, None)
        after = agent.plan(second, before)
        assert (after.quality <= before.quality).all() == monotone


def test_planning_is_pure():
    release = hand_written_release()
    for agent in (UCBVI(bonuses.Azar(500)), PolicyOptimization(bonuses.ShaniEfroni(500), 500)):
        previous = agent.plan(release, None)
        one, two = agent.plan(release, previous), agent.plan(release, previous)
        assert (one.policy == two.policy).all()
        assert (one.quality == two.quality).all()


def test_bonus_by_hand():
    """n = 4: (6/2 + 8/4, 2/2); n = 0: infinite."""
    bonus = bonuses.per_count(np.array([[[4.0, 0.0]]]), bonuses.Coefficients(root=6.0, inverse=8.0, per_std=2.0))
    assert bonus.fixed.tolist() == [[[5.0, np.inf]]]
    assert bonus.per_std.tolist() == [[[1.0, 0.0]]]


def test_f17_mirror_step_by_hand():
    """π = (¼, ¾), Q = (ln 3, 0), rate 1: weights (¾, ¾), so ½ each; larger Q gains probability."""
    step = mirror_step(np.array([[[0.25, 0.75]]]), np.array([[[math.log(3), 0.0]]]), 1.0)
    np.testing.assert_allclose(step, [[[0.5, 0.5]]], atol=1e-15)


def test_mirror_step_lets_a_vanished_action_return():
    gone = mirror_step(np.array([[[0.5, 0.5]]]), np.array([[[0.0, 1.0]]]), 600.0)
    assert gone[0, 0, 0] < 1e-250
    back = mirror_step(gone, np.array([[[1.0, 0.0]]]), 1200.0)
    assert back[0, 0, 0] > 0.999


def test_policy_optimisation_plans_by_its_formula():
    release = hand_written_release()
    agent = PolicyOptimization(bonuses.ShaniEfroni(400, 0.1), 400, rate_scale=2.0)
    P, r, n = empirical(release)
    T = 400 * 3
    width = 0.1 * (math.sqrt(2 * math.log(16 * T / 0.1)) + 3 * math.sqrt(8 * math.log(12 * T / 0.1)))
    fixed = np.where(n > 0, width / np.sqrt(np.maximum(n, 1)), np.inf)
    start = agent.plan(release, None)
    assert (start.policy == uniform_policy((3, 2, 2))).all()
    later = replace(start, num_episodes=8)
    Q, _ = backward_induction(P, r, 3, fixed, policy=later.policy)
    eta = 2.0 * math.sqrt(2 * math.log(2) / (9 * 400))
    weights = later.policy * np.exp(eta * 12 * Q)
    plan = agent.plan(release, later)
    np.testing.assert_allclose(plan.policy, weights / weights.sum(-1, keepdims=True), atol=1e-12)
