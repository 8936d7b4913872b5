"""What goes over the wire: the public numbers of encoders, the reports made with them, and the refusal to send one.

Everything is JSON with exact whole numbers: keys sorted where bytes are named by their SHA-256, whole numbers beyond
2⁵³ as texts of their digits, payloads in base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from discreet.device.sampler import Ints, Randomness

#: Larger whole numbers are written as texts: JavaScript rounds them.
SAFE = 1 << 53
Readers = Mapping[str, Callable[[str, Any], Any]]


class Refused(ValueError):
    """The device sends nothing. Why depends on the encoder and on the device's own limits, never on the episode."""


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def rounded_up(value: Fraction) -> float:
    """The least float that is not below `value`."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


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


def whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    return tuple(whole_number(f"one of {name}", item) for item in list_of(name, value))


def truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")
    return value


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value


def fields_of(what: str, message: Any, *names: str) -> dict[str, Any]:
    """The message, refused unless it has exactly these fields."""
    if not isinstance(message, dict) or set(message) != set(names):
        raise ValueError(f"{what} has exactly the fields {', '.join(names)} and no others")
    return message


def read_fields(what: str, message: Any, readers: Readers, *others: str) -> dict[str, Any]:
    """What a message says, each field by its reader; it has these fields, the others, and no more."""
    fields = fields_of(what, message, *others, *readers)
    return {name: reader(name, fields[name]) for name, reader in readers.items()}


# Messages -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """One user's message: all a server ever learns about her. `form` names the encoder that made it."""

    user: str
    form: str
    payload: bytes

    def to_json(self) -> dict[str, str]:
        return {"user": self.user, "form": self.form, "payload": base64_of(self.payload)}

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


class Encoder(ABC):
    """Public numbers from which a device knows what it is asked to send and what that costs; it fills them in once.

    A subclass is a frozen dataclass of these numbers.
    """

    kind: ClassVar[str]
    readers: ClassVar[Readers]  # of its fields
    refusal: ClassVar[str] = "the report was made for another form; nothing was added"

    @classmethod
    def from_json(cls, message: Any) -> Self:
        """The encoder that a server has published."""
        fields = read_fields(f"a {cls.kind} encoder", message, cls.readers, "encoder")
        if message["encoder"] != cls.kind:
            raise ValueError(f"the encoder is of another kind; expected {cls.kind!r}")
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """The public numbers, ready for JSON."""
        numbers: Any = self
        return {"encoder": self.kind, **wire(asdict(numbers))}

    @cached_property
    def form(self) -> str:
        """Names the encoder: SHA-256 of what is published, so that a message made with others is not counted."""
        return hashlib.sha256(canonical(self.to_json())).hexdigest()

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Largest log-ratio of the probability of a message between any two records, of the law that is sampled."""

    @property
    def rho(self) -> float:
        """The same in zCDP: an ε-private message costs at most ε²/2."""
        return math.inf if math.isinf(self.epsilon) else rounded_up(Fraction(self.epsilon) ** 2 / 2)

    def check(self, epsilon_at_most: float | None = None, rho_at_most: float | None = None) -> None:
        """Refuse to spend more than the device was given, in ε or in ρ (also when that is not a number)."""
        limits = {"epsilon": (self.epsilon, epsilon_at_most), "rho": (self.rho, rho_at_most)}
        told = {name: (cost, limit) for name, (cost, limit) in limits.items() if limit is not None}
        if not told:
            raise TypeError("what a message may cost must be stated: epsilon_at_most, or rho_at_most for zCDP")
        if any(cost <= limit for cost, limit in told.values()):
            return
        costs = " and ".join(f"{name} = {cost:.6g}" for name, (cost, _) in told.items())
        spent = " and ".join(f"{limit:.6g}" for _, limit in told.values())
        raise Refused(f"the encoder costs {costs}, more than the {spent} this device may spend; nothing was sent")

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers a message is about."""

    @abstractmethod
    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        """A record, randomised."""

    @abstractmethod
    def tally(self, payload: bytes) -> Ints:
        """What a message adds to the server's sums."""

    def entries(self, payload: bytes) -> tuple[Ints, Ints]:
        """The same, sparse: places, each as often as it is added to, and what is added there."""
        values = self.tally(payload)
        places = np.flatnonzero(values)
        return places, values[places]

    def _dense(self, payload: bytes) -> Ints:
        """`tally` of an encoder whose messages are read as `entries`."""
        total = np.zeros(self.size, dtype=np.int64)
        np.add.at(total, *self.entries(payload))
        return total

    def encode(
        self,
        user: str,
        states: Any,
        actions: Any,
        rewards: Any,
        noise: Randomness,
        *,
        epsilon_at_most: float | None = None,
        rho_at_most: float | None = None,
    ) -> Report:
        """The user's only message, if it costs at most what she allows in ε or in ρ, which must be said."""
        self.check(epsilon_at_most, rho_at_most)
        return Report(user, self.form, self.payload(states, actions, rewards, noise))

    def values(self, report: Report) -> Ints:
        """What a report adds to the server's sums, refused if it was made with another encoder."""
        if report.form != self.form:
            raise ValueError(self.refusal)
        return self.tally(report.payload)

    def _bits(self, payload: bytes, size: int) -> Ints:
        """The bits of a message of exactly so many."""
        bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8))
        if len(payload) != -(-size // 8) or bits[size:].any():
            raise ValueError(self.refusal)
        return bits[:size].astype(np.int64)


def check_flips(flips: int) -> None:
    if not 0 <= flips < 2**63:
        raise ValueError(f"flips is {flips}; expected a whole number in 0..2⁶³−1, so that q < ½")
