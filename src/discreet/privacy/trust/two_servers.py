"""Spotlight's reports with two servers of which neither sees one: each adds noise of its own. Proof: two_servers.md.

What runs here is a simulation with the exact law of what the two of them publish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from discreet.privacy.accounting import Trust
from discreet.privacy.trust.reports import Reports


@dataclass(frozen=True)
class TwoServerReports(Reports):
    """Every report is cut into two random shares, one for each server; each publishes the sum of its shares with
    discrete Laplace noise of scale 2m/ε (zero-out: m/ε) on every sub-cell of the targets, and both add up to the
    histogram with two noises.

    Guarantee: pure ε-DP per user against all others and either server together, two_servers.md.
    Source: ours; the shares are those of Prio.   Cost: two draws per sub-cell of the targets and epoch.
    """

    trust: ClassVar[Trust] = "two-servers"
    noises: ClassVar[int] = 2
    told: ClassVar[tuple[str, ...]] = ("at least one of the two servers keeps its shares and its noise to itself",)
