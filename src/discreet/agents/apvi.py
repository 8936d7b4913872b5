"""Adaptive pessimistic value iteration from one release of counts: APVI and its private form."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import BonusKind
from discreet.mdp import Floats
from discreet.planning import Bonus, Plan
from discreet.problem import Mask
from discreet.releases.counts import Model, PrivateCounts, placed


@dataclass(frozen=True)
class APVI:
    """Q_h = clip(r + P̃·V_{h+1} − Γ, least, most), V_h = max_a Q_h; E = 2e, e the width of the counts, ι = ln(HSA/β):

    paper       Γ = √2·√(Var_P̃(V)·ι/(ñ − E)) + 16·S·H·E·ι/ñ,  unknown where ñ ≤ E; counts below 0 are 0 first
                unknown rewards: plus [√((ñ + E)·ln(2HSA/β)/2) + E + e_R]/ñ, e_R the width of their sums
    practical   Γ = c·(√(2·Var_P̃(V)·ι/ñ) + H·ι/(3ñ)),  unknown where ñ ≤ f·E
    Hoeffding   H² for the variance (a quarter of it in practical mode: a value in [0, H] varies by H/2)

    reference   practical, Bernstein, no noise and no c stated: Γ = 0, plain value iteration on counts

    Q is the least possible in unknown cells, (H−h)·min(0, e); in practical mode with known rewards it is the reward
    and then the least. With the printed Γ and e = 0 it is APVI. `rewards` (G, S, A) declares rewards known, in the
    scaled range. `absorbing`: the last state has been left for good, and `ended` = e is what every step pays there,
    whatever the noise says. `unknown`: one more successor, for steps of which nobody knows where they led; rewards
    are those of all steps, P̃ is that of the others, n·(their share) takes the place of n in the variance's term.

    Source: [QW22] Alg. 1, Eq. 3, and [YW21].
    Differs: 1. e comes from exact tails; 2. ñ − E is at least 1; 3. the projection has a closed form;
    4. clips at what H−h steps can pay; 5. the term for rewards, which print knows.   Cost: O(H·S²·A).
    """

    mode: str = "practical"
    kind: BonusKind = "bernstein"
    rewards: Floats | None = None
    confidence_scale: float | None = None
    unknown_below: float = 0.2
    absorbing: bool = False
    ended: float = 0.0
    unknown: bool = False
    beta: float = 0.1
    tie_seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("practical", "paper"):
            raise ValueError(f"mode is {self.mode!r}; it must be 'practical' or 'paper'")

    def estimate(self, release: PrivateCounts) -> tuple[Model, Bonus]:
        """The projected model and −Γ."""
        H, S, A = release.shape
        iota = math.log(H * S * A / self.beta)
        if self.mode == "paper":  # {·}⁺ of Eq. 2
            positive = {name: np.maximum(getattr(release, name), 0.0) for name in ("visits", "transitions")}
            release = replace(release, **positive)
        model, followed = release.model(), np.ones(1)
        if self.unknown:
            model, share = placed(model)
            followed, S = np.where(share > 0.0, share, 1.0), S - 1
        E, n = 2.0 * release.width[:, :S], model.visits
        if self.mode == "paper":
            c = 1.0 if self.confidence_scale is None else self.confidence_scale
            unknown = (n <= E) | (n <= 0)
            rest = np.maximum(n * followed - E, 1.0)
            per_std = c * math.sqrt(2.0) * np.sqrt(iota / rest)
            fixed = c * 16.0 * S * H * E * iota / np.maximum(n, 1.0)
            if self.rewards is None:
                e_rewards = np.broadcast_to(np.asarray(release.widths.rewards), release.visits.shape)[:, :S]
                sampled = np.sqrt(0.5 * (n + E) * (iota + math.log(2.0)))
                fixed = fixed + c * (sampled + E + e_rewards) / np.maximum(n, 1.0)
            largest = float(H)
        else:
            lightest = 0.1 if E.any() or self.kind == "hoeffding" else 0.0
            c = lightest if self.confidence_scale is None else self.confidence_scale
            unknown = (n <= self.unknown_below * E) | (n < 1)
            safe = np.maximum(n, 1.0)
            per_std = c * np.sqrt(2.0 * iota / np.maximum(n * followed, 1.0))
            fixed = c * H * iota / (3.0 * safe)
            largest = H / 2.0
        if self.kind == "hoeffding":
            fixed, per_std = fixed + largest * per_std, np.zeros_like(per_std)
        rewards = (model.rewards if self.rewards is None else self._declared(model.rewards.shape)).copy()
        transitions = np.where(unknown[..., None], 0.0, model.transitions)
        if self.absorbing:
            rewards[:, -1], transitions[:, -1] = self.ended, 0.0
            unknown[:, -1], fixed[:, -1], per_std[:, -1] = False, 0.0, 0.0
            transitions[:, -1, :, -1] = 1.0
            if self.ended < 0.0:  # nowhere is it worse
                transitions[~transitions.any(axis=-1), -1] = 1.0
        empty = 0.0 if self.rewards is not None and self.mode == "practical" else -np.inf
        bonus = Bonus(np.where(unknown, empty, -fixed), np.where(unknown, 0.0, -per_std))
        return Model(transitions, rewards, np.where(unknown, 0.0, n)), bonus

    @property
    def reward_range(self) -> tuple[float, float]:
        """What a step can pay."""
        return (min(0.0, self.ended), max(1.0, self.ended)) if self.absorbing else (0.0, 1.0)

    def _declared(self, shape: tuple[int, ...]) -> Floats:
        assert self.rewards is not None
        rewards = np.zeros(shape)
        rewards[:, : self.rewards.shape[1]] = self.rewards
        return rewards

    def known(self, release: PrivateCounts) -> Mask:
        """Which cells (G, S, A) the plan knows something about."""
        model, bonus = self.estimate(release)
        return np.asarray((bonus.fixed > -release.horizon) & (model.visits > 0.0))

    def plan(self, release: PrivateCounts, previous: Plan | None = None) -> Plan:
        return UCBVI(self.estimate, tie_seed=self.tie_seed, reward_range=self.reward_range).plan(release, None)
