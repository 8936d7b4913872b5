"""The noise source: exact tables and decisions, streams that never repeat, laws in closed form, refusals."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.kernels.sampling import DONE, UNDECIDED, acceptance, draw, high_product
from discreet.privacy import envelope as tables
from discreet.privacy import noise
from discreet.privacy.envelope import MARGIN, Envelope, exponential_bounds, uniform_is_below
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from oracles_noise import (
    QUICK_UNITS,
    Refills,
    acceptance_probability,
    envelope_parts,
    real,
    reference_values,
    weights_behind_alias,
)

SCALES = [0.1, 0.2, 1.0, 3.7, 100.0, 127.9, 1e5, 1e9, 1e12]
SHIPPED = {
    **{f"laplace {scale:g}": (tables.laplace_envelope, scale) for scale in SCALES},
    **{f"gaussian {scale:g}": (tables.gaussian_envelope, scale) for scale in SCALES},
}


def shipped(name: str) -> Envelope:
    build, scale = SHIPPED[name]
    return build(scale)


def coarse(law: str, margin: int = MARGIN) -> Envelope:
    """Few, long blocks: tails and close decisions are frequent."""
    if law == "laplace":
        return Envelope(1 / Fraction(1000), 1, 8, 16, margin)
    return Envelope(1 / (2 * Fraction(1000) ** 2), 2, 8, 16, margin)


# --- exact decisions ---


@given(st.fractions(0, 300), st.integers(1, 300))
def test_exponential_bounds_enclose_and_are_tight(exponent: Fraction, bits: int) -> None:
    lower, upper = exponential_bounds(exponent, bits)
    with mpmath.workdps(200):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * mpmath.mpf(2) ** bits
        assert lower <= exact <= upper
    assert upper - lower <= 3


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.fractions(0, 40), st.integers(0, 2**64 - 1))
def test_a_uniform_is_compared_exactly(denominator: int, below: int, exponent: Fraction, u: int) -> None:
    numerator = max(1, denominator - below)
    bound = real(Fraction(numerator, denominator)) * mpmath.exp(-real(exponent)) * 2**64
    if not u <= bound <= u + 1:
        assert uniform_is_below(numerator, denominator, exponent, u, lambda: 1 // 0) == (u < bound)


def test_a_tie_draws_more_bits_until_it_is_settled() -> None:
    # exp(−1) to 192 bits; a uniform that agrees with it for two words is settled by the third alone
    exact = int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** 192))
    first, second, third = exact >> 128, (exact >> 64) % 2**64, exact % 2**64
    for last, expected in ((third - 5, True), (third + 5, False)):
        supply = iter([second, last])
        assert uniform_is_below(1, 1, Fraction(1), first, lambda supply=supply: next(supply)) is expected
        assert next(supply, None) is None


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_high_product(a: int, b: int) -> None:
    assert int(high_product(np.uint64(a), np.uint64(b))) == a * b >> 64


# --- tables ---


@pytest.mark.parametrize("name", SHIPPED)
def test_the_tables_hold_an_envelope_of_the_law(name: str) -> None:
    envelope = shipped(name)
    weights = weights_behind_alias(envelope)
    assert sum(weights) == 2**64
    assert weights == envelope.weights.tolist()
    quick = envelope_parts(envelope)[2]
    assert not quick[envelope.tail :].any()
    for column in range(envelope.tail):
        peak = acceptance_probability(envelope, column, 0)
        assert peak <= 1
        assert (
            column == 0 or peak * weights[column] > weights[column] - 1 - mpmath.mpf(10) ** -20
        )  # rounded up by ≤ 1
        assert int(quick[column]) <= QUICK_UNITS * acceptance_probability(envelope, column, envelope.block - 1)
    for column in (envelope.tail, envelope.tail + 1):
        for run_length in (0, 1, 2, 5, 60):
            assert acceptance_probability(envelope, column, 0, run_length) <= 1


@pytest.mark.parametrize("scale", [0.2, 3.7, 100.0, 1e12])
def test_the_log_ratio_of_the_sampled_law_is_one_over_scale_everywhere(scale: float) -> None:
    """ln P(x)/P(x+1) of (words per column) × (share of a block) × (acceptance), over the table and into the tails."""
    envelope = tables.laplace_envelope(scale)
    weights = weights_behind_alias(envelope)
    m, blocks = envelope.block, envelope.blocks

    def mass(x: int) -> mpmath.mpf:
        sign, y = (1, -1 - x) if x < 0 else (0, x)
        column = 2 * min(y // m, blocks) + sign
        if column < envelope.tail:
            return real(Fraction(weights[column], m)) * acceptance_probability(envelope, column, y % m)
        run_length, offset = divmod(y - blocks * m, envelope.run)
        share = real(Fraction(weights[column], envelope.run * 2 ** (run_length + 1)))
        return share * acceptance_probability(envelope, column, offset, run_length)

    joins = [q * m - 1 for q in range(0, blocks + 1, max(1, blocks // 200))]
    tails = [blocks * m + k * envelope.run + e for k in (0, 1, 7) for e in (-1, 0)]
    exact = 1 / mpmath.mpf(scale)
    worst = mpmath.mpf(0)
    for y in joins + tails:
        for x in (y, -2 - y):
            ratio = abs(mpmath.log(mass(x) / mass(x + 1)))
            assert abs(ratio - exact) < exact * mpmath.mpf(10) ** -40
            worst = max(worst, ratio)
    charged = DiscreteLaplace(scale).log_ratio
    assert worst * (1 - mpmath.mpf(10) ** -40) <= charged <= exact * (1 + mpmath.mpf(2) ** -52)


@pytest.mark.parametrize("scale", [*np.geomspace(0.1, 1e12, 27).tolist(), 0.7, 63.9, 64.1, 128.0, 6.5e11])
def test_tables_stay_small_and_values_stay_in_64_bits(scale: float) -> None:
    for envelope in (tables.laplace_envelope(scale), tables.gaussian_envelope(scale)):
        assert envelope.nbytes <= 4 * 2**20
        assert envelope.block <= 2**33  # the offset leaves the 31 bits of the quick test alone
        largest = envelope.blocks * envelope.block + (tables._LONGEST_RUN + 64 + 64) * envelope.run
        assert largest < 2**62


@pytest.mark.parametrize("name", [*SHIPPED, "coarse laplace", "coarse gaussian"])
def test_the_compiled_acceptance_is_within_its_proven_error(name: str) -> None:
    envelope = coarse(name.split()[1]) if name.startswith("coarse") else shipped(name)
    detail, shift, curve = envelope.arguments[3], envelope.arguments[5], envelope.arguments[6]
    rng = np.random.default_rng(0)
    for column in rng.integers(0, envelope.tail, 60).tolist():
        offset = int(rng.integers(0, envelope.block))
        for r in (0, offset, envelope.block - 1):
            got = int(acceptance(np.uint64(r), np.uint64(shift), detail[column, 0], curve, detail[column, 1]))
            assert abs(got - 2**64 * acceptance_probability(envelope, column, r)) <= 13 < MARGIN


# --- the whole sampler, word by word ---


@pytest.mark.parametrize("name", ["laplace 0.2", "laplace 100", "laplace 1e+09", "gaussian 3.7", "gaussian 100000"])
def test_shipped_samplers_follow_the_reference_word_by_word(name: str) -> None:
    envelope = shipped(name)
    words = NoiseSource.seeded(5).words(30_000).tolist()
    values = NoiseSource.seeded(5)._sample(envelope, 8_000).tolist()
    assert values == reference_values(envelope, Refills(words, 2**17 - 4), 8_000)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_coarse_samplers_follow_the_reference_word_by_word(law: str) -> None:
    envelope = coarse(law)
    words = NoiseSource.seeded(6).words(60_000).tolist()
    values = NoiseSource.seeded(6)._sample(envelope, 1_500).tolist()
    assert values == reference_values(envelope, Refills(words, 2**17 - 4), 1_500)
    assert np.mean(np.abs(values) > envelope.blocks * envelope.block) > 0.05


@pytest.mark.parametrize("usable", [3, 4, 5])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_value_never_depends_on_where_a_buffer_ends(monkeypatch: pytest.MonkeyPatch, law: str, usable: int) -> None:
    # tails and rejections included; an attempt that read past the end would meet words of no refill
    monkeypatch.setattr(noise, "_REFILL_BYTES", 8 * (usable + 4))
    monkeypatch.setattr(noise, "_ZEROS", bytes(8 * (usable + 4)))
    envelope = coarse(law)
    words = NoiseSource.seeded(4).words(20_000).tolist()
    values = NoiseSource.seeded(4)._sample(envelope, 400).tolist()
    assert values == reference_values(envelope, Refills(words, usable), 400)


@pytest.mark.parametrize("name", ["laplace 1e+12", "gaussian 1e+12", "laplace 100000"])
def test_the_third_word_completes_the_uniform(name: str) -> None:
    """Word 2 agrees with a(x) in all its bits; the bits of word 3 tell keep, reject and too close to call."""
    envelope = shipped(name)
    threshold, alias, quick = envelope_parts(envelope)
    capacity = 2**64 // threshold.size
    column = next(c for c in range(41, envelope.tail) if threshold[c] > c * capacity or alias[c] == c)
    offset = envelope.block // 2 + 1
    a = int(acceptance_probability(envelope, column, offset) * 2**64)
    mask = envelope.block - 1
    assert 200 < a & mask < mask - 200
    second = (a & ~mask) | offset
    assert second >> 33 >= quick[column]
    y = (column >> 1) * envelope.block + offset
    kept = -1 - y if column & 1 else y
    sure = [column * capacity, 7]  # an attempt in the same block that the quick test keeps
    for third, reason, filled in ((a - 100, DONE, kept), (a + 100, DONE, None), (a, UNDECIDED, None)):
        words = np.array([column * capacity, second, third & mask | (1 << 63), *sure, 0], np.uint64)
        out = np.zeros(1, np.int64)
        index, position, why, back_column, back_offset, u = draw(words, 0, out, 0, *envelope.arguments)
        assert why == reason
        if reason == UNDECIDED:
            assert (index, position, back_column, back_offset, u) == (0, 3, column, offset, a)
        else:
            assert (index, position) == ((1, 3) if filled is not None else (1, 5))
            assert (out[0] == kept) == (filled is not None)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_exact_decisions_agree_with_compiled_ones(law: str) -> None:
    # with this margin the compiled loop settles nothing beyond its quick test
    cautious = NoiseSource.seeded(9)._sample(coarse(law, margin=2**63 - 1), 3_000)
    assert (cautious == NoiseSource.seeded(9)._sample(coarse(law), 3_000)).all()


def test_an_endless_tail_raises_instead_of_wrapping() -> None:
    envelope = tables.laplace_envelope(1e12)
    with pytest.raises(OverflowError, match="64-bit range"):
        envelope.decide(envelope.tail, 0, 0, lambda: 2**64 - 1)


def test_blocks_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1/2 in a block"):
        Envelope(Fraction(1), 1, 4, 64)


# --- laws ---


def exact_gaussian_upper(x: int, sigma: float) -> mpmath.mpf:
    """P(X > x), x ≥ 0, by summation at 80 digits; by high-order Euler–Maclaurin summation for large σ."""

    def g(y: mpmath.mpf) -> mpmath.mpf:
        return mpmath.exp(-(y**2) / (2 * mpmath.mpf(sigma) ** 2))

    def from_on(start: int) -> mpmath.mpf:
        if sigma <= 5:
            return mpmath.fsum(g(mpmath.mpf(y)) for y in range(start, start + int(20 * sigma) + 20))
        s, a = mpmath.mpf(sigma), mpmath.mpf(start)
        integral = s * mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(a / (s * mpmath.sqrt(2)))
        z = a / s  # derivatives of g are Hermite polynomials times g
        first, third, fifth = -z, -(z**3 - 3 * z), -(z**5 - 10 * z**3 + 15 * z)
        series = mpmath.mpf(1) / 2 - first / s / 12 + third / s**3 / 720 - fifth / s**5 / 30240
        return integral + g(a) * series

    return from_on(x + 1) / (1 + 2 * from_on(1))


@pytest.mark.parametrize("sigma", [0.1, 0.4, 1.0, 4.2, 300.0, 999.0, 1001.0, 1e6, 1e12])
def test_gaussian_tail_and_mass(sigma: float) -> None:
    law = DiscreteGaussian(sigma)
    for z in (0.0, 0.3, 1.0, 4.0, 9.0):
        x = int(z * sigma)
        exact = exact_gaussian_upper(x, sigma)
        assert float(law.tail(x)) == pytest.approx(float(exact), rel=1e-10)
        assert float(law.tail(-x - 1)) == pytest.approx(1 - float(exact), rel=1e-12)
        if sigma <= 1000:
            assert float(law.tail(x - 1) - law.tail(x)) == pytest.approx(float(law.pmf(x)), rel=1e-9, abs=1e-15)
    assert law.excess == 0


@pytest.mark.parametrize(
    "law",
    [
        *(DiscreteGaussian(sigma) for sigma in (0.1, 0.5, 1.0, 9.9, 10.1, 50.0)),
        *(DiscreteLaplace(scale) for scale in (0.1, 0.5, 1.0, 10.0, 60.0)),
    ],
    ids=str,
)
def test_sums_of_a_law(law: DiscreteGaussian | DiscreteLaplace) -> None:
    x = np.arange(-4000, 4001)
    mass = law.pmf(x)
    assert mass.sum() == pytest.approx(1, rel=1e-13)
    assert (x**2 * mass).sum() == pytest.approx(law.variance, rel=1e-12)
    for threshold in (-7, -1, 0, 3, 40):
        assert float(law.tail(threshold)) == pytest.approx(mass[x > threshold].sum(), rel=1e-12, abs=1e-300)
    assert float(law.tail(2.5)) == float(law.tail(2))


@given(st.floats(0.1, 1e12))
def test_the_charged_log_ratio_is_the_least_float_not_below_one_over_scale(scale: float) -> None:
    ratio = DiscreteLaplace(scale).log_ratio
    assert Fraction(ratio) * Fraction(scale) >= 1
    assert Fraction(float(np.nextafter(ratio, 0))) * Fraction(scale) < 1


# --- streams ---


def test_the_stream_is_aes_in_counter_mode_with_key_erasure() -> None:
    key = np.random.SeedSequence(42).generate_state(4, np.uint64).tobytes()
    first = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(2**20))
    second = Cipher(AES(first[:32]), CTR(bytes(16))).encryptor().update(bytes(2**20))
    expected = np.frombuffer(first[32:] + second[32:], np.uint64)
    source = NoiseSource.seeded(42)
    assert (np.concatenate([source.words(5), source.words(expected.size - 5)]) == expected).all()


def test_used_words_and_keys_are_wiped() -> None:
    source = NoiseSource.secure()
    source.laplace(100.0, 1000)
    used = source._position
    assert used > 1000
    assert not source._buffer[:used].any()
    assert source._buffer[used:].all()
    assert source._key not in source._buffer.tobytes()
    assert not hasattr(source, "_refill_key") or source._refill_key == b""


def test_secure_sources_never_repeat() -> None:
    source = NoiseSource.secure()
    words = [source.words(200_000), NoiseSource.secure().words(200_000), source.spawn().words(200_000)]
    assert np.unique(np.concatenate(words)).size == 600_000
    assert not source.simulation
    assert not source.spawn().simulation


def test_seeded_sources_reproduce_and_split() -> None:
    whole = NoiseSource.seeded(3).laplace(1e6, 300_000)
    source = NoiseSource.seeded(3)
    parts = [source.laplace(1e6, size) for size in (1, 0, 99_999, 200_000)]
    assert (np.concatenate(parts) == whole).all()
    assert (whole != NoiseSource.seeded(4).laplace(1e6, 300_000)).mean() > 0.999
    children = [NoiseSource.seeded(3).spawn(), NoiseSource.seeded(3).spawn()]
    assert (children[0].words(100) == children[1].words(100)).all()
    parent = NoiseSource.seeded(3)
    first, second = parent.spawn(), parent.spawn()
    streams = np.concatenate([parent.words(1000), first.words(1000), second.words(1000)])
    assert np.unique(streams).size == 3000
    assert (NoiseSource.seeded(np.random.SeedSequence(3)).words(9) == NoiseSource.seeded(3).words(9)).all()


def test_secure_sources_refuse_to_be_copied_and_show_nothing() -> None:
    source = NoiseSource.secure()
    source.words(3)
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="must never repeat"):
            duplicate(source)
    assert repr(source) == "NoiseSource(secure)"
    assert repr(NoiseSource.seeded(1)) == "NoiseSource(seeded, simulation only)"


@pytest.mark.parametrize("drawn", [0, 1000, 200_000])
def test_seeded_sources_continue_after_pickling(drawn: int) -> None:
    source = NoiseSource.seeded(8)
    source.words(drawn)
    twin = pickle.loads(pickle.dumps(source))
    assert (twin.gaussian(50.0, 1000) == source.gaussian(50.0, 1000)).all()
    assert (twin.spawn().words(4) == source.spawn().words(4)).all()
    assert len(pickle.dumps(source)) < 2000


FORK = """
import os
from discreet.privacy.noise import NoiseSource
source = NoiseSource.secure()
source.words(10)
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, source.words(1000).tobytes())
    os._exit(0)
child = b""
while len(child) < 8000:
    child += os.read(read, 8000)
os.wait()
parent = source.words(1000).tobytes()
words = {data[i : i + 8] for data in (parent, child) for i in range(0, 8000, 8)}
assert len(words) == 2000, len(words)
"""


def test_a_fork_starts_a_stream_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True)


def test_a_fork_that_runs_no_hooks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = NoiseSource.secure()
    source.words(10)
    shared = source._buffer[source._position :][:50].copy()
    process = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: process)
    assert not np.isin(source.words(50), shared).any()


def test_threads_never_share_words() -> None:
    source = NoiseSource.secure()
    drawn: list[list[np.ndarray]] = [[], [], [], []]

    def work(mine: list[np.ndarray]) -> None:
        for _ in range(2000):
            mine.append(source.words(7))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.unique(np.concatenate([words for mine in drawn for words in mine])).size == 4 * 2000 * 7


# --- arguments ---


def test_scale_zero_is_no_noise_and_uses_no_words() -> None:
    source = NoiseSource.seeded(1)
    assert not source.laplace(0, (2, 3)).any()
    assert not source.gaussian(0.0, 5).any()
    assert (source.words(3) == NoiseSource.seeded(1).words(3)).all()


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), 0.05, 1.1e12, -0.1, 1e-300])
def test_bad_scales_are_refused(bad: float) -> None:
    source = NoiseSource.seeded(1)
    with pytest.raises(ValueError, match=r"the scale of the noise is .* between 0\.1 and 1e12"):
        source.laplace(bad, 3)
    with pytest.raises(ValueError, match=r"the sigma of the noise is .* between 0\.1 and 1e12"):
        source.gaussian(bad, 3)
    with pytest.raises(ValueError, match="scale"):
        DiscreteLaplace(bad)
    with pytest.raises(ValueError, match="sigma"):
        DiscreteGaussian(bad)
    with pytest.raises(ValueError, match="must not be negative"):
        source.words(-1)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 5), max_size=3))
def test_shapes(shape: list[int]) -> None:
    values = NoiseSource.seeded(1).laplace(9, tuple(shape))
    assert values.shape == tuple(shape)
    assert values.dtype == np.int64
