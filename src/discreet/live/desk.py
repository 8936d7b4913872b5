"""A deployment and its store: what is asked of it is decided in one transaction, durable, anchored, and then visible.

`begin` one, `Desk.open` it again; `Service` runs a desk in a thread of its own, a command uses one directly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from discreet.device.announcements import START, Announcement, Entry, check_chain
from discreet.live import charter as charters
from discreet.live import secrets as keys
from discreet.live.deployment import (
    Command,
    Decision,
    Enrol,
    Held,
    Open,
    Reply,
    Report,
    State,
    admitted,
    counted,
    decide,
    due,
    evolve,
    opening,
    seal,
)
from discreet.live.events import Event, Opened, Released, event_of, signed
from discreet.live.memo import Memo
from discreet.live.secrets import Secrets, Tokens
from discreet.live.store import Anchor, Changes, Place, Store, StoreFailed, Transaction, open_store
from discreet.privacy.noise import NoiseSource

log = logging.getLogger("discreet.live")
#: Milliseconds between two tries to release where another server must help and does not, at first and at most.
FIRST_WAIT, LONGEST_WAIT = 250, 30_000

#: Entries that a restart may have to fold again.
REMEMBERED = 64

#: How an epoch that is due is released: the state, the epoch, its announcement and its reports.
Sealer = Callable[[State, Open, Entry, Iterable[bytes]], Released]


class Postponed(Exception):
    """An epoch cannot be released now, in one sentence: nothing is written, and it is tried again."""


#: The wall clock when this process began, less its steady one.
_BEGAN = time.time_ns() - time.monotonic_ns()


def milliseconds() -> int:
    """The wall clock as this process found it, gone on steadily: it does not jump when the machine's is put right."""
    return (_BEGAN + time.monotonic_ns()) // 1_000_000


@dataclass(frozen=True, eq=False)
class Visible:
    """What everybody may see: committed, and anchored."""

    entries: tuple[Entry, ...] = ()
    announced: dict[bytes, Entry] = field(default_factory=dict)  # by their heads, the one in force last
    state: State | None = None  # after the last entry

    @property
    def told(self) -> Entry | None:
        """The announcement in force."""
        return next(reversed(self.announced.values()), None)

    @property
    def head(self) -> Entry:
        return self.entries[-1]

    def after(self, entries: Iterable[Entry], state: State) -> Visible:
        new = tuple(entries)
        announced = {entry.head: entry for entry in new if b'"event":"announced"' in entry.body}
        return Visible((*self.entries, *new), {**self.announced, **announced}, state)


@dataclass(frozen=True)
class Wish:
    """A command to come: what the vault knows of its user is looked up in the transaction. None: only look."""

    user: bytes | None
    command: Callable[[Held | None], Command | None]

    @classmethod
    def enrol(cls, user: bytes) -> Wish:
        return cls(user, lambda held: Enrol(user, held))

    @classmethod
    def report(cls, user: bytes, payload: bytes) -> Wish:
        """Answered by None where she has no ticket."""
        return cls(user, lambda held: None if held is None else Report(held, payload))

    @classmethod
    def operate(cls, command: Command) -> Wish:
        return cls(None, lambda _: command)


LOOK = Wish(None, lambda _: None)


class Desk:
    """The one owner of a store, for one thread at a time. After a `StoreFailed` it must not be used again."""

    def __init__(
        self,
        charter: charters.Charter,
        secrets: Secrets,
        store: Store,
        anchor: Anchor,
        *,
        clock: Callable[[], int] = milliseconds,
        noise: NoiseSource | None = None,
        sealer: Sealer | None = None,
        memo: Memo | None = None,
    ) -> None:
        self.charter, self.secrets = charter, secrets
        self._store, self._anchor, self._clock = store, anchor, clock
        self._noise = NoiseSource.secure() if noise is None else noise
        self._sealer = sealer
        self._look: Callable[[Sequence[Entry]], None] = lambda _: None
        self._wait, self._not_before = 0, 0
        self._memo, self._kept = memo, 0
        self._seen, self._ahead = 0, 0
        self._state, self.visible = self._recovered()

    @classmethod
    def open(cls, path: Path | str, **options: Any) -> Desk:
        """The deployment of a TOML file, as it was left; refused where that is not what was published."""
        told = charters.read(path)
        secrets = keys.read(told.keys)
        store = open_store(told.store.url, epoch_keys(told))
        memo = Memo(told.path.with_name(f"{told.charter.name}.memo"), secrets.memo_key)
        try:
            return cls(told.charter, secrets, store, Anchor(told.store.anchor), **{"memo": memo, **options})
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        self._remember(1)
        self._store.close()

    def _remember(self, entries: int) -> None:
        """Keep what was folded, once there are so many more entries."""
        if self._memo is not None and self._state.number >= self._kept + entries:
            self._memo.write(self._state)
            self._kept = self._state.number

    @property
    def shared(self) -> bool:
        """Whether others may write to its store at the same time."""
        return self._store.shared

    @property
    def state(self) -> State:
        """With the tickets that are out by now."""
        return self._state

    @property
    def now(self) -> int:
        """Milliseconds, never less than before. Behind a clock that was put back time goes on from where it was."""
        told = self._clock()
        self._ahead = max(self._ahead, self._seen - told)
        self._seen = told + self._ahead
        return self._seen

    # Recovery -------------------------------------------------------------------------------------------------------

    def _recovered(self) -> tuple[State, Visible]:
        with self._store.writing() as transaction:
            entries = transaction.entries(0)
            if not entries:
                raise ValueError("the log is empty; begin the deployment with discreet deploy init")
            self._anchor.check(entries)
            state = self._folded(entries)
            if state.charter != self.charter:
                raise ValueError("the file tells another charter than the log, where it is fixed; put the file back")
            state = self._counted(transaction, state)
        self._anchor.advance(entries[-1])
        self._store.erased(_closed(state))
        return state, Visible().after(entries, state)

    def _folded(self, entries: list[Entry]) -> State:
        """What the log amounts to, from where the memo ends."""
        check_chain(entries, self.secrets.public)
        state = None if self._memo is None else self._memo.read(entries)
        self._kept = 0 if state is None else state.number
        for entry in entries[self._kept :]:
            state = evolve(state, entry)
        assert state is not None
        return state

    def _counted(self, transaction: Transaction, state: State) -> State:
        """With the tickets of the vault. Time does not go back behind the last of them."""
        outs = transaction.outs([epoch.epoch for epoch in state.open])
        for _, expires in outs.values():
            self._seen = max(self._seen, expires - state.charter.patience)
        return counted(state, outs)

    def _refreshed(self, transaction: Transaction) -> State:
        """The state with what others have written meanwhile."""
        state, length = self._state, transaction.length()
        if length < state.number:
            raise StoreFailed("the log has become shorter")
        if length > state.number:
            entries = transaction.entries(state.number)
            check_chain(entries, self.secrets.public, state.number, state.head)
            for entry in entries:
                state = evolve(state, entry)
            self._anchor.advance(entries[-1])
            self._store.erased(_closed(state))
            self.visible = self.visible.after(entries, state)
        self._state = self._counted(transaction, state)
        return self._state

    # Deciding -------------------------------------------------------------------------------------------------------

    def decided(self, wishes: Sequence[Wish]) -> list[Reply | None]:
        """Decide all of it in one transaction; the answers, once that is durable and anchored."""
        changes, answers = Changes(), list[Reply | None]()
        with self._store.writing() as transaction:
            state, now = self._refreshed(transaction), self.now
            users = {wish.user for wish in wishes if wish.user is not None}
            held = {user: _held(place) for user, place in transaction.held(users).items()}
            for wish in wishes:
                known = held.get(wish.user) if wish.user is not None else None
                command = wish.command(known)
                if command is None:
                    answers.append(None)
                    continue
                announcement = opening(state) if isinstance(command, Enrol) and known is None else None
                if announcement is not None:
                    state = self._appended(state, announcement, changes)
                decision = decide(state, command, now)
                state = self._written(state, decision, changes, held)
                answers.append(decision.reply)
            transaction.write(changes)
        self._publish(state, changes.entries)
        return answers

    def _written(self, state: State, decision: Decision, changes: Changes, held: dict[bytes, Held]) -> State:
        """Note what a decision writes; the state after it."""
        for event in decision.events:
            state = self._appended(state, event, changes)
        ticket = decision.ticket
        if ticket is None:
            return state
        if decision.item is not None:
            changes.items[ticket.user] = ticket.epoch, decision.item
            held[ticket.user] = replace(ticket, reported=True)
            return state
        changes.places[ticket.user] = Place(ticket.user, ticket.epoch, ticket.slot, ticket.expires)
        held[ticket.user] = ticket
        return admitted(state, ticket)

    def _appended(self, state: State, event: Event, changes: Changes) -> State:
        entry = signed(self.secrets.signing, state.number, state.head, event)
        changes.entries.append(entry)
        return evolve(state, entry)

    def _publish(self, state: State, entries: list[Entry]) -> None:
        """After a commit: anchor, forget, show."""
        if entries:
            self._anchor.advance(entries[-1])
            self._store.erased(_closed(state))
            self.visible = self.visible.after(entries, state)
        self._state = state
        self._remember(REMEMBERED)

    def sealed_by(self, sealer: Sealer, look: Callable[[Sequence[Entry]], None] = lambda _: None) -> None:
        """Release with another server's help from now on; `look` is shown the log now and then."""
        self._sealer, self._look = sealer, look

    def _sealed(self, state: State, epoch: Open, _: Entry, payloads: Iterable[bytes]) -> Released:
        if (state.charter.helper or state.charter.shuffler) is not None:
            raise Postponed("there is no link to the other server here")
        return seal(state, epoch, payloads, self._noise)

    def release(self) -> None:
        """Release every epoch that is due, and announce where nothing is open."""
        self._look(self.visible.entries)
        try:
            while self.now >= self._not_before and self._next_released():
                self._wait = 0
        except Postponed as why:
            self._wait = min(LONGEST_WAIT, max(FIRST_WAIT, 2 * self._wait))
            self._not_before = self.now + self._wait
            log.warning("an epoch that is due cannot be released: %s; again in %.2f s", why, self._wait / 1000)
        self._store.tidy()

    def _next_released(self) -> bool:
        """Release the oldest epoch if it is due; whether it was."""
        changes = Changes()
        with self._store.writing() as transaction:
            state = self._refreshed(transaction)
            epoch = due(state, self.now)
            if epoch is not None:
                announced = self.visible.announced[epoch.head]
                sealer = self._sealed if self._sealer is None else self._sealer
                released = sealer(state, epoch, announced, transaction.items(epoch.epoch))
                state = self._appended(state, released, changes)
            announcement = None if state.open else opening(state)
            if announcement is not None:
                state = self._appended(state, announcement, changes)
            transaction.write(changes)
        self._publish(state, changes.entries)
        if epoch is not None:
            log.info("epoch %d is released", epoch.epoch)
        return epoch is not None


def _held(place: Place) -> Held:
    return Held(place.user, place.epoch, place.slot, place.expires_ms, place.reported)


def _closed(state: State) -> int:
    """The last epoch that is closed; they close in their order."""
    return state.epochs if state.retired else state.released


# The beginning ------------------------------------------------------------------------------------------------------


def epoch_keys(deployment: charters.Deployment) -> Path:
    """The folder of the keys that a shared store's raw items are encrypted under."""
    return deployment.path.with_name(f"{deployment.charter.name}.epochs")


def begin(path: Path | str) -> Tokens:
    """Begin the deployment of a TOML file: keys, store, the first two entries of its log, and its anchor."""
    told = charters.read(path)
    anchor = Anchor(told.store.anchor)
    if anchor.read() is not None:
        raise ValueError(f"the anchor {anchor.path} belongs to a deployment already; it is not replaced")
    secrets, tokens = keys.create(told.keys)
    try:
        store = open_store(told.store.url, epoch_keys(told), create=True)
    except BaseException:
        told.keys.unlink()
        raise
    try:
        changes = Changes()
        with store.writing() as transaction:
            opened = signed(secrets.signing, 0, START, _opened(told.charter, secrets))
            changes.entries.append(opened)
            state = evolve(None, opened)
            announcement = opening(state)
            if announcement is not None:
                changes.entries.append(signed(secrets.signing, state.number, state.head, announcement))
            transaction.write(changes)
        anchor.advance(changes.entries[-1])
    finally:
        store.close()
    return tokens


def _opened(charter: charters.Charter, secrets: Secrets) -> Opened:
    hpke = None if charter.shuffler is None else secrets.hpke.public_key().public_bytes_raw()
    return Opened(charter, secrets.public, hpke)


def announcement_of(entry: Entry) -> Announcement:
    """What an entry announces."""
    event = event_of(entry)
    if not isinstance(event, Announcement):
        raise ValueError(f"entry {entry.number} of the log announces nothing")
    return event
