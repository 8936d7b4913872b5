"""The problems that Spotlight is chosen and reported on: split by family; an instance is a function of its number."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from discreet.planning import optimal_plan

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import textbook
from families import PROBLEMS


def test_no_family_is_both_for_choosing_and_for_reporting():
    splits: dict[str, set[str]] = {}
    for problem in PROBLEMS:
        splits.setdefault(problem.family, set()).add(problem.split)
    assert all(len(split) == 1 for split in splits.values())
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS) >= 35
    families = [next(iter(split)) for split in splits.values()]
    assert min(families.count(split) for split in ("tuning", "reporting", "textbook")) >= 12


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_an_instance_is_a_function_of_its_number(problem):
    first, again, other = (problem.build(i) for i in (10, 10, 11))
    assert np.array_equal(first.transitions, again.transitions)
    assert np.array_equal(first.rewards, again.rewards)
    same = np.array_equal(first.transitions, other.transitions) and np.array_equal(first.rewards, other.rewards)
    assert same or problem.instances > 1
    assert not (same and problem.split == "textbook")
    assert problem.staged or first.stationary
    assert 0.0 <= first.rewards.min() < first.rewards.max() <= 1.0


def test_the_best_way_through_a_tree_is_that_of_a_recursion():
    mdp = textbook.tree(3)(10)
    leaves = mdp.rewards[0, :, 0]

    def worth(node: int) -> float:
        if 2 * node + 2 >= leaves.size:
            return float(leaves[node])
        left, right = worth(2 * node + 1), worth(2 * node + 2)
        return 0.9 * max(left, right) + 0.1 * min(left, right)

    assert optimal_plan(mdp).value[0, 0] == pytest.approx(4 * worth(0))  # four ways from the root to a leaf


def test_a_step_off_the_cliff_ends_at_the_start():
    mdp = textbook.cliff(3, 6)(10)
    start, goal = 12, 17
    rows = mdp.transitions[0]
    assert np.flatnonzero(mdp.initial).tolist() == [start]
    assert (rows[:, :, start + 1 : goal][np.arange(18) != 5] == 0.0).all()  # nobody stands on what is not there
    assert rows[start, 0, start] > 0.7
    assert rows[goal, :, start].tolist() == [1.0] * 4


def test_certain_moves_of_a_graph_find_the_goal_as_search_does():
    mdp = textbook.graph(30)(10)
    leads, goal = mdp.transitions[0].argmax(axis=2), int(mdp.rewards[0, :, 0].argmax())
    visits = np.full(30, 0.0)  # the most visits to the goal in so many steps
    for _ in range(mdp.horizon):
        visits = (np.arange(30) == goal) + visits[leads].max(axis=1)
    assert optimal_plan(mdp).value[0, 0] == pytest.approx(visits[0])
