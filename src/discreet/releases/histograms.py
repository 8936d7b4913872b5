"""One noisy histogram over what one step can be, (g, s, a, s', paid or not): the release of the one-hot learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.mdp import Floats, Ints, frozen
from discreet.problem import Mask, PublicStructure


@dataclass(frozen=True, eq=False)
class Cells:
    """Which items exist. Row c = (g·S + s)·A + a is a cell, column 2·s' + paid one of its items.

    Successors run over 0..Y−1: the states, then with `absorbing` S, the state of those who left, then with `unknown`
    one for steps of which nobody knows where they led. A cell of the last stage of a staged problem has no successor
    worth knowing: its items carry s' = 0. Those who left earn `ended` per remaining step (rewards: [0, 1]).
    """

    num_states: int
    num_actions: int
    horizon: int
    pooled: bool
    absorbing: bool
    admitted: Mask  # (C, 2Y)
    unknown: bool = False
    ended: float = 0.0

    @classmethod
    def of(
        cls,
        num_states: int,
        num_actions: int,
        horizon: int,
        pooled: bool,
        absorbing: bool = False,
        known_rewards: bool = False,
        structure: PublicStructure | None = None,
        unknown: bool = False,
        ended: float = 0.0,
    ) -> Cells:
        """`known_rewards`: what a step paid is not asked, and every item carries "not paid".

        A cell that is declared to have no successor is declared impossible: it has no items at all.
        """
        G, S, A = 1 if pooled else horizon, num_states, num_actions
        Y = S + absorbing + unknown
        admitted = np.ones((G, S, A, Y, 2), dtype=np.bool_)
        if structure is not None and structure.successors is not None:
            if structure.successors.shape != (G, S, A, S):
                raise ValueError(f"successors have shape {structure.successors.shape}; expected {(G, S, A, S)}")
            admitted[..., :S, :] &= structure.successors[..., None]
            admitted &= np.asarray(structure.successors.any(axis=-1))[..., None, None]
        if not pooled:
            possible = admitted[-1].reshape(S, A, 2 * Y).any(axis=-1, keepdims=True)
            admitted[-1] = False
            admitted[-1, :, :, 0] = possible
        if known_rewards:
            admitted[..., 1] = False
        elif structure is not None and structure.zero_rewards is not None:
            admitted[structure.zero_rewards, :, 1] = False
        items = frozen(admitted.reshape(G * S * A, 2 * Y), np.bool_)
        return cls(S, A, horizon, pooled, absorbing, items, unknown, ended if absorbing else 0.0)

    @property
    def stages(self) -> int:
        return 1 if self.pooled else self.horizon

    @property
    def alike(self) -> bool:
        """Whether there are several steps with successors and all of them have the same items."""
        if self.stages < 3:
            return False
        steps = self.admitted.reshape(self.stages, -1)[:-1]
        return bool((steps == steps[0]).all())

    @property
    def num_cells(self) -> int:
        return int(self.admitted.shape[0])

    @property
    def num_successors(self) -> int:
        return int(self.admitted.shape[1]) // 2

    @property
    def num_places(self) -> int:
        """Successors that are somewhere: all but the unknown one."""
        return self.num_successors - self.unknown

    @property
    def possible(self) -> Mask:
        """(G, S, A): cells that have items."""
        return self.admitted.any(axis=1).reshape(self.stages, self.num_states, self.num_actions)

    @property
    def sizes(self) -> Ints:
        """Items of every cell, counted as 1 where a cell is impossible (logarithms of it are taken)."""
        return np.maximum(np.asarray(self.admitted.sum(axis=1), dtype=np.int64), 1)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.horizon, self.num_states, self.num_actions


@dataclass(frozen=True, eq=False)
class PrivateHistogram:
    """Noisy numbers of steps per item, of the users who were asked.

    `width` bounds the error of all items together with probability at least 1 − beta/2, `total_width` that of all
    cells' sums; `variance` is that of the noise on one item. All are functions of public numbers.
    """

    cells: Cells
    values: Floats  # (C, 2Y); items that do not exist are 0
    num_users: int
    variance: float
    width: float
    total_width: float
    beta: float
    tilted: bool = False  # one step per user, chosen with public weights, instead of all steps

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self.variance))
