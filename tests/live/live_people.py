"""People whose world is a function of their name, and who send until they are answered.

With them, a clock that only the test moves and noise that is zero, the public log of a deployment is a function of
its keys: however often it is interrupted, it must come out byte for byte the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import apsw
import numpy as np

from discreet.device.announcements import Announcement, Entry
from discreet.live.desk import begin
from discreet.live.events import event_of
from discreet.privacy.noise import NoiseSource

PATIENCE = 10_000  # milliseconds
CHARTER = """
name = "shop"
[problem]
states = {states}
actions = 2
horizon = {horizon}
rewards = [0, 1]
pooled = true
start = 0
[privacy]
model = "{model}"
epsilon = 1.0
users = {users}
[learner]
name = "{learner}"
[serving]
patience = "10s"
overlap = "{overlap}"
"""
STORE = """
[store]
anchor = "elsewhere/shop.head"
"""
USUAL = {"states": 4, "horizon": 4, "model": "joint", "users": 200, "learner": "spotlight", "overlap": "repeat"}


def terms(**changed: Any) -> str:
    """A charter, as a file has it."""
    return CHARTER.format(**USUAL | changed)


def begun(folder: Path, **changed: Any) -> tuple[Path, Any]:
    """A deployment that has begun in a folder: its file, and its tokens."""
    (folder / "elsewhere").mkdir(parents=True)
    toml = folder / "shop.toml"
    toml.write_text(terms(**changed) + STORE, encoding="utf-8")
    return toml, begin(toml)


class Silent(NoiseSource):
    """A simulation that adds nothing, so that a release says exactly who was counted. It protects nobody."""

    def __init__(self) -> None:
        source = NoiseSource.seeded(0)
        super().__init__(source._key, source._sequence)

    def laplace(self, scale: float, shape: int | tuple[int, ...]) -> Any:
        return np.zeros(shape, np.int64)


@dataclass
class Clock:
    """A clock of a file, which servers read and only the test moves; milliseconds."""

    path: Path

    def __call__(self) -> int:
        return int.from_bytes(self.path.read_bytes(), "big")

    def set(self, milliseconds: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600)
        os.pwrite(descriptor, milliseconds.to_bytes(8, "big"), 0)
        os.close(descriptor)


# What a person does -------------------------------------------------------------------------------------------------


def seed_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def leaves(name: str) -> bool:
    """She never reports."""
    return seed_of(name) % 7 == 3


def repeats(name: str) -> bool:
    """She asks twice for a ticket and reports twice, the second time something else."""
    return seed_of(name) % 4 == 1


def payload_of(announcement: Announcement, name: str, ticket: bytes) -> bytes:
    """Her report: one episode of a river with a current to the left, whose far end pays."""
    coins = np.random.default_rng(seed_of(name))
    encoder = announcement.encoder
    tables: Any = encoder.tables
    last, wanted = tables.num_states - 1, getattr(encoder, "wanted", frozenset())
    states, actions, rewards, settled = [0], list[int](), list[float](), False
    for step in range(tables.horizon):
        state = states[-1]
        action = announcement.action(step, state, settled, ticket)
        settled = settled or state * tables.num_actions + action in wanted
        luck = coins.random()
        moved = min(state + 1, last) if action == 1 and luck < 0.6 else state if action == 1 else max(state - 1, 0)
        states.append(moved)
        actions.append(action)
        rewards.append(luck if state == last else luck / 4)
    return encoder.payload(states, actions, rewards, NoiseSource.seeded(seed_of(name)))


def needles(payload: bytes) -> list[bytes]:
    """What an episode can be found by, even when a part of it is overwritten: the rewards at its two ends."""
    steps = int.from_bytes(payload[:8], "little")
    rewards = payload[-8 * steps :]
    return [rewards[:24], rewards[-24:]] if steps >= 3 else []


def expected(announcement: Announcement, payloads: Iterable[bytes]) -> np.ndarray[Any, Any]:
    """What a release without noise says of these reports."""
    total = np.zeros(announcement.encoder.size, np.int64)
    for payload in payloads:
        np.add.at(total, *announcement.encoder.entries(payload))
    return total


# How she is answered ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A ticket as it was acknowledged."""

    ticket: bytes
    epoch: int
    slot: int
    expires: int
    head: str
    again: bool


class Desk(Protocol):
    """A deployment as an app talks to it; each call is repeated until it is answered."""

    async def enrol(self, name: str) -> Place | None: ...

    async def report(self, name: str, ticket: bytes, payload: bytes) -> bool | None:
        """Whether she had reported before; None: it is too late."""
        ...

    async def log(self) -> list[Entry]: ...


@dataclass
class Acknowledged:
    """What was promised so far, and must never be lost."""

    places: dict[str, Place] = field(default_factory=dict)
    reports: dict[str, bytes] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.places) + len(self.reports)

    def saw(self, entries: list[Entry]) -> None:
        """What was published stays as it was."""
        assert entries[: len(self.log)] == self.log, "the log was rewritten"
        self.log = entries


@dataclass
class Crowd:
    """People in waves of one epoch each: one wave enrols while the one before it reports, all at the same time."""

    desk: Desk
    clock: Clock
    apart: bool = False  # one wave after the other, and nobody minds how long it takes
    punctual: bool = True  # nobody is ever too late
    promised: Acknowledged = field(default_factory=Acknowledged)
    people: int = 0
    together: int = 24

    async def run(self) -> list[Entry]:
        """Everybody; the log in the end."""
        self.clock.set(1_000_000)
        wave, announcement = await self._wave()
        self.clock.set(self.clock() + PATIENCE // 2)
        while announcement is not None:
            following = None
            if self.apart:
                await self._reports(announcement, wave)
            else:
                following, _ = await asyncio.gather(self._wave(), self._reports(announcement, wave))
            self.clock.set(self.clock() + PATIENCE // 2)
            await self._released(announcement.epoch)
            wave, announcement = await self._wave() if following is None else following
        return self.promised.log

    async def _wave(self) -> tuple[list[str], Announcement | None]:
        """The next to come, as many as their epoch has places."""
        first = await self._enrolled(f"person-{self.people}")
        if first is None:
            return [], None
        announcement = await self._announced(first.head)
        names = [f"person-{self.people + i}" for i in range(announcement.size)]
        self.people += announcement.size
        places = await self._all(names, self._enrolled)
        assert {place.epoch for place in places if place} == {announcement.epoch}
        assert sorted(place.slot for place in places if place) == list(range(announcement.size))
        return names, announcement

    async def _all(self, names: list[str], call: Callable[[str], Awaitable[Any]]) -> list[Any]:
        gate = asyncio.Semaphore(self.together)

        async def one(name: str) -> Any:
            async with gate:
                return await call(name)

        return await asyncio.gather(*map(one, names))

    async def _enrolled(self, name: str) -> Place | None:
        place: Place | None = None
        for _ in range(1 + repeats(name)):
            place = await self.desk.enrol(name)
            if place is None:
                late = not self.punctual and name in self.promised.places
                assert late or name not in self.promised.places, "an acknowledged ticket is not known any more"
                return self.promised.places[name] if late else None
            known = self.promised.places.setdefault(name, place)
            assert (known.ticket, known.epoch, known.slot, known.expires, known.head) == (
                place.ticket,
                place.epoch,
                place.slot,
                place.expires,
                place.head,
            ), "an acknowledged ticket has changed"
        return place

    async def _reports(self, announcement: Announcement, wave: list[str]) -> None:
        async def one(name: str) -> None:
            if leaves(name):
                return
            ticket = self.promised.places[name].ticket
            mine = payload_of(announcement, name, ticket)
            again = await self.desk.report(name, ticket, mine)
            assert again is not None or not self.punctual, "it was too late for a report in time"
            if again is None:
                return
            self.promised.reports[name] = mine
            if repeats(name):
                other = payload_of(announcement, f"{name} otherwise", ticket)
                assert await self.desk.report(name, ticket, other), "an acknowledged report is not known any more"

        await self._all(wave, one)

    async def _announced(self, head: str) -> Announcement:
        self.promised.saw(await self.desk.log())
        event = event_of(next(entry for entry in self.promised.log if entry.name == head))
        assert isinstance(event, Announcement)
        return event

    async def _released(self, epoch: int) -> None:
        async with asyncio.timeout(60):
            while epoch not in releases(self.promised.log):
                await asyncio.sleep(0.005)
                self.promised.saw(await self.desk.log())
                if self.apart:
                    self.clock.set(self.clock() + PATIENCE // 2)


def releases(log: Iterable[Entry]) -> dict[int, Any]:
    """What was released, by epoch; nothing twice."""
    found: dict[int, Any] = {}
    for entry in log:
        if entry.event["event"] == "released":
            event: Any = event_of(entry)
            assert event.epoch not in found, "an epoch was released twice"
            found[event.epoch] = event
    return found


def announcements(log: Iterable[Entry]) -> dict[int, Announcement]:
    events = (event_of(entry) for entry in log if entry.event["event"] == "announced")
    return {event.epoch: event for event in events if isinstance(event, Announcement)}


# What the store holds -----------------------------------------------------------------------------------------------


def check_kept(database: Path, user_of: Callable[[str], bytes], promised: Acknowledged) -> None:
    """Whatever was acknowledged is in the store. The file is opened as a restart would: hand in a copy."""
    db = apsw.Connection(str(database))
    assert db.execute("PRAGMA integrity_check").get == "ok"
    log = [Entry(*row) for row in db.execute("SELECT number, previous, body, signature FROM log ORDER BY number")]
    rows: Mapping[bytes, Any] = {row[0]: row[1:] for row in db.execute("SELECT * FROM ticket")}
    items = dict(db.execute("SELECT * FROM report0 UNION ALL SELECT * FROM report1"))
    db.close()
    assert log[: len(promised.log)] == promised.log, "a published entry is lost"
    gone = set(releases(log))
    for name, place in promised.places.items():
        kept = rows.get(user_of(name), ())[:3]
        assert kept == (place.epoch, place.slot, place.expires), "an acknowledged ticket is lost"
    for name, payload in promised.reports.items():
        epoch, item = rows[user_of(name)][0], items.get(user_of(name))
        assert item == (None if epoch in gone else payload), "an acknowledged report is lost, or was not erased"


def check_counted(log: list[Entry], promised: Acknowledged) -> None:
    """Every release counts exactly the reports that were acknowledged, whoever left."""
    announced = announcements(log)
    for epoch, release in releases(log).items():
        own = [promised.reports[name] for name, place in promised.places.items()
               if place.epoch == epoch and name in promised.reports]  # fmt: skip
        assert np.array_equal(release.values, expected(announced[epoch], own))
