"""The one-hot learner: one noisy histogram of steps read in several ways, the plan that none of them regrets much."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discreet.kernels import one_hot as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Plan, tie_order
from discreet.problem import Mask
from discreet.releases.histograms import PrivateHistogram


@dataclass(frozen=True, eq=False)
class HistogramEstimate:
    """What the known cells lead to, c = (g·S + s)·A + a: shares of items, and how many steps they rest on."""

    shares: Floats  # (C, 2Y)
    counts: Floats  # (C,)
    known: Mask  # (C,)
    deviations: Floats  # (C,) of the noise on one item of the counts
    wary: bool = False  # rare cells are known, so that luck in one of them is likely
    shared: float = 0.0  # fraction of the cells that were read from all steps together


@dataclass(frozen=True)
class OneHotVI:
    """Pessimistic value iteration on a noisy histogram of steps, read in several ways.

    One reading: items below a threshold are set to 0 (maybe noise); a cell is known when what is left stands out of
    its noise, or else when its total does (then the nearest non-negative items with that total). Over the items that
    are left, v = paid + V(s'), p their shares and N their sum:

    Q = p·v − c·(√(2·Var_p(v)·ι/N) + span(V)·ι/(3N)) − min(1, d·sd/N)·(p·v − min V) − k·(sd/N)·‖(v − p·v)₊‖₂

    and the least that is possible (plus the reward, where it is known) in unknown cells: 0, or what those who left
    earn if that is less. Steps whose successor is unknown count for what was paid. The third term is for what may
    hide below the noise: it answers logs whose rare actions look good by luck. The fourth is for noise on the items
    that were kept, of which only the favourable ones tempt. `rewards` (G, S, A) declares rewards known.

    Steps that look alike are read together: where a staged release shows no difference between its steps
    (`like_cells`), what a cell leads to is read from the sum over all of them but the last, which has H−1 times the
    counts and only √(H−1) times the noise. Policies still depend on the step.

    No threshold is right everywhere: a low one keeps noises, and one of them may promise more than the truth holds;
    a high one loses thin cells. So the thresholds t run from ln(n_sub/doubt)·sd/√2, which the noises of one cell
    seldom cross, to .8 of the release's width, which hardly any noise crosses; each reading makes a policy πₜ, and
    the one whose largest relative regret over the readings is least is taken:

    min over π ∈ {πₜ} of max over t of (V*ₜ − Vₜ(π)) / (V*ₜ + .1·max V*),   V*ₜ = max over π of Vₜ(π)

    Vₜ(π) is the cautious value of π in reading t from the states that the log visits (at the first stage).

    Source: ours; the zeroing rule is Spotlight's.   Cost: O(H·S²·A) per reading.
    """

    rewards: Floats | None = None
    confidence_scale: float = 0.1
    hiding: float = 1.5
    wary_hiding: float = 2.5  # where rare cells are known: one step per user, or steps read together
    spread: float = 1.0
    doubt: float = 0.3
    strictest: float = 0.8
    readings: int = 3
    surplus: float = 0.7
    fewest: float = 5.0
    signal: float = 1.0
    sharing: bool = True
    tie_seed: int = 0

    def lowest(self, sizes: Any) -> Any:
        """The least threshold of all readings for a cell of so many items, in standard deviations of their noise."""
        return np.log(sizes / self.doubt) * math.sqrt(0.5)

    def like(self, release: PrivateHistogram) -> Mask | None:
        """(S·A,) Which cells to read from all steps together; None where every step stands for itself."""
        if not (self.sharing and release.cells.alike and release.deviation > 0.0):
            return None
        return like_cells(release, self._read(sum_over_steps(release), 0.0))

    def read(self, release: PrivateHistogram, strictness: float, like: Mask | None = None) -> HistogramEstimate:
        """One reading, with the lowest threshold at strictness 0 and the highest at 1."""
        apart = self._read(release, strictness)
        if like is None or not like.any():
            return apart
        together, G = sum_over_steps(release), release.cells.stages
        joint, like = self._read(together, strictness), np.tile(like, G)
        like[-(like.size // G) :] = False  # what the last step pays often is its own, and two items say it
        return HistogramEstimate(
            np.where(like[:, None], np.tile(joint.shares, (G, 1)), apart.shares),
            np.where(like, np.tile(joint.counts, G), apart.counts),
            np.where(like, np.tile(joint.known, G), apart.known),
            np.where(like, together.deviation, release.deviation),
            wary=True,
            shared=float(like.mean()),
        )

    def _read(self, release: PrivateHistogram, strictness: float) -> HistogramEstimate:
        cells, sd = release.cells, release.deviation
        lowest = self.lowest(cells.sizes) * sd
        threshold = lowest + strictness * np.maximum(self.strictest * release.width - lowest, 0.0)
        shares, counts = np.empty(release.values.shape), np.empty(cells.num_cells)
        known = np.empty(cells.num_cells, dtype=np.bool_)
        fewest = self.fewest if sd > 0 else 1.0
        kernel.zero(release.values, cells.admitted, threshold, self.surplus * sd, fewest, shares, counts, known)
        kernel.rescue(release.values, cells.admitted, cells.sizes, sd, self.signal, shares, counts, known)
        if self.rewards is not None:  # what was paid is known better than the release says
            shares[:, 0::2] += shares[:, 1::2]
            shares[:, 1::2] = 0.0
        return HistogramEstimate(shares, counts, known, np.full(cells.num_cells, sd), release.tilted)

    def estimate(self, release: PrivateHistogram) -> HistogramEstimate:
        """The reading whose policy is taken."""
        like = self.like(release)
        readings = [self.read(release, t, like) for t in np.linspace(0.0, 1.0, self.readings)]
        if release.deviation == 0.0:  # all are the same
            return readings[0]
        cells = release.cells
        items = release.values[: cells.num_cells // cells.stages]
        start = np.maximum(items.reshape(cells.num_states, -1).sum(axis=1), 0.0)
        if not start.any():
            start = np.ones(cells.num_states)
        policies = [self.values(release, reading)[2] for reading in readings]
        worth = np.array(
            [[start @ self.values(release, reading, policy)[1][0] for reading in readings] for policy in policies]
        )
        worth -= start.sum() * (cells.horizon - 1) * min(0.0, cells.ended)  # above the least that is possible
        return readings[least_regret(worth)]

    def values(
        self, release: PrivateHistogram, estimate: HistogramEstimate, policy: Ints | None = None
    ) -> tuple[Floats, Floats, Ints]:
        """(quality, value, actions) of the greedy policy or of a given one.

        Of a given policy only the qualities of its own actions are computed, the others are 0.
        """
        cells = release.cells
        H, S, A = shape = cells.shape
        iota = math.log(S * A * H * max(math.log2(max(release.num_users, 2)), 1.0) / 0.1)
        rewards = np.zeros(cells.num_cells)
        if self.rewards is not None:
            rewards = np.broadcast_to(self.rewards, (cells.stages, S, A)).reshape(-1).astype(np.float64)
        hiding = self.wary_hiding if estimate.wary else self.hiding
        quality, value = np.empty(shape), np.empty((H + 1, cells.num_successors))
        actions = np.empty((H, S), dtype=np.int64)
        kernel.cautious_values(
            estimate.shares,
            rewards,
            estimate.counts,
            estimate.known,
            estimate.deviations,
            self.rewards is not None,
            self.confidence_scale,
            hiding,
            self.spread,
            iota,
            cells.num_places,
            cells.ended,
            np.empty((0, 0), dtype=np.int64) if policy is None else policy,
            tie_order(shape, self.tie_seed),
            quality,
            value,
            actions,
        )
        return quality, value[:, :S], actions

    def plan(self, release: PrivateHistogram, previous: Plan | None = None) -> Plan:
        return self.plan_in(release, self.estimate(release))

    def plan_in(self, release: PrivateHistogram, estimate: HistogramEstimate) -> Plan:
        """The plan for one reading."""
        quality, value, actions = self.values(release, estimate)
        policy = np.zeros(release.cells.shape)
        np.put_along_axis(policy, actions[..., None], 1.0, axis=2)
        return Plan(policy, value, quality, release.num_users, actions=actions)


def least_regret(worth: Floats, softness: float = 0.1) -> int:
    """The row whose largest (best − value)/(best + softness·max best) over the columns is least; the first of equals.

    Columns are readings of one release. Those in which nobody earns much cannot outweigh the others.
    """
    best = worth.max(axis=0)
    scale = best + softness * best.max()
    regrets = np.divide(best - worth, scale, out=np.zeros_like(worth), where=scale > 0.0)
    return int(regrets.max(axis=1).argmin())


# Are steps alike? ---------------------------------------------------------------------------------------------------

#: Steps are told apart everywhere when all differences together stand out by so many standard deviations.
APART = 3.0
#: In one cell its own differences must stand out by so many, or one of them must be rarer than `RARE` among all.
CELL_APART = 4.0
RARE = 0.05


def sum_over_steps(release: PrivateHistogram) -> PrivateHistogram:
    """All steps of a staged release but the last, which has no successors, as if they had been counted together.

    The width serves as a threshold only: √k times that of one noise, more than sums of k noises need.
    """
    cells = release.cells
    k = cells.stages - 1
    values = release.values.reshape(cells.stages, -1, release.values.shape[1])[:k].sum(axis=0)
    first = cells.admitted[: len(values)]
    whole = replace(cells, pooled=True, admitted=first)
    root = math.sqrt(k)
    return replace(
        release,
        cells=whole,
        values=values,
        variance=k * release.variance,
        width=root * release.width,
        total_width=root * release.total_width,
    )


def like_cells(release: PrivateHistogram, joint: HistogramEstimate) -> Mask:
    """(S·A,) Which cells lead to the same at all steps, as far as the release can tell; p is that of all steps.

    t = (x − N·p)² / (v·((1 − p)² + (m − 1)·p²) + N·p·(1 − p)) for every item x of a cell with m items, total N and
    noise of variance v. If steps are alike, t has mean 1 and variance at most 5 (Laplace noise). Cells that are not
    known have nothing to show and count as alike.
    """
    cells = release.cells
    k, v = cells.stages - 1, release.variance
    items = release.values.reshape(k + 1, -1, release.values.shape[1])
    exists = cells.admitted[: items.shape[1]] & joint.known[:, None]
    m, p = exists.sum(axis=1, keepdims=True), joint.shares
    noise = v * ((1.0 - p) ** 2 + (m - 1.0) * p**2)
    excess, largest = np.zeros(len(p)), np.zeros(len(p))
    for x in items[:k]:
        N = np.where(exists, x, 0.0).sum(axis=1, keepdims=True)
        spread = noise + np.maximum(N, 0.0) * p * (1.0 - p)
        t = np.where(exists, (x - N * p) ** 2 / np.where(exists, spread, 1.0), 0.0)
        excess += t.sum(axis=1) - m[:, 0]
        largest = np.maximum(largest, t.max(axis=1))
    terms = k * m[:, 0]
    if excess.sum() > APART * math.sqrt(5.0 * terms.sum()):
        return np.zeros(len(p), dtype=np.bool_)
    rare = 0.5 * math.log(max(int(terms.sum()), 1) / RARE) ** 2
    like: Mask = (excess <= CELL_APART * np.sqrt(5.0 * terms)) & (largest <= rare)
    return like
