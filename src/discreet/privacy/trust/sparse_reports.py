"""Reports on very many sub-cells: noise on all of them, of which few are ever drawn. Proof: sparse_reports.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.people.counts import CountSpec
from discreet.privacy.excess import excess
from discreet.privacy.families import variance_of
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import stated
from discreet.privacy.trust.reports import ReportDesk, Reports, adjusted
from discreet.releases.reports import Targets
from discreet.releases.sparse_reports import NO_CODES, ReportSpace, SparseReports, SparseTargets

#: Empty sub-cells above the threshold, in expectation, of a cell that is asked for.
FALSE = 0.05


@dataclass(frozen=True)
class SparseReportNoise(Reports):
    """`Reports`, of which what lies below a public threshold is forgotten, and not drawn where nobody is.

    Released of every asked (cell, s'): both noisy numbers where one is above t = b·ln(S/FALSE), b the scale of
    the noise, or where they were asked for. Source: ours.  Cost: that of the reports, and FALSE·targets.
    """

    @property
    def balanced(self) -> bool:
        return False

    def threshold(self, num_states: int) -> int:
        return max(0, math.ceil(self.entry().scale * math.log(num_states / FALSE)))

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> SparseReportStream:  # type: ignore[override]
        return SparseReportStream(self, spec, num_episodes, noise)


def space_of(spec: CountSpec, privatizer: Reports) -> ReportSpace:
    """As `alphabet_of`, without a table."""
    facts = adjusted(spec, privatizer.structure)
    pooled = spec.pooled and spec.horizon > 1
    sizes = spec.num_states, spec.num_actions, spec.horizon
    return ReportSpace(*sizes, pooled, has_start=facts.initial is None, facts=facts)


class SparseReportStream(ReportDesk[SparseReports]):
    """Raw reports of the open epoch only: which items were named, and how often."""

    def __init__(self, privatizer: SparseReportNoise, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        self.space, entry = space_of(spec, privatizer), privatizer.entry()
        super().__init__(spec, self.space, num_episodes, noise, privatizer.reports)
        self._scale, self._threshold = entry.scale, privatizer.threshold(spec.num_states)
        self._named: list[Ints] = []
        self._nothing = SparseReports(
            self.space,
            NO_CODES,
            np.zeros(0),
            self._threshold,
            None,
            0,
            0,
            variance_of("laplace", entry.scale),
            privatizer.reports,
        )
        self._last = self._nothing
        public = "targets and epoch lengths depend on public numbers and releases only"
        told, each = (public, *privatizer.structure.assumptions()), privatizer.episodes_per_user
        budget, neighbours = privatizer.budget, privatizer.neighbours
        self.guarantee = stated(
            [entry], "joint", neighbours, budget, num_episodes, noise, *told, episodes_per_user=each
        )

    def _open(self, targets: Targets) -> None:
        if not isinstance(targets, SparseTargets):
            raise ValueError("the targets do not say which sub-cells are wanted in full; announce SparseTargets")
        if not targets.cells.any():
            raise ValueError("the target set is empty; at least one cell must be asked for")
        rows = targets.full // self.space.columns
        inside = (targets.full >= 0) & (rows < self.space.num_cells)
        if not (inside.all() and targets.cells[rows].all() and np.isin(targets.full ^ 1, targets.full).all()):
            raise ValueError("what is wanted in full must be both sub-cells of successors of the targets")
        self._named = []

    def _collect(self, items: Ints, users: int) -> None:
        self._named.append(items[items >= 0])
        if len(self._named) > 64:  # many small portions are kept as one
            self._named = [np.concatenate(self._named)]
        self._came(users)

    def _drawn(self, users: int) -> SparseReports:
        targets = self._announced()
        assert isinstance(targets, SparseTargets)
        codes, counts = np.unique(np.concatenate([NO_CODES, *self._named]), return_counts=True)
        self._named = []
        held, values = released(
            self.space, targets, codes, counts.astype(np.int64), self._scale, self._threshold, self._noise
        )
        return replace(
            self._nothing,
            codes=held,
            values=values,
            targets=targets,
            users=users,
            num_episodes=self._crowd.size,
        )


def released(
    space: ReportSpace,
    targets: SparseTargets,
    codes: Ints,
    counts: Ints,
    scale: float,
    threshold: int,
    noise: NoiseSource,
) -> tuple[Ints, Floats]:
    """(codes, noisy numbers): the law of noise on every item of the targets, of which all is forgotten but rows held
    whole, pairs asked for, and pairs with one number above the threshold. `codes` occur, `counts` > 0 times each."""
    rows = targets.rows
    whole = space.whole(rows)
    always = np.concatenate([space.listed(rows[whole]), targets.full[~space.whole(targets.full // space.columns)]])
    always = np.unique(always)
    searched = rows[~whole]
    seen = codes[~space.whole(codes // space.columns)]
    pairs = np.unique(np.concatenate([seen, seen ^ 1]))
    pairs = pairs[~np.isin(pairs, always)]
    drawn = np.concatenate([always, pairs])
    noisy = noise.laplace(scale, drawn.size) + counted(drawn, codes, counts)
    sure, noisy_pairs = noisy[: always.size], noisy[always.size :].reshape(-1, 2)
    above = np.repeat((noisy_pairs > threshold).any(axis=1), 2)
    empty, values = empty_pairs(space, searched, np.sort(drawn), scale, threshold, noise)
    held = np.concatenate([always, pairs[above], empty])
    found = np.concatenate([sure, noisy_pairs.reshape(-1)[above], values])
    there = np.isin(held, space.existing(held))
    order = np.argsort(held[there])
    return held[there][order], found[there][order].astype(np.float64)


def empty_pairs(
    space: ReportSpace, rows: Ints, taken: Ints, scale: float, threshold: int, noise: NoiseSource
) -> tuple[Ints, Ints]:
    """(codes, noises) of pairs of these rows, but those `taken`, of which one noise is above the threshold."""
    places, values = excess(noise, "laplace", scale, threshold, rows.size * space.columns)
    codes = rows[places // space.columns] * space.columns + places % space.columns
    free = ~np.isin(codes, taken)
    codes, values = codes[free], values[free]
    partners = np.setdiff1d(codes ^ 1, codes)
    low = noise.laplace(scale, partners.size)
    while (high := low > threshold).any():  # given that they are not above it
        low[high] = noise.laplace(scale, int(high.sum()))
    return np.concatenate([codes, partners]), np.concatenate([values, low])


def counted(wanted: Ints, codes: Ints, counts: Ints) -> Ints:
    """How often each wanted code occurs."""
    if not codes.size:
        return np.zeros(wanted.size, dtype=np.int64)
    place = np.minimum(np.searchsorted(codes, wanted), codes.size - 1)
    return np.where(codes[place] == wanted, counts[place], 0)
