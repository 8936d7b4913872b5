"""The numbers of docs/results-offline.md: resumable, one JSON line per finished fit.

    python benchmarks/results_offline.py [--first SEED] [--seeds 10] [--out results/offline] [--only WORD]

Writes offline.jsonl, offline.md (the tables) and offline.png (the linear setting).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet.envs.linear import two_state_behaviour, two_state_linear
from discreet.envs.registry import make, spec
from discreet.envs.rewards import RewardLaw
from discreet.mdp import FiniteMDP
from discreet.offline import fitting as offline
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.people.logs import LogFormat
from discreet.privacy.accounting import Budget

#: Factor on the penalty of PEVI in theory, from {.01, .003, .001, .0003, 0}, on seeds 5000 to 5004.
TUNED = 0.001


@dataclass(frozen=True)
class Setting:
    """One cell of a table: an environment and a learner."""

    group: str
    env: str
    users: int
    pooled: bool
    algorithm: str
    budget: str  # "epsilon=1", "rho=1", "none"
    mode: str = "practical"
    instances: tuple[int, ...] = (0,)
    target: float | None = None
    known_rewards: bool = False
    confidence_scale: float | None = None

    @property
    def name(self) -> str:
        which = "pooled" if self.pooled else "staged"
        known = ", rewards known" if self.known_rewards else ""
        return f"{self.env}, {which}, n = {self.users:,}{known}"

    @property
    def learner(self) -> str:
        scale = "" if self.confidence_scale is None else f" × {self.confidence_scale:g}"
        budget = "no privacy" if self.budget == "none" else self.budget.replace("=", " = ")
        return f"{self.algorithm}{f' (paper{scale})' if self.mode == 'paper' else ''}, {budget}"


def settings() -> Iterator[Setting]:
    six = tuple(range(6))
    tabular: list[tuple[str, int, bool, tuple[int, ...], float | None]] = [
        ("riverswim", 1000, True, (0,), 0.02),
        ("riverswim", 30_000, False, (0,), 0.06),
        ("random-skewed", 10_000, True, six, 0.02),
        ("adversarial-coverage", 10_000, True, (0,), 0.01),
        ("adversarial-coverage", 10_000, False, (0,), 0.06),
        ("random-uniform", 1000, True, six, None),
        ("random-skewed", 10_000, False, six, None),
        ("adversarial-coverage", 1000, True, (0,), None),
        ("riverswim", 10_000, False, (0,), None),
        ("nonstationary-dirichlet", 300, False, six, None),  # the law changes at every step
        ("nonstationary-dirichlet", 10_000, False, six, None),
    ]
    for env, users, pooled, instances, target in tabular:
        for algorithm in ("one-hot", "dp-apvi"):
            yield Setting(
                "tabular",
                env,
                users,
                pooled,
                algorithm,
                "epsilon=1",
                instances=instances,
                target=target if algorithm == "one-hot" else None,
            )
        yield Setting("tabular", env, users, pooled, "dp-apvi", "epsilon=1", "paper", instances)
    for env, users, pooled in (("riverswim", 1000, False), ("riverswim", 10_000, False)):
        for algorithm in ("one-hot", "dp-apvi"):
            yield Setting("gaussian", env, users, pooled, algorithm, "rho=1")
    for algorithm in ("one-hot", "dp-apvi"):
        for env in ("riverswim", "random-skewed"):
            yield Setting("rewards known", env, 10_000, False, algorithm, "epsilon=1", known_rewards=True)
    for users in (5, 20, 100, 300, 1000, 10_000):
        for algorithm, budget in (("pevi", "none"), ("vapvi", "none"), ("dp-pevi", "rho=1"), ("dp-vapvi", "rho=1")):
            for mode in ("paper", "practical"):
                yield Setting("linear", "linear", users, False, algorithm, budget, mode)
        yield Setting("linear", "linear", users, False, "pevi", "none", "paper", confidence_scale=TUNED)


def logged(setting: Setting, instance: int, seed: int) -> tuple[FiniteMDP, Episodes, Any]:
    sequence = np.random.SeedSequence([seed, instance, 1])
    if setting.env == "linear":
        linear = two_state_linear(20, instance=instance)
        mdp = linear.to_finite()
        behaviour, features = two_state_behaviour(linear), linear.features
    else:
        mdp = make(setting.env, instance=instance)
        behaviour, features = spec(setting.env).behaviour(mdp), None
    return mdp, MDPSimulator(mdp, RewardLaw("bernoulli"), sequence).rollout(behaviour, setting.users), features


def budget_of(text: str) -> Budget | None:
    if text == "none":
        return None
    kind, _, number = text.partition("=")
    return Budget.pure(float(number)) if kind == "epsilon" else Budget.zcdp(float(number))


def measured(setting: Setting, instance: int, seed: int) -> dict[str, Any]:
    mdp, episodes, features = logged(setting, instance, seed)
    log = LogFormat(mdp.num_states, mdp.num_actions, mdp.horizon, setting.pooled, early_end="keep")
    rewards = (mdp.rewards if setting.pooled else mdp.staged().rewards) if setting.known_rewards else None
    start = time.perf_counter()
    found = offline.fit(
        episodes,
        log,
        budget_of(setting.budget),
        algorithm=setting.algorithm,
        mode=setting.mode,
        allow_pooled=setting.pooled,
        confidence_scale=setting.confidence_scale,
        rewards=rewards,
        features=features,
        seed=1_000_003 * seed + instance,
    )
    worth = offline.evaluate(found.policy, mdp)
    return {
        "setting": f"{setting.group}: {setting.name}: {setting.learner}",
        "instance": instance,
        "seed": seed,
        "gap_ratio": worth["gap_ratio"],
        "gap": worth["value_optimal"] - worth["value"],
        "seconds": time.perf_counter() - start,
    }


def table(chosen: list[Setting], rows: list[dict[str, Any]]) -> str:
    """All means with their spread over seeds."""
    lines = []
    for group in dict.fromkeys(setting.group for setting in chosen):
        unit = "absolute gap" if group == "linear" else "gap / v*"
        lines += [
            f"## {group}",
            "",
            f"| logs | learner | {unit}: mean ± sd over seeds | worst | target |",
            "|---|---|---|---|---|",
        ]
        for setting in chosen:
            if setting.group != group:
                continue
            name = f"{setting.group}: {setting.name}: {setting.learner}"
            key = "gap" if group == "linear" else "gap_ratio"
            by_seed: dict[int, list[float]] = {}
            for row in rows:
                if row["setting"] == name:
                    by_seed.setdefault(row["seed"], []).append(row[key])
            means = [float(np.mean(v)) for v in by_seed.values()]
            if not means:
                continue
            target = "" if setting.target is None else f"≤ {setting.target:g}"
            sd = f"{np.std(means, ddof=1):.3f}" if len(means) > 1 else "–"
            lines.append(
                f"| {setting.name} | {setting.learner} | {np.mean(means):.3f} ± {sd} | {max(means):.3f} | {target} |"
            )
        lines.append("")
    return "\n".join(lines)


def plot(chosen: list[Setting], rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    curves: dict[tuple[bool, str], list[tuple[int, float, float]]] = {}
    for setting in chosen:
        name = f"{setting.group}: {setting.name}: {setting.learner}"
        gaps = [row["gap"] for row in rows if row["setting"] == name]
        if setting.group == "linear" and gaps:
            label = setting.learner.replace(", no privacy", "").replace("rho", "ρ").replace("(paper ×", "(theory ×")
            label = label.replace("pevi (paper)", "pevi (theory)") if label.startswith("pevi") else label
            spread = float(np.std(gaps) / math.sqrt(len(gaps)))
            point = setting.users, float(np.mean(gaps)), spread
            curves.setdefault((setting.budget == "none", label), []).append(point)
    for open_data, axes in zip((True, False), panels, strict=True):
        for (plain, label), points in curves.items():
            if plain == open_data:
                users, means, errors = zip(*points, strict=True)
                style = "--" if "paper" in label or "theory" in label else "-"
                marker = "x" if "vapvi" in label else "o"  # without noise both are the same here
                axes.errorbar(users, means, errors, marker=marker, capsize=2, label=label, linestyle=style)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("users")
        axes.set_title("without privacy" if open_data else "ρ = 1, replace-one", fontsize=10)
        axes.legend(fontsize=8)
    panels[0].set_ylabel("optimal value − value of the policy")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, help="default: 600, and 0 for the linear setting")
    parser.add_argument("--out", type=Path, default=Path("results/offline"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "offline.jsonl"
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.is_file() else []
    done = {(row["setting"], row["instance"], row["seed"]) for row in rows}
    chosen = [s for s in settings() if options.only in f"{s.group} {s.name} {s.learner}"]
    for setting in chosen:
        name = f"{setting.group}: {setting.name}: {setting.learner}"
        first = (0 if setting.group == "linear" else 600) if options.first is None else options.first
        for seed in range(first, first + options.seeds):
            for instance in setting.instances:
                if (name, instance, seed) in done:
                    continue
                row = measured(setting, instance, seed)
                rows.append(row)
                with store.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        mine = [row["gap_ratio"] for row in rows if row["setting"] == name]
        print(f"{name}: {math.fsum(mine) / max(len(mine), 1):.4f}", flush=True)
    (options.out / "offline.md").write_text(table(chosen, rows))
    if any(setting.group == "linear" for setting in chosen):
        plot(chosen, rows, options.out / "offline.png")


if __name__ == "__main__":
    main()
