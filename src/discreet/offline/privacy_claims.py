"""What a certificate may promise: the ledger from the learner, costs from the ledger, the guarantee from costs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from discreet.offline.claimed import (
    NOISY_MAX,
    TOLERANCE,
    VALUES,
    VARIANCES,
    Claimed,
    agrees,
    epsilon_at,
    is_printed,
    not_negative,
    number_of,
    printed_claims,
    released_by,
    unprotected,
    whole_of,
)
from discreet.offline.wording import NO_CLAIM, OTHER_PEOPLE, PEOPLE, RECORDED, SEEDED, UNRECORDED
from discreet.people.counts import Counts
from discreet.privacy.accounting import (
    Guarantee,
    LedgerEntry,
    Mechanism,
    Neighbours,
    epsilon_of,
    laplace_entry,
    ledger_total,
    rho_of,
    unit_text,
)
from discreet.privacy.envelope import SMALLEST_SCALE
from discreet.privacy.families import entry_of
from discreet.privacy.noise import Geometric
from discreet.privacy.trust.linear import printed_bounds, printed_noise, regression_cost


def guarantee_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
    """The ledger from the learner, the costs from the ledger, the guarantee from the costs."""
    problems = []
    guarantee = document["guarantee"]
    parts: dict[str, list[LedgerEntry]] = {}
    listed: dict[str, list[str]] = {}
    for line in document["ledger"]:
        listed.setdefault(str(line["users"]), []).append(str(line["statistic"]))
    due_parts = released_by(facts)
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
        sensitivity, scale = number_of(line, "sensitivity"), number_of(line, "scale")
        times = facts.depth if line["statistic"] == "splits" else 1
        if line["statistic"] not in (VALUES, VARIANCES) and (line["uses"] != times or type(line["uses"]) is not int):
            problems.append(f"{line['statistic']} are released {'once' if times == 1 else f'{times} times'}")
        due = _sensitivity(line, document, facts) if scale > 0.0 else sensitivity
        if not agrees(sensitivity, due):
            problems.append(f"one user can move {line['statistic']} by {due:g}, not by {sensitivity:g}")
            sensitivity = due
        law: Mechanism = "laplace" if pure else "gaussian"
        derived = entry_of(str(line["statistic"]), law, sensitivity, scale, whole_of(line, "uses"))
        if line["statistic"] in chosen:
            ratio = Geometric(scale).log_ratio if scale > 0.0 else math.inf
            derived = laplace_entry(
                str(line["statistic"]), sensitivity, scale, whole_of(line, "uses"), ratio, NOISY_MAX
            )
            if line["norm"] != "l1":
                problems.append(f"{line['statistic']} are charged by a range")
        stated = math.inf if line["cost"] is None else number_of(line, "cost")
        if not agrees(stated, derived.cost) or number_of(line, "delta") != 0.0:
            problems.append(f"noise of scale {scale:g} on {line['statistic']} costs {derived.cost:g}, not {stated:g}")
        parts.setdefault(str(line["users"]), []).append(derived)
    totals = [ledger_total(entries) for entries in parts.values()]
    delta = number_of(guarantee, "delta")
    epsilon = max(epsilon_at(total, delta) for total in totals)
    stated = math.inf if guarantee["epsilon"] is None else number_of(guarantee, "epsilon")
    if not agrees(stated, epsilon):
        problems.append(
            f"the ledger gives epsilon = {epsilon:g} at delta = {delta:g}, the certificate says {stated:g}"
        )
    rho = max(total.rho for total in totals)
    if pure or rho == math.inf:
        if guarantee["rho"] is not None or (pure and delta != 0.0):
            problems.append("Laplace noise gives an epsilon, without delta and rho")
    elif not agrees(number_of(guarantee, "rho"), rho):
        problems.append(f"the ledger gives rho = {rho:g}, the certificate says {guarantee['rho']:g}")
    unit = unit_text(facts.episodes)
    again = Guarantee(
        "central", stated, delta, guarantee["rho"], guarantee["neighbours"], unit, **printed_claims(document)
    )
    if guarantee["unit"] != unit or guarantee["sentence"] != again.sentence() or guarantee["model"] != "central":
        problems.append(f"the guarantee reads {guarantee['sentence']!r}; its numbers read {again.sentence()!r}")
    return problems


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


def _regression_sensitivity(entry: Mapping[str, Any], document: Mapping[str, Any]) -> float:
    """In units of its noise: that of every regression, from its noise and where it clipped."""
    problem, unit, guarantee = document["problem"], document["unit"], document["guarantee"]
    listed = [line for line in document["regressions"] if line["statistic"] == entry["statistic"]]
    variances = entry["statistic"] == VARIANCES  # none after which everything is worth the same
    last = int(problem["horizon"]) - variances
    steps = {whole_of(line, "step", 0) for line in listed}
    whole = steps <= set(range(last)) if variances else steps == set(range(last))
    vectors = {len(line[key]) for line in listed for key in ("clipped_at", "vector_deviations")}
    if not whole or len(listed) > len(steps) or entry["uses"] != last or vectors - {1 + variances}:
        raise ValueError(f"{entry['statistic']} are one for every step, {last} in all")
    if not listed:
        return float(entry["sensitivity"])
    if is_printed(document):
        return _printed_sensitivity(entry, document, listed, last)
    costs = [
        regression_cost(
            guarantee["neighbours"],
            not_negative("matrix_deviation", line["matrix_deviation"]),
            [not_negative("clipped_at", bound) for bound in line["clipped_at"]],
            [not_negative("vector_deviations", sigma) for sigma in line["vector_deviations"]],
            int(unit["episodes_per_user"]),
        )
        for line in listed
    ]
    if not agrees(min(costs), max(costs)):
        raise ValueError(f"{entry['statistic']} do not cost the same at every step")
    return math.sqrt(2.0 * max(costs)) * float(entry["scale"])


def _printed_sensitivity(
    entry: Mapping[str, Any], document: Mapping[str, Any], listed: Sequence[Mapping[str, Any]], steps: int
) -> float:
    """Of printed noise, whose regressions differ in cost: that of their mean, from the claim."""
    guarantee, horizon = document["guarantee"], int(document["problem"]["horizon"])
    part = "variances" if entry["statistic"] == VARIANCES else "values"
    told = {key: value for key, value in printed_claims(document).items() if value is not None}
    if len(told) != 1:
        raise ValueError("print claims a rho, or an epsilon at the delta")
    ((name, claimed),) = told.items()
    claim = number_of({name: claimed}, name)
    rho = claim if name == "claimed_rho" else rho_of(claim, number_of(guarantee, "delta"))
    deviation, vectors = printed_noise(rho, horizon, part)
    for line in listed:
        bounds = printed_bounds(horizon, part, int(line["step"]))
        noise = [not_negative("noise", each) for each in (line["matrix_deviation"], *line["vector_deviations"])]
        same = all(agrees(a, b) for a, b in zip(noise, (deviation, *vectors), strict=True))
        if not same or any(c > b * (1.0 + TOLERANCE) for c, b in zip(line["clipped_at"], bounds, strict=True)):
            raise ValueError(f"{entry['statistic']} do not carry the noise that is printed for the claim")
    each = int(document["unit"]["episodes_per_user"])
    costs = [
        regression_cost(guarantee["neighbours"], deviation, printed_bounds(horizon, part, step), vectors, each)
        for step in range(steps)
    ]
    return math.sqrt(2.0 * math.fsum(costs) / steps) * float(entry["scale"])


def open_problems(document: Mapping[str, Any]) -> list[str]:
    """Nothing may be claimed where the data were used as they are."""
    guarantee = document["guarantee"]
    claims = guarantee["model"], guarantee["epsilon"], guarantee["rho"], guarantee["sentence"], document["ledger"]
    return [] if claims == ("none", None, None, "no privacy", []) else [NO_CLAIM]


def comparison_problems(document: Mapping[str, Any], found: Mapping[str, Any], facts: Claimed) -> list[str]:
    """A comparison with current practice: what is said follows from its numbers, what is promised from its ledger."""
    problem, guarantee = document["problem"], found["guarantee"]
    gain, deviation, rollout = (number_of(found, key) for key in ("gain", "deviation", "rollout"))
    largest, users = number_of(found, "largest_possible"), whole_of(found, "users")
    low, high = (float(bound) for bound in document["estimate"]["possible_values"])
    bound = gain - NormalDist().inv_cdf(0.95) * deviation
    lower = None if found["lower"] is None else number_of(found, "lower")
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
        entry_of(str(entry["statistic"]), law, due[str(entry["statistic"])], number_of(entry, "scale"), 1)
        for entry in found["ledger"]
    ]
    total, delta = ledger_total(entries), number_of(guarantee, "delta")
    stated = math.inf if guarantee["epsilon"] is None else number_of(guarantee, "epsilon")
    rho = None if pure else number_of(guarantee, "rho")
    unit = unit_text(facts.episodes)
    again = Guarantee("central", stated, delta, rho, guarantee["neighbours"], unit)
    rests_on = [f"at most {users * facts.episodes} episodes, declared in advance", OTHER_PEOPLE]
    rests_on += [SEEDED] if found["simulation"] is True else []
    agree = all(
        agrees(number_of(line, "sensitivity"), entry.sensitivity)
        and agrees(number_of(line, "cost"), entry.cost)
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
        "the guarantee follows from the ledger": agrees(stated, epsilon_at(total, delta))
        and (pure or agrees(number_of(guarantee, "rho"), total.rho))
        and (not pure or (guarantee["rho"] is None and delta == 0.0)),
        "the guarantee reads as its numbers do": guarantee["sentence"] == again.sentence()
        and (guarantee["unit"], guarantee["model"], guarantee["assumptions"]) == (unit, "central", rests_on),
        "who was asked is told in known words": found["people"] in PEOPLE,
        "simulation is true or false": type(found["simulation"]) is bool,
        "serial and date are such": re.fullmatch(r"[0-9a-f]{32}", str(found["serial"])) is not None
        and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(found["date"])) is not None,
    }
    return [f"of a comparison, not so: {rule}" for rule, holds in rules.items() if not holds]


def spending_problems(document: Mapping[str, Any]) -> list[str]:
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
    whole_of(spending, "releases_before", 0)
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
        more = any(not agrees(a, b) for a, b in both) or len(both) < sum(b is not None for b in own)
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
