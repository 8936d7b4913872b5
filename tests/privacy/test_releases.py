from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.releases.counts import PerTable, PrivateCounts


def release(visits, transitions, rewards, **options):
    visits, transitions, rewards = (np.asarray(x, float) for x in (visits, transitions, rewards))
    return PrivateCounts(visits, transitions, rewards, 2, 10, **options)


def test_exact_counts_become_the_empirical_model():
    model = release([[[4, 0]]], [[[[4], [0]]]], [[[3, 0]]]).model()
    assert model.visits.tolist() == [[[4.0, 0.0]]]
    assert model.rewards.tolist() == [[[0.75, 0.0]]]
    assert model.transitions.tolist() == [[[[1.0], [1.0]]]]
    two = release([[[4], [2]]], [[[[1, 3]], [[2, 0]]]], [[[1], [2]]]).model()
    assert two.transitions.tolist() == [[[[0.25, 0.75]], [[1.0, 0.0]]]]


def test_the_shift_covers_the_true_count_by_hand():
    """e = 3: x = (4, 6), Σx = 10; shifted by 2e/S = 3 each: Ñ = 16 ≥ N̂ + e, P̃ = (7, 9)/16."""
    noisy = release([[[10], [10]]], [[[[4, 6]], [[4, 6]]]], [[[5], [5]]], widths=PerTable(3.0, 3.0, 1.0))
    shifted = noisy.model(shift=True)
    assert shifted.visits.tolist() == [[[16.0], [16.0]]]
    assert shifted.transitions[0, 0, 0].tolist() == [7 / 16, 9 / 16]
    assert noisy.model().visits.tolist() == [[[10.0], [10.0]]]


@given(st.integers(0, 5_000), st.floats(0, 50), st.booleans())
def test_models_are_valid_whatever_the_noise(seed, width, shift):
    rng = np.random.default_rng(seed)
    S, A, G = rng.integers(1, 5), rng.integers(1, 4), rng.integers(1, 3)
    noisy = PrivateCounts(
        rng.normal(5, 20, (G, S, A)),
        rng.normal(3, 20, (G, S, A, S)),
        rng.normal(3, 20, (G, S, A)),
        horizon=int(G),
        num_episodes=3,
        widths=PerTable(width, width, width),
    )
    model = noisy.model(shift)
    np.testing.assert_allclose(model.transitions.sum(-1), 1.0, atol=1e-9)
    assert (model.transitions >= 0).all()
    assert (model.rewards >= 0).all()
    assert (model.rewards <= 1).all()
    assert (model.visits >= 0).all()


def test_on_the_good_event_the_shifted_count_brackets_the_truth():
    """N ≤ Ñ ≤ N + 4e and |Ñ(s') − N(s')| ≤ 4e whenever every error is at most e."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        S, e = int(rng.integers(2, 6)), float(rng.uniform(0.5, 20))
        truth = rng.integers(0, 60, (1, S, 2, S)).astype(float)
        totals = truth.sum(-1)
        noisy = PrivateCounts(
            totals + rng.uniform(-e, e, totals.shape),
            truth + rng.uniform(-e, e, truth.shape),
            totals,
            horizon=1,
            num_episodes=100,
            widths=PerTable(e, e, e),
        )
        model = noisy.model(shift=True)
        assert (model.visits >= totals - 1e-9).all()
        assert (model.visits <= totals + 4 * e + 1e-9).all()
        assert (np.abs(model.transitions * model.visits[..., None] - truth) <= 4 * e + 1e-9).all()


def test_releases_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        release([[[1]]], [[[[1]]]], [[[1]]]).visits[0, 0, 0] = 2.0
