"""The references of the suite: chosen on tuning instances, measured on all, written beside the suite's problems.

python benchmarks/suite_reference.py v1        minutes; what the file has is left as it is
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from pathlib import Path

import discreet.runs.suite
from discreet.runs.suite.problems import FIRST, SUITES, SuiteProblem
from discreet.runs.suite.reference import Candidate, candidates, played

#: Instances of each role, and runs of the reference on each.
INSTANCES, RUNS, TRIALS = 10, 3, 6
FIELDS = ("problem", "role", "instance", "digest", "learner", "scale", "ratio", "gap")


def chosen(problem: SuiteProblem) -> Candidate:
    instance, seed = FIRST["tuning"]

    def cost(candidate: Candidate) -> float:
        return statistics.fmean(played(problem, instance + i, seed + i, candidate).ratio for i in range(TRIALS))

    costs = {candidate: cost(candidate) for candidate in candidates(problem)}
    for candidate, value in sorted(costs.items(), key=lambda item: item[1])[:6]:
        print(f"  {candidate.learner} {candidate.scale}: {value:.4f}", file=sys.stderr)
    return min(costs, key=lambda candidate: costs[candidate])


def rows(problem: SuiteProblem) -> list[dict[str, str | int]]:
    best = chosen(problem)
    print(problem.name, best, file=sys.stderr, flush=True)
    found: list[dict[str, str | int]] = []
    for role, (instance, seed) in FIRST.items():
        for i in range(INSTANCES):
            runs = [played(problem, instance + i, 10_000 + seed + RUNS * i + j, best) for j in range(RUNS)]
            values = (
                *(problem.name, role, instance + i, problem.model(instance + i).digest[:12], best.learner),
                "" if best.scale is None else f"{best.scale:g}",
                *(f"{statistics.fmean(getattr(run, name) for run in runs):.6f}" for name in ("ratio", "gap")),
            )
            found.append(dict(zip(FIELDS, values, strict=True)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--out", type=Path, default=None, help="the file; problems that it has are left as they are")
    asked = parser.parse_args()
    path = asked.out or Path(discreet.runs.suite.__file__).with_name(f"{asked.suite}.csv")
    known = {row["problem"] for row in csv.DictReader(path.open(encoding="utf-8"))} if path.is_file() else set()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not known:
            writer.writeheader()
        for problem in SUITES[asked.suite]:
            if problem.name not in known:
                writer.writerows(rows(problem))
                file.flush()


if __name__ == "__main__":
    main()
