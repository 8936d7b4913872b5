"""The store of several hosts: PostgreSQL, one writer at a time, raw items encrypted under a key that is not in it.

PostgreSQL cannot forget: a row that was erased stays in its files, its write-ahead log, its replicas and its backups
for as long as these please. So a raw item is encrypted (AES-256-GCM) under the key of its epoch, which is a file in a
folder that all workers share, outside the database; when the epoch is released the file is removed, and what is left
of its items says nothing. The limit: whoever copied both that folder and the database while the epoch was open can
read them, and a file system may keep the blocks of a removed file. What is not encrypted: who has a ticket (a keyed
hash), of which epoch, until when, and whether she has reported, in how many bytes, which old rows keep saying.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from discreet.device.announcements import Entry
from discreet.live.store import Changes, Place, StoreFailed, released_epoch, sync_folder, written

#: Whoever holds this lock writes.
LOCK = int.from_bytes(b"discreet", "big") >> 1
NONCE_BYTES = 12
SCHEMA = (
    """CREATE TABLE log (
        number bigint PRIMARY KEY, previous bytea NOT NULL, body bytea NOT NULL, signature bytea NOT NULL,
        released bigint UNIQUE)""",
    """CREATE TABLE ticket (
        "user" bytea PRIMARY KEY, epoch bigint NOT NULL, slot bigint NOT NULL, expires_ms bigint NOT NULL,
        item bytea, UNIQUE (epoch, slot))""",
)
#: Seconds until a connection must stand, and for which another writer may be planning.
SECONDS, PATIENCE = 10, 120


class EpochKeys:
    """A folder with one key per open epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[int, AESGCM] = {}

    def _path(self, epoch: int) -> Path:
        return self.folder / f"{epoch}.key"

    def get(self, epoch: int, *, make: bool = False) -> AESGCM:
        """The key of an epoch. It is durable before anything is encrypted under it."""
        if epoch not in self._known:
            if make and not self._path(epoch).exists():
                with suppress(FileExistsError):  # another worker was faster
                    written(self._path(epoch), AESGCM.generate_key(256), replace=False)
            try:
                self._known[epoch] = AESGCM(self._path(epoch).read_bytes())
            except (OSError, ValueError) as error:
                raise StoreFailed(
                    f"the key of epoch {epoch} cannot be read; its items are lost without it"
                ) from error
        return self._known[epoch]

    def remove(self, through: int) -> None:
        """Remove the keys of the epochs up to this one; another worker may just have made a later one."""
        try:
            gone = [path for path in self.folder.glob("*.key") if int(path.stem) <= through]
            for path in gone:
                path.unlink(missing_ok=True)
            if gone:
                sync_folder(self.folder)
        except (OSError, ValueError) as error:
            raise StoreFailed("the keys of epochs cannot be removed") from error
        self._known = {epoch: key for epoch, key in self._known.items() if epoch > through}


class PostgresStore:
    """A connection for one thread at a time."""

    shared = True

    def __init__(self, url: str, keys: Path, *, create: bool = False) -> None:
        self._keys = EpochKeys(keys)
        try:
            self._db = psycopg.connect(url, autocommit=True, connect_timeout=SECONDS)
        except psycopg.Error as error:  # its words may hold the password
            raise ValueError(f"the database of store.url cannot be reached ({type(error).__name__})") from None
        try:
            self._prepare(keys, create)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, keys: Path, create: bool) -> None:
        try:
            # A commit that is acknowledged is on the disk, whatever the server's own settings say.
            self._db.execute("SET synchronous_commit = on")
            self._db.execute(f"SET lock_timeout = '{PATIENCE}s'")
            if self._db.execute("SHOW fsync").fetchone() != ("on",):
                raise ValueError("the database runs with fsync off and would lose what it acknowledges; turn it on")
            if create:
                self._create(keys)
            self._db.execute("SELECT number, released FROM log LIMIT 1")
            self._db.execute("SELECT item FROM ticket LIMIT 1")
        except psycopg.errors.DuplicateTable:
            raise ValueError("the database holds a deployment already; it is not replaced") from None
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            raise ValueError("the database holds no deployment; begin it with discreet deploy init") from None
        except psycopg.Error as error:
            raise ValueError(f"the database of store.url cannot be used ({type(error).__name__})") from None
        if not keys.is_dir():
            raise ValueError(f"there is no folder {keys} for the keys of epochs, which all workers share")

    def _create(self, keys: Path) -> None:
        with self._db.transaction():
            for statement in SCHEMA:
                self._db.execute(statement)
        try:
            os.makedirs(keys, mode=0o700, exist_ok=True)
            sync_folder(keys.parent)
        except OSError as error:
            raise StoreFailed(f"{keys} cannot be created: {error.strerror}") from error

    @contextmanager
    def writing(self) -> Iterator[PostgresTransaction]:
        try:
            with self._db.transaction():
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                yield PostgresTransaction(self._db, self._keys)
        except psycopg.Error as error:
            raise StoreFailed(f"the store failed ({type(error).__name__})") from None

    def erased(self, through: int) -> None:
        self._keys.remove(through)

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        self._db.close()


class PostgresTransaction:
    def __init__(self, db: psycopg.Connection[Any], keys: EpochKeys) -> None:
        self._db, self._keys = db, keys

    def length(self) -> int:
        return int(self._one("SELECT coalesce(max(number), -1) + 1 FROM log")[0])

    def _one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        return self._db.execute(query.encode(), values).fetchone()

    def entries(self, start: int) -> list[Entry]:
        chosen = "SELECT number, previous, body, signature FROM log WHERE number >= %s ORDER BY number"
        return [Entry(*row) for row in self._db.execute(chosen, (start,))]

    def outs(self, epochs: Iterable[int]) -> dict[int, tuple[int, int]]:
        last = "SELECT slot + 1, expires_ms FROM ticket WHERE epoch = %s ORDER BY slot DESC LIMIT 1"
        found = ((epoch, self._one(last, (epoch,))) for epoch in epochs)
        return {epoch: (row[0], row[1]) for epoch, row in found if row is not None}

    def held(self, users: Collection[bytes]) -> dict[bytes, Place]:
        if not users:
            return {}
        chosen = 'SELECT "user", epoch, slot, expires_ms, item IS NOT NULL FROM ticket WHERE "user" = ANY(%s)'
        rows = self._db.execute(chosen, (list(users),))
        return {row[0]: Place(*row) for row in rows}

    def items(self, epoch: int) -> Iterator[bytes]:
        chosen = 'SELECT "user", item FROM ticket WHERE epoch = %s AND item IS NOT NULL ORDER BY slot'
        with self._db.cursor(name="items") as rows:
            for user, item in rows.execute(chosen, (epoch,)):
                yield self._keys.get(epoch).decrypt(item[:NONCE_BYTES], item[NONCE_BYTES:], user)

    def write(self, changes: Changes) -> None:
        with self._db.cursor() as cursor:
            if changes.places:
                rows = [(p.user, p.epoch, p.slot, p.expires_ms) for p in changes.places.values()]
                cursor.executemany(
                    'INSERT INTO ticket ("user", epoch, slot, expires_ms) VALUES (%s, %s, %s, %s)', rows
                )
            if changes.items:
                kept = [(self._sealed(user, *item), user) for user, item in changes.items.items()]
                cursor.executemany('UPDATE ticket SET item = %s WHERE "user" = %s AND item IS NULL', kept)
            for entry in changes.entries:
                row = (entry.number, entry.previous, entry.body, entry.signature, released_epoch(entry))
                cursor.execute("INSERT INTO log VALUES (%s, %s, %s, %s, %s)", row)
            for epoch in changes.released:
                cursor.execute("UPDATE ticket SET item = NULL WHERE epoch = %s AND item IS NOT NULL", (epoch,))
            if changes.retired:
                cursor.execute("DELETE FROM ticket")

    def _sealed(self, user: bytes, epoch: int, item: bytes) -> bytes:
        """Under a fresh nonce: a transaction that failed may have left another text under this key."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._keys.get(epoch, make=True).encrypt(nonce, item, user)
