"""Upper-confidence value iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from discreet import bonuses
from discreet.mdp import Floats
from discreet.planning import Bonus, Plan, greedy_plan
from discreet.releases import Model, PrivateCounts


@dataclass(frozen=True)
class UCBVI:
    """Optimistic value iteration with a count-based bonus.

    Q_h = min{ Q_h of the previous plan, H−h, r̂ + P̂·V_{h+1} + b },  π_h = argmax_a Q_h

    Source: [AOM17] Alg. 1–2 (UCBVI-CH with bonus 1, UCBVI-BF with bonus 2).
    Differs: 1. clips at the reward still to come, H−h, instead of H (tighter, still optimistic); 2. ties are
    broken by a seeded random order; 3. `confidence_scale` multiplies the bonus (1 is the theorem), and the
    minimum with the previous Q is kept only at scale 1: below it, a Q that once fell too low must be able to rise.
    Cost: O(H·S²·A) per plan.
    """

    num_episodes: int
    bonus: Literal["hoeffding", "bernstein"] = "bernstein"
    confidence_scale: float = 1.0
    beta: float = 0.1
    tie_seed: int = 0

    @property
    def monotone(self) -> bool:
        return self.confidence_scale >= 1.0

    def coefficients(self, shape: tuple[int, int, int]) -> bonuses.Coefficients:
        formula = bonuses.hoeffding if self.bonus == "hoeffding" else bonuses.bernstein
        return formula(shape, self.num_episodes, self.beta, self.confidence_scale)

    def plan(self, release: PrivateCounts, previous: Plan | None) -> Plan:
        shape = release.shape
        model = release.model()
        bonus = bonuses.per_count(model.visits, self.coefficients(shape))
        if self.bonus == "bernstein":
            bonus = self._with_frequent_successors(model, bonus, shape)
        return greedy_plan(
            model,
            release.horizon,
            bonus,
            ceiling=previous.quality if previous is not None and self.monotone else None,
            tie_seed=self.tie_seed,
            num_episodes=release.num_episodes,
        )

    def _with_frequent_successors(self, model: Model, bonus: Bonus, shape: tuple[int, int, int]) -> Bonus:
        """Replace H² by the smaller term of bonus 2 where a successor has been visited often enough."""
        limit = bonuses.saturated_until(shape, self.num_episodes, self.beta)
        successor_visits = successor_counts(model.visits)
        if successor_visits.max(initial=0.0) <= limit:
            return bonus
        H = shape[0]
        capped = H**2 * np.minimum(1.0, limit / np.maximum(successor_visits, 1.0))
        expected = np.einsum("gsay,gy->gsa", model.transitions, capped)
        n = np.maximum(model.visits, 1.0)
        surplus = self.confidence_scale * np.sqrt(8.0 / n) * (H - np.sqrt(expected))
        return Bonus(bonus.fixed - surplus, bonus.per_std)


def successor_counts(visits: Floats) -> Floats:
    """N_{h+1}(y) = Σ_a N_{h+1}(y,a) for every stage (the last stage has no successor: its own counts, unused)."""
    totals = visits.sum(axis=2)
    return totals if visits.shape[0] == 1 else np.concatenate([totals[1:], totals[-1:]])
