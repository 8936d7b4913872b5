"""Spotlight without a trusted curator: one randomised message per user about one announced step.

A server publishes the encoder (`ReportEncoder`), a device (discreet/device) fills it in. Proof: local_reports.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from discreet.device import Report, ReportEncoder, Tables
from discreet.mdp import Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Neighbours, guarantee_of
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.envelope import exponential_bounds
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import assumptions
from discreet.privacy.trust.local import CHUNK, COMPOUND, ONE_REPORT, unary_flips
from discreet.privacy.trust.reports import (
    alphabet_of,
    cells_met,
    checked_episodes,
    checked_targets,
    encoded,
    lost_per_cell,
    typical,
)
from discreet.problem import PublicStructure
from discreet.releases.reports import PrivateReports, Targets, UserNoise

_WORD = 1 << 64


@lru_cache(maxsize=4096)
def kept_words(epsilon: float, answers: int) -> int:
    """w with w/2⁶⁴ just below (e^ε−1)/(e^ε−1+D): the share of users who tell the truth outright, of D answers."""
    if epsilon == math.inf:
        return _WORD - 1
    _, upper = exponential_bounds(Fraction(epsilon) * (1 - Fraction(1, 2**50)), 192)
    x = Fraction(upper, 2**192)  # a little above e^−ε
    return min(math.floor(_WORD * (1 - x) / (1 - x + answers * x)), _WORD - 1)


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

    def users_lost(self, spec: CountSpec, branching: float | None = None) -> float:
        """About how many users play badly before all cells are known: 50 + 130·ν per cell with three outcomes, ν the
        variance of one user's message. A measured rule, not a bound (docs/spotlight.md)."""
        cells = spec.stages * spec.num_states * spec.num_actions
        noise = UserNoise(self.budget.total("laplace")).per_user(2 * spec.num_states * cells)
        share = lost_per_cell(typical(spec, self.structure) if branching is None else branching) / lost_per_cell(3.0)
        return cells_met(spec) * (50.0 + 130.0 * noise) * share

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> LocalReportStream:
        return LocalReportStream(self, spec, num_episodes, noise)


class LocalReportStream(Keeper):
    """How often each item was named by the messages of the open epoch. Holds no raw number."""

    def __init__(self, privatizer: LocalReports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        if spec.reward_range is None:
            raise ValueError(
                "reward_range is None, so that a reward cannot be turned into a bit; declare the range rewards are "
                "clipped to"
            )
        self._spec, self._noise, self._crowd = spec, noise, Crowd(num_episodes)
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
        self._users = 0  # of the open epoch
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
            self.alphabet.pooled,
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
        self._crowd.check(len(episodes))
        items = encoded(episodes, self._spec, self.alphabet, self._targets, 1, self._noise)[:, 0]
        self._tally += summed_messages(encoder, self._place[items], self._noise)
        self._crowd.size += len(episodes)
        self._users += len(episodes)

    def add_report(self, report: Report) -> None:
        """One user's own message. One for another policy is refused, and so is a second one of the same user,
        whether the first was counted or refused: the server has seen it."""
        self._crowd.claim(report.user)
        self._tally += self.encoder.values(report)
        self._crowd.size += 1
        self._users += 1

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
                self._crowd.size,
                self._law.variance(self._users, len(encoder.items)),
                self._law,
            )
            self._targets, self._encoder, self._users = None, None, 0
        return self._last
