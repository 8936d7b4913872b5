"""Runs: an experiment is pure data, the loop is short, the regret is exact."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, get_args

import numpy as np

from discreet import catalog
from discreet.envs import registry
from discreet.envs.rewards import RewardLaw
from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes, MDPSimulator, Simulator
from discreet.planning import Agent, Plan
from discreet.privacy.accounting import Guarantee, Neighbours
from discreet.privacy.calibration import LARGEST_EPSILON
from discreet.privacy.noise import NoiseSource
from discreet.problem import Moments, PublicStructure
from discreet.runs import memory
from discreet.runs.regret import RegretCurve
from discreet.session import Clock, compilable, play, play_compiled

Progress = Callable[[int], None]


_WHOLE = ("states", "horizon", "instance", "episodes")
_REAL = (
    *("confidence_scale", "alpha", "df", "tail_index", "epsilon", "delta", "honest"),
    *("moment_order", "moment_bound", "mean_bound"),
)
_FLAGS = ("pooled", "public_initial", "known_successors", "known_zero_rewards")
_TAILS = {"alpha": "alpha-stable", "df": "student-t", "tail_index": "pareto"}


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run but its seed. Hashable; `id` names it.

    What is None was not said. `resolved` fills in what then holds; an option that has no use there is refused.
    """

    algorithm: str
    env: str = "riverswim"
    states: int | None = None
    horizon: int | None = None
    instance: int = 0
    episodes: int = 20_000
    pooled: bool = False
    schedule: str | None = None
    confidence_scale: float | None = None
    reward_law: str | None = None
    alpha: float | None = None
    bonus: str | None = None
    mode: str | None = None
    epsilon: float | None = None
    delta: float = 0.0
    model: str | None = None
    neighbours: str | None = None
    local_reports: str | None = None
    honest: float | None = None
    public_initial: bool | None = None
    known_successors: bool = False
    known_zero_rewards: bool = False
    df: float | None = None
    tail_index: float | None = None
    moment_order: float | None = None
    moment_bound: float | None = None
    mean_bound: float | None = None
    adversary: str | None = None
    losses: str | None = None
    estimator: str | None = None

    def __post_init__(self) -> None:
        for names, plain in ((_WHOLE, _whole), (_REAL, _real), (_FLAGS, _flag)):
            for name in names:
                if (value := getattr(self, name)) is not None:
                    object.__setattr__(self, name, plain(catalog.dashed(name), value))
        if self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}; at least one user must play")
        scale = self.confidence_scale
        if scale is not None and not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"confidence-scale is {scale}; it must be a number of at least 0")
        registry.sizes(registry.spec(self.env), self.states, self.horizon)
        entry = catalog.algorithm(self.algorithm)
        if entry.runner == "offline":
            raise ValueError(
                f"{self.algorithm} learns from logs and not while it acts; use discreet fit LOGS --algorithm "
                f"{self.algorithm}"
            )
        self._check_budget(entry)
        self._options(entry)
        self._check_law(entry)

    def _check_budget(self, entry: catalog.Algorithm) -> None:
        name, epsilon = self.algorithm, self.epsilon
        if self.neighbours is not None and self.neighbours not in get_args(Neighbours):
            known = " and ".join(get_args(Neighbours))
            raise ValueError(f"unknown neighbours {self.neighbours!r}; the choices are {known}")
        if not entry.private:
            if epsilon is not None or self.delta:
                raise ValueError(f"{name} is not private: it takes no epsilon and no delta")
            for option in ("model", "neighbours"):
                if getattr(self, option) is not None:
                    raise ValueError(f"{name} is not private: it takes no {option}")
            return
        if self.model is not None and self.model not in entry.models:
            raise ValueError(f"{name} has no {self.model} form; choose one of {', '.join(entry.models)}")
        if (self.model or entry.models[0]) == "local" and self.neighbours == "zero-out":
            raise ValueError("local privacy compares any two users, so neighbours must be replace")
        if epsilon is None:
            raise ValueError(f"{name} is private: give it a budget with epsilon")
        without = f"run {entry.twin}, the learner without privacy" if entry.twin else "run a learner without privacy"
        if epsilon == math.inf:
            raise ValueError(f"epsilon is infinite, which is no privacy at all; {without}")
        if not epsilon > 0:
            raise ValueError(f"epsilon is {epsilon:g}; it must be positive")
        if epsilon > LARGEST_EPSILON:
            raise ValueError(
                f"epsilon is {epsilon:g}, and above {LARGEST_EPSILON:g} nothing worth the name is promised; "
                f"give less, or {without}"
            )
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta is {self.delta:g}; it must be at least 0 and below 1")

    def _options(self, entry: catalog.Algorithm) -> dict[str, Any]:
        """The learner's options as they hold here; one that was given and has no use is refused."""
        for name, option in catalog.OPTIONS.items():
            if option.choices and (value := getattr(self, name)) is not None and value not in option.choices:
                choices = ", ".join(option.choices)
                raise ValueError(f"unknown {catalog.dashed(name)} {value!r}; choose one of {choices}")
        mode = self.mode or "practical"
        model = (self.model or entry.models[0]) if entry.private else None
        found: dict[str, Any] = {}
        for name, option in catalog.OPTIONS.items():
            given = getattr(self, name)
            if given is False and option.default is False:  # a flag that was not raised
                given = None
            only = catalog.settled(entry, name, mode, model)
            if only is None:
                found[name] = option.default if given is None else given
            elif given is None or given == only[0]:
                found[name] = only[0]
            else:
                raise ValueError(f"{only[1]}; leave {catalog.dashed(name)} out")
        return found

    def _check_law(self, entry: catalog.Algorithm) -> None:
        given = [name for name in ("reward_law", *_TAILS) if getattr(self, name) is not None]
        if given and entry.runner == "adversarial":
            raise ValueError(
                f"{self.algorithm} meets losses that an adversary chooses; leave {catalog.dashed(given[0])} out"
            )
        for name, kind in _TAILS.items():
            if name in given and self.reward_law != kind:
                raise ValueError(f"{catalog.dashed(name)} belongs to the {kind} law: give it with reward-law {kind}")
        self._law()

    def _law(self) -> RewardLaw | None:
        """The reward law that was asked for, if any."""
        if self.reward_law is None:
            return None
        tails = {name: value for name in _TAILS if (value := getattr(self, name)) is not None}
        return RewardLaw(self.reward_law, **tails)

    @cached_property
    def resolved(self) -> Experiment:
        """The same experiment with everything said: sizes, model, and every option that has a use in it."""
        entry = catalog.algorithm(self.algorithm)
        chosen = registry.spec(self.env)
        S, H = registry.sizes(chosen, self.states, self.horizon)
        budget: dict[str, str | None] = {"model": None, "neighbours": None}
        if entry.private:
            budget = {"model": self.model or entry.models[0], "neighbours": self.neighbours or "replace"}
        law, tails = self._law(), dict.fromkeys(_TAILS)
        if law is not None and law == chosen.law(registry.make(self.env, S, H, self.instance)):
            law = None
        if law is not None:
            tails |= {name: getattr(law, name) for name, kind in _TAILS.items() if kind == law.kind}
        kind = None if law is None else law.kind
        settings = self._options(entry) | budget | tails | {"states": S, "horizon": H, "reward_law": kind}
        return replace(self, **settings)

    @property
    def id(self) -> str:
        """A short name that two experiments share exactly when the same things hold in both."""
        said = {name: value for name, value in asdict(self.resolved).items() if value is not None}
        canonical = json.dumps(said, sort_keys=True)
        return f"{self.algorithm}-{self.env}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}".replace(":", "-")

    @property
    def twin(self) -> Experiment | None:
        """The same for the learner without privacy that this one is compared with, tuned as it is by default."""
        entry = catalog.algorithm(self.algorithm)
        if entry.twin is None:
            return None
        tuned = {"mode", "confidence_scale"} | ({"schedule"} if self.mode == "paper" else set())
        shared = entry.options & catalog.algorithm(entry.twin).options - tuned
        kept = ("env", *_WHOLE, "reward_law", *_TAILS, *sorted(shared))
        return Experiment(entry.twin, **{name: getattr(self, name) for name in kept})


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or value != value // 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
    return int(value)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    return float(value) + 0.0  # one zero


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {value!r}; it must be True or False")
    return bool(value)


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
        experiment = experiment.resolved
        check_memory(experiment)
        mdp = registry.make(experiment.env, experiment.states, experiment.horizon, experiment.instance)
        if experiment.pooled and not mdp.stationary:
            raise ValueError(f"{experiment.env} changes with the step, so its counts cannot be pooled over steps")
        law = experiment._law() or registry.spec(experiment.env).law(mdp)
        law.check_means(mdp.rewards)
        entry = catalog.algorithm(experiment.algorithm)
        interval = None if entry.heavy else law.range(mdp.rewards)
        inside = interval is not None and interval[0] >= 0 and interval[1] <= 1
        if inside or (interval is None and entry.private and not entry.heavy):
            interval = (0.0, 1.0)  # rewards of an unbounded law are clipped to it
        spec = CountSpec.for_episodes(
            mdp.num_states, mdp.num_actions, mdp.horizon, experiment.pooled, experiment.episodes, interval
        )
        return cls(mdp, law, spec, _moments(experiment, mdp, law) if entry.heavy else Moments())

    def structure(self, experiment: Experiment) -> PublicStructure:
        """What the experiment declares to be public."""
        said = experiment.resolved
        return PublicStructure.declared(
            self.mdp,
            said.pooled,
            initial=bool(said.public_initial),
            successors=said.known_successors,
            zero_rewards=said.known_zero_rewards,
        )

    def assumptions(self, experiment: Experiment) -> tuple[str, ...]:
        """In words, what the learner was told about rewards and structure."""
        told = self.structure(experiment).assumptions()
        entry = catalog.algorithm(experiment.algorithm)
        if entry.heavy:
            v, u, tau = self.moments.order, self.moments.bound, self.moments.mean
            return (*told, f"public: E|reward|^{1 + v:g} is at most {u:g} and |mean reward| at most {tau:g}")
        if entry.private and self.spec.reward_range is not None:
            low, high = self.spec.reward_range
            return (*told, f"public: rewards lie in [{low:g}, {high:g}], and what lies outside is moved to its ends")
        return told

    def triple(self, experiment: Experiment, seed: int | None = 0) -> catalog.Triple:
        """The learner, configured with public facts only."""
        said = experiment.resolved
        problem = catalog.Problem(
            self.mdp.num_states,
            self.mdp.num_actions,
            self.mdp.horizon,
            said.episodes,
            structure=self.structure(said),
            moments=self.moments,
            tie_seed=0 if seed is None else seed,
            **{name: value for name in _TOLD if (value := getattr(said, name)) is not None},
        )
        return catalog.algorithm(said.algorithm).build(problem)


#: Tables (stages, S, A, S) of 8 bytes that a run holds at once, as measured: with noise, and without.
NOISY_TABLES, EXACT_TABLES = 14, 4


def check_memory(experiment: Experiment, runs: int = 1) -> None:
    """Refuse a run that cannot fit, before anything is allocated."""
    said = experiment.resolved
    env, entry = registry.spec(said.env), catalog.algorithm(said.algorithm)
    assert said.states is not None
    assert said.horizon is not None
    S, A, H = said.states, env.actions, said.horizon
    tables = NOISY_TABLES if entry.private else EXACT_TABLES
    if entry.private and said.schedule == "every":
        tables += said.episodes.bit_length()  # the levels of a tree
    stages = tables * (1 if said.pooled else H) + 2 * (H if env.staged else 1)  # and the model's own tables
    what = f"{S:,} states, {A} actions and {'pooled' if said.pooled else H} steps"
    advice = "take fewer states" if said.pooled else "take fewer states or steps"
    if "pooled" in entry.options and not said.pooled and not env.staged:
        advice += ", or pool the steps"
    if runs > 1:
        what, advice = f"{what} in {runs} runs at once", f"{advice}, or fewer jobs"
    memory.require(8.0 * runs * stages * S * A * S, what, advice)


#: Settings that reach a learner as they are.
_TOLD = (
    *("pooled", "schedule", "confidence_scale", "bonus", "mode", "local_reports", "honest"),
    *("epsilon", "delta", "model", "neighbours"),
)


def _moments(experiment: Experiment, mdp: FiniteMDP, law: RewardLaw) -> Moments:
    """What is said about heavy tails; what is left out is read off the law."""
    order = 1.0 if experiment.moment_order is None else experiment.moment_order
    mean, bound = experiment.mean_bound, experiment.moment_bound
    if mean is None:
        mean = float(np.abs(mdp.rewards).max()) or 1.0
    return Moments(order, law.moment_bound(mean, order) if bound is None else bound, mean)


def also_assuming(guarantee: Guarantee, told: tuple[str, ...]) -> Guarantee:
    """The guarantee with these assumptions beside its own, each said once."""
    return replace(guarantee, assumptions=tuple(dict.fromkeys((*guarantee.assumptions, *told))))


def generators(seed: int | None) -> tuple[np.random.SeedSequence, NoiseSource]:
    """Independent environment and noise from one seed; without a seed the noise is cryptographically secure."""
    environment, noise = np.random.SeedSequence(seed).spawn(2)
    return environment, NoiseSource.secure() if seed is None else NoiseSource.seeded(noise)


def run(experiment: Experiment, seed: int | None = 0, progress: Progress | None = None) -> RunResult:
    """Play all episodes and evaluate every distinct policy exactly.

    `seed=None` draws fresh randomness and secure noise; any seed makes the run a simulation.
    """
    if catalog.algorithm(experiment.algorithm).runner == "adversarial":
        from discreet.runs import adversarial

        return adversarial.run(experiment, seed, progress)
    experiment = experiment.resolved
    setting = Setting.of(experiment)
    mdp, spec = setting.mdp, setting.spec
    triple = setting.triple(experiment, seed)
    environment, noise = generators(seed)
    simulator = MDPSimulator(mdp, setting.law, environment, spec.reward_range)
    clock = Clock()
    stream = triple.privatizer.open(spec, experiment.episodes, noise)
    guarantee = also_assuming(stream.guarantee, setting.assumptions(experiment))
    if compilable(triple, spec, setting.law, experiment.episodes):  # then the stream is Exact
        played = play_compiled(triple.agent, simulator, spec, experiment.episodes, clock)  # type: ignore[arg-type]
    else:
        played = play(triple, stream, simulator, experiment.episodes, clock)
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
    model: str | None = None,
    neighbours: Neighbours | None = None,
    pooled: bool = False,
    reward_range: tuple[float, float] = (0.0, 1.0),
    seed: int | None = None,
) -> Learned:
    """Learn from users who can only be watched (any `Simulator`, for example `GymnasiumUsers`).

    Without a seed the noise is secure. Rewards are clipped to the declared `reward_range`. The plan is the one the
    last users played.
    """
    said = Experiment(
        algorithm,
        episodes=episodes,
        epsilon=epsilon,
        delta=delta,
        model=model,
        neighbours=neighbours,
        pooled=pooled,
    ).resolved
    S, A, H = users.num_states, users.num_actions, users.horizon
    settings = {name: value for name in _TOLD if (value := getattr(said, name)) is not None}
    triple = catalog.algorithm(algorithm).build(catalog.Problem(S, A, H, said.episodes, **settings))
    spec = CountSpec.for_episodes(S, A, H, pooled, said.episodes, reward_range)
    noise = NoiseSource.secure() if seed is None else NoiseSource.seeded(seed)
    watched, kept = _Watched(users), _Kept(triple.agent)
    stream = triple.privatizer.open(spec, said.episodes, noise)
    for _ in play(triple._replace(agent=kept), stream, watched, said.episodes, Clock()):
        pass
    assert kept.plan_made is not None
    low, high = reward_range
    told = (f"public: rewards lie in [{low:g}, {high:g}], and what lies outside is moved to its ends",)
    guarantee = also_assuming(stream.guarantee, told if epsilon is not None else ())
    return Learned(kept.plan_made, guarantee, watched.total / said.episodes)


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
    together = min(len(seeds), jobs if jobs > 0 else os.cpu_count() or 1)
    check_memory(experiment, together)
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
