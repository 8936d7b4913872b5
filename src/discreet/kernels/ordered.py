"""Rows of users who follow one another: which of them count, noted in one pass over arrays, and what notes add up to.

The rules are those of the SQL in `people.bounding`, whose results these loops must equal number for number. Arrays
are handed from function to function one by one: within tuples, compiled code would count who holds them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from discreet.kernels.jit import compiled_beside
from discreet.kernels.sha import digests_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]
Halves = npt.NDArray[np.uint16]
Bytes = npt.NDArray[np.uint8]

#: What a row is marked with: no successor, the end, a cut, an answer that is none, no episode.
ALONE, TERMINATED, TRUNCATED, NO_ANSWER, NO_EPISODE = 1, 2, 4, 8, 16
#: Places in what is told about rows; the last are of the episode that is looked at and of what is noted.
USERS, LOGGED, READABLE, REPEATED, BELOW, ABOVE, KEPT, SERIAL, NOTES, EPISODES = range(10)
#: Numbers of 64 bits that a vector of the compiler may have.
LANES = 8
#: A note is 22 bits for a code, 29 for what was paid and 12 for the step.
CODE_BITS, UNIT_BITS, STEP_BITS = 22, 29, 12
STEPS, UNITS = (1 << STEP_BITS) - 1, (1 << UNIT_BITS) - 1
PRIME = np.uint64(2**31 - 1)
#: Digests that are held at a time.
FEW = 1 << 10
#: Of the first coin of whoever is a pilot; the others are below it.
PILOT = np.uint32(2**31)


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


class Notes(NamedTuple):
    """Steps that count: the flat index of (g, s, a, s'), what was paid, and the step."""

    steps: Ints  # (rows,)
    who: Ints  # (episodes,) of whom it is
    places: Words  # (episodes, 2) where it begins, which of hers it is


class Layout(NamedTuple):
    """How notes are packed: into so many planes of 16 bits, without the bits that are 0 in all of them."""

    planes: int
    zeros: int  # at the end of what was paid
    unit_bits: int
    step_bits: int  # 0: the steps of every episode are 0, 1, …


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
    told: Ints,
    met: Ints,
    noted: Ints,
    whose: Ints,
    places: Words,
) -> bool:
    """Note the users in rows start..stop−1; False: they are not in order, or what is asked for has no one answer.

    `met` (4, H + 1), by step: in which episode it was met in a readable row, and in which; in any row, in which.
    """
    no_order = np.empty(0, dtype=np.int64)
    told[NOTES] = told[EPISODES] = 0
    after, simple = state[1:] if rules.led else following, marks.size == 0 and not rules.led
    end = min(stop, after.size)
    _rows(
        step[start:end], state[start:end], action[start:end], reward[start:end], after[start:end], rules, told, noted
    )
    _clipped(reward[end:stop], rules, told)
    i = start
    while i < stop:
        who = user[i]
        j = i + 1
        while j < stop and user[j] == who:
            j += 1
        if j < stop and user[j] < who:
            return False
        told[USERS] += 1
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
            n, at, own, size = 0, told[NOTES], first - start, last - first
            if (
                order.size == 0
                and size <= rules.horizon
                and _first_steps(noted[own : own + size - 1], marks[first : last - 1])
            ):
                note = noted[own + size - 1]  # says where its row leads, unless its episode ended there
                if not simple or (rules.absorb and size < rules.horizon):
                    note = _last(step, state, action, reward, following, marks, last - 1, size, rules)
                if note >= 0 and note & STEPS == size - 1:
                    n = size
                    if at < own:
                        for k in range(n):
                            noted[at + k] = noted[own + k]
                    noted[at + n - 1] = note
                    told[LOGGED] += n
                    told[READABLE] += n
            whole = n > 0
            if not whole:
                whole, n = _listed(
                    step, state, action, reward, following, marks, i, first, last, order, rules, told, met, noted, at
                )
            if n < 0:
                return False
            if whole and first < numbered:
                place += 1
                if n and place <= rules.episodes:
                    e = told[EPISODES]
                    whose[e], places[e, 0], places[e, 1] = who, at, place
                    told[EPISODES] += 1
                    told[NOTES] += n
                    told[KEPT] += n
            first = last
        i = j
    return True


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
    paid = paid if paid > 0.0 else 0.0
    return int((paid if paid < 1.0 else 1.0) * rules.units + 0.5)


@compiled_beside
def _code(s: int, a: int, h: int, y: int, rules: Rules) -> int:
    """The flat index of (g, s, a, s')."""
    row = s if rules.pooled else h * rules.successors + s
    return (row * rules.actions + a) * rules.successors + y


@compiled_beside
def _note(s: int, a: int, h: int, y: int, paid: float, rules: Rules) -> int:
    return (_code(s, a, h, y, rules) << UNIT_BITS | _units(paid, rules)) << STEP_BITS | h


@compiled_beside
def _rows(
    step: Ints, state: Ints, action: Ints, reward: Floats, after: Ints, rules: Rules, told: Ints, noted: Ints
) -> None:
    """A note of every row as if the next one followed it, −1 where something is wrong with it; and `_clipped`.

    Row by row from 0 on and without branches: the compiler makes vectors of it.
    """
    below, above = 0, 0
    S, A, Y, H = np.uint64(rules.states), np.uint64(rules.actions), rules.successors, np.uint64(rules.horizon)
    stage = 0 if rules.pooled else Y
    for i in range(step.size):
        s, a, y, h = state[i], action[i], after[i], step[i] - rules.first_step
        paid = (reward[i] - rules.low) / rules.width
        below += paid < 0.0
        above += paid > 1.0
        there = (np.uint64(s) < S) & (np.uint64(a) < A) & (np.uint64(y) < S) & (np.uint64(h) < H) & (paid == paid)
        code = ((h * stage + s) * rules.actions + a) * Y + y
        noted[i] = (code << UNIT_BITS | _units(paid, rules)) << STEP_BITS | h if there else -1
    told[BELOW] += below
    told[ABOVE] += above


@compiled_beside
def _clipped(reward: Floats, rules: Rules, told: Ints) -> None:
    """How many rewards are out of their range."""
    below, above = 0, 0
    for i in range(reward.size):
        paid = (reward[i] - rules.low) / rules.width
        below += paid < 0.0
        above += paid > 1.0
    told[BELOW] += below
    told[ABOVE] += above


@compiled_beside
def _first_steps(noted: Ints, marks: Bytes) -> bool:
    """Whether rows are the first steps in order, nothing is wrong with any and none is marked."""
    wrong = 0
    for k in range(noted.size):
        wrong |= (noted[k] ^ k) & STEPS | noted[k] >> 63
    for k in range(marks.size):
        wrong |= marks[k]
    return wrong == 0


@compiled_beside
def _last(
    step: Ints,
    state: Ints,
    action: Ints,
    reward: Floats,
    following: Ints,
    marks: Bytes,
    i: int,
    size: int,
    rules: Rules,
) -> int:
    """A note of the last row of an episode that has all of its first steps; −1 where something is wrong with it."""
    mark, h = marks[i] if marks.size else 0, step[i] - rules.first_step
    y = -1 if rules.led or mark & ALONE else following[i]
    s, a, paid = state[i], action[i], (reward[i] - rules.low) / rules.width
    if h != size - 1 or paid != paid or not _readable(s, a, y, h, mark, rules):
        return -1
    return _note(s, a, h, _leads_to(s, y, h, mark, rules.absorb and size < rules.horizon, rules), paid, rules)


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
    noted: Ints,
    at: int,
) -> tuple[bool, int]:
    """Note an episode: (whether it is whole; how many of its steps count, or −1 if rows of one step contradict)."""
    H = rules.horizon
    told[SERIAL] += 1
    serial = told[SERIAL]
    readable, repeated, end, longest = 0, False, H, 0
    for row in range(start, stop):
        i = order[row - base] if order.size else row
        h, mark = step[i] - rules.first_step, marks[i] if marks.size else 0
        if rules.led and 0 <= h <= H:
            met[2, h], met[3, h] = -serial if abs(met[2, h]) == serial else serial, i
        paid = (reward[i] - rules.low) / rules.width
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
        noted[at + n] = _note(state[i], action[i], h, y, (reward[i] - rules.low) / rules.width, rules)
        n += 1
    return True, n


@compiled_beside
def _end(places: Words, e: int, size: int) -> int:
    """Where the notes of an episode end."""
    return int(places[e + 1, 0]) if e + 1 < places.shape[0] else size


@compiled_beside
def counted(noted: Ints, places: Words, rules: Rules, table: Ints, visited: Ints) -> None:
    """Add all that is noted; `visited` (s, a): the last episode with a visit, where only first visits count."""
    if not rules.first_visits:
        for note in noted:
            _add(note, table)
        return
    visited[:] = -1
    for e in range(places.shape[0]):
        for i in range(int(places[e, 0]), _end(places, e, noted.size)):
            pair = (noted[i] >> (UNIT_BITS + STEP_BITS)) // rules.successors % visited.size
            if visited[pair] != e:
                visited[pair] = e
                _add(noted[i], table)


@compiled_beside
def _add(note: int, table: Ints) -> None:
    code = note >> (UNIT_BITS + STEP_BITS)
    table[code, 0] += 1
    table[code, 1] += note >> STEP_BITS & UNITS


@compiled_beside
def _bits(number: int) -> int:
    found = 0
    while number >> found:
        found += 1
    return found


@compiled_beside
def layout_of(noted: Ints, places: Words) -> Layout:
    """The narrowest layout for some notes."""
    used, skipped = 0, 0
    for e in range(places.shape[0]):
        start = int(places[e, 0])
        for i in range(start, _end(places, e, noted.size)):
            used |= noted[i]
            skipped |= (noted[i] & STEPS) ^ (i - start)
    paid, zeros = used >> STEP_BITS & UNITS, 0
    while paid and not paid >> zeros & 1:
        zeros += 1
    unit_bits, step_bits = _bits(paid >> zeros), _bits(used & STEPS) if skipped else 0
    bits = _bits(used >> (UNIT_BITS + STEP_BITS)) + unit_bits + step_bits
    return Layout(max(1, (bits + 15) // 16), zeros, unit_bits, step_bits)


@compiled_beside
def pack(noted: Ints, layout: Layout, packed: Halves) -> None:
    """(planes · notes,) The notes, plane after plane."""
    n, units, steps = noted.size, (1 << layout.unit_bits) - 1, (1 << layout.step_bits) - 1
    for plane in range(layout.planes):
        for i in range(n):
            code, paid = noted[i] >> (UNIT_BITS + STEP_BITS), noted[i] >> (STEP_BITS + layout.zeros) & units
            value = (code << layout.unit_bits | paid) << layout.step_bits | (noted[i] & steps)
            packed[plane * n + i] = np.uint16(value >> (16 * plane))


@compiled_beside
def _taken(packed: Halves, planes: int, size: int, start: int, stop: int, values: Ints) -> None:
    """The packed notes start..stop−1 of so many, every one of them in one number."""
    first = packed[start:stop]
    for k in range(first.size):
        values[k] = first[k]
    for plane in range(1, planes):
        more = packed[plane * size + start : plane * size + stop]
        for k in range(more.size):
            values[k] |= np.int64(more[k]) << (16 * plane)


@compiled_beside
def _unpacked(value: int, k: int, layout: Layout) -> int:
    """The note that is number k of its episode."""
    paid = (value >> layout.step_bits & ((1 << layout.unit_bits) - 1)) << layout.zeros
    step = value & ((1 << layout.step_bits) - 1) if layout.step_bits else k
    return (value >> (layout.step_bits + layout.unit_bits) << UNIT_BITS | paid) << STEP_BITS | step


@compiled_beside
def unpack(packed: Halves, layout: Layout, places: Words, noted: Ints) -> None:
    """The notes as they were."""
    _taken(packed, layout.planes, noted.size, 0, noted.size, noted)
    for e in range(places.shape[0]):
        start = int(places[e, 0])
        for i in range(start, _end(places, e, noted.size)):
            noted[i] = _unpacked(noted[i], i - start, layout)


@compiled_beside
def toss(who: Ints, key: Words, rest: Bytes, length: int, pilot: int, tossed: Words) -> None:
    """(episodes, 4) The coins of whoever an episode is of; the first is marked where she is a pilot.

    Of her digest 13 hexadecimal digits are the first coin, below `pilot` for a pilot; four follow, of 8 each.
    """
    digests = np.empty((FEW, 8), dtype=np.uint32)
    for first in range(0, who.size, FEW):
        some = who[first : first + FEW]
        digests_of(key, rest, length, some, digests)
        for e in range(some.size):
            words, coins = digests[e], tossed[first + e]
            for i in range(4):  # from the 20th bit of a word to that of the next
                coin = (np.uint64(words[i + 1]) & np.uint64(0xFFF)) << np.uint64(20) | np.uint64(words[i + 2] >> 12)
                coin = (coin & PRIME) + (coin >> np.uint64(31))
                coins[i] = coin - PRIME if coin >= PRIME else coin
            if (np.int64(words[0]) << 20 | np.int64(words[1]) >> 12) < pilot:
                coins[0] |= PILOT


@compiled_beside
def asked(
    packed: Halves,
    size: int,
    layout: Layout,
    places: Words,
    tossed: Words,
    rules: Rules,
    pilots: bool,
    weights: Floats,
    table: Ints,
) -> None:
    """Add the step that `pilots` are asked for, or the one that each of the others reports; `weights` are by code,
    times the prime."""
    H, of_step, code = rules.horizon, (1 << layout.step_bits) - 1, layout.step_bits + layout.unit_bits
    values, levels = np.zeros(H + LANES, dtype=np.int64), np.empty(H + LANES)
    for e in range(places.shape[0]):
        if (tossed[e, 0] >= PILOT) != pilots:
            continue
        start, stop, before = int(places[e, 0]), _end(places, e, size), (int(places[e, 1]) - 1) * H
        n, coins = stop - start, tossed[e]
        _taken(packed, layout.planes, size, start, stop, values)
        if pilots:
            wanted = int(float(_step_coin(coins, rules.episodes * H + int(places[e, 1]))) * H / PRIME)
            k = min(wanted, n - 1)  # in no later place, for steps are in order
            while k > 0 and _unpacked(values[k], k, layout) & STEPS > wanted:
                k -= 1
            note = _unpacked(values[k], k, layout)
            if note & STEPS == wanted:
                _add(note, table)
            continue
        for k in range(-(-n // LANES) * LANES):  # the compiler makes vectors of it, and nothing is left over
            h = values[k] & of_step if layout.step_bits else k
            levels[k] = float(_step_coin(coins, before + h + 1)) * (H - h)
        for k in range(n):
            if levels[k] < weights[values[k] >> code]:
                _add(_unpacked(values[k], k, layout), table)
                break


@compiled_beside
def _step_coin(coins: Words, number: int) -> np.int64:
    """k₀ + k₁x + k₂x² + k₃x³ modulo a prime, 2³¹ − 1: of a product, the bits above are as much as those below."""
    found = np.uint64(coins[3])
    for i in range(3):  # masks say that factors have 32 bits
        found = (found & PRIME) * (np.uint64(number) & PRIME) + (np.uint64(coins[2 - i]) & PRIME)
        found = (found & PRIME) + (found >> np.uint64(31))
        found = min(found, found - PRIME)
    return np.int64(found)


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
    noted: Ints,
) -> None:
    """Add all rows that can be read, whoever they are of; there is a column for successors."""
    if marks.size == 0:
        _rows(step, state, action, reward, following, rules, told, noted)
        for i in range(step.size):
            if noted[i] >= 0:
                _add(noted[i], table)
                told[KEPT] += 1
        return
    _clipped(reward, rules, told)
    for i in range(step.size):
        h, mark = step[i] - rules.first_step, marks[i]
        paid = (reward[i] - rules.low) / rules.width
        y = -1 if mark & ALONE else following[i]
        if not 0 <= h < rules.horizon or paid != paid or not _readable(state[i], action[i], y, h, mark, rules):
            continue
        y = _leads_to(state[i], y, h, mark, False, rules)
        _add(_note(state[i], action[i], h, y, paid, rules), table)
        told[KEPT] += 1
