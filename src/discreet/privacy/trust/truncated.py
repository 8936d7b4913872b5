"""Rewards without a bound: users drop what exceeds a public threshold that scales the noise. Proof: truncated.md."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, Mechanism, Neighbours
from discreet.privacy.crowd import Keeper
from discreet.privacy.envelope import SMALLEST_SCALE
from discreet.privacy.families import Blocks, Family, calibrated, reward_rounding, samplable
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.epochs import Epochs, EpochStream
from discreet.privacy.sums.exact import Exact, ExactStream
from discreet.privacy.sums.streams import CountStream, stated
from discreet.privacy.sums.tree import Tree, TreeStream
from discreet.privacy.tails import adaptive_width, exponent_grid, log_moments
from discreet.privacy.trust.local import ONE_REPORT, LocalLaplace, sum_of_noises
from discreet.problem import THRESHOLDS
from discreet.releases.counts import PerTable, PrivateCounts, Thresholds

PUBLIC = "thresholds depend on public numbers and earlier releases only"


def bounded(spec: CountSpec) -> CountSpec:
    """The same statistic for rewards in [0, 1]: its visits and transitions, and in L1 its rewards, are ours."""
    return replace(spec, reward_range=(0.0, 1.0))


def signed(mechanism: Mechanism | None, neighbours: Neighbours) -> dict[str, float]:
    """How much further than rewards in [0, 1] rewards in [−1, 1] can move a table: √2 in L2 under replace.

    In one cell a step may go from −B to B: 2√H instead of √(2H), pooled 2H instead of √2·H. In L1 two steps in
    different cells move as far, 2H; against nothing (zero-out) signs do not matter.
    """
    far = math.sqrt(2.0) if mechanism == "gaussian" and neighbours == "replace" else 1.0
    return {"visits": 1.0, "transitions": 1.0, "rewards": far}


def printed_factors(printed: bool, levels: float = 1.0) -> dict[str, float] | None:
    """Of [WZCW23] Lem. 1, 2: H·levels/ε_f for counts, which is half of what they need, and 2HB·levels/ε_f for
    rewards; None where the true scale is asked for."""
    return {"visits": levels, "transitions": levels, "rewards": 2.0 * levels} if printed else None


class Cut:
    """The thresholds in force, as public multiples of the reward grid; their running maximum scales the noise."""

    def __init__(self, spec: CountSpec) -> None:
        if spec.reward_range is not None:
            raise ValueError("rewards have a declared range; truncation is for rewards without one")
        self.spec = spec
        self.levels: Floats | None = None
        self.peak: Floats = np.zeros(spec.shapes()["visits"])

    def announce(self, plan: Plan) -> None:
        thresholds = plan.announcement
        if not isinstance(thresholds, Thresholds) or thresholds.values.shape != self.peak.shape:
            raise ValueError(f"the plan announces no thresholds of shape {self.peak.shape}")
        smallest, largest = THRESHOLDS
        if thresholds.values.min() < smallest or thresholds.values.max() > largest:
            raise ValueError(f"the plan announces thresholds outside [{smallest:g}, {largest:g}]")
        self.levels = np.ceil(thresholds.values / self.spec.grid) * self.spec.grid
        self.peak = np.maximum(self.peak, self.levels)

    def applied(self, contribution: Episodes | Counts) -> Episodes:
        """r·1{|r| ≤ B(h,s,a)}, on the user's side of the wall."""
        if not isinstance(contribution, Episodes):
            raise TypeError("rewards are truncated one by one, so this stream takes Episodes and cannot take Counts")
        if self.levels is None:
            raise ValueError("no thresholds have been announced; call begin(plan) first")
        episodes = self.spec.readable(contribution)
        stages = np.minimum(np.arange(episodes.horizon), self.levels.shape[0] - 1)
        limits = self.levels[stages, episodes.states[:, :-1], episodes.actions]
        return replace(episodes, rewards=np.where(np.abs(episodes.rewards) <= limits, episodes.rewards, 0.0))


class ThresholdBlocks(Blocks):
    """Noise for all counters; a reward sum's scale is that of a threshold of 1 times the cell's peak."""

    def __init__(self, families: tuple[Family, ...], noise: NoiseSource, cut: Callable[[], Cut]) -> None:
        super().__init__(families[:2], noise)
        self._counts, self._rewards, self._noise, self._cut = self.size, families[2], noise, cut
        self.size += families[2].size

    def draw(self) -> Ints:
        peaks = self._cut().peak.reshape(-1)
        block = np.empty(self.size, dtype=np.int64)
        self.size, whole = self._counts, self.size
        block[: self._counts] = super().draw()
        self.size = whole
        tail = block[self._counts :]
        sample = self._noise.laplace if self._rewards.mechanism == "laplace" else self._noise.gaussian
        for peak in np.unique(peaks).tolist():
            cells = peaks == peak
            tail[cells] = sample(samplable("rewards", self._rewards.scale * peak), int(cells.sum()))
        return block


class Spread:
    """Errors of reward sums whose scales follow the releases: supermartingale widths, and deviations."""

    def __init__(self, family: Family, spec: CountSpec, num_episodes: int, beta: float, most_terms: int) -> None:
        self._gaussian = family.mechanism == "gaussian"
        self._unit = family.scale * family.unit  # natural scale at a threshold of 1
        self._least = SMALLEST_SCALE * family.unit if self._unit > 0.0 else 0.0  # what is sampled at the least
        self._deviation = family.deviation * family.unit
        self._cells, self.beta = family.size, beta
        smallest, largest = (limit * (self._unit or 1.0) for limit in THRESHOLDS)
        self.grid = exponent_grid(smallest, largest, max(most_terms, 1))
        self._rounding = reward_rounding(spec, num_episodes) * spec.grid

    def moments(self, peak: Floats) -> Floats:
        """Bounds on ln E exp(s·noise) for every exponent s: −ln(1 − s²b²), or s²σ²/2 [CKS20]."""
        scales = np.maximum(self._unit * np.asarray(peak), self._least)
        if self._gaussian:
            return np.asarray(0.5 * (self.grid.reshape(-1, *([1] * scales.ndim)) * scales[None]) ** 2)
        return log_moments(scales, self.grid)

    def width(self, moment_sums: Floats, beta: float | None = None, num_prefixes: int = 1) -> Floats:
        share = self.beta if beta is None else beta
        if self._unit == 0.0:  # no noise: only the grid is left
            return np.full(moment_sums.shape[1:], self._rounding)
        return adaptive_width(moment_sums, self.grid, self._cells, share, num_prefixes) + self._rounding

    def deviation(self, peak: Floats, terms: Floats | Ints | float) -> Floats:
        """At most: every noise in the sum has at most the scale of the present peak."""
        return np.asarray(np.sqrt(terms) * peak * self._deviation)


class Announced(Keeper):
    """A stream whose users cut rewards at announced thresholds."""

    _cut: Cut

    def begin(self, plan: Plan) -> None:
        self._cut.announce(plan)


class Cutting(Announced, CountStream):
    """Sums of a curator whose noise follows the largest thresholds so far."""

    _state: ClassVar[tuple[str, ...]] = ("_cut",)

    def _follow(self, spec: CountSpec, num_episodes: int, noise: NoiseSource, most_terms: int) -> None:
        self._mechanism.noise = ThresholdBlocks(self._families, noise, lambda: self._cut)
        self._spread = Spread(self._families[2], spec, num_episodes, self._beta / 3, most_terms)
        self.guarantee = replace(self.guarantee, assumptions=(*self.guarantee.assumptions, PUBLIC))

    def add(self, contribution: Episodes | Counts) -> None:
        super().add(self._cut.applied(contribution))

    def _widths(self) -> PerTable:
        widths = super()._widths()
        if self._families[2].entry is None:
            return widths
        return replace(widths, rewards=self._reward_width() if self._mechanism.blocks else 0.0)

    def _deviations(self) -> PerTable:
        deviations = super()._deviations()
        if self._families[2].entry is None:
            return deviations
        return replace(deviations, rewards=self._spread.deviation(self._cut.peak, self._noises))

    @property
    @abstractmethod
    def _noises(self) -> Any:
        """How many noises are in the sums, a number or one per cell."""

    @abstractmethod
    def _reward_width(self) -> Floats:
        """Of sums that hold some."""


@dataclass(frozen=True)
class TruncatedEpochs(Epochs):
    """`Epochs` whose rewards have no bound but a public threshold per cell.

    Guarantee: as `Epochs`, truncated.md.   Width of rewards: supermartingale, valid for adaptive scales.
    Source: [WZCW23] with public thresholds.   Differs: thresholds come from releases, never from raw counts.
    """

    def families(self, spec: CountSpec) -> tuple[Family, ...]:
        gain = signed(self.mechanism, self.neighbours)
        return self._calibrated(bounded(spec), gain=gain, factor=printed_factors(self.calibration == "paper"))

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> TruncatedEpochStream:
        return TruncatedEpochStream(self, spec, num_episodes, noise)


class TruncatedEpochStream(Cutting, EpochStream):
    def __init__(self, epochs: TruncatedEpochs, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        self._cut = Cut(spec)
        super().__init__(epochs, spec, num_episodes, noise)
        self._follow(spec, num_episodes, noise, num_episodes)

    @property
    def _noises(self) -> Ints:
        return self._lengths

    def _reward_width(self) -> Floats:
        t = self._epochs
        sums = self._lengths * self._spread.moments(self._cut.peak)
        return self._spread.width(sums, self._spread.beta / (t * t * (t + 1)))


@dataclass(frozen=True)
class TruncatedTree(Tree):
    """`Tree` whose rewards have no bound but a public threshold per cell; noise follows the largest so far."""

    def families(self, spec: CountSpec, num_episodes: int) -> tuple[Family, ...]:
        uses, gain = self.layout(num_episodes).nodes_per_user, signed(self.mechanism, self.neighbours)
        factor = printed_factors(self.calibration == "paper", math.log2(num_episodes))
        return self._calibrated(bounded(spec), uses=uses, gain=gain, factor=factor)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> TruncatedTreeStream:
        return TruncatedTreeStream(self, spec, num_episodes, noise)


class TruncatedTreeStream(Cutting, TreeStream):
    def __init__(self, tree: TruncatedTree, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        if tree.variant != "binary" or tree.constant_noise:
            raise ValueError("thresholds that change go with the plain binary tree only")
        self._cut = Cut(spec)
        super().__init__(tree, spec, num_episodes, noise)
        self._follow(spec, num_episodes, noise, self._layout.bits)

    @property
    def _noises(self) -> float:
        return self._mechanism.variance

    def _reward_width(self) -> Floats:
        sums = len(self._mechanism.nodes) * self._spread.moments(self._cut.peak)
        return self._spread.width(sums, num_prefixes=self._layout.num_prefixes)


@dataclass(frozen=True)
class TruncatedLocal:
    """`LocalLaplace` whose rewards have no bound but a public threshold per cell, sent to every user.

    Guarantee: ε-LDP, truncated.md.   Width of rewards: supermartingale over users.
    `calibration="paper"` has the printed scales and states what they truly guarantee, 5ε/3.
    """

    budget: Budget
    beta: float = 0.01
    calibration: Literal["true", "paper"] = "true"

    def __post_init__(self) -> None:
        LocalLaplace(self.budget, beta=self.beta, calibration=self.calibration)  # refuses what is not pure epsilon

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> TruncatedLocalStream:
        return TruncatedLocalStream(self, spec, num_episodes, noise)


class TruncatedLocalStream(Announced):
    """Counts in a `LocalCounterStream` with two thirds of the budget, noisy reward sums here."""

    def __init__(self, local: TruncatedLocal, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        self._cut, self._spec, self._noise = Cut(spec), spec, noise
        total = local.budget.total("laplace")
        counts = LocalLaplace(Budget.pure(total * 2 / 3), (1.0, 1.0, 0.0), local.beta * 2 / 3, local.calibration)
        self._counts = counts.open(bounded(spec), num_episodes, noise)
        self._crowd = self._counts._crowd
        self._family = calibrated(local.budget, "laplace", "replace", bounded(spec))[2]
        self._spread = Spread(self._family, spec, num_episodes, local.beta / 3, num_episodes)
        self._moments = np.zeros((len(self._spread.grid), *self._cut.peak.shape))
        self._variance = np.zeros(self._cut.peak.shape)
        self._sums: Ints = np.zeros(self._cut.peak.shape, dtype=np.int64)
        assert self._family.entry is not None
        entries, common = (*self._counts.ledger, self._family.entry), (local.budget, num_episodes, noise)
        told, printed = (ONE_REPORT, PUBLIC), local.calibration == "paper"
        self.guarantee = stated(entries, "local", "replace", *common, *told, printed=printed)
        self._beta = local.beta

    def add(self, contribution: Episodes | Counts) -> None:
        episodes = self._cut.applied(contribution)
        levels = self._cut.levels
        assert levels is not None
        self._counts.add(episodes)
        n = len(episodes)
        self._sums += Counts.of(episodes, self._spec).reward_sums
        for level in np.unique(levels).tolist():
            cells = levels == level
            noise = sum_of_noises(self._family.scale * level, n, int(cells.sum()), self._noise)
            self._sums[cells] += noise
        self._moments += n * self._spread.moments(levels)
        self._variance += n * self._spread.deviation(levels, 1.0) ** 2

    def release(self) -> PrivateCounts:
        counts = self._counts.release()
        rewards = self._spread.width(self._moments) if counts.num_episodes else 0.0
        return replace(
            counts,
            reward_sums=np.asarray(self._sums * self._spec.grid, dtype=np.float64),
            widths=replace(counts.widths, rewards=rewards),
            deviations=replace(counts.deviations, rewards=np.sqrt(self._variance)),
            beta=self._beta,
            reward_range=None,
        )


@dataclass(frozen=True)
class TruncatedExact(Exact):
    """No noise and no privacy, rewards cut at the announced thresholds: the twin of the others."""

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> TruncatedExactStream:
        return TruncatedExactStream(spec, num_episodes)


class TruncatedExactStream(Announced, ExactStream):
    def __init__(self, spec: CountSpec, num_episodes: int) -> None:
        super().__init__(spec, num_episodes)
        self._cut = Cut(spec)

    def add(self, contribution: Episodes | Counts) -> None:
        super().add(self._cut.applied(contribution))
