"""The table of docs/results-adversarial.md: learners against adversaries on fresh instances and seeds.

    python benchmarks/results_adversarial.py [--full] [--only WORD] [--jobs N] [--minutes M]

Finished settings are appended to results/adversarial.jsonl: stop it, start it again, and it goes on. Seeds 0..9
(paper mode and theory rates: 0..2) choose the instance of the environment, of the adversary, and the noise; nothing
was tuned on them. The table is written from whatever is there, with the number of seeds behind each entry.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from joblib import Parallel, delayed

from discreet import Experiment, provenance, run

ROOT = Path(__file__).parents[1]
STORE = ROOT / "results" / "adversarial.jsonl"
TABLE = ROOT / "docs" / "results-adversarial.md"
FIVE = ("iid", "switch", "sinusoid", "blocks", "flips")
ENVIRONMENTS = {"S": "layered", "B": "layered-large", "L": "lock"}
GAUSSIAN = 1e-6
ABOUT = (
    "Written by `make results-adversarial` (resumable; `--full` runs the whole grid). Numbers are the regret against",
    "the best fixed policy in hindsight over that of the uniform policy (1 = nothing learned, below 0 = better than",
    "every fixed policy), or for `alternating` the regret per step; mean ± sd over seeds (how many), each the mean",
    "over the adversaries iid, switch, sinusoid, blocks and flips (lock: iid). Seeds 0..9 are fresh: nothing was",
    "tuned on them. Replace-one neighbours; whole loss tables are private unless it says public; Gaussian: δ = 1e-6.",
    "S = `layered`, B = `layered-large`, L = `lock`; the seed is also the instance of environment and adversary.",
    "A row that says *not run* was not measured yet.",
)


@dataclass(frozen=True)
class Setting:
    """One row of the table at one environment and number of episodes."""

    label: str
    algorithm: str
    env: str
    episodes: int
    options: dict[str, Any] = field(default_factory=dict)
    seeds: int = 10
    alternating: bool = False
    target: float | None = None
    at_least: bool = False  # the target is a lower bound: the row must not look better than it is

    @property
    def adversaries(self) -> tuple[str, ...]:
        if self.alternating:
            return ("alternating",)
        return ("iid",) if self.env == "L" else FIVE

    def experiments(self) -> list[tuple[Experiment, int]]:
        return [
            (
                Experiment(
                    self.algorithm,
                    env=ENVIRONMENTS[self.env],
                    episodes=self.episodes,
                    instance=seed,
                    adversary=adversary,
                    **self.options,
                ),
                seed,
            )
            for seed in range(self.seeds)
            for adversary in self.adversaries
        ]


def private(**options: Any) -> dict[str, Any]:
    return options


FULL, BANDIT = "private-uc-o-reps", "private-uob-lbps"


def default_settings() -> list[Setting]:
    """The grid of `make results-adversarial`; targets as stated before the runs."""
    e4, e5 = 10**4, 10**5
    rows = [
        Setting("full information, not private, tuned", "uc-o-reps", "S", e4, target=0.05),
        Setting("full information, not private, tuned", "uc-o-reps", "S", e4, alternating=True, target=0.03),
        Setting("follow the leader", "follow-the-leader", "S", e4, alternating=True, target=0.4, at_least=True),
        Setting("bandit, not private, tuned", "uob-lbps", "S", e4, target=0.15),
        Setting("bandit, not private, entropy", "uob-reps", "S", e4),
    ]
    targets: dict[tuple[str, float, int], float] = {
        ("pure", 1.0, e4): 0.45,
        ("pure", 1.0, e5): 0.06,
        ("pure", 10.0, e4): 0.06,
        ("gauss", 1.0, e4): 0.12,
        ("public", 1.0, e4): 0.06,
        ("local", 1.0, e5): 0.20,
        ("bandit", 10.0, e4): 0.35,
        ("bandit", 1.0, e5): 0.28,
    }
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "pure": ("full information, pure ε", FULL, {}),
        "gauss": ("full information, Gaussian", FULL, {"delta": GAUSSIAN}),
        "public": ("full information, public losses", FULL, {"losses": "public"}),
        "local": ("full information, local", FULL, {"model": "local"}),
        "bandit": ("bandit, joint", BANDIT, {}),
        "bandit-local": ("bandit, local", BANDIT, {"model": "local"}),
        "printed": ("bandit, printed estimator", BANDIT, {"estimator": "paper"}),
    }
    for episodes in (e4, e5):
        for epsilon in (1.0, 10.0, 0.5):
            for kind, (label, algorithm, options) in kinds.items():
                if kind == "printed" and epsilon == 0.5:
                    continue
                rows.append(
                    Setting(
                        label,
                        algorithm,
                        "S",
                        episodes,
                        {"epsilon": epsilon, **options},
                        target=targets.get((kind, epsilon, episodes)),
                    )
                )
    large = {"pure": 0.20, "gauss": 0.05}
    lock = {"pure": 0.30, "gauss": 0.20}
    for kind in ("pure", "gauss", "public", "local", "bandit"):
        label, algorithm, options = kinds[kind]
        rows.append(Setting(label, algorithm, "L", e5, {"epsilon": 1.0, **options}, target=lock.get(kind)))
        rows.append(Setting(label, algorithm, "B", e5, {"epsilon": 1.0, **options}, target=large.get(kind)))
    rows += [
        Setting("full information, not private, tuned", "uc-o-reps", "L", e5),
        Setting("full information, not private, tuned", "uc-o-reps", "B", e5),
        Setting("follow the leader", "follow-the-leader", "S", e4, seeds=3),
        Setting("follow the leader", "follow-the-leader", "L", e4, seeds=3),
        Setting("full information, pure ε", FULL, "S", e4, {"epsilon": 1.0}, alternating=True),
        Setting("full information, Gaussian", FULL, "S", e4, {"epsilon": 1.0, "delta": GAUSSIAN}, alternating=True),
        Setting("bandit, joint", BANDIT, "S", e4, {"epsilon": 1.0}, alternating=True),
    ]
    for kind in ("pure", "gauss"):
        label, algorithm, options = kinds[kind]
        rows.append(Setting(label, algorithm, "S", 1000, {"epsilon": 1.0, **options}))
        rows.append(Setting(label, algorithm, "S", 1000, {"epsilon": 10.0, **options}))
    paper = {"epsilon": 1.0, "mode": "paper"}
    rows += [
        Setting("paper mode, full information, joint", FULL, "L", e4, paper, 3, target=0.9, at_least=True),
        Setting("full information, not private, as published", "uc-o-reps", "S", e4, {"mode": "paper"}, 3),
        Setting("bandit, not private, as published", "uob-reps", "S", e4, {"mode": "paper"}, 3),
        Setting("paper mode, full information, joint", FULL, "S", e4, paper, 3),
        Setting("paper mode, full information, local", FULL, "S", e4, {**paper, "model": "local"}, 3),
        Setting("paper mode, bandit, joint, corrected", BANDIT, "S", e4, {**paper, "estimator": "corrected"}, 3),
        Setting("paper mode, bandit, joint, printed", BANDIT, "S", e4, {**paper, "estimator": "paper"}, 3),
    ]
    return rows


def full_settings() -> list[Setting]:
    """Everything: all environments, all budgets, all lengths; hours."""
    rows = default_settings()
    known = {(row.label, row.env, row.episodes, row.options.get("epsilon")) for row in rows if not row.alternating}
    for row in list(rows):
        if row.algorithm not in (FULL, BANDIT) or row.alternating or row.options.get("mode") == "paper":
            continue
        for env in ENVIRONMENTS:
            for episodes in (10**3, 10**4, 10**5):
                key = (row.label, env, episodes, row.options["epsilon"])
                if key not in known:
                    known.add(key)
                    rows.append(Setting(row.label, row.algorithm, env, episodes, row.options))
    return rows


def key(experiment: Experiment, seed: int) -> str:
    return f"{experiment.id}:{seed}:{provenance.source_digest()}"


def stored() -> dict[str, dict[str, Any]]:
    if not STORE.exists():
        return {}
    lines = (json.loads(line) for line in STORE.read_text().splitlines() if line.endswith("}"))
    return {line["key"]: line for line in lines}


def one(experiment: Experiment, seed: int) -> dict[str, Any]:
    result = run(experiment, seed)
    return {
        "key": key(experiment, seed),
        "ratio": result.regret_ratio,
        "per_step": result.diagnostics["regret_per_step"],
        "unsolved": result.diagnostics["unsolved"],
        "solves": result.diagnostics["solves"],
        "seconds": result.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the whole grid (hours)")
    parser.add_argument("--only", default="", help="settings whose label, environment or learner contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=40.0, help="start no setting after this many minutes")
    arguments = parser.parse_args()
    settings = full_settings() if arguments.full else default_settings()
    limit = float("inf") if arguments.full else arguments.minutes
    STORE.parent.mkdir(exist_ok=True)
    found, begun = stored(), time.monotonic()
    # Settings with a target first, so that a run that is cut short answers the questions that were asked.
    for setting in sorted(settings, key=lambda setting: (setting.target is None, setting.episodes)):
        text = f"{setting.label} {setting.algorithm} {setting.env}"
        if arguments.only and arguments.only not in text:
            continue
        missing = [(e, s) for e, s in setting.experiments() if key(e, s) not in found]
        if missing and time.monotonic() - begun > 60 * limit:
            print(f"out of time before: {text}")
            continue
        if missing:
            results = Parallel(n_jobs=arguments.jobs)(delayed(one)(e, s) for e, s in missing)
            with STORE.open("a") as file:
                for line in results:
                    file.write(json.dumps(line) + "\n")
                    found[line["key"]] = line
        print(f"{row_of(setting, found)}  ({(time.monotonic() - begun) / 60:.1f} min)", flush=True)
        write(settings, found)
    write(settings, found)


def numbers(setting: Setting, found: dict[str, dict[str, Any]]) -> list[float]:
    """One number per seed: the mean over adversaries."""
    values: dict[int, list[float]] = {}
    for experiment, seed in setting.experiments():
        line = found.get(key(experiment, seed))
        if line is not None:
            value = line["per_step"] if setting.alternating else line["ratio"]
            values.setdefault(seed, []).append(value)
    return [statistics.fmean(v) for v in values.values() if len(v) == len(setting.adversaries)]


def row_of(setting: Setting, found: dict[str, dict[str, Any]]) -> str:
    values = numbers(setting, found)
    epsilon = setting.options.get("epsilon")
    place = f"{setting.env}{' alternating' if setting.alternating else ''}"
    if not values:
        result, verdict = "not run", ""
    else:
        mean = statistics.fmean(values)
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        result = f"{mean:.3f}{spread} ({len(values)})"
        verdict = ""
        if setting.target is not None:
            met = mean >= setting.target if setting.at_least else mean <= setting.target
            verdict = f"{'≥' if setting.at_least else '≤'} {setting.target:g}: {'yes' if met else '**no**'}"
        elif not setting.alternating and mean > 0.8:
            verdict = "does not learn"
    return (
        f"| {setting.label} | {place} | {setting.episodes:,} | {'–' if epsilon is None else f'{epsilon:g}'} | "
        f"{result} | {verdict} |"
    )


def write(settings: list[Setting], found: dict[str, dict[str, Any]]) -> None:
    lines = [row_of(setting, found) for setting in settings]
    runs = [found[key(e, s)] for setting in settings for e, s in setting.experiments() if key(e, s) in found]
    unsolved, solves = sum(line["unsolved"] for line in runs), sum(line["solves"] for line in runs)
    TABLE.write_text(
        "\n".join(
            [
                "# Adversarial losses: measured",
                "",
                *ABOUT,
                "",
                f"{len(runs):,} runs, {solves:,} solves, {unsolved} of them unsolved (the previous policy was kept).",
                "",
                "| learner | where | episodes | ε | result | target, or remark |",
                "|---|---|---|---|---|---|",
                *lines,
                "",
            ]
        )
    )


if __name__ == "__main__":
    main()
