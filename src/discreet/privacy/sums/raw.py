"""The vault of a stream: raw integer sums that are added to, read by the mechanism, and never leave."""

from __future__ import annotations

import math

import numpy as np

from discreet.mdp import Ints
from discreet.people.counts import LARGEST_SUM, UNBOUNDED_REWARD, Counts, CountSpec, users_of
from discreet.people.episodes import Episodes
from discreet.privacy.crowd import Crowd, Secret


class RawSums(Secret):
    """Running sums of a crowd.

    The tables are views of one array, `flat`, for the mechanism of the owning stream only.
    """

    def __init__(self, spec: CountSpec, crowd: Crowd) -> None:
        num_episodes = crowd.limit
        unit = spec.reward_units if spec.reward_range is not None else math.ceil(UNBOUNDED_REWARD / spec.grid)
        if num_episodes * spec.horizon * max(unit, 1) >= LARGEST_SUM:
            raise ValueError(
                f"{num_episodes} episodes of {spec.horizon} steps on a reward grid of {spec.grid:g} could overflow "
                "64-bit sums; use a coarser grid"
            )
        self.spec, self._crowd, self.clipped = spec, crowd, 0
        self.flat: Ints = np.zeros(sum(spec.sizes), dtype=np.int64)
        self._totals = Counts(*spec.split(self.flat), num_episodes=0)

    def add(self, contribution: Episodes | Counts) -> int:
        """Add disjoint users; how many. Bad input and an overrun are refused before anything changes."""
        users = users_of(contribution)
        self._crowd.check(users)
        if isinstance(contribution, Episodes):
            self.clipped += self._totals.accumulate(contribution, self.spec)
        else:
            self._check(contribution)
            for (_, total), (_, table) in zip(self._totals.tables(), contribution.tables(), strict=True):
                total += table
            self.clipped += contribution.clipped
        self._crowd.size += users
        return users

    def _check(self, counts: Counts) -> None:
        """Sums of another shape, or larger than so many users of this spec can make, would void the calibration."""
        steps = counts.num_episodes * self.spec.horizon
        largest = {"visits": 1, "transitions": 1, "rewards": self.spec.reward_units}
        for (name, total), (_, table) in zip(self._totals.tables(), counts.tables(), strict=True):
            if table.shape != total.shape or table.dtype != total.dtype:
                raise ValueError(
                    f"{name} have shape {table.shape} and type {table.dtype}; "
                    f"this stream holds {total.shape} of {total.dtype}"
                )
            if self.spec.reward_range is None and name == "rewards":
                continue
            if counts.num_episodes < 0 or table.min() < 0 or table.sum() > steps * largest[name]:
                raise ValueError(
                    f"{name} are not sums of {counts.num_episodes} episodes of at most {self.spec.horizon} steps"
                )

    def clear(self) -> None:
        """Forget the sums (not the number of users): used where every epoch starts afresh."""
        self.flat[...] = 0
