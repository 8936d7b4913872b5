"""The table of docs/results-online.md: every count-based learner, on fresh seeds, resumable.

    python benchmarks/results_online.py            the table that is committed (at most 40 minutes on 2 cores)
    python benchmarks/results_online.py --full     the whole grid
    python benchmarks/results_online.py --only M3  settings whose name contains a word

Every run is one Parquet file in results/online; a stopped command continues where it was. Settings were tuned on
seeds from 5000 on; the table uses seeds 0 to 9 (paper mode: 0 to 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import tables
from discreet.runs.experiment import Experiment
from tables import Line

FRESH = range(10)
PAPER_SEEDS = range(3)

ENVIRONMENTS: dict[str, dict[str, object]] = {
    "R6": {"env": "riverswim", "states": 6, "horizon": 20},
    "M3": {"env": "riverswim", "states": 3, "horizon": 6},
    "D5": {"env": "dirichlet"},
    "FL": {"env": "frozenlake"},
}
BOUNDED = ("dp-ucbvi", "private-ucb-vi", "private-ucb-po", "pucb")
HEAVY = ("private-heavy-ucbvi", "private-heavy-ucbpo")


def line(environment: str, algorithm: str, label: str, seeds: Sequence[int] = FRESH, **options: object) -> Line:
    fields = {**ENVIRONMENTS[environment], **options}
    return Line(environment, f"{algorithm} {label}", Experiment(algorithm, **fields), seeds)  # type: ignore[arg-type]


def lines(full: bool) -> Iterator[Line]:
    """The committed table; `full` adds every ε, all learners at 2·10⁵ users, and every model everywhere."""
    small, large = 20_000, 200_000
    epsilons = (0.1, 0.5, 1.0, 10.0)
    for name in ENVIRONMENTS:
        for pooled in (True, False):
            where = "pooled" if pooled else "staged"
            for twin in ("ucbvi-bernstein", "ucbvi", "oppo"):
                yield line(name, twin, f"{where}, non-private", pooled=pooled, episodes=small)
            for algorithm in BOUNDED:
                for epsilon in epsilons if full or algorithm == "dp-ucbvi" else (1.0,):
                    options = {"pooled": pooled, "epsilon": epsilon}
                    yield line(name, algorithm, f"{where}, joint, ε={epsilon:g}", episodes=small, **options)
                    if full or (algorithm == "dp-ucbvi" and epsilon in (1.0, 10.0)):
                        gaussian = f"{where}, joint Gaussian δ=1e-6, ε={epsilon:g}"
                        yield line(name, algorithm, gaussian, episodes=small, delta=1e-6, **options)
                        large_label = f"{where}, joint, ε={epsilon:g}, K=2·10⁵"
                        yield line(name, algorithm, large_label, episodes=large, **options)
                    if algorithm != "pucb" and (full or (algorithm == "dp-ucbvi" and epsilon in (1.0, 10.0))):
                        for reports in ("sampled", "laplace"):
                            local = {"model": "local", "local_reports": reports, "episodes": small, **options}
                            yield line(name, algorithm, f"{where}, local {reports}, ε={epsilon:g}", **local)
    for algorithm in ("dp-ucbvi", "private-ucb-vi", "private-ucb-po", "pucb"):
        paper = {"mode": "paper", "epsilon": 1.0, "episodes": small}
        yield line("R6", algorithm, "staged, paper mode, ε=1", PAPER_SEEDS, **paper)
    yield line("R6", "dp-ucbvi", "staged, Gaussian δ=1e-6, ε=1, K=2·10⁵", epsilon=1.0, delta=1e-6, episodes=large)
    stable = {"reward_law": "alpha-stable", "alpha": 2.0, "pooled": True, "episodes": small}
    for twin in ("heavy-ucbvi", "heavy-ucbpo"):
        yield line("R6", twin, "pooled, α=2, non-private", **stable)
    for algorithm in HEAVY:
        for epsilon in (0.5, 1.0, 2.0):
            yield line("R6", algorithm, f"pooled, α=2, joint, ε={epsilon:g}", epsilon=epsilon, **stable)
        yield line("R6", algorithm, "pooled, α=2, local, ε=2", epsilon=2.0, model="local", **stable)
    for law, options in (
        ("gaussian", {}),
        ("alpha-stable", {"alpha": 1.5, "moment_order": 0.4}),
        ("student-t", {"df": 3.0}),
        ("pareto", {"tail_index": 3.0}),
    ):
        heavy = {"reward_law": law, "pooled": True, "episodes": small, "epsilon": 2.0, **options}
        yield line("R6", "private-heavy-ucbvi", f"pooled, {law}, joint, ε=2", **heavy)
    for algorithm in HEAVY:
        paper = {**stable, "mode": "paper", "epsilon": 1.0, "pooled": False}
        yield line("R6", algorithm, "staged, α=2, paper mode, ε=1", PAPER_SEEDS, **paper)


if __name__ == "__main__":
    tables.main(__doc__, lines, Path("results/online"), "results-online.md")
