"""Cells with many outcomes: reports on classes of successors instead of single ones. Theory: docs/spotlight.md.

A few dozen reports cannot show a row of forty outcomes, nor its reward, which is then a sum of forty noisy numbers.
Classes of states that are worth about the same are few, and say what r + PV is. They are announced before anybody
acts, and are functions of releases; so is all that is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from discreet.agents.reading import Evidence, Reading, branchings, read
from discreet.kernels.reading import CERTAIN
from discreet.mdp import Floats, Ints
from discreet.problem import Mask

#: Classes of successors.
CLASSES = 3
#: Classes are asked for where cells have so many outcomes in the median, of at least so many cells.
WIDE, FEWEST = 7.5, 10
#: They are not where the outcomes that were found make up so many standard deviations of reports: few reports show a
#: few outcomes among hundreds of states, long before they show that there are no more of them.
SHOWN = 8.0
#: Values closer than this are the same.
SAME = 1e-9
#: Part of an outcome's doubt that noise has at least, whatever sampling explains.
LEAST_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class Record:
    """One epoch of reports on classes."""

    cells: Ints  # (n,)
    classes: Ints  # (S,): of every successor
    sums: Floats  # (n, k, 2): noisy reports, unpaid and paid
    variance: float  # of the noise on each
    predicted: Floats  # (n,)


@dataclass(frozen=True, eq=False)
class Coarse:
    """All reports on classes. Totals over classes add up whatever the classes were; they tell reports and reward."""

    totals: Floats  # (C, 2): weighted noisy reports, unpaid and paid
    noise: Floats  # (C,): variance of a total
    variances: Floats  # (C,): of the noise on one sub-cell, weighted likewise; infinite where nothing was asked
    expected: Floats  # (C,): predicted reports, weighted likewise
    records: tuple[Record, ...] = ()

    @classmethod
    def nothing(cls, cells: int) -> Coarse:
        return cls(np.zeros((cells, 2)), np.zeros(cells), np.full(cells, np.inf), np.zeros(cells))

    @property
    def asked(self) -> Mask:
        return np.isfinite(self.variances)

    def added(self, record: Record) -> Coarse:
        """With one more epoch, weighted as epochs of single outcomes are: n/(n + σ²), n the predicted reports."""
        cells, v, n = record.cells, record.variance, record.predicted
        again = self.asked[cells]
        weights = np.where(again & (v > 0.0), n / np.maximum(n + v, 1e-300), 1.0)
        tables = self.totals.copy(), self.noise.copy(), self.variances.copy(), self.expected.copy()
        totals, noise, variances, expected = tables
        totals[cells] += weights[:, None] * record.sums.sum(axis=1)
        noise[cells] += weights**2 * record.sums.shape[1] * v
        variances[cells] = np.where(again, variances[cells], 0.0) + weights**2 * v
        expected[cells] += weights * n
        return Coarse(totals, noise, variances, expected, (*self.records, record))


def outcomes_of(plain: Reading) -> float:
    """Median number of outcomes of the cells that were read: Σ_B p(B)·Σ_y min(B·π_y, .97); 1 where there are none.

    B alone would not do: where the prior π says which few outcomes a cell has, it may be as large as it likes.
    """
    cells = plain.branching.sum(axis=1) > 0.0
    if not cells.any():
        return 1.0
    sizes = branchings(plain.rows.shape[1])
    each = np.minimum(sizes * plain.prior[cells][:, :, None], CERTAIN).sum(axis=1)
    return float(np.median((plain.branching[cells] * each).sum(axis=1)))


def wide(plain: Reading, variances: Floats) -> bool:
    """Whether cells have many outcomes and hardly show them, by those that were read one by one."""
    cells = plain.branching.sum(axis=1) > 0.0
    if int(cells.sum()) < FEWEST or outcomes_of(plain) < WIDE:
        return False
    return bool(np.median(plain.counts[cells] / np.sqrt(variances[cells])) < SHOWN)


def by_value(values: Floats, classes: int = CLASSES) -> Ints:
    """(S,): at most so many classes of neighbouring values, numbered upwards, with the least variance within them."""
    order = np.argsort(values, kind="stable")
    x = values[order] - values.mean()
    S, k = x.size, min(classes, 1 + int((np.diff(x) > SAME).sum()))
    sums, squares = np.append(0.0, np.cumsum(x)), np.append(0.0, np.cumsum(x * x))
    cost, cuts = np.full(S + 1, np.inf), np.zeros((k + 1, S + 1), dtype=np.int64)
    cost[0] = 0.0
    for m in range(1, k + 1):
        best = np.full(S + 1, np.inf)
        for j in range(m, S + 1):
            i = np.arange(m - 1, j)
            total = cost[i] + squares[j] - squares[i] - (sums[j] - sums[i]) ** 2 / (j - i)
            cuts[m, j] = i[int(total.argmin())]
            best[j] = total.min()
        cost = best
    found, end = np.empty(S, dtype=np.int64), S
    for m in range(k, 0, -1):
        found[order[cuts[m, end] : end]] = m - 1
        end = int(cuts[m, end])
    return found


def read_with_classes(plain: Reading, coarse: Coarse, single: Mask, admitted: Mask) -> Reading:
    """What single outcomes say (`plain`, of cells in `single`), and on top of it what classes do.

    Reports and reward come from the totals, read like a cell with one outcome. The row starts as what single outcomes
    say, else as the prior π with the variance π(1−π)/(1 + B), B the number of outcomes. Every epoch then moves
    the mass m_k of its classes by least squares,
    q_y ← q_y + d_y·(x_k/n − m_k)/(D_k + R_k),  d_y ← d_y − d_y²/(D_k + R_k),
    D_k = Σ_{y∈k} d_y, R_k = v/(n²·L) + m_k(1−m_k)/n, L = r² + (1−r)², x_k the count along (r, 1−r).
    """
    cells = np.flatnonzero(coarse.asked)
    if not cells.size:
        return plain
    total = _totals_of(plain, coarse, admitted)
    own = single & (plain.counts > 0.0)
    n_own, n = np.maximum(plain.counts, 1.0), np.maximum(total.counts, 1.0)
    share = np.where(own, _weight(plain, n_own, total, n), 1.0)  # of the totals, in the reward
    means = share * total.means + (1.0 - share) * plain.means
    variances = share**2 * total.mean_variances + (1.0 - share) ** 2 * plain.mean_variances
    rows = np.where(own[:, None], plain.soft, plain.prior)
    doubts = np.where(
        own[:, None],
        plain.spreads / n_own[:, None] ** 2 + rows * (1.0 - rows) / n_own[:, None],
        rows * (1.0 - rows) / (1.0 + outcomes_of(plain)),
    )
    ratio = total.counts / np.maximum(coarse.expected, 1e-9)
    for record in coarse.records:
        c = record.cells
        rows[c], doubts[c] = _moved(rows[c], doubts[c], record, means[c], ratio[c])
    counts = total.counts + np.where(own, plain.counts, 0.0)
    noise = np.maximum(doubts - rows * (1.0 - rows) / np.maximum(counts, 1.0)[:, None], LEAST_NOISE * doubts)
    new = {
        "rows": rows,
        "soft": rows,
        "spreads": noise * (counts**2)[:, None],
        "counts": counts,
        "means": means,
        "mean_variances": variances,
        "pays": np.where(own, np.maximum(plain.pays, total.pays), total.pays),
        "branching": np.where(own[:, None], plain.branching, plain.shares()),
    }
    tables = {name: getattr(plain, name).copy() for name in new}
    for name, table in new.items():
        tables[name][cells] = table[cells]
    return replace(plain, **tables)


def _totals_of(plain: Reading, coarse: Coarse, admitted: Mask) -> Reading:
    """Reports and rewards by the totals: cells with one outcome; how many pay is learned over all cells."""
    one = np.stack([admitted[:, ::2].any(axis=1), admitted[:, 1::2].any(axis=1)], axis=1)
    evidence = Evidence(coarse.totals, np.where(coarse.asked, coarse.noise, np.inf), coarse.expected, one)
    seen = (plain.branching.sum(axis=1, keepdims=True) > 0.0).astype(np.float64)
    before = replace(Reading.nothing(one), pays=plain.pays, branching=seen)
    return read(evidence, before, evidence.asked, rounds=2)


def _weight(plain: Reading, n_own: Floats, total: Reading, n: Floats) -> Floats:
    """(C,): what the totals count in the reward beside single outcomes, each by its precision."""
    first = plain.mean_variances + (plain.means * (1.0 - plain.means) + 0.25 / n_own) / n_own
    second = total.mean_variances + (total.means * (1.0 - total.means) + 0.25 / n) / n
    return np.asarray(first / (first + second))


def _moved(rows: Floats, doubts: Floats, record: Record, means: Floats, ratio: Floats) -> tuple[Floats, Floats]:
    """Rows and doubts of the record's cells after it."""
    k = record.sums.shape[1]
    if k == 1:
        return rows, doubts
    member = (record.classes[:, None] == np.arange(k)).astype(np.float64)  # (S, k)
    n, r = np.maximum(ratio * record.predicted, 1.0)[:, None], means[:, None]
    length = r * r + (1.0 - r) ** 2
    found = (r * record.sums[:, :, 1] + (1.0 - r) * record.sums[:, :, 0]) / length / n
    mass, doubt = rows @ member, doubts @ member
    doubt += record.variance / length / n**2 + np.maximum(mass * (1.0 - mass), 0.25 / n) / n
    moved = np.maximum(rows + doubts * ((found - mass) / doubt)[:, record.classes], 0.0)
    sums = moved.sum(axis=1, keepdims=True)
    rows = np.where(sums > 0.0, moved / np.maximum(sums, 1e-300), rows)
    return rows, doubts * (1.0 - doubts / doubt[:, record.classes])
