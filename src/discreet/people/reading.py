"""Values of a log read one by one, in SQL: numbers, users, episodes, flags, and the rows of somebody.

The text uses only what DuckDB and Spark share. Both order NaN after numbers.
"""

from __future__ import annotations

import pyarrow as pa

from discreet.people.engines import Engine, Kind
from discreet.people.logs import OPTIONAL, ROLES, LogFormat

#: A number in text: decimal, ASCII, perhaps with spaces around it. Short of this, text is a bool, a name or nothing.
NUMBER = " *[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)? *"
NAN = "CAST('NaN' AS DOUBLE)"
TRUE, FALSE, MISSING = " *[tT][rR][uU][eE] *", " *[fF][aA][lL][sS][eE] *", " *([nN][aA][nN] *)?"
#: Columns that say how an episode stopped, and all that hold numbers whatever is declared.
FLAGS = ("terminated", "truncated")
UNNAMED = ("step", "reward", *FLAGS)
#: Whole numbers are cut to −1 and this, both of which are out of every range.
LARGE = 1_000_000_000


def prepare(engine: Engine, log: LogFormat) -> None:
    """Define `parsed` (all rows, value by value) and `readings` (those of somebody)."""
    kinds = engine.kinds()
    _check_columns(engine, log, kinds)
    for view, listed in (("state_names", log.state_names), ("action_names", log.action_names)):
        if listed is not None:
            engine.register(view, pa.table({"name": list(listed), "code": list(range(len(listed)))}))
    followed = log.column("next_state") in kinds
    as_text = any(
        kinds.get(log.column(role)) == "text" for role in ("step", "state", "action", "reward", *flags_of(log))
    )
    engine.keep("parsed", _parsed(engine, log, kinds), as_text)
    engine.keep("readings" if followed else "readings_alone", _reading(log, followed), False)
    if not followed:
        engine.keep("readings", followed_rows(log, "readings_alone"), False)


def _check_columns(engine: Engine, log: LogFormat, kinds: dict[str, Kind]) -> None:
    """Refuse a log by its schema, which is public."""
    missing = [role for role in ROLES if role not in OPTIONAL and log.column(role) not in kinds]
    missing += [role for role in OPTIONAL if role in log.columns and log.column(role) not in kinds]
    if missing:
        names = ", ".join(repr(log.column(role)) for role in missing)
        if engine.delimited and not any(log.column(role) in kinds for role in ROLES):
            raise ValueError(
                f"the log has no column {names}; its first line must name the columns, and names none of these "
                f"(say which they are: {missing[0]}=NAME)"
            )  # which is not shown: is it a row?
        raise ValueError(
            f"the log has no column {names}; its columns are {', '.join(kinds)} (say which one it is: "
            f"{missing[0]}=NAME)"
        )
    for role in ("step", "state", "action", "next_state", "reward", *flags_of(log)):
        if kinds.get(log.column(role)) == "other" and (role in UNNAMED or names_of(log, role) is None):
            expected = "numbers" if role == "reward" else "whole numbers"
            raise ValueError(
                f"column {log.column(role)!r} holds neither numbers, bools nor text; expected {expected}"
            )


def names_of(log: LogFormat, role: str) -> tuple[str, ...] | None:
    if role in UNNAMED:
        return None
    return log.action_names if role == "action" else log.state_names


def number_of(engine: Engine, value: str, kind: Kind) -> str:
    """The value as a number: NULL if nothing is there, NaN if it is no number. Typed columns stay what they are."""
    if kind == "text":
        pattern, decimal = NUMBER, value
        if engine.comma:
            pattern, decimal = NUMBER.replace("[.]", "[.,]"), f"replace({value}, ',', '.')"
        return (
            f"CASE WHEN {engine.matches(value, pattern)} THEN TRY_CAST({decimal} AS DOUBLE) "
            f"WHEN {engine.matches(value, TRUE)} THEN 1.0 WHEN {engine.matches(value, FALSE)} THEN 0.0 "
            f"WHEN NOT {engine.matches(value, MISSING)} THEN {NAN} END"
        )
    if kind == "bool":
        return f"CAST({value} AS INT)"
    return value if kind == "int" else f"CAST({value} AS DOUBLE)"


def is_there(value: str, kind: Kind) -> str:
    """Whether there was anything, from `number_of`; a typed NaN is what a table has for nothing."""
    return f"coalesce({value} < {NAN}, FALSE)" if kind == "float" else f"{value} IS NOT NULL"


def _whole(value: str, kind: Kind, first: int = 0) -> str:
    """The number as a whole one counted from `first`, or NULL."""
    if kind in ("int", "bool"):
        shifted = f"CASE WHEN {value} < {first} THEN -1 WHEN {value} > {LARGE} THEN {LARGE} "
        return f"{shifted}ELSE CAST({value} AS INT) - {first} END" if first else value
    return (
        f"CASE WHEN {value} < {first} THEN -1 WHEN {value} >= {NAN} THEN NULL WHEN {value} > {LARGE} THEN {LARGE} "
        f"WHEN {value} = floor({value}) THEN CAST({value} AS INT) - {first} END"
    )


def who_of(value: str, kind: Kind) -> str:
    """A user as she is named, text character by character; NULL: nobody."""
    if kind == "text":
        return f"CASE WHEN {value} <> '' AND lower({value}) <> 'nan' THEN {value} END"
    return f"CASE WHEN {value} < {NAN} THEN {value} END" if kind == "float" else value


def episode_key(engine: Engine, value: str, kind: Kind) -> str:
    """What tells episodes of a person apart, in their order; NULL: no episode.

    Of texts, whole numbers come first, in order of the numbers (their length is written before them), then the others
    in order of their characters.
    """
    if kind != "text":
        return who_of(value, kind)
    digits = f"CAST(CAST(TRY_CAST({value} AS DOUBLE) AS BIGINT) AS STRING)"
    return (
        f"CASE WHEN {engine.matches(value, '[0-9]|[1-9][0-9]{1,14}')} "
        f"THEN concat(chr(CAST(64 + length({value}) AS INT)), {value}) "
        f"WHEN {engine.matches(value, ' *[0-9]{1,15}([.]0*)? *')} "
        f"THEN concat(chr(CAST(64 + length({digits}) AS INT)), {digits}) "
        f"WHEN NOT {engine.matches(value, MISSING)} THEN concat('~', {value}) END"
    )


def _parsed(engine: Engine, log: LogFormat, kinds: dict[str, Kind]) -> str:
    """All rows of the log under the names of this module, every value read alone and by one rule.

    Of each value: the number, and whether anything was there.
    """
    kind = {role: kinds[log.column(role)] for role in ROLES if log.column(role) in kinds}
    column = {role: "l." + engine.quoted(log.column(role)) for role in kind}
    column |= {role: f"CAST({value} AS STRING)" for role, value in column.items() if kind[role] == "text"}
    user, episode = who_of(column["user"], kind["user"]), "0"
    if "episode" in column:
        episode = episode_key(engine, column["episode"], kind["episode"])
    inner = [f"{user} AS person", f"{column['user']} IS NOT NULL AS formed", f"{episode} AS episode"]
    outer, joins = ["person", "formed", "episode"], []
    for role in ("step", "state", "action", "next_state", "reward"):
        if role not in column:
            continue
        if names_of(log, role) is None:
            inner.append(f"{number_of(engine, column[role], kind[role])} AS {role}")
            outer.append(f"{is_there(role, kind[role])} AS {role}_there")
            if role != "reward":
                outer.append(f"{_whole(role, kind[role], log.first_step if role == 'step' else 0)} AS {role}")
        else:
            dictionary = "action_names" if role == "action" else "state_names"
            text = f"CAST({column[role]} AS STRING)"
            joins.append(f"LEFT JOIN {dictionary} AS {role}_of ON {role}_of.name = {text}")
            there = f"{role}_of.code IS NOT NULL OR coalesce(NOT {engine.matches(text, MISSING)}, FALSE)"
            inner += [f"{role}_of.code AS {role}", f"{there} AS {role}_there"]
            outer += [role, f"{role}_there"]
    low, high = log.reward_range
    reward = "reward"
    if kind["reward"] == "text":  # what is too large for a number is none
        reward = "CASE WHEN reward BETWEEN -1.7976931348623157E308 AND 1.7976931348623157E308 THEN reward END"
    outer.append(f"({reward} - ({low!r})) / {high - low!r} AS paid")
    flags = {}
    for role in flags_of(log):
        inner.append(f"{number_of(engine, column[role], kind[role])} AS {role}_said")
        flags[role] = _flag(f"{role}_said", kind[role])
    if len(flags) == 2 and log.given is not None and "done" in log.given:  # who was cut off is done, too
        flags["terminated"] = f"({flags['terminated']}) AND NOT ({flags['truncated']})"
    outer += [f"{text} AS {role}" for role, text in flags.items()]
    return f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM log AS l {' '.join(joins)}) AS cells"


def _reading(log: LogFormat, followed: bool) -> str:
    """The rows of somebody."""
    columns = ["person", "episode", "step", "state", "action", "paid", *flags_of(log)]
    if followed:
        columns += ["next_state", "NOT next_state_there AS no_successor"]
    return f"SELECT {', '.join(columns)} FROM parsed WHERE person IS NOT NULL"


def _flag(said: str, kind: Kind) -> str:
    """TRUE for 1, FALSE for 0 or where nothing was said, NULL for anything else."""
    return f"CASE WHEN NOT ({is_there(said, kind)}) OR {said} = 0 THEN FALSE WHEN {said} = 1 THEN TRUE END"


def flags_of(log: LogFormat) -> list[str]:
    return [role for role in FLAGS if log.given is not None and role in log.given]


def lacks_successors(log: LogFormat) -> bool:
    """Whether there is no column for the successor."""
    return log.given is not None and "next_state" not in log.given


def one_episode(log: LogFormat) -> str:
    """Columns that tell episodes apart: the fewer, the faster."""
    return "person" if log.given is not None and "episode" not in log.given else "person, episode"


def followed_rows(log: LogFormat, source: str) -> str:
    """Without a column for it, the successor is the state of the next step; nobody knows what follows a cut."""
    flags = "".join(f", {flag}" for flag in flags_of(log))
    known = f"step_after = CAST(step AS DOUBLE) + 1 AND state_after BETWEEN 0 AND {log.num_states - 1}"
    if "truncated" in flags:
        known += " AND NOT truncated"
    ordered = f"OVER (PARTITION BY {one_episode(log)} ORDER BY step)"
    return (
        "SELECT followed.*, next_state IS NULL AS no_successor "
        f"FROM (SELECT person, episode, step, state, action, paid{flags}, "
        f"CASE WHEN {known} THEN state_after END AS next_state "
        f"FROM (SELECT alone.*, lead(step) {ordered} AS step_after, "
        f"lead(state) {ordered} AS state_after FROM {source} AS alone) AS led) AS followed"
    )
