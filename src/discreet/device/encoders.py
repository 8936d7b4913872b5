"""What runs on a user's own device: one episode in, one randomised report out.

A server publishes an encoder (public numbers only, `to_json`). The device trusts none of them: it computes the ε of
what it is asked to send from these numbers alone, refuses more than it was given, and fills the encoder in once.
Any record can be encoded: one that cannot be read is sent like an episode in which nothing happened. The episode
stays on the device.

Imports numpy and the noise source (`discreet.privacy.noise`, with the kernels it runs on), and nothing of the server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.privacy.noise import LARGEST_SCALE, SMALLEST_SCALE, NoiseSource

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Method = Literal["unary", "response"]

_WORD = 1 << 64
#: Larger whole numbers are written as texts: JavaScript rounds them.
_SAFE = 1 << 53
#: Counters, and sums of one episode, stay below this.
_LARGEST = 1 << 61
NOT_FOR_THIS = "the message was made for other targets or another policy; nothing was added"
OTHER_FORM = "the report was made for another form; nothing was added"


class Refused(ValueError):
    """The device sends nothing. Why depends on the encoder and on the device's own limits, never on the episode."""


# Costs --------------------------------------------------------------------------------------------------------------


def rounded_up(value: Fraction) -> float:
    """The least float that is not below `value`."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _log_of(excess: float) -> float:
    """ln(1 + excess), rounded up: the quotient and the logarithm are each off by less than one last digit."""
    if excess <= 0.0:
        return 0.0
    return math.nextafter(math.nextafter(math.log1p(excess), math.inf), math.inf)


def unary_cost(flips: int) -> float:
    """ln((1−q)/q), q = flips/2⁶⁴, rounded up: the largest log-ratio of a message between items, or one and none."""
    return math.inf if flips == 0 else _log_of((_WORD - 2 * flips) / flips)


def response_cost(words: int, answers: int) -> float:
    """ln(1 + w·D/(1−w)), w = words/2⁶⁴, rounded up: the largest log-ratio of a message between two of D answers."""
    return _log_of(words * answers / (_WORD - words))


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
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _SAFE:
        return str(value)
    return value


def published(kind: str, encoder: Any) -> dict[str, Any]:
    """The public numbers of an encoder, ready for JSON."""
    return {"encoder": kind, **wire(asdict(encoder))}


def _fingerprint(kind: str, encoder: Any) -> str:
    """SHA-256 of what is published, so that a report made with other numbers is not counted."""
    return hashlib.sha256(canonical(published(kind, encoder))).hexdigest()


def whole_number(name: str, value: Any) -> int:
    """A whole number of a message: a JSON integer up to 2⁵³, or the decimal digits of any."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _SAFE:
        return value
    if isinstance(value, str) and re.fullmatch("0|-?[1-9][0-9]{0,39}", value):
        return int(value)
    raise ValueError(f"{name} is not a whole number, which beyond 2⁵³ is written as a text of its digits")


def real_number(name: str, value: Any) -> float:
    """A finite number of a message."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf:
        return rounded_up(Fraction(value))
    raise ValueError(f"{name} is not a finite number")


def _list(name: str, value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError(f"{name} is not a list" + (f" of {length}" if length is not None else ""))
    return value


def _fields(what: str, message: Any, *names: str) -> dict[str, Any]:
    """The message, refused unless it has exactly these fields."""
    if not isinstance(message, dict) or set(message) != set(names):
        raise ValueError(f"{what} has exactly the fields {', '.join(names)}")
    return message


# Records ------------------------------------------------------------------------------------------------------------


def _numbers(values: Any) -> NDArray[Any] | None:
    """A list of numbers, or None for whatever else a record may hold."""
    try:
        array = np.asarray(values)
    except Exception:  # a record is anything at all, and nothing in it may stop the device
        return None
    if array.ndim != 1 or not (array.size == 0 or array.dtype.kind in "biuf"):
        return None
    return array


def _inside(values: NDArray[Any], limit: int) -> bool:
    """Whether all are whole numbers in 0..limit−1."""
    if values.size == 0:
        return True
    whole = values.dtype.kind != "f" or bool((values == np.floor(values)).all())
    return whole and bool(values.min() >= 0) and bool(values.max() < limit)


@dataclass(frozen=True)
class Tables:
    """Public description of the tables reports are about; stages = 1 when steps are pooled over time."""

    num_states: int
    num_actions: int
    horizon: int
    stages: int
    grid: float
    reward_range: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("num_states", "num_actions", "horizon", "stages"):
            object.__setattr__(self, name, int(getattr(self, name)))
        object.__setattr__(self, "grid", float(self.grid))
        low, high = (float(end) for end in self.reward_range)
        object.__setattr__(self, "reward_range", (low, high))
        if min(self.num_states, self.num_actions, self.horizon) < 1 or self.stages not in (1, self.horizon):
            raise ValueError("tables need at least one state, action and step, and 1 or `horizon` stages")
        if not (-math.inf < low < high < math.inf and math.isfinite(high - low)):
            raise ValueError(f"reward_range is {self.reward_range}; expected two finite numbers, low < high")
        if math.frexp(self.grid)[0] != 0.5 or not 1.0 / _LARGEST < self.grid <= 1.0:
            raise ValueError(f"grid is {self.grid}; it must be a power of two, at most 1")
        if self.horizon * self.reward_units >= _LARGEST or 3 * self.cells[1] >= _LARGEST:
            raise ValueError("the tables are too large for 64-bit counters; use a coarser grid or fewer states")

    @classmethod
    def from_json(cls, message: Any) -> Tables:
        fields = _fields("a description of tables", message, *cls.__dataclass_fields__)
        sizes = [whole_number(name, fields[name]) for name in ("num_states", "num_actions", "horizon", "stages")]
        low, high = _list("reward_range", fields["reward_range"], 2)
        ends = real_number("reward_range", low), real_number("reward_range", high)
        return cls(sizes[0], sizes[1], sizes[2], sizes[3], real_number("grid", fields["grid"]), ends)

    @property
    def reward_units(self) -> int:
        """Largest reward in grid units, once the reward range has been scaled to [0, 1]."""
        return math.ceil(1.0 / self.grid)

    @property
    def cells(self) -> tuple[int, int, int]:
        """Number of counters of visits, transitions and rewards."""
        pairs = self.stages * self.num_states * self.num_actions
        return pairs, pairs * self.num_states, pairs

    def read(self, states: Any, actions: Any, rewards: Any) -> tuple[Ints, Ints, Floats]:
        """One person's episode, n actions, n rewards and n + 1 states; no state at all if it cannot be read.

        It cannot when lengths differ, n exceeds the horizon, a state or action is not a whole number in its range,
        or a reward is not a number. Infinite rewards can: like all others they are clipped to the range.
        """
        s, a, r = _numbers(states), _numbers(actions), _numbers(rewards)
        nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        if s is None or a is None or r is None:
            return nothing
        if not (a.size <= self.horizon and r.size == a.size and s.size == a.size + 1):
            return nothing
        if not (_inside(s, self.num_states) and _inside(a, self.num_actions)) or np.isnan(r).any():
            return nothing
        with np.errstate(over="ignore"):
            return s.astype(np.int64), a.astype(np.int64), r.astype(np.float64)

    def indices(self, states: Ints, actions: Ints, rewards: Floats) -> tuple[Ints, Ints, Ints]:
        """Steps of a readable episode, or of one per row, as (g,s,a), (g,s,a,s') and rewards in whole grid units."""
        low, high = self.reward_range
        g = np.minimum(np.arange(actions.shape[-1]), self.stages - 1)
        pairs = ((g * self.num_states + states[..., :-1]) * self.num_actions + actions).astype(np.int64)
        units = np.rint((np.clip(rewards, low, high) - low) / (high - low) / self.grid).astype(np.int64)
        return pairs, pairs * self.num_states + states[..., 1:], units

    def steps(self, states: Any, actions: Any, rewards: Any) -> tuple[Ints, Ints, Ints]:
        """The `indices` of one person's record; of one that cannot be read there are none."""
        return self.indices(*self.read(states, actions, rewards))


# Reports ------------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class LaplaceEncoder:
    """Every counter of the user's own tables plus discrete Laplace noise, visited or not.

    A table without a scale is not in the message at all. A scale of 0 means no noise: its ε is infinite.
    Cost: one draw per counter, 8 bytes each.
    """

    tables: Tables
    scales: tuple[float | None, float | None, float | None]  # of visits, transitions, rewards, in integer units

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(None if b is None else float(b) for b in self.scales))
        told = [b for b in self.scales if b is not None]
        if len(self.scales) != 3 or not told:
            raise ValueError(f"scales are {self.scales}; expected three, of which at least one is a number")
        if not all(b == 0.0 or SMALLEST_SCALE <= b <= LARGEST_SCALE for b in told):
            raise ValueError(f"scales are {self.scales}; each must be 0 or between 0.1 and 1e12")

    @classmethod
    def from_json(cls, message: Any) -> LaplaceEncoder:
        fields = _fields("a laplace encoder", message, "encoder", "tables", "scales")
        scales = [None if b is None else real_number("a scale", b) for b in _list("scales", fields["scales"], 3)]
        return cls(Tables.from_json(fields["tables"]), (scales[0], scales[1], scales[2]))

    @cached_property
    def form(self) -> str:
        return _fingerprint("laplace", self)

    def to_json(self) -> dict[str, Any]:
        return published("laplace", self)

    @cached_property
    def epsilon(self) -> float:
        """Σ_f Δ_f/b_f over the tables of the message, Δ = 2H (rewards: ×units): exactly, then rounded up.

        Two episodes may share no cell, so that each of their at most H steps moves two counters of every table.
        """
        steps = 2 * self.tables.horizon
        moves = zip((steps, steps, steps * self.tables.reward_units), self.scales, strict=True)
        told = [(move, b) for move, b in moves if b is not None]
        if any(b == 0.0 for _, b in told):
            return math.inf
        return rounded_up(sum((move / Fraction(b) for move, b in told), Fraction(0)))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Counters of every table in the message."""
        sizes = [0 if b is None else size for size, b in zip(self.tables.cells, self.scales, strict=True)]
        return sizes[0], sizes[1], sizes[2]

    def contribution(self, states: Any, actions: Any, rewards: Any) -> Ints:
        """(N, T, R) of one episode, one after the other, without tables that are not sent: raw, it stays here."""
        pairs, triples, units = self.tables.steps(states, actions, rewards)
        tables = [np.zeros(size, dtype=np.int64) for size in self.sizes]
        once = np.ones_like(units)
        for table, places, amounts in zip(tables, (pairs, triples, pairs), (once, once, units), strict=True):
            if table.size:
                np.add.at(table, places, amounts)
        return np.concatenate(tables)

    def randomise(self, values: Ints, noise: NoiseSource) -> Ints:
        """x + DLap(scale of the table) for every counter x of every row (one row per user)."""
        noisy = np.array(values, dtype=np.int64)
        start = 0
        for size, scale in zip(self.sizes, self.scales, strict=True):
            if scale is not None:
                noisy[..., start : start + size] += noise.laplace(scale, (*noisy.shape[:-1], size))
            start += size
        return noisy

    def encode(
        self, user: str, states: Any, actions: Any, rewards: Any, noise: NoiseSource, *, epsilon_at_most: float
    ) -> Report:
        """The user's only message, if it costs at most what she allows."""
        allow(self.epsilon, epsilon_at_most)
        noisy = self.randomise(self.contribution(states, actions, rewards), noise)
        return Report(user, self.form, noisy.astype("<i8").tobytes())

    def values(self, report: Report) -> Ints:
        """The noisy counters of a report (for the server)."""
        if report.form != self.form or len(report.payload) != 8 * sum(self.sizes):
            raise ValueError(OTHER_FORM)
        return np.frombuffer(report.payload, dtype="<i8").astype(np.int64)


@dataclass(frozen=True)
class SampledEncoder:
    """One step, drawn by the user's own coin, as one item in optimised unary encoding.

    The item is (g, s, a, s', bit) with P(bit = 1) = the reward, scaled to [0, 1]; an episode that is over before the
    drawn step has no item. The item's own position is on with probability ½, all others with q = flips/2⁶⁴.
    Cost: one word per position, one bit of message each.
    """

    tables: Tables
    flips: int

    def __post_init__(self) -> None:
        if not 0 <= self.flips < 2**63:
            raise ValueError(f"flips is {self.flips}; expected a whole number in 0..2⁶³−1, so that q < ½")

    @classmethod
    def from_json(cls, message: Any) -> SampledEncoder:
        fields = _fields("a sampled-step encoder", message, "encoder", "tables", "flips")
        return cls(Tables.from_json(fields["tables"]), whole_number("flips", fields["flips"]))

    @cached_property
    def form(self) -> str:
        return _fingerprint("sampled-step", self)

    @property
    def num_items(self) -> int:
        return 2 * self.tables.cells[1]

    def to_json(self) -> dict[str, Any]:
        return published("sampled-step", self)

    @cached_property
    def epsilon(self) -> float:
        """ln((1−q)/q), rounded up, whatever the tables are: the message is about one item or none."""
        return unary_cost(self.flips)

    def items(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource) -> Ints:
        """The item of a uniformly drawn step of every readable episode, one per row: raw, it stays on the device.

        −1: over before that step.
        """
        s, a, r = (np.atleast_2d(np.asarray(part)) for part in (states, actions, rewards))
        n, length = a.shape
        h = below(noise, self.tables.horizon, n)
        coin = below(noise, self.tables.reward_units, n)
        if length == 0:
            return np.full(n, -1, dtype=np.int64)
        _, triples, units = self.tables.indices(s, a, r)
        at = np.arange(n), np.minimum(h, length - 1)
        return np.where(h < length, 2 * triples[at] + (coin < units[at]), -1)

    def randomise(self, items: Ints, noise: NoiseSource) -> NDArray[np.bool_]:
        """A row of bits per item, P(on) = ½ at the item and q elsewhere; every bit reads one word in any case."""
        return _unary(items, self.num_items, self.flips, noise)

    def encode(
        self, user: str, states: Any, actions: Any, rewards: Any, noise: NoiseSource, *, epsilon_at_most: float
    ) -> Report:
        """The user's only message, if it costs at most what she allows."""
        allow(self.epsilon, epsilon_at_most)
        items = self.items(*self.tables.read(states, actions, rewards), noise)
        return Report(user, self.form, np.packbits(self.randomise(items, noise)).tobytes())

    def values(self, report: Report) -> Ints:
        """The bits of a report (for the server)."""
        if report.form != self.form:
            raise ValueError(OTHER_FORM)
        return _bits(report.payload, self.num_items, OTHER_FORM)


@dataclass(frozen=True)
class ReportEncoder:
    """Her first visit to a target as one of `items`, or "none", randomised.

    `unary`: a bit per item, on with probability ½ at her item and q = words/2⁶⁴ elsewhere; none has no item.
    `response`: her answer (an item or none) with probability words/2⁶⁴, else one of all D answers, drawn evenly.
    `version` ties the message to one policy and target set.
    """

    tables: Tables
    items: tuple[int, ...]  # 2S·cell + 2·s' + bit: every existing sub-cell of the targets, increasing
    method: Method
    words: int
    version: str
    has_start: bool = False
    last_successor: bool = True  # whether reports on the last step carry its successor (pooled problems)

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(int(item) for item in self.items))
        if any(b <= a for a, b in zip(self.items, self.items[1:], strict=False)) or not self.items:
            raise ValueError("items must be increasing, and there must be at least one")
        if self.method not in ("unary", "response"):
            raise ValueError(f"method is {self.method!r}; it must be 'unary' or 'response'")
        if not 0 <= self.words < (_WORD // 2 if self.method == "unary" else _WORD):
            raise ValueError(f"words is {self.words}; it must be a share of 2⁶⁴, below one half for unary encoding")

    @classmethod
    def from_json(cls, message: Any) -> ReportEncoder:
        """The encoder a server has published."""
        fields = _fields("a first-visit encoder", message, "encoder", *cls.__dataclass_fields__)
        if fields["encoder"] != "first-visit":
            raise ValueError("the encoder is of another kind; expected 'first-visit'")
        if not (isinstance(fields["version"], str) and isinstance(fields["method"], str)):
            raise ValueError("method and version are texts")
        if not (isinstance(fields["has_start"], bool) and isinstance(fields["last_successor"], bool)):
            raise ValueError("has_start and last_successor are true or false")
        return cls(
            Tables.from_json(fields["tables"]),
            tuple(whole_number("an item", item) for item in _list("items", fields["items"])),
            fields["method"],  # type: ignore[arg-type]
            whole_number("words", fields["words"]),
            fields["version"],
            fields["has_start"],
            fields["last_successor"],
        )

    @cached_property
    def form(self) -> str:
        """Names the encoder by its public numbers, so that a message made with others is not counted."""
        return _fingerprint("first-visit", self)

    def to_json(self) -> dict[str, Any]:
        return published("first-visit", self)

    @cached_property
    def epsilon(self) -> float:
        """Largest log-ratio of the probability of a message between any two answers, of the law that is sampled."""
        return unary_cost(self.words) if self.method == "unary" else response_cost(self.words, len(self.items) + 1)

    @cached_property
    def wanted(self) -> frozenset[int]:
        """The target cells."""
        return frozenset(item // (2 * self.tables.num_states) for item in self.items)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {item: place for place, item in enumerate(self.items)}

    def answer(self, states: Any, actions: Any, rewards: Any, noise: NoiseSource) -> int:
        """Place of her item among `items`, or −1 for none: raw, it stays on the device.

        The step is chosen before its outcome is looked at: an outcome that was declared impossible makes it none.
        """
        t = self.tables
        episode = t.read(states, actions, rewards)
        pairs, triples, units = t.indices(*episode)
        coin = int(below(noise, t.reward_units, 1)[0])
        start = t.cells[0]
        if self.has_start and start in self.wanted:
            began = episode[0].size > 0
            return self._place.get(2 * t.num_states * start + 2 * int(episode[0][0]), -1) if began else -1
        for h, cell in enumerate(pairs.tolist()):
            if cell in self.wanted:
                ends = h == t.horizon - 1 and not self.last_successor
                successor = 0 if ends else int(triples[h]) % t.num_states
                return self._place.get(2 * (cell * t.num_states + successor) + (coin < int(units[h])), -1)
        return -1

    def randomise(self, answers: Ints, noise: NoiseSource) -> NDArray[np.bool_] | Ints:
        """One message per answer: a row of bits, or a number in 0..D−1 (D−1 is none)."""
        n, size = answers.size, len(self.items)
        if self.method == "unary":
            return _unary(answers, size, self.words, noise)
        truthful = noise.words(n) < np.uint64(self.words)
        other = below(noise, size + 1, n)
        return np.where(truthful, np.where(answers < 0, size, answers), other)

    def encode(
        self, user: str, states: Any, actions: Any, rewards: Any, noise: NoiseSource, *, epsilon_at_most: float
    ) -> Report:
        """The user's only message, if it costs at most what she allows."""
        allow(self.epsilon, epsilon_at_most)
        message = self.randomise(np.array([self.answer(states, actions, rewards, noise)], dtype=np.int64), noise)
        if self.method == "unary":
            return Report(user, self.form, np.packbits(message.astype(np.bool_)).tobytes())
        return Report(user, self.form, int(message[0]).to_bytes(8, "little"))

    def values(self, report: Report) -> Ints:
        """What a message adds to the tally of items (for the server)."""
        size = len(self.items)
        if report.form != self.form:
            raise ValueError(NOT_FOR_THIS)
        if self.method == "unary":
            return _bits(report.payload, size, NOT_FOR_THIS)
        place = int.from_bytes(report.payload, "little")
        if len(report.payload) != 8 or place > size:
            raise ValueError(NOT_FOR_THIS)
        values = np.zeros(size, dtype=np.int64)
        if place < size:
            values[place] = 1
        return values

    def unbiased(self, tally: Ints, users: int) -> Floats:
        """Expected number of users at every item, from what their messages add up to."""
        share = self.words / _WORD
        if self.method == "unary":
            return np.asarray((tally - users * share) / (0.5 - share))
        return np.asarray((tally - users * (1.0 - share) / (len(self.items) + 1)) / share)


def _unary(items: Ints, size: int, flips: int, noise: NoiseSource) -> NDArray[np.bool_]:
    """A row of `size` bits per item, P(on) = ½ at the item and flips/2⁶⁴ elsewhere."""
    words = noise.words(items.size * size).reshape(items.size, size)
    bits = words < np.uint64(flips)
    rows = np.flatnonzero(items >= 0)
    bits[rows, items[rows]] = words[rows, items[rows]] < np.uint64(_WORD // 2)
    return bits


def _bits(payload: bytes, size: int, otherwise: str) -> Ints:
    """The bits of a message of exactly so many."""
    bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8))
    if len(payload) != -(-size // 8) or bits[size:].any():
        raise ValueError(otherwise)
    return bits[:size].astype(np.int64)


def below(noise: NoiseSource, limit: int, count: int) -> Ints:
    """`count` whole numbers, uniform on 0..limit−1, exactly: words in the incomplete last block are drawn again."""
    size = np.uint64(limit)
    largest = np.uint64(2**64 - 1 - 2**64 % limit)
    words = noise.words(count)
    while (again := words > largest).any():
        words[again] = noise.words(int(again.sum()))
    return (words % size).astype(np.int64)


Encoder = LaplaceEncoder | SampledEncoder | ReportEncoder
_KINDS: dict[str, type[LaplaceEncoder] | type[SampledEncoder] | type[ReportEncoder]] = {
    "laplace": LaplaceEncoder,
    "sampled-step": SampledEncoder,
    "first-visit": ReportEncoder,
}


def encoder_from_json(message: Any) -> Encoder:
    """The encoder a server has published; anything that is not one, to the letter, is refused."""
    kind = message.get("encoder") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"the kind of encoder is not known; expected {', '.join(map(repr, _KINDS))}")
    return _KINDS[kind].from_json(message)


# The device's own memory --------------------------------------------------------------------------------------------


class Reporter:
    """What a device remembers: how much each of its reports may cost, and to which deployments it has reported.

    Whoever owns the device names deployments and stores `reported` before a report is sent.
    """

    def __init__(self, user: str, epsilon_at_most: float, reported: Iterable[str] = ()) -> None:
        if not epsilon_at_most > 0.0:
            raise ValueError("epsilon_at_most must be a positive number")
        self.user, self.epsilon_at_most, self._reported = user, epsilon_at_most, set(reported)

    @property
    def reported(self) -> frozenset[str]:
        """The deployments that have had their one report."""
        return frozenset(self._reported)

    def claim(self, deployment: str) -> None:
        """Take note that this deployment gets its report now; the second time it is refused."""
        if deployment in self._reported:
            raise Refused(
                "this device has already reported to this deployment; a second time would cost epsilon again"
            )
        self._reported.add(deployment)

    def report(
        self, deployment: str, encoder: Encoder, states: Any, actions: Any, rewards: Any, noise: NoiseSource
    ) -> Report:
        """The one report to this deployment. An encoder that costs too much is refused and spends nothing."""
        allow(encoder.epsilon, self.epsilon_at_most)
        self.claim(deployment)
        return encoder.encode(self.user, states, actions, rewards, noise, epsilon_at_most=self.epsilon_at_most)
