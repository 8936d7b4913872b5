"""A tree over public bins and noisy numbers of actions in its leaves: what people do where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.mdp import Floats, Ints, frozen
from discreet.problem import Mask

Bins = NDArray[np.uint8]


def alone(bins: Ints) -> Ints:
    """The thresholds that ask for these bins."""
    return -1 - bins


def to_the_right(bins: Bins, thresholds: Ints) -> Mask:
    """Which rows a split sends to the right."""
    return np.where(thresholds < 0, bins == alone(thresholds), bins > thresholds)


@dataclass(frozen=True, eq=False)
class ColumnTree:
    """A full binary tree of splits "bin of a column ≤ threshold" (left) or above (right), by levels; a threshold
    below 0 asks for one bin alone: −1 − k sends bin k to the right (`alone`).

    Node i has the children 2i + 1 and 2i + 2; leaves are numbered from left to right.
    """

    columns: Ints  # (2^D − 1,)
    thresholds: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", frozen(self.columns, np.int64))
        object.__setattr__(self, "thresholds", frozen(self.thresholds, np.int64))
        if self.columns.shape != self.thresholds.shape or (self.columns.size + 1) & self.columns.size:
            raise ValueError(f"a full tree has 2^D − 1 splits, not {self.columns.size}")

    @property
    def depth(self) -> int:
        return int(self.columns.size).bit_length()

    @property
    def num_leaves(self) -> int:
        return int(self.columns.size) + 1

    def leaves(self, bins: Bins) -> Ints:
        """The leaf of every row of bins (N, columns)."""
        node = np.zeros(len(bins), dtype=np.int64)
        rows = np.arange(len(bins))
        for _ in range(self.depth):
            node = 2 * node + 1 + to_the_right(bins[rows, self.columns[node]], self.thresholds[node])
        return node - self.columns.size


@dataclass(frozen=True, eq=False)
class PrivateTree:
    """The splits that a noisy comparison took, and steps per leaf and action with noise."""

    tree: ColumnTree
    counts: Floats  # (leaves, A), in steps
    deviation: float  # of the noise on one count
