"""From noisy counts to a model, compiled."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.kernels.projection import project_rows
from discreet.mdp import Floats, Ints
from discreet.problem import Mask

#: A released total below this is no observation at all.
NOTHING = 1e-9
#: The mask that restricts nothing.
ALL_SUCCESSORS = np.empty((0, 0), dtype=np.bool_)


@compiled
def valid_model(
    noisy_transitions: Floats,  # (G, S, A, S)
    noisy_visits: Floats,  # (G, S, A)
    noisy_rewards: Floats,  # (G, S, A)
    widths: Floats,  # (G, S, A): e
    shift: float,
    support: Mask,  # (G·S·A, S): successors that exist, or (0, 0) for all
    transitions: Floats,  # (G, S, A, S) out: P̃
    rewards: Floats,  # (G, S, A) out: r̃
    visits: Floats,  # (G, S, A) out: Ñ
) -> None:
    """x = the nearest valid counts, plus shift·e/m for each of m successors;  Ñ = Σx, P̃ = x/Ñ, r̃ = clip(R̂/Ñ, 0, 1).

    A row without observations becomes uniform over the successors that exist, with Ñ = 0 and r̃ = 0.
    """
    S, n = transitions.shape[3], visits.size
    rows, slack = transitions.reshape((n, S)), widths.reshape(n)
    totals, means, paid = visits.reshape(n), rewards.reshape(n), noisy_rewards.reshape(n)
    project_rows(noisy_transitions.reshape((n, S)), noisy_visits.reshape(n), slack, support, rows)
    restricted = support.shape[0] > 0
    for i in range(n):
        possible = S
        if restricted:
            possible = 0
            for y in range(S):
                possible += support[i, y]
        extra = shift * slack[i] / possible
        total = 0.0
        for y in range(S):
            if not restricted or support[i, y]:
                rows[i, y] += extra
                total += rows[i, y]
        seen = total > NOTHING
        for y in range(S):
            if seen:
                rows[i, y] /= total
            else:
                rows[i, y] = 1.0 / possible if not restricted or support[i, y] else 0.0
        totals[i] = total if seen else 0.0
        means[i] = min(max(paid[i] / total, 0.0), 1.0) if seen else 0.0


@compiled
def scaled_tables(values: Ints | Floats, units: Floats, visits: Floats, transitions: Floats, rewards: Floats) -> None:
    """Cut flat sums into the three tables, in natural units; a table of unit 0 is not released and is set to 0."""
    start = 0
    for table, unit in (
        (visits.reshape(-1), units[0]),
        (transitions.reshape(-1), units[1]),
        (rewards.reshape(-1), units[2]),
    ):
        for i in range(table.size):
            table[i] = values[start + i] * unit if unit > 0.0 else 0.0
        start += table.size
