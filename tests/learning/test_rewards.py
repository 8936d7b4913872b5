"""Reward laws: their distribution, their order of consuming randomness, and their moments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from discreet.envs.rewards import KINDS, RewardLaw

ALL_LAWS = [RewardLaw(kind) for kind in KINDS] + [
    RewardLaw("alpha-stable", alpha=1.3),
    RewardLaw("bernoulli", scale=4),
]


@pytest.mark.parametrize("law", ALL_LAWS, ids=repr)
def test_rows_drawn_together_equal_rows_drawn_one_by_one(law: RewardLaw) -> None:
    means = np.random.default_rng(1).random((7, 20))
    together = law.sample(means, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    one_by_one = np.stack([law.sample(row, rng) for row in means])
    np.testing.assert_array_equal(together, one_by_one)
    assert together.shape == means.shape


@pytest.mark.parametrize("law", ALL_LAWS, ids=repr)
def test_a_single_reward_keeps_the_shape_of_its_mean(law: RewardLaw) -> None:
    assert law.sample(0.5, np.random.default_rng(0)).shape == ()


def test_deterministic_rewards_are_a_copy_of_their_means() -> None:
    means = np.array([0.25, -3.0])
    sample = RewardLaw("deterministic").sample(means, np.random.default_rng(0))
    np.testing.assert_array_equal(sample, means)
    sample[0] = 9.0
    assert means[0] == 0.25


@pytest.mark.parametrize("scale", [1.0, 4.0, 1 / 3])
def test_bernoulli_rewards_take_two_values_with_the_right_frequency(scale: float) -> None:
    n = 40_000
    law = RewardLaw("bernoulli", scale=scale)
    for share in (0.0, 0.005, 0.35, 1.0):
        sample = law.sample(np.full(n, share * scale), np.random.default_rng(3))
        assert set(np.unique(sample)) <= {0.0, scale}
        wins = int((sample > 0).sum())
        if share in (0.0, 1.0):
            assert wins == share * n
        else:
            assert stats.binomtest(wins, n, share).pvalue > 0.001


@pytest.mark.parametrize(
    ("law", "unit"),
    [
        (RewardLaw("gaussian", scale=1.5), stats.norm()),
        (RewardLaw("alpha-stable", scale=1.5, alpha=2.0), stats.norm(scale=math.sqrt(2))),
        (RewardLaw("student-t", scale=1.5, df=2.5), stats.t(2.5)),
        (RewardLaw("pareto", scale=1.5, tail_index=2.5), stats.pareto(2.5, loc=-2.5 / 1.5)),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_noise_has_its_law_and_no_other_scale(law: RewardLaw, unit: stats.distributions.rv_frozen) -> None:
    noise = (law.sample(np.full(20_000, 0.7), np.random.default_rng(11)) - 0.7) / law.scale
    assert stats.kstest(noise, unit.cdf).pvalue > 0.001
    for wrong in (0.7, 1.3):
        assert stats.kstest(noise * wrong, unit.cdf).pvalue < 1e-9


@pytest.mark.parametrize("alpha", [1.1, 1.5, 1.9, 2.0])
def test_stable_noise_has_its_characteristic_function(alpha: float) -> None:
    n = 40_000
    law = RewardLaw("alpha-stable", scale=0.5, alpha=alpha)
    noise = (law.sample(np.full(n, 2.0), np.random.default_rng(2)) - 2.0) / 0.5

    def misfit(sample: np.ndarray) -> float:
        t = np.array([0.3, 0.7, 1.0, 1.5])
        empirical = np.exp(1j * t * sample[:, None]).mean(axis=0)
        return float(np.abs(empirical - np.exp(-(t**alpha))).max() * math.sqrt(n))

    assert misfit(noise) < 3.5
    for wrong in (0.7, 1.3):
        assert misfit(noise * wrong) > 10


def test_the_heavy_tailed_experiment_has_its_published_moment() -> None:
    # Symmetric stable with alpha = 2 and scale 1 around means of at most 1 is N(m, 2): E r² ≤ 3.
    assert RewardLaw("alpha-stable", alpha=2.0).moment_bound(1.0, 1.0) == pytest.approx(3.0, rel=1e-12)


def _moment(density: Callable[[float], float], mean: float, p: float, points: list[float]) -> float:
    edges = [-np.inf, *sorted({-mean, *points}), np.inf]
    return sum(
        quad(lambda x: abs(mean + x) ** p * density(x), low, high, limit=200)[0]
        for low, high in itertools.pairwise(edges)
    )


@given(st.floats(0.05, 1.0), st.floats(0.0, 3.0), st.floats(-1.0, 1.0))
@settings(max_examples=25, deadline=None)
def test_moment_bounds_dominate_the_true_moments(v: float, mean_bound: float, share: float) -> None:
    mean = share * mean_bound
    for law, density in (
        (RewardLaw("gaussian"), lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
        (RewardLaw("student-t", df=3.0), lambda x: 6 * math.sqrt(3) / (math.pi * (3 + x * x) ** 2)),
    ):
        assert _moment(density, mean, 1 + v, [0.0]) <= law.moment_bound(mean_bound, v) * (1 + 1e-6)


@pytest.mark.parametrize("mean_bound", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("v", [0.3, 1.0])
def test_the_pareto_moment_is_attained_at_an_end_of_the_means(mean_bound: float, v: float) -> None:
    a, scale = 3.2, 0.8
    law = RewardLaw("pareto", scale=scale, tail_index=a)

    # With Y = w^(−1/a), w uniform, and w = x^8 the moment is an integral of a bounded function over [0, 1].
    def moment(mean: float) -> float:
        def integrand(x: float) -> float:
            return 8 * x**7 * abs(mean + scale * (x ** (-8 / a) - a / (a - 1))) ** (1 + v)

        return quad(integrand, 0, 1, limit=500, epsabs=1e-12)[0]

    true = max(moment(m) for m in np.linspace(-mean_bound, mean_bound, 9))
    assert law.moment_bound(mean_bound, v) == pytest.approx(true, rel=1e-6)


@pytest.mark.parametrize(("df", "v"), [(4.0, 0.5), (2.5, 1.0)])
def test_student_moments_match_their_integral(df: float, v: float) -> None:
    true = _moment(stats.t(df).pdf, 0.0, 1 + v, [])
    assert RewardLaw("student-t", df=df).moment_bound(0.0, v) == pytest.approx(true, rel=1e-5)


@pytest.mark.parametrize(("alpha", "v"), [(1.5, 0.2), (1.8, 0.6), (2.0, 0.6)])
def test_stable_moments_match_the_integral_of_the_characteristic_function(alpha: float, v: float) -> None:
    # E|X|^p = 2Γ(p+1)·sin(πp/2)/π · ∫_0^∞ (1 − φ(t))·t^(−p−1) dt for 0 < p < 2.
    p = 1 + v
    near = quad(lambda t: -math.expm1(-(t**alpha)) * t ** (-p - 1), 0, 1, limit=500)[0]
    far = quad(lambda t: -math.expm1(-(t**alpha)) * t ** (-p - 1), 1, np.inf, limit=500)[0]
    true = 2 * math.gamma(p + 1) * math.sin(math.pi * p / 2) / math.pi * (near + far)
    assert RewardLaw("alpha-stable", alpha=alpha, scale=1.7).moment_bound(0.0, v) == pytest.approx(
        1.7**p * true, rel=1e-4
    )


def test_bounded_laws_have_their_largest_moment_at_the_largest_mean() -> None:
    assert RewardLaw("deterministic").moment_bound(2.0, 0.5) == pytest.approx(2.0**1.5)
    assert RewardLaw("bernoulli").moment_bound(0.3, 0.5) == pytest.approx(0.3)
    assert RewardLaw("bernoulli").moment_bound(7.0, 0.5) == 1.0
    # r = 4 with probability 1/8: E r^1.5 = 8/8.
    assert RewardLaw("bernoulli", scale=4.0).moment_bound(0.5, 0.5) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("law", "v"),
    [
        (RewardLaw("alpha-stable", alpha=1.5), 0.5),
        (RewardLaw("student-t", df=2.0), 1.0),
        (RewardLaw("pareto", tail_index=1.5), 0.5),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_an_infinite_moment_is_refused_and_a_lower_one_is_not(law: RewardLaw, v: float) -> None:
    with pytest.raises(ValueError, match=r"is infinite under the .* law with"):
        law.moment_bound(1.0, v)
    assert math.isfinite(law.moment_bound(1.0, v - 0.01))


def test_ranges() -> None:
    assert RewardLaw("bernoulli").range([0.2]) == (0.0, 1.0)
    assert RewardLaw("bernoulli", scale=4).range([0.2]) == (0.0, 4.0)
    assert RewardLaw("deterministic").range([[-1.0, 0.2], [5.0, 0.0]]) == (-1.0, 5.0)
    for kind in ("gaussian", "alpha-stable", "student-t", "pareto"):
        assert RewardLaw(kind).range([0.2]) is None
        assert not RewardLaw(kind).bounded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "bernouli"}, "nearest is 'bernoulli'"),
        ({"kind": "gaussian", "scale": 0.0}, "scale is 0.0"),
        ({"kind": "gaussian", "scale": math.nan}, "scale is nan"),
        ({"kind": "alpha-stable", "alpha": 1.0}, r"alpha is 1.0; it must lie in \(1, 2\]"),
        ({"kind": "alpha-stable", "alpha": 2.1}, r"alpha is 2.1; it must lie in \(1, 2\]"),
        ({"kind": "student-t", "df": 1.0}, "df is 1.0; it must exceed 1"),
        ({"kind": "pareto", "tail_index": 0.5}, "tail_index is 0.5; it must exceed 1"),
        ({"kind": "alpha-stable", "tail_index": 1.5}, "tail_index belongs to the pareto law"),
    ],
)
def test_wrong_parameters_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardLaw(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("means", [[-0.1, 0.5], [0.2, 1.5]])
def test_bernoulli_refuses_means_outside_the_unit_interval(means: list[float]) -> None:
    with pytest.raises(ValueError, match=r"the Bernoulli law needs means in \[0, 1\]"):
        RewardLaw("bernoulli").sample(means, np.random.default_rng(0))


def test_means_must_be_finite_and_moments_need_a_sane_question() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        RewardLaw("gaussian").sample([0.0, math.nan], np.random.default_rng(0))
    with pytest.raises(ValueError, match="v is 0"):
        RewardLaw("gaussian").moment_bound(1.0, 0.0)
    with pytest.raises(ValueError, match="mean_bound is -1"):
        RewardLaw("gaussian").moment_bound(-1.0, 0.5)
