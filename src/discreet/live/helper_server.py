"""The HTTP server of a helper: one leader asks."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from discreet.device.wire import base64_of
from discreet.live import party_server, wire
from discreet.live.helper import Helper, Place
from discreet.live.party_server import PartyAnswers, entry_of, published
from discreet.live.server import USUAL, Limits
from discreet.live.two_servers import Question


class HelperAnswers(PartyAnswers[Helper]):
    who = "helper"
    addresses = wire.HELPER_ADDRESSES

    async def join(self, asked: wire.JoinAsked) -> wire.PublishedTold:
        return published(await self.asked(self.party.joined, entry_of(asked.opening)))

    async def verify(self, asked: wire.VerifyAsked) -> wire.VerifiedTold:
        questions = [
            Question(*(base64.b64decode(part) for part in (each.nonce, each.public, each.sealed, each.verifier)))
            for each in asked.questions
        ]
        messages = await self.asked(self.party.verified, entry_of(asked.announced), questions)
        return wire.VerifiedTold([None if m is None else base64_of(m) for m in messages])

    async def finish(self, asked: wire.FinishAsked) -> wire.PublishedTold:
        return published(await self.asked(self.party.finished, entry_of(asked.announced)))


def create_app(
    helper: Helper, name: str = "helper", limits: Limits = USUAL, on_failure: Callable[[], None] = lambda: None
) -> Starlette:
    return party_server.create_app(HelperAnswers(helper, on_failure), helper.secrets, name, limits)


def _loaded(path: str, limits: Limits, on_failure: Callable[[], None]) -> Starlette:
    return create_app(Helper.open(path), Place.read(path).name, limits, on_failure)


def run(path: Path | str, host: str = "127.0.0.1", port: int = 8001, **options: Any) -> None:
    """Serve a helper (`party_server.run`)."""
    party_server.run(Helper.open, _loaded, path, host, port, **options)
