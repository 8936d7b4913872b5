"""Spotlight's loop against the non-private learner with geometric epochs, on the same problems."""

from __future__ import annotations

import numpy as np

from bench_loop import dense_mdp
from discreet.agents.spotlight import Spotlight
from discreet.agents.ucbvi import UCBVI
from discreet.catalog import Triple, algorithm
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import riverswim
from discreet.mdp import FiniteMDP
from discreet.people.episodes import MDPSimulator
from discreet.privacy.noise import NoiseSource
from discreet.problem import Problem, PublicStructure
from discreet.runs.simulation import Clock, play, rollouts
from discreet.session import Session
from measuring import Row, row

EPISODES = 1_000_000


def episodes_per_second(name: str, mdp: FiniteMDP, num_episodes: int, model: str = "joint") -> float:
    """CPU rate of the general loop: plan, noise, rollout, update; pooled."""
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    private = algorithm(name).private
    problem = Problem(
        S,
        A,
        H,
        num_episodes,
        True,
        epsilon=1.0 if private else None,
        trust=model,
        structure=PublicStructure(initial=mdp.initial),
    )
    triple: Triple = algorithm(name).build(problem)
    assert isinstance(triple.agent, Spotlight if private else UCBVI)
    clock = Clock()
    simulator = MDPSimulator(mdp, RewardLaw(), 0)
    session = Session.open(triple, problem, NoiseSource.seeded(0))
    assert sum(epoch.users for epoch in play(session, rollouts(simulator), clock)) == num_episodes
    return num_episodes / clock.seconds


def compared(label: str, mdp: FiniteMDP, model: str = "joint") -> Row:
    rates = {}
    for name in ("spotlight", "ucbvi-bernstein"):
        trust = model if name == "spotlight" else "joint"
        _compiling, *samples = (episodes_per_second(name, mdp, EPISODES, trust) for _ in range(4))
        rates[name] = float(np.median(samples))
    return row(label, rates["spotlight"], rates["ucbvi-bernstein"], "non-private epochs", "episodes/s", 0.2)


def rows() -> list[Row]:
    river = riverswim(6, 20)
    return [
        compared("Spotlight joint, RiverSwim S=6 A=2 H=20 pooled, K=10⁶", river),
        compared("Spotlight local, RiverSwim S=6 A=2 H=20 pooled, K=10⁶", river, "local"),
        compared("Spotlight joint, dense random S=100 A=10 H=20 pooled, K=10⁶", dense_mdp()),
    ]


if __name__ == "__main__":
    for line in rows():
        print(line)
