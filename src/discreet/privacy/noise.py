"""Discrete Laplace, Gaussian and geometric noise: cryptographic bits, integers only, exactly the stated law.

Every law here is P(x) ∝ exp(−f(|x|)) on the integers, f(a) = a/scale or a²/(2σ²), or the first on those that are not
negative, drawn from the tables of envelope.py by compiled code; or some of the first, given that they balance
(`Balanced`). The proof is in noise.md.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
import scipy
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import ArrayLike, NDArray

from discreet.kernels.sampling import DONE, EXHAUSTED, draw
from discreet.privacy.envelope import Envelope, check_scale, gaussian_envelope, laplace_envelope

_REFILL_BYTES = 1 << 20
_KEY_BYTES = 32
_KEY_WORDS = _KEY_BYTES // 8
_ZEROS = bytes(_REFILL_BYTES)
_COUNTER_START = bytes(16)
#: Most numbers drawn at once for one balanced vector, unless it is longer itself.
_TRIED = 1 << 16

Drawn = tuple[int, int, int, int, int, int]


# --- laws ---


@dataclass(frozen=True)
class _Scaled:
    """A law whose tail falls by exp(−1/t) per unit, t = scale."""

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale(self.scale, "scale"))

    @property
    def log_ratio(self) -> float:
        """The least float ≥ 1/t = max_x |ln P(X ≥ x)/P(X ≥ x+1)|, x ≥ 0: what one unit of shift costs."""
        ratio = 1 / self.scale
        return ratio if Fraction(ratio) * Fraction(self.scale) >= 1 else math.nextafter(ratio, math.inf)


@dataclass(frozen=True)
class DiscreteLaplace(_Scaled):
    """P(X = x) = tanh(1/(2t))·exp(−|x|/t) on the integers, t = scale: exactly the law `NoiseSource.laplace` draws."""

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
        object.__setattr__(self, "sigma", check_scale(self.sigma, "sigma"))

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
    def excess(self) -> float:
        """η = max_x |ln P_sampled(x)/P(x)|: 0, for the rejection is exact.

        For a law within η, n values with an ideal (ε, δ) guarantee are (ε + 2nη, e^(nη)·δ)-private.
        """
        return 0.0

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
            upper = scipy.special.ndtr(-z) + first / 24 - 7 * third / 5760
        return np.asarray(np.where(negative, 1 - upper, upper))


@dataclass(frozen=True)
class Geometric(_Scaled):
    """P(X = x) = (1 − p)·pˣ on 0, 1, 2, …, p = exp(−1/t), t = scale: the law `NoiseSource.geometric` draws."""

    @property
    def mean(self) -> float:
        """p/(1−p)."""
        return 1.0 / math.expm1(1.0 / self.scale)

    @property
    def variance(self) -> float:
        """p/(1−p)² = 1/(4·sinh²(1/(2t)))."""
        return 0.25 / math.sinh(0.5 / self.scale) ** 2

    def pmf(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X = x)."""
        x = np.asarray(x, np.float64)
        return np.asarray(np.where(x < 0, 0.0, -math.expm1(-1.0 / self.scale) * np.exp(-x / self.scale)))

    def tail(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X > x) = p^(⌊x⌋+1) for x ≥ 0, 1 below."""
        floor = np.floor(np.asarray(x, np.float64))
        return np.asarray(np.exp(-np.maximum(floor + 1.0, 0.0) / self.scale))


@dataclass(frozen=True)
class Balanced:
    """P(Z = z) ∝ exp(−(2/t)·max(Σz⁺, Σz⁻)) on ℤᵈ, t = scale, d = size: the law `NoiseSource.balanced` draws.

    d + 1 draws of `DiscreteLaplace(t)`, given that they add up to 0, without the last.
    """

    scale: float
    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale(self.scale, "scale"))
        if int(self.size) != self.size or self.size < 1:
            raise ValueError(f"size is {self.size!r}; it must be a whole number of at least 1")

    @property
    def variance(self) -> float:
        """Of each number."""
        return _balanced_variance(self.scale, int(self.size))

    def log_weight(self, z: ArrayLike) -> NDArray[np.float64]:
        """ln P(Z = z) for z (…, d), up to one constant."""
        z = np.asarray(z, np.float64)
        most = np.maximum(np.maximum(z, 0.0).sum(axis=-1), np.maximum(-z, 0.0).sum(axis=-1))
        return np.asarray(-2.0 * most / self.scale)


@lru_cache(maxsize=4096)
def _balanced_variance(scale: float, size: int) -> float:
    """d/sinh²(1/t)·∫gᵈ·sin²φ dφ/∫gᵈ dφ, g(φ) = 1 − sin²(φ/2)/cosh²(1/(2t)): noise.md.

    Both integrands are polynomials in cos φ, of which the trapezoid rule is exact from d + 3 points on.
    """
    angles = np.arange(size + 3) * (2.0 * math.pi / (size + 3))
    weights = (1.0 - (np.sin(angles / 2.0) / math.cosh(0.5 / scale)) ** 2) ** size
    return size / math.sinh(1.0 / scale) ** 2 * float(weights @ np.sin(angles) ** 2 / weights.sum())


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
        return self._sample(laplace_envelope(float(scale)), shape)

    def gaussian(self, sigma: float, shape: int | tuple[int, ...]) -> NDArray[np.int64]:
        """Independent draws of `DiscreteGaussian(sigma)`; zeros for sigma 0."""
        if sigma == 0:
            return np.zeros(shape, np.int64)
        return self._sample(gaussian_envelope(float(sigma)), shape)

    def geometric(self, scale: float, shape: int | tuple[int, ...]) -> NDArray[np.int64]:
        """Independent draws of `Geometric(scale)`; zeros for scale 0.

        Discrete Laplace draws of which those below 0 are thrown away: what is left is geometric.
        """
        out = np.zeros(shape, np.int64)
        if scale == 0:
            return out
        flat, filled = out.reshape(-1), 0
        while filled < flat.size:
            drawn = self.laplace(scale, 2 * (flat.size - filled) + 16)
            kept = drawn[drawn >= 0][: flat.size - filled]
            flat[filled : filled + kept.size] = kept
            filled += kept.size
        return out

    def balanced(self, scale: float, size: int) -> NDArray[np.int64]:
        """One draw of `Balanced(scale, size)`; zeros for scale 0.

        Discrete Laplace draws, all drawn again unless a geometric one is at least |their sum|: about 1.8·√size tries.
        """
        if scale == 0 or size == 0:
            return np.zeros(size, np.int64)
        tries = max(1, min(4 + math.isqrt(size), _TRIED // size))
        while True:
            drawn = self.laplace(scale, (tries, size))
            kept = np.flatnonzero(self.geometric(scale, tries) >= np.abs(drawn.sum(axis=1)))
            if kept.size:
                return np.array(drawn[kept[0]])

    def _sample(self, envelope: Envelope, shape: int | tuple[int, ...]) -> NDArray[np.int64]:
        out = np.empty(shape, np.int64)
        flat = out.reshape(-1)
        with self._lock:
            self._renew_after_fork()
            index = 0
            while True:
                begin = self._position
                drawn = draw(self._buffer, begin, flat, index, *envelope.arguments)
                index, end, reason, column, offset, u = cast(Drawn, drawn)  # compiled code returns plain integers
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
