"""A server that is killed again and again publishes what it would have published, and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from live_direct import check_after_crash
from live_people import Clock, Crowd, begun, check_counted, releases
from live_process import Http, Nursery, Server

from discreet.device.announcements import Entry


async def killed(server: Server, crowd: Crowd, kills: int, every: int, rng: random.Random) -> None:
    """Kill it whenever so many more messages were acknowledged, a little later; sometimes again while it starts."""
    starting, goal = False, 0
    for _ in range(kills):
        if starting:
            await asyncio.sleep(rng.random() * 0.3)
        else:
            goal += rng.randrange(every // 2, every)
            while crowd.promised.count < goal:
                await asyncio.sleep(0.001)
            await asyncio.sleep(rng.random() * 0.003)
        server.kill()
        check_after_crash(server.toml, crowd.promised)
        server.start()
        starting = rng.random() < 0.2


async def everybody(server: Server, token: str, kills: int, every: int, seed: int) -> tuple[list[Entry], Http]:
    """The log of a deployment that is killed so often; all kills must come before its end."""
    server.start()
    desk = Http(server.port, token)
    assert server.clock is not None
    crowd = Crowd(desk, server.clock)
    killing = asyncio.create_task(killed(server, crowd, kills, every, random.Random(seed)))
    running = asyncio.create_task(crowd.run())
    await asyncio.wait([killing, running], return_when=asyncio.FIRST_COMPLETED)
    if killing.done():
        killing.result()
    killing.cancel()
    log = await running
    with contextlib.suppress(asyncio.CancelledError):
        await killing
    assert server.starts == kills + 1, "everybody had come before the last kill"
    check_counted(log, crowd.promised)
    return log, desk


def run_all(nursery: Nursery, folder: Path, rounds: int, kills: int, every: int, **changed: Any) -> None:
    """The same people once without a kill, and so often with them."""
    toml, tokens = begun(folder / "first", **changed)
    copies = [folder / f"killed-{i}" for i in range(rounds)]
    for copy in copies:
        shutil.copytree(toml.parent, copy)
    whole = Server(nursery, toml, Clock(folder / "clock"))
    log, _ = asyncio.run(everybody(whole, tokens.app, 0, 0, 0))
    assert whole.stop() == 0
    assert len(releases(log)) >= 5
    for seed, copy in enumerate(copies):
        server = Server(nursery, copy / toml.name, Clock(copy / "clock"))
        again, desk = asyncio.run(everybody(server, tokens.app, kills, every, seed))
        server.kill()
        assert again == log
        assert desk.broken >= kills  # messages whose answer was lost with the server


def test_a_server_that_is_killed_twenty_times_publishes_the_same_log(nursery: Nursery, tmp_path: Path) -> None:
    run_all(nursery, tmp_path, rounds=1, kills=20, every=20, users=500)


def test_a_server_that_answers_before_it_has_written_is_caught(nursery: Nursery, tmp_path: Path) -> None:
    toml, tokens = begun(tmp_path / "first", users=400)
    server = Server(nursery, toml, Clock(tmp_path / "clock"), lazy=True)
    with pytest.raises(AssertionError, match=r"acknowledged|published"):
        asyncio.run(everybody(server, tokens.app, 20, 30, 0))


@pytest.mark.long
@pytest.mark.parametrize("learner", ["spotlight", "dp-ucbvi"])
def test_a_server_that_is_killed_250_times_publishes_the_same_log(
    nursery: Nursery, tmp_path: Path, learner: str
) -> None:
    run_all(nursery, tmp_path, rounds=10, kills=25, every=20, users=700, learner=learner)
