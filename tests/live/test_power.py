"""The power is cut at any moment: nothing acknowledged is lost, nothing is corrupt, what was erased stays away."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_direct import Direct
from live_disk import Disk, Step, recorded
from live_people import Clock, Crowd, begun, check_counted, check_kept, needles, releases

from discreet.live import sqlite
from discreet.live.desk import Desk
from discreet.live.store import StoreFailed


@dataclass
class Recording:
    """A whole deployment, every step of its disk, and what was acknowledged when."""

    disk: Disk
    direct: Direct
    begun: int  # steps until the operator had it

    @property
    def user_of(self) -> Callable[[str], bytes]:
        return self.direct.secrets.user


def recording(folder: Path, users: int) -> Recording:
    disk = Disk()
    clock = Clock(folder / "clock")
    clock.set(1_000_000)
    with recorded(disk):
        toml, _ = begun(folder / "live", users=users, learner="dp-ucbvi", horizon=5)
        direct = Direct(toml, clock, disk)
        first = len(disk.steps)
        crowd = Crowd(direct, clock)
        log = asyncio.run(crowd.run())
        check_counted(log, crowd.promised)
        assert len(releases(log)) >= 4
        direct.close()
    return Recording(disk, direct, first)


def outcome(recording: Recording, cut: int, rng: random.Random, folder: Path) -> str:
    """What a restart finds after a power cut: "sound", or what is wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "elsewhere").mkdir(parents=True)
    toml = recording.direct.toml
    for name in (toml.name, "shop.keys"):
        shutil.copy(toml.parent / name, folder / name)
    files = recording.disk.after(cut, rng)
    for name, content in files.items():
        (folder / ("elsewhere" if name == "shop.head" else "") / name).write_bytes(content)
    promised = recording.direct.promised(cut)
    gone = releases(promised.log)
    erased = [needle for name, payload in promised.reports.items() if promised.places[name].epoch in gone
              for needle in needles(payload)]  # fmt: skip
    if any(needle in content for needle in erased for content in files.values()):
        return "what was erased is there"
    try:
        Desk.open(folder / toml.name).close()
    except (ValueError, StoreFailed):
        return "refused" if cut >= recording.begun else "sound"  # nobody had it yet
    try:
        check_kept(folder / "shop.db", recording.user_of, promised)
    except AssertionError as error:
        return str(error).splitlines()[0]
    return "sound"


def outcomes(recording: Recording, cuts: int, folder: Path, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    places = (rng.randrange(len(recording.disk.steps) + 1) for _ in range(cuts))
    return Counter(outcome(recording, place, rng, folder / "cut") for place in places)


def test_forty_power_cuts_lose_nothing(tmp_path: Path) -> None:
    assert outcomes(recording(tmp_path, 120), 40, tmp_path, seed=1) == {"sound": 40}


def test_a_store_that_does_not_wait_for_the_disk_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lax = tuple(each.replace("synchronous=FULL", "synchronous=NORMAL") for each in sqlite.SETTINGS)
    assert lax != sqlite.SETTINGS
    monkeypatch.setattr(sqlite, "SETTINGS", lax)
    found = outcomes(recording(tmp_path, 120), 40, tmp_path, seed=1)
    assert found["sound"] < 40


def test_a_log_that_is_cut_off_but_not_synced_is_caught(tmp_path: Path) -> None:
    """What was erased would come back with the power."""
    found, rng = recording(tmp_path, 120), random.Random(1)
    steps, off = found.disk.steps, Step("truncate", "shop.db-wal")
    ends = [number for number, step in enumerate(steps) if step.kind == "sync" and steps[number - 1] == off]
    sound = Counter(outcome(found, end + 1, rng, tmp_path / "cut") for end in ends)
    assert sound == {"sound": len(ends)}
    for end in ends:
        steps[end] = Step("sync", "nothing")
    assert Counter(outcome(found, end + 1, rng, tmp_path / "cut") for end in ends)["what was erased is there"] > 0


@pytest.mark.long
def test_a_thousand_power_cuts_lose_nothing(tmp_path: Path) -> None:
    assert outcomes(recording(tmp_path, 300), 1000, tmp_path, seed=2) == {"sound": 1000}
