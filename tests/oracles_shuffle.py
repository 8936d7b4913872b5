"""Slow, plain forms of what shuffled bits are: exact divergences by enumeration, policies one by one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from discreet.privacy.binomial import fewest_fair_bits, printed_bits


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


@lru_cache(maxsize=1024)
def plain_delta(bits: int, probability: float, down: int, up: int, epsilon: float) -> float:
    """The same sum in floating point: outcomes of falling and rising bits meet sorted by their ratio Q/P."""
    law = np.concatenate([[0.0], stats.binom.pmf(np.arange(bits + 1), bits, probability), [0.0]])
    falling, rising = (law[:-1], law[1:]), (law[1:], law[:-1])

    def product(pair, times):
        """P and Q of all outcomes, those that are permutations of each other together."""
        outcomes = np.array(list(itertools.combinations_with_replacement(range(bits + 2), times)), dtype=int)
        outcomes = outcomes.reshape(-1, times)
        p, q = (values[outcomes].prod(axis=1) for values in pair)
        run = repeats = np.ones(len(outcomes), dtype=int)  # repeats: Π (how often each value occurs)!
        for i in range(1, times):
            run = np.where(outcomes[:, i] == outcomes[:, i - 1], run + 1, 1)
            repeats = repeats * run
        orders = math.factorial(times) / repeats
        return (p * orders)[p > 0.0], (q * orders)[p > 0.0]

    def directed(first, second):
        (p, q), (p2, q2) = product(falling, first), product(rising, second)
        order = np.argsort(q2 / p2)
        ratio = (q2 / p2)[order]
        mass, other = (np.concatenate([[0.0], np.cumsum(x[order])]) for x in (p2, q2))
        with np.errstate(divide="ignore"):
            below = np.searchsorted(ratio, math.exp(-epsilon) * p / q)
        return float(p @ mass[below] - math.exp(epsilon) * (q @ other[below]))

    return max(directed(down, up), directed(up, down))


def basic_bits(down: int, up: int, epsilon: float, delta: float, printed: bool = False) -> int:
    """Fair bits per counter when ε and δ are divided evenly over the changed counters (basic composition).

    `printed` takes τ for every counter, else the exact least number for one counter at its share.
    """
    changed = down + up
    share = epsilon / changed, delta / changed
    return printed_bits(*share) if printed else fewest_fair_bits(1, 0, *share)
