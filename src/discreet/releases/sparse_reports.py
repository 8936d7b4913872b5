"""Reports on very many sub-cells, of which only what rises above a public threshold, or was asked for, is held."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from discreet.mdp import Floats, Ints, frozen
from discreet.problem import Mask, PublicStructure
from discreet.releases.items import StepSpace
from discreet.releases.reports import Targets

NO_CODES: Ints = frozen(np.zeros(0), np.int64)


@dataclass(frozen=True, eq=False)
class ReportSpace(StepSpace):
    """The numbering of `Items` without a table of them: code = row·2S + 2·s' + paid; the start is the last row."""

    has_start: bool = field(default=False, kw_only=True)
    facts: PublicStructure = field(default_factory=PublicStructure, kw_only=True)

    @property
    def num_rows(self) -> int:
        return self.num_cells + self.has_start

    @property
    def columns(self) -> int:
        return 2 * self.num_states

    def whole(self, rows: Ints) -> Mask:
        """Of which rows every item is held: they are few, for successors were declared or do not matter."""
        inner = self.num_cells if self.pooled else self.num_cells - self.num_states * self.num_actions
        return np.asarray(rows >= inner) | (self.facts.successors is not None)

    def listed(self, rows: Ints) -> Ints:
        """Codes of all items of rows that are held whole, in order."""
        S, start = self.num_states, self.num_cells
        inner = start if self.pooled else start - S * self.num_actions
        codes = []
        if self.facts.successors is not None:
            cells = rows[rows < inner]
            place, after = np.nonzero(self.facts.successors.reshape(start, S)[cells])
            codes.append(cells[place] * self.columns + 2 * after)
        codes.append(rows[(rows >= inner) & (rows < start)] * self.columns)
        codes = [part + bit for part in codes for bit in (0, 1)]
        if self.has_start and start in rows:
            codes.append(start * self.columns + 2 * np.arange(S))
        return np.sort(self.existing(np.concatenate(codes)))

    def existing(self, codes: Ints) -> Ints:
        """Without payments of cells that were declared to pay nothing."""
        if self.facts.zero_rewards is None:
            return codes
        row, paid = codes // self.columns, codes % 2 == 1
        never = np.append(self.facts.zero_rewards.reshape(-1), True)[np.minimum(row, self.num_cells)]
        return np.asarray(codes[~(paid & never)])


@dataclass(frozen=True, eq=False)
class SparseTargets(Targets):
    """Targets, and sub-cells of them whose noisy number is wanted whatever it is: both of every (cell, s')."""

    full: Ints = field(default_factory=lambda: NO_CODES)  # codes

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "full", frozen(np.unique(self.full), np.int64))


@dataclass(frozen=True, eq=False)
class SparseReports:
    """Noisy numbers of the latest epoch: of rows that are held whole, of what was asked for, and of every (cell, s')
    of which one of the two sub-cells is above the threshold. The others are not above it."""

    space: ReportSpace
    codes: Ints  # (n,) in order
    values: Floats  # (n,)
    threshold: float
    targets: SparseTargets | None
    users: int  # in this epoch
    num_episodes: int  # users so far
    variance: float  # of the noise on every sub-cell
    reports: int = 1  # most reports of one user

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", frozen(self.codes, np.int64))
        object.__setattr__(self, "values", frozen(self.values))

    @property
    def horizon(self) -> int:
        return self.space.horizon

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.space.shape

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)
