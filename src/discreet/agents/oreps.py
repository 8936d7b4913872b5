"""Learners for adversarial losses: regularised leaders and mirror descent over occupancy measures.

All of them see `PrivateLosses` only and are pure: the same release and previous plan give the same plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from discreet.kernels.entropy import mirror_scores
from discreet.kernels.projection import project_counts
from discreet.mdp import Floats
from discreet.occupancies import (
    KernelBalls,
    KernelBoxes,
    KernelSet,
    Layers,
    Solution,
    barrier_step,
    entropy_step,
    uniform_solution,
    upper_occupancy,
)
from discreet.planning import Plan, greedy_plan
from discreet.problem import LossEstimator
from discreet.releases.counts import Model, PrivateLosses


def _no_values() -> Floats:
    """Losses are weighed by occupancies."""
    return np.empty((0, 0))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OccupancyPlan(Plan):
    """A policy, the boxes and the solution it came from, and how the solver has fared so far."""

    value: Floats = field(default_factory=_no_values)
    quality: Floats = field(default_factory=_no_values)
    boxes: KernelSet
    solution: Solution
    counted: int = 0  # users behind the boxes
    visits: Floats | None = None  # (H, S, A) behind the boxes, where they wait for visits to double
    num_blocks: int = 0  # blocks of losses behind the policy
    solves: int = 0
    unsolved: int = 0
    largest_gap: float = 0.0  # relative to 1 + |objective|
    largest_violation: float = 0.0

    @property
    def diagnostics(self) -> dict[str, float]:
        names = ("solves", "unsolved", "largest_gap", "largest_violation")
        return {name: getattr(self, name) for name in names}

    def followed(self, boxes: KernelSet, solution: Solution, release: PrivateLosses) -> OccupancyPlan:
        """The next plan; an unsolved step keeps the policy and is counted."""
        gap, violation = self.largest_gap, self.largest_violation
        if solution.solved:
            gap = max(gap, abs(solution.gap) / (1.0 + abs(solution.objective)))
            violation = max(violation, solution.violation)
        return OccupancyPlan(
            policy=solution.policy,
            num_episodes=release.num_episodes,
            boxes=boxes,
            solution=solution,
            counted=release.counted,
            visits=self.visits if boxes is self.boxes else release.visits,
            num_blocks=release.num_blocks,
            solves=self.solves + 1,
            unsolved=self.unsolved + (not solution.solved),
            largest_gap=gap,
            largest_violation=violation,
        )


@dataclass(frozen=True)
class ConfidenceBoxes:
    """Boxes around P̃ that hold the kernel, from noisy counts.

    Practical: half-width c·√(2P̃(1−P̃)·ln ι/n) + c·(ln ι + 2·sd)/n, ι = XAK/β, with P̃ and n from the noisy transitions
    alone (projected onto valid counts), sd the deviation of the noise in a count.
    Paper: min{1, √(2P̃(1−P̃)·ln ι/Ñ) + (4E + 7·ln ι)/Ñ}, E = 4·width, Ñ and P̃ by the projection with shift.
    Source: [BZZDTCC24] Eq. 3.1, 5.1–5.2.   Differs: the first set is that of all kernels (0/0 in print).
    """

    layers: Layers
    num_episodes: int
    confidence_scale: float = 0.3
    paper: bool = False
    beta: float | None = None

    @property
    def log_iota(self) -> float:
        """ι = XAK/β; K² with the β = XA/K of the theorems, which holds unless another is stated."""
        K = max(self.num_episodes, 2)
        return 2.0 * math.log(K) if self.beta is None else math.log(self.layers.num_cells * K / self.beta)

    def boxes(self, release: PrivateLosses) -> KernelBoxes:
        layers = self.layers
        if release.counted == 0 or layers.horizon == 1:
            return KernelBoxes.everything(layers)
        H, S, A = layers.horizon, layers.num_states, layers.num_actions
        log_iota = self.log_iota
        estimate, width = np.zeros((H, S, A, S)), np.ones((H, S, A, S))
        for h in range(H - 1):
            here, there = list(layers.states[h]), list(layers.states[h + 1])
            counts = release.transitions[h][here][:, :, there].reshape(-1, len(there))
            if self.paper:
                e = release.count_width
                visits = counts.sum(axis=1) if release.visits is None else release.visits[h][here].reshape(-1)
                rows, _ = project_counts(counts, visits, e)
                rows = rows + 2.0 * e / len(there)
                totals = rows.sum(axis=1, keepdims=True)
                P = np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), 1.0 / len(there))
                extra = 16.0 * e + 7.0 * log_iota
                n = np.maximum(totals, 1e-300)
                reach = np.sqrt(2.0 * P * (1.0 - P) * log_iota / n) + extra / n
            else:
                c = self.confidence_scale
                rows, _ = project_counts(counts, np.maximum(counts.sum(axis=1), 0.0), 0.0)
                totals = rows.sum(axis=1, keepdims=True)
                P = np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), 1.0 / len(there))
                n = np.maximum(totals, 1e-300)
                spread = np.sqrt(2.0 * P * (1.0 - P) * log_iota / n)
                reach = c * spread + c * (log_iota + 2.0 * release.count_deviation) / n
            cells = np.ix_(here, range(A), there)
            estimate[h][cells] = P.reshape(len(here), A, len(there))
            width[h][cells] = np.minimum(reach, 1.0).reshape(len(here), A, len(there))
        return KernelBoxes.around(layers, estimate, width)

    def refreshed(self, release: PrivateLosses, previous: OccupancyPlan) -> KernelSet:
        """The boxes change only when counts were released."""
        return previous.boxes if previous.counted == release.counted else self.boxes(release)


@dataclass(frozen=True)
class PublishedSets:
    """The confidence sets of the learners without privacy, from exact counts; ι = ln(XAK/β).

    balls:  ‖P − P̄‖₁ ≤ √(2·|X_{h+1}|·ι/max(1, N))
    boxes:  |P − P̄| ≤ 2·√(P̄·ι/max(1, N−1)) + 14·ι/(3·max(1, N−1))
    Renewed when the visits of some (h, x, a) have doubled since the last time (an epoch).
    Source: [RM19] (balls), [JJLSY20] (boxes); recalled, not checked against copies of the papers.
    """

    layers: Layers
    num_episodes: int
    shape: Literal["balls", "boxes"]
    confidence_scale: float = 1.0
    beta: float = 0.1

    def boxes(self, release: PrivateLosses) -> KernelSet:
        layers, counts = self.layers, release.transitions
        iota = math.log(layers.num_cells * max(self.num_episodes, 2) / self.beta)
        N = counts.sum(axis=-1)
        P = counts / np.maximum(N, 1.0)[..., None]
        if self.shape == "balls":
            successors = layers.sizes[1:].reshape(-1, 1, 1)
            reach = self.confidence_scale * np.sqrt(2.0 * successors * iota / np.maximum(N, 1.0))
            return KernelBalls.around(layers, P, reach)
        n = np.maximum(N - 1.0, 1.0)[..., None]
        width = self.confidence_scale * (2.0 * np.sqrt(P * iota / n) + 14.0 * iota / (3.0 * n))
        return KernelBoxes.around(layers, P, width)

    def refreshed(self, release: PrivateLosses, previous: OccupancyPlan) -> KernelSet:
        """The set of this epoch, or of the next one if this release begins it."""
        assert release.visits is not None
        before = np.zeros(()) if previous.visits is None else previous.visits
        begins = (release.visits >= np.maximum(2.0 * before, 1.0)).any()
        return self.boxes(release) if begins else previous.boxes


def first_plan(layers: Layers) -> OccupancyPlan:
    """Uniform over triples, before anything is known."""
    solution = uniform_solution(layers)
    return OccupancyPlan(policy=solution.policy, boxes=KernelBoxes.everything(layers), solution=solution)


@dataclass(frozen=True)
class RegularisedLeader:
    """q = argmin η·⟨L̃, q⟩ + Σ q ln q over the measures of the confidence boxes.

    Source: Private-UC-O-REPS [BZZDTCC24 Alg. 1].
    Differs: practical mode takes η = rate_scale·√(ln(XA/H)/K) with rate_scale 10 instead of 1.
    Cost: one `entropy_step` per plan.
    """

    confidence: ConfidenceBoxes
    rate_scale: float = 10.0

    @property
    def rate(self) -> float:
        """η = rate_scale·√(ln(XA/H)/K)."""
        layers, K = self.confidence.layers, self.confidence.num_episodes
        return self.rate_scale * math.sqrt(max(math.log(layers.num_cells / layers.horizon), 1e-12) / K)

    def plan(self, release: PrivateLosses, previous: Plan | None) -> OccupancyPlan:
        if previous is None:
            return first_plan(self.confidence.layers)
        assert isinstance(previous, OccupancyPlan)
        boxes = self.confidence.refreshed(release, previous)
        scores = -self.rate * self.confidence.layers.pack(release.losses)
        return previous.followed(boxes, entropy_step(boxes, scores, previous.solution), release)


@dataclass(frozen=True)
class BanditDescent:
    """q_{k+1} = argmin η·⟨ℓ̂_k, q⟩ + D(q‖q_k) with the losses of the last block, seen along trajectories only.

    corrected: ℓ̂ = clip(ℓ̃, −E', n + E')/u, unbiased up to the clip; paper: ℓ̂ = clip((ℓ̃+E')/(2E'+n), 0, 1)/u, which
    adds about 1/(2u) to every action, most to those hardly played, and has linear regret. u is the upper occupancy
    bound, n the users of the block, ℓ̃ their noisy sum of losses, E' its width.
    `regulariser`: "barrier" (log barrier; Private-UOB-LBPS) or "entropy" (relative entropy; UOB-REPS: the estimator
    then has the implicit bias u + γ).
    Source: [BZZDTCC24] Alg. 3, Eq. 4.1–4.3; UOB-REPS of [JJLSY20] with `PublishedSets` after every episode.
    Differs: a policy is kept for a block of users, whose losses get one noise.
    Cost: one upper bound for all states and one solve per plan.
    """

    confidence: ConfidenceBoxes | PublishedSets
    rate: float
    estimator: LossEstimator = "corrected"
    regulariser: Literal["barrier", "entropy"] = "barrier"
    implicit: float = 0.0  # γ

    def plan(self, release: PrivateLosses, previous: Plan | None) -> OccupancyPlan:
        layers = self.confidence.layers
        if previous is None:
            return first_plan(layers)
        assert isinstance(previous, OccupancyPlan)
        boxes = self.confidence.refreshed(release, previous)
        if release.num_blocks == previous.num_blocks:  # only counts are new: no losses, but feasible in the new boxes
            return previous.followed(boxes, self._step(boxes, np.zeros(layers.shape), previous.solution), release)
        estimate = self.estimate(release, previous)
        return previous.followed(boxes, self._step(boxes, self.rate * estimate, previous.solution), release)

    def estimate(self, release: PrivateLosses, previous: OccupancyPlan) -> Floats:
        """ℓ̂, packed. The block was played with the previous policy, under the boxes known then."""
        layers = self.confidence.layers
        assert isinstance(previous.boxes, KernelBoxes)
        upper = upper_occupancy(previous.boxes, previous.policy)[..., None] * layers.pack(previous.policy)
        losses, n, e = layers.pack(release.latest), release.block_users, release.loss_width
        if self.estimator == "paper":
            e = e if math.isfinite(e) else 4.0 * release.loss_deviation
            losses = n * np.clip((losses + e) / (2.0 * e + n), 0.0, 1.0)
        elif math.isfinite(e):
            losses = np.clip(losses, -e, n + e)
        return np.where(layers.mask_packed[..., None], losses / np.maximum(upper + self.implicit, 1e-12), 0.0)

    def _step(self, boxes: KernelSet, losses: Floats, before: Solution) -> Solution:
        if self.regulariser == "barrier":
            assert isinstance(boxes, KernelBoxes)
            return barrier_step(boxes, losses, before)
        return entropy_step(boxes, mirror_scores(before.measure, losses), None)


@dataclass(frozen=True)
class RelativeEntropyDescent(BanditDescent):
    """q_{k+1} = argmin η·⟨ℓ_k, q⟩ + KL(q‖q_k): the same with whole loss tables.

    Source: UC-O-REPS of [RM19] with `PublishedSets` of balls, after every episode; recalled.
    """

    regulariser: Literal["barrier", "entropy"] = "entropy"

    def estimate(self, release: PrivateLosses, previous: OccupancyPlan) -> Floats:
        return self.confidence.layers.pack(release.latest)


@dataclass(frozen=True)
class Leader:
    """The best policy for the losses so far in the estimated model: no regularisation, no confidence boxes.

    Equally good actions: the first one. A baseline: linear regret against `alternating`, and no exploration.
    """

    layers: Layers

    def plan(self, release: PrivateLosses, previous: Plan | None) -> OccupancyPlan:
        layers = self.layers
        if previous is None:
            return first_plan(layers)
        assert isinstance(previous, OccupancyPlan)
        counts = np.maximum(release.transitions, 0.0)
        totals = counts.sum(axis=-1, keepdims=True)
        S = layers.num_states
        model = np.where(totals > 0.0, counts / np.where(totals > 0.0, totals, 1.0), 1.0 / S)
        losses = release.losses / max(release.num_episodes, 1) + 1e-9 * np.arange(layers.num_actions)
        unbounded = (-np.inf, np.inf)
        plan = greedy_plan(Model(model, -losses, totals[..., 0]), layers.horizon, reward_range=unbounded)
        kept = previous.followed(previous.boxes, previous.solution, release)
        return replace(kept, policy=plan.policy)
