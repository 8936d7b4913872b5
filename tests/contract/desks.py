"""Privatizers of reports, batches, losses, histograms and regressions, once each: one way to add people and to look.

A newcomer that is listed in `DESKS` is put through all contracts of test_desks.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np

from discreet.occupancies import Layers
from discreet.people.counting import LoggedData, StepCounts, StepItems
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat, table_of
from discreet.people.losses import LossSpec
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, Guarantee
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.linear import LinearMoments
from discreet.privacy.trust.local_losses import LocalLosses
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.losses import CentralLosses
from discreet.privacy.trust.one_hot import OneHot, Tilted
from discreet.privacy.trust.reports import Reports
from discreet.privacy.trust.shuffle import ShuffleBatches
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.sparse import SparseStream
from discreet.privacy.trust.sparse_reports import SparseReportNoise
from discreet.privacy.trust.truncated import TruncatedLocal
from discreet.privacy.trust.two_servers import TwoServerReports
from discreet.problem import PublicStructure
from discreet.releases.batches import Batch
from discreet.releases.counts import Thresholds
from discreet.releases.items import Items
from discreet.releases.regressions import Target
from discreet.releases.reports import Targets
from discreet.releases.sparse import SparseItems
from discreet.releases.sparse_reports import SparseTargets
from oracles_streams import bad_records, stacked

SPEC = CountSpec(2, 2, 2, pooled=False, grid=2.0**-4)
LAYERS = Layers(((0, 1), (0, 1)), np.array([0.5, 0.5]), 2)
FEATURES = np.eye(4).reshape(2, 2, 4)
PURE, APPROXIMATE, ZCDP = Budget.pure(1.0), Budget.approximate(1.0, 1e-6), Budget.zcdp(0.5)


def people(count: int, seed: int = 0) -> list[Episodes]:
    """So many records of one user each; rewards of 0 or 1, which coins cannot change."""
    rng = np.random.default_rng(seed)
    return [
        Episodes(rng.integers(0, 2, (1, 3)), rng.integers(0, 2, (1, 2)), rng.integers(0, 2, (1, 2)).astype(float))
        for _ in range(count)
    ]


class Streaming:
    """Whatever has one stream, with one guarantee."""

    stream: Any

    def release(self) -> Any:
        return self.stream.release()

    def parts(self) -> list[Guarantee]:
        assert self.stream.guarantee.entries == self.stream.ledger
        return [self.stream.guarantee]


class Announced(Streaming):
    """Users who follow an announcement: one for everybody who is added at once."""

    bad = bad_records(SPEC)

    def __init__(self, privatizer: Any, users: int, noise: NoiseSource) -> None:
        self.stream = privatizer.open(SPEC, users, noise)
        self._batches = 0

    def add(self, records: list[Episodes]) -> None:
        nothing = np.zeros((1, 1, 1))
        announcement: Any = Batch(self._batches, sum(len(record) for record in records))
        if hasattr(self.stream, "alphabet"):
            announcement = Targets(np.ones(self.stream.alphabet.num_rows, dtype=np.bool_))
        elif hasattr(self.stream, "space"):  # two numbers of every target are wanted whatever they are
            space = self.stream.space
            first = space.columns * np.arange(space.num_cells)
            rows = np.ones(space.num_rows, dtype=np.bool_)
            announcement = SparseTargets(rows, full=np.concatenate([first, first + 1]))
        self.stream.begin(Plan(nothing, nothing[0], nothing, announcement=announcement))
        self._batches += 1
        for record in records:
            self.stream.add(record)


class Truncating(Announced):
    """Users who are told to keep rewards up to 1."""

    def __init__(self, privatizer: Any, users: int, noise: NoiseSource) -> None:
        self.stream = privatizer.open(replace(SPEC, reward_range=None), users, noise)

    def add(self, records: list[Episodes]) -> None:
        nothing = np.zeros((1, 1, 1))
        thresholds = Thresholds(np.ones(SPEC.shapes()["visits"]))
        self.stream.begin(Plan(nothing, nothing[0], nothing, announcement=thresholds))
        for record in records:
            self.stream.add(record)


class WithLosses(Announced):
    """Users with loss tables; everybody who is added at once is a block. Where a record is bad, so is its table.

    Where the last step leads is not read, so that it cannot be wrong.
    """

    bad: ClassVar = [record for record in bad_records(SPEC) if LossSpec(LAYERS, "full", 1).cells(record)[0, 0] < 0]

    def __init__(self, privatizer: Any, users: int, noise: NoiseSource, feedback: Any) -> None:
        self._spec = LossSpec.for_episodes(LAYERS, feedback, users)
        self.stream = privatizer.open(self._spec, noise)

    def add(self, records: list[Episodes]) -> None:
        for record in records:
            read = self._spec.cells(record)[:, :1, None, None] >= 0
            self.stream.add(record, np.where(read, np.linspace(0.0, 1.0, 8).reshape(2, 2, 2), np.nan))
        self.stream.close_counts()
        self.stream.close_losses()


class Histogram(Streaming):
    """All users at once."""

    bad = bad_records(SPEC)

    def __init__(self, privatizer: OneHot, users: int, noise: NoiseSource) -> None:
        cells = Items.of(2, 2, 2, False)
        self.stream = privatizer.open(SPEC, cells, users, noise)

    def add(self, records: list[Episodes]) -> None:
        parts = [StepCounts.of(record, SPEC) for record in records]
        T, R = (sum(getattr(part, name) for part in parts) for name in ("transitions", "reward_sums"))
        self.stream.add(StepCounts(T, R, sum(part.num_users for part in parts)))


class Above(Histogram):
    """All users at once, of whom only what rises above a threshold is drawn."""

    def __init__(self, privatizer: OneHot, users: int, noise: NoiseSource) -> None:
        self.stream = SparseStream(privatizer, SPEC, SparseItems(2, 2, 2, False), users, noise, lambda each: 0.5)

    def add(self, records: list[Episodes]) -> None:
        parts = [StepCounts.of(record, SPEC) for record in records]
        T, R = (sum(getattr(part, name) for part in parts).ravel() for name in ("transitions", "reward_sums"))
        seen = np.flatnonzero(T)
        self.stream.add(StepItems(seen, T[seen], R[seen], sum(part.num_users for part in parts)))


class FromLog:
    """Rows of a log, released when they are asked for: a function of the log, or a stream that answers once.

    A log is read row by row, so that a bad record is one without any row that can be read.
    """

    bad: ClassVar = [
        Episodes(np.full((1, 3), state), np.full((1, 2), action), np.ones((1, 2)))
        for state, action in ((-1, 0), (9, 1), (0, -1), (1, 2), (-1, -1))
    ]

    def __init__(self, privatizer: Any, users: int, noise: NoiseSource) -> None:
        self._privatizer, self._noise = privatizer, noise
        self.stream: Any = None
        self._parts: list[Guarantee] = []

    def add(self, records: list[Episodes]) -> None:
        log = LogFormat(2, 2, 2, grid=SPEC.grid, early_end="keep")
        data = LoggedData(table_of(stacked(records)), log)
        spec = data.log.spec
        if isinstance(self._privatizer, Tilted):
            cells = Items.of(2, 2, 2, False)
            self._found, parts = self._privatizer.release(data.one_step(), spec, cells, self._noise)
        else:
            self.stream = self._privatizer.open(data.rows(), spec, 2, self._noise)
            target = Target(np.ones((2, 2, 2)), np.ones((2, 2)), 2.0)
            self._found = [
                self.stream.regress(step, part, FEATURES, [target])
                for part in self._privatizer.shares(2)
                for step in range(2 if part == "values" else 1)
            ]
            parts = self.stream.parts()
        self._parts = list(parts.values())

    def release(self) -> Any:
        return self._found

    def parts(self) -> list[Guarantee]:
        if not self._parts:
            self.add(people(3))
        return self._parts


@dataclass(frozen=True)
class Desk:
    """A privatizer up to its budget, and what the contracts must know about it."""

    name: str
    budget: Budget
    make: Callable[..., Any]  # (budget, neighbours) → privatizer
    kind: Callable[..., Any]
    model: str
    relations: tuple[str, ...] = ("replace", "zero-out")
    again: bool = True  # may take more users after a release
    declares: bool = True  # users are declared when it is opened
    exact: bool = True  # without noise the same users give the same release, whatever coins they toss

    def open(self, users: int, noise: NoiseSource, neighbours: str = "replace", budget: Budget | None = None) -> Any:
        return self.kind(self.make(budget or self.budget, neighbours), users, noise)

    @property
    def endless(self) -> Budget:
        return {
            "pure": Budget.pure(math.inf),
            "approximate": Budget.approximate(math.inf, 1e-6),
            "zcdp": Budget.zcdp(math.inf),
        }[self.budget.kind]


def _losses(feedback: str) -> Callable[..., Any]:
    return lambda privatizer, users, noise: WithLosses(privatizer, users, noise, feedback)


def _central(**settings: Any) -> Callable[..., Any]:
    return lambda budget, neighbours: CentralLosses(
        budget, neighbours, num_count_blocks=4, num_loss_blocks=4, **settings
    )


START = PublicStructure(initial=np.array([0.5, 0.5]))

DESKS = [
    Desk("reports", PURE, Reports, Announced, "joint"),
    Desk("reports-public-start", PURE, lambda b, n: Reports(b, n, 2, START), Announced, "joint"),
    Desk("reports-sparse", PURE, SparseReportNoise, Announced, "joint"),
    Desk("two-server-reports", PURE, TwoServerReports, Announced, "two-servers"),
    Desk("local-reports", PURE, lambda b, n: LocalReports(b, neighbours=n), Announced, "local", ("replace",)),
    Desk("truncated-local", PURE, lambda b, n: TruncatedLocal(b), Truncating, "local", ("replace",)),
    Desk("shuffle-reports", APPROXIMATE, ShuffleReports, Announced, "shuffle"),
    Desk("shuffle-batches", APPROXIMATE, ShuffleBatches, Announced, "shuffle"),
    Desk("one-hot", PURE, OneHot, Histogram, "central", again=False),
    Desk("one-hot-gaussian", ZCDP, OneHot, Histogram, "central", again=False),
    Desk("one-hot-sparse", PURE, OneHot, Above, "central", again=False),
    Desk("one-hot-sparse-gaussian", ZCDP, OneHot, Above, "central", again=False),
    Desk("tilted", PURE, Tilted, FromLog, "central", again=False, declares=False, exact=False),
    Desk("moments", ZCDP, LinearMoments, FromLog, "central", again=False, declares=False),
    Desk(
        "moments-weighted",
        ZCDP,
        lambda b, n: LinearMoments(b, n, variances=True),
        FromLog,
        "central",
        again=False,
        declares=False,
    ),
    Desk(
        "moments-split",
        ZCDP,
        lambda b, n: LinearMoments(b, n, variances=True, split=True),
        FromLog,
        "central",
        again=False,
        declares=False,
        exact=False,
    ),
    Desk("losses-blocks", PURE, _central(), _losses("full"), "joint"),
    Desk("losses-blocks-bandit", APPROXIMATE, _central(visits=True), _losses("bandit"), "joint"),
    Desk("losses-tree", PURE, _central(counts="tree", losses="tree", visits=True), _losses("full"), "joint"),
    Desk(
        "losses-constant-tree",
        PURE,
        _central(counts="constant-tree", losses="constant-tree"),
        _losses("bandit"),
        "joint",
    ),
    Desk("losses-toeplitz", APPROXIMATE, _central(losses="toeplitz"), _losses("full"), "joint"),
    Desk("losses-public", PURE, _central(public_losses=True), _losses("full"), "joint"),
    Desk("local-losses", PURE, lambda b, n: LocalLosses(b), _losses("full"), "local", ("replace",), exact=False),
    Desk(
        "local-losses-bandit",
        PURE,
        lambda b, n: LocalLosses(b),
        _losses("bandit"),
        "local",
        ("replace",),
        exact=False,
    ),
    Desk(
        "local-losses-laplace",
        PURE,
        lambda b, n: LocalLosses(b, laplace=True),
        _losses("full"),
        "local",
        ("replace",),
    ),
    Desk("local-losses-gaussian", ZCDP, lambda b, n: LocalLosses(b), _losses("full"), "local", ("replace",)),
    Desk(
        "local-losses-gaussian-bandit",
        APPROXIMATE,
        lambda b, n: LocalLosses(b, laplace=True),
        _losses("bandit"),
        "local",
        ("replace",),
    ),
]


def numbers(thing: Any) -> list[np.ndarray]:
    """Every number and array of a release, in order."""
    if isinstance(thing, (np.ndarray, int, float)):
        return [np.asarray(thing)]
    if isinstance(thing, (list, tuple)):
        return [found for part in thing for found in numbers(part)]
    if is_dataclass(thing):
        return [found for field in fields(thing) for found in numbers(getattr(thing, field.name))]
    return []


def same(a: Any, b: Any) -> bool:
    left, right = numbers(a), numbers(b)
    return len(left) == len(right) > 2 and all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))
