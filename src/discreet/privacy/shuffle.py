"""Counts and reports of shuffled bits: no curator sees anyone, noise comes from the users themselves.

Every batch of users is encoded, shuffled and counted once (`shuffler.py`); how many noise bits it takes follows from
exact accounting (`binomial.py`). In a simulation the three roles are played at once, with sums of the same law.
Proof: shuffle.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn

import numpy as np

from discreet.batches import Batch
from discreet.episodes import Episodes
from discreet.kernels import spotlight as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Plan
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Neighbours, guarantee_of, no_privacy
from discreet.privacy.client import Tables, below
from discreet.privacy.families import check_common
from discreet.privacy.noise import NoiseSource
from discreet.privacy.reports import alphabet_of, checked_episodes, checked_targets, encoded
from discreet.privacy.shuffler import (
    HALF,
    BitEncoder,
    CountBits,
    FirstVisitBits,
    Messages,
    Tally,
    honest_users,
    tally,
    unbiased,
)
from discreet.privacy.streams import assumptions
from discreet.releases import PerTable, PrivateCounts
from discreet.statistics import Counts, CountSpec
from discreet.structure import PublicStructure
from discreet.targets import PrivateReports, Targets

Calibration = Literal["exact", "paper"]
MECHANISM = "shuffled-bits"
TRUSTED = "a shuffler permutes the single messages of every batch and reveals nothing else"


# How much noise -----------------------------------------------------------------------------------------------------


class Changes(NamedTuple):
    """How many counters one user can lower and raise at once."""

    down: int
    up: int

    @classmethod
    def of(cls, most: int, neighbours: Neighbours) -> Changes:
        """A user of at most `most` ones against another such user, or against one without any."""
        return cls(most, most if neighbours == "replace" else 0)


class Bits(NamedTuple):
    """Noise of one user on one counter: so many bits, each 1 with probability flips/2⁶⁴."""

    each: int
    flips: int

    @property
    def probability(self) -> float:
        return self.flips / 2.0**64

    def variance(self, users: int) -> float:
        return users * self.each * self.probability * (1.0 - self.probability)


@dataclass(frozen=True)
class BitLaw:
    """Which noise a batch needs, as a function of its size. `printed` is τ per counter as in [BTZCC25] Alg. 4."""

    epsilon: float
    delta: float
    changes: Changes
    honest: float = 1.0
    most_noise_bits: int | None = None
    printed: int | None = None

    def bits(self, users: int) -> Bits:
        """n ≥ 2 users, of whom ⌊honest·n⌋ can be relied on: ⌈m₀/that⌉ bits each, with the least probability.

        Printed: ⌈τ/n⌉ fair bits each for n ≤ τ, else one bit with p = τ/(2n).
        """
        if users < 2:
            raise ValueError(f"a batch of {users} cannot be shuffled; at least 2 users are needed")
        if not math.isfinite(self.epsilon):
            return Bits(0, 0)
        if self.printed is not None:
            if users <= self.printed:
                return Bits(math.ceil(self.printed / users), HALF)
            return Bits(1, math.ceil(self.printed / (2.0 * users) * 2.0**64))
        reliable = honest_users(users, self.honest)
        fair = binomial.fewest_fair_bits(*self.changes, self.epsilon, self.delta)
        most = self.most_noise_bits
        if reliable < 1 or (most is not None and reliable * most < fair):
            needed = math.ceil(math.ceil(fair / most) / self.honest) if most else math.ceil(1.0 / self.honest)
            allowed = "" if most is None else f" with at most {most} noise bit{'s' if most > 1 else ''} each"
            raise ValueError(
                f"{users} users{allowed} cannot hide one of them at epsilon = {self.epsilon:g}, delta = "
                f"{self.delta:g}: a batch needs at least {needed} users"
            )
        each = math.ceil(fair / reliable)
        p = binomial.least_probability(each * reliable, *self.changes, self.epsilon, self.delta)
        return Bits(each, min(HALF, math.ceil(p * 2.0**64)))

    def spent(self, users: int, honest: float | None = None) -> float:
        """δ at ε of a batch of so many users, when only a fraction of them can be relied on."""
        bits = self.bits(users)
        if bits.each == 0:
            return 1.0
        reliable = honest_users(users, self.honest if honest is None else honest)
        if reliable < 1:
            return 1.0
        return binomial.delta_of(bits.each * reliable, bits.probability, *self.changes, self.epsilon)

    def variance(self, users: int) -> float:
        """Of the noise on one counter, all users together."""
        return self.bits(users).variance(users)


def honest_epsilon(law: BitLaw, users: int, honest: float) -> float:
    """What is left of ε, at the same δ, when only a fraction of a batch adds its noise; infinite when nothing is."""
    reliable = honest_users(users, honest)
    bits = law.bits(users)
    if reliable < 1 or bits.each == 0:
        return math.inf
    return binomial.epsilon_of(bits.each * reliable, bits.probability, *law.changes, law.delta)


def printed_guarantee(law: BitLaw, most_users: int) -> float:
    """The true ε of a printed calibration at its δ: the largest over some batches of 2 to `most_users`.

    Up to τ users there are at least τ fair bits, and more are post-processing of fewer; above, sizes of a geometric
    grid stand for all (each batch is checked again before it is released).
    """
    assert law.printed is not None
    most = max(2, most_users)
    sizes = {size for size in (2, min(most, law.printed), most) if size >= 2}
    sizes |= {min(most, law.printed * 2**i) for i in range(1, 40)}
    return max(honest_epsilon(law, users, law.honest) for users in sorted(sizes))


def check_shuffle(budget: Budget, honest: float, most_noise_bits: int | None) -> None:
    if budget.rho is not None or (budget.delta == 0.0 and math.isfinite(budget.epsilon or 0.0)):
        raise ValueError("shuffled bits are (epsilon, delta)-private: state an epsilon and a delta above 0")
    honest_users(1, honest)
    if most_noise_bits is not None and (int(most_noise_bits) != most_noise_bits or most_noise_bits < 1):
        raise ValueError(f"most_noise_bits is {most_noise_bits!r}; it must be a whole number of at least 1")


def entry_of(law: BitLaw, statistic: str, epsilon: float) -> LedgerEntry:
    """All counters of a batch together; the scale is the noise of the fewest fair bits (others differ by little)."""
    if not math.isfinite(law.epsilon):
        return LedgerEntry(statistic, MECHANISM, "l1", float(sum(law.changes)), 0.0, 1, math.inf)
    fair = law.printed or binomial.fewest_fair_bits(*law.changes, law.epsilon, law.delta)
    return LedgerEntry(
        statistic, MECHANISM, "l1", float(sum(law.changes)), math.sqrt(fair) / 2.0, 1, epsilon, law.delta
    )


def shared_assumptions(num_episodes: int, noise: NoiseSource, honest: float, *others: str) -> tuple[str, ...]:
    reliable = (
        "all users of a batch add their noise"
        if honest == 1.0
        else (f"at least a fraction {honest:g} of the users of every batch add their noise and keep it to themselves")
    )
    return assumptions(
        num_episodes, noise, TRUSTED, reliable, "batch sizes depend on public numbers and releases only", *others
    )


# Counts -------------------------------------------------------------------------------------------------------------


def tables_of(spec: CountSpec) -> Tables:
    """The description a device needs."""
    if spec.reward_range is None:
        raise ValueError(
            "reward_range is None, so that a reward cannot be turned into a bit; declare the range rewards are "
            "clipped to"
        )
    return Tables(spec.num_states, spec.num_actions, spec.horizon, spec.stages, spec.grid, spec.reward_range)


def most_cells(spec: CountSpec) -> int:
    """Cells one user can visit for the first time: one per step, and no more than there are."""
    return min(spec.horizon, spec.stages * spec.num_states * spec.num_actions)


def summed_bits(episodes: Episodes, spec: CountSpec, noise: NoiseSource) -> Ints:
    """(N, T, R) of many users, flat: first visits to every cell, with the reward as one bit. `CountBits`, summed."""
    n, H = episodes.actions.shape
    S, A = spec.num_states, spec.num_actions
    g = np.minimum(np.arange(H), spec.stages - 1)
    pairs = (g * S + episodes.states[:, :-1]) * A + episodes.actions
    units, _ = spec.on_grid(episodes.rewards)
    paid = below(noise, spec.reward_units, n * H).reshape(n, H) < units
    first = np.ones((n, H), dtype=np.bool_)
    if spec.stages == 1:
        for h in range(1, H):
            first[:, h] = (pairs[:, :h] != pairs[:, h : h + 1]).all(axis=1)
    C = spec.stages * S * A
    triples = pairs * S + episodes.states[:, 1:]
    return np.concatenate(
        [
            np.bincount(pairs[first], minlength=C),
            np.bincount(triples[first], minlength=C * S),
            np.bincount(pairs[first & paid], minlength=C),
        ]
    ).astype(np.int64)


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
class Shuffle:
    """The users between two releases form a batch of shuffled bits: visits, transitions, rewards of first visits.

    Per counter and batch the noise is Bin(users·m, p) less its mean, the least that gives (ε, δ) to a user who lowers
    3·min(H, cells) counters and raises as many others. Releases add up batches; with `window="restart"` a cell starts
    again at the newest batch when that alone has the better ratio of signal to noise.

    Guarantee: shuffle DP with the stated budget per user, for any number of batches, shuffle.md.
    Width: exact binomial tails, for an unlimited number of releases; rewards plus what rounding to bits adds.
    Source: [BTZCC25] with bit messages and exact accounting; `calibration="paper"` has its printed noise, and states
    the ε that is true of it.  Cost: one binomial per counter and batch in a simulation, one word per noise bit else.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    honest: float = 1.0
    beta: float = 0.01
    window: Literal["all", "restart"] = "all"
    calibration: Calibration = "exact"
    most_noise_bits: int | None = None

    def __post_init__(self) -> None:
        check_common(self.neighbours, self.beta, 1)
        check_shuffle(self.budget, self.honest, self.most_noise_bits)
        if self.window not in ("all", "restart"):
            raise ValueError(f"window is {self.window!r}; it must be 'all' or 'restart'")
        if self.calibration not in ("exact", "paper"):
            raise ValueError(f"calibration is {self.calibration!r}; it must be 'exact' or 'paper'")

    def law(self, spec: CountSpec, layer: bool = False) -> BitLaw:
        """The noise of a batch of all counters, or of one layer's visits and transitions."""
        assert self.budget.epsilon is not None
        epsilon, delta = self.budget.epsilon, self.budget.delta
        changes = Changes.of(2 if layer else 3 * most_cells(spec), self.neighbours)
        printed = None
        if self.calibration == "paper" and math.isfinite(epsilon):
            printed = binomial.printed_bits(epsilon / (3 * spec.horizon), delta)
        return BitLaw(epsilon, delta, changes, self.honest, self.most_noise_bits, printed)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ShuffleStream:
        return ShuffleStream(self, spec, num_episodes, noise)

    def guarantee(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> Guarantee:
        law = self.law(spec)
        epsilon, budget = law.epsilon, self.budget
        if law.printed is not None:
            epsilon = printed_guarantee(law, num_episodes)
            budget = Budget.approximate(epsilon, law.delta)
        return guarantee_of(
            [entry_of(law, "visits, transitions, rewards", epsilon)],
            "shuffle",
            self.neighbours,
            budget if math.isfinite(epsilon) else None,
            assumptions=shared_assumptions(num_episodes, noise, self.honest),
        )


class _BatchStream:
    """What both streams of counts share: the open batch, and the check that nobody is counted twice or for free."""

    def __init__(self, spec: CountSpec, num_episodes: int, noise: NoiseSource, honest: float) -> None:
        if isinstance(num_episodes, bool) or int(num_episodes) != num_episodes or num_episodes < 1:
            raise ValueError(f"num_episodes is {num_episodes!r}; declare a whole number of at least 1")
        self._spec, self._noise, self._limit, self._honest = spec, noise, int(num_episodes), honest
        self._tables = tables_of(spec)
        self._shapes = list(spec.shapes().values())
        self._sizes = [math.prod(shape) for shape in self._shapes]
        self._raw: Ints = np.zeros(sum(self._sizes), dtype=np.int64)
        self._seen = self._users = 0

    def _take(self, contribution: Episodes | Counts) -> None:
        if isinstance(contribution, Counts) and not any(table.any() for _, table in contribution.tables()):
            self._admit(contribution.num_episodes)  # users who did nothing have no first visits to be read off
            self._seen += contribution.num_episodes
            self._users += contribution.num_episodes
            return
        episodes = checked_episodes(contribution, self._spec)
        self._admit(len(episodes))
        self._raw += summed_bits(episodes, self._spec, self._noise)
        self._seen += len(episodes)
        self._users += len(episodes)

    def _admit(self, users: int) -> None:
        if self._seen + users > self._limit:
            raise ValueError(
                f"{users} more episodes would exceed the {self._limit} declared when the stream was opened "
                f"({self._seen} seen); nothing was added"
            )

    def _rewards_width(self, users: int, share: float) -> float:
        """|Σ bits − Σ rewards| over users: Hoeffding for the coins, half a grid step each for rounding."""
        return math.sqrt(0.5 * users * math.log(2.0 / share)) + 0.5 * users * self._spec.grid

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream holds raw sums and cannot be pickled or copied")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._seen} of {self._limit} episodes)"


class ShuffleStream(_BatchStream):
    """Raw sums of the open batch only; noisy sums of the batches in every cell's window."""

    def __init__(self, privatizer: Shuffle, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        super().__init__(spec, num_episodes, noise, privatizer.honest)
        self._law = privatizer.law(spec)
        self._restarts = privatizer.window == "restart"
        self._beta = privatizer.beta
        self.guarantee = privatizer.guarantee(spec, num_episodes, noise)
        self.ledger: tuple[LedgerEntry, ...] = self.guarantee.entries
        C = self._sizes[0]
        self._sums: Floats = np.zeros(sum(self._sizes))
        self._variances: Floats = np.zeros(C)  # of the noise in every cell's window
        self._starts: Ints = np.ones(C, dtype=np.int64)  # first batch of every cell's window
        self._widths = Window(sum(self._sizes), 0.5 * privatizer.beta)
        self._batch_users: list[int] = []
        cells = np.arange(C)
        self._cell_of = np.concatenate([cells, np.repeat(cells, spec.num_states), cells])
        self._last: PrivateCounts = self._released()

    def encoder(self, users: int) -> BitEncoder:
        """What a deployment publishes for its next batch of exactly so many users."""
        bits = self._law.bits(users)
        return BitEncoder(CountBits(self._tables), users, bits.each, bits.flips)

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before, encoded as on their own devices."""
        self._take(contribution)

    def collect(self, encoder: BitEncoder, messages: Messages) -> None:
        """A whole batch that real users sent through a real shuffler; a bad one is refused and leaves no trace."""
        if self._users:
            raise ValueError("users of an open batch are waiting; release them before a shuffled batch is collected")
        if encoder != self.encoder(encoder.users):
            raise ValueError("the batch was encoded with other public numbers than this stream's; nothing was added")
        self._admit(encoder.users)
        batch = tally(encoder, messages, self._honest)
        self._seen += batch.users
        self._enter(encoder, batch)

    def release(self) -> PrivateCounts:
        """Noisy sums of all batches; without new users, the last release again."""
        if self._users:
            encoder = self.encoder(self._users)
            self._check_printed()
            sums = self._raw + encoder.noise_sums(self._users, self._noise)
            batch = Tally(sums, self._users)
            self._raw, self._users = np.zeros_like(self._raw), 0
            self._enter(encoder, batch)
        return self._last

    def _check_printed(self) -> None:
        """The stated ε of a printed calibration was found on some batch sizes; no other may do worse."""
        if self._law.printed is None:
            return
        spent = honest_epsilon(self._law, self._users, self._honest)
        if spent > self.guarantee.epsilon * (1.0 + 1e-3):
            raise ValueError(
                f"{self._users} users with the printed noise have epsilon = {spent:.6g}, more than the "
                f"{self.guarantee.epsilon:.6g} stated; nothing is released"
            )

    def _enter(self, encoder: BitEncoder, batch: Tally) -> None:
        newest = unbiased(encoder, batch)
        noise_bits, p = batch.users * encoder.noise_bits, encoder.probability
        self._widths.append(noise_bits, p)
        self._batch_users.append(batch.users)
        variance = noise_bits * p * (1.0 - p)
        C = self._variances.size
        restart = np.zeros(C, dtype=np.bool_)
        if self._restarts and len(self._widths) > 1:
            old, new = self._sums[:C], newest[:C]
            restart = new * np.sqrt(self._variances + variance) > (old + new) * math.sqrt(variance)
        self._sums = np.where(restart[self._cell_of], newest, self._sums + newest)
        self._variances = np.where(restart, 0.0, self._variances) + variance
        self._starts = np.where(restart, len(self._widths), self._starts)
        self._last = self._released()

    def _released(self) -> PrivateCounts:
        batches = len(self._widths)
        noise, coins = np.zeros(self._variances.size), np.zeros(self._variances.size)
        for start in np.unique(self._starts).tolist() if batches else []:
            here = self._starts == start
            noise[here] = self._widths.width(start)
            users = sum(self._batch_users[start - 1 :])
            coins[here] = self._rewards_width(users, self._widths.share(start))
        spread = np.sqrt(self._variances)
        visits, transitions, rewards = (
            part.reshape(shape)
            for part, shape in zip(np.split(self._sums, np.cumsum(self._sizes)[:-1]), self._shapes, strict=True)
        )
        cells, rows = self._shapes[0], self._shapes[1]

        def by_cell(values: Floats) -> PerTable:
            table = values.reshape(cells)
            return PerTable(table, np.broadcast_to(table[..., None], rows), table)

        widths = by_cell(noise)
        return PrivateCounts(
            visits,
            transitions,
            rewards,
            horizon=self._spec.horizon,
            num_episodes=self._seen,
            widths=PerTable(widths.visits, widths.transitions, widths.rewards + coins.reshape(cells)),
            deviations=by_cell(spread),
            beta=self._beta,
            reward_range=self._spec.reward_range,
        )


# Announced batches, of one layer or of all --------------------------------------------------------------------------


@dataclass(frozen=True)
class ShuffleBatches:
    """Batches announced by the learner (`Batch`), each released by itself: visits and transitions of one step with
    the noise of 2 falling and 2 rising bits, or everything with that of 3H and 3H. No budget: exact, not private.

    Guarantee and source: as `Shuffle`; every user is in one batch, so the worst batch counts, shuffle.md.
    """

    budget: Budget | None
    neighbours: Neighbours = "replace"
    honest: float = 1.0
    beta: float = 0.01
    calibration: Calibration = "exact"
    most_noise_bits: int | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            self.counts()

    def counts(self) -> Shuffle:
        """The same settings for one statistic."""
        assert self.budget is not None
        return Shuffle(
            self.budget, self.neighbours, self.honest, self.beta, "all", self.calibration, self.most_noise_bits
        )

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> BatchStream:
        return BatchStream(self, spec, num_episodes, noise)


class BatchStream(_BatchStream):
    """Raw sums of the announced batch; its noisy sums leave when all its users have played."""

    def __init__(self, privatizer: ShuffleBatches, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        super().__init__(spec, num_episodes, noise, privatizer.honest)
        if spec.pooled and spec.horizon > 1:
            raise ValueError("batches of one layer count per step; leave pooling out")
        private = privatizer.budget is not None
        self._fine = privatizer.counts().law(spec) if private else None
        self._crude = privatizer.counts().law(spec, layer=True) if private else None
        self.guarantee = (
            privatizer.counts().guarantee(spec, num_episodes, noise) if private else no_privacy("raw counts are used")
        )
        self.ledger: tuple[LedgerEntry, ...] = self.guarantee.entries
        self._beta = privatizer.beta
        self._batch: Batch | None = None
        self._closed = 0
        visits, transitions, rewards = (np.zeros(shape) for shape in self._shapes)
        self._last = PrivateCounts(visits, transitions, rewards, horizon=spec.horizon, num_episodes=0)

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

    def add(self, contribution: Episodes | Counts) -> None:
        if self._batch is None:
            raise ValueError("no batch has been announced; begin one before users play")
        users = len(contribution) if isinstance(contribution, Episodes) else 0
        if self._users + users > self._batch.users:
            raise ValueError(
                f"{users} more users would exceed the {self._batch.users} announced for this batch; nothing was added"
            )
        self._take(contribution)

    def encoder(self) -> BitEncoder:
        """What the users of the announced batch are sent."""
        if self._batch is None:
            raise ValueError("no batch has been announced; begin one before users play")
        law = self._fine if self._batch.layer is None else self._crude
        bits = Bits(0, 0) if law is None else law.bits(self._batch.users)
        return BitEncoder(CountBits(self._tables, self._batch.layer), self._batch.users, bits.each, bits.flips)

    def collect(self, messages: Messages) -> None:
        """The shuffled messages of the whole announced batch; a bad batch is refused and leaves no trace."""
        encoder = self.encoder()
        if self._users:
            raise ValueError("users of the open batch are waiting; they cannot be mixed with a shuffled batch")
        self._admit(encoder.users)
        batch = tally(encoder, messages, self._honest)
        self._seen += batch.users
        self._enter(encoder, batch)

    def release(self) -> PrivateCounts:
        """The newest complete batch; while one is filling up, the one before it."""
        if self._batch is not None and self._users == self._batch.users:
            encoder = self.encoder()
            raw, self._raw = self._raw, np.zeros_like(self._raw)
            if self._batch.layer is not None:
                h = self._batch.layer
                N, T, _ = np.split(raw, np.cumsum(self._sizes)[:-1])
                layers = N.reshape(self._shapes[0])[h], T.reshape(self._shapes[1])[h]
                raw = np.concatenate([table.ravel() for table in layers])
            batch = Tally(raw + encoder.noise_sums(self._users, self._noise), self._users)
            self._users = 0
            self._enter(encoder, batch)
        return self._last

    def _enter(self, encoder: BitEncoder, batch: Tally) -> None:
        assert self._batch is not None
        values = unbiased(encoder, batch)
        self._closed += 1
        noise_bits, p = batch.users * encoder.noise_bits, encoder.probability
        share = 0.5 * self._beta / (sum(self._sizes) * self._closed * (self._closed + 1))
        width = binomial.two_sided_quantile([(noise_bits, p)], share) if noise_bits else 0.0
        spread = math.sqrt(noise_bits * p * (1.0 - p))
        S, A = self._spec.num_states, self._spec.num_actions
        G = self._spec.stages if self._batch.layer is None else 1
        cells = G * S * A
        rewards = np.zeros((G, S, A)) if self._batch.layer is not None else values[-cells:].reshape(G, S, A)
        coins = self._rewards_width(batch.users, share)
        self._last = PrivateCounts(
            values[:cells].reshape(G, S, A),
            values[cells : cells * (1 + S)].reshape(G, S, A, S),
            rewards,
            horizon=self._spec.horizon,
            num_episodes=self._seen,
            widths=PerTable(width, width, math.inf if self._batch.layer is not None else width + coins),
            deviations=PerTable(spread, spread, spread),
            beta=self._beta,
            reward_range=self._spec.reward_range,
        )
        self._batch = None


# One report per user ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShuffleNoise:
    """Noise of a batch of reports, for sizing epochs: at sizes on a geometric grid, so that few are calibrated."""

    law: BitLaw

    def variance(self, users: int, items: int) -> float:
        if not math.isfinite(self.law.epsilon):
            return 0.0
        return _variance_near(self.law, math.floor(math.log(max(users, 2)) * 8.0))


@lru_cache(maxsize=4096)
def _variance_near(law: BitLaw, step: int) -> float:
    users = max(2, math.floor(math.exp(step / 8.0)))
    while honest_users(users, law.honest) < 1:
        users += 1
    return law.variance(users)


@dataclass(frozen=True)
class ShuffleReports:
    """Every user sends, for every sub-cell of the announced targets, the bit of her first visit and noise bits.

    At most one bit falls and one rises when a user is replaced, whatever H.
    Guarantee: (ε, δ)-shuffle-DP per user for any number of epochs and any targets chosen from earlier releases,
    shuffle.md.  Source: ours, on the protocol of [BTZCC25].  Cost: as `Shuffle`.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    structure: PublicStructure = field(default_factory=PublicStructure)
    honest: float = 1.0
    most_noise_bits: int | None = None

    def __post_init__(self) -> None:
        check_common(self.neighbours, 0.5, 1)
        check_shuffle(self.budget, self.honest, self.most_noise_bits)

    def law(self) -> BitLaw:
        assert self.budget.epsilon is not None
        changes = Changes.of(1, self.neighbours)
        return BitLaw(self.budget.epsilon, self.budget.delta, changes, self.honest, self.most_noise_bits)

    def users_lost(self, spec: CountSpec) -> float:
        """About how many users play badly before all cells are known: 16 per cell and unit of noise deviation.

        The rule of the curator's reports (45 users per cell at a deviation of 2.8), not a bound.
        """
        deviation = math.sqrt(self.law().variance(10_000)) if math.isfinite(self.law().epsilon) else 0.0
        return 16.0 * deviation * spec.stages * spec.num_states * spec.num_actions

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ShuffleReportStream:
        return ShuffleReportStream(self, spec, num_episodes, noise)


class ShuffleReportStream:
    """Raw reports of the open epoch only; they leave as one noisy histogram."""

    def __init__(self, privatizer: ShuffleReports, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        self._tables = tables_of(spec)
        if num_episodes < 1:
            raise ValueError(f"num_episodes is {num_episodes}; declare at least 1")
        self._spec, self._noise, self._limit = spec, noise, int(num_episodes)
        self._honest, self._bits = privatizer.honest, privatizer.law()
        self._law = ShuffleNoise(self._bits)
        structure = privatizer.structure
        self.alphabet = alphabet_of(spec, structure)
        told = (*structure.assumptions(), "targets depend on public numbers and releases only")
        self.guarantee: Guarantee = guarantee_of(
            [entry_of(self._bits, "reports", self._bits.epsilon)],
            "shuffle",
            privatizer.neighbours,
            privatizer.budget if math.isfinite(self._bits.epsilon) else None,
            assumptions=shared_assumptions(num_episodes, noise, privatizer.honest, *told),
        )
        self.ledger: tuple[LedgerEntry, ...] = self.guarantee.entries
        self._seen = self._users = 0
        self._targets: Targets | None = None
        self._histogram: Ints = np.zeros((0, 2 * spec.num_states), dtype=np.int64)
        self._place: Ints = np.zeros(0, dtype=np.int64)
        empty = np.zeros((0, 2 * spec.num_states))
        self._last = PrivateReports(self.alphabet, empty, None, 0, 0, 0.0, self._law)

    def begin(self, plan: Plan) -> None:
        """Open an epoch whose users report on the plan's targets."""
        if self._users:
            raise ValueError("users of the open epoch have reported; release them before new targets are announced")
        targets = checked_targets(plan, self.alphabet)
        self._targets = targets
        self._place = np.cumsum(targets.cells) - 1
        self._histogram = np.zeros((targets.rows.size, 2 * self._spec.num_states), dtype=np.int64)

    def _announced(self) -> Targets:
        if self._targets is None:
            raise ValueError("no targets have been announced; begin an epoch before users report")
        return self._targets

    def encoder(self, users: int) -> BitEncoder:
        """What exactly so many users of the open epoch are sent."""
        items = np.flatnonzero(self.alphabet.admitted & self._announced().cells[:, None])
        statistic = FirstVisitBits(self._tables, tuple(items.tolist()), self.alphabet.has_start, self._spec.pooled)
        bits = self._bits.bits(users)
        return BitEncoder(statistic, users, bits.each, bits.flips)

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before."""
        episodes = checked_episodes(contribution, self._spec)
        targets = self._announced()
        self._admit(len(episodes))
        items = encoded(episodes, self._spec, self.alphabet, targets, 1, self._noise)
        kernel.tally(items, self._place, self.alphabet.admitted, 2 * self._spec.num_states, self._histogram)
        self._seen += len(episodes)
        self._users += len(episodes)

    def _admit(self, users: int) -> None:
        if self._seen + users > self._limit:
            raise ValueError(
                f"{users} more episodes would exceed the {self._limit} declared when the stream was opened "
                f"({self._seen} seen); nothing was added"
            )

    def collect(self, encoder: BitEncoder, messages: Messages) -> None:
        """The shuffled messages of the whole epoch; a bad batch is refused and leaves no trace."""
        if self._users:
            raise ValueError("users of the open epoch are waiting; they cannot be mixed with a shuffled batch")
        if encoder != self.encoder(encoder.users):
            raise ValueError("the batch was encoded for other targets or another noise; nothing was added")
        self._admit(encoder.users)
        batch = tally(encoder, messages, self._honest)
        self._seen += batch.users
        self._enter(encoder, batch)

    def release(self) -> PrivateReports:
        """Unbiased counts of the epoch; without new users, the last release again."""
        if self._users:
            encoder = self.encoder(self._users)
            own = self._histogram[self.alphabet.admitted[self._announced().rows]]
            batch = Tally(own + encoder.noise_sums(self._users, self._noise), self._users)
            self._users = 0
            self._enter(encoder, batch)
        return self._last

    def _enter(self, encoder: BitEncoder, batch: Tally) -> None:
        targets = self._announced()
        rows = targets.rows
        histogram = np.zeros((rows.size, 2 * self._spec.num_states))
        histogram[self.alphabet.admitted[rows]] = unbiased(encoder, batch)
        p = encoder.probability
        variance = batch.users * encoder.noise_bits * p * (1.0 - p)
        self._last = PrivateReports(self.alphabet, histogram, targets, batch.users, self._seen, variance, self._law)
        self._targets, self._histogram = None, np.zeros_like(self._histogram[:0])

    def variance(self, users: int) -> float:
        """Of the noise on one sub-cell after an epoch of so many users."""
        return self._law.variance(users, int(self.alphabet.admitted.sum()))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream holds raw reports and cannot be pickled or copied")

    def __repr__(self) -> str:
        return f"ShuffleReportStream({self._seen} of {self._limit} episodes)"
