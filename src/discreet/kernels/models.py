"""From valid counts to a model, compiled."""

from __future__ import annotations

from discreet.kernels.jit import compiled
from discreet.mdp import Floats

#: A released total below this is no observation at all.
NOTHING = 1e-9


@compiled
def normalise(rows: Floats, shifts: Floats, reward_sums: Floats, totals: Floats, means: Floats) -> None:
    """rows (n, S) ← (x + shift/S)/Σ(x + shift/S) in place, with the totals Ñ and r̃ = clip(R̃/Ñ, 0, 1).

    A row without observations becomes uniform, with Ñ = 0 and r̃ = 0.
    """
    n, S = rows.shape
    for i in range(n):
        extra = shifts[i] / S
        total = 0.0
        for y in range(S):
            rows[i, y] += extra
            total += rows[i, y]
        if total > NOTHING:
            for y in range(S):
                rows[i, y] /= total
            totals[i] = total
            means[i] = min(max(reward_sums[i] / total, 0.0), 1.0)
        else:
            rows[i] = 1.0 / S
            totals[i] = 0.0
            means[i] = 0.0
