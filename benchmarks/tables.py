"""Result tables: lines of experiments on fixed seeds, one file per run, continued where they were stopped."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discreet import provenance
from discreet.runs import results
from discreet.runs.experiment import Experiment, run_seeds

DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    environment: str
    label: str
    experiment: Experiment
    seeds: Sequence[int]


def ratios(one: Line, folder: Path, jobs: int) -> list[float]:
    """Regret ratios of a line, from disk where they are."""

    def stored() -> dict[int, results.RunResult]:
        return results.stored_seeds(folder, one.experiment.id, provenance.source_digest())

    missing = [seed for seed in one.seeds if seed not in stored()]
    if missing:
        run_seeds(one.experiment, missing, jobs, finished=lambda result: results.write(result, folder))
    rows = stored()
    return [float(rows[seed].regret[-1]) / rows[seed].random_regret for seed in one.seeds]


def table(chosen: Sequence[Line], folder: Path, jobs: int) -> str:
    rows = ["| environment | learner | mean ± sd | median | worst | seeds |", "|---|---|---|---|---|---|"]
    for index, one in enumerate(chosen):
        values = np.array(ratios(one, folder, jobs))
        spread = f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"
        seeds = f"{one.seeds[0]}–{one.seeds[-1]}"
        rows.append(
            f"| {one.environment} | {one.label} | {spread} | {np.median(values):.3f} | {values.max():.3f} | {seeds} |"
        )
        print(f"{index + 1}/{len(chosen)} {one.environment} {one.label}: {spread}", file=sys.stderr, flush=True)
    return "\n".join(rows) + "\n"


def main(description: str | None, lines: Callable[[bool], Iterable[Line]], folder: Path, page: str) -> None:
    """Compute the committed table and write it into its page; or the whole grid, or a part, to the terminal."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the whole grid")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="seeds at the same time")
    options = parser.parse_args()
    results.prepare(folder)
    chosen = [one for one in lines(options.full) if options.only in f"{one.environment} {one.label}"]
    text = table(chosen, folder, options.jobs)
    if options.full or options.only:
        print(text)
        return
    target = DOCS / page
    before = target.read_text()
    start, end = before.index("<!-- table -->"), before.index("<!-- end of table -->")
    target.write_text(before[:start] + "<!-- table -->\n" + text + before[end:])
