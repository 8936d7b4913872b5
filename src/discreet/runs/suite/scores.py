"""Scores of stored runs: 1 is the strong learner without privacy, 0 is the uniform policy.

score = (1 − ρ)/(1 − ρ_ref), ρ the regret over that of the uniform policy. An axis has one score per learner and trust
model: the mean over its budgets and runs, with a bootstrap interval that resamples runs within budgets.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path

from discreet.runs.engine import Role
from discreet.runs.results import RunResult
from discreet.runs.statistics import Interval, bootstrap, mean
from discreet.runs.suite.problems import SUITES, role_of
from discreet.runs.suite.reference import standards

_PLACE = re.compile(r"(?P<problem>[a-z-]+)-(?P<instance>[0-9]+)@(?P<digest>[0-9a-f]+)")


@dataclass(frozen=True)
class Run:
    """One scored run."""

    learner: str
    model: str  # of trust; "none" without privacy
    problem: str
    epsilon: float | None
    instance: int
    seed: int
    score: float
    gap: float  # of the last policy, 0 optimal, 1 uniform

    @property
    def contender(self) -> str:
        return self.learner if self.model == "none" else f"{self.learner}, {self.model}"


def scored(rows: Iterable[RunResult], suite: str = "v1", role: Role = "reporting") -> list[Run]:
    """Every run on an instance of the suite that belongs to this role; all others are passed over."""
    known, found = standards(suite), []
    for row in rows:
        place = _PLACE.fullmatch(str(row.settings["env"]))
        if place is None or row.seed is None or row.regret_ratio is None or row.final_gap is None:
            continue
        problem, instance = place["problem"], int(place["instance"])
        standard = known.get((problem, instance))
        if standard is None or not place["digest"].startswith(standard.digest) or role_of(instance, row.seed) != role:
            continue
        learner, model = str(row.settings["algorithm"]).partition("@")[0], row.settings["model"] or "none"
        score = (1.0 - row.regret_ratio) / (1.0 - standard.ratio)
        facts = learner, model, problem, row.settings["epsilon"], instance, row.seed
        found.append(Run(*facts, score, row.final_gap))
    return found


@dataclass(frozen=True)
class Score:
    """Of one contender on one axis."""

    mean: float
    interval: Interval | None
    worst: float
    gap: float
    by_budget: Mapping[float | None, float]
    runs: int


def score(runs: Sequence[Run]) -> Score:
    budgets: dict[float | None, list[Run]] = {}
    for run in runs:
        budgets.setdefault(run.epsilon, []).append(run)
    strata = [[run.score for run in group] for group in budgets.values()]
    return Score(
        statistics.fmean(statistics.fmean(values) for values in strata),
        bootstrap(strata, mean),
        min(run.score for run in runs),
        statistics.fmean(run.gap for run in runs),
        {budget: statistics.fmean(run.score for run in group) for budget, group in sorted(budgets.items(), key=str)},
        len(runs),
    )


#: contender → axis → score
Board = dict[str, dict[str, Score]]


def board(runs: Iterable[Run], suite: str = "v1") -> Board:
    """Contenders by their mean over the axes they have, those with a single axis last; axes in the suite's order."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        groups.setdefault(run.contender, {}).setdefault(run.problem, []).append(run)
    found = {
        contender: {problem.name: score(axes[problem.name]) for problem in SUITES[suite] if problem.name in axes}
        for contender, axes in groups.items()
    }
    return dict(sorted(found.items(), key=lambda item: (len(item[1]) == 1, -overall(item[1]))))


def overall(axes: Mapping[str, Score]) -> float:
    return statistics.fmean(each.mean for each in axes.values())


# Scores on disk -----------------------------------------------------------------------------------------------------

_COLUMNS = tuple(each.name for each in fields(Run))


def write(runs: Iterable[Run], path: Path) -> None:
    """Scored runs as a table of text."""
    ordered = sorted(runs, key=lambda run: (run.contender, run.problem, run.epsilon or 0.0, run.seed))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for run in ordered:
            budget = "" if run.epsilon is None else f"{run.epsilon:g}"
            facts = run.learner, run.model, run.problem, budget, run.instance, run.seed
            writer.writerow([*facts, f"{run.score:.4f}", f"{run.gap:.4f}"])


def published(suite: str = "v1") -> list[Run]:
    """The scores of discreet's own learners, as they were measured with this version."""
    text = files(__package__).joinpath(f"{suite}-scores.csv").read_text(encoding="utf-8")
    return [
        Run(
            *(row["learner"], row["model"], row["problem"], float(row["epsilon"]) if row["epsilon"] else None),
            *(int(row["instance"]), int(row["seed"]), float(row["score"]), float(row["gap"])),
        )
        for row in csv.DictReader(text.splitlines())
    ]
