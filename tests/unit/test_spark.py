"""Spark and DuckDB count alike: the same text, run by both."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import pyarrow.parquet
import pytest

from discreet.data.counting import count
from discreet.data.logs import LogFormat, open_log, table_of
from discreet.data.spark import open_files, session
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
    return pyarrow.concat_tables([table.filter(pyarrow.array(keep)), table.filter(pyarrow.array(again))])


if HAS_SPARK:

    @pytest.fixture(scope="module")
    def log(tmp_path_factory):
        path = tmp_path_factory.mktemp("log") / "log.parquet"
        pyarrow.parquet.write_table(messy_log(), path)
        return path

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("early_end", ["absorb", "keep"])
    @pytest.mark.parametrize("options", [{}, {"pooled": True, "first_visits": True}, {"episodes_per_user": 2}])
    def test_both_engines_give_identical_counts(log, early_end, options):
        described = LogFormat(4, 3, 5, early_end=early_end, **options)
        here = count(str(log), described)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            there = count(open_files([str(log)]), described)
        assert np.array_equal(here.transitions, there.transitions)
        assert np.array_equal(here.reward_sums, there.reward_sums)
        assert here.num_users == there.num_users
        assert here.repairs == there.repairs

    @pytest.mark.filterwarnings("ignore")
    def test_data_frames_and_names(log):
        frame = session().read.parquet(str(log))
        names = LogFormat(4, 3, 5, state_names=("0", "1", "2", "3"))
        found = count(frame, names)
        assert np.array_equal(found.transitions, count(str(log), LogFormat(4, 3, 5)).transitions)

else:

    def test_without_the_extra_it_says_what_to_install():
        with pytest.raises(ValueError, match=r"discreet\[spark\]"):
            open_files(["log.parquet"])

    def test_the_messy_log_is_messy():
        found = count(open_log(messy_log()), LogFormat(4, 3, 5, episodes_per_user=2)).repairs
        assert min(found.unreadable_rows, found.repeated_steps, found.cut_rows) > 0
