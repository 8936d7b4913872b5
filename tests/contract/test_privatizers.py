"""What every privatizer promises, checked for each of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import signal, stats

from discreet.people.counts import Counts, CountSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.sums.streams import CountStream
from discreet.privacy.sums.toeplitz import Toeplitz
from discreet.privacy.sums.tree import Tree
from oracles_streams import (
    RecordedNoise,
    bad_records,
    brute_sensitivity,
    every_episode,
    random_episodes,
    spends_its_budget,
    stacked,
)

TABLES = ("visits", "transitions", "reward_sums")


def same(a, b) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in TABLES)


def per_table(values):
    return values.visits, values.transitions, values.rewards


def natural_sums(episodes, spec):
    """The exact sums, in the units of a release."""
    counts = Counts.of(stacked(episodes), spec)
    return counts.visits.astype(float), counts.transitions.astype(float), counts.reward_sums * spec.grid


# Releases ---------------------------------------------------------------------------------------------------------


def test_two_releases_without_an_add_are_identical(case, spec):
    stream = case.privatizer().open(spec, 8, NoiseSource.seeded(1))
    users = random_episodes(spec, 8)
    if case.continual:
        assert same(stream.release(), stream.release())
    stream.add(stacked(users[:5]))
    first = stream.release()
    assert same(first, stream.release())
    if case.continual:
        stream.add(stacked(users[5 : 5 + case.batch]))
        assert not same(first, stream.release())
    assert first.num_episodes == 5


@pytest.mark.continual
def test_adding_nobody_changes_nothing(case, spec):
    stream = case.privatizer().open(spec, 8, NoiseSource.seeded(1))
    stream.add(stacked(random_episodes(spec, case.batch)))
    before = stream.release()
    nobody = Counts.zeros(spec)
    if case.sums or case.name == "shuffle":  # which takes sums of users who did nothing
        stream.add(nobody)
    else:
        with pytest.raises(TypeError):
            stream.add(nobody)
    assert same(before, stream.release())


def test_seeded_runs_repeat_and_secure_ones_do_not(case, spec):
    def run(noise):
        stream = case.privatizer().open(spec, 4, noise)
        stream.add(stacked(random_episodes(spec, 3)))
        return stream.release()

    assert same(run(NoiseSource.seeded(5)), run(NoiseSource.seeded(5)))
    assert not same(run(NoiseSource.seeded(5)), run(NoiseSource.seeded(6)))
    assert not same(run(NoiseSource.secure()), run(NoiseSource.secure()))


@pytest.mark.counters
def test_without_noise_a_release_equals_the_exact_one_bit_for_bit(case, spec):
    stream = case.without_noise().open(spec, 12, NoiseSource.seeded(0))
    exact = Exact().open(spec, 12, NoiseSource.seeded(0))
    users = random_episodes(spec, 12)
    steps = [users[:1], users[1:2], users[2:6], users[6:7], users[7:12]] if case.continual else [users]
    for step in steps:
        for target in (stream, exact):
            target.add(stacked(step))
        if "restart" in case.name:
            continue
        assert same(stream.release(), exact.release())
    assert math.isinf(stream.guarantee.epsilon)


def test_more_users_than_declared_are_refused_before_anything_is_added(case, spec):
    stream = case.privatizer().open(spec, 4, NoiseSource.seeded(0))
    users = random_episodes(spec, 5)
    stream.add(stacked(users[:3]))
    with pytest.raises(ValueError, match="declared"):
        stream.add(stacked(users[3:5]))
    release = stream.release()
    assert release.num_episodes == 3


def test_p8_a_bad_record_is_a_user_who_contributes_nothing_and_nobody_else_notices(case, spec):
    """Whatever is wrong with it, alone or among others: the same release, which counts her as one of its users."""
    good = random_episodes(spec, 3)
    alone, among = [], []
    for bad in bad_records(spec):
        stream = case.privatizer().open(spec, 4, NoiseSource.seeded(0))
        stream.add(bad)
        stream.add(stacked(good))
        alone.append(stream.release())
        if bad.horizon == spec.horizon:
            stream = case.privatizer().open(spec, 4, NoiseSource.seeded(0))
            stream.add(stacked([good[0], bad, *good[1:]]))
            among.append(stream.release())
    for releases in (alone, among):
        assert all(release.num_episodes == 4 for release in releases)
        assert all(same(releases[0], release) for release in releases[1:])


@pytest.mark.counters
def test_p8_without_noise_bad_records_add_nothing(case, spec):
    if "restart" in case.name:
        return
    good = random_episodes(spec, 3)
    for bad in bad_records(spec):
        stream = case.without_noise().open(spec, 4, NoiseSource.seeded(0))
        stream.add(stacked(good))
        stream.add(bad)
        release = stream.release()
        exact = natural_sums(good, spec)
        assert all(np.array_equal(getattr(release, n), table) for n, table in zip(TABLES, exact, strict=True))
        assert release.num_episodes == 4


@pytest.mark.sums
def test_sums_that_no_such_users_can_make_are_refused(case, spec):
    stream = case.privatizer().open(spec, 4, NoiseSource.seeded(0))
    counts = Counts.of(random_episodes(spec, 1)[0], spec)
    crowded = Counts(counts.visits * 2, counts.transitions, counts.reward_sums, 1)
    negative = Counts(counts.visits, counts.transitions, counts.reward_sums - 1, 1)
    with pytest.raises(ValueError, match="visits are not sums"):
        stream.add(crowded)
    with pytest.raises(ValueError, match="rewards are not sums"):
        stream.add(negative)


@pytest.mark.bounded
def test_unbounded_rewards_are_refused(case):
    with pytest.raises(ValueError, match="reward_range is None"):
        case.privatizer().open(CountSpec(2, 2, 2, False, reward_range=None), 4, NoiseSource.seeded(0))


@pytest.mark.counters
def test_sums_that_could_leave_64_bits_are_refused_at_the_start(case):
    with pytest.raises(ValueError, match="grid"):
        case.privatizer().open(CountSpec(2, 2, 2, False, grid=2.0**-45), 10**6, NoiseSource.seeded(0))


# Guarantees -------------------------------------------------------------------------------------------------------


def test_the_ledger_composes_to_the_guarantee_and_the_guarantee_to_the_budget(case, spec):
    for neighbours in case.relations:
        stream = case.privatizer(neighbours=neighbours).open(spec, 16, NoiseSource.seeded(0))
        guarantee = stream.guarantee
        assert guarantee.entries == stream.ledger
        assert guarantee.neighbours == neighbours
        assert guarantee.model == {"one": "central", "loc": "local"}.get(
            case.name[:3], "shuffle" if case.name == "shuffle" else "joint"
        )
        spends_its_budget(guarantee, case.budget)


@pytest.mark.counters
def test_shares_divide_the_budget(case, spec):
    stream = case.privatizer(shares={"visits": 1.0, "transitions": 2.0, "rewards": 5.0}).open(
        spec, 16, NoiseSource.seeded(0)
    )
    costs = {entry.statistic: entry.cost for entry in stream.ledger}
    total = sum(costs.values())
    assert [costs[name] / total for name in ("visits", "transitions", "rewards")] == pytest.approx(
        [1 / 8, 2 / 8, 5 / 8]
    )


@pytest.mark.counters
def test_equal_settings_are_equal_and_hashable(case):
    by_name = case.privatizer(shares={"rewards": 0.0, "visits": 1.0, "transitions": 2.0})
    in_order = case.privatizer(shares=[1.0, 2.0, 0.0])
    if case.name[:5] != "local":
        assert by_name == in_order
        assert hash(by_name) == hash(in_order)
    assert case.privatizer() == case.privatizer()
    assert hash(case.privatizer()) == hash(case.privatizer())


@pytest.mark.counters
def test_rewards_without_a_share_are_not_looked_at(case, spec):
    stream = case.privatizer(shares=(1.0, 1.0, 0.0)).open(spec, 4, NoiseSource.seeded(0))
    stream.add(stacked(random_episodes(spec, 3)))
    release = stream.release()
    assert not release.reward_sums.any()
    assert np.isinf(release.widths.rewards).all()
    assert [entry.statistic for entry in stream.ledger] == ["visits", "transitions"]


@pytest.mark.counters
def test_p2_nothing_of_a_table_without_a_share_is_kept_anywhere(case, spec):
    """Two worlds that differ in rewards only are the same in every array the stream holds, before and after."""
    held = []
    for factor in (0.0, 1.0):
        stream = case.privatizer(shares=(1.0, 1.0, 0.0)).open(spec, 4, NoiseSource.seeded(0))
        users = stacked(random_episodes(spec, 3))
        stream.add(replace(users, rewards=factor * users.rewards))
        before = arrays_in(stream)
        stream.release()
        held.append(before + arrays_in(stream))
    assert len(held[0]) == len(held[1]) > 3
    assert all(np.array_equal(a, b) for a, b in zip(*held, strict=True))
    assert isinstance(stream, CountStream) or not stream._reports.totals[sum(stream.encoder.sizes) :].size


def arrays_in(thing, depth=0):
    """Every array reachable from an object through its attributes and containers."""
    if isinstance(thing, np.ndarray):
        return [thing.copy()]
    if isinstance(thing, (list, tuple)):
        parts = thing
    elif isinstance(thing, dict):
        parts = list(thing.values())
    elif type(thing).__module__.startswith("discreet") and hasattr(thing, "__dict__") and depth < 4:
        parts = [value for value in vars(thing).values() if not isinstance(value, NoiseSource)]
    else:
        return []
    return [array for part in parts for array in arrays_in(part, depth + 1)]


def test_users_with_several_episodes_get_more_noise(spec):
    for kind, budget in (
        (Tree, Budget.pure(1.0)),
        (Epochs, Budget.zcdp(0.1)),
        (OneShot, Budget.approximate(1, 1e-6)),
    ):
        once, thrice = (kind(budget, episodes_per_user=r).open(spec, 8, NoiseSource.seeded(0)) for r in (1, 3))
        for one, three in zip(once.ledger, thrice.ledger, strict=True):
            assert three.scale == pytest.approx(3 * one.scale)
            assert three.sensitivity == pytest.approx(3 * one.sensitivity)
            assert three.cost == pytest.approx(one.cost)
        assert thrice.guarantee.unit == "user (3 episodes)"
        assert thrice.guarantee.epsilon == pytest.approx(once.guarantee.epsilon, rel=1e-8)
        assert (thrice.guarantee.rho or 0.0) == pytest.approx(once.guarantee.rho or 0.0, rel=1e-8)


# Sensitivity --------------------------------------------------------------------------------------------------------


@pytest.mark.counters
def test_the_ledger_states_the_brute_force_sensitivity(case):
    for pooled in (False, True):
        tiny = CountSpec(2, 1, 2, pooled, grid=0.5)
        for neighbours in case.relations:
            found = brute_sensitivity(tiny, neighbours)
            stream = case.privatizer(neighbours=neighbours).open(tiny, 6, NoiseSource.seeded(0))
            for entry in stream.ledger:
                gain = 1.0
                if case.name == "toeplitz":
                    code = dict(zip(("visits", "transitions", "rewards"), stream._mechanism.codes, strict=True))
                    gain = code[entry.statistic].norm
                l1, l2 = found[entry.statistic]
                assert entry.sensitivity == pytest.approx(gain * (l1 if entry.norm == "l1" else l2))


@pytest.mark.linear
def test_swapping_one_user_under_the_same_noise_moves_releases_by_her_contribution_only(case, spec):
    """The same noise in both worlds: no release before hers differs, every later one by what she changed."""
    everybody = list(every_episode(spec))
    users = random_episodes(spec, 6)
    rng = np.random.default_rng(3)
    for _ in range(4):
        her, instead = (everybody[int(i)] for i in rng.integers(0, len(everybody), 2))
        place = int(rng.integers(0, 6))
        worlds = []
        for one in (her, instead):
            noise = RecordedNoise(NoiseSource.seeded(9)) if case.name[:5] != "local" else NoiseSource.seeded(9)
            stream = case.privatizer().open(spec, 6, noise)
            releases = []
            for user in [*users[:place], one, *users[place + 1 :]]:
                stream.add(user)
                if case.continual:
                    releases.append(stream.release())
            worlds.append(releases or [stream.release()])
        change = [a - b for a, b in zip(natural_sums([her], spec), natural_sums([instead], spec), strict=True)]
        for i, (a, b) in enumerate(zip(*worlds, strict=True)):
            for name, moved in zip(TABLES, change, strict=True):
                expected = moved if i >= place or not case.continual else 0.0 * moved
                assert np.allclose(getattr(a, name) - getattr(b, name), expected, atol=1e-9)


def test_measurements_of_the_toeplitz_code_move_by_at_most_the_stated_sensitivity(spec):
    """All measurements together, for the first block (worst) and every pair of a sample that includes the worst."""
    seen = {"visits": 0.0, "transitions": 0.0, "rewards": 0.0}
    everybody = list(every_episode(spec))
    pairs = [(everybody[3], everybody[-1]), *zip(everybody[::37], everybody[::-37], strict=True)]
    for her, instead in pairs:
        measured = []
        for one in (her, instead):
            stream = Toeplitz(Budget.zcdp(1.0), num_blocks=5).open(spec, 5, NoiseSource.seeded(0))
            for user in [one, *random_episodes(spec, 4)]:
                stream.add(user)
                stream.release()
            measured.append([m.copy() for m in stream._mechanism.measured])
        for entry, a, b in zip(stream.ledger, *measured, strict=True):
            moved = float(np.linalg.norm(a - b))
            assert moved <= entry.sensitivity * (1 + 1e-12)
            seen[entry.statistic] = max(seen[entry.statistic], moved / entry.sensitivity)
    assert min(seen.values()) == pytest.approx(1.0)


# Noise --------------------------------------------------------------------------------------------------------------


def law_of_sum(mechanism: str, scale: float, terms: int):
    """Cell probabilities of a sum of integer noises, by convolution, on −reach..reach."""
    law = DiscreteLaplace(scale) if mechanism == "laplace" else DiscreteGaussian(scale)
    reach = math.ceil(30 * scale)
    one = law.pmf(np.arange(-reach, reach + 1))
    total = np.array([1.0])
    for _ in range(terms):
        total = signal.fftconvolve(total, one)
    return np.arange(-(len(total) // 2), len(total) // 2 + 1), total / total.sum()


def p_value(sample, mechanism, scale, terms):
    """Chi-square of a sample of integers against the law, in 24 bins of about equal mass."""
    support, mass = law_of_sum(mechanism, scale, terms)
    edges = support[np.searchsorted(np.cumsum(mass), np.arange(1, 24) / 24.0)]
    edges = np.unique(edges)
    expected = np.diff(np.concatenate([[0.0], np.cumsum(mass)[np.searchsorted(support, edges)], [1.0]]))
    bins = np.searchsorted(edges, sample, side="left")
    found = np.bincount(bins, minlength=len(edges) + 1)
    return stats.chisquare(found, expected * len(sample)).pvalue


@pytest.mark.counters
def test_noise_has_the_scale_of_the_ledger_and_no_other(case):
    """The first release of many runs: accepts the stated scale, rejects 0.7 and 1.3 times it."""
    spec = CountSpec(5, 4, 6, False, grid=0.25)
    samples = {"visits": [], "transitions": [], "rewards": []}
    for seed in range(20):
        stream = case.privatizer().open(spec, 6, NoiseSource.seeded(seed))
        users = random_episodes(spec, 1)
        stream.add(users[0])
        release = stream.release()
        for name, table, sums, unit in zip(
            samples, (release.visits, release.transitions, release.reward_sums), natural_sums(users, spec),
            (1.0, 1.0, spec.grid), strict=True,
        ):  # fmt: skip
            samples[name].append(((table - sums) / unit).reshape(-1))
    terms = 3 if case.name == "tree-constant-noise" else 1
    for entry in stream.ledger:
        sample = np.concatenate(samples[entry.statistic])
        scale = entry.scale
        mechanism = "gaussian" if entry.is_gaussian else "laplace"
        if case.name == "toeplitz":  # decoded: y₁/2^g, to multiples of 2⁻⁸
            code = dict(zip(samples, stream._mechanism.codes, strict=True))[entry.statistic]
            scale, sample = entry.scale * code.decoder[0], np.rint(sample)
        assert np.allclose(sample, np.rint(sample))
        assert p_value(sample, mechanism, scale, terms) > 1e-3, entry.statistic
        assert p_value(sample, mechanism, 0.7 * scale, terms) < 1e-6, entry.statistic
        assert p_value(sample, mechanism, 1.3 * scale, terms) < 1e-6, entry.statistic


@pytest.mark.counters
def test_stated_deviations_are_those_of_the_noise(case):
    spec = CountSpec(5, 2, 3, False, grid=0.25)
    squares, stated = [], []
    for seed in range(40):
        stream = case.privatizer().open(spec, 16, NoiseSource.seeded(100 + seed))
        users = random_episodes(spec, 11)
        if case.continual:
            for user in users:
                stream.add(user)
                release = stream.release()
        else:
            stream.add(stacked(users))
            release = stream.release()
        if "restart" in case.name:
            continue
        sums = natural_sums(users, spec)
        for table, exact, deviation in zip(
            (release.visits, release.transitions, release.reward_sums),
            sums,
            per_table(release.deviations),
            strict=True,
        ):
            squares.append(((table - exact) / deviation).reshape(-1) ** 2)
            stated.append(deviation)
    if squares:
        z = np.concatenate(squares)  # independent over counters, mean 1
        assert abs(z.mean() - 1.0) < 5 * z.std() / math.sqrt(len(z))


# Widths -------------------------------------------------------------------------------------------------------------


def test_widths_hold_with_the_stated_probability_and_are_not_idle(case):
    """All counters and all releases of a run together; more than 20 failures in 100 runs have probability 10⁻³."""
    beta, runs, K = 0.1, 100, 12
    spec = CountSpec(2, 2, 2, pooled=False, grid=2.0**-4)
    users = random_episodes(spec, K, seed=1)
    failures, largest = 0, 0.0
    truth = [natural_sums(users[: i + 1], spec) for i in range(K)]
    for seed in range(runs):
        stream = case.privatizer(beta=beta).open(spec, K, NoiseSource.seeded(seed))
        worst = 0.0
        for i, user in enumerate(users):
            stream.add(user)
            if (not case.continual and i < K - 1) or (i + 1) % case.batch:
                continue
            if "restart" in case.name and i % 3 < 2:
                continue
            release = stream.release()
            assert release.beta == beta
            if "restart" in case.name:
                sums = window_sums(stream, users, i, spec)
            else:
                sums = truth[i]
            tables = release.visits, release.transitions, release.reward_sums
            for table, exact, width in zip(tables, sums, per_table(release.widths), strict=True):
                worst = max(worst, float((np.abs(table - exact) / width).max()))
        failures += worst > 1.0
        largest = max(largest, worst)
    assert failures <= stats.binom.isf(1e-3, runs, beta)
    assert largest > 0.5


def window_sums(stream, users, last, spec):
    """Exact sums over every cell's own window of epochs (three users each)."""
    lengths = stream._lengths
    sums = [np.zeros(shape) for shape in spec.shapes().values()]
    for length in np.unique(lengths).tolist():
        part = natural_sums(users[last + 1 - 3 * length : last + 1], spec)
        for total, table in zip(sums, part, strict=True):
            mask = lengths == length
            total[mask] = table[mask]
    return sums


# The calibration table ---------------------------------------------------------------------------------------------


def scales(privatizer, spec, num_episodes):
    return [entry.scale for entry in privatizer.open(spec, num_episodes, NoiseSource.seeded(0)).ledger]


def test_calibration_table():
    """System × neighbours → scale: visits and transitions in counts, rewards in grid units."""
    S, A, H, K, eps, rho = 6, 2, 20, 20_000, 1.0, 0.5
    staged, pooled = (CountSpec.for_episodes(S, A, H, p, K) for p in (False, True))
    units = staged.reward_units
    pure, zcdp = Budget.pure(eps), Budget.zcdp(rho)
    L = 15
    for neighbours, one in (("replace", 2.0), ("zero-out", 1.0)):
        share = np.array([1.0, 1.0, units])
        for spec, squares in ((staged, one * H), (pooled, one * H * H)):  # Δ₁ = one·H either way
            laplace, gaussian = one * H * share, math.sqrt(squares) * share
            rows = [
                (Tree(pure, neighbours), 3 * L / eps * laplace),
                (Epochs(pure, neighbours), 3 / eps * laplace),
                (OneShot(pure, neighbours), 3 / eps * laplace),
                (OneShot(pure, neighbours, shares=(1, 1, 0)), 2 / eps * laplace[:2]),
                (Tree(zcdp, neighbours), math.sqrt(L * 3 / (2 * rho)) * gaussian),
                (Epochs(zcdp, neighbours), math.sqrt(3 / (2 * rho)) * gaussian),
                (OneShot(zcdp, neighbours), math.sqrt(3 / (2 * rho)) * gaussian),
                (OneShot(zcdp, neighbours, shares=(1, 1, 0)), math.sqrt(2 / (2 * rho)) * gaussian[:2]),
            ]
            for privatizer, expected in rows:
                assert scales(privatizer, spec, K) == pytest.approx(list(expected), rel=1e-9), privatizer
    # The lines people quote.
    assert scales(Tree(pure), staged, K)[0] == pytest.approx(1800.0, rel=1e-9)  # 6·H·L/ε
    assert scales(Epochs(pure), staged, K)[0] == pytest.approx(120.0, rel=1e-9)  # 6·H/ε
    assert scales(OneShot(pure, shares=(1, 1, 0)), staged, K)[0] == pytest.approx(4 * H / eps, rel=1e-9)
    assert scales(OneShot(zcdp, shares=(1, 1, 0)), staged, K)[0] ** 2 == pytest.approx(2 * H / rho, rel=1e-9)
    assert scales(OneShot(zcdp), staged, K)[0] ** 2 == pytest.approx(3 * H / rho, rel=1e-9)


def test_known_widths():
    """ε = 1, S = 5, A = 2, H = 5, β = 0.01, the T family with a third of β."""
    for K, expected in ((100, 4506), (1000, 8121)):
        spec = CountSpec.for_episodes(5, 2, 5, False, K)
        stream = Tree(Budget.pure(1.0), beta=0.01).open(spec, K, NoiseSource.seeded(0))
        assert stream.release().widths.transitions == pytest.approx(expected, rel=2e-3)
