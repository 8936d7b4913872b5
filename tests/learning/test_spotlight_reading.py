"""Reading noisy reports: closed forms against quadrature, and what is learned over all cells."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_reading as oracle
from discreet.agents import reading
from discreet.agents.reading import Evidence, Reading, branchings, read, row_components, shrunk_means, with_row_prior
from discreet.kernels import reading as kernel


def included(y, scale, rate, w):
    """(inclusion, E[n], E[n²]) of an outcome by the fast way of an exponential slab."""
    beta = 1.0 / scale
    rate = kernel.slab_rate(1.0 / rate, beta)
    exponent = (beta - rate) * y
    rise = math.exp(exponent) if exponent < kernel.FAR else math.inf
    return kernel.included(y, beta, w, rate, rise)


def mixed(log_ratio, first, second, w):
    """The same from the ratio of densities and moments of the slab."""
    inside = 1.0 / (1.0 + (1.0 - w) / w * math.exp(-min(log_ratio, 700.0)))
    return inside, inside * first, inside * second


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-30.0, 90.0),
    st.floats(0.4, 12.0),
    st.one_of(st.just(0.0), st.floats(0.005, 8.0)),
    st.one_of(st.just(math.inf), st.floats(4.0, 70.0)),
)
def test_posteriors_in_closed_form_equal_quadrature(y, scale, rate, cap):
    if rate == 0.0 and cap == math.inf:
        cap = 50.0
    found = kernel.slab(y, scale, rate, cap)
    assert found == pytest.approx(oracle.moments(y, scale, rate, cap), rel=1e-6, abs=1e-7)
    if cap == math.inf:
        assert included(y, scale, rate, 0.3) == pytest.approx(mixed(*found, 0.3), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("rate", [0.5 - 1e-9, 0.5, 0.5 + 1e-9, 0.499, 0.501])
def test_posteriors_are_smooth_where_slab_and_noise_have_the_same_rate(rate):
    """Differences of exponentials cancel there; a series takes their place."""
    found = kernel.slab(17.0, 2.0, rate, math.inf)
    assert found == pytest.approx(oracle.moments(17.0, 2.0, rate, math.inf), rel=1e-8)
    assert included(17.0, 2.0, rate, 0.3) == pytest.approx(mixed(*found, 0.3), rel=1e-6)


@pytest.mark.parametrize("outcomes", [1, 3, 7, 20, 100, 400])
@pytest.mark.parametrize("y", [0.3, 9.0, 70.0, 900.0])
def test_powers_of_one_exponential_are_those_of_every_branching(outcomes, y):
    """Also where a rate is that of the noise, and where branchings beyond the possible outcomes say nothing new."""
    sizes = np.append(branchings(outcomes), 0)
    totals, beta = np.array([4.0, 34.0, 340.0]), 0.5  # with two outcomes, 4 reports have the rate of the noise
    rates = np.array([[kernel.slab_rate(N / max(b, 1), beta) for b in sizes] for N in totals])
    moved = np.abs(beta * totals[:, None] - sizes) < 1e-6
    found, expected = np.empty(rates.shape), np.exp(np.minimum((beta - rates) * y, 600.0))
    kernel._rises(y, beta, totals, sizes, kernel._steps(sizes), moved, bool(moved.any()), sizes.size, found)
    expected[(beta * y >= kernel.FAR) & ((beta - rates) * y >= kernel.FAR)] = np.inf
    possible = sizes > 0
    assert found[:, possible] == pytest.approx(expected[:, possible], rel=1e-12)
    assert moved.any() == (outcomes in (3, 7, 20, 100, 400))


@pytest.mark.parametrize("y", [-1e5, 1e5])
@pytest.mark.parametrize("rate", [1e-3, 1.0, 50.0])
def test_posteriors_of_huge_counts_are_finite(y, rate):
    ratio, first, second = kernel.slab(y, 2.0, rate, math.inf)
    assert np.isfinite([ratio, first, second]).all()
    assert included(y, 2.0, rate, 0.3) == pytest.approx(mixed(ratio, first, second, 0.3), rel=1e-9)
    if y > 0 and rate < 0.5:
        assert first == pytest.approx(y, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.floats(-30.0, 90.0), st.floats(2.0, 12.0), st.floats(0.005, 8.0))
def test_posteriors_under_normal_noise_equal_quadrature(y, deviation, rate):
    tilt = y / deviation - rate * deviation
    integral, first, second = kernel.half_normal(tilt)
    found = math.log(rate * deviation) + integral, deviation * first, deviation**2 * second
    assert found == pytest.approx(oracle.moments(y, deviation / math.sqrt(2.0), rate, math.inf, True), rel=1e-6)
    assert kernel.normally_included(y, math.sqrt(2.0) / deviation, 0.3, rate, found[0]) == pytest.approx(
        mixed(*found, 0.3), rel=1e-9
    )


@settings(max_examples=60, deadline=None)
@given(st.floats(-30.0, 90.0), st.floats(2.0, 12.0), st.floats(4.0, 70.0))
def test_rewards_under_normal_noise_equal_quadrature(y, deviation, cap):
    y = min(max(y, -15.0 * deviation), cap + 15.0 * deviation)
    expected = oracle.moments(y, deviation / math.sqrt(2.0), 0.0, cap, True)
    assert kernel.normal_slab(y, deviation, cap) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_normal_posteriors_are_smooth_where_the_continued_fraction_begins_and_finite_far_away():
    beside = [kernel.half_normal(kernel.TAIL + side) for side in (-1e-9, 1e-9)]
    assert beside[0] == pytest.approx(beside[1], rel=1e-7)
    for y in (-1e5, 1e5):
        assert np.isfinite(kernel.half_normal(y)).all()
        ratio, first, second = kernel.normal_slab(y, 2.0, 30.0)
        assert np.isfinite(ratio)
        assert first == pytest.approx(0.0 if y < 0 else 30.0, abs=0.2)
        assert second == pytest.approx(first * first, abs=0.1)


def test_partial_integrals_agree_on_both_sides_of_the_series():
    for rate in (0.049999, 0.050001):
        found = kernel.partial_gamma(rate, 10.0)
        expected = [oracle.integrate.quad(lambda m, k=k, c=rate: m**k * math.exp(-c * m), 0, 10)[0] for k in range(3)]
        assert found == pytest.approx(expected, rel=1e-9)


# One cell -----------------------------------------------------------------------------------------------------------


def evidence_of(sums, variance=8.0, expected=40.0, admitted=None, normal=False):
    sums = np.asarray(sums, dtype=float)
    C = sums.shape[0]
    admitted = np.ones(sums.shape, dtype=bool) if admitted is None else admitted
    return Evidence(sums, np.full(C, float(variance)), np.full(C, float(expected)), admitted, normal)


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize(
    "sums",
    [
        [41.0, 1.0, -3.0, 2.5, 0.5, -1.0, 3.0, 0.0],
        [5.0, 14.0, 7.0, 11.0, -2.0, 0.0, 4.0, 1.0],
        [-1.0, 2.0, 3.0, -4.0, 0.0, 1.0, -2.0, 0.5],
        [9.0, 11.0, 10.0, 8.0, 12.0, 9.5, 7.0, 10.5],
        [2.0, 9.0, 6.0, 8.0, -1.0, 7.5, -3.0, 6.0],
    ],
)
def test_a_cell_is_read_as_by_the_definitions(sums, normal):
    evidence = evidence_of([sums], normal=normal)
    found = read(evidence, Reading.nothing(evidence.admitted), np.array([0]))
    B = branchings(4)
    P, spread, inclusion, N, r, mean_variance, pays, branching = oracle.read_cell(
        sums,
        8.0,
        40.0,
        [0.25] * 4,
        B,
        [1 / B.size] * B.size,
        reading.RATIOS,
        np.exp(reading.LOG_RATIOS),
        0.5,
        reading.KEEP,
        reading.KEEP_REWARD,
        normal,
    )
    assert found.rows[0] == pytest.approx(P, abs=2e-3)
    assert found.spreads[0] == pytest.approx(spread, rel=5e-3, abs=5e-3)
    assert found.inclusions[0] == pytest.approx(inclusion, abs=2e-3)
    assert found.counts[0] == pytest.approx(N, rel=2e-3)
    assert found.means[0] == pytest.approx(r, abs=2e-3)
    assert found.mean_variances[0] == pytest.approx(mean_variance, abs=1e-3)
    assert found.pays[0] == pytest.approx(pays, abs=2e-3)
    assert found.branching[0] == pytest.approx(branching, abs=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_one_exponential_serves_all_branchings(seed):
    """Evidence of the grid from powers of e^{−y/N}, clear and certain outcomes and clipped priors included."""
    rng = np.random.default_rng(seed)
    S, root = 30, 2.8
    sums = rng.laplace(0.0, 2.0, 2 * S) + np.where(rng.random(2 * S) < 0.3, rng.integers(0, 1500, 2 * S), 0.0)
    prior = rng.dirichlet(np.full(S, 0.2))
    prior[prior < 1e-6] = 0.0
    prior /= prior.sum()
    support = np.where(rng.random(S) < 0.5, rng.random(S), -1.0) if seed % 2 else np.empty(0)
    grid, width = branchings(S), int(rng.integers(9, S + 1))
    inclusion, clipped = np.empty((S, grid.size)), np.empty(S, dtype=np.int64)
    sizes, totals = np.empty(grid.size, dtype=np.int64), 200.0 * reading.RATIOS
    kernel._inclusions(prior, support, 0.7, grid, width, inclusion, clipped, sizes)
    shares = np.log(rng.dirichlet(np.ones(grid.size)))
    facts = sums, prior, root, False, totals, sizes, inclusion, clipped, shares, reading.LOG_RATIOS
    evidence = np.empty((totals.size, grid.size))
    kernel._weigh(0.3, facts, np.empty((S, *evidence.shape)), np.empty((S, totals.size)), evidence)
    scale = root / math.sqrt(2 * (0.3**2 + 0.7**2))
    expected = np.full(evidence.shape, -np.inf)
    for k, total in enumerate(totals):
        for i, b in enumerate(grid):
            if i and grid[i - 1] >= width:
                continue
            b = min(b, width)
            expected[k, i] = shares[i] + reading.LOG_RATIOS[k]
            for s in np.flatnonzero(prior):
                w = min(b * prior[s], 0.97)
                mu = total * prior[s] / w
                if support.size and support[s] >= 0.0:
                    w, mu = min(0.3 * b / width + 0.7 * support[s], 0.97), total / b
                y = kernel.combined(sums[2 * s + 1], sums[2 * s], 0.3)
                expected[k, i] += kernel.log_mixture(w, kernel.slab(y, scale, 1.0 / max(mu, 1e-3), math.inf)[0])
    expected = np.exp(expected - expected.max())
    assert evidence == pytest.approx(expected / expected.sum(), abs=1e-7)


@pytest.mark.parametrize("away", [0.0, 0.9e-7, -0.9e-7, 3e-7])
def test_a_cell_is_read_where_the_rates_of_counts_and_noise_meet(away):
    """With 3 outcomes of 40 reports in all, counts fall at 3/40, and so does noise of variance 3200/9, nearly."""
    sums = np.zeros((1, 10))
    sums[0, ::2] = [300.0, 40.0, 9.0, -3.0, 0.5]

    def beside(distance):
        evidence = evidence_of(sums, variance=3200.0 / 9.0 * (1.0 - distance) ** 2)
        return read(evidence, Reading.nothing(evidence.admitted), np.array([0]))

    found, expected = beside(away), beside(away + 1e-4)
    assert found.soft == pytest.approx(expected.soft, rel=1e-3)
    assert found.branching == pytest.approx(expected.branching, rel=1e-2, abs=1e-6)


def test_cells_read_again_from_the_same_sums_go_on_from_their_reward():
    """Only what is known about all cells has changed: one round from the last reward is enough."""
    rng = np.random.default_rng(8)
    P = rng.dirichlet(np.full(6, 0.5), size=30)
    evidence = evidence_of(noisy_cells(P, rng.random(30), 40, rng))
    found = read(evidence, Reading.nothing(evidence.admitted), np.arange(30), 3)
    again = read(evidence, found, np.arange(30), again=True)
    anew = read(evidence, found, np.arange(30))
    assert np.abs(again.means - anew.means).max() < 0.1
    assert np.abs(again.soft - anew.soft).sum(axis=1).mean() < 0.02


def test_rewards_of_spread_out_rows_are_not_lost():
    """Seven reports on each of five outcomes, all paid, and noise that looks like an unpaid one."""
    sums = np.zeros((1, 20))
    sums[0, 1:10:2] = [7.0, 5.0, 8.0, 6.0, 7.5]
    sums[0, 12], sums[0, 4], sums[0, 16] = 9.0, -2.0, 4.0
    evidence = evidence_of(sums, expected=34.0)
    found = read(evidence, Reading.nothing(evidence.admitted), np.array([0]), 2)
    assert found.means[0] > 0.6
    assert (found.rows[0, :5] > 0).sum() >= 4


@pytest.mark.parametrize("n", [600, 20_000])
def test_rewards_that_depend_on_the_successor_are_read_without_bias(n):
    """A step to state 1 never pays, one to state 0 pays 35/80.5: mean .35, P(1) = .195. A bit that is taken for
    independent of the successor reads .407 and .218, whatever the number of reports."""
    shares = np.array([0.455, 0.35, 0.195, 0.0, 0.0, 0.0])
    rng = np.random.default_rng(3)
    sums = np.tile(n * shares, (40, 1)) + rng.laplace(0.0, 2.0, (40, 6))
    evidence = evidence_of(sums, expected=float(n))
    found = read(evidence, Reading.nothing(evidence.admitted), np.arange(40), 2)
    error = 8.0 / n
    assert found.means.mean() == pytest.approx(0.35, abs=error)
    assert found.soft[:, 1].mean() == pytest.approx(0.195, abs=error)
    assert abs(found.counts.mean() / n - 1.0) < error
    assert (found.mean_variances < (8.0 / n) ** 2).all()


def test_rewards_that_do_not_depend_on_the_successor_are_never_taken_for_it():
    """Twelve thousand readings with real sampling and noise, most of them of a few hundred reports."""
    rng = np.random.default_rng(8)
    wrong = 0
    for _ in range(12_000):
        k, n, r = int(rng.integers(2, 7)), int(rng.choice([60, 120, 400, 3000])), rng.random()
        row = rng.dirichlet(np.ones(k))
        outcomes = rng.multinomial(n, row)
        paid = rng.binomial(outcomes, r)
        sums = np.stack([outcomes - paid, paid], axis=1).reshape(-1) + rng.laplace(0.0, 2.0, 2 * k)
        wrong += kernel.pays_by_outcome(sums, outcomes / n, float(n), math.sqrt(8.0))
    assert wrong <= 2


def test_dependence_is_found_by_hand():
    """Two outcomes of 50 reports, noise of variance 4, r = ½: z = ±(x₁ − x₀)/2 over variance 4/2 + 50/4."""
    row = np.array([0.5, 0.5])
    limit = math.sqrt((2 + kernel.APART * math.sqrt(2 * kernel.SQUARES)) / 2 * 14.5)
    for more, found in ((-0.01, False), (0.01, True)):
        z = limit + more
        assert kernel.pays_by_outcome(np.array([25.0 - z, 25.0 + z, 25.0 + z, 25.0 - z]), row, 100.0, 2.0) == found
    assert not kernel.pays_by_outcome(np.array([90.0, 10.0, 0.0, 0.0]), np.array([1.0, 0.0]), 100.0, 2.0)


def test_rewards_are_never_taken_for_rarer_than_one_in_ten(monkeypatch):
    """Sixty cells without reward and one that pays a third of 34 reports, hardly above the noise."""
    P, r = np.zeros((61, 8)), np.zeros(61)
    P[:, :3], r[60] = 1 / 3, 1 / 3
    evidence = evidence_of(noisy_cells(P, r, 34, np.random.default_rng(6)), expected=34.0)

    def chance():
        found = read(evidence, Reading.nothing(evidence.admitted), np.arange(61), 3)
        assert found.paying() < 0.1
        return found.pays[60]

    floored = chance()
    monkeypatch.setattr(reading, "FEWEST_PAYING", 1e-9)
    odds = [p / (1 - p) for p in (floored, chance())]
    assert odds[0] > 1.5 * odds[1]


def test_noise_is_dropped_and_the_largest_outcome_is_kept():
    clear = [60.0, 0.0, 4.0, -3.0, 2.0, 1.0, -2.0, 3.0]
    found = read(evidence_of([clear]), Reading.nothing(np.ones((1, 8), dtype=bool)), np.array([0]))
    assert found.rows[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert found.means[0] == 0.0
    evidence = evidence_of([[1.0, -2.0, 0.5, 1.5, -3.0, 0.0, 2.0, -1.0]])
    faint = read(evidence, Reading.nothing(evidence.admitted), np.array([0]))
    assert (faint.rows[0] > 0).sum() == 1  # nothing stands out
    assert faint.counts[0] < 5.0


def test_what_was_not_admitted_has_no_posterior():
    admitted = np.ones((1, 6), dtype=bool)
    admitted[0, 2:4] = False
    admitted[0, 1::2] = False
    evidence = evidence_of([[30.0, 0.0, 0.0, 0.0, 20.0, 0.0]], admitted=admitted)
    found = read(evidence, Reading.nothing(admitted), np.array([0]))
    assert found.rows[0, 1] == found.spreads[0, 1] == found.inclusions[0, 1] == 0.0
    assert found.rows[0].sum() == pytest.approx(1.0)
    assert found.means[0] == found.pays[0] == 0.0


def test_cells_that_were_never_asked_are_not_read():
    evidence = evidence_of(np.full((2, 4), 20.0))
    evidence.variances[1] = np.inf
    found = read(evidence, Reading.nothing(evidence.admitted), np.array([0, 1]))
    assert found.counts[0] > 0.0
    assert found.counts[1] == 0.0


def test_nothing_is_changed_in_place():
    evidence = evidence_of(np.full((2, 4), 20.0))
    before = Reading.nothing(evidence.admitted)
    read(evidence, before, np.array([0, 1]))
    assert not before.rows.any()
    assert not before.counts.any()


# Over all cells -----------------------------------------------------------------------------------------------------


def noisy_cells(P, r, n, rng, scale=2.0):
    """Reports of cells with rows P and means r, n each, with Laplace noise."""
    C, S = P.shape
    sums = np.zeros((C, 2 * S))
    for c in range(C):
        counts = rng.multinomial(n, P[c])
        paid = rng.binomial(counts, r[c])
        sums[c, ::2], sums[c, 1::2] = counts - paid, paid
    return sums + rng.laplace(0.0, scale, size=sums.shape)


def test_branching_and_paying_shares_are_learned_over_cells():
    """Forty cells with one outcome, then forty with all eight: a weak outcome is read by what the others have."""
    rng = np.random.default_rng(1)
    for b, alone in ((1, True), (8, False)):
        P = np.zeros((40, 8))
        P[:, :b] = 1.0 / b
        evidence = evidence_of(noisy_cells(P, np.zeros(40), 40, rng), variance=8.0)
        found = read(evidence, Reading.nothing(evidence.admitted), np.arange(40), 4)
        assert (found.shares()[branchings(8) == b] > 0.5).all()
        assert ((found.rows > 0).sum(axis=1).mean() < 1.2) == alone
        assert found.paying() < 0.15
    evidence = evidence_of(noisy_cells(P, np.full(40, 0.6), 40, rng), variance=8.0)
    found = read(evidence, Reading.nothing(evidence.admitted), np.arange(40), 4)
    assert found.paying() > 0.9
    assert found.means.mean() == pytest.approx(0.6, abs=0.06)


@pytest.mark.parametrize(("S", "n", "bound"), [(6, 60, 0.08), (20, 34, 0.14), (20, 100, 0.08)])
def test_readings_are_close_to_the_truth_on_average(S, n, bound):
    """Better than positive parts of the sums; posterior means better than what is kept of them."""
    rng = np.random.default_rng(2)
    C = 120
    P = rng.dirichlet(np.full(S, 0.3), size=C)
    r = np.where(rng.random(C) < 0.5, 0.0, rng.random(C))
    evidence = evidence_of(noisy_cells(P, r, n, rng), variance=8.0, expected=float(n))
    found = read(evidence, Reading.nothing(evidence.admitted), np.arange(C), 3)
    naive = np.maximum(evidence.sums[:, ::2] + evidence.sums[:, 1::2], 0.0)
    naive /= naive.sum(axis=1, keepdims=True)
    kept, soft, plain = (((rows - P) ** 2).sum(axis=1).mean() for rows in (found.rows, found.soft, naive))
    assert soft < 0.85 * plain
    assert soft < kept
    assert np.abs(found.means - r).mean() < bound
    assert found.soft.sum(axis=1) == pytest.approx(np.ones(C))


def shifted(S=12, A=2):
    """Action 0 stays or goes one back, action 1 goes one or two on."""
    P = np.zeros((S, A, S))
    for s in range(S):
        P[s, 0, [s, (s - 1) % S]] = 0.5
        P[s, 1, [(s + 1) % S, (s + 2) % S]] += 0.5
    return P.reshape(S * A, S)


def test_the_row_prior_finds_the_component_that_explains_the_rows():
    rng = np.random.default_rng(3)
    P = shifted()
    evidence = evidence_of(noisy_cells(P, np.zeros(24), 40, rng))
    found = read(evidence, Reading.nothing(evidence.admitted), np.arange(24), 2)
    fitted = with_row_prior(evidence, found, 2)
    assert reading.COMPONENTS[int(fitted.mixture.argmax())] == "offset of the action"
    assert fitted.mixture.sum() == pytest.approx(1.0)
    assert fitted.prior.sum(axis=1) == pytest.approx(np.ones(24))
    assert (fitted.prior[P > 0].mean()) > 4 * (1 / 12)
    scrambled = rng.permuted(P, axis=1)
    evidence = evidence_of(noisy_cells(scrambled, np.zeros(24), 40, rng))
    found = read(evidence, Reading.nothing(evidence.admitted), np.arange(24), 2)
    assert with_row_prior(evidence, found, 2).mixture[0] > 0.5  # numbers mean nothing, and it finds out


def test_components_leave_their_own_row_out():
    rng = np.random.default_rng(4)
    S, A = 4, 2
    kept = rng.random((S * A, S)) * 10
    uniform = np.full((S * A, S), 1 / S)
    found = row_components(kept, uniform, A)
    for c in range(S * A):
        s, a = divmod(c, A)
        rows = np.zeros((4, S))
        for other in range(S * A):
            t, b = divmod(other, A)
            if other == c:
                continue
            if t == s:
                rows[0] += kept[other]
            rows[3] += kept[other]
            for y in range(S):
                if 0 <= y - t + s < S:
                    rows[1, y - t + s] += kept[other, y]
                    rows[2, y - t + s] += kept[other, y] * (b == a)
        expected = rows / rows.sum(axis=1, keepdims=True)
        assert found[0, c] == pytest.approx(uniform[c])
        assert found[1:, c] == pytest.approx(expected)


def test_mixture_weights_maximise_the_likelihood():
    rng = np.random.default_rng(5)
    components = rng.dirichlet(np.ones(5), size=(2, 1))
    truth = np.array([0.3, 0.7])
    counts = 1e4 * np.tensordot(truth, components, axes=1)
    weights = np.array([0.5, 0.5])
    kernel.mix_components(counts, components, np.zeros(2), 2000, weights)
    assert weights == pytest.approx(truth, abs=1e-3)


def test_mixture_weights_stay_where_noise_outweighs_every_count():
    weights = np.array([0.25, 0.75])
    kernel.mix_components(np.full((1, 3), -5.0), np.full((2, 1, 3), 1 / 3), np.full(2, 1.0), 15, weights)
    assert weights.tolist() == [0.25, 0.75]


def test_few_clear_cells_leave_the_prior_uniform():
    evidence = evidence_of(np.zeros((6, 6)))
    found = read(evidence, Reading.nothing(evidence.admitted), np.arange(6))
    assert with_row_prior(evidence, found, 2) is found


def test_rewards_are_pulled_towards_their_state_by_hand():
    nothing = Reading.nothing(np.ones((4, 4), dtype=bool))
    means = np.array([0.2, 0.4, 0.9, 0.5])
    found = replace(nothing, counts=np.full(4, 50.0), means=means, mean_variances=np.full(4, 0.004))
    cells = np.array([True, True, True, False])
    pulled, variances, within = shrunk_means(found, cells, 2)
    v = 0.004 + means * (1 - means) / 50 + 0.25 / 2500
    d2 = (0.1**2 + 0.1**2) / 1  # the only state with two read cells
    tau2 = max(d2 - v[:3].mean(), 0.0) + 0.1 * d2
    assert within == pytest.approx(math.sqrt(d2))
    assert pulled[0] == pytest.approx(0.3 - 0.1 * tau2 / (tau2 + v[0]))
    assert pulled[1] == pytest.approx(0.3 + 0.1 * tau2 / (tau2 + v[1]))
    assert pulled[2:].tolist() == [0.9, 0.5]
    assert variances[0] == pytest.approx(0.004 * tau2 / (tau2 + v[0]))
    assert variances[3] == 0.004


@pytest.mark.parametrize("variance", [8.0, 1e-4, 3e-7, 1e-12])
def test_reports_that_nobody_foresaw_are_read_whatever_the_noise(variance):
    """Two reports where .004 were predicted, hardly any noise: nothing explained them, and shares were over 0."""
    evidence = evidence_of([[0, 0, 0, 0, 0, 0, 1, 0, 0, 1]], variance, 0.004)
    found = read(evidence, Reading.nothing(evidence.admitted), np.array([0]))
    assert np.isfinite(found.rows).all()
    assert np.isfinite(found.likelihoods).all()
    assert found.rows.sum() == pytest.approx(1.0)
    if variance < 1.0:
        assert found.rows[0, 3:] == pytest.approx([0.5, 0.5], abs=0.05)
