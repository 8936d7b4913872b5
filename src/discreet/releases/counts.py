"""What an algorithm may see: noisy sums, how wrong they can be, and valid models made of them.

Everything here is post-processing of a privatizer's output: free of privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from discreet.kernels.models import ALL_SUCCESSORS, valid_model
from discreet.mdp import Floats, frozen
from discreet.problem import NOTHING_DECLARED, PublicStructure


@dataclass(frozen=True, eq=False)
class PerTable:
    """One number (or one array shaped like the table) for each table of counts, in the table's units."""

    visits: float | Floats = 0.0
    transitions: float | Floats = 0.0
    rewards: float | Floats = 0.0

    @cached_property
    def of_counts(self) -> float | Floats:
        """The larger of a cell's own and its successors'; one number where all are numbers."""
        if isinstance(self.visits, float) and isinstance(self.transitions, float):
            return max(self.visits, self.transitions)
        transitions = np.asarray(self.transitions)
        largest: Floats = np.maximum(self.visits, transitions.max(axis=-1) if transitions.ndim else transitions)
        return largest

    @cached_property
    def of_all(self) -> float | Floats:
        """The largest of all three."""
        counts = self.of_counts
        if isinstance(counts, float) and isinstance(self.rewards, float):
            return max(counts, self.rewards)
        largest: Floats = np.maximum(counts, self.rewards)
        return largest


@lru_cache(maxsize=16)
def _constant(shape: tuple[int, ...], value: float) -> Floats:
    return frozen(np.full(shape, value))


def _filled(shape: tuple[int, ...], value: float | Floats) -> Floats:
    """The value everywhere; one number is the same array after every episode."""
    return _constant(shape, value) if isinstance(value, float) else np.full(shape, value)


class Model(NamedTuple):
    """A valid estimate: rows of P̃ are distributions, r̃ lies in [0, 1] (the scaled reward range), Ñ ≥ 0."""

    transitions: Floats  # (G, S, A, S)
    rewards: Floats  # (G, S, A)
    visits: Floats  # (G, S, A)


def placed(model: Model) -> tuple[Model, Floats]:
    """Without the last successor, "nobody knows where": (model of the steps that lead somewhere, their share).

    Rewards and visits are those of all steps. A row without any such step is 0 everywhere.
    """
    P = model.transitions[:, :-1, :, :-1]
    share = P.sum(axis=-1)
    rows = np.divide(P, share[..., None], out=np.zeros_like(P), where=share[..., None] > 0.0)
    return Model(rows, model.rewards[:, :-1], model.visits[:, :-1]), share


@dataclass(frozen=True, eq=False)
class PrivateCounts:
    """Noisy sums over the first `num_episodes` users.

    `widths` bound the error of every entry of a table, all entries and all releases of a run together, with
    probability at least 1 − beta; `deviations` are the standard deviations of the noise present now. Both are
    functions of public parameters.
    """

    visits: Floats  # (G, S, A)
    transitions: Floats  # (G, S, A, S)
    reward_sums: Floats  # (G, S, A), of rewards scaled so that the public range is [0, 1]
    horizon: int
    num_episodes: int
    widths: PerTable = PerTable()
    deviations: PerTable = PerTable()
    beta: float = 0.0
    reward_range: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        for name in ("visits", "transitions", "reward_sums"):
            given = getattr(self, name)
            if (settled := frozen(given)) is not given:
                object.__setattr__(self, name, settled)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, S, A), whether or not the counts are pooled."""
        return self.horizon, int(self.visits.shape[1]), int(self.visits.shape[2])

    @property
    def width(self) -> Floats:
        """e(g,s,a): the larger of the widths of a cell's count and of its successors' counts."""
        return _filled(self.visits.shape, self.widths.of_counts)

    @property
    def largest_width(self) -> Floats:
        """(G, S, A): the largest width of a cell in any table."""
        return _filled(self.visits.shape, self.widths.of_all)

    def model(self, shift: bool = False, structure: PublicStructure = NOTHING_DECLARED) -> Model:
        """Project the noisy counts onto valid ones and divide.

        x = argmin max_s' |x_s' − N̂(s,a,s')|  s.t.  x ≥ 0, |Σx − N̂(s,a)| ≤ e;  P̃ = x/Σx, uniform where Σx = 0.
        `shift` adds the 2e of the theorems (E/2 with E = 4e), spread evenly over successors, so that
        Ñ(s,a) ≥ N(s,a) on the event that the widths hold. Successors and zero rewards that are declared public
        restrict both.
        Source: [QW23] §5.1.1, [BZZDTCC24] Eq. 5.1–5.2.
        """
        cells, known = self.visits.shape, structure.successors
        model = Model(np.empty(self.transitions.shape), np.empty(cells), np.empty(cells))
        valid_model(
            self.transitions,
            self.visits,
            self.reward_sums,
            self.width,
            2.0 if shift else 0.0,
            ALL_SUCCESSORS if known is None else np.ascontiguousarray(known.reshape(-1, known.shape[-1])),
            *model,
        )
        if structure.zero_rewards is not None:
            model.rewards[structure.zero_rewards] = 0.0
        return model


@dataclass(frozen=True, eq=False)
class Thresholds:
    """A public announcement: in cell (g,s,a) only rewards with |r| ≤ values[g,s,a] are counted, others count as 0."""

    values: Floats  # (G, S, A)

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError("every threshold must be a finite number above 0")
        object.__setattr__(self, "values", frozen(values))


@dataclass(frozen=True, eq=False)
class PrivateLosses:
    """Noisy sums of an adversarial problem: transitions and losses of the first `num_episodes` users.

    `latest` holds the losses of the last closed block alone. Deviations are those of the noise present now; widths
    bound every entry of all releases together with probability at least 1 − beta (infinite where none was computed).
    """

    visits: Floats | None  # (H, S, A), where it is released beside the transitions
    transitions: Floats  # (H, S, A, S), none at the last step
    losses: Floats  # (H, S, A), cumulative
    latest: Floats  # (H, S, A), of the last block
    num_episodes: int
    counted: int  # users behind the counts
    block_users: int  # users of the last block
    num_blocks: int
    count_deviation: float = 0.0
    count_width: float = 0.0
    loss_deviation: float = 0.0
    loss_width: float = 0.0  # of one block

    def __post_init__(self) -> None:
        for name in ("visits", "transitions", "losses", "latest"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name)))
