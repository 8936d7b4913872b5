"""The best of several by noisy scores: its exact law, what it costs, and how far people move the scores of splits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from discreet.privacy.noise import DiscreteLaplace, Geometric, NoiseSource
from discreet.privacy.trust.behaviour import BehaviourTree, split_scores
from discreet.privacy.trust.noisy_max import noisy_max, noisy_max_entry, noisy_max_scale
from discreet.releases.trees import alone, to_the_right

FAR = 400


def exact_law(scores: list[int], scale: float) -> np.ndarray:
    """P(i is first with the largest u + z), summed over the winner's noise."""
    z = np.arange(FAR)
    pmf = Geometric(scale).pmf(z)
    found = []
    for i, u in enumerate(scores):
        wins = pmf.copy()
        for j, other in enumerate(scores):
            if j != i:  # z_j ≤ u + z − other, less by one where j comes first
                wins *= 1.0 - Geometric(scale).tail(u + z - other - (1 if j < i else 0))
        found.append(wins.sum())
    return np.array(found)


# The law of the noise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
def test_geometric_noise_has_its_law_and_no_other(scale):
    drawn = NoiseSource.seeded(3).geometric(scale, 200_000)
    assert drawn.min() == 0
    for factor, same in ((1.0, True), (0.7, False), (1.3, False)):
        law = Geometric(scale * factor)
        edges = np.unique([0.0, 1.0, *np.floor(scale * np.array([0.3, 0.7, 1, 1.5, 2, 3, 4]))])
        upper = np.append(law.tail(edges - 1), 0.0)
        expected = 200_000 * (upper[:-1] - upper[1:])
        seen = np.histogram(drawn, [*edges, np.inf])[0]
        assert (
            stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-3
        ) == same or edges.size == 1


def test_geometric_numbers_agree_with_each_other():
    law = Geometric(2.5)
    x = np.arange(400)
    assert law.pmf(x).sum() == pytest.approx(1.0)
    assert law.mean == pytest.approx((x * law.pmf(x)).sum())
    assert law.variance == pytest.approx((x**2 * law.pmf(x)).sum() - law.mean**2)
    np.testing.assert_allclose(law.tail(x[:50]), [law.pmf(x[i + 1 :]).sum() for i in range(50)], rtol=1e-9)
    np.testing.assert_array_equal(law.tail([-3, -1]), 1.0)
    assert law.pmf(-1) == 0.0
    assert law.log_ratio >= 1 / 2.5
    # what is left of a discrete Laplace law above −1
    two = DiscreteLaplace(2.5)
    np.testing.assert_allclose(law.pmf(x), two.pmf(x) / two.tail(-1), rtol=1e-12)


def test_noise_of_scale_0_is_none_and_shapes_are_kept():
    source = NoiseSource.seeded(1)
    assert not source.geometric(0.0, (2, 3)).any()
    assert source.geometric(1.0, (5, 7)).shape == (5, 7)
    assert source.geometric(1.0, 0).size == 0


# The mechanism ------------------------------------------------------------------------------------------------------


def test_the_winner_has_the_exact_law_ties_included():
    scores, scale, trials = [2, 0, 2, 1], 1.3, 200_000
    expected = exact_law(scores, scale)
    assert expected.sum() == pytest.approx(1.0)
    won = noisy_max(np.tile(np.array(scores), (trials, 1)), scale, NoiseSource.seeded(5))
    assert stats.chisquare(np.bincount(won, minlength=4), trials * expected).pvalue > 1e-3
    assert stats.chisquare(np.bincount(won, minlength=4), trials * exact_law(scores, 1.1 * scale)).pvalue < 1e-6


def test_no_two_neighbouring_scores_are_told_apart_by_more_than_epsilon():
    """All scores in 0..3 of three candidates, and all neighbours within a range of 2: by exact probabilities."""
    span, epsilon = 2, 0.7
    scale = noisy_max_scale("x", span, epsilon)
    law = {u: exact_law(list(u), scale) for u in itertools.product(range(4), repeat=3)}
    worst = 0.0
    for u, v in itertools.product(law, repeat=2):
        moved = np.subtract(u, v)
        if np.ptp(moved) <= span:
            worst = max(worst, float(np.abs(np.log(law[u] / law[v])).max()))
    assert worst <= epsilon * (1 + 1e-9)
    assert worst > 0.95 * epsilon  # and no scale below would do
    too_far = np.log(exact_law([3, 0, 0], scale) / exact_law([0, 0, 0], scale))
    assert np.abs(too_far).max() > epsilon


def test_its_ledger_line_costs_epsilon_per_use():
    entry = noisy_max_entry("splits", 6.0, noisy_max_scale("splits", 6.0, 0.5), uses=3)
    assert entry.cost == pytest.approx(1.5, rel=1e-8)
    assert entry.cost <= 1.5
    assert entry.rho == pytest.approx(3 * 0.5**2 / 2, rel=1e-8)
    assert noisy_max_entry("splits", 6.0, 0.0).cost == math.inf


def test_what_are_no_scores_is_refused():
    with pytest.raises(ValueError, match="64-bit integers"):
        noisy_max(np.array([0.5, 1.0]), 1.0, NoiseSource.seeded(0))
    with pytest.raises(ValueError, match="64-bit integers"):
        noisy_max(np.empty((3, 0), dtype=np.int64), 1.0, NoiseSource.seeded(0))


# Splits -------------------------------------------------------------------------------------------------------------

#: After a bin of a column; or one bin of it alone.
COLUMNS, THRESHOLDS = np.array([0, 0, 1, 0, 0, 0]), np.array([0, 1, 0, *alone(np.arange(3))])
#: (bin of the first column, bin of the second, action)
STEPS = tuple(itertools.product(range(3), range(2), range(2)))


def scored(rows, nodes=1, score=split_scores):
    bins = np.array([row[:2] for row in rows], dtype=np.uint8).reshape(-1, 2)
    action = np.array([row[2] for row in rows], dtype=np.int64)
    node = bins[:, 0].astype(np.int64) if nodes > 1 else np.zeros(len(rows), dtype=np.int64)
    return score(bins, action, node, nodes, COLUMNS, THRESHOLDS)


def gini_scores(bins, action, node, nodes, columns, thresholds):
    """Σ n_a²/n, which the design started from."""
    found = np.zeros((nodes, columns.size))
    for k, (c, t) in enumerate(zip(columns, thresholds, strict=True)):
        for v, side in itertools.product(range(nodes), (0, 1)):
            here = action[(node == v) & (to_the_right(bins[:, c], t) == side)]
            found[v, k] += (np.bincount(here) ** 2).sum() / max(len(here), 1)
    return found


def people(steps=2):
    return itertools.chain.from_iterable(itertools.combinations_with_replacement(STEPS, k) for k in range(steps + 1))


def others(number, size, seed=0):
    rng = np.random.default_rng(seed)
    return [[STEPS[i] for i in rng.integers(0, len(STEPS), size)] for _ in range(number)]


@pytest.mark.parametrize("nodes", [1, 3])
def test_one_person_moves_the_scores_of_a_level_against_each_other_by_her_steps(nodes):
    """Brute force: all pairs of persons with up to 2 steps, whoever else is there; all nodes of a level together."""
    H, worst = 2, 0
    everybody = list(people(H))
    for crowd in others(12, 12, seed=12):
        found = np.array([scored([*crowd, *person], nodes) for person in everybody])
        for one in found:
            moved = found - one
            worst = max(worst, int(np.ptp(moved, axis=2).sum(axis=1).max()))
    assert worst == 2 * H


def test_zero_out_moves_half_as_far_and_gini_scores_twice_as_far():
    H, gone, gini = 2, 0, 0.0
    everybody = list(people(H))
    for crowd in others(12, 12, seed=12):
        moved = np.array([scored([*crowd, *person]) for person in everybody]) - scored(crowd)
        gone = max(gone, int(np.ptp(moved, axis=2).max()))
    assert gone == H
    crowd = [(0, 0, 0)] * 40 + [(0, 1, 1)] * 40 + [(2, 0, 0)] * 40
    found = np.array([scored([*crowd, *person], score=gini_scores) for person in everybody])
    for one in found:
        gini = max(gini, float(np.ptp(found - one, axis=2).max()))
    assert gini > 2 * H + 0.5  # with the noise of the other scores, more than is paid for would leak


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_leaf_counts_move_by_what_is_charged(neighbours, noise):
    tree = BehaviourTree(2, 3, 0.1, 0.2, noise, neighbours, episodes_per_user=2)
    splits, leaves = tree.entries()
    k = 6 * (2 if neighbours == "replace" else 1)
    assert splits.sensitivity == k
    assert splits.cost == pytest.approx(0.2, rel=1e-8)
    assert leaves.cost == pytest.approx(0.2, rel=1e-8)
    counts = [np.eye(8, dtype=int)[list(rows)].sum(axis=0) for rows in itertools.product((0, 5), repeat=6)]
    if neighbours == "zero-out":
        counts = [*counts[:1], np.zeros(8)]
    moved = [a - b for a in counts for b in counts]
    norm = 1 if noise == "laplace" else 2
    assert max(np.linalg.norm(m, norm) for m in moved) == pytest.approx(leaves.sensitivity)


def test_a_tree_without_noise_finds_what_people_do():
    rng = np.random.default_rng(2)
    bins = rng.integers(0, 8, (4000, 2)).astype(np.uint8)
    rule = np.where(bins[:, 0] > 4, 2, np.where(bins[:, 1] > 2, 1, 0))
    action = np.where(rng.random(4000) < 0.5, rule, rng.integers(0, 3, 4000))
    candidates = np.repeat([0, 1], 7), np.tile(np.arange(7), 2)
    found = BehaviourTree(2, 1, math.inf, math.inf).release(bins, action, 3, candidates, NoiseSource.seeded(0))
    modes = found.counts.argmax(axis=1)[found.tree.leaves(bins)]
    assert (modes == rule).mean() == 1.0
    assert found.counts.sum() == 4000
    assert found.deviation == 0.0


def test_names_have_no_order():
    """What people do depends on one name in the middle of the list: one split finds it, where thresholds need two."""
    bins = np.random.default_rng(3).integers(0, 5, (3000, 1)).astype(np.uint8)
    action = (bins[:, 0] == 2).astype(np.int64)
    source = NoiseSource.seeded(0)
    for thresholds, right in ((np.arange(4), False), (alone(np.arange(5)), True)):
        candidates = np.zeros(thresholds.size, dtype=np.int64), thresholds
        found = BehaviourTree(1, 1, math.inf, math.inf).release(bins, action, 2, candidates, source)
        modes = found.counts.argmax(axis=1)[found.tree.leaves(bins)]
        assert bool((modes == action).all()) is right
    scores = split_scores(bins, action, np.zeros(3000, dtype=np.int64), 1, *candidates)
    for k, score in enumerate(scores[0]):
        sides = [np.bincount(action[(bins[:, 0] == k) == side]).max() for side in (False, True)]
        assert score == sum(sides)


def test_every_leaf_count_carries_noise_and_splits_do_not_depend_on_which_bins_occur():
    """Bins that nobody has are candidates like the others: here all but one, and each wins now and then."""
    candidates = np.zeros(5, dtype=np.int64), np.arange(5)
    tree = BehaviourTree(1, 1, 0.5, 0.5)
    won, zero = set(), 0
    for seed in range(200):
        bins = np.zeros((3, 1), dtype=np.uint8)
        found = tree.release(bins, np.zeros(3, dtype=np.int64), 2, candidates, NoiseSource.seeded(seed))
        won.add(int(found.tree.thresholds[0]))
        zero += int((found.counts == 0).sum())
    assert won == set(range(5))
    assert zero < 200  # of 800: noise of scale 4 is 0 in one of eight
