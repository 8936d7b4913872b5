"""From a log to a policy that may be published: read, release once, plan, and say what was promised."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet import certificate
from discreet.agents.apvi import APVI
from discreet.agents.one_hot import OneHotVI
from discreet.agents.vapvi import VAPVI
from discreet.data.counting import LoggedData, Repairs
from discreet.data.logs import LogFormat
from discreet.histograms import Cells, PrivateHistogram
from discreet.mdp import FiniteMDP, Floats, Ints, distributions
from discreet.moments import normalised_features
from discreet.planning import Plan, optimal_plan, policy_value, uniform_policy
from discreet.policy import Policy
from discreet.privacy.accounting import Budget, Guarantee, Neighbours, compose_parallel
from discreet.privacy.linear import LinearMoments
from discreet.privacy.noise import NoiseSource
from discreet.privacy.one_hot import OneHot, Tilted
from discreet.privacy.one_shot import OneShot
from discreet.releases import PrivateCounts
from discreet.structure import Mask

ALGORITHMS = ("one-hot", "dp-apvi", "dp-pevi", "dp-vapvi")
LINEAR = ("dp-pevi", "dp-vapvi")
#: One step per user is asked for when there are so many users per cell and unit of ε, and ε is not larger.
TILT_USERS, LARGEST_TILT = 200.0, 2.0
#: Steps that are held in memory for that.
MOST_STEPS = 20_000_000
#: Evenly visited cells must reach this many times the number of steps at which a cell counts as known.
NEEDED = 5.0
#: One pair in six stands out of its noise by one standard deviation without any visit.
HARDLY = 0.2
#: Failure probability of the lower bound on a policy's value.
FAILURE = 0.05


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


@dataclass(frozen=True, eq=False)
class _Learned:
    plan: Plan
    known: Mask  # (H, S, A)
    parts: dict[str, Guarantee]
    estimate: dict[str, Any]
    settings: dict[str, Any]


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
    counted = algorithm == "dp-apvi" or mode == "paper" or phi is not None
    log = replace(log, first_visits=log.pooled and budget.kind != "pure" and not counted)
    data = LoggedData(source, log, table)
    choice = choose(algorithm, log, budget, neighbours, data.num_users, mode, phi is not None)
    if phi is not None:
        learned, repairs = _regressed(data, log, budget, neighbours, phi, start, choice, mode, split, noise)
    elif choice.algorithm == "dp-apvi":
        learned, repairs = _counted(data, log, budget, neighbours, declared, start, mode, noise)
    else:
        learned, repairs = _one_hot(data, log, budget, neighbours, declared, start, choice, noise)
    return _fitted(learned, choice, log, data.num_users, budget, neighbours, declared, repairs, noise, mode, notices)


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


def _regressed(
    data: LoggedData,
    log: LogFormat,
    budget: Budget,
    neighbours: Neighbours,
    features: Floats,
    start: Floats | None,
    choice: Choice,
    mode: str,
    split: bool,
    noise: NoiseSource,
) -> tuple[_Learned, Repairs]:
    weighted = choice.algorithm == "dp-vapvi"
    users = data.trajectories()
    private = LinearMoments(budget, neighbours, weighted, split and weighted, log.episodes_per_user)
    stream = private.open(users, log.spec, log.spec.num_states, noise)
    plan = VAPVI(features, weighted, mode).plan(stream)
    noises = {
        f"noise_of_{name.replace(' ', '_')}": [matrix, *vectors]
        for name, (matrix, vectors) in stream.noises().items()
    }
    settings = {"dimension": int(features.shape[2]), "split": split and weighted, **noises}
    cautious = None if start is None else float(start @ plan.value[0])
    worth = {
        "value_estimate": None,
        "value_cautious": cautious,
        "value_lower": 0.0,
        "width": None,
        "failure_probability_of_the_lower_value": FAILURE,
        "values_are": "totals of rewards scaled to [0, 1]; regressions give no lower bound but 0",
    }
    return _Learned(plan, plan.quality > 0.0, stream.parts(), worth, settings), users.repairs


def _one_hot(
    data: LoggedData,
    log: LogFormat,
    budget: Budget,
    neighbours: Neighbours,
    rewards: Floats | None,
    start: Floats | None,
    choice: Choice,
    noise: NoiseSource,
) -> tuple[_Learned, Repairs]:
    cells = Cells.of(
        log.num_states, log.num_actions, log.horizon, log.pooled, log.early_end == "absorb", rewards is not None
    )
    m = log.episodes_per_user
    if choice.tilted:
        users = data.trajectories()
        tilted = Tilted(budget, neighbours, episodes_per_user=m)
        release, parts = tilted.release(users, log.spec, cells, noise)
        repairs = users.repairs
    else:
        counts = data.counts()
        private = OneHot(budget, neighbours, episodes_per_user=m, first_visits=log.first_visits)
        stream = private.open(log.spec, cells, data.num_users, noise)
        stream.add(counts)
        release, parts, repairs = stream.release(), {"all users": stream.guarantee}, counts.repairs
    agent = OneHotVI(rewards)
    plan = agent.plan(release)
    estimate = agent.estimate(release)
    H, S, A = cells.shape
    known = np.broadcast_to(estimate.known.reshape(cells.stages, S, A), (H, S, A))
    assert plan.actions is not None
    _, plain, _ = agent.values(release, estimate, plan.actions, cautious=False)
    lower = histogram_lower_values(release, plan.actions, rewards)
    if start is None and not log.pooled and not choice.tilted:
        start = _shares(release.values[: S * A].reshape(S, -1).sum(axis=1))
    settings = {
        "steps_per_user": "one" if choice.tilted else "all",
        "noise_per_item": release.deviation,
        "items": int(cells.admitted.sum()),
        "confidence_scale": agent.confidence_scale,
        "hiding": agent.hiding,
        "spread": agent.spread,
    }
    return _Learned(plan, known, parts, _worth(plain, lower, plan.value, start), settings), repairs


def _counted(
    data: LoggedData,
    log: LogFormat,
    budget: Budget,
    neighbours: Neighbours,
    rewards: Floats | None,
    start: Floats | None,
    mode: str,
    noise: NoiseSource,
) -> tuple[_Learned, Repairs]:
    counts = data.counts()
    shares = None if rewards is None else (1.0, 1.0, 0.0)
    private = OneShot(budget, neighbours, shares=shares, episodes_per_user=log.episodes_per_user)
    stream = private.open(log.spec, counts.num_episodes, noise)
    stream.add(counts.counts())
    release = stream.release()
    absorbing = log.early_end == "absorb"
    agent = APVI(mode, rewards=rewards, absorbing=absorbing)
    found = agent.plan(release)
    S = log.num_states
    actions = np.ascontiguousarray(found.policy[:, :S].argmax(axis=2), dtype=np.int64)
    plan = Plan(found.policy[:, :S], found.value[:, :S], found.quality[:, :S], found.num_episodes, actions=actions)
    known = np.broadcast_to(agent.known(release)[:, :S], plan.policy.shape)
    plain, lower = counted_values(release, actions, rewards)
    if start is None and not log.pooled:
        start = _shares(release.visits[0, :S].sum(axis=1))
    settings = {
        "mode": mode,
        "noise_per_visit_count": float(np.max(release.deviations.visits)),
        "counters": sum(math.prod(shape) for shape in log.spec.shapes().values()),
    }
    parts = {"all users": stream.guarantee}
    return _Learned(plan, known, parts, _worth(plain, lower, plan.value, start), settings), counts.repairs


# What a policy is worth, from the release alone ---------------------------------------------------------------------


def histogram_lower_values(release: PrivateHistogram, actions: Ints, rewards: Floats | None = None) -> Floats:
    """V(h,s) ≤ the true value of the policy, for all h, s together with probability 1 − .05: post-processing.

    On the event that the widths e and e_N hold, N ≥ N̂ − e_N =: n, ‖p̂ − empirical‖₁ ≤ 2·m·e/n for m items, and the
    empirical distribution is within √(2(m·ln 2 + ln(C·K·H/β'))/n) of the true one for all cells and sample sizes; a
    difference of x in L1 moves the mean of any values by at most half of x times their range.
    """
    cells = release.cells
    x = np.where(cells.admitted, np.maximum(release.values, 0.0), 0.0)
    totals = x.sum(axis=1)
    n = np.where(cells.admitted, release.values, 0.0).sum(axis=1) - release.total_width
    error = _errors(
        n, cells.sizes, 2.0 * cells.sizes * release.width, cells.num_cells, release.num_users, cells.horizon
    )
    p = np.divide(x, totals[:, None], out=np.zeros_like(x), where=totals[:, None] > 0)
    H, S, A = cells.shape
    value = np.zeros((H + 1, cells.num_successors))
    certain = np.zeros((cells.stages, S, A)) if rewards is None else rewards
    for h in reversed(range(H)):
        g = min(h, cells.stages - 1)
        c = (g * S + np.arange(S)) * A + actions[h]
        outcome = np.stack([value[h + 1], value[h + 1] + (rewards is None)], axis=1).reshape(-1)
        surely = p[c] @ outcome - error[c] * np.ptp(outcome)
        value[h, :S] = np.maximum(surely, outcome.min()) + certain[g, np.arange(S), actions[h]]
    return value[:, :S]


def _errors(n: Floats, items: Any, moved: Any, num_cells: int, num_users: int, horizon: int) -> Floats:
    """Half the L1 distance of an estimated distribution from the true one, at most 1."""
    safe = np.maximum(n, 1.0)
    union = math.log(num_cells * num_users * horizon / (0.8 * FAILURE))
    half = 0.5 * (moved / safe + np.sqrt(2.0 * (items * math.log(2.0) + union) / safe))
    return np.where(n >= 1.0, np.minimum(half, 1.0), 1.0)


def counted_values(release: PrivateCounts, actions: Ints, rewards: Floats | None = None) -> tuple[Floats, Floats]:
    """(plain estimate, lower bound) of the policy's values, as above; projected counts are within 2e of the truth."""
    H, S = actions.shape
    Y = release.transitions.shape[-1]
    model = release.model()
    e = release.width
    n = model.visits - 2.0 * Y * e
    cells = model.visits.size
    error = _errors(n, Y, 4.0 * Y * e, cells, release.num_episodes, H)
    if rewards is None:
        paid = model.rewards
        moved = (np.asarray(release.widths.rewards) + 2.0 * Y * e) / np.maximum(n, 1.0)
        union = math.log(2.0 * cells * release.num_episodes * H / (0.2 * FAILURE))
        doubt = np.where(n >= 1.0, np.minimum(moved + np.sqrt(union / (2.0 * np.maximum(n, 1.0))), 1.0), 1.0)
    else:
        paid, doubt = rewards, np.zeros(rewards.shape)
    plain, lower = np.zeros((H + 1, Y)), np.zeros((H + 1, Y))
    states = np.arange(S)
    for h in reversed(range(H)):
        g = min(h, model.visits.shape[0] - 1)
        where = g, states, actions[h]
        plain[h, :S] = paid[where] + model.transitions[where] @ plain[h + 1]
        sure = np.maximum(paid[where] - doubt[where], 0.0)
        after = lower[h + 1]
        lower[h, :S] = sure + np.maximum(model.transitions[where] @ after - error[where] * np.ptp(after), after.min())
    return plain[:, :S], lower[:, :S]


def _shares(counts: Floats) -> Floats | None:
    positive = np.maximum(counts, 0.0)
    return positive / positive.sum() if positive.sum() > 0 else None


def _worth(plain: Floats, lower: Floats, cautious: Floats, start: Floats | None) -> dict[str, Any]:
    """Values from the first step, in scaled reward; without a start distribution only what holds for every start."""
    found: dict[str, Any] = {"value_estimate": None, "value_cautious": None, "value_lower": float(lower[0].min())}
    if start is not None:
        found = {
            "value_estimate": float(start @ plain[0]),
            "value_cautious": float(start @ cautious[0]),
            "value_lower": float(start @ lower[0]),
        }
    estimate = found["value_estimate"]
    return {
        **found,
        "width": None if estimate is None else estimate - found["value_lower"],
        "failure_probability_of_the_lower_value": FAILURE,
        "values_are": "totals of rewards scaled to [0, 1], from the same noisy release: no further privacy is spent",
    }


# The certificate ----------------------------------------------------------------------------------------------------


def _fitted(
    learned: _Learned,
    choice: Choice,
    log: LogFormat,
    num_users: int,
    budget: Budget,
    neighbours: Neighbours,
    rewards: Floats | None,
    repairs: Repairs,
    noise: NoiseSource,
    mode: str,
    told: tuple[str, ...],
) -> Fitted:
    from importlib.metadata import version

    plan, H = learned.plan, log.horizon
    actions = plan.actions
    assert actions is not None
    chosen = np.take_along_axis(learned.known, actions[..., None], axis=2)[..., 0]
    policy = Policy(actions, plan.value[:H], chosen, log.num_actions, log.state_names, log.action_names)
    parts = list(learned.parts.values())
    guarantee = compose_parallel(parts) if len(parts) > 1 else parts[0]
    covered = float(learned.known.mean())
    prospect = None
    if choice.algorithm not in LINEAR:
        prospect = forecast(log, budget, num_users, neighbours, choice.algorithm, rewards is not None)
    warnings = [*told, *_warnings(learned, covered, prospect)]
    if noise.simulation:
        warnings.insert(0, certificate.SIMULATED)
    private = guarantee.to_json()
    document = {
        "format": certificate.FORMAT,
        "version": version("discreet"),
        "simulation": noise.simulation,
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
            "rewards_known": rewards is not None,
        },
        "algorithm": {"name": choice.algorithm, "why": choice.why, "mode": mode, **learned.settings},
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
    notices = (*repairs.sentences(),)
    if notices:
        notices = (*notices, "these numbers are not private: keep them with the log")
    return Fitted(policy, document, notices, repairs)


def _bound_text(log: LogFormat) -> str:
    if not log.enforce:
        return "declared by the holder of the data, not enforced"
    m = log.episodes_per_user
    which = "the first episode" if m == 1 else f"the first {m} episodes"
    return f"{which} of every user by episode number, and of these the steps 0 to {log.horizon - 1}"


def _warnings(learned: _Learned, covered: float, prospect: Prospect | None) -> list[str]:
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


# Before any data are touched ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prospect:
    """How evenly visited cells would stand against the noise."""

    deviation: float  # of the noise on one item or counter
    visits: float  # of a cell, when visits are spread evenly
    needed_visits: float  # at which a cell counts as known
    signal: float  # visits / needed
    users_needed: int
    verdict: str

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def forecast(
    log: LogFormat,
    budget: Budget,
    num_users: int,
    neighbours: Neighbours = "replace",
    algorithm: str = "one-hot",
    known_rewards: bool = False,
) -> Prospect:
    """From public numbers: the noise of a fit, and how many users would make evenly visited cells known."""
    spec = log.spec
    if algorithm == "dp-apvi":
        shares = (1.0, 1.0, 0.0) if known_rewards else None
        private = OneShot(budget, neighbours, shares=shares, episodes_per_user=log.episodes_per_user)
        visits = private.families(spec)[0]
        deviation = visits.deviation
        needed = 4.0 * deviation
    else:
        pooled_gaussian = log.pooled and budget.kind != "pure"
        one_hot = OneHot(
            budget,
            neighbours,
            episodes_per_user=log.episodes_per_user,
            first_visits=log.first_visits or pooled_gaussian,
        )
        scale = one_hot.entry(spec).scale * spec.grid
        deviation = scale * (math.sqrt(2.0) if one_hot.mechanism == "laplace" else 1.0)
        items = spec.num_states * (1 if known_rewards else 2)
        reach = math.log(items / 0.2) / math.sqrt(2.0)
        needed = max(5.0, (reach + 0.7) * deviation * math.sqrt(3.0))
    cells = spec.stages * log.num_states * log.num_actions
    per_user = log.episodes_per_user * log.horizon / cells
    visits_each = num_users * per_user
    signal = visits_each / needed if needed > 0 else math.inf
    users_needed = math.ceil(NEEDED * needed / per_user)
    if signal >= NEEDED:
        verdict = "enough users, if all state-action pairs are visited about evenly"
    elif signal >= 1.0:
        verdict = f"the well-visited part can be learned; {users_needed:,} users would be comfortable"
    else:
        verdict = (
            f"too few users: nothing but the most visited pairs can be learned; about {users_needed:,} are needed"
        )
    return Prospect(deviation, visits_each, needed, signal, users_needed, verdict)


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
