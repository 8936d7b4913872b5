"""Reinforcement learning that keeps its users' secrets.

The public names; each is imported from its module when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.catalog import Algorithm, Triple, register_algorithm
    from discreet.envs.gym import GymnasiumUsers
    from discreet.envs.registry import make, register_env
    from discreet.envs.rewards import RewardLaw
    from discreet.mdp import FiniteMDP
    from discreet.offline.certificate import verify
    from discreet.offline.comparison import compare
    from discreet.offline.declaration import Declaration
    from discreet.offline.fitting import Fitted, evaluate, fit
    from discreet.people.counts import Counts, CountSpec
    from discreet.people.episodes import Episodes
    from discreet.people.logs import LogFormat
    from discreet.planning import Plan, greedy_plan, occupancy, optimal_plan, policy_value, uniform_policy
    from discreet.policy import Policy
    from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry
    from discreet.privacy.audit.attacks import audit
    from discreet.privacy.noise import NoiseSource
    from discreet.privacy.sums.epochs import Epochs
    from discreet.privacy.sums.exact import Exact
    from discreet.privacy.sums.one_shot import OneShot
    from discreet.privacy.sums.toeplitz import Toeplitz
    from discreet.privacy.sums.tree import Tree
    from discreet.privacy.trust.local import LocalLaplace, LocalSampled
    from discreet.privacy.trust.local_reports import LocalReports
    from discreet.privacy.trust.reports import Reports
    from discreet.privacy.trust.shuffle import Shuffle
    from discreet.problem import Problem, PublicStructure
    from discreet.releases.counts import PrivateCounts
    from discreet.runs.experiment import Experiment, run, run_seeds
    from discreet.runs.feasibility import calibrate
    from discreet.runs.learning import Learned, learn
    from discreet.runs.report import plot
    from discreet.runs.results import RunResult

#: The one place of the version: packaging, certificates, results and the documents read it here.
__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Budget",
    "CountSpec",
    "Counts",
    "Declaration",
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
    "Problem",
    "PublicStructure",
    "Reports",
    "RewardLaw",
    "RunResult",
    "Shuffle",
    "Toeplitz",
    "Tree",
    "Triple",
    "audit",
    "calibrate",
    "compare",
    "evaluate",
    "fit",
    "greedy_plan",
    "learn",
    "make",
    "occupancy",
    "optimal_plan",
    "plot",
    "policy_value",
    "register_algorithm",
    "register_env",
    "run",
    "run_seeds",
    "uniform_policy",
    "verify",
]

_HOMES = {
    "Algorithm": "catalog",
    "Budget": "privacy.accounting",
    "CountSpec": "people.counts",
    "Counts": "people.counts",
    "Declaration": "offline.declaration",
    "Episodes": "people.episodes",
    "Epochs": "privacy.sums.epochs",
    "Exact": "privacy.sums.exact",
    "Experiment": "runs.experiment",
    "FiniteMDP": "mdp",
    "Fitted": "offline.fitting",
    "Guarantee": "privacy.accounting",
    "GymnasiumUsers": "envs.gym",
    "Learned": "runs.learning",
    "LedgerEntry": "privacy.accounting",
    "LocalLaplace": "privacy.trust.local",
    "LocalReports": "privacy.trust.local_reports",
    "LocalSampled": "privacy.trust.local",
    "LogFormat": "people.logs",
    "NoiseSource": "privacy.noise",
    "OneShot": "privacy.sums.one_shot",
    "Plan": "planning",
    "Policy": "policy",
    "PrivateCounts": "releases.counts",
    "Problem": "problem",
    "PublicStructure": "problem",
    "Reports": "privacy.trust.reports",
    "RewardLaw": "envs.rewards",
    "RunResult": "runs.results",
    "Shuffle": "privacy.trust.shuffle",
    "Toeplitz": "privacy.sums.toeplitz",
    "Tree": "privacy.sums.tree",
    "Triple": "catalog",
    "audit": "privacy.audit.attacks",
    "calibrate": "runs.feasibility",
    "compare": "offline.comparison",
    "evaluate": "offline.fitting",
    "fit": "offline.fitting",
    "greedy_plan": "planning",
    "learn": "runs.learning",
    "make": "envs.registry",
    "occupancy": "planning",
    "optimal_plan": "planning",
    "plot": "runs.report",
    "policy_value": "planning",
    "register_algorithm": "catalog",
    "register_env": "envs.registry",
    "run": "runs.experiment",
    "run_seeds": "runs.experiment",
    "uniform_policy": "planning",
    "verify": "offline.certificate",
}


def __getattr__(name: str) -> object:
    if name == "results":
        return import_module("discreet.results")
    if name not in _HOMES:
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    value: object = getattr(import_module(f"discreet.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
