"""Compiled backward induction: one backup for optimism, pessimism, exact planning and evaluation."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled, compiled_vectorised
from discreet.mdp import Floats, Ints
from discreet.problem import Mask

#: An action is skipped only when its upper bound loses by more than rounding could hide.
MARGIN = 1e-9


@compiled_vectorised
def expectation(row: Floats, values: Floats) -> float:
    """⟨P(·|s,a), V⟩"""
    total = 0.0
    for y in range(row.shape[0]):
        total += row[y] * values[y]
    return total


@compiled_vectorised
def backward_induction(
    transitions: Floats,  # (G, S, A, S)
    rewards: Floats,  # (G, S, A)
    fixed: Floats,  # (G, S, A)
    per_std: Floats,  # (G, S, A)
    low: float,
    high: float,
    policy: Floats,  # (H, S, A) to follow, or (0, 0, 0) to be greedy
    ceiling: Floats,  # (H, S, A): Q never exceeds it
    order: Ints,  # (H, S, A): which of equally good actions comes first
    quality: Floats,  # (H, S, A) out
    values: Floats,  # (H+1, S) out
    actions: Ints,  # (H, S) in and out: the greedy actions
    prune: bool,  # skip actions that cannot be greedy; `quality` is then left unset for them
) -> None:
    """Q_h = min{ clip(r + ⟨P,V_{h+1}⟩ + fixed + per_std·Std_P(V_{h+1}), (H−h)·low, (H−h)·high), ceiling_h }.

    V_h = max_a Q_h, or Σ_a π_h(a|s)·Q_h(s,a) when a policy is given. Pessimism has negative bonus terms.
    The variance takes two passes over a row: one pass cancels to 0 when V is nearly constant.
    With `prune`, rows are read only while r + fixed + max V + per_std·(max V − min V)/2 can still win; the greedy
    action found in `actions` is tried first. Values and greedy actions are the same with and without.
    """
    H, S, A = quality.shape
    G = transitions.shape[0]
    follow = policy.shape[0] > 0
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        bottom, top = (H - h) * low, (H - h) * high
        smallest, largest = np.inf, -np.inf
        if prune:
            for y in range(S):
                smallest, largest = min(smallest, values[h + 1, y]), max(largest, values[h + 1, y])
        half_span = 0.5 * (largest - smallest)
        for s in range(S):
            best, best_quality, expected = order[h, s, 0], -np.inf, 0.0
            first, to_beat = -1, -np.inf
            for j in range(-1 if prune else 0, A):
                if j < 0:
                    first = actions[h, s]
                    a = first
                else:
                    a = order[h, s, j]
                    if a == first:
                        if to_beat > best_quality:
                            best, best_quality = a, to_beat
                        continue
                q = fixed[g, s, a]
                if prune and j >= 0:
                    bound = rewards[g, s, a] + q + largest + per_std[g, s, a] * half_span
                    if min(min(max(bound, bottom), top), ceiling[h, s, a]) < to_beat - MARGIN:
                        continue
                if q < np.inf and q > -np.inf:
                    mean = 0.0
                    for y in range(S):
                        mean += transitions[g, s, a, y] * values[h + 1, y]
                    q += rewards[g, s, a] + mean
                    if per_std[g, s, a] != 0.0:
                        variance = 0.0
                        for y in range(S):
                            difference = values[h + 1, y] - mean
                            variance += transitions[g, s, a, y] * difference * difference
                        q += per_std[g, s, a] * np.sqrt(variance)
                q = min(min(max(q, bottom), top), ceiling[h, s, a])
                quality[h, s, a] = q
                to_beat = max(to_beat, q)
                if j >= 0 and q > best_quality:
                    best, best_quality = a, q
                if follow:
                    expected += policy[h, s, a] * q
            actions[h, s] = best
            values[h, s] = expected if follow else best_quality


@compiled
def one_hot(actions: Ints, policy: Floats) -> None:
    """π_h(a|s) = 1 for the action (H, S) taken, 0 for the others."""
    H, S, A = policy.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                policy[h, s, a] = 1.0 if a == actions[h, s] else 0.0


@compiled
def evaluate_actions(transitions: Floats, rewards: Floats, actions: Ints, values: Floats) -> None:
    """Exact values (H+1, S) of a deterministic policy (H, S): only the chosen rows are read."""
    H, S = actions.shape
    G = transitions.shape[0]
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        for s in range(S):
            a = actions[h, s]
            values[h, s] = rewards[g, s, a] + expectation(transitions[g, s, a], values[h + 1])


@compiled_vectorised
def evaluate_switching(
    transitions: Floats,  # (G, S, A, S)
    rewards: Floats,  # (G, S, A)
    policy: Floats,  # (H, S, A)
    wanted: Mask,  # (stages, S, A)
    afterwards: Floats,  # (H+1, S): values from a step on whose users have reported before
    values: Floats,  # (H+1, S) out
) -> None:
    """Values of users who follow the policy and, after a step in a wanted cell, earn what `afterwards` says."""
    H, S, A = policy.shape
    G, stages = transitions.shape[0], wanted.shape[0]
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g, stage = min(h, G - 1), min(h, stages - 1)
        for s in range(S):
            total = 0.0
            for a in range(A):
                if policy[h, s, a] > 0.0:
                    following = afterwards[h + 1] if wanted[stage, s, a] else values[h + 1]
                    total += policy[h, s, a] * (rewards[g, s, a] + expectation(transitions[g, s, a], following))
            values[h, s] = total


@compiled
def occupancy(transitions: Floats, initial: Floats, policy: Floats, measure: Floats) -> None:
    """q(h,s,a) = P(s_h = s, a_h = a), forward."""
    H, S, A = policy.shape
    G = transitions.shape[0]
    here = initial.copy()
    for h in range(H):
        g = min(h, G - 1)
        after = np.zeros(S)
        for s in range(S):
            for a in range(A):
                mass = here[s] * policy[h, s, a]
                measure[h, s, a] = mass
                if mass > 0.0:
                    for y in range(S):
                        after[y] += mass * transitions[g, s, a, y]
        here = after
