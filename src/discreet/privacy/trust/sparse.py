"""A noisy histogram of steps of which only what is above a public threshold is ever drawn. Proof: sparse.md."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from discreet.mdp import Ints
from discreet.people.counting import OneStep, StepItems
from discreet.people.counts import CountSpec
from discreet.privacy.accounting import Guarantee, Mechanism
from discreet.privacy.excess import excess
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.one_hot import HistogramStream, OneHot, Settled, Tilted
from discreet.releases.sparse import SparseHistogram, SparseItems

#: Of a cell with so many items: the threshold in standard deviations of the noise on one.
ThresholdOf = Callable[[int], float]


class SparseStream(HistogramStream[StepItems, tuple[Ints, Ints], SparseHistogram]):
    """What rises above the thresholds when every item carries noise."""

    def __init__(
        self,
        one_hot: OneHot,
        spec: CountSpec,
        items: SparseItems,
        num_users: int,
        noise: NoiseSource,
        thresholds: ThresholdOf,
    ) -> None:
        super().__init__(one_hot, spec, items, num_users, noise)
        self._items, self._thresholds = items, thresholds

    def _tables(self, counts: StepItems) -> tuple[Ints, Ints]:
        if counts.codes.min(initial=0) < 0 or counts.codes.max(initial=0) >= self._spec.sizes[1]:
            raise ValueError("the counts have steps that do not exist within the declared bounds")
        return counts.numbers, counts.paid

    def _items_of(self, counts: StepItems) -> tuple[Ints, Ints]:
        return item_counts(counts, self._spec, self._items)

    def _drawn(self, raw: tuple[Ints, Ints]) -> SparseHistogram:
        return released(*raw, self._items, self._law, self._thresholds, self._noise)


def tilted_release(
    tilted: Tilted, users: OneStep, spec: CountSpec, items: SparseItems, noise: NoiseSource, thresholds: ThresholdOf
) -> tuple[SparseHistogram, dict[str, Guarantee]]:
    """One step per user: the pilot's release, then what rises above the thresholds."""
    reports, main, parts = tilted.reports(users, spec, noise)
    law = tilted.settled(main, spec, users.num_users)
    return released(*item_counts(reports, spec, items), items, law, thresholds, noise), parts


def item_counts(counts: StepItems, spec: CountSpec, items: SparseItems) -> tuple[Ints, Ints]:
    """(codes, grid units) of items with anybody in them, in order: 1 − r to "not paid", r to "paid", as
    `one_hot._items`."""
    Y, A, S = spec.num_states, spec.num_actions, items.num_states
    order = np.argsort(counts.codes)
    pair, after = _divided(counts.codes[order], Y)
    row, action = _divided(pair, A)
    stage, state = _divided(row, Y)
    if not items.pooled:
        after = np.where(stage == items.stages - 1, 0, after)
    paid = np.zeros_like(counts.paid) if items.known_rewards else counts.paid
    unpaid = ((stage * S + state) * A + action) * Y + after
    units = np.stack([counts.numbers * spec.reward_units - paid, paid], axis=1)[order]
    real = state < S
    unpaid, units = unpaid[real], units[real]
    first = np.flatnonzero(np.diff(unpaid, prepend=-1))  # steps that are one item are next to each other
    units = np.add.reduceat(units, first, axis=0) if first.size else units
    codes = 2 * unpaid[first, None] + np.arange(2)
    occurring = units > 0
    return codes[occurring], units[occurring]


def _divided(x: Ints, by: int) -> tuple[Ints, Ints]:
    """As divmod, in half the time."""
    times = x // by
    return times, x - by * times


def released(
    codes: Ints, counts: Ints, items: SparseItems, law: Settled, thresholds: ThresholdOf, noise: NoiseSource
) -> SparseHistogram:
    """The law of: noise on every item, then everything that is not above its cell's threshold is forgotten."""
    mechanism, scale, grid = law.mechanism, law.scale, law.spec.grid
    levels = [thresholds(group.each) * math.sqrt(law.variance) for group in items.groups]
    found: list[tuple[Ints, Ints]] = []
    for group, level in zip(items.groups, levels, strict=True):
        threshold = math.floor(level / grid)  # grids are powers of two: x·grid > level if and only if x > threshold
        places = group.places(codes)
        there = places >= 0
        kept, values = above_threshold(places[there], counts[there], group.size, mechanism, scale, threshold, noise)
        found.append((group.codes(kept), values))
    held, values = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.argsort(held, kind="stable")  # quick where parts are in order
    return SparseHistogram(
        items,
        held[order],
        values[order].astype(np.float64) * grid,
        items.per_cell(levels),
        law.num_users,
        law.variance,
        law.width(1, items.num_items),
        law.beta,
        law.tilted,
    )


def above_threshold(
    places: Ints, counts: Ints, size: int, mechanism: Mechanism, scale: float, threshold: int, noise: NoiseSource
) -> tuple[Ints, Ints]:
    """(places, noisy counts) above the threshold, of `size` items of which those at `places`, in order, have these
    counts and all others 0."""
    noisy = counts + (noise.laplace if mechanism == "laplace" else noise.gaussian)(scale, counts.size)
    empty, values = excess(noise, mechanism, scale, threshold, size)
    free = np.searchsorted(places, empty) == np.searchsorted(places, empty, side="right")
    return (
        np.concatenate([places[noisy > threshold], empty[free]]),
        np.concatenate([noisy[noisy > threshold], values[free]]),
    )
