"""The learning loop and rollouts, against vectorised numpy.

rlberry-scool (0.7.3) is not among the baselines: it needs a Gymnasium older than the one this package speaks, so the
two cannot be measured in one environment.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from numpy.typing import NDArray

import numpy_ucbvi
from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Azar, per_count
from discreet.catalog import Triple
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import riverswim
from discreet.kernels import loop as kernel
from discreet.mdp import FiniteMDP
from discreet.people.episodes import MDPSimulator
from discreet.planning import tie_order, uniform_policy
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.exact import Exact
from discreet.problem import Problem
from discreet.runs.experiment import Experiment, run, warm_up
from discreet.runs.simulation import Clock, play, rollouts
from discreet.schedules import GeometricEpochs
from discreet.session import Session
from measuring import Row, cpu_seconds, row


def small_loop() -> Row:
    """RiverSwim S=6 A=2 H=20, a plan for every episode."""
    K, numpy_episodes = 20_000, 400
    experiment = Experiment("ucbvi-bernstein", schedule="every", episodes=K)
    warm_up(experiment)
    agent = Azar(K, "bernstein", 0.003)
    ours, theirs = [], []
    for seed in range(3):
        ours.append(run(experiment, seed).seconds / K)
        theirs.append(
            cpu_seconds(lambda s=seed: numpy_ucbvi.run(riverswim(6, 20), numpy_episodes, agent, s), 1)
            / numpy_episodes
        )
    return row(
        "UCBVI loop, RiverSwim S=6 A=2 H=20, plan every episode",
        1 / statistics.median(ours),
        1 / statistics.median(theirs),
        "vectorised numpy",
        "episodes/s",
        60.0,
    )


def dense_mdp() -> FiniteMDP:
    rng = np.random.default_rng(0)
    S, A, H = 100, 10, 20
    return FiniteMDP(rng.dirichlet(np.ones(S), size=(1, S, A)), rng.random((1, S, A)), np.eye(S)[0], H)


def prefilled(mdp: FiniteMDP) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Counts in which every cell has been visited 50 times, so that neither learner can skip unseen cells."""
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    transitions = np.random.default_rng(1).multinomial(50, np.broadcast_to(mdp.transitions, (H, S, A, S)))
    visits = transitions.sum(axis=-1)
    return visits, transitions, np.rint(visits * mdp.rewards).astype(np.int64)


def dense_loops() -> list[Row]:
    """A dense random MDP S=100 A=10 H=20, staged counts: a plan for every episode, then geometric epochs."""
    mdp, K = dense_mdp(), 60
    H, S, A = 20, 100, 10
    agent = Azar(20_000, "bernstein", 0.003)

    def every_episode(seed: int) -> float:
        visits, transitions, reward_sums = prefilled(mdp)
        simulator = MDPSimulator(mdp, RewardLaw(), seed)
        bonus = per_count(visits.astype(np.float64), agent.coefficients((H, S, A)))
        arrays = (
            visits,
            transitions,
            reward_sums,
            transitions / visits[..., None],
            reward_sums / visits,
            bonus.fixed,
            bonus.per_std,
            np.full((H, S, A), np.inf),
            np.empty((H, S, A)),
            np.empty((H + 1, S)),
            np.full((H, S), -1),
            np.empty((K, H, S), dtype=np.int64),
            np.zeros(K, dtype=np.int64),
        )
        before = time.process_time()
        kernel.ucbvi(
            simulator.cumulative,
            mdp.rewards,
            simulator.cumulative_initial,
            simulator.uniforms(K),
            simulator.reward_noise.random((K, H)),
            1.0,
            agent.coefficients((H, S, A)),
            False,
            tie_order((H, S, A), 0),
            *arrays,
        )
        return (time.process_time() - before) / K

    def epochs(num_episodes: int) -> float:
        clock = Clock()
        triple = Triple(UCBVI(Azar(num_episodes, "bernstein", 0.003)), Exact(), GeometricEpochs())
        simulator = MDPSimulator(mdp, RewardLaw(), 0)
        session = Session.open(triple, Problem(S, A, H, num_episodes), NoiseSource.seeded(0))
        assert sum(epoch.users for epoch in play(session, rollouts(simulator), clock)) == num_episodes
        return clock.seconds / num_episodes

    every_episode(0)
    fast, theirs = [], []
    for seed in range(3):
        fast.append(every_episode(seed))
        counts = prefilled(mdp)
        theirs.append(cpu_seconds(lambda s=seed, c=counts: numpy_ucbvi.run(mdp, K, agent, s, c, True), 1) / K)
    baseline = 1 / statistics.median(theirs)
    name = "vectorised numpy, incremental"
    dense = "UCBVI loop, dense random S=100 A=10 H=20"
    epochs(200)
    return [
        row(f"{dense}, plan every episode", 1 / statistics.median(fast), baseline, name, "episodes/s", 1.5),
        row(f"{dense}, geometric epochs", 1 / epochs(20_000), baseline, f"{name}, every episode", "episodes/s", 50.0),
    ]


def rollout_speed() -> Row:
    simulator = MDPSimulator(riverswim(6, 20), RewardLaw(), 0)
    policy = uniform_policy((20, 6, 2))
    simulator.rollout(policy, 10)
    seconds = cpu_seconds(lambda: simulator.rollout(policy, 50_000), 5)
    return row("rollouts, RiverSwim H=20", 50_000 / seconds, 500_000.0, "fixed", "episodes/s", 1.0)


def rows() -> list[Row]:
    return [small_loop(), *dense_loops(), rollout_speed()]


if __name__ == "__main__":
    for line in rows():
        print(line)
