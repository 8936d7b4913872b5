"""Compiled parts of reports on classes of successors. Formulas: docs/spotlight.md."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled, compiled_vectorised
from discreet.mdp import Floats, Ints


@compiled_vectorised
def numbers_of_outcomes(
    prior: Floats,  # (C, S)
    branching: Floats,  # (C, B): how likely each branching is
    sizes: Ints,  # (B,)
    certain: float,
    numbers: Floats,  # (C,) out
) -> None:
    """Σ_B p(B)·Σ_y min(B·π_y, certain)."""
    for c in range(prior.shape[0]):
        numbers[c] = 0.0
        for b in range(sizes.shape[0]):
            size, total = float(sizes[b]), 0.0
            for y in range(prior.shape[1]):
                total += min(size * prior[c, y], certain)
            numbers[c] += branching[c, b] * total


@compiled
def cuts_of_least_variance(
    values: Floats,  # (S,) in order, around 0
    cuts: Ints,  # (k+1, S+1) out: where the last of m classes of the first j values begins
) -> None:
    """Dynamic programming over all ways to cut the values into k classes."""
    S, k = values.shape[0], cuts.shape[0] - 1
    sums, squares = np.zeros(S + 1), np.zeros(S + 1)
    for j in range(S):
        sums[j + 1] = sums[j] + values[j]
        squares[j + 1] = squares[j] + values[j] * values[j]
    cost = np.full(S + 1, np.inf)
    cost[0] = 0.0
    for m in range(1, k + 1):
        best = np.full(S + 1, np.inf)
        for j in range(m, S + 1):
            for i in range(m - 1, j):
                total = cost[i] + squares[j] - squares[i] - (sums[j] - sums[i]) ** 2 / (j - i)
                if total < best[j]:
                    best[j], cuts[m, j] = total, i
        cost = best


@compiled
def move_rows(
    among: Ints,  # (n,): which row a cell of the epoch is, −1 where it is none of them
    classes: Ints,  # (S,)
    sums: Floats,  # (n, k, 2)
    variance: float,  # of the noise on each
    predicted: Floats,  # (n,)
    means: Floats,  # (rows,)
    ratios: Floats,  # (rows,): of all reports to those that were predicted
    rows: Floats,  # (rows, S) in and out
    doubts: Floats,  # (rows, S) in and out
) -> None:
    """One epoch moves the mass of its classes by least squares (`discreet.agents.classes`)."""
    S, k = rows.shape[1], sums.shape[1]
    mass, doubt, step, moved = np.empty(k), np.empty(k), np.empty(k), np.empty(S)
    for i in range(among.shape[0]):
        c = among[i]
        if c < 0:
            continue
        n, r = max(ratios[c] * predicted[i], 1.0), means[c]
        length = r * r + (1.0 - r) * (1.0 - r)
        mass[:] = 0.0
        doubt[:] = 0.0
        for y in range(S):
            mass[classes[y]] += rows[c, y]
            doubt[classes[y]] += doubts[c, y]
        for j in range(k):
            found = (r * sums[i, j, 1] + (1.0 - r) * sums[i, j, 0]) / length / n
            doubt[j] += variance / length / (n * n) + max(mass[j] * (1.0 - mass[j]), 0.25 / n) / n
            step[j] = (found - mass[j]) / doubt[j]
        total = 0.0
        for y in range(S):
            moved[y] = max(rows[c, y] + doubts[c, y] * step[classes[y]], 0.0)
            total += moved[y]
            doubts[c, y] *= 1.0 - doubts[c, y] / doubt[classes[y]]
        if total > 0.0:
            for y in range(S):
                rows[c, y] = moved[y] / total
