"""Cells: runs to be made, each of them once, wherever they are computed and whatever happens meanwhile.

A cell is an experiment, a seed and what the seed is for; its id names its file. `run_cells` computes those that the
folder does not hold yet, so that what was killed is continued, with the same numbers.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from discreet import catalog, provenance
from discreet.envs import registry
from discreet.privacy.noise import NoiseSource
from discreet.runs import backends, results
from discreet.runs.backends import Backend, Workers
from discreet.runs.claims import Claims
from discreet.runs.experiment import Experiment, Setting, check_memory, run, warm_up
from discreet.runs.results import RunResult
from discreet.session import Session

Role: TypeAlias = Literal["tuning", "reporting"]
ROLES: tuple[Role, ...] = ("tuning", "reporting")
How: TypeAlias = Literal["done", "reused", "failed"]


@dataclass(frozen=True)
class Cell:
    """One run to be made."""

    experiment: Experiment
    seed: int
    role: Role = "reporting"

    @cached_property
    def id(self) -> str:
        return f"{self.experiment.id}-seed{self.seed}"


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed, and why."""

    cell: Cell
    error: str
    trace: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of the cells."""

    done: tuple[Cell, ...] = ()
    reused: tuple[Cell, ...] = ()  # the folder had them, or another process made them meanwhile
    failed: tuple[Failure, ...] = ()


# What is impossible -------------------------------------------------------------------------------------------------


@cache
def why_impossible(experiment: Experiment) -> str | None:
    """Why an experiment cannot be run, found without running it."""
    try:
        setting = Setting.of(experiment)
        Session.open(setting.triple(), setting.problem, NoiseSource.seeded(0), setting.entry.feedback)
    except ValueError as error:
        return str(error)
    except Exception:  # of somebody's own learner: its cells will fail, and say so
        return None
    return None


def refusal(reasons: Sequence[str], total: int) -> str:
    distinct = list(dict.fromkeys(reasons))
    shown = "; ".join(distinct[:5]) + (f"; and {len(distinct) - 5} more" if len(distinct) > 5 else "")
    return (
        f"{len(reasons)} of {total} combinations are impossible, and nothing was run: {shown}; "
        f'change them, or leave them out with impossible = "skip"'
    )


# The run ------------------------------------------------------------------------------------------------------------

Progress: TypeAlias = Callable[[Cell, How], None]
_NAMED = re.compile(r".+-seed[0-9]+")
#: Seconds between two looks at what other processes do.
LOOK = 0.25


def desk(out: Path) -> Path:
    """Where a sweep keeps claims, unfinished files and failures: beside its folder, which holds results only.

    Where that is another file system, or nobody may write there, it is a hidden folder inside.
    """
    whole = out.resolve()
    parent = whole.parent
    beside = parent != whole and os.access(parent, os.W_OK) and parent.stat().st_dev == whole.stat().st_dev
    return parent / f".{whole.name}.sweep" if beside else whole / ".sweep"


def failures(out: str | Path) -> list[dict[str, Any]]:
    """What the failed cells of a folder have left: cell, settings, seed, role, error, trace, source, time."""
    path = Path(out)
    files = sorted(desk(path).glob("*.json")) if path.is_dir() else ()
    return [json.loads(file.read_text()) for file in files]


def run_cells(
    cells: Iterable[Cell],
    out: str | Path,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress | None = None,
    address: str | None = None,
) -> Outcome:
    """Compute the cells that this source has not left in the folder yet.

    Everything that is wrong with a cell before it runs is said before any runs. A cell that fails is recorded and
    does not stop the others; one that another process works on is left to it. Only this process writes.
    """
    wanted = _distinct(cells)
    backends.check(backend)
    path = results.prepare(out)
    stored = Stored.of(path)
    _check_roles(wanted, stored)
    missing = [cell for cell in wanted if not stored.has(cell)]
    _check(missing, backends.count(jobs) if backend == "loky" else 1)
    run_of = _Run(path, progress or (lambda cell, how: None), stored)
    for cell in wanted:
        if stored.has(cell):
            run_of.reuse(cell)
    try:
        if missing:
            run_of.compute(missing, jobs, backend, address)
    finally:
        run_of.tidy()
    return run_of.outcome(wanted)


def _distinct(cells: Iterable[Cell]) -> list[Cell]:
    """One cell per id; a seed that has two roles is refused."""
    found: dict[str, Cell] = {}
    for cell in cells:
        if found.setdefault(cell.id, cell).role != cell.role:
            raise ValueError(f"{cell.id} is for tuning and for reporting; give each role seeds of its own")
    used = {role: {cell.seed for cell in found.values() if cell.role == role} for role in ROLES}
    if both := sorted(used["tuning"] & used["reporting"]):
        raise ValueError(f"seed {both[0]} is for tuning and for reporting; give each role seeds of its own")
    return list(found.values())


def _check(cells: Sequence[Cell], together: int) -> None:
    """Refuse cells that cannot be run, all of them in one sentence."""
    distinct = list(dict.fromkeys(cell.experiment for cell in cells))
    reasons = [f"{one.id}: {why}" for one in distinct if (why := why_impossible(one)) is not None]
    if reasons:
        raise ValueError(refusal(reasons, len(distinct)))
    for one in distinct:
        check_memory(one, min(together, len(cells)))


@dataclass(frozen=True)
class Stored:
    """Files of a folder: cell id → (source, role)."""

    known: dict[str, tuple[str | None, str | None]]
    roles: dict[int, str]  # seed → role, where one was said

    @classmethod
    def of(cls, folder: Path) -> Stored:
        files = (file for file in sorted(folder.glob("*.parquet")) if _NAMED.fullmatch(file.stem))
        known = {file.stem: facts for file in files if (facts := results.read_facts(file)) is not None}
        roles = {int(name.rpartition("-seed")[2]): role for name, (_, role) in known.items() if role is not None}
        return cls(known, roles)

    def has(self, cell: Cell) -> bool:
        return self.known.get(cell.id, (None, None))[0] == provenance.source_digest()

    def stale(self, cells: Iterable[Cell]) -> int:
        """How many of these another version of the source has left."""
        return sum(cell.id in self.known and not self.has(cell) for cell in cells)


def _check_roles(cells: Sequence[Cell], stored: Stored) -> None:
    for cell in cells:
        if (other := stored.roles.get(cell.seed)) is not None and other != cell.role:
            raise ValueError(
                f"seed {cell.seed} is for {cell.role}, but the folder holds it as a seed for {other}; "
                f"a seed that constants were chosen with cannot be reported: take other seeds or another folder"
            )


class _Run:
    """One call of `run_cells`: what was claimed, what came of it."""

    def __init__(self, out: Path, progress: Progress, stored: Stored) -> None:
        self.out, self.progress, self.stored = out, progress, stored
        self.desk = desk(out)
        self.claims = Claims(self.desk)
        self.done: list[Cell] = []
        self.reused: list[Cell] = []
        self.failed: list[Failure] = []
        self.blobs: dict[Experiment, bytes] = {}

    def outcome(self, order: Sequence[Cell]) -> Outcome:
        place = {cell.id: number for number, cell in enumerate(order)}
        done, reused = (tuple(sorted(each, key=lambda c: place[c.id])) for each in (self.done, self.reused))
        return Outcome(done, reused, tuple(sorted(self.failed, key=lambda f: place[f.cell.id])))

    def compute(self, cells: Sequence[Cell], jobs: int, backend: Backend, address: str | None) -> None:
        with self.claims.kept():
            self._all(cells, jobs, backend, address)

    def tidy(self) -> None:
        """Remove what the killed have left; where nothing remains, the desk too."""
        self.claims.clear()
        for part in self.desk.glob(".*.part"):
            name = part.name[1:].partition(".parquet.")[0].removesuffix(".json.part")
            if not self.claims.path(name).exists():  # who writes has the claim
                part.unlink(missing_ok=True)
        with suppress(OSError):  # the claims of others, or failures, are in it
            self.desk.rmdir()

    def _all(self, cells: Sequence[Cell], jobs: int, backend: Backend, address: str | None) -> None:
        """All cells; those whose worker died are tried again alone, and what kills that one too has failed."""
        waiting = deque(cells)
        while waiting:
            with backends.opened(backend, jobs, address) as workers:
                suspects = deque(self._until_broken(waiting, workers))
                if workers.unsure:  # the others are alive
                    self._until_broken(suspects, replace(workers, width=1, unsure=()))
            while suspects:
                with backends.processes(1, width=1) as one:
                    for cell in self._until_broken(suspects, one):
                        self._fail(Failure(cell, KILLED))

    def _until_broken(self, waiting: deque[Cell], workers: Workers) -> list[Cell]:
        """Compute what waits; where workers die, the cells that they had."""
        flying: dict[Future[Any], Cell] = {}
        unsure: list[Cell] = []
        try:
            while waiting or flying:
                while len(flying) < workers.width and (cell := self._next(waiting)) is not None:
                    flying[self._submitted(workers, cell, waiting)] = cell
                if not flying and waiting:  # others work on all of these
                    time.sleep(LOOK)
                finished, _ = wait(flying, timeout=LOOK if waiting else None, return_when=FIRST_COMPLETED)
                for future in finished:
                    if isinstance(error := future.exception(), workers.broken):
                        raise error
                    cell = flying.pop(future)
                    if isinstance(error, workers.unsure):
                        self.claims.release(cell.id)
                        unsure.append(cell)
                    else:
                        self._finish(cell, future, error)
        except workers.broken:
            for cell in flying.values():
                self.claims.release(cell.id)
            return list(flying.values())
        return unsure

    def _submitted(self, workers: Workers, cell: Cell, waiting: deque[Cell]) -> Future[Any]:
        try:
            return workers.submit(work, self._blob(cell.experiment), cell.seed)
        except workers.broken:
            self.claims.release(cell.id)
            waiting.appendleft(cell)
            raise

    def _next(self, waiting: deque[Cell]) -> Cell | None:
        """The first that is neither there by now nor somebody else's, claimed; the others stay in their order."""
        for _ in range(len(waiting)):
            cell = waiting.popleft()
            if self._elsewhere(cell):
                self.reuse(cell)
            elif self.claims.take(cell.id):
                if self._elsewhere(cell):  # finished between the look and the claim
                    self.claims.release(cell.id)
                    self.reuse(cell)
                    continue
                return cell
            else:
                waiting.append(cell)
        return None

    def _elsewhere(self, cell: Cell) -> bool:
        """Whether another process has finished it since we looked."""
        file = self.out / f"{cell.id}.parquet"
        known = results.read_facts(file) if file.exists() else None
        return known is not None and known[0] == provenance.source_digest()

    def _blob(self, experiment: Experiment) -> bytes:
        if experiment not in self.blobs:
            self.blobs[experiment] = packed(experiment)
        return self.blobs[experiment]

    def _finish(self, cell: Cell, future: Future[Any], error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self._fail(Failure(cell, f"{KILLED} ({type(error).__name__}: {error})"))
        elif error is not None:
            raise error
        elif isinstance(found := _judged(cell, future.result()), Failure):
            self._fail(found)
        else:
            with self._room():
                results.write(replace(found, role=cell.role), self.out, self.desk)
            (self.desk / f"{cell.id}.json").unlink(missing_ok=True)
            self.done.append(cell)
            self.progress(cell, "done")
        self.claims.release(cell.id)

    def _fail(self, failure: Failure) -> None:
        cell = failure.cell
        told = {
            "cell": cell.id,
            "settings": cell.experiment.settings,
            "seed": cell.seed,
            "role": cell.role,
            "error": failure.error,
            "trace": failure.trace,
            "source": provenance.source_digest(),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        part, record = self.desk / f".{cell.id}.json.part", self.desk / f"{cell.id}.json"
        with self._room():
            self.desk.mkdir(exist_ok=True)
            part.write_text(json.dumps(told, indent=2) + "\n")
            part.replace(record)
        self.failed.append(failure)
        self.progress(cell, "failed")

    @contextmanager
    def _room(self) -> Iterator[None]:
        """A disk that is full ends the sweep, and what was written stays."""
        try:
            yield
        except OSError as error:
            error.add_note(f"{len(self.done)} cells were computed and are kept; the same command goes on from here")
            raise

    def reuse(self, cell: Cell) -> None:
        """A run that was stored without a role gets it."""
        if self.stored.known.get(cell.id, (None, cell.role))[1] is None:
            (row,) = results.read(self.out, f"{cell.id}.parquet")
            results.write(replace(row, role=cell.role), self.out)
        self.reused.append(cell)
        self.progress(cell, "reused")


KILLED = "its worker was killed; most often there was not enough memory"


def _judged(cell: Cell, found: Any) -> RunResult | Failure:
    """What a worker sent, unless it failed, runs another program, or speaks of another experiment."""
    if isinstance(found, tuple) and isinstance(found[0], str):
        return Failure(cell, *found)
    row, source = found
    if source != provenance.source_digest():
        return Failure(cell, "its worker has another version of the source; install the same one on every machine")
    if row.id != cell.experiment.id:
        return Failure(cell, f"its worker ran {row.id}, as its own code has another digest there")
    return results.stamped(row)


# In the workers -----------------------------------------------------------------------------------------------------


def packed(experiment: Experiment) -> bytes:
    """An experiment and all that was registered, as bytes; code that workers could not import goes along."""
    import cloudpickle

    with _by_value(cloudpickle, experiment):
        return bytes(cloudpickle.dumps((experiment, registry.KNOWN.added(), catalog.KNOWN.added())))


@contextmanager
def _by_value(pickler: Any, experiment: Experiment) -> Iterator[None]:
    """Objects of modules that are not installed, such as one beside the sweep, are sent with their code."""
    given = [thing for thing in (experiment.algorithm, experiment.env) if not isinstance(thing, str)]
    names = {getattr(thing, "__module__", None) or type(thing).__module__ for thing in given}
    names |= {type(thing).__module__ for thing in given}
    loose = [module for name in names if (module := sys.modules.get(name)) is not None and _loose(module)]
    for module in loose:
        pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in loose:
            pickler.unregister_pickle_by_value(module)


def _loose(module: Any) -> bool:
    """Whether a module lies in no folder of packages; `__main__` is sent by value anyway."""
    file = getattr(module, "__file__", None)
    root = module.__name__.partition(".")[0]
    known = root in ("discreet", "__main__", "builtins") or root in sys.stdlib_module_names
    return not known and file is not None and "site-packages" not in Path(file).parts


_WARM: set[tuple[Any, ...]] = set()


def work(blob: bytes, seed: int) -> tuple[RunResult, str] | tuple[str, str]:
    """One run, with the source that made it; or, where it fails, the error and the end of its trace."""
    try:
        experiment, envs, learners = pickle.loads(blob)
        registry.KNOWN.include(envs)
        catalog.KNOWN.include(learners)
        if (kind := _kind(experiment)) not in _WARM:
            warm_up(experiment)
            _WARM.add(kind)
        return run(experiment, seed), provenance.source_digest()
    except Exception as error:
        lines = traceback.format_exception(error)
        return " ".join(f"{type(error).__name__}: {error}".split()), "".join(lines)[-4000:]


def _kind(experiment: Experiment) -> tuple[Any, ...]:
    """What decides which kernels run: names and flags, and of numbers whether they were said."""
    return tuple(value if isinstance(value, (str, bool)) else bool(value) for value in experiment.settings.values())
