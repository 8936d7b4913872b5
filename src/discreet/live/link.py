"""How a leader reaches its helper over HTTP. Whatever goes wrong: nothing was released, and it is tried again."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from discreet.device.announcements import Entry
from discreet.device.wire import base64_of
from discreet.live import charter as charters
from discreet.live import secrets as keys
from discreet.live.asking import Asking, Unreachable
from discreet.live.desk import Desk
from discreet.live.helper import token_of, verify_secret_of
from discreet.live.party import Joined, joined_by
from discreet.live.shuffler_link import ShufflerLink
from discreet.live.shuffling import analyzer
from discreet.live.two_servers import Question, leader
from discreet.live.wire import HELPER_ADDRESSES, MOST_QUESTIONS, PublishedTold, VerifiedTold
from discreet.privacy.noise import NoiseSource

#: Bytes of questions in one message.
MOST_ASKED = 4 << 20


class HttpLink(Asking):
    """A `Link` to the helper of a charter."""

    who = "helper"
    addresses = HELPER_ADDRESSES

    def _met(self, opening: dict[str, Any]) -> bool:
        entry, expected = self.entry(self.posted("join", opening, PublishedTold)), joined_by(self._opening, self._key)
        try:
            entry.check(self._key)
            return Joined.from_event(entry.event) == expected
        except ValueError:
            return False

    def verified(self, announced: Entry, questions: Sequence[Question]) -> list[bytes | None]:
        self.join()
        size = sum(4 * len(part) // 3 + 24 for part in questions[0]) if questions else 1
        found: list[bytes | None] = []
        together = max(1, min(MOST_QUESTIONS, MOST_ASKED // size))
        for start in range(0, len(questions), together):
            some = questions[start : start + together]
            told = [{name: base64_of(part) for name, part in each._asdict().items()} for each in some]
            asked = {"announced": announced.to_json(), "questions": told}
            answers = self.posted("verify", asked, VerifiedTold).messages
            if len(answers) != len(some):
                raise Unreachable("the helper answers another number of questions")
            found += [None if answer is None else base64.b64decode(answer) for answer in answers]
        return found

    def finished(self, announced: Entry) -> Entry:
        self.join()
        return self.entry(self.posted("finish", {"announced": announced.to_json()}, PublishedTold))


def lead(desk: Desk, path: Path | str, noise: NoiseSource | None = None) -> Desk:
    """The same desk; where its charter names a helper or a shuffler, its epochs are released with that one's help."""
    helper, shuffler, opening = desk.charter.helper, desk.charter.shuffler, desk.visible.entries[0]
    if helper is not None:
        secret = secret_of(charters.read(path))
        link = HttpLink(opening, helper.url, helper.key, token_of(secret))
        desk.sealed_by(leader(link, verify_secret_of(secret), NoiseSource.secure() if noise is None else noise))
    if shuffler is not None:
        asking = ShufflerLink(opening, shuffler.url, shuffler.key, secret_of(charters.read(path)))
        desk.sealed_by(analyzer(asking, desk.secrets.hpke), asking.look)
    return desk


def secret_of(told: charters.Deployment) -> str:
    """What the helper's or the shuffler's owner has told the deployment's, from a file beside the charter."""
    path = told.helper_secret if told.charter.shuffler is None else told.shuffler_secret
    who = path.suffix.removeprefix(".")
    try:
        return keys.own(path).decode("ascii").strip()
    except FileNotFoundError:
        raise ValueError(f"there is no {path}; write the secret that the {who} has printed into it") from None
    except PermissionError as error:
        raise ValueError(str(error)) from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} does not hold the secret of a {who}") from None
