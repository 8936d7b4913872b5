"""What each part of Spotlight costs, for docs/spotlight.md: one part at a time is replaced by the truth.

python benchmarks/results_oracles.py                       the table (about five minutes), tuning instances and seeds
python benchmarks/results_oracles.py --only queue --seeds 4
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

import results_families
from discreet.agents import knowledge, spotlight
from discreet.mdp import FiniteMDP
from families import PROBLEMS

NAMES = (
    *("R6", "grid 5", "dense 10", "queue 12", "branch 2", "branch 20", "diffuse 20", "dirichlet 20", "dirichlet 40"),
    *("R6 staged", "dense 5 staged"),
)
HARDLY_NOISY = 20.0

Patches = dict[tuple[ModuleType, str], Any]


class Truth:
    """The model behind a run, one line per cell."""

    def __init__(self, mdp: FiniteMDP, stages: int) -> None:
        H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
        steps = np.minimum(np.arange(stages), mdp.transitions.shape[0] - 1)
        self.rows = np.ascontiguousarray(mdp.transitions[steps].reshape(-1, S))
        self.means = np.ascontiguousarray(mdp.rewards[steps].reshape(-1))
        self.best, self.used = np.zeros((H, S, A)), np.zeros(stages * S * A, dtype=np.bool_)
        values = np.zeros(S)
        for h in reversed(range(H)):
            g = min(h, mdp.transitions.shape[0] - 1)
            quality = mdp.rewards[g] + mdp.transitions[g] @ values
            values = quality.max(axis=1)
            self.best[h, np.arange(S), quality.argmax(axis=1)] = 1.0
        mass = np.array(mdp.initial)
        for h in range(H):
            g, actions = min(h, mdp.transitions.shape[0] - 1), self.best[h].argmax(axis=1)
            there = np.flatnonzero(mass > 1e-6)
            self.used[(min(h, stages - 1) * S + there) * A + actions[there]] = True
            mass = mass @ mdp.transitions[g][np.arange(S), actions]


def read_exactly(truth: Truth, rows: bool, means: bool) -> Patches:
    """Whatever was asked for is read without error."""
    plain = knowledge.reread

    def reread(*facts: Any) -> knowledge.Knowledge:
        new = plain(*facts)
        reading, asked = new.reading, new.reading.branching.sum(axis=1) > 0.0
        if rows:
            table = {name: np.where(asked[:, None], truth.rows, getattr(reading, name)) for name in ("rows", "soft")}
            reading = replace(reading, **table, spreads=np.where(asked[:, None], 0.0, reading.spreads))
        if means:
            variances = np.where(asked, 0.0, reading.mean_variances)
            reading = replace(reading, means=np.where(asked, truth.means, reading.means), mean_variances=variances)
        return replace(new, reading=reading)

    return {(knowledge, "reread"): reread}


def others_known(truth: Truth) -> Patches:
    """All cells that the best plan never meets are known from the beginning."""
    plain, given = spotlight.learned, ~truth.used

    def learned(*facts: Any) -> knowledge.Knowledge:
        new = plain(*facts)
        reading, C = new.reading, given.size
        tables = {name: np.where(given[:, None], truth.rows, getattr(reading, name)) for name in ("rows", "soft")}
        reading = replace(
            reading,
            **tables,
            spreads=np.where(given[:, None], 0.0, reading.spreads),
            counts=np.where(given, 1e5, reading.counts),
            means=np.where(given, truth.means, reading.means),
            mean_variances=np.where(given, 0.0, reading.mean_variances),
        )
        variances, expected = new.variances.copy(), new.expected.copy()
        variances[:C][given], expected[:C][given] = 8.0, 1e5
        return replace(new, reading=reading, variances=variances, expected=expected)

    return {(spotlight, "learned"): learned}


def exploited(truth: Truth) -> Patches:
    """Users who have reported, and the last ones, play the best plan; who still explores does not know it."""

    class Planner(spotlight._Planner):
        def _cautious(self, *fixed: Any) -> Any:
            policy, values = super()._cautious(*fixed)
            return (policy, values) if fixed else (truth.best.copy(), values)

    return {(spotlight, "_Planner"): Planner}


PARTS: dict[str, Callable[[Truth], Patches]] = {
    "as it is": lambda truth: {},
    "rewards that were asked for are exact": lambda truth: read_exactly(truth, False, True),
    "rows that were asked for are exact": lambda truth: read_exactly(truth, True, False),
    "both": lambda truth: read_exactly(truth, True, True),
    "cells off the best plan are known": others_known,
    "the plan after the report is the best one": exploited,
    "hardly any noise (ε = 20, one report each)": lambda truth: {},
}


def regret(part: str, name: str, number: int) -> float:
    problem = next(p for p in PROBLEMS if p.name == name)
    instance = 100 + number % problem.instances
    mdp = problem.build(instance)
    patches = PARTS[part](Truth(mdp, mdp.horizon if problem.staged else 1))
    plain = {place: getattr(*place) for place in patches}
    epsilon = HARDLY_NOISY if "noise" in part else 1.0
    job = results_families.Job("", "spotlight", name, instance, 5000 + number, 20_000, "joint", epsilon, True)
    try:
        for place, value in patches.items():
            setattr(*place, value)
        return float(results_families.played(job)["ratio"])
    finally:
        for place, value in plain.items():
            setattr(*place, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--seeds", type=int, default=8)
    chosen = parser.parse_args()
    names = [name for name in NAMES if chosen.only in name]
    print("| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|", sep="\n")
    for part in PARTS:
        means = [statistics.fmean(regret(part, name, i) for i in range(chosen.seeds)) for name in names]
        print(f"| {part} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main()
