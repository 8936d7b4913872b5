"""Which code made a result."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def source_digest() -> str:
    """SHA-256 over the relative paths and bytes of all Python files of the package, in order of their paths."""
    root = Path(__file__).parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda file: file.relative_to(root).as_posix()):
        name, text = path.relative_to(root).as_posix().encode(), path.read_bytes()
        for part in (name, text):
            found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
