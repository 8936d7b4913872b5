"""A device's own randomness: exact laws from plain Python, the same values as compiled code for the same words."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from discreet.device import Noise
from discreet.device.sampler import Randomness, below, biased, chosen, unary
from discreet.privacy.noise import DiscreteLaplace, NoiseSource


def words_of(seed: int, count: int) -> list[int]:
    return NoiseSource.seeded(seed).words(count).tolist()


def p_value(values: np.ndarray, law: DiscreteLaplace, reach: int) -> float:
    """Chi-square of values against a law, both tails pooled beyond ±reach."""
    inner = np.arange(-reach, reach + 1)
    expected = np.concatenate([[law.tail(reach)], law.pmf(inner), [law.tail(reach)]]) * values.size
    cut = np.clip(values, -reach - 1, reach + 1)
    observed = np.bincount(cut + reach + 1, minlength=2 * reach + 3)
    return float(chisquare(observed, expected * (observed.sum() / expected.sum())).pvalue)


# The same values as the server's ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.1, 0.7, 1.0, 3.7, 100.0, 12345.6, 1e9, 1e12])
def test_the_device_draws_what_compiled_code_draws_from_the_same_words(scale):
    source, device = NoiseSource.seeded(5), Noise.replayed(words_of(5, 20_000))
    for shape in (3000, (7, 11), 0, (0, 4), ()):
        assert np.array_equal(device.laplace(scale, shape), source.laplace(scale, shape))
    assert np.array_equal(device.words(50), source.words(50))  # neither has read a word more than the other


def test_rare_attempts_agree_too():
    """Tails, rejections and close decisions: words at the ends of columns, mixed with others."""
    rng = np.random.default_rng(0)
    edges = np.array([0, 1, 2**31, 2**33 - 1, 2**63 - 1, 2**63, 2**64 - 2**33, 2**64 - 2, 2**64 - 1], dtype=np.uint64)
    for scale in (0.1, 2.5, 300.0):
        words = np.where(
            rng.random(9000) < 0.5, rng.choice(edges, 9000), rng.integers(2**64, size=9000, dtype=np.uint64)
        )
        source = NoiseSource.seeded(0)
        source._refill()
        begin = source._position
        source._buffer[begin : begin + words.size] = words
        assert np.array_equal(Noise.replayed(words.tolist()).laplace(scale, 1500), source.laplace(scale, 1500))


@pytest.mark.parametrize("scale", [0.3, 1.0, 6.5])
def test_the_law_of_the_device_is_the_law_that_is_charged(scale):
    values = Noise.replayed(words_of(9, 130_000)).laplace(scale, 40_000)
    reach = math.ceil(6 * scale)
    assert p_value(values, DiscreteLaplace(scale), reach) > 1e-3
    assert p_value(values, DiscreteLaplace(0.9 * scale), reach) < 1e-6
    assert p_value(values, DiscreteLaplace(1.1 * scale), reach) < 1e-6


def test_no_scale_is_no_noise_and_reads_no_word():
    assert not Noise.replayed([]).laplace(0.0, (3, 4)).any()
    with pytest.raises(ValueError, match="between"):
        Noise().laplace(0.05, 1)


# The operating system's words ---------------------------------------------------------------------------------------


def test_words_come_from_the_operating_system_once_and_nothing_is_kept(monkeypatch):
    asked = []

    def urandom(size):
        asked.append(size)
        return b"\x01" * size

    monkeypatch.setattr("os.urandom", urandom)
    noise = Noise()
    assert noise.words(3).tolist() == [0x0101010101010101] * 3
    assert asked == [24]
    monkeypatch.undo()
    one, other = Noise(), Noise()
    assert not set(one.words(100).tolist()) & set(other.words(100).tolist())
    assert list(vars(one)) == ["_read"]
    assert repr(one) == "Noise(secure)"
    assert repr(Noise.replayed([1])) == "Noise(replayed)"


def test_replayed_words_end():
    noise = Noise.replayed([1, 2**64 - 1])
    assert noise.words(2).tolist() == [1, 2**64 - 1]
    assert noise.words(0).size == 0
    with pytest.raises(ValueError, match="used up"):
        noise.words(1)
    with pytest.raises(ValueError, match="used up"):
        Noise.replayed([1, 2]).words(3)
    with pytest.raises(ValueError, match="negative"):
        Noise().words(-1)


# What encoders make of words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 2**20, 2**62 + 1])
def test_numbers_below_a_limit_are_even_and_words_beyond_the_last_block_are_drawn_again(limit):
    rest = 2**64 % limit
    largest = 2**64 - 1 - rest
    noise = Noise.replayed([*([2**64 - 1] if rest else []), largest, 0, limit - 1])
    assert below(noise, limit, 1).tolist() == [largest % limit]
    assert below(noise, limit, 2).tolist() == [0, limit - 1]


def test_bits_are_on_below_their_threshold():
    assert biased(Noise.replayed([4, 5, 6]), 5, 3).tolist() == [True, False, False]
    assert not biased(Noise.replayed([0]), 0, 1).any()


def test_every_set_is_chosen_as_often():
    noise = NoiseSource.seeded(3)
    seen = Counter(chosen(noise, 5, 2) for _ in range(5000))
    assert len(seen) == 10
    assert all(a < b for a, b in seen)
    assert chisquare(list(seen.values())).pvalue > 1e-3
    assert chosen(noise, 4, 4) == (0, 1, 2, 3)


@pytest.mark.parametrize("make", [lambda: Noise.replayed(words_of(2, 600)), lambda: NoiseSource.seeded(2)])
def test_the_unary_code_reads_one_word_per_bit(make):
    noise: Randomness = make()
    items, size, flips = np.array([3, -1, 0]), 100, 2**61
    bits = unary(items, size, flips, noise)
    words = np.array(words_of(2, 300), dtype=np.uint64).reshape(3, 100)
    thresholds = np.full((3, 100), flips, dtype=np.uint64)
    thresholds[0, 3] = thresholds[2, 0] = 2**63
    assert np.array_equal(bits, words < thresholds)
    assert noise.words(1).tolist() == words_of(2, 301)[-1:]


def test_the_unary_code_has_the_law_that_is_charged():
    """On with ½ at the item and q elsewhere, to five standard deviations; a q of .9 would not pass."""
    n, q = 60_000, Fraction(1, 5)
    bits = unary(np.zeros(n, dtype=np.int64), 2, math.floor(q * 2**64), NoiseSource.seeded(4))
    for found, p in zip(bits.mean(axis=0), (0.5, float(q)), strict=True):
        spread = math.sqrt(p * (1 - p) / n)
        assert abs(found - p) < 5 * spread < abs(0.9 * p - p)


# What a device loads ------------------------------------------------------------------------------------------------


def test_a_device_loads_nothing_heavy():
    heavy = ["numba", "scipy", "duckdb", "matplotlib", "pyarrow", "cryptography", "pandas", "dp_accounting"]
    script = f"""
import sys
from discreet.device import BitEncoder, LaplaceEncoder, Noise, Reporter, Tables, encoder_from_json
from discreet.device.bits import CountBits
tables = Tables(2, 2, 3, 3, 0.5, (0.0, 1.0))
episode = [0, 1, 1, 0], [1, 0, 1], [1.0, 0.5, 0.0]
encoder = encoder_from_json(LaplaceEncoder(tables, (20.0, 20.0, 40.0)).to_json())
assert len(Reporter("ann", 2.0).report("shop", encoder, *episode).payload) == 8 * 48
bits = BitEncoder.from_json(BitEncoder(CountBits(tables), 4000, 1, 2**63).to_json())
assert Reporter("ann", 1.0).bits("shop", bits, *episode, delta_at_most=1e-6).size == 96
print(*[name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
