"""The learner for logs with declared columns: a tree of what people do, a histogram of steps, and a private choice.

The tree says what people do where ("mode": everybody does the commonest thing); the histogram, on the public grid and
on coarser ones, is planned in ("one-hot"); the range of returns and a private choice among {mode, each reading of the
histogram, as now} settle which it is.
With few users more goes into the tree. Each part is a ledger line; everything else is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from discreet.agents.one_hot import OneHotVI
from discreet.agents.practice import AS_NOW, Returns, commonest, cuts, merge_states, returns, shares
from discreet.kernels.gains import stepwise_gains
from discreet.mdp import Floats, Ints
from discreet.offline.declaration import Column, Declaration, Grid
from discreet.people.counting import StepCounts
from discreet.people.counts import CountSpec
from discreet.people.stays import ENDED, ON, Stays, StoredStays
from discreet.planning import possible_values
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Mechanism, Neighbours, guarantee_of, unit_text
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import assumptions
from discreet.privacy.trust.behaviour import BehaviourTree
from discreet.privacy.trust.gains import GainChoice, ReturnHistogram
from discreet.privacy.trust.one_hot import OneHot
from discreet.problem import Mask
from discreet.releases.histograms import PrivateHistogram
from discreet.releases.items import Items
from discreet.releases.trees import Bins, PrivateTree, alone

#: How the budget is divided, from how many users × ε on. With few of them the histogram is not to be trusted: alone
#: it was worse than doing nothing on four problems of eight with 1000 users and ε = 1. With very few it is not made.
SHARES: Mapping[float, Mapping[str, float]] = {
    5_000.0: {"behaviour": 0.17, "steps": 0.65, "returns": 0.03, "choice": 0.15},
    2_000.0: {"behaviour": 0.4, "steps": 0.35, "returns": 0.05, "choice": 0.2},
    0.0: {"behaviour": 0.6, "returns": 0.1, "choice": 0.3},
}
SAFE = {"behaviour": 1.0}
#: Of the tree's share, for the numbers of actions in its leaves.
LEAF_SHARE = 0.25
#: Levels of the tree, and from how many users × ε on there is one more.
DEPTH, DEEPER = 3, (50_000.0, 500_000.0)
#: Scores of the choice: how much of a policy is played, and over how many steps weights are multiplied.
ROLLOUT, WINDOW = 0.5, 3
#: They are clipped at C = sd·√H·min(LARGEST_CLIP, 1 + n·ε/CLIP_USERS).
CLIP_USERS, LARGEST_CLIP = 1_500.0, 4.0
#: A step that a policy would not have taken weighs 0; one that it would, at most 1/LEAST_PROPENSITY.
LEAST_PROPENSITY = 0.01
REWARD_GRID = 2.0**-20
#: Users × ε of the choice from which on coarser readings are asked about: below, the best of many is so by luck.
MANY_READINGS = 1_000.0
#: Grids with more states are read as they are: they take long, and have users enough.
MOST_MERGED = 400
NAMES = ("as now", "mode", "one-hot")
#: People's rows, all at once or some people at a time, and a policy on the states of a grid, (H, S).
Held: TypeAlias = Stays | StoredStays
Asked: TypeAlias = tuple[Grid, Ints]
WHY_SAFE = "asked to be safe: what most people do, and nothing else"
CHOICE = "a tree of what people do, a histogram, and a private choice with current practice"
WHY = {
    5_000.0: f"users × ε reaches 5000: {CHOICE}",
    2_000.0: f"users × ε is below 5000: {CHOICE}",
    0.0: "users × ε is below 2000: a tree of what people do, and a private choice with current practice",
}
#: What a certificate says about the learner; None where a part was not released.
SETTINGS = (
    *("parts", "chosen", "depth", "noise_per_leaf_count", "noise_per_item", "items"),
    *("propensities", "clipped_at"),
)


@dataclass(frozen=True, eq=False)
class LearnedColumns:
    """How records become states, what is done there (AS_NOW: as people do now), and what was promised."""

    states: Grid
    actions: Ints  # (H, S), AS_NOW where the release says nothing better
    values: Floats  # (H, S) cautious totals, scaled
    known: Mask  # (H, S, A) of which actions something is known
    guarantee: Guarantee
    settings: dict[str, Any]

    @property
    def chosen(self) -> str:
        return str(self.settings["chosen"])


@dataclass(frozen=True)
class Design:
    """What is released, at which price: a function of public numbers."""

    declaration: Declaration
    grid: Grid
    num_users: int
    budget: Budget
    neighbours: Neighbours = "replace"
    safe: bool = False
    ends: bool = True  # whether a stay can end, and
    unknown: bool = True  # whether a step may lead nobody knows where

    @property
    def strength(self) -> float:
        """Users × ε, or what a Gaussian budget is worth."""
        return self.num_users * self.declaration.strength(self.budget, self.neighbours)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.shares)

    @property
    def why(self) -> str:
        """Why these parts, in words."""
        return WHY_SAFE if self.safe else WHY[self.regime]

    @property
    def noise(self) -> Mechanism:
        return "laplace" if self.budget.kind == "pure" else "gaussian"

    @property
    def shares(self) -> Mapping[str, float]:
        """Of the budget, by part."""
        return SAFE if self.safe else SHARES[self.regime]

    @property
    def regime(self) -> float:
        """The least users × ε of plans like this one."""
        return next(least for least in SHARES if self.strength >= least)

    @property
    def share(self) -> dict[str, float]:
        """In the currency of the noise: ε, or ρ."""
        return self.budget.split(self.shares, self.noise)

    def _pure(self, share: float) -> float:
        """What a share buys of a mechanism that costs ε: √(2ρ) of ρ."""
        return share if self.noise == "laplace" else math.sqrt(2.0 * share) * (1.0 - 1e-15)

    @property
    def depth(self) -> int:
        return DEPTH + sum(self.strength >= least for least in DEEPER)

    @property
    def tree(self) -> BehaviourTree:
        share, d = self.share["behaviour"], self.declaration
        return BehaviourTree(
            self.depth,
            d.horizon,
            self._pure((1.0 - LEAF_SHARE) * share / self.depth),
            LEAF_SHARE * share,
            self.noise,
            self.neighbours,
            d.episodes_per_user,
        )

    @property
    def histogram(self) -> OneHot:
        share, m = self.share["steps"], self.declaration.episodes_per_user
        budget = Budget.pure(share) if self.noise == "laplace" else Budget.zcdp(share)
        return OneHot(budget, self.neighbours, self.noise, episodes_per_user=m, first_visits=self.first_visits)

    @property
    def first_visits(self) -> bool:
        return self.declaration.pooled and self.noise == "gaussian"

    @property
    def returns(self) -> ReturnHistogram:
        return ReturnHistogram(self.share["returns"], self.noise, self.neighbours)

    @property
    def choice(self) -> GainChoice:
        caution = 2.0 / math.sqrt(max(self.num_users, 4))
        return GainChoice(self._pure(self.share["choice"]), caution, self.neighbours)

    @property
    def asks_much(self) -> bool:
        """Whether the choice can tell many policies apart."""
        return self.num_users * self.choice.epsilon >= MANY_READINGS

    @property
    def cells(self) -> Items:
        d = self.declaration
        sizes = self.grid.num_states, d.num_actions, d.horizon, d.pooled
        return Items.of(*sizes, absorbing=self.ends, unknown=self.unknown, ended=ended_rate(d))

    @property
    def spec(self) -> CountSpec:
        d = self.declaration
        successors = self.grid.num_states + self.ends + self.unknown
        return CountSpec(successors, d.num_actions, d.horizon, d.pooled, REWARD_GRID, d.reward_range)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """One line per noisy statistic, of a person with all her episodes."""
        if self.safe:
            return self.tree.entries()
        steps = []
        if "steps" in self.parts:
            m, entry = self.declaration.episodes_per_user, self.histogram.entry(self.spec)
            factor = m * m if entry.is_gaussian else m
            steps = [replace(entry, sensitivity=entry.sensitivity * m, cost=entry.cost * factor)]
        return *self.tree.entries(), *steps, self.returns.entry(), self.choice.entry()

    def guarantee(self, noise: NoiseSource) -> Guarantee:
        m = self.declaration.episodes_per_user
        found = guarantee_of(
            self.entries(),
            "central",
            self.neighbours,
            self.budget,
            assumptions=assumptions(self.num_users * m, noise, "bins and thresholds were declared without the data"),
        )
        stated = found.epsilon if self.budget.epsilon is None else self.budget.epsilon  # never less than what holds
        return replace(found, epsilon=stated, unit=unit_text(m))

    @property
    def too_few(self) -> str | None:
        """Why nothing can be learned, from public numbers; None: something can."""
        needed = self.grid.users_needed
        if self.num_users >= needed:
            return None
        pairs = self.grid.num_states * self.declaration.num_actions
        return (
            f"{self.num_users:,} users are too few for {pairs} pairs of states and actions at this budget; about "
            f"{needed:,} are needed"
        )


def ended_rate(declaration: Declaration) -> float:
    """What a step pays those whose stay has ended, in units in which rewards lie in [0, 1]."""
    low, high = declaration.reward_range
    return (declaration.ended_pays - low) / (high - low)


def learn(stays: Held, plan: Design, source: NoiseSource) -> LearnedColumns:
    """One release after the other, each in view of the earlier ones, then a policy."""
    declaration, A = plan.declaration, plan.declaration.num_actions
    guarantee, settings = plan.guarantee(source), dict[str, Any].fromkeys(SETTINGS) | {"parts": list(plan.parts)}

    def learned(
        states: Grid, actions: Ints, chosen: str, planned: tuple[Floats, Mask] | None = None
    ) -> LearnedColumns:
        found = settings | {"chosen": chosen}
        if planned is not None:
            return LearnedColumns(states, actions, *planned, guarantee, found)
        known = np.repeat((actions != AS_NOW)[..., None], A, axis=2)
        return LearnedColumns(states, actions, least_values(plan, actions.shape), known, guarantee, found)

    def steps() -> Iterator[tuple[Bins, Ints]]:
        return ((block.bins, block.action) for block in stays.blocks)

    tree = plan.tree.release_of(steps, A, candidates(declaration), source)
    branches, mode = tree_policy(tree, declaration)
    settings |= {"depth": plan.depth, "noise_per_leaf_count": tree.deviation}
    if plan.safe:
        return learned(branches, mode, "mode")
    asked, planned = [(branches, mode)], list[Planned]()
    if "steps" in plan.parts:
        release = released_steps(stays, plan, source)
        settings |= {"noise_per_item": release.deviation, "items": int(plan.cells.admitted.sum())}
        planned = [planned_in(release, group) for group in (mergers(plan.grid) if plan.asks_much else [None])]
        asked += [(plan.grid, each.actions) for each in planned]
    which, unit = private_choice(stays, plan, tree, asked, source)
    logged = "logged" if declaration.propensity is not None else "estimated"
    settings |= {"propensities": logged, "clipped_at": unit}
    if which >= len(NAMES) - 1:
        taken = planned[which - len(NAMES) + 1]
        return learned(plan.grid, taken.actions, NAMES[-1], (taken.values, taken.known))
    return learned(branches, mode if NAMES[which] == "mode" else np.full_like(mode, AS_NOW), NAMES[which])


def private_choice(
    stays: Held, plan: Design, tree: PrivateTree, asked: Sequence[Asked], source: NoiseSource
) -> tuple[int, float]:
    """As now (0), or which of the policies asked about, by what each would have changed; and C, scaled."""
    declaration, H, choice = plan.declaration, plan.declaration.horizon, plan.choice
    found = released_returns(stays, declaration, plan.returns, source)
    unit = H * found.deviation * math.sqrt(H) * min(LARGEST_CLIP, 1.0 + plan.num_users * choice.epsilon / CLIP_USERS)
    gains, likely = np.zeros((len(asked), stays.num_users)), shares(tree)
    for block in stays.blocks:
        beta, rest = block.propensity, paid_after(block, declaration, found.mean)
        if declaration.propensity is None:
            beta = likely[tree.tree.leaves(block.bins), block.action]
        for mine, policy in zip(gains, asked, strict=True):
            ratio = weights(block.action, asked_of(block, *policy), beta)
            put_means(mine, block, window_gains(block, ratio, rest, H, found.mean))
    return choice.choose(list(gains), unit, source), unit


def released_returns(
    stays: Held, declaration: Declaration, histogram: ReturnHistogram, source: NoiseSource
) -> Returns:
    """What a step pays on average."""
    rate, H = ended_rate(declaration), declaration.horizon
    low, high = min(0.0, rate), max(1.0, rate)
    rates = np.zeros(stays.num_users)
    for block in stays.blocks:
        left, over = _after(block, H)
        paid = np.add.reduceat(block.reward, block.offsets[:-1]) if left.size else np.zeros(0)
        steps = H - np.where(over, 0, left)  # of which it is known what they paid
        put_means(rates, block, (paid + np.where(over, left * rate, 0.0)) / steps)
    return returns(histogram.release(rates, low, high, source), low, high, histogram.deviation)


def paid_after(stays: Stays, declaration: Declaration, mean: float) -> Floats:
    """What every episode is taken to pay after its last row: what is known, or what a step pays on average."""
    left, over = _after(stays, declaration.horizon)
    return np.asarray(left * np.where(over, ended_rate(declaration), mean))


def _after(stays: Stays, horizon: int) -> tuple[Ints, Mask]:
    """Of every episode, the steps that are left after its last row, and whether it ended there."""
    last = stays.offsets[1:] - 1
    return horizon - 1 - stays.step[last], stays.leads[last] == ENDED


# The histogram ------------------------------------------------------------------------------------------------------


class Planned(NamedTuple):
    """A plan from the histogram, over the states of its grid."""

    actions: Ints  # (H, S), as now where nothing is known
    values: Floats  # (H, S), cautious
    known: Mask  # (H, S, A)


def released_steps(stays: Held, plan: Design, source: NoiseSource) -> PrivateHistogram:
    stream = plan.histogram.open(plan.spec, plan.cells, plan.num_users, source)
    stream.add(step_counts(stays, plan))
    return stream.release()


def planned_in(release: PrivateHistogram, group: Ints | None = None) -> Planned:
    """The plan of one reading, in which states with one number in `group` are one state: post-processing."""
    agent, read = OneHotVI(), release if group is None else merge_states(release, group)
    estimate = agent.estimate(read)
    found = agent.plan_in(read, estimate)
    assert found.actions is not None
    H, S, A = read.cells.shape
    known = np.broadcast_to(estimate.known.reshape(read.cells.stages, S, A), (H, S, A))
    chosen = np.take_along_axis(known, found.actions[..., None], axis=2)[..., 0]
    planned = Planned(np.where(chosen, found.actions, AS_NOW), found.value[:H], known)
    if group is None:
        return planned
    return Planned(planned.actions[:, group], planned.values[:, group], planned.known[:, group])


def mergers(grid: Grid) -> list[Ints | None]:
    """Coarser readings of a grid, a public rule: as it is; every second edge; that in one column alone; one column
    alone; and all but one. Names are not merged with each other, nor what is missing with values."""
    cuts = [list(range(len(cut))) for cut in grid.cuts]
    used = [i for i, cut in enumerate(cuts) if cut]
    halves = [_every_second(column, cut) for column, cut in zip(grid.declaration.states, grid.cuts, strict=True)]
    coarser = [halves]
    for j in used:
        coarser += [[halves[i] if i == j else cut for i, cut in enumerate(cuts)]]
        coarser += [[cut if i == j else [] for i, cut in enumerate(cuts)]]
        coarser += [[[] if i == j else cut for i, cut in enumerate(cuts)]]
    if grid.num_states > MOST_MERGED:
        coarser = []
    sizes = [len(cut) + 1 for cut in cuts]
    places = np.stack(np.unravel_index(np.arange(grid.num_states), sizes), axis=1)
    found, seen = list[Ints | None]([None]), {tuple(range(grid.num_states))}
    for kept in coarser:
        code = np.zeros(grid.num_states, dtype=np.int64)
        for i, left in enumerate(kept):
            code = code * (len(left) + 1) + np.searchsorted(np.array(left, dtype=np.int64), places[:, i])
        group = np.unique(code, return_inverse=True)[1].astype(np.int64)
        if tuple(group.tolist()) not in seen and group.max() > 0:
            seen.add(tuple(group.tolist()))
            found.append(group)
    return found


def _every_second(column: Column, cuts: Sequence[int]) -> list[int]:
    """Which cuts are kept: of values every second one; what is missing stays apart."""
    if column.names is not None:
        return list(range(len(cuts)))
    apart = [i for i, cut in enumerate(cuts) if cut == column.num_fine - 1]
    values = [i for i in range(len(cuts)) if i not in apart]
    return [*(values[1::2] if len(values) > 1 else values), *apart]


def step_counts(stays: Held, plan: Design) -> StepCounts:
    """Steps by state, action and successor, and what they paid; of Gaussian pooled counts, first visits only."""
    T, R = (np.zeros(plan.spec.shapes()["transitions"], dtype=np.int64) for _ in range(2))
    for block in stays.blocks:
        _add_steps(T, R, block, plan)
    m = plan.declaration.episodes_per_user
    return StepCounts(T, R, plan.num_users, m, stays.repairs, plan.first_visits)


def _add_steps(T: Ints, R: Ints, stays: Stays, plan: Design) -> None:
    spec, S, A = plan.spec, plan.grid.num_states, plan.declaration.num_actions
    state = plan.grid.states_of(stays.bins)
    following = np.append(state[1:], 0)[: len(state)]
    nowhere = plan.spec.num_states - 1  # if steps can lead nobody knows where
    following = np.where(stays.leads == ON, following, np.where(stays.leads == ENDED, S, nowhere))
    following = np.where(following < 0, nowhere, following)  # the next row has no state in this grid
    counted = state >= 0
    if plan.first_visits:
        episode = np.repeat(np.arange(stays.offsets.size - 1), np.diff(stays.offsets))
        _, first = np.unique((episode * (S + 1) + state + 1) * A + stays.action, return_index=True)
        only = np.zeros(len(state), dtype=np.bool_)
        only[first] = True
        counted &= only
    stage = np.zeros(len(state), dtype=np.int64) if spec.pooled else stays.step
    where = stage[counted], state[counted], stays.action[counted], following[counted]
    np.add.at(T, where, 1)
    np.add.at(R, where, np.rint(stays.reward[counted] * spec.reward_units).astype(np.int64))


# The tree -----------------------------------------------------------------------------------------------------------


def candidates(declaration: Declaration) -> tuple[Ints, Ints]:
    """Public splits: after every fine bin of a column but its last one, where missing values are above all others; of
    names, which have no order, every one alone, and what is missing."""
    splits = []
    for column in declaration.states:
        last = last_bin(column)
        named = column.names is not None and last > 1
        splits.append(alone(np.arange(last + 1)) if named else np.arange(last))
    columns = np.repeat(np.arange(len(splits)), [each.size for each in splits])
    return columns, np.concatenate(splits).astype(np.int64)


def last_bin(column: Column) -> int:
    """The number of its last fine bin, that of what is missing included."""
    return column.num_fine - (0 if column.missing else 1)


def tree_policy(tree: PrivateTree, declaration: Declaration) -> tuple[Grid, Ints]:
    """The commonest action of every leaf, as a table over the grid that the tree's thresholds make."""
    found = cuts(tree.tree, [last_bin(column) for column in declaration.states])
    table = commonest(tree)[found.leaf]
    return Grid(declaration, found.thresholds), np.tile(table, (declaration.horizon, 1))


def least_values(plan: Design, shape: tuple[int, ...]) -> Floats:
    """The least that is possible: a policy that was not planned has no cautious value."""
    least, _ = possible_values(plan.declaration.horizon, ended_rate(plan.declaration))
    return np.broadcast_to(least[:-1, None], shape).copy()


# Gains --------------------------------------------------------------------------------------------------------------


def asked_of(stays: Stays, states: Grid, actions: Ints) -> Ints:
    """What a policy would have people do at every row; as now where a row has no state."""
    place = states.states_of(stays.bins)
    return np.where(place < 0, AS_NOW, actions[stays.step, place])


def weights(action: Ints, asked: Ints, beta: Floats) -> Floats:
    """π(a)/β(a) of every row; 1 where the policy is as now, and where nobody knows how likely the action was."""
    ratio = np.where(action == asked, 1.0 / np.maximum(beta, LEAST_PROPENSITY), 0.0)
    return np.where((asked == AS_NOW) | np.isnan(beta), 1.0, ratio)


def put_means(found: Floats, stays: Stays, values: Floats) -> None:
    """One number per person, at her place among all: the mean over her episodes."""
    if len(stays):
        first, last = int(stays.user[0]), int(stays.user[-1]) + 1
        person = stays.user[stays.offsets[:-1]] - first
        found[first:last] = np.bincount(person, values) / np.maximum(np.bincount(person), 1)


def window_gains(stays: Stays, ratio: Floats, rest: Floats, horizon: int, rate: float) -> Floats:
    """What taking a policy's actions would change, per episode, by weights of a few steps at a time."""
    found = np.empty(stays.offsets.size - 1)
    stepwise_gains(stays.offsets[1:], stays.step, stays.reward, ratio, rest, ROLLOUT, WINDOW, horizon, rate, found)
    return found
