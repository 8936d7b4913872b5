"""Optimistic policy optimisation: a mirror step on the values of the policy just played."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.mdp import Floats
from discreet.planning import Estimator, Plan, policy_values, uniform_policy
from discreet.releases.counts import PrivateCounts

#: Probabilities are floored here before the logarithm, so that an action can always come back.
SMALLEST = 1e-300


def mirror_step(policy: Floats, quality: Floats, rate: float) -> Floats:
    """π'(a|s) ∝ π(a|s)·exp(+rate·Q(s,a)), in log space (Q is a value of rewards: larger is better)."""
    logits = np.log(np.maximum(policy, SMALLEST)) + rate * quality
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def learning_rate(horizon: int, num_actions: int, num_episodes: int) -> float:
    """η = √(2·ln A/(H²K))"""
    return math.sqrt(2 * math.log(num_actions) / (horizon**2 * num_episodes))


@dataclass(frozen=True)
class PolicyOptimization:
    """Q̃ of the current policy under an optimistic estimate, then one mirror step per episode played.

    Q̃_h = clip( r̃ + P̃·Ṽ_{h+1} + b, 0, H−h ),  Ṽ_h = ⟨π_h, Q̃_h⟩,  π ← π·exp(η·n·Q̃)/Z,  η = √(2·ln A/(H²K))

    `own_release`: Q̃ is of π^k on the release that π^k was made from, as printed; else on the one that followed.
    With `ShaniEfroni` this is OPPO, with `ChowdhuryZhou` Private-UCB-PO.   Source: [SERM20], [CZ22].
    Differs: 1. n users who played the same policy move it by n steps at once; 2. `rate_scale` multiplies the step
    (1 is the theorem).
    Cost: O(H·S²·A) per plan.
    """

    estimate: Estimator
    num_episodes: int
    rate_scale: float = 1.0
    reward_range: tuple[float, float] = (0.0, 1.0)
    own_release: bool = False

    def plan(self, release: PrivateCounts, previous: Plan | None) -> Plan:
        shape = H, _, A = release.shape
        model, bonus = self.estimate(release)
        policy, rate = uniform_policy(shape), 0.0
        if previous is not None:
            steps = release.num_episodes - previous.num_episodes
            policy, rate = previous.policy, steps * self.rate_scale * learning_rate(H, A, self.num_episodes)
        if self.own_release and previous is not None:
            policy = mirror_step(policy, previous.quality, rate)
        value, quality = policy_values(model, policy, bonus, self.reward_range)
        if not self.own_release and previous is not None:
            policy = mirror_step(policy, quality, rate)
        return Plan(policy, value, quality, release.num_episodes)
