"""Results survive the disk bit by bit, and are there in full or not at all."""

from __future__ import annotations

import math
import os
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet import provenance
from discreet.privacy.accounting import Guarantee, LedgerEntry, no_privacy
from discreet.runs import results
from discreet.runs.experiment import Experiment, run

NAME = "made-up-riverswim-0123456789"
#: Settings of every kind.
SETTINGS = {
    "algorithm": "made-up",
    "episodes": 100,
    "states": None,
    "epsilon": 0.1,
    "pooled": True,
    "successors": (1, 2),
}
TYPES = {
    "algorithm": "str",
    "episodes": "int",
    "states": "int",
    "epsilon": "float",
    "pooled": "bool",
    "successors": "tuple[int, ...]",
}


def finished(**said: Any) -> results.RunResult:
    values: dict[str, Any] = {
        "seed": 7,
        "checkpoints": np.array([1, 10, 100]),
        "regret": np.array([0.1, 1 / 3, np.nextafter(2.0, 3.0)]),
        "random_regret": 4.0,
        "value_optimal": 1.0,
        "value_random": 0.96,
        "final_value": 1.0,
        "switches": 2,
        "guarantee": no_privacy(),
        "seconds": 0.25,
        "diagnostics": {"clipped": 3},
        "version": "0.0.1",
        "types": TYPES,
    }
    return results.RunResult(NAME, SETTINGS, **(values | said))


def test_a_run_comes_back_bit_by_bit(tmp_path):
    entry = LedgerEntry("visits", "discrete-laplace", "l1", 40.0, 120.0, 1, 1 / 3)
    guarantee = Guarantee("joint", 1.0, entries=(entry,), assumptions=("at most 100 episodes",))
    written = results.stamped(finished(guarantee=guarantee))
    path = results.write(written, tmp_path)
    assert path.name == "made-up-riverswim-0123456789-seed7.parquet"
    (row,) = results.read(tmp_path)
    for name in (f.name for f in fields(results.RunResult)):
        a, b = getattr(row, name), getattr(written, name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()
        elif name == "settings":
            assert a == {**b, "successors": [1, 2]}
        else:
            assert a == b
    assert row.guarantee.sentence() == guarantee.sentence()
    assert row.regret_ratio == np.nextafter(2.0, 3.0) / 4.0
    assert row.simulation


@pytest.mark.parametrize(
    "guarantee",
    [
        no_privacy("the initial distribution is public"),
        Guarantee("joint", math.inf, rho=0.5),
        Guarantee("shuffle", 1.0, 1e-6, entries=(LedgerEntry("bits", "binomial", "l1", 2.0, 3.0, 1, 1.0, 1e-6),)),
        Guarantee("local", math.inf, entries=(LedgerEntry("a", "discrete-laplace", "l1", 1.0, 0.0, 1, math.inf),)),
        Guarantee("joint", 2.0, neighbours="zero-out", unit="user (3 episodes)"),
    ],
    ids=lambda guarantee: guarantee.sentence(),
)
def test_a_guarantee_comes_back_as_it_was_stated(tmp_path, guarantee):
    results.write(finished(guarantee=guarantee), tmp_path)
    (row,) = results.read(tmp_path)
    assert row.guarantee == guarantee


def test_columns_can_be_queried_without_us(tmp_path):
    results.write(finished(), tmp_path)
    (row,) = pq.read_table(tmp_path).to_pylist()
    assert (row["algorithm"], row["episodes"], row["states"], row["epsilon"]) == ("made-up", 100, None, 0.1)
    assert row["checkpoints"] == [1, 10, 100]
    schema = pq.read_schema(next(tmp_path.glob("*.parquet")))
    assert schema.field("states").type == pa.int64()  # also where it is null, so that files can be read together


def test_real_runs_are_stored_and_found_again(tmp_path):
    experiment = Experiment("ucbvi", states=3, horizon=3, episodes=50)
    for seed in (0, 11, 2):
        results.write(run(experiment, seed), tmp_path)
    other = Experiment("ucbvi", states=3, horizon=3, episodes=60)
    results.write(run(other, 0), tmp_path)
    assert [row.seed for row in results.read(tmp_path) if row.id == experiment.id] == [0, 2, 11]
    stored = results.stored_seeds(tmp_path, experiment.id, provenance.source_digest())
    assert sorted(stored) == [0, 2, 11]
    assert stored[2].settings["episodes"] == 50
    assert results.stored_seeds(tmp_path, experiment.id, "another source") == {}
    assert sorted(results.stored_seeds(tmp_path, experiment.id)) == [0, 2, 11]


def test_secure_runs_never_overwrite_each_other(tmp_path):
    names = {results.write(finished(seed=None), tmp_path).name for _ in range(3)}
    assert len(names) == 3
    assert all("-secure-" in name for name in names)
    assert not any(row.simulation for row in results.read(tmp_path))
    assert results.stored_seeds(tmp_path, NAME) == {}


def test_a_ratio_to_nothing_is_undefined():
    assert finished(random_regret=0.0).regret_ratio is None


@pytest.mark.parametrize("moment", ["write_table", "fsync", "replace"])
def test_a_run_killed_while_writing_leaves_nothing_behind(tmp_path, monkeypatch, moment):
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    results.write(finished(seed=1), tmp_path)
    if moment == "write_table":
        real = pq.write_table

        def half(table, file):
            real(table, file)
            file.truncate(100)
            raise Killed

        monkeypatch.setattr(pq, "write_table", half)
    else:
        monkeypatch.setattr(os, moment, killed)
    with pytest.raises(Killed):
        results.write(finished(seed=2), tmp_path)
    monkeypatch.undo()
    assert len(os.listdir(tmp_path)) == 1
    assert [row.seed for row in results.read(tmp_path)] == [1]


def test_rewriting_replaces_the_old_file_in_one_step(tmp_path):
    results.write(finished(), tmp_path)
    results.write(finished(regret=np.array([0.0, 0.0, 1.0])), tmp_path)
    (row,) = results.read(tmp_path)
    assert row.regret[-1] == 1.0


def test_foreign_files_are_passed_over(tmp_path):
    results.write(finished(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "theirs.parquet")
    assert len(results.read(tmp_path)) == 1


@pytest.mark.parametrize("size", [0, 3, 400])
def test_a_damaged_file_is_refused_by_name(tmp_path, size):
    path = results.write(finished(), tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"seed7.parquet' is damaged .* remove it and run again"):
        results.read(tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"cannot write results to .*; choose a folder you may write to"):
            results.prepare(bad)
    assert results.prepare(tmp_path / "new" / "deep").is_dir()
    assert not list((tmp_path / "new" / "deep").iterdir())


def test_a_missing_folder_is_not_an_empty_one(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        results.read(tmp_path / "nowhere")
