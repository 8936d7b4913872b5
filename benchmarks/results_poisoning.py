"""The tables of docs/poisoning.md: Spotlight among attackers, under every trust model; what is stored stays.

python benchmarks/results_poisoning.py          rows in src/discreet/runs/poisoned.csv, then the page; one process
python benchmarks/results_poisoning.py --page   the page from what is stored
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

from discreet.privacy.accounting import Budget
from discreet.privacy.trust.local import kept_words, unary_flips
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.runs import poisoning
from discreet.runs.poisoning import Form, Measured

STORED = Path(__file__).parents[1] / "src" / "discreet" / "runs" / "poisoned.csv"
PAGE = Path(__file__).parents[1] / "docs" / "poisoning.md"
MODELS = {"joint": "joint", "two-servers": "two servers", "shuffle": "shuffle", "local": "local"}
ENVS = {"riverswim": "RiverSwim-6", "chain": "chain of 5", "dirichlet": "random, 5 states"}
SHARES = (0.01, 0.03, 0.05, 0.1)
SEEDS = range(700, 720)
#: Budget at which responses and unary encoding compete at home.
MORE = 2.0


class Job(NamedTuple):
    env: str
    model: str
    attack: str
    share: float
    defence: str = "none"
    epsilon: float = 1.0

    @property
    def key(self) -> tuple[object, ...]:
        experiment = poisoning.experiment_of(self.model, self.env, self.epsilon)
        return self.env, self.model, experiment.episodes, self.epsilon, self.attack, self.share, self.defence


def jobs() -> Iterator[Job]:
    """What everything else is compared with comes first."""
    for model in MODELS:
        for env in ENVS:
            yield Job(env, model, "swap", 0.0)
    for attack in ("swap", "claim"):
        for env in ENVS:
            yield from (Job(env, model, attack, share) for model in MODELS for share in SHARES)
    for env in ENVS:
        yield from (Job(env, model, "swap", share, "robust") for share in (0.0, 0.03) for model in MODELS)
    for env in ENVS:
        yield from (Job(env, "local", "swap", share, "popcount") for share in (0.0, 0.03))
    yield from (Job(env, model, "garbage", 0.03) for env in ENVS for model in MODELS)
    yield from (Job(env, "local", "garbage", 0.03, "popcount") for env in ENVS)
    for env in ("chain", "dirichlet"):
        yield from (Job(env, "local", "swap", 0.03, defence, MORE) for defence in ("none", "unary"))


def measured(job: Job) -> Measured:
    experiment = poisoning.experiment_of(job.model, job.env, job.epsilon)
    return poisoning.measured(experiment, job.attack, job.share, job.defence, SEEDS)


def completed() -> None:
    """Every row that is missing, appended as soon as it is known."""
    known = {row.key for row in poisoning.from_csv(STORED.read_text())} if STORED.is_file() else set()
    with STORED.open("a", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Measured)], lineterminator="\n")
        if not known:
            writer.writeheader()
        for job in jobs():
            if job.key not in known:
                writer.writerow(asdict(measured(job)))
                file.flush()


# The page -----------------------------------------------------------------------------------------------------------


def lined(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))


def weights() -> str:
    """Exact, of the forms that are sent at ε = 1."""
    law = ShuffleReports(Budget.approximate(1.0, 1e-6)).law()
    q, few = unary_flips(1.0) / 2**64, [kept_words(1.0, D) / 2**64 for D in (7, 25)]
    bits = {n: law.bits(n) for n in (100, 500, 5000)}
    forms = {
        "one item (joint; two servers, by proof)": Form("item", 24),
        **{f"shuffled bits, epoch of {n:,}": Form("bits", 24, b.probability, 1 + b.each) for n, b in bits.items()},
        "unary encoding (local)": Form("unary", 24, q),
        "randomised response, 7 answers (local)": Form("response", 6, few[0]),
        "randomised response, 25 answers": Form("response", 24, few[1]),
    }
    lines = [(name, f"{form.weight:.2f}", "one" if form.raised == 1 else "every") for name, form in forms.items()]
    return lined(("form of a message", "adds to a sub-cell at most", "on how many of those asked for"), lines)


def shown(row: Measured | None) -> str:
    return "–" if row is None else f"{row.value:.2f} ({row.worst:.2f})"


def values(rows: Sequence[Measured], attack: str) -> str:
    """Value of the last plan, mean and worst of 20 seeds: a line per environment and model."""
    lines = []
    for env, title in ENVS.items():
        for model, name in MODELS.items():
            found = [find(rows, env, model, attack, share) for share in (0.0, *SHARES)]
            best = f"{title}, best {found[0].optimal:.2f}" if found[0] and model == "joint" else ""
            lines.append((best, name, *map(shown, found)))
    return lined(("", "trust", "nobody", *(f"{share:.0%}" for share in SHARES)), lines)


def find(
    rows: Sequence[Measured],
    env: str,
    model: str,
    attack: str,
    share: float,
    defence: str = "none",
    epsilon: float = 1.0,
) -> Measured | None:
    asked = env, model, share, defence, epsilon
    found = [r for r in rows if (r.env, r.model, r.share, r.defence, r.epsilon) == asked]
    return next((r for r in found if r.attack == attack or not share), None)


def defences(rows: Sequence[Measured]) -> str:
    """With and without, on the three environments: the share of the best plan's value."""

    def cells(model: str, attack: str, share: float, defence: str, epsilon: float) -> list[str]:
        found = [[find(rows, env, model, attack, share, d, epsilon) for d in ("none", defence)] for env in ENVS]
        return [
            " → ".join("–" if r is None else f"{r.value / r.optimal:.2f}".lstrip("0") for r in each) for each in found
        ]

    lines = [
        (
            "robust, α = 3 %",
            name,
            "swap" if share else "",
            f"{share:.0%}",
            *cells(model, "swap", share, "robust", 1.0),
        )
        for share in (0.0, 0.03)
        for model, name in MODELS.items()
    ]
    for attack, share in (("", 0.0), ("swap", 0.03), ("garbage", 0.03)):
        lines.append(("popcount", "local", attack, f"{share:.0%}", *cells("local", attack, share, "popcount", 1.0)))
    lines.append(("unary, ε = 2", "local", "swap", "3%", *cells("local", "swap", 0.03, "unary", MORE)))
    return lined(("defence", "trust", "attack", "attackers", *ENVS.values()), lines)


def alarmed(rows: Sequence[Measured]) -> str:
    """Runs with at least one alarm, over the three environments."""

    def cell(model: str, attack: str, share: float) -> str:
        found = [r for env in ENVS if (r := find(rows, env, model, attack, share)) is not None]
        return f"{statistics.fmean(r.alarmed for r in found):.0%}" if len(found) == len(ENVS) else "–"

    settings = [("", 0.0), *((a, s) for a in ("swap", "claim") for s in (0.01, 0.03, 0.05, 0.1)), ("garbage", 0.03)]
    head = ["nobody" if not s else f"{a}, {s:.0%}" for a, s in settings]
    return lined(("trust", *head), [(name, *(cell(m, a, s) for a, s in settings)) for m, name in MODELS.items()])


def garbage(rows: Sequence[Measured]) -> str:
    """The same of garbage: a line per model, three of a hundred send it."""
    lines = [(name, *(shown(find(rows, env, m, "garbage", 0.03)) for env in ENVS)) for m, name in MODELS.items()]
    return lined(("trust", *ENVS.values()), lines)


def blocks(rows: Sequence[Measured]) -> dict[str, str]:
    return {
        "weights": weights(),
        "swap": values(rows, "swap"),
        "claim": values(rows, "claim"),
        "garbage": garbage(rows),
        "defences": defences(rows),
        "alarms": alarmed(rows),
    }


def written(page: str, rows: Sequence[Measured]) -> str:
    """The page with its tables made again."""
    for name, text in blocks(rows).items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        page = marked.sub(lambda m, text=text: f"{m[1]}\n{text}\n\n{m[2]}", page)
    return page


def main() -> None:
    if "--page" not in sys.argv[1:]:
        completed()
    rows = poisoning.from_csv(STORED.read_text())
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
