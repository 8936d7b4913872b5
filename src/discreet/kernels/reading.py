"""Compiled reading of noisy counts: spike-and-slab posteriors in closed form. Formulas: docs/spotlight.md."""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.mdp import Floats, Ints
from discreet.problem import Mask

#: Between the two a power series is shorter and more accurate than differences of exponentials.
SERIES_BELOW, SERIES_TERMS = 0.5, 14
#: Combinations of the grid with less posterior weight than this are left out of moments.
NEGLIGIBLE = 3e-4
#: Beyond this exponent an outcome is certain.
FAR = 200.0
#: Largest prior inclusion of one outcome.
CERTAIN = 0.97
#: Rounds between outcomes, given the reward, and the reward, given outcomes; and rewards to start from.
ROUNDS = 2
STARTS = (0.0, 0.5, 1.0)
#: Starts with less posterior weight than this are left out.
UNLIKELY = 0.02


@compiled
def partial_gamma(rate: float, length: float) -> tuple[float, float, float]:
    """∫₀^L m^k·e^{−rate·m} dm for k = 0, 1, 2; rate ≥ 0, and L may be infinite where rate > 0."""
    if length == np.inf:
        return 1.0 / rate, 1.0 / rate**2, 2.0 / rate**3
    x = rate * length
    if x < SERIES_BELOW:
        zeroth, first, second, term = 0.0, 0.0, 0.0, 1.0
        for j in range(SERIES_TERMS):
            zeroth += term / (j + 1)
            first += term / (j + 2)
            second += term / (j + 3)
            term *= -x / (j + 1)
        return length * zeroth, length**2 * first, length**3 * second
    e = np.exp(-x)
    return (
        (1.0 - e) / rate,
        (1.0 - e * (1.0 + x)) / rate**2,
        (2.0 - e * (2.0 + 2.0 * x + x * x)) / rate**3,
    )


@compiled
def slab(y: float, scale: float, rate: float, cap: float) -> tuple[float, float, float]:
    """(log f₁(y)/f₀(y), E[n|y], E[n²|y]) for y = n + Laplace(scale), n with density ∝ e^{−rate·n} on [0, cap].

    f₀ is the density of the noise alone. With β = 1/scale and t = clip(y, 0, cap) the posterior is
    e^{(β−rate)n} on [0, t] and e^{−(β+rate)n} on [t, cap], up to constants.
    """
    beta = 1.0 / scale
    mass, _, _ = partial_gamma(rate, cap)
    t = min(max(y, 0.0), cap)
    # relative to e^{−β·|y − t|}·e^{−rate·t}: the prior at t, and the noise that remains there
    above = partial_gamma(beta + rate, cap - t if cap < np.inf else np.inf)
    total = above[0]
    first = t * above[0] + above[1]
    second = t * t * above[0] + 2.0 * t * above[1] + above[2]
    if t > 0.0:
        slope = beta - rate
        if slope >= 0.0:  # m = t − n
            g0, g1, g2 = partial_gamma(slope, t)
            total += g0
            first += t * g0 - g1
            second += t * t * g0 - 2.0 * t * g1 + g2
        else:  # rising towards 0: relative to n = 0
            g0, g1, g2 = partial_gamma(-slope, t)
            shift = slope * t  # e^{(β−rate)·0} over e^{(β−rate)·t} is e^{−shift}
            if -shift < 600.0:
                lift = np.exp(-shift)
                total += lift * g0
                first += lift * g1
                second += lift * g2
            else:
                return -beta * t + np.log(g0 / mass) + _noise_gap(y, t, beta), g1 / g0, g2 / g0
    return np.log(total / mass) - rate * t + _noise_gap(y, t, beta), first / total, second / total


@compiled
def _noise_gap(y: float, t: float, beta: float) -> float:
    """log of e^{−β|y−t|} over e^{−β|y|}."""
    return beta * (abs(y) - abs(y - t))


@compiled
def log_mixture(inclusion: float, log_ratio: float) -> float:
    """log(1 − w + w·R)."""
    if log_ratio > 500.0:
        return float(np.log(inclusion) + log_ratio)
    return float(np.log(1.0 - inclusion + inclusion * np.exp(log_ratio)))


@compiled
def ratio_exponential(y: float, beta: float, rate: float) -> tuple[float, float]:
    """(a, x) with f₁/f₀ = a·e^x for an exponential slab without cap: the first entry of `slab` is log a + x."""
    if y <= 0.0:
        return rate / (beta + rate), 0.0
    slope = beta - rate
    x = slope * y
    if x > FAR:
        return rate * (1.0 / slope + 1.0 / (beta + rate)), x
    if abs(x) < 1e-5:
        return rate * (y * (1.0 + 0.5 * x) + (1.0 + x) / (beta + rate)), 0.0
    e = np.exp(x)
    return rate * ((e - 1.0) / slope + e / (beta + rate)), 0.0


@compiled
def combined(paid: float, unpaid: float, mean: float) -> float:
    """The count n of an outcome seen as (r·n, (1−r)·n) under equal noise: least squares."""
    return (mean * paid + (1.0 - mean) * unpaid) / (mean * mean + (1.0 - mean) * (1.0 - mean))


@compiled
def read_rows(
    cells: Ints,  # which rows to read
    sums: Floats,  # (C, 2S)
    variances: Floats,  # (C,) of the noise on a sub-cell
    expected: Floats,  # (C,) predicted reports, weighted like the sums
    admitted: Mask,  # (C, 2S)
    prior: Floats,  # (C, S): where reports go, before looking
    support: Floats,  # (C, S): how surely other steps have the outcome, negative where they do not say; or (0, 0)
    trust: float,  # weight of `support`
    branchings: Ints,  # (B,)
    log_shares: Floats,  # (B,)
    ratios: Floats,  # (R,) of the true to the predicted number of reports
    log_ratios: Floats,  # (R,)
    paying: float,  # share of cells that pay
    keep: float,
    keep_reward: float,
    rows: Floats,  # (C, S) out: of what is kept
    soft: Floats,  # (C, S) out: of everything, as likely as it is
    spreads: Floats,  # (C, S) out: posterior variance of an outcome's count
    inclusions: Floats,  # (C, S) out
    counts: Floats,  # (C,) out
    means: Floats,  # (C,) out
    mean_variances: Floats,  # (C,) out
    pays: Floats,  # (C,) out: inclusion of a reward
    branching: Floats,  # (C, B) out: posterior
) -> None:
    """Posteriors by a few rounds between outcomes, given the reward, and the reward, given outcomes.

    The rounds may not return from a wrong reward, so they are run from each of STARTS and averaged with its evidence.
    """
    S = rows.shape[1]
    nb, nr = branchings.shape[0], ratios.shape[0]
    y, starts = np.empty(S), np.empty(len(STARTS))
    evidence = np.empty((nb, nr))
    one, two, inside = np.empty(S), np.empty(S), np.empty(S)  # of one start: E[n], E[n²], inclusion
    for index in range(cells.shape[0]):
        c = cells[index]
        root = np.sqrt(max(variances[c], 1e-6))
        width, bits = 0, False
        for s in range(S):
            if admitted[c, 2 * s] or admitted[c, 2 * s + 1]:
                width += 1
            bits = bits or admitted[c, 2 * s + 1]
        guess = max(expected[c], root)
        size = (root, guess, width)
        facts = (sums, prior, support, trust, branchings, log_shares, ratios, log_ratios)
        starts[:] = -np.inf
        starts[0] = 0.0
        if bits:
            for k in range(len(STARTS)):
                starts[k] = _weigh(c, STARTS[k], size, facts, y, evidence)  # how many cells pay comes in later
        starts[:] = np.exp(starts - starts.max())
        starts[starts < UNLIKELY * starts.sum()] = 0.0
        starts /= starts.sum()
        soft[c], spreads[c], inclusions[c], branching[c] = 0.0, 0.0, 0.0, 0.0
        mean_one, mean_two, pay = 0.0, 0.0, 0.0
        for k in range(len(STARTS)):
            chance = starts[k]
            if chance == 0.0:
                continue
            mean, variance, paid = STARTS[k], 0.0, 0.0
            for _ in range(ROUNDS if bits else 1):
                _weigh(c, mean, size, facts, y, evidence)
                _moments(c, mean, size, facts, y, evidence, one, two, inside)
                total = _kept(one, inside, keep, rows[c])
                if bits:
                    mean, variance, paid = _read_mean(c, sums, rows, total, root, mean, paying, keep_reward)
            soft[c] += chance * one
            spreads[c] += chance * two
            inclusions[c] += chance * inside
            for i in range(nb):
                branching[c, i] += chance * evidence[i].sum()
            mean_one += chance * mean
            mean_two += chance * (variance + mean * mean)
            pay += chance * paid
        spreads[c] = np.maximum(spreads[c] - soft[c] * soft[c], 0.0)
        counts[c] = _kept(soft[c], inclusions[c], keep, rows[c])
        soft[c] /= soft[c].sum()
        means[c] = mean_one
        mean_variances[c], pays[c] = max(mean_two - mean_one * mean_one, 0.0), pay


@compiled
def _kept(expected: Floats, inclusion: Floats, keep: float, row: Floats) -> float:
    """Write the row of outcomes that are kept, the largest always; their total."""
    largest, total = 0, 0.0
    for s in range(expected.shape[0]):
        if expected[s] > expected[largest]:
            largest = s
    for s in range(expected.shape[0]):
        row[s] = expected[s] if inclusion[s] >= keep or s == largest else 0.0
        total += row[s]
    for s in range(expected.shape[0]):
        row[s] /= total
    return total


@compiled
def _moments(
    c: int,
    mean: float,
    size: tuple[float, float, int],  # deviation of the noise, predicted reports, possible outcomes
    facts: tuple[Floats, Floats, Floats, float, Ints, Floats, Floats, Floats],
    y: Floats,  # (S,)
    evidence: Floats,  # (B, R)
    one: Floats,  # (S,) out
    two: Floats,  # (S,) out
    inside: Floats,  # (S,) out
) -> None:
    """E[n], E[n²] and inclusion of every outcome, averaged over the grid."""
    root, guess, width = size
    _, prior, support, trust, branchings, _, ratios, _ = facts
    scale = root / np.sqrt(2.0 * (mean * mean + (1.0 - mean) * (1.0 - mean)))
    for s in range(y.shape[0]):
        one[s], two[s], inside[s] = 0.0, 0.0, 0.0
        if prior[c, s] <= 0.0:
            continue
        used = 0.0
        for i in range(branchings.shape[0]):
            b = min(branchings[i], width)
            for k in range(ratios.shape[0]):
                p = evidence[i, k]
                if p < NEGLIGIBLE:
                    continue
                w, mu = _slab_prior(c, s, b, width, guess * ratios[k], prior, support, trust)
                ratio, far = ratio_exponential(y[s], 1.0 / scale, 1.0 / mu)
                included = p * (1.0 if far > 0.0 else w * ratio / (1.0 - w + w * ratio))
                _, m1, m2 = slab(y[s], scale, 1.0 / mu, np.inf)
                used += p
                inside[s] += included
                one[s] += included * m1
                two[s] += included * m2
        one[s], two[s], inside[s] = one[s] / used, two[s] / used, inside[s] / used


@compiled
def _weigh(
    c: int,
    mean: float,
    size: tuple[float, float, int],  # deviation of the noise, predicted reports, possible outcomes
    facts: tuple[Floats, Floats, Floats, float, Ints, Floats, Floats, Floats],
    y: Floats,  # (S,) out
    evidence: Floats,  # (B, R) out: posterior of branching and number of reports
) -> float:
    """Log-likelihood of a cell's sums if its reward is `mean`, up to a constant.

    (x₁, x₀) is turned so that one coordinate is the count y along (r, 1−r), and the other one, z, is noise alone.
    """
    root, guess, width = size
    sums, prior, support, trust, branchings, log_shares, ratios, log_ratios = facts
    S = y.shape[0]
    nb, nr = branchings.shape[0], ratios.shape[0]
    length = np.sqrt(mean * mean + (1.0 - mean) * (1.0 - mean))
    scale = root / (np.sqrt(2.0) * length)
    beta = 1.0 / scale
    noise = 0.0
    for s in range(S):
        y[s] = combined(sums[c, 2 * s + 1], sums[c, 2 * s], mean)
        if prior[c, s] > 0.0:
            z = (sums[c, 2 * s + 1] * (1.0 - mean) - sums[c, 2 * s] * mean) / length
            noise -= np.sqrt(2.0) * abs(z) / root + beta * abs(y[s])
    most = -np.inf
    for i in range(nb):
        b = min(branchings[i], width)
        for k in range(nr):
            if branchings[i] > width and i > 0 and branchings[i - 1] >= width:
                evidence[i, k] = -np.inf
                continue
            total, product = log_shares[i] + log_ratios[k], 1.0
            for s in range(S):
                if prior[c, s] > 0.0:
                    w, mu = _slab_prior(c, s, b, width, guess * ratios[k], prior, support, trust)
                    ratio, far = ratio_exponential(y[s], beta, 1.0 / mu)
                    product *= w * ratio if far > 0.0 else 1.0 - w + w * ratio
                    total += far
                    if product > 1e100 or product < 1e-100:
                        total += np.log(product)
                        product = 1.0
            total += np.log(product)
            evidence[i, k] = total
            most = max(most, total)
    weight = 0.0
    for i in range(nb):
        for k in range(nr):
            evidence[i, k] = np.exp(evidence[i, k] - most)
            weight += evidence[i, k]
    for i in range(nb):
        for k in range(nr):
            evidence[i, k] /= weight
    return float(most + np.log(weight) + noise)


@compiled
def _slab_prior(
    c: int, s: int, branching: int, width: int, total: float, prior: Floats, support: Floats, trust: float
) -> tuple[float, float]:
    """(prior inclusion, mean of an included count) of outcome s, if `total` reports have `branching` outcomes."""
    w = min(branching * prior[c, s], CERTAIN)
    mu = total * prior[c, s] / w
    if support.shape[0] > 0 and support[c, s] >= 0.0:
        w = min(max((1.0 - trust) * branching / width + trust * support[c, s], 1e-4), CERTAIN)
        mu = total / branching
    return w, max(mu, 1e-3)


@compiled
def _read_mean(
    c: int, sums: Floats, rows: Floats, total: float, root: float, mean: float, paying: float, keep: float
) -> tuple[float, float, float]:
    """(r, variance, inclusion): 0 with probability 1 − paying, else uniform; sums are projected on the row."""
    S = rows.shape[1]
    paid, unpaid, square = 0.0, 0.0, 0.0
    for s in range(S):
        paid += rows[c, s] * sums[c, 2 * s + 1]
        unpaid += rows[c, s] * sums[c, 2 * s]
        square += rows[c, s] * rows[c, s]
    paid, unpaid = paid / square, unpaid / square
    share = mean * mean + (1.0 - mean) * (1.0 - mean)  # both sums tell about r
    scale = root * np.sqrt(share / square / 2.0)
    t = total * paid / max(paid + unpaid, 0.5 * total)
    ratio, m1, m2 = slab(t, scale, 0.0, total)
    inside = np.exp(np.log(paying) + ratio - log_mixture(paying, ratio))
    first = inside * m1 / total
    variance = max(inside * m2 / (total * total) - first * first, 0.0)
    return (first if inside >= keep else 0.0), variance, inside


@compiled
def mix_components(
    noisy: Floats,  # (n, S) counts with noise, weighted
    components: Floats,  # (K, n, S)
    pseudo: Floats,  # (K,)
    rounds: int,
    weights: Floats,  # (K,) in and out
) -> None:
    """Maximum likelihood of mixture weights by expectation–maximisation; noise has mean 0 and cancels on average."""
    K, n, S = components.shape
    for _ in range(rounds):
        gained = pseudo.copy()
        for i in range(n):
            for s in range(S):
                total = 0.0
                for k in range(K):
                    total += weights[k] * components[k, i, s]
                if total > 0.0:
                    for k in range(K):
                        gained[k] += noisy[i, s] * weights[k] * components[k, i, s] / total
        total = 0.0
        for k in range(K):
            gained[k] = max(gained[k], 0.0)
            total += gained[k]
        for k in range(K):
            weights[k] = gained[k] / total
