"""Tails and widths against repeated convolution, published numbers, and laws."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from discreet.privacy import tails
from discreet.privacy.tails import (
    adaptive_width,
    exponent_grid,
    gaussian_running_width,
    gaussian_union_width,
    laplace_log_tails,
    laplace_union_width,
    log_moments,
    running_width,
    symmetric_matrix_width,
    vector_width,
)
from oracles_privacy import (
    gaussian_pmf,
    gaussian_tree_width,
    laplace_pmf,
    popcount_classes,
    sum_pmf,
    tree_width,
    upper_tail,
    weighted_width,
)


def enumerated(num_prefixes):
    return Counter(t.bit_count() for t in range(1, num_prefixes + 1))


class TestLaplaceTails:
    @pytest.mark.parametrize("scale", [0.2, 1.0, 7.0])
    @pytest.mark.parametrize("terms", [1, 2, 3, 10])
    def test_equal_to_convolution_and_never_below(self, scale, terms):
        pmf = sum_pmf(laplace_pmf(scale, int(60 * scale) + 30), terms)
        tail = laplace_log_tails([terms], scale)
        for x in (1, 2, 3, 5, 10, 40, 100):
            exact = upper_tail(pmf, x)
            if exact > 1e-14:
                bound = math.exp(float(tail(float(x))[0]))
                assert exact * (1 - 1e-12) <= bound <= exact * (1 + 1e-8)

    @pytest.mark.parametrize(("terms", "scale"), [(70, 3.0), (200, 0.15), (300, 1.0)])
    def test_many_terms_equal_to_convolution(self, terms, scale):
        pmf = sum_pmf(laplace_pmf(scale, int(50 * scale) + 20), terms)
        tail = laplace_log_tails([terms], scale)
        deviation = math.sqrt(float(pmf @ (np.arange(len(pmf)) - len(pmf) // 2) ** 2))
        for x in {math.ceil(k * deviation) for k in (1.1, 2, 3, 5, 7)}:
            exact = upper_tail(pmf, x)
            if exact > 1e-14:
                assert exact * (1 - 1e-12) <= math.exp(float(tail(float(x))[0])) <= exact * (1 + 1e-7)

    @pytest.mark.parametrize("scale", [0.05, 0.5, 30.0, 999.0, 1001.0, 1e6, 1e12])
    @pytest.mark.parametrize("terms", [40, 65, 128, 1000])
    def test_two_derivations_agree(self, terms, scale):
        """The finite sum and the contour integral have nothing in common but the law."""
        finite, contour = tails._closed_form([terms], scale), tails._contour(terms, scale)
        deviation = math.sqrt(terms * 0.5) / math.sinh(0.5 / scale)
        for k in (1.5, 4.0, 10.0, 30.0):
            x = float(math.ceil(k * deviation))
            assert contour(x) == pytest.approx(float(finite(x)[0]), abs=1e-8)

    def test_continuous_limit(self):
        """P(S_j > x) = e^{−x} Σ_{a<j} Σ_{i≤a} x^{a−i}/((a−i)! i!)·Γ(j+i)/(Γ(j)2^{j+i}) for unit scale."""
        scale = 1e9
        for j in (1, 2, 5, 15):
            for x in (0.5, 3.0, 20.0):
                exact = math.exp(-x) * math.fsum(
                    x ** (a - i)
                    / math.factorial(a - i)
                    / math.factorial(i)
                    * math.gamma(j + i)
                    / math.gamma(j)
                    / 2 ** (j + i)
                    for a in range(j)
                    for i in range(a + 1)
                )
                assert math.exp(float(laplace_log_tails([j], scale)(x * scale)[0])) == pytest.approx(exact, rel=1e-7)

    def test_order_of_terms_is_kept(self):
        tail = laplace_log_tails([100, 2, 300, 1], 5.0)(200.0)
        for value, j in zip(tail, [100, 2, 300, 1], strict=True):
            assert value == laplace_log_tails([j], 5.0)(200.0)[0]


class TestPublishedNumbers:
    """ε=1, S=5, A=2, H=5, β=0.01 in three equal shares, the 250 counters of transitions, replace, K−1 prefixes."""

    counters, beta = 5 * 5 * 5 * 2, 0.01 / 3

    @pytest.mark.parametrize(("episodes", "expected"), [(10**2, 4506), (10**3, 8121), (10**4, 13543), (10**5, 19129)])
    def test_tree(self, episodes, expected):
        scale = 6 * 5 * (episodes - 1).bit_length()
        assert tree_width(scale, episodes - 1, self.counters, self.beta) == expected

    @pytest.mark.parametrize(("episodes", "exact"), [(10**2, 1941), (10**3, 6053), (10**4, 19111), (10**5, 60427)])
    def test_local(self, episodes, exact):
        assert running_width(30.0, episodes - 1, self.counters, self.beta) == exact

    @pytest.mark.parametrize(("blocks", "exact"), [(14, 805), (50, 1405), (100, 1951), (200, 2731)])
    def test_blocks(self, blocks, exact):
        assert running_width(30.0, blocks, self.counters, self.beta) == exact

    def test_gaussian_tree(self):
        sigma = math.sqrt(3 * 5 * 14 / 0.02436)
        assert gaussian_tree_width(sigma, 9_999, self.counters, self.beta) == 1673


class TestLaplaceWidths:
    @pytest.mark.parametrize("prefixes", [1, 2, 3, 7, 8, 100, 255, 256, 1000, 4097])
    def test_classes_of_prefixes(self, prefixes):
        classes, occurrences = popcount_classes(prefixes)
        assert dict(zip(classes, occurrences, strict=True)) == dict(enumerated(prefixes))

    def test_classes_of_astronomically_many_prefixes(self):
        assert sum(popcount_classes(10**18)[1]) == 10**18

    @pytest.mark.parametrize("prefixes", [1, 5, 12])
    @pytest.mark.parametrize("scale", [0.3, 4.0])
    def test_tree_width_is_the_least_whole_number_that_works(self, prefixes, scale):
        e = int(tree_width(scale, prefixes, 9, 0.02))
        laws = {j: sum_pmf(laplace_pmf(scale, 250), j) for j in enumerated(prefixes)}

        def failure(width):
            return 9 * sum(n * 2 * upper_tail(laws[j], width + 1) for j, n in enumerated(prefixes).items())

        assert failure(e) <= 0.02 < failure(e - 1)

    @given(st.floats(0.1, 1e6), st.integers(1, 10**6), st.integers(1, 10**6), st.floats(1e-9, 0.5))
    def test_widths_grow_with_noise_length_counters_and_confidence(self, scale, length, counters, beta):
        for width in (tree_width, running_width):
            e = width(scale, length, counters, beta)
            assert e == math.floor(e) or e > 2**52
            assert e <= width(1.3 * scale, length, counters, beta)
            assert e <= width(scale, length, 3 * counters, beta)
            assert e <= width(scale, length, counters, beta / 3)
            assert e <= width(scale, 2 * length + 1, counters, beta)

    def test_no_noise_no_width(self):
        assert tree_width(0.0, 10, 5, 0.1) == 0.0
        assert running_width(0.0, 10, 5, 0.1) == 0.0
        assert gaussian_tree_width(0.0, 10, 5, 0.1) == 0.0

    @pytest.mark.parametrize(
        "arguments",
        [
            (1.0, 0, 5, 0.1),
            (1.0, 2.5, 5, 0.1),
            (-1.0, 3, 5, 0.1),
            (math.nan, 3, 5, 0.1),
            (1.0, 3, 0, 0.1),
            (1.0, 3, 5, 0.0),
            (1.0, 3, 5, 1.0),
        ],
    )
    def test_senseless_questions_are_refused(self, arguments):
        scale, terms, *rest = arguments
        with pytest.raises(ValueError):
            running_width(*arguments)
        with pytest.raises(ValueError):
            laplace_union_width(scale, [terms], [1.0], *rest)
        if terms == 3:
            with pytest.raises(ValueError):
                gaussian_union_width(scale, [terms], [1.0], *rest)


class TestWeightedAndAdaptive:
    def test_equal_weights_are_the_chernoff_bound_of_continuous_noise(self):
        n, b, counters, beta = 20, 30.0, 250, 0.01
        x = weighted_width([b] * n, counters, beta)
        s = (math.sqrt(n * n + (x / b) ** 2) - n) / x
        assert -s * x - n * math.log1p(-((s * b) ** 2)) == pytest.approx(math.log(beta / (2 * counters)), abs=1e-6)

    def test_weights_matter_only_through_the_scales(self):
        assert weighted_width([3.0, -2.0, 0.0], 5, 0.1) == pytest.approx(weighted_width([2.0, 3.0], 5, 0.1))

    def test_moments_bound_those_of_discrete_noise(self):
        grid = exponent_grid(0.5, 8.0, 100)
        for scale in (0.5, 2.0, 8.0):
            reach = int(300 * scale)
            pmf, values = laplace_pmf(scale, reach), np.arange(-reach, reach + 1)
            for s, bound in zip(grid, log_moments(scale, grid), strict=True):
                if s * scale < 0.9:
                    assert math.log(float(np.exp(s * values) @ pmf)) <= bound + 1e-12
        assert np.all(np.isinf(log_moments(8.0, grid)[grid * 8.0 >= 1.0]))

    def test_price_of_adaptivity_is_small_when_scales_happen_to_be_equal(self):
        scales = np.full(14, 30.0)
        grid = exponent_grid(1.0, 100.0, 20)
        e = float(adaptive_width(log_moments(scales, grid).sum(axis=1), grid, 250, 0.01, num_prefixes=1000))
        best = weighted_width(scales, 250, 0.01, num_prefixes=1000)
        assert best < e < 1.25 * best

    def test_one_width_per_cell(self):
        grid = exponent_grid(1.0, 100.0, 20)
        scales = np.array([[3.0, 50.0], [4.0, 60.0], [5.0, 70.0]])  # nodes × cells
        both = adaptive_width(log_moments(scales, grid).sum(axis=1), grid, 2, 0.05)
        each = [adaptive_width(log_moments(scales[:, c], grid).sum(axis=1), grid, 2, 0.05) for c in (0, 1)]
        np.testing.assert_allclose(both, each)

    @pytest.mark.parametrize("arguments", [(0.0, 1.0, 3), (2.0, 1.0, 3), (1.0, math.inf, 3), (1.0, 2.0, 0)])
    def test_senseless_grids_are_refused(self, arguments):
        with pytest.raises(ValueError):
            exponent_grid(*arguments)


class TestGaussianWidths:
    def test_one_shot_quantile(self):
        assert gaussian_running_width(3.0, 1, 40, 0.01) == math.ceil(3.0 * stats.norm.isf(0.01 / 80))

    @pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 6.0])
    @pytest.mark.parametrize("terms", [1, 2, 7])
    def test_discrete_noise_stays_inside_and_the_width_is_nearly_the_least(self, sigma, terms):
        """At most one more than needed; two more for noise that is nearly always 0 (Chernoff bound)."""
        counters, beta = 5, 1e-3
        e = int(gaussian_union_width(sigma, [terms], [1.0], counters, beta))
        law = sum_pmf(gaussian_pmf(sigma, 60), terms)
        assert counters * 2 * upper_tail(law, e + 1) <= beta
        spare = 1 if sigma >= 0.5 else 2
        assert e <= spare or counters * 2 * upper_tail(law, e - spare) > beta

    def test_tree_takes_the_union_over_prefixes(self):
        sigma, prefixes, counters, beta = 10.0, 12, 7, 0.02
        e = gaussian_tree_width(sigma, prefixes, counters, beta)

        def failure(width):
            tails = (n * stats.norm.sf(width / (sigma * math.sqrt(j))) for j, n in enumerated(prefixes).items())
            return 2 * counters * sum(tails)

        assert failure(e) <= beta < failure(e - 1)

    def test_running_sums_by_levy(self):
        assert gaussian_running_width(2.0, 400, 3, 0.05) == math.ceil(2.0 * 20 * stats.norm.isf(0.05 / 12))

    def test_matrix_and_vector(self):
        assert symmetric_matrix_width(0.5, 9, 2 / math.e) == pytest.approx(2 * 0.5 * 3 + 2 * 0.5)
        assert vector_width(2.0, 5, 0.01) == pytest.approx(2 * math.sqrt(stats.chi2.isf(0.01, 5)))
        assert vector_width(2.0, 5, 0.01, vectors=10) > vector_width(2.0, 5, 0.01)
        # The exact quantile is below σ(√d + √(2 ln(1/β))).
        assert vector_width(2.0, 5, 0.01) < 2.0 * (math.sqrt(5) + math.sqrt(2 * math.log(100)))
