"""How often steps occurred and what they paid: tables, and what occurred alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from discreet.mdp import Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat
from discreet.people.repairs import Repairs


@dataclass(frozen=True, eq=False)
class StepItems:
    """As `StepCounts`, of what occurred alone: `codes` are flat indices of (g, s, a, s'), each once. Raw."""

    codes: Ints  # (n,)
    numbers: Ints  # (n,)
    paid: Ints  # (n,)
    num_users: int
    episodes_per_user: int = 1
    repairs: Repairs = field(default_factory=Repairs)
    first_visits: bool = False

    @property
    def num_episodes(self) -> int:
        return self.num_users * self.episodes_per_user

    def table(self, spec: CountSpec) -> StepCounts:
        """All items, those that nobody has included."""
        T, R = _empty(spec), _empty(spec)
        T.reshape(-1)[self.codes] = self.numbers
        R.reshape(-1)[self.codes] = self.paid
        return StepCounts(T, R, self.num_users, self.episodes_per_user, self.repairs, self.first_visits)

    def __repr__(self) -> str:
        return f"StepItems({self.num_users} users)"


@dataclass(frozen=True, eq=False)
class StepCounts:
    """How often (g, s, a, s') occurred and what it paid, in grid units. Raw: for a privatizer and nothing else."""

    transitions: Ints  # (G, S, A, S)
    reward_sums: Ints  # (G, S, A, S)
    num_users: int
    episodes_per_user: int = 1
    repairs: Repairs = field(default_factory=Repairs)
    first_visits: bool = False  # of an episode only the first visit to every (s, a) was counted

    @classmethod
    def of(cls, episodes: Episodes, spec: CountSpec) -> StepCounts:
        """Counts of episodes in memory, one per user."""
        users, episodes = len(episodes), spec.readable(episodes)
        units, _ = spec.on_grid(episodes.rewards)
        T, R = _empty(spec), _empty(spec)
        stages = np.broadcast_to(0 if spec.pooled else np.arange(episodes.horizon), episodes.actions.shape)
        where = (stages, episodes.states[:, :-1], episodes.actions, episodes.states[:, 1:])
        np.add.at(T, where, 1)
        np.add.at(R, where, units)
        return cls(T, R, users)

    @property
    def num_episodes(self) -> int:
        """Most episodes there can be: a public number, unlike how many there are."""
        return self.num_users * self.episodes_per_user

    def counts(self) -> Counts:
        """The three tables of the count-based learners."""
        return Counts(
            self.transitions.sum(axis=-1), self.transitions, self.reward_sums.sum(axis=-1), self.num_episodes
        )

    def __repr__(self) -> str:  # a log line must not carry anyone's counts
        return f"StepCounts({self.num_users} users)"


def _empty(spec: CountSpec) -> Ints:
    return np.zeros(spec.shapes()["transitions"], dtype=np.int64)


class Rows(NamedTuple):
    """Rows of one step, those that are alike together. Raw."""

    cells: Ints  # s·A + a
    following: Ints
    units: Ints  # what they paid
    numbers: Ints  # how many


def code_of(log: LogFormat) -> str:
    """The flat index of (g, s, a, s')."""
    S, A = log.spec.num_states, log.num_actions
    # Columns may be too narrow for a product; a narrow code takes a third of the time of a wide one.
    wide = "INT" if log.spec.stages * S * A * S < 2**31 else "BIGINT"
    code = f"(CAST(state AS {wide}) * {A} + action) * {S} + next_state"
    if not log.pooled:
        code = f"CAST(step AS {wide}) * {S * A * S} + {code}"
    return f"CAST({code} AS {wide})"


def cell_of(log: LogFormat) -> str:
    """The flat index of (g, s, a), without the states that are none."""
    S, A = log.num_states, log.num_actions
    code = f"CAST(state AS BIGINT) * {A} + action"
    return code if log.pooled else f"CAST(step AS BIGINT) * {S * A} + {code}"
