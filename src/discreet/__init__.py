"""Reinforcement learning that keeps its users' secrets.

The public names; each is imported from its module when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.certificate import verify
    from discreet.data.logs import LogFormat
    from discreet.envs.gym import GymnasiumUsers
    from discreet.envs.registry import make
    from discreet.envs.rewards import RewardLaw
    from discreet.episodes import Episodes
    from discreet.experiment import Experiment, Learned, RunResult, learn, run, run_seeds
    from discreet.mdp import FiniteMDP
    from discreet.offline import Fitted, evaluate, fit
    from discreet.planning import Plan, greedy_plan, occupancy, optimal_plan, policy_value, uniform_policy
    from discreet.policy import Policy
    from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry
    from discreet.privacy.audit import audit
    from discreet.privacy.calibration import calibrate
    from discreet.privacy.epochs import Epochs
    from discreet.privacy.exact import Exact
    from discreet.privacy.local import LocalLaplace, LocalSampled
    from discreet.privacy.local_reports import LocalReports
    from discreet.privacy.noise import NoiseSource
    from discreet.privacy.one_shot import OneShot
    from discreet.privacy.reports import Reports
    from discreet.privacy.shuffle import Shuffle
    from discreet.privacy.toeplitz import Toeplitz
    from discreet.privacy.tree import Tree
    from discreet.releases import PrivateCounts
    from discreet.report import plot
    from discreet.statistics import Counts, CountSpec

__all__ = [
    "Budget",
    "CountSpec",
    "Counts",
    "Episodes",
    "Epochs",
    "Exact",
    "Experiment",
    "FiniteMDP",
    "Fitted",
    "Guarantee",
    "GymnasiumUsers",
    "Learned",
    "LedgerEntry",
    "LocalLaplace",
    "LocalReports",
    "LocalSampled",
    "LogFormat",
    "NoiseSource",
    "OneShot",
    "Plan",
    "Policy",
    "PrivateCounts",
    "Reports",
    "RewardLaw",
    "RunResult",
    "Shuffle",
    "Toeplitz",
    "Tree",
    "audit",
    "calibrate",
    "evaluate",
    "fit",
    "greedy_plan",
    "learn",
    "make",
    "occupancy",
    "optimal_plan",
    "plot",
    "policy_value",
    "run",
    "run_seeds",
    "uniform_policy",
    "verify",
]

_HOMES = {
    "Budget": "privacy.accounting",
    "CountSpec": "statistics",
    "Counts": "statistics",
    "Episodes": "episodes",
    "Epochs": "privacy.epochs",
    "Exact": "privacy.exact",
    "Experiment": "experiment",
    "FiniteMDP": "mdp",
    "Fitted": "offline",
    "Guarantee": "privacy.accounting",
    "GymnasiumUsers": "envs.gym",
    "Learned": "experiment",
    "LedgerEntry": "privacy.accounting",
    "LocalLaplace": "privacy.local",
    "LocalReports": "privacy.local_reports",
    "LocalSampled": "privacy.local",
    "LogFormat": "data.logs",
    "NoiseSource": "privacy.noise",
    "OneShot": "privacy.one_shot",
    "Plan": "planning",
    "Policy": "policy",
    "PrivateCounts": "releases",
    "Reports": "privacy.reports",
    "RewardLaw": "envs.rewards",
    "RunResult": "experiment",
    "Shuffle": "privacy.shuffle",
    "Toeplitz": "privacy.toeplitz",
    "Tree": "privacy.tree",
    "audit": "privacy.audit",
    "calibrate": "privacy.calibration",
    "evaluate": "offline",
    "fit": "offline",
    "greedy_plan": "planning",
    "learn": "experiment",
    "make": "envs.registry",
    "occupancy": "planning",
    "optimal_plan": "planning",
    "plot": "report",
    "policy_value": "planning",
    "run": "experiment",
    "run_seeds": "experiment",
    "uniform_policy": "planning",
    "verify": "certificate",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    value: object = getattr(import_module(f"discreet.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
