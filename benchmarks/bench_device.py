"""What a phone pays: loading `discreet.device` beside numpy alone, and one report from the operating system's words.

Processor time of fresh interpreters, interleaved with the baseline, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from discreet.device import LaplaceEncoder, Noise, SampledEncoder, Tables

REPEATS = 9
#: Seconds that loading may take beyond numpy.
MOST = 0.3
TABLES = Tables(20, 4, 10, 1, 2.0**-10, (0.0, 1.0))  # 1,600 transitions
EPISODE = [0] * 11, [1] * 10, [0.5] * 10


def _import_time(module: str) -> float:
    """Processor seconds of an interpreter that imports one module."""
    source = str(Path(__file__).parents[1] / "src")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env={**os.environ, "PYTHONPATH": source})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _report_time(encoder: LaplaceEncoder | SampledEncoder) -> float:
    noise = Noise()
    start = time.process_time()
    encoder.encode("ann", *EPISODE, noise, epsilon_at_most=encoder.epsilon)
    return time.process_time() - start


def _row(name: str, ours: float, baseline: float, baseline_name: str, target: float) -> dict[str, object]:
    ratio = baseline / ours
    return {
        "name": name,
        "ours": ours,
        "baseline": baseline,
        "baseline_name": baseline_name,
        "unit": "s",
        "ratio": ratio,
        "target": target,
        "met": ratio >= target,
    }


def rows() -> list[dict[str, object]]:
    """Loading, beyond numpy and in imports of numpy; and the two reports, against a second."""
    for module in ("numpy", "discreet.device"):  # write the byte code
        _import_time(module)
    pairs = [(_import_time("discreet.device"), _import_time("numpy")) for _ in range(REPEATS)]
    ours, numpy = (statistics.median(side) for side in zip(*pairs, strict=True))
    beyond = max(statistics.median(device - alone for device, alone in pairs), 1e-3)
    laplace, sampled = LaplaceEncoder(TABLES, (60.0, 60.0, 60000.0)), SampledEncoder(TABLES, 2**62)
    return [
        _row("import discreet.device, beyond numpy", beyond, MOST, "fixed", 1.0),
        _row("import discreet.device", ours, numpy, "import numpy", 0.4),
        _row("a Laplace report of 1,760 counters, tables included", _report_time(laplace), 1.0, "fixed", 1.0),
        _row("a sampled step of 3,200 items", _report_time(sampled), 1.0, "fixed", 1.0),
    ]
