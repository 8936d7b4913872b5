"""What was wrong with a log and left out: for whoever holds the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from discreet.people.engines import Engine, integers
from discreet.people.logs import LogFormat
from discreet.people.reading import flags_of, names_of

CHECK = "check the declared states, actions and horizon (states or actions that have names need a list of them)"


@dataclass(frozen=True)
class Repairs:
    """What was wrong with a log and left out. These numbers are not private: they are for whoever holds the data."""

    rows: int = 0
    unreadable_rows: int = 0  # malformed, nobody's, or with a state, action, step or reward that cannot be
    repeated_steps: int = 0  # episodes in which a step occurs twice
    cut_rows: int = 0  # beyond the bound on episodes, the horizon or the first missing step
    malformed_lines: int = 0  # of a file of text
    nobody_rows: int = 0  # well-formed rows without a user
    columns: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by column and reason: how many rows
    counted_from_one: bool = False  # there is no step 0, but a step H

    def sentences(self) -> tuple[str, ...]:
        lines = [
            f"{number:,} {text}"
            for number, text in (
                (self.unreadable_rows, "rows that cannot be read, left out"),
                (self.malformed_lines, "of these are malformed lines (fields, quotes, encoding)"),
                (self.nobody_rows, "of these name no user"),
                (self.repeated_steps, "episodes in which a step occurs twice, left out"),
                (
                    self.cut_rows,
                    "other rows beyond the bound on episodes, after a missing step or without an episode, left out",
                ),
            )
            if number
        ]
        for column, reasons in self.columns.items():
            listed = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
            lines.append(f"column {column!r}: {listed}")
        if self.rows <= self.unreadable_rows + self.cut_rows:
            lines.append(f"no row of the log can be counted: {CHECK}")
        if self.counted_from_one:
            lines.append("no row has step 0: if steps are counted from 1, say so (--first-step 1, first_step=1)")
        return tuple(lines)


def faults_of(engine: Engine, log: LogFormat, unreadable: bool) -> Repairs:
    """What is wrong with rows, column by column: one pass over the log, over few columns if all rows can be read."""
    formed, faults = ("formed" if engine.delimited else "TRUE"), {}
    there = {role for role in ("next_state", "episode") if log.column(role) in engine.kinds()}
    if unreadable:
        if "episode" in there:
            faults["episode", "missing"] = "episode IS NULL"
        for role in ("step", "state", "action", "reward", "next_state"):
            value = "paid" if role == "reward" else role
            if role != "next_state":
                faults[role, "missing"] = f"NOT {role}_there"
            elif role not in there:
                continue
            most = {"step": log.horizon, "action": log.num_actions}.get(role, log.num_states) - 1
            if names_of(log, role) is not None:
                faults[role, "not a declared name"] = f"{role}_there AND {value} IS NULL"
                continue
            faults[role, "not a number" if role == "reward" else "not a whole number"] = (
                f"{role}_there AND {value} IS NULL"
            )
            if role != "reward":
                shift = log.first_step if role == "step" else 0
                faults[role, f"outside {shift}..{most + shift}"] = f"{role} NOT BETWEEN 0 AND {most}"
        for role in flags_of(log):
            faults[role, "neither true nor false, neither 1 nor 0"] = f"{role} IS NULL"
    below, above = clippings(log)
    faults["reward", below] = "paid < 0.0"
    faults["reward", above] = "paid > 1.0 AND paid < CAST('NaN' AS DOUBLE)"
    steps = ("step = 0", f"step = {log.horizon}") if unreadable else ("FALSE", "FALSE")
    of_somebody = (f"person IS NOT NULL AND {condition}" for condition in (*steps, *faults.values()))
    sums = ", ".join(
        f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END) AS n{i}"
        for i, condition in enumerate((f"NOT {formed}", f"{formed} AND person IS NULL", *of_somebody))
    )
    rows, malformed, nobody, at_zero, at_end, *numbers = integers(engine, f"SELECT count(*), {sums} FROM parsed")
    return Repairs(
        rows,
        malformed_lines=malformed,
        nobody_rows=nobody,
        columns=by_column(log, dict(zip(faults, numbers, strict=True))),
        counted_from_one=at_end > 0 and not at_zero and not log.first_step,
    )


def clippings(log: LogFormat) -> tuple[str, str]:
    """What is said of rewards out of their range."""
    low, high = log.reward_range
    return f"below {low:g}, clipped", f"above {high:g}, clipped"


def by_column(log: LogFormat, faults: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Numbers of rows by role and reason, as repairs list them."""
    columns: dict[str, dict[str, int]] = {}
    for (role, reason), number in faults.items():
        if number:
            columns.setdefault(log.column(role), {})[reason] = number
    return columns
