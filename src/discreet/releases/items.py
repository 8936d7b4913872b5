"""What one step can be, (g, s, a, s', paid or not): the one alphabet of reports and of histograms."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from discreet.mdp import Ints, frozen
from discreet.problem import NOTHING_DECLARED, Mask, PublicStructure


@dataclass(frozen=True, eq=False)
class StepSpace:
    """The numbering of items. Row c = (g·S + s)·A + a is a cell, column 2·s' + paid one of its items.

    Successors run over 0..Y−1: the states, then with `absorbing` S, the state of those who left, then with `unknown`
    one for steps of which nobody knows where they led. Where steps are not pooled, a cell of the last stage has no
    successor worth knowing: its items carry s' = 0. Those who left earn `ended` per remaining step (rewards: [0, 1]).
    """

    num_states: int
    num_actions: int
    horizon: int
    pooled: bool
    absorbing: bool = False
    unknown: bool = False
    ended: float = 0.0

    @property
    def stages(self) -> int:
        return 1 if self.pooled else self.horizon

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.horizon, self.num_states, self.num_actions

    @property
    def num_cells(self) -> int:
        """Cells (g,s,a)."""
        return self.stages * self.num_states * self.num_actions

    @property
    def num_successors(self) -> int:
        return self.num_places + self.unknown

    @property
    def num_places(self) -> int:
        """Successors that are somewhere: all but the unknown one."""
        return self.num_states + self.absorbing


@dataclass(frozen=True, eq=False)
class Items(StepSpace):
    """Which items exist, as a table. The start, where it is a cell, is the last row: s' is the first state."""

    admitted: Mask = field(kw_only=True)  # (rows, 2Y)
    has_start: bool = field(default=False, kw_only=True)

    @classmethod
    def of(
        cls,
        num_states: int,
        num_actions: int,
        horizon: int,
        pooled: bool,
        structure: PublicStructure = NOTHING_DECLARED,
        *,
        absorbing: bool = False,
        unknown: bool = False,
        ended: float = 0.0,
        known_rewards: bool = False,
        start: bool = False,
    ) -> Items:
        """`known_rewards`: what a step paid is not asked, and every item carries "not paid".

        A cell that is declared to have no successor is declared impossible: it has no items at all.
        """
        G, S, A = 1 if pooled else horizon, num_states, num_actions
        Y = S + absorbing + unknown
        for name, table, shape in (
            ("successors", structure.successors, (G, S, A, S)),
            ("zero_rewards", structure.zero_rewards, (G, S, A)),
        ):
            if table is not None and table.shape != shape:
                raise ValueError(f"{name} have shape {table.shape}; expected {shape}")
        admitted = np.ones((G, S, A, Y, 2), dtype=np.bool_)
        if structure.successors is not None:
            admitted[..., :S, :] &= structure.successors[..., None]
            admitted &= np.asarray(structure.successors.any(axis=-1))[..., None, None]
        if not pooled:
            possible = admitted[-1].reshape(S, A, 2 * Y).any(axis=-1, keepdims=True)
            admitted[-1] = False
            admitted[-1, :, :, 0] = possible
        if known_rewards:
            admitted[..., 1] = False
        elif structure.zero_rewards is not None:
            admitted[structure.zero_rewards, :, 1] = False
        rows = admitted.reshape(G * S * A, 2 * Y)
        if start:
            rows = np.concatenate([rows, np.arange(2 * Y)[None] % 2 == 0])
        ended = ended if absorbing else 0.0
        table = frozen(rows, np.bool_)
        return cls(S, A, horizon, pooled, absorbing, unknown, ended, admitted=table, has_start=start)

    @property
    def num_rows(self) -> int:
        return int(self.admitted.shape[0])

    @cached_property
    def sizes(self) -> Ints:
        """Items of every row, counted as 1 where a cell is impossible (logarithms of it are taken)."""
        return np.maximum(np.asarray(self.admitted.sum(axis=1), dtype=np.int64), 1)

    @property
    def possible(self) -> Mask:
        """(G, S, A): cells that have items."""
        cells = self.admitted[: self.num_cells]
        return cells.any(axis=1).reshape(self.stages, self.num_states, self.num_actions)

    @property
    def alike(self) -> bool:
        """Whether there are several steps with successors and all of them have the same items."""
        if self.stages < 3:
            return False
        steps = self.admitted[: self.num_cells].reshape(self.stages, -1)[:-1]
        return bool((steps == steps[0]).all())

    @cached_property
    def restricted(self) -> bool:
        """Whether some successor of some cell has been declared impossible."""
        inner = self.num_cells - (0 if self.pooled else self.num_states * self.num_actions)
        return not bool(self.admitted[:inner].reshape(inner, self.num_successors, 2).any(axis=2).all())
