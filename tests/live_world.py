"""Small deployments for the tests of what serves them."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from discreet.device.announcements import Announcement, Entry, Instructions
from discreet.live.deployment import Reply
from discreet.live.desk import Desk, Wish, announcement_of, begin
from discreet.live.events import Released, event_of
from discreet.live.secrets import Tokens
from discreet.live.server import Limits, create_app
from discreet.live.service import Service
from discreet.privacy.noise import NoiseSource

PATIENCE = 1_000
NONE = b"\xff" * 4
PROBLEM = """
name = "tiny"
[problem]
states = {states}
actions = 2
horizon = {horizon}
rewards = [0, 1]
pooled = true
start = 0
"""
#: Five people per epoch; at ε = 20 the noise of a count is zero but for one draw in 10,000.
TOML = (
    PROBLEM
    + """[privacy]
model = "{model}"
epsilon = {epsilon}
users = {users}
[learner]
name = "{learner}"
[serving]
patience = "{patience}"
overlap = "{overlap}"
[store]
url = "{url}"
anchor = "{anchor}"
"""
)
USUAL = {
    "states": 2,
    "horizon": 2,
    "model": "joint",
    "epsilon": 20.0,
    "users": 60,
    "learner": "spotlight",
    "patience": "1s",
    "overlap": "wait",
    "url": "sqlite:///tiny.db",
    "anchor": "tiny.head",
}
#: No test but that of rates shall be slowed down by them.
FREE = Limits(per_token=1e9, per_address=1e9, refused_tokens=1e9)


@dataclass
class Clock:
    """Milliseconds, by hand."""

    now: int = 1_000_000

    def __call__(self) -> int:
        return self.now


class Client:
    """An application without a socket, in an event loop of its own, asked from anywhere."""

    def __init__(self, app: Starlette, headers: dict[str, str]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._app, self._headers = app, headers

    def __enter__(self) -> Client:
        self._thread.start()
        self._alive = self._app.router.lifespan_context(self._app)
        self.wait(self._alive.__aenter__())
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://test", headers=self._headers)
        return self

    def __exit__(self, *_: object) -> None:
        self.wait(self.http.aclose())
        self.wait(self._alive.__aexit__(None, None, None))
        self.wait(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait(self, awaited: Coroutine[Any, Any, Any] | Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result(60)

    def request(self, method: str, path: str, **told: Any) -> httpx.Response:
        found: httpx.Response = self.wait(self.http.request(method, path, **told))
        return found

    def get(self, path: str, **told: Any) -> httpx.Response:
        return self.request("GET", path, **told)

    def post(self, path: str, **told: Any) -> httpx.Response:
        return self.request("POST", path, **told)

    def together(self, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
        """All of these at once."""

        async def all_of_them() -> list[httpx.Response]:
            return await asyncio.gather(*(self.http.request(m, path, **told) for m, path, told in requests))

        found: list[httpx.Response] = self.wait(all_of_them())
        return found


@dataclass
class World:
    """A deployment in a folder, and how to come back to it."""

    path: Path
    tokens: Tokens
    clock: Clock = field(default_factory=Clock)

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def anchor(self) -> Path:
        return self.folder / "tiny.head"

    @property
    def database(self) -> Path:
        return self.folder / "tiny.db"

    def desk(self, seed: int = 0) -> Desk:
        return Desk.open(self.path, clock=self.clock, noise=NoiseSource.seeded(seed))

    def service(self, **options: Any) -> Service:
        return Service(self.desk(), **{"tick": 0.02, **options})

    @contextmanager
    def client(self, limits: Limits = FREE, **options: Any) -> Iterator[Client]:
        """Asked with the app's token."""
        app = create_app(self.service(**options), limits)
        with Client(app, {"authorization": f"Bearer {self.tokens.app}"}) as client:
            yield client

    @property
    def operator(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens.operator}"}


def deployed(folder: Path, **told: Any) -> World:
    """A deployment that has begun."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.toml"
    path.write_text(TOML.format(**(USUAL | told)))
    return World(path, begin(path))


def told(desk: Desk) -> Announcement:
    """What is in force."""
    entry = desk.visible.told
    assert entry is not None
    return announcement_of(entry)


def asked(desk: Desk, *wishes: Wish) -> list[Reply | None]:
    return desk.decided(wishes)


def place(item: int) -> bytes:
    """The payload of somebody whose item has this place."""
    return item.to_bytes(4, "little")


def enrolled(client: Client | httpx.Client, name: str) -> dict[str, Any]:
    answer = client.post("/v1/enrol", json={"user": name})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def sent(client: Client | httpx.Client, name: str, ticket: str, payload: bytes = NONE) -> httpx.Response:
    message = {"user": name, "ticket": ticket, "payload": base64.b64encode(payload).decode()}
    return client.post("/v1/report", json=message)


def log_of(client: Any) -> list[Entry]:
    answer = client.get("/v1/log", params={"from": 0, "count": 1000})
    assert answer.status_code == 200
    return [Entry.from_json(entry) for entry in answer.json()["entries"]]


def releases(client: Any) -> list[Released]:
    return [event for event in map(event_of, log_of(client)) if isinstance(event, Released)]


def until(true: Any, seconds: float = 20.0) -> Any:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def played(agent: Any, user: str) -> None:
    """Somebody for whom going (1) from 0 always leads to 1 and pays, and everything else back to 0; until she has a
    place."""
    while True:
        with agent.episode(user) as e:
            state = 0
            for _ in range(2):
                went = state == 0 and e.act(state) == 1
                e.reward(float(went))
                state = int(went)
            e.end(state)
        if e.spectator is None:
            return
        assert "still reporting" in e.spectator or "not been announced" in e.spectator
        time.sleep(0.02)


def earned_by(plan: Instructions) -> float:
    """What this plan earns where `played` plays: going at once or, in two steps, one step later are equally good."""
    state, earned = 0, 0.0
    for step in range(2):
        went = state == 0 and plan.action(step, state, 0) == 1
        earned += float(went)
        state = int(went)
    return earned


# A process ----------------------------------------------------------------------------------------------------------

PROGRAM = (
    "import sys; from discreet.live.server import Limits, run; run(sys.argv[1], port=int(sys.argv[2]), {options})"
)


@contextmanager
def serving(world: World, port: int, options: str = "tick=0.05") -> Iterator[subprocess.Popen[bytes]]:
    """A real server in a process group of its own."""
    with running(world.path, port, PROGRAM.format(options=options)) as process:
        yield process


@contextmanager
def running(path: Path, port: int, source: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that serves a file on a port."""
    program = [sys.executable, "-c", source, str(path), str(port)]
    with (path.parent / "output").open("ab") as output:
        process = subprocess.Popen(program, stdout=output, stderr=output, start_new_session=True)
    try:
        until(lambda: process.poll() is not None or alive(port), 60.0)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def alive(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v1/health").status_code == 200
    except httpx.TransportError:
        return False


def client_of(world: World, port: int) -> httpx.Client:
    headers = {"authorization": f"Bearer {world.tokens.app}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20.0)


# Somebody else ------------------------------------------------------------------------------------------------------


@contextmanager
def answering(port: int, reply: bytes | None) -> Iterator[None]:
    """Somebody who listens there and always says this; None: accepts, and says nothing."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", port)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                kept.append(connection)
                if reply is not None:
                    connection.recv(1 << 16)
                    connection.sendall(reply)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in kept:
                connection.close()


def http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


#: Answers of somebody who is not the server that was asked for.
NONSENSE: list[bytes | None] = [
    None,
    b"",
    b"nonsense\r\n\r\n",
    http("200 OK", b"{}"),
    http("200 OK", b"[1]"),
    http("200 OK", b"not json"),
    http("401 Unauthorized", b"{}"),
    http("500 Oh", b"{}"),
    http("302 Found", b"{}"),
    http("200 OK", b'{"entry": {"number": 0, "previous": "' + b"0" * 64 + b'", "body": "e30=", "signature": ""}}'),
]
