"""Learning from users who can only be watched: no model, no regret, a plan and its guarantee."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discreet import catalog
from discreet.envs import registry
from discreet.mdp import FiniteMDP, Floats, Ints, distributions, frozen
from discreet.people.episodes import MDPSimulator, Simulator
from discreet.planning import Plan
from discreet.privacy.accounting import Guarantee, Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.problem import Moments, Problem, PublicStructure
from discreet.runs.experiment import TAILS, Experiment, Setting, built, public_facts, real
from discreet.runs.simulation import Clock, play, rollouts
from discreet.session import Epoch, Session


@dataclass(frozen=True, eq=False)
class Learned:
    """What learning on users without a model gives: a policy and its guarantee.

    Returns and clipped rewards are raw: they are for simulations and no part of what is private.
    """

    plan: Plan
    guarantee: Guarantee
    mean_return: float  # over all users
    users: Ints  # (plans,) who had played when the next plan came, all of them in the end
    returns: Floats  # (plans,) mean return of those who played each plan
    clipped_rewards: int  # beyond the declared range, moved to its ends

    def __repr__(self) -> str:
        return f"Learned({self.guarantee.sentence()}; {self.users[-1]:,} users, {len(self.users):,} plans)"


def learn(
    users: Simulator | FiniteMDP | registry.GymnasiumEnv | str,
    algorithm: str | catalog.Own,
    episodes: int,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    rho: float | None = None,
    model: str | None = None,
    neighbours: Neighbours | None = None,
    pooled: bool = False,
    horizon: int | None = None,
    reward_range: tuple[float, float] | None = None,
    structure: PublicStructure | None = None,
    seed: int | None = None,
    **options: Any,
) -> Learned:
    """Learn from users who can only be watched: any `Simulator`, a Gymnasium environment or `gym:ENV_ID` (with
    `horizon` steps), or simulated ones in a `FiniteMDP` or a named environment.

    `options` are those of the learner (`discreet run NAME --help`), and for a model also its reward law and discount.
    What is known in public about states and rewards is declared with `structure`; of a model it is read off, as in a
    run. Without a seed the noise is secure. Rewards are clipped to the declared `reward_range`, [0, 1] unless a model
    says otherwise; a simulation warns if none was declared and some lie outside. The plan is the one the last users
    played.
    """
    _check_options(options, structure)
    sequence = np.random.SeedSequence(seed).spawn(1)[0]
    people = _people(users, horizon, options, sequence)
    place: dict[str, Any] = (
        {} if people is not None else {"env": users, "horizon": horizon}
    )  # a stand-in, or the model
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho}
    budget |= {"model": model, "neighbours": neighbours}
    said = Experiment(algorithm, episodes=episodes, pooled=pooled, **place, **budget, **options).resolved
    if said.entry.heavy and reward_range is not None:
        raise ValueError(f"{said.entry.name} takes rewards without a bound; leave reward_range out")
    if said.entry.feedback is not None:
        raise ValueError(f"{said.entry.name} meets losses that an adversary chooses; measure it with discreet.run")
    if people is None:
        setting = Setting.of(said)
        people, problem = MDPSimulator(setting.mdp, setting.law, sequence), setting.problem
    else:
        shape = people.horizon, people.num_states, people.num_actions
        heavy = _watched_moments(said) if said.entry.heavy else None
        problem = public_facts(said, shape, moments=heavy, reward_range=None if said.entry.heavy else (0.0, 1.0))
    if structure is not None:
        problem = replace(problem, structure=structure)
    if reward_range is not None:
        problem = replace(problem, reward_range=_checked_range(reward_range))
    _check_structure(problem)
    noise = NoiseSource.secure() if seed is None else NoiseSource.seeded(seed)
    watched = _Watched(people, problem.reward_range)
    session = Session.open(built(said.entry, problem), problem, noise)
    users_of = []
    for epoch in play(session, watched.arrive, Clock()):
        users_of.append(epoch.users)
    if watched.clipped and reward_range is None and problem.reward_range is not None and seed is not None:
        low, high = problem.reward_range
        warnings.warn(
            f"{watched.clipped:,} rewards lay outside [{low:g}, {high:g}] and were moved to its ends; declare where "
            f"they lie with reward_range=(low, high)",
            stacklevel=2,
        )
    return Learned(
        epoch.plan,
        session.guarantee,
        math.fsum(watched.earned) / said.episodes,
        frozen(np.cumsum(users_of), np.int64),
        frozen(np.array(watched.earned) / np.array(users_of)),
        watched.clipped,
    )


def _watched_moments(said: Experiment) -> Moments:
    given = (said.moment_order, said.moment_bound, said.mean_bound)
    return Moments(*(1.0 if value is None else value for value in given))


#: What only a model can be asked for, and what of it may be declared public.
_OF_MODELS = ("states", "instance", "discount", "reward_law", *TAILS)
_FACTS = ("public_initial", "known_successors", "known_zero_rewards")


def _check_options(options: Mapping[str, Any], structure: PublicStructure | None) -> None:
    known = {*catalog.OPTIONS, *_OF_MODELS}
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown option {name!r}; did you mean {near!r}?")
        if structure is not None and name in _FACTS:
            raise ValueError(f"what is public is declared with structure already; leave {catalog.dashed(name)} out")


def _people(
    users: Any, horizon: int | None, options: Mapping[str, Any], sequence: np.random.SeedSequence
) -> Simulator | None:
    """Users who are there; None where they are to be simulated in a model."""
    named = isinstance(users, str)
    if isinstance(users, FiniteMDP) or (named and not users.startswith(registry.GYM_PREFIX)):
        return None
    for name in (*_OF_MODELS, *_FACTS):
        if name in options:
            how = "declare it with structure=PublicStructure(…)" if name in _FACTS else "leave it out"
            raise ValueError(f"{catalog.dashed(name)} is for models, and these users have none; {how}")
    if named or registry.is_gymnasium(users):
        from discreet.envs.gym import GymnasiumUsers

        env = users.removeprefix(registry.GYM_PREFIX) if named else users
        return GymnasiumUsers(env, registry.GYM_HORIZON if horizon is None else horizon, sequence)
    if not callable(getattr(users, "rollout", None)):
        shown = registry.brief(users)
        raise ValueError(f"the users are {shown}; expected a model, a Gymnasium environment or a Simulator")
    if horizon not in (None, users.horizon):
        raise ValueError(f"these users always take {users.horizon} steps; leave horizon out")
    return users  # type: ignore[no-any-return]


def _checked_range(reward_range: Any) -> tuple[float, float]:
    low, high = (real("reward_range", value) for value in reward_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"reward_range is {tuple(reward_range)}; expected two finite numbers, the smaller one first")
    return low, high


def _check_structure(problem: Problem) -> None:
    facts, S = problem.structure, problem.num_states
    cells = 1 if problem.pooled else problem.horizon, S, problem.num_actions
    for name, shape in (("initial", (S,)), ("successors", (*cells, S)), ("zero_rewards", cells)):
        table = getattr(facts, name)
        if table is not None and np.shape(table) != shape:
            raise ValueError(f"the declared {name} has shape {np.shape(table)}; expected {shape}")
    if facts.initial is not None:
        distributions("initial", facts.initial)


class _Watched:
    """People whose earnings are added up, epoch by epoch."""

    def __init__(self, users: Simulator, interval: tuple[float, float] | None) -> None:
        self._arrive, self._interval = rollouts(users), interval
        self.earned, self.clipped = list[float](), 0

    def arrive(self, epoch: Epoch, room: int) -> tuple[Any, ...]:
        (episodes,) = self._arrive(epoch, room) or ()
        if room == epoch.users:
            self.earned.append(0.0)
        self.earned[-1] += float(episodes.rewards.sum())
        if self._interval is not None:
            low, high = self._interval
            self.clipped += int(np.count_nonzero((episodes.rewards < low) | (episodes.rewards > high)))
        return (episodes,)
