"""Spotlight's parts against plain versions, its purity, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles_spotlight as oracle
from discreet import catalog
from discreet.agents import spotlight as agent_module
from discreet.agents.spotlight import (
    AT_HOME,
    CURATOR,
    DOUBT,
    Focus,
    Knowledge,
    Spotlight,
    SpotlightPlan,
    epoch_length,
    estimated,
    learned,
    least_known,
    shared_support,
)
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import changeswim, riverswim
from discreet.kernels import spotlight as kernel
from discreet.mdp import FiniteMDP
from discreet.people.counts import CountSpec
from discreet.people.episodes import MDPSimulator
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.reports import Reports
from discreet.problem import PublicStructure
from discreet.releases.reports import Alphabet, ConstantNoise, PrivateReports, Targets, UserNoise
from discreet.runs.experiment import Experiment, run

START = PublicStructure(initial=np.array([1.0, 0.0]))
PAIR = Alphabet.of(2, 2, 3, True, START)


def random_model(rng, S=3, A=2, G=1, unknown=0.2):
    C = G * S * A
    rows = rng.dirichlet(np.full(S, 0.5), size=C)
    known = rng.random(C) > unknown
    return rows, rng.random(C), rng.integers(5, 60, size=C).astype(float), known


# Kernels ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from([1, 4]), st.booleans())
def test_values_equal_a_plain_loop(seed, stages, restricted):
    rng = np.random.default_rng(seed)
    H, S, A = 4, 3, 2
    rows, means, counts, known = random_model(rng, S, A, stages)
    hidden = rng.random(rows.shape[0]) * 0.3
    possible = np.empty((0, 0), dtype=bool)
    if restricted:
        possible = (rng.random(rows.shape) < 0.6) | (rows > 0.2)
    order = np.broadcast_to(np.arange(A), (H, S, A)).copy()
    Q, V, pi = np.empty((H, S, A)), np.empty((H + 1, S)), np.empty((H, S), dtype=np.int64)
    kernel.optimistic_values(rows, means, counts, known, hidden, possible, 0.3, 5.0, order, Q, V, pi)
    allowed = possible if restricted else None
    expected_q, expected_v = oracle.optimistic_values(rows, means, counts, known, hidden, allowed, 0.3, 5.0, H, A)
    assert pytest.approx(expected_q, abs=1e-12) == Q
    assert pytest.approx(expected_v, abs=1e-12) == V
    assert np.take_along_axis(Q, pi[..., None], axis=2)[..., 0] == pytest.approx(V[:H])
    assert (Q >= 0).all()
    assert (V[:H] <= (H - np.arange(H))[:, None]).all()


def test_ties_go_to_the_first_action_of_the_order():
    order = np.array([[[1, 0], [0, 1]]] * 3)
    nothing = np.zeros((4, 2)), np.zeros(4), np.zeros(4), np.zeros(4, dtype=bool), np.zeros(4)
    Q, V, pi = np.empty((3, 2, 2)), np.empty((4, 2)), np.empty((3, 2), dtype=np.int64)
    kernel.optimistic_values(*nothing, np.empty((0, 0), dtype=bool), 0.1, 5.0, order, Q, V, pi)
    assert pi.tolist() == [[1, 0]] * 3
    assert V[:, 0].tolist() == [3.0, 2.0, 1.0, 0.0]


@given(st.integers(0, 10**6), st.sampled_from([1, 4]), st.integers(0, 3))
def test_predicted_reports_equal_a_walk_over_all_paths(seed, stages, reports):
    rng = np.random.default_rng(seed)
    H, S, A = 4, 3, 2
    rows, _, _, known = random_model(rng, S, A, stages)
    actions = rng.integers(A, size=(H, S))
    initial = rng.dirichlet(np.ones(S))
    wanted = rng.random(rows.shape[0]) < 0.5
    rates = np.empty(rows.shape[0])
    kernel.predicted_reports(rows, known, actions, A, initial, wanted, reports, rates)
    assert rates == pytest.approx(oracle.expected_reports(rows, known, actions, A, initial, wanted, reports))
    if reports:
        assert rates.sum() <= reports + 1e-9
        assert not rates[~wanted].any()


def test_estimation_by_hand():
    """sd = 2, four sub-cells: a sub-cell counts above ln(4/.1)·2/√2 = 5.22; known from 5.52·√(survivors+1) on."""
    sums = np.array([[30.0, 5.2, 10.0, -4.0], [5.0, 5.0, 5.0, 5.0], [5.3, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    variances = np.array([4.0, 4.0, 4.0, np.inf])
    found = estimated(Knowledge(sums, variances, np.ones(4)), PAIR, 0, 4)
    assert found.known.tolist() == [True, False, False, False]
    assert found.rows[0].tolist() == [0.75, 0.25]
    assert found.means[0] == 0.0
    assert found.counts.tolist() == [40.0, 0.0, 5.3, 0.0]
    limit = (math.log(4 / DOUBT) / math.sqrt(2) + agent_module.SURPLUS) * 2 * math.sqrt(2)
    for total, known in ((limit - 0.01, False), (limit + 0.01, True)):
        one = np.zeros((4, 4))
        one[0, 3] = total
        found = estimated(Knowledge(one, variances, np.ones(4)), PAIR, 0, 4)
        assert found.known[0] == known
        if known:
            assert found.means[0] == 1.0
            assert found.rows[0].tolist() == [0.0, 1.0]


def test_what_does_not_exist_is_not_estimated():
    successors = np.ones((1, 2, 2, 2), dtype=bool)
    successors[0, 0, 0, 1] = False
    alphabet = Alphabet.of(2, 2, 3, True, PublicStructure(START.initial, successors))
    sums = np.full((4, 4), 50.0)
    found = estimated(Knowledge(sums, np.full(4, 1.0), np.ones(4)), alphabet, 0, 4)
    assert found.rows[0].tolist() == [1.0, 0.0]
    assert found.counts[0] == 100.0


def test_steps_share_which_outcomes_occur_but_no_counts():
    """Four steps, one action: what two other steps show clearly needs one standard deviation at the third."""
    alphabet = Alphabet.of(2, 1, 4, False, START)
    sums = np.zeros((8, 4))
    sums[[0, 2], 0], sums[[0, 2], 2] = 30.0, 20.0  # steps 0 and 1 of state 0: both successors, no reward
    sums[4] = [25.0, 2.5, 3.0, 1.5]  # step 2: the second successor alone would not count (5.22 is needed)
    knowledge = Knowledge(sums, np.array([4.0, np.inf] * 3 + [np.inf, np.inf]), np.ones(8))
    supported = shared_support(knowledge, alphabet)
    assert supported[4].tolist() == [True, False, True, False]
    assert supported[0].tolist() == [True, False, True, False]
    assert not supported[[1, 3, 5, 6, 7]].any()
    found = estimated(knowledge, alphabet, 0, 8)
    assert found.known.tolist() == [True, False, True, False, True, False, False, False]
    assert found.rows[4] == pytest.approx([25 / 28, 3 / 28])
    alone = Knowledge(np.where(np.arange(8)[:, None] == 4, sums, 0.0), knowledge.variances, np.ones(8))
    assert not shared_support(alone, alphabet)[4].any()  # its own reports do not count as elsewhere
    assert estimated(alone, alphabet, 0, 8).rows[4].tolist() == [1.0, 0.0]
    assert not shared_support(Knowledge(np.full((4, 4), 50.0), np.full(4, 1.0), np.ones(4)), PAIR).any()


# Learning from a release --------------------------------------------------------------------------------------------


def released(histogram, cells, users=100, variance=9.0, alphabet=PAIR, noise=None, reports=1):
    wanted = np.zeros(alphabet.num_rows, dtype=bool)
    wanted[list(cells)] = True
    law = noise or ConstantNoise(variance)
    return PrivateReports(alphabet, histogram, Targets(wanted), users, users, variance, law, reports)


def planned(knowledge, rates, known, exploring=False):
    shape = (3, 2, 2)
    focus = Focus(np.asarray(rates) > 0, np.asarray(rates, dtype=float), 100, exploring)
    return SpotlightPlan(
        np.full(shape, 0.5),
        np.zeros((4, 2)),
        np.zeros(shape),
        knowledge=knowledge,
        focus=focus,
        known=np.asarray(known),
    )


def test_epochs_are_added_with_weights_that_are_public():
    """n = 36 predicted reports against variance 9: weight 36/45 = .8; the first epoch of a cell has weight 1."""
    sums = np.zeros((4, 4))
    sums[0] = [40.0, 0.0, 10.0, 0.0]
    old = Knowledge(sums, np.array([9.0, np.inf, np.inf, np.inf]), np.ones(4))
    table = np.array([[20.0, 0.0, 10.0, 5.0], [7.0, 0.0, 0.0, 0.0]])
    new = learned(released(table, (0, 1)), planned(old, [0.36, 0.1, 0, 0], [True, False, False, False]))
    assert new.sums[0].tolist() == [56.0, 0.0, 18.0, 4.0]
    assert new.variances[0] == pytest.approx(9.0 + 0.64 * 9.0)
    assert new.sums[1].tolist() == [7.0, 0.0, 0.0, 0.0]
    assert new.variances[1] == 9.0
    assert np.isinf(new.variances[2:]).all()
    assert old.sums[0].tolist() == [40.0, 0.0, 10.0, 0.0]  # nothing is changed in place


def test_a_cell_starts_again_at_an_epoch_that_alone_is_much_clearer():
    sums = np.zeros((4, 4))
    sums[0, 0] = 2.0
    old = Knowledge(sums, np.array([400.0, np.inf, np.inf, np.inf]), np.ones(4))
    table = np.array([[80.0, 0.0, 0.0, 0.0]])
    new = learned(released(table, (0,)), planned(old, [0.91, 0, 0, 0], [True, False, False, False]))
    weight = 91 / 100
    assert new.sums[0].tolist() == [weight * 80.0, 0.0, 0.0, 0.0]
    assert new.variances[0] == pytest.approx(weight**2 * 9.0)


def test_short_epochs_cost_trust_and_empty_exploration_turns_to_the_path():
    old = Knowledge(np.zeros((4, 4)), np.full(4, np.inf), np.array([1.0, 1.0, 0.5, 1.0]))
    table = np.array([[2.0, 0.0, 0.0, 0.0], [60.0, 0.0, 0.0, 0.0]])
    previous = planned(old, [0.6, 0.6, 0, 0], [False, True, True, True], exploring=True)
    new = learned(released(table, (0, 1)), previous)
    assert new.trust.tolist() == [0.4, 1.0, pytest.approx(0.575), 1.0]
    assert new.refine  # of 60 reports predicted on the unknown cell 0 only 2 came
    kept = learned(released(table, (0, 1)), replace(previous, focus=previous.focus._replace(exploring=False)))
    assert not kept.refine
    full = learned(released(table[::-1], (0, 1)), previous)
    assert not full.refine
    assert full.trust[:2].tolist() == [1.0, 0.4]


def test_least_known_cells_are_refined_first_until_everybody_meets_one():
    counts = np.array([10.0, 200.0, 30.0, 400.0])
    knowledge = Knowledge(np.zeros((4, 4)), np.full(4, 9.0), np.ones(4))
    cells = agent_module.Estimate(np.zeros((4, 2)), np.zeros(4), counts, np.ones(4, dtype=bool))
    candidates = np.array([True, True, True, False])
    assert least_known(knowledge, cells, np.full(4, 1.0), candidates).tolist() == [True, False, False, False]
    assert least_known(knowledge, cells, np.full(4, 0.5), candidates).tolist() == [True, False, True, False]
    assert least_known(knowledge, cells, np.full(4, 0.1), candidates).tolist() == [True, True, True, False]


def test_epochs_are_as_long_as_the_noise_demands():
    release = released(np.zeros((0, 4)), (), users=0)
    assert epoch_length(release, 0.5, 8, 16.0, CURATOR) == math.ceil(16 * 3 / 0.5)
    assert epoch_length(release, 0.01, 8, 16.0, CURATOR) == CURATOR.first  # capped
    late = replace(release, num_episodes=100_000)
    assert epoch_length(late, 1.0, 8, 16.0, CURATOR) == 2000  # at least 2 % of all so far
    home = replace(release, noise=UserNoise(1.0))
    nu = UserNoise(1.0).per_user(50)
    assert epoch_length(home, 1.0, 50, 8.0, AT_HOME) == pytest.approx(64 * nu, abs=2)  # n = signal²·ν/rate²
    exact = replace(release, noise=ConstantNoise(0.0))
    assert epoch_length(exact, 0.5, 8, 16.0, CURATOR) == math.ceil(CURATOR.fewest / 0.5)


# Plans --------------------------------------------------------------------------------------------------------------


def test_at_first_everything_is_possible_and_the_first_cell_is_asked_for():
    stream = Reports(Budget.pure(1.0), structure=START).open(CountSpec(2, 2, 3, True), 100, NoiseSource.seeded(0))
    plan = Spotlight(100, START.initial).plan(stream.release(), None)
    assert plan.value[:, 0].tolist() == [3.0, 2.0, 1.0, 0.0]
    action = int(plan.actions[0, 0])
    assert plan.announcement.rows.tolist() == [action]
    assert plan.focus.rates[action] == 1.0
    assert (plan.policy.sum(axis=2) == 1.0).all()
    assert (plan.actions == plan.actions[0]).all()  # one order of actions per state at all steps


def test_rewards_that_hide_below_the_noise_leave_no_dead_end():
    """Everything known, nothing pays: the least known cell still has the largest value."""
    sums = np.zeros((4, 4))
    sums[:, 0] = [500.0, 500.0, 500.0, 60.0]
    sums[1, 0], sums[1, 2] = 0.0, 500.0  # action 1 moves from state 0 to state 1
    knowledge = Knowledge(sums, np.full(4, 9.0), np.ones(4))
    plan = Spotlight(1000, START.initial).plan(
        released(np.zeros((0, 4)), ()), planned(knowledge, np.zeros(4), np.ones(4, dtype=bool))
    )
    assert plan.known.all()
    assert 0.0 < plan.value[0].max() < 0.5
    assert plan.actions[:2, 1].tolist() == [1, 1]
    assert plan.actions[0, 0] == 1  # on its way there


def transcript(mdp, agent, privatizer, epochs, seed=0):
    """Releases and plans of a run, cut after some epochs."""
    spec = CountSpec(mdp.num_states, mdp.num_actions, mdp.horizon, mdp.stationary)
    stream = privatizer.open(spec, 10**6, NoiseSource.seeded(seed))
    simulator = MDPSimulator(mdp, RewardLaw("bernoulli"), seed)
    releases, plans, plan = [], [], None
    for _ in range(epochs):
        releases.append(stream.release())
        plan = agent.plan(releases[-1], plan)
        plans.append(plan)
        stream.begin(plan)
        stream.add(simulator.rollout(plan.policy, plan.users))
    return releases, plans


def same_plans(one, other):
    return all(
        np.array_equal(a.policy, b.policy)
        and np.array_equal(a.value, b.value)
        and a.users == b.users
        and np.array_equal(a.announcement.cells, b.announcement.cells)
        for a, b in zip(one, other, strict=True)
    )


def built(mdp, **more):
    problem = catalog.Problem(
        mdp.num_states,
        mdp.num_actions,
        mdp.horizon,
        1000,
        mdp.stationary,
        epsilon=1.0,
        structure=PublicStructure.declared(mdp, mdp.stationary, initial=True),
        **more,
    )
    return catalog.algorithm("spotlight").build(problem)


@pytest.mark.parametrize("mdp", [riverswim(4, 6), changeswim()], ids=["pooled", "staged"])
def test_plans_depend_on_the_hidden_model_through_releases_only(mdp):
    rng = np.random.default_rng(3)
    hidden = FiniteMDP(
        rng.dirichlet(np.ones(mdp.num_states), size=mdp.transitions.shape[:3]),
        rng.random(mdp.rewards.shape),
        mdp.initial,
        mdp.horizon,
    )
    ours, other = built(mdp), built(hidden)
    releases, plans = transcript(mdp, ours.agent, ours.privatizer, 12)
    replayed, plan = [], None
    for release in releases:
        plan = other.agent.plan(release, plan)
        replayed.append(plan)
    assert same_plans(plans, replayed)
    elsewhere = transcript(hidden, other.agent, other.privatizer, 12)[1]
    assert not same_plans(plans, elsewhere)  # the model matters where people act in it


def test_planning_is_pure():
    mdp = riverswim(3, 6)
    triple = built(mdp)
    releases, plans = transcript(mdp, triple.agent, triple.privatizer, 8)
    again = triple.agent.plan(releases[-1], plans[-2])
    assert same_plans([again], [plans[-1]])
    with pytest.raises(ValueError, match="no knowledge"):
        triple.agent.plan(releases[-1], replace(plans[-2], knowledge=None))


def test_an_unknown_start_is_asked_for_first_and_learned():
    mdp = riverswim(3, 6)
    start = FiniteMDP(mdp.transitions, mdp.rewards, np.array([0.25, 0.0, 0.75]), 6)
    privatizer = Reports(Budget.pure(2.0))
    releases, plans = transcript(start, Spotlight(1000), privatizer, 3)
    assert plans[0].announcement.rows.tolist() == [6]
    known = estimated(plans[1].knowledge, releases[1].alphabet, 6, 7)
    assert known.rows[0] == pytest.approx([0.25, 0.0, 0.75], abs=0.12)
    assert not plans[1].announcement.cells[6]
    assert plans[1].announcement.rows.size


# Runs ---------------------------------------------------------------------------------------------------------------


def ratios(seeds=3, **more):
    experiment = Experiment("spotlight", **{"states": 3, "horizon": 6, "episodes": 8000, "epsilon": 1.0, **more})
    return [run(experiment, seed).regret_ratio for seed in range(seeds)]


@pytest.mark.parametrize(
    ("more", "bound"),
    [
        ({"pooled": True}, 0.08),
        ({}, 0.22),
        ({"pooled": True, "neighbours": "zero-out"}, 0.05),
        ({"pooled": True, "epsilon": 20.0}, 0.02),
        ({"pooled": True, "known_successors": True, "known_zero_rewards": True}, 0.06),
        ({"pooled": True, "public_initial": False}, 0.15),
        ({"env": "swapswim", "states": None, "horizon": None, "episodes": 20_000}, 0.3),
    ],
)
def test_it_learns(more, bound):
    """Bounds are about twice what was measured; the papers' learners have ratios near 1 at these lengths."""
    assert max(ratios(**more)) < bound


def test_several_reports_per_user_follow_the_same_loop():
    mdp = riverswim(3, 6)
    privatizer = Reports(Budget.pure(8.0), reports=2, structure=PublicStructure(mdp.initial))
    releases, plans = transcript(mdp, Spotlight(4000, mdp.initial), privatizer, 40)
    assert any(plan.focus.rates.sum() > 1.0 for plan in plans)
    assert all(plan.focus.rates.sum() <= 2.0 + 1e-9 for plan in plans)
    assert releases[-1].reports == 2
    assert plans[-1].actions[0].tolist() == [1, 1, 1]


def test_runs_state_their_guarantee_and_repeat():
    experiment = Experiment("spotlight", pooled=True, episodes=500, epsilon=0.5, neighbours="zero-out")
    first, second = run(experiment, 4), run(experiment, 4)
    assert np.array_equal(first.regret, second.regret)
    assert first.guarantee.sentence() == "joint DP, ε = 0.5 per user, zero-out-one"
    (entry,) = first.guarantee.entries
    assert (entry.statistic, entry.sensitivity) == ("reports", 1.0)
    assert entry.scale == pytest.approx(2.0, rel=1e-9)
