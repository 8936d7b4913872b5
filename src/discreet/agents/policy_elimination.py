"""Policy elimination in stages: explore with what is left, throw out what is certainly worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from discreet.kernels import elimination as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Plan
from discreet.problem import Mask, PublicStructure
from discreet.releases.batches import Batch
from discreet.releases.counts import PrivateCounts

#: Most policies that are enumerated unless the caller says otherwise.
LARGEST = 2**20
#: Values closer than this are ties.
TIE = 1e-12


@dataclass(frozen=True, eq=False)
class Policies:
    """All deterministic policies that differ where they can be told apart, numbered (`kernels/elimination.py`).

    `points[h]` are the states that can be reached at step h from the declared start, by declared successors.
    """

    shape: tuple[int, int, int]
    points: tuple[Ints, ...]
    initial: Floats  # (S,)

    @classmethod
    def of(cls, shape: tuple[int, int, int], structure: PublicStructure, largest: int = LARGEST) -> Policies:
        H, S, A = shape
        if structure.initial is None:
            raise ValueError("policies are compared from a known start; declare the initial distribution public")
        initial = np.asarray(structure.initial)
        here = initial > 0
        points = []
        for h in range(H):
            points.append(np.flatnonzero(here))
            if structure.successors is None:
                here = np.ones(S, dtype=np.bool_)
            else:
                stage = structure.successors[min(h, len(structure.successors) - 1)]
                here = stage[here].any(axis=(0, 1))
        decisions = sum(len(states) for states in points)
        count = A**decisions
        if count > largest:
            shown = f"{count:,}" if decisions * math.log10(A) < 15 else f"{A}^{decisions}"
            raise ValueError(
                f"there are {shown} deterministic policies of {H} steps, {S} states and {A} actions; at most "
                f"{largest:,} are enumerated: use a smaller problem, or shuffle-ucbvi, which needs no enumeration"
            )
        return cls(shape, tuple(points), initial)

    @cached_property
    def count(self) -> int:
        return int(self.shape[2] ** sum(len(states) for states in self.points))

    def values(self, rows: Floats, rewards: Floats) -> Floats:
        """V^π for every policy: rows (H, S, A, S) may sum to less than 1 (what is missing earns nothing)."""
        H, _, A = self.shape
        following = np.zeros((1, len(self.points[H - 1])))
        for h in range(H - 1, -1, -1):
            here = self.points[h]
            after = self.points[min(h + 1, H - 1)]
            P = np.ascontiguousarray(rows[h][here][:, :, after])
            r = np.ascontiguousarray(rewards[h][here])
            if h == 0:
                out = np.empty(A ** len(here) * len(following))
                kernel.finish(np.ascontiguousarray(self.initial[here]), P, r, following, out)
                return out
            table = np.empty((A ** len(here) * len(following), len(here)))
            kernel.extend(P, r, following, table)
            following = table
        raise AssertionError("a horizon has at least one step")

    def actions(self, number: int) -> Ints:
        """(H, S): what the policy does; action 0 where it makes no difference."""
        H, S, A = self.shape
        actions = np.zeros((H, S), dtype=np.int64)
        for h in range(H - 1, -1, -1):
            for x in self.points[h][::-1]:
                actions[h, x] = number % A
                number //= A
        return actions

    def number(self, actions: Ints) -> int:
        """The inverse of `actions`."""
        number = 0
        for h, states in enumerate(self.points):
            for x in states:
                number = number * self.shape[2] + int(actions[h, x])
        return number


@dataclass(frozen=True, eq=False)
class Progress:
    """All that was learned so far; a function of releases."""

    active: Mask  # (policies,) not yet eliminated
    values: Floats  # (policies,) in the newest fine model: decides between equally good explorers
    stage: int  # counted from 1
    crude: int  # users of this stage's crude batches
    fine: int  # users of its fine batch
    layer: int | None  # of the batch being played: a crude one, or None for fine
    rows: Floats  # (H, S, A, S) crude model of the layers seen in this stage
    rare: Mask  # (H, S, A, S) transitions too rare to rely on
    crude_width: float  # largest E of this stage's crude batches
    queue: tuple[tuple[int, int], ...]  # (policy, users) still to play in this batch
    last: bool = False  # nothing is learned from the batch being played


@dataclass(frozen=True, eq=False, repr=False)
class EliminationPlan(Plan):
    """One policy of a batch, and what comes after it."""

    progress: Progress | None = None


@dataclass(frozen=True)
class PolicyElimination:
    """SDP-PE (with noisy batches) and APEVE (with exact ones).

    Stage b, L users twice (L doubles; with `roots`, L = K^{1−1/2^b}):
      crude, each step h:   π_{h,s,a} = argmax_{π active} V^π(1_{h,s,a}, P̃cru) for every (s,a), played in one batch;
                            W ∪= {(h,s,a,s') : Ñ(s,a,s') ≤ 6·c_W·E·H²·ι};  P̃cru_h = Ñ(s,a,s')/Ñ(s,a) off W
      fine:                 the same for all (h,s,a) in one batch → P̃ref (off W), r̃
      eliminate π if        max V(r̃,P̃ref) − V^π(r̃,P̃ref) ≥ 2c·( √(H⁵S²Aι/L) + c_E·S³A²H⁵Eι/L )
    ι = ln(2HAK/β), E = 4·width (at least 1 in W, and with `roots`). What W takes away earns nothing.

    Source: [BTZCC25] Alg. 1–4; with exact batches and `roots` [QYMW22], recalled: rewards are known there.
    Differs: 1. users are divided evenly over the policies of a batch, to the last one; 2. the first stage has
    `first` users, not 2: fewer cannot be shuffled, or say nothing; 3. ties between explorers go to the policy with
    the best value so far; 4. E is that of the exact tails of the batch; 5. with `exploit`, users who cannot fill
    another stage play the best policy found instead of a shortened stage; 6. only (h,s) that can be reached count.
    Cost: O(H·S·A·policies) per stage.
    """

    num_episodes: int
    structure: PublicStructure
    confidence_scale: float = 1.0
    privacy_scale: float = 1.0
    rare_scale: float = 1.0
    shift: bool = True
    exploit: bool = False
    first: int = 2
    roots: bool = False
    beta: float = 0.1
    largest: int = LARGEST

    def policies(self, shape: tuple[int, int, int]) -> Policies:
        return Policies.of(shape, self.structure, self.largest)

    def first_stage(self, policies: Policies) -> int:
        """L of the first stage: a power of two, at least one user per policy and two per batch."""
        H, S, A = policies.shape
        return int(2 ** math.ceil(math.log2(max(self.first, H * S * A, 2 * H, 2))))

    def length(self, policies: Policies, stage: int) -> int:
        """L of a stage, counted from 1: doubling, or the K^{1−1/2^b} of few switches; never less than the first."""
        least = self.first_stage(policies)
        if self.roots:
            return max(least, math.ceil(math.pow(self.num_episodes, 1.0 - 0.5**stage)))
        return least << (stage - 1)

    def iota(self, shape: tuple[int, int, int]) -> float:
        H, _, A = shape
        return math.log(2.0 * H * A * self.num_episodes / self.beta)

    def threshold(self, shape: tuple[int, int, int], length: int, width: float) -> float:
        """2c·( √(H⁵S²Aι/L) + c_E·S³A²H⁵Eι/L )."""
        H, S, A = shape
        iota = self.iota(shape)
        width = max(width, 1.0) if self.roots else width
        learning = math.sqrt(H**5 * S**2 * A * iota / length)
        noise = self.privacy_scale * S**3 * A**2 * H**5 * width * iota / length
        return 2.0 * self.confidence_scale * (learning + noise)

    def rare_below(self, shape: tuple[int, int, int], width: float) -> float:
        """6·c_W·max(E, 1)·H²·ι."""
        return 6.0 * self.rare_scale * max(width, 1.0) * shape[0] ** 2 * self.iota(shape)

    def plan(self, release: PrivateCounts, previous: Plan | None) -> EliminationPlan:
        policies = self.policies(release.shape)
        if previous is None:
            return self._opening(policies)
        assert isinstance(previous, EliminationPlan)
        assert previous.progress is not None
        progress = previous.progress
        if not progress.queue and not progress.last:
            progress = self._learned(policies, release, progress)
        if not any(users for _, users in progress.queue):
            return replace(previous, progress=progress)  # all users have played
        return self._next(policies, progress, previous, release.num_episodes)

    def _opening(self, policies: Policies) -> EliminationPlan:
        K, length = self.num_episodes, self.length(policies, 1)
        if 2 * length > K:
            raise ValueError(
                f"{K} users are fewer than one stage, which has {2 * length} ({length} crude and {length} fine)"
            )
        H, S, A = policies.shape
        nothing = Progress(
            np.ones(policies.count, dtype=np.bool_),
            np.zeros(policies.count),
            1,
            length,
            length,
            0,
            np.zeros((H, S, A, S)),
            np.zeros((H, S, A, S), dtype=np.bool_),
            0.0,
            (),
        )
        return self._next(policies, self._filled(policies, nothing), None, 0)

    def _next(
        self, policies: Policies, progress: Progress, previous: EliminationPlan | None, done: int
    ) -> EliminationPlan:
        """Play the next policy of the queue; the batch it belongs to goes on, or begins."""
        (number, users), rest = progress.queue[0], progress.queue[1:]
        going_on = previous is not None and bool(previous.progress and previous.progress.queue)
        if going_on:
            assert previous is not None
            batch = previous.announcement
            assert isinstance(batch, Batch)
        else:
            earlier = 0
            if previous is not None and isinstance(previous.announcement, Batch):
                earlier = previous.announcement.number
            batch = Batch(earlier + 1, sum(n for _, n in progress.queue), progress.layer)
        H, S, A = policies.shape
        actions = policies.actions(number)
        policy = _one_hot(actions, A)
        value = np.zeros((H + 1, S))
        return EliminationPlan(
            policy,
            value,
            np.zeros((H, S, A)),
            num_episodes=done,
            users=users,
            announcement=batch,
            actions=actions,
            progress=replace(progress, queue=rest),
        )

    def _filled(self, policies: Policies, progress: Progress) -> Progress:
        """The queue of a batch: its users divided evenly over the cells it explores."""
        H, _, A = policies.shape
        layers = range(H) if progress.layer is None else (progress.layer,)
        cells = [(h, int(x), a) for h in layers for x in policies.points[h] for a in range(A)]
        share = progress.fine
        if progress.layer is not None:
            share = even(progress.crude, H)[progress.layer]
        users: dict[int, int] = {}
        for (h, x, a), n in zip(cells, even(share, len(cells)), strict=True):
            if n:
                number = self._explorer(policies, progress, h, x, a)
                users[number] = users.get(number, 0) + n
        return replace(progress, queue=tuple(users.items()))

    def _explorer(self, policies: Policies, progress: Progress, h: int, x: int, a: int) -> int:
        """The active policy that comes to (h,x,a) most often; among equals, the one with the best value so far."""
        wanted = np.zeros(policies.shape)
        wanted[h, x, a] = 1.0
        reach = np.where(progress.active, policies.values(progress.rows, wanted), -np.inf)
        best = progress.active & (reach >= reach.max() - TIE)
        return int(np.where(best, progress.values, -np.inf).argmax())

    def _model(self, release: PrivateCounts, layer: int | None) -> tuple[Floats, Floats, Floats]:
        """(P̃, r̃, Ñ(s,a,s')) of a batch."""
        successors = self.structure.successors
        if successors is not None and layer is not None:
            successors = successors[min(layer, len(successors) - 1)][None]
        model = release.model(self.shift, PublicStructure(successors=successors))
        return model.transitions, model.rewards, model.transitions * model.visits[..., None]

    def _learned(self, policies: Policies, release: PrivateCounts, progress: Progress) -> Progress:
        """What a complete batch changes, and the queue of the next one."""
        shape = H, _, _ = policies.shape
        width = 4.0 * float(release.width.max())
        rows, rewards, counts = self._model(release, progress.layer)
        if progress.layer is not None:
            h = progress.layer
            rare, crude = progress.rare.copy(), progress.rows.copy()
            rare[h] = counts[0] <= self.rare_below(shape, width)
            crude[h] = np.where(rare[h], 0.0, rows[0])
            following = h + 1 if h + 1 < H else None
            progress = replace(
                progress,
                rows=crude,
                rare=rare,
                crude_width=max(progress.crude_width, width),
                layer=following,
            )
            return self._filled(policies, progress)
        values = policies.values(np.where(progress.rare, 0.0, rows), rewards)
        best = float(values[progress.active].max())
        kept = best - values < self.threshold(shape, progress.fine, max(width, progress.crude_width))
        done, length = release.num_episodes, self.length(policies, progress.stage + 1)
        progress = replace(
            progress,
            active=progress.active & kept,
            values=values,
            stage=progress.stage + 1,
            crude=length,
            fine=length,
            layer=0,
            rows=np.zeros_like(progress.rows),
            rare=np.zeros_like(progress.rare),
            crude_width=0.0,
        )
        return self._staged(policies, progress, self.num_episodes - done)

    def _staged(self, policies: Policies, progress: Progress, left: int) -> Progress:
        """A full stage, a shortened one, or, where not even that is possible, users who only play."""
        H = policies.shape[0]
        if left >= progress.crude + progress.fine:
            return self._filled(policies, progress)
        if not self.exploit and left >= 4 * H + 2:
            return self._filled(policies, replace(progress, crude=left // 2, fine=left - left // 2))
        return replace(progress, layer=None, queue=((_best(progress), left),), last=True)

    def best(self, plan: EliminationPlan) -> Floats:
        """(H, S, A): the best policy found so far; nobody explores with it."""
        assert plan.progress is not None
        shape = plan.policy.shape
        return _one_hot(self.policies(shape).actions(_best(plan.progress)), shape[2])


def _best(progress: Progress) -> int:
    return int(np.where(progress.active, progress.values, -np.inf).argmax())


def _one_hot(actions: Ints, number: int) -> Floats:
    return np.asarray(actions[..., None] == np.arange(number), dtype=np.float64)


def even(users: int, parts: int) -> Sequence[int]:
    """`users` divided into `parts` whole numbers that differ by at most one and add up."""
    each, more = divmod(users, parts)
    return [each + (i < more) for i in range(parts)]
