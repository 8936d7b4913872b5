"""An audit of a running service: real store, real writer, one person whose report is the secret."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.live.deployment import Accepted
from discreet.live.desk import Desk, begin
from discreet.live.events import Released, event_of
from discreet.live.service import Service
from discreet.privacy.audit.games import Game, audited
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.reports import Reports

FILE = """
name = "audit"
[problem]
states = 1
actions = 2
horizon = 1
start = 0
[privacy]
epsilon = 1.0
users = 3
[serving]
patience = "1m"
"""
TRIALS = 800
NONE = (2**32 - 1).to_bytes(4, "little")


@dataclass
class Clock:
    now: int = 0

    def __call__(self) -> int:
        return self.now


def released(folder: Path, secret: bytes | None, noise: NoiseSource) -> Any:
    """Run a deployment of three from its first ticket to its release; `secret`: what the first of them reports."""
    clock = Clock(10**12)
    service = Service(Desk.open(folder / "audit.toml", clock=clock, noise=noise), tick=0.0005)

    async def people() -> None:
        users = [service.desk.secrets.user(name) for name in ("ann", "ben", "cem")]
        for user in users:
            await service.enrol(user)
        for user, payload in zip(users, (secret, NONE, NONE), strict=True):
            if payload is not None:
                assert await service.report(user, payload) == Accepted(False)

    service.start()
    try:
        asyncio.run(people())
        clock.now += 60_000
        patience = time.monotonic() + 20.0
        while time.monotonic() < patience:
            events = [event_of(entry) for entry in service.visible.entries]
            found = [event for event in events if isinstance(event, Released)]
            if found:
                return found[0].values
            time.sleep(0.0003)
        raise AssertionError("nothing was released")
    finally:
        service.stop()


def game(folder: Path, leaves: bool) -> Game:
    """World 1: she reports the first item. World 0: the last one, or she leaves."""
    (folder / "template").mkdir()
    (folder / "template" / "audit.toml").write_text(FILE)
    begin(folder / "template" / "audit.toml")

    def views(world: int, trials: int, noise: NoiseSource) -> Any:
        rows = []
        for _ in range(trials):
            shutil.copytree(folder / "template", folder / "run")
            secret = (0).to_bytes(4, "little") if world else None if leaves else (1).to_bytes(4, "little")
            rows.append(released(folder / "run", secret, noise))
            shutil.rmtree(folder / "run")
        return np.asarray(rows, dtype=np.float64)

    return Game(1.0, views, lambda view: np.stack([view[:, 0], view[:, 0] - view[:, 1]], axis=1))


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """In memory where there is such a folder: thousands of stores are written."""
    memory = Path("/dev/shm")
    place = memory / f"discreet-audit-{tmp_path.name}-{time.time_ns()}" if memory.is_dir() else tmp_path / "audit"
    place.mkdir()
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize("leaves", [False, True], ids=["another report", "leaving"])
def test_a_running_service_leaks_no_more_than_it_states(folder: Path, leaves: bool) -> None:
    result = audited("service", game(folder, leaves), TRIALS if not leaves else TRIALS // 2, 0.95)
    assert not result.refuted
    assert leaves or result.lower_bound > 0.1  # the game has teeth: something is seen


def test_a_service_with_a_third_of_the_noise_is_refuted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_little(self: Reports, tally: Any, noise: NoiseSource) -> Any:
        return tally + noise.laplace(self.entry().scale / 3.0, tally.size)

    monkeypatch.setattr(Reports, "sealed", too_little)
    assert audited("mutant", game(folder, False), TRIALS // 2, 0.95).refuted
