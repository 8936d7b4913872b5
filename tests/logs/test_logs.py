"""Logs: every source gives the same relation, bad ones are refused in words, none is written to."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from discreet.people.counting import count
from discreet.people.counts import Counts
from discreet.people.engines import DuckDB
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat, minari_table, open_log, table_of

LOG = LogFormat(3, 2, 4, early_end="keep")


def episodes(n: int = 30, seed: int = 0) -> Episodes:
    rng = np.random.default_rng(seed)
    return Episodes(rng.integers(3, size=(n, 5)), rng.integers(2, size=(n, 4)), rng.random((n, 4)))


def digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def written(kind: str, table: pa.Table, tmp_path):
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif kind == "csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == "arrow":
        pyarrow.feather.write_feather(table, path)
    else:
        with duckdb.connect(str(path)) as connection:
            connection.register("given", table)
            connection.execute("CREATE TABLE visits AS SELECT * FROM given")
    return path


def between_states(counts):
    """(transitions, paid) of a log in which every row has a successor, though the columns do not promise it."""
    tables = counts.transitions, counts.reward_sums
    assert not any(table[:, 3:].any() or table[..., 3:].any() for table in tables)
    return tuple(table[:, :3, :, :3] for table in tables)


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "duckdb"])
def test_files_of_every_kind_give_the_counts_of_the_episodes_and_stay_as_they_are(kind, tmp_path):
    played = episodes()
    path = written(kind, table_of(played), tmp_path)
    before = digest(path)
    found = count(str(path), LOG, table="visits" if kind == "duckdb" else None)
    expected = Counts.of(played, LOG.spec)
    transitions, paid = between_states(found)
    assert np.array_equal(transitions, expected.transitions)
    assert np.abs(paid.sum(axis=-1) - expected.reward_sums).max() <= 1  # halves are rounded otherwise
    assert digest(path) == before
    assert found.num_users == 30


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow", "duckdb"])
def test_a_reward_that_is_no_number_is_found_in_files_that_do_not_announce_it(kind, tmp_path):
    """The least and largest value that are stated in a Parquet file leave NaN out."""
    table = table_of(episodes())
    rewards = np.asarray(table.column("reward")).copy()
    rewards[17] = np.nan
    table = table.set_column(table.column_names.index("reward"), "reward", pa.array(rewards, from_pandas=False))
    for name in ("step", "state", "action", "next_state"):  # as numbers with a point, of which one is none
        values = np.asarray(table.column(name)).astype(float)
        values[5] = np.nan
        table = table.set_column(table.column_names.index(name), name, pa.array(values, from_pandas=False))
    found = count(str(written(kind, table, tmp_path)), LOG, table="visits" if kind == "duckdb" else None)
    assert found.transitions.sum() == 118
    assert found.repairs.unreadable_rows == 2


def test_several_files_are_one_log(tmp_path):
    played = episodes()
    table = table_of(played)
    for i in range(3):
        pyarrow.parquet.write_table(table.slice(40 * i, 40), tmp_path / f"part{i}.parquet")
    found = count(str(tmp_path / "part*.parquet"), LOG)
    assert np.array_equal(between_states(found)[0], Counts.of(played, LOG.spec).transitions)


def test_tables_in_memory_and_arrays():
    played = episodes()
    table = table_of(played)
    expected = Counts.of(played, LOG.spec).transitions
    arrays = {name: np.asarray(table.column(name)) for name in table.column_names}
    for source in (played, table, arrays, {name: list(column) for name, column in arrays.items()}):
        assert np.array_equal(between_states(count(source, LOG))[0], expected)


def test_minari_episodes_are_users():
    played = episodes(5)
    buffers = [
        SimpleNamespace(
            id=i,
            observations=played.states[i],
            actions=played.actions[i],
            rewards=played.rewards[i],
            terminations=np.arange(4) == i,
            truncations=np.full(4, False),
        )
        for i in range(5)
    ]
    dataset = SimpleNamespace(iterate_episodes=lambda: iter(buffers))
    found = minari_table(dataset)
    assert found.drop(["terminated", "truncated"]).equals(table_of(played))
    assert np.flatnonzero(found.column("terminated")).tolist() == [0, 5, 10, 15]
    counted = count(dataset, LogFormat(3, 2, 4)).transitions  # a successor is always there: none is unknown
    assert counted.shape == (4, 4, 2, 4)
    assert counted.sum(axis=(1, 2, 3)).tolist() == [5, 4, 3, 2]  # one episode after the other terminates
    assert counted[..., 3].sum(axis=(1, 2)).tolist() == [1, 1, 1, 0]  # after the last step it makes no difference
    with pytest.raises(ValueError, match="no episode"):
        minari_table(SimpleNamespace(iterate_episodes=lambda: iter([])))
    vectors = SimpleNamespace(id=0, observations=np.zeros((3, 2)), actions=np.zeros(2), rewards=np.zeros(2))
    with pytest.raises(ValueError, match="one whole number each"):
        minari_table(SimpleNamespace(iterate_episodes=lambda: iter([vectors])))


def test_columns_are_mapped_by_name_and_missing_ones_are_listed():
    table = table_of(episodes())
    renamed = table.rename_columns(["patient", "hour", "state", "action", "reward", "next_state"])
    log = LogFormat(3, 2, 4, columns={"user": "patient", "step": "hour"}, early_end="keep")
    assert np.array_equal(count(renamed, log).transitions, count(table, LOG).transitions)
    with pytest.raises(ValueError, match=r"no column 'user', 'step'; its columns are patient, hour, state"):
        count(renamed, LOG)
    with pytest.raises(ValueError, match="'stay'"):
        count(table, LogFormat(3, 2, 4, columns={"episode": "stay"}))


def test_names_come_from_a_declared_list():
    played = episodes()
    table = table_of(played)
    names, drugs = ("ward", "surgery", "intensive care"), ("none", 'o\'half "dose"')
    for name, words in (("state", names), ("next_state", names), ("action", drugs)):
        i = table.column_names.index(name)
        table = table.set_column(i, name, pa.array([words[v] for v in np.asarray(table.column(name))]))
    log = LogFormat(3, 2, 4, state_names=names, action_names=drugs, early_end="keep")
    assert np.array_equal(between_states(count(table, log))[0], Counts.of(played, LOG.spec).transitions)
    shorter = LogFormat(2, 2, 4, state_names=names[:2], action_names=drugs, early_end="keep")
    found = count(table, shorter)
    assert found.repairs.unreadable_rows > 0
    assert np.array_equal(found.transitions[:, :2, :, :2], Counts.of(played, LOG.spec).transitions[:, :2, :, :2])


def test_numbers_written_as_text_or_with_a_point():
    table = table_of(episodes())
    expected, _ = between_states(count(table, LOG))
    for kind in (pa.string(), pa.float64(), pa.int8()):
        other = table
        for name in ("step", "state", "action", "next_state"):
            other = other.set_column(other.column_names.index(name), name, other.column(name).cast(kind))
        assert np.array_equal(between_states(count(other, LOG))[0], expected)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("followed", [True, False])
def test_narrow_columns_hold_wide_problems_and_the_largest_number_is_only_unreadable(kind, pooled, followed):
    """Products of small columns leave their type; so does one more than the largest number."""
    top = 2 ** (kind.bit_width - str(kind).startswith("i")) - 1
    values = {"step": [0, 1, 0, top], "state": [100, 101, 99, 0], "action": [20, 21, 0, 0]}
    if followed:
        values["next_state"] = [101, 102, 7, top]
    columns = {"user": [0, 0, 1, 1], "reward": [1.0] * 4}
    columns |= {name: pa.array(column, kind) for name, column in values.items()}
    found = count(pa.table(columns), LogFormat(716, 25, 5, pooled, early_end="keep")).transitions
    assert found[0, 100, 20, 101] == 1
    assert found[0 if pooled else 1, 101, 21, 102] == followed  # else nobody knows where it led
    assert found.sum() == 3  # rows count whether or not their successor is known
    if not followed:
        assert found[..., 716].sum() == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "absent.parquet", "no file matches"),
        (lambda folder: _write(folder / "empty.csv", ""), "empty file"),
        (lambda folder: _write(folder / "text.parquet", "not a table"), "cannot be read"),
        (lambda folder: _write(folder / "log.xlsx", "x"), "of no known kind"),
        (lambda folder: written("duckdb", table_of(episodes()), folder), "name the table"),
        (lambda folder: 7, "cannot be a int"),
        (lambda folder: {"user": np.zeros((2, 2))}, "one value per row"),
    ],
)
def test_a_log_that_cannot_be_read_is_refused_in_words(make, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        count(make(tmp_path), LOG)


def _write(path, text):
    path.write_text(text)
    return path


def test_mixed_kinds_of_files_are_refused(tmp_path):
    table = table_of(episodes())
    paths = [written("csv", table, tmp_path), written("parquet", table, tmp_path)]
    with pytest.raises(ValueError, match="mixes"):
        count([str(path) for path in paths], LOG)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"state_names": ("a", "b")}, "expected 3"),
        ({"state_names": ("a", "b", "b")}, "2 different names"),
        ({"columns": {"patient": "x"}}, "roles of columns"),
        ({"early_end": "drop"}, "'absorb' or 'keep'"),
        ({"episodes_per_user": 0}, "at least 1"),
        ({"enforce": False}, "early_end='keep'"),
        ({"reward_range": (1.0, 0.0)}, "low < high"),
        ({"horizon": 0}, "at least 1"),
    ],
)
def test_a_description_that_means_nothing_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        LogFormat(**{"num_states": 3, "num_actions": 2, "horizon": 4, **settings})


def test_an_engine_that_has_a_log_is_used_as_it_is():
    engine = DuckDB(threads=1)
    engine.register("log", table_of(episodes()))
    assert open_log(engine) is engine
    assert count(engine, LOG).num_users == 30


def test_scratch_files_are_removed_at_the_end_even_where_nobody_looks_for_garbage():
    """They hold rows of people; an engine that something refers to in a circle is closed as well."""
    script = """
import atexit, gc
from discreet.people.engines import DuckDB
gc.disable()
atexit.register(gc.freeze)
engine = DuckDB()
engine.itself = engine
engine.connection.execute("SET memory_limit = '30MB'")
engine.connection.execute("CREATE TEMP TABLE t AS SELECT i, hash(i) AS a, hash(i + 1) AS b FROM range(3000000) t(i)")
(folder,) = engine.connection.execute("SELECT current_setting('temp_directory')").fetchone()
print(folder)
import os
print(len(os.listdir(folder)))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    folder, number = found.stdout.split()
    assert int(number) > 0
    assert not Path(folder).exists()
