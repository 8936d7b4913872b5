"""Folders that are there in full or not at all."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Of renameat2, Linux: relative to the working directory; both names keep existing.
AT_FDCWD, RENAME_EXCHANGE = -100, 2


@contextmanager
def completed(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """A place to write some of `names` to; they come to `folder` when all are written, and not before.

    A new folder, or one that holds nothing but `names`, is put in place at once; if the process is killed, the old
    one or the new one is there, and what is left under another name is removed the next time. In a folder that holds
    other files too (or is the working directory) ours are replaced one by one, in the order of `names`.
    """
    folder = folder.resolve()
    tidy(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    at_once = not folder.exists() or _replaceable(folder, names)
    part = (folder.parent if at_once else folder) / f".{folder.name}.{secrets.token_hex(4)}.part"
    part.mkdir()
    lock = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # says, until the process ends, that somebody is writing here
        yield part
        if at_once:
            _put(part, folder)
        else:
            for name in names:
                if (part / name).exists():
                    os.replace(part / name, folder / name)
                else:
                    (folder / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(lock)


def tidy(folder: Path) -> None:
    """Remove what processes that were killed have left; an old folder comes back where there is no new one."""
    for place in (folder.parent, folder):
        for found in sorted(place.iterdir()) if place.is_dir() else ():
            if not re.fullmatch(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}\.(part|old)", found.name) or _busy(
                found
            ):
                continue
            if found.suffix == ".old" and not folder.exists():
                os.rename(found, folder)
            else:
                shutil.rmtree(found, ignore_errors=True)


def _busy(place: Path) -> bool:
    try:
        lock = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _replaceable(folder: Path, names: Sequence[str]) -> bool:
    return (
        all(path.name in names and path.is_file() for path in folder.iterdir())
        and os.access(folder.parent, os.W_OK | os.X_OK)
        and not folder.is_mount()
        and not Path.cwd().is_relative_to(folder)
    )


def _put(part: Path, folder: Path) -> None:
    if not folder.exists():
        os.rename(part, folder)
        return
    shutil.copymode(folder, part)
    if _exchanged(part, folder):
        return
    old = part.with_suffix(".old")
    try:
        os.rename(folder, old)
        os.rename(part, folder)
    except BaseException:
        if old.exists() and not folder.exists():
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two folders in one step, where the system can."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    if exchange is None:
        return False
    return bool(exchange(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)
