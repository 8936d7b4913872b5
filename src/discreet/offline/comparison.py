"""Is a policy better than what people do now? A private answer from people who were not learned from.

The question is about a partial roll-out: at every decision the policy is followed with probability α, else everybody
does as now. With logged propensities β the gain of that is the mean over people of t = (w − 1)·(G − b),
w = Π_h (1 − α + α·π(a_h)/β(a_h)), because w has mean 1 whatever b is. Without them it is not known: estimated ones
made bounds that never held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from discreet.agents.practice import AS_NOW, Returns
from discreet.kernels.gains import whole_weights
from discreet.mdp import Floats, Ints
from discreet.offline.auto import ended_rate, person_means, released_returns
from discreet.offline.declaration import Declaration, Grid
from discreet.people.stays import Stays
from discreet.planning import possible_values
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Neighbours, Noise, guarantee_of, unit_text
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import assumptions
from discreet.privacy.trust.gains import GainMoments, NoisyMoments, ReturnHistogram

SHARES = {"gains": 0.63, "squares": 0.27, "returns": 0.10}
CONFIDENCE = 0.95
#: C = CLIP·sd·max(LEAST_SPREAD, √((1 + α²(A−1))^H − 1)), the deviation of w where all actions are equally likely.
CLIP, LEAST_SPREAD = 3.0, 0.7
NO_PROPENSITIES = (
    "the declaration names no column of propensities, and without knowing how likely people's actions were nobody "
    "can say what others would have led to: with estimated ones, bounds do not hold"
)


@dataclass(frozen=True)
class Question:
    """What is asked of how many people, at which price: a function of public numbers."""

    declaration: Declaration
    num_users: int
    rollout: float
    budget: Budget
    neighbours: Neighbours = "replace"

    def __post_init__(self) -> None:
        if self.declaration.propensity is None:
            raise ValueError(NO_PROPENSITIES)
        if not 0.0 < self.rollout <= 1.0:
            raise ValueError(f"the roll-out is {self.rollout}; it must be above 0 and at most 1")

    @property
    def noise(self) -> Noise:
        return "laplace" if self.budget.kind == "pure" else "gaussian"

    @property
    def share(self) -> dict[str, float]:
        return self.budget.split(SHARES, self.noise)

    @property
    def returns(self) -> ReturnHistogram:
        return ReturnHistogram(self.share["returns"], self.noise, self.neighbours)

    @property
    def moments(self) -> GainMoments:
        return GainMoments(self.share["gains"], self.share["squares"], self.noise, self.neighbours)

    def entries(self) -> tuple[LedgerEntry, ...]:
        return self.returns.entry(), *self.moments.entries()

    def guarantee(self, noise: NoiseSource) -> Guarantee:
        m = self.declaration.episodes_per_user
        rests_on = assumptions(self.num_users * m, noise, "the policy was learned from other people")
        found = guarantee_of(self.entries(), "central", self.neighbours, self.budget, assumptions=rests_on)
        return replace(found, unit=unit_text(m))


@dataclass(frozen=True)
class Answer:
    """Gains per stay over what people do now, in the units of the log's rewards."""

    rollout: float
    gain: float
    lower: float | None  # None: not shown to be above 0
    deviation: float  # of the estimate, noise included
    largest: float  # that is possible
    users: int
    guarantee: Guarantee

    @property
    def shown(self) -> bool:
        return self.lower is not None

    @property
    def sentence(self) -> str:
        return sentence(self.rollout, self.lower)

    def to_json(self) -> dict[str, Any]:
        return {
            "rollout": self.rollout,
            "gain": self.gain,
            "lower": self.lower,
            "confidence": CONFIDENCE,
            "deviation": self.deviation,
            "largest_possible": self.largest,
            "shown": self.shown,
            "sentence": self.sentence,
            "users": self.users,
        }


def sentence(rollout: float, lower: float | None) -> str:
    """What a certificate says."""
    how = "followed at every decision" if rollout == 1.0 else f"followed in {100 * rollout:g} % of all decisions"
    if lower is not None:
        return f"better than now by at least {lower:.4g} per stay with {100 * CONFIDENCE:g} % confidence, {how}"
    return f"not shown to be better than now, {how}"


def ask(stays: Stays, states: Grid, actions: Ints, question: Question, source: NoiseSource) -> Answer:
    """Three noisy statistics of people who were not learned from; `actions` (H, S) with `AS_NOW` where it is so."""
    declaration = question.declaration
    guarantee = question.guarantee(source)
    H = declaration.horizon
    found, rest = released_returns(stays, declaration, question.returns, source)
    place = states.states_of(stays.bins)
    asked = np.where(place < 0, AS_NOW, actions[stays.step, place])
    gains = rollout_gains(stays, asked, rest, question.rollout, H * found.mean)
    unit = clip_of(found, question.rollout, declaration.num_actions, H)
    moments = question.moments.release(person_means(stays, gains), unit, source)
    least, most = (float(bound[0]) for bound in possible_values(H, ended_rate(declaration)))
    bottom, top = declaration.reward_range
    gain, deviation, lower = bound_of(moments, question.num_users, unit, most - least)
    scale = top - bottom
    shown = scale * lower if lower > 0.0 else None
    largest = scale * (most - least)
    return Answer(question.rollout, scale * gain, shown, scale * deviation, largest, question.num_users, guarantee)


def clip_of(found: Returns, rollout: float, num_actions: int, horizon: int) -> float:
    """C, scaled."""
    spread = math.sqrt(math.expm1(horizon * math.log1p(rollout**2 * (num_actions - 1))))
    return CLIP * horizon * found.deviation * max(LEAST_SPREAD, spread)


def rollout_gains(stays: Stays, asked: Ints, rest: Floats, rollout: float, baseline: float) -> Floats:
    """(w − 1)·(G − b) per episode; 0 where nobody knows how likely some action was."""
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.where(stays.action == asked, 1.0 / stays.propensity, 0.0)
    ratio = np.where(asked == AS_NOW, 1.0, np.where(np.isnan(stays.propensity), np.nan, ratio))
    weights, totals = np.empty(rest.size), np.empty(rest.size)
    whole_weights(stays.offsets[1:], stays.reward, ratio, rest, rollout, weights, totals)
    return np.where(np.isnan(weights), 0.0, (weights - 1.0) * (totals - baseline))


def bound_of(moments: NoisyMoments, num_users: int, unit: float, largest: float) -> tuple[float, float, float]:
    """(gain, its deviation, lower bound), scaled: mean − z·√(second moment/n + noise/n²), within what is possible."""
    n = max(num_users, 1)
    squares = max(moments.squares + moments.squares_deviation, 0.0) / n
    deviation = unit * math.sqrt(squares / n + (moments.total_deviation / n) ** 2)
    gain = unit * moments.total / n
    lower = gain - NormalDist().inv_cdf(CONFIDENCE) * deviation
    return min(max(gain, -largest), largest), deviation, min(max(lower, -largest), largest)
