"""How private a count of shuffled bits is: exact divergences of shifted binomials, and the least noise for a target.

A counter shows x + B with B ~ Bin(M, p). A user whose bit falls from 1 to 0 makes the pair of laws (1+B, B), one
whose bit rises makes (B, 1+B). Counters have independent noise, so `down` falling and `up` rising bits make a
product, and its hockey-stick divergence δ(ε) = Σ (P − e^ε·Q)⁺ is the whole privacy statement. Everything here is a
function of public numbers; every δ that is returned is an upper bound. Proofs: shuffle.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from discreet.mdp import Floats

#: Masses below e^−60 of the largest one are dropped; what they add up to is counted as certain loss.
_DEPTH, _DROPPED = 60.0, 2e-20
#: Grid points per standard deviation of the composed privacy loss.
_FINENESS = 100.0
#: Relative excess that covers all rounding of non-negative sums.
_ROUNDING = 1e-9
#: Noise of more variance is taken for less, and more outcomes of two counters than these are put on a grid.
_MOST_VARIANCE, _MOST_OUTCOMES = 2.0**34, 1 << 24
#: Relative precision of a least noise probability.
_PRECISION = 2e-4
#: The factor of the printed calibration: τ = 96·ln(2/δ)/ε².
PRINTED_FACTOR = 96.0


class Loss(NamedTuple):
    """Law of the privacy loss ln(P/Q) under P: `mass[i]` at (start + i)·step, and `infinite` where Q has nothing."""

    start: int
    mass: Floats
    infinite: float
    step: float


def _check_noise(bits: int, probability: float) -> None:
    if int(bits) != bits or bits < 1:
        raise ValueError(f"bits is {bits!r}; a counter needs at least one noise bit")
    if not 0.0 < probability <= 0.5:
        raise ValueError(f"probability is {probability}; it must lie in (0, ½]")


def _check_target(down: int, up: int, epsilon: float, delta: float = 0.5) -> None:
    if min(down, up) < 0 or down + up < 1:
        raise ValueError(f"{down} falling and {up} rising bits; expected numbers that are not negative, not both 0")
    if not (epsilon >= 0.0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon is {epsilon}; it must be finite and not negative")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta is {delta}; shuffled bits need a delta strictly between 0 and 1")


def counted(bits: int, probability: float) -> int:
    """As many of the bits as fit into memory and into floating point: leaving out noise bits never lowers δ."""
    return min(bits, 1 << 50, math.ceil(_MOST_VARIANCE / (probability * (1.0 - probability))))


def _masses(bits: int, probability: float) -> tuple[Floats, Floats]:
    """(j, P(B = j)) for B ~ Bin(M, p) where it is more than e^−60 of the largest; by recurrence from the mode."""
    M, p = bits, probability
    mode = min(M, math.floor((M + 1) * p))
    reach = math.ceil(12.0 * math.sqrt(M * p * (1.0 - p))) + 30
    while True:
        low, high = max(0, mode - reach), min(M, mode + reach)
        j = np.arange(low, high + 1, dtype=np.float64)
        with np.errstate(divide="ignore"):
            ratios = np.log((M - j[:-1]) * p) - np.log((j[:-1] + 1.0) * (1.0 - p))
        logs = np.concatenate([[0.0], np.cumsum(ratios)])
        logs -= logs[mode - low]
        if (low == 0 or logs[0] < -_DEPTH) and (high == M or logs[-1] < -_DEPTH):
            break
        reach *= 2
    kept = logs >= -_DEPTH
    mass = np.exp(logs[kept])
    return j[kept], mass / mass.sum()


def _losses(bits: int, probability: float, falling: bool) -> tuple[Floats, Floats, float]:
    """(loss, mass, infinite mass) of one counter under the world P.

    Falling, P = 1+B, Q = B: at B = j the loss is ln((j+1)(1−p)/((M−j)p)), infinite at j = M.
    Rising,  P = B, Q = 1+B: at B = j the loss is ln((M−j+1)p/(j(1−p))), infinite at j = 0.
    """
    M, p = bits, probability
    j, mass = _masses(M, p)
    odds = math.log1p(-p) - math.log(p)
    finite = j < M if falling else j > 0
    infinite = float(mass[~finite].sum()) + _DROPPED
    j, mass = j[finite], mass[finite]
    loss = np.log(j + 1.0) - np.log(M - j) + odds if falling else np.log(M - j + 1.0) - np.log(j) - odds
    return loss, mass, infinite


def _on_grid(loss: Floats, mass: Floats, infinite: float, step: float) -> Loss:
    """Move every loss to its two neighbours on the grid so that P-mass and Q-mass (mass·e^−loss) both stay.

    X = Q/P becomes a mean-preserving spread of itself, and (1 − e^ε·X)⁺ is convex in X: δ never falls, at any ε,
    alone or in a product.
    """
    low = np.floor(loss / step)
    above = np.expm1(-(loss - low * step)) / math.expm1(-step)
    start = int(low.min())
    index = (low - start).astype(np.int64)
    size = int(index.max()) + 2
    grid = np.bincount(index, mass * (1.0 - above), size) + np.bincount(index + 1, mass * above, size)
    return Loss(start, np.asarray(grid, dtype=np.float64), infinite, step)


def _composed(one: Loss, other: Loss) -> Loss:
    """Losses of independent counters add; a direct sum of non-negative terms, so small masses stay accurate."""
    mass = np.convolve(one.mass, other.mass)
    low = int(np.searchsorted(np.cumsum(mass), 1e-22))
    high = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), 1e-22))
    infinite = one.infinite + other.infinite * (1.0 - one.infinite) + 2e-22
    return Loss(one.start + other.start + low, mass[low:high], infinite, one.step)


def _power(one: Loss, times: int) -> Loss | None:
    result: Loss | None = None
    while times:
        if times & 1:
            result = one if result is None else _composed(result, one)
        times >>= 1
        if times:
            one = _composed(one, one)
    return result


def composed_loss(bits: int, probability: float, down: int, up: int) -> Loss:
    """The privacy loss of `down` falling and `up` rising bits together, on a grid, pessimistic."""
    _check_noise(bits, probability)
    _check_target(down, up, 0.0)
    parts = [(_losses(bits, probability, falling), times) for falling, times in ((True, down), (False, up)) if times]
    variance = 0.0
    for (loss, mass, _), times in parts:
        mean = float(mass @ loss)
        variance += times * float(mass @ (loss - mean) ** 2)
    step = max(math.sqrt(variance), 1e-6) / _FINENESS
    if down == up:  # one falling and one rising bit first: half as many different factors
        pair = [_on_grid(*part, step) for part, _ in parts]
        result = _power(_composed(*pair), down)
    else:
        result = None
        for part, times in parts:
            powered = _power(_on_grid(*part, step), times)
            assert powered is not None
            result = powered if result is None else _composed(result, powered)
    assert result is not None
    return result


def loss_delta(loss: Loss, epsilon: float) -> float:
    """δ(ε) = P(loss = ∞) + Σ_{L>ε} mass·(1 − e^{ε−L})."""
    first = max(0, math.floor(epsilon / loss.step) + 1 - loss.start)
    L = (loss.start + np.arange(first, loss.mass.size)) * loss.step
    surplus = float(loss.mass[first:] @ -np.expm1(np.minimum(epsilon - L, 0.0)))
    return min(1.0, (loss.infinite + surplus) * (1.0 + _ROUNDING))


def _few(bits: int, probability: float, down: int, up: int, epsilon: float) -> float:
    """δ(ε) of at most two changed counters, summed outcome by outcome, without a grid unless they are too many."""
    parts = [_losses(bits, probability, True)] * down + [_losses(bits, probability, False)] * up
    loss, mass, infinite = parts[0]
    for other, weight, more in parts[1:]:
        if loss.size * other.size > _MOST_OUTCOMES:
            return loss_delta(composed_loss(bits, probability, down, up), epsilon)
        loss, mass = np.add.outer(loss, other).ravel(), np.multiply.outer(mass, weight).ravel()
        infinite += more * (1.0 - infinite)
    above = loss > epsilon
    surplus = float(mass[above] @ -np.expm1(epsilon - loss[above]))
    return min(1.0, (infinite + surplus) * (1.0 + _ROUNDING))


@lru_cache(maxsize=65536)
def delta_of(bits: int, probability: float, down: int, up: int, epsilon: float) -> float:
    """δ at ε of a user who lowers at most `down` and raises at most `up` counters, each with Bin(bits, p) noise.

    The larger of both directions; fewer changes cannot give more (projection of a product).
    """
    _check_noise(bits, probability)
    _check_target(down, up, epsilon)
    bits = counted(bits, probability)
    directions = {(down, up), (up, down)}
    if down + up <= 2:
        return max(_few(bits, probability, d, u, epsilon) for d, u in directions)
    return max(loss_delta(composed_loss(bits, probability, d, u), epsilon) for d, u in directions)


def epsilon_of(bits: int, probability: float, down: int, up: int, delta: float) -> float:
    """The least ε, to 10⁻⁴ upwards, at which `delta_of` is at most δ; infinite where no ε will do."""
    _check_noise(bits, probability)
    _check_target(down, up, 0.0, delta)
    bits = counted(bits, probability)
    losses = [composed_loss(bits, probability, d, u) for d, u in {(down, up), (up, down)}]

    def spent(epsilon: float) -> float:
        return max(loss_delta(loss, epsilon) for loss in losses)

    largest = max((loss.start + loss.mass.size) * loss.step for loss in losses)
    if spent(max(largest, 0.0)) > delta:
        return math.inf
    low, high = 0.0, max(largest, 0.0)
    if spent(low) <= delta:
        return 0.0
    while high - low > 1e-4 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spent(middle) > delta else (low, middle)
    return high


def _least(excess: Callable[[float], float], low: float, high: float, precision: float) -> float:
    """The high end of a bracket of the root of a falling function of ln x, narrowed by the Illinois rule.

    excess(high) ≤ 0 holds at the start and for whatever is returned.
    """
    a, fa, b, fb = math.log(low), excess(low), math.log(high), excess(high)
    if fa <= 0.0:
        return low
    side = 0
    while b - a > precision and fb < -precision:
        middle = b - fb * (b - a) / (fb - fa)
        middle = min(max(middle, a + 0.02 * (b - a)), b - 0.02 * (b - a))
        value = excess(math.exp(middle))
        if value <= 0.0:
            b, fb = middle, value
            fa *= 0.5 if side == 1 else 1.0
            side = 1
        else:
            a, fa = middle, value
            fb *= 0.5 if side == -1 else 1.0
            side = -1
    return math.exp(b)


@lru_cache(maxsize=4096)
def fewest_fair_bits(down: int, up: int, epsilon: float, delta: float) -> int:
    """m₀: the least M (to 1/4096, upwards) for which Bin(M, ½) on every counter gives (ε, δ).

    More bits are post-processing of fewer, so every larger M will do too.
    """
    _check_target(down, up, epsilon, delta)
    if epsilon == 0.0:
        raise ValueError("epsilon is 0; no finite noise makes two different sums the same")

    def excess(bits: int) -> float:
        return delta_of(bits, 0.5, down, up, epsilon) - delta

    low, high = 0, 8
    while excess(high) > 0.0:
        low, high = high, 2 * high
        if high > 10**13:
            raise ValueError(
                f"epsilon = {epsilon:g} and delta = {delta:g} need more than 10¹³ noise bits per counter"
            )
    while high - low > max(1, high // 4096):
        middle = (low + high) // 2
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return high


@lru_cache(maxsize=65536)
def least_probability(bits: int, down: int, up: int, epsilon: float, delta: float) -> float:
    """The least p (to 2·10⁻⁴, upwards) for which Bin(bits, p) on every counter gives (ε, δ), as checked at that p."""
    fair = fewest_fair_bits(down, up, epsilon, delta)
    if bits < fair:
        raise ValueError(
            f"{bits} noise bits per counter cannot give epsilon = {epsilon:g} at delta = {delta:g}, however noisy: "
            f"{fair} are needed"
        )

    def excess(probability: float) -> float:
        return math.log(delta_of(bits, probability, down, up, epsilon) / delta)

    low = min(fair / (4.0 * bits), 0.25)  # no more variance than fair bits have
    high = 2.0 * low if excess(2.0 * low) <= 0.0 else 0.5
    return min(0.5, _least(excess, low, high, _PRECISION))


def printed_bits(epsilon: float, delta: float) -> int:
    """τ = 96·ln(2/δ)/ε², rounded up: the printed number of noise bits of one counter.  Source: [BTZCC25] Alg. 4."""
    _check_target(1, 0, epsilon, delta)
    return math.ceil(PRINTED_FACTOR * math.log(2.0 / delta) / epsilon**2)


class SumLaw(NamedTuple):
    """Law of a sum of binomials: mass[i] at low + i; what is missing of 1 is at most `dropped`."""

    low: float = 0.0
    mass: Floats = np.ones(1)
    mean: float = 0.0
    dropped: float = 0.0

    def plus(self, bits: int, probability: float) -> SumLaw:
        """With an independent Bin(bits, p) added."""
        if bits == 0:
            return self
        j, one = _masses(bits, probability)
        mass = np.convolve(self.mass, one)
        kept = np.flatnonzero(mass >= mass.max() * math.exp(-_DEPTH))
        first, last = int(kept[0]), int(kept[-1]) + 1
        low, mean = self.low + float(j[0]) + first, self.mean + bits * probability
        return SumLaw(low, mass[first:last], mean, self.dropped + 2.0 * _DROPPED)

    def width(self, share: float) -> float:
        """Least e with P(|sum − mean| > e) ≤ share; the tails are summed, from the farthest outcome inwards."""
        distance = np.abs(self.low + np.arange(self.mass.size) - self.mean)
        order = np.argsort(-distance, kind="stable")
        tails = np.cumsum(self.mass[order]) + self.dropped
        beyond = int(np.searchsorted(tails, share, side="right"))
        return float(distance[order[min(beyond, self.mass.size - 1)]])


def two_sided_quantile(parts: Sequence[tuple[int, float]], share: float) -> float:
    """Least e with P(|Σ (B_i − E B_i)| > e) ≤ share for independent B_i ~ Bin(bits_i, p_i)."""
    law = SumLaw()
    for bits, probability in parts:
        law = law.plus(bits, probability)
    return law.width(share)
