"""Continual release of counts after every episode: noise on the nodes of a tree over users. Proof: tree.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np

from discreet.mdp import Ints
from discreet.people.counts import LARGEST_SUM, CountSpec
from discreet.privacy.accounting import tree_levels
from discreet.privacy.families import Blocks, Family, check_choice, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import CountPrivatizer, CountStream, natural
from discreet.privacy.sums.sums import Sums
from discreet.releases.counts import PerTable

Variant = Literal["binary", "honaker", "smooth"]

#: Honaker estimates are integers in units of 2⁻⁸, mixed with weights in units of 2⁻¹²; see tree.md.
FRACTION_BITS = 8
WEIGHT_BITS = 12
#: Blocks of noise that may be drawn at once.
DRAWN_AHEAD = 16


@dataclass(frozen=True)
class Tree(CountPrivatizer):
    """Prefix sums after every episode, each the sum of few noisy nodes.

    A user enters at most L nodes, L = T.bit_length() for T released prefixes, so a node carries Laplace noise of
    scale L·Δ₁/ε_f or Gaussian noise of variance L·Δ₂²/(2ρ_f), drawn once and kept while the node is in use.
    `variant`: "binary"; "honaker" (averages a node with its children); "smooth" (labels with a fixed number of ones,
    so that a user enters fewer nodes). `constant_noise` pads every binary prefix to L noises.
    `publish_final` also covers a release after the last episode (T = K instead of K−1).
    `calibration="paper"` uses the printed H·log₂K/ε_f and states what that truly guarantees.

    Guarantee: joint DP with the stated budget per user, tree.md.   Width: exact tails, all releases together.
    Source: [QW23] §5.1, [BZZDTCC24] Alg. 4; Honaker 2015; Andersson & Pagh 2023.
    Differs: 1. sensitivity 2H under replace, not H; 2. the integer L, not log K; 3. integer noise.
    Cost: O(L) arrays of the counters; one draw per counter and episode, amortised.
    """

    variant: Variant = "binary"
    constant_noise: bool = False
    publish_final: bool = False
    calibration: Literal["true", "paper"] = "true"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("variant", self.variant, "binary", "honaker", "smooth")
        check_choice("calibration", self.calibration, "true", "paper")
        if self.constant_noise and self.variant != "binary":
            raise ValueError("constant_noise pads the binary variant; the smooth one has constant noise by itself")
        if self.calibration == "paper" and (self.mechanism, self.variant) != ("laplace", "binary"):
            raise ValueError(
                "the papers print a scale for the binary tree with Laplace noise only; state epsilon alone"
            )

    def prefixes(self, num_episodes: int) -> int:
        """T: how many prefixes may be released."""
        return num_episodes if self.publish_final else num_episodes - 1

    def layout(self, num_episodes: int) -> Layout:
        T = max(self.prefixes(num_episodes), 1)
        if self.variant == "smooth":
            return smooth_layout(T, self.mechanism == "gaussian")
        return Layout(T, T.bit_length(), None, tree_levels(T))

    def families(self, spec: CountSpec, num_episodes: int) -> tuple[Family, ...]:
        """The noise of every node, per table."""
        factor = math.log2(num_episodes) if self.calibration == "paper" else None
        return self._calibrated(spec, uses=self.layout(num_episodes).nodes_per_user, factor=factor)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> TreeStream:
        return TreeStream(self, spec, num_episodes, noise)


@dataclass(frozen=True)
class Layout:
    """Labels of the prefixes 0..T: `bits` long; `ones` ones each (None: prefix t has the label t).

    Prefix t is the disjoint union, over the set bits i of its label, of node (i, label >> (i+1)); user t enters the
    nodes at the zero bits of label t−1, at most `nodes_per_user` of them.
    """

    num_prefixes: int
    bits: int
    ones: int | None
    nodes_per_user: int

    def label(self, prefix: int) -> int:
        """The label of a prefix, increasing in it: the t-th number with so many ones."""
        if self.ones is None:
            return prefix
        rank, left, label = prefix, self.ones, 0
        for bit in range(self.bits - 1, -1, -1):
            below = math.comb(bit, left)  # labels with a 0 here
            if left and rank >= below:
                rank, left, label = rank - below, left - 1, label | 1 << bit
        return label

    def noisy_bits(self, label: int) -> int:
        """The set bits whose node holds users: with a fixed number of ones, trailing ones stand for empty nodes."""
        return label if self.ones is None else label & (label + 1)

    def histogram(self) -> dict[int, int]:
        """Number of released prefixes (1..T) by the number of noisy nodes in them."""
        T, o = self.num_prefixes, self.ones
        if o is None:
            tally = {j: count_below(T + 1, j) for j in range(1, self.bits + 1)}
        else:
            last = self.label(T)
            tally = {o - a: count_below((last >> (a + 1)) + 1, o - a) for a in range(o)}
        return {j: n for j, n in tally.items() if n}


@lru_cache(maxsize=64)
def smooth_layout(num_prefixes: int, gaussian: bool) -> Layout:
    """The labels of n bits with o ones, C(n, o) ≥ T+1, of least standard deviation.

    A user enters z = n−o nodes and a prefix has at most o: the deviation is ∝ z·√o (Laplace), √(z·o) (Gaussian).
    """

    def fewest_ones(zeros: int) -> int:
        low, high = 1, 1
        while math.comb(zeros + high, zeros) <= num_prefixes:
            low, high = high, 2 * high
        while low < high:
            middle = (low + high) // 2
            if math.comb(zeros + middle, zeros) <= num_prefixes:
                low = middle + 1
            else:
                high = middle
        return low

    shapes = [(zeros, fewest_ones(zeros)) for zeros in range(1, num_prefixes.bit_length() + 1)]
    zeros, ones = min(shapes, key=lambda shape: shape[0] * shape[1] * (1 if gaussian else shape[0]))
    return Layout(num_prefixes, zeros + ones, ones, zeros)


def count_below(limit: int, ones: int) -> int:
    """How many of 0..limit−1 have exactly so many ones: digit by digit."""
    total, seen = 0, 0
    for bit in range(limit.bit_length() - 1, -1, -1):
        if limit >> bit & 1:
            total += math.comb(bit, ones - seen) if ones >= seen else 0
            seen += 1
    return total


def set_bits(label: int) -> Iterator[int]:
    while label:
        low = label & -label
        yield low.bit_length() - 1
        label ^= low


def mixed(level: int, own: Ints, children: Ints) -> Ints:
    """The estimate of a node from its own noisy value and the sum of its children's estimates.

    w·own + (1−w)·children with w = 2ⁱ/(2ⁱ⁺¹−1), the weights of least variance, in units of 2⁻¹², rounded: integer
    arithmetic, so that the result is a function of the noisy values alone (tree.md).
    """
    weight = honaker_weight(level)
    whole = 1 << WEIGHT_BITS
    return (weight * own + (whole - weight) * children + whole // 2) >> WEIGHT_BITS


def honaker_weight(level: int) -> int:
    return round((1 << level + WEIGHT_BITS) / ((1 << level + 1) - 1))


def node_variances(levels: int) -> list[float]:
    """Variance of a Honaker estimate at each level, in units of one noise: v_i = w² + 2(1−w)²·v_{i−1}, v_0 = 1."""
    variances = [1.0]
    for level in range(1, levels):
        w = honaker_weight(level) / 2**WEIGHT_BITS
        variances.append(w * w + 2.0 * (1.0 - w) ** 2 * variances[-1])
    return variances


def deviations(families: Sequence[Family], variance: float) -> PerTable:
    """Standard deviations of so many noises, in natural units."""
    return natural(families, [math.sqrt(variance) * family.deviation for family in families])


def check_honaker_range(spec: CountSpec, num_episodes: int, families: Sequence[Family]) -> None:
    """Fixed-point sums must fit in 64 bits, and so must weighted noise up to 512 times its scale."""
    sums = num_episodes * spec.horizon * spec.reward_units << FRACTION_BITS
    noise = max(family.scale for family in families) * 512.0 * 2.0 ** (FRACTION_BITS + WEIGHT_BITS)
    if sums >= LARGEST_SUM or noise >= LARGEST_SUM:
        raise ValueError(
            f"the honaker variant needs {FRACTION_BITS + WEIGHT_BITS} spare bits, and a reward grid of {spec.grid:g} "
            "leaves fewer; use a coarser grid or another variant"
        )


def prefix_width(family: Family, layout: Layout, beta: float) -> float:
    """Width of one table over all counters and all prefixes 1..T, each the sum of its nodes, in integer units."""
    histogram = layout.histogram()
    return union_width(family, list(histogram), [float(n) for n in histogram.values()], beta)


@lru_cache(maxsize=256)
def honaker_width(family: Family, num_prefixes: int, beta: float) -> float:
    """min_s [ln(m·Σ_{t≤T} 2·E e^{s·noise_t}) − ln β]/s, plus what rounding of the estimates can add.

    ln E e^{s·noise} of a level-i node is Λ_i(s) = λ(w_i·s) + 2Λ_{i−1}((1−w_i)·s), and a prefix adds the levels of its
    set bits, so that the sum over all prefixes is a product over bits, taken digit by digit.
    """
    if family.scale == 0.0:
        return 0.0
    T, levels, b = num_prefixes, num_prefixes.bit_length(), family.scale
    half = math.sinh(0.5 / b)
    weights = [honaker_weight(level) / 2**WEIGHT_BITS for level in range(levels)]

    def one(s: float) -> float:  # λ(s), of one noise; the discrete Gaussian is sub-Gaussian with its own σ [CKS20]
        return (
            -math.log1p(-((math.sinh(s / 2.0) / half) ** 2)) if family.mechanism == "laplace" else 0.5 * (s * b) ** 2
        )

    def node(level: int, s: float) -> float:
        if level == 0:
            return one(s)
        return one(weights[level] * s) + 2.0 * node(level - 1, (1.0 - weights[level]) * s)

    def exponent(s: float) -> float:
        moments = [node(level, s) for level in range(levels)]
        below, total, above = [0.0], -math.inf, 0.0
        for moment in moments:
            below.append(below[-1] + float(np.logaddexp(0.0, moment)))
        for bit in range((T + 1).bit_length() - 1, -1, -1):
            if (T + 1) >> bit & 1:
                total = float(np.logaddexp(total, above + below[bit]))
                above += moments[bit] if bit < levels else 0.0
        return (total + math.log(2.0 * family.size / beta)) / s

    largest = 0.999 / b if family.mechanism == "laplace" else 60.0 / b
    best = min(exponent(s) for s in np.geomspace(largest / 1e4, largest, 200).tolist())
    steps = sum(level + 1 for level in range(levels))  # roundings, each of half a unit, shrinking on the way up
    return best * (1.0 + 1e-9) + 0.5 * steps * 2.0**-FRACTION_BITS


class TreeSums(Sums):
    """Nodes in use, by the bit of the label they stand for, and the sum of their noises; leaves are blocks.

    `constant` pads every prefix to the same number of noises; `honaker` averages a node with its children.
    Source: [BZZDTCC24] Alg. 4.   Differs: the sum covers the blocks closed so far, exactly.
    """

    state = (*Sums.state, "nodes", "_total")
    forgets = False

    def __init__(self, noise: Blocks, layout: Layout, constant: bool = False, honaker: bool = False) -> None:
        super().__init__(noise)
        self.nodes: dict[int, Ints] = {}
        self._total: Ints = np.zeros(noise.size, dtype=np.int64)
        self._layout, self._constant = layout, constant
        self._variances = node_variances(layout.bits) if honaker else None

    def close(self, raw: Ints, blocks: int = 1) -> None:
        old, new = self.blocks, self.blocks + blocks
        if new > self._layout.num_prefixes:
            raise ValueError(f"a tree over {self._layout.num_prefixes} blocks has no room for another one")
        self.blocks = new
        if self._variances is not None:
            for covered in range(old, new):
                self._carry(covered)
            self.value = ((raw << FRACTION_BITS) + self._total).astype(np.float64) * 2.0**-FRACTION_BITS
            return
        self._move(self._layout.label(old), self._layout.label(new))
        self.value = raw + self._total
        for _ in range(self._layout.bits - new.bit_count() if self._constant else 0):
            self.value += self.noise.draw()

    def _move(self, old: int, new: int) -> None:
        """Exchange the nodes below the highest bit in which two labels differ; those above hold the same users."""
        changed = (1 << (old ^ new).bit_length()) - 1
        for bit in set_bits(self._layout.noisy_bits(old) & changed):
            self._total -= self.nodes.pop(bit)
        for bit in set_bits(self._layout.noisy_bits(new) & changed):
            self.nodes[bit] = block = self.noise.draw()
            self._total += block

    def _carry(self, covered: int) -> None:
        """One more user: like adding one to a binary number, where each carry completes a node of the next level."""
        level, estimate = 0, self.noise.draw() << FRACTION_BITS
        while covered >> level & 1:
            left = self.nodes.pop(level)
            self._total -= left
            level += 1
            estimate = mixed(level, self.noise.draw() << FRACTION_BITS, left + estimate)
        self.nodes[level] = estimate
        self._total += estimate

    @property
    def variance(self) -> float:
        """Of the noise in `value`, in units of one noise."""
        if self._variances is not None:
            return sum(self._variances[bit] for bit in self.nodes)
        return float(self._layout.bits if self._constant else len(self.nodes))

    @property
    def spread(self) -> float:
        return math.sqrt(self.variance)


class TreeStream(CountStream):
    _mechanism: TreeSums

    def __init__(self, tree: Tree, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        families = tree.families(spec, num_episodes)
        self._limit = tree.prefixes(num_episodes)
        self._layout = tree.layout(num_episodes)
        honaker = tree.variant == "honaker"
        drawn = Blocks(families, noise, min(DRAWN_AHEAD, num_episodes))
        mechanism = TreeSums(drawn, self._layout, tree.constant_noise, honaker)
        printed = tree.calibration == "paper"
        super().__init__(tree, spec, num_episodes, noise, families, mechanism, printed=printed)
        if honaker:
            check_honaker_range(spec, num_episodes, families)
        self._tree, self._deviation = tree, lru_cache(maxsize=128)(partial(deviations, families))
        self._fixed = self._bounds(num_episodes)

    def _advance(self) -> None:
        if self._crowd.size > self._limit:
            raise ValueError(
                f"all {self._crowd.limit} declared episodes have been added, and the budget covers releases before "
                "the last of them only; open the stream with publish_final=True, or declare more episodes"
            )
        super()._advance()

    def _width(self, family: Family, beta: float) -> float:
        layout = self._layout
        if self._tree.variant == "honaker":
            return honaker_width(family, layout.num_prefixes, beta)
        if self._tree.constant_noise:
            return union_width(family, [layout.bits], [layout.num_prefixes + 1.0], beta)
        return prefix_width(family, layout, beta)

    def _widths(self) -> PerTable:
        return self._fixed

    def _deviations(self) -> PerTable:
        return self._deviation(self._mechanism.variance)
