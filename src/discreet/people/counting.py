"""Contribution bounding and counting: one text of SQL, run by DuckDB or by Spark.

The text is put together from `reading` (values), `bounding` (what counts of a user) and `one_step`; a log whose users
follow one another in order is counted by `ordered` instead, to the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.people.bounding import distinct_steps, kept_rows, look_up_episodes, shortcut_of
from discreet.people.engines import DuckDB, Engine, Spark, integers
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat, open_log, parquet_schemas
from discreet.people.one_step import OneStep, OrderedStep
from discreet.people.reading import prepare
from discreet.people.repairs import Repairs, by_column, clippings, faults_of
from discreet.people.step_counts import Rows, StepCounts, StepItems, code_of

if TYPE_CHECKING:
    from discreet.people.ordered import Ordered

__all__ = ["LoggedData", "OneStep", "OrderedStep", "Repairs", "Rows", "StepCounts", "StepItems", "StepRows", "count"]

#: With fewer rows, queries are done before compiled code is loaded.
FEW = 100_000


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
            look_up_episodes(self._engine, log)
        self.num_users, self.repairs = _who(self._engine, log, self._ordered)

    @cached_property
    def _shortcut(self) -> str | None:
        if self._ordered is not None:  # which episodes count is not known yet
            look_up_episodes(self._engine, self.log)
        return shortcut_of(self._engine, self.log) if self.log.enforce else None

    def counts(self) -> StepCounts:
        """Count within the rules."""
        return self.items().table(self.log.spec)

    def items(self) -> StepItems:
        """The same, of what occurred alone."""
        log, repairs = self.log, self.repairs
        if self._ordered is not None:
            code, number, paid = self._ordered.items()
        else:
            rows = self._engine.fetch(counting_query(log, self._shortcut))
            code, number, paid = (np.asarray(rows.column(i), dtype=np.int64) for i in range(3))
        left_out = repairs.rows - repairs.unreadable_rows - int(number.sum())
        if not log.enforce:
            if left_out:
                repairs = faults_of(self._engine, log, True)
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
        rows, what = f"({kept_rows(log, self._shortcut)}) AS kept", "FALSE"
        if half is not None:
            self._engine.register("coins", pa.table({"numbered": np.arange(half.size), "coin": half}))
            whose = f"SELECT DISTINCT person AS who FROM ({kept_rows(log, self._shortcut)}) AS there"
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
            (there,) = integers(self._engine, "SELECT sum(number) FROM step_rows")
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


def _in_order(engine: Engine, log: LogFormat, again: bool = False) -> Ordered | None:
    """What one pass finds in a large log, where one is enough."""
    if not isinstance(engine, DuckDB) or engine.rows_kept() < FEW:
        return None
    from discreet.people.ordered import in_order

    return in_order(engine, log, again)


def counting_query(log: LogFormat, shortcut: str | None = None) -> str:
    """(code, number, paid), code = the flat index of (g, s, a, s')."""
    coded = f"SELECT {code_of(log)} AS code, units FROM ({kept_rows(log, shortcut)}) AS kept"
    return (
        f"SELECT code, count(*) AS number, CAST(sum(units) AS BIGINT) AS paid FROM ({coded}) AS coded GROUP BY code"
    )


def _who(engine: Engine, log: LogFormat, ordered: Ordered | None) -> tuple[int, Repairs]:
    """How many users there are, and what is wrong with their rows."""
    users, logged, readable, repeated = 0, 0, 0, 0
    if ordered is not None:
        users, logged, readable, repeated = ordered.users, ordered.logged, ordered.readable, ordered.repeated
    elif log.enforce:
        query = (
            "SELECT count(DISTINCT person), sum(logged), sum(readable), "
            f"sum(CASE WHEN readable > {distinct_steps(log)} THEN 1 ELSE 0 END) FROM episodes_read"
        )
        users, logged, readable, repeated = integers(engine, query)
    elif log.num_users is None:
        (users,) = integers(engine, "SELECT count(DISTINCT person) FROM readings")
    if log.num_users is not None and users > log.num_users:
        raise ValueError(f"the log has more users than the {log.num_users:,} declared")
    if ordered is not None and readable == logged:
        clipped = dict(zip((("reward", said) for said in clippings(log)), ordered.clipped, strict=True))
        found = Repairs(ordered.rows, nobody_rows=ordered.nobody, columns=by_column(log, clipped))
    else:
        found = faults_of(engine, log, readable < logged)
    if log.enforce:
        found = replace(found, unreadable_rows=found.rows - readable, repeated_steps=repeated)
    return log.num_users or max(users, 1), found
