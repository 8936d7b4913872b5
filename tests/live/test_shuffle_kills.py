"""A shuffler and an analyzer, both of which are killed again and again: everybody is counted once, in one batch, and
in the end no file holds what was sent."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from live_pair import PairCrowd, lived_through
from live_people import leaves, releases, repeats, seed_of
from live_process import Nursery

from discreet.device.announcements import Announcement, Entry
from discreet.device.shuffled import cut
from discreet.live.certificate import audited
from ports import free_port
from shuffle_world import Trio, bundle, encoder_of, trio


@dataclass
class Crowd(PairCrowd):
    """Everybody has a counter; some are dishonest. `stored`: all that is on either disk."""

    stored: Callable[[], bytes] = lambda: b""
    sent: dict[int, list[bytes]] = field(default_factory=dict)
    announced: dict[int, Announcement] = field(default_factory=dict)

    async def person(self, entry: Entry, told: Announcement, name: str) -> None:
        status, place = await self.leader._answered("POST", "/v1/enrol", {"user": name})
        assert status == 200
        assert place["epoch"] == told.epoch
        self.announced[told.epoch] = told
        if leaves(name):
            return
        encoder = encoder_of(told)
        counter, dishonest = seed_of(name) % encoder.size, seed_of(name) % 11 == 5
        rubbish = bytes if seed_of(name) % 2 else os.urandom
        mine = rubbish(encoder.bundle_size) if dishonest else bundle(encoder, counter)
        body = {"announced": entry.to_json(), "slot": place["slot"], "admission": place["admission"]}
        assert await self._sent(body, mine) == 200
        if not dishonest:
            self.reports[told.epoch].append(counter)
            self.sent.setdefault(told.epoch, []).append(mine)
        if repeats(name):
            assert await self._sent(body, mine) == 200
            assert await self._sent(body, bundle(encoder, 0)) == 200  # answered alike, and counted for nobody

    async def _sent(self, body: dict[str, object], messages: bytes) -> int:
        told = body | {"messages": base64.b64encode(messages).decode()}
        status, _ = await self.other._answered("POST", "/v1/bundle", told)
        return status

    async def after(self) -> None:
        """The shuffler hears of the last release, and forgets that batch as well."""
        messages = [message for each in self.sent.values() for one in each for message in cut(one)]
        async with asyncio.timeout(30):
            while any(message in (stored := self.stored()) for message in messages[-50:]):
                await asyncio.sleep(0.05)
                self.clock.set(self.clock() + 100)
                await self.look()
        assert not any(message[:32] in stored for message in messages)
        assert len(messages) > 100

    def check(self) -> None:
        log, closed = self.logs[0], self.logs[1][1:]
        found = releases(log)
        for epoch, release in found.items():
            counts = np.bincount(self.reports[epoch], minlength=encoder_of(self.announced[epoch]).size)
            assert release.values.tolist() == counts.tolist()
            told = closed[epoch - 1].event
            assert (told["epoch"], told["digest"]) == (epoch, release.batch.hex())
        assert len(closed) == len(found)
        assert audited(log)[0] == []


def run(nursery: Nursery, folder: Path, kills: int, seed: int) -> None:
    port = free_port()
    world: Trio = trio(folder, f"http://127.0.0.1:{port}", users=600, patience="10s")

    def stored() -> bytes:
        return world.stored("analyzer") + world.stored("shuffler")

    both = world.path, world.shuffler_path
    lived = lived_through(
        both,
        "shuffler",
        port,
        nursery,
        lambda *told: Crowd(*told, stored=stored),
        world.tokens.app,
        kills,
        seed,
    )
    assert asyncio.run(lived) >= kills // 2


def test_a_shuffler_and_an_analyzer_that_are_killed_twelve_times_count_everybody_once(
    nursery: Nursery, tmp_path: Path
) -> None:
    run(nursery, tmp_path, 12, 0)


@pytest.mark.long
def test_a_shuffler_and_an_analyzer_that_are_killed_hundred_times_count_everybody_once(
    nursery: Nursery, tmp_path: Path
) -> None:
    for seed in range(4):
        run(nursery, tmp_path / str(seed), 25, 1 + seed)
