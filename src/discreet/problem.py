"""Facts about the MDP that the user declares to be public: learners may use them, guarantees list them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.mdp import FiniteMDP, Floats

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PublicStructure:
    """What is declared known; None means not declared. Stages as in the counts: G = 1 when pooled, else H."""

    initial: Floats | None = None  # (S,)
    successors: Mask | None = None  # (G, S, A, S): which successors can occur
    zero_rewards: Mask | None = None  # (G, S, A): where the reward is always 0

    @classmethod
    def declared(
        cls, mdp: FiniteMDP, pooled: bool, *, initial: bool, successors: bool = False, zero_rewards: bool = False
    ) -> PublicStructure:
        """Read the declared facts off a model (whoever declares them knows them without anyone's data)."""
        G = 1 if pooled else mdp.horizon

        def staged(table: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.broadcast_to(table, (G, *table.shape[1:])))

        return cls(
            mdp.initial if initial else None,
            staged(mdp.transitions > 0) if successors else None,
            staged(mdp.rewards == 0) if zero_rewards else None,
        )

    def assumptions(self) -> tuple[str, ...]:
        """In words, for the guarantee."""
        lines = {
            "the initial distribution is public": self.initial,
            "the possible successors of every state and action are public": self.successors,
            "the state-action pairs that never pay are public": self.zero_rewards,
        }
        return tuple(line for line, fact in lines.items() if fact is not None)


NOTHING_DECLARED = PublicStructure()


@dataclass(frozen=True)
class Moments:
    """What is assumed of every reward: E|r|^{1+order} ≤ bound and |E r| ≤ mean."""

    order: float = 1.0  # v
    bound: float = 1.0  # u
    mean: float = 1.0  # τ

    def __post_init__(self) -> None:
        if not 0 < self.order <= 1:
            raise ValueError(f"moment-order is {self.order}; it must lie in (0, 1]")
        for name, value in (("moment-bound", self.bound), ("mean-bound", self.mean)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; it must be a finite number above 0")
        if self.mean ** (1 + self.order) > self.bound * (1 + 1e-9):
            raise ValueError(
                f"mean-bound {self.mean:g} and moment-bound {self.bound:g} contradict each other: "
                f"|mean|^{1 + self.order:g} never exceeds the moment"
            )
