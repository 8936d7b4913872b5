"""The adversarial learners as pure functions of releases: boxes, leaders, estimators, counted failures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from discreet import occupancies as measures
from discreet.agents import oreps
from discreet.agents.oreps import BanditDescent, ConfidenceBoxes, Leader, PublishedSets, RegularisedLeader
from discreet.envs.tabular import layered, layers, riverswim
from discreet.mdp import FiniteMDP
from discreet.occupancies import KernelBalls, Layers, upper_occupancy
from discreet.planning import optimal_plan, policy_value
from discreet.releases.counts import PrivateLosses

MDP = layered(instance=2)
LAYERS = Layers(layers(MDP), MDP.initial, MDP.num_actions)
K = 10_000


def released(visits: float, mdp: FiniteMDP = MDP, losses: np.ndarray | None = None, **more: float) -> PrivateLosses:
    """As if every cell had been visited so often, with the true frequencies and no noise."""
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    transitions = visits * mdp.staged().transitions.copy()
    transitions[-1] = 0.0
    tables = np.zeros((H, S, A)) if losses is None else losses
    given = {"num_episodes": 100, "counted": 100, "block_users": 100, "num_blocks": 1, **more}
    return PrivateLosses(np.full((H, S, A), visits), transitions, tables, tables, **given)  # type: ignore[arg-type]


# Confidence boxes -----------------------------------------------------------------------------------


def test_before_anything_is_counted_every_kernel_is_possible():
    boxes = ConfidenceBoxes(LAYERS, K).boxes(released(0.0, counted=0))
    inside = boxes.upper[0, 0]
    assert (boxes.lower == 0).all()
    assert (inside == 1).all()


@pytest.mark.parametrize("paper", [False, True])
def test_boxes_hold_the_kernel_and_shrink_around_it(paper):
    truth = LAYERS.pack_rows(MDP.transitions)
    widths = []
    for visits in (1e2, 1e4, 1e6):
        boxes = ConfidenceBoxes(LAYERS, K, 0.3, paper).boxes(released(visits))
        assert ((boxes.lower <= truth + 1e-12) & (truth <= boxes.upper + 1e-12)).all()
        widths.append((boxes.upper - boxes.lower)[:2].max())
    assert widths[0] > 3 * widths[1] > 9 * widths[2]


def test_widths_follow_their_formulas():
    iota, n = 2 * math.log(K), 5000.0
    P = MDP.transitions[0, 0, 0, 1]
    practical = ConfidenceBoxes(LAYERS, K, 0.5).boxes(released(n, count_deviation=7.0))
    reach = 0.5 * math.sqrt(2 * P * (1 - P) * iota / n) + 0.5 * (iota + 14.0) / n
    assert practical.upper[0, 0, 0, 1] == pytest.approx(min(1, P + reach), rel=1e-9)
    e = 11.0
    shifted = n + 2 * e
    Q = (n * P + 2 * e / 4) / shifted
    paper = ConfidenceBoxes(LAYERS, K, paper=True).boxes(released(n, count_width=e))
    reach = math.sqrt(2 * Q * (1 - Q) * iota / shifted) + (16 * e + 7 * iota) / shifted
    assert paper.upper[0, 0, 0, 1] == pytest.approx(min(1, Q + reach), rel=1e-9)


def test_r9_published_sets_follow_their_formulas():
    """[RM19]: √(2·|X'|·ln(XAK/δ)/N) in L1; [JJLSY20]: 2·√(P̄·ln(XAK/δ)/(N−1)) + 14·ln(XAK/δ)/(3(N−1)) per entry."""
    iota, n = math.log(LAYERS.num_cells * K / 0.1), 5000.0
    balls = PublishedSets(LAYERS, K, "balls").boxes(released(n))
    assert isinstance(balls, KernelBalls)
    assert balls.reach[0, 0, 0] == pytest.approx(math.sqrt(2 * 4 * iota / n))
    np.testing.assert_allclose(balls.center, LAYERS.pack_rows(MDP.transitions), atol=1e-12)
    P = MDP.transitions[0, 0, 0, 1]
    boxes = PublishedSets(LAYERS, K, "boxes").boxes(released(n))
    width = 2 * math.sqrt(P * iota / (n - 1)) + 14 * iota / (3 * (n - 1))
    assert boxes.upper[0, 0, 0, 1] == pytest.approx(min(1, P + width), rel=1e-9)
    assert boxes.lower[0, 0, 0, 1] == pytest.approx(max(0, P - width), rel=1e-9, abs=1e-12)
    nothing = released(0.0)
    assert (PublishedSets(LAYERS, K, "balls").boxes(nothing).reach[:-1, 0] == 2).all()
    assert (PublishedSets(LAYERS, K, "boxes").boxes(nothing).lower[:-1] == 0).all()


def test_r9_published_sets_wait_until_the_visits_of_some_pair_have_doubled():
    sets = PublishedSets(LAYERS, K, "balls")
    agent = oreps.RelativeEntropyDescent(sets, 0.1)
    start = agent.plan(released(0.0, counted=0, num_blocks=0), None)
    first = agent.plan(released(1.0, num_blocks=1), start)
    assert first.boxes is not start.boxes
    second = agent.plan(released(10.0, num_blocks=2), first)
    waiting = agent.plan(released(19.0, num_blocks=3), second)
    assert waiting.boxes is second.boxes
    assert agent.plan(released(20.0, num_blocks=4), waiting).boxes is not second.boxes


def test_r9_uc_o_reps_is_a_mirror_step_from_the_last_measure():
    """q ∝ q_k·exp(−ηℓ_k) on the one layer whose measure is free: nothing is summed over episodes."""
    space = Layers(((0,), (1, 2)), np.array([1.0, 0.0, 0.0]), 2)
    agent = oreps.RelativeEntropyDescent(PublishedSets(space, K, "balls"), 0.3)
    tables = np.zeros((2, 3, 2))
    given = {"num_episodes": 1, "counted": 1, "block_users": 1}
    nothing, rng = np.zeros((2, 3, 2, 3)), np.random.default_rng(4)
    plan = agent.plan(PrivateLosses(tables, nothing, tables, tables, **{**given, "num_blocks": 0}), None)
    for block in (1, 2):
        losses = rng.random((2, 3, 2)) * space.mask[..., None]
        before = plan.solution.measure.copy()
        release = PrivateLosses(tables, nothing, 7 * losses, losses, **given, num_blocks=block)
        plan = agent.plan(release, plan)
        last = before[1] * np.exp(-0.3 * space.pack(losses)[1])[..., None]
        shares = plan.solution.measure[1].sum(axis=(1, 2)) / last.sum(axis=(1, 2))
        for x in range(2):  # within a state, actions follow the weights
            np.testing.assert_allclose(plan.solution.measure[1, x], shares[x] * last[x], rtol=1e-6)


def test_r9_the_estimator_of_uob_reps_is_biased_by_gamma():
    agent = BanditDescent(PublishedSets(LAYERS, K, "boxes"), 0.1, implicit=0.25, regulariser="entropy")
    start = oreps.first_plan(LAYERS)
    losses = np.zeros((3, LAYERS.num_states, 2))
    losses[0, 0, 1] = 0.8
    estimate = agent.estimate(released(1.0, losses=losses, block_users=1), start)
    assert estimate[0, 0, 1] == pytest.approx(0.8 / (0.5 + 0.25))
    assert np.count_nonzero(estimate) == 1


def test_more_noise_never_shrinks_a_box():
    for field, config in (("count_deviation", ConfidenceBoxes(LAYERS, K)),):
        before = None
        for size in (0.0, 5.0, 50.0):
            boxes = config.boxes(released(2000.0, **{field: size}))
            if before is not None:
                assert (boxes.upper >= before.upper - 1e-15).all()
                assert (boxes.lower <= before.lower + 1e-15).all()
            before = boxes


def test_boxes_survive_wild_noise():
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e3, 1e6):
        noisy = replace(released(20.0), transitions=rng.normal(0, scale, (3, 4, 2, 4)), count_deviation=scale)
        boxes = ConfidenceBoxes(LAYERS, K).boxes(noisy)
        assert np.isfinite(boxes.upper).all()


def test_boxes_change_only_with_new_counts():
    config = ConfidenceBoxes(LAYERS, K)
    plan = RegularisedLeader(config).plan(released(100.0), oreps.first_plan(LAYERS))
    same = config.refreshed(released(5000.0), plan)
    assert same is plan.boxes
    assert config.refreshed(released(5000.0, counted=200), plan) is not plan.boxes


# Leaders --------------------------------------------------------------------------------------------


def test_the_rate_is_the_printed_one_times_its_scale():
    assert RegularisedLeader(ConfidenceBoxes(LAYERS, K), 1.0).rate == pytest.approx(math.sqrt(math.log(18 / 3) / K))
    assert RegularisedLeader(ConfidenceBoxes(LAYERS, K), 10.0).rate == pytest.approx(
        10 * math.sqrt(math.log(18 / 3) / K)
    )


def test_plans_are_pure_and_policies_are_distributions():
    agent = RegularisedLeader(ConfidenceBoxes(LAYERS, K))
    losses = 500 * (1.0 - MDP.rewards)
    start = agent.plan(released(0.0), None)
    assert start.policy == pytest.approx(np.full((3, 4, 2), 0.5))
    one, two = (agent.plan(released(800.0, losses=losses), start) for _ in range(2))
    np.testing.assert_array_equal(one.policy, two.policy)
    np.testing.assert_allclose(one.policy.sum(axis=-1), 1.0)
    assert (one.solves, one.unsolved) == (1, 0)
    assert one.largest_gap <= 1e-7
    assert one.largest_violation <= 1e-10


def test_with_many_counts_and_losses_leaders_play_the_best_policy():
    """Also in a staged MDP that is no layered graph, from several initial states."""
    for mdp in (MDP, FiniteMDP(riverswim(3, 5).transitions, riverswim(3, 5).rewards, np.array([0.3, 0.7, 0]), 5)):
        space = Layers(layers(mdp), mdp.initial, mdp.num_actions)
        losses = 1e5 * (1.0 - mdp.staged().rewards)
        release = released(1e9, mdp, losses, num_episodes=10**5)
        best = float(mdp.initial @ optimal_plan(mdp).value[0])
        for agent in (RegularisedLeader(ConfidenceBoxes(space, 10**5), 30.0), Leader(space)):
            plan = agent.plan(release, agent.plan(release, None))
            assert policy_value(mdp, plan.policy) == pytest.approx(best, abs=5e-3)


def test_leaders_are_optimistic_about_kernels_they_do_not_know():
    """A state nobody has seen costs nothing: the action that may lead there is preferred."""
    space = Layers(((0,), (0, 1)), np.eye(2)[0], 2)
    transitions = np.zeros((2, 2, 2, 2))
    transitions[0, 0, 0] = [10_000, 0]  # action 0 surely leads to state 0; action 1 was never tried
    losses = np.zeros((2, 2, 2))
    losses[1, 0] = 5000.0
    release = PrivateLosses(None, transitions, losses, losses, 10_000, 10_000, 1, 1)
    plan = RegularisedLeader(ConfidenceBoxes(space, 10_000)).plan(release, oreps.first_plan(space))
    assert plan.policy[0, 0, 1] > 0.9


# Bandit estimators ----------------------------------------------------------------------------------


def test_the_corrected_estimator_divides_by_the_upper_bound_and_the_printed_one_punishes_the_unvisited(monkeypatch):
    seen = {}

    def spy(boxes, losses, previous):
        seen["losses"] = losses
        return previous

    monkeypatch.setattr("discreet.agents.oreps.barrier_step", spy)
    start = oreps.first_plan(LAYERS)
    latest = np.zeros((3, 4, 2))
    latest[1, 0, 0] = 30.0
    release = replace(released(100.0, loss_width=50.0), latest=latest)
    upper = upper_occupancy(start.boxes, start.policy)[..., None] * LAYERS.pack(start.policy)
    BanditDescent(ConfidenceBoxes(LAYERS, K), 0.01).plan(release, start)
    corrected = seen["losses"]
    assert corrected[1, 0, 0] == pytest.approx(0.01 * 30.0 / upper[1, 0, 0])
    assert corrected[1, 1, 0] == 0.0
    BanditDescent(ConfidenceBoxes(LAYERS, K), 0.01, "paper").plan(release, start)
    printed = seen["losses"]
    assert printed[1, 1, 0] == pytest.approx(0.01 * 100 * (50 / 200) / upper[1, 1, 0])  # nobody was there
    huge = replace(release, latest=np.full((3, 4, 2), 1e9))
    BanditDescent(ConfidenceBoxes(LAYERS, K), 0.01).plan(huge, start)
    assert seen["losses"][1, 0, 0] == pytest.approx(0.01 * 150.0 / upper[1, 0, 0])  # clipped at n + E'


def test_counts_alone_move_a_bandit_policy_into_the_new_boxes_only():
    agent = BanditDescent(ConfidenceBoxes(LAYERS, K), 0.01)
    start = oreps.first_plan(LAYERS)
    plan = agent.plan(replace(released(500.0), num_blocks=0), start)
    assert plan.solves == 1
    assert plan.solution.violation <= 1e-10
    np.testing.assert_allclose(plan.policy[LAYERS.mask].sum(axis=-1), 1.0)


def test_unsolved_steps_keep_the_policy_and_are_counted(monkeypatch):
    agent = RegularisedLeader(ConfidenceBoxes(LAYERS, K))
    losses = 500 * (1.0 - MDP.rewards)
    plan = agent.plan(released(800.0, losses=losses), oreps.first_plan(LAYERS))
    monkeypatch.setattr(measures, "NEWTON_STEPS", 0)
    monkeypatch.setattr(measures, "FALLBACK_SWEEPS", 1)
    stuck = agent.plan(released(900.0, losses=3 * losses, counted=200), plan)
    assert (stuck.solves, stuck.unsolved) == (2, 1)
    np.testing.assert_array_equal(stuck.policy, plan.policy)
    monkeypatch.undo()
    freed = agent.plan(released(900.0, losses=3 * losses, counted=300), stuck)
    assert (freed.solves, freed.unsolved) == (3, 1)
    assert not np.array_equal(freed.policy, plan.policy)
