"""What we claim to implement: paper name → (agent, privatizer, schedule), or a function from a log to a policy. The
command line, the documentation and the contract tests read this list; `recipes` says how each is built. A new
algorithm is one file, one recipe and one entry here; `register_algorithm` adds one from outside.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from discreet.envs.adversaries import ADVERSARIES
from discreet.privacy.accounting import Budget, Neighbours
from discreet.problem import Moments, PublicStructure

if TYPE_CHECKING:
    from discreet.bonuses import Kind
    from discreet.offline.learners import Outcome, Task
    from discreet.planning import Agent
    from discreet.privacy.protocol import Privatizer
    from discreet.schedules import Schedule


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
        "bonus": Option("bernstein", ("hoeffding", "bernstein")),
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


# The list -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """A function that is imported when it is called: the list is read far more often than a learner is built."""

    module: str
    name: str
    arguments: tuple[Any, ...] = ()

    def __call__(self, given: Any) -> Any:
        return getattr(import_module(self.module), self.name)(given, *self.arguments)


def _recipe(name: str, *arguments: Any) -> Callable[[Problem], Triple]:
    return Recipe("discreet.catalog.recipes", name, arguments)


def _learner(name: str) -> Callable[[Task], Outcome]:
    return Recipe("discreet.offline.learners", name)


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


ONLINE = ("joint", "local")
_ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        "ucbvi", "optimistic value iteration, Hoeffding bonus", "[AOM17] bonus 1", _recipe("ucbvi"), options=_PLAIN
    ),
    Algorithm(
        "ucbvi-bernstein",
        "optimistic value iteration, Bernstein bonus",
        "[AOM17] bonus 2",
        _recipe("ucbvi_bernstein"),
        options=_PLAIN,
    ),
    Algorithm("oppo", "optimistic policy optimisation (mirror descent)", "[SERM20]", _recipe("oppo"), options=_PLAIN),
    Algorithm(
        "spotlight",
        "one targeted report per user (ours)",
        "ours",
        _recipe("spotlight"),
        True,
        (*ONLINE, "shuffle"),
        twin="ucbvi-bernstein",
        options=_REPORTS,
    ),
    Algorithm(
        "dp-ucbvi",
        "private value iteration, Bernstein bonus",
        "[QW23] Alg. 1",
        _recipe("dp_ucbvi"),
        True,
        ONLINE,
        twin="ucbvi-bernstein",
        options=_COUNTS | {"bonus"},
    ),
    Algorithm(
        "private-ucb-vi",
        "private value iteration, Hoeffding bonus",
        "[CZ22]",
        _recipe("private_ucb_vi"),
        True,
        ONLINE,
        twin="ucbvi",
        options=_COUNTS,
    ),
    Algorithm(
        "private-ucb-po",
        "private policy optimisation",
        "[CZ22]",
        _recipe("private_ucb_po"),
        True,
        ONLINE,
        twin="oppo",
        options=_COUNTS,
    ),
    Algorithm(
        "private-heavy-ucbvi",
        "private value iteration, heavy-tailed rewards",
        "[WZCW23] Alg. 1",
        _recipe("heavy", False, True),
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
        _recipe("heavy", True, True),
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
        _recipe("heavy", False, False),
        heavy=True,
        options=_HEAVY,
    ),
    Algorithm(
        "heavy-ucbpo",
        "policy optimisation with truncated rewards",
        "[WZCW23], without privacy",
        _recipe("heavy", True, False),
        heavy=True,
        options=_HEAVY,
    ),
    Algorithm(
        "pucb",
        "the first private learner, Hoeffding bonus",
        "[VBKW20]",
        _recipe("pucb"),
        True,
        ("joint",),
        twin="ucbvi",
        options=_PLAIN | _DECLARED,
    ),
    Algorithm(
        "shuffle-ucbvi",
        "value iteration on shuffled bits, any size",
        "[QW23] × [BTZCC25] bits",
        _recipe("shuffle_ucbvi"),
        True,
        ("shuffle",),
        twin="ucbvi-bernstein",
        options=_BITS,
    ),
    Algorithm(
        "sdp-pe",
        "policy elimination on shuffled bits, tiny problems",
        "[BTZCC25] Alg. 1–4",
        _recipe("elimination", True),
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
        _recipe("elimination", False),
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
    _from_logs("one-hot", "one histogram of steps, the default (ours)", "ours", _learner("one_hot"), "apvi"),
    _from_logs("dp-apvi", "pessimistic value iteration on counts", "[QW22] Alg. 1", _learner("apvi"), "apvi"),
    _from_logs(
        "dp-pevi", "pessimistic regression, centred targets", "[JYW21] × [QW22] noise", _learner("pevi"), "pevi", True
    ),
    _from_logs(
        "dp-vapvi", "pessimistic regression, variance weights", "[QW22] Alg. 2", _learner("vapvi"), "vapvi", True
    ),
    _from_logs("apvi", "pessimistic value iteration on counts", "[YW21]", _learner("apvi")),
    _from_logs("pevi", "pessimistic regression", "[JYW21]", _learner("pevi"), features=True),
    _from_logs("vapvi", "pessimistic regression, variance weights", "[YDWW22]", _learner("vapvi"), features=True),
)

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({entry.name: entry for entry in _ALGORITHMS})


def algorithm(name: str) -> Algorithm:
    """The entry behind a name; an unknown name is answered with the nearest known one."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    near = difflib.get_close_matches(name, ALGORITHMS, n=1, cutoff=0.0)[0]
    raise ValueError(f"unknown algorithm {name!r}; did you mean {near!r}? Known are {', '.join(sorted(ALGORITHMS))}")
