"""A shuffler over HTTP: who may ask it what, what the analyzer makes of its answers, and what either hears."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from discreet.cli import app
from discreet.client import connect
from discreet.device.announcements import Entry
from discreet.device.shuffled import SEALED, ShuffledEncoder, cut
from discreet.live import wire
from discreet.live.asking import Unreachable
from discreet.live.desk import Desk
from discreet.live.events import signed
from discreet.live.link import lead
from discreet.live.server import Limits
from discreet.live.shuffler_link import ShufflerLink
from discreet.live.shuffler_server import create_app
from discreet.live.store import StoreFailed
from live_world import FREE, NONSENSE, Client, answering, http, told
from ports import free_port
from shuffle_world import Trio, admission, bundle, encoder_of, enrolled, trio

SHUFFLER = "import sys; from discreet.live.shuffler_server import run; run(sys.argv[1], port=int(sys.argv[2]))"


@contextmanager
def shuffler_client(world: Trio, limits: Limits = FREE, **options: Any) -> Iterator[Client]:
    headers = {"authorization": f"Bearer {world.begun.secret}"}
    with Client(create_app(world.shuffler(), "mixer", limits, **options), headers) as client:
        yield client


def bundle_json(desk: Desk, slot: int, messages: bytes, entry: Entry | None = None) -> dict[str, Any]:
    entry = desk.visible.told if entry is None else entry
    assert entry is not None
    card = base64.b64encode(admission(desk, entry, slot)).decode()
    sealed = base64.b64encode(messages).decode()
    return {"announced": entry.to_json(), "slot": slot, "admission": card, "messages": sealed}


# The server ---------------------------------------------------------------------------------------------------------


def test_anybody_with_a_pass_sends_and_only_the_analyzer_asks(tmp_path: Path) -> None:
    world = trio(tmp_path)
    desk = world.desk()
    entry, announcement = enrolled(desk)
    encoder = encoder_of(announcement)
    mine = bundle_json(desk, 0, bundle(encoder, 1))
    messages: dict[str, dict[str, Any]] = {
        "join": {"opening": desk.visible.entries[0].to_json()},
        "close": {"announced": entry.to_json()},
        "part": {"task": encoder.task, "start": 0},
        "settle": {"released": entry.to_json()},
    }
    nobody = {"authorization": ""}
    with shuffler_client(world) as client:
        for name, message in messages.items():
            path = wire.SHUFFLER_ADDRESSES[name].path
            for wrong in ("", world.tokens.app, world.tokens.operator, "x"):
                answer = client.post(path, json=message, headers={"authorization": f"Bearer {wrong}"})
                assert answer.status_code == 401
            for strange in (message | {"more": 1}, {}, [], dict.fromkeys(message, True)):
                assert client.post(path, json=strange).status_code == 400
        early = client.post("/v1/bundle", json=mine, headers=nobody)
        assert (early.status_code, early.json()["error"]) == (503, wire.WHY[503])  # she keeps it, and sends it again
        assert client.post("/v1/shuffler/close", json=messages["close"]).status_code == 422
        assert client.post("/v1/shuffler/join", json=messages["join"]).status_code == 200
        for _ in range(2):
            answer = client.post("/v1/bundle", json=mine, headers=nobody)
            assert (answer.status_code, answer.json()) == (200, {})
        wrong_ones = (
            mine | {"slot": 1},
            mine | {"messages": mine["messages"][:-76]},
            mine | {"announced": replace(entry, signature=bytes(64)).to_json()},
        )
        for wrong_one in wrong_ones:
            answer = client.post("/v1/bundle", json=wrong_one, headers=nobody)
            assert (answer.status_code, answer.json()) == (422, {"error": wire.WHY[422]})
        for strange in (mine | {"user": "ann"}, mine | {"slot": -1}, mine | {"messages": "?"}, {}, [1]):
            assert client.post("/v1/bundle", json=strange, headers=nobody).status_code == 400
        assert client.post("/v1/bundle", content=b"x" * (wire.MOST_BETWEEN + 1)).status_code == 413
        closed = client.post("/v1/shuffler/close", json=messages["close"]).json()
        assert closed == client.post("/v1/shuffler/close", json=messages["close"]).json()
        assert closed["messages"] == encoder.batch_size
        parts = [client.post("/v1/shuffler/part", json=messages["part"]).json() for _ in range(2)]
        assert parts[0] == parts[1]
        assert len(base64.b64decode(parts[0]["messages"])) == SEALED * encoder.batch_size
        late = client.post("/v1/bundle", json=bundle_json(desk, 2, bundle(encoder, 1)), headers=nobody)
        assert late.status_code == 410
        assert client.post("/v1/shuffler/settle", json=messages["settle"]).status_code == 422
        assert client.get("/v1/health", headers=nobody).json()["number"] == 2
        log = client.get("/v1/log", headers=nobody).json()["entries"]
        assert [json.loads(base64.b64decode(each["body"]))["event"] for each in log] == ["joined", "closed"]
        paths = client.get("/openapi.json", headers=nobody).json()["paths"]
        assert set(paths) == {address.path for address in wire.SHUFFLER_ADDRESSES.values()}


def test_an_analyzer_that_makes_passes_cannot_ask_who_has_sent_something(tmp_path: Path) -> None:
    """The answer, and how much the shuffler writes, is the same for places with and without a bundle; also where it
    is asked by another announcement of the same epoch."""
    world = trio(tmp_path)
    desk = world.desk()
    entry, announcement = enrolled(desk)
    shorter = replace(announcement, size=announcement.size - 1)
    other = signed(desk.secrets.signing, entry.number, entry.previous, shorter)
    with shuffler_client(world) as client:
        client.post("/v1/shuffler/join", json={"opening": desk.visible.entries[0].to_json()})

        def asked(announced: Entry, slot: int) -> tuple[int, bytes, int]:
            messages = bundle_json(desk, slot, bundle(encoder_of(announcement), 1), announced)
            before = written(world)
            answer = client.post("/v1/bundle", json=messages, headers={"authorization": ""})
            return answer.status_code, answer.content, written(world) > before

        for announced, slot in ((entry, 0), (entry, 0), (entry, 1), (other, 0), (other, 2), (entry, 2)):
            assert asked(announced, slot) == (200, b"{}", True)


def written(world: Trio) -> int:
    """Bytes in the write-ahead log of the shuffler's store."""
    return sum(path.stat().st_size for path in world.shuffler_path.parent.glob("*-wal"))


def test_a_shuffler_whose_store_fails_acknowledges_nothing_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, ended = trio(tmp_path), threading.Event()
    desk = world.desk()
    _, announcement = enrolled(desk)
    mine = bundle_json(desk, 0, bundle(encoder_of(announcement), 1))
    with shuffler_client(world, on_failure=ended.set) as client:
        client.post("/v1/shuffler/join", json={"opening": desk.visible.entries[0].to_json()})

        def broken(*_: object) -> None:
            raise StoreFailed("the disk is full")

        monkeypatch.setattr("discreet.live.shuffler.ShufflerStore.writing", broken)
        assert client.post("/v1/bundle", json=mine).status_code == 503
        assert ended.is_set()
        monkeypatch.undo()
        assert client.post("/v1/bundle", json=mine).status_code == 503
        assert client.get("/v1/health").status_code == 503


# The analyzer's side ------------------------------------------------------------------------------------------------


WRONG = [
    http("200 OK", b'{"signature": ""}'),
    http("200 OK", b'{"messages": 4, "signature": ""}'),
    http("200 OK", b'{"messages": ""}'),
]


@pytest.mark.parametrize("reply", [*NONSENSE, *WRONG])
def test_whatever_the_shuffler_answers_the_analyzer_stays_up_and_tries_again(
    tmp_path: Path, reply: bytes | None
) -> None:
    port = free_port()
    world = trio(tmp_path, f"http://127.0.0.1:{port}")
    desk = world.desk()
    shuffler = desk.charter.shuffler
    assert shuffler is not None
    link = ShufflerLink(desk.visible.entries[0], shuffler.url, shuffler.key, world.begun.secret, patience=0.3)
    with answering(port, reply):
        began = time.monotonic()
        link.look(desk.visible.entries)  # says so, and goes on
        with pytest.raises(Unreachable):
            link.closed(desk.visible.entries[1])
        link._joined = True
        with pytest.raises(Unreachable):
            link.closed(desk.visible.entries[1])
        assert time.monotonic() - began < 5.0
    link.close()


def test_an_analyzer_needs_the_token_of_its_shuffler_for_itself_alone(tmp_path: Path) -> None:
    world = trio(tmp_path / "here")
    secret = world.path.with_name("tiny.shuffler")
    secret.chmod(0o644)
    with pytest.raises(ValueError, match="others can read"):
        lead(world.desk(), world.path)
    secret.unlink()
    with pytest.raises(ValueError, match=r"tiny\.shuffler.*that the shuffler has printed"):
        lead(world.desk(), world.path)
    far = trio(tmp_path / "far", "http://mixer.example")
    with pytest.raises(ValueError, match="use https"):
        lead(far.desk(), far.path)


# What they hear -----------------------------------------------------------------------------------------------------


@contextmanager
def tapped(port: int, target: int) -> Iterator[list[bytearray]]:
    """Passes everything on, both ways; what went each way of every connection."""
    heard: list[bytearray] = []
    sockets: list[socket.socket] = []

    def pump(source: socket.socket, sink: socket.socket, copy: bytearray) -> None:
        try:
            while part := source.recv(1 << 16):
                copy += part
                sink.sendall(part)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", port)) as listening:

        def serve() -> None:
            while True:
                try:
                    near, _ = listening.accept()
                    far = socket.create_connection(("127.0.0.1", target))
                except OSError:
                    return
                sockets.extend((near, far))
                for source, sink in ((near, far), (far, near)):
                    heard.append(bytearray())
                    threading.Thread(target=pump, args=(source, sink, heard[-1]), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in sockets:
                each.close()


def bodies(heard: list[bytearray], path: str) -> list[dict[str, Any]]:
    """What was posted to a path."""
    found = []
    for each in heard:
        for match in re.finditer(rb"POST " + path.encode() + rb" HTTP", bytes(each)):
            head, _, rest = bytes(each[match.start() :]).partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            assert length is not None
            found.append(json.loads(rest[: int(length[1])]))
    return found


def test_people_learn_by_commands_and_traffic_of_either_server_alone_tells_nobodys_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes, begun, served and verified by commands, and everything they say. The shuffler hears places and
    ciphertexts, but no name and no bit; the analyzer hears names, and bits in an order that is not theirs."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    monkeypatch.setattr("discreet.client.connect", partial(connect, timeout=60.0))  # on a busy machine, too
    learned = import_module("demo_shuffle").learned
    analyzer, mixer, near, far = (free_port() for _ in range(4))
    came: list[int] = []
    small = {"states": 3, "horizon": 4, "epsilon": 20.0, "patience": 4, "port": far}
    with tapped(near, analyzer) as at_analyzer, tapped(far, mixer) as at_shuffler:
        found, checked = learned(tmp_path, (analyzer, mixer), 40, lambda: came.append(1), near, **small)
    assert found.tickets == len(came) == 40
    assert found.worth.releases >= 2
    assert checked["consistent"], checked["problems"]
    assert checked["batches_signed"] == found.worth.releases
    token = re.search(rb"authorization: Bearer (\S+)", b"".join(map(bytes, at_analyzer)), re.IGNORECASE)
    assert token is not None
    sent = bodies(at_shuffler, "/v1/bundle")
    messages = [base64.b64decode(each["messages"]) for each in sent]
    assert len({(each["announced"]["number"], each["slot"]) for each in sent}) == 40

    # the shuffler: whoever it hears, all bundles of an epoch have one size, and nothing names anybody
    people = b"".join(map(bytes, at_shuffler))
    enrolments = bodies(at_analyzer, "/v1/enrol")
    names = [each["user"].encode() for each in enrolments]
    tickets = [match[1] for each in at_analyzer for match in re.finditer(rb'"ticket":"([0-9a-f]{32})"', bytes(each))]
    assert len(set(names)) == len(set(tickets)) == 40
    assert not any(secret in people for secret in (*names, *tickets, token[1]))
    for epoch in {each["announced"]["number"] for each in sent}:
        mine = [len(m) for m, each in zip(messages, sent, strict=True) if each["announced"]["number"] == epoch]
        assert len(set(mine)) == 1
    assert all(set(each) == {"announced", "slot", "admission", "messages"} for each in sent)

    # the analyzer: no bundle, no place of a message, and what it gets of a batch was not sent side by side
    told_analyzer = b"".join(map(bytes, at_analyzer))
    assert not any(base64.b64encode(message)[:40] in told_analyzer for each in messages for message in cut(each)[:3])
    parts = [
        base64.b64decode(match[1])
        for each in at_shuffler
        for match in re.finditer(rb'"messages":"([A-Za-z0-9+/=]+)"\}', bytes(each))
        if not bytes(each).startswith(b"POST")
    ]
    passed = [message for part in parts for message in cut(part)]
    assert {message for each in messages for message in cut(each)} <= set(passed)
    where = {message: place for place, message in enumerate(passed)}
    spread = [np.ptp([where[message] for message in cut(each)]) for each in messages]
    assert min(spread) > 1.5 * len(cut(messages[0]))  # side by side it would be 1 less than their number


def test_what_the_shuffler_sees_of_one_item_has_the_law_of_any_other(tmp_path: Path) -> None:
    """Bytes of sealed messages, of people who all have one item and of people who all have another."""
    encoder = encoder_of(told(trio(tmp_path).desk()))

    def seen(item: int | None) -> Any:
        """How often each byte is among the last of a message."""
        rows = np.frombuffer(b"".join(bundle(encoder, item) for _ in range(100)), np.uint8).reshape(-1, SEALED)
        return np.bincount(rows[:, -24:].ravel(), minlength=256)

    assert stats.chi2_contingency([seen(item) for item in (None, 0, 1)]).pvalue > 1e-6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShuffledEncoder, "sealed", lambda _, messages: messages.tobytes() * SEALED)
        unsealed = np.array([seen(item) for item in (None, 0)])
    assert stats.chi2_contingency(unsealed[:, unsealed.sum(axis=0) > 0]).pvalue < 1e-6


# Commands -----------------------------------------------------------------------------------------------------------


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_shuffler_begins_with_a_command_and_prints_what_its_analyzer_needs(tmp_path: Path) -> None:
    path = tmp_path / "mixer.toml"
    path.write_text('name = "mixer"\n[shuffler]\nurl = "https://mixer.example"\n')
    begin = "deploy", "init", path, "--role", "shuffler"
    assert json.loads(invoke(*begin, "--dry-run", "--json").stdout) == {
        "name": "mixer",
        "url": "https://mixer.example",
    }
    assert not path.with_name("mixer.keys").exists()
    shown = invoke(*begin).stdout.splitlines()
    lines = "\n".join(line for line in shown if line.startswith(("[shuffler]", "url =", "key =")))
    secret = next(shown[i + 1] for i, line in enumerate(shown) if "chmod 600" in line)
    assert secret not in path.with_name("mixer.keys").read_text()
    assert path.with_name("mixer.keys").stat().st_mode & 0o077 == 0
    assert "not replaced" in invoke(*begin, code=2).stderr
    analyzer = tmp_path / "analyzer"
    analyzer.mkdir()
    charter = analyzer / "tiny.toml"
    charter.write_text(
        'name = "tiny"\n[problem]\nstates = 2\nactions = 2\nhorizon = 2\npooled = true\nstart = 0\n'
        f'[privacy]\nmodel = "shuffle"\nepsilon = 1\ndelta = 1e-6\nusers = 60\n{lines}\n'
    )
    assert "tiny.shuffler" in invoke("deploy", "init", charter, code=2).stderr
    charter.with_name("tiny.shuffler").touch(mode=0o600)
    charter.with_name("tiny.shuffler").write_text(secret)
    invoke("deploy", "init", charter)
    assert Desk.open(charter).charter.shuffler is not None
    strange = {'name = "m"\n': "shuffler.url", 'name = "m"\n[shuffler]\nurl = "x"\nmore = 1\n': "no setting"}
    for wrong, why in strange.items():
        path.write_text(wrong)
        assert why in invoke(*begin, "--dry-run", code=2).stderr


def test_retiring_tells_the_shuffler_also_when_nobody_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, shown = trio(tmp_path), list[str]()
    monkeypatch.setattr(
        ShufflerLink, "look", lambda self, log: shown.extend(entry.event["event"] for entry in log[-1:])
    )
    invoke("deploy", "retire", world.path, "--out", tmp_path / "certificate", "--yes")
    assert shown == ["retired"]
