"""Three parties: devices seal single bits, a shuffler permutes all of a batch, an analyzer counts what it passes on.

The analyzer keeps tickets and the log, as every server of a deployment does, and gets no report. Whoever has a ticket
has a pass (`pass_of`), with which the shuffler takes one bundle of hers. When an epoch is due by its tickets, the
analyzer closes it at the shuffler; the shuffler fills in for everybody who has sent nothing, and passes on the batch
once all its epochs are closed. Everything can be asked again. Proof: privacy/trust/shuffle.md and deployment.md.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from discreet.device.announcements import Announcement, Entry, Forged
from discreet.device.shuffled import SEALED, ShuffledEncoder, cut, pass_of
from discreet.live.asking import Unreachable
from discreet.live.deployment import Open, State
from discreet.live.desk import Sealer
from discreet.live.events import Opened, Released, event_of
from discreet.mdp import Ints
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffler import permuted, tally

#: Before what a shuffler signs: batches that it passes on, and the deployments that it shuffles for.
BATCH, WELCOME = b"discreet-batch-1", b"discreet-welcome-1"


class Passed(NamedTuple):
    """A complete batch as the shuffler passes it on: single sealed messages, permuted, and its signature."""

    messages: bytes
    signature: bytes


class Link(Protocol):
    """How the analyzer reaches the shuffler. Whatever is asked may be asked again."""

    def closed(self, announced: Entry) -> Passed | None:
        """Nobody of this epoch may send any more. The batch that ends with it, the same bytes whenever it is asked
        for; None while the batch goes on."""
        ...


def statement(task: str, digest: bytes, messages: int) -> bytes:
    """What a shuffler signs: of which batch it has passed on how many messages, and their digest."""
    return BATCH + bytes.fromhex(task) + messages.to_bytes(8, "big") + digest


def welcome(opening: Entry) -> bytes:
    """What a shuffler signs when an analyzer shows it the first entry of its log."""
    return WELCOME + opening.head


def signed_by(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


# The shuffler -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """An epoch as the shuffler knows it, from an announcement that the analyzer has signed."""

    epoch: int
    size: int  # people
    head: bytes
    encoder: ShuffledEncoder

    @classmethod
    def of(cls, announced: Entry, opened: Opened) -> Task:
        """Refused unless the analyzer has signed it and it asks for messages that are sealed for it."""
        announced.check(opened.key)
        told = event_of(announced)
        if not isinstance(told, Announcement):
            raise Forged("the analyzer's entry announces no epoch")
        encoder = shuffled_encoder(told)
        if opened.hpke is None or encoder.analyzer != opened.hpke.hex():
            raise Forged("the announcement has messages sealed for somebody else than the analyzer")
        if not told.size <= encoder.bits.users:
            raise Forged("the announcement has places for more people than its batch")
        return cls(told.epoch, told.size, announced.head, encoder)

    def admits(self, opened: Opened, slot: int, admission: bytes, bundle: bytes) -> bool:
        """Whether this is a bundle of whoever has that place: the analyzer's pass, and exactly so many messages."""
        return (
            0 <= slot < self.size
            and len(bundle) == self.encoder.bundle_size
            and signed_by(opened.key, admission, pass_of(self.head, slot))
        )


def mixed(encoder: ShuffledEncoder, bundles: Iterable[bytes], noise: NoiseSource) -> bytes:
    """All single messages of a complete batch in an order drawn evenly from all orders.

    Whoever has sent none has the messages of somebody with nothing to report: there are always as many as announced.
    They are made for everybody, whoever has sent: else the time that it takes would tell how many have not.
    """
    came, spare = list(bundles), [encoder.silent() for _ in range(encoder.bits.users)]
    batch = [*came, *spare[len(came) :]]
    if len(batch) != encoder.bits.users or any(len(bundle) != encoder.bundle_size for bundle in batch):
        raise ValueError("the messages are not those of a complete batch; nothing is passed on")
    return permuted(np.frombuffer(b"".join(_distinct(batch, spare)), dtype=f"V{SEALED}"), noise).tobytes()


def _distinct(bundles: list[bytes], spare: list[bytes]) -> list[bytes]:
    """With spare ones for those that repeat a message, their own or another's: no honest device makes one twice, and
    of a batch that holds one twice an analyzer cannot tell whether the shuffler has done it."""
    times = Counter(message for bundle in bundles for message in cut(bundle))
    alone = [all(times[message] == 1 for message in cut(bundle)) for bundle in bundles]
    return [bundle if once else spare[place] for place, (bundle, once) in enumerate(zip(bundles, alone, strict=True))]


# The analyzer -------------------------------------------------------------------------------------------------------


def analyzer(link: Link, key: X25519PrivateKey) -> Sealer:
    """How an analyzer seals: it counts what the shuffler has passed on, and adds nothing."""

    def seal(state: State, epoch: Open, announced: Entry, _: Iterable[bytes]) -> Released:
        encoder, numbers = shuffled_encoder(epoch.announcement), state.course.expected(epoch.announcement)
        passed = link.closed(announced)
        if (passed is not None) != bool(numbers):
            raise Unreachable("the shuffler counts other people of the batch than the log")
        if passed is None:
            return Released(epoch.epoch, epoch.size, np.zeros(0, dtype=np.int64))
        digest = hashlib.sha256(passed.messages).digest()
        told = statement(encoder.task, digest, encoder.batch_size)
        assert state.charter.shuffler is not None
        if len(passed.messages) != SEALED * encoder.batch_size or not signed_by(
            bytes.fromhex(state.charter.shuffler.key), passed.signature, told
        ):
            raise Unreachable("the shuffler passes on no complete batch, signed with the charter's key")
        if len(set(cut(passed.messages))) != encoder.batch_size:
            raise Unreachable("the shuffler passes on a message twice")
        values = counted(encoder, key, passed.messages)
        return Released(epoch.epoch, epoch.size, values, batch=digest, passed=passed.signature)

    return seal


def counted(encoder: ShuffledEncoder, key: X25519PrivateKey, messages: bytes) -> Ints:
    """How many ones every counter has in a batch."""
    return tally(encoder.bits, encoder.opened(key, messages)).sums


def shuffled_encoder(announcement: Announcement) -> ShuffledEncoder:
    if not isinstance(announcement.encoder, ShuffledEncoder):
        raise Forged("the announcement asks for something else than shuffled messages")
    return announcement.encoder
