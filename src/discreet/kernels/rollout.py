"""Compiled sampling of trajectories and counting of their steps."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.mdp import Floats, Ints


def cumulative_rows(rows: Floats) -> Floats:
    """Running sums of the last axis, with 1 from the last possible outcome on (rounding cannot overshoot)."""
    sums = np.cumsum(rows, axis=-1)
    size = rows.shape[-1]
    last = size - 1 - np.argmax(rows[..., ::-1] > 0, axis=-1)
    sums[np.arange(size) >= last[..., None]] = 1.0
    return np.ascontiguousarray(sums)


@compiled
def draw(cumulative: Floats, uniform: float) -> int:
    """The least index whose running sum exceeds `uniform` (binary search)."""
    low, high = 0, cumulative.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if uniform < cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def draw_action(probabilities: Floats, uniform: float) -> int:
    """An action by its probability; a row that sums to slightly less than 1 falls on its last positive entry."""
    total = 0.0
    chosen = 0
    for a in range(probabilities.shape[0]):
        if probabilities[a] > 0.0:
            chosen = a
            total += probabilities[a]
            if uniform < total:
                break
    return chosen


@compiled
def rollout(
    cumulative: Floats,  # (G, S, A, S)
    mean_rewards: Floats,  # (G, S, A)
    cumulative_initial: Floats,  # (S,)
    policy: Floats,  # (H, S, A)
    uniforms: Floats,  # (n, 1 + 2H)
    states: Ints,  # (n, H+1) out
    actions: Ints,  # (n, H) out
    means: Floats,  # (n, H) out
) -> None:
    G = cumulative.shape[0]
    n, H = actions.shape
    for i in range(n):
        s = draw(cumulative_initial, uniforms[i, 0])
        states[i, 0] = s
        for h in range(H):
            g = min(h, G - 1)
            a = draw_action(policy[h, s], uniforms[i, 1 + 2 * h])
            actions[i, h] = a
            means[i, h] = mean_rewards[g, s, a]
            s = draw(cumulative[g, s, a], uniforms[i, 2 + 2 * h])
            states[i, h + 1] = s


@compiled
def within(values: Ints, limit: int) -> bool:
    """Whether all lie in 0..limit−1."""
    outside = 0
    for value in values.flat:
        outside += int(value < 0 or value >= limit)
    return outside == 0


@compiled
def grid_units(rewards: Floats, low: float, high: float, origin: float, span: float, grid: float, units: Ints) -> int:
    """units ← (clip(r, low, high) − origin)/(span·grid), rounded; how many rewards were clipped."""
    clipped = 0
    n, H = rewards.shape
    for i in range(n):
        for h in range(H):
            value = min(max(rewards[i, h], low), high)
            clipped += value != rewards[i, h]
            units[i, h] = np.int64(np.rint((value - origin) / span / grid))
    return clipped


@compiled
def count_steps(
    states: Ints,  # (n, H+1)
    actions: Ints,  # (n, H)
    grid_rewards: Ints,  # (n, H)
    visits: Ints,  # (G, S, A) in and out
    transitions: Ints,  # (G, S, A, S) in and out
    reward_sums: Ints,  # (G, S, A) in and out
) -> None:
    G = visits.shape[0]
    n, H = actions.shape
    for i in range(n):
        for h in range(H):
            g = min(h, G - 1)
            s, a = states[i, h], actions[i, h]
            visits[g, s, a] += 1
            transitions[g, s, a, states[i, h + 1]] += 1
            reward_sums[g, s, a] += grid_rewards[i, h]
