"""Discrete Laplace and discrete Gaussian noise: cryptographic bits, integers only, exactly the stated law.

Every law here is P(x) ∝ exp(−f(|x|)) on the integers, f(a) = a/scale or a²/(2σ²). A table of integer weights summing
to 2⁶⁴ proposes a block of integers and random bits a point in it; the point is kept when a uniform u, whose bits are
drawn as far as needed, is below an acceptance probability that makes the law exact. The proof is in noise.md.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from discreet.kernels.sampling import DONE, EXHAUSTED, MARGIN, QUICK_BITS, draw

SMALLEST_SCALE, LARGEST_SCALE = 0.1, 1e12

_WORD = 1 << 64
_REFILL_BYTES = 1 << 20
_KEY_BYTES = 32
_KEY_WORDS = _KEY_BYTES // 8
_LONGEST_RUN = 1 << 20  # a tail run this long, of probability 2^−1048576, raises instead of leaving 64 bits
_ZEROS = bytes(_REFILL_BYTES)
_COUNTER_START = bytes(16)

Drawn = tuple[int, int, int, int, int, int]


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
        column_shift = 65 - columns.bit_length()
        self._tables = (threshold, alias, np.array(quick, np.uint32), detail)
        self._arguments = (*self._tables, column_shift, block_shift, np.uint64(curve), tail, margin)

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

    def fill(self, words: NDArray[np.uint64], position: int, out: NDArray[np.int64], start: int) -> Drawn:
        """Run the compiled loop; see `discreet.kernels.sampling.draw`. Compiled code returns plain integers."""
        return cast(Drawn, draw(words, position, out, start, *self._arguments))

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


def _check_scale(scale: float, name: str) -> None:
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise ValueError(f"the {name} of the noise is {scale!r}; it must be 0 or between 0.1 and 1e12")


@lru_cache(maxsize=128)
def _laplace_envelope(scale: float) -> Envelope:
    _check_scale(scale, "scale")
    return Envelope.fitted(1 / Fraction(scale), 1, 16 * Fraction(scale), 4096)


@lru_cache(maxsize=128)
def _gaussian_envelope(sigma: float) -> Envelope:
    _check_scale(sigma, "sigma")
    return Envelope.fitted(1 / (2 * Fraction(sigma) ** 2), 2, 8 * Fraction(sigma), 2048)


# --- laws ---


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(X = x) = tanh(1/(2t))·exp(−|x|/t) on the integers, t = scale: exactly the law `NoiseSource.laplace` draws."""

    scale: float

    def __post_init__(self) -> None:
        _check_scale(self.scale, "scale")
        object.__setattr__(self, "scale", float(self.scale))

    @property
    def log_ratio(self) -> float:
        """The least float ≥ 1/t = max_x |ln P(x)/P(x+1)|: what one unit of shift costs."""
        ratio = 1 / self.scale
        return ratio if Fraction(ratio) * Fraction(self.scale) >= 1 else math.nextafter(ratio, math.inf)

    @property
    def variance(self) -> float:
        """2p/(1−p)² = 1/(2·sinh²(1/(2t)))."""
        return 0.5 / math.sinh(0.5 / self.scale) ** 2

    def pmf(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X = x)."""
        return np.asarray(math.tanh(0.5 / self.scale) * np.exp(-np.abs(np.asarray(x, np.float64)) / self.scale))

    def tail(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X > x) = p^(⌊x⌋+1)/(1+p) for x ≥ 0, p = exp(−1/t); 1 − P(X > −⌊x⌋−1) below."""
        floor = np.floor(np.asarray(x, np.float64))
        negative = floor < 0
        y = np.where(negative, -floor, floor + 1)
        upper = np.exp(-y / self.scale) / (1 + math.exp(-1 / self.scale))
        return np.asarray(np.where(negative, 1 - upper, upper))


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(X = x) ∝ exp(−x²/(2σ²)) on the integers: exactly the law `NoiseSource.gaussian` draws."""

    sigma: float

    def __post_init__(self) -> None:
        _check_scale(self.sigma, "sigma")
        object.__setattr__(self, "sigma", float(self.sigma))

    @property
    def excess(self) -> float:
        """η = max_x |ln P_sampled(x)/P(x)|: 0, for the rejection is exact.

        For a law within η, n values with an ideal (ε, δ) guarantee are (ε + 2nη, e^(nη)·δ)-private.
        """
        return 0.0

    @cached_property
    def _positive(self) -> NDArray[np.float64]:
        """exp(−x²/(2σ²)) at x = 1, 2, … while it is a normal float."""
        x = np.arange(1, math.ceil(37.6 * self.sigma) + 1, dtype=np.float64)
        return np.exp(-0.5 * (x / self.sigma) ** 2)

    @cached_property
    def _upper(self) -> NDArray[np.float64]:
        """Σ_{y > x} exp(−y²/(2σ²)) at x = 0, 1, …, summed from the small end."""
        return np.append(np.cumsum(self._positive[::-1])[::-1], 0.0)

    @property
    def _direct(self) -> bool:
        """Sum term by term where the corrections of the integral are not yet below 1e−12."""
        return self.sigma <= 1000

    @cached_property
    def _normaliser(self) -> float:
        """Σ exp(−x²/(2σ²)); by Poisson summation √(2π)·σ up to 2·exp(−2π²σ²), which is 0 in floats from σ = 10 on."""
        return float(1 + 2 * self._upper[0]) if self._direct else math.sqrt(2 * math.pi) * self.sigma

    @property
    def variance(self) -> float:
        """Σ x²·P(x); σ² up to exponentially small terms for σ ≥ 10."""
        if self.sigma >= 10:
            return self.sigma**2
        x = np.arange(1, self._positive.size + 1, dtype=np.float64)
        return float(2 * (x**2 * self._positive)[::-1].sum() / self._normaliser)

    def pmf(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X = x)."""
        return np.asarray(np.exp(-0.5 * (np.asarray(x, np.float64) / self.sigma) ** 2) / self._normaliser)

    def tail(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X > x), by summation, or for large σ by the midpoint Euler–Maclaurin formula.

        Σ_{y>x} g(y) = ∫_{x+½}^∞ g + g'(x+½)/24 − 7·g‴(x+½)/5760 + O(g⁗′).
        """
        floor = np.floor(np.asarray(x, np.float64))
        negative = floor < 0
        y = np.where(negative, -floor - 1, floor)
        if self._direct:
            upper = self._upper[np.minimum(y, self._upper.size - 1).astype(np.int64)] / self._normaliser
        else:
            z = (y + 0.5) / self.sigma
            density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
            first = -z * density / self.sigma**2
            third = -(z**3 - 3 * z) * density / self.sigma**4
            upper = ndtr(-z) + first / 24 - 7 * third / 5760
        return np.asarray(np.where(negative, 1 - upper, upper))


# --- random bits ---

_live_sources: weakref.WeakSet[NoiseSource] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for source in list(_live_sources):
        source._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class NoiseSource:
    """The only source of privacy randomness: AES-256-CTR words with fast key erasure, and the exact samplers on them.

    Each refill of 1 MiB starts with the key of the next; used words are wiped. Build one with `secure` or `seeded`.
    """

    def __init__(self, key: bytes, sequence: np.random.SeedSequence | None) -> None:
        self._key = key
        self._sequence = sequence
        self._storage = np.zeros(_REFILL_BYTES + AES.block_size // 8, np.uint8)
        self._buffer: NDArray[np.uint64] = self._storage[:_REFILL_BYTES].view(np.uint64)
        self._position = self._buffer.size
        self._refill_key = b""  # of the current buffer, kept for seeded sources only, so that they can be pickled
        self._process = os.getpid()
        self._lock = threading.Lock()
        if sequence is None:
            _live_sources.add(self)

    @classmethod
    def secure(cls) -> NoiseSource:
        """A fresh source keyed by the operating system."""
        return cls(os.urandom(_KEY_BYTES), None)

    @classmethod
    def seeded(cls, seed: int | np.random.SeedSequence) -> NoiseSource:
        """A reproducible source for simulations: the same samplers, no protection of anyone."""
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        return cls(sequence.generate_state(_KEY_WORDS, np.uint64).tobytes(), sequence)

    @property
    def simulation(self) -> bool:
        """Whether the stream is seeded, so that nothing drawn from it is private."""
        return self._sequence is not None

    def spawn(self) -> NoiseSource:
        """An independent source of the same kind."""
        return self.secure() if self._sequence is None else self.seeded(self._sequence.spawn(1)[0])

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` random 64-bit words."""
        if count < 0:
            raise ValueError(f"the number of words is {count}; it must not be negative")
        out = np.empty(count, np.uint64)
        with self._lock:
            self._renew_after_fork()
            self._copy_words(out)
        return out

    def generator(self) -> np.random.Generator:
        """A fast generator started from this source, for simulated crowds and public coins; it protects nobody."""
        return np.random.Generator(np.random.PCG64(int.from_bytes(self.words(4).tobytes(), "little")))

    def laplace(self, scale: float, shape: int | tuple[int, ...]) -> NDArray[np.int64]:
        """Independent draws of `DiscreteLaplace(scale)`; zeros for scale 0."""
        if scale == 0:
            return np.zeros(shape, np.int64)
        return self._sample(_laplace_envelope(float(scale)), shape)

    def gaussian(self, sigma: float, shape: int | tuple[int, ...]) -> NDArray[np.int64]:
        """Independent draws of `DiscreteGaussian(sigma)`; zeros for sigma 0."""
        if sigma == 0:
            return np.zeros(shape, np.int64)
        return self._sample(_gaussian_envelope(float(sigma)), shape)

    def _sample(self, envelope: Envelope, shape: int | tuple[int, ...]) -> NDArray[np.int64]:
        out = np.empty(shape, np.int64)
        flat = out.reshape(-1)
        with self._lock:
            self._renew_after_fork()
            index = 0
            while True:
                begin = self._position
                index, end, reason, column, offset, u = envelope.fill(self._buffer, begin, flat, index)
                self._position = end  # before the wipe: an interrupt must never leave wiped words in line
                self._buffer[begin:end] = 0
                if reason == DONE:
                    return out
                if reason == EXHAUSTED:
                    self._refill()
                    continue
                value = envelope.decide(column, offset, u, self._word)
                if value is not None:
                    flat[index] = value
                    index += 1

    def _word(self) -> int:
        out = np.empty(1, np.uint64)
        self._copy_words(out)
        return int(out[0])

    def _copy_words(self, out: NDArray[np.uint64]) -> None:
        done = 0
        while done < out.size:
            if self._position == self._buffer.size:
                self._refill()
            end = min(self._buffer.size, self._position + out.size - done)
            taken = self._buffer[self._position : end]
            out[done : done + taken.size] = taken
            done += taken.size
            self._position = end
            taken[:] = 0

    def _refill(self) -> None:
        """Encrypt zeros under the current key; the first 32 bytes become the next key and are wiped."""
        self._position = self._buffer.size  # an interrupt from here on leaves an empty buffer
        Cipher(AES(self._key), CTR(_COUNTER_START)).encryptor().update_into(_ZEROS, self._storage.data)
        if self.simulation:
            self._refill_key = self._key
        self._key = self._buffer[:_KEY_WORDS].tobytes()
        self._buffer[:_KEY_WORDS] = 0
        self._position = _KEY_WORDS

    def _renew_after_fork(self) -> None:
        if self._process != os.getpid():  # a fork that ran no hooks
            self._forget()

    def _forget(self) -> None:
        """Drop the stream shared with the parent process: a new key, no words left."""
        self._process = os.getpid()
        if self.simulation:
            return
        self._lock = threading.Lock()
        self._key = os.urandom(_KEY_BYTES)
        self._buffer[:] = 0
        self._position = self._buffer.size

    def __repr__(self) -> str:
        return f"NoiseSource({'seeded, simulation only' if self.simulation else 'secure'})"

    def __getstate__(self) -> tuple[bytes, np.random.SeedSequence, int | None]:
        if self._sequence is None:
            raise TypeError("a secure noise source cannot be pickled or copied: its stream must never repeat")
        with self._lock:
            if not self._refill_key:
                return self._key, self._sequence, None
            return self._refill_key, self._sequence, self._position

    def __setstate__(self, state: tuple[bytes, np.random.SeedSequence, int | None]) -> None:
        key, sequence, position = state
        self.__init__(key, sequence)  # type: ignore[misc]
        if position is not None:
            self._refill()
            self._buffer[:position] = 0
            self._position = position
