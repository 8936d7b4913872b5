"""Field128 (§6.1 of the draft): whole numbers modulo p = 2⁶⁶·(2⁶² − 7) + 1 = 2¹²⁸ − 28·2⁶⁴ + 1.

Between modules a vector is its encoding, 16 bytes per element, the lowest first; inside it is a list of integers in
[0, p). Python's integers are not constant-time: how long an operation takes depends on the numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

MODULUS = 2**66 * 4611686018427387897 + 1
SIZE = 16
#: Of the subgroup of order 2⁶⁶.
GENERATOR = pow(7, 4611686018427387897, MODULUS)
#: The upper bytes of every 16 that are not an element: 2¹²⁸ − p < 2⁶⁹.
_ALL_ONES = b"\xff" * 7


def encoded(numbers: Iterable[int]) -> bytes:
    """Of any integers, modulo p."""
    return b"".join([(x % MODULUS).to_bytes(SIZE, "little") for x in numbers])


def decoded(vector: bytes) -> list[int]:
    words = struct.unpack(f"<{len(vector) // 8}Q", vector)
    return [high << 64 | low for low, high in zip(words[::2], words[1::2], strict=True)]


def is_vector(data: bytes, length: int) -> bool:
    """Whether these bytes encode so many elements, each below p."""
    return len(data) == SIZE * length and (_ALL_ONES not in data or max(decoded(data)) < MODULUS)


def elements(data: bytes) -> bytes:
    """Those 16 bytes that are below p: rejection sampling of uniform elements."""
    return encoded(x for x in decoded(data) if x < MODULUS) if _ALL_ONES in data else data


def total(vectors: Sequence[bytes], length: int) -> bytes:
    """Σ_v v, element by element."""
    columns = zip(*map(decoded, vectors), strict=True) if vectors else [()] * length
    return encoded(map(sum, columns))


@lru_cache(maxsize=64)
def roots(n: int) -> tuple[int, ...]:
    """wⁱ, i < n, of the principal n-th root of unity w; n is a power of two."""
    w = pow(GENERATOR, 2**66 // n, MODULUS)
    return tuple(accumulate(range(n - 1), lambda power, _: power * w % MODULUS, initial=1))


def basis(n: int, t: int) -> list[int]:
    """The Lagrange polynomials of the n-th roots of unity at t, Lᵢ(t) = wⁱ/n · Π_{j≠i} (t − wʲ), at any t."""
    differences = [t - w for w in roots(n)]
    before = list(accumulate(differences[:-1], lambda a, b: a * b % MODULUS, initial=pow(n, -1, MODULUS)))
    after = list(accumulate(differences[:0:-1], lambda a, b: a * b % MODULUS, initial=1))
    return [w * a % MODULUS * b % MODULUS for w, a, b in zip(roots(n), before, reversed(after), strict=True)]
