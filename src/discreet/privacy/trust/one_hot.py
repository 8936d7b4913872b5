"""Steps as one-hot items, one histogram, one noise per item: offline learning. Proof: one_hot.md."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.people.counting import OneStep, StepCounts, StepItems
from discreet.people.counts import Counts, CountSpec, Sensitivity
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Mechanism, Neighbours
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.families import check_common, chosen_mechanism, noise_width, paid, variance_of
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import stated
from discreet.releases.histograms import PrivateHistogram
from discreet.releases.items import Items, StepSpace

Counted = TypeVar("Counted", StepCounts, StepItems)
Raw = TypeVar("Raw")
Release = TypeVar("Release")

#: Of the key under which users toss their coins.
KEY_WORDS = 4


@dataclass(frozen=True)
class OneHot:
    """All steps of all users as items (g, s, a, s', paid); one noise of scale 2H/ε, or σ² = H/ρ, per item.

    A step that paid r adds 1 − r to "not paid" and r to "paid": its L1 norm is 1 whatever r is, so one family carries
    visits, transitions and rewards at the price of one. Gaussian noise on pooled counts needs counts of first visits
    (`StepCounts.first_visits`), or pays for H visits to one cell.

    Guarantee: central DP with the stated budget per user, one_hot.md.   Width: exact tails.
    Source: ours.   Cost: one draw per item.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    mechanism: Mechanism | None = None
    beta: float = 0.01
    episodes_per_user: int = 1
    first_visits: bool = False

    def __post_init__(self) -> None:
        check_common(self.neighbours, self.beta, self.episodes_per_user)
        object.__setattr__(self, "mechanism", chosen_mechanism(self.budget, self.mechanism))

    def sensitivity(self, spec: CountSpec, steps: int | None = None) -> Sensitivity:
        """In grid units, of one episode of at most `steps` counted steps (default: the horizon)."""
        piled = spec.pooled and not self.first_visits
        l1, l2 = Counts.sensitivity(steps or spec.horizon, self.neighbours, piled)
        return Sensitivity(l1 * spec.reward_units, l2 * spec.reward_units)

    def entry(self, spec: CountSpec, name: str = "steps", steps: int | None = None) -> LedgerEntry:
        """What one episode costs, at a scale that pays for all episodes of a user."""
        assert self.mechanism is not None
        moved, budget = self.sensitivity(spec, steps), self.budget.total(self.mechanism)
        return paid(name, self.mechanism, moved, budget, episodes_per_user=self.episodes_per_user)

    def guarantee(self, entry: LedgerEntry, num_users: int, noise: NoiseSource, *others: str) -> Guarantee:
        each, relation = self.episodes_per_user, self.neighbours
        return stated(
            [entry], "central", relation, self.budget, num_users * each, noise, *others, episodes_per_user=each
        )

    def open(self, spec: CountSpec, cells: Items, num_users: int, noise: NoiseSource) -> OneHotStream:
        return OneHotStream(self, spec, cells, num_users, noise)


def _noisy(histogram: Ints, cells: Items, mechanism: Mechanism, scale: float, noise: NoiseSource) -> Ints:
    """Fresh noise on every item that exists, visited or not; the raw histogram is overwritten."""
    sample = noise.laplace if mechanism == "laplace" else noise.gaussian
    if bool(cells.admitted.all()):
        histogram += sample(scale, histogram.shape)
        return histogram
    histogram[~cells.admitted] = 0
    histogram[cells.admitted] += sample(scale, int(cells.admitted.sum()))
    return histogram


class Settled(NamedTuple):
    """What is settled before anybody's data are seen: the noise, what it is on, and how many users there are."""

    mechanism: Mechanism
    scale: float
    spec: CountSpec
    num_users: int
    beta: float
    tilted: bool = False

    @property
    def variance(self) -> float:
        """Of the noise on one item, in steps."""
        return variance_of(self.mechanism, self.scale) * self.spec.grid * self.spec.grid

    def width(self, terms: int, sums: int) -> float:
        """Of so many sums of so many noises together, in steps, with probability 1 − beta/2."""
        if self.scale == 0.0:
            return 0.0
        return noise_width(self.mechanism, self.scale, (terms,), (1.0,), sums, self.beta / 2.0) * self.spec.grid


def released(raw: Ints, cells: Items, law: Settled, noise: NoiseSource) -> PrivateHistogram:
    noisy = _noisy(raw, cells, law.mechanism, law.scale, noise)
    width, total = law.width(1, int(cells.admitted.sum())), law.width(int(cells.sizes.max()), cells.num_cells)
    values = noisy.astype(np.float64) * law.spec.grid
    return PrivateHistogram(cells, values, law.num_users, law.variance, width, total, law.beta, law.tilted)


class HistogramStream(Keeper, ABC, Generic[Counted, Raw, Release]):
    """Takes what all users did, once, and gives out one noisy histogram of it, drawn once."""

    def __init__(
        self, one_hot: OneHot, spec: CountSpec, items: StepSpace, num_users: int, noise: NoiseSource
    ) -> None:
        assert one_hot.mechanism is not None
        if items.num_successors != spec.num_states or items.pooled != spec.pooled:
            raise ValueError(f"the items have {items.num_states} states; the counts have {spec.num_states}")
        entry = one_hot.entry(spec)
        self._one_hot, self._spec, self._noise, self._crowd = one_hot, spec, noise, Crowd(num_users, "users")
        self._law = Settled(one_hot.mechanism, entry.scale, spec, num_users, one_hot.beta)
        self.guarantee = one_hot.guarantee(entry, num_users, noise)
        self._raw: Raw | None = None
        self._last: Release | None = None

    def add(self, counts: Counted) -> None:
        """What all users did, once."""
        if self._raw is not None or self._last is not None:
            raise ValueError("the users have been added; every user may be released only once")
        self._crowd.check(counts.num_users)
        if counts.episodes_per_user > self._one_hot.episodes_per_user:
            raise ValueError(
                f"the counts are of users with up to {counts.episodes_per_user} episodes; "
                f"{self._one_hot.episodes_per_user} were declared"
            )
        if self._one_hot.first_visits and not counts.first_visits:
            raise ValueError("the noise is for first visits, but the counts are of all visits")
        T, R = self._tables(counts)
        steps, units = counts.num_episodes * self._spec.horizon, self._spec.reward_units
        if T.min(initial=0) < 0 or R.min(initial=0) < 0 or T.sum() > steps or (T * units < R).any():
            raise ValueError(f"the counts are not those of {counts.num_users} users within the declared bounds")
        self._raw = self._items_of(counts)
        self._crowd.size += counts.num_users

    def release(self) -> Release:
        """Drawn once; what was raw is gone afterwards."""
        if self._last is None:
            if self._raw is None:
                raise ValueError("no user has been added; add all users before the one release")
            raw, self._raw = self._raw, None
            self._last = self._drawn(raw)
        return self._last

    @abstractmethod
    def _tables(self, counts: Counted) -> tuple[Ints, Ints]:
        """Numbers of steps and what they paid, refused if they are of another problem."""

    @abstractmethod
    def _items_of(self, counts: Counted) -> Raw: ...
    @abstractmethod
    def _drawn(self, raw: Raw) -> Release: ...


class OneHotStream(HistogramStream[StepCounts, Ints, PrivateHistogram]):
    """All items, those that nobody has included."""

    def __init__(self, one_hot: OneHot, spec: CountSpec, cells: Items, num_users: int, noise: NoiseSource) -> None:
        super().__init__(one_hot, spec, cells, num_users, noise)
        self._cells = cells

    def _tables(self, counts: StepCounts) -> tuple[Ints, Ints]:
        T, R, expected = counts.transitions, counts.reward_sums, self._spec.shapes()["transitions"]
        if T.shape != expected or R.shape != expected:
            raise ValueError(f"the counts have shape {T.shape}; expected {expected}")
        return T, R

    def _items_of(self, counts: StepCounts) -> Ints:
        return _items(counts.transitions, counts.reward_sums, self._spec.reward_units, self._cells)

    def _drawn(self, raw: Ints) -> PrivateHistogram:
        return released(raw, self._cells, self._law, self._noise)


def _items(T: Ints, R: Ints, units: int, cells: Items) -> Ints:
    """(C, 2Y) grid units: 1 − r to "not paid", r to "paid"; everything to "not paid" where nothing else exists."""
    S, Y = cells.num_states, cells.num_successors
    histogram = np.empty((cells.stages, S, cells.num_actions, Y, 2), dtype=np.int64)
    np.multiply(T[:, :S], units, out=histogram[..., 0])
    histogram[..., 1] = R[:, :S]
    flat = histogram.reshape(cells.num_cells, Y, 2)
    admitted = cells.admitted.reshape(cells.num_cells, Y, 2)
    unpaid = admitted[..., 0] & ~admitted[..., 1]
    if not cells.pooled:
        last = histogram[-1]
        last[:, :, 0, :] = last.sum(axis=2)
        last[:, :, 1:, :] = 0
    flat[..., 1][unpaid] = 0
    flat[..., 0] -= flat[..., 1]
    return flat.reshape(cells.num_cells, 2 * Y)


# One step per user, where the data are thin ------------------------------------------------------------------------


@dataclass(frozen=True)
class Tilted:
    """A small part of the users shows where visits are; each of the others reports one step, preferably a rare one.

    Pilot users (each with probability `pilot`) report (g, s, a) of one uniformly random step; the other users walk
    through their episode and report step h = 0, 1, … with probability min(1, w(cell)/(H − h)), then stop. The
    weights are a function of the pilot's release. Noise 2/ε per item in both parts, which share no user. Coins are
    those of `people.one_step.OneStep`, under a key drawn for this release.

    Guarantee: central ε-DP per user, one_hot.md.   Source: ours.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    beta: float = 0.01
    episodes_per_user: int = 1
    pilot: float = 0.1

    def __post_init__(self) -> None:
        check_common(self.neighbours, self.beta, self.episodes_per_user)
        if self.budget.kind != "pure":
            raise ValueError(
                f"tilted reports spend pure epsilon, got a {self.budget.kind} budget; state epsilon alone"
            )
        if not 0.0 < self.pilot < 1.0:
            raise ValueError(f"pilot is {self.pilot}; it must lie strictly between 0 and 1")

    def release(
        self, users: OneStep, spec: CountSpec, cells: Items, noise: NoiseSource
    ) -> tuple[PrivateHistogram, dict[str, Guarantee]]:
        """Both parts, one after the other, and the guarantee of either; for all users the worse of the two holds."""
        reports, main, parts = self.reports(users, spec, noise)
        counts = reports.table(spec)
        items = _items(counts.transitions, counts.reward_sums, spec.reward_units, cells)
        return released(items, cells, self.settled(main, spec, users.num_users), noise), parts

    def settled(self, main: LedgerEntry, spec: CountSpec, num_users: int) -> Settled:
        return Settled("laplace", main.scale, spec, num_users, self.beta, tilted=True)

    def reports(
        self, users: OneStep, spec: CountSpec, noise: NoiseSource
    ) -> tuple[StepItems, LedgerEntry, dict[str, Guarantee]]:
        """(what is reported, without noise; the ledger line that the noise on it must have; guarantees)."""
        each = OneHot(self.budget, self.neighbours, "laplace", self.beta, self.episodes_per_user)
        one = replace(spec, grid=1.0)  # the pilot counts whole steps
        pilot, main = each.entry(one, "pilot steps", 1), each.entry(spec, "reported steps", 1)
        public = "weights of steps depend on the pilot's release only"
        parts = {
            "pilot users": each.guarantee(pilot, users.num_users, noise, public),
            "other users": each.guarantee(main, users.num_users, noise, public),
        }
        users.ask(noise.words(KEY_WORDS).tobytes().hex(), self.pilot)
        visits = users.visits()
        noisy = (visits + noise.laplace(pilot.scale, visits.size)).astype(np.float64)
        deviation = math.sqrt(variance_of("laplace", pilot.scale))
        pilots = round(self.pilot * users.num_users) * self.episodes_per_user
        return users.reports(tilted_weights(noisy, deviation, pilots, spec.horizon)), main, parts


def tilted_weights(visits: Floats, deviation: float, num_users: int, horizon: int) -> Floats:
    """w = min(H, κ/μ), κ so that Σ μ·w = H, from a noisy pilot: about equally many reports from every cell.

    μ = visits per user. Cells that do not stand out of the pilot's noise share what is left of H, at least 2 %.
    """
    rate = horizon / max(num_users, 1)
    seen = visits > 2.0 * deviation
    mu = np.where(seen, visits * rate, 0.0)
    unseen = int((~seen).sum())
    if unseen:
        rest = max(horizon - float(mu.sum()), 0.02 * horizon)
        mu[~seen] = rest / unseen
    mu *= horizon / mu.sum()
    low, high = 0.0, horizon * float(mu.max())
    for _ in range(100):  # Σ min(μ·H, κ) grows with κ
        kappa = 0.5 * (low + high)
        if float(np.minimum(mu * horizon, kappa).sum()) > horizon:
            high = kappa
        else:
            low = kappa
    return np.minimum(float(horizon), low / mu)
