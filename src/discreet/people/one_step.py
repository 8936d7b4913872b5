"""One step of every user, chosen where the rows are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from discreet.mdp import Floats, Ints
from discreet.people.bounding import episode_of, kept_rows, number_kept
from discreet.people.engines import Engine, Spark
from discreet.people.logs import LogFormat
from discreet.people.reading import lacks_successors, one_episode
from discreet.people.repairs import Repairs
from discreet.people.step_counts import StepItems, cell_of, code_of

if TYPE_CHECKING:
    from discreet.people.ordered import Ordered

#: The coins of users are whole numbers below the first, those of steps below the second.
COINS, PRIME = 2**52, 2**31 - 1
COEFFICIENTS = ("k0", "k1", "k2", "k3")


class OneStep:
    """One step of every user, chosen where the rows are; what comes out are sums over users.

    Coins are functions of a user's name, of which of her episodes and steps it is, and of a key. Of a name SHA-256
    makes numbers that look independent and uniform to whoever does not know the key; of these, a cubic polynomial of
    the step makes coins of which any four are independent. No user's name or rows change another's coins.
    """

    def __init__(self, engine: Engine, log: LogFormat, num_users: int, repairs: Repairs) -> None:
        self._engine, self._log, self.num_users, self.repairs = engine, log, num_users, repairs

    def ask(self, key: str, pilot: float) -> None:
        """Toss the users' coins: who is a pilot, and which step a pilot is asked for."""
        tossed, asked = _asked(self._engine, self._log, key, pilot)
        self._engine.keep("tossed", tossed, True)
        self._engine.keep("asked", asked, True)

    def visits(self) -> Ints:
        """(G·S·A,) How many pilots were in every cell at the step they were asked for."""
        log = self._log
        rows = kept_rows(log, None, "(SELECT * FROM asked WHERE pilot)", ("wanted",), led=False)
        found = self._engine.fetch(
            f"SELECT cell, count(*) AS number FROM (SELECT {cell_of(log)} AS cell FROM ({rows}) AS kept "
            "WHERE step = wanted) AS asked_of GROUP BY cell"
        )
        cell, number = (np.asarray(column, dtype=np.int64) for column in found.columns)
        cut = self.repairs.rows - self.repairs.unreadable_rows - number_kept(self._engine, log)
        self.repairs = replace(self.repairs, cut_rows=cut)
        visits = np.zeros(log.spec.stages * log.num_states * log.num_actions, dtype=np.int64)
        visits[cell] = number
        return visits

    def reports(self, weights: Floats) -> StepItems:
        """Everybody else reports her first step h with coin < w(cell)/(H − h), if there is one."""
        log = self._log
        self._engine.register("weights", pa.table({"of_cell": np.arange(weights.size), "weight": weights}))
        others, led = "(SELECT * FROM asked WHERE NOT pilot)", lacks_successors(log)
        rows = kept_rows(log, None, others, ("steps", "place", *COEFFICIENTS), led=not led)
        what = "steps" if led else f"{code_of(log)} AS code, units"
        coin = _step_coin(f"(place - 1) * {log.horizon} + step + 1")
        placed = f"SELECT kept.*, {cell_of(log)} AS cell FROM ({rows}) AS kept"
        offered = (
            f"SELECT person, episode, step, {what} FROM ({placed}) AS placed JOIN weights ON cell = of_cell "
            f"WHERE CAST({coin} AS DOUBLE) * ({log.horizon} - step) < weight * {PRIME}"
        )
        if led:  # what follows is looked for where it is reported
            self._engine.keep(
                "chosen",
                f"SELECT person AS of_person, {episode_of(log)} AS of_episode, min(steps) AS steps, "
                f"min(step) AS chosen FROM ({offered}) AS offered GROUP BY {one_episode(log)}",
                True,
            )
            kept = kept_rows(log, None, "chosen", ("chosen",))
            reported = f"SELECT {code_of(log)} AS code, units FROM ({kept}) AS kept WHERE step = chosen"
        else:
            reported = (
                f"SELECT min_by(code, step) AS code, min_by(units, step) AS units FROM ({offered}) AS offered "
                f"GROUP BY {one_episode(log)}"
            )
        found = self._engine.fetch(
            "SELECT code, count(*) AS number, CAST(sum(units) AS BIGINT) AS paid "
            f"FROM ({reported}) AS reported GROUP BY code"
        )
        code, number, paid = (np.asarray(column, dtype=np.int64) for column in found.columns)
        return StepItems(code, number, paid, self.num_users, log.episodes_per_user, self.repairs)

    def __repr__(self) -> str:
        return f"OneStep({self.num_users} users)"


class OrderedStep(OneStep):
    """The same of a log that was read in order: the same coins, tossed along the way."""

    def __init__(self, found: Ordered, *parts: Any) -> None:
        super().__init__(*parts)
        self._found = found

    def ask(self, key: str, pilot: float) -> None:
        self._asked = self._found.one_step(key, int(pilot * COINS))

    def visits(self) -> Ints:
        cut = self.repairs.rows - self.repairs.unreadable_rows - self._found.kept
        self.repairs = replace(self.repairs, cut_rows=cut)
        return self._asked.visits()

    def reports(self, weights: Floats) -> StepItems:
        return StepItems(*self._asked.reports(weights), self.num_users, self._log.episodes_per_user, self.repairs)


def _text(value: str) -> str:
    return f"CAST({value} AS STRING)"


def _digest(engine: Engine, *parts: str) -> str:
    """SHA-256 of texts one after the other, in hexadecimal digits."""
    text = f"concat({', '.join(parts)})"
    return f"sha2({text}, 256)" if isinstance(engine, Spark) else f"sha256({text})"


def _coin(engine: Engine, digest: str, first: int = 1, length: int = 13) -> str:
    """Some digits of a digest as a whole number."""
    digits = f"substr({digest}, {first}, {length})"
    if isinstance(engine, Spark):
        return f"CAST(conv({digits}, 16, 10) AS BIGINT)"
    return f"CAST(concat('0x', {digits}) AS BIGINT)"


def _asked(engine: Engine, log: LogFormat, key: str, pilot: float) -> tuple[str, str]:
    """The episodes that count with their coins, in two queries: a digest of their user's name; then whether she is a
    pilot, four numbers from which the coins of steps are made, and the step that is wanted of a pilot."""
    named = _text("of_person")
    who = f"CASE {named} WHEN '-0.0' THEN '0.0' ELSE {named} END"  # equal numbers are one user
    tag = _digest(engine, f"'{key}:'", who)
    tossed = f"SELECT of_person, of_episode, steps, place, {tag} AS tag FROM bounded"
    numbers = ", ".join(
        f"{_coin(engine, 'tag', 14 + 8 * i, 8)} % {PRIME} AS {name}" for i, name in enumerate(COEFFICIENTS)
    )
    coins = f"SELECT tossed.*, {_coin(engine, 'tag')} < {int(pilot * COINS)} AS pilot, {numbers} FROM tossed"
    last = log.episodes_per_user * log.horizon
    wanted = f"CAST(floor(CAST({_step_coin(f'{last} + place')} AS DOUBLE) * {log.horizon} / {PRIME}) AS INT)"
    columns = ", ".join(("of_person", "of_episode", "steps", "place", "pilot", *COEFFICIENTS))
    return tossed, f"SELECT {columns}, {wanted} AS wanted FROM ({coins}) AS coins"


def _step_coin(number: str) -> str:
    """k₀ + k₁x + k₂x² + k₃x³ modulo a prime at a whole number x."""
    x, found = f"CAST({number} AS BIGINT)", "k3"
    for name in ("k2", "k1", "k0"):
        found = f"(({found} * ({x}) + {name}) % {PRIME})"
    return found
