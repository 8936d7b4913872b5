"""Before any data are touched: how much of a problem a budget lets so many users teach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from discreet.people.logs import LogFormat
from discreet.privacy.accounting import Budget, Neighbours
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.tails import symmetric_matrix_width
from discreet.privacy.trust.linear import LinearMoments
from discreet.privacy.trust.one_hot import OneHot
from discreet.problem import Mask

#: Below this signal not even cells that are visited fifty times as often as others become known.
FAR_TOO_FEW = 0.02
#: Evenly visited cells must reach this many times the number of steps at which a cell counts as known.
NEEDED = 5.0


@dataclass(frozen=True)
class Prospect:
    """How evenly visited cells, or directions of features, would stand against the noise."""

    deviation: float  # of the noise on one item, counter or moment
    visits: float  # of a cell or direction, when visits are spread evenly
    needed_visits: float  # at which it counts as known
    signal: float  # visits / needed
    users_needed: int
    verdict: str

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def forecast(
    log: LogFormat,
    budget: Budget,
    num_users: int,
    neighbours: Neighbours = "replace",
    algorithm: str = "one-hot",
    known_rewards: bool = False,
    dimension: int | None = None,
    successors: Mask | None = None,
) -> Prospect:
    """From public numbers: the noise of a fit, and how many users would make evenly visited cells known.

    `successors` (G, S, A, S): those that are declared possible.
    With the `dimension` of features: how many make the smallest eigenvalue of Σφφᵀ stand out of the matrix noise.
    """
    spec = log.spec
    cells, following = spec.stages * log.num_states * log.num_actions, float(spec.num_states)
    if successors is not None:
        cells = max(int(successors.any(axis=-1).sum()), 1)
        following = float(successors.sum()) / cells
    per_user = log.episodes_per_user * log.horizon / cells
    if dimension is not None:  # a step has one row per user and episode, spread over the directions of the features
        private = LinearMoments(budget, neighbours, algorithm == "dp-vapvi", episodes_per_user=log.episodes_per_user)
        deviation = private.deviations(private.shares(log.horizon)["values"], [1.0])[0]
        needed = symmetric_matrix_width(deviation, dimension, private.beta) if deviation > 0 else 0.0
        per_user = log.episodes_per_user / dimension
    elif algorithm == "dp-apvi":
        shares = (1.0, 1.0, 0.0) if known_rewards else None
        tables = OneShot(budget, neighbours, shares=shares, episodes_per_user=log.episodes_per_user)
        visits = tables.families(spec)[0]
        deviation = visits.deviation
        needed = 4.0 * deviation
    else:
        pooled_gaussian = log.pooled and budget.kind != "pure"
        one_hot = OneHot(
            budget,
            neighbours,
            episodes_per_user=log.episodes_per_user,
            first_visits=log.first_visits or pooled_gaussian,
        )
        scale = one_hot.entry(spec).scale * spec.grid
        deviation = scale * (math.sqrt(2.0) if one_hot.mechanism == "laplace" else 1.0)
        items = max(following, 1.0) * (1 if known_rewards else 2)
        reach = math.log(items / 0.2) / math.sqrt(2.0)
        needed = max(5.0, (reach + 0.7) * deviation * math.sqrt(3.0))
    visits_each = num_users * per_user
    signal = visits_each / needed if needed > 0 else math.inf
    users_needed = math.ceil(NEEDED * needed / per_user)
    evenly = "state-action pairs are visited" if dimension is None else "directions of the features are taken"
    if signal >= NEEDED:
        verdict = f"enough users, if all {evenly} about evenly"
    elif signal >= 1.0:
        verdict = f"the well-visited part can be learned; {users_needed:,} users would be comfortable"
    else:
        verdict = (
            f"too few users: nothing but the most visited pairs can be learned; about {users_needed:,} are needed"
        )
    return Prospect(deviation, visits_each, needed, signal, users_needed, verdict)


def check_users(prospect: Prospect, num_users: int) -> None:
    """Refuse, before anything is spent, what could teach nothing: a function of public numbers."""
    if prospect.signal < FAR_TOO_FEW:
        raise ValueError(
            f"{num_users:,} users are far too few for this budget and so many states, actions and steps: about "
            f"{prospect.users_needed:,} are needed, and nothing was spent; go on with --anyway (anyway=True)"
        )
