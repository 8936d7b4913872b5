"""Balanced noise: its exact law by enumeration, what it costs any two people, how large it is, where it is used."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy import noise as noises
from discreet.privacy.accounting import Budget, guarantee_of, laplace_entry, ledger_total, pld_epsilon
from discreet.privacy.noise import Balanced, DiscreteLaplace, NoiseSource
from discreet.privacy.protocol import Sealed
from discreet.privacy.trust.reports import BALANCED, BalancedNoise, Reports, alphabet_of
from discreet.privacy.trust.sparse_reports import SparseReportNoise
from discreet.privacy.trust.two_servers import TwoServerReports
from discreet.problem import PublicStructure
from discreet.releases.reports import ConstantNoise
from oracles_spotlight import announced

ONE = Budget.pure(1.0)
START = PublicStructure(initial=np.array([1.0, 0.0]))


def points(size: int, reach: int) -> np.ndarray:
    """All vectors of whole numbers up to `reach`."""
    return np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * size, indexing="ij"), axis=-1).reshape(-1, size)


def given_that_they_balance(z: np.ndarray, scale: float) -> np.ndarray:
    """P(z) of d of d + 1 independent noises that add up to 0, up to the normaliser."""
    law = DiscreteLaplace(scale)
    return law.pmf(z).prod(axis=1) * law.pmf(z.sum(axis=1))


def people(size: int, reports: int) -> np.ndarray:
    """What one of them can add: every sum of at most m unit vectors."""
    ways = itertools.product([None, *range(size)], repeat=reports)
    return np.unique([[sum(i == j for i in way) for j in range(size)] for way in ways], axis=0)


# The law ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_stated_law_is_that_of_independent_noises_that_add_up_to_nothing(size):
    z = points(size, 5)
    for scale in (0.5, 2.0):
        ratio = np.exp(Balanced(scale, size).log_weight(z)) / given_that_they_balance(z, scale)
        assert ratio.max() == pytest.approx(ratio.min(), rel=1e-9)


def worst(law, one, other):
    """Largest |log-ratio| over all releases near by."""
    y = points(one.size, 5)
    return np.abs(law(y - one) - law(y - other)).max()


@pytest.mark.parametrize(("size", "reports"), [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2)])
def test_any_two_people_are_within_epsilon_of_each_other_and_it_is_attained(size, reports):
    law = Balanced(Reports(ONE, reports=reports).entry().scale, size)
    pairs = list(itertools.combinations(people(size, reports), 2))
    found = [worst(law.log_weight, *pair) for pair in pairs]
    assert max(found) <= 1.0
    assert max(found) == pytest.approx(1.0, rel=1e-9)
    short = Balanced(law.scale / 2, size)
    assert max(worst(short.log_weight, *pair) for pair in pairs) == pytest.approx(2.0, rel=1e-9)


def test_under_zero_out_it_would_gain_nothing():
    """A report comes or goes: one number less, as much as any report that becomes another."""
    law = Balanced(Reports(ONE).entry().scale, 2)
    nobody, someone = np.array([0, 0]), np.array([1, 0])
    assert worst(law.log_weight, nobody, someone) == pytest.approx(1.0, rel=1e-9)


# The sampler --------------------------------------------------------------------------------------------------------


def p_value(drawn: np.ndarray, scale: float) -> float:
    """Of a χ² test on all vectors that should be there ten times, and the rest."""
    size = drawn.shape[1]
    z = points(size, {1: 60, 2: 40, 3: 16}[size])
    mass = given_that_they_balance(z, scale)
    mass *= len(drawn) / mass.sum()
    reach = int(np.abs(z).max())
    inside = (np.abs(drawn) <= reach).all(axis=1)
    places = ((drawn[inside] + reach) @ (2 * reach + 1) ** np.arange(size)[::-1]).astype(np.int64)
    seen = np.bincount(places, minlength=len(z))
    often = mass >= 10.0
    expected = np.append(mass[often], mass[~often].sum())
    observed = np.append(seen[often], seen[~often].sum() + (~inside).sum())
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize(("size", "scale"), [(1, 2.0), (2, 0.7), (2, 2.0), (3, 1.0)])
def test_the_drawn_law_is_the_stated_one_and_no_other(size, scale):
    source = NoiseSource.seeded(size)
    drawn = np.array([source.balanced(scale, size) for _ in range(40_000)])
    assert p_value(drawn, scale) > 1e-3
    for factor in (0.7, 1.3):
        assert p_value(drawn, factor * scale) < 1e-9


def careless(kept):
    """The sampler with another step that accepts: a function of the sum and of a geometric draw."""

    def draw(source, scale, size):
        while True:
            z = source.laplace(scale, size)
            if kept(int(z.sum()), int(source.geometric(scale, 1)[0])):
                return z

    return draw


@pytest.mark.parametrize(
    ("kept", "right"),
    [
        (lambda total, coin: coin >= abs(total), True),
        (lambda total, coin: coin >= total, False),
        (lambda total, coin: coin > abs(total), True),  # one factor for all of them
        (lambda total, coin: 2 * coin >= abs(total), False),
        (lambda total, coin: True, False),
    ],
    ids=["as it is", "without the absolute value", "strictly", "half of the scale", "always"],
)
def test_another_step_that_accepts_is_seen(kept, right):
    source, draw = NoiseSource.seeded(4), careless(kept)
    drawn = np.array([draw(source, 2.0, 2) for _ in range(15_000)])
    assert (p_value(drawn, 2.0) > 1e-3) == right


def test_long_vectors_have_the_moments_of_the_law():
    for size in (40, 256):
        law, source = Balanced(3.0, size), NoiseSource.seeded(size)
        drawn = np.array([source.balanced(3.0, size) for _ in range(3000)]).astype(float)
        squares, totals = (drawn**2).mean(axis=1), drawn.sum(axis=1)
        assert abs(squares.mean() - law.variance) < 4.5 * squares.std() / math.sqrt(3000)
        # the last noise, which is not released, has the law of every other one
        assert abs((totals**2).mean() - law.variance) < 4.5 * (totals**2).std() / math.sqrt(3000)
        assert (totals**2).mean() < 0.1 * size * law.variance


def test_noise_of_scale_0_is_none_long_vectors_are_tried_one_by_one_and_a_seed_repeats(monkeypatch):
    source = NoiseSource.seeded(1)
    assert not source.balanced(0.0, 3).any()
    assert source.balanced(1.0, 0).shape == (0,)
    assert np.array_equal(NoiseSource.seeded(2).balanced(2.0, 9), NoiseSource.seeded(2).balanced(2.0, 9))
    monkeypatch.setattr(noises, "_TRIED", 4)
    drawn = np.array([source.balanced(2.0, 3) for _ in range(2000)])
    assert p_value(drawn, 2.0) > 1e-3
    with pytest.raises(ValueError, match="scale"):
        Balanced(0.0, 3)
    with pytest.raises(ValueError, match="size"):
        Balanced(1.0, 0)


# How large it is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_variance_is_that_of_all_vectors_summed_up(scale, size):
    z = points(size, int(12 * scale) + 8)
    mass = given_that_they_balance(z, scale)
    variance = float((mass * z[:, 0] ** 2).sum() / mass.sum())
    assert Balanced(scale, size).variance == pytest.approx(variance, rel=1e-7)


@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0, 20.0, 1e6])
def test_the_variance_by_the_characteristic_function_in_closed_form_and_in_the_limits(scale):
    """∫φᵈ·(−φ″)/∫φᵈ⁺¹, φ that of one noise; one number is Laplace noise of half the scale, very many independent."""
    one, half = DiscreteLaplace(scale), DiscreteLaplace(scale / 2) if scale > 0.2 else None
    if half is not None:
        assert Balanced(scale, 1).variance == pytest.approx(half.variance, rel=1e-12)
    sizes = [Balanced(scale, size).variance for size in (1, 2, 5, 20, 100, BALANCED)]
    assert sizes == sorted(sizes)
    assert sizes[-1] < one.variance
    if scale >= 2.0:
        assert sizes[-1] > 0.99 * one.variance
        assert Balanced(scale, 10**5).variance == pytest.approx(one.variance, rel=1e-4)
    if scale >= 20.0:  # continuous noise: 2b²·d(d + ½)/((d + 1)(d + 2))
        assert Balanced(scale, 7).variance == pytest.approx(2 * scale**2 * 7 * 7.5 / (8 * 9), rel=2e-3)
    if scale <= 20.0:
        q, n = math.exp(-1 / scale), 40_000
        theta = 2 * math.pi * np.arange(n) / n
        below = 1 - 2 * q * np.cos(theta) + q * q
        phi = (1 - q) ** 2 / below
        bent = phi * (2 * q * np.cos(theta) / below - 8 * q**2 * np.sin(theta) ** 2 / below**2)
        for size in (1, 3, 60):
            told = (phi**size * bent).sum() / (phi ** (size + 1)).sum()
            assert Balanced(scale, size).variance == pytest.approx(told, rel=1e-7)


# Where it is used ---------------------------------------------------------------------------------------------------


def test_the_curator_balances_few_sub_cells_and_nobody_else_does():
    entry = Reports(ONE).entry()
    assert entry.mechanism == "balanced-laplace"
    assert (entry.sensitivity, entry.uses) == (2.0, 1)
    for size in (1, 16, BALANCED):
        drawn = Reports(ONE).drawn(size, NoiseSource.seeded(3))
        assert np.array_equal(drawn, NoiseSource.seeded(3).balanced(entry.scale, size)[None])
    independent = [
        (Reports(ONE), BALANCED + 1),
        (Reports(ONE, "zero-out"), 16),
        (TwoServerReports(ONE), 16),
        (TwoServerReports(ONE, "zero-out"), 16),
        (SparseReportNoise(ONE), 16),
    ]
    for private, size in independent:
        scale = private.entry().scale
        drawn = private.drawn(size, NoiseSource.seeded(3))
        assert np.array_equal(drawn, NoiseSource.seeded(3).laplace(scale, (private.noises, size)))
        assert private.law.variance(9, size) == private.noises * DiscreteLaplace(scale).variance
        assert (private.entry().mechanism == "discrete-laplace") == (private is not independent[0][0])
    assert isinstance(Reports(ONE, "zero-out").law, ConstantNoise)


def test_the_law_that_sizes_epochs_is_that_of_as_many_sub_cells():
    law, scale = Reports(ONE, reports=2).law, 4.0 * (1 + 2e-10)
    alone = DiscreteLaplace(scale).variance
    assert (law.draws, law.variance(0, 0), law.variance(7, BALANCED + 1)) == (1.0, alone, alone)
    assert law.variance(100, 1) == law.variance(200, 1) == pytest.approx(DiscreteLaplace(scale / 2).variance)
    assert law.variance(5, 30) == Balanced(scale, 30).variance
    assert BalancedNoise(0.0).variance(5, 5) == 0.0


def test_a_release_states_the_variance_of_the_sub_cells_that_were_noised():
    spec = CountSpec(2, 2, 2, True, 1.0)
    private = Reports(ONE, structure=START)
    stream = private.open(spec, 100, NoiseSource.seeded(0))
    scale, alphabet = private.entry().scale, alphabet_of(spec, START)
    assert stream.release().variance == DiscreteLaplace(scale).variance  # nothing was asked for
    assert stream.variance(9) == Balanced(scale, 16).variance
    user = Episodes(np.zeros((1, 3), int), np.zeros((1, 2), int), np.zeros((1, 2)))
    by_class = announced(alphabet, (0, 2))
    object.__setattr__(by_class.announcement, "classes", np.array([0, 0]))
    for plan, size in ((announced(alphabet, (0,)), 4), (announced(alphabet, range(4)), 16), (by_class, 4)):
        stream.begin(plan)
        stream.add(user)
        assert stream.release().variance == Balanced(scale, size).variance
    sealed = [Sealed(announced(alphabet, (0, 1)), 5, np.arange(8))]
    release = private.released(spec, 10, sealed)
    assert release.variance == Balanced(scale, 8).variance
    assert release.histogram.reshape(-1).tolist() == list(range(8))
    two = TwoServerReports(ONE, structure=START).released(spec, 10, sealed)
    assert two.variance == 2 * DiscreteLaplace(scale).variance


@pytest.mark.parametrize("looks", [False, True], ids=["as it is", "at what people sent"])
def test_noise_does_not_know_whom_it_hides(looks):
    """Balanced by itself: to balance what is released instead would take away what people sent."""

    class Looking(Reports):
        def sealed(self, tally, noise):
            if not looks:
                return super().sealed(tally, noise)
            draw = careless(lambda total, coin: coin >= abs(total + int(tally.sum())))
            return tally + draw(noise, self.entry().scale, tally.size)

    tally, source = np.array([3, 2]), NoiseSource.seeded(6)
    drawn = np.array([Looking(ONE).sealed(tally, source) - tally for _ in range(15_000)])
    assert (p_value(drawn, 2.0) > 1e-3) != looks


# What it costs in company -------------------------------------------------------------------------------------------


def composed_answers(epsilon: float, times: int, delta: float) -> float:
    """The exact ε at δ of so many randomised answers, by their binomial law."""
    j = np.arange(times + 1)
    losses = (2 * j - times) * epsilon
    mass = stats.binom.pmf(j, times, 1 / (1 + math.exp(-epsilon)))
    low, high = 0.0, times * epsilon
    for _ in range(80):
        middle = (low + high) / 2
        spent = (mass * np.maximum(0.0, -np.expm1(middle - losses))).sum()
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


@pytest.mark.parametrize("times", [1, 5, 30])
def test_composed_losses_are_those_of_randomised_answers(times):
    """On one number the log-ratio is ±ε always: what Laplace noise of that scale costs would be too little."""
    entry = Reports(Budget.pure(0.5)).entry()
    law = Balanced(entry.scale, 1)
    y = np.arange(-4, 6)[:, None]
    assert np.abs(np.abs(law.log_weight(y) - law.log_weight(y - 1)) - 0.5).max() < 1e-9
    found, truth = pld_epsilon([entry] * times, 1e-6), composed_answers(entry.cost, times, 1e-6)
    assert truth - 1e-9 <= found <= truth + 0.02
    assert found <= ledger_total([entry] * times).epsilon
    if times == 30:
        twin = laplace_entry("reports", entry.sensitivity, entry.scale)
        assert pld_epsilon([twin] * times, 1e-6) < 0.97 * truth
    told = guarantee_of([entry] * times, "joint", delta=1e-6, privacy_loss=True)
    assert told.epsilon == found
