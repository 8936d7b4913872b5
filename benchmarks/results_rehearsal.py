"""How far to believe what `calibrate --env` says of Spotlight: rehearsed users lost beside those of other seeds.

python benchmarks/results_rehearsal.py      the rows of docs/spotlight.md, "Users lost" (seven minutes of one core)
"""

from __future__ import annotations

import numpy as np

from discreet.runs.rehearsal import SEEDS
from families import PROBLEMS
from results_families import SECOND, STORED, TABLES, THIRD, Job, played, stored

#: The first seed of every look.
LOOKS = {"": TABLES[1], ", second look": SECOND[1], ", third look": THIRD[1]}


def main() -> None:
    measured: dict[tuple[str, int, int], list[float]] = {}
    for label, problem, instance, seed, _, model, _ in (rows := stored(STORED)):
        if (label, model) == ("spotlight", "joint"):
            key = (problem, int(instance), max(first for first in LOOKS.values() if first <= int(seed)))
            measured.setdefault(key, []).append(
                float(rows[label, problem, instance, seed, "20000", model, "1"]["ratio"])
            )
    for look, first in LOOKS.items():
        for split in ("tuning", "reporting"):
            found = []
            for problem in (each for each in PROBLEMS if each.split == split):
                instances = sorted(i for name, i, later in measured if name == problem.name and later == first)
                told = [
                    float(played(Job("", "spotlight", problem.name, i, seed, 20_000, "joint", 1.0))["ratio"])
                    for i in instances
                    for seed in SEEDS
                ]
                true = [np.mean(measured[problem.name, i, first]) for i in instances]
                found.append(np.mean(true) / np.mean(told))
            near = [np.mean([1 / factor <= each <= factor for each in found]) for factor in (1.5, 2.0)]
            tenth, last = np.quantile(found, [0.1, 0.9])
            name = f"{split}{look}, from seed {first}"
            print(f"| {name} ({len(found)}) | {near[0]:.0%} | {near[1]:.0%} | {tenth:.2f} to {last:.2f} | ", end="")
            print(f"{min(found):.2f} to {max(found):.2f} |", flush=True)


if __name__ == "__main__":
    main()
