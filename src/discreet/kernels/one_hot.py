"""Compiled parts of the one-hot learner: estimating, planning with caution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled, compiled_vectorised
from discreet.mdp import Floats, Ints
from discreet.problem import Mask


@compiled
def zero(
    sums: Floats,  # (C, 2Y)
    admitted: Mask,
    thresholds: Floats,  # (C,)
    surplus: float,
    least: float,
    shares: Floats,  # (C, 2Y) out
    counts: Floats,  # (C,) out
    known: NDArray[np.bool_],  # (C,) out
) -> None:
    """Keep the m items above t; a cell is known when their sum reaches max(least, (t + surplus)·√(m+1))."""
    C, columns = sums.shape
    for c in range(C):
        kept, total = 0, 0.0
        for x in range(columns):
            shares[c, x] = 0.0
            if admitted[c, x] and sums[c, x] > thresholds[c]:
                shares[c, x] = sums[c, x]
                total += sums[c, x]
                kept += 1
        counts[c] = total
        known[c] = total >= max(least, (thresholds[c] + surplus) * np.sqrt(kept + 1.0))
        for x in range(columns):
            shares[c, x] = shares[c, x] / total if known[c] else 0.0


@compiled
def rescue(
    sums: Floats,  # (C, 2Y)
    admitted: Mask,
    sizes: Ints,
    sd: float,
    signal: float,  # 1: a cell is usable when its total stands out of the total's noise by so much
    shares: Floats,  # (C, 2Y) in and out
    counts: Floats,
    known: NDArray[np.bool_],
) -> None:
    """Where zeroing left a cell unknown but its total stands out: the nearest non-negative items with that total."""
    C, columns = sums.shape
    for c in range(C):
        if known[c]:
            continue
        total = 0.0
        for x in range(columns):
            if admitted[c, x]:
                total += sums[c, x]
        if total <= 0.0 or total < signal * sd * np.sqrt(sizes[c]):
            continue
        shift, active = 0.0, -1
        while True:  # max(0, item − shift) with the given total (Michelot): the shift only grows
            kept, kept_sum = 0, 0.0
            for x in range(columns):
                if admitted[c, x] and sums[c, x] > shift:
                    kept += 1
                    kept_sum += sums[c, x]
            if kept == active or kept == 0:
                break
            active = kept
            shift = max(shift, (kept_sum - total) / kept)
        whole = 0.0
        for x in range(columns):
            shares[c, x] = max(0.0, sums[c, x] - shift) if admitted[c, x] else 0.0
            whole += shares[c, x]
        if whole <= 0.0:
            continue
        known[c] = True
        counts[c] = total
        for x in range(columns):
            shares[c, x] /= whole


@compiled
def start_values(values: Floats, num_states: int, places: int, ended: float) -> None:
    """V = 0 everywhere, and (H−h)·e for whoever has left: place S, if there is one."""
    values[:] = 0.0
    if places > num_states:
        H = values.shape[0] - 1
        for h in range(H):
            values[h, num_states] = (H - h) * ended


@compiled
def ends(V: Floats, places: int) -> tuple[float, float]:
    """The least and the largest value."""
    low, high = V[0], V[0]
    for y in range(places):
        low, high = min(low, V[y]), max(high, V[y])
    return low, high


@compiled_vectorised
def cautious_values(
    shares: Floats,  # (C, 2Y)
    means: Floats,  # (C,) rewards that are certain; unused when they are estimated
    counts: Floats,  # (C,)
    known: NDArray[np.bool_],  # (C,)
    deviations: Floats,  # (C,) of the noise on an item
    certain_rewards: bool,
    confidence: float,
    hiding: float,
    spread: float,
    iota: float,
    places: int,  # of the Y successors, all but the unknown one
    ended: float,  # what a step pays in the place S, if there is one
    policy: Ints,  # (H, S) actions to follow, or (0, 0) to be greedy
    order: Ints,  # (H, S, A)
    quality: Floats,  # (H, S, A) out
    values: Floats,  # (H+1, Y) out
    actions: Ints,  # (H, S) out
) -> None:
    """Q = clip(Σ_x p_x·v_x − c·(√(2·Var_p(v)·ι/N) + span·ι/(3N)) − min(1, d·sd/N)·(Σ p_x·v_x − low)
                − k·(sd/N)·√(Σ_{p_x > 0} max(0, v_x − Σ p·v)²)),   v_x = paid_x + V_{h+1}(s'_x), low = min V

    clipped to what H−h steps can pay, [bottom, top] = [(H−h−1)·min(0, e), 1 + (H−h−1)·max(1, e)], e = `ended`.
    An unknown cell has Q = bottom, plus its reward where that is certain (rewards are then added to V and not
    doubted). Whoever is in place S has left: V = (H−h)·e. A step whose successor is unknown leads where the cell's
    other steps lead: V is their mean, or the least V if there are none. Following a policy, other actions get Q = 0.
    """
    H, S, A = quality.shape
    Y = places
    tail = shares.shape[1] > 2 * Y
    G = shares.shape[0] // (S * A)
    follow = policy.shape[0] > 0
    start_values(values, S, Y, ended)
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        V = values[h + 1]
        bottom, top = i * min(0.0, ended), 1.0 + i * max(1.0, ended)
        low, high = ends(V, Y)
        for s in range(S):
            best, best_quality = order[h, s, 0], -np.inf
            for j in range(A):
                a = order[h, s, j]
                if follow and a != policy[h, s]:
                    quality[h, s, a] = 0.0
                    continue
                c = (g * S + s) * A + a
                certain = means[c] if certain_rewards else 0.0
                q = min(bottom + certain, top)
                if known[c]:
                    mean = 0.0
                    for y in range(Y):
                        mean += shares[c, 2 * y] * V[y] + shares[c, 2 * y + 1] * (V[y] + 1.0)
                    unpaid, paid, elsewhere = 0.0, 0.0, low
                    if tail and shares[c, 2 * Y] + shares[c, 2 * Y + 1] > 0.0:
                        unpaid, paid = shares[c, 2 * Y], shares[c, 2 * Y + 1]
                        total, seen = 0.0, 0.0
                        for y in range(Y):
                            both = shares[c, 2 * y] + shares[c, 2 * y + 1]
                            total += both * V[y]
                            seen += both
                        if seen > 0.0:
                            elsewhere = total / seen
                        mean += unpaid * elsewhere + paid * (elsewhere + 1.0)
                    variance, upside = 0.0, 0.0
                    for y in range(Y):
                        below, above = V[y] - mean, V[y] + 1.0 - mean
                        variance += shares[c, 2 * y] * below * below + shares[c, 2 * y + 1] * above * above
                        if shares[c, 2 * y] > 0.0 and below > 0.0:
                            upside += below * below
                        if shares[c, 2 * y + 1] > 0.0 and above > 0.0:
                            upside += above * above
                    if unpaid + paid > 0.0:
                        below, above = elsewhere - mean, elsewhere + 1.0 - mean
                        variance += unpaid * below * below + paid * above * above
                        if unpaid > 0.0 and below > 0.0:
                            upside += below * below
                        if paid > 0.0 and above > 0.0:
                            upside += above * above
                    n, sd = counts[c], deviations[c]
                    q = mean - confidence * (np.sqrt(2.0 * variance * iota / n) + (high - low) * iota / (3.0 * n))
                    q -= min(1.0, hiding * sd / n) * (mean - low) + spread * sd / n * np.sqrt(upside)
                    q = min(max(q, bottom) + certain, top)
                quality[h, s, a] = q
                if q > best_quality:
                    best, best_quality = a, q
            actions[h, s] = best
            values[h, s] = best_quality
