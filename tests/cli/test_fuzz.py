"""Whatever people type and whatever their files hold: an exit code that is documented, one sentence, nobody's cell.

Commands run inside this process, where an unexpected exception is seen as such instead of as a traceback.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from discreet.catalog import ALGORITHMS
from discreet.cli import app

DONE, ALTERED, REFUSED = 0, 1, 2
CANARY = "Zq7Canary"
#: How a value of an option may look.
WORDS = st.sampled_from(
    ["", " ", "0", "1", "-1", "2.5", "1e9", "1e400", "nan", "inf", "-inf", "x", "0:1", "1:0", "a=b", "ε", "--", "\0",
     "1,2,3", "99999999999999999999", "true", "None", "0x10", "*", "/", "..", "%s", "{}", "'; DROP TABLE log; --"]
)  # fmt: skip


def answer(arguments: list[str]) -> tuple[int, str]:
    """Exit code and everything that was printed; anything but a documented way to end is an error of ours."""
    found = CliRunner().invoke(app, arguments)
    error = found.exception
    assert error is None or isinstance(error, SystemExit), (arguments, repr(error))
    assert "Traceback" not in found.output
    return found.exit_code, found.output


def options(spec: dict[str, st.SearchStrategy[str] | None]) -> st.SearchStrategy[list[str]]:
    """Some of the options, in any order, with values that fit or any words; None: an option without a value."""
    one = [
        st.just([name]) if good is None else st.tuples(st.just(name), st.one_of(good, WORDS)).map(list)
        for name, good in spec.items()
    ]
    return st.lists(st.one_of(*one), max_size=6, unique_by=lambda pair: pair[0]).map(
        lambda pairs: [word for pair in pairs for word in pair]
    )


def of(*values: object) -> st.SearchStrategy[str]:
    return st.sampled_from([str(value) for value in values])


# Command lines ------------------------------------------------------------------------------------------------------

RUN = options(
    {
        "--env": of("riverswim", "chain", "dirichlet", "nowhere"),
        "--states": of(3, 4),
        "--horizon": of(1, 2, 5),
        "--instance": of(0, 1),
        "--pooled": None,
        "--schedule": of("every", "epochs"),
        "--confidence-scale": of(0, 0.5),
        "--reward-law": of("bernoulli", "deterministic"),
        "--alpha": of(1.5),
        "--bonus": of("hoeffding", "bernstein"),
        "--constants": of("paper", "practical"),
        "--epsilon": of(0.5, 1, 20),
        "--delta": of(1e-6),
        "--model": of("joint", "local", "shuffle"),
        "--neighbours": of("replace", "zero-out"),
        "--local-reports": of("laplace"),
        "--honest": of(0.5),
        "--adversary": of("switch", "iid"),
        "--seeds": of("0", "0:2"),
        "--json": None,
    }
)


@settings(max_examples=150)
@given(name=st.sampled_from([*sorted(ALGORITHMS), "no-such-learner", ""]), more=RUN)
def test_any_command_line_of_run_ends_in_a_documented_way(name, more):
    code, text = answer(["run", name, "--episodes", "30", *more])
    assert code in (DONE, REFUSED)
    if code == DONE and "--json" in more:
        json.loads(text[text.index("{") : text.rindex("}") + 1])


@settings(max_examples=100)
@given(
    command=st.sampled_from(
        ["calibrate", "audit", "algorithms", "envs", "verify", "evaluate", "plot", "declare", "check", "nonsense"]
    ),
    words=st.lists(WORDS, max_size=2),
    more=options(
        {
            "--epsilon": of(0.5, 1),
            "--delta": of(1e-6),
            "--states": of(3),
            "--actions": of(2),
            "--horizon": of(2),
            "--episodes": of(50),
            "--trials": of(10),
            "--offline": None,
            "--model": of("joint", "local", "shuffle"),
            "--json": None,
            "--env": of("riverswim"),
            "--out": of("picture.txt"),
            "--public-key": of("no-such-file"),
            "--require-signature": None,
            "--declare": of("no-such-file"),
            "--state": of("x:0..1", "x:0..1/edges:.5,missing", "x:{A,B}"),
            "--interval": of("4h"),
        }
    ),
)
def test_any_other_command_line_ends_in_a_documented_way(command, words, more):
    code, _ = answer([command, *words, *more])
    assert code in (DONE, ALTERED, REFUSED)


# Logs ---------------------------------------------------------------------------------------------------------------

FIT = options(
    {
        "--epsilon": of(1),
        "--delta": of(1e-6),
        "--rho": of(0.5),
        "--algorithm": of("one-hot", "dp-apvi", "apvi"),
        "--constants": of("paper"),
        "--pooled": None,
        "--neighbours": of("zero-out"),
        "--episodes-per-user": of(2),
        "--columns": of("user=patient", "state=action", "reward=score"),
        "--reward-range": of("-1:1"),
        "--ended-pays": of(-1),
        "--first-step": of(1),
        "--initial": of("0"),
        "--plan-horizon": of(5, 1_000_000),
        "--early-end": of("keep"),
        "--users": of(50),
        "--trust-bounds": None,
        "--seed": of(1),
        "--json": None,
        "--total-epsilon": of(1, 5),
    }
)
CELL = st.one_of(
    st.integers(-1, 3).map(str),
    st.sampled_from(["", "nan", "1.0", "0.5", "true", "1e400", "-inf", '"', '""', "#", "a,b", ";", "\t", "'"]),
    st.just(CANARY),
    st.text(max_size=4).map(lambda text: CANARY + text.replace("\n", "").replace("\r", "")),
)
ROW = st.lists(CELL, min_size=4, max_size=8)
HEADER = "user,step,state,action,reward,next_state"


def steady_rows(users: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [
        ",".join(map(str, [u, h, *rng.integers(0, [3, 2]).tolist(), rng.integers(0, 2), rng.integers(0, 3)]))
        for u in range(users)
        for h in range(2)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def fitted(folder: Path, content: bytes, more: list[str], name: str = "log.csv") -> tuple[int, str]:
    """`fit` in a fresh folder: afterwards there is a whole policy or none."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    sizes = ["--states", "3", "--actions", "2", "--horizon", "2"]
    code, text = answer(["fit", str(folder / name), *sizes, "--anyway", "--out", str(folder / "policy"), *more])
    left = {path.name for path in folder.iterdir()} - {name, f"{name}.spent.jsonl"}
    assert left == ({"policy"} if code == DONE else set()), (code, text)
    return code, text


@settings(max_examples=150)
@given(more=FIT)
def test_any_command_line_of_fit_writes_a_whole_policy_or_none(folder, more):
    code, _ = fitted(folder, "\n".join([HEADER, *steady_rows(20), ""]).encode(), more)
    assert code in (DONE, REFUSED)


@settings(max_examples=150)
@given(
    rows=st.lists(st.one_of(ROW.map(",".join).map(str.encode), st.binary(max_size=40)), min_size=1, max_size=4),
    ending=st.sampled_from([b"\n", b"\r\n"]),
    more=st.sampled_from([[], ["--pooled"], ["--early-end", "keep"], ["--algorithm", "dp-apvi"], ["--users", "90"]]),
    name=st.sampled_from(["log.csv", "log.csv.gz"]),
)
@example(rows=[CANARY.encode() * 200_000], ending=b"\n", more=[], name="log.csv")
def test_any_rows_of_a_log_are_read_or_left_out_and_never_shown(folder, rows, ending, more, name):
    rows = [row.replace(b"\n", b"") for row in rows]
    content = ending.join([HEADER.encode(), *(line.encode() for line in steady_rows(8)), *rows, b""])
    code, text = fitted(folder, content, ["--epsilon", "1", "--seed", "1", *more], name)
    assert code == DONE
    assert CANARY not in text
    for path in (folder / "policy").iterdir():
        assert CANARY.encode() not in path.read_bytes()


@settings(max_examples=60)
@given(content=st.binary(max_size=60), name=st.sampled_from(["log.csv", "log.parquet", "log.arrow", "log.duckdb"]))
def test_files_that_are_no_logs_are_refused_in_a_sentence(folder, content, name):
    code, text = fitted(folder, content, ["--epsilon", "1"], name)
    assert code == REFUSED
    assert "Error: " in text
