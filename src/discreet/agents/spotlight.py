"""Spotlight: every user reports at most one step, where the server still needs to know. Theory: docs/spotlight.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from discreet.agents import classes
from discreet.agents.knowledge import (
    TRUSTED,
    Focus,
    Knowledge,
    Mode,
    foretold,
    learned,
    model_of,
    narrowness,
    start_of,
    with_borrowed,
)
from discreet.kernels import spotlight as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Plan, tie_order
from discreet.problem import Mask, PublicStructure
from discreet.releases.reports import PrivateReports, ReportNoise, Targets

#: Exploring epochs are shorter by these shares: as far as cells have one outcome each (`narrowness`), where a step is
#: alike, for a difference shows in few reports, and as far as the row prior foretells a cell (`foretold`).
SHORTER, SHORTER_ALIKE, SHORTER_TOLD = 0.35, 0.25, 0.5
#: Weight of a standard deviation of Q in the cautious plan, and in the choice of actions while cells are unknown.
CAUTION, OPTIMISM = 0.1, 0.5
#: Later that weight is the largest z, of these, at which a test of the action pays (`worth_testing`).
STEPS = np.linspace(0.01, 4.0, 400)
#: Explore when this share of the users would meet an unknown cell.
EXPLORE_MASS = 0.1
#: Weight of a successor that may hide below the noise, while searching: min(1, HIDING·sd/N).
HIDING = 0.25
#: The same in the choice of an exploring action: a cell that was misread is tried again.
RETRY = 0.25
#: Search: at most this share of late users (times what may be won), and this share of what was won so far.
SEARCH_USERS, SEARCH_LOSS = 0.5, 0.05
#: Targets of a refining epoch have this share of the largest worth; those with fewer sd of reports are dropped.
WORTHWHILE, DROP = 0.5, 2.0
#: A report is worth what exploring may win, between these shares of the horizon, and less by SOON with every step
#: (models err more the further they look); a plan on which reports cost less brings at least the share FREQUENT of
#: the exploring plan's.
LEAST_PRICE, PRICE, SOON, FREQUENT = 0.02, 0.3, 0.99, 0.5
#: Once all states were seen: deviations that add up along a path that may be better, and what it may cost (as above).
RIVAL, RIVAL_LOSS = 1.5, 0.04
#: The start, where it is not public, is asked for once: so many times √S·sd reports.
START_SIGNAL = 12.0
#: From so many users on, epochs have a growing share of them.
MANY = 20_000


class Sizing(NamedTuple):
    """How long an epoch is: until its first target has collected so many standard deviations of reports."""

    explore: float = 12.0
    refine: float = 10.0  # or as many reports as it has already, whichever is more
    staged: float = 0.85  # factor on both where steps have their own cells: they share what outcomes occur
    fewest: float = 5.0  # reports of the first target, whatever the noise
    first: int = 1000  # an epoch may have that many users, or the share `cap` of all so far
    cap: float = 0.3
    floor: float = 0.005  # and has at least this share of all so far,
    growth: float = 1 / 3  # which grows with the users beyond MANY by this power: planning takes time


#: Noise that does not grow with the epoch: short ones cost nothing but time. The more draws it is the sum of, the
#: lighter its tails, and the fewer deviations of it say as much: 7 + 5/draws and 6 + 4/draws.
CURATOR = Sizing()
NORMAL = Sizing(explore=7.0, refine=6.0)
#: At home it grows like √n, so that n grows with the square of the deviations.
AT_HOME = Sizing(explore=5.0, refine=5.0, fewest=40.0, floor=0.05, growth=0.0)


class Exploring(NamedTuple):
    """A deterministic plan to learn from."""

    actions: Ints  # (H, S)
    values: Floats  # (H+1, S)
    worth: Floats  # (H, S): of a report


@dataclass(frozen=True, eq=False, repr=False)
class SpotlightPlan(Plan):
    """The exploring plan; what is known; and the cautious plan for users who have reported."""

    knowledge: Knowledge | None = None
    focus: Focus | None = None
    cautious: Floats | None = None  # (H, S, A)

    @property
    def memory(self) -> tuple[Knowledge, Focus]:
        if self.knowledge is None or self.focus is None:
            raise ValueError("the previous plan carries no knowledge; it was not made by Spotlight")
        return self.knowledge, self.focus

    def told_by(self, announced: Plan) -> SpotlightPlan:
        """What is known now, and what the epoch was expected to bring when it was announced."""
        return replace(self, focus=announced.focus) if isinstance(announced, SpotlightPlan) else self


@dataclass(frozen=True, eq=False)
class Spotlight:
    """Value iteration on targeted reports, with one plan until the report and another one after it.

    Cautious:   Q = r + PV − u/10 on usable cells.
    Exploring:  Q = r + PV on known cells, an optimistic value elsewhere; the action maximises Q + u/2.
    Announced:  the targets of the exploring plan, where a report costs least (`_bought`).
    u is the standard deviation of r + PV by the posterior of the reports and by sampling.

    Epochs repeat: read; plan; announce targets and both plans; users explore until their first visit to a target,
    which they report, and play the cautious plan from then on; release. Unknown cells are targeted while the plan
    meets them, then those that matter most. Everything here is a function of releases and declared facts.

    Source: ours, docs/spotlight.md.  Cost: O(H·S²·A + S·cells) per epoch.
    """

    num_episodes: int
    initial: Floats | None = None  # None: not public, learned like a step before the first
    confidence_scale: float = OPTIMISM
    sizing: Sizing | None = None  # None: by the law of the noise
    tie_seed: int = 0

    @classmethod
    def configured(
        cls,
        num_episodes: int,
        structure: PublicStructure,
        confidence_scale: float | None = None,
        tie_seed: int = 0,
    ) -> Spotlight:
        """The defaults; how long epochs are follows from the noise of the releases."""
        scale = OPTIMISM if confidence_scale is None else confidence_scale
        return cls(num_episodes, structure.initial, scale, tie_seed=tie_seed)

    def plan(self, release: PrivateReports, previous: Plan | None) -> SpotlightPlan:
        alphabet = release.alphabet
        knowledge = learned(release, previous.memory if isinstance(previous, SpotlightPlan) else None)
        initial = self.initial
        if alphabet.has_start:
            initial = start_of(knowledge, alphabet)
        return _Planner(self, release, knowledge, initial).plan()


class _Planner:
    """One planning step: a pure function, cut into pieces that share the model."""

    def __init__(
        self, agent: Spotlight, release: PrivateReports, knowledge: Knowledge, initial: Floats | None
    ) -> None:
        alphabet = release.alphabet
        self.agent, self.release, self.knowledge, self.alphabet = agent, release, knowledge, alphabet
        self.sizing = agent.sizing or sizing_for(release.noise)
        self.shape = _, S, A = alphabet.shape
        self.start = initial
        self.initial = np.full(S, 1.0 / S) if initial is None else initial
        # one order of actions per state, the same at all steps: pooled reports then gather on one action at a time
        self.order = np.ascontiguousarray(np.broadcast_to(tie_order((1, S, A), agent.tie_seed), self.shape))
        self.tested, self.prospect = model_of(knowledge, alphabet)
        known = self.tested.usable
        self.usable = with_borrowed(self.tested, knowledge, alphabet)
        self.seen = ((self.initial > 0.0) | (known @ self.tested.rows > 0.0)).astype(np.float64)
        self.left = max(agent.num_episodes - release.num_episodes, 1)
        self.trusted = knowledge.trust[: alphabet.num_cells] >= TRUSTED

    def plan(self) -> SpotlightPlan:
        H, S, A = self.shape
        cautious, safe = self._cautious()
        even = np.empty((H + 1, S))
        kernel.uniform_values(self.usable.rows, self.usable.means, self.usable.usable, *self._prior(), A, even)
        gain = max(float(self.initial @ (safe[0] - even[0])), 0.0)
        exploring, focus = self._focus(cautious, safe, even, gain)
        if focus.users >= self.left and focus.mode != "start":
            return self._last(cautious, safe, focus)
        policy = np.zeros(self.shape)
        np.put_along_axis(policy, exploring.actions[..., None], 1.0, axis=2)
        release = self.release
        return SpotlightPlan(
            policy,
            exploring.values,
            self._quality(exploring),
            release.num_episodes,
            users=focus.users,
            announcement=Targets(focus.wanted, cautious, release.reports, self.alphabet.stages, focus.classes),
            actions=exploring.actions,
            knowledge=self.knowledge,
            focus=focus,
            cautious=cautious,
        )

    def _last(self, cautious: Floats, safe: Floats, focus: Focus) -> SpotlightPlan:
        """Nobody comes after these users, so that they exploit: the plan that is handed out in the end."""
        release = self.release
        sure = bool((cautious.max(axis=2) == 1.0).all())
        return SpotlightPlan(
            cautious,
            safe,
            cautious * safe[:-1, :, None],
            release.num_episodes,
            users=self.left,
            announcement=Targets(focus.wanted, None, release.reports, self.alphabet.stages),
            actions=cautious.argmax(axis=2) if sure else None,
            knowledge=self.knowledge,
            focus=focus,
            cautious=cautious,
        )

    def _prior(self) -> tuple[Floats, float, float]:
        return self.prospect.rows, self.prospect.mean, self.prospect.belief

    def _quality(self, exploring: Exploring) -> Floats:
        """The value of the plan's own actions, nothing elsewhere."""
        quality = np.zeros(self.shape)
        np.put_along_axis(quality, exploring.actions[..., None], exploring.values[:-1, :, None], axis=2)
        return quality

    def _cautious(
        self, actions: Ints | None = None, wanted: Mask | None = None, afterwards: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """(policy, values) of the cautious plan, or of fixed actions."""
        H, S, _ = self.shape
        C = self.alphabet.num_cells
        policy, values = np.empty(self.shape), np.empty((H + 1, S))
        kernel.cautious_values(
            *self.usable,
            self.seen,
            CAUTION,
            *self._prior(),
            self.order,
            np.empty((0, 0), dtype=np.int64) if actions is None else actions,
            np.zeros(C, dtype=np.bool_) if wanted is None else wanted,
            np.zeros((H + 1, S)) if afterwards is None else afterwards,
            policy,
            values,
        )
        return policy, values

    def _optimism(self, cautious: Floats) -> Floats:
        """(C,): how many standard deviations of Q are worth a test, for the users who are still to come."""
        C, A = self.alphabet.num_cells, self.alphabet.num_actions
        mass = np.empty(self.shape[:2])
        kernel.followed(self.usable.rows, self.usable.usable, self.prospect.rows, cautious, self.initial, mass)
        visits = mass.sum(axis=0) if self.alphabet.stages == 1 else mass.reshape(-1)
        sd = np.sqrt(np.where(self.tested.usable, self.knowledge.noise[:C], 1.0))
        reports = np.maximum(self.sizing.refine * sd, self.tested.counts)
        scale = self.agent.confidence_scale / OPTIMISM
        return scale * np.maximum(OPTIMISM, worth_testing(reports, np.repeat(visits, A) * self.left))

    def _exploring(self, searching: bool, optimism: Floats | None = None, along: float = 0.0) -> Exploring:
        """The exploring plan; while it searches, or looks for rivals, the prior has no say about untested cells.

        Where steps have cells of their own most are untested, and other steps say enough about them.
        """
        H, S, _ = self.shape
        whatever = along > 0.0 and self.alphabet.stages == 1
        C = self.alphabet.num_cells
        hidden, known = np.zeros(C), self.tested.usable
        sd = np.sqrt(self.knowledge.noise[:C][known])
        weight = HIDING if searching else RETRY
        hidden[known] = np.minimum(1.0, weight * sd / self.tested.counts[known])
        plan = Exploring(
            np.empty((H, S), dtype=np.int64),
            np.empty((H + 1, S)),
            np.empty((H, S)),
        )
        kernel.exploring_values(
            *self.tested,
            self.seen,
            np.full(C, self.agent.confidence_scale) if optimism is None else optimism,
            hidden,
            searching,
            along,
            self.prospect.rows,
            self.prospect.best_means,
            0.0 if searching or whatever else self.prospect.belief,
            self.alphabet.restricted,
            self.order,
            *plan,
        )
        return plan

    def _bought(self, plan: Exploring, wanted: Mask, safe: Floats) -> Exploring:
        """The same targets for less: the plan that earns most if a report is paid for with what it may win.

        Users earn what they can on the way, and come to their report when it costs least: often in their last steps.
        """
        H, S, _ = self.shape
        promise = float(self.initial @ (plan.values[0] - safe[0]))
        price = min(max(promise, LEAST_PRICE * H), PRICE * H)
        actions = plan.actions.copy()
        kernel.buying_values(
            *self.usable,
            self.seen,
            CAUTION,
            self.prospect.rows,
            self.prospect.mean,
            self.order,
            wanted,
            np.asarray(price * SOON ** np.arange(H), dtype=np.float64),
            safe,
            actions,
            np.empty((H + 1, S)),
        )
        cheap = plan._replace(actions=actions)
        enough = self._rates(cheap, wanted).max() >= FREQUENT * self._rates(plan, wanted).max()
        return cheap if enough else plan

    def _rates(self, plan: Exploring, wanted: Mask) -> Floats:
        """(C,): predicted reports per user."""
        rates = np.empty(wanted.size)
        kernel.predicted_reports(
            self.tested.rows,
            self.tested.usable,
            plan.actions,
            self.alphabet.num_actions,
            self.initial,
            wanted,
            self.release.reports,
            rates,
        )
        return rates

    def _visits(self, actions: Ints) -> tuple[Floats, Ints]:
        """((H, S) chances to be there, (H, S) cells)."""
        H, S, A = self.shape
        mass = np.empty((H, S))
        kernel.visits(self.tested.rows, self.tested.usable, actions, A, self.initial, mass)
        steps = np.minimum(np.arange(H), self.alphabet.stages - 1)
        return mass, (steps[:, None] * S + np.arange(S)) * A + actions

    def _focus(self, cautious: Floats, safe: Floats, even: Floats, gain: float) -> tuple[Exploring, Focus]:
        """Targets and length of the next epoch, from a forward pass of the plan in the model."""
        C = self.alphabet.num_cells
        if self.start is None:
            return self._exploring(False), self._ask_for_start()
        unknown = ~self.tested.usable & self.trusted
        if unknown.any() and not self.knowledge.refine:
            plan = self._exploring(False)
            mass, cells = self._visits(plan.actions)
            met = np.bincount(cells.reshape(-1), mass.reshape(-1), C)
            unknown &= met > 0.0
            if met[unknown].sum() >= EXPLORE_MASS:
                plan = self._bought(plan, unknown, safe)
                focus = self._sized(plan, unknown, "explore", gain)
                if 2 * focus.users <= self.left:  # as many must come after them, or it never pays
                    return plan, focus._replace(classes=self._classes(safe))
        searching = self._may_search(cautious, float(self.initial @ safe[0]), float(self.initial @ even[0]), gain)
        mode: Mode = "refine"
        if searching is not None:
            plan, mode = searching, "search"
        else:
            plan = self._exploring(False, self._optimism(cautious))
        mass, cells = self._visits(plan.actions)
        worth = np.bincount(cells.reshape(-1), (mass * plan.worth).reshape(-1), C)
        worth[~self.trusted] = 0.0
        wanted = (worth > 0.0) & (worth >= WORTHWHILE * worth.max())
        if not wanted.any():
            wanted = np.bincount(cells.reshape(-1), mass.reshape(-1), C) > 0.0
        plan = self._bought(plan, wanted, safe)
        focus = self._sized(plan, wanted, mode, gain)
        if mode == "search":
            values = self._cautious(plan.actions, focus.wanted[:C], safe)[1]
            focus = focus._replace(loss=max(float(self.initial @ (safe[0] - values[0])), 0.0))
        return plan, focus

    def _classes(self, safe: Floats) -> Ints | None:
        """Classes of successors by value, where most cells have many outcomes; None: each is asked for by itself."""
        knowledge, C = self.knowledge, self.alphabet.num_cells
        asks = self.release.takes_classes and self.alphabet.pooled
        if not (asks and classes.wide(knowledge.plain, knowledge.variances[:C])):
            return None
        values = safe[:-1] - safe[:-1].mean(axis=1, keepdims=True)
        return classes.by_value(values.mean(axis=0))

    def _may_search(self, cautious: Floats, safe: float, even: float, gain: float) -> Exploring | None:
        """A plan to look for states that nobody has seen, else for a better path, while little was lost by doing so.

        Doubts about the cells of a path add up: one step away from the cautious plan alone may never look worthwhile.
        """
        done, share = self.knowledge, SEARCH_LOSS
        if self.seen.all():
            plan, share = self._exploring(False, np.zeros(self.alphabet.num_cells), RIVAL), RIVAL_LOSS
            met = self._visits(plan.actions)[0] > 0.0
            away = np.take_along_axis(cautious, plan.actions[..., None], axis=2)[..., 0] == 0.0
            if not done.late or not (met & away).any():
                return None
        else:
            plan = self._exploring(True)
        high = float(self.initial @ plan.values[0])
        promise = max(high - safe, 0.0) / max(high - even, 1e-9)
        stake = max(1.0, (high - safe) / (4.0 * max(gain, 1e-9)))
        affordable = done.searched <= SEARCH_USERS * promise * done.late and done.lost <= share * stake * done.won
        return plan if affordable else None

    def _ask_for_start(self) -> Focus:
        """Ask everybody where she started, and nothing else."""
        R, S = self.alphabet.num_rows, self.alphabet.num_states
        wanted = np.zeros(R, dtype=np.bool_)
        wanted[-1] = True
        signal = START_SIGNAL * math.sqrt(S)
        users = epoch_length(self.release, np.ones(1), np.zeros(1), S, signal, self.sizing)
        return Focus(wanted, wanted.astype(np.float64), users, "start", self._known_rows())

    def _known_rows(self) -> Mask:
        known = self.tested.usable
        return np.append(known, self.start is not None) if self.alphabet.has_start else known

    def _sized(self, plan: Exploring, wanted: Mask, mode: Mode, gain: float) -> Focus:
        release, alphabet, sizing = self.release, self.alphabet, self.sizing
        C = alphabet.num_cells
        rates = self._rates(plan, wanted)
        items = int(alphabet.sizes[:C][wanted].sum())
        exploring = mode == "explore"
        signal = (sizing.explore if exploring else sizing.refine) * (sizing.staged if alphabet.stages > 1 else 1.0)
        if exploring:
            signal *= 1.0 - SHORTER * narrowness(self.knowledge.reading)
        needed = np.full(C, signal)
        if exploring:
            needed *= 1.0 - SHORTER_TOLD * foretold(self.knowledge.reading, self.knowledge.draws)
        if exploring and self.knowledge.shared is not None:
            needed[self.knowledge.shared.agreed] *= 1.0 - SHORTER_ALIKE
        at_least = np.zeros(C) if exploring else self.tested.counts
        asked = wanted & (rates > 0.0)
        users = epoch_length(release, rates[asked], at_least[asked], items, needed[asked], sizing)
        worthwhile = asked & (rates * users >= DROP * math.sqrt(release.noise.variance(users, items)))
        if not (worthwhile == wanted).all():
            wanted = worthwhile if worthwhile.any() else asked
            rates = self._rates(plan, wanted)
        if alphabet.has_start:
            wanted, rates = np.append(wanted, False), np.append(rates, 0.0)
        return Focus(wanted, rates, users, mode, self._known_rows(), gain)


# How much is asked for --------------------------------------------------------------------------------------------


def worth_testing(reports: Floats, visits: Floats) -> Floats:
    """The largest z at which a test pays: visits·u·ψ(z) ≥ reports·z·u, ψ(z) = φ(z) − z·(1 − Φ(z)); at most 4.

    An action whose Q is z standard deviations u below the best one gains u·ψ(z) per later visit on average, once it
    is known, and costs z·u per report.
    """
    return np.asarray(np.interp(np.log(np.maximum(visits, 1e-9) / reports), -np.log(_GAINS / STEPS), STEPS, left=0.0))


_GAINS = np.array(
    [math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * 0.5 * math.erfc(z / math.sqrt(2)) for z in STEPS]
)


def sizing_for(noise: ReportNoise) -> Sizing:
    """Between those of one Laplace draw and of normal noise; or that for noise that grows with the people."""
    if noise.variance(200, 1) > 1.5 * noise.variance(100, 1):
        return AT_HOME
    share = 1.0 / noise.draws
    return CURATOR._replace(
        explore=NORMAL.explore + share * (CURATOR.explore - NORMAL.explore),
        refine=NORMAL.refine + share * (CURATOR.refine - NORMAL.refine),
    )


def epoch_length(
    release: PrivateReports, rates: Floats, at_least: Floats, items: int, signal: Floats | float, sizing: Sizing
) -> int:
    """Users until the first target has collected max(signal·sd(n), `at_least`) reports, at `rates` per user."""
    k = release.num_episodes
    if not rates.size:
        rates, at_least, signal = np.full(1, 1e-9), np.zeros(1), 0.0
    n = 1.0
    for _ in range(40):  # fixed point: sd is constant, or grows like √n, and then the error is halved in every round
        before, sd = n, math.sqrt(release.noise.variance(max(1, math.ceil(n)), items))
        n = float((np.maximum(at_least, np.maximum(signal * sd, sizing.fewest)) / np.maximum(rates, 1e-9)).min())
        n = min(n, max(sizing.first, sizing.cap * k))
        if n == before:
            break
    return max(1, math.ceil(max(n, sizing.floor * k * math.pow(max(1.0, k / MANY), sizing.growth))))
