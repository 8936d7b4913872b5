"""Slow, plain forms of what shuffled bits are: exact divergences by enumeration, policies one by one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats


def binomial_law(bits: int, probability: Fraction) -> dict[int, Fraction]:
    return {j: math.comb(bits, j) * probability**j * (1 - probability) ** (bits - j) for j in range(bits + 1)}


def exact_delta(bits: int, probability: Fraction, down: int, up: int, epsilon: float) -> float:
    """Σ (P − e^ε·Q)⁺ over all outcomes of all changed counters, both directions, in exact fractions."""
    law = binomial_law(bits, probability)
    ratio = Fraction(math.exp(epsilon))
    falling = [(law.get(v - 1, Fraction(0)), law.get(v, Fraction(0))) for v in range(bits + 2)]
    rising = [(q, p) for p, q in falling]
    worst = Fraction(0)
    for first, second in ((down, up), (up, down)):
        total = Fraction(0)
        for outcome in itertools.product(*([falling] * first + [rising] * second)):
            p = math.prod(pair[0] for pair in outcome)
            q = math.prod(pair[1] for pair in outcome)
            total += max(Fraction(0), p - ratio * q)
        worst = max(worst, total)
    return float(worst)


def accountant_epsilon(bits: int, probability: float, changed: int, delta: float, step: float = 2e-4) -> float:
    """dp-accounting's ε of `changed` falling and as many rising bits, at most 2·changed·step too large."""
    log = stats.binom.logpmf(np.arange(bits + 1), bits, probability)
    upper = {j: float(x) for j, x in enumerate(log) if x > -80.0}
    lower = {j + 1: x for j, x in upper.items()}
    loss = None
    for one, other in ((lower, upper), (upper, lower)):
        part = pld.from_two_probability_mass_functions(
            one, other, pessimistic_estimate=True, value_discretization_interval=step
        ).self_compose(changed)
        loss = part if loss is None else loss.compose(part)
    assert loss is not None
    return float(loss.get_epsilon_for_delta(delta))


def all_policy_values(mdp) -> dict[tuple[int, ...], float]:
    """The value of every deterministic policy (actions at all (h, s), h-major), one backward pass each."""
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    P, r = mdp.staged().transitions, mdp.staged().rewards
    found = {}
    for digits in itertools.product(range(A), repeat=H * S):
        V = np.zeros(S)
        for h in range(H - 1, -1, -1):
            a = digits[h * S : (h + 1) * S]
            V = np.array([r[h, s, a[s]] + P[h, s, a[s]] @ V for s in range(S)])
        found[digits] = float(mdp.initial @ V)
    return found
