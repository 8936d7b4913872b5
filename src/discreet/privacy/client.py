"""What runs on a user's own device: one episode in, one randomised report out.

Needs numpy and a noise source, and nothing of the server. A server publishes an encoder (public numbers only,
`to_json`); the device fills it in once with `encode` and sends the report. The episode stays on the device.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.privacy.noise import NoiseSource

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tables:
    """Public description of the tables reports are about; stages = 1 when steps are pooled over time."""

    num_states: int
    num_actions: int
    horizon: int
    stages: int
    grid: float
    reward_range: tuple[float, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward_range", (float(self.reward_range[0]), float(self.reward_range[1])))
        if min(self.num_states, self.num_actions, self.horizon) < 1 or self.stages not in (1, self.horizon):
            raise ValueError("tables need at least one state, action and step, and 1 or `horizon` stages")
        if not -math.inf < self.reward_range[0] < self.reward_range[1] < math.inf:
            raise ValueError(f"reward_range is {self.reward_range}; expected two finite numbers, low < high")
        if math.frexp(self.grid)[0] != 0.5 or self.grid > 1.0:
            raise ValueError(f"grid is {self.grid}; it must be a power of two, at most 1")

    @property
    def reward_units(self) -> int:
        """Largest reward in grid units, once the reward range has been scaled to [0, 1]."""
        return math.ceil(1.0 / self.grid)

    @property
    def cells(self) -> tuple[int, int, int]:
        """Number of counters of visits, transitions and rewards."""
        pairs = self.stages * self.num_states * self.num_actions
        return pairs, pairs * self.num_states, pairs

    def steps(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> tuple[Ints, Ints, Ints]:
        """Steps of one episode, or of one per row, as indices (g,s,a), (g,s,a,s') and rewards in whole grid units."""
        s, a, r = np.asarray(states), np.asarray(actions), np.asarray(rewards, dtype=np.float64)
        if a.ndim not in (1, 2) or r.shape != a.shape or s.shape != (*a.shape[:-1], a.shape[-1] + 1):
            raise ValueError(
                f"an episode has n actions, n rewards and n + 1 states, got {a.shape}, {r.shape}, {s.shape}"
            )
        if a.shape[-1] > self.horizon:
            raise ValueError(f"the episode has {a.shape[-1]} steps; the declared horizon is {self.horizon}")
        for name, values, limit in (("state", s, self.num_states), ("action", a, self.num_actions)):
            whole = values.size == 0 or np.issubdtype(values.dtype, np.integer)
            if not whole or (values.size and not (values.min() >= 0 and values.max() < limit)):
                raise ValueError(f"a {name} is not a whole number in 0..{limit - 1}")
        if np.isnan(r).any():
            raise ValueError("a reward is NaN; every reward must be a number")
        low, high = self.reward_range
        g = np.minimum(np.arange(a.shape[-1]), self.stages - 1)
        pairs = ((g * self.num_states + s[..., :-1]) * self.num_actions + a).astype(np.int64)
        units = np.rint((np.clip(r, low, high) - low) / (high - low) / self.grid).astype(np.int64)
        return pairs, pairs * self.num_states + s[..., 1:], units


@dataclass(frozen=True)
class Report:
    """One user's message: all a server ever learns about her. `form` names the encoder that made it."""

    user: str
    form: str
    payload: bytes

    def to_json(self) -> dict[str, str]:
        return {"user": self.user, "form": self.form, "payload": base64.b64encode(self.payload).decode("ascii")}

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> Report:
        fields = {name: message.get(name) for name in ("user", "form", "payload")}
        if set(message) != set(fields) or not all(isinstance(value, str) for value in fields.values()):
            raise ValueError("a report has three texts: user, form and payload")
        try:
            payload = base64.b64decode(str(fields["payload"]), validate=True)
        except ValueError:
            raise ValueError("the payload of a report must be base64") from None
        return cls(str(fields["user"]), str(fields["form"]), payload)

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json()).encode("utf-8")

    @classmethod
    def from_bytes(cls, message: bytes) -> Report:
        try:
            content = json.loads(message)
        except ValueError:
            raise ValueError("a report must be a JSON text") from None
        if not isinstance(content, dict):
            raise ValueError("a report must be a JSON object")
        return cls.from_json(content)


def _fingerprint(kind: str, encoder: Any) -> str:
    """Names an encoder by its public numbers, so that a report made with other numbers is not counted."""
    text = json.dumps([kind, asdict(encoder)], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


@dataclass(frozen=True)
class LaplaceEncoder:
    """Every counter of the user's own tables plus discrete Laplace noise, visited or not.

    Cost: one draw per counter, 8 bytes each.
    """

    tables: Tables
    scales: tuple[float, float, float]  # of visits, transitions, rewards, in integer units

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(float(scale) for scale in self.scales))
        if len(self.scales) != 3 or not all(0.0 <= scale < math.inf for scale in self.scales):
            raise ValueError(f"scales are {self.scales}; expected three finite numbers, none negative")

    @property
    def form(self) -> str:
        return _fingerprint("laplace", self)

    def to_json(self) -> dict[str, Any]:
        return {"encoder": "laplace", **asdict(self)}

    def contribution(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> Ints:
        """(N, T, R) of one episode, one after the other: raw, it stays on the device."""
        pairs, triples, units = self.tables.steps(states, actions, rewards)
        visits, transitions, _ = sizes = self.tables.cells
        values = np.zeros(sum(sizes), dtype=np.int64)
        np.add.at(values, pairs, 1)
        np.add.at(values, visits + triples, 1)
        np.add.at(values, visits + transitions + pairs, units)
        return values

    def randomise(self, values: Ints, noise: NoiseSource) -> Ints:
        """x + DLap(scale of the table) for every counter x of every row (one row per user)."""
        noisy = np.array(values, dtype=np.int64)
        start = 0
        for size, scale in zip(self.tables.cells, self.scales, strict=True):
            noisy[..., start : start + size] += noise.laplace(scale, (*noisy.shape[:-1], size))
            start += size
        return noisy

    def encode(
        self, user: str, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource
    ) -> Report:
        """The user's only message."""
        noisy = self.randomise(self.contribution(states, actions, rewards), noise)
        return Report(user, self.form, noisy.astype("<i8").tobytes())

    def values(self, report: Report) -> Ints:
        """The noisy counters of a report (for the server)."""
        if report.form != self.form or len(report.payload) != 8 * sum(self.tables.cells):
            raise ValueError("the report was made for another form; nothing was added")
        return np.frombuffer(report.payload, dtype="<i8").astype(np.int64)


@dataclass(frozen=True)
class SampledEncoder:
    """One step, drawn by the user's own coin, as one item in optimised unary encoding.

    The item is (g, s, a, s', bit) with P(bit = 1) = the reward, scaled to [0, 1]; an episode that is over before the
    drawn step has no item. The item's own position is on with probability ½, all others with q = flips/2⁶⁴.
    Cost: one word per position, one bit of message each.
    """

    tables: Tables
    flips: int

    def __post_init__(self) -> None:
        if not 0 <= self.flips < 2**63:
            raise ValueError(f"flips is {self.flips}; expected a whole number in 0..2⁶³−1, so that q < ½")

    @property
    def form(self) -> str:
        return _fingerprint("sampled-step", self)

    @property
    def num_items(self) -> int:
        return 2 * self.tables.cells[1]

    def to_json(self) -> dict[str, Any]:
        return {"encoder": "sampled-step", **asdict(self)}

    def items(self, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource) -> Ints:
        """The item of a uniformly drawn step, one per row: raw, it stays on the device. −1: over before that step."""
        _, triples, units = self.tables.steps(np.atleast_2d(states), np.atleast_2d(actions), np.atleast_2d(rewards))
        n, length = triples.shape
        h = below(noise, self.tables.horizon, n)
        coin = below(noise, self.tables.reward_units, n)
        if length == 0:
            return np.full(n, -1, dtype=np.int64)
        at = np.arange(n), np.minimum(h, length - 1)
        return np.where(h < length, 2 * triples[at] + (coin < units[at]), -1)

    def randomise(self, items: Ints, noise: NoiseSource) -> NDArray[np.bool_]:
        """A row of bits per item, P(on) = ½ at the item and q elsewhere; every bit reads one word in any case."""
        words = noise.words(items.size * self.num_items).reshape(items.size, self.num_items)
        bits = words < np.uint64(self.flips)
        rows = np.flatnonzero(items >= 0)
        bits[rows, items[rows]] = words[rows, items[rows]] < np.uint64(2**63)
        return bits

    def encode(
        self, user: str, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike, noise: NoiseSource
    ) -> Report:
        """The user's only message."""
        bits = self.randomise(self.items(states, actions, rewards, noise), noise)
        return Report(user, self.form, np.packbits(bits).tobytes())

    def values(self, report: Report) -> Ints:
        """The bits of a report (for the server)."""
        if report.form != self.form or len(report.payload) != -(-self.num_items // 8):
            raise ValueError("the report was made for another form; nothing was added")
        bits = np.unpackbits(np.frombuffer(report.payload, dtype=np.uint8))
        if bits[self.num_items :].any():
            raise ValueError("the report was made for another form; nothing was added")
        return bits[: self.num_items].astype(np.int64)


def below(noise: NoiseSource, limit: int, count: int) -> Ints:
    """`count` whole numbers, uniform on 0..limit−1, exactly: words in the incomplete last block are drawn again."""
    size = np.uint64(limit)
    largest = np.uint64(2**64 - 1 - 2**64 % limit)
    words = noise.words(count)
    while (again := words > largest).any():
        words[again] = noise.words(int(again.sum()))
    return (words % size).astype(np.int64)


def encoder_from_json(message: dict[str, Any]) -> LaplaceEncoder | SampledEncoder:
    """The encoder a server has published."""
    tables = Tables(**{**message["tables"], "reward_range": tuple(message["tables"]["reward_range"])})
    kind = message.get("encoder")
    if kind == "laplace":
        return LaplaceEncoder(tables, tuple(message["scales"]))
    if kind == "sampled-step":
        return SampledEncoder(tables, int(message["flips"]))
    raise ValueError(f"the encoder is {kind!r}; expected 'laplace' or 'sampled-step'")
