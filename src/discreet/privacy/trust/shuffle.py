"""Counts of shuffled bits: no curator sees anyone, noise comes from the users themselves.

Every batch of users is encoded, shuffled and counted once (`shuffler.py`); how many noise bits it takes follows from
exact accounting (`shuffle_law.py`). In a simulation the three roles are played at once, with sums of the same law.
Proof: shuffle.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from discreet.device.bits import BitEncoder, Changes, CountBits
from discreet.device.sampler import below
from discreet.mdp import Floats, Ints
from discreet.people.counts import Counts, CountSpec, users_of
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget, Guarantee, Neighbours, no_privacy
from discreet.privacy.crowd import Crowd
from discreet.privacy.families import check_choice, check_common
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Sealed
from discreet.privacy.sums.streams import as_printed, released, stated
from discreet.privacy.sums.sums import cells_of_counters, windowed
from discreet.privacy.trust.reports import checked_episodes
from discreet.privacy.trust.shuffle_law import (
    BitLaw,
    Collected,
    ShuffledStream,
    check_shuffle,
    entry_of,
    printed_guarantee,
    told,
)
from discreet.privacy.trust.shuffler import Tally, estimated
from discreet.releases.batches import Batch
from discreet.releases.counts import PerTable, PrivateCounts


def summed_bits(episodes: Episodes | Counts, spec: CountSpec, noise: NoiseSource) -> Ints:
    """(N, T, R) of many users, flat: first visits to every cell, with the reward as one bit. `CountBits`, summed.

    Users without an episode of the problem add nothing, and toss their coins all the same.
    """
    episodes = checked_episodes(episodes, spec)
    coins = below(noise, spec.reward_units, len(episodes) * spec.horizon).reshape(len(episodes), spec.horizon)
    n, H = episodes.actions.shape
    if n == 0:
        return np.zeros(sum(spec.sizes), dtype=np.int64)
    pairs, triples, units = spec.tables.indices(episodes.states, episodes.actions, episodes.rewards)
    first = np.ones((n, H), dtype=np.bool_)
    if spec.stages == 1:
        for h in range(1, H):
            first[:, h] &= (pairs[:, :h] != pairs[:, h : h + 1]).all(axis=1)
    counted = pairs[first], triples[first], pairs[first & (coins[:n, :H] < units)]
    return np.concatenate([np.bincount(part, minlength=size) for part, size in zip(counted, spec.sizes, strict=True)])


class Window:
    """Exact widths of sums of centred binomial noises over consecutive batches.

    Of β, start i and length j may fail with a share 1/(i(i+1)·j(j+1)), divided evenly over counters.
    """

    def __init__(self, counters: int, beta: float) -> None:
        self._counters, self._beta = counters, beta
        self._batches: list[tuple[int, float]] = []
        self._laws: dict[int, tuple[int, binomial.SumLaw]] = {}  # start → last batch in it, law of the sum

    def append(self, bits: int, probability: float) -> None:
        self._batches.append((bits, probability))

    def __len__(self) -> int:
        return len(self._batches)

    def share(self, start: int) -> float:
        """Failure probability of one counter's width, from batch `start` (counted from 1) to the newest."""
        length = len(self._batches) - start + 1
        return self._beta / (self._counters * start * (start + 1) * length * (length + 1))

    def width(self, start: int) -> float:
        """Least e with P(|noise of batches start, start+1, … together| > e) ≤ the share."""
        last, law = self._laws.get(start, (start - 1, binomial.SumLaw()))
        for bits, probability in self._batches[last:]:
            law = law.plus(bits, probability)
        self._laws[start] = len(self._batches), law
        return law.width(self.share(start))


@dataclass(frozen=True)
class ShuffledCounts(Collected, ABC):
    """What privatizers of shuffled counts are told, and the noise and the guarantee that follow.

    `calibration="paper"` has the printed noise of [BTZCC25], and states the ε that is true of it.
    """

    budget: Budget | None
    neighbours: Neighbours = "replace"
    honest: float = 1.0
    beta: float = 0.01
    calibration: Literal["exact", "paper"] = "exact"
    most_noise_bits: int | None = None

    def __post_init__(self) -> None:
        check_common(self.neighbours, self.beta, 1)
        check_choice("calibration", self.calibration, "exact", "paper")
        if self.budget is not None:
            check_shuffle(self.budget, self.honest, self.most_noise_bits)

    def law(self, spec: CountSpec, layer: bool = False) -> BitLaw:
        """The noise of a batch of all counters, or of one layer's visits and transitions."""
        assert self.budget is not None
        assert self.budget.epsilon is not None
        epsilon, delta = self.budget.epsilon, self.budget.delta
        changes = Changes.of(2 if layer else 3 * spec.tables.most_first_visits, self.neighbours)
        printed = None
        if self.calibration == "paper" and math.isfinite(epsilon):
            printed = binomial.printed_bits(epsilon / (3 * spec.horizon), delta)
        return BitLaw(epsilon, delta, changes, self.honest, self.most_noise_bits, printed)

    def guarantee(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> Guarantee:
        """No budget: exact, not private."""
        if self.budget is None:
            return no_privacy("raw counts are used")
        law = self.law(spec)
        epsilon, budget = law.epsilon, self.budget
        if law.printed is not None:
            epsilon = printed_guarantee(law, num_episodes)
            budget = Budget.approximate(epsilon, law.delta)
        entries = [entry_of(law, "visits, transitions, rewards", epsilon)]
        spent = budget if math.isfinite(epsilon) else None
        found = stated(entries, "shuffle", self.neighbours, spent, num_episodes, noise, *told(self.honest))
        return found if law.printed is None else as_printed(found, self.budget)

    @abstractmethod
    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> _CountStream: ...

    def released(self, spec: CountSpec, num_episodes: int, sealed: Sequence[Sealed]) -> PrivateCounts:
        stream = self.open(spec, num_episodes, NoiseSource.secure())
        for epoch in sealed:
            stream.enter(epoch)
        return stream.release()


@dataclass(frozen=True)
class Shuffle(ShuffledCounts):
    """The users between two releases form a batch of shuffled bits: visits, transitions, rewards of first visits.

    Per counter and batch the noise is Bin(users·m, p) less its mean, the least that gives (ε, δ) to a user who lowers
    3·min(H, cells) counters and raises as many others. Releases add up batches; with `window="restart"` a cell starts
    again at the newest batch when that alone has the better ratio of signal to noise.

    Guarantee: shuffle DP with the stated budget per user, for any number of batches, shuffle.md.
    Width: exact binomial tails, for an unlimited number of releases; rewards plus what rounding to bits adds.
    Source: [BTZCC25] with bit messages and exact accounting.
    Cost: one binomial per counter and batch in a simulation, one word per noise bit else.
    """

    window: Literal["all", "restart"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("window", self.window, "all", "restart")

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ShuffleStream:
        return ShuffleStream(self, spec, num_episodes, noise)

    def form(self, spec: CountSpec, plan: Plan, users: int) -> BitEncoder:
        return self.open(spec, users, NoiseSource.secure()).encoder(users)


class _CountStream(ShuffledStream):
    """What both streams of counts share: raw sums of the open batch."""

    def __init__(self, spec: CountSpec, num_episodes: int, noise: NoiseSource, beta: float) -> None:
        self._tables, self._spec, self._noise, self._beta = spec.tables, spec, noise, beta
        self._crowd, self._users = Crowd(num_episodes), 0
        self._raw: Ints = np.zeros(sum(spec.sizes), dtype=np.int64)

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before, encoded as on their own devices."""
        users = users_of(contribution)
        self._crowd.check(users)
        # Sums of users who did nothing have no first visits to be read off, and need none.
        if isinstance(contribution, Episodes) or any(table.any() for _, table in contribution.tables()):
            self._raw += summed_bits(contribution, self._spec, self._noise)
        self._crowd.size += users
        self._users += users

    @abstractmethod
    def enter(self, epoch: Sealed) -> None:
        """Users who have been through a real shuffler, as it was published; it ends their batch if it has sums."""

    @abstractmethod
    def release(self) -> PrivateCounts: ...

    def _close(self, encoder: BitEncoder, own: Ints) -> None:
        """End the batch whose users' own bits, as far as they were asked for, add up to this."""
        batch = self._shuffled(encoder, own)
        self._raw, self._users = np.zeros_like(self._raw), 0
        self._arrive(encoder, batch)

    def _rewards_width(self, users: int, share: float) -> float:
        """|Σ bits − Σ rewards| over users: Hoeffding for the coins, half a grid step each for rounding."""
        return math.sqrt(0.5 * users * math.log(2.0 / share)) + 0.5 * users * self._spec.grid


class ShuffleStream(_CountStream):
    """Raw sums of the open batch only; noisy sums of the batches in every cell's window."""

    def __init__(self, privatizer: Shuffle, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        super().__init__(spec, num_episodes, noise, privatizer.beta)
        self._law = privatizer.law(spec)
        self.guarantee = privatizer.guarantee(spec, num_episodes, noise)
        self._sums: Floats = np.zeros(self._raw.size)
        self._variances: Floats = np.zeros(spec.sizes[0])  # of the noise in every cell's window
        self._starts: Ints = np.ones(spec.sizes[0], dtype=np.int64)  # first batch of every cell's window
        self._widths = Window(self._raw.size, 0.5 * privatizer.beta)
        self._batch_users: list[int] = []
        self._cell_of = cells_of_counters(spec) if privatizer.window == "restart" else None
        self._last: PrivateCounts | None = None

    def encoder(self, users: int) -> BitEncoder:
        """What a deployment publishes for its next batch of exactly so many users."""
        return self._published(self._law, CountBits(self._tables), users)

    def _own(self, encoder: BitEncoder) -> BitEncoder:
        return self.encoder(encoder.users)

    def release(self) -> PrivateCounts:
        """Noisy sums of all batches; without new users, the last release again."""
        if self._users:
            self._close(self.encoder(self._users), self._raw)
        if self._last is None:
            self._last = self._released()
        return self._last

    def enter(self, epoch: Sealed) -> None:
        self._crowd.check(epoch.users)
        self._crowd.size += epoch.users
        self._arrive(self.encoder(epoch.users), Tally(epoch.values, epoch.users))

    def _arrive(self, encoder: BitEncoder, batch: Tally) -> None:
        newest, variance = estimated(encoder, batch)
        self._widths.append(batch.users * encoder.noise_bits, encoder.probability)
        self._batch_users.append(batch.users)
        self._sums, self._variances, restart = windowed(self._sums, newest, self._variances, variance, self._cell_of)
        self._starts = np.where(restart, len(self._widths), self._starts)
        self._last = None

    def _released(self) -> PrivateCounts:
        batches = len(self._widths)
        noise, coins = np.zeros(self._variances.size), np.zeros(self._variances.size)
        for start in np.unique(self._starts).tolist() if batches else []:
            here = self._starts == start
            noise[here] = self._widths.width(start)
            users = sum(self._batch_users[start - 1 :])
            coins[here] = self._rewards_width(users, self._widths.share(start))
        cells, rows, _ = self._spec.shapes().values()

        def by_cell(values: Floats, rewards: Floats) -> PerTable:
            table = values.reshape(cells)
            return PerTable(table, np.broadcast_to(table[..., None], rows), rewards.reshape(cells))

        spread = np.sqrt(self._variances)
        errors = by_cell(noise, noise + coins), by_cell(spread, spread)
        return released(self._spec, self._crowd.size, self._spec.split(self._sums), *errors, self._beta)


# Announced batches, of one layer or of all --------------------------------------------------------------------------


@dataclass(frozen=True)
class ShuffleBatches(ShuffledCounts):
    """Batches announced by the learner (`Batch`), each released by itself: visits and transitions of one step with
    the noise of 2 falling and 2 rising bits, or everything with that of 3H and 3H. No budget: exact, not private.

    Guarantee and source: as `Shuffle`; every user is in one batch, so the worst batch counts, shuffle.md.
    """

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> BatchStream:
        return BatchStream(self, spec, num_episodes, noise)

    def form(self, spec: CountSpec, plan: Plan, users: int) -> BitEncoder:
        """That of the whole batch, of which these may be some."""
        stream = self.open(spec, users, NoiseSource.secure())
        stream.begin(plan)
        return stream.encoder()


class BatchStream(_CountStream):
    """Raw sums of the announced batch; its noisy sums leave when all its users have played."""

    def __init__(self, privatizer: ShuffleBatches, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        super().__init__(spec, num_episodes, noise, privatizer.beta)
        if spec.pooled and spec.horizon > 1:
            raise ValueError("batches of one layer count per step; leave pooling out")
        self._privatizer = privatizer
        self.guarantee = privatizer.guarantee(spec, num_episodes, noise)
        self._batch: Batch | None = None
        self._closed = 0
        self._last = PrivateCounts(*spec.split(np.zeros(self._raw.size)), horizon=spec.horizon, num_episodes=0)

    def begin(self, plan: Plan) -> None:
        """Open the announced batch, or go on with it."""
        batch = plan.announcement
        if not isinstance(batch, Batch):
            raise ValueError("the plan announces no batch; users would not know what to report")
        if self._batch is not None and self._users and batch != self._batch:
            raise ValueError(
                f"{self._users} of {self._batch.users} users of the open batch have played; it must be complete "
                "before another one is announced"
            )
        self._batch = batch

    def _announced(self) -> Batch:
        if self._batch is None:
            raise ValueError("no batch has been announced; begin one before users play")
        return self._batch

    def add(self, contribution: Episodes | Counts) -> None:
        batch, users = self._announced(), users_of(contribution)
        if self._users + users > batch.users:
            raise ValueError(
                f"{users} more users would exceed the {batch.users} announced for this batch; nothing was added"
            )
        super().add(contribution)

    def encoder(self) -> BitEncoder:
        """What the users of the announced batch are sent."""
        batch = self._announced()
        statistic = CountBits(self._tables, batch.layer)
        if self._privatizer.budget is None:
            return BitEncoder(statistic, batch.users, 0, 0)
        law = self._privatizer.law(self._spec, layer=batch.layer is not None)
        return self._published(law, statistic, batch.users)

    def _own(self, encoder: BitEncoder) -> BitEncoder:
        return self.encoder()

    def release(self) -> PrivateCounts:
        """The newest complete batch; while one is filling up, the one before it."""
        batch = self._batch
        if batch is not None and self._users == batch.users:
            own = self._raw
            if batch.layer is not None:
                own = np.concatenate([table[batch.layer].ravel() for table in self._spec.split(own)[:2]])
            self._close(self.encoder(), own)
        return self._last

    def enter(self, epoch: Sealed) -> None:
        self.begin(epoch.plan)
        self._crowd.check(epoch.users)
        self._crowd.size += epoch.users
        self._users += epoch.users
        if epoch.values.size:
            self._users = 0
            self._arrive(self.encoder(), Tally(epoch.values, self._announced().users))

    def _arrive(self, encoder: BitEncoder, batch: Tally) -> None:
        layer, spec = self._announced().layer, self._spec
        values, variance = estimated(encoder, batch)
        self._closed += 1
        share = 0.5 * self._beta / (self._raw.size * self._closed * (self._closed + 1))
        bits = batch.users * encoder.noise_bits
        width = binomial.two_sided_quantile([(bits, encoder.probability)], share) if bits else 0.0
        spread, rewards = math.sqrt(variance), width + self._rewards_width(batch.users, share)
        if layer is not None:  # one step, and no rewards
            spec, rewards = replace(spec, pooled=True), math.inf
            values = np.append(values, np.zeros(spec.sizes[0]))
        errors = PerTable(width, width, rewards), PerTable(spread, spread, spread)
        self._last = released(spec, self._crowd.size, spec.split(values), *errors, self._beta)
        self._batch = None
