"""A deployment at work: one thread decides whatever waits in one transaction, and answers when it is durable.

While a commit is under way others queue up, and the next transaction takes them all (group commit). When the store
fails nothing is acknowledged, nothing is tried again, and the process ends (`on_failure`).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discreet.live.deployment import Command, Granted, Reply
from discreet.live.desk import LOOK, Desk, Visible, Wish, begin, epoch_keys
from discreet.live.store import StoreFailed

__all__ = ["Service", "Unavailable", "begin", "epoch_keys"]
log = logging.getLogger("discreet.live")
#: What one transaction takes, and what may wait.
MOST_TOGETHER = 256
MOST_WAITING = 4096
#: Seconds between two looks at what is due, and for which an answer is waited for.
TICK, ANSWER_SECONDS = 0.25, 30.0


class Unavailable(Exception):
    """Nothing was kept, or nobody knows: send it again."""


Asked = tuple[Wish, "asyncio.Future[Reply | None]"]


@dataclass
class Latency:
    """Milliseconds of the last transactions that handed out tickets, as everybody can count.

    Everybody sees the figures: if they were about reports, they would change when somebody has reported.
    """

    last: deque[float] = field(default_factory=lambda: deque(maxlen=1000))

    def quantile(self, share: float) -> float:
        known = sorted(self.last)
        return known[min(len(known) - 1, int(share * len(known)))] if known else 0.0


class Service:
    """`start` it, ask it from any event loop, `stop` it."""

    def __init__(self, desk: Desk, *, tick: float = TICK, on_failure: Callable[[], None] = lambda: None) -> None:
        self.desk, self.latency = desk, Latency()
        self.spectators = 0  # since the start
        self.failed = False
        self._tick, self._on_failure = tick, on_failure
        self._queue: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    @classmethod
    def open(cls, path: Path | str, **options: Any) -> Service:
        """The service of a TOML file's deployment, as it was left."""
        return cls(Desk.open(path), **options)

    @property
    def visible(self) -> Visible:
        return self.desk.visible

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, and close the store."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._ended.set()
        self._give_up([])
        if not self.failed:
            self.desk.close()

    # Asking ---------------------------------------------------------------------------------------------------------

    async def enrol(self, user: bytes) -> Reply | None:
        return await self._ask(Wish.enrol(user))

    async def report(self, user: bytes, payload: bytes) -> Reply | None:
        """None if she has no ticket."""
        return await self._ask(Wish.report(user, payload))

    async def operate(self, command: Command) -> Reply | None:
        return await self._ask(Wish.operate(command))

    async def current(self) -> Visible:
        """What is visible now; where others write, after another look."""
        if self.desk.shared:
            await self._ask(LOOK)
        return self.desk.visible

    async def _ask(self, wish: Wish) -> Reply | None:
        if self._ended.is_set() or self._queue.qsize() >= MOST_WAITING:
            raise Unavailable
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reply | None] = loop.create_future()
        unknown: list[Settled] = [(answer, Unavailable())]
        late = loop.call_later(ANSWER_SECONDS, _settle, unknown)
        self._queue.put((wish, answer))
        if self._ended.is_set():
            self._give_up([])
        try:
            return await answer
        finally:
            late.cancel()

    # The thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asked: list[Asked] = []
        try:
            looked = 0.0
            while not self._ended.is_set():
                asked = self._taken(max(0.0, looked + self._tick - time.monotonic()))
                if asked:
                    self._answer(asked)
                    asked = []
                if time.monotonic() >= looked + self._tick:
                    self.desk.release()
                    looked = time.monotonic()
        except BaseException as error:
            self.failed = True
            self._ended.set()
            # What went wrong may name what was kept: only its kind is told.
            told = str(error) if isinstance(error, StoreFailed) else type(error).__name__
            log.critical("the deployment ends: %s; nothing that waits was acknowledged", told)
            self._give_up(asked)
            self._on_failure()

    def _taken(self, patience: float) -> list[Asked]:
        """Wait for the first, and take whatever has queued up behind it."""
        taken: list[Asked] = []
        try:
            while len(taken) < MOST_TOGETHER:
                asked = self._queue.get_nowait() if taken else self._queue.get(timeout=patience)
                if asked is None:
                    self._ended.set()
                    break
                taken.append(asked)
        except queue.Empty:
            pass
        return taken

    def _answer(self, asked: list[Asked]) -> None:
        began = time.perf_counter()
        replies = self.desk.decided([wish for wish, _ in asked])
        if any(isinstance(reply, Granted) and not reply.again for reply in replies):
            self.latency.last.append(1e3 * (time.perf_counter() - began))
        _resolve([(answer, reply) for (_, answer), reply in zip(asked, replies, strict=True)])

    def _give_up(self, waiting: list[Asked]) -> None:
        """Tell everybody who waits that nothing was kept."""
        try:
            while True:
                asked = self._queue.get_nowait()
                waiting = [*waiting, asked] if asked is not None else waiting
        except queue.Empty:
            pass
        _resolve([(answer, Unavailable()) for _, answer in waiting])


Settled = tuple["asyncio.Future[Reply | None]", Reply | Unavailable | None]


def _resolve(settled: list[Settled]) -> None:
    """Hand the answers to the loops that wait for them."""
    loops: dict[asyncio.AbstractEventLoop, list[Settled]] = {}
    for pair in settled:
        loops.setdefault(pair[0].get_loop(), []).append(pair)
    for loop, own in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, own)


def _settle(settled: list[Settled]) -> None:
    for answer, reply in settled:
        if answer.done():
            continue
        if isinstance(reply, Unavailable):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)
