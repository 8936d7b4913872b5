"""DP-UCBVI in paper mode as one writes it in vectorised numpy: tree, projection, four-term bonus, every episode."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.mdp import FiniteMDP

Floats = NDArray[np.float64]


def projected(counts: Floats, totals: Floats, slack: float) -> Floats:
    """Nearest valid counts for all rows at once, by sorting."""
    S = counts.shape[1]
    ranks = np.arange(1, S + 1)
    sums = np.cumsum(-np.sort(-counts, axis=1), axis=1)
    upper, lower = totals + slack, np.maximum(totals - slack, 0.0)
    t = np.maximum(0.0, np.maximum((-counts).max(axis=1), (lower - counts.sum(axis=1)) / S))
    t = np.maximum(t, ((sums - upper[:, None]) / ranks).max(axis=1))
    threshold = ((np.maximum(totals, 0.0)[:, None] - sums) / ranks).min(axis=1)
    rows = np.maximum(0.0, counts + np.clip(threshold, -t, t)[:, None])
    return np.where(upper[:, None] < 0, 0.0, rows)


def discrete_laplace(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Floats:
    """The same integer law as the library's noise: a difference of two geometric numbers."""
    p = -math.expm1(-1.0 / scale)
    return (rng.geometric(p, shape) - rng.geometric(p, shape)).astype(np.float64)


def run(mdp: FiniteMDP, num_episodes: int, scale: float, grid: float, width: float, seed: int = 0) -> float:
    """Play episodes with a release and a plan for each; returns a checksum of the last values."""
    rng = np.random.default_rng(seed)
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    true = np.cumsum(np.broadcast_to(mdp.transitions, (H, S, A, S)), axis=-1)
    means = np.broadcast_to(mdp.rewards, (H, S, A))
    visits, transitions, rewards = np.zeros((H, S, A)), np.zeros((H, S, A, S)), np.zeros((H, S, A))
    shapes, scales = (visits.shape, transitions.shape, rewards.shape), (scale, scale, scale / grid)
    nodes: dict[int, list[Floats]] = {}
    iota = math.log(30 * H * S * A * num_episodes * H / 0.1)
    E = 4 * width
    steps = np.arange(H)
    states, actions = np.zeros(H + 1, dtype=np.int64), np.zeros(H, dtype=np.int64)
    policy = np.zeros((H, S), dtype=np.int64)
    ceiling = np.full((H, S, A), np.inf)
    V = np.zeros(S)
    for k in range(num_episodes):
        if k:
            low = (k & -k).bit_length() - 1
            for level in range(low):
                nodes.pop(level, None)
            nodes[low] = [discrete_laplace(rng, b, shape) for b, shape in zip(scales, shapes, strict=True)]
        noisy = [
            table + sum(node[i] for node in nodes.values()) for i, table in enumerate((visits, transitions, rewards))
        ]
        noisy[2] = noisy[2] * grid
        rows = projected(noisy[1].reshape(-1, S), noisy[0].reshape(-1), width) + 2 * width / S
        n = np.maximum(rows.sum(axis=1), 1e-9)
        P = (rows / n[:, None]).reshape(H, S, A, S)
        n = n.reshape(H, S, A)
        r = np.clip(noisy[2] / n, 0.0, 1.0)
        later = np.concatenate([n.sum(axis=2)[1:], n.sum(axis=2)[-1:]])
        inner = 1e6 * H**3 * S * A * iota**2 / later
        inner = np.minimum(inner + 1e6 * H**4 * S**4 * A**2 * iota**4 * (E**2 + H**2) / later**2, H**2)
        fixed = np.sqrt(2 * iota / n) + 20 * H * S * E * iota / n
        fixed += 4 * math.sqrt(iota) * np.sqrt(np.einsum("hsay,hy->hsa", P, inner) / n)
        per_std = 2 * np.sqrt(iota / n)
        V = np.zeros(S)
        for h in range(H - 1, -1, -1):
            mean = P[h] @ V
            variance = np.maximum(P[h] @ (V * V) - mean * mean, 0.0)
            Q = np.minimum(np.minimum(r[h] + mean + fixed[h] + per_std[h] * np.sqrt(variance), H - h), ceiling[h])
            ceiling[h] = Q
            policy[h] = Q.argmax(axis=1)
            V = Q.max(axis=1)
        moves, coins = rng.random(H), rng.random(H)
        for h in range(H):
            s = states[h]
            a = actions[h] = policy[h, s]
            states[h + 1] = min(np.searchsorted(true[h, s, a], moves[h], side="right"), S - 1)
        earned = np.rint((coins < means[steps, states[:-1], actions]) / grid)
        visits[steps, states[:-1], actions] += 1
        transitions[steps, states[:-1], actions, states[1:]] += 1
        rewards[steps, states[:-1], actions] += earned
    return float(V.sum())
