"""Pessimistic regression for linear MDPs: PEVI, VAPVI and their private forms, by what the regressions cost."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import scipy

from discreet.mdp import Floats
from discreet.planning import Plan, possible_values, tie_order
from discreet.privacy.tails import symmetric_matrix_width, vector_width
from discreet.releases.regressions import PrivateRegression, Question, Target


@dataclass(frozen=True)
class VAPVI:
    """Q_h = clip(⟨φ,w⟩ + c − Γ, least, most) with w = Λ⁻¹·Σ ψ·(r + V_{h+1} − c)/σ, ψ = φ/σ, Λ = Σψψᵀ + λI (+ shift).

    weighted   σ² = max{1, clip(⟨φ,β⟩, 0, B²) − clip(⟨φ,θ⟩, 0, B)²}, β and θ the regressions of V² and V on φ,
               V = V_{h+1}, B = H−h as printed (H−h+1 where steps count from 1), so that σ = 1 at the last step
               whatever the regressions say: none is made there; practical: of V less the middle of its range, B half
               of the range, the second clip to [−B, B]
    otherwise  σ = 1: PEVI

    paper      c = 0, Γ = C·√d·√(φᵀΛ⁻¹φ), and for PEVI C·d·H·√ln(2dHK/β)·√(φᵀΛ⁻¹φ), both with C = 1; Λ shifted by
               the width of the noise, which keeps it positive definite
    practical  c = the middle of what r + V_{h+1} can be, so that noise and shrinkage are about the unknown part only;
               Γ = C·√d·√(φᵀΛ⁻¹φ), C = .1; eigenvalues of Λ are floored at λ + a quarter of the width of the noise

    Those who left earn `ended` per remaining step. A step whose successor is unknown leads to the least there is,
    `unknown` per step: a regression cannot count it for its reward alone.

    Both are post-processing of the same kind of release. Source: [QW22] Alg. 2, [YDWW22], [JYW21].
    Differs: 1. the D/K term is left out, its constant needs the unknown spectrum of the population; 2. Cholesky
    solves; 3. clips V_{h+1} at what the remaining steps can pay.
    Cost: O(H·(S·A·d² + d³)) plus the regressions.
    """

    features: Floats  # (S, A, d), norms at most 1
    weighted: bool = False
    mode: str = "practical"
    ridge: float = 1.0
    confidence_scale: float | None = None
    tie_seed: int = 0
    beta: float = 0.1  # of the printed penalty of PEVI
    ended: float | None = None  # where nobody can leave, None
    unknown: float | None = None  # where all successors are known, None

    def __post_init__(self) -> None:
        if self.mode not in ("practical", "paper"):
            raise ValueError(f"mode is {self.mode!r}; it must be 'practical' or 'paper'")

    @property
    def rates(self) -> list[float]:
        """What a step pays in the places beyond the states."""
        return [rate for rate in (self.ended, self.unknown) if rate is not None]

    def after(self, value: Floats, horizon: int, step: int, successors: int) -> Floats:
        """(Y,) V_{h+1}: of the states, of those who left, and of nobody knows where."""
        left = horizon - step - 1.0
        rest = [rate * left for rate in self.rates]
        found: Floats = np.append(value, [*rest, *[0.0] * (successors - value.size - len(rest))])
        return found

    def factor(self, horizon: int, num_users: int) -> float:
        """Γ / √(φᵀΛ⁻¹φ)."""
        d, C = int(self.features.shape[2]), self.confidence_scale
        C = C if C is not None else (1.0 if self.mode == "paper" else 0.1)
        if self.mode == "practical" or self.weighted:
            return C * math.sqrt(d)
        return C * d * horizon * math.sqrt(math.log(2.0 * d * horizon * max(num_users, 1) / self.beta))

    def questions(
        self, horizon: int, num_successors: int, num_users: int, longest: float = 1.0, beta: float = 0.05
    ) -> Generator[Question, PrivateRegression, tuple[Plan, Floats]]:
        """One pass backwards that asks for its regressions and is sent each of them.

        Returns the plan, and (H, S) what its policy earns at least, with probability 1 − beta if the MDP is linear.
        T the Bellman operator, q the estimate of T·V_{h+1}, V the plan's values: where |q − T·V_{h+1}| ≤ G,
        V^π_h ≥ L_h = max{least, q − G − D_{h+1}} with D_h = max_s (V_h − L_h), D_H = 0 (privacy/trust/linear.md).
        Only for steps that are not weighted; 0 elsewhere. `longest`: the number that the features were divided by.
        """
        S, A, d = self.features.shape
        H, Y = horizon, num_successors
        factor = self.factor(H, num_users)
        quality, value = np.zeros((H, S, A)), np.zeros((H + 1, S))
        lower, deficit = np.zeros((H, S)), 0.0
        phi = self.features.reshape(S * A, d)
        actions = np.zeros((H, S), dtype=np.int64)
        least, most = possible_values(H, *self.rates)
        for h in reversed(range(H)):
            V = self.after(value[h + 1], H, h, Y)
            bottom, top = float(least[h]), float(most[h])
            centre, bound = 0.0, max(top, -bottom)
            if self.mode == "practical":
                centre, bound = 0.5 * (V.max() + V.min() + 1.0), 0.5 * (np.ptp(V) + 1.0)
            sigma = np.ones((S, A))
            if self.weighted and h < H - 1:
                sigma = yield from self._deviations(h, V, max(float(np.abs(V).max()), H - h - 1.0), top)
            target = Target((V - centre) / sigma[..., None], 1.0 / sigma, bound)
            found = yield Question(h, "values", self.features / sigma[..., None], [target])
            positive = self._positive(found)
            solver = scipy.linalg.cho_factor(positive)
            mean = (phi @ scipy.linalg.cho_solve(solver, found.vectors[0]) + centre).reshape(S, A)
            squares = (phi * scipy.linalg.cho_solve(solver, phi.T).T).sum(axis=1)
            width = np.sqrt(np.maximum(squares, 0.0)).reshape(S, A)
            quality[h] = np.clip(mean - factor * width, bottom, top)
            order = tie_order((H, S, A), self.tie_seed)[h]
            best = np.take_along_axis(quality[h], order, axis=1).argmax(axis=1)
            actions[h] = order[np.arange(S), best]
            value[h] = quality[h].max(axis=1)
            if (sigma == 1.0).all():
                norm = longest * math.sqrt(d) * (1.0 + float(np.abs(V - centre).max()))
                doubt = error_factor(found, positive, self.ridge, norm, V, beta / (4.0 * H))
                chosen = np.arange(S), actions[h]
                lower[h] = np.maximum(mean[chosen] - doubt * width[chosen] - deficit, bottom)
            else:
                lower[h] = bottom
            deficit = max(0.0, float((value[h] - lower[h]).max()))  # 0 for those who left
        policy = np.zeros((H, S, A))
        np.put_along_axis(policy, actions[..., None], 1.0, axis=2)
        return Plan(policy, value, quality, num_users, actions=actions), lower

    def _deviations(
        self, h: int, V: Floats, bound: float, most: float
    ) -> Generator[Question, PrivateRegression, Floats]:
        """σ(s,a) ≥ 1 from the regressions of V² and V, both of one value in [0, bound] (or centred).

        Their estimates are cut at `most`, which is what V_h can be (practical: at what V_{h+1} can be).
        """
        S, A, d = self.features.shape
        nothing = np.zeros((S, A))
        centre, square_centre, square_bound = 0.0, 0.0, bound**2
        if self.mode == "practical":
            centre, bound = 0.5 * (V.max() + V.min()), 0.5 * float(np.ptp(V))
            square_centre = square_bound = 0.5 * bound**2
        if bound <= 0.0:
            return np.ones((S, A))
        shape = (S, A, V.size)
        first = Target(np.broadcast_to(V - centre, shape), nothing, bound)
        second = Target(np.broadcast_to((V - centre) ** 2 - square_centre, shape), nothing, square_bound)
        found = yield Question(h, "variances", self.features, [second, first])
        solver = scipy.linalg.cho_factor(self._positive(found))
        phi = self.features.reshape(S * A, d)
        square, mean = (phi @ scipy.linalg.cho_solve(solver, vector) for vector in found.vectors)
        if self.mode == "practical":
            square = np.clip(square + square_centre, 0.0, square_bound + square_centre)
            mean = np.clip(mean, -bound, bound)
        else:
            most = max(most, bound)
            square, mean = np.clip(square, 0.0, most**2), np.clip(mean, min(0.0, float(V.min())), most)
        return np.sqrt(np.maximum(1.0, square - mean**2)).reshape(S, A)

    def _positive(self, found: PrivateRegression) -> Floats:
        d = found.matrix.shape[0]
        if self.mode == "paper":
            shifted = found.matrix + (self.ridge + found.matrix_width) * np.eye(d)
            if np.linalg.eigvalsh(shifted)[0] > 0.5 * self.ridge:
                return shifted
        values, vectors = np.linalg.eigh(found.matrix + self.ridge * np.eye(d))
        floor = self.ridge + 0.25 * found.matrix_width
        result: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
        return result


def error_factor(
    found: PrivateRegression, positive: Floats, ridge: float, norm: float, values: Floats, beta: float
) -> float:
    """G with |⟨φ, Λ⁻¹v⟩ − ⟨φ, w⟩| ≤ G·√(φᵀΛ⁻¹φ) for all φ and for all values of this range: linear.md.

    ⟨φ, w⟩ is the mean of what was regressed, ‖w‖ ≤ `norm`, Λ = `positive`; four events, each fails with `beta`.
    """
    d, n, Y = found.matrix.shape[0], max(found.most_rows, found.num_users), values.size
    s, sigma = found.matrix_deviation, max(found.vector_deviations, default=0.0)
    matrix_width = symmetric_matrix_width(s, d, beta) if s > 0 else 0.0
    noise_width = vector_width(sigma, d, beta) if sigma > 0 else 0.0
    eye = np.eye(d)
    moved = float(np.linalg.norm(positive - found.matrix, 2)) + matrix_width
    least, *_ = np.linalg.eigvalsh(positive)
    ratio = float(scipy.linalg.eigh(found.matrix + (matrix_width + ridge) * eye, positive, eigvals_only=True)[-1])
    volume = d * math.log1p(n / (d * ridge))
    drawn = math.sqrt(volume + 2.0 * math.log(1.0 / beta))
    followed = math.sqrt(volume + 2.0 * (Y * math.log(2.0) + math.log(1.0 / beta)))
    rounded = math.sqrt(n) * (found.feature_rounding * norm + found.target_rounding)
    sampled = 0.5 * (drawn + float(np.ptp(values)) * followed) + rounded
    return (moved * norm + noise_width) / math.sqrt(float(least)) + math.sqrt(max(ratio, 0.0)) * sampled
