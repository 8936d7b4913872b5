"""Vectors of live deployments: 1,000 × (encoder, episode, words) → payload, and a signed log, for all languages.

`python tests/live/test_live_vectors.py` writes both files anew. The TypeScript client reads the same files.
"""

from __future__ import annotations

import base64
import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from discreet.device import (
    Announcement,
    Entry,
    EpisodeEncoder,
    ItemEncoder,
    Noise,
    ReportEncoder,
    Tables,
    encoder_from_json,
)
from discreet.device.announcements import START, WHOLE, Instructions, check_chain, coin_of
from discreet.device.wire import canonical

FOLDER = Path(__file__).parents[1] / "vectors" / "live"
PAYLOADS, LOG = FOLDER / "payloads.json", FOLDER / "log.json"
ENCODERS, EACH = 40, 25
#: JSON has no words for these.
SAID = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
EDGES = 0, 1, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1
RANGES = (0.0, 1.0), (-1.0, 2.0), (0.1, 0.3), (-1e300, 1e300), (-7.0, -3.5)


# Making -------------------------------------------------------------------------------------------------------------


def encoder(rng: random.Random, number: int) -> Any:
    """The kinds take turns; everything else is drawn, ends of ranges included."""
    S, A, H = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 6)
    grid = 2.0 ** -rng.choice((0, 1, 2, 3, 10, 20, 40, 52))
    tables = Tables(S, A, H, rng.choice((1, H)), grid, rng.choice(RANGES))
    if number % 4 == 0:
        return EpisodeEncoder(tables) if number % 8 == 0 else ItemEncoder(tables, *visits(rng, tables))
    if number % 4 == 1:
        return ItemEncoder(tables, *visits(rng, tables))
    items, *rest = visits(rng, tables)
    if number % 4 == 2:
        words = rng.choice((0, 1, 2**62, 2**62 + 12345, 2**63 - 1, rng.randrange(1, 2**63)))
        return ReportEncoder(tables, items, "unary", words, f"v{number}", *rest)
    words = rng.choice((0, 1, 2**63, 2**64 - 1, rng.randrange(2**64)))
    return ReportEncoder(tables, items, "response", words, f"v{number}", *rest)


def visits(rng: random.Random, tables: Tables) -> tuple[tuple[int, ...], bool, bool]:
    has_start = rng.random() < 0.3
    end = 2 * tables.num_states * (tables.cells[0] + has_start)
    inner = end if not has_start or rng.random() < 0.3 else end - 2 * tables.num_states
    items = rng.sample(range(inner), min(inner, rng.choice((1, 2, 5, 9, 16, 30))))
    return tuple(sorted(items)), has_start, rng.random() < 0.5


def episode(rng: random.Random, tables: Tables) -> list[Any]:
    n = tables.horizon if rng.random() < 0.6 else rng.randint(0, tables.horizon)
    states: list[Any] = [rng.randrange(tables.num_states) for _ in range(n + 1)]
    actions: list[Any] = [rng.randrange(tables.num_actions) for _ in range(n)]
    rewards: list[Any] = [reward(rng, tables) for _ in range(n)]
    return broken(rng, tables, [states, actions, rewards]) if rng.random() < 0.2 else [states, actions, rewards]


def reward(rng: random.Random, tables: Tables) -> float | str:
    low, high = tables.reward_range
    half = (rng.randrange(min(tables.reward_units, 1 << 20)) + 0.5) * tables.grid
    kinds = [low, high, low + half * (high - low), low + half * (high - low), rng.uniform(low, high), 1e308, -0.0]
    return rng.choice([*kinds, low + rng.random() * (high - low), "Infinity", "-Infinity"])


def broken(rng: random.Random, tables: Tables, record: list[Any]) -> list[Any]:
    """Something that cannot be read, or, as booleans and whole floats, only looks like it."""
    states, actions, rewards = record
    at = rng.randrange(3)
    change = rng.randrange(10)
    if change == 0:
        states[rng.randrange(len(states))] = rng.choice((tables.num_states, -1, 0.5, 2**52, "x", None, [0]))
    elif change == 1 and actions:
        actions[rng.randrange(len(actions))] = rng.choice((tables.num_actions, -1, 0.5, "x", None, "NaN", "Infinity"))
    elif change == 2 and rewards:
        rewards[rng.randrange(len(rewards))] = rng.choice(("NaN", "x", None, [0.5]))
    elif change == 3:
        record[at] = rng.choice(("01", None, 3, {}, [], [[0]]))
    elif change == 4:
        record[at] = [*record[at], 0]
    elif change == 5:
        record[at] = record[at][:-1]
    elif change == 6:
        extra = tables.horizon + 1
        return [[0] * (extra + 1), [0] * extra, [0.0] * extra]
    elif change == 7:
        return [[bool(s) if s < 2 else s for s in states], actions, rewards]
    elif change == 8:
        return [[float(s) for s in states], [float(a) for a in actions], [True for _ in rewards]]
    return record


class Words:
    """Edges among random words, and those that were read."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.read: list[int] = []

    def __iter__(self) -> Words:
        return self

    def __next__(self) -> int:
        self.read.append(self.rng.choice(EDGES) if self.rng.random() < 0.15 else self.rng.randrange(2**64))
        return self.read[-1]


def exact(told: Any) -> int | None:
    """⌊ε·2¹⁰⁰⌋ by another way, None where it is infinite."""
    if told.epsilon == math.inf:
        return None
    q = Fraction(told.words, 2**64)
    ratio = (1 - q) / q if told.method == "unary" else 1 + q * (told.num_items + 1) / (1 - q)
    with mpmath.workprec(400):
        return int(mpmath.floor(mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator) * 2**100))


def payloads() -> dict[str, Any]:
    rng = random.Random(1811)
    encoders, vectors = [], []
    for number in range(ENCODERS):
        told = encoder(rng, number)
        cost = exact(told)
        encoders.append({"encoder": told.to_json(), "epsilon": None if cost is None else str(cost)})
        for _ in range(EACH):
            record, words = episode(rng, told.tables), Words(rng)
            sent = told.payload(*said(record), Noise.replayed(words))
            vectors.append([number, *record, " ".join(f"{word:x}" for word in words.read), sent.hex()])
    return {"encoders": encoders, "vectors": vectors}


def said(record: list[Any]) -> list[Any]:
    """A record as it was written, with the numbers that JSON has no words for."""
    parts = (part if not isinstance(part, list) else [_said(value) for value in part] for part in record)
    return list(parts)


def _said(value: Any) -> Any:
    return SAID.get(value, value) if isinstance(value, str) else value


def log() -> dict[str, Any]:
    """Five signed entries, their heads, and the coins of a ticket."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    charter = {"name": "größe", "privacy": {"epsilon": 0.1}}
    items = ItemEncoder(Tables(2, 3, 2, 1, 2.0**-20, (0.0, 1.0)), (0, 1, 5))
    weights = ((1 << 31, 1 << 31, 0), (1, WHOLE - 2, 1))
    mixed, plain = Instructions(weights=(weights, weights)), Instructions(actions=((0, 1), (2, 0)))
    events = [
        {"event": "opened", "charter": charter, "key": base64.b64encode(public).decode()},
        Announcement(1, None, 10, plain, mixed, items).to_event(),
        {"event": "released", "epoch": 1, "tickets": 10, "values": "AAAA"},
        Announcement(2, None, 20, mixed, None, EpisodeEncoder(items.tables)).to_event(),
        {"event": "retired"},
    ]
    entries, head = list[Entry](), START
    for number, event in enumerate(events):
        unsigned = Entry(number, head, canonical(event), b"")
        entries.append(Entry(number, head, unsigned.body, key.sign(unsigned.message)))
        head = entries[-1].head
    tickets = [bytes(16), bytes(range(16))]
    coins = {ticket.hex(): [coin_of(ticket, step) for step in range(6)] for ticket in tickets}
    tosses = (0, 0), (0, 1), (1, WHOLE - 1)
    actions = [[step, coin, *(mixed.action(step, state, coin) for state in (0, 1))] for step, coin in tosses]
    return {
        "key": base64.b64encode(public).decode(),
        "entries": [entry.to_json() for entry in entries],
        "heads": [entry.name for entry in entries],
        "coins": coins,
        "actions": actions,
    }


# Reading ------------------------------------------------------------------------------------------------------------

FOUND: dict[str, Any] = json.loads(PAYLOADS.read_text()) if PAYLOADS.exists() else {"encoders": [], "vectors": []}


def test_the_files_are_those_that_are_made():
    assert len(FOUND["vectors"]) == ENCODERS * EACH == 1000
    assert json.loads(json.dumps(payloads())) == FOUND
    assert json.loads(LOG.read_text()) == log()


def test_the_vectors_have_all_kinds_of_encoders_and_records():
    kinds = {(told["encoder"]["encoder"], told["encoder"].get("method")) for told in FOUND["encoders"]}
    assert kinds == {("item", None), ("episode", None), ("first-visit", "unary"), ("first-visit", "response")}
    encoders = [encoder_from_json(told["encoder"]) for told in FOUND["encoders"]]
    assert {told.tables.stages > 1 for told in encoders} == {True, False}
    readable = [encoders[vector[0]].tables.read(*said(vector[1:4]))[0].size > 0 for vector in FOUND["vectors"]]
    assert 100 < readable.count(False) < 300
    answered = [vector for vector in FOUND["vectors"] if vector[5] not in ("ffffffff", "0" * 16)]
    assert len(answered) > 500


def test_devices_send_the_recorded_bytes():
    for number, (which, *record, words, sent) in enumerate(FOUND["vectors"]):
        told: Any = encoder_from_json(FOUND["encoders"][which]["encoder"])
        noise = Noise.replayed([int(word, 16) for word in words.split()])
        assert told.payload(*said(record), noise).hex() == sent, number
        told.entries(bytes.fromhex(sent))
        with pytest.raises(ValueError, match="used up"):
            noise.words(1)


def test_what_encoders_cost_is_never_below_the_truth_and_hardly_above():
    for each in FOUND["encoders"]:
        told: Any = encoder_from_json(each["encoder"])
        if each["epsilon"] is None:
            assert told.epsilon == math.inf
        else:
            truth = Fraction(int(each["epsilon"]), 2**100)
            assert truth <= Fraction(told.epsilon) <= truth * (1 + Fraction(1, 2**49)) + Fraction(1, 2**99)


def test_the_recorded_log_holds():
    found = json.loads(LOG.read_text())
    entries = [Entry.from_json(message) for message in found["entries"]]
    assert check_chain(entries, base64.b64decode(found["key"])).hex() == found["heads"][-1]
    assert [entry.name for entry in entries] == found["heads"]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    made = payloads()
    lines = [json.dumps(each, separators=(",", ":")) for each in made["encoders"]]
    others = [json.dumps(each, separators=(",", ":")) for each in made["vectors"]]
    PAYLOADS.write_text('{"encoders":[\n' + ",\n".join(lines) + '\n],"vectors":[\n' + ",\n".join(others) + "\n]}\n")
    LOG.write_text(json.dumps(log(), indent=1) + "\n")
