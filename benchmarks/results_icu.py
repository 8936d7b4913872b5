"""The case study of docs/icu-sepsis.md: private treatment policies from simulated stays in intensive care.

    python benchmarks/results_icu.py [--seeds 2] [--out results/icu] [--only WORD]
    python benchmarks/results_icu.py --export FOLDER [--patients 100000]    files for `discreet fit`

Resumable: one JSON line per finished fit. Rewrites the tables of docs/icu-sepsis.md when nothing is left out.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from discreet.envs import icu
from discreet.envs.registry import make, spec
from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.offline import fitting as offline
from discreet.people.episodes import MDPSimulator
from discreet.people.logs import LogFormat
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.privacy.accounting import Budget
from discreet.problem import Mask

PAGE = Path(__file__).parents[1] / "docs" / "icu-sepsis.md"
MOST = 1_000_000
PORTION = 50_000
BUDGETS = ("ε = 1", "ε = 3", "ε = 10", "ε = 1, δ = 1e-6", "no noise")
#: Steps of a stay that count: (pure noise and none, Gaussian noise, which grows with their root only).
COUNTED = {"outcome": (10, 20), "model": (5, 20)}
PATIENTS = {"outcome": (1000, 10_000, 100_000, MOST), "model": (10_000, 100_000, MOST)}


@dataclass(frozen=True)
class Setting:
    """One fit. `form`: what a step says (where it led, or how the stay ended); `declared`: what is public."""

    form: str  # "outcome", "model", "dp-apvi"
    declared: str  # "admissible", "published", "nothing"
    patients: int
    budget: str

    @property
    def name(self) -> str:
        return f"{self.form}, {self.declared}, {self.patients}, {self.budget}"


def settings() -> Iterator[Setting]:
    for form, numbers in PATIENTS.items():
        for patients in numbers:
            for budget in BUDGETS:
                yield Setting(form, "admissible", patients, budget)
    for patients in (100_000, MOST):
        for budget in ("ε = 1", "ε = 10"):
            yield Setting("model", "published", patients, budget)
    for budget in ("ε = 1", "ε = 10"):
        yield Setting("model", "nothing", MOST, budget)
        yield Setting("dp-apvi", "nothing", MOST, budget)


def budget_of(text: str) -> Budget:
    numbers = [float(part.split("=")[1]) for part in text.split(",") if "=" in part]
    if not numbers:
        return Budget.pure(math.inf)
    return Budget.pure(*numbers) if len(numbers) == 1 else Budget.approximate(numbers[0], numbers[1])


def stays(seed: int, patients: int) -> pa.Table:
    """One row per treatment until death or discharge; the last row of a survivor pays 1."""
    mdp = make("icu-sepsis")
    simulator = MDPSimulator(mdp, spec("icu-sepsis").law(mdp), seed)
    behaviour = np.ascontiguousarray(spec("icu-sepsis").behaviour(mdp))
    parts = []
    for first in range(0, patients, PORTION):
        played = simulator.rollout(behaviour, min(PORTION, patients - first))
        who, step = np.nonzero(played.states[:, :-1] < icu.DEAD)
        survived = (played.states == icu.SURVIVED).any(axis=1)
        following = played.states[who, step + 1]
        columns = {
            "user": who + first,
            "step": step,
            "state": played.states[who, step],
            "action": played.actions[who, step],
            "reward": following == icu.SURVIVED,
            "next_state": following,
            "survived": survived[who],
            "nowhere": np.zeros(who.size),
        }
        schema = pa.schema(
            [pa.field(name, pa.int32(), nullable=False) for name in columns]
        )  # no successor is missing
        parts.append(pa.table({name: values.astype(np.int32) for name, values in columns.items()}, schema=schema))
    return pa.concat_tables(parts)


@lru_cache(maxsize=1)
def log_of(folder: Path, seed: int) -> pa.Table:
    path = folder / f"stays-{seed}.parquet"
    if not path.is_file():
        part = path.with_suffix(".part")
        pyarrow.parquet.write_table(stays(seed, MOST), part)
        part.rename(path)
    return pyarrow.parquet.read_table(path)


def declared_successors(setting: Setting) -> Mask | None:
    if setting.declared == "nothing":
        return None
    if setting.form == "outcome":
        return nowhere()
    return icu.successors(setting.declared == "published")


def nowhere() -> Mask:
    """Admissible treatments, and one name for all that may follow: only how the stay ended is asked."""
    table = np.zeros((icu.NUM_STATES, icu.NUM_ACTIONS, icu.NUM_STATES), dtype=np.bool_)
    table[..., 0] = icu.tables().admissible
    return table


def actions_for(mdp: FiniteMDP, actions: Ints) -> Ints:
    """For all steps: a policy that was planned for fewer steps starts anew."""
    return np.asarray(actions[np.minimum(np.arange(mdp.horizon), len(actions) - 1)], dtype=np.int64)


def peak_memory() -> float:
    """Of this program since it was started, in MB; what `getrusage` says includes who started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def measured(setting: Setting, seed: int, folder: Path, mdp: FiniteMDP) -> dict[str, Any]:
    table = log_of(folder, seed)
    users = np.asarray(table.column("user"))
    table = table.slice(0, int(np.searchsorted(users, setting.patients)))
    budget = budget_of(setting.budget)
    outcome = setting.form == "outcome"
    counted = COUNTED.get(setting.form, COUNTED["model"])[budget.kind != "pure"]
    log = LogFormat(
        icu.NUM_STATES,
        icu.NUM_ACTIONS,
        counted if setting.form != "dp-apvi" else 50,
        pooled=True,
        columns={"reward": "survived", "next_state": "nowhere"} if outcome else {},
        early_end="keep",
        num_users=setting.patients,
    )
    start = time.perf_counter()
    found = offline.fit(
        table,
        log,
        budget,
        algorithm="dp-apvi" if setting.form == "dp-apvi" else "one-hot",
        rewards=None if outcome else icu.rewards(),
        initial=mdp.initial,
        successors=declared_successors(setting),
        plan_horizon=None if setting.form == "dp-apvi" else (1 if outcome else mdp.horizon),
        seed=seed,
    )
    seconds = time.perf_counter() - start
    return {
        **asdict(setting),
        "setting": setting.name,
        "seed": seed,
        "value": policy_value(mdp, actions_for(mdp, found.policy.actions)),
        "covered": found.certificate["estimate"]["covered_state_actions"],
        "lower": found.certificate["estimate"]["value_lower"],
        "noise": found.certificate["algorithm"].get("noise_per_item"),
        "seconds": seconds,
        "megabytes": peak_memory(),
    }


def without_data(support: Mask) -> Ints:
    """(H, S): what the declaration alone suggests: plan as if all declared successors were equally likely."""
    sizes = support.sum(axis=-1, keepdims=True)
    guess = support / np.maximum(sizes, 1)
    value = np.zeros(icu.NUM_STATES)
    actions = np.empty((icu.HORIZON, icu.NUM_STATES), dtype=np.int64)
    for h in reversed(range(icu.HORIZON)):
        quality = np.where(sizes[..., 0] > 0, icu.rewards() + guess @ value, -1.0)
        actions[h], value = quality.argmax(axis=1), quality.max(axis=1)
    return actions


def references(mdp: FiniteMDP) -> dict[str, float]:
    shape = (mdp.horizon, mdp.num_states, mdp.num_actions)
    clinician = np.ascontiguousarray(icu.clinician(mdp))
    return {
        "uniform": policy_value(mdp, uniform_policy(shape)),
        "clinician": policy_value(mdp, clinician),
        "optimal": float(mdp.initial @ optimal_plan(mdp).value[0]),
        "one improvement of the clinician": policy_value(mdp, one_improvement(clinician[0])),
        "no data: the first admissible treatment": policy_value(mdp, without_data(icu.successors(False))),
        "no data: published successors, all equally likely": policy_value(mdp, without_data(icu.successors(True))),
    }


def one_improvement(clinician: Floats) -> Ints:
    """(H, S): the best treatment if clinicians take over after it; what a log of outcomes can teach."""
    found = icu.tables()
    value = np.zeros(icu.NUM_STATES)
    for _ in range(4 * icu.HORIZON):
        quality = icu.rewards() + found.transitions @ value
        value = (clinician * quality).sum(axis=1)
    best = np.where(found.admissible, quality, -1.0).argmax(axis=1)
    return np.broadcast_to(best, (icu.HORIZON, icu.NUM_STATES))


def report(rows: list[dict[str, Any]], known: dict[str, float], memory: dict[str, float]) -> str:
    def cell(form: str, declared: str, patients: int, budget: str) -> str:
        name = Setting(form, declared, patients, budget).name
        values = [row["value"] for row in rows if row["setting"] == name]
        if not values:
            return "–"
        low, high = f"{min(values):.3f}", f"{max(values):.3f}"
        return low if low == high else f"{low}–{high}"

    lines = [
        "| policy | survival |",
        "|---|---|",
        *(f"| {name} | {value:.4f} |" for name, value in known.items()),
        "",
    ]
    for form in ("outcome", "model"):
        lines += [f"| {form}: patients | {' | '.join(BUDGETS)} |", "|---" * (len(BUDGETS) + 1) + "|"]
        for patients in PATIENTS[form]:
            entries = " | ".join(cell(form, "admissible", patients, budget) for budget in BUDGETS)
            lines.append(f"| {patients:,} | {entries} |")
        lines.append("")
    lines += ["| other declarations and learners | patients | ε = 1 | ε = 10 |", "|---|---|---|---|"]
    for form, declared, patients in (
        ("model", "published", 100_000),
        ("model", "published", MOST),
        ("model", "nothing", MOST),
        ("dp-apvi", "nothing", MOST),
    ):
        both = " | ".join(cell(form, declared, patients, budget) for budget in ("ε = 1", "ε = 10"))
        lines.append(f"| {form}, {declared} declared | {patients:,} | {both} |")
    lines += ["", "| a fit of 1,000,000 patients, ε = 1 | seconds | peak memory, MB |", "|---|---|---|"]
    for form, declared in (("outcome", "admissible"), ("model", "admissible"), ("dp-apvi", "nothing")):
        name = Setting(form, declared, MOST, "ε = 1").name
        seconds = [row["seconds"] for row in rows if row["setting"] == name]
        lines.append(f"| {form} | {np.median(seconds):.0f} | {memory[name]:,.0f} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], known: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axis, form in zip(axes, ("outcome", "model"), strict=True):
        for budget in BUDGETS:
            points: dict[int, list[float]] = {}
            for row in rows:
                if (row["form"], row["declared"], row["budget"]) == (form, "admissible", budget):
                    points.setdefault(row["patients"], []).append(row["value"])
            axis.plot(list(points), [np.mean(values) for values in points.values()], marker="o", label=budget)
        for name, style in (("optimal", "-"), ("clinician", "--"), ("uniform", ":")):
            axis.axhline(known[name], color="grey", linestyle=style, linewidth=1)
        axis.set(xscale="log", xlabel="patients", title=f"what a step says: {form}")
    axes[0].set_ylabel("probability to survive")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def export(folder: Path, patients: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(stays(0, patients), folder / "stays.parquet")
    np.save(folder / "outcomes.npy", nowhere())
    np.save(folder / "admissible.npy", icu.successors(False))
    with (folder / "rewards.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("state", "action", "reward"))
        writer.writerows((s, a, paid) for (s, a), paid in np.ndenumerate(icu.rewards()))


def memory_of(setting: Setting, folder: Path) -> float:
    """Peak of a process that does nothing but one fit."""
    command = [sys.executable, __file__, "--out", str(folder), "--alone", setting.name]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["megabytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/icu"))
    parser.add_argument("--only", default="")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--patients", type=int, default=100_000)
    options = parser.parse_args()
    if options.export is not None:
        export(options.export, options.patients)
        return
    mdp = make("icu-sepsis")
    if options.alone:
        (alone,) = (setting for setting in settings() if setting.name == options.alone)
        print(json.dumps(measured(alone, 0, options.out, mdp)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "icu.jsonl"
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.is_file() else []
    done = {(row["setting"], row["seed"]) for row in rows}
    chosen = [setting for setting in settings() if options.only in setting.name]
    for seed in range(options.seeds):
        for setting in chosen:
            rare = setting.declared != "admissible" and seed > 0  # comparisons, once
            if (setting.name, seed) in done or rare:
                continue
            row = measured(setting, seed, options.out, mdp)
            rows.append(row)
            with store.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{setting.name}, seed {seed}: {row['value']:.4f} in {row['seconds']:.1f} s", flush=True)
    if options.only:
        return
    known = references(mdp)
    alone = [
        Setting(*pair, MOST, "ε = 1")
        for pair in (("outcome", "admissible"), ("model", "admissible"), ("dp-apvi", "nothing"))
    ]
    text = report(rows, known, {setting.name: memory_of(setting, options.out) for setting in alone})
    (options.out / "icu.md").write_text(text)
    plot(rows, known, PAGE.with_suffix(".png"))
    before = PAGE.read_text()
    start, end = before.index("<!-- table -->"), before.index("<!-- end of table -->")
    PAGE.write_text(before[:start] + "<!-- table -->\n" + text + before[end:])


if __name__ == "__main__":
    main()
