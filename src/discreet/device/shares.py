"""One item for two servers of which neither sees it: secret shares with a proof, the helper's sealed with HPKE.

The shares are those of Prio3Histogram (discreet/vdaf): leader and helper can check, together only, that they add up
to one item; what the leader relays to the helper it cannot read. Needs pycryptodome (discreet[live]).
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from discreet.device.sampler import Ints, Randomness
from discreet.device.tables import FirstVisit, Tables
from discreet.device.wire import Encoder, Readers, canonical, text, whole_number

if TYPE_CHECKING:
    from discreet.vdaf import Prio3Histogram

#: Before what binds shares to their encoder.
PURPOSE = b"discreet-two-1"
NONCE = 16
#: What HPKE adds to a message: an X25519 key and a tag of AES-GCM.
SEAL = 32 + 16


def task_name(digest: str, epoch: int) -> str:
    """Names an epoch of a deployment: SHA-256 of the charter's digest and the epoch's number."""
    return hashlib.sha256(bytes.fromhex(digest) + epoch.to_bytes(8, "big")).hexdigest()


class Parts(NamedTuple):
    """A report as the leader gets it."""

    nonce: bytes
    public: bytes
    leader: bytes
    sealed: bytes  # the helper's share, for its eyes only


@dataclass(frozen=True)
class ShareEncoder(FirstVisit, Encoder):
    """Her first visit to a target as one of the `items`, or "none" (the last bucket), in two shares.

    `task` names the deployment and the epoch, `helper` is the helper's HPKE key (X25519, hex): shares made for others
    do not verify, and cannot be opened.
    """

    tables: Tables
    items: tuple[int, ...]
    task: str
    helper: str
    chunk: int  # of the proof (`best_chunk_length`)
    has_start: bool = False
    last_successor: bool = True

    kind: ClassVar[str] = "shares"
    readers: ClassVar[Readers] = {**FirstVisit.readers, "task": text, "helper": text, "chunk": whole_number}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(re.fullmatch("[0-9a-f]{64}", name) for name in (self.task, self.helper)):
            raise ValueError("the task and the helper's key of a share encoder are 64 hex digits each")
        if not 1 <= self.chunk <= self.num_items + 1:
            raise ValueError(f"a chunk has {self.chunk} buckets; expected 1 to {self.num_items + 1}")

    @property
    def epsilon(self) -> float:
        """Without noise: it is the servers that add it, each its own."""
        return math.inf

    @cached_property
    def vdaf(self) -> Prio3Histogram:
        from discreet.vdaf import Prio3Histogram

        return Prio3Histogram(2, self.num_items + 1, self.chunk)

    @cached_property
    def context(self) -> bytes:
        """Binds shares to everything that is published here."""
        return PURPOSE + hashlib.sha256(canonical(self.to_json())).digest()

    def bucket(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> int:
        """Raw, it stays on the device."""
        answer = self.answer(states, actions, rewards, noise)
        return self.num_items if answer < 0 else answer

    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        """Her coin is tossed with `noise`; shares are always those of the operating system."""
        return self.shared(self.bucket(states, actions, rewards, noise))

    def shared(self, bucket: int, nonce: bytes | None = None, rand: bytes | None = None) -> bytes:
        nonce = secrets.token_bytes(NONCE) if nonce is None else nonce
        public, (leader, helper) = self.vdaf.shard(self.context, bucket, nonce, rand)
        return nonce + public + leader + self._seal(helper, nonce, public)

    def _seal(self, share: bytes, nonce: bytes, public: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        key = X25519PublicKey.from_public_bytes(bytes.fromhex(self.helper))
        return bytes(hpke().encrypt(share, key, self.info(nonce, public)))

    def info(self, nonce: bytes, public: bytes) -> bytes:
        """What a sealed share belongs to."""
        return self.context + nonce + public

    def parts(self, payload: bytes) -> Parts:
        """A report, cut where its lengths say."""
        sizes = NONCE, self.vdaf.public_share_size, self.vdaf.leader_share_size, self.vdaf.helper_share_size + SEAL
        if len(payload) != sum(sizes):
            raise ValueError(self.refusal)
        ends = np.cumsum(sizes).tolist()
        return Parts(*(payload[end - size : end] for end, size in zip(ends, sizes, strict=True)))

    def entries(self, payload: bytes) -> tuple[Ints, Ints]:
        """Nothing: one share alone adds nothing that anybody could read."""
        self.parts(payload)
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing

    def tally(self, payload: bytes) -> Ints:
        return self._dense(payload)


def hpke() -> Any:
    """DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM of RFC 9180."""
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
