"""Typed logs in which users follow one another in order: counted in one pass, without a table of episodes.

Another way to the numbers of `people.counting`, and exactly these. Whether it can be gone is found out on the way: a
log that is not in order, or of which a rule leaves two readings, is left to the queries. Which way it went shows in
the time taken only, and that is no secret.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from discreet.kernels import ordered as kernel
from discreet.kernels.ordered import Coins, Columns, Notes, Rules, Sums, sums_for
from discreet.kernels.sha import prefix_of
from discreet.mdp import Floats, Ints
from discreet.people.logs import DuckDB, LogFormat

#: Rows that are looked at together, rows of users at the ends of such parts that are kept, tables and steps.
BATCH, FRINGE, LARGEST_TABLE, LONGEST = 1 << 17, 1 << 22, 1 << 22, 1 << kernel.STEP_BITS
#: Rows of which notes are kept for being read again, 8 bytes each.
MOST_NOTES = 1 << 26
#: Whole numbers that sums of money may be made of: with these, decimals and floating point agree.
WHOLE = 2.0**31

WHOLE_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
REALS = (pa.float32(), pa.float64())
NO_COINS = Coins(*prefix_of(""), 0, np.empty(0))

Part = Callable[[list[str]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, eq=False)
class Ordered:
    """What one pass found. Raw."""

    codes: Ints
    numbers: Ints
    paid: Ints
    rows: int
    nobody: int
    told: Ints  # see `kernels.ordered`
    _reader: Reader
    _notes: list[Notes] | None  # None: the log is read again

    @property
    def users(self) -> int:
        return int(self.told[kernel.USERS])

    @property
    def kept(self) -> int:
        return int(self.told[kernel.KEPT])

    @property
    def logged(self) -> int:
        return int(self.told[kernel.LOGGED])

    @property
    def readable(self) -> int:
        return int(self.told[kernel.READABLE])

    @property
    def repeated(self) -> int:
        return int(self.told[kernel.REPEATED])

    @property
    def clipped(self) -> tuple[int, int]:
        """Rewards below and above the range."""
        return int(self.told[kernel.BELOW]), int(self.told[kernel.ABOVE])

    def one_step(self, key: str, pilot: int) -> Asked:
        """Users toss their coins; below `pilot` one is a pilot."""
        coins = Coins(*prefix_of(f"{key}:"), pilot, np.empty(0))
        return Asked(self._reader, coins, None if self._notes is None else _tossed(self._notes, coins))

    def __repr__(self) -> str:
        return f"Ordered({self.users} users)"


@dataclass(frozen=True, eq=False)
class Asked:
    """Users who have tossed their coins: `OneStep` of a log in order. Raw."""

    _reader: Reader
    _coins: Coins
    _tossed: list[tuple[Notes, Any]] | None

    def visits(self) -> Ints:
        found: Ints = self._again(kernel.VISITS, np.empty(0)).table[:, 0]
        return found

    def reports(self, weights: Floats) -> tuple[Ints, Ints, Ints]:
        """(codes, numbers, paid)."""
        return _occurring(self._again(kernel.REPORTS, np.asarray(weights, dtype=np.float64)))

    def _again(self, what: int, weights: Floats) -> Sums:
        if self._tossed is not None:
            return self._reader.asked(self._tossed, what, weights)
        found = self._reader.sweep(what, self._coins._replace(weights=weights))
        if found is None:
            raise ValueError("the log was changed while it was read")
        return found.sums


def _tossed(notes: Sequence[Notes], coins: Coins) -> list[tuple[Notes, Any]]:
    def of(part: Notes) -> tuple[Notes, Any]:
        found = np.empty((len(part.episodes), 5), dtype=np.uint32)
        kernel.toss(part.episodes, *coins[:4], found)
        return part, found

    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        return list(pool.map(of, notes))


def in_order(engine: DuckDB, log: LogFormat, again: bool = False) -> Ordered | None:
    """Count a log in one pass if it is of a kind for which that can be done, and in order; `again`: one step of every
    user may be asked for then, so that it is worth to keep notes of a log that is not too large."""
    assert engine.kept_as is not None
    try:
        parts, schemas = _parts(engine.kept_as)
        if not parts or not _readable(log, schemas):
            return None
        reader, noting = Reader(parts, log, _rules(engine, log)), again and _noted(log, engine.rows_kept())
        found = reader.sweep(kernel.EVERYTHING, NO_COINS, noting)
    except (pa.ArrowException, OSError):  # whatever is wrong with the log, the queries say it
        return None
    if found is None:
        return None
    notes = found.notes if noting else None
    return Ordered(*_occurring(found.sums), found.rows, found.nobody, found.sums.told, reader, notes)


def _noted(log: LogFormat, rows: int) -> bool:
    """Whether notes of a log are few, and have room for its numbers."""
    spec = log.spec
    cells = spec.stages * log.num_states * log.num_actions
    room = cells <= 1 << kernel.CELL_BITS and spec.num_states <= 1 << kernel.FOLLOWING_BITS
    return rows <= MOST_NOTES and room and spec.reward_units < 1 << kernel.UNIT_BITS and log.enforce


def _occurring(sums: Sums) -> tuple[Ints, Ints, Ints]:
    codes = np.flatnonzero(sums.table[:, 0])
    return codes, sums.table[codes, 0], sums.table[codes, 1]


# Which logs ---------------------------------------------------------------------------------------------------------


def _roles(log: LogFormat) -> list[str]:
    assert log.given is not None
    given = [role for role in ("episode", "next_state", "terminated", "truncated") if role in log.given]
    return ["user", "step", "state", "action", "reward", *given]


def _readable(log: LogFormat, schemas: Sequence[pa.Schema]) -> bool:
    """Whether all columns have types whose values are read alike by SQL and here."""
    alone = "next_state" in _roles(log) and log.num_users is not None and not log.first_visits  # row by row
    if log.state_names is not None or log.action_names is not None or not (log.enforce or alone):
        return False
    if log.spec.sizes[1] > LARGEST_TABLE or log.horizon > LONGEST or log.episodes_per_user * log.horizon >= WHOLE:
        return False
    low, high = log.reward_range
    whole = all(value.is_integer() and abs(value) < WHOLE for value in (float(low), float(high - low)))
    for role in _roles(log):
        name = log.column(role)
        kinds = {schema.field(name).type for schema in schemas if schema.names.count(name) == 1}
        if any(schema.names.count(name) != 1 for schema in schemas) or len(kinds) != 1 or "." in name:
            return False
        (kind,) = kinds
        if role == "reward":
            if kind not in REALS and not (whole and kind in WHOLE_NUMBERS):
                return False
        elif role in ("terminated", "truncated"):
            if kind != pa.bool_() and kind not in WHOLE_NUMBERS:
                return False
        elif kind not in WHOLE_NUMBERS:
            return False
    return True


def _parts(kept: pa.Table | Sequence[str]) -> tuple[list[Part], list[pa.Schema]]:
    """The log in parts that can be read beside one another."""
    if isinstance(kept, pa.Table):
        slices = range(0, max(kept.num_rows, 1), BATCH)
        return [partial(_batches, kept.slice(at, BATCH)) for at in slices], [kept.schema]
    parts: list[Part] = []
    schemas = []
    for path in kept:
        if "=" in path:  # DuckDB takes such a folder for a column
            return [], []
        with pyarrow.parquet.ParquetFile(path) as file:
            metadata = file.metadata
            schemas.append(file.schema_arrow)
        parts += [partial(_row_group, path, metadata, group) for group in range(metadata.num_row_groups)]
    return parts, schemas


def _batches(table: pa.Table, names: list[str]) -> Iterator[pa.RecordBatch]:
    yield from table.select(names).combine_chunks().to_batches()


def _row_group(path: str, metadata: Any, group: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    with pyarrow.parquet.ParquetFile(path, metadata=metadata, memory_map=True) as file:
        yield from file.iter_batches(BATCH, row_groups=[group], columns=names, use_threads=False)


def _rules(engine: DuckDB, log: LogFormat) -> Rules:
    low, high = log.reward_range
    ends = engine.fetch(f"SELECT CAST({low!r} AS DOUBLE), CAST({high - low!r} AS DOUBLE)")  # as SQL reads them
    return Rules(
        log.num_states,
        log.num_actions,
        log.horizon,
        log.first_step,
        log.pooled,
        log.early_end == "absorb",
        "next_state" not in _roles(log),
        log.num_states,
        log.num_states + log.has_ended if log.has_unknown else -1,
        log.has_unknown or log.early_end == "absorb",
        int(log.episodes_per_user),
        log.first_visits,
        float(ends.column(0)[0].as_py()),
        float(ends.column(1)[0].as_py()),
        log.spec.reward_units,
        log.spec.num_states,
    )


# The columns --------------------------------------------------------------------------------------------------------


def _fixed(values: Any) -> Any:
    """An array that nobody writes to: one kind of array for compiled code, wherever it came from."""
    found = np.ascontiguousarray(values).view()
    found.flags.writeable = False
    return found


NO_INTS, NO_BYTES = _fixed(np.empty(0, dtype=np.int64)), _fixed(np.empty(0, dtype=np.uint8))


def _whole(column: pa.Array) -> Any:
    """Whole numbers; −1, which is out of every range, where nothing is."""
    return _fixed(np.asarray(column.fill_null(-1) if column.null_count else column).astype(np.int64, copy=False))


def _paid(column: pa.Array) -> Any:
    """Rewards; NaN where nothing is."""
    values = np.asarray(column.fill_null(0) if column.null_count else column).astype(np.float64, copy=False)
    return _fixed(np.where(np.asarray(column.is_null()), np.nan, values) if column.null_count else values)


def _marks(cells: dict[str, pa.Array], done: bool) -> Any:
    """What rows are marked with; nothing where none is. `done`: who was cut off is done, too."""
    found: Any = np.uint8(0)
    for role, mark in (("next_state", kernel.ALONE), ("episode", kernel.NO_EPISODE)):
        if role in cells and cells[role].null_count:
            found = found | np.where(np.asarray(cells[role].is_null()), np.uint8(mark), np.uint8(0))
    said = {role: _said(cells[role]) for role in ("terminated", "truncated") if role in cells}
    if len(said) == 2 and done:  # terminated AND NOT truncated, where either may be no answer
        ended, cut = said["terminated"], said["truncated"]
        none = (ended == kernel.NO_ANSWER) | (cut == kernel.NO_ANSWER)
        said["terminated"] = np.where((ended == 0) | (cut == 1), 0, np.where(none, kernel.NO_ANSWER, 1))
    for role, mark in (("terminated", kernel.TERMINATED), ("truncated", kernel.TRUNCATED)):
        if role in said:
            found = found | np.where(said[role] == 1, mark, said[role]).astype(np.uint8)
    return NO_BYTES if np.ndim(found) == 0 else _fixed(found)


def _said(column: pa.Array) -> Any:
    """1: yes; 0: no, or nothing was said; else it is no answer."""
    values = np.asarray((column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column).fill_null(0))
    return np.where(values == 0, 0, np.where(values == 1, 1, kernel.NO_ANSWER))


def _columns(batch: pa.RecordBatch, log: LogFormat) -> Columns:
    assert log.given is not None
    cells = {role: batch.column(batch.schema.get_field_index(log.column(role))) for role in _roles(log)}
    return Columns(
        _whole(cells["user"]),
        _whole(cells["episode"]) if "episode" in cells else NO_INTS,
        _whole(cells["step"]),
        _whole(cells["state"]),
        _whole(cells["action"]),
        _paid(cells["reward"]),
        _whole(cells["next_state"]) if "next_state" in cells else NO_INTS,
        _marks(cells, "done" in log.given),
    )


def _cut(columns: Columns, start: int, stop: int) -> Columns:
    """Some of the rows, held for themselves."""
    return Columns._make(_fixed(column[start:stop].copy()) if column.size else column for column in columns)


def _joined(pieces: Sequence[Columns]) -> Columns:
    """Rows one after the other; marks that only some have are 0 elsewhere."""
    fields = []
    for i in range(len(Columns._fields)):
        parts = [piece[i] for piece in pieces]
        if any(part.size for part in parts):
            parts = [
                part if part.size else np.zeros(piece.user.size, part.dtype)
                for part, piece in zip(parts, pieces, strict=True)
            ]
        fields.append(_fixed(np.concatenate(parts)))
    return Columns(*fields)


# One pass -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Found:
    """What somebody who reads some of the parts has found so far."""

    sums: Sums
    rows: int = 0
    nobody: int = 0
    kept: int = 0  # rows of the fringe
    fringe: dict[tuple[int, int], tuple[Columns, ...]] = field(default_factory=dict)
    notes: list[Notes] = field(default_factory=list)

    def add(self, other: Found) -> None:
        for mine, theirs in ((self.sums.table, other.sums.table), (self.sums.told, other.sums.told)):
            mine += theirs
        self.rows += other.rows
        self.nobody += other.nobody
        self.fringe |= other.fringe
        self.notes += other.notes


@dataclass(frozen=True, eq=False)
class Reader:
    parts: Sequence[Part]
    log: LogFormat
    rules: Rules

    def sweep(self, what: int, coins: Coins, noting: bool = False) -> Found | None:
        """Read everything once, on all processors; None where it cannot be read this way."""
        number = max(1, min(pa.cpu_count(), len(self.parts)))
        waiting, stopped, lock = iter(enumerate(self.parts)), threading.Event(), threading.Lock()

        def some() -> Found:
            found = self._nothing(what)
            while not stopped.is_set():
                with lock:
                    at, part = next(waiting, (0, None))
                if part is None:
                    break
                for i, batch in enumerate(part(self._names())):
                    if stopped.is_set() or not self._added(found, batch, (at, i), what, coins, noting):
                        stopped.set()
                        break
            return found

        with ThreadPoolExecutor(number) as pool:
            working = [pool.submit(some) for _ in range(number)]
            try:
                all_found = [work.result() for work in working]
            except BaseException:
                stopped.set()
                raise
        if stopped.is_set():
            return None
        whole = all_found[0]
        for other in all_found[1:]:
            whole.add(other)
        return whole if self._closed(whole, what, coins, noting) else None

    def _names(self) -> list[str]:
        return list(dict.fromkeys(self.log.column(role) for role in _roles(self.log)))

    def _nothing(self, what: int) -> Found:
        log = self.log
        cells = log.spec.stages * log.num_states * log.num_actions
        size = cells if what == kernel.VISITS else log.spec.sizes[1]
        return Found(sums_for(size, log.horizon, log.num_states * log.num_actions))

    def _added(
        self, found: Found, batch: pa.RecordBatch, place: tuple[int, int], what: int, coins: Coins, noting: bool
    ) -> bool:
        """Whole users are counted, those at both ends kept for later."""
        found.rows += batch.num_rows
        user = batch.column(batch.schema.get_field_index(self.log.column("user")))
        if user.null_count:
            found.nobody += user.null_count
            batch = batch.filter(user.is_valid())
        if not batch.num_rows:
            return True
        columns = _columns(batch, self.log)
        if not self.log.enforce:
            kernel.swept_alone(*columns[2:], self.rules, found.sums.table, found.sums.told)
            return True
        first, last = kernel.edges(columns.user)
        found.fringe[place] = (_cut(columns, 0, first), _cut(columns, last, len(columns.user)))
        who = columns.user
        found.kept += first + len(who) - last
        if found.kept > FRINGE:
            return False
        if first < last and not (who[0] < who[first] and who[last - 1] < who[last]):
            return False
        if first >= len(who):
            return True
        return self._swept(found, columns, first, last, what, coins, noting)

    def _swept(
        self, found: Found, columns: Columns, first: int, last: int, what: int, coins: Coins, noting: bool
    ) -> bool:
        room = last - first if noting else 0
        steps, episodes = np.empty(room, dtype=np.int64), np.empty((room, 3), dtype=np.int64)
        told = found.sums.told
        told[[kernel.NOTES, kernel.EPISODES]] = 0
        known = kernel.swept(*columns, first, last, self.rules, what, *coins, *found.sums, steps, episodes)
        if noting:
            noted = Notes(steps[: told[kernel.NOTES]].copy(), episodes[: told[kernel.EPISODES]].copy())
            found.notes.append(noted)
        return bool(known)

    def asked(self, tossed: Sequence[tuple[Notes, Any]], what: int, weights: Floats) -> Sums:
        """What users are asked for, from notes, on all processors."""
        number = pa.cpu_count()

        def some(mine: Sequence[tuple[Notes, Any]]) -> Found:
            found = self._nothing(what)
            for notes, coins in mine:
                kernel.asked(*notes, coins, self.rules, what, weights, *found.sums[:2], *found.sums[3:])
            return found

        with ThreadPoolExecutor(number) as pool:
            whole, *others = pool.map(some, [tossed[i::number] for i in range(number)])
        for other in others:
            whole.add(other)
        return whole.sums

    def _closed(self, found: Found, what: int, coins: Coins, noting: bool) -> bool:
        """Users at the ends of parts, in order of the parts."""
        pieces = [part for place in sorted(found.fringe) for part in found.fringe[place] if part.user.size]
        if not pieces:
            return True
        columns = _joined(pieces)
        return self._swept(found, columns, 0, columns.user.size, what, coins, noting)
