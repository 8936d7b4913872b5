"""What a learner makes of a release: a model, and how much to add to its values. Every formula stands beside its
source; all constants here are post-processing, so `confidence_scale` may be anything.

Names: N̂ released count, Ñ projected count, e width of the counts, E1, E2, E3 widths of N, R, T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from discreet.kernels.bonuses import qiao_wang
from discreet.mdp import Floats
from discreet.planning import Bonus
from discreet.problem import NOTHING_DECLARED, PublicStructure
from discreet.releases.counts import Model, PrivateCounts

BonusKind = Literal["hoeffding", "bernstein"]
Shape = tuple[int, int, int]


class Coefficients(NamedTuple):
    """A bonus of the form (root + per_std·Std)/√n + inverse/n: all that depends on a cell is its count n."""

    root: float
    inverse: float
    per_std: float


def per_count(n: Floats, coefficients: Coefficients) -> Bonus:
    """Evaluate a bonus at counts; a cell that was never visited gets an infinite one."""
    root, inverse, per_std = coefficients
    seen = n > 0
    safe = np.where(seen, n, 1.0)
    square_root = np.sqrt(safe)
    fixed = np.where(seen, root / square_root + inverse / safe, np.inf)
    return Bonus(fixed, np.where(seen, per_std / square_root, 0.0))


def successor_counts(visits: Floats) -> Floats:
    """N_{h+1}(y) = Σ_a N_{h+1}(y,a) for every stage (the last stage has no successor: its own counts, unused)."""
    totals = visits.sum(axis=2)
    return totals if visits.shape[0] == 1 else np.concatenate([totals[1:], totals[-1:]])


# Without privacy ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Azar:
    """The bonuses of UCBVI, L = ln(5·S·A·T/β).

    hoeffding   b = 7·H·L/√n                                                                    [AOM17] bonus 1
    bernstein   b = √(8L·Var/n) + 14·H·L/(3n) + √(8·Σ_y P(y)·min{100²·H³S²A·L²/N(y), H²}/n)       [AOM17] bonus 2

    The minimum is H² until a state has been visited 10⁴·H·S²·A·L² times (`saturated_until`); below that the last
    term is H·√(8/n).
    """

    num_episodes: int
    kind: BonusKind = "bernstein"
    confidence_scale: float = 1.0
    beta: float = 0.1

    def _log(self, shape: Shape) -> float:
        H, S, A = shape
        return math.log(5 * S * A * self.num_episodes * H / self.beta)

    def coefficients(self, shape: Shape) -> Coefficients:
        H, L, c = shape[0], self._log(shape), self.confidence_scale
        if self.kind == "hoeffding":
            return Coefficients(root=c * 7 * H * L, inverse=0.0, per_std=0.0)
        return Coefficients(root=c * math.sqrt(8) * H, inverse=c * 14 * H * L / 3, per_std=c * math.sqrt(8 * L))

    def saturated_until(self, shape: Shape) -> float:
        """Visits to one state below which the minimum in bonus 2 is H²."""
        H, S, A = shape
        return 1e4 * H * S * S * A * self._log(shape) ** 2

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        model = release.model()
        bonus = per_count(model.visits, self.coefficients(release.shape))
        successor_visits = successor_counts(model.visits)
        limit = self.saturated_until(release.shape)
        if self.kind == "hoeffding" or successor_visits.max(initial=0.0) <= limit:
            return model, bonus
        H = release.horizon
        capped = H**2 * np.minimum(1.0, limit / np.maximum(successor_visits, 1.0))
        expected = np.einsum("gsay,gy->gsa", model.transitions, capped)
        n = np.maximum(model.visits, 1.0)
        surplus = self.confidence_scale * np.sqrt(8.0 / n) * (H - np.sqrt(expected))
        return model, Bonus(bonus.fixed - surplus, bonus.per_std)


@dataclass(frozen=True)
class ShaniEfroni:
    """The bonus of optimistic policy optimisation: b = √(2·ln(4SAT/β)/n) + H·√(4S·ln(6AT/β)/n). Source: [SERM20]."""

    num_episodes: int
    confidence_scale: float = 1.0
    beta: float = 0.1

    def coefficients(self, shape: Shape) -> Coefficients:
        H, S, A = shape
        T = self.num_episodes * H
        rewards = math.sqrt(2 * math.log(4 * S * A * T / self.beta))
        transitions = H * math.sqrt(4 * S * math.log(6 * A * T / self.beta))
        return Coefficients(self.confidence_scale * (rewards + transitions), 0.0, 0.0)

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        model = release.model()
        return model, per_count(model.visits, self.coefficients(release.shape))


# The papers' private learners, as printed ---------------------------------------------------------------------------


@dataclass(frozen=True)
class QiaoWang:
    """The bonus of DP-UCBVI on projected and shifted counts, ι = ln(30·H·S·A·T/β), E = 4e.

    b = 2·√(Var·ι/Ñ) + √(2ι/Ñ) + 20·H·S·E·ι/Ñ
        + 4·√ι·√(Σ_y P̃(y)·min{c²H³SAι²/Ñ(y) + c²H⁴S⁴A²E²ι⁴/Ñ(y)² + c²H⁶S⁴A²ι⁴/Ñ(y)², H²}/Ñ),  c = 1000
    The Hoeffding form has H² for the variance and no last term.

    Source: [QW23] Alg. 1.   Differs: E comes from the exact tails of the noise, not from an O(·).
    """

    num_episodes: int
    kind: BonusKind = "bernstein"
    confidence_scale: float = 1.0
    beta: float = 0.1
    structure: PublicStructure = NOTHING_DECLARED

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        H, S, A = release.shape
        iota = math.log(30 * H * S * A * self.num_episodes * H / self.beta)
        model = release.model(shift=True, structure=self.structure)
        fixed, per_std = np.empty(model.visits.shape), np.empty(model.visits.shape)
        e, bernstein = release.largest_width, self.kind == "bernstein"
        qiao_wang(model.transitions, model.visits, e, iota, H, bernstein, self.confidence_scale, fixed, per_std)
        return model, Bonus(fixed, per_std)


def divided_model(release: PrivateCounts, offset: Floats | float, structure: PublicStructure) -> Model:
    """r̃ = R̂/M, P̃(y) = N̂(y)/M with M = (N̂ + offset) ∨ 1: as printed, rows may be negative or not sum to 1."""
    M = np.maximum(release.visits + offset, 1.0)
    P = release.transitions / M[..., None]
    rewards = release.reward_sums / M
    if structure.successors is not None:
        P = np.where(structure.successors, P, 0.0)
    if structure.zero_rewards is not None:
        rewards = np.where(structure.zero_rewards, 0.0, rewards)
    return Model(P, rewards, M)


@dataclass(frozen=True)
class ChowdhuryZhou:
    """Private-UCB-VI and Private-UCB-PO, M = (N̂ + E1) ∨ 1.

    value iteration       b = (1+H)·√(2·ln(4SAT/β)/M) + (2E1 + E2 + H·(2E1 + S·E3))/M
    policy optimisation   b = √(2·ln(4SAT/β)/M) + (2E1 + E2)/M + H·(√(4S·ln(6AT/β)/M) + (S·E3 + 2E1)/M)

    Source: [CZ22].   Differs: widths are exact tails.
    """

    num_episodes: int
    policy_optimisation: bool = False
    confidence_scale: float = 1.0
    beta: float = 0.1
    structure: PublicStructure = NOTHING_DECLARED

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        H, S, A = release.shape
        T = self.num_episodes * H
        E1, E2 = np.asarray(release.widths.visits), np.asarray(release.widths.rewards)
        E3 = np.max(release.widths.transitions)
        model = divided_model(release, E1, self.structure)
        M = model.visits
        estimation = np.sqrt(2 * math.log(4 * S * A * T / self.beta) / M)
        if self.policy_optimisation:
            spread = np.sqrt(4 * S * math.log(6 * A * T / self.beta) / M)
        else:
            spread = estimation
        fixed = estimation + H * spread + (2 * E1 + E2 + H * (2 * E1 + S * E3)) / M
        return model, Bonus(self.confidence_scale * fixed, np.zeros_like(M))


@dataclass(frozen=True)
class Vietri:
    """PUCB: Q = H−h while N̂ < 2E; then b = (H+1)·√(2·ln(T/β)/max(N̂−E, 1)) + (1 + S·H)·(3E/N̂ + 2E²/N̂²).

    Source: [VBKW20], recalled, not checked against a copy of the paper.   Differs: E is the largest exact width.
    """

    num_episodes: int
    confidence_scale: float = 1.0
    beta: float = 0.1
    structure: PublicStructure = NOTHING_DECLARED

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        H, S, _ = release.shape
        E = release.largest_width
        model = divided_model(release, 0.0, self.structure)
        n = model.visits
        estimation = (H + 1) * np.sqrt(2 * math.log(self.num_episodes * H / self.beta) / np.maximum(n - E, 1.0))
        fixed = estimation + (1 + S * H) * (3 * E / n + 2 * E**2 / n**2)
        unknown = (release.visits < 2 * E) | (release.visits <= 0)
        return model, Bonus(np.where(unknown, np.inf, self.confidence_scale * fixed), np.zeros_like(n))


# The practical form of all of them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Practical:
    """A cell is unknown until its count stands out of its own noise; then the bonus is that of a non-private learner.

    unknown (Q at its bound) while Ñ < max(1, d·sd);  elsewhere, ι = ln(S·A·H·log₂K/β):
    bernstein   b = c·( √(2·Var·ι/Ñ) + H·ι/(3Ñ) )        hoeffding   b = c·H·√(ι/(2Ñ))
    """

    num_episodes: int
    kind: BonusKind = "bernstein"
    confidence_scale: float = 1.0
    unknown_below: float = 1.0
    beta: float = 0.1
    structure: PublicStructure = NOTHING_DECLARED

    def coefficients(self, shape: Shape) -> Coefficients:
        H, S, A = shape
        iota = math.log(S * A * H * max(math.log2(self.num_episodes), 1.0) / self.beta)
        root = self.confidence_scale * math.sqrt(2 * iota)
        if self.kind == "hoeffding":
            return Coefficients(root=root * H / 2, inverse=0.0, per_std=0.0)
        return Coefficients(root=0.0, inverse=self.confidence_scale * H * iota / 3, per_std=root)

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        model = release.model(structure=self.structure)
        bonus = per_count(model.visits, self.coefficients(release.shape))
        unknown = model.visits < np.maximum(1.0, self.unknown_below * np.asarray(release.deviations.visits))
        return model, Bonus(np.where(unknown, np.inf, bonus.fixed), bonus.per_std)
