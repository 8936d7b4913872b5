"""What we claim to implement: paper name → (agent, privatizer, schedule), or a function from a log to a policy. The
command line, the documentation and the contract tests read this list; `recipes` says how each is built. A new
algorithm is one file, one recipe and one entry here; `register_algorithm` adds one from outside.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from discreet import plugins
from discreet.envs.adversaries import ADVERSARIES
from discreet.problem import Problem

if TYPE_CHECKING:
    from discreet.device.losses import Feedback
    from discreet.offline.learners import Outcome, Task
    from discreet.planning import Agent
    from discreet.privacy.protocol import Privatizer
    from discreet.privacy.trust.losses import LossPrivatizer
    from discreet.schedules import Schedule


class Triple(NamedTuple):
    """What learns, what makes its data private, and when it plans again."""

    agent: Agent[Any]  # of the releases that the privatizer makes
    privatizer: Privatizer[Any] | LossPrivatizer
    schedule: Schedule


@dataclass(frozen=True)
class Algorithm:
    """An entry of the catalog: a name, where it comes from, what it may be told, and how it is built."""

    name: str
    summary: str
    source: str
    build: Callable[[Problem], Triple]
    private: bool = False
    models: tuple[str, ...] = ("joint",)
    heavy: bool = False  # takes rewards without a bound
    twin: str | None = None  # the learner without privacy that it is compared with
    runner: str = "online"  # "adversarial": losses chosen by an adversary; "offline": from a log, by `discreet fit`
    feedback: Feedback | None = None  # adversarial: what is seen of the losses
    staged: bool = False  # learns in stages of a fixed least size
    options: frozenset[str] = frozenset()  # names of `OPTIONS` that change what it does; all others are refused
    learn: Callable[[Task], Outcome] | None = None  # offline only
    features: bool = False  # offline: learns from features of states and actions
    zcdp: tuple[str, ...] = ()  # the models in which its noise may be Gaussian, for a budget in rho

    @property
    def practical(self) -> str | None:
        """What its default form is, where `source` is that of the other one only; None where there is one form."""
        two = self.source != "ours" if self.runner == "offline" else "mode" in self.options
        return "discreet's own learner" if two else None


MODES = ("practical", "paper")
NOISES = ("true", "printed")
SCHEDULES = ("every", "epochs")
LOCAL_REPORTS = ("sampled", "laplace", "gaussian")


# What a learner can be told -----------------------------------------------------------------------------------------


class Option(NamedTuple):
    """A setting that some learners have: what it is when nothing is said, and its choices where they are few."""

    default: str | float | bool | None = None  # None: the learner's or the law's own
    choices: tuple[str, ...] = ()


#: Every learner's budget, environment and number of users apart, this is all there is to say.
OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "pooled": Option(False),
        "allow_pooled": Option(False),
        "schedule": Option("epochs", SCHEDULES),
        "confidence_scale": Option(),
        "rate_scale": Option(),
        "beta": Option(),
        "bonus": Option("bernstein", ("hoeffding", "bernstein")),
        "mode": Option("practical", MODES),
        "noise": Option("true", NOISES),
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
_PRINTED = frozenset({"noise"})  # a paper prints the scale of its noise
_PLAIN = frozenset({"pooled", "schedule", "confidence_scale", "beta", "mode"})
_STAGED = frozenset({"allow_pooled"})  # its paper counts every step by itself
_RATE = frozenset({"rate_scale"})
_COUNTS = _PLAIN | _DECLARED | _STAGED | {"local_reports"}
_HEAVY = _PLAIN | _DECLARED | _MOMENTS | _STAGED
_REPORTS = _DECLARED | {"pooled", "confidence_scale", "honest", "public_initial"}
_BITS = _DECLARED | _STAGED | {"pooled", "beta", "confidence_scale", "mode", "bonus", "honest"}
_ELIMINATION = frozenset({"confidence_scale", "beta", "mode", "known_successors"})
_LOSSES = frozenset({"confidence_scale", "beta", "rate_scale", "mode", "adversary"})


def settled(
    entry: Algorithm, option: str, said: Mapping[str, Any], trust: str | None
) -> tuple[str | bool | None, str] | None:
    """The one value that an option can have in this form of a learner, and why; None where there is a choice.

    A value of None says that the option has no meaning there. `said` are the experiment's options, and whether its
    budget is "gaussian": in ρ or (ε, δ).
    """
    name, mode = entry.name, said["mode"]
    if option == "honest" and trust != "shuffle":
        return None, "honest is the fraction of users who add their noise, in the shuffle model only"
    if option == "public_initial" and option not in entry.options:
        if entry.runner == "adversarial" or entry.staged:
            return True, f"{name} cannot do without a public start"
        return False, f"{name} makes no use of where episodes start"
    if option == "pooled" and option not in entry.options:
        return False, f"{name} learns every step by itself, so its counts cannot be pooled"
    if option == "mode" and option not in entry.options:
        return "practical", f"{name} has one form only"
    if option == "noise" and option not in entry.options:
        return (
            None,
            f"no paper at hand prints a scale for the noise of {name}" if entry.private else f"{name} adds no noise",
        )
    if option not in entry.options:
        return (False if OPTIONS[option].default is False else None), f"{name} has no use for {dashed(option)}"
    if option == "local_reports" and trust != "local":
        return None, "local-reports is for the local model only"
    if option == "local_reports" and said["gaussian"] and said["noise"] != "printed":
        return "gaussian", "in the local model rho, or epsilon with delta, buys Gaussian noise on every counter"
    if mode == "paper" and option == "local_reports":
        return "laplace", f"in paper mode {name} adds noise to every counter"
    if said["noise"] == "printed" and option == "local_reports":
        return "laplace", f"the printed noise of {name} is on every counter"
    if option == "local_reports" and said[option] == "gaussian":
        return "sampled", "Gaussian noise never gives pure epsilon: it needs rho, or a delta"
    pooled_paper = mode == "paper" and said["pooled"]
    if option == "allow_pooled" and not pooled_paper:
        return False, "allow-pooled is for printed constants on pooled counts"
    if option == "pooled" and pooled_paper and "allow_pooled" in entry.options and not said["allow_pooled"]:
        return False, f"the printed constants of {name} are for counts of every step, unless --allow-pooled is said"
    if mode == "paper" and option == "schedule":
        return "every", f"in paper mode {name} plans after every episode"
    return None


def default_of(entry: Algorithm, option: str, said: Mapping[str, Any]) -> str | float | bool | None:
    """What holds when nothing is said of an option that there is a choice in."""
    if option == "estimator" and entry.private and said["mode"] == "paper":
        return "paper"
    return OPTIONS[option].default


def settings_of(entry: Algorithm) -> frozenset[str]:
    """Everything that can be said about a run of a learner beside its name."""
    budget = {"epsilon", "delta", "rho", "model", "neighbours"} if entry.private else set()
    law = {"reward_law", "alpha", "df", "tail_index", "discount"} if entry.runner == "online" else set()
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


def _against(name: str, *arguments: Any) -> Callable[[Problem], Triple]:
    """The recipe of a learner of an adversary's losses."""
    return Recipe("discreet.catalog.losses", name, arguments)


def _learner(name: str) -> Callable[[Task], Outcome]:
    return Recipe("discreet.offline.learners", name)


def _no_triple(problem: Problem) -> Triple:
    raise ValueError("a learner from logs is no triple; it is run by discreet.offline.fitting")


def _acts(
    name: str,
    summary: str,
    source: str,
    options: frozenset[str],
    twin: str | None = None,
    models: tuple[str, ...] | None = None,
    build: Callable[[Problem], Triple] | None = None,
    feedback: Feedback | None = None,
    **more: Any,
) -> Algorithm:
    """A learner that acts; one with a twin is private. Its recipe has its name, unless another is given."""
    private, runner = twin is not None, "online" if feedback is None else "adversarial"
    build, models = build or _recipe(name.replace("-", "_")), models or (ONLINE if private else ("joint",))
    claims = (name, summary, source, build, private, models)
    return Algorithm(*claims, twin=twin, runner=runner, feedback=feedback, options=options, **more)


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
    claims = (name, summary, source, _no_triple, private, ("central",) if private else ("none",))
    return Algorithm(*claims, twin=twin, runner="offline", learn=learn, features=features)


ONLINE = ("joint", "local")
#: Whom people trust: a curator, one of two servers, nobody, or a shuffler.
TRUST = ("joint", "two-servers", "local", "shuffle")
# fmt: off
_ALGORITHMS: tuple[Algorithm, ...] = (
    _acts("ucbvi", "optimistic value iteration, Hoeffding bonus", "[AOM17] bonus 1, recalled", _PLAIN),
    _acts("ucbvi-bernstein", "optimistic value iteration, Bernstein bonus", "[AOM17] bonus 2, recalled", _PLAIN),
    _acts("oppo", "optimistic policy optimisation (mirror descent)", "[SERM20], recalled", _PLAIN | _RATE),
    _acts("spotlight", "one targeted report per user (ours)", "ours", _REPORTS, "ucbvi-bernstein", TRUST),
    _acts("dp-ucbvi", "private value iteration, Bernstein bonus", "[QW23] Alg. 1",
          _COUNTS | _PRINTED | {"bonus"}, "ucbvi-bernstein", zcdp=ONLINE),
    _acts("private-ucb-vi", "private value iteration, Hoeffding bonus", "[CZ22], in part recalled",
          _COUNTS | _PRINTED, "ucbvi", zcdp=ONLINE),
    _acts("private-ucb-po", "private policy optimisation", "[CZ22], in part recalled",
          _COUNTS | _PRINTED | _RATE, "oppo", zcdp=ONLINE),
    _acts("private-heavy-ucbvi", "private value iteration, heavy-tailed rewards", "[WZCW23] Alg. 1",
          _HEAVY | _PRINTED, "heavy-ucbvi", build=_recipe("heavy", False, True), heavy=True),
    _acts("private-heavy-ucbpo", "private policy optimisation, heavy-tailed rewards", "[WZCW23] Alg. 3",
          _HEAVY | _PRINTED | _RATE, "heavy-ucbpo", build=_recipe("heavy", True, True), heavy=True),
    _acts("heavy-ucbvi", "private-heavy-ucbvi without noise", "[WZCW23] without noise",
          _HEAVY, build=_recipe("heavy", False, False), heavy=True),
    _acts("heavy-ucbpo", "private-heavy-ucbpo without noise", "[WZCW23] without noise",
          _HEAVY | _RATE, build=_recipe("heavy", True, False), heavy=True),
    _acts("pucb", "the first private learner, Hoeffding bonus", "[VBKW20], recalled",
          _PLAIN | _DECLARED | _STAGED, "ucbvi", ("joint",), zcdp=("joint",)),
    _acts("shuffle-ucbvi", "value iteration on shuffled bits, any size", "[QW23] × [BTZCC25] bits",
          _BITS | _PRINTED, "ucbvi-bernstein", ("shuffle",)),
    _acts("sdp-pe", "policy elimination on shuffled bits, tiny problems", "[BTZCC25] Alg. 1–4",
          _ELIMINATION | _PRINTED | {"honest"}, "apeve", ("shuffle",), _recipe("elimination", True), staged=True),
    _acts("apeve", "policy elimination without privacy, tiny problems", "[QYMW22], recalled",
          _ELIMINATION, build=_recipe("elimination", False), staged=True),
    _acts("private-uc-o-reps", "adversarial losses, all of them seen", "[BZZDTCC24] Alg. 1",
          _LOSSES | _PRINTED | {"losses"}, "uc-o-reps", build=_against("uc_o_reps"), feedback="full",
          zcdp=ONLINE),
    _acts("private-uob-lbps", "adversarial losses, seen along the way", "[BZZDTCC24] Alg. 3",
          _LOSSES | _PRINTED | {"losses", "estimator"}, "uob-lbps", build=_against("uob"), feedback="bandit",
          zcdp=ONLINE),
    _acts("uc-o-reps", "adversarial losses, all of them seen, no privacy", "[RM19], recalled",
          _LOSSES, build=_against("uc_o_reps"), feedback="full"),
    _acts("uob-lbps", "private-uob-lbps without noise", "[BZZDTCC24] without noise",
          _LOSSES | {"estimator"}, build=_against("uob"), feedback="bandit"),
    _acts("uob-reps", "adversarial losses, seen along the way, no privacy", "[JJLSY20], recalled",
          _LOSSES | {"estimator"}, build=_against("uob", "entropy"), feedback="bandit"),
    _acts("follow-the-leader", "best policy for the losses so far; a baseline", "folklore",
          frozenset({"adversary"}), build=_against("follow_the_leader"), feedback="full"),
)
# fmt: on

_ALGORITHMS += (
    _from_logs("one-hot", "one histogram of steps, the default (ours)", "ours", _learner("one_hot"), "apvi"),
    _from_logs(
        "columns",
        "declared columns: a tree, a histogram, a private choice (ours)",
        "ours",
        _learner("columns"),
        "apvi",
    ),
    _from_logs("dp-apvi", "pessimistic value iteration on counts", "[QW22] Alg. 1", _learner("apvi"), "apvi"),
    _from_logs(
        "dp-pevi", "pessimistic regression, centred targets", "[JYW21] × [QW22] noise", _learner("pevi"), "pevi", True
    ),
    _from_logs(
        "dp-vapvi", "pessimistic regression, variance weights", "[QW22] Alg. 2", _learner("vapvi"), "vapvi", True
    ),
    _from_logs("apvi", "pessimistic value iteration on counts", "[YW21], recalled", _learner("apvi")),
    _from_logs("pevi", "pessimistic regression", "[JYW21], recalled", _learner("pevi"), features=True),
    _from_logs("vapvi", "pessimistic regression, variance weights", "[YDWW22]", _learner("vapvi"), features=True),
)

KNOWN = plugins.Known("a learner", {entry.name: entry for entry in _ALGORITHMS})

#: Ours, and those that were added.
ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(KNOWN)


def algorithm(name: str) -> Algorithm:
    """The entry behind a name; an unknown name is answered with the nearest known one."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    failures = load_plugins()
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    near = difflib.get_close_matches(name, ALGORITHMS, n=1, cutoff=0.0)[0]
    known = f"unknown algorithm {name!r}; did you mean {near!r}? Known are {', '.join(sorted(ALGORITHMS))}"
    raise ValueError("; ".join([known, *failures]))


# Somebody else's ----------------------------------------------------------------------------------------------------

#: Packages name their learners in this group of entry points.
GROUP = "discreet.algorithms"


def register_algorithm(entry: Algorithm) -> None:
    """Make a learner known by its name, for `Experiment` and, from an entry point, for `discreet run`."""
    if not isinstance(entry, Algorithm):
        raise ValueError(f"the learner is {entry!r}; expected a discreet.Algorithm")
    KNOWN.check(entry.name)
    if entry.runner != "online":
        raise ValueError(f"{entry.name} has the runner {entry.runner!r}; only learners that act can be added: online")
    if unknown := sorted(entry.options - OPTIONS.keys()):
        raise ValueError(f"{entry.name} has the option {unknown[0]!r}; the choices are {', '.join(OPTIONS)}")
    if unknown := sorted(set(entry.models) - set(TRUST)):
        raise ValueError(f"{entry.name} has the model {unknown[0]!r}; the choices are {', '.join(TRUST)}")
    KNOWN[entry.name] = entry


def load_plugins() -> list[str]:
    """Add the learners of other packages; what is wrong with some of them, in sentences."""

    def take(name: str, found: Any) -> None:
        if isinstance(found, Algorithm) and found.name != name:
            raise ValueError(f"it is a learner named {found.name!r}")
        register_algorithm(found)

    return plugins.load(GROUP, take)


#: A learner of one's own: an agent, a triple, a function that builds one from public facts, or an entry.
Own: TypeAlias = "Algorithm | Triple | tuple[Any, Any, Any] | Agent[Any] | Callable[[Problem], Triple]"


def own(learner: Own, private: bool) -> Algorithm:
    """The entry of somebody's own learner.

    An agent learns from counts: exact ones, or with a budget (`private`) those that `count_privatizer` releases. A
    function is told everything that is public. A triple has its budget in its privatizer.
    """
    if isinstance(learner, Algorithm):
        return learner
    if isinstance(learner, type):
        raise ValueError(f"{learner.__name__} is a class; give one of its objects, {learner.__name__}(…)")
    if isinstance(learner, tuple):
        return _own_triple(learner)
    if callable(getattr(learner, "plan", None)):
        build: Callable[[Problem], Triple] = _recipe("own_agent", learner)
        options = frozenset({"pooled", "schedule", "local_reports"})
        return _own_entry(type(learner).__name__, build, private, ONLINE, options, ONLINE)
    if callable(learner):
        name = getattr(learner, "__name__", type(learner).__name__).strip("<>")
        return _own_entry(name, learner, private, TRUST, _BITS | _COUNTS | _REPORTS, TRUST)
    raise ValueError(
        f"the learner is {learner!r}; expected a name, an agent with `plan`, a triple (agent, privatizer, schedule) "
        f"or a function that returns one"
    )


def _own_triple(learner: tuple[Any, ...]) -> Algorithm:
    roles = {"agent": "plan", "privatizer": "open", "schedule": "length"}
    if len(learner) != len(roles):
        raise ValueError(f"the learner is a tuple of {len(learner)}; expected (agent, privatizer, schedule)")
    for part, (role, method) in zip(learner, roles.items(), strict=True):
        if isinstance(part, type) or not callable(getattr(part, method, None)):
            raise ValueError(f"the {role} is {part!r}; expected an object with the method `{method}`")
    build: Callable[[Problem], Triple] = _recipe("own_triple", *learner)
    return _own_entry(type(learner[0]).__name__, build, False, ("joint",), frozenset({"pooled"}))


def _own_entry(
    name: str,
    build: Callable[[Problem], Triple],
    private: bool,
    models: tuple[str, ...],
    options: frozenset[str],
    zcdp: tuple[str, ...] = (),
) -> Algorithm:
    return Algorithm(name, "given as an object", "own", build, private, models, options=options, zcdp=zcdp)
