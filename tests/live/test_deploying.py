"""The commands of a deployment: what they say, what they refuse, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

import discreet
from discreet.cli import app
from discreet.live import server, terms
from discreet.live.deployment import Granted
from discreet.live.desk import Desk, Wish
from discreet.live.people import Person
from discreet.privacy.noise import NoiseSource
from discreet.runs import poisoning

CHARTER = """
name = "river"
[problem]
states = 3
actions = ["left", "right"]
horizon = 4
pooled = true
start = 0
[privacy]
model = "{model}"
epsilon = {epsilon}
users = {users}
[serving]
patience = "1s"
"""
WORLD = discreet.make("riverswim", 3, 4)


def invoke(*arguments: object, code: int = 0, answer: str | None = None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=answer)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def refused(*arguments: object) -> str:
    """The one sentence on standard error."""
    result = invoke(*arguments, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def written(folder: Path, model: str = "joint", epsilon: float = 4.0, users: int = 120) -> Path:
    path = folder / "river.toml"
    path.write_text(CHARTER.format(model=model, epsilon=epsilon, users=users))
    return path


@pytest.fixture
def file(tmp_path) -> Path:
    path = written(tmp_path)
    invoke("deploy", "init", path)
    return path


def came(file: Path, people: int, first: int = 0) -> None:
    """People report to the store itself, as fast as a clock of their own goes."""
    clock = [first * 10_000]
    desk = Desk.open(file, clock=lambda: clock[0], noise=NoiseSource.seeded(first))
    coins = NoiseSource.seeded(7)
    for i in range(first, first + people):
        user = desk.secrets.user(f"user {i}")
        (ticket,) = desk.decided([Wish.enrol(user)])
        assert isinstance(ticket, Granted), ticket
        epoch = desk.state.epoch(ticket.epoch)
        assert epoch is not None
        walked = Person(WORLD, str(i)).walk(epoch.announcement, desk.secrets.ticket(user))
        desk.decided([Wish.report(user, epoch.announcement.encoder.payload(*walked, coins))])
        if desk.state.open[-1].full:
            clock[0] += 2_000
            desk.release()
    desk.close()


# Begin --------------------------------------------------------------------------------------------------------------


def test_init_says_what_is_promised_and_creates_everything_once(tmp_path):
    path = written(tmp_path)
    said = invoke("deploy", "init", path).stdout
    for line in (
        "guarantee: joint DP, ε = 4 per user, replace-one",
        "users: with 120 users and ε = 4, one report each can",
        "seen: not protected: that somebody takes part, when she came",
        "lies: no noise protects from people who lie",
    ):
        assert line in said
    tokens = re.findall(r"^(?:app|operator) token: (\S{40,})$", said, re.MULTILINE)
    assert len(set(tokens)) == 2
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes["river.keys"] == modes["river.db"] == 0o600
    assert {"river.head", "river.pem"} <= set(modes)
    content = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    assert not any(token.encode() in content for token in tokens)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert "exists already" in refused("deploy", "init", path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_users_needed_are_those_of_calibrate(tmp_path):
    path = written(tmp_path, epsilon=1.0, users=50)
    found = json.loads(invoke("deploy", "init", path, "--dry-run", "--json").stdout)
    sizes = ["--states", 3, "--actions", 2, "--horizon", 4, "--users", 50, "--pooled", "--epsilon", 1]
    calibrated = json.loads(invoke("calibrate", *sizes, "--json").stdout)["spotlight"]
    assert (found["verdict"], found["users_needed"]) == (calibrated["verdict"], calibrated["users_needed"])
    assert found["feasible"] is False
    assert found["tokens"] is None
    assert [p.name for p in tmp_path.iterdir()] == ["river.toml"]


def test_what_is_left_over_of_another_deployment_is_not_replaced(tmp_path):
    path = written(tmp_path)
    for name in ("river.keys", "river.db", "river.head", "river.pem"):
        (tmp_path / name).write_text("mine")
        assert name in refused("deploy", "init", path)
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["river.toml", name])
        (tmp_path / name).unlink()
    path.write_text(path.read_text() + '[store]\nanchor = "nowhere/river.head"\n')
    assert "there is no folder" in refused("deploy", "init", path)
    assert [p.name for p in tmp_path.iterdir()] == ["river.toml"]


def test_serve_hands_on_what_it_was_told(file, monkeypatch):
    told = []
    monkeypatch.setattr(server, "run", lambda *given, started, **named: (told.append((given, named)), started()))
    said = invoke("serve", file, "--port", 8100, "--no-page", "--files", "app").stderr
    assert told == [((file, "127.0.0.1", 8100, 1), {"page": False, "files": Path("app")})]
    assert said == f"serving {file} on http://127.0.0.1:8100\n"


def test_a_folder_without_pages_is_not_served(file, tmp_path):
    said = refused("serve", file, "--files", tmp_path)
    assert said == f"Error: {tmp_path} has no index.html; expected a folder of pages"


def test_without_the_extra_it_is_said_what_to_install(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "discreet.live.server", None)
    monkeypatch.setitem(sys.modules, "apsw", None)
    monkeypatch.delitem(sys.modules, "discreet.live.sqlite")
    assert "pip install 'discreet[live]'" in refused("deploy", "status", file)


# Look ---------------------------------------------------------------------------------------------------------------


def test_status_and_log_say_what_is_public(file):
    came(file, 50)
    found = json.loads(invoke("deploy", "status", file, "--json").stdout)
    assert (found["tickets"], found["users"], found["status"]) == (50, 120, "running")
    assert sum(epoch["out"] for epoch in found["open"]) + 0 < 50
    text = invoke("deploy", "status", file).stdout
    assert "tickets: 50 of 120" in text
    log = json.loads(invoke("deploy", "log", file, "--json").stdout)
    assert log["next"] == found["entries"] == len(log["entries"])
    tail = json.loads(invoke("deploy", "log", file, "--from", 3, "--json").stdout)
    assert tail["entries"] == log["entries"][3:]
    assert "noisy sums of" in invoke("deploy", "log", file).stdout


@pytest.mark.parametrize("model", ["joint", "local"])
def test_a_deployment_from_its_beginning_to_its_certificate(tmp_path, model):
    file = written(tmp_path, model)
    invoke("deploy", "init", file)
    came(file, 120)
    said = invoke("deploy", "verify", file).stdout
    assert "people: 120 in released epochs, places for 120 of 120" in said
    invoke("deploy", "export", file, "--out", tmp_path / "out")
    assert invoke("deploy", "verify", tmp_path / "out").stdout == said
    assert json.loads(invoke("deploy", "verify", tmp_path / "out", "--json").stdout)["consistent"]
    assert discreet.Policy.load(tmp_path / "out").act(0, 2, guess=True) in ("left", "right")
    invoke("deploy", "retire", file, "--out", tmp_path / "end", "--yes")
    key = tmp_path / "river.pem"
    assert "valid: signed by" in invoke("verify", tmp_path / "end", "--public-key", key, "--require-signature").stdout
    found = json.loads(invoke("verify", tmp_path / "end", "--json").stdout)
    assert found["guarantee"]["sentence"] == f"{model} DP, ε = 4 per user, replace-one"
    assert (found["consistent"], found["valid"]) == (True, False)
    assert invoke("deploy", "status", file).stdout.startswith("river: retired")
    vault = apsw.Connection(str(tmp_path / "river.db")).execute("SELECT count(*) FROM ticket").fetchall()
    assert vault == [(0,)]


def test_a_log_that_was_changed_in_the_store_is_not_valid(file):
    came(file, 60)
    base = apsw.Connection(str(file.with_name("river.db")))
    base.execute("UPDATE log SET signature = zeroblob(64) WHERE number = 2")
    base.close()
    said = invoke("deploy", "verify", file, code=1).stdout
    assert "NOT VALID: the log cannot be read: entry 2" in said


def test_an_old_copy_and_a_missing_anchor_are_not_valid(file):
    shutil.copy(file.with_name("river.db"), file.with_name("old"))
    came(file, 60)
    anchor = file.with_name("river.head").read_text()
    for name in ("river.db-wal", "river.db-shm"):
        file.with_name(name).unlink(missing_ok=True)
    shutil.copy(file.with_name("old"), file.with_name("river.db"))
    assert "old copy" in invoke("deploy", "verify", file, code=1).stdout
    assert "old copy" in refused("deploy", "pause", file)
    assert "old copy" in refused("serve", file)
    assert file.with_name("river.head").read_text() == anchor
    file.with_name("river.head").unlink()
    assert "anchor" in invoke("deploy", "verify", file, code=1).stdout


# Change and end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["log"], ["status"], ["export", "--out", "exported"]])
def test_nothing_is_shown_before_the_anchor_has_come_to_it(file, tmp_path, command):
    """A server was killed between its commit and the anchor: who shows the entry publishes it, and a copy of the
    store from before would be taken for the present one and release the same people again."""
    head = file.with_name("river.head")
    before = head.read_text()
    came(file, 10)
    after = head.read_text()
    assert after != before
    head.write_text(before)
    name, *options = command
    invoke("deploy", name, file, *[tmp_path / "out" if option == "exported" else option for option in options])
    assert head.read_text() == after


def test_pause_resume_and_amend_are_entries_of_the_log(file):
    invoke("deploy", "pause", file)
    assert invoke("deploy", "status", file).stdout.startswith("river: paused")
    invoke("deploy", "pause", file)
    invoke("deploy", "resume", file)
    invoke("deploy", "amend", file, "--users", 130)
    assert "an amendment must say more" in refused("deploy", "amend", file, "--users", 130)
    log = json.loads(invoke("deploy", "log", file, "--json").stdout)["entries"]
    assert len(log) == 5
    assert json.loads(invoke("deploy", "status", file, "--json").stdout)["users"] == 130
    invoke("deploy", "verify", file)


def test_retire_asks_first_and_can_write_its_certificate_again(file, tmp_path):
    came(file, 20)
    said = invoke("deploy", "retire", file, "--out", tmp_path / "end", code=2, answer="n\n")
    assert "nothing was done" in said.stderr
    assert not (tmp_path / "end").exists()
    invoke("deploy", "retire", file, "--out", tmp_path / "end", answer="y\n")
    shutil.rmtree(tmp_path / "end")
    invoke("deploy", "retire", file, "--out", tmp_path / "end")
    invoke("verify", tmp_path / "end")
    assert "the deployment is retired" in refused("deploy", "pause", file)


def test_a_folder_of_somebody_elses_is_not_written_over(file, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "policy.csv").write_text("mine")
    assert "not of ours" in refused("deploy", "retire", file, "--out", tmp_path / "mine", "--yes")
    assert invoke("deploy", "status", file).stdout.startswith("river: running")


@pytest.mark.parametrize("command", ["status", "log", "verify", "pause", "resume"])
def test_a_deployment_that_was_not_begun_is_refused_in_one_sentence(tmp_path, command):
    assert "discreet deploy init" in refused("deploy", command, written(tmp_path))
    assert "there is no file" in refused("deploy", command, tmp_path / "other.toml")


def test_another_charter_than_the_log_has_is_refused(file):
    file.write_text(file.read_text().replace("epsilon = 4.0", "epsilon = 8.0"))
    assert "another charter" in refused("deploy", "pause", file)


@pytest.mark.parametrize(
    "command", ["init", "status", "log", "verify", "export", "pause", "resume", "amend", "retire", "serve", "visit"]
)
def test_help_has_an_example(command):
    words = [command] if command in ("serve", "visit") else ["deploy", command]
    text = re.sub(r"\s+", " ", invoke(*words, "--help").stdout)
    assert "Example" in text
    assert f"discreet {' '.join(words)}" in text


# Documents ----------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/live.md"])
def test_the_charters_of_the_documents_can_be_deployed(page, tmp_path):
    (told,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    path = tmp_path / "river.toml"
    path.write_text(told)
    assert "can be learned from" in invoke("deploy", "init", path, "--dry-run").stdout
    local = told.replace('"joint"', '"local"').replace("epsilon = 1.0", "epsilon = 4.0")
    path.write_text(re.sub(r"users = 2_?000", "users = 4000", local))
    assert "local DP, ε = 4 per user" in invoke("deploy", "init", path, "--dry-run").stdout


@pytest.mark.parametrize("model", ["joint", "two-servers", "local"])
def test_what_is_said_of_liars_is_what_was_measured(model):
    values = re.findall(r"(\d+) %: ([\d.]+)", terms.liars(model))
    assert [share for share, _ in values] == ["0", "1", "3", "5", "10"]
    assert values == [(f"{100 * each.share:g}", f"{each.value:.2f}") for each in poisoning.row(model)]


# Terminals ----------------------------------------------------------------------------------------------------------


def test_a_server_and_people_in_two_terminals(tmp_path):
    """Twenty people visit a deployment that is served, and an operator ends it meanwhile."""
    file = written(tmp_path, users=20, epsilon=8.0)
    token = re.search(r"app token: (\S+)", invoke("deploy", "init", file).stdout)
    assert token is not None
    port = 8765 + os.getpid() % 1000
    program = [sys.executable, "-c", "from discreet.cli import main; main()"]
    served = subprocess.Popen([*program, "serve", str(file), "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        visit = ["visit", url, "--token", token[1], "--users", 20, "--threads", 4, "--json"]
        deadline = time.monotonic() + 60
        while CliRunner().invoke(app, ["visit", url, "--token", "x", "--users", "1"]).stderr.startswith("Error: no"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        found = json.loads(invoke(*visit).stdout)
        assert (found["people"], found["tickets"], found["spectators"]) == (20, 20, {})
        assert found["worth"]["releases"] >= 1
        invoke("deploy", "retire", file, "--out", tmp_path / "end", "--yes")
        again = json.loads(invoke(*visit, "--first", 100).stdout)
        assert again["spectators"] == {"the deployment is retired": 20}
        invoke("verify", tmp_path / "end")
    finally:
        served.terminate()
        served.wait(30)
