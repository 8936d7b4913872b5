"""Spotlight: every user reports at most one step, where the server still needs to know. Theory: docs/spotlight.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from discreet.kernels import spotlight as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Plan, tie_order
from discreet.problem import Mask, PublicStructure
from discreet.releases.reports import Alphabet, PrivateReports, Targets

#: Weight of a successor that may hide below the noise: min(1, HIDING·sd/N).
HIDING = 0.25
#: A sub-cell counts when it exceeds ln(n_sub/DOUBT)·sd/√2: noise alone does so in about DOUBT/2 of all cells.
DOUBT = 0.1
#: Staged: where the other steps together say that an outcome of (s,a) occurs, EASED·sd is enough at this one.
EASED = 1.0
#: A cell is known from N ≥ max(LEAST, (ln(n_sub/DOUBT)/√2 + SURPLUS)·sd·√(survivors + 1)) on.
SURPLUS, LEAST = 0.3, 5.0
#: Explore when this share of the users would meet an unknown cell; otherwise refine what is known.
EXPLORE_MASS = 0.1
#: Cells with fewer effective reports than a level are refined; it grows until every user meets one of them.
LEVEL_START, LEVEL_GROWTH = 20.0, 1.5
#: Targets that would collect less than this many times 2·sd are not worth their noise.
DROP = 0.25
#: A cell starts again at its newest epoch when that alone has RESTART times the signal-to-noise ratio of all.
RESTART = 1.5
#: A target is short when less than SHORT of its predicted reports came back, noise allowed for.
SHORT = 0.3
#: Trust after a short epoch, its recovery per epoch, and what a target needs.
LOSS, RECOVERY, TRUSTED = 0.4, 1.15, 0.5
#: Epochs are no shorter than for cells with a dozen sub-cells, however few a cell has.
PLAIN = 4.4
#: The start, where it is not public, is asked for once and thoroughly.
START_FACTOR = 4.0


class Sizing(NamedTuple):
    """How long an epoch is: its most visited target shall collect n·rate = signal·(ln(n_sub/DOUBT)/√2 + 1)·sd(n)
    reports, so that a successor of probability 1/signal stands out of the noise by a standard deviation."""

    explore: float = 3.6
    refine: float = 4.6
    staged: float = 2 / 3  # factor on both where steps have their own cells: they share what outcomes occur
    fewest: float = 5.0  # reports of the most visited target, whatever the noise
    first: int = 200  # an epoch may have that many users, or the share `cap` of all so far
    cap: float = 0.3
    floor: float = 0.02  # and has at least this share of all so far


#: Noise does not grow with the epoch, so short ones cost nothing; at home it grows like √n, and they do.
CURATOR = Sizing()
AT_HOME = Sizing(explore=1.8, refine=1.8, fewest=40.0, first=1000, floor=0.05)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """All that was learned from releases so far: a function of them, hence free of privacy cost."""

    sums: Floats  # (C, 2S): weighted noisy reports per sub-cell
    variances: Floats  # (C,): of the noise on one sub-cell; infinite where nothing was ever asked
    trust: Floats  # (C,): in predictions about a cell
    refine: bool = False  # the last exploring epoch came back nearly empty

    @classmethod
    def nothing(cls, alphabet: Alphabet) -> Knowledge:
        C = alphabet.num_rows
        return cls(np.zeros(alphabet.admitted.shape), np.full(C, np.inf), np.ones(C))


class Estimate(NamedTuple):
    """A model of the known cells."""

    rows: Floats  # (C, S)
    means: Floats  # (C,)
    counts: Floats  # (C,)
    known: Mask  # (C,)


class Focus(NamedTuple):
    """What the next epoch asks for."""

    wanted: Mask  # (C,)
    rates: Floats  # (C,): predicted reports per user
    users: int
    exploring: bool


@dataclass(frozen=True, eq=False)
class SpotlightPlan(Plan):
    """A plan, what is known, and what the next epoch is expected to bring."""

    knowledge: Knowledge | None = None
    focus: Focus | None = None
    known: Mask | None = None  # (C,)


@dataclass(frozen=True, eq=False)
class Spotlight:
    """Optimistic value iteration on targeted reports.

    Q_h = min{H−h, r̃ + P̃V + c·(√(2(Var_P̃ V + r̃(1−r̃))·ι/N) + span(V)·ι/(3N)) + min(1, ¼·sd/N)·(max V − P̃V)},
    min{H−h, 1 + max V} where (s,a) is unknown;  ι = ln(S·A·H·log₂K/0.1).

    Epochs repeat: plan; announce targets; users play and report their first visit to a target; release. Unknown
    cells are targeted while the plan meets them, otherwise the least known ones on its way. Everything here is a
    function of releases and declared facts.

    Source: ours, docs/spotlight.md.  Cost: O(H·S²·A + S·cells) per epoch.
    """

    num_episodes: int
    initial: Floats | None = None  # None: not public, learned like a step before the first
    confidence_scale: float = 0.1
    sizing: Sizing = CURATOR
    tie_seed: int = 0

    @classmethod
    def configured(
        cls,
        num_episodes: int,
        structure: PublicStructure,
        local: bool = False,
        confidence_scale: float | None = None,
        tie_seed: int = 0,
    ) -> Spotlight:
        """The defaults for a trusted curator, or for messages randomised at home (longer epochs)."""
        scale = 0.1 if confidence_scale is None else confidence_scale
        return cls(num_episodes, structure.initial, scale, AT_HOME if local else CURATOR, tie_seed)

    def plan(self, release: PrivateReports, previous: Plan | None) -> SpotlightPlan:
        alphabet = release.alphabet
        knowledge = learned(release, previous if isinstance(previous, SpotlightPlan) else None)
        cells = estimated(knowledge, alphabet, 0, alphabet.num_cells)
        quality, value, actions = self._values(knowledge, cells, alphabet)
        policy = np.zeros(quality.shape)
        np.put_along_axis(policy, actions[..., None], 1.0, axis=2)
        initial, known = self.initial, cells.known
        if alphabet.has_start:
            start = estimated(knowledge, alphabet, alphabet.num_cells, alphabet.num_rows)
            initial, known = start.rows[0] if start.known[0] else None, np.append(cells.known, start.known)
        focus = self._start(release) if initial is None else self._focus(release, knowledge, cells, actions, initial)
        return SpotlightPlan(
            policy,
            value,
            quality,
            release.num_episodes,
            users=focus.users,
            announcement=Targets(focus.wanted),
            actions=actions,
            knowledge=knowledge,
            focus=focus,
            known=known,
        )

    def _values(self, knowledge: Knowledge, cells: Estimate, alphabet: Alphabet) -> tuple[Floats, Floats, Ints]:
        shape = H, S, A = alphabet.horizon, alphabet.num_states, alphabet.num_actions
        C = alphabet.num_cells
        iota = math.log(S * A * H * max(math.log2(self.num_episodes), 1.0) / 0.1)
        hidden = np.zeros(C)
        sd = np.sqrt(knowledge.variances[:C][cells.known])
        hidden[cells.known] = np.minimum(1.0, HIDING * sd / cells.counts[cells.known])
        possible: Mask = np.empty((0, 0), dtype=np.bool_)
        if alphabet.restricted:
            possible = np.asarray(alphabet.admitted[:C].reshape(C, S, 2).any(axis=2))
        # one order of actions per state, the same at all steps: pooled reports then gather on one action at a time
        order = np.ascontiguousarray(np.broadcast_to(tie_order((1, S, A), self.tie_seed), shape))
        quality, value, actions = np.empty(shape), np.empty((H + 1, S)), np.empty((H, S), dtype=np.int64)
        kernel.optimistic_values(
            *cells, hidden, possible, self.confidence_scale, iota, order, quality, value, actions
        )
        return quality, value, actions

    def _start(self, release: PrivateReports) -> Focus:
        """Ask everybody where she started, and nothing else."""
        wanted = np.zeros(release.alphabet.num_rows, dtype=np.bool_)
        wanted[-1] = True
        signal = START_FACTOR * self.sizing.explore
        S = release.alphabet.num_states
        users = epoch_length(release, 1.0, S, signal * stand_out(S), self.sizing)
        return Focus(wanted, wanted.astype(np.float64), users, False)

    def _focus(
        self, release: PrivateReports, knowledge: Knowledge, cells: Estimate, actions: Ints, initial: Floats
    ) -> Focus:
        """Targets and length of the next epoch, from a forward pass of the plan in the estimated model."""
        alphabet, sizing = release.alphabet, self.sizing
        C, A = alphabet.num_cells, alphabet.num_actions

        def predicted(wanted: Mask, reports: int) -> Floats:
            rates = np.empty(C)
            kernel.predicted_reports(cells.rows, cells.known, actions, A, initial, wanted, reports, rates)
            return rates

        visits = predicted(np.zeros(C, dtype=np.bool_), 0)
        reachable = visits > 0.0
        trusted = knowledge.trust[:C] >= TRUSTED
        unknown = ~cells.known & trusted & reachable
        exploring = not knowledge.refine and bool(visits[unknown].sum() >= EXPLORE_MASS)
        wanted = unknown
        if not exploring:
            wanted = unknown | least_known(knowledge, cells, visits, cells.known & trusted & reachable)
        if not wanted.any():
            wanted = reachable
        rates = predicted(wanted, release.reports)
        items = int(alphabet.sizes[:C][wanted].sum())
        signal = (sizing.explore if exploring else sizing.refine) * (sizing.staged if alphabet.stages > 1 else 1.0)
        most = int(rates.argmax())
        users = epoch_length(release, rates[most], items, signal * stand_out(alphabet.sizes[most]), sizing)
        worthwhile = wanted & (rates * users >= 2.0 * DROP * math.sqrt(release.noise.variance(users, items)))
        if worthwhile.any() and not (worthwhile == wanted).all():
            wanted = worthwhile
            rates = predicted(wanted, release.reports)
        if alphabet.has_start:
            wanted, rates = np.append(wanted, False), np.append(rates, 0.0)
        return Focus(wanted, rates, users, exploring)


def learned(release: PrivateReports, previous: SpotlightPlan | None) -> Knowledge:
    """What is known after a release: add the epoch to its cells, weighted, and compare it with what was predicted.

    An epoch with n predicted reports on a cell and noise variance σ² has weight n/(n + σ²): nearly 1 where it mostly
    brings signal, proportional to n where it mostly brings noise. n is public, so weights do not bias the sums.
    """
    if previous is None or release.targets is None:
        return Knowledge.nothing(release.alphabet)
    old, focus = previous.knowledge, previous.focus
    if old is None or focus is None or previous.known is None:
        raise ValueError("the previous plan carries no knowledge; it was not made by Spotlight")
    rows, new = release.targets.rows, release.histogram
    noise = release.variance
    totals = new.sum(axis=1)
    predicted = focus.rates[rows] * release.users
    asked = np.isfinite(old.variances[rows])
    past = np.where(asked, old.variances[rows], 0.0)
    weights = np.where(asked & (noise > 0.0), predicted / np.maximum(predicted + noise, 1e-300), 1.0)
    both = old.sums[rows].sum(axis=1) + weights * totals
    restart = ~asked | (totals * np.sqrt(past + weights**2 * noise) > RESTART * both * math.sqrt(noise))
    sums, variances = old.sums.copy(), old.variances.copy()
    sums[rows] = np.where(restart[:, None], 0.0, sums[rows]) + weights[:, None] * new
    variances[rows] = np.where(restart, 0.0, past) + weights**2 * noise
    short = totals < SHORT * predicted - 0.5 * np.sqrt(noise * release.alphabet.sizes[rows])
    trust = np.minimum(1.0, RECOVERY * old.trust)
    trust[rows] = np.where(short, LOSS * old.trust[rows], 1.0)
    unknown = ~previous.known[rows]
    empty = focus.exploring and bool(totals[unknown].sum() < SHORT * predicted[unknown].sum())
    return Knowledge(sums, variances, trust, empty)


def estimated(knowledge: Knowledge, alphabet: Alphabet, first: int, last: int) -> Estimate:
    """The model of cells first..last−1: sub-cells that may be noise are zeroed, shares of the others are P̃ and r̃."""
    size = last - first
    rows, means, counts = np.empty((size, alphabet.num_states)), np.empty(size), np.empty(size)
    known = np.empty(size, dtype=np.bool_)
    kernel.estimate(
        knowledge.sums[first:last],
        knowledge.variances[first:last],
        alphabet.admitted[first:last],
        alphabet.sizes[first:last],
        DOUBT,
        SURPLUS,
        LEAST,
        shared_support(knowledge, alphabet)[first:last],
        EASED,
        rows,
        means,
        counts,
        known,
    )
    return Estimate(rows, means, counts, known)


def shared_support(knowledge: Knowledge, alphabet: Alphabet) -> Mask:
    """Which outcomes (s', bit) of (h,s,a) stand out of the noise in the sum over all other steps.

    Only the threshold of a sub-cell depends on it, never a count: where steps differ, outcomes that do occur still
    have to show at their own step, and those that do not are kept a little too often.
    """
    G, C = alphabet.stages, alphabet.num_cells
    supported = np.zeros(alphabet.admitted.shape, dtype=np.bool_)
    if G < 3:  # the last step has no successors to share, so two others are needed
        return supported
    steps = slice(0, C - C // G)
    shape = (G - 1, C // G)
    sums = knowledge.sums[steps].reshape(*shape, -1)
    variances = np.where(np.isfinite(knowledge.variances[steps]), knowledge.variances[steps], 0.0).reshape(shape)
    others, noise = sums.sum(axis=0) - sums, variances.sum(axis=0) - variances
    reach = np.log(alphabet.sizes[steps].reshape(shape) / DOUBT) / math.sqrt(2.0)
    clear = others > (reach * np.sqrt(np.maximum(noise, 0.0)))[..., None]
    supported[steps] = (clear & (noise > 0.0)[..., None]).reshape(C - C // G, -1)
    return supported


def least_known(knowledge: Knowledge, cells: Estimate, visits: Floats, candidates: Mask) -> Mask:
    """The candidates with fewest effective reports N²/(N + sd²), as many as users meet once on average."""
    C = cells.counts.size
    N = cells.counts[candidates]
    effective = np.full(C, np.inf)
    effective[candidates] = N * N / (N + knowledge.variances[:C][candidates])
    level = LEVEL_START
    chosen = effective < level
    while visits[chosen].sum() < 1.0 and (chosen != candidates).any():
        level *= LEVEL_GROWTH
        chosen = effective < level
    return chosen


def stand_out(size: int) -> float:
    """How many standard deviations of noise a sub-cell of so many must exceed, and one more; at least PLAIN."""
    return max(PLAIN, math.log(size / DOUBT) / math.sqrt(2.0) + 1.0)


def epoch_length(release: PrivateReports, rate: float, items: int, signal: float, sizing: Sizing) -> int:
    """Users until the most visited target, with `rate` reports per user, has collected signal·sd(n) reports."""
    k, rate = release.num_episodes, max(rate, 1e-9)
    n = 1.0
    for _ in range(40):  # fixed point: sd is constant, or grows like √n, and then the error is halved in every round
        n = signal * math.sqrt(release.noise.variance(max(1, math.ceil(n)), items)) / rate
    n = min(max(n, sizing.fewest / rate), max(sizing.first, sizing.cap * k))
    return max(1, math.ceil(max(n, sizing.floor * k)))
