"""Sums of ψψᵀ and ψy with jointly calibrated Gaussian noise, in exact integers. Proof: linear.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.device.sampler import below
from discreet.mdp import Floats
from discreet.people.counts import CountSpec
from discreet.privacy.accounting import (
    MARGIN,
    Budget,
    Guarantee,
    LedgerEntry,
    Neighbours,
    compose_parallel,
    gaussian_entry,
)
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.families import check_common, samplable
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import as_printed, stated
from discreet.privacy.tails import symmetric_matrix_width
from discreet.releases.regressions import PrivateRegression, Target

if TYPE_CHECKING:
    from discreet.people.counting import StepRows

#: Features are multiples of 2^−12, so that sums of products of two are exact in 53 bits for up to 2²⁹ users.
FEATURE_BITS = 12
TARGET_BITS = 16
EXACT_BITS = 52


def regression_cost(
    neighbours: Neighbours,
    matrix_deviation: float,
    bounds: Sequence[float],
    vector_deviations: Sequence[float],
    episodes_per_user: int = 1,
) -> float:
    """ρ of one regression, from the noise that was added and where its targets were clipped: linear.md.

    μ = 1/(2s²), W = Σ B²/σ²: m²·(μ + W + W²/(4μ)) for replace, m²·(μ + W)/2 for zero-out.
    """
    if matrix_deviation <= 0.0 or min(vector_deviations) <= 0.0:
        return math.inf
    mu = 0.5 / matrix_deviation**2
    W = math.fsum((bound / sigma) ** 2 for bound, sigma in zip(bounds, vector_deviations, strict=True))
    one = mu + W + W * W / (4.0 * mu) if neighbours == "replace" else 0.5 * (mu + W)
    return episodes_per_user**2 * one


def printed_noise(rho: float, horizon: int, part: str) -> tuple[float, tuple[float, ...]]:
    """(s, σ of each vector) of [QW22] Alg. 2 for a regression of values, or of variances (V² and V).

    ρ₀ = ρ/(5H), s² = 1/(4ρ₀), σ² = 2H²/ρ₀, of V² 2H⁴/ρ₀.
    """
    each = rho / (5 * horizon)
    spread = math.sqrt(2.0 / each) * horizon
    return math.sqrt(0.25 / each), ((spread * horizon, spread) if part == "variances" else (spread,))


def printed_bounds(horizon: int, part: str, step: int) -> tuple[float, ...]:
    """Where its targets are clipped at most, steps counted from 0: r + V ≤ H−h; V² and V with V ≤ H−h−1."""
    left = float(horizon - step)
    return ((left - 1.0) ** 2, left - 1.0) if part == "variances" else (left,)


@dataclass(frozen=True)
class LinearMoments:
    """One regression per step (and one more for variances, if they are wanted), all at the stated budget.

    A regression with budget ρ: μ = ρ/(1 + θ/2)², W = θ·μ, θ = 1; matrix noise of variance 1/(2μ) off and 1/μ on the
    diagonal, noise of variance B²·k/W on each of k vectors with |y| ≤ B (zero-out: μ = 2ρ/(1 + θ)).
    `split`: by a coin of her own, a user serves the variances or the values, either at the whole budget.
    `calibration="paper"`: the printed noise (`printed_noise`, with variances), and the guarantee that it truly gives.

    Guarantee: central ρ-zCDP per user, linear.md.  Source: [QW22] Alg. 2.
    Differs: 1. calibrated jointly; 2. integer noise on integer sums; 3. a group per regression.
    Cost: one product of matrices per regression.
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    variances: bool = False
    split: bool = False
    episodes_per_user: int = 1
    beta: float = 0.01
    balance: float = 1.0  # θ
    calibration: Literal["true", "paper"] = "true"

    def __post_init__(self) -> None:
        if self.calibration == "paper" and not self.variances:
            raise ValueError("the printed noise is that of regressions of values and variances")
        check_common(self.neighbours, self.beta, self.episodes_per_user)
        if self.budget.kind == "pure" and self.budget.epsilon != math.inf:
            raise ValueError("regressions carry Gaussian noise, which gives no pure epsilon: state a delta or rho")
        if not 0.0 < self.balance <= 2.0:
            raise ValueError(f"balance is {self.balance}; it must lie in (0, 2]")

    def shares(self, horizon: int) -> dict[str, float]:
        """The ρ of every regression, by what it is for."""
        rho = self.budget.total("gaussian")
        steps = max(horizon - 1, 1)
        if not self.variances:
            return {"values": rho / horizon}
        if self.split:
            return {"values": rho / horizon, "variances": rho / steps}
        return {"values": rho / (horizon + steps), "variances": rho / (horizon + steps)}

    def deviations(self, rho: float, bounds: Sequence[float]) -> tuple[float, tuple[float, ...]]:
        """(off-diagonal deviation of the matrix noise, deviations of the vectors' noise)."""
        if not math.isfinite(rho):
            return 0.0, tuple(0.0 for _ in bounds)
        each = rho / self.episodes_per_user**2
        theta = self.balance
        mu = each / (1.0 + theta / 2.0) ** 2 if self.neighbours == "replace" else 2.0 * each / (1.0 + theta)
        enlarged = 1.0 + MARGIN
        share = theta * mu / len(bounds)
        return math.sqrt(0.5 / mu) * enlarged, tuple(bound / math.sqrt(share) * enlarged for bound in bounds)

    def printed_costs(self, horizon: int, part: str) -> list[float]:
        """The true ρ of every regression of a part with printed noise, of one episode per user."""
        noise = printed_noise(self.budget.total("gaussian"), horizon, part)
        steps = horizon if part == "values" else horizon - 1
        return [
            regression_cost(self.neighbours, noise[0], printed_bounds(horizon, part, step), noise[1])
            for step in range(steps)
        ]

    def true_budget(self, horizon: int) -> Budget:
        """What is spent: the budget, or with printed noise what that noise costs."""
        if self.calibration == "true":
            return self.budget
        totals = [math.fsum(self.printed_costs(horizon, part)) for part in self.shares(horizon)]
        rho = max(totals) if self.split else math.fsum(totals)
        return Budget.zcdp(rho * self.episodes_per_user**2, self.budget.delta or None)

    def open(self, users: StepRows, spec: CountSpec, num_successors: int, noise: NoiseSource) -> MomentStream:
        return MomentStream(self, users, spec, num_successors, noise)


class MomentStream(Keeper):
    """Asks for the rows of one step at a time; what leaves are noisy moments, each asked for once."""

    def __init__(
        self, private: LinearMoments, users: StepRows, spec: CountSpec, num_successors: int, noise: NoiseSource
    ) -> None:
        self._private, self._users, self._spec, self._noise = private, users, spec, noise
        self.horizon, self.num_users, self.num_successors = spec.horizon, users.num_users, num_successors
        self._shares = private.shares(spec.horizon)
        self._crowd = Crowd(users.num_users, "users")
        self._crowd.size = users.num_users
        self._asked: set[tuple[int, str]] = set()
        half = below(noise, 2, users.num_users) == 1  # a coin per user: no data, no order
        self._split, self._printed = private.split and private.variances, private.calibration == "paper"
        users.gather(half if self._split else None)
        self._released: list[dict[str, Any]] = []
        parts = list(self.parts().values())
        self.guarantee = compose_parallel(parts) if len(parts) > 1 else parts[0]

    def regress(self, step: int, part: str, features: Floats, targets: Sequence[Target]) -> PrivateRegression:
        """Noisy Σψψᵀ and Σψy over the rows of a step."""
        private, users, spec = self._private, self._users, self._spec
        if part not in self._shares:
            raise ValueError(f"part is {part!r}; this stream has {', '.join(self._shares)}")
        if (step, part) in self._asked or not 0 <= step < self.horizon:
            raise ValueError(f"the {part} of step {step} have been released or do not exist; each is paid for once")
        if part == "variances" and step == self.horizon - 1:
            raise ValueError("after the last step nothing varies: its variances are not paid for")
        grid = np.trunc(np.asarray(features, dtype=np.float64) * 2.0**FEATURE_BITS)  # towards 0: norms do not grow
        if (
            not (np.linalg.norm(features, axis=-1) <= 1.0 + 1e-12).all()
            or (np.linalg.norm(grid, axis=-1) > 2.0**FEATURE_BITS).any()
        ):
            raise ValueError("a feature vector is longer than 1; rescale the features")
        most = printed_bounds(self.horizon, part, step)
        if self._printed and any(t.bound > b * (1.0 + 1e-12) for t, b in zip(targets, most, strict=True)):
            raise ValueError("a target may be larger than the printed noise is for")
        self._asked.add((step, part))
        cells, after, paid, numbers = users.of(step, part == "variances" if self._split else None)
        A, d = grid.shape[1:]
        visits = np.bincount(cells, weights=numbers, minlength=grid.shape[0] * A)
        seen = np.flatnonzero(visits)  # rows of one cell have one ψ: sums over cells are the sums over rows
        X = grid.reshape(-1, d)[seen]
        bounds = [target.bound for target in targets]
        if self._printed:
            deviation, vector_deviations = printed_noise(private.budget.total("gaussian"), self.horizon, part)
        else:
            deviation, vector_deviations = private.deviations(self._shares[part], bounds)
        self._released.append(
            {
                "statistic": f"regressions of {part}",
                "step": step,
                "matrix_deviation": deviation,
                "vector_deviations": list(vector_deviations),
                "clipped_at": [float(t.bound) for t in targets],
            }
        )
        unit = 2.0 ** (2 * FEATURE_BITS)
        raw = np.rint((X * visits[seen, None]).T @ X).astype(np.int64)
        matrix = self._symmetric(raw, deviation * unit) / unit
        vectors, rounding = [], 0.0
        for target, sigma in zip(targets, vector_deviations, strict=True):
            bits = _target_bits(self.num_users * private.episodes_per_user, target.bound)
            rounding = max(rounding, 2.0 ** -(bits + 1) + spec.grid)
            limit = math.ceil(target.bound * 2**bits)
            successor = target.successor.reshape(grid.shape[0] * A, -1)[cells, after]
            goal = target.reward_weight.reshape(-1)[cells] * (paid * spec.grid) + successor
            whole = np.clip(np.rint(goal * 2.0**bits), -limit, limit)
            each = 2.0 ** (FEATURE_BITS + bits)
            scale = samplable(part, sigma * each * limit / (target.bound * 2**bits)) if sigma > 0 else 0.0
            sums = np.bincount(cells, weights=whole * numbers, minlength=grid.shape[0] * A)[seen]
            vectors.append(
                (np.rint(X.T @ sums).astype(np.int64) + self._noise.gaussian(scale, d)).astype(np.float64) / each
            )
        beta = private.beta
        return PrivateRegression(
            matrix,
            tuple(vectors),
            symmetric_matrix_width(deviation, d, beta) if deviation > 0 else 0.0,
            self.num_users,
            deviation,
            vector_deviations,
            self.num_users * private.episodes_per_user,
            math.sqrt(d) * 2.0**-FEATURE_BITS,
            rounding,
        )

    def _symmetric(self, raw: np.ndarray[tuple[int, ...], np.dtype[np.int64]], deviation: float) -> Floats:
        """Upper triangle with noise, mirrored: variance s² off the diagonal, 2s² on it."""
        d = raw.shape[0]
        scale = samplable("moments", deviation) if deviation > 0 else 0.0
        noise = np.zeros((d, d), dtype=np.int64)
        above = np.triu_indices(d, 1)
        noise[above] = self._noise.gaussian(scale, len(above[0]))
        noise += noise.T
        noise[np.diag_indices(d)] = self._noise.gaussian(math.sqrt(2.0) * scale, d)
        return (raw + noise).astype(np.float64)

    def parts(self) -> dict[str, Guarantee]:
        """The guarantee of everything that the stream may release, per part of the users."""
        private, H = self._private, self.horizon
        entries: dict[str, list[LedgerEntry]] = {}
        for part, rho in self._shares.items():
            who = f"users for {part}" if private.split and private.variances else "all users"
            count = H if part == "values" else max(H - 1, 0)
            if count and self._printed and math.isfinite(rho):  # by step: each time their mean
                mean = math.fsum(private.printed_costs(H, part)) / count
                entries.setdefault(who, []).append(
                    gaussian_entry(f"regressions of {part}", math.sqrt(2.0 * mean), 1.0, count)
                )
            elif count:
                one = math.sqrt(2.0 * rho) / private.episodes_per_user if math.isfinite(rho) else 1.0
                scale = 1.0 + MARGIN if math.isfinite(rho) else 0.0
                entries.setdefault(who, []).append(gaussian_entry(f"regressions of {part}", one, scale, count))
        each, most = private.episodes_per_user, self.num_users * private.episodes_per_user
        told = "features are public, and what is regressed depends on earlier releases only"
        common = private.neighbours, private.true_budget(H), most, self._noise, told
        parts = {who: stated(found, "central", *common, episodes_per_user=each) for who, found in entries.items()}
        return {who: as_printed(part, private.budget) for who, part in parts.items()} if self._printed else parts

    def released(self) -> list[dict[str, Any]]:
        """What was added to every regression and where its targets were clipped: what its cost follows from."""
        return [dict(record) for record in self._released]


def _target_bits(users: int, bound: float) -> int:
    """Bits after the point of a target: as many as keep sums exact, at most 16 together with those before it."""
    whole = max(0, math.ceil(math.log2(max(bound, 1e-9))))
    return min(TARGET_BITS - whole, EXACT_BITS - FEATURE_BITS - whole - math.ceil(math.log2(max(users, 2))) - 1)
