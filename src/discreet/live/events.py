"""The public log of a deployment: what its entries say. Their order and signatures: device/announcements.py."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from discreet.device.announcements import START, Announcement, Entry, Forged, check_chain, decoded
from discreet.device.wire import base64_of, canonical, fields_of, text, whole_number
from discreet.live.charter import Charter
from discreet.mdp import Ints

__all__ = ["START", "Announcement", "Entry", "Event", "Forged", "check_chain", "event_of", "signed"]


#: What a release shows of another party, and which of it is a digest.
_PROOFS, _HEADS = (("share", "helper"), ("passed", "batch")), ("helper", "batch")


@dataclass(frozen=True)
class Opened:
    """The first entry: what is fixed, who signs, and, where a shuffler collects, what messages are sealed for."""

    charter: Charter
    key: bytes
    hpke: bytes | None = None  # X25519

    def to_event(self) -> dict[str, Any]:
        key = base64_of(self.key)
        said = {"event": "opened", "charter": self.charter.document(), "key": key}
        return said if self.hpke is None else said | {"hpke": self.hpke.hex()}


@dataclass(frozen=True, eq=False)
class Released:
    """The noisy sums of one epoch, and how many tickets it had; never how many of them reported.

    Of two servers: the leader's own noised share, and the head of the helper's entry with the other one. Of a
    shuffler: the digest of the batch that it has passed on, and its signature; where the batch goes on in the next
    epoch there are no values yet.
    """

    epoch: int
    tickets: int
    values: Ints
    share: bytes | None = None
    helper: bytes | None = None
    batch: bytes | None = None
    passed: bytes | None = None

    def to_event(self) -> dict[str, Any]:
        values = base64_of(self.values.astype("<i8").tobytes())
        said = {"event": "released", "epoch": self.epoch, "tickets": self.tickets, "values": values}
        for name in (name for pair in _PROOFS for name in pair):
            proof = getattr(self, name)
            if proof is not None:
                said[name] = proof.hex() if name in _HEADS else base64_of(proof)
        return said


@dataclass(frozen=True)
class Amended:
    """More people may come."""

    users: int

    def to_event(self) -> dict[str, Any]:
        return {"event": "amended", "users": self.users}


@dataclass(frozen=True)
class Paused:
    """No tickets until further notice; those that are out may still report."""

    def to_event(self) -> dict[str, Any]:
        return {"event": "paused"}


@dataclass(frozen=True)
class Resumed:
    def to_event(self) -> dict[str, Any]:
        return {"event": "resumed"}


@dataclass(frozen=True)
class Retired:
    """The last entry. What was collected since the last release is erased."""

    def to_event(self) -> dict[str, Any]:
        return {"event": "retired"}


Event: TypeAlias = Opened | Announcement | Released | Amended | Paused | Resumed | Retired
_BARE: dict[str, type[Paused | Resumed | Retired]] = {"paused": Paused, "resumed": Resumed, "retired": Retired}


def event_of(entry: Entry) -> Event:
    """What an entry says; what is not one, to the letter, is refused."""
    message = entry.event
    kind = message["event"]
    if kind == "announced":
        return Announcement.from_event(message)
    if kind == "opened":
        sealed = ("hpke",) if "hpke" in message else ()
        fields = fields_of("the opening of a log", message, "event", "charter", "key", *sealed)
        charter, key = Charter.from_document(fields["charter"]), decoded("key", fields["key"])
        if bool(sealed) != (charter.shuffler is not None):
            raise ValueError("the opening of a log has a key to seal messages for if, and only if, they are shuffled")
        return Opened(charter, key, *(_head(name, fields[name]) for name in sealed))
    if kind == "released":
        proof = next((pair for pair in _PROOFS if pair[0] in message), ())
        fields = fields_of("a release", message, "event", "epoch", "tickets", "values", *proof)
        values = decoded("values", fields["values"])
        if len(values) % 8:
            raise ValueError("the values of a release are whole numbers of 8 bytes")
        epoch, tickets = (whole_number(name, fields[name]) for name in ("epoch", "tickets"))
        proofs = {name: (_head if name in _HEADS else decoded)(name, fields[name]) for name in proof}
        return Released(epoch, tickets, np.frombuffer(values, dtype="<i8").astype(np.int64), **proofs)
    if kind == "amended":
        return Amended(whole_number("users", fields_of("an amendment", message, "event", "users")["users"]))
    if kind in _BARE:
        fields_of(f"the event {kind}", message, "event")
        return _BARE[kind]()
    raise ValueError("the log holds an event of a kind that is not known; it was written by another version")


def _head(name: str, value: Any) -> bytes:
    if not re.fullmatch("[0-9a-f]{64}", text(name, value)):
        raise ValueError(f"{name} is not the head of an entry, 64 hex digits")
    return bytes.fromhex(value)


class Tellable(Protocol):
    def to_event(self) -> dict[str, Any]: ...


def signed(key: Ed25519PrivateKey, number: int, previous: bytes, event: Tellable) -> Entry:
    """The next entry of a log."""
    unsigned = Entry(number, previous, canonical(event.to_event()), b"")
    return Entry(number, previous, unsigned.body, key.sign(unsigned.message))
