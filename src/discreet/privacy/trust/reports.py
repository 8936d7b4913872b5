"""At most m steps per user, on cells asked for in public: one noisy histogram per epoch. Proof: reports.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from discreet.device.sampler import below
from discreet.kernels import spotlight as kernel
from discreet.mdp import Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Neighbours, guarantee_of, laplace_scale
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.families import check_common, entry_of, samplable
from discreet.privacy.noise import DiscreteLaplace, NoiseSource
from discreet.privacy.sums.streams import assumptions
from discreet.problem import PublicStructure
from discreet.releases.reports import Alphabet, ConstantNoise, PrivateReports, Targets


@dataclass(frozen=True)
class Reports:
    """Every user sends her first m visits to the announced targets as one-hot (cell, s', reward bit); per epoch, one
    discrete Laplace noise of scale 2m/ε (zero-out: m/ε) is added to every sub-cell of the targets, visited or not.

    Guarantee: pure ε-joint-DP for any number of epochs and any targets chosen from earlier releases, reports.md.
    Source: ours.  Cost: one draw per sub-cell of the targets and epoch.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    reports: int = 1
    structure: PublicStructure = field(default_factory=PublicStructure)
    episodes_per_user: int = 1

    def __post_init__(self) -> None:
        check_common(self.neighbours, 0.5, self.episodes_per_user)
        if self.budget.kind != "pure":
            raise ValueError(f"reports spend pure epsilon, and the budget is {self.budget.kind}; state epsilon alone")
        if int(self.reports) != self.reports or self.reports < 1:
            raise ValueError(f"reports is {self.reports!r}; it must be a whole number of at least 1")

    @property
    def sensitivity(self) -> float:
        """L1 distance of two users' contributions: each is a sum of at most m unit vectors."""
        return float({"replace": 2, "zero-out": 1}[self.neighbours] * self.reports)

    def entry(self) -> LedgerEntry:
        scale = laplace_scale(self.sensitivity * self.episodes_per_user, self.budget.total("laplace"))
        return entry_of("reports", "laplace", self.sensitivity, samplable("reports", scale), 1)

    def users_lost(self, spec: CountSpec, branching: float | None = None) -> float:
        """About how many users play badly before all cells with that many outcomes are known (`lost_per_cell`).

        A measured rule, not a bound (docs/spotlight.md says where it fails).
        """
        per_cell = lost_per_cell(typical(spec, self.structure) if branching is None else branching)
        return 0.5 * per_cell * self.entry().scale * cells_met(spec)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ReportStream:
        return ReportStream(self, spec, num_episodes, noise)


class ReportStream(Keeper):
    """Raw reports of the open epoch only; they leave as one noisy histogram."""

    def __init__(self, privatizer: Reports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        if spec.reward_range is None:
            raise ValueError(
                "reward_range is None, so that a reward cannot be turned into a bit; declare the range rewards are "
                "clipped to"
            )
        entry = privatizer.entry()
        self._spec, self._noise, self._crowd, self._m = spec, noise, Crowd(num_episodes), privatizer.reports
        self._scale = entry.scale
        structure = privatizer.structure
        self.alphabet = alphabet_of(spec, structure)
        self._law = ConstantNoise(DiscreteLaplace(entry.scale).variance if entry.scale > 0.0 else 0.0)
        self.guarantee: Guarantee = guarantee_of(
            [entry],
            "joint",
            privatizer.neighbours,
            privatizer.budget,
            episodes_per_user=privatizer.episodes_per_user,
            assumptions=assumptions(
                num_episodes,
                noise,
                "targets and epoch lengths depend on public numbers and releases only",
                *structure.assumptions(),
            ),
        )
        self.ledger: tuple[LedgerEntry, ...] = self.guarantee.entries
        self._users = 0  # of the open epoch
        self._targets: Targets | None = None
        self._histogram: Ints = np.zeros((0, 2 * spec.num_states), dtype=np.int64)
        self._place: Ints = np.zeros(0, dtype=np.int64)
        self._last = self._released(self._histogram)

    def begin(self, plan: Plan) -> None:
        """Open an epoch whose users report on the plan's targets."""
        if self._users:
            raise ValueError("users of the open epoch have reported; release them before new targets are announced")
        targets = checked_targets(plan, self.alphabet)
        self._targets = targets
        self._place = np.cumsum(targets.cells) - 1
        self._histogram = np.zeros((targets.rows.size, 2 * self._spec.num_states), dtype=np.int64)

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before."""
        episodes = checked_episodes(contribution, self._spec)
        if self._targets is None:
            raise ValueError("no targets have been announced; begin an epoch before users report")
        n = len(episodes)
        self._crowd.check(n)
        items = encoded(episodes, self._spec, self.alphabet, self._targets, self._m, self._noise)
        kernel.tally(items, self._place, self.alphabet.admitted, 2 * self._spec.num_states, self._histogram)
        self._crowd.size += n
        self._users += n

    def release(self) -> PrivateReports:
        """The epoch's histogram with noise on every sub-cell; without new users, the last release again."""
        if self._users:
            assert self._targets is not None
            exists = self.alphabet.admitted[self._targets.rows]
            noisy = self._histogram
            noisy[exists] += self._noise.laplace(self._scale, int(exists.sum()))
            self._last = self._released(noisy)
            self._histogram, self._targets, self._users = np.zeros_like(noisy[:0]), None, 0
        return self._last

    def variance(self, users: int) -> float:
        """Of the noise on one sub-cell after an epoch of so many users."""
        return self._law.variance(users, int(self.alphabet.admitted.sum()))

    def _released(self, noisy: Ints) -> PrivateReports:
        return PrivateReports(
            self.alphabet,
            noisy.astype(np.float64),
            self._targets,
            self._users,
            self._crowd.size,
            self._law.each,
            self._law,
            self._m,
        )


#: Users lost over the rule where accuracy decides and not coverage, measured on queues (4 to 8, docs/spotlight.md).
SMALL_GAPS = 5.0


def lost_per_cell(branching: float) -> float:
    """Users per cell with b outcomes, at ε = 1 under replace: 25 + 12·√b, measured over b = 1 to 20."""
    return 25.0 + 12.0 * math.sqrt(branching)


def cells_met(spec: CountSpec) -> float:
    """Cells that have to be learned; about .55 of them, as measured, where every step has its own."""
    return spec.stages * spec.num_states * spec.num_actions * (0.55 if spec.stages > 1 else 1.0)


def branching_range(spec: CountSpec, structure: PublicStructure) -> tuple[float, float]:
    """Fewest and most outcomes that a cell may have on average: equal where they are declared or do not matter."""
    if spec.horizon == 1:
        return 1.0, 1.0
    if structure.successors is not None:
        declared = float(structure.successors.sum(axis=-1).mean())
        return declared, declared
    return 1.0, float(spec.num_states)


def typical(spec: CountSpec, structure: PublicStructure) -> float:
    """The branching whose users lie in the middle, by ratio, of those of the two ends."""
    low, high = (lost_per_cell(b) for b in branching_range(spec, structure))
    return ((math.sqrt(low * high) - 25.0) / 12.0) ** 2


def alphabet_of(spec: CountSpec, structure: PublicStructure) -> Alphabet:
    """The reports of a problem. Cells that never pay need no bit only where 0 is the lowest reward, hence bit 0."""
    if spec.reward_range is not None and spec.reward_range[0] != 0.0:
        structure = replace(structure, zero_rewards=None)
    return Alphabet.of(spec.num_states, spec.num_actions, spec.horizon, spec.pooled, structure)


def checked_targets(plan: Plan, alphabet: Alphabet) -> Targets:
    """The plan's announcement, refused unless it is a target set of this problem."""
    targets = plan.announcement
    if not isinstance(targets, Targets):
        raise ValueError("the plan announces no targets; users would not know what to report")
    if targets.cells.shape != (alphabet.num_rows,):
        raise ValueError(f"the target set has shape {targets.cells.shape}; expected ({alphabet.num_rows},)")
    return targets


def checked_episodes(contribution: Episodes | Counts, spec: CountSpec) -> Episodes:
    """The users' readable episodes (`CountSpec.readable`); sums are refused: no first visit can be read off them."""
    if not isinstance(contribution, Episodes):
        raise TypeError("a first visit cannot be read off sums, so this stream takes Episodes and cannot take Counts")
    return spec.readable(contribution)


def encoded(
    episodes: Episodes, spec: CountSpec, alphabet: Alphabet, targets: Targets, reports: int, noise: NoiseSource
) -> Ints:
    """(n, m) reports of n users: row·2S + 2·s' + bit, or −1. Everybody tosses m coins, needed or not.

    P(bit = 1) = the reward, clipped, scaled to [0, 1] and rounded to the grid. Silent users come last, with −1.
    """
    units, _ = spec.on_grid(episodes.rewards)
    n, told = len(episodes), episodes.actions.shape[0]
    coins = below(noise, spec.reward_units, n * reports).reshape(n, reports)
    items = np.full((n, reports), -1, dtype=np.int64)
    kernel.first_visits(
        episodes.states,
        episodes.actions,
        units,
        coins,
        targets.cells,
        alphabet.stages,
        spec.num_actions,
        not alphabet.last_successor,
        alphabet.num_cells if alphabet.has_start else -1,
        items[:told],
        2 * spec.num_states,
    )
    return items
