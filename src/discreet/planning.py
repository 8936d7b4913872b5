"""Plans from models: validated, allocated, and handed to the compiled backups.

The compiled rows are vectorised and at least as fast as BLAS from 6 to 400 states (`make bench`), so one code
path serves every size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from discreet.kernels import planning as kernel
from discreet.mdp import FiniteMDP, Floats, Ints, frozen
from discreet.releases.counts import Model, PrivateCounts
from discreet.releases.reports import Targets


class Bonus(NamedTuple):
    """What is added to Q: fixed + per_std·Std_P(V). Infinity means "know nothing": Q at its bound."""

    fixed: Floats  # (G, S, A)
    per_std: Floats  # (G, S, A)


class Announcement(Protocol):
    """Public instructions to the next users (where to report, what to truncate): a function of releases only."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A policy and the values it was planned with (of the model it was planned in, not of the true MDP)."""

    policy: Floats  # (H, S, A)
    value: Floats  # (H+1, S)
    quality: Floats  # (H, S, A)
    num_episodes: int = 0  # users in the release it was planned from
    users: int | None = None  # how many should play it; None leaves it to the schedule
    announcement: Announcement | None = None  # what the server tells the next users in public
    actions: Ints | None = None  # (H, S), where the policy is deterministic

    def __post_init__(self) -> None:
        for name in ("policy", "value", "quality"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def __repr__(self) -> str:
        H, S, A = np.shape(self.policy)
        return f"{type(self).__name__}({H} steps, {S} states, {A} actions; from {self.num_episodes:,} users)"

    def told_by(self, announced: Plan) -> Plan:
        """This plan, as what precedes a release that another one, made earlier, had announced."""
        return self


class Estimator(Protocol):
    """What a learner believes after a release: a model and a bonus. Pure."""

    def __call__(self, release: PrivateCounts) -> tuple[Model, Bonus]: ...


Release = TypeVar("Release", contravariant=True)


class Agent(Protocol[Release]):
    """Configuration only; planning is pure: the same release and previous plan give the same plan."""

    def plan(self, release: Release, previous: Plan | None) -> Plan: ...


@lru_cache(maxsize=8)
def tie_order(shape: tuple[int, int, int], seed: int) -> Ints:
    """For every (h, s) a random order of the actions: which of equally good ones is taken."""
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.broadcast_to(np.arange(shape[2]), shape), axis=2)
    return frozen(order, np.int64)


def uniform_policy(shape: tuple[int, int, int]) -> Floats:
    """Every action with probability 1/A; shape (H, S, A)."""
    return np.full(shape, 1.0 / shape[2])


def possible_values(horizon: int, *rates: float) -> tuple[Floats, Floats]:
    """(H+1,) The least and the most that the steps from h on can pay somebody who is there: a reward in [0, 1] now,
    then rewards or one of the `rates` of places that are never left."""
    later = np.maximum(horizon - 1.0 - np.arange(horizon + 1), 0.0)
    first = np.arange(horizon + 1) < horizon
    return later * min(0.0, *rates, 0.0), first + later * max(1.0, *rates, 1.0)


#: A policy to follow that is none.
BE_GREEDY: Floats = np.empty((0, 0, 0))


def _backward(
    model: Model,
    horizon: int,
    bonus: Bonus | None,
    reward_range: tuple[float, float],
    policy: Floats | None = None,
    ceiling: Floats | None = None,
    tie_seed: int = 0,
) -> tuple[Floats, Floats, Ints]:
    """(quality, value, greedy actions) of one backward pass."""
    P, r, _ = model
    _, S, A, _ = P.shape
    shape = (horizon, S, A)
    fixed, per_std = bonus or Bonus(np.zeros_like(r), np.zeros_like(r))
    quality, value = np.empty(shape), np.empty((horizon + 1, S))
    actions = np.empty((horizon, S), dtype=np.int64)
    kernel.backward_induction(
        P,
        r,
        fixed,
        per_std,
        *reward_range,
        BE_GREEDY if policy is None else policy,
        np.full(shape, np.inf) if ceiling is None else ceiling,
        tie_order(shape, tie_seed),
        quality,
        value,
        actions,
        False,
    )
    return quality, value, actions


def greedy_plan(
    model: Model,
    horizon: int,
    bonus: Bonus | None = None,
    *,
    reward_range: tuple[float, float] = (0.0, 1.0),
    ceiling: Floats | None = None,
    tie_seed: int = 0,
    num_episodes: int = 0,
) -> Plan:
    """Q_h = clip(r + P·V_{h+1} + bonus, (H−h)·low, (H−h)·high), V_h = max_a Q_h, π_h = argmax_a Q_h.

    A positive bonus is optimism, a negative one pessimism. `ceiling` keeps Q below an earlier Q.
    Cost: O(H·S²·A).
    """
    quality, value, actions = _backward(model, horizon, bonus, reward_range, None, ceiling, tie_seed)
    policy = np.empty(quality.shape)
    kernel.one_hot(actions, policy)
    for array in (policy, value, quality, actions):
        array.setflags(write=False)
    return Plan(policy, value, quality, num_episodes, actions=actions)


def policy_values(
    model: Model,
    policy: Floats,
    bonus: Bonus | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> tuple[Floats, Floats]:
    """(value, quality) of a fixed policy under the same backup: V_h(s) = Σ_a π_h(a|s)·Q_h(s,a)."""
    quality, value, _ = _backward(model, policy.shape[0], bonus, reward_range, policy)
    return value, quality


UNBOUNDED = (-np.inf, np.inf)


def true_model(mdp: FiniteMDP) -> Model:
    return Model(mdp.transitions, mdp.rewards, np.full(mdp.rewards.shape, np.inf))


def optimal_plan(mdp: FiniteMDP) -> Plan:
    """Exact planning in a known MDP."""
    return greedy_plan(true_model(mdp), mdp.horizon, reward_range=UNBOUNDED)


def policy_value(mdp: FiniteMDP, policy: Floats | Ints, targets: Targets | None = None) -> float:
    """Exact expected return of a policy, (H, S, A) probabilities or (H, S) actions, from the initial states.

    With targets that announce a policy for after the report: of users who switch to it.
    """
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    if targets is not None and targets.after is not None:
        if policy.shape != (H, S, A):
            raise ValueError(f"the policy has shape {policy.shape}; expected {(H, S, A)}")
        values, _ = policy_values(true_model(mdp), targets.after, reward_range=UNBOUNDED)
        for _ in range(targets.left(S, A)):  # backwards from the last report
            afterwards, values = values, np.empty((H + 1, S))
            kernel.evaluate_switching(
                mdp.transitions,
                mdp.rewards,
                np.ascontiguousarray(policy, np.float64),
                targets.steps(S, A),
                afterwards,
                values,
            )
        return float(mdp.initial @ values[0])
    if policy.shape == (H, S):
        value = np.empty((H + 1, S))
        kernel.evaluate_actions(mdp.transitions, mdp.rewards, policy.astype(np.int64), value)
    elif policy.shape == (H, S, A):
        value, _ = policy_values(true_model(mdp), np.ascontiguousarray(policy, np.float64), reward_range=UNBOUNDED)
    else:
        raise ValueError(f"the policy has shape {policy.shape}; expected {(H, S, A)} or {(H, S)}")
    return float(mdp.initial @ value[0])


def occupancy(mdp: FiniteMDP, policy: Floats) -> Floats:
    """q(h,s,a) = P(s_h = s, a_h = a) under the policy; every stage sums to 1."""
    measure = np.zeros(policy.shape)
    kernel.occupancy(mdp.transitions, mdp.initial, np.ascontiguousarray(policy), measure)
    return measure
