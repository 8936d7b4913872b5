"""Readings of what people do and what they are paid, and the grid that a tree makes of its columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.releases.histograms import PrivateHistogram
from discreet.releases.items import Items
from discreet.releases.trees import ColumnTree, PrivateTree, alone

AS_NOW = -1
#: Actions lead in a leaf by so many deviations of their noises, and bins of returns count from so many on.
LEAD, SEEN = 1.0, 1.5
#: Estimated shares of actions are kept above this.
LEAST_SHARE = 0.02


def commonest(found: PrivateTree) -> Ints:
    """The commonest action of every leaf, or "as now" where noise may have made it so."""
    ordered = np.sort(found.counts, axis=1)
    if found.counts.shape[1] == 1:
        return np.zeros(len(ordered), dtype=np.int64)
    clear = ordered[:, -1] - ordered[:, -2] >= LEAD * found.deviation
    return np.where(clear, found.counts.argmax(axis=1), AS_NOW).astype(np.int64)


def shares(found: PrivateTree) -> Floats:
    """(leaves, A): how often which action is taken, as far as the release can tell; uniform where it cannot."""
    counts = np.maximum(found.counts, 0.0) + np.maximum(found.deviation, 1.0)
    p = counts / counts.sum(axis=1, keepdims=True)
    floored = np.maximum(p, LEAST_SHARE)
    return np.asarray(floored / floored.sum(axis=1, keepdims=True))


class Returns(NamedTuple):
    """Of one step on average, over people: from noisy counts per bin."""

    mean: float
    deviation: float


def returns(counts: Floats, low: float, high: float, noise: float) -> Returns:
    """Mean and deviation over the bins that stand out; the middle and a quarter of the range where none does."""
    width = (high - low) / counts.size
    centres = low + (np.arange(counts.size) + 0.5) * width
    kept = np.where(counts > SEEN * noise, counts, 0.0)
    total = float(kept.sum())
    if total <= 0.0:
        return Returns((low + high) / 2.0, (high - low) / 4.0)
    mean = float(kept @ centres) / total
    return Returns(mean, math.sqrt(float(kept @ (centres - mean) ** 2) / total + width**2 / 12.0))


def merge_states(release: PrivateHistogram, group: Ints) -> PrivateHistogram:
    """The same histogram as if states with one number in `group` (S,) had been one state; places that are none stay.

    An item of k·l items has k·l times their variance: its mean over all items stands for each of them.
    """
    cells = release.cells
    S, A, Y = cells.num_states, cells.num_actions, cells.num_successors
    n, others = int(group.max()) + 1, Y - S
    values = release.values.reshape(cells.stages, S, A, Y, 2)
    led = np.zeros((cells.stages, S, A, n + others, 2))
    for y, place in enumerate([*group.tolist(), *range(n, n + others)]):
        led[:, :, :, place] += values[:, :, :, y]
    found = np.zeros((cells.stages, n, A, n + others, 2))
    for s, place in enumerate(group.tolist()):
        found[:, place] += led[:, s]
    many = S / n * Y / (n + others)
    merged = Items.of(
        n, A, cells.horizon, cells.pooled, absorbing=cells.absorbing, unknown=cells.unknown, ended=cells.ended
    )
    return replace(
        release,
        cells=merged,
        values=found.reshape(merged.num_cells, -1),
        variance=many * release.variance,
        width=math.sqrt(many) * release.width,
        total_width=math.sqrt(S / n) * release.total_width,
    )


class Cuts(NamedTuple):
    """A tree written as a grid: the thresholds it uses per column, and the leaf of every cell (row-major)."""

    thresholds: tuple[tuple[int, ...], ...]
    leaf: Ints


def _edges(thresholds: Ints, last: int) -> tuple[int, ...]:
    """Where a column is cut: at its thresholds, and before and after every bin that was asked for alone."""
    single = alone(thresholds[thresholds < 0])
    found = {*thresholds[thresholds >= 0].tolist(), *(single - 1).tolist(), *single.tolist()}
    return tuple(sorted(cut for cut in found if 0 <= cut < last))


def cuts(tree: ColumnTree, last_bins: Sequence[int]) -> Cuts:
    """Every cell lies in one leaf: both sides of every split are unions of cells; columns end with `last_bins`."""
    used = [_edges(tree.thresholds[tree.columns == c], most) for c, most in enumerate(last_bins)]
    shape = [len(part) + 1 for part in used]
    cells = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    inside = np.zeros((len(cells), len(last_bins)), dtype=np.uint8)
    for c, part in enumerate(used):
        if part:  # a bin of the cell: its upper end, or one past the last threshold
            inside[:, c] = np.append(part, part[-1] + 1)[cells[:, c]]
    return Cuts(tuple(used), tree.leaves(inside))
