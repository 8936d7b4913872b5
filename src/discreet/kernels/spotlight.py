"""Compiled parts of Spotlight: encoding of reports, estimation, optimistic planning, prediction of reports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled, compiled_vectorised
from discreet.mdp import Floats, Ints
from discreet.problem import Mask

# Inside the wall: trajectories to reports ---------------------------------------------------------------------------


@compiled
def first_visits(
    states: Ints,  # (n, H+1)
    actions: Ints,  # (n, H)
    grid_rewards: Ints,  # (n, H), in 0..units
    coins: Ints,  # (n, m), uniform on 0..units−1
    wanted: Mask,  # (C,) or (C+1,) with the start last
    stages: int,
    num_actions: int,
    no_successor: bool,  # the last stage carries no successor
    start: int,  # row of the start cell, −1 if there is none
    items: Ints,  # (n, m) out: row·2S + 2·s' + bit, −1 where there is no report
    columns: int,  # 2S
) -> None:
    """The first m visits of every user to wanted cells. Whether step h is reported is settled before s_{h+1}, r_h."""
    n, H = actions.shape
    m = items.shape[1]
    S = columns // 2
    for i in range(n):
        sent = 0
        if start >= 0 and wanted[start]:
            items[i, 0] = start * columns + 2 * states[i, 0]
            sent = 1
        for h in range(H):
            if sent == m:
                break
            g = min(h, stages - 1)
            c = (g * S + states[i, h]) * num_actions + actions[i, h]
            if wanted[c]:
                bit = 1 if coins[i, sent] < grid_rewards[i, h] else 0
                y = 0 if (no_successor and h == stages - 1) else states[i, h + 1]
                items[i, sent] = c * columns + 2 * y + bit
                sent += 1
        for j in range(sent, m):
            items[i, j] = -1


@compiled
def tally(items: Ints, place: Ints, admitted: Mask, columns: int, histogram: Ints) -> None:
    """Add reports to a histogram whose row place[c] belongs to cell c; reports that do not exist are dropped."""
    n, m = items.shape
    for i in range(n):
        for j in range(m):
            item = items[i, j]
            if item >= 0:
                c, column = item // columns, item % columns
                if admitted[c, column]:
                    histogram[place[c], column] += 1


# Outside: releases to plans -----------------------------------------------------------------------------------------


@compiled
def estimate(
    sums: Floats,  # (C, 2S)
    variances: Floats,  # (C,) of the noise on one sub-cell; 0 epochs: inf
    admitted: Mask,  # (C, 2S)
    sizes: Ints,  # (C,)
    doubt: float,  # noise alone would keep some sub-cell of a cell with about half this probability
    surplus: float,
    least: float,
    supported: Mask,  # (C, 2S): seen elsewhere, so that `eased` standard deviations are enough
    eased: float,
    rows: Floats,  # (C, S) out
    means: Floats,  # (C,) out
    counts: Floats,  # (C,) out
    known: NDArray[np.bool_],  # (C,) out
) -> None:
    """Zero what may be noise, keep the rest as counts; a cell is known when what is kept stands out of its noise."""
    C, columns = sums.shape
    S = columns // 2
    root = np.sqrt(0.5)
    for c in range(C):
        rows[c] = 0.0
        means[c] = 0.0
        counts[c] = 0.0
        known[c] = False
        if not variances[c] < np.inf:
            continue
        sd = np.sqrt(variances[c])
        reach = np.log(sizes[c] / doubt) * root
        total, paid, survivors = 0.0, 0.0, 0
        for x in range(columns):
            if admitted[c, x] and sums[c, x] > (eased if supported[c, x] else reach) * sd:
                rows[c, x // 2] += sums[c, x]
                total += sums[c, x]
                survivors += 1
                if x % 2 == 1:
                    paid += sums[c, x]
        counts[c] = total
        if total > 0.0 and total >= max(least, (reach + surplus) * sd * np.sqrt(survivors + 1.0)):
            known[c] = True
            means[c] = paid / total
            for y in range(S):
                rows[c, y] /= total


@compiled_vectorised
def optimistic_values(
    rows: Floats,  # (C, S)
    means: Floats,  # (C,)
    counts: Floats,  # (C,)
    known: NDArray[np.bool_],  # (C,)
    hidden: Floats,  # (C,) weight of (max V − E V), at most 1
    possible: NDArray[np.bool_],  # (C, S), or (0, 0): every successor is
    confidence: float,
    iota: float,
    order: Ints,  # (H, S, A)
    quality: Floats,  # (H, S, A) out
    values: Floats,  # (H+1, S) out
    actions: Ints,  # (H, S) out
) -> None:
    """Q = clip(r̃ + P̃V + c·(√(2·(Var_P̃(V) + r̃(1−r̃))·ι/N) + span(V)·ι/(3N)) + hidden·(max V − P̃V), 0, H−h)

    An unknown cell has Q = min(H−h, 1 + max V). Maximum and span of V run over the successors that can occur.
    """
    H, S, A = quality.shape
    G = rows.shape[0] // (S * A)
    restricted = possible.shape[0] > 0
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        V = values[h + 1]
        smallest, largest = V[0], V[0]
        for y in range(S):
            smallest, largest = min(smallest, V[y]), max(largest, V[y])
        for s in range(S):
            best, best_quality = order[h, s, 0], -np.inf
            for j in range(A):
                a = order[h, s, j]
                c = (g * S + s) * A + a
                top = float(H - h)
                low, high = smallest, largest
                if restricted:
                    low, high = np.inf, -np.inf
                    for y in range(S):
                        if possible[c, y]:
                            low, high = min(low, V[y]), max(high, V[y])
                q = 1.0 + high
                if known[c]:
                    mean = 0.0
                    for y in range(S):
                        mean += rows[c, y] * V[y]
                    variance = 0.0
                    for y in range(S):
                        variance += rows[c, y] * (V[y] - mean) * (V[y] - mean)
                    variance += means[c] * (1.0 - means[c])
                    bonus = np.sqrt(2.0 * variance * iota / counts[c]) + (high - low) * iota / (3.0 * counts[c])
                    q = means[c] + mean + confidence * bonus + hidden[c] * (1.0 - means[c] + max(high - mean, 0.0))
                q = min(q, top)
                quality[h, s, a] = q
                if q > best_quality:
                    best, best_quality = a, q
            actions[h, s] = best
            values[h, s] = best_quality


@compiled
def predicted_reports(
    rows: Floats,  # (C, S)
    known: NDArray[np.bool_],  # (C,)
    actions: Ints,  # (H, S)
    num_actions: int,
    initial: Floats,  # (S,)
    wanted: NDArray[np.bool_],  # (C,)
    reports: int,
    rates: Floats,  # (C,) out: expected reports per user
) -> None:
    """Forward pass in the estimated model: a user leaves it when all her reports are sent, or in an unknown cell.

    With reports = 0 nobody ever reports, and the rates are expected visits.
    """
    H, S = actions.shape
    G = rows.shape[0] // (S * num_actions)
    levels = max(reports, 1)
    rates[:] = 0.0
    here = np.zeros((levels, S))
    here[0] = initial
    for h in range(H):
        g = min(h, G - 1)
        after = np.zeros((levels, S))
        for s in range(S):
            c = (g * S + s) * num_actions + actions[h, s]
            for j in range(levels):
                mass = here[j, s]
                if mass <= 0.0:
                    continue
                sent = j
                if reports == 0:
                    rates[c] += mass
                elif wanted[c]:
                    rates[c] += mass
                    sent = j + 1
                if known[c] and sent < levels:
                    for y in range(S):
                        after[sent, y] += mass * rows[c, y]
        here = after
