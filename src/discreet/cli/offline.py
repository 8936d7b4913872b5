"""From a log to a policy that may be published, and whether what was published still holds."""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from discreet.cli.columns import (
    Declare,
    Interval,
    Logs,
    Propensity,
    State,
    Time,
    declared,
    grid_json,
    show_grid,
    spoken,
)
from discreet.cli.comparing import ASKED, HeldOut, LearnedFrom, Rollout, compare
from discreet.cli.privacy import one_of
from discreet.cli.terminal import compilation_notice, interrupted, note, say, say_json, show, working

if TYPE_CHECKING:
    from discreet.bonuses import BonusKind
    from discreet.mdp import Floats
    from discreet.offline.declaration import Declaration
    from discreet.people.logs import LogFormat
    from discreet.privacy.accounting import Budget
    from discreet.problem import Mask

ALTERED = 1
#: What a policy of declared columns is, in words.
CHOSEN = {
    "one-hot": "planned from a histogram of steps",
    "mode": "what most people do, everywhere",
    "as now": "as now, everywhere: nothing better was found",
}
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
Users = Annotated[int | None, typer.Option(help="Number of users, declared.", show_default="counted")]
DatabaseTable = Annotated[str | None, typer.Option(help="Table of a DuckDB database.")]
Seed = Annotated[int | None, typer.Option(help="A simulation with repeatable noise: protects nobody.")]
Sign = Annotated[Path | None, typer.Option(help="Sign with this Ed25519 key (PEM).")]
Ledger = Annotated[
    Path | None,
    typer.Option(help="Where releases are written down.", show_default="beside the log: LOG.spent.jsonl"),
]


def fit(
    context: typer.Context,
    logs: Logs,
    out: Annotated[Path, typer.Option(help="Folder for the policy and its certificate.", show_default=False)],
    states: Annotated[
        str | None, typer.Option(help="How many, names as in a,b,c, or a file of one per line.", show_default=False)
    ] = None,
    actions: Annotated[
        str | None, typer.Option(help="How many, names as in a,b,c, or a file of one per line.", show_default=False)
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps per episode.", show_default=False)] = None,
    declare: Declare = None,
    state: State = None,
    propensity: Propensity = None,
    time: Time = None,
    interval: Interval = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget per user.")] = None,
    delta: Annotated[float, typer.Option(help="Above 0: (epsilon, delta) and Gaussian noise.")] = 0.0,
    rho: Annotated[float | None, typer.Option(help="zCDP budget per user, instead of epsilon.")] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="auto, one-hot, columns, dp-apvi, dp-pevi or dp-vapvi; without privacy: apvi, pevi or vapvi."
        ),
    ] = "auto",
    mode: Annotated[
        str, typer.Option("--constants", "--mode", help="Constants: practical (ours), or paper (as printed).")
    ] = "practical",
    noise: Annotated[
        str, typer.Option(help="true, or printed: the paper's scale, for dp-apvi with known rewards the same.")
    ] = "true",
    bonus: Annotated[str, typer.Option(help="bernstein or hoeffding: what dp-apvi and apvi take off.")] = "bernstein",
    confidence_scale: Annotated[
        float | None, typer.Option(help="Factor on what is taken off for doubt.", show_default="the learner's")
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="dp-vapvi, vapvi: half of the users for the variances.")
    ] = False,
    pooled: Annotated[
        bool,
        typer.Option("--pooled", help="Count over all steps together: what happens does not depend on the step."),
    ] = False,
    allow_pooled: Annotated[
        bool, typer.Option("--allow-pooled", help="Printed constants on pooled counts, which no paper has.")
    ] = False,
    neighbours: Annotated[str, typer.Option(help="replace or zero-out: what one user may change.")] = "replace",
    episodes_per_user: Annotated[int, typer.Option(help="Most episodes of one user that count.")] = 1,
    columns: Annotated[
        str, typer.Option(help="Names of columns where they differ: user=patient,reward=score.", show_default=False)
    ] = "",
    first_step: Annotated[int, typer.Option(help="Number of an episode's first step in the log.")] = 0,
    reward_range: Annotated[str, typer.Option(help="Rewards are clipped to LOW:HIGH and scaled to [0, 1].")] = "0:1",
    rewards: Annotated[
        Path | None,
        typer.Option(help="Known rewards: a CSV file with state, action, reward (scaled to [0, 1]), perhaps step."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Features of states and actions: a .npy file of shape (S, A, d).")
    ] = None,
    initial: Annotated[
        str | None,
        typer.Option(help="Where people start, if public: a state, or a CSV file with state, probability."),
    ] = None,
    known_successors: Annotated[
        Path | None,
        typer.Option(help="Which successors can occur, if public: a .npy file of bools, (S, A, S) or (H, S, A, S)."),
    ] = None,
    plan_horizon: Annotated[
        int | None,
        typer.Option(
            help="With --pooled: plan for so many steps, though only --horizon count.", show_default="horizon"
        ),
    ] = None,
    early_end: Annotated[
        str,
        typer.Option(help="Episodes that stop early: absorb (their people have left) or keep (rows as they are)."),
    ] = "absorb",
    ended_pays: Annotated[
        float, typer.Option(help="What a remaining step pays those whose episode has ended, in units of the reward.")
    ] = 0.0,
    users: Users = None,
    trust_bounds: Annotated[
        bool, typer.Option("--trust-bounds", help="Do not enforce the bounds per user; the certificate says so.")
    ] = False,
    table: DatabaseTable = None,
    engine: Annotated[str, typer.Option(help="duckdb, or spark (needs discreet\\[spark]).")] = "duckdb",
    seed: Seed = None,
    sign: Sign = None,
    ledger: Ledger = None,
    total_epsilon: Annotated[
        float | None,
        typer.Option(help="Refuse what brings all releases in the ledger above this, now and from now on."),
    ] = None,
    purpose: Annotated[str | None, typer.Option(help="For the ledger and the certificate: what it is for.")] = None,
    operator: Annotated[
        str | None,
        typer.Option(help="For the ledger and the certificate: who releases.", show_default="in the ledger: you"),
    ] = None,
    safe: Annotated[
        bool, typer.Option("--safe", help="Declared columns: do what most people do, and nothing else.")
    ] = False,
    repairs: Annotated[
        Path | None,
        typer.Option(help="Write how many rows were left out, and why, to this JSON file: not private."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Go on where the users are far too few for the budget.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Learn a policy from logged trajectories and write it with a certificate of its privacy.

    The log has the columns user, episode (optional), step, state, action, reward and next_state (optional), one row
    per step, counted from 0 or --first-step; terminated (or done) and truncated (all optional) say how an episode
    stopped. Instead of state it may have columns of measurements and names, in order of importance: declare them in a
    file (`discreet declare` writes one to fill in) or with --state NAME:LOW..HIGH or NAME:{A,B}, perhaps with
    /edges:1,2,3, /log and /missing; bins follow by a public rule.

    Files are only read. Every release is written down in a ledger beside the log, before any noise is drawn;
    the certificate says what all of them cost together.

    [bold]Examples[/bold]

    discreet fit visits.parquet --states 12 --actions 3 --horizon 10 --epsilon 1 --out policy/

    discreet fit 'logs/*.csv' --states states.txt --actions drugs.txt --horizon 20 --epsilon 1 --pooled --out policy/

    discreet fit log.parquet --states 9 --actions 4 --horizon 5 --rho 1 --features phi.npy --out policy/

    discreet fit stays.parquet --declare stays.toml --epsilon 1 --out policy/                     columns, not states

    discreet fit stays.parquet --state "map:20..140/edges:65,75,95" --state "lactate:0..20/log,missing" --state
    "ward:{A,B,C}" --propensity p_action --actions 3 --horizon 10 --epsilon 1 --out policy/

    discreet fit log.parquet --states 9 --actions 4 --horizon 5 --algorithm apvi --out open/        without privacy

    [bold]Then[/bold] discreet verify policy/, discreet evaluate policy/, and read policy/certificate.html.

    [bold]Exit codes[/bold] 0 done, 2 refused or failed (nothing was written), 130 interrupted.
    """
    from discreet.offline import certificate, spending
    from discreet.offline import fitting as offline

    log: LogFormat | Declaration | None = declared(
        context,
        declare,
        state,
        actions,
        horizon,
        columns,
        reward_range=reward_range,
        early_end=early_end,
        episodes_per_user=episodes_per_user,
        first_step=first_step,
        ended_pays=ended_pays,
        propensity=propensity,
        time=time,
        interval=interval,
    )
    known = start = None
    if log is not None:
        for option in spoken(context, ("trust_bounds", "rewards", "initial", "features", "known_successors")):
            raise ValueError(f"{option} is for logs of numbered states, not of declared columns; leave it out")
    else:
        log = log_format(
            needed("--states", states),
            needed("--actions", actions),
            needed("--horizon", horizon),
            pooled,
            columns,
            reward_range,
            early_end,
            episodes_per_user,
            users,
            not trust_bounds,
            first_step,
            ended_pays,
        )
        known = None if rewards is None else read_rewards(rewards, log)
        start = None if initial is None else start_of(initial, log)
    if seed is not None and seed < 0:
        raise ValueError(f"--seed is {seed}; it must be at least 0")
    kind = penalty_of(bonus)
    budget = None
    if algorithm not in offline.OPEN or epsilon is not None or rho is not None or delta:
        budget = budget_of(epsilon, delta, rho)
    certificate.check_folder(out, sign)
    if repairs is not None and repairs.is_dir():
        raise ValueError(f"--repairs is {repairs}, a folder; expected a file")
    where = ledger if ledger is not None else spending.beside(logs)
    with unwritten(), compilation_notice(), working("reading the log and planning"):
        fitted = offline.fit(
            source_of(logs, engine),
            log,
            budget,
            algorithm=algorithm,
            mode=mode,
            noise=noise,
            allow_pooled=allow_pooled,
            bonus=kind,
            confidence_scale=confidence_scale,
            neighbours=one_of("--neighbours", neighbours),
            rewards=known,
            initial=start,
            features=None if features is None else read_features(features),
            split=split,
            successors=None if known_successors is None else read_successors(known_successors),
            plan_horizon=plan_horizon,
            seed=seed,
            table=table,
            ledger=ledger if engine == "duckdb" else where,
            total_epsilon=total_epsilon,
            purpose=purpose,
            operator=operator,
            num_users=users if declare is not None or state else None,
            safe=safe,
            anyway=anyway,
        )
        fitted.save(out, sign)
    if repairs is not None:
        counted = {"not_private": "for whoever holds the log", **vars(fitted.repairs)}
        repairs.write_text(json.dumps(counted, indent=2) + "\n", encoding="utf-8")
    for line in fitted.notices:
        note(f"notice: {line}")
    for line in () if fitted.recorded is None else fitted.recorded.sentences():
        note(f"ledger: {line}")
    if fitted.recorded is None:
        note(f"notice: nothing records this release, for {where} cannot be written; give --ledger")
    for line in fitted.warnings:
        note(f"warning: {line}")
    document = fitted.certificate
    if as_json:
        say_json({**document, "folder": str(out)})
        return
    say(f"policy: {out} ({document['algorithm']['name']}: {document['algorithm']['why']})")
    if fitted.policy.grid is not None:
        chosen = document["algorithm"].get("chosen", "one-hot")
        show_grid(fitted.policy.grid, document["unit"]["users"], chosen != "one-hot")
        say(f"policy: {CHOSEN[chosen]}")
    say(f"guarantee: {document['guarantee']['sentence']}, {document['unit']['users']:,} users")
    worth = document["estimate"]
    say(f"known: {100 * worth['covered_state_actions']:.0f} % of the state-action pairs")
    for name, key in (("estimated", "value_estimate"), ("cautious", "value_cautious")):
        if worth[key] is not None:
            least, most = worth["possible_values"]
            bound = f"surely at least {worth['value_lower']:.4g} (possible: {least:.4g} to {most:.4g})"
            say(f"{name} value: {worth[key]:.4g} in units of the reward, {bound}")
            break


@contextmanager
def unwritten() -> Iterator[None]:
    """Whoever interrupts a fit is told that there is no folder."""
    try:
        yield
    except BaseException as error:
        if interrupted(error):
            error.add_note("nothing was written")
        raise


Value = TypeVar("Value")


def needed(option: str, value: Value | None) -> Value:
    if value is None:
        raise ValueError(f"{option} is missing; give it, or columns with --declare or --state")
    return value


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


def budget_of(epsilon: float | None, delta: float, rho: float | None) -> Budget:
    from discreet.privacy.accounting import Budget

    if (epsilon is None) == (rho is None):
        raise ValueError("state a budget: either --epsilon (with or without --delta) or --rho")
    if rho is not None:
        return Budget.zcdp(rho, delta or None)
    assert epsilon is not None
    return Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)


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


def penalty_of(text: str) -> BonusKind:
    if text == "bernstein":
        return "bernstein"
    if text == "hoeffding":
        return "hoeffding"
    raise ValueError(f"--bonus is {text!r}; it must be bernstein or hoeffding")


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


def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that `discreet fit` has written.", show_default=False)],
    allow_simulation: Annotated[
        bool, typer.Option("--allow-simulation", help="Accept a fit whose noise came from a seed.")
    ] = False,
    public_key: Annotated[
        Path | None, typer.Option(help="The key (PEM) of whom you trust: only what it has signed is valid.")
    ] = None,
    require_signature: Annotated[
        bool, typer.Option("--require-signature", help="Exit with 1 unless the folder is valid: signed by that key.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Derive all that a certificate says again, and compare all files with their digests.

    [bold]valid[/bold]: consistent, and signed with the key that was given.

    [bold]consistent[/bold]: nothing contradicts itself; but whoever has this program can write such a folder about
    any policy, so that only a signature by a key you know says where it came from.

    [bold]Exit codes[/bold] 0 valid or consistent; 1 altered, inconsistent, without privacy or a simulation, and with
    --require-signature whatever is not valid; 2 not a folder.
    """
    from discreet.offline import certificate

    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    found = certificate.verify(folder, allow_simulation, public_key)
    if as_json:
        say_json(
            {
                "verdict": found.verdict,
                "valid": found.valid,
                "consistent": found.consistent,
                "problems": list(found.problems),
                "guarantee": {"sentence": found.sentence, "epsilon": found.epsilon},
                "simulation": found.simulation,
                "signed_by": found.signed_by,
            }
        )
    elif found.consistent:
        say(found.verdict)
        say(f"states: {found.sentence}")
        if require_signature and not found.valid:
            say("NOT VALID: a signature is required, by the key that --public-key gives")
    else:
        for problem in found.problems:
            say(f"NOT VALID: {problem}")
    if not (found.valid if require_signature else found.consistent):
        raise typer.Exit(ALTERED)


def evaluate(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A folder that `discreet fit` has written.", show_default=False)],
    env: Annotated[
        str | None, typer.Option(help="Evaluate exactly in this environment.", show_default="the policy's release")
    ] = None,
    states: Annotated[int | None, typer.Option(help="Number of states, where it can be chosen.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps per episode, where it can be chosen.")] = None,
    instance: Annotated[int, typer.Option(help="Which random environment.")] = 0,
    log: HeldOut = None,
    rollout: Rollout = 0.25,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget per user of the --log.")] = None,
    delta: Annotated[float, typer.Option(help="Above 0: (epsilon, delta) and Gaussian noise.")] = 0.0,
    rho: Annotated[float | None, typer.Option(help="zCDP budget per user, instead of epsilon.")] = None,
    neighbours: Annotated[str, typer.Option(help="replace or zero-out: what one user may change.")] = "replace",
    propensity: Propensity = None,
    learned_from: LearnedFrom = None,
    users: Users = None,
    table: DatabaseTable = None,
    seed: Seed = None,
    sign: Sign = None,
    ledger: Ledger = None,
    total_epsilon: Annotated[
        float | None, typer.Option(help="Refuse what brings all releases in the ledger above this.")
    ] = None,
    purpose: Annotated[str | None, typer.Option(help="For the ledger: what it is for.")] = None,
    operator: Annotated[str | None, typer.Option(help="For the ledger: who asks.", show_default="you")] = None,
    as_json: Json = False,
) -> None:
    """What a policy is worth: exactly where a model exists, else as its own private release says.

    With the --log of people who were not learned from, and with logged propensities: whether it is better than what
    people do now, if it is followed at a share of all decisions. The answer is written into the certificate.

    [bold]Example[/bold] discreet evaluate policy/ --log others.parquet --rollout .25 --epsilon 1
    """
    from discreet.offline import fitting as offline
    from discreet.policy import Policy

    if log:
        if env is not None:
            raise ValueError("--env and --log were given; expected one of both")
        compare(
            folder,
            log,
            budget_of(epsilon, delta, rho),
            as_json,
            rollout=rollout,
            neighbours=one_of("--neighbours", neighbours),
            propensity=propensity,
            num_users=users,
            table=table,
            seed=seed,
            ledger=ledger,
            total_epsilon=total_epsilon,
            learned_from=learned_from or (),
            purpose=purpose,
            operator=operator,
            key=sign,
        )
        return
    for option in spoken(context, ASKED):
        raise ValueError(f"{option} is for a comparison with current practice; give the --log of other people")
    if env is None:
        worth = dict(offline.pessimistic_value(folder))
        worth = {
            "estimate": worth["value_cautious" if worth["value_estimate"] is None else "value_estimate"],
            **worth,
        }
        if as_json:
            say_json(worth)
            return
        for name, value in worth.items():
            say(f"{name.replace('_', ' ')}: {'not known' if value is None else value}")
        return
    from discreet.envs.registry import make

    with compilation_notice():
        found = offline.evaluate(Policy.load(folder), make(env, states, horizon, instance))
    if as_json:
        say_json({name: value if math.isfinite(value) else None for name, value in found.items()})
        return
    for name, value in found.items():
        say(f"{name.replace('_', ' ')}: {value:.6g}")


def calibrate_offline(
    states: int,
    actions: int,
    horizon: int,
    users: int,
    epsilon: float,
    delta: float,
    neighbours: str,
    pooled: bool,
    as_json: bool,
    dimension: int | None = None,
) -> None:
    """How many users which budget needs, for a fit from logs; with a dimension, for the learners on features."""
    from discreet.privacy.accounting import Budget
    from discreet.runs.feasibility import forecast_fit

    log = log_format(str(states), str(actions), horizon, pooled)
    relation = one_of("--neighbours", neighbours)
    names, what = ("one-hot", "dp-apvi"), f"{states} × {actions} pairs are visited"
    if dimension is not None:
        if dimension < 1 or pooled or not delta:
            raise ValueError("--dimension is at least 1, for regressions at every step: with a --delta, not --pooled")
        names, what = ("dp-pevi", "dp-vapvi"), f"{dimension} directions of the features are taken"
    found = {}
    for factor in (0.1, 0.3, 1.0, 3.0, 10.0):
        each = epsilon * factor
        budget = Budget.approximate(each, delta) if delta else Budget.pure(each)
        found[each] = {name: forecast_fit(log, budget, users, relation, name, dimension=dimension) for name in names}
    asked = found[epsilon][names[0]]
    if as_json:
        say_json(
            {
                "users": users,
                "epsilon": epsilon,
                "delta": delta,
                "learners": {name: outlook.to_json() for name, outlook in found[epsilon].items()},
                "users_needed": {f"{each:g}": both[names[0]].users_needed for each, both in found.items()},
                "verdict": asked.verdict,
            }
        )
        return
    from rich.table import Table

    say(f"users needed when all {what} evenly:")
    sheet = Table("ε", *names)
    for each, both in found.items():
        sheet.add_row(f"{each:g}", *(f"{both[name].users_needed:,}" for name in names))
    show(sheet)
    say(f"verdict for {users:,} users at ε = {epsilon:g}: {asked.verdict}")


def calibrate_declared(
    declaration: Declaration, users: int, epsilon: float, delta: float, neighbours: str, as_json: bool
) -> None:
    """What becomes of declared columns with so many users: known before any data is read."""
    from discreet.people.logs import LogFormat
    from discreet.privacy.accounting import Budget
    from discreet.runs.feasibility import forecast_fit

    relation = one_of("--neighbours", neighbours)
    budget = Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)
    grid = declaration.grid(users, budget, relation)
    log = LogFormat(
        grid.num_states,
        declaration.num_actions,
        declaration.horizon,
        declaration.pooled,
        episodes_per_user=declaration.episodes_per_user,
        reward_range=declaration.reward_range,
        ended_pays=declaration.ended_pays,
    )
    outlook = forecast_fit(log, budget, users, relation)
    if as_json:
        say_json(
            {
                "users": users,
                "epsilon": epsilon,
                "delta": delta,
                "grid": grid_json(grid),
                "learners": {"one-hot": outlook.to_json()},
                "verdict": outlook.verdict,
            }
        )
        return
    show_grid(grid, users)
    say(f"states: {grid.num_states}, with {declaration.num_actions} actions in each")
    say(f"unused columns: {', '.join(grid.unused) or 'none'}")
    say(f"users needed: {grid.users_needed:,} for these bins, {grid.users_for_all:,} for all columns")
    say(f"verdict for {users:,} users at ε = {epsilon:g}: {outlook.verdict}")
