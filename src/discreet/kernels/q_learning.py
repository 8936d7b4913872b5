"""Optimistic Q-learning, compiled: every step of every episode updates one entry of Q."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.kernels.rollout import draw
from discreet.mdp import Floats, Ints


@compiled
def optimistic_q(
    cumulative: Floats,  # (G, S, A, S) the simulator's model
    mean_rewards: Floats,  # (G, S, A)
    cumulative_initial: Floats,  # (S,)
    uniforms: Floats,  # (n, 1 + 2H)
    coins: Floats,  # (n, H) for Bernoulli rewards, (0, 0) for deterministic ones
    bonus: float,  # b_t = bonus/√t
    order: Ints,  # (H, S, A) who wins ties
    visits: Ints,  # (H, S, A) in and out
    quality: Floats,  # (H, S, A) in and out
    values: Floats,  # (H+1, S) in and out
    earned: Floats,  # (n,) out: mean rewards along each episode
) -> None:
    """Q ← (1−α)Q + α(r + V(s') + b_t), α = (H+1)/(H+t), V = min(H−h, max Q). Source: [JAZBJ18] Alg. 1."""
    n = uniforms.shape[0]
    H, _, A = quality.shape
    G = mean_rewards.shape[0]
    for k in range(n):
        s = draw(cumulative_initial, uniforms[k, 0])
        for h in range(H):
            g = min(h, G - 1)
            a = order[h, s, 0]
            for j in range(1, A):
                if quality[h, s, order[h, s, j]] > quality[h, s, a]:
                    a = order[h, s, j]
            reward = mean_rewards[g, s, a]
            earned[k] += reward
            if coins.size:
                reward = 1.0 if coins[k, h] < reward else 0.0
            following = draw(cumulative[g, s, a], uniforms[k, 2 + 2 * h])
            visits[h, s, a] += 1
            t = visits[h, s, a]
            rate = (H + 1.0) / (H + t)
            quality[h, s, a] += rate * (reward + values[h + 1, following] + bonus / np.sqrt(t) - quality[h, s, a])
            best = quality[h, s, 0]
            for b in range(1, A):
                best = max(best, quality[h, s, b])
            values[h, s] = min(float(H - h), best)
            s = following
