"""A server beside a deployment's own, with a file, keys, a store, a public log and an anchor to itself.

The helper of two servers is one, and the shuffler. It serves one deployment, whose log's first entry it was shown
(`Joined`), and writes down whatever it answers before it answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import apsw
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from discreet.device.announcements import START, Entry, Forged, check_chain, decoded
from discreet.device.wire import base64_of, fields_of
from discreet.live import charter as charters
from discreet.live.charter import Charter
from discreet.live.events import Opened, Tellable, event_of, signed
from discreet.live.sqlite import Database, entries_of
from discreet.live.store import Anchor


class Settled(ValueError):
    """A question about what is over, or out of its turn: it will not be answered."""


# Its file -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """What the TOML file of a party says: its name, and where others reach it."""

    name: str
    url: str
    store: charters.Store
    path: Path

    @property
    def keys(self) -> Path:
        return self.path.with_name(f"{self.name}.keys")

    @property
    def database(self) -> Path:
        return Path(self.store.url.removeprefix("sqlite:///"))


def place_of(role: str, path: Path, *settings: str) -> tuple[Place, dict[str, Any]]:
    """Where a party is, and these settings of its section."""
    document = charters.document_of(path)
    store = document.pop("store", {})
    told = charters.section(f"the file of a {role}", document, {"name", role})
    own = charters.section(role, told.get(role, {}), {"url", *settings})
    name = charters.name_of(told)
    place = charters.store_of(path, name, store)
    if not place.url.startswith("sqlite:///"):
        raise ValueError(f"store.url of a {role} must begin with sqlite:///")
    url = charters.url_of(own.pop("url", None), f"{role}.url", f"the {role}")
    return Place(name, url, place, path.resolve()), own


def begin(place: Place, keep: Callable[[Path], None], kind: Callable[..., Database]) -> None:
    """Begin a party: its keys and its store. Its log begins when a deployment comes."""
    if Anchor(place.store.anchor).read() is not None:
        raise ValueError(f"the anchor {place.store.anchor} belongs to a deployment already; it is not replaced")
    keep(place.keys)
    try:
        kind(place.database, create=True).close()
    except BaseException:
        place.keys.unlink()
        raise


# Its log ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """The first entry of a party's log: which deployment it serves, and who signs that one's log (the leader)."""

    charter: Charter
    leader: bytes  # Ed25519
    key: bytes

    def to_event(self) -> dict[str, Any]:
        leader, key = (base64_of(each) for each in (self.leader, self.key))
        return {"event": "joined", "charter": self.charter.document(), "leader": leader, "key": key}

    @classmethod
    def from_event(cls, event: Any) -> Joined:
        fields = fields_of("the first entry of a helper's log", event, "event", "charter", "leader", "key")
        charter = Charter.from_document(fields["charter"])
        return cls(charter, decoded("leader", fields["leader"]), decoded("key", fields["key"]))


def opened_by(opening: Entry, role: Literal["helper", "shuffler"], own: bytes) -> Opened:
    """What the first entry of a deployment's log says, if its charter names a party of this role and key."""
    event = event_of(opening)
    if not isinstance(event, Opened) or opening.number != 0:
        raise Forged("a leader shows the first entry of its log, which holds the charter")
    opening.check(event.key)
    named = event.charter.helper if role == "helper" else event.charter.shuffler
    if named is None or named.key != own.hex():
        raise Forged(f"the charter names another {role}")
    return event


def joined_by(opening: Entry, own: bytes) -> Joined:
    """What a helper with this key writes down when it is shown the first entry of a leader's log."""
    event = opened_by(opening, "helper", own)
    return Joined(event.charter, event.key, own)


#: No two entries have one mark: that of an epoch that was released or closed.
LOG = """
CREATE TABLE log (
    number INTEGER PRIMARY KEY, previous BLOB NOT NULL, body BLOB NOT NULL, signature BLOB NOT NULL,
    epoch INTEGER UNIQUE
) STRICT;"""


class LogTransaction:
    """The log of a party."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def entries(self) -> list[Entry]:
        return entries_of(self._db, 0)

    def append(self, entry: Entry, mark: int | None) -> None:
        row = (entry.number, entry.previous, entry.body, entry.signature, mark)
        self._db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", row)


class Signing(Protocol):
    @property
    def signing(self) -> Ed25519PrivateKey: ...
    @property
    def public(self) -> bytes: ...


Own = TypeVar("Own", bound=Signing)
Met = TypeVar("Met", bound=Tellable)
Written = TypeVar("Written", bound=LogTransaction)


class LogStore(Database, Generic[Written]):
    """A store with a log in it."""

    kind: type[Written]

    @contextmanager
    def writing(self) -> Iterator[Written]:
        with self.begun() as db:
            yield self.kind(db)


class Party(Generic[Own, Written, Met]):
    """Its log as it was left, refused where that is not what was published. After a `StoreFailed` it must not be used
    again. `read`: of the log's first entry, whom it serves."""

    def __init__(self, own: Own, store: LogStore[Written], anchor: Anchor, read: Callable[[Any], Met]) -> None:
        self.secrets, self._store, self._anchor = own, store, anchor
        self._alone = threading.Lock()
        with store.writing() as transaction:
            self.entries = tuple(transaction.entries())
        if len(self.entries) > 1 or anchor.read() is not None:  # before the first release nothing was published
            anchor.check(list(self.entries))
        check_chain(self.entries, own.public)
        if self.entries:
            anchor.advance(self.entries[-1])
        self.leader = read(self.entries[0].event) if self.entries else None  # whom it serves
        store.erased()

    def close(self) -> None:
        with self._alone:
            self._store.close()

    @property
    def _leader(self) -> Met:
        if self.leader is None:
            raise Settled("no leader has shown its charter")
        return self.leader

    def _join(self, told: Met) -> Entry:
        """The first entry of its log: it serves this deployment, and no other from then on."""
        with self._alone:
            if self.entries:
                if self.leader != told:
                    raise Forged("this server has joined another deployment")
                return self.entries[0]
            with self._store.writing() as transaction:
                entry = self._appended(transaction, told, None)
            self._publish(entry)
            self.leader = told
            return entry

    def _appended(self, transaction: Written, event: Tellable, mark: int | None) -> Entry:
        previous = self.entries[-1].head if self.entries else START
        entry = signed(self.secrets.signing, len(self.entries), previous, event)
        transaction.append(entry, mark)
        return entry

    def _publish(self, entry: Entry) -> None:
        """After a commit: anchor, forget, show."""
        self._anchor.advance(entry)
        self._store.erased()
        self.entries = (*self.entries, entry)
