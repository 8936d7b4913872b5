"""Two servers that add up an epoch together: what the leader asks, what the helper answers, and one noise each.

The leader keeps tickets and the log, as every server of a deployment does; of a report it holds its own share. When
an epoch is due it asks the helper about every report (`Question`), counts those that both have verified, and asks for
the helper's sum, which the helper has noised and published in a log of its own. Everything can be asked again: a lost
answer, or a crash on either side, changes nothing. Proof: privacy/trust/two_servers.md.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from discreet.device.announcements import Announcement, Entry, Forged, check_chain, decoded
from discreet.device.shares import ShareEncoder, hpke
from discreet.device.wire import base64_of, fields_of, text, whole_number
from discreet.live.asking import Unreachable
from discreet.live.charter import Charter
from discreet.live.deployment import Open, State
from discreet.live.desk import Sealer
from discreet.live.events import Opened, Released, event_of
from discreet.live.learning import task_of
from discreet.live.party import Joined, joined_by
from discreet.mdp import Ints
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.two_servers import TwoServerReports
from discreet.vdaf import InvalidReport, Prio3Histogram, VerifyState

LEADER, HELPER = 0, 1
#: Reports in one question.
TOGETHER = 256


class Question(NamedTuple):
    """What the helper is told of a report: nothing that the leader's share would be needed for."""

    nonce: bytes
    public: bytes
    sealed: bytes
    verifier: bytes  # the leader's verifier share


class Link(Protocol):
    """How the leader reaches the helper. Whatever is asked may be asked again."""

    def verified(self, announced: Entry, questions: Sequence[Question]) -> list[bytes | None]:
        """The verifier message of every report that is one; None of all others."""
        ...

    def finished(self, announced: Entry) -> Entry:
        """The entry of the helper's log that publishes its sum of an epoch."""
        ...


def scale(charter: Charter) -> float:
    """Of the noise that each of the two adds."""
    return TwoServerReports(Budget.pure(charter.epsilon)).entry().scale


def verify_key(secret: bytes, task: str) -> bytes:
    """The key with which the two servers query proofs: devices never see it."""
    return hmac.digest(secret, b"discreet-verify" + bytes.fromhex(task), "sha256")


def noised(vdaf: Prio3Histogram, share: bytes, width: float, noise: NoiseSource) -> bytes:
    """A sum of shares with one discrete Laplace noise on every bucket."""
    return vdaf.noised(share, noise.laplace(width, vdaf.length).tolist())


# The leader ---------------------------------------------------------------------------------------------------------


def leader(link: Link, secret: bytes, noise: NoiseSource) -> Sealer:
    """How a leader seals: to be called where its result and the end of the reports are written down together."""

    def seal(state: State, epoch: Open, announced: Entry, payloads: Iterable[bytes]) -> Released:
        encoder = share_encoder(epoch.announcement)
        vdaf, total = encoder.vdaf, _total(link, secret, encoder, announced, payloads)
        theirs = link.finished(announced)
        try:
            theirs.check(bytes.fromhex(_helper_key(state.charter)))
            shared = Shared.from_event(theirs.event)
            if (theirs.number, shared.epoch, shared.task) != (epoch.epoch, epoch.epoch, encoder.task):
                raise Unreachable("the helper publishes another epoch than it was asked for")
            own = noised(vdaf, total, scale(state.charter), noise)
            return Released(epoch.epoch, epoch.size, opened(vdaf, own, shared.values), own, theirs.head)
        except (ValueError, OverflowError) as error:
            raise Unreachable("the helper publishes no sum of this epoch, signed with the charter's key") from error

    return seal


def _total(link: Link, secret: bytes, encoder: ShareEncoder, announced: Entry, payloads: Iterable[bytes]) -> bytes:
    """The leader's sum of the reports that both have verified; of those with one nonce the first is asked about."""
    vdaf, waiting, seen = encoder.vdaf, iter(payloads), set[bytes]()
    total = vdaf.aggregate([])
    while batch := list(islice(waiting, TOGETHER)):
        asked = []
        for payload in batch:
            found = _asked(encoder, secret, payload)
            if found is not None and found[1].nonce not in seen:
                seen.add(found[1].nonce)
                asked.append(found)
        messages = link.verified(announced, [question for _, question in asked])
        if len(messages) != len(asked):
            raise Unreachable("the helper answers another number of questions")
        counted = (_counted(vdaf, kept, message) for (kept, _), message in zip(asked, messages, strict=True))
        total = vdaf.aggregate([total, *(share for share in counted if share is not None)])
    return total


def opened(vdaf: Prio3Histogram, leader_share: bytes, helper_share: bytes) -> Ints:
    """The histogram of the items, from both noised sums; that of "none" is left out, for no learner needs it."""
    return np.array(vdaf.unshard([leader_share, helper_share])[:-1], dtype=np.int64)


def _counted(vdaf: Prio3Histogram, kept: VerifyState, message: bytes | None) -> bytes | None:
    """The leader's share of a report that the helper has verified with it."""
    try:
        return None if message is None else vdaf.verify_next(kept, message)
    except InvalidReport:
        return None


def _asked(encoder: ShareEncoder, secret: bytes, payload: bytes) -> tuple[VerifyState, Question] | None:
    """What to keep and what to ask of a report; None of one that the leader's share alone shows to be none."""
    try:
        nonce, public, own, sealed = encoder.parts(payload)
        key = verify_key(secret, encoder.task)
        state, verifier = encoder.vdaf.verify_init(key, encoder.context, LEADER, nonce, public, own)
    except ValueError:
        return None
    return state, Question(nonce, public, sealed, verifier)


def _helper_key(charter: Charter) -> str:
    assert charter.helper is not None
    return charter.helper.key


def share_encoder(announcement: Announcement) -> ShareEncoder:
    if not isinstance(announcement.encoder, ShareEncoder):
        raise Forged("the announcement asks for something else than shares")
    return announcement.encoder


# The helper ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shared:
    """The helper's noised sum of an epoch: by itself uniformly random numbers."""

    epoch: int
    task: str
    values: bytes

    def to_event(self) -> dict[str, Any]:
        values = base64_of(self.values)
        return {"event": "shared", "epoch": self.epoch, "task": self.task, "values": values}

    @classmethod
    def from_event(cls, event: Any) -> Shared:
        fields = fields_of("a helper's release", event, "event", "epoch", "task", "values")
        if fields["event"] != "shared":
            raise Forged("the helper's log says something else there")
        epoch = whole_number("epoch", fields["epoch"])
        return cls(epoch, text("task", fields["task"]), decoded("values", fields["values"]))


@dataclass(frozen=True)
class Task:
    """An epoch as the helper knows it, from an announcement that the leader has signed."""

    epoch: int
    size: int  # people
    encoder: ShareEncoder

    @classmethod
    def of(cls, announced: Entry, joined: Joined) -> Task:
        """Refused unless the leader has signed it and it names this deployment's helper and task."""
        announced.check(joined.leader)
        told = event_of(announced)
        if not isinstance(told, Announcement):
            raise Forged("the leader's entry announces no epoch")
        encoder, helper = share_encoder(told), joined.charter.helper
        if helper is None or encoder.helper != helper.hpke or encoder.task != task_of(joined.charter, told.epoch):
            raise Forged("the announcement names another task or another helper")
        return cls(told.epoch, told.size, encoder)

    def answer(self, secret: bytes, hpke_key: X25519PrivateKey, question: Question) -> tuple[bytes, bytes] | None:
        """(verifier message, the helper's output share) of a report; None of what is none."""
        encoder, vdaf = self.encoder, self.encoder.vdaf
        try:
            share = bytes(hpke().decrypt(question.sealed, hpke_key, encoder.info(question.nonce, question.public)))
            key = verify_key(secret, encoder.task)
            state, own = vdaf.verify_init(key, encoder.context, HELPER, question.nonce, question.public, share)
            message = vdaf.verifier_shares_to_message(encoder.context, [question.verifier, own])
            return message, vdaf.verify_next(state, message)
        except (ValueError, InvalidTag):
            return None


# Both logs ----------------------------------------------------------------------------------------------------------


def check_both(log: Sequence[Entry], helper_log: Sequence[Entry]) -> int:
    """How many epochs both have published; refused unless every release is the sum of the leader's share and of the
    one that the helper has signed for it. Order, signatures and turns of the leader's own log: `recovered`."""
    opening = event_of(log[0]) if log else None
    if not isinstance(opening, Opened) or opening.charter.helper is None:
        raise Forged("the log does not begin with a charter of two servers")
    own = bytes.fromhex(opening.charter.helper.key)
    check_chain(log, opening.key)
    check_chain(helper_log, own)
    if not helper_log or Joined.from_event(helper_log[0].event) != joined_by(log[0], own):
        raise Forged("the helper's log does not begin with this deployment")
    told, encoders = list(map(event_of, log)), dict[int, ShareEncoder]()
    for event in told:
        if isinstance(event, Announcement):
            encoders[event.epoch] = share_encoder(event)
        elif isinstance(event, Released):
            _check_sum(event, encoders.get(event.epoch), helper_log)
    return sum(isinstance(event, Released) for event in told)


def _check_sum(released: Released, encoder: ShareEncoder | None, helper_log: Sequence[Entry]) -> None:
    if encoder is None or released.share is None or not released.epoch < len(helper_log):
        raise Forged(f"one of the logs does not hold epoch {released.epoch}")
    theirs = helper_log[released.epoch]
    shared = Shared.from_event(theirs.event)
    if theirs.head != released.helper or (shared.epoch, shared.task) != (released.epoch, encoder.task):
        raise Forged(f"the release of epoch {released.epoch} names another entry than the helper has for it")
    if not np.array_equal(opened(encoder.vdaf, released.share, shared.values), released.values):
        raise Forged(f"the release of epoch {released.epoch} is not the sum of both shares")
