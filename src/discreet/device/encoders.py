"""What runs on a user's own device: one episode in, one randomised report out.

A server publishes an encoder (public numbers only, `to_json`). The device trusts none of them: it computes the ε of
what it is asked to send from these numbers alone, refuses more than it was given, and fills the encoder in once.
Any record can be encoded: one that cannot be read is sent like an episode in which nothing happened. The episode
stays on the device.

Imports numpy, and of the package the exact tables of noise and the accounting of shuffled bits: nothing of the
server, nothing compiled.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.device.bits import BitEncoder, Messages, Relation
from discreet.device.losses import LossEncoder, LossTables
from discreet.device.sampler import Ints, Noise, Randomness, below, biased, response_cost, unary, unary_cost
from discreet.device.shares import ShareEncoder
from discreet.device.shuffled import ShuffledEncoder
from discreet.device.tables import FirstVisit, Floats, Tables
from discreet.device.wire import (
    Encoder,
    Readers,
    Refused,
    Report,
    check_flips,
    list_of,
    real_number,
    rounded_up,
    text,
    whole_number,
)
from discreet.privacy.envelope import LARGEST_SCALE, SMALLEST_SCALE

Method = Literal["unary", "response"]

_WORD = 1 << 64


def _tables(_: str, message: Any) -> Tables | LossTables:
    layered = isinstance(message, dict) and "layers" in message
    return LossTables.from_json(message) if layered else Tables.from_json(message)


def _scales(name: str, value: Any) -> tuple[float | None, ...]:
    return tuple(None if b is None else real_number("a scale", b) for b in list_of(name, value, 3))


# Reports ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CounterEncoder(Encoder):
    """Every counter of the user's own tables plus integer noise, visited or not.

    A table without a scale is not in the message at all. A scale of 0 means no noise: its cost is infinite.
    Cost: one draw per counter, 8 bytes each.
    """

    tables: Tables | LossTables
    scales: tuple[float | None, float | None, float | None]  # of visits, transitions, rewards (or losses)

    readers: ClassVar[Readers] = {"tables": _tables, "scales": _scales}

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(None if b is None else float(b) for b in self.scales))
        told = [b for b in self.scales if b is not None]
        if len(self.scales) != 3 or not told:
            raise ValueError(f"scales are {self.scales}; expected three, of which at least one is a number")
        if not all(b == 0.0 or SMALLEST_SCALE <= b <= LARGEST_SCALE for b in told):
            raise ValueError(f"scales are {self.scales}; each must be 0 or between 0.1 and 1e12")

    @abstractmethod
    def _noise(self, scale: float, shape: tuple[int, ...], noise: Randomness) -> Ints:
        """Independent draws of the law whose cost is stated."""

    def _sum(self, moves: tuple[int, int, int], power: int) -> float:
        """Σ_f moves_f/scale_f^power over the tables of the message: exactly, then rounded up."""
        told = [(move, b) for move, b in zip(moves, self.scales, strict=True) if b is not None]
        if any(b == 0.0 for _, b in told):
            return math.inf
        return rounded_up(sum((move / Fraction(b) ** power for move, b in told), Fraction(0)))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Counters of every table in the message."""
        sizes = [0 if b is None else size for size, b in zip(self.tables.cells, self.scales, strict=True)]
        return sizes[0], sizes[1], sizes[2]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def contribution(self, states: Any, actions: Any, rewards: Any) -> Ints:
        """(N, T, R) of one episode, one after the other, without tables that are not sent: raw, it stays here."""
        tables = self.tables.counters(states, actions, rewards)
        return np.concatenate([table for table, b in zip(tables, self.scales, strict=True) if b is not None])

    def randomise(self, values: Ints, noise: Randomness) -> Ints:
        """x + noise of the table's scale, for every counter x of every row (one row per user)."""
        noisy = np.array(values, dtype=np.int64)
        start = 0
        for size, scale in zip(self.sizes, self.scales, strict=True):
            if scale is not None:
                noisy[..., start : start + size] += self._noise(scale, (*noisy.shape[:-1], size), noise)
            start += size
        return noisy

    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        return self.randomise(self.contribution(states, actions, rewards), noise).astype("<i8").tobytes()

    def tally(self, payload: bytes) -> Ints:
        """The noisy counters."""
        if len(payload) != 8 * sum(self.sizes):
            raise ValueError(self.refusal)
        return np.frombuffer(payload, dtype="<i8").astype(np.int64)


@dataclass(frozen=True)
class LaplaceEncoder(CounterEncoder):
    """Discrete Laplace noise, P(x) ∝ exp(−|x|/b)."""

    kind: ClassVar[str] = "laplace"

    @cached_property
    def epsilon(self) -> float:
        """Σ_f Δ_f/b_f, Δ the `moves` of the tables."""
        return self._sum(self.tables.moves, 1)

    def _noise(self, scale: float, shape: tuple[int, ...], noise: Randomness) -> Ints:
        return noise.laplace(scale, shape)


@dataclass(frozen=True)
class GaussianEncoder(CounterEncoder):
    """Discrete Gaussian noise, P(x) ∝ exp(−x²/(2σ²)): ρ-zCDP, and no finite ε without a δ."""

    kind: ClassVar[str] = "gaussian"

    @property
    def epsilon(self) -> float:
        return math.inf

    @cached_property
    def rho(self) -> float:
        """Σ_f Δ_f²/(2σ_f²), Δ² the `squares` of the tables."""
        return self._sum(self.tables.squares, 2) / 2.0

    def _noise(self, scale: float, shape: tuple[int, ...], noise: Randomness) -> Ints:
        return noise.gaussian(scale, shape)


@dataclass(frozen=True)
class SampledEncoder(Encoder):
    """One step, drawn by the user's own coin, as one item in optimised unary encoding.

    The item is (g, s, a, s', bit) with P(bit = 1) = the reward, scaled to [0, 1], or that of `LossTables.items`; an
    episode that is over before the drawn step has no item. The item's own position is on with probability ½, all
    others with q = flips/2⁶⁴.
    Cost: one word per position, one bit of message each.
    """

    tables: Tables | LossTables
    flips: int

    kind: ClassVar[str] = "sampled-step"
    readers: ClassVar[Readers] = {"tables": _tables, "flips": whole_number}
    method: ClassVar[Method] = "unary"

    def __post_init__(self) -> None:
        check_flips(self.flips)

    @property
    def num_items(self) -> int:
        return self.tables.num_items

    @property
    def size(self) -> int:
        return self.num_items

    @property
    def share(self) -> float:
        """q."""
        return self.flips / _WORD

    @cached_property
    def epsilon(self) -> float:
        """ln((1−q)/q), rounded up, whatever the tables are: the message is about one item or none."""
        return unary_cost(self.flips)

    def randomise(self, items: Ints, noise: Randomness) -> NDArray[np.bool_]:
        """A row of bits per item, P(on) = ½ at the item and q elsewhere; every bit reads one word in any case."""
        return unary(items, self.num_items, self.flips, noise)

    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        items = self.tables.item(states, actions, rewards, noise)
        return np.packbits(self.randomise(items, noise)).tobytes()

    def tally(self, payload: bytes) -> Ints:
        return self._bits(payload, self.num_items)


@dataclass(frozen=True)
class ReportEncoder(FirstVisit, Encoder):
    """Her first visit to a target as one of `items`, or "none", randomised.

    `unary`: a bit per item, on with probability ½ at her item and q = words/2⁶⁴ elsewhere; none has no item.
    `response`: her answer (an item or none) with probability words/2⁶⁴, else one of all D answers, drawn evenly.
    `version` ties the message to one policy and target set.
    """

    tables: Tables
    items: tuple[int, ...]
    method: Method
    words: int
    version: str
    has_start: bool = False
    last_successor: bool = True

    kind: ClassVar[str] = "first-visit"
    readers: ClassVar[Readers] = {**FirstVisit.readers, "method": text, "words": whole_number, "version": text}
    refusal: ClassVar[str] = "the message was made for other targets or another policy; nothing was added"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in ("unary", "response"):
            raise ValueError(f"method is {self.method!r}; it must be 'unary' or 'response'")
        if not 0 <= self.words < (_WORD // 2 if self.method == "unary" else _WORD):
            raise ValueError(f"words is {self.words}; it must be a share of 2⁶⁴, below one half for unary encoding")

    @property
    def share(self) -> float:
        """q of the unary code; how many tell the truth outright, of responses."""
        return self.words / _WORD

    @cached_property
    def epsilon(self) -> float:
        return unary_cost(self.words) if self.method == "unary" else response_cost(self.words, self.num_items + 1)

    def randomise(self, answers: Ints, noise: Randomness) -> NDArray[np.bool_] | Ints:
        """One message per answer: a row of bits, or a number in 0..D−1 (D−1 is none)."""
        n, size = answers.size, self.num_items
        if self.method == "unary":
            return unary(answers, size, self.words, noise)
        truthful = biased(noise, self.words, n)
        other = below(noise, size + 1, n)
        return np.where(truthful, np.where(answers < 0, size, answers), other)

    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        message = self.randomise(np.array([self.answer(states, actions, rewards, noise)], dtype=np.int64), noise)
        if self.method == "unary":
            return np.packbits(message.astype(np.bool_)).tobytes()
        return int(message[0]).to_bytes(8, "little")

    def tally(self, payload: bytes) -> Ints:
        size = self.num_items
        if self.method == "unary":
            return self._bits(payload, size)
        place = int.from_bytes(payload, "little")
        if len(payload) != 8 or place > size:
            raise ValueError(self.refusal)
        return np.asarray(np.arange(size) == place, dtype=np.int64)

    def unbiased(self, tally: Ints, users: int) -> Floats:
        """Expected number of users at every item, from what their messages add up to."""
        if self.method == "unary":
            return np.asarray((tally - users * self.share) / (0.5 - self.share))
        return np.asarray((tally - users * (1.0 - self.share) / (self.num_items + 1)) / self.share)


# Told to a trusted curator ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemEncoder(FirstVisit, Encoder):
    """Her first visit to a target as it is, for a curator who is trusted with it: the place of her item, or none.

    Four bytes, little-endian; 2³²−1 is none.
    """

    tables: Tables
    items: tuple[int, ...]
    has_start: bool = False
    last_successor: bool = True

    kind: ClassVar[str] = "item"
    readers: ClassVar[Readers] = FirstVisit.readers
    NONE: ClassVar[int] = (1 << 32) - 1

    @property
    def epsilon(self) -> float:
        return math.inf

    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        answer = self.answer(states, actions, rewards, noise)
        return (self.NONE if answer < 0 else answer).to_bytes(4, "little")

    def entries(self, payload: bytes) -> tuple[Ints, Ints]:
        place = int.from_bytes(payload, "little")
        if len(payload) != 4 or self.num_items <= place != self.NONE:
            raise ValueError(self.refusal)
        places = np.array([] if place == self.NONE else [place], dtype=np.int64)
        return places, np.ones_like(places)

    def tally(self, payload: bytes) -> Ints:
        return self._dense(payload)


@dataclass(frozen=True)
class EpisodeEncoder(Encoder):
    """Her whole episode as it is, for a curator who is trusted with it: rewards in whole grid units.

    Little-endian numbers of 8 bytes, as many in every message: n, then H + 1 states, H actions and H rewards; those
    beyond n steps are 0. A record that cannot be read is one without steps: nothing but zeros.
    """

    tables: Tables

    kind: ClassVar[str] = "episode"
    readers: ClassVar[Readers] = {"tables": lambda _, value: Tables.from_json(value)}

    @property
    def epsilon(self) -> float:
        return math.inf

    @property
    def size(self) -> int:
        return sum(self.tables.cells)

    def payload(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> bytes:
        s, a, r = self.tables.read(states, actions, rewards)
        n, H = a.size, self.tables.horizon
        numbers = np.zeros(3 * H + 2, dtype="<u8")
        if n:
            numbers[0] = n
            numbers[1 : n + 2], numbers[H + 2 : H + 2 + n] = s, a
            numbers[2 * H + 2 : 2 * H + 2 + n] = self.tables.indices(s, a, r)[2]
        return numbers.tobytes()

    def entries(self, payload: bytes) -> tuple[Ints, Ints]:
        """Visits, transitions and rewards of every step, one after the other."""
        tables, H = self.tables, self.tables.horizon
        n = int.from_bytes(payload[:8], "little")
        if len(payload) != 8 * (3 * H + 2) or n > H:
            raise ValueError(self.refusal)
        parts = np.split(np.frombuffer(payload, dtype="<u8")[1:], [H + 1, 2 * H + 1])
        lengths = (n + 1 if n else 0, n, n)
        limits = tables.num_states, tables.num_actions, tables.reward_units + 1
        for part, length, limit in zip(parts, lengths, limits, strict=True):
            if part[length:].any() or (part[:length] >= np.uint64(limit)).any():
                raise ValueError(self.refusal)
        if n == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        s, a, units = (part[:length] for part, length in zip(parts, lengths, strict=True))
        pairs, triples, _ = tables.indices(s.astype(np.int64), a.astype(np.int64), np.zeros(n))
        visits, transitions, _ = tables.cells
        places = np.concatenate([pairs, visits + triples, visits + transitions + pairs])
        ones = np.ones(n, dtype=np.int64)
        return places, np.concatenate([ones, ones, units.astype(np.int64)])

    def tally(self, payload: bytes) -> Ints:
        return self._dense(payload)


#: What the people of a deployment can be asked for.
Form: TypeAlias = ReportEncoder | ItemEncoder | ShareEncoder | ShuffledEncoder | EpisodeEncoder

_ENCODERS = (
    *(LaplaceEncoder, GaussianEncoder, SampledEncoder, LossEncoder),
    *(ReportEncoder, ItemEncoder, ShareEncoder, ShuffledEncoder, EpisodeEncoder),
)
_KINDS: dict[str, type[Encoder]] = {kind.kind: kind for kind in _ENCODERS}


def encoder_from_json(message: Any) -> Encoder | BitEncoder:
    """The encoder a server has published, of reports or of bits; what is not one, to the letter, is refused."""
    if isinstance(message, dict) and "statistic" in message:
        return BitEncoder.from_json(message)
    kind = message.get("encoder") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"the kind of encoder is not known; expected {', '.join(map(repr, _KINDS))}")
    return _KINDS[kind].from_json(message)


def first_visit(form: Form) -> FirstVisit | None:
    """The one step that is asked for; None where all of them are."""
    if isinstance(form, ShuffledEncoder):
        return form.first_visit
    return form if isinstance(form, FirstVisit) else None


# The device's own memory --------------------------------------------------------------------------------------------


class Reporter:
    """What a device remembers: how much each of its reports may cost, and to which deployments it has reported.

    Whoever owns the device names deployments and stores `reported` before a report is sent.
    """

    def __init__(
        self,
        user: str,
        epsilon_at_most: float | None = None,
        reported: Iterable[str] = (),
        *,
        rho_at_most: float | None = None,
    ) -> None:
        told = [limit for limit in (epsilon_at_most, rho_at_most) if limit is not None]
        if not told or not all(limit > 0.0 for limit in told):
            raise ValueError("epsilon_at_most, or rho_at_most for zCDP, must be a positive number")
        self.user, self._reported = user, set(reported)
        self.epsilon_at_most, self.rho_at_most = epsilon_at_most, rho_at_most

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
        self,
        deployment: str,
        encoder: Encoder,
        states: Any,
        actions: Any,
        rewards: Any,
        noise: Randomness | None = None,
    ) -> Report:
        """The one report to this deployment. An encoder that costs too much is refused and spends nothing."""
        limits = {"epsilon_at_most": self.epsilon_at_most, "rho_at_most": self.rho_at_most}
        encoder.check(**limits)
        self.claim(deployment)
        return encoder.encode(self.user, states, actions, rewards, noise or Noise(), **limits)

    def bits(
        self,
        deployment: str,
        encoder: BitEncoder,
        states: Any,
        actions: Any,
        rewards: Any,
        noise: Randomness | None = None,
        *,
        delta_at_most: float,
        neighbours: Relation = "replace",
        honest: float = 1.0,
    ) -> Messages:
        """The one bundle of bits to this deployment's shuffler, at most at (ε, `delta_at_most`); else nothing."""
        if self.epsilon_at_most is None:
            raise Refused("shuffled bits cost an epsilon, of which this device may spend none; nothing was sent")
        encoder.check(self.epsilon_at_most, delta_at_most, neighbours, honest)
        self.claim(deployment)
        return encoder.encode(
            states,
            actions,
            rewards,
            noise or Noise(),
            epsilon_at_most=self.epsilon_at_most,
            delta_at_most=delta_at_most,
            neighbours=neighbours,
            honest=honest,
        )
