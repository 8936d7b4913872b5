"""Counting within bounds: the query against loops over people, on logs with everything that can be wrong."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles_offline as oracle
from discreet.people.bounding import MARKS
from discreet.people.counting import LoggedData, Repairs, StepCounts, count
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat, table_of
from oracles_offline import Trajectories

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("episode", pa.int64()),
        ("step", pa.int64()),
        ("state", pa.int64()),
        ("action", pa.int64()),
        ("reward", pa.float64()),
        ("next_state", pa.int64()),
        ("terminated", pa.bool_()),
        ("truncated", pa.bool_()),
    ]
)
PLAIN = pa.schema(list(SCHEMA)[:-2])


def rows_of():
    return st.fixed_dictionaries(
        {
            "user": st.sampled_from(["ann", "bob", "cy"]),
            "episode": st.sampled_from([0, 1, 2, None]),
            "step": st.sampled_from([-1, 0, 0, 1, 1, 2, 3, None]),
            "state": st.sampled_from([0, 1, 2, 3, None]),
            "action": st.sampled_from([0, 1, 1, -1]),
            "reward": st.sampled_from([0.0, 0.25, 1.0, 7.0, -3.0, float("nan"), float("inf"), None]),
            "next_state": st.sampled_from([0, 1, 2, 5, None]),
            "terminated": st.sampled_from([False, False, False, True, None]),
            "truncated": st.sampled_from([False, False, False, True, None]),
        }
    )


def table_with(rows, columns=SCHEMA.names):
    """The rows as a log that has these columns."""
    return pa.Table.from_pylist(rows, schema=SCHEMA).select(list(columns))


def counted(rows, log):
    """The oracle; what has no episode's number is in no episode."""
    return oracle.counted([dict(row) for row in rows if row["episode"] is not None], log)


#: Columns of a log beside user, episode, step, state, action and reward.
OTHERS = st.lists(st.sampled_from(["next_state", "terminated", "truncated"]), unique=True)


@given(
    rows=st.lists(rows_of(), min_size=1, max_size=25),
    pooled=st.booleans(),
    early_end=st.sampled_from(["absorb", "keep"]),
    bound=st.integers(1, 3),
    others=OTHERS,
)
def test_the_query_counts_what_the_rules_say(rows, pooled, early_end, bound, others):
    log = LogFormat(3, 2, 3, pooled, early_end=early_end, episodes_per_user=bound, reward_range=(-1.0, 1.0))
    if "next_state" not in others:  # of two rows of one step either may give its state to the step before
        rows = list({(row["user"], row["episode"], row["step"]): row for row in rows}.values())
    table = table_with(rows, [*SCHEMA.names[:6], *others])
    log = log.read_from(table.column_names)
    T, R = counted(rows, log)
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
    others=OTHERS,
    early_end=st.sampled_from(["absorb", "keep"]),
)
def test_one_user_moves_the_counts_by_her_bound_only(rows, other, pooled, bound, others, early_end):
    """The sensitivity that is charged, against whatever rows one person may have, endings and cuts included."""
    columns = [*SCHEMA.names[:6], *others]
    log = LogFormat(3, 2, 3, pooled, episodes_per_user=bound, early_end=early_end).read_from(columns)
    if "next_state" not in others:
        rows, other = (
            list({(r["user"], r["episode"], r["step"]): r for r in part}.values()) for part in (rows, other)
        )
        other = list({(row["episode"], row["step"]): row for row in other}.values())
    there = [row for row in rows if row["user"] != "ann"]
    replaced = [{**row, "user": "ann"} for row in other]
    tables = [counted(part, log)[0] for part in (rows, there + replaced)]
    assert np.abs(tables[0] - tables[1]).sum() <= 2 * 3 * bound
    for part, expected in zip((rows, there + replaced), tables, strict=True):
        assert np.array_equal(count(table_with(part, columns), log).transitions, expected)


def clean_log(horizon=3):
    """Rows of four users with episodes 0, 1 and 2, nothing wrong with any."""
    rng = np.random.default_rng(6)
    keys = [(u, e, h) for u in ("ann", "bob", "cy", "di") for e in range(3) for h in range(horizon)]
    values = rng.integers((3, 2, 5, 3), size=(len(keys), 4)).tolist()
    names = ("state", "action", "reward", "next_state")
    return [
        {"user": u, "episode": e, "step": h, **dict(zip(names, v, strict=True)), "reward": v[2] / 4}
        for (u, e, h), v in zip(keys, values, strict=True)
    ]


def place(rows, episode, step):
    """Where a row of the user "bob" is."""
    return next(i for i, r in enumerate(rows) if (r["user"], r["episode"], r["step"]) == ("bob", episode, step))


def changed(episode, step, /, **values):
    return lambda rows: rows[place(rows, episode, step)].update(values)


def without(*episodes):
    def cut(rows):
        rows[:] = [row for row in rows if row["user"] != "bob" or row["episode"] not in episodes]

    return cut


def renumbered(rows):
    for row in rows:
        if row["user"] == "bob":
            row["episode"] += 1


#: What is done to the clean log, and whether a number still says which episodes count, in both ways of ending early.
DEFECTS = {
    "nothing": (lambda rows: None, True, True),
    "a repeated step": (lambda rows: rows.append(dict(rows[place(rows, 1, 2)])), False, False),
    "a repeated step beyond the bound": (lambda rows: rows.append(dict(rows[place(rows, 2, 0)])), True, True),
    "a step missing": (lambda rows: rows.pop(place(rows, 0, 1)), False, True),
    "the last step missing": (lambda rows: rows.pop(place(rows, 1, 2)), False, True),
    "a step missing beyond the bound": (lambda rows: rows.pop(place(rows, 2, 1)), True, True),
    "a reward that is no number": (changed(0, 2, reward=float("nan")), False, True),
    "no reward": (changed(0, 2, reward=None), False, True),
    "an infinite reward": (changed(0, 2, reward=float("inf")), True, True),
    "an unknown state": (changed(1, 0, state=3), False, True),
    "no successor": (changed(1, 1, next_state=None), False, True),
    "a row without an episode": (changed(1, 1, episode=None), False, True),
    "an episode that cannot be read": (
        lambda rows: [changed(0, h, action=2)(rows) for h in range(3)],
        False,
        False,
    ),
    "one episode fewer": (without(1, 2), True, True),
    "one number skipped": (without(1), False, False),
    "other numbers": (renumbered, False, False),
}


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("early_end", ["absorb", "keep"])
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_way_without_looking_up_episodes_is_taken_only_where_it_counts_alike(defect, early_end, pooled, tmp_path):
    """Files, because what these say about their values lets the engine leave out checks."""
    do, *short = DEFECTS[defect]
    rows = clean_log()
    do(rows)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema=PLAIN), tmp_path / "log.parquet")
    log = LogFormat(3, 2, 3, pooled, early_end=early_end, episodes_per_user=2)
    data = LoggedData(str(tmp_path / "log.parquet"), log)
    T, R = counted(rows, data.log)
    found = data.counts()
    assert np.array_equal(found.transitions, T)
    assert np.array_equal(found.reward_sums, R)
    assert (data._shortcut is not None) == short[early_end == "keep"]
    rows = data.rows()
    rows.gather()
    assert sum(rows.of(h).numbers.sum() for h in range(3)) == T.sum()


def test_one_user_with_one_episode_more_loses_it():
    rows = [row for row in clean_log() if row["episode"] < 2 or row["user"] == "bob"]
    log = LogFormat(3, 2, 3, episodes_per_user=2)
    found = count(pa.Table.from_pylist(rows, schema=PLAIN), log)
    assert np.array_equal(found.transitions, counted(rows, log)[0])
    assert found.repairs.cut_rows == 3
    text = pa.Table.from_pylist([{**row, "episode": f"no. {row['episode']}"} for row in rows])  # no number to use
    assert LoggedData(text, log)._shortcut is None
    assert np.array_equal(count(text, log).transitions, found.transitions)
    whole = LogFormat(3, 2, 3, episodes_per_user=3)
    assert LoggedData(text, whole)._shortcut == "TRUE"
    assert np.array_equal(count(text, whole).transitions, counted(rows, whole)[0])


@pytest.mark.parametrize("horizon", [30, 31, MARKS, MARKS + 1])
def test_marks_reach_to_the_last_step(horizon):
    """Lengths at which marks take the next wider integer or one more."""
    log = LogFormat(3, 2, horizon, episodes_per_user=3)
    rows = clean_log(horizon)
    rows.append(dict(rows[place(rows, 0, horizon - 1)]))  # does not count
    rows.pop(place(rows, 1, horizon - 1))  # ends one step early
    rows.pop(place(rows, 2, 0))  # does not begin
    found = count(pa.Table.from_pylist(rows, schema=PLAIN), log)
    T, R = counted(rows, log)
    assert np.array_equal(found.transitions, T)
    assert np.array_equal(found.reward_sums, R)
    assert found.repairs == Repairs(12 * horizon - 1, 0, 1, 2 * horizon)


def patchy_log(n: int = 40, seed: int = 3) -> pa.Table:
    """Two episodes per user, a fifth of the rows missing, in no order."""
    rng = np.random.default_rng(seed)
    played = Episodes(rng.integers(3, size=(n, 5)), rng.integers(2, size=(n, 4)), rng.random((n, 4)))
    table = table_of(played)
    keep = rng.random(4 * n) < 0.8
    users = np.asarray(table.column("user"))
    table = table.append_column("episode", pa.array(users % 2))
    table = table.set_column(0, "user", pa.array(users // 2)).filter(pa.array(keep))
    return table.take(pa.array(rng.permutation(table.num_rows)))


@pytest.mark.parametrize("split", [False, True])
def test_rows_of_all_steps_are_exactly_those_that_count(split):
    log = LogFormat(3, 2, 4, episodes_per_user=2)
    data = LoggedData(patchy_log(), log)
    counts, rows = data.counts(), data.rows()
    coins = np.random.default_rng(0).random(20) < 0.5
    rows.gather(coins if split else None)
    T, R = np.zeros_like(counts.transitions), np.zeros_like(counts.reward_sums)
    for h in range(4):
        for side in (True, False) if split else (None,):
            cells, following, units, numbers = rows.of(h, side)
            np.add.at(T, (h, cells // 2, cells % 2, following), numbers)
            np.add.at(R, (h, cells // 2, cells % 2, following), units * numbers)
    assert np.array_equal(T, counts.transitions)
    assert np.array_equal(R, counts.reward_sums)
    assert rows.repairs == counts.repairs


def in_memory(table: pa.Table, log: LogFormat) -> Trajectories:
    """The rows that count, by looking at one episode after the other; absorb, and whole numbers everywhere."""
    episodes: dict = {}
    for row in table.to_pylist():
        episodes.setdefault((row["user"], row["episode"]), {})[row["step"]] = row
    rows = []
    for (user, episode), steps in sorted(episodes.items()):
        length = next(h for h in range(log.horizon + 1) if h not in steps)
        for h in range(length):
            after = steps[h]["next_state"] if h + 1 < length or length == log.horizon else log.num_states
            units = math.floor(steps[h]["reward"] * log.spec.reward_units + 0.5)
            rows.append((user, h, steps[h]["state"], steps[h]["action"], after, units, episode))
    columns = np.array(rows, dtype=np.int64).T
    places = {
        (user, episode): sum(other < episode for who, other in episodes if who == user) for user, episode in episodes
    }
    return Trajectories(log, *columns[:6], len({user for user, _ in episodes}), columns[6], places)


def test_a_coin_belongs_to_a_user_and_no_one_elses_rows_change_it():
    """Of the same key: chosen rows are those of an oracle, whatever the order of rows and users."""
    table, log = patchy_log(200), LogFormat(3, 2, 4, episodes_per_user=2)
    weights = np.random.default_rng(1).random(24) * 2
    data, oracle = LoggedData(table, log), in_memory(table, log)
    found = data.one_step()
    for key in ("a", "b"):
        found.ask(key, 0.3)
        oracle.ask(key, 0.3)
        assert np.array_equal(found.visits(), oracle.visits())
        here, there = found.reports(weights), oracle.reports(weights)
        order = np.argsort(here.codes)
        assert np.array_equal(here.codes[order], there.codes)
        assert np.array_equal(here.numbers[order], there.numbers)
        assert np.array_equal(here.paid[order], there.paid)
        assert 60 < here.numbers.sum() < 160
    assert found.repairs == data.counts().repairs


def test_replacing_a_user_moves_at_most_one_report_of_each():
    """Every other user's choice stays, even where the new one sorts before all of them: two worlds differ by one
    report that goes and one that comes, over both parts together."""
    log = LogFormat(3, 2, 4, episodes_per_user=1)
    rows = patchy_log(60, 5).to_pylist()
    rows = [row for row in rows if row["episode"] == 0]
    for victim in (0, 7, 29):
        for new in (-5, 1000, victim):
            changed = [
                {**row, "user": new, "state": (row["state"] + 1) % 3} if row["user"] == victim else row
                for row in rows
            ]
            totals = []
            for world in (rows, changed):
                users = LoggedData(pa.Table.from_pylist(world), log).one_step()
                users.ask("key", 0.4)
                visits, reports = users.visits(), users.reports(np.full(24, 1.3))
                flat = np.zeros(log.spec.stages * 4 * 2 * 4, dtype=np.int64)
                flat[reports.codes] = reports.numbers
                totals.append(np.concatenate([visits, flat]))
            assert np.abs(totals[0] - totals[1]).sum() <= 2


@pytest.mark.parametrize("names", ["float", "text"])
def test_equal_users_toss_one_coin(names):
    """−0 and 0 are one user to the database, and one user cannot be a pilot and report as well."""
    who = [0.0, -0.0] if names == "float" else ["0.0", "0.0"]
    rows = [
        {"user": who[h], "step": h, "state": 0, "action": 0, "reward": 0.0, "next_state": 0, "episode": 0}
        for h in range(2)
    ]
    log = LogFormat(1, 1, 2, pooled=True)
    for key in map(str, range(30)):
        users = LoggedData(pa.Table.from_pylist(rows), log).one_step()
        users.ask(key, 0.5)
        assert users.visits().sum() + users.reports(np.full(1, 2.0)).numbers.sum() == 1


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
    assert np.array_equal(found[:3, :3, :, :3], full[:3])
    assert np.array_equal(found[3, :3].sum(axis=-1), full[3].sum(axis=-1))
    pooled = count(table, LogFormat(3, 2, 4, pooled=True)).transitions
    assert pooled.sum(axis=(0, 1, 2))[3:].tolist() == [0, 20]  # nobody left, and where the last step led is unknown
    assert pooled.sum() == 80
    short = table.filter(pa.array(np.asarray(table.column("step")) < 2))
    assert count(short, LogFormat(3, 2, 4, pooled=True)).transitions.sum(axis=(0, 1, 2))[3:].tolist() == [20, 0]


#: The last row of a stay of two steps of four: what is said about it, and where it leads (S = 3).
ENDED, UNKNOWN = 3, 4


@pytest.mark.parametrize(
    ("columns", "early_end", "leads_to"),
    [
        ({}, "absorb", ENDED),
        ({}, "keep", 3),  # the only additional one
        ({"next_state": 2}, "absorb", ENDED),
        ({"next_state": 2}, "keep", 2),
        ({"next_state": None}, "absorb", ENDED),
        ({"terminated": True}, "absorb", ENDED),
        ({"terminated": True}, "keep", ENDED),
        ({"terminated": False}, "keep", UNKNOWN),
        ({"done": True}, "keep", ENDED),
        ({"done": "True"}, "keep", ENDED),
        ({"done": 1}, "keep", ENDED),
        ({"done": 0.0}, "keep", UNKNOWN),
        ({"terminated": True, "next_state": 2}, "absorb", ENDED),
        ({"terminated": True, "next_state": 99}, "keep", ENDED),
        ({"truncated": True}, "absorb", UNKNOWN),
        ({"truncated": True}, "keep", 3),
        ({"truncated": True, "next_state": 2}, "absorb", 2),
        ({"truncated": True, "next_state": None}, "absorb", UNKNOWN),
        ({"truncated": False}, "absorb", ENDED),
        ({"truncated": True, "terminated": True}, "absorb", ENDED),
        ({"truncated": True, "done": True}, "absorb", UNKNOWN),  # who was cut off is done, too
    ],
)
@pytest.mark.parametrize("pooled", [True, False])
def test_l2_the_last_row_of_a_stay_counts_and_leads_where_its_columns_say(columns, early_end, leads_to, pooled):
    table = {"user": ["a", "a", "b"], "step": [0, 1, 0], "state": [0, 1, 2], "action": [0] * 3, "reward": [0, 1.0, 0]}
    usual = {"next_state": 1, "done": type(columns.get("done", False))(0), "terminated": False, "truncated": False}
    table |= {name: [usual[name], said, usual[name]] for name, said in columns.items()}
    table |= {} if columns.get("done") != "True" else {"done": ["false", "True", ""]}
    found = count(table, LogFormat(3, 1, 4, pooled, early_end=early_end))
    here = found.transitions[0 if pooled else 1, 1, 0]
    assert here[leads_to] == here.sum() == 1
    assert found.reward_sums[0 if pooled else 1, 1, 0, leads_to] == 2**20
    assert found.transitions.sum() == 3


def test_l2_rows_after_an_end_do_not_count_and_an_answer_that_is_none_is_a_missing_step():
    table = {"user": [0] * 4, "step": [0, 1, 2, 3], "state": [0, 1, 2, 0], "action": [0] * 4, "reward": [0.0] * 4}
    for name, leads_to in (("terminated", 3), ("truncated", 4)):
        for early_end in ("absorb", "keep"):
            flags = {name: [False, True, False, True]}
            found = count(table | flags, LogFormat(3, 1, 4, early_end=early_end)).transitions
            assert found.sum() == 2
            last = leads_to - (name == "truncated" and early_end == "keep")
            assert found[1, 1, 0].tolist() == [float(y == last) for y in range(found.shape[-1])]
    maybe = count(table | {"done": ["no end", "1", "0", "0"]}, LogFormat(3, 1, 4, early_end="keep")).transitions
    assert maybe.sum() == 1  # the first step is no step, and after the second one it is over
    both = LogFormat(3, 1, 4, columns={"done": "over", "truncated": "cut"})
    found = count(table | {"over": [0, 1, 0, 0], "cut": [0, 0, 1, 0], "terminated": [1] * 4}, both).transitions
    assert found.sum(axis=(0, 1, 2)).tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(ValueError, match="no column 'cut', 'over'"):
        count(table, both)


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
    assert found.transitions[0, :2, :, :2].tolist() == [[[0, 1], [0, 0]], [[1, 0], [0, 1]]]
    assert found.transitions.sum() == 3
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
    assert count(doubled, LogFormat(3, 2, 4, early_end="keep")).transitions.sum() == 0  # every step occurs twice
    assert count(doubled, LogFormat(3, 2, 4, early_end="keep", enforce=False, num_users=55)).num_users == 55


def test_more_users_than_declared_are_refused():
    table = table_of(Episodes(np.zeros((4, 2), int), np.zeros((4, 1), int), np.zeros((4, 1))))
    with pytest.raises(ValueError, match="more users than the 3 declared"):
        count(table, LogFormat(1, 1, 1, num_users=3))
    assert count(table, LogFormat(1, 1, 1, num_users=9)).num_users == 9


def test_repairs_are_told_in_sentences():
    lines = Repairs(100, 3, 2, 1).sentences()
    assert [line.split()[0] for line in lines] == ["3", "2", "1"]
    assert Repairs(100).sentences() == ()
    assert "7" not in repr(StepCounts(np.full((1, 1, 1, 1), 777), np.zeros((1, 1, 1, 1)), 5))
