"""Shuffled bits for an analyzer that is trusted with no sender: every message is sealed by itself with HPKE.

The shuffler, to whom they are sent, can count and permute them and opens none; the analyzer opens all of a batch and
cannot tell whose they are. Needs `cryptography`. Proof: discreet/privacy/trust/shuffle.md.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from discreet.device.bits import MESSAGE, BitEncoder, FirstVisitBits, Messages
from discreet.device.sampler import Ints, Noise, Randomness
from discreet.device.shares import SEAL, hpke
from discreet.device.tables import Tables
from discreet.device.wire import Encoder, Readers, canonical, text

#: Before what binds sealed messages to their encoder, and before what a pass signs.
PURPOSE, PASS = b"discreet-shuffle-1", b"discreet-pass-1"
#: Bytes of a sealed message.
SEALED = MESSAGE.itemsize + SEAL


@dataclass(frozen=True)
class ShuffledEncoder(Encoder):
    """All bits of one user, each sealed for the analyzer (X25519, hex).

    `task` names the deployment and the batch. All people of a batch have the very same encoder, also where they are
    of several epochs: otherwise their messages could be told apart by the epoch.
    """

    bits: BitEncoder
    analyzer: str
    task: str

    kind: ClassVar[str] = "shuffled"
    readers: ClassVar[Readers] = {
        "bits": lambda _, value: BitEncoder.from_json(value),
        "analyzer": text,
        "task": text,
    }

    def __post_init__(self) -> None:
        if not all(re.fullmatch("[0-9a-f]{64}", name) for name in (self.analyzer, self.task)):
            raise ValueError("the analyzer's key and the task of a shuffled encoder are 64 hex digits each")

    def to_json(self) -> dict[str, Any]:
        return {"encoder": self.kind, "bits": self.bits.to_json(), "analyzer": self.analyzer, "task": self.task}

    @property
    def tables(self) -> Tables:
        return self.bits.statistic.tables

    @property
    def first_visit(self) -> FirstVisitBits | None:
        """What is asked for where it is one step; None where it is all of them."""
        return self.bits.statistic if isinstance(self.bits.statistic, FirstVisitBits) else None

    @property
    def epsilon(self) -> float:
        """Not finite without a δ: a device asks `bits.check`."""
        return math.inf

    @property
    def size(self) -> int:
        return self.bits.num_counters

    @property
    def bundle_size(self) -> int:
        """Bytes of what every user sends, whatever happened to her."""
        return SEALED * self.bits.messages_per_user

    @property
    def batch_size(self) -> int:
        """Messages of a complete batch."""
        return self.bits.users * self.bits.messages_per_user

    @cached_property
    def context(self) -> bytes:
        """Binds messages to everything that is published here."""
        return PURPOSE + hashlib.sha256(canonical(self.to_json())).digest()

    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        """Her bundle. Unchecked: a device asks `bits.check` first."""
        return self.sealed(self.bits.messages(self.bits.statistic.ones(states, actions, rewards, noise), noise))

    def silent(self) -> bytes:
        """The bundle of somebody with nothing to report: what a shuffler adds for whoever sent none."""
        return self.payload(None, None, None, Noise())

    def sealed(self, messages: Messages) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        key, suite = X25519PublicKey.from_public_bytes(bytes.fromhex(self.analyzer)), hpke()
        return b"".join(suite.encrypt(message.tobytes(), key, self.context) for message in messages)

    def opened(self, key: Any, batch: bytes) -> Messages:
        """The messages of a permuted batch as the analyzer reads them (`key`: its X25519 private key).

        One that cannot be opened is a zero of no counter: whoever sent it took away her own noise only.
        """
        from cryptography.exceptions import InvalidTag

        suite, found = hpke(), np.zeros(len(batch) // SEALED, dtype=MESSAGE)
        found["label"] = np.iinfo(np.uint32).max
        for place, message in enumerate(cut(batch)):
            try:
                plain = bytes(suite.decrypt(message, key, self.context))
            except (ValueError, InvalidTag):
                continue
            if len(plain) == MESSAGE.itemsize:
                found[place] = np.frombuffer(plain, dtype=MESSAGE)[0]
        return found

    def entries(self, payload: bytes) -> tuple[Ints, Ints]:
        """Nothing: a bundle is sealed, and adds what its batch adds."""
        if len(payload) != self.bundle_size:
            raise ValueError(self.refusal)
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing

    def tally(self, payload: bytes) -> Ints:
        return self._dense(payload)


def cut(messages: bytes) -> list[bytes]:
    """Sealed messages one by one."""
    return [messages[i : i + SEALED] for i in range(0, len(messages), SEALED)]


def pass_of(head: bytes, slot: int) -> bytes:
    """What the analyzer signs to let whoever has this place of an announced epoch in at the shuffler, who need not
    know her: one bundle per place."""
    return PASS + head + slot.to_bytes(8, "big")
