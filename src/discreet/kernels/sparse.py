"""Compiled parts of the one-hot learner for releases that hold few items: cautious values and plain ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled
from discreet.kernels.one_hot import ends, start_values
from discreet.mdp import Floats, Ints


@compiled
def cautious_values(
    starts: Ints,  # (C+1,) items of cell c: starts[c]..starts[c+1]
    columns: Ints,  # (n,) 2·s' + paid
    shares: Floats,  # (n,)
    means: Floats,  # (C,) rewards that are certain, or (0,)
    counts: Floats,  # (C,)
    known: NDArray[np.bool_],  # (C,)
    possible: NDArray[np.bool_],  # (C,)
    sd: float,
    confidence: float,
    hiding: float,
    spread: float,
    iota: float,
    stages: int,
    num_actions: int,
    places: int,
    ended: float,
    policy: Ints,  # (H, S) actions to follow, or (0, 0) to be greedy
    turn: Ints,  # (S,) which action comes first among equals
    values: Floats,  # (H+1, Y) out
    actions: Ints,  # (H, S) out
) -> None:
    """As `kernels.one_hot.cautious_values`, over the items that are there; of equal actions a possible one."""
    H, S = actions.shape
    A, Y = num_actions, places
    certain_rewards, follow = means.shape[0] > 0, policy.shape[0] > 0
    start_values(values, S, Y, ended)
    for i in range(H):
        h, V = H - 1 - i, values[H - i]
        g = min(h, stages - 1)
        bottom, top = i * min(0.0, ended), 1.0 + i * max(1.0, ended)
        low, high = ends(V, Y)
        for s in range(S):
            best, best_quality, fair = 0, -np.inf, False
            for j in range(A):
                a = (turn[s] + h + j) % A
                if follow and a != policy[h, s]:
                    continue
                c = (g * S + s) * A + a
                certain = means[c] if certain_rewards else 0.0
                q = min(bottom + certain, top)
                if known[c]:
                    first, last = starts[c], starts[c + 1]
                    mean, elsewhere, seen, total, led = 0.0, low, 0.0, 0.0, 0.0
                    for k in range(first, last):
                        y, paid = columns[k] >> 1, columns[k] & 1
                        if y < Y:
                            mean += shares[k] * (V[y] + paid)
                            total += shares[k] * V[y]
                            seen += shares[k]
                        else:
                            led += shares[k]
                    if led > 0.0:
                        if seen > 0.0:
                            elsewhere = total / seen
                        for k in range(first, last):
                            if columns[k] >> 1 >= Y:
                                mean += shares[k] * (elsewhere + (columns[k] & 1))
                    variance, upside = 0.0, 0.0
                    for k in range(first, last):
                        if shares[k] > 0.0:
                            y = columns[k] >> 1
                            off = (V[y] if y < Y else elsewhere) + (columns[k] & 1) - mean
                            variance += shares[k] * off * off
                            if off > 0.0:
                                upside += off * off
                    n = counts[c]
                    q = mean - confidence * (np.sqrt(2.0 * variance * iota / n) + (high - low) * iota / (3.0 * n))
                    q -= min(1.0, hiding * sd / n) * (mean - low) + spread * sd / n * np.sqrt(upside)
                    q = min(max(q, bottom) + certain, top)
                if q > best_quality or (q == best_quality and possible[c] and not fair):
                    best, best_quality, fair = a, q, possible[c]
            actions[h, s] = best
            values[h, s] = best_quality


@compiled
def plain_values(
    starts: Ints,
    columns: Ints,
    shares: Floats,
    means: Floats,  # (C,) rewards that are certain, or (0,)
    counts: Floats,
    known: NDArray[np.bool_],
    stages: int,
    num_actions: int,
    places: int,
    least: Floats,  # (H+1,)
    most: Floats,  # (H+1,)
    actions: Ints,  # (H, S)
    value: Floats,  # (H+1, places) in: what those who left will have earned; and out
    doubt: Floats,  # (H+1, places) out
) -> None:
    """As `valuation.plain_values`: V = r + P·V', U = Var(r + V')/n + P·U', before the choice is accounted for."""
    H, S = actions.shape
    certain = means.shape[0] > 0
    for i in range(H):
        h = H - 1 - i
        after, unsure = value[h + 1], doubt[h + 1]
        low, _ = ends(after, places)
        for s in range(S):
            c = (min(h, stages - 1) * S + s) * num_actions + actions[h, s]
            reward, share, mean, square, carried = 0.0, 0.0, 0.0, 0.0, 0.0
            if known[c]:
                for k in range(starts[c], starts[c + 1]):
                    y = columns[k] >> 1
                    if columns[k] & 1:
                        reward += shares[k]
                    if y < places:
                        share += shares[k]
                        mean += shares[k] * after[y]
                        square += shares[k] * after[y] * after[y]
                        carried += shares[k] * unsure[y]
            if share > 0.0:
                mean, square, carried = mean / share, square / share, carried / share
            else:
                mean, square = low, low * low
            varied = 0.0 if certain else reward * (1.0 - reward)
            if certain:
                reward = means[c]
            value[h, s] = min(max(reward + (mean if known[c] else least[h]), least[h]), most[h])
            doubt[h, s] = max(varied + square - mean * mean, 0.0) / max(counts[c], 1.0) + carried if known[c] else 0.0
