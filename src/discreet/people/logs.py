"""Where logged trajectories come from: files, tables in memory, plain arrays, Minari datasets, databases, Spark.

Every source becomes one relation named `log` in an engine that speaks SQL (`engines`). Sources are only ever read;
files of text and Python objects are text.
"""

from __future__ import annotations

import difflib
import glob
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from discreet.cells import text_of
from discreet.people.counts import CountSpec
from discreet.people.engines import DuckDB, Engine, Spark, unreadable
from discreet.people.episodes import Episodes
from discreet.people.text import DELIMITERS, TextLog, checked

#: What a column of a log can mean; `done` is another word for `terminated`.
ROLES = (
    *("user", "episode", "step", "state", "action", "reward", "next_state"),
    *("terminated", "truncated", "done"),
)
OPTIONAL = ("episode", "next_state", "terminated", "truncated", "done")

#: Roles that may share a column: every user has one episode; done is another word.
SHARED = ("user", "episode"), ("terminated", "done")

#: Steps of an episode: each is a bit of the marks that show repeated and missing ones.
LONGEST = 100_000

#: What a step pays to those who left, in ranges of the reward: sums of so many steps keep their digits.
LARGEST_RATE = 1e6

EarlyEnd = Literal["absorb", "keep"]


@dataclass(frozen=True)
class LogFormat:
    """Public description of a log: sizes, names and the rules by which a person's rows are read.

    States and actions are 0..n−1, or the position of their name in `state_names` / `action_names` (declared, never
    learned from the data: a name that only one person has would give that person away).

    Of every user the first `episodes_per_user` episodes count, by episode number, and of these the steps 0..H−1 (from
    `first_step` on, if the log counts them from another number); an episode in which a step occurs twice does not
    count. A row with an impossible state, action, step or a reward that is no number is a missing step, and a row
    without a user is nobody's. `early_end="absorb"`: an episode ends before its first missing step, and if that
    is before the horizon the person moves to an additional state that is never left. "keep": every row stands for
    itself, and nothing is said about what follows an episode's last row. In that state every step that remains pays
    `ended_pays`, in the same units as the rewards and whatever their range is.

    Columns `terminated` (or `done`) and `truncated` say how an episode stopped: rows after the first such row do not
    count; a terminated row leads to the additional state, a truncated one to nobody knows where, unless it has a
    `next_state`. Under "absorb" a missing `next_state` says that the episode ended, before the last step; at the last
    one, and under "keep", nobody knows what followed. Such a row still counts as a visit and for its reward.
    `enforce=False` skips all rules about users: the guarantee then rests on the declaration that nobody has more.
    All rules look at one person's rows at a time, so one person still moves the counts by her own rows only.
    """

    num_states: int
    num_actions: int
    horizon: int
    pooled: bool = False
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    episodes_per_user: int = 1
    reward_range: tuple[float, float] = (0.0, 1.0)
    early_end: EarlyEnd = "absorb"
    enforce: bool = True
    num_users: int | None = None  # declared; None: the number of users in the log, which is then public
    first_visits: bool = False  # count only an episode's first visit to every (s, a): less for one person to move
    grid: float = 2.0**-20
    first_step: int = 0  # the number of an episode's first step in the log
    ended_pays: float = 0.0  # per remaining step, to those whose episode has ended
    given: frozenset[str] | None = None  # optional columns of the source; None: every row has its successor

    def __post_init__(self) -> None:
        if not math.isfinite(self.ended_pays):
            raise ValueError(f"ended_pays is {self.ended_pays}; it must be a number")
        for name, names, count in (
            ("state_names", self.state_names, self.num_states),
            ("action_names", self.action_names, self.num_actions),
        ):
            if names is not None and (len(names) != count or len(set(names)) != count):
                raise ValueError(f"{name} hold {len(set(names))} different names; expected {count}, each once")
        self._check_columns()
        if self.early_end not in ("absorb", "keep"):
            raise ValueError(f"early_end is {self.early_end!r}; it must be 'absorb' or 'keep'")
        if int(self.episodes_per_user) != self.episodes_per_user or self.episodes_per_user < 1:
            raise ValueError(
                f"episodes_per_user is {self.episodes_per_user!r}; it must be a whole number of at least 1"
            )
        for name, count in (("num_states", self.num_states), ("num_actions", self.num_actions)):
            if count < 1:
                raise ValueError(f"{name} is {count}; it must be at least 1")
        if self.horizon > LONGEST:
            raise ValueError(f"horizon is {self.horizon}; episodes of more than {LONGEST:,} steps cannot be counted")
        if not isinstance(self.first_step, int) or not 0 <= self.first_step <= LONGEST:
            raise ValueError(f"first_step is {self.first_step!r}; it must be a whole number from 0 to {LONGEST:,}")
        if self.num_users is not None and self.num_users < 1:
            raise ValueError(f"num_users is {self.num_users}; it must be at least 1")
        if not self.enforce and self.early_end == "absorb":
            raise ValueError("where an episode ends is not looked at when enforce is False; use early_end='keep'")
        _ = self.spec
        if not abs(self.ended_rate) <= LARGEST_RATE:
            raise ValueError(
                f"ended_pays is {self.ended_pays:g}, more than {LARGEST_RATE:g} times the range of the rewards"
            )

    def _check_columns(self) -> None:
        for role in sorted(set(self.columns) - set(ROLES)):
            near = difflib.get_close_matches(role, ROLES, 1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"columns map {role!r}; {meant}the roles of columns are {', '.join(ROLES)}")
        taken: dict[str, str] = {}
        for role in ROLES:
            other = taken.setdefault(self.column(role), role)
            if other != role and (other, role) not in SHARED:
                raise ValueError(
                    f"columns give {self.column(role)!r} to both {other} and {role}; each needs a column of its own"
                )

    @property
    def has_ended(self) -> bool:
        """Whether there is a state of those whose episode has ended: number S."""
        return self.early_end == "absorb" or self._has("terminated")

    @property
    def has_unknown(self) -> bool:
        """Whether a successor may be unknown, which is then one successor more: a function of the columns alone."""
        if self.given is None or "successors" in self.given or (self.horizon == 1 and not self.pooled):
            return False
        return self.pooled or self.early_end == "keep" or self._has("truncated")

    def _has(self, role: str) -> bool:
        return self.given is not None and role in self.given

    @property
    def ended_rate(self) -> float:
        """What a step pays to those whose episode has ended, in units in which rewards lie in [0, 1]."""
        low, high = self.reward_range
        return (self.ended_pays - low) / (high - low)

    def read_from(self, columns: Collection[str], complete: bool = False) -> LogFormat:
        """The same for a source that has these columns; `complete`: in which no next_state can be missing."""
        named = dict(self.columns)
        done = named.get("done", "done")
        instead = "terminated" not in named and done in columns and ("done" in named or "terminated" not in columns)
        if instead:
            named["terminated"] = done
        there = {role for role in OPTIONAL if named.get(role, role) in columns}
        there = there if instead else there - {"done"}
        return replace(self, columns=named, given=frozenset(there | ({"successors"} if complete else set())))

    @property
    def spec(self) -> CountSpec:
        """What is counted, the additional states included."""
        states = self.num_states + self.has_ended + self.has_unknown
        return CountSpec(states, self.num_actions, self.horizon, self.pooled, self.grid, self.reward_range)

    def column(self, role: str) -> str:
        return self.columns.get(role, role)


# Sources ------------------------------------------------------------------------------------------------------------


def open_log(source: Any, table: str | None = None, name: str = "log") -> Engine:
    """An engine in which `log`, or another name, is the source.

    A source is a path, glob or list of them (.parquet, .csv, .tsv, .arrow, .feather; text also as .gz or .zst), a
    DuckDB database file with the name of a `table`, an Arrow, pandas or Polars table, a mapping from column names to
    arrays, `Episodes` (one per user), a Minari dataset, a Spark data frame, or an engine that has a `log` already.
    """
    if isinstance(source, DuckDB):
        return source
    if isinstance(source, Spark):
        if name in (source.name, "log"):  # whoever keeps the source under another name has made its own `log` of it
            return source
        return _opened(source.session.table(source.name), source.delimited, name, source.comma)
    if _module(source) == "pyspark":
        return _opened(source, False, name, False)
    engine = DuckDB(name=name)
    if isinstance(source, (str, Path)) or (
        isinstance(source, Sequence) and source and all(isinstance(item, (str, Path)) for item in source)
    ):
        _open_files(engine, [source] if isinstance(source, (str, Path)) else list(source), table)
        return engine
    engine.typed = not (isinstance(source, Mapping) or _module(source) == "pandas")
    try:
        found = checked(_in_memory(source))
        engine.register(name, found)
        engine.kept_as = found if isinstance(found, pa.Table) else None
    except duckdb.NotImplementedException:
        raise ValueError("a column has a type that cannot be read; expected numbers, bools or text") from None
    return engine


def _opened(frame: Any, delimited: bool, name: str, comma: bool) -> Spark:
    frame.createOrReplaceTempView(name)
    return Spark(frame.sparkSession, delimited, name, comma=comma)


def _module(source: object) -> str:
    return type(source).__module__.partition(".")[0]


def is_dataset(source: object) -> bool:
    """Of Arrow, whose part for datasets takes long to load: who has one has loaded it."""
    return type(source).__module__ == "pyarrow._dataset" and hasattr(source, "to_batches")


def _in_memory(source: Any) -> Any:
    """Anything DuckDB can read without looking at values to find their type."""
    if isinstance(source, Episodes):
        return table_of(source)
    if isinstance(source, Mapping):
        return pa.table({name: _column(name, values) for name, values in source.items()})
    if hasattr(source, "iterate_episodes"):
        return minari_table(source)
    if isinstance(source, pa.RecordBatchReader):
        return source.read_all()  # it can be read only once
    if isinstance(source, pa.Table) or is_dataset(source):
        return source
    if _module(source) == "pandas":
        names = [str(name) for name in source.columns]
        columns = [_column(name, source.iloc[:, i]) for i, name in enumerate(names)]
        return pa.Table.from_arrays(columns, names)
    if _module(source) == "polars":
        with unreadable():
            return (source.collect() if hasattr(source, "collect") else source).to_arrow()
    raise ValueError(
        f"a log cannot be a {type(source).__name__}; expected files, an Arrow, pandas or Polars table, a mapping "
        "from column names to arrays, Episodes, a Minari dataset or a Spark data frame"
    )


def _column(name: str, values: Any) -> pa.Array:
    """One value per row: typed where the source states a type, else text, value by value."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if len(np.shape(values) if hasattr(values, "dtype") else ()) not in (0, 1):
        raise ValueError(f"column {name!r} has shape {np.shape(values)}; expected one value per row")
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if kind in "OU":  # objects, text, categories, lists
        return pa.array([text_of(value) for value in values], pa.string())
    if kind == "f" and isinstance(values.dtype, np.dtype):
        values = np.asarray(values, np.float64)
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        raise ValueError(f"column {name!r} holds {values.dtype}; expected numbers, bools or text") from None


def _open_files(engine: DuckDB, patterns: Sequence[str | Path], table: str | None) -> None:
    paths = [path for pattern in patterns for path in _matching(str(pattern))]
    suffixes = {_suffix(path) for path in paths}
    if len(suffixes) > 1:
        raise ValueError(f"the log mixes {', '.join(sorted(suffixes))} files; give files of one kind")
    (suffix,) = suffixes
    if table is not None and suffix not in (".duckdb", ".db"):
        raise ValueError(f"{paths[0]} is no database; a table can be named only in a .duckdb file")
    connection = engine.connection
    engine.typed = suffix not in DELIMITERS
    if suffix in DELIMITERS:
        with _damaged(paths):
            log = TextLog.opened(paths, suffix)
            connection.register(engine.name, log)
        engine.delimited, engine.comma = True, log.comma
    elif suffix == ".parquet":
        # The least and largest value that a Parquet file states say nothing about NaN, and DuckDB trusts them
        # unless told otherwise.
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        options = "union_by_name = true, can_have_nan = true"
        with _damaged(paths):
            connection.execute(f"CREATE TEMP VIEW {engine.name} AS SELECT * FROM read_parquet([{listed}], {options})")
        engine._checked = lambda: checked(_unified(paths, "parquet"))
        engine.kept_as = paths
    elif suffix in (".arrow", ".feather"):
        with _damaged(paths):
            connection.register(engine.name, checked(_unified(paths, "ipc")))
    elif suffix in (".duckdb", ".db"):
        if table is None:
            raise ValueError(f"{paths[0]} is a database; name the table in it (--table)")
        path = paths[0].replace("'", "''")
        with _damaged(paths):
            connection.execute(f"ATTACH '{path}' AS logged (READ_ONLY)")
        place = ".".join(engine.quoted(part) for part in table.split("."))
        try:
            connection.execute(f"CREATE TEMP VIEW {engine.name} AS SELECT * FROM logged.{place}")
        except duckdb.Error:
            raise ValueError(f"the log {paths[0]} cannot be read: it has no table {table!r}") from None
    else:
        raise ValueError(f"{paths[0]} is of no known kind; expected .parquet, .csv, .tsv, .arrow or .duckdb")


def _unified(paths: Sequence[str], kind: str) -> Any:
    """Files as one dataset with all their columns; those that a file does not have are null there."""
    from pyarrow.dataset import dataset

    schemas = [dataset(path, format=kind).schema for path in paths]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    return dataset(list(paths), schema=schema, format=kind)


@contextmanager
def _damaged(paths: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError):
        which = paths[0] if len(paths) == 1 else f"{paths[0]} and others"
        raise ValueError(
            f"the log {which} cannot be read: it is damaged or not of the kind that its name says"
        ) from None


def parquet_schemas(source: Any) -> list[pa.Schema]:
    """Of all Parquet files that a source names; none for any other source."""
    patterns = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(patterns, Sequence) or not all(isinstance(item, (str, Path)) for item in patterns):
        return []
    paths = [path for pattern in patterns for path in glob.glob(str(pattern), recursive=True)]
    return (
        [pyarrow.parquet.read_schema(path) for path in paths] if {_suffix(p) for p in paths} == {".parquet"} else []
    )


def columns_of_files(source: Any) -> dict[str, frozenset[str]]:
    """The columns of every file that a source names; none for other sources and databases."""
    patterns = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(patterns, Sequence) or not all(isinstance(item, (str, Path)) for item in patterns):
        return {}
    paths = [path for pattern in patterns for path in _matching(str(pattern))]
    suffix = {_suffix(path) for path in paths}.pop()
    if suffix in DELIMITERS:
        files = TextLog.opened(paths, suffix).files
        return {file.path: frozenset(name for name in file.columns if name is not None) for file in files}
    kinds = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc"}
    if suffix not in kinds:
        return {}
    from pyarrow.dataset import dataset

    return {path: frozenset(dataset(path, format=kinds[suffix]).schema.names) for path in paths}


def _matching(pattern: str) -> list[str]:
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise ValueError(f"no file matches {pattern}")
    if [path for path in found if Path(path).is_file() and Path(path).stat().st_size == 0]:
        raise ValueError(f"{pattern} holds an empty file; a log needs a header and rows")
    return found


def _suffix(path: str) -> str:
    name = path.lower().removesuffix(".gz").removesuffix(".zst")
    return Path(name).suffix


def table_of(episodes: Episodes) -> pa.Table:
    """Episodes as a log in which every episode is another user."""
    K, H = len(episodes), episodes.horizon
    columns = {
        "user": np.repeat(np.arange(K), H),
        "step": np.tile(np.arange(H), K),
        "state": episodes.states[:, :-1].reshape(-1),
        "action": episodes.actions.reshape(-1),
        "reward": episodes.rewards.reshape(-1),
        "next_state": episodes.states[:, 1:].reshape(-1),
    }
    return _complete_table(columns)


def _complete_table(columns: Mapping[str, Any]) -> pa.Table:
    """A table whose schema says that nothing is missing."""
    kinds = {name: pa.array(values[:0]).type for name, values in columns.items()}
    return pa.table(columns, schema=pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()]))


def minari_table(dataset: Any) -> pa.Table:
    """A Minari dataset as a log. Its episodes do not say who played them: each counts as another user."""

    def parts() -> Iterator[dict[str, Any]]:
        for episode in dataset.iterate_episodes():
            actions, states = np.asarray(episode.actions), np.asarray(episode.observations)
            if actions.ndim != 1 or states.ndim != 1:
                raise ValueError("the dataset has vectors for states or actions; expected one whole number each")
            n = len(actions)
            yield {
                "user": np.full(n, int(episode.id)),
                "step": np.arange(n),
                "state": states[:n],
                "action": actions,
                "reward": np.asarray(episode.rewards, np.float64),
                "next_state": states[1 : n + 1],
                "terminated": np.asarray(episode.terminations, dtype=np.bool_),
                "truncated": np.asarray(episode.truncations, dtype=np.bool_),
            }

    collected = list(parts())
    if not collected:
        raise ValueError("the dataset holds no episode")
    return _complete_table({name: np.concatenate([part[name] for part in collected]) for name in collected[0]})
