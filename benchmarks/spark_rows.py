"""Rows that a Spark cluster on this machine counts per second, beside DuckDB's: `make bench-spark`.

The cluster is a master and a worker with all cores, as separate processes; one core of it does what a core of a real
one does, less the network. DISCREET_BENCH_ROWS sets the size of the logs (default 10 million rows).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench_fit import ACTIONS, HORIZON, STATES, write_log
from discreet.people import counting, spark
from discreet.people.counting import LoggedData, StepItems
from discreet.people.logs import LogFormat

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from spark_cluster import cluster

ROWS = int(float(os.environ.get("DISCREET_BENCH_ROWS", "1e7")))


def timed(work: Callable[[], StepItems], rounds: int) -> tuple[float, StepItems]:
    """The shortest time, and what was counted."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - start)
    return min(times), found


def by_query(path: str, log: LogFormat) -> StepItems:
    """The text that Spark runs, run by DuckDB."""
    way, counting._in_order = counting._in_order, lambda engine, log, again: None  # type: ignore[assignment]
    try:
        return LoggedData(path, log).items()
    finally:
        counting._in_order = way


def by_spark(path: str, log: LogFormat, master: str) -> StepItems:
    engine = spark.open_files([path], master)
    try:
        return LoggedData(engine, log).items()
    finally:
        engine.session.catalog.clearCache()


def as_it_is(path: str, log: LogFormat) -> StepItems:
    return LoggedData(path, log).items()


def main() -> int:
    table = Table(title=f"{ROWS:,} rows, {os.cpu_count()} cores", title_justify="left")
    table.add_column("log")
    for column in ("Spark, rows/s", "DuckDB, same text", "DuckDB as it is used", "Spark / same text"):
        table.add_column(column, justify="right")
    log = LogFormat(STATES, ACTIONS, HORIZON, True)
    logs = ("no next_state", False, 0.0), ("next_state", True, 0.0), ("gaps", True, 0.02)
    with tempfile.TemporaryDirectory() as name, cluster(Path(name), os.cpu_count() or 1, "4g") as master:
        for what, successors, missing in logs:
            path = str(Path(name) / "log.parquet")
            write_log(Path(path), ROWS, STATES, ACTIONS, successors, missing)
            works = partial(by_spark, path, log, master), partial(by_query, path, log), partial(as_it_is, path, log)
            (there, theirs), *here = (timed(work, 3) for work in works)
            for _, ours in here:  # the same counts, or the speeds mean nothing
                assert np.array_equal(ours.table(log.spec).transitions, theirs.table(log.spec).transitions)
            rates = [ROWS / taken for taken in (there, *(taken for taken, _ in here))]
            table.add_row(what, *(f"{rate:,.3g}" for rate in rates), f"{rates[0] / rates[1]:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
