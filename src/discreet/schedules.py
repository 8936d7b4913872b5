"""When to release and replan: functions of public quantities only."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol


class Schedule(Protocol):
    def length(self, done: int) -> int:
        """How many users play the next policy when `done` have played before."""
        ...


@dataclass(frozen=True)
class EveryEpisode:
    """A new policy for every user."""

    def length(self, done: int) -> int:
        return 1


@dataclass(frozen=True)
class GeometricEpochs:
    """Epoch ends grow by a factor: k → max(k+1, ⌈growth·k⌉), from `first` users."""

    growth: float = 1.2
    first: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.growth) and self.growth > 1):
            raise ValueError(f"growth is {self.growth}; it must be a finite number above 1")
        if self.first < 1:
            raise ValueError(f"first is {self.first}; the first epoch needs at least one user")

    def length(self, done: int) -> int:
        return self.first if done == 0 else max(1, math.ceil((self.growth - 1) * done))


@dataclass(frozen=True)
class TwoClocks:
    """Counts and losses are released at times of their own: counts at geometric epochs, losses every `loss_length`
    users. A policy is kept until either clock strikes."""

    num_episodes: int
    loss_length: int = 1
    count_growth: float = 1.2
    count_first: int = 1

    @cached_property
    def count_ends(self) -> list[int]:
        ends, end = [], self.count_first
        while end < self.num_episodes:
            ends.append(end)
            end = max(end + 1, math.ceil(self.count_growth * end)) if self.count_growth > 1.0 else end + 1
        return ends

    @property
    def loss_ends(self) -> range:
        return range(self.loss_length, self.num_episodes, self.loss_length)

    @property
    def num_loss_blocks(self) -> int:
        return max(len(self.loss_ends), 1)

    @property
    def num_count_blocks(self) -> int:
        return max(len(self.count_ends), 1)

    def length(self, done: int) -> int:
        position = bisect_right(self.count_ends, done)
        counts = self.count_ends[position] if position < len(self.count_ends) else self.num_episodes
        losses = (done // self.loss_length + 1) * self.loss_length
        return min(counts, losses, self.num_episodes) - done

    def due(self, done: int) -> tuple[bool, bool]:
        """Whether the counts, and whether the losses, of the first `done` users are released now: all in the end."""
        position = bisect_right(self.count_ends, done)
        counts = position > 0 and self.count_ends[position - 1] == done
        last = done == self.num_episodes
        return counts or last, done % self.loss_length == 0 or last
