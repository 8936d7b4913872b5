"""Heavy-tailed rewards: E|r|^{1+v} ≤ u and |mean| ≤ τ are all that is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from discreet.agents.policy_optimization import PolicyOptimization
from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Shape, divided_model
from discreet.mdp import Floats
from discreet.planning import Bonus, Plan
from discreet.problem import NOTHING_DECLARED, THRESHOLDS, Moments, PublicStructure
from discreet.releases.counts import Model, PrivateCounts, Thresholds


def joint_rate(shape: Shape, num_episodes: int, epsilon: float, beta: float) -> float:
    """c in B_n = (c·u·n)^{1/(1+v)} for the joint model: ε/(H·ln^{1.5}K·ln(3SAT/β)). Source: [WZCW23] Thm. 2."""
    H, S, A = shape
    K = max(num_episodes, 3)
    return epsilon / (H * math.pow(math.log(K), 1.5) * math.log(3 * S * A * K * H / beta))


def local_rate(shape: Shape, num_episodes: int, epsilon: float, beta: float) -> float:
    """c in B_n = (c·u·√n)^{1/(1+v)} for the local model: ε/(H·ln(6SAT/β)). Source: [WZCW23] Thm. 3."""
    H, S, A = shape
    return epsilon / (H * math.log(6 * S * A * max(num_episodes, 3) * H / beta))


def exact_rate(shape: Shape, num_episodes: int, beta: float) -> float:
    """c in B_n = (c·u·n)^{1/(1+v)} without privacy: 1/ln(2SAT/β). Source: [WZCW23] Rem. 7."""
    H, S, A = shape
    return 1.0 / math.log(2 * S * A * max(num_episodes, 3) * H / beta)


@dataclass(frozen=True)
class HeavyEstimate:
    """Truncated means and their bonus, M = (N̂ + E1) ∨ 1, n = M or √M (local), c = `rate`.

    printed     β^r = (2τE1 + E2)/M + 4·u^{1/(1+v)}·(c·n)^{−v/(1+v)}
        value iteration       b = β^r + τH·√(2·ln(4SAT/β)/M) + τH·(2E1 + S·E3)/M
        policy optimisation   b = β^r + τH·(√(4S·ln(6AT/β)/M) + (S·E3 + 2E1)/M)
    practical   projected counts; a cell is unknown below `unknown_below` sd of its count; a reward sum below
        `shrink_below` sd of its noise counts as 0, means are cut to ±τ;
        b = c_s·(τH·√(ι/(2Ñ)) + 2·√(u·B^{1−v}/Ñ)), ι = ln(S·A·H·log₂K/β), B = (c·u·n)^{1/(1+v)}, for rewards that are
        cut at B have a second moment of at most u·B^{1−v}
    Rewards in other units, × x, have u·x^{1+v} and τ·x: means, bonuses and thresholds are then × x as well.

    Source: [WZCW23] Alg. 1, 3, Lem. 15, 17, 18, 22.
    Differs: 1. noise is charged by its own width E2, so the constants 10 and 16 become 4; 2. thresholds read released
    counts, never raw ones.
    """

    num_episodes: int
    moments: Moments
    rate: float
    root: bool = False
    practical: bool = True
    policy_optimisation: bool = False
    confidence_scale: float = 1.0
    unknown_below: float = 3.0
    shrink_below: float = 2.0
    beta: float = 0.1
    structure: PublicStructure = NOTHING_DECLARED

    def thresholds(self, release: PrivateCounts, previous: Plan | None) -> Thresholds:
        """B_n = (c·u·n)^{1/(1+v)}, n = N̂ in [1, KH] or its root, rounded up to a power of √2; never falling.

        Sums are kept for thresholds in `THRESHOLDS`, so that none beyond them is announced; `at_limits` counts those.
        """
        n = np.clip(release.visits, 1.0, self.num_episodes * release.shape[0])
        B = np.clip(np.exp2(np.ceil(2.0 * np.log2(self._level(n))) / 2.0), *THRESHOLDS)
        if previous is not None and isinstance(previous.announcement, Thresholds):
            B = np.maximum(B, previous.announcement.values)
        return Thresholds(B)

    def _level(self, n: Floats) -> Floats:
        """(c·u·n)^{1/(1+v)}, locally with √n."""
        scale = self.rate * self.moments.bound * (np.sqrt(n) if self.root else n)
        return np.asarray(scale ** (1.0 / (1.0 + self.moments.order)))

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        return self._practical(release) if self.practical else self._printed(release)

    def _printed(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        H, S, A = release.shape
        u, v, tau = self.moments.bound, self.moments.order, self.moments.mean
        T = self.num_episodes * H
        E1, E2 = np.asarray(release.widths.visits), np.asarray(release.widths.rewards)
        E3 = np.max(release.widths.transitions)
        model = divided_model(release, E1, self.structure)
        M = model.visits
        n = np.sqrt(M) if self.root else M
        rewards = (2 * tau * E1 + E2) / M + 4 * u ** (1 / (1 + v)) * (self.rate * n) ** (-v / (1 + v))
        if self.policy_optimisation:
            spread = np.sqrt(4 * S * math.log(6 * A * T / self.beta) / M)
        else:
            spread = np.sqrt(2 * math.log(4 * S * A * T / self.beta) / M)
        fixed = rewards + tau * H * (spread + (2 * E1 + S * E3) / M)
        return model, Bonus(self.confidence_scale * fixed, np.zeros_like(M))

    def _practical(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        H, S, A = release.shape
        u, v, tau = self.moments.bound, self.moments.order, self.moments.mean
        P, _, n = release.model(structure=self.structure)
        known = n >= np.maximum(1.0, self.unknown_below * np.asarray(release.deviations.visits))
        significant = np.abs(release.reward_sums) >= self.shrink_below * np.asarray(release.deviations.rewards)
        safe = np.where(known, n, 1.0)
        rewards = np.where(known & significant, np.clip(release.reward_sums / safe, -tau, tau), 0.0)
        if self.structure.zero_rewards is not None:
            rewards = np.where(self.structure.zero_rewards, 0.0, rewards)
        iota = math.log(S * A * H * max(math.log2(self.num_episodes), 1.0) / self.beta)
        second = u * self._level(safe) ** (1 - v)  # moment of a reward that is cut
        width = tau * H * np.sqrt(iota / (2 * safe)) + 2 * np.sqrt(second / safe)
        fixed = np.where(known, self.confidence_scale * width, np.inf)
        return Model(P, rewards, n), Bonus(fixed, np.zeros_like(n))


def at_limits(plan: Plan) -> dict[str, int]:
    """How many of a plan's thresholds are the smallest or the largest that there is; nothing for other plans."""
    if not isinstance(plan.announcement, Thresholds):
        return {}
    values, (smallest, largest) = plan.announcement.values, THRESHOLDS
    return {
        "smallest_thresholds": int((values == smallest).sum()),
        "largest_thresholds": int((values == largest).sum()),
    }


def _range(moments: Moments) -> tuple[float, float]:
    return -moments.mean, moments.mean


@dataclass(frozen=True)
class HeavyUCBVI:
    """Optimistic value iteration with Q in [−(H−h)τ, (H−h)τ]; announces the next thresholds.

    Source: [WZCW23] Alg. 1.
    """

    estimate: HeavyEstimate
    tie_seed: int = 0

    def plan(self, release: PrivateCounts, previous: Plan | None) -> Plan:
        inner = UCBVI(self.estimate, tie_seed=self.tie_seed, reward_range=_range(self.estimate.moments))
        return replace(inner.plan(release, previous), announcement=self.estimate.thresholds(release, previous))


@dataclass(frozen=True)
class HeavyUCBPO:
    """Mirror descent with the sign that increases reward (the paper prints −η), η = √(2·ln A/(τ²H²K)).

    Source: [WZCW23] Alg. 3.
    """

    estimate: HeavyEstimate
    num_episodes: int
    rate_scale: float = 1.0
    own_release: bool = False

    def plan(self, release: PrivateCounts, previous: Plan | None) -> Plan:
        moments, step = self.estimate.moments, self.rate_scale / self.estimate.moments.mean
        inner = PolicyOptimization(self.estimate, self.num_episodes, step, _range(moments), self.own_release)
        return replace(inner.plan(release, previous), announcement=self.estimate.thresholds(release, previous))
