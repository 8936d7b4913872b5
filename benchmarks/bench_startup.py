"""Start-up: CPU time of whole processes, as ratios to `python -c "import numpy"` in the same run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Any

PROGRAM = ("-c", "from discreet.cli import main; main()")
#: What is started, and how many imports of numpy it may cost.
STARTED = {
    "import discreet": (["-c", "import discreet"], 1.5),
    "import discreet.device": (["-c", "import discreet.device"], 2.0),
    "discreet --help": ([*PROGRAM, "--help"], 4.0),
    "discreet algorithms": ([*PROGRAM, "algorithms"], 6.0),
    "discreet envs": ([*PROGRAM, "envs"], 6.0),
}
NUMPY = ["-c", "import numpy"]
REPEATS = 7


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one process."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def rows() -> list[dict[str, Any]]:
    cpu_seconds(NUMPY)  # caches
    found = []
    for name, (arguments, most) in STARTED.items():
        cpu_seconds(arguments)
        pairs = [(cpu_seconds(arguments), cpu_seconds(NUMPY)) for _ in range(REPEATS)]
        ours, numpy = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = numpy / ours
        found.append(
            {
                "name": f"start-up: {name}",
                "ours": 1e3 * ours,
                "baseline": 1e3 * numpy,
                "baseline_name": "python -c 'import numpy'",
                "unit": "ms",
                "ratio": ratio,
                "target": 1 / most,
                "met": ratio >= 1 / most,
            }
        )
    return found
