"""The occupancy solvers against Clarabel (its own solve time, without modelling) and HiGHS, in one run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from discreet.occupancies import (
    Solution,
    barrier_step,
    entropy_step,
    uniform_solution,
    upper_occupancy,
)
from measuring import Row, row, seconds
from oracles_occupancy import BarrierOracle, EntropyOracle, layers_of, random_boxes, reach, reach_program

SIZES, ACTIONS = (1, 10, 10, 10, 10, 10), 5
NAME = "H=6, 10 states per layer, A=5"
CLARABEL = "Clarabel, default tolerances"


def solved(name: str, ours: float, baseline: float, against: str, target: float) -> Row:
    """From the seconds that one problem takes."""
    return row(f"{name}, {NAME}", 1 / ours, 1 / baseline, against, "solves/s", target)


def certified(solution: Solution) -> None:
    assert solution.method == "newton"
    assert solution.violation <= 1e-10
    assert abs(solution.gap) <= 1e-7 * (1 + abs(solution.objective))


def entropy_rows() -> list[Row]:
    """Largest η·L about 30, boxes of half-width up to 0.1; warm: the next episode adds at most 0.05."""
    rng = np.random.default_rng(0)
    space = layers_of(SIZES, ACTIONS)
    boxes = random_boxes(space, rng, 0.1)
    scores = -30.0 * rng.random(space.shape)
    later = scores - 0.05 * rng.random(space.shape)
    first = entropy_step(boxes, scores)
    second = entropy_step(boxes, later, first)
    certified(first)
    certified(second)
    oracle = EntropyOracle(boxes)
    triples = np.repeat(later[..., None], space.shape[1], axis=-1)
    value, _, baseline = min((oracle.solve(triples, tight=False) for _ in range(3)), key=lambda result: result[2])
    assert abs(value - second.objective) <= 1e-4 * (1 + abs(value))
    works = {
        "cold": (lambda: entropy_step(boxes, scores), 30.0),
        "warm": (lambda: entropy_step(boxes, later, first), 50.0),
    }
    return [
        solved(f"entropy step, {name}", seconds(work, 7), baseline, CLARABEL, t) for name, (work, t) in works.items()
    ]


def barrier_rows() -> list[Row]:
    rng = np.random.default_rng(1)
    space = layers_of(SIZES, ACTIONS)
    boxes = random_boxes(space, rng, 0.1, concentration=1.0)
    start = uniform_solution(space)
    losses = 0.3 * rng.random(space.shape) / (start.marginals + 1e-2)
    inside = barrier_step(boxes, losses, start)
    rows = []
    for name, before in (("after new boxes", start), ("same boxes", inside)):
        step = barrier_step(boxes, losses, before)
        certified(step)
        cost = losses[..., None] + 1.0 / np.where(before.measure > 0, before.measure, 1.0)
        oracle = BarrierOracle(boxes, before.measure)
        results = [oracle.solve(cost, tight=False) for _ in range(2)]
        value, _, baseline = min(results, key=lambda result: result[2])
        assert abs(value - step.objective) <= 1e-5 * (1 + abs(value))
        ours = seconds(lambda before=before: barrier_step(boxes, losses, before), 7)
        rows.append(solved(f"barrier step, {name}", ours, baseline, CLARABEL, 50.0))
    return rows


def bound_row() -> Row:
    rng = np.random.default_rng(2)
    space = layers_of(SIZES, ACTIONS)
    boxes = random_boxes(space, rng, 0.1)
    policy = space.unpack(rng.dirichlet(np.ones(ACTIONS), size=space.shape[:2]), 1.0 / ACTIONS)
    bound, program = upper_occupancy(boxes, policy), reach_program(boxes, policy)
    assert abs(bound[5, 0] - reach(program, 5, 0)) <= 1e-8
    return solved(
        "upper occupancy bounds of all states",
        seconds(lambda: upper_occupancy(boxes, policy), 15),
        seconds(lambda: reach(program, 5, 0), 3),
        "HiGHS for one state",
        500.0,
    )


def rows() -> list[Row]:
    return [*entropy_rows(), *barrier_rows(), bound_row()]


if __name__ == "__main__":
    for line in rows():
        print(line)
