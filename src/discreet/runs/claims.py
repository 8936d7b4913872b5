"""Who works on what in a folder that several processes share: one small file per piece of work.

A claim is made by creating its file, which succeeds for one process only. It ends with its process: on the same
machine that is seen at once (the process is gone, or its number belongs to another one by now), from elsewhere when
the file has not been touched for `STALE` seconds. Claims save work and guard nothing: results do not depend on who
computes them, and appear whole, so that two processes which both held a claim would write the same file twice.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

#: Seconds between two signs of life, and after how many of silence a claim from elsewhere counts for nothing.
BEAT, STALE = 20.0, 120.0


class Claims:
    """What this process has claimed in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.claim"

    def take(self, name: str) -> bool:
        """Whether the work is now ours."""
        path = self.path(name)
        if not self._created(path) and not (self._abandoned(path) and self._created(path)):
            return False
        with self._lock:
            self._held.add(name)
        return True

    def release(self, name: str) -> None:
        with self._lock:
            self._held.discard(name)
        self.path(name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the claims of the dead."""
        for path in self.folder.glob("*.claim"):
            self._abandoned(path)

    @contextmanager
    def kept(self) -> Iterator[Claims]:
        """Give signs of life, and release everything at the end."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(BEAT):
                with self._lock:
                    held = list(self._held)
                for name in held:
                    with suppress(OSError):
                        os.utime(self.path(name))

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()
            for name in list(self._held):
                with suppress(OSError):
                    self.release(name)

    def _created(self, path: Path) -> bool:
        try:
            _appear(path, json.dumps(_myself()))
        except FileExistsError:
            return False
        except FileNotFoundError:  # the folder; somebody who finished may remove it again at once
            self.folder.mkdir(parents=True, exist_ok=True)
            return self._created(path)
        return True

    def _abandoned(self, path: Path) -> bool:
        """Whether there is no claim any more: a dead process's is removed, while nobody else looks for the dead."""
        with _alone(self.folder):
            owner = _read(path)
            if owner is None:
                return True
            if _alive(*owner):
                return False
            path.unlink(missing_ok=True)
        return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process, and one thread of it, at a time; the lock ends with its holder."""
    try:
        door = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # then there are no claims either
        yield
        return
    try:
        fcntl.flock(door, fcntl.LOCK_EX)
        yield
    finally:
        os.close(door)


def _appear(path: Path, text: str) -> None:
    """Create a file with all that it says: who is killed meanwhile leaves no claim that nobody can read.

    Where there are no hard links it is there first and says it then.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        part.write_text(text)
        os.link(part, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        with path.open("x") as file:
            file.write(text)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Any], float] | None:
    """Whose claim it is (nobody's while it is being written), and its last sign of life; None: no claim."""
    try:
        touched, text = path.stat().st_mtime, path.read_text()
    except FileNotFoundError:
        return None
    try:
        return json.loads(text), touched
    except ValueError:
        return {}, touched


def _alive(owner: dict[str, Any], touched: float) -> bool:
    if owner.get("where") == _where() and isinstance(pid := owner.get("pid"), int):
        return _started(pid) == owner.get("started") is not None
    return time.time() - touched < STALE


@cache
def _where() -> str:
    """The machine, since its last start, and the space in which its process numbers have a meaning."""
    boot, space = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return f"{platform.node()} {boot} {space}".strip()


def _started(pid: int) -> str | None:
    """When a process was started, which tells it from a later one of the same number; None: there is none."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "alive"
    return "alive"


def _myself() -> dict[str, Any]:
    return {"where": _where(), "pid": os.getpid(), "started": _started(os.getpid())}
