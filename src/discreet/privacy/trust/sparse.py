"""A noisy histogram of steps of which only what is above a public threshold is ever drawn. Proof: sparse.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from discreet.mdp import Ints
from discreet.people.counting import OneStep, StepItems
from discreet.people.counts import CountSpec
from discreet.privacy.accounting import Guarantee
from discreet.privacy.excess import excess
from discreet.privacy.families import Mechanism
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.tails import gaussian_union_width, laplace_union_width
from discreet.privacy.trust.one_hot import OneHot, Tilted
from discreet.releases.sparse import SparseHistogram, SparseItems

#: Of a cell with so many items: the threshold in standard deviations of the noise on one.
Thresholds = Callable[[int], float]


class SparseStream:
    """Takes what occurred, once, and gives out what rises above the thresholds when every item carries noise."""

    def __init__(
        self,
        one_hot: OneHot,
        spec: CountSpec,
        items: SparseItems,
        num_users: int,
        noise: NoiseSource,
        thresholds: Thresholds,
    ) -> None:
        assert one_hot.mechanism is not None
        if items.num_successors != spec.num_states or items.pooled != spec.pooled:
            raise ValueError(f"the items have {items.num_states} states; the counts have {spec.num_states}")
        entry = one_hot.entry(spec)
        self._one_hot, self._spec, self._items, self._noise = one_hot, spec, items, noise
        self._mechanism, self._scale, self._limit = one_hot.mechanism, entry.scale, num_users
        self._thresholds = thresholds
        self.guarantee = one_hot.guarantee(entry, num_users, noise)
        self.ledger = self.guarantee.entries
        self._raw: tuple[Ints, Ints] | None = None
        self._last: SparseHistogram | None = None

    def add(self, counts: StepItems) -> None:
        """What occurred to all users, once."""
        if self._raw is not None or self._last is not None:
            raise ValueError("the users have been added; every user may be released only once")
        spec, one_hot = self._spec, self._one_hot
        if counts.num_users > self._limit or counts.episodes_per_user > one_hot.episodes_per_user:
            raise ValueError(
                f"the counts are of {counts.num_users} users with up to {counts.episodes_per_user} episodes; "
                f"declared were {self._limit} with {one_hot.episodes_per_user}"
            )
        if one_hot.first_visits and not counts.first_visits:
            raise ValueError("the noise is for first visits, but the counts are of all visits")
        T, R = counts.numbers, counts.paid
        steps = counts.num_episodes * spec.horizon
        if (
            T.min(initial=0) < 0
            or R.min(initial=0) < 0
            or T.sum() > steps
            or (T * spec.reward_units < R).any()
            or counts.codes.min(initial=0) < 0
            or counts.codes.max(initial=0) >= math.prod(spec.shapes()["transitions"])
        ):
            raise ValueError(f"the counts are not those of {counts.num_users} users within the declared bounds")
        self._raw = item_counts(counts, spec, self._items)

    def release(self) -> SparseHistogram:
        """Drawn once; the raw counts are gone afterwards."""
        if self._last is None:
            if self._raw is None:
                raise ValueError("no user has been added; add all users before the one release")
            (codes, counts), self._raw = self._raw, None
            self._last = released(
                codes,
                counts,
                self._items,
                self._mechanism,
                self._scale,
                self._spec.grid,
                self._thresholds,
                self._limit,
                self._one_hot.beta,
                self._noise,
            )
        return self._last

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream holds raw counts and cannot be pickled or copied")

    def __repr__(self) -> str:
        return f"SparseStream({self._limit} users)"


def tilted_release(
    tilted: Tilted, users: OneStep, spec: CountSpec, items: SparseItems, noise: NoiseSource, thresholds: Thresholds
) -> tuple[SparseHistogram, dict[str, Guarantee]]:
    """One step per user: the pilot's release, then what rises above the thresholds."""
    reports, main, parts = tilted.reports(users, spec, noise)
    codes, counts = item_counts(reports, spec, items)
    limits = (users.num_users, tilted.beta, noise)
    return released(codes, counts, items, "laplace", main.scale, spec.grid, thresholds, *limits, tilted=True), parts


def item_counts(counts: StepItems, spec: CountSpec, items: SparseItems) -> tuple[Ints, Ints]:
    """(codes, grid units) of items with anybody in them: 1 − r to "not paid", r to "paid", as `one_hot._items`."""
    Y, A, S = spec.num_states, spec.num_actions, items.num_states
    pair, after = counts.codes // Y, counts.codes % Y
    state, action, stage = pair // A % Y, pair % A, pair // (A * Y)
    real = state < S
    if not items.pooled:
        after = np.where(stage == items.stages - 1, 0, after)
    cell = (stage * S + state) * A + action
    unpaid = (cell * Y + after) * 2
    paid = np.zeros_like(counts.paid) if items.known_rewards else counts.paid
    codes = np.concatenate([unpaid[real], unpaid[real] + 1])
    units = np.concatenate([(counts.numbers * spec.reward_units - paid)[real], paid[real]])
    occurring = units > 0
    codes, where = np.unique(codes[occurring], return_inverse=True)
    sums = np.zeros(codes.size, dtype=np.int64)
    np.add.at(sums, where, units[occurring])
    return codes, sums


def released(
    codes: Ints,
    counts: Ints,
    items: SparseItems,
    mechanism: Mechanism,
    scale: float,
    grid: float,
    thresholds: Thresholds,
    num_users: int,
    beta: float,
    noise: NoiseSource,
    tilted: bool = False,
) -> SparseHistogram:
    """The law of: noise on every item, then everything that is not above its cell's threshold is forgotten."""
    law = None if scale == 0.0 else (DiscreteLaplace if mechanism == "laplace" else DiscreteGaussian)(scale)
    variance = 0.0 if law is None else law.variance * grid * grid
    levels = [thresholds(group.each) * math.sqrt(variance) for group in items.groups]
    found: list[tuple[Ints, Ints]] = []
    for group, level in zip(items.groups, levels, strict=True):
        threshold = math.floor(level / grid)  # grids are powers of two: x·grid > level if and only if x > threshold
        places = group.places(codes)
        there = places >= 0
        kept, values = above_threshold(places[there], counts[there], group.size, mechanism, scale, threshold, noise)
        found.append((group.codes(kept), values))
    held, values = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(held)
    width = 0.0
    if scale > 0.0:
        union = laplace_union_width if mechanism == "laplace" else gaussian_union_width
        width = union(scale, [1], [1.0], items.num_items, beta / 2.0) * grid
    return SparseHistogram(
        items,
        held[order],
        values[order].astype(np.float64) * grid,
        items.per_cell(levels),
        num_users,
        variance,
        width,
        beta,
        tilted,
    )


def above_threshold(
    places: Ints, counts: Ints, size: int, mechanism: Mechanism, scale: float, threshold: int, noise: NoiseSource
) -> tuple[Ints, Ints]:
    """(places, noisy counts) above the threshold, of `size` items of which those at `places` have these counts and
    all others 0."""
    noisy = counts + (noise.laplace if mechanism == "laplace" else noise.gaussian)(scale, counts.size)
    empty, values = excess(noise, mechanism, scale, threshold, size)
    free = ~np.isin(empty, places)
    return (
        np.concatenate([places[noisy > threshold], empty[free]]),
        np.concatenate([noisy[noisy > threshold], values[free]]),
    )
