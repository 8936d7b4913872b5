"""No noise and no privacy: the twin every learner is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import no_privacy
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.raw import RawSums
from discreet.privacy.sums.streams import released
from discreet.releases.counts import PerTable, PrivateCounts


@dataclass(frozen=True)
class Exact:
    """Releases the sums as they are. Guarantee: none (ε = ∞). Width: 0."""

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ExactStream:
        return ExactStream(spec, num_episodes)


class ExactStream(Keeper):
    guarantee = no_privacy()

    def __init__(self, spec: CountSpec, num_episodes: int) -> None:
        self._crowd = Crowd(num_episodes)
        self._sums = RawSums(spec, self._crowd)

    def add(self, contribution: Episodes | Counts) -> None:
        self._sums.add(contribution)

    def release(self) -> PrivateCounts:
        spec = self._sums.spec
        visits, transitions, rewards = spec.split(self._sums.flat.astype(np.float64))
        tables = visits, transitions, rewards * spec.grid
        return released(spec, self._crowd.size, tables, PerTable(), PerTable(), 0.0)
