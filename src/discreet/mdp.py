"""Finite-horizon Markov decision processes as validated, read-only arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Row sums may be off by this much; rows are then rescaled so that sampling and planning agree.
ROW_TOLERANCE = 1e-8


def frozen(array: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """A read-only, contiguous copy of `array` (the array itself when nobody can write to it any more)."""
    if isinstance(array, np.ndarray) and array.dtype == dtype:
        base, flags = array.base, array.flags
        settled = base is None or (isinstance(base, np.ndarray) and not base.flags.writeable)
        if settled and flags.c_contiguous and not flags.writeable:
            return array
    result = np.array(array, dtype=dtype, order="C")
    result.setflags(write=False)
    return result


def numbers(name: str, table: Any) -> Floats:
    """`table` as an array of numbers, refused in one sentence where it is none."""
    try:
        return np.array(table, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: expected a table of numbers whose rows are equally long") from None


def layer_mask(layers: Sequence[Sequence[int]], num_states: int) -> NDArray[np.bool_]:
    """(H, S): whether a state can occur at a step."""
    mask = np.zeros((len(layers), num_states), dtype=np.bool_)
    for h, layer in enumerate(layers):
        mask[h, list(layer)] = True
    return mask


def distributions(name: str, rows: Any) -> Floats:
    """`rows` with its last axis checked to be probability vectors and rescaled to sum to one.

    The message of the error names the first bad row by its index.
    """
    array = np.array(rows, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}{list(bad)} is {array[bad]}; every probability must be a finite number")
    if (array < 0).any():
        bad = tuple(int(i) for i in np.argwhere(array < 0)[0])
        raise ValueError(f"{name}{list(bad)} is {array[bad]}; probabilities must not be negative")
    sums = array.sum(axis=-1)
    off = np.abs(sums - 1.0) > ROW_TOLERANCE
    if off.any():
        bad = tuple(int(i) for i in np.argwhere(off)[0])
        value = float(sums[bad])
        raise ValueError(f"row {name}{list(bad)} sums to {value:.12g}; it must sum to 1")
    array /= np.where(np.abs(sums - 1.0) > 1e-14, sums, 1.0)[..., None]
    return frozen(array)


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """States, actions and a horizon; G = 1 when the MDP is stationary, G = horizon when it is staged.

    What is the same at all steps may be given without the axis of stages: transitions (S, A, S), rewards (S, A), or
    one of both. `rewards` are means; how a reward is drawn around its mean is a property of the simulator
    (`discreet.envs.rewards`), not of the model. Stage h of a stationary MDP reads index `min(h, G-1)`.
    """

    transitions: Floats  # (G, S, A, S)
    rewards: Floats  # (G, S, A)
    initial: Floats  # (S,)
    horizon: int
    name: str = field(default="custom")

    def __post_init__(self) -> None:
        real = isinstance(self.horizon, (int, float, np.integer, np.floating)) and not isinstance(self.horizon, bool)
        if not real or self.horizon != self.horizon // 1 or self.horizon < 1:
            raise ValueError(f"horizon is {self.horizon!r}; it must be a whole number of at least 1")
        transitions, rewards = numbers("transitions", self.transitions), numbers("rewards", self.rewards)
        initial = numbers("initial", self.initial)
        given = transitions.shape
        if len(given) not in (3, 4) or given[-3] != given[-1]:
            raise ValueError(
                f"transitions have shape {given}; expected (G, S, A, S) with G = 1 or the horizon, or (S, A, S)"
                + ("; (A, S, S) becomes that by .transpose(1, 0, 2)" if given[1:] == given[-1:] * 2 else "")
            )
        transitions = transitions[None] if len(given) == 3 else transitions
        shape = transitions.shape
        G, S, A, _ = shape
        if min(S, A) < 1:
            raise ValueError(f"transitions have shape {shape}; there must be at least one state and one action")
        if G not in (1, self.horizon):
            raise ValueError(f"transitions have {G} stages; expected 1 (stationary) or the horizon, {self.horizon}")
        rewards = rewards[None] if rewards.ndim == 2 else rewards
        if rewards.shape[1:] != (S, A) or len(rewards) not in (1, self.horizon):
            raise ValueError(
                f"rewards have shape {np.shape(self.rewards)}; expected (S, A) = {(S, A)}, the mean of each pair, "
                f"or one such table per step, {(int(self.horizon), S, A)}"
            )
        if initial.shape != (S,):
            raise ValueError(f"initial has shape {initial.shape}; expected {(S,)}, one probability per state")
        G = max(G, len(rewards))
        transitions = np.broadcast_to(transitions, (G, S, A, S))
        rewards = frozen(np.broadcast_to(rewards, (G, S, A)))
        if not np.isfinite(rewards).all():
            bad = tuple(int(i) for i in np.argwhere(~np.isfinite(rewards))[0])
            raise ValueError(f"rewards{list(bad)} is {rewards[bad]}; every mean reward must be a finite number")
        object.__setattr__(self, "horizon", int(self.horizon))
        object.__setattr__(self, "transitions", distributions("transitions", transitions))
        object.__setattr__(self, "rewards", rewards)
        object.__setattr__(self, "initial", distributions("initial", initial))
        object.__setattr__(self, "name", str(self.name))

    def __repr__(self) -> str:
        low, high, kind = self.rewards.min(), self.rewards.max(), "" if self.stationary else "staged, "
        sizes = f"{self.num_states} states, {self.num_actions} actions, horizon {self.horizon}"
        return f"FiniteMDP({self.name!r}, {kind}{sizes}, mean rewards from {low:g} to {high:g})"

    @property
    def num_states(self) -> int:
        return int(self.transitions.shape[1])

    @property
    def num_actions(self) -> int:
        return int(self.transitions.shape[2])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, S, A), that of its policies."""
        return self.horizon, self.num_states, self.num_actions

    @property
    def stationary(self) -> bool:
        """Whether one kernel serves all stages (so that counts may be pooled over stages)."""
        return bool(self.transitions.shape[0] == 1)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of horizon, shapes and numbers: two models share it exactly when they are the same process."""
        state = hashlib.sha256(str(self.horizon).encode())
        for table in (self.transitions, self.rewards, self.initial):
            state.update(str(table.shape).encode())
            state.update((table + 0.0).astype("<f8").tobytes())  # one zero
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FiniteMDP) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def discounted(self, discount: float) -> FiniteMDP:
        """The process that ends after every step with probability 1 − γ, in one more state that pays nothing.

        Whoever plays π earns Σ_h γ^h·r_h in expectation, so that values, optimal policies and regret are those of the
        discounted problem cut off at the horizon; with H ≥ ln(1/((1−γ)·x))/(1−γ) the tail is worth at most x·max|r|.
        """
        gamma = float(discount)
        if not 0 < gamma <= 1:
            raise ValueError(f"discount is {discount}; it must be above 0 and at most 1")
        if gamma == 1:
            return self
        G, S, A = self.rewards.shape
        P, r = np.zeros((G, S + 1, A, S + 1)), np.zeros((G, S + 1, A))
        P[:, :S, :, :S] = gamma * self.transitions
        P[:, :S, :, S] = 1.0 - gamma
        P[:, S, :, S] = 1.0
        r[:, :S] = self.rewards
        return FiniteMDP(P, r, np.append(self.initial, 0.0), self.horizon, self.name)

    def with_terminal(self, states: Iterable[int]) -> FiniteMDP:
        """The process in which these states end the episode: nobody leaves them, and they pay nothing."""
        ends = sorted({int(state) for state in states})
        if ends and not 0 <= ends[0] <= ends[-1] < self.num_states:
            raise ValueError(f"terminal states are {ends}; expected some of 0..{self.num_states - 1}")
        P, r = np.array(self.transitions), np.array(self.rewards)
        P[:, ends], r[:, ends] = 0.0, 0.0
        for state in ends:
            P[:, state, :, state] = 1.0
        return FiniteMDP(P, r, self.initial, self.horizon, self.name)

    def staged(self) -> FiniteMDP:
        """The same process with one copy of the model per stage."""
        if not self.stationary:
            return self
        H, S, A = self.shape
        return FiniteMDP(
            np.broadcast_to(self.transitions, (H, S, A, S)),
            np.broadcast_to(self.rewards, (H, S, A)),
            self.initial,
            H,
            self.name,
        )
