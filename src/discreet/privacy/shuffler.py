"""Three roles that share nothing but messages: users encode bits, a shuffler permutes messages, an analyzer counts.

A message is one bit with the number of the counter it belongs to. Every user sends, for every counter, her own bit
and `noise_bits` random ones, zeros included, so that the number of messages says nothing about her. The shuffler
permutes single messages of the whole batch; what leaves it is, per counter, how many ones there are, and no more.

Nothing here needs the server: a device imports this file, numpy and the noise source. Proof: shuffle.md.
As a process of its own the shuffler is `python -m discreet.privacy.shuffler FOLDER OUT`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.privacy.client import Tables, below
from discreet.privacy.noise import NoiseSource

Ints = NDArray[np.int64]
Messages = NDArray[Any]  # of type MESSAGE
MESSAGE = np.dtype([("label", "<u4"), ("bit", "u1")])
HALF = 1 << 63
#: Random words drawn at once while bits are made.
CHUNK = 1 << 18


class BadBatch(ValueError):
    """The messages of a batch are not what so many users would have sent: nothing is estimated from it."""


# Users --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountBits:
    """Which counters an episode switches on: visits (g,s,a), transitions (g,s,a,s'), rewards (g,s,a).

    Only the first visit to a cell (g,s,a) counts, so that every counter moves by one bit; it is chosen before its
    outcome is seen. The reward becomes a bit with P(1) = the reward, clipped, scaled to [0, 1] and on the grid.
    `layer` (staged problems) leaves visits and transitions of one step only, and no rewards.
    """

    tables: Tables
    layer: int | None = None

    def __post_init__(self) -> None:
        if self.layer is not None and not (self.tables.stages > 1 or self.tables.horizon == 1):
            raise ValueError("one layer of a pooled problem is not defined; leave layer out or count per step")
        if self.layer is not None and not 0 <= self.layer < self.tables.stages:
            raise ValueError(f"layer is {self.layer}; it must be in 0..{self.tables.stages - 1}")

    @property
    def num_counters(self) -> int:
        visits, transitions, rewards = self.tables.cells
        return visits + transitions + rewards if self.layer is None else (visits + transitions) // self.tables.stages

    @property
    def most_changes(self) -> int:
        """Counters one user can switch on: three per cell she can visit first, or two in one layer."""
        return 3 * min(self.tables.horizon, self.tables.cells[0]) if self.layer is None else 2

    def ones(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource) -> Ints:
        """The counters of one episode: raw, they stay on the device."""
        pairs, triples, units = self.tables.steps(states, actions, rewards)
        coins = below(noise, self.tables.reward_units, self.tables.horizon)
        visits, transitions, _ = self.tables.cells
        if self.layer is not None:
            here = slice(self.layer, self.layer + 1)
            cells = visits // self.tables.stages
            first = self.layer * cells
            own = pairs[here] - first
            return np.concatenate([own, cells + triples[here] - first * self.tables.num_states])
        _, first_visits = np.unique(pairs, return_index=True)
        pairs, triples, units = pairs[first_visits], triples[first_visits], units[first_visits]
        paid = pairs[coins[first_visits] < units]
        return np.concatenate([pairs, visits + triples, visits + transitions + paid])

    def to_json(self) -> dict[str, Any]:
        return {"statistic": "counts", "tables": asdict(self.tables), "layer": self.layer}


@dataclass(frozen=True)
class FirstVisitBits:
    """At most one counter per episode: her first visit to a wanted cell, as (cell, successor, reward bit).

    `items` are 2S·cell + 2·s' + bit, increasing; an outcome that is not among them counts as no report.
    """

    tables: Tables
    items: tuple[int, ...]
    has_start: bool = False
    last_successor: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(int(item) for item in self.items))
        if any(b <= a for a, b in zip(self.items, self.items[1:], strict=False)) or not self.items:
            raise ValueError("items must be increasing, and there must be at least one")

    @property
    def num_counters(self) -> int:
        return len(self.items)

    @property
    def most_changes(self) -> int:
        return 1

    @cached_property
    def _place(self) -> dict[int, int]:
        return {item: place for place, item in enumerate(self.items)}

    @cached_property
    def _wanted(self) -> frozenset[int]:
        return frozenset(item // (2 * self.tables.num_states) for item in self.items)

    def ones(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource) -> Ints:
        t = self.tables
        pairs, triples, units = t.steps(states, actions, rewards)
        coin = int(below(noise, t.reward_units, 1)[0])
        item = -1
        if self.has_start and t.cells[0] in self._wanted:
            item = 2 * t.num_states * t.cells[0] + 2 * int(np.asarray(states)[0])
        else:
            for h, cell in enumerate(pairs.tolist()):
                if cell in self._wanted:
                    ends = h == t.horizon - 1 and not self.last_successor
                    successor = 0 if ends else int(triples[h]) % t.num_states
                    item = 2 * (cell * t.num_states + successor) + (coin < int(units[h]))
                    break
        place = self._place.get(item, -1)
        return np.array([place] if place >= 0 else [], dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        return {
            "statistic": "first-visit",
            "tables": asdict(self.tables),
            "items": list(self.items),
            "has_start": self.has_start,
            "last_successor": self.last_successor,
        }


Statistic = CountBits | FirstVisitBits


def statistic_from_json(message: dict[str, Any]) -> Statistic:
    tables = Tables(**{**message["tables"], "reward_range": tuple(message["tables"]["reward_range"])})
    if message.get("statistic") == "counts":
        return CountBits(tables, message["layer"])
    if message.get("statistic") == "first-visit":
        return FirstVisitBits(tables, tuple(message["items"]), message["has_start"], message["last_successor"])
    raise ValueError(f"the statistic is {message.get('statistic')!r}; expected 'counts' or 'first-visit'")


@dataclass(frozen=True)
class BitEncoder:
    """What a server publishes before a batch: what to report, and how much noise every user adds to every counter.

    P(noise bit = 1) = flips/2⁶⁴. `users` is the announced size of the batch; it went into the noise.
    """

    statistic: Statistic
    users: int
    noise_bits: int
    flips: int

    def __post_init__(self) -> None:
        if self.users < 2:
            raise ValueError(f"a batch of {self.users} cannot be shuffled; at least 2 users are needed")
        if self.noise_bits < 0:
            raise ValueError(f"noise_bits is {self.noise_bits}; it must not be negative")
        if not 0 <= self.flips <= HALF:
            raise ValueError(f"flips is {self.flips}; it must be a share of 2⁶⁴, at most one half")

    @property
    def num_counters(self) -> int:
        return self.statistic.num_counters

    @property
    def probability(self) -> float:
        return self.flips / 2.0**64

    @property
    def messages_per_user(self) -> int:
        return self.num_counters * (1 + self.noise_bits)

    @cached_property
    def form(self) -> str:
        """Names the encoder by its public numbers."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.statistic.to_json(),
            "users": self.users,
            "noise_bits": self.noise_bits,
            "flips": self.flips,
        }

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> BitEncoder:
        return cls(statistic_from_json(message), message["users"], message["noise_bits"], message["flips"])

    def messages(self, ones: Ints, noise: NoiseSource) -> Messages:
        """Her own bits and her noise, one message per bit and counter, zeros included."""
        C, m = self.num_counters, self.noise_bits
        out = np.zeros((C, 1 + m), dtype=MESSAGE)
        out["label"] = np.arange(C, dtype=np.uint32)[:, None]
        out["bit"][ones, 0] = 1
        if m:
            out["bit"][:, 1:] = (noise.words(C * m) < np.uint64(self.flips)).reshape(C, m)
        return out.reshape(-1)

    def encode(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource) -> Messages:
        """All messages of one user; they carry no name."""
        return self.messages(self.statistic.ones(states, actions, rewards, noise), noise)

    def noise_sums(self, users: int, noise: NoiseSource) -> Ints:
        """What the noise bits of so many users add up to, per counter: Bin(users·noise_bits, p).

        Bit by bit from secure randomness; a simulation draws the binomial itself, of the same law.
        """
        C, each = self.num_counters, users * self.noise_bits
        if noise.simulation:
            generator = noise.generator()
            return generator.binomial(each, self.probability, C).astype(np.int64)
        sums = np.zeros(C, dtype=np.int64)
        rows = max(1, CHUNK // C)
        for start in range(0, each, rows):
            words = noise.words(min(rows, each - start) * C).reshape(-1, C)
            sums += np.count_nonzero(words < np.uint64(self.flips), axis=0)
        return sums


# The shuffler -------------------------------------------------------------------------------------------------------


def permuted(messages: Messages, noise: NoiseSource) -> Messages:
    """The messages in an order drawn evenly from all orders (random keys are sorted; equal keys are drawn again)."""
    while True:
        keys = noise.words(messages.size)
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        if not (sorted_keys[1:] == sorted_keys[:-1]).any():
            return messages[order]


class Shuffler:
    """In one process: takes bundles of messages, gives them back as single messages in random order."""

    def __init__(self, noise: NoiseSource | None = None) -> None:
        self._noise = noise or NoiseSource.secure()
        self._bundles: list[Messages] = []

    def submit(self, messages: Messages) -> None:
        if messages.dtype != MESSAGE or messages.ndim != 1:
            raise BadBatch(f"messages have type {messages.dtype} and shape {messages.shape}; expected (label, bit)")
        self._bundles.append(messages.copy())

    def flush(self) -> Messages:
        """All messages submitted since the last flush, permuted; who sent which is forgotten."""
        bundles, self._bundles = self._bundles, []
        return permuted(np.concatenate(bundles) if bundles else np.zeros(0, dtype=MESSAGE), self._noise)


def submit_file(folder: Path, messages: Messages) -> Path:
    """Put one user's messages into the shuffler's folder under a random name, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    name = secrets.token_hex(16)
    part = folder / f"{name}.part"
    with part.open("wb") as file:
        np.save(file, messages, allow_pickle=False)
    return part.replace(folder / f"{name}.npy")


def shuffle_files(folder: Path, out: Path, noise: NoiseSource | None = None) -> int:
    """Permute all messages of a folder into one file, then delete what came in; how many messages."""
    bundles = []
    inbox = sorted(folder.glob("*.npy"))
    for path in inbox:
        bundle = np.load(path, allow_pickle=False)
        if bundle.dtype != MESSAGE or bundle.ndim != 1:
            raise BadBatch(f"messages have type {bundle.dtype} and shape {bundle.shape}; expected (label, bit)")
        bundles.append(bundle)
    mixed = permuted(
        np.concatenate(bundles) if bundles else np.zeros(0, dtype=MESSAGE), noise or NoiseSource.secure()
    )
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        np.save(file, mixed, allow_pickle=False)
    part.replace(out)
    for path in inbox:
        path.unlink()
    return int(mixed.size)


# The analyzer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """A verified batch: ones per counter, and how many users took part."""

    sums: Ints
    users: int


def tally(encoder: BitEncoder, messages: Messages, honest: float = 1.0) -> Tally:
    """Count the ones of every counter, after checking that every counter got the same, possible number of messages.

    Users may have stayed away as a whole, at most a fraction 1 − honest of those announced; a message that was
    dropped, doubled or altered beyond a bit makes the batch worthless, for its noise is no longer known.
    """
    C, each = encoder.num_counters, 1 + encoder.noise_bits
    if messages.dtype != MESSAGE or messages.ndim != 1:
        raise BadBatch(f"messages have type {messages.dtype} and shape {messages.shape}; expected (label, bit)")
    labels, bits = messages["label"].astype(np.int64), messages["bit"]
    if labels.size and int(labels.max()) >= C:
        raise BadBatch(f"a message names counter {int(labels.max())}; there are {C}, the batch is refused")
    if (bits > 1).any():
        raise BadBatch(f"a message carries {int(bits.max())} instead of a bit; the batch is refused")
    counts = np.bincount(labels, minlength=C)
    users = int(counts[0]) // each
    if (counts != users * each).any():
        odd = int(np.flatnonzero(counts != users * each)[0])
        raise BadBatch(
            f"counter {odd} got {int(counts[odd])} messages where {users} users send {users * each}: messages were "
            "dropped or doubled, and the batch is refused"
        )
    if users > encoder.users:
        raise BadBatch(f"messages of {users} users came in for a batch of {encoder.users}; the batch is refused")
    needed = max(2, honest_users(encoder.users, honest))
    if users < needed:
        raise BadBatch(
            f"messages of {users} users came in for a batch of {encoder.users}, whose noise needs at least {needed}; "
            "the batch is refused"
        )
    return Tally(np.bincount(labels, bits, minlength=C).astype(np.int64), users)


def honest_users(users: int, honest: float) -> int:
    """How many of a batch can be relied on: ⌊honest·n⌋, and rounding of a product is not held against it."""
    if not 0.0 < honest <= 1.0:
        raise ValueError(f"honest is {honest}; it must be a fraction in (0, 1]")
    return math.floor(users * honest * (1.0 + 1e-12))


def unbiased(encoder: BitEncoder, batch: Tally) -> NDArray[np.float64]:
    """Expected ones per counter: sum − users·noise_bits·p."""
    return np.asarray(batch.sums - batch.users * encoder.noise_bits * encoder.probability, dtype=np.float64)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Permute the messages of a batch.")
    parser.add_argument("folder", type=Path, help="where users put their messages")
    parser.add_argument("out", type=Path, help="the file for the analyzer")
    options = parser.parse_args(arguments)
    shuffle_files(options.folder, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
