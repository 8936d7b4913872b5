"""Nearest valid counts, in closed form and for all cells at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from discreet.kernels.jit import compiled

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@compiled
def _threshold(c: Floats, total: float, largest: float, whole: float) -> float:
    """The λ with Σ max(0, c_i + λ) = total ≥ 0, by dropping negative terms until none is left (Michelot).

    λ only falls and the active set only shrinks, so the loop ends after at most S rounds.
    """
    if total <= 0.0:
        return -largest
    active = c.size
    lam = (total - whole) / active
    while True:
        kept = 0
        kept_sum = 0.0
        for value in c:
            if value + lam > 0.0:
                kept += 1
                kept_sum += value
        if kept == active or kept == 0:  # 0: the total is below the rounding of the largest count
            return lam
        active = kept
        lam = (total - kept_sum) / kept


@compiled
def project_rows(counts: Floats, totals: Floats, slacks: Floats, support: Mask, out: Floats) -> int:
    """`support` (n, S) lists the entries that exist, or is (0, 0) when all do; the others become 0."""
    infeasible = 0
    n, columns = counts.shape
    restricted = support.shape[0] > 0
    kept, chosen = np.empty(columns), np.arange(columns)
    for i in range(n):
        S = 0
        for j in range(columns):
            if not restricted or support[i, j]:
                kept[S], chosen[S] = counts[i, j], j
                S += 1
        c = kept[:S]
        out[i] = 0.0
        upper = totals[i] + slacks[i]
        if upper < 0.0:
            infeasible += 1
            continue
        lower = max(totals[i] - slacks[i], 0.0)
        whole, largest, smallest = 0.0, c[0], c[0]
        for value in c:
            whole += value
            largest = max(largest, value)
            smallest = min(smallest, value)
        t = max(0.0, -smallest, (lower - whole) / S)
        least = 0.0  # Lo(t): the smallest total attainable at distance t
        for value in c:
            least += max(0.0, value - t)
        if least > upper:
            t = max(t, -_threshold(c, upper, largest, whole))
        lam = min(max(_threshold(c, max(totals[i], 0.0), largest, whole), -t), t)
        for j in range(S):
            out[i, chosen[j]] = max(0.0, c[j] + lam)
    return infeasible


def project_counts(
    transitions: Floats, totals: Floats, slack: float | Floats, support: Mask | None = None
) -> tuple[Floats, int]:
    """Make noisy counts of successors valid, moving none by more than necessary.

    For every row c with noisy total n and slack e (one number, or one per row), with S = len(c), C_k the sum of the k
    largest c_i and thr(c, m) the λ of Σ max(0, c_i + λ) = m:

        t* = min{t : x ≥ 0, |x_i − c_i| ≤ t, |Σx − n| ≤ e}
           = max(0, max_i −c_i, (max(n−e, 0) − Σc)/S, max_k (C_k − n − e)/k)
        x  = max(0, c + λ),   λ = clip(thr(c, max(n, 0)), −t*, t*)

    Why x is a minimiser: Σx(λ) grows continuously from the least total attainable at distance t* (λ = −t*) to the
    largest (λ = t*), so the clipped λ lands in [n−e, n+e], as near n as t* allows; an entry cut at 0 moves by
    |c_i| ≤ t*. The minimiser is not unique: this one is the rule of the library. Where n + e < 0 nothing is feasible;
    the row becomes 0 and is counted.

    `support` (n, S) declares which successors exist: the others are 0 and S counts those that remain.

    Returns the rows (n, S) and the number of infeasible ones. Cost: O(S) per row in practice, O(S²) at worst.
    Source: the linear program of [QW23] Eq. (4), solved exactly.
    """
    counts = np.ascontiguousarray(transitions, dtype=np.float64)
    sums = np.ascontiguousarray(totals, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[1] == 0 or sums.shape != counts.shape[:1]:
        raise ValueError(f"Expected counts (n, S) and totals (n,), got {counts.shape} and {sums.shape}.")
    slacks = np.asarray(slack, dtype=np.float64)
    if slacks.ndim > 0 and slacks.shape != sums.shape:
        raise ValueError(f"Expected one slack or one for each of {len(sums)} rows, got the shape {slacks.shape}.")
    if not (np.isfinite(counts).all() and np.isfinite(sums).all() and np.isfinite(slacks).all()):
        raise ValueError("Counts, totals and slack must be finite.")
    if np.any(slacks < 0.0):
        raise ValueError(f"The slack must not be negative, got {slacks.min()}.")
    if support is not None and (support.shape != counts.shape or not support.any(axis=1).all()):
        raise ValueError(f"Expected a support of shape {counts.shape} with a successor in every row.")
    out = np.empty_like(counts)
    mask = np.empty((0, 0), dtype=np.bool_) if support is None else np.ascontiguousarray(support)
    infeasible = project_rows(counts, sums, np.ascontiguousarray(np.broadcast_to(slacks, sums.shape)), mask, out)
    return out, int(infeasible)
