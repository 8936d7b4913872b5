"""Epochs: whom they hold, when windows restart, and what is remembered."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.people.counts import Counts, CountSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.families import union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.epochs import Epochs, block_of, window_width
from discreet.privacy.sums.sums import cells_of_counters, windowed
from oracles_streams import RecordedNoise, TaggedNoise, random_episodes, stacked

SPEC = CountSpec(2, 2, 2, pooled=False, grid=0.25)


def test_an_epoch_gets_one_fresh_noise_per_counter_and_its_raw_sums_are_forgotten():
    noise = TaggedNoise()
    stream = Epochs(Budget.pure(1.0)).open(SPEC, 20, noise)
    users = random_episodes(SPEC, 10)
    tag = 0
    for t in range(5):
        for user in users[2 * t : 2 * t + 2]:
            stream.add(user)
        release = stream.release()
        tag += 1 << t
        exact = Counts.of(stacked(users[: 2 * t + 2]), SPEC)
        assert (release.visits == exact.visits + tag).all()
        assert (release.transitions == exact.transitions + tag).all()
        assert (release.reward_sums / SPEC.grid == exact.reward_sums + tag).all()
        assert not stream._sums.flat.any()
        assert release.deviations.visits == pytest.approx(math.sqrt(t + 1) * stream._families[0].deviation)
    assert set(noise.draws.values()) == {5}


def test_windows_restart_cell_by_cell_as_an_obvious_loop_says():
    noise = RecordedNoise(NoiseSource.seeded(8))
    stream = Epochs(Budget.pure(20.0), window="restart").open(SPEC, 400, noise)
    rng = np.random.default_rng(0)
    history: list[list[np.ndarray]] = []
    starts = np.zeros(SPEC.shapes()["visits"], dtype=int)
    restarted = 0
    for t in range(12):
        users = random_episodes(SPEC, int(rng.integers(1, 40)), seed=t)
        stream.add(stacked(users))
        before = len(noise.drawn)
        release = stream.release()
        block = np.concatenate([drawn[0] for _, drawn in noise.drawn[before:]])
        parts = np.split(block, np.cumsum([8, 16])[:2])
        noisy = [
            table + part.reshape(table.shape)
            for (_, table), part in zip(Counts.of(stacked(users), SPEC).tables(), parts, strict=True)
        ]
        history.append(noisy)
        for cell in np.ndindex(*starts.shape):
            old = sum(int(epoch[0][cell]) for epoch in history[starts[cell] : t])
            new = int(noisy[0][cell])
            if t and new > (old + new) / math.sqrt(t + 1 - starts[cell]):
                starts[cell] = t
                restarted += 1
            window = history[starts[cell] :]
            assert release.visits[cell] == sum(int(epoch[0][cell]) for epoch in window)
            assert (release.transitions[cell] == sum(epoch[1][cell] for epoch in window)).all()
            assert release.reward_sums[cell] == sum(int(epoch[2][cell]) for epoch in window) * SPEC.grid
            length = math.sqrt(len(window))
            assert release.deviations.visits[cell] == pytest.approx(length * stream._families[0].deviation)
            assert release.deviations.transitions[cell] == pytest.approx(length * stream._families[1].deviation)
    assert 0 < restarted < 11 * starts.size
    assert release.widths.transitions.shape == release.transitions.shape


@given(st.integers(1, 5000))
def test_blocks_tile_the_numbers(number):
    block = block_of(number)
    assert block.first <= number <= block.last
    assert block.first == 1 or block_of(block.first - 1).rank == block.rank - 1
    assert block.last <= max(block.first, 1.15 * block.first)


def test_failure_probabilities_of_all_windows_add_up_to_beta():
    """Shares of blocks of lengths and of starting points, summed far out: below one, close to one."""
    ranks = [block_of(n) for n in range(1, 2000)]
    lengths = sum(1.0 / (b.rank * (b.rank + 1)) for b in set(ranks))
    digits = [n.bit_length() for n in range(1, 2**16)]
    starts = sum(1.0 / (i * (i + 1) * 2 ** (i - 1)) for i in digits)
    assert 0.95 < lengths < 1.0
    assert 0.9 < starts < 1.0


def test_widths_by_hand():
    family = Epochs(Budget.pure(1.0)).families(SPEC)[0]
    assert window_width(family, block_of(3), None, 0.01) == union_width(family, [3], [1.0], 0.01 / 12)
    first = block_of(20)
    assert first.size > 1
    expected = union_width(family, [first.last], [2.0], 0.01 / (first.rank * (first.rank + 1)))
    assert window_width(family, first, None, 0.01) == expected
    assert window_width(family, block_of(3), 1, 0.01) == union_width(family, [3], [1.0], 0.01 / 12 / 2)
    later = window_width(family, block_of(3), 5, 0.01)  # starts 4..7 share 1/12
    assert later == union_width(family, [3], [1.0], 0.01 / 12 / (12 * 4))


def test_an_unknown_window_is_refused():
    with pytest.raises(ValueError, match="'all' or 'restart'"):
        Epochs(Budget.pure(1.0), window="sliding")


@pytest.mark.parametrize("variance", [1.0, 7.5])
def test_a_cell_starts_again_where_the_newest_block_alone_stands_out_more(variance):
    """The rule by definition, one cell after the other; its transitions and rewards follow its visits."""
    spec = CountSpec(3, 2, 2, pooled=False)
    cell_of = cells_of_counters(spec)
    rng = np.random.default_rng(4)
    old, new = rng.integers(-20, 60, (2, cell_of.size))
    held = variance * rng.integers(1, 6, 12)
    sums, variances, restart = windowed(old, new, held, variance, cell_of)
    better = [new[c] / math.sqrt(variance) > (old[c] + new[c]) / math.sqrt(held[c] + variance) for c in range(12)]
    assert restart.tolist() == better
    assert 0 < sum(better) < 12
    for counter, cell in enumerate(cell_of):
        assert sums[counter] == (new[counter] if better[cell] else old[counter] + new[counter])
    assert variances.tolist() == [variance if b else v + variance for b, v in zip(better, held, strict=True)]
    every = windowed(old, new, held, variance, None)
    assert np.array_equal(every[0], old + new)
    assert not every[2].any()
