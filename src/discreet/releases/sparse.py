"""One noisy histogram over what one step can be, of which only what is above a threshold is held."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet.mdp import Floats, Ints, frozen
from discreet.problem import Mask
from discreet.releases.items import StepSpace

#: Up to so many items every one of them is held (releases/histograms.py). Staged releases are held longer: what looks
#: alike at all steps is then read together, which needs all items.
DENSE_ITEMS, DENSE_STAGED_ITEMS = 30_000_000, 100_000_000


@dataclass(frozen=True, eq=False)
class Group:
    """Items of cells that have equally many: place 0..size−1 of an item, and its code = row·2Y + column."""

    first: int  # cell
    cells: int
    each: int  # items of a cell
    stride: int  # 2 where nothing is asked about payments
    columns: int  # 2Y
    listed: Ints | None = None  # codes in order, where successors are declared

    @property
    def size(self) -> int:
        return self.cells * self.each

    def codes(self, places: Ints) -> Ints:
        if self.listed is not None:
            return self.listed[places]
        return (self.first + places // self.each) * self.columns + places % self.each * self.stride

    def places(self, codes: Ints) -> Ints:
        """−1 where an item is not of this group."""
        if self.listed is not None:
            found = np.minimum(np.searchsorted(self.listed, codes), self.listed.size - 1)
            return np.where(self.listed[found] == codes, found, -1)
        cell, column = codes // self.columns - self.first, codes % self.columns
        inside = (cell >= 0) & (cell < self.cells) & (column % self.stride == 0)
        inside &= column < self.each * self.stride
        return np.where(inside, cell * self.each + column // self.stride, -1)


@dataclass(frozen=True, eq=False)
class SparseItems(StepSpace):
    """Which items exist, without a table of them.

    `known_rewards` leave the even columns, `successors` (G, S, A, S) those that were declared possible.
    """

    known_rewards: bool = False
    successors: Mask | None = None

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        bits = 1 if self.known_rewards else 2
        columns, stride = 2 * self.num_successors, 3 - bits
        if self.successors is not None:
            return self._declared(bits, columns)
        last = 0 if self.pooled else self.num_states * self.num_actions
        inner = self.num_cells - last
        groups = (
            Group(0, inner, bits * self.num_successors, stride, columns),
            Group(inner, last, bits, stride, columns),
        )
        return tuple(group for group in groups if group.cells)

    def _declared(self, bits: int, columns: int) -> tuple[Group, ...]:
        """One group for every number of items that a cell can have."""
        assert self.successors is not None
        S, Y = self.num_states, self.num_successors
        table = self.successors.reshape(self.num_cells, S)
        possible = np.asarray(table.any(axis=1))
        sizes = np.where(possible, table.sum(axis=1) + (Y - S), 0)
        inner = self.num_cells if self.pooled else self.num_cells - S * self.num_actions
        sizes[inner:] = possible[inner:]
        found = []
        for size in np.unique(sizes[sizes > 0]):
            cells = np.flatnonzero(sizes == size)
            codes = []
            for part in (cells[cells < inner], cells[cells >= inner]):
                if part.size and part[0] < inner:
                    row, successor = np.nonzero(table[part])
                    codes.append(part[row] * columns + 2 * successor)
                    codes += [part * columns + 2 * extra for extra in range(S, Y)]
                elif part.size:
                    codes.append(part * columns)
            listed = np.concatenate(codes)
            listed = np.sort(np.concatenate([listed + bit for bit in range(bits)]))
            found.append(Group(0, cells.size, int(size) * bits, 3 - bits, columns, listed))
        return tuple(found)

    @property
    def num_items(self) -> int:
        return sum(group.size for group in self.groups)

    @cached_property
    def possible(self) -> Mask:
        """(G, S, A)"""
        shape = self.stages, self.num_states, self.num_actions
        return np.ones(shape, dtype=np.bool_) if self.successors is None else np.asarray(self.successors.any(axis=-1))

    def per_cell(self, values: Iterable[float]) -> Floats:
        """(C,) One number per group, given to all its cells; 0 to cells that are impossible."""
        found = np.zeros(self.num_cells)
        for group, value in zip(self.groups, values, strict=True):
            if group.listed is None:
                found[group.first : group.first + group.cells] = value
            else:
                found[np.unique(group.listed // group.columns)] = value
        return found


def table_size(items: SparseItems) -> int:
    """Numbers of a table of all items, possible or not."""
    return items.num_cells * 2 * items.num_successors


def dense(num_items: int, pooled: bool) -> bool:
    """Whether all items are held: a public rule, the same on every machine."""
    return num_items <= (DENSE_ITEMS if pooled else DENSE_STAGED_ITEMS)


@dataclass(frozen=True, eq=False)
class SparseHistogram:
    """The items of a noisy histogram that lie above the threshold of their cell, in order of cells and columns.

    `width` bounds the error of all items together, held or not, with probability at least 1 − beta/2.
    """

    items: SparseItems
    codes: Ints  # (n,)
    values: Floats  # (n,) noisy numbers of steps
    thresholds: Floats  # (C,) what is not held is not above this
    num_users: int
    variance: float  # of the noise on one item
    width: float
    beta: float
    tilted: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", frozen(self.codes, np.int64))
        object.__setattr__(self, "values", frozen(self.values))

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)

    @cached_property
    def rows(self) -> Ints:
        """(n,) cells."""
        return self.codes // (2 * self.items.num_successors)

    @cached_property
    def columns(self) -> Ints:
        return self.codes % (2 * self.items.num_successors)
