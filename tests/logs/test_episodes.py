from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import riverswim
from discreet.kernels.rollout import cumulative_rows, draw, draw_action
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.planning import occupancy, uniform_policy


def test_grouping_users_into_calls_changes_nothing():
    mdp, policy = riverswim(4, 7), uniform_policy((7, 4, 2))
    for law in (RewardLaw("bernoulli"), RewardLaw("student-t")):
        together = MDPSimulator(mdp, law, 3).rollout(policy, 50)
        split = MDPSimulator(mdp, law, 3)
        parts = [split.rollout(policy, n) for n in (1, 30, 19)]
        for name in ("states", "actions", "rewards"):
            assert (getattr(together, name) == np.concatenate([getattr(part, name) for part in parts])).all()


def test_rollouts_follow_the_model():
    """Visits of 40 000 users against exact occupancy, transitions against the kernel, rewards against the means."""
    mdp, H = riverswim(4, 6), 6
    policy = np.random.default_rng(0).dirichlet(np.ones(2), size=(H, 4))
    n = 40_000
    spec = CountSpec(4, 2, H, pooled=False)
    counts = Counts.of(MDPSimulator(mdp, RewardLaw(), 11).rollout(policy, n), spec)
    expected = n * occupancy(mdp, policy)
    seen = expected > 20
    z = (counts.visits[seen] - expected[seen]) / np.sqrt(expected[seen] * (1 - expected[seen] / n))
    assert np.abs(z).max() < 4.5
    assert (counts.visits[expected == 0] == 0).all()
    for h, s, a in np.argwhere(counts.visits > 3000):
        row = mdp.transitions[0, s, a]
        observed = counts.transitions[h, s, a]
        assert (observed[row == 0] == 0).all()
        if (row > 0).sum() > 1:
            assert stats.chisquare(observed[row > 0], row[row > 0] * observed.sum()).pvalue > 1e-5
        mean, p = counts.reward_sums[h, s, a] * spec.grid / observed.sum(), mdp.rewards[0, s, a]
        assert abs(mean - p) <= 4.5 * np.sqrt(p * (1 - p) / observed.sum())


def test_sampling_hits_the_right_outcomes_at_the_edges():
    rows = np.array([[0.0, 0.25, 0.0, 0.75, 0.0]])
    sums = cumulative_rows(rows)[0]
    assert [draw(sums, u) for u in (0.0, 0.2499, 0.25, 0.999999999999)] == [1, 1, 3, 3]
    assert draw_action(np.array([0.0, 1.0 - 1e-9, 0.0]), 1.0 - 1e-12) == 1
    assert draw_action(np.array([0.5, 0.5]), 0.5) == 1


def test_rounding_cannot_reach_an_impossible_state():
    row = np.zeros(10)
    row[:3] = [0.1, 0.2, 0.7]  # sums to 0.9999999999999999 in floating point
    assert draw(cumulative_rows(row[None])[0], np.nextafter(1.0, 0.0)) == 2


@pytest.mark.parametrize(
    ("states", "actions", "rewards", "words"),
    [
        (np.zeros((2, 3), int), np.zeros((2, 3), int), np.zeros((2, 3)), "one more than actions"),
        (np.zeros((2, 4), int), np.zeros((2, 3), int), np.zeros((2, 2)), r"both must be \(K, H\)"),
    ],
)
def test_malformed_episodes_are_refused(states, actions, rewards, words):
    with pytest.raises(ValueError, match=words):
        Episodes(states, actions, rewards)


def test_log_lines_carry_no_trajectory():
    episodes = Episodes(np.full((1, 3), 4), np.full((1, 2), 7), np.full((1, 2), 0.123))
    assert repr(episodes) == "Episodes(1 × 2 steps)"
    assert repr(Counts.of(episodes, CountSpec(5, 8, 2, pooled=True))) == "Counts(1 episodes)"


def test_a_policy_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"shape \(3, 4, 2\); expected \(H, S, A\) = \(7, 4, 2\)"):
        MDPSimulator(riverswim(4, 7), RewardLaw(), 0).rollout(uniform_policy((3, 4, 2)), 1)


JUNK = [
    ([0, 0.5, 1], [0, 1], [0.0, 1.0]),
    ([0, "east", 1], [0, 1], [0.0, 1.0]),
    ([0, None, 1], [0, 1], [0.0, 1.0]),
    ([0, 2**70, 1], [0, 1], [0.0, 1.0]),
    ([0, 1e300, 1], [0, 1], [0.0, 1.0]),
    ([0, math.nan, 1], [0, 1], [0.0, 1.0]),
    ([0, 1 + 2j, 1], [0, 1], [0.0, 1.0]),
    ([0, 1, 1], [0, -math.inf], [0.0, 1.0]),
    ([0, 1, 1], [0, object()], [0.0, 1.0]),
    ([0, 1, 1], [0, 1], [0.0, math.nan]),
    ([0, 1, 1], [0, 1], [0.0, "much"]),
    ([0, 1, 1], [0, 1], [10**400, 0.0]),
    ([0, 1, 1], [0, 1], [0.0, None]),
]


@pytest.mark.parametrize("junk", JUNK)
def test_p8_what_one_row_holds_changes_no_other_row(junk):
    """Lists as they come from an application: one person's value decides the type of the whole array."""
    good = [([0, 1, 0], [1, 0], [0.25, 1.0]), ([1, 1, 0], [0, 0], [0.1, math.inf])]
    rows = [good[0], junk, good[1]]
    episodes = Episodes(*([row[i] for row in rows] for i in range(3)))
    alone = Episodes(*([row[i] for row in good] for i in range(3)))
    for name in ("states", "actions", "rewards"):
        assert np.array_equal(getattr(episodes, name)[[0, 2]], getattr(alone, name))
    spec = CountSpec(2, 2, 2, False)
    read = spec.readable(episodes)
    assert (len(read), read.silent, read.actions.shape) == (3, 1, (2, 2))
    with_junk, without = Counts.of(episodes, spec), Counts.of(alone, spec)
    for (_, a), (_, b) in zip(with_junk.tables(), without.tables(), strict=True):
        assert np.array_equal(a, b)
    assert with_junk.num_episodes == without.num_episodes + 1


def test_p8_readable_episodes_are_handed_on_as_they_are():
    episodes = Episodes([[0, 1, 0]], [[1, 0]], [[0.25, 1.0]])
    assert CountSpec(2, 2, 2, False).readable(episodes) is episodes
    assert CountSpec(2, 2, 3, False).readable(episodes) is episodes  # shorter than the horizon
    assert CountSpec(2, 2, 1, False).readable(episodes).silent == 1


def test_p8_records_of_any_length_and_kind_become_rows_of_their_own():
    good = ([0, 1, 0], [1, 0], [0.25, 1.0])
    odd = [([0, 1], [0], [0.5]), ([0] * 4, [0] * 3, [0.5] * 3), ([0, 1, 0], [1, 0], []), None, 7, "abc", (), [[]] * 3]
    odd += [([[0, 1, 0]], [[1, 0]], [[0.5, 0.5]]), ({}, {}, {}), (object(), [1, 0], [0.5, 0.5]), *JUNK]
    episodes = Episodes.of_records([good, *odd, good], 2)
    assert len(episodes) == len(odd) + 2
    alone = Episodes(*([part, part] for part in good))
    read = CountSpec(2, 2, 2, False).readable(episodes)
    assert read.silent == len(odd)
    for name in ("states", "actions", "rewards"):
        assert np.array_equal(getattr(read, name), getattr(alone, name))
    assert len(Episodes.of_records([], 3)) == 0
    assert Episodes.of_records([], 3).horizon == 3


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int32, np.bool_, np.float32])
def test_p8_a_missing_reward_among_states_of_any_type_concerns_its_row_only(kind):
    states, actions = np.array([[0, 1, 0], [1, 1, 1]], dtype=kind), np.array([[1, 0], [0, 0]], dtype=kind)
    read = CountSpec(2, 2, 2, False).readable(Episodes(states, actions, [[0.0, 1.0], [0.0, np.nan]]))
    assert (read.silent, read.states.tolist()) == (1, [[0, 1, 0]])
    far = Episodes(np.array([[2**64 - 1, 0, 0]], dtype=np.uint64), [[0, 0]], [[0.0, 0.0]])
    assert CountSpec(2, 2, 2, False).readable(far).silent == 1
