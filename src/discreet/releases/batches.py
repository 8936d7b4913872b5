"""Public instructions to a batch of users: the vocabulary that learners in batches and their privatizers share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Batch:
    """Users of one batch may play different policies, one plan after the other; they are released together.

    `layer` asks for one step's visits and transitions only; None for all steps, with rewards.
    """

    number: int
    users: int
    layer: int | None = None

    def __post_init__(self) -> None:
        if self.users < 1:
            raise ValueError(f"a batch of {self.users} users is announced; at least one must play")
