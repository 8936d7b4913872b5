"""A deployment as a pure machine: what is known, what may be asked of it, and what follows. Proof: deployment.md.

Time and randomness are arguments; nothing here reads a clock, draws a number or keeps a report. Whoever runs it
writes down the events of a decision before anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from discreet.device.announcements import START, Announcement, Entry
from discreet.device.encoders import Form
from discreet.device.shuffled import ShuffledEncoder
from discreet.live.charter import Charter
from discreet.live.events import Amended, Event, Forged, Opened, Paused, Released, Resumed, Retired, event_of
from discreet.live.learning import Course
from discreet.mdp import Ints
from discreet.privacy.noise import NoiseSource

#: Epochs that may be out at once: one that fills, and one that waits for its last reports.
MOST_OPEN = 2
#: Learners whose batches depend on how many people come in all.
FIXED = ("sdp-pe",)


# What is known ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Open:
    """An epoch that is out: tickets handed out, and when the last of them expires (milliseconds)."""

    announcement: Announcement
    head: bytes  # of the announcement's entry
    out: int = 0
    deadline: int = 0

    @property
    def epoch(self) -> int:
        return self.announcement.epoch

    @property
    def size(self) -> int:
        return self.announcement.size

    @property
    def full(self) -> bool:
        return self.out >= self.size


@dataclass(frozen=True, eq=False)
class State:
    """Everything but the reports: a function of the public log, and of how many tickets are out."""

    charter: Charter
    key: bytes
    course: Course
    number: int = 1  # of the next entry
    head: bytes = START
    open: tuple[Open, ...] = ()
    epochs: int = 0  # announced
    places: int = 0  # in all epochs that were announced
    released: int = 0
    told: Announcement | None = None  # the last announcement, and the head of its entry
    told_head: bytes = START
    fresh: bool = True  # whether the plan has not been announced
    paused: bool = False
    retired: bool = False

    @property
    def users(self) -> int:
        """How many may come."""
        return self.course.users

    @property
    def tickets(self) -> int:
        """How many were handed out."""
        return self.places - sum(epoch.size - epoch.out for epoch in self.open)

    def epoch(self, number: int) -> Open | None:
        """The epoch of this number, while it is out."""
        return next((epoch for epoch in self.open if epoch.epoch == number), None)


def evolve(state: State | None, entry: Entry) -> State:
    """The state after one more entry of the log, which must be in order (its signature: `check_chain`)."""
    event = event_of(entry)
    if state is None:
        if not isinstance(event, Opened) or entry.number != 0 or entry.previous != START:
            raise Forged("a log begins with its charter")
        return State(event.charter, event.key, Course.begun(event.charter, event.hpke), head=entry.head)
    if entry.number != state.number or entry.previous != state.head:
        raise Forged(f"the log is broken at entry {state.number}: it does not follow the entry before it")
    if state.retired:
        raise Forged("the log goes on after the deployment was retired")
    return replace(_after(state, event, entry.head), number=entry.number + 1, head=entry.head)


def _after(state: State, event: Event, head: bytes) -> State:
    course = state.course
    if isinstance(event, Announcement):
        _check_announced(state, event)
        opened = Open(event, head)
        return replace(
            state,
            course=course.told(event),
            open=(*state.open, opened),
            epochs=event.epoch,
            places=state.places + event.size,
            told=event,
            told_head=head,
            fresh=state.fresh and event.repeats is not None,
        )
    if isinstance(event, Released):
        oldest = state.open[0] if state.open else None
        if oldest is None or event.epoch != oldest.epoch or event.tickets != oldest.size:
            raise Forged(f"the log releases epoch {event.epoch} out of its turn, or for another number of people")
        if event.values.size != course.expected(oldest.announcement):
            raise Forged(f"the log releases other numbers than epoch {event.epoch} was asked for")
        learned = course.released(event.epoch, event.tickets, event.values)
        return replace(state, course=learned, open=state.open[1:], released=state.released + 1, fresh=True)
    if isinstance(event, Amended):
        if event.users <= state.users or state.charter.learner in FIXED:
            raise Forged("an amendment lets more people come, never fewer, and not where the plan is for so many")
        return replace(state, course=course.amended(event.users))
    if isinstance(event, Opened):
        raise Forged("a log opens once")
    if isinstance(event, Retired):
        return replace(state, retired=True, open=())
    return replace(state, paused=isinstance(event, Paused))


def _check_announced(state: State, event: Announcement) -> None:
    if event.epoch != state.epochs + 1 or len(state.open) >= MOST_OPEN or state.places + event.size > state.users:
        raise Forged(f"the log announces epoch {event.epoch} out of its turn, or for more people than may come")
    told = state.told
    if event.repeats is not None and (
        told is None
        or state.epoch(event.repeats) is None
        or replace(event, epoch=told.epoch, size=told.size, repeats=told.repeats) != told
    ):
        raise Forged(f"the log says that epoch {event.epoch} repeats another, which it does not")


def recovered(entries: Iterable[Entry], out: Mapping[int, tuple[int, int]]) -> State:
    """The state after a restart; `out`: epoch → (tickets handed out, when the last expires), as the vault has it."""
    state: State | None = None
    for entry in entries:
        state = evolve(state, entry)
    if state is None:
        raise ValueError("the log is empty; begin a deployment with: discreet deploy init")
    return counted(state, out)


def counted(state: State, out: Mapping[int, tuple[int, int]]) -> State:
    """The same with the tickets that the vault has."""
    now = (replace(e, out=out[e.epoch][0], deadline=out[e.epoch][1]) if e.epoch in out else e for e in state.open)
    return replace(state, open=tuple(now))


# What may be asked --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """What the vault knows of a user who has a ticket."""

    user: bytes
    epoch: int
    slot: int
    expires: int
    reported: bool


@dataclass(frozen=True)
class Enrol:
    user: bytes
    held: Held | None


@dataclass(frozen=True)
class Report:
    held: Held
    payload: bytes


@dataclass(frozen=True)
class Amend:
    users: int


@dataclass(frozen=True)
class Pause:
    pass


@dataclass(frozen=True)
class Resume:
    pass


@dataclass(frozen=True)
class Retire:
    pass


Command: TypeAlias = Enrol | Report | Amend | Pause | Resume | Retire


@dataclass(frozen=True)
class Granted:
    """A place in an epoch. `head` names the announcement."""

    epoch: int
    slot: int
    expires: int
    head: bytes
    again: bool


@dataclass(frozen=True)
class Spectator:
    """No ticket: she may follow the policy, and nothing of her is taken."""

    head: bytes
    reason: str


@dataclass(frozen=True)
class Accepted:
    """`again`: it was there before, and the first one stands."""

    again: bool


@dataclass(frozen=True)
class Late:
    pass


@dataclass(frozen=True)
class Refused:
    why: str


@dataclass(frozen=True)
class Done:
    """What an operator asked for holds."""


Reply: TypeAlias = Granted | Spectator | Accepted | Late | Refused | Done


@dataclass(frozen=True)
class Decision:
    """What is to be written down, events, a ticket or a report (`item`), and what to answer once it is."""

    reply: Reply
    events: tuple[Event, ...] = ()
    ticket: Held | None = None
    item: bytes | None = None


def decide(state: State, command: Command, now: int) -> Decision:
    """`now` in milliseconds, never less than before."""
    if isinstance(command, Enrol):
        return _enrol(state, command, now)
    if isinstance(command, Report):
        return _report(state, command, now)
    if state.retired:
        return Decision(Refused("the deployment is retired"))
    if isinstance(command, Amend):
        if state.charter.learner in FIXED:
            return Decision(
                Refused(f"{state.charter.learner} cuts its batches for as many people as the charter says")
            )
        if command.users <= state.users:
            return Decision(Refused(f"{state.users:,} people may come by now; an amendment must say more"))
        return Decision(Done(), (Amended(command.users),))
    if isinstance(command, Retire):
        return Decision(Done(), (Retired(),))
    wanted = isinstance(command, Pause)
    if state.paused == wanted:
        return Decision(Done())
    return Decision(Done(), (Paused() if wanted else Resumed(),))


def _enrol(state: State, command: Enrol, now: int) -> Decision:
    held = command.held
    if held is not None:
        epoch = state.epoch(held.epoch)
        if epoch is None or now >= held.expires:
            return Decision(Spectator(state.told_head, "this user has had a ticket"))
        return Decision(Granted(held.epoch, held.slot, held.expires, epoch.head, True))
    current = state.open[-1] if state.open else None
    reason = why_not(state)
    if reason is not None or current is None or current.full:
        return Decision(Spectator(state.told_head, reason or "the next epoch has not been announced"))
    ticket = Held(command.user, current.epoch, current.out, now + state.charter.patience, False)
    return Decision(Granted(ticket.epoch, ticket.slot, ticket.expires, current.head, False), ticket=ticket)


def why_not(state: State) -> str | None:
    """Why nobody gets a ticket now; None if the next one does. A function of public numbers."""
    if state.retired:
        return "the deployment is retired"
    if state.paused:
        return "the deployment is paused"
    if state.open and not state.open[-1].full:
        return None
    if state.users - state.places < state.course.least:
        return "all tickets are taken"
    if len(state.open) >= (MOST_OPEN if state.charter.overlap == "repeat" else 1):
        return "the last people of an epoch are still reporting"
    return None


def opening(state: State) -> Announcement | None:
    """What is to be announced before the next person enrols: None while there is room, or while nobody may come.

    A new plan where there is one, else the last one again for as many people. Where no epoch is out it is announced
    at once, so that devices know their instructions; else when somebody comes.
    """
    if why_not(state) is not None or (state.open and not state.open[-1].full):
        return None
    if state.fresh or state.told is None:
        return state.course.announcement(state.epochs + 1, state.places)
    size = min(state.told.size, state.users - state.places)
    return replace(state.told, epoch=state.epochs + 1, size=size, repeats=state.told.epoch)


def admitted(state: State, ticket: Held) -> State:
    """After a ticket was handed out."""
    now = (
        replace(e, out=e.out + 1, deadline=max(e.deadline, ticket.expires)) if e.epoch == ticket.epoch else e
        for e in state.open
    )
    return replace(state, open=tuple(now))


def _report(state: State, command: Report, now: int) -> Decision:
    held = command.held
    epoch = state.epoch(held.epoch)
    if held.reported:
        return Decision(Accepted(True))
    if epoch is None or now >= held.expires:
        return Decision(Late())
    if isinstance(epoch.announcement.encoder, ShuffledEncoder):
        return Decision(Refused("messages of this deployment go to its shuffler"))
    try:
        epoch.announcement.encoder.entries(command.payload)
    except ValueError:
        return Decision(Refused("the report is not one that this epoch asked for"))
    return Decision(Accepted(False), ticket=held, item=command.payload)


# Releases -----------------------------------------------------------------------------------------------------------


def due(state: State, now: int) -> Open | None:
    """The oldest epoch, once all its tickets are out and the last of them has expired, whoever has reported."""
    oldest = state.open[0] if state.open else None
    return oldest if oldest is not None and oldest.full and now >= oldest.deadline else None


def tally(encoder: Form, payloads: Iterable[bytes]) -> tuple[Ints, int]:
    """The sums of the reports of an epoch, and how many there are."""
    total, came = np.zeros(encoder.size, dtype=np.int64), 0
    for payload in payloads:
        np.add.at(total, *encoder.entries(payload))
        came += 1
    return total, came


def seal(state: State, epoch: Open, payloads: Iterable[bytes], noise: NoiseSource) -> Released:
    """The release of an epoch that is `due`. Draws its noise: to be called once, and its result to be written down
    in the same transaction that forgets the reports."""
    form, privatizer, spec = epoch.announcement.encoder, state.course.privatizer, state.charter.spec
    total, came = tally(form, payloads)
    return Released(epoch.epoch, epoch.size, privatizer.seal(spec, form, total, epoch.size, epoch.size - came, noise))
