"""What `discreet explore` answers: noise, feasibility and users needed of a problem, and what was measured nearby."""

from __future__ import annotations

import csv
import math
import multiprocessing
import shlex
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from discreet import catalog
from discreet.pages.serving import Late
from discreet.problem import Problem
from discreet.runs import feasibility, report

#: What may be asked: the least, the largest, and where the page starts.
NUMBERS: Mapping[str, tuple[float, float, float]] = {
    "users": (10, 10**8, 20_000),
    "epsilon": (0.01, feasibility.LARGEST_EPSILON, 1.0),
    "delta": (0.0, 0.01, 0.0),
    "states": (1, 500, 6),
    "actions": (1, 50, 2),
    "horizon": (1, 200, 20),
    "branching": (1, 500, 2),
}
WHOLE = ("users", "states", "actions", "horizon")
#: More numbers than this in a table of transitions are not computed while somebody waits.
LARGEST_TABLE = 10_000_000
#: Seconds after which an answer is given up.
PATIENCE = 15.0
#: So many of the nearest settings are shown.
NEAREST = 4


@dataclass(frozen=True)
class Question:
    """One position of the sliders."""

    users: int
    epsilon: float
    delta: float
    states: int
    actions: int
    horizon: int
    branching: float
    model: str
    pooled: bool

    @classmethod
    def of(cls, said: Mapping[str, Sequence[str]]) -> Question:
        """From the words of a query: every one once, nothing else, and all within their limits."""
        known = (*NUMBERS, "model", "pooled")
        for name in (*known, *said):
            if name not in known:
                raise ValueError(f"there is no {name!r} to choose; there are {', '.join(known)}")
            if len(said.get(name, ())) != 1:
                raise ValueError(f"{name} was given {len(said.get(name, ()))} times; give it once")
        numbers = {name: _number(name, said[name][0]) for name in NUMBERS}
        (model,), (pooled,) = said["model"], said["pooled"]
        if model not in catalog.TRUST:
            raise ValueError(f"unknown model {model!r}; choose one of {', '.join(catalog.TRUST)}")
        if pooled not in ("true", "false"):
            raise ValueError(f"pooled is {pooled!r}; it must be true or false")
        whole: dict[str, Any] = {name: int(numbers[name]) for name in WHOLE}
        found = cls(**(numbers | whole), model=model, pooled=pooled == "true")
        entries = (1 if found.pooled else found.horizon) * found.states**2 * found.actions
        if entries > LARGEST_TABLE:
            raise ValueError(
                f"a table of {entries:,} transitions is too large to answer at once; ask: {found.command}"
            )
        return found

    @property
    def command(self) -> str:
        """What says the same on the command line."""
        sizes = [(f"--{name}", f"{getattr(self, name):g}") for name in ("states", "actions", "horizon", "epsilon")]
        words = [word for pair in sizes for word in pair] + ["--users", f"{self.users}"]
        words += ["--delta", f"{self.delta:g}"] if self.delta else []
        words += ["--model", self.model] if self.model != "joint" else []
        words += ["--branching", f"{self.branching:g}"] if self.horizon > 1 else []
        return shlex.join(["discreet", "calibrate", *words, *(["--pooled"] if self.pooled else [])])


def _number(name: str, text: str) -> float:
    low, high, _ = NUMBERS[name]
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text[:40]!r}; it must be a number") from None
    if name in WHOLE and value != value // 1:
        raise ValueError(f"{name} is {text[:40]!r}; it must be a whole number")
    if not low <= value <= high:
        raise ValueError(f"{name} is {text[:40]}; it must lie between {low:g} and {high:g}")
    return value


def answer(question: Question, measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything the page shows: what `calibrate` says of counts, what Spotlight's reports need, and what is near.

    What does not exist for a model is null, with a sentence that says why.
    """
    counts, no_counts = _tried(lambda: _counts(question))
    reports, no_reports = _tried(lambda: _reports(question))
    return {
        "command": question.command,
        "counts": counts,
        "no_counts": no_counts,
        "reports": reports,
        "no_reports": no_reports,
        "measured": [asdict(row) for row in nearest(question, measured)],
    }


def _tried(asked: Any) -> tuple[dict[str, Any] | None, str | None]:
    try:
        return asked(), None
    except ValueError as error:
        return None, str(error)


def _counts(asked: Question) -> dict[str, Any]:
    if asked.model == "two-servers":
        raise ValueError("two servers take reports, not counts")
    sizes = asked.states, asked.actions, asked.horizon, asked.users
    told = {"model": asked.model, "pooled": asked.pooled, "branching": asked.branching}
    return feasibility.calibrate(*sizes, asked.epsilon, asked.delta, **told).to_json()  # type: ignore[arg-type]


def _reports(asked: Question) -> dict[str, Any]:
    problem = Problem(
        *(asked.states, asked.actions, asked.horizon, asked.users, asked.pooled),
        epsilon=asked.epsilon,
        delta=asked.delta,
        trust=asked.model,
    )
    build = catalog.algorithm("spotlight").build
    return feasibility.forecast_run(build, problem, branching=asked.branching).to_json()


# While somebody waits -----------------------------------------------------------------------------------------------


class Worker:
    """Answers in a process of its own, one question after the other; one that takes too long is ended."""

    def __init__(self, measured: Sequence[Measured], patience: float = PATIENCE) -> None:
        self._measured, self._patience, self._lock = list(measured), patience, threading.Lock()
        self._process: Any = None
        self._up = False

    def __call__(self, said: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        question = Question.of(said)
        with self._lock:
            try:
                return self._asked(question)
            except (EOFError, OSError):
                self.close()
                raise Late(f"the answer got lost, perhaps for want of memory; ask: {question.command}") from None

    def ready(self) -> None:
        """Start before anybody asks, for imports take seconds; from the main thread, so that Ctrl-C ends us only."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._start()
        finally:
            signal.signal(signal.SIGINT, before)

    def _asked(self, question: Question) -> dict[str, Any]:
        if self._process is None:
            self._start()
        if not self._up:
            self._pipe.recv()  # its imports are not taken for thinking
            self._up = True
        self._pipe.send(question)
        if not self._pipe.poll(self._patience):
            self.close()
            raise Late(f"that takes longer than {self._patience:g} seconds; ask: {question.command}")
        return dict(self._pipe.recv())

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._measured), daemon=True)
        self._process.start()
        theirs.close()
        self._up = False

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _work(pipe: Any, measured: Sequence[Measured]) -> None:
    """Answer until nobody asks any more; Ctrl-C is for the one who asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(None)
    while True:
        try:
            pipe.send(answer(pipe.recv(), measured))
        except (EOFError, OSError):
            return


# What was measured --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One learner on one problem, over seeds."""

    learner: str
    problem: str
    states: int
    actions: int
    horizon: int
    branching: float | None  # None: not known
    pooled: bool
    users: int
    model: str  # none: without privacy
    epsilon: float | None
    seeds: int
    ratio: float
    worst: float
    gap: float

    @property
    def setting(self) -> tuple[Any, ...]:
        """What learners share that are shown together."""
        return self.problem, self.states, self.actions, self.horizon, self.pooled, self.users


def shipped() -> list[Measured]:
    """The families of docs/results-families.md, which come with the package (benchmarks/measured.py writes them)."""
    text = (files("discreet.runs") / "measured.csv").read_text(encoding="utf-8")
    return [_from_row(row) for row in csv.DictReader(text.splitlines())]


def _from_row(row: Mapping[str, str]) -> Measured:
    plain: dict[str, Any] = {**row, "pooled": row["pooled"] == "True"}
    plain |= {name: int(row[name]) for name in ("states", "actions", "horizon", "users", "seeds")}
    plain |= {name: float(row[name]) if row[name] else None for name in ("branching", "epsilon")}
    return Measured(**plain | {name: float(row[name]) for name in ("ratio", "worst", "gap")})


def of_folder(folder: Path) -> list[Measured]:
    """Experiments in a folder of results, where the random policy leaves something to learn and sizes are stored."""
    found = []
    for summary in report.summaries(report.reportable(folder)):
        said, row = summary.settings, summary.rows[0]
        if summary.ratio is None or summary.gap is None or row.actions is None or not said.get("states"):
            continue
        (title,) = report.panels([row])
        found.append(
            Measured(
                learner=str(said["algorithm"]),
                problem=title,
                states=int(said["states"]),
                actions=row.actions,
                horizon=int(said["horizon"]),
                branching=None,
                pooled=bool(said.get("pooled")),
                users=int(said["episodes"]),
                model=row.guarantee.model,
                epsilon=said.get("epsilon"),
                seeds=len(summary.rows),
                ratio=summary.ratio.mean,
                worst=summary.ratio.worst,
                gap=summary.gap.mean,
            )
        )
    return found


def distance(asked: Question, row: Measured) -> float:
    """Σ |ln of the ratio| over sizes, users and ε; another model of trust or form of counts is a factor e away."""
    logs = [math.log(getattr(asked, name) / getattr(row, name)) for name in WHOLE]
    if row.branching is not None:
        logs.append(math.log(asked.branching / row.branching))
    if row.epsilon is not None:
        logs.append(math.log(asked.epsilon / row.epsilon))
    others = (row.model not in (asked.model, "none")) + (row.pooled != asked.pooled)
    return sum(map(abs, logs)) + others


def nearest(asked: Question, measured: Iterable[Measured]) -> list[Measured]:
    """All learners in the settings that are nearest, private ones deciding how near; the best first within each."""
    settings: dict[tuple[Any, ...], list[Measured]] = {}
    for row in measured:
        settings.setdefault(row.setting, []).append(row)

    def away(rows: Sequence[Measured]) -> float:
        return min(distance(asked, row) for row in [r for r in rows if r.model != "none"] or rows)

    chosen = sorted(settings.values(), key=away)[:NEAREST]
    return [row for rows in chosen for row in sorted(rows, key=lambda r: r.ratio)]
