"""Adversarial problems on a device: its record is a walk through public layers and the losses of the episode.

Of these messages a user sends one: counters with noise (`LaplaceEncoder`, `GaussianEncoder`) or one step in unary
encoding (`SampledEncoder`), all with these tables; or a few cells of her loss table as flipped bits (`LossEncoder`).
Proof: discreet/privacy/trust/losses.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.device.sampler import Ints, Randomness, below, biased, unary_cost
from discreet.device.tables import LARGEST, Floats, all_inside, check_grid, numbers
from discreet.device.wire import (
    Encoder,
    Readers,
    check_flips,
    list_of,
    read_fields,
    real_number,
    rounded_up,
    text,
    whole_number,
    whole_numbers,
)
from discreet.mdp import layer_mask

Feedback = Literal["full", "bandit"]

#: Entries of a table of all triples that a device is ready for.
_MOST_ENTRIES = 1 << 28


@dataclass(frozen=True)
class LossTables:
    """Public description: which states can occur at each step, what is known of losses, and the grid they are put on.

    Full information: a record holds the whole loss table (H, S, A). Bandit: the H losses along the walk. Transitions
    of the last step lead nowhere and are not counted.
    """

    layers: tuple[tuple[int, ...], ...]  # increasing states of every step
    num_states: int
    num_actions: int
    feedback: Feedback
    grid: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(tuple(int(s) for s in layer) for layer in self.layers))
        object.__setattr__(self, "grid", float(self.grid))
        if self.feedback not in ("full", "bandit"):
            raise ValueError(f"feedback is {self.feedback!r}; it must be 'full' or 'bandit'")
        if not self.layers or not all(self.layers) or min(self.num_states, self.num_actions) < 1:
            raise ValueError("layers need at least one step, and every step at least one state and action")
        for layer in self.layers:
            increasing = all(a < b for a, b in pairwise(layer))
            if not increasing or layer[0] < 0 or layer[-1] >= self.num_states:
                raise ValueError(f"the states of a layer must be increasing, in 0..{self.num_states - 1}")
        check_grid(self.grid)
        if self.horizon * self.num_states**2 * self.num_actions > _MOST_ENTRIES:
            raise ValueError("the layers have more than 2²⁸ triples; no device can report on them")
        if self.horizon * self.units >= LARGEST:
            raise ValueError("the losses of an episode are too large for 64-bit counters; use a coarser grid")

    @classmethod
    def from_json(cls, message: Any) -> LossTables:
        return cls(**read_fields("a description of losses", message, _TABLES))

    # Sizes --------------------------------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        return len(self.layers)

    @property
    def units(self) -> int:
        """The largest loss in grid units."""
        return math.ceil(1.0 / self.grid)

    @cached_property
    def cells(self) -> tuple[int, int, int]:
        """Number of counters of visits, transitions and losses."""
        widths = [len(layer) for layer in self.layers]
        pairs = sum(widths) * self.num_actions
        return pairs, self.num_actions * sum(a * b for a, b in pairwise(widths)), pairs

    @property
    def moves(self) -> tuple[int, int, int]:
        """L1 distance of the counters of two records: two walks may share no cell, two tables no value.

        Losses of a walk: ℓ + ℓ' ≤ 2 at a step where the cells differ.
        """
        steps = 2 * self.horizon
        moved = self.cells[2] if self.feedback == "full" else steps
        return steps, steps - 2, moved * self.units

    @property
    def squares(self) -> tuple[int, int, int]:
        """Squared L2 distance of the same: no two steps of a walk share a counter."""
        visits, transitions, losses = self.moves
        return visits, transitions, losses * self.units

    @property
    def num_items(self) -> int:
        """One item per triple between layers and per cell of the last layer; bandit items also have a bit."""
        items = self.cells[1] + len(self.layers[-1]) * self.num_actions
        return items * (2 if self.feedback == "bandit" else 1)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """(H, S): whether a state can occur at a step."""
        return layer_mask(self.layers, self.num_states)

    @cached_property
    def cell_index(self) -> Ints:
        """(H, S, A): position of a cell among those that can occur, −1 elsewhere."""
        index = np.full((*self.mask.shape, self.num_actions), -1, dtype=np.int64)
        index[self.mask] = np.arange(self.cells[0]).reshape(-1, self.num_actions)
        return index

    @cached_property
    def triple_index(self) -> Ints:
        """(H−1, S, A, S): position of a triple among those between consecutive layers, −1 elsewhere."""
        H, S = self.mask.shape
        possible = np.broadcast_to(
            self.mask[:-1, :, None, None] & self.mask[1:, None, None, :], (H - 1, S, self.num_actions, S)
        )
        index = np.full(possible.shape, -1, dtype=np.int64)
        index[possible] = np.arange(self.cells[1])
        return index

    # Records ------------------------------------------------------------------------------------------------------

    def walks(self, states: Ints, actions: Ints) -> Ints:
        """(n, H): the cells visited by walks (n, H); −1 throughout for one that leaves the layers at some step."""
        H, S, A = self.cell_index.shape
        inside = (states >= 0) & (states < S) & (actions >= 0) & (actions < A)
        cells = self.cell_index[np.arange(H), np.where(inside, states, 0), np.where(inside, actions, 0)]
        readable = (inside & (cells >= 0)).all(axis=1, keepdims=True)
        return np.where(readable, cells, -1)

    def triples(self, cells: Ints) -> Ints:
        """(n, H−1): the triples that occurred on the way through these cells (of no meaning where there are none)."""
        H, S, A = self.cell_index.shape
        pairs = np.flatnonzero(self.cell_index >= 0)[cells] % (S * A)  # a cell is (h, s, a): s·A + a
        states, actions = pairs // A, pairs % A
        triples = self.triple_index[np.arange(H - 1), states[:, :-1], actions[:, :-1], states[:, 1:]]
        return np.asarray(triples, dtype=np.int64)

    def on_grid(self, losses: Floats) -> Ints:
        """Rows of losses in grid units; a row with a value that is not in [0, 1] counts as zeros."""
        readable = ((losses >= 0.0) & (losses <= 1.0)).all(axis=1, keepdims=True)
        if not readable.all():
            losses = np.where(readable, losses, 0.0)
        return np.rint(losses / self.grid).astype(np.int64)

    def read(self, states: Any, actions: Any, losses: Any) -> tuple[Ints, Ints]:
        """One person's record: the cells of her walk (1, H) and the losses per cell (1, XA), in grid units.

        A walk that does not have one step per layer, or leaves them, is −1 throughout, and then nothing of the losses
        along it is known; losses that cannot be read are zeros. The state after the last step is not looked at.
        """
        H, (S, A) = self.horizon, (self.num_states, self.num_actions)
        cells, units = np.full((1, H), -1, dtype=np.int64), np.zeros((1, self.cells[0]), dtype=np.int64)
        s, a = numbers(states), numbers(actions)
        if s is not None and a is not None and a.size == H and s.size in (H, H + 1):
            if all_inside(s[:H], S) and all_inside(a, A):
                cells = self.walks(s[None, :H].astype(np.int64), a[None].astype(np.int64))
        if self.feedback == "full":
            table = numbers(losses, 3)
            if table is not None and table.shape == (H, S, A):
                units = self.on_grid(table[self.mask].reshape(1, -1))
        else:
            along = numbers(losses)
            if along is not None and along.size == H and cells[0, 0] >= 0:
                units[0, cells[0]] = self.on_grid(along[None])[0]
        return cells, units

    def counters(self, states: Any, actions: Any, losses: Any) -> tuple[Ints, Ints, Ints]:
        """Visits, transitions and losses of one record: raw, they stay on the device."""
        return self.summed(*self.read(states, actions, losses))

    def summed(self, cells: Ints, units: Ints) -> tuple[Ints, Ints, Ints]:
        """Visits, transitions and losses of walks (n, H), −1 where one cannot be read, with losses (n, XA)."""
        walked = cells[cells[:, 0] >= 0]
        return (
            np.bincount(walked.reshape(-1), minlength=self.cells[0]),
            np.bincount(self.triples(walked).reshape(-1), minlength=self.cells[1]),
            units.sum(axis=0),
        )

    def items(self, cells: Ints, units: Ints, noise: Randomness) -> Ints:
        """The item of a step drawn by every user's own coin, −1 where her walk cannot be read: raw.

        Full information never needs the last step.
        """
        bandit, n, H = self.feedback == "bandit", len(cells), self.horizon
        if not bandit and H == 1:
            return np.full(n, -1, dtype=np.int64)
        h = below(noise, H if bandit else H - 1, n)
        rows, last = np.arange(n), h == H - 1
        items = np.empty(n, dtype=np.int64)
        first_last = self.cells[0] - len(self.layers[-1]) * self.num_actions
        items[last] = self.cells[1] + cells[last, H - 1] - first_last
        if H > 1:
            items[~last] = self.triples(cells)[rows[~last], h[~last]]
        if bandit:
            items = 2 * items + (below(noise, self.units, n) < units[rows, cells[rows, h]])
        return np.where(cells[:, 0] >= 0, items, -1)

    def item(self, states: Any, actions: Any, losses: Any, noise: Randomness) -> Ints:
        """The item of one person's record."""
        return self.items(*self.read(states, actions, losses), noise)


def _layers(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(whole_numbers("a layer", layer) for layer in list_of(name, value))


_TABLES: Readers = {
    "layers": _layers,
    "num_states": whole_number,
    "num_actions": whole_number,
    "feedback": text,
    "grid": real_number,
}


def flipped(units: Ints, most: int, flips: int, noise: Randomness) -> NDArray[np.bool_]:
    """A bit per number of units, on with probability units/most, then flipped with probability flips/2⁶⁴."""
    bits = below(noise, most, units.size).reshape(units.shape) < units
    return np.asarray(bits ^ biased(noise, flips, units.size).reshape(units.shape))


@dataclass(frozen=True)
class LossEncoder(Encoder):
    """The announced cells of her loss table, each rounded to a bit by her own coin and flipped with probability q.

    q = flips/2⁶⁴. Which cells is public and does not depend on her record.  Cost: two words per cell, one bit each.
    """

    tables: LossTables
    cells: tuple[int, ...]
    flips: int

    kind: ClassVar[str] = "loss-cells"
    readers: ClassVar[Readers] = {
        "tables": lambda _, value: LossTables.from_json(value),
        "cells": whole_numbers,
        "flips": whole_number,
    }

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(int(cell) for cell in self.cells))
        if self.tables.feedback != "full":
            raise ValueError("cells of a loss table are reported under full information only")
        if any(b <= a for a, b in pairwise(self.cells)) or not self.cells:
            raise ValueError("cells must be increasing, and there must be at least one")
        if self.cells[0] < 0 or self.cells[-1] >= self.tables.cells[2]:
            raise ValueError(f"a cell lies outside 0..{self.tables.cells[2] - 1}, the cells that can occur")
        check_flips(self.flips)

    @cached_property
    def epsilon(self) -> float:
        """j·ln((1−q)/q), rounded up: each of j bits may differ."""
        one = unary_cost(self.flips)
        return one if math.isinf(one) else rounded_up(len(self.cells) * Fraction(one))

    @property
    def size(self) -> int:
        return len(self.cells)

    def payload(self, states: Any, actions: Any, losses: Any, noise: Randomness) -> bytes:
        units = self.tables.read(states, actions, losses)[1][0, list(self.cells)]
        return np.packbits(flipped(units, self.tables.units, self.flips, noise)).tobytes()

    def tally(self, payload: bytes) -> Ints:
        return self._bits(payload, self.size)
