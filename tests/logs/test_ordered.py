"""Logs in order of their users: one pass must find exactly what the queries find, and only where it may be gone."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from discreet.kernels import ordered as kernel
from discreet.kernels.sha import digests_of, prefix_of
from discreet.people import counting, ordered
from discreet.people.counting import LoggedData, OrderedStep
from discreet.people.logs import LogFormat

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
SIGNED = INTEGERS[:4]
HORIZON = 4


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Small logs are read this way, too."""
    monkeypatch.setattr(counting, "FEW", 1)


def episode_of(rng, tidy):
    """Steps of an episode: whole, cut short, with gaps, in any order, repeated or absurd."""
    kind = rng.integers(8) if not tidy else rng.integers(2)
    steps = list(range(HORIZON if kind else int(rng.integers(1, HORIZON + 2))))
    if kind == 2:
        steps = [h for h in steps if rng.random() < 0.7]
    elif kind == 3:
        rng.shuffle(steps)
    elif kind == 4:
        steps.append(int(rng.integers(HORIZON + 1)))
    elif kind == 5:
        steps = rng.integers(-2, HORIZON + 3, size=rng.integers(1, 7)).tolist()
    elif kind == 6:
        steps[int(rng.integers(len(steps)))] = None
    return steps


def nasty_log(rng, first_step, tidy=0.5, unique=False):
    """Rows of users in order; `unique`: no step of an episode twice, so that what follows is never ambiguous."""
    rows = []
    names = np.sort(rng.choice(np.arange(-60, 67), size=25, replace=False)).tolist()
    for user in names:
        fine = rng.random() < tidy
        episodes = sorted(rng.choice(6, size=rng.integers(1, 4), replace=False).tolist())
        if not fine:
            rng.shuffle(episodes)
        hers = []
        for number in episodes:
            seen = set()
            for h in episode_of(rng, fine):
                if unique and h in seen:
                    continue
                seen.add(h)
                hers.append(row_of(rng, user, number, h, first_step, fine))
        if not fine and rng.random() < 0.3:
            order = rng.permutation(len(hers)).tolist()
            hers = [hers[i] for i in order]
        rows += hers
    return rows


def row_of(rng, user, episode, h, first_step, fine):
    def pick(*values):
        return values[int(rng.integers(len(values)))]

    wrong = 0.0 if fine else 0.12
    return {
        "user": user,
        "episode": None if rng.random() < wrong / 3 else episode,
        "step": None if h is None else h + first_step,
        "state": pick(-1, 3, 100, None) if rng.random() < wrong else pick(0, 1, 2),
        "action": pick(-1, 2, None) if rng.random() < wrong else pick(0, 1),
        "reward": pick(-3.0, 7.0, 100.0, None, float("nan"), float("inf"), -float("inf"), 0.3)
        if rng.random() < wrong
        else pick(-1.0, 0.0, 1.0, 0.25, 0.1 + 0.2),
        "next_state": pick(-2, -1, 3, None, None) if rng.random() < wrong else pick(0, 1, 2),
        "terminated": pick(1, 2, None, -1) if rng.random() < wrong else 0,
        "truncated": pick(1, 2, None, 5) if rng.random() < wrong else 0,
        "done": pick(1, 3, None) if rng.random() < wrong else 0,
    }


def typed(rng, rows, columns, whole):
    """The rows as a table whose columns have types of some kind."""
    kinds, rows = {}, [dict(row) for row in rows]
    for name in columns:
        kinds[name] = SIGNED[rng.integers(4)]
    kinds["reward"] = SIGNED[rng.integers(4)] if whole else (pa.float64(), pa.float32())[rng.integers(2)]
    if whole:
        for row in rows:
            value = row["reward"]
            row["reward"] = None if value is None or not np.isfinite(value) else int(value)
    for name in ("terminated", "truncated", "done"):
        if name in columns and rng.random() < 0.5:
            kinds[name] = pa.bool_()
            for row in rows:
                row[name] = None if row[name] is None else row[name] == 1
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, kinds[name]) for name in columns]))


def random_format(rng):
    """A format, the columns of its log, and whether rewards are whole numbers."""
    others = [name for name in ("episode", "next_state", "terminated", "truncated", "done") if rng.random() < 0.5]
    whole = bool(rng.integers(2))
    ranges = ((-1.0, 1.0), (0.0, 2.0)) if whole else ((-1.0, 1.0), (0.1, 0.7))
    enforce = bool(rng.random() < 0.85)
    log = LogFormat(
        3,
        2,
        HORIZON,
        bool(rng.integers(2)),
        episodes_per_user=int(rng.integers(1, 4)),
        reward_range=ranges[rng.integers(2)],
        early_end="absorb" if enforce and rng.random() < 0.6 else "keep",
        enforce=enforce,
        num_users=None if rng.random() < 0.7 and enforce else 40,
        first_visits=bool(rng.random() < 0.3),
        first_step=int(rng.integers(2)),
    )
    return log, ["user", "step", "state", "action", "reward", *others], whole


def by_query(monkeypatch, source, log):
    with monkeypatch.context() as patch:
        patch.setattr(counting, "_in_order", lambda engine, log, again: None)
        return LoggedData(source, log)


def assert_alike(one, other):
    """Everything that comes out of a log, two ways."""
    assert (one.num_users, one.log) == (other.num_users, other.log)
    mine, theirs = one.counts(), other.counts()
    assert np.array_equal(mine.transitions, theirs.transitions)
    assert np.array_equal(mine.reward_sums, theirs.reward_sums)
    assert mine.repairs == theirs.repairs
    log = one.log
    if not log.enforce or log.first_visits:
        return
    weights = np.random.default_rng(5).random(log.spec.stages * log.num_states * log.num_actions) * 3
    steps = one.one_step(), other.one_step()
    assert isinstance(steps[0], OrderedStep)
    for key in ("a", "k" * 64):
        for step in steps:
            step.ask(key, 0.4)
        assert np.array_equal(steps[0].visits(), steps[1].visits())
        found, expected = (step.reports(weights) for step in steps)
        assert np.array_equal(found.table(log.spec).transitions, expected.table(log.spec).transitions)
        assert np.array_equal(found.table(log.spec).reward_sums, expected.table(log.spec).reward_sums)
        assert steps[0].repairs == steps[1].repairs


@pytest.mark.parametrize("seed", range(60))
def test_l9_one_pass_over_a_log_in_order_finds_what_the_queries_find(seed, monkeypatch, tmp_path):
    """Nasty users between tidy ones, wherever parts of the log end, from files and from memory."""
    rng = np.random.default_rng(seed)
    log, columns, whole = random_format(rng)
    rows = nasty_log(rng, log.first_step, unique="next_state" not in columns)
    if "episode" not in columns and "next_state" not in columns:
        rows = list({(row["user"], row["step"]): row for row in rows}.values())
    table = typed(rng, rows, columns, whole)
    monkeypatch.setattr(ordered, "BATCH", int(rng.integers(1, 40)))
    source = table
    if seed % 2:
        source = str(tmp_path / "log.parquet")
        pyarrow.parquet.write_table(table, source, row_group_size=int(rng.integers(5, 60)))
    data = LoggedData(source, log, again=bool(seed % 3))
    alone = log.enforce or ("next_state" in columns and not log.first_visits)
    ambiguous = "next_state" not in columns and len({(r["user"], r["episode"], r["step"]) for r in rows}) < len(rows)
    assert (data._ordered is not None) or not alone or ambiguous
    if data._ordered is not None:
        assert (data._ordered._table is None) == (bool(seed % 3) and log.enforce)
        assert_alike(data, by_query(monkeypatch, source, log))


@pytest.mark.parametrize("row", [0, 1, 7, 40, 99])
@pytest.mark.parametrize("how", ["moved", "renamed"])
def test_l9_one_row_out_of_order_sends_the_log_to_the_queries(row, how, monkeypatch):
    rng = np.random.default_rng(row)
    rows = nasty_log(rng, 0, tidy=1.0)
    names = [name for name in rows[0] if name not in ("terminated", "truncated", "done")]
    if how == "moved":
        rows.append(rows.pop(row))
    else:  # a user who has been there comes back
        rows[-1 - row % 5] = {**rows[-1 - row % 5], "user": rows[0]["user"]}
    table = pa.Table.from_pylist(rows).select(names)
    monkeypatch.setattr(ordered, "BATCH", 16)
    log = LogFormat(3, 2, HORIZON, episodes_per_user=2)
    data = LoggedData(table, log)
    assert data._ordered is None
    in_order = table.sort_by([("user", "ascending"), ("episode", "ascending"), ("step", "ascending")])
    again = LoggedData(in_order, log)
    assert again._ordered is not None
    assert np.array_equal(again.counts().transitions, data.counts().transitions)
    assert again.counts().repairs == data.counts().repairs


def test_l9_rows_of_one_step_that_contradict_each_other_are_left_to_the_queries():
    """Without a column for successors either of two rows may say what follows, if only one of them can be read."""
    row = {"user": 0, "step": 0, "state": 0, "action": 0, "reward": 0.0}
    rows = [row, {**row, "step": 1, "state": 1}, {**row, "step": 1, "state": 2, "action": 9}]
    log = LogFormat(3, 2, HORIZON)
    assert LoggedData(pa.Table.from_pylist(rows), log)._ordered is None
    assert LoggedData(pa.Table.from_pylist(rows[:2]), log)._ordered is not None


@pytest.mark.parametrize(
    "change",
    [
        {"user": pa.array(["a", "b"])},
        {"user": pa.array([1.0, 2.0])},
        {"state": pa.array(["0", "1"])},
        {"state": pa.array([0, 1], pa.uint64())},
        {"reward": pa.array([True, False])},
        {"step": pa.array([0, 0]).cast(pa.duration("s"))},
    ],
    ids=["names", "real users", "text", "wide", "bools", "durations"],
)
def test_l9_other_types_are_read_by_the_queries(change):
    columns = {name: pa.array([0, 1]) for name in ("user", "state", "action", "next_state")}
    columns |= {"step": pa.array([0, 0]), "reward": pa.array([0.0, 1.0])}
    log = LogFormat(3, 2, HORIZON)
    assert LoggedData(pa.table(columns), log)._ordered is not None
    if "step" in change:
        with pytest.raises(ValueError, match="expected whole numbers"):
            LoggedData(pa.table(columns | change), log)
    else:
        assert LoggedData(pa.table(columns | change), log)._ordered is None


def test_l9_folders_that_name_a_column_and_columns_that_some_files_lack_are_left_to_queries(tmp_path, monkeypatch):
    row = {"state": 0, "action": 0, "reward": 1.0, "next_state": 1}
    table = pa.Table.from_pylist([{"user": user, "step": h, **row} for user in (3, 4) for h in range(4)])
    log = LogFormat(3, 2, HORIZON)
    folder = tmp_path / "user=9"
    folder.mkdir()
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    assert LoggedData(str(folder / "a.parquet"), log)._ordered is None
    first, second = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    pyarrow.parquet.write_table(table.slice(0, 6), first)
    pyarrow.parquet.write_table(table.slice(6), second)
    data = LoggedData([first, second], log)
    assert data._ordered is not None
    assert data.num_users == 2
    assert_alike(data, by_query(monkeypatch, [first, second], log))
    pyarrow.parquet.write_table(table.slice(6).drop_columns(["next_state"]), second)
    assert LoggedData([first, second], log)._ordered is None


def test_l9_a_user_with_more_rows_than_are_kept_is_left_to_the_queries(monkeypatch):
    monkeypatch.setattr(ordered, "BATCH", 8)
    rows = [{"user": 1, "step": h % 50, "state": 0, "action": 0, "reward": 0.0, "next_state": 0} for h in range(200)]
    for most, expected in ((100, False), (1000, True)):
        monkeypatch.setattr(ordered, "FRINGE", most)
        assert (LoggedData(pa.Table.from_pylist(rows), LogFormat(3, 2, 4))._ordered is not None) == expected


@pytest.mark.parametrize("length", [0, 1, 34, 35, 44, 54, 55, 56, 63, 64, 65, 100, 119, 128])
def test_digests_are_those_of_the_standard(length):
    text, numbers = "0123456789abcdef" * 8, [0, 7, 10, -1, -10, 99, 100, 2**63 - 1, -(2**63), 10**18 - 1, 10**18]
    numbers += [-(10**18), 123456789, *range(5, 3000, 217)]
    found = np.empty((len(numbers), 8), dtype=np.uint32)
    digests_of(*prefix_of(text[:length]), np.array(numbers), found)
    for number, words in zip(numbers, found, strict=True):
        assert (
            "".join(f"{word:08x}" for word in words)
            == hashlib.sha256(f"{text[:length]}{number}".encode()).hexdigest()
        )


def noted(rng, most_code, paid, gaps):
    """Notes of some episodes: codes up to a largest one, payments of some kind, perhaps with steps left out."""
    steps, places = [], []
    for place in range(1, 30):
        met = np.flatnonzero(rng.random(HORIZON) < 0.7) if gaps else np.arange(rng.integers(1, HORIZON + 1))
        places.append((len(steps), place))
        for h in met:
            code = most_code if h == 0 else int(rng.integers(most_code + 1))
            steps.append((code << kernel.UNIT_BITS | int(rng.choice(paid))) << kernel.STEP_BITS | int(h))
    return kernel.Notes(np.array(steps), np.arange(29), np.array(places, dtype=np.uint32))


@pytest.mark.parametrize(
    ("most_code", "paid", "gaps", "planes"),
    [
        (0, [0], False, 1),
        (2**14 - 1, [0, 2**20], False, 1),
        (2**14 - 1, [0, 2**18, 2**19], False, 1),
        (2**15 - 1, [0, 2**18, 2**19], False, 2),
        (2**14 - 1, [0, 2**20], True, 2),
        (2**14 - 1, [0, 104858, 2**20], False, 3),
        (2**22 - 1, [0, 1, 2**29 - 1], False, 4),
        (2**22 - 1, [0, 1, 2**29 - 1], True, 4),
    ],
)
def test_notes_are_packed_without_loss_and_no_wider_than_they_must_be(most_code, paid, gaps, planes):
    notes = noted(np.random.default_rng(planes), most_code, paid, gaps)
    packed = ordered.Packed.of(notes, lambda halves: np.empty(halves, dtype=np.uint16))
    assert (packed.layout.planes, packed.halves.size) == (planes, planes * notes.steps.size)
    assert (packed.layout.step_bits > 0) == gaps
    assert np.array_equal(packed.unpacked().steps, notes.steps)


@pytest.mark.parametrize("number", [1, 2, 20, 4095, 2**20 + 1, 2**31 - 2, 2**31 - 1])
def test_coins_of_steps_are_the_polynomial_modulo_the_prime(number):
    prime, rng = 2**31 - 1, np.random.default_rng(number)
    extremes = [[prime - 1] * 4, [0] * 4, [prime - 1, 0, 0, 1], *rng.integers(0, prime, (200, 4)).tolist()]
    for coins in extremes:
        exact = sum(k * number**i for i, k in enumerate(coins)) % prime
        words = np.array(coins, dtype=np.uint32)
        assert kernel._step_coin(words, number) == exact
        words[0] |= kernel.PILOT  # whose coins they are makes no difference
        assert kernel._step_coin(words, number) == exact
