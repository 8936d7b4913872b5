"""Gymnasium in both directions: learn on its environments, and offer a `FiniteMDP` as one of them.

Not imported by `discreet.envs` itself, because Gymnasium takes long to load.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import whole
from discreet.mdp import FiniteMDP, Floats, Ints, distributions
from discreet.people.episodes import Episodes
from discreet.releases.reports import Targets

AnyEnv = gymnasium.Env[Any, Any]


def open_env(env: AnyEnv | str, horizon: int) -> AnyEnv:
    """`env` itself, or the registered environment of that id with its time limit moved to `horizon`."""
    whole("horizon", horizon, 1)
    if isinstance(env, gymnasium.Env):
        return env
    try:
        return gymnasium.make(env, max_episode_steps=horizon, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as problem:
        raise ValueError(f"Gymnasium cannot make {env!r}: {problem}") from problem


def _label(env: AnyEnv) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _discrete(env: AnyEnv) -> tuple[Discrete[Any], Discrete[Any]]:
    """The observation and action spaces, both finite and one-dimensional."""
    observations, actions = env.observation_space, env.action_space
    for role, space in (("observation", observations), ("action", actions)):
        if not isinstance(space, Discrete):
            raise ValueError(
                f"{_label(env)} has the {role} space {space}; expected a Discrete space, as the learners are tabular "
                f"(discretise it with a wrapper)"
            )
    assert isinstance(observations, Discrete)
    assert isinstance(actions, Discrete)
    return observations, actions


def from_gymnasium(env: AnyEnv | str, horizon: int) -> FiniteMDP:
    """The exact model of a Gymnasium environment that publishes its table `P[s][a] = [(p, s', reward, done), …]`.

    Probabilities of repeated successors add up; rewards become expectations and keep their range, even beyond [0, 1].
    An episode that is done earns nothing more: where every final state already loops on itself without reward (as in
    FrozenLake) the states are Gymnasium's own; else an absorbing state is appended that every final move enters.
    """
    opened = open_env(env, horizon)
    observations, actions = _discrete(opened)
    S, A, first, base = int(observations.n), int(actions.n), int(observations.start), int(actions.start)
    table: Any = getattr(opened.unwrapped, "P", None)
    if table is None:
        raise ValueError(
            f"{_label(opened)} has no table `P` of transitions, P[s][a] = [(probability, s', reward, done), …], from "
            f"which regret could be computed; discreet.learn learns on it without one"
        )
    start = getattr(opened.unwrapped, "initial_state_distrib", None)
    if start is None:
        raise ValueError(
            f"{_label(opened)} does not say where episodes start; expected `initial_state_distrib`, one probability "
            f"per state, beside its table `P`"
        )
    entries = [
        (s, a, float(p), int(successor) - first, float(reward), bool(done))
        for s in range(S)
        for a in range(A)
        for p, successor, reward, done in table[s + first][a + base]
    ]
    P, r = np.zeros((S + 1, A, S + 1)), np.zeros((S + 1, A))
    P[S, :, S] = 1.0
    finals = {successor for _, _, p, successor, _, done in entries if done and p > 0}
    leaving = {s for s, _, p, successor, reward, _ in entries if p > 0 and (successor != s or reward != 0)}
    append = bool(finals & leaving)
    for s, a, p, successor, reward, done in entries:
        P[s, a, S if done and append else successor] += p
        r[s, a] += p * reward
    initial = np.append(np.asarray(start, dtype=np.float64), 0.0)
    keep = S + 1 if append else S
    return FiniteMDP(P[None, :keep, :, :keep], r[None, :keep], initial[:keep], horizon, _label(opened))


class GymnasiumSimulator:
    """Episodes of `horizon` steps from any Gymnasium environment with Discrete spaces, through `reset` and `step`.

    States are observations counted from 0 plus one absorbing state with index `num_states − 1` = S: an episode that
    terminates, or is truncated by the environment's own time limit, moves there, stays and earns nothing.
    """

    def __init__(self, env: AnyEnv | str, horizon: int) -> None:
        self.env = open_env(env, horizon)
        self.horizon = int(horizon)
        self._observations, self._actions = _discrete(self.env)
        self.num_states = int(self._observations.n) + 1
        self.num_actions = int(self._actions.n)
        self.name = _label(self.env)

    def rollout(
        self, policy: Any, num_episodes: int, rng: np.random.Generator, targets: Targets | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """States (n, H+1), actions (n, H) and rewards (n, H) of users who play `policy` (H, S+1, A), and from the
        step after their report on what the targets announce for it.

        Every episode draws one seed for `reset` and one uniform number per step, so that n episodes at once equal the
        same episodes drawn in portions.
        """
        H, S, A = self.horizon, self.num_states, self.num_actions
        n = whole("num_episodes", num_episodes, 0)
        if np.shape(policy) != (H, S, A):
            raise ValueError(
                f"policy has shape {np.shape(policy)}; expected {(H, S, A)}, with the absorbing state last"
            )
        tables = [np.cumsum(distributions("policy", policy), axis=-1)]
        wanted, reports = np.zeros((1, S, A), dtype=np.bool_), 1
        if targets is not None and targets.after is not None:
            tables.append(np.cumsum(distributions("policy", targets.after), axis=-1))
            wanted, reports = targets.steps(S, A), targets.left(S, A)
        for table in tables:
            table[..., -1] = 1.0
        states = np.full((n, H + 1), S - 1, dtype=np.int64)
        actions = np.zeros((n, H), dtype=np.int64)
        rewards = np.zeros((n, H))
        first, base = int(self._observations.start), int(self._actions.start)
        for i in range(n):
            observation, _ = self.env.reset(seed=int(rng.integers(2**31)))
            uniforms = rng.random(H)
            state, over, left = self._state(observation, first), False, reports
            for h in range(H):
                states[i, h] = state
                table = tables[0 if left > 0 else 1]
                action = int(np.searchsorted(table[h, state], uniforms[h], side="right"))
                actions[i, h] = action
                left -= int(wanted[min(h, wanted.shape[0] - 1), state, action])
                if over:
                    continue
                observation, reward, terminated, truncated, _ = self.env.step(action + base)
                rewards[i, h] = float(reward)
                over = bool(terminated or truncated)
                state = S - 1 if terminated or (truncated and h + 1 < H) else self._state(observation, first)
            states[i, H] = state
        return states, actions, rewards

    def _state(self, observation: Any, first: int) -> int:
        state = int(observation) - first
        if not 0 <= state < self.num_states - 1:
            raise ValueError(f"{self.name} gave the observation {observation}; expected one of {self._observations}")
        return state


class GymnasiumUsers:
    """Users of a Gymnasium environment, with their own randomness: a `Simulator` for `discreet.learn`."""

    def __init__(self, env: AnyEnv | str, horizon: int, seed: int | np.random.SeedSequence = 0) -> None:
        self._simulator, self._rng = GymnasiumSimulator(env, horizon), np.random.default_rng(seed)
        self.horizon = self._simulator.horizon
        self.num_states, self.num_actions = self._simulator.num_states, self._simulator.num_actions

    def rollout(self, policy: Floats, num_episodes: int, targets: Targets | None = None) -> Episodes:
        return Episodes(*self._simulator.rollout(policy, num_episodes, self._rng, targets))


class FiniteMDPEnv(gymnasium.Env[np.int64, np.int64]):
    """A `FiniteMDP` as a Gymnasium environment: observations are states, episodes are truncated at the horizon.

    The environment counts the steps of a staged MDP itself; the step is in `info["step"]`, not in the observation.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it as a plain class attribute

    def __init__(self, mdp: FiniteMDP, law: RewardLaw | None = None) -> None:
        self.mdp = mdp
        self.law = law if law is not None else RewardLaw("deterministic")
        self.law.check_means(mdp.rewards)
        self.observation_space = Discrete(mdp.num_states)
        self.action_space = Discrete(mdp.num_actions)
        self._transitions = np.cumsum(mdp.transitions, axis=-1)
        self._transitions[..., -1] = 1.0
        self._initial = np.cumsum(mdp.initial)
        self._initial[-1] = 1.0
        self._state = 0
        self._step: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = int(np.searchsorted(self._initial, self.np_random.random(), side="right"))
        self._step = 0
        return np.int64(self._state), {"step": 0}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        if self._step is None or self._step >= self.mdp.horizon:
            raise gymnasium.error.ResetNeeded("the episode is over or was never started; call reset() first")
        if not self.action_space.contains(action):
            raise ValueError(f"action is {action}; it must be a whole number in 0..{self.mdp.num_actions - 1}")
        cell = (min(self._step, self._transitions.shape[0] - 1), self._state, int(action))
        reward = float(self.law.sample(self.mdp.rewards[cell], self.np_random))
        self._state = int(np.searchsorted(self._transitions[cell], self.np_random.random(), side="right"))
        self._step += 1
        return np.int64(self._state), reward, False, self._step == self.mdp.horizon, {"step": self._step}
