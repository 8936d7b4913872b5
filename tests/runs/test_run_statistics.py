"""Statistics over seeds against known numbers, brute force and scipy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from discreet.runs import statistics
from discreet.runs.statistics import Improvement, Interval, Variation, bootstrap, improvement, paired

NUMBERS = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


def test_a_variation_by_hand():
    found = Variation.of([4.0, 1.0, 2.0, 100.0, 3.0, 5.0, 6.0, 7.0])
    assert (found.mean, found.median, found.worst) == (16.0, 4.5, 100.0)
    assert found.sd == pytest.approx(34.0)
    assert found.iqm == 4.5  # of 3, 4, 5, 6: the two smallest and the two largest are left out
    assert Variation.of([2.0]).sd is None
    assert Variation.of([2.0]).interval is None
    with pytest.raises(ValueError, match="no values to summarise; expected at least one"):
        Variation.of([])


@given(NUMBERS)
def test_the_interquartile_mean_is_the_trimmed_mean_of_scipy(values):
    expected = scipy.stats.trim_mean(values, 0.25)
    assert statistics.interquartile_mean(values) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_statistics_work_on_every_row():
    table = np.arange(24.0).reshape(2, 3, 4)
    for of in (statistics.mean, statistics.median, statistics.worst, statistics.interquartile_mean):
        assert of(table).shape == (2, 3)
        assert of(table)[1, 2] == of(table[1, 2])


def test_a_bootstrap_interval_has_the_quantiles_of_all_resamples():
    """Three scores have 27 resamples, all equally likely."""
    values = np.array([0.0, 1.0, 10.0])
    every = [np.mean(drawn) for drawn in itertools.product(values, repeat=3)]
    low, high = np.quantile(every, [0.1, 0.9], method="inverted_cdf")
    assert bootstrap([values], statistics.mean, level=0.8, resamples=20_000) == pytest.approx((low, high), abs=1e-12)


def test_strata_are_resampled_by_themselves():
    """Two constant environments: every resample has both, so nothing varies, where a plain bootstrap would."""
    assert bootstrap([[0.0] * 4, [1.0] * 4], statistics.mean) == (0.5, 0.5)
    plain = bootstrap([[0.0] * 4 + [1.0] * 4], statistics.mean)
    assert plain is not None
    assert plain.low < 0.3 < 0.7 < plain.high


def test_strata_by_brute_force():
    """Two and two scores: 4 × 4 resamples of their mean."""
    first, second = [0.0, 1.0], [10.0, 14.0]
    every = [np.mean(a + b) for a in itertools.product(first, repeat=2) for b in itertools.product(second, repeat=2)]
    found = bootstrap([first, second], statistics.mean, level=0.6, resamples=40_000)
    expected = np.quantile(every, [0.2, 0.8], method="inverted_cdf")
    assert found == pytest.approx(tuple(expected), abs=1e-12)


def test_an_interval_agrees_with_scipy():
    values = np.random.default_rng(3).gamma(2.0, size=20)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    ours = bootstrap([values], statistics.mean, resamples=20_000)
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.02 * width)


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        strata = [generator.normal(place, 1.0, size=12) for place in (0.0, 5.0)]
        found = bootstrap(strata, statistics.mean, level=0.9, resamples=400)
        assert found is not None
        covered += found.low <= 2.5 <= found.high
    assert 0.80 <= covered / 300 <= 0.94  # percentile intervals of 12 seeds are a little too short


def test_intervals_do_not_change_between_calls_nor_with_the_memory_at_hand(monkeypatch):
    strata = [np.arange(9.0), np.arange(5.0) ** 2]
    first = bootstrap(strata)
    assert first == bootstrap(strata)
    assert first != bootstrap(strata, seed=1)
    whole = bootstrap(strata[:1], resamples=1000)
    monkeypatch.setattr(statistics, "_ENTRIES", 90)
    assert bootstrap(strata[:1], resamples=1000) == whole


@pytest.mark.parametrize("bad", [[], [[]], [[1.0], []], [1.0, 2.0]])
def test_an_empty_stratum_is_refused(bad):
    with pytest.raises(ValueError, match="every stratum must be a list of at least one score"):
        bootstrap(bad)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_outside_of_0_and_1_is_refused(level):
    with pytest.raises(ValueError, match="it must lie strictly between 0 and 1"):
        bootstrap([[1.0, 2.0]], level=level)


def test_seeds_are_paired_within_environments():
    ours = {"a": {0: 1.0, 1: 2.0, 7: 100.0}, "b": {0: 5.0}, "only ours": {0: -9.0}}
    theirs = {"a": {1: 2.5, 0: 3.0, 8: -100.0}, "b": {0: 4.0}, "only theirs": {0: -9.0}}
    found = paired(ours, theirs)
    assert found is not None
    assert (found.pairs, found.mean, found.median) == (3, pytest.approx(-0.5), -0.5)  # of −2, −0.5 and 1
    assert found.interval is not None
    assert found.interval == pytest.approx((-1.0, 0.0))  # ½·(−2−2)+1 and ½·(−.5−.5)+1 over three, the extremes
    assert paired({"a": {0: 1.0}}, {"a": {1: 1.0}}) is None
    assert paired({"a": {0: 1.0}}, {"b": {0: 1.0}}) is None


def test_pairing_removes_what_two_runs_of_a_seed_share():
    luck = np.random.default_rng(0).normal(0, 10, size=15)
    ours = {"a": {seed: float(x) - 1.0 for seed, x in enumerate(luck)}}
    theirs = {"a": {seed: float(x) for seed, x in enumerate(luck)}}
    found = paired(ours, theirs)
    assert found is not None
    assert found.interval == pytest.approx((-1.0, -1.0))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_the_probability_of_improvement_is_that_of_mann_and_whitney(x, y):
    ours, theirs = ({"a": {seed: float(v) for seed, v in enumerate(values)}} for values in (x, y))
    found = improvement(ours, theirs, resamples=10)
    assert found is not None
    brute = np.mean([(a < b) + 0.5 * (a == b) for a in x for b in y])
    assert found.probability == pytest.approx(brute, abs=1e-12)
    u = scipy.stats.mannwhitneyu(y, x).statistic
    assert found.probability == pytest.approx(u / (len(x) * len(y)), abs=1e-12)
    turned = improvement(theirs, ours, resamples=10)
    assert turned is not None
    assert turned.probability == pytest.approx(1 - found.probability, abs=1e-12)


def test_environments_count_alike_in_a_probability():
    ours = {"a": {0: 0.0, 1: 0.0, 2: 0.0}, "b": {0: 1.0}}
    theirs = {"a": {0: 1.0, 1: 1.0, 2: 1.0}, "b": {0: 0.0}}
    assert improvement(ours, theirs) == Improvement(0.5, Interval(0.5, 0.5), 2)
    assert improvement(ours, {"c": {0: 1.0}}) is None


def test_the_interval_of_a_probability_by_brute_force():
    x, y = [0.0, 2.0], [1.0, 3.0]
    every = [
        np.mean([a < b for a in drawn for b in others])
        for drawn in itertools.product(x, repeat=2)
        for others in itertools.product(y, repeat=2)
    ]
    expected = np.quantile(every, [0.1, 0.9], method="inverted_cdf")
    ours, theirs = ({"a": dict(enumerate(values))} for values in (x, y))
    found = improvement(ours, theirs, level=0.8, resamples=40_000)
    assert found is not None
    assert found.probability == 0.75
    assert found.interval == pytest.approx(tuple(expected), abs=1e-12)
