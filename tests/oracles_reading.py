"""Plain versions of the reading of reports: sums over the prior by numerical integration."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import integrate


def away(x, scale, normal):
    """−log of the density of the noise at x, over that at 0: Laplace, or normal with the same variance 2·scale²."""
    return (x / scale) ** 2 / 4 if normal else abs(x) / scale


def moments(y, scale, rate, cap, normal=False):
    """(log f₁/f₀, E[n|y], E[n²|y]) by quadrature; the range is cut where the integrand bends or ends."""
    if normal:
        return normal_moments(y, math.sqrt(2.0) * scale, rate, cap)
    top = cap if math.isfinite(cap) else max(y, 0.0) + 80.0 / (rate + 1.0 / scale)
    bends = {0.0, top, min(max(y, 0.0), top)}
    for start in sorted(bends):
        bends |= {
            min(max(start + sign * step, 0.0), top) for sign in (-1, 1) for step in (scale, 5 * scale, 30 * scale)
        }
        bends |= {min(start + step / max(rate, 1e-9), top) for step in (1.0, 5.0, 30.0)}

    def density(n):
        return math.exp(-rate * n - abs(y - n) / scale + abs(y) / scale) if abs(y) / scale < 500 else 0.0

    zeroth, first, second = integrals(density, sorted(bends))
    mass = cap if rate == 0.0 else -math.expm1(-rate * cap) / rate
    return math.log(zeroth / mass), first / zeroth, second / zeroth


def normal_moments(y, deviation, rate, cap):
    """The same under normal noise, relative to where the integrand is largest."""
    centre = y - rate * deviation**2
    mode = min(max(centre, 0.0), cap)
    width = min(deviation, deviation**2 / max(abs(centre - mode), 1e-9))
    cuts = sorted({min(max(mode + step * width, 0.0), cap) for step in (-40, -9, -3, -1, 0, 1, 3, 9, 40)})

    def exponent(n):
        return -rate * n - 0.5 * ((y - n) / deviation) ** 2

    zeroth, first, second = integrals(lambda n: math.exp(exponent(n) - exponent(mode)), cuts)
    mass = cap if rate == 0.0 else -math.expm1(-rate * cap) / rate
    log_ratio = math.log(zeroth / mass) + exponent(mode) + 0.5 * (y / deviation) ** 2
    return log_ratio, first / zeroth, second / zeroth


def integrals(density, cuts):
    """∫ n^k·density for k = 0, 1, 2."""
    return [
        sum(
            integrate.quad(lambda n, k=k: n**k * density(n), a, b, epsabs=0, epsrel=1e-11)[0]
            for a, b in itertools.pairwise(cuts)
        )
        for k in range(3)
    ]


def read_cell(
    sums, variance, expected, prior, branchings, shares, ratios, ratio_weights, paying, keep, keep_reward, normal
):
    """One cell from the definitions: two rounds between outcomes and reward from each of three rewards, averaged."""
    S = len(prior)
    guess = max(expected, math.sqrt(variance))

    def weighed(r):
        """(log-likelihood of the sums, [(log weight, B, posteriors)]) if the reward is r."""
        square = r * r + (1 - r) ** 2
        scale = math.sqrt(variance / square / 2)
        y = [(r * sums[2 * s + 1] + (1 - r) * sums[2 * s]) / square for s in range(S)]
        z = [((1 - r) * sums[2 * s + 1] - r * sums[2 * s]) / math.sqrt(square) for s in range(S)]
        noise = -sum(away(a, scale, normal) for a in y) - sum(away(a, math.sqrt(variance / 2), normal) for a in z)
        grid = []
        for B, share in zip(branchings, shares, strict=True):
            for ratio, weight in zip(ratios, ratio_weights, strict=True):
                likelihood, posterior = math.log(share * weight), []
                for s in range(S):
                    w = min(B * prior[s], 0.97)
                    mu = max(guess * ratio * prior[s] / w, 1e-3)
                    log_ratio, first, second = moments(y[s], scale, 1 / mu, math.inf, normal)
                    inside = w * math.exp(log_ratio) / (1 - w + w * math.exp(log_ratio))
                    likelihood += math.log(1 - w + w * math.exp(log_ratio))
                    posterior.append((inside, inside * first, inside * second))
                grid.append((likelihood, B, np.array(posterior)))
        return noise + np.logaddexp.reduce([g[0] for g in grid]), grid

    starts = (0.0, 0.5, 1.0)
    evidence = np.array([weighed(r)[0] for r in starts])
    evidence = np.exp(evidence - evidence.max())
    evidence[evidence < 0.02 * evidence.sum()] = 0.0
    evidence /= evidence.sum()
    parts = []
    for chance, r in zip(evidence, starts, strict=True):
        if chance > 0.0:
            parts.append(
                (chance, *_rounds(r, weighed, sums, variance, branchings, paying, keep, keep_reward, normal))
            )
    inclusion, first, second = sum(part[0] * part[1] for part in parts).T
    mean = sum(part[0] * part[2] for part in parts)
    mean_variance = sum(part[0] * (part[3] + part[2] ** 2) for part in parts) - mean**2
    pays = sum(part[0] * part[4] for part in parts)
    branching = sum(part[0] * np.array(part[5]) for part in parts)
    kept = np.where((inclusion >= keep) | (np.arange(S) == first.argmax()), first, 0.0)
    return kept / kept.sum(), second - first**2, inclusion, kept.sum(), mean, mean_variance, pays, branching


def _rounds(r, weighed, sums, variance, branchings, paying, keep, keep_reward, normal):
    """Two rounds from one reward: (table of inclusion and moments, r, its variance, inclusion, posterior of B)."""
    for _ in range(2):
        square = r * r + (1 - r) ** 2
        grid = weighed(r)[1]
        top = max(g[0] for g in grid)
        weights = np.array([math.exp(g[0] - top) for g in grid])
        weights /= weights.sum()
        table = sum(w * g[2] for w, g in zip(weights, grid, strict=True))
        branching = [sum(w for w, g in zip(weights, grid, strict=True) if g[1] == B) for B in branchings]
        inclusion, first, _ = table.T
        S = len(first)
        kept = np.where((inclusion >= keep) | (np.arange(S) == first.argmax()), first, 0.0)
        N = kept.sum()
        P = kept / N
        paid = sum(P[s] * sums[2 * s + 1] for s in range(S)) / (P @ P)
        unpaid = sum(P[s] * sums[2 * s] for s in range(S)) / (P @ P)
        t = N * paid / max(paid + unpaid, N / 2)
        log_ratio, m1, m2 = moments(t, math.sqrt(variance * square / (P @ P) / 2), 0.0, N, normal)
        pays = paying * math.exp(log_ratio) / (1 - paying + paying * math.exp(log_ratio))
        mean_variance = pays * m2 / N**2 - (pays * m1 / N) ** 2
        r = pays * m1 / N if pays >= keep_reward else 0.0
    return table, r, mean_variance, pays, branching
