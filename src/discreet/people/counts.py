"""What one user contributes, as integers, and how far one user can move it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.device.tables import Tables, check_grid
from discreet.kernels import rollout as kernel
from discreet.mdp import Floats, Ints
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Neighbours
from discreet.problem import THRESHOLDS, grid_for

#: |sum of rewards| on the grid stays below this, so that noise can be added in 64 bits.
LARGEST_SUM = 2**61


#: Without a declared range a single reward still has to fit the sums.
UNBOUNDED_REWARD = THRESHOLDS[1]


class Sensitivity(NamedTuple):
    """Largest change of one table when one user's episode changes, in the units of the table's integers."""

    l1: float
    l2: float


@dataclass(frozen=True)
class CountSpec:
    """Public description of a `Counts` statistic: every number a privatizer may calibrate to.

    Rewards, infinite ones included, are clipped to `reward_range`, scaled so that the range becomes [0, 1], and
    rounded to multiples of `grid`; learners plan in these units. `reward_range=None` (no bound, no scaling) is for
    non-private use only.
    """

    num_states: int
    num_actions: int
    horizon: int
    pooled: bool
    grid: float = 2.0**-20
    reward_range: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        for name in ("num_states", "num_actions", "horizon"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        check_grid(self.grid)
        if self.reward_range is not None:
            low, high = self.reward_range
            if not (math.isfinite(low) and math.isfinite(high - low) and low < high):
                raise ValueError(f"reward_range is {self.reward_range}; expected two finite numbers, low < high")

    @classmethod
    def for_episodes(
        cls,
        num_states: int,
        num_actions: int,
        horizon: int,
        pooled: bool,
        num_episodes: int,
        reward_range: tuple[float, float] | None = (0.0, 1.0),
    ) -> CountSpec:
        """A spec with the grid of so many episodes."""
        return cls(num_states, num_actions, horizon, pooled, grid_for(num_episodes), reward_range)

    @property
    def stages(self) -> int:
        return 1 if self.pooled else self.horizon

    @property
    def reward_units(self) -> int:
        """Largest reward in grid units."""
        return math.ceil(1.0 / self.grid)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        G, S, A = self.stages, self.num_states, self.num_actions
        return {"visits": (G, S, A), "transitions": (G, S, A, S), "rewards": (G, S, A)}

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Counters per table."""
        return tuple(math.prod(shape) for shape in self.shapes().values())

    def split(self, flat: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Visits, transitions and rewards as views of one array that holds them in this order."""
        visits, transitions, rewards = np.split(flat, np.cumsum(self.sizes)[:-1])
        cells, rows, _ = self.shapes().values()
        return visits.reshape(cells), transitions.reshape(rows), rewards.reshape(cells)

    def bounded(self) -> tuple[float, float]:
        """The range rewards are clipped to, refused where there is none."""
        if self.reward_range is None:
            raise ValueError(
                "reward_range is None, so that one reward could be arbitrarily large; declare the range rewards are "
                "clipped to"
            )
        return self.reward_range

    @cached_property
    def tables(self) -> Tables:
        """The same description as a device reads it."""
        S, A, H = self.num_states, self.num_actions, self.horizon
        return Tables(S, A, H, self.stages, self.grid, self.bounded())

    def sensitivity(self, neighbours: Neighbours) -> dict[str, Sensitivity]:
        """Per table, in its own integer units: rewards, which need a bound, by up to `reward_units` a step."""
        self.bounded()
        l1, l2 = unit = Counts.sensitivity(self.horizon, neighbours, self.pooled)
        units = self.reward_units
        return {"visits": unit, "transitions": unit, "rewards": Sensitivity(l1 * units, l2 * units)}

    def readable(self, episodes: Episodes) -> Episodes:
        """The same users; those whose episode is not one of this problem contribute nothing.

        Not of this problem: longer than the horizon, or with a state or action that does not exist. Refusing them
        aloud would tell everybody that there is one.
        """
        if episodes.horizon > self.horizon:
            return episodes.without(np.ones(episodes.actions.shape[0], dtype=np.bool_))
        if not kernel.outside(episodes.states, episodes.actions, self.num_states, self.num_actions):
            return episodes
        s, a = episodes.states, episodes.actions
        wrong_state = ((s < 0) | (s >= self.num_states)).any(axis=1)
        wrong_action = ((a < 0) | (a >= self.num_actions)).any(axis=1)
        return episodes.without(np.asarray(wrong_state | wrong_action))

    @property
    def scaling(self) -> tuple[float, float, float, float, float]:
        """(low, high, origin, span, grid): rewards are clipped to [low, high], and one unit is span·grid."""
        low, high = self.reward_range or (-UNBOUNDED_REWARD, UNBOUNDED_REWARD)
        origin, span = (0.0, 1.0) if self.reward_range is None else (low, high - low)
        return low, high, origin, span, self.grid

    def on_grid(self, rewards: Floats) -> tuple[Ints, int]:
        """Rewards as whole grid units, and how many were clipped (a number that is itself not private)."""
        units = np.empty(rewards.shape, dtype=np.int64)
        return units, int(kernel.grid_units(rewards, *self.scaling, units))


@dataclass(frozen=True, eq=False)
class Counts:
    """Sums over episodes, all integers (rewards in grid units). Raw: it may enter a `Stream` and nothing else."""

    visits: Ints  # (G, S, A)
    transitions: Ints  # (G, S, A, S)
    reward_sums: Ints  # (G, S, A), in units of the spec's grid
    num_episodes: int
    clipped: int = 0

    @classmethod
    def zeros(cls, spec: CountSpec) -> Counts:
        visits, transitions, rewards = (np.zeros(shape, dtype=np.int64) for shape in spec.shapes().values())
        return cls(visits, transitions, rewards, num_episodes=0)

    @classmethod
    def of(cls, episodes: Episodes, spec: CountSpec) -> Counts:
        """N(g,s,a) = Σ 1{(s_h,a_h)=(s,a)}, N(g,s,a,s') and R(g,s,a), g = h or all stages together."""
        counts = cls.zeros(spec)
        clipped = counts.accumulate(episodes, spec)
        return cls(counts.visits, counts.transitions, counts.reward_sums, len(episodes), clipped)

    def accumulate(self, episodes: Episodes, spec: CountSpec) -> int:
        """Add the readable episodes to these tables in place; how many rewards were clipped."""
        episodes = spec.readable(episodes)
        tables = self.visits, self.transitions, self.reward_sums
        return int(kernel.count_steps(episodes.states, episodes.actions, episodes.rewards, *spec.scaling, *tables))

    @staticmethod
    def sensitivity(horizon: int, neighbours: Neighbours = "replace", pooled: bool = False) -> Sensitivity:
        """How far one user moves a table to which every step adds at most one unit.

        Replace: 2H in L1, because the two episodes may share no cell; in L2, 2H single units (staged), or H
        units in one cell each (pooled): √(2H) against √2·H. Zero-out: one episode against nothing.
        """
        episodes = {"replace": 2, "zero-out": 1}[neighbours]
        l2 = math.sqrt(episodes) * horizon if pooled else math.sqrt(episodes * horizon)
        return Sensitivity(float(episodes * horizon), l2)

    def tables(self) -> Iterator[tuple[str, Ints]]:
        yield "visits", self.visits
        yield "transitions", self.transitions
        yield "rewards", self.reward_sums

    def __repr__(self) -> str:  # a log line must not carry anyone's counts
        return f"Counts({self.num_episodes} episodes)"


def users_of(contribution: Episodes | Counts) -> int:
    """How many users have contributed this."""
    return len(contribution) if isinstance(contribution, Episodes) else contribution.num_episodes
