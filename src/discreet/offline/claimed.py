"""What a certificate holds: the keys of its sections, its numbers, and what follows from these alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from discreet.privacy.accounting import Total, epsilon_of

#: Derived and stated numbers agree up to this share: the margin of the scales and rounding, nothing that matters.
TOLERANCE = 2e-9


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Keys of every section; those of the learner are its own.
KEYS: dict[str, frozenset[str]] = {
    "": _keys(
        "format version simulation origin guarantee unit problem algorithm estimate protected not_protected warnings "
        "meaning spending ledger digests"
    ),
    "origin": _keys("serial date source_digest python numpy duckdb operator purpose"),
    "guarantee": _keys("model epsilon delta rho neighbours unit sentence assumptions"),
    "unit": _keys("users episodes_per_user steps_per_episode bound enforced"),
    "problem": _keys(
        "states actions horizon pooled first_visits early_end may_end may_lead_nowhere_known reward_range ended_pays "
        "reward_units rewards_known planned_steps successors_known"
    ),
    "estimate": _keys(
        "value_estimate value_cautious value_lower possible_values width failure_probability_of_the_lower_value "
        "the_lower_value_is values_are covered_state_actions"
    ),
    "spending": _keys(
        "commitment releases_before total total_epsilon_with_this_release total_delta_with_this_release "
        "total_rho_with_this_release ledger_line meaning"
    ),
    "ledger": _keys("users statistic mechanism norm sensitivity scale uses cost delta"),
    "regressions": _keys("statistic step matrix_deviation vector_deviations clipped_at"),
    "declaration": _keys("digest columns unused cuts text"),
    "comparisons": _keys(
        "rollout gain lower confidence deviation largest_possible shown sentence users guarantee ledger people "
        "serial date simulation"
    ),
}
_TABULAR = _keys("bonus noise_per_visit_count counters")
_LINEAR = _keys("dimension split penalty_factor")
SETTINGS: dict[str, frozenset[str]] = {
    "one-hot": _keys("steps_per_user noise_per_item items confidence_scale hiding cells_read_over_all_steps spread"),
    "columns": _keys("parts chosen depth noise_per_leaf_count noise_per_item items propensities clipped_at"),
    **dict.fromkeys(("dp-apvi", "apvi"), _TABULAR),
    **dict.fromkeys(("dp-pevi", "dp-vapvi", "pevi", "vapvi"), _LINEAR),
}
#: Learners with a failure probability, which their certificates name where it was said.
FAILING = ("dp-apvi", "apvi", "dp-pevi", "pevi", "dp-vapvi")
#: Statistics of the learner for declared columns, by part and in order; each part has its share of the budget.
COLUMN_PARTS = {
    "behaviour": ("splits", "leaf actions"),
    "steps": ("steps",),
    "returns": ("returns",),
    "choice": ("choice",),
}
NOISY_MAX = "noisy-max"
VALUES, VARIANCES = "regressions of values", "regressions of variances"


class Claimed(NamedTuple):
    """Numbers of a certificate, each of the right kind and within its range."""

    name: str
    private: bool
    tilted: bool
    linear: bool
    split: bool
    users: int
    episodes: int  # per user
    horizon: int
    states: int
    actions: int
    planned: int
    pooled: bool
    first_visits: bool
    rewards_known: bool
    units: int
    parts: tuple[str, ...] = ()  # of the learner for declared columns
    depth: int = 0


def facts_of(document: Mapping[str, Any]) -> Claimed:
    unit, problem, algorithm = document["unit"], document["problem"], document["algorithm"]
    name = str(algorithm["name"])
    linear = SETTINGS[name] == _LINEAR
    parts = tuple(str(part) for part in algorithm["parts"]) if name == "columns" else ()
    return Claimed(
        name,
        name in ("one-hot", "columns") or name.startswith("dp-"),
        algorithm.get("steps_per_user") == "one",
        linear,
        linear and flag_of(algorithm, "split"),
        whole_of(unit, "users", 0),
        whole_of(unit, "episodes_per_user"),
        whole_of(problem, "horizon"),
        whole_of(problem, "states"),
        whole_of(problem, "actions"),
        whole_of(problem, "planned_steps"),
        flag_of(problem, "pooled"),
        flag_of(problem, "first_visits"),
        flag_of(problem, "rewards_known"),
        whole_of(problem, "reward_units"),
        parts,
        whole_of(algorithm, "depth") if name == "columns" else 0,
    )


def released_by(facts: Claimed) -> dict[str, tuple[str, ...]]:
    """Which statistics each part of the users enters: fixed for every learner."""
    if facts.name == "one-hot":
        if facts.tilted:
            return {"pilot users": ("pilot steps",), "other users": ("reported steps",)}
        return {"all users": ("steps",)}
    if facts.name == "columns":
        statistics = {name: names for name, names in COLUMN_PARTS.items() if name in facts.parts}
        return {"all users": tuple(name for names in statistics.values() for name in names)}
    if facts.name == "dp-apvi":
        return {"all users": ("visits", "transitions", *(() if facts.rewards_known else ("rewards",)))}
    if facts.name == "dp-pevi" or facts.horizon == 1:  # after the last step nothing varies
        return {("users for values" if facts.split else "all users"): (VALUES,)}
    if facts.split:
        return {"users for values": (VALUES,), "users for variances": (VARIANCES,)}
    return {"all users": (VALUES, VARIANCES)}


def other_successors(document: Mapping[str, Any]) -> int:
    """Successors that are no states: to have ended, and nobody knows where."""
    problem = document["problem"]
    return flag_of(problem, "may_end") + flag_of(problem, "may_lead_nowhere_known")


def items_of(document: Mapping[str, Any], facts: Claimed) -> int | None:
    """(step, state, action, successor, paid) of the one-hot learner."""
    if document["problem"]["successors_known"] is not None:
        return None
    each = facts.states * facts.actions * (1 if facts.rewards_known else 2)
    following = facts.states + other_successors(document)
    return each * following if facts.pooled else each * ((facts.horizon - 1) * following + 1)


def said_settings(document: Mapping[str, Any]) -> set[str]:
    """Settings of a learner that are named only where they were said."""
    algorithm = document["algorithm"]
    said = {"beta"} if algorithm["name"] in FAILING else set()
    return (said | ({"noise"} if algorithm["name"] == "dp-vapvi" else set())) & set(algorithm)


def is_printed(document: Mapping[str, Any]) -> bool:
    """Whether regressions carry the noise of [QW22] as printed."""
    if "noise" in document["algorithm"] and document["algorithm"]["noise"] != "printed":
        raise ValueError("noise is printed, or not spoken of")
    return "noise" in document["algorithm"]


def printed_claims(document: Mapping[str, Any]) -> dict[str, Any]:
    """What print claims for its noise, where that was used."""
    names = ("claimed_epsilon", "claimed_rho")
    return {name: document["guarantee"].get(name) for name in names} if is_printed(document) else {}


def simulated(document: Mapping[str, Any]) -> bool:
    """Whether the noise of any comparison came from a seed."""
    found = document.get("comparisons", ())
    return any(not isinstance(line, dict) or line.get("simulation") is not False for line in found)


def unprotected(document: Mapping[str, Any]) -> bool:
    """Whether no privacy or no finite budget is stated."""
    stated = document.get("guarantee")
    if not isinstance(stated, dict):
        return False
    return stated.get("model") == "none" or (stated.get("epsilon") is None and stated.get("rho") is None)


def whole_of(section: Mapping[str, Any], key: str, least: int = 1) -> int:
    value = section[key]
    if type(value) is not int or value < least:
        raise ValueError(f"{key} is {value!r}; it must be a whole number of at least {least}")
    return value


def flag_of(section: Mapping[str, Any], key: str) -> bool:
    value = section[key]
    if type(value) is not bool:
        raise ValueError(f"{key} is {value!r}; it must be true or false")
    return value


def number_of(section: Mapping[str, Any], key: str) -> float:
    value = section[key]
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{key} is {value!r}; it must be a number")
    return float(value)


def not_negative(key: str, value: Any) -> float:
    if not number_of({key: value}, key) >= 0.0:
        raise ValueError(f"{key} is {value!r}; it must not be negative")
    return float(value)


def agrees(stated: float, derived: float) -> bool:
    return stated == derived or abs(stated - derived) <= TOLERANCE * derived


def epsilon_at(total: Total, delta: float) -> float:
    if total.gaussian_rho == 0.0:
        return total.epsilon
    return epsilon_of(total.rho, delta) if delta > 0.0 and math.isfinite(total.rho) else math.inf
