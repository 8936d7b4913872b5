"""What a certificate says in words: texts that are always the same, and texts that follow from numbers."""

from __future__ import annotations

import re
from typing import Any

from discreet.offline.declaration import Grid

MEANING = (
    "This certificate proves consistency, not origin: its guarantee follows from its ledger, and its files are the "
    "ones it was written for. It does not prove that the noise was drawn as stated, nor who made it: whoever has the "
    "program can write a consistent folder about any policy. A signature says who made it, to those who know the key."
)
SIMULATED = (
    "simulation: the noise came from a seed, so that whoever knows the seed can take it away; nobody is protected"
)
NO_CLAIM = "a policy without privacy has no ledger and promises nothing"
NOT_PRIVATE = "no privacy: the data were used as they are, so that this policy may give away who is in the log"
RECORDED = (
    "releases_before and the totals are of everything that the ledger of this log records, whatever the log held at "
    "the time; the holder of the data keeps it, and what it does not record is not in them. The commitment is the "
    "SHA-256 of a secret salt and a digest of the log: it hides the log from all who cannot break SHA-256, while the "
    "salt, which is in the ledger only, stays secret; with it the holder can show which log this was."
)
UNRECORDED = (
    "no ledger records this release: how often these people's data were released before is not known, and nothing "
    "ties this certificate to a log"
)
#: What may be told about who was asked.
PEOPLE = (
    "nobody here was learned from, by the identifiers in both logs",
    "that nobody here was learned from was declared and not checked: who was is not recorded here",
)
OTHER_PEOPLE = "the policy was learned from other people"
FAMILY = "one noisy family carries visits, transitions and rewards"
ONE_PART = "each user is in one part only: costs are the largest over parts, not their sum"
#: What a guarantee rests on beside the number of episodes, by learner ("tilted": one-hot, one step per user).
RESTS_ON = {
    "columns": ("bins and thresholds were declared without the data",),
    "tilted": ("weights of steps depend on the pilot's release only",),
    **dict.fromkeys(
        ("dp-pevi", "dp-vapvi"), ("features are public, and what is regressed depends on earlier releases only",)
    ),
}
SEEDED = "the noise is seeded: a simulation, which protects nobody"
KNOWN_SUCCESSORS = "the possible successors of every state and action are public"
#: Warnings beside those about privacy. The first three follow from how much stands out of the noise.
VACUOUS = r"vacuous: hardly more state-action pairs stand out than noise alone would show"
NEEDS = (
    r"(; (the well-visited part can be learned; [\d,]+ users would be comfortable"
    r"|too few users: nothing but the most visited pairs can be learned; about [\d,]+ are needed))?"
)
THIN = "only {:.0f} % of the state-action pairs stand out of the noise"
#: Why a release of what is above a threshold has no lower bound (privacy/trust/sparse.md).
THRESHOLDED = (
    "there are too many kinds of steps to hold how often each occurred: only those above a threshold of noise are "
    "released, and what lies below may be more than what lies above, so that no lower bound follows from them"
)
OTHERS = (
    re.escape(THRESHOLDED),
    r"the lower bound on the policy's value is [0-9.e+-]+, the least that is possible: the width of the release "
    r"proves nothing about it, which says little about how good it is",
    r"features were divided by their largest norm, [0-9.e+-]+",
)


def protected(private: bool) -> list[str]:
    if not private:
        return []
    return [
        "every step of every user, all her episodes together: states, actions, rewards and how long she stayed",
        "all files of this folder together, however they are combined with other knowledge",
    ]


def not_protected(private: bool, num_users: int) -> list[str]:
    return [
        *(() if private else ("everybody in the log: the data were used as they are",)),
        f"that the log is of {num_users} users (their number is public), and everything that was declared",
        "what is true of people in general, whether or not a given person is in the log",
        "messages of the program to whoever ran it: numbers of unreadable rows, running time and memory",
    ]


def bound_text(enforced: bool, episodes_per_user: int, horizon: int) -> str:
    """How much of one user counts."""
    if not enforced:
        return "declared by the holder of the data, not enforced"
    m = episodes_per_user
    which = "the first episode" if m == 1 else f"the first {m} episodes"
    return f"{which} of every user by episode number, and of these the steps 0 to {horizon - 1}"


def declaration_json(grid: Grid) -> dict[str, Any]:
    """What was declared about the columns, and what became of them by the public rule."""
    words = [
        f"{column.name}: {'not used' if not cuts else ' | '.join(column.texts(cuts))}"
        for column, cuts in zip(grid.declaration.states, grid.cuts, strict=True)
    ]
    return {
        "digest": grid.declaration.digest,
        "columns": words,
        "unused": list(grid.unused),
        "cuts": [list(cuts) for cuts in grid.cuts],
        "text": grid.declaration.text,
    }


def auto_reasons() -> tuple[str, ...]:
    """Why the learner for declared columns is taken."""
    tree, choice = "a tree of what people do", "and a private choice with current practice"
    return (
        "asked to be safe: what most people do, and nothing else",
        f"users × ε reaches 5000: {tree}, a histogram, {choice}",
        f"users × ε is below 5000: {tree}, a histogram, {choice}",
        f"users × ε is below 2000: {tree}, {choice}",
    )
