"""Kills and failures at exact system calls, by strace: between any two steps of a commit, an anchor, an erasure."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from live_direct import Direct, check_after_crash, crash_copy
from live_people import Clock, Crowd, begun, check_counted
from live_process import Http, Nursery, Server

from discreet.live.server import STORE_FAILED

pytestmark = pytest.mark.long
#: Which of a thread's calls are hit. The starting process makes a few itself: all of these are the writer's own.
CALLS = {
    "pwrite64": (9, 10, 11, 12, 13, 17, 21, 26, 31, 36, 41, 50, 60, 70),
    "fdatasync": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14),
    "fsync": (2, 3, 4, 5, 6, 7, 8, 9, 10),
    "rename": (2, 3, 4),
    "ftruncate": (3, 4, 5, 6, 7),
}
POINTS = [(call, number) for call, numbers in CALLS.items() for number in numbers]
FAILURES = {"pwrite64": "ENOSPC", "fdatasync": "EIO", "fsync": "EIO", "rename": "ENOSPC", "ftruncate": "EIO"}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    assert shutil.which("strace"), "strace is missing; install it with: apt-get install strace"
    toml, tokens = begun(tmp_path_factory.mktemp("first") / "begun", users=100)
    return toml, tokens.app


@pytest.fixture(scope="module")
def whole(first: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> object:
    """The log when nothing happens."""
    folder = tmp_path_factory.mktemp("whole")
    clock = Clock(folder / "clock")
    clock.set(0)
    direct = Direct(crash_copy(first[0], folder / "live"), clock)
    log = asyncio.run(Crowd(direct, clock).run())
    direct.close()
    return log


async def hit(server: Server, token: str, inject: str, code: int) -> object:
    """The log of a deployment that is hit once, and then starts again."""
    server.start(["-e", f"trace={inject.split(':')[0]}", "-e", f"inject={inject}"])
    assert server.clock is not None
    crowd = Crowd(Http(server.port, token), server.clock)
    running = asyncio.create_task(crowd.run())
    dying = asyncio.create_task(asyncio.to_thread(server.ended))
    await asyncio.wait([running, dying], return_when=asyncio.FIRST_COMPLETED)
    assert dying.done(), "it was not hit"
    assert dying.result() in (code, 1) if code == -9 else dying.result() == code
    check_after_crash(server.toml, crowd.promised)
    server.start()
    log = await running
    check_counted(log, crowd.promised)
    return log


def run(nursery: Nursery, first: tuple[Path, str], folder: Path, inject: str, code: int) -> object:
    toml = crash_copy(first[0], folder / "live")
    server = Server(nursery, toml, Clock(folder / "clock"))
    assert server.clock is not None
    server.clock.set(1_000_000)
    try:
        return asyncio.run(hit(server, first[1], inject, code))
    finally:
        if server.pid:
            server.kill()


@pytest.mark.parametrize(("call", "number"), POINTS)
def test_a_server_that_is_killed_at_a_call_goes_on_as_if_nothing_had_happened(
    nursery: Nursery, first: tuple[Path, str], whole: object, tmp_path: Path, call: str, number: int
) -> None:
    assert run(nursery, first, tmp_path, f"{call}:signal=KILL:when={number}", -9) == whole


@pytest.mark.parametrize(("call", "number"), POINTS[::2])
def test_a_server_whose_call_fails_acknowledges_nothing_ends_and_goes_on_later(
    nursery: Nursery, first: tuple[Path, str], whole: object, tmp_path: Path, call: str, number: int
) -> None:
    assert run(nursery, first, tmp_path, f"{call}:error={FAILURES[call]}:when={number}", STORE_FAILED) == whole
