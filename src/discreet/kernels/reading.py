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
#: Below this one, differences of exponentials cancel too much for a second moment.
CANCELLING = 0.02
#: Rates of counts keep this relative distance from that of the noise.
HAIR = 1e-7
#: Largest prior inclusion of one outcome.
CERTAIN = 0.97
#: Rounds between outcomes, given the reward, and the reward, given outcomes; and rewards to start from.
ROUNDS = 2
STARTS = (0.0, 0.5, 1.0)
#: Starts with less posterior weight than this are left out.
UNLIKELY = 0.02
#: A cell with so many standard deviations of reports is read from its last reward on, once.
CLEAR = 20.0

#: Of one cell: sums, prior, deviation of the noise, reports on the grid, branchings, inclusions, from where on they
#: are clipped, log shares of branchings and of numbers of reports.
Facts = tuple[Floats, Floats, float, Floats, Ints, Floats, Ints, Floats, Floats]


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
def slab_rate(mean: float, beta: float) -> float:
    """1/mean, at least a hair away from the rate of the noise: differences of exponentials would cancel there."""
    rate = 1.0 / max(mean, 1e-3)
    return rate if abs(beta - rate) > HAIR * beta else beta * (1.0 - HAIR)


@compiled
def rising(y: float, slope: float, flat: float, inverse: float, rise: float) -> tuple[float, float, float]:
    """∫ n^k·(posterior density of an exponential slab) dn for k = 0, 1, 2, relative to n = 0; y > 0.

    slope = β − rate, flat = 1/slope, inverse = 1/(β + rate), rise = e^{slope·y}: the density is e^{slope·n} up to y
    and falls with β + rate from there on. rate times the first integral is f₁/f₀.
    """
    x = slope * y
    if abs(x) < CANCELLING:
        zeroth = y * (1.0 + x * (1 / 2 + x * (1 / 6 + x / 24)))
        first = y * y * (1 / 2 + x * (1 / 3 + x * (1 / 8 + x / 30)))
        second = y * y * y * (1 / 3 + x * (1 / 4 + x * (1 / 10 + x / 36)))
    else:
        zeroth = (rise - 1.0) * flat
        first = (rise * (x - 1.0) + 1.0) * flat * flat
        second = (rise * (x * (x - 2.0) + 2.0) - 2.0) * flat * flat * flat
    ended = rise * inverse
    return zeroth + ended, first + (y + inverse) * ended, second + (y * y + 2.0 * inverse * (y + inverse)) * ended


@compiled
def included(y: float, beta: float, w: float, rate: float, rise: float) -> tuple[float, float, float]:
    """(posterior inclusion, and it times E[n|y] and E[n²|y]) of an outcome with prior inclusion w."""
    inverse = 1.0 / (beta + rate)
    if y <= 0.0:
        inside = w * rate * inverse / (1.0 - w + w * rate * inverse)
        return inside, inside * inverse, inside * 2.0 * inverse * inverse
    flat = 1.0 / (beta - rate)
    if rise == np.inf:  # 0 is out of reach; relative to n = y
        total = flat + inverse
        first = (y - flat) * flat + (y + inverse) * inverse
        second = (y * y - 2.0 * flat * (y - flat)) * flat + (y * y + 2.0 * inverse * (y + inverse)) * inverse
        return 1.0, first / total, second / total
    zeroth, first, second = rising(y, beta - rate, flat, inverse, rise)
    factor = w * rate / (1.0 - w + w * rate * zeroth)
    return factor * zeroth, factor * first, factor * second


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
    again: bool,  # the cells were read before, and only what is known about all cells has changed
) -> None:
    """Posteriors by a few rounds between outcomes, given the reward, and the reward, given outcomes.

    The rounds may not return from a wrong reward, so they are run from each of STARTS and averaged with its evidence;
    a cell that was read clearly, or from the same sums, goes on from its reward.
    """
    S = rows.shape[1]
    nb, nr = branchings.shape[0], ratios.shape[0]
    starts, origin, none = np.empty(len(STARTS)), np.empty(len(STARTS)), np.empty(0)
    first = np.empty((len(STARTS), nr, nb))  # evidence of the starts
    rises = np.empty((len(STARTS), S, nr, nb)), np.empty((len(STARTS), S, nr))
    one, two, inside = np.empty(S), np.empty(S), np.empty(S)  # of one start: E[n], E[n²], inclusion
    inclusion, clipped, sizes = np.empty((S, nb)), np.empty(S, dtype=np.int64), np.empty(nb, dtype=np.int64)
    for index in range(cells.shape[0]):
        c = cells[index]
        root = np.sqrt(max(variances[c], 1e-6))
        width, bits = 0, False
        for s in range(S):
            if admitted[c, 2 * s] or admitted[c, 2 * s + 1]:
                width += 1
            bits = bits or admitted[c, 2 * s + 1]
        totals = max(expected[c], root) * ratios
        _inclusions(
            prior[c],
            support[c] if support.shape[0] > 0 else none,
            trust,
            branchings,
            width,
            inclusion,
            clipped,
            sizes,
        )
        facts = sums[c], prior[c], root, totals, sizes, inclusion, clipped, log_shares, log_ratios
        settled = again or counts[c] >= CLEAR * root
        starts[:] = -np.inf
        starts[0] = 0.0
        for k in range(len(STARTS)):
            origin[k] = means[c] if settled else STARTS[k]
        for k in range(len(STARTS) if bits and not settled else 1):  # how many cells pay comes in later
            likelihood = _weigh(origin[k], facts, rises[0][k], rises[1][k], first[k])
            starts[k] = likelihood if bits else 0.0
        starts[:] = np.exp(starts - starts.max())
        starts[starts < UNLIKELY * starts.sum()] = 0.0
        starts /= starts.sum()
        soft[c], spreads[c], inclusions[c], branching[c] = 0.0, 0.0, 0.0, 0.0
        mean_one, mean_two, pay = 0.0, 0.0, 0.0
        for k in range(len(STARTS)):
            chance = starts[k]
            if chance == 0.0:
                continue
            mean, variance, paid = origin[k], 0.0, 0.0
            for i in range(ROUNDS if bits and not settled else 1):
                if i > 0:
                    _weigh(mean, facts, rises[0][k], rises[1][k], first[k])
                _moments(mean, facts, rises[0][k], rises[1][k], first[k], one, two, inside)
                total = _kept(one, inside, keep, rows[c])
                if bits:
                    mean, variance, paid = _read_mean(c, sums, rows, total, root, mean, paying, keep_reward)
            soft[c] += chance * one
            spreads[c] += chance * two
            inclusions[c] += chance * inside
            for i in range(nb):
                branching[c, i] += chance * first[k, :, i].sum()
            mean_one += chance * mean
            mean_two += chance * (variance + mean * mean)
            pay += chance * paid
        spreads[c] = np.maximum(spreads[c] - soft[c] * soft[c], 0.0)
        counts[c] = _kept(soft[c], inclusions[c], keep, rows[c])
        soft[c] /= soft[c].sum()
        means[c] = mean_one
        mean_variances[c], pays[c] = max(mean_two - mean_one * mean_one, 0.0), pay


@compiled
def _inclusions(
    prior: Floats,  # (S,)
    support: Floats,  # (S,), or (0,)
    trust: float,
    branchings: Ints,  # (B,)
    width: int,  # possible outcomes
    inclusion: Floats,  # (S, B) out: prior inclusion
    clipped: Ints,  # (S,) out: from this branching on, an included count has the mean N·π/w instead of N/b
    sizes: Ints,  # (B,) out: branching within the width; 0 where an earlier one says the same
) -> None:
    """w = min(b·π, .97); where other steps show an outcome, (1−trust)·b/width + trust·(what they show)."""
    nb = branchings.shape[0]
    for i in range(nb):
        sizes[i] = min(branchings[i], width) if i == 0 or branchings[i - 1] < width else 0
    for s in range(prior.shape[0]):
        clipped[s] = nb
        for i in range(nb):
            b = min(branchings[i], width)
            if support.shape[0] > 0 and support[s] >= 0.0:
                inclusion[s, i] = min(max((1.0 - trust) * b / width + trust * support[s], 1e-4), CERTAIN)
            else:
                inclusion[s, i] = min(b * prior[s], CERTAIN)
                if b * prior[s] > CERTAIN:
                    clipped[s] = min(clipped[s], i)


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
    mean: float,
    facts: Facts,
    rise: Floats,  # (S, R, B), as `_weigh` left it
    own_rise: Floats,  # (S, R)
    evidence: Floats,  # (R, B)
    one: Floats,  # (S,) out
    two: Floats,  # (S,) out
    inside: Floats,  # (S,) out
) -> None:
    """E[n], E[n²] and inclusion of every outcome, averaged over the grid."""
    sums, prior, root, totals, sizes, inclusion, clipped, _, _ = facts
    nr, nb = evidence.shape
    beta = np.sqrt(2.0 * (mean * mean + (1.0 - mean) * (1.0 - mean))) / root
    share, rates, used = np.zeros((nr, nb)), np.empty((nr, nb)), 0.0
    for k in range(nr):
        for i in range(nb):
            if evidence[k, i] >= NEGLIGIBLE:
                share[k, i], rates[k, i] = evidence[k, i], slab_rate(totals[k] / sizes[i], beta)
                used += evidence[k, i]
    share /= used
    for s in range(prior.shape[0]):
        one[s], two[s], inside[s] = 0.0, 0.0, 0.0
        if prior[s] <= 0.0:
            continue
        y = combined(sums[2 * s + 1], sums[2 * s], mean)
        own = clipped[s]
        for k in range(nr):
            for i in range(own):
                if share[k, i] > 0.0:
                    found = included(y, beta, inclusion[s, i], rates[k, i], rise[s, k, i])
                    inside[s] += share[k, i] * found[0]
                    one[s] += share[k, i] * found[1]
                    two[s] += share[k, i] * found[2]
            rest = share[k, own:].sum()
            if rest > 0.0:  # these branchings say the same
                found = included(y, beta, CERTAIN, slab_rate(totals[k] * prior[s] / CERTAIN, beta), own_rise[s, k])
                inside[s] += rest * found[0]
                one[s] += rest * found[1]
                two[s] += rest * found[2]


@compiled
def _weigh(
    mean: float,
    facts: Facts,
    rise: Floats,  # (S, R, B) out: e^{(β−rate)·y} of counts above 0, infinite where an outcome is certain
    own_rise: Floats,  # (S, R) out: the same for outcomes whose inclusion was clipped
    evidence: Floats,  # (R, B) out: posterior of number of reports and branching
) -> float:
    """Log-likelihood of a cell's sums if its reward is `mean`, up to a constant.

    (x₁, x₀) is turned so that one coordinate is the count y along (r, 1−r), and the other one, z, is noise alone.
    Rates are b/N with whole b, so that e^{−rate·y} is a power of e^{−y/N}: one exponential for all branchings.
    """
    sums, prior, root, totals, sizes, inclusion, clipped, log_shares, log_ratios = facts
    nr, nb = evidence.shape
    length = np.sqrt(mean * mean + (1.0 - mean) * (1.0 - mean))
    beta = np.sqrt(2.0) * length / root
    # f₁/f₀ = up·e^{(β−rate)y} − down for y > 0, and `nothing` below
    up, down, nothing = np.empty((nr, nb)), np.empty((nr, nb)), np.empty((nr, nb))
    product = np.ones((nr, nb))
    for k in range(nr):
        for i in range(nb):
            rate = slab_rate(totals[k] / max(sizes[i], 1), beta)
            up[k, i] = rate * (1.0 / (beta - rate) + 1.0 / (beta + rate))
            down[k, i], nothing[k, i] = rate / (beta - rate), rate / (beta + rate)
            evidence[k, i] = log_shares[i] + log_ratios[k] if sizes[i] > 0 else -np.inf
    noise, size = 0.0, 0.0  # size: bound of |log product|
    for s in range(prior.shape[0]):
        if prior[s] <= 0.0:
            continue
        y = combined(sums[2 * s + 1], sums[2 * s], mean)
        z = (sums[2 * s + 1] * (1.0 - mean) - sums[2 * s] * mean) / length
        noise -= np.sqrt(2.0) * abs(z) / root + beta * abs(y)
        w, own = inclusion[s], clipped[s]
        if y > 0.0:
            _rises(y, beta, totals, sizes, own, rise[s])
        for k in range(nr):
            if y <= 0.0:
                for i in range(own):
                    product[k, i] *= 1.0 - w[i] + w[i] * nothing[k, i]
            elif beta * y < FAR:
                for i in range(own):
                    product[k, i] *= 1.0 - w[i] + w[i] * (up[k, i] * rise[s, k, i] - down[k, i])
            else:
                for i in range(own):
                    if rise[s, k, i] < np.inf:
                        product[k, i] *= 1.0 - w[i] + w[i] * (up[k, i] * rise[s, k, i] - down[k, i])
                    else:
                        product[k, i] *= w[i] * up[k, i]
                        evidence[k, i] += (beta - slab_rate(totals[k] / max(sizes[i], 1), beta)) * y
            if own < nb:
                rate = slab_rate(totals[k] * prior[s] / CERTAIN, beta)
                x = (beta - rate) * y
                factor = rate / (beta + rate)
                if x >= FAR and y > 0.0:
                    own_rise[s, k] = np.inf
                    factor = CERTAIN * rate * (1.0 / (beta - rate) + 1.0 / (beta + rate))
                    evidence[k, own:] += x
                else:
                    if y > 0.0:
                        own_rise[s, k] = np.exp(x)
                        factor = rate * ((own_rise[s, k] - 1.0) / (beta - rate) + own_rise[s, k] / (beta + rate))
                    factor = 1.0 - CERTAIN + CERTAIN * factor
                for i in range(own, nb):
                    product[k, i] *= factor
        size += min(beta * max(y, 0.0), FAR) + 5.0
        if size > FAR:
            size = 0.0
            _take_logs(product, evidence)
    _take_logs(product, evidence)
    most = evidence.max()
    weight = 0.0
    for k in range(nr):
        for i in range(nb):
            evidence[k, i] = np.exp(evidence[k, i] - most)
            weight += evidence[k, i]
    evidence /= weight
    return float(most + np.log(weight) + noise)


@compiled
def _take_logs(product: Floats, evidence: Floats) -> None:
    """Move a product into a sum of logarithms, before it leaves the range of numbers."""
    for k in range(product.shape[0]):
        for i in range(product.shape[1]):
            evidence[k, i] += np.log(product[k, i])
            product[k, i] = 1.0


@compiled
def _rises(y: float, beta: float, totals: Floats, sizes: Ints, end: int, rise: Floats) -> None:
    """e^{(β − b/N)·y} for all N and the first branchings, infinite beyond FAR."""
    nr = rise.shape[0]
    if beta * y >= FAR:
        for k in range(nr):
            for i in range(end):
                x = (beta - slab_rate(totals[k] / max(sizes[i], 1), beta)) * y
                rise[k, i] = np.exp(x) if x < FAR else np.inf
        return
    top = np.exp(beta * y)
    for k in range(nr):
        rise[k, 0] = np.exp(-y * sizes[0] / totals[k])
        for i in range(1, end):
            left, j = sizes[i] - sizes[i - 1], 0
            while sizes[j] < left:  # powers of the step from those before: most b are sums of two smaller ones
                j += 1
            power = rise[k, j] if sizes[j] == left else np.exp(-y * left / totals[k])
            rise[k, i] = rise[k, i - 1] * power if left > 0 else rise[k, 0]
        for i in range(end):
            rise[k, i] *= top
            if abs(beta * totals[k] - sizes[i]) <= 2.0 * HAIR * beta * totals[k]:  # `slab_rate` moved it
                rise[k, i] = np.exp((beta - slab_rate(totals[k] / max(sizes[i], 1), beta)) * y)


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
