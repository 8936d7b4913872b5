"""The one-hot learner: one noisy histogram of steps, what may be noise is set to zero, plans avoid the unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.histograms import PrivateHistogram
from discreet.kernels import one_hot as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Plan, tie_order
from discreet.structure import Mask


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the known cells lead to, c = (g·S + s)·A + a: shares of items, and how many steps they rest on."""

    shares: Floats  # (C, 2Y)
    counts: Floats  # (C,)
    known: Mask  # (C,)


@dataclass(frozen=True)
class OneHotVI:
    """Pessimistic value iteration on a noisy histogram of steps.

    Items below ln(n_sub/doubt)·sd/√2 are set to 0 (maybe noise); a cell is known when what is left stands out of
    its noise, or else when its total does (then the nearest non-negative items with that total). Over the items that
    are left, v = paid + V(s'), p their shares and N their sum:

    Q = p·v − c·(√(2·Var_p(v)·ι/N) + span(V)·ι/(3N)) − min(1, d·sd/N)·(p·v − min V) − k·(sd/N)·‖(v − p·v)₊‖₂

    and Q = 0 (or the reward, where it is known) in unknown cells. The third term is for what may hide below the
    noise: it answers logs whose rare actions look good by luck. The fourth is for noise on the items that were kept,
    of which only the favourable ones tempt. `rewards` (G, S, A) declares rewards known.

    Source: ours; the zeroing rule is Spotlight's.   Cost: O(H·S²·A).
    """

    rewards: Floats | None = None
    confidence_scale: float = 0.1
    hiding: float = 1.5
    spread: float = 1.0
    doubt: float = 0.05
    tilted_doubt: float = 0.2  # for releases of one step per user, which show rare cells better
    tilted_caution: float = 1.3  # factor on hiding and spread for these
    surplus: float = 0.7
    fewest: float = 5.0
    signal: float = 1.0
    tie_seed: int = 0

    def estimate(self, release: PrivateHistogram) -> Estimate:
        cells, sd, sizes = release.cells, release.deviation, release.cells.sizes
        doubt = self.tilted_doubt if release.tilted else self.doubt
        reach = np.log(sizes / doubt) * math.sqrt(0.5)
        kept = np.where(cells.admitted & (release.values > (reach * sd)[:, None]), release.values, 0.0)
        counts, survivors = kept.sum(axis=1), (kept > 0.0).sum(axis=1)
        fewest = self.fewest if sd > 0 else 1.0
        known = counts >= np.maximum(fewest, (reach + self.surplus) * sd * np.sqrt(survivors + 1.0))
        shares = np.where(known[:, None], kept / np.where(known, counts, 1.0)[:, None], 0.0)
        kernel.rescue(release.values, cells.admitted, sizes, sd, self.signal, shares, counts, known)
        if self.rewards is not None:  # what was paid is known better than the release says
            shares[:, 0::2] += shares[:, 1::2]
            shares[:, 1::2] = 0.0
        return Estimate(shares, counts, known)

    def values(
        self, release: PrivateHistogram, estimate: Estimate, policy: Ints | None = None, cautious: bool = True
    ) -> tuple[Floats, Floats, Ints]:
        """(quality, value, actions) of the greedy policy or of a given one; without caution, plain estimates."""
        cells = release.cells
        H, S, A = shape = cells.shape
        iota = math.log(S * A * H * max(math.log2(max(release.num_users, 2)), 1.0) / 0.1)
        rewards = np.zeros(cells.num_cells)
        if self.rewards is not None:
            rewards = np.broadcast_to(self.rewards, (cells.stages, S, A)).reshape(-1).astype(np.float64)
        caution = (self.tilted_caution if release.tilted else 1.0) if cautious else 0.0
        quality, value = np.empty(shape), np.empty((H + 1, cells.num_successors))
        actions = np.empty((H, S), dtype=np.int64)
        kernel.cautious_values(
            estimate.shares,
            rewards,
            estimate.counts,
            estimate.known,
            release.deviation,
            self.rewards is not None,
            self.confidence_scale if cautious else 0.0,
            self.hiding * caution,
            self.spread * caution,
            iota,
            np.empty((0, 0), dtype=np.int64) if policy is None else policy,
            tie_order(shape, self.tie_seed),
            quality,
            value,
            actions,
        )
        return quality, value[:, :S], actions

    def plan(self, release: PrivateHistogram, previous: Plan | None = None) -> Plan:
        quality, value, actions = self.values(release, self.estimate(release))
        policy = np.zeros(release.cells.shape)
        np.put_along_axis(policy, actions[..., None], 1.0, axis=2)
        return Plan(policy, value, quality, release.num_users, actions=actions)
