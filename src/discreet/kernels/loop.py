"""The whole loop of UCBVI without noise, compiled: rollout, counts, bonus and plan of every episode."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.kernels.planning import backward_induction
from discreet.kernels.rollout import draw
from discreet.mdp import Floats, Ints


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
    prune = S > 16 and not monotone  # a short row costs less than its bound
    filled = 0
    for i in range(n):
        backward_induction(
            model, rewards, fixed, per_std, 0.0, 1.0, greedy, ceiling, order, quality, values, fresh, prune
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
