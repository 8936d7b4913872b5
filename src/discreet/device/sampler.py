"""Randomness on a device: words of the operating system, and what encoders make of them, exactly.

Encoders ask for no more than `Randomness`, so that the device's own `Noise` and the fast `NoiseSource` of simulations
both serve, and give the same bytes for the same words. The laws of `laplace` and `gaussian` are those that encoders
charge for: P(x) ∝ exp(−|x|/scale) and exp(−x²/(2σ²)), by the integer tables of discreet/privacy/envelope.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.privacy.envelope import Envelope, gaussian_envelope, laplace_envelope

Ints = NDArray[np.int64]
_WORD = 1 << 64


class Randomness(Protocol):
    """What encoders ask of a source of random words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` random 64-bit words."""
        ...

    def laplace(self, scale: float, shape: int | tuple[int, ...]) -> Ints:
        """Independent draws of the discrete Laplace law of this scale; zeros for scale 0."""
        ...

    def gaussian(self, sigma: float, shape: int | tuple[int, ...]) -> Ints:
        """Independent draws of the discrete Gaussian law of this σ; zeros for σ = 0."""
        ...


class Noise:
    """The device's own randomness, without compiled code: every word is read when it is used and kept nowhere."""

    def __init__(self) -> None:
        self._read: Callable[[int], bytes] = os.urandom

    @classmethod
    def replayed(cls, words: Iterable[int]) -> Noise:
        """A source that reads these words and then no more: for test vectors, and protects nobody."""
        left = iter(words)

        def read(size: int) -> bytes:
            taken = b"".join(int(word).to_bytes(8, "little") for word in islice(left, size // 8))
            if len(taken) < size:
                raise ValueError("the words to be replayed are used up")
            return taken

        noise = cls()
        noise._read = read
        return noise

    def words(self, count: int) -> NDArray[np.uint64]:
        if count < 0:
            raise ValueError(f"the number of words is {count}; it must not be negative")
        return np.frombuffer(self._read(8 * count), dtype="<u8").astype(np.uint64)

    def laplace(self, scale: float, shape: int | tuple[int, ...]) -> Ints:
        return self._drawn(laplace_envelope(float(scale)) if scale != 0.0 else None, shape)

    def gaussian(self, sigma: float, shape: int | tuple[int, ...]) -> Ints:
        return self._drawn(gaussian_envelope(float(sigma)) if sigma != 0.0 else None, shape)

    def _drawn(self, envelope: Envelope | None, shape: int | tuple[int, ...]) -> Ints:
        values = np.zeros(shape, dtype=np.int64)
        if envelope is not None:
            values.reshape(-1)[:] = [envelope.one(self._word) for _ in range(values.size)]
        return values

    def _word(self) -> int:
        return int.from_bytes(self._read(8), "little")

    def __repr__(self) -> str:
        return f"Noise({'secure' if self._read is os.urandom else 'replayed'})"


def below(noise: Randomness, limit: int, count: int) -> Ints:
    """`count` whole numbers, uniform on 0..limit−1, exactly: words in the incomplete last block are drawn again."""
    size = np.uint64(limit)
    largest = np.uint64(2**64 - 1 - 2**64 % limit)
    words = noise.words(count)
    while (again := words > largest).any():
        words[again] = noise.words(int(again.sum()))
    return (words % size).astype(np.int64)


def chosen(noise: Randomness, size: int, count: int) -> tuple[int, ...]:
    """`count` different numbers of 0..size−1, every set equally likely, in increasing order."""
    order = list(range(size))
    for i in range(count):
        j = i + int(below(noise, size - i, 1)[0])
        order[i], order[j] = order[j], order[i]
    return tuple(sorted(order[:count]))


def biased(noise: Randomness, share: int, count: int) -> NDArray[np.bool_]:
    """`count` bits, each on with probability share/2⁶⁴: one word below a threshold."""
    return np.asarray(noise.words(count) < np.uint64(share))


# The unary code -----------------------------------------------------------------------------------------------------


def unary(items: Ints, size: int, flips: int, noise: Randomness) -> NDArray[np.bool_]:
    """A row of `size` bits per item, P(on) = ½ at the item and flips/2⁶⁴ elsewhere; −1 is no item.

    Every bit reads one word in any case.
    """
    words = noise.words(items.size * size).reshape(items.size, size)
    bits = np.asarray(words < np.uint64(flips))
    rows = np.flatnonzero(items >= 0)
    bits[rows, items[rows]] = words[rows, items[rows]] < np.uint64(_WORD // 2)
    return bits


def unary_cost(flips: int) -> float:
    """ln((1−q)/q), q = flips/2⁶⁴, rounded up: the largest log-ratio of a message between items, or one and none.

    It is also the cost of one bit that is flipped with probability q.
    """
    return math.inf if flips == 0 else log_of((_WORD - 2 * flips) / flips)


def response_cost(words: int, answers: int) -> float:
    """ln(1 + w·D/(1−w)), w = words/2⁶⁴, rounded up: the largest log-ratio of a message between two of D answers."""
    return log_of(words * answers / (_WORD - words))


def log_of(excess: float) -> float:
    """ln(1 + excess), rounded up: the quotient and the logarithm are each off by less than one last digit."""
    if excess <= 0.0:
        return 0.0
    return math.nextafter(math.nextafter(math.log1p(excess), math.inf), math.inf)
