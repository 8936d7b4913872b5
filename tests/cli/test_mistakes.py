"""What strangers do wrong is answered in one sentence that says what was wrong and what was expected."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path

import pytest
from test_examples import SHOP, SWEEP, visits
from typer.testing import CliRunner

from discreet.cli import app

SIZES = "--states 3 --actions 2 --horizon 4 --pooled"
FIT = f"{SIZES} --epsilon 1 --out policy"


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """Files with one mistake each."""
    folder = tmp_path_factory.mktemp("mistakes")
    log = visits(200, 0, ["0", "1", "2"], ["0", "1"])
    files = {
        "visits.csv": log,
        "headless.csv": "u7,3,2,1,0.5\n" + log,
        "odd.csv": log.replace("user,step,state,action,reward", "Pat-ID,Tag,Lage,Tat,Lohn"),
        "renamed.csv": log.replace("state", "status"),
        "empty.csv": "",
        "damaged.parquet": "hello",
        "table.xlsx": "hello",
        "file": "",
        "shop.toml": SHOP,
        "broken.toml": "name = \n",
        "misspelt.toml": SHOP.replace("horizon =", "horizonn ="),
        "sweep.toml": SWEEP.replace('"ucbvi"', '"ucbvvi"'),
        "mine.py": "learner = 1\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    (folder / "learned").mkdir()
    (folder / "learned" / "certificate.html").write_text("")
    return folder


def refused(folder: Path, line: str, answer: str = "", code: int = 2) -> str:
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(app, shlex.split(line), input=answer, prog_name="discreet")
    finally:
        os.chdir(before)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("Error: ")
    return sentence


MISTAKES = {
    # names
    "rnu ucbvi": "there is no command rnu; did you mean run?",
    "suite lst": "there is no command lst; did you mean list?",
    "deploy begin": "there is no command begin; `discreet deploy --help` lists them",
    "run ucbvi --epsilom 1": "there is no option --epsilom; did you mean --epsilon or --episodes?",
    "run ucbvi --xyzzy": "there is no option --xyzzy; `discreet run --help` lists them",
    "run ucbvii": "unknown algorithm 'ucbvii'; did you mean 'ucbvi'?",
    "run ucbvi --env rivrswim": "unknown environment 'rivrswim'; did you mean 'riverswim'?",
    "run spotlight --epsilon 1 --model lokal": "choose one of joint, two-servers, local, shuffle",
    "audit tre": "there is no mechanism 'tre' to audit; did you mean 'tree'?",
    "bound dp-ucbvii": "did you mean 'dp-ucbvi'?",
    "reproduce wzcw23": "did you mean 'wzcw23-figure-4'?",
    "suite run spotlight --problem gird": "did you mean 'grid'?",
    "suite list --suite v9": "unknown suite 'v9'; choose one of v1",
    "suite run mine:learnr": "mine has no 'learnr'; did you mean 'learner'?",
    f"fit visits.csv {FIT} --algorithm one-hott": "choose one of auto, one-hot",
    "sweep sweep.toml --out results": "unknown algorithm 'ucbvvi'; did you mean 'ucbvi'?",
    "poison --attack swp": "choose one of swap, claim, deny, garbage",
    # what is missing
    "run": "the argument NAME is missing (A learner; `discreet algorithms` lists them",
    f"fit visits.csv {SIZES} --epsilon 1": "--out is missing (Where to write: a folder for the policy",
    "fit visits.csv --epsilon 1 --out policy": "--states is missing",
    f"fit visits.csv {SIZES} --out policy": "state a budget",
    "run dp-ucbvi": "dp-ucbvi is private: give it a budget with epsilon",
    "calibrate": "state a budget",
    "audit": "name a mechanism to audit: local,",
    "visit http://127.0.0.1:9": "--token is missing (The app's token)",
    f"fit visits.csv {SIZES} --eps 1 --out policy": "there is no option --eps; did you mean --epsilon?",
    "report learned": "'learned' holds a policy and no runs; its page is learned/certificate.html",
    # numbers
    "run dp-ucbvi --epsilon 0": "epsilon is 0; it must be positive",
    "run dp-ucbvi --epsilon one": "--epsilon has a wrong value; it must be a number",
    "run ucbvi --users -5": "episodes is -5; at least one user must play",
    "run ucbvi --users 1.5": "it must be a whole number",
    "run ucbvi --seeds 5:1": "5:1 is empty",
    "run ucbvi --jobs 0": "--jobs is 0; it must be at least 1, or -1 for every core",
    "run ucbvi --epsilon 1": "ucbvi is not private: it takes no epsilon",
    "calibrate --epsilon 0": "epsilon is 0; it must be positive",
    "calibrate --epsilon 1 --delta -1": "delta is -1; it must lie strictly between 0 and 1",
    "calibrate --epsilon 1 --delta nan": "delta is nan; it must lie strictly between 0 and 1",
    "calibrate --epsilon 1 --states 0": "states is 0; it must be at least 1",
    "demo --users 0": "episodes is 0; at least one user must play",
    f"fit visits.csv {FIT} --users -3": "users is -3; it must be at least 1",
    "serve shop.toml --port 99999": "--port has a wrong value; it must be less than or equal to 65535",
    "explore --port 99999": "--port is 99999; it must lie between 1 and 65535",
    # files and folders
    f"fit absent.csv {FIT}": "no file matches absent.csv",
    f"fit headless.csv {FIT}": "its first line must name the columns, and names none of these",
    "check headless.csv": "the log begins with a row; its first line must name the columns",
    "declare headless.csv": "the log begins with a row; its first line must name the columns",
    f"fit odd.csv {FIT}": "and names none of these (say which they are: user=NAME)",
    "check odd.csv": "its columns are Pat-ID, Tag, Lage, Tat, Lohn (--columns user=NAME)",
    f"fit renamed.csv {FIT}": "no column 'state'; its columns are user, step, status, action, reward",
    f"fit empty.csv {FIT}": "empty.csv holds an empty file; a log needs a header and rows",
    f"fit damaged.parquet {FIT}": "damaged.parquet cannot be read: it is damaged or not of the kind",
    f"fit table.xlsx {FIT}": "table.xlsx is of no known kind; expected .parquet, .csv",
    f"fit visits.csv {SIZES} --epsilon 1 --out file": "file cannot be a folder, for file is a file",
    f"fit visits.csv {FIT} --sign absent.pem": "absent.pem holds no readable private key",
    "run ucbvi --out file": "cannot write results to 'file'",
    "declare visits.csv --out visits.csv": "visits.csv is there already; give another name",
    "verify absent": "absent is not a folder",
    "evaluate folder": "folder holds no certificate.json",
    "plot folder": "there are no results in 'folder'; make some with",
    "results absent": "there is no folder 'absent'",
    "sweep absent.toml --out results": "absent.toml: No such file or directory",
    "sweep broken.toml --out results": "'broken.toml' is not TOML: Invalid value (at line 1, column 8)",
    "deploy init absent.toml": "there is no file absent.toml",
    "deploy init misspelt.toml": "[problem] has no setting 'horizonn'; it has actions",
    "deploy status shop.toml": "begin the deployment with discreet deploy init",
    "deploy verify folder": "there is no log.jsonl in folder",
    # servers
    "serve shop.toml": "begin the deployment with discreet deploy init",
    "visit http://127.0.0.1:9 --token x": "no deployment answers at http://127.0.0.1:9; start it with",
    "visit nonsense --token x": "must look like https://host:port",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_answered_in_a_sentence(line, desk, monkeypatch):
    monkeypatch.syspath_prepend(str(desk))
    assert MISTAKES[line] in refused(desk, line)


def test_a_group_without_a_command_shows_its_help():
    done = CliRunner().invoke(app, ["deploy"])
    assert (done.exit_code, done.stderr) == (2, "")
    assert "Begin a deployment" in done.stdout


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_port_in_use_is_refused(role, tmp_path):
    """Workers could share it: half of the people would then ask somebody else."""
    (tmp_path / "shop.toml").write_text(SHOP)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refused(tmp_path, f"serve shop.toml --port {port} --role {role}")
    assert f"127.0.0.1:{port} cannot be listened on: Address already in use" in said


def test_a_question_that_nobody_answers_does_nothing(tmp_path):
    (tmp_path / "shop.toml").write_text(SHOP)
    assert CliRunner().invoke(app, ["deploy", "init", str(tmp_path / "shop.toml")]).exit_code == 0
    for answer, words in (("", "nobody answered"), ("n\n", "nothing was done")):
        asked = CliRunner().invoke(app, ["deploy", "retire", str(tmp_path / "shop.toml"), "-o", "x"], input=answer)
        assert asked.exit_code == 2
        assert words in asked.stderr
