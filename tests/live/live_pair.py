"""A deployment that needs another server: people who come epoch by epoch, and kills of either of the two, or both."""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from live_people import PATIENCE, Clock, releases
from live_process import Http, Nursery, Server

from discreet.device.announcements import Announcement, Entry
from discreet.live.events import event_of


@dataclass
class PairCrowd(ABC):
    """People who come epoch by epoch, each with something of her own, and send until they are answered."""

    leader: Http
    other: Http
    clock: Clock
    reports: dict[int, list[int]] = field(default_factory=dict)  # what was acknowledged, by epoch
    logs: tuple[list[Entry], list[Entry]] = field(default_factory=lambda: ([], []))
    due: asyncio.Event = field(default_factory=asyncio.Event)  # while both are at work on an epoch

    async def look(self) -> None:
        """What either of them has published stays as it was."""
        now = await self.leader.log(), await self.other.log()
        for before, after in zip(self.logs, now, strict=True):
            assert after[: len(before)] == before, "a log was rewritten"
        self.logs = now

    async def epoch(self) -> int:
        """One epoch, from the first ticket to the release."""
        await self.look()
        entry = next(entry for entry in reversed(self.logs[0]) if entry.event["event"] == "announced")
        told = event_of(entry)
        assert isinstance(told, Announcement)
        self.reports[told.epoch] = []
        names = (f"person-{told.epoch}-{i}" for i in range(told.size))
        await asyncio.gather(*(self.person(entry, told, name) for name in names))
        self.clock.set(self.clock() + PATIENCE)
        self.due.set()
        while told.epoch not in releases(self.logs[0]):
            await asyncio.sleep(0.01)
            self.clock.set(self.clock() + 20)  # so that whoever waits tries again
            await self.look()
        self.due.clear()
        return told.epoch

    @abstractmethod
    async def person(self, entry: Entry, told: Announcement, name: str) -> None:
        """Somebody enrols, and sends what she has."""

    @abstractmethod
    def check(self) -> None:
        """Every release counts exactly the honest reports that were acknowledged, and both logs agree."""

    async def after(self) -> None:
        """In the end, while both are still there."""
        await self.look()


async def killing(crowd: PairCrowd, servers: list[Server], kills: int, rng: random.Random) -> None:
    """Kill either of them, or both: at any moment, or while they work on an epoch together; start them again at once,
    or when the other one may have noticed."""
    for kill in range(kills):
        if kill % 3:
            await crowd.due.wait()
            await asyncio.sleep(rng.random() * 0.05)
        else:
            await asyncio.sleep(rng.random() * 0.3)
        chosen = [servers[:1], servers[1:], servers][rng.randrange(3)]
        for server in chosen:
            server.kill()
        await asyncio.sleep(rng.choice([0.0, 0.05]))
        for server in chosen:
            server.start()
        while kill % 3 and crowd.due.is_set():
            await asyncio.sleep(0.005)


async def lived_through(
    paths: tuple[Path, Path],
    role: str,
    port: int,
    nursery: Nursery,
    crowd_of: Callable[[Http, Http, Clock], PairCrowd],
    token: str,
    kills: int,
    seed: int,
) -> int:
    """So many kills of the deployment's own server and of the other one, whose port is this; the last epoch."""
    clock = Clock(paths[0].with_name("clock"))
    clock.set(1_000_000)
    servers = [Server(nursery, paths[0], clock), Server(nursery, paths[1], None, role=role, port=port)]
    for server in servers:
        server.start()
    crowd = crowd_of(Http(servers[0].port, token), Http(port, ""), clock)
    task = asyncio.create_task(killing(crowd, servers, kills, random.Random(seed)))
    try:
        while not task.done():
            await crowd.epoch()
        await task
        last = await crowd.epoch()
        await crowd.after()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for server in servers:
            server.kill()
    crowd.check()
    assert sum(server.starts for server in servers) > kills
    return last
