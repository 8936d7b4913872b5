"""SHA-256 (FIPS 180-4) of a text that all have in common and a whole number after it, in decimal digits."""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from discreet.kernels.jit import compiled_beside

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]


def _primes(n: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < n:
        if all(candidate % p for p in found):
            found.append(candidate)
        candidate += 1
    return found


def _cube_root(n: int) -> int:
    """⌊∛n⌋."""
    root = int(n ** (1 / 3))
    while root**3 > n:
        root -= 1
    while (root + 1) ** 3 <= n:
        root += 1
    return root


#: The first bits behind the point of square roots and cube roots of primes.
FIRST = np.array([isqrt(p << 64) % 2**32 for p in _primes(8)], dtype=np.uint32)
ROUNDS = np.array([_cube_root(p << 96) % 2**32 for p in _primes(64)], dtype=np.uint32)
BLOCK = 64
DIGITS = 20


class Prefix(NamedTuple):
    """The text before the number, as far as it fills blocks, and the rest of it."""

    state: Words  # (8,)
    rest: Bytes
    length: int


def prefix_of(text: str) -> Prefix:
    whole = np.frombuffer(text.encode(), dtype=np.uint8)
    state, words, done = FIRST.copy(), np.empty(64, dtype=np.uint32), len(whole) // BLOCK * BLOCK
    for start in range(0, done, BLOCK):
        words[:16] = whole[start : start + BLOCK].view(">u4")
        _compress(state, words)
    return Prefix(state, whole[done:].copy(), len(whole))


@compiled_beside
def _turned(x: np.uint32, places: int) -> np.uint32:
    return np.uint32((x >> np.uint32(places)) | (x << np.uint32(32 - places)))


@compiled_beside
def _compress(state: Words, w: Words) -> None:
    """One block, whose 16 words begin `w`."""
    for i in range(16, 64):
        x, y = w[i - 15], w[i - 2]
        s0 = _turned(x, 7) ^ _turned(x, 18) ^ (x >> np.uint32(3))
        s1 = _turned(y, 17) ^ _turned(y, 19) ^ (y >> np.uint32(10))
        w[i] = np.uint32(w[i - 16] + s0 + w[i - 7] + s1)
    a, b, c, d, e, f, g, h = state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]
    for i in range(64):
        s1 = _turned(e, 6) ^ _turned(e, 11) ^ _turned(e, 25)
        s0 = _turned(a, 2) ^ _turned(a, 13) ^ _turned(a, 22)
        one = np.uint32(h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i])
        two = np.uint32(s0 + ((a & b) ^ (a & c) ^ (b & c)))
        h, g, f, e, d, c, b, a = g, f, e, np.uint32(d + one), c, b, a, np.uint32(one + two)
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d
    state[4] += e
    state[5] += f
    state[6] += g
    state[7] += h


@compiled_beside
def digest_of(before: Words, rest: Bytes, length: int, number: int, state: Words, w: Words) -> None:
    """The digest of a text (`Prefix`) with the number, into `state` (8,); `w` (64,) is overwritten."""
    left = np.uint64(number)
    if number < 0:
        left = np.uint64(0) - left
    digits, power = 1, np.uint64(10)
    while digits < DIGITS and left >= power:
        digits += 1
        power = power * np.uint64(10) if digits < DIGITS else power
    n = rest.size + (number < 0) + digits
    state[:] = before
    for block in range(1 if n + 9 <= BLOCK else 2):
        for i in range(16):
            w[i] = 0
        for i in range(block * BLOCK, min(rest.size, (block + 1) * BLOCK)):
            _put(w, i - block * BLOCK, rest[i])
        if number < 0:
            _put(w, rest.size - block * BLOCK, 45)
        value = left
        for i in range(n - 1, n - 1 - digits, -1):
            _put(w, i - block * BLOCK, 48 + int(value % np.uint64(10)))
            value //= np.uint64(10)
        _put(w, n - block * BLOCK, 128)
        if n + 9 <= (block + 1) * BLOCK:  # the last one: its length in bits, which fit into a word
            w[15] = np.uint32(8 * (length - rest.size + n))
        _compress(state, w)


@compiled_beside
def _put(w: Words, place: int, byte: int) -> None:
    """Set a byte of the 16 words that begin `w`, if it is among them."""
    if 0 <= place < BLOCK:
        w[place >> 2] |= np.uint32(byte) << np.uint32(24 - 8 * (place & 3))
