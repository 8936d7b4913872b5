"""How text is read: line by line and value by value, so that nobody changes how another is read."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import re
import tempfile
import uuid
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import discreet.people.text as text_module
from discreet.cli import app
from discreet.cli.logs import listed, log_format, read_features, read_rewards, read_rows, start_of
from discreet.people.counting import LoggedData, Repairs, count
from discreet.people.logs import LogFormat, open_log
from discreet.people.reading import prepare
from discreet.people.text import LONGEST_LINE, TextFile

HEADER = b"user,step,state,action,reward,next_state"
LOG = LogFormat(3, 2, 3, num_users=50)
OTHERS = 6

#: What has broken readers of text.
NASTY = [
    b'"',
    b'""',
    b'"a',
    b'a"b',
    b'x,"1,2,3,4,5',
    b'"x"y,0,0,0,0,0',
    b"x,0,1,1,0.5,1,,extra",
    b"x,0,1",
    b"," * 5,
    b"," * 100_000,
    b";",
    b"x;0;1;1;0.5;1",
    b"#",
    b"#x,0,1,1,0.5,1",
    b"\0",
    b"x\0,0,1,1,0.5,1",
    b"x,0,1,1,\xe9,1",
    b"\xff\xfeu\0s\0",
    b"\xef\xbb\xbfx,0,1,1,0.5,1",
    b"\xed\xa0\x80,0,1,1,0.5,1",
    b"x," + b"9" * 1_000_000 + b",1,1,0.5,1",
    b"x,0,1,1,0.5," + b"1" * (3 * LONGEST_LINE),
    b'"' + b"a" * (5 * LONGEST_LINE),
    b"\r",
    b"x,0,1\r1,1,0.5,1",
    b"x,0,1,1,0.5,1\r",
    b"",
    b" ",
    b"\t",
    b"x\t0\t1\t1\t0.5\t1",
    b"user,step,state,action,reward,next_state",
    b"\\",
    b"x,0,\\,1,0.5,1",
    b"',0,1,1,0.5,1",
]
NASTY += [
    b"x,0," + cell + b",1," + cell + b",1"
    for cell in (
        *(b"nan", b"inf", b"-inf", b"Infinity", b"1e400", b"-1e400", b"1e-400", b"TRUE", b"False", b"08:00", b"0.50"),
        *("١".encode(), b"1_000", b"0x10", b" 1 ", b"+1", b"-0", b"1.", b".5", b"1e0", b"unknown", b"NULL", b"None"),
        *(b"2020-01-01", b"1,5", b'"1,5"', b"99999999999999999999", b"\xc2\xa01", b"1\x0b", b"", b"'1'", b"1;"),
    )
]


def others(seed: int = 0) -> list[bytes]:
    """Lines of people with nothing wrong."""
    rng = np.random.default_rng(seed)
    return [
        f"u{u},{h},{rng.integers(3)},{rng.integers(2)},{rng.integers(5) / 4},{rng.integers(3)}".encode()
        for u in range(OTHERS)
        for h in range(3)
    ]


def contribution(lines, path, log=LOG):
    path.write_bytes(b"\n".join([HEADER, *lines]) + b"\n")
    found = count(str(path), log)
    return found.transitions, found.reward_sums


def between(lines, hers):
    """Her lines before, between and after those of others."""
    return [hers[0], *lines[:7], *hers, *lines[7:], hers[-1]]


def rule(cell: str) -> float | None:
    """The number that a text is, written otherwise than in the package."""
    cell = cell.strip(" ")
    if cell.lower() in ("true", "false"):
        return float(cell.lower() == "true")
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", cell, re.ASCII) or "\n" in cell:
        return None
    return float(cell)


def oracle_fields(line: bytes, delimiter: str = ",") -> list[str] | None:
    """A line as fields, or None; by the csv module and a few conditions."""
    if len(line) > LONGEST_LINE or b"\0" in line:
        return None
    try:
        text = line.decode("utf-8")
        quoted = r'"(?:[^"]|"")*"'
        if not re.fullmatch(
            rf'(?:{quoted}|[^"{delimiter}]*)(?:{delimiter}(?:{quoted}|[^"{delimiter}]*))*', text, re.S
        ):
            return None
        parts = re.findall(rf'(?:^|{delimiter})({quoted}|[^"{delimiter}]*)', text)
    except UnicodeDecodeError:
        return None
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]


def table_of_lines(lines, tmp_path, columns=2, name="t.csv"):
    path = tmp_path / name
    delimiter = "\t" if name.endswith(".tsv") else ","
    head = delimiter.join(f"c{i}" for i in range(columns)).encode()
    path.write_bytes(head + b"\n" + b"\n".join(lines))
    schema = pa.schema([(f"c{i}", pa.string()) for i in range(columns)])
    batches = TextFile.opened(str(path), path.suffix).batches(schema)
    return pa.Table.from_batches(batches, schema=schema).to_pylist()


def expected_rows(lines, columns=2, delimiter=","):
    rows = []
    for line in b"\n".join(lines).split(b"\n"):
        line = line.removesuffix(b"\r")
        fields = oracle_fields(line, delimiter)
        if line and (fields is None or len(fields) != columns):
            rows.append({f"c{i}": None for i in range(columns)})
        elif line:
            rows.append({f"c{i}": field for i, field in enumerate(fields)})
    return rows


PIECES = st.lists(
    st.sampled_from(
        [b'"', b'""', b",", b",", b"\t", b"\r", b"\n", b"a", b"1", b"\xe9", "é".encode(), b"\0", b"#", b" "]
    )
    | st.binary(max_size=3),
    max_size=12,
).map(b"".join)
IN_A_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@IN_A_FOLDER
@given(lines=st.lists(PIECES, max_size=8), name=st.sampled_from(["t.csv", "t.tsv"]), block=st.integers(1, 40))
def test_lines_are_split_as_the_dialect_says_wherever_blocks_end(lines, name, block, tmp_path, monkeypatch):
    """Blocks end anywhere, and the places of few fields are held at a time."""
    monkeypatch.setattr(text_module, "BLOCK", max(block, 9))  # the first line is in the first block
    monkeypatch.setattr(text_module, "FIELDS", block)
    delimiter = "\t" if name.endswith(".tsv") else ","
    assert table_of_lines(lines, tmp_path, 2, name) == expected_rows(lines, 2, delimiter)


@pytest.mark.parametrize("number", range(len(NASTY)))
def test_nasty_lines_are_split_as_the_dialect_says(number, tmp_path):
    lines = [b"1,2,3,4,5,6", NASTY[number], b"6,5,4,3,2,1"]
    assert table_of_lines(lines, tmp_path, 6) == expected_rows(lines, 6)


@pytest.mark.parametrize("length", [LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1, LONGEST_LINE + 2])
@pytest.mark.parametrize("ending", [b"", b"\r"])
def test_a_line_may_be_so_long_and_no_longer_wherever_blocks_end(length, ending, tmp_path, monkeypatch):
    lines = [b"1,2", b"," + b"x" * (length - 1) + ending, b"3,4"]
    for block in (2**22, 2**20 + 1, 1000):
        monkeypatch.setattr(text_module, "BLOCK", block)
        assert (table_of_lines(lines, tmp_path)[1]["c0"] is not None) == (length <= LONGEST_LINE)
    assert len(table_of_lines(lines, tmp_path)) == 3


def test_every_byte_sequence_that_is_no_utf8_is_found():
    """Against the decoder of the language, on all starts of up to three bytes and some of four."""
    from discreet.kernels.lines import _is_utf8

    rng = np.random.default_rng(0)
    edges = [0x00, 0x01, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF]
    edges += [0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    samples = [bytes(rng.choice(edges, size=n).astype(np.uint8)) for n in (1, 2, 3, 4, 5) for _ in range(4000)]
    for sample in samples:
        try:
            valid = "\0" not in sample.decode("utf-8")
        except UnicodeDecodeError:
            valid = False
        assert _is_utf8(np.frombuffer(sample, np.uint8), 0, len(sample)) == valid, sample


@lru_cache
def counts_of(lines: tuple[bytes, ...]):
    with tempfile.TemporaryDirectory() as folder:
        return contribution(lines, Path(folder) / "log.csv")


def nobody_else_moves(lines, hers):
    """Both tables are sums over people: others' plus what her own lines, and nobody else, make of themselves."""
    everybody, alone, own = (counts_of(tuple(part)) for part in (between(lines, hers), lines, between([], hers)))
    for found, there, hers_alone in zip(everybody, alone, own, strict=True):
        assert np.array_equal(found, there + hers_alone)
        assert hers_alone.sum() <= 3 * 2**20 * max(len(hers), 1)


@pytest.mark.parametrize("line", [*range(len(NASTY)), None])
def test_p1_nobody_else_moves_when_one_persons_lines_are_nasty(line):
    nobody_else_moves(others(), NASTY if line is None else [NASTY[line], b"x,1,1,1,0.5,1", NASTY[line]])


@settings(deadline=None, max_examples=40)
@given(
    hers=st.lists(PIECES.filter(lambda line: not re.search(rb"u[0-9]", line)) | st.sampled_from(NASTY), min_size=1),
    seed=st.integers(0, 2),
)
@example(hers=[b'x,0,"'], seed=0)
@example(hers=[b'",'], seed=0)
def test_p1_nobody_else_moves_whatever_bytes_one_person_has(hers, seed):
    """Her bytes name nobody else: who wrote a row must be known from the system that logs, not from the person."""
    nobody_else_moves(others(seed), hers)


CELLS = [
    *("", " ", "nan", "NaN", "inf", "-inf", "1e400", "TRUE", "true", "False", "08:00", "0.50", "١", "1_000", "0x10"),
    *(" 1 ", "+1", "-0", "1.", ".5", "1e0", "1E-1", "--1", "1-", "e5", ".", "+", "1 2", "NULL", "unknown", "2", "3"),
    *("-1", "1.5", "1\n", "\n1", "1\t", "1\r", "1d", "1f", "1L", "0b1", "1,5", "٠", "Ⅷ", "9" * 400, "x" * 100_000),
    *("0" * 1000 + "1", "1e99999999999", "1.0000000000000001", "0.9999999999999999999999", "' OR 1=1 --", '"1"'),
]


def parsed(source, log):
    """What is read in every row: (user, what is there and which number it is, by role)."""
    engine = open_log(source)
    prepare(engine, log)
    rows = engine.fetch("SELECT * FROM parsed ORDER BY person").to_pylist()
    return {row.pop("person"): row for row in rows}


def cells_as(kind: str, roles: dict[str, list[str]], tmp_path):
    """Rows of users 000, 001, …, with these cells."""
    number = len(next(iter(roles.values())))
    values = {"user": [f"{i:03}" for i in range(number)]}
    values |= {name: ["1"] * number for name in ("step", "state", "action", "reward", "next_state")} | roles
    table = pa.table({name: pa.array(column, pa.string()) for name, column in values.items()})
    if kind == "csv":
        with (tmp_path / "log.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([table.column_names, *zip(*values.values(), strict=True)])
    elif kind == "objects":
        return {name: np.array(column, dtype=object) for name, column in values.items()}
    elif kind == "categories":
        return table.set_column(2, "state", table.column("state").dictionary_encode())
    elif kind != "text":
        return typed(kind, table, tmp_path)
    return str(tmp_path / "log.csv") if kind == "csv" else table


@pytest.mark.parametrize("kind", ["csv", "text", "objects", "categories", "parquet", "arrow"])
def test_p1_one_rule_reads_a_cell_of_every_kind_of_text(kind, tmp_path):
    """Files, text in tables and objects: all as the rule says, and as the same cell alone would be read."""
    known = [cell for cell in CELLS if kind != "csv" or "\n" not in cell]  # such a line would be two
    log = LogFormat(3, 2, 3, reward_range=(-1.0, 3.0))
    roles = ("step", "state", "action", "reward", "next_state")
    together = parsed(cells_as(kind, dict.fromkeys(roles, known), tmp_path), log)
    assert len(together) == len(known)
    for i, cell in enumerate(known):
        row, number = together[f"{i:03}"], rule(cell)
        there = cell.strip(" ").lower() not in ("", "nan")
        whole = None if number is None or (number >= 0 and number != np.floor(number)) else number
        for role in ("step", "state", "action", "next_state"):
            assert row[role] == (None if whole is None else min(max(whole, -1), 10**9)), (role, cell[:9])
            assert row[f"{role}_there"] == there, (role, cell[:9])
        paid = None if number is None or not np.isfinite(number) else (number + 1.0) / 4.0
        assert row["paid"] == paid, cell[:9]
        assert row["reward_there"] == there


OBJECTS = [
    *(
        {"a": 1},
        [1],
        (1,),
        b"1",
        b"\xff",
        decimal.Decimal("1"),
        datetime.date(2020, 1, 1),
        np.datetime64("2020-01-01"),
    ),
    *(None, float("nan"), float("inf"), 10**5000, -(10**5000), 1j, object(), "\ud800", {1}, int, lambda: 1, np.nan),
    *(np.zeros(3), pa.scalar(1), range(3), ..., np.array("1", dtype=object)),
]


@pytest.mark.parametrize("role", ["user", "episode", "step", "state", "action", "reward", "next_state"])
def test_p1_objects_that_are_no_value_are_missing_and_quoted_nowhere(role):
    """Every other row has one, and nobody else moves."""
    n, log = len(OBJECTS), LogFormat(3, 2, 1, early_end="keep")
    values = {name: [0] * (2 * n) for name in ("episode", "step", "state", "action", "next_state")}
    values |= {"user": [f"{i}" for i in range(2 * n)], "reward": [0.5] * (2 * n)}
    objects = {name: np.array(part, dtype=object) for name, part in values.items()}
    for i, thing in enumerate(OBJECTS):
        objects[role][2 * i] = thing
    lists = {name: list(part) for name, part in objects.items()}
    for source in (objects, lists):
        found = count(source, log)
        assert found.transitions.sum() == (2 * n if role == "next_state" else n)  # the last step needs no successor
        assert found.transitions[0, 0, 0, 0] == found.transitions.sum()


def test_objects_are_the_text_that_a_file_would_hold():
    name = uuid.UUID(int=7)
    source = {
        "user": [1, "1", 1.0, "1.0", True, np.int8(2), name, str(name)],
        "step": [0, "1", 0.0, "1", np.True_ ^ True, 0, 0, 1],
        "state": [0] * 8,
        "action": [0] * 8,
        "reward": [1, 1.0, np.float32(1), "1", True, "true", np.int64(1), 1],
        "next_state": [0] * 8,
    }
    found = count(source, LogFormat(1, 1, 2, early_end="keep"))
    assert found.num_users == 5  # 1 and "1" are one user, 1.0 and "1.0" another
    assert found.transitions[:, 0, 0, 0].tolist() == [5, 3]
    assert found.reward_sums.sum() == 8 * 2**20


@pytest.mark.parametrize("part", range(6))
def test_p1_the_command_ends_alike_and_quotes_no_cell(part, tmp_path):
    """Some nasty lines at a time, the last time all of them."""
    chosen = NASTY[part::5] if part < 5 else NASTY
    hers = [line.replace(b"x,", b"SECRETX,").replace(b"unknown", b"SECRETX") for line in chosen]
    lines = between(others(), [*hers, b"SECRETX,1,0,SECRETX,0.5,1"])
    (tmp_path / "log.csv").write_bytes(b"\n".join([HEADER, *lines]))
    sizes = ("--states", "3", "--actions", "2", "--horizon", "3", "--users", "50", "--epsilon", "1", "--seed", "1")
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "log.csv"), *sizes, "--out", str(tmp_path / "policy")])
    assert done.exit_code == 0, done.output
    for file in (tmp_path / "policy").iterdir():
        assert b"SECRETX" not in file.read_bytes()
    assert "SECRETX" not in done.output
    assert "99999" not in done.output


def typed(kind: str, table: pa.Table, tmp_path):
    if kind == "parquet":
        pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    elif kind == "arrow":
        pyarrow.feather.write_feather(table, tmp_path / "log.arrow")
    else:
        (tmp_path / "log.duckdb").unlink(missing_ok=True)
        with duckdb.connect(str(tmp_path / "log.duckdb")) as connection:
            connection.register("given", table)
            connection.execute("CREATE TABLE visits AS SELECT * FROM given")
    return str(tmp_path / f"log.{kind}")


@settings(IN_A_FOLDER, max_examples=20)
@given(
    kind=st.sampled_from(["parquet", "arrow", "duckdb"]),
    hers=st.lists(
        st.fixed_dictionaries(
            {
                name: st.none() | st.sampled_from(CELLS) | st.text(max_size=4)
                for name in ("step", "state", "action", "reward", "next_state")
            }
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_p1_nobody_else_moves_whatever_text_one_person_has_in_a_table(kind, hers, tmp_path):
    names = HEADER.decode().split(",")
    rows = [dict(zip(names, line.decode().split(","), strict=True)) for line in others()]
    schema = pa.schema([(name, pa.string()) for name in names])
    mine = [{**row, "user": "x"} for row in hers]
    table = {"table": "visits"} if kind == "duckdb" else {}

    def counts(part):
        found = count(typed(kind, pa.Table.from_pylist(part, schema=schema), tmp_path), LOG, **table)
        return found.transitions, found.reward_sums

    for found, there, own in zip(counts(rows + mine), counts(rows), counts(mine), strict=True):
        assert np.array_equal(found, there + own)


@pytest.mark.parametrize("kind", ["table", "parquet", "arrow"])
@pytest.mark.parametrize("role", ["user", "episode", "state", "reward"])
def test_p1_bytes_that_are_no_text_in_a_column_of_text_are_missing(kind, role, tmp_path):
    """Writers that do not check what they write make such columns, and engines refuse them, quoting the bytes."""
    values = {"user": [b"a", b"b", b"c"], "episode": [b"0"] * 3, "state": [b"0"] * 3, "reward": [b"1"] * 3}
    for bad in (b"\xff", b"a\xe9", b"\xed\xa0\x80", b"SECRETX" * 9 + b"\xc3"):
        cells = {name: [part[0], bad, part[2]] if name == role else part for name, part in values.items()}
        columns = {name: pa.array([0] * 3) for name in ("step", "action", "next_state")}
        for name, part in cells.items():
            _, offsets, data = pa.array(part, pa.binary()).buffers()
            columns[name] = pa.StringArray.from_buffers(3, offsets, data)
        table = pa.table(columns)
        for more in ({}, {"state_names": ("0",)}, {"early_end": "keep", "enforce": False}):
            found = count(table if kind == "table" else typed(kind, table, tmp_path), LogFormat(1, 1, 1, **more))
            assert found.transitions.sum() == (3 if role == "episode" and "enforce" in more else 2)
            assert found.repairs.rows == 3


def test_users_are_compared_character_by_character_and_no_name_is_nobody(tmp_path):
    names = ["1", "1.0", "01", " 1", "", "nan", "NaN", '"1"', "#1", "é", "e\u0301"]
    lines = [f"{name},0,0,0,1,0".encode() for name in names]
    (tmp_path / "log.csv").write_bytes(b"\n".join([HEADER, *lines]))
    found = count(str(tmp_path / "log.csv"), LogFormat(1, 1, 1, early_end="keep"))
    assert found.num_users == 7  # "1" in quotes is 1, which then has its step twice
    assert found.repairs.nobody_rows == 3
    assert found.repairs.repeated_steps == 1
    assert found.transitions.sum() == 6


@pytest.mark.parametrize("user", [pa.array([1.0, float("nan"), 2.0, float("nan")]), pa.array([1, None, 2, None])])
def test_l8_a_row_without_a_user_is_nobodys_and_refuses_nothing(user):
    table = pa.table({name: [0, 0, 0, 0] for name in ("step", "state", "action", "reward", "next_state")})
    for log in (LogFormat(1, 1, 1), LogFormat(1, 1, 1, early_end="keep", enforce=False)):
        found = count(table.append_column("user", user), log)
        assert found.num_users == 2
        assert found.transitions.sum() == 2
        assert found.repairs.nobody_rows == found.repairs.unreadable_rows == 2


def test_episodes_in_text_are_taken_in_order_of_their_numbers(tmp_path):
    """Ten is after two; names come after numbers, and 2.0 is 2."""
    header = b"user,episode,step,state,action,reward,next_state"
    order = ["0", "2", " 3", "10.0", "200", "-1", "a"]
    rng = np.random.default_rng(0)
    for m in range(1, len(order)):
        lines = [f"x,{order[i]},0,{i},0,1,{i}".encode() for i in rng.permutation(len(order))]
        lines += [b"x,,0,7,0,1,7", b"x,nan,0,7,0,1,7"]  # in no episode
        (tmp_path / "log.csv").write_bytes(b"\n".join([header, *lines]))
        found = count(str(tmp_path / "log.csv"), LogFormat(8, 1, 1, early_end="keep", episodes_per_user=m))
        assert found.transitions.sum(axis=(0, 2, 3)).tolist() == [1] * m + [0] * (8 - m)
    same = [b"x,2,0,0,0,1,0", b"x,2.0,0,0,0,1,0"]
    (tmp_path / "log.csv").write_bytes(b"\n".join([header, *same]))
    assert count(str(tmp_path / "log.csv"), LogFormat(8, 1, 1)).repairs.repeated_steps == 1


def test_numbers_of_episodes_in_text_are_used_like_typed_ones(tmp_path):
    header = b"user,episode,step,state,action,reward,next_state"
    lines = [f"{u},{e},0,0,0,1,0".encode() for u in "ab" for e in range(12)]
    (tmp_path / "log.csv").write_bytes(b"\n".join([header, *lines]))
    data = LoggedData(str(tmp_path / "log.csv"), LogFormat(1, 1, 1, episodes_per_user=11))
    assert data._shortcut == "episode <= 'B10'"
    assert data.counts().transitions.sum() == 22
    sly = [b"x,A' OR TRUE --,0,0,0,1,0", b"x,B10,0,0,0,1,0"]  # names are kept apart from numbers
    (tmp_path / "log.csv").write_bytes(b"\n".join([header, *lines, *sly]))
    data = LoggedData(str(tmp_path / "log.csv"), LogFormat(1, 1, 1, episodes_per_user=20))
    assert data._shortcut == "TRUE"
    assert data.counts().transitions.sum() == 26


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".tsv.gz"])
def test_line_ends_byte_order_marks_and_compression(ending, start, suffix, tmp_path):
    rows = [line.replace(b",", b"\t") if "tsv" in suffix else line for line in (HEADER, *others())]
    content = start + ending.join(rows)
    path = tmp_path / f"log{suffix}"
    half = len(content) // 2
    members = gzip.compress(content[:half]) + gzip.compress(content[half:])  # a file may have several
    path.write_bytes(members if suffix.endswith(".gz") else content)
    expected = contribution(others(), tmp_path / "plain.csv")
    found = count(str(path), LOG)
    assert np.array_equal(found.transitions, expected[0])
    assert np.array_equal(found.reward_sums, expected[1])
    assert found.repairs.malformed_lines == 0


def test_files_of_text_may_have_other_columns_in_another_order(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\n".join([HEADER, *others()[:9]]))
    rest = [b",".join(reversed(line.split(b","))) + b",more" for line in others()[9:]]
    head = b",".join(reversed(HEADER.split(b","))) + b",comment,\n"
    (tmp_path / "b.csv").write_bytes(head + b"\n".join(line + b"," for line in rest))
    found = count(str(tmp_path / "*.csv"), LOG)
    assert np.array_equal(found.transitions, contribution(others(), tmp_path / "plain.csv")[0])
    assert found.repairs.unreadable_rows == 0


def test_semicolons_in_the_first_line_separate_all_lines_and_allow_a_decimal_comma(tmp_path):
    """By the first line alone, which is public: 1,5 and 1.5 are one number there, and 1.000,5 is none."""
    lines = [line.replace(b",", b";") for line in others()]
    (tmp_path / "points.csv").write_bytes(b"\n".join([HEADER.replace(b",", b";"), *lines]))
    (tmp_path / "commas.csv").write_bytes(b"\n".join([HEADER.replace(b",", b";"), *lines]).replace(b".", b","))
    expected = contribution(others(), tmp_path / "plain.csv")
    for name in ("points.csv", "commas.csv"):
        found = count(str(tmp_path / name), LOG)
        assert np.array_equal(found.transitions, expected[0])
        assert np.array_equal(found.reward_sums, expected[1])
    quoted = HEADER.replace(b",", b";").replace(b"next_state", b'next_state;"a, b"')
    wrong = [b"v;0;0;1;1.000,5;0;x", b"w;0;0;1;1,0,0;0;x", b"x;0,0;0;1;1;0;x"]
    (tmp_path / "quoted.csv").write_bytes(b"\n".join([quoted, *(line + b";x" for line in lines), *wrong]))
    found = count(str(tmp_path / "quoted.csv"), replace(LOG, num_users=60))
    assert found.repairs.columns == {"reward": {"not a number": 2}}  # 0,0 is 0
    assert found.repairs.malformed_lines == 0
    with pytest.raises(ValueError, match="have commas and semicolons; give files of one kind"):
        count([str(tmp_path / "plain.csv"), str(tmp_path / "points.csv")], LOG)


@pytest.mark.parametrize("hers", [b"u9;0;0;1;1,5;0", b";;;;;;", b'"u9;0";0', b"u9,0,0,1,1;5,0"])
def test_semicolons_of_one_person_separate_nothing(hers, tmp_path):
    """Nor does a comma in her number become a decimal one where the first line has commas."""
    expected = contribution(others(), tmp_path / "plain.csv")
    found = contribution([*others()[:5], hers, *others()[5:]], tmp_path / "touched.csv")
    assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\nu0,0,0,0,0,0", "first line of .* is empty"),
        (b"u0,0,0,0,0,0\nu1,0,0,0,0,0", "names a column twice"),
        (b"u0,0,1,2,0.5,3\nu1,0,0,0,0,0", "its first line must name the columns"),
        (b"user,step,State,state,action,reward\n", "names a column twice"),
        ("user,step,state,action,réward\n".encode("latin-1"), "expected UTF-8"),
        ("user,step,state,action,reward\n".encode("utf-16"), "expected UTF-8"),
        (b"user,step,state,action,reward\ru0,0,0,0,0\r", "one line per row"),
        (b'user,"step,state,action,reward\n', "names no columns"),
        (b"a" * (LONGEST_LINE + 5), "names no columns"),
        (b"user,step,state,action\n", "no column 'reward'; its columns are user, step, state, action"),
    ],
)
def test_a_first_line_that_names_no_columns_is_refused_without_quoting_rows(content, words, tmp_path):
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words) as error:
        count(str(tmp_path / "log.csv"), LOG)
    assert "u0" not in str(error.value).replace(str(tmp_path), "")
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("damage", ["cut", "no gzip"])
def test_compressed_text_that_is_damaged_is_refused_in_one_sentence(damage, tmp_path):
    content = gzip.compress(b"\n".join([HEADER, *others() * 2000]), mtime=0)
    (tmp_path / "log.csv.gz").write_bytes(content[: len(content) // 2] if damage == "cut" else b"u0" + content)
    with pytest.raises(ValueError, match="cannot be read") as error:
        count(str(tmp_path / "log.csv.gz"), LOG)
    assert "\n" not in str(error.value)


def test_what_an_engine_says_about_values_stays_with_it():
    engine = open_log(pa.table({"user": ["SECRET"]}))
    with pytest.raises(ValueError, match="cannot be read") as error:
        engine.fetch('SELECT CAST("user" AS INT) FROM log')
    assert "SECRET" not in str(error.value)
    assert error.value.__suppress_context__


def test_l6_repairs_name_the_column_and_the_reason(tmp_path):
    header = b"patient,episode,step,state,action,reward,next_state"
    lines = [
        *(b"a,0,0,ward,0,0.5,ward", b"a,0,1,ward,1,7,ward", b"a,0,2,ward,1,-7,"),
        *(b"b,0,x,ward,0,0,ward", b"b,0,,ward,0,0,ward", b"b,0,9,ward,0,0,ward", b"b,0,1.5,ward,0,0,ward"),
        *(b"c,0,0,moon,0,0,ward", b"c,0,0,,0,0,ward", b"c,0,0,ward,2,0,ward", b"c,0,0,ward,-1,0,ward"),
        *(b"d,0,0,ward,0,much,ward", b"d,0,0,ward,0,,ward", b"d,0,0,ward,0,1e999,moon"),
        *(b"e,,0,ward,0,0,ward", b",0,0,ward,0,0,ward", b"e,0,0,ward", b'"', b"f,0,0,ward,0,0,ward,"),
    ]
    (tmp_path / "log.csv").write_bytes(b"\n".join([header, *lines]))
    log = LogFormat(1, 2, 3, state_names=("ward",), columns={"user": "patient"}, first_step=0)
    found = count(str(tmp_path / "log.csv"), log).repairs
    assert found == Repairs(
        rows=19,
        unreadable_rows=15,
        repeated_steps=0,
        cut_rows=1,
        malformed_lines=3,
        nobody_rows=1,
        columns={
            "episode": {"missing": 1},
            "step": {"missing": 1, "not a whole number": 2, "outside 0..2": 1},
            "state": {"missing": 1, "not a declared name": 1},
            "action": {"outside 0..1": 2},
            "reward": {"missing": 1, "not a number": 2, "below 0, clipped": 1, "above 1, clipped": 1},
            "next_state": {"not a declared name": 1},
        },
    )
    told = found.sentences()
    assert told[:3] == (
        "15 rows that cannot be read, left out",
        "3 of these are malformed lines (fields, quotes, encoding)",
        "1 of these name no user",
    )
    assert "column 'reward': 1 missing, 2 not a number, 1 below 0, clipped, 1 above 1, clipped" in told
    trusted = LogFormat(1, 2, 3, state_names=("ward",), columns={"user": "patient"}, early_end="keep", enforce=False)
    assert count(str(tmp_path / "log.csv"), trusted).repairs.columns == found.columns


def test_l6_clipping_is_told_even_where_every_row_can_be_read():
    columns = {name: [0, 0, 0] for name in ("step", "state", "action", "next_state")}
    table = pa.table({**columns, "user": [0, 1, 2], "purchase": [3.5, float("inf"), -1.0]})
    log = LogFormat(1, 1, 1, columns={"reward": "purchase"}, reward_range=(0.0, 2.0))
    found = count(table, log).repairs
    assert found.columns == {"purchase": {"below 0, clipped": 1, "above 2, clipped": 2}}
    assert found.unreadable_rows == 0
    assert count(table, LogFormat(1, 1, 1, columns={"reward": "purchase"}, reward_range=(0.0, 2.0))).transitions.sum()


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float64(), pa.string()], ids=str)
def test_l8_steps_may_be_counted_from_one(kind):
    rng = np.random.default_rng(0)
    n, H = 20, 4
    columns = {name: rng.integers(2, size=n * H) for name in ("state", "action", "reward", "next_state")}
    columns |= {"user": np.repeat(np.arange(n), H)}
    zero = pa.table({**columns, "step": np.tile(np.arange(H), n)})
    one = pa.table({**columns, "step": pa.array(np.tile(np.arange(H), n) + 1).cast(kind)})
    expected = count(zero, LogFormat(2, 2, H)).transitions
    assert np.array_equal(count(one, LogFormat(2, 2, H, first_step=1)).transitions, expected)
    hint = "no row has step 0: if steps are counted from 1, say so (--first-step 1, first_step=1)"
    assert hint in count(one, LogFormat(2, 2, H)).repairs.sentences()
    assert hint not in count(zero, LogFormat(2, 2, H)).repairs.sentences()
    assert hint not in count(one, LogFormat(2, 2, H, first_step=1)).repairs.sentences()
    low = count(zero, LogFormat(2, 2, H, first_step=1, early_end="keep"))
    assert low.repairs.columns["step"] == {"outside 1..4": n}
    top = pa.table({**columns, "step": pa.array([127] * (n * H)).cast(kind)})
    assert count(top, LogFormat(2, 2, H, first_step=1)).transitions.sum() == 0


def test_l8_bools_are_zero_and_one():
    n = 12
    flags = np.arange(n) % 2 == 0
    numbers = {name: flags.astype(np.int64) for name in ("state", "action", "reward", "next_state")}
    rest = {"user": np.arange(n), "step": np.zeros(n, np.int64)}
    expected = count(rest | numbers, LogFormat(2, 2, 1, early_end="keep"))
    for kind in (pa.bool_(), pa.string()):
        table = pa.table(
            rest | {name: pa.array(values).cast(pa.bool_()).cast(kind) for name, values in numbers.items()}
        )
        found = count(table, LogFormat(2, 2, 1, early_end="keep"))
        assert np.array_equal(found.transitions, expected.transitions)
        assert np.array_equal(found.reward_sums, expected.reward_sums)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"state": "action"}, "'action' to both state and action"),
        ({"next_state": "state"}, "'state' to both state and next_state"),
        ({"usr": "x"}, "did you mean 'user'"),
        ({"nextstate": "x"}, "did you mean 'next_state'"),
        ({"zzz": "x"}, "the roles of columns are user"),
    ],
)
def test_l8_columns_that_cannot_be_meant_are_refused(columns, words):
    with pytest.raises(ValueError, match=words):
        LogFormat(2, 2, 2, columns=columns)
    LogFormat(2, 2, 2, columns={"user": "episode"})  # every episode is another user


@pytest.mark.parametrize("first_step", [-1, 1.5, "1", 10**9])
def test_a_first_step_is_a_whole_number(first_step):
    with pytest.raises(ValueError, match="first_step"):
        LogFormat(2, 2, 2, first_step=first_step)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb\n", ("a", "b")),
        (b"\xef\xbb\xbfa\r\n\r\n  \nb", ("a", "b")),
        ("é\n\u2028x".encode(), ("é", "x")),
        ("é".encode("latin-1"), "is not UTF-8 text; save it in that encoding"),
        ("a\nb".encode("utf-16"), "is not UTF-8 text"),
        (b"a\nb\na\n", "names 'a' twice"),
        (b"\n\n", "holds no names"),
    ],
)
def test_l8_files_of_names(content, expected, tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes(content)
    if isinstance(expected, tuple):
        assert listed("--states", str(path)) == (len(expected), expected)
    else:
        with pytest.raises(ValueError, match=expected):
            listed("--states", str(path))
        sizes = ("--actions", "2", "--horizon", "3", "--epsilon", "1", "--out", str(tmp_path / "out"))
        done = CliRunner().invoke(app, ["fit", "absent.csv", "--states", str(path), *sizes])
        assert done.exit_code == 2
        assert len(done.stderr.strip().splitlines()) == 1


def test_the_command_maps_columns_and_counts_steps_from_one(tmp_path):
    lines = [re.sub(rb",(\d),", lambda m: b",%d," % (int(m[1]) + 1), line, count=1) for line in others()]
    (tmp_path / "log.csv").write_bytes(b"\n".join([HEADER.replace(b"user", b"patient"), *lines]))
    sizes = ("--states", "3", "--actions", "2", "--horizon", "3", "--epsilon", "1", "--seed", "1")

    def fit(*more):
        command = ["fit", str(tmp_path / "log.csv"), *sizes, "--out", str(tmp_path / f"p{len(more)}"), *more]
        return CliRunner().invoke(app, command)

    hinted = fit("--columns", "user=patient")
    assert hinted.exit_code == 0
    assert "--first-step 1" in hinted.stderr
    done = fit("--columns", "user=patient", "--first-step", "1")
    assert done.exit_code == 0
    assert "--first-step" not in done.stderr
    for columns, words in (
        ("state=action", "both state and action"),
        ("user=a,user=b", "twice"),
        ("user= ", "joined"),
    ):
        refused = fit("--columns", columns)
        assert refused.exit_code == 2
        assert words in refused.stderr


def test_small_public_files_are_read_strictly(tmp_path):
    log = log_format("2", "1", 2, False)
    path = tmp_path / "public.csv"
    path.write_bytes(b"\xef\xbb\xbfstate,probability\n0,0.25\n1,0.75\n")
    assert start_of(str(path), log).tolist() == [0.25, 0.75]
    assert read_rows(path, "state")[0]["state"] == "0"
    path.write_bytes(
        b"step,state,action,reward\n" + b"".join(b"%d,%d,0,1\n" % (h, s) for h in (1, 2) for s in (0, 1))
    )
    assert read_rewards(path, LogFormat(2, 1, 2, first_step=1)).tolist() == [[[1.0], [1.0]]] * 2
    for content, read, words in (
        (b"state,probability\n0,1\n0,0\n", start_of, "'0' twice"),
        (b"state,probability\n0,nan\n", start_of, "expected a number"),
        (b"state,probability\n0\n", start_of, "expected a number"),
        (b"state,probability\n\xe9,1\n", start_of, "not UTF-8"),
        (b"state,action,reward\n0,0,1\n0,0,1\n1,0,1\n", read_rewards, "twice"),
        (b"step,state,action,reward\n0,0,0,1\n2,0,0,1\n", read_rewards, "no step of the 2"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            read(str(path) if read is start_of else path, log)
    np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.zeros(2))
    np.save(tmp_path / "complex.npy", np.zeros(2, complex))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "zip.npy").write_bytes(b"PK\x03\x04junk")
    for name in ("two.npz", "complex.npy", "empty.npy", "zip.npy", "absent.npy"):
        with pytest.raises(ValueError, match=r"holds|expected"):
            read_features(tmp_path / name)


def test_l8_half_floats_are_numbers_and_types_nobody_reads_are_refused_in_one_sentence(tmp_path):
    columns = {
        "user": [0, 0, 1],
        "step": [0, 1, 0],
        "state": [0, 1, 1],
        "action": [0, 0, 0],
        "reward": [0.5, 1.0, 0.0],
    }
    whole = pa.table({name: pa.array(values, pa.float64()) for name, values in columns.items()})
    half = pa.table({name: pa.array(values, pa.float64()).cast(pa.float16()) for name, values in columns.items()})
    pyarrow.feather.write_feather(half, str(tmp_path / "half.arrow"), compression="uncompressed")
    expected = count(whole, LogFormat(2, 1, 2))
    for source in (half, tmp_path / "half.arrow"):
        found = count(source, LogFormat(2, 1, 2))
        assert (found.reward_sums == expected.reward_sums).all()
    odd = whole.append_column("other", pa.array([None] * 3, pa.decimal256(50, 2)))
    with pytest.raises(ValueError, match="a type that cannot be read"):
        count(odd, LogFormat(2, 1, 2))
