"""Widths hold as often as they say, in simulation, and those of noise 0.7 times as large would not.

Every test counts runs in which some noisy sum leaves its width. With R runs and failure probability at most β the
count exceeds `allowed(R, β)` with probability at most 10⁻⁶; a width that is too small must exceed it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from discreet.privacy.families import Family
from discreet.privacy.sums.epochs import block_of, window_width
from discreet.privacy.tails import (
    adaptive_width,
    exponent_grid,
    gaussian_running_width,
    log_moments,
    running_width,
    symmetric_matrix_width,
    vector_width,
)
from oracles_privacy import gaussian_tree_width, tree_width, weighted_width

BETA = 0.1


def allowed(runs: int, beta: float = BETA) -> int:
    return int(stats.binom.isf(1e-6, runs, beta))


def discrete_laplace(rng, scale, shape):
    p = -math.expm1(-1.0 / scale)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def discrete_gaussian(rng, sigma, shape):
    values = np.arange(-int(12 * sigma) - 1, int(12 * sigma) + 2)
    weights = np.exp(-(values**2) / (2.0 * sigma**2))
    return rng.choice(values, shape, p=weights / weights.sum())


NOISES = {
    "laplace": (discrete_laplace, tree_width, running_width),
    "gaussian": (discrete_gaussian, gaussian_tree_width, gaussian_running_width),
}


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return NOISES[request.param]


def largest_prefix_error(nodes):
    """max over prefixes and counters of |Σ of the nodes of prefix t|; axis 1 is time, one node is made at each t."""
    prefix = np.zeros((nodes.shape[0], nodes.shape[1] + 1, *nodes.shape[2:]), dtype=nodes.dtype)
    for t in range(1, nodes.shape[1] + 1):
        prefix[:, t] = prefix[:, t - (t & -t)] + nodes[:, t - 1]
    return np.abs(prefix).reshape(len(nodes), -1).max(axis=1)


def test_tree(noise):
    draw, width, _ = noise
    runs, prefixes, counters, scale = 4000, 21, 6, 12.0
    errors = largest_prefix_error(draw(np.random.default_rng(1), scale, (runs, prefixes, counters)))
    assert np.count_nonzero(errors > width(scale, prefixes, counters, BETA)) <= allowed(runs)
    assert np.count_nonzero(errors > width(0.7 * scale, prefixes, counters, BETA)) > allowed(runs)


@pytest.mark.parametrize("terms", [1, 5, 150])
def test_running_sums(noise, terms):
    draw, _, width = noise
    runs, counters, scale = 3000, 4, 9.0
    sums = draw(np.random.default_rng(2), scale, (runs, terms, counters)).cumsum(axis=1)
    errors = np.abs(sums).reshape(runs, -1).max(axis=1)
    assert np.count_nonzero(errors > width(scale, terms, counters, BETA)) <= allowed(runs)
    assert np.count_nonzero(errors > width(0.7 * scale, terms, counters, BETA)) > allowed(runs)


@pytest.mark.parametrize("law", sorted(NOISES))
def test_all_windows(law):
    """Of every start and length, all together; the union over them is far from tight, so that it takes half the noise
    to show it."""
    runs, blocks, counters, scale = 3000, 16, 4, 9.0
    sums = NOISES[law][0](np.random.default_rng(3), scale, (runs, blocks, counters)).cumsum(axis=1)
    sums = np.concatenate([np.zeros((runs, 1, counters)), sums], axis=1)
    for shrunk in (1.0, 0.5):
        family = Family("visits", (counters,), 1.0, law, shrunk * scale, None)
        left = np.zeros(runs, dtype=np.bool_)
        for start in range(blocks):
            for length in range(1, blocks - start + 1):
                width = window_width(family, block_of(length), start + 1, BETA)
                left |= (np.abs(sums[:, start + length] - sums[:, start]) > width).any(axis=1)
        assert (np.count_nonzero(left) <= allowed(runs)) == (shrunk == 1.0)


def test_tree_width_is_nearly_tight_for_a_single_release():
    """With one prefix there is no union to lose anything: the failure rate is β, from below."""
    runs, scale = 40_000, 50.0
    noise = np.abs(discrete_laplace(np.random.default_rng(4), scale, runs))
    failures = np.count_nonzero(noise > tree_width(scale, 1, 1, BETA))
    assert stats.binom.isf(1 - 1e-6, runs, 0.95 * BETA) <= failures <= allowed(runs)


def test_weighted_sums():
    """A Chernoff bound: it needs rarer events than the exact tails to tell 0.7 from 1."""
    runs, scale, beta = 200_000, 20.0, 1e-3
    weights = np.linspace(0.4, 1.0, 10)
    noise = np.abs(discrete_laplace(np.random.default_rng(5), scale, (runs, 10)) @ weights)
    assert np.count_nonzero(noise > weighted_width(scale * weights, 1, beta)) <= allowed(runs, beta)
    assert np.count_nonzero(noise > weighted_width(0.7 * scale * weights, 1, beta)) > allowed(runs, beta)


def test_scales_that_react_to_noise():
    """An adversary adds noise until the sum leaves the quantile for the scales so far, then makes its scales tiny.

    The plain quantile at the scales that came about fails; the supermartingale width holds at every time.
    """
    rng = np.random.default_rng(6)
    runs, steps, large, tiny = 3000, 120, 20.0, 0.5
    grid = exponent_grid(tiny, large, steps)
    psi = {scale: log_moments(scale, grid) for scale in (large, tiny)}
    sums, moments = np.zeros(runs), np.zeros((len(grid), runs))
    number_large = np.zeros(runs, dtype=np.int64)
    left, failed = np.zeros(runs, dtype=bool), np.zeros(runs, dtype=bool)
    quantiles = np.array([0.0] + [np.sqrt(2.0 * k) * large * stats.norm.isf(BETA / 2) for k in range(1, steps + 1)])
    for _ in range(steps):
        noise = np.where(left, discrete_laplace(rng, tiny, runs), discrete_laplace(rng, large, runs))
        sums += noise
        number_large += ~left
        moments += np.where(left, psi[tiny][:, None], psi[large][:, None])
        left |= np.abs(sums) > 1.05 * quantiles[number_large]
        failed |= np.abs(sums) > adaptive_width(moments, grid, 1, BETA)
    plain = np.abs(sums) > quantiles[number_large]
    assert np.count_nonzero(plain) > allowed(runs)
    assert np.count_nonzero(failed) <= allowed(runs)


def test_adaptive_width_means_something():
    """At constant scales, half the noise would be found out."""
    runs, steps, scale, beta = 200_000, 5, 20.0, 1e-3
    errors = np.abs(discrete_laplace(np.random.default_rng(7), scale, (runs, steps)).sum(axis=1))
    grid = exponent_grid(5.0, 40.0, steps)
    failures = [
        np.count_nonzero(errors > adaptive_width(steps * log_moments(factor * scale, grid), grid, 1, beta))
        for factor in (1.0, 0.5)
    ]
    assert failures[0] <= allowed(runs, beta) < failures[1]


def test_symmetric_matrices():
    rng = np.random.default_rng(8)
    runs, d, s = 4000, 12, 3.0
    raw = rng.normal(0.0, s, (runs, d, d))
    noise = (raw + raw.transpose(0, 2, 1)) / math.sqrt(2.0)  # off-diagonal deviation s, diagonal √2·s
    norms = np.abs(np.linalg.eigvalsh(noise)).max(axis=1)
    assert noise[:, 0, 1].std() == pytest.approx(s, rel=0.05)
    assert np.count_nonzero(norms > symmetric_matrix_width(s, d, BETA)) <= allowed(runs)
    assert np.count_nonzero(norms > symmetric_matrix_width(0.6 * s, d, BETA)) > allowed(runs)


def test_vectors():
    rng = np.random.default_rng(9)
    runs, d, sigma = 20_000, 6, 2.5
    norms = np.linalg.norm(rng.normal(0.0, sigma, (runs, d)), axis=1)
    failures = np.count_nonzero(norms > vector_width(sigma, d, BETA))
    assert stats.binom.isf(1 - 1e-6, runs, BETA) <= failures <= allowed(runs)
    assert np.count_nonzero(norms > vector_width(0.7 * sigma, d, BETA)) > allowed(runs)
