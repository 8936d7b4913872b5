"""Sweeps: algorithms × environments × budgets × users × sizes × seeds, in a file or in Python.

`read_sweep` and `grid` make the cells, `run_cells` computes them.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import itertools
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from discreet import catalog
from discreet.envs import registry
from discreet.mdp import FiniteMDP
from discreet.runs.engine import ROLES, Cell, Failure, Outcome, Role, failures, refusal, run_cells, why_impossible
from discreet.runs.experiment import Experiment
from discreet.runs.seeds import seed_list

__all__ = ["Cell", "Failure", "Outcome", "Role", "Sweep", "failures", "grid", "read_sweep", "run_cells"]


@dataclass(frozen=True)
class Sweep:
    """Experiments, and the seeds that they are tuned and reported with."""

    experiments: tuple[Experiment, ...]
    tuning: tuple[int, ...] = ()
    reporting: tuple[int, ...] = ()
    skipped: tuple[str, ...] = ()  # impossible combinations, in sentences, where they may be left out
    description: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if both := sorted(set(self.tuning) & set(self.reporting)):
            raise ValueError(
                f"seed {both[0]} is for tuning and for reporting; constants look better on seeds they were chosen "
                f"with, so give each role seeds of its own"
            )
        if not self.tuning and not self.reporting:
            raise ValueError('there are no seeds; give some, such as seeds = "0:10" or [seeds] reporting = "0:10"')

    def cells(self, role: Role | None = None) -> tuple[Cell, ...]:
        """Every experiment with every seed, tuning first; seed by seed, so that all experiments grow together."""
        wanted = ROLES if role is None else (role,)
        return tuple(
            Cell(experiment, seed, each)
            for each in wanted
            for seed in getattr(self, each)
            for experiment in self.experiments
        )


# The file -----------------------------------------------------------------------------------------------------------

#: How a sweep says what an experiment calls otherwise.
ALIASES = {"users": "episodes", "constants": "mode"}
SETTINGS = tuple(each.name for each in fields(Experiment) if each.name not in ("algorithm", "env"))
#: What learners without privacy are not told, unless their own table says it.
BUDGET = ("epsilon", "delta", "rho", "model", "neighbours", "honest", "local_reports", "noise")
_SAID = (*ALIASES, *SETTINGS)
_TOP = ("description", "algorithms", "environments", "seeds", "sizes", "impossible", *_SAID)
_CHOICES = ("refuse", "skip")


def read_sweep(path: str | Path) -> Sweep:
    """The sweep of a TOML file; modules beside the file can be named in it, as `module:name`."""
    file = Path(path)
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{str(path)!r} is not TOML: {error}") from None
    except IsADirectoryError:
        raise ValueError(f"{str(path)!r} is a folder; expected a sweep, a file of TOML") from None
    importable(file.resolve().parent)
    known = _known(said, _TOP, "the sweep")
    if "algorithms" not in known:
        raise ValueError(f"{str(path)!r} names no algorithms; expected a list of them or [[algorithms]] tables")
    return grid(**known)


def grid(
    algorithms: Sequence[Any],
    environments: Sequence[Any] = ("riverswim",),
    seeds: Any = "0:1",
    sizes: Sequence[Any] = (),
    impossible: str = "refuse",
    description: str = "",
    **settings: Any,
) -> Sweep:
    """The sweep of all combinations; a list of values is an axis.

    A learner or an environment is a name, `module:name`, an object, or a mapping with `name` and settings of its own.
    The environment's settings go before the learner's, and those before the sweep's. A learner without privacy is not
    told the sweep's budget.
    """
    if impossible not in _CHOICES:
        raise ValueError(f"impossible is {impossible!r}; choose one of {', '.join(_CHOICES)}")
    shared = _plain(settings, "the sweep")
    if sizes:
        shared["sizes"] = sizes
    learners = [_entry(each, "algorithms", learner_of) for each in _listed("algorithms", algorithms)]
    places = [_entry(each, "environments", place_of) for each in _listed("environments", environments)]
    found: dict[str, Experiment] = {}
    reasons: list[str] = []
    total = 0
    for (learner, own), (place, local) in itertools.product(learners, places):
        told = shared if _private(learner) else {name: v for name, v in shared.items() if name not in BUDGET}
        here = local if _private(learner) else {name: v for name, v in local.items() if name not in BUDGET}
        for values in _combinations(told | own | here):
            total += 1
            one, reason = _attempt(learner, place, values)
            if one is None:
                reasons.append(reason)
            else:
                found.setdefault(one.id, one)
    if reasons and impossible == "refuse":
        raise ValueError(refusal(reasons, total))
    if not found:
        raise ValueError(f"all {total} combinations are impossible; the first: {reasons[0]}")
    tuning, reporting = _roles(seeds)
    return Sweep(tuple(found.values()), tuning, reporting, tuple(dict.fromkeys(reasons)), description)


def _attempt(learner: Any, place: Any, values: Mapping[str, Any]) -> tuple[Experiment | None, str]:
    """The experiment, or why there is none."""
    name = learner if isinstance(learner, str) else getattr(learner, "__name__", type(learner).__name__)
    where = place if isinstance(place, str) else getattr(place, "name", getattr(place, "__name__", "own"))
    try:
        one = experiment_of(learner, place, values)
        reason = why_impossible(one)
    except ValueError as error:
        one, reason = None, str(error)
    if reason is None:
        return one, ""
    axes = ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
    return None, f"{name} on {where}{f' ({axes})' if axes else ''}: {reason}"


def _known(said: Mapping[str, Any], names: Sequence[str], where: str) -> dict[str, Any]:
    """The keys with underscores; an unknown one is answered with the nearest known."""
    found: dict[str, Any] = {}
    for key, value in said.items():
        name = key.replace("-", "_")
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown key {key!r} in {where}; did you mean {near!r}?")
        if name in found:
            raise ValueError(f"{where} says {key!r} twice, with a dash and with an underscore; leave one out")
        found[name] = value
    return found


def _plain(said: Mapping[str, Any], where: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """Settings under the names that an experiment has for them."""
    found: dict[str, Any] = {}
    for name, value in _known(said, (*more, *_SAID), where).items():
        own = ALIASES.get(name, name)
        if own in found:
            raise ValueError(f"{where} says {name!r} and {own!r}, which are one setting; leave one out")
        found[own] = value
    return found


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise ValueError(f"{name} is {values!r}; expected a list")
    if not (found := list(values)):
        raise ValueError(f"{name} is an empty list; expected at least one")
    return found


def _entry(said: Any, where: str, find: Callable[[Any], Any]) -> tuple[Any, dict[str, Any]]:
    """A learner or an environment, and the settings of its own."""
    if not isinstance(said, Mapping):
        return find(said), {}
    if "name" not in said:
        raise ValueError(f"an entry of {where} has no name; give it one")
    own = {key: value for key, value in said.items() if key != "name"}
    return find(said["name"]), _plain(own, f"{where}, {said['name']}", ("sizes",))


def _combinations(said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every choice of one value from each list."""
    axes: list[list[dict[str, Any]]] = []
    for name, value in said.items():
        if name == "sizes":
            axes.append([_size(each) for each in _listed("sizes", value)])
        elif isinstance(value, (list, tuple)):
            axes.append([{name: each} for each in _listed(catalog.dashed(name), value)])
        else:
            axes.append([{name: value}])
    for choice in itertools.product(*axes):
        yield {name: value for part in choice for name, value in part.items()}


def _size(said: Any) -> dict[str, Any]:
    """`{states = 6, horizon = 20}`, either of them, or the pair [6, 20]."""
    if isinstance(said, (list, tuple)) and len(said) == 2:
        return {"states": said[0], "horizon": said[1]}
    if isinstance(said, Mapping) and said:
        return _known(said, ("states", "horizon"), "sizes")
    raise ValueError(f"a size is {said!r}; expected {{states = 6, horizon = 20}} or the pair [6, 20]")


def _roles(said: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not isinstance(said, Mapping):
        return (), _seeds(said, "seeds")
    known = _known(said, ROLES, "seeds")
    tuning, reporting = (_seeds(known[role], f"seeds, {role}") if role in known else () for role in ROLES)
    return tuning, reporting


def _seeds(said: Any, name: str) -> tuple[int, ...]:
    if isinstance(said, bool) or not isinstance(said, (str, int, list, tuple, range)):
        raise ValueError(f'{name} is {said!r}; expected a text such as "0:10", a seed, or a list of seeds')
    if isinstance(said, (str, int)):
        return tuple(seed_list(str(said), name))
    return tuple(seed_list(",".join(map(str, said)), name))


# Objects by name ----------------------------------------------------------------------------------------------------


def learner_of(said: Any) -> Any:
    """A learner's name, or the object that `module:name` names; an object is what it is."""
    if not isinstance(said, str):
        return said
    return imported(said) if ":" in said else catalog.algorithm(said).name


def place_of(said: Any) -> Any:
    """An environment's name, or the object that `module:name` names: a model, or a function from instances to one."""
    if isinstance(said, str) and ":" in said:
        prefix = said.partition(":")[0]
        if prefix + ":" == registry.GYM_PREFIX or prefix in registry.FAMILIES:
            return said
        return imported(said)
    if not isinstance(said, str):
        return said
    stem = said.removesuffix(".py")
    try:
        return registry.spec(said).name
    except ValueError:
        if not Path(f"{stem}.py").is_file():
            raise
    raise ValueError(
        f"there is no environment {said!r}, but there is a {stem}.py here: name what it holds, as in {stem}:mdp"
    )


def model_of(said: str, instance: int = 0) -> tuple[str | FiniteMDP, int]:
    """A name and its instance, or the model that `module:name` names; a function has made it of the instance."""
    place = place_of(said)
    if isinstance(place, str):
        return place, instance
    if not isinstance(place, FiniteMDP) and callable(place):
        place, instance = _made(place, instance), 0
    return place if isinstance(place, FiniteMDP) else registry.model_of(place, None), instance


def imported(text: str) -> Any:
    """The object `package.module:name`."""
    module, _, name = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{text!r} cannot be imported ({error}); expected module:name") from None
    if not hasattr(found, name):
        near = difflib.get_close_matches(name, [each for each in vars(found) if each[0] != "_"], n=1, cutoff=0.0)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{module} has no {name!r}{hint}")
    return getattr(found, name)


def experiment_of(learner: Any, place: Any, settings: Mapping[str, Any]) -> Experiment:
    """Of what `learner_of` and `place_of` return; a function makes the model of its `instance`."""
    said = dict(settings)
    if not isinstance(place, (str, FiniteMDP)) and callable(place):
        place = _made(place, said.pop("instance", 0))
    return Experiment(learner, place, **said)


def importable(folder: Path) -> None:
    """Modules of this folder can be imported, now and by the workers that are started later."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _made(build: Callable[..., Any], instance: Any) -> Any:
    """What a function of one's own makes of the number of an instance, or a class of nothing: a model."""
    taken = not isinstance(build, type) and inspect.signature(build).parameters
    model = build(instance) if taken else build()
    if not isinstance(model, FiniteMDP) and not registry.is_gymnasium(model):
        raise ValueError(
            f"{build!r} returned {type(model).__name__}; expected a FiniteMDP or a Gymnasium environment"
        )
    return model


def _private(learner: Any) -> bool:
    """Whether a budget has a meaning; of an object one cannot know before it has one, and a triple has its own."""
    if isinstance(learner, str):
        return catalog.algorithm(learner).private
    if isinstance(learner, catalog.Algorithm):
        return learner.private
    return not isinstance(learner, tuple)
