"""Runs: an experiment is pure data, the loop is short, the regret is exact."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from discreet import catalog
from discreet.agents.heavy_tails import at_limits
from discreet.envs import registry
from discreet.envs.adversaries import LossSequence, adversary
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import layers as reachable
from discreet.mdp import FiniteMDP
from discreet.occupancies import Layers
from discreet.people.episodes import MDPSimulator
from discreet.planning import Plan
from discreet.privacy.accounting import Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.problem import Moments, Problem, PublicStructure
from discreet.runs import identity, memory
from discreet.runs.feasibility import LARGEST_EPSILON, LARGEST_RHO, STATED_DELTA, forecast_run
from discreet.runs.forecasts import Forecast
from discreet.runs.regret import Hindsight, RegretCurve
from discreet.runs.results import RunResult, stamped
from discreet.runs.simulation import Clock, compilable, play, play_compiled, rollouts
from discreet.schedules import TwoClocks
from discreet.session import Session, statistic

Advance = Callable[[int], None]


_WHOLE = ("states", "horizon", "instance", "episodes")
_REAL = (
    *("confidence_scale", "rate_scale", "beta", "alpha", "df", "tail_index", "epsilon", "delta", "rho", "honest"),
    *("moment_order", "moment_bound", "mean_bound", "discount"),
)
_FLAGS = ("pooled", "allow_pooled", "public_initial", "known_successors", "known_zero_rewards")
TAILS = {"alpha": "alpha-stable", "df": "student-t", "tail_index": "pareto"}


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run but its seed. Hashable; `id` names it.

    `algorithm` is a name, or a learner of your own: an agent (without privacy, or on counts that a budget allows), a
    triple (agent, privatizer, schedule), a function from `Problem` to one, or an `Algorithm`. `env` is a name, a
    `FiniteMDP`, or a Gymnasium environment with a table `P`. `discount` γ plays `FiniteMDP.discounted(γ)` instead.
    `adversary` is a name, or losses of your own (`discreet.envs.adversaries.from_array`, `from_function`).
    What is None was not said. `resolved` fills in what then holds; an option that has no use there is refused.
    """

    algorithm: str | catalog.Own
    env: str | FiniteMDP | registry.GymnasiumEnv = "riverswim"
    states: int | None = None
    horizon: int | None = None
    instance: int = 0
    episodes: int = 20_000
    pooled: bool = False
    allow_pooled: bool = False
    schedule: str | None = None
    confidence_scale: float | None = None
    rate_scale: float | None = None
    beta: float | None = None
    reward_law: str | None = None
    alpha: float | None = None
    bonus: str | None = None
    mode: str | None = None
    noise: str | None = None
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
    adversary: str | LossSequence | None = None
    losses: str | None = None
    estimator: str | None = None
    discount: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.env, (str, FiniteMDP)):
            object.__setattr__(self, "env", registry.model_of(self.env, self.horizon))
            object.__setattr__(self, "horizon", None)
        for names, plain in ((_WHOLE, whole), (_REAL, real), (_FLAGS, _flag)):
            for name in names:
                if (value := getattr(self, name)) is not None:
                    object.__setattr__(self, name, plain(catalog.dashed(name), value))
        if self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}; at least one user must play")
        scale = self.confidence_scale
        if scale is not None and not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"confidence-scale is {scale}; it must be a number of at least 0")
        if self.rate_scale is not None and not (math.isfinite(self.rate_scale) and self.rate_scale > 0):
            raise ValueError(f"rate-scale is {self.rate_scale}; it must be a number above 0")
        if self.beta is not None and not 0 < self.beta < 1:
            raise ValueError(f"beta is {self.beta:g}; the failure probability must lie strictly between 0 and 1")
        registry.sizes(self.place, self.states, self.horizon)
        if isinstance(self.env, str):
            object.__setattr__(self, "env", self.place.name)  # one name, however it was written
        entry = self.entry
        if entry.runner == "offline":
            raise ValueError(
                f"{entry.name} learns from logs and not while it acts; use discreet fit LOGS --algorithm {entry.name}"
            )
        if self.discount is not None:
            if entry.runner != "online":
                raise ValueError(f"{entry.name} meets losses that an adversary chooses; leave discount out")
            if not 0 < self.discount <= 1:
                raise ValueError(f"discount is {self.discount:g}; it must be above 0 and at most 1")
        if entry.twin is not None:
            catalog.algorithm(entry.twin)
        self._check_budget(entry)
        self._options(entry)
        self._check_law(entry)

    @cached_property
    def entry(self) -> catalog.Algorithm:
        """What the catalog says of the learner, or what holds for one's own."""
        if isinstance(self.algorithm, str):
            return catalog.algorithm(self.algorithm)
        budget = [name for name in ("epsilon", "delta", "rho", "model", "neighbours") if getattr(self, name)]
        if budget and isinstance(self.algorithm, tuple):
            raise ValueError(f"a triple has its budget in its privatizer; leave {budget[0]} out")
        return catalog.own(self.algorithm, self.epsilon is not None or self.rho is not None)

    @cached_property
    def place(self) -> registry.EnvSpec:
        """What is known of the environment."""
        assert isinstance(self.env, (str, FiniteMDP))
        return registry.spec(self.env)

    @property
    def settings(self) -> dict[str, str | int | float | bool | None]:
        """All fields as plain values; an object is its name and the digest of what it is made of."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        if isinstance(self.env, FiniteMDP):
            said["env"] = f"{self.env.name}@{self.env.digest[:12]}"
        if not isinstance(self.algorithm, str):
            said["algorithm"] = f"{self.entry.name}@{identity.fingerprint(self.algorithm)[:12]}"
        if isinstance(self.adversary, LossSequence):
            said["adversary"] = f"{self.adversary.name}@{identity.fingerprint(self.adversary)[:12]}"
        return said

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash(tuple(self.settings.values()))

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # nothing that is derived from them

    def _check_budget(self, entry: catalog.Algorithm) -> None:
        name, epsilon = entry.name, self.epsilon
        if self.neighbours is not None and self.neighbours not in get_args(Neighbours):
            known = " and ".join(get_args(Neighbours))
            raise ValueError(f"unknown neighbours {self.neighbours!r}; the choices are {known}")
        if not entry.private:
            if epsilon is not None or self.delta:
                raise ValueError(f"{name} is not private: it takes no epsilon and no delta")
            for option in ("rho", "model", "neighbours"):
                if getattr(self, option) is not None:
                    raise ValueError(f"{name} is not private: it takes no {option}")
            return
        if self.model is not None and self.model not in entry.models:
            raise ValueError(f"{name} has no {self.model} form; choose one of {', '.join(entry.models)}")
        if (self.model or entry.models[0]) == "local" and self.neighbours == "zero-out":
            raise ValueError("local privacy compares any two users, so neighbours must be replace")
        if epsilon is None and self.rho is None:
            raise ValueError(f"{name} is private: give it a budget with epsilon")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta is {self.delta:g}; it must be at least 0 and below 1")
        if self.rho is not None:
            self._check_rho(entry)
            return
        assert epsilon is not None
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

    def _check_rho(self, entry: catalog.Algorithm) -> None:
        name, rho, trust = entry.name, self.rho, self.model or entry.models[0]
        assert rho is not None
        if self.epsilon is not None:
            raise ValueError("a budget is either epsilon (with or without delta) or rho; leave one of the two out")
        if not 0 < rho <= LARGEST_RHO:
            raise ValueError(
                f"rho is {rho:g}; it must be above 0 and at most {LARGEST_RHO:g}, beyond which nothing is promised"
            )
        if trust not in entry.zcdp:
            raise ValueError(f"{name} has no noise that is measured in rho with the {trust} model; give it epsilon")

    def _options(self, entry: catalog.Algorithm) -> dict[str, Any]:
        """The learner's options as they hold here; one that was given and has no use is refused."""
        for name, option in catalog.OPTIONS.items():
            value = getattr(self, name)
            if option.choices and value not in (None, *option.choices) and not isinstance(value, LossSequence):
                choices = ", ".join(option.choices)
                raise ValueError(f"unknown {catalog.dashed(name)} {value!r}; choose one of {choices}")
        said = {name: getattr(self, name) for name in catalog.OPTIONS} | {"mode": self.mode or "practical"}
        said["gaussian"] = self.rho is not None or self.delta > 0
        trust = (self.model or entry.models[0]) if entry.private else None
        found: dict[str, Any] = {}
        for name, option in catalog.OPTIONS.items():
            given = getattr(self, name)
            if given is False and option.default is False:  # a flag that was not raised
                given = None
            only = catalog.settled(entry, name, said, trust)
            if only is None:
                found[name] = catalog.default_of(entry, name, said) if given is None else given
            elif given is None or given == only[0]:
                found[name] = only[0]
            else:
                raise ValueError(f"{only[1]}; leave {catalog.dashed(name)} out")
        return found

    def _check_law(self, entry: catalog.Algorithm) -> None:
        given = [name for name in ("reward_law", *TAILS) if getattr(self, name) is not None]
        if given and entry.runner == "adversarial":
            raise ValueError(
                f"{entry.name} meets losses that an adversary chooses; leave {catalog.dashed(given[0])} out"
            )
        for name, kind in TAILS.items():
            if name in given and self.reward_law != kind:
                raise ValueError(f"{catalog.dashed(name)} belongs to the {kind} law: give it with reward-law {kind}")
        self._law()

    def _law(self) -> RewardLaw | None:
        """The reward law that was asked for, if any."""
        if self.reward_law is None:
            return None
        tails = {name: value for name in TAILS if (value := getattr(self, name)) is not None}
        return RewardLaw(self.reward_law, **tails)

    def _model(self, states: int | None, horizon: int | None) -> FiniteMDP:
        assert isinstance(self.env, (str, FiniteMDP))
        return registry.make(self.env, states, horizon, self.instance)

    @cached_property
    def resolved(self) -> Experiment:
        """The same experiment with everything said: sizes, model, and every option that has a use in it."""
        entry, chosen = self.entry, self.place
        S, H = registry.sizes(chosen, self.states, self.horizon)
        budget: dict[str, str | None] = {"model": None, "neighbours": None}
        if entry.private:
            budget = {"model": self.model or entry.models[0], "neighbours": self.neighbours or "replace"}
        law, tails = self._law(), dict.fromkeys(TAILS)
        if law is not None and law == chosen.law(self._model(S, H)):
            law = None
        if law is not None:
            tails |= {name: getattr(law, name) for name, kind in TAILS.items() if kind == law.kind}
        kind = None if law is None else law.kind
        settings = self._options(entry) | budget | tails | {"states": S, "horizon": H, "reward_law": kind}
        if self.discount == 1.0:
            settings["discount"] = None
        if self.rho is not None and not self.delta:
            settings["delta"] = STATED_DELTA
        return replace(self, **settings)

    @property
    def id(self) -> str:
        """A short name that two experiments share exactly when the same things hold in both."""
        said = {name: value for name, value in self.resolved.settings.items() if value is not None}
        canonical = json.dumps(said, sort_keys=True)
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:10]
        return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.entry.name}-{self.place.name}-{digest}")

    @property
    def twin(self) -> Experiment | None:
        """The same for the learner without privacy that this one is compared with, tuned as it is by default."""
        entry = self.entry
        if (
            entry.private
            and not isinstance(self.algorithm, (str, catalog.Algorithm))
            and hasattr(self.algorithm, "plan")
        ):
            return replace(self, epsilon=None, delta=0.0, rho=None, model=None, neighbours=None, local_reports=None)
        if entry.twin is None:
            return None
        tuned = {"mode", "confidence_scale", "rate_scale", "allow_pooled"} | (
            {"schedule"} if self.mode == "paper" else set()
        )
        shared = entry.options & catalog.algorithm(entry.twin).options - tuned
        kept = ("env", "discount", *_WHOLE, "reward_law", *TAILS, *sorted(shared))
        return Experiment(entry.twin, **{name: getattr(self, name) for name in kept})


def whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or value != value // 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
    return int(value)


def real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    return float(value) + 0.0  # one zero


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {value!r}; it must be True or False")
    return bool(value)


@dataclass(frozen=True)
class Setting:
    """A built experiment: the model, the law of its rewards and what an adversary does, hidden from the learner, and
    all that is public."""

    said: Experiment  # resolved
    mdp: FiniteMDP
    law: RewardLaw
    sequence: LossSequence | None
    problem: Problem

    @property
    def entry(self) -> catalog.Algorithm:
        return self.said.entry

    @classmethod
    def of(cls, experiment: Experiment) -> Setting:
        said = experiment.resolved
        check_memory(said)
        mdp = said._model(said.states, said.horizon)
        if said.pooled and not mdp.stationary:
            raise ValueError(f"{mdp.name} changes with the step, so its counts cannot be pooled over steps")
        law = said._law() or said.place.law(mdp)
        mdp = mdp if said.discount is None else mdp.discounted(said.discount)
        law.check_means(mdp.rewards)
        entry, sequence = said.entry, _losses(said, mdp)
        structure = PublicStructure.declared(
            mdp,
            said.pooled,
            initial=bool(said.public_initial),
            successors=said.known_successors,
            zero_rewards=said.known_zero_rewards,
        )
        if sequence is not None:
            structure = replace(structure, layers=Layers(reachable(mdp), mdp.initial, mdp.num_actions))
        problem = public_facts(
            said,
            (mdp.horizon, mdp.num_states, mdp.num_actions),
            structure=structure,
            moments=_moments(said, mdp, law) if entry.heavy else None,
            reward_range=None if sequence is not None else _interval(entry, law, mdp),
        )
        return cls(said, mdp, law, sequence, problem)

    @property
    def spec(self) -> Any:
        """What the learner's privatizer sums up: a `CountSpec` or a `LossSpec`."""
        return statistic(self.problem, self.entry.feedback)

    def triple(self, seed: int | None = 0) -> catalog.Triple:
        """The learner, configured with public facts only."""
        return built(self.entry, replace(self.problem, tie_seed=0 if seed is None else seed))

    def forecast(self) -> Forecast:
        """Whether the experiment's people teach its learner."""
        return forecast_run(lambda problem: built(self.entry, problem), self.problem, self.entry.feedback)


def public_facts(said: Experiment, shape: tuple[int, int, int], **facts: Any) -> Problem:
    """The problem that a resolved experiment poses; `facts` are declared."""
    H, S, A = shape
    told = {name: value for name in TOLD if (value := getattr(said, name)) is not None}
    return Problem(S, A, H, said.episodes, trust=said.model or "joint", **told, **facts)


def _losses(said: Experiment, mdp: FiniteMDP) -> LossSequence | None:
    """What the adversary does, where there is one."""
    if said.adversary is None:
        return None
    if isinstance(said.adversary, str):
        return adversary(said.adversary, mdp, said.episodes, said.instance)
    shape, known = (mdp.horizon, mdp.num_states, mdp.num_actions), said.adversary
    if known.shape != shape:
        raise ValueError(f"the losses have shape {known.shape}; expected (H, S, A) = {shape}")
    if known.num_episodes < said.episodes:
        raise ValueError(f"the losses are of {known.num_episodes:,} episodes; {said.episodes:,} are to be played")
    return known


def built(entry: catalog.Algorithm, problem: Problem) -> catalog.Triple:
    """The triple of a learner; one's own function may have returned something else."""
    triple: Any = entry.build(problem)
    if not isinstance(triple, tuple) or len(triple) != 3:
        raise ValueError(f"{entry.name} returned {type(triple).__name__}; expected (agent, privatizer, schedule)")
    return catalog.Triple(*triple)


def _interval(entry: catalog.Algorithm, law: RewardLaw, mdp: FiniteMDP) -> tuple[float, float] | None:
    """The declared range of rewards: [0, 1] where they lie in it, and where they have no bound but must have one."""
    interval = None if entry.heavy else law.range(mdp.rewards)
    if interval is None:
        return (0.0, 1.0) if entry.private and not entry.heavy else None  # rewards of an unbounded law are clipped
    low, high = interval
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return interval if low < high else (min(low, 0.0), max(high, 0.0))


#: Tables (stages, S, A, S) of 8 bytes that a run holds at once, as measured: with noise, and without.
NOISY_TABLES, EXACT_TABLES = 14, 4


def check_memory(experiment: Experiment, runs: int = 1) -> None:
    """Refuse a run that cannot fit, before anything is allocated."""
    said = experiment.resolved
    env, entry = said.place, said.entry
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
TOLD = (
    *(
        "pooled",
        "schedule",
        "confidence_scale",
        "rate_scale",
        "beta",
        "bonus",
        "mode",
        "noise",
        "local_reports",
        "honest",
    ),
    *("epsilon", "delta", "rho", "neighbours", "losses", "estimator"),
)


def _moments(experiment: Experiment, mdp: FiniteMDP, law: RewardLaw) -> Moments:
    """What is said about heavy tails; what is left out is read off the law."""
    order = 1.0 if experiment.moment_order is None else experiment.moment_order
    mean, bound = experiment.mean_bound, experiment.moment_bound
    if mean is None:
        mean = float(np.abs(mdp.rewards).max()) or 1.0
    return Moments(order, law.moment_bound(mean, order) if bound is None else bound, mean)


def generators(seed: int | None) -> tuple[np.random.SeedSequence, NoiseSource]:
    """Independent environment and noise from one seed; without a seed the noise is cryptographically secure."""
    environment, noise = np.random.SeedSequence(seed).spawn(2)
    return environment, NoiseSource.secure() if seed is None else NoiseSource.seeded(noise)


def run(experiment: Experiment, seed: int | None = 0, progress: Advance | None = None) -> RunResult:
    """Play all episodes and evaluate every distinct policy exactly.

    `seed=None` draws fresh randomness and secure noise; any seed makes the run a simulation.
    """
    setting, K = Setting.of(experiment), experiment.episodes
    environment, noise = generators(seed)
    simulator = MDPSimulator(setting.mdp, setting.law, environment, setting.problem.reward_range)
    triple, clock = setting.triple(seed), Clock()
    session = Session.open(triple, setting.problem, noise, setting.entry.feedback)
    hindsight = None if setting.sequence is None else Hindsight(simulator, setting.sequence, K, clock)
    meter = hindsight or RegretCurve(setting.mdp, K)
    parts: Iterable[tuple[Any, ...]]
    if compilable(triple, setting.spec, setting.law, K):  # then the stream is Exact
        parts = play_compiled(triple.agent, simulator, setting.spec, K, clock)  # type: ignore[arg-type]
    else:
        arrive = rollouts(simulator) if hindsight is None else hindsight.arrive
        parts = (epoch.played for epoch in play(session, arrive, clock))
    for part in parts:
        meter.add(*part)
        if progress is not None:
            progress(part[1])
    found = meter.measured()
    told = {"clipped_rewards": simulator.clipped} if hindsight is None else _of_losses(setting, triple)
    if isinstance(session.plan, Plan):
        told |= at_limits(session.plan)
    told |= _problem(experiment) | getattr(session.plan, "diagnostics", {}) | found.pop("diagnostics", {})
    return RunResult(
        setting.said.id,
        setting.said.settings,
        seed,
        guarantee=session.guarantee,
        seconds=clock.seconds,
        diagnostics=told,
        types={each.name: str(each.type).partition(" | ")[0] for each in fields(Experiment)},
        actions=setting.mdp.num_actions,
        law=setting.law.kind if setting.sequence is None else f"{setting.said.settings['adversary']} losses",
        **found,
    )


def _of_losses(setting: Setting, triple: catalog.Triple) -> dict[str, Any]:
    assert isinstance(triple.schedule, TwoClocks)
    loss_blocks, count_blocks = triple.schedule.num_loss_blocks, triple.schedule.num_count_blocks
    outlook = setting.forecast()
    warning = None if outlook.feasible else outlook.verdict
    return {"loss_blocks": loss_blocks, "count_blocks": count_blocks, "warning": warning}


def _problem(experiment: Experiment) -> dict[str, Any]:
    """What is kept of a model that was given as an object and has no name to find it by."""
    if not isinstance(mdp := experiment.env, FiniteMDP):
        return {}
    sizes = {"states": mdp.num_states, "actions": mdp.num_actions, "horizon": mdp.horizon}
    return {"problem": {"name": mdp.name, **sizes, "stationary": mdp.stationary, "sha256": mdp.digest}}


def warm_up(experiment: Experiment) -> None:
    """Compile (or load from the cache) everything the experiment will call, outside any measurement."""
    users = 3
    if experiment.entry.staged:
        spec = Setting.of(experiment).spec
        users = 8 * spec.horizon * spec.num_states * spec.num_actions  # holds one stage
    run(replace(experiment, episodes=min(experiment.episodes, users)), seed=0)


def run_seeds(
    experiment: Experiment,
    seeds: Sequence[int | None],
    jobs: int = 1,
    progress: Advance | None = None,
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
        results.append(stamped(result))
        if finished is not None:
            finished(results[-1])
    return results


def _results(
    experiment: Experiment, seeds: Sequence[int | None], jobs: int, progress: Advance | None
) -> Iterator[RunResult]:
    if jobs == 1 or len(seeds) == 1:
        yield from (run(experiment, seed, progress) for seed in seeds)
        return
    from joblib import Parallel, delayed

    for result in Parallel(n_jobs=jobs, return_as="generator")(
        delayed(_warm_run)(experiment, seed, registry.KNOWN.added(), catalog.KNOWN.added()) for seed in seeds
    ):
        if progress is not None:
            progress(experiment.episodes)
        yield result


def _warm_run(
    experiment: Experiment,
    seed: int | None,
    envs: Mapping[str, registry.EnvSpec],
    learners: Mapping[str, catalog.Algorithm],
) -> RunResult:
    registry.KNOWN.include(envs)
    catalog.KNOWN.include(learners)
    warm_up(experiment)
    return run(experiment, seed)
