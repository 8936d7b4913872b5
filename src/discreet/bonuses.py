"""Optimism and pessimism: every formula beside its source. All constants are post-processing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from discreet.mdp import Floats
from discreet.planning import Bonus


class Coefficients(NamedTuple):
    """A bonus of the form (root·1 + per_std·Std)/√n + inverse/n: all that depends on a cell is its count n."""

    root: float
    inverse: float
    per_std: float


def per_count(n: Floats, coefficients: Coefficients) -> Bonus:
    """Evaluate a bonus at counts; a cell that was never visited gets an infinite one."""
    root, inverse, per_std = coefficients
    seen = n > 0
    safe = np.where(seen, n, 1.0)
    square_root = np.sqrt(safe)
    fixed = np.where(seen, root / square_root + inverse / safe, np.inf)
    return Bonus(fixed, np.where(seen, per_std / square_root, 0.0))


def hoeffding(shape: tuple[int, int, int], num_episodes: int, beta: float, scale: float) -> Coefficients:
    """b = 7·H·L/√n with L = ln(5·S·A·T/β). Source: [AOM17] bonus 1."""
    H, S, A = shape
    L = math.log(5 * S * A * num_episodes * H / beta)
    return Coefficients(root=scale * 7 * H * L, inverse=0.0, per_std=0.0)


def bernstein(shape: tuple[int, int, int], num_episodes: int, beta: float, scale: float) -> Coefficients:
    """b = √(8L·Var/n) + 14·H·L/(3n) + √(8·Σ_y P(y)·min{100²·H³S²A·L²/N(y), H²}/n). Source: [AOM17] bonus 2.

    The minimum is H² until a state has been visited 10⁴·H·S²·A·L² times (`saturated_until`); below that the
    last term is H·√(8/n).
    """
    H, S, A = shape
    L = math.log(5 * S * A * num_episodes * H / beta)
    return Coefficients(
        root=scale * math.sqrt(8) * H, inverse=scale * 14 * H * L / 3, per_std=scale * math.sqrt(8 * L)
    )


def saturated_until(shape: tuple[int, int, int], num_episodes: int, beta: float) -> float:
    """Visits to one state below which the minimum in `bernstein` is H²."""
    H, S, A = shape
    L = math.log(5 * S * A * num_episodes * H / beta)
    return 1e4 * H * S * S * A * L * L
