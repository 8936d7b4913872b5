"""Environments: exact models of benchmarks, reward laws, adversarial losses and the bridge to Gymnasium.

The bridge is `discreet.envs.gym`; it is loaded only when asked for.
"""

from discreet.envs.adversaries import ADVERSARIES, LossSequence, adversary
from discreet.envs.linear import LinearMDP
from discreet.envs.registry import ENVIRONMENTS, EnvSpec, make, spec
from discreet.envs.rewards import KINDS, RewardLaw

__all__ = [
    "ADVERSARIES",
    "ENVIRONMENTS",
    "KINDS",
    "EnvSpec",
    "LinearMDP",
    "LossSequence",
    "RewardLaw",
    "adversary",
    "make",
    "spec",
]
