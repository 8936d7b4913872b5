"""Trajectories of people, raw: they may enter a `Stream` and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.kernels import rollout as kernel
from discreet.mdp import FiniteMDP, Floats, Ints, frozen
from discreet.releases.reports import Targets


@dataclass(frozen=True, eq=False)
class Episodes:
    """K episodes of H steps, one per user. Raw data: never part of a release, a plan or a result.

    Whatever a row holds concerns its user alone. One with a state or action that is not a whole number, or a reward
    that is not a number, is kept as a row that no problem can read (its states are −1); which states and actions
    exist is for the problem to say (`CountSpec.readable`). Shapes are the caller's and are checked; records as they
    came in, whatever their lengths, are for `of_records`.
    """

    states: Ints  # (K, H+1)
    actions: Ints  # (K, H)
    rewards: Floats  # (K, H)
    silent: int = 0  # users beside those of the rows, who contribute nothing

    def __post_init__(self) -> None:
        states, actions, rewards = _numbers(self.states), _numbers(self.actions), _numbers(self.rewards)
        if actions.ndim != 2 or rewards.shape != actions.shape:
            raise ValueError(f"actions have shape {actions.shape} and rewards {rewards.shape}; both must be (K, H)")
        K, H = actions.shape
        if states.shape != (K, H + 1):
            raise ValueError(f"states have shape {states.shape}; expected {(K, H + 1)}: one more than actions")
        states, actions = _whole(states), _whole(actions)
        missing = np.isnan(rewards)
        if missing.any():
            states = np.where(missing.any(axis=1)[:, None], -1, states)
            rewards = np.where(missing, 0.0, rewards)
        object.__setattr__(self, "states", frozen(states, np.int64))
        object.__setattr__(self, "actions", frozen(actions, np.int64))
        object.__setattr__(self, "rewards", frozen(rewards))

    @classmethod
    def of_records(cls, records: Iterable[Any], horizon: int) -> Episodes:
        """One record (states, actions, rewards) per user, of exactly `horizon` steps; any other is not readable."""
        rows = [_row(record, horizon) for record in records]
        states, actions, rewards = (np.array([row[i] for row in rows]) for i in range(3))
        n = len(rows)
        return cls(states.reshape(n, horizon + 1), actions.reshape(n, horizon), rewards.reshape(n, horizon))

    def __len__(self) -> int:
        """How many users, those who contribute nothing included."""
        return int(self.actions.shape[0]) + self.silent

    def without(self, rows: NDArray[np.bool_]) -> Episodes:
        """The same users, of whom those of the marked rows contribute nothing."""
        kept = _trusted(self.states[~rows], self.actions[~rows], self.rewards[~rows])
        object.__setattr__(kept, "silent", self.silent + int(np.count_nonzero(rows)))
        return kept

    @property
    def horizon(self) -> int:
        return int(self.actions.shape[1])

    def __repr__(self) -> str:  # a log line must not carry anyone's trajectory
        return f"Episodes({len(self)} × {self.horizon} steps)"


def _number(value: Any) -> float:
    try:
        return float(value.real if isinstance(value, complex) and value.imag == 0.0 else value)
    except Exception:  # a record is anything at all
        return math.nan


def _row(record: Any, horizon: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The three parts of one record, all NaN if it does not have this many steps."""
    try:
        states, actions, rewards = (_numbers(part).astype(np.float64) for part in record)
        if states.shape == (horizon + 1,) and actions.shape == rewards.shape == (horizon,):
            return states, actions, rewards
    except Exception:  # a record is anything at all
        pass
    return np.full(horizon + 1, math.nan), np.full(horizon, math.nan), np.full(horizon, math.nan)


def _numbers(values: Any) -> NDArray[Any]:
    """Numbers, NaN where there is none. One value that is no number would make numpy read all as texts or objects,
    so that these are taken one by one."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array
    entries = np.asarray(values, dtype=object)
    return np.array([_number(value) for value in entries.reshape(-1)], dtype=np.float64).reshape(entries.shape)


def _whole(numbers: NDArray[Any]) -> Ints:
    """Integers; −1 in place of what is none."""
    if numbers.dtype.kind != "f":
        return np.asarray(numbers, dtype=np.int64)  # beyond 63 bits: negative
    good = (numbers >= 0.0) & (numbers < 2.0**62) & (numbers == np.floor(numbers))
    return np.where(good, numbers, -1.0).astype(np.int64)


NO_COINS: Floats = np.empty((0, 0))


class Simulator(Protocol):
    """Anything that users can act in: it plays a policy and returns what happened."""

    @property
    def num_states(self) -> int: ...
    @property
    def num_actions(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    def rollout(self, policy: Floats, num_episodes: int, targets: Targets | None = None) -> Episodes:
        """With targets that announce a policy for after the report, users switch to it; only then are they passed."""
        ...


class RewardSampler(Protocol):
    @property
    def tossed(self) -> bool:
        """Whether a reward is 1 with its mean for a probability, and else 0."""
        ...

    def check_means(self, means: Floats) -> Floats: ...
    def range(self, means: Floats) -> tuple[float, float] | None: ...
    def draw(self, m: Floats, rng: np.random.Generator) -> Floats: ...


class MDPSimulator:
    """Many users under one policy in one call.

    Every episode consumes a fixed number of uniforms, so the trajectory of user i under a given seed does
    not depend on how users are grouped into calls.
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        law: RewardSampler,
        seed: int | np.random.SeedSequence,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        dynamics, rewards = sequence.spawn(2)
        self.mdp, self.law = mdp, law
        self.shape = mdp.horizon, mdp.num_states, mdp.num_actions
        possible = law.range(law.check_means(mdp.rewards))
        inside = reward_range is None or (
            possible is not None and reward_range[0] <= possible[0] and possible[1] <= reward_range[1]
        )
        self.declared = None if inside else reward_range
        self.clipped = 0  # rewards beyond the declared range: known to the simulation only
        self.dynamics = np.random.default_rng(dynamics)
        self.reward_noise = np.random.default_rng(rewards)
        self.cumulative = kernel.cumulative_rows(mdp.transitions)
        self.cumulative_initial = kernel.cumulative_rows(mdp.initial.reshape(1, 1, 1, -1)).reshape(-1)
        self._nowhere: NDArray[np.bool_] = np.zeros((1, mdp.num_states, mdp.num_actions), dtype=np.bool_)

    @property
    def num_states(self) -> int:
        return self.mdp.num_states

    @property
    def num_actions(self) -> int:
        return self.mdp.num_actions

    @property
    def horizon(self) -> int:
        return self.mdp.horizon

    def uniforms(self, num_episodes: int) -> Floats:
        """(n, 1 + 2H) numbers: the start, then action and successor of every step."""
        return self.dynamics.random((num_episodes, 1 + 2 * self.shape[0]))

    def rollout(self, policy: Floats, num_episodes: int, targets: Targets | None = None) -> Episodes:
        if policy.shape != self.shape:
            raise ValueError(f"the policy has shape {policy.shape}; expected (H, S, A) = {self.shape}")
        H = self.shape[0]
        states = np.empty((num_episodes, H + 1), dtype=np.int64)
        actions = np.empty((num_episodes, H), dtype=np.int64)
        rewards = np.empty((num_episodes, H))
        coins = self.reward_noise.random((num_episodes, H)) if self.law.tossed else NO_COINS
        policy = np.ascontiguousarray(policy)
        model = self.cumulative, self.mdp.rewards, self.cumulative_initial, policy
        switch: tuple[Floats, NDArray[np.bool_], int] = policy, self._nowhere, 0
        if targets is not None and targets.after is not None:
            S, A = self.shape[1:]
            switch = targets.after, targets.steps(S, A), targets.left(S, A)
        kernel.rollout(*model, *switch, self.uniforms(num_episodes), coins, states, actions, rewards)
        if not self.law.tossed:
            rewards = self.law.draw(rewards, self.reward_noise)
        if self.declared is not None:
            low, high = self.declared
            self.clipped += int(np.count_nonzero((rewards < low) | (rewards > high)))
        return _trusted(states, actions, rewards)


def _trusted(states: Any, actions: Any, rewards: Any) -> Episodes:
    """Episodes from arrays a simulator has just made: no second copy, no second check."""
    episodes = object.__new__(Episodes)
    for name, array in (("states", states), ("actions", actions), ("rewards", rewards)):
        array.setflags(write=False)
        object.__setattr__(episodes, name, array)
    return episodes
