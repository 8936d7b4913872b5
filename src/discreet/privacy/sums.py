"""The vault of a stream: raw integer sums that are added to, read by the mechanism, and never leave."""

from __future__ import annotations

from typing import NoReturn

from discreet.episodes import Episodes
from discreet.mdp import Ints
from discreet.statistics import LARGEST_SUM, Counts, CountSpec


class RawSums:
    """Running sums of at most `num_episodes` users. Refuses to be pickled or printed."""

    def __init__(self, spec: CountSpec, num_episodes: int) -> None:
        if num_episodes < 1:
            raise ValueError(f"num_episodes is {num_episodes}; declare at least 1")
        if num_episodes * spec.horizon * spec.reward_units >= LARGEST_SUM:
            raise ValueError(
                f"{num_episodes} episodes of {spec.horizon} steps on a reward grid of {spec.grid:g} could overflow "
                "64-bit sums; use a coarser grid"
            )
        self.spec, self.limit, self.num_episodes, self.clipped = spec, num_episodes, 0, 0
        self._totals = Counts.zeros(spec)

    def add(self, contribution: Episodes | Counts) -> None:
        """Add disjoint users. Bad input and an overrun are refused before anything changes."""
        users = len(contribution) if isinstance(contribution, Episodes) else contribution.num_episodes
        if self.num_episodes + users > self.limit:
            raise ValueError(
                f"{users} more episodes would exceed the {self.limit} declared when the stream was opened "
                f"({self.num_episodes} seen); nothing was added"
            )
        if isinstance(contribution, Episodes):
            self.clipped += self._totals.accumulate(contribution, self.spec)
        else:
            pairs = list(zip(self._totals.tables(), contribution.tables(), strict=True))
            for (name, total), (_, table) in pairs:
                if table.shape != total.shape:
                    raise ValueError(f"{name} have shape {table.shape}; this stream holds {total.shape}")
            for (_, total), (_, table) in pairs:
                total += table
            self.clipped += contribution.clipped
        self.num_episodes += users

    def tables(self) -> dict[str, Ints]:
        """The live raw tables, for the mechanism of the owning stream only."""
        return dict(self._totals.tables())

    def clear(self) -> None:
        """Forget the sums (not the number of users): used where every epoch starts afresh."""
        for _, total in self._totals.tables():
            total[...] = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("raw sums are secret and cannot be pickled; use the stream's checkpoint")

    def __repr__(self) -> str:
        return f"RawSums({self.num_episodes} of {self.limit} episodes)"
