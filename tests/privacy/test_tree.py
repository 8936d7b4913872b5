"""The tree's nodes, by definition; its noise, block by block; its variants, against their algebra."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.people.counts import Counts, CountSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.tree import (
    FRACTION_BITS,
    WEIGHT_BITS,
    Layout,
    Tree,
    count_below,
    honaker_weight,
    mixed,
    node_variances,
    smooth_layout,
)
from oracles_streams import (
    RecordedNoise,
    TaggedNoise,
    nodes_of_prefix,
    random_episodes,
    stacked,
    users_of_node,
)

SPEC = CountSpec(2, 2, 2, pooled=True, grid=0.25)


def binary_layout(num_prefixes: int) -> Layout:
    return Tree(Budget.pure(1.0), publish_final=True).layout(num_prefixes)


LAYOUTS = [binary_layout(T) for T in (*range(1, 20), 31, 32, 33, 63, 64)]
LAYOUTS += [smooth_layout(T, gaussian) for T in (*range(1, 40), 97) for gaussian in (False, True)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"T={layout.num_prefixes},o={layout.ones}")
def test_every_prefix_is_a_disjoint_union_of_nodes_and_a_user_enters_as_many_as_charged(layout):
    T = layout.num_prefixes
    released: set[tuple[int, int]] = set()
    for prefix in range(1, T + 1):
        nodes = nodes_of_prefix(layout, prefix)
        members = [user for node in nodes for user in users_of_node(layout, *node)]
        assert sorted(members) == list(range(1, prefix + 1))
        assert all(users_of_node(layout, *node) for node in nodes)  # no noise on an empty node
        released |= nodes
    entered = [sum(user in users_of_node(layout, *node) for node in released) for user in range(1, T + 1)]
    assert max(entered) == layout.nodes_per_user  # enough, and not more than needed
    assert nodes_of_prefix(layout, 0) == set()
    labels = [layout.label(prefix) for prefix in range(T + 1)]
    assert labels == sorted(set(labels))
    assert max(labels) < 2**layout.bits
    tally: dict[int, int] = {}
    for prefix in range(1, T + 1):
        size = len(nodes_of_prefix(layout, prefix))
        tally[size] = tally.get(size, 0) + 1
    assert layout.histogram() == tally


def test_f2_levels_of_the_papers_setting():
    assert Tree(Budget.pure(1.0)).layout(20_000).nodes_per_user == 15
    for m in range(1, 12):  # K = 2^m: a release after the last episode needs one more level
        assert Tree(Budget.pure(1.0)).layout(2**m).nodes_per_user == m
        assert Tree(Budget.pure(1.0), publish_final=True).layout(2**m).nodes_per_user == m + 1


def test_smooth_shapes_are_the_best_and_match_known_ones():
    laplace, gaussian = smooth_layout(19_999, False), smooth_layout(19_999, True)
    assert (laplace.bits, laplace.ones) == (28, 24)
    assert (gaussian.nodes_per_user * gaussian.ones, gaussian.bits) == (72, 17)
    binary = 15 * math.sqrt(14), math.sqrt(15 * 14)
    assert 4 * math.sqrt(24) / binary[0] == pytest.approx(0.349, abs=5e-4)
    assert math.sqrt(72) / binary[1] == pytest.approx(0.586, abs=5e-4)
    for T in (1, 5, 37, 1000, 4321):
        for is_gaussian in (False, True):
            chosen = smooth_layout(T, is_gaussian)
            assert chosen.ones is not None

            def cost(z: int, o: int, is_gaussian: bool = is_gaussian) -> int:
                return z * o if is_gaussian else z * z * o

            best = min(
                cost(n - o, o)
                for o in range(1, min(T, 120) + 1)
                for n in range(o + 1, o + 15)
                if math.comb(n, o) >= T + 1
            )
            assert cost(chosen.nodes_per_user, chosen.ones) == best


@given(st.integers(0, 5000), st.integers(0, 13))
def test_numbers_with_so_many_ones_are_counted(limit, ones):
    assert count_below(limit, ones) == sum(n.bit_count() == ones for n in range(limit))


@given(st.integers(1, 400), st.booleans(), st.data())
def test_labels_have_the_stated_ones_in_increasing_order(num_prefixes, gaussian, data):
    layout = smooth_layout(num_prefixes, gaussian)
    t = data.draw(st.integers(0, num_prefixes - 1))
    assert layout.label(t).bit_count() == layout.ones
    assert layout.label(t) < layout.label(t + 1)


@pytest.mark.parametrize("variant", ["binary", "smooth"])
@pytest.mark.parametrize("seed", range(4))
def test_a_release_holds_exactly_the_blocks_of_its_nodes(variant, seed):
    """Tags 2ⁿ tell which blocks a release holds: the same node has the same block whenever it is used."""
    K = 48
    noise = TaggedNoise()
    tree = Tree(Budget.pure(1.0), variant=variant, publish_final=True)
    stream = tree.open(SPEC, K, noise)
    layout = tree.layout(K)
    users = random_episodes(SPEC, K)
    rng = np.random.default_rng(seed)
    block_of: dict[tuple[int, int], int] = {}
    t = 0
    while t < K:
        step = int(rng.integers(1, 4 if seed else 2))
        step = min(step, K - t)
        for user in users[t : t + step]:
            stream.add(user)
        t += step
        release = stream.release()
        exact = Counts.of(stacked(users[:t]), SPEC)
        tags = (release.visits - exact.visits).astype(np.int64)
        assert (release.transitions - exact.transitions == tags[0, 0, 0]).all()  # every counter has its noise
        assert (tags == tags[0, 0, 0]).all()
        assert ((release.reward_sums / SPEC.grid - exact.reward_sums) == tags[0, 0, 0]).all()
        held = {n for n in range(62) if int(tags[0, 0, 0]) >> n & 1}
        nodes = nodes_of_prefix(layout, t)
        known = {block_of[node] for node in nodes if node in block_of}
        assert known <= held
        fresh = sorted(held - known)
        unknown = sorted(nodes - set(block_of))
        assert len(fresh) == len(unknown)
        assert not set(fresh) & set(block_of.values())
        block_of.update(zip(unknown, fresh, strict=True))
        assert len(stream._mechanism.nodes) == len(nodes)  # memory: the nodes in use and no others


def test_memory_and_draws_stay_small():
    K = 512
    for variant, most in (("binary", 9), ("smooth", smooth_layout(K - 1, False).ones)):
        noise = RecordedNoise(NoiseSource.seeded(0))
        stream = Tree(Budget.pure(1.0), variant=variant).open(SPEC, K, noise)
        for user in random_episodes(SPEC, K - 1):
            stream.add(user)
            stream.release()
            assert len(stream._mechanism.nodes) <= most
        blocks = sum(block.size for _, block in noise.drawn) / stream._mechanism.noise.size
        assert blocks - len(stream._mechanism.noise._store) == K - 1  # one new node per episode
        assert blocks < K - 1 + stream._mechanism.noise._ahead


def test_constant_noise_has_equally_many_noises_in_every_release():
    K, L = 9, 4
    noise = TaggedNoise()
    stream = Tree(Budget.pure(1.0), constant_noise=True, publish_final=True).open(SPEC, K, noise)
    seen = set()
    for t, user in enumerate([None, *random_episodes(SPEC, K)]):
        if user is not None:
            stream.add(user)
        release = stream.release()
        tag = int((release.visits - stream._sums.spec.split(stream._sums.flat)[0])[0, 0, 0])
        assert tag.bit_count() == L
        assert stream.release() is release
        if t.bit_count() < L:
            assert tag not in seen  # padding is fresh
        seen.add(tag)
        assert release.deviations.visits == pytest.approx(math.sqrt(L) * stream._families[0].deviation)


# Honaker ----------------------------------------------------------------------------------------------------------


def test_honaker_weights_are_those_of_least_variance():
    """Generalised least squares over a complete subtree: own value and all values below it."""
    for level, variance in enumerate(node_variances(7)):
        leaves = 2**level
        rows = [
            [1.0 if start <= leaf < start + 2**i else 0.0 for leaf in range(leaves)]
            for i in range(level + 1)
            for start in range(0, leaves, 2**i)
        ]
        X = np.array(rows)
        ones = np.ones(leaves)
        best = float(ones @ np.linalg.solve(X.T @ X, ones))
        assert best == pytest.approx(2**level / (2 ** (level + 1) - 1))
        assert best <= variance + 1e-12
        assert variance == pytest.approx(best, rel=1e-6)
        assert honaker_weight(level) / 2**WEIGHT_BITS == pytest.approx(best, abs=2.0**-WEIGHT_BITS)


def test_honaker_release_is_a_function_of_the_noisy_nodes():
    """Recompute it from y = sum + noise of every dyadic node, never from the sums themselves."""
    K = 13
    noise = RecordedNoise(NoiseSource.seeded(3))
    stream = Tree(Budget.pure(2.0), variant="honaker", publish_final=True).open(SPEC, K, noise)
    users = random_episodes(SPEC, K)
    flat = [np.concatenate([t.reshape(-1) for _, t in Counts.of(u, SPEC).tables()]) for u in users]
    stack: list[tuple[int, np.ndarray, np.ndarray]] = []  # level, sum of the users, estimate from noisy values
    taken, runs, ahead = 0, len(stream._mechanism.noise._runs), stream._mechanism.noise._ahead

    def draw() -> np.ndarray:
        nonlocal taken
        call, row = divmod(taken, ahead)
        taken += 1
        return np.concatenate([drawn[row] for _, drawn in noise.drawn[call * runs : (call + 1) * runs]])

    for t, user in enumerate(users, start=1):
        stream.add(user)
        if t in (2, 3, 7):  # jumps
            continue
        release = stream.release()
        while sum(2**level for level, _, _ in stack) < t:
            index = sum(2**level for level, _, _ in stack)
            node = (0, flat[index], (flat[index] + draw()) << FRACTION_BITS)
            while stack and stack[-1][0] == node[0]:
                level, left_sum, left = stack.pop()
                total = left_sum + node[1]
                node = (level + 1, total, mixed(level + 1, (total + draw()) << FRACTION_BITS, left + node[2]))
            stack.append(node)
        expected = sum(estimate for _, _, estimate in stack) * 2.0**-FRACTION_BITS
        found = np.concatenate(
            [release.visits.reshape(-1), release.transitions.reshape(-1), release.reward_sums.reshape(-1) / SPEC.grid]
        )
        assert (found == expected).all()
    assert taken == len(noise.drawn) // runs * ahead - len(stream._mechanism.noise._store)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(-(2**30), 2**30), st.integers(1, 20))
def test_mixing_commutes_with_adding_whole_sums(own, children, total, level):
    """Why integer arithmetic: estimate(sum + noise) = sum + estimate(noise), whichever way it is computed."""
    shift = total << FRACTION_BITS
    a = mixed(level, np.array([own + shift]), np.array([children + shift]))
    b = mixed(level, np.array([own]), np.array([children])) + shift
    assert a == b
    exact = Fraction(
        honaker_weight(level) * own + (2**WEIGHT_BITS - honaker_weight(level)) * children, 2**WEIGHT_BITS
    )
    assert abs(Fraction(int(b[0]) - shift) - exact) <= Fraction(1, 2)


def test_honaker_is_quieter_than_the_binary_tree_at_the_same_budget():
    K = 256
    spec = CountSpec(3, 2, 4, pooled=False, grid=2.0**-8)
    worst = {}
    for variant in ("binary", "honaker", "smooth"):
        stream = Tree(Budget.pure(1.0), variant=variant).open(spec, K, NoiseSource.seeded(0))
        stream.add(stacked(random_episodes(spec, K - 1)))
        release = stream.release()
        error = np.abs(release.transitions - Counts.of(stacked(random_episodes(spec, K - 1)), spec).transitions)
        worst[variant] = release.widths.transitions
        assert error.std() > 0
        assert error.max() <= release.widths.transitions
    assert worst["smooth"] < worst["honaker"] < worst["binary"]


# Limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 4, 7, 8])
@pytest.mark.parametrize("variant", ["binary", "honaker", "smooth"])
def test_a_release_after_the_last_episode_must_have_been_budgeted(K, variant):
    noise = TaggedNoise()
    stream = Tree(Budget.pure(1.0), variant=variant).open(SPEC, K, noise)
    users = random_episodes(SPEC, K)
    for user in users[:-1]:
        stream.add(user)
        stream.release()
    drawn = dict(noise.draws)
    stream.add(users[-1])
    with pytest.raises(ValueError, match="publish_final=True"):
        stream.release()
    assert noise.draws == drawn
    final = Tree(Budget.pure(1.0), variant=variant, publish_final=True).open(SPEC, K, NoiseSource.seeded(0))
    for user in users:
        final.add(user)
        final.release()
    assert final.release().num_episodes == K


def test_before_the_first_user_the_release_is_zero_and_free():
    noise = TaggedNoise()
    release = Tree(Budget.pure(1.0)).open(SPEC, 8, noise).release()
    assert not noise.draws
    assert not release.visits.any()
    assert release.deviations.visits == 0.0


def test_printed_calibration_reports_its_true_guarantee():
    K, H = 20_000, 20
    spec = CountSpec.for_episodes(6, 2, H, False, K)
    for neighbours, factor in (("replace", 2.0), ("zero-out", 1.0)):
        paper = Tree(Budget.pure(1.0), neighbours, calibration="paper").open(spec, K, NoiseSource.seeded(0))
        assert paper.ledger[0].scale == pytest.approx(3 * H * math.log2(K))
        assert paper.guarantee.epsilon == pytest.approx(factor * 15 / math.log2(K), rel=1e-9)
    exact_base = Tree(Budget.pure(1.0), calibration="paper").open(
        CountSpec.for_episodes(2, 2, 3, False, 1024), 1024, NoiseSource.seeded(0)
    )
    assert exact_base.guarantee.epsilon == pytest.approx(2.0, rel=1e-9)  # K = 2^m: only the factor 2 is missing


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"variant": "ternary"}, "variant"),
        ({"calibration": "mine"}, "calibration"),
        ({"neighbours": "add"}, "neighbours"),
        ({"mechanism": "cauchy"}, "mechanism"),
        ({"beta": 0.0}, "beta"),
        ({"shares": (1.0, 1.0)}, "shares"),
        ({"shares": (0.0, 1.0, 1.0)}, "shares"),
        ({"shares": {"visits": 1.0, "transitions": 1.0, "losses": 1.0}}, "losses"),
        ({"episodes_per_user": 0}, "episodes_per_user"),
        ({"constant_noise": True, "variant": "smooth"}, "constant_noise"),
        ({"calibration": "paper", "variant": "honaker"}, "binary"),
    ],
)
def test_meaningless_settings_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        Tree(Budget.pure(1.0), **change).open(SPEC, 4, NoiseSource.seeded(0))


def test_honaker_refuses_a_grid_that_leaves_no_room():
    spec = CountSpec(2, 2, 2, pooled=True, grid=2.0**-40)
    with pytest.raises(ValueError, match="coarser"):
        Tree(Budget.pure(1.0), variant="honaker").open(spec, 1000, NoiseSource.seeded(0))


def test_a_tree_over_few_users_with_infinite_budget_is_exact():
    users = random_episodes(SPEC, 7)
    for variant in ("binary", "honaker", "smooth"):
        stream = Tree(Budget.pure(math.inf), variant=variant).open(SPEC, 8, NoiseSource.seeded(0))
        exact = Exact().open(SPEC, 8, NoiseSource.seeded(0))
        for user in users:
            stream.add(user)
            exact.add(user)
            assert (stream.release().reward_sums == exact.release().reward_sums).all()
