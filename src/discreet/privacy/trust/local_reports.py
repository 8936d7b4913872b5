"""Spotlight without a trusted curator: one randomised message per user about one announced step.

A server publishes the encoder (`ReportEncoder`), a device (discreet/device) fills it in. Proof: local_reports.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from discreet.device import Report, ReportEncoder
from discreet.mdp import Floats, Ints
from discreet.people.counts import CountSpec
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, LedgerEntry, Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import stated
from discreet.privacy.trust.local import ONE_REPORT, check_local, kept_words, summed_messages, unary_flips
from discreet.privacy.trust.reports import ReportStream, lost_per_cell, users_lost
from discreet.problem import PublicStructure
from discreet.releases.reports import UserNoise


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
        """About how many users play badly before all cells are known: 50 + 130·ν per cell with three outcomes, ν the
        variance of one user's message. A measured rule, not a bound (docs/spotlight.md)."""
        noise = UserNoise(self.budget.total("laplace")).per_user(2 * spec.sizes[1])
        return (50.0 + 130.0 * noise) / lost_per_cell(3.0) * users_lost(spec, self.structure, branching)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> LocalReportStream:
        return LocalReportStream(self, spec, num_episodes, noise)


class LocalReportStream(ReportStream):
    """Holds no raw number: what is tallied are randomised messages."""

    _law: UserNoise

    def __init__(self, privatizer: LocalReports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        self._epsilon, structure = privatizer.budget.total("laplace"), privatizer.structure
        super().__init__(spec, structure, num_episodes, noise, UserNoise(self._epsilon))
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
        size = self._items.size
        unary = self._law.unary(size)
        self._encoder = ReportEncoder(
            self._tables,
            tuple(self._items.tolist()),
            "unary" if unary else "response",
            unary_flips(self._epsilon) if unary else kept_words(self._epsilon, size + 1),
            self._announced().version(plan.policy),
            self.alphabet.has_start,
            self.alphabet.pooled,
        )

    def _named(self, places: Ints) -> Ints:
        return summed_messages(self.encoder, places[:, 0], self._noise)

    def add_report(self, report: Report) -> None:
        """One user's own message. One for another policy is refused, and so is a second one of the same user,
        whether the first was counted or refused: the server has seen it."""
        self._crowd.claim(report.user)
        self._enter(self.encoder.values(report), 1)

    def _estimate(self) -> tuple[Floats, float]:
        return self.encoder.unbiased(self._tally, self._users), self._law.variance(self._users, self._items.size)
