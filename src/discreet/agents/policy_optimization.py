"""Optimistic policy optimisation: a mirror step on the values of the policy just played."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet import bonuses
from discreet.mdp import Floats
from discreet.planning import Plan, policy_values, uniform_policy
from discreet.releases import PrivateCounts

#: Probabilities are floored here before the logarithm, so that an action can always come back.
SMALLEST = 1e-300


def mirror_step(policy: Floats, quality: Floats, rate: float) -> Floats:
    """π'(a|s) ∝ π(a|s)·exp(+rate·Q(s,a)), in log space (Q is a value of rewards: larger is better)."""
    logits = np.log(np.maximum(policy, SMALLEST)) + rate * quality
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class PolicyOptimization:
    """Q̃ of the current policy under an optimistic model, then one mirror step per episode played.

    Q̃_h = clip( r̂ + P̂·Ṽ_{h+1} + b, 0, H−h ),  Ṽ_h = ⟨π_h, Q̃_h⟩,  π ← π·exp(η·n·Q̃)/Z,  η = √(2·ln A/(H²K))
    b = √(2·ln(4SAT/β)/N) + H·√(4S·ln(6AT/β)/N)

    Source: [SERM20] (OPPO).
    Differs: 1. n users who played the same policy move it by n steps at once; 2. `confidence_scale` multiplies
    the bonus and `rate_scale` the step (1 is the theorem for both).
    Cost: O(H·S²·A) per plan.
    """

    num_episodes: int
    confidence_scale: float = 1.0
    rate_scale: float = 1.0
    beta: float = 0.1

    def coefficients(self, shape: tuple[int, int, int]) -> bonuses.Coefficients:
        H, S, A = shape
        T = self.num_episodes * H
        rewards = math.sqrt(2 * math.log(4 * S * A * T / self.beta))
        transitions = H * math.sqrt(4 * S * math.log(6 * A * T / self.beta))
        return bonuses.Coefficients(self.confidence_scale * (rewards + transitions), 0.0, 0.0)

    def plan(self, release: PrivateCounts, previous: Plan | None) -> Plan:
        shape = H, _, A = release.shape
        model = release.model()
        bonus = bonuses.per_count(model.visits, self.coefficients(shape))
        policy = uniform_policy(shape) if previous is None else previous.policy
        value, quality = policy_values(model, policy, bonus)
        if previous is None:
            return Plan(policy, value, quality, release.num_episodes)
        rate = self.rate_scale * math.sqrt(2 * math.log(A) / (H * H * self.num_episodes))
        steps = release.num_episodes - previous.num_episodes
        return Plan(mirror_step(policy, quality, rate * steps), value, quality, release.num_episodes)
