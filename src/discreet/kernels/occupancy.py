"""Shared by the solvers over occupancy measures: block-tridiagonal systems, forward propagation, certificates, and
the upper occupancy bound.

Packed layout: layer h holds states 0..sizes[h]−1; sizes[H] = 1 is the common end. Rows are (H, X, A, X).
"""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.mdp import Floats, Ints


@compiled
def factor(matrix: Floats, n: int) -> bool:
    """Cholesky factor of the leading n×n block, in place (lower triangle); False when a pivot is not positive."""
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            if i == j:
                if not total > 0.0:
                    return False
                matrix[i, i] = np.sqrt(total)
            else:
                matrix[i, j] = total / matrix[j, j]
    return True


@compiled
def solve_layers(
    diagonal: Floats,  # (H+1, X, X)
    upper: Floats,  # (H+1, X, X): block (h, h+1)
    sizes: Ints,
    first: int,
    damp: float,
    right: Floats,  # (H+1, X): right-hand side in, solution out
    work: Floats,  # (H+1, X, X)
    cross: Floats,  # (H+1, X, X)
) -> bool:
    """Solve (M + damp·I) z = right for a symmetric block-tridiagonal M over layers first..H−1 by block Cholesky."""
    H = len(sizes) - 1
    for h in range(first, H):
        n = sizes[h]
        for i in range(n):
            for j in range(i + 1):
                work[h, i, j] = diagonal[h, i, j]
            work[h, i, i] += damp
        if h > first:
            before = sizes[h - 1]
            # cross[h] rows: y ↦ L⁻¹ U, so that U' M⁻¹ U = Σ cross·cross'
            for y in range(n):
                for i in range(before):
                    total = upper[h - 1, i, y]
                    for k in range(i):
                        total -= work[h - 1, i, k] * cross[h, y, k]
                    cross[h, y, i] = total / work[h - 1, i, i]
                for j in range(y + 1):
                    total = 0.0
                    for k in range(before):
                        total += cross[h, y, k] * cross[h, j, k]
                    work[h, y, j] -= total
            for y in range(n):
                total = 0.0
                for k in range(before):
                    total += cross[h, y, k] * right[h - 1, k]
                right[h, y] -= total
        if not factor(work[h], n):
            return False
        for i in range(n):
            total = right[h, i]
            for k in range(i):
                total -= work[h, i, k] * right[h, k]
            right[h, i] = total / work[h, i, i]
    for back in range(H - first):
        h = H - 1 - back
        n = sizes[h]
        if h < H - 1:
            for k in range(n):
                total = right[h, k]
                for y in range(sizes[h + 1]):
                    total -= cross[h + 1, y, k] * right[h + 1, y]
                right[h, k] = total
        for step in range(n):
            i = n - 1 - step
            total = right[h, i]
            for k in range(i + 1, n):
                total -= work[h, k, i] * right[h, k]
            right[h, i] = total / work[h, i, i]
    return True


@compiled
def forward(policy: Floats, rows: Floats, initial: Floats, sizes: Ints, measure: Floats) -> None:
    """q(h,x,a,y) = d_h(x)·π(a|x)·p(y|x,a) with d_0 = initial: feasible whatever the residual of the multipliers."""
    H = len(sizes) - 1
    A = policy.shape[2]
    here = initial.copy()
    for h in range(H):
        after = np.zeros_like(here)
        for x in range(sizes[h]):
            for a in range(A):
                mass = here[x] * policy[h, x, a]
                for y in range(sizes[h + 1]):
                    value = mass * rows[h, x, a, y]
                    measure[h, x, a, y] = value
                    after[y] += value
        here = after


@compiled
def violation(measure: Floats, lower: Floats, upper: Floats, initial: Floats, sizes: Ints) -> float:
    """Largest breach of the constraints of the polytope: layer sums, flow, boxes, signs."""
    H = len(sizes) - 1
    A = measure.shape[2]
    worst = 0.0
    inflow = initial.copy()
    for h in range(H):
        after = np.zeros_like(inflow)
        layer = 0.0
        for x in range(sizes[h]):
            out = 0.0
            for a in range(A):
                mass = 0.0
                for y in range(sizes[h + 1]):
                    mass += measure[h, x, a, y]
                out += mass
                for y in range(sizes[h + 1]):
                    q = measure[h, x, a, y]
                    after[y] += q
                    worst = max(worst, -q, lower[h, x, a, y] * mass - q, q - upper[h, x, a, y] * mass)
            layer += out
            worst = max(worst, abs(out - inflow[x]))
        worst = max(worst, abs(layer - 1.0))
        inflow = after
    return worst


@compiled
def upper_occupancy(
    policy: Floats, lower: Floats, upper: Floats, initial: Floats, sizes: Ints, bound: Floats
) -> None:
    """u(k, x*) = max over kernels in the boxes of the probability of being in x* at step k under the policy.

    f_{k−1}(x) = Σ_a π(a|x)·min(hi(x*), lo(x*) + 1 − Σ lo), f_h(x) = Σ_a π(a|x)·max_p ⟨p, f_{h+1}⟩ by filling the
    slack 1 − Σ lo in decreasing order of f_{h+1}: exact, for the policy is fixed and every row has its own box.
    """
    H = len(sizes) - 1
    A = policy.shape[2]
    X = policy.shape[1]
    slack = np.empty((H, X, A))
    for h in range(H):
        for x in range(sizes[h]):
            for a in range(A):
                left = 1.0
                for y in range(sizes[h + 1]):
                    left -= lower[h, x, a, y]
                slack[h, x, a] = max(left, 0.0)
    value, after = np.empty(X), np.empty(X)
    order = np.empty(X, dtype=np.int64)
    for x in range(sizes[0]):
        bound[0, x] = initial[x]
    for k in range(1, H):
        for target in range(sizes[k]):
            for x in range(sizes[k - 1]):
                total = 0.0
                for a in range(A):
                    most = lower[k - 1, x, a, target] + slack[k - 1, x, a]
                    total += policy[k - 1, x, a] * min(upper[k - 1, x, a, target], most)
                after[x] = total
            for back in range(k - 1):
                h = k - 2 - back
                n = sizes[h + 1]
                for i in range(n):  # insertion sort: layers are short
                    j = i
                    while j > 0 and after[order[j - 1]] < after[i]:
                        order[j] = order[j - 1]
                        j -= 1
                    order[j] = i
                for x in range(sizes[h]):
                    total = 0.0
                    for a in range(A):
                        if policy[h, x, a] == 0.0:
                            continue
                        mean, left = 0.0, slack[h, x, a]
                        for i in range(n):
                            y = order[i]
                            low = lower[h, x, a, y]
                            extra = min(upper[h, x, a, y] - low, left)
                            left -= extra
                            mean += (low + extra) * after[y]
                        total += policy[h, x, a] * mean
                    value[x] = total
                for x in range(sizes[h]):
                    after[x] = value[x]
            total = 0.0
            for x in range(sizes[0]):
                total += initial[x] * after[x]
            bound[k, target] = min(total, 1.0)
