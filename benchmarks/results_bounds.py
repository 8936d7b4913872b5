"""The tables and the picture of docs/bounds.md: `python benchmarks/results_bounds.py` (about five minutes).

    python benchmarks/results_bounds.py [--only systems|hard] [--seeds 3]

What each system's theorems promise beside what its printed and its practical form do, and regret against ε on the
instances of the lower bounds. `--check` prints the promises alone, which are quick.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet import theory
from discreet.envs.linear import two_state_behaviour, two_state_linear
from discreet.envs.registry import make, spec
from discreet.envs.rewards import RewardLaw
from discreet.offline import fitting as offline
from discreet.people.episodes import MDPSimulator
from discreet.people.logs import LogFormat
from discreet.privacy.accounting import Budget
from discreet.runs import bounds
from discreet.runs.experiment import Experiment, run

DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class System:
    """A learner where its theorems are compared with it: the printed form and ours, on the same users."""

    name: str
    place: str
    printed: Experiment | None  # None: learns from logs
    practical: Experiment | None
    case: bounds.Case


def online(name: str, place: str, printed: dict[str, Any], **told: Any) -> System:
    paper = Experiment(name, mode="paper", **told)
    return System(name, place, paper, Experiment(name, **{**told, **printed}), bounds.case_of(paper))


def systems() -> Iterator[System]:
    swim: dict[str, Any] = {"env": "riverswim", "states": 3, "horizon": 6, "epsilon": 1.0}
    pooled = {"pooled": True}
    for model in ("joint", "local"):
        yield online("dp-ucbvi", f"RiverSwim S=3 H=6, {model}", pooled, model=model, **swim)
    yield online("private-ucb-vi", "RiverSwim S=3 H=6, joint", pooled, **swim)
    yield online("private-ucb-po", "RiverSwim S=3 H=6, joint", pooled, **swim)
    yield online("pucb", "RiverSwim S=3 H=6, joint", pooled, **swim)
    heavy: dict[str, Any] = {"epsilon": 1.0, "moment_bound": 1.0, "episodes": 5000}
    for name in ("private-heavy-ucbvi", "private-heavy-ucbpo"):
        yield online(name, "heavy-joint:gap=.1,v=1", {}, env="heavy-joint:gap=.1,v=1", **heavy)
        yield online(name, "heavy-local:gap=.2,v=1", {}, env="heavy-local:gap=.2,v=1", model="local", **heavy)
    losses: dict[str, Any] = {"env": "layered", "epsilon": 1.0, "episodes": 5000}
    for name in ("private-uc-o-reps", "private-uob-lbps"):
        for model in ("joint", "local"):
            yield online(name, f"layered, {model}", {}, model=model, **losses)
    tiny: dict[str, Any] = {"env": "riverswim", "states": 2, "horizon": 2, "epsilon": 0.9, "delta": 1e-6}
    yield online("sdp-pe", "RiverSwim S=2 H=2, shuffle, δ=1e-6", {}, **tiny)
    logs = {"epsilon": 1.0, "delta": 1e-6}
    yield System(
        "dp-apvi", "RiverSwim S=6 H=20, logs", None, None, bounds.case("dp-apvi", env="riverswim", episodes=30_000)
    )
    yield System(
        "dp-vapvi", "linear, logs, δ=1e-6", None, None, bounds.case("dp-vapvi", env="linear", episodes=1000, **logs)
    )


def number(value: float | None) -> str:
    if value is None or np.isnan(value):
        return "–"
    if not np.isfinite(value):
        return "∞"
    return f"{value:.3g}" if 0.01 <= abs(value) < 1000 else f"{value:.2e}".replace("e+0", "e").replace("e+", "e")


def promises(system: System) -> str:
    """The computed half of a row: the theorem in order, with E in force, with the proof's constants, and the rest."""
    told = bounds.statements(system.case)
    upper = [each for each in told if each.bound.kind == "upper"]
    lower = [each for each in told if each.bound.kind == "lower"]
    cells = [number(upper[0].bound.trivial)]
    for index in range(3):
        each = upper[index] if index < len(upper) else None
        if each is None:
            cells.append("–")
            continue
        start = f"over {system.case.largest:.0e}".replace("e+", "e").replace("e0", "e")
        if each.informative_from is not None:
            start = number(each.informative_from)
        cells.append(f"{number(each.bound.value)} ({start})")
    cells.append(number(lower[-1].bound.value) if lower else "–")
    return " | ".join(cells)


def label(system: System) -> str:
    return f"| `{system.name}` | {system.place} | {system.case.facts.episodes:,.0f} |"


def regret(experiment: Experiment, seeds: int) -> float:
    return float(np.mean([run(experiment, seed).regret[-1] for seed in range(seeds)]))


def from_logs(system: System, mode: str, seeds: int) -> float:
    """Mean sub-optimality of what is learned from that many logged users."""
    linear = system.name == "dp-vapvi"
    process = two_state_linear(20)
    mdp = process.to_finite() if linear else make("riverswim")
    behaviour = two_state_behaviour(process) if linear else spec("riverswim").behaviour(mdp)
    users = int(system.case.facts.episodes)
    found = []
    for seed in range(seeds):
        log = MDPSimulator(mdp, RewardLaw("bernoulli"), np.random.SeedSequence([seed, 7])).rollout(behaviour, users)
        fitted = offline.fit(
            log,
            LogFormat(mdp.num_states, mdp.num_actions, mdp.horizon, False, early_end="keep"),
            Budget.approximate(1.0, 1e-6) if linear else Budget.pure(1.0),
            algorithm=system.name,
            mode=mode,
            rewards=None if linear else mdp.staged().rewards,
            features=process.features if linear else None,
            seed=seed,
        )
        worth = offline.evaluate(fitted.policy, mdp)
        found.append(worth["value_optimal"] - worth["value"])
    return float(np.mean(found))


def system_table(seeds: int) -> str:
    rows = [
        "| learner | where | users | as printed | practical | every policy | order (from) | E in force (from) | "
        "proof (from) | lower bound |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system in systems():
        if system.printed is not None and system.practical is not None:
            measured = [regret(each, seeds) for each in (system.printed, system.practical)]
        else:
            measured = [from_logs(system, mode, seeds) for mode in ("paper", "practical")]
        rows.append(f"{label(system)} {number(measured[0])} | {number(measured[1])} | {promises(system)} |")
        print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows)


# The instances of the lower bounds ----------------------------------------------------------------------------------

BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
USERS = 20_000
GAPS = {"joint": "heavy-joint:gap=0.1,v=1", "local": "heavy-local:gap=0.2,v=1"}
LEARNERS = ("private-heavy-ucbvi", "private-heavy-ucbpo", "spotlight")


def instance(model: str, epsilon: float, critical: bool) -> str:
    return f"heavy-{model}:users={USERS},epsilon={epsilon},v=1" if critical else GAPS[model]


def instances(model: str) -> list[int]:
    """Eight: one for every place of the best leaf of the tree, over which its lower bound is a mean."""
    if model == "joint":
        return list(range(8))
    places = {int(make(GAPS[model], instance=i).rewards[0, 3:7].argmax()): i for i in reversed(range(200))}
    assert len(places) == 8
    return [places[place] for place in range(8)]


def hard(learner: str, model: str, epsilon: float, critical: bool) -> float:
    """Mean regret over eight instances, a seed for each."""
    told: dict[str, Any] = {"moment_bound": 1.0} if learner != "spotlight" else {}
    found = []
    env = instance(model, epsilon, critical)
    for seed in instances(model):
        experiment = Experiment(learner, env=env, instance=seed, model=model, epsilon=epsilon, episodes=USERS, **told)
        found.append(run(experiment, seed).regret[-1])
    return float(np.mean(found))


def facts(model: str, epsilon: float, critical: bool) -> theory.Facts:
    env = instance(model, epsilon, critical)
    experiment = Experiment(
        "private-heavy-ucbvi", env=env, model=model, epsilon=epsilon, episodes=USERS, moment_bound=1.0
    )
    return bounds.case_of(experiment).facts


def hard_lines(model: str, critical: bool) -> dict[str, list[float]]:
    lines = {name: [hard(name, model, e, critical) for e in BUDGETS] for name in LEARNERS}
    known = [facts(model, e, critical) for e in BUDGETS]
    lines["upper bound, order"] = [stated(theory.heavy_ucbvi, each) for each in known]
    if critical:
        lines["lower bound, order"] = [stated(theory.no_heavy_learner, each) for each in known]
        lines["lower bound, proved"] = [stated(theory.no_heavy_learner_proved, each) for each in known]
    uniform = []
    for e in BUDGETS:
        models = [make(instance(model, e, critical), instance=i) for i in instances(model)]
        uniform.append(float(np.mean([USERS * random_gap(mdp) for mdp in models])))
    lines["random policy"] = uniform
    return lines


def stated(theorem: theory.Theorem, known: theory.Facts) -> float:
    """The bound where it says something about this budget."""
    found = theorem(known)
    return np.nan if found.holds is False or found.value <= 0 else found.value


def random_gap(mdp: Any) -> float:
    from discreet.planning import optimal_plan, policy_value, uniform_policy

    shape = mdp.horizon, mdp.num_states, mdp.num_actions
    return float(mdp.initial @ optimal_plan(mdp).value[0]) - policy_value(mdp, uniform_policy(shape))


def hard_table() -> str:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16, 4.2), sharex=True)
    head = " | ".join(f"ε = {e:g}" for e in BUDGETS)
    rows = [f"| instance | line | {head} |", "|---|---|" + "---|" * len(BUDGETS)]
    panels = [(model, critical) for model in ("joint", "local") for critical in (True, False)]
    for axis, (model, critical) in zip(axes, panels, strict=True):
        title = f"{model}, " + ("critical gap" if critical else GAPS[model].partition(":")[2])
        for name, values in hard_lines(model, critical).items():
            style = "-o" if name in LEARNERS else ":" if "random" in name else "--"
            axis.plot(BUDGETS, values, style, label=name, markersize=3)
            rows.append(f"| {title} | {name} | " + " | ".join(map(number, values)) + " |")
            print(rows[-1], file=sys.stderr, flush=True)
        axis.set(title=title, xscale="log", yscale="log", xlabel="ε", ylabel="regret")
        axis.set_xticks(BUDGETS, [f"{e:g}" for e in BUDGETS])
        axis.minorticks_off()
        axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(DOCS / "hard-instances.png", dpi=110)
    return "\n".join(rows)


def put(name: str, text: str) -> None:
    """Between the marks of the page."""
    page = DOCS / "bounds.md"
    mark = f"<!-- {name} -->"
    pattern = re.compile(f"{re.escape(mark)}\n.*?\n{re.escape(mark)}", re.S)
    page.write_text(pattern.sub(lambda found: f"{mark}\n{text}\n{mark}", page.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("systems", "hard"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="print what is promised and leave")
    options = parser.parse_args()
    if options.check:
        for system in systems():
            print(label(system), promises(system))
        return
    if options.only != "hard":
        put("systems", system_table(options.seeds))
    if options.only != "systems":
        put("hard", hard_table())


if __name__ == "__main__":
    main()
