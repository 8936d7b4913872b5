"""One person's steps: what she does, and the one report about it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Any

from discreet.client.terms import Name, Terms
from discreet.device import Announcement
from discreet.device.announcements import coin_of
from discreet.device.encoders import first_visit


class Walk:
    """Steps so far, and when what they say is settled: once the first visit to a target has its outcome.

    `reached` is the step of that visit, −1 where the start is the target. Rewards that come late belong to the
    latest step.
    """

    def __init__(self, announcement: Announcement) -> None:
        self.encoder = encoder = announcement.encoder
        self.horizon = encoder.tables.horizon
        self.states: list[int] = []
        self.actions: list[int] = []
        self.rewards: list[float] = []
        self._asked = first_visit(encoder)
        self._wanted: frozenset[int] = frozenset() if self._asked is None else self._asked.wanted
        self.reached: int | None = -1 if encoder.tables.cells[0] in self._wanted else None

    @property
    def over(self) -> bool:
        """Whether all steps have been taken."""
        return len(self.actions) == self.horizon

    @property
    def settled(self) -> bool:
        return self.reached is not None and len(self.states) >= self.reached + 2

    def arrive(self, state: int) -> None:
        """Her state: the outcome of the step before, unless that is known already."""
        if len(self.states) == len(self.actions):
            self.states.append(state)

    def act(self, action: int) -> None:
        step, tables = len(self.actions), self.encoder.tables
        cell = (min(step, tables.stages - 1) * tables.num_states + self.states[step]) * tables.num_actions + action
        self.actions.append(action)
        self.rewards.append(0.0)
        if self.reached is None and cell in self._wanted:
            self.reached = step

    def record(self) -> tuple[list[int], list[int], list[float]]:
        """The episode as encoders read it; a last step whose outcome is not known and matters is left out."""
        states, n = list(self.states), len(self.actions)
        if len(states) == n and n == self.horizon and self._asked is not None and not self._asked.last_successor:
            states.append(0)
        n = min(n, max(len(states) - 1, 0))
        return states[: n + 1], self.actions[:n], self.rewards[:n]


class Episode:
    """What `with agent.episode(user)` gives: a participant with a ticket, or a spectator, who sends nothing.

    `spectator` says why, None for participants. A participant follows the announcement that her ticket names;
    a spectator the best policy known, or the default action where none is.
    """

    def __init__(
        self,
        terms: Terms | None,
        announcement: Announcement | None,
        default: Name,
        ticket: bytes | None,
        spectator: str | None,
        report: Callable[[Walk, bool], None],
    ) -> None:
        self.spectator, self._terms, self._announcement = spectator, terms, announcement
        self._default, self._ticket, self._report = default, ticket, report
        self._walk = Walk(announcement) if announcement is not None else None

    @property
    def ticket(self) -> str | None:
        return None if self._ticket is None else self._ticket.hex()

    def act(self, state: Any, present: Any = None) -> Any:
        """What to do here. In apprentice mode that is what the app does at present; beyond the horizon, the default.

        States and actions are names where the charter has names; numbers will do too.
        """
        walk, terms = self._walk, self._terms
        if walk is None or terms is None:
            return self._default if present is None else present
        self._arrived(walk, terms.state(state))
        if walk.over:
            return self._default
        action = self._action(walk, terms, present)
        walk.act(action)
        return terms.called(action)

    def reward(self, reward: float) -> None:
        """What the step before paid; several payments add up."""
        if math.isnan(reward):
            raise ValueError("a reward is not a number; expected one")
        if self._walk is not None and self._walk.rewards:
            self._walk.rewards[-1] += float(reward)

    def end(self, state: Any) -> None:
        """The state after the last step, which no further `act` tells. Without it that step is not reported, or, in a
        charter with a state "gone", who leaves early is there."""
        if self._walk is not None and self._terms is not None:
            self._arrived(self._walk, self._terms.state(state))

    def leave(self) -> None:
        """Send what is left to be sent; `with` does it."""
        walk, terms = self._walk, self._terms
        if self.spectator is not None or walk is None or terms is None:
            return
        if terms.gone is not None and walk.states and not walk.over:
            walk.arrive(terms.gone)
            while not walk.over:
                walk.act(self._action(walk, terms, None))
                walk.arrive(terms.gone)
        self._report(walk, True)

    def _arrived(self, walk: Walk, state: int) -> None:
        walk.arrive(state)
        if self.spectator is None and walk.settled:
            self._report(walk, False)

    def _action(self, walk: Walk, terms: Terms, present: Any) -> int:
        step = len(walk.actions)
        if terms.apprentice:
            return terms.action(self._default if present is None else present)
        assert self._announcement is not None
        coin = secrets.randbits(32) if self._ticket is None else coin_of(self._ticket, step)
        known = self._announcement.after if self._ticket is None or walk.reached is not None else None
        return (known or self._announcement.policy).action(step, walk.states[step], coin)

    def __enter__(self) -> Episode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
