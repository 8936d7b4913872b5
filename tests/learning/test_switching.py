"""Two plans, before and after the report: simulated, evaluated exactly, and private for every pair of users."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_spotlight as oracle
from discreet.envs.gym import FiniteMDPEnv, GymnasiumUsers
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import changeswim, riverswim
from discreet.mdp import FiniteMDP
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.planning import Plan, policy_value, uniform_policy
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.reports import Reports
from discreet.problem import PublicStructure
from discreet.releases.items import Items
from discreet.releases.reports import Targets
from discreet.runs.experiment import Experiment, run
from discreet.runs.learning import learn
from discreet.runs.regret import RegretCurve
from discreet.session import Epoch


def random_policy(rng, shape, deterministic=False):
    if deterministic:
        return np.eye(shape[2])[rng.integers(shape[2], size=shape[:2])]
    return rng.dirichlet(np.full(shape[2], 0.7), size=shape[:2])


def random_problem(seed, staged, cells_staged, has_start, reports):
    rng = np.random.default_rng(seed)
    H, S, A = 3, 2, 2
    G = H if staged else 1
    mdp = FiniteMDP(rng.dirichlet(np.ones(S), size=(G, S, A)), rng.random((G, S, A)), rng.dirichlet(np.ones(S)), H)
    stages = H if cells_staged else 1
    cells = rng.random(stages * S * A + has_start) < 0.5
    before, after = (random_policy(rng, (H, S, A)) for _ in range(2))
    return mdp, before, Targets(cells, after, reports, stages)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 3))
def test_values_of_switching_users_equal_a_walk_over_all_paths(seed, staged, cells_staged, has_start, reports):
    mdp, before, targets = random_problem(seed, staged, cells_staged, has_start, reports)
    assert policy_value(mdp, before, targets) == pytest.approx(oracle.switching_value(mdp, before, targets))


def test_plans_without_another_policy_are_valued_as_before():
    mdp = riverswim(3, 4)
    policy = uniform_policy((4, 3, 2))
    assert policy_value(mdp, policy, Targets(np.ones(6, dtype=bool))) == policy_value(mdp, policy)
    same = Targets(np.ones(6, dtype=bool), policy)
    assert policy_value(mdp, policy, same) == pytest.approx(policy_value(mdp, policy))


@pytest.mark.parametrize("has_start", [False, True])
@pytest.mark.parametrize("reports", [1, 2])
def test_users_switch_on_the_step_after_their_last_report(has_start, reports):
    """Both plans are deterministic and never agree, so that every action tells which one was followed."""
    rng = np.random.default_rng(1)
    mdp = riverswim(4, 9)
    before = random_policy(rng, (9, 4, 2), deterministic=True)
    cells = np.zeros(8 + has_start, dtype=bool)
    cells[[2, 5]] = True
    cells[8:] = True
    targets = Targets(cells, before[..., ::-1], reports)
    episodes = MDPSimulator(mdp, RewardLaw("bernoulli"), 3).rollout(before, 300, targets)
    switched = set()
    for states, actions in zip(episodes.states, episodes.actions, strict=True):
        left = reports - has_start
        for h in range(9):
            followed = before if left > 0 else targets.after
            assert followed[h, states[h], actions[h]] == 1.0
            left -= left > 0 and bool(cells[2 * states[h] + actions[h]])
        switched.add(left)
    assert switched & {0, 1}


def test_simulated_users_earn_what_was_computed():
    mdp, before, targets = random_problem(5, True, True, False, 1)
    episodes = MDPSimulator(mdp, RewardLaw("bernoulli"), 0).rollout(before, 40_000, targets)
    earned = episodes.rewards.sum(axis=1)
    expected = policy_value(mdp, before, targets)
    assert abs(earned.mean() - expected) < 4 * earned.std() / math.sqrt(40_000)
    assert abs(policy_value(mdp, before) - expected) > 8 * earned.std() / math.sqrt(40_000)  # switching matters here


def test_trajectories_do_not_depend_on_how_users_are_grouped():
    mdp, before, targets = random_problem(2, False, False, False, 1)
    together = MDPSimulator(mdp, RewardLaw("bernoulli"), 3).rollout(before, 50, targets)
    split = MDPSimulator(mdp, RewardLaw("bernoulli"), 3)
    parts = [split.rollout(before, n, targets) for n in (1, 30, 19)]
    assert np.array_equal(together.states, np.concatenate([p.states for p in parts]))
    assert np.array_equal(together.actions, np.concatenate([p.actions for p in parts]))


def test_users_of_a_gymnasium_environment_switch_too():
    mdp = riverswim(3, 6)
    users = GymnasiumUsers(FiniteMDPEnv(mdp), 6, 0)
    shape = (6, users.num_states, users.num_actions)
    before = np.zeros(shape)
    before[..., 0] = 1.0
    cells = np.zeros(users.num_states * 2, dtype=bool)
    cells[0] = True  # going left in the first state: everybody's first step
    episodes = users.rollout(before, 20, Targets(cells, before[..., ::-1]))
    assert (episodes.actions[:, 0] == 0).all()
    assert (episodes.actions[:, 1:] == 1).all()
    assert (users.rollout(before, 20).actions == 0).all()


def test_learning_from_watched_users_follows_both_plans():
    learned = learn(
        GymnasiumUsers(FiniteMDPEnv(riverswim(3, 6)), 6, 0), "spotlight", 400, epsilon=5.0, pooled=True, seed=1
    )
    assert learned.plan.policy.shape == (6, 4, 2)
    assert learned.guarantee.epsilon <= 5.0


def test_regret_counts_both_plans_and_tells_them_apart():
    mdp = riverswim(3, 6)
    left, right = (np.eye(2)[np.full((6, 3), a)] for a in (0, 1))
    cells = np.zeros(6, dtype=bool)
    cells[0] = True
    curve = RegretCurve(mdp, 30)
    targets = Targets(cells, right)
    for switch in ((), (targets,), (Targets(cells, left),)):
        curve.add(left, 10, *switch)
    values = [policy_value(mdp, left), policy_value(mdp, left, targets), policy_value(mdp, left)]
    assert values[1] > values[0]
    assert curve.switches == 2
    assert curve.regret[-1] == pytest.approx(sum(10 * (curve.optimal - v) for v in values))


def test_only_plans_with_another_policy_are_simulated_with_targets():
    shape = (2, 2, 2)
    policy = np.full(shape, 0.5)
    plain = Plan(policy, np.zeros((3, 2)), np.zeros(shape), announcement=Targets(np.ones(4, dtype=bool)))
    both = Plan(policy, np.zeros((3, 2)), np.zeros(shape), announcement=Targets(np.ones(4, dtype=bool), policy))
    neither = Plan(policy, np.zeros((3, 2)), np.zeros(shape))
    for plan, switch in ((plain, ()), (neither, ()), (both, (both.announcement,))):
        epoch = Epoch(plan, 0, 5)
        assert epoch.instructions == (plan.policy, *switch)
        assert epoch.played == (plan.policy, 5, *switch)


def test_the_plan_for_afterwards_is_part_of_the_version():
    cells, policy = np.ones(4, dtype=bool), np.full((2, 2, 2), 0.5)
    other = policy.copy()
    other[1, 1] = [1.0, 0.0]
    versions = {
        Targets(cells).version(policy),
        Targets(cells, policy).version(policy),
        Targets(cells, other).version(policy),
    }
    assert len(versions) == 3


@pytest.mark.parametrize("env", ["riverswim", "changeswim"])
def test_runs_have_two_plans_and_repeat(env):
    experiment = Experiment("spotlight", env=env, pooled=env == "riverswim", episodes=600, epsilon=1.0)
    first, second = run(experiment, 3), run(experiment, 3)
    assert np.array_equal(first.regret, second.regret)
    assert first.switches > 0


# Privacy ------------------------------------------------------------------------------------------------------------


def all_users(S, A, H):
    """Every deterministic response tree: the first state, and for every history of actions the successor and bit."""
    histories = [h for n in range(1, H + 1) for h in itertools.product(range(A), repeat=n)]
    for first in range(S):
        for answers in itertools.product(itertools.product(range(S), (0, 1)), repeat=len(histories)):
            yield first, dict(zip(histories, answers, strict=True))


def walked(user, before, targets, S, A):
    """Her episode: she plays `before` until her report, and what was announced for afterwards from the next step."""
    first, answers = user
    H = before.shape[0]
    wanted = targets.steps(S, A)
    states, actions, rewards, left = [first], [], [], 1
    for h in range(H):
        plan = before if left else targets.after
        a = int(plan[h, states[-1]].argmax())
        left -= left and bool(wanted[min(h, wanted.shape[0] - 1), states[-1], a])
        actions.append(a)
        successor, bit = answers[tuple(actions)]
        states.append(successor)
        rewards.append(float(bit))
    return states, actions, rewards


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("plans", range(1, 5))
def test_every_pair_of_users_under_both_plans_is_within_epsilon(pooled, plans):
    """All 8192 response trees with two states, actions and steps: each adds at most one unit vector, so that the
    exact log-ratio of any release is at most ε for all pairs, and ε is attained."""
    S, A, H = 2, 2, 2
    rng = np.random.default_rng(plans)
    spec = CountSpec(S, A, H, pooled, 1.0)
    alphabet = Items.of(S, A, H, pooled, PublicStructure(np.array([0.5, 0.5])))
    before, after = (random_policy(rng, (H, S, A), deterministic=True) for _ in range(2))
    targets = Targets(rng.random(alphabet.num_rows) < 0.6, after, 1, alphabet.stages)
    paths = sorted({tuple(map(tuple, walked(user, before, targets, S, A))) for user in all_users(S, A, H)})
    states, actions, rewards = (np.array(part) for part in zip(*paths, strict=True))
    episodes = Episodes(states, actions, rewards.astype(float))
    vectors = oracle.contributions(episodes, spec, alphabet, targets, 1, NoiseSource.seeded(0))
    assert vectors.sum(axis=1).max() == 1
    distinct = np.unique(vectors, axis=0)
    scale = Reports(Budget.pure(1.0)).entry().scale
    pairs = itertools.combinations(distinct, 2)
    worst = max((oracle.worst_ratio(scale, one, other) for one, other in pairs), default=0.0)
    assert worst <= 1.0 + 1e-12
    if len(distinct) > 2:
        assert worst == pytest.approx(1.0, abs=1e-6)


def test_reports_stay_unbiased_when_users_switch():
    """Given its cell, the reported outcome has the law of the model: it is settled before the plans change."""
    rng = np.random.default_rng(7)
    mdp = FiniteMDP(rng.dirichlet(np.ones(2), size=(1, 2, 2)), rng.random((1, 2, 2)), np.array([0.4, 0.6]), 3)
    before, after = (random_policy(rng, (3, 2, 2)) for _ in range(2))
    targets = Targets(np.array([True, False, True, True]), after)
    spec = CountSpec(2, 2, 3, True, 1.0)
    stream = Reports(Budget.pure(math.inf), structure=PublicStructure(mdp.initial)).open(
        spec, 10**6, NoiseSource.seeded(0)
    )
    stream.begin(Plan(before, np.zeros((4, 2)), np.zeros((3, 2, 2)), announcement=targets))
    n = 120_000
    stream.add(MDPSimulator(mdp, RewardLaw("bernoulli"), 1).rollout(before, n, targets))
    table = stream.release().histogram
    for place, cell in enumerate(targets.rows):
        s, a = divmod(int(cell), 2)
        total = table[place].sum()
        expected = [
            mdp.transitions[0, s, a, y] * (mdp.rewards[0, s, a] if bit else 1 - mdp.rewards[0, s, a])
            for y in range(2)
            for bit in range(2)
        ]
        assert np.abs(table[place] / total - expected).max() < 4.5 * 0.5 / math.sqrt(total)


def test_staged_problems_keep_their_steps_apart():
    mdp = changeswim()
    before = np.eye(2)[np.zeros((12, 4), dtype=int)]
    cells = np.zeros((12, 4, 2), dtype=bool)
    cells[5, 0, 0] = True
    targets = Targets(cells.reshape(-1), before[..., ::-1], 1, 12)
    actions = MDPSimulator(mdp, RewardLaw("bernoulli"), 0).rollout(before, 10, targets).actions
    assert (actions[:, :6] == 0).all()
    assert (actions[:, 6:] == 1).all()
