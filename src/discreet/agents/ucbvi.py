"""Upper-confidence value iteration: one loop, any estimate."""

from __future__ import annotations

from dataclasses import dataclass

from discreet.planning import Estimator, Plan, greedy_plan
from discreet.releases.counts import PrivateCounts


@dataclass(frozen=True)
class UCBVI:
    """Optimistic value iteration on a release.

    Q_h = min{ Q_h of the previous plan (if monotone), H−h, r̃ + P̃·V_{h+1} + b },  π_h = argmax_a Q_h

    The estimate gives r̃, P̃ and b: with `Azar` this is UCBVI, with `QiaoWang` DP-UCBVI, and so on.
    Source: [AOM17] Alg. 1–2, [QW23] Alg. 1.
    Differs: 1. clips at the reward still to come, H−h, instead of H (tighter, still optimistic); 2. ties are
    broken by a seeded random order; 3. the minimum with the previous Q belongs to the theorems: with bonuses
    scaled down, a Q that once fell too low must be able to rise.
    Cost: O(H·S²·A) per plan.
    """

    estimate: Estimator
    monotone: bool = False
    tie_seed: int = 0
    reward_range: tuple[float, float] = (0.0, 1.0)

    def plan(self, release: PrivateCounts, previous: Plan | None) -> Plan:
        model, bonus = self.estimate(release)
        return greedy_plan(
            model,
            release.horizon,
            bonus,
            reward_range=self.reward_range,
            ceiling=previous.quality if previous is not None and self.monotone else None,
            tie_seed=self.tie_seed,
            num_episodes=release.num_episodes,
        )
