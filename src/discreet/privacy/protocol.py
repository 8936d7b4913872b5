"""The trust boundary: raw sums enter a `Stream`, only releases leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from discreet.device.bits import BitEncoder
from discreet.device.encoders import Form
from discreet.mdp import Ints
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


class Sealed(NamedTuple):
    """An epoch that was released: under which plan, for how many people, and its noisy whole numbers; none where its
    people are released together with those of the next epoch."""

    plan: Plan
    users: int
    values: Ints


@runtime_checkable
class Deployable(Protocol[Release]):
    """A privatizer whose epochs can be collected from people one by one: three pure functions, which its stream uses
    as well, so that a simulation and a deployment run the same code. What a message adds is `Encoder.entries`."""

    def form(self, spec: CountSpec, plan: Plan, users: int) -> Form | BitEncoder:
        """What so many people who follow a plan are asked to send; bits go through a shuffler, each sealed."""
        ...

    def seal(self, spec: CountSpec, form: Form, tally: Ints, users: int, silent: int, noise: NoiseSource) -> Ints:
        """The sums of an epoch of so many people, of whom `silent` sent nothing, with all noise that they get.

        Drawn once: whoever seals keeps the result and forgets the tally in the same breath.
        """
        ...

    def released(self, spec: CountSpec, num_episodes: int, sealed: Sequence[Sealed]) -> Release:
        """What a learner sees after these epochs, of at most so many people: a function of what was published."""
        ...
