"""Exact accounting of shuffled bits, against enumeration in fractions, dp-accounting, and known numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.privacy import binomial
from discreet.privacy.binomial import (
    composed_loss,
    delta_of,
    epsilon_of,
    fewest_fair_bits,
    least_probability,
    loss_delta,
    printed_bits,
    two_sided_quantile,
)
from oracles_shuffle import accountant_epsilon, basic_bits, exact_delta


@pytest.mark.parametrize(
    ("bits", "probability", "down", "up"),
    [
        (1, Fraction(1, 2), 1, 0),
        (5, Fraction(1, 4), 1, 0),
        (9, Fraction(1, 8), 0, 1),
        (6, Fraction(1, 2), 1, 1),
        (7, Fraction(1, 4), 1, 1),
        (7, Fraction(1, 4), 2, 0),
        (5, Fraction(1, 2), 2, 2),
        (5, Fraction(1, 4), 2, 2),
        (4, Fraction(1, 8), 3, 1),
        (6, Fraction(1, 4), 0, 3),
    ],
)
def test_divergences_by_enumeration(bits, probability, down, up):
    """Never below the truth; equal to it up to two counters, within the fineness of the grid beyond."""
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        truth = exact_delta(bits, probability, down, up, epsilon)
        found = delta_of(bits, float(probability), down, up, epsilon)
        assert truth <= found <= truth * (1.0 + (2e-9 if down + up <= 2 else 0.02)) + 1e-15


def test_both_directions_count():
    """For p ≠ ½ a falling bit is seen more easily than a rising one, or the other way round, depending on ε."""
    falling, rising = (loss_delta(composed_loss(40, 0.1, *changes), 0.5) for changes in ((1, 0), (0, 1)))
    assert abs(falling / rising - 1.0) > 0.1
    assert delta_of(40, 0.1, 1, 0, 0.5) == delta_of(40, 0.1, 0, 1, 0.5) >= 0.99 * max(falling, rising)


def test_certain_loss_is_counted():
    """All noise bits 1: the largest count shows the user. At any ε, δ is at least that mass, once per counter."""
    assert delta_of(3, 0.5, 1, 0, 50.0) == pytest.approx(1 / 8, rel=1e-8)
    assert delta_of(3, 0.25, 1, 0, 50.0) == pytest.approx(0.75**3, rel=1e-8)
    assert delta_of(20, 0.5, 2, 2, 50.0) == pytest.approx(4 * 2.0**-20, rel=1e-3)


def test_a_grid_keeps_both_masses_and_never_lowers_delta():
    loss, mass, infinite = binomial._losses(200, 0.3, True)
    for step in (0.3, 0.01):
        grid = binomial._on_grid(loss, mass, infinite, step)
        points = (grid.start + np.arange(grid.mass.size)) * step
        assert grid.mass.sum() == pytest.approx(mass.sum(), rel=1e-13)
        assert grid.mass @ np.exp(-points) == pytest.approx(mass @ np.exp(-loss), rel=1e-12)
        for epsilon in np.linspace(-1, 1, 21):
            exact = infinite + float(mass @ np.maximum(0.0, -np.expm1(epsilon - loss)))
            assert loss_delta(grid, float(epsilon)) >= exact


@pytest.mark.parametrize(
    ("bits", "probability", "changed"), [(1288, 0.5, 9), (2148, 0.5, 15), (20_000, 0.0164, 9), (400, 0.5, 2)]
)
def test_agrees_with_dp_accounting(bits, probability, changed):
    """Theirs rounds every loss up to its grid: at most one step per changed counter."""
    step = 2e-4
    theirs = accountant_epsilon(bits, probability, changed, 1e-6, step)
    ours = epsilon_of(bits, probability, changed, changed, 1e-6)
    assert ours <= theirs * (1 + 2e-3)
    assert theirs - 2 * changed * step <= ours


def test_known_fair_bits():
    assert [fewest_fair_bits(1, 1, e, 1e-6) for e in (0.5, 1.0, 2.0, 4.0)] == [524, 148, 45, 22]
    assert [fewest_fair_bits(1, 0, e, 1e-6) for e in (1.0, 0.3)] == [80, 683]
    assert fewest_fair_bits(1, 0, 0.1, 1e-6) == pytest.approx(5279, rel=1 / 4096)
    assert 1270 <= fewest_fair_bits(9, 9, 1.0, 1e-6) <= 1288
    assert 2120 <= fewest_fair_bits(15, 15, 1.0, 1e-6) <= 2148
    assert basic_bits(9, 9, 1.0, 1e-6) == pytest.approx(22_096, rel=1e-3)
    assert printed_bits(1.0, 1e-6) == math.ceil(96 * math.log(2e6))


def test_noise_is_four_and_fifteen_times_below_what_basic_composition_needs():
    exact = math.sqrt(fewest_fair_bits(9, 9, 1.0, 1e-6))
    assert math.sqrt(basic_bits(9, 9, 1.0, 1e-6)) >= 4.0 * exact
    assert math.sqrt(basic_bits(9, 9, 1.0, 1e-6, printed=True)) >= 15.0 * exact


@pytest.mark.parametrize(("down", "up", "epsilon"), [(1, 1, 1.0), (2, 2, 0.5), (9, 9, 1.0), (9, 0, 2.0)])
def test_calibrated_noise_is_enough_and_the_least(down, up, epsilon):
    delta = 1e-6
    fair = fewest_fair_bits(down, up, epsilon, delta)
    slack = max(1, fair // 2048)
    assert delta_of(fair, 0.5, down, up, epsilon) <= delta < delta_of(fair - slack, 0.5, down, up, epsilon)
    for bits in (fair, 3 * fair, 100 * fair):
        p = least_probability(bits, down, up, epsilon, delta)
        assert 0.0 < p <= 0.5
        assert delta_of(bits, p, down, up, epsilon) <= delta < delta_of(bits, 0.997 * p, down, up, epsilon)


@settings(max_examples=40, deadline=None)
@given(
    bits=st.integers(2, 300),
    probability=st.floats(0.02, 0.5),
    down=st.integers(0, 4),
    up=st.integers(0, 4),
    epsilon=st.floats(0.05, 3.0),
)
def test_delta_falls_with_epsilon_and_bits_and_rises_with_changes(bits, probability, down, up, epsilon):
    if down + up == 0:
        down = 1
    here = delta_of(bits, probability, down, up, epsilon)
    assert 0.0 < here <= 1.0
    assert delta_of(bits, probability, down, up, epsilon + 0.3) <= here * (1 + 1e-6)
    assert delta_of(bits + 40, probability, down, up, epsilon) <= here * 1.02 + 1e-12
    assert delta_of(bits, probability, down + 1, up, epsilon) >= here * 0.98
    assert delta_of(bits, probability, down, up, epsilon) == delta_of(bits, probability, up, down, epsilon)


def test_epsilon_and_delta_are_inverse():
    for bits, p, changed in ((300, 0.5, 2), (5000, 0.05, 9)):
        epsilon = epsilon_of(bits, p, changed, changed, 1e-6)
        assert delta_of(bits, p, changed, changed, epsilon) <= 1e-6 * 1.0001
        assert delta_of(bits, p, changed, changed, 0.99 * epsilon) > 1e-6
    assert epsilon_of(10, 0.5, 1, 1, 1e-6) == math.inf  # 2·2⁻¹⁰ of certain loss


def test_widths_are_exact_tails():
    for parts, share in (([(1288, 0.5)], 1e-4), ([(50_000, 0.006)], 1e-7), ([(300, 0.5), (900, 0.2)], 1e-3)):
        e = two_sided_quantile(parts, share)
        mean = sum(n * p for n, p in parts)
        if len(parts) == 1:
            n, p = parts[0]
            law = stats.binom.pmf(np.arange(n + 1), n, p)
        else:
            law = np.convolve(*(stats.binom.pmf(np.arange(n + 1), n, p) for n, p in parts))
        distance = np.abs(np.arange(law.size) - mean)
        assert law[distance > e + 1e-9].sum() <= share < law[distance > e - 1.01].sum()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: delta_of(0, 0.5, 1, 1, 1.0), "at least one noise bit"),
        (lambda: delta_of(5, 0.6, 1, 1, 1.0), r"\(0, ½\]"),
        (lambda: delta_of(5, 0.5, 0, 0, 1.0), "not both 0"),
        (lambda: fewest_fair_bits(1, 1, 1.0, 0.0), "delta is 0.0"),
        (lambda: fewest_fair_bits(1, 1, 0.0, 1e-6), "no finite noise"),
        (lambda: fewest_fair_bits(1, 1, math.inf, 1e-6), "finite"),
        (lambda: least_probability(147, 1, 1, 1.0, 1e-6), "148 are needed"),
    ],
)
def test_bad_requests_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
