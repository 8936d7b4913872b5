"""Truncation at public thresholds: what enters the sums, how much noise they get, and that it is enough."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedExact, TruncatedLocal, TruncatedTree
from discreet.releases.counts import Thresholds

GRID = 2.0**-6


def spec(pooled=False, horizon=2):
    return CountSpec(2, 2, horizon, pooled, GRID, reward_range=None)


def announced(stream, values):
    shape = np.shape(values)
    empty = np.zeros((1, 1, 1))
    stream.begin(Plan(empty, empty[0], empty, announcement=Thresholds(np.broadcast_to(values, shape))))
    return stream


def thresholds(pooled, horizon=2):
    return np.arange(1.0, 1 + (1 if pooled else horizon) * 4).reshape(-1, 2, 2) / 4


def episode(states, actions, rewards):
    return Episodes(np.array([states]), np.array([actions]), np.array([rewards], dtype=float))


PRIVATE = [
    lambda e: TruncatedEpochs(Budget.pure(e)),
    lambda e: TruncatedTree(Budget.pure(e)),
    lambda e: TruncatedLocal(Budget.pure(e)),
]
GAUSSIAN = [
    lambda e: TruncatedEpochs(Budget.zcdp(e)),
    lambda e: TruncatedTree(Budget.approximate(e, 1e-6)),
]


def test_rewards_beyond_the_threshold_of_their_cell_count_as_nothing():
    """Cells (0,0): ¼, (1,1) at the second step: 2. Rewards .25 (kept: equal), 1.9 (kept), −2.1 (dropped)."""
    stream = announced(TruncatedExact().open(spec(), 9, NoiseSource.seeded(0)), thresholds(False))
    stream.add(episode([0, 1, 0], [0, 1], [0.25, 1.9]))
    stream.add(episode([0, 1, 0], [0, 1], [0.26, -2.1]))
    release = stream.release()
    assert release.visits[0, 0, 0] == 2
    assert release.reward_sums[0, 0, 0] == 0.25
    assert release.reward_sums[1, 1, 1] == round(1.9 / GRID) * GRID


@pytest.mark.parametrize("make", PRIVATE)
@pytest.mark.parametrize("pooled", [False, True])
def test_f12_one_user_costs_at_most_epsilon_in_every_pair_of_worlds(make, pooled):
    """Brute force: over all pairs of episodes with rewards at and around the thresholds, Σ_c |Δ_c|/b(c) ≤ ε_R, and
    the bound is attained."""
    H = 2
    B = thresholds(pooled, H)
    stream = announced(make(3.0).open(spec(pooled), 1, NoiseSource.seeded(0)), B)
    entry = stream.ledger[-1]
    assert entry.statistic == "rewards"
    unit = entry.scale  # scale at a threshold of 1, in grid units
    contributions = []
    for states in itertools.product(range(2), repeat=H):
        for actions in itertools.product(range(2), repeat=H):
            limits = [B[min(h, len(B) - 1), states[h], actions[h]] for h in range(H)]
            for signs in itertools.product((-1, 0.4, 1, 1.01), repeat=H):
                rewards = [sign * limit for sign, limit in zip(signs, limits, strict=True)]
                raw = announced(TruncatedExact().open(spec(pooled), 1, NoiseSource.seeded(0)), B)
                raw.add(episode([*states, 0], actions, rewards))
                contributions.append(raw.release().reward_sums / GRID)
    vectors = np.array(contributions).reshape(len(contributions), -1) / (unit * B.reshape(-1))
    worst = max(np.abs(vectors - one).sum(axis=1).max() for one in vectors)
    assert worst * entry.uses <= 1.0  # ε_R = 1 of the three
    assert worst * entry.uses == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("kind", [TruncatedEpochs, TruncatedTree])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("pooled", [False, True])
def test_p4_the_ledger_charges_how_far_signed_rewards_move(kind, mechanism, neighbours, pooled):
    """Brute force over all pairs of episodes, bad ones included, in units of the thresholds: the stated sensitivity
    is reached and never passed, for L2 as for L1."""
    H, budget = 2, Budget.zcdp(0.5)
    B = thresholds(pooled, H)
    stream = announced(kind(budget, neighbours, mechanism).open(spec(pooled), 1, NoiseSource.seeded(0)), B)
    entry = stream.ledger[-1]
    assert (entry.statistic, entry.mechanism) == ("rewards", f"discrete-{mechanism}")
    vectors = [np.zeros(B.size)]
    for states in itertools.product(range(3), repeat=H):
        for actions in itertools.product(range(2), repeat=H):
            for signs in itertools.product((-1, 1), repeat=H):
                limits = [B[min(h, len(B) - 1), min(states[h], 1), actions[h]] for h in range(H)]
                raw = announced(TruncatedExact().open(spec(pooled), 1, NoiseSource.seeded(0)), B)
                raw.add(episode([*states, 0], actions, np.array(signs) * limits))
                vectors.append((raw.release().reward_sums / GRID / B).reshape(-1))
    X = np.unique(vectors, axis=0)
    moves = X[:, None] - (X if neighbours == "replace" else 0 * X[:1])
    norms = np.abs(moves).sum(axis=-1) if mechanism == "laplace" else np.sqrt((moves**2).sum(axis=-1))
    assert norms.max() == pytest.approx(entry.sensitivity, rel=1e-12)
    expected = {"laplace": 2 * H, "gaussian": 2 * H if pooled else 2 * np.sqrt(H)}[mechanism]
    assert entry.sensitivity * GRID == pytest.approx(expected / (1 if neighbours == "replace" else 2), rel=1e-12)
    cost = entry.uses * (
        entry.sensitivity / entry.scale if mechanism == "laplace" else 0.5 * (entry.sensitivity / entry.scale) ** 2
    )
    assert cost <= entry.cost * (1 + 1e-12)


@pytest.mark.parametrize("make", GAUSSIAN)
def test_p4_what_the_ledger_calls_gaussian_is_gaussian(make):
    """4 800 noises at a threshold of 1 pass for the stated law, and not for Laplace noise or another σ."""
    wide = CountSpec(32, 2, 1, True, GRID, reward_range=None)
    sample = []
    for seed in range(75):
        stream = announced(make(40.0).open(wide, 2, NoiseSource.seeded(seed)), np.ones((1, 32, 2)))
        stream.add(episode([0, 0], [0], [0.0]))
        sample.append(stream.release().reward_sums.reshape(-1) / GRID)
    found = np.concatenate(sample)
    sigma = stream.ledger[-1].scale

    def p_value(law):
        support = np.arange(-400, 401)
        mass = law.pmf(support)
        edges = np.unique(support[np.searchsorted(np.cumsum(mass), np.arange(1, 24) / 24)])
        expected = np.diff(np.concatenate([[0.0], np.cumsum(mass)[edges + 400], [1.0]]))
        seen = np.bincount(np.searchsorted(edges, found, side="left"), minlength=edges.size + 1)
        return stats.chisquare(seen, expected * found.size).pvalue

    assert p_value(DiscreteGaussian(sigma)) > 1e-3
    for wrong in (DiscreteGaussian(0.7 * sigma), DiscreteGaussian(1.3 * sigma), DiscreteLaplace(sigma / np.sqrt(2))):
        assert p_value(wrong) < 1e-9


def test_p4_local_thresholds_spend_pure_epsilon():
    for budget in (Budget.zcdp(0.1), Budget.approximate(0.1, 1e-6)):
        with pytest.raises(ValueError, match="pure epsilon"):
            TruncatedLocal(budget)
    with pytest.raises(ValueError, match="calibration"):
        TruncatedTree(Budget.pure(1.0), calibration="loose")


@pytest.mark.parametrize("make", PRIVATE + GAUSSIAN)
def test_noise_of_reward_sums_scales_with_the_threshold(make):
    """Deviations of 1280 noises per threshold against √2·b₁·B, to 15 %: 0.7× and 1.3× would be rejected by far."""
    wide = CountSpec(32, 2, 1, True, GRID, reward_range=None)
    B = np.tile([0.25, 1.0, 4.0, 64.0], 16).reshape(1, 32, 2)
    releases = []
    for seed in range(80):
        stream = announced(make(3.0).open(wide, 2, NoiseSource.seeded(seed)), B)
        stream.add(episode([0, 0], [0], [0.0]))
        releases.append(stream.release())
    noise = np.array([release.reward_sums for release in releases]).reshape(80, 16, 4)
    measured = noise.std(axis=(0, 1))
    stated = np.asarray(releases[0].deviations.rewards).reshape(16, 4)[0]
    assert (np.abs(measured / stated - 1.0) < 0.15).all()
    np.testing.assert_allclose(stated / stated[0], [1, 4, 16, 256], rtol=1e-3)
    assert (np.abs(noise) <= np.asarray(releases[0].widths.rewards).reshape(16, 4)).mean() > 0.999


@pytest.mark.parametrize("make", PRIVATE + GAUSSIAN)
def test_widths_hold_although_thresholds_react_to_the_noise(make):
    """Thresholds double wherever the last release was noisy: the worst use of adaptive scales."""
    failures = 0
    for seed in range(60):
        stream = make(3.0).open(spec(True, 1), 24, NoiseSource.seeded(seed))
        B, ok = np.ones((1, 2, 2)), True
        for _ in range(6):
            announced(stream, B)
            for _ in range(3):
                stream.add(episode([0, 0], [0], [0.0]))
            release = stream.release()
            ok &= bool((np.abs(release.reward_sums) <= np.asarray(release.widths.rewards)).all())
            B = np.where(release.reward_sums > 0, 2 * B, B)
        failures += not ok
    assert failures <= 1  # β = .01 in all, shared by three families


@pytest.mark.parametrize("make", PRIVATE + GAUSSIAN)
def test_a_falling_threshold_keeps_the_noise_of_the_highest(make):
    stream = announced(make(3.0).open(spec(True, 1), 8, NoiseSource.seeded(0)), np.full((1, 2, 2), 8.0))
    stream.add(episode([0, 0], [0], [5.0]))
    before = np.asarray(stream.release().deviations.rewards).copy()
    announced(stream, np.full((1, 2, 2), 0.5))
    stream.add(episode([0, 0], [0], [5.0]))
    assert (np.asarray(stream.release().deviations.rewards) >= before - 1e-12).all()


def test_f11_users_need_thresholds_before_they_act():
    for make in PRIVATE:
        stream = make(1.0).open(spec(), 3, NoiseSource.seeded(0))
        with pytest.raises(ValueError, match="call begin"):
            stream.add(episode([0, 0, 0], [0, 0], [0.0, 0.0]))
        with pytest.raises(ValueError, match="announces no thresholds of shape"):
            announced(stream, np.ones((1, 2, 2)))
    with pytest.raises(ValueError, match="above 0"):
        Thresholds(np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="declared range"):
        TruncatedEpochs(Budget.pure(1.0)).open(replace(spec(), reward_range=(0.0, 1.0)), 3, NoiseSource.seeded(0))


def test_budgets_add_up_to_the_guarantee():
    for make, model in zip(PRIVATE, ("joint", "joint", "local"), strict=True):
        stream = make(1.5).open(spec(), 64, NoiseSource.secure())
        assert stream.guarantee.model == model
        assert stream.guarantee.epsilon == 1.5
        assert sum(entry.cost for entry in stream.ledger) == pytest.approx(1.5, rel=1e-8)
        assert any("thresholds depend on public numbers" in line for line in stream.guarantee.assumptions)


def test_a_checkpoint_keeps_the_thresholds():
    """Continued from a checkpoint, the noise still follows the highest threshold announced before it."""
    for make in PRIVATE[:2]:
        first = announced(make(3.0).open(spec(True, 1), 8, NoiseSource.seeded(0)), np.full((1, 2, 2), 8.0))
        first.add(episode([0, 0], [0], [5.0]))
        before = first.release()
        second = make(3.0).open(spec(True, 1), 8, NoiseSource.seeded(1))
        second.restore(first.checkpoint(bytes(32)), bytes(32))
        assert (second.release().reward_sums == before.reward_sums).all()
        announced(second, np.full((1, 2, 2), 0.5))
        second.add(episode([0, 0], [0], [0.25]))
        after = np.asarray(second.release().deviations.rewards)
        assert (after >= np.asarray(before.deviations.rewards) - 1e-12).all()
        noise = second._mechanism.noise.draw()[-4:]
        assert np.abs(noise).max() * GRID > 8.0  # at a threshold of ½ this has probability below e⁻¹⁰
