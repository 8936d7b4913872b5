"""How a device reads a record of its user, and the public description of the tables it is asked about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.device.sampler import Ints, Randomness, below
from discreet.device.wire import (
    Readers,
    list_of,
    read_fields,
    real_number,
    truth,
    whole_number,
    whole_numbers,
)

Floats = NDArray[np.float64]

#: Counters, and sums of one episode, stay below this.
LARGEST = 1 << 61


def check_grid(grid: float) -> None:
    if math.frexp(grid)[0] != 0.5 or not 1.0 / LARGEST < grid <= 1.0:
        raise ValueError(f"grid is {grid}; it must be a power of two, at most 1")


def numbers(values: Any, axes: int = 1) -> NDArray[Any] | None:
    """An array of numbers, a list unless told otherwise, or None for whatever else a record may hold."""
    try:
        array = np.asarray(values)
    except Exception:  # a record is anything at all, and nothing in it may stop the device
        return None
    if array.ndim != axes or not (array.size == 0 or array.dtype.kind in "biuf"):
        return None
    return array


def all_inside(values: NDArray[Any], limit: int) -> bool:
    """Whether all are whole numbers in 0..limit−1."""
    if values.size == 0:
        return True
    whole = values.dtype.kind != "f" or bool((values == np.floor(values)).all())
    return whole and bool(values.min() >= 0) and bool(values.max() < limit)


@dataclass(frozen=True)
class Tables:
    """Public description of the tables reports are about; stages = 1 when steps are pooled over time."""

    num_states: int
    num_actions: int
    horizon: int
    stages: int
    grid: float
    reward_range: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("num_states", "num_actions", "horizon", "stages"):
            object.__setattr__(self, name, int(getattr(self, name)))
        object.__setattr__(self, "grid", float(self.grid))
        low, high = (float(end) for end in self.reward_range)
        object.__setattr__(self, "reward_range", (low, high))
        if min(self.num_states, self.num_actions, self.horizon) < 1 or self.stages not in (1, self.horizon):
            raise ValueError("tables need at least one state, action and step, and 1 or `horizon` stages")
        if not (-math.inf < low < high < math.inf and math.isfinite(high - low)):
            raise ValueError(f"reward_range is {self.reward_range}; expected two finite numbers, low < high")
        check_grid(self.grid)
        if self.horizon * self.reward_units >= LARGEST or 3 * self.cells[1] >= LARGEST:
            raise ValueError("the tables are too large for 64-bit counters; use a coarser grid or fewer states")

    @classmethod
    def from_json(cls, message: Any) -> Tables:
        return cls(**read_fields("a description of tables", message, _TABLES))

    @property
    def reward_units(self) -> int:
        """Largest reward in grid units, once the reward range has been scaled to [0, 1]."""
        return math.ceil(1.0 / self.grid)

    @property
    def cells(self) -> tuple[int, int, int]:
        """Number of counters of visits, transitions and rewards."""
        pairs = self.stages * self.num_states * self.num_actions
        return pairs, pairs * self.num_states, pairs

    @property
    def most_first_visits(self) -> int:
        """Cells one user can visit for the first time: one per step, and no more than there are."""
        return min(self.horizon, self.cells[0])

    def read(self, states: Any, actions: Any, rewards: Any) -> tuple[Ints, Ints, Floats]:
        """One person's episode, n actions, n rewards and n + 1 states; no state at all if it cannot be read.

        It cannot when lengths differ, n exceeds the horizon, a state or action is not a whole number in its range,
        or a reward is not a number. Infinite rewards can: like all others they are clipped to the range.
        """
        s, a, r = numbers(states), numbers(actions), numbers(rewards)
        nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        if s is None or a is None or r is None:
            return nothing
        if not (a.size <= self.horizon and r.size == a.size and s.size == a.size + 1):
            return nothing
        if not (all_inside(s, self.num_states) and all_inside(a, self.num_actions)) or np.isnan(r).any():
            return nothing
        with np.errstate(over="ignore"):
            return s.astype(np.int64), a.astype(np.int64), r.astype(np.float64)

    def indices(self, states: Ints, actions: Ints, rewards: Floats) -> tuple[Ints, Ints, Ints]:
        """Steps of a readable episode, or of one per row, as (g,s,a), (g,s,a,s') and rewards in whole grid units."""
        low, high = self.reward_range
        g = np.minimum(np.arange(actions.shape[-1]), self.stages - 1)
        pairs = ((g * self.num_states + states[..., :-1]) * self.num_actions + actions).astype(np.int64)
        units = np.rint((np.clip(rewards, low, high) - low) / (high - low) / self.grid).astype(np.int64)
        return pairs, pairs * self.num_states + states[..., 1:], units

    def steps(self, states: Any, actions: Any, rewards: Any) -> tuple[Ints, Ints, Ints]:
        """The `indices` of one person's record; of one that cannot be read there are none."""
        return self.indices(*self.read(states, actions, rewards))

    @property
    def moves(self) -> tuple[int, int, int]:
        """L1 distance of the counters of two episodes, which may share no cell: a step moves two counters."""
        steps = 2 * self.horizon
        return steps, steps, steps * self.reward_units

    @property
    def squares(self) -> tuple[int, int, int]:
        """Squared L2 distance of the same: a step moves two counters, and pooled steps may all move the same two."""
        steps = 2 * self.horizon * (self.horizon if self.stages == 1 else 1)
        return steps, steps, steps * self.reward_units**2

    def counters(self, states: Any, actions: Any, rewards: Any) -> tuple[Ints, Ints, Ints]:
        """Visits, transitions and rewards of one record: raw, they stay on the device."""
        pairs, triples, units = self.steps(states, actions, rewards)
        visits, transitions, paid = (np.zeros(size, dtype=np.int64) for size in self.cells)
        np.add.at(visits, pairs, 1)
        np.add.at(transitions, triples, 1)
        np.add.at(paid, pairs, units)
        return visits, transitions, paid

    @property
    def num_items(self) -> int:
        """Items (g, s, a, s', bit) of one step."""
        return 2 * self.cells[1]

    def items(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: Randomness) -> Ints:
        """The item of a uniformly drawn step of every readable episode, one per row: raw, it stays on the device.

        −1: over before that step.
        """
        s, a, r = (np.atleast_2d(np.asarray(part)) for part in (states, actions, rewards))
        n, length = a.shape
        h = below(noise, self.horizon, n)
        coin = below(noise, self.reward_units, n)
        if length == 0:
            return np.full(n, -1, dtype=np.int64)
        _, triples, units = self.indices(s, a, r)
        at = np.arange(n), np.minimum(h, length - 1)
        return np.where(h < length, 2 * triples[at] + (coin < units[at]), -1)

    def item(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> Ints:
        """The item of one person's record."""
        return self.items(*self.read(states, actions, rewards), noise)


def _range(name: str, value: Any) -> tuple[float, float]:
    low, high = (real_number(name, end) for end in list_of(name, value, 2))
    return low, high


_TABLES: Readers = {
    **dict.fromkeys(("num_states", "num_actions", "horizon", "stages"), whole_number),
    "grid": real_number,
    "reward_range": _range,
}


class FirstVisit:
    """At most one item per episode: her first visit to a wanted cell, as (cell, successor, reward bit).

    `items` are 2S·cell + 2·s' + bit, increasing; an outcome that is not among them counts as no report. A subclass is
    a dataclass of these fields and others.
    """

    tables: Tables
    items: tuple[int, ...]
    has_start: bool  # the cell after all others is where she started
    last_successor: bool  # whether the last step's item carries its successor (pooled problems)

    readers: ClassVar[Readers] = {
        "tables": lambda _, value: Tables.from_json(value),
        "items": whole_numbers,
        "has_start": truth,
        "last_successor": truth,
    }

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(int(item) for item in self.items))
        if any(b <= a for a, b in pairwise(self.items)) or not self.items:
            raise ValueError("items must be increasing, and there must be at least one")
        end = 2 * self.tables.num_states * (self.tables.cells[0] + self.has_start)
        if self.items[0] < 0 or self.items[-1] >= end:
            raise ValueError(f"an item lies outside 0..{end - 1}, the sub-cells of the tables")

    @property
    def num_items(self) -> int:
        return len(self.items)

    @property
    def size(self) -> int:
        return self.num_items

    @cached_property
    def wanted(self) -> frozenset[int]:
        """The target cells."""
        return frozenset(item // (2 * self.tables.num_states) for item in self.items)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {item: place for place, item in enumerate(self.items)}

    def answer(self, states: Any, actions: Any, rewards: Any, noise: Randomness) -> int:
        """Place of her item among `items`, −1 for none: raw, it stays on the device.

        Her coin is tossed in any case, and the step is chosen before its outcome is looked at.
        """
        coin = int(below(noise, self.tables.reward_units, 1)[0])
        return self._place.get(self._item(self.tables.read(states, actions, rewards), coin), -1)

    def _item(self, episode: tuple[Ints, Ints, Floats], coin: int) -> int:
        S, start = self.tables.num_states, self.tables.cells[0]
        if self.has_start and start in self.wanted:
            return 2 * S * start + 2 * int(episode[0][0]) if episode[0].size else -1
        steps = (part.tolist() for part in self.tables.indices(*episode))
        for h, (cell, triple, units) in enumerate(zip(*steps, strict=True)):
            if cell in self.wanted:
                ends = h == self.tables.horizon - 1 and not self.last_successor
                return int(2 * (cell * S + (0 if ends else triple % S)) + (coin < units))
        return -1
