"""A folder of results is one table: the same columns for every learner, each with its meaning."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import discreet
from discreet import FiniteMDP, provenance
from discreet.results import curves, load
from discreet.runs import results
from discreet.runs.experiment import Experiment, run

SMALL = {"states": 3, "horizon": 3, "episodes": 50}


def own_learner(problem):
    """A learner of one's own, as a function of public facts."""
    from discreet.catalog import algorithm

    return algorithm("ucbvi").build(problem)


def model() -> FiniteMDP:
    P = np.full((2, 2, 2), 0.5)
    return FiniteMDP(P[None], np.array([[[0.0, 1.0], [0.5, 0.2]]]), np.array([1.0, 0.0]), 4, "coin")


EXPERIMENTS = (
    Experiment("ucbvi", **SMALL),
    Experiment("dp-ucbvi", **SMALL, epsilon=1.0),
    Experiment("spotlight", **SMALL, epsilon=2.0, model="local"),
    Experiment("heavy-ucbvi", **SMALL, reward_law="student-t", df=3.0),
    Experiment("uc-o-reps", **SMALL),
    Experiment(own_learner, env=model(), episodes=50),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("all")
    for number, experiment in enumerate(EXPERIMENTS):
        for seed in (0, 3):
            results.write(replace(run(experiment, seed), role="tuning" if seed else "reporting"), path)
        if number == 0:
            results.write(run(experiment, 9), path)
    return path


def test_all_learners_share_one_schema(folder):
    first, *others = (pq.read_schema(file) for file in sorted(folder.iterdir()))
    assert len(others) == 2 * len(EXPERIMENTS)
    assert all(other.equals(first, check_metadata=False) for other in others)
    assert not [field.name for field in first if field.type == pa.null()]


def test_u5_the_folder_is_a_data_set_to_arrow_and_duckdb(folder):
    for table in (pq.read_table(folder), duckdb.sql(f"from read_parquet('{folder}/*.parquet')").to_arrow_table()):
        assert table.num_rows == 2 * len(EXPERIMENTS) + 1
        rows = {(row["id"], row["seed"]): row for row in table.to_pylist()}
        for stored in results.read(folder):
            row = rows[stored.id, stored.seed]
            assert row["regret_ratio"] == stored.regret_ratio
            assert row["final_gap"] == stored.final_gap
            assert row["role"] == stored.role
            assert row["source"] == provenance.source_digest()
    united = duckdb.sql(f"from read_parquet('{folder}/*.parquet', union_by_name=true)")
    assert united.columns == pq.read_table(folder).column_names


def test_columns_say_what_they_hold(folder):
    schema = pq.read_schema(next(folder.iterdir()))
    told = {field.name: field.metadata[b"meaning"].decode() for field in schema if field.metadata}
    measured = {"regret", "random_regret", "value_optimal", "final_value", "regret_ratio", "final_gap", "seconds"}
    assert measured | {"states", "actions", "horizon", "episodes", "law", "epsilon", "role"} <= told.keys()
    assert told.keys() == results.MEANING.keys()
    assert "CPU seconds" in told["seconds"]
    assert {"version", "source", "python", "numpy", "numba", "command", "time"} <= set(schema.names)


def test_load_has_one_row_per_run(folder):
    table = load(folder)
    stored = results.read(folder)
    assert isinstance(table, pa.Table)
    assert table.num_rows == len(stored)
    assert not {"checkpoints", "regret", "diagnostics"} & set(table.column_names)
    for found, row in zip(table.to_pylist(), stored, strict=True):
        assert (found["id"], found["seed"], found["role"]) == (row.id, row.seed, row.role)
        assert (found["regret_ratio"], found["final_gap"]) == (row.regret_ratio, row.final_gap)
        assert found["seconds"] == row.seconds
        assert found["algorithm"] == row.settings["algorithm"]
        assert found["guarantee_sentence"] == row.guarantee.sentence()
    by_learner = {row["algorithm"]: row for row in table.to_pylist()}
    assert (by_learner["dp-ucbvi"]["guarantee_model"], by_learner["dp-ucbvi"]["guarantee_epsilon"]) == ("joint", 1.0)
    assert by_learner["spotlight"]["guarantee_model"] == "local"
    assert by_learner["ucbvi"]["guarantee_epsilon"] is None
    assert by_learner["uc-o-reps"]["values_are"] == "losses"
    assert (by_learner["uc-o-reps"]["law"], by_learner["heavy-ucbvi"]["law"]) == ("iid losses", "student-t")
    assert {row["actions"] for row in table.to_pylist()} == {2}


def test_curves_are_in_long_form(folder):
    table = curves(folder).to_pylist()
    expected = [
        (row.id, row.seed, row.role, int(k), float(r))
        for row in results.read(folder)
        for k, r in zip(row.checkpoints, row.regret, strict=True)
    ]
    assert [tuple(row.values()) for row in table] == expected
    assert list(table[0]) == ["id", "seed", "role", "episode", "regret"]


def test_bad_requests_are_refused_in_one_sentence(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"unknown format 'csv'; choose one of arrow, pandas"):
        load(folder, format="csv")
    with pytest.raises(ValueError, match=r"there are no results in .*; `discreet run … --out"):
        load(tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        curves(tmp_path / "nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pandas is not installed; pip install pandas, or take the format arrow"):
        load(folder, format="pandas")


def test_a_file_without_the_newer_columns_is_read(tmp_path):
    """Columns that an older version did not write are null, also beside files that have them."""
    new = results.write(run(EXPERIMENTS[0], 0), tmp_path)
    table = pq.read_table(new)
    old = table.drop_columns(["role", "actions", "law", "regret_ratio", "final_gap", "source", "time"])
    pq.write_table(old.replace_schema_metadata(table.schema.metadata), new)
    results.write(run(EXPERIMENTS[0], 1), tmp_path)
    first, second = load(tmp_path).to_pylist()
    assert (first["actions"], second["actions"]) == (None, 2)
    assert first["regret_ratio"] == results.read(tmp_path)[0].regret_ratio


def test_a_layout_of_another_version_is_refused(tmp_path):
    path = results.write(run(EXPERIMENTS[0], 0), tmp_path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"discreet": b"9"}), path)
    with pytest.raises(ValueError, match=r"has layout '9' of another version of discreet, and this one reads '1'"):
        results.read(tmp_path)


def test_the_module_is_light_and_found_by_name():
    script = "import discreet, sys; discreet.results; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "discreet.results" in loaded
    assert not {"numpy", "pyarrow", "pandas"} & set(loaded)
    assert discreet.results.load is load


def test_the_guarantee_is_kept_whole_as_json(folder):
    found = {row["algorithm"]: json.loads(row["guarantee"]) for row in load(folder).to_pylist()}
    assert found["dp-ucbvi"]["epsilon"] == 1.0
    assert found["dp-ucbvi"]["entries"]
