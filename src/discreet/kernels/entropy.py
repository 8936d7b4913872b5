"""min ⟨−θ, q⟩ + Σ q ln q over occupancy measures whose transition rows lie in boxes or L1 balls: Newton on a dual.

The multipliers of the sets of different (x, a) can be minimised out exactly, which leaves one multiplier per state:
    F(ν) = Σ_s ρ(s)·(ln Σ_a exp V(s,a;ν_1) − ln ρ(s)) + Σ_{h≥1} ln Σ_{x,a} exp(V(x,a;ν_{h+1}) − ν_h(x))
    V(x,a;ν) = max { ⟨p, θ(x,a,·) + ν⟩ + entropy(p) : p in the set of (x,a), Σp = 1 },  ν_H = 0
F is convex and C¹, the optimal value is −min F, and q(x,a,y) = w(x,a)·p(y|x,a), w the softmax of V − ν over a layer.
A set is the ball ‖p − lo‖₁ ≤ reach where reach ≥ 0, and the box lo ≤ p ≤ hi elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled
from discreet.kernels.occupancy import forward, solve_layers
from discreet.mdp import Floats, Ints

#: 0: an entry at its bound; 1 and 2: entries that share out a mass of their own.
Groups = NDArray[np.int8]


@compiled
def box_softmax(z: Floats, lo: Floats, hi: Floats, n: int, p: Floats, free: Groups, weight: Floats) -> float:
    """argmax ⟨p,z⟩ + entropy(p) over lo ≤ p ≤ hi, Σp = 1, into p; returns the maximum. Exact variable fixing.

    Softmax over the free entries; then the larger of the two kinds of violations is fixed at its bound: a standard
    argument for separable concave problems shows that such fixings are final.
    """
    mass, fixed_value, num_free = 1.0, 0.0, n
    for i in range(n):
        free[i] = 1
    top, stale = -np.inf, True
    total = 0.0
    while num_free > 0:
        if stale:  # exponentials relative to the largest free entry
            top = -np.inf
            for i in range(n):
                if free[i] and z[i] > top:
                    top = z[i]
            for i in range(n):
                if free[i]:
                    weight[i] = np.exp(z[i] - top)
        total = 0.0
        for i in range(n):
            if free[i]:
                total += weight[i]
        if total < 1e-100:
            stale = True
            continue
        stale = False
        factor = mass / total
        under, over = 0.0, 0.0
        for i in range(n):
            if free[i]:
                value = factor * weight[i]
                p[i] = value
                if value < lo[i]:
                    under += lo[i] - value
                elif value > hi[i]:
                    over += value - hi[i]
        if under == 0.0 and over == 0.0:
            break
        low = under >= over
        for i in range(n):
            if free[i] and ((low and p[i] < lo[i]) or (not low and p[i] > hi[i])):
                bound = lo[i] if low else hi[i]
                p[i] = bound
                free[i] = 0
                num_free -= 1
                mass -= bound
                if bound > 0.0:
                    fixed_value += bound * (z[i] - np.log(bound))
        mass = max(mass, 0.0)
    if num_free > 0 and mass > 0.0:
        fixed_value += mass * (top + np.log(total) - np.log(mass))
    return fixed_value


@compiled
def shared_factor(z: Floats, center: Floats, half: float, n: int, raised: bool, start: float) -> float:
    """ln γ with Σ(γ·e^z − center)⁺ = half (raised) or Σ(center − γ·e^z)⁺ = half, from a γ at which the sum is larger.

    The sum is convex and piecewise linear in γ: Newton's method ends at the root after at most n steps.
    """
    factor, sign = start, 1.0 if raised else -1.0
    for _ in range(n + 1):
        top, mass = -np.inf, sign * half
        for i in range(n):
            if sign * (factor + z[i] - np.log(center[i])) > 0.0:
                top = max(top, z[i])
                mass += center[i]
        if top == -np.inf:
            break
        weights = 0.0
        for i in range(n):
            if sign * (factor + z[i] - np.log(center[i])) > 0.0:
                weights += np.exp(z[i] - top)
        following = np.log(max(mass, 0.0)) - top - np.log(weights)
        if sign * (following - factor) >= 0.0:
            break
        factor = following
    return factor


@compiled
def ball_softmax(z: Floats, center: Floats, reach: float, n: int, p: Floats, free: Groups) -> float:
    """argmax ⟨p,z⟩ + entropy(p) over ‖p − center‖₁ ≤ reach, Σp = 1, p ≥ 0, into p; returns the maximum. Exact.

    The softmax, if it is inside. Else p = clip(center, α·e^z, β·e^z), α < β, with reach/2 raised and reach/2 lowered.
    """
    top, total, moved = -np.inf, 0.0, 0.0
    for i in range(n):
        top = max(top, z[i])
    for i in range(n):
        p[i] = np.exp(z[i] - top)
        total += p[i]
    for i in range(n):
        p[i] /= total
        free[i] = 1
        moved += max(p[i] - center[i], 0.0)
    if 2.0 * moved <= reach:
        return float(top + np.log(total))
    softmax = -top - np.log(total)
    raised = shared_factor(z, center, 0.5 * reach, n, True, softmax)
    lowered = shared_factor(z, center, 0.5 * reach, n, False, softmax)
    value = 0.0
    for i in range(n):
        bound = np.log(center[i])
        if raised + z[i] > bound:
            p[i], free[i] = np.exp(raised + z[i]), 1
        elif lowered + z[i] < bound:
            p[i], free[i] = np.exp(lowered + z[i]), 2
        else:
            p[i], free[i] = center[i], 0
        if p[i] > 0.0:
            value += p[i] * (z[i] - np.log(p[i]))
    return value


@compiled
def mirror_scores(measure: Floats, losses: Floats) -> Floats:
    """θ = ln q − η·ℓ̂ of a mirror step from q (H, X, A, X); η·ℓ̂ = `losses` (H, X, A). q = 0 counts as 1e-300.

    Compiled, for numpy's logarithm rounds differently on different processors.
    """
    H, X, A, _ = measure.shape
    scores = np.empty((H, X, A, X))
    for h in range(H):
        for x in range(X):
            for a in range(A):
                for y in range(X):
                    scores[h, x, a, y] = np.log(max(measure[h, x, a, y], 1e-300)) - losses[h, x, a]
    return scores


@compiled
def row(z: Floats, lo: Floats, hi: Floats, reach: float, n: int, p: Floats, free: Groups, scratch: Floats) -> float:
    """V of one (x, a), and its maximiser."""
    if reach >= 0.0:
        return ball_softmax(z, lo, reach, n, p, free)
    return box_softmax(z, lo, hi, n, p, free, scratch)


@compiled
def evaluate(
    theta: Floats,
    lo: Floats,
    hi: Floats,
    reach: Floats,  # (H, X, A)
    initial: Floats,
    sizes: Ints,
    nu: Floats,  # (H+1, X)
    values: Floats,  # (H, X, A) out: V
    rows: Floats,  # (H, X, A, X) out: p
    free: Groups,  # (H, X, A, X) out
    weights: Floats,  # (H, X, A) out: w
    gradient: Floats,  # (H+1, X) out: inflow − outflow on layers 1..H−1
) -> float:
    """F(ν), and everything its derivatives are made of."""
    H, X, A, _ = theta.shape
    z, scratch = np.empty(X), np.empty(X)
    gradient[:] = 0.0
    result = 0.0
    for h in range(H):
        n, m = sizes[h], sizes[h + 1]
        top = -np.inf
        for x in range(n):
            for a in range(A):
                for y in range(m):
                    z[y] = theta[h, x, a, y] + nu[h + 1, y]
                values[h, x, a] = row(
                    z, lo[h, x, a], hi[h, x, a], reach[h, x, a], m, rows[h, x, a], free[h, x, a], scratch
                )
                top = max(top, values[h, x, a] - nu[h, x])
        if h == 0:
            for x in range(n):
                largest = -np.inf
                for a in range(A):
                    largest = max(largest, values[0, x, a])
                total = 0.0
                for a in range(A):
                    weights[0, x, a] = np.exp(values[0, x, a] - largest)
                    total += weights[0, x, a]
                for a in range(A):
                    weights[0, x, a] *= initial[x] / total
                if initial[x] > 0.0:
                    result += initial[x] * (largest + np.log(total) - np.log(initial[x]))
        else:
            total = 0.0
            for x in range(n):
                for a in range(A):
                    weights[h, x, a] = np.exp(values[h, x, a] - nu[h, x] - top)
                    total += weights[h, x, a]
            for x in range(n):
                for a in range(A):
                    weights[h, x, a] /= total
                    gradient[h, x] -= weights[h, x, a]
            result += top + np.log(total)
        if h < H - 1:
            for x in range(n):
                for a in range(A):
                    mass = weights[h, x, a]
                    for y in range(m):
                        gradient[h + 1, y] += mass * rows[h, x, a, y]
    return result


@compiled
def hessian(
    sizes: Ints,
    initial: Floats,
    rows: Floats,
    free: Groups,
    weights: Floats,
    diagonal: Floats,  # (H+1, X, X) out
    upper: Floats,  # (H+1, X, X) out
) -> None:
    """Generalised Hessian of F plus 11'/n on every layer, whose multipliers are only defined up to a constant."""
    H, X, A, _ = rows.shape
    out, mean = np.empty(X), np.empty(X)
    part, second_part = np.empty(X), np.empty(X)
    for h in range(1, H):
        n = sizes[h]
        for x in range(n):
            for y in range(n):
                diagonal[h, x, y] = 1.0 / n
    for h in range(H):
        n, m = sizes[h], sizes[h + 1]
        for x in range(n):
            out[x] = 0.0
            for a in range(A):
                out[x] += weights[h, x, a]
        if h > 0:
            for x in range(n):
                for y in range(n):
                    diagonal[h, x, y] -= out[x] * out[y]
                diagonal[h, x, x] += out[x]
        if h == H - 1:
            break
        mean[:] = 0.0
        for x in range(n):
            for y in range(m):
                upper[h, x, y] = 0.0
            for a in range(A):
                mass = weights[h, x, a]
                if mass == 0.0:
                    continue
                loose, second_loose = 0.0, 0.0
                for y in range(m):
                    p = rows[h, x, a, y]
                    upper[h, x, y] -= mass * p
                    part[y] = p if free[h, x, a, y] == 1 else 0.0
                    second_part[y] = p if free[h, x, a, y] == 2 else 0.0
                    loose += part[y]
                    second_loose += second_part[y]
                scale = mass / loose if loose > 0.0 else 0.0
                for y in range(m):
                    first, second = mass * rows[h, x, a, y], scale * part[y]
                    for k in range(y + 1):
                        diagonal[h + 1, y, k] += first * rows[h, x, a, k] - second * part[k]
                    diagonal[h + 1, y, y] += mass * part[y]
                if second_loose > 0.0:
                    scale = mass / second_loose
                    for y in range(m):
                        for k in range(y + 1):
                            diagonal[h + 1, y, k] -= scale * second_part[y] * second_part[k]
                        diagonal[h + 1, y, y] += mass * second_part[y]
            if h == 0:
                if initial[x] > 0.0:
                    for y in range(m):
                        for k in range(y + 1):
                            diagonal[1, y, k] -= upper[0, x, y] * upper[0, x, k] / initial[x]
            else:
                for y in range(m):
                    mean[y] -= upper[h, x, y]
        if h > 0:
            for x in range(n):
                for y in range(m):
                    upper[h, x, y] += out[x] * mean[y]
            for y in range(m):
                for k in range(y + 1):
                    diagonal[h + 1, y, k] -= mean[y] * mean[k]
        for y in range(m):
            for k in range(y):
                diagonal[h + 1, k, y] = diagonal[h + 1, y, k]


@compiled
def alternate(
    theta: Floats,
    lo: Floats,
    hi: Floats,
    reach: Floats,
    initial: Floats,
    sizes: Ints,
    sweeps: int,
    tolerance: float,
    nu: Floats,
) -> float:
    """Alternating soft dynamic programming into ν: backward with the present marginals d, forward, d ← (d + d')/2.

    Backward: ν_h(x) = ln Σ_a exp V(x,a;ν_{h+1}) − ln d_h(x). Returns the last max |d' − d|. The halving is essential.
    """
    H, X, A, _ = theta.shape
    marginals, following = np.zeros((H, X)), np.zeros((H, X))
    for h in range(H):
        for x in range(sizes[h]):
            marginals[h, x] = initial[x] if h == 0 else 1.0 / sizes[h]
    policy, rows = np.zeros((H, X, A)), np.zeros((H, X, A, X))
    z, scratch = np.empty(X), np.empty(X)
    free = np.empty(X, dtype=np.int8)
    difference = np.inf
    for _ in range(sweeps):
        nu[H] = 0.0
        for back in range(H):
            h = H - 1 - back
            for x in range(sizes[h]):
                top = -np.inf
                for a in range(A):
                    for y in range(sizes[h + 1]):
                        z[y] = theta[h, x, a, y] + nu[h + 1, y]
                    policy[h, x, a] = row(
                        z, lo[h, x, a], hi[h, x, a], reach[h, x, a], sizes[h + 1], rows[h, x, a], free, scratch
                    )
                    top = max(top, policy[h, x, a])
                total = 0.0
                for a in range(A):
                    policy[h, x, a] = np.exp(policy[h, x, a] - top)
                    total += policy[h, x, a]
                for a in range(A):
                    policy[h, x, a] /= total
                nu[h, x] = top + np.log(total) - np.log(max(marginals[h, x], 1e-300)) if h > 0 else 0.0
            if h > 0:  # ν_h is defined up to a constant: keep numbers near 0
                mean = 0.0
                for x in range(sizes[h]):
                    mean += marginals[h, x] * nu[h, x]
                for x in range(sizes[h]):
                    nu[h, x] -= mean
        following[:] = 0.0
        following[0] = marginals[0]
        difference = 0.0
        for h in range(H - 1):
            for x in range(sizes[h]):
                for a in range(A):
                    mass = following[h, x] * policy[h, x, a]
                    for y in range(sizes[h + 1]):
                        following[h + 1, y] += mass * rows[h, x, a, y]
        for h in range(1, H):
            for x in range(sizes[h]):
                difference = max(difference, abs(following[h, x] - marginals[h, x]))
                marginals[h, x] = 0.5 * (marginals[h, x] + following[h, x])
        if difference < tolerance:
            break
    return difference


@compiled
def largest(gradient: Floats) -> float:
    return float(np.max(np.abs(gradient)))


@compiled
def newton(
    theta: Floats,
    lo: Floats,
    hi: Floats,
    reach: Floats,  # (H, X, A)
    initial: Floats,
    sizes: Ints,
    nu: Floats,  # (H+1, X) start in, multipliers out
    max_iterations: int,
    tolerance: float,
    policy: Floats,  # (H, X, A) out
    measure: Floats,  # (H, X, A, X) out
) -> tuple[int, float, float]:
    """Damped Newton on F, then a feasible q and its certificate: (iterations, objective(q), objective(q) + F(ν))."""
    H, X, A, _ = theta.shape
    values, weights = np.zeros((H, X, A)), np.zeros((H, X, A))
    rows, free = np.zeros((H, X, A, X)), np.zeros((H, X, A, X), dtype=np.int8)
    gradient, trial_gradient = np.zeros((H + 1, X)), np.zeros((H + 1, X))
    diagonal, upper = np.zeros((H + 1, X, X)), np.zeros((H + 1, X, X))
    work, cross = np.zeros((H + 1, X, X)), np.zeros((H + 1, X, X))
    step, trial = np.zeros((H + 1, X)), np.zeros((H + 1, X))
    nu[H] = 0.0
    nu[0] = 0.0
    dual = evaluate(theta, lo, hi, reach, initial, sizes, nu, values, rows, free, weights, gradient)
    error = largest(gradient)
    damp = 1e-10
    iterations = 0
    while error > tolerance and iterations < max_iterations:
        iterations += 1
        hessian(sizes, initial, rows, free, weights, diagonal, upper)
        step[:] = -gradient
        if not solve_layers(diagonal, upper, sizes, 1, damp, step, work, cross):
            damp = max(10.0 * damp, 1e-8)
            if damp > 1e6:
                break
            continue
        slope = np.sum(gradient * step)
        length, accepted = 1.0, False
        for _ in range(30):
            trial[:] = nu + length * step
            trial_dual = evaluate(
                theta, lo, hi, reach, initial, sizes, trial, values, rows, free, weights, trial_gradient
            )
            trial_error = largest(trial_gradient)
            rounding = 1e-14 * (1.0 + abs(dual))
            if trial_dual <= dual + 1e-4 * length * slope or (
                trial_dual <= dual + rounding and trial_error <= 0.5 * error
            ):
                accepted = True
                break
            length *= 0.5
        if not accepted:
            evaluate(theta, lo, hi, reach, initial, sizes, nu, values, rows, free, weights, gradient)
            damp = max(10.0 * damp, 1e-8)
            if damp > 1e6:
                break
            continue
        nu[:] = trial
        dual, error = trial_dual, trial_error
        gradient[:] = trial_gradient
        if length == 1.0:
            damp = max(0.1 * damp, 1e-14)
        elif length < 0.3:
            damp = max(4.0 * damp, 1e-10)
    objective = finish(theta, initial, sizes, values, rows, policy, measure)
    return iterations, objective, objective + dual


@compiled
def finish(
    theta: Floats, initial: Floats, sizes: Ints, values: Floats, rows: Floats, policy: Floats, measure: Floats
) -> float:
    """π = softmax_a V, q by forward propagation, and ⟨−θ, q⟩ + Σ q ln q."""
    H, A = theta.shape[0], theta.shape[2]
    for h in range(H):
        for x in range(sizes[h]):
            top, total = np.max(values[h, x]), 0.0
            for a in range(A):
                policy[h, x, a] = np.exp(values[h, x, a] - top)
                total += policy[h, x, a]
            for a in range(A):
                policy[h, x, a] /= total
    forward(policy, rows, initial, sizes, measure)
    objective = 0.0
    for h in range(H):
        for x in range(sizes[h]):
            for a in range(A):
                for y in range(sizes[h + 1]):
                    q = measure[h, x, a, y]
                    if q > 0.0:
                        objective += q * (np.log(q) - theta[h, x, a, y])
    return objective
