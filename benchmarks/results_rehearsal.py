"""How far to believe what Spotlight's users are said to be: the law of docs/spotlight.md, "Users lost", and
`calibrate --env`, which rehearses on the problem itself, both beside the runs of results_families.py.

python benchmarks/results_rehearsal.py          both tables (a quarter of an hour of one core)
python benchmarks/results_rehearsal.py --law    that of the law alone (seconds)
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from discreet.people.counts import CountSpec
from discreet.privacy.trust.reports import users_lost
from discreet.problem import PublicStructure
from discreet.runs.rehearsal import SEEDS
from families import PROBLEMS, Problem
from results_families import LOOKS as FURTHER
from results_families import NAMES, STORED, TABLES, Job, played, stored

USERS = 20_000
#: The first seed of every look.
LOOKS = {"": TABLES[1]} | {
    f", {name.removeprefix('A ')} look": seed for name, (_, seed) in zip(NAMES, FURTHER, strict=True)
}


def measured() -> dict[tuple[str, int], dict[int, float]]:
    """Mean ratio of every instance, by problem and look."""
    found: dict[tuple[str, int], dict[int, list[float]]] = {}
    for (label, problem, instance, seed, users, model, _), row in stored(STORED).items():
        if (label, model, users) == ("spotlight", "joint", str(USERS)):
            look = max(first for first in LOOKS.values() if first <= int(seed))
            found.setdefault((problem, look), {}).setdefault(int(instance), []).append(float(row["ratio"]))
    return {key: {i: float(np.mean(each)) for i, each in of.items()} for key, of in found.items()}


def by_law(problem: Problem, instance: int) -> float:
    """Lost users as a share of all, by the law with the true number of outcomes."""
    mdp = problem.build(instance)
    S, A, H = mdp.num_states, mdp.num_actions, mdp.horizon
    outcomes = 1.0 if H == 1 else float((mdp.transitions > 0.0).sum(axis=-1).mean())
    return users_lost(CountSpec(S, A, H, not problem.staged), PublicStructure(), outcomes) / USERS


def by_rehearsal(problem: Problem, instance: int) -> float:
    jobs = (Job("", "spotlight", problem.name, instance, seed, USERS, "joint", 1.0) for seed in SEEDS)
    return float(np.mean([float(played(job)["ratio"]) for job in jobs]))


def table(told: Callable[[Problem, int], float]) -> None:
    """What was measured over what was told: how many problems within a factor, and the spread."""
    runs = measured()
    for look, first in LOOKS.items():
        for split in ("tuning", "reporting", "textbook"):
            problems = [each for each in PROBLEMS if each.split == split and (each.name, first) in runs]
            if not problems:  # textbook problems were looked at once
                continue
            found = []
            for problem in problems:
                true = runs[problem.name, first]
                found.append(np.mean(list(true.values())) / np.mean([told(problem, i) for i in true]))
            near = [np.mean([1 / factor <= each <= factor for each in found]) for factor in (1.5, 2.0)]
            tenth, last = np.quantile(found, [0.1, 0.9])
            print(
                f"| {split}{look} ({len(found)}) | {near[0]:.0%} | {near[1]:.0%} | {tenth:.2f} to {last:.2f} | ",
                end="",
            )
            print(f"{min(found):.2f} to {max(found):.2f} |", flush=True)


if __name__ == "__main__":
    table(by_law)
    if "--law" not in sys.argv[1:]:
        print()
        table(by_rehearsal)
