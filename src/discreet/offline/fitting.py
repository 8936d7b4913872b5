"""From a log to a policy that may be published: read, release once, plan, and say what was promised."""

from __future__ import annotations

import hashlib
import math
import platform
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import duckdb
import numpy as np

from discreet import __version__
from discreet.bonuses import BonusKind
from discreet.catalog import ALGORITHMS as CATALOG
from discreet.catalog import MODES, NOISES, Algorithm
from discreet.mdp import FiniteMDP, Floats, distributions
from discreet.offline import certificate, spending, wording
from discreet.offline.claimed import FAILING
from discreet.offline.declaration import Declaration
from discreet.offline.learners import Outcome, Task, scale_of
from discreet.people.counting import LoggedData, Repairs
from discreet.people.logs import LONGEST, LogFormat
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.policy import Policy
from discreet.privacy.accounting import Budget, Neighbours, compose_parallel, no_privacy, unit_text
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.linear import LinearMoments
from discreet.problem import Mask, PublicStructure
from discreet.provenance import source_digest
from discreet.releases.regressions import normalised_features
from discreet.releases.sparse import dense
from discreet.runs import memory
from discreet.runs.forecasts import Forecast, check_users, forecast_fit
from discreet.valuation import Start

FROM_LOGS = {name: entry for name, entry in CATALOG.items() if entry.runner == "offline"}
OPEN = tuple(name for name, entry in FROM_LOGS.items() if not entry.private)
#: One step per user is asked for when there are so many users per cell and unit of ε, and ε is not larger.
TILT_USERS, LARGEST_TILT = 200.0, 2.0
#: Sums that planning may take: a few seconds.
MOST_SUMS = 2_000_000_000
#: Items have numbers in 64 bits.
LARGEST_CODE = 2**62
#: Memory of a counter (step, state, action, successor), of a pair where only what is above noise is held, and of a
#: row of the policy, as measured.
COUNTER_BYTES, PAIR_BYTES, STATE_BYTES = 100, 150, 500
SMALLER = "pool the steps or declare fewer states"
#: One pair in six stands out of its noise by one standard deviation without any visit.
HARDLY = 0.2
LONGEST_TEXT = 200
#: Of a fit: with more, noise would be finer than the grid of what is counted.
LARGEST_EPSILON = 1_000.0


@dataclass(frozen=True)
class Choice:
    """Which learner, and why: a function of public numbers."""

    algorithm: str
    why: str
    tilted: bool = False


@dataclass(frozen=True, eq=False)
class Fitted:
    """A policy, its certificate, and for whoever holds the data (these are not private): notices, what was repaired
    in the log, and how the release was written down."""

    policy: Policy
    certificate: dict[str, Any]
    notices: tuple[str, ...]
    repairs: Repairs = field(default_factory=Repairs)
    recorded: spending.Record | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.certificate["warnings"])

    def save(self, folder: str | Path, key: Path | None = None) -> None:
        with spending.told(self.recorded):
            certificate.write(Path(folder), self.policy, self.certificate, key)


def choose(
    algorithm: str,
    log: LogFormat,
    budget: Budget | None,
    neighbours: Neighbours,
    num_users: int,
    mode: str = "practical",
    linear: bool = False,
) -> Choice:
    """The learner that was asked for, or the one-hot learner; all steps or one step per user by a public rule."""
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; it must be practical or paper")
    entry = None if algorithm == "auto" else from_logs(algorithm)
    if budget is None and (entry is None or entry.private):
        raise ValueError(
            f"{algorithm} is private and needs a budget; learners without privacy are {', '.join(OPEN)}"
            if entry is not None
            else f"state a budget, or name a learner without privacy: {', '.join(OPEN)}"
        )
    if entry is not None and not entry.private and budget is not None:
        raise ValueError(f"{algorithm} is not private and takes no budget; its private form is dp-{algorithm}")
    if linear or (entry is not None and entry.features):
        return _choose_linear(entry, log, budget, mode, linear)
    if entry is not None and entry.name != "one-hot":
        if mode == "paper" and entry.name == "columns":
            raise ValueError("the learner for declared columns is in no paper; use mode='practical'")
        return Choice(entry.name, "asked for")
    assert budget is not None
    if algorithm == "auto" and mode == "paper":
        return Choice("dp-apvi", "the printed form was asked for")
    if mode == "paper":
        raise ValueError("the one-hot learner is in no paper; use mode='practical' or algorithm='dp-apvi'")
    why = "asked for" if algorithm != "auto" else "one noisy family carries visits, transitions and rewards"
    if budget.kind != "pure" or budget.epsilon is None or not math.isfinite(budget.epsilon):
        return Choice("one-hot", f"{why}; all steps, for the noise is Gaussian")
    cells = log.spec.stages * log.num_states * log.num_actions
    epsilon = budget.epsilon * (1 if neighbours == "replace" else 2)
    threshold = TILT_USERS * cells
    if num_users * epsilon < threshold:
        return Choice("one-hot", f"{why}; all steps, for users × ε is below {threshold:g} = 200 × {cells} cells")
    if epsilon > LARGEST_TILT:
        return Choice("one-hot", f"{why}; all steps, for ε is above {LARGEST_TILT:g}")
    if not log.enforce:
        return Choice("one-hot", f"{why}; all steps, for how many a user has is not enforced")
    return Choice(
        "one-hot", f"{why}; one step per user, for users × ε reaches {threshold:g} = 200 × {cells} cells", True
    )


def _choose_linear(entry: Algorithm | None, log: LogFormat, budget: Budget | None, mode: str, given: bool) -> Choice:
    if entry is not None and not given:
        raise ValueError(f"{entry.name} learns from features; give them")
    if entry is not None and not entry.features:
        names = [name for name, found in FROM_LOGS.items() if found.features]
        raise ValueError(f"{entry.name} does not use features; use auto or {', '.join(names)}, or leave them out")
    if log.pooled:
        raise ValueError("regressions are made for every step; leave pooled out")
    if budget is not None and budget.kind == "pure" and budget.epsilon != math.inf:
        raise ValueError("regressions carry Gaussian noise, which gives no pure epsilon: state a delta or rho")
    if entry is not None:
        return Choice(entry.name, "asked for")
    if mode == "paper":
        return Choice("dp-vapvi", "features were given, and the printed form was asked for")
    return Choice("dp-pevi", "features were given; without weights a regression costs half")


def from_logs(name: str) -> Algorithm:
    """The catalog's entry of a learner that `fit` can run."""
    if name in FROM_LOGS:
        return FROM_LOGS[name]
    if name in CATALOG:
        known = ", ".join(FROM_LOGS)
        raise ValueError(f"{name} learns while it acts and not from logs; use discreet run {name}, or one of {known}")
    raise ValueError(f"unknown algorithm {name!r}; choose one of auto, {', '.join(FROM_LOGS)}")


def fit(
    source: Any,
    log: LogFormat | Declaration,
    budget: Budget | None = None,
    *,
    algorithm: str = "auto",
    mode: str = "practical",
    noise: str = "true",
    allow_pooled: bool = False,
    bonus: BonusKind = "bernstein",
    confidence_scale: float | None = None,
    beta: float | None = None,
    neighbours: Neighbours = "replace",
    rewards: Floats | None = None,
    initial: Floats | None = None,
    features: Floats | Callable[[int, int], Floats] | None = None,
    split: bool = False,
    successors: Mask | None = None,
    plan_horizon: int | None = None,
    seed: int | None = None,
    table: str | None = None,
    ledger: str | Path | None = None,
    total_epsilon: float | None = None,
    purpose: str | None = None,
    operator: str | None = None,
    num_users: int | None = None,
    safe: bool = False,
    anyway: bool = False,
) -> Fitted:
    """Learn a policy from a log under a budget; without a seed the noise is cryptographically secure.

    `algorithm`: one of `FROM_LOGS`, or "auto"; apvi, pevi and vapvi use the data as they are and take no budget.
    `mode`: "practical" constants, or those of the "paper". `noise="printed"` asks for a paper's own scale: that of
    dp-apvi with known rewards, which is the true one, or that of dp-vapvi, with what it truly gives.
    `allow_pooled`: a paper's constants on pooled counts, which papers do not have.
    `bonus`: dp-apvi and apvi take off a "bernstein" or "hoeffding" term, times `confidence_scale`.
    `beta`: how often what is taken off, and the widths of noise together, may fail.
    `features` (S, A, d), or a function of state and action, make the problem linear: [QW22] Alg. 2 and relatives, of
    which dp-vapvi may `split` the users between its two regressions.

    `rewards` (S, A) or (H, S, A), in the scaled range, and the distribution `initial` of first states are declared
    public where they are given. What is not given is estimated from the same release or left open.
    `successors` (S, A, S) or (H, S, A, S) declares which can occur; a pair without any is impossible. Steps outside
    are left out of the one-hot learner's histogram, which carries no noise there.
    `plan_horizon`: plan for so many steps although only the log's `horizon` first ones of every episode count, where
    what happens does not depend on the step (pooled): fewer steps per user need less noise.

    A `Declaration` in the place of the log's format: the log has columns, whose bins follow from it, the budget and
    the number of users (declared as `num_users`, or that of the names in the log); `rewards`, `initial`, `features`
    and `successors` speak of numbered states and are refused.

    With declared columns "auto" is the learner `columns`. `safe`: do what most people do and nothing else.

    `ledger`: the file that records what is spent on these people (`spending`); beside the log unless stated, none for
    sources in memory. What it comes to is refused above `total_epsilon`, once that was declared. `purpose` and
    `operator` are written there and into the certificate.
    `anyway`: also where the users are far too few for the budget, which is else refused before anything is spent;
    never where memory is too small.
    """
    origin = _origin(operator, purpose)
    drawn = NoiseSource.secure() if seed is None else NoiseSource.seeded(seed)
    opened, columns, grid, why = source, None, None, None
    if isinstance(log, Declaration):
        from discreet.offline import auto  # loaded for those who declare columns
        from discreet.people.stays import DeclaredLog

        numbered = {"rewards": rewards, "initial": initial, "features": features, "successors": successors}
        for name in (name for name, given in numbered.items() if given is not None):
            raise ValueError(f"{name} are given by the number of a state; declared columns have bins instead")
        cost, where = (
            spending.cost_of(budget, neighbours),
            spending.beside(source) if ledger is None else Path(ledger),
        )
        if where is not None:  # before anything is read
            spending.check(where, cost, total_epsilon)
        columns = DeclaredLog(source, log, table)
        num_users = columns.num_users if num_users is None else num_users
        grid = log.grid(num_users, Budget.pure(math.inf) if budget is None else budget, neighbours)
        design = None if budget is None else auto.Design(log, grid, num_users, budget, neighbours, safe)
        if design is not None and design.too_few is not None and not anyway:
            raise ValueError(f"{design.too_few}; nothing was spent; go on with --anyway (anyway=True)")
        if algorithm == "auto" and mode == "practical" and design is not None:
            algorithm, why = "columns", design.why
        opened, log = columns.gridded(grid, num_users)
    if safe and algorithm != "columns":
        raise ValueError("safe is for declared columns and the learner auto or columns: do what most people do")
    if algorithm == "columns" and columns is None:
        raise ValueError("columns learns from declared columns; declare them")
    declared = _declared_rewards(rewards, log)
    start = None if initial is None else distributions("initial", initial)
    if start is not None and start.shape != (log.num_states,):
        raise ValueError(f"initial has shape {start.shape}; expected ({log.num_states},)")
    phi, longest = _feature_table(features, log)
    notices = () if longest == 1.0 else (f"features were divided by their largest norm, {longest:.6g}",)
    name = choose(algorithm, log, budget, neighbours, 0, mode, phi is not None).algorithm
    _check_options(name, bonus, confidence_scale, split, declared)
    _check_noise(noise, name, declared)
    _check_beta(beta, name)
    if mode == "paper" and log.pooled and FROM_LOGS[name].private and not allow_pooled:
        raise ValueError(
            f"the printed constants of {name} are for counts of every step; leave pooled out, or say --allow-pooled "
            f"(allow_pooled=True)"
        )
    structure = PublicStructure(start, _declared_successors(successors, log, name))
    _check_plan_horizon(plan_horizon, log, name)
    if phi is None:
        _check_size(log, name, plan_horizon or log.horizon)
    _check_budget(budget)
    spent = Budget.pure(math.inf) if budget is None else budget
    printed = noise == "printed" and name == "dp-vapvi"
    cost = spending.cost_of(budget, neighbours)
    if printed:  # it costs something else than it claims
        private = LinearMoments(spent, neighbours, True, split, log.episodes_per_user, calibration="paper")
        cost = spending.cost_of(private.true_budget(log.horizon), neighbours)
    where = spending.beside(source) if ledger is None else Path(ledger)
    if where is not None:
        spending.check(where, cost, total_epsilon)
    elif total_epsilon is not None:
        raise ValueError("total_epsilon is compared with what a ledger records; say where that is kept")
    log = replace(log, first_visits=name in ("one-hot", "columns") and log.pooled and spent.kind != "pure")
    most = choose(algorithm, log, budget, neighbours, LARGEST_CODE, mode, phi is not None)
    digest = spending.digest_beside(source) if where is not None else None
    data = LoggedData(opened, log, table, again=most.tilted)
    log = data.log
    choice = choose(algorithm, log, budget, neighbours, data.num_users, mode, phi is not None)
    choice = choice if why is None else replace(choice, why=why)
    task = Task(
        data,
        log,
        spent,
        neighbours,
        drawn,
        mode,
        bonus,
        confidence_scale,
        declared,
        None if start is None else Start(start),
        phi,
        longest,
        choice.tilted,
        split,
        declared=structure,
        plan_horizon=plan_horizon,
        grid=grid,
        columns=columns,
        safe=safe,
        beta=beta,
        printed=printed,
    )
    if printed and not 0.0 <= log.ended_rate <= 1.0:
        raise ValueError("the printed noise of dp-vapvi is for rewards in [0, 1], and those who left earn others")
    learn = FROM_LOGS[choice.algorithm].learn
    assert learn is not None
    outlook = _outlook(task, choice)
    if outlook is not None and not anyway:
        check_users(outlook, data.num_users)
    release = spending.Release(
        cost,
        origin["serial"],
        origin["date"],
        choice.algorithm,
        unit_text(log.episodes_per_user),
        drawn.simulation,
        operator,
        purpose,
    )
    recorded = None
    try:
        if where is not None and digest is not None:
            recorded = spending.spend(where, release, digest(), total_epsilon)
    except spending.Unrecorded:
        if ledger is not None or total_epsilon is not None or (where is not None and where.exists()):
            raise
    with spending.told(recorded):
        if recorded is not None and columns is not None:
            from discreet.offline import heldout

            heldout.keep(recorded.ledger, origin["serial"], heldout.people_of(columns))
        try:
            return _fitted(learn(task), choice, task, notices, origin, recorded, outlook)
        except MemoryError:
            raise ValueError(f"there is not enough memory for {_counters(log):,} counters; {SMALLER}") from None


def _outlook(task: Task, choice: Choice) -> Forecast | None:
    """What public numbers promise of a private fit."""
    if not FROM_LOGS[choice.algorithm].private:
        return None
    known, dimension = task.rewards is not None, None if task.features is None else task.features.shape[2]
    return forecast_fit(
        task.log,
        task.budget,
        task.data.num_users,
        task.neighbours,
        choice.algorithm,
        known,
        dimension,
        task.declared.successors,
    )


def _check_size(log: LogFormat, name: str, planned: int) -> None:
    """Refuse what would not fit into memory, or not end, before any data are read."""
    states, pairs = log.spec.num_states, log.spec.stages * log.num_states * log.num_actions
    held = name != "one-hot" or dense(2 * pairs * states, log.pooled)
    if 2 * pairs * states >= LARGEST_CODE:
        raise ValueError(f"states, actions and steps make {pairs * states:,} counters, too many; {SMALLER}")
    sums = planned * log.num_states * log.num_actions * (states if held else 1)
    if sums > MOST_SUMS:
        raise ValueError(
            f"planning takes {sums:,} sums (steps × states × actions{' × states' if held else ''}), too many; "
            "plan fewer steps"
        )
    each = pairs * (states * COUNTER_BYTES if held else PAIR_BYTES) + planned * states * STATE_BYTES
    memory.require(each, f"{pairs * states if held else pairs:,} {'counters' if held else 'pairs'}", SMALLER)


def _check_budget(budget: Budget | None) -> None:
    """Refuse what is finite and could not be spent: noise on a grid does not become arbitrarily small."""
    for name, most in (("epsilon", LARGEST_EPSILON), ("rho", LARGEST_EPSILON**2 / 2.0)):
        stated = None if budget is None else getattr(budget, name)
        if stated is not None and most < stated < math.inf:
            raise ValueError(
                f"{name} is {stated:g}, and above {most:g} nothing is promised; learners without privacy are "
                f"{', '.join(OPEN)}"
            )


def _counters(log: LogFormat) -> int:
    return log.spec.stages * log.num_states * log.num_actions * log.spec.num_states


def _check_options(name: str, bonus: str, scale: float | None, split: bool, rewards: Floats | None) -> None:
    """Refuse what a learner would ignore."""
    if bonus not in get_args(BonusKind):
        raise ValueError(f"bonus is {bonus!r}; it must be bernstein or hoeffding")
    if bonus == "hoeffding" and name not in ("dp-apvi", "apvi"):
        raise ValueError(f"{name} has no Hoeffding form; dp-apvi and apvi have one")
    if scale is not None and not (math.isfinite(scale) and scale >= 0.0):
        raise ValueError(f"confidence_scale is {scale}; it must be a number of at least 0")
    if split and name not in ("dp-vapvi", "vapvi"):
        raise ValueError(f"{name} does not make two regressions to split the users between; dp-vapvi and vapvi do")
    if rewards is not None and FROM_LOGS[name].features:
        raise ValueError(f"{name} regresses rewards and values together; leave the known rewards out")


def _check_beta(beta: float | None, name: str) -> None:
    if beta is None:
        return
    if not 0.0 < beta < 1.0:
        raise ValueError(f"beta is {beta:g}; the failure probability must lie strictly between 0 and 1")
    if name not in FAILING:
        raise ValueError(f"{name} has no failure probability to choose; {', '.join(FAILING)} have one")


def _check_noise(noise: str, name: str, rewards: Floats | None) -> None:
    """Refuse a printed scale that nobody printed."""
    if noise not in NOISES:
        raise ValueError(f"noise is {noise!r}; it must be true or printed")
    if noise == "true":
        return
    if not FROM_LOGS[name].private:
        raise ValueError(f"{name} adds no noise; leave noise out")
    if name == "dp-vapvi":
        return
    if name != "dp-apvi":
        raise ValueError(f"no paper at hand prints a scale for the noise of {name}; leave noise out")
    if rewards is None:
        raise ValueError("the printed noise of dp-apvi is for known rewards; declare them, or leave noise out")


def _declared_rewards(rewards: Floats | None, log: LogFormat) -> Floats | None:
    if rewards is None:
        return None
    table = np.asarray(rewards, dtype=np.float64)
    shapes = [(log.num_states, log.num_actions), (log.spec.stages, log.num_states, log.num_actions)]
    if table.shape not in shapes or not ((table >= 0.0) & (table <= 1.0)).all():
        raise ValueError(f"rewards have shape {table.shape}; expected {shapes[0]} or {shapes[1]}, all in [0, 1]")
    return np.ascontiguousarray(np.broadcast_to(table, shapes[1]))


def _declared_successors(successors: Mask | None, log: LogFormat, name: str) -> Mask | None:
    """(G, S, A, S)."""
    if successors is None:
        return None
    if name != "one-hot":
        raise ValueError(f"{name} counts all successors; the one-hot learner can leave out those declared impossible")
    table = np.asarray(successors)
    S, A = log.num_states, log.num_actions
    shapes = [(S, A, S), (log.spec.stages, S, A, S)]
    if table.shape not in shapes or table.dtype != np.bool_:
        raise ValueError(
            f"successors have shape {table.shape} and type {table.dtype}; expected {shapes[0]} or {shapes[1]} of bool"
        )
    if not table.any():
        raise ValueError("successors declare every step impossible; at least one must be possible")
    return np.ascontiguousarray(np.broadcast_to(table, shapes[1]))


def _check_plan_horizon(plan_horizon: int | None, log: LogFormat, name: str) -> None:
    if plan_horizon is None:
        return
    if name != "one-hot" or not log.pooled:
        raise ValueError(
            "plan_horizon plans steps that were not counted: it needs the one-hot learner and pooled counts"
        )
    if not 1 <= plan_horizon <= LONGEST:
        raise ValueError(f"plan_horizon is {plan_horizon}; it must be at least 1 and at most {LONGEST:,}")


def _feature_table(
    features: Floats | Callable[[int, int], Floats] | None, log: LogFormat
) -> tuple[Floats | None, float]:
    """Features as a table with norms of at most 1, and what they had to be divided by."""
    if features is None:
        return None, 1.0
    S, A = log.num_states, log.num_actions
    if callable(features):
        features = np.array([[features(s, a) for a in range(A)] for s in range(S)], dtype=np.float64)
    if features.shape[:2] != (S, A):
        raise ValueError(f"features have shape {features.shape}; expected ({S}, {A}, d)")
    return normalised_features(features)


# The certificate ----------------------------------------------------------------------------------------------------


def _origin(operator: str | None, purpose: str | None) -> dict[str, Any]:
    """When, by whom and with what, before any data are read: nothing here depends on them."""
    for name, text in (("operator", operator), ("purpose", purpose)):
        if text is not None and not (text.isprintable() and 0 < len(text) <= LONGEST_TEXT):
            raise ValueError(f"{name} is not one line of 1 to {LONGEST_TEXT} printable characters")
    return {
        "serial": secrets.token_hex(16),
        "date": spending.today(),
        "source_digest": source_digest(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "duckdb": duckdb.__version__,
        "operator": operator,
        "purpose": purpose,
    }


def _spending(recorded: spending.Record | None) -> dict[str, Any]:
    """Of everything in the ledger: how many were of the same bytes would say whether the log has changed."""
    total = None if recorded is None else recorded.total.to_json()
    return {
        "commitment": None if recorded is None else recorded.commitment,
        "releases_before": None if recorded is None else recorded.before,
        "total": None if total is None else total["sentence"],
        **{
            f"total_{name}_with_this_release": None if total is None else total[name]
            for name in ("epsilon", "delta", "rho")
        },
        "ledger_line": None if recorded is None else recorded.line,
        "meaning": wording.UNRECORDED if recorded is None else wording.RECORDED,
    }


def _fitted(
    learned: Outcome,
    choice: Choice,
    task: Task,
    told: tuple[str, ...],
    origin: dict[str, Any],
    recorded: spending.Record | None,
    outlook: Forecast | None,
) -> Fitted:
    plan, log, num_users = learned.plan, task.log, task.data.num_users
    actions = plan.actions
    assert actions is not None
    chosen = np.take_along_axis(learned.known, actions[..., None], axis=2)[..., 0]
    values = scale_of(log, len(actions)).in_units(plan.value[: len(actions)])
    grid = task.grid if learned.grid is None else learned.grid
    names = log.state_names if grid is None else grid.state_names
    policy = Policy(actions, values, chosen, log.num_actions, names, log.action_names, log.pooled, grid)
    private = FROM_LOGS[choice.algorithm].private
    parts = learned.parts if private else {}
    found = list(parts.values()) or [no_privacy()]
    guarantee = compose_parallel(found) if len(found) > 1 else found[0]
    covered = float(learned.known.mean())
    support = task.declared.successors
    if support is not None:  # of the pairs that are possible
        covered = float(learned.known[np.broadcast_to(support.any(axis=-1), learned.known.shape)].mean())
    warnings = [*told, *_warnings(learned, covered, outlook)]
    if task.noise.simulation:
        warnings.insert(0, wording.SIMULATED)
    if not math.isfinite(guarantee.epsilon) and guarantee.rho is None:
        warnings.insert(0, wording.NOT_PRIVATE)
    stated = guarantee.to_json()
    if support is not None and private:
        facts = PublicStructure(successors=support).assumptions()
        stated["assumptions"] = [*guarantee.assumptions, *facts]
    document = {
        "format": certificate.FORMAT,
        "version": __version__,
        "simulation": task.noise.simulation,
        "origin": origin,
        "guarantee": {key: value for key, value in stated.items() if key != "entries"},
        "unit": {
            "users": num_users,
            "episodes_per_user": log.episodes_per_user,
            "steps_per_episode": log.horizon,
            "bound": wording.bound_text(log.enforce, log.episodes_per_user, log.horizon),
            "enforced": log.enforce,
        },
        "problem": {
            "states": policy.num_states,
            "actions": log.num_actions,
            "horizon": log.horizon,
            "pooled": log.pooled,
            "first_visits": log.first_visits,
            "early_end": log.early_end,
            "may_end": log.has_ended,
            "may_lead_nowhere_known": log.has_unknown,
            "reward_range": list(log.reward_range),
            "ended_pays": log.ended_pays,
            "reward_units": log.spec.reward_units,
            "rewards_known": task.rewards is not None,
            "planned_steps": task.plan_horizon or log.horizon,
            "successors_known": None if support is None else _support_text(support),
        },
        "algorithm": {"name": choice.algorithm, "why": choice.why, "mode": task.mode, **learned.settings},
        "estimate": {**learned.estimate, "covered_state_actions": covered},
        "protected": wording.protected(private),
        "not_protected": wording.not_protected(private, num_users),
        "warnings": warnings,
        "meaning": wording.MEANING,
        "spending": _spending(recorded),
        "ledger": certificate.ledger_json(parts),
    }
    if learned.regressions and private:
        document["regressions"] = list(learned.regressions)
    if grid is not None:
        document["declaration"] = wording.declaration_json(grid)
    notices = (*learned.repairs.sentences(),)
    if notices:
        if task.grid is not None and log.column("state") in learned.repairs.columns:
            notices = (*notices, "discreet check says which of the declared columns have these gaps")
        notices = (*notices, "these numbers are not private: keep them with the log")
    return Fitted(policy, document, notices, learned.repairs, recorded)


def _support_text(support: Mask) -> str:
    """Says what was declared without repeating it: how much, and a digest to compare a file with."""
    digest = hashlib.sha256(np.packbits(support).tobytes()).hexdigest()
    return f"{int(support.sum())} of {support.size}, sha256 of the packed bits {digest}"


def _warnings(learned: Outcome, covered: float, outlook: Forecast | None) -> list[str]:
    """From the release and public numbers only."""
    found = []
    needed = f"; {outlook.verdict}" if outlook is not None and not outlook.feasible else ""
    if covered <= HARDLY:
        found.append(f"vacuous: hardly more state-action pairs stand out than noise alone would show{needed}")
    elif covered < 0.5:
        found.append(wording.THIN.format(100 * covered) + needed)
    worth = learned.estimate
    if wording.THRESHOLDED in worth["values_are"]:
        found.append(wording.THRESHOLDED)
    elif worth["value_lower"] <= worth["possible_values"][0] and covered > HARDLY:
        found.append(
            f"the lower bound on the policy's value is {worth['value_lower']:.4g}, the least that is possible: the "
            "width of the release proves nothing about it, which says little about how good it is"
        )
    return found


# With a model at hand -----------------------------------------------------------------------------------------------


def evaluate(policy: Policy, mdp: FiniteMDP) -> dict[str, float]:
    """Exact values in a known model: of the policy, of the best one, of the uniform random one."""
    if (policy.horizon, policy.num_states, policy.num_actions) != (mdp.horizon, mdp.num_states, mdp.num_actions):
        raise ValueError(
            f"the policy is for {policy.num_states} states, {policy.num_actions} actions and {policy.horizon} steps; "
            f"{mdp.name} has {mdp.num_states}, {mdp.num_actions} and {mdp.horizon}"
        )
    best = float(mdp.initial @ optimal_plan(mdp).value[0])
    value = policy_value(mdp, policy.actions)
    random = policy_value(mdp, uniform_policy((mdp.horizon, mdp.num_states, mdp.num_actions)))
    return {
        "value": value,
        "value_optimal": best,
        "value_random": random,
        "gap_ratio": (best - value) / best if best > 0 else math.nan,
    }


def pessimistic_value(folder: str | Path) -> Mapping[str, Any]:
    """What the certificate of a folder says the policy is worth: from its own release, at no further cost."""
    found: dict[str, Any] = certificate.read(Path(folder))["estimate"]
    return found
