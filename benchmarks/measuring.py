"""How a benchmark measures, and the row that it tells: ours, a baseline of the same run, their ratio."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

Row = dict[str, object]


def row(
    name: str, ours: float, baseline: float, against: str, unit: str, target: float, *, less: bool = False
) -> Row:
    """Larger ratios are better; with `less`, numbers of which the smaller is better."""
    ratio = baseline / ours if less else ours / baseline
    found = {"name": name, "ours": ours, "baseline": baseline, "baseline_name": against, "unit": unit}
    return {**found, "ratio": ratio, "target": target, "met": ratio >= target}


def _times(clock: Callable[[], float], work: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        before = clock()
        work()
        times.append(clock() - before)
    return times


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Shortest wall-clock time: the machine may be busy, and both sides use all its cores."""
    return min(_times(time.perf_counter, work, repeats))


#: What works in turn are compared by: on a busy machine processor time says more (DISCREET_BENCH_CLOCK=cpu).
CLOCK = time.process_time if os.environ.get("DISCREET_BENCH_CLOCK") == "cpu" else time.perf_counter


def seconds_in_turn(*works: Callable[[], object], rounds: int = 5) -> list[float]:
    """Shortest times of several works taken in turn, so that a busy minute falls on all of them."""
    times = ([_times(CLOCK, work, 1)[0] for work in works] for _ in range(rounds))
    return [min(each) for each in zip(*times, strict=True)]


def cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Median processor time of a piece of work."""
    return statistics.median(_times(time.process_time, work, repeats))


def process_seconds(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """User and system time of one Python process."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
