"""How an analyzer reaches its shuffler over HTTP."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Sequence
from typing import Any

from discreet.device.announcements import Entry
from discreet.device.shuffled import SEALED
from discreet.live.asking import Asking, Unreachable
from discreet.live.desk import announcement_of
from discreet.live.shuffling import Passed, shuffled_encoder, signed_by, welcome
from discreet.live.wire import SHUFFLER_ADDRESSES, ClosedTold, PartTold, SettledTold, WelcomeTold

_LOG = logging.getLogger("discreet.live")
#: Seconds between two tries to tell it something, at first and at most.
FIRST_REST, LONGEST_REST = 0.25, 30.0


class ShufflerLink(Asking):
    """A `shuffling.Link` to the shuffler of a charter. Whatever is asked may be asked again."""

    who = "shuffler"
    addresses = SHUFFLER_ADDRESSES
    _told = 0  # number of the last entry that it was told of
    _rest = 0.0
    _not_before = 0.0

    def _met(self, opening: dict[str, Any]) -> bool:
        told = self.posted("join", opening, WelcomeTold)
        return signed_by(self._key, base64.b64decode(told.signature), welcome(self._opening))

    def look(self, log: Sequence[Entry]) -> None:
        """Now and then: join, so that bundles are taken from the first epoch on; and tell it what the log shows to be
        over, so that it erases that. Where it does not answer it is asked again later, and nobody waits."""
        if time.monotonic() < self._not_before:
            return
        try:
            self._tell(log)
            self._rest = 0.0
        except Unreachable as why:
            self._rest = min(LONGEST_REST, max(FIRST_REST, 2 * self._rest))
            self._not_before = time.monotonic() + self._rest
            _LOG.warning("%s; again in %.2f s", why, self._rest)

    def _tell(self, log: Sequence[Entry]) -> None:
        self.join()
        over = next((entry for entry in reversed(log) if entry.event["event"] in ("released", "retired")), None)
        if over is not None and over.number > self._told:
            self.posted("settle", {"released": over.to_json()}, SettledTold)
            self._told = over.number

    def closed(self, announced: Entry) -> Passed | None:
        self.join()
        told = self.posted("close", {"announced": announced.to_json()}, ClosedTold)
        if not told.messages:
            return None
        encoder = shuffled_encoder(announcement_of(announced))
        if told.messages != encoder.batch_size:
            raise Unreachable("the shuffler passes on another number of messages than was announced")
        batch = bytearray()
        while len(batch) < SEALED * told.messages:
            asked = {"task": encoder.task, "start": len(batch) // SEALED}
            part = base64.b64decode(self.posted("part", asked, PartTold).messages)
            if not part or len(part) % SEALED:
                raise Unreachable("the shuffler passes on something else than whole messages")
            batch += part
        return Passed(bytes(batch), base64.b64decode(told.signature))
