"""Adversarial losses: their definitions, random access, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.envs import ADVERSARIES, adversary, make
from discreet.envs.adversaries import from_array, from_function
from discreet.envs.tabular import LAYERED

LAYERED_MDP = make("layered", instance=2)
BASE = 1 - LAYERED_MDP.rewards


@given(
    st.sampled_from(ADVERSARIES),
    st.sampled_from(["layered", "layered-large", "lock", "riverswim"]),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
)
@settings(max_examples=60, deadline=None)
def test_a_sequence_does_not_depend_on_the_portions_it_is_read_in(
    kind: str, env: str, first: int, second: int, third: int
) -> None:
    start, middle, stop = sorted((first, second, third))
    sequence = adversary(kind, make(env), 60, instance=1)
    for read in (sequence.losses, sequence.means):
        whole = read(0, 60)
        assert whole.shape == (60, *sequence.shape)
        np.testing.assert_array_equal(read(start, middle), whole[start:middle])
        np.testing.assert_array_equal(read(middle, stop), whole[middle:stop])


@pytest.mark.parametrize("kind", ADVERSARIES)
def test_losses_are_bernoulli_draws_around_their_means(kind: str) -> None:
    sequence = adversary(kind, LAYERED_MDP, 4000, instance=2)
    losses, means = sequence.losses(0, 4000), sequence.means(0, 4000)
    assert set(np.unique(losses)) <= {0.0, 1.0}
    assert ((means >= 0) & (means <= 1)).all()
    for h, size in enumerate(LAYERED):
        assert (losses[:, h, size:] == 0).all()
        assert (means[:, h, size:] == 0).all()
    spread = np.sqrt((means * (1 - means)).sum(axis=0))
    scores = (losses - means).sum(axis=0) / np.where(spread > 0, spread, 1.0)
    assert np.abs(scores).max() < 4.5  # 18 cells; a table of wrong means is off by far more


def test_draws_of_different_cells_and_episodes_are_independent() -> None:
    sequence = adversary("iid", LAYERED_MDP, 5000, instance=2)
    losses = sequence.losses(0, 5000)[:, 1:].reshape(5000, -1) - BASE[1:].ravel()
    scaled = losses / np.sqrt(BASE[1:] * (1 - BASE[1:])).ravel()
    correlations = scaled.T @ scaled / 5000 - np.diag((scaled**2).mean(axis=0))
    assert np.abs(correlations).max() * np.sqrt(5000) < 4.5
    lagged = (scaled[1:] * scaled[:-1]).mean(axis=0)
    assert np.abs(lagged).max() * np.sqrt(5000) < 4.5


def test_iid_is_the_environments_own_loss() -> None:
    np.testing.assert_allclose(adversary("iid", LAYERED_MDP, 9, 4).means(0, 9), np.broadcast_to(BASE, (9, 3, 4, 2)))
    lock = adversary("iid", make("lock"), 3).means(0, 1)[0]
    np.testing.assert_allclose(lock[:, 0], [[0.35] * 3] * 5 + [[0.0] * 3])
    np.testing.assert_allclose(lock[:, 1], [[0.0] * 3] + [[0.3] * 3] * 4 + [[0.9] * 3])


def test_states_out_of_reach_lose_nothing() -> None:
    means = adversary("iid", make("riverswim", states=3), 1).means(0, 1)[0]
    np.testing.assert_allclose(means[0], [[0.995, 1.0], [0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(means[1], [[0.995, 1.0], [1.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(means[2], [[0.995, 1.0], [1.0, 1.0], [1.0, 0.0]])


def test_switch_happens_once_in_the_middle() -> None:
    means = adversary("switch", LAYERED_MDP, 11).means(0, 11)
    np.testing.assert_allclose(means[:6], np.broadcast_to(BASE, (6, 3, 4, 2)))
    assert (means[6:] == means[6]).all()
    assert np.abs(means[6, 1:] - BASE[1:]).min() > 0
    even = adversary("switch", LAYERED_MDP, 10).means(0, 10)
    np.testing.assert_array_equal((even == even[0]).all(axis=(1, 2, 3)), [True] * 5 + [False] * 5)
    assert np.ptp(means[6, 1:], axis=-1).max() <= 0.5


def test_sinusoid_turns_twice_around_its_mean() -> None:
    sequence = adversary("sinusoid", LAYERED_MDP, 400, instance=3)
    means = sequence.means(0, 400)
    np.testing.assert_allclose(means[:200], means[200:], atol=1e-12)
    # Where nothing is clipped the second harmonic holds everything: its amplitude lies in [0.2, 0.5], its mean is m.
    free = (means > 0).all(axis=0) & (means < 1).all(axis=0)
    assert free.sum() >= 3
    spectrum = np.fft.rfft(means, axis=0)[:, free] / 400
    np.testing.assert_allclose(spectrum[0].real, BASE[free], atol=1e-12)
    amplitude = 2 * np.abs(spectrum[2])
    assert ((amplitude >= 0.2) & (amplitude <= 0.5)).all()
    assert np.abs(np.delete(spectrum, [0, 2], axis=0)).max() < 1e-12
    assert len(set(np.round(np.angle(spectrum[2]), 6))) == free.sum()


def test_blocks_are_fresh_in_every_tenth() -> None:
    means = adversary("blocks", LAYERED_MDP, 100).means(0, 100)
    changes = np.flatnonzero((means[1:] != means[:-1]).any(axis=(1, 2, 3))) + 1
    np.testing.assert_array_equal(changes, np.arange(10, 100, 10))
    fresh = 2 * means - BASE
    assert fresh.min() >= -1e-12
    assert fresh.max() <= 1
    assert len({tuple(row) for row in means[::10].reshape(10, -1)}) == 10


def test_flips_reverse_whole_states_a_third_of_the_time() -> None:
    mdp = make("layered-large", instance=5)
    base = 1 - mdp.rewards
    shares, changes = [], []
    for instance in range(12):
        means = adversary("flips", mdp, 1000, instance).means(0, 1000)[:, 1:]
        reversed_ = (means == base[1:, :, ::-1]).all(axis=-1)
        straight = (means == base[1:]).all(axis=-1)
        assert (reversed_ ^ straight).all()
        shares.append(reversed_.mean())
        changes.append((reversed_[1:] != reversed_[:-1]).sum(axis=0).mean())
    assert np.mean(shares) == pytest.approx(0.35, abs=0.03)  # 300 states, sd of their shares about 0.2
    # 7 cuts on average, and two neighbouring intervals differ with probability 2·.35·.65.
    assert np.mean(changes) == pytest.approx(7 * 2 * 0.35 * 0.65, abs=0.5)


def test_alternating_punishes_one_action_at_a_time() -> None:
    losses = adversary("alternating", make("lock"), 7).losses(0, 7)
    for k in range(7):
        np.testing.assert_array_equal(losses[k, 2, 0], np.arange(3) == k % 3)
        np.testing.assert_array_equal(losses[k, 0], [np.arange(3) == k % 3, np.zeros(3)])


def test_instances_differ_and_repeat() -> None:
    one, same, other = (adversary("blocks", LAYERED_MDP, 50, instance) for instance in (1, 1, 2))
    np.testing.assert_array_equal(one.losses(0, 50), same.losses(0, 50))
    assert (one.means(0, 50) != other.means(0, 50)).any()
    plain, redrawn = (adversary("iid", LAYERED_MDP, 50, instance) for instance in (1, 2))
    assert (plain.losses(0, 50) != redrawn.losses(0, 50)).any()


def test_given_losses_are_used_as_they_are() -> None:
    tables = np.random.default_rng(0).random((5, 2, 3, 2))
    given_outright = from_array(tables)
    computed = from_function(lambda k: tables[k], (2, 3, 2), 5)
    for sequence in (given_outright, computed):
        np.testing.assert_array_equal(sequence.losses(1, 4), tables[1:4])
        np.testing.assert_array_equal(sequence.means(1, 4), tables[1:4])
    expected = tables.copy()
    tables[:] = 0
    np.testing.assert_array_equal(given_outright.losses(0, 5), expected)


def _spoiled(value: float) -> np.ndarray:
    tables = np.zeros((4, 2, 3, 2))
    tables[3, 1, 0, 1] = value
    return tables


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan])
def test_losses_outside_the_unit_interval_are_named(value: float) -> None:
    message = r"the loss of episode 3 at \(step, state, action\) \(1, 0, 1\) is"
    with pytest.raises(ValueError, match=message):
        from_array(_spoiled(value))
    lazily = from_function(lambda k: _spoiled(value)[k], (2, 3, 2), 4)
    assert lazily.losses(0, 3).shape == (3, 2, 3, 2)
    with pytest.raises(ValueError, match=message):
        lazily.losses(2, 4)


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown adversary 'sinusoide'; the nearest is 'sinusoid'"):
        adversary("sinusoide", LAYERED_MDP, 5)
    with pytest.raises(ValueError, match="num_episodes is 0"):
        adversary("iid", LAYERED_MDP, 0)
    with pytest.raises(ValueError, match="episodes 3:9 were asked for; expected a portion of 0:5"):
        adversary("iid", LAYERED_MDP, 5).losses(3, 9)
    with pytest.raises(ValueError, match=r"losses have shape \(2, 3\); expected \(num_episodes, H, S, A\)"):
        from_array(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"the loss table of episode 0 has shape \(1,\); expected \(2, 3, 2\)"):
        from_function(lambda k: np.zeros(1), (2, 3, 2), 5).losses(0, 1)
    with pytest.raises(ValueError, match=r"span \[-100, 0\]; losses 1 − reward need them in \[0, 1\]"):
        adversary("iid", make("gym:CliffWalking-v1"), 5)
