"""Compiled parts of Spotlight on releases that hold few sub-cells: plans and forward passes over what is held."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled
from discreet.mdp import Floats, Ints


@compiled
def values_of(
    starts: Ints,  # (C+1,) outcomes of cell c: starts[c]..starts[c+1]
    outcomes: Ints,  # (n,)
    shares: Floats,  # (n,) of a cell, with sum 1
    spreads: Floats,  # (n,) variance of the count of an outcome
    means: Floats,  # (C,)
    mean_variances: Floats,  # (C,)
    counts: Floats,  # (C,)
    known: NDArray[np.bool_],  # (C,)
    seen: NDArray[np.bool_],  # (S,)
    caution: float,  # of one doubt, taken from Q
    optimism: Floats,  # (C,) of one doubt, added in the choice of actions alone; or (0,)
    hidden: Floats,  # (C,) weight of an outcome or reward that hides below the threshold: of 1 − r + max V − PV
    searching: bool,  # whether that is part of V, or only of the choice
    hope: float,  # reward of an unknown cell; below 0: it is never chosen
    order: Ints,  # (H, S, A)
    actions: Ints,  # (H, S) out; −1: nothing is known
    values: Floats,  # (H+1, S) out
    worth: Floats,  # (H, S) out: doubt of the chosen action, Q of an unknown one
) -> None:
    """Q = r + PV − caution·u on known cells, hope + max V elsewhere, both at most H − h; the choice adds optimism·u.

    u² = Σ_y Var n_y·(V_y − PV)²/N² + Var r + (Var_P V + r(1−r) + 1/N)/N, as `spotlight.doubt`. The maximum of V is
    over states that were seen; while searching, over all. V is max Q, and 0 where no action may be chosen.
    """
    H, S, A = order.shape
    G = counts.shape[0] // (S * A)
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        V, top, largest = values[h + 1], float(H - h), 0.0
        for y in range(S):
            if searching or seen[y]:
                largest = max(largest, V[y])
        full = min(top, hope + largest)
        for s in range(S):
            best_choice, best = -np.inf, -np.inf
            actions[h, s], worth[h, s], values[h, s] = -1, 0.0, 0.0
            for j in range(A):
                a = order[h, s, j]
                c = (min(h, G - 1) * S + s) * A + a
                if known[c]:
                    mean, N = 0.0, counts[c]
                    for k in range(starts[c], starts[c + 1]):
                        mean += shares[k] * V[outcomes[k]]
                    noise, variance = 0.0, 0.0
                    for k in range(starts[c], starts[c + 1]):
                        gap = (V[outcomes[k]] - mean) ** 2
                        noise += spreads[k] * gap
                        variance += shares[k] * gap
                    sampling = (variance + means[c] * (1.0 - means[c]) + 1.0 / N) / N
                    u = np.sqrt(noise / (N * N) + mean_variances[c] + sampling)
                    q, choice = means[c] + mean - caution * u, 0.0
                    if optimism.shape[0]:
                        bonus = hidden[c] * (1.0 - means[c] + max(largest - mean, 0.0))
                        q += bonus if searching else 0.0
                        choice = optimism[c] * u + (0.0 if searching else bonus)
                    q = min(max(q, 0.0), top)
                    choice += q
                elif hope >= 0.0:
                    q, u = full, full
                    choice = full
                else:
                    continue
                if choice > best_choice:
                    best_choice, actions[h, s], worth[h, s] = choice, a, u
                if q > best:
                    best, values[h, s] = q, q


@compiled
def forward(
    starts: Ints,
    outcomes: Ints,
    shares: Floats,
    known: NDArray[np.bool_],  # (C,)
    actions: Ints,  # (H, S)
    num_actions: int,
    initial: Floats,  # (S,)
    wanted: NDArray[np.bool_],  # (C,)
    reports: int,
    mass: Floats,  # (H, S) out: how likely somebody is there who may still report
    rates: Floats,  # (C,) out: reports per user on what is wanted
) -> None:
    """A user leaves the model when all her reports are sent, or in a cell that is not known."""
    H, S = actions.shape
    G = known.shape[0] // (S * num_actions)
    levels = max(reports, 1)
    rates[:] = 0.0
    mass[:] = 0.0
    here = np.zeros((levels, S))
    here[0] = initial
    for h in range(H):
        after = np.zeros((levels, S))
        for s in range(S):
            for level in range(levels):
                mass[h, s] += here[level, s]
            if mass[h, s] <= 0.0 or actions[h, s] < 0:
                continue
            c = (min(h, G - 1) * S + s) * num_actions + actions[h, s]
            for level in range(levels):
                chance, sent = here[level, s], level
                if wanted[c]:
                    rates[c] += chance
                    sent += 1
                if known[c] and sent < levels:
                    for k in range(starts[c], starts[c + 1]):
                        after[sent, outcomes[k]] += chance * shares[k]
        here = after
