"""What a policy is worth, from the release it was learned from: post-processing, at no further cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.planning import possible_values
from discreet.problem import Mask
from discreet.releases.counts import PrivateCounts
from discreet.releases.histograms import PrivateHistogram
from discreet.releases.sparse import SparseItems

#: Failure probability of the lower bound on a policy's value: that of the widths, and of three kinds of estimates.
FAILURE = 0.05
WIDTHS, CELLS, REWARDS, START = 0.01, 0.03, 0.005, 0.005
#: In plain estimates, what lies below this share of the width of its noise counts as noise.
STANDS_OUT = 0.8
MARKOV = (
    "true if what follows a step depends on nothing but its state and action (and its number, unless pooled), and if "
    "no step was cut off or left out because of what followed it"
)


@dataclass(frozen=True)
class Scale:
    """From values of rewards scaled to [0, 1] to those of the log: U_h = (H−h)·low + (high − low)·V_h.

    `ended` is what a step pays those who left, in scaled units; None where nobody can have left.
    """

    low: float
    high: float
    horizon: int
    ended: float | None = None

    def in_units(self, values: Floats) -> Floats:
        """(H or H+1, …) values from every step on, in the units of the log."""
        left = self.horizon - np.arange(len(values), dtype=np.float64)
        return left.reshape(-1, *[1] * (values.ndim - 1)) * self.low + (self.high - self.low) * values

    def possible(self) -> tuple[Floats, Floats]:
        """(H+1,) scaled: the least and the most that the steps from h on can pay somebody who is still there."""
        return possible_values(self.horizon, *(() if self.ended is None else (self.ended,)))


def _gone(horizon: int, successors: int, states: int, ended: float | None) -> Floats:
    """(H+1, Y) of zeros, and in the place after the states what those who left will have earned."""
    value = np.zeros((horizon + 1, successors))
    if ended is not None:
        value[:, states] = ended * (horizon - np.arange(horizon + 1))
    return value


def histogram_lower_values(
    release: PrivateHistogram,
    actions: Ints,
    most_steps: int,
    rewards: Floats | None = None,
    worst: float | None = None,
) -> Floats:
    """V(h,s) ≤ the true value of the policy, for all h, s together with probability 1 − .04: post-processing.

    On the event that the widths e and e_N hold, N ≥ N̂ − e_N =: n, ‖p̂ − empirical‖₁ ≤ 2·m·e/n for m items, and the
    empirical distribution is within √(2(m·ln 2 + ln(C·T/β'))/n) of the true one for all C cells and all sample
    sizes up to T = `most_steps`; a difference of x in L1 moves the mean of any values by at most half of x times
    their range.

    Steps whose successor is unknown are left out where that is settled without looking at it (`worst` is None): n
    is then at least N̂ − e_N − Σ(x + e) over their items. Else they lead to the worst there is: `worst` per step.
    """
    assert release.beta <= WIDTHS
    cells = release.cells
    H, S, A = cells.shape
    Y = cells.num_places if worst is None else cells.num_successors
    admitted = cells.admitted[:, : 2 * Y]
    items = np.maximum(np.asarray(admitted.sum(axis=1)), 1)
    x = np.where(admitted, np.maximum(release.values[:, : 2 * Y], 0.0), 0.0)
    totals = x.sum(axis=1)
    n = np.where(cells.admitted, release.values, 0.0).sum(axis=1) - release.total_width
    n -= np.where(cells.admitted, release.values + release.width, 0.0)[:, 2 * Y :].sum(axis=1)
    error = _distance(n, items, 2.0 * items * release.width, cells.num_cells * most_steps / CELLS)
    p = np.divide(x, totals[:, None], out=np.zeros_like(x), where=totals[:, None] > 0)
    value = _gone(H, Y, S, cells.ended if cells.absorbing else None)
    if worst is not None and cells.unknown:
        value[:, -1] = worst * (H - np.arange(H + 1))
    certain = np.zeros((cells.stages, S, A)) if rewards is None else rewards
    for h in reversed(range(H)):
        g = min(h, cells.stages - 1)
        c = (g * S + np.arange(S)) * A + actions[h]
        outcome = np.stack([value[h + 1], value[h + 1] + (rewards is None)], axis=1).reshape(-1)
        surely = p[c] @ outcome - error[c] * np.ptp(outcome)
        value[h, :S] = np.maximum(surely, outcome.min()) + certain[g, np.arange(S), actions[h]]
    return value[:, :S]


def unproved_values(
    items: SparseItems, actions: Ints, rewards: Floats | None = None, worst: float | None = None
) -> Floats:
    """V(h,s) ≤ the true value of the policy where nothing is proved about what follows: the worst there is."""
    H, S, _ = items.shape
    doubtful = worst is not None and items.unknown
    value = _gone(H, items.num_places + doubtful, S, items.ended if items.absorbing else None)
    if worst is not None and items.unknown:
        value[:, -1] = worst * (H - np.arange(H + 1))
    for h in reversed(range(H)):
        g = min(h, items.stages - 1)
        least = value[h + 1].min()
        value[h, :S] = least if rewards is None else least + rewards[g, np.arange(S), actions[h]]
    return value[:, :S]


def _distance(n: Any, items: Any, moved: Any, statements: float) -> Floats:
    """Half the L1 distance of an estimated distribution from the true one, at most 1.

    At least n samples over so many items, whose counts noise moved by `moved`/2 in all; `statements` of this kind are
    made, divided by the probability with which one of them may fail.
    """
    safe = np.maximum(n, 1.0)
    half = 0.5 * (moved / safe + np.sqrt(2.0 * (items * math.log(2.0) + math.log(statements)) / safe))
    return np.where(n >= 1.0, np.minimum(half, 1.0), 1.0)


def faint_rate(paid: float, steps: float, deviation: float) -> float:
    """What cells whose payments do not stand out pay per step on average; 0 if even their sum does not."""
    if steps <= 0.0 or paid < 3.0 * deviation:
        return 0.0
    return min(max(float(paid / steps), 0.0), 1.0)


def counted_values(
    release: PrivateCounts,
    actions: Ints,
    rewards: Floats | None = None,
    ended: float | None = None,
    unknown: bool = False,
    worst: float | None = None,
) -> tuple[Floats, Floats]:
    """(plain estimate, lower bound) of the policy's values, as above; projected counts are within 2e of the truth.

    The plain estimate is of what stands out: transitions and sums of rewards below `STANDS_OUT` of their width
    count as noise, unless nothing else is there.
    """
    assert release.beta <= WIDTHS
    H, S = actions.shape
    Y = release.transitions.shape[-1] - (unknown and worst is None)
    model = release.model()
    counts = model.transitions[..., :Y] * model.visits[..., None]
    e, total = np.asarray(release.width), counts.sum(axis=-1)
    n = total - 2.0 * Y * e
    cells, most_steps = model.visits.size, release.num_episodes * release.horizon
    error = _distance(n, Y, 4.0 * Y * e, cells * most_steps / CELLS)
    P = np.divide(counts, total[..., None], out=np.zeros_like(counts), where=total[..., None] > 0.0)
    every = model.visits - 2.0 * release.transitions.shape[-1] * e
    if rewards is None:
        paid = model.rewards
        moved = (np.asarray(release.widths.rewards) + 2.0 * release.transitions.shape[-1] * e) / np.maximum(
            every, 1.0
        )
        union = math.log(2.0 * cells * most_steps / REWARDS)
        chance = np.sqrt(union / (2.0 * np.maximum(every, 1.0)))
        doubt = np.where(every >= 1.0, np.minimum(moved + chance, 1.0), 1.0)
        faint = release.reward_sums <= STANDS_OUT * np.asarray(release.widths.rewards)
        spread = float(np.max(release.deviations.rewards)) * math.sqrt(faint.sum())
        rate = faint_rate(release.reward_sums[faint].sum(), model.visits[faint].sum(), spread)
        likely = np.where(faint, np.where(model.visits > 0.0, rate, 0.0), paid)
    else:
        paid, doubt, likely = rewards, np.zeros(rewards.shape), rewards
    place = release.transitions.shape[-1] - unknown
    sharp = np.where(counts > STANDS_OUT * e[..., None], counts, 0.0)[..., :place]
    sharp = np.where(sharp.any(axis=-1, keepdims=True), sharp, counts[..., :place])
    whole = sharp.sum(axis=-1, keepdims=True)
    sharp = np.divide(sharp, whole, out=np.zeros_like(sharp), where=whole > 0.0)
    plain = plain_values(sharp, likely, np.zeros(likely.shape), model.visits, model.visits > 0.0, actions, ended)
    lower = _gone(H, Y, S, ended)
    if unknown and worst is not None:
        lower[:, -1] = worst * (H - np.arange(H + 1))
    states = np.arange(S)
    for h in reversed(range(H)):
        g = min(h, model.visits.shape[0] - 1)
        where = g, states, actions[h]
        sure = np.maximum(paid[where] - doubt[where], 0.0)
        after = lower[h + 1]
        lower[h, :S] = sure + np.maximum(P[where] @ after - error[where] * np.ptp(after), after.min())
    return plain, lower[:, :S]


def plain_values(
    P: Floats,  # (G, S, A, places); rows that lead nowhere are 0
    r: Floats,  # (G, S, A)
    reward_variance: Floats,
    n: Floats,
    known: Mask,
    actions: Ints,
    ended: float | None,
) -> Floats:
    """(H+1, S) V = r + P·V' − √(2·U·ln A), U_h = Var(r + V')/n + P·U_{h+1}: what the policy seems to be worth.

    It was chosen as the best of A at every step, each of which is off by chance: of such the best is too good by
    about its standard error times √(2 ln A). Where nothing is known, what follows is the least.
    """
    (H, S), places = actions.shape, P.shape[-1]
    value, doubt = _gone(H, places, S, ended), np.zeros((H + 1, places))
    least, most = possible_values(H, *(() if ended is None else (ended,)))
    for h in reversed(range(H)):
        where = min(h, len(P) - 1), np.arange(S), actions[h]
        after, p = value[h + 1], P[where]
        nowhere, low = 1.0 - p.sum(axis=-1), after.min()
        mean = p @ after + nowhere * low
        variance = reward_variance[where] + p @ after**2 + nowhere * low**2 - mean**2
        value[h, :S] = np.clip(r[where] + np.where(known[where], mean, least[h]), least[h], most[h])
        doubt[h, :S] = np.where(
            known[where], np.maximum(variance, 0.0) / np.maximum(n[where], 1.0) + p @ doubt[h + 1], 0.0
        )
    chosen = np.sqrt(2.0 * math.log(P.shape[2]) * doubt[:, :S])
    return np.maximum(value[:, :S] - chosen, least[:, None])


class Start(NamedTuple):
    """Where episodes start, and how far that may be from the truth (half the L1 distance; 0 if it was declared)."""

    shares: Floats  # (S,)
    doubt: float = 0.0


def start_of(counts: Floats, width: float, most_episodes: int) -> Start | None:
    """From noisy numbers of first states, each within `width` of the truth; None where they say nothing."""
    positive = np.maximum(counts, 0.0)
    if not positive.any():
        return None
    S = counts.size
    doubt = _distance(counts.sum() - S * width, S, 2.0 * S * width, most_episodes / START)
    return Start(positive / positive.sum(), float(doubt))


def worth(plain: Floats | None, lower: Floats, cautious: Floats, start: Start | None, scale: Scale) -> dict[str, Any]:
    """Values from the first step, in the units of the log; without a start only what holds for every start.

    Arguments are scaled. Regressions have no plain estimate: each is of cautious values. The width is then that of
    the cautious value.
    """
    least, most = (float(bound[0]) for bound in scale.possible())

    def units(value: float) -> float:
        clipped = min(max(value, least), most)
        return float(scale.in_units(np.array([clipped]))[0])

    surely = float(lower[0].min())
    found: dict[str, Any] = {"value_estimate": None, "value_cautious": None, "value_lower": units(surely)}
    if start is not None:
        from_start = float(start.shares @ lower[0]) - start.doubt * float(np.ptp(lower[0]))
        surely = max(from_start, surely)
        found = {
            "value_estimate": None if plain is None else units(max(float(start.shares @ plain[0]), surely)),
            "value_cautious": units(float(start.shares @ cautious[0])),
            "value_lower": units(surely),
        }
    meaning = "totals of rewards in the units of the log, from the same noisy release: no further privacy is spent"
    if start is None:
        meaning += "; the lower one holds wherever people start, and where they do must be declared for an estimate"
    estimate = found["value_cautious"] if plain is None else found["value_estimate"]
    return {
        **found,
        "width": None if estimate is None else estimate - found["value_lower"],
        "possible_values": [units(least), units(most)],
        "failure_probability_of_the_lower_value": FAILURE,
        "the_lower_value_is": MARKOV,
        "values_are": meaning,
    }
