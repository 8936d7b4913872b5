"""Oracles of the occupancy solvers: a cone solver for the two regularised problems, linear programs for the bound."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from discreet.mdp import Floats
from discreet.occupancies import KernelBalls, KernelBoxes, Layers

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def minimised(objective: Any, constraints: list[Any], tight: bool) -> tuple[float, float]:
    """(value, seconds of the solver itself). At tight tolerances it may call its own answer inaccurate: the tests
    compare values, so that the remark is not needed."""
    problem = cp.Problem(cp.Minimize(objective), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL, **(TIGHT if tight else {}))
    return float(problem.value), problem.solver_stats.solve_time


def layers_of(sizes: tuple[int, ...], num_actions: int, initial: Floats | None = None) -> Layers:
    """Layers holding the first sizes[h] states."""
    start = np.zeros(max(sizes))
    start[: sizes[0]] = 1.0 / sizes[0] if initial is None else initial
    return Layers(tuple(tuple(range(size)) for size in sizes), start, num_actions)


def random_boxes(
    layers: Layers, rng: np.random.Generator, width: float, concentration: float = 0.3, zeros: float = 0.0
) -> KernelBoxes:
    """Boxes around random rows; a fraction of the triples is impossible."""
    H, X, A = layers.shape
    lower, upper = np.zeros((H, X, A, X)), np.zeros((H, X, A, X))
    for h in range(H):
        n, m = layers.sizes[h], layers.sizes[h + 1]
        rows = rng.dirichlet(np.full(m, concentration), size=(n, A))
        possible = rng.random(rows.shape) >= zeros
        possible[..., 0] = True
        possible[0, 0] = True  # every state of the next layer stays reachable
        rows = np.where(possible, rows + 1e-12, 0.0)
        rows /= rows.sum(axis=-1, keepdims=True)
        reach = width * rng.random(rows.shape)
        lower[h, :n, :, :m] = np.where(possible, np.clip(rows - reach, 0.0, 1.0), 0.0)
        upper[h, :n, :, :m] = np.where(possible, np.clip(rows + reach, 0.0, 1.0), 0.0)
    return KernelBoxes(layers, lower, upper)


class Polytope:
    """Constraints A_eq q = b_eq and A_ub q ≤ 0 over the triples of all layers, as sparse matrices."""

    def __init__(self, boxes: KernelBoxes) -> None:
        layers, sizes = boxes.layers, boxes.layers.sizes
        H, _, A = layers.shape
        self.triples = [
            (h, x, a, y) for h in range(H) for x in range(sizes[h]) for a in range(A) for y in range(sizes[h + 1])
        ]
        self.index = {triple: i for i, triple in enumerate(self.triples)}
        rows: list[dict[int, float]] = []
        right: list[float] = []
        for h in range(H):
            for x in range(sizes[h]):
                row = {self.index[h, x, a, y]: 1.0 for a in range(A) for y in range(sizes[h + 1])}
                if h == 0:
                    right.append(float(layers.start[x]))
                else:
                    right.append(0.0)
                    for before in range(sizes[h - 1]):
                        for a in range(A):
                            row[self.index[h - 1, before, a, x]] = -1.0
                rows.append(row)
        self.equal, self.right = self._matrix(rows), np.array(right)
        bounds: list[dict[int, float]] = []
        for h, x, a, y in self.triples:
            if h == H - 1:
                continue  # one successor, nothing to choose
            low, high = boxes.lower[h, x, a, y], boxes.upper[h, x, a, y]
            whole = [self.index[h, x, a, z] for z in range(sizes[h + 1])]
            if low > 0.0:
                row = dict.fromkeys(whole, float(low))
                row[self.index[h, x, a, y]] -= 1.0
                bounds.append(row)
            if high < 1.0:
                row = dict.fromkeys(whole, -float(high))
                row[self.index[h, x, a, y]] += 1.0
                bounds.append(row)
        self.below = self._matrix(bounds)

    def _matrix(self, rows: list[dict[int, float]]) -> Any:
        data = [(i, j, v) for i, row in enumerate(rows) for j, v in row.items()]
        i, j, v = zip(*data, strict=True) if data else ((), (), ())
        return sp.csr_matrix((v, (i, j)), shape=(len(rows), len(self.triples)))

    def flat(self, packed: Floats) -> Floats:
        return np.array([packed[triple] for triple in self.triples])

    def packed(self, flat: Floats, shape: tuple[int, ...]) -> Floats:
        table = np.zeros(shape)
        for triple, value in zip(self.triples, flat, strict=True):
            table[triple] = value
        return table


class EntropyOracle:
    """min ⟨−θ, q⟩ + Σ q ln q by Clarabel; `seconds` is the solver's own time, without the modelling layer."""

    def __init__(self, boxes: KernelBoxes) -> None:
        self.polytope = Polytope(boxes)
        self.q = cp.Variable(len(self.polytope.triples))
        self.shape = boxes.lower.shape
        self.constraints = [self.polytope.equal @ self.q == self.polytope.right]
        if self.polytope.below.shape[0]:
            self.constraints.append(self.polytope.below @ self.q <= 0.0)

    @classmethod
    def within(cls, balls: KernelBalls) -> EntropyOracle:
        """The same over measures whose rows lie in L1 balls."""
        found = cls(KernelBoxes.everything(balls.layers))
        sums: dict[tuple[int, ...], list[int]] = {}
        for i, (*cell, _) in enumerate(found.polytope.triples):
            sums.setdefault(tuple(cell), []).append(i)
        for cell, places in sums.items():
            mass = cp.sum(found.q[places])
            center = balls.center[cell][: len(places)]
            found.constraints.append(cp.norm1(found.q[places] - center * mass) <= balls.reach[cell] * mass)
        return found

    def solve(self, theta: Floats, tight: bool = True) -> tuple[float, Floats, float]:
        """(objective, measure, seconds)."""
        scores = self.polytope.flat(theta)
        _, seconds = minimised(-scores @ self.q - cp.sum(cp.entr(self.q)), self.constraints, tight)
        q = np.maximum(self.q.value, 0.0)  # the solver's zeros may be slightly negative
        value = float(-scores @ q + (q * np.log(np.where(q > 0.0, q, 1.0))).sum())
        return value, self.polytope.packed(q, self.shape), seconds


class BarrierOracle:
    """min ⟨c, q⟩ − Σ ln q by Clarabel in the scaled variable q/scale (unscaled, the solver is inaccurate)."""

    def __init__(self, boxes: KernelBoxes, scale: Floats) -> None:
        self.polytope = Polytope(boxes)
        possible = self.polytope.flat(boxes.upper) > 0.0
        self.scale = np.where(possible, self.polytope.flat(scale), 0.0)
        self.possible = np.flatnonzero(possible)
        self.r = cp.Variable(len(self.possible))
        self.shape = boxes.lower.shape
        columns = sp.csr_matrix(
            (self.scale[self.possible], (self.possible, np.arange(len(self.possible)))),
            shape=(len(self.scale), len(self.possible)),
        )
        self.constraints = [(self.polytope.equal @ columns) @ self.r == self.polytope.right]
        if self.polytope.below.shape[0]:
            self.constraints.append((self.polytope.below @ columns) @ self.r <= 0.0)

    def solve(self, cost: Floats, tight: bool = True) -> tuple[float, Floats, float]:
        scale = self.scale[self.possible]
        scores = self.polytope.flat(cost)[self.possible] * scale
        value, seconds = minimised(scores @ self.r - cp.sum(cp.log(self.r)), self.constraints, tight)
        flat = np.zeros(len(self.scale))
        flat[self.possible] = self.r.value * scale
        return value - float(np.log(scale).sum()), self.polytope.packed(flat, self.shape), seconds


def reach_program(boxes: KernelBoxes, policy: Floats) -> tuple[Polytope, Any]:
    """The polytope with the policy fixed: Σ_y q(x,a,y) = π(a|x)·Σ_{a,y} q(x,a,y)."""
    polytope = Polytope(boxes)
    packed, sizes = boxes.layers.pack(policy), boxes.layers.sizes
    H, _, A = boxes.layers.shape
    rows: list[dict[int, float]] = []
    for h in range(H):
        for x in range(sizes[h]):
            for a in range(A):
                row = {
                    polytope.index[h, x, b, y]: -float(packed[h, x, a]) for b in range(A) for y in range(sizes[h + 1])
                }
                for y in range(sizes[h + 1]):
                    row[polytope.index[h, x, a, y]] += 1.0
                rows.append(row)
    return polytope, sp.vstack([polytope.equal, polytope._matrix(rows)])


def reach(program: tuple[Polytope, Any], step: int, state: int) -> float:
    """The largest probability of being in a packed state at a step, by a linear program."""
    polytope, equal = program
    gain = np.array([1.0 if triple[:2] == (step, state) else 0.0 for triple in polytope.triples])
    right = np.concatenate([polytope.right, np.zeros(equal.shape[0] - len(polytope.right))])
    below = polytope.below if polytope.below.shape[0] else None
    limits = None if below is None else np.zeros(below.shape[0])
    result = linprog(-gain, A_ub=below, b_ub=limits, A_eq=equal, b_eq=right, bounds=(0, None), method="highs")
    assert result.status == 0, result.message
    return float(-result.fun)
