"""Compiled sampling of trajectories and counting of their steps."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.mdp import Floats, Ints
from discreet.problem import Mask


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
    after: Floats,  # (H, S, A)
    wanted: Mask,  # (stages, S, A)
    reports: int,  # that a user has left at the start
    uniforms: Floats,  # (n, 1 + 2H)
    coins: Floats,  # (n, H) uniforms for rewards that are 0 or 1, or (0, 0)
    states: Ints,  # (n, H+1) out
    actions: Ints,  # (n, H) out
    rewards: Floats,  # (n, H) out: rewards by these coins, or without coins their means
) -> None:
    """Users who play `policy` up to the step of their last report on a wanted cell, and `after` from the next on."""
    G, stages = cumulative.shape[0], wanted.shape[0]
    n, H = actions.shape
    tossed = coins.shape[0] > 0
    for i in range(n):
        s = draw(cumulative_initial, uniforms[i, 0])
        states[i, 0] = s
        left = reports
        for h in range(H):
            g = min(h, G - 1)
            a = draw_action(policy[h, s] if left > 0 else after[h, s], uniforms[i, 1 + 2 * h])
            if left > 0 and wanted[min(h, stages - 1), s, a]:
                left -= 1
            actions[i, h] = a
            mean = mean_rewards[g, s, a]
            rewards[i, h] = mean if not tossed else (1.0 if coins[i, h] < mean else 0.0)
            s = draw(cumulative[g, s, a], uniforms[i, 2 + 2 * h])
            states[i, h + 1] = s


@compiled
def outside(states: Ints, actions: Ints, num_states: int, num_actions: int) -> int:
    """How many states and actions do not exist."""
    wrong = 0
    for state in states.flat:
        wrong += int(state < 0 or state >= num_states)
    for action in actions.flat:
        wrong += int(action < 0 or action >= num_actions)
    return wrong


@compiled
def grid_unit(reward: float, low: float, high: float, origin: float, span: float, grid: float) -> int:
    """(clip(r, low, high) − origin)/(span·grid), rounded."""
    return int(np.rint((min(max(reward, low), high) - origin) / span / grid))


@compiled
def grid_units(rewards: Floats, low: float, high: float, origin: float, span: float, grid: float, units: Ints) -> int:
    """Rewards (n, H) as whole grid units; how many were clipped."""
    clipped = 0
    n, H = rewards.shape
    for i in range(n):
        for h in range(H):
            clipped += rewards[i, h] < low or rewards[i, h] > high
            units[i, h] = grid_unit(rewards[i, h], low, high, origin, span, grid)
    return clipped


@compiled
def count_steps(
    states: Ints,  # (n, H+1)
    actions: Ints,  # (n, H)
    rewards: Floats,  # (n, H)
    low: float,
    high: float,
    origin: float,
    span: float,
    grid: float,
    visits: Ints,  # (G, S, A) in and out
    transitions: Ints,  # (G, S, A, S) in and out
    reward_sums: Ints,  # (G, S, A) in and out, in grid units
) -> int:
    """Add all steps to the tables; how many rewards were clipped."""
    G = visits.shape[0]
    n, H = actions.shape
    clipped = 0
    for i in range(n):
        for h in range(H):
            g = min(h, G - 1)
            s, a, r = states[i, h], actions[i, h], rewards[i, h]
            visits[g, s, a] += 1
            transitions[g, s, a, states[i, h + 1]] += 1
            clipped += r < low or r > high
            reward_sums[g, s, a] += grid_unit(r, low, high, origin, span, grid)
    return clipped
