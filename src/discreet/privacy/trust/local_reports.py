"""Spotlight without a trusted curator: one randomised message per user about one announced step.

A server publishes the encoder (`ReportEncoder`), a device (discreet/device) fills it in. Proof: local_reports.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from discreet.device import Report, ReportEncoder
from discreet.device.encoders import Form
from discreet.mdp import Floats, Ints
from discreet.people.counts import CountSpec
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, LedgerEntry, Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Sealed
from discreet.privacy.sums.streams import stated
from discreet.privacy.trust.local import ONE_REPORT, check_local, kept_words, summed_messages, unary_flips
from discreet.privacy.trust.reports import (
    ReportStream,
    alphabet_of,
    asked_for,
    latest,
    lost_per_cell,
    targets_of,
    users_lost,
)
from discreet.problem import PublicStructure
from discreet.releases.items import Items
from discreet.releases.reports import PrivateReports, UserNoise


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
        check_local(self.budget, self.neighbours)

    def users_lost(self, spec: CountSpec, branching: float | None = None) -> float:
        """About how many users play badly before all cells are known: 50 + 90·ν per cell with three outcomes, ν the
        variance of one user's message. A measured rule, not a bound (docs/spotlight.md)."""
        noise = UserNoise(self.budget.total("laplace")).per_user(2 * spec.sizes[1])
        return (50.0 + 90.0 * noise) / lost_per_cell(3.0) * users_lost(spec, self.structure, branching)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> LocalReportStream:
        return LocalReportStream(self, spec, num_episodes, noise)

    @property
    def law(self) -> UserNoise:
        return UserNoise(self.budget.total("laplace"))

    def form(self, spec: CountSpec, plan: Plan, users: int) -> ReportEncoder:
        alphabet = alphabet_of(spec, self.structure)
        return self.encoder(spec, alphabet, asked_for(alphabet, targets_of(plan)), plan)

    def encoder(self, spec: CountSpec, alphabet: Items, items: Ints, plan: Plan) -> ReportEncoder:
        """What people are sent who are asked for these items: whichever code has the smaller variance."""
        epsilon, unary = self.budget.total("laplace"), self.law.unary(items.size)
        return ReportEncoder(
            spec.tables,
            tuple(items.tolist()),
            "unary" if unary else "response",
            unary_flips(epsilon) if unary else kept_words(epsilon, items.size + 1),
            targets_of(plan).version(plan.policy),
            alphabet.has_start,
            alphabet.pooled,
        )

    def seal(self, spec: CountSpec, form: Form, tally: Ints, users: int, silent: int, noise: NoiseSource) -> Ints:
        """The messages have their noise. Whoever sent none gets the message of somebody with nothing to report, so
        that leaving changes what is published no more than any other episode would (local_reports.md)."""
        assert isinstance(form, ReportEncoder)
        return np.asarray(tally + summed_messages(form, np.full(silent, -1, dtype=np.int64), noise))

    def released(self, spec: CountSpec, num_episodes: int, sealed: Sequence[Sealed]) -> PrivateReports:
        def read(last: Sealed) -> tuple[Floats, float]:
            form = self.form(spec, last.plan, last.users)
            return form.unbiased(last.values, last.users), self.law.variance(last.users, form.num_items)

        return latest(alphabet_of(spec, self.structure), self.law, sealed, read)


class LocalReportStream(ReportStream):
    """Holds no raw number: what is tallied are randomised messages."""

    _law: UserNoise

    def __init__(self, privatizer: LocalReports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        self._epsilon, structure = privatizer.budget.total("laplace"), privatizer.structure
        super().__init__(spec, structure, num_episodes, noise, privatizer.law)
        self._privatizer = privatizer
        spread = math.sqrt(self._law.per_user(10**9))
        entry = LedgerEntry("reports", "randomised-answer", "l1", 2.0, spread, 1, self._epsilon)
        told = (ONE_REPORT, *structure.assumptions())
        self.guarantee = stated([entry], "local", "replace", privatizer.budget, num_episodes, noise, *told)
        self._encoder: ReportEncoder | None = None

    @property
    def encoder(self) -> ReportEncoder:
        """What the users of the open epoch are sent."""
        self._announced()
        assert self._encoder is not None
        return self._encoder

    def begin(self, plan: Plan) -> None:
        """Open an epoch whose users report on the plan's targets; the encoder is chosen in public."""
        super().begin(plan)
        self._encoder = self._privatizer.encoder(self._spec, self.alphabet, self._items, plan)

    def _named(self, places: Ints) -> Ints:
        return summed_messages(self.encoder, places[:, 0], self._noise)

    def add_report(self, report: Report) -> None:
        """One user's own message. One for another policy is refused, and so is a second one of the same user,
        whether the first was counted or refused: the server has seen it."""
        self._crowd.claim(report.user)
        self._enter(self.encoder.values(report), 1)

    def _estimate(self) -> tuple[Floats, float]:
        return self.encoder.unbiased(self._tally, self._users), self._law.variance(self._users, self._items.size)
