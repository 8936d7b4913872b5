"""The second of two servers, a party of its own: it checks reports with the leader and publishes its sums with noise.

It has a store, keys, a log and an anchor of its own, and whatever it is asked may be asked again: answers are written
down before they are given. Of an open epoch it keeps one sum of shares, which is random by itself, and the answers it
gave. An epoch ends in one transaction that draws its noise, signs its sum and forgets the sum without noise. Proof:
privacy/trust/two_servers.md.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from discreet.device.announcements import Entry, Forged
from discreet.live import charter as charters
from discreet.live import party
from discreet.live import secrets as keys
from discreet.live.party import LOG, Joined, LogStore, LogTransaction, Party, Settled, joined_by
from discreet.live.secrets import Role
from discreet.live.store import Anchor
from discreet.live.two_servers import Question, Shared, Task, noised, scale
from discreet.privacy.noise import NoiseSource

#: Bytes of the secret that leader and helper share.
SECRET_BYTES = 32


# Its file and its keys ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place(party.Place):
    """Where leaders reach it, and the least noise it stands for."""

    epsilon_at_most: float

    @classmethod
    def read(cls, path: Path | str) -> Place:
        place, own = party.place_of("helper", Path(path), "epsilon_at_most")
        most = charters.epsilon_of("helper.epsilon_at_most", own.get("epsilon_at_most"))
        return cls(place.name, place.url, place.store, place.path, most)


def token_of(secret: str) -> str:
    """What the leader shows to be let in: HMAC(secret, "token")."""
    return base64.urlsafe_b64encode(_derived(secret, b"token")).decode("ascii").rstrip("=")


def verify_secret_of(secret: str) -> bytes:
    """What the keys are made of with which both query proofs; it is never sent: HMAC(secret, "verify")."""
    return _derived(secret, b"verify")


def _derived(secret: str, use: bytes) -> bytes:
    return hmac.digest(secret.encode("ascii"), b"discreet-helper-" + use, "sha256")


@dataclass(frozen=True, repr=False, eq=False)
class Secrets:
    """Of what it shares with the leader it keeps a hash of the token, and what proofs are queried with."""

    signing: Ed25519PrivateKey
    hpke: X25519PrivateKey
    verify: bytes
    leader: tuple[str, ...]  # SHA-256 of the token, in hex

    @classmethod
    def fresh(cls, secret: str) -> Secrets:
        pair = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
        return cls(*pair, verify_secret_of(secret), (keys.hashed(token_of(secret)),))

    @classmethod
    def read(cls, path: Path) -> Secrets:
        (signing, hpke, verify), (leader,) = keys.kept(path, ("signing", "hpke", "verify"), ("leader",))
        pair = Ed25519PrivateKey.from_private_bytes(signing), X25519PrivateKey.from_private_bytes(hpke)
        return cls(*pair, verify, leader)

    def keep(self, path: Path) -> None:
        pair = {"signing": self.signing.private_bytes_raw(), "hpke": self.hpke.private_bytes_raw()}
        keys.keep(path, {**pair, "verify": self.verify}, {"leader": self.leader})

    @property
    def public(self) -> bytes:
        return self.signing.public_key().public_bytes_raw()

    def admits(self, role: Role, token: str) -> bool:
        return role == "leader" and keys.among(self.leader, token)


@dataclass(frozen=True)
class Begun:
    """What a new helper tells its leader: public lines for its charter, and a secret for its owner's eyes only."""

    url: str
    key: str
    hpke: str
    secret: str

    @property
    def lines(self) -> str:
        return f'[helper]\nurl = "{self.url}"\nkey = "{self.key}"\nhpke = "{self.hpke}"\n'


def begin(path: Path | str) -> Begun:
    """Begin the helper of a TOML file: its keys and its store. Its log begins when a leader comes."""
    place, secret = Place.read(path), secrets.token_urlsafe(SECRET_BYTES)
    made = Secrets.fresh(secret)
    party.begin(place, made.keep, HelperStore)
    return Begun(place.url, made.public.hex(), made.hpke.public_key().public_bytes_raw().hex(), secret)


# Its store ----------------------------------------------------------------------------------------------------------


class HelperTransaction(LogTransaction):
    def head(self, epoch: int) -> bytes | None:
        """Of the announcement that the epoch was first asked about with."""
        row = self._db.execute("SELECT head FROM task WHERE epoch = ?", (epoch,)).fetchone()
        return None if row is None else row[0]

    def latest(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(epoch), 0) FROM task").get)

    def begin(self, epoch: int, head: bytes, total: bytes) -> None:
        """Begin an epoch. The leader has gone on, and what it was answered before is of no more use."""
        self._db.execute("INSERT INTO task VALUES (?, ?, ?)", (epoch, head, total))
        self._db.execute("DELETE FROM report WHERE epoch < ?", (epoch,))

    def total(self, epoch: int) -> bytes:
        found: bytes = self._db.execute("SELECT total FROM task WHERE epoch = ?", (epoch,)).get
        return found

    def keep(self, epoch: int, total: bytes | None) -> None:
        self._db.execute("UPDATE task SET total = ? WHERE epoch = ?", (total, epoch))

    def count(self, epoch: int) -> int:
        return int(self._db.execute("SELECT count(*) FROM report WHERE epoch = ?", (epoch,)).get)

    def answered(self, epoch: int, nonces: Sequence[bytes]) -> dict[bytes, bytes | None]:
        one = "SELECT nonce, message FROM report WHERE epoch = ? AND nonce = ?"
        rows = self._db.executemany(one, ((epoch, nonce) for nonce in nonces))
        return dict(rows)

    def answer(self, epoch: int, messages: Mapping[bytes, bytes | None]) -> None:
        rows = ((epoch, nonce, message) for nonce, message in messages.items())
        self._db.executemany("INSERT INTO report VALUES (?, ?, ?)", rows)


class HelperStore(LogStore[HelperTransaction]):
    """One sum per epoch and one answer per report are the database's own law.

    A task's `total` is NULL once it is published; `message` is NULL where a report was refused.
    """

    kind = HelperTransaction
    schema = f"""{LOG}
CREATE TABLE task (epoch INTEGER PRIMARY KEY, head BLOB NOT NULL, total BLOB) STRICT;
CREATE TABLE report (
    epoch INTEGER NOT NULL, nonce BLOB NOT NULL, message BLOB, PRIMARY KEY (epoch, nonce)
) STRICT, WITHOUT ROWID;
"""
    probe = "SELECT epoch FROM log LIMIT 1; SELECT total FROM task LIMIT 1; SELECT message FROM report LIMIT 1"


# The helper ---------------------------------------------------------------------------------------------------------


class Helper(Party[Secrets, HelperTransaction, Joined]):
    """A `Link` whose answers last."""

    def __init__(
        self,
        own: Secrets,
        store: HelperStore,
        anchor: Anchor,
        epsilon_at_most: float,
        *,
        noise: NoiseSource | None = None,
    ) -> None:
        super().__init__(own, store, anchor, Joined.from_event)
        self._most = epsilon_at_most
        self._noise = NoiseSource.secure() if noise is None else noise

    @classmethod
    def open(cls, path: Path | str, **options: Any) -> Helper:
        """The helper of a TOML file, as it was left; refused where that is not what was published."""
        place = Place.read(path)
        own, store = Secrets.read(place.keys), HelperStore(place.database)
        try:
            return cls(own, store, Anchor(place.store.anchor), place.epsilon_at_most, **options)
        except BaseException:
            store.close()
            raise

    # What may be asked ----------------------------------------------------------------------------------------------

    def joined(self, opening: Entry) -> Entry:
        """Help the deployment whose log begins with this entry, and no other from then on."""
        told = joined_by(opening, self.secrets.public)
        if told.charter.helper is None or told.charter.helper.hpke != self._hpke:
            raise Forged("the charter names another key to seal shares with")
        if not told.charter.epsilon <= self._most:
            raise Forged(f"the charter's epsilon is more than the {self._most:g} that this helper stands for")
        return self._join(told)

    def verified(self, announced: Entry, questions: Sequence[Question]) -> list[bytes | None]:
        """The answer to a nonce never changes, whatever else is asked with it; after the sum no new one is given."""
        nonces = [question.nonce for question in questions]
        if len(set(nonces)) < len(nonces):
            raise Forged("two questions have one nonce")
        with self._alone:
            task = self._task(announced)
            with self._store.writing() as transaction:
                over = self._begun(transaction, task, announced)
                if task.epoch < transaction.latest():
                    raise Settled("the leader has gone on to another epoch")
                known = transaction.answered(task.epoch, nonces)
                if not over:
                    known |= self._answered(
                        transaction, task, [each for each in questions if each.nonce not in known]
                    )
            return [known.get(nonce) for nonce in nonces]

    def finished(self, announced: Entry) -> Entry:
        """The one entry with the sum of an epoch: written with the end of all that the epoch has left here."""
        with self._alone:
            task = self._task(announced)
            with self._store.writing() as transaction:
                if not self._begun(transaction, task, announced):
                    width, share = scale(self._leader.charter), transaction.total(task.epoch)
                    values = noised(task.encoder.vdaf, share, width, self._noise)
                    entry = self._appended(transaction, Shared(task.epoch, task.encoder.task, values), task.epoch)
                    transaction.keep(task.epoch, None)
                else:
                    entry = self.entries[task.epoch]
            if len(self.entries) == task.epoch:
                self._publish(entry)
            return entry

    # How ------------------------------------------------------------------------------------------------------------

    @property
    def _hpke(self) -> str:
        return self.secrets.hpke.public_key().public_bytes_raw().hex()

    def _task(self, announced: Entry) -> Task:
        """What an announcement asks for, if its turn has come. Epoch e is entry e of this log."""
        task = Task.of(announced, self._leader)
        if task.epoch > len(self.entries):
            raise Settled("an epoch before this one has not ended")
        return task

    def _begun(self, transaction: HelperTransaction, task: Task, announced: Entry) -> bool:
        """Whether the sum is out. The first announcement of an epoch is the only one."""
        known = transaction.head(task.epoch)
        if known is None:
            transaction.begin(task.epoch, announced.head, task.encoder.vdaf.aggregate([]))
        elif known != announced.head:
            raise Forged("the leader has announced this epoch in another way before")
        return task.epoch < len(self.entries)

    def _answered(
        self, transaction: HelperTransaction, task: Task, questions: Sequence[Question]
    ) -> dict[bytes, bytes | None]:
        """Verify reports, add up the shares of those that are one, and remember every answer."""
        if not questions:
            return {}
        if transaction.count(task.epoch) + len(questions) > task.size:
            raise Forged("there are more reports than the epoch has places")
        found = {each.nonce: task.answer(self.secrets.verify, self.secrets.hpke, each) for each in questions}
        shares = [answer[1] for answer in found.values() if answer is not None]
        transaction.keep(task.epoch, task.encoder.vdaf.aggregate([transaction.total(task.epoch), *shares]))
        messages = {nonce: None if answer is None else answer[0] for nonce, answer in found.items()}
        transaction.answer(task.epoch, messages)
        return messages
