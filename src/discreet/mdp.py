"""Finite-horizon Markov decision processes as validated, read-only arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
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

    `rewards` holds mean rewards; how a reward is drawn around its mean is a property of the simulator
    (`discreet.envs.rewards`), not of the model. Stage h of a stationary MDP reads index `min(h, G-1)`.
    """

    transitions: Floats  # (G, S, A, S)
    rewards: Floats  # (G, S, A)
    initial: Floats  # (S,)
    horizon: int
    name: str = field(default="custom")

    def __post_init__(self) -> None:
        if isinstance(self.horizon, bool) or int(self.horizon) != self.horizon or self.horizon < 1:
            raise ValueError(f"horizon is {self.horizon!r}; it must be a whole number of at least 1")
        shape = np.shape(self.transitions)
        if len(shape) != 4 or shape[1] != shape[3]:
            raise ValueError(f"transitions have shape {shape}; expected (G, S, A, S) with G = 1 or the horizon")
        G, S, A, _ = shape
        if min(S, A) < 1:
            raise ValueError(f"transitions have shape {shape}; there must be at least one state and one action")
        if G not in (1, self.horizon):
            raise ValueError(f"transitions have {G} stages; expected 1 (stationary) or the horizon, {self.horizon}")
        if np.shape(self.rewards) != (G, S, A):
            raise ValueError(f"rewards have shape {np.shape(self.rewards)}; expected {(G, S, A)}")
        if np.shape(self.initial) != (S,):
            raise ValueError(f"initial has shape {np.shape(self.initial)}; expected {(S,)}")
        rewards = frozen(self.rewards)
        if not np.isfinite(rewards).all():
            bad = tuple(int(i) for i in np.argwhere(~np.isfinite(rewards))[0])
            raise ValueError(f"rewards{list(bad)} is {rewards[bad]}; every mean reward must be a finite number")
        object.__setattr__(self, "horizon", int(self.horizon))
        object.__setattr__(self, "transitions", distributions("transitions", self.transitions))
        object.__setattr__(self, "rewards", rewards)
        object.__setattr__(self, "initial", distributions("initial", self.initial))

    @property
    def num_states(self) -> int:
        return int(self.transitions.shape[1])

    @property
    def num_actions(self) -> int:
        return int(self.transitions.shape[2])

    @property
    def stationary(self) -> bool:
        """Whether one kernel serves all stages (so that counts may be pooled over stages)."""
        return bool(self.transitions.shape[0] == 1)

    def staged(self) -> FiniteMDP:
        """The same process with one copy of the model per stage."""
        if not self.stationary:
            return self
        H, S, A = self.horizon, self.num_states, self.num_actions
        return FiniteMDP(
            np.broadcast_to(self.transitions, (H, S, A, S)),
            np.broadcast_to(self.rewards, (H, S, A)),
            self.initial,
            H,
            self.name,
        )
