"""Local reports: what a device sends, what a server may add up, and that both paths have the same law."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.device import Report, SampledEncoder, Tables, encoder_from_json
from discreet.device.sampler import below, unary_cost
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import DiscreteLaplace, NoiseSource
from discreet.privacy.sums.exact import Exact
from discreet.privacy.trust import local
from discreet.privacy.trust.local import LocalLaplace, LocalSampled, sampled_width, unary_flips

ONE = Budget.pure(1.0)


def some_episodes(spec: CountSpec, n: int, seed: int, length: int | None = None) -> Episodes:
    rng = np.random.default_rng(seed)
    H = spec.horizon if length is None else length
    return Episodes(
        rng.integers(0, spec.num_states, (n, H + 1)),
        rng.integers(0, spec.num_actions, (n, H)),
        rng.uniform(-2.0, 4.0, (n, H)),
    )


class Words(NoiseSource):
    """A source that hands out the words it was given."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        out, self.left = self.left[:count], self.left[count:]
        assert len(out) == count
        return np.array(out, dtype=np.uint64)


# Calibration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_laplace_scales_follow_the_table(pooled: bool, epsilon: float) -> None:
    H, units = 7, 2**10
    spec = CountSpec(3, 2, H, pooled, grid=1.0 / units)
    stream = LocalLaplace(Budget.pure(epsilon)).open(spec, 100, NoiseSource.secure())
    scales = {entry.statistic: entry.scale for entry in stream.ledger}
    expected = 6 * H / epsilon
    assert scales == pytest.approx(
        {"visits": expected, "transitions": expected, "rewards": expected * units}, rel=1e-9
    )
    assert stream.guarantee.epsilon == epsilon
    assert stream.guarantee.model == "local"
    assert stream.guarantee.neighbours == "replace"
    assert sum(entry.cost for entry in stream.ledger) <= epsilon


def test_printed_calibration_reports_twice_the_claim() -> None:
    spec = CountSpec(3, 2, 4, False)
    stream = LocalLaplace(ONE, calibration="paper").open(spec, 100, NoiseSource.secure())
    assert [entry.scale for entry in stream.ledger] == pytest.approx([12.0, 12.0, 12.0 * 2**20])
    assert stream.guarantee.epsilon == pytest.approx(2.0, rel=1e-12)


def test_shares_move_noise_between_tables_and_an_unpaid_table_is_not_released() -> None:
    spec = CountSpec(2, 2, 1, False, grid=1.0)
    stream = LocalLaplace(ONE, shares=(3.0, 1.0, 0.0)).open(spec, 10, NoiseSource.seeded(0))
    assert [entry.scale for entry in stream.ledger] == pytest.approx([2 / 0.75, 2 / 0.25])
    stream.add(some_episodes(spec, 10, 0))
    assert not stream.release().reward_sums.any()
    assert stream.release().widths.rewards == math.inf


def test_without_a_bound_on_epsilon_the_reports_are_exact() -> None:
    spec = CountSpec(3, 2, 4, False, reward_range=(-1.0, 2.0))
    stream = LocalLaplace(Budget.pure(math.inf)).open(spec, 50, NoiseSource.seeded(0))
    exact = Exact().open(spec, 50, NoiseSource.seeded(0))
    for s in (stream, exact):
        s.add(some_episodes(spec, 50, 3))
    for name in ("visits", "transitions", "reward_sums"):
        assert np.array_equal(getattr(stream.release(), name), getattr(exact.release(), name))


# The client ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    S=st.integers(1, 4),
    A=st.integers(1, 3),
    H=st.integers(1, 5),
    pooled=st.booleans(),
    exponent=st.integers(0, 12),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_the_device_counts_what_the_server_would_count(
    S: int, A: int, H: int, pooled: bool, exponent: int, seed: int, data: st.DataObject
) -> None:
    spec = CountSpec(S, A, H, pooled, 2.0**-exponent, (-1.0, 2.5))
    encoder = LocalLaplace(ONE).open(spec, 1, NoiseSource.secure()).encoder
    episode = some_episodes(spec, 1, seed, data.draw(st.integers(0, H)))
    flat = np.concatenate([table.reshape(-1) for _, table in Counts.of(episode, spec).tables()])
    assert np.array_equal(encoder.contribution(episode.states[0], episode.actions[0], episode.rewards[0]), flat)


def test_the_sampled_item_names_the_drawn_step() -> None:
    tables = Tables(num_states=3, num_actions=2, horizon=3, stages=3, grid=0.25, reward_range=(0.0, 2.0))
    encoder = SampledEncoder(tables, 2**60)
    states, actions, rewards = [2, 0, 1, 1], [1, 0, 1], [0.0, 1.0, 2.0]
    for h, coin, bit in [(0, 0, 0), (1, 1, 1), (1, 2, 0), (2, 3, 1)]:  # rewards are 0, 2 and 4 quarters
        item = encoder.tables.items(states, actions, rewards, Words(h, coin))[0]
        assert np.unravel_index(item, (3, 3, 2, 3, 2)) == (h, states[h], actions[h], states[h + 1], bit)
    assert encoder.tables.items(states[:2], actions[:1], rewards[:1], Words(1, 0))[0] == -1
    assert encoder.tables.items(states[:1], [], [], Words(0, 0))[0] == -1


def test_uniform_numbers_redraw_the_incomplete_block() -> None:
    assert below(Words(2**64 - 1, 5), 3, 1)[0] == 5 % 3  # 2⁶⁴ − 1 is a multiple of 3: no third of a block is left
    assert below(Words(2**64 - 2), 3, 1)[0] == (2**64 - 2) % 3
    assert below(Words(2**64 - 1), 4, 1)[0] == 3


def test_reports_and_encoders_survive_the_wire() -> None:
    spec = CountSpec(2, 2, 3, False, grid=0.5)
    episode = some_episodes(spec, 1, 1)
    for privatizer in (LocalLaplace(ONE), LocalSampled(ONE)):
        stream = privatizer.open(spec, 5, NoiseSource.seeded(0))
        encoder = encoder_from_json(json.loads(json.dumps(stream.encoder.to_json())))
        assert encoder == stream.encoder
        one = episode.states[0], episode.actions[0], episode.rewards[0]
        report = encoder.encode("ann", *one, NoiseSource.secure(), epsilon_at_most=1.0)
        assert Report.from_bytes(report.to_bytes()) == report
        stream.add_report(Report.from_bytes(report.to_bytes()))
        assert stream.release().num_episodes == 1


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"[]",
        b"{}",
        b'{"user": 1, "form": "", "payload": ""}',
        b'{"user": "", "form": "", "payload": "*"}',
        b"\xff",
    ],
)
def test_damaged_messages_are_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="report"):
        Report.from_bytes(message)


def test_the_client_needs_nothing_of_the_server() -> None:
    code = (
        "import sys, discreet.device; "
        "print(*sorted(m for m in sys.modules if m.startswith('discreet.') and not m.startswith('discreet.device')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    exact = {"discreet.privacy", "discreet.privacy.envelope", "discreet.privacy.binomial", "discreet.mdp"}
    assert set(loaded) <= exact


# The server's door --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("privatizer", [LocalLaplace(ONE), LocalSampled(ONE)])
def test_a_user_counts_once_and_only_with_the_right_form(privatizer: LocalLaplace | LocalSampled) -> None:
    spec = CountSpec(2, 2, 2, False, grid=0.5)
    stream = privatizer.open(spec, 3, NoiseSource.seeded(0))
    report = stream.encoder.encode("ann", [0, 1, 0], [1, 0], [1.0, 0.0], NoiseSource.seeded(1), epsilon_at_most=1.0)
    stream.add_report(report)
    before = stream.release()
    for refused, words in [
        (report, "already"),
        (Report("bob", "0" * 64, report.payload), "another form"),
        (Report("cid", report.form, report.payload + b"\0"), "another form"),
    ]:
        with pytest.raises(ValueError, match=words):
            stream.add_report(refused)
    with pytest.raises(ValueError, match="exceed the 3 declared"):
        stream.add(some_episodes(spec, 3, 0))
    after = stream.release()
    assert after.num_episodes == before.num_episodes == 1
    assert np.array_equal(after.transitions, before.transitions)
    stream.add(some_episodes(spec, 2, 0))
    with pytest.raises(ValueError, match="exceed the 3 declared"):
        stream.add_report(Report("dan", report.form, report.payload))


def test_absurd_numbers_and_padding_bits_are_refused() -> None:
    spec = CountSpec(1, 1, 1, False, grid=1.0)
    stream = LocalLaplace(ONE).open(spec, 5, NoiseSource.seeded(0))
    with pytest.raises(ValueError, match="no honest device"):
        stream.add_report(Report("eve", stream.encoder.form, np.array([2**62, 0, 0], "<i8").tobytes()))
    bits = LocalSampled(ONE).open(spec, 5, NoiseSource.seeded(0))
    assert bits.encoder.num_items == 2
    with pytest.raises(ValueError, match="another form"):
        bits.add_report(Report("eve", bits.encoder.form, b"\x01"))
    bits.add_report(Report("eva", bits.encoder.form, b"\xc0"))


def test_meaningless_settings_are_refused() -> None:
    for make in (LocalLaplace, LocalSampled):
        with pytest.raises(ValueError, match="'replace'"):
            make(ONE, neighbours="zero-out")
        with pytest.raises(ValueError, match="pure"):
            make(Budget.zcdp(0.5))
        with pytest.raises(ValueError, match="beta"):
            make(ONE, beta=1.0)
        with pytest.raises(ValueError, match="reward_range"):
            make(ONE).open(CountSpec(2, 2, 1, False, reward_range=None), 5, NoiseSource.secure())
        with pytest.raises(ValueError, match="num_episodes"):
            make(ONE).open(CountSpec(2, 2, 1, False), 0, NoiseSource.secure())
    with pytest.raises(ValueError, match="calibration"):
        LocalLaplace(ONE, calibration="loose")
    with pytest.raises(ValueError, match="at least 1e-18"):
        LocalSampled(Budget.pure(1e-19))
    with pytest.raises(ValueError, match="overflow"):
        LocalLaplace(ONE).open(CountSpec(2, 2, 10, False, grid=2.0**-30), 10**9, NoiseSource.secure())
    spec = CountSpec(2, 2, 1, False)
    full = Counts.zeros(spec)
    full.visits[...] = 1
    sampled, laplace = (p.open(spec, 5, NoiseSource.secure()) for p in (LocalSampled(ONE), LocalLaplace(ONE)))
    with pytest.raises(TypeError, match="Episodes"):
        sampled.add(full)
    with pytest.raises(ValueError, match="not sums of 1 episodes"):
        laplace.add(Counts(full.visits, full.transitions, full.reward_sums, 1))


def test_nothing_raw_is_kept_or_printed() -> None:
    spec = CountSpec(3, 2, 4, False)
    episodes = some_episodes(spec, 200, 5)
    raw = [table.tobytes() for _, table in Counts.of(episodes, spec).tables()]
    for privatizer in (LocalLaplace(ONE), LocalSampled(ONE)):
        stream = privatizer.open(spec, 200, NoiseSource.seeded(3))
        stream.add(episodes)
        everything = pickle.dumps(vars(stream)) + pickle.dumps(stream.release())
        assert not any(table in everything for table in raw)
        assert repr(stream).endswith("(200 of 200 episodes)")
        first, second = stream.release(), stream.release()
        assert np.array_equal(first.visits, second.visits)


# Unary encoding, exactly --------------------------------------------------------------------------------------------


def message_probability(encoder: SampledEncoder, item: int, message: tuple[int, ...]) -> Fraction:
    """Product over bits, with on-probabilities read off `randomise` by feeding it words at the thresholds."""
    probability = Fraction(1)
    for position, bit in enumerate(message):
        on = Fraction(2**63 if position == item else encoder.flips, 2**64)
        probability *= on if bit else 1 - on
    return probability


def test_bits_switch_exactly_at_the_stated_words() -> None:
    encoder = SampledEncoder(Tables(1, 2, 1, 1, 1.0, (0.0, 1.0)), flips=12345)
    assert encoder.num_items == 4
    for item in (-1, 0, 3):
        for position in range(4):
            limit = 2**63 if position == item else 12345
            for word, on in ((limit - 1, True), (limit, False)):
                words = [2**64 - 1] * 4
                words[position] = word
                bits = encoder.randomise(np.array([item]), Words(*words))[0]
                assert bits.tolist() == [on and i == position for i in range(4)]


@pytest.mark.parametrize("D", [2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_worst_log_ratio_of_a_message_is_the_charge_and_is_attained(D: int, epsilon: float) -> None:
    encoder = SampledEncoder(Tables(1, 1, 1, 1, 1.0, (0.0, 1.0)), unary_flips(epsilon))
    messages = list(itertools.product((0, 1), repeat=D))
    laws = {item: [message_probability(encoder, item, m) for m in messages] for item in range(-1, D)}
    for law in laws.values():
        assert sum(law) == 1
    worst = max(p / p2 for a, b in itertools.permutations(laws, 2) for p, p2 in zip(laws[a], laws[b], strict=True))
    q = Fraction(encoder.flips, 2**64)
    assert worst == (1 - q) / q
    with mpmath.workdps(50):
        true = mpmath.log(mpmath.mpf(worst.numerator) / worst.denominator)
        assert true <= unary_cost(encoder.flips) <= epsilon
        assert true > epsilon * (1 - 1e-14)


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-15, 60.0))
def test_the_charge_covers_the_true_ratio_and_stays_within_the_budget(epsilon: float) -> None:
    flips = unary_flips(epsilon)
    with mpmath.workdps(60):
        true = mpmath.log(mpmath.mpf(2**64 - flips) / flips)
        assert true <= unary_cost(flips) <= epsilon
    assert unary_flips(math.inf) == 0


# Law of the sums ----------------------------------------------------------------------------------------------------


def summed_pmf(scale: float, users: int) -> tuple[np.ndarray, np.ndarray]:
    """Exact law of a sum of `users` discrete Laplace numbers, by convolution."""
    reach = math.ceil(30 * scale)
    one = DiscreteLaplace(scale).pmf(np.arange(-reach, reach + 1))
    pmf = np.ones(1)
    for _ in range(users):
        pmf = np.convolve(pmf, one)
    half = pmf.size // 2
    return np.arange(-half, half + 1), pmf / pmf.sum()


def fits(sample: np.ndarray, support: np.ndarray, pmf: np.ndarray, bins: int = 25) -> float:
    """P-value of a chi-square test in bins of about equal mass."""
    edges = np.unique(support[np.minimum(np.searchsorted(np.cumsum(pmf), np.arange(1, bins) / bins), pmf.size - 1)])
    expected = np.add.reduceat(pmf, np.concatenate([[0], np.searchsorted(support, edges, side="right")]))
    observed = np.bincount(np.searchsorted(edges, sample, side="left"), minlength=edges.size + 1)
    return float(stats.chisquare(observed, expected * sample.size).pvalue)


USERS = 40
#: One state, many actions: thousands of counters with independent noise in one release.
WIDE = CountSpec(1, 2500, 1, True, grid=1.0)


def idle(n: int) -> Episodes:
    return Episodes(np.zeros((n, 2), int), np.zeros((n, 1), int), np.zeros((n, 1)))


def laplace_noise(path: str) -> np.ndarray:
    stream = LocalLaplace(Budget.pure(3.0)).open(WIDE, USERS, NoiseSource.seeded(11))
    if path == "compound":
        stream.add(idle(USERS))
    elif path == "direct":
        for _ in range(0, USERS, 20):
            stream.add(idle(20))
    else:
        device = NoiseSource.seeded(12)
        for user in range(USERS):
            stream.add_report(stream.encoder.encode(str(user), [0, 0], [0], [0.0], device, epsilon_at_most=3.0))
    release = stream.release()
    return np.concatenate([t.reshape(-1)[1:] for t in (release.visits, release.transitions, release.reward_sums)])


def test_all_three_laplace_paths_have_the_exact_law_and_wrong_ones_do_not() -> None:
    assert local.COMPOUND > 20
    assert USERS >= local.COMPOUND
    support, pmf = summed_pmf(2.0, USERS)  # 6H/ε = 2
    samples = {path: laplace_noise(path) for path in ("compound", "direct", "reports")}
    variance = USERS * DiscreteLaplace(2.0).variance
    for sample in samples.values():
        assert fits(sample, support, pmf) > 1e-3
        assert abs(sample.mean()) < 4 * math.sqrt(variance / sample.size)
        assert sample.var() == pytest.approx(variance, rel=0.08)
    for a, b in itertools.combinations(samples.values(), 2):
        assert stats.ks_2samp(a, b).pvalue > 1e-3
    once = NoiseSource.seeded(13).laplace(2.0, 7497)  # noise once per batch instead of once per user
    assert fits(once, support, pmf) < 1e-9
    for factor in (0.7, 1.3):
        wrong_support, wrong = summed_pmf(2.0 * factor, USERS)
        rng = np.random.default_rng(14)
        assert fits(rng.choice(wrong_support, 7497, p=wrong), support, pmf) < 1e-9


def test_secure_sums_draw_everybodys_noise() -> None:
    encoder = LocalLaplace(Budget.pure(3.0)).open(WIDE, USERS, NoiseSource.secure()).encoder
    sums = local.summed_noises(encoder, USERS, NoiseSource.secure())
    assert sums.var() == pytest.approx(USERS * DiscreteLaplace(2.0).variance, rel=0.12)  # sd of this ratio: 1.6 %
    assert stats.kurtosis(sums) == pytest.approx(3 / USERS, abs=0.3)


def ons_of(path: str, runs: int, H: int) -> np.ndarray:
    """How often the bits were on: users step through cells 0..H−1; bits 0 (visited) and the last one (never)."""
    spec = CountSpec(1, 4, H, True, grid=1.0)
    states, actions, rewards = np.zeros((USERS, H + 1), int), np.tile(np.arange(H), (USERS, 1)), np.zeros((USERS, H))
    noise, device = NoiseSource.seeded(21), NoiseSource.seeded(22)
    out = []
    for _ in range(runs):
        stream = LocalSampled(ONE, beta=0.1).open(spec, USERS, noise)
        if path == "compound":
            stream.add(Episodes(states, actions, rewards))
        elif path == "direct":
            for i in range(0, USERS, 20):
                stream.add(Episodes(states[i : i + 20], actions[i : i + 20], rewards[i : i + 20]))
        else:
            for user in range(USERS):
                one = states[user], actions[user], rewards[user]
                stream.add_report(stream.encoder.encode(str(user), *one, device, epsilon_at_most=1.0))
        q = stream.encoder.flips / 2**64
        steps = stream.release().transitions  # sums of two bits: (visited, never), and (never, never)
        out.append(steps.reshape(-1) * (0.5 - q) / H + USERS * 2 * q)
    return np.rint(np.array(out)).astype(int)


@pytest.mark.parametrize("H", [1, 3])
def test_all_three_unary_paths_have_the_exact_law_and_wrong_ones_do_not(H: int) -> None:
    q = 1 / (math.e + 1)
    support = np.arange(2 * USERS + 1)
    visited = np.convolve(
        stats.binom(USERS, q + (0.5 - q) / H).pmf(np.arange(USERS + 1)),
        stats.binom(USERS, q).pmf(np.arange(USERS + 1)),
    )
    never = stats.binom(2 * USERS, q).pmf(support)
    for path, runs in (("compound", 1000), ("direct", 600), ("reports", 100)):
        ons = ons_of(path, runs, H)
        bins = 12 if runs > 100 else 6
        assert fits(ons[:, 0], support, visited, bins) > 1e-3, path
        assert fits(ons[:, 3], support, never, bins) > 1e-3, path
        assert fits(ons[:, 0], support, never, bins) < 1e-2, path
    rng = np.random.default_rng(23)
    wrong = stats.binom(2 * USERS, 1 / (math.exp(1.3) + 1)).rvs(1500, random_state=rng)
    assert fits(wrong, support, never, 12) < 1e-9


@pytest.mark.parametrize("pooled", [False, True])
def test_sampled_estimates_are_unbiased_with_the_stated_spread(pooled: bool) -> None:
    spec = CountSpec(2, 2, 3, pooled, reward_range=(-1.0, 1.0))
    rng = np.random.default_rng(2)
    n, runs = 60, 1000
    short = Episodes(rng.integers(0, 2, (n, 3)), rng.integers(0, 2, (n, 2)), rng.uniform(-1.2, 1.2, (n, 2)))
    truth = Counts.of(short, spec)  # two of three steps: the third is "none"
    noise = NoiseSource.seeded(31)
    tables = {"visits": [], "transitions": [], "reward_sums": []}
    for _ in range(runs):
        stream = LocalSampled(Budget.pure(2.0), beta=0.1).open(spec, n, noise)
        stream.add(short)
        release = stream.release()
        for name, rows in tables.items():
            rows.append(getattr(release, name).reshape(-1))
    q = 1 / (math.exp(2.0) + 1)
    for name, rows in tables.items():
        sample, exact = np.array(rows), getattr(truth, name).reshape(-1) * (spec.grid if name == "reward_sums" else 1)
        empty = {"visits": 4, "transitions": 2, "reward_sums": 2}[name] * n * q * (1 - q) * (3 / (0.5 - q)) ** 2
        z = (sample.mean(axis=0) - exact) / np.sqrt(sample.var(axis=0) / runs)
        assert np.abs(z).max() < 4.5, name
        stated = getattr(release.deviations, "rewards" if name == "reward_sums" else name)
        assert stated == pytest.approx(math.sqrt(empty), rel=1e-9)
        most = empty + n * (3 / (1 - 2 * q)) ** 2
        assert np.all(sample.var(axis=0) < 1.15 * most), name
        unvisited = getattr(truth, name).reshape(-1) == 0
        if unvisited.any():
            assert sample[:, unvisited].var() == pytest.approx(empty, rel=0.15), name


# Widths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "users", "block"), [(1.0, 2000, 12), (0.1, 500, 2), (6.0, 5000, 4), (3.0, 50, 2), (7.0, 20, 400)]
)
def test_sampled_width_covers_every_rate_and_is_not_loose(epsilon: float, users: int, block: int) -> None:
    q, beta, counters = 1 / (math.exp(epsilon) + 1), 0.01, 10
    e = sampled_width(q, users, block, counters, beta)
    quiet = stats.binom(users * (block - 1), q).pmf(np.arange(users * (block - 1) + 1))
    share, tightest = beta / counters, 0.0
    for p in np.linspace(q, 0.5, 7):
        pmf = np.convolve(quiet, stats.binom(users, p).pmf(np.arange(users + 1)))
        signed = np.arange(pmf.size) - users * ((block - 1) * q + p)
        off = np.abs(signed)
        assert pmf[signed > e].sum() <= share / 2
        assert pmf[signed < -e].sum() <= share / 2
        order = np.argsort(-off)
        tightest = max(tightest, off[order][np.searchsorted(np.cumsum(pmf[order]), share)])
    assert e < 1.25 * tightest + 1  # the price of holding at all times and not only at the end; counts are whole


def test_widths_hold_at_all_times_of_a_run() -> None:
    """At most a share β = 0.3 of runs may fail; with half the width significantly more than that do."""
    spec, n, runs = CountSpec(1, 3, 1, True, grid=1.0), 40, 120
    for privatizer in (LocalLaplace(ONE, beta=0.3), LocalSampled(ONE, beta=0.3)):
        failures = halves = 0
        noise = NoiseSource.seeded(41)
        for _ in range(runs):
            stream = privatizer.open(spec, n, noise)
            worst = 0.0
            for k in range(1, n + 1):
                stream.add(idle(1))
                release = stream.release()
                truth = np.array([k, 0, 0])
                for table, e, exact in (
                    (release.visits, release.widths.visits, truth),
                    (release.transitions, release.widths.transitions, truth),
                    (release.reward_sums, release.widths.rewards, 0 * truth),
                ):
                    worst = max(worst, float(np.abs(table.reshape(-1) - exact).max() / e))
            failures += worst > 1
            halves += worst > 0.5
        assert failures <= 0.3 * runs
        assert halves > 0.3 * runs + 3 * math.sqrt(0.21 * runs)
