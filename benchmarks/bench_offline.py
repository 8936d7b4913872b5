"""Counting, noise and planning for offline learning, against the bare group-by and the bare matrix products."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

from discreet.agents.apvi import APVI
from discreet.kernels.projection import project_counts
from discreet.people.counting import LoggedData, count
from discreet.people.logs import LogFormat
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.trust.linear import LinearMoments
from discreet.releases.regressions import Target
from measuring import Row, row, seconds, seconds_in_turn


def write_log(
    path: Path, rows: int, states: int, actions: int, horizon: int, episodes: int, missing: float = 0.0
) -> None:
    """Rows of users with some episodes each, all or some steps present, states and actions scattered."""
    with duckdb.connect() as connection:
        connection.execute(
            f"""COPY (SELECT i // {horizon * episodes} AS user, (i // {horizon}) % {episodes} AS episode,
            i % {horizon} AS step, CAST(hash(i) % {states} AS BIGINT) AS state,
            CAST(hash(i + 1) % {actions} AS BIGINT) AS action, CAST(hash(i + 2) % 2 AS DOUBLE) AS reward,
            CAST(hash(i + 3) % {states} AS BIGINT) AS next_state FROM range({rows}) t(i)
            WHERE hash(i + 4) % 1000 >= {round(1000 * missing)})
            TO '{path}' (FORMAT parquet)"""
        )


def counting(folder: Path, n: int = 50_000_000) -> list[Row]:
    """50 million transitions, S=50 A=5, pooled; then with 2 % of the rows missing, so that a third of the episodes
    end early and all must be looked up."""
    trusted = LogFormat(50, 5, 20, True, early_end="keep", enforce=False, num_users=n)
    bounded = LogFormat(50, 5, 20, True, episodes_per_user=5)
    rows = []
    for missing, what in ((0.0, "transitions"), (0.02, "transitions with gaps")):
        path = folder / f"log{missing}.parquet"
        write_log(path, n, 50, 5, 20, 10, missing)
        query = f"SELECT state, action, next_state, count(*), sum(reward) FROM read_parquet('{path}') GROUP BY ALL"
        with duckdb.connect() as connection:
            bare, free, held = seconds_in_turn(
                partial(lambda run, text: run(text).fetchall(), connection.execute, query),
                partial(count, path, trusted),
                partial(count, path, bounded),
            )
        path.unlink()
        for name, time_taken, target in (("no bounds", free, 0.5), ("5 episodes per user", held, 0.25)):
            label = f"count {n:.0e} {what}, {name}".replace("e+0", "e")
            there = n * (1 - missing)
            rows.append(row(label, there / time_taken, there / bare, "bare DuckDB group-by", "rows/s", target))
    return rows


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
    state, action, following = (rng.integers(size, size=rows) for size in (S, A, S))
    table = {"user": np.repeat(np.arange(n), H), "step": np.tile(np.arange(H), n), "state": state, "action": action}
    data = LoggedData(
        {**table, "reward": rng.integers(2, size=rows) * 1.0, "next_state": following},
        LogFormat(S, A, H, early_end="keep"),
    )
    spec = LogFormat(S, A, H, early_end="keep").spec
    target = Target(np.zeros((S, A, S)), np.ones((S, A)), 1.0)

    def ours() -> None:
        stream = LinearMoments(Budget.zcdp(1.0)).open(data.rows(), spec, S, NoiseSource.secure())
        for h in range(H):
            stream.regress(h, "values", features, [target])

    matrices = [features[state[h::H], action[h::H]] for h in range(H)]
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
