"""The tables of docs/results-shuffle.md: the shuffle model beside a curator and nobody, and policy elimination.

    python benchmarks/results_shuffle.py            the committed tables (about 20 minutes on 2 cores)
    python benchmarks/results_shuffle.py --only M3  settings whose name contains a word; "sdp-pe" for elimination

Runs of the first table are Parquet files in results/shuffle; a stopped command continues where it was. Settings were
tuned on seeds (and random instances) from 5000 on; the tables use seeds 0 to 9 and instances 0 to 19.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tables
from discreet.agents.policy_elimination import EliminationPlan, Policies
from discreet.catalog import algorithm
from discreet.envs.rewards import RewardLaw
from discreet.mdp import FiniteMDP
from discreet.people.counts import CountSpec
from discreet.people.episodes import MDPSimulator
from discreet.planning import policy_value, uniform_policy
from discreet.privacy.noise import NoiseSource
from discreet.problem import Problem, PublicStructure
from discreet.runs import results
from discreet.runs.experiment import Experiment, run
from tables import Line

FRESH = range(10)
FOLDER = Path("results/shuffle")
ENVIRONMENTS: dict[str, dict[str, object]] = {
    "R6": {"env": "riverswim", "states": 6, "horizon": 20},
    "M3": {"env": "riverswim", "states": 3, "horizon": 6},
    **{f"D5 {i}": {"env": "dirichlet", "instance": i} for i in range(6)},
}
DELTA = 1e-6


def line(environment: str, algorithm: str, label: str, **options: object) -> Line:
    fields = {**ENVIRONMENTS[environment], "pooled": True, **options}
    return Line(environment, f"{algorithm} {label}", Experiment(algorithm, **fields), FRESH)  # type: ignore[arg-type]


def lines(full: bool) -> Iterator[Line]:
    """Equal ε = 1 everywhere; δ = 10⁻⁶ where there is one."""
    shuffle, joint = {"model": "shuffle", "delta": DELTA, "epsilon": 1.0}, {"epsilon": 1.0}
    for K, text in ((20_000, "2·10⁴"), (200_000, "2·10⁵")):
        for name in ENVIRONMENTS:
            if K > 20_000 and name.startswith("D5") and name != "D5 0" and not full:
                continue
            yield line(name, "spotlight", f"joint, K={text}", episodes=K, **joint)
            yield line(name, "spotlight", f"shuffle δ=1e-6, K={text}", episodes=K, **shuffle)
            if name.startswith("D5") and name != "D5 0" and not full:
                continue
            yield line(name, "spotlight", f"local, K={text}", episodes=K, model="local", **joint)
            yield line(name, "dp-ucbvi", f"joint Gaussian δ=1e-6, K={text}", episodes=K, delta=DELTA, **joint)
            yield line(name, "shuffle-ucbvi", f"shuffle δ=1e-6, K={text}", episodes=K, **shuffle)
            yield line(name, "dp-ucbvi", f"local sampled, K={text}", episodes=K, model="local", **joint)


# Policy elimination -------------------------------------------------------------------------------------------------


def tiny(seed: int, S: int, A: int, H: int) -> FiniteMDP:
    """Dense random rows and rewards, a fresh kernel at every step, start in state 0."""
    rng = np.random.default_rng(seed)
    return FiniteMDP(rng.dirichlet(np.ones(S), size=(H, S, A)), rng.random((H, S, A)), np.eye(S)[0], H)


def eliminated(name: str, mdp: FiniteMDP, K: int, seed: int, mode: str = "practical") -> tuple[bool, int, float]:
    """(the optimum is still there, policies left, regret / regret of the random policy)."""
    H, S, A = shape = mdp.horizon, mdp.num_states, mdp.num_actions
    private = name == "sdp-pe"
    structure = PublicStructure(mdp.initial)
    problem = Problem(
        S, A, H, K, mode=mode, noise="printed" if mode == "paper" else "true", epsilon=1.0 if private else None,
        delta=DELTA if private else 0.0, trust="shuffle", structure=structure,
    )  # fmt: skip
    agent, privatizer, _ = algorithm(name).build(problem)
    simulator = MDPSimulator(mdp, RewardLaw(), seed)
    stream = privatizer.open(CountSpec.for_episodes(S, A, H, False, K), K, NoiseSource.seeded(seed))
    policies = Policies.of(shape, structure)
    values = policies.values(mdp.transitions, mdp.rewards)
    plan, done, regret = None, 0, 0.0
    while done < K:
        plan = agent.plan(stream.release(), plan)
        assert isinstance(plan, EliminationPlan)
        assert plan.users is not None
        assert plan.actions is not None
        stream.begin(plan)  # type: ignore[attr-defined]
        for start in range(0, plan.users, 100_000):
            stream.add(simulator.rollout(plan.policy, min(100_000, plan.users - start)))
        done += plan.users
        regret += plan.users * (values.max() - values[policies.number(plan.actions)])
    assert isinstance(plan, EliminationPlan)
    assert plan.progress is not None
    active = plan.progress.active
    random = K * (values.max() - policy_value(mdp, uniform_policy(shape)))
    return bool(active[int(values.argmax())]), int(active.sum()), float(regret / random)


def learned(name: str, mdp: FiniteMDP, K: int, seed: int) -> float:
    """Regret / regret of the random policy, of a learner that does not eliminate; every step has its own model."""
    experiment = Experiment(name, env=mdp, episodes=K, model="shuffle", epsilon=1.0, delta=DELTA)
    result = run(experiment, seed)
    return float(result.regret[-1]) / result.random_regret


SIZES = ((2, 2, 2), (3, 2, 2), (2, 2, 3), (3, 2, 3))  # states, actions, horizon
BESIDE = ("spotlight", "shuffle-ucbvi")


def elimination_table(instances: range = range(20)) -> str:
    rows = ["| learner | X, A, H | K | policies | optimum kept | policies left | ratio, mean | worst |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    runs = [("sdp-pe", K, "practical") for K in (10**5, 10**6, 10**7)] + [("apeve", 10**6, "practical")]
    runs.append(("sdp-pe", 10**6, "paper"))
    for S, A, H in SIZES:
        for name, K, mode in runs:
            if mode == "paper" and SIZES[0] != (S, A, H):
                continue
            found = [eliminated(name, tiny(i, S, A, H), K, i, mode) for i in instances]
            kept, left, ratio = (np.array(column, dtype=float) for column in zip(*found, strict=True))
            count = A ** (1 + S * (H - 1))
            label = f"{name}{', as printed' if mode == 'paper' else ''}"
            rows.append(
                f"| {label} | {S}, {A}, {H} | 10^{round(np.log10(K))} | {count} | {int(kept.sum())}/{len(found)} | "
                f"{left.mean():.1f} | {ratio.mean():.3f} | {ratio.max():.3f} |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
        for name in BESIDE:
            ratio = np.array([learned(name, tiny(i, S, A, H), 10**5, i) for i in instances])
            rows.append(
                f"| {name} | {S}, {A}, {H} | 10^5 | {count} | – | – | {ratio.mean():.3f} | {ratio.max():.3f} |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="seeds at the same time")
    options = parser.parse_args()
    results.prepare(FOLDER)
    page = tables.DOCS / "results-shuffle.md"
    chosen = [one for one in lines(False) if options.only in f"{one.environment} {one.label}"]
    parts = {"table": tables.table(chosen, FOLDER, options.jobs)} if chosen else {}
    if not options.only or options.only == "sdp-pe":
        parts["elimination"] = elimination_table()
    for name, text in parts.items():
        if options.only and name == "table":
            print(text)
            continue
        before = page.read_text()
        start, end = before.index(f"<!-- {name} -->"), before.index(f"<!-- end of {name} -->")
        page.write_text(before[:start] + f"<!-- {name} -->\n" + text + before[end:])


if __name__ == "__main__":
    main()
