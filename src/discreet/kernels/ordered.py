"""Rows of users who follow one another: which of them count, and what they add up to, in one pass over arrays.

The rules are those of the SQL in `people.counting`, whose results these loops must equal number for number. Arrays
are handed from function to function one by one: within tuples, compiled code would count who holds them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from discreet.kernels.jit import compiled_beside
from discreet.kernels.sha import digest_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

#: What is looked for: all rows that count; the rows that pilots are asked for; the rows that the others report.
EVERYTHING, VISITS, REPORTS = 0, 1, 2
#: What a row is marked with: no successor, the end, a cut, an answer that is none, no episode.
ALONE, TERMINATED, TRUNCATED, NO_ANSWER, NO_EPISODE = 1, 2, 4, 8, 16
#: Places in what is told about rows; the last are of the episode that is looked at and of what is noted.
USERS, LOGGED, READABLE, REPEATED, BELOW, ABOVE, KEPT, SERIAL, NOTES, EPISODES = range(10)
#: A note is 18 bits for a cell, 12 for a successor, 21 for what was paid and 12 for the step.
CELL_BITS, FOLLOWING_BITS, UNIT_BITS, STEP_BITS = 18, 12, 21, 12
PRIME = 2**31 - 1


class Columns(NamedTuple):
    """Rows in order of their users. Columns that the log does not have are empty, and marks that no row has."""

    user: Ints
    episode: Ints
    step: Ints
    state: Ints
    action: Ints
    reward: Floats
    following: Ints
    marks: Bytes


class Rules(NamedTuple):
    """What `LogFormat` says, in numbers."""

    states: int
    actions: int
    horizon: int
    first_step: int
    pooled: bool
    absorb: bool
    led: bool  # there is no column for the successor
    ended: int  # the state of those who ended
    unknown: int  # the successor that nobody knows, or −1
    alone: bool  # a row may have no successor
    episodes: int  # that count of every user
    first_visits: bool
    low: float
    width: float
    units: int
    successors: int  # that a code has room for


class Coins(NamedTuple):
    """What users toss, see `people.counting.OneStep`: a key as in `kernels.sha`, and below what one is a pilot."""

    state: Words
    rest: Bytes
    length: int
    pilot: int
    weights: Floats


class Sums(NamedTuple):
    """What rows add up to, and room for one episode."""

    table: Ints  # (codes, 2) how many, and what they paid; or by cell
    told: Ints
    met: Ints  # (4, H + 1) by step: in which episode it was met in a readable row, and in which; in any row, in which
    kept: Ints  # (4, H) steps that count, their (s, a), codes and units
    visited: Ints  # (S·A,) in which episode a pair was last visited


class Notes(NamedTuple):
    """Steps that count, to be gone through again."""

    steps: Ints  # (rows,)
    episodes: Ints  # (episodes, 3) of whom, where it begins, which of hers


def sums_for(codes: int, horizon: int, pairs: int) -> Sums:
    shapes = (codes, 2), (10,), (4, horizon + 1), (4, horizon), (pairs,)
    return Sums(*(np.zeros(shape, dtype=np.int64) for shape in shapes))


@compiled_beside
def edges(user: Ints) -> tuple[int, int]:
    """Where the second user begins, and where the last one does; the length twice where there is but one."""
    n = user.size
    first, last = 1, n - 1
    while first < n and user[first] == user[0]:
        first += 1
    if first == n:
        return n, n
    while user[last - 1] == user[n - 1]:
        last -= 1
    return first, last


@compiled_beside
def swept(
    user: Ints,
    episode: Ints,
    step: Ints,
    state: Ints,
    action: Ints,
    reward: Floats,
    following: Ints,
    marks: Bytes,
    start: int,
    stop: int,
    rules: Rules,
    what: int,
    key: Words,
    rest: Bytes,
    length: int,
    pilot: int,
    weights: Floats,
    table: Ints,
    told: Ints,
    met: Ints,
    kept: Ints,
    visited: Ints,
    noted: Ints,
    episodes: Ints,
) -> bool:
    """Add the users in rows start..stop−1; False: they are not in order, or what is asked for has no one answer."""
    no_order, coins = np.empty(0, dtype=np.int64), np.zeros(4, dtype=np.int64)
    digest, words = np.empty(8, dtype=np.uint32), np.empty(64, dtype=np.uint32)
    i = start
    while i < stop:
        who = user[i]
        j = i + 1
        while j < stop and user[j] == who:
            j += 1
        if j < stop and user[j] < who:
            return False
        told[USERS] += 1
        if what != EVERYTHING:
            digest_of(key, rest, length, who, digest, words)
            if (_tossed(digest, coins) < pilot) != (what == VISITS):
                i = j
                continue
        order, numbered = no_order, j
        if episode.size and not _by_episode(episode, marks, i, j):
            order, numbered = _sorted(episode, marks, i, j)
        place, first = 0, i
        while first < j:  # her episodes, in order of their numbers; what is in none comes last
            last = j
            if episode.size and first < numbered:
                number, last = episode[order[first - i] if order.size else first], first + 1
                while last < numbered and episode[order[last - i] if order.size else last] == number:
                    last += 1
            n = 0
            if order.size == 0:
                n = _plain(step, state, action, reward, following, marks, first, last, rules, told, kept)
            whole = n > 0
            if not whole:
                whole, n = _listed(
                    step, state, action, reward, following, marks, i, first, last, order, rules, told, met, kept
                )
            if n < 0:
                return False
            if whole and first < numbered:
                place += 1
                if place <= rules.episodes:
                    _added(kept, n, place, rules, what, coins, weights, table, told, visited)
                    if noted.size and n:
                        _note(kept, n, place, who, rules, told, noted, episodes)
            first = last
        i = j
    return True


@compiled_beside
def _tossed(digest: Words, coins: Ints) -> np.int64:
    """The first coin, 13 hexadecimal digits of the digest; the four that follow, of 8 digits each, are kept."""
    for i in range(4):
        high, low = np.int64(digest[i + 1]), np.int64(digest[i + 2])  # from the 20th bit of one to that of the next
        coins[i] = ((high & 0xFFF) << 20 | low >> 12) % PRIME
    return np.int64(digest[0]) << 20 | np.int64(digest[1]) >> 12


@compiled_beside
def _by_episode(episode: Ints, marks: Bytes, start: int, stop: int) -> bool:
    """Whether rows are in order of their episodes, and all in one."""
    for i in range(start, stop):
        if (i > start and episode[i] < episode[i - 1]) or (marks.size and marks[i] & NO_EPISODE):
            return False
    return True


@compiled_beside
def _sorted(episode: Ints, marks: Bytes, start: int, stop: int) -> tuple[Ints, int]:
    """Rows in order of their episodes, those in none last; where these begin."""
    order, n = np.empty(stop - start, dtype=np.int64), 0
    for i in range(start, stop):
        if not (marks.size and marks[i] & NO_EPISODE):
            order[n] = i
            n += 1
    order[:n] = order[:n][np.argsort(episode[order[:n]], kind="mergesort")]
    last = n
    for i in range(start, stop):
        if marks.size and marks[i] & NO_EPISODE:
            order[last] = i
            last += 1
    return order, start + n


@compiled_beside
def _readable(s: int, a: int, y: int, h: int, mark: int, rules: Rules) -> bool:
    """Whether a row says what it must, its step and reward aside."""
    if not (0 <= s < rules.states and 0 <= a < rules.actions) or mark & NO_ANSWER:
        return False
    if rules.led or mark & TERMINATED or (mark & TRUNCATED and rules.unknown >= 0):
        return True
    if mark & ALONE:
        return rules.alone or (not rules.pooled and h == rules.horizon - 1)
    return 0 <= y < rules.states


@compiled_beside
def _leads_to(s: int, y: int, h: int, mark: int, cut: bool, rules: Rules) -> int:
    """0..S−1, the state of those who ended, or the successor that nobody knows; `cut`: the next step is missing."""
    follows = 0 <= y < rules.states
    if h == rules.horizon - 1:
        if not rules.pooled:
            return y if follows else s
        if rules.unknown >= 0 and rules.led:
            return rules.unknown
    if mark & TERMINATED:
        return rules.ended
    if mark & TRUNCATED and follows:
        return y
    if mark & TRUNCATED and rules.unknown >= 0:
        return rules.unknown
    if cut:
        return rules.ended
    if follows:
        return y
    return rules.unknown if rules.unknown >= 0 else rules.ended


@compiled_beside
def _units(paid: float, rules: Rules) -> int:
    """What was paid, on the grid."""
    return int(min(max(paid, 0.0), 1.0) * rules.units + 0.5)


@compiled_beside
def _code(pair: int, h: int, y: int, rules: Rules) -> int:
    """The flat index of (g, s, a, s')."""
    stage = 0 if rules.pooled else h * rules.successors * rules.actions
    return (stage + pair) * rules.successors + y


@compiled_beside
def _plain(
    step: Ints,
    state: Ints,
    action: Ints,
    reward: Floats,
    following: Ints,
    marks: Bytes,
    start: int,
    stop: int,
    rules: Rules,
    told: Ints,
    kept: Ints,
) -> int:
    """An episode of which the rows are the first steps in order and nothing is wrong with any: how many, else 0."""
    n, below, above, s = stop - start, 0, 0, state[start]
    if n > rules.horizon:
        return 0
    for k in range(n):
        i, last = start + k, k == n - 1
        mark = marks[i] if marks.size else 0
        following_state = s if last else state[i + 1]
        y = (-1 if last else following_state) if rules.led else (-1 if mark & ALONE else following[i])
        a, paid = action[i], (reward[i] - rules.low) / rules.width
        if step[i] != k + rules.first_step or paid != paid or not _readable(s, a, y, k, mark, rules):
            return 0
        if last:
            y = _leads_to(s, y, k, mark, rules.absorb and n < rules.horizon, rules)
        elif mark or not 0 <= y < rules.states:
            return 0
        below += paid < 0.0
        above += paid > 1.0
        pair = s * rules.actions + a
        kept[0, k], kept[1, k], kept[2, k], kept[3, k] = k, pair, _code(pair, k, y, rules), _units(paid, rules)
        s = following_state
    told[LOGGED] += n
    told[READABLE] += n
    told[BELOW] += below
    told[ABOVE] += above
    return n


@compiled_beside
def _listed(
    step: Ints,
    state: Ints,
    action: Ints,
    reward: Floats,
    following: Ints,
    marks: Bytes,
    base: int,
    start: int,
    stop: int,
    order: Ints,
    rules: Rules,
    told: Ints,
    met: Ints,
    kept: Ints,
) -> tuple[bool, int]:
    """(whether an episode is whole, how many of its steps count, or −1 if rows of one step contradict each other)."""
    H = rules.horizon
    told[SERIAL] += 1
    serial = told[SERIAL]
    readable, repeated, end, longest, below, above = 0, False, H, 0, 0, 0
    for at in range(start, stop):
        i = order[at - base] if order.size else at
        h, mark = step[i] - rules.first_step, marks[i] if marks.size else 0
        if rules.led and 0 <= h <= H:
            met[2, h], met[3, h] = -serial if abs(met[2, h]) == serial else serial, i
        paid = (reward[i] - rules.low) / rules.width
        below += paid < 0.0
        above += paid > 1.0
        y = -1 if rules.led or mark & ALONE else following[i]
        if not 0 <= h < H or paid != paid or not _readable(state[i], action[i], y, h, mark, rules):
            continue
        readable += 1
        repeated = repeated or met[0, h] == serial
        met[0, h], met[1, h] = serial, i
        longest = max(longest, h + 1)
        if mark & (TERMINATED | TRUNCATED) or (mark & ALONE and rules.absorb and h < H - 1):
            end = min(end, h + 1)
    told[LOGGED] += stop - start
    told[READABLE] += readable
    told[REPEATED] += repeated
    told[BELOW] += below
    told[ABOVE] += above
    if readable == 0 or repeated:
        return False, 0
    length, n = min(end, longest), 0
    if rules.absorb:
        length = 0
        while length < end and met[0, length] == serial:
            length += 1
    for h in range(length):
        if met[0, h] != serial:
            continue
        i = met[1, h]
        mark = marks[i] if marks.size else 0
        y = -1
        if not rules.led:
            y = -1 if mark & ALONE else following[i]
        elif met[2, h] != serial or met[2, h + 1] == -serial:
            return True, -1
        elif met[2, h + 1] == serial and not mark & TRUNCATED:
            y = state[met[3, h + 1]]
        y = _leads_to(state[i], y, h, mark, rules.absorb and h == length - 1 and length < H, rules)
        pair = state[i] * rules.actions + action[i]
        kept[0, n], kept[1, n], kept[2, n] = h, pair, _code(pair, h, y, rules)
        kept[3, n] = _units((reward[i] - rules.low) / rules.width, rules)
        n += 1
    return True, n


@compiled_beside
def _added(
    kept: Ints,
    n: int,
    place: int,
    rules: Rules,
    what: int,
    coins: Ints,
    weights: Floats,
    table: Ints,
    told: Ints,
    visited: Ints,
) -> None:
    """Add what counts of an episode."""
    H = rules.horizon
    if what == EVERYTHING:
        told[KEPT] += n
        told[SERIAL] += 1
        for k in range(n):
            if rules.first_visits:
                if visited[kept[1, k]] == told[SERIAL]:
                    continue
                visited[kept[1, k]] = told[SERIAL]
            table[kept[2, k], 0] += 1
            table[kept[2, k], 1] += kept[3, k]
        return
    wanted = int(float(_step_coin(coins, rules.episodes * H + place)) * H / PRIME) if what == VISITS else 0
    for k in range(n):
        h, cell = kept[0, k], kept[1, k]
        if not rules.pooled:
            cell += h * rules.states * rules.actions
        if what == VISITS:
            table[cell, 0] += h == wanted
        elif float(_step_coin(coins, (place - 1) * H + h + 1)) * (H - h) < weights[cell] * PRIME:
            table[kept[2, k], 0] += 1
            table[kept[2, k], 1] += kept[3, k]
            return


@compiled_beside
def _note(kept: Ints, n: int, place: int, who: int, rules: Rules, told: Ints, noted: Ints, episodes: Ints) -> None:
    """Write down what counts of an episode."""
    at, e = told[NOTES], told[EPISODES]
    episodes[e, 0], episodes[e, 1], episodes[e, 2] = who, at, place
    for k in range(n):
        h, y = kept[0, k], kept[2, k] % rules.successors
        cell = kept[1, k] if rules.pooled else h * rules.states * rules.actions + kept[1, k]
        noted[at + k] = ((cell << FOLLOWING_BITS | y) << UNIT_BITS | kept[3, k]) << STEP_BITS | h
    told[NOTES] += n
    told[EPISODES] += 1


@compiled_beside
def toss(episodes: Ints, key: Words, rest: Bytes, length: int, pilot: int, tossed: Words) -> None:
    """(episodes, 5) The coins of whoever an episode is of, and whether she is a pilot."""
    coins = np.zeros(4, dtype=np.int64)
    digest, words = np.empty(8, dtype=np.uint32), np.empty(64, dtype=np.uint32)
    for e in range(episodes.shape[0]):
        if e and episodes[e, 0] == episodes[e - 1, 0]:
            tossed[e] = tossed[e - 1]
            continue
        digest_of(key, rest, length, episodes[e, 0], digest, words)
        tossed[e, 4] = _tossed(digest, coins) < pilot
        for i in range(4):
            tossed[e, i] = coins[i]


@compiled_beside
def asked(
    noted: Ints,
    episodes: Ints,
    tossed: Words,
    rules: Rules,
    what: int,
    weights: Floats,
    table: Ints,
    told: Ints,
    kept: Ints,
    visited: Ints,
) -> None:
    """Add what pilots are asked for, or what the others report, from notes."""
    pairs, coins = rules.states * rules.actions, np.zeros(4, dtype=np.int64)
    for e in range(episodes.shape[0]):
        if (tossed[e, 4] == 1) != (what == VISITS):
            continue
        start = episodes[e, 1]
        n = (episodes[e + 1, 1] if e + 1 < episodes.shape[0] else noted.size) - start
        for i in range(4):
            coins[i] = tossed[e, i]
        for k in range(n):
            note = noted[start + k]
            h, y = note & ((1 << STEP_BITS) - 1), note >> (STEP_BITS + UNIT_BITS) & ((1 << FOLLOWING_BITS) - 1)
            pair = note >> (STEP_BITS + UNIT_BITS + FOLLOWING_BITS)
            pair -= 0 if rules.pooled else h * pairs
            kept[0, k], kept[1, k], kept[2, k] = h, pair, _code(pair, h, y, rules)
            kept[3, k] = note >> STEP_BITS & ((1 << UNIT_BITS) - 1)
        _added(kept, n, episodes[e, 2], rules, what, coins, weights, table, told, visited)


@compiled_beside
def _step_coin(coins: Ints, x: int) -> int:
    """k₀ + k₁x + k₂x² + k₃x³ modulo a prime."""
    found: int = coins[3]
    for i in range(3):
        found = (found * x + coins[2 - i]) % PRIME
    return found


@compiled_beside
def swept_alone(
    step: Ints,
    state: Ints,
    action: Ints,
    reward: Floats,
    following: Ints,
    marks: Bytes,
    rules: Rules,
    table: Ints,
    told: Ints,
) -> None:
    """Add all rows that can be read, whoever they are of; there is a column for successors."""
    below, above, n = 0, 0, 0
    for i in range(step.size):
        h, mark = step[i] - rules.first_step, marks[i] if marks.size else 0
        paid = (reward[i] - rules.low) / rules.width
        below += paid < 0.0
        above += paid > 1.0
        y = -1 if mark & ALONE else following[i]
        if not 0 <= h < rules.horizon or paid != paid or not _readable(state[i], action[i], y, h, mark, rules):
            continue
        n += 1
        y = _leads_to(state[i], y, h, mark, False, rules)
        code = _code(state[i] * rules.actions + action[i], h, y, rules)
        table[code, 0] += 1
        table[code, 1] += _units(paid, rules)
    told[KEPT] += n
    told[BELOW] += below
    told[ABOVE] += above
