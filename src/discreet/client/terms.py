"""What a client needs to know of a charter."""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass
from typing import Any

from discreet.device import Announcement, EpisodeEncoder
from discreet.device.shares import ShareEncoder, task_name
from discreet.device.shuffled import ShuffledEncoder
from discreet.device.wire import Refused, canonical, real_number, text, whole_number

#: Who must keep to the charter's ε, by trust model.
TRUSTED = {"joint": "the server keeps to it", "two-servers": "at least one of the two servers keeps to it"}
OTHER_MODEL = "the announcement asks for reports of another trust model than the charter's; nothing is sent"
WHOLE_EPISODES = "the announcement asks for whole episodes where one step was promised; nothing is sent"
Name = str | int
Names = tuple[str, ...] | int


@dataclass(frozen=True)
class Terms:
    """States and actions are names, or just numbered."""

    states: Names
    actions: Names
    horizon: int
    gone: int | None
    model: str
    epsilon: float
    default_action: int
    apprentice: bool
    helper: str | None = None  # of two servers: the key that shares for the second one are sealed to
    digest: str = ""  # SHA-256 of the whole charter
    learner: str = ""
    shuffler: str | None = None  # where messages are sent that are shuffled
    analyzer: str | None = None  # what they are sealed for

    @classmethod
    def of(cls, charter: Any, analyzer: Any = None) -> Terms:
        """`analyzer`: the key to seal messages for that are shuffled, as the first entry of the log has it."""
        try:
            problem, privacy, serving = (charter[name] for name in ("problem", "privacy", "serving"))
            gone = problem["gone"]
            return cls(
                _names("states", problem["states"]),
                _names("actions", problem["actions"]),
                whole_number("horizon", problem["horizon"]),
                None if gone is None else whole_number("gone", gone),
                text("model", privacy["model"]),
                real_number("epsilon", privacy["epsilon"]),
                whole_number("default_action", serving["default_action"]),
                serving["mode"] == "apprentice",
                text("hpke", charter["helper"]["hpke"]) if privacy["model"] == "two-servers" else None,
                hashlib.sha256(canonical(charter)).hexdigest(),
                text("learner", charter["learner"]["name"]),
                *(
                    (text("url", charter["shuffler"]["url"]), text("hpke", analyzer))
                    if privacy["model"] == "shuffle"
                    else ()
                ),
            )
        except (KeyError, TypeError):
            raise ValueError("the charter lacks what a client needs; it was written by another version") from None

    def state(self, name: Any) -> int:
        return _place("state", name, self.states)

    def action(self, name: Any) -> int:
        return _place("action", name, self.actions)

    def called(self, action: int) -> Name:
        """An action as the app calls it."""
        return action if isinstance(self.actions, int) else self.actions[action]

    def check(
        self, announcement: Announcement, epsilon_at_most: float, delta_at_most: float = 0.0, honest: float = 1.0
    ) -> None:
        """Refuse to be asked about another problem than the charter's, in another way, or for too much.

        In the local model the device computes ε itself, and where messages are shuffled ε and δ, of a batch in which
        that fraction of people adds its noise. Else ε is what the charter promises, if the server (joint), or one of
        two servers, keeps to it; for two servers nothing but shares is sent, made for this epoch and sealed for the
        charter's helper."""
        encoder = announcement.encoder
        asked = encoder.tables.num_states, encoder.tables.num_actions, encoder.tables.horizon
        if asked != (_size(self.states), _size(self.actions), self.horizon):
            raise Refused("the announcement is about another problem than the charter; nothing is sent")
        if isinstance(encoder, ShuffledEncoder) or self.model == "shuffle":
            self._check_shuffled(announcement, epsilon_at_most, delta_at_most, honest)
            return
        if self.model not in TRUSTED:
            encoder.check(epsilon_at_most)
            return
        if not self.epsilon <= epsilon_at_most:
            raise Refused(
                f"the charter promises epsilon = {self.epsilon:g}, if {TRUSTED[self.model]}, more than the "
                f"{epsilon_at_most:g} this device may spend; nothing is sent"
            )
        shares = isinstance(encoder, ShareEncoder)
        if shares != (self.model == "two-servers"):
            raise Refused(OTHER_MODEL)
        if isinstance(encoder, EpisodeEncoder) and self.learner == "spotlight":
            raise Refused(WHOLE_EPISODES)
        if isinstance(encoder, ShareEncoder) and (encoder.helper, encoder.task) != (
            self.helper,
            task_name(self.digest, announcement.epoch),
        ):
            raise Refused("shares are asked for another helper than the charter's, or another epoch; nothing is sent")

    def _check_shuffled(self, announcement: Announcement, epsilon: float, delta: float, honest: float) -> None:
        encoder = announcement.encoder
        if not isinstance(encoder, ShuffledEncoder) or self.model != "shuffle":
            raise Refused(OTHER_MODEL)
        if encoder.first_visit is None and self.learner == "spotlight":
            raise Refused(WHOLE_EPISODES)
        if encoder.analyzer != self.analyzer or not announcement.size <= encoder.bits.users:
            raise Refused(
                "messages are asked for somebody else than the analyzer, or for a smaller batch than the epoch; "
                "nothing is sent"
            )
        encoder.bits.check(epsilon, delta, "replace", honest)


def _size(names: Names) -> int:
    return names if isinstance(names, int) else len(names)


def _names(name: str, value: Any) -> Names:
    if isinstance(value, list):
        return tuple(text(f"one of {name}", item) for item in value)
    return whole_number(name, value)


def _place(what: str, name: Any, names: Names) -> int:
    if isinstance(name, str):
        if not isinstance(names, int) and name in names:
            return names.index(name)
    else:
        try:
            place = operator.index(name)
        except TypeError:
            place = -1
        if 0 <= place < _size(names):
            return place
    raise ValueError(f"{name!r} is no {what} of this deployment's charter")
