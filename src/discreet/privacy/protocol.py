"""The trust boundary: raw sums enter a `Stream`, only releases leave it."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Guarantee, LedgerEntry
from discreet.privacy.noise import NoiseSource

Release = TypeVar("Release", covariant=True)


class Stream(Protocol[Release]):
    """The only mutable object of a run, and the only place where raw sums live."""

    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def ledger(self) -> tuple[LedgerEntry, ...]: ...
    def add(self, contribution: Episodes | Counts) -> None:
        """Take in users who have not been seen before; more users than declared are refused.

        One whose record is not an episode of the problem contributes nothing and is counted like the others: whatever
        she wrote, nobody else sees a difference beyond what the guarantee allows.
        """
        ...

    def release(self) -> Release:
        """The noisy sums so far. Noise is drawn once: two releases without an `add` are identical."""
        ...


@runtime_checkable
class Announced(Protocol):
    """A stream whose users follow a public announcement: it is told the plan before they act."""

    def begin(self, plan: Plan) -> None: ...


class Privatizer(Protocol[Release]):
    """Configuration only: a budget and a mechanism."""

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> Stream[Release]: ...
