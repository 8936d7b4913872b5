"""What a deployment keeps to itself: the keys of its log, its users and its tickets, and the hashes of its tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from discreet.device.wire import base64_of
from discreet.live.store import written

Role = Literal["app", "operator", "leader", "analyzer"]
#: Bytes of a user's name in the vault, and of her ticket.
NAME_BYTES = 16
KEY_BYTES = 32


@dataclass(frozen=True)
class Tokens:
    """What apps and operators show to be let in; told once, when a deployment begins."""

    app: str
    operator: str


@dataclass(frozen=True, repr=False, eq=False)
class Secrets:
    """Users and tickets are keyed hashes: nothing random needs to be stored, and a retry gets the same ticket."""

    signing: Ed25519PrivateKey
    user_key: bytes
    ticket_key: bytes
    app: tuple[str, ...]  # SHA-256 of each token, in hex
    operator: tuple[str, ...]

    @property
    def public(self) -> bytes:
        """The key that everybody checks the log with."""
        return self.signing.public_key().public_bytes_raw()

    @property
    def memo_key(self) -> bytes:
        """Of the keyed hash of what is kept between restarts; no user and no ticket is a hash of the same."""
        return hmac.digest(self.ticket_key, b"memo", "sha256")

    @property
    def hpke(self) -> X25519PrivateKey:
        """What messages that come through a shuffler are sealed for."""
        return X25519PrivateKey.from_private_bytes(hmac.digest(self.ticket_key, b"hpke", "sha256"))

    def user(self, name: str) -> bytes:
        """A user as the vault knows her: HMAC(user key, the app's id)."""
        return hmac.digest(self.user_key, name.encode(), "sha256")[:NAME_BYTES]

    def ticket(self, user: bytes) -> bytes:
        """HMAC(ticket key, "ticket" ‖ user)."""
        return hmac.digest(self.ticket_key, b"ticket" + user, "sha256")[:NAME_BYTES]

    def owns(self, user: bytes, ticket: bytes) -> bool:
        return hmac.compare_digest(self.ticket(user), ticket)

    def admits(self, role: Role, token: str) -> bool:
        """Whether this is a token of the role."""
        return among({"app": self.app, "operator": self.operator}.get(role, ()), token)


def among(hashes: Sequence[str], token: str) -> bool:
    """Whether one of these hashes is that of the token; every one is compared, each in constant time."""
    told = hashed(token)
    found = False
    for known in hashes:
        found |= hmac.compare_digest(known, told)
    return found


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def fresh(app: Sequence[str], operator: Sequence[str]) -> Secrets:
    """New keys, and the hashes of these tokens."""
    user, ticket = (secrets.token_bytes(KEY_BYTES) for _ in range(2))
    return Secrets(Ed25519PrivateKey.generate(), user, ticket, tuple(map(hashed, app)), tuple(map(hashed, operator)))


def create(path: Path) -> tuple[Secrets, Tokens]:
    """New secrets in a file that only its owner reads; refused where there is one, for it signs a log."""
    tokens = Tokens(*(secrets.token_urlsafe(KEY_BYTES) for _ in range(2)))
    made = fresh([tokens.app], [tokens.operator])
    keys = {"signing": made.signing.private_bytes_raw(), "user": made.user_key, "ticket": made.ticket_key}
    keep(path, keys, {"app": made.app, "operator": made.operator})
    return made, tokens


def read(path: Path) -> Secrets:
    """The secrets of a file that nobody else can read."""
    (signing, user, ticket), (app, operator) = kept(path, ("signing", "user", "ticket"), ("app", "operator"))
    return Secrets(Ed25519PrivateKey.from_private_bytes(signing), user, ticket, app, operator)


# Files --------------------------------------------------------------------------------------------------------------


def keep(path: Path, keys: Mapping[str, bytes], tokens: Mapping[str, Sequence[str]]) -> None:
    """Write keys, and the hashes of tokens, into a new file that only its owner reads."""
    told: dict[str, Any] = {name: base64_of(key) for name, key in keys.items()}
    told["tokens"] = {role: list(hashes) for role, hashes in tokens.items()}
    try:
        written(path, json.dumps(told, indent=2).encode() + b"\n", replace=False)
    except FileExistsError:
        raise ValueError(f"{path} holds the keys of a deployment already; it is not replaced") from None


def kept(path: Path, keys: Sequence[str], roles: Sequence[str]) -> tuple[list[bytes], list[tuple[str, ...]]]:
    """The keys of these names and the hashes of these roles' tokens, from a file that nobody else can read."""
    try:
        told = json.loads(own(path))
        found = [base64.b64decode(told[name], validate=True) for name in keys]
        hashes = [tuple(str(item) for item in told["tokens"][role]) for role in roles]
        if any(len(key) != KEY_BYTES for key in found) or any(len(item) != 64 for row in hashes for item in row):
            raise ValueError
        return found, hashes
    except FileNotFoundError:
        raise ValueError(f"there are no keys in {path}; begin the deployment with discreet deploy init") from None
    except PermissionError as error:
        raise ValueError(str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} does not hold the keys of a deployment") from None


def own(path: Path) -> bytes:
    """A file, if only its owner can read it."""
    content = path.read_bytes()
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise PermissionError(f"others can read {path}, which holds keys; allow only its owner (chmod 600)")
    return content
