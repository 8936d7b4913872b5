"""What a deployment has promised and done, for whoever was not there: its log, the policy, and whether they agree.

Everything in a folder follows from the log, which is signed entry by entry; `verify` derives it again. What no log
can show is that raw reports were erased, and that noise was drawn as promised: that is the word of whoever signs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from discreet import __version__
from discreet.device import EpisodeEncoder, ItemEncoder, ReportEncoder, ShareEncoder, ShuffledEncoder
from discreet.device.announcements import Announcement, Entry, check_chain
from discreet.device.wire import base64_of
from discreet.live import terms
from discreet.live.charter import Charter
from discreet.live.deployment import MOST_OPEN, State, recovered
from discreet.live.events import Amended, Event, Opened, Released, Retired, event_of
from discreet.live.learning import task_of
from discreet.live.overview import overview, page, policy_of
from discreet.live.shuffling import signed_by, statement
from discreet.offline.certificate import (
    DIGESTS,
    HTML,
    JSON,
    SIGNATURE,
    UNREADABLE,
    Verdict,
    digest,
    dumped,
    signature,
    signer,
)
from discreet.offline.folders import completed
from discreet.policy import CSV, PARQUET, Policy

FORMAT = "discreet deployment 1"
LOG = "log.jsonl"
FILES = (LOG, PARQUET, CSV, JSON, HTML)
#: An ε of a randomised message is rounded up.
TOLERANCE = 1e-9
ERASED = (
    "raw reports were erased at every release, and what was left of the vault when the deployment was retired: that "
    "is the word of whoever signed this, which no log can show"
)


# The log ------------------------------------------------------------------------------------------------------------


@dataclass
class Audit:
    """One walk through a log. It shares no code with what wrote it; `problems` is empty when every rule holds."""

    charter: Charter
    hpke: bytes | None = None  # what shuffled messages are sealed for
    users: int = 0
    places: int = 0
    epochs: int = 0
    open: dict[int, Announcement] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)  # epoch: tickets
    batch: tuple[ShuffledEncoder, int] | None = None  # that goes on, and how many of its people have come
    batches: int = 0  # that the shuffler has signed
    retired: bool = False
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.users = self.charter.users

    def walk(self, number: int, event: Event) -> None:
        if self.retired:
            self.problems.append(f"entry {number} comes after the deployment was retired")
        if isinstance(event, Opened):
            self.problems.append(f"entry {number} opens the log once more")
        elif isinstance(event, Announcement):
            self._announced(number, event)
        elif isinstance(event, Released):
            self._released(number, event)
        elif isinstance(event, Amended):
            if event.users <= self.users:
                self.problems.append(f"entry {number} lets {event.users:,} people come where {self.users:,} could")
            self.users = max(self.users, event.users)
        elif isinstance(event, Retired):
            self.retired = True

    def _announced(self, number: int, told: Announcement) -> None:
        charter, encoder = self.charter, told.encoder
        self.epochs, self.places = self.epochs + 1, self.places + told.size
        original = None if told.repeats is None else self.open.get(told.repeats)
        same = original is not None and replace(told, epoch=0, size=1, repeats=None) == replace(
            original, epoch=0, size=1, repeats=None
        )
        most = MOST_OPEN if charter.overlap == "repeat" else 1
        joint = ItemEncoder if charter.learner == "spotlight" else EpisodeEncoder
        others = {"local": ReportEncoder, "two-servers": ShareEncoder, "shuffle": ShuffledEncoder}
        kind: type = others.get(charter.model, joint)
        rules = {
            f"announces epoch {told.epoch} where {self.epochs} is next": told.epoch == self.epochs,
            f"has places for {self.places:,} people where {self.users:,} may come": self.places <= self.users,
            f"opens more than {most} epochs at once": len(self.open) < most,
            "says that it repeats an epoch, and does not": told.repeats is None or same,
            "asks for something else than the charter says": isinstance(encoder, kind)
            and encoder.tables == charter.spec.tables,
            "asks for shares of another epoch, or for another helper": not isinstance(encoder, ShareEncoder)
            or (
                (charter.helper is not None and encoder.helper == charter.helper.hpke)
                and encoder.task == task_of(charter, told.epoch)
            ),
        }
        if isinstance(encoder, ShuffledEncoder):
            rules |= self._shuffled(told, encoder)
        self.problems += [f"entry {number} {what}" for what, holds in rules.items() if not holds]
        if charter.model == "local" and encoder.epsilon > charter.epsilon * (1.0 + TOLERANCE):
            self.problems.append(
                f"entry {number} asks for messages that cost ε = {encoder.epsilon:.6g}, more than {charter.epsilon:g}"
            )
        self.open[told.epoch] = told

    def _shuffled(self, told: Announcement, encoder: ShuffledEncoder) -> dict[str, bool]:
        """The rules of an epoch whose messages are shuffled: alone, or together with those of the epochs before."""
        charter, bits = self.charter, encoder.bits
        before, came = (encoder, 0) if self.batch is None else self.batch
        delta = bits.delta(charter.epsilon, "replace", charter.honest)
        return {
            "asks for messages that are sealed for somebody else": self.hpke is not None
            and encoder.analyzer == self.hpke.hex(),
            "goes on with a batch in another way than it was begun": encoder == before
            and (self.batch is not None or encoder.task == task_of(charter, told.epoch)),
            f"has more people than its batch of {bits.users:,}": came + told.size <= bits.users,
            "asks for whole episodes where one step was promised": charter.learner != "spotlight"
            or encoder.first_visit is not None,
            f"asks for messages with δ = {delta:.3g}, more than {charter.delta:g}": delta
            <= charter.delta * (1.0 + TOLERANCE),
        }

    def _passed(self, number: int, event: Released, told: Announcement) -> int:
        """How many numbers a release has: those of a batch that is complete and that the shuffler has signed."""
        encoder, shuffler = told.encoder, self.charter.shuffler
        if not isinstance(encoder, ShuffledEncoder) or shuffler is None:
            return encoder.size
        came = told.size + (0 if self.batch is None else self.batch[1])
        if came < encoder.bits.users:
            self.batch = encoder, came
            return 0
        self.batch = None
        said = statement(encoder.task, event.batch or b"", encoder.batch_size)
        if signed_by(bytes.fromhex(shuffler.key), event.passed or b"", said):
            self.batches += 1
        else:
            self.problems.append(f"entry {number} releases a batch that the shuffler has not signed")
        most = encoder.bits.users * (1 + encoder.bits.noise_bits)
        if not ((event.values >= 0) & (event.values <= most)).all():
            self.problems.append(f"entry {number} releases numbers that no batch of {encoder.bits.users:,} can have")
        return encoder.size

    def _released(self, number: int, event: Released) -> None:
        told = self.open.pop(event.epoch, None)
        if event.epoch in self.released:
            self.problems.append(f"entry {number} releases epoch {event.epoch} a second time")
        elif told is None:
            self.problems.append(f"entry {number} releases epoch {event.epoch}, which was not announced")
        else:
            if event.tickets != told.size:
                self.problems.append(
                    f"entry {number} releases epoch {event.epoch} for {event.tickets:,} tickets of {told.size:,}"
                )
            if event.values.size != self._passed(number, event, told):
                self.problems.append(f"entry {number} releases other numbers than epoch {event.epoch} was asked for")
        self.released[event.epoch] = event.tickets


def audited(
    entries: Sequence[Entry], key: bytes | None = None, anchor: tuple[int, str] | None = None
) -> tuple[list[str], Audit | None]:
    """What is wrong with a log: chain, signatures, one release per epoch, places, sizes, ε, and the anchor.

    `key`: that of the deployment, where it is known from elsewhere. Without an audit the log cannot be read at all.
    """
    try:
        opening = event_of(entries[0]) if entries else None
        if not isinstance(opening, Opened):
            return ["the log does not begin with a charter"], None
        check_chain(entries, opening.key)
        audit = Audit(opening.charter, opening.hpke)
        for entry in entries[1:]:
            audit.walk(entry.number, event_of(entry))
        stated = opening.charter.guarantee
    except UNREADABLE as error:
        return [f"the log cannot be read: {error}"], None
    problems = list(audit.problems)
    if key is not None and key != opening.key:
        problems.append("the log is signed with another key than the one given")
    promised = opening.charter
    more = stated.epsilon > promised.epsilon * (1.0 + TOLERANCE) or stated.delta > promised.delta * (1.0 + TOLERANCE)
    if more or stated.model != promised.model:
        problems.append("the charter's terms do not give the ε that it states")
    if anchor is not None:
        number, head = anchor
        if number >= len(entries) or entries[number].name != head:
            problems.append(
                f"the log does not hold entry {number} as the anchor has it: it is an old copy, or another"
            )
    return problems, audit


def read_log(path: Path) -> list[Entry]:
    """The entries of a file of one JSON object per line, or of a folder that holds one."""
    path = path / LOG if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"there is no {LOG} in {path.parent}" if path.name == LOG else f"there is no file {path}")
    try:
        return [Entry.from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not the log of a deployment, one entry per line") from None


def written_log(entries: Sequence[Entry]) -> str:
    return "".join(json.dumps(entry.to_json()) + "\n" for entry in entries)


# Writing ------------------------------------------------------------------------------------------------------------


def export(folder: Path, entries: Sequence[Entry], state: State) -> None:
    """The log and the policy learned so far: everything in it is public."""
    names = (LOG, PARQUET, CSV, DIGESTS)
    with completed(folder, names) as part:
        (part / LOG).write_text(written_log(entries), encoding="utf-8")
        policy_of(state.course).save(part)
        digests = dumped({name: digest(part / name) for name in (LOG, PARQUET, CSV)})
        (part / DIGESTS).write_text(digests, encoding="utf-8")


def certify(folder: Path, entries: Sequence[Entry], secret: Ed25519PrivateKey) -> None:
    """The certificate of a retired deployment, signed with the key of its log."""
    state = recovered(entries, {})
    if not state.retired:
        raise ValueError("a certificate is written when a deployment is retired; this one is not")
    with completed(folder, (*FILES, DIGESTS, SIGNATURE)) as part:
        (part / LOG).write_text(written_log(entries), encoding="utf-8")
        policy_of(state.course).save(part)
        told = {
            "version": __version__,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        (part / JSON).write_text(dumped(described(entries, state) | told), encoding="utf-8")
        (part / HTML).write_text(page(state, entries), encoding="utf-8")
        digests = dumped({name: digest(part / name) for name in FILES})
        (part / DIGESTS).write_text(digests, encoding="utf-8")
        (part / SIGNATURE).write_text(dumped(signature(secret, digests)), encoding="utf-8")


def described(entries: Sequence[Entry], state: State) -> dict[str, Any]:
    """All that a certificate says and that follows from the log."""
    charter, guarantee = state.charter, state.charter.guarantee
    stated = guarantee.to_json()
    return {
        "format": FORMAT,
        "name": charter.name,
        "charter": charter.document(),
        "charter_digest": charter.digest,
        "public_key": base64_of(state.key),
        "log": {"entries": len(entries), "head": state.head.hex()},
        "guarantee": {"sentence": guarantee.sentence(), **{name: stated[name] for name in STATED}},
        "ledger": [entry.to_json() for entry in guarantee.entries],
        "people": {"may_come": state.users, "released": sum(_tickets(entries)), "epochs": state.released},
        "erased": ERASED,
        "who_sees_what": list(terms.seen(charter)),
        "people_who_lie": terms.liars(charter.model),
        "alarms": list(overview(state, entries).alarms),
        "simulation": False,
    }


STATED = ("model", "epsilon", "delta", "neighbours", "unit", "assumptions")


def _tickets(entries: Sequence[Entry]) -> list[int]:
    return [int(entry.event["tickets"]) for entry in entries if entry.event["event"] == "released"]


# Reading ------------------------------------------------------------------------------------------------------------


def verify(folder: Path, public_key: Path | None = None) -> Verdict:
    """Derive the certificate, its page and the policy from the log again, and compare all with their digests."""
    problems, document, signed_by = list[str](), dict[str, Any](), None
    try:
        document = json.loads((folder / JSON).read_text(encoding="utf-8"))
        problems += _file_problems(folder, document)
        entries = read_log(folder)
        found, audit = audited(entries)
        problems += found
        if audit is not None and not found:
            if not audit.retired:
                problems.append("the deployment was not retired; its vault is still in use")
            problems += _derived_problems(folder, document, entries)
    except UNREADABLE as error:
        problems.append(f"the certificate cannot be derived again: {error}")
    try:
        signed_by = signer(folder, public_key)
        problems += _key_problems(folder, document, signed_by)
    except ValueError as error:
        problems.append(str(error))
    stated = document.get("guarantee") if isinstance(document, dict) else None
    stated = stated if isinstance(stated, dict) else {}
    epsilon = stated.get("epsilon")
    return Verdict(
        tuple(dict.fromkeys(problems)),
        str(stated.get("sentence", "")).encode(errors="replace").decode(),
        float(epsilon) if isinstance(epsilon, (int, float)) else None,
        False,
        signed_by,
        public_key is not None and signed_by is not None,
    )


def _file_problems(folder: Path, document: Mapping[str, Any]) -> list[str]:
    if document.get("format") != FORMAT:
        return [f"the certificate is not of the format {FORMAT!r}"]
    listed = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    if not isinstance(listed, dict) or set(listed) != set(FILES):
        return ["the digests are not those of the files of a deployment"]
    return [f"{name} differs from its digest" for name in FILES if listed[name] != digest(folder / name)]


def _derived_problems(folder: Path, document: Mapping[str, Any], entries: Sequence[Entry]) -> list[str]:
    state = recovered(entries, {})
    derived = described(entries, state)
    problems = [
        f"the certificate says something else about {name.replace('_', ' ')} than the log"
        for name, value in derived.items()
        if document.get(name) != json.loads(json.dumps(value))
    ]
    if set(document) != {*derived, "version", "date"}:
        problems.append("the certificate says more or less than such a certificate says")
    learned, told = policy_of(state.course), Policy.load(folder)
    if not learned.table().equals(told.table()):
        problems.append("the policy is not the one that follows from the log")
    if (folder / HTML).read_text(encoding="utf-8") != page(state, entries):
        problems.append(f"{HTML} does not say what the log says")
    return problems


def _key_problems(folder: Path, document: Mapping[str, Any], signed_by: str | None) -> list[str]:
    if signed_by is None:
        return ["the certificate is not signed"]
    key = json.loads((folder / SIGNATURE).read_text(encoding="utf-8"))["public_key"]
    return [] if key == document.get("public_key") else ["the certificate is not signed with the key of its log"]


def public_key_of(path: Path) -> bytes:
    """The raw Ed25519 key of a PEM file."""
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError):
        raise ValueError(f"{path} holds no readable public key") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{path} holds a {type(key).__name__}; expected an Ed25519 key")
    return key.public_bytes_raw()


def public_pem(key: bytes) -> bytes:
    """A raw Ed25519 key as a PEM file."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return Ed25519PublicKey.from_public_bytes(key).public_bytes(serialization.Encoding.PEM, form)
