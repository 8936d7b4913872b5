"""One report per user, shuffled: the bits of first visits to announced targets. Proof: shuffle.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from discreet.device.bits import BitEncoder, Changes, FirstVisitBits, honest_users
from discreet.mdp import Floats
from discreet.people.counts import CountSpec
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, Neighbours
from discreet.privacy.families import check_common
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Sealed
from discreet.privacy.sums.streams import stated
from discreet.privacy.trust.reports import ReportStream, alphabet_of, latest, users_lost
from discreet.privacy.trust.shuffle_law import (
    BitLaw,
    Collected,
    ShuffledStream,
    check_shuffle,
    entry_of,
    told,
)
from discreet.privacy.trust.shuffler import Tally, estimated
from discreet.problem import PublicStructure
from discreet.releases.reports import PrivateReports


@dataclass(frozen=True)
class ShuffleNoise:
    """Noise of a batch of reports, for sizing epochs: at sizes on a geometric grid, so that few are calibrated."""

    law: BitLaw
    draws: ClassVar[float] = math.inf

    def variance(self, users: int, items: int) -> float:
        if not users or not math.isfinite(self.law.epsilon):
            return 0.0
        return _variance_near(self.law, math.floor(math.log(max(users, 2)) * 8.0))


@lru_cache(maxsize=4096)
def _variance_near(law: BitLaw, step: int) -> float:
    users = max(2, math.floor(math.exp(step / 8.0)))
    while honest_users(users, law.honest) < 1:
        users += 1
    return law.variance(users)


@dataclass(frozen=True)
class ShuffleReports(Collected):
    """Every user sends, for every sub-cell of the announced targets, the bit of her first visit and noise bits.

    At most one bit falls and one rises when a user is replaced, whatever H.
    Guarantee: (ε, δ)-shuffle-DP per user for any number of epochs and any targets chosen from earlier releases,
    shuffle.md.  Source: ours, on the protocol of [BTZCC25].  Cost: as `Shuffle`.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    structure: PublicStructure = field(default_factory=PublicStructure)
    honest: float = 1.0
    most_noise_bits: int | None = None

    def __post_init__(self) -> None:
        check_common(self.neighbours, 0.5, 1)
        check_shuffle(self.budget, self.honest, self.most_noise_bits)

    def law(self) -> BitLaw:
        assert self.budget.epsilon is not None
        changes = Changes.of(1, self.neighbours)
        return BitLaw(self.budget.epsilon, self.budget.delta, changes, self.honest, self.most_noise_bits)

    def users_lost(self, spec: CountSpec, branching: float | None = None) -> float:
        """About how many users play badly before all cells are known, by the rule of the curator's reports.

        There the deviation is 2.8 at ε = 1; users are in proportion to it, and to how many of them Spotlight explores
        for: 7 of normal noise instead of 12. Not a bound.
        """
        deviation = math.sqrt(self.law().variance(10_000)) if math.isfinite(self.law().epsilon) else 0.0
        return 7.0 / 12.0 * deviation / 2.8 * users_lost(spec, self.structure, branching)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ShuffleReportStream:
        return ShuffleReportStream(self, spec, num_episodes, noise)

    def form(self, spec: CountSpec, plan: Plan, users: int) -> BitEncoder:
        stream = self.open(spec, users, NoiseSource.secure())
        stream.begin(plan)
        return stream.encoder(users)

    def released(self, spec: CountSpec, num_episodes: int, sealed: Sequence[Sealed]) -> PrivateReports:
        def read(last: Sealed) -> tuple[Floats, float]:
            return estimated(self.form(spec, last.plan, last.users), Tally(last.values, last.users))

        return latest(alphabet_of(spec, self.structure), ShuffleNoise(self.law()), sealed, read)


class ShuffleReportStream(ReportStream, ShuffledStream):
    """Raw reports of the open epoch only, in a simulation; real users' come through the shuffler."""

    def __init__(self, privatizer: ShuffleReports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        structure, self._bits = privatizer.structure, privatizer.law()
        super().__init__(spec, structure, num_episodes, noise, ShuffleNoise(self._bits))
        public = (*structure.assumptions(), "targets depend on public numbers and releases only")
        entries = [entry_of(self._bits, "reports", self._bits.epsilon)]
        budget = privatizer.budget if math.isfinite(self._bits.epsilon) else None
        words = told(privatizer.honest, *public)
        self.guarantee = stated(entries, "shuffle", privatizer.neighbours, budget, num_episodes, noise, *words)

    def encoder(self, users: int) -> BitEncoder:
        """What exactly so many users of the open epoch are sent."""
        self._announced()
        a = self.alphabet
        statistic = FirstVisitBits(self._tables, tuple(self._items.tolist()), a.has_start, a.pooled)
        return self._published(self._bits, statistic, users)

    def _own(self, encoder: BitEncoder) -> BitEncoder:
        return self.encoder(encoder.users)

    def _estimate(self) -> tuple[Floats, float]:
        encoder = self.encoder(self._users)
        return estimated(encoder, self._shuffled(encoder, self._tally))

    def _arrive(self, encoder: BitEncoder, batch: Tally) -> None:
        self._settle(self._histogram(batch.users, *estimated(encoder, batch)))
