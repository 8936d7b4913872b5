"""Which of very many noises rise above a threshold, with exactly their law and without drawing all. Proof: excess.md.

Integers only: every comparison of random words with a probability is settled by as many further words as it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from discreet.privacy.accounting import Mechanism
from discreet.privacy.envelope import exponential_bounds
from discreet.privacy.noise import NoiseSource

Ints = NDArray[np.int64]
#: Integers lower ≤ 2^bits·value ≤ upper, as close as the bits allow.
Bounds = Callable[[int], tuple[int, int]]

#: Noises above a threshold that are at least so frequent, 2^−RARE, are found by drawing all.
RARE = 6
CHUNK = 1 << 20
#: From this σ on, Σ exp(−x²/(2σ²)) is √(2π)·σ up to a factor of 1 + 2^−7000.
WIDE_SIGMA, WIDE_BITS = 16, 6900


def excess(noise: NoiseSource, mechanism: Mechanism, scale: float, threshold: int, size: int) -> tuple[Ints, Ints]:
    """(places, values) of those of `size` independent noises that are above a threshold of at least 0, in order."""
    if threshold < 0:
        raise ValueError(f"threshold is {threshold}; it must be at least 0")
    if scale == 0.0 or size == 0:
        return _none()
    tail = _laplace_tail(scale, threshold) if mechanism == "laplace" else _gaussian_tail(scale, threshold)
    if tail.shift < RARE:
        return _drawn(noise, mechanism, scale, threshold, size)
    found = [_none()]
    for first in range(0, size, CHUNK << tail.shift):
        places = first + marked(noise, min(CHUNK << tail.shift, size - first), tail.shift)
        values = tail.values(noise, places.size)
        found.append((places[values > threshold], values[values > threshold]))
    return _joined(found)


def _none() -> tuple[Ints, Ints]:
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)


def _joined(found: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    places, values = zip(*found, strict=True)
    return np.concatenate(places), np.concatenate(values)


def _drawn(noise: NoiseSource, mechanism: Mechanism, scale: float, threshold: int, size: int) -> tuple[Ints, Ints]:
    sample = noise.laplace if mechanism == "laplace" else noise.gaussian
    found = [_none()]
    for first in range(0, size, CHUNK):
        drawn = sample(scale, min(CHUNK, size - first))
        above = np.flatnonzero(drawn > threshold)
        found.append((first + above, drawn[above]))
    return _joined(found)


# Coins of probability 2^−shift --------------------------------------------------------------------------------------


def marked(noise: NoiseSource, size: int, shift: int) -> Ints:
    """Places 0..size−1 whose coin shows: independent coins, each with probability 2^−shift, shift ≥ 1; in order.

    In a block of n = 2^shift places, Bin(n, 1/n) coins show, and every set of so many places is equally likely.
    """
    blocks = -(-size >> shift)
    counts = _numbers(noise, blocks, shift)
    block = np.repeat(np.arange(blocks), counts)
    inside = np.uint64((1 << shift) - 1)
    places = (block << shift) | (noise.words(block.size) & inside).astype(np.int64)
    while True:
        order = np.argsort(places, kind="stable")
        twice = places[order][1:] == places[order][:-1]
        if not twice.any():
            break
        again = np.isin(block, block[order][1:][twice])  # the whole block: sets stay equally likely
        places[again] = (block[again] << shift) | (noise.words(int(again.sum())) & inside).astype(np.int64)
    places = places[order]
    return places[places < size]


def _numbers(noise: NoiseSource, blocks: int, shift: int) -> Ints:
    """Independent draws of Bin(n, 1/n): the number of k with P(K ≤ k) ≤ U."""
    limits = np.array(_cumulative(shift, 64), dtype=np.uint64)
    words = noise.words(blocks)
    numbers = np.searchsorted(limits, words, side="left").astype(np.int64)
    for i in np.flatnonzero(np.isin(words, limits)):
        numbers[i] = _exact_number(int(words[i]), shift, partial(_word, noise))
    return numbers


def _word(noise: NoiseSource) -> int:
    return int(noise.words(1)[0])


def _exact_number(u: int, shift: int, word: Callable[[], int], bits: int = 64) -> int:
    """The same from a word that lies on a limit."""
    while True:
        limits = _cumulative(shift, bits)
        if u not in limits:
            return sum(limit < u for limit in limits)
        u, bits = (u << 64) | word(), bits + 64


@lru_cache(maxsize=64)
def _cumulative(shift: int, bits: int) -> tuple[int, ...]:
    """⌊2^bits·P(K ≤ k)⌋ for k = 0, 1, … up to n − 1 or the first that is 2^bits − 1; K ~ Bin(n, 1/n), n = 2^shift.

    P(K = 0) = (1 − 1/n)^n by squaring, P(K = k+1)/P(K = k) = (n − k)/((k + 1)·(n − 1)), all with directed rounding.
    """
    n, more = 1 << shift, 64
    while True:
        precision = bits + more + shift
        low = high = (1 << precision) - (1 << (precision - shift))
        for _ in range(shift):
            low, high = (low * low) >> precision, -((-high * high) >> precision)
        below, above, limits = low, high, list[int]()
        for k in range(n):
            least, most = below >> (precision - bits), above >> (precision - bits)
            if least != most and least != (1 << bits) - 1:
                break
            limits.append(least)
            if least == (1 << bits) - 1 or k == n - 1:
                return tuple(limits)
            parts, whole = n - k, (k + 1) * (n - 1)
            low, high = low * parts // whole, -(-high * parts // whole)
            below, above = below + low, above + high
        more *= 2


# Tails --------------------------------------------------------------------------------------------------------------


def below(u: int, bounds: Bounds, word: Callable[[], int]) -> bool:
    """Whether U < value, U uniform on [0, 1): first 64 bits u, later ones drawn."""
    length = 64
    while True:
        lower, upper = bounds(length + 64)
        if (u + 1) << 64 <= lower:
            return True
        if u << 64 >= upper:
            return False
        u, length = (u << 64) | word(), length + 64


class _LaplaceTail:
    """q = P(X > t) = p^(t+1)/(1 + p), p = e^(−1/scale); above t, X − t − 1 is geometric: P(y) ∝ p^y."""

    def __init__(self, scale: float, threshold: int) -> None:
        self.scale, self.threshold, self.rate = scale, threshold, 1 / Fraction(scale)
        self.shift = _shift(self._chance)

    def _chance(self, bits: int) -> tuple[int, int]:
        precision = bits + 16
        low, high = exponential_bounds(self.rate * (self.threshold + 1), precision)
        lower, upper = (end + (1 << precision) for end in exponential_bounds(self.rate, precision))
        return (low << precision) // upper >> 16, ((high << precision) // lower >> 16) + 1

    def _kept(self, bits: int) -> tuple[int, int]:
        """q·2^shift."""
        return self._chance(bits + self.shift)

    def values(self, noise: NoiseSource, count: int) -> Ints:
        """Per marked place: a noise above the threshold with probability q·2^shift, else the threshold itself.

        Whatever the sign of the discrete Laplace law, the places from 0 or −1 outwards are geometric.
        """
        limit = _floor(self._kept)
        words = noise.words(count)
        kept = words < np.uint64(limit)
        for i in np.flatnonzero(words == np.uint64(limit)):
            kept[i] = below(limit, self._kept, partial(_word, noise))
        values = np.full(count, self.threshold, dtype=np.int64)
        drawn = noise.laplace(self.scale, int(kept.sum()))
        values[kept] += 1 + np.where(drawn >= 0, drawn, -1 - drawn)
        return values


class _GaussianTail:
    """x = t + 1 + k·L + r is proposed with probability 2^−(k+1)/L, r < L, and kept with probability
    P(x)·L·2^(k+1+shift): at most 1, for P falls by at least one half over L, and 2^−shift ≥ 2·L·P(t+1)."""

    def __init__(self, sigma: float, threshold: int) -> None:
        self.threshold, self.rate = threshold, 1 / (2 * Fraction(sigma) ** 2)
        self.variance = Fraction(sigma) ** 2
        length = 1
        while self.rate * ((threshold + 1 + length) ** 2 - (threshold + 1) ** 2) < Fraction(7, 10):
            length *= 2
        self.length = length
        self.shift = 0
        self.shift = _shift(partial(self._kept, threshold + 1, 0))

    def _kept(self, x: int, run: int, bits: int) -> tuple[int, int]:
        """P(x)·L·2^(run+1+shift)."""
        factor = self.length << (run + 1 + self.shift)
        precision = bits + factor.bit_length() + 16
        low, high = exponential_bounds(self.rate * x * x, precision)
        lower, upper = normaliser(self.variance, precision)
        return (factor * low << bits) // upper, (factor * high << bits) // lower + 1

    def values(self, noise: NoiseSource, count: int) -> Ints:
        """Per marked place: a noise above the threshold, or the threshold itself for none."""
        word = partial(_word, noise)
        return np.array([self._one(word) for _ in range(count)], dtype=np.int64)

    def _one(self, word: Callable[[], int]) -> int:
        run, bits = 0, word()
        while bits == 2**64 - 1:
            run, bits = run + 64, word()
        run += (~bits & (bits + 1)).bit_length() - 1
        x = self.threshold + 1 + run * self.length + word() % self.length
        return x if below(word(), partial(self._kept, x, run), word) else self.threshold


@lru_cache(maxsize=64)
def _laplace_tail(scale: float, threshold: int) -> _LaplaceTail:
    return _LaplaceTail(scale, threshold)


@lru_cache(maxsize=64)
def _gaussian_tail(sigma: float, threshold: int) -> _GaussianTail:
    return _GaussianTail(sigma, threshold)


def _shift(chance: Bounds) -> int:
    """The largest number with 2^−shift ≥ chance; 0 where the chance is above ½."""
    bits = 64
    while True:
        lower, upper = chance(bits)
        if lower > 16:
            return max(bits - upper.bit_length(), 0)
        bits *= 2


def _floor(bounds: Bounds) -> int:
    """⌊2⁶⁴·value⌋, at most 2⁶⁴ − 1."""
    bits = 128
    while True:
        lower, upper = (end >> (bits - 64) for end in bounds(bits))
        if lower == upper:
            return min(lower, 2**64 - 1)
        bits *= 2


@lru_cache(maxsize=256)
def normaliser(variance: Fraction, bits: int) -> tuple[int, int]:
    """Integers around 2^bits·Σ_x exp(−x²/(2σ²)): by Poisson summation √(2π)·σ·(1 + 2Σ_k e^{−2π²σ²k²}), or term by
    term where σ is small."""
    if variance >= WIDE_SIGMA**2 and bits <= WIDE_BITS:
        low, high = pi_bounds(2 * bits + 64)
        doubled = 2 * variance
        least = isqrt((doubled.numerator * low // doubled.denominator) >> 64)
        most = isqrt((-(-doubled.numerator * high // doubled.denominator) >> 64) + 1) + 2
        return least, most
    precision = bits + 32
    low = high = 1 << precision
    x = 1
    while True:
        lower, upper = exponential_bounds(Fraction(x * x) / (2 * variance), precision)
        low, high = low + 2 * lower, high + 2 * upper
        if upper <= 1 and x * x > 2 * variance * precision:
            # what follows falls faster than a geometric series of ratio ½ from here on, below one unit each
            rest = 4 * (int(variance) + 2)
            return low >> 32, ((high + rest) >> 32) + 1
        x += 1


@lru_cache(maxsize=16)
def pi_bounds(bits: int) -> tuple[int, int]:
    """π = 16·arctan(1/5) − 4·arctan(1/239)."""
    precision = bits + 32

    def arctan(inverse: int) -> tuple[int, int]:
        power, k, total = (1 << precision) // inverse, 1, 0
        terms = 0
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= inverse * inverse
            k, terms = k + 2, terms + 1
        return total - 2 * terms - 2, total + 2 * terms + 2

    (a_low, a_high), (b_low, b_high) = arctan(5), arctan(239)
    return (16 * a_low - 4 * b_high) >> 32, ((16 * a_high - 4 * b_low) >> 32) + 1
