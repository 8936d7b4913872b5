"""Linear MDPs: the process they describe, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.envs.linear import LinearMDP, normalised, two_state_behaviour, two_state_linear


def test_the_published_instance_entry_by_entry() -> None:
    horizon = 4
    rng = np.random.default_rng(3)
    alpha, r = rng.random((horizon, 2)), rng.random(horizon)
    mdp = two_state_linear(horizon, instance=3).to_finite()
    assert mdp.transitions.shape == (horizon, 2, 100, 2)
    np.testing.assert_array_equal(mdp.initial, [0.5, 0.5])
    for h in range(horizon):
        for s in range(2):
            for a in (0, 1, 2, 16, 63, 95, 99):
                delta = (s == 0) == (a == 0)
                digits = [int(digit) for digit in f"{a:08b}"]
                stay = alpha[h, 0] if delta else alpha[h, 1]
                weights = [r[h] / 8, 0, r[h] / 8, 0.5 - r[h] / 2, r[h] / 8, 0, r[h] / 8, 0]
                reward = sum(w * b for w, b in zip(weights, digits, strict=True))
                reward += r[h] / 2 if delta else 0.5 - r[h] / 2
                assert mdp.transitions[h, s, a, 0] == pytest.approx(stay, abs=1e-12)
                assert mdp.rewards[h, s, a] == pytest.approx(reward, abs=1e-12)
    assert mdp.rewards.min() >= 0
    assert mdp.rewards.max() <= 1


def test_features_are_scaled_by_the_root_of_seven() -> None:
    norms = np.linalg.norm(two_state_linear().features, axis=-1)
    popcounts = np.array([bin(a).count("1") for a in range(100)])
    np.testing.assert_allclose(norms, np.broadcast_to(np.sqrt((popcounts + 1) / 7), (2, 100)))
    assert norms.max() == pytest.approx(1.0)


def test_behaviour_of_the_published_instance() -> None:
    policy = two_state_behaviour(two_state_linear(3))
    assert policy.shape == (3, 2, 100)
    assert (policy[..., 0] == 0.6).all()
    np.testing.assert_allclose(policy[..., 1:], 0.4 / 99)


def _parts() -> dict[str, object]:
    """One-hot features: every tabular MDP is linear."""
    P = np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    return {
        "features": np.eye(4).reshape(2, 2, 4),
        "reward_weights": np.array([[0.1, 0.2, 0.3, 0.4]] * 3),
        "measures": np.stack([P] * 3),
        "initial": np.array([1.0, 0.0]),
        "horizon": 3,
    }


def test_one_hot_features_give_back_the_tables() -> None:
    linear = LinearMDP(**_parts())  # type: ignore[arg-type]
    mdp = linear.to_finite()
    assert linear.features.shape == (2, 2, 4)
    np.testing.assert_array_equal(mdp.transitions[2], [[[0.2, 0.8], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    np.testing.assert_array_equal(mdp.rewards[1], [[0.1, 0.2], [0.3, 0.4]])
    assert not linear.features.flags.writeable


def test_normalising_changes_the_features_and_not_the_process() -> None:
    parts = _parts()
    parts["features"] = 5 * parts["features"]  # type: ignore[operator]
    parts["measures"] = parts["measures"] / 5  # type: ignore[operator]
    parts["reward_weights"] = parts["reward_weights"] / 5  # type: ignore[operator]
    with pytest.raises(ValueError, match="longest feature vector has norm 5; it must not exceed 1"):
        LinearMDP(**parts)  # type: ignore[arg-type]
    linear = normalised(**parts)  # type: ignore[arg-type]
    np.testing.assert_allclose(linear.features, _parts()["features"])
    np.testing.assert_allclose(linear.to_finite().rewards[0], [[0.1, 0.2], [0.3, 0.4]])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("features", np.eye(4), r"features have shape \(4, 4\); expected \(S, A, d\)"),
        ("features", np.full((2, 2, 4), np.nan), "features hold NaN"),
        ("reward_weights", np.zeros((2, 4)), r"reward_weights have shape \(2, 4\); expected \(3, 4\)"),
        ("measures", np.full((3, 4, 2), 0.4), "sums to 0.8; it must sum to 1"),
        ("measures", np.stack([[[-0.5, 1.5]] * 4] * 3), "must not be negative"),
        ("initial", np.array([0.5, 0.4]), "row initial"),
        ("horizon", 0, "horizon is 0"),
    ],
)
def test_wrong_parts_are_refused(name: str, value: object, message: str) -> None:
    parts = _parts()
    parts[name] = value
    with pytest.raises(ValueError, match=message):
        LinearMDP(**parts)  # type: ignore[arg-type]
