"""Who was learned from, so that nobody is both learned from and asked about: a file that its holder keeps.

Beside the ledger of a log lies, for every fit of declared columns, a file of keyed hashes of the identifiers in the
log: 32 random bytes, then the first 16 bytes of HMAC-SHA256(these, identifier) of everybody, sorted. It is as secret
as the log: whoever has it can test whether a name is in it. Nothing of it is in a certificate. It tells whether
somebody with the same identifier was learned from; not whether one person has two, and nothing once it is gone.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from discreet.people.counting import _who_of
from discreet.people.stays import DeclaredLog

SUFFIX = ".people"
KEY_BYTES, HASH_BYTES = 32, 16
CHECKED = "nobody here was learned from, by the identifiers in both logs"
UNCHECKED = "that nobody here was learned from was declared and not checked: who was is not recorded here"
SAME = "this is the log that the policy was learned from; give one of other people"
SOME = "somebody in this log was also learned from; give a log of other people"


def hashes(key: bytes, people: Iterable[str]) -> list[bytes]:
    return sorted(hmac.digest(key, person.encode(), "sha256")[:HASH_BYTES] for person in people)


def place(ledger: Path, serial: str) -> Path:
    """Where the people of a fit are kept."""
    return ledger.with_name(f"{ledger.name}.{serial}{SUFFIX}")


def keep(ledger: Path, serial: str, people: Iterable[str]) -> None:
    """Write down who was learned from, readable by the holder of the data alone."""
    key = secrets.token_bytes(KEY_BYTES)
    file = os.open(place(ledger, serial), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(key + b"".join(hashes(key, people)))


def records(folders: Iterable[Path], serial: str) -> list[Path]:
    """The files about a fit in these folders."""
    return sorted({path for folder in folders for path in folder.glob(f"*.{serial}{SUFFIX}") if path.is_file()})


def known(record: Path, people: Iterable[str]) -> bool:
    """Whether anybody of these was learned from."""
    content = record.read_bytes()
    if len(content) < KEY_BYTES or (len(content) - KEY_BYTES) % HASH_BYTES:
        raise ValueError(f"{record} is no record of who was learned from")
    key, rest = content[:KEY_BYTES], content[KEY_BYTES:]
    there = {rest[i : i + HASH_BYTES] for i in range(0, len(rest), HASH_BYTES)}
    return not there.isdisjoint(hashes(key, people))


def people_of(log: DeclaredLog) -> list[str]:
    """The identifiers in a log, as the reader tells people apart; whole numbers are the same with and without .0."""
    name = log.roles["user"]
    kind, user = log.kinds[name], log.engine.quoted(name)
    who = _who_of(f"CAST({user} AS STRING)" if kind == "text" else user, kind)
    found = log.engine.fetch(f"SELECT DISTINCT {who} AS person FROM {log.engine.name}").column(0).to_pylist()
    return [_text(person) for person in found if person is not None]


def _text(person: object) -> str:
    return str(int(person)) if isinstance(person, (int, float)) and person == int(person) else str(person)
