"""What a policy is worth, from the release it was learned from: post-processing, at no further cost."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from discreet.histograms import PrivateHistogram
from discreet.mdp import Floats, Ints
from discreet.releases import PrivateCounts

#: Failure probability of the lower bound on a policy's value: that of the widths, and of three kinds of estimates.
FAILURE = 0.05
WIDTHS, CELLS, REWARDS, START = 0.01, 0.03, 0.005, 0.005
MARKOV = "true if what follows a step depends on nothing but its state and action (and its number, unless pooled)"


def histogram_lower_values(
    release: PrivateHistogram, actions: Ints, most_steps: int, rewards: Floats | None = None
) -> Floats:
    """V(h,s) ≤ the true value of the policy, for all h, s together with probability 1 − .04: post-processing.

    On the event that the widths e and e_N hold, N ≥ N̂ − e_N =: n, ‖p̂ − empirical‖₁ ≤ 2·m·e/n for m items, and the
    empirical distribution is within √(2(m·ln 2 + ln(C·T/β'))/n) of the true one for all C cells and all sample
    sizes up to T = `most_steps`; a difference of x in L1 moves the mean of any values by at most half of x times
    their range.
    """
    assert release.beta <= WIDTHS
    cells = release.cells
    x = np.where(cells.admitted, np.maximum(release.values, 0.0), 0.0)
    totals = x.sum(axis=1)
    n = np.where(cells.admitted, release.values, 0.0).sum(axis=1) - release.total_width
    error = _distance(n, cells.sizes, 2.0 * cells.sizes * release.width, cells.num_cells * most_steps / CELLS)
    p = np.divide(x, totals[:, None], out=np.zeros_like(x), where=totals[:, None] > 0)
    H, S, A = cells.shape
    value = np.zeros((H + 1, cells.num_successors))
    certain = np.zeros((cells.stages, S, A)) if rewards is None else rewards
    for h in reversed(range(H)):
        g = min(h, cells.stages - 1)
        c = (g * S + np.arange(S)) * A + actions[h]
        outcome = np.stack([value[h + 1], value[h + 1] + (rewards is None)], axis=1).reshape(-1)
        surely = p[c] @ outcome - error[c] * np.ptp(outcome)
        value[h, :S] = np.maximum(surely, outcome.min()) + certain[g, np.arange(S), actions[h]]
    return value[:, :S]


def _distance(n: Any, items: Any, moved: Any, statements: float) -> Floats:
    """Half the L1 distance of an estimated distribution from the true one, at most 1.

    At least n samples over so many items, whose counts noise moved by `moved`/2 in all; `statements` of this kind are
    made, divided by the probability with which one of them may fail.
    """
    safe = np.maximum(n, 1.0)
    half = 0.5 * (moved / safe + np.sqrt(2.0 * (items * math.log(2.0) + math.log(statements)) / safe))
    return np.where(n >= 1.0, np.minimum(half, 1.0), 1.0)


def counted_values(release: PrivateCounts, actions: Ints, rewards: Floats | None = None) -> tuple[Floats, Floats]:
    """(plain estimate, lower bound) of the policy's values, as above; projected counts are within 2e of the truth."""
    assert release.beta <= WIDTHS
    H, S = actions.shape
    Y = release.transitions.shape[-1]
    model = release.model()
    e = release.width
    n = model.visits - 2.0 * Y * e
    cells, most_steps = model.visits.size, release.num_episodes * release.horizon
    error = _distance(n, Y, 4.0 * Y * e, cells * most_steps / CELLS)
    if rewards is None:
        paid = model.rewards
        moved = (np.asarray(release.widths.rewards) + 2.0 * Y * e) / np.maximum(n, 1.0)
        union = math.log(2.0 * cells * most_steps / REWARDS)
        doubt = np.where(n >= 1.0, np.minimum(moved + np.sqrt(union / (2.0 * np.maximum(n, 1.0))), 1.0), 1.0)
    else:
        paid, doubt = rewards, np.zeros(rewards.shape)
    plain, lower = np.zeros((H + 1, Y)), np.zeros((H + 1, Y))
    states = np.arange(S)
    for h in reversed(range(H)):
        g = min(h, model.visits.shape[0] - 1)
        where = g, states, actions[h]
        plain[h, :S] = paid[where] + model.transitions[where] @ plain[h + 1]
        sure = np.maximum(paid[where] - doubt[where], 0.0)
        after = lower[h + 1]
        lower[h, :S] = sure + np.maximum(model.transitions[where] @ after - error[where] * np.ptp(after), after.min())
    return plain[:, :S], lower[:, :S]


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


def worth(plain: Floats | None, lower: Floats, cautious: Floats, start: Start | None) -> dict[str, Any]:
    """Values from the first step, in scaled reward; without a start distribution only what holds for every start.

    Regressions have no plain estimate: each is of cautious values. The width is then that of the cautious value.
    """
    least = float(lower[0].min())
    found: dict[str, Any] = {"value_estimate": None, "value_cautious": None, "value_lower": least}
    if start is not None:
        surely = float(start.shares @ lower[0]) - start.doubt * float(np.ptp(lower[0]))
        found = {
            "value_estimate": None if plain is None else float(start.shares @ plain[0]),
            "value_cautious": float(start.shares @ cautious[0]),
            "value_lower": max(surely, least),
        }
    meaning = "totals of rewards scaled to [0, 1], from the same noisy release: no further privacy is spent"
    if start is None:
        meaning += "; the lower one holds wherever people start, and where they do must be declared for an estimate"
    estimate = found["value_cautious"] if plain is None else found["value_estimate"]
    return {
        **found,
        "width": None if estimate is None else estimate - found["value_lower"],
        "failure_probability_of_the_lower_value": FAILURE,
        "the_lower_value_is": MARKOV,
        "values_are": meaning,
    }
