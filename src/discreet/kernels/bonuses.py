"""Bonuses that are recomputed after every episode, compiled."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.mdp import Floats


@compiled
def qiao_wang(
    transitions: Floats,  # (G, S, A, S)
    visits: Floats,  # (G, S, A)
    widths: Floats,  # (G, S, A): e = E/4
    iota: float,
    horizon: int,
    bernstein: bool,
    scale: float,
    fixed: Floats,  # (G, S, A) out
    per_std: Floats,  # (G, S, A) out
) -> None:
    """The four terms of [QW23] Alg. 1; see `discreet.bonuses.QiaoWang`."""
    G, S, A = visits.shape
    H = float(horizon)
    worst = 4 * widths.max()
    cap = np.empty(S)
    for g in range(G):
        for y in range(S):
            m = max(visits[min(g + 1, G - 1), y].sum(), 1e-9)  # of the next stage
            first = 1e6 * H**3 * S * A * iota**2 / m
            rest = 1e6 * H**4 * S**4 * A**2 * iota**4 * (worst**2 + H**2) / m**2
            cap[y] = min(first + rest, H**2)
        for s in range(S):
            for a in range(A):
                n = visits[g, s, a]
                if n <= 0.0:
                    fixed[g, s, a], per_std[g, s, a] = np.inf, 0.0
                    continue
                bonus = np.sqrt(2 * iota / n) + 80 * H * S * widths[g, s, a] * iota / n
                spread = 2 * np.sqrt(iota / n)
                if bernstein:
                    inner = 0.0
                    for y in range(S):
                        inner += transitions[g, s, a, y] * cap[y]
                    fixed[g, s, a] = scale * (bonus + 4 * np.sqrt(iota) * np.sqrt(inner / n))
                    per_std[g, s, a] = scale * spread
                else:
                    fixed[g, s, a], per_std[g, s, a] = scale * (bonus + H * spread), 0.0
