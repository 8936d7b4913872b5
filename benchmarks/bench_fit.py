"""Whole fits of large logs against the bare queries that any counting needs, and of large state spaces.

DISCREET_BENCH_ROWS sets the size of the logs (default 50 million rows).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from discreet import Budget, LogFormat, fit
from discreet.people.counting import LoggedData
from measuring import Row, row, seconds, seconds_in_turn

ROWS = int(float(os.environ.get("DISCREET_BENCH_ROWS", "5e7")))
STATES, ACTIONS, HORIZON = 50, 5, 20
GROUP = "SELECT state, action, next_state, count(*), sum(reward) FROM {} GROUP BY ALL"
LEAD = (
    "SELECT state, action, next_state, count(*), sum(reward) FROM (SELECT state, action, reward, "
    "lead(state) OVER (PARTITION BY user ORDER BY step) AS next_state FROM {}) GROUP BY ALL"
)
#: A fit of 10⁴ rows, as a whole process, may take so long.
START = 1.5


def write_log(path: Path, rows: int, states: int, actions: int, successors: bool, missing: float = 0.0) -> None:
    """One episode per user, in order; states and actions scattered."""
    following = f", CAST(hash(i + 3) % {states} AS BIGINT) AS next_state" if successors else ""
    with duckdb.connect() as connection:
        connection.execute(
            f"""COPY (SELECT i // {HORIZON} AS user, i % {HORIZON} AS step,
            CAST(hash(i) % {states} AS BIGINT) AS state, CAST(hash(i + 1) % {actions} AS BIGINT) AS action,
            CAST(hash(i + 2) % 2 AS DOUBLE) AS reward{following} FROM range({rows}) t(i)
            WHERE hash(i + 4) % 1000 >= {round(1000 * missing)}) TO '{path}' (FORMAT parquet)"""
        )


def large_logs(folder: Path, n: int = ROWS) -> list[Row]:
    """Without a column for the successor, with it, and with gaps, so that all episodes must be looked up; all steps
    of a user (ε above 2), and one. DuckDB takes all cores, whatever `run.py` says of threads; so does a fit."""
    found = []
    pa.set_cpu_count(os.cpu_count() or 1)
    for name, query, successors, missing, target in (
        ("no next_state", LEAD, False, 0.0, 0.5),
        ("next_state", GROUP, True, 0.0, 0.5),
        ("gaps", GROUP, True, 0.02, 0.25),
    ):
        path = folder / "log.parquet"
        write_log(path, n, STATES, ACTIONS, successors, missing)
        log = LogFormat(STATES, ACTIONS, HORIZON, True)
        trusted = LogFormat(STATES, ACTIONS, HORIZON, True, early_end="keep", enforce=False, num_users=n // HORIZON)

        def fitted(form: LogFormat, budget: Budget, where: Path = path) -> None:
            fit(str(where), form, budget, ledger=folder / "ledger.jsonl")

        with duckdb.connect() as connection:
            text = query.format(f"read_parquet('{path}')")
            works = {
                "all steps": partial(fitted, log, Budget.pure(3.0)),
                "one step per user": partial(fitted, log, Budget.pure(1.0)),
                "bounds not enforced": partial(fitted, trusted, Budget.pure(1.0)),
            }
            bare, *ours = seconds_in_turn(
                partial(lambda run, query: run(query).fetchall(), connection.execute, text), *works.values()
            )
        path.unlink()
        against = "bare lead() query" if query is LEAD else "bare group-by"
        label = f"fit of {n:.0e} rows, {name}".replace("e+0", "e")
        found += [
            row(f"{label}, {what}", n / taken, n / bare, against, "rows/s", target)
            for what, taken in zip(works, ours, strict=True)
        ]
    return found


def large_states(folder: Path) -> list[Row]:
    """5,000 states × 10 actions and 10⁶ rows, everything against the counting alone; 10⁵ states from 10⁵ rows."""
    path = folder / "wide.parquet"
    write_log(path, 1_000_000, 5000, 10, True)
    log = LogFormat(5000, 10, HORIZON, True)
    counted, all_of_it = seconds_in_turn(
        lambda: LoggedData(str(path), log).items(),
        lambda: fit(str(path), log, Budget.pure(10.0), ledger=folder / "ledger.jsonl", anyway=True),
    )
    write_log(path, 100_000, 100_000, 10, True)
    huge = LogFormat(100_000, 10, HORIZON, True)
    taken = seconds(lambda: fit(str(path), huge, Budget.pure(10.0), ledger=folder / "ledger.jsonl", anyway=True), 1)
    return [
        row("fit of 5,000 × 10, 1e6 rows", 1 / all_of_it, 1 / counted, "counting alone", "fits/s", 0.2),
        row("fit of 100,000 × 10, 1e5 rows", 1 / taken, 1 / 20.0, "20 s", "fits/s", 1.0),
    ]


def start_up(folder: Path) -> Row:
    """A fit of 10⁴ rows as a process of its own, compiled before."""
    path = folder / "small.parquet"
    write_log(path, 10_000, 5, 2, True)
    command = [sys.executable, "-c", "from discreet.cli import main; main()", "fit", str(path), "--states", "5"]
    command += ["--actions", "2", "--horizon", str(HORIZON), "--epsilon", "1", "--out", str(folder / "policy")]

    def once() -> None:
        subprocess.run([*command, "--anyway"], check=True, capture_output=True)

    once()
    taken = statistics.median(seconds(once, 1) for _ in range(5))
    return row("fit of 1e4 rows, whole process", 1 / taken, 1 / START, f"{START:g} s", "fits/s", 1.0)


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [start_up(folder), *large_states(folder), *large_logs(folder)]


if __name__ == "__main__":
    for line in rows():
        print(line)
