"""What people were paid, and what another policy would have changed: one number per person. Proof: gains.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.privacy.accounting import LedgerEntry, Mechanism, Neighbours, gaussian_sigma, laplace_scale
from discreet.privacy.families import entry_of, samplable
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.trust.noisy_max import noisy_max, noisy_max_entry, noisy_max_scale

RETURNS, CHOICE, GAINS, SQUARES = "returns", "choice", "gains", "squared gains"
#: Bins of the histogram of returns, and grid steps per unit C of a bounded gain.
RETURN_BINS, UNITS = 32, 2**16
#: A score lies within [−2C, C]; in a comparison with current practice gains do in [−4C, C], squares up to (2C)².
LEAST_SCORE, LEAST_GAIN, LARGEST_SQUARE = 2, 4, 2


def _sides(neighbours: Neighbours) -> int:
    return 2 if neighbours == "replace" else 1


def _scale(name: str, noise: Mechanism, l1: float, l2: float, share: float) -> float:
    if not math.isfinite(share):
        return 0.0
    return samplable(name, laplace_scale(l1, share) if noise == "laplace" else gaussian_sigma(l2, share))


def noisy(values: Ints, noise: Mechanism, scale: float, source: NoiseSource) -> Ints:
    drawn = source.laplace(scale, values.shape) if noise == "laplace" else source.gaussian(scale, values.shape)
    return values + drawn


def deviation_of(noise: Mechanism, scale: float) -> float:
    """Standard deviation of one noise."""
    if scale == 0.0:
        return 0.0
    return math.sqrt((DiscreteLaplace(scale) if noise == "laplace" else DiscreteGaussian(scale)).variance)


@dataclass(frozen=True)
class ReturnHistogram:
    """One item per person: the bin of what a step paid her on average. `share`: ε (Laplace) or ρ (Gaussian)."""

    share: float
    noise: Mechanism = "laplace"
    neighbours: Neighbours = "replace"

    @property
    def scale(self) -> float:
        sides = _sides(self.neighbours)
        return _scale(RETURNS, self.noise, sides, math.sqrt(sides), self.share)

    @property
    def deviation(self) -> float:
        return deviation_of(self.noise, self.scale)

    def entry(self) -> LedgerEntry:
        sides = _sides(self.neighbours)
        return entry_of(RETURNS, self.noise, sides if self.noise == "laplace" else math.sqrt(sides), self.scale, 1)

    def release(self, rates: Floats, low: float, high: float, source: NoiseSource) -> Floats:
        """Noisy numbers of people per bin of [low, high]; `rates` has one number per person."""
        place = np.nan_to_num((rates - low) / (high - low) * RETURN_BINS, nan=0.0, posinf=0.0, neginf=0.0)
        bins = np.clip(place, 0, RETURN_BINS - 1).astype(np.int64)
        counts = np.bincount(bins, minlength=RETURN_BINS).astype(np.int64)
        return noisy(counts, self.noise, self.scale, source).astype(np.float64)


def bounded(gains: Floats, unit: float, least: int) -> Floats:
    """Gains in units C, within [−least, 1]; what is no number counts as the least."""
    return np.clip(np.nan_to_num(gains / unit, nan=-least, posinf=1.0, neginf=-least), -least, 1.0)


@dataclass(frozen=True)
class GainChoice:
    """Which of several policies to take, or none, by noisy max of Σ over people of t − λ·t², t a bounded gain.

    In units of C a person's utility lies in [−2 − 4λ, 1], rounded to 2⁻¹⁶: she spans Δ = 3 + 4λ per policy, and two
    sums move against each other by at most 2Δ (zero-out: Δ). "None" has the sum 0.
    """

    epsilon: float
    caution: float  # λ in units of 1/C
    neighbours: Neighbours = "replace"

    @property
    def lowest(self) -> int:
        """The least utility, in grid units."""
        return -math.ceil((LEAST_SCORE + self.caution * LEAST_SCORE**2) * UNITS)

    @property
    def span(self) -> int:
        return _sides(self.neighbours) * (UNITS - self.lowest)

    @property
    def scale(self) -> float:
        return noisy_max_scale(CHOICE, self.span, self.epsilon)

    def entry(self) -> LedgerEntry:
        return noisy_max_entry(CHOICE, self.span, self.scale)

    def utilities(self, gains: Floats, unit: float) -> Ints:
        """Whole grid units, one per person."""
        t = bounded(gains, unit, LEAST_SCORE)
        return np.clip(np.rint((t - self.caution * t * t) * UNITS).astype(np.int64), self.lowest, UNITS)

    def choose(self, gains: list[Floats], unit: float, source: NoiseSource) -> int:
        """0 for none, else 1 + the number of the policy; gains hold one number per person and policy."""
        scores = np.array([0, *(self.utilities(each, unit).sum() for each in gains)], dtype=np.int64)
        return int(noisy_max(scores, self.scale, source))


class NoisyMoments(NamedTuple):
    """Sums over people in units C and C², and the deviations of their noises."""

    total: float
    squares: float
    total_deviation: float
    squares_deviation: float


@dataclass(frozen=True)
class GainMoments:
    """Σ of bounded gains and Σ of their squares over people, for a comparison with current practice.

    In units of C: t ∈ [−4, 1] moves the sum by at most 5 (zero-out: 4), min(|t|, 2)² ∈ [0, 4] the other by at most 4.
    """

    gains: float  # share of the budget: ε (Laplace) or ρ (Gaussian)
    squares: float
    noise: Mechanism = "laplace"
    neighbours: Neighbours = "replace"

    @property
    def reach(self) -> tuple[int, int]:
        """How far one person moves each sum, in grid units."""
        most = LEAST_GAIN + (1 if self.neighbours == "replace" else 0)
        return most * UNITS, LARGEST_SQUARE**2 * UNITS

    @property
    def scales(self) -> tuple[float, float]:
        first, second = self.reach
        return (
            _scale(GAINS, self.noise, first, first, self.gains),
            _scale(SQUARES, self.noise, second, second, self.squares),
        )

    def entries(self) -> tuple[LedgerEntry, ...]:
        names = (GAINS, SQUARES)
        return tuple(
            entry_of(name, self.noise, reach, scale, 1)
            for name, reach, scale in zip(names, self.reach, self.scales, strict=True)
        )

    def release(self, gains: Floats, unit: float, source: NoiseSource) -> NoisyMoments:
        t = bounded(gains, unit, LEAST_GAIN)
        sums = np.rint(t * UNITS).astype(np.int64).sum()
        squares = np.rint(np.minimum(np.abs(t), LARGEST_SQUARE) ** 2 * UNITS).astype(np.int64).sum()
        found = [
            int(noisy(np.array([value], dtype=np.int64), self.noise, scale, source)[0]) / UNITS
            for value, scale in zip((sums, squares), self.scales, strict=True)
        ]
        first, second = (deviation_of(self.noise, scale) / UNITS for scale in self.scales)
        return NoisyMoments(found[0], found[1], first, second)
