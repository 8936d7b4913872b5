"""Counts are what they say, and one user moves them no further, and as far, as stated."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from oracles_streams import brute_sensitivity, random_episodes, stacked


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize(("states", "actions", "horizon"), [(2, 1, 1), (1, 2, 3), (2, 2, 2), (3, 1, 2)])
def test_sensitivity_is_the_largest_change_over_all_pairs_of_episodes(pooled, neighbours, states, actions, horizon):
    spec = CountSpec(states, actions, horizon, pooled, grid=0.25)
    found = brute_sensitivity(spec, neighbours)
    for name, stated in spec.sensitivity(neighbours).items():
        assert found[name] == pytest.approx((stated.l1, stated.l2), rel=1e-12), name


def test_pooling_changes_only_the_euclidean_sensitivity():
    staged, pooled = Counts.sensitivity(20, "replace", False), Counts.sensitivity(20, "replace", True)
    assert (staged.l1, pooled.l1) == (40.0, 40.0)
    assert staged.l2 == pytest.approx(np.sqrt(40))
    assert pooled.l2 == pytest.approx(np.sqrt(2) * 20)


def test_known_counts_of_two_short_episodes():
    spec = CountSpec(2, 2, 2, pooled=False, grid=0.25, reward_range=(-1.0, 3.0))
    states, actions = np.array([[0, 1, 1], [0, 1, 0]]), np.array([[1, 0], [1, 1]])
    episodes = Episodes(states, actions, np.array([[3.0, -1.0], [1.0, 0.0]]))
    counts = Counts.of(episodes, spec)
    assert counts.visits[0].tolist() == [[0, 2], [0, 0]]
    assert counts.visits[1].tolist() == [[0, 0], [1, 1]]
    assert counts.transitions[0, 0, 1].tolist() == [0, 2]
    assert counts.transitions[1, 1].tolist() == [[0, 1], [1, 0]]
    assert counts.reward_sums[0, 0, 1] == 4 + 2  # 3 → 1 → 4 quarters, 1 → ½ → 2 quarters
    assert counts.reward_sums[1].tolist() == [[0, 0], [0, 1]]
    pooled = Counts.of(episodes, CountSpec(2, 2, 2, True, 0.25, (-1.0, 3.0)))
    assert (pooled.visits[0] == counts.visits.sum(axis=0)).all()
    assert (pooled.transitions[0] == counts.transitions.sum(axis=0)).all()
    assert (pooled.reward_sums[0] == counts.reward_sums.sum(axis=0)).all()


def test_counts_add_over_users():
    spec = CountSpec.for_episodes(3, 2, 4, False, 10)
    parts = random_episodes(spec, 7)
    whole = Counts.of(stacked(parts), spec)
    for (name, table), *others in zip(whole.tables(), *(Counts.of(p, spec).tables() for p in parts), strict=True):
        assert (table == sum(other for _, other in others)).all(), name


def test_rewards_outside_the_range_are_clipped_and_counted():
    spec = CountSpec(1, 1, 3, pooled=True, grid=0.5)
    counts = Counts.of(Episodes(np.zeros((1, 4), int), np.zeros((1, 3), int), np.array([[-7.0, 0.5, np.inf]])), spec)
    assert counts.clipped == 2
    assert counts.reward_sums.sum() == 0 + 1 + 2


@pytest.mark.parametrize("num_episodes", [1, 2, 3, 1000, 20000])
def test_the_default_grid_keeps_rounding_of_a_sum_below_one_half(num_episodes):
    spec = CountSpec.for_episodes(2, 2, 2, False, num_episodes)
    assert num_episodes * spec.grid / 2 <= 0.5
    assert spec.reward_units * spec.grid == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_states": 0}, "num_states"),
        ({"horizon": 0}, "horizon"),
        ({"grid": 0.3}, "power of two"),
        ({"reward_range": (1.0, 1.0)}, "low < high"),
        ({"reward_range": (0.0, float("nan"))}, "finite"),
    ],
)
def test_meaningless_specs_are_refused(change, words):
    good = {"num_states": 2, "num_actions": 2, "horizon": 2, "pooled": False}
    with pytest.raises(ValueError, match=words):
        CountSpec(**(good | change))


def test_states_actions_and_steps_outside_the_spec_count_as_nothing():
    spec = CountSpec(2, 2, 2, pooled=False)
    counts = Counts.zeros(spec)
    bad = [
        Episodes(np.array([[0, 2, 0]]), np.zeros((1, 2), int), np.zeros((1, 2))),
        Episodes(np.array([[0, 0, 0]]), np.array([[0, -1]]), np.zeros((1, 2))),
        Episodes(np.zeros((1, 4), int), np.zeros((1, 3), int), np.zeros((1, 3))),
    ]
    for episodes in bad:
        assert counts.accumulate(episodes, spec) == 0
    assert all(not table.any() for _, table in counts.tables())
