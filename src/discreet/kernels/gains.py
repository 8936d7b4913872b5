"""Compiled: what playing another policy would have changed, per episode, by importance weights."""

from __future__ import annotations

from discreet.kernels.jit import compiled
from discreet.mdp import Floats, Ints


@compiled
def stepwise_gains(
    ends: Ints,  # (E,) one past the last row of every episode
    step: Ints,
    reward: Floats,
    ratio: Floats,  # π(a)/β(a) of every row
    rest: Floats,  # (E,) paid after the last row
    alpha: float,
    window: int,
    horizon: int,
    rate: float,  # expected per step
    gains: Floats,  # (E,) out
) -> None:
    """1/(α·m)·Σ_h (Π_{h≤g<h+m} (1−α+α·ratio_g) − 1)·(G_h − (H−h)·rate), G_h = what is paid from h on."""
    first = 0
    for e in range(ends.shape[0]):
        total, found = rest[e], 0.0
        for i in range(ends[e] - 1, first - 1, -1):
            total += reward[i]
            weight = 1.0
            for g in range(i, min(i + window, ends[e])):
                weight *= 1.0 - alpha + alpha * ratio[g]
            found += (weight - 1.0) * (total - (horizon - step[i]) * rate)
        gains[e] = found / (alpha * window)
        first = ends[e]


@compiled
def whole_weights(
    ends: Ints,
    reward: Floats,
    ratio: Floats,
    rest: Floats,
    alpha: float,
    weights: Floats,  # (E,) out: Π (1−α+α·ratio)
    returns: Floats,  # (E,) out
) -> None:
    """Weights of whole episodes when π is played with probability α at every decision, and what they paid."""
    first = 0
    for e in range(ends.shape[0]):
        weight, total = 1.0, rest[e]
        for i in range(first, ends[e]):
            weight *= 1.0 - alpha + alpha * ratio[i]
            total += reward[i]
        weights[e], returns[e] = weight, total
        first = ends[e]
