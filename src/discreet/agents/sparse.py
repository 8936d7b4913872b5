"""The one-hot learner where a release holds only what is above its thresholds: cost grows with what it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from discreet.agents.one_hot import OneHotVI, least_regret
from discreet.kernels import sparse as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import possible_values
from discreet.problem import Mask
from discreet.releases.sparse import SparseHistogram

#: Multiplier of Knuth's hash: spreads the first of equal actions over states.
SPREAD_BITS = 2_654_435_761


@dataclass(frozen=True, eq=False)
class SparseEstimate:
    """What the known cells lead to: shares of the items that were kept, in order of cells."""

    starts: Ints  # (C+1,)
    columns: Ints  # (n,) 2·s' + paid
    shares: Floats  # (n,)
    counts: Floats  # (C,)
    known: Mask  # (C,)
    deviation: float  # of the noise on one item
    wary: bool = False


@dataclass(frozen=True, eq=False)
class SparsePlan:
    """Which action to take, and the cautious values it was planned with."""

    actions: Ints  # (H, S)
    values: Floats  # (H+1, S)


@dataclass(frozen=True)
class SparseOneHotVI:
    """`OneHotVI` on a thresholded release, with the same thresholds, terms and choice among readings.

    Differs: 1. totals of cells are not used: they would carry the noise of all 2Y items of a cell, √(2Y)·sd, where
    the items of a few successors stand out from ln(2Y/doubt)·sd/√2 on; 2. steps are not read together; 3. readings
    are weighed by the states whose items are held. Cost: O(H·(S·A + items held)) per reading.
    """

    rule: OneHotVI = field(default_factory=OneHotVI)

    def read(self, release: SparseHistogram, strictness: float) -> SparseEstimate:
        """One reading, with the lowest threshold at strictness 0 and the highest at 1."""
        rule, sd, items = self.rule, release.deviation, release.items
        lowest = items.per_cell([rule.lowest(group.each) * sd for group in items.groups])
        if (lowest < release.thresholds).any():
            raise ValueError("the release holds only what is above a higher threshold than this reading needs")
        threshold = lowest + strictness * np.maximum(rule.strictest * release.width - lowest, 0.0)
        kept = release.values > threshold[release.rows]
        rows, columns, values = release.rows[kept], release.columns[kept], release.values[kept]
        number = np.bincount(rows, minlength=items.num_cells)
        counts = _sums(rows, values, items.num_cells)
        fewest = rule.fewest if sd > 0 else 1.0
        known = counts >= np.maximum(fewest, (threshold + rule.surplus * sd) * np.sqrt(number + 1.0))
        shares = np.where(known[rows], values / counts[rows], 0.0)
        starts = np.concatenate([[0], np.cumsum(number)])
        return SparseEstimate(starts, columns, shares, counts, known, sd, release.tilted)

    def estimate(self, release: SparseHistogram) -> SparseEstimate:
        """The reading whose policy is taken."""
        readings = [self.read(release, t) for t in np.linspace(0.0, 1.0, self.rule.readings)]
        if release.deviation == 0.0:  # all are the same
            return readings[0]
        items = release.items
        S, A = items.num_states, items.num_actions
        first = release.rows < S * A
        start = _sums(release.rows[first] // A, release.values[first], S)
        if not start.any():
            start = np.ones(S)
        policies = [self.plan_in(release, reading).actions for reading in readings]
        worth = np.array(
            [
                [start @ self.plan_in(release, reading, policy).values[0] for reading in readings]
                for policy in policies
            ]
        )
        worth -= start.sum() * (items.horizon - 1) * min(0.0, items.ended)
        return readings[least_regret(worth)]

    def plan_in(self, release: SparseHistogram, estimate: SparseEstimate, policy: Ints | None = None) -> SparsePlan:
        """The best plan for one reading, or a given policy in it."""
        rule, items = self.rule, release.items
        H, S, A = items.shape
        iota = math.log(S * A * H * max(math.log2(max(release.num_users, 2)), 1.0) / 0.1)
        values, actions = np.empty((H + 1, items.num_successors)), np.empty((H, S), dtype=np.int64)
        kernel.cautious_values(
            estimate.starts,
            estimate.columns,
            estimate.shares,
            self.certain(release),
            estimate.counts,
            estimate.known,
            items.possible.reshape(-1),
            estimate.deviation,
            rule.confidence_scale,
            rule.wary_hiding if estimate.wary else rule.hiding,
            rule.spread,
            iota,
            items.stages,
            A,
            items.num_places,
            items.ended,
            np.empty((0, 0), dtype=np.int64) if policy is None else policy,
            np.arange(S) * SPREAD_BITS % 2**32 // 7 % A,
            values,
            actions,
        )
        return SparsePlan(actions, values[:, :S])

    def certain(self, release: SparseHistogram) -> Floats:
        """(C,) rewards that were declared, or (0,)."""
        rewards, items = self.rule.rewards, release.items
        if rewards is None:
            return np.zeros(0)
        shape = items.stages, items.num_states, items.num_actions
        return np.broadcast_to(rewards, shape).reshape(-1).astype(np.float64)

    def plain_values(self, release: SparseHistogram, estimate: SparseEstimate, actions: Ints, least: float) -> Floats:
        """(H+1, S) What the policy seems to be worth, as `valuation.plain_values`.

        Payments of a cell that stay below `least` widths of their noise count as none.
        """
        items = release.items
        H, S, A = items.shape
        columns = self._outstanding(release, estimate, least)
        rates = (items.ended,) if items.absorbing else ()
        low, high = possible_values(H, *rates)
        value, doubt = np.zeros((H + 1, items.num_places)), np.zeros((H + 1, items.num_places))
        if items.absorbing:
            value[:, S] = items.ended * (H - np.arange(H + 1))
        kernel.plain_values(
            estimate.starts,
            columns,
            estimate.shares,
            self.certain(release),
            estimate.counts,
            estimate.known,
            items.stages,
            A,
            items.num_places,
            low,
            high,
            actions,
            value,
            doubt,
        )
        chosen = np.sqrt(2.0 * math.log(A) * doubt[:, :S])
        return np.maximum(value[:, :S] - chosen, low[:, None])

    def _outstanding(self, release: SparseHistogram, estimate: SparseEstimate, least: float) -> Ints:
        """Columns, where payments that do not stand out are none."""
        columns = estimate.columns
        if estimate.deviation == 0.0 or self.rule.rewards is not None:
            return columns
        C = estimate.counts.size
        rows, paid = np.repeat(np.arange(C), np.diff(estimate.starts)), (columns & 1) == 1
        sums = _sums(rows[paid], estimate.shares[paid], C) * estimate.counts
        number = np.bincount(rows[paid], minlength=C)
        faint = sums <= least * release.width * np.sqrt(np.maximum(number, 1))
        return np.where(paid & faint[rows], columns - 1, columns)


def _sums(rows: Ints, values: Floats, size: int) -> Floats:
    """Of the values of every row; floats, also of none."""
    return np.bincount(rows, weights=values, minlength=size).astype(np.float64)
