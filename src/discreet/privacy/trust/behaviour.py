"""What people do where: a tree of noisy comparisons, noisy numbers of actions in its leaves. Proof: behaviour.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from discreet.mdp import Ints
from discreet.privacy.accounting import (
    LedgerEntry,
    Mechanism,
    Neighbours,
    gaussian_sigma,
    laplace_scale,
)
from discreet.privacy.families import entry_of, samplable
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.trust.noisy_max import noisy_max, noisy_max_entry, noisy_max_scale
from discreet.releases.trees import Bins, ColumnTree, PrivateTree, alone, to_the_right

SPLITS, LEAVES = "splits", "leaf actions"
#: Bins (n, columns) and actions (n,) of all steps, some at a time; gone through again and again.
Steps = Callable[[], Iterable[tuple[Bins, Ints]]]


@dataclass(frozen=True)
class BehaviourTree:
    """Splits that tell apart what people do, level by level, each taken by noisy max over public thresholds.

    A split scores Σ over its two sides of the steps with the commonest action there, in whole steps. A person has at
    most m·H steps, so the scores of one level move against each other by at most 2·m·H in all its nodes together.
    `epsilon` is what one level costs, `leaves` what the noisy counts cost (ε with Laplace noise, ρ with Gaussian).

    Guarantee: depth·ε and the cost of the counts, behaviour.md.   Source: ours, scores as in [FS10].
    """

    depth: int
    horizon: int
    epsilon: float  # per level
    leaves: float
    noise: Mechanism = "laplace"
    neighbours: Neighbours = "replace"
    episodes_per_user: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= 10:
            raise ValueError(f"depth is {self.depth}; it must lie in 1..10")

    @property
    def sides(self) -> int:
        """How often a person is moved: replaced people leave and come."""
        return 2 if self.neighbours == "replace" else 1

    @property
    def split_scale(self) -> float:
        return noisy_max_scale(SPLITS, self.sides * self.horizon * self.episodes_per_user, self.epsilon)

    @property
    def leaf_scale(self) -> float:
        reach = self.horizon * self.episodes_per_user
        if not math.isfinite(self.leaves):
            return 0.0
        if self.noise == "laplace":
            return samplable(LEAVES, laplace_scale(self.sides * reach, self.leaves))
        return samplable(LEAVES, gaussian_sigma(math.sqrt(self.sides) * reach, self.leaves))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Of a person with all her episodes."""
        reach = self.horizon * self.episodes_per_user
        each = self.sides * reach if self.noise == "laplace" else math.sqrt(self.sides) * reach
        return (
            noisy_max_entry(SPLITS, self.sides * reach, self.split_scale, self.depth),
            entry_of(LEAVES, self.noise, each, self.leaf_scale, 1),
        )

    def release(
        self, bins: Bins, action: Ints, num_actions: int, candidates: tuple[Ints, Ints], noise: NoiseSource
    ) -> PrivateTree:
        """From the bins (N, columns) and actions of all steps; `candidates`: public (columns, thresholds) of trees.

        All comparisons are over the candidates, whatever bins occur.
        """
        return self.release_of(lambda: [(bins, action)], num_actions, candidates, noise)

    def release_of(
        self, steps: Steps, num_actions: int, candidates: tuple[Ints, Ints], noise: NoiseSource
    ) -> PrivateTree:
        """The same of steps that are gone through block by block, once per level."""
        columns, thresholds = (np.asarray(part, dtype=np.int64) for part in candidates)
        splits = np.zeros((2, 2**self.depth - 1), dtype=np.int64)
        for level in range(self.depth):
            here = slice(2**level - 1, 2 ** (level + 1) - 1)
            counts = None
            for bins, action in steps():
                node = _nodes(bins, splits, level)
                found = _counts(bins, action, node, (2**level, num_actions), columns, thresholds)
                counts = found if counts is None else [one + more for one, more in zip(counts, found, strict=True)]
            assert counts is not None
            best = noisy_max(_scores(counts, columns, thresholds), self.split_scale, noise)
            splits[:, here] = columns[best], thresholds[best]
        leaves = np.zeros((2**self.depth, num_actions), dtype=np.int64)
        for bins, action in steps():
            np.add.at(leaves, (_nodes(bins, splits, self.depth), action), 1)
        sample = noise.laplace if self.noise == "laplace" else noise.gaussian
        leaves += sample(self.leaf_scale, leaves.shape)
        return PrivateTree(ColumnTree(*splits), leaves.astype(np.float64), self.deviation)

    @property
    def deviation(self) -> float:
        scale = self.leaf_scale
        if scale == 0.0:
            return 0.0
        law = DiscreteLaplace(scale) if self.noise == "laplace" else DiscreteGaussian(scale)
        return math.sqrt(law.variance)


def split_scores(bins: Bins, action: Ints, node: Ints, nodes: int, columns: Ints, thresholds: Ints) -> Ints:
    """(nodes, splits): steps that have the commonest action of their side."""
    sizes = nodes, int(action.max(initial=0)) + 1
    return _scores(_counts(bins, action, node, sizes, columns, thresholds), columns, thresholds)


def _nodes(bins: Bins, splits: Ints, level: int) -> Ints:
    """The node of every step in a level of the tree."""
    node = np.zeros(len(bins), dtype=np.int64)
    for above in range(level):
        where = 2**above - 1 + node
        node = 2 * node + to_the_right(bins[np.arange(len(bins)), splits[0, where]], splits[1, where])
    return node


def _counts(
    bins: Bins, action: Ints, node: Ints, sizes: tuple[int, int], columns: Ints, thresholds: Ints
) -> list[Ints]:
    """Per column, steps by (node, bin, action): bins above all that splits ask about are one."""
    nodes, actions = sizes
    found = []
    for c in range(bins.shape[1]):
        width = int(_asked(thresholds[columns == c]).max(initial=0)) + 2
        flat = (node * width + np.minimum(bins[:, c], width - 1)) * actions + action
        found.append(np.bincount(flat, minlength=nodes * width * actions).reshape(nodes, width, actions))
    return found


def _asked(thresholds: Ints) -> Ints:
    """The bins that splits ask about."""
    return np.where(thresholds < 0, alone(thresholds), thresholds)


def _scores(counts: Sequence[Ints], columns: Ints, thresholds: Ints) -> Ints:
    scores = np.zeros((len(counts[0]), columns.size), dtype=np.int64)
    for c, steps in enumerate(counts):
        mine = columns == c
        asked = thresholds[mine]
        below, bin_of = np.cumsum(steps, axis=1, dtype=np.int64), _asked(asked)
        side = np.where((asked < 0)[:, None], steps[:, bin_of], below[:, bin_of])
        scores[:, mine] = side.max(axis=2) + (below[:, -1:] - side).max(axis=2)
    return scores
