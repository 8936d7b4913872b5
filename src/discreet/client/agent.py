"""The client of one deployment: follows its log, enrols, and sends one report per user."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from discreet.client.cache import KEPT, Cache
from discreet.client.episode import Episode, Walk
from discreet.client.service import Down, Rejected, Service
from discreet.client.terms import Name, Terms
from discreet.device import Announcement, Entry, Forged, Noise, Refused
from discreet.device.announcements import check_chain, decoded, forks
from discreet.device.shares import ShareEncoder
from discreet.device.shuffled import ShuffledEncoder
from discreet.device.wire import base64_of, canonical, list_of, text, whole_number

_LOG = logging.getLogger(__name__)
#: Entries asked for at once; reports that are tried again when somebody enrols.
PAGE, SOME = 256, 16
#: Answers to a report that no repetition changes: accepted, malformed, unknown, late.
FINAL = (400, 404, 410, 413, 422)
#: Seconds after which spectators look for a newer policy.
FRESH = 60.0


def connect(
    url: str,
    token: str,
    *,
    epsilon_at_most: float,
    default: Name,
    cache: Path | str,
    key: str | None = None,
    helper: str | None = None,
    model: str | None = None,
    delta_at_most: float = 0.0,
    honest: float = 1.0,
    shuffler: str | None = None,
    timeout: float = 5.0,
    rest: float = 5.0,
    plain: bool = False,
) -> Agent:
    """The client of the deployment at `url`; it needs no server to be there.

    `epsilon_at_most`: what one report may cost. In the local model the device computes that itself from every
    announcement; in the joint model and with two servers it is what the charter promises. Where messages are shuffled
    the device computes it, too, at `delta_at_most`, and relies on no more than the fraction `honest` of a batch to
    add its noise. `default`: what to do where nothing is known.
    `cache`: a folder of this deployment alone, on a disk that stays: who has reported is known from there.
    `key`: the deployment's public key (base64); without it the first one seen is kept. `helper`: of two servers, the
    key that shares for the second one are sealed to (hex), as its owner tells it; without it the leader's first word
    for it is taken, and a leader that names a key of its own reads everything. `shuffler`: in the same way, the
    address of the shuffler. `model`: refuse any other trust model.
    `timeout`, `rest`: seconds to wait for an answer, and not to ask after none came. `plain`: allow http to other
    machines.
    """
    if not epsilon_at_most > 0.0:
        raise ValueError(f"epsilon_at_most is {epsilon_at_most}; it must be a positive number")
    service = Service(url, token, timeout, rest, plain)
    limits = epsilon_at_most, delta_at_most, honest
    return Agent(service, Cache(cache), limits, default, key, model, helper, shuffler)


class Agent:
    """One deployment as a device sees it. Safe to use from several threads."""

    def __init__(
        self,
        service: Service,
        cache: Cache,
        limits: tuple[float, float, float],  # ε, and where messages are shuffled δ and who can be relied on
        default: Name,
        key: str | None = None,
        model: str | None = None,
        helper: str | None = None,
        shuffler: str | None = None,
    ) -> None:
        self._service, self._cache, self._default = service, cache, default
        self._limits, self._model = limits, model
        self._others = {"helper": helper, "shuffler": shuffler}
        self._shuffler: Service | None = None
        self._wanted_key = None if key is None else decoded("key", key)
        self._lock = threading.RLock()
        self._terms: Terms | None = None
        self._key = b""
        self._entry: Entry | None = None  # the newest announcement
        self._read_before: dict[str, Announcement] = {}
        self._looked = -FRESH
        self._recognised = False  # whether who answers has shown what this deployment has signed
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        if (opening := self._cache.opening) is not None:
            self._open(opening)
        try:
            self._look()
            self.deliver(left_behind=True)
        except (Down, Rejected, Refused) as error:
            _LOG.warning("without a server: %s", error)
        if self._terms is not None:
            self._terms.action(self._default)

    # What is known --------------------------------------------------------------------------------------------------

    @property
    def terms(self) -> Terms | None:
        """What the charter says, None where it was never heard."""
        return self._terms

    @property
    def announcement(self) -> Announcement | None:
        """The newest one."""
        return None if self._entry is None else self._announced(self._entry)

    @property
    def evidence(self) -> tuple[Path, ...]:
        """Signed entries that contradict each other."""
        return tuple(sorted((self._cache.folder / "evidence").glob("*.json")))

    # Episodes -------------------------------------------------------------------------------------------------------

    def episode(self, user: str) -> Episode:
        """An episode of this user: with a ticket, or as a spectator when there is none to be had."""
        if not isinstance(user, str) or not 1 <= len(user) <= 256 or not _encodable(user):
            raise ValueError("a user's id must be a text of 1 to 256 characters")
        announcement, ticket, spectator, place = None, None, None, None
        try:
            announcement, ticket, spectator, place = self._seat(user)
        except Down:
            spectator = "offline"
        except (Rejected, Refused, sqlite3.Error) as error:
            _LOG.warning("a spectator: %s", error)
            spectator = str(error)
        chosen = self.announcement if announcement is None else announcement
        sending = _Sending(self, user, ticket or b"", place)
        return Episode(self._terms, chosen, self._default, ticket, spectator, sending)

    def _seat(self, user: str) -> tuple[Announcement | None, bytes | None, str | None, Place | None]:
        if self._cache.reported(user):
            if time.monotonic() - self._looked >= FRESH:
                self._look()
            return None, None, "reported", None
        if self._cache.pending(1):
            self.deliver(SOME)
        reply = self._service.post("/v1/enrol", {"user": user})
        name = reply.get("announcement")  # None where nothing was ever announced
        if name is not None and (self._entry is None or self._entry.name != name):
            self._look()
        if "spectator" in reply:
            return None, None, str(reply["spectator"]), None
        try:
            ticket = bytes.fromhex(text("ticket", reply.get("ticket")))
            place = None if self._shuffler is None else _place(reply)
        except ValueError:
            raise Down("the answer is none to an enrolment") from None
        entry = next((entry for entry in self._cache.announcements if entry.name == name), None)
        if entry is None:
            raise Refused("the ticket is for an announcement that this device never saw; nothing is sent")
        announcement = self._announced(entry)
        self._check(announcement)
        return announcement, ticket, None, None if place is None else Place(entry, *place)

    def _check(self, announcement: Announcement) -> None:
        """Refuse an announcement that asks for too much."""
        terms = self._terms
        assert terms is not None
        if self._model not in (None, terms.model):
            raise Refused(f"the deployment's trust model is {terms.model}, not {self._model}; nothing is sent")
        terms.check(announcement, *self._limits)

    # The log --------------------------------------------------------------------------------------------------------

    def _open(self, opening: Entry) -> None:
        key = decoded("key", opening.event.get("key"))
        if self._wanted_key not in (None, key):
            raise Refused("the deployment has another public key than this device was told; nothing is sent")
        check_chain([opening], key)
        terms = Terms.of(opening.event.get("charter"), opening.event.get("hpke"))
        for name, told in self._others.items():
            if told not in (None, getattr(terms, name)):
                raise Refused(f"the charter names another {name} than this device was told; nothing is sent")
        self._shuffler = None if terms.shuffler is None else self._service.elsewhere(terms.shuffler)
        self._terms, self._key = terms, key
        if seen := self._cache.announcements:
            self._entry = seen[0]

    def _look(self) -> None:
        """Hear the announcement in force, and follow the log to it."""
        with self._lock:
            self._looked = time.monotonic()
            try:
                if self._terms is None:
                    self._meet()
                seen = self._cache.announcements
                reply = self._service.get("/v1/announcement")
                entry = _entry({name: reply.get(name) for name in ("number", "previous", "body", "signature")})
                self._follow(seen, entry)
            except Refused:
                raise
            except ValueError as error:
                raise Refused(f"{error}; nothing is sent") from None

    def _meet(self) -> None:
        (opening,) = self._read(0, 1)
        if opening.event["event"] != "opened":
            raise Forged("the log does not begin with an opening")
        self._open(opening)
        self._cache.pin(opening)
        if self._cache.opening != opening:
            raise Refused("another process has met another deployment in this cache; nothing is sent")

    def _follow(self, seen: list[Entry], entry: Entry) -> None:
        """From those seen before it was asked for; other processes may have seen more since."""
        if not seen or entry.head != seen[0].head:
            entry.check(self._key)
            if (other := forks(seen, entry)) is not None:
                self._accuse("two announcements have one number", other, entry)
            if seen and entry.number < seen[0].number:
                self._accuse("the announcement is older than one this device has seen", seen[0], entry)
            if seen:
                self._link(seen[0], entry)
            self._announced(entry)
            self._cache.saw(entry)
        self._entry, self._recognised = entry, True

    def _announced(self, entry: Entry) -> Announcement:
        """What an entry says, read once."""
        known = self._read_before
        if entry.name not in known:
            try:
                found = Announcement.from_event(entry.event)
            except ValueError as error:
                raise Refused(f"the announcement cannot be read: {error}; nothing is sent") from None
            self._read_before = {**dict(list(known.items())[-KEPT:]), entry.name: found}
            return found
        return known[entry.name]

    def _link(self, newest: Entry, entry: Entry) -> None:
        """Check that the log leads from what was seen last to this entry."""
        number, head = newest.number + 1, newest.head
        while number <= entry.number:
            entries = self._read(number, min(PAGE, entry.number + 1 - number))
            try:
                head = check_chain(entries, self._key, number, head)
            except Forged:
                self._accuse("the log does not lead here from what this device has seen", newest, *entries)
            number += len(entries)
        if head != entry.head:
            self._accuse("the log holds another announcement than was served", newest, entry)

    def _accuse(self, what: str, *entries: Entry) -> NoReturn:
        folder = self._cache.accuse(*entries)
        raise Refused(
            f"{what}: the server was set back, or tells two stories; evidence is in {folder}, nothing is sent"
        )

    def _read(self, start: int, count: int) -> list[Entry]:
        reply = self._service.get(f"/v1/log?from={start}&count={count}")
        try:
            messages = list_of("entries", reply.get("entries"))
        except ValueError:
            raise Down("the answer is no part of a log") from None
        entries = [_entry(message) for message in messages]
        if not 1 <= len(entries) <= count:
            raise Down("the log has no such entries")
        return entries

    # Reports --------------------------------------------------------------------------------------------------------

    def deliver(self, most: int = 1 << 30, left_behind: bool = False) -> int:
        """Send the reports that are still here, each with its own ticket; how many are left.

        They are for this deployment only: whoever answers must have shown an announcement of it, or be the shuffler
        of its charter, who can open none. `left_behind`: also those of episodes that were never left, as by a process
        that is no more.
        """
        try:
            for pending in self._cache.pending(most, not left_behind):
                if not self._recognised and self._shuffler is None:
                    self._look()
                self._send(pending.user, pending.ticket, pending.payload)
        except (Down, Rejected, Refused) as error:
            _LOG.warning("reports are kept until later: %s", error)
        return len(self._cache.pending(1 << 30, ready=False))

    def _send(self, user: str, ticket: bytes, payload: bytes) -> None:
        try:
            if self._shuffler is not None:
                self._shuffler.post("/v1/bundle", json.loads(payload))
            else:
                message = {"ticket": ticket.hex(), "user": user, "payload": base64_of(payload)}
                self._service.post("/v1/report", message)
        except Rejected as error:
            if error.status not in FINAL:
                raise
            _LOG.warning("a report came to nothing: %s", error)
        self._cache.settle(user)

    def close(self) -> None:
        self._service.close()
        if self._shuffler is not None:
            self._shuffler.close()
        self._cache.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Sending:
    """The one report of an episode: written down as soon as it is settled, then sent.

    To a trusted curator it goes at once, so that who leaves afterwards is counted. Randomised reports, shares and
    shuffled messages wait until the episode is left: the moment would tell what the message hides.
    """

    def __init__(self, agent: Agent, user: str, ticket: bytes, place: Place | None) -> None:
        self._agent, self._user, self._ticket, self._place = agent, user, ticket, place
        self._made = False
        self._payload: bytes | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, walk: Walk, leaving: bool) -> None:
        at_once = math.isinf(walk.encoder.epsilon) and not isinstance(walk.encoder, ShareEncoder | ShuffledEncoder)
        if not self._made:
            self._made = True
            self._make(walk, leaving or at_once)
        if self._payload is None:
            return
        if leaving and self._thread is not None:
            self._thread.join()
        elif leaving:
            self._send()
        elif self._thread is None and at_once:
            self._thread = threading.Thread(target=self._send, daemon=True)
            self._thread.start()

    def _make(self, walk: Walk, ready: bool) -> None:
        payload = walk.encoder.payload(*walk.record(), Noise())
        if isinstance(walk.encoder, ShuffledEncoder):
            assert self._place is not None
            payload = self._place.bundle(payload)
        try:
            self._agent._cache.claim(self._user, self._ticket, payload, ready)
            self._payload = payload
        except (Refused, sqlite3.Error) as error:  # the same user, elsewhere and sooner; or a full disk
            _LOG.warning("no report: %s", error)

    def _send(self) -> None:
        assert self._payload is not None
        try:
            self._agent._send(self._user, self._ticket, self._payload)
        except (Down, Rejected, sqlite3.Error) as error:
            _LOG.warning("a report is kept until later: %s", error)
            self._keep()

    def _keep(self) -> None:
        """Let others send it from now on."""
        try:
            self._agent._cache.ready(self._user)
        except sqlite3.Error as error:
            _LOG.warning("a report is kept until the next start: %s", error)


class Place(NamedTuple):
    """What admits somebody at the shuffler, who is told neither her name nor her ticket."""

    announced: Entry
    slot: int
    admission: str

    def bundle(self, messages: bytes) -> bytes:
        told = {"announced": self.announced.to_json(), "slot": self.slot, "admission": self.admission}
        return canonical({**told, "messages": base64_of(messages)})


def _place(reply: Mapping[str, Any]) -> tuple[int, str]:
    return whole_number("slot", reply.get("slot")), text("admission", reply.get("admission"))


def _entry(message: Any) -> Entry:
    try:
        return Entry.from_json(message)
    except ValueError as error:
        raise Forged(str(error)) from None


def _encodable(user: str) -> bool:
    try:
        return bool(user.encode())
    except UnicodeEncodeError:
        return False
