"""Private regressions as an algorithm sees them: it asks for one per step, in public, and gets noisy moments back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from discreet.mdp import Floats


class Target(NamedTuple):
    """y = reward_weight(s,a)·r + successor(s,a,s'), which must lie in [−bound, bound]; r ∈ [0, 1]."""

    successor: Floats  # (S, A, Y)
    reward_weight: Floats  # (S, A)
    bound: float


@dataclass(frozen=True, eq=False)
class PrivateRegression:
    """Σψψᵀ and Σψy for every target, noisy; the width bounds the matrix's noise with probability 1 − beta.

    What was summed is not quite ψ and y: ψ was moved by at most `feature_rounding`, y by `target_rounding`.
    """

    matrix: Floats  # (d, d), symmetric
    vectors: tuple[Floats, ...]
    matrix_width: float  # in operator norm
    num_users: int
    matrix_deviation: float = 0.0  # of the noise off the diagonal
    vector_deviations: tuple[float, ...] = ()
    most_rows: int = 0  # that the sums can have: a public number
    feature_rounding: float = 0.0
    target_rounding: float = 0.0


class Question(NamedTuple):
    """Which regression an algorithm wants next, in public; every (step, part) is answered only once."""

    step: int
    part: str
    features: Floats  # (S, A, d)
    targets: Sequence[Target]


def normalised_features(features: Floats) -> tuple[Floats, float]:
    """(features divided by their largest norm, that norm); features within the unit ball stay as they are."""
    table = np.asarray(features, dtype=np.float64)
    if table.ndim != 3 or min(table.shape) < 1 or not np.isfinite(table).all():
        raise ValueError(f"features have shape {table.shape}; expected finite numbers (S, A, d)")
    longest = float(np.linalg.norm(table, axis=-1).max())
    return (table / longest, longest) if longest > 1.0 else (table, 1.0)
