"""What noisy reports say: rows, rewards and how sure they are, by empirical Bayes. Theory: docs/spotlight.md.

The noisy count of an outcome is y = n + noise; n is 0 with probability 1 − w and else exponential. How many outcomes
a cell has, how many cells pay and where reports go at all is learned over all cells. Pure functions of releases.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from discreet.kernels import reading as kernel
from discreet.mdp import Floats, Ints
from discreet.problem import Mask

#: Numbers of outcomes of a cell that are tried, below the number of states.
BRANCHINGS = (1, 2, 3, 5, 8, 13, 21, 40, 80)
#: True over predicted number of reports, and how likely before looking.
RATIOS = np.array([0.1, 0.3, 0.6, 1.0, 1.4])
LOG_RATIOS = np.log([0.10, 0.15, 0.25, 0.35, 0.15])
#: Predicted reports count as so many at least: where next to none are foreseen, one that comes proves nothing.
FEWEST_EXPECTED = 1.0
#: Cells that are added to those seen, one half of them with and one half without what is learned.
PSEUDO_CELLS = 2.0
#: An outcome is kept from this posterior inclusion on (the largest always), a reward from that one on.
KEEP, KEEP_REWARD = 0.5, 0.3
#: Cells are read as if at least this share of them paid: a reward that is overlooked is not looked for again, and one
#: that is not there is soon found out.
FEWEST_PAYING = 0.1
#: Staged: weight of what the other steps show in the prior inclusion of an outcome.
STEPS_TRUST = 0.7
#: Where reports go: weight of the mixture of components (the rest is uniform), and reports by which uniform is ahead.
MIXED, UNIFORM_AHEAD = 0.95, 20.0
#: Most reports with which one row counts for components, and rounds of their fit.
ROW_CAP, MIXTURE_ROUNDS = 100.0, 15
#: Components are fitted to cells with so many standard deviations of reports, if there are enough of them.
CLEAR, FEWEST_CLEAR = 2.0, 3
COMPONENTS = ("uniform", "other actions", "offset", "offset of the action", "popularity")
#: Rewards are pulled towards the state's mean only where more cells than this share pay.
DENSE = 0.8


@dataclass(frozen=True, eq=False)
class Evidence:
    """Noisy sums of some cells."""

    sums: Floats  # (C, 2S)
    variances: Floats  # (C,): of the noise on one sub-cell; infinite where nothing was asked
    expected: Floats  # (C,): predicted reports
    admitted: Mask  # (C, 2S)
    normal: bool = False  # whether the noise is normal, a sum over people, rather than one Laplace draw

    @property
    def asked(self) -> Ints:
        return np.flatnonzero(np.isfinite(self.variances))


@dataclass(frozen=True, eq=False)
class Reading:
    """Posterior of every cell, zeros where nothing was asked, and what was learned over all of them."""

    rows: Floats  # (C, S): of outcomes that are kept, for plans that look for more
    soft: Floats  # (C, S): of all, by posterior means, for plans that use what is known
    spreads: Floats  # (C, S): variance of the count of an outcome
    inclusions: Floats  # (C, S)
    counts: Floats  # (C,)
    likelihoods: Floats  # (C,): logarithm of that of the sums, up to the constant of the noise
    means: Floats  # (C,)
    mean_variances: Floats  # (C,)
    pays: Floats  # (C,): how surely it pays at all
    branching: Floats  # (C, B)
    prior: Floats  # (C, S)
    mixture: Floats  # (components,)

    @classmethod
    def nothing(cls, admitted: Mask) -> Reading:
        C, S = admitted.shape[0], admitted.shape[1] // 2
        B = branchings(S).size
        uniform = np.zeros(len(COMPONENTS))
        uniform[0] = 1.0
        table = np.zeros((C, S))
        none = np.zeros(C)
        return cls(
            table,
            table,
            table,
            table,
            none,
            none,
            none,
            none,
            none,
            np.zeros((C, B)),
            uniform_prior(admitted),
            uniform,
        )

    def of(self, cells: Ints) -> Reading:
        """What is known about these cells."""
        names = (field.name for field in fields(self) if field.name != "mixture")
        return replace(self, **{name: getattr(self, name)[cells] for name in names})

    def shares(self) -> Floats:
        """How many cells have how many outcomes."""
        B = self.branching.shape[1]
        gathered = self.branching.sum(axis=0) + PSEUDO_CELLS / B
        return np.asarray(gathered / gathered.sum())

    def paying(self) -> float:
        """The share of cells that pay, of those read so far."""
        read_so_far = int((self.branching.sum(axis=1) > 0.0).sum())
        return float((self.pays.sum() + 0.5 * PSEUDO_CELLS) / (read_so_far + PSEUDO_CELLS))


@lru_cache(maxsize=64)
def branchings(num_states: int) -> Ints:
    return np.array([b for b in BRANCHINGS if b < num_states] + [num_states], dtype=np.int64)


def uniform_prior(admitted: Mask) -> Floats:
    possible = successors(admitted)
    return np.asarray(possible / possible.sum(axis=1, keepdims=True))


def successors(admitted: Mask) -> Mask:
    """(C, S): which successors can be reported."""
    return np.asarray(admitted.reshape(admitted.shape[0], -1, 2).any(axis=2))


def read(
    evidence: Evidence,
    before: Reading,
    cells: Ints,
    rounds: int = 1,
    support: Floats | None = None,
    again: bool = False,
) -> Reading:
    """Read these cells, `rounds` times with what each reading says about all cells; the others stay.

    `again`: the same sums were read before, and only what is known about all cells has changed.
    """
    cells = cells[np.isfinite(evidence.variances[cells])]
    reading = before
    if not cells.size:
        return reading
    S = evidence.admitted.shape[1] // 2
    for _ in range(rounds):
        out = replace(
            reading,
            **{
                name: getattr(reading, name).copy()
                for name in (
                    "rows",
                    "soft",
                    "spreads",
                    "inclusions",
                    "counts",
                    "likelihoods",
                    "means",
                    "mean_variances",
                    "pays",
                    "branching",
                )
            },
        )
        kernel.read_rows(
            cells,
            evidence.sums,
            evidence.variances,
            evidence.normal,
            np.maximum(evidence.expected, FEWEST_EXPECTED),
            evidence.admitted,
            reading.prior,
            np.empty((0, 0)) if support is None else support,
            STEPS_TRUST,
            branchings(S),
            np.log(reading.shares()),
            RATIOS,
            LOG_RATIOS,
            max(reading.paying(), FEWEST_PAYING),
            KEEP,
            KEEP_REWARD,
            out.rows,
            out.soft,
            out.spreads,
            out.inclusions,
            out.counts,
            out.likelihoods,
            out.means,
            out.mean_variances,
            out.pays,
            out.branching,
            again,
        )
        reading = out
    return reading


def with_row_prior(evidence: Evidence, reading: Reading, num_actions: int) -> Reading:
    """Learn where reports go at all: π_c = .95·Σ_k λ_k·π^k_c + .05·uniform, each π^k from all rows but c's own."""
    C, S = reading.rows.shape
    clear = np.flatnonzero(
        np.isfinite(evidence.variances)
        & (reading.counts >= CLEAR * np.sqrt(evidence.variances))
        & (reading.counts > 0)
    )
    if clear.size < FEWEST_CLEAR:
        return reading
    uniform = uniform_prior(evidence.admitted)
    kept = np.zeros((C, S))
    kept[clear] = reading.rows[clear] * np.minimum(reading.counts[clear], ROW_CAP)[:, None]
    components = row_components(kept, uniform, num_actions)
    r = reading.means[clear, None]
    paid, unpaid = evidence.sums[clear, 1::2], evidence.sums[clear, ::2]
    noisy = (r * paid + (1.0 - r) * unpaid) / (r * r + (1.0 - r) ** 2)
    noisy *= np.minimum(1.0, ROW_CAP / reading.counts[clear])[:, None]
    pseudo = np.zeros(len(COMPONENTS))
    pseudo[0] = UNIFORM_AHEAD
    mixture = np.full(len(COMPONENTS), 1.0 / len(COMPONENTS))
    kernel.mix_components(noisy, np.ascontiguousarray(components[:, clear]), pseudo, MIXTURE_ROUNDS, mixture)
    prior = MIXED * np.einsum("k,kcs->cs", mixture, components) + (1.0 - MIXED) * uniform
    return replace(reading, prior=np.ascontiguousarray(prior), mixture=mixture)


def row_components(kept: Floats, uniform: Floats, num_actions: int) -> Floats:
    """(components, C, S): where the reports of all other cells would send the reports of this one."""
    C, S = kept.shape
    A = num_actions
    table = kept.reshape(S, A, S)
    offset = np.arange(S)[None, :] - np.arange(S)[:, None] + S - 1  # s' − s, from 0 on
    everywhere = np.bincount(np.repeat(offset[:, None, :], A, 1).reshape(-1), kept.reshape(-1), 2 * S - 1)
    per_action = np.stack([np.bincount(offset.reshape(-1), table[:, a].reshape(-1), 2 * S - 1) for a in range(A)])
    raw = (
        table.sum(axis=1, keepdims=True) - table,
        everywhere[offset][:, None, :] - table,
        per_action[:, offset].transpose(1, 0, 2) - table,
        table.sum(axis=(0, 1)) - table,
    )
    found = [uniform]
    for one in raw:
        rows = np.where(uniform > 0.0, np.maximum(one.reshape(C, S), 0.0), 0.0)
        totals = rows.sum(axis=1, keepdims=True)
        found.append(np.where(totals > 1e-9, rows / np.maximum(totals, 1e-9), uniform))
    return np.stack(found)


def shrunk_means(reading: Reading, cells: Mask, num_actions: int) -> tuple[Floats, Floats, float]:
    """(means, their variances, sd within a state) pulled towards the mean of the state's read cells.

    r ← m + τ²/(τ² + v)·(r − m),  v = Var r + r(1−r)/N + ¼/N²,  τ² = max(d² − v̄, 0) + d²/10,
    d² the variance within states.
    """
    r, N = reading.means, np.maximum(reading.counts, 1.0)
    v = reading.mean_variances + r * (1.0 - r) / N + 0.25 / N**2
    use = cells.reshape(-1, num_actions)
    number = use.sum(axis=1, keepdims=True)
    m = np.where(use, r.reshape(use.shape), 0.0).sum(axis=1, keepdims=True) / np.maximum(number, 1)
    apart = np.where(use, (r.reshape(use.shape) - m) ** 2, 0.0)
    freedom = int(np.maximum(number - 1, 0).sum())
    if freedom == 0:
        return r, reading.mean_variances, 0.0
    d2 = float(apart.sum() / freedom)
    tau2 = max(d2 - float(v[cells].mean()), 0.0) + 0.1 * d2
    factor = tau2 / (tau2 + v) if tau2 > 0.0 else np.zeros_like(v)
    centre = np.broadcast_to(m, use.shape).reshape(-1)
    pulled = np.where(cells, centre + factor * (r - centre), r)
    return pulled, np.where(cells, factor * reading.mean_variances, reading.mean_variances), float(np.sqrt(d2))
