"""Public instructions to reporting users, and what comes back: the vocabulary both sides of the wall share.

A *cell* is (s,a) when steps are pooled, (h,s,a) when they are staged, and, where the initial distribution is not
public, one more cell for the start. A report on a cell is one of its *sub-cells* (successor, reward bit).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from discreet.mdp import Floats, Ints, frozen
from discreet.problem import Mask, PublicStructure


@dataclass(frozen=True, eq=False)
class Alphabet:
    """Which reports exist. Row c of `admitted` is a cell, column 2·s'+bit a sub-cell of it.

    Declared successors and never-paying cells remove sub-cells. The last stage of a staged problem, and the only step
    of a pooled one, has no successor worth knowing (its reports carry s' = 0). The start, where it is a cell, is the
    last row: s' is the first state.
    """

    num_states: int
    num_actions: int
    horizon: int
    stages: int
    admitted: Mask  # (C, 2S)
    has_start: bool = False

    @classmethod
    def of(
        cls, num_states: int, num_actions: int, horizon: int, pooled: bool, structure: PublicStructure | None = None
    ) -> Alphabet:
        structure = structure or PublicStructure()
        G, S, A = 1 if pooled else horizon, num_states, num_actions
        admitted = np.ones((G, S, A, S, 2), dtype=np.bool_)
        for name, table, shape in (
            ("successors", structure.successors, (G, S, A, S)),
            ("zero_rewards", structure.zero_rewards, (G, S, A)),
        ):
            if table is not None and table.shape != shape:
                raise ValueError(f"{name} have shape {table.shape}; expected {shape}")
        if structure.successors is not None:
            if not structure.successors.any(axis=-1).all():
                raise ValueError("successors leave some cell without any; every cell needs at least one")
            admitted &= structure.successors[..., None]
        if not pooled or horizon == 1:
            admitted[-1] = False
            admitted[-1, :, :, 0] = True
        if structure.zero_rewards is not None:
            admitted[structure.zero_rewards, :, 1] = False
        rows = admitted.reshape(G * S * A, 2 * S)
        has_start = structure.initial is None
        if has_start:
            start = np.zeros((1, S, 2), dtype=np.bool_)
            start[..., 0] = True
            rows = np.concatenate([rows, start.reshape(1, 2 * S)])
        return cls(S, A, horizon, G, frozen(rows, np.bool_), has_start)

    @property
    def num_cells(self) -> int:
        """Cells (g,s,a), the start not counted."""
        return self.stages * self.num_states * self.num_actions

    @property
    def num_rows(self) -> int:
        return int(self.admitted.shape[0])

    @property
    def last_successor(self) -> bool:
        """Whether reports on the last step carry its successor: where it has no cells of its own."""
        return self.stages == 1 and self.horizon > 1

    @cached_property
    def sizes(self) -> Ints:
        """Sub-cells of every cell."""
        return frozen(self.admitted.sum(axis=1), np.int64)

    @cached_property
    def restricted(self) -> bool:
        """Whether some successor of some cell has been declared impossible."""
        pairs = np.asarray(self.admitted[: self.num_cells].reshape(-1, self.num_states, 2).any(axis=2))
        inner = pairs if self.last_successor else pairs[: -self.num_states * self.num_actions]
        return not bool(inner.all())


@dataclass(frozen=True, eq=False)
class Targets:
    """The cells on which a report is wanted: each user reports her first visit to one of them, or nothing.

    Where `after` is given, a user follows it from the step after her last report on. When that is, is settled by her
    own episode and this announcement.
    """

    cells: Mask  # (C,)
    after: Floats | None = None  # (H, S, A)
    reports: int = 1  # most reports of one user
    stages: int = 1  # steps with cells of their own; one more cell is the start

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", frozen(self.cells, np.bool_))
        if self.after is not None:
            object.__setattr__(self, "after", frozen(self.after))

    def steps(self, num_states: int, num_actions: int) -> Mask:
        """(G, S, A): the wanted cells without the start."""
        size = self.stages * num_states * num_actions
        return self.cells[:size].reshape(self.stages, num_states, num_actions)

    def left(self, num_states: int, num_actions: int) -> int:
        """Reports that a user still has before her first step: the start may have taken one."""
        size = self.stages * num_states * num_actions
        return self.reports - int(self.cells.size > size and bool(self.cells[size]))

    @cached_property
    def rows(self) -> Ints:
        """The wanted cells, in order."""
        return np.flatnonzero(self.cells)

    def version(self, policy: Floats) -> str:
        """Names this target set together with the policies it was announced with."""
        digest = hashlib.sha256(np.packbits(self.cells).tobytes())
        digest.update(np.ascontiguousarray(policy, dtype=np.float64).tobytes())
        if self.after is not None:
            digest.update(self.after.tobytes())
        return digest.hexdigest()


class ReportNoise(Protocol):
    """How noisy a released sub-cell will be: a function of public numbers, so that epochs can be sized with it."""

    def variance(self, users: int, items: int) -> float:
        """Of one sub-cell after an epoch of `users`, when a report is one of `items` sub-cells or nothing."""
        ...


@dataclass(frozen=True)
class ConstantNoise:
    """The curator adds one noise per sub-cell, whatever the length of the epoch."""

    each: float

    def variance(self, users: int, items: int) -> float:
        return self.each


@dataclass(frozen=True)
class UserNoise:
    """Every user adds noise: ν·n, ν = min{4e^ε/(e^ε−1)², (D−2+e^ε)/(e^ε−1)²}, D = items and "none"."""

    epsilon: float

    def unary(self, items: int) -> bool:
        """Whether optimised unary encoding has the smaller variance (else randomised response over D items)."""
        return math.isfinite(self.epsilon) and items + 1 >= 3.0 * math.exp(min(self.epsilon, 700.0)) + 2.0

    def per_user(self, items: int) -> float:
        if self.epsilon > 300.0:
            return 0.0
        ratio = math.exp(self.epsilon)
        excess = math.expm1(self.epsilon) ** 2
        return (4.0 * ratio if self.unary(items) else items - 1.0 + ratio) / excess

    def variance(self, users: int, items: int) -> float:
        return self.per_user(items) * users


@dataclass(frozen=True, eq=False)
class PrivateReports:
    """The noisy histogram of one epoch over the sub-cells of its targets, and what was asked in public.

    Unlike sums of all users it holds the latest epoch only: learners add epochs up as they see fit, which is
    post-processing. Before the first epoch there are no targets and no users.
    """

    alphabet: Alphabet
    histogram: Floats  # (targets, 2S); sub-cells that do not exist are 0
    targets: Targets | None
    users: int  # in this epoch
    num_episodes: int  # users so far
    variance: float  # of the noise on every sub-cell
    noise: ReportNoise
    reports: int = 1  # most reports of one user
    beta: float = field(default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "histogram", frozen(self.histogram))

    @property
    def horizon(self) -> int:
        return self.alphabet.horizon

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.alphabet.horizon, self.alphabet.num_states, self.alphabet.num_actions
