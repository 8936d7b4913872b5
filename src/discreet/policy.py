"""A learned policy as a plain table: it loads and acts without anything that was used to learn it."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from discreet.mdp import Floats, Ints, frozen
from discreet.offline.declaration import Declaration, Grid
from discreet.problem import Mask

PARQUET, CSV, DIGESTS = "policy.parquet", "policy.csv", "digests.json"
NOT_KNOWN, AS_NOW = "not known", "as now"
UNITS = "cautious totals from this step on, in the units of the log's rewards"


@dataclass(frozen=True, eq=False)
class Policy:
    """Which action to take at every step in every state, and what it rests on.

    `values` are the cautious values the policy was planned with, in the units of the log's rewards; `known` says
    where the release knew something about the chosen action (elsewhere the choice is a guess). `pooled`: what
    happens was declared not to depend on the step. `grid`: the states are places between declared columns.
    """

    actions: Ints  # (H, S)
    values: Floats  # (H, S)
    known: Mask  # (H, S)
    num_actions: int
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    pooled: bool = False
    grid: Grid | None = None

    def __post_init__(self) -> None:
        actions = np.asarray(self.actions)
        if actions.ndim != 2 or actions.size == 0:
            raise ValueError(f"the actions have shape {actions.shape}; expected one for every step and state")
        if actions.min() < 0 or actions.max() >= self.num_actions:
            raise ValueError(f"an action lies outside 0..{self.num_actions - 1}")
        object.__setattr__(self, "actions", frozen(actions, np.int64))
        object.__setattr__(self, "values", frozen(self.values))
        object.__setattr__(self, "known", frozen(self.known, np.bool_))
        if self.grid is not None and self.grid.num_states != self.num_states:
            raise ValueError(f"the policy has {self.num_states} states, and its columns {self.grid.num_states}")

    @property
    def horizon(self) -> int:
        return int(self.actions.shape[0])

    @property
    def num_states(self) -> int:
        return int(self.actions.shape[1])

    def act(
        self,
        *where: int | str | bool | Mapping[str, object],
        step: int | None = None,
        state: int | str | Mapping[str, object] | None = None,
        guess: bool = False,
    ) -> int | str:
        """The action at a step in a state: `act(step, state)`, or of declared columns `act(record, step=0)`.

        Where the release says nothing about any better choice it is "not known", and with declared columns "as now":
        keep to current practice. With `guess` there is always one, unless a record lacks a value and that has no bin
        of its own. Names in, names out where the policy has names.

        Steps are 0..H−1. A pooled policy acts beyond them, too: as at step 0, which looked ahead the furthest.
        """
        places = ("state", "step", "guess") if where and isinstance(where[0], Mapping) else ("step", "state", "guess")
        given: dict[str, Any] = {"step": step, "state": state, "guess": guess}
        if len(where) > len(places):
            raise ValueError(f"act takes a step and a state; {len(where)} values were given")
        for name, value in zip(places, where, strict=False):
            if name != "guess" and given[name] is not None:
                raise ValueError(f"act was given two values for {name}")
            given[name] = value
        return self._act(given["step"], given["state"], given["guess"])

    def _act(self, step: Any, state: Any, guess: bool) -> int | str:
        if isinstance(state, Mapping):
            state = self._located(state)
            if state is None:
                return AS_NOW
        for name, number in (("step", step), ("state", 0 if isinstance(state, str) else state)):
            if not isinstance(number, (int, np.integer)) or isinstance(number, bool):
                meant = "a whole number" if name == "step" else "a whole number, or a state's name"
                raise ValueError(f"{name} is {number!r}; it must be {meant}")
        if step >= self.horizon and self.pooled:
            step = 0
        if not 0 <= step < self.horizon:
            raise ValueError(f"step is {step}; it must lie in 0..{self.horizon - 1}")
        if isinstance(state, str):
            if self.state_names is None or state not in self.state_names:
                raise ValueError(f"the policy knows no state named {state!r}")
            state = self.state_names.index(state)
        if not 0 <= state < self.num_states:
            raise ValueError(f"state is {state}; it must lie in 0..{self.num_states - 1}")
        if not (guess or self.known[step, state]):
            return NOT_KNOWN if self.grid is None else AS_NOW
        action = int(self.actions[step, state])
        return action if self.action_names is None else self.action_names[action]

    def _located(self, record: Mapping[str, object]) -> int | None:
        """The state of a record."""
        if self.grid is None:
            raise ValueError("the policy was learned from states, not from declared columns; give a state")
        names = [column.name for column, _ in self.grid.used]
        if names and not any(name in record for name in names):
            raise ValueError(f"the record names none of the columns that the policy looks at: {', '.join(names)}")
        return self.grid.state(record)

    def table(self) -> pa.Table:
        """One row per step and state."""
        H, S = self.actions.shape
        steps, states = np.repeat(np.arange(H), S), np.tile(np.arange(S), H)
        columns: dict[str, Any] = {"step": steps, "state": states, "action": self.actions.reshape(-1)}
        if self.state_names is not None:
            columns["state_name"] = [self.state_names[s] for s in states]
        if self.action_names is not None:
            columns["action_name"] = [self.action_names[a] for a in columns["action"]]
        largest = float(np.abs(self.values).max(initial=0.0))
        digits = 6 if largest == 0.0 else max(6, 6 - math.floor(math.log10(largest)))  # rewards may be tiny
        columns["value"] = np.round(self.values.reshape(-1), digits)
        columns["known"] = self.known.reshape(-1)
        facts = {"actions": str(self.num_actions), "pooled": str(self.pooled).lower(), "values": UNITS}
        if self.grid is not None:
            facts |= {"declaration": self.grid.declaration.text, "cuts": json.dumps(self.grid.cuts)}
        return pa.table(columns).replace_schema_metadata(facts)

    def save(self, folder: str | Path) -> None:
        """Write the table twice: for programs and for people."""
        table = self.table()
        pq.write_table(table, Path(folder) / PARQUET)
        with (Path(folder) / CSV).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.column_names)
            writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))

    @classmethod
    def load(cls, folder: str | Path, check: bool = True) -> Policy:
        """Read a folder that `discreet fit` has written; `check`: only if the table is the one of its digests."""
        path = Path(folder) / PARQUET
        if not path.is_file():
            raise ValueError(f"{folder} holds no {PARQUET}")
        if check:
            _check_digest(path)
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
        missing = sorted({"step", "state", "action", "value", "known"} - set(table.column_names))
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}")
        steps, states = (np.asarray(table.column(name), dtype=np.int64) for name in ("step", "state"))
        H, S = int(steps.max(initial=-1)) + 1, int(states.max(initial=-1)) + 1
        if table.num_rows == 0 or not np.array_equal(steps * S + states, np.arange(H * S)):
            raise ValueError(f"{path} does not list every step and state once, in order")
        actions = np.asarray(table.column("action"), dtype=np.int64).reshape(H, S)
        metadata = table.schema.metadata or {}
        num_actions = int(metadata.get(b"actions", b"0")) or int(actions.max()) + 1
        action_names = None
        if "action_name" in table.column_names:
            listed = dict(zip(actions.reshape(-1).tolist(), table.column("action_name").to_pylist(), strict=True))
            action_names = tuple(str(listed.get(a, a)) for a in range(num_actions))
        state_names = None
        if "state_name" in table.column_names:
            state_names = tuple(str(name) for name in table.column("state_name").to_pylist()[:S])
        grid = _grid_of(metadata)
        if grid is not None:
            action_names = grid.declaration.action_names
        return cls(
            actions,
            np.asarray(table.column("value"), dtype=np.float64).reshape(H, S),
            np.asarray(table.column("known").to_pylist(), dtype=np.bool_).reshape(H, S),
            num_actions,
            state_names,
            action_names,
            metadata.get(b"pooled") == b"true",
            grid,
        )


def _grid_of(metadata: Mapping[bytes, bytes]) -> Grid | None:
    """The declared columns of a table, where there are any."""
    if b"declaration" not in metadata:
        return None
    try:
        cuts = tuple(tuple(column) for column in json.loads(metadata[b"cuts"]))
        return Grid(Declaration.from_toml(metadata[b"declaration"].decode()), cuts)
    except (KeyError, TypeError, UnicodeError, json.JSONDecodeError):
        raise ValueError(f"{PARQUET} does not say of which columns its states are; it was altered") from None


def _check_digest(path: Path) -> None:
    """Refuse a table that is not the one of the folder's digests."""
    try:
        listed = json.loads((path.parent / DIGESTS).read_text(encoding="utf-8"))[path.name]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path.parent} has no digest of {path.name} in {DIGESTS}; load it with check=False"
        ) from None
    if listed != hashlib.sha256(path.read_bytes()).hexdigest():
        raise ValueError(f"{path} differs from its digest: it was altered after it was written")
