"""When to release and replan: functions of public quantities only."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
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
class FixedTimes:
    """Release after the users numbered in `times` (increasing), and not again after the last of them."""

    times: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.times or any(b <= a for a, b in zip((0, *self.times), self.times, strict=False)):
            raise ValueError(f"times are {self.times}; expected increasing whole numbers of at least 1")

    def length(self, done: int) -> int:
        position = bisect_right(self.times, done)
        return self.times[position] - done if position < len(self.times) else 2**62
