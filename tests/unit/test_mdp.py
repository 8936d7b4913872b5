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
        (lambda m: m.update(rewards=np.zeros((1, 3, 3))), r"rewards have shape \(1, 3, 3\); expected \(1, 3, 2\)"),
        (lambda m: m.update(transitions=np.zeros((1, 3, 2, 4))), r"expected \(G, S, A, S\)"),
        (lambda m: m.update(horizon=0), "horizon is 0; it must be a whole number of at least 1"),
        (lambda m: m.update(horizon=2.5), "horizon is 2.5"),
    ],
)
def test_bad_input_is_named(change, words):
    given = arrays()
    change(given)
    with pytest.raises(ValueError, match=words):
        FiniteMDP(**given)


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
