"""Throughput of the integer noise on one core, beside OpenDP's integer vector samplers in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import opendp.prelude as dp

from discreet.privacy.noise import NoiseSource

SCALE = 100.0
VALUES = 2_000_000
BASELINE_VALUES = 10_000
REPEATS = 7


def _rate(work: Callable[[], object], values: int) -> float:
    """Values per second of processor time."""
    start = time.process_time()
    work()
    return values / (time.process_time() - start)


def _opendp(law: str) -> Callable[[], object]:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if law == "laplace":
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=SCALE)
    else:
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=SCALE)
    zeros = [0] * BASELINE_VALUES
    return lambda: measurement(zeros)


def rows() -> list[dict[str, object]]:
    """One row per target; medians over interleaved repetitions, so that a busy machine slows both sides alike."""
    source = NoiseSource.secure()
    ours: dict[str, Callable[[], object]] = {
        "laplace": lambda: source.laplace(SCALE, VALUES),
        "gaussian": lambda: source.gaussian(SCALE, VALUES),
    }
    result: list[dict[str, object]] = []
    for law, target_rate in (("laplace", 50e6), ("gaussian", 25e6)):
        baseline = _opendp(law)
        ours[law](), baseline()  # compile, build the tables, warm both up
        pairs = [(_rate(ours[law], VALUES), _rate(baseline, BASELINE_VALUES)) for _ in range(REPEATS)]
        rate, baseline_rate = (statistics.median(side) for side in zip(*pairs, strict=True))
        for name, compared, compared_name, target in (
            (f"discrete {law} noise, scale 100", target_rate, "fixed", 1.0),
            (f"discrete {law} noise, scale 100, against OpenDP", baseline_rate, "OpenDP", 100.0),
        ):
            result.append(
                {
                    "name": name,
                    "ours": rate,
                    "baseline": compared,
                    "baseline_name": compared_name,
                    "unit": "values/s",
                    "ratio": rate / compared,
                    "target": target,
                    "met": rate / compared >= target,
                }
            )
    return result


if __name__ == "__main__":
    for row in rows():
        print(row)
