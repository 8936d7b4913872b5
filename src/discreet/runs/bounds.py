"""The theorems on a learner in one setting: the facts they read, the errors of the noise in force, what was measured.

The noise in force is that of the learner's printed form (a release after every episode, one release from a log, one
fine batch of shuffled bits), at the library's calibration and the failure probability that is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np

from discreet import catalog, theory
from discreet.envs import linear, registry, tabular
from discreet.mdp import FiniteMDP
from discreet.occupancies import Layers
from discreet.people.counts import Counts, CountSpec
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Budget, Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.sums.tree import Tree
from discreet.privacy.tails import laplace_log_tails
from discreet.privacy.trust.local import LocalLaplace
from discreet.privacy.trust.local_losses import LocalLosses
from discreet.privacy.trust.losses import CentralLosses
from discreet.privacy.trust.shuffle import Shuffle
from discreet.problem import Moments
from discreet.runs.experiment import Experiment, Setting
from discreet.runs.report import Summary, summaries
from discreet.runs.results import RunResult
from discreet.theory import Bound, Errors, Facts

#: Beyond so many users no sum of integers has room, and nobody has them.
MOST_USERS, MOST_LOSSES = 1e15, 1e9
DELTA = 1e-6


@dataclass(frozen=True)
class Case:
    """A learner, the numbers that theorems on it read, and what the noise is calibrated to."""

    name: str
    facts: Facts
    delta: float = 0.0
    neighbours: Neighbours = "replace"
    layers: Layers | None = None  # adversarial learners

    @property
    def entry(self) -> catalog.Algorithm:
        return catalog.algorithm(self.name)

    @property
    def largest(self) -> float:
        return MOST_LOSSES if self.entry.runner == "adversarial" else MOST_USERS

    def at(self, episodes: float) -> Facts:
        """The facts with another number of users, with the errors of their noise."""
        facts = replace(self.facts, episodes=episodes)
        return replace(facts, errors=errors(replace(self, facts=facts)))

    @property
    def now(self) -> Facts:
        return self.at(self.facts.episodes)


# Facts --------------------------------------------------------------------------------------------------------------


def case(
    name: str,
    *,
    env: str | FiniteMDP | None = None,
    states: int | None = None,
    actions: int | None = None,
    horizon: int | None = None,
    instance: int = 0,
    episodes: int = 20_000,
    epsilon: float = 1.0,
    delta: float | None = None,
    model: str | None = None,
    neighbours: Neighbours = "replace",
    beta: float = 0.1,
    moments: Moments | None = None,
) -> Case:
    """The case of a learner at given sizes, or in an environment, whose own quantities are then read as well."""
    entry = catalog.algorithm(name)
    if name not in theory.THEOREMS:
        theory.bounds(name, Facts(1, 1, 1, 1))  # says what there is
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon is {epsilon:g}; it must be a finite number above 0")
    if not 0 < beta < 1:
        raise ValueError(f"beta is {beta:g}; the failure probability must lie strictly between 0 and 1")
    if episodes < 2:
        raise ValueError(f"episodes is {episodes}; it must be at least 2")
    model = model or entry.models[0]
    if model not in entry.models:
        raise ValueError(f"{name} has no {model} form; choose one of {', '.join(entry.models)}")
    if delta is None:
        delta = DELTA if model == "shuffle" or name == "dp-vapvi" else 0.0
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta:g}; it must be at least 0 and below 1")
    if env is not None and actions is not None:
        raise ValueError(f"{registry.spec(env).name} has its own actions; leave --actions out")
    rho = Budget.approximate(epsilon, delta).total("gaussian") if delta and model in ("joint", "central") else None
    if env is None:
        S, A, H = states or 6, actions or 2, horizon or 20
        for option, value in (("states", S), ("actions", A), ("horizon", H)):
            if value < 1:
                raise ValueError(f"{option} is {value}; it must be at least 1")
        facts = Facts(S, A, H, episodes, epsilon, model, beta, rho, moments=moments or Moments())
        return Case(name, facts, delta, neighbours, _full_layers(facts) if entry.runner == "adversarial" else None)
    mdp = registry.make(env, states, horizon, instance)
    facts = Facts(
        mdp.num_states,
        mdp.num_actions,
        mdp.horizon,
        episodes,
        epsilon,
        model,
        beta,
        rho,
        moments=moments or Moments(),
    )
    return _in(Case(name, facts, delta, neighbours), env, mdp, instance, moments)


def _full_layers(facts: Facts) -> Layers:
    everywhere = np.full(facts.states, 1.0 / facts.states)
    return Layers.full(facts.horizon, everywhere, facts.actions)


def _in(found: Case, env: str | FiniteMDP, mdp: FiniteMDP, instance: int, moments: Moments | None) -> Case:
    """What the theorems on a learner read off a known model."""
    entry, facts, place = found.entry, found.facts, registry.spec(env)
    law = place.law(mdp)
    if entry.heavy and moments is None:
        mean = float(np.abs(mdp.rewards).max()) or 1.0
        facts = replace(facts, moments=Moments(1.0, law.moment_bound(mean, 1.0), mean))
    if not entry.heavy and entry.runner == "online" and (reach := law.range(mdp.rewards)) is not None:
        facts = replace(facts, reward=max(reach[1] - min(reach[0], 0.0), 1.0))
    if place.name.startswith("heavy-local"):
        facts = replace(facts, leaves=len(tabular.layers(mdp)[-1]))
    if entry.runner == "adversarial":
        states = tabular.layers(mdp)
        layers = Layers(states, mdp.initial, mdp.num_actions)
        support = theory.effective_support(mdp, states)
        return replace(found, facts=replace(facts, positions=sum(map(len, states)), support=support), layers=layers)
    if entry.features:
        if place.name != "linear":
            raise ValueError(f"{entry.name} learns from features, which {place.name} has not; take --env linear")
        phi = linear.two_state_linear(mdp.horizon, instance=instance).features
        facts = replace(facts, features=theory.features(phi, mdp, place.behaviour(mdp)))
    elif entry.runner == "offline":
        facts = replace(facts, coverage=theory.coverage(mdp, place.behaviour(mdp)))
    return replace(found, facts=facts)


def case_of(experiment: Experiment, beta: float = 0.1) -> Case:
    """The case of an experiment: its environment, budget and moments."""
    said = experiment.resolved
    if said.epsilon is None or not isinstance(said.env, str):
        raise ValueError(f"the theorems are on private learners in named environments, and not on {said.entry.name}")
    neighbours: Neighbours = "zero-out" if said.neighbours == "zero-out" else "replace"
    return case(
        said.entry.name,
        **{name: getattr(said, name) for name in ("env", "states", "horizon", "instance", "episodes", "model")},
        **{name: getattr(said, name) for name in ("epsilon", "delta")},
        neighbours=neighbours,
        beta=beta,
        moments=Setting.of(said).problem.moments if said.entry.heavy else None,
    )


# Errors in force ----------------------------------------------------------------------------------------------------


def errors(found: Case) -> Errors:
    """What the noise of the learner's printed form adds to counts and losses, with probability 1 − β."""
    facts, entry = found.facts, found.entry
    if facts.episodes > found.largest or entry.features:
        return Errors()
    K = math.ceil(facts.episodes)
    if entry.runner == "adversarial":
        assert found.layers is not None
        feedback = "bandit" if entry.name == "private-uob-lbps" else "full"
        return _loss_errors(
            found.layers, feedback, K, facts.epsilon, found.delta, facts.model, found.neighbours, facts.beta
        )
    key = facts.states, facts.actions, facts.horizon, K, facts.epsilon, found.delta, found.neighbours, facts.beta
    return _count_errors(entry.runner if entry.runner == "offline" else facts.model, *key)


@cache
def _count_errors(
    kind: str,
    S: int,
    A: int,
    H: int,
    K: int,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    beta: float,
) -> Errors:
    budget = Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)
    spec, noise, factor = CountSpec(S, A, H, False, 1.0), NoiseSource.seeded(0), 4.0
    if kind == "offline":
        stream: Any = OneShot(budget, neighbours, shares=(1.0, 1.0, 0.0), beta=beta).open(spec, K, noise)
        factor = 2.0
    elif kind == "local":
        stream = LocalLaplace(budget, beta=beta).open(spec, K, noise)
    elif kind == "shuffle":
        stream = Shuffle(budget, neighbours, beta=beta).open(spec, K, noise)
    else:
        stream = Tree(budget, neighbours, beta=beta).open(spec, K, noise)
    if kind in ("offline", "shuffle"):
        nothing = Counts.zeros(spec)
        users = min(max(K // 4, 2), 10**9) if kind == "shuffle" else K  # a batch; larger ones have the same noise
        stream.add(Counts(nothing.visits, nothing.transitions, nothing.reward_sums, users))
    widths = stream.release().widths
    visits, transitions = float(np.max(widths.visits)), float(np.max(widths.transitions))
    return Errors(factor * max(visits, transitions), visits, transitions)


def _loss_errors(
    layers: Layers,
    feedback: str,
    K: int,
    epsilon: float,
    delta: float,
    model: str,
    neighbours: Neighbours,
    beta: float,
) -> Errors:
    budget = Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)
    full = feedback == "full"
    spec = LossSpec.for_episodes(layers, "full" if full else "bandit", K)
    central = CentralLosses(
        budget,
        neighbours,
        counts="tree",
        losses="constant-tree" if full else "blocks",
        num_count_blocks=K,
        num_loss_blocks=K,
        visits=True,
        beta=beta,
    )
    if model == "local":
        found = LocalLosses(budget, laplace=True, beta=beta).open(spec, NoiseSource.seeded(0)).release()
        family = replace(central, losses="blocks").families(spec)["losses"]
        terms = K
    else:
        found = central.open(spec, NoiseSource.seeded(0)).release()
        family, terms = central.families(spec)["losses"], central.uses("losses")
    drift = None
    if full and family.mechanism == "laplace":
        drift = spec.grid * expected_range(family.scale, terms, spec.layers.num_cells)
    e = found.count_width
    return Errors(4.0 * e, e, e, drift, None if full else found.loss_width)


def expected_range(scale: float, terms: int, cells: int, points: int = 400) -> float:
    """E[max Z − min Z] ≤ 2·∫₀^∞ min{1, cells·P(Z ≥ x)} dx for Z a sum of `terms` DLap(scale), by steps from above."""
    tail = laplace_log_tails([terms], scale)
    top = scale * math.sqrt(2.0 * terms)
    while float(tail(max(math.ceil(top), 1))[0]) > math.log(1e-9 / cells):
        top *= 1.5
    ends = np.linspace(0.0, top, points + 1)
    heights = [1.0, *(min(1.0, cells * math.exp(float(tail(max(math.ceil(x), 1))[0]))) for x in ends[1:-1])]
    return 2.0 * float(np.diff(ends) @ np.array(heights))


# Bounds beside measurements -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """A bound, and from how many users on it says something."""

    bound: Bound
    informative_from: float | None = None  # None: not up to `Case.largest`, or a lower bound


def statements(found: Case, search: bool = True) -> tuple[Statement, ...]:
    """Every theorem on the learner at the case's sizes."""
    now = found.now
    told = []
    for theorem in theory.THEOREMS[found.name]:
        bound = theorem(now)
        start = None
        if search and bound.kind == "upper":
            start = theory.informative_from(theorem, found.at, found.largest)
        told.append(Statement(bound, start))
    return tuple(told)


def quantities(found: Case) -> dict[str, float]:
    """The numbers behind the bounds, by their names in the papers."""
    facts, entry = found.now, found.entry
    E = facts.errors
    told: dict[str, float | None] = {}
    if entry.runner == "adversarial":
        told |= {"X": facts.x, "C_M": facts.effective_support, "X√A": facts.x * math.sqrt(facts.actions)}
        told |= {"E (in force)": E.counts, "E (printed order)": theory.printed_count_error(facts)}
        told |= {"E_ε (in force)": E.loss_range, "E' (in force)": E.losses}
        told |= {"E' (printed)": theory.printed_loss_error(facts)}
    elif entry.heavy:
        told |= {"E1 (in force)": E.visits, "E1 (printed)": theory.printed_heavy_error(facts, False)}
        told |= {"E3 (in force)": E.transitions, "E3 (printed)": theory.printed_heavy_error(facts, True)}
        told |= {"v": facts.moments.order, "u": facts.moments.bound, "τ": facts.moments.mean}
    elif entry.features:
        L, matrices = theory.vapvi_noise(facts)
        assert facts.features is not None
        told |= {"d": facts.features.dimension, "unused coordinates": facts.features.unused}
        told |= {"κ": facts.features.kappa, "ρ": facts.rho, "L": L, "E": matrices}
        told |= theory.vapvi_burn_in(facts)
    elif entry.runner == "offline":
        told |= {"E (in force)": E.counts, "E (printed)": theory.printed_offline_error(facts), "ρ": facts.rho}
        if facts.coverage is not None:
            told |= {"d̄_m": facts.coverage.least, "burn-in n": theory.dp_apvi_burn_in(facts)}
    else:
        told |= {"E (in force)": E.counts, "E (printed order)": theory.printed_count_error(facts)}
    return {name: float(value) for name, value in told.items() if value is not None}


@dataclass(frozen=True, eq=False)
class Comparison:
    """What was measured beside what is promised."""

    summary: Summary
    case: Case
    statements: tuple[Statement, ...]

    @property
    def measured(self) -> float:
        return self.summary.regret.mean

    def looseness(self, bound: Bound) -> float | None:
        """How many times the measured regret the bound is."""
        return bound.value / self.measured if self.measured > 0 else None


def comparisons(rows: Iterable[RunResult], name: str | None = None, beta: float = 0.1) -> list[Comparison]:
    """For every stored experiment that a theorem speaks of (only those of `name`, if given)."""
    known = {each.name for each in fields(Experiment)}
    found = []
    for summary in summaries(rows):
        settings = {key: value for key, value in summary.settings.items() if key in known}
        learner = str(settings["algorithm"])
        if learner not in theory.THEOREMS or (name is not None and learner != name):
            continue
        this = case_of(Experiment(**settings), beta)
        found.append(Comparison(summary, this, statements(this, search=False)))
    return found
