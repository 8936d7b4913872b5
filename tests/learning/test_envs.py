"""The named environments: published values, exact definitions, random draws, and the registry."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.envs import ENVIRONMENTS, make, spec, tabular
from discreet.mdp import FiniteMDP


def values(mdp: FiniteMDP) -> tuple[float, float]:
    """V* and the uniform policy's value by plain backward induction."""
    best, uniform = np.zeros(mdp.num_states), np.zeros(mdp.num_states)
    for h in reversed(range(mdp.horizon)):
        g = min(h, mdp.transitions.shape[0] - 1)
        best = (mdp.rewards[g] + mdp.transitions[g] @ best).max(axis=1)
        uniform = (mdp.rewards[g] + mdp.transitions[g] @ uniform).mean(axis=1)
    return float(mdp.initial @ best), float(mdp.initial @ uniform)


@pytest.mark.parametrize(
    ("name", "sizes", "optimal", "random"),
    [
        ("riverswim", {}, 3.3973, 0.0438),
        ("riverswim", {"states": 3, "horizon": 6}, 1.3684, 0.1492),
        ("frozenlake", {}, 0.1991, 0.0124),
        ("two-rooms", {}, 4.8811, 0.0124),
        ("changeswim", {}, 6.0980, 1.7842),
        ("swapswim", {}, 2.6627, 0.1121),
        ("flipswim", {}, 1.3684, 0.1492),
    ],
)
def test_published_values(name: str, sizes: dict[str, int], optimal: float, random: float) -> None:
    best, uniform = values(make(name, **sizes))
    assert best == pytest.approx(optimal, abs=5e-5)
    assert uniform == pytest.approx(random, abs=5e-5)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_specification_describes_what_it_builds(name: str) -> None:
    chosen, mdp = spec(name), make(name)
    assert (mdp.num_states, mdp.num_actions, mdp.horizon) == (chosen.states, chosen.actions, chosen.horizon)
    assert mdp.name == name
    assert mdp.stationary is not chosen.staged
    assert chosen.law(mdp).range(mdp.rewards) is not None
    chosen.law(mdp).check_means(mdp.rewards)
    behaviour = chosen.behaviour(mdp)
    assert behaviour.shape == (mdp.horizon, mdp.num_states, mdp.num_actions)
    np.testing.assert_allclose(behaviour.sum(axis=-1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name, chosen in ENVIRONMENTS.items() if chosen.random])
def test_random_environments_are_functions_of_their_instance(name: str) -> None:
    np.testing.assert_array_equal(make(name, instance=3).transitions, make(name, instance=3).transitions)
    np.testing.assert_array_equal(make(name, instance=3).rewards, make(name, instance=3).rewards)
    others = [make(name, instance=i) for i in range(8)]
    assert any((m.transitions != others[0].transitions).any() for m in others)
    assert any((m.rewards != others[0].rewards).any() for m in others) or name == "lock"


# Swimming, chains, grids


def test_riverswim_moves() -> None:
    mdp = tabular.riverswim(4, 5)
    np.testing.assert_allclose(mdp.transitions[0, :, 0], [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    np.testing.assert_allclose(
        mdp.transitions[0, :, 1], [[0.4, 0.6, 0, 0], [0.05, 0.6, 0.35, 0], [0, 0.05, 0.6, 0.35], [0, 0, 0.4, 0.6]]
    )
    expected = np.zeros((4, 2))
    expected[0, 0], expected[3, 1] = 0.005, 1.0
    np.testing.assert_array_equal(mdp.rewards[0], expected)


def test_swimming_environments_change_at_their_steps() -> None:
    swim = tabular.riverswim(4, 12)
    swapped = make("swapswim")
    for h in range(12):
        order = slice(None) if h < 6 else slice(None, None, -1)
        np.testing.assert_allclose(swapped.transitions[h], swim.transitions[0][:, order])
        np.testing.assert_array_equal(swapped.rewards[h], swim.rewards[0][:, order])
    flipped, short = make("flipswim"), tabular.riverswim(3, 6)
    for h in range(6):
        order = slice(None) if h % 2 == 0 else slice(None, None, -1)
        np.testing.assert_allclose(flipped.transitions[h], short.transitions[0][:, order])
        np.testing.assert_array_equal(flipped.rewards[h], short.rewards[0][:, order])
    changed = make("changeswim")
    np.testing.assert_array_equal(changed.rewards[:, 0, 0], [0.005] * 6 + [1.0] * 6)
    np.testing.assert_allclose(changed.transitions, swim.staged().transitions)


@given(st.integers(2, 12))
@settings(max_examples=11, deadline=None)
def test_deep_sea_is_worth_one_to_those_who_always_go_right(size: int) -> None:
    best, uniform = values(tabular.deep_sea(size))
    assert best == pytest.approx(1.0, rel=1e-12)
    assert uniform == pytest.approx(2.0**-size + 0.005, rel=1e-12)


def test_chain_by_hand() -> None:
    # Two states, two steps. Step 2: state 0 earns max(.04, .16), state 1 earns max(.84, .36).
    # Step 1, state 0: walk .04 + .8·.84 + .2·.16; return .16 + .8·.16 + .2·.84.
    assert values(tabular.chain(2, 2))[0] == pytest.approx(0.04 + 0.8 * 0.84 + 0.2 * 0.16)


def test_two_rooms_have_one_door_and_perpendicular_slips() -> None:
    P = tabular.two_rooms().transitions[0]
    crossings = {(int(s), int(t)) for s, _, t in np.argwhere(P > 0) if (s < 8) != (t < 8)}
    assert crossings == {(7, 11), (11, 7)}
    # From cell 5 (row 1, column 1): right leads to 6, slips up to 1 and down into the wall.
    np.testing.assert_allclose(P[5, tabular.RIGHT, [6, 1, 5]], [0.9, 0.05, 0.05])
    np.testing.assert_allclose(P[0, tabular.LEFT, [0, 4]], [0.95, 0.05])
    np.testing.assert_allclose(P[7, tabular.DOWN, [11, 6, 7]], [0.9, 0.05, 0.05])


# Random models


def test_dirichlet_draws_kernel_then_cells_then_means() -> None:
    rng = np.random.default_rng(4)
    P = rng.dirichlet([0.3] * 5, (5, 3))
    cells = rng.choice(15, 3, replace=False)
    means = rng.uniform(0.3, 1, 3)
    mdp = make("dirichlet", instance=4)
    np.testing.assert_allclose(mdp.transitions[0], P, rtol=1e-14)
    assert len(set(cells.tolist())) == 3
    np.testing.assert_array_equal(mdp.rewards.ravel()[cells], means)
    assert (mdp.rewards > 0).sum() == 3


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_sparse_rows_have_at_most_their_support(num_states: int, support: int, instance: int) -> None:
    support = min(support, num_states)
    mdp = tabular.dirichlet(num_states, 2, 3, support=support, num_rewarded=1, instance=instance)
    assert ((mdp.transitions > 0).sum(axis=-1) <= support).all()
    if support == 1:
        np.testing.assert_allclose(mdp.transitions.max(axis=-1), 1.0, rtol=1e-13)


def test_sparse_supports_differ_between_rows_and_cover_all_states() -> None:
    positive = tabular.dirichlet(20, 3, 5, support=3).transitions[0] > 0
    assert positive.any(axis=(0, 1)).all()
    assert len({tuple(np.flatnonzero(row)) for row in positive.reshape(60, 20)}) > 30


def test_nonstationary_dirichlet_pays_one_cell_per_late_step() -> None:
    mdp = make("nonstationary-dirichlet", instance=2)
    np.testing.assert_array_equal(mdp.rewards.sum(axis=(1, 2)), [0, 0, 0, 0, 1, 1, 1, 1])
    assert set(np.unique(mdp.rewards)) == {0.0, 1.0}
    assert all((mdp.transitions[h] != mdp.transitions[0]).any() for h in range(1, 8))


def test_offline_logs_share_a_model_and_differ_in_behaviour() -> None:
    rng = np.random.default_rng(6)
    P = rng.dirichlet([0.3] * 5, (5, 4))
    kept, means = rng.random((5, 4)) < 0.4, rng.random((5, 4))
    plain, skewed = make("random-uniform", instance=6), make("random-skewed", instance=6)
    np.testing.assert_allclose(plain.transitions[0], P, rtol=1e-14)
    np.testing.assert_array_equal(plain.rewards[0], kept * means)
    np.testing.assert_array_equal(plain.transitions, skewed.transitions)
    assert (spec("random-uniform").behaviour(plain) == 0.25).all()
    np.testing.assert_allclose(spec("random-skewed").behaviour(skewed)[3, 2], [0.9, 0.1 / 3, 0.1 / 3, 0.1 / 3])
    np.testing.assert_allclose(spec("riverswim").behaviour(make("riverswim"))[0, 0], [0.2, 0.8])


def test_adversarial_coverage_rewards_the_dull_action() -> None:
    mdp = make("adversarial-coverage")
    np.testing.assert_allclose(mdp.transitions[0, 3, 0], [0.9, 0, 0, 0.1, 0])
    np.testing.assert_allclose(mdp.transitions[0, 2, 3], [0, 0.7, 0, 0, 0.3])
    np.testing.assert_allclose(mdp.transitions[0, 2, 4], [0, 0, 0.7, 0, 0.3])
    assert values(mdp)[0] == pytest.approx(0.5 * 10)
    np.testing.assert_allclose(spec("adversarial-coverage").behaviour(mdp)[0, 0], [0.93] + [0.01] * 7)


# Hard instances


@pytest.mark.parametrize("v", [0.3, 1.0])
def test_the_joint_hard_instance_has_its_gap_and_unit_moments(v: float) -> None:
    mdp = tabular.heavy_joint(12, 4, gap=0.07, v=v, instance=1)
    law = tabular.two_point_law(mdp)
    means = mdp.rewards[0, :10]
    ranks = np.sort(means, axis=1)
    np.testing.assert_allclose(ranks[:, -1] - ranks[:, -2], 0.07)
    best = means.argmax(axis=1)
    assert 0 in best
    assert len(set(best.tolist())) > 1
    np.testing.assert_allclose(mdp.transitions[0, :10, :, 10] * law.scale, means)
    np.testing.assert_allclose(mdp.transitions[0, :10, :, 10:].sum(axis=-1), 1.0)
    # E|r|^(1+v) = scale^(1+v)·P(+) is 3, 5 or 7 tenths.
    tenths = 10 * law.scale ** (1 + v) * mdp.transitions[0, :10, :, 10]
    np.testing.assert_allclose(tenths, np.round(tenths))
    assert set(np.round(tenths).ravel()) == {3.0, 5.0, 7.0}
    assert law.moment_bound(float(means.max()), v) == pytest.approx(0.7)
    np.testing.assert_allclose(mdp.initial, [0.1] * 10 + [0, 0])
    assert mdp.horizon == 1
    assert tabular.heavy_joint_gap(10, 4, 3000, 1.0, 1.0) == pytest.approx(0.1)


def test_the_local_hard_instance_is_a_tree_with_one_better_leaf() -> None:
    v = 0.5
    mdp = tabular.heavy_local(2, 3, success=0.6, v=v, instance=5)
    law = tabular.two_point_law(mdp)
    assert (mdp.num_states, mdp.horizon) == (1 + 3 + 9 + 2, 3)
    assert [len(states) for states in tabular.layers(mdp)] == [1, 3, 9]
    plus = mdp.transitions[0, 4:13, :, 13]
    assert sorted(np.round(plus.ravel(), 12)) == [0.3] * 26 + [0.6]
    np.testing.assert_allclose(law.scale ** (1 + v) * plus.max(), 1.0)
    assert values(mdp)[0] == pytest.approx(0.6 * law.scale)
    assert tabular.heavy_local_success(9, 3, 27, 0.5) == pytest.approx(27 / (32 * 27 * 0.25))


# Loop-free environments


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("layered", tabular.LAYERED), ("layered-large", tabular.LAYERED_LARGE), ("lock", tabular.LOCK)],
)
def test_layers_are_the_reachable_states(name: str, sizes: tuple[int, ...]) -> None:
    mdp = make(name, instance=7)
    assert tabular.layers(mdp) == tuple(tuple(range(size)) for size in sizes)
    for h, size in enumerate(sizes):
        assert (mdp.rewards[h, size:] == 1.0).all()  # a loss of 0 outside the layers


def test_layered_losses_mix_a_state_and_a_cell_part() -> None:
    losses = 1 - make("layered-large", instance=1).rewards[1:]
    # Two actions of a state share half of their loss, so they differ by at most one half.
    assert (np.ptp(losses, axis=-1) <= 0.5).all()
    assert losses.max() - losses.min() > 0.5


def test_lock_opens_only_for_the_combination() -> None:
    mdp = make("lock", instance=9)
    combination = np.random.default_rng(9).integers(3, size=5)
    good, loss = 1.0, 0.0
    for h in range(5):
        loss += 0.35 * good + 0.3 * (1 - good)
        assert mdp.transitions[h, 0].argmax(axis=0)[0] == combination[h]
        good = 0.95 * good + 0.02 * (1 - good)
    loss += 0.9 * (1 - good)
    assert values(mdp)[0] == pytest.approx(6 - loss, rel=1e-12)
    np.testing.assert_allclose(mdp.transitions[2, 1], [[0.02, 0.98]] * 3)


# The registry


@pytest.mark.parametrize(
    ("name", "nearest"), [("riverswin", "riverswim"), ("tworooms", "two-rooms"), ("Frozen-Lake", "frozenlake")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"unknown environment '{name}'; did you mean '{nearest}'"):
        make(name)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("two-rooms", {"states": 6}, "two-rooms always has states 16"),
        ("swapswim", {"horizon": 20}, "swapswim always has horizon 12"),
        ("frozenlake", {"states": 64}, "frozenlake always has states 16"),
        ("riverswim", {"states": 1}, "num_states is 1; it must be a whole number of at least 2"),
        ("riverswim", {"horizon": 0}, "horizon is 0; it must be a whole number of at least 1"),
        ("riverswim", {"horizon": 2.5}, "horizon is 2.5; it must be a whole number"),
        ("riverswim", {"instance": 2}, "riverswim is not random"),
        ("dirichlet", {"instance": -1}, "instance is -1; it must be a whole number of at least 0"),
        ("dirichlet", {"states": 0}, "states is 0; it must be a whole number of at least 1"),
        ("deep-sea", {"states": 4, "horizon": 5}, "states is 4 and horizon is 5"),
    ],
)
def test_wrong_sizes_are_refused(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, **options)


def test_sizes_that_agree_or_are_free_are_accepted() -> None:
    assert make("two-rooms", states=16, horizon=15).horizon == 15
    assert make("frozenlake", horizon=7).horizon == 7
    assert (make("deep-sea", states=4).horizon, make("deep-sea", horizon=4).num_states) == (4, 4)
    assert make("dirichlet", states=8, horizon=3).num_states == 8
    assert make("sparse-dirichlet", states=2).num_states == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tabular.chain(slip=1.5), "slip is 1.5"),
        (lambda: tabular.dirichlet(concentration=0.0), "concentration is 0.0"),
        (lambda: tabular.dirichlet(support=9), "support is 9; it must not exceed the number of states, 5"),
        (lambda: tabular.dirichlet(num_rewarded=99), "num_rewarded is 99; there are only 15"),
        (lambda: tabular.heavy_joint(gap=0.2), "gap is 0.2"),
        (lambda: tabular.heavy_local(success=0.8), "success is 0.8"),
        (lambda: tabular.layered((2, 3)), "the first layer must hold exactly one state"),
        (lambda: tabular.layered((1, 0)), "size of layer 1 is 0"),
        (lambda: tabular.favouring(tabular.riverswim(), 2, 0.5), "action is 2; it must lie in 0..1"),
        (lambda: tabular.favouring(tabular.riverswim(), 1, 1.5), "probability is 1.5"),
    ],
)
def test_wrong_parameters_are_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


def test_environments_load_without_gymnasium() -> None:
    code = "import sys, discreet.envs as e; e.make('riverswim'); sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
