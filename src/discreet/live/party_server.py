"""The HTTP server of a party: whoever may asks, everybody may read its log, and what fails is not acknowledged."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from starlette.applications import Starlette

from discreet.device.announcements import Entry
from discreet.live import server, wire
from discreet.live.party import Party
from discreet.live.server import USUAL, Admitting, Gate, Limits, Refusal, application, end, part_of, serve_until_told
from discreet.live.service import Unavailable
from discreet.live.store import StoreFailed

log = logging.getLogger("discreet.live")
Answer = TypeVar("Answer")
Served = TypeVar("Served", bound=Party[Any, Any, Any])


class PartyAnswers(Generic[Served]):
    """What every address of any party answers."""

    who = "party"
    addresses: Mapping[str, wire.Address]

    def __init__(self, party: Served, on_failure: Callable[[], None]) -> None:
        self.party, self._on_failure, self._failed = party, on_failure, False

    async def log(self, query: Mapping[str, int]) -> wire.LogTold:
        return part_of(self.party.entries, query)

    async def health(self, _: Any) -> wire.HealthTold:
        if self._failed:
            raise Refusal(503)
        entries = self.party.entries
        return wire.HealthTold("ok", len(entries), entries[-1].name if entries else bytes(32).hex())

    async def asked(self, question: Callable[..., Answer], *asked: Any) -> Answer:
        """Ask it in a thread; why it refuses its leader is noted here, and not told."""
        if self._failed:
            raise Unavailable
        try:
            return await asyncio.to_thread(question, *asked)
        except ValueError as error:
            log.warning("the leader is refused: %s", error)
            raise Refusal(422) from None
        except StoreFailed as error:
            self._failed = True
            log.critical("the %s ends: %s; nothing that waits was acknowledged", self.who, error)
            self._on_failure()
            raise Unavailable from None


def entry_of(told: wire.EntryTold) -> Entry:
    try:
        return Entry.from_json(msgspec.to_builtins(told))
    except ValueError:
        raise Refusal(400) from None


def published(entry: Entry) -> wire.PublishedTold:
    return wire.PublishedTold(wire.EntryTold(**entry.to_json()))


def create_app(answers: PartyAnswers[Any], secrets: Admitting, name: str, limits: Limits = USUAL) -> Starlette:
    """The application of a party, which is closed with it."""

    @asynccontextmanager
    async def alive(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(answers.party.close)

    return application(name, answers.addresses, Gate(secrets, limits), limits, answers, alive)


class Loaded(Protocol):
    """The application of the party of a file."""

    def __call__(self, path: str, limits: Limits, on_failure: Callable[[], None]) -> Starlette: ...


def _loaded(loader: Loaded, path: str, limits: Limits, failed: Any, _: str) -> Starlette:
    """The application of a worker process."""
    server.leave_no_dumps()
    server.end_with_the_parent()
    return loader(path, limits, partial(end, failed))


def run(
    opened: Callable[[Path | str], Party[Any, Any, Any]],
    loader: Loaded,
    path: Path | str,
    host: str,
    port: int,
    *,
    limits: Limits = USUAL,
    certificate: Path | None = None,
    certificate_key: Path | None = None,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve a party until SIGINT or SIGTERM. Raises ValueError, in one sentence, where it must not start; exits with
    74 once the store has failed. `started` is called when nothing refuses to start any more."""
    server.check_address(host, port)
    opened(path).close()  # so that a refusal is heard here
    failed = multiprocessing.Event()
    started()
    serve_until_told(
        partial(_loaded, loader, str(path), limits, failed),
        failed,
        limits,
        address=host,
        port=port,
        workers=1,
        ssl_cert=certificate,
        ssl_key=certificate_key,
    )
