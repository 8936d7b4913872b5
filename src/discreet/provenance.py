"""Where a result comes from: the code, the libraries, the command and the time."""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

from discreet import __version__

#: What `facts` says, in its order.
FACTS = ("version", "source", "python", "numpy", "numba", "command", "time")
PACKAGE = Path(__file__).resolve().parent


@cache
def source_digest() -> str:
    """SHA-256 of all Python files of the package, read once per process: another digest is another program."""
    return digest_of((path.relative_to(PACKAGE).as_posix(), path.read_bytes()) for path in PACKAGE.rglob("*.py"))


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """SHA-256 over names and contents, by name; each is preceded by its length, so that no two lists share a text."""
    state = hashlib.sha256()
    for name, content in sorted(files):
        for part in (name.encode(), content):
            state.update(len(part).to_bytes(8, "big"))
            state.update(part)
    return state.hexdigest()


@cache
def version_of(package: str) -> str:
    """Looked up once, for it is read from a file."""
    return version(package)


def facts() -> dict[str, str]:
    """What to write beside a result so that it can be made again."""
    return {
        "version": __version__,
        "source": source_digest(),
        "python": platform.python_version(),
        "numpy": version_of("numpy"),
        "numba": version_of("numba"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
