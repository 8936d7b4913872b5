"""A grid whose edges are those of a tree: any of a column's fine edges, as many as the tree uses."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np

from discreet.mdp import Ints
from discreet.offline.declaration import Column, Declaration


@dataclass(frozen=True)
class Branches:
    """The fine bins after which every declared column is cut; a column without cuts is unused.

    It has the methods of `Grid`: a state is the number Σ_i place_i · Π_{j>i} size_j of the used columns.
    """

    declaration: Declaration
    cuts: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        states = self.declaration.states
        if len(self.cuts) != len(states):
            raise ValueError(f"there are cuts for {len(self.cuts)} columns; expected {len(states)}")
        for column, cuts in zip(states, self.cuts, strict=True):
            last = column.num_fine - (0 if column.missing else 1)
            if any(not a < b for a, b in pairwise((-1, *cuts, last))):
                raise ValueError(f"the cuts of {column.name!r} are {cuts}; expected each above the one before")

    @property
    def used(self) -> tuple[tuple[Column, tuple[int, ...]], ...]:
        return tuple((column, cuts) for column, cuts in zip(self.declaration.states, self.cuts, strict=True) if cuts)

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple(c.name for c, cuts in zip(self.declaration.states, self.cuts, strict=True) if not cuts)

    @property
    def num_states(self) -> int:
        return math.prod(len(cuts) + 1 for _, cuts in self.used)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Every state in words."""
        parts = [tuple(_texts(column, cuts)) for column, cuts in self.used]
        return tuple(", ".join(each) for each in product(*parts)) if parts else ("anybody",)

    def state(self, record: Mapping[str, object]) -> int | None:
        """The state of a record, in which what is not named is missing; None: something is, and has no bin for it."""
        number = 0
        for column, cuts in self.used:
            fine = column.bin(record.get(column.name))
            if fine is None:
                if not column.missing:
                    return None
                fine = column.num_fine
            number = number * (len(cuts) + 1) + bisect_left(cuts, fine)
        return number

    def states_of(self, fine: Mapping[str, np.ndarray[Any, Any]]) -> Ints:
        """The states of rows from the fine bins of their columns."""
        rows = len(next(iter(fine.values())))
        found = np.zeros(rows, dtype=np.int64)
        for column, cuts in self.used:
            found = found * (len(cuts) + 1) + np.searchsorted(np.array(cuts), fine[column.name], side="left")
        return found


def _texts(column: Column, cuts: tuple[int, ...]) -> list[str]:
    """The bins between the cuts in words."""
    found = []
    names = column.names
    for low, high in pairwise((-1, *cuts, column.num_fine)):
        missing = high == column.num_fine and column.missing
        last = column.num_fine - 1
        if names is not None:
            words = f"{column.name} {' or '.join(names[low + 1 : min(high, last) + 1])}".strip()
        else:
            below = f"{column.fine[high]:.6g}" if high < last else None
            above = f"{column.fine[low]:.6g}" if 0 <= low < last else None
            words = f"any {column.name}"
            if above is not None and below is not None:
                words = f"{above} ≤ {column.name} < {below}"
            elif below is not None:
                words = f"{column.name} < {below}"
            elif above is not None:
                words = f"{column.name} ≥ {above}"
        if missing:
            words = f"{column.name} missing" if low >= last else f"{words} or missing"
        found.append(words)
    return found
