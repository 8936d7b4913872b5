"""What every privatizer of counts shares: one budget, three tables, one noise law per table.

A table ("family") f gets a share of the budget; its noise scale follows from the sensitivity of the statistic and
from the number of noisy values one user enters. Nothing here sees data.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from discreet.mdp import Ints
from discreet.people.counts import CountSpec, Sensitivity
from discreet.privacy.accounting import (
    Budget,
    LedgerEntry,
    Mechanism,
    Neighbours,
    gaussian_entry,
    gaussian_sigma,
    laplace_entry,
    laplace_scale,
)
from discreet.privacy.envelope import LARGEST_SCALE, SMALLEST_SCALE
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.tails import gaussian_union_width, laplace_union_width

#: Blocks of noise are drawn ahead while they have at most so many numbers together.
SMALL_BLOCKS = 1 << 15
TABLES = ("visits", "transitions", "rewards")

#: How a caller may divide a budget: equal parts (None), weights in the order of `TABLES`, or weights by name.
Shares = Mapping[str, float] | Sequence[float] | None


def check_choice(name: str, value: str, *choices: str) -> None:
    """Refuse what is none of the choices."""
    if value not in choices:
        listed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"{name} is {value!r}; it must be {listed}")


def check_printed(calibration: str, mechanism: str | None) -> None:
    """Papers print scales for Laplace noise only."""
    check_choice("calibration", calibration, "true", "paper")
    if calibration == "paper" and mechanism != "laplace":
        raise ValueError("the papers print a scale for Laplace noise only; state epsilon alone")


def chosen_mechanism(budget: Budget, mechanism: str | None) -> Mechanism:
    """The noise asked for; by default Laplace for a pure budget and Gaussian for any other."""
    if mechanism is None:
        return "laplace" if budget.kind == "pure" else "gaussian"
    check_choice("mechanism", mechanism, "laplace", "gaussian")
    return "laplace" if mechanism == "laplace" else "gaussian"


def share_weights(shares: Shares) -> tuple[float, float, float]:
    """Weights of (visits, transitions, rewards); only rewards may have none (they are then not released)."""
    if shares is None:
        return 1.0, 1.0, 1.0
    if isinstance(shares, Mapping):
        unknown = sorted(set(shares) - set(TABLES))
        if unknown:
            raise ValueError(f"shares name {unknown[0]!r}; the tables are {', '.join(TABLES)}")
        weights = tuple(float(shares.get(name, 0.0)) for name in TABLES)
    else:
        weights = tuple(float(weight) for weight in shares)
    good = len(weights) == 3 and all(0.0 <= w < math.inf for w in weights) and min(weights[0], weights[1]) > 0.0
    if not good:
        raise ValueError(
            f"shares are {shares!r}; expected three finite weights for visits, transitions and rewards, "
            "of which only that of rewards may be 0"
        )
    return weights[0], weights[1], weights[2]


def check_common(neighbours: str, beta: float, episodes_per_user: int) -> None:
    """Refuse settings that mean nothing, in one sentence each."""
    check_choice("neighbours", neighbours, "replace", "zero-out")
    if not 0.0 < beta < 1.0:
        raise ValueError(f"beta is {beta}; the failure probability of the widths must lie strictly between 0 and 1")
    if int(episodes_per_user) != episodes_per_user or episodes_per_user < 1:
        raise ValueError(f"episodes_per_user is {episodes_per_user!r}; it must be a whole number of at least 1")


@dataclass(frozen=True)
class Family:
    """One table and the noise each of its noisy values carries. `scale` and `deviation` are in integer units."""

    name: str
    shape: tuple[int, ...]
    unit: float  # natural size of one integer: 1 for counts, the grid for rewards
    mechanism: Mechanism
    scale: float
    entry: LedgerEntry | None  # None: the table is not released

    def __post_init__(self) -> None:
        """What is drawn is what is charged; a scale of 0 costs ∞ (`LedgerEntry`)."""
        if self.entry is not None and self.entry.scale != self.scale:
            raise ValueError(
                f"the noise of {self.name} has scale {self.scale:g}, and the ledger charges {self.entry.scale:g}"
            )

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of one noisy value, in integer units."""
        return math.sqrt(variance_of(self.mechanism, self.scale))


def variance_of(mechanism: Mechanism, scale: float) -> float:
    """Of one noise, in integer units."""
    if scale == 0.0:
        return 0.0
    return (DiscreteLaplace(scale) if mechanism == "laplace" else DiscreteGaussian(scale)).variance


def entry_of(name: str, mechanism: Mechanism, sensitivity: float, scale: float, uses: int) -> LedgerEntry:
    """The ledger line of noise of this scale, charged at what is sampled."""
    if mechanism == "gaussian":
        return gaussian_entry(name, sensitivity, scale, uses)
    ratio = DiscreteLaplace(scale).log_ratio if scale > 0.0 else math.inf
    return laplace_entry(name, sensitivity, scale, uses, ratio)


def samplable(name: str, scale: float) -> float:
    """`scale`, or the least one that can be sampled (more noise than needed); too large a scale is refused."""
    if scale > LARGEST_SCALE:
        raise ValueError(
            f"the noise of {name} would need a scale of {scale:.3g} integer units, more than {LARGEST_SCALE:.0e}; "
            "use a coarser reward grid, a shorter horizon or a larger budget"
        )
    return max(scale, SMALLEST_SCALE) if scale > 0.0 else 0.0


def calibrated(
    budget: Budget,
    mechanism: Mechanism,
    neighbours: Neighbours,
    spec: CountSpec,
    shares: Shares = None,
    uses: int = 1,
    episodes_per_user: int = 1,
    gain: Mapping[str, float] | None = None,
    factor: float | Mapping[str, float] | None = None,
) -> tuple[Family, ...]:
    """One `Family` per table, scaled so that all of them together spend the budget.

    Laplace: b = uses·Δ₁·gain/ε_f;  Gaussian: σ² = uses·(Δ₂·gain)²/(2ρ_f).  `gain` is the factor by which an encoding
    enlarges the contribution to a table (1 by default); a user in r episodes moves r times as far.
    `factor`, one for all tables or one for each, is for printed calibrations: b = factor·(L1 norm of one user's
    largest contribution)/ε_f instead.
    """
    weights = {name: weight for name, weight in zip(TABLES, share_weights(shares), strict=True) if weight > 0.0}
    budgets = budget.split(weights, mechanism)
    moved, alone = spec.sensitivity(neighbours), spec.sensitivity("zero-out")
    families = []
    for name, shape in spec.shapes().items():
        unit = spec.grid if name == "rewards" else 1.0
        if name not in budgets:
            families.append(Family(name, shape, unit, mechanism, 0.0, None))
            continue
        printed = None
        if factor is not None:
            printed = (factor[name] if isinstance(factor, Mapping) else factor) * alone[name].l1 / budgets[name]
        entry = paid(
            name, mechanism, moved[name], budgets[name], uses, gain[name] if gain else 1.0, episodes_per_user, printed
        )
        families.append(Family(name, shape, unit, mechanism, entry.scale, entry))
    return tuple(families)


def paid(
    name: str,
    mechanism: Mechanism,
    moved: Sensitivity,
    budget: float,
    uses: int = 1,
    gain: float = 1.0,
    episodes_per_user: int = 1,
    printed: float | None = None,
) -> LedgerEntry:
    """The noise that a budget buys for one table, as its ledger line; `printed` is a scale to charge as it is."""
    sensitivity = (moved.l1 if mechanism == "laplace" else moved.l2) * gain
    calibrate = laplace_scale if mechanism == "laplace" else gaussian_sigma
    scale = printed
    if scale is None:
        scale = calibrate(sensitivity * episodes_per_user, budget, uses) if math.isfinite(budget) else 0.0
    if scale == 0.0 and math.isfinite(budget):
        raise ValueError(f"the noise of {name} would have scale 0 although its budget is finite")
    return entry_of(name, mechanism, sensitivity, samplable(name, scale), uses)


def union_width(family: Family, terms: Sequence[int], occurrences: Sequence[float], beta: float) -> float:
    """Least e such that sums of terms_i noises, occurrences_i of them per counter, all stay within e."""
    return noise_width(family.mechanism, family.scale, tuple(terms), tuple(occurrences), family.size, beta)


@lru_cache(maxsize=4096)
def noise_width(
    mechanism: Mechanism,
    scale: float,
    terms: tuple[int, ...],
    occurrences: tuple[float, ...],
    counters: int,
    beta: float,
) -> float:
    """The same, of any counters with one noise."""
    width = laplace_union_width if mechanism == "laplace" else gaussian_union_width
    return width(scale, terms, occurrences, counters, beta)


def reward_rounding(spec: CountSpec, num_episodes: int) -> float:
    """How far rounding of rewards to the grid can move one cell's sum, in grid units: half a unit per visit."""
    return 0.5 * num_episodes * (spec.horizon if spec.pooled else 1)


class Blocks:
    """Draws one noise for every counter of every released table, as one flat array.

    Neighbouring tables of equal scale share one call to the sampler, and so do up to `ahead` consecutive blocks
    while they are small. Noise drawn ahead is used once: it is never shared with a fork or a checkpoint.
    """

    def __init__(self, families: Sequence[Family], noise: NoiseSource, ahead: int = 1) -> None:
        self.size = sum(family.size for family in families)
        self._ahead = max(1, min(ahead, SMALL_BLOCKS // max(self.size, 1)))
        self._store: list[Ints] = []
        self._process = os.getpid()
        self._sample = noise.laplace if families[0].mechanism == "laplace" else noise.gaussian
        runs: list[tuple[float, int, int]] = []  # scale, first counter, one past the last
        start = 0
        for family in families:
            if runs and runs[-1][0] == family.scale:
                runs[-1] = (family.scale, runs[-1][1], start + family.size)
            else:
                runs.append((family.scale, start, start + family.size))
            start += family.size
        self._runs = runs

    def draw(self) -> Ints:
        """Fresh, independent noise for every counter, visited or not."""
        if self._process != os.getpid():
            self.forget()
        if not self._store:
            parts = [self._sample(scale, (self._ahead, stop - start)) for scale, start, stop in self._runs]
            self._store = [np.concatenate([part[i] for part in parts]) for i in reversed(range(self._ahead))]
        return self._store.pop()

    def forget(self) -> None:
        """Throw away what was drawn ahead."""
        self._process, self._store = os.getpid(), []
