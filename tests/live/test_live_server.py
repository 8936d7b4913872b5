"""The server of a deployment: what it answers, exactly once whatever is lost or repeated, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from discreet.device.announcements import Announcement, Entry, check_chain, coin_of
from discreet.live.deployment import Pause
from discreet.live.events import event_of
from discreet.live.server import OperatorPage, check_address, create_app
from discreet.live.service import Unavailable
from discreet.live.store import StoreFailed
from live_world import (
    FREE,
    NONE,
    PATIENCE,
    Client,
    World,
    alive,
    client_of,
    deployed,
    enrolled,
    log_of,
    place,
    releases,
    sent,
    serving,
    until,
)
from ports import free_port

# Answers ------------------------------------------------------------------------------------------------------------


def test_everybody_can_check_the_charter_the_announcement_and_the_log(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        told = client.get("/v1/charter", headers={"authorization": ""}).json()
        assert told["charter"]["privacy"] == {"model": "joint", "epsilon": 20.0, "unit": "user", "users": 60}
        key = base64.b64decode(told["key"])
        entries = log_of(client)
        head = check_chain(entries, key)
        assert event_of(entries[0]).charter.digest == told["digest"]
        announced = client.get("/v1/announcement").json()
        assert announced.pop("head") == head.hex()
        assert announced.pop("epoch") == 1
        assert Entry.from_json(announced) == entries[1]
        assert client.get("/v1/health").json() == {"status": "ok", "number": 1, "head": head.hex()}


def test_the_log_comes_in_portions(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        for step in ("pause", "resume", "pause"):
            assert client.post(f"/v1/operator/{step}", headers=world.operator).status_code == 200
        found, start = [], 0
        while True:
            told = client.get("/v1/log", params={"from": start, "count": 2}).json()
            assert told["next"] == start + len(told["entries"])
            if not told["entries"]:
                break
            found += [entry["number"] for entry in told["entries"]]
            start = told["next"]
        assert found == [0, 1, 2, 3, 4]
        assert client.get("/v1/log", params={"from": 99}).json() == {"entries": [], "next": 99}


def test_a_person_enrols_acts_and_reports(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        ticket = enrolled(client, "ann")
        assert ticket.keys() == {"ticket", "epoch", "slot", "expires", "announcement", "again"}
        assert (ticket["epoch"], ticket["slot"], ticket["again"]) == (1, 0, False)
        assert ticket["expires"] == world.clock.now + PATIENCE
        assert ticket["announcement"] == client.get("/v1/announcement").json()["head"]
        announced = event_of(log_of(client)[1])
        assert isinstance(announced, Announcement)
        for step, state, reported in [(0, 0, False), (1, 1, False), (1, 0, True)]:
            message = {"ticket": ticket["ticket"], "announcement": ticket["announcement"]}
            answer = client.post("/v1/act", json={**message, "step": step, "state": state, "reported": reported})
            wanted = announced.action(step, state, reported, bytes.fromhex(ticket["ticket"]))
            assert answer.json() == {"action": wanted}
        assert sent(client, "ann", ticket["ticket"]).json() == {"again": False}
        assert sent(client, "ann", ticket["ticket"], place(1)).json() == {"again": True}


def test_a_randomised_policy_tosses_the_tickets_own_coin(tmp_path):
    """A retry gets the same action, and tickets differ."""
    world = deployed(tmp_path, learner="spotlight")
    with world.client() as client:
        announcement = client.get("/v1/announcement").json()
        told = event_of(log_of(client)[1])
        assert isinstance(told, Announcement)
        assert told.after is not None
        assert told.after.weights is not None
        seen = set()
        for number in range(32):
            ticket = number.to_bytes(16, "big")
            message = {"ticket": ticket.hex(), "announcement": announcement["head"], "step": 0, "state": 0}
            answers = [client.post("/v1/act", json={**message, "reported": True}).json()["action"] for _ in range(2)]
            coin, weights = coin_of(ticket, 0), told.after.weights[0][0]
            assert answers == [int(coin >= weights[0])] * 2
            seen |= set(answers)
        assert seen == {0, 1}


def test_what_cannot_be_answered_says_why(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        ticket = enrolled(client, "ann")
        act = {"ticket": ticket["ticket"], "announcement": ticket["announcement"], "step": 0, "state": 0}
        act["reported"] = False
        assert client.post("/v1/act", json={**act, "announcement": "0" * 64}).status_code == 404
        assert client.post("/v1/act", json={**act, "step": 2}).status_code == 422
        assert client.post("/v1/act", json={**act, "state": 2}).status_code == 422
        opened = client.get("/v1/log").json()["entries"][1]["previous"]
        assert client.post("/v1/act", json={**act, "announcement": opened}).status_code == 404
        assert sent(client, "ann", ticket["ticket"], b"\x00" * 5).status_code == 422
        assert sent(client, "ann", ticket["ticket"], place(1000)).status_code == 422
        assert sent(client, "bob", ticket["ticket"]).status_code == 404
        world.clock.now += PATIENCE
        late = sent(client, "ann", ticket["ticket"])
        assert late.status_code == 410
        assert late.json() == {"error": "too late: the ticket has expired, or its epoch is closed"}
        assert enrolled(client, "ann")["spectator"] == "this user has had a ticket"


def test_an_operator_pauses_resumes_amends_and_retires(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        for _ in range(2):
            assert client.post("/v1/operator/pause", headers=world.operator).json() == {"next": 3}
        assert enrolled(client, "ann")["spectator"] == "the deployment is paused"
        assert client.post("/v1/operator/resume", headers=world.operator).json() == {"next": 4}
        assert enrolled(client, "ann")["epoch"] == 1
        fewer = client.post("/v1/operator/amend", json={"users": 59}, headers=world.operator)
        assert fewer.status_code == 422
        assert client.post("/v1/operator/amend", json={"users": 61}, headers=world.operator).json() == {"next": 5}
        assert client.post("/v1/operator/retire", headers=world.operator).json() == {"next": 6}
        assert enrolled(client, "bob")["spectator"] == "the deployment is retired"
        assert client.post("/v1/operator/pause", headers=world.operator).status_code == 422
        kinds = [entry.event["event"] for entry in log_of(client)]
        assert kinds == ["opened", "announced", "paused", "resumed", "amended", "retired"]


def test_an_epoch_is_released_by_the_clock_and_states_its_tickets_never_its_reports(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        size = event_of(log_of(client)[1]).size
        people = [f"user {i}" for i in range(size)]
        tickets = [enrolled(client, name)["ticket"] for name in people]
        assert enrolled(client, "late")["spectator"] == "the last people of an epoch are still reporting"
        assert sent(client, people[0], tickets[0], place(3)).status_code == 200
        assert sent(client, people[1], tickets[1], place(3)).status_code == 200
        time.sleep(0.2)
        assert releases(client) == []  # all tickets are out, but none has expired
        world.clock.now += PATIENCE
        (release,) = until(lambda: releases(client))
        assert (release.epoch, release.tickets) == (1, size)
        assert release.values.tolist()[3] == 2
        assert release.values.sum() == 2
        assert sent(client, people[2], tickets[2]).status_code == 410
        assert client.get("/v1/announcement").json()["epoch"] == 2


def test_the_operators_page_is_made_once_a_second_and_brings_everything_along(tmp_path, monkeypatch):
    world = deployed(tmp_path)
    made: list[int] = []
    drawn = OperatorPage._drawn

    def counted(self: OperatorPage, visible: Any) -> str:
        made.append(1)
        return drawn(self, visible)

    monkeypatch.setattr(OperatorPage, "_drawn", counted)
    with world.client() as client:
        ticket = enrolled(client, "canary-of-ann")["ticket"]
        pages = client.together(*[("GET", "/operator", {"headers": {"authorization": ""}})] * 10)
        assert {page.status_code for page in pages} == {200}
        assert len(made) == 1
        assert pages[0].headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in pages[0].headers["content-security-policy"]
        assert "frame-ancestors 'none'" in pages[0].headers["content-security-policy"]
        assert not any(secret in pages[0].text for secret in ("canary-of-ann", ticket, world.tokens.app))
        assert log_of(client)[-1].name[:8] in pages[0].text
    with Client(create_app(world.service(), FREE, page=False), {}) as client:
        assert client.get("/operator").status_code == 404


# Exactly once -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_every_report_counts_once_under_retries_duplicates_reordering_and_lost_replies(tmp_path, seed):
    """Whatever of all this happens, the release is that of a quiet day."""
    world, chance = deployed(tmp_path), random.Random(seed)
    with world.client() as client:
        size = event_of(log_of(client)[1]).size
        people = {f"user {i}": i % 4 for i in range(size)}
        asks = [("POST", "/v1/enrol", {"json": {"user": name}}) for name in people for _ in range(3)]
        chance.shuffle(asks)
        tickets: dict[str, set[str]] = {}
        for ask, answer in zip(asks, client.together(*asks), strict=True):
            tickets.setdefault(ask[2]["json"]["user"], set()).add(answer.json()["ticket"])
        assert all(len(found) == 1 for found in tickets.values())
        assert len(set.union(*tickets.values())) == size
        messages = []
        for name, item in people.items():
            told = {"user": name, "ticket": min(tickets[name]), "payload": base64.b64encode(place(item)).decode()}
            messages += [("POST", "/v1/report", {"json": told})] * chance.randint(1, 4)
        chance.shuffle(messages)
        answers = client.together(*messages)
        assert {answer.status_code for answer in answers} == {200}
        assert sum(not answer.json()["again"] for answer in answers) == size
        world.clock.now += PATIENCE
        (release,) = until(lambda: releases(client))
        wanted = [list(people.values()).count(item) for item in range(4)]
        assert release.values.tolist()[:4] == wanted
        assert abs(release.values[4:]).sum() <= 1


def test_a_reply_that_was_lost_is_made_up_for_by_a_retry_after_a_restart(tmp_path):
    """Committed, and the process dies before it answers."""
    world = deployed(tmp_path)
    service = world.service()
    user = service.desk.secrets.user("ann")
    service.start()

    async def unheard() -> None:
        asking = asyncio.ensure_future(service.enrol(user))
        await asyncio.sleep(0)
        asking.cancel()

    asyncio.run(unheard())
    service.stop()
    with world.client() as client:
        ticket = enrolled(client, "ann")
        assert ticket["again"]
        assert ticket["slot"] == 0
        assert enrolled(client, "bob")["slot"] == 1


def test_many_who_wait_are_one_transaction(tmp_path):
    world = deployed(tmp_path)
    service = world.service()
    commits: list[int] = []
    decided = service.desk.decided

    def slow(wishes: Any) -> Any:
        commits.append(len(wishes))
        time.sleep(0.05)
        return decided(wishes)

    service.desk.decided = slow  # type: ignore[method-assign]
    service.start()

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(service.enrol(b"%016d" % i) for i in range(50)))

    asyncio.run(all_of_them())
    assert sum(commits) == 50
    assert len(commits) <= 3
    service.stop()


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["commit", "anchor", "release"])
def test_when_the_store_fails_nothing_is_acknowledged_and_nothing_is_tried_again(tmp_path, when):
    world = deployed(tmp_path)
    ended: list[bool] = []
    service = world.service(on_failure=lambda: ended.append(True))
    calls: list[str] = []

    def fails(*_: Any) -> Any:
        calls.append(when)
        raise StoreFailed("the disk is gone")

    if when == "commit":
        service.desk._store.writing = fails  # type: ignore[method-assign]
    elif when == "anchor":
        object.__setattr__(service.desk._anchor, "advance", fails)
    else:
        service.desk._store.tidy = fails  # type: ignore[method-assign]
    service.start()

    async def asks() -> list[Any]:
        wishes = [service.operate(Pause()), *(service.enrol(b"%016d" % i) for i in range(5))]
        return await asyncio.gather(*wishes, return_exceptions=True)

    answers = asyncio.run(asks())
    until(lambda: ended)
    if when == "release":
        answers = asyncio.run(asks())
    assert all(isinstance(answer, Unavailable) for answer in answers)
    assert len(calls) == 1
    assert all(isinstance(answer, Unavailable) for answer in asyncio.run(asks()))
    service.stop()
    assert len(calls) == 1


def test_who_waits_too_long_hears_that_nobody_knows(tmp_path, monkeypatch):
    """The store hangs; what was asked may still be kept, so that a retry is right."""
    monkeypatch.setattr("discreet.live.service.ANSWER_SECONDS", 0.1)
    world = deployed(tmp_path)
    service = world.service()
    decided, go_on = service.desk.decided, threading.Event()

    def hanging(wishes: Any) -> Any:
        go_on.wait(20)
        return decided(wishes)

    service.desk.decided = hanging  # type: ignore[method-assign]
    with Client(create_app(service, FREE), {"authorization": f"Bearer {world.tokens.app}"}) as client:
        assert client.post("/v1/enrol", json={"user": "ann"}).status_code == 503
        go_on.set()
        monkeypatch.undo()
        assert enrolled(client, "ann")["slot"] == 0
        assert enrolled(client, "bob")["slot"] == 1


def test_a_failed_store_is_503_in_one_sentence(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        ticket = enrolled(client, "ann")["ticket"]
    service_failed = []

    def failing(*_: Any) -> Any:
        raise StoreFailed("secret of the store")

    service = world.service(on_failure=lambda: service_failed.append(True), tick=60.0)
    with Client(create_app(service, FREE), {"authorization": f"Bearer {world.tokens.app}"}) as client:
        enrolled(client, "bob")
        service.desk._store.writing = failing  # type: ignore[method-assign]
        answer = sent(client, "ann", ticket)
        assert answer.status_code == 503
        assert answer.json() == {"error": "the store is not available; nothing was kept, so send it again"}
        assert client.get("/v1/health").status_code == 503
        until(lambda: service_failed)


def test_a_defect_in_one_answer_tells_nothing_and_harms_no_other(tmp_path, caplog):
    world = deployed(tmp_path)
    service = world.service()

    with Client(create_app(service, FREE), {"authorization": f"Bearer {world.tokens.app}"}) as client:
        secrets = service.desk.secrets

        class Broken:
            public = secrets.public

            def user(self, name: str) -> bytes:
                raise RuntimeError(f"cannot hash {name}")

        service.desk.secrets = Broken()  # type: ignore[assignment]
        answer = client.post("/v1/enrol", json={"user": "canary"})
        assert answer.status_code == 500
        assert "canary" not in answer.text + caplog.text
        service.desk.secrets = secrets
        assert enrolled(client, "canary")["slot"] == 0


# A process ----------------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_goes_on_and_one_that_is_asked_to_ends_cleanly(tmp_path):
    world, port = deployed(tmp_path, patience="60s"), free_port()
    with serving(world, port) as process, client_of(world, port) as client:
        ticket = enrolled(client, "ann")
        assert sent(client, "ann", ticket["ticket"]).json() == {"again": False}
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with serving(world, port) as process, client_of(world, port) as client:
        assert enrolled(client, "ann") == {**ticket, "again": True}
        assert sent(client, "ann", ticket["ticket"]).json() == {"again": True}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert not (tmp_path / "tiny.db-wal").exists()
    assert (tmp_path / "output").read_bytes() == b""


def test_nothing_stays_at_the_port_when_the_process_that_was_started_is_killed(tmp_path):
    """Its worker goes with it, so that it can be started again at once."""
    world, port = deployed(tmp_path, patience="60s"), free_port()
    with serving(world, port) as process:
        os.kill(process.pid, signal.SIGKILL)  # and not its group
        process.wait()
        until(lambda: not alive(port))
    with serving(world, port), client_of(world, port) as client:
        assert enrolled(client, "ann")["slot"] == 0


def test_a_server_whose_anchor_cannot_be_written_answers_503_and_exits_with_74(tmp_path):
    (tmp_path / "far").mkdir()
    world, port = deployed(tmp_path, anchor="far/tiny.head", patience="60s"), free_port()
    with serving(world, port) as process, client_of(world, port) as client:
        enrolled(client, "ann")
        (tmp_path / "far").rename(tmp_path / "gone")
        answer = client.post("/v1/operator/pause", headers=world.operator)
        assert answer.status_code == 503
        assert process.wait(20) == 74
    assert b"the deployment ends" in (tmp_path / "output").read_bytes()
    (tmp_path / "gone").rename(tmp_path / "far")
    with world.client() as client:  # what was committed and never acknowledged is there
        assert [entry.event["event"] for entry in log_of(client)][2:] == ["paused"]


def test_it_refuses_to_start_in_one_sentence_and_sqlite_has_one_worker(tmp_path):
    world, port = deployed(tmp_path), free_port()
    for options, why in (("workers=2", "SQLite has one writer"), ("", "the anchor")):
        if not options:
            world.anchor.unlink()
        with serving(world, port, options) as process:
            assert process.wait(20) == 1
        assert why in (tmp_path / "output").read_text().splitlines()[-1]


def test_the_description_is_made_from_the_types_and_knows_every_address(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        told = client.get("/openapi.json").json()
        assert told["openapi"] == "3.1.0"
        report = told["paths"]["/v1/report"]["post"]
        assert report["security"] == [{"app": []}]
        assert set(report["responses"]) == {
            "200",
            "400",
            "401",
            "404",
            "408",
            "410",
            "413",
            "415",
            "422",
            "429",
            "503",
        }
        schema = told["components"]["schemas"]["ReportAsked"]
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) == {"ticket", "user", "payload"}
        assert told["paths"]["/v1/operator/retire"]["post"]["security"] == [{"operator": []}]
        for path, operations in told["paths"].items():
            for method in operations:
                assert (
                    client.request(method.upper(), path).status_code not in (404, 405) or path == "/v1/announcement"
                )
        assert json.dumps(told).isascii()


def test_messages_are_read_by_path(tmp_path):
    """Unknown addresses and methods are refused as JSON."""
    world = deployed(tmp_path)
    with world.client() as client:
        for method, path, status in [
            ("GET", "/nothing", 404),
            ("GET", "/v1/enrol", 405),
            ("POST", "/v1/log", 405),
            ("DELETE", "/v1/charter", 405),
        ]:
            answer = client.request(method, path)
            assert answer.status_code == status
            assert answer.json().keys() == {"error"}


def test_nones_do_not_count(tmp_path):
    """A report of nothing and no report are the same in what is released."""
    world = deployed(tmp_path)
    with world.client() as client:
        size = event_of(log_of(client)[1]).size
        tickets = {f"user {i}": enrolled(client, f"user {i}")["ticket"] for i in range(size)}
        for name in list(tickets)[: size // 2]:
            assert sent(client, name, tickets[name], NONE).status_code == 200
        world.clock.now += PATIENCE
        (release,) = until(lambda: releases(client))
        assert release.tickets == size
        assert not release.values.any()


def test_the_folder_is_all_there_is(tmp_path):
    """A deployment that is moved is the same deployment."""
    world = deployed(tmp_path / "a")
    with world.client() as client:
        ticket = enrolled(client, "ann")
    (tmp_path / "a").rename(tmp_path / "b")
    moved = World(Path(tmp_path / "b" / "tiny.toml"), world.tokens, world.clock)
    with moved.client() as client:
        assert enrolled(client, "ann") == {**ticket, "again": True}


def test_a_server_begins_where_another_one_has_just_ended():
    """Whoever is killed lets go of the port a moment later; where somebody stays, it is refused."""
    with socket.socket() as other:
        port = free_port()
        other.bind(("127.0.0.1", port))
        other.listen()
        threading.Timer(0.2, other.close).start()
        check_address("127.0.0.1", port)
