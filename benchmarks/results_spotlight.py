"""The table of docs/results-spotlight.md: `make results-spotlight`. Seeds found in the folder are not run again."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from discreet import provenance
from discreet.runs import results
from discreet.runs.experiment import Experiment, run_seeds
from discreet.runs.results import RunResult

SEEDS = range(10)
TAIL_SEEDS = range(40)


def spotlight(env: str, pooled: bool, **more: object) -> Experiment:
    return replace(Experiment("spotlight", env=env, pooled=pooled, epsilon=1.0), **more)


def r6(pooled: bool = True, **more: object) -> Experiment:
    return spotlight("riverswim", pooled, states=6, horizon=20, **more)


def m3(pooled: bool = True, **more: object) -> Experiment:
    return spotlight("riverswim", pooled, states=3, horizon=6, **more)


@dataclass(frozen=True)
class Line:
    """One line of the table: the mean over its experiments (instances) and seeds."""

    section: str
    name: str
    experiments: tuple[Experiment, ...]
    target: float | None = None
    tuned: bool = True  # whether the environment was looked at while choosing constants (always with other seeds)
    seeds: range = SEEDS


def instances(env: str, pooled: bool, count: int = 6, **more: object) -> tuple[Experiment, ...]:
    return tuple(spotlight(env, pooled, instance=i, **more) for i in range(count))


JOINT = "Joint, replace, pure ε = 1, K = 2·10⁴ unless said"
LOCAL = "Local, replace, pooled"
PAPER = "dp-ucbvi, practical (discreet's own learner on counts), at the same guarantee, pooled, ε = 1, K = 2·10⁴"
MORE = "Other budgets and lengths (joint)"
LINES = (
    Line(JOINT, "R6 pooled", (r6(),), 0.075),
    Line(JOINT, "R6 pooled, 40 seeds", (r6(),), 0.075, seeds=TAIL_SEEDS),
    Line(JOINT, "M3 pooled", (m3(),), 0.022),
    Line(JOINT, "M3 staged", (m3(False),), 0.055),
    Line(JOINT, "R6 staged", (r6(False),), 0.60),
    Line(JOINT, "R6 staged, known successors", (r6(False, known_successors=True),), 0.33),
    Line(JOINT, "D5 pooled, instances 0–5", instances("dirichlet", True), 0.075, tuned=False),
    Line(JOINT, "D5 staged, instances 0–5", instances("dirichlet", False), 0.36, tuned=False),
    Line(JOINT, "G2 two rooms, pooled", (spotlight("two-rooms", True),), 0.30),
    Line(JOINT, "FL frozen lake, pooled, K = 2·10⁵", (spotlight("frozenlake", True, episodes=200_000),), 0.35),
    Line(JOINT, "C4 changeswim, staged", (spotlight("changeswim", False),), 0.16),
    Line(JOINT, "W4 swapswim, staged", (spotlight("swapswim", False),), 0.18),
    Line(JOINT, "N4 staged, instances 0–5", instances("nonstationary-dirichlet", False), tuned=False),
    Line(JOINT, "F3 flipswim, staged", (spotlight("flipswim", False),), tuned=False),
    Line(JOINT, "chain, pooled", (spotlight("chain", True),), tuned=False),
    Line(JOINT, "deep sea, staged", (spotlight("deep-sea", False),), tuned=False),
    Line(MORE, "R6 pooled, ε = 0.1", (r6(epsilon=0.1),)),
    Line(MORE, "R6 pooled, ε = 0.5", (r6(epsilon=0.5),)),
    Line(MORE, "R6 pooled, ε = 10", (r6(epsilon=10.0),)),
    Line(MORE, "R6 pooled, zero-out", (r6(neighbours="zero-out"),)),
    Line(MORE, "R6 pooled, start not public", (r6(public_initial=False),)),
    Line(MORE, "R6 pooled, known successors", (r6(known_successors=True),)),
    Line(MORE, "R6 pooled, K = 2·10⁵", (r6(episodes=200_000),)),
    Line(MORE, "R6 staged, K = 2·10⁵", (r6(False, episodes=200_000),)),
    Line(MORE, "G2 two rooms, pooled, K = 2·10⁵", (spotlight("two-rooms", True, episodes=200_000),)),
    Line(MORE, "R6 pooled, K = 10⁶", (r6(episodes=1_000_000),), seeds=range(3)),
    Line(LOCAL, "M3 ε = 1, K = 2·10⁴", (m3(model="local"),), 0.13),
    Line(LOCAL, "M3 ε = 1, K = 2·10⁵", (m3(model="local", episodes=200_000),), 0.015),
    Line(LOCAL, "R6 ε = 1, K = 2·10⁴", (r6(model="local"),), 0.60),
    Line(LOCAL, "R6 ε = 1, K = 2·10⁵", (r6(model="local", episodes=200_000),), 0.12),
    Line(LOCAL, "R6 ε = 4, K = 2·10⁴", (r6(model="local", epsilon=4.0),), 0.055),
    Line(LOCAL, "D5 ε = 1, instances 0–5, K = 2·10⁴", instances("dirichlet", True, model="local"), tuned=False),
    Line(PAPER, "DP-UCBVI joint, R6", (r6(algorithm="dp-ucbvi"),)),
    Line(PAPER, "DP-UCBVI joint, M3", (m3(algorithm="dp-ucbvi"),)),
    Line(PAPER, "DP-UCBVI local (Laplace), R6", (r6(algorithm="dp-ucbvi", model="local"),)),
    Line(PAPER, "DP-UCBVI local (Laplace), M3", (m3(algorithm="dp-ucbvi", model="local"),)),
)


def ratios(experiment: Experiment, seeds: range, folder: Path, jobs: int) -> list[float]:
    """Regret over that of the random policy, one number per seed; what is missing is run and stored."""
    results.prepare(folder)
    stored = results.stored_seeds(folder, experiment.id, provenance.source_digest())
    found = {seed: row.regret_ratio for seed, row in stored.items()}

    def finished(result: RunResult) -> None:
        results.write(result, folder)
        found[result.seed] = result.regret_ratio

    missing = [seed for seed in seeds if seed not in found]
    if missing:
        run_seeds(experiment, missing, jobs, finished=finished)
    return [float(found[seed] or 0.0) for seed in seeds]


def table(folder: Path, jobs: int, seeds: int | None) -> str:
    head = "| setting | mean | sd | median | worst | target | met |\n|---|---|---|---|---|---|---|"
    parts: list[str] = []
    section = ""
    for line in LINES:
        if line.section != section:
            section = line.section
            parts += ["", f"## {section}", "", head]
        chosen = line.seeds if seeds is None else line.seeds[:seeds]
        values = [x for e in line.experiments for x in ratios(e, chosen, folder, jobs)]
        mean, worst = statistics.fmean(values), max(values)
        sd = statistics.stdev(values) if len(values) > 1 else 0.0
        goal = ("", "") if line.target is None else (f"≤ {line.target:g}", "yes" if mean <= line.target else "NO")
        name = line.name if line.tuned else f"{line.name} ◦"
        numbers = (mean, sd, statistics.median(values), worst)
        parts.append(" | ".join(["", name, *(f"{x:.4f}" for x in numbers), *goal, ""]).strip())
        print(parts[-1], flush=True)
    return "\n".join(parts)


PREFACE = """# Spotlight in numbers

Regret divided by that of the uniform random policy (1 = learned nothing), exact, summed over all users. Command:
`make results-spotlight`; seeds 0 to 9 of every line (0 to 39 where said, 0 to 2 at K = 10⁶), all instances and seeds
of a line together. Constants were chosen on the tuning families of [results-families.md](results-families.md), on
other seeds and instances (RiverSwim is one of them; ◦ marks environments that are not). Staged: each step has a model
of its own.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/spotlight"))
    parser.add_argument("--page", type=Path, default=Path("docs/results-spotlight.md"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=None, help="at most so many seeds per line")
    chosen = parser.parse_args()
    chosen.page.write_text(PREFACE + table(chosen.out, chosen.jobs, chosen.seeds) + "\n")


if __name__ == "__main__":
    main()
