"""How vectors of integers are added up and released over time: one contract for counts and for losses.

Exact and in blocks here; `tree.py` and `toeplitz.py` have the others. Who calls `close` decides in public when a
block ends, keeps the raw sums, and knows what one noise costs and how wide sums of noises are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discreet.mdp import Floats, Ints
from discreet.people.counts import CountSpec
from discreet.privacy.families import Blocks


class Sums(ABC):
    """The noisy sum of all closed blocks is `value`; it is drawn when a block is closed, and kept."""

    #: Names of the attributes that make up the mutable state.
    state: ClassVar[tuple[str, ...]] = ("value", "blocks")
    #: Whether `close` is given the sums of the open block alone, and its owner then forgets them; else of all blocks.
    forgets: ClassVar[bool] = True

    def __init__(self, noise: Blocks) -> None:
        self.noise, self.blocks = noise, 0
        self.value: Ints | Floats = np.zeros(noise.size, dtype=np.int64)

    @abstractmethod
    def close(self, raw: Ints, blocks: int = 1) -> None:
        """Take in the raw sums of so many more blocks, or refuse them before anything is drawn."""

    @property
    @abstractmethod
    def spread(self) -> Any:
        """Standard deviation of the noise in `value`, in units of one noise."""

    def spreads(self, tables: int) -> list[Any]:
        """The same, of every table."""
        return [self.spread] * tables

    def saved(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.state}

    def restore(self, saved: dict[str, Any]) -> None:
        for name, value in saved.items():
            setattr(self, name, value)


class ExactSums(Sums):
    """No noise: of what is public, or under an infinite budget."""

    forgets = False
    spread = 0.0

    def close(self, raw: Ints, blocks: int = 1) -> None:
        self.value, self.blocks = raw.copy(), self.blocks + blocks


class BlockSums(Sums):
    """One fresh noise per block; prefixes add up noisy blocks, or those of every cell's window (`windowed`)."""

    state = (*Sums.state, "lengths")

    def __init__(self, noise: Blocks, cells: int = 1, cell_of: Ints | None = None) -> None:
        super().__init__(noise)
        self.lengths: Ints = np.zeros(cells, dtype=np.int64)  # blocks in every cell's window
        self._cell_of = cell_of

    def close(self, raw: Ints, blocks: int = 1) -> None:
        if blocks:
            self.enter(raw + self.noise.draw())

    def enter(self, newest: Ints) -> None:
        """One more block whose noise was drawn."""
        self.value, self.lengths, _ = windowed(self.value, newest, self.lengths, 1, self._cell_of)
        self.blocks += 1

    @property
    def spread(self) -> Any:
        return math.sqrt(self.blocks) if self._cell_of is None else np.sqrt(self.lengths)


def cells_of_counters(spec: CountSpec) -> Ints:
    """The cell (g,s,a) of every counter of visits, transitions and rewards, flat."""
    cells = np.arange(spec.stages * spec.num_states * spec.num_actions)
    return np.concatenate([cells, np.repeat(cells, spec.num_states), cells])


def windowed(
    sums: Any, newest: Any, variances: Any, variance: float, cell_of: Ints | None
) -> tuple[Any, Any, NDArray[np.bool_]]:
    """Noisy sums with one more block, the variances of their cells, and which cells start again at that block.

    A cell does, with all its tables, when the newest block alone has the better ratio of noisy visits to noise,
    N_new/√v > (N_old + N_new)/√(V + v); visits come first. Never without `cell_of`.
    """
    restart = np.zeros(variances.size, dtype=np.bool_)
    if cell_of is None:
        return sums + newest, variances + variance, restart
    old, new = sums[: variances.size], newest[: variances.size]
    restart = new * np.sqrt(variances + variance) > (old + new) * math.sqrt(variance)
    kept = np.where(restart[cell_of], newest, sums + newest)
    return kept, np.where(restart, 0, variances) + variance, restart
