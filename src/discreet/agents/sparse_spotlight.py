"""Spotlight on releases that hold few sub-cells: any number of states. Theory: docs/spotlight.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from discreet.agents.knowledge import (
    FEWEST_KNOWN,
    KNOWN,
    KNOWN_STAGED,
    LEAST,
    LOSS,
    RECOVERY,
    RESTART,
    SHORT,
    TRUSTED,
    USABLE,
    Mode,
    hoped_for,
)
from discreet.agents.spotlight import (
    CAUTION,
    CURATOR,
    DROP,
    EXPLORE_MASS,
    HIDING,
    OPTIMISM,
    RETRY,
    SEARCH_USERS,
    START_SIGNAL,
    WORTHWHILE,
    Sizing,
    Spotlight,
    worth_testing,
)
from discreet.kernels import sparse_spotlight as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Agent, Plan, tie_order
from discreet.problem import Mask
from discreet.releases.sparse_reports import SparseReports, SparseTargets

#: An outcome stands out of its noise by so many standard deviations; a reward by so many.
STANDS_OUT, PAYS = 2.0, 1.5
#: An exploring epoch brings its first target so many standard deviations of reports more than the threshold, and
#: twice as many whenever it came back empty, up to 2^MOST_MISSES times.
MARGIN, MOST_MISSES = 4.0, 6


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What was found of (row, s'): noisy sums over the epochs since then, weighted, and what they were predicted."""

    pairs: Ints  # (n,) row·S + s', in order
    unpaid: Floats  # (n,)
    paid: Floats  # (n,)
    exposures: Floats  # (n,) predicted reports on the row
    variances: Floats  # (n,) of the noise on each of the two sums

    @classmethod
    def none(cls) -> Outcomes:
        nothing = np.zeros(0)
        return cls(np.zeros(0, dtype=np.int64), nothing, nothing, nothing, nothing)

    def taken(self, keep: Mask) -> Outcomes:
        return Outcomes(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class SparseKnowledge:
    """All that was learned from releases so far; a row is a cell, or the start."""

    outcomes: Outcomes
    variances: Floats  # (rows,): of the noise on one sub-cell of a row; infinite where nothing was ever asked
    expected: Floats  # (rows,): predicted reports, weighted like the sums
    trust: Floats  # (rows,)
    misses: Ints  # (rows,): epochs that came back empty since one did not
    refine: bool = False  # the last exploring epoch came back nearly empty
    late: float = 0.0  # users who searched or refined
    searched: float = 0.0  # users who searched

    @classmethod
    def nothing(cls, rows: int) -> SparseKnowledge:
        misses = np.zeros(rows, dtype=np.int64)
        return cls(Outcomes.none(), np.full(rows, np.inf), np.zeros(rows), np.ones(rows), misses)


class SparseCells(NamedTuple):
    """A model of the rows: what the kernels take, in their order."""

    starts: Ints  # (rows+1,)
    outcomes: Ints  # (n,)
    shares: Floats  # (n,)
    spreads: Floats  # (n,)
    means: Floats  # (rows,)
    mean_variances: Floats  # (rows,)
    counts: Floats  # (rows,)


class SparseFocus(NamedTuple):
    """What the next epoch asks for, and what it is expected to bring."""

    wanted: Mask  # (rows,)
    rates: Floats  # (rows,): predicted reports per user
    users: int
    mode: Mode
    unknown: Mask  # (rows,): when it was announced


class Lookout(NamedTuple):
    """A deterministic plan (−1: nothing is known), what it promises, and what a report on its steps is worth."""

    actions: Ints  # (H, S)
    values: Floats  # (H+1, S)
    worth: Floats  # (H, S)


@dataclass(frozen=True, eq=False, repr=False)
class SparseSpotlightPlan(Plan):
    """The exploring plan, what is known, and what is expected of the epoch."""

    knowledge: SparseKnowledge | None = None
    focus: SparseFocus | None = None


@dataclass(frozen=True)
class SparseSpotlight:
    """`Spotlight` with the same plans, targets and terms over the outcomes that stand out of a thresholded release.

    Differs: 1. rows are the outcomes above the threshold, by their rates since they were found, and no prior is
    learned over cells; 2. an exploring epoch is as long as an outcome needs to rise above the threshold, and twice as
    long where nothing did; 3. what may hide is what lies below the threshold, and searching is limited by the users
    who search and not by what they lose in the model; 4. steps do not share outcomes.
    Source: ours.  Cost: O(H·(S·A + outcomes held)) per epoch, whatever the S²A sub-cells.
    """

    num_episodes: int
    initial: Floats | None = field(default=None, repr=False)  # None: not public, asked for once
    confidence_scale: float = OPTIMISM
    sizing: Sizing = CURATOR
    tie_seed: int = 0

    def plan(self, release: SparseReports, previous: Plan | None) -> SparseSpotlightPlan:
        knowledge = learned(release, previous if isinstance(previous, SparseSpotlightPlan) else None)
        return _SparsePlanner(self, release, knowledge).plan()


#: Bytes that a session takes at its largest: per sub-cell where all are held (an estimate); per (h, s, a), and per
#: cell, where few are (as measured). What steps say about each other takes as much again times the last number.
PER_ITEM, PER_STEP, PER_CELL, STAGED = 80.0, 120.0, 400.0, 0.4


def bytes_needed(agent: Agent[Any], shape: tuple[int, int, int], stages: int) -> float:
    """About what a session with this agent takes; 0 where it is not a Spotlight."""
    H, S, A = shape
    if isinstance(agent, SparseSpotlight):
        return PER_STEP * H * S * A + PER_CELL * stages * S * A
    each = PER_ITEM * (1.0 + STAGED * (stages > 1))
    return each * 2 * stages * S * A * S if isinstance(agent, Spotlight) else 0.0


class _SparsePlanner:
    """One planning step, cut into pieces that share the model."""

    def __init__(self, agent: SparseSpotlight, release: SparseReports, knowledge: SparseKnowledge) -> None:
        space = release.space
        self.agent, self.release, self.knowledge, self.space = agent, release, knowledge, space
        self.shape = _, S, A = space.shape
        C = space.num_cells
        self.model = model_of(knowledge, S)
        level = KNOWN if space.stages == 1 else KNOWN_STAGED
        sd = np.sqrt(knowledge.variances)
        counts = self.model.counts
        self.known, self.usable = (counts >= np.maximum(LEAST, level * sd) for level in (level, USABLE))
        self.start = self._start()
        self.initial = np.full(S, 1.0 / S) if self.start is None else self.start
        seen = np.zeros(S, dtype=np.bool_)
        row = np.repeat(np.arange(counts.size), np.diff(self.model.starts))
        seen[self.model.outcomes[self.known[row]]] = True
        self.seen = seen | (self.initial > 0.0)
        # one order of actions per state, the same at all steps: pooled reports then gather on one action at a time
        self.order = np.ascontiguousarray(np.broadcast_to(tie_order((1, S, A), agent.tie_seed), self.shape))
        self.left = max(agent.num_episodes - release.num_episodes, 1)
        means = self.model.means[:C][self.known[:C]]
        self.hope = hoped_for(means) if means.size >= FEWEST_KNOWN else 1.0

    def _start(self) -> Floats | None:
        """The public initial distribution, or the one that was reported; None while it is unknown."""
        if not self.space.has_start:
            return self.agent.initial
        first, last = self.model.starts[-2:]
        if not np.isfinite(self.knowledge.variances[-1]) or first == last:
            return None
        initial = np.zeros(self.space.num_states)
        initial[self.model.outcomes[first:last]] = self.model.shares[first:last]
        return initial

    def plan(self) -> SparseSpotlightPlan:
        safe = self._values(self.usable)
        focus, exploring = self._focus(safe)
        cautious = self._policy(safe.actions)
        last = focus.users >= self.left and self.start is not None
        policy, values = (cautious, safe.values) if last else (self._policy(exploring.actions), exploring.values)
        S, release = self.space.num_states, self.release
        wanted = np.flatnonzero(focus.wanted)
        pairs = self.knowledge.outcomes.pairs
        pairs = pairs[np.isin(pairs // S, wanted) & ~self.space.whole(pairs // S)]
        targets = SparseTargets(
            focus.wanted,
            None if last else cautious,
            release.reports,
            self.space.stages,
            np.concatenate([2 * pairs, 2 * pairs + 1]),
        )
        return SparseSpotlightPlan(
            policy,
            values,
            policy * values[:-1, :, None],
            release.num_episodes,
            users=self.left if last else focus.users,
            announcement=targets,
            actions=None if last else exploring.actions,
            knowledge=self.knowledge,
            focus=focus,
        )

    def _values(self, known: Mask, optimism: Floats | None = None, searching: bool = False) -> Lookout:
        """The cautious plan on these cells; with optimism, the exploring one."""
        (H, S, _), C = self.shape, self.space.num_cells
        plan = Lookout(np.empty((H, S), dtype=np.int64), np.empty((H + 1, S)), np.empty((H, S)))
        starts, outcomes, shares, spreads, means, variances, counts = self.model
        caution, hope = (CAUTION, -1.0) if optimism is None else (0.0, self.hope)
        hiding = (HIDING if searching else RETRY) * self.release.threshold
        kernel.values_of(
            starts[: C + 1],
            outcomes,
            shares,
            spreads,
            means[:C],
            variances[:C],
            counts[:C],
            known[:C],
            self.seen,
            caution,
            np.zeros(0) if optimism is None else optimism,
            np.minimum(1.0, hiding / np.maximum(counts[:C], 1.0)),
            searching,
            hope,
            self.order,
            *plan,
        )
        return plan

    def _policy(self, actions: Ints) -> Floats:
        """Evenly where no action is known."""
        policy = np.full(self.shape, 1.0 / self.shape[2])
        sure = actions >= 0
        policy[sure] = np.eye(self.shape[2])[actions[sure]]
        return policy

    def _forward(self, known: Mask, actions: Ints, wanted: Mask | None = None) -> tuple[Floats, Floats]:
        """((H, S) chances to be there, (C,) reports per user)"""
        C, A = self.space.num_cells, self.space.num_actions
        mass, rates = np.empty(self.shape[:2]), np.empty(C)
        wanted = np.zeros(C, dtype=np.bool_) if wanted is None else wanted
        starts, outcomes, shares, *_ = self.model
        kernel.forward(
            starts[: C + 1], outcomes, shares, known[:C], actions, A, self.initial, wanted,
            self.release.reports, mass, rates,
        )  # fmt: skip
        return mass, rates

    def _focus(self, safe: Lookout) -> tuple[SparseFocus, Lookout]:
        """Targets and length of the next epoch, and the plan that leads there: to what is unknown while the plan
        meets it, then to what may hide, then to what matters most."""
        C, knowledge = self.space.num_cells, self.knowledge
        trusted = knowledge.trust[:C] >= TRUSTED
        plan = self._values(self.known, np.full(C, self.agent.confidence_scale))
        if self.start is None:
            return self._ask_for_start(), plan
        met = self._met(plan)[0]
        unknown = ~self.known[:C] & trusted & (met > 0.0)
        if not knowledge.refine and met[unknown].sum() >= EXPLORE_MASS:
            focus = self._sized(plan.actions, unknown, "explore")
            if 2 * focus.users <= self.left:  # as many must come after them, or it never pays
                return focus, plan
        searching = self._may_search(float(self.initial @ safe.values[0]))
        mode: Mode = "refine" if searching is None else "search"
        plan = self._refining(safe) if searching is None else searching
        met, worth = self._met(plan)
        worth[~trusted] = 0.0
        wanted = (worth > 0.0) & (worth >= WORTHWHILE * worth.max())
        return self._sized(plan.actions, wanted if wanted.any() else met > 0.0, mode), plan

    def _may_search(self, safe: float) -> Lookout | None:
        """A plan to look for states that nobody has seen, while few users have done so."""
        if self.seen.all():
            return None
        scale = np.full(self.space.num_cells, self.agent.confidence_scale)
        plan, done = self._values(self.known, scale, True), self.knowledge
        high = float(self.initial @ plan.values[0])
        promise = max(high - safe, 0.0) / max(high, 1e-9)
        return plan if done.searched <= SEARCH_USERS * promise * done.late else None

    def _refining(self, safe: Lookout) -> Lookout:
        """The plan whose optimism is what a test is worth to the users who are still to come."""
        C, A = self.space.num_cells, self.space.num_actions
        visits = self._forward(self.usable, safe.actions)[0]
        visits = visits.sum(axis=0) if self.space.stages == 1 else visits.reshape(-1)
        needed = np.maximum(self.agent.sizing.refine * self.release.deviation, self.model.counts[:C])
        tests = worth_testing(np.maximum(needed, LEAST), np.repeat(visits, A) * self.left)
        scale = self.agent.confidence_scale / OPTIMISM
        return self._values(self.known, scale * np.maximum(OPTIMISM, tests))

    def _met(self, plan: Lookout) -> tuple[Floats, Floats]:
        """((C,) expected visits of the plan's cells, what reports on them are worth to one user)"""
        (H, S, A), C = self.shape, self.space.num_cells
        mass = self._forward(self.known, plan.actions)[0]
        steps = np.minimum(np.arange(H), self.space.stages - 1)
        cells = ((steps[:, None] * S + np.arange(S)) * A + plan.actions).reshape(-1)
        met, worth = (np.bincount(cells, weights.reshape(-1), C) for weights in (mass, mass * plan.worth))
        return met.astype(np.float64), worth.astype(np.float64)

    def _sized(self, actions: Ints, wanted: Mask, mode: Mode) -> SparseFocus:
        """Long enough for the first target to bring what is asked of it; what cannot be heard by then is dropped."""
        sizing, sd, C = self.agent.sizing, self.release.deviation, self.space.num_cells
        signal = np.full(C, sizing.refine * sd)
        if mode == "explore":
            fresh = self.release.threshold + MARGIN * sd
            signal = fresh * 2.0 ** np.minimum(self.knowledge.misses[:C], MOST_MISSES)
        else:
            signal = np.maximum(signal, self.model.counts[:C])
        signal = np.maximum(signal, sizing.fewest)
        rates = self._forward(self.known, actions, wanted)[1]
        asked = wanted & (rates > 0.0)
        users = self._length((signal[asked] / rates[asked]).min(initial=math.inf))
        heard = wanted & (rates * users >= DROP * sd)
        if heard.any() and not (heard == wanted).all():
            wanted, rates = heard, self._forward(self.known, actions, heard)[1]
        unknown = ~self.known
        if self.space.has_start:
            wanted, rates = np.append(wanted, False), np.append(rates, 0.0)
        return SparseFocus(wanted, rates, users, mode, unknown)

    def _length(self, users: float) -> int:
        sizing, k = self.agent.sizing, self.release.num_episodes
        return max(1, math.ceil(max(min(users, max(sizing.first, sizing.cap * k)), sizing.floor * k)))

    def _ask_for_start(self) -> SparseFocus:
        rows = np.zeros(self.space.num_rows, dtype=np.bool_)
        rows[-1] = True
        users = self._length(START_SIGNAL * math.sqrt(self.space.num_states) * self.release.deviation)
        return SparseFocus(rows, rows.astype(np.float64), users, "start", ~self.known)


# Learning from a release --------------------------------------------------------------------------------------------


def learned(release: SparseReports, previous: SparseSpotlightPlan | None) -> SparseKnowledge:
    """What is known after a release: the epoch is added to its rows, weighted as `knowledge.accumulated` does."""
    if previous is None or release.targets is None:
        return SparseKnowledge.nothing(release.space.num_rows)
    old, focus = previous.knowledge, previous.focus
    if old is None or focus is None:
        raise ValueError("the previous plan carries no knowledge; it was not made by this Spotlight")
    return judged(accumulated(old, focus, release), old, focus, release)


def accumulated(old: SparseKnowledge, focus: SparseFocus, release: SparseReports) -> SparseKnowledge:
    """Sums of an outcome run over the epochs in which its number was released whatever it was, and the first one."""
    assert release.targets is not None
    S, rows, noise = release.space.num_states, release.targets.rows, release.variance
    predicted = focus.rates[rows] * release.users
    asked = np.isfinite(old.variances[rows])
    past = np.where(asked, old.variances[rows], 0.0)
    weights = np.where(asked & (noise > 0.0), predicted / np.maximum(predicted + noise, 1e-300), 1.0)
    found = model_of(old, S).counts[rows]
    clear = predicted * np.sqrt(past + weights**2 * noise)
    restart = ~asked | (clear > RESTART * (found + weights * predicted) * math.sqrt(noise))
    variances, expected = old.variances.copy(), old.expected.copy()
    variances[rows] = np.where(restart, 0.0, past) + weights**2 * noise
    expected[rows] = np.where(restart, 0.0, expected[rows]) + weights * predicted
    started = np.zeros(old.variances.size, dtype=np.bool_)
    started[rows[restart]] = True
    kept = old.outcomes.taken(~started[old.outcomes.pairs // S])
    pairs, where = np.unique(release.codes // 2, return_inverse=True)
    both = np.zeros((pairs.size, 2))
    both[where, release.codes % 2] = release.values
    place = np.searchsorted(rows, pairs // S)
    weight = weights[place]
    fresh = Outcomes(pairs, weight * both[:, 0], weight * both[:, 1], weight * predicted[place], weight**2 * noise)
    return replace(old, outcomes=merged(kept, fresh), variances=variances, expected=expected)


def merged(one: Outcomes, other: Outcomes) -> Outcomes:
    """Added up where both know an outcome; those whose sum has fallen to 0 are forgotten."""
    pairs, where = np.unique(np.concatenate([one.pairs, other.pairs]), return_inverse=True)
    sums = [
        np.bincount(where, np.concatenate([getattr(one, name), getattr(other, name)]), pairs.size).astype(np.float64)
        for name in ("unpaid", "paid", "exposures", "variances")
    ]
    outcomes = Outcomes(pairs, *sums)
    return outcomes.taken(outcomes.unpaid + outcomes.paid > 0.0)


def judged(new: SparseKnowledge, old: SparseKnowledge, focus: SparseFocus, release: SparseReports) -> SparseKnowledge:
    """Which targets came back short: less trust in predictions about them, and longer epochs."""
    assert release.targets is not None
    rows = release.targets.rows
    counts = model_of(new, release.space.num_states).counts
    short = counts[rows] < SHORT * new.expected[rows]
    trust, misses = np.minimum(1.0, RECOVERY * old.trust), old.misses.copy()
    trust[rows] = np.where(short, LOSS * old.trust[rows], 1.0)
    misses[rows] = np.where(short, misses[rows] + 1, 0)
    unknown = rows[focus.unknown[rows]]
    came = counts[unknown].sum() < SHORT * new.expected[unknown].sum()
    n, late = float(release.users), focus.mode in ("search", "refine")
    return replace(
        new,
        trust=trust,
        misses=misses,
        refine=focus.mode == "explore" and bool(came),
        late=old.late + n * late,
        searched=old.searched + n * (focus.mode == "search"),
    )


def model_of(knowledge: SparseKnowledge, num_states: int) -> SparseCells:
    """Outcomes that stand out of their noise, n_y = rate·expected reports of the row, and rewards that do."""
    R, found = knowledge.variances.size, knowledge.outcomes
    both = found.unpaid + found.paid
    outcomes = found.taken(both > STANDS_OUT * np.sqrt(2.0 * found.variances))
    row = outcomes.pairs // num_states
    scale = knowledge.expected[row] / np.maximum(outcomes.exposures, 1e-300)
    numbers, paid = scale * (outcomes.unpaid + outcomes.paid), scale * outcomes.paid
    spreads = 2.0 * scale**2 * outcomes.variances

    def per_row(values: Floats) -> Floats:
        return np.bincount(row, values, R).astype(np.float64)

    counts, total, noise = per_row(numbers), per_row(paid), per_row(0.5 * spreads)
    safe = np.maximum(counts, 1e-300)
    means = np.where(total > PAYS * np.sqrt(noise), np.clip(total / safe, 0.0, 1.0), 0.0)
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=R))])
    variances = np.where(counts > 0.0, noise, 0.0) / np.maximum(counts, 1e-9) ** 2
    return SparseCells(starts, outcomes.pairs % num_states, numbers / safe[row], spreads, means, variances, counts)
