"""What `fit` runs: from a log, one private release, and a plan that has seen nothing else."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.agents.apvi import APVI
from discreet.agents.one_hot import HistogramEstimate, OneHotVI
from discreet.agents.practice import AS_NOW
from discreet.agents.sparse import SparseOneHotVI
from discreet.agents.vapvi import VAPVI
from discreet.bonuses import BonusKind
from discreet.mdp import Floats, Ints
from discreet.offline.declaration import Grid
from discreet.offline.wording import THRESHOLDED
from discreet.people.counting import LoggedData, Repairs
from discreet.people.logs import LogFormat
from discreet.planning import Plan, possible_values, tie_order
from discreet.privacy.accounting import Budget, Guarantee, Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.trust.linear import LinearMoments, MomentStream
from discreet.privacy.trust.one_hot import OneHot, Tilted
from discreet.privacy.trust.sparse import SparseStream, tilted_release
from discreet.problem import FAILURE as PRINTED_FAILURE
from discreet.problem import NOTHING_DECLARED, Mask, PublicStructure
from discreet.releases.histograms import PrivateHistogram
from discreet.releases.items import Items
from discreet.releases.regressions import PrivateRegression, Question
from discreet.releases.sparse import SparseItems, dense, table_size
from discreet.valuation import (
    FAILURE,
    STANDS_OUT,
    Scale,
    Start,
    counted_values,
    faint_rate,
    histogram_lower_values,
    plain_values,
    start_of,
    unproved_values,
    worth,
)

if TYPE_CHECKING:
    from discreet.people.stays import DeclaredLog

UNPROVED = (
    "no lower bound is proved for steps that were weighted, because the weights depend on where the same people went"
)


@dataclass(frozen=True, eq=False)
class Task:
    """A log, what was declared about it, and what may be spent on it."""

    data: LoggedData
    log: LogFormat
    budget: Budget
    neighbours: Neighbours
    noise: NoiseSource
    mode: str = "practical"
    bonus: BonusKind = "bernstein"  # what is taken off, in the learners that have both forms
    confidence_scale: float | None = None  # factor on it; None: the learner's own
    rewards: Floats | None = None  # (G, S, A), declared public
    start: Start | None = None  # declared public
    features: Floats | None = None  # (S, A, d), norms at most 1
    longest: float = 1.0  # what these features were divided by
    tilted: bool = False  # one step per user
    split: bool = False  # half of the users for the variances
    declared: PublicStructure = NOTHING_DECLARED  # which successors can occur
    plan_horizon: int | None = None  # steps to plan for, where fewer count
    grid: Grid | None = None  # what the states are, where columns were declared
    columns: DeclaredLog | None = None  # the log with these columns
    safe: bool = False  # do what most people do, and nothing else
    beta: float | None = None  # how often all that a plan relies on may fail; None: the learner's own
    printed: bool = False  # a paper's noise

    @property
    def failure(self) -> float:
        """β of what is taken off."""
        return PRINTED_FAILURE if self.beta is None else self.beta

    @property
    def width_failure(self) -> float:
        """Of the widths of noise: print has one δ for both; with our own constants 0.01, unless a β is said."""
        return 0.01 if self.beta is None and self.mode == "practical" else self.failure

    @property
    def said(self) -> dict[str, Any]:
        """What a certificate says of it."""
        return {} if self.beta is None else {"beta": self.beta}

    def regressions(self, weighted: bool) -> LinearMoments:
        """Lem. E.2: of 5H noisy statistics (PEVI: 2H) each may fail with δ/(5H)."""
        H, each = self.log.horizon, 0.01
        if self.mode == "paper" or self.beta is not None:
            each = self.width_failure / ((5 if weighted else 2) * H)
        calibration: Literal["true", "paper"] = "paper" if self.printed else "true"
        return LinearMoments(
            self.budget, self.neighbours, weighted, self.split, self.log.episodes_per_user, each, 1.0, calibration
        )

    @property
    def worst(self) -> float | None:
        """What a step pays at least after one whose successor is unknown; None where that is settled without
        looking at what follows: by the number of the step, or by a cut. It is not where a column says of some such
        steps that they led on, or of some that were not cut that they ended: the others are those that did not."""
        given = self.log.given or frozenset()
        telling = "next_state" in given or {"terminated", "truncated"} <= given
        return None if self.log.early_end == "absorb" and not telling else min(0.0, self.log.ended_rate)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was learned, and everything that the certificate says about how."""

    plan: Plan
    known: Mask  # (H, S, A)
    parts: dict[str, Guarantee]  # by part of the users
    estimate: dict[str, Any]
    settings: dict[str, Any]
    repairs: Repairs
    regressions: tuple[dict[str, Any], ...] = ()  # noise and clipping of each, where there are any
    grid: Grid | None = None  # what the states of the plan are, if not those of the task


def scale_of(log: LogFormat, horizon: int) -> Scale:
    """The units of a log; whoever is not seen again may have left."""
    return Scale(*log.reward_range, horizon, log.ended_rate if log.has_ended or log.has_unknown else None)


def items_of(task: Task) -> SparseItems:
    """What one step can be."""
    log, declared = task.log, task.declared.successors
    return SparseItems(
        log.num_states,
        log.num_actions,
        task.plan_horizon or log.horizon,
        log.pooled,
        log.has_ended,
        log.has_unknown,
        log.ended_rate if log.has_ended else 0.0,
        task.rewards is not None,
        declared,
    )


def one_hot(task: Task) -> Outcome:
    """One histogram of all steps, or of one step of every user; of many items only what is above noise is held."""
    data, log, rewards, start = task.data, task.log, task.rewards, task.start
    if rewards is not None and task.declared.successors is not None:  # nobody is paid for what is impossible
        rewards = np.where(task.declared.successors.any(axis=-1), rewards, 0.0)
    sparse = items_of(task)
    if not dense(table_size(sparse), sparse.pooled):
        return _sparse_one_hot(task, sparse, rewards)
    cells = Items.of(
        log.num_states,
        log.num_actions,
        task.plan_horizon or log.horizon,
        log.pooled,
        task.declared,
        absorbing=log.has_ended,
        unknown=log.has_unknown,
        ended=log.ended_rate,
        known_rewards=rewards is not None,
    )
    m = log.episodes_per_user
    if task.tilted:
        users = data.one_step()
        tilted = Tilted(task.budget, task.neighbours, episodes_per_user=m)
        release, parts = tilted.release(users, log.spec, cells, task.noise)
        repairs = users.repairs
    else:
        counts = data.counts()
        private = OneHot(task.budget, task.neighbours, episodes_per_user=m, first_visits=log.first_visits)
        stream = private.open(log.spec, cells, data.num_users, task.noise)
        stream.add(counts)
        release, parts, repairs = stream.release(), {"all users": stream.guarantee}, counts.repairs
    agent = OneHotVI(rewards)
    if task.confidence_scale is not None:
        agent = replace(agent, confidence_scale=task.confidence_scale)
    estimate = agent.estimate(release)
    plan = agent.plan_in(release, estimate)
    H, S, A = cells.shape
    scale = scale_of(log, H)
    if task.declared.successors is not None:
        plan = _possible_only(plan, cells.possible)
    known = np.broadcast_to(estimate.known.reshape(cells.stages, S, A), (H, S, A))
    assert plan.actions is not None
    plain = _plain(outstanding(estimate, release), cells, plan.actions, rewards)
    most_episodes = data.num_users * m
    lower = histogram_lower_values(release, plan.actions, most_episodes * log.horizon, rewards, task.worst)
    if start is None and not log.pooled and not task.tilted:
        first = release.values[: S * A].reshape(S, -1).sum(axis=1)
        start = start_of(first, A * release.total_width, most_episodes)
    settings = {
        "steps_per_user": "one" if task.tilted else "all",
        "noise_per_item": release.deviation,
        "items": int(cells.admitted.sum()),
        "confidence_scale": agent.confidence_scale,
        "hiding": agent.wary_hiding if estimate.wary else agent.hiding,
        "cells_read_over_all_steps": estimate.shared,
        "spread": agent.spread,
    }
    return Outcome(plan, known, parts, worth(plain, lower, plan.value, start, scale), settings, repairs)


def _sparse_one_hot(task: Task, items: SparseItems, rewards: Floats | None) -> Outcome:
    """The same where all items together would be too many to hold."""
    data, log = task.data, task.log
    m = log.episodes_per_user
    agent = SparseOneHotVI(OneHotVI(rewards))
    if task.confidence_scale is not None:
        agent = SparseOneHotVI(replace(agent.rule, confidence_scale=task.confidence_scale))
    if task.tilted:
        users, tilted = data.one_step(), Tilted(task.budget, task.neighbours, episodes_per_user=m)
        release, parts = tilted_release(tilted, users, log.spec, items, task.noise, agent.rule.lowest)
        repairs = users.repairs
    else:
        counts = data.items()
        private = OneHot(task.budget, task.neighbours, episodes_per_user=m, first_visits=log.first_visits)
        stream = SparseStream(private, log.spec, items, data.num_users, task.noise, agent.rule.lowest)
        stream.add(counts)
        release, parts, repairs = stream.release(), {"all users": stream.guarantee}, counts.repairs
    estimate = agent.estimate(release)
    found = agent.plan_in(release, estimate)
    H, S, A = items.shape
    plain = agent.plain_values(release, estimate, found.actions, STANDS_OUT)
    lower = unproved_values(items, found.actions, rewards, task.worst)
    known = np.broadcast_to(estimate.known.reshape(items.stages, S, A), (H, S, A))
    none = np.empty((0, 0, 0))
    plan = Plan(none, found.values, none, release.num_users, actions=found.actions)
    settings = {
        "steps_per_user": "one" if task.tilted else "all",
        "noise_per_item": release.deviation,
        "items": items.num_items,
        "confidence_scale": agent.rule.confidence_scale,
        "hiding": agent.rule.wary_hiding if estimate.wary else agent.rule.hiding,
        "cells_read_over_all_steps": 0.0,
        "spread": agent.rule.spread,
    }
    estimated = worth(plain, lower, plan.value, task.start, scale_of(log, H))
    estimated["values_are"] += f"; {THRESHOLDED}"
    return Outcome(plan, known, parts, estimated, settings, repairs)


def _plain(estimate: HistogramEstimate, cells: Items, actions: Ints, rewards: Floats | None) -> Floats:
    """What the policy seems to be worth: steps of which nobody knows where they led count for what they paid."""
    shape = cells.stages, cells.num_states, cells.num_actions
    items = estimate.shares.reshape(*shape, cells.num_successors, 2)
    paid = items[..., 1].sum(axis=-1)
    P = items.sum(axis=-1)[..., : cells.num_places]
    share = P.sum(axis=-1, keepdims=True)
    P = np.divide(P, share, out=np.zeros_like(P), where=share > 0.0)
    certain = rewards is not None
    return plain_values(
        P,
        paid if rewards is None else np.broadcast_to(rewards, shape),
        np.zeros(shape) if certain else paid * (1.0 - paid),
        estimate.counts.reshape(shape),
        estimate.known.reshape(shape),
        actions,
        cells.ended if cells.absorbing else None,
    )


def outstanding(estimate: HistogramEstimate, release: PrivateHistogram) -> HistogramEstimate:
    """For plain estimates: where what a cell paid does not stand out of its noise, it is what all such cells paid
    together. Noise that looks like small payments would add up along a way through many such cells."""
    admitted, sd = release.cells.admitted, release.deviation
    if sd == 0.0 or not admitted[:, 1::2].any():
        return estimate
    shares = estimate.shares.copy()
    paid, kept = shares[:, 1::2].sum(axis=1), (shares[:, 1::2] > 0.0).sum(axis=1)
    least = STANDS_OUT * release.width * estimate.deviations / sd * np.sqrt(np.maximum(kept, 1))
    faint = paid * estimate.counts <= least
    sums, exists = release.values[faint], admitted[faint]
    rate = faint_rate(sums[:, 1::2].sum(), sums.sum(), sd * math.sqrt(exists[:, 1::2].sum()))
    both = shares[:, 0::2] + shares[:, 1::2]
    shares[faint, 0::2], shares[faint, 1::2] = (1.0 - rate) * both[faint], rate * both[faint]
    return replace(estimate, shares=shares)


def _possible_only(plan: Plan, possible: Mask) -> Plan:
    """Impossible actions have the least Q, like unknown ones: of these the possible ones are taken."""
    order = tie_order(plan.quality.shape, 0)
    quality = np.where(possible, plan.quality, -np.inf)
    first = np.take_along_axis(quality, order, axis=2).argmax(axis=2)[..., None]
    actions = np.take_along_axis(order, first, axis=2)
    policy = np.zeros(plan.quality.shape)
    np.put_along_axis(policy, actions, 1.0, axis=2)
    return replace(plan, policy=policy, actions=actions[..., 0])


def columns(task: Task) -> Outcome:
    """A tree of what people do, a histogram on the grid, and a private choice among them and current practice."""
    from discreet.offline import auto  # loaded for those who declare columns

    assert task.columns is not None
    assert task.grid is not None
    log = task.log
    plan = auto.Design(
        task.grid.declaration,
        task.grid,
        task.data.num_users,
        task.budget,
        task.neighbours,
        task.safe,
        log.has_ended,
        log.has_unknown,
    )
    stays = task.columns.held(plan.num_users)
    found = auto.learn(stays, plan, task.noise)
    actions = np.maximum(found.actions, 0)
    policy = np.eye(log.num_actions)[actions]
    made = Plan(policy, found.values, np.zeros(policy.shape), plan.num_users, actions=actions)
    known = found.known & np.asarray(found.actions != AS_NOW)[..., None]
    scale = scale_of(log, log.horizon)
    least = auto.least_values(plan, actions.shape)
    parts = {"all users": found.guarantee}
    estimate = worth(None, least, least, None, scale)
    return Outcome(made, known, parts, estimate, found.settings, stays.repairs, grid=found.states)


def apvi(task: Task) -> Outcome:
    """Visits, transitions and rewards, each with its share of the budget."""
    data, log, rewards, start = task.data, task.log, task.rewards, task.start
    counts = data.counts()
    parts_of_budget = None if rewards is None else (1.0, 1.0, 0.0)
    private = OneShot(task.budget, task.neighbours, shares=parts_of_budget, episodes_per_user=log.episodes_per_user)
    stream = private.open(log.spec, counts.num_episodes, task.noise)
    stream.add(counts.counts())
    release = stream.release()
    agent = APVI(
        task.mode,
        task.bonus,
        rewards,
        task.confidence_scale,
        absorbing=log.has_ended,
        ended=log.ended_rate,
        unknown=log.has_unknown,
        beta=task.failure,
    )
    scale = scale_of(log, log.horizon)
    relied = stream.restated(task.width_failure)  # what is surely earned has a failure probability of its own
    found = agent.plan(relied)
    S = log.num_states
    actions = np.ascontiguousarray(found.policy[:, :S].argmax(axis=2), dtype=np.int64)
    plan = Plan(found.policy[:, :S], found.value[:, :S], found.quality[:, :S], found.num_episodes, actions=actions)
    known = np.broadcast_to(agent.known(relied)[:, :S], plan.policy.shape)
    ended = log.ended_rate if log.has_ended else None
    plain, lower = counted_values(release, actions, rewards, ended, log.has_unknown, task.worst)
    if start is None and not log.pooled:
        width = log.num_actions * float(np.max(release.widths.visits))
        start = start_of(release.visits[0, :S].sum(axis=1), width, counts.num_episodes)
    settings = {
        "bonus": task.bonus,
        "noise_per_visit_count": float(np.max(release.deviations.visits)),
        "counters": sum(math.prod(shape) for shape in log.spec.shapes().values()),
        **task.said,
    }
    parts = {"all users": stream.guarantee}
    return Outcome(plan, known, parts, worth(plain, lower, plan.value, start, scale), settings, counts.repairs)


def pevi(task: Task) -> Outcome:
    """One regression on features per step."""
    return _regressed(task, weighted=False)


def vapvi(task: Task) -> Outcome:
    """Two regressions on features per step, the second weighted by what the first says about variances."""
    return _regressed(task, weighted=True)


def answered(
    asked: Generator[Question, PrivateRegression, tuple[Plan, Floats]], stream: MomentStream
) -> tuple[Plan, Floats]:
    """What an agent makes of the answers to its questions: it is sent releases, and never holds the stream."""
    try:
        question = next(asked)
        while True:
            question = asked.send(stream.regress(*question))
    except StopIteration as done:
        found: tuple[Plan, Floats] = done.value
        return found


def _regressed(task: Task, weighted: bool) -> Outcome:
    data, log, features, start = task.data, task.log, task.features, task.start
    assert features is not None
    users = data.rows()
    stream = task.regressions(weighted).open(users, log.spec, log.spec.num_states, task.noise)
    scale = scale_of(log, log.horizon)
    agent = VAPVI(
        features,
        weighted,
        task.mode,
        confidence_scale=task.confidence_scale,
        ended=log.ended_rate if log.has_ended else None,
        unknown=min(0.0, log.ended_rate) if log.has_unknown else None,
        beta=task.failure,
    )
    asked = agent.questions(stream.horizon, stream.num_successors, stream.num_users, task.longest, FAILURE)
    plan, lower = answered(asked, stream)
    settings = {
        "dimension": int(features.shape[2]),
        "split": task.split,
        "penalty_factor": agent.factor(log.horizon, data.num_users),
        **task.said,
        **({"noise": "printed"} if task.printed else {}),
    }
    least, _ = possible_values(log.horizon, *agent.rates)
    estimate = worth(None, lower, plan.value, start, scale)
    if weighted:
        estimate["values_are"] += f"; {UNPROVED}"
    return Outcome(
        plan,
        plan.quality > least[:-1, None, None],
        stream.parts(),
        estimate,
        settings,
        users.repairs,
        tuple(stream.released()),
    )
