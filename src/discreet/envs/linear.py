"""Linear MDPs: transitions and mean rewards that are linear in known features."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from discreet.envs.tabular import favouring, whole
from discreet.mdp import FiniteMDP, Floats, distributions, frozen

#: Float error that a probability ⟨φ, ν⟩ or a norm may show without being refused.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class LinearMDP:
    """P_h(s'|s,a) = ⟨φ(s,a), ν_h(s')⟩ and mean reward ⟨φ(s,a), θ_h⟩, with ‖φ(s,a)‖₂ ≤ 1.

    The norm bound is what the sensitivity of a private regression rests on, so longer features are refused;
    `normalised` rescales them without changing the process.
    """

    features: Floats  # (S, A, d)
    reward_weights: Floats  # θ, (H, d)
    measures: Floats  # ν, (H, d, S)
    initial: Floats  # (S,)
    horizon: int
    name: str = field(default="linear")

    def __post_init__(self) -> None:
        H = whole("horizon", self.horizon, 1)
        shape = np.shape(self.features)
        if len(shape) != 3 or min(shape) < 1:
            raise ValueError(f"features have shape {shape}; expected (S, A, d)")
        S, _, d = shape
        for name, expected in (("reward_weights", (H, d)), ("measures", (H, d, S)), ("initial", (S,))):
            if np.shape(getattr(self, name)) != expected:
                raise ValueError(f"{name} have shape {np.shape(getattr(self, name))}; expected {expected}")
        for name in ("features", "reward_weights", "measures"):
            array = frozen(getattr(self, name))
            if not np.isfinite(array).all():
                raise ValueError(f"{name} hold NaN or infinity; every entry must be a finite number")
            object.__setattr__(self, name, array)
        longest = float(np.linalg.norm(self.features, axis=-1).max())
        if longest > 1 + TOLERANCE:
            raise ValueError(
                f"the longest feature vector has norm {longest:.6g}; it must not exceed 1 (see `normalised`)"
            )
        object.__setattr__(self, "horizon", H)
        object.__setattr__(self, "initial", distributions("initial", self.initial))
        self.to_finite()  # every ⟨φ, ν⟩ must be a distribution

    def to_finite(self) -> FiniteMDP:
        """The same process as explicit tables, staged."""
        P = np.einsum("sad,hdt->hsat", self.features, self.measures)
        P = np.where((P < 0) & (P > -TOLERANCE), 0.0, P)
        r = np.einsum("sad,hd->hsa", self.features, self.reward_weights)
        return FiniteMDP(P, r, self.initial, self.horizon, self.name)


def normalised(
    features: Floats, reward_weights: Floats, measures: Floats, initial: Floats, horizon: int, name: str = "linear"
) -> LinearMDP:
    """The linear MDP with features divided by their largest norm L and weights and measures multiplied by it."""
    longest = float(np.linalg.norm(features, axis=-1).max())
    L = longest if longest > 0 else 1.0
    return LinearMDP(
        np.asarray(features) / L, np.asarray(reward_weights) * L, np.asarray(measures) * L, initial, horizon, name
    )


def two_state_linear(horizon: int = 20, *, instance: int = 0) -> LinearMDP:
    """The instance of Figure 1 of [QW22]: 2 states, 100 actions, 10 features, uniform start.

    φ(s,a) = (eight binary digits of a, highest first; δ; 1−δ) with δ = 1 iff 1{s=0} = 1{a=0};
    ν_h(0) = (0,…,0, α_h1, α_h2), ν_h(1) = (0,…,0, 1−α_h1, 1−α_h2);
    θ_h = (r/8, 0, r/8, ½−r/2, r/8, 0, r/8, 0, r/2, ½−r/2); α (drawn first) and r = r_h are uniform on [0, 1].

    Source: [QW22] App. G.   Differs: 1. features are divided by √7, their largest norm (‖φ‖² = popcount(a) + 1),
    weights multiplied by it; the paper's sensitivity assumes ‖φ‖ ≤ 1 and its features violate that. The first digit
    is 0 for every action, so that nine of the ten features are ever used.
    """
    H = whole("horizon", horizon, 1)
    rng = np.random.default_rng(whole("instance", instance, 0))
    actions = np.arange(100)
    features = np.zeros((2, 100, 10))
    features[:, :, :8] = (actions[:, None] >> np.arange(7, -1, -1)) & 1
    same = (np.arange(2)[:, None] == 0) == (actions == 0)
    features[:, :, 8], features[:, :, 9] = same, ~same
    alpha, r = rng.random((H, 2)), rng.random(H)
    measures = np.zeros((H, 10, 2))
    measures[:, 8:, 0], measures[:, 8:, 1] = alpha, 1 - alpha
    zero, rest = np.zeros(H), 0.5 - r / 2
    theta = np.stack([r / 8, zero, r / 8, rest, r / 8, zero, r / 8, zero, r / 2, rest], axis=1)
    return normalised(features, theta, measures, np.full(2, 0.5), H)


def two_state_behaviour(mdp: LinearMDP) -> Floats:
    """The behaviour policy (H, S, A) of Figure 1 of [QW22]: action 0 with probability 0.6, else uniform."""
    return favouring(mdp.to_finite(), 0, 0.6)
