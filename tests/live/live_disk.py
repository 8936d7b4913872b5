"""A disk that writes down what is done to it, so that its power can be cut at any moment; and one that fails.

Only what was synced is on a disk for certain. Of everything since, sectors of 512 bytes are there or not, each for
itself; a file that was never synced may be missing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from discreet.live import sqlite, store
from discreet.live.sqlite import SqliteStore

SECTOR = 512


@dataclass(frozen=True)
class Step:
    """One thing done to a file: write, truncate, delete, sync, replace (at once), or folder (its sync)."""

    kind: str
    file: str
    offset: int = 0
    data: bytes = b""


@dataclass
class Disk:
    """What was done, in order; `fails` says which step fails instead, by its number, and how."""

    steps: list[Step] = field(default_factory=list)
    fails: Callable[[int, Step], apsw.Error | None] = lambda number, step: None

    def does(self, step: Step) -> None:
        failure = self.fails(len(self.steps), step)
        self.steps.append(step)
        if failure is not None:
            raise failure

    def after(self, cut: int, rng: random.Random) -> dict[str, bytes]:
        """Files as they may be when the power goes after so many steps."""
        files: dict[str, bytes | None] = {}
        pending: dict[str, list[Step]] = {}
        for step in self.steps[:cut]:
            if step.kind == "folder":  # names are settled: what was deleted stays so
                for name, steps in pending.items():
                    if any(each.kind == "delete" for each in steps):
                        files[name] = _applied(files.get(name), steps, lambda: True)
                        steps.clear()
            elif step.kind == "sync":
                files[step.file] = _applied(files.get(step.file, b""), pending.pop(step.file, []), lambda: True)
            else:
                pending.setdefault(step.file, []).append(step)
        share = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        for name, steps in pending.items():
            files[name] = _applied(files.get(name), steps, lambda: rng.random() < share)
        return {name: content for name, content in files.items() if content is not None}


def _applied(content: bytes | None, steps: list[Step], chosen: Callable[[], bool]) -> bytes | None:
    """A file after those steps, and of its writes those sectors, that were chosen; None: there is no such file."""
    now = content
    for step in steps:
        if step.kind == "write":
            for begin, end in _sectors(step):
                if chosen():
                    now = (now or b"").ljust(begin, b"\0")
                    now = now[:begin] + step.data[begin - step.offset : end - step.offset] + now[end:]
        elif chosen():
            now = {"truncate": (now or b"")[: step.offset], "delete": None, "replace": step.data}[step.kind]
    return now


def _sectors(step: Step) -> Iterator[tuple[int, int]]:
    end = step.offset + len(step.data)
    cuts = [step.offset, *range((step.offset // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return itertools.pairwise(cuts)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk, self._name = disk, Path(name if isinstance(name, str) else name.filename()).name

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.does(Step("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._disk.does(Step("truncate", self._name, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._disk.does(Step("sync", self._name))
        super().xSync(flags)


class _Files(apsw.VFS):
    def __init__(self, disk: Disk, name: str) -> None:
        super().__init__(name, "")
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._disk, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        self._disk.does(Step("delete", Path(name).name))
        super().xDelete(name, sync)


_numbers = itertools.count()
#: Garbage collection must not take them apart before the last connection is closed.
_kept: list[_Files] = []


@contextmanager
def recorded(disk: Disk) -> Iterator[None]:
    """Stores that are opened meanwhile are on this disk, and so is what is written whole: the anchor."""
    name = f"recording-{next(_numbers)}"
    files = _Files(disk, name)
    _kept.append(files)
    usual, durably = SqliteStore.__init__, store.written

    def opened(self: SqliteStore, path: Path, *, create: bool = False, vfs: str | None = None) -> None:
        usual(self, path, create=create, vfs=name)

    def written(path: Path, content: bytes, *, replace: bool = True) -> None:
        disk.steps.append(Step("replace", path.name, data=content))
        durably(path, content, replace=replace)
        disk.steps.append(Step("sync", path.name))

    def synced(path: Path) -> None:
        disk.steps.append(Step("folder" if path.is_dir() else "sync", path.name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteStore, "__init__", opened)
        patch.setattr(store, "written", written)
        patch.setattr(sqlite, "sync_folder", synced)
        patch.setattr(sqlite, "sync_file", synced)
        yield
    files.unregister()
