"""The environments by name, as the command line and experiments know them."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet import plugins
from discreet.envs import icu, linear, tabular
from discreet.envs.rewards import RewardLaw
from discreet.mdp import FiniteMDP, Floats

if TYPE_CHECKING:
    import gymnasium

BERNOULLI = RewardLaw("bernoulli")

#: Environments named `gym:ENV_ID` are read from Gymnasium.
GYM_PREFIX = "gym:"
GYM_HORIZON = 20


@dataclass(frozen=True)
class EnvSpec:
    """One named environment: its default size, what may be changed about it, and how it is built.

    `build(states, horizon, instance)` gets the defaults filled in. `law` maps the model to its default reward law,
    `behaviour` to the policy (H, S, A) that its offline logs are collected with.
    """

    name: str
    summary: str
    build: Callable[[int, int, int], FiniteMDP]
    states: int
    horizon: int
    actions: int
    resizable_states: bool = False
    resizable_horizon: bool = False
    random: bool = False
    staged: bool = False
    law: Callable[[FiniteMDP], RewardLaw] = lambda mdp: BERNOULLI
    behaviour: Callable[[FiniteMDP], Floats] = tabular.uniform


def _frozen_lake(states: int, horizon: int, instance: int) -> FiniteMDP:
    from discreet.envs.gym import from_gymnasium

    return from_gymnasium("FrozenLake-v1", horizon)


# Hard instances, with parameters in their names ---------------------------------------------------------------------


def _heavy_joint(
    gap: float = 0.1,
    v: float = 0.5,
    arms: int = 3,
    reference: bool = False,
    users: int | None = None,
    epsilon: float | None = None,
) -> EnvSpec:
    """`users` and `epsilon` ask for the gap that the lower bound takes at this many users and this budget."""
    critical = _critical(users, epsilon)
    tabular.heavy_joint(3, arms, gap=gap, v=v)  # refuses what no instance has

    def build(states: int, horizon: int, instance: int) -> FiniteMDP:
        chosen = gap
        if critical is not None:
            chosen = tabular.heavy_joint_gap(states - 2, arms, *critical, v)
            _small_enough("the gap", chosen, 0.2, *critical)
        return tabular.heavy_joint(states, arms, gap=chosen, v=v, reference=reference, instance=instance)

    return EnvSpec(
        "heavy-joint",
        "hard instance for heavy tails under joint privacy: parallel bandits, rare large rewards",
        build,
        6,
        1,
        tabular.whole("arms", arms, 2),
        resizable_states=True,
        random=not reference,
        law=tabular.two_point_law,
    )


def _heavy_local(
    gap: float | None = None,
    v: float = 0.5,
    arms: int = 2,
    depth: int = 2,
    reference: bool = False,
    users: int | None = None,
    epsilon: float | None = None,
) -> EnvSpec:
    """A gap of ½·γ^v; `users` and `epsilon` as in `_heavy_joint`."""
    arms, depth = tabular.whole("arms", arms, 2), tabular.whole("depth", depth, 1)
    states, leaves = tabular.heavy_local_size(depth, arms) if depth <= 20 else (LARGEST_TREE + 1, 0)
    if states > LARGEST_TREE:
        raise ValueError(f"a tree of depth {depth} with {arms} arms has more than {LARGEST_TREE} states")
    success = 0.5
    if gap is not None:
        tabular.heavy_local(1, 2, v=v)  # refuses a v that no instance has
        most = tabular.heavy_local_gap(0.75, v)
        if not 0 < gap <= most:
            raise ValueError(f"gap is {gap:g}; with v = {v:g} it must lie in (0, {most:.6g}]")
        success = min((2 * gap) ** ((1 + v) / v), 0.75)
    if (critical := _critical(users, epsilon)) is not None:
        success = tabular.heavy_local_success(leaves, arms, *critical)
        _small_enough("the success probability", success, 0.75, *critical)
    tabular.heavy_local(1, 2, success=success, v=v)
    return EnvSpec(
        "heavy-local",
        "hard instance for heavy tails under local privacy: a tree with one better leaf",
        lambda S, H, i: tabular.heavy_local(depth, arms, success=success, v=v, reference=reference, instance=i),
        states,
        depth + 1,
        arms,
        random=not reference,
        law=tabular.two_point_law,
    )


def _critical(users: int | None, epsilon: float | None) -> tuple[int, float] | None:
    """(K, ε) of the critical gap, where it was asked for."""
    if users is None and epsilon is None:
        return None
    if users is None or epsilon is None:
        raise ValueError("the gap of a lower bound belongs to users and epsilon: give both")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon is {epsilon:g}; it must be a finite number above 0")
    return tabular.whole("users", users, 1), epsilon


def _small_enough(what: str, value: float, limit: float, users: int, epsilon: float) -> None:
    if not value < limit:
        few = f"{users} users at epsilon {epsilon:g} are too few for the lower bound"
        raise ValueError(f"{few}: {what} would be {value:.3g} and must be below {limit:g}")


#: States of the largest tree that is built.
LARGEST_TREE = 5000
#: Environments with parameters: `NAME:gap=0.05,v=1,reference` and so on, in any order.
FAMILIES: Mapping[str, Callable[..., EnvSpec]] = MappingProxyType(
    {"heavy-joint": _heavy_joint, "heavy-local": _heavy_local}
)
_KINDS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"gap": float, "v": float, "epsilon": float, "arms": int, "depth": int, "users": int}
)


def _family_spec(name: str, said: str) -> EnvSpec:
    """The environment `name:said`; its own name lists what was said, sorted, so that one instance has one name."""
    family = FAMILIES[name]
    taken = tuple(inspect.signature(family).parameters)
    given: dict[str, Any] = {}
    for part in filter(None, said.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in taken or key in given or bool(equals) == (key == "reference"):
            raise ValueError(f"{name} cannot read {part!r}; it takes {_usage(taken)}, each at most once")
        try:
            given[key] = True if key == "reference" else _KINDS[key](value)
        except ValueError:
            wanted = "whole number" if _KINDS[key] is int else "number"
            raise ValueError(f"{key} of {name} is {value!r}; it must be a {wanted}") from None
    if "gap" in given and ("users" in given or "epsilon" in given):
        raise ValueError(f"{name} takes a gap, or users and epsilon for the gap of the lower bound, but not both")
    own = {key: each.default for key, each in inspect.signature(family).parameters.items()}
    found, given = family(**given), {key: value for key, value in given.items() if value != own[key]}
    canonical = ",".join(key if key == "reference" else f"{key}={given[key]!r}" for key in sorted(given))
    return replace(found, name=f"{name}:{canonical}" if canonical else name)


def _usage(parameters: tuple[str, ...]) -> str:
    return ", ".join(key if key == "reference" else f"{key}=…" for key in parameters)


def _own(
    name: str,
    summary: str,
    build: Callable[[int, int, int], FiniteMDP],
    size: tuple[int, int, int],
    chosen: str = "",
    **more: Any,
) -> EnvSpec:
    """One of ours: states, horizon and actions together, and which of the first two may be chosen."""
    S, H, A = size
    free = "states" in chosen, "horizon" in chosen
    return EnvSpec(name, summary, build, S, H, A, *free, **more)


_SPECS = (
    _own(
        "riverswim",
        "swim right against the current to earn 1, or drift left for 0.005",
        lambda S, H, i: tabular.riverswim(S, H),
        (6, 20, 2),
        "states horizon",
        behaviour=lambda mdp: tabular.favouring(mdp, 1, 0.8),
    ),
    _own(
        "chain",
        "Strens' chain: walk on for a distant 1, or return to the start for 0.2; actions slip",
        lambda S, H, i: tabular.chain(S, H),
        (5, 20, 2),
        "states horizon",
    ),
    _own(
        "deep-sea",
        "only going right at every step finds the treasure; as many steps as states",
        lambda S, H, i: tabular.deep_sea(S),
        (10, 10, 2),
        "states horizon",
    ),
    _own(
        "two-rooms",
        "a 4×4 grid of two rooms joined by one door, slippery",
        lambda S, H, i: tabular.two_rooms(),
        (16, 15, 4),
    ),
    _own("frozenlake", "Gymnasium's slippery 4×4 lake", _frozen_lake, (16, 20, 4), "horizon"),
    _own(
        "dirichlet",
        "random dense rows, three rewarded cells",
        lambda S, H, i: tabular.dirichlet(S, 3, H, instance=i),
        (5, 10, 3),
        "states horizon",
        random=True,
    ),
    _own(
        "sparse-dirichlet",
        "random rows with three successors each, three rewarded cells",
        lambda S, H, i: tabular.dirichlet(S, 3, H, support=min(3, S), instance=i),
        (20, 20, 3),
        "states horizon",
        random=True,
    ),
    _own(
        "nonstationary-dirichlet",
        "a fresh random kernel at every step, one paying cell per step in the second half",
        lambda S, H, i: tabular.nonstationary_dirichlet(S, 2, H, instance=i),
        (4, 8, 2),
        "states horizon",
        random=True,
        staged=True,
    ),
    _own(
        "flipswim",
        "RiverSwim whose actions are swapped at odd steps",
        lambda S, H, i: tabular.flipswim(),
        (3, 6, 2),
        staged=True,
    ),
    _own(
        "changeswim",
        "RiverSwim whose left bank pays 1 from step 6 on",
        lambda S, H, i: tabular.changeswim(),
        (4, 12, 2),
        staged=True,
    ),
    _own(
        "swapswim",
        "RiverSwim whose actions are swapped from step 6 on",
        lambda S, H, i: tabular.swapswim(),
        (4, 12, 2),
        staged=True,
    ),
    _own(
        "random-uniform",
        "random model for offline logs, uniform behaviour",
        lambda S, H, i: tabular.random_rewards(S, 4, H, instance=i),
        (5, 10, 4),
        "states horizon",
        random=True,
    ),
    _own(
        "random-skewed",
        "the same random model, behaviour plays action 0 in 90 % of the steps",
        lambda S, H, i: tabular.random_rewards(S, 4, H, instance=i),
        (5, 10, 4),
        "states horizon",
        random=True,
        behaviour=lambda mdp: tabular.favouring(mdp, 0, 0.9),
    ),
    _own(
        "adversarial-coverage",
        "offline trap: rarely logged actions look good by luck and are bad",
        lambda S, H, i: tabular.adversarial_coverage(),
        (5, 10, 8),
        behaviour=lambda mdp: tabular.favouring(mdp, 0, 0.93),
    ),
    _heavy_joint(),
    _heavy_local(),
    _own(
        "linear",
        "the linear MDP with ten features of the offline experiments",
        lambda S, H, i: linear.two_state_linear(H, instance=i).to_finite(),
        (2, 20, 100),
        "horizon",
        random=True,
        staged=True,
        behaviour=lambda mdp: tabular.favouring(mdp, 0, 0.6),
    ),
    _own(
        "icu-sepsis",
        "treat sepsis in intensive care, +1 for survival; needs the package icu-sepsis",
        lambda S, H, i: icu.icu_sepsis(H),
        (icu.NUM_STATES, icu.HORIZON, icu.NUM_ACTIONS),
        "horizon",
        law=lambda mdp: RewardLaw("deterministic"),
        behaviour=icu.clinician,
    ),
    _own(
        "layered",
        "loop-free, layers 1-4-4, for adversarial losses",
        lambda S, H, i: tabular.layered(tabular.LAYERED, 2, instance=i),
        (4, 3, 2),
        random=True,
        staged=True,
    ),
    _own(
        "layered-large",
        "loop-free, layers 1-5-5-5-5-5, for adversarial losses",
        lambda S, H, i: tabular.layered(tabular.LAYERED_LARGE, 3, instance=i),
        (5, 6, 3),
        random=True,
        staged=True,
    ),
    _own(
        "lock",
        "a combination lock that only planning ahead opens, for adversarial losses",
        lambda S, H, i: tabular.lock(instance=i),
        (2, 6, 3),
        random=True,
        staged=True,
    ),
)

KNOWN = plugins.Known(
    "an environment",
    {spec.name: spec for spec in _SPECS if spec.name != "icu-sepsis" or icu.installed()},
    absent=("icu-sepsis",),
)

#: Those that can be built here (icu-sepsis needs an extra), and those that were added.
ENVIRONMENTS: Mapping[str, EnvSpec] = MappingProxyType(KNOWN)

#: Packages name their environments in this group of entry points.
GROUP = "discreet.envs"

Factory = Callable[..., FiniteMDP]
GymnasiumEnv: TypeAlias = "gymnasium.Env[Any, Any]"


def register_env(name: str, factory: Factory | FiniteMDP, summary: str, law: RewardLaw | None = None) -> None:
    """Make `name` an environment, for `Experiment(env=name)` and, from an entry point, for `--env`.

    `factory()` returns the model. Whichever of `states`, `horizon` and `instance` it takes can be chosen by the user
    (the first two then have defaults). Without a `law`, rewards are Bernoulli if their means lie in [0, 1], and their
    means otherwise.
    """
    KNOWN.check(name)
    KNOWN[name] = _added(name, factory, summary, law)


def load_plugins() -> list[str]:
    """Add the environments of other packages; what is wrong with some of them, in sentences."""

    def take(name: str, found: Any) -> None:
        if isinstance(found, EnvSpec):
            KNOWN.check(name)
            KNOWN[name] = replace(found, name=name)
            return
        described = inspect.getdoc(found) if not isinstance(found, FiniteMDP) else None
        register_env(name, found, described.splitlines()[0] if described else "from another package")

    return plugins.load(GROUP, take)


def _added(name: str, factory: Factory | FiniteMDP, summary: str, law: RewardLaw | None) -> EnvSpec:
    if isinstance(factory, FiniteMDP):
        return _spec_of(factory, name, summary, law)
    if not callable(factory):
        raise ValueError(f"the environment {name} is {factory!r}; expected a FiniteMDP or a function that makes one")
    taken = {"states", "horizon", "instance"} & set(inspect.signature(factory).parameters)
    model = factory()
    if not isinstance(model, FiniteMDP):
        raise ValueError(f"the environment {name} returned {type(model).__name__}; expected a FiniteMDP")

    def build(states: int, horizon: int, instance: int) -> FiniteMDP:
        said = {"states": states, "horizon": horizon, "instance": instance}
        built = factory(**{option: value for option, value in said.items() if option in taken})
        if (built.num_states, built.horizon) != (states, horizon):
            found = f"{built.num_states} states and horizon {built.horizon}"
            raise ValueError(f"{name} was asked for {states} states and horizon {horizon} and returned {found}")
        return built

    return replace(
        _spec_of(model, name, summary, law),
        build=build,
        resizable_states="states" in taken,
        resizable_horizon="horizon" in taken,
        random="instance" in taken,
    )


def _spec_of(mdp: FiniteMDP, name: str, summary: str, law: RewardLaw | None = None) -> EnvSpec:
    """The specification of one model as it is."""
    chosen = law or _plain_law(mdp)
    chosen.check_means(mdp.rewards)
    return EnvSpec(
        name,
        summary,
        lambda S, H, i: mdp,
        mdp.num_states,
        mdp.horizon,
        mdp.num_actions,
        staged=not mdp.stationary,
        law=(lambda built: chosen) if law else _plain_law,
    )


def _plain_law(mdp: FiniteMDP) -> RewardLaw:
    """Bernoulli where means are probabilities, and else the means themselves."""
    low, high = float(mdp.rewards.min()), float(mdp.rewards.max())
    return BERNOULLI if low >= 0 and high <= 1 else RewardLaw("deterministic")


def is_gymnasium(env: object) -> bool:
    """Whether this is a Gymnasium environment, without loading Gymnasium to ask."""
    return not isinstance(env, type) and all(
        hasattr(env, name) for name in ("reset", "step", "observation_space", "action_space")
    )


def brief(thing: object) -> str:
    """What was given, for a sentence: itself, or its kind where that would be a page."""
    shown = repr(thing)
    return shown if len(shown) <= 60 and "\n" not in shown else f"a {type(thing).__name__}"


def model_of(env: object, horizon: int | None) -> FiniteMDP:
    """The exact model of a Gymnasium environment with a table `P`."""
    if not is_gymnasium(env):
        raise ValueError(f"the environment is {brief(env)}; expected a name, a FiniteMDP or a Gymnasium environment")
    from discreet.envs.gym import from_gymnasium

    model = from_gymnasium(env, GYM_HORIZON if horizon is None else horizon)  # type: ignore[arg-type]
    return replace(model, name=f"{GYM_PREFIX}{model.name}")


def spec(name: str | FiniteMDP) -> EnvSpec:
    """The specification behind a name, or of a model; an unknown name is answered with the nearest known one."""
    if isinstance(name, FiniteMDP):
        return _spec_of(name, name.name, "given as an object")
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    if name.startswith(GYM_PREFIX):
        return _gym_spec(name)
    family, colon, said = name.partition(":")
    if colon and family in FAMILIES:
        return _family_spec(family, said)
    if name == "icu-sepsis":
        raise ValueError(icu.MISSING)
    failures = load_plugins()
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    near = difflib.get_close_matches(name, ENVIRONMENTS, n=1, cutoff=0.0)[0]
    sentence = (
        f"unknown environment {name!r}; did you mean {near!r}? Known are {', '.join(sorted(ENVIRONMENTS))}, "
        f"{GYM_PREFIX}ENV_ID for Gymnasium's toy-text environments, and module:name for a model of your own"
    )
    raise ValueError("; ".join([sentence, *failures]))


def make(
    name: str | FiniteMDP = "riverswim", states: int | None = None, horizon: int | None = None, instance: int = 0
) -> FiniteMDP:
    """The model of a named environment; sizes left out are the environment's own. A model is returned as it is."""
    chosen = spec(name)
    S, H = sizes(chosen, states, horizon)
    i = tabular.whole("instance", instance, 0)
    if i and not chosen.random:
        raise ValueError(f"{chosen.name} is not random, so instance must be left at 0 and not {i}")
    return replace(chosen.build(S, H, i), name=chosen.name)


def sizes(chosen: EnvSpec, states: int | None = None, horizon: int | None = None) -> tuple[int, int]:
    """The number of states and of steps; what is left out is the environment's own."""
    square = chosen.name == "deep-sea"
    if square and states is None:
        states = horizon
    elif square and horizon is None:
        horizon = states
    S = _size(chosen, "states", states, chosen.states, chosen.resizable_states)
    H = _size(chosen, "horizon", horizon, chosen.horizon, chosen.resizable_horizon)
    if square and S != H:
        raise ValueError(f"deep-sea takes as many steps as it has states, but states is {S} and horizon is {H}")
    return S, H


def _size(chosen: EnvSpec, option: str, wanted: int | None, own: int, resizable: bool) -> int:
    if wanted is None:
        return own
    value = tabular.whole(option, wanted, 1)
    if value != own and not resizable:
        raise ValueError(f"{chosen.name} always has {option} {own}; it cannot be built with {option} {value}")
    return value


def _gym_spec(name: str) -> EnvSpec:
    """A specification read from the Gymnasium environment itself."""
    from discreet.envs.gym import from_gymnasium

    env_id = name.removeprefix(GYM_PREFIX)
    model = from_gymnasium(env_id, GYM_HORIZON)
    low, high = float(model.rewards.min()), float(model.rewards.max())
    return EnvSpec(
        name,
        f"Gymnasium's {env_id}, mean rewards in [{low:g}, {high:g}]",
        lambda S, H, i: from_gymnasium(env_id, H),
        model.num_states,
        GYM_HORIZON,
        model.num_actions,
        resizable_horizon=True,
        law=_plain_law,
    )
