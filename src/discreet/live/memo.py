"""What a log amounts to, kept beside it so that a restart need not plan every epoch again. Only a cache.

It is a function of the public log; a keyed hash tells that this deployment wrote it, with this version. Whatever is
wrong with it, the log is folded from its beginning instead.
"""

from __future__ import annotations

import hmac
import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from discreet import __version__
from discreet.device.announcements import Entry
from discreet.live.deployment import State

MAC_BYTES = 32


@dataclass(frozen=True)
class Memo:
    """A file; `key`: of the hash."""

    path: Path
    key: bytes

    def _mac(self, content: bytes) -> bytes:
        about = f"{__version__} {sys.version}".encode()
        return hmac.digest(self.key, len(about).to_bytes(4, "big") + about + content, "sha256")

    def read(self, entries: Sequence[Entry]) -> State | None:
        """The state after as many of these entries as it was kept for; None if it is not theirs."""
        try:
            kept = self.path.read_bytes()
            if not hmac.compare_digest(self._mac(kept[MAC_BYTES:]), kept[:MAC_BYTES]):
                return None
            state: State = pickle.loads(kept[MAC_BYTES:])
            return state if entries[state.number - 1].head == state.head else None
        except Exception:
            return None

    def write(self, state: State) -> None:
        """Keep a state, without the tickets that are out: these are the vault's. Not synced, for it may be lost."""
        bare = tuple(replace(epoch, out=0, deadline=0) for epoch in state.open)
        content = pickle.dumps(replace(state, open=bare), protocol=5)
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with suppress(OSError):
            with open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
                file.write(self._mac(content) + content)
            os.replace(part, self.path)
