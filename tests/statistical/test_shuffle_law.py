"""The law of what leaves the shuffle model: the same from real messages, from secure bits and from the simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffle import Shuffle
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.shuffler import Shuffler, noise_sums, tally
from discreet.releases.reports import Targets

BUDGET = Budget.approximate(2.0, 1e-4)


def p_value(sample, bits: int, probability: float) -> float:
    """Chi-square of whole numbers against Bin(bits, p), in bins of at least 12 expected."""
    support = np.arange(bits + 1)
    law = stats.binom.pmf(support, bits, probability)
    edges, total = [], 0.0
    for v in support:
        total += law[v] * len(sample)
        if total >= 12.0:
            edges.append(v)
            total = 0.0
    edges = np.array(edges[:-1])
    cumulative = stats.binom.cdf(edges, bits, probability)
    expected = np.diff(np.concatenate([[0.0], cumulative, [1.0]])) * len(sample)
    found = np.bincount(np.searchsorted(edges, sample, side="left"), minlength=len(edges) + 1)
    return float(stats.chisquare(found, expected).pvalue)


def wanderers(spec: CountSpec, users: int) -> Episodes:
    """Users who differ, with rewards 0 or 1, so that the bits are known."""
    rng = np.random.default_rng(users)
    states = rng.integers(0, spec.num_states, (users, spec.horizon + 1))
    actions = rng.integers(0, spec.num_actions, (users, spec.horizon))
    return Episodes(states, actions, rng.integers(0, 2, actions.shape).astype(float))


def through_messages(stream, users: Episodes, seed: int):
    """Sums of the analyzer minus the true bits: noise, with everything sent and shuffled message by message."""
    encoder, noise = stream.encoder(len(users)), NoiseSource.seeded(seed)
    shuffler = Shuffler(encoder, NoiseSource.seeded(seed + 1))
    truth = np.zeros(encoder.num_counters, dtype=np.int64)
    for s, a, r in zip(users.states, users.actions, users.rewards, strict=True):
        ones = encoder.statistic.ones(s, a, r, noise)
        truth[ones] += 1
        shuffler.submit(encoder.messages(ones, noise), encoder.form)
    return tally(encoder, shuffler.flush()).sums - truth


def through_the_stream(spec, users: Episodes, noise):
    """The same noise as the fast path draws it."""
    noisy, exact = (Shuffle(b).open(spec, len(users), noise) for b in (BUDGET, Budget.approximate(math.inf, 1e-4)))
    for stream in (noisy, exact):
        stream.add(users)
    released, truth = noisy.release(), exact.release()
    encoder = noisy.encoder(len(users))
    shift = len(users) * encoder.noise_bits * encoder.probability
    parts = [
        getattr(released, name) - getattr(truth, name) + shift for name in ("visits", "transitions", "reward_sums")
    ]
    return np.rint(np.concatenate([part.ravel() for part in parts])).astype(np.int64)


class BitByBit:
    """Seeded words that look like secure ones, so that every noise bit is drawn."""

    simulation = False

    def __init__(self, seed: int) -> None:
        self.words = NoiseSource.seeded(seed).words


@pytest.mark.parametrize("users", [12, 700], ids=["several bits each", "one unfair bit each"])
@pytest.mark.parametrize("path", ["messages", "bits", "simulation"])
def test_noise_is_the_announced_binomial_on_every_path(path, users):
    """Accepts Bin(M, p); rejects 0.7 and 1.3 times its standard deviation (half and 1.69 times p or M)."""
    spec = CountSpec(4, 3, 2, False, 1.0)
    everybody = wanderers(spec, users)
    encoder = Shuffle(BUDGET).open(spec, users, NoiseSource.seeded(0)).encoder(users)
    M, p = users * encoder.noise_bits, encoder.probability
    sample = []
    for seed in range(8 if path != "messages" else 4):
        if path == "messages":
            stream = Shuffle(BUDGET).open(spec, users, NoiseSource.seeded(0))
            sample.append(through_messages(stream, everybody, 10 * seed))
        else:
            noise = BitByBit(seed) if path == "bits" else NoiseSource.seeded(seed)
            sample.append(through_the_stream(spec, everybody, noise))
    values = np.concatenate(sample)
    assert p_value(values, M, p) > 1e-4
    for factor in (0.7, 1.3):
        spread = factor * (values - values.mean()) + M * p
        assert p_value(np.rint(spread).clip(0, M).astype(np.int64), M, p) < 1e-6


def test_reports_have_the_announced_noise():
    spec = CountSpec(4, 3, 5, True, 1.0)
    users = wanderers(spec, 300)
    values = []
    for seed in range(12):
        released = []
        for budget in (BUDGET, Budget.approximate(math.inf, 1e-4)):
            stream = ShuffleReports(budget).open(spec, 300, NoiseSource.seeded(seed))
            wanted = np.arange(stream.alphabet.num_rows) < 8
            shape = 5, 4, 3
            plan = Plan(np.full(shape, 1 / 3), np.zeros((6, 4)), np.zeros(shape), announcement=Targets(wanted))
            stream.begin(plan)
            stream.add(users)
            encoder = stream.encoder(300)
            released.append((stream.release(), encoder))
        (noisy, encoder), (truth, _) = released
        values.append(noisy.histogram - truth.histogram + 300 * encoder.noise_bits * encoder.probability)
        assert noisy.variance == pytest.approx(
            300 * encoder.noise_bits * encoder.probability * (1 - encoder.probability)
        )
        M, p = 300 * encoder.noise_bits, encoder.probability
    sample = np.rint(np.concatenate([v.ravel() for v in values])).astype(np.int64)
    assert p_value(sample, M, p) > 1e-4


def test_counters_are_independent():
    """No two counters share noise: empirical correlations of 2 000 batches stay within 4.5 standard errors."""
    spec = CountSpec(2, 1, 1, False, 1.0)
    encoder = Shuffle(BUDGET).open(spec, 50, NoiseSource.seeded(0)).encoder(50)
    noise = NoiseSource.seeded(1)
    rows = np.array([noise_sums(encoder, 50, noise) for _ in range(2000)], dtype=float)
    correlation = np.corrcoef(rows.T)
    np.fill_diagonal(correlation, 0.0)
    assert np.abs(correlation).max() < 4.5 / math.sqrt(2000)
