"""The closed form of the count projection against a linear-programming solver, by hand, and as laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.kernels.projection import project_counts
from oracles_privacy import lp_distances, lp_is_feasible


def instances(seed, problems, successors, noise, slack):
    """Small true counts with much noise: every kind of row occurs, infeasible ones among them."""
    rng = np.random.default_rng(seed)
    true = rng.poisson(3.0, (problems, successors)) * rng.integers(0, 2, (problems, 1))
    counts = true + rng.laplace(0.0, noise, true.shape)
    totals = true.sum(axis=1) + rng.laplace(0.0, noise, problems)
    slacks = slack * noise * rng.exponential(1.0, problems)
    return counts, totals, slacks


GRID = [
    (seed, S, noise, slack)
    for seed, (S, noise, slack) in enumerate(
        [(1, 2.0, 1.0), (2, 5.0, 1.0), (3, 0.1, 3.0), (5, 100.0, 1.0), (6, 10.0, 0.0), (8, 3.0, 5.0), (20, 10.0, 2.0)]
    )
]


class TestAgainstLinearProgram:
    @pytest.mark.parametrize(("seed", "S", "noise", "slack"), GRID)
    def test_distance_is_the_least_possible(self, seed, S, noise, slack):
        counts, totals, slacks = instances(seed, 1000, S, noise, slack)
        if seed % 2:  # integers tie often
            counts, totals = np.round(counts), np.round(totals)
        feasible = totals + slacks >= 0.0
        x, infeasible = project_counts(counts, totals, slacks)
        assert infeasible == np.count_nonzero(~feasible)
        assert np.all(x[~feasible] == 0.0)
        counts, totals, slacks, x = counts[feasible], totals[feasible], slacks[feasible], x[feasible]
        t = lp_distances(counts, totals, slacks)
        size = np.maximum(1.0, np.abs(counts).max(axis=1) + np.abs(totals))
        assert np.all(x >= 0.0)
        assert np.all(np.abs(x.sum(axis=1) - totals) <= slacks + 1e-12 * size * S)
        assert np.all(np.abs(np.abs(x - counts).max(axis=1) - t) <= 1e-9 * size)
        # Of all minimisers ours has the total nearest to n: sums from Σ(c−t)⁺ to Σc + S·t are attainable.
        least = np.maximum(0.0, counts - t[:, None]).sum(axis=1)
        most = (counts + t[:, None]).sum(axis=1)
        nearest = np.clip(np.maximum(totals, 0.0), least, np.maximum(most, least))
        assert np.all(np.abs(x.sum(axis=1) - nearest) <= 1e-8 * size * S)

    def test_infeasible_exactly_where_the_solver_says_so(self):
        counts, totals, slacks = instances(99, 150, 4, 10.0, 0.5)
        expected = [not lp_is_feasible(*row) for row in zip(counts, totals, slacks, strict=True)]
        assert 10 < sum(expected) < 100
        assert [
            project_counts(c[None], n[None], e)[1] == 1 for c, n, e in zip(counts, totals, slacks, strict=True)
        ] == (expected)


class TestByHand:
    @pytest.mark.parametrize(
        ("counts", "total", "slack", "expected"),
        [
            ([3.0, 1.0, 2.0], 6.0, 0.5, [3.0, 1.0, 2.0]),  # valid already
            ([3.0, 1.0, 2.0], 9.0, 0.0, [4.0, 2.0, 3.0]),  # t* = 1, all up
            ([5.0, 1.0], 2.0, 0.0, [2.0, 0.0]),  # t* = 3: C_1 − 2; the small one is cut at 0
            ([-2.0, 4.0], 4.0, 0.0, [0.0, 4.0]),  # t* = 2 = −c_1, and the total fits
            ([-2.0, 4.0], 9.0, 5.0, [0.0, 6.0]),  # the slack t* = 2 pulls the total towards 9
            ([-3.0, -1.0], -1.0, 1.0, [0.0, 0.0]),  # n < 0 ≤ n + e
            ([4.0, 4.0, 4.0], 6.0, 0.0, [2.0, 2.0, 2.0]),  # ties
        ],
    )
    def test_known_answers(self, counts, total, slack, expected):
        x, infeasible = project_counts(np.array([counts]), np.array([total]), slack)
        assert infeasible == 0
        np.testing.assert_allclose(x[0], expected, atol=1e-12)

    def test_single_successor_moves_only_into_the_interval(self):
        x, _ = project_counts(np.array([[7.0], [1.0], [2.5]]), np.array([3.0, 3.0, 3.0]), 1.0)
        np.testing.assert_allclose(x[:, 0], [4.0, 2.0, 2.5])

    def test_negative_total_beyond_the_slack_gives_zero_and_is_counted(self):
        x, infeasible = project_counts(np.array([[5.0, 2.0], [1.0, 1.0]]), np.array([-4.0, 2.0]), 1.0)
        assert infeasible == 1
        np.testing.assert_array_equal(x, [[0.0, 0.0], [1.0, 1.0]])

    def test_no_rows(self):
        x, infeasible = project_counts(np.empty((0, 3)), np.empty(0), 1.0)
        assert x.shape == (0, 3)
        assert infeasible == 0

    def test_one_slack_means_the_same_for_every_row(self):
        counts, totals, _ = instances(5, 50, 4, 5.0, 1.0)
        np.testing.assert_array_equal(
            project_counts(counts, totals, 2.0)[0], project_counts(counts, totals, np.full(50, 2.0))[0]
        )

    @pytest.mark.parametrize(
        ("counts", "totals", "slack", "message"),
        [
            (np.ones((2, 3)), np.ones(3), 1.0, "totals"),
            (np.ones((2, 0)), np.ones(2), 1.0, "counts"),
            (np.ones((2, 3)), np.ones(2), np.ones(3), "slack"),
            (np.ones((2, 3)), np.ones(2), -1.0, "negative"),
            (np.full((2, 3), np.nan), np.ones(2), 1.0, "finite"),
        ],
    )
    def test_bad_input_is_refused(self, counts, totals, slack, message):
        with pytest.raises(ValueError, match=message):
            project_counts(counts, totals, slack)


finite = st.floats(-1e6, 1e6)


class TestLaws:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 2**32), st.floats(0.0, 30.0))
    def test_on_the_good_event_no_count_is_off_by_more_than_twice_the_width(self, true, seed, width):
        rng = np.random.default_rng(seed)
        true = np.array(true, dtype=np.float64)
        counts = true + rng.uniform(-width, width, true.shape)
        total = true.sum() + rng.uniform(-width, width)
        x, infeasible = project_counts(counts[None], np.array([total]), width)
        assert infeasible == 0
        assert np.abs(x[0] - true).max() <= 2.0 * width + 1e-9
        assert abs(x[0].sum() - true.sum()) <= 2.0 * width + 1e-9

    @settings(max_examples=200, deadline=None)
    @given(st.lists(finite, min_size=1, max_size=8), finite, st.floats(0.0, 1e6), st.randoms())
    def test_order_of_successors_does_not_matter_and_projecting_twice_changes_nothing(
        self, row, total, slack, random
    ):
        counts, totals = np.array([row]), np.array([total])
        x, infeasible = project_counts(counts, totals, slack)
        order = list(range(len(row)))
        random.shuffle(order)
        y, _ = project_counts(counts[:, order], totals, slack)
        np.testing.assert_allclose(y, x[:, order], atol=1e-6)
        if not infeasible:
            np.testing.assert_allclose(project_counts(x, totals, slack)[0], x, atol=1e-6)

    def test_a_total_below_the_rounding_of_the_counts_ends(self):
        x, _ = project_counts(np.array([[1e15, 1e15, -1e15]]), np.array([1e-9]), 0.0)
        assert np.all(x >= 0.0)
        assert x.sum() <= 1.0
