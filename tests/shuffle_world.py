"""An analyzer and a shuffler in one folder each, for the tests of what they do together with people's devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from discreet.device.announcements import Announcement, Entry
from discreet.device.shuffled import ShuffledEncoder, pass_of
from discreet.live import shuffler as shufflers
from discreet.live.desk import Desk, Wish, begin
from discreet.live.secrets import Tokens
from discreet.live.shuffler import Begun, Closed, Shuffler
from discreet.live.shuffling import Passed, analyzer, shuffled_encoder
from discreet.privacy.noise import NoiseSource
from live_world import PROBLEM, USUAL, Clock, told

TOML = (
    PROBLEM
    + """[privacy]
model = "shuffle"
epsilon = {epsilon}
delta = {delta}
users = {users}
[learner]
name = "{learner}"
[serving]
patience = "{patience}"
{lines}"""
)
SHUFFLER_TOML = """
name = "mixer"
[shuffler]
url = "{url}"
"""


@dataclass
class Trio:
    """An analyzer and a shuffler, and how to come back to them; the third are people's devices."""

    path: Path  # of the analyzer's file
    shuffler_path: Path
    begun: Begun
    tokens: Tokens
    clock: Clock = field(default_factory=Clock)

    def shuffler(self, noise: NoiseSource | None = None) -> Shuffler:
        return Shuffler.open(self.shuffler_path, noise=noise)

    def desk(self, link: Any = None) -> Desk:
        desk = Desk.open(self.path, clock=self.clock)
        if link is not None:
            desk.sealed_by(analyzer(link, desk.secrets.hpke), link.look)
        return desk

    def stored(self, who: str) -> bytes:
        """Everything that one of them has on the disk."""
        folder = (self.path if who == "analyzer" else self.shuffler_path).parent
        return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def shuffled(lines: str = Begun("http://127.0.0.1:9", "00" * 32, "").lines, **said: Any) -> str:
    """A charter of the shuffle model, as a file has it."""
    terms = USUAL | {"states": 2, "horizon": 2, "delta": 0.1} | said
    charter = TOML.format(**terms, lines=lines)
    return charter if terms["learner"] != "sdp-pe" else charter.replace("pooled = true", "pooled = false")


def trio(folder: Path, url: str = "http://127.0.0.1:9", **said: Any) -> Trio:
    """A deployment with a shuffler that has begun."""
    both = [folder / "analyzer", folder / "shuffler"]
    for each in both:
        each.mkdir(parents=True)
    path, shuffler_path = both[0] / "tiny.toml", both[1] / "mixer.toml"
    shuffler_path.write_text(SHUFFLER_TOML.format(url=url))
    begun = shufflers.begin(shuffler_path)
    path.write_text(shuffled(begun.lines, **said))
    secret = path.with_name("tiny.shuffler")
    secret.touch(mode=0o600)
    secret.write_text(begun.secret + "\n")
    return Trio(path, shuffler_path, begun, begin(path))


@dataclass
class Direct:
    """A link without a network between them. `passed`: what the analyzer was given; `before`, `after`: crashes."""

    shuffler: Shuffler
    passed: list[Passed] = field(default_factory=list)
    closed_again: list[Closed] = field(default_factory=list)
    before: Callable[[str], None] = lambda _: None
    after: Callable[[str], None] = lambda _: None
    shown: int = 0

    def look(self, log: Sequence[Entry]) -> None:
        self.shuffler.joined(log[0])
        for entry in log[self.shown :]:
            if entry.event["event"] in ("released", "retired"):
                self.before("settled")
                self.shuffler.settled(entry)
                self.after("settled")
        self.shown = len(log)

    def closed(self, announced: Entry) -> Passed | None:
        self.before("closed")
        found = self.shuffler.closed(announced)
        self.after("closed")
        if not found.messages:
            return None
        batch = b""
        while len(batch) < 53 * found.messages:
            self.before("part")
            batch += self.shuffler.part(found.task, len(batch) // 53)
            self.after("part")
        self.passed.append(Passed(batch, found.signature))
        return self.passed[-1]


def encoder_of(announcement: Announcement) -> ShuffledEncoder:
    return shuffled_encoder(announcement)


class Quiet:
    """A device's randomness without noise: every bit of it is zero."""

    def words(self, count: int) -> Any:
        return np.full(count, np.iinfo(np.uint64).max, dtype=np.uint64)


def bundle(encoder: ShuffledEncoder, counter: int | None = None) -> bytes:
    """The messages of somebody with this counter, and no noise: what a release says of her is exact."""
    ones = np.array([] if counter is None else [counter], dtype=np.int64)
    return encoder.sealed(encoder.bits.messages(ones, Quiet()))


def enrolled(desk: Desk) -> tuple[Entry, Announcement]:
    """Hand out all tickets of the epoch: the announcement, as its entry and read."""
    announcement, entry = told(desk), desk.visible.told
    assert entry is not None
    users = [bytes([announcement.epoch, i]) + bytes(14) for i in range(announcement.size)]
    desk.decided([Wish.enrol(user) for user in users])
    return entry, announcement


def admission(desk: Desk, entry: Entry, slot: int) -> bytes:
    return desk.secrets.signing.sign(pass_of(entry.head, slot))


def filled(
    world: Trio, desk: Desk, shuffler: Shuffler, bundles: Iterable[bytes | None], order: Iterable[int] | None = None
) -> None:
    """Everybody of an epoch enrols, sends (None: nothing) in some order, and the last ticket expires."""
    entry, announcement = enrolled(desk)
    sent = dict(enumerate(bundles))
    for slot in sent if order is None else order:
        messages = sent[slot]
        if messages is not None:
            shuffler.taken(entry, slot, admission(desk, entry, slot), messages)
    assert announcement.size >= len(sent)
    world.clock.now += 2_000
