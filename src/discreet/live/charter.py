"""What is fixed before anybody comes: the problem, the guarantee, the learner, and how people are served."""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from discreet import catalog
from discreet.device.wire import canonical
from discreet.mdp import frozen
from discreet.people.counts import CountSpec
from discreet.privacy.accounting import Guarantee
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Deployable
from discreet.problem import NOTHING_DECLARED, Problem, PublicStructure
from discreet.session import Session, statistic

#: What can be deployed so far, and whom its users may trust.
LEARNERS = {
    "spotlight": ("joint", "two-servers", "shuffle", "local"),
    "dp-ucbvi": ("joint",),
    "shuffle-ucbvi": ("shuffle",),
    "sdp-pe": ("shuffle",),
}
OVERLAPS, MODES = ("wait", "repeat"), ("learn", "apprentice")
#: Milliseconds.
UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_NAME = 100


@dataclass(frozen=True)
class Helper:
    """The second of two servers: where it is, the key that signs its log, and the key that shares are sealed to."""

    url: str
    key: str  # Ed25519, hex
    hpke: str  # X25519, hex


@dataclass(frozen=True)
class Shuffler:
    """Who passes sealed messages on in random order: where it is, and the key that signs batches."""

    url: str
    key: str  # Ed25519, hex


@dataclass(frozen=True)
class Charter:
    """The public terms of a deployment. Only `users` may change later, and only upwards (`Amended`)."""

    name: str
    states: tuple[str, ...] | int
    actions: tuple[str, ...] | int
    horizon: int
    rewards: tuple[float, float]
    pooled: bool
    start: tuple[float, ...] | None  # of every state; None: it is learned
    gone: int | None  # the state of whoever does not come back
    model: str
    epsilon: float
    users: int
    learner: str
    patience: int  # milliseconds from enrolment to the latest report
    overlap: str
    default_action: int
    mode: str
    helper: Helper | None = None  # of two servers
    shuffler: Shuffler | None = None  # of the shuffle model, as are δ and who can be relied on
    delta: float = 0.0
    honest: float = 1.0

    # Sizes ----------------------------------------------------------------------------------------------------------

    @property
    def num_states(self) -> int:
        return self.states if isinstance(self.states, int) else len(self.states)

    @property
    def num_actions(self) -> int:
        return self.actions if isinstance(self.actions, int) else len(self.actions)

    # What it means --------------------------------------------------------------------------------------------------

    def problem(self, users: int | None = None) -> Problem:
        """What the learner is told; `users`: how many may come by now."""
        initial = None if self.start is None else frozen(np.array(self.start))
        structure = NOTHING_DECLARED if initial is None else PublicStructure(initial=initial)
        sizes = self.num_states, self.num_actions, self.horizon, users or self.users
        return Problem(
            *sizes,
            pooled=self.pooled,
            epsilon=self.epsilon,
            delta=self.delta,
            honest=self.honest,
            trust=self.model,
            structure=structure,
            reward_range=self.rewards,
            one_by_one=True,
        )

    @cached_property
    def spec(self) -> CountSpec:
        """What a user's record becomes; the grid of its rewards stays that of the charter."""
        spec = statistic(self.problem())
        assert isinstance(spec, CountSpec)
        return spec

    def triple(self, users: int | None = None) -> catalog.Triple:
        """The learner."""
        triple = catalog.algorithm(self.learner).build(self.problem(users))
        if not isinstance(triple.privatizer, Deployable):
            raise ValueError(
                f"{self.learner} on {self.num_states:,} states cannot be deployed: its releases need a table of all "
                f"reports; take fewer states, or pool the steps"
            )
        return triple

    @cached_property
    def guarantee(self) -> Guarantee:
        return Session.open(self.triple(), self.problem(), NoiseSource.secure()).guarantee

    # The public document --------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The charter as its log holds it: what `from_document` reads."""
        names = {"states": self.states, "actions": self.actions}
        listed = {key: value if isinstance(value, int) else list(value) for key, value in names.items()}
        problem = listed | {"horizon": self.horizon, "rewards": list(self.rewards), "pooled": self.pooled}
        problem |= {"start": None if self.start is None else list(self.start), "gone": self.gone}
        privacy = {"model": self.model, "epsilon": self.epsilon, "unit": "user", "users": self.users}
        if self.shuffler is not None:
            privacy |= {"delta": self.delta, "honest": self.honest}
        serving = {"patience": self.patience, "overlap": self.overlap}
        serving |= {"default_action": self.default_action, "mode": self.mode}
        learner = {"name": self.learner}
        said = {"name": self.name, "problem": problem, "privacy": privacy, "learner": learner, "serving": serving}
        others = {"helper": self.helper, "shuffler": self.shuffler}
        return said | {name: asdict(other) for name, other in others.items() if other is not None}

    @classmethod
    def from_document(cls, document: Any) -> Charter:
        return _charter(document)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(canonical(self.document())).hexdigest()


@dataclass(frozen=True)
class Store:
    """Where a deployment is kept; of no concern to its users."""

    url: str
    anchor: Path


@dataclass(frozen=True)
class Deployment:
    """A charter as a file has it, with what is the operator's own."""

    charter: Charter
    store: Store
    path: Path = field(default_factory=Path)

    @property
    def keys(self) -> Path:
        """The file of its secrets."""
        return self.path.with_name(f"{self.charter.name}.keys")

    @property
    def helper_secret(self) -> Path:
        """The file of what the helper has told its leader."""
        return self.path.with_name(f"{self.charter.name}.helper")

    @property
    def shuffler_secret(self) -> Path:
        """The file of what the shuffler has told its analyzer."""
        return self.path.with_name(f"{self.charter.name}.shuffler")


def read(path: Path | str) -> Deployment:
    """The deployment that a TOML file describes; every mistake in it is one sentence."""
    path = Path(path)
    document = document_of(path)
    told = document.pop("store", {})
    charter = _charter(document)
    return Deployment(charter, store_of(path, charter.name, told), path.resolve())


def document_of(path: Path) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None


def store_of(path: Path, name: str, document: Any) -> Store:
    """The section [store] of a file."""
    told = section("store", document, {"url", "anchor"})
    url, anchor = told.get("url", f"sqlite:///{name}.db"), told.get("anchor", f"{name}.head")
    for key, value in (("url", url), ("anchor", anchor)):
        if not isinstance(value, str) or not value:
            raise ValueError(f"store.{key} is {value!r}; it must be a text")
    if not url.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise ValueError("store.url must begin with sqlite:/// or postgresql://")
    if url.startswith("sqlite:///"):
        url = f"sqlite:///{(path.parent / url.removeprefix('sqlite:///')).resolve()}"
    return Store(url, (path.parent / anchor).resolve())


# Reading ------------------------------------------------------------------------------------------------------------

_SECTIONS: Mapping[str, frozenset[str]] = {
    "problem": frozenset({"states", "actions", "horizon", "rewards", "pooled", "start", "gone"}),
    "privacy": frozenset({"model", "epsilon", "delta", "honest", "unit", "users"}),
    "learner": frozenset({"name"}),
    "serving": frozenset({"patience", "overlap", "default_action", "mode"}),
    "helper": frozenset({"url", "key", "hpke"}),
    "shuffler": frozenset({"url", "key"}),
}


def section(name: str, value: Any, known: frozenset[str] | set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"[{name}] is {value!r}; it must be a table")
    for key in value:
        if key not in known:
            raise ValueError(f"[{name}] has no setting {key!r}; it has {', '.join(sorted(known))}")
    return dict(value)


def _charter(document: Any) -> Charter:
    told = section("the charter", document, {"name", *_SECTIONS})
    sections = {key: section(key, told.get(key, {}), known) for key, known in _SECTIONS.items()}
    problem, privacy, learner, serving, helper, shuffler = sections.values()
    name = name_of(told)
    states, actions = (_names(key, problem.get(key)) for key in ("states", "actions"))
    S = states if isinstance(states, int) else len(states)
    algorithm = _one_of("learner.name", learner.get("name", "spotlight"), tuple(LEARNERS), _not_live)
    model = _one_of("privacy.model", privacy.get("model", "joint"), LEARNERS[algorithm])
    _one_of("privacy.unit", privacy.get("unit", "user"), ("user",))
    low, high = _range(problem.get("rewards", [0, 1]))
    pooled = problem.get("pooled", False)
    if not isinstance(pooled, bool):
        raise ValueError(f"problem.pooled is {pooled!r}; it must be true or false")
    gone = problem.get("gone")
    charter = Charter(
        name=name,
        states=states,
        actions=actions,
        horizon=_whole("problem.horizon", problem.get("horizon"), 100_000),
        rewards=(low, high),
        pooled=pooled,
        start=_start(problem.get("start"), states, S),
        gone=None if gone is None else _place("problem.gone", gone, states),
        model=model,
        epsilon=epsilon_of("privacy.epsilon", privacy.get("epsilon")),
        users=_whole("privacy.users", privacy.get("users"), 10**12),
        learner=algorithm,
        patience=_patience(serving.get("patience", "10m")),
        overlap=_one_of("serving.overlap", serving.get("overlap", "wait"), OVERLAPS),
        default_action=_place("serving.default_action", serving.get("default_action", 0), actions),
        mode=_one_of("serving.mode", serving.get("mode", "learn"), MODES),
        helper=_helper(model, helper),
        shuffler=_shuffler(model, shuffler),
        delta=_share("delta", model, privacy),
        honest=_share("honest", model, privacy, 1.0),
    )
    if (charter.helper or charter.shuffler) is not None and charter.overlap != "wait":
        raise ValueError(
            "serving.overlap must be wait with two servers or a shuffler: they work on one epoch at a time"
        )
    charter.triple()
    return charter


def name_of(document: Mapping[str, Any]) -> str:
    name = document.get("name")
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]{0,59}", name):
        raise ValueError(
            "name is missing, or is not up to 60 letters, digits, - and _, of which the first is no sign"
        )
    return name


def _not_live(value: Any) -> str:
    return (
        f"learner.name is {value!r}; choose one of {', '.join(LEARNERS)}: only learners that plan in epochs can be "
        f"deployed, for with a policy after every user each would wait for the one before"
    )


def _one_of(name: str, value: Any, choices: tuple[str, ...], why: Callable[[Any], str] | None = None) -> str:
    if value not in choices or not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}" if why is None else why(value))
    return value


def _names(name: str, value: Any) -> tuple[str, ...] | int:
    if isinstance(value, list) and value and all(isinstance(item, str) and item for item in value):
        if len(set(value)) < len(value):
            raise ValueError(f"problem.{name} names one of them twice")
        if any(len(item) > LONGEST_NAME for item in value):
            raise ValueError(f"problem.{name} has a name of more than {LONGEST_NAME} letters")
        return tuple(value)
    if isinstance(value, list):
        raise ValueError(f"problem.{name} must be a number, or a list of names")
    return _whole(f"problem.{name}", value, 1_000_000)


def _whole(name: str, value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be a whole number in 1..{most}")
    return value


def _real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _range(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_real, value)) or not value[0] < value[1]:
        raise ValueError(f"problem.rewards is {value!r}; expected two finite numbers, the lower one first")
    return float(value[0]), float(value[1])


def epsilon_of(name: str, value: Any) -> float:
    if not _real(value) or not 0.0 < value <= 20.0:
        raise ValueError(f"{name} is {value!r}; it must be a number above 0 and at most 20")
    return float(value)


def _place(name: str, value: Any, names: tuple[str, ...] | int) -> int:
    if isinstance(value, str) and not isinstance(names, int) and value in names:
        return names.index(value)
    size = names if isinstance(names, int) else len(names)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size:
        return value
    raise ValueError(f"{name} is {value!r}; it must be one of those declared")


def _start(value: Any, states: tuple[str, ...] | int, size: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) != size or not all(_real(p) and p >= 0.0 for p in value) or abs(math.fsum(value) - 1.0) > 1e-9:
            raise ValueError(f"problem.start must be a state, or {size} chances that add up to 1")
        return tuple(float(p) for p in value)
    place = _place("problem.start", value, states)
    return tuple(float(place == s) for s in range(size))


def _helper(model: str, told: Mapping[str, Any]) -> Helper | None:
    if model != "two-servers":
        if told:
            raise ValueError(f"[helper] is for two servers, and the model is {model}; leave it out")
        return None
    keys = [str(told.get(name)) for name in ("key", "hpke")]
    url = url_of(told.get("url"))
    if not all(re.fullmatch("[0-9a-f]{64}", key) for key in keys):
        raise ValueError("helper.key and helper.hpke must be the two keys that the second server has printed")
    return Helper(url, *keys)


def _shuffler(model: str, told: Mapping[str, Any]) -> Shuffler | None:
    if model != "shuffle":
        if told:
            raise ValueError(f"[shuffler] is for the shuffle model, and the model is {model}; leave it out")
        return None
    url, key = url_of(told.get("url"), "shuffler.url", "the shuffler"), str(told.get("key"))
    if not re.fullmatch("[0-9a-f]{64}", key):
        raise ValueError("shuffler.key must be the key that the shuffler has printed")
    return Shuffler(url, key)


def _share(name: str, model: str, privacy: Mapping[str, Any], usual: float | None = None) -> float:
    """δ, or the fraction of people who can be relied on, of the shuffle model."""
    value = privacy.get(name, usual)
    if model != "shuffle":
        if name in privacy:
            raise ValueError(f"privacy.{name} is for the shuffle model, and the model is {model}; leave it out")
        return 0.0 if usual is None else usual
    if not _real(value) or not 0.0 < value <= 1.0:
        raise ValueError(f"privacy.{name} is {value!r}; it must be a number above 0 and at most 1")
    return float(value)


def url_of(value: Any, name: str = "helper.url", whose: str = "the second server") -> str:
    if not isinstance(value, str) or not re.fullmatch("https?://[^\\s]+", value):
        raise ValueError(f"{name} must be the address of {whose}, which begins with http:// or https://")
    return value.rstrip("/")


def _patience(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 366 * UNITS["d"]:
        return value  # of a public document
    found = re.fullmatch("([1-9][0-9]{0,5})([smhd])", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'serving.patience is {value!r}; write it like "90s", "10m", "2h" or "7d"')
    return int(found[1]) * UNITS[found[2]]
