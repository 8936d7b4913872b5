"""Logs of columns: every value read alone, put into the bin that was declared, and the rows that count in order.

A declaration says what columns mean. The source is opened under another name, and `log` becomes a view of it that has
the columns that the counting knows, so that a person's rows are bounded by the same rules as everywhere else.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.mdp import Floats, Ints
from discreet.offline.declaration import ROLES, Column, Declaration, Grid
from discreet.people.bounding import kept_rows
from discreet.people.counting import LoggedData
from discreet.people.engines import Engine, Kind, Spark, integers
from discreet.people.logs import LONGEST, LogFormat, columns_of_files, open_log
from discreet.people.reading import episode_key, is_there, number_of, who_of
from discreet.people.repairs import Repairs
from discreet.runs import memory

#: What the source is called while `log` is a view of it.
SOURCE = "columns_of_people"
#: A moment in text: without a zone, or in UTC.
MOMENT = "[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?)?Z?"
FINITE = "BETWEEN CAST('-1.7976931348623157E308' AS DOUBLE) AND CAST('1.7976931348623157E308' AS DOUBLE)"
NEEDED = ("user", "action", "reward")
#: Where a row leads.
ON, ENDED, UNKNOWN = 0, 1, 2
#: Bytes per row that is held, at least what was measured, beside one per declared column; rows that are held at once.
PER_ROW, BLOCK = 280, 1 << 20
#: Rows that are fetched together.
BATCH = 1 << 17
FEWER_ROWS = "take fewer people, or a learner that counts in the database (--algorithm one-hot)"
#: Moments, in seconds, and rewards of one row are at most this, so that differences and sums are numbers.
LATEST, MOST_PAID = 10**15, 1e290


@dataclass(frozen=True, eq=False)
class Stays:
    """Rows that count, in the order (user, episode, step). Raw: for privatizers and nothing else.

    `bins[:, i]` is the fine public bin of the i-th declared column (`Column.fine`; `Column.num_fine`: nothing was
    there). `leads` says where a row leads: `ON` to the next row, `ENDED`, or `UNKNOWN`. Users are 0, 1 … without
    those who have no row that counts; all are among `num_users`.
    """

    user: Ints  # (n,)
    offsets: Ints  # (episodes + 1,) first row of every episode, and the number of rows
    step: Ints
    action: Ints
    reward: Floats  # clipped to the declared range, which is [0, 1] here
    propensity: Floats  # of the logged action; nan where there is none in (0, 1]
    bins: NDArray[np.uint8]  # (n, columns)
    leads: NDArray[np.uint8]
    num_users: int
    episodes_per_user: int = 1
    repairs: Repairs = field(default_factory=Repairs)

    def __len__(self) -> int:
        return len(self.user)

    def states(self, grid: Grid) -> Ints:
        """The state of every row in a grid."""
        return grid.states_of(self.bins)

    @property
    def blocks(self) -> Iterable[Stays]:
        """All rows, some whole users at a time: here all at once."""
        return (self,)

    def __repr__(self) -> str:
        return f"Stays({self.num_users} users)"


#: What is written of a block.
STORED = ("user", "offsets", "step", "action", "reward", "propensity", "bins", "leads")


class StoredStays:
    """The same of a log that is too long to be held at once: blocks of whole users, in files of their own that are
    gone with this. Raw."""

    def __init__(self, blocks: Iterable[Stays], num_users: int, episodes_per_user: int) -> None:
        self.num_users, self.episodes_per_user, self.repairs = num_users, episodes_per_user, Repairs()
        self._folder = Path(tempfile.mkdtemp(prefix="discreet-"))
        weakref.finalize(self, shutil.rmtree, self._folder, True)
        self._rows: list[int] = []
        for block in blocks:
            np.savez(self._path(len(self._rows)), **{name: getattr(block, name) for name in STORED})
            self._rows.append(len(block))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.npz"

    def __len__(self) -> int:
        return sum(self._rows)

    @property
    def blocks(self) -> Iterator[Stays]:
        for number in range(len(self._rows)):
            with np.load(self._path(number)) as found:
                arrays = {name: found[name] for name in STORED}
            yield Stays(**arrays, num_users=self.num_users, episodes_per_user=self.episodes_per_user)

    def __repr__(self) -> str:
        return f"StoredStays({self.num_users} users)"


def read_stays(
    source: Any, declaration: Declaration, table: str | None = None, num_users: int | None = None
) -> Stays:
    """All rows of a log that count, with the fine bins of all declared columns."""
    return DeclaredLog(source, declaration, table).stays(num_users)


class DeclaredLog:
    """A log that has been opened and found to have the declared columns, by its schema alone.

    `gridded` and `stays` open it anew, so that what came of one stays what it is.
    """

    def __init__(self, source: Any, declaration: Declaration, table: str | None = None) -> None:
        self.declaration = declaration
        self._source, self._table = (source.read_all() if hasattr(source, "read_all") else source), table
        self.engine = self._opened()
        if isinstance(self.engine, Spark):  # its views are those of the session: `log` will be another one
            self._source = self.engine
        self.kinds = self.engine.kinds()
        self.timestamps = self.engine.timestamps()
        _check(self)
        self.roles = {
            role: name
            for role in ROLES
            if (name := declaration.column(role)) in self.kinds
            and (role not in ("step", "time", "propensity") or _wanted(declaration, role))
        }
        self.num_users = self._users()

    def _opened(self) -> Engine:
        engine = open_log(self._source, self._table, SOURCE)
        if engine.name != SOURCE:
            raise ValueError("a log of columns is opened with its declaration; give its source, not an engine")
        engine.keep("log", f"SELECT * FROM {engine.name}", False)
        return engine

    def _users(self) -> int:
        """How many users the log names: public."""
        user = self.engine.quoted(self.roles["user"])
        kind = self.kinds[self.roles["user"]]
        value = f"CAST({user} AS STRING)" if kind == "text" else user
        query = f"SELECT count(DISTINCT {who_of(value, kind)}) FROM {self.engine.name}"
        return max(int(self.engine.fetch(query).column(0)[0].as_py()), 1)

    def gridded(self, grid: Grid, num_users: int | None = None) -> tuple[Engine, LogFormat]:
        """The log with the states of a grid, for `LoggedData`."""
        columns = [column for column, _ in grid.used]
        state = grid.sql({column.name: f"v{self._place(column)}" for column in columns}, self.engine.literal)
        text = any(self.kinds[column.name] == "text" for column in columns)
        passed = ", ".join(f"role_{role}" for role in self._shown)
        query = f"SELECT {passed}, {state} AS state FROM ({self._cells(columns)}) AS cells"
        engine = self._opened()
        engine.keep("placed", query, text or self.declaration.time is not None)
        return engine, self._counted(engine, "placed", "state", grid.num_states, num_users)

    def stays(self, num_users: int | None = None) -> Stays:
        """The rows that count, in memory."""
        return next(iter(self._found(num_users, None).blocks))

    def held(self, num_users: int | None = None) -> Stays | StoredStays:
        """The rows that count, in memory where they are few."""
        return self._found(num_users, BLOCK)

    def _found(self, num_users: int | None, most: int | None) -> Stays | StoredStays:
        """What is counted is the number of a row, by which the rest is looked up; `most` rows are held at once."""
        states, engine = self.declaration.states, self._opened()
        placed = [
            f"CAST({column.sql(f'v{i}', None, engine.literal)} AS TINYINT) AS b{i}" for i, column in enumerate(states)
        ]
        chosen = ", ".join([*(f"role_{role}" for role in self._shown), "chance", *placed])
        query = f"SELECT {chosen}, {engine.numbering} AS number FROM ({self._cells(list(states))}) AS cells"
        engine.keep("numbered", query, True)
        rows, last = integers(engine, "SELECT count(*), max(number) FROM numbered")
        once = rows if most is None else min(rows, most)
        each = PER_ROW + len(states)
        memory.require(once * each, f"{once:,} rows, which are held at once,", FEWER_ROWS)
        whole = " AND ".join(f"b{i} < {column.num_fine}" for i, column in enumerate(states) if not column.missing)
        row = f"CASE WHEN {whole} THEN number - 1 END" if whole else "number - 1"
        data = LoggedData(engine, self._counted(engine, "numbered", row, max(last, 1), num_users))
        log, repairs = data.log, data.repairs
        ended = log.num_states if log.has_ended else -1
        led = (
            f"CASE WHEN next_state = {ended} THEN {ENDED} WHEN next_state >= {log.num_states} THEN {UNKNOWN} "
            f"ELSE {ON} END"
        )
        names = ", ".join(f"b{i}" for i in range(len(states)))
        parts = engine.stream(
            f"SELECT person, episode, CAST(step AS INT) AS step, CAST(action AS INT) AS action, "
            f"units, CAST({led} AS TINYINT) AS leads, {names}, chance "
            f"FROM ({kept_rows(log, data._shortcut)}) AS kept JOIN numbered ON state = number - 1",
            ("person", "episode", "step"),
            BATCH,
            rows,
        )
        tables = _of_whole_users(parts, rows + 1 if most is None else most)
        blocks = _numbered(_block(table, log, len(states)) for table in tables)
        first, second = next(blocks), next(blocks, None)
        if second is None:
            cut = repairs.rows - repairs.unreadable_rows - len(first)
            m = log.episodes_per_user
            return replace(
                first, num_users=data.num_users, episodes_per_user=m, repairs=replace(repairs, cut_rows=cut)
            )
        stored = StoredStays(chain((first, second), blocks), data.num_users, log.episodes_per_user)
        cut = repairs.rows - repairs.unreadable_rows - len(stored)
        stored.repairs = replace(repairs, cut_rows=cut)
        return stored

    def row_bytes(self, rows: int) -> int:
        """What so many rows take while a learner looks at them, of which it holds some at once."""
        return min(rows, BLOCK) * (PER_ROW + len(self.declaration.states))

    def whole(self) -> tuple[Engine, LogFormat]:
        """The log with one state, that of all rows in which nothing is missing without a bin for it."""
        columns = [column for column in self.declaration.states if not column.missing]
        bins = [f"{column.sql(f'v{self._place(column)}', None, self.engine.literal)}" for column in columns]
        complete = [f"{text} < {column.num_fine}" for column, text in zip(columns, bins, strict=True)]
        state = f"CASE WHEN {' AND '.join(complete)} THEN 0 END" if complete else "0"
        passed = ", ".join(f"role_{role}" for role in self._shown)
        engine = self._opened()
        engine.keep("placed", f"SELECT {passed}, {state} AS state FROM ({self._cells(columns)}) AS cells", True)
        return engine, self._counted(engine, "placed", "state", 1, None)

    # The text -------------------------------------------------------------------------------------------------------

    @property
    def _shown(self) -> list[str]:
        """Roles of columns that the counting reads."""
        given = [role for role in self.roles if role not in ("time", "step", "propensity")]
        return [*given, "step"]

    def _place(self, column: Column) -> int:
        return self.declaration.states.index(column)

    def _counted(self, engine: Engine, table: str, state: str, num_states: int, num_users: int | None) -> LogFormat:
        """Make `log` a view of a table in which columns are named after their roles; how to read it."""
        declaration, quoted = self.declaration, engine.quoted
        named = {role: self.roles[role] for role in self._shown if role in self.roles}
        steps = "step" if declaration.time is None else f"{declaration.time} (as steps)"
        for role, name in (("step", steps), ("state", "declared columns")):
            while role not in self.roles and name in named.values():
                name += "'"
            named.setdefault(role, name)
        shown = {name: f"role_{role}" for role, name in named.items() if role != "state"}
        columns = ", ".join(f"{value} AS {quoted(name)}" for name, value in shown.items())
        engine.keep("log", f"SELECT {columns}, {state} AS {quoted(named['state'])} FROM {table}", False)
        return LogFormat(
            num_states,
            declaration.num_actions,
            declaration.horizon,
            declaration.pooled,
            None,
            declaration.action_names,
            named,
            declaration.episodes_per_user,
            declaration.reward_range,
            "absorb" if declaration.early_end == "absorb" else "keep",
            num_users=num_users,
            first_step=declaration.first_step,
            ended_pays=declaration.ended_pays,
        )

    def value(self, name: str) -> tuple[str, Kind]:
        """A column of the source, and its kind."""
        kind, value = self.kinds[name], "l." + self.engine.quoted(name)
        return (f"CAST({value} AS STRING)" if kind == "text" else value), kind

    def _cells(self, columns: Sequence[Column]) -> str:
        """Rows of the source, every value read alone: role_… as they are, v0, v1 … numbers or names of the declared
        columns, and `chance` the propensity, if it is one. All names are ours, whatever those of the source are."""
        parts = []
        for column in columns:
            value, kind = self.value(column.name)
            read = _double(self.engine, value, kind) if column.numeric else f"CAST({value} AS STRING)"
            parts.append(f"{read} AS v{self._place(column)}")
        said = "CAST(NULL AS DOUBLE)"
        if self.declaration.propensity is not None:
            said = _double(self.engine, *self.value(self.declaration.propensity))
        parts.append(f"{said} AS said")
        values = [f"v{self._place(column)}" for column in columns]
        values.append("CASE WHEN said > 0 AND said <= 1 THEN said END AS chance")
        if self.declaration.time is not None:
            return self._timed(parts, values)
        roles = [f"role_{role}" for role in self._shown]
        raw = [f"{self.value(self.roles[role])[0]} AS role_{role}" for role in self._shown]
        read = f"SELECT {', '.join([*raw, *parts])} FROM {self.engine.name} AS l"
        return f"SELECT {', '.join([*roles, *values])} FROM ({read}) AS r"

    def _timed(self, parts: list[str], values: list[str]) -> str:
        """The same where steps come from timestamps. What happens in one interval is one step: the columns and the
        action of its first row, the sum of the rewards that are numbers, and the end if any row says so."""
        engine, declaration, roles = self.engine, self.declaration, self.roles
        person, stay = who_of(*self.value(roles["user"])), "0"
        if "episode" in roles:
            stay = episode_key(engine, *self.value(roles["episode"]))
        shown = [role for role in self._shown if role != "step"]
        flags = [role for role in ("terminated", "done", "truncated") if role in shown]
        read_as: dict[str, str] = {role: _flag(engine, *self.value(roles[role])) for role in flags}
        read_as["reward"] = _double(engine, *self.value(roles["reward"]))
        raw = [f"{read_as.get(role) or self.value(roles[role])[0]} AS raw_{role}" for role in shown]
        own = [f"{person} AS person", f"{stay} AS stay", f"{self.moment()} AS said_moment"]
        read = f"SELECT {', '.join([*raw, *parts, *own])} FROM {engine.name} AS l"
        # what is no moment, or nobody's, is a row of its own that no other is compared with
        possible = f"said_moment BETWEEN -{LATEST} AND {LATEST}"
        sound = f"SELECT r.*, CASE WHEN {possible} THEN said_moment END AS moment FROM ({read}) AS r"
        bucket = "dense_rank() OVER (PARTITION BY person, stay ORDER BY moment) - 1"
        if declaration.interval is not None:
            first = "min(moment) OVER (PARTITION BY person, stay)"
            bucket = f"floor((moment - {first}) / CAST('{declaration.interval!r}' AS DOUBLE))"
        located = "CASE WHEN moment IS NOT NULL AND person IS NOT NULL"
        placed = f"SELECT s.*, {located} THEN {bucket} END AS bucket FROM ({sound}) AS s"
        together = "OVER (PARTITION BY person, stay, bucket)"
        bounded = f"CASE WHEN raw_reward {FINITE} THEN least(greatest(raw_reward, {-MOST_PAID}), {MOST_PAID}) END"
        merged = {"reward": f"CASE WHEN bucket IS NULL THEN {bounded} ELSE sum({bounded}) {together} END"}
        merged |= {role: f"(3 - max(raw_{role}) {together}) % 3" for role in flags}
        joined = [f"{merged.get(role, f'raw_{role}')} AS role_{role}" for role in shown]
        rank = "rank() OVER (PARTITION BY person, stay, bucket ORDER BY moment) AS place"
        whole = f"CASE WHEN bucket <= {LONGEST} THEN CAST(bucket AS INT) WHEN bucket IS NOT NULL THEN {LONGEST} END"
        return (
            f"SELECT {', '.join(f'role_{role}' for role in shown)}, {whole} AS role_step, {', '.join(values)} "
            f"FROM (SELECT p.*, {', '.join(joined)}, {rank} FROM ({placed}) AS p) AS m "
            "WHERE place = 1 OR bucket IS NULL"
        )

    def moment(self) -> str:
        """The time of a row in seconds."""
        assert self.declaration.time is not None
        value, kind = self.value(self.declaration.time)
        if self.declaration.time in self.timestamps:
            return self.engine.seconds(value)
        number = _double(self.engine, value, kind)
        if kind != "text":
            return number
        moment = self.engine.seconds(f"TRY_CAST({value} AS TIMESTAMP)")
        return f"CASE WHEN {self.engine.matches(value, MOMENT)} THEN {moment} ELSE {number} END"


def _of_whole_users(parts: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """At least one table; of rows in order, each of about `most` of them."""
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part)
        if sum(table.num_rows for table in waiting) < most:
            continue
        table = pa.concat_tables(waiting)
        last = int(np.flatnonzero(_changes(table.column("person")))[-1])  # she may have more rows
        if last:
            yield table.slice(0, last)
            waiting = [table.slice(last)]
    yield pa.concat_tables(waiting)


def _block(table: pa.Table, log: LogFormat, columns: int) -> Stays:
    """Rows of whole users in order, who are numbered from 0."""
    person = _changes(table.column("person"))
    start = person | _changes(table.column("episode"))
    step, action = (np.asarray(table.column(c), dtype=np.int64) for c in ("step", "action"))
    leads = np.asarray(table.column("leads"), dtype=np.uint8)
    if not log.pooled:  # where the last step leads is not counted
        leads = np.where(step == log.horizon - 1, np.uint8(UNKNOWN), leads)
    bins = np.empty((len(step), columns), dtype=np.uint8)
    for i in range(columns):
        bins[:, i] = table.column(f"b{i}").to_numpy()
    return Stays(
        np.cumsum(person) - 1,
        np.append(np.flatnonzero(start), len(step)),
        step,
        action,
        np.asarray(table.column("units"), dtype=np.float64) / log.spec.reward_units,
        table.column("chance").cast(pa.float64()).fill_null(np.nan).to_numpy(),
        bins,
        leads,
        0,
    )


def _numbered(blocks: Iterable[Stays]) -> Iterator[Stays]:
    """Users go on from block to block."""
    users = 0
    for block in blocks:
        yield replace(block, user=block.user + users)
        users += int(block.user[-1]) + 1 if len(block) else 0


def _changes(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where a sorted column differs from the row before; the first one always does."""
    values = column.combine_chunks()
    differs = np.ones(len(values), dtype=np.bool_)
    differs[1:] = np.asarray(pc.not_equal(values[1:], values[:-1]))
    return differs


def _double(engine: Engine, value: str, kind: Kind) -> str:
    """The value as a double: NULL or NaN if it is no number."""
    return f"CAST({number_of(engine, value, kind)} AS DOUBLE)"


def _flag(engine: Engine, value: str, kind: Kind) -> str:
    """2: an episode's end; 1: it cannot be read; 0: no end, or nothing is said. The largest of an interval counts."""
    said = _double(engine, value, kind)
    return f"CASE WHEN NOT {is_there(said, kind)} OR {said} = 0 THEN 0 WHEN {said} = 1 THEN 2 ELSE 1 END"


def _wanted(declaration: Declaration, role: str) -> bool:
    if role == "step":
        return declaration.time is None
    return getattr(declaration, role) is not None


def _check(log: DeclaredLog) -> None:
    """Refuse a log that contradicts the declaration, by its schema, which is public."""
    declaration, kinds = log.declaration, log.kinds
    roles = [*NEEDED, "time" if declaration.time is not None else "step"]
    roles += [role for role in ROLES if role not in roles and getattr(declaration, role) is not None]
    absent = [column.name for column in declaration.states if column.name not in kinds]
    absent += [declaration.column(role) for role in roles if declaration.column(role) not in kinds]
    if absent:
        names = ", ".join(repr(name) for name in dict.fromkeys(absent))
        if log.engine.delimited and not any(column.name in kinds for column in declaration.states):
            raise ValueError(
                f"the log has no column {names}; its first line must name the columns, and names none of these"
            )  # which is not shown: is it a row?
        raise ValueError(f"the log has no column {names}, which is declared; its columns are {', '.join(kinds)}")
    for column in declaration.states:
        _check_kind(column, kinds[column.name], log.engine.typed)
    for role in ("step", "reward", "propensity", "terminated", "done", "truncated"):
        name = declaration.column(role)
        if (role in roles or role in ("terminated", "done", "truncated")) and kinds.get(name) == "other":
            raise ValueError(f"column {name!r} holds neither numbers, bools nor text; expected numbers for {role}")
    time = declaration.time
    if time is not None and kinds[time] == "other" and time not in log.timestamps:
        raise ValueError(f"column {time!r} holds neither timestamps, numbers nor text; it is declared as time")
    needed = [declaration.column(role) for role in roles]
    needed += [column.name for column in declaration.states if not column.missing]
    files = columns_of_files(log._source)
    for name in needed:
        without = [path for path, names in files.items() if name not in names]
        if without:
            raise ValueError(
                f"column {name!r} is in {len(files) - len(without)} of {len(files)} files and not in {without[0]}; "
                "give files that have it, or declare what is missing as a bin (missing)"
            )


def _check_kind(column: Column, kind: Kind, typed: bool) -> None:
    """Whether a column can hold what is declared of it."""
    held = {"text": "text", "float": "numbers with fractions", "other": "neither numbers, bools nor text"}.get(kind)
    if column.numeric and (kind == "other" or (kind == "text" and typed)):
        raise ValueError(f"column {column.name!r} holds {held} and is declared as a range; expected numbers or names")
    if not column.numeric and kind in ("float", "other"):
        raise ValueError(f"column {column.name!r} holds {held} and is declared by names; expected a range or edges")
