"""What a fitted policy promises to the people behind it, and whether the paper it is written on has been altered."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.offline.claimed import simulated, unprotected
from discreet.offline.claims import problems_of
from discreet.offline.folders import completed
from discreet.offline.page import page
from discreet.offline.wording import NOT_PRIVATE, SIMULATED
from discreet.policy import CSV, PARQUET, Policy
from discreet.privacy.accounting import Guarantee

if TYPE_CHECKING:  # loaded by those who sign or verify
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = "discreet certificate 2"
JSON, HTML, DIGESTS, SIGNATURE = "certificate.json", "certificate.html", "digests.json", "signature.json"
FILES = (PARQUET, CSV, JSON, HTML)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ledger_json(parts: Mapping[str, Guarantee]) -> list[dict[str, Any]]:
    """One line per noisy statistic and part of the users."""
    return [{"users": part, **entry.to_json()} for part, found in parts.items() for entry in found.entries]


# Writing ------------------------------------------------------------------------------------------------------------


def write(folder: Path, policy: Policy, certificate: Mapping[str, Any], key: Path | None = None) -> None:
    """The policy, its certificate for programs and for people, digests of all, and a signature of the digests.

    All of it or nothing: see `folders.completed`.
    """
    secret = check_folder(folder, key)
    try:
        with completed(folder, (*FILES, DIGESTS, SIGNATURE)) as part:
            policy.save(part)
            document = {**certificate, "digests": {name: digest(part / name) for name in (PARQUET, CSV)}}
            (part / JSON).write_text(dumped(document), encoding="utf-8")
            (part / HTML).write_text(page(document, policy), encoding="utf-8")
            digests = dumped({name: digest(part / name) for name in FILES})
            (part / DIGESTS).write_text(digests, encoding="utf-8")
            if secret is not None:
                (part / SIGNATURE).write_text(dumped(signature(secret, digests)), encoding="utf-8")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
        raise ValueError(f"{folder} cannot be written: {reason}") from None


def signature(secret: Ed25519PrivateKey, digests: str) -> dict[str, str]:
    public = secret.public_key().public_bytes_raw()
    return {
        "algorithm": "ed25519",
        "of": DIGESTS,
        "public_key": base64.b64encode(public).decode(),
        "signature": base64.b64encode(secret.sign(digests.encode())).decode(),
    }


def check_folder(folder: Path, key: Path | None = None) -> Ed25519PrivateKey | None:
    """Refuse, before any work is done, what could not be written or signed after it; the key if there is one."""
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir():
        raise ValueError(f"{folder} cannot be a folder, for {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"{folder} cannot be written: no permission for {above}")
    foreign = [name for name in FILES if (folder / name).exists()]
    if foreign and not (folder / DIGESTS).is_file():
        raise ValueError(f"{folder} holds a {foreign[0]} that is not of ours; give another folder")
    return None if key is None else private_key(key)


def dumped(document: Mapping[str, Any]) -> str:
    """As all documents of a folder are written."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def private_key(path: Path) -> Ed25519PrivateKey:
    """An Ed25519 key from an unencrypted PEM file."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition(".")[0]
        raise ValueError(f"{path} holds no readable private key: {reason}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} holds a {type(key).__name__}; expected an Ed25519 key")
    return key


# Reading ------------------------------------------------------------------------------------------------------------


#: What can go wrong in reading a document in which somebody else may have written anything.
UNREADABLE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
    OSError,
    csv.Error,
)


@dataclass(frozen=True)
class Verdict:
    """What `verify` found; `problems` is empty when everything agrees.

    `valid` is said only of a folder that was signed with a key somebody vouched for, by giving its public half.
    """

    problems: tuple[str, ...]
    sentence: str
    epsilon: float | None
    simulation: bool
    signed_by: str | None  # fingerprint of the key
    vouched: bool = False  # whether the public key was given and is the signer's

    @property
    def consistent(self) -> bool:
        return not self.problems

    @property
    def valid(self) -> bool:
        return self.consistent and self.vouched

    @property
    def verdict(self) -> str:
        """In words."""
        if not self.consistent:
            return "altered or inconsistent"
        if self.signed_by is None:
            return "consistent (unsigned): anyone may have written it"
        if not self.vouched:
            return f"consistent (signed by a key nobody vouched for: {self.signed_by})"
        return f"valid: signed by {self.signed_by}"


def read(folder: Path) -> dict[str, Any]:
    """The certificate of a folder."""
    path = folder / JSON
    if not path.is_file():
        raise ValueError(f"{folder} holds no {JSON}")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not readable JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{path} is not of the format {FORMAT!r}")
    return document


def verify(folder: str | Path, allow_simulation: bool = False, public_key: Path | None = None) -> Verdict:
    """Derive again whatever follows from something else (`claims`), and compare all files with their digests.

    A policy that promises nothing (no privacy, or an infinite budget) is never consistent.
    """
    folder = Path(folder)
    try:
        document = read(folder)
    except ValueError as error:
        return Verdict((str(error),), "", None, False, None)
    problems = []
    try:
        problems += _digest_problems(folder, document)
        policy = Policy.load(folder)
        problems += [] if problems else _page_problems(folder, document, policy)
        problems += _table_problems(folder, policy)
        problems += problems_of(document, policy)
    except UNREADABLE as error:
        problems.append(f"the certificate cannot be derived again: {_reason(error)}")
    signed_by = None
    try:
        signed_by = signer(folder, public_key)
    except ValueError as error:
        problems.append(str(error))
    if unprotected(document):
        problems.append(NOT_PRIVATE)
    simulation = document.get("simulation") is not False or simulated(document)
    if simulation and not allow_simulation:
        problems.append(SIMULATED)
    stated = document.get("guarantee")
    stated = stated if isinstance(stated, dict) else {}
    epsilon = stated.get("epsilon")
    return Verdict(
        tuple(dict.fromkeys(problems)),
        str(stated.get("sentence", "")).encode(errors="replace").decode(),
        epsilon if isinstance(epsilon, (int, float)) and abs(epsilon) < math.inf else None,
        simulation,
        signed_by,
        public_key is not None and signed_by is not None,
    )


def uncovered(folder: Path) -> list[str]:
    """What lies beside a certificate and is not of it: no digest, no signature and no guarantee speaks of it."""
    try:
        listed = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        listed = None
    known = {DIGESTS, SIGNATURE, *(listed if isinstance(listed, dict) else FILES)}
    return sorted(path.name for path in folder.iterdir() if path.name not in known)


def _reason(error: Exception) -> str:
    return f"there is no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)


def _digest_problems(folder: Path, document: Mapping[str, Any]) -> list[str]:
    problems = []
    try:
        listed = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [f"{DIGESTS} is missing or unreadable"]
    own = document.get("digests")
    named = [set(found) if isinstance(found, dict) else None for found in (listed, own)]
    if named != [set(FILES), {PARQUET, CSV}] or not isinstance(own, dict):
        return ["the digests are not those of the files of a policy"]
    for name in FILES:
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif listed[name] != digest(path):
            problems.append(f"{name} differs from its digest")
        elif name in own and own[name] != digest(path):
            problems.append(f"{name} is not the one that the certificate was written for")
    if problems:
        return problems
    if (folder / JSON).read_bytes() != dumped(document).encode():
        return [f"{JSON} is not in the form that the program gives it (spaces, a key twice, other numerals)"]
    return []


def _page_problems(folder: Path, document: Mapping[str, Any], policy: Policy) -> list[str]:
    same = (folder / HTML).read_bytes() == page(document, policy).encode()
    return [] if same else [f"{HTML} does not say what {JSON} and the policy say"]


def _table_problems(folder: Path, policy: Policy) -> list[str]:
    """The table for people against the one for programs."""
    table = policy.table()
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    with (folder / CSV).open(newline="", encoding="utf-8") as file:
        shown = list(csv.reader(file))
    same = shown == [table.column_names, *([str(cell) for cell in row] for row in rows)]
    return [] if same else [f"{CSV} and {PARQUET} are two different policies"]


def signer(folder: Path, public_key: Path | None) -> str | None:
    """The fingerprint of whoever signed a folder, None if nobody did; refused if it is not the key that was given."""
    path = folder / SIGNATURE
    if not path.is_file():
        if public_key is not None:
            raise ValueError("there is no signature to check the key against")
        return None
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        signed = json.loads(path.read_text(encoding="utf-8"))
        raw = base64.b64decode(signed["public_key"], validate=True)
        key = Ed25519PublicKey.from_public_bytes(raw)
        key.verify(base64.b64decode(signed["signature"], validate=True), (folder / DIGESTS).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, InvalidSignature):
        raise ValueError("the signature does not fit the digests") from None
    if public_key is not None:
        try:
            expected = serialization.load_pem_public_key(public_key.read_bytes())
        except (OSError, ValueError) as error:
            raise ValueError(f"{public_key} holds no readable public key: {error}") from None
        if not isinstance(expected, Ed25519PublicKey) or expected.public_bytes_raw() != raw:
            raise ValueError("the signature was made with another key")
    return hashlib.sha256(raw).hexdigest()
