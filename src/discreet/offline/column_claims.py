"""What a certificate may claim about declared columns: the grid, the learner's parts and its choice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from discreet.offline.claimed import COLUMN_PARTS, Claimed, agrees, items_of, number_of
from discreet.offline.declaration import Declaration, Grid
from discreet.offline.wording import declaration_json
from discreet.policy import Policy
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace

#: Numbers of a public rule follow from rounded ones.
MARGINS = (1.0 - 1e-6, 1.0, 1.0 + 1e-6)


def declaration_problems(document: Mapping[str, Any], facts: Claimed, policy: Policy) -> list[str]:
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


def _strength(document: Mapping[str, Any], declared: Declaration) -> float:
    """What the stated budget is worth to the public rule."""
    guarantee = document["guarantee"]
    if guarantee["rho"] is not None:
        return declared.strength(Budget.zcdp(number_of(guarantee, "rho")), guarantee["neighbours"])
    if guarantee["epsilon"] is not None:
        return declared.strength(Budget.pure(number_of(guarantee, "epsilon")), guarantee["neighbours"])
    return declared.strength(Budget.pure(math.inf))


def _public_cuts(
    document: Mapping[str, Any], facts: Claimed, declared: Declaration
) -> set[tuple[tuple[int, ...], ...]]:
    """Where the rule cuts columns for so many users and the stated budget, up to the margin of its numbers."""
    strength = _strength(document, declared)
    return {declared.grid_at(facts.users, strength * margin).cuts for margin in MARGINS}


def column_problems(document: Mapping[str, Any], facts: Claimed) -> list[str]:
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
        "gains are clipped somewhere": (number_of(algorithm, "clipped_at") > 0.0)
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
        scale = number_of(line, "scale")
        law = DiscreteLaplace if line["mechanism"] == "discrete-laplace" else DiscreteGaussian
        deviation = math.sqrt(law(scale).variance) / unit if scale > 0.0 else 0.0
        if not agrees(number_of(algorithm, key), deviation):
            problems.append(f"noise of scale {scale:g} deviates by {deviation:g}, not by {algorithm[key]:g} ({key})")
    if "steps" in facts.parts:
        sizes = {
            facts._replace(states=declared.grid_at(facts.users, strength * margin).num_states) for margin in MARGINS
        }
        if algorithm["items"] not in {items_of(document, each) for each in sizes}:
            problems.append("such a grid has another number of noisy numbers")
    return problems
