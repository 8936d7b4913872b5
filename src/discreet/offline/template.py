"""A declaration to fill in, from the names and types of a log's columns: no value is looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from discreet.people.engines import Kind
from discreet.people.logs import open_log
from discreet.people.text import is_row

#: Words by which a role is recognised in the name of a column, the likeliest first.
WORDS = {
    "user": ("user", "patient", "subject", "person", "customer", "client", "household"),
    "episode": ("episode", "stay", "admission", "visit", "session", "trip"),
    "step": ("step", "index"),
    "time": ("time", "timestamp", "date", "datetime", "charttime"),
    "action": ("action", "treatment", "drug", "dose", "decision", "offer"),
    "reward": ("reward", "outcome", "score", "payoff", "return"),
    "terminated": ("terminated",),
    "done": ("done",),
    "truncated": ("truncated",),
    "propensity": ("propensity", "probability", "prob", "p"),
}

HEAD = """\
# What is public about a log, said before anybody looks into it. This template comes from the names and types of
# columns alone. Fill it in from what you know of the subject, never from the data: a range or an edge that was read
# off the log would give people away. Lines that begin with # are not read.
#
#   discreet check LOG --declare FILE                                               what would be lost, and why
#   discreet calibrate --offline --declare FILE --epsilon 1 --users 10000           the bins, before anything is read
#   discreet fit LOG --declare FILE --epsilon 1 --out policy/
"""
STATES = """
# What decides: at most eight columns, the most important first. With few users only the first ones are used, so
# their order matters more than anything else. Edges that mean something to people who act (a clinical limit) are
# better than even ones. Uncomment what is of use and delete the rest:
#   range = [LOW, HIGH]        what lies outside is in the first or last bin
#   edges = [65, 75, 95]       inner edges; a bin holds its lower edge
#   log = true                 bins even in the logarithm, instead of edges
#   names = ["A", "B"]         instead of a range; every other text is missing
#   missing = true             what is missing is a bin of its own; otherwise such a row is a missing step
"""
INTERVAL = """\
interval = "4h"                # 30min, 4h, 1d: what happens within is one step, and one without a row ends the stay;
                               # delete the line where every row is a step
"""
TYPES: Mapping[Kind, str] = {
    "int": "whole numbers",
    "float": "numbers",
    "bool": "true or false",
    "text": "text",
    "other": "neither numbers, bools nor text",
}


def template(source: Any, table: str | None = None) -> str:
    """A commented TOML with every column of a log in it."""
    engine = open_log(source, table)
    kinds, moments = engine.kinds(), engine.timestamps()
    if engine.delimited and is_row(kinds):
        raise ValueError("the log begins with a row; its first line must name the columns")
    roles = guessed_roles(kinds, moments)
    lines = [HEAD]
    if engine.delimited:
        lines.append(
            "# The log is a file of text, whose columns have no types: say which hold numbers and which names.\n"
        )
    lines.append(_role("user", roles, "whose row it is"))
    lines.append(_role("episode", roles, "her stays or visits, in order; without it everybody has one"))
    if "time" in roles and "step" not in roles:
        lines.append(_role("time", roles, "timestamps, or numbers of seconds"))
        lines.append(INTERVAL)
    else:
        lines.append(_role("step", roles, "0, 1, 2 … within an episode"))
        lines.append("first_step = 0                 # 1 if they are counted from 1\n")
        lines.append('# time = "…"                   # instead of step: timestamps, with interval = "4h"\n')
    lines.append("horizon = 10                   # steps of an episode that count, and that are planned\n")
    lines.append("episodes_per_user = 1          # the first ones of everybody; noise grows with their number\n\n")
    lines.append(_role("action", roles, "what was done"))
    lines.append('actions = ["…", "…"]           # all names, or how many where they are numbered 0, 1, 2 …\n')
    lines.append(_role("propensity", roles, "probability of that action, where the log has it"))
    lines.append(_role("reward", roles, "what the step paid"))
    lines.append("reward_range = [0, 1]          # rewards are clipped to it\n")
    lines.append("ended_pays = 0                 # per remaining step, to all who have ended: home or dead\n")
    lines.append('early_end = "absorb"           # who is not seen again has left; "keep": nobody knows\n')
    for role in ("terminated", "done", "truncated"):
        if role in roles or (role == "terminated" and "done" not in roles):
            lines.append(_role(role, roles, "how an episode stopped: true or false, 1 or 0"))
    lines.append(STATES)
    for name, kind in kinds.items():
        if name not in roles.values():
            lines.append(_state(name, kind, name in moments, engine.typed))
    return "".join(lines)


def guessed_roles(kinds: Mapping[str, Kind], moments: Collection[str]) -> dict[str, str]:
    """Which column may have which role, by its name and type."""
    found: dict[str, str] = {}
    for role, words in WORDS.items():
        fitting = [
            name for name, kind in kinds.items() if name not in found.values() and _fits(role, kind, name in moments)
        ]
        ranked = [
            (len(words) - words.index(word) + 100 * (name.lower() == word), name)
            for name in fitting
            for word in words
            if word in re.split("[^a-z]+", name.lower())
        ]
        if ranked:
            found[role] = max(ranked, key=lambda pair: pair[0])[1]
        elif role == "time" and len(moments) == 1:
            (found[role],) = moments
    return found


def _fits(role: str, kind: Kind, moment: bool) -> bool:
    if role in ("user", "episode"):
        return not moment
    if role == "time":
        return moment or kind != "bool"
    return kind != "other" and not moment


def _role(role: str, roles: Mapping[str, str], meaning: str) -> str:
    known = role in roles
    text = f"{role} = {json.dumps(roles[role] if known else '…', ensure_ascii=False)}"
    needed = known or role in ("user", "action", "reward", "step")
    return f"{text if needed else '# ' + text:<30} # {meaning}\n"


def _state(name: str, kind: Kind, moment: bool, typed: bool) -> str:
    quoted = json.dumps(name, ensure_ascii=False)
    if moment or kind == "other":
        held = "a day or a moment" if moment else TYPES[kind]
        return f"\n# {quoted}: {held}, which is no column of states\n"
    lines = [f"[[state]]   # {TYPES[kind]}", f"name = {quoted}"]
    lines += ["range = [LOW, HIGH]"] if kind != "text" or not typed else []
    lines += ['names = ["…", "…"]'] if kind in ("text", "int") else []
    if len(lines) == 4:
        lines[-1] += "   # or"
    return "\n" + "".join(f"# {line}\n" for line in lines)
