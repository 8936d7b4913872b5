"""Clocks that jump: time goes on, epochs close in their order and once, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from live_direct import Direct, crash_copy
from live_people import PATIENCE, Clock, Crowd, announcements, begun, check_counted, releases

from discreet.live import desk
from discreet.live.desk import Desk, Wish

DAY = 86_400_000


@dataclass
class Jumping:
    """A clock that is put back or forward now and then, and stays so."""

    true: Clock
    jumps: tuple[int, ...] = ()
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    ahead: int = 0
    count: int = 0

    def __call__(self) -> int:
        if self.jumps and self.rng.random() < 0.25:
            self.ahead += self.rng.choice(self.jumps)
            self.count += 1
        return self.true() + self.ahead


class Crashing(Direct):
    """What crashes now and then, after everybody who waited was answered."""

    def _together(self) -> None:
        super()._together()
        if random.Random(len(self.promises)).random() < 0.1:
            self.crash()


def run(
    toml: Path, folder: Path, jumps: tuple[int, ...], punctual: bool = True, kind: type[Direct] = Direct
) -> Crowd:
    clock = Clock(folder / "clock")
    clock.set(1_000_000)
    jumping = Jumping(clock, jumps)
    direct = kind(crash_copy(toml, folder / "live"), jumping)
    crowd = Crowd(direct, clock, apart=True, punctual=punctual)
    asyncio.run(crowd.run())
    direct.close()
    assert jumping.count >= 10 or not jumps
    assert direct.crashes >= 2 or kind is Direct
    check_counted(crowd.promised.log, crowd.promised)
    return crowd


@pytest.mark.parametrize("kind", [Direct, Crashing])
def test_a_clock_that_is_put_back_again_and_again_changes_nothing(tmp_path: Path, kind: type[Direct]) -> None:
    """Also across restarts, which know the time from the last ticket only."""
    toml, _ = begun(tmp_path / "begun", users=200)
    whole = run(toml, tmp_path / "whole", ())
    back = run(toml, tmp_path / "back", (-3_000, -3_600_000, -20 * 365 * DAY), kind=kind)
    assert back.promised.log == whole.promised.log


@pytest.mark.parametrize("kind", [Direct, Crashing])
def test_a_clock_that_jumps_both_ways_closes_epochs_in_their_order_and_once(
    tmp_path: Path, kind: type[Direct]
) -> None:
    """Whoever is too late is told so; whoever is not is counted."""
    toml, _ = begun(tmp_path / "begun", users=200)
    jumps = (-20 * 365 * DAY, -3_600_000, -3_000, 100, 3_000, 3_600_000, 20 * 365 * DAY)
    crowd = run(toml, tmp_path / "wild", jumps, punctual=False, kind=kind)
    log = crowd.promised.log
    assert list(releases(log)) == list(announcements(log))
    assert sum(told.size for told in announcements(log).values()) == 200
    assert len(crowd.promised.places) == 200
    assert 10 < len(crowd.promised.reports) < 175


def test_the_clock_of_a_server_does_not_jump_with_that_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before, wall = desk.milliseconds(), time.time_ns()
    for jump in (-20 * 365 * DAY, 20 * 365 * DAY):
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: wall + jump * 1_000_000)
        assert before <= desk.milliseconds() < before + 60_000
    monkeypatch.undo()
    assert abs(desk.milliseconds() - time.time_ns() // 1_000_000) < 60_000


def test_after_a_clock_was_years_ahead_tickets_expire_as_always(tmp_path: Path) -> None:
    """She enrols while the clock is wrong; it is put right; her epoch still ends when her patience does."""
    toml, _ = begun(tmp_path / "begun", users=200)
    clock = Clock(tmp_path / "clock")
    clock.set(1_000_000 + 10 * 365 * DAY)
    one = Desk.open(toml, clock=clock)
    assert one.visible.told is not None
    size = one.visible.told.event["size"]
    one.decided([Wish.enrol(bytes([number]) * 16) for number in range(size)])
    clock.set(1_000_000)
    one.release()
    assert not releases(one.visible.entries)
    one.close()
    two = Desk.open(toml, clock=clock)
    two.release()
    assert not releases(two.visible.entries)
    clock.set(1_000_000 + PATIENCE)
    two.release()
    assert list(releases(two.visible.entries)) == [1]
    two.close()
