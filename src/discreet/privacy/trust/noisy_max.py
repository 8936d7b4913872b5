"""The best of several by noisy scores, and nothing else of the scores. Proof: noisy_max.md."""

from __future__ import annotations

import math

import numpy as np

from discreet.mdp import Ints
from discreet.privacy.accounting import LedgerEntry, laplace_entry, laplace_scale
from discreet.privacy.families import samplable
from discreet.privacy.noise import Geometric, NoiseSource

#: The name of the mechanism in ledgers. Its sensitivity is a range: how far two scores can move against each other.
NOISY_MAX = "noisy-max"


def noisy_max(scores: Ints, scale: float, noise: NoiseSource) -> Ints:
    """The first index with the largest score + geometric noise of this scale, along the last axis."""
    if scores.ndim == 0 or scores.shape[-1] == 0 or scores.dtype != np.int64:
        raise ValueError(
            f"scores have shape {scores.shape} and type {scores.dtype}; expected rows of 64-bit integers"
        )
    return np.asarray(np.argmax(scores + noise.geometric(scale, scores.shape), axis=-1), dtype=np.int64)


def noisy_max_scale(name: str, span: float, epsilon: float) -> float:
    """Scale of the noise at which scores that move against each other by at most `span` cost ε."""
    return samplable(name, laplace_scale(span, epsilon) if math.isfinite(epsilon) else 0.0)


def noisy_max_entry(name: str, span: float, scale: float, uses: int = 1) -> LedgerEntry:
    """Its ledger line: range × log-ratio of the sampled law × uses."""
    ratio = Geometric(scale).log_ratio if scale > 0.0 else math.inf
    return laplace_entry(name, span, scale, uses, ratio, NOISY_MAX)
