"""Optimisation over occupancy measures of MDPs whose kernel is only known to lie in boxes or balls, certified.

Three problems, all post-processing of releases: entropy-regularised leaders (`entropy_step`), log-barrier mirror
steps (`barrier_step`) and the largest probability of reaching a state (`upper_occupancy`). Every solution carries its
own proof: how far the measure violates the polytope, and its duality gap. A step that cannot be solved to
`GAP_TOLERANCE` is never passed off as solved: the previous policy is returned, and `method` says "unsolved".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import barrier, entropy
from discreet.kernels import occupancy as kernel
from discreet.mdp import Floats, Ints, distributions, frozen, layer_mask

#: A solution is accepted with a gap of at most this times (1 + |objective|) …
GAP_TOLERANCE = 1e-7
#: … and constraints violated by at most this.
VIOLATION_TOLERANCE = 1e-10

NEWTON_STEPS = 120
GRADIENT_TOLERANCE = 1e-10
DECREMENT_TOLERANCE = 1e-13
COLD_SWEEPS = 3
FALLBACK_SWEEPS = 2000
#: Rows of boxes must leave room for a distribution up to rounding.
ROW_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Layers:
    """Which states can occur at each step, in public, and where episodes start.

    Tables over (H, S, ...) are packed to the occurring states (H, X, ...), X the largest layer.
    """

    states: tuple[tuple[int, ...], ...]
    initial: Floats  # (S,)
    num_actions: int

    def __post_init__(self) -> None:
        initial = distributions("initial", self.initial)
        S = len(initial)
        states = tuple(tuple(int(s) for s in layer) for layer in self.states)
        for h, layer in enumerate(states):
            if not layer or len(set(layer)) != len(layer) or min(layer) < 0 or max(layer) >= S:
                raise ValueError(f"layer {h} is {layer}; expected distinct states in 0..{S - 1}, at least one")
        if not states or self.num_actions < 1:
            raise ValueError("there must be at least one layer and one action")
        if set(np.flatnonzero(initial)) != set(states[0]):
            raise ValueError(f"layer 0 is {states[0]}; it must be exactly the states in which an episode may start")
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "initial", initial)

    @classmethod
    def full(cls, horizon: int, initial: Floats, num_actions: int) -> Layers:
        """Every state may occur at every step but the first: nothing is known about reachability."""
        everyone = tuple(range(len(initial)))
        start = tuple(int(s) for s in np.flatnonzero(initial))
        return cls((start, *(everyone for _ in range(horizon - 1))), initial, num_actions)

    @property
    def horizon(self) -> int:
        return len(self.states)

    @property
    def num_states(self) -> int:
        return len(self.initial)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, X, A) of packed tables."""
        return self.horizon, max(len(layer) for layer in self.states), self.num_actions

    @property
    def num_cells(self) -> int:
        """Number of (step, state, action) cells that can occur: X·A of the papers."""
        return sum(len(layer) for layer in self.states) * self.num_actions

    @cached_property
    def sizes(self) -> Ints:
        """Numbers of states per layer, and one common end."""
        return frozen([*(len(layer) for layer in self.states), 1], np.int64)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """(H, S): whether a state can occur at a step."""
        return layer_mask(self.states, self.num_states)

    @cached_property
    def mask_packed(self) -> NDArray[np.bool_]:
        """(H, X): which packed entries are states."""
        return np.asarray(np.arange(self.shape[1])[None] < self.sizes[:-1, None])

    @cached_property
    def possible(self) -> Floats:
        """(H, X, A, X): 1 for triples between consecutive layers, 0 elsewhere."""
        H, X, A = self.shape
        table = np.zeros((H, X, A, X))
        for h in range(H):
            table[h, : self.sizes[h], :, : self.sizes[h + 1]] = 1.0
        return frozen(table)

    @cached_property
    def start(self) -> Floats:
        """(X,): the initial distribution, packed."""
        packed = np.zeros(self.shape[1])
        packed[: len(self.states[0])] = self.initial[list(self.states[0])]
        return frozen(packed)

    def pack(self, table: Floats) -> Floats:
        """(H, S, A) → (H, X, A), 0 where there is no state."""
        if table.shape != (self.horizon, self.num_states, self.num_actions):
            expected = (self.horizon, self.num_states, self.num_actions)
            raise ValueError(f"a table of shape {table.shape} was given; expected (H, S, A) = {expected}")
        packed = np.zeros(self.shape)
        for h, layer in enumerate(self.states):
            packed[h, : len(layer)] = table[h, list(layer)]
        return packed

    def unpack(self, packed: Floats, elsewhere: float = 0.0) -> Floats:
        """(H, X, ...) → (H, S, ...), with `elsewhere` at states that cannot occur."""
        table = np.full((self.horizon, self.num_states, *packed.shape[2:]), elsewhere)
        for h, layer in enumerate(self.states):
            table[h, list(layer)] = packed[h, : len(layer)]
        return table

    def pack_rows(self, rows: Floats) -> Floats:
        """(H, S, A, S) → (H, X, A, X); all rows of the last step lead to the common end."""
        H, X, A = self.shape
        packed = np.zeros((H, X, A, X))
        for h in range(H - 1):
            here, there = list(self.states[h]), list(self.states[h + 1])
            packed[h, : len(here), :, : len(there)] = rows[h][here][:, :, there]
        packed[H - 1, : len(self.states[H - 1]), :, 0] = 1.0
        return packed


@dataclass(frozen=True, eq=False)
class KernelBoxes:
    """All kernels with lower ≤ P(y|h,x,a) ≤ upper, packed. Every row is checked to hold a distribution."""

    layers: Layers
    lower: Floats  # (H, X, A, X)
    upper: Floats

    def __post_init__(self) -> None:
        H, X, A = self.layers.shape
        sizes = self.layers.sizes
        lower, upper = np.zeros((H, X, A, X)), np.zeros((H, X, A, X))
        if np.shape(self.lower) != lower.shape or np.shape(self.upper) != lower.shape:
            raise ValueError(
                f"boxes have shapes {np.shape(self.lower)} and {np.shape(self.upper)}; expected {lower.shape}"
            )
        for h in range(H):
            inside = h, slice(0, sizes[h]), slice(None), slice(0, sizes[h + 1])
            lower[inside] = np.clip(np.asarray(self.lower)[inside], 0.0, 1.0)
            upper[inside] = np.clip(np.asarray(self.upper)[inside], 0.0, 1.0)
            sums = lower[inside].sum(axis=-1), upper[inside].sum(axis=-1)
            good = (sums[0] <= 1.0 + ROW_TOLERANCE) & (sums[1] >= 1.0 - ROW_TOLERANCE)
            good &= (lower[inside] <= upper[inside]).all(axis=-1)
            if not good.all():
                x, a = (int(i) for i in np.argwhere(~good)[0])
                raise ValueError(
                    f"the box of step {h}, state {self.layers.states[h][x]}, action {a} holds no distribution "
                    f"(lower bounds sum to {sums[0][x, a]:.6g}, upper bounds to {sums[1][x, a]:.6g})"
                )
        object.__setattr__(self, "lower", frozen(lower))
        object.__setattr__(self, "upper", frozen(upper))

    @classmethod
    def everything(cls, layers: Layers) -> KernelBoxes:
        """No knowledge: every kernel between the layers."""
        return cls(layers, np.zeros_like(layers.possible), layers.possible)

    @classmethod
    def around(cls, layers: Layers, estimate: Floats, width: Floats) -> KernelBoxes:
        """|P − estimate| ≤ width, both (H, S, A, S); estimates are first rescaled to distributions over the layer."""
        rows, widths = layers.pack_rows(estimate), layers.pack_rows(width)
        widths[-1] = 0.0  # the common end
        totals = rows.sum(axis=-1, keepdims=True)
        uniform = layers.possible / layers.sizes[1:].reshape(-1, 1, 1, 1)
        rows = np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), uniform)
        return cls(layers, rows - widths, rows + widths)

    @cached_property
    def reach(self) -> Floats:
        """(H, X, A) of −1: no balls, as the kernel of `entropy_step` is told."""
        return frozen(np.full(self.layers.shape, -1.0))

    def violation(self, measure: Floats) -> float:
        """The largest breach of layer sums, flow, signs and boxes."""
        layers = self.layers
        return float(kernel.violation(measure, self.lower, self.upper, layers.start, layers.sizes))

    @cached_property
    def solvable_by_barrier(self) -> bool:
        """Whether some measure is positive on every possible triple, as the log barrier needs."""
        sizes, lower, upper = self.layers.sizes, self.lower, self.upper
        for h in range(self.layers.horizon):
            inside = h, slice(0, sizes[h]), slice(None), slice(0, sizes[h + 1])
            low, possible = lower[inside], upper[inside] > 0.0
            room = 1.0 - low.sum(axis=-1, keepdims=True)
            if (possible & (low <= 0.0) & (room <= 1e-14)).any() or not possible.any(axis=(0, 1)).all():
                return False
        return True


@dataclass(frozen=True, eq=False)
class KernelBalls:
    """All kernels with ‖P(·|h,x,a) − center‖₁ ≤ reach, packed."""

    layers: Layers
    center: Floats  # (H, X, A, X)
    reach: Floats  # (H, X, A)

    @classmethod
    def around(cls, layers: Layers, estimate: Floats, reach: Floats) -> KernelBalls:
        """From (H, S, A, S) and (H, S, A); rows of zeros become uniform. The last step leads to the common end."""
        boxes = KernelBoxes.around(layers, estimate, np.zeros_like(estimate))
        packed = np.minimum(layers.pack(reach), 2.0)  # no two distributions are further apart
        packed[-1] = 0.0
        return cls(layers, boxes.lower, frozen(packed))

    @property
    def lower(self) -> Floats:
        return self.center

    @property
    def upper(self) -> Floats:
        return self.center

    def violation(self, measure: Floats) -> float:
        """The largest breach of layer sums, flow, signs and balls."""
        free = KernelBoxes.everything(self.layers).violation(measure)
        mass = measure.sum(axis=-1)
        apart = np.abs(measure - self.center * mass[..., None]).sum(axis=-1)
        return max(free, float((apart - self.reach * mass).max()))


KernelSet: TypeAlias = KernelBoxes | KernelBalls


@dataclass(frozen=True, eq=False)
class Solution:
    """A policy, its measure within the boxes, and the certificate of the step that made them."""

    layers: Layers
    policy: Floats  # (H, S, A); uniform at states that cannot occur
    measure: Floats  # (H, X, A, X), packed
    objective: float
    gap: float  # objective − lower bound on the optimum, ≥ 0 up to rounding
    violation: float
    iterations: int
    method: str  # "newton", "restarted", "alternating" or "continuation", or "unsolved": the previous policy
    multipliers: Floats | None = None  # (H+1, X): where the next solve may start

    @property
    def solved(self) -> bool:
        return self.method != "unsolved"

    @cached_property
    def marginals(self) -> Floats:
        """q(h, x, a), packed."""
        return frozen(self.measure.sum(axis=-1))


def uniform_solution(layers: Layers) -> Solution:
    """q = 1/(|X_h|·A·|X_{h+1}|) on later layers and the initial distribution on the first: where learning starts."""
    H, X, A = layers.shape
    rows = layers.possible / layers.sizes[1:].reshape(H, 1, 1, 1)
    policy, measure = np.full((H, X, A), 1.0 / A), np.zeros((H, X, A, X))
    kernel.forward(policy, rows, layers.start, layers.sizes, measure)
    return Solution(layers, layers.unpack(policy, 1.0 / A), frozen(measure), 0.0, 0.0, 0.0, 0, "newton")


def _accepted(objective: float, gap: float, violation: float) -> bool:
    good = abs(gap) <= GAP_TOLERANCE * (1.0 + abs(objective)) and violation <= VIOLATION_TOLERANCE
    return bool(good and np.isfinite(objective))


def _unsolved(boxes: KernelSet, previous: Solution | None) -> Solution:
    kept = previous or uniform_solution(boxes.layers)
    return Solution(boxes.layers, kept.policy, kept.measure, np.nan, np.inf, np.inf, 0, "unsolved", kept.multipliers)


def _row_scores(layers: Layers, scores: Floats) -> Floats:
    """Scores per packed cell, or per triple, as (H, X, A, X)."""
    H, X, A = layers.shape
    if scores.shape == (H, X, A):
        scores = np.broadcast_to(scores[..., None], (H, X, A, X))
    elif scores.shape != (H, X, A, X):
        raise ValueError(f"scores have shape {scores.shape}; expected {(H, X, A)} or {(H, X, A, X)}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not a finite number; every score must be one")
    return np.ascontiguousarray(scores, dtype=np.float64)


def entropy_step(boxes: KernelSet, scores: Floats, previous: Solution | None = None) -> Solution:
    """argmin ⟨−θ, q⟩ + Σ q ln q over the occupancy measures of `boxes`; θ = `scores`, packed.

    θ = −η·L follows the regularised leader, θ = ln q_k − η·ℓ̂ is a mirror step. Tried in this order: Newton's method
    from the multipliers of `previous`; from three sweeps of alternating soft dynamic programming; from many; else the
    previous policy is kept.
    Source: [BZZDTCC24] Algorithm 2, whose dual this reduces to one multiplier per state.
    Cost: O(Σ_h A·X_h·X_{h+1}² + X_h³) per iteration, 3–25 iterations.
    """
    layers, theta = boxes.layers, _row_scores(boxes.layers, scores)
    problem = theta, boxes.lower, boxes.upper, boxes.reach, layers.start, layers.sizes
    H, X, A = layers.shape
    attempts: Sequence[tuple[str, int]] = (("newton", COLD_SWEEPS), ("alternating", FALLBACK_SWEEPS))
    if previous is not None and previous.multipliers is not None:
        attempts = (("newton", 0), ("restarted", COLD_SWEEPS), ("alternating", FALLBACK_SWEEPS))
    for method, sweeps in attempts:
        nu = np.zeros((H + 1, X))
        if sweeps:
            entropy.alternate(*problem, sweeps, 1e-12, nu)
        elif previous is not None and previous.multipliers is not None:
            nu[:] = previous.multipliers
        if not np.isfinite(nu).all():
            continue
        policy, measure = np.zeros((H, X, A)), np.zeros((H, X, A, X))
        steps, objective, gap = entropy.newton(*problem, nu, NEWTON_STEPS, GRADIENT_TOLERANCE, policy, measure)
        breach = boxes.violation(measure)
        if _accepted(objective, gap, breach):
            full = layers.unpack(policy, 1.0 / A)
            return Solution(layers, full, frozen(measure), objective, gap, breach, steps, method, frozen(nu))
    return _unsolved(boxes, previous)


def barrier_step(boxes: KernelBoxes, losses: Floats, previous: Solution) -> Solution:
    """argmin ⟨η·ℓ̂, q⟩ + Σ [ q/q_k − 1 − ln(q/q_k) ] over the occupancy measures of `boxes`; η·ℓ̂ = `losses`, packed.

    q_k is the measure of `previous` and may lie outside the boxes. Losses may be negative. Triples with upper bound 0
    are not part of the problem. Tried in this order: Newton's method on the reduced dual from 0; continuation from no
    losses to all; else the previous policy is kept. The objective is stated for ⟨c, q⟩ − Σ ln q, c = η·ℓ̂ + 1/q_k.
    Source: [BZZDTCC24] Eq. 4.3.   Cost: as `entropy_step`, 3–25 iterations.
    """
    layers, H = boxes.layers, boxes.layers.horizon
    scores = _row_scores(layers, losses)
    _, X, A = layers.shape
    if not boxes.solvable_by_barrier:
        return _unsolved(boxes, previous)
    possible = boxes.upper > 0.0
    if not (previous.measure[possible] > 0.0).all():
        return _unsolved(boxes, previous)
    inverse = np.where(possible, 1.0 / np.where(possible, previous.measure, 1.0), 1.0)
    bounds = boxes.lower, boxes.upper, layers.start, layers.sizes
    for method, path in (("newton", (1.0,)), ("continuation", (0.0, 0.01, 0.1, 0.3, 0.6, 1.0))):
        nu = np.zeros((H + 1, X))
        total = 0
        policy, measure = np.zeros((H, X, A)), np.zeros((H, X, A, X))
        objective, gap = np.inf, np.inf
        for share in path:
            cost = share * scores + inverse
            steps, objective, gap = barrier.newton(
                cost, *bounds, nu, NEWTON_STEPS, DECREMENT_TOLERANCE, policy, measure
            )
            total += steps
        breach = boxes.violation(measure)
        if _accepted(objective, gap, breach):
            full = layers.unpack(policy, 1.0 / A)
            return Solution(layers, full, frozen(measure), objective, gap, breach, total, method, frozen(nu))
    return _unsolved(boxes, previous)


def upper_occupancy(boxes: KernelBoxes, policy: Floats) -> Floats:
    """(H, X), packed: the largest probability, over kernels in the boxes, that the policy is in a state at a step.

    Source: [BZZDTCC24] Eq. 4.2, COMP-UOB of [JJLSY20] with one sort per target and layer.
    Cost: O(Σ_k X_k·Σ_{h<k} A·X_h·X_{h+1}).
    """
    layers = boxes.layers
    bound = np.zeros(layers.shape[:2])
    kernel.upper_occupancy(layers.pack(policy), boxes.lower, boxes.upper, layers.start, layers.sizes, bound)
    return bound
