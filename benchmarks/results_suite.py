"""The scores of docs/suite.md: every learner of the catalog on the suite; what is stored stays.

python benchmarks/results_suite.py                     all learners (about an hour, can be continued)
python benchmarks/results_suite.py --only spotlight    one of them again
python benchmarks/results_suite.py --collect           no runs: the table and the page from what is stored
"""

from __future__ import annotations

import argparse
from pathlib import Path

import discreet.runs.suite
from discreet import catalog
from discreet.cli.suites import refusals
from discreet.runs import results
from discreet.runs.engine import run_cells
from discreet.runs.suite import scores
from discreet.runs.suite.contest import trials
from discreet.runs.suite.problems import suite

PAGE = Path(__file__).parents[1] / "docs" / "suite.md"
SCORES = Path(discreet.runs.suite.__file__).with_name("v1-scores.csv")
START = "<!-- scores -->\n"


def learners() -> list[str]:
    return [name for name, entry in catalog.ALGORITHMS.items() if entry.runner != "offline"]


def run(name: str, out: Path, jobs: int, runs: int) -> None:
    asked = list(trials(name, suite("v1"), runs=runs))
    cells = [cell for trial in asked for cell in trial.cells]
    outcome = run_cells(cells, out, jobs)
    print(
        f"{name}: {len(outcome.done)} runs, {len(outcome.reused)} were there, {len(outcome.failed)} failed",
        flush=True,
    )
    for sentence in refusals(asked):
        print(f"  {sentence}")
    for failure in outcome.failed:
        print(f"  {failure.cell.id}: {failure.error}")


def table(found: scores.Board) -> str:
    names = [problem.name for problem in suite("v1")]
    lines = ["| learner | " + " | ".join(["mean", *names]) + " |", "|---" * (len(names) + 2) + "|"]
    for contender, axes in found.items():
        cells = [f"{axes[name].mean:.2f}" if name in axes else "–" for name in names]
        lines.append(f"| {contender} | {scores.overall(axes):.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TEXT = """## Scores of our learners

Five runs per budget, each on its own instance. Mean over three budgets; learners without privacy have none and are
run once. Command: `make results-suite` (rows in `src/discreet/runs/suite/v1-scores.csv`); with intervals, worst runs
and last gaps: `discreet suite compare results/suite -o compare.html`.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/suite"))
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--collect", action="store_true")
    asked = parser.parse_args()
    if not asked.collect:
        for name in learners():
            if asked.only in ("", name):
                run(name, asked.out, asked.jobs, asked.runs)
    runs = scores.scored(results.read(asked.out))
    if asked.only:
        runs = [row for row in scores.published() if row.learner != asked.only] + runs
    scores.write(runs, SCORES)
    before = PAGE.read_text().partition(START)[0]
    PAGE.write_text(before + START + TEXT + table(scores.board(runs)) + "\n")


if __name__ == "__main__":
    main()
