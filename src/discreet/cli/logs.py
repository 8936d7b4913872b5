"""What the options that describe a log mean: numbered states or declared columns, files of names and tables."""

from __future__ import annotations

import csv
import io
import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from discreet.cli.options import spoken

if TYPE_CHECKING:
    from discreet.mdp import Floats
    from discreet.offline.declaration import Declaration
    from discreet.people.logs import LogFormat
    from discreet.problem import Mask

#: Options that a declaration says, and of these what one from options is told as it stands.
SAID = (
    *("states", "state", "actions", "horizon", "pooled", "episodes_per_user", "columns", "first_step"),
    *("reward_range", "early_end", "ended_pays", "propensity", "time", "interval"),
)
TOLD = ("early_end", "episodes_per_user", "first_step", "ended_pays", "propensity", "time", "interval")
#: Options that describe a log of numbered states.
NUMBERED = (
    *("states", "actions", "horizon", "pooled", "columns", "reward_range", "early_end", "episodes_per_user"),
    *("users", "first_step", "ended_pays"),
)


def declared(context: typer.Context) -> Declaration | None:
    """The declaration that a file or options make; None: neither is there."""
    from discreet.offline.declaration import Declaration

    said = context.params
    if said["declare"] is not None:
        if twice := spoken(context, SAID):
            raise ValueError(f"{twice[0]} is said by the declaration; leave it out, or --declare")
        return Declaration.from_toml(public_text(Path(said["declare"])))
    if not said["state"]:
        for option in spoken(context, ("propensity", "time", "interval")):
            raise ValueError(f"{option} is for logs of columns; give these with --state or --declare")
        return None
    if spoken(context, ("states",)):
        raise ValueError("--states and --state were given; expected one of both: numbered states, or columns")
    for name in ("actions", "horizon"):
        if said[name] is None:
            raise ValueError(f"--{name} is missing; columns need it, too")
    number, names = listed("--actions", str(said["actions"]))
    others = {name: said[name] for name in TOLD if name in said}
    if "reward_range" in said:
        others["reward_range"] = number_range(said["reward_range"])
    columns = mapped(said.get("columns", ""))
    return Declaration.from_options(list(said["state"]), names or number, said["horizon"], columns, **others)


def numbered(context: typer.Context) -> LogFormat:
    """The log of numbered states that the options describe."""
    said = {name: context.params[name] for name in NUMBERED}
    for name in ("states", "actions", "horizon"):
        if said[name] is None:
            raise ValueError(f"--{name} is missing; give it, or columns with --declare or --state")
    return log_format(**said, enforce=not context.params.get("trust_bounds", False))


def log_format(
    states: str,
    actions: str,
    horizon: int,
    pooled: bool,
    columns: str = "",
    reward_range: str = "0:1",
    early_end: str = "absorb",
    episodes_per_user: int = 1,
    users: int | None = None,
    enforce: bool = True,
    first_step: int = 0,
    ended_pays: float = 0.0,
) -> LogFormat:
    """The options that describe a log."""
    from discreet.people.logs import LogFormat

    num_states, state_names = listed("--states", states)
    num_actions, action_names = listed("--actions", actions)
    if early_end not in ("absorb", "keep"):
        raise ValueError(f"--early-end is {early_end!r}; it must be absorb or keep")
    return LogFormat(
        num_states,
        num_actions,
        horizon,
        pooled,
        state_names,
        action_names,
        mapped(columns),
        episodes_per_user,
        number_range(reward_range),
        "absorb" if early_end == "absorb" and enforce else "keep",
        enforce,
        users,
        first_step=first_step,
        ended_pays=ended_pays,
    )


def mapped(text: str) -> dict[str, str]:
    """Columns by role."""
    found: dict[str, str] = {}
    for role, name in (pair("--columns", part, "=") for part in text.split(",") if part.strip()):
        if role in found:
            raise ValueError(f"--columns names a column for {role!r} twice")
        found[role] = name
    return found


def pair(option: str, text: str, sign: str) -> tuple[str, str]:
    left, _, right = (part.strip() for part in text.partition(sign))
    if not (left and right):
        raise ValueError(f"{option} holds {text!r}; expected two parts joined by {sign!r}")
    return left, right


def number_range(text: str) -> tuple[float, float]:
    low, high = pair("--reward-range", text, ":")
    try:
        return float(low), float(high)
    except ValueError:
        raise ValueError(f"--reward-range is {text!r}; expected two numbers such as 0:1") from None


def listed(option: str, text: str) -> tuple[int, tuple[str, ...] | None]:
    """How many there are, and their names where they are given, with commas between them or in a file, one per line;
    blank lines and a byte order mark name nothing."""
    if text.isascii() and text.isdecimal():
        return int(text), None
    path = Path(text)
    if "," not in text and not path.is_file():
        raise ValueError(f"{option} is {text!r}; expected a number, names such as a,b,c or a file of one per line")
    parts = public_text(path).split("\n") if path.is_file() else text.split(",")
    names = [part.strip() for part in parts if part.strip()]
    if not names:
        raise ValueError(f"{option}: {text} holds no names")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{option}: {text} names {name!r} twice")
    return len(names), tuple(names)


def public_text(path: Path) -> str:
    """A small file in UTF-8, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it in that encoding") from None


def position(names: tuple[str, ...] | None, text: str, limit: int, what: str) -> int:
    """A state or action by name or by number."""
    if names is not None and text in names:
        return names.index(text)
    if names is None and text.isdecimal() and int(text) < limit:
        return int(text)
    raise ValueError(f"{text!r} is no {what} of the {limit} declared")


def start_of(text: str, log: LogFormat) -> Floats:
    import numpy as np

    start = np.zeros(log.num_states)
    if not text.lower().endswith(".csv"):
        start[position(log.state_names, text, log.num_states, "state")] = 1.0
        return start
    seen = set()
    for row in read_rows(Path(text), "state", "probability"):
        s = position(log.state_names, row["state"], log.num_states, "state")
        if s in seen:
            raise ValueError(f"{text} gives the state {row['state']!r} twice")
        seen.add(s)
        start[s] = number_in(Path(text), "probability", row)
    return start


def read_rows(path: Path, *columns: str) -> list[dict[str, str]]:
    """The rows of a small CSV file, which must have the columns."""
    try:
        reader = csv.DictReader(io.StringIO(public_text(path), newline=""), restval="")
        rows, found = list(reader), list(reader.fieldnames or ())
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for column in columns:
        if column not in found:
            raise ValueError(f"{path} has no column {column!r}; its columns are {', '.join(found) or 'none'}")
    return rows


def number_in(path: Path, column: str, row: dict[str, str]) -> float:
    try:
        if math.isfinite(number := float(row[column])):
            return number
    except ValueError:
        pass
    raise ValueError(f"{path} has the {column} {row[column]!r}; expected a number")


def read_rewards(path: Path, log: LogFormat) -> Floats:
    """(S, A) from a CSV file, or (H, S, A) if it has a column for steps, as the log numbers them; every pair once."""
    import numpy as np

    rows = read_rows(path, "state", "action", "reward")
    stages = log.horizon if rows and "step" in rows[0] else 1
    table = np.full((stages, log.num_states, log.num_actions), np.nan)
    for row in rows:
        h = 0
        if stages > 1:
            h = position(None, row["step"], log.horizon + log.first_step, "step") - log.first_step
        s = position(log.state_names, row["state"], log.num_states, "state")
        a = position(log.action_names, row["action"], log.num_actions, "action")
        if h < 0 or not np.isnan(table[h, s, a]):
            raise ValueError(f"{path} has a reward for state {s} and action {a} twice, or before the first step")
        table[h, s, a] = number_in(path, "reward", row)
    if np.isnan(table).any():
        h, s, a = (int(i) for i in np.argwhere(np.isnan(table))[0])
        when = f" at step {h}" if stages > 1 else ""
        raise ValueError(f"{path} gives no reward for state {s} and action {a}{when}; every pair needs one")
    return table if stages > 1 else table[0]


def read_array(path: Path, what: str) -> Any:
    """The array of a .npy file."""
    import numpy as np

    try:
        with path.open("rb") as file:
            table = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} holds no array of {what}: {error}") from None
    if not isinstance(table, np.ndarray):
        raise ValueError(f"{path} holds several arrays; expected one array of {what} in a .npy file")
    return table


def read_features(path: Path) -> Floats:
    import numpy as np

    table = read_array(path, "features")
    if table.dtype.kind not in "fiub":
        raise ValueError(f"{path} holds {table.dtype}; expected an array of numbers")
    found: Floats = table.astype(np.float64)
    return found


def read_successors(path: Path) -> Mask:
    table = read_array(path, "successors")
    if table.dtype != bool:
        raise ValueError(f"{path} holds {table.dtype}; expected an array of bools: which successors can occur")
    found: Mask = table
    return found


def source_of(logs: list[str], engine: str) -> Any:
    from discreet.catalog import ALGORITHMS

    for name in logs:
        if name in ALGORITHMS and not Path(name).exists():
            raise ValueError(f"{name} is a learner and no log; give files, and the learner with --algorithm")
    if engine == "duckdb":
        return logs
    if engine != "spark":
        raise ValueError(f"--engine is {engine!r}; it must be duckdb or spark")
    from discreet.people.spark import open_files

    return open_files(logs)
