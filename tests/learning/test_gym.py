"""Gymnasium in both directions: exact models, the step interface, and wrapped MDPs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import find_highest_version
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from scipy import stats

from discreet.envs import RewardLaw, make, tabular
from discreet.envs.gym import FiniteMDPEnv, GymnasiumSimulator, GymnasiumUsers, from_gymnasium
from discreet.envs.tabular import riverswim
from discreet.mdp import FiniteMDP
from discreet.runs.learning import learn


class Corridor(gymnasium.Env[int, int]):
    """Observations 5..7, actions −1 (stay or drift) and 0 (leave); leaving from 7 ends the episode."""

    observation_space = Discrete(3, start=5)
    action_space = Discrete(2, start=-1)
    initial_state_distrib = np.array([0.5, 0.5, 0.0])

    def __init__(self) -> None:
        self.P = {
            5: {-1: [(0.25, 5, 1.0, False), (0.25, 5, 3.0, False), (0.5, 6, 0.0, False)], 0: [(1.0, 6, 0.0, False)]},
            6: {-1: [(1.0, 5, 0.0, False)], 0: [(1.0, 7, 0.0, False)]},
            7: {-1: [(1.0, 6, 0.0, False)], 0: [(0.5, 7, -2.0, True), (0.5, 7, 0.0, False)]},
        }
        self.state = 5
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(3, p=self.initial_state_distrib)) + 5
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        row = self.P[self.state][action]
        _, self.state, reward, done = row[int(self.np_random.choice(len(row), p=[entry[0] for entry in row]))]
        return self.state, reward, done, False, {}


class Boxed(Corridor):
    observation_space = Box(0.0, 1.0, (2,))  # type: ignore[assignment]


class BoxedActions(Corridor):
    action_space = Box(0.0, 1.0, (2,))  # type: ignore[assignment]


def policy_for(simulator: GymnasiumSimulator) -> np.ndarray:
    return np.full((simulator.horizon, simulator.num_states, simulator.num_actions), 1 / simulator.num_actions)


# The exact model


def test_a_table_becomes_a_model_with_offsets_repeats_and_an_absorbing_end() -> None:
    mdp = from_gymnasium(Corridor(), 4)
    np.testing.assert_array_equal(mdp.transitions[0, 0], [[0.5, 0.5, 0, 0], [0, 1, 0, 0]])
    np.testing.assert_array_equal(mdp.transitions[0, 2], [[0, 1, 0, 0], [0, 0, 0.5, 0.5]])
    np.testing.assert_array_equal(mdp.transitions[0, 3], [[0, 0, 0, 1]] * 2)
    np.testing.assert_array_equal(mdp.rewards[0], [[1.0, 0], [0, 0], [0, -1.0], [0, 0]])
    np.testing.assert_array_equal(mdp.initial, [0.5, 0.5, 0, 0])
    assert mdp.horizon == 4


def test_final_states_that_already_absorb_are_kept() -> None:
    mdp = from_gymnasium("FrozenLake-v1", 20)
    assert mdp.num_states == 16
    for hole in (5, 7, 11, 12, 15):
        assert (mdp.transitions[0, hole, :, hole] == 1).all()
        assert (mdp.rewards[0, hole] == 0).all()
    assert mdp.rewards[0].sum() == pytest.approx(1.0)  # three actions in cell 14 reach the goal, 1/3 each
    # Slipping twice into the same wall adds up: in the corner "left" stays with probability 2/3.
    np.testing.assert_allclose(mdp.transitions[0, 0, 0, [0, 4]], [2 / 3, 1 / 3])


def test_taxi_and_cliff_get_an_absorbing_end_and_keep_their_rewards() -> None:
    newest = find_highest_version(None, "Taxi")  # 3 until Gymnasium 1.3 mended its rain, which is off
    cliff, taxi = make("gym:CliffWalking-v1", horizon=15), make(f"gym:Taxi-v{newest}", horizon=15)
    assert (cliff.num_states, taxi.num_states) == (49, 501)
    assert (cliff.rewards.min(), cliff.rewards.max()) == (-100.0, 0.0)
    assert (taxi.rewards.min(), taxi.rewards.max()) == (-10.0, 20.0)
    # The shortest safe path along the cliff takes 13 steps of −1 each, and then nothing more is lost.
    V = np.zeros(49)
    for _ in range(15):
        V = (cliff.rewards[0] + cliff.transitions[0] @ V).max(axis=1)
    assert cliff.initial @ V == -13.0


def test_the_model_agrees_with_the_steps() -> None:
    H, n = 4, 6000
    mdp, simulator = from_gymnasium(Corridor(), H), GymnasiumSimulator(Corridor(), H)
    policy = policy_for(simulator)
    policy[:] = [0.4, 0.6]
    states, _, rewards = simulator.rollout(policy, n, np.random.default_rng(8))
    occupancy, value = mdp.initial, 0.0
    for h in range(H + 1):
        counts = np.bincount(states[:, h], minlength=4)
        possible = occupancy > 0
        assert (counts[~possible] == 0).all()
        if possible.sum() > 1:
            assert stats.chisquare(counts[possible], n * occupancy[possible]).pvalue > 0.001
        if h < H:
            value += float(occupancy @ (mdp.rewards[0] @ [0.4, 0.6]))
            occupancy = np.einsum("s,a,sat->t", occupancy, [0.4, 0.6], mdp.transitions[0])
    totals = rewards.sum(axis=1)
    assert abs(totals.mean() - value) < 4 * totals.std() / np.sqrt(n)


# The step interface


def test_episodes_do_not_depend_on_the_portions_they_are_played_in() -> None:
    simulator = GymnasiumSimulator("FrozenLake-v1", 10)
    policy = policy_for(simulator)
    together = simulator.rollout(policy, 9, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    portions = [simulator.rollout(policy, size, rng) for size in (4, 0, 5)]
    for whole, *parts in zip(together, *portions, strict=True):
        np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_episodes_that_end_early_wait_in_the_absorbing_state() -> None:
    simulator = GymnasiumSimulator("FrozenLake-v1", 30)
    states, actions, rewards = simulator.rollout(policy_for(simulator), 300, np.random.default_rng(1))
    assert (states.shape, actions.shape, rewards.shape) == ((300, 31), (300, 30), (300, 30))
    assert (states.dtype, actions.dtype, rewards.dtype) == (np.int64, np.int64, np.float64)
    over = states == 16
    assert (over[:, 1:] >= over[:, :-1]).all()
    assert over[:, -1].mean() > 0.9
    assert (rewards[over[:, :-1]] == 0).all()
    assert not np.isin(states, [5, 7, 11, 12, 15]).any()  # a hole ends the episode, so nobody is seen in one
    assert rewards.sum() == (rewards == 1).sum() > 0


def test_actions_and_observations_are_counted_from_zero() -> None:
    env = Corridor()
    simulator = GymnasiumSimulator(env, 6)
    policy = policy_for(simulator)
    policy[:] = [0.0, 1.0]
    states, actions, _ = simulator.rollout(policy, 50, np.random.default_rng(0))
    assert (actions == 1).all()
    assert set(env.actions) == {0}
    assert set(np.unique(states)) == {0, 1, 2, 3}


def test_a_time_limit_ends_an_episode_and_the_horizon_does_not() -> None:
    walk = tabular.riverswim(3, 4)
    simulator = GymnasiumSimulator(FiniteMDPEnv(walk), 6)
    states, _, rewards = simulator.rollout(policy_for(simulator), 40, np.random.default_rng(0))
    assert (states[:, :4] < 3).all()
    assert (states[:, 4:] == 3).all()
    assert (rewards[:, 4:] == 0).all()
    states, _, _ = GymnasiumSimulator(FiniteMDPEnv(walk), 4).rollout(
        policy_for(GymnasiumSimulator(FiniteMDPEnv(walk), 4)), 40, np.random.default_rng(0)
    )
    assert (states < 3).all()


def test_a_registered_environment_gets_the_horizon_as_its_time_limit() -> None:
    simulator = GymnasiumSimulator("CliffWalking-v1", 250)
    policy = np.zeros((250, 49, 4))
    policy[..., 3] = 1.0  # bump into the left wall
    states, _, rewards = simulator.rollout(policy, 1, np.random.default_rng(0))
    assert (states == 36).all()
    assert (rewards == -1).all()


@pytest.mark.parametrize(
    ("env", "role"), [(Boxed, "observation"), (BoxedActions, "action")], ids=["observations", "actions"]
)
def test_box_spaces_are_refused(env: type[Corridor], role: str) -> None:
    for use in (from_gymnasium, GymnasiumSimulator):
        with pytest.raises(ValueError, match=rf"has the {role} space Box\(.*\); expected a Discrete space"):
            use(env(), 5)


def test_other_wrong_uses_are_refused() -> None:
    with pytest.raises(ValueError, match="has no table `P`"):
        from_gymnasium(FiniteMDPEnv(tabular.riverswim()), 5)
    with pytest.raises(ValueError, match="Gymnasium cannot make 'FrozenLak-v1'"):
        make("gym:FrozenLak-v1")
    with pytest.raises(ValueError, match="horizon is 0"):
        GymnasiumSimulator("FrozenLake-v1", 0)
    with pytest.raises(ValueError, match=r"the observation space Box\("):
        make("gym:CartPole-v1")
    simulator = GymnasiumSimulator("FrozenLake-v1", 3)
    with pytest.raises(ValueError, match=r"policy has shape \(3, 16, 4\); expected \(3, 17, 4\)"):
        simulator.rollout(np.full((3, 16, 4), 0.25), 1, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"sums to 0\.8"):
        simulator.rollout(np.full((3, 17, 4), 0.2), 1, np.random.default_rng(0))


# A wrapped MDP


@pytest.mark.parametrize("name", ["riverswim", "swapswim", "dirichlet"])
@pytest.mark.parametrize("kind", ["deterministic", "bernoulli", "gaussian"])
def test_a_wrapped_mdp_passes_gymnasiums_own_checker(name: str, kind: str) -> None:
    check_env(FiniteMDPEnv(make(name), RewardLaw(kind)), skip_render_check=True)


def test_a_wrapped_mdp_follows_its_model_at_every_stage() -> None:
    mdp, n = make("swapswim"), 3000
    env = FiniteMDPEnv(mdp, RewardLaw("bernoulli"))
    policy = tabular.favouring(mdp, 1, 0.8)
    simulator = GymnasiumSimulator(env, mdp.horizon)
    states, _, rewards = simulator.rollout(
        np.pad(policy, ((0, 0), (0, 1), (0, 0)), "edge"), n, np.random.default_rng(4)
    )
    occupancy, value = mdp.initial, 0.0
    for h in range(mdp.horizon):
        value += float((occupancy[:, None] * policy[h] * mdp.rewards[h]).sum())
        occupancy = np.einsum("s,sa,sat->t", occupancy, policy[h], mdp.transitions[h])
    assert stats.chisquare(np.bincount(states[:, -1], minlength=4), n * occupancy).pvalue > 0.001
    totals = rewards.sum(axis=1)
    assert abs(totals.mean() - value) < 4 * totals.std() / np.sqrt(n)


def test_a_wrapped_mdp_truncates_at_the_horizon_and_then_needs_a_reset() -> None:
    env = FiniteMDPEnv(tabular.riverswim(3, 2))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    state, info = env.reset(seed=0)
    assert (state, info) == (0, {"step": 0})
    assert env.step(np.int64(0)) == (0, 0.005, False, False, {"step": 1})
    assert env.step(np.int64(0)) == (0, 0.005, False, True, {"step": 2})
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    env.reset()
    with pytest.raises(ValueError, match="action is 2"):
        env.step(np.int64(2))


def test_a_wrapped_mdp_starts_from_its_initial_distribution() -> None:
    mdp = FiniteMDP(np.full((1, 3, 1, 3), 1 / 3), np.zeros((1, 3, 1)), np.array([0.2, 0.0, 0.8]), 1)
    env = FiniteMDPEnv(mdp)
    env.reset(seed=1)
    starts = np.bincount([env.reset()[0] for _ in range(2000)], minlength=3)
    assert starts[1] == 0
    assert stats.binomtest(int(starts[0]), 2000, 0.2).pvalue > 0.001


def test_a_law_that_cannot_have_the_means_is_refused() -> None:
    with pytest.raises(ValueError, match="the Bernoulli law needs means in"):
        FiniteMDPEnv(make("gym:CliffWalking-v1"), RewardLaw("bernoulli"))


def test_any_environment_with_discrete_spaces_can_be_learned_on():
    """RiverSwim behind `reset` and `step` only, no model to read: users earn far more than at random."""
    mdp = riverswim(3, 6)
    users = GymnasiumUsers(FiniteMDPEnv(mdp), 6, seed=1)
    learned = learn(users, "ucbvi-bernstein", 1500, pooled=True, seed=0)
    assert learned.mean_return > 1.0  # optimum 1.37, uniform policy 0.15
    assert learned.plan.policy.shape == (6, 4, 2)  # one absorbing state more
    assert learned.guarantee.model == "none"


def test_private_learning_on_an_environment_states_its_guarantee():
    users = GymnasiumUsers(FiniteMDPEnv(riverswim(3, 6)), 6, seed=1)
    learned = learn(users, "dp-ucbvi", 60, epsilon=2.0, pooled=True)
    assert learned.guarantee.epsilon == 2.0
    assert not any("simulation" in line for line in learned.guarantee.assumptions)
    with pytest.raises(ValueError, match="give it a budget"):
        learn(users, "dp-ucbvi", 60)
