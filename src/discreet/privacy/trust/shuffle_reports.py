"""One report per user, shuffled: the bits of first visits to announced targets. Proof: shuffle.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from discreet.device.bits import BitEncoder, FirstVisitBits, Messages, honest_users
from discreet.kernels import spotlight as kernel
from discreet.mdp import Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Neighbours, guarantee_of
from discreet.privacy.families import check_common
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.reports import (
    alphabet_of,
    cells_met,
    checked_episodes,
    checked_targets,
    encoded,
    lost_per_cell,
    typical,
)
from discreet.privacy.trust.shuffle_law import (
    BitLaw,
    Changes,
    ShuffledStream,
    check_shuffle,
    entry_of,
    shared_assumptions,
)
from discreet.privacy.trust.shuffler import Tally, noise_sums, unbiased
from discreet.problem import PublicStructure
from discreet.releases.reports import PrivateReports, Targets


@dataclass(frozen=True)
class ShuffleNoise:
    """Noise of a batch of reports, for sizing epochs: at sizes on a geometric grid, so that few are calibrated."""

    law: BitLaw

    def variance(self, users: int, items: int) -> float:
        if not math.isfinite(self.law.epsilon):
            return 0.0
        return _variance_near(self.law, math.floor(math.log(max(users, 2)) * 8.0))


@lru_cache(maxsize=4096)
def _variance_near(law: BitLaw, step: int) -> float:
    users = max(2, math.floor(math.exp(step / 8.0)))
    while honest_users(users, law.honest) < 1:
        users += 1
    return law.variance(users)


@dataclass(frozen=True)
class ShuffleReports:
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

        There the deviation is 2.8 at ε = 1; users are in proportion to it. Not a bound.
        """
        deviation = math.sqrt(self.law().variance(10_000)) if math.isfinite(self.law().epsilon) else 0.0
        per_cell = lost_per_cell(typical(spec, self.structure) if branching is None else branching)
        return per_cell / 2.8 * deviation * cells_met(spec)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ShuffleReportStream:
        return ShuffleReportStream(self, spec, num_episodes, noise)


class ShuffleReportStream(ShuffledStream):
    """Raw reports of the open epoch only; they leave as one noisy histogram."""

    def __init__(self, privatizer: ShuffleReports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        super().__init__(spec, num_episodes, noise)
        self._bits = privatizer.law()
        self._law = ShuffleNoise(self._bits)
        structure = privatizer.structure
        self.alphabet = alphabet_of(spec, structure)
        told = (*structure.assumptions(), "targets depend on public numbers and releases only")
        self.guarantee: Guarantee = guarantee_of(
            [entry_of(self._bits, "reports", self._bits.epsilon)],
            "shuffle",
            privatizer.neighbours,
            privatizer.budget if math.isfinite(self._bits.epsilon) else None,
            assumptions=shared_assumptions(num_episodes, noise, privatizer.honest, *told),
        )
        self.ledger: tuple[LedgerEntry, ...] = self.guarantee.entries
        self._targets: Targets | None = None
        self._histogram: Ints = np.zeros((0, 2 * spec.num_states), dtype=np.int64)
        self._place: Ints = np.zeros(0, dtype=np.int64)
        empty = np.zeros((0, 2 * spec.num_states))
        self._last = PrivateReports(self.alphabet, empty, None, 0, 0, 0.0, self._law)

    def begin(self, plan: Plan) -> None:
        """Open an epoch whose users report on the plan's targets."""
        if self._users:
            raise ValueError("users of the open epoch have reported; release them before new targets are announced")
        targets = checked_targets(plan, self.alphabet)
        self._targets = targets
        self._place = np.cumsum(targets.cells) - 1
        self._histogram = np.zeros((targets.rows.size, 2 * self._spec.num_states), dtype=np.int64)

    def _announced(self) -> Targets:
        if self._targets is None:
            raise ValueError("no targets have been announced; begin an epoch before users report")
        return self._targets

    def encoder(self, users: int) -> BitEncoder:
        """What exactly so many users of the open epoch are sent."""
        items = np.flatnonzero(self.alphabet.admitted & self._announced().cells[:, None])
        a = self.alphabet
        statistic = FirstVisitBits(self._tables, tuple(items.tolist()), a.has_start, a.pooled)
        return self._published(self._bits, statistic, users)

    def _own(self, encoder: BitEncoder) -> BitEncoder:
        return self.encoder(encoder.users)

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before; whoever has no episode of the problem reports nothing."""
        episodes = checked_episodes(contribution, self._spec)
        targets = self._announced()
        self._crowd.check(len(episodes))
        items = encoded(episodes, self._spec, self.alphabet, targets, 1, self._noise)
        kernel.tally(items, self._place, self.alphabet.admitted, 2 * self._spec.num_states, self._histogram)
        self._crowd.size += len(episodes)
        self._users += len(episodes)

    def collect(self, encoder: BitEncoder, messages: Messages) -> None:
        """The shuffled messages of the whole epoch; a batch that is refused spends its users."""
        self._collect(encoder, messages)

    def release(self) -> PrivateReports:
        """Unbiased counts of the epoch; without new users, the last release again."""
        if self._users:
            encoder = self.encoder(self._users)
            own = self._histogram[self.alphabet.admitted[self._announced().rows]]
            batch = Tally(own + noise_sums(encoder, self._users, self._noise), self._users)
            self._users = 0
            self._enter(encoder, batch)
        return self._last

    def _enter(self, encoder: BitEncoder, batch: Tally) -> None:
        targets = self._announced()
        rows = targets.rows
        histogram = np.zeros((rows.size, 2 * self._spec.num_states))
        histogram[self.alphabet.admitted[rows]] = unbiased(encoder, batch)
        p = encoder.probability
        variance = batch.users * encoder.noise_bits * p * (1.0 - p)
        self._last = PrivateReports(
            self.alphabet, histogram, targets, batch.users, self._crowd.size, variance, self._law
        )
        self._targets, self._histogram = None, np.zeros_like(self._histogram[:0])

    def variance(self, users: int) -> float:
        """Of the noise on one sub-cell after an epoch of so many users."""
        return self._law.variance(users, int(self.alphabet.admitted.sum()))
