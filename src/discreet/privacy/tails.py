"""How wrong a noisy sum can be: exact tails of the noise and the smallest widths that hold with probability 1 − beta.

Everything here is a function of public numbers. A *width* e answers: with probability at least 1 − beta, do all
`counters` noisy sums, at all times they are released, lie within e of the truth? Noise is drawn independently of
the data, so it does not matter how the data react to earlier releases; only where the *scales* react to earlier noise
does the question become harder (`adaptive_width`).

Notation: DLap(b) has P(X = x) = (1−q)/(1+q)·q^|x| with q = e^{−1/b}; S_j is a sum of j independent ones.
Every probability computed here is rounded up, so a width is never too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import scipy  # its parts are loaded where they are first used: they take longer than most fits

Floats = npt.NDArray[np.float64]

_CLOSED_FORM = 64  # most terms for which the finite sum is used; the contour integral is as exact and cheaper above
_CERTAIN = math.log(0.5)  # P(S ≥ x) ≤ ½ for x ≥ 1, all that is ever needed near the centre


def _check(beta: float, counters: float = 1) -> None:
    if not 0.0 < beta < 1.0:
        raise ValueError(f"The failure probability beta must lie in (0, 1), got {beta}.")
    if not counters >= 1:
        raise ValueError(f"There must be at least one counter, got {counters}.")


def _check_scale(scale: float) -> None:
    if not (scale >= 0.0 and math.isfinite(scale)):
        raise ValueError(f"The scale of the noise must be finite and not negative, got {scale}.")


def _check_terms(name: str, count: float) -> None:
    if not (count >= 1 and int(count) == count):
        raise ValueError(f"{name} must be a whole number of at least 1, got {count}.")


def _log_sum(logs: Floats) -> Floats:
    """ln Σ exp over the last axis."""
    top = logs.max(axis=-1, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(logs - top).sum(axis=-1)))


def _log_shares(alternatives: npt.ArrayLike, counters: float) -> Floats:
    """ln(2·counters·occurrences), one row for each way to count."""
    rows = np.atleast_2d(np.asarray(alternatives, dtype=np.float64))
    return np.where(rows > 0.0, np.log(np.maximum(rows, 1e-300)), -np.inf) + math.log(2.0 * counters)


def _smallest(log_failure: Callable[[float], float], log_beta: float, start: float) -> float:
    """The smallest whole e ≥ 0 with log_failure(e) ≤ log_beta, for a falling log_failure.

    Interpolation with halved ends (Illinois) inside a bracket whose upper end always satisfies the condition; every
    third step bisects, so that no shape of the tail can stall it.
    """
    low, low_value = 0.0, log_failure(0.0) - log_beta
    if low_value <= 0.0:
        return 0.0
    high = float(math.ceil(start))
    high_value = log_failure(high) - log_beta
    while high_value > 0.0:
        low, low_value = high, high_value
        high *= 2.0
        high_value = log_failure(high) - log_beta
    step, rose = 0, False
    while high - low > max(1.0, 1e-13 * high):
        step += 1
        middle = low + (high - low) * (low_value / (low_value - high_value) if step % 3 else 0.5)
        middle = math.ceil(middle) if rose else math.floor(middle)
        middle = min(max(middle, low + 1.0), high - 1.0)
        value = log_failure(middle) - log_beta
        if value > 0.0:
            high_value *= 0.5 if rose else 1.0
            low, low_value, rose = middle, value, True
        else:
            low_value *= 1.0 if rose else 0.5
            high, high_value, rose = middle, value, False
    return float(high)


#: ln Γ of few numbers: what SciPy has for many takes longer to load than most fits.
_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


# Sums of discrete Laplace noise -------------------------------------------------------------------------------------


def _closed_form(terms: Sequence[int], scale: float) -> Callable[[float], Floats]:
    """x ↦ ln P(S_j ≥ x) for every j in `terms` and whole x ≥ 1.

    S_j is a difference of two negative binomials. Splitting C(x+g+j−1, j−1) = Σ_k C(x+j−1, j−1−k)·C(g, k) in both
    sums (over the smaller of the two and over the tail) leaves j positive terms:

        P(S_j ≥ x) = (1−q)^{2j} q^x Σ_{k<j} C(x+j−1, j−1−k)·d_k,
        d_k = Σ_{i≤k} C(i+j−1, i)·q^{2i}/(1−q²)^{i+j} · q^{k−i}/(1−q)^{k−i+1}.
    """
    j = np.asarray(terms, dtype=np.float64)[:, None]
    k = np.arange(max(terms), dtype=np.float64)[None, :]
    log_q, log_1q = -1.0 / scale, math.log(-math.expm1(-1.0 / scale))
    log_1q2 = math.log(-math.expm1(-2.0 / scale))
    first = _log_gamma(k + j) - _log_gamma(k + 1) - _log_gamma(j) + 2 * k * log_q - (k + j) * log_1q2
    ratio = log_q - log_1q
    log_d = np.logaddexp.accumulate(first - k * ratio, axis=1) + k * ratio - log_1q + 2 * j * log_1q
    # Column m holds the partner of C(x+j−1, m), which is d_{j−1−m}.
    partner = (j - 1 - k).astype(np.int64)
    weights = np.where(partner >= 0, np.take_along_axis(log_d, np.maximum(partner, 0), axis=1), -np.inf)
    weights -= _log_gamma(k + 1)

    def log_tails(x: float) -> Floats:
        falling = np.log(np.maximum(x + j - 1 - k[:, :-1], 1.0))  # negative factors only meet weight −inf
        powers = np.concatenate([np.zeros((len(j), 1)), np.cumsum(falling, axis=1)], axis=1)
        return _log_sum(powers + weights) + x * log_q + 1e-11

    return log_tails


def _contour(terms: int, scale: float) -> Callable[[float], float]:
    """x ↦ an upper bound on ln P(S_n ≥ x), exact to about nine digits, for many terms.

    With M(z) = E e^{zX} = 1/D(z), D(z) = 1 − (sinh(z/2)/sinh(1/(2b)))², and any real 0 < s < 1/b,

        P(S_n ≥ x) = (1/2π) ∫_{−π}^{π} M(s+iθ)ⁿ e^{−(s+iθ)x}/(1 − e^{−(s+iθ)}) dθ.

    The N-point trapezoid sum of this periodic function equals Σ_k e^{skN}·P(S_n ≥ x + kN): all terms are positive, so
    the sum is an upper bound, and N is chosen so that only k = 0 counts. At the saddle s few nodes matter.
    """
    n, b = terms, scale
    half = math.sinh(min(0.5 / b, 350.0))
    a = 0.5 / (half * half)
    deviation = math.sqrt(n * a)

    def log_tail(x: float) -> float:
        if x <= deviation:
            return _CERTAIN
        r = x / b
        s = (math.sqrt(float(n) * n + r * r) - n) / x  # saddle of continuous noise
        if b < 1e3:  # saddle of the discrete noise: a quadratic equation in e^s
            root = math.sqrt((x * (1.0 + a)) ** 2 - a * a * (x * x - float(n) * n))
            s = min(max(math.log((x * (1.0 + a) + root) / (a * (n + x))), 0.5 * s), (1.0 - 1e-9) / b)
        D = 1.0 - (math.sinh(s / 2.0) / half) ** 2
        slope = a * math.cosh(s) / D
        spread = math.sqrt(n * (slope + (a * math.sinh(s) / D) ** 2))
        exponent = -n * math.log(D) - s * x
        N = math.ceil(max((37.0 - exponent) / s, 12.0 * spread)) + 1.0
        # |M(s+iθ)/M(s)| ≤ (1 + slope·(1−cos θ))^{−1}: beyond `reach` the integrand is below e^{−80} of its peak.
        needed = math.expm1(min(80.0 / n, 700.0)) / slope
        reach = math.pi if needed >= 2.0 else 2.0 * math.asin(math.sqrt(needed / 2.0))
        last = math.floor(min(reach * N / (2.0 * math.pi) + 1.0, (N - 1.0) / 2.0))
        theta = 2.0 * math.pi / N * np.arange(last + 1)
        if last == math.floor((N - 1.0) / 2.0) and N % 2.0 == 0.0:
            theta = np.append(theta, math.pi)
        z = s + 1j * theta
        ratio = (1.0 - (np.sinh(z / 2.0) / half) ** 2) / D
        values = (np.exp(-n * np.log(ratio) - 1j * theta * x) / -np.expm1(-z)).real
        weights = np.where((theta == 0.0) | (theta == math.pi), 1.0, 2.0)
        return exponent + math.log(float(weights @ values) / N) + 1e-9 + 4e-15 * n

    return log_tail


def laplace_log_tails(terms: Sequence[int], scale: float) -> Callable[[float], Floats]:
    """x ↦ ln P(S_j ≥ x) for every j in `terms` (whole x ≥ 1), rounded up."""
    few = [j for j in terms if j <= _CLOSED_FORM]
    many = [j for j in terms if j > _CLOSED_FORM]
    exact = _closed_form(few, scale) if few else None
    contours = [_contour(j, scale) for j in many]
    order = np.argsort(np.argsort(np.asarray(terms) > _CLOSED_FORM, kind="stable"))

    def log_tails(x: float) -> Floats:
        parts = [exact(x)] if exact is not None else []
        parts.append(np.array([contour(x) for contour in contours]))
        return np.concatenate(parts)[order]

    return log_tails


# Widths under discrete Laplace noise --------------------------------------------------------------------------------


def laplace_union_width(
    scale: float, terms: Sequence[int], occurrences: npt.ArrayLike, counters: float, beta: float
) -> float:
    """Width of sums of discrete Laplace noise: min{e : counters·Σ_i occurrences_i·2P(S_{terms_i} > e) ≤ beta}.

    Several rows of `occurrences` are several valid ways to count; the best one is used.
    """
    _check(beta, counters)
    _check_scale(scale)
    for j in terms:
        _check_terms("The number of terms", j)
    if scale == 0.0:
        return 0.0
    tails = laplace_log_tails(list(terms), scale)
    shares = _log_shares(occurrences, counters)

    def log_failure(e: float) -> float:
        return float(_log_sum(tails(e + 1.0) + shares).min())

    start = scale * math.sqrt(2.0 * max(terms)) * 4.0
    return _smallest(log_failure, math.log(beta), start)


def running_width(
    scale: float,
    num_terms: int,
    counters: float,
    beta: float,
    union: Callable[..., float] = laplace_union_width,
) -> float:
    """Width of all partial sums of n noises, DLap(scale) unless told: local reports.

    P(max_{k≤n} |S_k| > e) ≤ 2P(|S_n| > e) (Lévy: the noise is symmetric), so there is no union over k; for a handful
    of terms the union is smaller and is used instead.
    """
    _check_terms("num_terms", num_terms)
    if num_terms > 16:
        return union(scale, [num_terms], [2.0], counters, beta)
    return union(scale, list(range(1, num_terms + 1)), _union_or_levy(num_terms), counters, beta)


def _union_or_levy(num_terms: int) -> Floats:
    """Two ways to cover the partial sums 1..n: each once, or the last one twice."""
    with_last_only = np.zeros(num_terms)
    with_last_only[-1] = 2.0
    return np.stack([np.ones(num_terms), with_last_only])


# Adaptive scales ----------------------------------------------------------------------------------------------------


def exponent_grid(smallest_scale: float, largest_scale: float, most_terms: int) -> Floats:
    """A fixed grid of exponents s for `adaptive_width`: from long sums to single noises, by factors of √2.

    It must be chosen before any noise is drawn; it may depend on public bounds only.
    """
    if not 0.0 < smallest_scale <= largest_scale < math.inf:
        raise ValueError(f"Expected 0 < smallest_scale <= largest_scale, got {smallest_scale} and {largest_scale}.")
    _check_terms("most_terms", most_terms)
    low, high = 0.5 / (largest_scale * math.sqrt(most_terms)), 0.95 / smallest_scale
    steps = max(1, math.ceil(2.0 * math.log2(high / low)))
    return np.asarray(np.geomspace(low, high, steps + 1), dtype=np.float64)


def log_moments(scales: npt.ArrayLike, grid: Floats) -> Floats:
    """ψ(s·b) = −ln(1 − s²b²) for every exponent s (first axis) and scale b; infinite where s·b ≥ 1.

    Sum these over the noises present and hand the sum to `adaptive_width`.
    """
    b = np.asarray(scales, dtype=np.float64)
    u = grid.reshape(-1, *([1] * b.ndim)) * b[None]
    inside = np.minimum(u, 1.0 - 1e-16)
    return np.where(u < 1.0 - 1e-12, -np.log1p(-inside * inside), np.inf)


def adaptive_width(moment_sums: Floats, grid: Floats, counters: float, beta: float, num_prefixes: int = 1) -> Floats:
    """Width of a sum of Laplace noises whose scales were chosen in view of earlier noise.

    For fixed s, exp(sΣb_νξ_ν − Σψ(s·b_ν)) is a supermartingale as nodes complete, so with a fixed grid G

        |noise| ≤ min_{s∈G} [Σ_ν ψ(s·b_ν) + ln(2·|G|·counters·T/beta)]/s

    for all counters and T prefixes at once. A quantile at the scales that came about is *not* valid: large noise may
    have made later scales small. `moment_sums` (|G|, ...) holds Σψ over the active nodes. For a running sum over
    users (local model) Ville's inequality covers all times together: leave `num_prefixes` at 1.
    """
    _check(beta, counters)
    _check_terms("num_prefixes", num_prefixes)
    sums = np.asarray(moment_sums, dtype=np.float64)
    s = grid.reshape(-1, *([1] * (sums.ndim - 1)))
    log_inverse = math.log(2.0 * len(grid) * counters * num_prefixes / beta)
    return np.asarray(((sums + log_inverse) / s).min(axis=0))


# Gaussian noise -----------------------------------------------------------------------------------------------------


def _lattice_surplus(sigma: float, terms: float) -> float:
    """η with P(sum of j discrete Gaussians = x) ≤ e^η·P(N_ℤ(0, jσ²) = x) for all x.

    Adding the k-th one multiplies by Σ_y exp(−(y−c)²/(2r²)) with r² = σ²(k−1)/k ≥ σ²/2, which varies with c by a
    factor of at most (1+v)/(1−v), v = 2Σ_{i≥1} e^{−2π²r²i²} (Poisson summation).
    """
    v = 2.0 * sum(math.exp(-(math.pi**2) * sigma**2 * i * i) for i in range(1, 20)) * (1.0 + 1e-9)
    return math.inf if v >= 1.0 else (terms - 1.0) * (math.log1p(v) - math.log1p(-v))


def gaussian_union_width(
    sigma: float, terms: npt.ArrayLike, occurrences: npt.ArrayLike, counters: float, beta: float
) -> float:
    """Width of sums of discrete Gaussian noise: min{e : counters·Σ_i occurrences_i·2Φ̄(e/(σ√terms_i)) ≤ beta}.

    P(N_ℤ(0, σ²) > e) = P(N_ℤ ≥ e+1) ≤ Φ̄(e/σ) for whole e ([CKS20] Proposition 25), sums by
    `_lattice_surplus` or, for tiny σ, by their sub-Gaussian tail e^{−e²/(2jσ²)}; the width is a whole number.
    Rows of `occurrences`: see `laplace_union_width`.
    """
    _check(beta, counters)
    _check_scale(sigma)
    if sigma == 0.0:
        return 0.0
    j = np.asarray(terms, dtype=np.float64)
    deviations = sigma * np.sqrt(j)
    shares = _log_shares(occurrences, counters)
    surplus = np.array([_lattice_surplus(sigma, float(count)) for count in j])

    def log_failure(e: float) -> float:
        tails = scipy.special.log_ndtr(-e / deviations) + surplus
        tails = np.minimum(tails, -0.5 * ((e + 1.0) / deviations) ** 2)
        return float(_log_sum(tails + shares).min()) + 1e-12

    return _smallest(log_failure, math.log(beta), 4.0 * float(deviations.max()))


def gaussian_running_width(sigma: float, num_terms: int, counters: float, beta: float) -> float:
    """As `running_width`, of discrete Gaussian noises."""
    return running_width(sigma, num_terms, counters, beta, gaussian_union_width)


def symmetric_matrix_width(deviation: float, dimension: int, beta: float, matrices: int = 1) -> float:
    """Operator norm of symmetric Gaussian noise (off-diagonal deviation s, diagonal √2·s): 2s√d + 2s√ln(2/β).

    E λ_max ≤ 2s√d, and λ_max is √2·s-Lipschitz in the underlying standard normals; two ends, `matrices` matrices.
    """
    _check(beta, matrices)
    _check_scale(deviation)
    return 2.0 * deviation * (math.sqrt(dimension) + math.sqrt(math.log(2.0 * matrices / beta)))


def vector_width(sigma: float, dimension: int, beta: float, vectors: int = 1) -> float:
    """Euclidean norm of Gaussian noise in d dimensions, exactly: σ·√(upper quantile of χ²_d)."""
    _check(beta, vectors)
    _check_scale(sigma)
    return sigma * math.sqrt(float(scipy.special.chdtri(dimension, beta / vectors))) * (1.0 + 1e-9)
