"""The tables and verdicts of docs/figures.md and of the pages of the papers, from the tables in docs/figures.

python benchmarks/results_figures.py           rewrite the pages from docs/figures/*.csv
python benchmarks/results_figures.py FOLDER    first take over what `discreet reproduce` left there
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from discreet.runs import figures, verdicts
from discreet.runs.verdicts import Row

DOCS = Path(__file__).parents[1] / "docs"
TABLES = DOCS / "figures"
HEAVY, PRICE, BUDGETS = "wzcw23-figure-4", "qw22-figure-1a", "qw22-figure-1b"


def rows_of(name: str) -> list[Row]:
    return figures.from_csv((TABLES / f"{name}.csv").read_text())


def lined(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> list[str]:
    return [lined(head), "|" + "---|" * len(head), *map(lined, lines)]


def measured(row: Row, name: str) -> str:
    sd = row[f"{name}_sd"]
    return f"{row[name]:.3f}" if sd is None else f"{row[name]:.3f} ± {sd:.3f}"


def heavy_line(row: Row) -> list[str]:
    privacy = row["model"] if row["epsilon"] is None else f"{row['model']}, ε = {row['epsilon']:g}"
    rate = "–" if row["rate"] is None else f"{row['rate']:g}"
    where = [row["form"], row["learner"], privacy, f"{row['c']:g}", rate, str(row["seeds"])]
    return [*where, measured(row, "ratio"), measured(row, "late"), f"{row['count']:,.0f}", f"{row['noise']:,.0f}"]


def heavy_block(rows: Sequence[Row]) -> list[str]:
    head = ("form", "learner", "privacy", "c", "η", "seeds", "regret / random policy's", "in the second half")
    lines = table([*head, "visits", "noise"], [heavy_line(row) for row in rows])
    if missing := missing_curves(rows):
        lines += ["", f"Not run: {'; '.join(missing)}."]
    return [*lines, "", *verdict(HEAVY, verdicts.heavy_summary(rows))]


def missing_curves(rows: Sequence[Row]) -> list[str]:
    """Curves of the whole figure that the table does not have."""
    names = ("form", "learner", "model", "epsilon")
    there = {tuple(row[name] for name in names) for row in rows}
    absent = [cell for cell in figures.cells(False) if tuple(getattr(cell, name) for name in names) not in there]
    return [f"{cell.form}, {cell.learner}, {cell.model}, ε = {cell.epsilon:g}" for cell in absent]


def linear_block(name: str, rows: Sequence[Row]) -> list[str]:
    sizes = sorted({row["users"] for row in rows})
    head = ["instance", "learner", *(f"n = {n:,}" for n in sizes)]
    lines = []
    for (instance, learner, form, rho), mine in verdicts.groups(rows, "instance", "learner", "form", "rho").items():
        label = f"{learner}, {form}" + ("" if rho is None else f", ρ = {rho:g}")
        by_size = {row["users"]: row for row in mine}
        lines.append([instance, label, *(measured(by_size[n], "gap") for n in sizes)])
    last = verdicts.linear_order if name == PRICE else verdicts.linear_budgets
    return [*table(head, lines), "", *verdict(name, (*verdicts.linear_summary(rows), *last(rows)))]


def verdict(name: str, sentences: Sequence[str]) -> list[str]:
    head = f"*Verdict*, by the rules above ([figures/{name}.txt](figures/{name}.txt) has it curve by curve):"
    return [head, "", *bullets(sentences)]


def bullets(sentences: Sequence[str]) -> list[str]:
    return [f"- {sentence}" for sentence in sentences]


def told(name: str) -> str:
    """The verdict in full."""
    return "\n".join([*figures.figure(name).judge(rows_of(name)), ""])


def blocks() -> dict[Path, dict[str, list[str]]]:
    """Page → mark → what stands between the two marks."""
    heavy, price, budgets = (rows_of(name) for name in (HEAVY, PRICE, BUDGETS))
    return {
        DOCS / "figures.md": {
            HEAVY: heavy_block(heavy),
            PRICE: linear_block(PRICE, price),
            BUDGETS: linear_block(BUDGETS, budgets),
        },
        DOCS / "papers" / "wzcw23.md": {HEAVY: bullets(verdicts.heavy_summary(heavy))},
        DOCS / "papers" / "qw22.md": {
            PRICE: bullets((*verdicts.linear_summary(price), *verdicts.linear_order(price)))
        },
    }


def written(page: str, marked: dict[str, list[str]]) -> str:
    """A page with its blocks renewed."""
    for name, lines in marked.items():
        mark = f"<!-- {name} -->"
        if page.count(mark) != 2:
            raise ValueError(f"the mark {mark} stands {page.count(mark)} times in the page; expected twice")
        block = "\n".join([mark, *lines, mark])
        page = re.sub(f"{mark}.*{mark}", lambda _, block=block: block, page, flags=re.S)
    return page


def main() -> None:
    if len(sys.argv) > 1:
        TABLES.mkdir(exist_ok=True)
        for name in (HEAVY, PRICE, BUDGETS):
            for ending in ("csv", "png"):
                shutil.copy(Path(sys.argv[1]) / f"{name}.{ending}", TABLES)
    for name in (HEAVY, PRICE, BUDGETS):
        (TABLES / f"{name}.txt").write_text(told(name))
    for path, marked in blocks().items():
        path.write_text(written(path.read_text(), marked))


if __name__ == "__main__":
    main()
