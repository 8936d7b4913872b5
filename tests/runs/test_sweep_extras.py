"""What others bring: the folder of a sweep in pandas and Polars, and cells on Ray, wherever these are installed.

`make test-readers` and `make test-ray` install them first.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from discreet.results import curves, load
from discreet.runs import engine, results
from discreet.runs.claims import Claims
from discreet.runs.sweeps import grid, run_cells

SMALL = {"states": 3, "horizon": 3, "users": 60}


def own(problem):
    from discreet.catalog import algorithm

    if problem.tie_seed == 1:
        raise RuntimeError("seed 1 is unlucky")
    return algorithm("ucbvi").build(problem)


def sweep():
    return grid(["ucbvi", {"name": "dp-ucbvi", "epsilon": 1}, own], ["riverswim"], "0:3", **SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Learners with and without privacy, one's own, and a cell that failed; and somebody is at work."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    outcome = run_cells(sweep().cells(), out)
    assert (len(outcome.done), len(outcome.failed)) == (8, 1)
    assert Claims(engine.desk(out)).take("another-seed7")
    return out


def test_the_folder_holds_results_only(folder):
    assert len(list(folder.iterdir())) == 8
    assert {path.suffix for path in folder.rglob("*")} == {".parquet"}
    assert engine.desk(folder).exists()


if importlib.util.find_spec("pandas") is not None:

    def test_pandas_opens_the_folder(folder):
        import pandas as pd

        frame = pd.read_parquet(folder)
        assert len(frame) == 8
        assert frame.groupby("algorithm").size().max() == 3
        assert set(frame["guarantee_epsilon"].dropna()) == {1.0}
        expected = {(row.id, row.seed): row.regret_ratio for row in results.read(folder)}
        assert {(row.id, row.seed): row.regret_ratio for row in frame.itertuples()} == expected

    def test_load_gives_frames_of_pandas(folder):
        import pandas as pd

        frame, long = load(folder, format="pandas"), curves(folder, format="pandas")
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) == 8
        last = long.sort_values("episode").groupby(["id", "seed"]).last()["regret"]
        for row in results.read(folder):
            assert last[row.id, row.seed] == row.regret[-1]


if importlib.util.find_spec("polars") is not None:

    def test_polars_opens_the_folder(folder):
        import polars as pl

        frame = pl.read_parquet(folder)
        assert frame.height == 8
        assert frame.schema["checkpoints"] == pl.List(pl.Int64)
        expected = {row.id: row.final_gap for row in results.read(folder) if row.seed == 0}
        assert dict(frame.filter(pl.col("seed") == 0).select("id", "final_gap").iter_rows()) == expected


if importlib.util.find_spec("ray") is not None:

    def test_ray_gives_the_same_numbers_bit_for_bit(folder, tmp_path):
        outcome = run_cells(sweep().cells(), tmp_path / "out", jobs=2, backend="ray")
        assert (len(outcome.done), len(outcome.failed)) == (8, 1)
        assert outcome.failed[0].error == "RuntimeError: seed 1 is unlucky"
        ours, theirs = results.read(tmp_path / "out"), results.read(folder)
        for row, other in zip(ours, theirs, strict=True):
            assert (row.id, row.seed, row.role) == (other.id, other.seed, other.role)
            assert row.regret.tobytes() == other.regret.tobytes()
            assert row.guarantee == other.guarantee
