"""What is public about a problem, said once: its sizes, what is declared of it, the budget and what was asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.mdp import FiniteMDP, Floats
from discreet.privacy.accounting import Budget, Neighbours

if TYPE_CHECKING:
    from discreet.bonuses import BonusKind
    from discreet.occupancies import Layers

Mask = NDArray[np.bool_]
LossEstimator = Literal["corrected", "paper"]


#: The smallest and the largest threshold for rewards without a bound; sums and their noise then fit in 64 bits.
THRESHOLDS = (2.0**-6, 2.0**12)


#: β, how often all that a learner relies on may fail, where none is said.
FAILURE = 0.1


def grid_for(num_episodes: int) -> float:
    """A power of two, at most 1/K (½ for one): rounding to it moves the sum of K rewards, or losses, by at most ½."""
    return 2.0 ** -max(num_episodes - 1, 1).bit_length()


@dataclass(frozen=True, eq=False)
class PublicStructure:
    """What is declared known; None means not declared. Stages as in the counts: G = 1 when pooled, else H."""

    initial: Floats | None = None  # (S,)
    successors: Mask | None = None  # (G, S, A, S): which successors can occur
    zero_rewards: Mask | None = None  # (G, S, A): where the reward is always 0
    layers: Layers | None = None  # the states that can occur at each step

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
            "the states that can occur at each step are public": self.layers,
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


@dataclass(frozen=True)
class Problem:
    """All that is public before anybody acts: a learner is built from it, and its session is opened on it."""

    num_states: int
    num_actions: int
    horizon: int
    num_episodes: int
    pooled: bool = False  # counts over all steps together
    schedule: str = "epochs"
    confidence_scale: float | None = None
    beta: float | None = None  # how often all that the learner relies on may fail; None: its own
    rate_scale: float | None = None  # of a learning rate; None: the learner's own
    bonus: BonusKind = "bernstein"
    mode: str = "practical"  # whose constants
    noise: str = "true"  # or "printed": scales as in the papers, with the guarantee that they truly give
    epsilon: float | None = None  # without it and without rho: no privacy
    delta: float = 0.0
    trust: str = "joint"  # whom people trust, of `catalog.TRUST`
    neighbours: Neighbours = "replace"
    local_reports: str = "sampled"
    honest: float = 1.0  # of shuffled users, the fraction that can be relied on
    structure: PublicStructure = NOTHING_DECLARED
    moments: Moments | None = None  # of rewards that have no range
    tie_seed: int = 0
    reward_range: tuple[float, float] | None = (0.0, 1.0)  # None: without a bound
    losses: str = "private"  # against an adversary: private, or public
    estimator: LossEstimator = "corrected"  # of losses that are seen along the way
    rho: float | None = None  # zCDP instead of epsilon; delta is then where its epsilon is stated
    one_by_one: bool = False  # users are asked by an app of their own, which sends one report

    def scale(self, default: float) -> float:
        return default if self.confidence_scale is None else self.confidence_scale

    @property
    def failure(self) -> float:
        """β of logarithms in bonuses."""
        return FAILURE if self.beta is None else self.beta

    def width_failure(self, share: float) -> float:
        """Of the widths of noise: the paper's share of β; with our own constants 0.01, unless a β is said."""
        return 0.01 if self.beta is None and not self.paper else min(share * self.failure, 0.5)

    def rate(self, default: float) -> float:
        """Factor on the learning rate of the theorem."""
        return default if self.rate_scale is None else self.rate_scale

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, S, A)"""
        return self.horizon, self.num_states, self.num_actions

    @property
    def layers(self) -> Layers:
        """The states that can occur at each step, which learners of losses must be told."""
        if self.structure.layers is None:
            raise ValueError("learners of losses must know which states can occur at each step; declare the layers")
        return self.structure.layers

    @property
    def paper(self) -> bool:
        return self.mode == "paper"

    @property
    def calibration(self) -> Literal["true", "paper"]:
        """Of the noise, as privatizers name it."""
        return "paper" if self.noise == "printed" else "true"

    @property
    def private(self) -> bool:
        return self.epsilon is not None or self.rho is not None

    @property
    def gaussian(self) -> bool:
        """Whether the budget buys Gaussian noise."""
        return self.rho is not None or self.delta > 0

    @property
    def budget(self) -> Budget:
        if self.rho is not None:
            return Budget.zcdp(self.rho, self.delta or None)
        assert self.epsilon is not None
        return Budget.pure(self.epsilon) if self.delta == 0 else Budget.approximate(self.epsilon, self.delta)

    def assumptions(self) -> tuple[str, ...]:
        """In words, for the guarantee: everything that learners and privatizers are told about people."""
        told = self.structure.assumptions()
        if self.moments is not None:
            v, u, tau = self.moments.order, self.moments.bound, self.moments.mean
            return (*told, f"public: E|reward|^{1 + v:g} is at most {u:g} and |mean reward| at most {tau:g}")
        if self.private and self.reward_range is not None:
            low, high = self.reward_range
            return (*told, f"public: rewards lie in [{low:g}, {high:g}], and what lies outside is moved to its ends")
        return told
