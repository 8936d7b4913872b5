"""What people are told in words about a deployment: whom they trust with what, what is not protected, who may lie."""

from __future__ import annotations

from discreet.live.charter import Charter
from discreet.runs import poisoning

#: By trust model, who sees what.
SEEN = {
    "joint": (
        "the server sees every report, which is the truth, until its epoch is released; in the same moment it is "
        "erased, and whoever holds the server, its memory or its disk before that can read it",
        "everybody sees the public log: announcements, and releases that carry noise",
    ),
    "two-servers": (
        "the leader sees who has reported and holds a share of every report, random numbers by themselves, until its "
        "epoch is released; the helper sees the other share; whoever holds both sees every report, so that two "
        "servers of one operator protect nobody",
        "of every report both learn whether it is one, and nothing else",
        "everybody sees two public logs, one signed by each server: announcements, and sums to which each "
        "has added noise",
    ),
    "shuffle": (
        "the shuffler sees who sends messages, and when, and opens none: they are sealed for the analyzer; it sends "
        "for whoever has sent nothing, passes a batch on once, in random order, and keeps nothing of who sent what: "
        "people trust it with that",
        "the analyzer, which keeps the log, sees all bits of a batch and not whose they are; people trust it to let "
        "nobody in but those who come; whoever holds both servers sees every report, so that two of one operator "
        "protect nobody",
        "everybody sees the public log: announcements, and sums of bits to which all people of a batch have added "
        "noise",
    ),
    "local": (
        "the server sees one message per user, which was randomised on her own device: nobody needs to be trusted "
        "with what she did",
        "everybody sees the public log: announcements, and sums of such messages",
    ),
}
#: In every model.
ALWAYS = (
    "whoever runs the app knows what its users do; the server knows them by a keyed hash of the app's id",
    "not protected: that somebody takes part, when she came, and which epoch she is in",
    "one step of one episode per user is learned from, once; a second report of hers is refused",
)


def seen(charter: Charter) -> tuple[str, ...]:
    """Who sees what, and what nobody is protected from."""
    what = ALWAYS if charter.learner == "spotlight" else (*ALWAYS[:-1], "one episode per user is learned from, once")
    return (*SEEN[charter.model], *what)


def liars(model: str) -> str:
    """What people who lie can do, as measured (docs/poisoning.md), in one sentence."""
    shares = ", ".join(f"{100 * each.share:g} %: {each.value:.2f}" for each in poisoning.row(model))
    return (
        f"no noise protects from people who lie; what is learned of RiverSwim is worth, of 3.40, when so many of all "
        f"people do: {shares}"
    )
