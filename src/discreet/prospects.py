"""Before any data are touched: how much of a problem a budget lets so many users teach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from discreet.data.logs import LogFormat
from discreet.privacy.accounting import Budget, Neighbours
from discreet.privacy.one_hot import OneHot
from discreet.privacy.one_shot import OneShot

#: Evenly visited cells must reach this many times the number of steps at which a cell counts as known.
NEEDED = 5.0


@dataclass(frozen=True)
class Prospect:
    """How evenly visited cells would stand against the noise."""

    deviation: float  # of the noise on one item or counter
    visits: float  # of a cell, when visits are spread evenly
    needed_visits: float  # at which a cell counts as known
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
) -> Prospect:
    """From public numbers: the noise of a fit, and how many users would make evenly visited cells known."""
    spec = log.spec
    if algorithm == "dp-apvi":
        shares = (1.0, 1.0, 0.0) if known_rewards else None
        private = OneShot(budget, neighbours, shares=shares, episodes_per_user=log.episodes_per_user)
        visits = private.families(spec)[0]
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
        items = spec.num_states * (1 if known_rewards else 2)
        reach = math.log(items / 0.2) / math.sqrt(2.0)
        needed = max(5.0, (reach + 0.7) * deviation * math.sqrt(3.0))
    cells = spec.stages * log.num_states * log.num_actions
    per_user = log.episodes_per_user * log.horizon / cells
    visits_each = num_users * per_user
    signal = visits_each / needed if needed > 0 else math.inf
    users_needed = math.ceil(NEEDED * needed / per_user)
    if signal >= NEEDED:
        verdict = "enough users, if all state-action pairs are visited about evenly"
    elif signal >= 1.0:
        verdict = f"the well-visited part can be learned; {users_needed:,} users would be comfortable"
    else:
        verdict = (
            f"too few users: nothing but the most visited pairs can be learned; about {users_needed:,} are needed"
        )
    return Prospect(deviation, visits_each, needed, signal, users_needed, verdict)
