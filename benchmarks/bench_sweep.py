"""Sweeps: what claims, files, checks and bookkeeping add to the work, at cells of about a second.

Processor time tells what a sweep computes beside the runs; the clock on the wall also counts waiting for the disk,
and whatever else the machine does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from discreet.runs.experiment import Experiment, run
from discreet.runs.sweeps import Cell, run_cells
from measuring import Row, cpu_seconds, row, seconds

#: The share of the work that a sweep may add.
MOST = 0.05
CELL_SECONDS = 1.0
ROUNDS = 3


def second_long(name: str, **settings: object) -> Experiment:
    """An experiment whose run takes about a second of processor time here."""
    users = 500
    for _ in range(2):
        few = Experiment(name, episodes=users, schedule="every", **settings)  # type: ignore[arg-type]
        run(few, 0)
        before = time.process_time()
        run(few, 0)
        users = round(users * CELL_SECONDS / (time.process_time() - before))
    return Experiment(name, episodes=users, schedule="every", **settings)  # type: ignore[arg-type]


def rows() -> list[Row]:
    experiments = [second_long("oppo"), second_long("dp-ucbvi", epsilon=1.0, pooled=True)]
    cells = [Cell(experiment, seed) for experiment in experiments for seed in range(3)]

    def bare() -> None:
        for cell in cells:
            run(cell.experiment, cell.seed)

    def swept() -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_cells(cells, Path(folder) / "out")
        assert len(outcome.done) == len(cells)

    def both(clock: Callable[..., float]) -> tuple[float, float]:
        pairs = [(clock(swept, 1), clock(bare, 1)) for _ in range(ROUNDS)]  # in turn: a busy minute falls on both
        ours, theirs = (min(column) for column in zip(*pairs, strict=True))
        return ours, theirs

    found = []
    for what, clock in (("processor", cpu_seconds), ("wall clock", seconds)):
        ours, theirs = both(clock)
        name = f"sweep: {len(cells)} cells of {theirs / len(cells):.1f} s ({what})"
        found.append(row(name, ours, theirs, "a bare loop of the same cells", "s", 1 / (1 + MOST), less=True))
    return found
