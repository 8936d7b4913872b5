"""Every benchmark of this folder: a table for the eye, and results.json for machines.

A benchmark is a file bench_*.py with a function `rows()` that returns a list of
{name, ours, baseline, baseline_name, unit, ratio, target, met}; larger ratios are better and met = ratio >= target.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
KEYS = ("name", "ours", "baseline", "baseline_name", "unit", "ratio", "target", "met")


def checked(row: dict[str, Any], source: str) -> dict[str, Any]:
    """The row with plain numbers and its keys in order, or an error that says what is wrong with it."""
    if set(row) != set(KEYS):
        raise ValueError(f"{source}: a row has the keys {sorted(row)}; expected {sorted(KEYS)}")
    numbers = {key: float(row[key]) for key in ("ours", "baseline", "ratio", "target")}
    if not all(math.isfinite(number) for number in numbers.values()):
        raise ValueError(f"{source}: {row['name']} has a number that is not finite: {numbers}")
    if bool(row["met"]) != (numbers["ratio"] >= numbers["target"]):
        raise ValueError(f"{source}: {row['name']} says met = {row['met']}, but its ratio is {numbers['ratio']}")
    return {key: numbers.get(key, bool(row[key]) if key == "met" else row[key]) for key in KEYS}


def main() -> int:
    # Nothing above imports numpy, so this still counts: one core, ours and the baselines alike.
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    sys.path.insert(0, str(FOLDER))
    console, wanted = Console(), sys.argv[1:]
    rows: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("bench_*.py")):
        if wanted and not any(word in path.stem for word in wanted):
            continue
        start = time.perf_counter()
        rows += [checked(row, path.name) for row in importlib.import_module(path.stem).rows()]
        console.print(f"{path.stem}: {time.perf_counter() - start:.0f} s", style="dim")
    table = Table(title="ratio: larger is better", title_justify="left")
    table.add_column("what", overflow="fold")
    for column in ("ours", "baseline"):
        table.add_column(column, justify="right")
    table.add_column("against", overflow="fold")
    for column in ("ratio", "target"):
        table.add_column(column, justify="right")
    for row in rows:
        colour = "green" if row["met"] else "red"
        numbers = f"{row['ours']:,.4g} {row['unit']}", f"{row['baseline']:,.4g}"
        ratio = f"[{colour}]{row['ratio']:,.4g}[/{colour}]"
        table.add_row(row["name"], *numbers, row["baseline_name"], ratio, f"{row['target']:,.4g}")
    console.print(table)
    out = FOLDER / "results.json"
    out.write_text(json.dumps(rows, indent=2, allow_nan=False) + "\n")
    missed = [row["name"] for row in rows if not row["met"]]
    console.print(f"{len(rows) - len(missed)} of {len(rows)} targets met; numbers are in {out.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
