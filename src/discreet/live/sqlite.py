"""The store of one host: SQLite, which is durable at every commit and forgets what is erased."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import apsw

from discreet.device.announcements import Entry
from discreet.live.store import Changes, Place, StoreFailed, released_epoch, sync_file, sync_folder

#: In other versions a reset of the write-ahead log can lose commits that were acknowledged.
SOUND = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
SETTINGS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA temp_store=MEMORY",  # no raw item in a temporary file
    "PRAGMA trusted_schema=OFF",
)
#: One release per epoch and one ticket per user are the database's own law.
SCHEMA = """
CREATE TABLE log (
    number INTEGER PRIMARY KEY, previous BLOB NOT NULL, body BLOB NOT NULL, signature BLOB NOT NULL,
    released INTEGER UNIQUE
) STRICT;
CREATE TABLE ticket (
    user BLOB PRIMARY KEY NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
    UNIQUE (epoch, slot)
) STRICT;
CREATE TABLE report0 (user BLOB PRIMARY KEY NOT NULL, item BLOB NOT NULL) STRICT;
CREATE TABLE report1 (user BLOB PRIMARY KEY NOT NULL, item BLOB NOT NULL) STRICT;
"""
BUSY_MS = 10_000


#: Reports of epochs with even and with odd numbers, of which at most one each is open. An epoch's are erased with the
#: whole table, so that all its pages become zeros: where rows are erased one by one, copies of them may stay behind
#: in pages whose rows had moved on, whatever `secure_delete` says.
REPORTS = ("report0", "report1")


def reports(epoch: int) -> str:
    """The table of an epoch's reports."""
    return REPORTS[epoch % 2]


def check_version(version: str) -> None:
    """Refuse a library that may lose what it has acknowledged."""
    found = tuple(int(part) for part in version.split("."))[:3]
    if found >= SOUND[0] or any(found[:2] == sound[:2] and found >= sound for sound in SOUND):
        return
    known = ", ".join(".".join(map(str, sound)) for sound in SOUND)
    raise ValueError(f"SQLite {version} can lose acknowledged commits; expected {known} or later of their lines")


class Database:
    """A connection for one thread at a time. `probe` fails on a file of another kind."""

    schema: ClassVar[str]
    probe: ClassVar[str]

    def __init__(self, path: Path, *, create: bool = False, vfs: str | None = None) -> None:
        check_version(apsw.sqlite_lib_version())
        self.path, self._waiting = path, False
        if create:
            self._create_file()
        elif not path.exists():
            raise ValueError(f"there is no store {path}; begin the deployment with discreet deploy init")
        try:
            self._db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
            self._db.set_busy_timeout(BUSY_MS)
            for setting in SETTINGS:
                self._db.execute(setting).fetchall()
            if create:
                self._db.execute(f"BEGIN IMMEDIATE; {self.schema} COMMIT")
                sync_folder(path.parent)
            self._db.execute(self.probe).fetchall()
        except (apsw.NotADBError, apsw.SQLError):
            raise ValueError(f"{path} is not the store of a deployment") from None
        except apsw.Error as error:
            raise StoreFailed(f"the store {path.name} cannot be opened ({type(error).__name__})") from error

    def _create_file(self) -> None:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise ValueError(f"{self.path} exists already; it is not replaced") from None
        except OSError as error:
            raise ValueError(f"{self.path} cannot be created: {error.strerror}") from None

    @contextmanager
    def begun(self) -> Iterator[apsw.Connection]:
        """One transaction, durable when the block has ended."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except apsw.Error as error:
            raise StoreFailed(f"the store failed ({type(error).__name__})") from error

    def erased(self, through: int = 0) -> None:
        """Move the write-ahead log into the database, where erased cells are zeros, and cut it off for good."""
        self._waiting = True
        self.tidy()

    def tidy(self) -> None:
        if not self._waiting:
            return
        try:
            self._db.set_busy_timeout(0)
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            sync_file(Path(f"{self.path}-wal"))  # else a power cut may bring it back, with all that was erased
            self._waiting = False
        except (apsw.BusyError, apsw.LockedError):
            pass  # somebody reads an older state; again later
        except (apsw.Error, OSError) as error:
            raise StoreFailed(f"the store failed ({type(error).__name__})") from error
        finally:
            self._db.set_busy_timeout(BUSY_MS)

    def close(self) -> None:
        try:
            self._db.close()
        except apsw.Error as error:
            raise StoreFailed(f"the store failed ({type(error).__name__})") from error


class SqliteStore(Database):
    shared = False
    schema = SCHEMA
    probe = (
        "SELECT number, released FROM log LIMIT 1; SELECT slot FROM ticket LIMIT 1; SELECT item FROM report1 LIMIT 1"
    )

    @contextmanager
    def writing(self) -> Iterator[SqliteTransaction]:
        with self.begun() as db:
            yield SqliteTransaction(db)


def entries_of(db: apsw.Connection, start: int) -> list[Entry]:
    """The log from there on."""
    chosen = "SELECT number, previous, body, signature FROM log WHERE number >= ? ORDER BY number"
    return [Entry(*row) for row in db.execute(chosen, (start,))]


class SqliteTransaction:
    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def length(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(number), -1) + 1 FROM log").get)

    def entries(self, start: int) -> list[Entry]:
        return entries_of(self._db, start)

    def outs(self, epochs: Iterable[int]) -> dict[int, tuple[int, int]]:
        last = "SELECT slot + 1, expires_ms FROM ticket WHERE epoch = ? ORDER BY slot DESC LIMIT 1"
        found = ((epoch, self._db.execute(last, (epoch,)).fetchone()) for epoch in epochs)
        return {epoch: (row[0], row[1]) for epoch, row in found if row is not None}

    def held(self, users: Collection[bytes]) -> dict[bytes, Place]:
        said = " OR ".join(f"EXISTS (SELECT 1 FROM {name} AS r WHERE r.user = t.user)" for name in REPORTS)
        one = f"SELECT user, epoch, slot, expires_ms, {said} FROM ticket AS t WHERE user = ?"
        rows = self._db.executemany(one, ((user,) for user in users))
        return {user: Place(user, epoch, slot, expires, bool(said)) for user, epoch, slot, expires, said in rows}

    def items(self, epoch: int) -> Iterator[bytes]:
        chosen = f"SELECT item FROM ticket JOIN {reports(epoch)} USING (user) WHERE epoch = ? ORDER BY slot"
        return (row[0] for row in self._db.execute(chosen, (epoch,)))

    def write(self, changes: Changes) -> None:
        if changes.places:
            rows = ((p.user, p.epoch, p.slot, p.expires_ms) for p in changes.places.values())
            self._db.executemany("INSERT INTO ticket VALUES (?, ?, ?, ?)", rows)
        for user, (epoch, item) in changes.items.items():
            self._db.execute(f"INSERT OR IGNORE INTO {reports(epoch)} VALUES (?, ?)", (user, item))
        for entry in changes.entries:
            row = (entry.number, entry.previous, entry.body, entry.signature, released_epoch(entry))
            self._db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", row)
        for epoch in changes.released:
            self._db.execute(f"DELETE FROM {reports(epoch)}")
        if changes.retired:
            for name in ("ticket", *REPORTS):
                self._db.execute(f"DELETE FROM {name}")
