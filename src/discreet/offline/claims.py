"""What a certificate may claim: numbers that follow from other numbers, and texts that follow from numbers.

`problems_of` derives again whatever follows from something else: epsilon from the ledger; the ledger from the
learner, the problem and the unit (`privacy_claims`); the grid of columns from what was declared (`column_claims`);
sizes from the policy; texts from numbers. It shares nothing with the code that fits but the arithmetic of costs and
texts that are always the same (`wording`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from discreet.offline.claimed import (
    KEYS,
    SETTINGS,
    TOLERANCE,
    VARIANCES,
    Claimed,
    agrees,
    facts_of,
    flag_of,
    is_printed,
    items_of,
    number_of,
    other_successors,
    printed_claims,
    released_by,
    said_settings,
    unprotected,
    whole_of,
)
from discreet.offline.column_claims import column_problems, declaration_problems
from discreet.offline.privacy_claims import (
    comparison_problems,
    guarantee_problems,
    open_problems,
    spending_problems,
)
from discreet.offline.wording import (
    FAMILY,
    KNOWN_SUCCESSORS,
    MEANING,
    NEEDS,
    NOT_PRIVATE,
    ONE_PART,
    OTHERS,
    RESTS_ON,
    SEEDED,
    SIMULATED,
    THIN,
    VACUOUS,
    auto_reasons,
    bound_text,
    not_protected,
    protected,
)
from discreet.policy import Policy
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace
from discreet.privacy.sums.streams import PRINTED


def problems_of(document: Mapping[str, Any], policy: Policy) -> list[str]:
    """Whatever in a certificate does not follow from the rest of it, or does not fit its policy."""
    problems = _key_problems(document)
    if problems:
        return problems
    facts = facts_of(document)
    problems += _problem_problems(document, facts)
    problems += _policy_problems(document, facts, policy)
    problems += declaration_problems(document, facts, policy)
    problems += _text_problems(document, facts)
    for found in document.get("comparisons", ()):
        problems += comparison_problems(document, found, facts)
    problems += guarantee_problems(document, facts) if facts.private else open_problems(document)
    return problems + spending_problems(document)


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
        ("algorithm", document["algorithm"], SETTINGS[name] | {"name", "why", "mode"} | said_settings(document)),
    ]
    claimed = {key for key, value in printed_claims(document).items() if value is not None}
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


def _problem_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
    """The problem against the unit, the learner and the noise."""
    unit, problem, algorithm = document["unit"], document["problem"], document["algorithm"]
    enforced = flag_of(unit, "enforced")
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
        "who may leave early may end": flag_of(problem, "may_end") or problem["early_end"] == "keep",
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
        numbers, due_number = whole_of(algorithm, "items"), items_of(document, facts)
    elif facts.name == "dp-apvi":
        line, key, per_unit = scales.get("visits"), "noise_per_visit_count", 1
        if algorithm["bonus"] not in ("bernstein", "hoeffding"):
            problems.append("the bonus is neither bernstein nor hoeffding")
        numbers, due_number = whole_of(algorithm, "counters"), _counters(document, facts)
    elif facts.name == "columns":
        return column_problems(document, facts)
    else:
        return [] if facts.name == "apvi" or whole_of(algorithm, "dimension") else ["there are no features"]
    if due_number not in (None, numbers):
        problems.append(f"such a problem has {due_number} noisy numbers, not {numbers}")
    if line is None:
        return problems
    scale, stated = number_of(line, "scale"), number_of(algorithm, key)
    law = DiscreteLaplace if line["mechanism"] == "discrete-laplace" else DiscreteGaussian
    due = math.sqrt(law(scale).variance) / per_unit if scale > 0.0 else 0.0
    if not agrees(stated, due):
        problems.append(f"noise of scale {scale:g} deviates by {due:g}, not by {stated:g} ({key})")
    return problems


def _possible(document: Mapping[str, Any], facts: Claimed) -> bool:
    """Whether what can be earned follows from the rewards, and the values lie in between."""
    problem, estimate = document["problem"], document["estimate"]
    low, high = (float(bound) for bound in problem["reward_range"])
    later = [low, high]
    if other_successors(document):
        later.append(number_of(problem, "ended_pays"))
    due = [first + (facts.planned - 1) * after for first, after in ((low, min(later)), (high, max(later)))]
    stated = [float(bound) for bound in estimate["possible_values"]]
    room = TOLERANCE * max(1.0, *map(abs, due))
    values = (estimate[key] for key in ("value_estimate", "value_cautious", "value_lower"))
    within = all(value is None or due[0] - room <= float(value) <= due[1] + room for value in values)
    return within and len(stated) == 2 and all(abs(a - b) <= room for a, b in zip(stated, due, strict=True))


def _counters(document: Mapping[str, Any], facts: Claimed) -> int:
    """Visits, transitions and rewards, of the successors that are no states too."""
    states = facts.states + other_successors(document)
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
        assumptions += [PRINTED] if is_printed(document) else []
        assumptions += [ONE_PART] if len(released_by(facts)) > 1 else []
        assumptions += [] if document["problem"]["successors_known"] is None else [KNOWN_SUCCESSORS]
    if document["guarantee"]["assumptions"] != assumptions:
        problems.append(f"the guarantee rests on {'; '.join(assumptions) or 'nothing'}, and says something else")
    if "beta" in document["algorithm"] and not 0.0 < number_of(document["algorithm"], "beta") < 1.0:
        problems.append("a failure probability lies between 0 and 1")
    if not _why(str(document["algorithm"]["why"]), facts):
        problems.append("the learner was chosen for a reason that is none")
    covered = number_of(estimate, "covered_state_actions")
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
