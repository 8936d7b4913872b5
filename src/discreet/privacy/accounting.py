"""What a guarantee is, what it costs, and how costs add up: pure functions of public numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Model = Literal["joint", "local", "shuffle", "central", "none"]
Neighbours = Literal["replace", "zero-out"]


@dataclass(frozen=True)
class LedgerEntry:
    """One mechanism applied to one statistic."""

    statistic: str  # "visits", "transitions", "rewards", "losses", ...
    mechanism: str  # "discrete-laplace", "discrete-gaussian", ...
    norm: Literal["l1", "l2"]
    sensitivity: float  # of one user's contribution, in integer-grid units
    scale: float  # of the noise, in the same units (Laplace: b; Gaussian: sigma)
    uses: int  # noisy values one user's contribution enters (tree: levels)
    cost: float  # epsilon (pure mechanisms) or rho (Gaussian), all uses together


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy statement with everything one needs to read it."""

    model: Model
    epsilon: float
    delta: float = 0.0
    rho: float | None = None
    neighbours: Neighbours = "replace"
    unit: str = "user (1 episode)"
    entries: tuple[LedgerEntry, ...] = ()
    assumptions: tuple[str, ...] = ()
