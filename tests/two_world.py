"""Two servers in one folder each, for the tests of what they do together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discreet.device.announcements import Announcement, Entry
from discreet.device.shares import ShareEncoder
from discreet.live import charter as charters
from discreet.live import helper as helpers
from discreet.live.desk import Desk, Wish, begin
from discreet.live.events import Released, event_of
from discreet.live.helper import Begun, Helper
from discreet.live.link import secret_of
from discreet.live.secrets import Tokens
from discreet.live.two_servers import Question, _asked, leader
from discreet.privacy.noise import NoiseSource
from live_world import PROBLEM, USUAL, Clock, told

#: As in live_world: five people per epoch, and at ε = 20 the noise of a count is zero but for one draw in 10,000.
TOML = (
    PROBLEM
    + """[privacy]
model = "two-servers"
epsilon = {epsilon}
users = {users}
[serving]
patience = "{patience}"
{lines}"""
)
HELPER_TOML = """
name = "second"
[helper]
url = "{url}"
epsilon_at_most = {epsilon}
"""


@dataclass
class Pair:
    """A leader and a helper, and how to come back to them."""

    path: Path  # of the leader's file
    helper_path: Path
    begun: Begun
    tokens: Tokens
    clock: Clock = field(default_factory=Clock)

    def helper(self, seed: int = 1) -> Helper:
        return Helper.open(self.helper_path, noise=NoiseSource.seeded(seed))

    def desk(self, link: Any = None, seed: int = 0, noise: NoiseSource | None = None) -> Desk:
        desk = Desk.open(self.path, clock=self.clock)
        if link is not None:
            secret = helpers.verify_secret_of(secret_of(charters.read(self.path)))
            desk.sealed_by(leader(link, secret, noise or NoiseSource.seeded(seed)))
        return desk

    def stored(self, who: str) -> bytes:
        """Everything that the store of one of them has on the disk."""
        name = {"leader": "tiny", "helper": "second"}[who]
        folder = (self.path if who == "leader" else self.helper_path).parent
        return b"".join(path.read_bytes() for path in sorted(folder.glob(f"{name}.db*")))


def paired(folder: Path, url: str = "http://127.0.0.1:9", **said: Any) -> Pair:
    """A deployment with two servers that has begun."""
    both = [folder / "leader", folder / "helper"]
    for each in both:
        each.mkdir(parents=True)
    helper_path, path = both[1] / "second.toml", both[0] / "tiny.toml"
    terms = USUAL | {"states": 2, "horizon": 2} | said
    helper_path.write_text(HELPER_TOML.format(url=url, epsilon=said.get("epsilon_at_most", 20.0)))
    begun = helpers.begin(helper_path)
    path.write_text(TOML.format(**terms, lines=begun.lines))
    secret = path.with_name("tiny.helper")
    secret.touch(mode=0o600)
    secret.write_text(begun.secret + "\n")
    return Pair(path, helper_path, begun, begin(path))


@dataclass
class Watching:
    """A link that shows everything that passes, and can be told to fail before or after something."""

    helper: Helper
    heard: list[Any] = field(default_factory=list)
    before: Callable[[str], None] = lambda _: None
    after: Callable[[str], None] = lambda _: None

    def verified(self, announced: Entry, questions: Sequence[Question]) -> list[bytes | None]:
        self.before("verified")
        answers = self.helper.verified(announced, questions)
        self.heard.append((list(questions), answers))
        self.after("verified")
        return answers

    def finished(self, announced: Entry) -> Entry:
        self.before("finished")
        entry = self.helper.finished(announced)
        self.heard.append(entry)
        self.after("finished")
        return entry


def encoder_of(announcement: Announcement) -> ShareEncoder:
    assert isinstance(announcement.encoder, ShareEncoder)
    return announcement.encoder


def joined(pair: Pair, desk: Desk, **options: Any) -> Helper:
    helper = pair.helper(**options)
    helper.joined(desk.visible.entries[0])
    return helper


def filled(pair: Pair, desk: Desk, payloads: Callable[[ShareEncoder], Iterable[bytes | None]]) -> None:
    """Hand out all tickets of the epoch, send what these people send, and let the last ticket expire."""
    announcement = told(desk)
    sent = list(payloads(encoder_of(announcement)))
    epoch = announcement.epoch
    users = [bytes([epoch, i]) + bytes(14) for i in range(announcement.size)]
    desk.decided([Wish.enrol(user) for user in users])
    reports = [Wish.report(user, payload) for user, payload in zip(users, sent, strict=False) if payload is not None]
    if reports:
        desk.decided(reports)
    pair.clock.now += 2_000


def releases(desk: Desk) -> list[Released]:
    return [event for event in map(event_of, desk.visible.entries) if isinstance(event, Released)]


HONEST = (0, 1, 1, None, 4)  # the last bucket is "none"; one person does not report


def honest(encoder: ShareEncoder) -> list[bytes | None]:
    return [None if item is None else encoder.shared(item) for item in HONEST]


@dataclass(frozen=True)
class Said:
    event: dict[str, Any]

    def to_event(self) -> dict[str, Any]:
        return self.event


def asked_of(desk: Desk, secret: bytes, payloads: list[bytes]) -> list[Question]:
    found = [_asked(encoder_of(told(desk)), secret, payload) for payload in payloads]
    return [each[1] for each in found if each is not None]
