"""Exact tables of integer noise, P(x) ∝ exp(−f(|x|)) with f(a) = a/scale or a²/(2σ²), made of whole numbers only.

A table of integer weights summing to 2⁶⁴ proposes a block of integers and random bits a point in it; it is kept when
a uniform u, whose bits are drawn as far as needed, is below an acceptance probability that makes the law exact.
`Envelope.one` is the whole algorithm in plain Python, which devices run; `discreet.kernels.sampling` is its fast twin
and gives the same values for the same words. Imports numpy and nothing else. The proof is in noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SMALLEST_SCALE, LARGEST_SCALE = 0.1, 1e12

#: Bits of the second word that only ever serve the acceptance test; the others also give the offset in a block.
QUICK_BITS = 31

#: Proven bound, in units of 2⁻⁶⁴, on the error of the compiled `acceptance` (noise.md); 13 is what the proof needs.
MARGIN = 32

_WORD = 1 << 64
_LONGEST_RUN = 1 << 20  # a tail run this long, of probability 2^−1048576, raises instead of leaving 64 bits


# --- exact decisions ---


def exponential_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers with lower ≤ 2^bits·exp(−exponent) ≤ upper, a few units apart; exponent ≥ 0."""
    if exponent >= bits:
        return 0, 1
    halvings = int(exponent).bit_length() + 4
    precision = bits + halvings + 16
    y = (exponent.numerator << precision) // (exponent.denominator << halvings)
    total = term = 1 << precision
    k = 0
    while term:
        k += 1
        term = ((term * y) >> precision) // k
        total += -term if k % 2 else term
    error = 2 * k + 4  # every term is off by less than 2, y by less than 1, the remainder is less than 1
    lower, upper = total - error, total + error
    for _ in range(halvings):
        lower = (lower * lower) >> precision
        upper = ((upper * upper) >> precision) + 1
    return lower >> (precision - bits), (upper >> (precision - bits)) + 1


def uniform_is_below(numerator: int, denominator: int, exponent: Fraction, u: int, word: Callable[[], int]) -> bool:
    """Whether U < (numerator/denominator)·exp(−exponent), U uniform on [0, 1): first 64 bits u, later ones drawn."""
    length = 64
    while True:
        bits = length + 128 + max(0, numerator.bit_length() - denominator.bit_length())
        lower, upper = exponential_bounds(exponent, bits)
        if ((u + 1) * denominator) << bits <= (numerator * lower) << length:
            return True
        if (u * denominator) << bits >= (numerator * upper) << length:
            return False
        u = (u << 64) | word()
        length += 64


# --- tables ---


def _alias_columns(weights: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint16]]:
    """Alias table of 2^k integer weights summing to 2⁶⁴: a word of column i keeps it when below threshold[i]."""
    n = len(weights)
    capacity = _WORD // n
    left = list(weights)
    threshold = [i * capacity for i in range(n)]
    alias = list(range(n))
    small = [i for i in range(n) if left[i] < capacity]
    large = [i for i in range(n) if left[i] > capacity]
    while small:
        i, j = small.pop(), large[-1]
        threshold[i] += left[i]
        alias[i] = j
        left[j] -= capacity - left[i]
        if left[j] <= capacity:
            large.pop()
            if left[j] < capacity:
                small.append(j)
    return np.array(threshold, np.uint64), np.array(alias, np.uint16)


def _scaled(value: Fraction) -> int:
    """⌊2⁶⁴·value⌋."""
    return (value.numerator << 64) // value.denominator


class Envelope:
    """Exact sampler of P(x) ∝ exp(−f(|x|)), f(a) = rate·a^power, by a table and a rejection.

    Column 2q+s proposes x = y (s = 0) or −1−y (s = 1), y uniform in [q·m, (q+1)·m), m = 2^block_shift, with weight
    w ≥ κ·exp(−f(q·m+s)); x is kept with probability κ·exp(−f(|x|))/w. The last two columns hold the tails
    y ≥ B = blocks·m: a run length k of probability 2^−(k+1), y uniform in [B+kL, B+(k+1)L), kept with probability
    (κL/m)·2^(k+1)·exp(−f(|x|))/w. So every x is returned with one and the same factor κ/(m·2⁶⁴) times exp(−f(|x|)).
    """

    def __init__(self, rate: Fraction, power: int, block_shift: int, columns: int, margin: int = MARGIN) -> None:
        m = 1 << block_shift
        self.rate, self.power, self.block = rate, power, m
        self.blocks = blocks = columns // 2 - 1
        self.run = m  # L: a power of two with f(a+L) − f(a) ≥ ln 2 for all a ≥ 0
        while rate * self.run**power < Fraction(70, 100):
            self.run *= 2
        if m > 1 and self._exponent(blocks * m + 1) - self._exponent((blocks - 1) * m + 1) > Fraction(1, 2):
            raise ValueError("the blocks of an envelope must be short: f may grow by at most 1/2 in a block")

        precision = 192 + 2 * math.ceil(self._exponent(blocks * m + 1))
        one = 1 << precision
        # Upper bounds on 2^precision·exp(−f(q·m+s)), q = 0..blocks, by f's constant first or second differences.
        second = exponential_bounds(2 * rate * m * m, precision)[1] if power == 2 else one
        heights = [0] * columns
        for s in (0, 1):
            height = exponential_bounds(self._exponent(s), precision)[1] if s else one
            ratio = exponential_bounds(self._exponent(m + s) - self._exponent(s), precision)[1]
            for q in range(blocks + 1):
                heights[2 * q + s] = height
                height = ((height * ratio) >> precision) + 1
                ratio = ((ratio * second) >> precision) + 1

        self.tail = tail = 2 * blocks
        spread = 2 * (self.run // m)
        mass = sum(heights[:tail]) + spread * sum(heights[tail:])
        self.kappa = kappa = ((_WORD - columns) << precision) // mass
        weights = [((kappa * height) >> precision) + 1 for height in heights[:tail]]
        weights += [((spread * kappa * height) >> precision) + 1 for height in heights[tail:]]
        weights[0] += _WORD - sum(weights)
        self.weights = np.array(weights, np.uint64)

        quick = [0] * columns
        shares = [0] * columns
        slopes = [0] * columns
        slope = rate * m
        for column in range(tail):
            scaled = weights[column] << precision
            shares[column] = ((kappa * heights[column]) << 64) // scaled
            lowest = heights[column + 2 if m > 1 else column]
            quick[column] = (kappa * (lowest - (lowest >> 64) - 1) << QUICK_BITS) // scaled
        if power == 1:
            slopes[:tail] = [_scaled(slope)] * tail
        else:
            numerator, denominator = (2 * slope).numerator << 64, (2 * slope).denominator
            slopes[:tail] = [((c >> 1) * m + (c & 1)) * numerator // denominator for c in range(tail)]
        curve = _scaled(rate * m * m) if power == 2 else 0
        if m == 1:  # one point per block: slope and curve are never used and may not fit 64 bits
            slopes, curve = [0] * columns, 0

        threshold, alias = _alias_columns(weights)
        detail = np.array([slopes, shares], np.uint64).T.copy()
        self._column_shift = column_shift = 65 - columns.bit_length()
        self._tables = (threshold, alias, np.array(quick, np.uint32), detail)
        #: What the compiled loop takes besides words and values; see `discreet.kernels.sampling.draw`.
        self.arguments = (*self._tables, column_shift, block_shift, np.uint64(curve), tail, margin)

    @classmethod
    def fitted(cls, rate: Fraction, power: int, reach: Fraction, columns: int) -> Envelope:
        """The finest blocks with which at most `columns` columns cover |x| ≤ reach."""
        shift = 0
        while (columns // 2 - 1) << shift < reach:
            shift += 1
        while columns > 4 and (columns // 4 - 1) << shift >= reach:
            columns //= 2
        return cls(rate, power, shift, columns)

    @property
    def nbytes(self) -> int:
        """Memory of the tables, the weights kept for exact decisions included."""
        return sum(table.nbytes for table in self._tables) + self.weights.nbytes

    def _exponent(self, magnitude: int) -> Fraction:
        """f(a) = rate·a^power."""
        return self.rate * (magnitude if self.power == 1 else magnitude * magnitude)

    def one(self, word: Callable[[], int]) -> int:
        """One value from random words, two or three per attempt: what the compiled loop makes of the same words."""
        threshold, alias, quick, _ = self._tables
        inside = self.block - 1
        while True:
            first, second = word(), word()
            column = first >> self._column_shift
            if first >= int(threshold[column]):
                column = int(alias[column])
            offset = second & inside
            if second >> (64 - QUICK_BITS) < int(quick[column]):
                y = (column >> 1) * self.block + offset
                return -1 - y if column & 1 else y
            value = self.decide(column, offset, (second & ~inside) | (word() & inside), word)
            if value is not None:
                return value

    def decide(self, column: int, offset: int, u: int, word: Callable[[], int]) -> int | None:
        """Finish one attempt that the compiled loop handed back: the value, or None when it is rejected."""
        s, m = column & 1, self.block
        numerator, denominator = self.kappa, int(self.weights[column])
        if column < self.tail:
            y = (column >> 1) * m + offset
        else:
            length = 0
            while (bits := word()) == _WORD - 1:
                length += 64
                if length > _LONGEST_RUN:
                    raise OverflowError("a noise value left the 64-bit range, an event of probability 2^-1048576")
            length += (~bits & (bits + 1)).bit_length() - 1
            y = self.blocks * m + length * self.run + word() % self.run
            numerator *= (self.run // m) << (length + 1)
        kept = uniform_is_below(numerator, denominator, self._exponent(y + s), u, word)
        return (-1 - y if s else y) if kept else None


def check_scale(scale: float, name: str) -> float:
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise ValueError(f"the {name} of the noise is {scale!r}; it must be 0 or between 0.1 and 1e12")
    return float(scale)


@lru_cache(maxsize=128)
def laplace_envelope(scale: float) -> Envelope:
    check_scale(scale, "scale")
    return Envelope.fitted(1 / Fraction(scale), 1, 16 * Fraction(scale), 4096)


@lru_cache(maxsize=128)
def gaussian_envelope(sigma: float) -> Envelope:
    check_scale(sigma, "sigma")
    return Envelope.fitted(1 / (2 * Fraction(sigma) ** 2), 2, 8 * Fraction(sigma), 2048)
