"""What goes over the wire: the public numbers of encoders, reports, and the refusal to send them.

Everything is JSON with exact whole numbers: keys sorted where bytes are named by their SHA-256, whole numbers beyond
2⁵³ as texts of their digits, payloads in base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from discreet.device.sampler import Ints

#: Larger whole numbers are written as texts: JavaScript rounds them.
SAFE = 1 << 53
NOT_FOR_THIS = "the message was made for other targets or another policy; nothing was added"
OTHER_FORM = "the report was made for another form; nothing was added"


class Refused(ValueError):
    """The device sends nothing. Why depends on the encoder and on the device's own limits, never on the episode."""


def rounded_up(value: Fraction) -> float:
    """The least float that is not below `value`."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def allow(epsilon: float, epsilon_at_most: float) -> None:
    """Refuse to spend more than the device was given (also when that is not a number)."""
    if not epsilon <= epsilon_at_most:
        raise Refused(
            f"the encoder costs epsilon = {epsilon:.6g}, more than the {epsilon_at_most:.6g} this device may spend; "
            "nothing was sent"
        )


# Publication --------------------------------------------------------------------------------------------------------


def canonical(message: Any) -> bytes:
    """One way to write a message: keys sorted, no spaces, ASCII."""
    return json.dumps(message, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def wire(value: Any) -> Any:
    """The same content with whole numbers beyond 2⁵³ as decimal texts."""
    if isinstance(value, dict):
        return {key: wire(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [wire(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > SAFE:
        return str(value)
    return value


def published(kind: str, encoder: Any) -> dict[str, Any]:
    """The public numbers of an encoder, ready for JSON."""
    return {"encoder": kind, **wire(asdict(encoder))}


def fingerprint(kind: str, encoder: Any) -> str:
    """SHA-256 of what is published, so that a report made with other numbers is not counted."""
    return hashlib.sha256(canonical(published(kind, encoder))).hexdigest()


def whole_number(name: str, value: Any) -> int:
    """A whole number of a message: a JSON integer up to 2⁵³, or the decimal digits of any."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= SAFE:
        return value
    if isinstance(value, str) and re.fullmatch("0|-?[1-9][0-9]{0,39}", value):
        return int(value)
    raise ValueError(f"{name} is not a whole number, which beyond 2⁵³ is written as a text of its digits")


def real_number(name: str, value: Any) -> float:
    """A finite number of a message."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf:
        return rounded_up(Fraction(value))
    raise ValueError(f"{name} is not a finite number")


def list_of(name: str, value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError(f"{name} is not a list" + (f" of {length}" if length is not None else ""))
    return value


def fields_of(what: str, message: Any, *names: str) -> dict[str, Any]:
    """The message, refused unless it has exactly these fields."""
    if not isinstance(message, dict) or set(message) != set(names):
        raise ValueError(f"{what} has exactly the fields {', '.join(names)} and no others")
    return message


@dataclass(frozen=True)
class Report:
    """One user's message: all a server ever learns about her. `form` names the encoder that made it."""

    user: str
    form: str
    payload: bytes

    def to_json(self) -> dict[str, str]:
        return {"user": self.user, "form": self.form, "payload": base64.b64encode(self.payload).decode("ascii")}

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> Report:
        fields = {name: message.get(name) for name in ("user", "form", "payload")}
        if set(message) != set(fields) or not all(isinstance(value, str) for value in fields.values()):
            raise ValueError("a report has three texts: user, form and payload")
        try:
            payload = base64.b64decode(str(fields["payload"]), validate=True)
        except ValueError:
            raise ValueError("the payload of a report must be base64") from None
        return cls(str(fields["user"]), str(fields["form"]), payload)

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json()).encode("utf-8")

    @classmethod
    def from_bytes(cls, message: bytes) -> Report:
        try:
            content = json.loads(message)
        except ValueError:
            raise ValueError("a report must be a JSON text") from None
        if not isinstance(content, dict):
            raise ValueError("a report must be a JSON object")
        return cls.from_json(content)


def bits_of(payload: bytes, size: int, otherwise: str) -> Ints:
    """The bits of a message of exactly so many."""
    bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8))
    if len(payload) != -(-size // 8) or bits[size:].any():
        raise ValueError(otherwise)
    return bits[:size].astype(np.int64)
