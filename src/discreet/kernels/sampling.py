"""The inner loop of the integer noise: table look-ups and integer comparisons on random words, no floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled
from discreet.privacy.envelope import QUICK_BITS

#: Why `draw` came back: all drawn; the buffer is used up; one attempt fell in a tail or too close to call.
DONE, EXHAUSTED, UNDECIDED = 0, 1, 2

#: An attempt reads at most this many words.
WORDS_PER_ATTEMPT = 3

_TERMS = 17  # (1/2)¹⁷/17! < 2⁻⁶⁵: the Taylor remainder of exp(−d) for d ≤ 1/2
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_UNIT = np.uint64(1 << 63)
_QUICK_SHIFT = np.uint64(64 - QUICK_BITS)


@compiled
def high_product(a: np.uint64, b: np.uint64) -> np.uint64:
    """⌊a·b / 2⁶⁴⌋ from four 32-bit products."""
    a_high, a_low = a >> _HALF, a & _LOW
    b_high, b_low = b >> _HALF, b & _LOW
    middle = a_high * b_low + ((a_low * b_low) >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF)


@compiled
def acceptance(
    offset: np.uint64, shift: np.uint64, slope: np.uint64, curve: np.uint64, share: np.uint64
) -> np.uint64:
    """2⁶⁴·share·exp(−d) within `MARGIN`, where d = slope·(r/m) + curve·(r/m)² ≤ 1/2, r = offset, m = 2^shift.

    exp(−d) by Horner's rule, h ← 1 − d·h/k, in units of 2⁻⁶³.
    """
    d = np.uint64(0)
    if offset > np.uint64(0):
        part = offset << (np.uint64(64) - shift)
        d = high_product(part, slope) + high_product(high_product(part, part), curve)
    h = _UNIT
    for k in range(_TERMS, 0, -1):
        h = _UNIT - high_product(d, h) // np.uint64(k)
    return high_product(share, h) << _ONE


@compiled
def draw(
    words: NDArray[np.uint64],
    position: int,
    out: NDArray[np.int64],
    start: int,
    threshold: NDArray[np.uint64],
    alias: NDArray[np.uint16],
    quick: NDArray[np.uint32],
    detail: NDArray[np.uint64],
    column_shift: int,
    block_shift: int,
    curve: np.uint64,
    tail: int,
    margin: int,
) -> tuple[int, int, int, np.int64, np.int64, np.uint64]:
    """Fill out[start:] from `words[position:]`; returns (next index, next position, reason, column, offset, u).

    Word 1 picks a column by the alias method, word 2 the offset r in its block and the leading bits of u, word 3
    completes u to 64 bits. The point is accepted when u < a(x). The quick test settles almost all attempts; then the
    proven interval around a(x); what is left goes back to the caller, who decides it exactly. An attempt starts only
    if all its words are there, so running out of words never depends on the value being drawn.
    """
    index_shift = np.uint64(column_shift)
    shift = np.uint64(block_shift)
    mask = (_ONE << shift) - _ONE
    bound = np.uint64(margin)
    size = out.size
    last = words.size - WORDS_PER_ATTEMPT
    i = start
    while i < size:
        if position > last:
            return i, position, EXHAUSTED, np.int64(0), np.int64(0), np.uint64(0)
        first = words[position]
        second = words[position + 1]
        column = np.int64(first >> index_shift)
        if first >= threshold[column]:
            column = np.int64(alias[column])
        offset = second & mask
        magnitude = ((column >> 1) << block_shift) + np.int64(offset)
        value = magnitude ^ -(column & 1)  # y or −1−y
        if second >> _QUICK_SHIFT < np.uint64(quick[column]):
            position += 2
            out[i] = value
            i += 1
            continue
        u = (second & ~mask) | (words[position + 2] & mask)
        position += 3
        if column >= tail:
            return i, position, UNDECIDED, column, np.int64(0), u
        a = acceptance(offset, shift, detail[column, 0], curve, detail[column, 1])
        if a > u and a - u > bound:
            out[i] = value
            i += 1
        elif not (u > a and u - a > bound):
            return i, position, UNDECIDED, column, np.int64(offset), u
    return i, position, DONE, np.int64(0), np.int64(0), np.uint64(0)
