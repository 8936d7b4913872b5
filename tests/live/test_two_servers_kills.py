"""Two servers, both of which are killed again and again: nothing is lost, and every epoch is released once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from live_pair import PairCrowd, lived_through
from live_people import leaves, releases, repeats, seed_of
from live_process import Nursery

from discreet.device.announcements import Announcement, Entry
from discreet.live.events import event_of
from discreet.live.two_servers import check_both
from ports import free_port
from two_world import encoder_of, paired


class Crowd(PairCrowd):
    """Everybody has an item; some are dishonest."""

    async def person(self, entry: Entry, told: Announcement, name: str) -> None:
        place = await self.leader.enrol(name)
        assert place is not None
        assert place.epoch == told.epoch
        if leaves(name):
            return
        encoder = encoder_of(told)
        bucket = seed_of(name) % (encoder.num_items + 1)
        payload = encoder.shared(bucket)
        dishonest = seed_of(name) % 11 == 5
        await self.leader.report(
            name, place.ticket, payload[:-1] + bytes([payload[-1] ^ 1]) if dishonest else payload
        )
        if not dishonest:
            self.reports[told.epoch].append(bucket)
        if repeats(name):
            assert await self.leader.report(name, place.ticket, encoder.shared(0)), "a report is not known any more"

    def check(self) -> None:
        log, helper_log = self.logs
        announced = (event_of(entry) for entry in log if entry.event["event"] == "announced")
        items = {told.epoch: encoder_of(told).num_items for told in announced if isinstance(told, Announcement)}
        found = releases(log)
        for epoch, release in found.items():
            counts = np.bincount(self.reports[epoch], minlength=items[epoch] + 1)[:-1]
            assert release.values.tolist() == counts.tolist()
        assert check_both(log, helper_log) == len(found) == len(helper_log) - 1


def run(nursery: Nursery, folder: Path, kills: int, seed: int) -> None:
    port = free_port()
    pair = paired(folder, f"http://127.0.0.1:{port}", users=600, patience="10s")  # enough epochs for all kills
    both = pair.path, pair.helper_path
    lived = lived_through(both, "helper", port, nursery, Crowd, pair.tokens.app, kills, seed)
    assert asyncio.run(lived) >= kills // 2


def test_two_servers_that_are_killed_twelve_times_count_everybody_once(nursery: Nursery, tmp_path: Path) -> None:
    run(nursery, tmp_path, 12, 0)


@pytest.mark.long
def test_two_servers_that_are_killed_hundred_times_count_everybody_once(nursery: Nursery, tmp_path: Path) -> None:
    for seed in range(4):
        run(nursery, tmp_path / str(seed), 25, 1 + seed)
