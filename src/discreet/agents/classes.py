"""Cells with many outcomes: reports on classes of successors instead of single ones. Theory: docs/spotlight.md.

A few dozen reports cannot show a row of forty outcomes, nor its reward, which is then a sum of forty noisy numbers.
Classes of states that are worth about the same are few, and say what r + PV is. They are announced before anybody
acts, and are functions of releases; so is all that is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from discreet.agents.reading import Evidence, Reading, branchings, read
from discreet.kernels import classes as kernel
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
#: What reports on classes have a say in.
READ = ("rows", "soft", "spreads", "counts", "means", "mean_variances", "pays", "branching")


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
    sizes, numbers = branchings(plain.rows.shape[1]), np.empty(int(cells.sum()))
    kernel.numbers_of_outcomes(plain.prior[cells], plain.branching[cells], sizes, CERTAIN, numbers)
    return float(np.median(numbers))


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
    cuts = np.zeros((k + 1, S + 1), dtype=np.int64)
    kernel.cuts_of_least_variance(x, cuts)
    found, end = np.empty(S, dtype=np.int64), S
    for m in range(k, 0, -1):
        found[order[cuts[m, end] : end]] = m - 1
        end = int(cuts[m, end])
    return found


def read_with_classes(
    plain: Reading,
    coarse: Coarse,
    single: Mask,
    admitted: Mask,
    before: Reading | None = None,
    changed: Ints | None = None,
) -> Reading:
    """What single outcomes say (`plain`, of cells in `single`), and on top of it what classes do.

    Reports and reward come from the totals, read like a cell with one outcome. The row starts as what single outcomes
    say, else as the prior π with the variance π(1−π)/(1 + B), B the number of outcomes. Every epoch then moves
    the mass m_k of its classes by least squares,
    q_y ← q_y + d_y·(x_k/n − m_k)/(D_k + R_k),  d_y ← d_y − d_y²/(D_k + R_k),
    D_k = Σ_{y∈k} d_y, R_k = v/(n²·L) + m_k(1−m_k)/n, L = r² + (1−r)², x_k the count along (r, 1−r).

    Given the reading `before`, only `changed` cells are read, with what it says about all cells; the others stay.
    """
    if not coarse.asked.any():
        return plain
    if before is None or changed is None:
        before, changed = plain, np.arange(coarse.noise.size)
    tables = {name: getattr(before, name).copy() for name in READ}
    if before is not plain:
        for name, table in tables.items():
            table[changed] = getattr(plain, name)[changed]
    cells = changed[coarse.asked[changed]]
    if cells.size:
        total = _totals_of(before, coarse, admitted, cells)
        for name, found in _moved_by(plain, coarse, single, total, cells).items():
            tables[name][cells] = found
    return replace(plain, **tables)


def _moved_by(plain: Reading, coarse: Coarse, single: Mask, total: Reading, cells: Ints) -> dict[str, Floats]:
    """What is read of these cells, by name; `total` is what their totals say."""
    all_cells, plain, total = plain, plain.of(cells), total.of(cells)
    own = single[cells] & (plain.counts > 0.0)
    n_own, n = np.maximum(plain.counts, 1.0), np.maximum(total.counts, 1.0)
    share = np.where(own, _weight(plain, n_own, total, n), 1.0)  # of the totals, in the reward
    means = share * total.means + (1.0 - share) * plain.means
    variances = share**2 * total.mean_variances + (1.0 - share) ** 2 * plain.mean_variances
    rows = np.where(own[:, None], plain.soft, plain.prior)
    doubts = np.where(
        own[:, None],
        plain.spreads / n_own[:, None] ** 2 + rows * (1.0 - rows) / n_own[:, None],
        rows * (1.0 - rows) / (1.0 + (0.0 if own.all() else outcomes_of(all_cells))),
    )
    ratios = total.counts / np.maximum(coarse.expected[cells], 1e-9)
    place = np.full(single.size, -1)
    place[cells] = np.arange(cells.size)
    for record in coarse.records:
        if record.sums.shape[1] > 1:
            kernel.move_rows(
                place[record.cells],
                record.classes,
                record.sums,
                record.variance,
                record.predicted,
                means,
                ratios,
                rows,
                doubts,
            )
    counts = total.counts + np.where(own, plain.counts, 0.0)
    noise = np.maximum(doubts - rows * (1.0 - rows) / np.maximum(counts, 1.0)[:, None], LEAST_NOISE * doubts)
    return {
        "rows": rows,
        "soft": rows,
        "spreads": noise * (counts**2)[:, None],
        "counts": counts,
        "means": means,
        "mean_variances": variances,
        "pays": np.where(own, np.maximum(plain.pays, total.pays), total.pays),
        "branching": np.where(own[:, None], plain.branching, all_cells.shares()),
    }


def _totals_of(before: Reading, coarse: Coarse, admitted: Mask, cells: Ints) -> Reading:
    """Reports and rewards by the totals: cells with one outcome; how many pay is learned over all cells."""
    one = np.ones((admitted.shape[0], 2), dtype=np.bool_)
    one[cells] = admitted[cells].reshape(cells.size, -1, 2).any(axis=1)
    evidence = Evidence(coarse.totals, np.where(coarse.asked, coarse.noise, np.inf), coarse.expected, one)
    seen = (before.branching.sum(axis=1, keepdims=True) > 0.0).astype(np.float64)
    start = replace(Reading.nothing(one), pays=before.pays, branching=seen)
    return read(evidence, start, cells, rounds=2)


def _weight(plain: Reading, n_own: Floats, total: Reading, n: Floats) -> Floats:
    """(C,): what the totals count in the reward beside single outcomes, each by its precision."""
    first = plain.mean_variances + (plain.means * (1.0 - plain.means) + 0.25 / n_own) / n_own
    second = total.mean_variances + (total.means * (1.0 - total.means) + 0.25 / n) / n
    return np.asarray(first / (first + second))
