"""What several seeds say: summaries, bootstrap intervals, paired differences, probability of improvement.

Pure functions of numbers. Smaller is better throughout (regret ratios, gaps). Scores come in *strata*, one per
environment; seeds are resampled within their stratum, so that no resample forgets an environment. Intervals are
percentile intervals of a seeded bootstrap, hence the same at every call; where no stratum has two seeds there is
none. Source: Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice".
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from discreet.mdp import Floats

#: Scores of one learner: environment → seed → score.
Scores: TypeAlias = Mapping[Any, Mapping[int, float]]
#: From samples (…, n) to numbers (…).
Statistic: TypeAlias = Callable[[Floats], Any]

LEVEL = 0.95
RESAMPLES = 2000
_ENTRIES = 2_000_000  # of one batch of resamples


class Interval(NamedTuple):
    low: float
    high: float


# Of one sample ------------------------------------------------------------------------------------------------------


def mean(values: npt.ArrayLike) -> Any:
    return np.asarray(values, dtype=np.float64).mean(axis=-1)


def sd(values: Sequence[float]) -> float | None:
    """√(Σ(x − x̄)²/(n−1)); one number has none."""
    return statistics.stdev(values) if len(values) > 1 else None


def median(values: npt.ArrayLike) -> Any:
    return np.median(np.asarray(values, dtype=np.float64), axis=-1)


def worst(values: npt.ArrayLike) -> Any:
    return np.asarray(values, dtype=np.float64).max(axis=-1)


def interquartile_mean(values: npt.ArrayLike) -> Any:
    """The mean without the ⌊n/4⌋ smallest and the ⌊n/4⌋ largest."""
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    n = ordered.shape[-1]
    return ordered[..., n // 4 : n - n // 4].mean(axis=-1)


@dataclass(frozen=True)
class Variation:
    """How a number varies over seeds. `sd` divides by n−1 and does not exist for one seed."""

    mean: float
    sd: float | None
    median: float
    worst: float
    values: tuple[float, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, values: Sequence[float]) -> Variation:
        if not values:
            raise ValueError("there are no values to summarise; expected at least one")
        found = statistics.fmean(values), sd(values), statistics.median(values), max(values)
        return cls(*found, tuple(float(value) for value in values))

    @property
    def iqm(self) -> float:
        return float(interquartile_mean(self.values))

    @cached_property
    def interval(self) -> Interval | None:
        """Of the interquartile mean."""
        return bootstrap([self.values], interquartile_mean)


# The bootstrap ------------------------------------------------------------------------------------------------------


def resampled(strata: Sequence[Floats], generator: np.random.Generator, resamples: int) -> Floats:
    """(resamples, Σ n_s): n_s draws with replacement from every stratum s, side by side."""
    drawn = [values[generator.integers(len(values), size=(resamples, len(values)))] for values in strata]
    return np.concatenate(drawn, axis=1)


def bootstrap(
    strata: Sequence[npt.ArrayLike],
    statistic: Statistic = interquartile_mean,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """The percentile interval of a statistic of all scores, resampled within strata."""
    known = _nonempty(strata)
    width = sum(len(values) for values in known)
    return _interval(known, lambda g, n: statistic(resampled(known, g, n)), width, level, resamples, seed)


def _nonempty(strata: Sequence[npt.ArrayLike]) -> list[Floats]:
    known = [np.asarray(values, dtype=np.float64) for values in strata]
    if not known or any(values.ndim != 1 or not len(values) for values in known):
        raise ValueError("every stratum must be a list of at least one score")
    return known


def _interval(
    strata: Sequence[Floats],
    draw: Callable[[np.random.Generator, int], Any],
    width: int,
    level: float,
    resamples: int,
    seed: int,
) -> Interval | None:
    """Percentiles of `resamples` draws, made in batches of bounded memory; `width` entries each."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level:g}; it must lie strictly between 0 and 1")
    if max(len(values) for values in strata) < 2:
        return None
    generator, most = np.random.default_rng(seed), max(1, _ENTRIES // width)
    sizes = [min(most, resamples - start) for start in range(0, resamples, most)]
    drawn = np.concatenate([np.asarray(draw(generator, size), dtype=np.float64) for size in sizes])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


# Of two learners ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paired:
    """ours − theirs over the seeds that both have, in the environments that both have; below 0 ours is better."""

    mean: float
    median: float
    interval: Interval | None  # of the mean
    pairs: int


def paired(
    ours: Scores, theirs: Scores, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> Paired | None:
    """Differences at equal environment and seed; None where there is no such pair."""
    strata = [
        np.array([ours[place][one] - theirs[place][one] for one in sorted(ours[place].keys() & theirs[place].keys())])
        for place in _shared(ours, theirs)
    ]
    known = [values for values in strata if len(values)]
    if not known:
        return None
    every = np.concatenate(known)
    interval = bootstrap(known, mean, level, resamples, seed)
    return Paired(float(every.mean()), float(np.median(every)), interval, len(every))


def _shared(ours: Scores, theirs: Scores) -> list[Any]:
    return sorted(ours.keys() & theirs.keys(), key=str)


@dataclass(frozen=True)
class Improvement:
    """P(ours < theirs) + ½·P(ours = theirs) for seeds drawn independently, averaged over environments."""

    probability: float
    interval: Interval | None
    environments: int


def improvement(
    ours: Scores, theirs: Scores, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> Improvement | None:
    """The probability that a run of ours is better than one of theirs; None where no environment is shared."""
    pairs = [
        tuple(np.array(list(scores[place].values()), dtype=np.float64) for scores in (ours, theirs))
        for place in _shared(ours, theirs)
        if ours[place] and theirs[place]
    ]
    if not pairs:
        return None

    def draw(generator: np.random.Generator, n: int) -> Floats:
        again = [[resampled([side], generator, n) for side in pair] for pair in pairs]
        return np.asarray(np.mean([_better(*pair) for pair in again], axis=0))

    point = float(np.mean([_better(*pair) for pair in pairs]))
    width = sum(len(x) * len(y) for x, y in pairs)
    interval = _interval([side for pair in pairs for side in pair], draw, width, level, resamples, seed)
    return Improvement(point, interval, len(pairs))


def _better(ours: Floats, theirs: Floats) -> Any:
    """The share of pairs of (…, n) and (…, m) in which ours is smaller; ties count half."""
    x, y = ours[..., :, None], theirs[..., None, :]
    return ((x < y) + 0.5 * (x == y)).mean(axis=(-2, -1))
