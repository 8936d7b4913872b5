"""How a deployment asks another server that it needs, over HTTP. Whatever goes wrong: nothing was released, and it is
tried again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from discreet.client.service import Down, Rejected, Service
from discreet.device.announcements import Entry
from discreet.live.desk import Postponed
from discreet.live.wire import Address, Message, PublishedTold

#: Seconds for one answer.
PATIENCE = 10.0
Told = TypeVar("Told", bound=Message)


class Unreachable(Postponed):
    """The other server does not answer, or not as it should: try again later."""


class Asking(ABC):
    """Questions to the party of a charter, which is told the charter before it is asked for anything else."""

    who = "server"
    addresses: Mapping[str, Address]

    def __init__(self, opening: Entry, url: str, key: str, token: str = "", patience: float = PATIENCE) -> None:
        self._opening, self._key = opening, bytes.fromhex(key)
        self._service = Service(url, token, patience, rest=0.0, plain=False)
        self._joined = False

    def join(self) -> None:
        """Tell the party the charter, unless it was told."""
        if not self._joined:
            if not self._met({"opening": self._opening.to_json()}):
                raise Unreachable(f"the {self.who} has not joined this deployment with the charter's key")
            self._joined = True

    @abstractmethod
    def _met(self, opening: dict[str, Any]) -> bool:
        """Show the party the log's first entry; whether it says, with its key, that it serves this deployment."""

    def close(self) -> None:
        self._service.close()

    def posted(self, name: str, asked: dict[str, Any], kind: type[Told]) -> Told:
        try:
            return msgspec.convert(self._service.post(self.addresses[name].path, asked), kind)
        except Down as error:
            raise Unreachable(str(error).replace("the server", f"the {self.who}")) from None
        except Rejected as error:
            raise Unreachable(f"the {self.who} refuses what it is asked ({error.status}); it notes why") from None
        except msgspec.ValidationError:
            raise Unreachable(f"the {self.who}'s answer is none") from None

    def entry(self, told: PublishedTold) -> Entry:
        try:
            return Entry.from_json(msgspec.to_builtins(told.entry))
        except ValueError:
            raise Unreachable(f"the {self.who}'s answer is no entry of a log") from None
