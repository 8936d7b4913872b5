"""What we claim to implement: paper name → (agent, privatizer, schedule), or a function from a log to a policy. The
command line, the documentation and the contract tests read this list; a new algorithm is one file and one entry here.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from discreet.agents.heavy_tails import (
    HeavyEstimate,
    HeavyUCBPO,
    HeavyUCBVI,
    Moments,
    exact_rate,
    joint_rate,
    local_rate,
)
from discreet.agents.policy_elimination import PolicyElimination
from discreet.agents.policy_optimization import PolicyOptimization
from discreet.agents.spotlight import Spotlight
from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Azar, ChowdhuryZhou, Kind, Practical, QiaoWang, ShaniEfroni, Vietri
from discreet.envs.adversaries import ADVERSARIES
from discreet.offline.learners import Outcome, Task, apvi, one_hot, pevi, vapvi
from discreet.people.counts import CountSpec
from discreet.planning import Agent, Estimate
from discreet.privacy.accounting import Budget, Neighbours
from discreet.privacy.protocol import Privatizer
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalLaplace, LocalSampled
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.reports import Reports
from discreet.privacy.trust.shuffle import Shuffle, ShuffleBatches
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedExact, TruncatedLocal, TruncatedTree
from discreet.problem import PublicStructure
from discreet.releases.counts import PrivateCounts
from discreet.schedules import EveryEpisode, GeometricEpochs, Schedule


@dataclass(frozen=True)
class Problem:
    """The public facts a triple is configured with."""

    num_states: int
    num_actions: int
    horizon: int
    num_episodes: int
    pooled: bool = False
    schedule: str = "epochs"
    confidence_scale: float | None = None
    bonus: Kind = "bernstein"
    mode: str = "practical"
    epsilon: float | None = None
    delta: float = 0.0
    model: str = "joint"
    neighbours: Neighbours = "replace"
    local_reports: str = "sampled"
    honest: float = 1.0  # of shuffled users, the fraction that can be relied on
    structure: PublicStructure = field(default_factory=PublicStructure)
    moments: Moments = field(default_factory=Moments)
    tie_seed: int = 0

    def scale(self, default: float) -> float:
        return default if self.confidence_scale is None else self.confidence_scale

    @property
    def paper(self) -> bool:
        return self.mode == "paper"

    @property
    def budget(self) -> Budget:
        assert self.epsilon is not None
        return Budget.approximate(self.epsilon, self.delta) if self.delta > 0 else Budget.pure(self.epsilon)


class Triple(NamedTuple):
    agent: Agent[Any]  # of the releases that the privatizer makes
    privatizer: Privatizer[Any]
    schedule: Schedule


@dataclass(frozen=True)
class Algorithm:
    name: str
    summary: str
    source: str
    build: Callable[[Problem], Triple]
    private: bool = False
    models: tuple[str, ...] = ("joint",)
    heavy: bool = False  # takes rewards without a bound
    twin: str | None = None  # the learner without privacy that it is compared with
    runner: str = "online"  # "adversarial": losses chosen by an adversary; "offline": from a log, by `discreet fit`
    staged: bool = False  # learns in stages of a fixed least size
    options: frozenset[str] = frozenset()  # names of `OPTIONS` that change what it does; all others are refused
    learn: Callable[[Task], Outcome] | None = None  # offline only
    features: bool = False  # offline: learns from features of states and actions


MODES = ("practical", "paper")
SCHEDULES = ("every", "epochs")
LOCAL_REPORTS = ("sampled", "laplace")


# What a learner can be told -----------------------------------------------------------------------------------------


class Option(NamedTuple):
    """A setting that some learners have: what it is when nothing is said, and its choices where they are few."""

    default: str | float | bool | None = None  # None: the learner's or the law's own
    choices: tuple[str, ...] = ()


#: Every learner's budget, environment and number of users apart, this is all there is to say.
OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "pooled": Option(False),
        "schedule": Option("epochs", SCHEDULES),
        "confidence_scale": Option(),
        "bonus": Option("bernstein", get_args(Kind)),
        "mode": Option("practical", MODES),
        "local_reports": Option("sampled", LOCAL_REPORTS),
        "honest": Option(1.0),
        "public_initial": Option(True),
        "known_successors": Option(False),
        "known_zero_rewards": Option(False),
        "moment_order": Option(1.0),
        "moment_bound": Option(),
        "mean_bound": Option(),
        "adversary": Option("iid", ADVERSARIES),
        "losses": Option("private", ("private", "public")),
        "estimator": Option("corrected", ("corrected", "paper")),
    }
)

_DECLARED = frozenset({"known_successors", "known_zero_rewards"})
_MOMENTS = frozenset({"moment_order", "moment_bound", "mean_bound"})
_PLAIN = frozenset({"pooled", "schedule", "confidence_scale", "mode"})
_COUNTS = _PLAIN | _DECLARED | {"local_reports"}
_HEAVY = _PLAIN | _DECLARED | _MOMENTS
_REPORTS = _DECLARED | {"pooled", "confidence_scale", "honest", "public_initial"}
_BITS = _DECLARED | {"pooled", "confidence_scale", "mode", "bonus", "honest"}
_ELIMINATION = frozenset({"confidence_scale", "mode", "known_successors"})
_LOSSES = frozenset({"confidence_scale", "mode", "adversary"})


def settled(
    entry: Algorithm, option: str, mode: str | None, model: str | None
) -> tuple[str | bool | None, str] | None:
    """The one value that an option can have in this form of a learner, and why; None where there is a choice.

    A value of None says that the option has no meaning there.
    """
    name = entry.name
    if option == "honest" and model != "shuffle":
        return None, "honest is the fraction of users who add their noise, in the shuffle model only"
    if option == "public_initial" and option not in entry.options:
        if entry.runner == "adversarial" or entry.staged:
            return True, f"{name} cannot do without a public start"
        return False, f"{name} makes no use of where episodes start"
    if option == "pooled" and option not in entry.options:
        return False, f"{name} learns every step by itself, so its counts cannot be pooled"
    if option == "mode" and option not in entry.options:
        return "practical", f"{name} has one form only"
    if option not in entry.options:
        return (False if OPTIONS[option].default is False else None), f"{name} has no use for {dashed(option)}"
    if option == "local_reports" and model != "local":
        return None, "local-reports is for the local model only"
    if mode == "paper" and option == "local_reports":
        return "laplace", f"in paper mode {name} adds noise to every counter"
    if mode == "paper" and option == "schedule" and (entry.private or entry.heavy):
        return "every", f"in paper mode {name} plans after every episode"
    return None


def settings_of(entry: Algorithm) -> frozenset[str]:
    """Everything that can be said about a run of a learner beside its name."""
    budget = {"epsilon", "delta", "model", "neighbours"} if entry.private else set()
    law = {"reward_law", "alpha", "df", "tail_index"} if entry.runner == "online" else set()
    return entry.options | budget | law | {"env", "states", "horizon", "instance", "episodes"}


def dashed(option: str) -> str:
    """The name of an option as it is written on the command line."""
    return option.replace("_", "-")


# Without privacy ----------------------------------------------------------------------------------------------------


def _schedule(problem: Problem) -> Schedule:
    return EveryEpisode() if problem.schedule == "every" else GeometricEpochs()


def _azar(problem: Problem, kind: Kind, default: float) -> Triple:
    scale = problem.scale(1.0 if problem.paper else default)
    agent = UCBVI(Azar(problem.num_episodes, kind, scale), monotone=scale >= 1.0, tie_seed=problem.tie_seed)
    return Triple(agent, Exact(), _schedule(problem))


def _ucbvi(problem: Problem) -> Triple:
    return _azar(problem, "hoeffding", 0.001)


def _ucbvi_bernstein(problem: Problem) -> Triple:
    return _azar(problem, "bernstein", 0.003)


def _oppo(problem: Problem) -> Triple:
    scale, rate = (problem.scale(1.0), 1.0) if problem.paper else (problem.scale(0.003), 10.0)
    agent = PolicyOptimization(ShaniEfroni(problem.num_episodes, scale), problem.num_episodes, rate)
    return Triple(agent, Exact(), _schedule(problem))


# Count-based private learners ---------------------------------------------------------------------------------------


def count_privatizer(problem: Problem) -> Privatizer[PrivateCounts]:
    """The release of counts: a tree where a policy follows every episode, fresh noise per epoch elsewhere."""
    if problem.model == "local":
        return LocalLaplace(problem.budget) if problem.local_reports == "laplace" else LocalSampled(problem.budget)
    if problem.schedule == "every":
        return Tree(problem.budget, problem.neighbours)
    return Epochs(problem.budget, problem.neighbours, window="restart")


def count_schedule(problem: Problem) -> Schedule:
    """Every episode, or epochs that start at twice the standard deviation of the noise: shorter ones say nothing.

    Local noise grows with the users, so local epochs double instead.
    """
    if problem.schedule == "every":
        return EveryEpisode()
    if problem.model == "local":
        return GeometricEpochs(growth=1.5, first=max(1, problem.num_episodes // 200))
    H = problem.horizon
    spread = math.sqrt(2) * (6 if problem.neighbours == "replace" else 3) * H / (problem.epsilon or math.inf)
    return GeometricEpochs(growth=1.2, first=max(1, min(int(2 * spread), problem.num_episodes // 20)))


def _private(problem: Problem, paper: Estimate, practical: Estimate, monotone: bool = False) -> Triple:
    if problem.paper:
        agent = UCBVI(paper, monotone, problem.tie_seed)
        return Triple(
            agent, count_privatizer(replace(problem, schedule="every", local_reports="laplace")), EveryEpisode()
        )
    agent = UCBVI(practical, tie_seed=problem.tie_seed)
    return Triple(agent, count_privatizer(problem), count_schedule(problem))


def _dp_ucbvi(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    paper = QiaoWang(K, problem.bonus, problem.scale(1.0), structure=facts)
    return _private(problem, paper, Practical(K, problem.bonus, problem.scale(1.0), structure=facts), monotone=True)


def _private_ucb_vi(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    paper = ChowdhuryZhou(K, False, problem.scale(1.0), structure=facts)
    return _private(problem, paper, Practical(K, "hoeffding", problem.scale(0.1), structure=facts))


def _pucb(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    paper = Vietri(K, problem.scale(1.0), structure=facts)
    return _private(problem, paper, Practical(K, "hoeffding", problem.scale(0.1), unknown_below=2.0, structure=facts))


def _private_ucb_po(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    if problem.paper:
        paper = ChowdhuryZhou(K, True, problem.scale(1.0), structure=facts)
        privatizer = count_privatizer(replace(problem, schedule="every", local_reports="laplace"))
        return Triple(PolicyOptimization(paper, K), privatizer, EveryEpisode())
    estimate = Practical(K, "bernstein", problem.scale(1.0), structure=facts)
    return Triple(PolicyOptimization(estimate, K, 10.0), count_privatizer(problem), count_schedule(problem))


# Heavy-tailed rewards -----------------------------------------------------------------------------------------------


def _heavy(problem: Problem, policy_optimisation: bool, private: bool) -> Triple:
    shape = problem.horizon, problem.num_states, problem.num_actions
    K, beta, local = problem.num_episodes, 0.1, problem.model == "local"
    every = problem.paper or problem.schedule == "every"
    privatizer: Privatizer[PrivateCounts] = TruncatedExact()
    schedule: Schedule = EveryEpisode() if every else GeometricEpochs()
    rate = exact_rate(shape, K, beta)
    if private:
        if problem.delta > 0:
            raise ValueError("heavy-tailed learners spend pure epsilon: leave delta at 0")
        assert problem.epsilon is not None
        rate = (local_rate if local else joint_rate)(shape, K, problem.epsilon, beta)
        rate *= 1.0 if problem.paper else 10.0  # the printed thresholds cut off most of what they should count
        schedule = EveryEpisode() if every else count_schedule(problem)
        if local:
            privatizer = TruncatedLocal(problem.budget)
        elif every:
            privatizer = TruncatedTree(problem.budget, problem.neighbours)
        else:
            privatizer = TruncatedEpochs(problem.budget, problem.neighbours, window="restart")
    estimate = HeavyEstimate(
        K,
        problem.moments,
        rate,
        root=private and local,
        practical=not problem.paper,
        policy_optimisation=policy_optimisation,
        confidence_scale=problem.scale(1.0 if problem.paper else 0.1 if private else 0.03),
        structure=problem.structure,
    )
    if policy_optimisation:
        return Triple(HeavyUCBPO(estimate, K, 1.0 if problem.paper else 30.0), privatizer, schedule)
    return Triple(HeavyUCBVI(estimate, problem.tie_seed), privatizer, schedule)


def _spotlight(problem: Problem) -> Triple:
    local, facts = problem.model == "local", problem.structure
    agent = Spotlight.configured(problem.num_episodes, facts, local, problem.confidence_scale, problem.tie_seed)
    if local:
        return Triple(agent, LocalReports(problem.budget, facts, problem.neighbours), GeometricEpochs())
    if problem.model == "shuffle":
        return Triple(
            agent, ShuffleReports(problem.budget, problem.neighbours, facts, problem.honest), GeometricEpochs()
        )
    return Triple(agent, Reports(problem.budget, problem.neighbours, structure=facts), GeometricEpochs())


def _no_triple(problem: Problem) -> Triple:
    raise ValueError("this learner is no triple; it is run by discreet.runs.adversarial or discreet.offline.fitting")


def _adversarial(
    name: str, summary: str, source: str, twin: str | None = None, options: frozenset[str] = _LOSSES
) -> Algorithm:
    private = twin is not None
    models = ONLINE if private else ("joint",)
    return Algorithm(
        name, summary, source, _no_triple, private, models, twin=twin, runner="adversarial", options=options
    )


def _from_logs(
    name: str,
    summary: str,
    source: str,
    learn: Callable[[Task], Outcome],
    twin: str | None = None,
    features: bool = False,
) -> Algorithm:
    """A private learner names its twin, which is the same function without a budget."""
    private = twin is not None
    models = ("central",) if private else ("none",)
    return Algorithm(
        name,
        summary,
        source,
        _no_triple,
        private,
        models,
        twin=twin,
        runner="offline",
        learn=learn,
        features=features,
    )


# Shuffled bits ------------------------------------------------------------------------------------------------------


def _shuffle_ucbvi(problem: Problem) -> Triple:
    """Batches that grow by a fifth, from eight standard deviations of their noise on: smaller ones say nothing."""
    K, facts = problem.num_episodes, problem.structure
    calibration: Literal["exact", "paper"] = "paper" if problem.paper else "exact"
    privatizer = Shuffle(
        problem.budget, problem.neighbours, problem.honest, window="restart", calibration=calibration
    )
    spec = CountSpec(problem.num_states, problem.num_actions, problem.horizon, problem.pooled)
    deviation = math.sqrt(privatizer.law(spec).variance(max(K, 2)))
    schedule = GeometricEpochs(1.2, max(2, min(int(8 * deviation), K // 20)))
    if problem.paper:
        paper = QiaoWang(K, problem.bonus, problem.scale(1.0), structure=facts)
        return Triple(UCBVI(paper, True, problem.tie_seed), privatizer, schedule)
    estimate = Practical(K, problem.bonus, problem.scale(1.0), structure=facts)
    return Triple(UCBVI(estimate, tie_seed=problem.tie_seed), privatizer, schedule)


def _elimination(problem: Problem, private: bool) -> Triple:
    """Printed constants, or scaled ones that still keep the best policy (docs/shuffle.md)."""
    if problem.pooled:
        raise ValueError("policies are eliminated on counts per step; leave --pooled out")
    K, facts = problem.num_episodes, problem.structure
    if problem.paper:
        agent = PolicyElimination(K, facts, problem.scale(1.0))
    else:
        first = min(128 * problem.horizon * problem.num_states * problem.num_actions, K // 8)
        agent = PolicyElimination(K, facts, problem.scale(0.1), 1e-3, 1e-3, shift=False, exploit=True, first=first)
    agent.policies((problem.horizon, problem.num_states, problem.num_actions))
    budget = problem.budget if private else None
    calibration: Literal["exact", "paper"] = "paper" if problem.paper else "exact"
    privatizer = ShuffleBatches(budget, problem.neighbours, problem.honest, calibration=calibration)
    return Triple(agent, privatizer, GeometricEpochs(2.0, 2))


ONLINE = ("joint", "local")
_ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("ucbvi", "optimistic value iteration, Hoeffding bonus", "[AOM17] bonus 1", _ucbvi, options=_PLAIN),
    Algorithm(
        "ucbvi-bernstein",
        "optimistic value iteration, Bernstein bonus",
        "[AOM17] bonus 2",
        _ucbvi_bernstein,
        options=_PLAIN,
    ),
    Algorithm("oppo", "optimistic policy optimisation (mirror descent)", "[SERM20]", _oppo, options=_PLAIN),
    Algorithm(
        "spotlight",
        "one targeted report per user (ours)",
        "ours",
        _spotlight,
        True,
        (*ONLINE, "shuffle"),
        twin="ucbvi-bernstein",
        options=_REPORTS,
    ),
    Algorithm(
        "dp-ucbvi",
        "private value iteration, Bernstein bonus",
        "[QW23] Alg. 1",
        _dp_ucbvi,
        True,
        ONLINE,
        twin="ucbvi-bernstein",
        options=_COUNTS | {"bonus"},
    ),
    Algorithm(
        "private-ucb-vi",
        "private value iteration, Hoeffding bonus",
        "[CZ22]",
        _private_ucb_vi,
        True,
        ONLINE,
        twin="ucbvi",
        options=_COUNTS,
    ),
    Algorithm(
        "private-ucb-po",
        "private policy optimisation",
        "[CZ22]",
        _private_ucb_po,
        True,
        ONLINE,
        twin="oppo",
        options=_COUNTS,
    ),
    Algorithm(
        "private-heavy-ucbvi",
        "private value iteration, heavy-tailed rewards",
        "[WZCW23] Alg. 1",
        lambda problem: _heavy(problem, False, True),
        True,
        ONLINE,
        heavy=True,
        twin="heavy-ucbvi",
        options=_HEAVY,
    ),
    Algorithm(
        "private-heavy-ucbpo",
        "private policy optimisation, heavy-tailed rewards",
        "[WZCW23] Alg. 3",
        lambda problem: _heavy(problem, True, True),
        True,
        ONLINE,
        heavy=True,
        twin="heavy-ucbpo",
        options=_HEAVY,
    ),
    Algorithm(
        "heavy-ucbvi",
        "value iteration with truncated rewards",
        "[WZCW23], without privacy",
        lambda problem: _heavy(problem, False, False),
        heavy=True,
        options=_HEAVY,
    ),
    Algorithm(
        "heavy-ucbpo",
        "policy optimisation with truncated rewards",
        "[WZCW23], without privacy",
        lambda problem: _heavy(problem, True, False),
        heavy=True,
        options=_HEAVY,
    ),
    Algorithm(
        "pucb",
        "the first private learner, Hoeffding bonus",
        "[VBKW20]",
        _pucb,
        True,
        ("joint",),
        twin="ucbvi",
        options=_PLAIN | _DECLARED,
    ),
    Algorithm(
        "shuffle-ucbvi",
        "value iteration on shuffled bits, any size",
        "[QW23] × [BTZCC25] bits",
        _shuffle_ucbvi,
        True,
        ("shuffle",),
        twin="ucbvi-bernstein",
        options=_BITS,
    ),
    Algorithm(
        "sdp-pe",
        "policy elimination on shuffled bits, tiny problems",
        "[BTZCC25] Alg. 1–4",
        lambda problem: _elimination(problem, True),
        True,
        ("shuffle",),
        twin="apeve",
        staged=True,
        options=_ELIMINATION | {"honest"},
    ),
    Algorithm(
        "apeve",
        "policy elimination, tiny problems",
        "[QYMW22]",
        lambda problem: _elimination(problem, False),
        staged=True,
        options=_ELIMINATION,
    ),
)

_ALGORITHMS += (
    _adversarial(
        "private-uc-o-reps",
        "adversarial losses, all of them seen",
        "[BZZDTCC24] Alg. 1",
        "uc-o-reps",
        _LOSSES | {"losses"},
    ),
    _adversarial(
        "private-uob-lbps",
        "adversarial losses, seen along the way",
        "[BZZDTCC24] Alg. 3",
        "uob-lbps",
        _LOSSES | {"losses", "estimator"},
    ),
    _adversarial("uc-o-reps", "regularised leader over occupancy measures", "[RM19]"),
    _adversarial(
        "uob-lbps",
        "log-barrier mirror descent, bandit losses",
        "[BZZDTCC24], without privacy",
        options=_LOSSES | {"estimator"},
    ),
    _adversarial("uob-reps", "entropy mirror descent, bandit losses", "[JJLSY20]", options=_LOSSES | {"estimator"}),
    _adversarial(
        "follow-the-leader",
        "best policy for the losses so far; a baseline",
        "folklore",
        options=frozenset({"adversary"}),
    ),
)

_ALGORITHMS += (
    _from_logs("one-hot", "one histogram of steps, the default (ours)", "ours", one_hot, "apvi"),
    _from_logs("dp-apvi", "pessimistic value iteration on counts", "[QW22] Alg. 1", apvi, "apvi"),
    _from_logs("dp-pevi", "pessimistic regression, centred targets", "[JYW21] × [QW22] noise", pevi, "pevi", True),
    _from_logs("dp-vapvi", "pessimistic regression, variance weights", "[QW22] Alg. 2", vapvi, "vapvi", True),
    _from_logs("apvi", "pessimistic value iteration on counts", "[YW21]", apvi),
    _from_logs("pevi", "pessimistic regression", "[JYW21]", pevi, features=True),
    _from_logs("vapvi", "pessimistic regression, variance weights", "[YDWW22]", vapvi, features=True),
)

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({entry.name: entry for entry in _ALGORITHMS})


def algorithm(name: str) -> Algorithm:
    """The entry behind a name; an unknown name is answered with the nearest known one."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    near = difflib.get_close_matches(name, ALGORITHMS, n=1, cutoff=0.0)[0]
    raise ValueError(f"unknown algorithm {name!r}; did you mean {near!r}? Known are {', '.join(sorted(ALGORITHMS))}")
