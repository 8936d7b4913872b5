"""min ⟨c, q⟩ − Σ ln q over occupancy measures whose transition rows lie in boxes: Newton on a reduced dual.

The boxes of different (x, a) are again minimised out exactly, which leaves one multiplier per state (ν_H = 0):
    D(ν) = −Σ_s ρ(s)·ν_0(s) + Σ_{x,a} φ(c(x,a,·) + ν_h(x) − ν_{h+1}(·))
    φ(d) = min { ⟨d,q⟩ − Σ ln q : lo·s ≤ q ≤ hi·s, s = Σq },  finite iff min_{p in box} ⟨p,d⟩ > 0
D is concave and self-concordant, and max D is the optimal value. Entries with hi = 0 are not part of the problem.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled
from discreet.kernels.occupancy import forward, solve_layers
from discreet.mdp import Floats, Ints

Flags = NDArray[np.bool_]

ROUNDS = 200


@compiled
def reach(d: Floats, lo: Floats, hi: Floats, n: int, order: Ints) -> tuple[float, float]:
    """(min, max) of ⟨p, d⟩ over the box within the simplex, by filling the slack in order of d."""
    slack = 1.0
    base = 0.0
    for i in range(n):
        slack -= lo[i]
        base += lo[i] * d[i]
        j = i
        while j > 0 and d[order[j - 1]] > d[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    smallest, largest = base, base
    left = max(slack, 0.0)
    for k in range(n):
        i = order[k]
        extra = min(hi[i] - lo[i], left)
        smallest += extra * d[i]
        left -= extra
    left = max(slack, 0.0)
    for k in range(n):
        i = order[n - 1 - k]
        extra = min(hi[i] - lo[i], left)
        largest += extra * d[i]
        left -= extra
    return smallest, largest


@compiled
def clipped(
    s: float, sigma: float, d: Floats, lo: Floats, hi: Floats, n: int, p: Floats, free: Flags
) -> tuple[float, float]:
    """p = clip(1/(s·d + σ), lo, hi) and Σp, with d(Σp)/dσ = −Σ_free p²."""
    total, slope = 0.0, 0.0
    for i in range(n):
        denominator = s * d[i] + sigma
        free[i] = False
        if denominator * hi[i] <= 1.0:
            p[i] = hi[i]
        elif denominator * lo[i] >= 1.0:
            p[i] = lo[i]
        else:
            p[i] = 1.0 / denominator
            free[i] = True
            slope -= p[i] * p[i]
        total += p[i]
    return total, slope


@compiled
def shares(s: float, start: float, d: Floats, lo: Floats, hi: Floats, n: int, p: Floats, free: Flags) -> float:
    """σ with Σ clip(1/(s·d + σ), lo, hi) = 1, by Newton's method in a bracket; p and the free entries at it."""
    slack = 1.0
    for i in range(n):
        slack -= lo[i]
    slack = max(slack, 0.0)
    low, high = np.inf, -np.inf
    for i in range(n):
        low = min(low, 1.0 / hi[i] - s * d[i])
        # At this σ every p is at most lo + slack/n, so that the sum is at most 1.
        high = max(high, 1.0 / max(lo[i] + slack / n, 1e-300) - s * d[i])
    sigma = min(max(start, low), high)
    for _ in range(ROUNDS):
        total, slope = clipped(s, sigma, d, lo, hi, n, p, free)
        error = total - 1.0
        if abs(error) <= 2e-16 * n:
            break
        if error > 0.0:
            low = sigma
        else:
            high = sigma
        step = sigma - error / slope if slope < 0.0 else np.inf
        if not low < step < high:
            step = 0.5 * (low + high)
        if step == sigma or not low < step < high:
            break
        sigma = step
    return sigma


@compiled
def guess(start: Floats, d: Floats, lo: Floats, hi: Floats, n: int, p: Floats, free: Flags) -> bool:
    """Whether the root of `row` has the bounds that hold at start = (s, σ); if so, the root is put there.

    With F free, b the fixed shares, f their number, m = 1 − Σb and λ = σ/s: q = 1/(d + λ) on F, s·m = Σ_F q and
    m·λ = ⟨b,d⟩ − f/s, one increasing equation in λ. The shares found are checked against all conditions.
    """
    s, sigma = start[0], start[1]
    clipped(s, sigma, d, lo, hi, n, p, free)
    fixed, mean, num_free = 0.0, 0.0, 0
    least = np.inf
    for i in range(n):
        if free[i]:
            num_free += 1
            least = min(least, d[i])
        else:
            fixed += p[i]
            mean += p[i] * d[i]
    m = 1.0 - fixed
    if num_free == 0 or m <= 1e-9:
        return False
    num_fixed = n - num_free
    rate = sigma / s
    for _ in range(12):
        total, squares = 0.0, 0.0
        for i in range(n):
            if free[i]:
                inverse = 1.0 / (d[i] + rate)
                total += inverse
                squares += inverse * inverse
        error = rate * m - mean + num_fixed * m / total
        step = error / (m + num_fixed * m * squares / (total * total))
        if not rate - step > -least:
            return False
        rate -= step
        if abs(step) <= 1e-15 * abs(rate + least):
            break
    total = 0.0
    for i in range(n):
        if free[i]:
            total += 1.0 / (d[i] + rate)
    s = total / m
    sums, _ = clipped(s, rate * s, d, lo, hi, n, p, free)
    mean = 0.0
    for i in range(n):
        mean += p[i] * d[i]
    if abs(sums - 1.0) > 1e-14 or abs(s * mean - n) > 1e-13 * n:
        return False
    start[0], start[1] = s, rate * s
    return True


@compiled
def row(
    d: Floats, lo: Floats, hi: Floats, n: int, start: Floats, q: Floats, free: Flags, order: Ints
) -> tuple[float, float]:
    """(φ(d), s) and the minimiser q; (−inf, 0) outside the domain. `start` remembers (s, σ) from call to call."""
    smallest = np.inf
    for i in range(n):
        smallest = min(smallest, d[i])
    if smallest > 0.0:
        total = 0.0
        for i in range(n):
            total += 1.0 / d[i]
        inside = True
        for i in range(n):
            share = 1.0 / (d[i] * total)
            if share < lo[i] or share > hi[i]:
                inside = False
                break
        if inside or n == 1:
            value = float(n)
            for i in range(n):
                q[i] = 1.0 / d[i]
                free[i] = True
                value += np.log(d[i])
            return value, total
    least, most = reach(d, lo, hi, n, order)
    if not least > 0.0:
        return -np.inf, 0.0
    # s·⟨p(s), d⟩ increases through n between n/max⟨p,d⟩ and n/min⟨p,d⟩.
    low, high = n / most * (1.0 - 1e-12), n / least * (1.0 + 1e-12)
    s, sigma = start[0], start[1]
    found = low < s < high and guess(start, d, lo, hi, n, q, free)
    if not low < s < high:
        s, sigma = np.sqrt(low * high), 0.0
    for _ in range(ROUNDS):
        if found:
            break
        sigma = shares(s, sigma, d, lo, hi, n, q, free)
        start[0], start[1] = s, sigma
        mean, first, second, third = 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            mean += q[i] * d[i]
            if free[i]:
                square = q[i] * q[i]
                first += square
                second += square * d[i]
                third += square * d[i] * d[i]
        error = s * mean - n
        if abs(error) <= 4e-16 * n * n:
            break
        if error > 0.0:
            high = s
        else:
            low = s
        curvature = third - second * second / first if first > 0.0 else 0.0
        slope = mean - s * curvature  # d(s·⟨p,d⟩)/ds ≥ 0
        step = s - error / slope if slope > 0.0 else np.inf
        if not low < step < high:
            step = np.sqrt(low * high)
        if step == s or not low < step < high:
            break
        if first > 0.0:
            sigma -= (step - s) * second / first  # keeps the free shares at their sum to first order
        s = step
        found = guess(start, d, lo, hi, n, q, free)
    s = start[0]
    value = 0.0
    for i in range(n):
        q[i] *= s
        value += d[i] * q[i] - np.log(q[i])
    return value, s


@compiled
def evaluate(
    cost: Floats,
    lo: Floats,
    hi: Floats,
    initial: Floats,
    sizes: Ints,
    members: Ints,  # (H, X, A, X): successors with hi > 0, packed to the front
    degrees: Ints,  # (H, X, A): how many of them
    nu: Floats,
    starts: Floats,  # (H, X, A, 2) in and out
    measure: Floats,  # (H, X, A, X) out: minimisers, on the members
    free: Flags,  # (H, X, A, X) out
    masses: Floats,  # (H, X, A) out: s
    gradient: Floats,  # (H+1, X) out: outflow − inflow on layers 0..H−1
) -> float:
    """D(ν) and its gradient; −inf outside the domain (what is written then is meaningless)."""
    H, X, A, _ = cost.shape
    d, low, high, q = np.empty(X), np.empty(X), np.empty(X), np.empty(X)
    loose = np.empty(X, dtype=np.bool_)
    order = np.empty(X, dtype=np.int64)
    gradient[:] = 0.0
    result = 0.0
    for x in range(sizes[0]):
        gradient[0, x] = -initial[x]
        result -= initial[x] * nu[0, x]
    for h in range(H):
        for x in range(sizes[h]):
            for a in range(A):
                n = degrees[h, x, a]
                for i in range(n):
                    y = members[h, x, a, i]
                    d[i] = cost[h, x, a, y] + nu[h, x] - nu[h + 1, y]
                    low[i], high[i] = lo[h, x, a, y], hi[h, x, a, y]
                value, s = row(d, low, high, n, starts[h, x, a], q, loose, order)
                if value == -np.inf:
                    return -np.inf
                result += value
                masses[h, x, a] = s
                for i in range(n):
                    y = members[h, x, a, i]
                    measure[h, x, a, y] = q[i]
                    free[h, x, a, y] = loose[i]
                    gradient[h, x] += q[i]
                    if h < H - 1:
                        gradient[h + 1, y] -= q[i]
    return result


@compiled
def curvature(
    lo: Floats,
    hi: Floats,
    sizes: Ints,
    members: Ints,
    degrees: Ints,
    measure: Floats,
    free: Flags,
    masses: Floats,
    diagonal: Floats,
    upper: Floats,
) -> None:
    """−∇²D, block tridiagonal and positive definite, from −∇²φ of every row.

    With α = q² on the free entries, b = q/s on the f fixed ones, m = 1 − Σb and den = m² + (f/s²)·Σα:
    free–free diag(α) − (f/s²)·αα'/den, fixed–free b·m·α'/den, fixed–fixed bb'·Σα/den (none free: bb'·s²/n).
    """
    H, X, A, _ = lo.shape
    diagonal[:] = 0.0
    upper[:] = 0.0
    alpha, beta = np.zeros(X), np.zeros(X)
    for h in range(H):
        for x in range(sizes[h]):
            for a in range(A):
                n, s = degrees[h, x, a], masses[h, x, a]
                total, fixed, loose_sum, num_fixed = 0.0, 0.0, 0.0, 0
                for i in range(n):
                    y = members[h, x, a, i]
                    q = measure[h, x, a, y]
                    if free[h, x, a, y]:
                        alpha[i], beta[i] = q * q, 0.0
                        total += alpha[i]
                        loose_sum += q
                    else:
                        alpha[i], beta[i] = 0.0, q / s
                        fixed += beta[i]
                        num_fixed += 1
                if num_fixed == 0:
                    aa, ab, bb = 0.0, 0.0, 0.0
                elif num_fixed == n:
                    aa, ab, bb = 0.0, 0.0, s * s / n
                else:
                    m = loose_sum / s  # = 1 − Σb without cancellation
                    ratio = num_fixed / (s * s)
                    den = m * m + ratio * total
                    aa, ab, bb = ratio / den, m / den, total / den
                # N1 = α − aa·α·Σα + ab·(α·Σb + b·Σα) + bb·b·Σb
                last = h == H - 1
                for i in range(n):
                    sums = alpha[i] * (1.0 - aa * total + ab * fixed) + beta[i] * (ab * total + bb * fixed)
                    diagonal[h, x, x] += sums
                    if last:
                        continue
                    y = members[h, x, a, i]
                    upper[h, x, y] -= sums
                    diagonal[h + 1, y, y] += alpha[i]
                    if num_fixed > 0:
                        first = -aa * alpha[i] + ab * beta[i]
                        second = ab * alpha[i] + bb * beta[i]
                        for k in range(n):
                            diagonal[h + 1, y, members[h, x, a, k]] += first * alpha[k] + second * beta[k]


@compiled
def support(hi: Floats, sizes: Ints, members: Ints, degrees: Ints) -> None:
    """The successors with hi > 0 of every row."""
    H, A = hi.shape[0], hi.shape[2]
    for h in range(H):
        for x in range(sizes[h]):
            for a in range(A):
                n = 0
                for y in range(sizes[h + 1]):
                    if hi[h, x, a, y] > 0.0:
                        members[h, x, a, n] = y
                        n += 1
                degrees[h, x, a] = n


@compiled
def raise_into_domain(cost: Floats, sizes: Ints, members: Ints, degrees: Ints, nu: Floats) -> None:
    """ν_h = Σ_{g ≥ h} κ_g with κ_g = 0 where the costs of layer g are positive: the cold start, always in the domain.

    A constant added to the costs of one layer changes nothing, for its measure sums to one.
    """
    H = len(sizes) - 1
    nu[H] = 0.0
    for back in range(H):
        h = H - 1 - back
        smallest, second = np.inf, np.inf
        for x in range(sizes[h]):
            for a in range(cost.shape[2]):
                for i in range(degrees[h, x, a]):
                    value = cost[h, x, a, members[h, x, a, i]]
                    smallest = min(smallest, value)
                    if value > 0.0:
                        second = min(second, value)
        shift = 0.0
        if not smallest > 0.0:
            shift = -smallest + (second if second < np.inf else 1.0)
        base = nu[h + 1, 0]
        for x in range(sizes[h]):
            nu[h, x] = base + shift


@compiled
def newton(
    cost: Floats,
    lo: Floats,
    hi: Floats,
    initial: Floats,
    sizes: Ints,
    nu: Floats,  # (H+1, X) start in (inside the domain, else the cold start is taken), multipliers out
    max_iterations: int,
    tolerance: float,
    policy: Floats,  # (H, X, A) out
    measure: Floats,  # (H, X, A, X) out
) -> tuple[int, float, float]:
    """Damped Newton on D, then a feasible q and its certificate: (iterations, objective(q), objective(q) − D(ν))."""
    H, X, A, _ = cost.shape
    members, degrees = np.zeros((H, X, A, X), dtype=np.int64), np.zeros((H, X, A), dtype=np.int64)
    support(hi, sizes, members, degrees)
    masses, starts = np.zeros((H, X, A)), np.zeros((H, X, A, 2))
    rows, free = np.zeros((H, X, A, X)), np.zeros((H, X, A, X), dtype=np.bool_)
    gradient, trial_gradient = np.zeros((H + 1, X)), np.zeros((H + 1, X))
    diagonal, upper = np.zeros((H + 1, X, X)), np.zeros((H + 1, X, X))
    work, cross = np.zeros((H + 1, X, X)), np.zeros((H + 1, X, X))
    step, trial = np.zeros((H + 1, X)), np.zeros((H + 1, X))
    nu[H] = 0.0
    dual = evaluate(cost, lo, hi, initial, sizes, members, degrees, nu, starts, rows, free, masses, gradient)
    if dual == -np.inf:
        raise_into_domain(cost, sizes, members, degrees, nu)
        dual = evaluate(cost, lo, hi, initial, sizes, members, degrees, nu, starts, rows, free, masses, gradient)
    iterations = 0
    while iterations < max_iterations and dual > -np.inf:
        iterations += 1
        curvature(lo, hi, sizes, members, degrees, rows, free, masses, diagonal, upper)
        step[:] = gradient
        if not solve_layers(diagonal, upper, sizes, 0, 0.0, step, work, cross):
            break
        decrement = np.sum(gradient * step)
        if not decrement >= tolerance:
            break
        length = min(1.0, 4.0 / (1.0 + np.sqrt(decrement)))
        accepted = False
        for _ in range(60):
            trial[:] = nu + length * step
            value = evaluate(
                cost, lo, hi, initial, sizes, members, degrees, trial, starts, rows, free, masses, trial_gradient
            )
            if value >= dual + 1e-4 * length * decrement or (
                decrement < 1e-8 and value >= dual - 1e-13 * (1.0 + abs(dual))
            ):
                accepted = True
                break
            length *= 0.5
        if not accepted:
            evaluate(cost, lo, hi, initial, sizes, members, degrees, nu, starts, rows, free, masses, gradient)
            break
        nu[:] = trial
        gradient[:] = trial_gradient
        dual = value
    if dual == -np.inf:
        return iterations, np.inf, np.inf
    objective = finish(cost, hi, initial, sizes, rows, masses, policy, measure)
    return iterations, objective, objective - dual


@compiled
def finish(
    cost: Floats,
    hi: Floats,
    initial: Floats,
    sizes: Ints,
    rows: Floats,
    masses: Floats,
    policy: Floats,
    measure: Floats,
) -> float:
    """π = Σ_y q / Σ_{a,y} q and p = q/s, forward again, and ⟨c, q⟩ − Σ ln q."""
    H, X, A, _ = cost.shape
    kernel = np.zeros((H, X, A, X))
    for h in range(H):
        for x in range(sizes[h]):
            total = 0.0
            for a in range(A):
                total += masses[h, x, a]
            for a in range(A):
                policy[h, x, a] = masses[h, x, a] / total
                mass = 0.0
                for y in range(sizes[h + 1]):
                    if hi[h, x, a, y] > 0.0:
                        mass += rows[h, x, a, y]
                for y in range(sizes[h + 1]):
                    if hi[h, x, a, y] > 0.0:
                        kernel[h, x, a, y] = rows[h, x, a, y] / mass
    forward(policy, kernel, initial, sizes, measure)
    objective = 0.0
    for h in range(H):
        for x in range(sizes[h]):
            for a in range(A):
                for y in range(sizes[h + 1]):
                    if hi[h, x, a, y] > 0.0:
                        q = measure[h, x, a, y]
                        objective += cost[h, x, a, y] * q - (np.log(q) if q > 0.0 else -np.inf)
    return objective
