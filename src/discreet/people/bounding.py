"""How much of one user counts, in SQL: which of her episodes, which of their steps, and where these lead.

A step is a bit, 2^step: the OR of an episode's bits, compared with the number of its rows, shows repeated and missing
steps without sorting anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from discreet.people.engines import Engine, integers
from discreet.people.logs import LogFormat
from discreet.people.reading import flags_of, followed_rows, lacks_successors, one_episode

#: Steps per integer of marks: the marks, and one more than they, are positive in 64 bits.
MARKS = 62


def look_up_episodes(engine: Engine, log: LogFormat) -> None:
    """To enforce the rules: `episodes_read` (all episodes) and `bounded` (those that count)."""
    if log.enforce:
        engine.keep("episodes_read", _episodes(log), True)
        engine.keep("bounded", _bounded(log), True)


def _follows(log: LogFormat) -> str:
    return f"next_state BETWEEN 0 AND {log.num_states - 1}"


def _readable(log: LogFormat, steps: range) -> str:
    """Whether a row is about one of the steps and says what it must; never true where something is NULL."""
    S, flags = log.num_states - 1, flags_of(log)
    successor = f"{_follows(log)} OR no_successor"
    if lacks_successors(log):
        successor = "TRUE"  # what follows was made from the states: it is one of them or there is none
    elif not (log.has_unknown or log.early_end == "absorb"):
        successor = _follows(log) if log.pooled else f"{successor} AND step = {log.horizon - 1}"
    successor += "".join(f" OR {flag}" for flag in flags if flag == "terminated" or log.has_unknown)
    return (
        f"step BETWEEN {steps[0]} AND {steps[-1]} AND state BETWEEN 0 AND {S} "
        f"AND action BETWEEN 0 AND {log.num_actions - 1} AND paid < CAST('NaN' AS DOUBLE) AND ({successor})"
        + "".join(f" AND {flag} IS NOT NULL" for flag in flags)
    )


def episode_of(log: LogFormat) -> str:
    """The episode of a group of its rows."""
    return "episode" if "episode" in one_episode(log) else "0"


def _same_episode(log: LogFormat, rows: str) -> str:
    """Rows and the episodes k."""
    same = f"{rows}.person = k.of_person"
    return f"{same} AND {rows}.episode = k.of_episode" if "episode" in one_episode(log) else same


def _stops(log: LogFormat) -> str:
    """Whether a row says that its episode went no further; empty where no row can."""
    found = flags_of(log)
    if log.early_end == "absorb" and log.given is not None and "next_state" in log.given:
        found.append(f"(no_successor AND step < {log.horizon - 1})")
    return " OR ".join(found)


def _blocks(log: LogFormat) -> list[range]:
    """Steps that share one integer of marks."""
    return [range(h, min(h + MARKS, log.horizon)) for h in range(0, log.horizon, MARKS)]


def _episodes(log: LogFormat) -> str:
    """Rows of every episode, readable ones, and marks of the steps among these."""
    blocks = list(enumerate(_blocks(log)))
    one = "CAST(1 AS INT)" if log.horizon <= 30 else "CAST(1 AS BIGINT)"  # the narrower the faster
    marked = ", ".join(
        f"CASE WHEN {_readable(log, steps)} THEN shiftleft({one}, CAST(step - {steps[0]} AS INT)) END AS mark{b}"
        for b, steps in blocks
    )
    readable = " + ".join(f"count(mark{b})" for b, _ in blocks)
    marks = ", ".join(f"coalesce(bit_or(mark{b}), 0) AS marks{b}" for b, _ in blocks)
    if _stops(log):
        marked += f", CASE WHEN {_readable(log, range(log.horizon))} AND ({_stops(log)}) THEN step END AS stopped"
        marks += ", min(stopped) AS stop"
    return (
        f"SELECT person, {episode_of(log)} AS episode, count(*) AS logged, {readable} AS readable, {marks} "
        f"FROM (SELECT person, episode, {marked} FROM {_readings(log)}) AS marked GROUP BY {one_episode(log)}"
    )


def distinct_steps(log: LogFormat) -> str:
    return " + ".join(f"CAST(bit_count(marks{b}) AS BIGINT)" for b in range(len(_blocks(log))))


def _length(log: LogFormat) -> str:
    """Steps before the first missing one (trailing ones of the marks, block after block) and up to where it stops."""
    text = ""
    for b in reversed(range(len(_blocks(log)))):
        ones = f"CAST(bit_count(marks{b} & ~(marks{b} + 1)) AS BIGINT)"
        text = f"{ones} + CASE WHEN {ones} = {MARKS} THEN {text} ELSE 0 END" if text else ones
    if log.early_end == "keep":
        text = str(log.horizon)
    return f"least({text}, coalesce(CAST(stop AS BIGINT) + 1, {log.horizon}))" if _stops(log) else text


def _bounded(log: LogFormat) -> str:
    """Which episodes count, and how many of their steps."""
    whole = f"episode IS NOT NULL AND readable > 0 AND readable = {distinct_steps(log)}"
    placed = (
        "SELECT episodes_read.*, row_number() OVER (PARTITION BY person ORDER BY episode) AS place "
        f"FROM episodes_read WHERE {whole}"
    )
    return (
        f"SELECT person AS of_person, episode AS of_episode, place, {_length(log)} AS steps FROM ({placed}) "
        f"AS placed WHERE place <= {int(log.episodes_per_user)} AND {_length(log)} > 0"
    )


def shortcut_of(engine: Engine, log: LogFormat) -> str | None:
    """A condition on rows that holds exactly in the episodes of `bounded`, when these are whole and all up to some
    number: then nothing has to be looked up. Which way it goes shows in the time taken only, and that is no secret.
    """
    summary = f"SELECT max(of_episode), count(*), sum(CASE WHEN steps < {log.horizon} THEN 1 ELSE 0 END) FROM bounded"
    last, kept, short = (column[0].as_py() for column in engine.fetch(summary).columns)
    condition = "TRUE"
    if isinstance(last, int):
        condition = f"episode <= {last}"
    elif isinstance(last, str) and re.fullmatch("[A-Z][0-9]+", last):  # a number in text, see `reading.episode_key`
        condition = f"episode <= '{last}'"
    there = (
        engine.fetch(f"SELECT count(*) FROM episodes_read WHERE readable > 0 AND {condition}").column(0)[0].as_py()
    )
    return condition if there == kept and not short else None


def _successor(log: LogFormat, looked_up: bool) -> str:
    """Where a row that counts leads: 0..S−1, then the state of those who ended, then nobody knows where.

    `looked_up`: the number of steps of its episode is at hand; else all episodes have all their steps.
    """
    S, H, flags = log.num_states, log.horizon, flags_of(log)
    ended, unknown = S, S + log.has_ended
    cases = []
    if not log.pooled:  # where somebody goes after the last step makes no difference
        cases.append((f"step = {H - 1}", f"CASE WHEN {_follows(log)} THEN next_state ELSE state END"))
    elif log.has_unknown and log.given is not None and "next_state" not in log.given:
        cases.append((f"step = {H - 1}", str(unknown)))  # whoever ended there, too: not only survivors are unknown
    if "terminated" in flags:
        cases.append(("terminated", str(ended)))
    if "truncated" in flags:
        cases.append((f"truncated AND {_follows(log)}", "next_state"))
        if log.has_unknown:
            cases.append(("truncated", str(unknown)))
    if log.early_end == "absorb" and looked_up:
        cases.append((f"step = steps - 1 AND steps < {H}", str(ended)))
    cases.append((_follows(log), "next_state"))
    last = unknown if log.has_unknown else ended
    return "CASE " + " ".join(f"WHEN {when} THEN {what}" for when, what in cases) + f" ELSE {last} END"


def _readings(log: LogFormat) -> str:
    """The rows of somebody, perhaps without what follows them."""
    return "readings_alone" if lacks_successors(log) else "readings"


def kept_rows(
    log: LogFormat, shortcut: str | None, episodes: str = "bounded", more: Sequence[str] = (), led: bool = True
) -> str:
    """Rows that count; `more` columns are those of their `episodes`; without `led` what follows is not looked for.

    Of episodes of which one step is `chosen`, only that and the next are looked at.
    """
    source = f"{'readings' if led else _readings(log)} AS r"
    if led and lacks_successors(log) and "chosen" in more:
        near = (
            f"(SELECT alone.* FROM readings_alone AS alone JOIN {episodes} AS k ON {_same_episode(log, 'alone')} "
            "WHERE alone.step BETWEEN k.chosen AND k.chosen + 1)"
        )
        source = f"({followed_rows(log, near)}) AS r"
    condition = _readable(log, range(log.horizon))
    looked_up = shortcut is None and log.enforce
    if shortcut is not None:
        condition += f" AND {shortcut}"
    elif looked_up:
        source += f" JOIN {episodes} AS k ON {_same_episode(log, 'r')}"
        if log.early_end == "absorb" or _stops(log):
            condition += " AND step < steps"
    most = log.spec.reward_units
    rounded = f"CAST(floor(paid * {most} + 0.5) AS BIGINT)"
    units = f"CASE WHEN paid <= 0.0 THEN 0 WHEN paid < 1.0 THEN {rounded} ELSE {most} END"
    columns = f"person, episode, step, state, action, {units} AS units"
    if led:
        columns += f", {_successor(log, looked_up)} AS next_state"
    columns += "".join(f", {name}" for name in more)
    kept = f"SELECT {columns} FROM {source} WHERE {condition}"
    if not log.first_visits:
        return kept
    return (
        "SELECT person, episode, min(step) AS step, state, action, min_by(units, step) AS units, "
        f"min_by(next_state, step) AS next_state FROM ({kept}) AS all_visits GROUP BY person, episode, state, action"
    )


def number_kept(engine: Engine, log: LogFormat) -> int:
    """How many rows count."""
    query = f"SELECT count(*) FROM ({kept_rows(log, None, led=False)}) AS kept"
    if log.early_end == "absorb":
        query = "SELECT sum(steps) FROM bounded"
    return integers(engine, query)[0]
