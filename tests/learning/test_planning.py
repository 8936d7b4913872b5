from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.mdp import FiniteMDP
from discreet.planning import (
    Bonus,
    greedy_plan,
    occupancy,
    optimal_plan,
    policy_value,
    policy_values,
    tie_order,
    uniform_policy,
)
from discreet.releases.counts import Model
from oracles import backward_induction, best_value_by_enumeration, random_mdp_arrays


def model(seed, stages, S, A):
    P, r = random_mdp_arrays(np.random.default_rng(seed), stages, S, A)
    return Model(P, r, np.ones((stages, S, A)))


@pytest.mark.parametrize(("stages", "S", "A", "H"), [(1, 3, 2, 5), (4, 3, 2, 4), (1, 17, 3, 4), (3, 130, 2, 3)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_backups_equal_the_plain_loops(stages, S, A, H, sign):
    m = model(S + H, stages, S, A)
    rng = np.random.default_rng(1)
    bonus = Bonus(sign * rng.random((stages, S, A)), sign * 0.3 * rng.random((stages, S, A)))
    bonus.fixed[0, 0, 0] = sign * np.inf
    plan = greedy_plan(m, H, bonus)
    Q, V = backward_induction(m.transitions, m.rewards, H, bonus.fixed, bonus.per_std)
    np.testing.assert_allclose(plan.quality, Q, atol=1e-12)
    np.testing.assert_allclose(plan.value, V, atol=1e-12)
    policy = rng.dirichlet(np.ones(A), size=(H, S))
    value, quality = policy_values(m, policy, bonus)
    Q, V = backward_induction(m.transitions, m.rewards, H, bonus.fixed, bonus.per_std, policy=policy)
    np.testing.assert_allclose(quality, Q, atol=1e-12)
    np.testing.assert_allclose(value, V, atol=1e-12)


def test_optimum_equals_the_best_of_all_policies_in_exact_arithmetic():
    rng = np.random.default_rng(5)
    P = rng.integers(1, 8, size=(3, 2, 2, 2)).astype(float)
    P[..., 1] = 16 - P[..., 0]
    mdp = FiniteMDP(P / 16, rng.integers(0, 16, size=(3, 2, 2)) / 16, np.array([0.25, 0.75]), 3)
    best = best_value_by_enumeration(mdp)
    plan = optimal_plan(mdp)
    assert Fraction(float(mdp.initial @ plan.value[0])).limit_denominator(2**20) == best
    assert policy_value(mdp, plan.policy) == pytest.approx(float(best), abs=1e-14)
    assert policy_value(mdp, plan.actions) == pytest.approx(float(best), abs=1e-14)


def test_standard_deviation_survives_values_that_nearly_agree():
    """V ≈ 20 ± 1e-7: a one-pass variance returns 0 or noise, the true standard deviation is 1e-7."""
    P = np.zeros((2, 2, 1, 2))
    P[0, :, 0] = [0.5, 0.5]
    P[1, :, 0] = np.eye(2)
    rewards = np.zeros((2, 2, 1))
    rewards[1, :, 0] = [20.0 - 1e-7, 20.0 + 1e-7]
    bonus = Bonus(np.zeros((2, 2, 1)), np.concatenate([np.ones((1, 2, 1)), np.zeros((1, 2, 1))]))
    plan = greedy_plan(Model(P, rewards, np.ones((2, 2, 1))), 2, bonus, reward_range=(0.0, 100.0))
    assert plan.quality[0, 0, 0] - 20.0 == pytest.approx(1e-7, rel=1e-6)


def test_one_state_by_hand():
    """One state, two arms with means .25 and .75, H = 3: V = 2.25, 1.5, .75; the uniform policy gets half of 3."""
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.array([[[0.25, 0.75]]]), np.ones(1), 3)
    plan = optimal_plan(mdp)
    assert plan.value[:, 0].tolist() == [2.25, 1.5, 0.75, 0.0]
    assert (plan.policy[..., 1] == 1.0).all()
    assert policy_value(mdp, uniform_policy((3, 1, 2))) == 1.5


def test_unknown_cells_get_the_whole_remaining_reward():
    m = model(0, 1, 3, 2)
    bonus = Bonus(np.full((1, 3, 2), np.inf), np.zeros((1, 3, 2)))
    assert (greedy_plan(m, 4, bonus).quality == np.arange(4, 0, -1)[:, None, None]).all()
    pessimistic = Bonus(-bonus.fixed, bonus.per_std)
    assert (greedy_plan(m, 4, pessimistic).quality == 0).all()


def test_a_ceiling_caps_quality():
    m = model(0, 1, 3, 2)
    ceiling = np.full((4, 3, 2), 0.125)
    assert greedy_plan(m, 4, ceiling=ceiling).quality.max() == 0.125


def test_ties_follow_the_seeded_order_and_favour_no_action():
    m = Model(np.full((1, 50, 3, 50), 0.02), np.zeros((1, 50, 3)), np.ones((1, 50, 3)))
    actions = greedy_plan(m, 40, tie_seed=3).actions
    assert (actions == tie_order((40, 50, 3), 3)[..., 0]).all()
    shares = np.bincount(actions.ravel(), minlength=3) / actions.size
    assert np.abs(shares - 1 / 3).max() < 0.05
    assert (actions != greedy_plan(m, 40, tie_seed=4).actions).any()


@given(st.integers(0, 10_000), st.booleans())
def test_larger_bonus_never_lowers_a_value(seed, staged):
    m = model(seed, 3 if staged else 1, 4, 2)
    rng = np.random.default_rng(seed)
    small = Bonus(rng.random(m.rewards.shape), rng.random(m.rewards.shape))
    extra = rng.random(m.rewards.shape)
    large = Bonus(small.fixed + extra, small.per_std)
    zero = greedy_plan(m, 3)
    low, high = (
        greedy_plan(m, 3, Bonus(small.fixed, 0 * small.per_std)),
        greedy_plan(m, 3, Bonus(large.fixed, 0 * extra)),
    )
    assert (zero.value <= low.value + 1e-12).all()
    assert (low.value <= high.value + 1e-12).all()
    for plan in (zero, low, high, greedy_plan(m, 3, large)):
        assert (plan.value >= 0).all()
        assert (plan.value <= (3 - np.arange(4))[:, None]).all()
        np.testing.assert_array_equal(plan.policy.sum(axis=2), 1.0)


@given(st.integers(0, 10_000))
def test_occupancy_is_a_flow_that_prices_the_policy(seed):
    rng = np.random.default_rng(seed)
    P, r = random_mdp_arrays(rng, 3, 4, 2)
    mdp = FiniteMDP(P, r, rng.dirichlet(np.ones(4)), 3)
    policy = rng.dirichlet(np.ones(2), size=(3, 4))
    q = occupancy(mdp, policy)
    np.testing.assert_allclose(q.sum(axis=(1, 2)), 1.0, atol=1e-12)
    for h in range(2):
        np.testing.assert_allclose(np.einsum("sa,say->y", q[h], mdp.transitions[h]), q[h + 1].sum(axis=1), atol=1e-12)
    assert float((q * mdp.rewards).sum()) == pytest.approx(policy_value(mdp, policy), abs=1e-12)


def test_a_policy_of_the_wrong_shape_is_refused():
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2)), np.ones(1), 3)
    with pytest.raises(ValueError, match=r"shape \(2, 1, 2\); expected \(3, 1, 2\) or \(3, 1\)"):
        policy_value(mdp, uniform_policy((2, 1, 2)))


@pytest.mark.parametrize("kind", ["dense", "ties"])
def test_pruned_backward_induction_finds_the_same_plan(kind):
    from discreet.kernels.planning import backward_induction as compiled_backward

    rng = np.random.default_rng(4)
    for S, A, H, G in ((5, 3, 4, 4), (40, 6, 5, 1)):
        P, r = random_mdp_arrays(rng, G, S, A)
        if kind == "ties":
            r = np.round(r)
            P = np.broadcast_to(np.eye(S)[0], P.shape).copy()
        fixed, per_std = 0.3 * rng.random(r.shape) * (kind == "dense"), 0.2 * rng.random(r.shape) * (kind == "dense")
        fixed[0, 1, 0] = np.inf
        order, ceiling = tie_order((H, S, A), 1), np.full((H, S, A), np.inf)
        results = []
        for prune in (False, True):
            quality, values = np.full((H, S, A), np.nan), np.empty((H + 1, S))
            actions = rng.integers(0, A, (H, S))
            arguments = (P, r, fixed, per_std, 0.0, 1.0, np.empty((0, 0, 0)), ceiling, order)
            compiled_backward(*arguments, quality, values, actions, prune)
            results.append((values, actions, np.isnan(quality).sum()))
        assert (results[0][0] == results[1][0]).all()
        assert (results[0][1] == results[1][1]).all()
        assert results[0][2] == 0
        assert results[1][2] > 0
