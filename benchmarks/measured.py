"""Write src/discreet/runs/measured.csv, which `discreet explore` shows, from families.csv.

python benchmarks/measured.py
"""

from __future__ import annotations

import csv
import statistics
from dataclasses import asdict, fields
from pathlib import Path

from discreet import catalog
from discreet.runs.exploring import Measured
from families import PROBLEMS, Problem
from results_families import LEARNERS, LOOKS, STORED

TARGET = Path(__file__).parents[1] / "src" / "discreet" / "runs" / "measured.csv"


def measured() -> list[Measured]:
    """Means over the seeds and instances of the page's first tables; sizes and outcomes are those of instance 0."""
    groups: dict[tuple[str, str], dict[tuple[str, ...], list[dict[str, str]]]] = {}
    with STORED.open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["seed"]) >= LOOKS[0][1]:
                continue
            setting = tuple(row[name] for name in ("model", "episodes", "epsilon"))
            groups.setdefault((row["problem"], row["label"]), {}).setdefault(setting, []).append(row)
    return [
        _measured(problem, learner, rows)
        for problem in PROBLEMS
        for learner in LEARNERS
        for rows in groups[problem.name, learner].values()
    ]


def _measured(problem: Problem, learner: str, rows: list[dict[str, str]]) -> Measured:
    mdp, private = problem.build(0), catalog.algorithm(learner).private
    ratios = [float(row["ratio"]) for row in rows]
    return Measured(
        learner=learner,
        problem=problem.name,
        states=mdp.num_states,
        actions=mdp.num_actions,
        horizon=mdp.horizon,
        branching=round(float((mdp.transitions > 0).sum(axis=-1).mean()), 2),
        pooled=not problem.staged,
        users=int(rows[0]["episodes"]),
        model=rows[0]["model"] if private else "none",
        epsilon=float(rows[0]["epsilon"]) if private else None,
        seeds=len(rows),
        ratio=round(statistics.fmean(ratios), 5),
        worst=max(ratios),
        gap=round(statistics.fmean(float(row["gap"]) for row in rows), 5),
    )


def main() -> None:
    with TARGET.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Measured)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in measured())


if __name__ == "__main__":
    main()
