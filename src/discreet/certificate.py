"""What a fitted policy promises to the people behind it, and whether the paper it is written on has been altered."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from discreet.policy import CSV, PARQUET, Policy
from discreet.privacy.accounting import (
    Guarantee,
    LedgerEntry,
    Total,
    epsilon_of,
    ledger_total,
)
from discreet.privacy.families import Mechanism, entry_of
from discreet.privacy.linear import regression_cost
from discreet.statistics import Counts

FORMAT = "discreet certificate 1"
JSON, HTML, DIGESTS, SIGNATURE = "certificate.json", "certificate.html", "digests.json", "signature.json"
FILES = (PARQUET, CSV, JSON, HTML)

#: Derived and stated numbers agree up to this share.
TOLERANCE = 1e-6

MEANING = (
    "This certificate proves consistency, not origin: its guarantee follows from its ledger, and its files are the "
    "ones it was written for. It does not prove that the noise was drawn as stated, nor who made it; a signature "
    "says who."
)
SIMULATED = (
    "simulation: the noise came from a seed, so that whoever knows the seed can take it away; nobody is protected"
)


NO_CLAIM = "a policy without privacy has no ledger and promises nothing"
NOT_PRIVATE = "no privacy: the data were used as they are, so that this policy may give away who is in the log"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ledger_json(parts: Mapping[str, Guarantee]) -> list[dict[str, Any]]:
    """One line per noisy statistic and part of the users."""
    return [{"users": part, **entry.to_json()} for part, found in parts.items() for entry in found.entries]


# Writing ------------------------------------------------------------------------------------------------------------


def write(folder: Path, policy: Policy, certificate: Mapping[str, Any], key: Path | None = None) -> None:
    """The policy, its certificate for programs and for people, digests of all, and a signature of the digests."""
    secret = check_folder(folder, key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be written: {error.strerror}") from None
    (folder / SIGNATURE).unlink(missing_ok=True)
    policy.save(folder)
    document = {**certificate, "digests": {name: digest(folder / name) for name in (PARQUET, CSV)}}
    (folder / JSON).write_text(_dumped(document), encoding="utf-8")
    (folder / HTML).write_text(page(document), encoding="utf-8")
    digests = _dumped({name: digest(folder / name) for name in FILES})
    (folder / DIGESTS).write_text(digests, encoding="utf-8")
    if secret is not None:
        public = secret.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        signature = {
            "algorithm": "ed25519",
            "of": DIGESTS,
            "public_key": base64.b64encode(public).decode(),
            "signature": base64.b64encode(secret.sign(digests.encode())).decode(),
        }
        (folder / SIGNATURE).write_text(_dumped(signature), encoding="utf-8")


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


def _dumped(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def private_key(path: Path) -> Ed25519PrivateKey:
    """An Ed25519 key from an unencrypted PEM file."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition(".")[0]
        raise ValueError(f"{path} holds no readable private key: {reason}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} holds a {type(key).__name__}; expected an Ed25519 key")
    return key


def page(document: Mapping[str, Any]) -> str:
    """The certificate for people: one page, no scripts, nothing loaded from elsewhere."""

    def items(lines: Sequence[str]) -> str:
        return "<ul>" + "".join(f"<li>{html.escape(str(line))}</li>" for line in lines) + "</ul>"

    def rows(mapping: Mapping[str, Any]) -> str:
        cells = (
            f"<tr><th>{html.escape(str(name).replace('_', ' '))}</th><td>{html.escape(_text(value))}</td></tr>"
            for name, value in mapping.items()
        )
        return f"<table>{''.join(cells)}</table>"

    ledger = document["ledger"]
    columns = ("users", "statistic", "mechanism", "norm", "sensitivity", "scale", "uses", "cost")
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_text(line[name]))}</td>" for name in columns) + "</tr>"
        for line in ledger
    )
    stamps = (NOT_PRIVATE, _unprotected(document)), (SIMULATED, document["simulation"])
    stamp = "".join(f"<p class=warn>{html.escape(text)}</p>" for text, holds in stamps if holds)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Privacy certificate</title><style>"
        "body{font:16px/1.5 sans-serif;max-width:52em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}"
        "th,td{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top}"
        ".warn{background:#fdd;padding:.5em}</style><h1>Privacy certificate of a policy</h1>"
        f"{stamp}<p><b>{html.escape(str(document['guarantee']['sentence']))}</b></p>"
        f"<p>{html.escape(MEANING)}</p>"
        f"<h2>Who is protected</h2>{rows(document['unit'])}"
        f"<h2>What is protected</h2>{items(document['protected'])}"
        f"<h2>What is not</h2>{items(document['not_protected'])}"
        f"<h2>What it rests on</h2>{items(document['guarantee']['assumptions'])}"
        f"<h2>Warnings</h2>{items(document['warnings']) if document['warnings'] else '<p>none</p>'}"
        f"<h2>The problem</h2>{rows(document['problem'])}"
        f"<h2>The learner</h2>{rows(document['algorithm'])}"
        f"<h2>What the policy is worth</h2>{rows(document['estimate'])}"
        f"<h2>Ledger</h2><table><tr>{head}</tr>{body}</table>{_regression_table(document)}"
        f"<p>Scales and sensitivities are in the integers that carry the noise, those of regressions in units of "
        f"their noise. Written by discreet "
        f"{html.escape(str(document['version']))}.</p></html>\n"
    )


def _regression_table(document: Mapping[str, Any]) -> str:
    """Noise and clipping of every regression, where there are any."""
    lines = document.get("regressions", ())
    if not lines:
        return ""
    columns = tuple(lines[0])
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_text(line[name]))}</td>" for name in columns) + "</tr>" for line in lines
    )
    return f"<h2>Regressions</h2><table><tr>{head}</tr>{rows}</table>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return "not known" if value is None else str(value)


# Reading ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What `verify` found; `problems` is empty when everything agrees."""

    problems: tuple[str, ...]
    sentence: str
    epsilon: float | None
    simulation: bool
    signed_by: str | None  # fingerprint of the key

    @property
    def valid(self) -> bool:
        return not self.problems


def read(folder: Path) -> dict[str, Any]:
    """The certificate of a folder."""
    path = folder / JSON
    if not path.is_file():
        raise ValueError(f"{folder} holds no {JSON}")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} is not readable JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{path} is not of the format {FORMAT!r}")
    return document


def verify(folder: str | Path, allow_simulation: bool = False, public_key: Path | None = None) -> Verdict:
    """Derive the guarantee again from the ledger and the ledger from the problem; compare all files with digests.

    A policy that promises nothing (no privacy, or an infinite budget) is never valid.
    """
    folder = Path(folder)
    problems: list[str] = []
    signed_by = None
    try:
        document = read(folder)
    except ValueError as error:
        return Verdict((str(error),), "", None, False, None)
    problems += _digest_problems(folder, document)
    try:
        problems += _derivation_problems(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError) as error:
        problems.append(f"the ledger cannot be read: {error}")
    try:
        signed_by = _signer(folder, public_key)
    except ValueError as error:
        problems.append(str(error))
    if _unprotected(document):
        problems.append(NOT_PRIVATE)
    simulation = document.get("simulation") is not False
    if simulation and not allow_simulation:
        problems.append(SIMULATED)
    stated = document.get("guarantee")
    stated = stated if isinstance(stated, dict) else {}
    epsilon = stated.get("epsilon")
    return Verdict(
        tuple(problems),
        str(stated.get("sentence", "")),
        epsilon if isinstance(epsilon, (int, float)) else None,
        simulation,
        signed_by,
    )


def _unprotected(document: Mapping[str, Any]) -> bool:
    """Whether no privacy or no finite budget is stated."""
    stated = document.get("guarantee")
    if not isinstance(stated, dict):
        return False
    return stated.get("model") == "none" or (stated.get("epsilon") is None and stated.get("rho") is None)


def _digest_problems(folder: Path, document: Mapping[str, Any]) -> list[str]:
    problems = []
    try:
        listed = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [f"{DIGESTS} is missing or unreadable"]
    own = document.get("digests")
    for name in FILES:
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif not isinstance(listed, dict) or listed.get(name) != digest(path):
            problems.append(f"{name} differs from its digest")
        elif name in (PARQUET, CSV) and (not isinstance(own, dict) or own.get(name) != digest(path)):
            problems.append(f"{name} is not the one that the certificate was written for")
    if not problems and (folder / HTML).read_text(encoding="utf-8") != page(document):
        problems.append(f"{HTML} does not say what {JSON} says")
    return problems


def _regression_sensitivity(entry: Mapping[str, Any], document: Mapping[str, Any]) -> float:
    """In units of its noise: that of the dearest regression, from the noise of each and where it clipped."""
    problem, unit, guarantee = document["problem"], document["unit"], document["guarantee"]
    listed = [line for line in document["regressions"] if line["statistic"] == entry["statistic"]]
    variances = entry["statistic"] == "regressions of variances"  # none after which everything is worth the same
    last = int(problem["horizon"]) - variances
    steps = {int(line["step"]) for line in listed}
    whole = steps <= set(range(last)) if variances else steps == set(range(last))
    if not whole or len(listed) > len(steps) or entry["uses"] != last:
        raise ValueError(f"{entry['statistic']} are one for every step, {last} in all")
    if not listed:
        return float(entry["sensitivity"])
    costs = [
        regression_cost(
            guarantee["neighbours"],
            float(line["matrix_deviation"]),
            [float(bound) for bound in line["clipped_at"]],
            [float(sigma) for sigma in line["vector_deviations"]],
            int(unit["episodes_per_user"]),
        )
        for line in listed
    ]
    return math.sqrt(2.0 * max(costs)) * float(entry["scale"])


def _sensitivity(entry: Mapping[str, Any], document: Mapping[str, Any]) -> float:
    """In integer units (regressions: in units of their noise), from the problem and the unit alone."""
    problem, unit, guarantee = document["problem"], document["unit"], document["guarantee"]
    if entry["statistic"] in ("regressions of values", "regressions of variances"):
        return _regression_sensitivity(entry, document)
    steps = {"pilot steps": 1, "reported steps": 1}.get(entry["statistic"], int(problem["horizon"]))
    units = {"visits": 1, "transitions": 1, "pilot steps": 1}.get(entry["statistic"], int(problem["reward_units"]))
    if entry["statistic"] not in ("visits", "transitions", "rewards", "steps", "pilot steps", "reported steps"):
        raise ValueError(f"nothing is known about {entry['statistic']!r}")
    piled = bool(problem["pooled"]) and not (entry["statistic"] == "steps" and bool(problem["first_visits"]))
    found = Counts.sensitivity(steps, guarantee["neighbours"], piled)
    return (found.l1 if entry["norm"] == "l1" else found.l2) * units * int(unit["episodes_per_user"])


def _derivation_problems(document: Mapping[str, Any]) -> list[str]:
    problems = []
    guarantee, unit = document["guarantee"], document["unit"]
    if guarantee["model"] == "none":
        claims = guarantee["epsilon"], guarantee["rho"], guarantee["sentence"], document["ledger"]
        return [] if claims == (None, None, "no privacy", []) else [NO_CLAIM]
    parts: dict[str, list[LedgerEntry]] = {}
    for line in document["ledger"]:
        if line["mechanism"] not in ("discrete-laplace", "discrete-gaussian"):
            raise ValueError(f"nothing is known about {line['mechanism']!r}")
        sensitivity = float(line["sensitivity"])
        due = _sensitivity(line, document) if float(line["scale"]) > 0.0 else sensitivity
        if not abs(sensitivity - due) <= TOLERANCE * due:
            problems.append(f"one user can move {line['statistic']} by {due:g}, not by {sensitivity:g}")
            sensitivity = due
        law: Mechanism = "laplace" if line["mechanism"] == "discrete-laplace" else "gaussian"
        derived = entry_of(str(line["statistic"]), law, sensitivity, float(line["scale"]), int(line["uses"]))
        stated = math.inf if line["cost"] is None else float(line["cost"])
        if not _agree(stated, derived.cost):
            problems.append(
                f"noise of scale {line['scale']:g} on {line['statistic']} costs {derived.cost:g}, not {stated:g}"
            )
        parts.setdefault(str(line["users"]), []).append(derived)
    if not parts:
        return ["the ledger is empty"]
    totals = [ledger_total(entries) for entries in parts.values()]
    delta = float(guarantee["delta"])
    epsilon = max(_epsilon(total, delta) for total in totals)
    stated = math.inf if guarantee["epsilon"] is None else float(guarantee["epsilon"])
    if not _agree(stated, epsilon):
        problems.append(
            f"the ledger gives epsilon = {epsilon:g} at delta = {delta:g}, the certificate says {stated:g}"
        )
    if guarantee["rho"] is not None:
        rho = max(total.rho for total in totals)
        if not _agree(float(guarantee["rho"]), rho):
            problems.append(f"the ledger gives rho = {rho:g}, the certificate says {guarantee['rho']:g}")
    m = int(unit["episodes_per_user"])
    again = Guarantee(
        "central",
        stated,
        delta,
        guarantee["rho"],
        guarantee["neighbours"],
        f"user ({m} episode{'s' if m > 1 else ''})",
    )
    if guarantee["sentence"] != again.sentence() or guarantee["model"] != "central":
        problems.append(f"the guarantee reads {guarantee['sentence']!r}; its numbers read {again.sentence()!r}")
    return problems


def _agree(stated: float, derived: float) -> bool:
    return stated == derived or abs(stated - derived) <= TOLERANCE * derived


def _epsilon(total: Total, delta: float) -> float:
    if total.gaussian_rho == 0.0:
        return total.epsilon
    return epsilon_of(total.rho, delta) if delta > 0.0 and math.isfinite(total.rho) else math.inf


def _signer(folder: Path, public_key: Path | None) -> str | None:
    path = folder / SIGNATURE
    if not path.is_file():
        if public_key is not None:
            raise ValueError("there is no signature to check the key against")
        return None
    try:
        signature = json.loads(path.read_text(encoding="utf-8"))
        raw = base64.b64decode(signature["public_key"], validate=True)
        signed = base64.b64decode(signature["signature"], validate=True)
        key = Ed25519PublicKey.from_public_bytes(raw)
        key.verify(signed, (folder / DIGESTS).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, InvalidSignature):
        raise ValueError("the signature does not fit the digests") from None
    if public_key is not None:
        try:
            expected = serialization.load_pem_public_key(public_key.read_bytes())
        except (OSError, ValueError) as error:
            raise ValueError(f"{public_key} holds no readable public key: {error}") from None
        if not isinstance(expected, Ed25519PublicKey) or expected.public_bytes_raw() != raw:
            raise ValueError("the signature was made with another key")
    return hashlib.sha256(raw).hexdigest()[:16]
