"""Policy elimination: all policies against one by one, stages to the last user, and the optimum stays."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.agents.policy_elimination import Policies, PolicyElimination, even
from discreet.catalog import algorithm
from discreet.envs.rewards import RewardLaw
from discreet.mdp import FiniteMDP
from discreet.people.counts import CountSpec
from discreet.people.episodes import MDPSimulator
from discreet.planning import policy_value
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffle import ShuffleBatches
from discreet.problem import Problem, PublicStructure
from discreet.releases.batches import Batch
from discreet.runs.experiment import Experiment, run
from oracles_shuffle import all_policy_values

PRACTICAL = {"confidence_scale": 0.1, "privacy_scale": 1e-3, "rare_scale": 1e-3, "shift": False, "exploit": True}


def random_mdp(seed: int, S: int = 2, A: int = 2, H: int = 2, start=None) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    initial = np.eye(S)[0] if start is None else np.asarray(start)
    return FiniteMDP(rng.dirichlet(np.ones(S), size=(H, S, A)), rng.random((H, S, A)), initial, H)


def policies_of(mdp: FiniteMDP, **settings) -> Policies:
    return Policies.of((mdp.horizon, mdp.num_states, mdp.num_actions), PublicStructure(mdp.initial, **settings))


# Enumeration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("S", "A", "H", "start"),
    [(2, 2, 2, None), (2, 3, 2, [0.25, 0.75]), (3, 2, 2, [0.5, 0.0, 0.5]), (1, 4, 3, [1.0]), (2, 2, 1, None)],
)
def test_every_policy_has_the_value_of_its_own_backward_pass(S, A, H, start):
    mdp = random_mdp(S + 10 * A + 100 * H, S, A, H, start)
    policies = policies_of(mdp)
    found = policies.values(mdp.transitions, mdp.rewards)
    slow = all_policy_values(mdp)
    assert policies.count == found.size == A ** (int((mdp.initial > 0).sum()) + S * (H - 1))
    for digits, value in slow.items():
        actions = np.array(digits).reshape(H, S)
        assert found[policies.number(actions)] == pytest.approx(value, abs=1e-12)
    for number in range(policies.count):
        actions = policies.actions(number)
        assert policies.number(actions) == number
        assert policy_value(mdp, actions) == pytest.approx(found[number], abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.0, 1.0))
def test_what_goes_to_nowhere_earns_nothing(seed, scale):
    """Rows shrunk by a factor c: step h counts c^h times."""
    mdp = random_mdp(seed, 2, 2, 3)
    policies = policies_of(mdp)
    whole = [
        policies.values(mdp.transitions, np.where(np.arange(3)[:, None, None] == h, mdp.rewards, 0.0))
        for h in range(3)
    ]
    shrunk = policies.values(scale * mdp.transitions, mdp.rewards)
    assert np.allclose(shrunk, whole[0] + scale * whole[1] + scale**2 * whole[2], atol=1e-12)


def test_only_decisions_that_can_be_reached_count():
    successors = np.zeros((2, 3, 2, 3), dtype=bool)
    successors[:, :, :, 1] = True  # everything leads to state 1
    mdp = FiniteMDP(successors.astype(float), np.random.default_rng(0).random((2, 3, 2)), np.eye(3)[0], 2)
    policies = policies_of(mdp, successors=successors)
    assert policies.count == 4
    assert policies_of(mdp).count == 2**4
    assert sorted(policies.values(mdp.transitions, mdp.rewards)) == pytest.approx(
        sorted({round(v, 12) for v in all_policy_values(mdp).values()})
    )


def test_too_many_policies_and_an_unknown_start_are_refused():
    start = PublicStructure(np.eye(6)[0])
    with pytest.raises(ValueError, match=r"2\^115 deterministic policies.*1,048,576"):
        Policies.of((20, 6, 2), start)
    with pytest.raises(ValueError, match="8,192 deterministic"):
        Policies.of((3, 6, 2), start, largest=4096)
    with pytest.raises(ValueError, match="declare the initial distribution public"):
        Policies.of((2, 2, 2), PublicStructure())
    with pytest.raises(ValueError, match="leave --pooled out"):
        algorithm("sdp-pe").build(Problem(2, 2, 2, 1000, pooled=True, epsilon=1.0, delta=1e-6, trust="shuffle"))


# Stages -------------------------------------------------------------------------------------------------------------


def played(mdp, agent, privatizer, K, seed):
    """All plans of a run, as the general loop would make them."""
    spec = CountSpec.for_episodes(mdp.num_states, mdp.num_actions, mdp.horizon, False, K)
    simulator = MDPSimulator(mdp, RewardLaw(), seed)
    stream = privatizer.open(spec, K, NoiseSource.seeded(seed))
    plan, plans, done = None, [], 0
    while done < K:
        plan = agent.plan(stream.release(), plan)
        assert plan.users is not None
        assert 1 <= plan.users <= K - done
        stream.begin(plan)
        stream.add(simulator.rollout(plan.policy, plan.users))
        plans.append(plan)
        done += plan.users
    return plans


@pytest.mark.parametrize(("K", "exploit"), [(64, False), (64, True), (101, False), (777, False), (5000, True)])
def test_every_user_plays_one_policy_and_batches_are_exact(K, exploit):
    mdp = random_mdp(3)
    agent = PolicyElimination(K, PublicStructure(mdp.initial), 0.1, exploit=exploit, first=8)
    plans = played(mdp, agent, ShuffleBatches(None), K, 0)
    assert sum(plan.users for plan in plans) == K
    by_batch = {}
    for plan in plans:
        assert isinstance(plan.announcement, Batch)
        by_batch.setdefault(plan.announcement, []).append(plan.users)
    assert all(sum(users) == batch.users for batch, users in by_batch.items())
    assert [batch.number for batch in by_batch] == list(range(1, len(by_batch) + 1))
    layers = [batch.layer for batch in by_batch]
    stages = [list(group) for last, group in itertools.groupby(layers, lambda layer: layer is None) if not last]
    assert all(stage == [0, 1] for stage in stages)
    sizes = [sum(b.users for b in list(by_batch)[i : i + 2]) for i in range(0, len(by_batch) - 2, 3)]
    assert sizes[:2] == [8, 16][: len(sizes)]


def test_explorers_come_to_their_cells_as_often_as_any_active_policy():
    mdp = random_mdp(11, 3, 2, 2)
    K = 4000
    agent = PolicyElimination(K, PublicStructure(mdp.initial), 0.1, first=16)
    policies = policies_of(mdp)
    plan = agent.plan(ShuffleBatches(None).open(CountSpec(3, 2, 2, False), K, NoiseSource.seeded(0)).release(), None)
    crude = replace(plan.progress, rows=np.asarray(mdp.transitions))
    for h, x, a in itertools.product(range(2), range(3), range(2)):
        if x not in policies.points[h]:
            continue
        number = agent._explorer(policies, crude, h, x, a)
        wanted = np.zeros((2, 3, 2))
        wanted[h, x, a] = 1.0
        assert policies.values(mdp.transitions, wanted)[number] == policies.values(mdp.transitions, wanted).max()


def test_thresholds_by_hand():
    """H=2, S=2, A=2: H⁵S²A = 256 and S³A²H⁵ = 1024."""
    agent = PolicyElimination(1000, PublicStructure(np.eye(2)[0]), 0.5, 0.25, 0.125, beta=0.1)
    iota = math.log(2 * 2 * 2 * 1000 / 0.1)
    assert agent.iota((2, 2, 2)) == iota
    expected = 2 * 0.5 * (math.sqrt(256 * iota / 64) + 0.25 * 1024 * 3.0 * iota / 64)
    assert agent.threshold((2, 2, 2), 64, 3.0) == pytest.approx(expected)
    assert agent.rare_below((2, 2, 2), 3.0) == pytest.approx(6 * 0.125 * 3.0 * 4 * iota)
    assert agent.rare_below((2, 2, 2), 0.0) == pytest.approx(6 * 0.125 * 4 * iota)
    assert [agent.first_stage(Policies.of(s, agent.structure)) for s in ((2, 2, 2), (1, 2, 2))] == [8, 4]
    assert even(10, 4) == [3, 3, 2, 2]


def test_r9_stages_of_apeve_are_powers_of_the_number_of_users():
    """K^{1/2}, K^{3/4}, K^{7/8}, … users per batch; its threshold has E = 1 where there is no noise."""
    K, structure = 10_000, PublicStructure(np.array([1.0, 0.0]))
    problem = Problem(2, 2, 2, K, mode="paper", structure=structure)
    agent = algorithm("apeve").build(problem).agent
    policies = Policies.of((2, 2, 2), structure)
    assert [agent.length(policies, b) for b in (1, 2, 3)] == [100, 1000, 3163]
    doubling = replace(agent, roots=False)
    assert [doubling.length(policies, b) for b in (1, 2, 3)] == [8, 16, 32]
    extra = agent.threshold((2, 2, 2), 1000, 0.0) - doubling.threshold((2, 2, 2), 1000, 0.0)
    assert extra == pytest.approx(2 * 2**3 * 2**2 * 2**5 * agent.iota((2, 2, 2)) / 1000)
    mdp = random_mdp(0)
    plans = played(mdp, agent, algorithm("apeve").build(problem).privatizer, K, 0)
    sizes = {plan.announcement.number: plan.announcement.users for plan in plans}
    assert sum(sizes.values()) == K
    assert list(sizes.values())[:6] == [50, 50, 100, 500, 500, 1000]


def test_fewer_users_than_one_stage_are_refused():
    mdp = random_mdp(0)
    agent = PolicyElimination(15, PublicStructure(mdp.initial))
    with pytest.raises(ValueError, match="15 users are fewer than one stage, which has 16"):
        played(mdp, agent, ShuffleBatches(None), 15, 0)
    with pytest.raises(ValueError, match="fewer than one stage"):
        run(Experiment("sdp-pe", states=2, horizon=2, episodes=10, epsilon=1.0, delta=1e-6, model="shuffle"))


def test_plans_are_pure():
    mdp = random_mdp(5)
    agent = PolicyElimination(200, PublicStructure(mdp.initial), **PRACTICAL)
    spec = CountSpec(2, 2, 2, False, 2.0**-8)
    stream = ShuffleBatches(None).open(spec, 200, NoiseSource.seeded(0))
    first = agent.plan(stream.release(), None)
    second, again = (agent.plan(stream.release(), first) for _ in range(2))
    assert np.array_equal(second.policy, again.policy)
    assert second.progress.queue == again.progress.queue
    assert (first.policy.sum(axis=2) == 1.0).all()


# Learning -----------------------------------------------------------------------------------------------------------


def test_without_noise_the_best_policy_is_found():
    """APEVE: an optimum is kept on every instance, and most other policies are gone."""
    K = 60_000
    for seed in range(8):
        mdp = random_mdp(900 + seed)
        agent = PolicyElimination(K, PublicStructure(mdp.initial), **PRACTICAL, first=64)
        last = played(mdp, agent, ShuffleBatches(None), K, seed)[-1]
        values = policies_of(mdp).values(mdp.transitions, mdp.rewards)
        assert last.progress.active[int(values.argmax())]
        assert last.progress.active.sum() <= 4
        assert values[last.progress.active].min() >= values.max() - 0.2


def test_sdp_pe_keeps_the_optimum_while_eliminating():
    """Six of the instances of docs/results-shuffle.md at a tenth of their users."""
    K = 10**6
    kept, left = [], []
    for seed in range(6):
        mdp = random_mdp(seed)
        triple = algorithm("sdp-pe").build(
            Problem(2, 2, 2, K, epsilon=1.0, delta=1e-6, trust="shuffle", structure=PublicStructure(mdp.initial))
        )
        last = played(mdp, triple.agent, triple.privatizer, K, seed)[-1]
        values = policies_of(mdp).values(mdp.transitions, mdp.rewards)
        kept.append(bool(last.progress.active[int(values.argmax())]))
        left.append(int(last.progress.active.sum()))
    assert all(kept)
    assert max(left) < 8
    assert np.mean(left) <= 4


def test_printed_constants_eliminate_nothing_at_this_size():
    mdp = random_mdp(1)
    structure = PublicStructure(mdp.initial)
    problem = Problem(2, 2, 2, 20_000, mode="paper", epsilon=1.0, delta=1e-6, trust="shuffle", structure=structure)
    triple = algorithm("sdp-pe").build(problem)
    assert triple.privatizer.calibration == "exact"
    last = played(mdp, triple.agent, triple.privatizer, 20_000, 0)[-1]
    assert last.progress.active.all()


def test_both_learners_run_through_the_catalog():
    settings = {"env": "riverswim", "states": 2, "horizon": 2, "episodes": 100_000}
    private = run(Experiment("sdp-pe", epsilon=1.0, delta=1e-6, **settings), 0)
    exact = run(Experiment("apeve", **settings), 0)
    assert private.guarantee.model == "shuffle"
    assert (private.guarantee.epsilon, private.guarantee.delta) == (1.0, 1e-6)
    assert exact.guarantee.sentence() == "no privacy"
    assert exact.regret_ratio < private.regret_ratio < 0.5
