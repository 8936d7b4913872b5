"""Twelve frozen problems, one per axis along which private learners differ.

A problem is a generator with many instances: 1000, 1001, … are reported on, 2000, 2001, … are for choosing constants,
with seeds from 0 and from 5000 on. Names, numbers and generators of a version never change (a test holds their
digests); what should change makes a new version.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from discreet.envs import generators, tabular
from discreet.mdp import FiniteMDP
from discreet.runs.engine import Role

#: Role → its first instance and its first seed.
FIRST: Mapping[Role, tuple[int, int]] = {"reporting": (1000, 0), "tuning": (2000, 5000)}
#: Trust model → its three budgets ε, small to large; two servers are asked what joint learners are.
BUDGETS: Mapping[str, tuple[float, float, float]] = {
    "joint": (0.3, 1.0, 3.0),
    "two-servers": (0.3, 1.0, 3.0),
    "shuffle": (0.3, 1.0, 3.0),
    "local": (1.0, 2.0, 4.0),
}
#: δ of the models that have no pure form.
DELTA = {"shuffle": 1e-6}


@dataclass(frozen=True)
class SuiteProblem:
    """One axis: what it asks, who comes, and what is public beside sizes."""

    name: str
    asks: str
    build: Callable[[int], FiniteMDP] = field(compare=False)
    users: int = 20_000
    law: Mapping[str, Any] = field(default_factory=dict)
    adversary: str | None = None

    def model(self, instance: int) -> FiniteMDP:
        return replace(self.build(instance), name=f"{self.name}-{instance}")


def _rewards(instance: int) -> FiniteMDP:
    """Three successors and few rewards where the instance is even; every cell pays where it is odd."""
    build = generators.dense(8, 3, 10) if instance % 2 else generators.garnet(10, 3, 15)
    return build(instance)


def _grid(n: int, horizon: int, random_start: bool) -> Callable[[int], FiniteMDP]:
    """Goal and slip differ from instance to instance."""

    def build(instance: int) -> FiniteMDP:
        slip = float(np.random.default_rng([instance, n]).uniform(0.05, 0.15))
        return generators.grid(n, horizon, slip, random_start)(instance)

    return build


V1: tuple[SuiteProblem, ...] = (
    SuiteProblem("rewards", "few cells pay, or all of them", _rewards),
    SuiteProblem("branching", "every row has ten outcomes", generators.branch(10, 12)),
    SuiteProblem("one-step", "contexts and one decision, H = 1", generators.bandit(10, 4)),
    SuiteProblem("queue", "a server with three speeds, rewards everywhere", generators.queue(8)),
    SuiteProblem("grid", "slippery moves to one goal", _grid(5, 20, False)),
    SuiteProblem("random-start", "a grid in which people start anywhere", _grid(4, 16, True)),
    SuiteProblem("deep", "one treasure behind ten right moves", generators.deep_sea(10, 0.05)),
    SuiteProblem("long", "a hundred steps", generators.inventory(6, 100)),
    SuiteProblem("changing", "actions trade places at three steps", generators.swapping(4, 12, 3)),
    SuiteProblem("large", "five hundred states, near moves", generators.birth_death(500, 30), users=50_000),
    SuiteProblem(
        "heavy-tails",
        "Student's rewards with 2.2 degrees of freedom",
        generators.dense(5, 2, 6),
        law={"reward_law": "student-t", "df": 2.2},
    ),
    SuiteProblem(
        "adversarial",
        "losses that an adversary switches",
        lambda instance: tabular.layered(instance=instance),
        adversary="switch",
    ),
)
SUITES: Mapping[str, tuple[SuiteProblem, ...]] = {"v1": V1}


def role_of(instance: int, seed: int) -> Role | None:
    """What a run may be used for; None where instance and seed belong to different roles, or to none."""
    for role, (first, seeds) in FIRST.items():
        if first <= instance < first + 1000 and seeds <= seed < seeds + 5000:
            return role
    return None


def suite(name: str) -> tuple[SuiteProblem, ...]:
    if name not in SUITES:
        raise ValueError(f"unknown suite {name!r}; choose one of {', '.join(SUITES)}")
    return SUITES[name]


def named(version: str, names: Sequence[str] = ()) -> list[SuiteProblem]:
    """The problems of a suite, all or those that are named."""
    known = {problem.name: problem for problem in suite(version)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown problem {name!r}; did you mean {near!r}? `discreet suite list` shows all")
    return [problem for name, problem in known.items() if not names or name in names]
