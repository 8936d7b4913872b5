"""Compiled reading of noisy counts: spike-and-slab posteriors in closed form. Formulas: docs/spotlight.md."""

from __future__ import annotations

import math

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

#: No branching, or none of those before, is the distance between two (`_steps`).
NO_STEP, ODD_STEP = -1, -2
#: Normal noise: below this point its integral is a continued fraction, of so many terms; counts are read as if they
#: were at most so many deviations away from what is possible.
TAIL, TERMS, REACH = -4.0, 40, 20.0

#: Paid shares of outcomes differ where their squares exceed what chance explains by so many deviations; Laplace noise
#: has a kurtosis of 6, so that a square has the variance 5.
APART, SQUARES = 12.0, 5.0

#: Of one cell: sums, prior, deviation of the noise, whether it is normal, reports on the grid, branchings, inclusions
#: and from where on they are clipped, log shares of branchings and of numbers of reports.
Facts = tuple[Floats, Floats, float, bool, Floats, Ints, Floats, Ints, Floats, Floats]


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
def half_normal(a: float) -> tuple[float, float, float]:
    """(log ∫₀^∞ e^{at − t²/2} dt, E[t], E[t²]), t with the density ∝ e^{at − t²/2} on t ≥ 0.

    Far below 0 the integral is 1/(x + 1/(x + 2/(x + 3/(x + …)))), x = −a, and nothing cancels.
    """
    if a > TAIL:
        mass = np.sqrt(np.pi / 2.0) * math.erfc(-a / np.sqrt(2.0))
        first = a + np.exp(-0.5 * a * a) / mass
        return 0.5 * a * a + np.log(mass), first, 1.0 + a * first
    tail = 0.0
    for j in range(TERMS, 1, -1):
        tail = j / (tail - a)
    first = 1.0 / (tail - a)
    return -np.log(first - a), first, tail * first


@compiled
def normal_slab(y: float, deviation: float, cap: float) -> tuple[float, float, float]:
    """As `slab`, for y = n + normal noise and n uniform on [0, cap]."""
    y = min(max(y, -REACH * deviation), cap + REACH * deviation)
    low, high = -y / deviation, (cap - y) / deviation
    root = np.sqrt(0.5)
    if low > 0.0:
        mass = 0.5 * (math.erfc(low * root) - math.erfc(high * root))
    elif high < 0.0:
        mass = 0.5 * (math.erfc(-high * root) - math.erfc(-low * root))
    else:
        mass = 1.0 - 0.5 * (math.erfc(-low * root) + math.erfc(high * root))
    at_low, at_high = np.exp(-0.5 * low * low), np.exp(-0.5 * high * high)
    total = np.sqrt(2.0 * np.pi) * mass
    first = y + deviation * (at_low - at_high) / total
    second = y * first + deviation * deviation - deviation * cap * at_high / total
    ratio = np.log(total * deviation / cap) + 0.5 * low * low
    return ratio, min(max(first, 0.0), cap), min(max(second, 0.0), cap * cap)


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
def normally_included(y: float, beta: float, w: float, rate: float, log_ratio: float) -> tuple[float, float, float]:
    """As `included`, under normal noise of deviation √2/β; log_ratio is log f₁/f₀."""
    inside = np.exp(np.log(w) + log_ratio - log_mixture(w, log_ratio))
    deviation = np.sqrt(2.0) / beta
    _, first, second = half_normal(y / deviation - rate * deviation)
    return inside, inside * deviation * first, inside * deviation * deviation * second


@compiled
def combined(paid: float, unpaid: float, mean: float) -> float:
    """The count n of an outcome seen as (r·n, (1−r)·n) under equal noise: least squares."""
    return (mean * paid + (1.0 - mean) * unpaid) / (mean * mean + (1.0 - mean) * (1.0 - mean))


@compiled
def read_rows(
    cells: Ints,  # which rows to read
    sums: Floats,  # (C, 2S)
    variances: Floats,  # (C,) of the noise on a sub-cell
    normal: bool,  # whether the noise is normal rather than Laplace
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
    likelihoods: Floats,  # (C,) out: logarithm of that of the sums, up to the constant of the noise
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
        facts = sums[c], prior[c], root, normal, totals, sizes, inclusion, clipped, log_shares, log_ratios
        settled = again or counts[c] >= CLEAR * root
        starts[:] = -np.inf
        starts[0] = 0.0
        for k in range(len(STARTS)):
            origin[k] = means[c] if settled else STARTS[k]
        for k in range(len(STARTS) if bits and not settled else 1):  # how many cells pay comes in later
            likelihood = _weigh(origin[k], facts, rises[0][k], rises[1][k], first[k])
            starts[k] = likelihood
        most = starts.max()
        starts[:] = np.exp(starts - most)
        likelihoods[c] = most + np.log(starts.sum() / (len(STARTS) if bits and not settled else 1))
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
                    mean, variance, paid = _read_mean(c, sums, rows, total, root, normal, mean, paying, keep_reward)
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
        means[c] = mean_one
        mean_variances[c], pays[c] = max(mean_two - mean_one * mean_one, 0.0), pay
        if bits and counts[c] >= CLEAR * root and pays_by_outcome(sums[c], rows[c], counts[c], root):
            _weigh(0.5, facts, rises[0][0], rises[1][0], first[0])  # along (½, ½) the count is paid + unpaid
            _moments(0.5, facts, rises[0][0], rises[1][0], first[0], one, two, inside)
            soft[c], spreads[c], inclusions[c] = one, np.maximum(two - one * one, 0.0), inside
            for i in range(nb):
                branching[c, i] = first[0, :, i].sum()
            counts[c] = _kept(soft[c], inclusions[c], keep, rows[c])
            means[c], mean_variances[c] = _paid_share(sums[c], rows[c], counts[c], root)
        soft[c] /= soft[c].sum()


@compiled
def pays_by_outcome(sums: Floats, row: Floats, total: float, root: float) -> bool:
    """Whether a cell's reward depends on where it leads: Σ_y z²/Var z over kept outcomes, z = (1−r)·x₁ − r·x₀.

    If it does not, z has mean 0 and the variance v·(r² + (1−r)²) + n_y·r(1−r), r the paid share of all.
    """
    r, _ = _paid_share(sums, row, total, root)
    squares, outcomes = 0.0, 0
    for s in range(row.shape[0]):
        if row[s] > 0.0:
            z = (1.0 - r) * sums[2 * s + 1] - r * sums[2 * s]
            chance = root * root * (r * r + (1.0 - r) * (1.0 - r)) + row[s] * total * r * (1.0 - r)
            squares += z * z / chance
            outcomes += 1
    return outcomes > 1 and squares - outcomes > APART * np.sqrt(SQUARES * outcomes)


@compiled
def _paid_share(sums: Floats, row: Floats, total: float, root: float) -> tuple[float, float]:
    """(r, variance of its noise): the paid share of all reports on kept outcomes, whatever each of them pays."""
    paid, unpaid, outcomes = 0.0, 0.0, 0
    for s in range(row.shape[0]):
        if row[s] > 0.0:
            paid += sums[2 * s + 1]
            unpaid += sums[2 * s]
            outcomes += 1
    r = min(max(paid / max(paid + unpaid, 0.5 * total), 0.0), 1.0)
    return r, outcomes * root * root * (r * r + (1.0 - r) * (1.0 - r)) / (total * total)


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
    sums, prior, root, normal, totals, sizes, inclusion, clipped, _, _ = facts
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
                    w = inclusion[s, i]
                    if normal:
                        found = normally_included(y, beta, w, rates[k, i], rise[s, k, i])
                    else:
                        found = included(y, beta, w, rates[k, i], rise[s, k, i])
                    inside[s] += share[k, i] * found[0]
                    one[s] += share[k, i] * found[1]
                    two[s] += share[k, i] * found[2]
            rest = share[k, own:].sum()
            if rest > 0.0:  # these branchings say the same
                rate = slab_rate(totals[k] * prior[s] / CERTAIN, beta)
                if normal:
                    found = normally_included(y, beta, CERTAIN, rate, own_rise[s, k])
                else:
                    found = included(y, beta, CERTAIN, rate, own_rise[s, k])
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
    sums, prior, root, normal, totals, sizes, inclusion, clipped, log_shares, log_ratios = facts
    if normal:
        return _weigh_normal(mean, facts, rise, own_rise, evidence)
    nr, nb = evidence.shape
    length = np.sqrt(mean * mean + (1.0 - mean) * (1.0 - mean))
    beta = np.sqrt(2.0) * length / root
    # f₁/f₀ = up·e^{(β−rate)y} − down for y > 0, and `nothing` below
    up, down, nothing = np.empty((nr, nb)), np.empty((nr, nb)), np.empty((nr, nb))
    steps, moved = _steps(sizes), np.empty((nr, nb), dtype=np.bool_)
    product = np.ones((nr, nb))
    for k in range(nr):
        for i in range(nb):
            rate = slab_rate(totals[k] / max(sizes[i], 1), beta)
            up[k, i] = rate * (1.0 / (beta - rate) + 1.0 / (beta + rate))
            down[k, i], nothing[k, i] = rate / (beta - rate), rate / (beta + rate)
            moved[k, i] = abs(beta * totals[k] - sizes[i]) <= 2.0 * HAIR * beta * totals[k]
            evidence[k, i] = log_shares[i] + log_ratios[k] if sizes[i] > 0 else -np.inf
    some_moved = bool(moved.any())
    noise, size = 0.0, 0.0  # size: bound of |log product|
    for s in range(prior.shape[0]):
        if prior[s] <= 0.0:
            continue
        y = combined(sums[2 * s + 1], sums[2 * s], mean)
        z = (sums[2 * s + 1] * (1.0 - mean) - sums[2 * s] * mean) / length
        noise -= np.sqrt(2.0) * abs(z) / root + beta * abs(y)
        w, own = inclusion[s], clipped[s]
        if y > 0.0:
            _rises(y, beta, totals, sizes, steps, moved, some_moved, own, rise[s])
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
    return noise + _normalised(evidence)


@compiled
def _normalised(evidence: Floats) -> float:
    """Turn logarithms into shares; the logarithm of their sum."""
    most = evidence.max()
    weight = 0.0
    for k in range(evidence.shape[0]):
        for i in range(evidence.shape[1]):
            evidence[k, i] = np.exp(evidence[k, i] - most)
            weight += evidence[k, i]
    evidence /= weight
    return float(most + np.log(weight))


@compiled
def _weigh_normal(
    mean: float,
    facts: Facts,
    ratio: Floats,  # (S, R, B) out: log f₁/f₀
    own_ratio: Floats,  # (S, R) out: the same for outcomes whose inclusion was clipped
    evidence: Floats,  # (R, B) out
) -> float:
    """As `_weigh`, under normal noise: f₁/f₀ = rate·τ·∫₀^∞ e^{(y/τ − rate·τ)t − t²/2} dt, τ the deviation of y."""
    sums, prior, root, _, totals, sizes, inclusion, clipped, log_shares, log_ratios = facts
    nr, nb = evidence.shape
    length = np.sqrt(mean * mean + (1.0 - mean) * (1.0 - mean))
    tau = root / length
    beta = np.sqrt(2.0) / tau
    for k in range(nr):
        for i in range(nb):
            evidence[k, i] = log_shares[i] + log_ratios[k] if sizes[i] > 0 else -np.inf
    noise = 0.0
    for s in range(prior.shape[0]):
        if prior[s] <= 0.0:
            continue
        y = combined(sums[2 * s + 1], sums[2 * s], mean)
        z = (sums[2 * s + 1] * (1.0 - mean) - sums[2 * s] * mean) / length
        noise -= 0.5 * (z / root) ** 2 + 0.5 * (y / tau) ** 2
        own = clipped[s]
        for k in range(nr):
            for i in range(own):
                if sizes[i] > 0:
                    rate = slab_rate(totals[k] / sizes[i], beta)
                    ratio[s, k, i] = np.log(rate * tau) + half_normal(y / tau - rate * tau)[0]
                    evidence[k, i] += log_mixture(inclusion[s, i], ratio[s, k, i])
            if own < nb:
                rate = slab_rate(totals[k] * prior[s] / CERTAIN, beta)
                own_ratio[s, k] = np.log(rate * tau) + half_normal(y / tau - rate * tau)[0]
                for i in range(own, nb):
                    evidence[k, i] += log_mixture(CERTAIN, own_ratio[s, k])
    return noise + _normalised(evidence)


@compiled
def _take_logs(product: Floats, evidence: Floats) -> None:
    """Move a product into a sum of logarithms, before it leaves the range of numbers."""
    for k in range(product.shape[0]):
        for i in range(product.shape[1]):
            evidence[k, i] += np.log(product[k, i])
            product[k, i] = 1.0


@compiled
def _rises(
    y: float,
    beta: float,
    totals: Floats,  # (R,)
    sizes: Ints,  # (B,)
    steps: Ints,  # (B,), by `_steps`
    moved: Mask,  # (R, B): rates that `slab_rate` moved away from beta
    some_moved: bool,
    end: int,
    rise: Floats,  # (R, B) out
) -> None:
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
            if steps[i] >= 0:
                rise[k, i] = rise[k, i - 1] * rise[k, steps[i]]
            elif steps[i] == NO_STEP:
                rise[k, i] = rise[k, 0]
            else:
                rise[k, i] = rise[k, i - 1] * np.exp(-y * (sizes[i] - sizes[i - 1]) / totals[k])
        for i in range(end):
            rise[k, i] *= top
    if some_moved:
        for k in range(nr):
            for i in range(end):
                if moved[k, i]:
                    rise[k, i] = np.exp((beta - slab_rate(totals[k] / max(sizes[i], 1), beta)) * y)


@compiled
def _steps(sizes: Ints) -> Ints:
    """Of each branching but the first: which earlier one is its distance from the one before; most have one.

    NO_STEP where nothing lies between, ODD_STEP where no earlier one does.
    """
    steps = np.full(sizes.shape[0], NO_STEP)
    for i in range(1, sizes.shape[0]):
        left, j = sizes[i] - sizes[i - 1], 0
        if left > 0:
            while sizes[j] < left:
                j += 1
            steps[i] = j if sizes[j] == left else ODD_STEP
    return steps


@compiled
def _read_mean(
    c: int,
    sums: Floats,
    rows: Floats,
    total: float,
    root: float,
    normal: bool,
    mean: float,
    paying: float,
    keep: float,
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
    t = total * paid / max(paid + unpaid, 0.5 * total)
    if normal:
        ratio, m1, m2 = normal_slab(t, root * np.sqrt(share / square), total)
    else:
        ratio, m1, m2 = slab(t, root * np.sqrt(share / square / 2.0), 0.0, total)
    inside = np.exp(np.log(paying) + ratio - log_mixture(paying, ratio))
    first = inside * m1 / total
    variance = max(inside * m2 / (total * total) - first * first, 0.0)
    return (first if inside >= keep else 0.0), variance, inside


@compiled
def _far(x: float, variance: float, normal: bool) -> float:
    """−log of a density with that variance at x, over the one at 0."""
    return float(0.5 * x * x / variance if normal else np.sqrt(2.0 / variance) * abs(x))


@compiled
def likelihoods_if_alike(
    cells: Ints,  # which rows to look at
    sums: Floats,  # (C, 2S)
    variances: Floats,  # (C,) of the noise on a sub-cell
    normal: bool,  # whether it is normal
    expected: Floats,  # (C,) predicted reports
    possible: Mask,  # (C, S)
    rows: Floats,  # (C, S) as at other steps
    row_variances: Floats,  # (C, S)
    means: Floats,  # (C,)
    mean_variances: Floats,  # (C,)
    ratios: Floats,  # (R,)
    log_ratios: Floats,  # (R,)
    likelihoods: Floats,  # (cells,) out: as of `read_rows`
) -> None:
    """log Σ_N p(N)·Π_y Laplace(y; N·q, v/L + N·q + N²·Var q)·Laplace(z; 0, v + (N·q·r(1−r) + (N·q)²·Var r)/L).

    q and r are row and reward elsewhere, L = r² + (1−r)²; y is the count along (r, 1−r) and z what lies across it.
    Laplace densities (normal ones where the noise is normal) are relative to the constant of the noise alone.
    """
    evidence = np.empty(ratios.shape[0])
    for index in range(cells.shape[0]):
        c = cells[index]
        r, v = means[c], max(variances[c], 1e-6)
        square = r * r + (1.0 - r) * (1.0 - r)
        for k in range(ratios.shape[0]):
            N = max(expected[c], np.sqrt(v)) * ratios[k]
            evidence[k] = log_ratios[k]
            for s in range(rows.shape[1]):
                if not possible[c, s]:
                    continue
                paid, unpaid, n = sums[c, 2 * s + 1], sums[c, 2 * s], N * rows[c, s]
                along = v / square + n + N * N * row_variances[c, s]
                across = v + (n * r * (1.0 - r) + n * n * mean_variances[c]) / square
                z = (paid * (1.0 - r) - unpaid * r) / np.sqrt(square)
                evidence[k] += 0.5 * np.log(v / square / along * v / across)
                evidence[k] -= _far(combined(paid, unpaid, r) - n, along, normal) + _far(z, across, normal)
        most = evidence.max()
        likelihoods[index] = most + np.log(np.exp(evidence - most).sum())


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
        if total <= 0.0:  # noise has outweighed every count: nothing was learned of the weights
            break
        for k in range(K):
            weights[k] = gained[k] / total
