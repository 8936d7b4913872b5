"""What a phone pays: loading `discreet.device` beside numpy alone, and one report from the operating system's words.

Processor time of fresh interpreters, interleaved with the baseline, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from discreet.device import LaplaceEncoder, Noise, SampledEncoder, Tables
from measuring import Row, cpu_seconds, process_seconds, row

REPEATS = 9
#: Seconds that loading may take beyond numpy.
MOST = 0.3
TABLES = Tables(20, 4, 10, 1, 2.0**-10, (0.0, 1.0))  # 1,600 transitions
EPISODE = [0] * 11, [1] * 10, [0.5] * 10


def _import_time(module: str) -> float:
    """Processor seconds of an interpreter that imports one module."""
    source = str(Path(__file__).parents[1] / "src")
    return process_seconds(["-c", f"import {module}"], {**os.environ, "PYTHONPATH": source})


def _report_time(encoder: LaplaceEncoder | SampledEncoder) -> float:
    noise = Noise()
    return cpu_seconds(lambda: encoder.encode("ann", *EPISODE, noise, epsilon_at_most=encoder.epsilon), 1)


def rows() -> list[Row]:
    """Loading, beyond numpy and in imports of numpy; and the two reports, against a second."""
    for module in ("numpy", "discreet.device"):  # write the byte code
        _import_time(module)
    pairs = [(_import_time("discreet.device"), _import_time("numpy")) for _ in range(REPEATS)]
    ours, numpy = (statistics.median(side) for side in zip(*pairs, strict=True))
    beyond = max(statistics.median(device - alone for device, alone in pairs), 1e-3)
    laplace, sampled = LaplaceEncoder(TABLES, (60.0, 60.0, 60000.0)), SampledEncoder(TABLES, 2**62)
    return [
        row("import discreet.device, beyond numpy", beyond, MOST, "fixed", "s", 1.0, less=True),
        row("import discreet.device", ours, numpy, "import numpy", "s", 0.4, less=True),
        row(
            "a Laplace report of 1,760 counters, tables included",
            _report_time(laplace),
            1.0,
            "fixed",
            "s",
            1.0,
            less=True,
        ),
        row("a sampled step of 3,200 items", _report_time(sampled), 1.0, "fixed", "s", 1.0, less=True),
    ]
