"""Spotlight without a trusted curator: one randomised message per user about one announced step.

The encoder is what a server publishes and a device fills in once. Proof: local_reports.md.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.episodes import Episodes
from discreet.mdp import Ints
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Neighbours, guarantee_of
from discreet.privacy.client import Report, Tables, below
from discreet.privacy.local import CHUNK, COMPOUND, ONE_REPORT, unary_flips
from discreet.privacy.noise import NoiseSource, exponential_bounds
from discreet.privacy.reports import alphabet_of, checked_episodes, checked_targets, encoded
from discreet.privacy.streams import assumptions
from discreet.statistics import Counts, CountSpec
from discreet.structure import PublicStructure
from discreet.targets import PrivateReports, Targets, UserNoise

Method = Literal["unary", "response"]
_WORD = 1 << 64
NOT_FOR_THIS = "the message was made for other targets or another policy; nothing was added"


@lru_cache(maxsize=4096)
def kept_words(epsilon: float, answers: int) -> int:
    """w with w/2⁶⁴ just below (e^ε−1)/(e^ε−1+D): the share of users who tell the truth outright, of D answers."""
    if epsilon == math.inf:
        return _WORD - 1
    _, upper = exponential_bounds(Fraction(epsilon) * (1 - Fraction(1, 2**50)), 192)
    x = Fraction(upper, 2**192)  # a little above e^−ε
    return min(math.floor(_WORD * (1 - x) / (1 - x + answers * x)), _WORD - 1)


@dataclass(frozen=True)
class ReportEncoder:
    """One episode in, one message out: her first visit to a target as one of `items`, or "none", randomised.

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

    @cached_property
    def form(self) -> str:
        """Names the encoder by its public numbers, so that a message made with others is not counted."""
        text = json.dumps(["spotlight", asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]

    @cached_property
    def wanted(self) -> frozenset[int]:
        """The target cells."""
        return frozenset(item // (2 * self.tables.num_states) for item in self.items)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {item: place for place, item in enumerate(self.items)}

    def to_json(self) -> dict[str, Any]:
        return {"encoder": "first-visit", **asdict(self)}

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> ReportEncoder:
        """The encoder a server has published."""
        if message.get("encoder") != "first-visit":
            raise ValueError(f"the encoder is {message.get('encoder')!r}; expected 'first-visit'")
        fields = {key: value for key, value in message.items() if key != "encoder"}
        tables = {**fields.pop("tables")}
        tables["reward_range"] = tuple(tables["reward_range"])
        return cls(Tables(**tables), tuple(fields.pop("items")), **fields)

    def answer(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource) -> int:
        """Place of her item among `items`, or −1 for none: raw, it stays on the device.

        The step is chosen before its outcome is looked at: an outcome that was declared impossible makes it none.
        """
        t = self.tables
        pairs, triples, units = t.steps(states, actions, rewards)
        coin = int(below(noise, t.reward_units, 1)[0])
        start = t.cells[0]
        if self.has_start and start in self.wanted:
            return self._place.get(2 * t.num_states * start + 2 * int(np.asarray(states)[0]), -1)
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
            words = noise.words(n * size).reshape(n, size)
            bits = words < np.uint64(self.words)
            rows = np.flatnonzero(answers >= 0)
            bits[rows, answers[rows]] = words[rows, answers[rows]] < np.uint64(_WORD // 2)
            return bits
        truthful = noise.words(n) < np.uint64(self.words)
        other = below(noise, size + 1, n)
        return np.where(truthful, np.where(answers < 0, size, answers), other)

    def encode(
        self, user: str, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource
    ) -> Report:
        """The user's only message."""
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
            bits = np.unpackbits(np.frombuffer(report.payload, dtype=np.uint8))
            if len(report.payload) != -(-size // 8) or bits[size:].any():
                raise ValueError(NOT_FOR_THIS)
            return bits[:size].astype(np.int64)
        place = int.from_bytes(report.payload, "little")
        if len(report.payload) != 8 or place > size:
            raise ValueError(NOT_FOR_THIS)
        values = np.zeros(size, dtype=np.int64)
        if place < size:
            values[place] = 1
        return values

    def log_ratio(self) -> float:
        """Largest log-ratio of the probability of a message between any two answers, of the law that is sampled."""
        if self.method == "unary":
            return math.inf if self.words == 0 else math.log1p((_WORD - 2 * self.words) / self.words)
        return math.log1p(self.words * (len(self.items) + 1) / (_WORD - self.words))

    def unbiased(self, tally: Ints, users: int) -> NDArray[np.float64]:
        """Expected number of users at every item, from what their messages add up to."""
        share = self.words / _WORD
        if self.method == "unary":
            return np.asarray((tally - users * share) / (0.5 - share))
        return np.asarray((tally - users * (1.0 - share) / (len(self.items) + 1)) / share)


def summed_messages(encoder: ReportEncoder, answers: Ints, noise: NoiseSource) -> Ints:
    """How often each item was named in the messages of users with these answers.

    Draws every message, `CHUNK` words at a time. A simulation with many users draws what they add up to, of the same
    law: unary, Bin(c, ½) + Bin(n−c, q) where c users have the item; response, Bin(c, w) truthful ones for every
    answer and the others spread evenly over all answers.
    """
    n, size = answers.size, len(encoder.items)
    if noise.simulation and n >= COMPOUND:
        generator = noise.generator()
        own = np.bincount(np.where(answers < 0, size, answers), minlength=size + 1)
        share = encoder.words / _WORD
        if encoder.method == "unary":
            return generator.binomial(own[:size], 0.5) + generator.binomial(n - own[:size], share)
        truthful = generator.binomial(own, share)
        others = generator.multinomial(n - truthful.sum(), np.full(size + 1, 1.0 / (size + 1)))
        return np.asarray((truthful + others)[:size], dtype=np.int64)
    total = np.zeros(size + 1, dtype=np.int64)
    rows = max(1, CHUNK // size)
    for start in range(0, n, rows):
        messages = encoder.randomise(answers[start : start + rows], noise)
        if encoder.method == "unary":
            total[:size] += messages.sum(axis=0)
        else:
            total += np.bincount(messages, minlength=size + 1)
    return total[:size]


@dataclass(frozen=True)
class LocalReports:
    """Every user sends one randomised message about her first visit to the announced targets.

    Unary encoding or randomised response over all answers, whichever has the smaller variance for that many items.
    Guarantee: ε-LDP for any two episodes, sequentially interactive, local_reports.md.  Source: ours; unary encoding
    and the comparison [WBLJ17].  Cost: one word per user and item; simulations draw two binomials per item.
    """

    budget: Budget
    structure: PublicStructure = field(default_factory=PublicStructure)
    neighbours: Neighbours = "replace"

    def __post_init__(self) -> None:
        if self.neighbours != "replace":
            raise ValueError("local privacy compares any two users, so neighbours must be 'replace'")
        if self.budget.kind != "pure":
            raise ValueError(
                f"local reports spend pure epsilon, and the budget is {self.budget.kind}; state epsilon alone"
            )
        unary_flips(self.budget.total("laplace"))

    def users_lost(self, spec: CountSpec) -> float:
        """About how many users play badly before all cells are known: 50 + 130·ν per cell, ν the variance of one
        user's message. A measured rule, not a bound (docs/spotlight.md)."""
        cells = spec.stages * spec.num_states * spec.num_actions
        return cells * (50.0 + 130.0 * UserNoise(self.budget.total("laplace")).per_user(2 * spec.num_states * cells))

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> LocalReportStream:
        return LocalReportStream(self, spec, num_episodes, noise)


class LocalReportStream:
    """How often each item was named by the messages of the open epoch. Holds no raw number."""

    def __init__(self, privatizer: LocalReports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        if spec.reward_range is None:
            raise ValueError(
                "reward_range is None, so that a reward cannot be turned into a bit; declare the range rewards are "
                "clipped to"
            )
        if num_episodes < 1:
            raise ValueError(f"num_episodes is {num_episodes}; declare at least 1")
        self._spec, self._noise, self._limit = spec, noise, int(num_episodes)
        self._epsilon = privatizer.budget.total("laplace")
        self._law = UserNoise(self._epsilon)
        structure = privatizer.structure
        self.alphabet = alphabet_of(spec, structure)
        self._tables = Tables(
            spec.num_states, spec.num_actions, spec.horizon, spec.stages, spec.grid, spec.reward_range
        )
        spread = math.sqrt(self._law.per_user(10**9))
        entry = LedgerEntry("reports", "randomised-answer", "l1", 2.0, spread, 1, self._epsilon)
        self.guarantee: Guarantee = guarantee_of(
            (entry,),
            "local",
            "replace",
            privatizer.budget,
            assumptions=assumptions(num_episodes, noise, ONE_REPORT, *structure.assumptions()),
        )
        self.ledger: tuple[LedgerEntry, ...] = (entry,)
        self._names: set[str] = set()
        self._seen = self._users = 0
        self._targets: Targets | None = None
        self._encoder: ReportEncoder | None = None
        self._tally: Ints = np.zeros(0, dtype=np.int64)
        self._place: Ints = np.zeros(0, dtype=np.int64)
        self._last = PrivateReports(
            self.alphabet, np.zeros((0, 2 * spec.num_states)), None, 0, 0, 0.0, self._law, beta=0.0
        )

    @property
    def encoder(self) -> ReportEncoder:
        """What the users of the open epoch are sent."""
        if self._encoder is None:
            raise ValueError("no targets have been announced; begin an epoch before users report")
        return self._encoder

    def begin(self, plan: Plan) -> None:
        """Open an epoch whose users report on the plan's targets; the encoder is chosen in public."""
        if self._users:
            raise ValueError("users of the open epoch have reported; release them before new targets are announced")
        targets = checked_targets(plan, self.alphabet)
        items = np.flatnonzero(self.alphabet.admitted & targets.cells[:, None])
        if items.size == 0:
            raise ValueError("the target set is empty; at least one cell must be asked for")
        unary = self._law.unary(items.size)
        self._encoder = ReportEncoder(
            self._tables,
            tuple(items.tolist()),
            "unary" if unary else "response",
            unary_flips(self._epsilon) if unary else kept_words(self._epsilon, items.size + 1),
            targets.version(plan.policy),
            self.alphabet.has_start,
            self._spec.pooled,
        )
        self._targets = targets
        self._tally = np.zeros(items.size, dtype=np.int64)
        self._place = np.full(self.alphabet.admitted.size + 1, -1, dtype=np.int64)  # the last entry is for "none"
        self._place[items] = np.arange(items.size)

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before, each randomised as on her own device."""
        episodes = checked_episodes(contribution, self._spec)
        encoder = self.encoder
        assert self._targets is not None
        self._check(len(episodes))
        items = encoded(episodes, self._spec, self.alphabet, self._targets, 1, self._noise)[:, 0]
        self._tally += summed_messages(encoder, self._place[items], self._noise)
        self._seen += len(episodes)
        self._users += len(episodes)

    def add_report(self, report: Report) -> None:
        """One user's own message; a second one of the same user is refused, and one for another policy too."""
        if report.user in self._names:
            raise ValueError(
                f"user {report.user!r} has already sent a report; a second one would cost her epsilon again"
            )
        values = self.encoder.values(report)
        self._check(1)
        self._tally += values
        self._names.add(report.user)
        self._seen += 1
        self._users += 1

    def _check(self, users: int) -> None:
        if self._seen + users > self._limit:
            raise ValueError(
                f"{users} more episodes would exceed the {self._limit} declared when the stream was opened "
                f"({self._seen} seen); nothing was added"
            )

    def variance(self, users: int) -> float:
        """Of the noise on one sub-cell after an epoch of so many users, when everything is asked for."""
        return self._law.variance(users, int(self.alphabet.admitted.sum()))

    def release(self) -> PrivateReports:
        """Unbiased counts of the epoch; without new users, the last release again."""
        if self._users:
            assert self._targets is not None
            rows, encoder = self._targets.rows, self.encoder
            histogram = np.zeros((rows.size, 2 * self._spec.num_states))
            histogram[self.alphabet.admitted[rows]] = encoder.unbiased(self._tally, self._users)
            self._last = PrivateReports(
                self.alphabet,
                histogram,
                self._targets,
                self._users,
                self._seen,
                self._law.variance(self._users, len(encoder.items)),
                self._law,
            )
            self._targets, self._encoder, self._users = None, None, 0
        return self._last

    def __repr__(self) -> str:
        return f"LocalReportStream({self._seen} of {self._limit} episodes)"
