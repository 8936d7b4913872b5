"""One noisy histogram over what one step can be: the release of the one-hot learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.mdp import Floats, frozen
from discreet.releases.items import Items


@dataclass(frozen=True, eq=False)
class PrivateHistogram:
    """Noisy numbers of steps per item, of the users who were asked.

    `width` bounds the error of all items together with probability at least 1 − beta/2, `total_width` that of all
    cells' sums; `variance` is that of the noise on one item. All are functions of public numbers.
    """

    cells: Items
    values: Floats  # (C, 2Y); items that do not exist are 0
    num_users: int
    variance: float
    width: float
    total_width: float
    beta: float
    tilted: bool = False  # one step per user, chosen with public weights, instead of all steps

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self.variance))
