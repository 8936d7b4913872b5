"""Reward laws: how a reward is drawn around its mean.

Every law keeps the mean it is given, so planning and exact regret read only the means. All laws consume the generator
element by element in row-major order: drawing (2, H) rewards at once gives the same numbers as drawing two rows of H.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.mdp import Floats

KINDS = ("deterministic", "bernoulli", "gaussian", "alpha-stable", "student-t", "pareto")


@dataclass(frozen=True)
class RewardLaw:
    """The law of a reward with mean m. Tail parameters are refused by all kinds but their own.

    deterministic  r = m, whatever the scale
    bernoulli      r = scale·B with B ~ Bernoulli(m/scale); means must lie in [0, scale]
    gaussian       r = m + scale·Z, Z standard normal
    alpha-stable   r = m + scale·X, E exp(itX) = exp(−|t|^alpha), 1 < alpha ≤ 2; alpha = 2 is N(m, 2·scale²)
    student-t      r = m + scale·T, T Student with df > 1 degrees of freedom
    pareto         r = m + scale·(Y − a/(a−1)), P(Y > y) = y^(−a) for y ≥ 1, a = tail_index > 1: centred, skewed up

    Tail parameters of at most 1 are refused because such laws have no mean.
    """

    kind: str = "bernoulli"
    scale: float = 1.0
    alpha: float = 2.0
    df: float = 3.0
    tail_index: float = 3.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            near = difflib.get_close_matches(str(self.kind), KINDS, n=1, cutoff=0.0)[0]
            raise ValueError(
                f"unknown reward law {self.kind!r}; the nearest is {near!r}, the choices are {', '.join(KINDS)}"
            )
        for name in ("scale", "alpha", "df", "tail_index"):
            value = float(getattr(self, name))
            if not math.isfinite(value) or value <= 0:
                raise ValueError(f"{name} is {value}; it must be a finite number above 0")
            object.__setattr__(self, name, value)
        for name, kind in (("alpha", "alpha-stable"), ("df", "student-t"), ("tail_index", "pareto")):
            if self.kind != kind and getattr(self, name) != getattr(RewardLaw, name):
                raise ValueError(f"{name} belongs to the {kind} law; the law is {self.kind}")
        if self.kind == "alpha-stable" and not 1 < self.alpha <= 2:
            raise ValueError(f"alpha is {self.alpha}; it must lie in (1, 2], as a stable law has no mean below")
        if self.kind == "student-t" and self.df <= 1:
            raise ValueError(f"df is {self.df}; it must exceed 1, as Student's law has no mean below")
        if self.kind == "pareto" and self.tail_index <= 1:
            raise ValueError(f"tail_index is {self.tail_index}; it must exceed 1, as Pareto's law has no mean below")

    @property
    def tossed(self) -> bool:
        """Whether a reward is 1 with its mean for a probability, and else 0."""
        return self.kind == "bernoulli" and self.scale == 1.0

    @property
    def bounded(self) -> bool:
        return self.kind in ("deterministic", "bernoulli")

    def range(self, means: Any) -> tuple[float, float] | None:
        """The interval that rewards with these means never leave, or None when the law is unbounded."""
        if self.kind == "bernoulli":
            return 0.0, self.scale
        if self.kind == "deterministic":
            array = np.asarray(means, dtype=np.float64)
            return float(array.min()), float(array.max())
        return None

    def check_means(self, means: Any) -> Floats:
        """`means` as an array, refused when no law of this kind has them."""
        array = np.asarray(means, dtype=np.float64)
        if not np.isfinite(array).all():
            raise ValueError("a mean reward is NaN or infinite; every mean must be a finite number")
        if self.kind == "bernoulli" and array.size and not (array.min() >= 0 and array.max() <= self.scale):
            raise ValueError(
                f"mean rewards span [{array.min():.6g}, {array.max():.6g}]; the Bernoulli law needs means in "
                f"[0, {self.scale:g}] (choose another reward law or rescale the rewards)"
            )
        return array

    def sample(self, means: Any, rng: np.random.Generator) -> Floats:
        """One independent reward for each entry of `means`."""
        return self.draw(self.check_means(means), rng)

    def draw(self, m: Floats, rng: np.random.Generator) -> Floats:
        """`sample` for means that have been checked."""
        if self.kind == "deterministic":
            return m.copy()
        if self.kind == "bernoulli":
            return (rng.random(m.shape) < m / self.scale).astype(np.float64) * self.scale
        if self.kind == "gaussian":
            noise: Floats = rng.standard_normal(m.shape)
        elif self.kind == "alpha-stable":
            noise = _symmetric_stable(self.alpha, rng.random((*m.shape, 2)))
        elif self.kind == "student-t":
            noise = np.asarray(rng.standard_t(self.df, m.shape), dtype=np.float64)
        else:
            a = self.tail_index
            noise = (1.0 - rng.random(m.shape)) ** (-1.0 / a) - a / (a - 1.0)
        return m + self.scale * noise

    def moment_bound(self, mean_bound: float, v: float) -> float:
        """u with E|r|^(1+v) ≤ u whenever |m| ≤ mean_bound, for v in (0, 1].

        Symmetric noise X obeys E|m+X|^p ≤ |m|^p + E|X|^p for 1 ≤ p ≤ 2, with equality at p = 2; the Pareto moment is
        convex in m, hence largest at an end of the interval.
        """
        if not 0 < v <= 1:
            raise ValueError(f"v is {v}; it must lie in (0, 1]")
        if not (math.isfinite(mean_bound) and mean_bound >= 0):
            raise ValueError(f"mean_bound is {mean_bound}; it must be a finite number of at least 0")
        p = 1.0 + v
        order, name = self._moments_below()
        if p >= order:
            raise ValueError(
                f"E|r|^{p:g} is infinite under the {self.kind} law with {name} {order:g}; 1 + v must stay below that"
            )
        if self.kind == "deterministic":
            return float(mean_bound**p)
        if self.kind == "bernoulli":
            return float(self.scale**v * min(mean_bound, self.scale))
        if self.kind == "pareto":
            c = mean_bound / self.scale
            return float(self.scale**p) * max(_pareto_moment(self.tail_index, p, shift) for shift in (c, -c))
        return float(mean_bound**p + self.scale**p * self._noise_moment(p))

    def _moments_below(self) -> tuple[float, str]:
        """The order from which on absolute moments are infinite, and the parameter that sets it."""
        if self.kind == "alpha-stable" and self.alpha < 2:
            return self.alpha, "alpha"
        if self.kind == "student-t":
            return self.df, "df"
        if self.kind == "pareto":
            return self.tail_index, "tail_index"
        return math.inf, ""

    def _noise_moment(self, p: float) -> float:
        """E|X|^p of the unit-scale symmetric noise."""
        log_half = math.lgamma((p + 1) / 2) - 0.5 * math.log(math.pi)
        if self.kind == "student-t":
            log_rest = (p / 2) * math.log(self.df) + math.lgamma((self.df - p) / 2) - math.lgamma(self.df / 2)
        elif self.kind == "gaussian":
            log_rest = (p / 2) * math.log(2.0)
        elif self.alpha == 2:
            log_rest = p * math.log(2.0)
        else:
            log_rest = p * math.log(2.0) + math.lgamma(1 - p / self.alpha) - math.lgamma(1 - p / 2)
        return math.exp(log_half + log_rest)


def _symmetric_stable(alpha: float, uniforms: Floats) -> Floats:
    """Chambers–Mallows–Stuck: X = sin(αU)/cos(U)^(1/α) · (cos((1−α)U)/W)^((1−α)/α), U ~ U(−π/2, π/2), W ~ Exp(1)."""
    U = np.pi * (uniforms[..., 0] - 0.5)
    W = np.maximum(-np.log1p(-uniforms[..., 1]), np.finfo(np.float64).tiny)
    result: Floats = (
        np.sin(alpha * U) / np.cos(U) ** (1.0 / alpha) * (np.cos((1.0 - alpha) * U) / W) ** ((1.0 - alpha) / alpha)
    )
    return result


def _pareto_moment(a: float, p: float, shift: float) -> float:
    """E|shift + Y − a/(a−1)|^p for P(Y > y) = y^(−a), y ≥ 1, and p < a."""
    from scipy.integrate import quad  # loading it takes longer than most commands
    from scipy.special import beta, hyp2f1

    b = a / (a - 1.0) - shift
    if b <= 1:
        return float(a / (a - p) * hyp2f1(-p, a - p, a - p + 1, b))
    above = a * b ** (p - a) * beta(a - p, p + 1)
    below = quad(lambda y: a * y ** (-a - 1) * (b - y) ** p, 1.0, b)[0]
    return float(above + below)
