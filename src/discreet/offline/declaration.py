"""What an analyst says about a log before anybody looks at it: its columns, their ranges, edges and names.

A declaration is public: it is made without the data and kept in the certificate. Bins follow from it, the number of
users and the budget by a public rule (`Declaration.grid`), so that nothing about them has to be paid for. One rule
says in which bin a value lies, for records in a program (`Column.bin`) and for rows of a log (`Column.sql`).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.cells import number_of, text_of
from discreet.mdp import Ints
from discreet.privacy.accounting import Budget, Neighbours

#: Bins that a column gets where it fits, and at most.
FIRST_BINS, MOST_BINS = 4, 10
#: Declared columns, edges of one, and names of one: with these, fine bins are at most 64.
MOST_COLUMNS, MOST_EDGES, MOST_NAMES = 8, 32, 63
#: S·A ≤ max(LEAST_CELLS, n·ε/USERS_PER_CELL).
LEAST_CELLS, USERS_PER_CELL = 12, 60.0
#: More ε gives no finer bins (people differ, too), and S·A·S stays small enough to be held in memory.
MOST_STRENGTH, MOST_MOVES = 10.0, 20_000_000
#: With `log` and a range from 0, bins are even in log(x + range/20): a logarithm needs something to start from.
LOG_START = 20.0
LARGEST = 1.7976931348623157e308

#: Even and log-even edges lie at these shares of the range.
SHARES = tuple(sorted({Fraction(i, bins) for bins in range(2, MOST_BINS + 1) for i in range(1, bins)}))


@dataclass(frozen=True)
class Column:
    """A column of states: a range, perhaps with `log` or inner `edges`, or `names`.

    What lies outside the range is in the first or last bin; an unknown name, text that is no number, NaN and
    infinities are missing. `missing`: that is a bin of its own; otherwise a row without a value is a missing step.
    A bin holds its lower edge: the number of a value's bin is that of the edges which are not above it.
    """

    name: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    edges: tuple[float, ...] = ()
    names: tuple[str, ...] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        where = f"the declared column {self.name!r}"
        if not (isinstance(self.name, str) and self.name and self.name.isprintable()):
            raise ValueError(f"a declared column is named {self.name!r}; expected printable text")
        if self.names is not None:
            if self.low is not None or self.high is not None or self.log or self.edges:
                raise ValueError(f"{where} has names and also a range, log or edges; expected one of both")
            _check_names(where, self.names)
            return
        if self.low is None or self.high is None:
            raise ValueError(f"{where} has neither a range nor names; expected one of both")
        if not (math.isfinite(self.low) and math.isfinite(self.high - self.low) and self.low < self.high):
            raise ValueError(f"{where} ranges from {self.low} to {self.high}; expected two numbers, low < high")
        if self.log and self.low < 0.0:
            raise ValueError(f"{where} has log and a range from {self.low:g}; a logarithm needs one from 0 or above")
        if self.log and self.edges:
            raise ValueError(f"{where} has log and edges; expected one of both, for edges say all about the bins")
        if len(self.edges) > MOST_EDGES:
            raise ValueError(f"{where} has {len(self.edges)} edges; expected at most {MOST_EDGES}")
        if any(not a < b for a, b in pairwise(self.edges)):
            raise ValueError(
                f"{where} has edges {_shown(self.edges)} that overlap; expected each above the one before"
            )
        if not all(self.low < edge < self.high for edge in self.edges):
            raise ValueError(
                f"{where} has edges {_shown(self.edges)}; expected all between {self.low:g} and {self.high:g}"
            )

    @property
    def numeric(self) -> bool:
        return self.names is None

    @property
    def most_bins(self) -> int:
        """Of values: the bin of what is missing comes on top."""
        if self.names is not None:
            return len(self.names)
        return min(MOST_BINS, len(self.edges) + 1) if self.edges else MOST_BINS

    @property
    def first_bins(self) -> int:
        return self.most_bins if self.names is not None else min(FIRST_BINS, self.most_bins)

    def thresholds(self, bins: int) -> tuple[float, ...]:
        """Public inner edges of at most so many bins: declared ones, of more than fit some, else even or log-even."""
        if not 1 <= bins <= MOST_BINS or self.names is not None:
            raise ValueError(f"{self.name!r} cannot have {bins} bins; expected a range and 1 to {MOST_BINS}")
        if not self.edges:
            return tuple(self._point(Fraction(i, bins)) for i in range(1, bins))
        if len(self.edges) < bins:
            return self.edges
        places = (len(self.edges) + 1) / bins
        return tuple(self.edges[math.floor(i * places + 0.5) - 1] for i in range(1, bins))

    @property
    def fine(self) -> tuple[float, ...]:
        """All edges that `thresholds` can give, and the even ones between them: at most 63."""
        if self.names is not None:
            return ()
        return tuple(sorted({*self.edges, *(self._point(share) for share in SHARES)}))

    @property
    def num_fine(self) -> int:
        """Fine bins of values; the index after them says that nothing is there."""
        return len(self.names) if self.names is not None else len(self.fine) + 1

    def size(self, bins: int) -> int:
        """How many places it adds to a grid: its bins, and one for what is missing where that is declared."""
        return bins + self.missing

    def _point(self, share: Fraction) -> float:
        assert self.low is not None
        assert self.high is not None
        width = self.high - self.low
        if not self.log:
            return self.low + width * share.numerator / share.denominator
        start = self.low if self.low > 0.0 else width / LOG_START
        ratio = (self.high if self.low > 0.0 else width + start) / start
        point: float = start * ratio ** (share.numerator / share.denominator)
        return point if self.low > 0.0 else point - start

    def cuts(self, bins: int) -> tuple[int, ...]:
        """Fine bins after which the next of so many bins begins; what is missing comes last, where it is declared."""
        inner = tuple(range(self.num_fine - 1))
        if self.names is None:
            inner = tuple(self.fine.index(edge) for edge in self.thresholds(bins))
        return (*inner, self.num_fine - 1) if self.missing else inner

    def bin(self, value: object) -> int | None:
        """The fine bin of a value; None: it is missing."""
        text = text_of(value)
        if text is None:
            return None
        if self.names is not None:
            return self.names.index(text) if text in self.names else None
        number = number_of(text)
        return None if number is None else bisect_right(self.fine, number)

    def sql(self, value: str, cuts: Sequence[int] | None, literal: Callable[[str], str]) -> str:
        """The place of a row between cuts (None: its fine bin); NULL: it has none, for nothing is there.

        `value` is a number (NULL or NaN: none), or a text where names are declared.
        """
        missing = str(self.num_fine) if cuts is None else str(len(cuts)) if self.missing else "NULL"
        cuts = range(self.num_fine - 1) if cuts is None else cuts
        if self.names is not None:
            places = ((literal(name), bisect_left(cuts, i)) for i, name in enumerate(self.names))
            return f"CASE {' '.join(f'WHEN {value} = {name} THEN {i}' for name, i in places)} ELSE {missing} END"
        edges = [self.fine[cut] for cut in cuts if cut < len(self.fine)]
        below = " ".join(f"WHEN {value} < {_double(edge)} THEN {i}" for i, edge in enumerate(edges))
        place = f"CASE {below} ELSE {len(edges)} END" if edges else "0"
        return f"CASE WHEN {value} BETWEEN {_double(-LARGEST)} AND {_double(LARGEST)} THEN {place} ELSE {missing} END"

    def texts(self, cuts: Sequence[int]) -> tuple[str, ...]:
        """Its places in words."""
        last = self.num_fine - 1
        alone = last in cuts  # what is missing
        inner = [cut for cut in cuts if cut < last]
        if self.names is not None:
            ends = [0, *(cut + 1 for cut in inner), last + 1]
            found = [f"{self.name} {' or '.join(self.names[a:b])}" for a, b in pairwise(ends)]
        else:
            edges = [f"{self.fine[cut]:.6g}" for cut in inner]
            between = [f"{a} ≤ {self.name} < {b}" for a, b in pairwise(edges)]
            found = [f"{self.name} < {edges[0]}", *between, f"{self.name} ≥ {edges[-1]}"] if edges else []
            found = found or [f"{self.name} known" if alone else f"any {self.name}"]
        if self.missing and not alone:
            found[-1] += " or missing"
        return (*found, f"{self.name} missing") if alone else tuple(found)

    @classmethod
    def parse(cls, text: str) -> Column:
        """From an option: map:20..140/edges:65,75,95, lactate:0..20/log,missing or ward:{A,B,C}."""
        number = "[+-]?[0-9.]*[0-9](?:[eE][+-]?[0-9]+)?"
        found = re.fullmatch(
            rf"(?P<name>.+?):(?:(?P<low>{number})\.\.(?P<high>{number})|\{{(?P<names>.*)\}})(?P<rest>(?:/.*)?)", text
        )
        if found is None:
            raise ValueError(
                f"--state is {text!r}; expected NAME:LOW..HIGH or NAME:{{A,B,C}}, perhaps with /log, /missing or "
                "/edges:1,2,3"
            )
        words = [word.strip() for word in re.split("[/,]", found["rest"]) if word.strip()]
        edges: list[float] = []
        flags = {"log": False, "missing": False}
        listing = False
        for word in words:
            start, listing = word.startswith("edges:"), listing or word.startswith("edges:")
            if word in flags:
                flags[word], listing = True, False
                continue
            try:
                if not listing:
                    raise ValueError
                edges.append(float(word.removeprefix("edges:") if start else word))
            except ValueError:
                near = difflib.get_close_matches(word.partition(":")[0], (*flags, "edges"), 1)
                meant = f"did you mean {near[0]!r}? " if near else ""
                raise ValueError(
                    f"--state {text!r} says {word!r}; {meant}expected log, missing or edges:1,2,3"
                ) from None
        names = None
        if found["names"] is not None:
            names = tuple(name.strip() for name in found["names"].split(","))
        ends = [None if found[end] is None else _float(f"--state {text!r}", found[end]) for end in ("low", "high")]
        return cls(found["name"].strip(), ends[0], ends[1], flags["log"], tuple(edges), names, flags["missing"])


def _double(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"


def _shown(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _check_names(where: str, names: Sequence[str]) -> None:
    if not names or len(names) > MOST_NAMES:
        raise ValueError(f"{where} has {len(names)} names; expected 1 to {MOST_NAMES}")
    for name in names:
        if not (isinstance(name, str) and name and name.isprintable()):
            raise ValueError(f"{where} has the name {name!r}; expected printable text")
        if names.count(name) > 1:
            raise ValueError(f"{where} has the name {name!r} twice; expected each once")


def _float(where: str, value: object) -> float:
    try:
        if isinstance(value, bool) or not math.isfinite(number := float(value)):  # type: ignore[arg-type]
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where} has {value!r}; expected a number") from None
    return number


# The whole ----------------------------------------------------------------------------------------------------------

#: Seconds of an interval's unit.
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Declaration:
    """All that is declared about a log of columns. `states` are in order of importance, the most important first.

    Steps are numbers in the column `step`, from `first_step` on; or they come from the timestamps (or numbers of
    seconds) in `time`: with an `interval`, in seconds, the number of intervals since an episode's first row, without
    one their place in the order of time. A column that is None is looked for under the name of its role; of these,
    episode, terminated, done and truncated need not exist. `propensity` is the probability with which the logged
    action was taken; it has no other name.
    """

    states: tuple[Column, ...]
    actions: int | tuple[str, ...]
    horizon: int
    user: str | None = None
    episode: str | None = None
    step: str | None = None
    time: str | None = None
    interval: float | None = None
    first_step: int = 0
    action: str | None = None
    reward: str | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    ended_pays: float = 0.0
    early_end: str = "absorb"
    terminated: str | None = None
    done: str | None = None
    truncated: str | None = None
    propensity: str | None = None
    episodes_per_user: int = 1
    pooled: bool = True

    def __post_init__(self) -> None:
        if not self.states:
            raise ValueError("the declaration names no column of states; expected at least one")
        if len(self.states) > MOST_COLUMNS:
            raise ValueError(
                f"the declaration names {len(self.states)} columns of states; expected at most {MOST_COLUMNS}, for "
                "no budget pays for more: keep the most important ones"
            )
        names = [column.name for column in self.states]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the declaration names the column {name!r} twice among the states")
        if isinstance(self.actions, tuple):
            _check_names("the list of actions", self.actions)
        elif not _whole(self.actions, 1):
            raise ValueError(f"actions is {self.actions!r}; expected a list of names or a whole number of at least 1")
        for key in ("horizon", "episodes_per_user"):
            if not _whole(getattr(self, key), 1):
                raise ValueError(f"{key} is {getattr(self, key)!r}; it must be a whole number of at least 1")
        if not _whole(self.first_step, 0):
            raise ValueError(f"first_step is {self.first_step!r}; it must be a whole number of at least 0")
        low, high = self.reward_range
        if not (math.isfinite(low) and math.isfinite(high - low) and low < high):
            raise ValueError(f"reward_range is {low} to {high}; expected two numbers, low < high")
        if not math.isfinite(self.ended_pays):
            raise ValueError(f"ended_pays is {self.ended_pays}; it must be a number")
        if self.early_end not in ("absorb", "keep"):
            raise ValueError(f"early_end is {self.early_end!r}; it must be 'absorb' or 'keep'")
        if self.time is not None and (self.step is not None or self.first_step):
            raise ValueError("the declaration has both step and time; expected one of both, for steps come from one")
        if self.interval is not None and (self.time is None or not 1e-3 <= self.interval < math.inf):
            raise ValueError(f"interval is {self.interval:g}; it needs time, and is at least a millisecond")
        taken: dict[str, str] = {}
        for role in ROLES:
            column = getattr(self, role)
            if column == role and role in ("user", "step", "action", "reward"):  # it is looked for there anyway
                object.__setattr__(self, role, None)
            if column is not None and not (isinstance(column, str) and column and column.isprintable()):
                raise ValueError(f"{role} is {column!r}; expected the name of a column")
            if column is not None and (other := taken.setdefault(column, role)) != role:
                if (other, role) not in (("user", "episode"), ("terminated", "done")):
                    raise ValueError(f"the declaration gives the column {column!r} to both {other} and {role}")

    @property
    def num_actions(self) -> int:
        return self.actions if isinstance(self.actions, int) else len(self.actions)

    @property
    def action_names(self) -> tuple[str, ...] | None:
        return None if isinstance(self.actions, int) else self.actions

    def column(self, role: str) -> str:
        """The name of the column that has a role."""
        name: str | None = getattr(self, role)
        return role if name is None else name

    @classmethod
    def from_toml(cls, text: str) -> Declaration:
        """Read a declaration; a key that nobody knows is refused with the nearest one."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"the declaration is no TOML: {error}") from None
        _check_keys("the declaration", document, ("state", *KEYS))
        listed = document.pop("state", [])
        if not isinstance(listed, list) or not all(isinstance(table, dict) for table in listed):
            raise ValueError("the declaration's state is no list of tables; expected [[state]] before every column")
        for key in ("actions", "horizon"):
            if key not in document:
                raise ValueError(f"the declaration does not say {key!r}")
        if isinstance(document["actions"], list):
            document["actions"] = tuple(document["actions"])
        if "reward_range" in document:
            document["reward_range"] = _two("reward_range", document["reward_range"])
        if "ended_pays" in document:
            document["ended_pays"] = _float("ended_pays", document["ended_pays"])
        if "interval" in document:
            document["interval"] = seconds(document["interval"])
        if not isinstance(document.get("pooled", True), bool):
            raise ValueError(f"pooled is {document['pooled']!r}; it must be true or false")
        return cls(tuple(_column(table) for table in listed), **document)

    @classmethod
    def from_options(
        cls,
        states: Sequence[str],
        actions: int | tuple[str, ...],
        horizon: int,
        columns: Mapping[str, str] | None = None,
        **others: Any,
    ) -> Declaration:
        """From the options of a command: one text per column of states, columns by role, the rest by name."""
        given: dict[str, Any] = {**(columns or {}), **others}
        _check_keys("--columns", columns or {}, ROLES)
        if isinstance(given.get("interval"), str):
            given["interval"] = seconds(given["interval"])
        return cls(tuple(Column.parse(text) for text in states), actions, horizon, **given)

    @property
    def text(self) -> str:
        """The canonical TOML: two declarations that say the same have the same text."""
        return "".join(_lines(self))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def grid(self, num_users: int, budget: Budget, neighbours: Neighbours = "replace") -> Grid:
        """Bins by the public rule S·A ≤ max(12, n·ε/60), without pooling S·A·H; Gaussian noise: ε → √(8Hρ).

        In declared order each column gets its first four bins (its names, its declared edges) if they fit, the first
        one as many as fit; then all grow in turns to at most ten. No number here depends on anybody's values.
        """
        return self.grid_at(num_users, self.strength(budget, neighbours))

    def grid_at(self, num_users: int, strength: float) -> Grid:
        """The same, from `strength`."""
        stages = self.num_actions * (1 if self.pooled else self.horizon)
        limit = max(LEAST_CELLS, num_users * strength / USERS_PER_CELL) / stages
        limit = min(limit, math.sqrt(MOST_MOVES / stages))
        bins = [0] * len(self.states)

        def fits(i: int, number: int) -> bool:
            sizes = (c.size(number if j == i else b) for j, (c, b) in enumerate(zip(self.states, bins, strict=True)))
            return math.prod(size for size, b in zip(sizes, _with(bins, i, number), strict=True) if b) <= limit

        for i, column in enumerate(self.states):
            if fits(i, column.first_bins):
                bins[i] = column.first_bins
            elif not any(bins) and column.numeric:
                bins[i] = max((b for b in range(2, column.first_bins) if fits(i, b)), default=2)
        if not any(bins):
            bins[0] = self.states[0].first_bins
        growing = True
        while growing:
            growing = False
            for i, column in enumerate(self.states):
                if 0 < bins[i] < column.most_bins and fits(i, bins[i] + 1):
                    bins[i], growing = bins[i] + 1, True

        def needed(numbers: Sequence[int]) -> int:
            cells = stages * math.prod(c.size(b) for c, b in zip(self.states, numbers, strict=True) if b)
            return math.ceil(USERS_PER_CELL * cells / strength)

        cuts = tuple(column.cuts(b) if b else () for column, b in zip(self.states, bins, strict=True))
        return Grid(self, cuts, needed(bins), needed([column.first_bins for column in self.states]))

    def strength(self, budget: Budget, neighbours: Neighbours = "replace") -> float:
        """ε, or what a Gaussian budget is worth: √(8Hρ). Zero-out: twice that, for one user moves half as much."""
        spent = budget.total("laplace" if budget.kind == "pure" else "gaussian")
        epsilon = spent if budget.kind == "pure" else math.sqrt(8.0 * self.horizon * spent)
        return min(MOST_STRENGTH, epsilon * (1.0 if neighbours == "replace" else 2.0))


ROLES = (
    *("user", "episode", "step", "time", "action", "reward"),
    *("terminated", "done", "truncated", "propensity"),
)
KEYS = tuple(key.name for key in fields(Declaration) if key.name != "states")
COLUMN_KEYS = ("name", "range", "log", "edges", "names", "missing")


def _with(bins: Sequence[int], i: int, number: int) -> list[int]:
    return [number if j == i else b for j, b in enumerate(bins)]


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


NEXT_ROW = (
    "with declared columns a step leads to the next row of its stay, so leave it out, and let terminated, done or "
    "truncated say how a stay ends"
)


def _check_keys(where: str, found: Collection[str], known: Sequence[str]) -> None:
    for key in found:
        if key == "next_state" and key not in known:
            raise ValueError(f"{where} says 'next_state', which is for numbered states; {NEXT_ROW}")
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(known)}"
            raise ValueError(f"{where} says {key!r}, which nobody knows; {meant}")


def _two(where: str, value: object) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{where} is {value!r}; expected two numbers, [low, high]")
    return _float(where, value[0]), _float(where, value[1])


def seconds(value: object) -> float:
    """An interval: a number of seconds, or a text such as 30min, 4h or 1d."""
    found = re.fullmatch(r"([0-9]*[.]?[0-9]+) *(s|min|h|d)", value) if isinstance(value, str) else None
    if found is not None:
        return float(found[1]) * UNITS[found[2]]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"interval is {value!r}; expected seconds, or a text such as 30min, 4h or 1d")


def _column(table: dict[str, Any]) -> Column:
    """One [[state]] of the TOML."""
    name = table.get("name")
    where = f"the declared column {name!r}" if isinstance(name, str) else "a declared column without a name"
    _check_keys(where, table, COLUMN_KEYS)
    if not isinstance(name, str):
        raise ValueError(f'{where} was found; expected name = "..." in every [[state]]')
    low, high = _two(f"the range of {name!r}", table["range"]) if "range" in table else (None, None)
    for key in ("edges", "names"):
        if not isinstance(table.get(key, []), list):
            raise ValueError(f"{where} has {key} {table[key]!r}; expected a list")
    for key in ("log", "missing"):
        if not isinstance(table.get(key, False), bool):
            raise ValueError(f"{where} has {key} = {table[key]!r}; expected true or false")
    return Column(
        name,
        low,
        high,
        table.get("log", False),
        tuple(_float(f"the edges of {name!r}", edge) for edge in table.get("edges", [])),
        tuple(table["names"]) if "names" in table else None,
        table.get("missing", False),
    )


def _lines(declaration: Declaration) -> Iterator[str]:
    for key in KEYS:
        value = getattr(declaration, key)
        if value is not None:
            yield f"{key} = {_toml(value)}\n"
    for column in declaration.states:
        yield f"\n[[state]]\nname = {_toml(column.name)}\n"
        if column.names is not None:
            yield f"names = {_toml(column.names)}\n"
        else:
            yield f"range = {_toml((column.low, column.high))}\n"
        if column.edges:
            yield f"edges = {_toml(column.edges)}\n"
        for key in ("log", "missing"):
            if getattr(column, key):
                yield f"{key} = true\n"


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


# The grid -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """The places of every declared column, and the states they make.

    `cuts` are of fine bins, by column: a row's place is the number of cuts below its fine bin, where what is missing
    is the bin after those of values; without cuts a column is unused. A state is the number Σ_i place_i · Π_{j>i}
    (1 + cuts of j). `users_needed`: so many make S·A ≤ n·ε/60; `users_for_all`: so many let every declared column
    have its first bins.
    """

    declaration: Declaration
    cuts: tuple[tuple[int, ...], ...]
    users_needed: int = field(default=0, compare=False)
    users_for_all: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        states = self.declaration.states
        if len(self.cuts) != len(states):
            raise ValueError(f"the grid has cuts for {len(self.cuts)} columns; expected {len(states)}")
        for column, cuts in zip(states, self.cuts, strict=True):
            most = column.num_fine - (1 if column.missing else 2)
            whole = all(_whole(cut, 0) and cut <= most for cut in cuts)
            if not whole or any(a >= b for a, b in pairwise(cuts)):
                raise ValueError(
                    f"the grid has cuts {cuts} of {column.name!r}; expected some of 0 to {most}, in order"
                )

    @property
    def used(self) -> tuple[tuple[Column, tuple[int, ...]], ...]:
        """Columns with their cuts."""
        return tuple((column, cuts) for column, cuts in zip(self.declaration.states, self.cuts, strict=True) if cuts)

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple(column.name for column, cuts in zip(self.declaration.states, self.cuts, strict=True) if not cuts)

    @property
    def bins(self) -> tuple[int, ...]:
        """Of values, by column; 0: unused."""
        return tuple(
            len(cuts) + 1 - (column.num_fine - 1 in cuts) if cuts else 0
            for column, cuts in zip(self.declaration.states, self.cuts, strict=True)
        )

    @property
    def num_states(self) -> int:
        return math.prod(len(cuts) + 1 for cuts in self.cuts)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Every state in words."""
        if not self.used:
            return ("anywhere",)
        return tuple(", ".join(parts) for parts in product(*(column.texts(cuts) for column, cuts in self.used)))

    def state(self, record: Mapping[str, object]) -> int | None:
        """The state of a record, in which what is not named is missing; None: something is, and has no bin for it."""
        number = 0
        for column, cuts in self.used:
            fine = column.bin(record.get(column.name))
            if fine is None and not column.missing:
                return None
            number = number * (len(cuts) + 1) + bisect_left(cuts, column.num_fine if fine is None else fine)
        return number

    def sql(self, values: Mapping[str, str], literal: Callable[[str], str]) -> str:
        """The state of a row, NULL where it has none; `values` by name of the column, as `Column.sql` has them."""
        text = "0"
        for column, cuts in self.used:
            text = f"({text}) * {len(cuts) + 1} + {column.sql(values[column.name], cuts, literal)}"
        return text

    def states_of(self, fine: NDArray[np.uint8]) -> Ints:
        """The states of rows from the fine bins (rows, columns); −1: none."""
        found = np.zeros(len(fine), dtype=np.int64)
        for i, (column, cuts) in enumerate(zip(self.declaration.states, self.cuts, strict=True)):
            if not cuts:
                continue
            places = np.searchsorted(cuts, np.arange(column.num_fine + 1), side="left")
            places[-1] = places[-1] if column.missing else -1
            place = places[fine[:, i]]
            found = np.where((found < 0) | (place < 0), -1, found * (len(cuts) + 1) + place)
        return found
