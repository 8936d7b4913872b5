"""XofTurboShake128 (§6.2.1 of the draft): seeds and vectors from a seed, a tag that says what for, and a binder."""

from __future__ import annotations

from collections.abc import Callable

from Crypto.Hash import TurboSHAKE128

from discreet.vdaf import field

SEED_SIZE = 32
#: Of the tag, whose length is written in two bytes.
LONGEST_TAG = 2**16 - 1


def stream(seed: bytes, tag: bytes, binder: bytes) -> Callable[[int], bytes]:
    """Its next n bytes, at every call."""
    message = b"".join([len(tag).to_bytes(2, "little"), tag, len(seed).to_bytes(1, "little"), seed, binder])
    return TurboSHAKE128.new(data=message, domain=1).read


def derived(seed: bytes, tag: bytes, binder: bytes) -> bytes:
    """A new seed."""
    return stream(seed, tag, binder)(SEED_SIZE)


def expanded(seed: bytes, tag: bytes, binder: bytes, length: int) -> bytes:
    """A uniform vector."""
    return first_elements(stream(seed, tag, binder), length)


def first_elements(read: Callable[[int], bytes], length: int) -> bytes:
    """The first so many 16 bytes of a stream that are below p (28·2⁶⁴ of 2¹²⁸ are not)."""
    vector = field.elements(read(field.SIZE * length))
    while len(vector) < field.SIZE * length:
        vector += field.elements(read(field.SIZE))
    return vector
