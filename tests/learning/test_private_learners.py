"""The private learners through the shipped runner: no peeking, twins, both modes, and an end-to-end audit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from discreet import catalog
from discreet.catalog import ALGORITHMS, Triple
from discreet.envs import registry
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget
from discreet.privacy.audit.games import epsilon_bound
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalLaplace, LocalSampled
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedLocal, TruncatedTree
from discreet.problem import Moments, Problem
from discreet.runs import experiment as runner
from discreet.runs.experiment import Experiment, Setting, built, run
from discreet.runs.simulation import Clock, play, rollouts
from discreet.schedules import EveryEpisode, GeometricEpochs
from discreet.session import Session

COUNT_BASED = ["dp-ucbvi", "private-ucb-vi", "private-ucb-po", "pucb", "private-heavy-ucbvi", "private-heavy-ucbpo"]


def triples(name):
    """Every (model, mode, schedule) of a learner that can be built."""
    for model in ALGORITHMS[name].models:
        for mode in catalog.MODES:
            yield model, mode


@pytest.mark.parametrize("name", COUNT_BASED)
def test_every_triple_runs_and_states_its_guarantee(name):
    for model, mode in triples(name):
        experiment = Experiment(
            name, states=3, horizon=4, episodes=60, epsilon=1.5, model=model, mode=mode, reward_law="bernoulli"
        )
        result = run(experiment, 3)
        assert result.guarantee.model == model
        assert result.guarantee.epsilon == 1.5
        assert sum(entry.cost for entry in result.guarantee.entries) == pytest.approx(1.5, rel=1e-8)
        assert 0 < result.regret[-1] <= 1.3 * result.random_regret
        assert "the initial distribution is public" not in result.guarantee.assumptions  # counts need no start
        heavy = ALGORITHMS[name].heavy
        assert any("public: rewards lie in [0, 1]" in line for line in result.guarantee.assumptions) != heavy


def test_models_and_modes_choose_their_privatizers():
    problem = Problem(3, 2, 4, 100, epsilon=1.0)
    expected = {
        ("dp-ucbvi", "joint", "practical"): Epochs,
        ("dp-ucbvi", "joint", "paper"): Tree,
        ("dp-ucbvi", "local", "practical"): LocalSampled,
        ("dp-ucbvi", "local", "paper"): LocalLaplace,
        ("private-heavy-ucbvi", "joint", "practical"): TruncatedEpochs,
        ("private-heavy-ucbpo", "joint", "paper"): TruncatedTree,
        ("private-heavy-ucbvi", "local", "practical"): TruncatedLocal,
    }
    for (name, model, mode), kind in expected.items():
        triple = catalog.algorithm(name).build(replace(problem, trust=model, mode=mode))
        assert type(triple.privatizer) is kind
        assert isinstance(triple.schedule, EveryEpisode) == (mode == "paper")


def test_a_delta_asks_for_gaussian_noise():
    result = run(Experiment("dp-ucbvi", states=3, horizon=4, episodes=300, epsilon=1.0, delta=1e-6), 0)
    assert {entry.mechanism for entry in result.guarantee.entries} == {"discrete-gaussian"}
    assert (result.guarantee.epsilon, result.guarantee.delta) == (1.0, 1e-6)
    with pytest.raises(ValueError, match="pure epsilon"):
        run(Experiment("private-heavy-ucbvi", states=3, horizon=4, episodes=30, epsilon=1.0, delta=1e-6), 0)


@pytest.mark.parametrize("name", COUNT_BASED)
def test_plans_depend_on_releases_only(name):
    """Two different hidden MDPs of one size, the same releases: the same plans."""
    one, two = (Setting.of(Experiment(name, env="dirichlet", instance=i, epsilon=1.0, episodes=500)) for i in (0, 1))
    assert (one.mdp.transitions != two.mdp.transitions).any()
    setups = [built(setting.entry, replace(setting.problem, moments=Moments(), tie_seed=4)) for setting in (one, two)]
    rng = np.random.default_rng(0)
    stream = Epochs(Budget.pure(1.0)).open(CountSpec(5, 3, 10, False), 50, NoiseSource.seeded(0))
    previous = [None, None]
    for n in (20, 30):
        stream.add(Episodes(rng.integers(0, 5, (n, 11)), rng.integers(0, 3, (n, 10)), rng.random((n, 10))))
        release = stream.release()
        previous = [triple.agent.plan(release, plan) for triple, plan in zip(setups, previous, strict=True)]
        assert (previous[0].policy == previous[1].policy).all()
        assert (previous[0].quality == previous[1].quality).all()


@pytest.mark.parametrize("name", ["dp-ucbvi", "private-ucb-vi", "private-ucb-po"])
def test_without_noise_a_private_learner_is_its_non_private_twin(name):
    """An infinite budget has scale 0: the run equals the one with Exact counts, bit for bit."""
    setting = Setting.of(Experiment(name, states=4, horizon=6, epsilon=1.0, episodes=400))
    triple = setting.triple(2)
    schedule = GeometricEpochs(growth=2.5, first=10)
    curves = []
    for privatizer in (Exact(), Epochs(Budget.pure(np.inf)), Tree(Budget.pure(np.inf))):
        environment, noise = runner.generators(2)
        simulator = runner.MDPSimulator(setting.mdp, setting.law, environment)
        session = Session.open(Triple(triple.agent, privatizer, schedule), setting.problem, noise)
        epochs = play(session, rollouts(simulator), Clock())
        curves.append([(epoch.users, epoch.plan.policy.tobytes()) for epoch in epochs])
    assert curves[0] == curves[1] == curves[2]
    assert len(set(curves[0])) > 1


def test_declared_structure_is_used_and_listed():
    """Known successors put no probability where none can be; known zero rewards estimate none there."""
    mdp = registry.make("riverswim", 4, 6)
    experiment = Experiment(
        "dp-ucbvi", states=4, horizon=6, epsilon=5.0, episodes=500, known_successors=True, known_zero_rewards=True
    )
    setting = Setting.of(experiment)
    triple = setting.triple()
    stream = triple.privatizer.open(setting.spec, 500, NoiseSource.seeded(0))
    stream.add(runner.MDPSimulator(mdp, setting.law, 0).rollout(np.full((6, 4, 2), 0.5), 400))
    model, _ = triple.agent.estimate(stream.release())
    impossible = np.broadcast_to(mdp.transitions == 0, model.transitions.shape)
    assert (model.transitions[impossible] == 0).all()
    assert (model.rewards[np.broadcast_to(mdp.rewards == 0, model.rewards.shape)] == 0).all()
    np.testing.assert_allclose(model.transitions.sum(-1), 1.0, atol=1e-12)
    said = run(replace(experiment, episodes=50), 0).guarantee.assumptions
    assert "the possible successors of every state and action are public" in said
    assert "the state-action pairs that never pay are public" in said


def test_heavy_tails_state_their_moments_and_refuse_infinite_ones():
    common = {"states": 3, "horizon": 4, "episodes": 40, "epsilon": 1.0, "reward_law": "alpha-stable"}
    said = run(Experiment("private-heavy-ucbvi", alpha=2.0, **common), 0).guarantee.assumptions
    assert "public: E|reward|^2 is at most 3 and |mean reward| at most 1" in said
    with pytest.raises(ValueError, match="infinite"):
        run(Experiment("private-heavy-ucbvi", alpha=1.5, **common), 0)
    run(Experiment("private-heavy-ucbvi", alpha=1.5, moment_order=0.4, **common), 0)
    with pytest.raises(ValueError, match="contradict"):
        run(Experiment("private-heavy-ucbvi", alpha=2.0, moment_bound=0.5, mean_bound=1.0, **common), 0)


def test_rewards_outside_the_range_are_clipped_and_counted():
    common = {"states": 3, "horizon": 4, "episodes": 100, "epsilon": 1.0}
    clipped = run(Experiment("dp-ucbvi", reward_law="gaussian", **common), 0).diagnostics["clipped_rewards"]
    assert 0.4 * 400 < clipped < 400  # most of N(m, 1) with m near 0 lies outside [0, 1]
    assert run(Experiment("dp-ucbvi", **common), 0).diagnostics["clipped_rewards"] == 0


@pytest.mark.parametrize("name", ["dp-ucbvi", "private-ucb-vi", "pucb"])
def test_paper_mode_does_not_learn_at_this_size(name):
    """The bonus exceeds every value, so the policy never changes: RiverSwim, S = 6, H = 20."""
    result = run(Experiment(name, mode="paper", epsilon=1.0, episodes=1500), 0)
    assert 0.98 < result.regret_ratio < 1.02
    assert result.switches == 0


def test_practical_mode_learns_where_paper_mode_cannot():
    """M3 pooled, ε = 1, K = 20 000: the median of five seeds that were never tuned on."""
    experiment = Experiment("dp-ucbvi", states=3, horizon=6, pooled=True, epsilon=1.0)
    assert np.median([run(experiment, seed).regret_ratio for seed in range(30, 35)]) < 0.25


# The shipped runner, audited ----------------------------------------------------------------------------------------


class OneOfTwo:
    """Users in an MDP with two states and one step; user 0 lives in state `world`, all others in state 0."""

    num_states, num_actions, horizon = 2, 2, 1

    def __init__(self, world):
        self.world, self.played = world, 0

    def rollout(self, policy, num_episodes):
        first = [self.world] if self.played == 0 else [0]
        starts = np.array((first + [0] * num_episodes)[:num_episodes])
        self.played += num_episodes
        actions = np.zeros((num_episodes, 1), dtype=np.int64)
        return Episodes(np.stack([starts, starts], 1), actions, np.ones((num_episodes, 1)))


class Watched:
    """An agent whose releases are read by the adversary: more than any user ever sees."""

    def __init__(self, agent):
        self.agent, self.seen = agent, []

    def plan(self, release, previous):
        self.seen.append(release)
        return self.agent.plan(release, previous)


def audited(privatizer, schedule, trials=700, epsilon=1.0):
    """A lower bound on ε from what the first release after user 0 says about her state."""
    spec = CountSpec(2, 2, 1, False, 0.5)
    agent = catalog.algorithm("dp-ucbvi").build(Problem(2, 2, 1, 3, epsilon=epsilon)).agent
    scores = []
    for world in (0, 1):
        rows = []
        for trial in range(trials):
            watched = Watched(agent)
            noise = NoiseSource.seeded(2 * trial + world)
            session = Session(watched, privatizer.open(spec, 3, noise), schedule, 3)
            list(play(session, rollouts(OneOfTwo(world)), Clock()))
            view = watched.seen[1]
            tables = view.visits.sum(axis=2), view.transitions.sum(axis=(2, 3)), view.reward_sums.sum(axis=2)
            rows.append(np.sum([np.clip(t[0, 1] - t[0, 0], -3, 3) for t in tables]))
        scores.append(np.array(rows))
    half = trials // 2
    cuts = np.quantile(np.concatenate([s[:half] for s in scores]), [0.5, 0.7, 0.8, 0.9, 0.95])
    bounds = [epsilon_bound((scores[1][:half] > c).sum(), (scores[0][:half] > c).sum(), half, 0.999) for c in cuts]
    cut = cuts[int(np.argmax(bounds))]
    return float(epsilon_bound((scores[1][half:] > cut).sum(), (scores[0][half:] > cut).sum(), trials - half, 0.999))


@pytest.mark.parametrize("make", [Epochs, Tree, LocalLaplace, LocalSampled])
def test_the_whole_run_does_not_leak_more_than_it_claims(make):
    schedule = EveryEpisode() if make is Tree else GeometricEpochs(growth=2.0)
    assert audited(make(Budget.pure(1.0)), schedule) <= 1.0


@pytest.mark.parametrize("make", [Epochs, LocalLaplace])
def test_the_audit_of_the_run_sees_a_tenth_of_the_noise(make):
    """The same audit refutes ε = 1 for a mechanism that spends ten times as much."""
    assert audited(make(Budget.pure(10.0)), GeometricEpochs(growth=2.0)) > 1.0
