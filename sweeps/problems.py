"""Problems of `benchmarks/families.py` that no constant was chosen on, by names that a sweep can use.

Each is a function from the number of an instance to a model: `problems:garnet` with `instance = [0, 1]` is two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from discreet.mdp import FiniteMDP

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from families import PROBLEMS


def problem(name: str, short: str) -> Callable[[int], FiniteMDP]:
    (found,) = [each for each in PROBLEMS if each.name == name]
    if found.split != "reporting":
        raise ValueError(f"constants were chosen on {name}; expected a problem for reporting")
    return lambda instance: replace(found.build(instance), name=f"{short}-{instance}")


two_rooms = problem("two rooms", "two-rooms")
deep_sea = problem("deep sea 8, slip", "deep-sea-8")
garnet = problem("garnet 10", "garnet-10")
lake = problem("lake 4", "lake-4")
bandit = problem("bandit 10", "bandit-10")
dirichlet = problem("dirichlet 10", "dirichlet-10")
birth_death = problem("birth-death 8", "birth-death-8")
routing = problem("routing 3×3", "routing-3x3")
