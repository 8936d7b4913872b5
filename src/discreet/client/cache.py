"""What a device remembers, on disk before anything is sent: whom it talks to, what it was told, who has reported."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from discreet.device import Entry, Refused

#: Announcements kept: tickets of the one before last are out of date.
KEPT = 8
_BASE = """
PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON;
CREATE TABLE IF NOT EXISTS opening (one INTEGER PRIMARY KEY CHECK (one = 1), entry TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS announcement (number INTEGER PRIMARY KEY, entry TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS report (user BLOB PRIMARY KEY, id TEXT, ticket BLOB, payload BLOB, ready INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class Pending:
    """A report that has not been acknowledged."""

    user: str
    ticket: bytes
    payload: bytes


class Cache:
    """A folder of one deployment: `client.db`, and `evidence/` with signed entries that contradict each other.

    Of a user whose report has arrived only the hash of her id stays.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._base = sqlite3.connect(
            self.folder / "client.db", timeout=30.0, isolation_level=None, check_same_thread=False
        )
        self._base.executescript(_BASE)

    def close(self) -> None:
        with self._lock:
            self._base.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    def _entries(self, question: str) -> list[Entry]:
        with self._lock:
            rows = self._base.execute(question).fetchall()
        return [Entry.from_json(json.loads(row[0])) for row in rows]

    # The deployment -------------------------------------------------------------------------------------------------

    @property
    def opening(self) -> Entry | None:
        """The first entry of the log: it names the charter and the key that signs."""
        return next(iter(self._entries("SELECT entry FROM opening")), None)

    def pin(self, entry: Entry) -> None:
        with self._writing() as base:
            base.execute("INSERT OR IGNORE INTO opening VALUES (1, ?)", (json.dumps(entry.to_json()),))

    @property
    def announcements(self) -> list[Entry]:
        """Those seen, the newest first."""
        return self._entries("SELECT entry FROM announcement ORDER BY number DESC")

    def saw(self, entry: Entry) -> None:
        with self._writing() as base:
            row = entry.number, json.dumps(entry.to_json())
            base.execute("INSERT OR IGNORE INTO announcement VALUES (?, ?)", row)
            base.execute(
                "DELETE FROM announcement WHERE number <= "
                "(SELECT number FROM announcement ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (KEPT,),
            )

    def accuse(self, *entries: Entry) -> Path:
        """Keep signed entries that no honest deployment signs together."""
        folder = self.folder / "evidence"
        folder.mkdir(exist_ok=True)
        for entry in entries:
            path = folder / f"{entry.number}-{entry.name}.json"
            with path.open("w") as file:
                json.dump(entry.to_json(), file)
                file.flush()
                os.fsync(file.fileno())
        return folder

    # Reports --------------------------------------------------------------------------------------------------------

    def reported(self, user: str) -> bool:
        with self._lock:
            return bool(self._base.execute("SELECT 1 FROM report WHERE user = ?", (_hash(user),)).fetchone())

    def claim(self, user: str, ticket: bytes, payload: bytes, ready: bool) -> None:
        """Take note of the one report of this user before it is sent; the second time it is refused.

        `ready`: whether it may be sent right away.
        """
        with self._writing() as base:
            row = _hash(user), user, ticket, payload, ready
            if base.execute("INSERT OR IGNORE INTO report VALUES (?, ?, ?, ?, ?)", row).rowcount != 1:
                raise Refused("this user has already reported to this deployment; a second time would cost epsilon")

    def pending(self, most: int, ready: bool = True) -> list[Pending]:
        """Reports to be sent: those that are ready, or all."""
        with self._lock:
            question = "SELECT id, ticket, payload FROM report WHERE payload IS NOT NULL AND ready >= ? LIMIT ?"
            return [Pending(*row) for row in self._base.execute(question, (ready, most))]

    def ready(self, user: str) -> None:
        with self._writing() as base:
            base.execute("UPDATE report SET ready = 1 WHERE user = ?", (_hash(user),))

    def settle(self, user: str) -> None:
        """The report has arrived, or never will: only that there was one is remembered."""
        with self._writing() as base:
            base.execute("UPDATE report SET id = NULL, ticket = NULL, payload = NULL WHERE user = ?", (_hash(user),))


def _hash(user: str) -> bytes:
    return hashlib.sha256(user.encode()).digest()
