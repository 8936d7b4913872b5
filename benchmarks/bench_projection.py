"""Count projection against one linear program per problem, both on one core of this machine in one run."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from discreet.kernels.projection import project_counts
from measuring import Row, cpu_seconds, row

SUCCESSORS = 20
PROBLEMS = 100_000
TARGET = 1000.0


def instances(rng: np.random.Generator, problems: int, successors: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Noisy counts as a learner meets them: true counts, Laplace noise on each and on the total, slack of a width."""
    counts = rng.poisson(20.0, (problems, successors)).astype(np.float64)
    totals = counts.sum(axis=1) + rng.laplace(0.0, 10.0, problems)
    return counts + rng.laplace(0.0, 10.0, counts.shape), totals, 30.0


def linear_program(counts: np.ndarray, total: float, slack: float) -> float:
    """min t : x ≥ 0, |x − c| ≤ t, |Σx − n| ≤ e, as anybody would write it."""
    S = len(counts)
    eye, column = np.eye(S), np.ones((S, 1))
    ones = np.append(np.ones(S), 0.0)
    A = np.vstack([np.hstack([eye, -column]), np.hstack([-eye, -column]), ones, -ones])
    b = np.concatenate([counts, -counts, [total + slack, slack - total]])
    return float(linprog(np.append(np.zeros(S), 1.0), A_ub=A, b_ub=b, bounds=(0, None), method="highs").fun)


def rows() -> list[Row]:
    """Problems per second of CPU time, ours and the baseline."""
    counts, totals, slack = instances(np.random.default_rng(0), PROBLEMS, SUCCESSORS)
    project_counts(counts[:2], totals[:2], slack)  # compile
    ours = PROBLEMS / cpu_seconds(lambda: project_counts(counts, totals, slack), 15)
    few = range(100)
    base = len(few) / cpu_seconds(lambda: [linear_program(counts[i], totals[i], slack) for i in few], 5)
    against = "scipy linprog (HiGHS), one problem at a time"
    return [row(f"count projection, S={SUCCESSORS}", ours, base, against, "problems/s", TARGET)]


if __name__ == "__main__":
    for line in rows():
        print(
            f"{line['name']}: {line['ours']:,.0f} {line['unit']} against {line['baseline']:,.0f} "
            f"({line['baseline_name']}), {line['ratio']:,.0f}x (target {line['target']:,.0f}x)"
        )
