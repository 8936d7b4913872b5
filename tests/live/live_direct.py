"""A deployment without a server: a desk in this process, on a disk that may fail, restarted as after a crash."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live_disk import Disk
from live_people import Acknowledged, Place, Silent, check_kept

from discreet.device.announcements import Entry
from discreet.live import secrets as keys
from discreet.live.deployment import Accepted, Granted, Late, Spectator
from discreet.live.desk import Desk, Wish
from discreet.live.store import StoreFailed


def crash_copy(toml: Path, folder: Path) -> Path:
    """A deployment as a crash leaves it: what was in shared memory is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(toml.parent, folder, ignore=shutil.ignore_patterns("*-shm", "after*"))
    return folder / toml.name


def check_after_crash(toml: Path, promised: Acknowledged) -> None:
    """Whatever was acknowledged is in the store as the crash has left it; it is left so."""
    look = crash_copy(toml, toml.parents[1] / "look")
    check_kept(look.with_name("shop.db"), keys.read(look.with_name("shop.keys")).user, promised)


@dataclass(frozen=True)
class Promise:
    """Something that was acknowledged after so many steps of the disk."""

    step: int
    name: str
    place: Place | None = None
    payload: bytes | None = None
    log: tuple[Entry, ...] = ()


def _shown(desk: Desk) -> tuple[Entry, ...]:
    desk.release()
    return desk.visible.entries


@dataclass
class Direct:
    """All who ask at the same time share a transaction. When the store fails, they ask what starts after it."""

    toml: Path
    clock: Callable[[], int]
    disk: Disk = field(default_factory=Disk)
    promises: list[Promise] = field(default_factory=list)
    failures: int = 0
    crashes: int = 0
    _left: list[Desk | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting: list[tuple[Wish, Callable[[Any], None]]] = []
        self.secrets = keys.read(self.toml.with_name("shop.keys"))
        self.desk: Desk | None = self._opened()

    def _opened(self) -> Desk:
        return Desk.open(self.toml, clock=self.clock, noise=Silent())

    def crash(self) -> None:
        """What ran is gone, and a copy of its files goes on. (It would tidy up if it were closed.)"""
        self.crashes += 1
        self._left.append(self.desk)
        self.toml, self.desk = crash_copy(self.toml, self.toml.parents[1] / f"crash-{self.crashes}"), None
        check_after_crash(self.toml, self.promised(len(self.disk.steps)))

    def _tried(self, call: Callable[[Desk], Any]) -> Any:
        while True:
            try:
                self.desk = self.desk or self._opened()
                return call(self.desk)
            except StoreFailed:
                self.failures += 1
                self.crash()

    async def _ask(self, wish: Wish) -> tuple[int, Any]:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, answer.set_result))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._together)
        return await answer

    def _together(self) -> None:
        waiting, self._waiting = self._waiting, []
        answers = self._tried(lambda desk: desk.decided([wish for wish, _ in waiting]))
        for (_, told), answer in zip(waiting, answers, strict=True):
            told((len(self.disk.steps), answer))

    async def enrol(self, name: str) -> Place | None:
        user = self.secrets.user(name)
        step, reply = await self._ask(Wish.enrol(user))
        if isinstance(reply, Spectator):
            return None
        assert isinstance(reply, Granted)
        ticket = self.secrets.ticket(user)
        place = Place(ticket, reply.epoch, reply.slot, reply.expires, reply.head.hex(), reply.again)
        self.promises.append(Promise(step, name, place=place))
        return place

    async def report(self, name: str, ticket: bytes, payload: bytes) -> bool | None:
        step, reply = await self._ask(Wish.report(self.secrets.user(name), payload))
        if isinstance(reply, Late):
            return None
        assert isinstance(reply, Accepted)
        if not reply.again:
            self.promises.append(Promise(step, name, payload=payload))
        return reply.again

    async def log(self) -> list[Entry]:
        entries = self._tried(_shown)
        self.promises.append(Promise(len(self.disk.steps), "", log=entries))
        return list(entries)

    def close(self) -> None:
        for desk in (*self._left, self.desk):
            if desk is not None:
                desk.close()

    def promised(self, step: int) -> Acknowledged:
        """What had been acknowledged after so many steps."""
        found = Acknowledged()
        for promise in self.promises:
            if promise.step > step:
                continue
            if promise.place is not None:
                found.places[promise.name] = promise.place
            elif promise.payload is not None:
                found.reports[promise.name] = promise.payload
            else:
                found.log = max(found.log, list(promise.log), key=len)
        return found
