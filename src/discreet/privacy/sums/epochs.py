"""One fresh noise per epoch and counter; every user is in one epoch, so nothing is paid twice. Proof: epochs.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from discreet.device import EpisodeEncoder
from discreet.device.encoders import Form
from discreet.mdp import Floats, Ints
from discreet.people.counts import CountSpec
from discreet.planning import Plan
from discreet.privacy.families import Blocks, Family, check_choice, check_printed, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Sealed
from discreet.privacy.sums.streams import CountPrivatizer, CountStream, natural
from discreet.privacy.sums.sums import BlockSums, cells_of_counters
from discreet.releases.counts import PerTable, PrivateCounts


@dataclass(frozen=True)
class Epochs(CountPrivatizer):
    """The users between two releases form an epoch; its sums get noise once, and releases add up noisy epochs.

    Per epoch: Laplace noise of scale Δ₁/ε_f, or Gaussian noise of variance Δ₂²/(2ρ_f).
    `window="all"` sums all epochs; "restart" lets every cell (s,a), with all its tables, start again at the newest
    epoch when that epoch alone has a better ratio of noisy visits to noise, N̂_new > (N̂_old + N̂_new)/√epochs: epochs
    in which a cell was hardly visited then stop adding noise to it. Both are post-processing.

    `calibration="paper"` uses the printed sensitivity, H/ε_f, and states what that truly guarantees.

    Guarantee: joint DP with the stated budget per user, for any number of epochs chosen on the fly, epochs.md.
    Width: exact tails, for an unlimited number of releases, epochs.md.
    Source: block release, [QW23] with L = 1.  Cost: one draw per counter and epoch; memory does not grow.
    """

    window: Literal["all", "restart"] = "all"
    calibration: Literal["true", "paper"] = "true"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("window", self.window, "all", "restart")
        check_printed(self.calibration, self.mechanism)

    def families(self, spec: CountSpec) -> tuple[Family, ...]:
        """The noise of every epoch, per table."""
        return self._calibrated(spec, factor=1.0 if self.calibration == "paper" else None)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> EpochStream:
        return EpochStream(self, spec, num_episodes, noise)

    def form(self, spec: CountSpec, plan: Plan, users: int) -> EpisodeEncoder:
        return EpisodeEncoder(spec.tables)

    def seal(self, spec: CountSpec, form: Form, tally: Ints, users: int, silent: int, noise: NoiseSource) -> Ints:
        """One noise on every counter; tables without a share of the budget are zeros, whatever was sent."""
        families = self.families(spec)
        paid = np.repeat([family.entry is not None for family in families], [family.size for family in families])
        return np.where(paid, tally, 0) + Blocks(families, noise).draw()

    def released(self, spec: CountSpec, num_episodes: int, sealed: Sequence[Sealed]) -> PrivateCounts:
        stream = self.open(spec, num_episodes, NoiseSource.secure())
        for epoch in sealed:
            stream.enter(epoch.values, epoch.users)
        return stream.release()


class EpochStream(CountStream):
    """Raw sums of the open epoch only; noisy sums of the epochs in every cell's window."""

    _mechanism: BlockSums

    def __init__(self, epochs: Epochs, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        families = epochs.families(spec)
        self._restarts = epochs.window == "restart"
        cell_of = cells_of_counters(spec) if self._restarts else None
        mechanism = BlockSums(Blocks(families, noise), families[0].size, cell_of)
        told = "when an epoch ends depends on public numbers and releases only"
        printed = epochs.calibration == "paper"
        super().__init__(epochs, spec, num_episodes, noise, families, mechanism, told, printed=printed)

    def enter(self, values: Ints, users: int) -> None:
        """An epoch of so many users that was sealed before."""
        self._crowd.check(users)
        self._mechanism.enter(values)
        self._crowd.size += users
        self._covered, self._drawn, self._last = self._crowd.size, True, None

    @property
    def _epochs(self) -> int:
        return self._mechanism.blocks

    @property
    def _lengths(self) -> Ints:
        """(G, S, A): epochs in every cell's window."""
        return self._mechanism.lengths.reshape(self._families[0].shape)

    def _width(self, family: Family, beta: float) -> float | Floats:
        if self._epochs == 0:
            return 0.0
        if not self._restarts:
            return window_width(family, block_of(self._epochs), None, beta)
        table = np.zeros(self._epochs + 1)
        for length in np.unique(self._lengths).tolist():
            table[length] = window_width(family, block_of(length), self._epochs - length + 1, beta)
        return self._by_cell(family, table[self._lengths])

    def _deviations(self) -> PerTable:
        if not self._restarts:
            return super()._deviations()
        spread = np.sqrt(self._lengths)
        return natural(
            self._families, [self._by_cell(family, spread * family.deviation) for family in self._families]
        )

    def _by_cell(self, family: Family, values: Floats) -> Floats:
        """A number per cell, shaped like the family's table."""
        cells = values[..., None] if len(family.shape) > values.ndim else values
        return np.broadcast_to(cells, family.shape)


class Block(NamedTuple):
    """Some consecutive numbers that share one width: single numbers at first, then steps of an eighth."""

    rank: int  # 1, 2, ...
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def block_of(number: int) -> Block:
    rank, first, last = 1, 1, 1
    while last < number:
        rank, first, last = rank + 1, last + 1, last + 1 + last // 8
    return Block(rank, first, last)


def window_width(family: Family, lengths: Block, start: int | None, beta: float) -> float:
    """Width, in integer units, of sums of consecutive noises from epoch `start` on (None: always from the first).

    Block i of lengths spends β/(i(i+1)); within a block, Lévy's inequality bounds all partial sums by twice the tail
    of the longest. Starting points with i binary digits share 1/(i(i+1)) of that, in equal parts.
    """
    share = beta / (lengths.rank * (lengths.rank + 1))
    if start is not None:
        digits = start.bit_length()
        share /= digits * (digits + 1) * 2 ** (digits - 1)
    return union_width(family, [lengths.last], [1.0 if lengths.size == 1 else 2.0], share)
