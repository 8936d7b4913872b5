"""The square-root code: its algebra, its integers, its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.people.counts import Counts, CountSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.toeplitz import DECODED, FEWEST_BITS, LARGEST_HISTORY, MOST_BITS, Toeplitz, square_root
from discreet.privacy.sums.tree import Tree
from oracles_streams import RecordedNoise, random_episodes, stacked

SPEC = CountSpec(2, 2, 2, pooled=False, grid=2.0**-6)
BUDGET = Budget.zcdp(0.5)


def lower_toeplitz(column):
    n = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(n)] for i in range(n)])


def test_coefficients_are_the_square_root_of_the_prefix_sum_matrix():
    code = square_root(64, MOST_BITS)
    assert (code.encoder[:5] / 2**MOST_BITS).tolist() == [1.0, 1 / 2, 3 / 8, 5 / 16, 35 / 128]
    C = lower_toeplitz(code.encoder / 2**MOST_BITS)
    assert np.allclose(C @ C, np.tri(64), atol=64 * 2.0**-MOST_BITS)


@settings(max_examples=25)
@given(st.integers(1, 120), st.integers(FEWEST_BITS, MOST_BITS))
def test_the_decoder_inverts_the_rounded_code_exactly_enough(num_blocks, bits):
    code = square_root(num_blocks, bits)
    C, D = lower_toeplitz(code.encoder.astype(float)), lower_toeplitz(code.decoder)
    assert np.allclose(D @ C, np.tri(num_blocks), atol=1e-11)
    assert code.norm == pytest.approx(np.linalg.norm(C, axis=0).max(), rel=1e-14)
    assert code.row_norm(num_blocks) == pytest.approx(np.linalg.norm(D, axis=1).max(), rel=1e-12)


def test_a_release_is_the_decoded_measurements_and_its_error_the_decoded_noise():
    noise = RecordedNoise(NoiseSource.seeded(4))
    stream = Toeplitz(BUDGET, num_blocks=6).open(SPEC, 30, noise)
    users = random_episodes(SPEC, 12)
    sizes = [math.prod(shape) for shape in SPEC.shapes().values()]
    blocks = []
    for t in range(6):
        stream.add(users[2 * t])  # two adds form one block
        stream.add(users[2 * t + 1])
        release = stream.release()
        drawn = np.concatenate([block[0] for _, block in noise.drawn])
        assert drawn.size == (t + 1) * sum(sizes)  # one draw per counter and block
        blocks = drawn.reshape(t + 1, -1)
        exact = Counts.of(stacked(users[: 2 * t + 2]), SPEC)
        start = 0
        for (_, raw), table, unit, size, code, measured in zip(
            exact.tables(),
            (release.visits, release.transitions, release.reward_sums),
            (1.0, 1.0, SPEC.grid),
            sizes,
            stream._mechanism.codes,
            stream._mechanism.measured,
            strict=True,
        ):
            w = blocks[:, start : start + size]
            error = sum(code.decoder[t - j] * w[j] for j in range(t + 1))
            assert np.allclose(table.reshape(-1) / unit - raw.reshape(-1), error, atol=0.51 * DECODED)
            y = measured[: t + 1]
            assert (y == np.rint(y)).all()
            decoded = np.rint(code.decoder[t::-1] @ y / DECODED) * DECODED
            assert (table.reshape(-1) == decoded * unit).all()
            start += size


def test_many_blocks_are_quieter_than_the_tree():
    """At 1 024 releases: row norm × column norm is near 1 + ln(B)/π, against √(L·popcount) of the tree."""
    B = 1024
    code = square_root(B, MOST_BITS)
    product = code.row_norm(B) * code.norm
    assert product == pytest.approx(1.0 + (math.log(B) + 0.577 + math.log(16) - math.pi) / math.pi, rel=0.05)
    tree = Tree(BUDGET).layout(B)
    assert product < 0.45 * tree.nodes_per_user  # prefix 1 023 has as many nodes as a user enters


def test_thousands_of_blocks_work():
    stream = Toeplitz(BUDGET, num_blocks=3000).open(SPEC, 3000, NoiseSource.seeded(0))
    users = random_episodes(SPEC, 40)
    for user in users:
        stream.add(user)
        release = stream.release()
    truth = Counts.of(stacked(users), SPEC)
    assert np.abs(release.visits - truth.visits).max() <= release.widths.visits
    assert release.num_episodes == 40


def test_more_blocks_than_declared_are_refused_before_anything_is_drawn():
    noise = RecordedNoise(NoiseSource.seeded(0))
    stream = Toeplitz(BUDGET, num_blocks=2).open(SPEC, 9, noise)
    users = random_episodes(SPEC, 3)
    for user in users[:2]:
        stream.add(user)
        stream.release()
    drawn = len(noise.drawn)
    stream.add(users[2])
    with pytest.raises(ValueError, match="larger num_blocks"):
        stream.release()
    assert len(noise.drawn) == drawn


def test_before_the_first_user_the_release_is_zero_and_free():
    noise = RecordedNoise(NoiseSource.seeded(0))
    release = Toeplitz(BUDGET, num_blocks=2).open(SPEC, 9, noise).release()
    assert not noise.drawn
    assert not release.transitions.any()


def test_coefficients_get_coarser_where_the_numbers_need_room():
    fine = CountSpec(2, 2, 2, pooled=False, grid=2.0**-28)
    grids = Toeplitz(BUDGET, num_blocks=16).grids(fine, 1000)
    assert grids["visits"] == MOST_BITS
    assert FEWEST_BITS <= grids["rewards"] < MOST_BITS
    with pytest.raises(ValueError, match="coarser reward grid"):
        Toeplitz(BUDGET, num_blocks=16).open(
            CountSpec(2, 2, 2, pooled=False, grid=2.0**-36), 1000, NoiseSource.seeded(0)
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": Budget.pure(1.0), "num_blocks": 4}, "Gaussian"),
        ({"budget": BUDGET, "mechanism": "laplace", "num_blocks": 4}, "Gaussian"),
        ({"budget": BUDGET, "num_blocks": 0}, "num_blocks"),
        ({"budget": BUDGET, "num_blocks": 2.5}, "num_blocks"),
        ({"budget": BUDGET, "num_blocks": LARGEST_HISTORY}, "fewer blocks"),
    ],
)
def test_meaningless_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Toeplitz(**settings).open(SPEC, 4, NoiseSource.seeded(0))
