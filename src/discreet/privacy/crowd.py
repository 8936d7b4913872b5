"""Who may enter: every stream counts its people here, whatever it keeps of them and whoever adds the noise."""

from __future__ import annotations

from typing import Literal, NoReturn

from discreet.privacy.accounting import Guarantee, LedgerEntry


class Crowd:
    """The users seen so far, of at most `limit`, and the names of those who sent a report themselves.

    A message has been seen when it is refused, so that it spends its user like any other: names come first, and
    `refused` counts those of whom nothing was kept. A user is an episode, unless `what` says that users are counted.
    """

    def __init__(self, limit: int, what: Literal["episodes", "users"] = "episodes") -> None:
        if isinstance(limit, bool) or int(limit) != limit or limit < 1:
            raise ValueError(f"num_{what} is {limit!r}; declare a whole number of at least 1")
        self.limit, self.what, self.size, self.refused = int(limit), what, 0, 0
        self._names: set[str] = set()

    @property
    def room(self) -> int:
        """How many more may come."""
        return self.limit - self.size - self.refused

    def check(self, users: int) -> None:
        """Refuse more users than were declared, before anything of theirs is looked at."""
        if users > self.room:
            refused = f", {self.refused} refused" if self.refused else ""
            raise ValueError(
                f"{users} more {self.what} would exceed the {self.limit} declared when the stream was opened "
                f"({self.size} seen{refused}); nothing was added"
            )

    def claim(self, user: str) -> None:
        """Before a message is looked at: its sender has now sent one, whatever becomes of it."""
        if user in self._names:
            raise ValueError("this user has already sent a report; a second one would cost her epsilon again")
        self._names.add(user)
        self.check(1)

    def spend(self, users: int) -> None:
        """A batch of so many has been seen: they are spent, as far as they may come, unless they are let in after."""
        spent = max(0, min(users, self.room))
        self.refused += spent
        if spent < users:
            raise ValueError(
                f"a batch of {users} would exceed the {self.limit} users declared when the stream was opened; "
                "nothing was added, and nobody else can report"
            )

    def let_in(self, users: int, spent: int) -> None:
        """Count so many users of a batch of which so many were spent."""
        self.refused -= spent
        self.size += users

    def __str__(self) -> str:
        return f"{self.size + self.refused} of {self.limit} {self.what}"


class Secret:
    """What is kept of a crowd cannot be pickled or copied, and says no more than how many they are.

    A copy would show raw sums, or draw new noise for users who have paid for one.
    """

    _crowd: Crowd

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "raw sums and their noise cannot be pickled or copied; streams of counts have checkpoint(key)"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._crowd})"


class Keeper(Secret):
    """A stream: it keeps what must not leave, and states what leaves guarantees."""

    guarantee: Guarantee

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        return self.guarantee.entries
