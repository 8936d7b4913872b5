"""Attacks on a served deployment: long, deep, slow and hostile messages, tokens of others, searches for secrets."""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from discreet.live import secrets, server, wire
from discreet.live.events import event_of
from discreet.live.server import Buckets, Limits, create_app
from live_world import (
    FREE,
    NONE,
    PATIENCE,
    Client,
    World,
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

SOURCE = Path(secrets.__file__).parent
JSON = {"content-type": "application/json"}
#: What is tried in every text: quotes, comments, wildcards, other statements, other encodings.
HOSTILE = [
    "'; DROP TABLE ticket; --",
    "' OR '1'='1",
    '" OR ""="',
    "1; DELETE FROM log WHERE 1=1",
    "') UNION SELECT user, item FROM ticket --",
    "x' AND (SELECT count(*) FROM ticket) > 0 --",
    "%' ESCAPE '!",
    "{{7*7}}${7*7}<script>alert(1)</script>",
    "../../../../etc/passwd",
    "\x00\x01\x1f\x7f",
    "𝕱𝖗𝖊𝖚𝖓𝖉\u202e\ufeff",
    "a" * 256,
]


# Long and deep messages ---------------------------------------------------------------------------------------------


def chunks(total: int, size: int = 1 << 16) -> Any:
    async def stream() -> Any:
        for _ in range(total // size):
            yield b" " * size

    return stream()


def test_long_messages_are_refused_whether_they_tell_their_length_or_not(tmp_path):
    world = deployed(tmp_path)
    with world.client() as client:
        long = b'{"user":"' + b"a" * wire.MOST_BODY + b'"}'
        for told in ({"content": long}, {"content": chunks(1 << 20)}):
            answer = client.post("/v1/enrol", headers=JSON, **told)
            assert answer.status_code == 413
            assert answer.json() == {"error": "the message is too long"}
        for length in ("-1", "1e9", "99999999999999999999", "0x10"):
            headers = {**JSON, "content-length": length}
            assert client.post("/v1/enrol", content=b"{}", headers=headers).status_code in (400, 413)
        fits = json.dumps({"user": "ann", "ticket": "0" * 32, "payload": "A" * (wire.MOST_PAYLOAD // 4 * 4)})
        assert len(fits) <= wire.MOST_BODY
        assert client.post("/v1/report", content=fits, headers=JSON).status_code == 404
        more = json.dumps({"user": "ann", "ticket": "0" * 32, "payload": "A" * (wire.MOST_PAYLOAD // 4 * 4 + 4)})
        assert client.post("/v1/report", content=more, headers=JSON).status_code in (400, 413)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"user":' * 20_000,
        b'{"user":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"user":"ann","user2":' + b'{"a":' * 30_000 + b"1" + b"}" * 30_001,
    ],
    ids=["lists", "objects", "deep user", "deep unknown", "deep extra"],
)
def test_deep_messages_are_refused(tmp_path, body):
    with deployed(tmp_path).client() as client:
        answer = client.post("/v1/enrol", content=body, headers=JSON)
        assert answer.status_code == 400
        assert enrolled(client, "ann")["slot"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"ann"',
        b"{}",
        b'{"user":""}',
        b'{"user":null}',
        b'{"user":1}',
        b'{"user":["ann"]}',
        b'{"user":{"$ne":null}}',
        b'{"user":true}',
        b'{"user":"' + b"a" * 257 + b'"}',
        b'{"user":"ann","more":1}',
        b'{"user":"ann"}{"user":"bob"}',
        b'{"user":"ann",}',
        b"{'user':'ann'}",
        b'{"user":"\xff\xfe"}',
        b'{"user":"\\ud800"}',
        b'\xef\xbb\xbf{"user":"ann"}',
        b'{"USER":"ann"}',
        b'{"user":NaN}',
    ],
)
def test_what_is_not_exactly_the_message_is_refused_and_not_repeated(tmp_path, body):
    with deployed(tmp_path).client() as client:
        answer = client.post("/v1/enrol", content=body, headers=JSON)
        assert answer.status_code == 400
        assert answer.json() == {"error": "the message is not what this address takes"}


def test_only_json_is_read_and_queries_are_strict(tmp_path):
    with deployed(tmp_path).client() as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            headers = {"content-type": kind}
            assert client.post("/v1/enrol", content=b'{"user":"ann"}', headers=headers).status_code == 415
        for query in ("from=-1", "from=x", "count=0", "count=1001", "from=1&from=2", "other=1", "from=1e3", "from=٣"):
            assert client.get(f"/v1/log?{query}").status_code == 400
        assert client.post("/v1/enrol?user=ann", json={"user": "ann"}).status_code == 400


# Hostile texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_a_name_like_any_other_and_changes_nothing_else(tmp_path, text):
    """In every text of every message; afterwards everything works as before."""
    world = deployed(tmp_path)
    with world.client() as client:
        honest = enrolled(client, "ann")
        before = log_of(client)
        assert enrolled(client, text)["slot"] == 1
        assert enrolled(client, text) == {**enrolled(client, text), "again": True}
        fields = {"ticket": honest["ticket"], "user": "ann", "payload": base64.b64encode(NONE).decode()}
        for name in fields:
            answer = client.post("/v1/report", json={**fields, name: text})
            assert answer.status_code in (400, 404, 422)
            assert answer.json().keys() == {"error"}
        act = {"ticket": honest["ticket"], "announcement": honest["announcement"], "step": 0, "state": 0}
        for name in ("ticket", "announcement", "step", "state", "reported"):
            assert client.post("/v1/act", json={**act, "reported": False, name: text}).status_code == 400
        assert client.get("/v1/log", params={"from": text}).status_code == 400
        if text.isprintable() and text.isascii():
            for place_of in ({"authorization": f"Bearer {text}"}, {"authorization": text}):
                assert client.post("/v1/enrol", json={"user": "x"}, headers=place_of).status_code == 401
        assert client.get("/v1/charter", headers={"x-forwarded-for": "1", "cookie": "a=b"}).status_code == 200
        assert log_of(client) == before
        assert enrolled(client, "bob")["slot"] == 2
        assert sent(client, "ann", honest["ticket"]).json() == {"again": False}


# Tokens -------------------------------------------------------------------------------------------------------------


def test_every_address_takes_its_own_tokens_only(tmp_path):
    world, other = deployed(tmp_path / "a"), deployed(tmp_path / "b")
    with Client(create_app(world.service(), FREE), {}) as client:
        ours, theirs = world.tokens, other.tokens
        wrong = ["", "Bearer", "Bearer ", "Bearer x", f"Basic {ours.app}", ours.app, f"Bearer {ours.app[:-1]}"]
        wrong += [f"Bearer {ours.app}x", f"Bearer {ours.app.upper()}", f"Bearer {theirs.app}", f"Bearer {ours.app},"]
        wrong += [f"Bearer {secrets.hashed(ours.app)}", f"Bearer {theirs.operator}"]
        for name, address in wire.ADDRESSES.items():
            if address.role is None:
                continue
            swapped = ours.operator if address.role == "app" else ours.app
            for header in [*wrong, f"Bearer {swapped}"]:
                answer = client.request(address.method, address.path, headers={"authorization": header})
                assert answer.status_code == 401, (name, header)
                assert answer.headers["www-authenticate"] == "Bearer"
            assert client.request(address.method, address.path).status_code == 401
            right = {"authorization": f"bearer {ours.app if address.role == 'app' else ours.operator}"}
            assert client.request(address.method, address.path, headers=right).status_code != 401
        assert [entry.event["event"] for entry in log_of(client)][2:] == ["paused", "resumed", "retired"]


def test_tickets_of_others_forged_and_foreign_ones_are_no_tickets(tmp_path):
    world, other = deployed(tmp_path / "a"), deployed(tmp_path / "b")
    with world.client() as client, other.client() as elsewhere:
        ann, bob = enrolled(client, "ann"), enrolled(client, "bob")
        foreign = enrolled(elsewhere, "ann")["ticket"]
        flipped = f"{int(ann['ticket'], 16) ^ 1:032x}"
        for ticket in (bob["ticket"], foreign, flipped, "0" * 32):
            answer = sent(client, "ann", ticket)
            assert answer.status_code == 404
            assert answer.json() == {"error": "there is no such thing"}
        # one who never enrolled, with the ticket she would get
        secret = secrets.read(world.folder / "tiny.keys")
        never = secret.ticket(secret.user("eve")).hex()
        assert sent(client, "eve", never).status_code == 404
        assert sent(client, "ann", ann["ticket"]).json() == {"again": False}
        world.clock.now += PATIENCE
        assert sent(client, "bob", bob["ticket"]).status_code == 410


SECRET = re.compile("token|ticket|hash|known|told|signature|secret|key")


def comparisons(source: str) -> list[str]:
    """Comparisons by value of anything secret (lengths may be), and functions that should compare in constant time
    and do not, or end early."""
    tree, found = ast.parse(source), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            sides = [side for side in (node.left, *node.comparators) if "len(" not in ast.unparse(side)]
            names = [n.id for side in sides for n in ast.walk(side) if isinstance(n, ast.Name)]
            names += [n.attr for side in sides for n in ast.walk(side) if isinstance(n, ast.Attribute)]
            found += [ast.unparse(node)] if any(map(SECRET.search, names)) else []
        if isinstance(node, ast.FunctionDef) and node.name in ("among", "owns"):
            calls = [ast.unparse(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)]
            ends = [n for n in ast.walk(node) if isinstance(n, ast.Return | ast.Break)]
            found += [node.name] if "hmac.compare_digest" not in calls or len(ends) != 1 else []
    return found


def test_secrets_are_compared_in_constant_time_and_in_one_place():
    source = (SOURCE / "secrets.py").read_text()
    assert comparisons(source) == []
    assert {"among", "owns"} <= {n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)}
    for planted in (
        source.replace("hmac.compare_digest(self.ticket(user), ticket)", "self.ticket(user) == ticket"),
        source.replace("found |= hmac.compare_digest(known, told)", "found |= known == told"),
        source.replace(
            "found |= hmac.compare_digest(known, told)", "if hmac.compare_digest(known, told): return True"
        ),
    ):
        assert planted != source
        assert comparisons(planted)
    for name in ("server.py", "desk.py", "service.py", "helper.py", "helper_server.py", "link.py"):
        text = (SOURCE / name).read_text()
        asked = [c for c in comparisons(text) if re.search("token|ticket|secret", c)]
        assert asked == []


def test_no_user_of_an_app_has_the_name_of_a_key():
    """The vault holds users; half of the key of a file that is unpickled must not be one of them."""
    own = secrets.fresh(["a"], ["b"])
    names = ("memo", "ticket", "user", "token")
    known = {part for name in names for part in (own.user(name), own.ticket(own.user(name)))}
    assert own.memo_key[: secrets.NAME_BYTES] not in known


def test_tokens_are_hashed_at_rest_and_the_keys_are_their_owners(tmp_path):
    world = deployed(tmp_path)
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for token in (world.tokens.app, world.tokens.operator):
        assert len(token) >= 40
        assert token.encode() not in kept
        assert secrets.hashed(token).encode() in kept
    path = tmp_path / "tiny.keys"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for mode in (0o640, 0o604, 0o666):
        path.chmod(mode)
        with pytest.raises(ValueError, match="others can read"):
            world.desk()
    path.chmod(0o600)
    for broken in (b"", b"{}", path.read_bytes().replace(b'"user"', b'"usr"'), b'{"signing": 1}'):
        (tmp_path / "broken.keys").write_bytes(broken)
        (tmp_path / "broken.keys").chmod(0o600)
        with pytest.raises(ValueError, match="does not hold the keys of a deployment"):
            secrets.read(tmp_path / "broken.keys")
    assert "Ed25519" not in repr(secrets.read(path))


# Rates and slow connections -----------------------------------------------------------------------------------------


def test_whoever_comes_too_often_waits_and_others_do_not(tmp_path):
    world = deployed(tmp_path)
    limits = Limits(per_token=3.0, per_address=3.0, refused_tokens=2.0)
    with world.client(limits) as client:
        found = [client.get("/v1/charter").status_code for _ in range(12)]
        assert found[:6] == [200] * 6
        assert 429 in found[6:]
        assert client.get("/v1/charter").headers.get("retry-after") in (None, "1")
        bad = {"authorization": "Bearer no"}
        refused = [client.post("/v1/enrol", json={"user": "a"}, headers=bad).status_code for _ in range(8)]
        assert refused[:4] == [401] * 4
        assert 429 in refused[4:]
        assert enrolled(client, "ann")["slot"] == 0  # whoever has a token is not kept out by those who have none
        often = [client.post("/v1/enrol", json={"user": "ann"}).status_code for _ in range(12)]
        assert 429 in often


def test_buckets_fill_with_time_and_forget_who_was_seen_longest_ago():
    now = [0.0]
    buckets = Buckets(2.0, lambda: now[0], most=3)
    assert [buckets.take("a") for _ in range(5)] == [True] * 4 + [False]
    now[0] += 0.5
    assert [buckets.take("a") for _ in range(2)] == [True, False]
    now[0] += 1e9
    assert [buckets.take("a") for _ in range(5)] == [True] * 4 + [False]
    for name in "bcd":
        assert buckets.take(name)
    assert len(buckets._known) == 3
    assert buckets.take("a")


def test_slow_connections_are_closed_and_delay_nobody(tmp_path):
    world, port = deployed(tmp_path, patience="60s"), free_port()
    options = "tick=0.05, page=False, limits=Limits(header_seconds=1.0, body_seconds=1.0)"
    with serving(world, port, options), client_of(world, port) as client:
        start = b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\n"
        whole = start + f"Authorization: Bearer {world.tokens.app}\r\nContent-Type: application/json\r\n".encode()
        slow = [
            b"",  # says nothing
            start,  # never ends its headers
            whole + b"Content-Length: 100\r\n\r\n{",  # never ends its body
            whole + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        ]
        sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        began = time.monotonic()
        for number, each in enumerate(sockets):
            each.sendall(slow[number % 4])
        for number in range(40):
            asked = time.monotonic()
            assert enrolled(client, f"user {number}").keys() & {"slot", "spectator"}
            assert time.monotonic() - asked < 1.0
        for number, each in enumerate(sockets):
            each.settimeout(10.0)
            if number % 4 == 1:
                try:
                    each.sendall(b"X-Trickle: 1\r\n")  # a byte now and then does not help
                except OSError:
                    continue
            told = b""
            try:
                while part := each.recv(4096):
                    told += part
            except ConnectionResetError:
                pass
            assert b" 200 " not in told
            assert number % 4 < 2 or b" 408 " in told
            each.close()
        assert time.monotonic() - began < 10.0


def test_headers_without_end_are_refused(tmp_path):
    world, port = deployed(tmp_path, patience="60s"), free_port()
    with serving(world, port, "tick=0.05, page=False"), client_of(world, port) as client:
        with socket.create_connection(("127.0.0.1", port)) as hostile:
            hostile.settimeout(10.0)
            try:
                hostile.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")
                told = hostile.recv(4096)
            except (ConnectionResetError, BrokenPipeError):
                told = b""
        assert b" 200 " not in told
        assert client.get("/v1/health").status_code == 200


# Secrets in places where they should not be -------------------------------------------------------------------------


def test_a_worker_leaves_no_dumps_also_where_it_is_not_forked(tmp_path, monkeypatch):
    """What forbids dumps does not outlive the start of another program, as which some systems begin workers."""
    world, told = deployed(tmp_path), list[bool]()
    monkeypatch.setattr(server, "leave_no_dumps", lambda: told.append(True))
    app = server._loaded(str(world.path), FREE, 1.0, False, None, None, "")
    assert told == [True]
    with Client(app, {}) as client:
        assert client.get("/v1/health").status_code == 200


def test_no_canary_is_in_answers_output_files_or_the_list_of_processes(tmp_path):
    """A user's name, a token, a ticket and a raw episode, sent in right and wrong ways, then searched for."""
    world, port = deployed(tmp_path, learner="dp-ucbvi", epsilon=1.0, users=2_000, patience="1s"), free_port()
    name, token, wrong = "canary-of-ann-7f3a", world.tokens.app, "canary-token-91c2"
    answers: list[str] = []
    with serving(world, port, "tick=0.05, page=False") as process, client_of(world, port) as client:
        announced = event_of(log_of(client)[1])
        episode = announced.encoder.payload([0, 1, 0], [1, 1], [1.0, 0.5], None)  # type: ignore[union-attr]
        size = announced.size  # type: ignore[union-attr]
        tickets = [enrolled(client, name if i == 0 else f"user {i}")["ticket"] for i in range(size)]
        assert sent(client, name, tickets[0], episode).status_code == 200
        payload = base64.b64encode(episode).decode()
        messages: list[tuple[str, dict[str, Any]]] = [
            ("/v1/enrol", {"json": {"user": name, "more": name}}),
            ("/v1/enrol", {"json": {"user": name}, "headers": {"authorization": f"Bearer {wrong}"}}),
            ("/v1/report", {"json": {"user": name, "ticket": tickets[1], "payload": payload}}),
            ("/v1/report", {"json": {"user": name, "ticket": tickets[0], "payload": "!" + name}}),
            ("/v1/report", {"content": b'{"user":"' + name.encode(), "headers": JSON}),
            (f"/{name}", {"json": {}}),
            (f"/v1/enrol?{name}=1", {"json": {"user": name}}),
            ("/v1/enrol", {"content": name.encode(), "headers": {"content-type": name}}),
        ]
        for path, message in messages:
            answer = client.post(path, **message)
            assert answer.status_code >= 400
            answers.append(answer.text + str(answer.headers))
        until(lambda: releases(client))
        answers += [client.get(path).text for path in ("/v1/charter", "/v1/log", "/v1/announcement", "/v1/health")]
        processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        answers += [" ".join(each.cmdline()) + str(each.environ()) for each in processes]
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != world.path)
    raw = episode[8:]
    for secret in (name.encode(), token.encode(), wrong.encode(), raw, base64.b64encode(raw)):
        assert secret not in files
        assert secret not in "".join(answers).encode()
    assert tickets[0].encode() not in files
    assert bytes.fromhex(tickets[0]) not in files


def test_what_is_public_does_not_depend_on_who_has_reported_or_what(tmp_path):
    """Everything a stranger can ask for, while an epoch is open: the same with reports, other reports and none."""
    world = deployed(tmp_path / "a")
    seen = []
    for number, item in enumerate((None, 0, 3)):
        folder = tmp_path / f"copy {number}"
        shutil.copytree(world.folder, folder)
        copy = World(folder / "tiny.toml", world.tokens)
        with copy.client() as client:
            tickets = {name: enrolled(client, name) for name in ("ann", "bob")}
            if item is not None:
                assert sent(client, "ann", tickets["ann"]["ticket"], place(item)).status_code == 200
            told = [client.get(path).content for path in ("/v1/charter", "/v1/log", "/v1/announcement", "/v1/health")]
            told += [json.dumps(enrolled(client, name)).encode() for name in ("ann", "bob", "carl")]
            told.append(client.post("/v1/operator/pause", headers=copy.operator).content)
        seen.append([piece for piece in told if b"signature" not in piece])
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 6


def test_the_figures_of_the_operators_page_do_not_move_when_somebody_reports(tmp_path):
    """Who looks at the page once a second would see that Ann has reported, and when she came to her target."""
    world = deployed(tmp_path)
    service = world.service()
    with Client(create_app(service, FREE), {"authorization": f"Bearer {world.tokens.app}"}) as client:
        ticket = enrolled(client, "ann")["ticket"]
        known = list(service.latency.last)
        assert len(known) == 1
        for payload in (place(2), place(2), b"no report"):
            sent(client, "ann", ticket, payload)
        enrolled(client, "ann")
        assert list(service.latency.last) == known
        enrolled(client, "bob")
        assert len(service.latency.last) == 2


def test_no_server_is_asked_what_to_do_where_none_may_know_the_state(tmp_path):
    """A question with her state in it would tell a server more than her randomised message does."""
    world = deployed(tmp_path, model="local", users=100_000)
    with world.client() as client:
        ticket = enrolled(client, "ann")
        told = {"ticket": ticket["ticket"], "announcement": ticket["announcement"], "reported": False}
        answer = client.post("/v1/act", json={**told, "step": 0, "state": 0})
        assert answer.status_code == 422
        assert "stay on the device" in answer.json()["error"]


def test_one_user_hears_nothing_about_another(tmp_path):
    """Answers to Bob are the same whether Ann has reported, and whether she is there at all but for his place."""
    world = deployed(tmp_path)
    with world.client() as client:
        ann = enrolled(client, "ann")
        before = [enrolled(client, "bob"), sent(client, "ann", "0" * 32).json(), enrolled(client, "bob")]
        assert sent(client, "ann", ann["ticket"], place(2)).status_code == 200
        after = [enrolled(client, "bob"), sent(client, "ann", "0" * 32).json(), enrolled(client, "bob")]
        assert after == [{**before[0], "again": True}, *before[1:]]


# Every message its description allows, and many that it does not ---------------------------------------------------


@pytest.mark.parametrize(
    ("role", "chosen"),
    [
        ("app", ["--exclude-path-regex", "operator"]),
        ("operator", ["--include-path-regex", "operator", "--exclude-path-regex", "retire"]),
    ],
)
def test_no_message_made_from_the_description_fails(tmp_path, role, chosen):
    """Schemathesis: what is allowed is understood, what is not is refused, answers are as described, no 500."""
    world, port = deployed(tmp_path, patience="60s"), free_port()
    (tmp_path / "schemathesis.toml").write_text(
        '[checks.positive_data_acceptance]\nexpected-statuses = ["2xx", 401, 404, 410, 422]\n'
    )
    examples = os.environ.get("DISCREET_EXAMPLES", "8")
    options = "tick=0.05, page=False, limits=Limits(per_token=1e9, per_address=1e9, refused_tokens=1e9)"
    with serving(world, port, options):
        command = [str(Path(sys.executable).with_name("st")), "run", f"http://127.0.0.1:{port}/openapi.json"]
        command += ["-H", f"Authorization: Bearer {getattr(world.tokens, role)}", "--seed", "1", "--no-color"]
        command += ["--max-examples", examples, "--generation-database", "none", *chosen]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-3000:]
        assert re.search(r"(\d+) generated, \1 passed", done.stdout), done.stdout[-1000:]
        assert httpx.get(f"http://127.0.0.1:{port}/v1/health").status_code == 200
