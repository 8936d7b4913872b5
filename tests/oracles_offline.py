"""Plain versions of what offline learning computes: loops over people, rows and cells."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from discreet.people.counting import Repairs, Rows, StepItems


def random_log(states: int, actions: int, horizon: int, users: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A log of users who go and act at random, one row per step, paid 0 or 1."""
    rng = np.random.default_rng(seed)
    walked = rng.integers(0, states, (users, horizon + 1))
    return {
        "user": np.repeat(np.arange(users), horizon),
        "step": np.tile(np.arange(horizon), users),
        "state": walked[:, :-1].ravel(),
        "action": rng.integers(0, actions, users * horizon),
        "reward": rng.integers(0, 2, users * horizon).astype(float),
        "next_state": walked[:, 1:].ravel(),
    }


def as_csv(log: dict[str, np.ndarray]) -> str:
    rows = zip(*log.values(), strict=True)
    return "\n".join([",".join(log), *(",".join(map(str, row)) for row in rows)]) + "\n"


def counted(rows: list[dict[str, Any]], log: Any) -> tuple[np.ndarray, np.ndarray]:
    """(transitions, reward units) by the rules of `LogFormat`, one row after the other."""
    spec = log.spec
    T, R = (np.zeros(spec.shapes()["transitions"], dtype=np.int64) for _ in range(2))
    episodes: dict[Any, dict[Any, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        episodes[row["user"]][row.get("episode", 0)].append(row)

    def whole(value: Any, limit: int) -> bool:
        return value is not None and 0 <= value < limit

    given = frozenset({"next_state"}) if log.given is None else log.given
    H, S = log.horizon, log.num_states
    absorb, ended, unknown = log.early_end == "absorb", S, S + log.has_ended

    def flag(row: dict[str, Any], role: str) -> bool:
        return role in given and bool(row[role])

    def readable(row: dict[str, Any]) -> bool:
        followed = whole(row["next_state"], S) or flag(row, "terminated")
        followed |= log.has_unknown and (row["next_state"] is None or flag(row, "truncated"))
        followed |= row["next_state"] is None and (absorb or (not log.pooled and row["step"] == H - 1))
        return (
            whole(row["step"], H)
            and whole(row["state"], S)
            and whole(row["action"], log.num_actions)
            and row["reward"] is not None
            and not math.isnan(row["reward"])
            and followed
        )

    def stops(row: dict[str, Any]) -> bool:
        missing = absorb and "next_state" in given and row["next_state"] is None and row["step"] < H - 1
        return missing or flag(row, "terminated") or flag(row, "truncated")

    def successor(row: dict[str, Any], length: int) -> int:
        y = row["next_state"]
        if not log.pooled and row["step"] == H - 1:
            return int(y) if whole(y, S) else int(row["state"])
        if log.pooled and row["step"] == H - 1 and log.has_unknown and "next_state" not in given:
            return unknown
        if flag(row, "terminated"):
            return ended
        if flag(row, "truncated"):
            return int(y) if whole(y, S) else unknown
        if absorb and row["step"] == length - 1 and length < H:
            return ended
        if y is not None:
            return int(y)
        return unknown if log.has_unknown else ended

    for by_episode in episodes.values():
        kept = 0
        for number in sorted(by_episode):
            if "next_state" not in given:
                after = {row["step"]: row["state"] for row in by_episode[number]}
                for row in by_episode[number]:
                    y = None if row["step"] is None else after.get(row["step"] + 1)
                    row["next_state"] = y if whole(y, S) and not flag(row, "truncated") else None
            good = [row for row in by_episode[number] if readable(row)]
            steps = [row["step"] for row in good]
            if not good or len(set(steps)) != len(steps):
                continue
            kept += 1
            if kept > log.episodes_per_user:
                break
            length = H
            if absorb:
                length = next((h for h in range(H) if h not in steps), H)
            length = min([length, *(row["step"] + 1 for row in good if stops(row))])
            for row in good:
                if row["step"] >= length:
                    continue
                y = successor(row, length)
                low, high = log.reward_range
                share = min(max((row["reward"] - low) / (high - low), 0.0), 1.0)
                where = (0 if log.pooled else row["step"], row["state"], row["action"], y)
                T[where] += 1
                R[where] += math.floor(share * spec.reward_units + 0.5)
    return T, R


def histogram(T: np.ndarray, R: np.ndarray, units: int, cells: Any) -> np.ndarray:
    """Items of the one-hot learner, cell by cell."""
    G, _, A, _ = T.shape
    out = np.zeros(cells.admitted.shape, dtype=np.int64)
    for g in range(G):
        for s in range(cells.num_states):
            for a in range(A):
                c = (g * cells.num_states + s) * A + a
                for y in range(cells.num_successors):
                    column = 2 * (0 if not cells.pooled and g == G - 1 else y)
                    paid = R[g, s, a, y] if cells.admitted[c, column + 1] else 0
                    out[c, column] += T[g, s, a, y] * units - paid
                    out[c, column + 1] += paid
    return out


def reading(release: Any, strictness: float, doubt: float, strictest: float, surplus: float, signal: float) -> Any:
    """(shares, counts, known) of one reading of a noisy histogram, cell by cell; rewards unknown."""
    sd = math.sqrt(release.variance)
    shares, counts, known = [], [], []
    for row, exists in zip(release.values, release.cells.admitted, strict=True):
        items = {x: row[x] for x in range(len(row)) if exists[x]}
        low = math.log(len(items) / doubt) * sd / math.sqrt(2)
        threshold = low + strictness * max(strictest * release.width - low, 0.0)
        kept = {x: v for x, v in items.items() if v > threshold}
        total = sum(kept.values())
        whole = sum(items.values())
        if total < max(5.0, (threshold + surplus * sd) * math.sqrt(len(kept) + 1)):
            kept = {}
            if whole > 0.0 and whole >= signal * sd * math.sqrt(len(items)):
                low, high = min(items.values()) - whole, max(items.values())
                for _ in range(200):  # max(0, item − shift) sums to the whole
                    shift = (low + high) / 2
                    low, high = (
                        (shift, high) if sum(max(0.0, v - shift) for v in items.values()) > whole else (low, shift)
                    )
                kept, total = {x: max(0.0, v - high) for x, v in items.items()}, whole
        shares.append([kept.get(x, 0.0) / sum(kept.values()) if kept else 0.0 for x in range(len(row))])
        counts.append(total)
        known.append(bool(kept))
    return np.array(shares), np.array(counts), np.array(known)


def differences(release: Any, shares: np.ndarray, known: np.ndarray) -> list[list[float]]:
    """For every cell (s, a) the list of t of its items at all steps but the last, item by item; none if not known."""
    G, columns = release.cells.stages, release.values.shape[1]
    pairs = len(release.values) // G
    found: list[list[float]] = [[] for _ in range(pairs)]
    for c in range(pairs):
        items = [x for x in range(columns) if release.cells.admitted[c, x]]
        for g in range(G - 1):
            row = release.values[g * pairs + c]
            N = sum(row[x] for x in items)
            for x in items if known[c] else []:
                p = shares[c][x]
                spread = release.variance * ((1 - p) ** 2 + (len(items) - 1) * p * p) + max(N, 0.0) * p * (1 - p)
                found[c].append((row[x] - N * p) ** 2 / spread)
    return found


def cautious_quality(
    shares: np.ndarray,
    counts: np.ndarray,
    known: np.ndarray,
    sd: float,
    horizon: int,
    S: int,
    A: int,
    options: Any,
    follow: np.ndarray | None = None,
    ended: float = 0.0,
    unknown: bool = False,
) -> np.ndarray:
    """Q of the one-hot learner by the formula of its docstring, with plain loops; rewards unknown.

    Of Y successors, S is of those who left if there is one, and the last one is unknown where `unknown`.
    """
    c_, d, k, iota = options
    Y, G = shares.shape[1] // 2 - unknown, len(counts) // (S * A)
    V = np.zeros(Y)
    quality = np.zeros((horizon, S, A))
    for h in reversed(range(horizon)):
        g, left = min(h, G - 1), horizon - h - 1
        quality[h] = left * min(0.0, ended)
        for s in range(S):
            for a in range(A):
                c = (g * S + s) * A + a
                if not known[c]:
                    continue
                p, n = shares[c], counts[c]
                places = p[: 2 * Y].reshape(Y, 2).sum(axis=1)
                lost = places @ V / places.sum() if places.sum() > 0 else V.min()
                everywhere = [*V, lost] if unknown else [*V]
                v = np.array([value + bit for value in everywhere for bit in (0.0, 1.0)])
                mean = float(p @ v)
                variance = float(p @ (v - mean) ** 2)
                q = mean - c_ * (math.sqrt(2 * variance * iota / n) + (V.max() - V.min()) * iota / (3 * n))
                q -= min(1.0, d * sd / n) * (mean - V.min())
                q -= k * sd / n * math.sqrt(sum(max(0.0, v[x] - mean) ** 2 for x in range(v.size) if p[x] > 0))
                quality[h, s, a] = min(max(q, left * min(0.0, ended)), 1 + left * max(1.0, ended))
        V = np.zeros(Y)
        V[S:] = (horizon - h) * ended
        V[:S] = quality[h].max(axis=1) if follow is None else quality[h][np.arange(S), follow[h]]
    return quality


def pessimistic_quality(P: np.ndarray, r: np.ndarray, penalty: Any, unknown: np.ndarray, horizon: int) -> np.ndarray:
    """Q = clip(r + PV − Γ, 0, H−h), 0 where unknown; penalty(g, s, a, variance of V) gives Γ."""
    G, S, A, _ = P.shape
    V = np.zeros(S)
    quality = np.zeros((horizon, S, A))
    for h in reversed(range(horizon)):
        g = min(h, G - 1)
        for s in range(S):
            for a in range(A):
                if unknown[g, s, a]:
                    continue
                mean = P[g, s, a] @ V
                variance = P[g, s, a] @ (V - mean) ** 2
                quality[h, s, a] = min(max(r[g, s, a] + mean - penalty(g, s, a, variance), 0.0), horizon - h)
        V = quality[h].max(axis=1)
    return quality


# Rows in memory -----------------------------------------------------------------------------------------------------


PRIME = 2**31 - 1


def tossed(*parts: Any) -> tuple[str, int]:
    """(digest, its first 52 bits)."""
    digest = hashlib.sha256("".join(map(str, parts)).encode()).hexdigest()
    return digest, int(digest[:13], 16)


@dataclass(eq=False)
class Trajectories:
    """Rows in the order (person, episode, step): what the database is asked for, by loops over them."""

    log: Any
    person: np.ndarray
    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray
    units: np.ndarray
    num_users: int
    episode: np.ndarray | None = None
    places: dict[tuple[Any, Any], int] = field(default_factory=lambda: defaultdict(int))  # of her episodes, from 0
    repairs: Repairs = field(default_factory=Repairs)

    @cached_property
    def episodes(self) -> dict[tuple[Any, Any], list[int]]:
        found: dict[tuple[Any, Any], list[int]] = defaultdict(list)
        numbers = np.zeros_like(self.person) if self.episode is None else self.episode
        for i, who in enumerate(zip(self.person.tolist(), numbers.tolist(), strict=True)):
            found[who].append(i)
        return found

    @cached_property
    def cells(self) -> list[int]:
        stage = 0 if self.log.pooled else self.step
        cells = (stage * self.log.num_states + self.state) * self.log.num_actions + self.action
        return cells.tolist()

    def ask(self, key: str, pilot: float) -> None:
        self.digests = {who[0]: tossed(key, ":", who[0])[0] for who in self.episodes}
        self.pilots = {who: int(digest[:13], 16) < int(pilot * 2**52) for who, digest in self.digests.items()}

    def coin(self, person: Any, x: int) -> int:
        digest = self.digests[person]
        return sum(int(digest[13 + 8 * j : 21 + 8 * j], 16) * x**j for j in range(4)) % PRIME

    def visits(self) -> np.ndarray:
        log = self.log
        found = np.zeros(log.spec.stages * log.num_states * log.num_actions, dtype=np.int64)
        for who, rows in self.episodes.items():
            if self.pilots[who[0]]:
                coin = self.coin(who[0], log.episodes_per_user * log.horizon + self.places[who] + 1)
                for i in rows:
                    if self.step[i] == math.floor(float(coin) * log.horizon / PRIME):
                        found[self.cells[i]] += 1
        return found

    def reports(self, weights: np.ndarray) -> StepItems:
        log, numbers, paid = self.log, defaultdict(int), defaultdict(int)
        S = log.spec.num_states
        for who, rows in self.episodes.items():
            for i in [] if self.pilots[who[0]] else rows:
                h = int(self.step[i])
                coin = self.coin(who[0], self.places[who] * log.horizon + h + 1)
                if float(coin) * (log.horizon - h) < weights[self.cells[i]] * PRIME:
                    pair = (int(self.state[i]), int(self.action[i]))
                    stage = 0 if log.pooled else h
                    code = ((stage * S + pair[0]) * log.num_actions + pair[1]) * S + int(self.next_state[i])
                    numbers[code] += 1
                    paid[code] += int(self.units[i])
                    break
        codes = np.array(sorted(numbers), dtype=np.int64)
        sums = (np.array([table[c] for c in codes.tolist()], dtype=np.int64) for table in (numbers, paid))
        return StepItems(codes, *sums, self.num_users, log.episodes_per_user)

    def gather(self, half: np.ndarray | None = None) -> None:
        place = np.unique(self.person, return_inverse=True)[1]
        self.half = None if half is None else half[place]

    def of(self, step: int, half: bool | None = None) -> Rows:
        there = self.step == step
        if half is not None:
            there &= self.half == half
        cells = self.state[there] * self.log.num_actions + self.action[there]
        return Rows(cells, self.next_state[there], self.units[there], np.ones(int(there.sum()), dtype=np.int64))


def full_stays(users: int, steps: int) -> dict[str, np.ndarray]:
    """The columns user and step of users with all their steps, in order."""
    return {"user": np.repeat(np.arange(users), steps), "step": np.tile(np.arange(steps), users)}
