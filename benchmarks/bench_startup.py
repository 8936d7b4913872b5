"""Start-up: CPU time of whole processes, as ratios to `python -c "import numpy"` in the same run."""

from __future__ import annotations

import statistics

from measuring import Row, process_seconds, row

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


def rows() -> list[Row]:
    process_seconds(NUMPY)  # caches
    found = []
    for name, (arguments, most) in STARTED.items():
        process_seconds(arguments)
        pairs = [(process_seconds(arguments), process_seconds(NUMPY)) for _ in range(REPEATS)]
        ours, numpy = (statistics.median(column) for column in zip(*pairs, strict=True))
        against = "python -c 'import numpy'"
        found.append(row(f"start-up: {name}", 1e3 * ours, 1e3 * numpy, against, "ms", 1 / most, less=True))
    return found
