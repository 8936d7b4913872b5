"""Solvers over occupancy measures against a cone solver, linear programs, closed forms and their own certificates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from discreet import occupancies as measures
from discreet.envs.tabular import layered, layers, riverswim
from discreet.kernels import barrier as barrier_kernel
from discreet.kernels import entropy as entropy_kernel
from discreet.kernels import occupancy as occupancy_kernel
from discreet.kernels.entropy import ball_softmax, box_softmax
from discreet.mdp import FiniteMDP
from discreet.occupancies import KernelBalls, KernelBoxes, Layers, Solution, barrier_step, entropy_step
from discreet.planning import occupancy as true_occupancy
from discreet.planning import optimal_plan, policy_value
from oracles_occupancy import (
    BarrierOracle,
    EntropyOracle,
    layers_of,
    random_boxes,
    reach,
    reach_program,
)

SMALL, STARTS, MIDDLE = (1, 4, 4), (2, 3, 4, 1, 3), (1, 6, 6, 6)


def assert_certified(solution: Solution) -> None:
    assert solution.solved
    assert abs(solution.gap) <= 1e-7 * (1.0 + abs(solution.objective))
    assert solution.violation <= 1e-10
    np.testing.assert_allclose(solution.policy.sum(axis=-1), 1.0, atol=1e-12)


# Inner problems ------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 10.0, 1e4]), st.booleans())
def test_box_softmax_satisfies_the_optimality_conditions(n, seed, spread, tight):
    """p = clip(exp(z − τ)) for one τ: entries inside share z − ln p, those at lo lie below it, at hi above."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(n))
    lo = np.clip(rows - (0.02 if tight else 0.5) * rng.random(n), 0, 1)
    hi = np.clip(rows + (0.02 if tight else 0.5) * rng.random(n), 0, 1)
    z = spread * rng.standard_normal(n)
    p, free, scratch = np.empty(n), np.empty(n, dtype=np.bool_), np.empty(n)
    value = box_softmax(z, lo, hi, n, p, free, scratch)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert ((p >= lo - 1e-15) & (p <= hi + 1e-15)).all()
    slope = z - np.log(np.maximum(p, 1e-320))
    gain, loss = slope[p < hi - 1e-12], slope[p > lo + 1e-12]  # what more and less of an entry is worth
    if len(gain) and len(loss):
        assert gain.max() <= loss.min() + 1e-9 * (1 + abs(z).max())
    assert value == pytest.approx((p * np.where(p > 0, slope, 0.0)).sum(), rel=1e-11, abs=1e-11)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 10.0, 300.0]),
    st.sampled_from([0.0, 0.05, 0.7, 2.0]),
)
def test_ball_softmax_satisfies_the_optimality_conditions(n, seed, spread, reach):
    """Feasible, its value is what it says, and no sampled feasible point is better."""
    rng = np.random.default_rng(seed)
    center = rng.dirichlet(np.ones(n)) * (rng.random(n) < 0.8)
    center = center / center.sum() if center.sum() > 0 else np.full(n, 1 / n)
    z = spread * rng.standard_normal(n)
    p, free = np.empty(n), np.empty(n, dtype=np.int8)
    value = ball_softmax(z, center, reach, n, p, free)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert (p >= 0).all()
    assert np.abs(p - center).sum() <= reach + 1e-12
    slope = z - np.log(np.maximum(p, 1e-320))
    assert value == pytest.approx((p * np.where(p > 0, slope, 0.0)).sum(), rel=1e-11, abs=1e-11)
    for _ in range(20):
        other = rng.dirichlet(np.ones(n))
        share = min(1.0, reach / max(np.abs(other - center).sum(), 1e-300))
        other = center + share * (other - center)
        logs = np.log(np.where(other > 0, other, 1.0))
        assert (other * (z - logs)).sum() <= value + 1e-9 * (1 + abs(value))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_barrier_rows_beat_every_feasible_point(n, seed, tight):
    """φ(d) is attained at the returned q, which is feasible, and no sampled feasible point is better."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(n)) + 1e-6
    rows /= rows.sum()
    width = 0.01 if tight else 0.5
    lo, hi = np.clip(rows - width * rng.random(n), 0, 1), np.clip(rows + width * rng.random(n), 1e-9, 1)
    d = rng.uniform(-0.3, 3.0, n) * 10.0 ** rng.integers(-2, 4)
    q, free = np.empty(n), np.empty(n, dtype=np.bool_)
    order, start = np.empty(n, dtype=np.int64), np.zeros(2)
    value, mass = barrier_kernel.row(d, lo, hi, n, start, q, free, order)
    points = [rows]
    for _ in range(200):
        p = rng.dirichlet(np.ones(n))
        inside = np.clip(p, lo, hi)
        if abs(inside.sum() - 1) > 1e-12:  # move along the segment to the row until the box holds
            t = min(
                1.0,
                min(((hi - rows)[p > hi] / (p - rows)[p > hi]), default=1.0),
                min(((rows - lo)[p < lo] / (rows - p)[p < lo]), default=1.0),
            )
            inside = rows + t * (p - rows)
        points.append(inside)
    if value == -np.inf:
        assert barrier_kernel.reach(d, lo, hi, n, order)[0] <= 0.0
        return
    assert ((q >= lo * mass * (1 - 1e-12)) & (q <= hi * mass * (1 + 1e-12))).all()
    assert value == pytest.approx(d @ q - np.log(q).sum(), rel=1e-9, abs=1e-9)
    for p in points:
        if (p > 0).all():
            s = n / (p @ d)  # the best scale along the ray
            assert p @ d > 0
            assert value <= s * (p @ d) - np.log(s * p).sum() + 1e-7


# Entropy -------------------------------------------------------------------------------------------


def assert_solves_as_the_cone_solver(boxes, scores, tolerance, oracle=None):
    solution = entropy_step(boxes, scores)
    assert_certified(solution)
    value, measure, _ = (oracle or EntropyOracle(boxes)).solve(scores)
    assert solution.objective == pytest.approx(value, abs=tolerance * (1 + abs(value)))
    np.testing.assert_allclose(solution.measure, measure, atol=100 * tolerance)


@pytest.mark.parametrize(
    ("sizes", "num_actions", "width", "scale", "zeros"),
    [
        (SMALL, 2, 0.3, 1.0, 0.0),
        (SMALL, 2, 0.02, 30.0, 0.0),
        (STARTS, 3, 0.1, 10.0, 0.0),
        (STARTS, 3, 0.0, 5.0, 0.4),
        (MIDDLE, 3, 0.05, 100.0, 0.3),
        ((1, 10, 10, 10, 10, 10), 5, 0.1, 20.0, 0.0),
    ],
)
def test_entropy_steps_match_the_cone_solver(sizes, num_actions, width, scale, zeros):
    rng = np.random.default_rng(7)
    space = layers_of(sizes, num_actions)
    boxes = random_boxes(space, rng, width, zeros=zeros)
    scores = -scale * rng.random((*space.shape, 1)) * np.ones((*space.shape, space.shape[1]))
    assert_solves_as_the_cone_solver(boxes, scores, 2e-7)


def test_mirror_steps_with_scores_per_triple_match_the_cone_solver():
    rng = np.random.default_rng(8)
    space = layers_of(MIDDLE, 2)
    boxes = random_boxes(space, rng, 0.1)
    scores = 3.0 * rng.standard_normal((*space.shape, space.shape[1]))
    assert_solves_as_the_cone_solver(boxes, scores, 1e-7)


def balls_around(space: Layers, rng: np.random.Generator, reach: float) -> KernelBalls:
    """Radii of up to `reach` around the centres of random boxes."""
    boxes = random_boxes(space, rng, 0.1)
    center = boxes.lower + (boxes.upper - boxes.lower) / 2
    center = center / np.maximum(center.sum(axis=-1, keepdims=True), 1e-300)
    radii = reach * rng.random(space.shape)
    radii[-1] = 0.0
    return KernelBalls(space, center, radii)


@pytest.mark.parametrize("reach", [0.0, 0.05, 0.6, 2.0])
@pytest.mark.parametrize("sizes", [SMALL, STARTS, MIDDLE])
def test_r9_steps_within_l1_balls_match_the_cone_solver(sizes, reach):
    rng = np.random.default_rng(17)
    space = layers_of(sizes, 2)
    balls = balls_around(space, rng, reach)
    scores = 2.0 * rng.standard_normal((*space.shape, space.shape[1]))
    assert_solves_as_the_cone_solver(balls, scores, 2e-7, EntropyOracle.within(balls))


def test_balls_of_radius_two_hold_every_kernel_and_a_breach_is_measured():
    space = layers_of(MIDDLE, 2)
    scores = np.random.default_rng(3).standard_normal(space.shape)
    rows, reach = np.zeros((4, space.num_states, 2, space.num_states)), np.full((4, space.num_states, 2), 9.0)
    wide = KernelBalls.around(space, rows, reach)
    assert wide.reach.max() == 2.0
    free = entropy_step(KernelBoxes.everything(space), scores)
    np.testing.assert_allclose(entropy_step(wide, scores).measure, free.measure, atol=1e-9)
    tight = KernelBalls(space, wide.center, np.zeros_like(wide.reach))
    apart = np.abs(free.measure - tight.center * free.measure.sum(axis=-1, keepdims=True)).sum(axis=-1)
    assert tight.violation(free.measure) == pytest.approx(apart.max())
    assert wide.violation(free.measure) <= 1e-12


def test_without_knowledge_and_losses_all_triples_are_equally_likely():
    space = layers_of((1, 4, 3), 2)
    solution = entropy_step(KernelBoxes.everything(space), np.zeros(space.shape))
    for h, (n, m) in enumerate([(1, 4), (4, 3), (3, 1)]):
        np.testing.assert_allclose(solution.measure[h, :n, :, :m], 1.0 / (n * 2 * m), atol=1e-12)
    np.testing.assert_allclose(measures.uniform_solution(space).measure, solution.measure, atol=1e-12)


def test_one_step_is_a_softmax():
    space = layers_of((3,), 4, np.array([0.2, 0.3, 0.5]))
    scores = np.random.default_rng(0).standard_normal(space.shape)
    policy = entropy_step(KernelBoxes.everything(space), scores).policy[0]
    np.testing.assert_allclose(policy, np.exp(scores[0]) / np.exp(scores[0]).sum(axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e2, 1e3, 1e4, 1e5])
@pytest.mark.parametrize("known", [True, False])
def test_entropy_steps_are_certified_up_to_huge_losses(scale, known):
    rng = np.random.default_rng(3)
    space = layers_of(MIDDLE, 3)
    boxes = random_boxes(space, rng, 0.1) if known else KernelBoxes.everything(space)
    assert_certified(entropy_step(boxes, -scale * rng.random(space.shape)))


def test_entropy_steps_stay_certified_over_jumping_boxes_with_warm_starts():
    """A learner's life: all kernels first, then boxes that jump and tighten, losses growing all the while."""
    methods = set()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        space = layers_of(MIDDLE if seed else STARTS, 3)
        boxes, solution, losses = KernelBoxes.everything(space), None, np.zeros(space.shape)
        for k in range(60):
            if k % 6 == 5:
                boxes = random_boxes(space, rng, 10.0 ** rng.uniform(-6, -0.3), zeros=0.3 * rng.random())
            losses += rng.random(space.shape) * 2.0 ** (k / 10)
            solution = entropy_step(boxes, -losses, solution)
            assert_certified(solution)
            methods.add(solution.method)
    assert methods <= {"newton", "restarted"}


def test_unreachable_states_do_no_harm():
    rng = np.random.default_rng(1)
    space = layers_of(SMALL, 2)
    boxes = random_boxes(space, rng, 0.1)
    lower, upper = boxes.lower.copy(), boxes.upper.copy()
    lower[0, 0, :, 3] = upper[0, 0, :, 3] = 0.0
    upper[0, 0, :, :3] = 1.0
    closed = KernelBoxes(space, lower, upper)
    solution = entropy_step(closed, -rng.random(space.shape))
    assert_certified(solution)
    assert solution.measure[1, 3].sum() <= 1e-12
    assert np.isfinite(solution.policy).all()
    assert not barrier_step(closed, np.ones(space.shape), measures.uniform_solution(space)).solved


def test_sharp_leaders_of_a_known_staged_mdp_play_the_optimal_policy():
    """With no uncertainty and η → ∞ the leader is the best fixed policy, from any initial distribution."""
    swim = riverswim(4, 6).staged()
    mdp = FiniteMDP(swim.transitions, swim.rewards, np.array([0.5, 0.0, 0.5, 0.0]), 6)
    space = Layers.full(6, mdp.initial, 2)
    boxes = KernelBoxes.around(space, mdp.transitions, np.zeros_like(mdp.transitions))
    solution = entropy_step(boxes, -1e5 * space.pack(1.0 - mdp.rewards))
    assert_certified(solution)
    assert policy_value(mdp, solution.policy) == pytest.approx(mdp.initial @ optimal_plan(mdp).value[0], abs=1e-3)
    np.testing.assert_allclose(space.unpack(solution.marginals), true_occupancy(mdp, solution.policy), atol=1e-9)


# Log barrier ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "num_actions", "width", "rate", "zeros", "negative"),
    [
        (SMALL, 2, 0.3, 0.2, 0.0, False),
        (SMALL, 2, 0.01, 1.0, 0.0, True),
        (STARTS, 3, 0.1, 0.5, 0.4, True),
        (MIDDLE, 2, 1e-4, 1.0, 0.0, False),
        ((1, 10, 10, 10), 5, 0.05, 1.0, 0.0, True),
    ],
)
def test_barrier_steps_match_the_cone_solver(sizes, num_actions, width, rate, zeros, negative):
    rng = np.random.default_rng(5)
    space = layers_of(sizes, num_actions)
    boxes = random_boxes(space, rng, width, concentration=1.0, zeros=zeros)
    start = measures.uniform_solution(space)
    weights = start.marginals + 1e-2
    signs = rng.choice([-1.0, 1.0], space.shape) if negative else 1.0
    losses = rate * signs * rng.random(space.shape) / weights
    solution = barrier_step(boxes, losses, start)
    assert_certified(solution)
    cost = losses[..., None] + 1.0 / np.where(start.measure > 0, start.measure, 1.0)
    value, measure, _ = BarrierOracle(boxes, solution.measure).solve(cost)
    assert solution.objective == pytest.approx(value, abs=1e-7 * (1 + abs(value)))
    np.testing.assert_allclose(solution.measure, measure, rtol=1e-3, atol=1e-9)


def test_barrier_steps_without_losses_stay_where_they_are():
    rng = np.random.default_rng(2)
    space = layers_of(MIDDLE, 2)
    boxes = random_boxes(space, rng, 0.2, concentration=1.0)
    inside = barrier_step(boxes, rng.random(space.shape), measures.uniform_solution(space))
    again = barrier_step(boxes, np.zeros(space.shape), inside)
    np.testing.assert_allclose(again.measure, inside.measure, rtol=1e-7)


@pytest.mark.parametrize("shift", [-40.0, 3.0])
def test_a_constant_loss_of_a_layer_changes_no_barrier_step(shift):
    """Layers sum to one; a large negative constant also makes costs negative, which the start must survive."""
    rng = np.random.default_rng(4)
    space = layers_of(SMALL, 2)
    boxes = random_boxes(space, rng, 0.1, concentration=1.0)
    losses = rng.random(space.shape)
    plain = barrier_step(boxes, losses, measures.uniform_solution(space))
    shifted = losses.copy()
    shifted[1] += shift
    moved = barrier_step(boxes, shifted, measures.uniform_solution(space))
    assert_certified(moved)
    np.testing.assert_allclose(moved.measure, plain.measure, rtol=1e-6)


def test_barrier_steps_stay_certified_in_a_bandit_loop_with_jumping_boxes():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        space = layers_of(MIDDLE if seed else STARTS, 3)
        boxes, solution = KernelBoxes.everything(space), measures.uniform_solution(space)
        for k in range(40):
            if k % 5 == 4:
                boxes = random_boxes(space, rng, 10.0 ** rng.uniform(-4, -0.5), concentration=1.0)
            bound = measures.upper_occupancy(boxes, solution.policy)[..., None] * space.pack(solution.policy)
            noisy = rng.normal(0.5, 1.0, space.shape)
            losses = 0.3 * np.clip(noisy, -3, 4) / np.maximum(bound, 1e-12)
            solution = barrier_step(boxes, np.where(space.mask_packed[..., None], losses, 0.0), solution)
            assert_certified(solution)


# Upper occupancy bound -----------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "width"), [(SMALL, 0.3), (STARTS, 0.1), ((1, 3, 3, 3, 3), 0.4)])
def test_upper_occupancy_equals_linear_programs_for_every_state(sizes, width):
    rng = np.random.default_rng(6)
    space = layers_of(sizes, 2)
    boxes = random_boxes(space, rng, width)
    policy = space.unpack(rng.dirichlet(np.ones(2), size=space.shape[:2]), 0.5)
    bound, program = measures.upper_occupancy(boxes, policy), reach_program(boxes, policy)
    for h, x in ((h, x) for h, n in enumerate(sizes) for x in range(n)):
        assert bound[h, x] == pytest.approx(reach(program, h, x), abs=1e-9)


def test_upper_occupancy_bounds_the_truth_and_meets_it_without_uncertainty():
    mdp = layered(instance=3)
    space = Layers(layers(mdp), mdp.initial, mdp.num_actions)
    policy = np.random.default_rng(0).dirichlet(np.ones(2), size=(3, 4))
    truth = space.pack(true_occupancy(mdp, policy)).sum(axis=-1)
    widths = np.full(mdp.transitions.shape, 0.1)
    exact = KernelBoxes.around(space, mdp.transitions, 0.0 * widths)
    np.testing.assert_allclose(measures.upper_occupancy(exact, policy), truth, atol=1e-12)
    assert (
        measures.upper_occupancy(KernelBoxes.around(space, mdp.transitions, widths), policy) >= truth - 1e-12
    ).all()


# Never a silent wrong answer -----------------------------------------------------------------------


def test_an_unsolved_step_keeps_the_previous_policy_and_says_so(monkeypatch):
    rng = np.random.default_rng(0)
    space = layers_of(MIDDLE, 3)
    boxes = random_boxes(space, rng, 0.1, concentration=1.0)
    before = entropy_step(boxes, -rng.random(space.shape))
    monkeypatch.setattr(measures, "NEWTON_STEPS", 0)
    monkeypatch.setattr(measures, "FALLBACK_SWEEPS", 2)
    after = entropy_step(boxes, -30 * rng.random(space.shape), before)
    assert after.method == "unsolved"
    assert not after.solved
    np.testing.assert_array_equal(after.policy, before.policy)
    assert after.gap == np.inf
    step = barrier_step(boxes, rng.random(space.shape), before)
    assert not step.solved
    np.testing.assert_array_equal(step.policy, before.policy)


def test_the_fallbacks_solve_when_newton_alone_may_not(monkeypatch):
    """Many sweeps of alternating dynamic programming reach the tolerance without a single Newton step."""
    rng = np.random.default_rng(0)
    space = layers_of(SMALL, 2)
    boxes = random_boxes(space, rng, 0.1, concentration=1.0)
    scores = -10 * rng.random(space.shape)
    exact = entropy_step(boxes, scores)
    monkeypatch.setattr(measures, "NEWTON_STEPS", 0)
    swept = entropy_step(boxes, scores)
    assert swept.method == "alternating"
    assert_certified(swept)
    np.testing.assert_allclose(swept.measure, exact.measure, atol=1e-8)
    monkeypatch.setattr(measures, "NEWTON_STEPS", 4)
    losses = 20.0 * rng.random(space.shape)
    stepped = barrier_step(boxes, losses, measures.uniform_solution(space))
    assert stepped.method == "continuation"
    assert_certified(stepped)


def test_boxes_without_a_distribution_are_refused_by_name():
    space = layers_of(SMALL, 2)
    boxes = random_boxes(space, np.random.default_rng(0), 0.1)
    lower, upper = boxes.lower.copy(), boxes.upper.copy()
    upper[1, 2, 1] *= 0.5
    with pytest.raises(ValueError, match="step 1, state 2, action 1"):
        KernelBoxes(space, np.minimum(lower, upper), upper)
    lower[0, 0, 0, 0] = 1.0
    lower[0, 0, 0, 1] = 0.5
    with pytest.raises(ValueError, match="step 0, state 0, action 0"):
        KernelBoxes(space, lower, np.maximum(lower, boxes.upper))


def test_estimates_that_do_not_sum_to_one_are_rescaled():
    space = layers_of(SMALL, 2)
    estimate = np.random.default_rng(0).random((3, 4, 2, 4))
    estimate[1, 2, 0] = 0.0  # nothing was ever seen: uniform
    boxes = KernelBoxes.around(space, estimate, np.zeros_like(estimate))
    sums = boxes.lower.sum(axis=-1)
    np.testing.assert_allclose(sums[space.mask_packed], 1.0, atol=1e-12)
    np.testing.assert_allclose(boxes.lower[1, 2, 0], 0.25)


def test_scattered_layers_are_packed_and_unpacked():
    space = Layers(((2,), (0, 3), (1, 2, 4)), np.eye(5)[2], 2)
    table = np.arange(30.0).reshape(3, 5, 2)
    back = space.unpack(space.pack(table), -1.0)
    np.testing.assert_array_equal(back[space.mask], table[space.mask])
    assert (back[~space.mask] == -1.0).all()
    assert space.num_cells == 12
    rows = np.zeros((3, 5, 2, 5))
    rows[0, 2, :, [0, 3]] = 0.5
    assert space.pack_rows(rows)[0, 0, 0].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("states", [((0,), ()), ((0,), (1, 1)), ((0,), (5,)), ((1,), (0,)), ((0, 1), (0,))], ids=str)
def test_bad_layers_are_refused(states):
    with pytest.raises(ValueError, match="layer"):
        Layers(states, np.eye(3)[0], 2)


def test_scores_of_the_wrong_shape_or_value_are_refused():
    space = layers_of(SMALL, 2)
    boxes = KernelBoxes.everything(space)
    with pytest.raises(ValueError, match="shape"):
        entropy_step(boxes, np.zeros((2, 2, 2)))
    bad = np.zeros(space.shape)
    bad[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        entropy_step(boxes, bad)


def test_a_tiny_leader_by_brute_force():
    """Two steps, two actions, known coin flips: compare with a fine grid over all policies."""
    space = layers_of((1, 2), 2)
    rows = np.zeros((2, 2, 2, 2))
    rows[0, 0, 0], rows[0, 0, 1] = [0.9, 0.1], [0.2, 0.8]
    boxes = KernelBoxes.around(space, rows, np.zeros_like(rows))
    losses = np.array([[[0.3, 0.6], [0, 0]], [[0.1, 0.9], [0.8, 0.2]]])
    solution = entropy_step(boxes, -5.0 * losses)
    grid = np.linspace(0.001, 0.999, 100)
    u, v, w = (axis.reshape(-1) for axis in np.meshgrid(grid, grid, grid))
    good, bad = 0.9 * u + 0.2 * (1 - u), 0.1 * u + 0.8 * (1 - u)
    first = 0.9 * u, 0.1 * u, 0.2 * (1 - u), 0.8 * (1 - u)
    q = np.stack([*first, good * v, good * (1 - v), bad * w, bad * (1 - w)])
    later = good * (0.1 * v + 0.9 * (1 - v)) + bad * (0.8 * w + 0.2 * (1 - w))
    best = (5.0 * (0.3 * u + 0.6 * (1 - u) + later) + (q * np.log(q)).sum(axis=0)).min()
    assert solution.objective <= best + 1e-9
    assert best - solution.objective <= 2e-3


def test_no_compiler_may_reorder_the_sums_of_a_solver():
    """Mirror steps start from the last one, so rounding grows from user to user: UOB-LBPS had one regret in the
    process that compiled it and another where its code came from the cache, UOB-REPS one per kind of processor."""
    found = [
        each
        for module in (occupancy_kernel, entropy_kernel, barrier_kernel)
        for each in vars(module).values()
        if isinstance(each, Dispatcher)
    ]
    assert len(found) >= 20
    assert [each.__name__ for each in found if each.targetoptions.get("fastmath")] == []


def test_the_scores_of_a_mirror_step_are_logarithms_less_losses():
    measure, losses = np.array([[[[0.25, 0.0]], [[0.5, 1.0]]]]), np.array([[[1.0], [-2.0]]])
    np.testing.assert_array_equal(
        entropy_kernel.mirror_scores(measure, losses),
        [[[[math.log(0.25) - 1.0, math.log(1e-300) - 1.0]], [[math.log(0.5) + 2.0, 2.0]]]],
    )
