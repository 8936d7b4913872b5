"""What servers compute, in compiled code: the same bytes as `flp.OneHot.query` and `field.total`, sooner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from discreet.kernels import field128
from discreet.kernels.field128 import Words
from discreet.vdaf import field

_RADIX = 2**128


class Circuit(NamedTuple):
    """What all reports have in common."""

    roots: Words
    constants: Words

    @classmethod
    def of(cls, points: int, shares: int) -> Circuit:
        by_points, by_roots, one = (pow(n, -1, field.MODULUS) for n in (points, 2 * points, shares))
        constants = [_RADIX * _RADIX, _RADIX * by_points, _RADIX * by_roots, one]
        return cls(_rows(field.encoded(_RADIX * x for x in field.roots(2 * points))), _rows(field.encoded(constants)))

    def query(self, measurement: bytes, proof: bytes, query: bytes, joint: bytes) -> bytes:
        shares, points, rs = (_rows(measurement), _rows(proof)), _rows(query), _rows(joint)
        return field128.query(*shares, points, rs, self.roots, self.constants).tobytes()


def total(vectors: Sequence[bytes], length: int) -> bytes:
    return field128.total(_rows(b"".join(vectors)).reshape(len(vectors), length, 2)).tobytes()


def _rows(vector: bytes) -> Words:
    return np.frombuffer(vector, dtype="<u8").reshape(-1, 2)
