"""What a policy is worth, from the release it was learned from: post-processing, at no further cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from discreet.histograms import PrivateHistogram
from discreet.mdp import Floats, Ints
from discreet.releases import PrivateCounts

#: Failure probability of the lower bound on a policy's value.
FAILURE = 0.05


def histogram_lower_values(release: PrivateHistogram, actions: Ints, rewards: Floats | None = None) -> Floats:
    """V(h,s) ≤ the true value of the policy, for all h, s together with probability 1 − .05: post-processing.

    On the event that the widths e and e_N hold, N ≥ N̂ − e_N =: n, ‖p̂ − empirical‖₁ ≤ 2·m·e/n for m items, and the
    empirical distribution is within √(2(m·ln 2 + ln(C·K·H/β'))/n) of the true one for all cells and sample sizes; a
    difference of x in L1 moves the mean of any values by at most half of x times their range.
    """
    cells = release.cells
    x = np.where(cells.admitted, np.maximum(release.values, 0.0), 0.0)
    totals = x.sum(axis=1)
    n = np.where(cells.admitted, release.values, 0.0).sum(axis=1) - release.total_width
    error = _errors(
        n, cells.sizes, 2.0 * cells.sizes * release.width, cells.num_cells, release.num_users, cells.horizon
    )
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


def _errors(n: Floats, items: Any, moved: Any, num_cells: int, num_users: int, horizon: int) -> Floats:
    """Half the L1 distance of an estimated distribution from the true one, at most 1."""
    safe = np.maximum(n, 1.0)
    union = math.log(num_cells * num_users * horizon / (0.8 * FAILURE))
    half = 0.5 * (moved / safe + np.sqrt(2.0 * (items * math.log(2.0) + union) / safe))
    return np.where(n >= 1.0, np.minimum(half, 1.0), 1.0)


def counted_values(release: PrivateCounts, actions: Ints, rewards: Floats | None = None) -> tuple[Floats, Floats]:
    """(plain estimate, lower bound) of the policy's values, as above; projected counts are within 2e of the truth."""
    H, S = actions.shape
    Y = release.transitions.shape[-1]
    model = release.model()
    e = release.width
    n = model.visits - 2.0 * Y * e
    cells = model.visits.size
    error = _errors(n, Y, 4.0 * Y * e, cells, release.num_episodes, H)
    if rewards is None:
        paid = model.rewards
        moved = (np.asarray(release.widths.rewards) + 2.0 * Y * e) / np.maximum(n, 1.0)
        union = math.log(2.0 * cells * release.num_episodes * H / (0.2 * FAILURE))
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


def shares(counts: Floats) -> Floats | None:
    positive = np.maximum(counts, 0.0)
    return positive / positive.sum() if positive.sum() > 0 else None


def worth(plain: Floats | None, lower: Floats, cautious: Floats, start: Floats | None) -> dict[str, Any]:
    """Values from the first step, in scaled reward; without a start distribution only what holds for every start.

    Regressions have no plain estimate: each is of cautious values. The width is then that of the cautious value.
    """
    found: dict[str, Any] = {"value_estimate": None, "value_cautious": None, "value_lower": float(lower[0].min())}
    if start is not None:
        found = {
            "value_estimate": None if plain is None else float(start @ plain[0]),
            "value_cautious": float(start @ cautious[0]),
            "value_lower": float(start @ lower[0]),
        }
    estimate = found["value_cautious"] if plain is None else found["value_estimate"]
    return {
        **found,
        "width": None if estimate is None else estimate - found["value_lower"],
        "failure_probability_of_the_lower_value": FAILURE,
        "values_are": "totals of rewards scaled to [0, 1], from the same noisy release: no further privacy is spent",
    }
