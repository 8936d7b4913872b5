"""The HTTP server of a deployment: strict messages in, one transaction for all who wait, one sentence for a refusal.

It listens on this machine only, unless told otherwise. What it refuses it does not repeat, neither to the sender nor
in its own output.
"""

from __future__ import annotations

import asyncio
import base64
import ctypes
import errno
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec
from granian import Granian
from granian.constants import HTTPModes, Interfaces, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from discreet.device.announcements import Announcement, Entry
from discreet.device.shuffled import pass_of
from discreet.device.wire import base64_of
from discreet.live import wire
from discreet.live.deployment import (
    Accepted,
    Amend,
    Command,
    Granted,
    Late,
    Pause,
    Refused,
    Resume,
    Retire,
    Spectator,
)
from discreet.live.desk import Desk, Visible, announcement_of, milliseconds
from discreet.live.files import pages
from discreet.live.link import lead
from discreet.live.secrets import Role
from discreet.live.service import TICK, Service, Unavailable
from discreet.live.wire import ADDRESSES, WHY, Address

log = logging.getLogger("discreet.live")
#: The exit code after the store has failed: an input/output error (sysexits.h).
STORE_FAILED = 74
#: linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
#: Seconds that a port may stay taken by a server that is coming to its end.
LETTING_GO = 1.0
#: Bytes of the log in one answer; one entry is told whatever its size.
MOST_TOLD = 4 << 20
#: Bytes of a request's line and headers.
MOST_HEADERS = 64 << 10
PAGE = Address("GET", "/operator", "what is public, for the operator's eyes", ())


@dataclass(frozen=True)
class Limits:
    """Messages per second (twice as many at once), and seconds."""

    per_token: float = 20_000.0
    per_address: float = 1_000.0  # of those who show no token
    refused_tokens: float = 5.0  # per address
    header_seconds: float = 10.0
    body_seconds: float = 10.0


USUAL = Limits()


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, why: str | None = None) -> None:
        super().__init__(status)
        self.status, self.why = status, WHY[status] if why is None else why


# Rates --------------------------------------------------------------------------------------------------------------


class Buckets:
    """Token buckets of at most so many callers; who was seen longest ago is forgotten."""

    def __init__(self, rate: float, clock: Callable[[], float], most: int = 4096) -> None:
        self.rate, self._clock, self._most = rate, clock, most
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> bool:
        """Whether the caller may send another message at this moment."""
        now = self._clock()
        level, last = self._known.pop(caller, (2.0 * self.rate, now))
        level = min(2.0 * self.rate, level + (now - last) * self.rate)
        self._known[caller] = level - 1.0 if level >= 1.0 else level, now
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return level >= 1.0


class Admitting(Protocol):
    def admits(self, role: Role, token: str) -> bool: ...


class Gate:
    """Who may come in, and how often."""

    def __init__(self, secrets: Admitting, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._secrets = secrets
        self._tokens = Buckets(limits.per_token, clock)
        self._addresses = Buckets(limits.per_address, clock)
        self._refused = Buckets(limits.refused_tokens, clock)

    def admit(self, address: Address, scope: Scope) -> None:
        """Refuse whoever shows no token of the role, and whoever comes too often."""
        peer = scope["client"][0] if scope.get("client") else ""
        if address.role is None:
            if not self._addresses.take(peer):
                raise Refusal(429)
            return
        token = _bearer(scope)
        if token is None or not self._secrets.admits(address.role, token):
            raise Refusal(401 if self._refused.take(peer) else 429)
        if not self._tokens.take(address.role):
            raise Refusal(429)


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)


def _bearer(scope: Scope) -> str | None:
    told = (_header(scope, b"authorization") or b"").decode("latin-1")
    scheme, _, token = told.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


# Messages -----------------------------------------------------------------------------------------------------------


async def _body(scope: Scope, receive: Receive, limits: Limits, most: int) -> bytes:
    """The body, unless it is too long or too slow."""
    told = _header(scope, b"content-length")
    if told is not None and (not told.isdigit() or len(told) > 15 or int(told) > most):
        raise Refusal(413)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refusal(400)
                part = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise Refusal(413)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal(408) from None


def _decoded(body: bytes, scope: Scope, decoder: msgspec.json.Decoder[Any]) -> Any:
    kind = (_header(scope, b"content-type") or b"").split(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Refusal(415)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Refusal(400) from None


def _queried(address: Address, scope: Scope) -> dict[str, Any]:
    """The query, in which nothing is unknown or said twice."""
    found = {name: value for name, (_, value) in address.query.items()}
    seen = set()
    try:
        pairs = parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True, strict_parsing=False)
        for name, value in pairs:
            if name not in found or name in seen or not (value.isascii() and value.isdigit() and len(value) < 17):
                raise Refusal(400)
            seen.add(name)
            found[name] = msgspec.convert(int(value), address.query[name][0])
    except (ValueError, msgspec.ValidationError):
        raise Refusal(400) from None
    return found


_HEADERS = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
_EXTRA = {
    401: [(b"www-authenticate", b"Bearer")],
    408: [(b"connection", b"close")],
    413: [(b"connection", b"close")],
    429: [(b"retry-after", b"1")],
    503: [(b"retry-after", b"1")],
}


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [*_HEADERS, (b"content-length", str(len(body)).encode()), *_EXTRA.get(status, ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _failure(why: str) -> bytes:
    return msgspec.json.encode(wire.Failure(why))


class Endpoint:
    """An address: admitted, read, answered."""

    def __init__(self, address: Address, gate: Gate, limits: Limits, answer: Callable[[Any], Awaitable[Any]]) -> None:
        self._address, self._gate, self._limits, self._answer = address, gate, limits, answer
        self._decoder = None if address.asks is None else msgspec.json.Decoder(address.asks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, body = 200, b""
        try:
            self._gate.admit(self._address, scope)
            asked = await self._asked(scope, receive)
            told = await self._answer(asked)
            body = told if isinstance(told, bytes) else msgspec.json.encode(told)
        except Refusal as refusal:
            status, body = refusal.status, _failure(refusal.why)
        except Unavailable:
            status, body = 503, _failure(WHY[503])
        except Exception as error:  # what it says may repeat what was sent
            log.error("%s failed: %s", self._address.path, type(error).__name__)
            status, body = 500, _failure("something went wrong here")
        await _send(send, status, body)

    async def _asked(self, scope: Scope, receive: Receive) -> Any:
        if self._address.method == "GET":
            return _queried(self._address, scope)
        if scope["query_string"]:
            raise Refusal(400)
        body = await _body(scope, receive, self._limits, self._address.most)
        if self._decoder is None:
            if body:
                raise Refusal(400)
            return None
        return _decoded(body, scope, self._decoder)


# Answers ------------------------------------------------------------------------------------------------------------


def part_of(log: Sequence[Entry], query: Mapping[str, int]) -> wire.LogTold:
    """As many entries as were asked for and fit into one answer."""
    start, entries, size = query["from"], list[Entry](), 0
    for entry in log[start : start + query["count"]]:
        size += len(entry.body)
        if entries and size > MOST_TOLD:
            break
        entries.append(entry)
    return wire.LogTold([wire.EntryTold(**entry.to_json()) for entry in entries], start + len(entries))


class Answers:
    """What every address answers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        key = base64_of(service.desk.secrets.public)
        charter = service.desk.charter
        self._charter = msgspec.json.encode(wire.CharterTold(charter.document(), charter.digest, key))
        self._announced = lru_cache(maxsize=8)(self._read)

    def _read(self, number: int) -> Announcement:
        return announcement_of(self._service.visible.entries[number])

    async def charter(self, _: Any) -> bytes:
        return self._charter

    async def announcement(self, _: Any) -> wire.AnnouncementTold:
        entry = (await self._service.current()).told
        if entry is None:
            raise Refusal(404, "nothing has been announced")
        return wire.AnnouncementTold(**entry.to_json(), head=entry.name, epoch=self._announced(entry.number).epoch)

    async def log(self, query: Mapping[str, int]) -> wire.LogTold:
        return part_of((await self._service.current()).entries, query)

    async def health(self, _: Any) -> wire.HealthTold:
        if self._service.failed:
            raise Refusal(503)
        head = self._service.visible.head
        return wire.HealthTold("ok", head.number, head.name)

    async def enrol(self, asked: wire.EnrolAsked) -> wire.TicketTold | wire.SpectatorTold:
        user = self._user(asked.user)
        reply = await self._service.enrol(user)
        if isinstance(reply, Spectator):
            self._service.spectators += 1
            return wire.SpectatorTold(reply.reason, reply.head.hex() if any(reply.head) else None)
        assert isinstance(reply, Granted)
        ticket, admission = self._service.desk.secrets.ticket(user).hex(), self._admission(reply)
        told = reply.epoch, reply.slot, reply.expires, reply.head.hex(), reply.again
        return wire.TicketTold(ticket, *told, admission)

    def _admission(self, place: Granted) -> str | None:
        """The pass of whoever has this place, where a shuffler collects."""
        desk = self._service.desk
        if desk.charter.shuffler is None:
            return None
        return base64_of(desk.secrets.signing.sign(pass_of(place.head, place.slot)))

    async def report(self, asked: wire.ReportAsked) -> wire.ReportTold:
        user = self._user(asked.user)
        if not self._service.desk.secrets.owns(user, bytes.fromhex(asked.ticket)):
            raise Refusal(404)
        reply = await self._service.report(user, base64.b64decode(asked.payload))
        if reply is None:
            raise Refusal(404)
        if isinstance(reply, Late):
            raise Refusal(410)
        if isinstance(reply, Refused):
            raise Refusal(422, reply.why)
        assert isinstance(reply, Accepted)
        return wire.ReportTold(reply.again)

    async def act(self, asked: wire.ActAsked) -> wire.ActionTold:
        visible = self._service.visible
        charter, entry = self._service.desk.charter, visible.announced.get(bytes.fromhex(asked.announcement))
        if charter.model != "joint":
            raise Refusal(422, "states stay on the device here; look the action up in the announcement")
        if entry is None:
            raise Refusal(404, "there is no such announcement")
        step, state, ticket = int(asked.step), int(asked.state), bytes.fromhex(asked.ticket)
        if step >= charter.horizon or state >= charter.num_states:
            raise Refusal(422, "there is no such step, or no such state")
        return wire.ActionTold(self._announced(entry.number).action(step, state, asked.reported, ticket))

    async def pause(self, _: Any) -> wire.DoneTold:
        return await self._operated(Pause())

    async def resume(self, _: Any) -> wire.DoneTold:
        return await self._operated(Resume())

    async def retire(self, _: Any) -> wire.DoneTold:
        return await self._operated(Retire())

    async def amend(self, asked: wire.AmendAsked) -> wire.DoneTold:
        return await self._operated(Amend(int(asked.users)))

    async def _operated(self, command: Command) -> wire.DoneTold:
        reply = await self._service.operate(command)
        if isinstance(reply, Refused):
            raise Refusal(422, reply.why)
        return wire.DoneTold(self._service.visible.head.number + 1)

    def _user(self, name: str) -> bytes:
        try:
            return self._service.desk.secrets.user(name)
        except UnicodeError:
            raise Refusal(400) from None


# The application ----------------------------------------------------------------------------------------------------


#: The operator's page brings everything along, and is in nobody's frame.
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
#: Seconds for which a page is shown before it is made again.
PAGE_SECONDS = 1.0


class OperatorPage:
    """What is public about the deployment now. Made at most once a second, whoever asks for it."""

    def __init__(self, service: Service, gate: Gate) -> None:
        self._service, self._gate = service, gate
        self._made, self._page = -PAGE_SECONDS, ""
        self._since, self._head = service.desk.now, service.visible.head
        self._alone = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._gate.admit(PAGE, scope)
            async with self._alone:
                if time.monotonic() >= self._made + PAGE_SECONDS:
                    visible = await self._service.current()
                    self._page = await asyncio.to_thread(self._drawn, visible)
                    self._made = time.monotonic()
            await Response(self._page, headers=PAGE_HEADERS, media_type="text/html")(scope, receive, send)
        except Refusal as refusal:
            await _send(send, refusal.status, _failure(refusal.why))
        except Unavailable:
            await _send(send, 503, _failure(WHY[503]))

    def _drawn(self, visible: Visible) -> str:
        from discreet.live import overview  # not needed by those who serve no page

        if visible.head is not self._head:
            self._since, self._head = milliseconds(), visible.head
        latency = self._service.latency
        told = overview.Service(
            now=milliseconds(),
            since=self._since,
            spectators=self._service.spectators,
            latency=(latency.quantile(0.5), latency.quantile(0.99)) if latency.last else None,
        )
        return overview.page(self._service.desk.state, visible.entries, told)


def create_app(
    service: Service, limits: Limits = USUAL, *, page: bool = True, files: Path | None = None
) -> Starlette:
    """The application of a deployment, with its operator's page and, of a folder, an app's own pages. Its service
    starts and stops with it."""

    @asynccontextmanager
    async def alive(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await asyncio.to_thread(service.stop)

    gate = Gate(service.desk.secrets, limits)
    more: list[BaseRoute] = [Route(PAGE.path, OperatorPage(service, gate), methods=["GET"])] if page else []
    if files is not None:
        more.append(pages(files))
    return application(service.desk.charter.name, ADDRESSES, gate, limits, Answers(service), alive, more)


async def _refused(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    why = {404: "there is no such address", 405: "this address is not used this way"}.get(status, "it failed")
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(_failure(why), status, headers, "application/json")


class Application(Starlette):
    """Addresses are looked up before they are searched for; all of them answer for their own mistakes."""

    def __init__(self, direct: Mapping[tuple[str, str], Endpoint], **options: Any) -> None:
        super().__init__(**options)
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._direct.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        await (super().__call__ if found is None else found)(scope, receive, send)


def application(
    name: str,
    addresses: Mapping[str, Address],
    gate: Gate,
    limits: Limits,
    answers: object,
    alive: Any,
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """Every address with the method of `answers` that has its name."""
    direct = {
        (address.method, address.path): Endpoint(address, gate, limits, getattr(answers, key))
        for key, address in addresses.items()
    }
    routes: list[BaseRoute] = [Route(path, each, methods=[method]) for (method, path), each in direct.items()]
    described = msgspec.json.encode(wire.openapi(name, addresses))
    routes += [Route("/openapi.json", lambda _: Response(described, media_type="application/json")), *more]
    handlers: Any = {HTTPException: _refused, 500: _refused}
    return Application(direct, routes=routes, lifespan=alive, exception_handlers=handlers)


# The process --------------------------------------------------------------------------------------------------------


def end(failed: Any) -> None:
    """End this process soon: whoever waits hears that nothing was kept, and nothing is tried again."""
    failed.set()
    threading.Timer(0.3, os._exit, (STORE_FAILED,)).start()


def _loaded(path: str, limits: Limits, tick: float, page: bool, files: Path | None, failed: Any, _: str) -> Starlette:
    """The application of a worker process."""
    leave_no_dumps()  # once more: a process that is not forked but begun anew has forgotten it
    end_with_the_parent()
    service = Service(lead(Desk.open(path), path), tick=tick, on_failure=partial(end, failed))
    return create_app(service, limits, page=page, files=files)


def run(
    charter_path: Path | str,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    *,
    page: bool = True,
    files: Path | None = None,
    limits: Limits = USUAL,
    tick: float = TICK,
    certificate: Path | None = None,
    certificate_key: Path | None = None,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve a deployment until SIGINT or SIGTERM. Raises ValueError, in one sentence, where it must not start; exits
    with 74 once the store has failed. `started` is called when nothing refuses to start any more."""
    check_address(host, port)
    if files is not None:
        pages(files)  # so that a refusal is heard here
    desk = lead(Desk.open(charter_path), charter_path)
    shared = desk.shared
    desk.close()
    if workers > 1 and not shared:
        raise ValueError("SQLite has one writer; for several workers keep the deployment in PostgreSQL")
    failed = multiprocessing.Event()
    started()
    serve_until_told(
        partial(_loaded, str(charter_path), limits, tick, page, files, failed),
        failed,
        limits,
        address=host,
        port=port,
        workers=workers,
        ssl_cert=certificate,
        ssl_key=certificate_key,
    )


def check_address(host: str, port: int) -> None:
    """Refuse a port at which somebody listens: the workers would share it, and half of the people ask the other.

    A server that was killed a moment ago may still be letting go of it.
    """
    until = time.monotonic() + LETTING_GO
    while True:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    why = os.strerror(error.errno or 0)
                    raise ValueError(f"{host}:{port} cannot be listened on: {why}") from None
        time.sleep(0.02)


def leave_no_dumps() -> None:
    """If this process crashes, or one that it starts, no copy of its memory is left behind: it has seen reports."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)  # also where a program takes the dumps, whatever their limit


def end_with_the_parent() -> None:
    """Whoever kills the process that was started has killed this worker, too: nothing is left at its port."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def serve_until_told(loader: Callable[[str], Starlette], failed: Any, limits: Limits, **where: Any) -> None:
    """Run the application that `loader` makes in worker processes until SIGINT or SIGTERM."""
    leave_no_dumps()
    server = Granian(
        "discreet",
        interface=Interfaces.ASGI,
        runtime_mode=RuntimeModes.st,
        http=HTTPModes.http1,
        websockets=False,
        http1_settings=HTTP1Settings(
            header_read_timeout=int(1000 * limits.header_seconds), max_buffer_size=MOST_HEADERS
        ),
        log_level=LogLevels.warning,
        log_access=False,
        respawn_failed_workers=where["workers"] > 1,
        **where,
    )
    try:
        server.serve(target_loader=loader)
    except SystemExit as exit:
        raise SystemExit(STORE_FAILED if failed.is_set() else exit.code) from None
