"""Slow, independent references for the noise: exact probabilities in multiprecision and a word-by-word sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray
from scipy import special, stats

from discreet.privacy.envelope import Envelope

mpmath.mp.dps = 80

QUICK_UNITS = 1 << 31


def real(value: Fraction | int) -> mpmath.mpf:
    """A rational number at 80 digits."""
    value = Fraction(value)
    return mpmath.mpf(value.numerator) / value.denominator


def envelope_parts(envelope: Envelope) -> tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint32]]:
    """Thresholds, aliases and quick bounds, the tables that the compiled loop reads first."""
    threshold, alias, quick, _ = envelope._tables
    return threshold, alias, quick


def weights_behind_alias(envelope: Envelope) -> list[int]:
    """How many of the 2⁶⁴ words lead to each column, counted from the alias table alone."""
    threshold, alias, _ = envelope_parts(envelope)
    n = threshold.size
    capacity = (1 << 64) // n
    weights = [0] * n
    for i in range(n):
        kept = int(threshold[i]) - i * capacity
        assert 0 <= kept < capacity or int(alias[i]) == i
        weights[i] += kept
        weights[int(alias[i])] += capacity - kept
    return weights


def acceptance_probability(envelope: Envelope, column: int, offset: int, run_length: int = 0) -> mpmath.mpf:
    """κ·exp(−f(|x|))/w in a block, (κL/m)·2^(k+1)·exp(−f(|x|))/w in a tail, at 80 digits."""
    if column < envelope.tail:
        magnitude, factor = (column >> 1) * envelope.block + offset, Fraction(1)
    else:
        magnitude = envelope.blocks * envelope.block + run_length * envelope.run + offset
        factor = Fraction(envelope.run, envelope.block) * 2 ** (run_length + 1)
    exponent = envelope.rate * (magnitude + (column & 1)) ** envelope.power
    weight = int(envelope.weights[column])
    return real(factor * envelope.kappa / weight) * mpmath.exp(-real(exponent))


class Refills(Iterator[int]):
    """Words that arrive `size` at a time; an attempt never starts with fewer than three left of a refill."""

    def __init__(self, words: list[int], size: int) -> None:
        self._words, self._size, self._next = words, size, 0

    def __next__(self) -> int:
        self._next += 1
        return self._words[self._next - 1]

    def begin_attempt(self) -> None:
        left = self._size - self._next % self._size
        if left < 3:
            self._next += left


def reference_values(envelope: Envelope, words: Refills, count: int) -> list[int]:
    """The values that the sampler must return for these words, every decision taken at 80 digits."""
    threshold, alias, quick = (table.tolist() for table in envelope_parts(envelope))
    values: list[int] = []
    while len(values) < count:
        words.begin_attempt()
        first, second = next(words), next(words)
        column = first * len(threshold) >> 64
        if first >= threshold[column]:
            column = alias[column]
        if second >> 33 < quick[column]:
            y = (column >> 1) * envelope.block + second % envelope.block
            values.append(y if column % 2 == 0 else -1 - y)
            continue
        third = next(words)
        u = second - second % envelope.block + third % envelope.block
        run_length = 0
        offset = second % envelope.block
        y = (column >> 1) * envelope.block + offset
        if column >= envelope.tail:
            while bin(next_word := next(words)).endswith("1" * 64):
                run_length += 64
            while next_word & 1:
                run_length, next_word = run_length + 1, next_word >> 1
            offset = next(words) % envelope.run
            y = envelope.blocks * envelope.block + run_length * envelope.run + offset
        probability = acceptance_probability(envelope, column, offset, run_length)
        gap = probability - mpmath.mpf(u) / 2**64
        assert abs(gap) > mpmath.mpf(2) ** -64  # closer would need more words, which has never been seen
        if gap > 0:
            values.append(y if column % 2 == 0 else -1 - y)
    return values


def laplace_upper(x: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """P(X > x) of the discrete Laplace law, from scipy."""
    return np.asarray(stats.dlaplace.sf(x, 1 / scale))


def gaussian_upper(x: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """P(X > x) of the discrete Gaussian law: summed, or for large σ the integral from x + ½ (relative error 1/σ²)."""
    if sigma > 5000:
        return np.asarray(special.ndtr(-(x + 0.5) / sigma))
    support = np.arange(-int(40 * sigma) - 2, int(40 * sigma) + 3)
    mass = np.exp(-0.5 * (support / sigma) ** 2)
    beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0) / mass.sum()
    return np.asarray(beyond[np.clip(x.astype(np.int64) - support[0] + 1, 0, support.size)])


Upper = Callable[[NDArray[np.float64], float], NDArray[np.float64]]


def bins(upper: Upper, scale: float, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges e₁ < e₂ < … and the probabilities of (−∞, e₁], (e₁, e₂], …, each expected at least 12 times."""
    candidates = np.unique(np.rint(scale * np.concatenate([np.linspace(-2, 2, 65), np.linspace(-12, 12, 97)])))
    edges: list[float] = []
    below = 0.0
    for edge, above in zip(candidates, upper(candidates, scale), strict=True):
        if count * (1 - above - below) >= 12 and count * above >= 12:
            edges.append(edge)
            below = 1 - above
    chosen = np.array(edges)
    cumulative = np.concatenate([[0.0], 1 - upper(chosen, scale), [1.0]])
    return chosen.astype(np.int64), np.diff(cumulative)


def chi_square_p_value(values: NDArray[np.int64], upper: Upper, scale: float) -> float:
    """p-value of Pearson's test that the values come from the law."""
    edges, probabilities = bins(upper, scale, values.size)
    observed = np.bincount(np.searchsorted(edges, values, side="left"), minlength=probabilities.size)
    return float(stats.chisquare(observed, probabilities * values.size).pvalue)


def opendp_measurement(law: str, scale: float) -> Callable[[list[int]], list[int]]:
    """OpenDP's integer noise on a vector of integers."""
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if law == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
