"""Public instructions to reporting users, and what comes back: the vocabulary both sides of the wall share.

A *cell* is (s,a) when steps are pooled, (h,s,a) when they are staged, and, where the initial distribution is not
public, one more cell for the start. A report on a cell is one of its *sub-cells*,
(successor, reward bit): an item (`Items`). Where successors are announced in classes it is (class, reward bit), and
its column is that of a successor with the number of the class.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from discreet.mdp import Floats, Ints, frozen
from discreet.problem import Mask
from discreet.releases.items import Items


@dataclass(frozen=True, eq=False)
class Targets:
    """The cells on which a report is wanted: each user reports her first visit to one of them, or nothing.

    Where `after` is given, a user follows it from the step after her last report on. When that is, is settled by her
    own episode and this announcement. Where `classes` are given, her report counts for the class of its successor.
    """

    cells: Mask  # (C,)
    after: Floats | None = None  # (H, S, A)
    reports: int = 1  # most reports of one user
    stages: int = 1  # steps with cells of their own; one more cell is the start
    classes: Ints | None = None  # (S,): of every successor, from 0 on; None: each by itself

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", frozen(self.cells, np.bool_))
        if self.classes is not None:
            object.__setattr__(self, "classes", frozen(self.classes, np.int64))
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
        if self.classes is not None:
            digest.update(b"classes" + self.classes.tobytes())
        return digest.hexdigest()

    def sub_cells(self, items: Ints, num_states: int) -> Ints:
        """The sub-cell for which each item, row·2S + 2·s' + bit, counts: the same, or that of the class of s'."""
        if self.classes is None:
            return items
        columns = 2 * num_states
        rows, column = items // columns, items % columns
        return np.asarray(rows * columns + 2 * self.classes[column // 2] + column % 2)


class ReportNoise(Protocol):
    """How noisy a released sub-cell will be: a function of public numbers, so that epochs can be sized with it."""

    @property
    def draws(self) -> float:
        """Laplace draws that it is the sum of; infinite where many people add to it, so that it is about normal."""
        ...

    def variance(self, users: int, items: int) -> float:
        """Of one sub-cell after an epoch of `users`, when a report is one of `items` sub-cells or nothing."""
        ...


@dataclass(frozen=True)
class ConstantNoise:
    """The curator adds one noise per sub-cell, whatever the length of the epoch."""

    each: float
    draws: float = 1.0

    def variance(self, users: int, items: int) -> float:
        return self.each


@dataclass(frozen=True)
class UserNoise:
    """Every user adds noise: ν·n, ν = min{4e^ε/(e^ε−1)², (D−2+e^ε)/(e^ε−1)²}, D = items and "none"."""

    epsilon: float
    draws: ClassVar[float] = math.inf

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

    alphabet: Items
    histogram: Floats  # (targets, 2S); sub-cells that do not exist, or are in no class, are 0
    targets: Targets | None
    users: int  # in this epoch
    num_episodes: int  # users so far
    variance: float  # of the noise on every sub-cell
    noise: ReportNoise
    reports: int = 1  # most reports of one user
    beta: float = field(default=0.0)
    takes_classes: bool = False  # whether targets may be announced with classes of successors

    def __post_init__(self) -> None:
        object.__setattr__(self, "histogram", frozen(self.histogram))

    @property
    def horizon(self) -> int:
        return self.alphabet.horizon

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.alphabet.shape
