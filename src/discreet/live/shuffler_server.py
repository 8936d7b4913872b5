"""The HTTP server of a shuffler: everybody with a pass sends a bundle, and one analyzer asks."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from discreet.device.wire import base64_of
from discreet.live import party_server, wire
from discreet.live import shuffler as shufflers
from discreet.live.party_server import PartyAnswers, entry_of
from discreet.live.server import USUAL, Limits, Refusal
from discreet.live.service import Unavailable
from discreet.live.shuffler import Late, Shuffler


class ShufflerAnswers(PartyAnswers[Shuffler]):
    who = "shuffler"
    addresses = wire.SHUFFLER_ADDRESSES

    async def bundle(self, asked: wire.BundleAsked) -> wire.TakenTold:
        if self.party.leader is None:
            raise Unavailable  # it does not know whose passes are good; the sender keeps what she has
        told = entry_of(asked.announced), int(asked.slot), *map(base64.b64decode, (asked.admission, asked.messages))
        refused = await self.asked(self._refused, *told)
        if refused is not None:
            raise refused
        return wire.TakenTold()

    def _refused(self, *told: Any) -> Refusal | None:
        """Anybody may try: of those who are refused nothing is noted."""
        try:
            self.party.taken(*told)
        except Late:
            return Refusal(410)
        except ValueError:
            return Refusal(422)
        return None

    async def join(self, asked: wire.JoinAsked) -> wire.WelcomeTold:
        return wire.WelcomeTold(base64_of(await self.asked(self.party.joined, entry_of(asked.opening))))

    async def close(self, asked: wire.CloseAsked) -> wire.ClosedTold:
        told = await self.asked(self.party.closed, entry_of(asked.announced))
        return wire.ClosedTold(told.messages, base64_of(told.signature))

    async def part(self, asked: wire.PartAsked) -> wire.PartTold:
        return wire.PartTold(base64_of(await self.asked(self.party.part, asked.task, int(asked.start))))

    async def settle(self, asked: wire.SettleAsked) -> wire.SettledTold:
        await self.asked(self.party.settled, entry_of(asked.released))
        return wire.SettledTold()


def create_app(
    shuffler: Shuffler, name: str = "shuffler", limits: Limits = USUAL, on_failure: Callable[[], None] = lambda: None
) -> Starlette:
    return party_server.create_app(ShufflerAnswers(shuffler, on_failure), shuffler.secrets, name, limits)


def _loaded(path: str, limits: Limits, on_failure: Callable[[], None]) -> Starlette:
    return create_app(Shuffler.open(path), shufflers.read(path).name, limits, on_failure)


def run(path: Path | str, host: str = "127.0.0.1", port: int = 8002, **options: Any) -> None:
    """Serve a shuffler (`party_server.run`)."""
    party_server.run(Shuffler.open, _loaded, path, host, port, **options)
