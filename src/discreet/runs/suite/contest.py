"""Which runs a learner's scores need: every problem, trust model and budget that it can be asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from discreet import catalog
from discreet.runs.engine import Cell, Role, why_impossible
from discreet.runs.suite.problems import BUDGETS, DELTA, FIRST, SuiteProblem
from discreet.runs.suite.reference import experiment

#: The model of a learner without privacy.
NONE = "none"


@dataclass(frozen=True)
class Trial:
    """One learner, model and budget on one problem: its cells, or why there are none."""

    problem: str
    model: str
    epsilon: float | None
    cells: tuple[Cell, ...] = ()
    refused: str | None = None


def trials(
    learner: Any,
    problems: Sequence[SuiteProblem],
    models: Sequence[str] = (),
    budgets: Sequence[float] = (),
    role: Role = "reporting",
    runs: int = 5,
) -> Iterator[Trial]:
    """All of them, in the suite's order; `models` and `budgets` select, where they are given."""
    entry = catalog.algorithm(learner) if isinstance(learner, str) else catalog.own(learner, True)
    offered = [model for model in BUDGETS if model in entry.models] if entry.private else [NONE]
    chosen = [model for model in offered if not models or model in models]
    if not chosen:
        raise ValueError(f"{entry.name} has no form named {', '.join(models)}; it has {', '.join(offered)}")
    for problem in problems:
        for model in chosen:
            for epsilon in (None,) if model == NONE else budgets or BUDGETS[model]:
                yield _trial(learner, entry, problem, model, epsilon, role, runs)


def _trial(
    learner: Any,
    entry: catalog.Algorithm,
    problem: SuiteProblem,
    model: str,
    epsilon: float | None,
    role: Role,
    runs: int,
) -> Trial:
    instance, seed = FIRST[role]
    if entry.runner == "adversarial" and problem.adversary is None:
        return Trial(problem.name, model, epsilon, refused=f"{entry.name} meets losses that an adversary chooses")
    budget = {} if epsilon is None else {"model": model, "epsilon": epsilon, "delta": DELTA.get(model)}
    try:
        asked = [experiment(problem, problem.model(instance + i), learner, **budget) for i in range(runs)]
        reason = why_impossible(asked[0])
    except ValueError as error:
        reason = str(error)
    if reason is not None:
        return Trial(problem.name, model, epsilon, refused=reason)
    return Trial(problem.name, model, epsilon, tuple(Cell(one, seed + i, role) for i, one in enumerate(asked)))
