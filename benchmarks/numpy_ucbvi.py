"""UCBVI with a Bernstein bonus as one writes it in vectorised numpy: the baseline of the loop benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet.bonuses import Azar
from discreet.mdp import FiniteMDP


def run(
    mdp: FiniteMDP,
    num_episodes: int,
    agent: Azar,
    seed: int = 0,
    counts: tuple[Any, Any, Any] | None = None,
    incremental: bool = False,
) -> int:
    """Play episodes with a plan for each; staged counts, from `counts` if given.

    `incremental` updates only the rows of P̂ that an episode visited.

    Returns the number of episodes in which the last state was reached, so that no work can be left out.
    """
    rng = np.random.default_rng(seed)
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    true = np.cumsum(np.broadcast_to(mdp.transitions, (H, S, A, S)), axis=-1)
    means = np.broadcast_to(mdp.rewards, (H, S, A))
    root, inverse, per_std = agent.coefficients((H, S, A))
    visits = np.zeros((H, S, A))
    transitions = np.zeros((H, S, A, S))
    rewards = np.zeros((H, S, A))
    if counts is not None:
        visits, transitions, rewards = (np.array(table, dtype=np.float64) for table in counts)
    n = np.maximum(visits, 1.0)
    P = np.where(visits[..., None] > 0, transitions / n[..., None], 1.0 / S)
    r = rewards / n
    steps = np.arange(H)
    states, actions = np.zeros(H + 1, dtype=np.int64), np.zeros(H, dtype=np.int64)
    policy = np.zeros((H, S), dtype=np.int64)
    reached = 0
    for _ in range(num_episodes):
        if not incremental:
            n = np.maximum(visits, 1.0)
            P = np.where(visits[..., None] > 0, transitions / n[..., None], 1.0 / S)
            r = rewards / n
        with np.errstate(divide="ignore", invalid="ignore"):
            width = 1.0 / np.sqrt(visits)
            fixed = np.where(visits > 0, root * width + inverse * width**2, np.inf)
            spread = np.where(visits > 0, per_std * width, 0.0)
        V = np.zeros(S)
        for h in range(H - 1, -1, -1):
            mean = P[h] @ V
            variance = np.maximum(P[h] @ (V * V) - mean * mean, 0.0)
            Q = np.minimum(r[h] + mean + fixed[h] + spread[h] * np.sqrt(variance), H - h)
            policy[h] = Q.argmax(axis=1)
            V = Q.max(axis=1)
        start, moves, coins = rng.random(), rng.random(H), rng.random(H)
        states[0] = np.searchsorted(np.cumsum(mdp.initial), start, side="right")
        for h in range(H):
            s = states[h]
            a = actions[h] = policy[h, s]
            states[h + 1] = min(np.searchsorted(true[h, s, a], moves[h], side="right"), S - 1)
        earned = coins < means[steps, states[:-1], actions]
        visits[steps, states[:-1], actions] += 1
        transitions[steps, states[:-1], actions, states[1:]] += 1
        rewards[steps, states[:-1], actions] += earned
        if incremental:
            cells = (steps, states[:-1], actions)
            P[cells] = transitions[cells] / visits[cells][:, None]
            r[cells] = rewards[cells] / visits[cells]
        reached += int(states[-1] == S - 1)
    return reached
