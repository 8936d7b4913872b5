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
from discreet.kernels.ordered import Columns, Layout, Notes, Rules
from discreet.kernels.sha import Prefix, prefix_of
from discreet.mdp import Floats, Ints
from discreet.people.engines import DuckDB
from discreet.people.logs import LogFormat

#: Rows that are looked at together, that are read from a file together, and of users at the ends that are kept.
BATCH, PART, FRINGE = 1 << 19, 1 << 19, 1 << 22
#: Codes, grid units and steps that a note has room for.
LARGEST_TABLE, FINEST, LONGEST = 1 << kernel.CODE_BITS, 1 << kernel.UNIT_BITS, 1 << kernel.STEP_BITS
#: Rows of which notes are kept for being read again, 2 to 8 bytes each, and half of the bytes that memory is asked
#: for at a time.
MOST_NOTES, PIECE = 1 << 26, 1 << 24
#: Whole numbers that sums of money may be made of: with these, decimals and floating point agree.
WHOLE = 2.0**31

WHOLE_NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
REALS = (pa.float32(), pa.float64())

Part = Callable[[list[str]], Iterator[pa.RecordBatch]]
#: What is done with notes: they are added to a table (codes, 2) of how many there are and what they paid.
Use = Callable[[Notes, Ints], None]


@dataclass(frozen=True, eq=False)
class Packed:
    """Notes that take little room. Raw."""

    halves: Any  # see `kernels.ordered.pack`
    size: int
    layout: Layout
    who: Ints
    places: Any

    @classmethod
    def of(cls, notes: Notes, room: Callable[[int], Any]) -> Packed:
        """`room` gives out memory."""
        layout = Layout(*kernel.layout_of(notes.steps, notes.places))
        size = notes.steps.size
        halves = room(layout.planes * size)
        kernel.pack(notes.steps, layout, halves)
        return cls(halves, size, layout, notes.who.copy(), notes.places.copy())

    def unpacked(self) -> Notes:
        steps = np.empty(self.size, dtype=np.int64)
        kernel.unpack(self.halves, self.layout, self.places, steps)
        return Notes(steps, self.who, self.places)


@dataclass(frozen=True, eq=False)
class Ordered:
    """What one pass found. Raw."""

    rows: int
    nobody: int
    told: Ints  # see `kernels.ordered`
    _reader: Reader
    _table: Ints | None  # None: notes were taken instead
    _notes: list[Packed]

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

    def items(self) -> tuple[Ints, Ints, Ints]:
        """(codes, numbers, paid) of all that counts."""
        if self._table is not None:
            return _occurring(self._table)
        counted = self._reader.counted
        return _occurring(self._reader.added(self._notes, lambda notes, table: counted(notes.unpacked(), table)))

    def one_step(self, key: str, pilot: int) -> Asked:
        """Users toss their coins; below `pilot` one is a pilot."""
        coins = Coins(prefix_of(f"{key}:"), pilot)
        return Asked(self._reader, coins, None if self._table is not None else coins.tossed_by(self._notes))

    def __repr__(self) -> str:
        return f"Ordered({self.users} users)"


@dataclass(frozen=True, eq=False)
class Coins:
    """What users toss, see `people.one_step.OneStep`."""

    key: Prefix
    pilot: int

    def of(self, notes: Packed) -> Any:
        """(episodes, 4), see `kernels.ordered.toss`."""
        found = np.empty((len(notes.who), 4), dtype=np.uint32)
        kernel.toss(notes.who, *self.key, self.pilot, found)
        return found

    def tossed_by(self, notes: Sequence[Packed]) -> list[tuple[Packed, Any]]:
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            return list(zip(notes, pool.map(self.of, notes), strict=True))


@dataclass(frozen=True, eq=False)
class Asked:
    """Users who have tossed their coins: `OneStep` of a log in order. Raw."""

    _reader: Reader
    _coins: Coins
    _tossed: list[tuple[Packed, Any]] | None  # None: the log is read again

    def visits(self) -> Ints:
        """(G·S·A,)."""
        log = self._reader.log
        found = self._again(True, np.empty(0))[:, 0].reshape(log.spec.shapes()["transitions"])
        return np.asarray(found[:, : log.num_states].sum(axis=-1), dtype=np.int64).reshape(-1)

    def reports(self, weights: Floats) -> tuple[Ints, Ints, Ints]:
        """(codes, numbers, paid)."""
        log = self._reader.log
        by_code = np.zeros(log.spec.shapes()["transitions"])
        scaled = weights * float(kernel.PRIME)
        by_code[:, : log.num_states] = np.reshape(scaled, (log.spec.stages, log.num_states, log.num_actions, 1))
        return _occurring(self._again(False, by_code.reshape(-1)))

    def _again(self, pilots: bool, weights: Floats) -> Ints:
        rules = self._reader.rules

        def add(asked: tuple[Packed, Any], table: Ints) -> None:
            notes, tossed = asked
            kernel.asked(notes.halves, notes.size, notes.layout, notes.places, tossed, rules, pilots, weights, table)

        def read_again(notes: Notes, table: Ints) -> None:
            packed = Packed.of(notes, _fresh)
            add((packed, self._coins.of(packed)), table)

        if self._tossed is not None:
            return self._reader.added(self._tossed, add)
        found = self._reader.sweep(read_again)
        if found is None:
            raise ValueError("the log was changed while it was read")
        return found.table


def in_order(engine: DuckDB, log: LogFormat, again: bool = False) -> Ordered | None:
    """Count a log in one pass if it is of a kind for which that can be done, and in order; `again`: one step of every
    user may be asked for then, so that it is worth to keep notes of a log that is not too large."""
    assert engine.kept_as is not None
    try:
        parts, schemas = _parts(engine.kept_as)
        if not parts or not _readable(log, schemas):
            return None
        reader = Reader(parts, log, _rules(engine, log))
        noting = again and log.enforce and engine.rows_kept() <= MOST_NOTES
        found = reader.sweep(None if noting else reader.counted)
    except (pa.ArrowException, OSError):  # whatever is wrong with the log, the queries say it
        return None
    if found is None:
        return None
    return Ordered(found.rows, found.nobody, found.told, reader, None if noting else found.table, found.notes)


def _fresh(halves: int) -> Any:
    return np.empty(halves, dtype=np.uint16)


def _occurring(table: Ints) -> tuple[Ints, Ints, Ints]:
    codes = np.flatnonzero(table[:, 0])
    return codes, table[codes, 0], table[codes, 1]


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
    if log.spec.sizes[1] > LARGEST_TABLE or log.horizon > LONGEST or log.spec.reward_units >= FINEST:
        return False
    if log.episodes_per_user * log.horizon >= WHOLE:
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
        parts += [partial(_row_groups, path, metadata, groups) for groups in _together(metadata)]
    return parts, schemas


def _together(metadata: Any) -> list[list[int]]:
    """Groups of rows in a file, small ones next to each other together."""
    found: list[list[int]] = []
    rows = PART
    for group in range(metadata.num_row_groups):
        if rows >= PART:
            found.append([])
            rows = 0
        found[-1].append(group)
        rows += metadata.row_group(group).num_rows
    return found


def _batches(table: pa.Table, names: list[str]) -> Iterator[pa.RecordBatch]:
    yield from table.select(names).combine_chunks().to_batches()


def _row_groups(path: str, metadata: Any, groups: list[int], names: list[str]) -> Iterator[pa.RecordBatch]:
    with pyarrow.parquet.ParquetFile(path, metadata=metadata, memory_map=True) as file:
        yield from file.iter_batches(BATCH, row_groups=groups, columns=names, use_threads=False)


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
    """What somebody who reads some of the parts has found so far, and room for the notes of some rows."""

    table: Ints
    told: Ints
    met: Ints
    room: Notes
    rows: int = 0
    nobody: int = 0
    kept: int = 0  # rows of the fringe
    fringe: dict[tuple[int, int], tuple[Columns, ...]] = field(default_factory=dict)
    notes: list[Packed] = field(default_factory=list)
    memory: Any = field(default_factory=lambda: _fresh(0))  # for notes that are kept

    @classmethod
    def nothing(cls, log: LogFormat) -> Found:
        sizes = (log.spec.sizes[1], 2), 10, (4, log.horizon + 1)
        table, told, met = (np.zeros(size, dtype=np.int64) for size in sizes)
        return cls(table, told, met, _room(0))

    def add(self, other: Found) -> None:
        self.table += other.table
        self.told += other.told
        self.rows += other.rows
        self.nobody += other.nobody
        self.fringe |= other.fringe
        self.notes += other.notes

    def make_room(self, rows: int) -> None:
        if self.room.steps.size < rows:
            self.room = _room(rows)

    def used(self, use: Use | None) -> None:
        """What was noted is put to its use, or kept."""
        n, episodes = self.told[kernel.NOTES], self.told[kernel.EPISODES]
        notes = Notes(self.room.steps[:n], self.room.who[:episodes], self.room.places[:episodes])
        if use is None:
            self.notes.append(Packed.of(notes, self._taken))
        else:
            use(notes, self.table)

    def _taken(self, halves: int) -> Any:
        """Notes that are kept lie one after the other in large pieces of memory, which systems give out faster."""
        if self.memory.size < halves:
            self.memory = _fresh(max(halves, PIECE))
        taken, self.memory = self.memory[:halves], self.memory[halves:]
        return taken


def _room(rows: int) -> Notes:
    return Notes(np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64), np.empty((rows, 2), dtype=np.uint32))


@dataclass(frozen=True, eq=False)
class Reader:
    parts: Sequence[Part]
    log: LogFormat
    rules: Rules

    def sweep(self, use: Use | None) -> Found | None:
        """Read everything once, on all processors; None where it cannot be read this way."""
        number = max(1, min(pa.cpu_count(), len(self.parts)))
        waiting, stopped, lock = iter(enumerate(self.parts)), threading.Event(), threading.Lock()

        def some() -> Found:
            found = Found.nothing(self.log)
            while not stopped.is_set():
                with lock:
                    at, part = next(waiting, (0, None))
                if part is None:
                    break
                for i, batch in enumerate(part(self._names())):
                    if stopped.is_set() or not self._added(found, batch, (at, i), use):
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
        return whole if self._closed(whole, use) else None

    def added(self, kept: Sequence[Any], use: Callable[[Any, Ints], None]) -> Ints:
        """What was kept is put to its use, on all processors."""
        number = pa.cpu_count()

        def some(mine: Sequence[Any]) -> Ints:
            table = Found.nothing(self.log).table
            for one in mine:
                use(one, table)
            return table

        with ThreadPoolExecutor(number) as pool:
            whole, *others = pool.map(some, [kept[i::number] for i in range(number)])
        for other in others:
            whole += other
        return whole

    def counted(self, notes: Notes, table: Ints) -> None:
        """The use of notes where all steps count."""
        pairs = self.log.spec.num_states * self.log.num_actions if self.log.first_visits else 0
        kernel.counted(notes.steps, notes.places, self.rules, table, np.empty(pairs, dtype=np.int64))

    def _names(self) -> list[str]:
        return list(dict.fromkeys(self.log.column(role) for role in _roles(self.log)))

    def _added(self, found: Found, batch: pa.RecordBatch, place: tuple[int, int], use: Use | None) -> bool:
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
            found.make_room(batch.num_rows)
            kernel.swept_alone(*columns[2:], self.rules, found.table, found.told, found.room.steps)
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
        return self._swept(found, columns, first, last, use)

    def _swept(self, found: Found, columns: Columns, first: int, last: int, use: Use | None) -> bool:
        found.make_room(last - first)
        known = kernel.swept(*columns, first, last, self.rules, found.told, found.met, *found.room)
        if known:
            found.used(use)
        return bool(known)

    def _closed(self, found: Found, use: Use | None) -> bool:
        """Users at the ends of parts, in order of the parts."""
        pieces = [part for place in sorted(found.fringe) for part in found.fringe[place] if part.user.size]
        if not pieces:
            return True
        columns = _joined(pieces)
        return self._swept(found, columns, 0, columns.user.size, use)
