"""Runs: an experiment is pure data, the loop is short, the regret is exact."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any, cast, get_args

import numpy as np

from discreet import catalog
from discreet.agents.heavy_tails import Moments
from discreet.bonuses import Kind
from discreet.envs import registry
from discreet.envs.adversaries import ADVERSARIES
from discreet.envs.rewards import RewardLaw
from discreet.episodes import Episodes, MDPSimulator, Simulator
from discreet.loops import Clock, compilable, play, play_compiled
from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.planning import Agent, Plan
from discreet.privacy.accounting import Guarantee, Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.regret import RegretCurve
from discreet.statistics import CountSpec
from discreet.structure import PublicStructure

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run but its seed. Hashable; `id` names it."""

    algorithm: str
    env: str = "riverswim"
    states: int | None = None
    horizon: int | None = None
    instance: int = 0
    episodes: int = 20_000
    pooled: bool = False
    schedule: str = "epochs"
    confidence_scale: float | None = None
    reward_law: str | None = None
    alpha: float = 2.0
    bonus: str = "bernstein"
    mode: str = "practical"
    epsilon: float | None = None
    delta: float = 0.0
    model: str = "joint"
    neighbours: str = "replace"
    local_reports: str = "sampled"
    honest: float = 1.0
    public_initial: bool = True
    known_successors: bool = False
    known_zero_rewards: bool = False
    df: float = 3.0
    tail_index: float = 3.0
    moment_order: float = 1.0
    moment_bound: float | None = None
    mean_bound: float | None = None
    adversary: str = "iid"
    losses: str = "private"
    estimator: str = "corrected"

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}; at least one user must play")
        if self.schedule not in catalog.SCHEDULES:
            raise ValueError(f"unknown schedule {self.schedule!r}; choose one of {', '.join(catalog.SCHEDULES)}")
        scale = self.confidence_scale
        if scale is not None and not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"confidence-scale is {scale}; it must be a number of at least 0")
        registry.spec(self.env)
        entry = catalog.algorithm(self.algorithm)
        if entry.runner == "offline":
            raise ValueError(
                f"{self.algorithm} learns from logs and not while it acts; use discreet fit LOGS --algorithm "
                f"{self.algorithm}"
            )
        if self.mode not in catalog.MODES:
            raise ValueError(f"unknown mode {self.mode!r}; choose one of {', '.join(catalog.MODES)}")
        if self.model not in entry.models:
            known = ", ".join(entry.models)
            raise ValueError(f"{self.algorithm} has no {self.model} form; choose one of {known}")
        if entry.private and self.epsilon is None:
            raise ValueError(f"{self.algorithm} is private: give it a budget with epsilon")
        if not entry.private and (self.epsilon is not None or self.delta):
            raise ValueError(f"{self.algorithm} is not private: it takes no epsilon and no delta")
        for option, value, choices in (
            ("bonus", self.bonus, get_args(Kind)),
            ("local-reports", self.local_reports, catalog.LOCAL_REPORTS),
            ("adversary", self.adversary, ADVERSARIES),
            ("losses", self.losses, ("private", "public")),
            ("estimator", self.estimator, ("corrected", "paper")),
        ):
            if value not in choices:
                raise ValueError(f"unknown {option} {value!r}; choose one of {', '.join(choices)}")
        if self.honest != 1.0 and self.model != "shuffle":
            raise ValueError("honest is the fraction of users who add their noise, in the shuffle model only")
        if self.neighbours not in get_args(Neighbours):
            known = " and ".join(get_args(Neighbours))
            raise ValueError(f"unknown neighbours {self.neighbours!r}; the choices are {known}")

    @property
    def id(self) -> str:
        """A short name that two experiments share exactly when all their fields agree."""
        canonical = json.dumps(asdict(self), sort_keys=True)
        return f"{self.algorithm}-{self.env}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}".replace(":", "-")


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run leaves behind. Regret and returns are computed with the true model: simulation only, not private."""

    experiment: Experiment
    seed: int | None
    checkpoints: Ints  # episodes
    regret: Floats  # cumulative, at the checkpoints
    random_regret: float  # of the uniform policy over all episodes
    value_optimal: float
    value_random: float
    final_value: float
    switches: int  # distinct consecutive policies
    guarantee: Guarantee
    seconds: float  # CPU time of the loop: plan, noise, rollout, update
    diagnostics: dict[str, Any] = field(default_factory=dict)
    version: str = field(default_factory=lambda: version("discreet"))

    @property
    def regret_ratio(self) -> float | None:
        """Regret over that of the uniform random policy: 1 means nothing was learned."""
        return float(self.regret[-1]) / self.random_regret if self.random_regret > 0 else None


@dataclass(frozen=True)
class Setting:
    """A built experiment: the model (hidden from the learner), the simulator's law, and the public description."""

    mdp: FiniteMDP
    law: RewardLaw
    spec: CountSpec
    moments: Moments

    @classmethod
    def of(cls, experiment: Experiment) -> Setting:
        chosen = registry.spec(experiment.env)
        mdp = registry.make(experiment.env, experiment.states, experiment.horizon, experiment.instance)
        if experiment.pooled and not mdp.stationary:
            raise ValueError(f"{experiment.env} changes with the step, so its counts cannot be pooled over steps")
        law = chosen.law(mdp)
        if experiment.reward_law is not None:
            law = RewardLaw(
                experiment.reward_law, alpha=experiment.alpha, df=experiment.df, tail_index=experiment.tail_index
            )
            law.check_means(mdp.rewards)
        entry = catalog.algorithm(experiment.algorithm)
        interval = None if entry.heavy else law.range(mdp.rewards)
        inside = interval is not None and interval[0] >= 0 and interval[1] <= 1
        if inside or (interval is None and entry.private and not entry.heavy):
            interval = (0.0, 1.0)  # rewards of an unbounded law are clipped to it
        spec = CountSpec.for_episodes(
            mdp.num_states, mdp.num_actions, mdp.horizon, experiment.pooled, experiment.episodes, interval
        )
        moments = Moments()
        if entry.heavy:
            mean = experiment.mean_bound or float(np.abs(mdp.rewards).max()) or 1.0
            bound = experiment.moment_bound or law.moment_bound(mean, experiment.moment_order)
            moments = Moments(experiment.moment_order, bound, mean)
        return cls(mdp, law, spec, moments)

    def structure(self, experiment: Experiment) -> PublicStructure:
        """What the experiment declares to be public."""
        return PublicStructure.declared(
            self.mdp,
            experiment.pooled,
            initial=experiment.public_initial,
            successors=experiment.known_successors,
            zero_rewards=experiment.known_zero_rewards,
        )

    def assumptions(self, experiment: Experiment) -> tuple[str, ...]:
        """In words, what the learner was told about rewards and structure."""
        told = self.structure(experiment).assumptions()
        if catalog.algorithm(experiment.algorithm).heavy:
            v, u, tau = self.moments.order, self.moments.bound, self.moments.mean
            return (*told, f"public: E|reward|^{1 + v:g} is at most {u:g} and |mean reward| at most {tau:g}")
        return told

    def triple(self, experiment: Experiment, seed: int | None = 0) -> catalog.Triple:
        """The learner, configured with public facts only."""
        problem = catalog.Problem(
            self.mdp.num_states,
            self.mdp.num_actions,
            self.mdp.horizon,
            experiment.episodes,
            experiment.pooled,
            experiment.schedule,
            experiment.confidence_scale,
            cast(Kind, experiment.bonus),
            experiment.mode,
            experiment.epsilon,
            experiment.delta,
            experiment.model,
            cast(Neighbours, experiment.neighbours),
            experiment.local_reports,
            experiment.honest,
            self.structure(experiment),
            self.moments,
            tie_seed=0 if seed is None else seed,
        )
        return catalog.algorithm(experiment.algorithm).build(problem)


def generators(seed: int | None) -> tuple[np.random.SeedSequence, NoiseSource]:
    """Independent environment and noise from one seed; without a seed the noise is cryptographically secure."""
    environment, noise = np.random.SeedSequence(seed).spawn(2)
    return environment, NoiseSource.secure() if seed is None else NoiseSource.seeded(noise)


def run(experiment: Experiment, seed: int | None = 0, progress: Progress | None = None) -> RunResult:
    """Play all episodes and evaluate every distinct policy exactly.

    `seed=None` draws fresh randomness and secure noise; any seed makes the run a simulation.
    """
    if catalog.algorithm(experiment.algorithm).runner == "adversarial":
        from discreet import adversarial

        return adversarial.run(experiment, seed, progress)
    setting = Setting.of(experiment)
    mdp, spec = setting.mdp, setting.spec
    triple = setting.triple(experiment, seed)
    environment, noise = generators(seed)
    simulator = MDPSimulator(mdp, setting.law, environment, spec.reward_range)
    clock = Clock()
    guarantee = triple.privatizer.open(spec, experiment.episodes, noise).guarantee
    told = dict.fromkeys((*guarantee.assumptions, *setting.assumptions(experiment)))
    guarantee = replace(guarantee, assumptions=tuple(told))
    if compilable(triple, spec, setting.law, experiment.episodes):
        played = play_compiled(triple.agent, simulator, spec, experiment.episodes, clock)  # type: ignore[arg-type]
    else:
        played = play(triple, simulator, spec, experiment.episodes, noise, clock)
    curve = RegretCurve(mdp, experiment.episodes)
    for part in played:
        curve.add(part)
        if progress is not None:
            progress(part.users)
    return RunResult(
        experiment,
        seed,
        curve.checkpoints,
        curve.regret,
        experiment.episodes * (curve.optimal - curve.random),
        curve.optimal,
        curve.random,
        curve.last,
        curve.switches,
        guarantee,
        clock.seconds,
        {"clipped_rewards": simulator.clipped},
    )


@dataclass(frozen=True, eq=False)
class Learned:
    """What learning on users without a model gives: a policy and its guarantee. The mean return is not private."""

    plan: Plan
    guarantee: Guarantee
    mean_return: float  # over all users, raw: for simulations


def learn(
    users: Simulator,
    algorithm: str,
    episodes: int,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    model: str = "joint",
    neighbours: Neighbours = "replace",
    pooled: bool = False,
    reward_range: tuple[float, float] = (0.0, 1.0),
    seed: int | None = None,
) -> Learned:
    """Learn from users who can only be watched (any `Simulator`, for example `GymnasiumUsers`).

    Without a seed the noise is secure. Rewards are clipped to the declared `reward_range`. The plan is the one the
    last users played.
    """
    Experiment(algorithm, episodes=episodes, epsilon=epsilon, delta=delta, model=model, neighbours=neighbours)
    S, A, H = users.num_states, users.num_actions, users.horizon
    problem = catalog.Problem(
        S, A, H, episodes, pooled, epsilon=epsilon, delta=delta, model=model, neighbours=neighbours
    )
    triple = catalog.algorithm(algorithm).build(problem)
    spec = CountSpec.for_episodes(S, A, H, pooled, episodes, reward_range)
    noise = NoiseSource.secure() if seed is None else NoiseSource.seeded(seed)
    watched, kept = _Watched(users), _Kept(triple.agent)
    for _ in play(triple._replace(agent=kept), watched, spec, episodes, noise, Clock()):
        pass
    assert kept.plan_made is not None
    guarantee = triple.privatizer.open(spec, episodes, noise).guarantee
    return Learned(kept.plan_made, guarantee, watched.total / episodes)


class _Watched:
    """A simulator that adds up what its users earn."""

    def __init__(self, users: Simulator) -> None:
        self._users, self.total = users, 0.0
        self.num_states, self.num_actions, self.horizon = users.num_states, users.num_actions, users.horizon

    def rollout(self, policy: Floats, num_episodes: int) -> Episodes:
        episodes = self._users.rollout(policy, num_episodes)
        self.total += float(episodes.rewards.sum())
        return episodes


class _Kept:
    """An agent that remembers its last plan."""

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent, self.plan_made = agent, None

    plan_made: Plan | None

    def plan(self, release: Any, previous: Plan | None) -> Plan:
        self.plan_made = self._agent.plan(release, previous)
        return self.plan_made


def warm_up(experiment: Experiment) -> None:
    """Compile (or load from the cache) everything the experiment will call, outside any measurement."""
    users = 3
    if catalog.algorithm(experiment.algorithm).staged:
        spec = Setting.of(experiment).spec
        users = 8 * spec.horizon * spec.num_states * spec.num_actions  # holds one stage
    run(replace(experiment, episodes=min(experiment.episodes, users)), seed=0)


def run_seeds(
    experiment: Experiment,
    seeds: Sequence[int | None],
    jobs: int = 1,
    progress: Progress | None = None,
    finished: Callable[[RunResult], None] | None = None,
) -> list[RunResult]:
    """One result per seed, in order. Several seeds run in parallel processes; the numbers do not depend on it.

    `finished` gets every result as soon as it is there, so that a killed run keeps what it has done.
    """
    warm_up(experiment)
    results: list[RunResult] = []
    for result in _results(experiment, seeds, jobs, progress):
        results.append(result)
        if finished is not None:
            finished(result)
    return results


def _results(
    experiment: Experiment, seeds: Sequence[int | None], jobs: int, progress: Progress | None
) -> Iterator[RunResult]:
    if jobs == 1 or len(seeds) == 1:
        yield from (run(experiment, seed, progress) for seed in seeds)
        return
    from joblib import Parallel, delayed

    for result in Parallel(n_jobs=jobs, return_as="generator")(
        delayed(_warm_run)(experiment, seed) for seed in seeds
    ):
        if progress is not None:
            progress(experiment.episodes)
        yield result


def _warm_run(experiment: Experiment, seed: int | None) -> RunResult:
    warm_up(experiment)
    return run(experiment, seed)
