"""A learned policy as a plain table: it loads and acts without anything that was used to learn it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from discreet.mdp import Floats, Ints, frozen
from discreet.structure import Mask

PARQUET, CSV = "policy.parquet", "policy.csv"


@dataclass(frozen=True, eq=False)
class Policy:
    """Which action to take at every step in every state, and what it rests on.

    `values` are the cautious values the policy was planned with, in units of the scaled reward; `known` says where
    the release knew something about the chosen action (elsewhere the choice is a guess).
    """

    actions: Ints  # (H, S)
    values: Floats  # (H, S)
    known: Mask  # (H, S)
    num_actions: int
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        actions = np.asarray(self.actions)
        if actions.ndim != 2 or actions.size == 0:
            raise ValueError(f"the actions have shape {actions.shape}; expected one for every step and state")
        if actions.min() < 0 or actions.max() >= self.num_actions:
            raise ValueError(f"an action lies outside 0..{self.num_actions - 1}")
        object.__setattr__(self, "actions", frozen(actions, np.int64))
        object.__setattr__(self, "values", frozen(self.values))
        object.__setattr__(self, "known", frozen(self.known, np.bool_))

    @property
    def horizon(self) -> int:
        return int(self.actions.shape[0])

    @property
    def num_states(self) -> int:
        return int(self.actions.shape[1])

    def act(self, step: int, state: int | str) -> int | str:
        """The action at a step (0..H−1) in a state; names in, names out where the policy has names."""
        if not 0 <= step < self.horizon:
            raise ValueError(f"step is {step}; it must lie in 0..{self.horizon - 1}")
        if isinstance(state, str):
            if self.state_names is None or state not in self.state_names:
                raise ValueError(f"the policy knows no state named {state!r}")
            state = self.state_names.index(state)
        if not 0 <= state < self.num_states:
            raise ValueError(f"state is {state}; it must lie in 0..{self.num_states - 1}")
        action = int(self.actions[step, state])
        return action if self.action_names is None else self.action_names[action]

    def table(self) -> pa.Table:
        """One row per step and state."""
        H, S = self.actions.shape
        steps, states = np.repeat(np.arange(H), S), np.tile(np.arange(S), H)
        columns: dict[str, Any] = {"step": steps, "state": states, "action": self.actions.reshape(-1)}
        if self.state_names is not None:
            columns["state_name"] = [self.state_names[s] for s in states]
        if self.action_names is not None:
            columns["action_name"] = [self.action_names[a] for a in columns["action"]]
        columns["value"] = np.round(self.values.reshape(-1), 6)
        columns["known"] = self.known.reshape(-1)
        return pa.table(columns).replace_schema_metadata({"actions": str(self.num_actions)})

    def save(self, folder: str | Path) -> None:
        """Write the table twice: for programs and for people."""
        table = self.table()
        pq.write_table(table, Path(folder) / PARQUET)
        with (Path(folder) / CSV).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.column_names)
            writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))

    @classmethod
    def load(cls, folder: str | Path) -> Policy:
        """Read a folder that `discreet fit` has written."""
        path = Path(folder) / PARQUET
        if not path.is_file():
            raise ValueError(f"{folder} holds no {PARQUET}")
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
        return cls(
            actions,
            np.asarray(table.column("value"), dtype=np.float64).reshape(H, S),
            np.asarray(table.column("known").to_pylist(), dtype=np.bool_).reshape(H, S),
            num_actions,
            state_names,
            action_names,
        )
