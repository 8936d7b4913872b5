"""What runs SQL over a log, and what kinds of values its columns hold: DuckDB on this machine, or a Spark session.

What type a column has is known before its first value is read (from the schema; text is text): no value can change
how others are read.
"""

from __future__ import annotations

import atexit
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

import duckdb
import pyarrow as pa
import pyarrow.parquet

Kind = Literal["int", "float", "bool", "text", "other"]


class Engine(Protocol):
    """Something that runs SQL over the relation `log`."""

    name: str  # of the source itself; `log` is it, or a view of it
    delimited: bool  # the log is delimited text: a row without any value is a malformed line
    comma: bool  # numbers in text may have a decimal comma
    typed: bool  # the source states the types of its columns: one of text was meant as text
    numbering: str  # a number from 1 for every row, in any order, perhaps with gaps

    def kinds(self) -> dict[str, Kind]:
        """Columns of the log, and what kind of value each holds."""
        ...

    def quoted(self, column: str) -> str: ...
    def literal(self, text: str) -> str:
        """A text as SQL says it."""
        ...

    def matches(self, text: str, pattern: str) -> str:
        """Whether all of a text is as a regular expression says; this has no quotes and no backslashes."""
        ...

    def seconds(self, value: str) -> str:
        """A timestamp, or a text that is one, as a number of seconds; NULL: none."""
        ...

    def timestamps(self) -> frozenset[str]:
        """Columns whose type is a day or a moment."""
        ...

    def register(self, name: str, table: pa.Table) -> None: ...
    def keep(self, name: str, query: str, materialise: bool) -> None:
        """Name the result of a query; computed once if `materialise`, else every time it is read."""
        ...

    def fetch(self, query: str) -> pa.Table: ...
    def stream(self, query: str, order: Sequence[str], rows: int, most: int) -> Iterator[pa.Table]:
        """The same in order of some columns and in parts of about so many rows, of at most so many in all; the first
        part has none, and nothing is asked in between."""
        ...


def integers(engine: Engine, query: str) -> list[int]:
    """The one row of a query; 0 where there is nothing."""
    return [int(column[0].as_py() or 0) for column in engine.fetch(query).columns]


#: Engines that are still there when the program ends are closed: DuckDB removes its scratch files then.
_OPEN: weakref.WeakSet[DuckDB] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    for engine in list(_OPEN):
        engine.close()


class DuckDB:
    """DuckDB inside this process, out of core: what does not fit in memory goes to a temporary folder."""

    numbering = "row_number() OVER ()"

    def __init__(self, threads: int | None = None, name: str = "log") -> None:
        self.delimited, self.comma, self.typed, self.name = False, False, False, name
        self.kept_as: pa.Table | Sequence[str] | None = None  # the log itself as Arrow reads it: a table, or Parquet
        self._asked: threading.Event | None = None  # set once the last query that was begun has ended
        self._checked: Callable[[], Any] | None = None  # the log once more, of files whose text may be none
        self.connection = duckdb.connect()
        _OPEN.add(self)
        self.connection.execute("SET preserve_insertion_order = false")
        self.connection.execute("SET enable_progress_bar = false")
        self.connection.execute("SET parquet_metadata_cache = true")  # views of a file are views of views
        self.connection.execute("CREATE TEMP MACRO shiftleft(bits, places) AS bits << places")  # as Spark says it
        scratch = Path(tempfile.gettempdir()) / f"discreet-{uuid.uuid4().hex}"  # made and removed by DuckDB
        self.connection.execute(f"SET temp_directory = '{scratch}'")
        if threads is not None:
            self.connection.execute(f"SET threads = {int(threads)}")

    def quoted(self, column: str) -> str:
        return '"' + column.replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def matches(self, text: str, pattern: str) -> str:
        return f"regexp_full_match({text}, '{pattern}')"

    def seconds(self, value: str) -> str:
        return f"epoch({value})"

    def kinds(self) -> dict[str, Kind]:
        return {name: _kind(kind) for name, kind in self._types("log").items()}

    def timestamps(self) -> frozenset[str]:
        return frozenset(name for name, kind in self._types(self.name).items() if _is_time(kind))

    def _types(self, relation: str) -> dict[str, str]:
        with unreadable():
            rows = self.connection.execute(f"DESCRIBE {relation}").fetchall()
        return {str(name): str(kind) for name, kind, *_ in rows}

    def rows_kept(self) -> int:
        """Of a log that Arrow reads as it is, how many rows it has; else 0."""
        if self.name != "log" or self.kept_as is None:
            return 0
        if isinstance(self.kept_as, pa.Table):
            return int(self.kept_as.num_rows)
        try:
            return sum(pyarrow.parquet.read_metadata(path).num_rows for path in self.kept_as)
        except (pa.ArrowException, OSError):
            return 0

    def register(self, name: str, table: Any) -> None:
        self.connection.register(name, table)

    def keep(self, name: str, query: str, materialise: bool) -> None:
        what = "TABLE" if materialise else "VIEW"
        self._run(lambda: self.connection.execute(f"CREATE OR REPLACE TEMP {what} {name} AS {query}"))

    def fetch(self, query: str) -> pa.Table:
        return self._run(lambda: self.connection.sql(query).to_arrow_table())

    def stream(self, query: str, order: Sequence[str], rows: int, most: int) -> Iterator[pa.Table]:
        ordered = f"{query} ORDER BY {', '.join(order)}"
        reader = self._run(lambda: self.connection.sql(ordered).to_arrow_reader(rows))
        yield reader.schema.empty_table()
        while (batch := self._run(lambda: next(reader, None))) is not None:
            yield pa.Table.from_batches([batch])

    def _run(self, work: Callable[[], Any]) -> Any:
        """Text that is not UTF-8 stops DuckDB's reader of Parquet: then the log is read again without it."""
        if self._checked is not None:
            try:
                return self._interruptible(work)
            except duckdb.OutOfMemoryException:
                pass
            except (duckdb.Error, pa.ArrowException, UnicodeError):
                with unreadable():
                    table = self._checked()
                    self.connection.execute(f"DROP VIEW IF EXISTS {self.name}")
                    self.connection.register(self.name, table)
                    self._checked = None
        with unreadable():
            return self._interruptible(work)

    def _interruptible(self, work: Callable[[], Any]) -> Any:
        """Done beside the main thread, which hears Ctrl-C while it waits and then stops the query: in the middle of
        one, DuckDB itself does not always notice."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        found: list[Any] = []
        failed: list[BaseException] = []
        self._asked = ended = threading.Event()  # whoever is interrupted while joining a thread takes it for dead

        def done() -> None:
            try:
                found.append(work())
            except BaseException as error:
                failed.append(error)
            ended.set()

        worker = threading.Thread(target=done, daemon=True)
        try:
            worker.start()
            ended.wait()
            if failed:
                raise failed.pop()  # and not kept: what it was raised by would hold it, and the connection, for good
            return found.pop()
        except KeyboardInterrupt:
            self._stop(worker.ident is not None)
            raise

    def _stop(self, begun: bool = True) -> None:
        """End the query that is under way, and wait for it: one that had not begun is asked again."""
        while begun and self._asked is not None and not self._asked.wait(0.05):
            self.connection.interrupt()

    def close(self) -> None:
        """Also where somebody was interrupted twice, so that nobody has waited for the query."""
        self._stop()
        self.connection.close()


#: What engines say about values stays with them: it may quote a person's.
UNREADABLE = "the log cannot be read: a file is damaged, cut short or not of the kind that its name says"


@contextmanager
def unreadable() -> Iterator[None]:
    """What a file turns out to hold when it is read to its end is the file's fault, and said in one sentence."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise ValueError("the log cannot be read: memory or space for temporary files ran out") from None
    except (duckdb.Error, pa.ArrowException, UnicodeError):
        raise ValueError(UNREADABLE) from None


class Spark:
    """A Spark session (the extra `discreet[spark]`), for data that outgrow one machine."""

    numbering = "monotonically_increasing_id() + 1"  # no worker needs all rows for it

    def __init__(
        self,
        session: Any,
        delimited: bool = False,
        name: str = "log",
        paths: tuple[str, ...] = (),
        comma: bool = False,
    ) -> None:
        self.session, self.delimited, self.typed, self.name = session, delimited, not delimited, name
        self.comma = comma
        self.paths = paths  # files that it was opened on, whose own schema says more than Spark's

    def quoted(self, column: str) -> str:
        return "`" + column.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def matches(self, text: str, pattern: str) -> str:
        return f"{text} RLIKE '^(?:{pattern})(?![^a]|a)'"  # in Java, $ would let a newline follow

    def seconds(self, value: str) -> str:
        return f"CAST(CAST({value} AS TIMESTAMP) AS DOUBLE)"

    def kinds(self) -> dict[str, Kind]:
        return {name: _kind(kind) for name, kind in self.session.table("log").dtypes}

    def timestamps(self) -> frozenset[str]:
        return frozenset(name for name, kind in self.session.table(self.name).dtypes if _is_time(kind))

    def register(self, name: str, table: pa.Table) -> None:
        rows = [tuple(row.values()) for row in table.to_pylist()]
        self.session.createDataFrame(rows, table.column_names).createOrReplaceTempView(name)

    def keep(self, name: str, query: str, materialise: bool) -> None:
        with _unreadable_by_spark():
            frame = self.session.sql(query)
            (frame.persist() if materialise else frame).createOrReplaceTempView(name)

    def fetch(self, query: str) -> pa.Table:
        with _unreadable_by_spark():
            frame = self.session.sql(query)
            rows = frame.collect()
        return pa.table({name: [row[i] for row in rows] for i, name in enumerate(frame.columns)})

    def stream(self, query: str, order: Sequence[str], rows: int, most: int) -> Iterator[pa.Table]:
        """Workers sort them into partitions of that size, of which the driver holds one at a time."""
        from pyspark.sql.pandas.types import to_arrow_schema

        with _unreadable_by_spark():
            frame = self.session.sql(query)
            schema = to_arrow_schema(frame.schema)
            found = frame.repartitionByRange(max(-(-most // rows), 1), *order).sortWithinPartitions(*order)
            parts = found.toLocalIterator()
        yield schema.empty_table()
        while True:
            with _unreadable_by_spark():
                part = list(islice(parts, rows))
            if not part:
                return
            values = zip(*part, strict=True)
            yield pa.table([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)


@contextmanager
def _unreadable_by_spark() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
            raise ValueError(UNREADABLE) from None
        raise


def _kind(name: str) -> Kind:
    """A column's kind from the name of its type, in either engine."""
    kind = name.upper()
    if kind.endswith("INT") or kind in ("INTEGER", "UINTEGER", "LONG", "SHORT", "BYTE"):
        return "int"
    if kind.startswith(("DOUBLE", "FLOAT", "REAL", "DECIMAL")):
        return "float"
    if kind.startswith("BOOL"):
        return "bool"
    return "text" if kind.startswith(("VARCHAR", "STRING", "ENUM", "CHAR")) else "other"


def _is_time(name: str) -> bool:
    return name.upper().startswith(("TIMESTAMP", "DATE"))
