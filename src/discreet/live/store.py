"""Where a deployment is kept: its public log, its vault, and the anchor that tells an old copy from the present one.

Both live in one database. *Log*: entries of the public hash chain. *Vault*: who has which ticket, and raw items of
open epochs only. Whoever writes does it in one transaction at a time, and shows nothing before it is committed and
the anchor has moved.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from discreet.device.announcements import Entry


class StoreFailed(Exception):
    """The store did not do what it was asked to, and nobody knows what of it is on the disk: end, and start again."""


class RolledBack(ValueError):
    """The store is older than what was published; to go on would release the same people twice."""


@dataclass(frozen=True)
class Place:
    """A user's ticket as the vault has it."""

    user: bytes
    epoch: int
    slot: int
    expires_ms: int
    reported: bool = False


@dataclass
class Changes:
    """What one transaction writes."""

    places: dict[bytes, Place] = field(default_factory=dict)  # new tickets, by user
    items: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)  # epoch and payload, by user
    entries: list[Entry] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.places or self.items or self.entries)

    @property
    def released(self) -> list[int]:
        """Epochs whose items are erased with it."""
        return [epoch for epoch in map(released_epoch, self.entries) if epoch is not None]

    @property
    def retired(self) -> bool:
        """Whether the whole vault is erased with it."""
        return any(entry.event["event"] == "retired" for entry in self.entries)


def released_epoch(entry: Entry) -> int | None:
    """The epoch that an entry releases."""
    event = entry.event
    return int(event["epoch"]) if event["event"] == "released" else None


class Transaction(Protocol):
    """What is read here stays true until the transaction ends: there is one writer at a time."""

    def length(self) -> int:
        """How many entries the log has."""
        ...

    def entries(self, start: int) -> list[Entry]: ...

    def outs(self, epochs: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Tickets out and the last expiry of these epochs; what has no tickets is left out."""
        ...

    def held(self, users: Collection[bytes]) -> Mapping[bytes, Place]: ...

    def items(self, epoch: int) -> Iterator[bytes]:
        """Raw items of an epoch, in the order of its slots."""
        ...

    def write(self, changes: Changes) -> None: ...


class Store(Protocol):
    shared: bool  # whether others may write to it, so that what was read before may be old

    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction, durable when the block has ended; `StoreFailed` when that is not known."""
        ...

    def erased(self, through: int) -> None:
        """Called after a commit, and at the start: nothing of the epochs up to this one may remain anywhere."""
        ...

    def tidy(self) -> None:
        """Called now and then: what `erased` could not do at once."""
        ...

    def close(self) -> None: ...


def open_store(url: str, keys: Path, *, create: bool = False) -> Store:
    """The store of a URL; `keys`: the folder of a shared store's epoch keys."""
    if url.startswith("sqlite:///"):
        from discreet.live.sqlite import SqliteStore

        return SqliteStore(Path(url.removeprefix("sqlite:///")), create=create)
    from discreet.live.postgres import PostgresStore

    return PostgresStore(url, keys, create=create)


# Files --------------------------------------------------------------------------------------------------------------


def sync_folder(folder: Path) -> None:
    """Make names durable: a file whose folder is not synced may be gone after a power cut."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Make what was done to a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def written(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file that only its owner reads, whole or not at all, and durably."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(name, path) if replace else os.link(name, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)
        sync_folder(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreFailed(f"{path.name} could not be written: {error.strerror}") from error


@dataclass(frozen=True)
class Anchor:
    """The number and head of the last entry that may have been published, on another volume than the store.

    It only moves forward, whoever writes it, and before the entry is shown to anybody.
    """

    path: Path

    def read(self) -> tuple[int, str] | None:
        try:
            content = self.path.read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the anchor {self.path} cannot be read") from error
        found = re.fullmatch("([0-9]{1,15}) ([0-9a-f]{64})\n", content)
        if found is None:
            raise ValueError(f"the anchor {self.path} does not hold the number and the head of an entry")
        return int(found[1]), found[2]

    def check(self, log: list[Entry]) -> None:
        """Refuse a log that lacks what was published."""
        known = self.read()
        if known is None:
            raise RolledBack(
                f"the anchor {self.path} is missing, so that an old copy of the store could not be told; put it "
                f"back, or write the number and the head of the last published entry into it"
            )
        number, head = known
        if number >= len(log) or log[number].name != head:
            raise RolledBack(
                f"the store does not hold entry {number} as it was published (it is an old copy, or another one); to "
                f"go on would release the same people twice; put the present store back"
            )

    def advance(self, entry: Entry) -> None:
        """Move to this entry, unless somebody else went further."""
        with self._alone():
            known = self.read()
            if known is None or known[0] < entry.number:
                written(self.path, f"{entry.number} {entry.name}\n".encode("ascii"))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StoreFailed(f"the folder of the anchor cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
