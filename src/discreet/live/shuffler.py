"""The shuffler, a party of its own: it takes one bundle of sealed messages per place, and passes on whole batches.

It can open none of them, and need not know who has which place. An epoch ends by its tickets, when the analyzer says
so. A batch ends with its last epoch, in one transaction: whoever sent nothing is filled in for, the messages are
counted and permuted, and everything that tells which were sent together is erased. The permuted batch is handed out,
the same bytes whenever it is asked for, until its release is in the analyzer's log. Proof: privacy/trust/shuffle.md.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from discreet.device.announcements import Entry, Forged
from discreet.device.shuffled import SEALED, ShuffledEncoder
from discreet.device.wire import Readers, fields_of, read_fields, text, whole_number
from discreet.live import party
from discreet.live import secrets as keys
from discreet.live.events import Opened, Released, Retired, event_of
from discreet.live.learning import task_of
from discreet.live.party import LOG, LogStore, LogTransaction, Party, Settled, opened_by
from discreet.live.secrets import KEY_BYTES, Role
from discreet.live.shuffling import Task, mixed, statement, welcome
from discreet.live.store import Anchor
from discreet.privacy.noise import NoiseSource

#: Messages in one part of a batch.
PART = 1 << 16


class Late(ValueError):
    """The epoch is closed."""


# Its file and its keys ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class Secrets:
    """Of what lets the analyzer in it keeps a hash."""

    signing: Ed25519PrivateKey
    analyzer: tuple[str, ...]  # SHA-256 of the token, in hex

    @classmethod
    def read(cls, path: Path) -> Secrets:
        (signing,), (analyzer,) = keys.kept(path, ("signing",), ("analyzer",))
        return cls(Ed25519PrivateKey.from_private_bytes(signing), analyzer)

    def keep(self, path: Path) -> None:
        keys.keep(path, {"signing": self.signing.private_bytes_raw()}, {"analyzer": self.analyzer})

    @property
    def public(self) -> bytes:
        return self.signing.public_key().public_bytes_raw()

    def admits(self, role: Role, token: str) -> bool:
        return role == "analyzer" and keys.among(self.analyzer, token)


@dataclass(frozen=True)
class Begun:
    """What a new shuffler tells its analyzer: public lines for its charter, and a token for its owner's eyes only."""

    url: str
    key: str
    secret: str

    @property
    def lines(self) -> str:
        return f'[shuffler]\nurl = "{self.url}"\nkey = "{self.key}"\n'


def read(path: Path | str) -> party.Place:
    """Where the shuffler of a TOML file is."""
    return party.place_of("shuffler", Path(path))[0]


def begin(path: Path | str) -> Begun:
    """Begin the shuffler of a TOML file: its keys and its store. Its log begins when an analyzer comes."""
    place, secret = read(path), secrets.token_urlsafe(KEY_BYTES)
    made = Secrets(Ed25519PrivateKey.generate(), (keys.hashed(secret),))
    party.begin(place, made.keep, ShufflerStore)
    return Begun(place.url, made.public.hex(), secret)


# Its log ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Introduced:
    """The first entry of its log: the first one of the analyzer's."""

    opening: Entry

    def to_event(self) -> dict[str, Any]:
        return {"event": "joined", "opening": self.opening.to_json()}

    @classmethod
    def from_event(cls, event: Any) -> Introduced:
        fields = fields_of("the first entry of a shuffler's log", event, "event", "opening")
        return cls(Entry.from_json(fields["opening"]))

    @cached_property
    def opened(self) -> Opened:
        told = event_of(self.opening)
        assert isinstance(told, Opened)
        return told


@dataclass(frozen=True)
class Closed:
    """An epoch that nobody can send to any more; of a batch that ends with it how many messages were passed on, their
    digest, and the signature under both. Never who has sent something, nor how many have."""

    epoch: int
    announced: str  # head
    encoder: str  # SHA-256, of all that is published of it
    task: str
    people: int
    messages: int = 0
    digest: bytes = b""
    signature: bytes = b""

    def to_event(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("epoch", "announced", "encoder", "task", "people", "messages")}
        return {"event": "closed", **told, "digest": self.digest.hex(), "signature": self.signature.hex()}

    @classmethod
    def from_event(cls, event: Any) -> Closed:
        fields = read_fields("an entry of a shuffler's log", event, _CLOSED, "event")
        return cls(**fields)


def _bytes(name: str, value: Any) -> bytes:
    return bytes.fromhex(text(name, value))


_CLOSED: Readers = {
    **dict.fromkeys(("epoch", "people", "messages"), whole_number),
    **dict.fromkeys(("announced", "encoder", "task"), text),
    **dict.fromkeys(("digest", "signature"), _bytes),
}


def _named(encoder: ShuffledEncoder) -> str:
    return encoder.context[-32:].hex()


# Its store ----------------------------------------------------------------------------------------------------------


class ShufflerTransaction(LogTransaction):
    """Bundles of the open batch, and parts of the batch that was passed on last. Both are erased with their whole
    tables, so that all pages become zeros."""

    def take(self, task: Task, slot: int, bundle: bytes) -> None:
        """The first bundle of a place is kept; something is written, and waited for, also where there is one."""
        taken = "INSERT INTO bundle VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET times = times + 1"
        self._db.execute(taken, (task.epoch, slot, task.head, bundle))

    def bundles(self, heads: Collection[bytes]) -> Iterator[bytes]:
        """Of those who followed these announcements."""
        rows = self._db.execute("SELECT announced, messages FROM bundle ORDER BY epoch, slot")
        return (messages for announced, messages in rows if announced in heads)

    def pass_on(self, batch: bytes) -> None:
        """Keep a permuted batch, and nothing that it was made of."""
        size = PART * SEALED
        rows = ((start // size, batch[start : start + size]) for start in range(0, len(batch), size))
        self._db.executemany("INSERT INTO part VALUES (?, ?)", rows)
        self._db.execute("DELETE FROM bundle")

    def part(self, number: int) -> bytes | None:
        row = self._db.execute("SELECT messages FROM part WHERE number = ?", (number,)).fetchone()
        return None if row is None else row[0]

    def forget_batch(self) -> None:
        self._db.execute("DELETE FROM part")

    def forget_bundles(self) -> None:
        self._db.execute("DELETE FROM bundle")


class ShufflerStore(LogStore[ShufflerTransaction]):
    """One bundle per place and one end per epoch are the database's own law."""

    kind = ShufflerTransaction
    schema = f"""{LOG}
CREATE TABLE bundle (
    epoch INTEGER NOT NULL, slot INTEGER NOT NULL, announced BLOB NOT NULL, messages BLOB NOT NULL,
    times INTEGER NOT NULL, PRIMARY KEY (epoch, slot)
) STRICT;
CREATE TABLE part (number INTEGER PRIMARY KEY, messages BLOB NOT NULL) STRICT;
"""
    probe = "SELECT epoch FROM log LIMIT 1; SELECT messages FROM bundle LIMIT 1; SELECT messages FROM part LIMIT 1"


# The shuffler -------------------------------------------------------------------------------------------------------


class Shuffler(Party[Secrets, ShufflerTransaction, Introduced]):
    """Whatever it is asked may be asked again."""

    def __init__(
        self, own: Secrets, store: ShufflerStore, anchor: Anchor, *, noise: NoiseSource | None = None
    ) -> None:
        super().__init__(own, store, anchor, Introduced.from_event)
        self._noise = NoiseSource.secure() if noise is None else noise
        self._read = lru_cache(maxsize=8)(Task.of)

    @classmethod
    def open(cls, path: Path | str, **options: Any) -> Shuffler:
        """The shuffler of a TOML file, as it was left; refused where that is not what was published."""
        place = read(path)
        own, store = Secrets.read(place.keys), ShufflerStore(place.database)
        try:
            return cls(own, store, Anchor(place.store.anchor), **options)
        except BaseException:
            store.close()
            raise

    # What may be asked ----------------------------------------------------------------------------------------------

    def joined(self, opening: Entry) -> bytes:
        """Shuffle for the deployment whose log begins with this entry, and for no other; its signature."""
        opened_by(opening, "shuffler", self.secrets.public)
        self._join(Introduced(opening))
        return self.secrets.signing.sign(welcome(opening))

    def taken(self, announced: Entry, slot: int, admission: bytes, bundle: bytes) -> None:
        """Take the first bundle of a place. Later ones count for nothing and are answered alike, whatever others have
        sent: else the analyzer, who can make any pass, could ask who has sent something."""
        opened = self._leader.opened
        task = self._read(announced, opened)
        if not task.admits(opened, slot, admission, bundle):
            raise Forged("a bundle does not have a pass of the analyzer, or another size than was announced")
        with self._alone:
            if task.epoch < self._turn:
                raise Late("the epoch is closed")
            self._check(task)
            with self._store.writing() as transaction:
                transaction.take(task, slot, bundle)

    def closed(self, announced: Entry) -> Closed:
        """The end of an epoch, once; with its last one a batch is passed on, in one transaction. Whoever has followed
        another announcement than this one is filled in for."""
        with self._alone:
            task = self._read(announced, self._leader.opened)
            if task.epoch < self._turn:
                told = Closed.from_event(self.entries[task.epoch].event)
                if told.announced != task.head.hex():
                    raise Forged("the analyzer has announced this epoch in another way before")
                return told
            before = self._check(task)
            with self._store.writing() as transaction:
                transaction.forget_batch()  # it was released before this epoch was announced
                told = self._ended(transaction, task, before)
                entry = self._appended(transaction, told, task.epoch)
            self._publish(entry)
            return told

    def part(self, task: str, start: int) -> bytes:
        """Messages of the batch that was passed on last, from this one on."""
        with self._alone:
            last = self._last
            if last is None or not last.messages or last.task != task or not 0 <= start < last.messages:
                raise Settled("there is no such part of the batch that was passed on last")
            with self._store.writing() as transaction:
                found = transaction.part(start // PART)
            if found is None:
                raise Settled("the batch is released, and was erased")
            return found[SEALED * (start % PART) :]

    def settled(self, published: Entry) -> None:
        """Erase what the analyzer's log shows to be released, and all of it where the deployment has ended."""
        opened = self._leader.opened
        published.check(opened.key)
        event = event_of(published)
        if not isinstance(event, (Released, Retired)):
            raise Forged("the analyzer's entry releases nothing")
        with self._alone:
            if isinstance(event, Released) and event.epoch < self._turn - 1:
                return
            entry = None
            with self._store.writing() as transaction:
                transaction.forget_batch()
                if isinstance(event, Retired) and not self._over:
                    transaction.forget_bundles()
                    entry = self._appended(transaction, event, None)
            if entry is None:
                self._store.erased()
            else:
                self._publish(entry)

    # How ------------------------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return bool(self.entries) and self.entries[-1].event["event"] == "retired"

    @property
    def _turn(self) -> int:
        """The epoch that is next to be closed. Epoch e is entry e of this log."""
        return len(self.entries) - self._over

    @property
    def _last(self) -> Closed | None:
        return Closed.from_event(self.entries[self._turn - 1].event) if self._turn > 1 else None

    def _batch(self) -> list[Closed]:
        """The epochs of the batch that goes on."""
        found: list[Closed] = []
        for entry in reversed(self.entries[1 : self._turn]):
            told = Closed.from_event(entry.event)
            if told.messages:
                break
            found.append(told)
        return found[::-1]

    def _check(self, task: Task) -> int:
        """How many people of the batch are in epochs before this one; refused unless it is the epoch's turn, and all
        of them were asked for the same: else their messages could be told apart."""
        if self._over:
            raise Late("the deployment has ended")
        if task.epoch != self._turn:
            raise Settled("an epoch before this one has not ended")
        batch = self._batch()
        people = sum(epoch.people for epoch in batch)
        first = batch[0].epoch if batch else task.epoch
        if batch and batch[0].encoder != _named(task.encoder):
            raise Forged("the batch goes on with another encoder")
        if task.encoder.task != task_of(self._leader.opened.charter, first):
            raise Forged("the announcement names another batch")
        if people + task.size > task.encoder.bits.users:
            raise Forged("the batch has more people than were announced")
        return people

    def _ended(self, transaction: ShufflerTransaction, task: Task, before: int) -> Closed:
        encoder = task.encoder
        told = Closed(task.epoch, task.head.hex(), _named(encoder), encoder.task, task.size)
        if before + task.size < encoder.bits.users:
            return told
        heads = {task.head, *(bytes.fromhex(epoch.announced) for epoch in self._batch())}
        batch = mixed(encoder, transaction.bundles(heads), self._noise)
        transaction.pass_on(batch)
        digest, messages = hashlib.sha256(batch).digest(), len(batch) // SEALED
        signature = self.secrets.signing.sign(statement(encoder.task, digest, messages))
        return replace(told, messages=messages, digest=digest, signature=signature)
