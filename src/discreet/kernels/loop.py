"""The whole loop of UCBVI without noise, compiled: rollout, counts, bonus and plan of every episode."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled, compiled_vectorised
from discreet.kernels.planning import MARGIN, backward_induction
from discreet.kernels.rollout import draw
from discreet.mdp import Floats, Ints

#: Up to so many states, reading a row costs less than bounding it.
SHORT = 16


@compiled_vectorised
def replan(
    model: Floats, rewards: Floats, fixed: Floats, per_std: Floats, order: Ints, values: Floats, actions: Ints
) -> None:
    """The greedy plan of `backward_induction` for rewards in [0, 1] and short rows, without its Q.

    A bonus that reaches the bound by itself needs no row, and a standard deviation that could not make an action win
    (it is at most half the span of V) is not computed. Values and actions are the same.
    """
    H, S = actions.shape
    G, _, A = rewards.shape
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        top = float(H - h)
        smallest, largest = values[h + 1, 0], values[h + 1, 0]
        for y in range(1, S):
            smallest, largest = min(smallest, values[h + 1, y]), max(largest, values[h + 1, y])
        half_span = 0.5 * (largest - smallest) + MARGIN
        for s in range(S):
            best, best_quality = 0, -1.0
            for j in range(A):
                a = order[h, s, j]
                q = fixed[g, s, a]
                if q < top:
                    mean = 0.0
                    for y in range(S):
                        mean += model[g, s, a, y] * values[h + 1, y]
                    q += rewards[g, s, a] + mean
                    if q < top and q + per_std[g, s, a] * half_span > best_quality - MARGIN:
                        variance = 0.0
                        for y in range(S):
                            difference = values[h + 1, y] - mean
                            variance += model[g, s, a, y] * difference * difference
                        q += per_std[g, s, a] * np.sqrt(variance)
                q = min(q, top)
                if q > best_quality:
                    best, best_quality = a, q
            actions[h, s] = best
            values[h, s] = best_quality


@compiled
def ucbvi(
    cumulative: Floats,  # (Gm, S, A, S) the simulator's model
    mean_rewards: Floats,  # (Gm, S, A)
    cumulative_initial: Floats,  # (S,)
    uniforms: Floats,  # (n, 1 + 2H)
    reward_uniforms: Floats,  # (n, H) for Bernoulli rewards, (0, 0) for deterministic ones
    grid: float,
    coefficients: tuple[float, float, float],
    monotone: bool,
    order: Ints,  # (H, S, A)
    visits: Ints,  # (G, S, A) the learner's sums, in and out
    transitions: Ints,  # (G, S, A, S) in and out
    reward_sums: Ints,  # (G, S, A) in and out
    model: Floats,  # (G, S, A, S) P̂, in and out
    rewards: Floats,  # (G, S, A) r̂, in and out
    fixed: Floats,  # (G, S, A) in and out
    per_std: Floats,  # (G, S, A) in and out
    ceiling: Floats,  # (H, S, A) in and out
    quality: Floats,  # (H, S, A) scratch
    values: Floats,  # (H+1, S) scratch
    actions: Ints,  # (H, S) the policy played last, in and out (-1 before the first)
    policies: Ints,  # (n, H, S) out: every policy that differs from the one before
    lengths: Ints,  # (n,) out: how many episodes each was played
) -> int:
    """Play n episodes; the number of rows filled in `policies` and `lengths`."""
    n = uniforms.shape[0]
    H, S = actions.shape
    Gm, G = cumulative.shape[0], visits.shape[0]
    root, inverse, deviation = coefficients
    bernoulli = reward_uniforms.shape[0] > 0
    cells = np.empty((H, 3), dtype=np.int64)
    fresh = order[:, :, 0].copy()
    greedy = np.empty((0, 0, 0))
    filled = 0
    for i in range(n):
        if S <= SHORT and not monotone:
            replan(model, rewards, fixed, per_std, order, values, fresh)
        else:
            backward_induction(
                model, rewards, fixed, per_std, 0.0, 1.0, greedy, ceiling, order, quality, values, fresh, not monotone
            )
        if monotone:
            ceiling[...] = quality
        same = filled > 0
        if same:
            for h in range(H):
                for s in range(S):
                    if fresh[h, s] != actions[h, s]:
                        same = False
        if same:
            lengths[filled - 1] += 1
        else:
            actions[...] = fresh
            policies[filled] = fresh
            lengths[filled] = 1
            filled += 1
        s = draw(cumulative_initial, uniforms[i, 0])
        for h in range(H):
            gm, g = min(h, Gm - 1), min(h, G - 1)
            a = actions[h, s]
            y = draw(cumulative[gm, s, a], uniforms[i, 2 + 2 * h])
            mean = mean_rewards[gm, s, a]
            if bernoulli:
                mean = 1.0 if reward_uniforms[i, h] < mean else 0.0
            visits[g, s, a] += 1
            transitions[g, s, a, y] += 1
            reward_sums[g, s, a] += np.int64(np.rint(mean / grid))
            cells[h, 0], cells[h, 1], cells[h, 2] = g, s, a
            s = y
        for h in range(H):
            g, s, a = cells[h, 0], cells[h, 1], cells[h, 2]
            count = float(visits[g, s, a])
            for y in range(S):
                model[g, s, a, y] = transitions[g, s, a, y] / count
            rewards[g, s, a] = min(max(reward_sums[g, s, a] * grid / count, 0.0), 1.0)
            fixed[g, s, a] = root / np.sqrt(count) + inverse / count
            per_std[g, s, a] = deviation / np.sqrt(count)
    return filled
