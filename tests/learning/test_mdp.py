from __future__ import annotations

import numpy as np
import pytest

from discreet.mdp import FiniteMDP
from oracles import random_mdp_arrays


def arrays(stages=1, S=3, A=2, H=4):
    P, r = random_mdp_arrays(np.random.default_rng(0), stages, S, A)
    return {"transitions": P, "rewards": r, "initial": np.eye(S)[0], "horizon": H}


def test_arrays_are_copied_and_read_only():
    given = arrays()
    mdp = FiniteMDP(**given)
    given["rewards"][0, 0, 0] = 7.0
    assert mdp.rewards[0, 0, 0] != 7.0
    with pytest.raises(ValueError, match="read-only"):
        mdp.rewards[0, 0, 0] = 1.0


def test_rows_within_rounding_are_rescaled_to_sum_to_one():
    given = arrays()
    given["transitions"] = given["transitions"] * (1 + 5e-10)
    assert np.allclose(FiniteMDP(**given).transitions.sum(-1), 1.0, atol=1e-15, rtol=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["transitions"].__setitem__((0, 1, 1), [0.5, 0.6, 0.0]), r"transitions\[0, 1, 1\] sums to 1.1"),
        (lambda m: m["transitions"].__setitem__((0, 2, 0), [1.5, -0.5, 0.0]), r"transitions\[0, 2, 0, 1\] is -0.5"),
        (lambda m: m["transitions"].__setitem__((0, 0, 1, 2), np.nan), r"transitions\[0, 0, 1, 2\] is nan"),
        (lambda m: m["rewards"].__setitem__((0, 2, 1), np.inf), r"rewards\[0, 2, 1\] is inf"),
        (lambda m: m.update(initial=np.array([0.5, 0.4, 0.0])), "sums to 0.9"),
        (lambda m: m.update(initial=np.ones(2) / 2), r"initial has shape \(2,\); expected \(3,\)"),
        (
            lambda m: m.update(rewards=np.zeros((1, 3, 3))),
            r"shape \(1, 3, 3\); expected \(S, A\) = \(3, 2\)",
        ),
        (lambda m: m.update(rewards=np.zeros((3, 2, 3))), r"or one such table per step, \(4, 3, 2\)"),
        (lambda m: m.update(transitions=np.zeros((1, 3, 2, 4))), r"expected \(G, S, A, S\)"),
        (lambda m: m.update(transitions=np.zeros((2, 3, 3))), r"\(A, S, S\) becomes that by .transpose\(1, 0, 2\)"),
        (lambda m: m.update(horizon=0), "horizon is 0; it must be a whole number of at least 1"),
        (lambda m: m.update(horizon=2.5), "horizon is 2.5"),
    ],
)
def test_bad_input_is_named(change, words):
    given = arrays()
    change(given)
    with pytest.raises(ValueError, match=words):
        FiniteMDP(**given)


@pytest.mark.parametrize("axis", [False, True])
def test_what_is_the_same_at_all_steps_may_be_said_once(axis):
    """Staged transitions with rewards that are not, and the other way round: the whole is staged."""
    staged, same = arrays(stages=4), arrays()
    once = same["rewards"] if axis else same["rewards"][0]
    mixed = FiniteMDP(staged["transitions"], once, staged["initial"], 4)
    assert not mixed.stationary
    assert mixed == FiniteMDP(staged["transitions"], np.tile(same["rewards"], (4, 1, 1)), staged["initial"], 4)
    once = same["transitions"] if axis else same["transitions"][0]
    mixed = FiniteMDP(once, staged["rewards"], staged["initial"], 4)
    assert not mixed.stationary
    assert mixed == FiniteMDP(np.tile(same["transitions"], (4, 1, 1, 1)), staged["rewards"], staged["initial"], 4)


def test_a_model_is_shown_in_one_line():
    given = {**arrays(), "rewards": np.array([[[0.0, -0.8], [-1.0, -1.8], [-5.0, -5.8]]])}
    words = "3 states, 2 actions, horizon 4, mean rewards from -5.8 to 0"
    assert repr(FiniteMDP(**given, name="clinic")) == f"FiniteMDP('clinic', {words})"
    assert repr(FiniteMDP(**given, name="clinic").staged()) == f"FiniteMDP('clinic', staged, {words})"


def test_stages_must_be_one_or_the_horizon():
    with pytest.raises(ValueError, match=r"3 stages; expected 1 \(stationary\) or the horizon, 4"):
        FiniteMDP(**arrays(stages=3))


def test_staging_a_stationary_process_repeats_its_model():
    mdp = FiniteMDP(**arrays())
    staged = mdp.staged()
    assert mdp.stationary
    assert not staged.stationary
    assert staged.transitions.shape == (4, 3, 2, 3)
    assert (staged.transitions[3] == mdp.transitions[0]).all()
    assert staged.staged() is staged
