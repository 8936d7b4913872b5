"""A test of messages in unary encoding: too few or too many bits are on to come from the randomiser.

It reads the message alone, so that it is post-processing and costs no privacy; what it does to the honest is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from discreet.problem import Mask


@dataclass(frozen=True)
class Popcount:
    """A message over `items` bits counts if between `fewest` and `most` of them are on.

    Honest people have Bin(D, q) bits on with nothing to report, and Bin(D−1, q) + Bernoulli(½) with an item.
    """

    items: int
    share: float  # q
    fewest: int
    most: int

    @classmethod
    def at(cls, items: int, share: float, rate: float) -> Popcount:
        """The narrowest range that refuses an honest message with probability at most `rate`, whatever she reports.

        Half of the rate on either side; with an item more bits are on, so that it decides the upper end.
        """
        if not 0.0 < rate < 1.0:
            raise ValueError(f"the rate of false refusals is {rate}; it must lie strictly between 0 and 1")
        few, many = _law(items, share, False), _law(items, share, True)
        fewest = int(np.searchsorted(np.cumsum(few), rate / 2.0, side="right"))
        above = np.append(np.cumsum(many[::-1])[::-1][1:], 0.0)  # P(X > x)
        most = int(np.flatnonzero(above <= rate / 2.0)[0])
        return cls(items, share, fewest, most)

    def passes(self, messages: NDArray[np.bool_]) -> Mask:
        """(n,): which rows of bits count."""
        on = np.count_nonzero(messages, axis=1)
        return np.asarray((self.fewest <= on) & (on <= self.most))

    def refused(self, reporting: bool) -> float:
        """The probability that an honest message is refused, with an item or without."""
        return float(1.0 - _law(self.items, self.share, reporting)[self.fewest : self.most + 1].sum())

    def read(self) -> tuple[float, float]:
        """What an honest person with an item adds on average: to her item (1 without the test), and to any other (0).

        Whoever is refused counts as one who has nothing to report, with a message that the server draws.
        """
        D, q = self.items, self.share
        rest = stats.binom.pmf(np.arange(D), D - 1, q)  # of the bits beside her own
        own = 0.5 * float(rest[max(self.fewest - 1, 0) : self.most].sum())
        refused = self.refused(True)
        bits = np.arange(D) / max(D - 1, 1)
        off, on = (rest * bits)[self.fewest : self.most + 1], (rest * bits)[max(self.fewest - 1, 0) : self.most]
        other = 0.5 * float(off.sum() + on.sum())
        return (own + refused * q - q) / (0.5 - q), (other + refused * q - q) / (0.5 - q)


def _law(items: int, share: float, reporting: bool) -> NDArray[np.float64]:
    """P(X = 0..D) of the number of bits that are on."""
    if not reporting:
        return np.asarray(stats.binom.pmf(np.arange(items + 1), items, share))
    rest = stats.binom.pmf(np.arange(items), items - 1, share)
    return np.asarray(0.5 * (np.append(rest, 0.0) + np.append(0.0, rest)))
