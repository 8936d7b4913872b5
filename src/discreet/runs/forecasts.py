"""What public numbers promise of a fit: how what is to be learned stands against the noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from discreet.people.logs import LogFormat
from discreet.privacy.accounting import Budget, Neighbours
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.tails import symmetric_matrix_width
from discreet.privacy.trust.linear import LinearMoments
from discreet.privacy.trust.one_hot import OneHot
from discreet.problem import Mask

#: In a log, evenly visited cells must reach this many times the number of steps at which a cell counts as known.
NEEDED_STEPS = 5.0
#: Below this signal not even cells that are visited fifty times as often as others become known.
FAR_TOO_FEW = 0.02


@dataclass(frozen=True)
class Forecast:
    """How what is to be learned stands against the noise, and what that means; None where a number has no meaning."""

    visits: float  # of a cell, or direction of features, when visits are spread evenly
    deviation: float  # standard deviation of the noise on a count, item or moment
    signal: float  # visits over `deviation`, or over `needed_visits`
    feasible: bool
    verdict: str
    width_share: float | None = None  # largest width of a count over the number of users
    needed_visits: float | None = None  # at which a cell of a log counts as known
    users_needed: int | None = None  # about; more than there are, unless it is feasible

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; infinite numbers are null."""
        return finite(asdict(self))


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def forecast_fit(
    log: LogFormat,
    budget: Budget,
    num_users: int,
    neighbours: Neighbours = "replace",
    algorithm: str = "one-hot",
    known_rewards: bool = False,
    dimension: int | None = None,
    successors: Mask | None = None,
) -> Forecast:
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
        deviation = tables.families(spec)[0].deviation
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
    visits = num_users * per_user
    signal = visits / needed if needed > 0 else math.inf
    enough = math.ceil(NEEDED_STEPS * needed / per_user)
    evenly = "state-action pairs are visited" if dimension is None else "directions of the features are taken"
    if signal >= NEEDED_STEPS:
        verdict = f"enough users, if all {evenly} about evenly"
    elif signal >= 1.0:
        verdict = f"the well-visited part can be learned; {enough:,} users would be comfortable"
    else:
        verdict = f"too few users: nothing but the most visited pairs can be learned; about {enough:,} are needed"
    feasible = signal >= NEEDED_STEPS
    return Forecast(visits, deviation, signal, feasible, verdict, needed_visits=needed, users_needed=enough)


def check_users(outlook: Forecast, num_users: int) -> None:
    """Refuse, before anything is spent, what could teach nothing: a function of public numbers."""
    if outlook.signal < FAR_TOO_FEW:
        raise ValueError(
            f"{num_users:,} users are far too few for this budget and so many states, actions and steps: about "
            f"{outlook.users_needed:,} are needed, and nothing was spent; go on with --anyway (anyway=True)"
        )
