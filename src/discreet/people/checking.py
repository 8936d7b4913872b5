"""What a log holds, before anything is spent on it: for whoever holds the data, and never to be published.

Nothing here is private: numbers of rows, users and faults as they are. No message quotes a value.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from discreet.offline.declaration import Declaration, Grid
from discreet.people.counting import LoggedData
from discreet.people.engines import Engine, Kind, integers
from discreet.people.logs import LogFormat, open_log
from discreet.people.reading import MISSING, NAN, episode_key, is_there, number_of, who_of
from discreet.people.repairs import Repairs
from discreet.people.stays import FINITE, DeclaredLog
from discreet.people.text import is_row

NOT_PRIVATE = "not private: for whoever holds the log, and not to be published"
#: Bytes: of a program that has read nothing; per counter, in all tables that a plan needs; per row held in memory.
PROGRAM, PER_COUNTER, PER_ROW = 340_000_000, 100, 100


@dataclass(frozen=True)
class Check:
    """What was found; `columns` says of how many rows, by column and reason."""

    rows: int
    users: int
    episodes: int
    counted_rows: int | None  # None: nothing says what would count
    malformed_lines: int = 0
    nobody_rows: int = 0  # well-formed, without a user
    columns: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    repeated_steps: int = 0  # episodes in which a step occurs twice
    cut_rows: int = 0  # beyond the bound on episodes or steps, after a missing step or an end
    merged_rows: int = 0  # that share an interval with an earlier row
    counted_from_one: bool = False
    longest_stay: int = 0  # rows of one episode
    most_episodes: int = 0  # of one user
    episodes_beyond: int = 0  # those that count of their users
    counting_seconds: float = 0.0  # what reading and counting took
    memory_bytes: int | None = None  # about what a fit needs; None: not known without states, or columns and a budget
    row_bytes: int = 0  # more, where the learner holds rows in memory

    def to_json(self) -> dict[str, Any]:
        return {"not_private": NOT_PRIVATE, **vars(self), "sentences": list(self.sentences())}

    def sentences(self) -> tuple[str, ...]:
        """In words, what is wrong last."""
        lines = [
            f"{self.rows:,} rows of {self.users:,} users in {self.episodes:,} episodes",
            f"longest stay: {self.longest_stay:,} rows; most episodes of one user: {self.most_episodes:,}",
        ]
        if self.counted_rows is not None:
            share = 100.0 * self.counted_rows / self.rows if self.rows else 0.0
            lines.append(f"rows that count: {self.counted_rows:,} ({share:.1f} %)")
        lines.append(f"reading and counting took {self.counting_seconds:.1f} s, and takes a fit about as long")
        counters = "what its counters take, which depends on the budget"
        if self.memory_bytes is not None:
            counters = _megabytes(self.memory_bytes)
        lines.append(f"memory of a fit: about {counters}, and {_megabytes(self.row_bytes)} where it holds rows")
        lines += [
            f"{number:,} {text}"
            for number, text in (
                (self.malformed_lines, "malformed lines (fields, quotes, encoding): lost"),
                (self.nobody_rows, "rows without a user: lost"),
                (
                    self.episodes_beyond,
                    "later episodes than count of a user (episodes_per_user): lost as a whole",
                ),
                (self.repeated_steps, "episodes in which a step occurs twice: lost as a whole"),
                (self.cut_rows, "rows of episodes beyond the bound, after a missing step or after an end: lost"),
                (self.merged_rows, "rows in the same interval as an earlier one: their rewards are added to it"),
            )
            if number
        ]
        lines += [
            f"column {column!r}: {number:,} {reason}"
            for column, reasons in self.columns.items()
            for reason, number in reasons.items()
        ]
        if self.counted_from_one:
            lines.append(
                "no row has step 0: if steps are counted from 1, declare it (first_step = 1, --first-step 1)"
            )
        return tuple(lines)


def check(
    source: Any,
    what: Declaration | LogFormat | None = None,
    table: str | None = None,
    *,
    grid: Grid | None = None,
    columns: Mapping[str, str] | None = None,
) -> Check:
    """Read a log as `fit` would and say what it holds; without a declaration or format, by the names of columns.

    `grid`: the bins that a budget would buy, where one is known, for the memory that they need. Rows are lost to any
    declared column, for the learner may look at all of them, whatever the bins.
    """
    started = time.perf_counter()
    if isinstance(what, Declaration):
        return _declared(DeclaredLog(source, what, table), grid, started)
    if what is not None:
        return _numbered(source, what, table, started)
    return _unknown(open_log(source, table), dict(columns or {}), started)


def _declared(log: DeclaredLog, grid: Grid | None, started: float) -> Check:
    engine, form = log.whole()
    counts = LoggedData(engine, form).counts()
    counted, repairs = int(counts.transitions.sum()), counts.repairs
    faults = {name: reasons for name, reasons in repairs.columns.items() if name != form.column("state")}
    faults = {**_column_faults(log), **faults}
    people = _people(log.engine, log.engine.name, log.kinds, log.roles["user"], log.roles.get("episode"), form)
    rows = people[0]
    memory = None if grid is None else _memory(grid.num_states, log.declaration)
    return _found(
        people,
        repairs,
        counted,
        faults,
        started,
        merged_rows=rows - repairs.rows,
        memory_bytes=memory,
        row_bytes=log.row_bytes(rows),
    )


def _memory(states: int, what: Declaration | LogFormat) -> int:
    stages = 1 if what.pooled else what.horizon
    return PROGRAM + PER_COUNTER * stages * what.num_actions * states * (states + 2)


def _numbered(source: Any, log: LogFormat, table: str | None, started: float) -> Check:
    engine = open_log(source, table)
    data = LoggedData(engine, log)
    counts, log = data.counts(), data.log
    kinds = engine.kinds()
    episode = log.column("episode") if log.column("episode") in kinds else None
    people = _people(engine, "log", kinds, log.column("user"), episode, log)
    counted = int(counts.transitions.sum())
    memory = _memory(log.num_states, log)
    return _found(
        people,
        counts.repairs,
        counted,
        counts.repairs.columns,
        started,
        memory_bytes=memory,
        row_bytes=people[0] * PER_ROW,
    )


def _found(
    people: tuple[int, int, int, int, int, int],
    repairs: Repairs,
    counted: int | None,
    faults: Mapping[str, Mapping[str, int]],
    started: float,
    **others: Any,
) -> Check:
    rows, users, episodes, longest, most, beyond = people
    return Check(
        rows,
        users,
        episodes,
        counted,
        repairs.malformed_lines,
        repairs.nobody_rows,
        faults,
        repairs.repeated_steps,
        repairs.cut_rows,
        counted_from_one=repairs.counted_from_one,
        longest_stay=longest,
        most_episodes=most,
        episodes_beyond=beyond,
        counting_seconds=time.perf_counter() - started,
        **others,
    )


def _unknown(engine: Engine, named: dict[str, str], started: float) -> Check:
    """Without anything declared: what is missing in every column, and users, episodes and steps if they are named."""
    kinds, moments = engine.kinds(), engine.timestamps()
    user = named.get("user", "user")
    if user not in kinds and engine.delimited and is_row(kinds):
        raise ValueError("the log begins with a row; its first line must name the columns")
    if user not in kinds:
        raise ValueError(f"the log has no column {user!r}; its columns are {', '.join(kinds)} (--columns user=NAME)")
    episode = named.get("episode", "episode")
    people = _people(engine, "log", kinds, user, episode if episode in kinds else None)
    value = {name: _value(engine, name, kind) for name, kind in kinds.items()}
    person, formed = who_of(value[user], kinds[user]), "TRUE"
    if engine.delimited:
        formed = f"{value[user]} IS NOT NULL"
    conditions = {("", "malformed"): f"NOT ({formed})", ("", "nobody"): f"({formed}) AND {person} IS NULL"}
    for name, kind in kinds.items():
        if kind == "text":
            missing = f"coalesce({engine.matches(value[name], MISSING)}, TRUE)"
        else:
            missing = f"{value[name]} IS NULL" if kind != "float" else f"NOT coalesce({value[name]} < {NAN}, FALSE)"
        conditions[name, "missing"] = f"{person} IS NOT NULL AND {missing}"
    faults, (malformed, nobody) = _counted(engine, "log", conditions)
    repairs = Repairs(people[0], malformed_lines=malformed, nobody_rows=nobody)
    step = named.get("step", "step")
    if step not in kinds or kinds[step] == "other" or step in moments:
        return _found(people, repairs, None, faults, started)
    stay = episode_key(engine, value[episode], kinds[episode]) if episode in kinds else "0"
    number = f"CAST({number_of(engine, value[step], kinds[step])} AS DOUBLE)"
    rows = f"SELECT {person} AS person, {stay} AS stay, {number} AS step FROM log AS l"
    steps = f"SELECT person, stay, step, count(*) AS n FROM ({rows}) AS r WHERE person IS NOT NULL AND step {FINITE}"
    stays = f"SELECT person, stay, max(n) AS n, min(step) AS first FROM ({steps} GROUP BY person, stay, step) AS s"
    totals = "sum(CASE WHEN n > 1 THEN 1 ELSE 0 END), min(first)"
    repeated, first = (
        column[0].as_py()
        for column in engine.fetch(f"SELECT {totals} FROM ({stays} GROUP BY person, stay) AS t").columns
    )
    repairs = Repairs(
        people[0],
        repeated_steps=int(repeated or 0),
        malformed_lines=malformed,
        nobody_rows=nobody,
        counted_from_one=first == 1,
    )
    return _found(people, repairs, None, faults, started)


def _value(engine: Engine, name: str, kind: Kind) -> str:
    value = f"l.{engine.quoted(name)}"
    return f"CAST({value} AS STRING)" if kind == "text" else value


def _people(
    engine: Engine,
    relation: str,
    kinds: Mapping[str, Kind],
    user: str,
    episode: str | None,
    log: LogFormat | None = None,
) -> tuple[int, int, int, int, int, int]:
    """Rows, users, episodes, rows of the longest one, most episodes of a user, and how many do not count."""
    person, stay = who_of(_value(engine, user, kinds[user]), kinds[user]), "0"
    if episode is not None:
        stay = episode_key(engine, _value(engine, episode, kinds[episode]), kinds[episode])
    read = f"SELECT {person} AS person, {stay} AS stay FROM {relation} AS l"
    stays = f"SELECT person, stay, count(*) AS n FROM ({read}) AS r GROUP BY person, stay"
    own = "person IS NOT NULL AND stay IS NOT NULL"
    each = (
        f"SELECT person, sum(n) AS n, sum(CASE WHEN {own} THEN 1 ELSE 0 END) AS stays, "
        f"max(CASE WHEN {own} THEN n ELSE 0 END) AS longest FROM ({stays}) AS s GROUP BY person"
    )
    beyond = "0" if log is None else f"sum(greatest(stays - {log.episodes_per_user}, 0))"
    query = f"SELECT sum(n), count(person), sum(stays), max(longest), max(stays), {beyond} FROM ({each}) AS e"
    rows, users, episodes, longest, most, lost = integers(engine, query)
    return rows, users, episodes, longest, most, lost


def _column_faults(log: DeclaredLog) -> dict[str, dict[str, int]]:
    """Of every declared column: what is missing, no number or no name, and what is out of range."""
    engine, declaration = log.engine, log.declaration
    person = who_of(*log.value(log.roles["user"]))
    conditions = {}
    for column in declaration.states:
        value, kind = log.value(column.name)
        lost = "a bin of its own" if column.missing else "row lost"
        if column.names is not None:
            text = f"CAST({value} AS STRING)"
            known = f"coalesce({text} IN ({', '.join(engine.literal(name) for name in column.names)}), FALSE)"
            empty = f"coalesce({engine.matches(text, MISSING)}, TRUE)"
            conditions[column.name, f"missing ({lost})"] = f"NOT {known} AND {empty}"
            conditions[column.name, f"not a declared name ({lost})"] = f"NOT {known} AND NOT {empty}"
            continue
        number = f"CAST({number_of(engine, value, kind)} AS DOUBLE)"
        there, finite = is_there(number, kind), f"coalesce({number} {FINITE}, FALSE)"
        conditions[column.name, f"missing ({lost})"] = f"NOT {there}"
        conditions[column.name, f"not a number ({lost})"] = f"{there} AND NOT {finite}"
        conditions[column.name, f"below {column.low:g} (in the first bin)"] = (
            f"{finite} AND {number} < {column.low!r}"
        )
        conditions[column.name, f"above {column.high:g} (in the last bin)"] = (
            f"{finite} AND {number} > {column.high!r}"
        )
    if declaration.time is not None:
        said, kind = log.value(declaration.time)
        there = f"NOT coalesce({engine.matches(said, MISSING)}, TRUE)" if kind == "text" else f"{said} IS NOT NULL"
        moment = f"coalesce({log.moment()} {FINITE}, FALSE)"
        conditions[declaration.time, "missing (row lost)"] = f"NOT {there}"
        conditions[declaration.time, "no time such as 2020-01-31 12:00:00, nor seconds (row lost)"] = (
            f"{there} AND NOT {moment}"
        )
    if declaration.propensity is not None:
        value, kind = log.value(declaration.propensity)
        number = f"CAST({number_of(engine, value, kind)} AS DOUBLE)"
        there, sound = is_there(number, kind), f"coalesce({number} > 0 AND {number} <= 1, FALSE)"
        said = "no use for what needs it"
        conditions[declaration.propensity, f"missing ({said})"] = f"NOT {there}"
        conditions[declaration.propensity, f"0, below it, above 1 or no number ({said})"] = f"{there} AND NOT {sound}"
    conditions = {key: f"{person} IS NOT NULL AND {text}" for key, text in conditions.items()}
    return _counted(engine, engine.name, conditions)[0]


def _counted(
    engine: Engine, relation: str, conditions: Mapping[tuple[str, str], str]
) -> tuple[dict[str, dict[str, int]], list[int]]:
    """Of how many rows each holds: by column and reason where there are any, and those of no column."""
    sums = ", ".join(f"sum(CASE WHEN {text} THEN 1 ELSE 0 END) AS n{i}" for i, text in enumerate(conditions.values()))
    numbers = [int(column[0].as_py() or 0) for column in engine.fetch(f"SELECT {sums} FROM {relation} AS l").columns]
    found: dict[str, dict[str, int]] = {}
    for (column, reason), number in zip(conditions, numbers, strict=True):
        if column and number:
            found.setdefault(column, {})[reason] = number
    return found, [number for (column, _), number in zip(conditions, numbers, strict=True) if not column]


def _megabytes(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(number / 1e6, 1.0):.0f} MB"
