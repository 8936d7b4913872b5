"""Slow, obvious versions of what the audit computes, and mechanisms that are wrong on purpose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.audit.games import ReleasePattern, measurements
from discreet.privacy.noise import DiscreteLaplace, NoiseSource
from discreet.privacy.sums.one_shot import OneShot, OneShotStream

# Exact values -------------------------------------------------------------------------------------------------------


def clopper_pearson(successes: int, trials: int, error: float) -> tuple[float, float]:
    """Both one-sided ends, from their definition: P(X ≥ k; low) = error = P(X ≤ k; high)."""
    low, high = 0.0, 1.0
    if successes > 0:
        low = optimize.brentq(lambda p: stats.binom.sf(successes - 1, trials, p) - error, 0.0, 1.0, xtol=1e-15)
    if successes < trials:
        high = optimize.brentq(lambda p: stats.binom.cdf(successes, trials, p) - error, 0.0, 1.0, xtol=1e-15)
    return low, high


def worst_shift_ratio(scale: float, shift: int) -> float:
    """max over y of ln P(y)/P(y − shift) under discrete Laplace noise, by looking at every y."""
    y = np.arange(-abs(shift) - 60, abs(shift) + 61)
    law = DiscreteLaplace(scale)
    return float(np.abs(np.log(law.pmf(y)) - np.log(law.pmf(y - shift))).max())


def intervals(num_prefixes: int) -> set[tuple[int, int]]:
    """All intervals of users that the binary mechanism noises to answer prefixes 1..T, from the digits of t."""
    found = set()
    for t in range(1, num_prefixes + 1):
        start = 0
        for bit in reversed(range(t.bit_length())):
            if t >> bit & 1:
                found.add((start, start + 2**bit))
                start += 2**bit
    return found


def single_scores(
    privatizer: object,
    plan: ReleasePattern,
    episodes: int,
    worlds: list[Episodes],
    world: int,
    runs: int,
    scales: list[float],
) -> Iterator[float]:
    """Likelihood-ratio scores of the first user, one stream and one real `Episodes` at a time, H = 1, S = A = 2."""
    spec = CountSpec(2, 2, 1, pooled=True, grid=1.0)
    noise = NoiseSource.seeded(97)

    def flat(release: object) -> np.ndarray:
        return np.concatenate([np.ravel(getattr(release, n)) for n in ("visits", "transitions", "reward_sums")])

    cells = []
    for episode in worlds:
        s, a, s2 = episode.states[0, 0], episode.actions[0, 0], episode.states[0, 1]
        x = np.zeros(16)
        x[2 * s + a], x[4 + 4 * s + 2 * a + s2], x[12 + 2 * s + a] = 1, 1, episode.rewards[0, 0]
        cells.append(x)
    b = np.repeat(scales, [4, 8, 4])
    steps = measurements(plan, episodes)
    last = max(t for _, t in steps)
    for _ in range(runs):
        stream = privatizer.open(spec, episodes, noise)
        seen, others, choice = {0: np.zeros(16)}, np.zeros(16), 0
        for user in range(last):
            taken = world if user == 0 else choice
            stream.add(worlds[taken])
            if user > 0:
                others += cells[taken]
            if any(t == user + 1 for _, t in steps):
                values = flat(stream.release())
                choice = int(values[0] > values[3])
                seen[user + 1] = values - others
        score = 0.0
        for base, t in steps:
            if base == 0:
                node = seen[t] - seen[base]
                score += float(((np.abs(node - cells[0]) - np.abs(node - cells[1])) / b).sum())
        yield score


# Mutants ------------------------------------------------------------------------------------------------------------


class WrongNoise(NoiseSource):
    """A seeded source whose Laplace noise is wrong in a stated way."""

    def __init__(self, inner: NoiseSource, how: str) -> None:
        self.inner, self.how, self.kept = inner, how, {}

    @property
    def simulation(self) -> bool:
        return True

    def words(self, count: int) -> np.ndarray:
        return self.inner.words(count)

    def laplace(self, scale: float, shape: tuple[int, int]) -> np.ndarray:
        """A row for each of several blocks."""
        rows, counters = shape
        if self.how == "half":
            return self.inner.laplace(scale / 2, shape)
        if self.how == "same for all counters":
            return np.repeat(self.inner.laplace(scale, (rows, 1)), counters, axis=1)
        assert self.how == "same for all releases"
        if (scale, counters) not in self.kept:
            self.kept[scale, counters] = self.inner.laplace(scale, (1, counters))
        return np.repeat(self.kept[scale, counters], rows, axis=0)


@dataclass(frozen=True)
class Mutant:
    """A shipped privatizer whose noise is tampered with."""

    privatizer: object
    how: str

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> object:
        return self.privatizer.open(spec, num_episodes, WrongNoise(noise, self.how))


class _VisitedOnlyStream(OneShotStream):
    def _advance(self) -> None:
        visited = self._sums.flat != 0
        super()._advance()
        self._mechanism.value = np.where(visited, self._mechanism.value, 0)


class VisitedOnly(OneShot):
    """Noise on the cells somebody visited: the others say so."""

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> OneShotStream:
        return _VisitedOnlyStream(self, spec, num_episodes, noise)


def one_level_short(tree: object, num_episodes: int) -> object:
    """The same tree with noise for one level less than a user enters."""
    levels = (num_episodes - 1).bit_length()
    assert levels >= 2
    epsilon = tree.budget.epsilon * levels / (levels - 1)
    return replace(tree, budget=replace(tree.budget, epsilon=epsilon))


def randomised_response_epsilon(p: float) -> float:
    return math.log(p / (1 - p))
