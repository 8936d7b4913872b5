"""What we claim to implement: paper name → (agent, privatizer, schedule). The command line, the documentation and
the contract tests read this list; a new algorithm is one file and one entry here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from discreet.agents.policy_optimization import PolicyOptimization
from discreet.agents.ucbvi import UCBVI
from discreet.planning import Agent
from discreet.privacy.exact import Exact
from discreet.privacy.protocol import Privatizer
from discreet.schedules import EveryEpisode, GeometricEpochs, Schedule
from discreet.structure import PublicStructure


@dataclass(frozen=True)
class Problem:
    """The public facts a triple is configured with."""

    num_states: int
    num_actions: int
    horizon: int
    num_episodes: int
    pooled: bool = False
    schedule: str = "epochs"
    confidence_scale: float | None = None
    mode: str = "practical"
    epsilon: float | None = None
    delta: float = 0.0
    model: str = "joint"
    neighbours: str = "replace"
    structure: PublicStructure = field(default_factory=PublicStructure)
    tie_seed: int = 0

    def scale(self, default: float) -> float:
        return default if self.confidence_scale is None else self.confidence_scale


class Triple(NamedTuple):
    agent: Agent
    privatizer: Privatizer
    schedule: Schedule


@dataclass(frozen=True)
class Algorithm:
    name: str
    summary: str
    source: str
    build: Callable[[Problem], Triple]
    private: bool = False
    models: tuple[str, ...] = ("joint",)


MODES = ("practical", "paper")
SCHEDULES: Mapping[str, Callable[[], Schedule]] = MappingProxyType({"every": EveryEpisode, "epochs": GeometricEpochs})


def _schedule(problem: Problem) -> Schedule:
    return SCHEDULES[problem.schedule]()


def _ucbvi(problem: Problem) -> Triple:
    agent = UCBVI(problem.num_episodes, "hoeffding", problem.scale(0.001), tie_seed=problem.tie_seed)
    return Triple(agent, Exact(), _schedule(problem))


def _ucbvi_bernstein(problem: Problem) -> Triple:
    agent = UCBVI(problem.num_episodes, "bernstein", problem.scale(0.003), tie_seed=problem.tie_seed)
    return Triple(agent, Exact(), _schedule(problem))


def _oppo(problem: Problem) -> Triple:
    agent = PolicyOptimization(problem.num_episodes, problem.scale(0.003), rate_scale=10.0)
    return Triple(agent, Exact(), _schedule(problem))


_ALGORITHMS = (
    Algorithm("ucbvi", "optimistic value iteration, Hoeffding bonus", "[AOM17] bonus 1", _ucbvi),
    Algorithm("ucbvi-bernstein", "optimistic value iteration, Bernstein bonus", "[AOM17] bonus 2", _ucbvi_bernstein),
    Algorithm("oppo", "optimistic policy optimisation (mirror descent)", "[SERM20]", _oppo),
)

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({entry.name: entry for entry in _ALGORITHMS})


def algorithm(name: str) -> Algorithm:
    """The entry behind a name; an unknown name is answered with the nearest known one."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    near = difflib.get_close_matches(name, ALGORITHMS, n=1, cutoff=0.0)[0]
    raise ValueError(f"unknown algorithm {name!r}; did you mean {near!r}? Known are {', '.join(sorted(ALGORITHMS))}")
