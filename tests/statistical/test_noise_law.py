"""The drawn noise follows its law: at every scale, beyond the tables, with tiny buffers, and as OpenDP draws it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from discreet.privacy import noise
from discreet.privacy.envelope import Envelope, laplace_envelope
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from oracles_noise import Upper, chi_square_p_value, gaussian_upper, laplace_upper, opendp_measurement

UPPER: dict[str, Upper] = {"laplace": laplace_upper, "gaussian": gaussian_upper}


def draw(source: NoiseSource, law: str, scale: float, count: int) -> NDArray[np.int64]:
    return source.laplace(scale, count) if law == "laplace" else source.gaussian(scale, count)


def envelope_of(law: str, scale: float, block_shift: int, columns: int) -> Envelope:
    t = Fraction(scale)
    return (
        Envelope(1 / t, 1, block_shift, columns)
        if law == "laplace"
        else Envelope(1 / (2 * t**2), 2, block_shift, columns)
    )


@pytest.mark.parametrize("law", UPPER)
@pytest.mark.parametrize("scale", [0.2, 1.0, 100.0, 1e5, 1e9])
def test_chi_square_accepts_the_scale_and_rejects_thirty_percent_off(law: str, scale: float) -> None:
    # σ = 0.2 leaves zero four times in a million draws, so only many draws can tell it from 0.14
    count = 8_000_000 if law == "gaussian" and scale < 1 else 300_000
    source = NoiseSource.seeded(20_000 + int(scale))
    assert chi_square_p_value(draw(source, law, scale, count), UPPER[law], scale) > 1e-3
    for factor in (0.7, 1.3):
        assert chi_square_p_value(draw(source, law, factor * scale, count), UPPER[law], scale) < 1e-9


@pytest.mark.parametrize("law", UPPER)
@pytest.mark.parametrize(
    ("scale", "block_shift", "columns"), [(1.0, 0, 4), (100.0, 0, 8), (100.0, 4, 8), (1e9, 26, 8)]
)
def test_values_beyond_a_small_table_keep_the_law(law: str, scale: float, block_shift: int, columns: int) -> None:
    # 1 or 3 blocks a side: most values, and almost all at the larger scales, come from the tail branch
    envelope = envelope_of(law, scale, block_shift, columns)
    values = NoiseSource.seeded(7)._sample(envelope, 6_000)
    assert np.mean(np.abs(values) > envelope.blocks * envelope.block) > 0.04
    assert chi_square_p_value(values, UPPER[law], scale) > 1e-3
    shorter = NoiseSource.seeded(8)._sample(envelope_of(law, 0.7 * scale, block_shift, columns), 6_000)
    assert chi_square_p_value(shorter, UPPER[law], scale) < 1e-9


@pytest.mark.parametrize(("law", "block_shift", "columns"), [("laplace", 18, 64), ("gaussian", 16, 128)])
def test_long_blocks_keep_the_law_inside_a_block(law: str, block_shift: int, columns: int) -> None:
    # the probability falls by up to a quarter inside a block: the first halves of the blocks must get more than half
    scale = 1e6
    envelope = envelope_of(law, scale, block_shift, columns)
    values = NoiseSource.seeded(3)._sample(envelope, 1_500_000)
    assert chi_square_p_value(values, UPPER[law], scale) > 1e-3
    half = envelope.block // 2
    edges = np.arange(0, 32 * envelope.block + 1, half)
    mass = -np.diff(UPPER[law](edges - 1.0, scale))
    observed = np.histogram(values, edges)[0]
    total = observed.sum()
    deviation = np.sqrt(total) / 2
    expected = total * mass[::2].sum() / mass.sum()
    assert abs(observed[::2].sum() - expected) < 3.5 * deviation
    assert expected - total / 2 > 10 * deviation


def test_offsets_in_the_blocks_of_a_large_scale_are_geometric() -> None:
    # G = x or −1−x is geometric, so G mod m has mean m·(½ − (m/t)/12 + …); uniform offsets would be 8 deviations away
    scale, count = 1e9, 6_000_000
    m = laplace_envelope(scale).block
    values = NoiseSource.seeded(11).laplace(scale, count)
    offset = (np.where(values < 0, -1 - values, values) % m) / m
    ratio = m / scale
    expected = 1 / ratio - 1 / np.expm1(ratio)
    deviation = np.sqrt(1 / 12 / count)
    assert (0.5 - expected) / deviation > 5
    assert abs(offset.mean() - expected) < 3.5 * deviation


@pytest.mark.parametrize("law", UPPER)
@pytest.mark.parametrize(("scale", "words"), [(1.0, 7), (100.0, 8), (1e9, 9)])
def test_tiny_buffers_do_not_bias(monkeypatch: pytest.MonkeyPatch, law: str, scale: float, words: int) -> None:
    # 3 to 5 usable words per refill: every second or third attempt meets an empty buffer
    monkeypatch.setattr(noise, "_REFILL_BYTES", 8 * words)
    monkeypatch.setattr(noise, "_ZEROS", bytes(8 * words))
    values = draw(NoiseSource.seeded(5), law, scale, 20_000)
    assert chi_square_p_value(values, UPPER[law], scale) > 1e-3
    assert chi_square_p_value(draw(NoiseSource.seeded(6), law, 1.3 * scale, 20_000), UPPER[law], scale) < 1e-9


def opendp_sampler(law: str, scale: float) -> Callable[[int], NDArray[np.int64]]:
    measurement = opendp_measurement(law, scale)
    return lambda count: np.array(measurement([0] * count), np.int64)


def two_sample_p_value(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    edges = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0.02, 0.98, 33), method="lower"))
    table = [
        np.bincount(np.searchsorted(edges, sample, side="left"), minlength=edges.size + 1)
        for sample in (first, second)
    ]
    occupied = np.sum(table, axis=0) > 0
    return float(stats.chi2_contingency(np.array(table)[:, occupied]).pvalue)


@pytest.mark.parametrize("law", UPPER)
@pytest.mark.parametrize("scale", [2.0, 300.0])
def test_agrees_with_opendp(law: str, scale: float) -> None:
    # OpenDP cannot be seeded, hence the small significance: a correct pair fails once in a million runs
    theirs = opendp_sampler(law, scale)(15_000)
    source = NoiseSource.seeded(13)
    assert two_sample_p_value(draw(source, law, scale, 200_000), theirs) > 1e-6
    for factor in (0.7, 1.3):
        assert two_sample_p_value(draw(source, law, factor * scale, 200_000), theirs) < 1e-9


@pytest.mark.parametrize("scale", [0.5, 30.0, 1e12])
def test_moments_match_the_laws(scale: float) -> None:
    count = 1_000_000
    source = NoiseSource.seeded(17)
    for values, variance in (
        (source.laplace(scale, count), DiscreteLaplace(scale).variance),
        (source.gaussian(scale, count), DiscreteGaussian(scale).variance),
    ):
        sample = values.astype(np.float64)
        assert abs(sample.mean()) < 4 * np.sqrt(variance / count)
        fourth = np.mean(sample**4) / variance**2
        assert abs(sample.var() / variance - 1) < 4 * np.sqrt((fourth - 1) / count)


def test_secure_noise_follows_the_law_and_its_values_are_independent() -> None:
    # unseeded: a correct sampler fails once in a million runs
    source = NoiseSource.secure()
    values = source.laplace(100.0, 400_000)
    assert chi_square_p_value(values, laplace_upper, 100.0) > 1e-6
    for lag in (1, 2, 3):
        correlation = np.corrcoef(values[:-lag], values[lag:])[0, 1]
        assert abs(correlation) < 5.5 / np.sqrt(values.size)
