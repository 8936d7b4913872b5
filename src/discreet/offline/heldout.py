"""Who was learned from, so that nobody is both learned from and asked about: a file that its holder keeps.

Beside the ledger of a log lies, for every fit of declared columns, a file of keyed hashes of the identifiers in the
log: 32 random bytes, then the first 16 bytes of HMAC-SHA256(these, identifier) of everybody, sorted. It is as secret
as the log: whoever has it can test whether a name is in it. Nothing of it is in a certificate. It tells whether
somebody with the same identifier was learned from; not whether one person has two, and nothing once it is gone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from discreet.people.reading import who_of
from discreet.people.stays import DeclaredLog

SUFFIX = ".people"
KEY_BYTES, HASH_BYTES = 32, 16
PORTION = 1 << 16
Halves = NDArray[np.uint64]
CHECKED = "nobody here was learned from, by the identifiers in both logs"
UNCHECKED = "that nobody here was learned from was declared and not checked: who was is not recorded here"
SAME = "this is the log that the policy was learned from; give one of other people"
SOME = "somebody in this log was also learned from; give a log of other people"


def hashes(key: bytes, people: Iterable[str]) -> Halves:
    """(n, 2) The halves of everybody's hash, in order. HMAC goes on from two states that are made once."""
    padded = key.ljust(64, b"\0")
    inner, outer = (sha256(bytes(byte ^ mask for byte in padded)) for mask in (0x36, 0x5C))

    def hashed(person: str) -> bytes:
        within, around = inner.copy(), outer.copy()
        within.update(person.encode())
        around.update(within.digest())
        return around.digest()[:HASH_BYTES]

    found = np.frombuffer(b"".join(map(hashed, people)), dtype=">u8").reshape(-1, 2)
    high, low = found.astype(np.uint64).T
    return np.asarray(found[np.lexsort((low, high))])


def place(ledger: Path, serial: str) -> Path:
    """Where the people of a fit are kept."""
    return ledger.with_name(f"{ledger.name}.{serial}{SUFFIX}")


def keep(ledger: Path, serial: str, people: Iterable[str]) -> None:
    """Write down who was learned from, readable by the holder of the data alone."""
    key = secrets.token_bytes(KEY_BYTES)
    file = os.open(place(ledger, serial), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(key + hashes(key, people).tobytes())


def records(folders: Iterable[Path], serial: str) -> list[Path]:
    """The files about a fit in these folders."""
    return sorted({path for folder in folders for path in folder.glob(f"*.{serial}{SUFFIX}") if path.is_file()})


def known(record: Path, people: Iterable[str]) -> bool:
    """Whether anybody of these was learned from."""
    content = record.read_bytes()
    if len(content) < KEY_BYTES or (len(content) - KEY_BYTES) % HASH_BYTES:
        raise ValueError(f"{record} is no record of who was learned from")
    there = np.frombuffer(content, dtype=">u8", offset=KEY_BYTES).reshape(-1, 2).astype(np.uint64)
    asked = hashes(content[:KEY_BYTES], people).astype(np.uint64)
    both = [each[np.isin(each[:, 0], other[:, 0])].tolist() for each, other in ((there, asked), (asked, there))]
    return not set(map(tuple, both[0])).isdisjoint(map(tuple, both[1]))


def people_of(log: DeclaredLog) -> Iterator[str]:
    """The identifiers in a log, as the reader tells people apart; whole numbers are the same with and without .0."""
    name = log.roles["user"]
    kind, user = log.kinds[name], log.engine.quoted(name)
    who = who_of(f"CAST({user} AS STRING)" if kind == "text" else user, kind)
    found = log.engine.fetch(f"SELECT DISTINCT {who} AS person FROM {log.engine.name}")
    for batch in found.to_batches(PORTION):  # as objects of this language they take ten times the memory
        yield from (_text(person) for person in batch.column(0).to_pylist() if person is not None)


def _text(person: object) -> str:
    return str(int(person)) if isinstance(person, (int, float)) and person == int(person) else str(person)
