"""Simulated problems with continuous columns: what logs with ages, prices and readings look like.

Eight on which choices were made (dosing, storage, marketing, cartpole, glucose, inventory, irrigation, tutoring), two
that were written after these (queue, orchard), many that are drawn at random (`generated`), on some of which later
choices were made, and ten that were kept for the last table (`FRESH`). People follow a sensible rule half of the time
and act at random else; the log holds how likely their action was. Values of policies are means over many simulated
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.offline.declaration import Column, Declaration
from discreet.people.stays import ENDED, ON, UNKNOWN, Stays

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Random = np.random.Generator
#: (columns, step) → actions, or −1 for "as now"
Acting = Callable[[Floats, int], Ints]
RANDOM = 0.5


@dataclass(frozen=True)
class Problem:
    """`first(n, rng)` gives states (n, d); `move(states, actions, rng)` their successors, rewards and who ended."""

    name: str
    columns: tuple[Column, ...]  # of the state, in order of importance; the state may hold more than is measured
    num_actions: int
    horizon: int
    rewards: tuple[float, float]
    first: Callable[[int, Random], Floats]
    rule: Callable[[Floats], Ints]
    move: Callable[[Floats, Ints, Random], tuple[Floats, Floats, NDArray[np.bool_]]]

    def behaviour(self, states: Floats) -> Floats:
        """(n, A)"""
        p = np.full((len(states), self.num_actions), RANDOM / self.num_actions)
        p[np.arange(len(states)), self.rule(states)] += 1.0 - RANDOM
        return p


@dataclass(frozen=True)
class Table:
    """Rows in the order (user, step)."""

    user: Ints
    step: Ints
    action: Ints
    reward: Floats
    propensity: Floats
    columns: Floats  # (N, d)


def simulate(problem: Problem, users: int, rng: Random, policy: Acting | None = None) -> Table:
    """Stays of so many users under a policy, or as now."""
    states, alive = problem.first(users, rng), np.arange(users)
    rows: list[tuple[Any, ...]] = []
    for h in range(problem.horizon):
        p = problem.behaviour(states)
        drawn = (rng.random(len(alive))[:, None] > np.cumsum(p, axis=1)).sum(axis=1).clip(0, problem.num_actions - 1)
        asked = np.full(len(alive), -1) if policy is None else policy(states[:, : len(problem.columns)], h)
        action = np.where(asked < 0, drawn, asked)
        following, reward, ended = problem.move(states, action, rng)
        reward = np.clip(reward, *problem.rewards)
        rows.append((alive, np.full(len(alive), h), action, reward, p[np.arange(len(alive)), action], states))
        states, alive = following[~ended], alive[~ended]
        if len(alive) == 0:
            break
    user, step, action, reward, propensity = (np.concatenate([row[i] for row in rows]) for i in range(5))
    columns = np.concatenate([row[5][:, : len(problem.columns)] for row in rows])
    order = np.lexsort((step, user))
    return Table(user[order], step[order], action[order], reward[order], propensity[order], columns[order])


def fine(columns: tuple[Column, ...], values: Floats) -> NDArray[np.uint8]:
    """The fine bins of rows: what `Column.bin` says of each of their values."""
    found = [np.searchsorted(np.array(c.fine), values[:, i], side="right") for i, c in enumerate(columns)]
    return np.column_stack(found).astype(np.uint8)


def declared(problem: Problem, propensity: bool = True) -> Declaration:
    return Declaration(
        problem.columns,
        problem.num_actions,
        problem.horizon,
        reward_range=problem.rewards,
        propensity="propensity" if propensity else None,
    )


def stays(problem: Problem, table: Table, users: int) -> Stays:
    """What the reader makes of such a log."""
    starts = np.flatnonzero(table.step == 0)
    leads = np.full(len(table.user), ON, dtype=np.uint8)
    offsets = np.append(starts, len(table.user))
    last = offsets[1:] - 1
    leads[last] = np.where(table.step[last] == problem.horizon - 1, UNKNOWN, ENDED)
    low, high = problem.rewards
    return Stays(
        table.user,
        offsets,
        table.step,
        table.action,
        (table.reward - low) / (high - low),
        table.propensity,
        fine(problem.columns, table.columns),
        leads,
        users,
    )


def acting(problem: Problem, states: Any, actions: Ints) -> Acting:
    """A table of actions over the states of a grid."""
    return lambda columns, step: actions[step, states.states_of(fine(problem.columns, columns))]


def value(problem: Problem, policy: Acting | None, users: int = 40_000, seed: int = 123) -> float:
    """Mean total reward; who ended earns 0 from then on."""
    stays = simulate(problem, users, np.random.default_rng(seed), policy)
    return float(stays.reward.sum() / users)


# Five kinds of columns ----------------------------------------------------------------------------------------------


def dosing() -> Problem:
    """Pressure, lactate, age; nothing, fluids, vasopressors, both. Staying alive pays, and so does getting well."""

    def first(n: int, rng: Random) -> Floats:
        severity = rng.beta(2.0, 3.0, n)
        age = rng.uniform(30.0, 90.0, n)
        pressure = 90.0 - 40.0 * severity + rng.normal(0.0, 8.0, n)
        lactate = np.exp(0.4 + 1.8 * severity + rng.normal(0.0, 0.25, n))
        return np.column_stack([pressure, lactate, age, np.zeros(n)])  # the last: fluids so far

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] < 65.0, 3, np.where(s[:, 1] > 3.0, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        pressure, lactate, age, load = s.T
        fluid, press = np.isin(a, (1, 3)), np.isin(a, (2, 3))
        load = 0.8 * load + fluid
        up = 8.0 * fluid * np.exp(-0.4 * load) + 14.0 * press * (pressure < 75.0) - 6.0 * press * (pressure >= 85.0)
        drift = 0.15 * (72.0 - pressure) - 1.2 * np.maximum(lactate - 2.0, 0.0)
        pressure = pressure + drift + up + rng.normal(0.0, 4.0, len(s))
        cleared = 0.05 + 0.3 * fluid * (lactate > 2.5) - 0.35 * (pressure < 62.0) - 0.25 * (press & (pressure > 75.0))
        cleared = cleared - 0.25 * (fluid & (lactate < 2.0))
        lactate = np.clip(lactate * np.exp(-cleared + rng.normal(0.0, 0.1, len(s))), 0.3, 20.0)
        risk = 0.002 + 0.02 * np.maximum(58.0 - pressure, 0.0) / 10.0 + 0.012 * np.maximum(lactate - 4.0, 0.0)
        risk = risk + 0.01 * np.maximum(load - 3.0, 0.0)
        died = rng.random(len(s)) < np.minimum(risk * (0.6 + age / 120.0), 0.9)
        well = 0.5 * ((pressure > 65.0) & (pressure < 95.0)) + 0.5 * (lactate < 2.0)
        return np.column_stack([pressure, lactate, age, load]), np.where(died, 0.0, 0.2 + 0.8 * well), died

    columns = (
        Column("map", 20.0, 140.0, edges=(55.0, 65.0, 75.0, 85.0)),
        Column("lactate", 0.2, 20.0, edges=(2.0, 4.0, 6.0)),
        Column("age", 18.0, 100.0),
    )
    return Problem("dosing", columns, 4, 10, (0.0, 1.0), first, rule, move)


def storage() -> Problem:
    """Price, charge, hour; sell, hold, buy one unit of energy."""

    def first(n: int, rng: Random) -> Floats:
        hour = rng.integers(0, 24, n).astype(np.float64)
        return np.column_stack([_price(hour, rng), rng.uniform(0.0, 6.0, n), hour])

    def _price(hour: Floats, rng: Random) -> Floats:
        return np.clip(
            50.0 + 25.0 * np.sin((hour - 12.0) / 24.0 * 2.0 * np.pi) + rng.normal(0, 12, len(hour)), 0, 120
        )

    def rule(s: Floats) -> Ints:
        return np.where((s[:, 0] > 60.0) & (s[:, 1] >= 1.0), 0, np.where((s[:, 0] < 40.0) & (s[:, 1] <= 5.0), 2, 1))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        price, charge, hour = s.T
        sold, bought = (a == 0) & (charge >= 1.0), (a == 2) & (charge <= 5.0)
        paid = price * sold - (price + 5.0) * bought - 8.0 * ((a == 0) & ~sold) - 8.0 * ((a == 2) & ~bought)
        charge = np.clip(charge - sold + 0.9 * bought - 0.02 * charge, 0.0, 6.0)
        hour = (hour + 2.0) % 24.0
        return np.column_stack([_price(hour, rng), charge, hour]), paid, np.zeros(len(s), np.bool_)

    columns = (
        Column("price", 0.0, 120.0, edges=(30.0, 45.0, 60.0, 75.0)),
        Column("charge", 0.0, 6.0, edges=(1.0, 3.0, 5.0)),
        Column("hour", 0.0, 24.0, edges=(6.0, 12.0, 18.0)),
    )
    return Problem("storage", columns, 3, 12, (-125.0, 120.0), first, rule, move)


def marketing() -> Problem:
    """Months since the last order, liking, what was spent; nothing, a letter, a discount."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack(
            [rng.exponential(3.0, n).clip(0, 12), rng.uniform(0, 1, n), rng.lognormal(3.0, 0.6, n)]
        )

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] > 3.0, 2, np.where(s[:, 1] > 0.4, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        recency, liking, spent = s.T
        pull = -0.8 + 1.5 * liking - 0.2 * recency
        pull = pull + (a == 1) * (2.0 * liking - 0.4) + (a == 2) * (0.4 + 0.35 * np.minimum(recency, 6.0))
        ordered = rng.random(len(s)) < 1.0 / (1.0 + np.exp(-pull))
        paid = ordered * spent * np.where(a == 2, 0.5, 0.8) - 1.5 * (a == 1) - 0.5 * (a == 2)
        liking = np.clip(liking + 0.08 * ordered - 0.09 * (a == 1) * (liking < 0.5) - 0.02, 0.0, 1.0)
        recency = np.where(ordered, 0.0, np.minimum(recency + 1.0, 12.0))
        gone = rng.random(len(s)) < 0.02 + 0.08 * (recency > 8.0)
        return np.column_stack([recency, liking, spent]), paid, gone

    columns = (
        Column("recency", 0.0, 12.0, edges=(1.0, 3.0, 6.0)),
        Column("liking", 0.0, 1.0, edges=(0.25, 0.5, 0.75)),
        Column("spent", 1.0, 200.0, log=True),
    )
    return Problem("marketing", columns, 3, 8, (-2.0, 60.0), first, rule, move)


def cartpole() -> Problem:
    """Angle, its speed, place, speed; push left or right. Standing pays 1."""

    def first(n: int, rng: Random) -> Floats:
        return rng.uniform(-1.0, 1.0, (n, 4)) * np.array([0.08, 0.6, 0.6, 0.4])

    def rule(s: Floats) -> Ints:
        return (s[:, 0] + 0.1 * s[:, 1] > 0.0).astype(np.int64)

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        angle, turning, place, speed = s.T
        push = np.where(a == 1, 10.0, -10.0) + rng.normal(0.0, 1.0, len(s))
        tau, cos, sin = 0.04, np.cos(angle), np.sin(angle)
        inner = (push + 0.05 * turning**2 * sin) / 1.1
        bend = (9.8 * sin - cos * inner) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        gain = inner - 0.05 * bend * cos / 1.1
        new = np.column_stack([angle + tau * turning, turning + tau * bend, place + tau * speed, speed + tau * gain])
        fallen = (np.abs(new[:, 0]) > 0.21) | (np.abs(new[:, 2]) > 2.4)
        return new, np.ones(len(s)), fallen

    columns = (
        Column("angle", -0.21, 0.21, edges=(-0.1, -0.03, 0.0, 0.03, 0.1)),
        Column("turning", -2.0, 2.0, edges=(-0.5, 0.0, 0.5)),
        Column("place", -2.4, 2.4),
        Column("speed", -2.0, 2.0),
    )
    return Problem("cartpole", columns, 2, 20, (0.0, 1.0), first, rule, move)


def glucose() -> Problem:
    """Glucose, insulin at work, the meal ahead; four doses. Time in range pays."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.normal(150, 40, n).clip(50, 350), rng.uniform(0, 2, n), _meal(n, rng)])

    def _meal(n: int, rng: Random) -> Floats:
        return np.where(rng.random(n) < 0.4, rng.uniform(20.0, 90.0, n), 0.0)

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] > 220.0, 3, np.where(s[:, 0] > 160.0, 2, np.where(s[:, 0] > 130.0, 1, 0)))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        level, insulin, meal = s.T
        insulin = 0.55 * insulin + a
        level = level + 1.1 * meal - 24.0 * insulin + 0.08 * (120.0 - level) + 10.0 + rng.normal(0, 12.0, len(s))
        level = np.clip(level, 30.0, 400.0)
        paid = 1.0 * ((level > 70) & (level < 180)) - 1.0 * (level < 60) - 0.3 * (level > 250)
        return np.column_stack([level, insulin, _meal(len(s), rng)]), paid, np.zeros(len(s), np.bool_)

    columns = (
        Column("glucose", 30.0, 400.0, edges=(70.0, 110.0, 140.0, 180.0, 250.0)),
        Column("insulin", 0.0, 7.0, edges=(0.5, 1.5, 3.0)),
        Column("meal", 0.0, 100.0, edges=(1.0, 40.0)),
    )
    return Problem("glucose", columns, 4, 12, (-1.0, 1.0), first, rule, move)


# Three more --------------------------------------------------------------------------------------------------------


def inventory() -> Problem:
    """Stock, demand of late, price; order nothing, some, much."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.uniform(0, 40, n), rng.uniform(5, 20, n), rng.uniform(4, 10, n)])

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] < 10.0, 2, np.where(s[:, 0] < 20.0, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        stock, demand, price = s.T
        ordered = np.array([0.0, 8.0, 20.0])[a]
        wanted = rng.poisson(demand)
        sold = np.minimum(stock + ordered, wanted)
        paid = price * sold - 3.0 * ordered - 2.0 * (a > 0) - 0.6 * np.maximum(stock + ordered - wanted, 0.0)
        stock = np.clip(stock + ordered - sold, 0.0, 60.0)
        demand = np.clip(demand + rng.normal(0, 1.5, len(s)) + 0.05 * (12.0 - demand), 1.0, 30.0)
        return np.column_stack([stock, demand, price]), paid, np.zeros(len(s), np.bool_)

    columns = (
        Column("stock", 0.0, 60.0, edges=(5.0, 10.0, 20.0, 30.0)),
        Column("demand", 0.0, 30.0, edges=(8.0, 12.0, 16.0)),
        Column("price", 4.0, 10.0),
    )
    return Problem("inventory", columns, 3, 10, (-80.0, 200.0), first, rule, move)


def irrigation() -> Problem:
    """Water in the soil, chance of rain, heat; open the tap not, a little, fully."""

    def _weather(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.beta(0.7, 1.3, n), rng.normal(24.0, 5.0, n)])

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.uniform(10, 60, n), _weather(n, rng)])

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] < 25.0, 2, np.where(s[:, 0] < 35.0, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        water, chance, heat = s.T
        rained = rng.random(len(s)) < chance
        given = np.array([0.0, 7.0, 16.0])[a]
        water = water + given + rained * rng.gamma(2.0, 6.0, len(s)) - 0.35 * heat + rng.normal(0, 1.5, len(s))
        lost = np.maximum(water - 65.0, 0.0)
        water = np.clip(water, 0.0, 65.0)
        grown = np.clip(1.0 - ((water - 40.0) / 25.0) ** 2, -0.5, 1.0)
        dry = (water < 4.0) & (rng.random(len(s)) < 0.3)
        return np.column_stack([water, _weather(len(s), rng)]), grown - 0.035 * given - 0.01 * lost, dry

    columns = (
        Column("water", 0.0, 65.0, edges=(15.0, 25.0, 35.0, 50.0)),
        Column("rain", 0.0, 1.0, edges=(0.2, 0.5, 0.8)),
        Column("heat", 5.0, 45.0),
    )
    return Problem("irrigation", columns, 3, 14, (-1.5, 1.0), first, rule, move)


def tutoring() -> Problem:
    """Skill, tiredness, age; an easy task, a hard task, a pause. What is learned pays, leaving pays nothing more."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.beta(2, 3, n), rng.uniform(0, 0.5, n), rng.uniform(8, 18, n)])

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 1] > 0.3, 2, np.where(s[:, 0] > 0.5, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        skill, tired, age = s.T
        task = np.array([0.3, 0.75, 0.0])[a]
        solved = rng.random(len(s)) < 1.0 / (1.0 + np.exp(-6.0 * (skill - task + 0.25 - 0.5 * tired)))
        learned = np.where(a == 2, 0.0, (0.05 + 0.13 * task) * solved * (1.0 - tired) * (1.2 - skill))
        tired = np.clip(np.where(a == 2, tired - 0.25, tired + np.where(a == 1, 0.14, 0.06)), 0.0, 1.0)
        left = rng.random(len(s)) < 0.01 + 0.15 * (tired > 0.75) + 0.06 * ((a == 1) & ~solved)
        return np.column_stack([np.clip(skill + learned, 0, 1), tired, age]), 10.0 * learned, left

    columns = (
        Column("skill", 0.0, 1.0, edges=(0.25, 0.5, 0.75)),
        Column("tired", 0.0, 1.0, edges=(0.2, 0.4, 0.6, 0.75)),
        Column("age", 8.0, 18.0),
    )
    return Problem("tutoring", columns, 3, 12, (0.0, 2.0), first, rule, move)


# Two that were written after every choice ---------------------------------------------------------------------------


def queue() -> Problem:
    """People who wait, people who come per hour, staff that is tired; call nobody, one or two helpers."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.uniform(0, 30, n), rng.uniform(2, 14, n), rng.uniform(0, 1, n)])

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] > 20.0, 2, np.where(s[:, 0] > 10.0, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        waiting, coming, tired = s.T
        served = (5.0 + 4.0 * a) * (1.0 - 0.4 * tired)
        waiting = np.clip(waiting + rng.poisson(coming) - rng.poisson(served), 0.0, 60.0)
        paid = -0.1 * waiting - 0.8 * a
        tired = np.clip(tired + 0.08 - 0.1 * a * (waiting < 20.0), 0.0, 1.0)
        coming = np.clip(coming + rng.normal(0.0, 1.5, len(s)), 1.0, 18.0)
        return np.column_stack([waiting, coming, tired]), paid, np.zeros(len(s), np.bool_)

    columns = (
        Column("waiting", 0.0, 60.0, edges=(5.0, 10.0, 20.0, 30.0)),
        Column("coming", 0.0, 18.0, edges=(5.0, 8.0, 12.0)),
        Column("tired", 0.0, 1.0),
    )
    return Problem("queue", columns, 3, 12, (-8.0, 0.0), first, rule, move)


def orchard() -> Problem:
    """Pests, rain, days since the last treatment; leave, spray, set out predators. Some orchards are given up."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.lognormal(2.0, 0.7, n), rng.gamma(1.5, 6.0, n), rng.uniform(0, 20, n)])

    def rule(s: Floats) -> Ints:
        return np.where((s[:, 0] > 15.0) & (s[:, 1] < 12.0), 1, np.where(s[:, 0] > 6.0, 2, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        pests, rain, since = s.T
        killed = np.where(a == 1, np.where(rain < 12.0, 0.75, 0.25), np.where(a == 2, 0.35 * (since > 4.0), 0.0))
        pests = pests * (1.0 - killed) * np.exp(0.25 + 0.01 * rain + rng.normal(0.0, 0.2, len(s)))
        pests = np.clip(pests, 0.5, 100.0)
        paid = 1.0 - np.minimum(pests / 40.0, 1.0) - 0.3 * (a == 1) - 0.15 * (a == 2)
        since = np.where(a == 1, 0.0, np.minimum(since + 2.0, 20.0))
        given_up = rng.random(len(s)) < 0.15 * (pests > 60.0)
        return np.column_stack([pests, rng.gamma(1.5, 6.0, len(s)), since]), paid, given_up

    columns = (
        Column("pests", 0.5, 100.0, edges=(4.0, 8.0, 15.0, 30.0)),
        Column("rain", 0.0, 60.0, edges=(6.0, 12.0, 20.0)),
        Column("since", 0.0, 20.0, edges=(4.0, 10.0)),
    )
    return Problem("orchard", columns, 3, 10, (-0.5, 1.0), first, rule, move)


# Many that nobody wrote by hand -------------------------------------------------------------------------------------

#: What pays: a band, a side or the mean of the first columns; whether stays end early; how good the practice is.
KINDS: dict[str, tuple[str, float, str]] = {
    "band": ("band", 0.0, "sensible"),
    "side": ("side", 0.0, "sensible"),
    "leaving": ("band", 0.15, "sensible"),
    "careless": ("band", 0.0, "careless"),
    "slope": ("slope", 0.0, "sensible"),
    "hazard": ("side", 0.25, "careless"),
    "habit": ("slope", 0.05, "habit"),
    "both": ("both", 0.05, "sensible"),
}


def generated(kind: str, seed: int) -> Problem:
    """Columns in [0, 1] that drift, act on each other and are pushed by actions, drawn at random.

    A sensible rule pushes the first column to where it pays, a careless one at a limit that is off, a habit looks at
    the last column. Actions cost; a stay may end where the first column is beyond a limit.
    """
    pays, ending, practice = KINDS[kind]
    draw = np.random.default_rng([seed, *kind.encode()])
    d, A, H = int(draw.integers(2, 5)), int(draw.integers(2, 5)), int(draw.integers(6, 17))
    home, pull = draw.uniform(0.25, 0.75, d), draw.uniform(0.03, 0.3, d)
    spread, mixing = draw.uniform(0.03, 0.12, d), 0.15 * draw.normal(0.0, 1.0, (d, d)) * (1.0 - np.eye(d))
    push = np.zeros((A, d))
    push[:, 0] = np.linspace(-1.0, 1.0, A)[draw.permutation(A)] * draw.uniform(0.08, 0.2)
    push[:, 1] = draw.normal(0.0, 0.06, A)
    limit, cost = draw.uniform(0.35, 0.65), draw.uniform(0.0, 0.15, A) * (np.abs(push[:, 0]) > 0.03)
    weaker = draw.uniform(0.3, 1.0)  # what actions do where the second column is high

    def first(n: int, rng: Random) -> Floats:
        return rng.beta(2.0, 2.0, (n, d))

    def paid(x: Floats) -> Floats:
        band = np.clip(1.0 - np.abs(x[:, 0] - limit) / 0.3, 0.0, 1.0)
        side = 1.0 / (1.0 + np.exp(-12.0 * (x[:, 0] - limit)))
        if pays == "both":
            return 0.5 * band + 0.5 / (1.0 + np.exp(-12.0 * (x[:, 1] - 0.5)))
        return {"band": band, "side": side, "slope": 0.7 * x[:, 0] + 0.3 * x[:, 1]}[pays]

    def rule(x: Floats) -> Ints:
        if practice == "habit":
            return (x[:, -1] * A).astype(np.int64).clip(0, A - 1)
        aim = limit if pays in ("band", "both") else 1.0
        if practice == "careless":
            aim = 1.0 - limit if pays == "band" else 0.5
        gap = np.clip(aim - x[:, 0], -1.0, 1.0)
        return np.abs(push[None, :, 0] - 0.5 * gap[:, None]).argmin(axis=1)

    def move(x: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        strength = np.where(x[:, 1] > 0.5, weaker, 1.0)[:, None]
        following = x + pull * (home - x) + (x - 0.5) @ mixing.T + strength * push[a]
        following = np.clip(following + rng.normal(0.0, 1.0, x.shape) * spread, 0.0, 1.0)
        gone = rng.random(len(x)) < ending * (np.abs(following[:, 0] - limit) > 0.3)
        return following, paid(following) - cost[a], gone

    limits = tuple(sorted({0.2, 0.4, 0.6, 0.8}))
    columns = tuple(Column(f"x{i}", 0.0, 1.0, edges=limits if i < 2 else ()) for i in range(d))
    return Problem(f"{kind}-{seed}", columns, A, H, (-0.15, 1.0), first, rule, move)


# Two more by hand, and what was drawn for the last table ------------------------------------------------------------


def heating() -> Problem:
    """Warmth inside, warmth outside, hour; off, low, high. Comfort pays, heat costs."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.normal(18.0, 2.5, n), rng.normal(4.0, 6.0, n), rng.uniform(0.0, 24.0, n)])

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] < 17.0, 2, np.where(s[:, 0] < 20.0, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        inside, outside, hour = s.T
        inside = inside + 0.12 * (outside - inside) + np.array([0.0, 1.6, 3.4])[a] + rng.normal(0.0, 0.5, len(s))
        hour = (hour + 1.5) % 24.0
        outside = outside + 0.5 * np.sin((hour - 9.0) / 24.0 * 2.0 * np.pi) + rng.normal(0.0, 0.6, len(s))
        awake = (hour > 6.5) & (hour < 22.5)
        comfort = np.clip(1.0 - np.abs(inside - np.where(awake, 21.0, 17.0)) / 5.0, 0.0, 1.0)
        return (
            np.column_stack([inside, outside, hour]),
            comfort - np.array([0.0, 0.12, 0.3])[a],
            np.zeros(len(s), bool),
        )

    columns = (
        Column("inside", 8.0, 28.0, edges=(15.0, 17.0, 19.0, 21.0)),
        Column("outside", -15.0, 20.0, edges=(0.0, 8.0)),
        Column("hour", 0.0, 24.0, edges=(6.0, 12.0, 22.0)),
    )
    return Problem("heating", columns, 3, 14, (-0.3, 1.0), first, rule, move)


def triage() -> Problem:
    """Pain, waiting time, age; wait, a nurse, a physician. Who waits too long with pain leaves."""

    def first(n: int, rng: Random) -> Floats:
        return np.column_stack([rng.gamma(2.0, 2.0, n).clip(0, 10), rng.exponential(30.0, n), rng.uniform(1, 95, n)])

    def rule(s: Floats) -> Ints:
        return np.where(s[:, 0] > 7.0, 2, np.where(s[:, 1] > 60.0, 1, 0))

    def move(s: Floats, a: Ints, rng: Random) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        pain, waited, age = s.T
        eased = np.where(a == 2, 3.0, np.where(a == 1, np.where(pain < 5.0, 2.0, 0.7), -0.3)) - 0.01 * (age - 50.0)
        pain = np.clip(pain - eased + rng.normal(0.0, 0.8, len(s)), 0.0, 10.0)
        waited = np.where(a == 0, waited + 15.0, 0.5 * waited)
        paid = 1.0 - pain / 10.0 - np.array([0.0, 0.12, 0.35])[a]
        left = rng.random(len(s)) < 0.2 * ((pain > 5.0) & (waited > 60.0))
        return np.column_stack([pain, waited, age]), paid, left

    columns = (
        Column("pain", 0.0, 10.0, edges=(2.0, 4.0, 6.0, 8.0)),
        Column("waited", 0.0, 240.0, edges=(15.0, 45.0, 90.0)),
        Column("age", 0.0, 100.0, edges=(16.0, 65.0)),
    )
    return Problem("triage", columns, 3, 9, (-0.35, 1.0), first, rule, move)


#: Kinds and seeds that were not run before the last table.
DRAWN = {f"{kind}-{seed}": partial(generated, kind, seed) for kind in ("slope", "both") for seed in range(10, 14)}


FIRST = (dosing, storage, marketing, cartpole, glucose, inventory, irrigation, tutoring)
LATER = (queue, orchard)
FRESH: dict[str, Callable[[], Problem]] = {"heating": heating, "triage": triage, **DRAWN}
PROBLEMS: dict[str, Callable[[], Problem]] = {make.__name__: make for make in (*FIRST, *LATER)} | FRESH
