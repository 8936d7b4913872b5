"""From a log to a policy that may be published: read, release once, plan, and say what was promised."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet import certificate
from discreet.data.counting import LoggedData, Repairs
from discreet.data.logs import LogFormat
from discreet.log_learners import Outcome, Task, counted, one_hot, regressed
from discreet.mdp import FiniteMDP, Floats, distributions
from discreet.moments import normalised_features
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.policy import Policy
from discreet.privacy.accounting import Budget, Neighbours, compose_parallel
from discreet.privacy.noise import NoiseSource
from discreet.prospects import NEEDED, Prospect, forecast

ALGORITHMS = ("one-hot", "dp-apvi", "dp-pevi", "dp-vapvi")
LINEAR = ("dp-pevi", "dp-vapvi")
#: One step per user is asked for when there are so many users per cell and unit of ε, and ε is not larger.
TILT_USERS, LARGEST_TILT = 200.0, 2.0
#: Steps that are held in memory for that.
MOST_STEPS = 20_000_000
#: One pair in six stands out of its noise by one standard deviation without any visit.
HARDLY = 0.2


@dataclass(frozen=True)
class Choice:
    """Which learner, and why: a function of public numbers."""

    algorithm: str
    why: str
    tilted: bool = False


@dataclass(frozen=True, eq=False)
class Fitted:
    """A policy, its certificate, and notices for whoever holds the data (these are not private)."""

    policy: Policy
    certificate: dict[str, Any]
    notices: tuple[str, ...]
    repairs: Repairs = field(default_factory=Repairs)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.certificate["warnings"])

    def save(self, folder: str | Path, key: Path | None = None) -> None:
        certificate.write(Path(folder), self.policy, self.certificate, key)


def choose(
    algorithm: str,
    log: LogFormat,
    budget: Budget,
    neighbours: Neighbours,
    num_users: int,
    mode: str = "practical",
    linear: bool = False,
) -> Choice:
    """The learner that was asked for, or the one-hot learner; all steps or one step per user by a public rule."""
    if algorithm not in ("auto", *ALGORITHMS):
        raise ValueError(f"unknown algorithm {algorithm!r}; choose one of auto, {', '.join(ALGORITHMS)}")
    if mode not in ("practical", "paper"):
        raise ValueError(f"mode is {mode!r}; it must be practical or paper")
    if linear or algorithm in LINEAR:
        return _choose_linear(algorithm, log, budget, linear)
    if algorithm == "dp-apvi" or (algorithm == "auto" and mode == "paper"):
        return Choice("dp-apvi", "asked for" if algorithm != "auto" else "the printed form was asked for")
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
    if num_users * log.episodes_per_user * log.horizon > MOST_STEPS or not log.enforce:
        return Choice("one-hot", f"{why}; all steps, counted where the data are")
    return Choice(
        "one-hot", f"{why}; one step per user, for users × ε reaches {threshold:g} = 200 × {cells} cells", True
    )


def _choose_linear(algorithm: str, log: LogFormat, budget: Budget, given: bool) -> Choice:
    if not given:
        raise ValueError(f"{algorithm} learns from features; give them")
    if algorithm not in ("auto", *LINEAR):
        raise ValueError(f"{algorithm} does not use features; use auto, dp-pevi or dp-vapvi, or leave them out")
    if log.pooled:
        raise ValueError("regressions are made for every step; leave pooled out")
    if budget.kind == "pure" and budget.epsilon != math.inf:
        raise ValueError("regressions carry Gaussian noise, which gives no pure epsilon: state a delta or rho")
    if algorithm == "auto":
        return Choice("dp-pevi", "features were given; without weights a regression costs half")
    return Choice(algorithm, "asked for")


def fit(
    source: Any,
    log: LogFormat,
    budget: Budget,
    *,
    algorithm: str = "auto",
    mode: str = "practical",
    neighbours: Neighbours = "replace",
    rewards: Floats | None = None,
    initial: Floats | None = None,
    features: Floats | Callable[[int, int], Floats] | None = None,
    split: bool = False,
    seed: int | None = None,
    table: str | None = None,
) -> Fitted:
    """Learn a policy from a log under a budget; without a seed the noise is cryptographically secure.

    `features` (S, A, d), or a function of state and action, make the problem linear: [QW22] Alg. 2 and relatives, of
    which dp-vapvi may `split` the users between its two regressions.

    `rewards` (S, A) or (H, S, A), in the scaled range, and the distribution `initial` of first states are declared
    public where they are given. What is not given is estimated from the same release or left open.
    """
    noise = NoiseSource.secure() if seed is None else NoiseSource.seeded(seed)
    declared = _declared_rewards(rewards, log)
    start = None if initial is None else distributions("initial", initial)
    if start is not None and start.shape != (log.num_states,):
        raise ValueError(f"initial has shape {start.shape}; expected ({log.num_states},)")
    phi, notices = _feature_table(features, log)
    counters = algorithm == "dp-apvi" or mode == "paper" or phi is not None
    log = replace(log, first_visits=log.pooled and budget.kind != "pure" and not counters)
    data = LoggedData(source, log, table)
    choice = choose(algorithm, log, budget, neighbours, data.num_users, mode, phi is not None)
    weighted = choice.algorithm == "dp-vapvi"
    task = Task(
        data, log, budget, neighbours, noise, mode, declared, start, phi, choice.tilted, weighted, split and weighted
    )
    learn = {"one-hot": one_hot, "dp-apvi": counted}.get(choice.algorithm, regressed)
    return _fitted(learn(task), choice, task, notices)


def _declared_rewards(rewards: Floats | None, log: LogFormat) -> Floats | None:
    if rewards is None:
        return None
    table = np.asarray(rewards, dtype=np.float64)
    shapes = [(log.num_states, log.num_actions), (log.spec.stages, log.num_states, log.num_actions)]
    if table.shape not in shapes or not ((table >= 0.0) & (table <= 1.0)).all():
        raise ValueError(f"rewards have shape {table.shape}; expected {shapes[0]} or {shapes[1]}, all in [0, 1]")
    return np.ascontiguousarray(np.broadcast_to(table, shapes[1]))


def _feature_table(
    features: Floats | Callable[[int, int], Floats] | None, log: LogFormat
) -> tuple[Floats | None, tuple[str, ...]]:
    """Features as a table with norms of at most 1, and a notice where they had to be rescaled."""
    if features is None:
        return None, ()
    S, A = log.num_states, log.num_actions
    if callable(features):
        features = np.array([[features(s, a) for a in range(A)] for s in range(S)], dtype=np.float64)
    if features.shape[:2] != (S, A):
        raise ValueError(f"features have shape {features.shape}; expected ({S}, {A}, d)")
    table, longest = normalised_features(features)
    return table, () if longest == 1.0 else (f"features were divided by their largest norm, {longest:.6g}",)


# The certificate ----------------------------------------------------------------------------------------------------


def _fitted(learned: Outcome, choice: Choice, task: Task, told: tuple[str, ...]) -> Fitted:
    from importlib.metadata import version

    plan, log, num_users = learned.plan, task.log, task.data.num_users
    actions = plan.actions
    assert actions is not None
    chosen = np.take_along_axis(learned.known, actions[..., None], axis=2)[..., 0]
    policy = Policy(actions, plan.value[: log.horizon], chosen, log.num_actions, log.state_names, log.action_names)
    parts = list(learned.parts.values())
    guarantee = compose_parallel(parts) if len(parts) > 1 else parts[0]
    covered = float(learned.known.mean())
    prospect = None
    if choice.algorithm not in LINEAR:
        known = task.rewards is not None
        prospect = forecast(log, task.budget, num_users, task.neighbours, choice.algorithm, known)
    warnings = [*told, *_warnings(learned, covered, prospect)]
    if task.noise.simulation:
        warnings.insert(0, certificate.SIMULATED)
    private = guarantee.to_json()
    document = {
        "format": certificate.FORMAT,
        "version": version("discreet"),
        "simulation": task.noise.simulation,
        "guarantee": {key: value for key, value in private.items() if key != "entries"},
        "unit": {
            "users": num_users,
            "episodes_per_user": log.episodes_per_user,
            "steps_per_episode": log.horizon,
            "bound": _bound_text(log),
            "enforced": log.enforce,
        },
        "problem": {
            "states": log.num_states,
            "actions": log.num_actions,
            "horizon": log.horizon,
            "pooled": log.pooled,
            "first_visits": log.first_visits,
            "early_end": log.early_end,
            "reward_range": list(log.reward_range),
            "reward_units": log.spec.reward_units,
            "rewards_known": task.rewards is not None,
        },
        "algorithm": {"name": choice.algorithm, "why": choice.why, "mode": task.mode, **learned.settings},
        "estimate": {**learned.estimate, "covered_state_actions": covered},
        "protected": [
            "every step of every user, all her episodes together: states, actions, rewards and how long she stayed",
            "all files of this folder together, however they are combined with other knowledge",
        ],
        "not_protected": [
            f"that the log is of {num_users} users (their number is public), and everything that was declared",
            "what is true of people in general, whether or not a given person is in the log",
            "messages of the program to whoever ran it: numbers of unreadable rows, running time and memory",
        ],
        "warnings": warnings,
        "meaning": certificate.MEANING,
        "ledger": certificate.ledger_json(learned.parts),
    }
    notices = (*learned.repairs.sentences(),)
    if notices:
        notices = (*notices, "these numbers are not private: keep them with the log")
    return Fitted(policy, document, notices, learned.repairs)


def _bound_text(log: LogFormat) -> str:
    if not log.enforce:
        return "declared by the holder of the data, not enforced"
    m = log.episodes_per_user
    which = "the first episode" if m == 1 else f"the first {m} episodes"
    return f"{which} of every user by episode number, and of these the steps 0 to {log.horizon - 1}"


def _warnings(learned: Outcome, covered: float, prospect: Prospect | None) -> list[str]:
    """From the release and public numbers only."""
    found = []
    if covered <= HARDLY:
        needed = f"; {prospect.verdict}" if prospect is not None and prospect.signal < NEEDED else ""
        found.append(f"vacuous: hardly more state-action pairs stand out than noise alone would show{needed}")
    elif covered < 0.5:
        found.append(f"only {100 * covered:.0f} % of the state-action pairs stand out of the noise")
    if learned.estimate["value_lower"] <= 0.0 and covered > HARDLY:
        found.append(
            "the lower bound on the policy's value is 0: the width of the release proves nothing about it, which "
            "says little about how good it is"
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
