"""Two servers over HTTP, from the command line and through the client of an app."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from discreet.cli import app
from discreet.client.terms import Terms
from discreet.device.announcements import Announcement
from discreet.device.encoders import ItemEncoder
from discreet.device.wire import Refused
from discreet.live import charter as charters
from discreet.live import wire
from discreet.live.asking import Unreachable
from discreet.live.certificate import audited, written_log
from discreet.live.desk import Desk
from discreet.live.events import signed
from discreet.live.helper import token_of, verify_secret_of
from discreet.live.helper_server import create_app
from discreet.live.link import HttpLink, lead, secret_of
from discreet.live.server import Limits
from discreet.live.store import StoreFailed
from discreet.live.two_servers import check_both
from live_world import FREE, NONSENSE, Client, answering, told
from ports import free_port
from two_world import Pair, Said, asked_of, encoder_of, filled, honest, joined, paired, releases


@contextmanager
def helper_client(pair: Pair, limits: Limits = FREE, **options: Any) -> Iterator[Client]:
    headers = {"authorization": f"Bearer {token_of(pair.begun.secret)}"}
    with Client(create_app(pair.helper(), "second", limits, **options), headers) as client:
        yield client


def question_json(question: Any) -> dict[str, str]:
    return {name: base64.b64encode(part).decode() for name, part in question._asdict().items()}


def test_a_helper_answers_its_leader_and_nobody_else(tmp_path: Path) -> None:
    pair = paired(tmp_path)
    desk = pair.desk()
    opening, announced = desk.visible.entries
    (question,) = asked_of(desk, verify_secret_of(pair.begun.secret), [encoder_of(told(desk)).shared(1)])
    messages: dict[str, dict[str, Any]] = {
        "join": {"opening": opening.to_json()},
        "verify": {"announced": announced.to_json(), "questions": [question_json(question)]},
        "finish": {"announced": announced.to_json()},
    }
    with helper_client(pair) as client:
        for name, message in messages.items():
            path = wire.HELPER_ADDRESSES[name].path
            for wrong in ("", pair.tokens.app, pair.tokens.operator, pair.begun.secret, "x"):
                answer = client.post(path, json=message, headers={"authorization": f"Bearer {wrong}"})
                assert answer.status_code == 401
            for strange in (message | {"more": 1}, {}, [], dict.fromkeys(message, 1)):
                assert client.post(path, json=strange).status_code == 400
            assert client.post(path, content=b"x" * (wire.MOST_BETWEEN + 1)).status_code == 413
        assert client.post("/v1/helper/verify", json=messages["verify"]).status_code == 422  # it has not joined
        entry = client.post("/v1/helper/join", json=messages["join"]).json()["entry"]
        (answer,) = client.post("/v1/helper/verify", json=messages["verify"]).json()["messages"]
        assert len(base64.b64decode(answer)) == 32
        shared = client.post("/v1/helper/finish", json=messages["finish"]).json()["entry"]
        forged = replace(announced, signature=bytes(64)).to_json()
        refused = client.post("/v1/helper/finish", json={"announced": forged})
        assert (refused.status_code, refused.json()) == (422, {"error": wire.WHY[422]})
        headers = {"authorization": ""}
        assert client.get("/v1/log", headers=headers).json() == {"entries": [entry, shared], "next": 2}
        assert client.get("/v1/health", headers=headers).json()["number"] == 2
        paths = client.get("/openapi.json", headers=headers).json()["paths"]
        assert set(paths) == {address.path for address in wire.HELPER_ADDRESSES.values()}


def test_a_helper_whose_store_fails_acknowledges_nothing_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, ended = paired(tmp_path), threading.Event()
    opening = {"opening": pair.desk().visible.entries[0].to_json()}
    with helper_client(pair, on_failure=ended.set) as client:

        def broken(*_: object) -> None:
            raise StoreFailed("the disk is full")

        monkeypatch.setattr("discreet.live.helper.HelperStore.writing", broken)
        assert client.post("/v1/helper/join", json=opening).status_code == 503
        assert ended.is_set()
        monkeypatch.undo()
        assert client.post("/v1/helper/join", json=opening).status_code == 503
        assert client.get("/v1/health").status_code == 503


# The leader's side --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", NONSENSE)
def test_whatever_the_helper_answers_the_leader_stays_up_and_tries_again(tmp_path: Path, reply: bytes | None) -> None:
    port = free_port()
    pair = paired(tmp_path, f"http://127.0.0.1:{port}")
    desk = pair.desk()
    helper = desk.charter.helper
    assert helper is not None
    link = HttpLink(desk.visible.entries[0], helper.url, helper.key, token_of(pair.begun.secret), patience=0.3)
    with answering(port, reply):
        began = time.monotonic()
        for ask in (
            lambda: link.verified(desk.visible.entries[1], []),
            lambda: link.finished(desk.visible.entries[1]),
        ):
            with pytest.raises(Unreachable):
                ask()
        assert time.monotonic() - began < 5.0
    link.close()


def test_a_leader_needs_the_secret_of_its_helper_for_itself_alone(tmp_path: Path) -> None:
    pair = paired(tmp_path, "http://127.0.0.1:1")
    secret = pair.path.with_name("tiny.helper")
    assert secret_of(charters.read(pair.path)) == pair.begun.secret
    secret.chmod(0o644)
    with pytest.raises(ValueError, match="others can read"):
        lead(pair.desk(), pair.path)
    secret.unlink()
    with pytest.raises(ValueError, match=r"tiny\.helper"):
        lead(pair.desk(), pair.path)
    far = paired(tmp_path / "far", "http://helper.example")
    with pytest.raises(ValueError, match="use https"):
        lead(far.desk(), far.path)


def test_a_leader_that_cannot_reach_its_helper_still_serves(tmp_path: Path) -> None:
    pair = paired(tmp_path, f"http://127.0.0.1:{free_port()}")
    desk = lead(pair.desk(), pair.path)
    filled(pair, desk, honest)
    desk.release()
    assert releases(desk) == []
    assert told(desk).epoch == 1


# People and commands ------------------------------------------------------------------------------------------------


def test_people_learn_with_two_servers_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, forty people over HTTP, and a check of both logs."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    learned = import_module("demo_two_servers").learned
    ports = free_port(), free_port()
    found, checked = learned(tmp_path, ports, people=40, states=3, horizon=4, epsilon=20.0, patience=1)
    assert found.tickets == 40
    assert found.worth.releases >= 3
    assert checked["consistent"], checked["problems"]
    assert checked["shares_checked"] == found.worth.releases
    assert checked["leader_key"] != checked["helper_key"]
    for folder, name in (("leader", "river"), ("helper", "second")):
        assert (tmp_path / folder / f"{name}.keys").stat().st_mode & 0o077 == 0


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_check_of_both_logs_finds_what_does_not_add_up(tmp_path: Path) -> None:
    pair = paired(tmp_path)
    first = pair.desk()
    helper = joined(pair, first)
    first.close()
    desk = pair.desk(helper)
    filled(pair, desk, honest)
    desk.release()
    log = tmp_path / "helper.jsonl"
    log.write_text(written_log(helper.entries))
    shown = invoke("deploy", "verify", pair.path, "--helper", log).stdout
    assert helper.secrets.public.hex() in shown
    assert desk.secrets.public.hex() in shown
    assert "1 sums agree" in shown
    assert "not checked" in invoke("deploy", "verify", pair.path).stdout
    entry = helper.entries[1]
    other = signed(helper.secrets.signing, 1, entry.previous, Said(entry.event | {"values": "AAAA"}))
    log.write_text(written_log([helper.entries[0], other]))
    found = json.loads(invoke("deploy", "verify", pair.path, "--helper", log, "--json", code=1).stdout)
    assert not found["consistent"]
    assert "another entry" in found["problems"][0]
    assert audited(desk.visible.entries)[0] == []


def test_a_helper_begins_with_a_command_and_prints_what_its_leader_needs(tmp_path: Path) -> None:
    path = tmp_path / "second.toml"
    path.write_text('name = "second"\n[helper]\nurl = "https://helper.example"\nepsilon_at_most = 1.0\n')
    assert "secret" not in json.loads(
        invoke("deploy", "init", path, "--role", "helper", "--dry-run", "--json").stdout
    )
    assert not path.with_name("second.keys").exists()
    shown = invoke("deploy", "init", path, "--role", "helper").stdout.splitlines()
    lines = "\n".join(line for line in shown if line.startswith(("[helper]", "url =", "key =", "hpke =")))
    secret = shown[-1] if not shown[-1].startswith("the secret") else shown[-2]
    kept = path.with_name("second.keys").read_text()
    assert secret not in kept
    assert token_of(secret) not in kept
    assert "not replaced" in invoke("deploy", "init", path, "--role", "helper", code=2).stderr
    leader = tmp_path / "leader"
    leader.mkdir()
    charter = leader / "tiny.toml"
    charter.write_text(
        'name = "tiny"\n[problem]\nstates = 2\nactions = 2\nhorizon = 2\npooled = true\nstart = 0\n'
        f'[privacy]\nmodel = "two-servers"\nepsilon = 1\nusers = 60\n{lines}\n'
    )
    assert "tiny.helper" in invoke("deploy", "init", charter, code=2).stderr
    charter.with_name("tiny.helper").touch(mode=0o600)
    charter.with_name("tiny.helper").write_text(secret)
    said = invoke("deploy", "init", charter).stdout
    assert "two servers of one operator" in " ".join(said.split())
    assert Desk.open(charter).charter.helper is not None


# What a device checks -----------------------------------------------------------------------------------------------


def test_a_device_sends_shares_to_the_helper_of_the_charter_and_nothing_else(tmp_path: Path) -> None:
    pair = paired(tmp_path, epsilon=1.0, users=1000)
    desk = pair.desk()
    terms, announcement = Terms.of(desk.charter.document()), told(desk)
    terms.check(announcement, 1.0)
    encoder = encoder_of(announcement)
    raw = ItemEncoder(encoder.tables, encoder.items, encoder.has_start, encoder.last_successor)
    other: list[tuple[Announcement, str]] = [
        (replace(announcement, encoder=raw), "another trust model"),
        (replace(announcement, encoder=replace(encoder, helper="00" * 32)), "another helper"),
        (replace(announcement, encoder=replace(encoder, task="00" * 32)), "another helper"),
        (replace(announcement, epoch=2), "another epoch"),
    ]
    for wrong, why in other:
        with pytest.raises(Refused, match=why):
            terms.check(wrong, 1.0)
    with pytest.raises(Refused, match=r"if at least one of the two servers keeps to it, more than the 0\.5"):
        terms.check(announcement, 0.5)
    joint = replace(terms, model="joint")
    with pytest.raises(Refused, match="another trust model"):
        joint.check(announcement, 1.0)


def test_helper_and_leader_know_different_halves_of_the_secret(tmp_path: Path) -> None:
    """The token opens the door and is kept as a hash; what proofs are queried with is never sent."""
    pair = paired(tmp_path)
    secret = pair.begun.secret
    assert token_of(secret).encode() != base64.urlsafe_b64encode(verify_secret_of(secret)).rstrip(b"=")
    kept = json.loads(pair.helper_path.with_name("second.keys").read_text())
    assert base64.b64decode(kept["verify"]) == verify_secret_of(secret)
    assert secret not in json.dumps(kept)
    assert token_of(secret) not in json.dumps(kept)
    helper = pair.helper()
    assert helper.secrets.admits("leader", token_of(secret))
    assert not helper.secrets.admits("app", token_of(secret))
    assert not helper.secrets.admits("leader", secret)


def test_both_logs_are_checked_from_their_first_entries(tmp_path: Path) -> None:
    pair = paired(tmp_path)
    desk = pair.desk()
    assert check_both(desk.visible.entries, joined(pair, desk).entries) == 0
