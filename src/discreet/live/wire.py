"""What apps, operators and everybody say to a deployment and hear from it: strict types, and the OpenAPI they make.

An unknown field, another type, a text that is too long: the message is refused, and the refusal does not repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from discreet.live.secrets import Role

#: Bytes of a body, and letters of a payload in base64 that fit into it.
MOST_BODY = 256 * 1024
MOST_PAYLOAD = 255 * 1024
#: Entries of the log in one answer.
MOST_ENTRIES = 1000
#: Between two servers: bytes of a body, and reports in it.
MOST_BETWEEN = 8 << 20
MOST_QUESTIONS = 1024
#: Letters of sealed messages in base64 that fit into such a body beside everything else.
MOST_SEALED = 6 << 20
SAFE = (1 << 53) - 1

Hex32 = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", min_length=32, max_length=32)]
Hex64 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", min_length=64, max_length=64)]
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Base64 = Annotated[str, Meta(pattern=_BASE64, max_length=MOST_PAYLOAD)]
Messages = Annotated[str, Meta(pattern=_BASE64, max_length=MOST_SEALED, description="sealed messages of 53 bytes")]
Name = Annotated[str, Meta(min_length=1, max_length=256, description="the app's own id of a user")]
Whole = Annotated[int, Meta(ge=0, le=SAFE)]
Count = Annotated[int, Meta(ge=1, le=MOST_ENTRIES)]
#: As they are asked: to JSON 3 and 3.0 are one number.
WholeAsked = Annotated[float, Meta(ge=0, le=SAFE, multiple_of=1)]
UsersAsked = Annotated[float, Meta(ge=1, le=10**12, multiple_of=1)]


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly these fields."""


# What is asked ------------------------------------------------------------------------------------------------------


class EnrolAsked(Message, frozen=True):
    """A ticket for this user; the same one however often it is asked for."""

    user: Name


class ActAsked(Message, frozen=True):
    """What to do at a step (from 0) in a state; `reported`: whether what she will report was settled before it.

    In the joint model only: it tells the server her state."""

    ticket: Hex32
    announcement: Hex64
    step: WholeAsked
    state: WholeAsked
    reported: bool


class ReportAsked(Message, frozen=True):
    """The user's one report."""

    ticket: Hex32
    user: Name
    payload: Base64


class AmendAsked(Message, frozen=True):
    """How many people may come from now on."""

    users: UsersAsked


class EntryTold(Message, frozen=True):
    """An entry of the public log."""

    number: Whole
    previous: Hex64
    body: str
    signature: Base64


class QuestionAsked(Message, frozen=True):
    """What a leader tells its helper of one report."""

    nonce: Base64
    public: Base64
    sealed: Base64
    verifier: Base64


class JoinAsked(Message, frozen=True):
    """The first entry of the leader's log."""

    opening: EntryTold


class VerifyAsked(Message, frozen=True):
    """Reports of an epoch, and the entry that announced it."""

    announced: EntryTold
    questions: Annotated[list[QuestionAsked], Meta(max_length=MOST_QUESTIONS)]


class FinishAsked(Message, frozen=True):
    announced: EntryTold


class BundleAsked(Message, frozen=True):
    """All messages of whoever has this place of an announced epoch, for the shuffler; its pass is `admission`."""

    announced: EntryTold
    slot: WholeAsked
    admission: Base64
    messages: Messages


class CloseAsked(Message, frozen=True):
    """The epoch is due: nobody of it may send any more."""

    announced: EntryTold


class PartAsked(Message, frozen=True):
    """Messages of a batch, from this one on."""

    task: Hex64
    start: WholeAsked


class SettleAsked(Message, frozen=True):
    """The entry that releases an epoch: what was passed on up to it is needed no more."""

    released: EntryTold


# What is answered ---------------------------------------------------------------------------------------------------


class Failure(Message, frozen=True):
    """One sentence, which never repeats what was sent."""

    error: str


class CharterTold(Message, frozen=True):
    charter: dict[str, Any]
    digest: Hex64
    key: Base64


class AnnouncementTold(EntryTold, frozen=True):
    """The entry of the announcement in force, its head, and its epoch."""

    head: Hex64
    epoch: Whole


class PublishedTold(Message, frozen=True):
    """An entry of the helper's own log."""

    entry: EntryTold


class VerifiedTold(Message, frozen=True):
    """Of every report its verifier message; null where it is none."""

    messages: list[Base64 | None]


class WelcomeTold(Message, frozen=True):
    """The shuffler's signature under the first entry of the analyzer's log."""

    signature: Base64


class ClosedTold(Message, frozen=True):
    """How many messages the batch has that ends with the epoch, and the shuffler's signature under all of them;
    none while the batch goes on."""

    messages: Whole
    signature: Base64


class PartTold(Message, frozen=True):
    messages: Messages


class SettledTold(Message, frozen=True):
    """Nothing of it is left."""


class LogTold(Message, frozen=True):
    entries: list[EntryTold]
    next: Whole


class TicketTold(Message, frozen=True, omit_defaults=True):
    """`admission`: where a shuffler collects, the pass with which it lets her messages in."""

    ticket: Hex32
    epoch: Whole
    slot: Whole
    expires: Whole
    announcement: Hex64
    again: bool
    admission: Base64 | None = None


class SpectatorTold(Message, frozen=True):
    """No ticket: she may play what is announced, and reports nothing."""

    spectator: str
    announcement: Hex64 | None


class ActionTold(Message, frozen=True):
    action: Whole


class ReportTold(Message, frozen=True):
    again: bool


class TakenTold(Message, frozen=True):
    """The same whether this was the first bundle of its place or not."""


class DoneTold(Message, frozen=True):
    """The number of the log's next entry."""

    next: Whole


class HealthTold(Message, frozen=True):
    status: Literal["ok"]
    number: Whole
    head: Hex64


# Addresses ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Address:
    """One method of one path: who may use it, what it takes, what it answers."""

    method: str
    path: str
    summary: str
    replies: tuple[type[Message], ...]
    asks: type[Message] | None = None
    role: Role | None = None
    query: Mapping[str, tuple[Any, int]] = field(default_factory=dict)  # name: type and default
    refusals: Sequence[int] = ()
    most: int = MOST_BODY  # bytes of a body

    @property
    def statuses(self) -> tuple[int, ...]:
        """All refusals there can be here."""
        found = {400, 429, 503, *self.refusals}
        if self.role is not None:
            found.add(401)
        if self.method == "POST":
            found |= {408, 413, 415}
        return tuple(sorted(found))


ADDRESSES = {
    "charter": Address("GET", "/v1/charter", "what is fixed, and who signs", (CharterTold,)),
    "announcement": Address("GET", "/v1/announcement", "what is in force", (AnnouncementTold,), refusals=(404,)),
    "log": Address("GET", "/v1/log", "the public log", (LogTold,), query={"from": (Whole, 0), "count": (Count, 100)}),
    "enrol": Address("POST", "/v1/enrol", "a ticket", (TicketTold, SpectatorTold), EnrolAsked, "app"),
    "act": Address("POST", "/v1/act", "what to do now", (ActionTold,), ActAsked, "app", refusals=(404, 422)),
    "report": Address(
        "POST", "/v1/report", "one report", (ReportTold,), ReportAsked, "app", refusals=(404, 410, 422)
    ),
    "pause": Address("POST", "/v1/operator/pause", "no more tickets", (DoneTold,), None, "operator", refusals=(422,)),
    "resume": Address("POST", "/v1/operator/resume", "tickets again", (DoneTold,), None, "operator", refusals=(422,)),
    "retire": Address("POST", "/v1/operator/retire", "the end", (DoneTold,), None, "operator", refusals=(422,)),
    "amend": Address(
        "POST", "/v1/operator/amend", "more people may come", (DoneTold,), AmendAsked, "operator", refusals=(422,)
    ),
    "health": Address("GET", "/v1/health", "whether it answers", (HealthTold,)),
}
_LEADER: dict[str, Any] = {"role": "leader", "refusals": (422,), "most": MOST_BETWEEN}
HELPER_ADDRESSES = {
    "join": Address("POST", "/v1/helper/join", "help a deployment", (PublishedTold,), JoinAsked, **_LEADER),
    "verify": Address("POST", "/v1/helper/verify", "which reports count", (VerifiedTold,), VerifyAsked, **_LEADER),
    "finish": Address("POST", "/v1/helper/finish", "the sum of an epoch", (PublishedTold,), FinishAsked, **_LEADER),
    "log": ADDRESSES["log"],
    "health": ADDRESSES["health"],
}
_ANALYZER: dict[str, Any] = {"role": "analyzer", "refusals": (422,), "most": MOST_BETWEEN}
SHUFFLER_ADDRESSES = {
    "bundle": Address(
        "POST", "/v1/bundle", "all of one user", (TakenTold,), BundleAsked, refusals=(410, 422), most=MOST_BETWEEN
    ),
    "join": Address("POST", "/v1/shuffler/join", "shuffle for a deployment", (WelcomeTold,), JoinAsked, **_ANALYZER),
    "close": Address("POST", "/v1/shuffler/close", "the end of an epoch", (ClosedTold,), CloseAsked, **_ANALYZER),
    "part": Address("POST", "/v1/shuffler/part", "a part of a batch", (PartTold,), PartAsked, **_ANALYZER),
    "settle": Address("POST", "/v1/shuffler/settle", "it is released", (SettledTold,), SettleAsked, **_ANALYZER),
    "log": ADDRESSES["log"],
    "health": ADDRESSES["health"],
}
WHY = {
    400: "the message is not what this address takes",
    401: "a token is missing, or is not one of those that are let in here",
    404: "there is no such thing",
    408: "the message came too slowly",
    410: "too late: the ticket has expired, or its epoch is closed",
    413: "the message is too long",
    415: "the message is not JSON",
    422: "the message does not fit the deployment as it is now",
    429: "too many messages; wait a little",
    503: "the store is not available; nothing was kept, so send it again",
}


def openapi(title: str = "discreet", addresses: Mapping[str, Address] = ADDRESSES) -> dict[str, Any]:
    """The description of all addresses, made from the types that read and write their messages."""
    told = {reply for address in addresses.values() for reply in address.replies}
    asked = {address.asks for address in addresses.values() if address.asks is not None}
    types: list[type[Message]] = sorted({*told, *asked, Failure}, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    known = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for name, address in addresses.items():
        paths.setdefault(address.path, {})[address.method.lower()] = _operation(name, address, known)
    roles = {address.role for address in addresses.values() if address.role is not None}
    tokens = {role: {"type": "http", "scheme": "bearer"} for role in sorted(roles)}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": tokens},
    }


def _operation(name: str, address: Address, known: Mapping[type[Message], Any]) -> dict[str, Any]:
    good = [known[reply] for reply in address.replies]
    answers = {200: good[0] if len(good) == 1 else {"anyOf": good}} | dict.fromkeys(address.statuses, known[Failure])
    told: dict[str, Any] = {"operationId": name, "summary": address.summary}
    told["responses"] = {
        str(status): {
            "description": WHY.get(status, address.summary),
            "content": {"application/json": {"schema": schema}},
        }
        for status, schema in answers.items()
    }
    if address.asks is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": known[address.asks]}}}
    if address.role is not None:
        told["security"] = [{address.role: []}]
    if address.query:
        told["parameters"] = [
            {"name": key, "in": "query", "required": False, "schema": {**msgspec.json.schema(kind), "default": value}}
            for key, (kind, value) in address.query.items()
        ]
    return told
