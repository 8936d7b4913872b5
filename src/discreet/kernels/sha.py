"""SHA-256 (FIPS 180-4) of a text that all have in common and whole numbers after it, in decimal digits.

Blocks of several numbers are worked on side by side, so that the compiler can use vector registers: in a buffer, word
i of all lanes comes before word i + 1. Beside their words it holds what a and e were before every round. There are
twice as many lanes as a register has, for a round waits for what the last one stored.
"""

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
LANES = 32
#: Where words, a and e begin in a buffer: 64 words, and of a and e four from before the first round.
A, E, SIZE = 64 * LANES, 132 * LANES, 200 * LANES


class Prefix(NamedTuple):
    """The text before the number, as far as it fills blocks, and the rest of it."""

    state: Words  # (8,)
    rest: Bytes
    length: int


def prefix_of(text: str) -> Prefix:
    whole = np.frombuffer(text.encode(), dtype=np.uint8)
    state, done = np.repeat(FIRST[:, None], LANES, axis=1), len(whole) // BLOCK * BLOCK
    buffer = np.empty(SIZE, dtype=np.uint32)
    for start in range(0, done, BLOCK):
        buffer[: 16 * LANES] = np.repeat(whole[start : start + BLOCK].view(">u4"), LANES)
        _compress(state, buffer)
    return Prefix(state[:, 0].copy(), whole[done:].copy(), len(whole))


@compiled_beside
def _turned(x: np.uint32, places: int) -> np.uint32:
    return np.uint32((x >> np.uint32(places)) | (x << np.uint32(32 - places)))


@compiled_beside
def _compress(state: Words, buffer: Words) -> None:
    """One block of every lane, whose 16 words begin the buffer; `state` is (8, lanes)."""
    for i in range(16 * LANES, 64 * LANES):
        x, y = buffer[i - 15 * LANES], buffer[i - 2 * LANES]
        s0 = _turned(x, 7) ^ _turned(x, 18) ^ (x >> np.uint32(3))
        s1 = _turned(y, 17) ^ _turned(y, 19) ^ (y >> np.uint32(10))
        buffer[i] = np.uint32(buffer[i - 16 * LANES] + s0 + buffer[i - 7 * LANES] + s1)
    for i in range(4):
        for lane in range(LANES):
            buffer[A + i * LANES + lane], buffer[E + i * LANES + lane] = state[3 - i, lane], state[7 - i, lane]
    for i in range(64):
        for j in range(i * LANES, (i + 1) * LANES):
            d, c, b, a = buffer[A + j], buffer[A + j + LANES], buffer[A + j + 2 * LANES], buffer[A + j + 3 * LANES]
            h, g, f, e = buffer[E + j], buffer[E + j + LANES], buffer[E + j + 2 * LANES], buffer[E + j + 3 * LANES]
            s1 = _turned(e, 6) ^ _turned(e, 11) ^ _turned(e, 25)
            s0 = _turned(a, 2) ^ _turned(a, 13) ^ _turned(a, 22)
            one = np.uint32(h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i] + buffer[j])
            two = np.uint32(s0 + ((a & b) ^ (a & c) ^ (b & c)))
            buffer[E + j + 4 * LANES], buffer[A + j + 4 * LANES] = np.uint32(d + one), np.uint32(one + two)
    for i in range(4):
        for lane in range(LANES):
            state[i, lane] += buffer[A + (67 - i) * LANES + lane]
            state[4 + i, lane] += buffer[E + (67 - i) * LANES + lane]


@compiled_beside
def digests_of(before: Words, rest: Bytes, length: int, numbers: Ints, found: Words) -> None:
    """(n, 8) The digests of a text (`Prefix`) with one of the numbers each."""
    state, buffer = np.empty((8, LANES), dtype=np.uint32), np.empty(SIZE, dtype=np.uint32)
    words, blocks = np.empty(32 * LANES, dtype=np.uint32), np.zeros(LANES, dtype=np.int64)
    begun = np.zeros(32, dtype=np.uint32)
    for i in range(rest.size):
        begun[i >> 2] |= _at(i, rest[i])
    for start in range(0, numbers.size, LANES):
        there = min(LANES, numbers.size - start)
        for i in range(32):
            words[i * LANES : (i + 1) * LANES] = begun[i]
        for lane in range(there):
            blocks[lane] = _written(words, lane, rest.size, length, numbers[start + lane])
        for i in range(8):
            state[i] = before[i]
        for block in range(blocks.max()):
            buffer[: 16 * LANES] = words[16 * LANES * block : 16 * LANES * (block + 1)]
            _compress(state, buffer)
            for lane in range(there):
                if blocks[lane] == block + 1:
                    for i in range(8):
                        found[start + lane, i] = state[i, lane]


@compiled_beside
def _written(words: Words, lane: int, before: int, length: int, number: int) -> int:
    """Write a number behind so many bytes, as it is padded; how many blocks they fill."""
    left = np.uint64(number)
    if number < 0:
        left = np.uint64(0) - left
    digits, power = 1, np.uint64(10)
    while digits < DIGITS and left >= power:
        digits += 1
        power = power * np.uint64(10) if digits < DIGITS else power
    first = before + (number < 0)
    n = first + digits
    place, word = n, _at(n, 128)
    while place > before:  # backwards, word by word
        if place & 3 == 0:
            words[(place >> 2) * LANES + lane] |= word
            word = np.uint32(0)
        place -= 1
        tenth = left // np.uint64(10)
        word |= _at(place, 48 + int(left - tenth * np.uint64(10)) if place >= first else 45)
        left = tenth
    words[(place >> 2) * LANES + lane] |= word
    blocks = 1 if n + 9 <= BLOCK else 2
    words[(16 * blocks - 1) * LANES + lane] = np.uint32(8 * (length - before + n))  # in bits, which fit into a word
    return blocks


@compiled_beside
def _at(place: int, byte: int) -> np.uint32:
    """A byte of a text where it is in its word."""
    return np.uint32(np.uint32(byte) << np.uint32(24 - 8 * (place & 3)))
