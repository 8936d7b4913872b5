"""What one user of an adversarial problem contributes, as integers, and how far she can move it. Raw data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from discreet.device.losses import Feedback, LossTables
from discreet.device.tables import check_grid
from discreet.mdp import Floats, Ints
from discreet.occupancies import Layers
from discreet.people.counts import LARGEST_SUM, Sensitivity
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Neighbours
from discreet.problem import grid_for

TABLES = ("visits", "transitions", "losses")


@dataclass(frozen=True, eq=False)
class LossSpec:
    """Public description: the layers, what a user's record holds of her losses, and the grid they are rounded to.

    Full information: the record is the trajectory and the whole loss table of the episode [BZZDTCC24 §2.2]. Bandit:
    the trajectory and the losses along it. Transitions of the last step lead nowhere and are not counted.
    """

    layers: Layers
    feedback: Feedback
    num_episodes: int
    grid: float = 2.0**-20

    def __post_init__(self) -> None:
        if self.feedback not in ("full", "bandit"):
            raise ValueError(f"feedback is {self.feedback!r}; it must be 'full' or 'bandit'")
        if self.num_episodes < 1:
            raise ValueError(f"num_episodes is {self.num_episodes}; at least one user must play")
        check_grid(self.grid)
        if self.num_episodes * self.layers.horizon * self.units >= LARGEST_SUM:
            raise ValueError(
                f"{self.num_episodes} losses on a grid of {self.grid:g} could overflow; use a coarser one"
            )

    @classmethod
    def for_episodes(cls, layers: Layers, feedback: Feedback, num_episodes: int) -> LossSpec:
        """With the grid of so many episodes."""
        return cls(layers, feedback, num_episodes, grid_for(num_episodes))

    @cached_property
    def tables(self) -> LossTables:
        """The same description as a device reads it."""
        layers = tuple(tuple(sorted(layer)) for layer in self.layers.states)
        return LossTables(layers, self.layers.num_states, self.layers.num_actions, self.feedback, self.grid)

    @property
    def units(self) -> int:
        """The largest loss in grid units."""
        return math.ceil(1.0 / self.grid)

    @property
    def cell_index(self) -> Ints:
        """(H, S, A): position of a cell among those that can occur, −1 elsewhere."""
        return self.tables.cell_index

    @property
    def sizes(self) -> dict[str, int]:
        """Counters per table."""
        return dict(zip(TABLES, self.tables.cells, strict=True))

    def sensitivity(self, neighbours: Neighbours) -> dict[str, Sensitivity]:
        """Per table, in its integers.

        Counts: 2 per step (replace), 1 (zero-out). Whole loss tables: every cell may move by its full range under
        both relations, XA and √(XA). Losses along a trajectory: as visits, for ℓ + ℓ' ≤ 2 where the cells differ.
        """
        H, XA = self.layers.horizon, self.layers.num_cells
        episodes = {"replace": 2, "zero-out": 1}[neighbours]

        def steps(count: int) -> Sensitivity:
            return Sensitivity(float(episodes * count), math.sqrt(episodes * count))

        along = steps(H) if self.feedback == "bandit" else Sensitivity(float(XA), math.sqrt(XA))
        losses = Sensitivity(along.l1 * self.units, along.l2 * self.units)
        return {"visits": steps(H), "transitions": steps(H - 1), "losses": losses}

    def check(self, episodes: Episodes, losses: Floats) -> None:
        """Refuse arrays of another shape: the caller's mistake, whatever anyone did."""
        if losses.ndim != 4 or losses.shape[1:] != self.cell_index.shape:
            raise ValueError(
                f"loss tables have shape {losses.shape}; expected (n, H, S, A) with {self.cell_index.shape}"
            )
        if len(losses) != len(episodes) or episodes.silent:
            raise ValueError(f"{len(losses)} loss tables were given for {len(episodes)} episodes; expected one each")

    def cells(self, episodes: Episodes) -> Ints:
        """(n, H): the cells that were visited; −1 throughout for an episode that does not have one step per layer, or
        is outside the declared layers at some step."""
        n, H = episodes.actions.shape[0], self.layers.horizon
        if episodes.horizon != H:
            return np.full((n, H), -1, dtype=np.int64)
        return self.tables.walks(episodes.states[:, :H], episodes.actions)

    def on_grid(self, losses: Floats) -> Ints:
        """(n, cells): loss tables (n, H, S, A) in grid units, on the cells that can occur.

        A table with a value that is not in [0, 1] counts as zeros."""
        return self.tables.on_grid(losses[:, self.layers.mask].reshape(len(losses), -1))

    def contribution(self, episodes: Episodes, losses: Floats) -> dict[str, Ints]:
        """Sums over users of what each table holds.

        An episode that cannot be read adds nothing to visits, transitions and losses along it; a loss table that
        cannot be read adds nothing to losses. Neither touches the other's tables: where losses are public, they are
        released as they are, and must not show who walked outside the layers.
        """
        self.check(episodes, losses)
        cells, units = self.cells(episodes), self.on_grid(losses)
        if self.feedback == "bandit":
            rows = np.flatnonzero(cells[:, 0] >= 0)[:, None]
            along = np.zeros_like(units)
            along[rows, cells[rows[:, 0]]] = units[rows, cells[rows[:, 0]]]
            units = along
        return dict(zip(TABLES, self.tables.summed(cells, units), strict=True))

    def unpacked(self, name: str, values: Floats) -> Floats:
        """A flat table back in (H, S, A), or (H, S, A, S) for transitions; 0 where nothing can occur."""
        H, S, A = self.cell_index.shape
        if name == "transitions":
            table = np.zeros((H, S, A, S))
            inside = self.tables.triple_index >= 0
            table[:-1][inside] = values
            return table
        table = np.zeros((H, S, A))
        table[self.cell_index >= 0] = values
        return table
