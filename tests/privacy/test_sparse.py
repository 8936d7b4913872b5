"""Releases that hold only what is above a threshold: exactly the law of the dense ones, read and planned alike."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from discreet.agents.one_hot import OneHotVI
from discreet.agents.sparse import SparseOneHotVI
from discreet.offline import fitting, learners, wording
from discreet.offline.certificate import verify
from discreet.offline.learners import _plain
from discreet.people.counting import LoggedData
from discreet.people.logs import LogFormat
from discreet.privacy import excess as exact
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.trust import sparse
from discreet.privacy.trust.one_hot import OneHot, OneHotStream
from discreet.privacy.trust.sparse import SparseStream, above_threshold
from discreet.problem import PublicStructure
from discreet.releases import sparse as releases
from discreet.releases.histograms import PrivateHistogram
from discreet.releases.items import Items
from discreet.releases.sparse import SparseHistogram, SparseItems
from discreet.valuation import STANDS_OUT, histogram_lower_values, unproved_values

getcontext().prec = 80
LAWS = {"laplace": DiscreteLaplace, "gaussian": DiscreteGaussian}


def agreement(observed: np.ndarray, expected: np.ndarray) -> float:
    """p-value of a χ² test, rare outcomes taken together."""
    rare = expected < 5
    observed, expected = (np.append(x[~rare], x[rare].sum()) for x in (observed, expected))
    if expected[-1] < 1e-6:
        assert observed[-1] == 0
        observed, expected = observed[:-1], expected[:-1]
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


# Coins and tails ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1, 2, 3, 5])
@pytest.mark.parametrize("bits", [8, 64, 128])
def test_limits_are_those_of_the_binomial_law(shift, bits):
    n = 2**shift
    law = [Fraction(math.comb(n, k) * (n - 1) ** (n - k), n**n) for k in range(n + 1)]
    limits = exact._cumulative(shift, bits)
    assert list(limits) == [math.floor(sum(law[: k + 1]) * 2**bits) for k in range(len(limits))]
    assert len(limits) == n or limits[-1] == 2**bits - 1


def test_a_word_on_a_limit_is_settled_by_further_words():
    """With words of 8 bits and one more, the number drawn is that of all 72 bits together."""
    shift, coarse = 4, exact._cumulative(4, 8)
    fine = exact._cumulative(4, 72)
    for limit in coarse[:-1]:
        for more in (0, 2**63, 2**64 - 1):
            u = (limit << 64) | more
            found = exact._exact_number(limit, shift, lambda more=more: more, bits=8)
            assert found == sum(bound < u for bound in fine)


@pytest.mark.parametrize(("size", "shift"), [(5, 1), (4, 2), (5, 3)])
def test_coins_are_independent_and_of_the_stated_probability(size, shift):
    """All subsets of few places, also where the last block is cut."""
    noise, trials = NoiseSource.seeded(7), 20_000
    seen = np.zeros(2**size)
    for _ in range(trials):
        seen[(1 << exact.marked(noise, size, shift)).sum()] += 1
    p = 2.0**-shift
    ones = np.array([bin(i).count("1") for i in range(2**size)])
    expected = trials * p**ones * (1 - p) ** (size - ones)
    assert agreement(seen, expected) > 1e-3


@pytest.mark.parametrize(("scale", "threshold"), [(0.5, 3), (2.0, 9), (1000.0, 8000)])
def test_laplace_noise_above_a_threshold_has_exactly_its_probabilities(scale, threshold):
    """2^−shift·kept = P(X > t) to 60 digits, and given that the values are geometric."""
    tail = exact._laplace_tail(scale, threshold)
    p = (Decimal(-1) / Decimal(scale)).exp()
    low, high = (Decimal(end) / Decimal(2) ** 260 for end in tail._kept(260))
    truth = p ** (threshold + 1) / (1 + p) * Decimal(2) ** tail.shift
    assert low <= truth * (1 + Decimal("1e-70"))
    assert high >= truth * (1 - Decimal("1e-70"))
    assert high - low < Decimal("1e-60")
    assert Decimal("0.4") < truth <= 1
    values = np.concatenate([tail.values(NoiseSource.seeded(i), 2000) for i in range(5)])
    kept = values[values > threshold] - threshold - 1
    assert kept.size == pytest.approx(10_000 * float(truth), abs=4.5 * math.sqrt(10_000 * 0.25))
    assert kept.mean() == pytest.approx(float(p / (1 - p)), rel=0.06)
    assert kept.min() == 0 if scale < 100 else kept.min() < 5


@pytest.mark.parametrize(("sigma", "threshold"), [(0.6, 2), (3.0, 11), (20.0, 70), (1e5, 300_000)])
def test_gaussian_noise_above_a_threshold_has_exactly_its_probabilities(sigma, threshold):
    """2^−shift·2^−(run+1)/L·kept(x) = P(x) to 60 digits for all kinds of x, and kept(x) is a probability."""
    tail = exact._gaussian_tail(sigma, threshold)
    variance = Decimal(sigma) ** 2
    if sigma < 100:
        Z = 1 + 2 * sum((-Decimal(x * x) / (2 * variance)).exp() for x in range(1, int(40 * sigma) + 40))
    else:
        low, high = exact.pi_bounds(300)
        Z = (2 * variance * Decimal(low) / Decimal(2) ** 300).sqrt()
    for x in (threshold + 1, threshold + 2, threshold + tail.length, threshold + 7 * tail.length + 1):
        run = (x - threshold - 1) // tail.length
        low, high = (Decimal(end) / Decimal(2) ** 260 for end in tail._kept(x, run, 260))
        truth = (-Decimal(x * x) / (2 * variance)).exp() / Z
        factor = Decimal(2) ** -(tail.shift + run + 1) / tail.length
        assert low * factor <= truth * (1 + Decimal("1e-60"))
        assert high * factor >= truth * (1 - Decimal("1e-60"))
        assert high - low < Decimal("1e-60")
        assert high <= 1


def test_pi_and_normalisers():
    low, high = exact.pi_bounds(200)
    digits = 31415926535897932384626433832795028841971693993751058209749445923078164062862
    assert low - 1 <= digits * 2**200 // 10**76 <= high <= low + 2
    for sigma in (0.3, 5.0, 15.9, 16.0, 100.0, 1e6):
        low, high = exact.normaliser(Fraction(sigma) ** 2, 100)
        assert low / 2**100 == pytest.approx(DiscreteGaussian(sigma)._normaliser, rel=1e-14)
        assert 0 < high - low < 8


# The law of what is released ----------------------------------------------------------------------------------------

COUNTS = np.array([0, 0, 3, 0, 1, 9, 0])
WHERE = np.flatnonzero(COUNTS)


def dense_way(mechanism, scale, threshold, noise):
    noisy = COUNTS + getattr(noise, mechanism)(scale, COUNTS.size)
    return {int(i): int(noisy[i]) for i in np.flatnonzero(noisy > threshold)}


def sparse_way(mechanism, scale, threshold, noise):
    places, values = above_threshold(WHERE, COUNTS[WHERE], COUNTS.size, mechanism, scale, threshold, noise)
    assert np.unique(places).size == places.size
    return dict(zip(places.tolist(), values.tolist(), strict=True))


def p_value(way, mechanism, scale, threshold, trials=12_000):
    """Of the exact law: which items are above, jointly; and the values of an empty and of an occupied one."""
    noise, law = NoiseSource.seeded(11), LAWS[mechanism](scale)
    above = law.tail(threshold - COUNTS)
    seen = np.zeros(2**COUNTS.size)
    found = {0: np.zeros(8), 5: np.zeros(8)}
    for _ in range(trials):
        release = way(mechanism, scale, threshold, noise)
        seen[sum(1 << i for i in release)] += 1
        for i, bins in found.items():
            if i in release:
                bins[min(release[i] - threshold - 1, 7)] += 1
    patterns = (np.arange(2**COUNTS.size)[:, None] >> np.arange(COUNTS.size)) & 1
    expected = trials * np.where(patterns == 1, above, 1 - above).prod(axis=1)
    tests = [(seen, expected)]
    for i, bins in found.items():
        x = threshold + 1 + np.arange(7) - COUNTS[i]
        mass = trials * np.append(law.pmf(x), law.tail(x[-1]))
        tests.append((np.append(bins, trials - bins.sum()), np.append(mass, trials - mass.sum())))
    return min(agreement(observed, mean) for observed, mean in tests)


@pytest.mark.parametrize(("mechanism", "scale", "threshold"), [("laplace", 2.0, 4), ("gaussian", 3.0, 4)])
@pytest.mark.parametrize("way", [dense_way, sparse_way])
def test_the_law_is_that_of_the_dense_release_with_what_is_below_forgotten(
    mechanism, scale, threshold, way, monkeypatch
):
    monkeypatch.setattr(exact, "RARE", 1)
    assert p_value(way, mechanism, scale, threshold) > 1e-3


@pytest.mark.parametrize(("mechanism", "scale", "threshold"), [("laplace", 2.0, 4), ("gaussian", 3.0, 4)])
@pytest.mark.parametrize("mutant", ["no empty items", "threshold from the data", "one place only", "shifted tail"])
def test_mutants_have_another_law(mechanism, scale, threshold, mutant, monkeypatch):
    monkeypatch.setattr(exact, "RARE", 1)
    genuine = exact.excess

    def mutated(noise, mechanism, scale, threshold, size):
        if mutant == "no empty items":
            return genuine(noise, mechanism, scale, threshold, 0)
        if mutant == "threshold from the data":
            return genuine(noise, mechanism, scale, threshold + int(COUNTS.max() > 5), size)
        places, values = genuine(noise, mechanism, scale, threshold, size)
        if mutant == "one place only":
            keep = np.arange(places.size) < 1
            return places[keep], values[keep]
        return places, values + 1

    monkeypatch.setattr(sparse, "excess", mutated)
    assert p_value(sparse_way, mechanism, scale, threshold) < 1e-6


def test_frequent_excesses_are_drawn_one_by_one_and_rare_ones_are_not():
    calls = []

    class Counting:
        def __init__(self):
            self.noise = NoiseSource.seeded(0)

        def laplace(self, scale, count):
            calls.append(count)
            return self.noise.laplace(scale, count)

        def words(self, count):
            return self.noise.words(count)

    places, values = exact.excess(Counting(), "laplace", 100.0, 50, 1000)
    assert calls == [1000]
    calls.clear()
    places, values = exact.excess(Counting(), "laplace", 100.0, 2000, 10**11)
    assert sum(calls) == places.size == pytest.approx(1e11 * DiscreteLaplace(100.0).tail(2000), rel=0.05)
    assert (np.diff(places) > 0).all()
    assert places.max() < 10**11
    assert values.min() > 2000
    with pytest.raises(ValueError, match="at least 0"):
        exact.excess(NoiseSource.seeded(0), "laplace", 1.0, -1, 10)


# Items and streams --------------------------------------------------------------------------------------------------


def problems():
    """Kinds of problems: (items, cells, log options)."""
    rng = np.random.default_rng(5)
    found = []
    for pooled in (True, False):
        for absorbing, unknown in ((False, False), (True, False), (True, True)):
            for known in (False, True):
                for declared in (False, True):
                    S, A, H = 4, 2, 3
                    G = 1 if pooled else H
                    successors = rng.random((G, S, A, S)) < 0.6 if declared else None
                    if declared:
                        successors[:, 1, 1] = False
                        successors[:, 0, 0, 1] = True
                    items = SparseItems(S, A, H, pooled, absorbing, unknown, 0.0, known, successors)
                    structure = PublicStructure(None, successors)
                    more = {"absorbing": absorbing, "known_rewards": known, "unknown": unknown}
                    cells = Items.of(S, A, H, pooled, structure, **more)
                    found.append((items, cells))
    return found


@pytest.mark.parametrize(("items", "cells"), problems())
def test_items_are_those_of_the_dense_release(items, cells):
    codes = np.concatenate([group.codes(np.arange(group.size)) for group in items.groups])
    assert np.array_equal(np.sort(codes), np.flatnonzero(cells.admitted))
    assert items.num_items == cells.admitted.sum()
    every = np.arange(cells.admitted.size)
    for group in items.groups:
        places = group.places(every)
        assert np.array_equal(group.codes(places[places >= 0]), every[places >= 0])
        assert (places >= 0).sum() == group.size
    sizes = items.per_cell([group.each for group in items.groups])
    assert np.array_equal(np.maximum(sizes, 1), cells.sizes)
    assert np.array_equal(items.possible, cells.possible)


def logged(n=200, S=4, A=2, H=3, seed=0):
    rng = np.random.default_rng(seed)
    state = rng.integers(S, size=(n, H + 1))
    return pa.table(
        {
            "user": np.repeat(np.arange(n), H),
            "step": np.tile(np.arange(H), n),
            "state": state[:, :-1].ravel(),
            "action": rng.integers(A, size=n * H),
            "reward": rng.choice([0.0, 0.3, 1.0], size=n * H),
            "next_state": state[:, 1:].ravel(),
        }
    )


@pytest.mark.parametrize(("items", "cells"), problems())
def test_without_noise_both_streams_release_the_same(items, cells):
    ends = "absorb" if items.absorbing else "keep"
    log = LogFormat(4, 2, 3, items.pooled, early_end=ends)
    table = logged().drop_columns(["next_state"]) if items.unknown else logged()
    table = table.filter(pa.array(np.random.default_rng(1).random(600) < 0.9)) if items.absorbing else table
    data = LoggedData(table, log)
    spec = replace(data.log.spec, num_states=cells.num_successors)
    if spec != data.log.spec:
        return  # which successors exist follows from the columns, not all kinds occur here
    one_hot = OneHot(Budget.pure(math.inf))
    thin = SparseStream(one_hot, spec, items, 200, NoiseSource.seeded(0), OneHotVI().lowest)
    thick = OneHotStream(one_hot, spec, cells, 200, NoiseSource.seeded(0))
    thin.add(data.items())
    thick.add(data.counts())
    found, table = thin.release(), thick.release()
    values = np.zeros(table.values.size)
    values[found.codes] = found.values
    assert np.array_equal(values, table.values.ravel())
    assert (np.diff(found.codes) > 0).all()
    assert thin.release() is found
    with pytest.raises(ValueError, match="only once"):
        thin.add(data.items())


def test_the_ledger_and_the_widths_are_those_of_the_dense_release():
    log = LogFormat(4, 2, 3, True, early_end="keep")
    for budget in (Budget.pure(2.0), Budget.zcdp(0.5)):
        data = LoggedData(logged(), replace(log, first_visits=budget.kind != "pure"))
        one_hot = OneHot(budget, first_visits=budget.kind != "pure")
        spec, noise = data.log.spec, NoiseSource.seeded(1)
        thin = SparseStream(one_hot, spec, SparseItems(4, 2, 3, True, unknown=True), 200, noise, OneHotVI().lowest)
        thick = OneHotStream(one_hot, spec, Items.of(4, 2, 3, True, unknown=True), 200, noise)
        assert thin.ledger == thick.ledger
        assert thin.guarantee.epsilon == thick.guarantee.epsilon
        thin.add(data.items())
        thick.add(data.counts())
        found, table = thin.release(), thick.release()
        assert (found.width, found.variance) == (table.width, table.variance)
        assert (found.values > found.thresholds[found.rows]).all()


@pytest.mark.parametrize("fault", ["users", "visits", "codes", "paid"])
def test_a_sparse_stream_refuses_what_voids_its_calibration(fault):
    log = LogFormat(4, 2, 3, True, early_end="keep")
    data = LoggedData(logged(), log)
    log, counts = data.log, data.items()
    one_hot, limit = OneHot(Budget.pure(1.0)), 200
    if fault == "users":
        limit = 199
    elif fault == "visits":
        one_hot = OneHot(Budget.zcdp(1.0), first_visits=True)
    elif fault == "codes":
        counts = replace(counts, codes=counts.codes + 1000)
    else:
        counts = replace(counts, paid=counts.paid + 2**30)
    items = SparseItems(4, 2, 3, True, unknown=True)
    stream = SparseStream(one_hot, log.spec, items, limit, NoiseSource.seeded(1), OneHotVI().lowest)
    with pytest.raises(ValueError, match=r"declared|first visits"):
        stream.add(counts)


# Reading and planning -----------------------------------------------------------------------------------------------


def both_releases(items: SparseItems, cells: Items, seed: int, sd: float = 3.0):
    """A noisy histogram, and the same without what is below the lowest thresholds."""
    rng = np.random.default_rng(seed)
    true = rng.choice([0.0, 0.0, 8.0, 40.0, 300.0], size=cells.admitted.shape)
    values = np.where(cells.admitted, np.round(true + rng.laplace(scale=sd / math.sqrt(2.0), size=true.shape)), 0.0)
    table = PrivateHistogram(cells, values, 500, sd * sd, 9.0 * sd, 30.0 * sd, 0.01)
    rule = OneHotVI()
    thresholds = items.per_cell([rule.lowest(group.each) * sd for group in items.groups])
    flat = np.where(cells.admitted, values, 0.0)
    codes = np.flatnonzero(flat > thresholds[:, None])
    thin = SparseHistogram(items, codes, flat.ravel()[codes], thresholds, 500, sd * sd, 9.0 * sd, 0.01)
    return table, thin


@pytest.mark.parametrize("strictness", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("items", "cells"), problems())
def test_readings_plans_and_values_are_those_of_the_dense_release(items, cells, strictness):
    rewards = None
    if items.known_rewards:
        rewards = np.where(items.possible, np.random.default_rng(8).random((items.stages, 4, 2)), 0.0)
    ended = 0.4 if items.absorbing else 0.0
    items, cells = replace(items, ended=ended), replace(cells, ended=ended)
    table, thin = both_releases(items, cells, 3)
    rule = OneHotVI(rewards, signal=math.inf, sharing=False)
    dense_reading, agent = rule.read(table, strictness), SparseOneHotVI(rule)
    reading = agent.read(thin, strictness)
    assert np.array_equal(reading.known, dense_reading.known)
    assert reading.known.any()
    assert reading.counts == pytest.approx(dense_reading.counts)
    shares = np.zeros(table.values.shape)
    shares[np.repeat(np.arange(items.num_cells), np.diff(reading.starts)), reading.columns] = reading.shares
    assert shares == pytest.approx(dense_reading.shares)
    _, value, actions = rule.values(table, dense_reading)
    plan = agent.plan_in(thin, reading)
    assert plan.values == pytest.approx(value)
    followed = rule.values(table, dense_reading, plan.actions)[1]
    assert agent.plan_in(thin, reading, plan.actions).values == pytest.approx(followed)
    assert agent.plan_in(thin, reading, actions).values == pytest.approx(value)
    if items.successors is not None:  # impossible actions are taken in no state that has a possible one
        where = np.minimum(np.arange(3), items.stages - 1)[:, None], np.arange(4), plan.actions
        assert (items.possible[where] | ~items.possible.any(axis=-1)[where[:2]]).all()
    plain = _plain(dense_reading, cells, plan.actions, rewards)
    assert agent.plain_values(thin, reading, plan.actions, 0.0) == pytest.approx(plain)
    proved = histogram_lower_values(replace(table, total_width=1e9), plan.actions, 500, rewards, -0.3)
    assert unproved_values(items, plan.actions, rewards, -0.3) == pytest.approx(proved)


def test_payments_that_do_not_stand_out_count_as_none_in_plain_estimates():
    items, cells = SparseItems(2, 1, 2, True), Items.of(2, 1, 2, True)
    _, thin = both_releases(items, cells, 0)
    codes, values = np.array([0, 1, 4, 5]), np.array([500.0, 20.0, 100.0, 400.0])
    thin = replace(thin, codes=codes, values=values)
    agent = SparseOneHotVI()
    reading = agent.read(thin, 0.0)
    assert reading.known.all()
    actions = np.zeros((2, 2), dtype=np.int64)
    value = agent.plain_values(thin, reading, actions, STANDS_OUT)
    assert value[1].tolist() == pytest.approx([0.0, 0.8])  # 20 is less than .8 of a width of 27
    assert agent.plain_values(thin, reading, actions, 0.0)[1, 0] == pytest.approx(20 / 520)


def test_a_reading_below_what_was_released_is_refused():
    _, thin = both_releases(SparseItems(4, 2, 3, True), Items.of(4, 2, 3, True), 0)
    with pytest.raises(ValueError, match="higher threshold"):
        SparseOneHotVI(OneHotVI(doubt=0.9)).read(thin, 0.0)


# The whole way ------------------------------------------------------------------------------------------------------


def ring(n: int, S: int, H: int = 10, A: int = 3, seed: int = 1) -> pa.Table:
    """People walk round a ring, by as many places as their action says; every 7th place pays."""
    rng = np.random.default_rng(seed)
    state, columns = rng.integers(S, size=n), []
    for h in range(H):
        action = rng.integers(A, size=n)
        after = (state + action) % S
        columns.append((np.arange(n), np.full(n, h), state, action, (after % 7 == 0).astype(float), after))
        state = after
    names = ("user", "step", "state", "action", "reward", "next_state")
    return pa.table(dict(zip(names, map(np.concatenate, zip(*columns, strict=True)), strict=True)))


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("budget", [Budget.pure(3.0), Budget.pure(2.0), Budget.zcdp(2.0)])
def test_a_fit_that_holds_few_items_learns_the_same_policy(pooled, budget, monkeypatch, tmp_path):
    log, table = LogFormat(20, 3, 10, pooled), ring(60_000, 20)
    arguments = {"seed": 3, "algorithm": "one-hot", "anyway": True, "initial": np.full(20, 0.05)}
    thick = fitting.fit(table, log, budget, **arguments)
    monkeypatch.setattr(releases, "DENSE_ITEMS", 0)
    monkeypatch.setattr(releases, "DENSE_STAGED_ITEMS", 0)
    thin = fitting.fit(table, log, budget, **arguments)
    thin.save(tmp_path / "policy")
    worth, other = thin.certificate["estimate"], thick.certificate["estimate"]
    assert thin.certificate["ledger"] == thick.certificate["ledger"]
    assert thin.certificate["algorithm"]["steps_per_user"] == ("one" if budget.epsilon == 2.0 else "all")
    assert thin.certificate["algorithm"]["items"] == thick.certificate["algorithm"]["items"]
    assert worth["value_estimate"] == pytest.approx(other["value_estimate"], abs=0.35)
    assert worth["value_estimate"] > 2.3  # of at most one payment in four steps, far above 1.4 of random walks
    assert worth["value_lower"] == 0.0
    assert "no lower bound follows" in worth["values_are"]
    assert [text for text in thin.certificate["warnings"] if "no lower bound" in text] == [wording.THRESHOLDED]
    page = (tmp_path / "policy" / "certificate.html").read_text()
    assert "no lower bound follows from them. Whether it is better than what is done now" in page
    assert "% certainty" not in page
    assert [text[:10] for text in verify(tmp_path / "policy").problems] == ["simulation"]


def test_the_way_is_chosen_by_public_numbers():
    assert releases.dense(30_000_000, True)
    assert not releases.dense(30_000_001, True)
    assert releases.dense(100_000_000, False)
    assert not releases.dense(100_000_001, False)


def test_a_hundred_thousand_states_fit(tmp_path):
    """10⁵ states and 10 actions have 2·10¹¹ items: drawn are those of 10⁵ rows and some 150,000 false ones."""
    pq.write_table(ring(10_000, 100_000, A=10), tmp_path / "log.parquet")
    log = LogFormat(100_000, 10, 10, True)
    fitted = fitting.fit(tmp_path / "log.parquet", log, Budget.pure(50.0), anyway=True, seed=0)
    assert fitted.certificate["algorithm"]["items"] == 2 * 100_000 * 10 * 100_002  # ended, and unknown
    assert 0.0 < fitted.certificate["estimate"]["covered_state_actions"] < 0.2
    assert fitted.policy.actions.shape == (10, 100_000)
    assert len(set(fitted.policy.actions[0].tolist())) == 10  # guesses do not all name the same action


def test_what_does_not_fit_is_said_in_bytes_before_anything_is_read(monkeypatch):
    monkeypatch.setattr("discreet.runs.memory.available", lambda: 2e6)
    for algorithm, log in (
        ("one-hot", LogFormat(100, 10, 10)),
        ("one-hot", LogFormat(5000, 10, 10, True)),
        ("dp-apvi", LogFormat(100, 10, 10)),
    ):
        with pytest.raises(ValueError, match=r"take about [\d.]+ GB, and 0.0 GB are free"):
            fitting.fit("nowhere.parquet", log, Budget.pure(1.0), algorithm=algorithm, anyway=True)
    with pytest.raises(ValueError, match="counters, too many"):
        fitting.fit("nowhere.parquet", LogFormat(10**9, 1000, 1, True), Budget.pure(1.0), anyway=True)


def test_far_too_few_users_are_refused_before_anything_is_spent(tmp_path):
    pq.write_table(logged(20), tmp_path / "log.parquet")
    ledger = tmp_path / "ledger.jsonl"
    log, budget = LogFormat(4, 2, 3), Budget.pure(0.01)
    with pytest.raises(ValueError, match=r"20 users are far too few.*nothing was spent; go on with --anyway"):
        fitting.fit(tmp_path / "log.parquet", log, budget, ledger=ledger)
    assert not ledger.exists()
    fitted = fitting.fit(tmp_path / "log.parquet", log, budget, ledger=ledger, anyway=True)
    assert ledger.exists()
    assert fitted.certificate["guarantee"]["epsilon"] == pytest.approx(0.01)
    fitting.fit(tmp_path / "log.parquet", log, None, algorithm="apvi", ledger=ledger)


def test_a_rule_above_all_learners_decides_which_way_is_taken(monkeypatch):
    taken = []
    monkeypatch.setattr(learners, "_sparse_one_hot", lambda *_: taken.append(True) or (_ for _ in ()).throw(KeyError))
    monkeypatch.setattr(releases, "DENSE_ITEMS", 0)
    with pytest.raises(KeyError):
        fitting.fit(logged(), LogFormat(4, 2, 3, True), Budget.pure(1.0), anyway=True)
    assert taken == [True]
