"""What a deployment tells everybody, signed and in order, and how a device follows it.

A deployment keeps a public log. An entry holds the bytes of one event, the SHA-256 head of the entry before it, and
an Ed25519 signature over both and its number: nobody can change, drop or reorder entries without the key, and two
with one number are evidence against its owner. An announcement is named by its head.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from discreet.device.encoders import Form, encoder_from_json
from discreet.device.wire import base64_of, canonical, fields_of, list_of, text, whole_number, whole_numbers

#: Before what is signed, so that the key signs nothing else by accident.
PURPOSE = b"discreet-log-1"
#: The head before the first entry.
START = bytes(32)
#: Whole weights of the actions of a randomised policy add up to this.
WHOLE = 1 << 32


class Forged(ValueError):
    """A log, or an entry of one, that its deployment cannot have published."""


# The log ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One event of a public log."""

    number: int
    previous: bytes
    body: bytes
    signature: bytes

    @property
    def message(self) -> bytes:
        """What is signed."""
        return PURPOSE + self.number.to_bytes(8, "big") + self.previous + self.body

    @cached_property
    def head(self) -> bytes:
        return hashlib.sha256(self.message).digest()

    @property
    def name(self) -> str:
        """The head as people write it."""
        return self.head.hex()

    @cached_property
    def event(self) -> dict[str, Any]:
        """What is told, which must be the one way to write it."""
        try:
            event = json.loads(self.body)
            if isinstance(event, dict) and isinstance(event.get("event"), str) and canonical(event) == self.body:
                return event
        except (ValueError, RecursionError):
            pass
        raise Forged(f"entry {self.number} of the log is no event, written in the one way there is")

    def check(self, key: bytes) -> None:
        """Refuse an entry that the owner of this public key did not sign."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(key).verify(self.signature, self.message)
        except (InvalidSignature, ValueError):
            raise Forged(f"entry {self.number} of the log does not carry the deployment's signature") from None

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "previous": self.previous.hex(),
            "body": base64_of(self.body),
            "signature": base64_of(self.signature),
        }

    @classmethod
    def from_json(cls, message: Any) -> Entry:
        fields = fields_of("an entry of a log", message, "number", "previous", "body", "signature")
        number, previous = whole_number("number", fields["number"]), text("previous", fields["previous"])
        if not 0 <= number < 1 << 53 or not re.fullmatch("[0-9a-f]{64}", previous):
            raise ValueError("an entry of a log has a number and the head of the entry before it, 64 hex digits")
        body, signature = (decoded(name, fields[name]) for name in ("body", "signature"))
        return cls(number, bytes.fromhex(previous), body, signature)


def decoded(name: str, value: Any) -> bytes:
    """The bytes of a base64 text."""
    try:
        return base64.b64decode(text(name, value).encode("ascii"), validate=True)
    except ValueError:
        raise ValueError(f"{name} is not base64") from None


def check_chain(entries: Iterable[Entry], key: bytes, first: int = 0, head: bytes = START) -> bytes:
    """The head after these entries; refused unless each is signed, numbered from `first` on, and follows the last."""
    for number, entry in enumerate(entries, first):
        if entry.number != number or entry.previous != head:
            raise Forged(f"the log is broken at entry {number}: it does not follow the entry before it")
        entry.check(key)
        head = entry.head
    return head


# Instructions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instructions:
    """What to do at every step in every state: an action, or whole weights of all actions, 2³² together."""

    actions: tuple[tuple[int, ...], ...] | None = None  # (H, S)
    weights: tuple[tuple[tuple[int, ...], ...], ...] | None = None  # (H, S, A)

    @classmethod
    def from_json(cls, message: Any, shape: tuple[int, int, int]) -> Instructions:
        """`shape`: (H, S, A)."""
        H, S, A = shape
        if isinstance(message, dict) and set(message) == {"actions"}:
            actions = tuple(whole_numbers("actions", row) for row in list_of("actions", message["actions"], H))
            if all(len(row) == S and all(0 <= a < A for a in row) for row in actions):
                return cls(actions=actions)
        elif isinstance(message, dict) and set(message) == {"weights"}:
            weights = tuple(
                tuple(whole_numbers("weights", row) for row in list_of("weights", states, S))
                for states in list_of("weights", message["weights"], H)
            )
            rows = [row for states in weights for row in states]
            if all(len(row) == A and min(row) >= 0 and sum(row) == WHOLE for row in rows):
                return cls(weights=weights)
        raise ValueError("instructions are one action, or whole weights of all actions, for every step and state")

    def to_json(self) -> dict[str, Any]:
        name, table = ("actions", self.actions) if self.weights is None else ("weights", self.weights)
        return {name: json.loads(json.dumps(table))}

    def action(self, step: int, state: int, coin: int) -> int:
        """The action; `coin`, in 0..2³²−1, decides where several are played (`coin_of`)."""
        if self.weights is None:
            assert self.actions is not None
            return self.actions[step][state]
        for action, weight in enumerate(self.weights[step][state]):
            coin -= weight
            if coin < 0:
                return action
        raise ValueError("a coin is a whole number in 0..2³²−1")


def coin_of(ticket: bytes, step: int) -> int:
    """A ticket's own coin at a step: the same whenever it is asked for, so that a retry gets the same action."""
    return int.from_bytes(hmac.digest(ticket, b"step" + step.to_bytes(4, "big"), "sha256")[:4], "big")


@dataclass(frozen=True)
class Announcement:
    """What the people of one epoch follow and are asked; `after`: what they do once they have something to report."""

    epoch: int
    repeats: int | None  # the epoch whose instructions these are, word for word
    size: int
    policy: Instructions
    after: Instructions | None
    encoder: Form

    @classmethod
    def from_event(cls, event: Any) -> Announcement:
        names = ("epoch", "repeats", "size", "policy", "after", "encoder")
        fields = fields_of("an announcement", event, "event", *names)
        encoder = encoder_from_json(fields["encoder"])
        if fields["event"] != "announced" or not isinstance(encoder, Form):
            raise ValueError("an announcement tells the people of an epoch what to do and what to report")
        shape = encoder.tables.horizon, encoder.tables.num_states, encoder.tables.num_actions
        epoch, size = whole_number("epoch", fields["epoch"]), whole_number("size", fields["size"])
        repeats = None if fields["repeats"] is None else whole_number("repeats", fields["repeats"])
        if epoch < 1 or size < 1 or not (repeats is None or 1 <= repeats < epoch):
            raise ValueError("an announcement numbers its epoch from 1 on, and has at least one place")
        after = None if fields["after"] is None else Instructions.from_json(fields["after"], shape)
        return cls(epoch, repeats, size, Instructions.from_json(fields["policy"], shape), after, encoder)

    def to_event(self) -> dict[str, Any]:
        return {
            "event": "announced",
            "epoch": self.epoch,
            "repeats": self.repeats,
            "size": self.size,
            "policy": self.policy.to_json(),
            "after": None if self.after is None else self.after.to_json(),
            "encoder": self.encoder.to_json(),
        }

    def action(self, step: int, state: int, reported: bool, ticket: bytes) -> int:
        """What whoever holds this ticket does; `reported`: whether what she will report was settled before."""
        instructions = self.after if reported and self.after is not None else self.policy
        return instructions.action(step, state, coin_of(ticket, step))


def forks(seen: Sequence[Entry], entry: Entry) -> Entry | None:
    """The entry among those seen that has the same number and other contents: evidence of two histories."""
    return next((other for other in seen if other.number == entry.number and other.head != entry.head), None)
