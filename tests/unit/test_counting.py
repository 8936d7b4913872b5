"""Counting within bounds: the query against loops over people, on logs with everything that can be wrong."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles_offline as oracle
from discreet.data.counting import MARKS, LoggedData, Repairs, StepCounts, count
from discreet.data.logs import LogFormat, table_of
from discreet.episodes import Episodes

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("episode", pa.int64()),
        ("step", pa.int64()),
        ("state", pa.int64()),
        ("action", pa.int64()),
        ("reward", pa.float64()),
        ("next_state", pa.int64()),
    ]
)


def rows_of():
    return st.fixed_dictionaries(
        {
            "user": st.sampled_from(["ann", "bob", "cy"]),
            "episode": st.integers(0, 2),
            "step": st.sampled_from([-1, 0, 0, 1, 1, 2, 3, None]),
            "state": st.sampled_from([0, 1, 2, 3, None]),
            "action": st.sampled_from([0, 1, 1, -1]),
            "reward": st.sampled_from([0.0, 0.25, 1.0, 7.0, -3.0, float("nan"), float("inf"), None]),
            "next_state": st.sampled_from([0, 1, 2, 5, None]),
        }
    )


@given(
    rows=st.lists(rows_of(), min_size=1, max_size=25),
    pooled=st.booleans(),
    early_end=st.sampled_from(["absorb", "keep"]),
    bound=st.integers(1, 3),
)
def test_the_query_counts_what_the_rules_say(rows, pooled, early_end, bound):
    log = LogFormat(3, 2, 3, pooled, early_end=early_end, episodes_per_user=bound, reward_range=(-1.0, 1.0))
    T, R = oracle.counted(rows, log)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    if not T.sum():
        with pytest.raises(ValueError, match="no row of the log can be counted"):
            count(table, log)
        return
    found = count(table, log)
    assert np.array_equal(found.transitions, T)
    assert np.array_equal(found.reward_sums, R)
    assert found.num_users == len({row["user"] for row in rows})
    repairs = found.repairs
    assert repairs.rows == len(rows) == int(T.sum()) + repairs.unreadable_rows + repairs.cut_rows


@given(
    rows=st.lists(rows_of(), min_size=1, max_size=20),
    other=st.lists(rows_of(), max_size=8),
    pooled=st.booleans(),
    bound=st.integers(1, 2),
)
def test_one_user_moves_the_counts_by_her_bound_only(rows, other, pooled, bound):
    """The sensitivity that is charged, against whatever rows one person may have."""
    log = LogFormat(3, 2, 3, pooled, episodes_per_user=bound)
    there = [row for row in rows if row["user"] != "ann"]
    replaced = [{**row, "user": "ann"} for row in other]
    tables = [oracle.counted(part, log)[0] for part in (rows, there + replaced)]
    assert np.abs(tables[0] - tables[1]).sum() <= 2 * 3 * bound
    for part, expected in zip((rows, there + replaced), tables, strict=True):
        if expected.sum():
            found = count(pa.Table.from_pylist(part, schema=SCHEMA), log).transitions
            assert np.array_equal(found, expected)


def test_trajectories_hold_exactly_the_rows_that_count():
    rng = np.random.default_rng(3)
    played = Episodes(rng.integers(3, size=(40, 5)), rng.integers(2, size=(40, 4)), rng.random((40, 4)))
    table = table_of(played)
    keep = rng.random(160) < 0.8
    users = np.asarray(table.column("user")) // 2
    table = table.append_column("episode", pa.array(np.asarray(table.column("user")) % 2))
    table = table.set_column(0, "user", pa.array(users)).filter(pa.array(keep))
    table = table.take(pa.array(rng.permutation(table.num_rows)))
    log = LogFormat(3, 2, 4, episodes_per_user=2)
    data = LoggedData(table, log)
    rows, counts = data.trajectories(), data.counts()
    T = np.zeros_like(counts.transitions)
    np.add.at(T, (rows.step, rows.state, rows.action, rows.next_state), 1)
    assert np.array_equal(T, counts.transitions)
    assert np.array_equal(rows.step[rows.starts], np.zeros(len(rows.starts)))
    assert rows.repairs == counts.repairs
    lengths = np.diff(np.append(rows.starts, rows.step.size))
    assert np.array_equal(np.concatenate([np.arange(n) for n in lengths]), rows.step)


def test_long_horizons_use_several_marks():
    H = 2 * MARKS + 7
    steps = [h for h in range(H) if h != MARKS + 20]
    table = pa.table(
        {
            "user": [0] * len(steps) + [1] * H,
            "step": steps + list(range(H)),
            "state": [0] * (len(steps) + H),
            "action": [0] * (len(steps) + H),
            "reward": [0.0] * (len(steps) + H),
            "next_state": [0] * (len(steps) + H),
        }
    )
    found = count(table, LogFormat(1, 1, H))
    cut = MARKS + 20
    assert found.transitions[: cut - 1, 0, 0, 0].tolist() == [2] * (cut - 1)
    assert found.transitions[cut - 1, 0, 0].tolist() == [1, 1]
    assert found.transitions[cut:, 0, 0, 0].tolist() == [1] * (H - cut)
    assert found.repairs.cut_rows == len(steps) - cut
    again = pa.concat_tables([table, table.slice(len(steps), 1)])  # user 1 has step 0 twice
    assert count(again, LogFormat(1, 1, H)).repairs.repeated_steps == 1


def test_without_a_column_for_it_the_successor_is_the_next_state():
    rng = np.random.default_rng(4)
    played = Episodes(rng.integers(3, size=(20, 5)), rng.integers(2, size=(20, 4)), rng.random((20, 4)))
    table = table_of(played).drop(["next_state"])
    staged = LogFormat(3, 2, 4, early_end="keep")
    found, full = count(table, staged).transitions, StepCounts.of(played, staged.spec).transitions
    assert np.array_equal(found[:3], full[:3])
    assert np.array_equal(found[3].sum(axis=-1), full[3].sum(axis=-1))
    pooled = count(table, LogFormat(3, 2, 4, pooled=True)).transitions
    assert pooled[..., :3].sum() == 60  # nobody knows where the last step led, and nobody left
    assert pooled[..., 3].sum() == 0
    short = table.filter(pa.array(np.asarray(table.column("step")) < 2))
    assert count(short, LogFormat(3, 2, 4, pooled=True)).transitions[..., 3].sum() == 20


def test_first_visits_count_once_per_episode_and_cell():
    table = pa.table(
        {
            "user": [0, 0, 0, 0],
            "step": [0, 1, 2, 3],
            "state": [0, 1, 0, 1],
            "action": [0, 0, 0, 1],
            "reward": [1.0, 0.0, 0.0, 1.0],
            "next_state": [1, 0, 1, 1],
        }
    )
    found = count(table, LogFormat(2, 2, 4, pooled=True, early_end="keep", first_visits=True))
    assert found.first_visits
    assert found.transitions[0, :, :, :].tolist() == [[[0, 1], [0, 0]], [[1, 0], [0, 1]]]
    assert found.reward_sums[0, 0, 0, 1] == 2**20  # the first visit's reward, not the second's


def test_a_user_with_a_million_rows_counts_like_any_other():
    n = 1_000_000
    table = pa.table(
        {
            "user": pa.array(np.r_[np.zeros(n, dtype=np.int64), [1, 1]]),
            "episode": pa.array(np.r_[np.arange(n) // 2, [0, 0]]),
            "step": pa.array(np.r_[np.arange(n) % 2, [0, 1]]),
            "state": pa.array(np.zeros(n + 2, dtype=np.int64)),
            "action": pa.array(np.zeros(n + 2, dtype=np.int64)),
            "reward": pa.array(np.ones(n + 2)),
            "next_state": pa.array(np.zeros(n + 2, dtype=np.int64)),
        }
    )
    found = count(table, LogFormat(1, 1, 2, episodes_per_user=3))
    assert found.transitions[:, 0, 0, 0].tolist() == [4, 4]
    assert found.num_episodes == 6


def test_without_enforcement_rows_count_as_they_are():
    rng = np.random.default_rng(5)
    played = Episodes(rng.integers(3, size=(20, 5)), rng.integers(2, size=(20, 4)), rng.random((20, 4)))
    table = table_of(played)
    doubled = pa.concat_tables([table, table])
    log = LogFormat(3, 2, 4, early_end="keep", enforce=False)
    assert np.array_equal(count(doubled, log).transitions, 2 * count(table, log).transitions)
    with pytest.raises(ValueError, match="no row of the log can be counted"):
        count(doubled, LogFormat(3, 2, 4, early_end="keep"))  # every step occurs twice
    assert count(doubled, LogFormat(3, 2, 4, early_end="keep", enforce=False, num_users=55)).num_users == 55


def test_more_users_than_declared_are_refused():
    table = table_of(Episodes(np.zeros((4, 2), int), np.zeros((4, 1), int), np.zeros((4, 1))))
    with pytest.raises(ValueError, match="4 users, more than the 3 declared"):
        count(table, LogFormat(1, 1, 1, num_users=3))
    assert count(table, LogFormat(1, 1, 1, num_users=9)).num_users == 9


def test_repairs_are_told_in_sentences():
    lines = Repairs(100, 3, 2, 1).sentences()
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert Repairs(100).sentences() == ()
    assert "7" not in repr(StepCounts(np.full((1, 1, 1, 1), 777), np.zeros((1, 1, 1, 1)), 5))
