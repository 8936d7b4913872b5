"""Local privacy: every user randomises at home, so the server holds nothing that needs guarding.

Two reports. `LocalLaplace`, and `LocalGaussian` for budgets in ρ or (ε, δ), add noise to every counter of the user's
tables; `LocalSampled` sends one step of her episode, drawn by her own coin, in optimised unary encoding (local.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from discreet.device import (
    GaussianEncoder,
    LaplaceEncoder,
    LossTables,
    Report,
    ReportEncoder,
    SampledEncoder,
    Tables,
)
from discreet.mdp import Floats, Ints
from discreet.people.counts import LARGEST_SUM, Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget, LedgerEntry, Mechanism, Neighbours
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.envelope import LARGEST_SCALE, exponential_bounds
from discreet.privacy.families import (
    Family,
    Shares,
    calibrated,
    check_choice,
    check_common,
    reward_rounding,
    share_weights,
)
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.raw import RawSums
from discreet.privacy.sums.streams import as_printed, divided, natural, released, stated
from discreet.privacy.tails import gaussian_running_width, running_width
from discreet.releases.counts import PerTable, PrivateCounts

#: Noisy values drawn at a time on behalf of many users: 8 MiB.
CHUNK = 2**20
#: From this many users on, simulations draw sums of noise instead of summing draws (same law).
COMPOUND = 32
#: From this σ on a sum of discrete Gaussian noises is, to 10⁻³⁰, one with the sum of their variances.
SMOOTH = 3.0

ONE_REPORT = "every user sends one report, made on her own device with her own secret noise"


def check_relation(neighbours: str, beta: float) -> None:
    check_common(neighbours, beta, 1)
    if neighbours != "replace":
        raise ValueError("local privacy compares any two users, so neighbours must be 'replace'")


def check_local(budget: Budget, neighbours: str = "replace", beta: float = 0.5) -> None:
    """Refuse what has no pure local form, in one sentence each."""
    check_relation(neighbours, beta)
    if budget.kind != "pure":
        raise ValueError(f"local reports spend pure epsilon, got a {budget.kind} budget; state epsilon alone")
    unary_flips(budget.total("laplace"))


# Noise on every counter ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalLaplace:
    """Every user adds noise to every counter of her own tables: x + DLap(b_f), b_f = 2H/ε_f (rewards: ×units).

    Guarantee: ε-LDP for any two episodes, ε = Σ_f ε_f (local.md).   Width: `running_width`, all releases at once.
    Source: [QW23] §5.2, [BZZDTCC24] §5.2.
    Differs: (1) the printed scale, H/ε_f, forgets that two episodes may share no cell; `calibration="paper"` keeps it
    and reports what it gives: 2ε. (2) Integer noise, rewards on a grid. (3) Widths from the tails, not O(·).
    Cost: one draw per user and counter (`CHUNK` at a time); simulations draw the sum over users directly.
    """

    budget: Budget
    shares: Shares = None
    beta: float = 0.01
    calibration: Literal["true", "paper"] = "true"
    neighbours: Neighbours = "replace"
    mechanism: ClassVar[Mechanism] = "laplace"

    def __post_init__(self) -> None:
        check_local(self.budget, self.neighbours, self.beta)
        share_weights(self.shares)
        check_choice("calibration", self.calibration, "true", "paper")

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> LocalCounterStream:
        return LocalCounterStream(self, spec, num_episodes, noise)


@dataclass(frozen=True)
class LocalGaussian:
    """The same with discrete Gaussian noise, for budgets in ρ or (ε, δ): σ_f² = Δ_f²/(2ρ_f), Δ_f² = 2H (pooled 2H²).

    Guarantee: ρ-zCDP for any two episodes, ρ = Σ_f ρ_f, and the (ε, δ) that it implies (local.md).
    Width: `gaussian_running_width`, all releases at once.   Source: no paper has it; the noise is that of [CKS20].
    Cost: one draw per user and counter; simulations draw the sum over users.
    """

    budget: Budget
    shares: Shares = None
    beta: float = 0.01
    neighbours: Neighbours = "replace"
    mechanism: ClassVar[Mechanism] = "gaussian"
    calibration: ClassVar[Literal["true", "paper"]] = "true"

    def __post_init__(self) -> None:
        check_relation(self.neighbours, self.beta)
        share_weights(self.shares)
        self.budget.total("gaussian")  # refuses pure epsilon

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> LocalCounterStream:
        return LocalCounterStream(self, spec, num_episodes, noise)


@lru_cache(maxsize=256)
def summed_width(family: Family, num_terms: int, beta: float) -> float:
    """Width of running sums of local noise; the same few are asked for again whenever a stream is opened."""
    width = running_width if family.mechanism == "laplace" else gaussian_running_width
    return width(family.scale, num_terms, family.size, beta)


class CounterSums:
    """Sums of reports that carry noise on every counter: no raw number is held.

    Tables without a share of the budget are in no message, so that nothing of them can be kept or released.
    """

    def __init__(self, families: Sequence[Family], tables: Tables | LossTables, largest: int) -> None:
        """`largest`: what a counter of one user can be."""
        visits, transitions, others = (None if family.entry is None else family.scale for family in families)
        encoder = LaplaceEncoder if families[0].mechanism == "laplace" else GaussianEncoder
        self.encoder = encoder(tables, (visits, transitions, others))
        self._sizes, self._sent = tables.cells, np.repeat([f.entry is not None for f in families], tables.cells)
        # 64 scales are passed with probability e⁻⁶⁴ per counter, or less: room enough for honest reports.
        self._reach = math.ceil(largest + 64 * max(family.scale for family in families))
        self.totals: Ints = np.zeros(sum(self.encoder.sizes), dtype=np.int64)

    def add(self, raw: Ints, users: int, noise: NoiseSource) -> None:
        """So many users, each randomised as on her own device; the raw sums of all tables are not kept."""
        self.totals += raw[self._sent] + summed_noises(self.encoder, users, noise)

    def add_report(self, report: Report) -> None:
        values = self.encoder.values(report)
        if np.abs(values.astype(np.float64)).max() > self._reach:
            raise ValueError("a report holds a number that no honest device sends; nothing was added")
        totals = self.totals + values
        if np.abs(totals.astype(np.float64)).max() >= LARGEST_SUM:
            raise ValueError("the sums of the reports would overflow 64 bits; nothing was added")
        self.totals = totals

    def tables(self) -> list[Floats]:
        """The noisy sums of every table, flat; zeros of those that were not sent."""
        values = np.zeros(self._sent.size)
        values[self._sent] = self.totals
        return np.split(values, np.cumsum(self._sizes)[:-1])


class LocalCounterStream(Keeper):
    """Sums of randomised reports: noise is added before anything is kept."""

    def __init__(
        self, privatizer: LocalLaplace | LocalGaussian, spec: CountSpec, num_episodes: int, noise: NoiseSource
    ) -> None:
        printed, budget = privatizer.calibration == "paper", privatizer.budget
        self._spec, self._noise, self._beta, self._crowd = spec, noise, privatizer.beta, Crowd(num_episodes)
        self._families = calibrated(
            budget, privatizer.mechanism, "replace", spec, privatizer.shares, factor=1.0 if printed else None
        )
        self._reports = CounterSums(self._families, spec.tables, spec.horizon * spec.reward_units)
        self.encoder = self._reports.encoder
        spread = 64 * max(family.scale for family in self._families) * (math.sqrt(num_episodes) + 64)
        if num_episodes * spec.horizon * spec.reward_units + spread >= LARGEST_SUM:
            raise ValueError(
                f"{num_episodes} noisy reports on a reward grid of {spec.grid:g} could overflow 64-bit sums; "
                "use a coarser grid"
            )
        entries = [family.entry for family in self._families]
        if printed and budget.epsilon is not None:
            budget = Budget.pure(2.0 * budget.epsilon)
        self.guarantee = stated(entries, "local", "replace", budget, num_episodes, noise, ONE_REPORT)
        if printed:
            self.guarantee = as_printed(self.guarantee, privatizer.budget)
        self._widths = divided(
            self._families,
            self._beta,
            reward_rounding(spec, num_episodes),
            lambda family, beta: summed_width(family, num_episodes, beta),
        )

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before, each randomised as on her own device."""
        raw = RawSums(self._spec, self._crowd)
        users = raw.add(contribution)
        self._reports.add(raw.flat, users, self._noise)

    def add_report(self, report: Report) -> None:
        """One user's own message; a user who has already sent one, counted or refused, is refused."""
        self._crowd.claim(report.user)
        self._reports.add_report(report)
        self._crowd.size += 1

    def release(self) -> PrivateCounts:
        visits, transitions, rewards = (
            (table * family.unit).reshape(family.shape)
            for family, table in zip(self._families, self._reports.tables(), strict=True)
        )
        root = math.sqrt(self._crowd.size)
        deviations = natural(self._families, [root * family.deviation for family in self._families])
        tables = visits, transitions, rewards
        return released(self._spec, self._crowd.size, tables, self._widths, deviations, self._beta)


def sum_of_noises(scale: float, users: int, size: int, noise: NoiseSource, mechanism: Mechanism = "laplace") -> Ints:
    """Σ over users of independent noises of this scale, for `size` counters.

    Draws everybody's noise, `CHUNK` values at a time; a simulation with many users draws the sum: DLap(b) is a
    difference of two geometric numbers, so a sum of n is NB(n, 1−e^{−1/b}) − NB(n, 1−e^{−1/b}); n discrete Gaussian
    numbers of σ ≥ 3 add up to one of σ√n, to 10⁻³⁰ (local.md).
    """
    total = np.zeros(size, dtype=np.int64)
    if scale == 0.0:
        return total
    if noise.simulation and users >= COMPOUND:
        if mechanism == "laplace":
            two = noise.generator().negative_binomial(users, -math.expm1(-1.0 / scale), (2, size))
            return np.asarray(two[0] - two[1], dtype=np.int64)
        if scale >= SMOOTH and scale * math.sqrt(users) <= LARGEST_SCALE:
            return noise.gaussian(scale * math.sqrt(users), size)
    draw, rows = noise.laplace if mechanism == "laplace" else noise.gaussian, max(1, CHUNK // size)
    for start in range(0, users, rows):
        total += draw(scale, (min(rows, users - start), size)).sum(axis=0)
    return total


def summed_noises(encoder: LaplaceEncoder | GaussianEncoder, users: int, noise: NoiseSource) -> Ints:
    """The sum over `users` of their independent noises, one per counter."""
    mechanism: Mechanism = "laplace" if isinstance(encoder, LaplaceEncoder) else "gaussian"
    pairs = [(b, size) for b, size in zip(encoder.scales, encoder.sizes, strict=True) if b is not None]
    return np.concatenate([sum_of_noises(scale, users, size, noise, mechanism) for scale, size in pairs])


# One sampled step in unary encoding ---------------------------------------------------------------------------------


def _decay(epsilon: float) -> Fraction:
    """A little above e^−ε; 2⁻⁵⁰ of ε is left for rounding the cost up to a float."""
    _, upper = exponential_bounds(Fraction(epsilon) * (1 - Fraction(1, 2**50)), 192)
    return Fraction(upper, 2**192)


@lru_cache(maxsize=4096)
def unary_flips(epsilon: float) -> int:
    """f with q = f/2⁶⁴ just above 1/(e^ε+1), so that ln((1−q)/q) ≤ ε for the q that is used; 0 for ε = ∞."""
    if epsilon == math.inf:
        return 0
    x = _decay(epsilon)  # 1/(e^ε+1) = x/(1+x), increasing in x
    flips = math.ceil(2**64 * x / (1 + x))
    if flips >= 2**63:
        raise ValueError(f"epsilon is {epsilon}; one bit cannot be randomised so finely, it must be at least 1e-18")
    return flips


@lru_cache(maxsize=4096)
def kept_words(epsilon: float, answers: int) -> int:
    """w with w/2⁶⁴ just below (e^ε−1)/(e^ε−1+D): the share of users who tell the truth outright, of D answers."""
    if epsilon == math.inf:
        return 2**64 - 1
    x = _decay(epsilon)
    return min(math.floor(2**64 * (1 - x) / (1 - x + answers * x)), 2**64 - 1)


def unary_entry(encoder: SampledEncoder) -> LedgerEntry:
    """One step in unary encoding, at the cost of the q that is used."""
    q = encoder.share
    spread = math.sqrt(q * (1.0 - q)) / (0.5 - q)
    return LedgerEntry("steps", "optimised-unary-encoding", "l1", 2.0, spread, 1, encoder.epsilon)


def summed_messages(encoder: SampledEncoder | ReportEncoder, answers: Ints, noise: NoiseSource) -> Ints:
    """How often each item was named in the messages of users with these answers (−1: none).

    Draws every message, `CHUNK` words at a time. A simulation with many users draws what they add up to, of the same
    law: unary, Bin(c, ½) + Bin(n−c, q) where c users have the item; response, Bin(c, w) truthful ones for every
    answer and the others spread evenly over all answers.
    """
    n, size, unary = answers.size, encoder.num_items, encoder.method == "unary"
    if noise.simulation and n >= COMPOUND:
        generator = noise.generator()
        own = np.bincount(np.where(answers < 0, size, answers), minlength=size + 1)
        if unary:
            return generator.binomial(own[:size], 0.5) + generator.binomial(n - own[:size], encoder.share)
        truthful = generator.binomial(own, encoder.share)
        others = generator.multinomial(n - truthful.sum(), np.full(size + 1, 1.0 / (size + 1)))
        return np.asarray((truthful + others)[:size], dtype=np.int64)
    total = np.zeros(size + 1, dtype=np.int64)
    rows = max(1, CHUNK // size)
    for start in range(0, n, rows):
        messages = encoder.randomise(answers[start : start + rows], noise)
        if unary:
            total[:size] += messages.sum(axis=0)
        else:
            total += np.bincount(messages, minlength=size + 1)
    return total[:size]


@dataclass(frozen=True)
class LocalSampled:
    """Every user sends one step of her episode, drawn by her own coin, as one item in optimised unary encoding.

    N̂(g,s,a,s',bit) = H·(on − n·q)/(½ − q), q = 1/(e^ε+1); visits, transitions and rewards are sums of it.
    `deviations` are those of a cell nobody visited; sampling one step adds at most H·√n/(1 − 2q).
    Guarantee: ε-LDP for any two episodes (local.md).   Width: `sampled_width`, all releases at once.
    Source: optimised unary encoding [WBLJ17]; one step instead of all H: ours.   Differs: q is rounded up to a
    multiple of 2⁻⁶⁴ and charged at what it is.
    Cost: one word per user and item (`CHUNK` at a time); simulations draw two binomials per item.
    """

    budget: Budget
    beta: float = 0.01
    neighbours: Neighbours = "replace"

    def __post_init__(self) -> None:
        check_local(self.budget, self.neighbours, self.beta)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> LocalSampledStream:
        return LocalSampledStream(self, spec, num_episodes, noise)


class LocalSampledStream(Keeper):
    """How often each bit was on. Holds no raw number."""

    def __init__(self, privatizer: LocalSampled, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        self._spec, self._noise, self._beta, self._crowd = spec, noise, privatizer.beta, Crowd(num_episodes)
        self.encoder = SampledEncoder(spec.tables, unary_flips(privatizer.budget.total("laplace")))
        self._ons = np.zeros(self.encoder.num_items, dtype=np.int64)
        self._share = q = self.encoder.share
        self._factor = spec.horizon / (0.5 - q)
        entry, budget = unary_entry(self.encoder), privatizer.budget
        self.guarantee = stated([entry], "local", "replace", budget, num_episodes, noise, ONE_REPORT)
        S = spec.num_states
        self._blocks = 2 * S, 2, S  # items behind one counter of visits, transitions, rewards
        visits, transitions, rewards = (
            self._factor * sampled_width(q, num_episodes, block, size, self._beta / 3)
            for block, size in zip(self._blocks, spec.sizes, strict=True)
        )
        self._widths = PerTable(visits, transitions, rewards + reward_rounding(spec, num_episodes) * spec.grid)

    def add(self, contribution: Episodes | Counts) -> None:
        """Users who have not been seen before, each randomised as on her own device."""
        if not isinstance(contribution, Episodes):
            raise TypeError("one step is drawn per user, so this stream takes Episodes and cannot take Counts")
        n = len(contribution)
        self._crowd.check(n)
        episodes = self._spec.readable(contribution)
        items = self._spec.tables.items(episodes.states, episodes.actions, episodes.rewards, self._noise)
        items = np.append(items, np.full(episodes.silent, -1, dtype=np.int64))
        self._ons += summed_messages(self.encoder, items, self._noise)
        self._crowd.size += n

    def add_report(self, report: Report) -> None:
        """One user's own message; a user who has already sent one, counted or refused, is refused."""
        self._crowd.claim(report.user)
        self._ons += self.encoder.values(report)
        self._crowd.size += 1

    def release(self) -> PrivateCounts:
        G, S, A = self._spec.stages, self._spec.num_states, self._spec.num_actions
        n, q = self._crowd.size, self._share
        steps = (self._factor * (self._ons - n * q)).reshape(G, S, A, S, 2)
        transitions = steps.sum(axis=-1)
        tables = transitions.sum(axis=-1), transitions, steps[..., 1].sum(axis=-1)
        deviations = PerTable(*(self._factor * math.sqrt(n * block * q * (1.0 - q)) for block in self._blocks))
        return released(self._spec, n, tables, self._widths, deviations, self._beta)


def _log_moment(p: float, s: float) -> float:
    """ln E exp(s·(X − p)) of X ~ Bernoulli(p)."""
    return math.log1p(p * math.expm1(s)) - s * p


def _worst_log_moment(low: float, s: float) -> float:
    """max over p in [low, ½] of `_log_moment(p, s)`: concave in p with its top at 1/s − 1/(e^s − 1)."""
    top = 0.5 - s / 12.0 if abs(s) < 1e-4 else 1.0 / s - 1.0 / math.expm1(s)
    return _log_moment(min(max(top, low), 0.5), s)


@lru_cache(maxsize=256)
def sampled_width(q: float, users: int, block: int, counters: int, beta: float) -> float:
    """e with P(some counter, at some time, is off by more than e) ≤ β; a counter is a sum over `block` items.

    Its bits that are on number Bin(n·(block−1), q) + Σ_i Bernoulli(p_i), p_i in [q, ½] unknown; with Λ(s) the largest
    log-moment of one user, exp(s·error_k − k·Λ(s)) is a supermartingale, hence (Ville)
    e = max over signs of min_{s>0} [n·Λ(±s) + ln(2·counters/β)]/s.  In units of bits.
    """
    surprise = math.log(2.0 * counters / beta)

    def bound(sign: float) -> float:
        def objective(log_s: float) -> float:
            s = sign * math.exp(log_s)
            rate = (block - 1) * _log_moment(q, s) + _worst_log_moment(q, s)
            return (users * rate + surprise) / abs(s)

        return _least(objective, -30.0, 5.0)

    return max(bound(1.0), bound(-1.0))


def _least(objective: Callable[[float], float], low: float, high: float) -> float:
    """The least value found by a grid and a golden-section search; every point gives a valid bound."""
    points = np.linspace(low, high, 141)
    values = [objective(float(x)) for x in points]
    best = int(np.argmin(values))
    a, b = float(points[max(best - 1, 0)]), float(points[min(best + 1, points.size - 1)])
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    least = values[best]
    for _ in range(40):
        left, right = b - golden * (b - a), a + golden * (b - a)
        at_left, at_right = objective(left), objective(right)
        least = min(least, at_left, at_right)
        a, b = (a, right) if at_left <= at_right else (left, b)
    return least
