"""Shuffled bits: what a user sends to a shuffler, and how private that is as her own device sees it.

A message is one bit with the number of the counter it belongs to. Every user sends, for every counter, her own bit
and `noise_bits` random ones, zeros included, so that the number of messages says nothing about her. The accounting
is discreet/privacy/binomial.py, which is numpy only. Proof: discreet/privacy/trust/shuffle.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.device.sampler import Ints, Randomness, below, biased
from discreet.device.tables import FirstVisit, Tables
from discreet.device.wire import SAFE, Readers, Refused, read_fields, whole_number, wire
from discreet.privacy import binomial

Relation = Literal["replace", "zero-out"]
Messages = NDArray[Any]  # of type MESSAGE
MESSAGE = np.dtype([("label", "<u4"), ("bit", "u1")])
HALF = 1 << 63
#: Messages, and steps of an episode, that a device is ready for.
MOST_MESSAGES = 1 << 28


def _check_tables(tables: Tables) -> None:
    low, high = tables.reward_range
    if tables.grid < 2.0**-52 or not math.isfinite(high - low):
        raise ValueError("a reward cannot become a fair bit: the grid must be at least 2⁻⁵² and the range finite")
    if 2 * tables.num_states * (tables.cells[0] + 1) > SAFE:
        raise ValueError("the tables have more than 2⁵³ counters; no device can report on them")


# Users --------------------------------------------------------------------------------------------------------------


class Changes(NamedTuple):
    """How many counters one user can lower and raise at once."""

    down: int
    up: int

    @classmethod
    def of(cls, most: int, neighbours: Relation) -> Changes:
        """A user of at most `most` ones against another such user, or against one without any."""
        if neighbours not in ("replace", "zero-out"):
            raise ValueError(f"neighbours is {neighbours!r}; it must be 'replace' or 'zero-out'")
        return cls(most, most if neighbours == "replace" else 0)


@dataclass(frozen=True)
class CountBits:
    """Which counters an episode switches on: visits (g,s,a), transitions (g,s,a,s'), rewards (g,s,a).

    Only the first visit to a cell (g,s,a) counts, so that every counter moves by one bit; it is chosen before its
    outcome is seen. The reward becomes a bit with P(1) = the reward, clipped, scaled to [0, 1] and on the grid.
    `layer` (staged problems) leaves visits and transitions of one step only, and no rewards.
    """

    tables: Tables
    layer: int | None = None

    statistic: ClassVar[str] = "counts"
    readers: ClassVar[Readers] = {
        "tables": lambda _, value: Tables.from_json(value),
        "layer": lambda name, value: None if value is None else whole_number(name, value),
    }

    def __post_init__(self) -> None:
        _check_tables(self.tables)
        if self.layer is not None and not (self.tables.stages > 1 or self.tables.horizon == 1):
            raise ValueError("one layer of a pooled problem is not defined; leave layer out or count per step")
        if self.layer is not None and not 0 <= self.layer < self.tables.stages:
            raise ValueError(f"layer is {self.layer}; it must be in 0..{self.tables.stages - 1}")

    @property
    def num_counters(self) -> int:
        visits, transitions, rewards = self.tables.cells
        return visits + transitions + rewards if self.layer is None else (visits + transitions) // self.tables.stages

    @property
    def most_changes(self) -> int:
        """Counters one user can switch on: three per cell she can visit first, or two in one layer."""
        return 3 * self.tables.most_first_visits if self.layer is None else 2

    def ones(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: Randomness) -> Ints:
        """The counters of one episode: raw, they stay on the device. None at all for what is no episode."""
        coins = below(noise, self.tables.reward_units, self.tables.horizon)
        pairs, triples, units = self.tables.steps(states, actions, rewards)
        visits, transitions, _ = self.tables.cells
        if self.layer is not None:
            here = slice(self.layer, self.layer + 1)
            cells = visits // self.tables.stages
            first = self.layer * cells
            own = pairs[here] - first
            return np.concatenate([own, cells + triples[here] - first * self.tables.num_states])
        _, first_visits = np.unique(pairs, return_index=True)
        pairs, triples, units = pairs[first_visits], triples[first_visits], units[first_visits]
        paid = pairs[coins[first_visits] < units]
        return np.concatenate([pairs, visits + triples, visits + transitions + paid])


@dataclass(frozen=True)
class FirstVisitBits(FirstVisit):
    """At most one counter per episode: that of her item."""

    tables: Tables
    items: tuple[int, ...]
    has_start: bool = False
    last_successor: bool = True

    statistic: ClassVar[str] = "first-visit"
    most_changes: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_tables(self.tables)
        super().__post_init__()

    @property
    def num_counters(self) -> int:
        return self.num_items

    def ones(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> Ints:
        """Her counter, or none: raw, it stays on the device."""
        place = self.answer(states, actions, rewards, noise)
        return np.array([place] if place >= 0 else [], dtype=np.int64)


Statistic = CountBits | FirstVisitBits
_STATISTICS: dict[str, type[CountBits] | type[FirstVisitBits]] = {
    kind.statistic: kind for kind in (CountBits, FirstVisitBits)
}


@dataclass(frozen=True)
class BitEncoder:
    """What a server publishes before a batch: what to report, and how much noise every user adds to every counter.

    P(noise bit = 1) = flips/2⁶⁴. `users` is the announced size of the batch, `reliable` how many of them must add
    their noise (None: all); fewer are not passed on. Nothing of this is taken on trust: `encode` refuses numbers
    that give less privacy than the device was told to ask for.
    """

    statistic: Statistic
    users: int
    noise_bits: int
    flips: int
    reliable: int | None = None

    def __post_init__(self) -> None:
        if self.users < 2:
            raise ValueError(f"a batch of {self.users} cannot be shuffled; at least 2 users are needed")
        if self.noise_bits < 0:
            raise ValueError(f"noise_bits is {self.noise_bits}; it must not be negative")
        if not 0 <= self.flips <= HALF:
            raise ValueError(f"flips is {self.flips}; it must be a share of 2⁶⁴, at most one half")
        if self.reliable is None:
            object.__setattr__(self, "reliable", self.users)
        if not 1 <= self.counted_on <= self.users:
            raise ValueError(f"reliable is {self.reliable}; it must lie in 1..{self.users}, the number of users")

    @property
    def counted_on(self) -> int:
        """How many users must add their noise."""
        assert self.reliable is not None
        return self.reliable

    @property
    def num_counters(self) -> int:
        return self.statistic.num_counters

    @property
    def probability(self) -> float:
        return self.flips / 2.0**64

    @property
    def messages_per_user(self) -> int:
        return self.num_counters * (1 + self.noise_bits)

    @property
    def needed(self) -> int:
        """The fewest users whose messages are passed on."""
        return max(2, self.counted_on)

    @cached_property
    def form(self) -> str:
        """Names the encoder by its public numbers: SHA-256 of its JSON."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Public numbers; whole ones above 2⁵³ as text."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {"statistic": self.statistic.statistic, **wire(asdict(self.statistic)), **wire(numbers)}

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> BitEncoder:
        """The encoder that a server has published; anything that is not exactly one is refused with a ValueError."""
        name = message.get("statistic") if isinstance(message, dict) else None
        if not isinstance(name, str) or name not in _STATISTICS:
            raise ValueError(f"the statistic of an encoder must be one of {', '.join(map(repr, _STATISTICS))}")
        kind = _STATISTICS[name]
        fields = read_fields("an encoder of bits", message, {**kind.readers, **_NUMBERS}, "statistic")
        statistic = kind(**{name: fields.pop(name) for name in kind.readers})
        return cls(statistic, **fields)

    # How private it is ------------------------------------------------------------------------------------------

    def changes(self, neighbours: Relation = "replace") -> Changes:
        """How many counters fall and rise at most: one user against another, or against nobody."""
        return Changes.of(self.statistic.most_changes, neighbours)

    def _noise(self, honest: float) -> int:
        """Noise bits per counter that can be relied on; 0 where all of them are zero for all practical purposes."""
        bits = self.noise_bits * min(self.counted_on, honest_users(self.users, honest))
        bits = binomial.counted(bits, self.probability) if self.flips else 0
        return bits if bits * self.flips >= 1 << 60 else 0

    def delta(self, epsilon: float, neighbours: Relation = "replace", honest: float = 1.0) -> float:
        """δ at ε of one user, exactly or a little above, from the public numbers alone.

        It holds if `reliable` users of the batch add their noise; with `honest`, if that fraction of `users` does.
        """
        if epsilon == math.inf:
            return 0.0
        bits, changes = self._noise(honest), self.changes(neighbours)
        return binomial.delta_of(bits, self.probability, *changes, epsilon) if bits else 1.0

    def epsilon(self, delta: float, neighbours: Relation = "replace", honest: float = 1.0) -> float:
        """The least ε (to 10⁻⁴, upwards) at which `delta` is at most δ; infinite where no ε will do."""
        bits, changes = self._noise(honest), self.changes(neighbours)
        if not bits or not delta > 0.0:
            return math.inf
        return binomial.epsilon_of(bits, self.probability, *changes, delta) if delta < 1.0 else 0.0

    def check(self, epsilon_at_most: float, delta_at_most: float, neighbours: Relation, honest: float) -> None:
        """Refuse to report with less privacy than the device was told to ask for."""
        if not epsilon_at_most >= 0.0 or not 0.0 <= delta_at_most <= 1.0:
            raise ValueError(
                f"epsilon_at_most is {epsilon_at_most} and delta_at_most {delta_at_most}; expected a number of at "
                "least 0 and a probability"
            )
        if self.delta(epsilon_at_most, neighbours, honest) > delta_at_most:
            raise Refused(
                f"the encoder has epsilon = {self.epsilon(delta_at_most, neighbours, honest):.6g} at delta = "
                f"{delta_at_most:g}, more than the {epsilon_at_most:g} that this device allows; nothing is sent"
            )
        if max(self.messages_per_user, self.statistic.tables.horizon) > MOST_MESSAGES:
            raise Refused("the encoder asks for more messages or steps than the 2²⁸ a device sends; nothing is sent")

    # Encoding ---------------------------------------------------------------------------------------------------

    def messages(self, ones: Ints, noise: Randomness) -> Messages:
        """Her own bits and her noise, one message per bit and counter, zeros included."""
        C, m = self.num_counters, self.noise_bits
        out = np.zeros((C, 1 + m), dtype=MESSAGE)
        out["label"] = np.arange(C, dtype=np.uint32)[:, None]
        out["bit"][ones, 0] = 1
        if m:
            out["bit"][:, 1:] = biased(noise, self.flips, C * m).reshape(C, m)
        return out.reshape(-1)

    def encode(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        noise: Randomness,
        *,
        epsilon_at_most: float,
        delta_at_most: float,
        neighbours: Relation = "replace",
        honest: float = 1.0,
    ) -> Messages:
        """All messages of one user; they carry no name. Whatever is no episode is sent as one without any step.

        The device says how much privacy it asks for, against which change, and which fraction of the announced
        users it is ready to rely on (besides what the encoder says); an encoder that gives less is refused.
        """
        self.check(epsilon_at_most, delta_at_most, neighbours, honest)
        return self.messages(self.statistic.ones(states, actions, rewards, noise), noise)


_NUMBERS: Readers = dict.fromkeys(("users", "noise_bits", "flips", "reliable"), whole_number)


def honest_users(users: int, honest: float) -> int:
    """How many of a batch can be relied on: ⌊honest·n⌋ exactly, of the decimal that was written."""
    if not 0.0 < honest <= 1.0:
        raise ValueError(f"honest is {honest}; it must be a fraction in (0, 1]")
    return math.floor(users * Fraction(repr(float(honest))))


def submit_file(folder: Path, messages: Messages, form: str) -> Path:
    """Put one user's messages into the shuffler's folder, whole or not at all; the name tells the encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{form}-{secrets.token_hex(16)}"
    part = folder / f"{name}.part"
    part.write_bytes(messages.tobytes())
    return part.replace(folder / f"{name}.bits")
