"""The table of docs/results-families.md: every learner on every problem of families.py; what is stored stays.

python benchmarks/results_families.py                         all learners, reporting instances and seeds; the page
python benchmarks/results_families.py --tune --only dense     instances and seeds for choosing constants; terminal
PYTHONPATH=OLD/src python benchmarks/results_families.py --learner spotlight --label shipped    another version
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discreet import catalog
from discreet import problem as public
from discreet.envs.rewards import RewardLaw
from discreet.people.episodes import MDPSimulator
from discreet.runs.experiment import generators
from discreet.runs.regret import RegretCurve
from discreet.runs.simulation import Clock, play, rollouts
from discreet.session import Session
from families import PROBLEMS, Problem

STORED = Path(__file__).with_name("families.csv")
PAGE = Path(__file__).parents[1] / "docs" / "results-families.md"
FIELDS = ("label", "problem", "instance", "seed", "episodes", "model", "epsilon", "ratio", "gap", "seconds")
LEARNERS = ("spotlight", "dp-ucbvi", "ucbvi-bernstein")
BOTH = ["spotlight", "shipped"]
#: Where nobody sees a report: people, seeds, and the learners that exist there; problems are those of reporting
#: families, and a few others.
MODELS = {"local": 200_000, "shuffle": 20_000, "two-servers": 20_000}
DESIGNS = {"local": BOTH, "shuffle": BOTH, "two-servers": BOTH[:1]}
OTHERS = ("M3", "R6", "dense 5", "lure 5", "grid 4", "M3 staged")
MODEL_SEEDS = 5
#: The first instance and seed of tables, of those for choosing constants, and of further looks at both designs.
TABLES, TUNING, LOOKS = (10, 40), (100, 5000), ((12, 80), (18, 120), (24, 160), (30, 200), (36, 240), (42, 280))


@dataclass(frozen=True)
class Job:
    label: str
    learner: str
    problem: str
    instance: int
    seed: int
    episodes: int
    model: str
    epsilon: float
    one_by_one: bool = False  # one report per user, whatever ε pays for

    @property
    def key(self) -> tuple[str, ...]:
        return (
            self.label,
            self.problem,
            str(self.instance),
            str(self.seed),
            str(self.episodes),
            self.model,
            f"{self.epsilon:g}",
        )


def played(job: Job) -> dict[str, str]:
    """One run: regret and final gap, both over those of the uniform policy."""
    problem = next(p for p in PROBLEMS if p.name == job.problem)
    mdp = problem.build(job.instance)
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    entry = catalog.algorithm(job.learner)
    environment, noise = generators(job.seed)
    facts = public.Problem(
        S,
        A,
        H,
        job.episodes,
        not problem.staged,
        epsilon=job.epsilon if entry.private else None,
        delta=1e-6 if job.model == "shuffle" else 0.0,
        trust=job.model if entry.private else "joint",
        structure=public.PublicStructure(initial=mdp.initial),
        tie_seed=job.seed,
        one_by_one=job.one_by_one,
    )
    clock, curve = Clock(), RegretCurve(mdp, job.episodes)
    session = Session.open(entry.build(facts), facts, noise)
    for epoch in play(session, rollouts(MDPSimulator(mdp, RewardLaw(), environment)), clock):
        curve.add(*epoch.played)
    span = curve.optimal - curve.random
    numbers = curve.regret[-1] / (job.episodes * span), (curve.optimal - curve.last) / span, clock.seconds
    return dict(zip(FIELDS, (*job.key, *(f"{x:.5f}" for x in numbers)), strict=True))


def stored(path: Path) -> dict[tuple[str, ...], dict[str, str]]:
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {tuple(row[name] for name in FIELDS[:7]): row for row in csv.DictReader(file)}


def completed(jobs: list[Job], path: Path, processes: int) -> dict[tuple[str, ...], dict[str, str]]:
    """Every result, from the file where it is there; each new one is appended as soon as it is known."""
    from joblib import Parallel, delayed

    found = stored(path)
    missing = [job for job in jobs if job.key not in found]
    fresh = not path.is_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        for row in Parallel(n_jobs=processes, return_as="generator")(delayed(played)(job) for job in missing):
            writer.writerow(row)
            file.flush()
            found[tuple(row[name] for name in FIELDS[:7])] = row
    return found


class Scores:
    """Ratios and gaps per problem and label."""

    def __init__(self, jobs: Iterable[Job], found: dict[tuple[str, ...], dict[str, str]]) -> None:
        self.ratios: dict[tuple[str, str], list[float]] = {}
        self.gaps: dict[tuple[str, str], list[float]] = {}
        self.seconds: dict[tuple[str, str], float] = {}
        for job in jobs:
            row = found[job.key]
            place = job.problem, job.label
            self.ratios.setdefault(place, []).append(float(row["ratio"]))
            self.gaps.setdefault(place, []).append(float(row["gap"]))
            self.seconds[place] = self.seconds.get(place, 0.0) + float(row["seconds"])

    def family(self, problems: list[Problem], label: str) -> float:
        """Geometric mean over the problems of a family."""
        means = [max(statistics.fmean(self.ratios[p.name, label]), 1e-4) for p in problems]
        return math.exp(statistics.fmean(math.log(x) for x in means))


def table(scores: Scores, problems: list[Problem], labels: list[str]) -> str:
    head = "| problem | " + " | ".join(f"{label}: mean / worst / last gap" for label in labels) + " |"
    lines = [head, "|---" * (len(labels) + 1) + "|"]
    for p in problems:
        cells = []
        for label in labels:
            values, gaps = scores.ratios[p.name, label], scores.gaps[p.name, label]
            cells.append(f"{statistics.fmean(values):.3f} / {max(values):.2f} / {statistics.fmean(gaps):.2f}")
        lines.append(f"| {p.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def families(scores: Scores, problems: list[Problem], labels: list[str]) -> str:
    names = list(dict.fromkeys(p.family for p in problems))
    lines = ["| family | " + " | ".join(labels) + " |", "|---" * (len(labels) + 1) + "|"]
    logs: dict[str, list[float]] = {label: [] for label in labels}
    for name in names:
        members = [p for p in problems if p.family == name]
        values = [scores.family(members, label) for label in labels]
        for label, value in zip(labels, values, strict=True):
            logs[label].append(math.log(value))
        lines.append(f"| {name} | " + " | ".join(f"{v:.3f}" for v in values) + " |")
    means = [math.exp(statistics.fmean(logs[label])) for label in labels]
    lines.append("| **geometric mean** | " + " | ".join(f"**{m:.3f}**" for m in means) + " |")
    return "\n".join(lines)


def tails(scores: Scores, problems: list[Problem], label: str) -> str:
    gaps = np.array([g for p in problems for g in scores.gaps[p.name, label]])
    ratios = np.array([x for p in problems for x in scores.ratios[p.name, label]])
    return (
        f"{label}: {gaps.size} runs, last plan with a gap above .5 in {np.mean(gaps > 0.5):.1%}, regret above that "
        f"of the uniform policy in {np.mean(ratios > 1.0):.1%}"
    )


PREFACE = """# Spotlight on many families of problems

Regret over that of the uniform policy (1 = learned nothing), exact, ε = 1, replace-one, K = 20,000. *Last
gap*: how far the plan of the last users is from the best one, in the same unit. `shipped` is the first design,
`ucbvi-bernstein` has no privacy at all. Constants were chosen on the tuning families, on other instances and seeds.
Command: `make results-families` (two processes, instances from 10 on, seeds 40 to 49; can be continued; rows in
`benchmarks/families.csv`). No constant was chosen with these; earlier versions were measured on them, too.
"""

UNTRUSTED = """## Where nobody sees a report: local, shuffle, two servers

The same with K = 200,000 locally, K = 20,000 shuffled (δ = 10⁻⁶) and with two servers, ε = 1, seeds 40 to 44, on all
problems of reporting families and a few others. How long epochs are, and when a cell is known, follows from the law
of the noise, and was chosen on tuning families, instances and seeds. The first design knew no two servers. Many of
the problems are out of reach of so many people at home.
"""


FURTHER = """## {name} look

The same for both designs on instances from {first[0]} on and seeds {first[1]} to {last}{run}.
"""
TEXTBOOK = (
    "The generators are in `benchmarks/textbook.py`; nothing that learners do at ε = 1 was changed after they were "
    "written. Seeds as above."
)
NAMES = ("A second", "A third", "A fourth", "A fifth", "A sixth", "A seventh")
SEEN, ONCE = "; earlier versions were run on them, too", ", run once and after all choices"


def untrusted_problems() -> list[Problem]:
    return [p for p in PROBLEMS if p.split == "reporting"] + [
        p for name in OTHERS for p in PROBLEMS if p.name == name
    ]


def page(scores: Scores, labels: list[str], untrusted: dict[str, Scores], looks: list[Scores]) -> str:
    parts = [PREFACE]
    for split, title in (
        ("reporting", "Families that nothing was chosen on"),
        ("textbook", "Problems of textbooks, written when the learner was finished"),
        ("tuning", "Tuning families, fresh seeds"),
    ):
        problems = [p for p in PROBLEMS if p.split == split]
        parts += [f"## {title}", *([TEXTBOOK] if split == "textbook" else [])]
        parts += [families(scores, problems, labels), table(scores, problems, labels)]
        parts.append("\n".join(f"- {tails(scores, problems, label)}" for label in labels))
    for name, first, look in zip(NAMES, LOOKS, looks, strict=True):
        run = ONCE if first == LOOKS[-1] else SEEN
        parts.append(FURTHER.format(name=name, first=first, last=first[1] + 9, run=run))
        for split in ("reporting", "tuning"):
            problems = [p for p in PROBLEMS if p.split == split]
            parts += [f"### Families for {split}", families(look, problems, BOTH), table(look, problems, BOTH)]
            parts.append("\n".join(f"- {tails(look, problems, label)}" for label in BOTH))
    parts.append(UNTRUSTED)
    for model, each in untrusted.items():
        shown = untrusted_problems()
        reporting = [p for p in shown if p.split == "reporting"]
        parts += [f"### {model}", families(each, reporting, DESIGNS[model]), table(each, shown, DESIGNS[model])]
        parts.append("\n".join(f"- {tails(each, shown, label)}" for label in DESIGNS[model]))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="tuning families, instances and seeds")
    parser.add_argument("--only", default="", help="families or problems whose name contains this")
    parser.add_argument("--learner", default="", help="one learner instead of all")
    parser.add_argument("--label", default="", help="its name in the table")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=TABLES[1], help="seeds below were looked at earlier")
    parser.add_argument("--first-instance", type=int, default=TABLES[0], help="as --first-seed")
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--model", default="joint")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--one-report", action="store_true", help="per user, whatever ε pays for; give it a --label")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--store", type=Path, default=STORED)
    parser.add_argument("--against", default="", help="labels in the store to compare with, separated by commas")
    chosen = parser.parse_args()
    labels = [chosen.label or chosen.learner] if chosen.learner else ["spotlight", "shipped", *LEARNERS[1:]]
    others = [name for name in chosen.against.split(",") if name]
    problems = [
        p
        for p in PROBLEMS
        if (not chosen.tune or p.split == "tuning") and (chosen.only in p.name or chosen.only in p.family)
    ]
    first = TUNING if chosen.tune else (chosen.first_instance, chosen.first_seed)

    def jobs_of(
        labels: list[str],
        chosen_problems: list[Problem],
        seeds: int,
        episodes: int,
        model: str,
        first: tuple[int, int] = first,
    ) -> list[Job]:
        return [
            Job(
                label,
                chosen.learner or label,
                p.name,
                first[0] + i % p.instances,
                first[1] + i,
                episodes,
                model,
                chosen.epsilon,
                chosen.one_report,
            )
            for label in labels
            for p in chosen_problems
            for i in range(seeds)
        ]

    names = [*labels, *others]
    jobs = jobs_of(names, problems, chosen.seeds, chosen.episodes, chosen.model)
    scores = Scores(jobs, completed(jobs, chosen.store, chosen.jobs))
    if not chosen.learner and not chosen.tune and not chosen.only:
        untrusted = {}
        for model, episodes in MODELS.items():
            more = jobs_of(DESIGNS[model], untrusted_problems(), MODEL_SEEDS, episodes, model)
            untrusted[model] = Scores(more, completed(more, chosen.store, chosen.jobs))
        looks = []
        for place in LOOKS:
            looked_at = [p for p in problems if p.split != "textbook"]
            more = jobs_of(BOTH, looked_at, chosen.seeds, chosen.episodes, "joint", place)
            looks.append(Scores(more, completed(more, chosen.store, chosen.jobs)))
        PAGE.write_text(page(scores, names, untrusted, looks))
        return
    print(families(scores, problems, names))
    print(table(scores, problems, names))
    for name in names:
        print(
            tails(scores, problems, name),
            f"{sum(s for (_, label), s in scores.seconds.items() if label == name):.0f} s",
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
