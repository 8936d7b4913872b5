"""At most m steps per user, on cells asked for in public: one noisy histogram per epoch. Proof: reports.md."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np

from discreet.device import ItemEncoder
from discreet.device.encoders import Form
from discreet.device.sampler import below
from discreet.kernels import spotlight as kernel
from discreet.mdp import Floats, Ints
from discreet.people.counts import Counts, CountSpec, Sensitivity
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import BALANCED_LAPLACE, Budget, LedgerEntry, Neighbours, Trust
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.families import check_common, paid, variance_of
from discreet.privacy.noise import Balanced, NoiseSource
from discreet.privacy.protocol import Sealed
from discreet.privacy.sums.streams import stated
from discreet.problem import PublicStructure
from discreet.releases.items import Items
from discreet.releases.reports import ConstantNoise, PrivateReports, ReportNoise, Targets

Released = TypeVar("Released")

#: Most sub-cells whose noise is balanced. At more its deviation would be smaller by half a percent, at ε ≤ 1.
BALANCED = 256
#: Noise of a smaller scale does not let anybody learn from fewer users: by then sampling hides as much.
SAMPLING = 0.5


@dataclass(frozen=True)
class BalancedNoise:
    """The curator's noise of this scale, balanced over the sub-cells asked for: fewer of them, less of it.

    Where nothing has been asked for yet, or too much to balance, that of independent noise.
    """

    scale: float
    draws: ClassVar[float] = 1.0

    def variance(self, users: int, items: int) -> float:
        if self.scale > 0.0 and 1 <= items <= BALANCED:
            return Balanced(self.scale, items).variance
        return variance_of("laplace", self.scale)


class Alphabet(Protocol):
    """What an encoder has to know about the cells."""

    @property
    def stages(self) -> int: ...
    @property
    def pooled(self) -> bool: ...
    @property
    def num_cells(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def has_start(self) -> bool: ...


@dataclass(frozen=True)
class Reports:
    """Every user sends her first m visits to the announced targets as one-hot (cell, s', reward bit); per epoch,
    balanced noise of scale 2m/ε is added to all sub-cells of the targets, visited or not, and independent discrete
    Laplace noise where there are more than `BALANCED` of them (zero-out: always, of scale m/ε).

    Guarantee: pure ε-joint-DP for any number of epochs and any targets chosen from earlier releases, reports.md.
    Source: ours.  Cost: per epoch and each of d sub-cells about 1.8·√d draws, or one where noise is independent.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    reports: int = 1
    structure: PublicStructure = field(default_factory=PublicStructure)
    episodes_per_user: int = 1

    #: Whom people trust, how many independent noises every sub-cell gets, and what that rests on.
    trust: ClassVar[Trust] = "joint"
    noises: ClassVar[int] = 1
    told: ClassVar[tuple[str, ...]] = ()

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

    @property
    def balanced(self) -> bool:
        """Whether one noise hides that a report is another one: then what is added here may be taken away there."""
        return self.noises == 1 and self.neighbours == "replace"

    def entry(self) -> LedgerEntry:
        moved, epsilon = Sensitivity(self.sensitivity, self.sensitivity), self.budget.total("laplace")
        entry = paid("reports", "laplace", moved, epsilon, episodes_per_user=self.episodes_per_user)
        return replace(entry, mechanism=BALANCED_LAPLACE) if self.balanced else entry

    def users_lost(self, spec: CountSpec, branching: float | None = None) -> float:
        """About how many users play badly before all cells with that many outcomes are known (`lost_per_cell`).

        In proportion to the deviation of the noise, and to how many of them Spotlight explores for: 12 of one noise,
        9.5 of two. Noise below scale `SAMPLING` saves nobody: sampling hides as much. A measured rule, not a bound
        (docs/spotlight.md says where it fails).
        """
        scale = max(self.entry().scale, SAMPLING)
        deviations = (7.0 + 5.0 / self.noises) / 12.0 * math.sqrt(self.noises) * scale
        return 0.5 * deviations * users_lost(spec, self.structure, branching)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> CuratorReportStream:
        return CuratorReportStream(self, spec, num_episodes, noise)

    @property
    def law(self) -> ReportNoise:
        if self.balanced:
            return BalancedNoise(self.entry().scale)
        return ConstantNoise(self.noises * variance_of("laplace", self.entry().scale), float(self.noises))

    def form(self, spec: CountSpec, plan: Plan, users: int) -> ItemEncoder:
        if self.reports != 1:
            raise ValueError(
                f"people who send {self.reports} reports each cannot be asked one by one; take one report"
            )
        alphabet = alphabet_of(spec, self.structure)
        check_classes(targets_of(plan), spec.num_states, False)
        items = asked_for(alphabet, targets_of(plan))
        return ItemEncoder(spec.tables, tuple(items.tolist()), alphabet.has_start, alphabet.pooled)

    def seal(self, spec: CountSpec, form: Form, tally: Ints, users: int, silent: int, noise: NoiseSource) -> Ints:
        """How many sent nothing makes no difference."""
        return self.sealed(tally, noise)

    def sealed(self, tally: Ints, noise: NoiseSource) -> Ints:
        """Noise of scale 2m/ε on every sub-cell (zero-out: m/ε)."""
        return np.asarray(tally + self.drawn(tally.size, noise).sum(axis=0))

    def drawn(self, size: int, noise: NoiseSource) -> Ints:
        """(noises, size): what each of those adds who add noise."""
        scale = self.entry().scale
        if self.balanced and size <= BALANCED:
            return noise.balanced(scale, size)[None]
        return noise.laplace(scale, (self.noises, size))

    def released(self, spec: CountSpec, num_episodes: int, sealed: Sequence[Sealed]) -> PrivateReports:
        def read(last: Sealed) -> tuple[Ints | Floats, float]:
            return last.values, self.law.variance(last.users, last.values.size)

        return latest(alphabet_of(spec, self.structure), self.law, sealed, read)


class ReportDesk(Keeper, ABC, Generic[Released]):
    """One epoch of reports after the other: who may report when, on what, and that an epoch is released once.

    A subclass says what it keeps of the reports, and what leaves.
    """

    _last: Released

    def __init__(
        self, spec: CountSpec, alphabet: Alphabet, num_episodes: int, noise: NoiseSource, reports: int
    ) -> None:
        self._spec, self._noise, self._reports = spec, noise, reports
        self._space = alphabet
        self._crowd = Crowd(num_episodes)
        self._users = 0  # of the open epoch
        self._targets: Targets | None = None

    def begin(self, plan: Plan) -> None:
        """Open an epoch whose users report on the plan's targets."""
        if self._users:
            raise ValueError("users of the open epoch have reported; release them before new targets are announced")
        targets = targets_of(plan)
        if targets.cells.shape != (self._space.num_rows,):
            raise ValueError(f"the target set has shape {targets.cells.shape}; expected ({self._space.num_rows},)")
        self._open(targets)
        self._targets = targets

    @abstractmethod
    def _open(self, targets: Targets) -> None:
        """Make room for reports on these, or refuse them."""

    def _announced(self) -> Targets:
        if self._targets is None:
            raise ValueError("no targets have been announced; begin an epoch before users report")
        return self._targets

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before; whoever has no episode of the problem reports nothing."""
        episodes = checked_episodes(contribution, self._spec)
        targets = self._announced()
        self._crowd.check(len(episodes))
        self._collect(encoded(episodes, self._spec, self._space, targets, self._reports, self._noise), len(episodes))

    @abstractmethod
    def _collect(self, items: Ints, users: int) -> None:
        """Reports (n, m) of so many users: row·2S + 2·s' + bit, or −1."""

    def _came(self, users: int) -> None:
        self._crowd.size += users
        self._users += users

    def release(self) -> Released:
        """The epoch's histogram with noise on every sub-cell; without new users, the last release again."""
        if self._users:
            self._settle(self._drawn(self._users))
        return self._last

    def _settle(self, release: Released) -> None:
        self._last, self._targets, self._users = release, None, 0

    @abstractmethod
    def _drawn(self, users: int) -> Released:
        """What leaves at the end of the epoch; the raw reports are forgotten."""


class ReportStream(ReportDesk[PrivateReports]):
    """The open epoch of reports, whoever adds the noise: how often each item asked for was named.

    It leaves as one noisy histogram. A subclass says what users' reports add to the tally, and what the tally of the
    epoch is worth.
    """

    #: Whether reports are added up by classes of successors where these are announced.
    takes_classes: ClassVar[bool] = False

    def __init__(
        self,
        spec: CountSpec,
        structure: PublicStructure,
        num_episodes: int,
        noise: NoiseSource,
        law: ReportNoise,
        reports: int = 1,
    ) -> None:
        self.alphabet = alphabet_of(spec, structure)
        super().__init__(spec, self.alphabet, num_episodes, noise, reports)
        self._tables, self._law = spec.tables, law
        self._items: Ints = np.zeros(0, dtype=np.int64)
        self._place, self._tally = self._items, self._items
        self._last = nothing_reported(self.alphabet, law, reports, takes_classes=self.takes_classes)

    def _open(self, targets: Targets) -> None:
        check_classes(targets, self.alphabet.num_states, self.takes_classes)
        items, place = numbered(self.alphabet, targets)
        if items.size == 0:
            raise ValueError("the target set is empty; at least one cell must be asked for")
        self._items, self._place = items, place
        self._tally = np.zeros(items.size, dtype=np.int64)

    def _collect(self, items: Ints, users: int) -> None:
        self._enter(self._named(self._place[items]), users)

    def _named(self, places: Ints) -> Ints:
        """How often each item is named in the reports (n, m) of users: as they are, or randomised."""
        return np.bincount(places[places >= 0], minlength=self._items.size)

    def _enter(self, named: Ints, users: int) -> None:
        self._tally += named
        self._came(users)

    @abstractmethod
    def _estimate(self) -> tuple[Ints | Floats, float]:
        """Unbiased numbers of users per item, and the variance of the noise in each."""

    def _drawn(self, users: int) -> PrivateReports:
        return self._histogram(users, *self._estimate())

    def _histogram(self, users: int, values: Ints | Floats, variance: float) -> PrivateReports:
        self._tally = np.zeros(0, dtype=np.int64)
        crowd = users, self._crowd.size
        told = self.alphabet, self._announced(), values, *crowd, variance, self._law, self._reports
        return histogram_of(*told, takes_classes=self.takes_classes)

    def variance(self, users: int) -> float:
        """Of the noise on one sub-cell after an epoch of so many users that asks for all cells but the start."""
        return self._law.variance(users, int(self.alphabet.sizes[: self.alphabet.num_cells].sum()))


class CuratorReportStream(ReportStream):
    """Raw reports of the open epoch only."""

    takes_classes = True

    def __init__(self, privatizer: Reports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        entry, structure = privatizer.entry(), privatizer.structure
        super().__init__(spec, structure, num_episodes, noise, privatizer.law, privatizer.reports)
        self._privatizer = privatizer
        public = "targets and epoch lengths depend on public numbers and releases only"
        told, each = (public, *privatizer.told, *structure.assumptions()), privatizer.episodes_per_user
        budget, neighbours = privatizer.budget, privatizer.neighbours
        self.guarantee = stated(
            [entry], privatizer.trust, neighbours, budget, num_episodes, noise, *told, episodes_per_user=each
        )

    def _estimate(self) -> tuple[Ints, float]:
        noisy = self._privatizer.sealed(self._tally, self._noise)
        return noisy, self._law.variance(self._users, noisy.size)


def targets_of(plan: Plan) -> Targets:
    if not isinstance(plan.announcement, Targets):
        raise ValueError("the plan announces no targets; users would not know what to report")
    return plan.announcement


def check_classes(targets: Targets, num_states: int, taken: bool) -> None:
    """Refuse classes of successors that are none, or that nobody would add up."""
    classes = targets.classes
    if classes is None:
        return
    if not taken:
        raise ValueError("reports are added up outcome by outcome here; announce targets without classes")
    if classes.shape != (num_states,) or not np.array_equal(np.unique(classes), np.arange(classes.max() + 1)):
        raise ValueError(f"classes are {classes.tolist()}; expected one of 0..k−1 for each of {num_states} states")


def nothing_reported(
    alphabet: Items, law: ReportNoise, reports: int = 1, takes_classes: bool = False
) -> PrivateReports:
    """The release before the first epoch."""
    empty = np.zeros((0, 2 * alphabet.num_states))
    none = 0, 0, law.variance(0, 0), law, reports
    return PrivateReports(alphabet, empty, None, *none, takes_classes=takes_classes)


def histogram_of(
    alphabet: Items,
    targets: Targets,
    values: Ints | Floats,
    users: int,
    so_far: int,
    variance: float,
    law: ReportNoise,
    reports: int = 1,
    takes_classes: bool = False,
) -> PrivateReports:
    """The release of an epoch from one number per sub-cell asked for."""
    rows, columns, asked = targets.rows, alphabet.admitted.shape[1], asked_for(alphabet, targets)
    table = np.zeros((rows.size, columns))
    table[np.searchsorted(rows, asked // columns), asked % columns] = values
    told = targets, users, so_far, variance, law, reports
    return PrivateReports(alphabet, table, *told, takes_classes=takes_classes)


def latest(
    alphabet: Items, law: ReportNoise, sealed: Sequence[Sealed], read: Callable[[Sealed], tuple[Ints | Floats, float]]
) -> PrivateReports:
    """The release after these epochs: the histogram of the last; `read` gives its numbers and their variance."""
    if not sealed:
        return nothing_reported(alphabet, law)
    last, so_far = sealed[-1], sum(epoch.users for epoch in sealed)
    values, variance = read(last)
    return histogram_of(alphabet, targets_of(last.plan), values, last.users, so_far, variance, law)


#: Users lost over the rule where accuracy decides and not coverage: 2 to 4 on queues, up to 4.2 on inventories; more
#: on a chain where a run went wrong (docs/spotlight.md).
SMALL_GAPS = 5.0


def lost_per_cell(branching: float) -> float:
    """Users per cell with b outcomes, at ε = 1 under replace: 25 + 12·√b, measured over b = 1 to 20."""
    return 25.0 + 12.0 * math.sqrt(branching)


def users_lost(spec: CountSpec, structure: PublicStructure, branching: float | None) -> float:
    """`lost_per_cell` over all cells that have to be learned: about .45 of them where every step has its own."""
    per_cell = lost_per_cell(typical(spec, structure) if branching is None else branching)
    return per_cell * spec.sizes[0] * (0.45 if spec.stages > 1 else 1.0)


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


def adjusted(spec: CountSpec, structure: PublicStructure) -> PublicStructure:
    """What is declared, checked. Cells that never pay need no bit only where 0 is the lowest reward, hence bit 0."""
    if structure.successors is not None and not structure.successors.any(axis=-1).all():
        raise ValueError("successors leave some cell without any; every cell needs at least one")
    if spec.reward_range is not None and spec.reward_range[0] != 0.0:
        return replace(structure, zero_rewards=None)
    return structure


def alphabet_of(spec: CountSpec, structure: PublicStructure) -> Items:
    """The reports of a problem. The only step of a problem has no successor worth knowing, pooled or not."""
    structure = adjusted(spec, structure)
    pooled, start = spec.pooled and spec.horizon > 1, structure.initial is None
    return Items.of(spec.num_states, spec.num_actions, spec.horizon, pooled, structure, start=start)


def reports_on(alphabet: Items, targets: Targets) -> Ints:
    """All reports that there are on these targets, in order: row·2S + 2·s' + bit."""
    row, column = np.nonzero(alphabet.admitted[targets.rows])
    return np.asarray(targets.rows[row] * alphabet.admitted.shape[1] + column)


def asked_for(alphabet: Items, targets: Targets) -> Ints:
    """The sub-cells that reports on these targets count at, in order."""
    items = reports_on(alphabet, targets)
    return items if targets.classes is None else np.unique(targets.sub_cells(items, alphabet.num_states))


def numbered(alphabet: Items, targets: Targets) -> tuple[Ints, Ints]:
    """The sub-cells asked for, in order, and the number of every report among them.

    −1 for one that does not exist; the last entry is that of "none". Reports of one class have one number.
    """
    items, asked = reports_on(alphabet, targets), asked_for(alphabet, targets)
    place = np.full(alphabet.admitted.size + 1, -1, dtype=np.int64)
    place[items] = np.searchsorted(asked, targets.sub_cells(items, alphabet.num_states))
    return asked, place


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
        not alphabet.pooled,
        alphabet.num_cells if alphabet.has_start else -1,
        items[:told],
        2 * spec.num_states,
    )
    return items
