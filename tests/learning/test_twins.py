"""Learners without privacy against plain counts with value iteration, on Gymnasium's tables, through `fit`."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import gymnasium
import numpy as np
import pyarrow as pa
import pytest
from gymnasium.envs.registration import find_highest_version

from discreet.envs.registry import make
from discreet.offline import fitting as offline
from discreet.people.logs import LogFormat
from discreet.privacy.accounting import Budget


class Table(NamedTuple):
    """What a step leads to (S, A, S'), what that pays, and whether it is the end."""

    P: np.ndarray
    paid: np.ndarray
    end: np.ndarray
    initial: np.ndarray

    @classmethod
    def of(cls, name: str, **options: object) -> Table:
        env = gymnasium.make(name, **options).unwrapped
        S, A = env.observation_space.n, env.action_space.n
        P, paid, end = np.zeros((S, A, S)), np.zeros((S, A, S)), np.zeros((S, A, S), bool)
        for s, a in np.ndindex(S, A):
            for p, y, reward, terminated in env.P[s][a]:
                P[s, a, y] += p
                paid[s, a, y], end[s, a, y] = reward, terminated
        return cls(P, paid, end, np.asarray(env.initial_state_distrib))

    @classmethod
    def dense(cls, instance: int) -> Table:
        mdp = make("random-uniform", instance=instance)
        P = mdp.transitions[0]
        paid = np.broadcast_to(mdp.rewards[0][..., None], P.shape)
        return cls(P, paid, np.zeros(P.shape, bool), np.asarray(mdp.initial))

    def play(self, users: int, horizon: int, seed: int) -> pa.Table:
        """A log of the uniformly random policy, with `terminated` and, at the horizon, `truncated`."""
        rng = np.random.default_rng(seed)
        S, A, _ = self.P.shape
        reach = self.P.cumsum(axis=2)
        who, state = np.arange(users), rng.choice(S, size=users, p=self.initial)
        parts = []
        for h in range(horizon):
            action = rng.integers(A, size=who.size)
            after = (reach[state, action] < rng.random(who.size)[:, None]).sum(axis=1).clip(max=S - 1)
            done = self.end[state, action, after]
            cut = np.full(who.size, h == horizon - 1) & ~done
            step = np.full(who.size, h)
            parts.append((who, step, state, action, self.paid[state, action, after], after, done, cut))
            who, state = who[~done], after[~done]
        names = ("user", "step", "state", "action", "reward", "next_state", "terminated", "truncated")
        return pa.table(
            {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}
        )

    def value(self, actions: np.ndarray) -> float:
        """Exact, of a policy (H, S)."""
        V, s = np.zeros(len(self.P)), np.arange(len(self.P))
        for step in reversed(actions):
            V = (self.P * (self.paid + np.where(self.end, 0.0, V)))[s, step].sum(axis=1)
        return float(self.initial @ V)


def counted(table: pa.Table, S: int, A: int, H: int, low: float) -> np.ndarray:
    """Plain counts and value iteration: the actions (H, S); what was never tried pays the least reward for ever."""
    columns = {name: np.asarray(table[name]) for name in table.column_names}
    N, T, R = np.zeros((S, A)), np.zeros((S, A, S)), np.zeros((S, A))
    cell = columns["state"], columns["action"]
    np.add.at(N, cell, 1.0)
    np.add.at(R, cell, columns["reward"])
    going = ~columns["terminated"]
    np.add.at(T, (cell[0][going], cell[1][going], columns["next_state"][going]), 1.0)
    seen = np.maximum(N, 1.0)
    V, actions = np.zeros(S), []
    for left in range(1, H + 1):
        Q = np.where(N > 0, (R + T @ V) / seen, left * low)
        actions.append(Q.argmax(axis=1))
        V = Q.max(axis=1)
    return np.array(actions[::-1])


#: Table, users, horizon, range of rewards.
PROBLEMS = {
    "FrozenLake 4x4": (lambda: Table.of("FrozenLake-v1"), 20_000, 100, (0.0, 1.0)),
    "FrozenLake 8x8": (lambda: Table.of("FrozenLake-v1", map_name="8x8"), 50_000, 100, (0.0, 1.0)),
    "Taxi": (lambda: Table.of(f"Taxi-v{find_highest_version(None, 'Taxi')}"), 20_000, 50, (-10.0, 20.0)),
    "dense 0": (lambda: Table.dense(0), 2000, 10, (0.0, 1.0)),
    "dense 3": (lambda: Table.dense(3), 2000, 10, (0.0, 1.0)),
}


@cache
def problem(name: str):
    make_table, users, H, rewards = PROBLEMS[name]
    table = make_table()
    S, A, _ = table.P.shape
    log = table.play(users, H, 1)
    return table, log, LogFormat(S, A, H, pooled=True, reward_range=rewards), counted(log, S, A, H, rewards[0])


@pytest.mark.parametrize("name", PROBLEMS)
def test_l3_the_twin_is_as_good_as_plain_counts(name):
    """Taxi was −29 instead of 7.9, FrozenLake .022 instead of .744."""
    table, log, described, reference = problem(name)
    found = offline.fit(log, described, algorithm="apvi", initial=table.initial)
    plain, value = table.value(reference), table.value(found.policy.actions)
    assert plain > 0.1
    assert value >= 0.98 * plain
    worth = found.certificate["estimate"]
    assert 0.8 * value < worth["value_estimate"] < 1.02 * value  # it allows for the luck of the chosen
    assert worth["value_lower"] <= value


@pytest.mark.parametrize("columns", [(), ("terminated",), ("terminated", "truncated")])
def test_l3_how_ends_are_written_makes_no_difference_without_noise(columns):
    table, log, described, _ = problem("FrozenLake 4x4")
    keep = [name for name in log.column_names if name not in ("terminated", "truncated") or name in columns]
    for source in (log.select(keep), log.select(keep).drop(["next_state"])):
        found = offline.fit(source, described, algorithm="apvi", initial=table.initial)
        assert table.value(found.policy.actions) > 0.72


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("algorithm", ["one-hot", "dp-apvi"])
def test_l3_noise_is_not_taken_for_rewards(algorithm, epsilon):
    """No policy earns more than 1, those learned here .0 to .1; 3.86 and 7 were printed."""
    table, log, described, _ = problem("FrozenLake 4x4")
    for seed in range(3):
        found = offline.fit(
            log, described, Budget.pure(epsilon), algorithm=algorithm, seed=seed, initial=table.initial
        )
        worth = found.certificate["estimate"]
        assert abs(worth["value_estimate"] - table.value(found.policy.actions)) < 0.25
        assert 0.0 <= worth["value_lower"] <= worth["value_estimate"] <= 1.0
