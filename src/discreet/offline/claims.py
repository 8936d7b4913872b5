"""What a certificate may claim: texts that follow from numbers, and numbers that follow from other numbers.

`problems_of` derives again whatever follows from something else: epsilon from the ledger; the ledger from the
learner, the problem and the unit; sizes from the policy; texts from numbers. It shares nothing with the code that
fits but the arithmetic of costs and texts that are always the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from discreet.offline.declaration import Declaration, Grid
from discreet.people.counts import Counts
from discreet.policy import Policy
from discreet.privacy.accounting import (
    Budget,
    Guarantee,
    LedgerEntry,
    Mechanism,
    Neighbours,
    Total,
    epsilon_of,
    laplace_entry,
    ledger_total,
    rho_of,
    unit_text,
)
from discreet.privacy.envelope import SMALLEST_SCALE
from discreet.privacy.families import entry_of
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, Geometric
from discreet.privacy.sums.streams import PRINTED
from discreet.privacy.trust.linear import printed_bounds, printed_noise, regression_cost

#: Derived and stated numbers agree up to this share: the margin of the scales and rounding, nothing that matters.
TOLERANCE = 2e-9

MEANING = (
    "This certificate proves consistency, not origin: its guarantee follows from its ledger, and its files are the "
    "ones it was written for. It does not prove that the noise was drawn as stated, nor who made it: whoever has the "
    "program can write a consistent folder about any policy. A signature says who made it, to those who know the key."
)
SIMULATED = (
    "simulation: the noise came from a seed, so that whoever knows the seed can take it away; nobody is protected"
)
NO_CLAIM = "a policy without privacy has no ledger and promises nothing"
NOT_PRIVATE = "no privacy: the data were used as they are, so that this policy may give away who is in the log"
RECORDED = (
    "releases_before and the totals are of everything that the ledger of this log records, whatever the log held at "
    "the time; the holder of the data keeps it, and what it does not record is not in them. The commitment is the "
    "SHA-256 of a secret salt and a digest of the log: it hides the log from all who cannot break SHA-256, while the "
    "salt, which is in the ledger only, stays secret; with it the holder can show which log this was."
)
UNRECORDED = (
    "no ledger records this release: how often these people's data were released before is not known, and nothing "
    "ties this certificate to a log"
)


# Texts that follow from numbers -------------------------------------------------------------------------------------


def protected(private: bool) -> list[str]:
    if not private:
        return []
    return [
        "every step of every user, all her episodes together: states, actions, rewards and how long she stayed",
        "all files of this folder together, however they are combined with other knowledge",
    ]


def not_protected(private: bool, num_users: int) -> list[str]:
    return [
        *(() if private else ("everybody in the log: the data were used as they are",)),
        f"that the log is of {num_users} users (their number is public), and everything that was declared",
        "what is true of people in general, whether or not a given person is in the log",
        "messages of the program to whoever ran it: numbers of unreadable rows, running time and memory",
    ]


def bound_text(enforced: bool, episodes_per_user: int, horizon: int) -> str:
    """How much of one user counts."""
    if not enforced:
        return "declared by the holder of the data, not enforced"
    m = episodes_per_user
    which = "the first episode" if m == 1 else f"the first {m} episodes"
    return f"{which} of every user by episode number, and of these the steps 0 to {horizon - 1}"


def declaration_json(grid: Grid) -> dict[str, Any]:
    """What was declared about the columns, and what became of them by the public rule."""
    words = [
        f"{column.name}: {'not used' if not cuts else ' | '.join(column.texts(cuts))}"
        for column, cuts in zip(grid.declaration.states, grid.cuts, strict=True)
    ]
    return {
        "digest": grid.declaration.digest,
        "columns": words,
        "unused": list(grid.unused),
        "cuts": [list(cuts) for cuts in grid.cuts],
        "text": grid.declaration.text,
    }


# What a certificate must be, derived again --------------------------------------------------------------------------


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
#: What may be told about who was asked.
PEOPLE = (
    "nobody here was learned from, by the identifiers in both logs",
    "that nobody here was learned from was declared and not checked: who was is not recorded here",
)
OTHER_PEOPLE = "the policy was learned from other people"
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
FAMILY = "one noisy family carries visits, transitions and rewards"
ONE_PART = "each user is in one part only: costs are the largest over parts, not their sum"
#: What a guarantee rests on beside the number of episodes, by learner ("tilted": one-hot, one step per user).
RESTS_ON = {
    "columns": ("bins and thresholds were declared without the data",),
    "tilted": ("weights of steps depend on the pilot's release only",),
    **dict.fromkeys(
        ("dp-pevi", "dp-vapvi"), ("features are public, and what is regressed depends on earlier releases only",)
    ),
}
SEEDED = "the noise is seeded: a simulation, which protects nobody"
KNOWN_SUCCESSORS = "the possible successors of every state and action are public"
#: Warnings beside those about privacy. The first three follow from how much stands out of the noise.
VACUOUS = r"vacuous: hardly more state-action pairs stand out than noise alone would show"
NEEDS = (
    r"(; (the well-visited part can be learned; [\d,]+ users would be comfortable"
    r"|too few users: nothing but the most visited pairs can be learned; about [\d,]+ are needed))?"
)
THIN = "only {:.0f} % of the state-action pairs stand out of the noise"
#: Why a release of what is above a threshold has no lower bound (privacy/trust/sparse.md).
THRESHOLDED = (
    "there are too many kinds of steps to hold how often each occurred: only those above a threshold of noise are "
    "released, and what lies below may be more than what lies above, so that no lower bound follows from them"
)
OTHERS = (
    re.escape(THRESHOLDED),
    r"the lower bound on the policy's value is [0-9.e+-]+, the least that is possible: the width of the release "
    r"proves nothing about it, which says little about how good it is",
    r"features were divided by their largest norm, [0-9.e+-]+",
)


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


def problems_of(document: Mapping[str, Any], policy: Policy) -> list[str]:
    """Whatever in a certificate does not follow from the rest of it, or does not fit its policy."""
    problems = _key_problems(document)
    if problems:
        return problems
    facts = _facts(document)
    problems += _problem_problems(document, facts)
    problems += _policy_problems(document, facts, policy)
    problems += _declaration_problems(document, facts, policy)
    problems += _text_problems(document, facts)
    for found in document.get("comparisons", ()):
        problems += _comparison_problems(document, found, facts)
    problems += _guarantee_problems(document, facts) if facts.private else _open_problems(document)
    return problems + _spending_problems(document)


def _key_problems(document: Mapping[str, Any]) -> list[str]:
    """Sections with keys that are missing, or that nobody knows."""
    problems = []
    name = document["algorithm"]["name"]
    if name not in SETTINGS:
        return [f"nothing is known about a learner {name!r}"]
    regressed = name in ("dp-pevi", "dp-vapvi")
    optional = {"declaration", "comparisons"} & set(document)
    expected: list[tuple[str, Any, frozenset[str]]] = [
        ("the certificate", document, KEYS[""] | ({"regressions"} if regressed else frozenset()) | optional),
        ("algorithm", document["algorithm"], SETTINGS[name] | {"name", "why", "mode"} | _said(document)),
    ]
    claimed = {key for key, value in _claims(document).items() if value is not None}
    expected += [
        (key, document[key], KEYS[key] | (claimed if key == "guarantee" else set()))
        for key in KEYS
        if key not in ("", "ledger", "regressions", "declaration", "comparisons")
    ]
    expected += [(key, document[key], KEYS[key]) for key in optional - {"comparisons"}]
    for line in document.get("comparisons", ()):
        expected += [("comparisons", line, KEYS["comparisons"]), ("guarantee", line["guarantee"], KEYS["guarantee"])]
        expected += [("ledger", entry, KEYS["ledger"] - {"users"}) for entry in line["ledger"]]
    for key in ("ledger", "regressions") if regressed else ("ledger",):
        expected += [(key, line, KEYS[key]) for line in document[key]]
    for where, section, keys in expected:
        for key in sorted(set(section) ^ keys):
            problems.append(f"{where} has {'an unknown' if key in section else 'no'} {key!r}")
    return problems


def _said(document: Mapping[str, Any]) -> set[str]:
    """Settings of a learner that are named only where they were said."""
    algorithm = document["algorithm"]
    said = {"beta"} if algorithm["name"] in FAILING else set()
    return (said | ({"noise"} if algorithm["name"] == "dp-vapvi" else set())) & set(algorithm)


def _printed(document: Mapping[str, Any]) -> bool:
    """Whether regressions carry the noise of [QW22] as printed."""
    if "noise" in document["algorithm"] and document["algorithm"]["noise"] != "printed":
        raise ValueError("noise is printed, or not spoken of")
    return "noise" in document["algorithm"]


def _claims(document: Mapping[str, Any]) -> dict[str, Any]:
    """What print claims for its noise, where that was used."""
    names = ("claimed_epsilon", "claimed_rho")
    return {name: document["guarantee"].get(name) for name in names} if _printed(document) else {}


def _whole(section: Mapping[str, Any], key: str, least: int = 1) -> int:
    value = section[key]
    if type(value) is not int or value < least:
        raise ValueError(f"{key} is {value!r}; it must be a whole number of at least {least}")
    return value


def _flag(section: Mapping[str, Any], key: str) -> bool:
    value = section[key]
    if type(value) is not bool:
        raise ValueError(f"{key} is {value!r}; it must be true or false")
    return value


def _number(section: Mapping[str, Any], key: str) -> float:
    value = section[key]
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{key} is {value!r}; it must be a number")
    return float(value)


def _not_negative(key: str, value: Any) -> float:
    if not _number({key: value}, key) >= 0.0:
        raise ValueError(f"{key} is {value!r}; it must not be negative")
    return float(value)


def _facts(document: Mapping[str, Any]) -> Claimed:
    unit, problem, algorithm = document["unit"], document["problem"], document["algorithm"]
    name = str(algorithm["name"])
    linear = SETTINGS[name] == _LINEAR
    parts = tuple(str(part) for part in algorithm["parts"]) if name == "columns" else ()
    return Claimed(
        name,
        name in ("one-hot", "columns") or name.startswith("dp-"),
        algorithm.get("steps_per_user") == "one",
        linear,
        linear and _flag(algorithm, "split"),
        _whole(unit, "users", 0),
        _whole(unit, "episodes_per_user"),
        _whole(problem, "horizon"),
        _whole(problem, "states"),
        _whole(problem, "actions"),
        _whole(problem, "planned_steps"),
        _flag(problem, "pooled"),
        _flag(problem, "first_visits"),
        _flag(problem, "rewards_known"),
        _whole(problem, "reward_units"),
        parts,
        _whole(algorithm, "depth") if name == "columns" else 0,
    )


def _released(facts: Claimed) -> dict[str, tuple[str, ...]]:
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


def _problem_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
    """The problem against the unit, the learner and the noise."""
    unit, problem, algorithm = document["unit"], document["problem"], document["algorithm"]
    enforced = _flag(unit, "enforced")
    gaussian = any(line["mechanism"] == "discrete-gaussian" for line in document["ledger"])
    low, high = (float(bound) for bound in problem["reward_range"])
    stages = 1 if facts.pooled else facts.horizon
    moves = stages * facts.states * facts.actions * facts.states
    known = problem["successors_known"]
    declared = re.fullmatch(r"([0-9]+) of ([0-9]+), sha256 of the packed bits [0-9a-f]{64}", str(known))
    one_hot = facts.name == "one-hot"
    ours = facts.name in ("one-hot", "columns")
    rules = {
        "an episode of the unit has as many steps as one of the problem": unit["steps_per_episode"] == facts.horizon,
        "the bound per user reads as its numbers do": unit["bound"]
        == bound_text(enforced, facts.episodes, facts.horizon),
        "only pooled one-hot counts are planned further than they are counted": facts.planned == facts.horizon
        or (one_hot and facts.pooled),
        "first visits are counted by one-hot where steps are pooled and the noise is Gaussian": facts.first_visits
        == (ours and facts.pooled and gaussian),
        "early_end is absorb or keep, and keep where the bound is not enforced": problem["early_end"] == "keep"
        or (problem["early_end"] == "absorb" and enforced),
        "who may leave early may end": _flag(problem, "may_end") or problem["early_end"] == "keep",
        "values are possible": _possible(document, facts),
        "reward_range is two numbers in order": -math.inf < low < high < math.inf,
        "regressions are made for every step, with unknown rewards": not (facts.linear and facts.pooled)
        and not (facts.linear and facts.rewards_known),
        "declared successors are some of those that there are, for one-hot": known is None
        or (one_hot and declared is not None and int(declared[1]) <= int(declared[2]) == moves),
        "only dp-vapvi splits the users": not facts.split or facts.name in ("dp-vapvi", "vapvi"),
        "the mode is practical or paper": algorithm["mode"] in (("practical",) if ours else ("practical", "paper")),
        "simulation is true or false": type(document["simulation"]) is bool,
    }
    problems = [f"not so: {rule}" for rule, holds in rules.items() if not holds]
    return problems + _noise_problems(document, facts)


def _noise_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
    """The noise that the learner reports against the scale of its ledger line, and other numbers of the learner."""
    algorithm = document["algorithm"]
    scales = {line["statistic"]: line for line in document["ledger"]}
    problems = []
    if facts.name == "one-hot":
        line, key, per_unit = scales.get("reported steps" if facts.tilted else "steps"), "noise_per_item", facts.units
        if algorithm["steps_per_user"] not in ("one", "all"):
            problems.append("steps per user are neither one nor all")
        numbers, due_number = _whole(algorithm, "items"), _items(document, facts)
    elif facts.name == "dp-apvi":
        line, key, per_unit = scales.get("visits"), "noise_per_visit_count", 1
        if algorithm["bonus"] not in ("bernstein", "hoeffding"):
            problems.append("the bonus is neither bernstein nor hoeffding")
        numbers, due_number = _whole(algorithm, "counters"), _counters(document, facts)
    elif facts.name == "columns":
        return _column_problems(document, facts)
    else:
        return [] if facts.name == "apvi" or _whole(algorithm, "dimension") else ["there are no features"]
    if due_number not in (None, numbers):
        problems.append(f"such a problem has {due_number} noisy numbers, not {numbers}")
    if line is None:
        return problems
    scale, stated = _number(line, "scale"), _number(algorithm, key)
    law = DiscreteLaplace if line["mechanism"] == "discrete-laplace" else DiscreteGaussian
    due = math.sqrt(law(scale).variance) / per_unit if scale > 0.0 else 0.0
    if not _agree(stated, due):
        problems.append(f"noise of scale {scale:g} deviates by {due:g}, not by {stated:g} ({key})")
    return problems


def _column_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
    """The learner for declared columns: its parts by the public rule, its choice, its noise."""
    algorithm, stated = document["algorithm"], document.get("declaration")
    if stated is None:
        return ["columns learns from declared columns, and none are stated"]
    declared = Declaration.from_toml(str(stated["text"]))
    strength = _strength(document, declared)
    every = tuple(COLUMN_PARTS)
    choices = {
        every: ("as now", "mode", "one-hot"),
        ("behaviour", "returns", "choice"): ("as now", "mode"),
        ("behaviour",): ("mode",),
    }
    sides = {facts.users * strength * margin >= 2000.0 for margin in MARGINS}
    due = {every if enough else ("behaviour", "returns", "choice") for enough in sides} | {("behaviour",)}
    whole = "choice" in facts.parts
    rules = {
        "the parts are those of the public rule, or what most people do alone": facts.parts in due,
        "what was chosen can be chosen": algorithm["chosen"] in choices.get(facts.parts, ()),
        "propensities are logged where a column of them was declared": algorithm["propensities"]
        == (None if not whole else "estimated" if declared.propensity is None else "logged"),
        "gains are clipped somewhere": (_number(algorithm, "clipped_at") > 0.0)
        if whole
        else not algorithm["clipped_at"],
    }
    problems = [f"not so: {rule}" for rule, holds in rules.items() if not holds]
    scales = {line["statistic"]: line for line in document["ledger"]}
    for statistic, key, unit in (
        ("steps", "noise_per_item", facts.units),
        ("leaf actions", "noise_per_leaf_count", 1),
    ):
        line = scales.get(statistic)
        if line is None:
            problems += [] if algorithm[key] is None else [f"there is no noise on {statistic}"]
            continue
        scale = _number(line, "scale")
        law = DiscreteLaplace if line["mechanism"] == "discrete-laplace" else DiscreteGaussian
        deviation = math.sqrt(law(scale).variance) / unit if scale > 0.0 else 0.0
        if not _agree(_number(algorithm, key), deviation):
            problems.append(f"noise of scale {scale:g} deviates by {deviation:g}, not by {algorithm[key]:g} ({key})")
    if "steps" in facts.parts:
        sizes = {
            facts._replace(states=declared.grid_at(facts.users, strength * margin).num_states) for margin in MARGINS
        }
        if algorithm["items"] not in {_items(document, each) for each in sizes}:
            problems.append("such a grid has another number of noisy numbers")
    return problems


def _others(document: Mapping[str, Any]) -> int:
    """Successors that are no states: to have ended, and nobody knows where."""
    problem = document["problem"]
    return _flag(problem, "may_end") + _flag(problem, "may_lead_nowhere_known")


def _possible(document: Mapping[str, Any], facts: Claimed) -> bool:
    """Whether what can be earned follows from the rewards, and the values lie in between."""
    problem, estimate = document["problem"], document["estimate"]
    low, high = (float(bound) for bound in problem["reward_range"])
    later = [low, high]
    if _others(document):
        later.append(_number(problem, "ended_pays"))
    due = [first + (facts.planned - 1) * after for first, after in ((low, min(later)), (high, max(later)))]
    stated = [float(bound) for bound in estimate["possible_values"]]
    room = TOLERANCE * max(1.0, *map(abs, due))
    values = (estimate[key] for key in ("value_estimate", "value_cautious", "value_lower"))
    within = all(value is None or due[0] - room <= float(value) <= due[1] + room for value in values)
    return within and len(stated) == 2 and all(abs(a - b) <= room for a, b in zip(stated, due, strict=True))


def _items(document: Mapping[str, Any], facts: Claimed) -> int | None:
    """(step, state, action, successor, paid) of the one-hot learner."""
    if document["problem"]["successors_known"] is not None:
        return None
    each = facts.states * facts.actions * (1 if facts.rewards_known else 2)
    following = facts.states + _others(document)
    return each * following if facts.pooled else each * ((facts.horizon - 1) * following + 1)


def _counters(document: Mapping[str, Any], facts: Claimed) -> int:
    """Visits, transitions and rewards, of the successors that are no states too."""
    states = facts.states + _others(document)
    return (1 if facts.pooled else facts.horizon) * states * facts.actions * (states + 2)


def _policy_problems(document: Mapping[str, Any], facts: Claimed, policy: Policy) -> list[str]:
    """The policy against the problem's sizes and the regressions."""
    problems = []
    shape = policy.horizon, policy.num_states, policy.num_actions
    declared = facts.planned, facts.states, facts.actions
    if shape != declared:
        problems.append(f"the policy has {shape} steps, states and actions, its certificate {declared}")
    if facts.name == "dp-vapvi":
        listed = {line["step"] for line in document["regressions"] if line["statistic"] == VARIANCES}
        for step in range(min(facts.horizon, policy.horizon) - 1):  # what is worth the same everywhere does not vary
            after = policy.values[step + 1]
            if step not in listed and after.max() - after.min() > 1e-5:
                problems.append(f"the {VARIANCES} do not list step {step}, after which values differ")
    return problems


def _declaration_problems(document: Mapping[str, Any], facts: Claimed, policy: Policy) -> list[str]:
    """What was declared about columns against the policy, the problem and the unit."""
    if "declaration" not in document:
        return [] if policy.grid is None else ["the policy is of columns that its certificate does not name"]
    stated, problem = document["declaration"], document["problem"]
    declared = Declaration.from_toml(str(stated["text"]))
    grid = Grid(declared, tuple(tuple(cuts) for cuts in stated["cuts"]))
    said = (*declared.reward_range, declared.ended_pays, declared.early_end, declared.episodes_per_user)
    due = (*problem["reward_range"], problem["ended_pays"], problem["early_end"], facts.episodes)
    sizes = declared.num_actions, declared.horizon, declared.pooled, declared.action_names
    rules = {
        "the declaration is written as its content is": stated == declaration_json(grid),
        "the policy's states are the declared columns'": policy.grid == grid
        and policy.state_names == grid.state_names,
        "the declared columns make the states of the problem": grid.num_states == facts.states,
        "actions, steps, rewards and episodes are as declared": said == due
        and sizes == (facts.actions, facts.horizon, facts.pooled, policy.action_names),
        "columns are cut by the public rule, or as often as a tree does": _few_cuts(document, facts, grid)
        or grid.cuts in _public_cuts(document, facts, declared),
    }
    return [f"not so: {rule}" for rule, holds in rules.items() if not holds]


def _few_cuts(document: Mapping[str, Any], facts: Claimed, grid: Grid) -> bool:
    """Whether the grid may be that of a tree."""
    treelike = facts.name == "columns" and document["algorithm"]["chosen"] in ("mode", "as now")
    sides = [2 if column.names is not None else 1 for column in grid.declaration.states]  # of a name alone
    splits = sum(-(-len(cuts) // each) for cuts, each in zip(grid.cuts, sides, strict=True))
    return treelike and splits < 2**facts.depth


#: Numbers of a public rule follow from rounded ones.
MARGINS = (1.0 - 1e-6, 1.0, 1.0 + 1e-6)


def _strength(document: Mapping[str, Any], declared: Declaration) -> float:
    """What the stated budget is worth to the public rule."""
    guarantee = document["guarantee"]
    if guarantee["rho"] is not None:
        return declared.strength(Budget.zcdp(_number(guarantee, "rho")), guarantee["neighbours"])
    if guarantee["epsilon"] is not None:
        return declared.strength(Budget.pure(_number(guarantee, "epsilon")), guarantee["neighbours"])
    return declared.strength(Budget.pure(math.inf))


def _public_cuts(
    document: Mapping[str, Any], facts: Claimed, declared: Declaration
) -> set[tuple[tuple[int, ...], ...]]:
    """Where the rule cuts columns for so many users and the stated budget, up to the margin of its numbers."""
    strength = _strength(document, declared)
    return {declared.grid_at(facts.users, strength * margin).cuts for margin in MARGINS}


def _text_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
    """Fixed texts verbatim; others as their numbers say them."""
    origin, estimate, simulation = document["origin"], document["estimate"], document["simulation"]
    problems = []
    texts = {
        "protected": protected(facts.private),
        "not_protected": not_protected(facts.private, facts.users),
        "meaning": MEANING,
    }
    for key, text in texts.items():
        if document[key] != text:
            problems.append(f"{key} does not say what such a certificate says")
    assumptions: list[str] = []
    if facts.private:
        assumptions += [f"at most {facts.users * facts.episodes} episodes, declared in advance"]
        assumptions += RESTS_ON.get("tilted" if facts.tilted else facts.name, ())
        assumptions += [SEEDED] if simulation else []
        assumptions += [PRINTED] if _printed(document) else []
        assumptions += [ONE_PART] if len(_released(facts)) > 1 else []
        assumptions += [] if document["problem"]["successors_known"] is None else [KNOWN_SUCCESSORS]
    if document["guarantee"]["assumptions"] != assumptions:
        problems.append(f"the guarantee rests on {'; '.join(assumptions) or 'nothing'}, and says something else")
    if "beta" in document["algorithm"] and not 0.0 < _number(document["algorithm"], "beta") < 1.0:
        problems.append("a failure probability lies between 0 and 1")
    if not _why(str(document["algorithm"]["why"]), facts):
        problems.append("the learner was chosen for a reason that is none")
    covered = _number(estimate, "covered_state_actions")
    if not 0.0 <= covered <= 1.0:
        problems.append("the share of state-action pairs that stand out is not between 0 and 1")
    thin = VACUOUS + NEEDS if covered <= 0.2 else THIN.format(100 * covered) + NEEDS if covered < 0.5 else None
    shown = list(document["warnings"])
    for text in [*([NOT_PRIVATE] if unprotected(document) else []), *([SIMULATED] if simulation else [])]:
        if text not in shown:
            problems.append(f"a warning is missing: {text}")
        else:
            shown.remove(text)
    fitting = [text for text in shown if thin is not None and re.fullmatch(thin, str(text))]
    if thin is not None and len(fitting) != 1:
        problems.append("a warning is missing: hardly anything stands out of the noise")
    unknown = [text for text in shown if text not in fitting and not any(re.fullmatch(p, str(text)) for p in OTHERS)]
    if unknown:
        problems.append("there is a warning that no fit makes")
    forms = {
        "serial": r"[0-9a-f]{32}",
        "date": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        "source_digest": r"[0-9a-f]{64}",
        **dict.fromkeys(("python", "numpy", "duckdb"), r"[0-9A-Za-z.+-]+"),
    }
    return problems + [f"{key} is none" for key, form in forms.items() if not re.fullmatch(form, str(origin[key]))]


def _why(text: str, facts: Claimed) -> bool:
    """Whether this can be said of a learner."""
    if facts.name == "columns":
        return text in ("asked for", *auto_reasons())
    if facts.name != "one-hot":
        printed = facts.name == "dp-apvi" and text == "the printed form was asked for"
        given = {
            "dp-vapvi": "features were given, and the printed form was asked for",
            "dp-pevi": "features were given; without weights a regression costs half",
        }
        return printed or text in ("asked for", given.get(facts.name))
    cells = (1 if facts.pooled else facts.horizon) * facts.states * facts.actions
    reach = f"{200.0 * cells:g} = 200 × {cells} cells"
    one = (f"one step per user, for users × ε reaches {reach}",)
    every = (
        "all steps, for the noise is Gaussian",
        f"all steps, for users × ε is below {reach}",
        "all steps, for ε is above 2",
        "all steps, counted where the data are",
        "all steps, for how many a user has is not enforced",
    )
    return text in {f"{why}; {how}" for why in ("asked for", FAMILY) for how in (one if facts.tilted else every)}


def auto_reasons() -> tuple[str, ...]:
    """Why the learner for declared columns is taken."""
    tree, choice = "a tree of what people do", "and a private choice with current practice"
    return (
        "asked to be safe: what most people do, and nothing else",
        f"users × ε reaches 5000: {tree}, a histogram, {choice}",
        f"users × ε is below 5000: {tree}, a histogram, {choice}",
        f"users × ε is below 2000: {tree}, {choice}",
    )


def _open_problems(document: Mapping[str, Any]) -> list[str]:
    """Nothing may be claimed where the data were used as they are."""
    guarantee = document["guarantee"]
    claims = guarantee["model"], guarantee["epsilon"], guarantee["rho"], guarantee["sentence"], document["ledger"]
    return [] if claims == ("none", None, None, "no privacy", []) else [NO_CLAIM]


def _regression_sensitivity(entry: Mapping[str, Any], document: Mapping[str, Any]) -> float:
    """In units of its noise: that of every regression, from its noise and where it clipped."""
    problem, unit, guarantee = document["problem"], document["unit"], document["guarantee"]
    listed = [line for line in document["regressions"] if line["statistic"] == entry["statistic"]]
    variances = entry["statistic"] == VARIANCES  # none after which everything is worth the same
    last = int(problem["horizon"]) - variances
    steps = {_whole(line, "step", 0) for line in listed}
    whole = steps <= set(range(last)) if variances else steps == set(range(last))
    vectors = {len(line[key]) for line in listed for key in ("clipped_at", "vector_deviations")}
    if not whole or len(listed) > len(steps) or entry["uses"] != last or vectors - {1 + variances}:
        raise ValueError(f"{entry['statistic']} are one for every step, {last} in all")
    if not listed:
        return float(entry["sensitivity"])
    if _printed(document):
        return _printed_sensitivity(entry, document, listed, last)
    costs = [
        regression_cost(
            guarantee["neighbours"],
            _not_negative("matrix_deviation", line["matrix_deviation"]),
            [_not_negative("clipped_at", bound) for bound in line["clipped_at"]],
            [_not_negative("vector_deviations", sigma) for sigma in line["vector_deviations"]],
            int(unit["episodes_per_user"]),
        )
        for line in listed
    ]
    if not _agree(min(costs), max(costs)):
        raise ValueError(f"{entry['statistic']} do not cost the same at every step")
    return math.sqrt(2.0 * max(costs)) * float(entry["scale"])


def _printed_sensitivity(
    entry: Mapping[str, Any], document: Mapping[str, Any], listed: Sequence[Mapping[str, Any]], steps: int
) -> float:
    """Of printed noise, whose regressions differ in cost: that of their mean, from the claim."""
    guarantee, horizon = document["guarantee"], int(document["problem"]["horizon"])
    part = "variances" if entry["statistic"] == VARIANCES else "values"
    told = {key: value for key, value in _claims(document).items() if value is not None}
    if len(told) != 1:
        raise ValueError("print claims a rho, or an epsilon at the delta")
    ((name, claimed),) = told.items()
    claim = _number({name: claimed}, name)
    rho = claim if name == "claimed_rho" else rho_of(claim, _number(guarantee, "delta"))
    deviation, vectors = printed_noise(rho, horizon, part)
    for line in listed:
        bounds = printed_bounds(horizon, part, int(line["step"]))
        noise = [_not_negative("noise", each) for each in (line["matrix_deviation"], *line["vector_deviations"])]
        same = all(_agree(a, b) for a, b in zip(noise, (deviation, *vectors), strict=True))
        if not same or any(c > b * (1.0 + TOLERANCE) for c, b in zip(line["clipped_at"], bounds, strict=True)):
            raise ValueError(f"{entry['statistic']} do not carry the noise that is printed for the claim")
    each = int(document["unit"]["episodes_per_user"])
    costs = [
        regression_cost(guarantee["neighbours"], deviation, printed_bounds(horizon, part, step), vectors, each)
        for step in range(steps)
    ]
    return math.sqrt(2.0 * math.fsum(costs) / steps) * float(entry["scale"])


def _sensitivity(entry: Mapping[str, Any], document: Mapping[str, Any], facts: Claimed) -> float:
    """In integer units (regressions: in units of their noise), from the problem and the unit alone."""
    if entry["statistic"] in (VALUES, VARIANCES):
        return _regression_sensitivity(entry, document)
    sides = 2 if document["guarantee"]["neighbours"] == "replace" else 1
    if entry["statistic"] == "choice":  # [−2 − 4λ, 1] in units of 2⁻¹⁶, λ = 2/√n
        return sides * (2**16 + math.ceil((2.0 + 4.0 * 2.0 / math.sqrt(max(facts.users, 4))) * 2**16))
    if entry["statistic"] == "returns":
        return sides if entry["norm"] == "l1" else math.sqrt(sides)
    if entry["statistic"] in ("splits", "leaf actions"):
        return (sides if entry["norm"] == "l1" else math.sqrt(sides)) * facts.horizon * facts.episodes
    steps = {"pilot steps": 1, "reported steps": 1}.get(entry["statistic"], facts.horizon)
    units = {"visits": 1, "transitions": 1, "pilot steps": 1}.get(entry["statistic"], facts.units)
    piled = facts.pooled and not (entry["statistic"] == "steps" and facts.first_visits)
    found = Counts.sensitivity(steps, document["guarantee"]["neighbours"], piled)
    return (found.l1 if entry["norm"] == "l1" else found.l2) * units * facts.episodes


def _guarantee_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
    """The ledger from the learner, the costs from the ledger, the guarantee from the costs."""
    problems = []
    guarantee = document["guarantee"]
    parts: dict[str, list[LedgerEntry]] = {}
    listed: dict[str, list[str]] = {}
    for line in document["ledger"]:
        listed.setdefault(str(line["users"]), []).append(str(line["statistic"]))
    due_parts = _released(facts)
    if {part: tuple(found) for part, found in listed.items()} != due_parts:
        words = "; ".join(f"{', '.join(found)} of {part}" for part, found in due_parts.items())
        return [f"{facts.name} releases {words}, and the ledger lists something else"]
    chosen = {line["statistic"] for line in document["ledger"] if line["mechanism"] == NOISY_MAX}
    if chosen != {"splits", "choice"} & set(due_parts.get("all users", ())):
        return ["splits and choices are made by the largest of noisy scores, and nothing else is"]
    kinds = {(line["mechanism"], line["norm"]) for line in document["ledger"] if line["statistic"] not in chosen}
    pure = kinds == {("discrete-laplace", "l1")}
    known = pure or kinds == {("discrete-gaussian", "l2")}
    if not known or (facts.linear and pure) or (facts.tilted and not pure):
        words = ", ".join(sorted(f"{law!r} in {norm!r}" for law, norm in kinds))
        return [f"nothing is known about such noise: {words}"]
    for line in document["ledger"]:
        sensitivity, scale = _number(line, "sensitivity"), _number(line, "scale")
        times = facts.depth if line["statistic"] == "splits" else 1
        if line["statistic"] not in (VALUES, VARIANCES) and (line["uses"] != times or type(line["uses"]) is not int):
            problems.append(f"{line['statistic']} are released {'once' if times == 1 else f'{times} times'}")
        due = _sensitivity(line, document, facts) if scale > 0.0 else sensitivity
        if not _agree(sensitivity, due):
            problems.append(f"one user can move {line['statistic']} by {due:g}, not by {sensitivity:g}")
            sensitivity = due
        law: Mechanism = "laplace" if pure else "gaussian"
        derived = entry_of(str(line["statistic"]), law, sensitivity, scale, _whole(line, "uses"))
        if line["statistic"] in chosen:
            ratio = Geometric(scale).log_ratio if scale > 0.0 else math.inf
            derived = laplace_entry(
                str(line["statistic"]), sensitivity, scale, _whole(line, "uses"), ratio, NOISY_MAX
            )
            if line["norm"] != "l1":
                problems.append(f"{line['statistic']} are charged by a range")
        stated = math.inf if line["cost"] is None else _number(line, "cost")
        if not _agree(stated, derived.cost) or _number(line, "delta") != 0.0:
            problems.append(f"noise of scale {scale:g} on {line['statistic']} costs {derived.cost:g}, not {stated:g}")
        parts.setdefault(str(line["users"]), []).append(derived)
    totals = [ledger_total(entries) for entries in parts.values()]
    delta = _number(guarantee, "delta")
    epsilon = max(_epsilon(total, delta) for total in totals)
    stated = math.inf if guarantee["epsilon"] is None else _number(guarantee, "epsilon")
    if not _agree(stated, epsilon):
        problems.append(
            f"the ledger gives epsilon = {epsilon:g} at delta = {delta:g}, the certificate says {stated:g}"
        )
    rho = max(total.rho for total in totals)
    if pure or rho == math.inf:
        if guarantee["rho"] is not None or (pure and delta != 0.0):
            problems.append("Laplace noise gives an epsilon, without delta and rho")
    elif not _agree(_number(guarantee, "rho"), rho):
        problems.append(f"the ledger gives rho = {rho:g}, the certificate says {guarantee['rho']:g}")
    unit = unit_text(facts.episodes)
    again = Guarantee("central", stated, delta, guarantee["rho"], guarantee["neighbours"], unit, **_claims(document))
    if guarantee["unit"] != unit or guarantee["sentence"] != again.sentence() or guarantee["model"] != "central":
        problems.append(f"the guarantee reads {guarantee['sentence']!r}; its numbers read {again.sentence()!r}")
    return problems


def _comparison_problems(document: Mapping[str, Any], found: Mapping[str, Any], facts: Claimed) -> list[str]:
    """A comparison with current practice: what is said follows from its numbers, what is promised from its ledger."""
    problem, guarantee = document["problem"], found["guarantee"]
    gain, deviation, rollout = (_number(found, key) for key in ("gain", "deviation", "rollout"))
    largest, users = _number(found, "largest_possible"), _whole(found, "users")
    low, high = (float(bound) for bound in document["estimate"]["possible_values"])
    bound = gain - NormalDist().inv_cdf(0.95) * deviation
    lower = None if found["lower"] is None else _number(found, "lower")
    share = f"{100 * rollout:g} %"
    how = "followed at every decision" if rollout == 1.0 else f"followed in {share} of all decisions"
    said = f"not shown to be better than now, {how}"
    if lower is not None:
        said = f"better than now by at least {lower:.4g} per stay with 95 % confidence, {how}"
    sides = 2 if guarantee["neighbours"] == "replace" else 1
    laws = {entry["mechanism"] for entry in found["ledger"]}
    pure = laws == {"discrete-laplace"}
    norm = 1.0 if pure else 0.5
    due = {
        "returns": float(sides) ** norm,
        "gains": (5.0 if sides == 2 else 4.0) * 2**16,
        "squared gains": 4.0 * 2**16,
    }
    law: Mechanism = "laplace" if pure else "gaussian"
    entries = [
        entry_of(str(entry["statistic"]), law, due[str(entry["statistic"])], _number(entry, "scale"), 1)
        for entry in found["ledger"]
    ]
    total, delta = ledger_total(entries), _number(guarantee, "delta")
    stated = math.inf if guarantee["epsilon"] is None else _number(guarantee, "epsilon")
    rho = None if pure else _number(guarantee, "rho")
    unit = unit_text(facts.episodes)
    again = Guarantee("central", stated, delta, rho, guarantee["neighbours"], unit)
    rests_on = [f"at most {users * facts.episodes} episodes, declared in advance", OTHER_PEOPLE]
    rests_on += [SEEDED] if found["simulation"] is True else []
    agree = all(
        _agree(_number(line, "sensitivity"), entry.sensitivity)
        and _agree(_number(line, "cost"), entry.cost)
        and (line["uses"], line["delta"]) == (1, 0.0)
        and line["norm"] == ("l1" if pure else "l2")
        for line, entry in zip(found["ledger"], entries, strict=True)
    )
    rules = {
        "policies of declared columns are compared": "declaration" in document
        and problem["planned_steps"] == facts.horizon,
        "a roll-out is a share": 0.0 < rollout <= 1.0,
        "the sentence reads as the numbers do": found["sentence"] == said and found["shown"] is (lower is not None),
        "the bound follows from the estimate": (
            bound <= TOLERANCE * largest if lower is None else lower > 0.0 and abs(lower - bound) <= 1e-9 * largest
        )
        and found["confidence"] == 0.95,
        "gains are possible": abs(gain) <= largest * (1.0 + 1e-9) and abs(largest - (high - low)) <= 1e-9 * largest,
        "returns, gains and their squares are released": [line["statistic"] for line in found["ledger"]] == list(due),
        "the noise is of one kind that is known": laws in ({"discrete-laplace"}, {"discrete-gaussian"}),
        "the ledger follows from what one person can move": agree,
        "the guarantee follows from the ledger": _agree(stated, _epsilon(total, delta))
        and (pure or _agree(_number(guarantee, "rho"), total.rho))
        and (not pure or (guarantee["rho"] is None and delta == 0.0)),
        "the guarantee reads as its numbers do": guarantee["sentence"] == again.sentence()
        and (guarantee["unit"], guarantee["model"], guarantee["assumptions"]) == (unit, "central", rests_on),
        "who was asked is told in known words": found["people"] in PEOPLE,
        "simulation is true or false": type(found["simulation"]) is bool,
        "serial and date are such": re.fullmatch(r"[0-9a-f]{32}", str(found["serial"])) is not None
        and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(found["date"])) is not None,
    }
    return [f"of a comparison, not so: {rule}" for rule, holds in rules.items() if not holds]


def simulated(document: Mapping[str, Any]) -> bool:
    """Whether the noise of any comparison came from a seed."""
    found = document.get("comparisons", ())
    return any(not isinstance(line, dict) or line.get("simulation") is not False for line in found)


def _spending_problems(document: Mapping[str, Any]) -> list[str]:
    """All releases together cost at least what this one costs, and no more where it is the first."""
    spending, guarantee = document["spending"], document["guarantee"]
    before, line, committed = spending["releases_before"], spending["ledger_line"], spending["commitment"]
    numbers = ("epsilon", "delta", "rho")
    stated = [spending[f"total_{name}_with_this_release"] for name in numbers]
    if spending["meaning"] != (UNRECORDED if line is None else RECORDED):
        return ["what is said about earlier releases is not what such a certificate says"]
    if line is None:
        empty = (before, committed, spending["total"], *stated) == (None,) * 6
        return [] if empty else ["earlier releases are counted, and no ledger records them"]
    _whole(spending, "releases_before", 0)
    for value in (line, *(() if committed is None else (committed,))):
        if not re.fullmatch(r"[0-9a-f]{64}", str(value)):
            return ["a commitment or ledger line is no SHA-256"]
    sentences = {"no privacy"}
    if not (guarantee["model"] == "none" or unprotected(document)):
        relations: tuple[Neighbours, ...] = ("replace", "zero-out")
        relations = relations[:1] if guarantee["neighbours"] == "replace" else relations
        epsilon, delta, rho = stated
        for relation in relations if epsilon is not None or rho is not None else ():
            total = Guarantee("central", math.inf if epsilon is None else epsilon, delta, rho, relation)
            sentences.add(total.sentence())
        own = [guarantee[name] for name in numbers]
        both = [(a, b) for a, b in zip(stated, own, strict=True) if a is not None and b is not None]
        more = any(not _agree(a, b) for a, b in both) or len(both) < sum(b is not None for b in own)
        finest = any(line["scale"] <= SMALLEST_SCALE for line in document["ledger"])  # then less is spent than stated
        if _costs_less(stated, own) or (before == 0 and more and not finest):
            return ["all releases together do not cost what they must, given what this one costs"]
    if stated[0] is None and stated[1] != 0.0:
        return ["what was spent in all has a delta and no epsilon"]
    nothing = stated[0] is None and stated[2] is None
    if spending["total"] not in sentences or (spending["total"] == "no privacy") != nothing:
        return [f"what was spent in all reads {spending['total']!r}; its numbers read otherwise"]
    return []


def _costs_less(total: list[float | None], own: list[float | None]) -> bool:
    """Whether all releases (ε, δ, ρ) are said to cost less than one of them; what promises nothing does not.

    ε is compared at the δ of all: ρ, of pure releases ε²/2, may be converted there.
    """
    (epsilon, delta, rho), (own_epsilon, own_delta, own_rho) = total, own
    if epsilon is None and rho is None:
        return False
    assert delta is not None
    assert own_delta is not None
    pairs = [(delta, own_delta), (rho, own_rho)]
    if own_epsilon is not None:
        moved = own_epsilon**2 / 2.0 if own_rho is None else own_rho
        pairs.append((epsilon, min(own_epsilon, epsilon_of(moved, delta)) if delta > 0.0 else own_epsilon))
    return any(a is not None and b is not None and a < b * (1.0 - TOLERANCE) for a, b in pairs)


def _agree(stated: float, derived: float) -> bool:
    return stated == derived or abs(stated - derived) <= TOLERANCE * derived


def _epsilon(total: Total, delta: float) -> float:
    if total.gaussian_rho == 0.0:
        return total.epsilon
    return epsilon_of(total.rho, delta) if delta > 0.0 and math.isfinite(total.rho) else math.inf


def unprotected(document: Mapping[str, Any]) -> bool:
    """Whether no privacy or no finite budget is stated."""
    stated = document.get("guarantee")
    if not isinstance(stated, dict):
        return False
    return stated.get("model") == "none" or (stated.get("epsilon") is None and stated.get("rho") is None)
