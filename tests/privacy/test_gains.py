"""One bounded number per person: brute-force sensitivities, laws, and readings of the releases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from discreet.agents.practice import AS_NOW, commonest, cuts, returns, shares
from discreet.kernels.gains import stepwise_gains, whole_weights
from discreet.privacy.noise import DiscreteLaplace, NoiseSource
from discreet.privacy.trust.gains import RETURN_BINS, UNITS, GainChoice, GainMoments, ReturnHistogram
from discreet.releases.trees import ColumnTree, PrivateTree

WILD = np.array([-np.inf, -1e300, -9.0, -4.0, -2.0, -1.0, -0.3, 0.0, 0.4, 1.0, 1.7, 30.0, 1e300, np.inf, np.nan])


@pytest.mark.parametrize("caution", [0.0, 0.002, 1.0])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_utilities_of_two_policies_move_against_each_other_by_at_most_the_span(caution, neighbours):
    """All pairs of persons and of policies, "as now" with its score of 0 included; numbers that are none as well."""
    choice = GainChoice(0.5, caution, neighbours)
    each = choice.utilities(WILD, 1.0)
    assert each.dtype == np.int64
    persons = [(0, a, b) for a, b in itertools.product(each, repeat=2)]
    gone = [(0, 0, 0)] if neighbours == "zero-out" else persons
    worst = max(np.ptp(np.subtract(p, q)) for p in persons for q in gone)
    assert worst <= choice.span
    assert worst >= (0.99 if caution < 0.01 else 0.8) * choice.span  # with caution no utility reaches 1
    assert choice.entry().cost == pytest.approx(0.5, rel=1e-8)
    assert choice.entry().cost <= 0.5


def test_the_caution_takes_off_squares_in_units_of_c():
    choice = GainChoice(1.0, 0.1)
    np.testing.assert_array_equal(
        choice.utilities(np.array([6.0, 3.0, -6.0, -60.0]), 6.0),
        np.rint(np.array([0.9, 0.5 - 0.025, -1.1, -2.4]) * UNITS),
    )


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_moments_move_by_at_most_what_is_charged(neighbours):
    moments = GainMoments(0.6, 0.4, neighbours=neighbours)
    alone = GainMoments(math.inf, math.inf)
    sums = np.array([alone.release(np.array([t]), 1.0, NoiseSource.seeded(0))[:2] for t in WILD])
    other = sums if neighbours == "replace" else np.zeros((1, 2))
    moved = np.abs(sums[:, None] - other[None]).max(axis=(0, 1)) * UNITS
    assert moved[0] == moments.reach[0]
    assert moved[1] <= moments.reach[1]
    assert sum(entry.cost for entry in moments.entries()) == pytest.approx(1.0, rel=1e-8)


def test_moments_have_the_noise_that_the_ledger_charges():
    moments = GainMoments(0.6, 0.4)
    drawn = np.array([moments.release(np.zeros(1), 1.0, NoiseSource.seeded(s)) for s in range(4000)])
    for column, scale in enumerate(moments.scales):
        law = DiscreteLaplace(scale)
        assert stats.kstest(drawn[:, column] * UNITS, lambda x, law=law: 1.0 - law.tail(x)).pvalue > 1e-3
        off = DiscreteLaplace(1.3 * scale)
        assert stats.kstest(drawn[:, column] * UNITS, lambda x, law=off: 1.0 - law.tail(x)).pvalue < 1e-6


def test_a_person_is_one_item_of_the_returns():
    plain = ReturnHistogram(math.inf)
    found = [plain.release(np.array([x]), -1.0, 1.0, NoiseSource.seeded(0)) for x in (*WILD, 0.99)]
    assert all(f.sum() == 1.0 and f.max() == 1.0 for f in found)
    noisy = ReturnHistogram(0.2)
    assert noisy.entry().sensitivity == 2.0
    assert noisy.entry().cost == pytest.approx(0.2, rel=1e-8)
    assert ReturnHistogram(0.2, neighbours="zero-out").entry().sensitivity == 1.0
    assert ReturnHistogram(0.2, "gaussian").entry().sensitivity == pytest.approx(math.sqrt(2.0))
    assert (noisy.release(np.zeros(0), 0.0, 1.0, NoiseSource.seeded(1)) != 0).sum() > RETURN_BINS // 2


def test_the_choice_takes_the_better_policy_and_none_where_all_are_worse():
    rng = np.random.default_rng(0)
    better, worse = rng.normal(0.3, 0.5, 3000), rng.normal(-0.3, 0.5, 3000)
    choice = GainChoice(1.0, 0.03)
    assert all(choice.choose([worse, better], 1.0, NoiseSource.seeded(s)) == 2 for s in range(20))
    assert all(choice.choose([worse, worse], 1.0, NoiseSource.seeded(s)) == 0 for s in range(20))


# Weights ------------------------------------------------------------------------------------------------------------


def test_gains_of_a_stay_by_hand():
    """Two stays: steps 0, 1, 2 and step 0 alone; α = ½."""
    ends, step = np.array([3, 4]), np.array([0, 1, 2, 0])
    reward, ratio = np.array([1.0, 0.0, 0.5, 0.2]), np.array([2.0, 0.0, 1.0, 4.0])
    rest = np.array([0.0, 0.3])
    found = np.empty(2)
    stepwise_gains(ends, step, reward, ratio, rest, 0.5, 2, 3, 0.4, found)
    w = np.array([1.5, 0.5, 1.0])
    first = (w[0] * w[1] - 1) * (1.5 - 1.2) + (w[1] * w[2] - 1) * (0.5 - 0.8) + (w[2] - 1) * (0.5 - 0.4)
    np.testing.assert_allclose(found, [first / (0.5 * 2), (2.5 - 1) * (0.5 - 1.2) / (0.5 * 2)])
    weights, totals = np.empty(2), np.empty(2)
    whole_weights(ends, reward, ratio, rest, 0.5, weights, totals)
    np.testing.assert_allclose(weights, [0.75, 2.5])
    np.testing.assert_allclose(totals, [1.5, 0.5])


# Readings -----------------------------------------------------------------------------------------------------------


def test_an_action_leads_or_people_do_as_now():
    tree = ColumnTree(np.array([0]), np.array([3]))
    found = PrivateTree(tree, np.array([[50.0, 40.0, 0.0], [50.0, 20.0, -9.0]]), 12.0)
    np.testing.assert_array_equal(commonest(found), [AS_NOW, 0])
    p = shares(found)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert p.min() > 0.015
    assert p[1, 0] > 0.55


def test_returns_are_read_from_the_bins_that_stand_out():
    counts = np.zeros(RETURN_BINS)
    counts[[8, 24]] = 100.0
    counts[3] = 14.0  # below 1.5 deviations of its noise
    found = returns(counts, 0.0, 1.0, 10.0)
    assert found.mean == pytest.approx(0.515625)
    assert found.deviation == pytest.approx(math.hypot(0.25, 1 / 32 / math.sqrt(12)))
    assert returns(np.full(RETURN_BINS, -1.0), 0.0, 2.0, 1.0) == (1.0, 0.5)


def test_a_grid_of_a_trees_thresholds_has_its_leaves():
    rng = np.random.default_rng(4)
    for _ in range(50):
        columns = rng.integers(0, 3, 7)
        thresholds = np.where(columns == 2, -1 - rng.integers(0, 11, 7), rng.integers(0, 9, 7))  # names alone
        tree = ColumnTree(columns, thresholds)
        found = cuts(tree, (10, 10, 10))
        assert all(0 <= cut < 10 for part in found.thresholds for cut in part)
        bins = rng.integers(0, 11, (300, 3)).astype(np.uint8)
        places = [np.searchsorted(part, bins[:, c], side="left") for c, part in enumerate(found.thresholds)]
        shape = [len(part) + 1 for part in found.thresholds]
        np.testing.assert_array_equal(found.leaf[np.ravel_multi_index(places, shape)], tree.leaves(bins))


def test_trees_are_full():
    with pytest.raises(ValueError, match="2\\^D − 1 splits"):
        ColumnTree(np.array([0, 1]), np.array([0, 1]))
