"""Disks that are full or fail, and old copies: nothing is acknowledged, the process ends, a restart goes on."""

from __future__ import annotations

import asyncio
import itertools
import random
import resource
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest
from live_direct import Direct, check_after_crash, crash_copy
from live_disk import Disk, Step, recorded
from live_people import Clock, Crowd, begun, check_counted
from live_process import REFUSED, Http, Nursery, Server, members

from discreet.device.announcements import Entry
from discreet.live.desk import Desk
from discreet.live.server import STORE_FAILED
from discreet.live.store import RolledBack, StoreFailed


def moved(toml: Path, folder: Path) -> Path:
    """The same deployment, with the same keys."""
    return crash_copy(toml, folder / "live")


def whole_log(toml: Path, folder: Path) -> list[Entry]:
    """What people make of it when nothing fails."""
    clock = Clock(folder / "clock")
    clock.set(0)
    direct = Direct(moved(toml, folder), clock)
    log = asyncio.run(Crowd(direct, clock).run())
    direct.close()
    return log


def failing_run(toml: Path, folder: Path, every: int, seed: int, error: Callable[[Step], apsw.Error]) -> Direct:
    """The same on a disk that fails about once in so many steps."""
    rng = random.Random(seed)
    disk = Disk()
    clock = Clock(folder / "clock")
    clock.set(0)
    with recorded(disk):
        direct = Direct(moved(toml, folder), clock, disk)
        disk.fails = lambda number, step: error(step) if rng.random() < 1 / every else None
        crowd = Crowd(direct, clock)
        log = asyncio.run(crowd.run())
        disk.fails = lambda number, step: None
        check_counted(log, crowd.promised)
        direct.close()
    return direct


def full(step: Step) -> apsw.Error:
    return apsw.FullError("no space") if step.kind == "write" else apsw.IOError("input/output error")


def broken(step: Step) -> apsw.Error:
    return apsw.IOError("input/output error")


def run_on_bad_disks(folder: Path, seeds: int, users: int) -> int:
    toml, _ = begun(folder / "begun", users=users)
    log = whole_log(toml, folder / "whole")
    failures = 0
    for seed, error in itertools.product(range(seeds), (full, broken)):
        direct = failing_run(toml, folder / f"{error.__name__}-{seed}", 40, seed, error)
        assert direct.promises[-1].log == tuple(log)
        failures += direct.failures
    return failures


def test_disks_that_fail_delay_a_deployment_and_change_nothing(tmp_path: Path) -> None:
    assert run_on_bad_disks(tmp_path, seeds=1, users=140) >= 10


@pytest.mark.long
def test_hundreds_of_failures_of_disks_delay_a_deployment_and_change_nothing(tmp_path: Path) -> None:
    assert run_on_bad_disks(tmp_path, seeds=12, users=200) >= 300


# A process ----------------------------------------------------------------------------------------------------------


async def filled(server: Server, crowd: Crowd, times: int) -> None:
    """From a moment on no file of the server can grow, so that it must end; then there is room again."""
    for _ in range(times):
        goal = crowd.promised.count + 40
        while crowd.promised.count < goal:
            await asyncio.sleep(0.001)
        for member in members(server.pid):
            resource.prlimit(member, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        assert await asyncio.to_thread(server.ended) == STORE_FAILED
        check_after_crash(server.toml, crowd.promised)
        server.start()


async def crowd_and(trouble: Callable[[Crowd], Coroutine[Any, Any, None]], desk: Http, clock: Clock) -> list[Entry]:
    crowd = Crowd(desk, clock)
    _, log = await asyncio.gather(trouble(crowd), crowd.run())
    check_counted(log, crowd.promised)
    return log


def test_a_server_whose_disk_is_full_answers_503_ends_with_74_and_goes_on_later(
    nursery: Nursery, tmp_path: Path
) -> None:
    toml, tokens = begun(tmp_path / "begun", users=200)
    log = whole_log(toml, tmp_path / "whole")
    server = Server(nursery, moved(toml, tmp_path / "full"), Clock(tmp_path / "full" / "clock"))
    assert server.clock is not None
    server.start()
    desk = Http(server.port, tokens.app)
    again = asyncio.run(crowd_and(lambda crowd: filled(server, crowd, 3), desk, server.clock))
    server.kill()
    assert again == log
    assert desk.statuses[503] > 0


# Old copies ---------------------------------------------------------------------------------------------------------


class Copied(Direct):
    """Of which somebody makes a copy every few transactions."""

    def _together(self) -> None:
        super()._together()
        self.times = getattr(self, "times", 0) + 1
        if self.times % 4 == 0:
            crash_copy(self.toml, self.toml.parents[1] / f"copy-{self.times}")


def test_no_mixture_of_old_files_is_taken_for_the_present_store(tmp_path: Path) -> None:
    """A copy of the database and one of its write-ahead log: only what holds the present log starts."""
    toml, _ = begun(tmp_path / "begun", users=140)
    clock = Clock(tmp_path / "clock")
    clock.set(0)
    direct = Copied(moved(toml, tmp_path), clock)
    log = asyncio.run(Crowd(direct, clock).run())
    present = crash_copy(direct.toml, tmp_path / "present")
    copies = [*tmp_path.glob("copy-*"), present.parent]
    taken = set()
    for database, ahead in itertools.product(copies, copies):
        mixed = crash_copy(present, tmp_path / "mixed")
        for folder, name in ((database, "shop.db"), (ahead, "shop.db-wal")):
            shutil.copy(folder / name, mixed.with_name(name))
        try:
            desk = Desk.open(mixed)
        except (RolledBack, StoreFailed):
            continue
        assert list(desk.visible.entries) == log
        desk.close()
        taken.add((database.name, ahead.name))
    direct.close()
    assert ("present", "present") in taken
    assert {database for database, _ in taken} == {"present"}


def test_a_server_with_an_old_store_says_why_it_does_not_start(nursery: Nursery, tmp_path: Path) -> None:
    toml, tokens = begun(tmp_path / "begun", users=140)
    old = moved(toml, tmp_path / "old")
    server = Server(nursery, toml, Clock(tmp_path / "clock"))
    assert server.clock is not None
    server.start()
    log = asyncio.run(Crowd(Http(server.port, tokens.app), server.clock).run())
    server.kill()
    for name in ("shop.db", "shop.db-wal", "shop.db-shm"):
        toml.with_name(name).unlink()
    shutil.copy(old.with_name("shop.db"), toml.with_name("shop.db"))
    server.start()
    assert server.ended() == REFUSED
    told = server.out.read_text().splitlines()
    assert told == [
        f"refused: the store does not hold entry {len(log) - 1} as it was published (it is an old copy, or another "
        f"one); to go on would release the same people twice; put the present store back"
    ]
