"""From valid counts to a model, compiled."""

from __future__ import annotations

from discreet.kernels.jit import compiled
from discreet.mdp import Floats
from discreet.structure import Mask

#: A released total below this is no observation at all.
NOTHING = 1e-9


@compiled
def normalise(
    rows: Floats, support: Mask, shifts: Floats, reward_sums: Floats, totals: Floats, means: Floats
) -> None:
    """rows (n, S) ← (x + shift/m)/Σ(x + shift/m) in place, with the totals Ñ and r̃ = clip(R̃/Ñ, 0, 1).

    m is the number of successors that exist: `support` (n, S) lists them, (0, 0) stands for all. A row without
    observations becomes uniform over them, with Ñ = 0 and r̃ = 0.
    """
    n, S = rows.shape
    restricted = support.shape[0] > 0
    for i in range(n):
        possible = S
        if restricted:
            possible = 0
            for y in range(S):
                possible += support[i, y]
        extra = shifts[i] / possible
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
        means[i] = min(max(reward_sums[i] / total, 0.0), 1.0) if seen else 0.0
