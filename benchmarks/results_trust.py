"""The picture and the table of docs/trust-models.md: Spotlight under four trust models, on problems nobody tuned on.

python benchmarks/results_trust.py        what is stored in docs/figures/trust-models.csv stays; one process
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet import catalog
from discreet import problem as public
from discreet.people.counts import CountSpec
from discreet.privacy.noise import NoiseSource
from discreet.session import statistic
from families import PROBLEMS
from results_families import Job, completed

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "figures" / "trust-models.csv"
PICTURE = DOCS / "figures" / "trust-models.svg"
PAGE = DOCS / "trust-models.md"
MODELS = {"joint": "joint", "two-servers": "two servers", "shuffle": "shuffle", "local": "local"}
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: People, the same number in every model; seeds and instances that no other table has.
USERS, SEEDS, FIRST_SEED, FIRST_INSTANCE = 100_000, 6, 9100, 14
BASELINE = "ucbvi-bernstein"
#: Problems of reporting families that so many people can learn without trusting anybody.
LEARNABLE = (
    *("chain 5", "chain 8", "deep sea 8, slip", "bandit 10", "dirichlet 5", "garnet 10", "birth-death 8"),
    *("routing 3×3", "swap often"),
)
REPORTING = [p for name in LEARNABLE for p in PROBLEMS if p.name == name]


def jobs() -> list[Job]:
    settings = [("spotlight", model, epsilon) for epsilon in EPSILONS for model in MODELS]
    return [
        Job(label, label, p.name, FIRST_INSTANCE + i % p.instances, FIRST_SEED + i, USERS, model, epsilon)
        for label, model, epsilon in [(BASELINE, "joint", 1.0), *settings]
        for p in REPORTING
        for i in range(SEEDS)
    ]


def curves(rows: list[dict[str, str]]) -> dict[tuple[str, float], float]:
    """Geometric mean over problems of the mean over seeds, of regret over that of the uniform policy; by model and ε.

    Without privacy: ("none", ∞).
    """
    groups: dict[tuple[str, float], dict[str, list[float]]] = {}
    for row in rows:
        place = (row["model"], float(row["epsilon"])) if row["label"] == "spotlight" else ("none", math.inf)
        groups.setdefault(place, {}).setdefault(row["problem"], []).append(float(row["ratio"]))
    return {
        place: math.exp(statistics.fmean(math.log(statistics.fmean(values)) for values in problems.values()))
        for place, problems in groups.items()
    }


def table(found: dict[tuple[str, float], float]) -> str:
    head = ["| ε | " + " | ".join(MODELS.values()) + " |", "|---" * (len(MODELS) + 1) + "|"]
    lines = [f"| {e:g} | " + " | ".join(f"{found[model, e]:.3f}" for model in MODELS) + " |" for e in EPSILONS]
    return "\n".join(head + lines)


def draw(found: dict[tuple[str, float], float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with plt.rc_context({"svg.hashsalt": "discreet", "font.size": 11}):
        figure, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
        for (model, name), style in zip(MODELS.items(), ("o-", "s-", "^-", "D-"), strict=True):
            axis.plot(EPSILONS, [found[model, e] for e in EPSILONS], style, label=name, linewidth=2)
        axis.axhline(found["none", math.inf], color="0.5", linestyle=":", label="without privacy")
        axis.axhline(1.0, color="0.7", linewidth=0.8)
        axis.annotate("acting at random", (EPSILONS[0], 1.0), xytext=(0, 4), textcoords="offset points", fontsize=9)
        axis.set(xscale="log", yscale="log", xlabel="ε per user", ylabel="regret / that of acting at random")
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.set_yticks([0.001, 0.01, 0.1, 1.0], [".001", ".01", ".1", "1"])
        axis.minorticks_off()
        axis.grid(True, axis="y", alpha=0.3)
        axis.legend(title="people trust", frameon=False)
        figure.savefig(path, metadata={"Date": None})


def price() -> str:
    """Noise of a sub-cell, and people lost per cell, of every model."""
    facts = public.Problem(6, 2, 20, USERS, True, structure=public.PublicStructure(initial=np.eye(6)[0]))
    spec = statistic(facts)
    assert isinstance(spec, CountSpec)
    lines = ["| | " + " | ".join(MODELS.values()) + " |", "|---" * (len(MODELS) + 1) + "|"]
    deviations, lost = [], []
    for model in MODELS:
        said = replace(facts, trust=model, epsilon=1.0, delta=1e-6 if model == "shuffle" else 0.0)
        privatizer: Any = catalog.algorithm("spotlight").build(said).privatizer
        deviations.append(math.sqrt(privatizer.open(spec, USERS, NoiseSource.seeded(0)).variance(500)))
        lost.append(privatizer.users_lost(spec, 3.0) / 12)
    lines.append("| standard deviation | " + " | ".join(f"{x:.1f}" for x in deviations) + " |")
    lines.append("| people lost per cell | " + " | ".join(f"{x:.0f}" for x in lost) + " |")
    return "\n".join(lines)


def put(name: str, text: str) -> None:
    """Replace a block between its two marks in the page."""
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
    page = marked.sub(lambda m: f"{m[1]}\n{text}\n\n{m[2]}", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")


def main() -> None:
    wanted = jobs()
    found = completed(wanted, STORED, 1)
    means = curves([found[job.key] for job in wanted])
    draw(means, PICTURE)
    put("four models", table(means))
    put("price", price())


if __name__ == "__main__":
    main()
