"""Private learners: practical mode against non-private, paper mode against vectorised numpy and its own floor."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from dataclasses import replace

import numpy_dp_ucbvi
from discreet.people.counts import Counts
from discreet.privacy.noise import NoiseSource
from discreet.runs.experiment import Experiment, Setting, generators, run, warm_up
from measuring import Row, row


def practical() -> Row:
    """RiverSwim S=6 H=20 pooled, K = 200 000: the private epoch run within 3x of the non-private one."""
    K = 200_000
    private = Experiment("dp-ucbvi", pooled=True, episodes=K, epsilon=1.0)
    plain = Experiment("ucbvi-bernstein", pooled=True, episodes=K)
    times: dict[str, list[float]] = {"private": [], "plain": []}
    warm_up(private)
    warm_up(plain)
    for seed in range(3):
        times["private"].append(run(private, seed).seconds)
        times["plain"].append(run(plain, seed).seconds)
    ours, baseline = (statistics.median(times[name]) for name in ("private", "plain"))
    name = "dp-ucbvi practical, RiverSwim S=6 H=20 pooled, K=2e5"
    return row(name, K / ours, K / baseline, "non-private epoch run", "episodes/s", 1 / 3)


def paper() -> list[Row]:
    """RiverSwim S=6 H=20 staged, tree, a release and a plan after every episode."""
    K, numpy_episodes = 2_000, 200
    experiment = Experiment("dp-ucbvi", mode="paper", episodes=K, epsilon=1.0)
    warm_up(experiment)
    setting = Setting.of(experiment)
    triple = setting.triple()
    stream = triple.privatizer.open(setting.spec, K, NoiseSource.seeded(0))
    entry = stream.ledger[0]
    stream.add(Counts.zeros(setting.spec))
    release = stream.release()
    width = float(release.widths.visits)  # type: ignore[arg-type]
    counters = sum(table.size for _, table in Counts.zeros(setting.spec).tables())

    def floor(source: NoiseSource) -> float:
        """Only what cannot be left out: the noise of one episode and one plan."""
        before = time.process_time()
        for _ in range(300):
            source.laplace(entry.scale, counters)
            triple.agent.plan(replace(release), None)
        return (time.process_time() - before) / 300

    ours, theirs, least = [], [], []
    for seed in range(9):  # taken in turns: what disturbs one disturbs the others
        ours.append(run(experiment, seed).seconds / K)
        before = time.process_time()
        numpy_dp_ucbvi.run(setting.mdp, numpy_episodes, entry.scale, setting.spec.grid, width, seed)
        theirs.append((time.process_time() - before) / numpy_episodes)
        least.append(floor(generators(seed)[1]))
    per_episode = statistics.median(ours)
    name = "dp-ucbvi paper mode, RiverSwim S=6 H=20 staged, every episode"
    return [
        row(name, 1 / per_episode, 1 / statistics.median(theirs), "vectorised numpy", "episodes/s", 5.0),
        row(name, 1 / per_episode, 1 / statistics.median(least), "noise and plan alone", "episodes/s", 0.5),
    ]


def memory() -> Row:
    """S=50 A=4 H=20 staged, epochs, K = 10⁶: peak memory in copies of the counters, users in flight included."""
    experiment = Experiment(
        "dp-ucbvi", env="sparse-dirichlet", states=50, horizon=20, episodes=1_000_000, epsilon=1.0
    )
    setting = Setting.of(experiment)
    warm_up(experiment)
    tracemalloc.start()
    run(experiment, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    copy = sum(table.nbytes for _, table in Counts.zeros(setting.spec).tables())
    return row(
        "dp-ucbvi epochs, S=50 H=20, K=1e6: copies of the counters in memory", copy * 24, peak, "fixed", "bytes", 1.0
    )


def rows() -> list[Row]:
    return [practical(), *paper(), memory()]


if __name__ == "__main__":
    for line in rows():
        print(line)
