"""Declarations: what they refuse, the bins they give, and one rule for records and rows."""

from __future__ import annotations

import dataclasses
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import cells as rule
from discreet.cells import number_of, text_of
from discreet.offline.declaration import Column, Declaration, Grid, seconds
from discreet.people import reading
from discreet.people.engines import DuckDB
from discreet.people.stays import DeclaredLog, read_stays
from discreet.privacy.accounting import Budget

STATES = ("map:20..140/edges:65,75,95", "lactate:0..20/log,missing", "ward:{A,B,C}")
ONE = Budget.pure(1.0)


def declaration(*states: str, **others) -> Declaration:
    return Declaration.from_options(states or STATES, others.pop("actions", 3), others.pop("horizon", 10), **others)


# Columns ------------------------------------------------------------------------------------------------------------


def test_options_say_what_a_column_is():
    assert Column.parse("map:20..140/edges:65,75,95") == Column("map", 20.0, 140.0, edges=(65.0, 75.0, 95.0))
    assert Column.parse("lactate:0..20/log,missing") == Column("lactate", 0.0, 20.0, log=True, missing=True)
    assert Column.parse("ward:{A,B,C}") == Column("ward", names=("A", "B", "C"))
    assert Column.parse("x:-1.5..2e3/edges:0,1,missing") == Column("x", -1.5, 2000.0, edges=(0.0, 1.0), missing=True)
    assert Column.parse("a:b:0..1/missing/edges:.5") == Column("a:b", 0.0, 1.0, edges=(0.5,), missing=True)
    assert Column.parse("ward:{ICU 1, B}/missing") == Column("ward", names=("ICU 1", "B"), missing=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("map", "expected NAME:LOW..HIGH"),
        ("map:20-140", "expected NAME:LOW..HIGH"),
        ("map:20..140/edgse:65", "did you mean 'edges'"),
        ("map:20..140/65,75", "expected log, missing or edges"),
        ("map:140..20", "low < high"),
        ("map:20..140/edges:75,65", "overlap"),
        ("map:20..140/edges:65,65", "overlap"),
        ("map:20..140/edges:10,65", "all between 20 and 140"),
        ("map:20..140/edges:65,140", "all between 20 and 140"),
        ("map:-5..140/log", "from 0 or above"),
        ("map:1..140/log,edges:3", "edges say all"),
        ("ward:{A,A}", "twice"),
        ("ward:{}", "expected printable text"),
        ("ward:{A}/log", "expected one of both"),
        ("map:0..1/edges:" + ",".join(str(i / 100) for i in range(1, 40)), "at most 32"),
    ],
)
def test_a_column_that_cannot_be_is_refused_in_one_sentence(text, message):
    with pytest.raises(ValueError, match=message) as found:
        Column.parse(text)
    assert "\n" not in str(found.value)


def test_edges_are_even_log_even_or_those_that_were_declared():
    assert Column("x", 0.0, 8.0).thresholds(4) == (2.0, 4.0, 6.0)
    assert Column("x", 1.0, 10_000.0, log=True).thresholds(4) == pytest.approx((10.0, 100.0, 1000.0))
    from_zero = Column("x", 0.0, 20.0, log=True)  # even in log(x + 1), for 1 = 20/20
    assert from_zero.thresholds(2) == pytest.approx((math.sqrt(21.0) - 1.0,))
    own = Column("x", 0.0, 100.0, edges=(10.0, 20.0, 30.0, 40.0, 50.0, 60.0))
    assert own.thresholds(10) == own.thresholds(7) == own.edges
    assert own.thresholds(4) == (20.0, 40.0, 50.0)
    assert own.thresholds(2) == (40.0,)
    assert own.thresholds(1) == ()


@given(st.integers(1, 10), st.lists(st.integers(1, 99), max_size=32, unique=True).map(sorted), st.booleans())
def test_every_coarse_edge_is_a_fine_one_and_bins_are_at_most_64(bins, edges, log):
    column = Column("x", 0.0, 100.0, log and not edges, tuple(float(edge) for edge in edges))
    inner = column.thresholds(bins)
    assert len(inner) < bins
    assert set(inner) <= set(column.fine)
    assert list(inner) == sorted(set(inner))
    assert column.num_fine <= 64
    assert tuple(column.fine[cut] for cut in column.cuts(len(inner) + 1)) == inner


# One rule for records and rows --------------------------------------------------------------------------------------


def test_numbers_in_text_are_those_of_the_reader():
    assert (rule.NUMBER, rule.TRUE, rule.FALSE) == (reading.NUMBER, reading.TRUE, reading.FALSE)


CELLS = st.one_of(
    st.none(),
    st.sampled_from(
        ["", " ", "nan", "NaN", "inf", "-inf", "1e999", "-1e999", "0x10", "1_0", "true", "FALSE", "A", "a"]
    ),
    st.sampled_from([" 65 ", "65.0", "6.5e1", "+65", "64.99999999999999", "75", "95", "19", "20", "140", "141", "'"]),
    st.floats().map(repr),
    st.integers(-10, 160).map(str),
    st.text(max_size=4),
)
NUMBERS = st.one_of(
    st.floats(),
    st.sampled_from([65.0, math.nextafter(65.0, 0.0), 75.0, 95.0, 20.0, 140.0, 0.0, -0.0, math.inf, -math.inf]),
    st.sampled_from([*Column("x", 20.0, 140.0).fine]),
    st.floats(15, 145),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(CELLS, NUMBERS, st.one_of(CELLS, st.sampled_from("ABC'"))), min_size=1, max_size=30),
    st.sampled_from([0, 900, 6_000, 40_000, 10**7]),
    st.booleans(),
)
def test_a_record_and_a_row_of_the_same_values_have_the_same_state(rows, users, missing):
    tail = "/missing" if missing else ""
    what = declaration(f"map:20..140/edges:65,75,95{tail}", f"lactate:20..140{tail}", f"ward:{{A,B,'}}{tail}")
    grid = what.grid(users, ONE) if users else Grid(what, ((3, 17), (), (0,)))
    texts, numbers, wards = zip(*rows, strict=True)
    n = len(rows)
    table = {
        "user": np.arange(n),
        "step": np.zeros(n, dtype=int),
        "map": list(texts),
        "lactate": np.array(numbers),
        "ward": list(wards),
        "action": np.zeros(n, dtype=int),
        "reward": np.zeros(n),
    }
    log = DeclaredLog(table, what)
    engine, _ = log.gridded(grid)
    by_row = engine.fetch('SELECT "declared columns" FROM log ORDER BY "user"').column(0).to_pylist()
    by_record = [grid.state({"map": m, "lactate": x, "ward": w}) for m, x, w in rows]
    assert by_row == by_record
    stays = read_stays(table, what)
    complete = [all(c.missing or c.bin(v) is not None for c, v in zip(what.states, row, strict=True)) for row in rows]
    assert stays.user.tolist() == list(range(sum(complete)))
    for i, column in enumerate(what.states):
        fine = [column.bin(row[i]) for row, whole in zip(rows, complete, strict=True) if whole]
        assert stays.bins[:, i].tolist() == [column.num_fine if b is None else b for b in fine]
    assert stays.states(grid).tolist() == [s for s, whole in zip(by_record, complete, strict=True) if whole]


def test_a_value_on_an_edge_is_in_the_bin_above_and_what_is_out_of_range_in_the_outer_ones():
    grid = declaration("map:20..140/edges:65,75,95").grid(0, ONE)
    shown = (-5, 64.999, 65, "65.0", 75, 94, 95, 1000, True, "false")
    assert [grid.state({"map": v}) for v in shown] == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]
    assert [grid.state({"map": v}) for v in (None, math.nan, math.inf, "", "n/a", "1e999")] == [None] * 6
    assert grid.state({}) is None
    ward = Column("ward", names=("A", "1", "true"))
    assert [ward.bin(v) for v in ("A", 1, True, "B", "a", " A", None)] == [0, 1, 2, None, None, None, None]


def test_seventeen_digits_are_compared_as_they_are():
    """A literal with a point is a decimal number in SQL, and its way to a double may round."""
    edge = 0.30000000000000004
    column = Column("x", 0.0, 1.0, edges=(edge,))
    values = [math.nextafter(edge, 0.0), edge, math.nextafter(edge, 1.0)]
    engine = DuckDB()
    engine.register("t", pa.table({"v": values}))
    text = column.sql("v", column.cuts(2), engine.literal)
    assert engine.fetch(f"SELECT {text} FROM t").column(0).to_pylist() == [0, 1, 1]
    (cut,) = column.cuts(2)
    assert [column.bin(v) > cut for v in values] == [False, True, True]


@given(st.text(max_size=12))
def test_text_is_a_number_where_the_reader_says_so(text):
    engine = DuckDB()
    engine.register("t", pa.table({"v": [text_of(text)]}))
    read = engine.fetch(f"SELECT {reading.number_of(engine, 'v', 'text')} FROM t").column(0)[0].as_py()
    expected = None if text_of(text) is None else number_of(text)
    assert (None if read is None or not math.isfinite(read) else read) == expected


# The whole ----------------------------------------------------------------------------------------------------------


def test_a_text_says_all_and_says_it_once():
    for what in (
        declaration(actions=("none", 'a "quoted" one', "naïve\\"), columns={"user": "patient"}, propensity="p"),
        declaration("x:0..1e-7/log", time="t", interval="4h", reward_range=(-1.0, 1e20), pooled=False),
    ):
        assert Declaration.from_toml(what.text) == what
        assert Declaration.from_toml(what.text).text == what.text
        assert len(what.digest) == 64
    assert declaration().digest != declaration(horizon=11).digest


BOTH = "actions = 2\nhorizon = 3\n"
STATE = '[[state]]\nname = "x"\n'
WHOLE = STATE + "range = [0, 1]\n"
WRONG = {
    "horizn = 3\nactions = 2\n": "did you mean 'horizon'",
    'next_state = "after"\n' + BOTH + WHOLE: "a step leads to the next row of its stay, so leave it out",
    BOTH + STATE + "rnage = [0, 1]": "did you mean 'range'",
    BOTH + "[[state]]\nrange = [0, 1]": "without a name",
    BOTH + STATE: "neither a range nor names",
    BOTH + STATE + "range = [0]": "two numbers",
    BOTH + WHOLE + 'log = "yes"': "true or false",
    BOTH + WHOLE + "edges = 5": "expected a list",
    BOTH + WHOLE + "edges = [nan]": "expected a number",
    BOTH + STATE + "names = [1, 2]": "expected printable text",
    BOTH: "names no column of states",
    "horizon = 3\n": "does not say 'actions'",
    "actions = [": "is no TOML",
    BOTH + 'state = "x"': r"expected \[\[state\]\]",
    "actions = true\nhorizon = 3\n" + WHOLE: "a list of names or a whole number",
    "actions = 2\nhorizon = 3.5\n" + WHOLE: "horizon is 3.5",
    BOTH + "pooled = 1\n" + WHOLE: "pooled is 1",
    BOTH + "user = 5\n" + WHOLE: "expected the name of a column",
    BOTH + 'step = "t"\ntime = "t"\n' + WHOLE: "both step and time",
    BOTH + 'user = "t"\nreward = "t"\n' + WHOLE: "both user and reward",
    BOTH + 'time = "t"\ninterval = "4 weeks"\n' + WHOLE: "4h or 1d",
    BOTH + "interval = 60\n" + WHOLE: "needs time",
    BOTH + "reward_range = [1, 0]\n" + WHOLE: "low < high",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_nobody_knows_or_cannot_be_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError, match=WRONG[text]) as found:
        Declaration.from_toml(text)
    assert "\n" not in str(found.value)


def test_more_than_eight_columns_are_refused_and_a_column_once():
    with pytest.raises(ValueError, match="9 columns of states; expected at most 8"):
        declaration(*(f"x{i}:0..1" for i in range(9)))
    with pytest.raises(ValueError, match="'x' twice"):
        declaration("x:0..1", "x:0..2")


def test_intervals_are_seconds():
    assert [seconds(text) for text in ("90s", "30min", "4h", "1.5d", 60)] == [90.0, 1800.0, 14400.0, 129600.0, 60.0]


# The grid -----------------------------------------------------------------------------------------------------------


def test_bins_follow_the_public_rule():
    """S·A ≤ max(12, n·ε/60): by hand, for three actions and columns of 4 edges' bins, up to 10 + missing, 3 names."""
    what = declaration()
    assert what.grid(0, ONE).bins == (4, 0, 0)  # 12 cells are always allowed
    assert what.grid(2_159, ONE).bins == (4, 0, 0)
    assert what.grid(3_599, ONE).bins == (4, 0, 3)  # 36 cells: what does not fit is passed over
    assert what.grid(3_600, ONE).bins == (4, 4, 0)  # 4 · 5 · 3 = 60 cells
    assert what.grid(4_320, ONE).bins == (4, 5, 0)
    assert what.grid(10_800, ONE).bins == (4, 4, 3)  # 180 cells: all columns come first, then they grow
    assert what.grid(10**7, ONE).bins == (4, 10, 3)
    found = what.grid(3_600, ONE)
    assert (found.num_states, found.unused, found.users_needed, found.users_for_all) == (20, ("ward",), 3_600, 10_800)


def test_columns_grow_in_turns():
    what = declaration("x:0..1", "y:0..1")
    grids = [what.grid(60 * cells, ONE).bins for cells in (48, 60, 75, 90, 300, 1_000)]
    assert grids == [(4, 4), (5, 4), (5, 5), (6, 5), (10, 10), (10, 10)]


def test_the_first_column_gets_what_fits_and_too_many_names_are_left_out():
    assert declaration("x:0..1", "y:{A,B}", actions=5).grid(0, ONE).bins == (2, 0)
    assert declaration("x:0..1", actions=50).grid(0, ONE).bins == (2,)
    names = "n:{" + ",".join(map(str, range(20))) + "}"
    assert declaration(names, "x:0..1").grid(0, ONE).bins == (0, 4)
    assert declaration(names).grid(0, ONE).bins == (20,)


def test_however_many_users_there_are_a_grid_fits_in_memory():
    what = declaration(*(f"x{i}:0..1" for i in range(8)))
    grid = what.grid(10**9, ONE)
    assert 1_000_000 < grid.num_states**2 * 3 <= 20_000_000
    assert what.grid(10**9, Budget.pure(100.0)) == what.grid(10**9, Budget.pure(10.0))


def test_gaussian_noise_and_zero_out_count_for_more_and_staged_problems_have_more_cells():
    what = declaration("x:0..1", "y:0..1", horizon=8)
    assert what.strength(Budget.zcdp(0.5)) == pytest.approx(math.sqrt(8 * 8 * 0.5))
    assert what.strength(Budget.approximate(1.0, 1e-6)) > 1.0
    assert what.strength(ONE, "zero-out") == 2.0
    staged = dataclasses.replace(what, pooled=False)
    assert staged.grid(2_880 * 8, ONE).bins == what.grid(2_880, ONE).bins == (4, 4)
    assert staged.grid(2_880, ONE).bins == (2, 0)


@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 5.0]), st.integers(1, 12))
def test_a_grid_keeps_to_its_limit_and_names_what_it_does_not_use(users, epsilon, actions):
    what = declaration("a:0..1/missing", "b:{X,Y}", "c:0..1/edges:.2,.4,.9", "d:1..9/log", actions=actions)
    grid = what.grid(users, Budget.pure(epsilon))
    limit = max(12.0, users * epsilon / 60.0)
    assert grid.num_states * actions <= limit or grid.bins == (2, 0, 0, 0)
    assert set(grid.unused) == {c.name for c, b in zip(what.states, grid.bins, strict=True) if b == 0}
    assert len(grid.state_names) == len(set(grid.state_names)) == grid.num_states
    again = what.grid(grid.users_needed, Budget.pure(epsilon))
    assert math.prod(again.bins) >= math.prod(grid.bins) or again.num_states >= grid.num_states


def grid_of(what: Declaration, *bins: int) -> Grid:
    return Grid(what, tuple(c.cuts(b) if b else () for c, b in zip(what.states, bins, strict=True)))


def test_states_in_words():
    grid = grid_of(declaration(), 2, 2, 3)
    assert grid.state_names[0] == "map < 75, lactate < 3.58258, ward A"
    assert grid.state_names[-1] == "map ≥ 75, lactate missing, ward C"
    assert grid_of(declaration("x:0..9"), 3).state_names == ("x < 3", "3 ≤ x < 6", "x ≥ 6")


def test_a_grid_may_cut_anywhere_between_fine_bins():
    """As a tree does: names in groups, and what is missing with the last values or apart."""
    what = declaration("x:0..10/missing", "ward:{A,B,C}/missing")
    five = what.states[0].fine.index(5.0)
    grid = Grid(what, ((five,), (0, 2)))
    assert grid.state_names == (
        *("x < 5, ward A", "x < 5, ward B or C", "x < 5, ward missing"),
        *("x ≥ 5 or missing, ward A", "x ≥ 5 or missing, ward B or C", "x ≥ 5 or missing, ward missing"),
    )
    assert [grid.state({"x": x, "ward": w}) for x, w in ((4, "A"), (5, "C"), (None, "D"))] == [0, 4, 5]
    only_missing = Grid(what, ((what.states[0].num_fine - 1,), ()))
    assert only_missing.state_names == ("x known", "x missing")
    assert (only_missing.unused, only_missing.bins) == (("ward",), (1, 0))
    assert Grid(what, ((), ())).state_names == ("anywhere",)
    assert Grid(what, ((), ())).state({}) == 0


@pytest.mark.parametrize("cuts", [((1, 1),), ((2, 1),), ((32,),), ((-1,),), ((0.5,),), ((), ())])
def test_cuts_that_cannot_be_are_refused(cuts):
    with pytest.raises(ValueError, match="the grid has cuts"):
        Grid(declaration("x:0..10"), cuts)


def test_floats_of_every_bit_pattern_have_a_place():
    column = Column("x", 0.0, 1.0)
    for bits in (0x7FF8000000000000, 0xFFF8000000000001, 1, 0x8000000000000000):
        value = struct.unpack("<d", struct.pack("<Q", bits))[0]
        assert column.bin(value) == (None if math.isnan(value) else 0)
