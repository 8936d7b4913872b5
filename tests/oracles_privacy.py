"""Slow and plain answers to the questions of the privacy core."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog, minimize_scalar

from discreet.privacy.tails import gaussian_union_width, laplace_union_width

Floats = npt.NDArray[np.float64]


def lp_distances(counts: Floats, totals: Floats, slacks: Floats) -> Floats:
    """t* of every row: min t : x ≥ 0, |x − c| ≤ t, |Σx − n| ≤ e, as one block-diagonal linear program.

    Rows are scaled to size 1 first, because the solver's tolerances are absolute.
    """
    n, S = counts.shape
    size = np.maximum(1.0, np.maximum(np.abs(counts).max(axis=1), np.maximum(np.abs(totals), slacks)))
    c, total, slack = counts / size[:, None], totals / size, slacks / size
    eye, column, ones = np.eye(S), -np.ones((S, 1)), np.append(np.ones(S), 0.0)
    block = np.vstack([np.hstack([eye, column]), np.hstack([-eye, column]), ones, -ones])
    A = sparse.kron(sparse.identity(n), block, format="csc")
    b = np.hstack([c, -c, (total + slack)[:, None], (slack - total)[:, None]]).ravel()
    found = linprog(np.tile(np.append(np.zeros(S), 1.0), n), A_ub=A, b_ub=b, bounds=(0, None), method="highs")
    assert found.status == 0, found.message
    return np.asarray(found.x.reshape(n, S + 1)[:, S] * size)


def lp_is_feasible(counts: Floats, total: float, slack: float) -> bool:
    """Whether x ≥ 0 with |Σx − n| ≤ e exists, according to the solver."""
    ones = np.ones((1, len(counts)))
    A, b = np.vstack([ones, -ones]), [total + slack, slack - total]
    return bool(linprog(np.zeros(len(counts)), A_ub=A, b_ub=b, bounds=(0, None), method="highs").status == 0)


def laplace_pmf(scale: float, reach: int) -> Floats:
    """P(X = x), x = −reach..reach, of discrete Laplace noise."""
    q = math.exp(-1.0 / scale)
    return np.asarray((1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1)))


def gaussian_pmf(sigma: float, reach: int) -> Floats:
    """P(X = x), x = −reach..reach, of discrete Gaussian noise."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2.0 * sigma * sigma))
    return np.asarray(weights / weights.sum())


def sum_pmf(pmf: Floats, terms: int) -> Floats:
    """Law of the sum of independent copies, by repeated convolution (centre in the middle)."""
    total = pmf
    for _ in range(terms - 1):
        total = np.convolve(total, pmf)
    return total


def upper_tail(pmf: Floats, x: int) -> float:
    """P(X ≥ x) of a law on −reach..reach, smallest terms first."""
    centre = len(pmf) // 2
    return math.fsum(pmf[centre + x :][::-1])


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    """δ(ε) = Σ max(0, p − e^ε q)."""
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


def shifted_pair(pmf: Floats, shift: int) -> tuple[Floats, Floats]:
    """A law and the same law moved up by `shift`, on one common support."""
    return np.pad(pmf, (0, shift)), np.pad(pmf, (shift, 0))


def product_pair(pmf: Floats, shifts: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Independent noise on several counters, each moved by its own shift: both worlds as flat vectors."""
    first, second = np.ones(1), np.ones(1)
    for shift in shifts:
        p, q = shifted_pair(pmf, shift)
        first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
    return first, second


def nodes_of_leaf(leaf: int, num_prefixes: int) -> int:
    """In how many nodes of the binary mechanism leaf 1..T takes part, by building every node."""
    return sum(t - (t & -t) < leaf <= t for t in range(1, num_prefixes + 1))


# Widths of whole mechanisms, by the unions that the library takes ------------------------------------------------


def popcount_classes(num_prefixes: int) -> tuple[list[int], list[int]]:
    """How many t in 1..T have j one-bits: the numbers of noises in prefix sums of a tree, and how often each occurs.

    Counted from the leading bit down: below a one-bit at position p that comes after c one-bits, C(p, j−c) choices.
    """
    top = int(num_prefixes) + 1
    bits = top.bit_length()
    occurrences = [0] * (bits + 1)
    seen = 0
    for position in range(bits - 1, -1, -1):
        if top >> position & 1:
            for free in range(position + 1):
                occurrences[seen + free] += math.comb(position, free)
            seen += 1
    classes = [j for j in range(1, bits + 1) if occurrences[j] > 0]
    return classes, [occurrences[j] for j in classes]


def tree_width(scale: float, num_prefixes: int, counters: float, beta: float) -> float:
    """Width of all prefix sums 1..T of a binary tree with DLap(scale) on every node: prefix t adds popcount(t)."""
    classes, occurrences = popcount_classes(num_prefixes)
    return laplace_union_width(scale, classes, [float(count) for count in occurrences], counters, beta)


def gaussian_tree_width(sigma: float, num_prefixes: int, counters: float, beta: float) -> float:
    """Width of all prefix sums 1..T of a binary tree with Gaussian noise on every node."""
    classes, occurrences = popcount_classes(num_prefixes)
    return gaussian_union_width(sigma, classes, [float(c) for c in occurrences], counters, beta)


def weighted_width(scales: npt.ArrayLike, counters: float, beta: float, num_prefixes: int = 1) -> float:
    """Width of a weighted sum of Laplace noises with fixed scales b_i (scale × weight), by the best Chernoff bound.

    min_s [Σ_i ψ(s·b_i) + ln(2·counters·T/beta)]/s with ψ(u) = −ln(1−u²).
    """
    b = np.abs(np.asarray(scales, dtype=np.float64)).ravel()
    log_inverse = math.log(2.0 * counters * num_prefixes / beta)

    def bound(log_share: float) -> float:
        s = math.exp(log_share)
        return float(-np.log1p(-((s * b / b.max()) ** 2)).sum() + log_inverse) / s

    found = minimize_scalar(bound, bounds=(-20.0, -1e-9), method="bounded", options={"xatol": 1e-9})
    return float(b.max() * found.fun * (1.0 + 1e-12))
