"""The certificate for people: plain words and a picture of the policy for a board, the technical annex below.

One page without scripts, nothing is loaded from elsewhere. It is a function of the certificate and the policy, so
that `verify` can write it again and compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from discreet.offline.claimed import simulated, unprotected
from discreet.offline.declaration import Grid
from discreet.offline.wording import MEANING, NOT_PRIVATE, SIMULATED, THRESHOLDED
from discreet.pages import escaped, listed, odds, paragraphs, style
from discreet.policy import AS_NOW, NOT_KNOWN, Policy

#: The picture shows so many states; of more, how often each action is taken.
MOST_ROWS = 60
#: Groups of steps that get a column each.
MOST_GROUPS = 4
#: Told apart in print and by people who see few colours; further actions repeat them, and every field has its name.
COLOURS = ("#bcd7f0", "#fbd7a5", "#c5e5c0", "#e3c8ea", "#f6c1bd", "#fff3b0", "#c9e8ea", "#ddd3c3")


def page(document: Mapping[str, Any], policy: Policy) -> str:
    """The whole page."""
    stamps = (NOT_PRIVATE, unprotected(document)), (SIMULATED, document["simulation"] or simulated(document))
    stamp = "".join(f"<p class=warn>{escaped(text)}</p>" for text, holds in stamps if holds)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Privacy certificate</title><style>{style('certificate')}</style>"
        f"<h1>A policy learned from people’s records, and what was promised to them</h1>{_facts(document)}{stamp}"
        f"{_board(document, policy)}{_annex(document)}</html>\n"
    )


# For a board --------------------------------------------------------------------------------------------------------


def _board(document: Mapping[str, Any], policy: Policy) -> str:
    warnings = document["warnings"]
    parts = [
        f"<p class=big>{escaped(document['guarantee']['sentence'])}</p>",
        f"<h2>What was promised, and to whom</h2>{paragraphs(promise(document))}",
        f"<h2>What the policy does</h2>{_picture(policy)}",
        f"<h2>Is it any good?</h2>{paragraphs(merit(document))}",
        f"<h2>What is protected</h2>{listed(document['protected'])}",
        f"<h2>What is not protected</h2>{listed(document['not_protected'])}",
        f"<h2>Other releases of the same data</h2>{paragraphs(releases(document))}",
        f"<h2>How states and ranges were chosen</h2>{paragraphs(choices(document))}{_declaration(document)}",
    ]
    if warnings:
        parts.append(f"<h2>Warnings</h2>{listed(warnings)}")
    return "".join(parts)


def promise(document: Mapping[str, Any]) -> list[str]:
    """What the guarantee means in odds: e^ε is the most by which anybody's records can move them."""
    unit, stated = document["unit"], document["guarantee"]
    users, episodes, epsilon = unit["users"], unit["episodes_per_user"], stated["epsilon"]
    stays = "one stay" if episodes == 1 else f"{episodes} stays"
    whom = (
        f"The {users:,} people whose records were used. Of each, {stays} of at most {unit['steps_per_episode']} "
        "steps counted, and nothing else about them was looked at."
    )
    if unprotected(document) or epsilon is None or not epsilon < math.inf:
        return [whom, "Nothing was promised to them: this policy may give away what their records say."]
    relation = "replaced by anybody else’s" if stated["neighbours"] == "replace" else "left out"
    meaning = (
        f"Had the records of any one of them been {relation}, this folder could have come out the same: no outcome "
        f"would have been more than {odds.factor(epsilon)} times as likely or as unlikely. Whoever found it a "
        "toss-up whether one person’s records are these or others, and then studies everything here, "
        f"{odds.certainty(epsilon)}"
    )
    meaning += f", but for a chance of {stated['delta']:g}." if stated["delta"] else "."
    return [
        whom,
        meaning,
        "The smaller ε, the stronger the promise: at 0 a person’s records make no difference at all.",
    ]


def merit(document: Mapping[str, Any]) -> list[str]:
    """What was compared with what."""
    found = document["estimate"]
    lines = [
        f"{_capital(compared['sentence'])} (estimate {_text(compared['gain'])} per stay, from {compared['users']:,} "
        f"people; {compared['people']}; what they were promised: {compared['guarantee']['sentence']}; "
        f"{compared['date']})."
        for compared in document.get("comparisons", ())
    ] or [COMPARED_WITH_NOTHING]
    low, high = found["possible_values"]
    if found["value_estimate"] is not None:
        lines.append(
            f"From the same private release the policy seems to earn {_text(found['value_estimate'])} per stay, "
            f"where {_text(low)} to {_text(high)} is possible."
        )
    if THRESHOLDED in found["values_are"]:
        lines.append(
            f"{_capital(THRESHOLDED)}. Whether it is better than what is done now can be asked of other people."
        )
    elif found["value_lower"] is not None:
        chance = 100 * (1 - found["failure_probability_of_the_lower_value"])
        nothing = found["value_lower"] <= low
        lines.append(
            f"With {chance:.0f} % certainty nothing better can be said than the least that is possible."
            if nothing
            else f"With {chance:.0f} % certainty it earns at least {_text(found['value_lower'])} per stay, of "
            f"{_text(low)} to {_text(high)} possible, if what follows a step depends on its state and action only."
        )
    covered = found.get("covered_state_actions")
    if covered is not None:
        lines.append(f"The release says something about {100 * covered:.0f} % of what can be done where.")
    return lines


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


COMPARED_WITH_NOTHING = (
    "Better than current practice: not shown, for nobody has been asked. That takes people who were not "
    "learned from, and the chances with which their actions were chosen (discreet evaluate --log)."
)


def releases(document: Mapping[str, Any]) -> list[str]:
    spent = document["spending"]
    before = spent["releases_before"]
    if before is None:
        return ["No ledger was kept: what else was released from these data is not known here."]
    earlier = {0: "None is on record", 1: "One earlier release is on record"}.get(before, f"{before} are on record")
    return [
        f"{earlier}. All of them together with this one: {spent['total']}. The holder of the data keeps the ledger; "
        "what it does not record is not in this sum."
    ]


def choices(document: Mapping[str, Any]) -> list[str]:
    problem = document["problem"]
    low, high = problem["reward_range"]
    said = "by the declaration below, " if document.get("declaration") else ""
    return [
        f"{problem['states']:,} states, {problem['actions']} actions, {problem['horizon']} steps and rewards from "
        f"{_text(low)} to {_text(high)} were stated {said}without looking at the data. Rewards outside are moved "
        f"to the ends of that range; a stay that ended pays {_text(problem['ended_pays'])} for every step that "
        "is left."
    ]


def _declaration(document: Mapping[str, Any]) -> str:
    stated = document.get("declaration")
    if stated is None:
        return ""
    how = "how finely each is cut follows from the declaration, the number of people and the budget by a public rule"
    if document["algorithm"].get("chosen") in ("mode", "as now"):
        how = "where each is cut was found by a private tree of what people do, among edges that were declared"
    return (
        f"<p>Columns were declared in order of importance; {how}.</p>{listed(stated['columns'], 'ol')}"
        f"<pre>{escaped(stated['text'])}</pre><p>SHA-256 of the declaration: {escaped(stated['digest'])}</p>"
    )


def _facts(document: Mapping[str, Any]) -> str:
    origin = document["origin"]
    facts = {
        "Date": str(origin["date"]).partition("T")[0],
        "Operator": origin["operator"],
        "Purpose": origin["purpose"],
        "Serial": origin["serial"],
    }
    return f"<p class=facts>{' · '.join(f'{name}: {escaped(_stated(v))}' for name, v in facts.items())}</p>"


def _stated(value: Any) -> str:
    return "not stated" if value is None else str(value)


def _picture(policy: Policy) -> str:
    """What is done where, and where the release says nothing; steps at which the same is done are shown once.

    Two declared columns span a map of the first steps; otherwise every state has a row.
    """
    H, S = policy.actions.shape
    doings = [[_doing(policy, h, s) for s in range(S)] for h in range(H)]
    runs = [list(group) for _, group in groupby(range(H), key=lambda h: doings[h])]
    unknown = NOT_KNOWN if policy.grid is None else AS_NOW
    two = policy.grid is not None and len(policy.grid.used) == 2
    shown = runs[: 1 if two else MOST_GROUPS]
    note = f"Hatched: the release says nothing that stands out of its noise ({unknown})."
    if len(shown) < len(runs):
        note += f" From step {shown[-1][-1] + 1} on something else is done in places: policy.csv has all."
    if policy.grid is not None and two:
        return _map(policy, policy.grid, doings[0], _steps(runs[0]), note)
    if S > MOST_ROWS:
        return _shares(policy, doings[0], unknown)
    names = policy.state_names or tuple(f"state {s}" for s in range(S))
    rows = [(escaped(names[s]), [_field(policy, doings[run[0]][s], unknown) for run in shown]) for s in range(S)]
    return _grid("", [_steps(run) for run in shown], rows, note)


def _map(policy: Policy, grid: Grid, doings: Sequence[int], corner: str, note: str) -> str:
    """The states of two columns: the one with more places goes down."""
    first, second = ([escaped(text) for text in column.texts(cuts)] for column, cuts in grid.used)
    fields = [_field(policy, doing, AS_NOW) for doing in doings]
    rows = [fields[i : i + len(second)] for i in range(0, len(fields), len(second))]
    if len(first) < len(second):
        first, second, rows = second, first, [list(row) for row in zip(*rows, strict=True)]
    return _grid(corner, second, list(zip(first, rows, strict=True)), note)


def _grid(corner: str, across: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], note: str) -> str:
    head = "".join(f"<th>{text}</th>" for text in across)
    body = "".join(f"<tr><th>{text}</th>{''.join(fields)}</tr>" for text, fields in rows)
    return _figure(f"<tr><th>{corner}</th>{head}</tr>{body}", note)


def _doing(policy: Policy, step: int, state: int) -> int:
    return int(policy.actions[step, state]) if policy.known[step, state] else -1


def _steps(run: Sequence[int]) -> str:
    return f"step {run[0]}" if len(run) == 1 else f"steps {run[0]}–{run[-1]}"


def _action(policy: Policy, action: int) -> str:
    return f"action {action}" if policy.action_names is None else policy.action_names[action]


def _field(policy: Policy, action: int, unknown: str) -> str:
    if action < 0:
        return f"<td class=now>{unknown}</td>"
    return f"<td style='background:{COLOURS[action % len(COLOURS)]}'>{escaped(_action(policy, action))}</td>"


def _shares(policy: Policy, first: Sequence[int], unknown: str) -> str:
    """Of more states than a picture can show: in how many of them each action is taken at the first step."""
    rows = "".join(
        f"<tr>{_field(policy, action, unknown)}<td>{first.count(action):,} states, "
        f"{100 * first.count(action) / len(first):.1f} %</td></tr>"
        for action in sorted(set(first), key=lambda a: -first.count(a))
    )
    return _figure(rows, "At the first step; policy.csv has all.")


def _figure(rows: str, caption: str) -> str:
    return f"<figure><table class=policy>{rows}</table><figcaption>{caption}</figcaption></figure>"


# The annex ----------------------------------------------------------------------------------------------------------


def _annex(document: Mapping[str, Any]) -> str:
    columns = ("users", "statistic", "mechanism", "norm", "sensitivity", "scale", "uses", "cost")
    regressions = document.get("regressions", ())
    sections = {
        "What this proves": f"<p>{escaped(MEANING)}</p>",
        "Who is protected": _rows(document["unit"]),
        "What it rests on": listed(document["guarantee"]["assumptions"]),
        "What was spent before": _rows(document["spending"]),
        "Who wrote it, when and with what": _rows(document["origin"]),
        "The problem": _rows(document["problem"]),
        "The learner": _rows(document["algorithm"]),
        "What the policy is worth": _rows(document["estimate"]),
        "Ledger": _table(columns, document["ledger"]),
    }
    if regressions:
        sections["Regressions"] = _table(tuple(regressions[0]), regressions)
    body = "".join(f"<h3>{title}</h3>{text}" for title, text in sections.items())
    return (
        f"<section class=annex><h2>Technical annex</h2>{body}<p>Scales and sensitivities are in the integers that "
        f"carry the noise, those of regressions in units of their noise. Written by discreet "
        f"{escaped(document['version'])}.</p></section>"
    )


def _rows(mapping: Mapping[str, Any]) -> str:
    cells = (
        f"<tr><th>{escaped(str(name).replace('_', ' '))}</th><td>{escaped(_text(value))}</td></tr>"
        for name, value in mapping.items()
    )
    return f"<table>{''.join(cells)}</table>"


def _table(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escaped(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escaped(_text(line[c]))}</td>" for c in columns) + "</tr>" for line in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return "not known" if value is None else str(value)
