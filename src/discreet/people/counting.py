"""Contribution bounding and counting: one text of SQL, run by DuckDB or by Spark.

The text uses only what both dialects share. A step is a bit, 2^step: the OR of an episode's bits, compared with the
number of its rows, shows repeated and missing steps without sorting anything. Both engines order NaN after numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.mdp import Floats, Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.people.logs import OPTIONAL, ROLES, DuckDB, Engine, Kind, LogFormat, Spark, open_log, parquet_schemas

if TYPE_CHECKING:
    from discreet.people.ordered import Ordered

#: With fewer rows, queries are done before compiled code is loaded.
FEW = 100_000
#: Steps per integer of marks: the marks, and one more than they, are positive in 64 bits.
MARKS = 62


CHECK = "check the declared states, actions and horizon (states or actions that have names need a list of them)"


@dataclass(frozen=True)
class Repairs:
    """What was wrong with a log and left out. These numbers are not private: they are for whoever holds the data."""

    rows: int = 0
    unreadable_rows: int = 0  # malformed, nobody's, or with a state, action, step or reward that cannot be
    repeated_steps: int = 0  # episodes in which a step occurs twice
    cut_rows: int = 0  # beyond the bound on episodes, the horizon or the first missing step
    malformed_lines: int = 0  # of a file of text
    nobody_rows: int = 0  # well-formed rows without a user
    columns: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by column and reason: how many rows
    counted_from_one: bool = False  # there is no step 0, but a step H

    def sentences(self) -> tuple[str, ...]:
        lines = [
            f"{number:,} {text}"
            for number, text in (
                (self.unreadable_rows, "rows that cannot be read, left out"),
                (self.malformed_lines, "of these are malformed lines (fields, quotes, encoding)"),
                (self.nobody_rows, "of these name no user"),
                (self.repeated_steps, "episodes in which a step occurs twice, left out"),
                (
                    self.cut_rows,
                    "other rows beyond the bound on episodes, after a missing step or without an episode, left out",
                ),
            )
            if number
        ]
        for column, reasons in self.columns.items():
            listed = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
            lines.append(f"column {column!r}: {listed}")
        if self.rows <= self.unreadable_rows + self.cut_rows:
            lines.append(f"no row of the log can be counted: {CHECK}")
        if self.counted_from_one:
            lines.append("no row has step 0: if steps are counted from 1, say so (--first-step 1, first_step=1)")
        return tuple(lines)


@dataclass(frozen=True, eq=False)
class StepItems:
    """As `StepCounts`, of what occurred alone: `codes` are flat indices of (g, s, a, s'), each once. Raw."""

    codes: Ints  # (n,)
    numbers: Ints  # (n,)
    paid: Ints  # (n,)
    num_users: int
    episodes_per_user: int = 1
    repairs: Repairs = Repairs()
    first_visits: bool = False

    @property
    def num_episodes(self) -> int:
        return self.num_users * self.episodes_per_user

    def table(self, spec: CountSpec) -> StepCounts:
        """All items, those that nobody has included."""
        T, R = _empty(spec), _empty(spec)
        T.reshape(-1)[self.codes] = self.numbers
        R.reshape(-1)[self.codes] = self.paid
        return StepCounts(T, R, self.num_users, self.episodes_per_user, self.repairs, self.first_visits)

    def __repr__(self) -> str:
        return f"StepItems({self.num_users} users)"


@dataclass(frozen=True, eq=False)
class StepCounts:
    """How often (g, s, a, s') occurred and what it paid, in grid units. Raw: for a privatizer and nothing else."""

    transitions: Ints  # (G, S, A, S)
    reward_sums: Ints  # (G, S, A, S)
    num_users: int
    episodes_per_user: int = 1
    repairs: Repairs = Repairs()
    first_visits: bool = False  # of an episode only the first visit to every (s, a) was counted

    @classmethod
    def of(cls, episodes: Episodes, spec: CountSpec) -> StepCounts:
        """Counts of episodes in memory, one per user."""
        users, episodes = len(episodes), spec.readable(episodes)
        units, _ = spec.on_grid(episodes.rewards)
        T, R = _empty(spec), _empty(spec)
        stages = np.broadcast_to(0 if spec.pooled else np.arange(episodes.horizon), episodes.actions.shape)
        where = (stages, episodes.states[:, :-1], episodes.actions, episodes.states[:, 1:])
        np.add.at(T, where, 1)
        np.add.at(R, where, units)
        return cls(T, R, users)

    @property
    def num_episodes(self) -> int:
        """Most episodes there can be: a public number, unlike how many there are."""
        return self.num_users * self.episodes_per_user

    def counts(self) -> Counts:
        """The three tables of the count-based learners."""
        return Counts(
            self.transitions.sum(axis=-1), self.transitions, self.reward_sums.sum(axis=-1), self.num_episodes
        )

    def __repr__(self) -> str:  # a log line must not carry anyone's counts
        return f"StepCounts({self.num_users} users)"


def _empty(spec: CountSpec) -> Ints:
    return np.zeros(spec.shapes()["transitions"], dtype=np.int64)


class Rows(NamedTuple):
    """Rows of one step, those that are alike together. Raw."""

    cells: Ints  # s·A + a
    following: Ints
    units: Ints  # what they paid
    numbers: Ints  # how many


class LoggedData:
    """A log that has been opened and whose users have been looked at; what comes out of it is raw.

    `num_users` is public (also under replace: a replaced user still exists); `repairs` are not. `log` is the format
    with what the columns of the source add to it.
    """

    def __init__(self, source: Any, log: LogFormat, table: str | None = None, again: bool = False) -> None:
        """`again`: one step of every user may be asked for."""
        self._engine = open_log(source, table)
        self.log = log = log.read_from(self._engine.kinds(), _complete(source, log.column("next_state")))
        prepare(self._engine, log)
        self._ordered = _in_order(self._engine, log, again)
        if self._ordered is None:
            _look_up(self._engine, log)
        self.num_users, self.repairs = _who(self._engine, log, self._ordered)

    @cached_property
    def _shortcut(self) -> str | None:
        if self._ordered is not None:  # which episodes count is not known yet
            _look_up(self._engine, self.log)
        return _shortcut(self._engine, self.log) if self.log.enforce else None

    def counts(self) -> StepCounts:
        """Count within the rules."""
        return self.items().table(self.log.spec)

    def items(self) -> StepItems:
        """The same, of what occurred alone."""
        log, repairs = self.log, self.repairs
        if self._ordered is not None:
            code, number, paid = self._ordered.codes, self._ordered.numbers, self._ordered.paid
        else:
            rows = self._engine.fetch(counting_query(log, self._shortcut))
            code, number, paid = (np.asarray(rows.column(i), dtype=np.int64) for i in range(3))
        left_out = repairs.rows - repairs.unreadable_rows - int(number.sum())
        if not log.enforce:
            if left_out:
                repairs = _faults(self._engine, log, True)
            repairs = replace(repairs, unreadable_rows=left_out)
        elif not log.first_visits:
            repairs = replace(repairs, cut_rows=left_out)
        return StepItems(code, number, paid, self.num_users, log.episodes_per_user, repairs, log.first_visits)

    def one_step(self) -> OneStep:
        """One step of every user, for which this is asked once."""
        if self._ordered is not None and not self.log.first_visits:
            return OrderedStep(self._ordered, self._engine, self.log, self.num_users, self.repairs)
        _ = self._shortcut  # looks the episodes up
        return OneStep(self._engine, self.log, self.num_users, self.repairs)

    def rows(self) -> StepRows:
        """The rows that count, step by step."""
        return StepRows(self._engine, self.log, self._shortcut, self.num_users, self.repairs)


class OneStep:
    """One step of every user, chosen where the rows are; what comes out are sums over users.

    Coins are functions of a user's name, of which of her episodes and steps it is, and of a key. Of a name SHA-256
    makes numbers that look independent and uniform to whoever does not know the key; of these, a cubic polynomial of
    the step makes coins of which any four are independent. No user's name or rows change another's coins.
    """

    def __init__(self, engine: Engine, log: LogFormat, num_users: int, repairs: Repairs) -> None:
        self._engine, self._log, self.num_users, self.repairs = engine, log, num_users, repairs

    def ask(self, key: str, pilot: float) -> None:
        """Toss the users' coins: who is a pilot, and which step a pilot is asked for."""
        tossed, asked = _asked(self._engine, self._log, key, pilot)
        self._engine.keep("tossed", tossed, True)
        self._engine.keep("asked", asked, True)

    def visits(self) -> Ints:
        """(G·S·A,) How many pilots were in every cell at the step they were asked for."""
        log = self._log
        rows = _kept_rows(log, None, "(SELECT * FROM asked WHERE pilot)", ("wanted",), led=False)
        found = self._engine.fetch(
            f"SELECT cell, count(*) AS number FROM (SELECT {_cell(log)} AS cell FROM ({rows}) AS kept "
            "WHERE step = wanted) AS asked_of GROUP BY cell"
        )
        cell, number = (np.asarray(column, dtype=np.int64) for column in found.columns)
        cut = self.repairs.rows - self.repairs.unreadable_rows - _number_kept(self._engine, log)
        self.repairs = replace(self.repairs, cut_rows=cut)
        visits = np.zeros(log.spec.stages * log.num_states * log.num_actions, dtype=np.int64)
        visits[cell] = number
        return visits

    def reports(self, weights: Floats) -> StepItems:
        """Everybody else reports her first step h with coin < w(cell)/(H − h), if there is one."""
        log = self._log
        self._engine.register("weights", pa.table({"of_cell": np.arange(weights.size), "weight": weights}))
        others, led = "(SELECT * FROM asked WHERE NOT pilot)", _led(log)
        rows = _kept_rows(log, None, others, ("steps", "place", *COEFFICIENTS), led=not led)
        what = "steps" if led else f"{_code(log)} AS code, units"
        coin = _step_coin(f"(place - 1) * {log.horizon} + step + 1")
        offered = (
            f"SELECT person, episode, step, {what} FROM (SELECT kept.*, {_cell(log)} AS cell FROM ({rows}) AS kept) "
            f"AS placed JOIN weights ON cell = of_cell "
            f"WHERE CAST({coin} AS DOUBLE) * ({log.horizon} - step) < weight * {PRIME}"
        )
        if led:  # what follows is looked for where it is reported
            self._engine.keep(
                "chosen",
                f"SELECT person AS of_person, {_episode_of(log)} AS of_episode, min(steps) AS steps, "
                f"min(step) AS chosen FROM ({offered}) AS offered GROUP BY {_one_episode(log)}",
                True,
            )
            kept = _kept_rows(log, None, "chosen", ("chosen",))
            reported = f"SELECT {_code(log)} AS code, units FROM ({kept}) AS kept WHERE step = chosen"
        else:
            reported = (
                f"SELECT min_by(code, step) AS code, min_by(units, step) AS units FROM ({offered}) AS offered "
                f"GROUP BY {_one_episode(log)}"
            )
        found = self._engine.fetch(
            "SELECT code, count(*) AS number, CAST(sum(units) AS BIGINT) AS paid "
            f"FROM ({reported}) AS reported GROUP BY code"
        )
        code, number, paid = (np.asarray(column, dtype=np.int64) for column in found.columns)
        return StepItems(code, number, paid, self.num_users, log.episodes_per_user, self.repairs)

    def __repr__(self) -> str:
        return f"OneStep({self.num_users} users)"


class OrderedStep(OneStep):
    """The same of a log that was read in order: the same coins, tossed along the way."""

    def __init__(self, found: Ordered, *parts: Any) -> None:
        super().__init__(*parts)
        self._found = found

    def ask(self, key: str, pilot: float) -> None:
        self._asked = self._found.one_step(key, int(pilot * COINS))

    def visits(self) -> Ints:
        cut = self.repairs.rows - self.repairs.unreadable_rows - self._found.kept
        self.repairs = replace(self.repairs, cut_rows=cut)
        return self._asked.visits()

    def reports(self, weights: Floats) -> StepItems:
        return StepItems(*self._asked.reports(weights), self.num_users, self._log.episodes_per_user, self.repairs)


class StepRows:
    """The rows that count, one step at a time, alike ones counted where they are."""

    def __init__(
        self, engine: Engine, log: LogFormat, shortcut: str | None, num_users: int, repairs: Repairs
    ) -> None:
        self._engine, self._log, self._shortcut = engine, log, shortcut
        self.num_users, self.repairs = num_users, repairs

    def gather(self, half: NDArray[np.bool_] | None = None) -> None:
        """Count them; `half`: a coin per user, in any order."""
        log = self._log
        rows, what = f"({_kept_rows(log, self._shortcut)}) AS kept", "FALSE"
        if half is not None:
            self._engine.register("coins", pa.table({"numbered": np.arange(half.size), "coin": half}))
            whose = f"SELECT DISTINCT person AS who FROM ({_kept_rows(log, self._shortcut)}) AS there"
            places = f"SELECT who, row_number() OVER (ORDER BY who) - 1 AS place FROM ({whose}) AS whose"
            rows += f" JOIN ({places}) AS people ON person = who JOIN coins ON place = numbered"
            what = "coin"
        columns = f"step, CAST(state AS INT) * {log.num_actions} + action AS cell, next_state, units, {what} AS half"
        self._engine.keep(
            "step_rows",
            f"SELECT step, cell, next_state, units, half, count(*) AS number FROM (SELECT {columns} FROM {rows}) "
            "AS coded GROUP BY step, cell, next_state, units, half",
            True,
        )
        if log.enforce:
            (there,) = _integers(self._engine, "SELECT sum(number) FROM step_rows")
            self.repairs = replace(self.repairs, cut_rows=self.repairs.rows - self.repairs.unreadable_rows - there)

    def of(self, step: int, half: bool | None = None) -> Rows:
        """Of all users, or of those with one side of the coin."""
        whose = "" if half is None else f" AND {'half' if half else 'NOT half'}"
        found = self._engine.fetch(
            f"SELECT cell, next_state, units, number FROM step_rows WHERE step = {int(step)}{whose}"
        )
        return Rows(*(np.asarray(column, dtype=np.int64) for column in found.columns))

    def __repr__(self) -> str:
        return f"StepRows({self.num_users} users)"


def count(source: Any, log: LogFormat, table: str | None = None) -> StepCounts:
    """Count a log within its rules."""
    return LoggedData(source, log, table).counts()


def _complete(source: Any, column: str) -> bool:
    """Whether by the kind of the source, or by its schema, every row has a successor."""
    source = source.paths if isinstance(source, Spark) else source
    tables = [source.schema] if isinstance(source, pa.Table) else parquet_schemas(source)
    if tables:
        return all(column in schema.names and not schema.field(column).nullable for schema in tables)
    if isinstance(source, Mapping) and isinstance(found := source.get(column), np.ndarray):
        return bool(np.issubdtype(found.dtype, np.integer))
    return isinstance(source, Episodes) or hasattr(source, "iterate_episodes")


# The text -----------------------------------------------------------------------------------------------------------


#: A number in text: decimal, ASCII, perhaps with spaces around it. Short of this, text is a bool, a name or nothing.
NUMBER = " *[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)? *"
NAN = "CAST('NaN' AS DOUBLE)"
TRUE, FALSE, MISSING = " *[tT][rR][uU][eE] *", " *[fF][aA][lL][sS][eE] *", " *([nN][aA][nN] *)?"

#: Columns that say how an episode stopped, and all that hold numbers whatever is declared.
FLAGS = ("terminated", "truncated")
UNNAMED = ("step", "reward", *FLAGS)

#: Whole numbers are cut to −1 and this, both of which are out of every range.
LARGE = 1_000_000_000


def prepare(engine: Engine, log: LogFormat) -> None:
    """Define `parsed` (all rows, value by value) and `readings` (those of somebody)."""
    kinds = engine.kinds()
    _check_columns(engine, log, kinds)
    for view, listed in (("state_names", log.state_names), ("action_names", log.action_names)):
        if listed is not None:
            engine.register(view, pa.table({"name": list(listed), "code": list(range(len(listed)))}))
    followed = log.column("next_state") in kinds
    as_text = any(
        kinds.get(log.column(role)) == "text" for role in ("step", "state", "action", "reward", *_flagged(log))
    )
    engine.keep("parsed", _parsed(engine, log, kinds), as_text)
    engine.keep("readings" if followed else "readings_alone", _reading(log, followed), False)
    if not followed:
        engine.keep("readings", _followed(log, "readings_alone"), False)


def _in_order(engine: Engine, log: LogFormat, again: bool = False) -> Ordered | None:
    """What one pass finds in a large log, where one is enough."""
    if not isinstance(engine, DuckDB) or engine.rows_kept() < FEW:
        return None
    from discreet.people.ordered import in_order

    return in_order(engine, log, again)


def _look_up(engine: Engine, log: LogFormat) -> None:
    """To enforce the rules: `episodes_read` (all episodes) and `bounded` (those that count)."""
    if log.enforce:
        engine.keep("episodes_read", _episodes(log), True)
        engine.keep("bounded", _bounded(log), True)


def _check_columns(engine: Engine, log: LogFormat, kinds: dict[str, Kind]) -> None:
    """Refuse a log by its schema, which is public."""
    missing = [role for role in ROLES if role not in OPTIONAL and log.column(role) not in kinds]
    missing += [role for role in OPTIONAL if role in log.columns and log.column(role) not in kinds]
    if missing:
        names = ", ".join(repr(log.column(role)) for role in missing)
        if engine.delimited and not any(log.column(role) in kinds for role in ROLES):
            raise ValueError(f"the log has no column {names}; its first line must name the columns")  # is it a row?
        raise ValueError(
            f"the log has no column {names}; its columns are {', '.join(kinds)} (say which one it is: "
            f"{missing[0]}=NAME)"
        )
    for role in ("step", "state", "action", "next_state", "reward", *_flagged(log)):
        if kinds.get(log.column(role)) == "other" and (role in UNNAMED or _names(log, role) is None):
            expected = "numbers" if role == "reward" else "whole numbers"
            raise ValueError(
                f"column {log.column(role)!r} holds neither numbers, bools nor text; expected {expected}"
            )


def _names(log: LogFormat, role: str) -> tuple[str, ...] | None:
    if role in UNNAMED:
        return None
    return log.action_names if role == "action" else log.state_names


def _number(engine: Engine, value: str, kind: Kind) -> str:
    """The value as a number: NULL if nothing is there, NaN if it is no number. Typed columns stay what they are."""
    if kind == "text":
        return (
            f"CASE WHEN {engine.matches(value, NUMBER)} THEN TRY_CAST({value} AS DOUBLE) "
            f"WHEN {engine.matches(value, TRUE)} THEN 1.0 WHEN {engine.matches(value, FALSE)} THEN 0.0 "
            f"WHEN NOT {engine.matches(value, MISSING)} THEN {NAN} END"
        )
    if kind == "bool":
        return f"CAST({value} AS INT)"
    return value if kind == "int" else f"CAST({value} AS DOUBLE)"


def _there(value: str, kind: Kind) -> str:
    """Whether there was anything, from `_number`; a typed NaN is what a table has for nothing."""
    return f"coalesce({value} < {NAN}, FALSE)" if kind == "float" else f"{value} IS NOT NULL"


def _whole(value: str, kind: Kind, first: int = 0) -> str:
    """The number as a whole one counted from `first`, or NULL."""
    if kind in ("int", "bool"):
        shifted = f"CASE WHEN {value} < {first} THEN -1 WHEN {value} > {LARGE} THEN {LARGE} "
        return f"{shifted}ELSE CAST({value} AS INT) - {first} END" if first else value
    return (
        f"CASE WHEN {value} < {first} THEN -1 WHEN {value} >= {NAN} THEN NULL WHEN {value} > {LARGE} THEN {LARGE} "
        f"WHEN {value} = floor({value}) THEN CAST({value} AS INT) - {first} END"
    )


def _who_of(value: str, kind: Kind) -> str:
    """A user as she is named, text character by character; NULL: nobody."""
    if kind == "text":
        return f"CASE WHEN {value} <> '' AND lower({value}) <> 'nan' THEN {value} END"
    return f"CASE WHEN {value} < {NAN} THEN {value} END" if kind == "float" else value


def _episode(engine: Engine, value: str, kind: Kind) -> str:
    """What tells episodes of a person apart, in their order; NULL: no episode.

    Of texts, whole numbers come first, in order of the numbers (their length is written before them), then the others
    in order of their characters.
    """
    if kind != "text":
        return _who_of(value, kind)
    digits = f"CAST(CAST(TRY_CAST({value} AS DOUBLE) AS BIGINT) AS STRING)"
    return (
        f"CASE WHEN {engine.matches(value, '[0-9]|[1-9][0-9]{1,14}')} "
        f"THEN concat(chr(CAST(64 + length({value}) AS INT)), {value}) "
        f"WHEN {engine.matches(value, ' *[0-9]{1,15}([.]0*)? *')} "
        f"THEN concat(chr(CAST(64 + length({digits}) AS INT)), {digits}) "
        f"WHEN NOT {engine.matches(value, MISSING)} THEN concat('~', {value}) END"
    )


def _parsed(engine: Engine, log: LogFormat, kinds: dict[str, Kind]) -> str:
    """All rows of the log under the names of this module, every value read alone and by one rule.

    Of each value: the number, and whether anything was there.
    """
    kind = {role: kinds[log.column(role)] for role in ROLES if log.column(role) in kinds}
    column = {role: "l." + engine.quoted(log.column(role)) for role in kind}
    column |= {role: f"CAST({value} AS STRING)" for role, value in column.items() if kind[role] == "text"}
    user, episode = _who_of(column["user"], kind["user"]), "0"
    if "episode" in column:
        episode = _episode(engine, column["episode"], kind["episode"])
    inner = [f"{user} AS person", f"{column['user']} IS NOT NULL AS formed", f"{episode} AS episode"]
    outer, joins = ["person", "formed", "episode"], []
    for role in ("step", "state", "action", "next_state", "reward"):
        if role not in column:
            continue
        if _names(log, role) is None:
            inner.append(f"{_number(engine, column[role], kind[role])} AS {role}")
            outer.append(f"{_there(role, kind[role])} AS {role}_there")
            if role != "reward":
                outer.append(f"{_whole(role, kind[role], log.first_step if role == 'step' else 0)} AS {role}")
        else:
            dictionary = "action_names" if role == "action" else "state_names"
            text = f"CAST({column[role]} AS STRING)"
            joins.append(f"LEFT JOIN {dictionary} AS {role}_of ON {role}_of.name = {text}")
            there = f"{role}_of.code IS NOT NULL OR coalesce(NOT {engine.matches(text, MISSING)}, FALSE)"
            inner += [f"{role}_of.code AS {role}", f"{there} AS {role}_there"]
            outer += [role, f"{role}_there"]
    low, high = log.reward_range
    reward = "reward"
    if kind["reward"] == "text":  # what is too large for a number is none
        reward = "CASE WHEN reward BETWEEN -1.7976931348623157E308 AND 1.7976931348623157E308 THEN reward END"
    outer.append(f"({reward} - ({low!r})) / {high - low!r} AS paid")
    flags = {}
    for role in _flagged(log):
        inner.append(f"{_number(engine, column[role], kind[role])} AS {role}_said")
        flags[role] = _flag(f"{role}_said", kind[role])
    if len(flags) == 2 and log.given is not None and "done" in log.given:  # who was cut off is done, too
        flags["terminated"] = f"({flags['terminated']}) AND NOT ({flags['truncated']})"
    outer += [f"{text} AS {role}" for role, text in flags.items()]
    return f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM log AS l {' '.join(joins)}) AS cells"


def _reading(log: LogFormat, followed: bool) -> str:
    """The rows of somebody."""
    columns = ["person", "episode", "step", "state", "action", "paid", *_flagged(log)]
    if followed:
        columns += ["next_state", "NOT next_state_there AS no_successor"]
    return f"SELECT {', '.join(columns)} FROM parsed WHERE person IS NOT NULL"


def _flag(said: str, kind: Kind) -> str:
    """TRUE for 1, FALSE for 0 or where nothing was said, NULL for anything else."""
    return f"CASE WHEN NOT ({_there(said, kind)}) OR {said} = 0 THEN FALSE WHEN {said} = 1 THEN TRUE END"


def _flagged(log: LogFormat) -> list[str]:
    return [role for role in FLAGS if log.given is not None and role in log.given]


def _follows(log: LogFormat) -> str:
    return f"next_state BETWEEN 0 AND {log.num_states - 1}"


def _readable(log: LogFormat, steps: range) -> str:
    """Whether a row is about one of the steps and says what it must; never true where something is NULL."""
    S, flags = log.num_states - 1, _flagged(log)
    successor = f"{_follows(log)} OR no_successor"
    if _led(log):
        successor = "TRUE"  # what follows was made from the states: it is one of them or there is none
    elif not (log.has_unknown or log.early_end == "absorb"):
        successor = _follows(log) if log.pooled else f"{successor} AND step = {log.horizon - 1}"
    successor += "".join(f" OR {flag}" for flag in flags if flag == "terminated" or log.has_unknown)
    return (
        f"step BETWEEN {steps[0]} AND {steps[-1]} AND state BETWEEN 0 AND {S} "
        f"AND action BETWEEN 0 AND {log.num_actions - 1} AND paid < CAST('NaN' AS DOUBLE) AND ({successor})"
        + "".join(f" AND {flag} IS NOT NULL" for flag in flags)
    )


def _led(log: LogFormat) -> bool:
    """Whether there is no column for the successor."""
    return log.given is not None and "next_state" not in log.given


def _one_episode(log: LogFormat) -> str:
    """Columns that tell episodes apart: the fewer, the faster."""
    return "person" if log.given is not None and "episode" not in log.given else "person, episode"


def _episode_of(log: LogFormat) -> str:
    """The episode of a group of its rows."""
    return "episode" if "episode" in _one_episode(log) else "0"


def _same_episode(log: LogFormat, rows: str) -> str:
    """Rows and the episodes k."""
    same = f"{rows}.person = k.of_person"
    return f"{same} AND {rows}.episode = k.of_episode" if "episode" in _one_episode(log) else same


def _followed(log: LogFormat, source: str) -> str:
    """Without a column for it, the successor is the state of the next step; nobody knows what follows a cut."""
    flags = "".join(f", {flag}" for flag in _flagged(log))
    known = f"step_after = CAST(step AS DOUBLE) + 1 AND state_after BETWEEN 0 AND {log.num_states - 1}"
    if "truncated" in flags:
        known += " AND NOT truncated"
    ordered = f"OVER (PARTITION BY {_one_episode(log)} ORDER BY step)"
    return (
        "SELECT followed.*, next_state IS NULL AS no_successor "
        f"FROM (SELECT person, episode, step, state, action, paid{flags}, "
        f"CASE WHEN {known} THEN state_after END AS next_state "
        f"FROM (SELECT alone.*, lead(step) {ordered} AS step_after, "
        f"lead(state) {ordered} AS state_after FROM {source} AS alone) AS led) AS followed"
    )


def _stops(log: LogFormat) -> str:
    """Whether a row says that its episode went no further; empty where no row can."""
    found = _flagged(log)
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
        f"SELECT person, {_episode_of(log)} AS episode, count(*) AS logged, {readable} AS readable, {marks} "
        f"FROM (SELECT person, episode, {marked} FROM {_readings(log)}) AS marked GROUP BY {_one_episode(log)}"
    )


def _distinct_steps(log: LogFormat) -> str:
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
    whole = f"episode IS NOT NULL AND readable > 0 AND readable = {_distinct_steps(log)}"
    placed = (
        "SELECT episodes_read.*, row_number() OVER (PARTITION BY person ORDER BY episode) AS place "
        f"FROM episodes_read WHERE {whole}"
    )
    return (
        f"SELECT person AS of_person, episode AS of_episode, place, {_length(log)} AS steps FROM ({placed}) "
        f"AS placed WHERE place <= {int(log.episodes_per_user)} AND {_length(log)} > 0"
    )


def _shortcut(engine: Engine, log: LogFormat) -> str | None:
    """A condition on rows that holds exactly in the episodes of `bounded`, when these are whole and all up to some
    number: then nothing has to be looked up. Which way it goes shows in the time taken only, and that is no secret.
    """
    summary = f"SELECT max(of_episode), count(*), sum(CASE WHEN steps < {log.horizon} THEN 1 ELSE 0 END) FROM bounded"
    last, kept, short = (column[0].as_py() for column in engine.fetch(summary).columns)
    condition = "TRUE"
    if isinstance(last, int):
        condition = f"episode <= {last}"
    elif isinstance(last, str) and re.fullmatch("[A-Z][0-9]+", last):  # a number in text, see `_episode`
        condition = f"episode <= '{last}'"
    there = (
        engine.fetch(f"SELECT count(*) FROM episodes_read WHERE readable > 0 AND {condition}").column(0)[0].as_py()
    )
    return condition if there == kept and not short else None


def _successor(log: LogFormat, looked_up: bool) -> str:
    """Where a row that counts leads: 0..S−1, then the state of those who ended, then nobody knows where.

    `looked_up`: the number of steps of its episode is at hand; else all episodes have all their steps.
    """
    S, H, flags = log.num_states, log.horizon, _flagged(log)
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
    return "readings_alone" if _led(log) else "readings"


def _kept_rows(
    log: LogFormat, shortcut: str | None, episodes: str = "bounded", more: Sequence[str] = (), led: bool = True
) -> str:
    """Rows that count; `more` columns are those of their `episodes`; without `led` what follows is not looked for.

    Of episodes of which one step is `chosen`, only that and the next are looked at.
    """
    source = f"{'readings' if led else _readings(log)} AS r"
    if led and _led(log) and "chosen" in more:
        near = (
            f"(SELECT alone.* FROM readings_alone AS alone JOIN {episodes} AS k ON {_same_episode(log, 'alone')} "
            "WHERE alone.step BETWEEN k.chosen AND k.chosen + 1)"
        )
        source = f"({_followed(log, near)}) AS r"
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


def _code(log: LogFormat) -> str:
    """The flat index of (g, s, a, s')."""
    S, A = log.spec.num_states, log.num_actions
    # Columns may be too narrow for a product; a narrow code takes a third of the time of a wide one.
    wide = "INT" if log.spec.stages * S * A * S < 2**31 else "BIGINT"
    code = f"(CAST(state AS {wide}) * {A} + action) * {S} + next_state"
    if not log.pooled:
        code = f"CAST(step AS {wide}) * {S * A * S} + {code}"
    return f"CAST({code} AS {wide})"


def _cell(log: LogFormat) -> str:
    """The flat index of (g, s, a), without the states that are none."""
    S, A = log.num_states, log.num_actions
    code = f"CAST(state AS BIGINT) * {A} + action"
    return code if log.pooled else f"CAST(step AS BIGINT) * {S * A} + {code}"


#: The coins of users are whole numbers below the first, those of steps below the second.
COINS, PRIME = 2**52, 2**31 - 1
COEFFICIENTS = ("k0", "k1", "k2", "k3")


def _text(value: str) -> str:
    return f"CAST({value} AS STRING)"


def _digest(engine: Engine, *parts: str) -> str:
    """SHA-256 of texts one after the other, in hexadecimal digits."""
    text = f"concat({', '.join(parts)})"
    return f"sha2({text}, 256)" if isinstance(engine, Spark) else f"sha256({text})"


def _coin(engine: Engine, digest: str, first: int = 1, length: int = 13) -> str:
    """Some digits of a digest as a whole number."""
    digits = f"substr({digest}, {first}, {length})"
    if isinstance(engine, Spark):
        return f"CAST(conv({digits}, 16, 10) AS BIGINT)"
    return f"CAST(concat('0x', {digits}) AS BIGINT)"


def _asked(engine: Engine, log: LogFormat, key: str, pilot: float) -> tuple[str, str]:
    """The episodes that count with their coins, in two queries: a digest of their user's name; then whether she is a
    pilot, four numbers from which the coins of steps are made, and the step that is wanted of a pilot."""
    named = _text("of_person")
    who = f"CASE {named} WHEN '-0.0' THEN '0.0' ELSE {named} END"  # equal numbers are one user
    tag = _digest(engine, f"'{key}:'", who)
    tossed = f"SELECT of_person, of_episode, steps, place, {tag} AS tag FROM bounded"
    numbers = ", ".join(
        f"{_coin(engine, 'tag', 14 + 8 * i, 8)} % {PRIME} AS {name}" for i, name in enumerate(COEFFICIENTS)
    )
    coins = f"SELECT tossed.*, {_coin(engine, 'tag')} < {int(pilot * COINS)} AS pilot, {numbers} FROM tossed"
    last = log.episodes_per_user * log.horizon
    wanted = f"CAST(floor(CAST({_step_coin(f'{last} + place')} AS DOUBLE) * {log.horizon} / {PRIME}) AS INT)"
    columns = ", ".join(("of_person", "of_episode", "steps", "place", "pilot", *COEFFICIENTS))
    return tossed, f"SELECT {columns}, {wanted} AS wanted FROM ({coins}) AS coins"


def _step_coin(number: str) -> str:
    """k₀ + k₁x + k₂x² + k₃x³ modulo a prime at a whole number x."""
    x, found = f"CAST({number} AS BIGINT)", "k3"
    for name in ("k2", "k1", "k0"):
        found = f"(({found} * ({x}) + {name}) % {PRIME})"
    return found


def _number_kept(engine: Engine, log: LogFormat) -> int:
    """How many rows count."""
    query = f"SELECT count(*) FROM ({_kept_rows(log, None, led=False)}) AS kept"
    if log.early_end == "absorb":
        query = "SELECT sum(steps) FROM bounded"
    return _integers(engine, query)[0]


def counting_query(log: LogFormat, shortcut: str | None = None) -> str:
    """(code, number, paid), code = the flat index of (g, s, a, s')."""
    return (
        f"SELECT code, count(*) AS number, CAST(sum(units) AS BIGINT) AS paid "
        f"FROM (SELECT {_code(log)} AS code, units FROM ({_kept_rows(log, shortcut)}) AS kept) AS coded GROUP BY code"
    )


def _who(engine: Engine, log: LogFormat, ordered: Ordered | None) -> tuple[int, Repairs]:
    """How many users there are, and what is wrong with their rows."""
    users, logged, readable, repeated = 0, 0, 0, 0
    if ordered is not None:
        users, logged, readable, repeated = ordered.users, ordered.logged, ordered.readable, ordered.repeated
    elif log.enforce:
        query = (
            "SELECT count(DISTINCT person), sum(logged), sum(readable), "
            f"sum(CASE WHEN readable > {_distinct_steps(log)} THEN 1 ELSE 0 END) FROM episodes_read"
        )
        users, logged, readable, repeated = _integers(engine, query)
    elif log.num_users is None:
        (users,) = _integers(engine, "SELECT count(DISTINCT person) FROM readings")
    if log.num_users is not None and users > log.num_users:
        raise ValueError(f"the log has more users than the {log.num_users:,} declared")
    if ordered is not None and readable == logged:
        clipped = dict(zip((("reward", said) for said in _clippings(log)), ordered.clipped, strict=True))
        found = Repairs(ordered.rows, nobody_rows=ordered.nobody, columns=_by_column(log, clipped))
    else:
        found = _faults(engine, log, readable < logged)
    if log.enforce:
        found = replace(found, unreadable_rows=found.rows - readable, repeated_steps=repeated)
    return log.num_users or max(users, 1), found


def _integers(engine: Engine, query: str) -> list[int]:
    return [int(column[0].as_py() or 0) for column in engine.fetch(query).columns]


def _faults(engine: Engine, log: LogFormat, unreadable: bool) -> Repairs:
    """What is wrong with rows, column by column: one pass over the log, over few columns if all rows can be read."""
    formed, faults = ("formed" if engine.delimited else "TRUE"), {}
    there = {role for role in ("next_state", "episode") if log.column(role) in engine.kinds()}
    if unreadable:
        if "episode" in there:
            faults["episode", "missing"] = "episode IS NULL"
        for role in ("step", "state", "action", "reward", "next_state"):
            value = "paid" if role == "reward" else role
            if role != "next_state":
                faults[role, "missing"] = f"NOT {role}_there"
            elif role not in there:
                continue
            most = {"step": log.horizon, "action": log.num_actions}.get(role, log.num_states) - 1
            if _names(log, role) is not None:
                faults[role, "not a declared name"] = f"{role}_there AND {value} IS NULL"
                continue
            faults[role, "not a number" if role == "reward" else "not a whole number"] = (
                f"{role}_there AND {value} IS NULL"
            )
            if role != "reward":
                shift = log.first_step if role == "step" else 0
                faults[role, f"outside {shift}..{most + shift}"] = f"{role} NOT BETWEEN 0 AND {most}"
    below, above = _clippings(log)
    faults["reward", below] = "paid < 0.0"
    faults["reward", above] = "paid > 1.0 AND paid < CAST('NaN' AS DOUBLE)"
    steps = ("step = 0", f"step = {log.horizon}") if unreadable else ("FALSE", "FALSE")
    of_somebody = (f"person IS NOT NULL AND {condition}" for condition in (*steps, *faults.values()))
    sums = ", ".join(
        f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END) AS n{i}"
        for i, condition in enumerate((f"NOT {formed}", f"{formed} AND person IS NULL", *of_somebody))
    )
    rows, malformed, nobody, at_zero, at_end, *numbers = _integers(engine, f"SELECT count(*), {sums} FROM parsed")
    return Repairs(
        rows,
        malformed_lines=malformed,
        nobody_rows=nobody,
        columns=_by_column(log, dict(zip(faults, numbers, strict=True))),
        counted_from_one=at_end > 0 and not at_zero and not log.first_step,
    )


def _clippings(log: LogFormat) -> tuple[str, str]:
    """What is said of rewards out of their range."""
    low, high = log.reward_range
    return f"below {low:g}, clipped", f"above {high:g}, clipped"


def _by_column(log: LogFormat, faults: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Numbers of rows by role and reason, as repairs list them."""
    columns: dict[str, dict[str, int]] = {}
    for (role, reason), number in faults.items():
        if number:
            columns.setdefault(log.column(role), {})[reason] = number
    return columns
