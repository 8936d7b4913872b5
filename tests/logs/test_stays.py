"""Rows of declared columns: who counts, in which order, where time comes in, and what a log may not be."""

from __future__ import annotations

import datetime
import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.offline.declaration import Declaration, Grid
from discreet.people.counting import LoggedData
from discreet.people.logs import open_log
from discreet.people.stays import ENDED, ON, UNKNOWN, DeclaredLog, read_stays
from oracles_offline import full_stays


def declaration(*states: str, **others) -> Declaration:
    horizon = others.pop("horizon", 3)
    return Declaration.from_options(states or ("x:0..10",), others.pop("actions", 2), horizon, **others)


def log(rows, names="user episode step x action reward"):
    columns = zip(*rows, strict=True)
    return {name: np.array(column) for name, column in zip(names.split(), columns, strict=True)}


ROWS = [
    # user, episode, step, x, action, reward
    (7, 1, 0, 1.0, 0, 0.5),
    (7, 1, 1, 2.0, 1, 2.0),  # clipped
    (7, 1, 2, 3.0, 0, -1.0),  # clipped
    (7, 0, 0, 4.0, 1, 0.25),  # an earlier episode of the same user, which ends early
    (3, 5, 1, 5.0, 1, 0.0),
    (3, 5, 0, 6.0, 0, 1.0),
    (3, 5, 2, math.nan, 0, 1.0),  # missing
    (9, 0, 0, 9.9, 1, 1.0),
    (9, 0, 0, 9.9, 1, 1.0),  # twice: the whole episode does not count
    (4, 0, 1, 1.0, 1, 1.0),  # step 0 is missing
]


def test_rows_that_count_come_in_order_of_user_episode_and_step():
    found = read_stays(log(ROWS), declaration())
    assert found.num_users == 4
    assert found.user.tolist() == [0, 0, 1]  # 3, then 7's first episode; 4 and 9 have nothing that counts
    assert found.offsets.tolist() == [0, 2, 3]
    assert found.step.tolist() == [0, 1, 0]
    assert found.action.tolist() == [0, 1, 1]
    assert found.reward.tolist() == [1.0, 0.0, 0.25]
    assert found.leads.tolist() == [ON, ENDED, ENDED]
    assert np.isnan(found.propensity).all()
    assert "4 users" in repr(found)
    assert (found.repairs.rows, found.repairs.repeated_steps) == (10, 1)


def test_two_episodes_of_a_user_and_a_bin_for_what_is_missing():
    found = read_stays(log(ROWS), declaration("x:0..10/missing", episodes_per_user=2, pooled=False))
    assert found.user.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert found.offsets.tolist() == [0, 3, 4, 7]
    assert found.reward.tolist() == pytest.approx([1.0, 0.0, 1.0, 0.25, 0.5, 1.0, 0.0])
    assert found.bins[2, 0] == declaration().states[0].num_fine
    assert found.leads.tolist() == [ON, ON, UNKNOWN, ENDED, ON, ON, UNKNOWN]
    assert found.episodes_per_user == 2


def test_rewards_are_scaled_to_their_declared_range_and_ends_are_those_of_the_log():
    rows = [(0, 0, 3.0, 0, -1.0, False), (0, 1, 3.0, 0, 1.0, True), (1, 0, 3.0, 1, 0.0, False)]
    source = log(rows, "user step x action reward terminated")
    found = read_stays(source, declaration(reward_range=(-1.0, 1.0), early_end="keep"))
    assert found.reward.tolist() == pytest.approx([0.0, 1.0, 0.5])
    assert found.leads.tolist() == [ON, ENDED, UNKNOWN]


@pytest.mark.parametrize("text", [False, True])
def test_a_propensity_that_is_none_is_null_for_its_row_and_nothing_else(text):
    source = log([(u, 0, 1.0, 0, 0.0) for u in range(7)], "user step x action reward")
    said = [0.5, 0.0, 1.0, 1.5, -0.1, math.nan, 1e-9]
    source["p"] = [str(p) for p in said] if text else np.array(said)
    found = read_stays(source, declaration(propensity="p"))
    assert found.user.tolist() == list(range(7))
    np.testing.assert_array_equal(found.propensity, [0.5, math.nan, 1.0, math.nan, math.nan, math.nan, 1e-9])


def test_a_grid_of_the_log_counts_what_the_stays_hold():
    rng = np.random.default_rng(1)
    n, H = 300, 4
    source = {
        **full_stays(n, H),
        "x": rng.normal(5, 4, n * H),
        "y": np.where(rng.random(n * H) < 0.2, np.nan, rng.exponential(3, n * H)),
        "ward": rng.choice(["A", "B", "Z"], n * H).tolist(),
        "action": rng.integers(0, 3, n * H),
        "reward": rng.random(n * H),
    }
    what = declaration("x:0..10", "y:0..20/log,missing", "ward:{A,B}/missing", actions=3, horizon=H)
    for cuts in (((4, 11), (7, 32), (1,)), ((), (0,), ()), ((), (), ())):
        y = what.states[1].num_fine - 1
        grid = Grid(what, tuple(tuple(min(cut, y) for cut in column) for column in cuts))
        counts = LoggedData(*DeclaredLog(source, what).gridded(grid)).counts()
        stays = read_stays(source, what)
        states = stays.states(grid)
        S, A = grid.num_states, 3
        expected = np.bincount(states * A + stays.action, minlength=S * A).reshape(S, A)
        np.testing.assert_array_equal(counts.transitions.sum(axis=(0, 3))[:S], expected)
        assert counts.num_users == stays.num_users == n


# Time ---------------------------------------------------------------------------------------------------------------

START = datetime.datetime(2020, 1, 1, 6)


def moments(hours):
    return [START + datetime.timedelta(hours=h) for h in hours]


TIMED = declaration("x:0..10", columns={"time": "at"}, interval="4h", reward_range=(0.0, 10.0))


@pytest.mark.parametrize("form", ["timestamp", "zoned", "date text", "seconds", "text seconds"])
def test_what_happens_in_an_interval_is_one_step_with_all_it_paid(form):
    """Intervals begin with a person's own first row; rewards add up, so that no death in the last hour is lost."""
    hours = [0, 3.9, 4, 11, 11.5, 2, 6]
    rows = [(0, 1.0, 0, 1.0), (0, 9.0, 1, 2.0), (0, 2.0, 1, 3.0), (0, 3.0, 0, 0.0), (0, 9.0, 1, 5.0)]
    rows += [(1, 4.0, 1, 1.0), (1, 5.0, 0, 1.0)]
    source = {name: pa.array(column) for name, column in log(rows, "user x action reward").items()}
    at = moments(hours)
    source["at"] = {
        "timestamp": lambda: pa.array(at),
        "zoned": lambda: pa.array(at, pa.timestamp("us", tz="UTC")),
        "date text": lambda: pa.array([moment.isoformat() for moment in at]),
        "seconds": lambda: pa.array([h * 3600.0 for h in hours]),
        "text seconds": lambda: pa.array([str(h * 3600.0) for h in hours]),
    }[form]()
    found = read_stays(pa.table(source), TIMED)
    assert found.user.tolist() == [0, 0, 0, 1, 1]
    assert found.step.tolist() == [0, 1, 2, 0, 1]
    assert found.action.tolist() == [0, 1, 0, 1, 0]
    assert (found.reward * 10.0).tolist() == pytest.approx([3.0, 3.0, 5.0, 1.0, 1.0], abs=1e-4)
    assert found.bins[:, 0].tolist() == [TIMED.states[0].bin(x) for x in (1.0, 2.0, 3.0, 4.0, 5.0)]


def test_without_an_interval_steps_are_the_order_of_time_and_ties_are_repeats():
    rows = [(0, 5.0, 1.0, 0, 0.0), (0, 2.0, 2.0, 1, 0.0), (1, 1.0, 3.0, 0, 0.0), (1, 1.0, 4.0, 0, 0.0)]
    found = read_stays(log(rows, "user t x action reward"), declaration("x:0..10", time="t"))
    assert (found.user.tolist(), found.step.tolist(), found.action.tolist()) == ([0, 0], [0, 1], [1, 0])
    assert found.repairs.repeated_steps == 1


def test_an_end_within_an_interval_is_an_end_and_a_row_without_a_moment_is_a_missing_step():
    source = {
        "user": [0, 0, 0, 1, 1, 2, 1],
        "at": ["2020-01-01", "2020-01-01 01:00", "2020-01-01T09:00", "soon", "2020-01-01", "2020-13-45", ""],
        "x": ["1"] * 7,
        "action": ["0"] * 7,
        "reward": ["1", "", "nan", "1", "1", "1", "1"],
        "terminated": ["false", "true", "0", "0", "0", "0", "0"],
    }
    found = read_stays(source, TIMED)
    assert found.user.tolist() == [0, 1]
    assert found.leads.tolist() == [ENDED, ENDED]
    assert (found.reward * 10.0).tolist() == pytest.approx([1.0, 1.0], abs=1e-4)
    assert found.num_users == 3
    assert (found.repairs.rows, found.repairs.columns["at (as steps)"]) == (
        6,
        {"missing": 3},
    )  # two of seven are one step


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("typed", [True, False])
def test_a_flag_that_is_neither_true_nor_false_is_a_missing_step_also_of_an_interval(timed, typed):
    """Somebody who wrote "ja" has not been taken for alive; a true one in the same interval counts all the same."""
    rows = [("a", 0, 0, "nein"), ("b", 0, 0, "0"), ("b", 9, 1, "ja"), ("c", 0, 0, "false"), ("c", 9, 1, "1")]
    rows += [("d", 0, 0, "no"), ("d", 1, 1, "true")] if timed else []
    source = log([(u, h, s, 1.0, 0, 0.5, e) for u, h, s, e in rows], "user hour step x action reward terminated")
    source["at"] = 3600.0 * source.pop("hour").astype(float)
    source = pa.table(source) if typed else {name: list(column) for name, column in source.items()}
    found = read_stays(source, TIMED if timed else declaration(reward_range=(0.0, 10.0)))
    kept = [(0, 0), (1, 0), (2, 0)] if timed else [(0, 0), (1, 0), (1, 1)]
    assert list(zip(found.user.tolist(), found.step.tolist(), strict=True)) == kept
    assert found.repairs.columns["terminated"] == {"neither true nor false, neither 1 nor 0": 2}
    assert found.leads.tolist()[-1] == ENDED


def test_rows_of_nobody_are_not_one_step():
    rows = [("", 0.0, 1.0, 0, 0.0), ("", 10.0, 1.0, 0, 0.0), ("a", 5.0, 1.0, 0, 0.0), ("a", 9.0, 1.0, 0, 0.0)]
    found = read_stays(log(rows, "user t x action reward"), declaration("x:0..10", time="t", interval="1min"))
    assert (found.repairs.rows, found.repairs.nobody_rows, len(found)) == (3, 2, 1)


# One person's cells -------------------------------------------------------------------------------------------------

HEADER = "user,episode,step,at,x,ward,action,reward,p,terminated\n"
OTHERS = "".join(
    f"u{u},{e},{h},2020-01-0{1 + h} 0{u % 9}:00,{(u * 7 + h) % 11},{'AB'[u % 2]},{(u + h) % 2},{h / 3},0.5,\n"
    for u in range(12)
    for e in range(2)
    for h in range(3)
)
ANYTHING = st.one_of(
    st.sampled_from(
        ["", "nan", "1e999", "-1e308", "1e308", "9" * 400, "x", "'", '"', "2020-01-01", "true", "-0", "0"]
    ),
    st.text(st.characters(exclude_characters=",\n\r\0", exclude_categories=["Cs"]), max_size=5),
    st.floats().map(repr),
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(ANYTHING, min_size=9, max_size=9), max_size=6),
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=2),
    st.booleans(),
)
def test_nothing_that_one_person_writes_changes_how_others_are_read(tmp_path_factory, cells, lines, timed):
    """Whatever stands in her cells, and however malformed her lines are."""
    more = {"time": "at", "interval": "1d"} if timed else {}
    states = ("x:0..10", "ward:{A,B}/missing")
    what = declaration(*states, propensity="p", episodes_per_user=2, reward_range=(0.0, 2.0), **more)
    folder = tmp_path_factory.mktemp("log")
    plain, touched = folder / "plain.csv", folder / "touched.csv"
    plain.write_text(HEADER + OTHERS)
    own = "".join(",".join(["zz", *row]) + "\n" for row in cells).encode()
    touched.write_bytes(HEADER.encode() + own + b"".join(line + b"\n" for line in lines) + OTHERS.encode())
    expected, found = (read_stays(str(path), what, num_users=40) for path in (plain, touched))
    theirs = found.user < 12
    for name in ("user", "step", "action", "reward", "propensity", "bins", "leads"):
        np.testing.assert_array_equal(getattr(found, name)[theirs], getattr(expected, name), err_msg=name)
    assert set(expected.user) == set(range(12))


def test_text_that_is_not_utf8_in_parquet_is_missing_for_its_row(tmp_path):
    names = pa.array([b"A", b"\xff\xfe", b"B"], pa.binary())
    table = pa.table(
        {
            "user": [0, 1, 2],
            "step": [0, 0, 0],
            "ward": pa.Array.from_buffers(pa.string(), 3, names.buffers()),
            "action": [0, 1, 0],
            "reward": [0.0, 0.0, 0.0],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    what = declaration("ward:{A,B}/missing")
    found = read_stays(str(tmp_path / "log.parquet"), what)
    assert found.bins[:, 0].tolist() == [0, 2, 1]
    grid = Grid(what, ((0, 1),))
    counts = LoggedData(*DeclaredLog(str(tmp_path / "log.parquet"), what).gridded(grid)).counts()
    assert counts.transitions.sum(axis=(0, 2, 3))[:3].tolist() == [1, 1, 1]


def test_columns_may_be_called_as_they_like():
    """Names that the reader uses itself, quotes, and roles that share a column."""
    names = ["person", "said", "place", 'mo"ment', "role_user", "state"]
    source = dict(zip(names, ([0, 1], [0, 0], [1.0, 2.0], [0, 1], [0.0, 1.0], [3.0, 4.0]), strict=True))
    roles = {"user": "person", "episode": "person", "step": "said", "action": 'mo"ment', "reward": "role_user"}
    what = declaration("place:0..10", "state:0..10", "said:0..3", columns=roles)
    found = read_stays({name: np.array(values) for name, values in source.items()}, what)
    assert found.user.tolist() == [0, 1]
    assert found.action.tolist() == [0, 1]
    assert found.reward.tolist() == [0.0, 1.0]
    timed = declaration("place:0..10", columns={**{k: v for k, v in roles.items() if k != "step"}, "time": "state"})
    assert read_stays({name: np.array(values) for name, values in source.items()}, timed).step.tolist() == [0, 0]


def test_a_column_of_next_states_changes_nothing_and_is_refused_as_a_role():
    """With declared columns a step leads to the next row of its stay, whatever such a column says."""
    source = log([(0, 0, 1.0, 0, 0.0), (0, 1, 2.0, 1, 1.0), (1, 0, 3.0, 1, 0.5)], "user step x action reward")
    plain, more = (
        read_stays(each, declaration()) for each in (source, {**source, "next_state": np.array([5, -1, 9])})
    )
    for name in ("user", "step", "action", "reward", "bins", "leads"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(more, name))
    with pytest.raises(
        ValueError, match="is for numbered states; with declared columns a step leads to the next row"
    ):
        declaration(columns={"next_state": "next_state"})


def test_rows_that_do_not_fit_are_refused_in_bytes_before_they_are_fetched(monkeypatch):
    table = {"user": np.arange(1_000), **{name: np.zeros(1_000) for name in ("step", "x", "action", "reward")}}
    assert len(read_stays(table, declaration()).step) == 1_000
    monkeypatch.setattr("discreet.runs.memory.available", lambda: 2e5)
    with pytest.raises(
        ValueError, match=r"^1,000 rows, which are held at once, take about 0.0 GB, and 0.0 GB are free;"
    ):
        read_stays(table, declaration())


# What contradicts the log -------------------------------------------------------------------------------------------

GOOD = {"user": [0], "step": [0], "x": [1.0], "ward": ["A"], "action": [0], "reward": [0.0]}


@pytest.mark.parametrize(
    ("states", "more", "changed", "message"),
    [
        (("z:0..1",), {}, {}, "no column 'z', which is declared; its columns are user, step"),
        (("x:0..1",), {"propensity": "p"}, {}, "no column 'p', which is declared"),
        (("x:0..1",), {"time": "t"}, {}, "no column 't'"),
        (("x:0..1",), {"columns": {"episode": "stay"}}, {}, "no column 'stay'"),
        (("x:0..1",), {}, {"step": None}, "no column 'step'"),
        (("ward:0..1",), {}, {}, "column 'ward' holds text and is declared as a range; expected numbers or names"),
        (("x:{A,B}",), {}, {}, "column 'x' holds numbers with fractions and is declared by names"),
        (("day:0..1",), {}, {"day": [datetime.date(2020, 1, 1)]}, "'day' holds neither numbers, bools nor text"),
        (("day:{A}",), {}, {"day": [datetime.date(2020, 1, 1)]}, "'day' holds neither numbers, bools nor text"),
        (("x:0..1",), {"time": "list"}, {"list": [[1]]}, "'list' holds neither timestamps, numbers nor text"),
        (("x:0..1",), {}, {"reward": [datetime.date(2020, 1, 1)]}, "expected numbers for reward"),
    ],
)
def test_a_declaration_that_contradicts_the_schema_is_refused(states, more, changed, message):
    table = {name: values for name, values in {**GOOD, **changed}.items() if values is not None}
    with pytest.raises(ValueError, match=message) as found:
        read_stays(pa.table(table), declaration(*states, **more))
    assert "\n" not in str(found.value)


def test_a_first_line_that_is_a_row_is_not_quoted(tmp_path):
    (tmp_path / "log.csv").write_text("secret,0,1.5,A,7,1\n")
    with pytest.raises(ValueError, match="its first line must name the columns") as found:
        read_stays(str(tmp_path / "log.csv"), declaration())
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow"])
def test_a_column_that_is_missing_in_half_of_the_files_is_refused_unless_that_is_a_bin(kind, tmp_path):
    whole = pa.table({**GOOD, "user": [1]})
    for name, table in (("a", pa.table(GOOD).drop_columns(["x"])), ("b", whole)):
        if kind == "csv":
            pyarrow.csv.write_csv(table, tmp_path / f"{name}.csv")
        elif kind == "arrow":
            pyarrow.feather.write_feather(table, tmp_path / f"{name}.arrow")
        else:
            pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    files = sorted(str(path) for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"column 'x' is in 1 of 2 files and not in .*a\."):
        read_stays(files, declaration())
    found = read_stays(files, declaration("x:0..10/missing"))
    assert sorted(found.bins[:, 0].tolist()) == [declaration().states[0].bin(1.0), declaration().states[0].num_fine]
    with pytest.raises(ValueError, match="column 'x' is in 1 of 2 files"):
        read_stays(files, declaration("ward:{A}", columns={"reward": "x"}))


def test_an_engine_is_no_source_of_columns():
    with pytest.raises(ValueError, match="give its source, not an engine"):
        DeclaredLog(open_log(pa.table(GOOD)), declaration())
