"""Steps with cells of their own: what (s,a) did at other steps, and how far this step is like them.

A step may be *alike*, with the row and reward that other steps show, or one of its own. How many are alike is learned
over all cells, as branching is; what every single one is, from its own reports. Theory: docs/spotlight.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from discreet.agents.reading import LOG_RATIOS, PSEUDO_CELLS, RATIOS, Evidence, Reading, successors
from discreet.kernels import reading as kernel
from discreet.mdp import Floats
from discreet.problem import Mask

#: Weight of the reports of a step for each step that it is away.
NEAR = 0.5
#: A step is taken for alike from this probability on.
AGREED = 0.9
#: Cells with so many standard deviations of reports tell how many are alike.
TELLING = 2.0
#: How many rounds that takes.
ROUNDS = 5
#: Rows of other steps are of no use to a step at which more than this share of their outcomes is impossible.
MISFIT = 0.01
#: A cell that nobody has tried is believed to be alike with this share of the learned probability.
BELIEF = 0.5


class Others(NamedTuple):
    """(s,a) at all other known steps, nearer ones first: one line per cell."""

    rows: Floats  # (C, S)
    spreads: Floats  # (C, S): variance of the count of an outcome
    counts: Floats  # (C,): reports with a successor, weighted
    means: Floats  # (C,)
    mean_variances: Floats  # (C,)
    bits: Floats  # (C,): reports with a reward, weighted


@dataclass(frozen=True, eq=False)
class Shared:
    """What cells are known from: their own reports, and those of steps that are alike."""

    others: Others
    alike: Floats  # (C,): how surely; 0 where no other step is known
    agreement: float  # share of cells that are alike

    @property
    def agreed(self) -> Mask:
        return np.asarray(self.alike >= AGREED)

    def added_to(self, reading: Reading, cells: Mask) -> Reading:
        """The reports of alike steps on top of a cell's own, as far as it is alike."""
        others, weight = self.others, np.where(cells & self.agreed, self.alike, 0.0)
        own, row, bit = reading.counts, weight * others.counts, weight * others.bits

        def both(mine: Floats, theirs: Floats) -> Floats:
            mixed = (own[:, None] * mine + row[:, None] * theirs) / np.maximum(own + row, 1e-9)[:, None]
            return np.ascontiguousarray(np.where(row[:, None] > 0.0, mixed, mine))

        total = np.maximum(own + bit, 1e-9)
        variances = (own**2 * reading.mean_variances + bit**2 * others.mean_variances) / total**2
        return replace(
            reading,
            rows=both(reading.rows, others.rows),
            soft=both(reading.soft, others.rows),
            spreads=reading.spreads + (weight**2)[:, None] * others.spreads,
            counts=own + row,
            means=np.where(bit > 0.0, (own * reading.means + bit * others.means) / total, reading.means),
            mean_variances=np.where(bit > 0.0, variances, reading.mean_variances),
        )

    def hoped_for(self) -> Floats:
        """(C,): what a cell that nobody tried pays if it is alike, and a standard deviation; anything, where no other
        step is known."""
        r, n = self.others.means, np.maximum(self.others.bits, 1.0)
        deviation = np.sqrt(self.others.mean_variances + (r * (1.0 - r) + 0.25 / n) / n)
        return np.where(self.others.counts > 0.0, np.minimum(1.0, r + deviation), np.inf)

    def rows_hoped_for(self, prior: Floats) -> Floats:
        return np.ascontiguousarray(np.where(self.others.counts[:, None] > 0.0, self.others.rows, prior))


def other_readings(reading: Reading, known: Mask, admitted: Mask, stages: int) -> Others:
    """Sums over the other known steps, with weights NEAR^(steps between). The last step shows no successor."""
    G, (C, S) = stages, reading.rows.shape
    apart = np.abs(np.arange(G)[:, None] - np.arange(G)[None, :])
    near = np.where(apart > 0, NEAR**apart, 0.0)
    shown = near * (np.arange(G) < G - 1)
    use = known.reshape(G, -1)
    n = np.where(use, reading.counts.reshape(G, -1), 0.0)
    counts, bits = shown @ n, near @ n
    rows = np.tensordot(shown, n[..., None] * reading.rows.reshape(G, -1, S), 1)
    rows /= np.maximum(counts, 1e-9)[..., None]
    spreads = np.tensordot(shown**2, np.where(use[..., None], reading.spreads.reshape(G, -1, S), 0.0), 1)
    means = near @ (n * reading.means.reshape(G, -1)) / np.maximum(bits, 1e-9)
    variances = near**2 @ (n**2 * reading.mean_variances.reshape(G, -1)) / np.maximum(bits, 1e-9) ** 2
    rows, counts = rows.reshape(C, S), counts.reshape(C)
    fits = np.where(successors(admitted), rows, 0.0).sum(axis=1) >= 1.0 - MISFIT
    inner = np.arange(C) < C - C // G
    pays = admitted[:, 1::2].any(axis=1)
    return Others(
        rows,
        spreads.reshape(C, S),
        np.where(fits | ~inner, counts, 0.0),
        np.where(pays, means.reshape(C), 0.0),
        np.where(pays, variances.reshape(C), 0.0),
        np.where(fits | ~inner, bits.reshape(C), 0.0),
    )


def compared(evidence: Evidence, reading: Reading, known: Mask, stages: int, agreement: float) -> Shared:
    """How surely every cell is alike: by the likelihood of its sums if it is, against that of a row of its own."""
    C, S = reading.rows.shape
    others = other_readings(reading, known, evidence.admitted, stages)
    inner = np.arange(C) < C - C // stages
    comparable = np.where(inner, others.counts, others.bits) > 0.0
    cells = np.flatnonzero(np.isfinite(evidence.variances) & comparable)
    alike = np.where(comparable, agreement, 0.0)
    if not cells.size:
        return Shared(others, alike, agreement)
    rows = np.where(inner[:, None], others.rows, np.arange(S) == 0)  # the last step reports one outcome
    doubts = np.where(inner[:, None], others.spreads, 0.0) / np.maximum(others.counts, 1.0)[:, None] ** 2
    same = np.empty(cells.size)
    kernel.likelihoods_if_alike(
        cells,
        evidence.sums,
        evidence.variances,
        evidence.normal,
        evidence.expected,
        successors(evidence.admitted),
        rows,
        doubts,
        others.means,
        others.mean_variances,
        RATIOS,
        LOG_RATIOS,
        same,
    )
    odds = np.clip(same - reading.likelihoods[cells], -50.0, 50.0)
    telling = reading.counts[cells] >= TELLING * np.sqrt(evidence.variances[cells])
    surely = np.empty(cells.size)
    for _ in range(ROUNDS):
        surely = 1.0 / (1.0 + (1.0 - agreement) / agreement * np.exp(-odds))
        agreement = float((surely[telling].sum() + 0.5 * PSEUDO_CELLS) / (telling.sum() + PSEUDO_CELLS))
    alike[cells] = surely
    return Shared(others, alike, agreement)
