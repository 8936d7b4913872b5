"""The numbers of docs/results-columns.md: resumable, one JSON line per finished fit or comparison.

    python benchmarks/results_columns.py [--first 7000] [--seeds 5] [--users 1000 10000] [--out results/columns]

0 is what people do, 1 the best policy without noise from 100,000 users: on the public grids of eight budgets, or what
most people do.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import columns
from discreet.offline import auto, comparison
from discreet.people.stays import Stays
from discreet.privacy.accounting import Budget, no_privacy
from discreet.privacy.noise import NoiseSource

BUDGETS = {"ε = 1": Budget.pure(1.0), "(1, 10⁻⁶)": Budget.approximate(1.0, 1e-6)}
LEARNERS = (
    *("auto", "one-hot", "safe"),
    *("auto, estimated propensities", "auto, columns in reverse", "one-hot, columns in reverse"),
)
#: Small gains need more simulated stays to be known well.
ROLLOUTS = {0.1: 200_000, 0.25: 100_000, 0.5: 40_000}
GRIDS = (1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5)
ROLLED, SCALED = 20_000, 100_000


def reversed_order(problem: columns.Problem) -> columns.Problem:
    """The same problem, its columns declared in the wrong order."""
    k = len(problem.columns)

    def turned(states: columns.Floats) -> columns.Floats:
        return states[:, [*reversed(range(k)), *range(k, states.shape[1])]]

    def move(states: columns.Floats, actions: columns.Ints, rng: columns.Random) -> Any:
        following, paid, ended = problem.move(turned(states), actions, rng)
        return turned(following), paid, ended

    return replace(
        problem,
        columns=problem.columns[::-1],
        first=lambda n, rng: turned(problem.first(n, rng)),
        rule=lambda states: problem.rule(turned(states)),
        move=move,
    )


def worth(problem: columns.Problem, learned: auto.LearnedColumns, users: int = ROLLED) -> float:
    return columns.value(problem, columns.acting(problem, learned.states, learned.actions), users)


def ends_of_scale(name: str) -> dict[str, float]:
    """What people do now, and the best policy without noise."""
    problem = columns.PROBLEMS[name]()
    declaration, free = columns.declared(problem), Budget.pure(math.inf)
    stays = columns.stays(problem, columns.simulate(problem, SCALED, np.random.default_rng(77)), SCALED)
    plans = [auto.Design(declaration, declaration.grid(int(n), Budget.pure(1.0)), SCALED, free) for n in GRIDS]
    policies = [one_hot(stays, plan, NoiseSource.seeded(1)) for plan in plans]
    policies.append(auto.learn(stays, replace(plans[0], safe=True), NoiseSource.seeded(1)))
    found = [worth(problem, policy, 40_000) for policy in policies]
    return {"now": columns.value(problem, None, SCALED), "best": max(found)}


def one_hot(stays: Stays, plan: auto.Design, source: NoiseSource) -> auto.LearnedColumns:
    """The whole budget for the histogram."""
    alone = Alone(plan.declaration, plan.grid, plan.num_users, plan.budget)
    planned = auto.planned_in(auto.released_steps(stays, alone, source))
    return auto.LearnedColumns(plan.grid, *planned, no_privacy(), {"chosen": "one-hot"})


class Alone(auto.Design):
    @property
    def shares(self) -> dict[str, float]:
        return {"steps": 1.0}


def fitted(
    name: str, learner: str, users: int, budget: Budget, seed: int
) -> tuple[columns.Problem, auto.LearnedColumns]:
    problem = columns.PROBLEMS[name]()
    if learner.endswith("reverse"):
        problem = reversed_order(problem)
    declaration = columns.declared(problem, "estimated" not in learner)
    stays = columns.stays(problem, columns.simulate(problem, users, np.random.default_rng(seed)), users)
    plan = auto.Design(declaration, declaration.grid(users, budget), users, budget, safe=learner == "safe")
    return problem, (one_hot if learner.startswith("one-hot") else auto.learn)(stays, plan, NoiseSource.seeded(seed))


def compared(name: str, seed: int, users: int = 10_000) -> list[dict[str, Any]]:
    """A policy learned from 10⁴ people, and 10⁴ others who are asked about it."""
    problem, learned = fitted(name, "auto", users, BUDGETS["ε = 1"], seed)
    declaration = columns.declared(problem)
    others = columns.simulate(problem, users, np.random.default_rng(seed + 500_000))
    stays: Stays = columns.stays(problem, others, users)
    policy = columns.acting(problem, learned.states, learned.actions)
    now = columns.value(problem, None, max(ROLLOUTS.values()))
    lines = []
    for rollout, stays_simulated in ROLLOUTS.items():
        rng = np.random.default_rng(seed)

        def mixed(values: columns.Floats, step: int, rollout: float = rollout, rng: Any = rng) -> columns.Ints:
            return np.where(rng.random(len(values)) < rollout, policy(values, step), -1)

        question = comparison.ComparisonQuestion(declaration, users, rollout, BUDGETS["ε = 1"])
        answer = comparison.ask(stays, learned.states, learned.actions, question, NoiseSource.seeded(seed))
        truth = columns.value(problem, mixed, stays_simulated) - now
        lines.append({"rollout": rollout, "gain": answer.gain, "lower": answer.lower, "truth": truth})
    return lines


class Store:
    """One JSON line per finished piece of work."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.done = {entry["key"]: entry["value"] for entry in map(json.loads, lines)}

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self.done:
            self.done[key] = make()
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "value": self.done[key]}, ensure_ascii=False) + "\n")
            print(key, file=sys.stderr, flush=True)
        return self.done[key]


def shown(values: Iterable[float]) -> str:
    found = np.array(list(values))
    return f"{found.mean():.2f} \\| {found.min():.2f}"


def gained(name: str, learner: str, users: int, budget: Budget, seed: int, scale: dict[str, float]) -> dict[str, Any]:
    problem, learned = fitted(name, learner, users, budget, seed)
    share = (worth(problem, learned) - scale["now"]) / (scale["best"] - scale["now"])
    return {"gained": share, "chosen": learned.chosen}


def table(store: Store, problems: Sequence[str], sizes: list[int], seeds: range) -> str:
    scales = {name: store.get(f"scale {name}", partial(ends_of_scale, name)) for name in problems}
    rows = [f"| n, budget, learner | {' | '.join(problems)} | all |", f"|{'---|' * (len(scales) + 2)}"]
    for users, (words, budget), learner in product(sizes, BUDGETS.items(), LEARNERS):
        if learner not in LEARNERS[:3] and (users != 10_000 or words != "ε = 1"):
            continue
        found = defaultdict(list)
        for (name, scale), seed in product(scales.items(), seeds):
            run = partial(gained, name, learner, users, budget, seed, scale)
            found[name].append(store.get(f"{users} {words} {learner} {name} {seed}", run)["gained"])
        every = [value for values in found.values() for value in values]
        cells = " | ".join(shown(values) for values in found.values())
        rows.append(f"| 10^{round(math.log10(users))}, {words}, {learner} | {cells} | **{shown(every)}** |")
    return "\n".join(rows) + "\n"


def comparisons(store: Store, seeds: range) -> str:
    rows = ["| roll-out | true | shown | lower bound / true gain, median | policies |", "|---|---|---|---|---|"]
    lines = defaultdict(list)
    for name, seed in product(list(columns.PROBLEMS)[:8], seeds):
        for line in store.get(f"comparison {name} {seed}", partial(compared, name, seed)):
            lines[line["rollout"]].append(line)
    for rollout, found in lines.items():
        true = np.mean([line["lower"] is None or line["lower"] <= line["truth"] for line in found])
        above = np.mean([line["lower"] is not None for line in found])
        share = np.median([(line["lower"] or 0.0) / line["truth"] for line in found if line["truth"] > 0])
        rows.append(f"| {rollout:g} | {true:.2f} | {above:.2f} | {share:.2f} | {len(found)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=7000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--users", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--later", action="store_true", help="the problems that were made after every choice")
    parser.add_argument("--fresh", action="store_true", help="the problems that were kept for the last table")
    parser.add_argument("--comparisons", type=int, default=5, help="policies per problem that are asked about")
    parser.add_argument("--out", type=Path, default=Path("results/columns"))
    options = parser.parse_args()
    store, seeds = Store(options.out / "columns.jsonl"), range(options.first, options.first + options.seeds)
    problems = [make.__name__ for make in columns.LATER] if options.later else list(columns.PROBLEMS)[:8]
    problems = list(columns.FRESH) if options.fresh else problems
    text = table(store, problems, options.users, seeds)
    if options.comparisons:
        text += "\n" + comparisons(store, range(options.first, options.first + options.comparisons))
    (options.out / "columns.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
