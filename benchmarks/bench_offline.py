"""Counting, noise and planning for offline learning, against the bare group-by and the bare matrix products."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

from discreet.agents.apvi import APVI
from discreet.data.counting import LoggedData, Trajectories, count
from discreet.data.logs import LogFormat
from discreet.kernels.projection import project_counts
from discreet.moments import Target
from discreet.privacy.accounting import Budget
from discreet.privacy.linear import LinearMoments
from discreet.privacy.noise import NoiseSource
from discreet.privacy.one_shot import OneShot

Row = dict[str, object]


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Shortest wall-clock time: the machine may be busy, and both sides use all its cores."""
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        work()
        times.append(time.perf_counter() - before)
    return min(times)


def row(name: str, ours: float, baseline: float, against: str, unit: str, target: float) -> Row:
    ratio = ours / baseline
    return {
        "name": name,
        "ours": ours,
        "baseline": baseline,
        "baseline_name": against,
        "unit": unit,
        "ratio": ratio,
        "target": target,
        "met": ratio >= target,
    }


def write_log(path: Path, rows: int, states: int, actions: int, horizon: int, episodes: int) -> None:
    """Rows of users with some episodes each, all steps present, states and actions scattered."""
    with duckdb.connect() as connection:
        connection.execute(
            f"""COPY (SELECT i // {horizon * episodes} AS user, (i // {horizon}) % {episodes} AS episode,
            i % {horizon} AS step, CAST(hash(i) % {states} AS BIGINT) AS state,
            CAST(hash(i + 1) % {actions} AS BIGINT) AS action, CAST(hash(i + 2) % 2 AS DOUBLE) AS reward,
            CAST(hash(i + 3) % {states} AS BIGINT) AS next_state FROM range({rows}) t(i))
            TO '{path}' (FORMAT parquet)"""
        )


def counting(folder: Path) -> list[Row]:
    """50 million transitions, S=50 A=5, pooled."""
    n, path = 50_000_000, folder / "log.parquet"
    write_log(path, n, 50, 5, 20, 10)
    query = f"SELECT state, action, next_state, count(*), sum(reward) FROM read_parquet('{path}') GROUP BY ALL"
    with duckdb.connect() as connection:
        bare = seconds(lambda: connection.execute(query).fetchall())
    trusted = LogFormat(50, 5, 20, True, early_end="keep", enforce=False, num_users=n)
    bounded = LogFormat(50, 5, 20, True, episodes_per_user=5)
    against = "bare DuckDB group-by"
    return [
        row(
            "count 5e7 transitions, no bounds",
            n / seconds(lambda: count(path, trusted)),
            n / bare,
            against,
            "rows/s",
            0.5,
        ),
        row(
            "count 5e7 transitions, 5 episodes per user",
            n / seconds(lambda: count(path, bounded)),
            n / bare,
            against,
            "rows/s",
            0.25,
        ),
    ]


def apvi(folder: Path) -> list[Row]:
    """DP-APVI S=100 A=10 H=20 from 10⁷ transitions: everything after counting, and noise with projection alone."""
    path = folder / "apvi.parquet"
    write_log(path, 10_000_000, 100, 10, 20, 1)
    log = LogFormat(100, 10, 20, early_end="keep", enforce=False, num_users=500_000)
    counts = LoggedData(str(path), log).counts()
    released = []

    def rest() -> None:
        stream = OneShot(Budget.zcdp(1.0)).open(log.spec, 500_000, NoiseSource.secure())
        stream.add(counts.counts())
        released.append(stream.release())
        APVI().plan(released[-1])

    after = seconds(rest)
    noise, cells = NoiseSource.secure(), 20 * 100 * 10
    raw = counts.transitions.reshape(cells, 100)

    def noisy() -> None:
        values = raw + noise.gaussian(30.0, raw.shape)
        project_counts(values.astype(np.float64), values.sum(axis=1).astype(np.float64), 100.0)

    rate = raw.size / seconds(noisy)
    return [
        row("DP-APVI S=100 A=10 H=20 after counting", 1 / after, 1 / 3.0, "3 s", "fits/s", 1.0),
        row("noise and projection of counters", rate, 1e7, "fixed", "counters/s", 1.0),
    ]


def regressions() -> Row:
    """DP-PEVI's moments, d=50, H=20, 10⁶ transitions."""
    n, d, H, S, A = 50_000, 50, 20, 500, 10
    rng = np.random.default_rng(0)
    features = rng.normal(size=(S, A, d))
    features /= np.linalg.norm(features, axis=-1, keepdims=True) * 1.001
    rows = n * H
    users = Trajectories(
        np.arange(n) * H,
        np.repeat(np.arange(n), H),
        np.tile(np.arange(H), n),
        rng.integers(S, size=rows),
        rng.integers(A, size=rows),
        rng.integers(S, size=rows),
        rng.integers(2**20, size=rows),
        n,
    )
    spec = LogFormat(S, A, H, early_end="keep").spec
    target = Target(np.zeros((S, A, S)), np.ones((S, A)), 1.0)

    def ours() -> None:
        stream = LinearMoments(Budget.zcdp(1.0)).open(users, spec, S, NoiseSource.secure())
        for h in range(H):
            stream.regress(h, "values", features, [target])

    matrices = [features[users.state[h::H], users.action[h::H]] for h in range(H)]
    goals = rng.random(n)

    def bare() -> None:
        for X in matrices:
            _ = X.T @ X, X.T @ goals

    return row(
        "DP-PEVI moments d=50 H=20, 1e6 transitions",
        1 / seconds(ours),
        1 / seconds(bare),
        "bare matrix products",
        "runs/s",
        1 / 3,
    )


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*counting(folder), *apvi(folder), regressions()]


if __name__ == "__main__":
    for line in rows():
        print(line)
