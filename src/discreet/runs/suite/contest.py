"""Which runs a learner's scores need: every problem, trust model and budget that it can be asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from discreet import catalog
from discreet.privacy.noise import NoiseSource
from discreet.runs.experiment import Experiment, Setting
from discreet.runs.suite.problems import BUDGETS, DELTA, FIRST, Role, SuiteProblem
from discreet.runs.suite.reference import experiment
from discreet.session import Session


def contender(name: str) -> Any:
    """A learner by name, or the object that `package.module:attribute` names."""
    module, colon, attribute = name.partition(":")
    if not colon:
        catalog.algorithm(name)
        return name
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name!r} cannot be imported ({error}); expected package.module:learner") from None
    catalog.own(found, True)
    return found


@dataclass(frozen=True)
class Trial:
    """One learner, model and budget on one problem: its experiments and seeds, or why there are none."""

    problem: str
    model: str  # "none" without privacy
    epsilon: float | None
    runs: tuple[tuple[Experiment, int], ...] = ()
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
    offered = [model for model in entry.models if model in BUDGETS] if entry.private else ["none"]
    if models and not (chosen := [model for model in offered if model in models]):
        raise ValueError(f"{entry.name} has none of these forms: {', '.join(models)}; it has {', '.join(offered)}")
    for problem in problems:
        for model in chosen if models else offered:
            for epsilon in (budgets or BUDGETS[model]) if model != "none" else (None,):
                yield _trial(learner, problem, model, epsilon, role, runs)


def _trial(
    learner: Any, problem: SuiteProblem, model: str, epsilon: float | None, role: Role, runs: int
) -> Trial:
    instance, seed = FIRST[role]
    budget: dict[str, Any] = {}
    if epsilon is not None:
        budget = {"model": model, "epsilon": epsilon, "delta": DELTA.get(model)}
    try:
        asked = [(experiment(problem, problem.model(instance + i), learner, **budget), seed + i) for i in range(runs)]
        setting = Setting.of(asked[0][0])  # whatever is refused is refused before anything is computed
        Session.open(setting.triple(), setting.problem, NoiseSource.seeded(0), setting.entry.feedback)
    except ValueError as error:
        return Trial(problem.name, model, epsilon, refused=str(error))
    return Trial(problem.name, model, epsilon, tuple(asked))
