"""Test vectors of devices: (announcement, episode, random words) → payload, for every encoder and every language.

`python tests/privacy/test_vectors.py` writes the file anew. A number that moves there is a device that says something
else than before: every implementation must then follow.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.device import (
    BitEncoder,
    GaussianEncoder,
    LaplaceEncoder,
    LossEncoder,
    LossTables,
    Noise,
    Report,
    ReportEncoder,
    SampledEncoder,
    Tables,
    encoder_from_json,
)
from discreet.device.bits import CountBits, FirstVisitBits
from discreet.device.sampler import Ints
from discreet.privacy.noise import NoiseSource

FILE = Path(__file__).parents[1] / "vectors" / "device.json"
DELTA = 1e-6

STAGED, POOLED = (Tables(2, 2, 3, stages, 0.25, (-1.0, 2.0)) for stages in (3, 1))
FULL, BANDIT = (LossTables(((0,), (0, 1), (1,)), 2, 2, feedback, 0.125) for feedback in ("full", "bandit"))
ITEMS = 0, 1, 3, 8, 13
QUARTER = 2**62

#: Name → encoder. Together they have every statistic, method and option.
ENCODERS = {
    "laplace staged": LaplaceEncoder(STAGED, (24.5, 24.5, 98.0)),
    "laplace pooled, no rewards": LaplaceEncoder(POOLED, (3.7, 0.9, None)),
    "laplace of losses, full": LaplaceEncoder(FULL, (18.0, 12.0, 192.0)),
    "laplace of losses, bandit": LaplaceEncoder(BANDIT, (18.0, None, 144.0)),
    "gaussian staged": GaussianEncoder(STAGED, (9.5, 9.5, 38.0)),
    "gaussian pooled, no rewards": GaussianEncoder(POOLED, (3.7, 0.9, None)),
    "gaussian of losses, full": GaussianEncoder(FULL, (7.0, 5.0, 66.0)),
    "sampled step, staged": SampledEncoder(STAGED, QUARTER + 12345),
    "sampled step, pooled": SampledEncoder(POOLED, 2**60 - 1),
    "sampled step of losses, full": SampledEncoder(FULL, QUARTER),
    "sampled step of losses, bandit": SampledEncoder(BANDIT, QUARTER - 1),
    "first visit, unary": ReportEncoder(POOLED, ITEMS, "unary", QUARTER, "a" * 64),
    "first visit, response": ReportEncoder(STAGED, (*ITEMS, 40), "response", 2**63, "b" * 64, False, False),
    "first visit, start": ReportEncoder(POOLED, (0, 16, 18), "response", QUARTER, "c" * 64, True),
    "loss cells, one": LossEncoder(FULL, (4,), QUARTER),
    "loss cells, three": LossEncoder(FULL, (0, 5, 7), QUARTER + 1),
    "bits of counts": BitEncoder(CountBits(POOLED), 3000, 2, 2**63),
    "bits of one layer": BitEncoder(CountBits(STAGED, 1), 2000, 1, 2**63, 1900),
    "bits of a first visit": BitEncoder(FirstVisitBits(POOLED, ITEMS, False, True), 2000, 3, QUARTER),
}

EPISODES: dict[str, list[Any]] = {
    "whole": [[0, 1, 1, 0], [1, 0, 1], [2.0, 0.625, -1.0]],
    "half to even": [[0, 0, 0, 1], [0, 0, 1], [-0.625, 0.125, 0.875]],
    "short": [[0, 1], [0], [1.7]],
    "unreadable": [[0, 7, 0], [0, 1], [1.0, 0.0]],
}
LOSSES: dict[str, list[Any]] = {
    "whole": [[0, 1, 1, 0], [1, 0, 1], [0.3, 1.0, 0.0]],
    "half to even": [[0, 0, 1, 1], [0, 1, 1], [0.0625, 0.1875, 0.9375]],
    "unreadable": [[0, 0, 0, 0], [0, 0, 0], [0.5, 0.5, 0.5]],
}


def episodes(encoder: Any) -> dict[str, list[Any]]:
    """Records for an encoder; under full information losses are a whole table."""
    tables = encoder.statistic.tables if isinstance(encoder, BitEncoder) else encoder.tables
    if isinstance(tables, Tables):
        return EPISODES
    if tables.feedback == "bandit":
        return LOSSES
    table = [[[(3 * h + 2 * s + a) % 8 / 7 for a in range(2)] for s in range(2)] for h in range(3)]
    return {name: [*walk, table] for name, (*walk, _) in LOSSES.items()} | {
        "unreadable losses": [*LOSSES["whole"][:2], [[[2.0, 0.0]] * 2] * 3]
    }


class Counted:
    """Edge words among random ones, and how many of them were read."""

    def __init__(self, label: str) -> None:
        seed = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "little")
        rng = np.random.default_rng(seed)
        edges = np.array([0, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
        others = rng.integers(2**64, size=4000, dtype=np.uint64)
        self.all: list[int] = np.where(rng.random(4000) < 0.1, rng.choice(edges, 4000), others).tolist()
        self.read = 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        self.read += 1
        return self.all[self.read - 1]


def payload(encoder: Any, episode: list[Any], noise: Any) -> bytes:
    if isinstance(encoder, BitEncoder):
        messages = encoder.encode(*episode, noise, epsilon_at_most=encoder.epsilon(DELTA), delta_at_most=DELTA)
        return messages.tobytes()
    if isinstance(encoder, GaussianEncoder):
        return encoder.encode("ann", *episode, noise, rho_at_most=encoder.rho).payload
    return encoder.encode("ann", *episode, noise, epsilon_at_most=encoder.epsilon).payload


def costs(encoder: Any) -> dict[str, float]:
    if isinstance(encoder, GaussianEncoder):
        return {"rho": encoder.rho}
    return {"epsilon": encoder.epsilon(DELTA) if isinstance(encoder, BitEncoder) else encoder.epsilon}


def vectors() -> list[dict[str, Any]]:
    found = []
    for name, encoder in ENCODERS.items():
        for kind, episode in episodes(encoder).items():
            words = Counted(f"{name}, {kind}")
            sent = payload(encoder, episode, Noise.replayed(words))
            found.append(
                {
                    "name": f"{name}: {kind}",
                    "announcement": encoder.to_json(),
                    "form": encoder.form,
                    **costs(encoder),
                    "episode": episode,
                    "words": " ".join(f"{word:016x}" for word in words.all[: words.read]),
                    "payload": sent.hex(),
                }
            )
    return found


def compiled(words: list[int]) -> NoiseSource:
    """The server's source, with these words next in line."""
    source = NoiseSource.seeded(0)
    source._refill()
    source._buffer[source._position : source._position + len(words)] = words
    return source


VECTORS: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []


def test_every_encoder_has_vectors():
    assert len(VECTORS) >= 40
    kinds = {vector["announcement"].get("encoder", "bits") for vector in VECTORS}
    assert kinds == {"laplace", "gaussian", "sampled-step", "first-visit", "loss-cells", "bits"}
    fresh = json.loads(json.dumps(vectors()))
    for key in ("name", "announcement", "form", "episode", "words", "payload"):
        assert [vector[key] for vector in VECTORS] == [vector[key] for vector in fresh], key


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_devices_and_simulations_send_the_recorded_bytes(vector):
    encoder = encoder_from_json(vector["announcement"])
    assert encoder.form == vector["form"]
    ((name, stated),) = costs(encoder).items()
    assert stated == pytest.approx(vector[name], rel=1e-12)
    words = [int(word, 16) for word in vector["words"].split()]
    noise = Noise.replayed(words)
    assert payload(encoder, vector["episode"], noise).hex() == vector["payload"]
    with pytest.raises(ValueError, match="used up"):
        noise.words(1)
    assert payload(encoder, vector["episode"], compiled(words)).hex() == vector["payload"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_recorded_payload_is_one_that_the_server_takes(vector):
    encoder = encoder_from_json(vector["announcement"])
    sent = bytes.fromhex(vector["payload"])
    if isinstance(encoder, BitEncoder):
        assert len(sent) == 5 * encoder.messages_per_user
        return
    values: Ints = encoder.values(Report("ann", encoder.form, sent))
    assert values.dtype == np.int64
    with pytest.raises(ValueError, match="nothing was added"):
        encoder.values(Report("ann", encoder.form, sent + b"\0"))


if __name__ == "__main__":
    FILE.write_text("[\n" + ",\n".join(json.dumps(vector) for vector in vectors()) + "\n]\n")
