"""From a log to a policy that may be published, and whether what was published still holds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import completing
from discreet.cli.columns import show_grid
from discreet.cli.comparing import ASKED, HeldOut, LearnedFrom, Rollout, compare
from discreet.cli.logs import declared, numbered, read_features, read_rewards, read_successors, source_of, start_of
from discreet.cli.options import (
    LOG,
    RELEASE,
    WRITTEN,
    DatabaseTable,
    Field,
    Folder,
    Instance,
    Json,
    Logs,
    Options,
    Propensity,
    Users,
    budget_of,
    doubt_delta,
    one_of,
    own_or_named,
    spoken,
    taking,
    written,
)
from discreet.cli.terminal import SAID_NO, compilation_notice, interrupted, note, say, say_json, warn, working

if TYPE_CHECKING:
    from discreet.bonuses import BonusKind
    from discreet.offline.declaration import Declaration
    from discreet.people.logs import LogFormat


#: What a policy of declared columns is, in words.
CHOSEN = {
    "one-hot": "planned from a histogram of steps",
    "mode": "what most people do, everywhere",
    "as now": "as now, everywhere: nothing better was found",
}


#: How a policy is learned from a log.
LEARNING: Options = {
    "algorithm": Field(
        str,
        "auto, one-hot, columns, dp-apvi, dp-pevi or dp-vapvi; without privacy: apvi, pevi or vapvi.",
        "auto",
        names=completing.learners_from_logs,
    ),
    "mode": Field(
        str,
        "Constants: practical (discreet's own learner), or paper (as printed).",
        "practical",
        flags=("--constants",),
    ),
    "noise": Field(
        str, "Scale of the noise: true, or printed (the paper's, and what it truly gives: dp-apvi, dp-vapvi).", "true"
    ),
    "bonus": Field(str, "bernstein or hoeffding: what dp-apvi and apvi take off.", "bernstein"),
    "confidence_scale": Field(
        float | None, "Factor on widths of confidence: on what is taken off for doubt.", shown="the learner's"
    ),
    "beta": Field(
        float | None,
        "How often bounds may fail: what is taken off, and the widths of noise.",
        shown="0.1, in widths of practical constants 0.01",
    ),
    "split": Field(bool, "dp-vapvi, vapvi: half of the users for the variances.", False),
    "allow_pooled": Field(bool, "Printed constants on pooled counts, which no paper has.", False),
    "rewards": Field(
        Path | None, "Known rewards: a CSV file with state, action, reward (scaled to [0, 1]), perhaps step."
    ),
    "features": Field(Path | None, "Features of states and actions: a .npy file of shape (S, A, d)."),
    "initial": Field(str | None, "Where people start, if public: a state, or a CSV file with state, probability."),
    "successors": Field(
        Path | None, "Which successors can occur, if public: a .npy file of bools, (S, A, S) or (H, S, A, S)."
    ),
    "plan_horizon": Field(
        int | None, "With --pooled: plan for so many steps, though only --horizon count.", shown="horizon"
    ),
    "trust_bounds": Field(bool, "Do not enforce the bounds per user; the certificate says so.", False),
    "safe": Field(bool, "Declared columns: do what most people do, and nothing else.", False),
    "repairs": Field(Path | None, "Write how many rows were left out, and why, to this JSON file: not private."),
    "anyway": Field(bool, "Go on where the users are far too few for the budget.", False),
}
#: Of all options, what `discreet.fit` takes as it was said.
TAKEN = (
    *("algorithm", "mode", "noise", "confidence_scale", "beta", "split", "allow_pooled", "plan_horizon"),
    *("safe", "anyway", "table", *WRITTEN),
)


@taking({**LOG, **LEARNING, **RELEASE})
def fit(
    context: typer.Context,
    logs: Logs,
    out: Annotated[Path, written("a folder for the policy and its certificate.", False)],
    as_json: Json = False,
    **said: Any,
) -> None:
    """Learn a policy from logged trajectories and write it with a certificate of its privacy.

    The log has the columns user, episode (optional), step, state, action, reward and next_state (optional), one row
    per step, counted from 0 or --first-step; terminated (or done) and truncated (all optional) say how an episode
    stopped. Instead of state it may have columns of measurements and names, in order of importance: declare them in a
    file (`discreet declare` writes one to fill in) or with --state NAME:LOW..HIGH or NAME:{A,B}, perhaps with
    /edges:1,2,3, /log and /missing; bins follow by a public rule.

    [bold]Then[/bold] discreet verify policy/, discreet evaluate policy/, and read policy/certificate.html.

    [bold]Exit codes[/bold] 0 done, 2 refused or failed (nothing was written), 130 interrupted.

    Files are only read. Every release is written down in a ledger beside the log, before any noise is drawn;
    the certificate says what all of them cost together.

    [bold]Examples[/bold]

    discreet fit visits.csv --states 3 --actions 2 --horizon 4 --pooled --epsilon 1 --out policy/

    discreet fit 'logs/*.csv' --states states.txt --actions stay,move --horizon 4 --epsilon 1 --pooled --out ward/

    discreet fit visits.csv --states 3 --actions 2 --horizon 4 --rho 1 --features phi.npy --out linear/

    discreet fit stays.parquet --declare stays.toml --epsilon 1 --out stays/                     columns, not states

    discreet fit stays.parquet --state "map:20..140/edges:65,75,95" --state "lactate:0..20/log,missing" --state
    "ward:{A,B,C}" --propensity p_action --actions 3 --horizon 10 --epsilon 1 --out stays/

    discreet fit visits.csv --states 3 --actions 2 --horizon 4 --algorithm apvi --out open/        without privacy
    """
    from discreet.offline import certificate, spending
    from discreet.offline import fitting as offline

    log: LogFormat | Declaration | None = declared(context)
    known = start = None
    if log is not None:
        for option in spoken(context, ("trust_bounds", "rewards", "initial", "features", "successors")):
            raise ValueError(f"{option} is for logs of numbered states, not of declared columns; leave it out")
    else:
        log = numbered(context)
        known = None if said["rewards"] is None else read_rewards(said["rewards"], log)
        start = None if said["initial"] is None else start_of(said["initial"], log)
    if said["seed"] is not None and said["seed"] < 0:
        raise ValueError(f"--seed is {said['seed']}; it must be at least 0")
    kind, repairs, features = penalty_of(said["bonus"]), said["repairs"], said["features"]
    budget = None
    stated = said["epsilon"], said["delta"], said["rho"]
    if said["algorithm"] not in offline.OPEN or stated != (None, 0.0, None):
        budget = budget_of(*stated)
    certificate.check_folder(out, said["sign"])
    if repairs is not None and repairs.is_dir():
        raise ValueError(f"--repairs is {repairs}, a folder; expected a file")
    where = said["ledger"] if said["ledger"] is not None else spending.beside(logs)
    taken, successors = {name: said[name] for name in TAKEN}, said["successors"]
    if said["engine"] != "duckdb":
        taken["ledger"] = where
    with unwritten(), compilation_notice(), working("reading the log and planning"):
        fitted = offline.fit(
            source_of(logs, said["engine"]),
            log,
            budget,
            bonus=kind,
            neighbours=one_of("--neighbours", said["neighbours"]),
            rewards=known,
            initial=start,
            features=None if features is None else read_features(features),
            successors=None if successors is None else read_successors(successors),
            num_users=said["users"] if said["declare"] is not None or said["state"] else None,
            **taken,
        )
        fitted.save(out, said["sign"])
    if repairs is not None:
        counted = {"not_private": "for whoever holds the log", **vars(fitted.repairs)}
        repairs.write_text(json.dumps(counted, indent=2) + "\n", encoding="utf-8")
    for line in fitted.notices:
        note(f"notice: {line}")
    for line in () if fitted.recorded is None else fitted.recorded.sentences():
        note(f"ledger: {line}")
    if fitted.recorded is None:
        note(f"notice: nothing records this release, for {where} cannot be written; give --ledger", always=True)
    document = fitted.certificate
    for line in fitted.warnings:
        warn(line)
    doubt_delta(said["delta"], document["unit"]["users"])
    if as_json:
        say_json({**document, "folder": str(out)})
        return
    say(f"policy: {out} ({document['algorithm']['name']}: {document['algorithm']['why']})")
    if fitted.policy.grid is not None:
        chosen = document["algorithm"].get("chosen", "one-hot")
        show_grid(fitted.policy.grid, document["unit"]["users"], chosen != "one-hot")
        say(f"policy: {CHOSEN[chosen]}")
    say(f"guarantee: {document['guarantee']['sentence']}, {document['unit']['users']:,} users")
    from discreet.offline.wording import THRESHOLDED

    worth = document["estimate"]
    say(f"known: {100 * worth['covered_state_actions']:.0f} % of the state-action pairs")
    for name, key in (("estimated", "value_estimate"), ("cautious", "value_cautious")):
        if worth[key] is not None:
            least, most = worth["possible_values"]
            bound = f"surely at least {worth['value_lower']:.4g} (possible: {least:.4g} to {most:.4g})"
            if THRESHOLDED in worth["values_are"]:
                bound = f"without a lower bound (possible: {least:.4g} to {most:.4g})"
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


def penalty_of(text: str) -> BonusKind:
    if text == "bernstein":
        return "bernstein"
    if text == "hoeffding":
        return "hoeffding"
    raise ValueError(f"--bonus is {text!r}; it must be bernstein or hoeffding")


def verify(
    folder: Folder,
    allow_simulation: Annotated[
        bool, typer.Option("--allow-simulation", help="Accept a fit whose noise came from a seed.")
    ] = False,
    public_key: Annotated[
        Path | None, typer.Option(help="Key (PEM) of whom you trust: only what it has signed is valid.")
    ] = None,
    require_signature: Annotated[
        bool, typer.Option("--require-signature", help="Exit with 1 unless the folder is valid: signed by that key.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Derive all that a certificate says again, and compare all files with their digests.

    Of a fit: from the learner and the unit. Of a deployment (`discreet deploy retire`): from its signed log.

    [bold]valid[/bold]: consistent, and signed with the key that was given.

    [bold]consistent[/bold]: nothing contradicts itself; but whoever has this program can write such a folder about
    any policy, so that only a signature by a key you know says where it came from.

    [bold]Exit codes[/bold] 0 valid or consistent; 1 altered, inconsistent, without privacy or a simulation, and with
    --require-signature whatever is not valid; 2 not a folder.

    [bold]Examples[/bold]

    discreet verify policy/

    discreet verify policy/ --json
    """
    from discreet.offline import certificate

    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    if deployed(folder):
        from discreet.live import certificate as deployments

        found = deployments.verify(folder, public_key)
    else:
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
                "uncovered": certificate.uncovered(folder),
            }
        )
    elif found.consistent:
        say(found.verdict)
        say(f"states: {found.sentence}")
        if others := certificate.uncovered(folder):
            more = f" and {len(others) - 5} more" if len(others) > 5 else ""
            say(f"says nothing about what lies beside it: {', '.join(map(repr, others[:5]))}{more}")
        if require_signature and not found.valid:
            say("NOT VALID: a signature is required, by the key that --public-key gives")
    else:
        for problem in found.problems:
            say(f"NOT VALID: {problem}")
    if not (found.valid if require_signature else found.consistent):
        raise typer.Exit(SAID_NO)


def deployed(folder: Path) -> bool:
    """Whether a folder holds the certificate of a deployment, and not that of a fit."""
    try:
        document = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and str(document.get("format", "")).startswith("discreet deployment")


@taking(RELEASE)
def evaluate(
    context: typer.Context,
    folder: Folder,
    env: Annotated[
        str | None,
        typer.Option(
            help="An environment: the exact value in it; or module:name of your own.",
            autocompletion=completing.environments,
            show_default="the policy's release",
        ),
    ] = None,
    states: Annotated[int | None, typer.Option(help="Number of states, where it can be chosen.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps per episode, where it can be chosen.")] = None,
    instance: Instance = 0,
    log: HeldOut = None,
    rollout: Rollout = 0.25,
    propensity: Propensity = None,
    learned_from: LearnedFrom = None,
    users: Users = None,
    table: DatabaseTable = None,
    as_json: Json = False,
    **said: Any,
) -> None:
    """What a policy is worth: exactly where a model exists, else as its own private release says.

    With the --log of people who were not learned from, and with logged propensities: whether it is better than what
    people do now, if it is followed at a share of all decisions. The answer is written into the certificate.

    [bold]Examples[/bold]

    discreet evaluate policy/

    discreet evaluate policy/ --env riverswim --states 3 --horizon 4

    discreet evaluate stays/ --log others.parquet --propensity p_action --rollout .25 --epsilon 1
    """
    from discreet.offline import fitting as offline
    from discreet.policy import Policy

    if log:
        if env is not None:
            raise ValueError("--env and --log were given; expected one of both")
        compare(
            folder,
            log,
            budget_of(said["epsilon"], said["delta"], said["rho"]),
            as_json,
            rollout=rollout,
            neighbours=one_of("--neighbours", said["neighbours"]),
            propensity=propensity,
            num_users=users,
            table=table,
            learned_from=learned_from or (),
            key=said["sign"],
            **{name: said[name] for name in WRITTEN},
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
            shown = f"{value:.6g}" if isinstance(value, float) else value
            say(f"{name.replace('_', ' ')}: {'not known' if value is None else shown}")
        return
    from discreet.envs.registry import make

    with compilation_notice():
        place, instance = own_or_named(env, instance)
        found = offline.evaluate(Policy.load(folder), make(place, states, horizon, instance))
    if as_json:
        say_json({name: value if math.isfinite(value) else None for name, value in found.items()})
        return
    for name, value in found.items():
        say(f"{name.replace('_', ' ')}: {value:.6g}")
