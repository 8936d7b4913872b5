"""Throughput of the integer noise on one core, beside OpenDP's integer vector samplers in the same run."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from discreet.privacy.noise import NoiseSource
from measuring import Row, cpu_seconds, row
from oracles_noise import opendp_measurement

SCALE = 100.0
VALUES = 2_000_000
BASELINE_VALUES = 10_000
REPEATS = 7


def rows() -> list[Row]:
    """One row per target; medians over interleaved repetitions, so that a busy machine slows both sides alike."""
    source = NoiseSource.secure()
    ours: dict[str, Callable[[], object]] = {
        "laplace": lambda: source.laplace(SCALE, VALUES),
        "gaussian": lambda: source.gaussian(SCALE, VALUES),
    }
    result: list[Row] = []
    for law, target_rate in (("laplace", 50e6), ("gaussian", 25e6)):
        measurement, zeros = opendp_measurement(law, SCALE), [0] * BASELINE_VALUES
        baseline = partial(measurement, zeros)
        ours[law](), baseline()  # compile, build the tables, warm both up
        pairs = [
            (VALUES / cpu_seconds(ours[law], 1), BASELINE_VALUES / cpu_seconds(baseline, 1)) for _ in range(REPEATS)
        ]
        rate, baseline_rate = (statistics.median(side) for side in zip(*pairs, strict=True))
        name = f"discrete {law} noise, scale 100"
        result.append(row(name, rate, target_rate, "fixed", "values/s", 1.0))
        result.append(row(f"{name}, against OpenDP", rate, baseline_rate, "OpenDP", "values/s", 100.0))
    return result


if __name__ == "__main__":
    for line in rows():
        print(line)
