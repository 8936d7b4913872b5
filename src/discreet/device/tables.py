"""How a device reads a record of its user, and the public description of the tables it is asked about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.device.sampler import Ints, Randomness, below
from discreet.device.wire import fields_of, list_of, real_number, whole_number

Floats = NDArray[np.float64]

#: Counters, and sums of one episode, stay below this.
LARGEST = 1 << 61


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
        if math.frexp(self.grid)[0] != 0.5 or not 1.0 / LARGEST < self.grid <= 1.0:
            raise ValueError(f"grid is {self.grid}; it must be a power of two, at most 1")
        if self.horizon * self.reward_units >= LARGEST or 3 * self.cells[1] >= LARGEST:
            raise ValueError("the tables are too large for 64-bit counters; use a coarser grid or fewer states")

    @classmethod
    def from_json(cls, message: Any) -> Tables:
        fields = fields_of("a description of tables", message, *cls.__dataclass_fields__)
        sizes = [whole_number(name, fields[name]) for name in ("num_states", "num_actions", "horizon", "stages")]
        low, high = list_of("reward_range", fields["reward_range"], 2)
        ends = real_number("reward_range", low), real_number("reward_range", high)
        return cls(sizes[0], sizes[1], sizes[2], sizes[3], real_number("grid", fields["grid"]), ends)

    @property
    def reward_units(self) -> int:
        """Largest reward in grid units, once the reward range has been scaled to [0, 1]."""
        return math.ceil(1.0 / self.grid)

    @property
    def cells(self) -> tuple[int, int, int]:
        """Number of counters of visits, transitions and rewards."""
        pairs = self.stages * self.num_states * self.num_actions
        return pairs, pairs * self.num_states, pairs

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

    def first_visit(
        self,
        wanted: frozenset[int],
        starts: bool,
        successors: bool,
        first: Ints,
        steps: tuple[Ints, Ints, Ints],
        coin: int,
    ) -> int:
        """2S·cell + 2·s' + bit of the first visit to a wanted cell, −1 for none: raw.

        The step is chosen before its outcome is looked at. `starts`: the cell after all others is where she started
        (`first`, empty if nothing could be read); without `successors` the last step has none.
        """
        S, start = self.num_states, self.cells[0]
        if starts and start in wanted:
            return 2 * S * start + 2 * int(first[0]) if first.size else -1
        for h, (cell, triple, units) in enumerate(zip(*(part.tolist() for part in steps), strict=True)):
            if cell in wanted:
                ends = h == self.horizon - 1 and not successors
                return int(2 * (cell * S + (0 if ends else triple % S)) + (coin < units))
        return -1
