"""How many people a learner of reports loses on a problem that is known: it is tried, in place of a rule.

The rule of `feasibility` has nothing but sizes and branching, and problems of one size differ by a factor of three
(docs/spotlight.md, "Users lost"). Where there is a simulator, a few runs on it say more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from discreet.privacy.trust.reports import SMALL_GAPS
from discreet.runs.experiment import Setting, run
from discreet.runs.feasibility import learns_from_reports, rounded
from discreet.runs.forecasts import Forecast

#: Seeds that nobody takes by chance, so that a rehearsal is never the run itself.
SEEDS = tuple(range(2**31, 2**31 + 5))
#: How far the rule may be above what is needed; SMALL_GAPS says how far below.
TOO_CAUTIOUS = 2.0
#: Where people are too few to learn anything, four times as many may be tried, up to a million.
MORE, MOST_PEOPLE = 4, 1_000_000
#: Cells above which a run takes longer than people wait for an answer.
MOST_CELLS = 1_000


@dataclass(frozen=True)
class Rehearsal:
    """Simulated runs of `people` each, and how many of them were lost: regret over that of the random policy."""

    people: int
    lost: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.lost)


def rehearse(setting: Setting, most: int) -> Rehearsal:
    """As many people as are expected; where those learn nothing, more, while they are at most `most`."""
    people = setting.said.episodes
    while True:
        tried = replace(setting.said, episodes=people)
        found = Rehearsal(people, tuple(people * float(run(tried, seed).regret_ratio or 0.0) for seed in SEEDS))
        if found.mean <= people / 2 or people * MORE > most:
            return found
        people *= MORE


def doubtful(setting: Setting, law: Forecast) -> bool:
    """Whether the rule leaves open if there are people enough, and trying it is a matter of seconds."""
    if not learns_from_reports(setting.triple().privatizer) or setting.spec.sizes[0] > MOST_CELLS:
        return False
    assert law.users_needed is not None
    return law.users_needed / TOO_CAUTIOUS <= setting.said.episodes <= law.users_needed * SMALL_GAPS


def rehearsed(setting: Setting, law: Forecast, most: int = 0) -> Forecast:
    """What the rule says, but for what was tried."""
    people, found = setting.said.episodes, rehearse(setting, most)
    learned, low, high = found.mean <= found.people / 2, min(found.lost), max(found.lost)
    feasible, needed = learned and found.people == people, int(rounded(2 * found.mean))
    if not learned:  # more would be lost of more people; the rule may see even further, and must not say fewer
        needed = max(needed, law.users_needed or 0)
    verdict = (
        f"on {setting.mdp.name}, {people:,} users can{'' if feasible else 'not'} be learned from: about "
        f"{rounded(found.mean):,.0f} of {found.people:,} are lost in simulated runs ({rounded(low):,.0f} to "
        f"{rounded(high):,.0f})"
    )
    if not feasible:
        verdict += f"; raise epsilon or collect {'about' if learned else 'far more, perhaps'} {needed:,} users"
    return replace(law, feasible=feasible, verdict=verdict, width_share=found.mean / people, users_needed=needed)
