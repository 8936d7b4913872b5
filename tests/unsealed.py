"""Shuffled messages that anybody can read: what is tested with them does not rest on the seal, which takes time."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from discreet.device.bits import MESSAGE, Messages
from discreet.device.shuffled import SEALED, ShuffledEncoder, cut

_NUMBERS = count()


class Quiet:
    """A device's randomness without noise: every bit of it is zero, and a reward of 1 pays."""

    def words(self, number: int) -> Any:
        return np.full(number, 1 << 63, dtype=np.uint64)


def sealed(encoder: ShuffledEncoder, messages: Messages) -> bytes:
    """No two are equal, and those of another batch mean nothing, as with a seal."""
    rest = SEALED - MESSAGE.itemsize - 16
    return b"".join(
        message.tobytes() + encoder.context[-16:] + next(_NUMBERS).to_bytes(rest, "big") for message in messages
    )


def opened(encoder: ShuffledEncoder, _: Any, batch: bytes) -> Messages:
    found = np.zeros(len(batch) // SEALED, dtype=MESSAGE)
    found["label"] = np.iinfo(np.uint32).max
    for place, message in enumerate(cut(batch)):
        if message[MESSAGE.itemsize :][:16] == encoder.context[-16:]:
            found[place] = np.frombuffer(message[: MESSAGE.itemsize], dtype=MESSAGE)[0]
    return found


def unseal(monkeypatch: pytest.MonkeyPatch, quiet: bool = False) -> None:
    """`quiet`: without any noise, also of those who are filled in for."""
    monkeypatch.setattr(ShuffledEncoder, "sealed", sealed)
    monkeypatch.setattr(ShuffledEncoder, "opened", opened)
    if quiet:
        monkeypatch.setattr(ShuffledEncoder, "silent", lambda encoder: encoder.payload(None, None, None, Quiet()))
