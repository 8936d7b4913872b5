"""Compiled parts of Spotlight: encoding of reports, cautious and exploring plans, prediction of reports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.kernels.jit import compiled, compiled_vectorised
from discreet.kernels.planning import expectation
from discreet.mdp import Floats, Ints
from discreet.problem import Mask

# Inside the wall: trajectories to reports ---------------------------------------------------------------------------


@compiled
def first_visits(
    states: Ints,  # (n, H+1)
    actions: Ints,  # (n, H)
    grid_rewards: Ints,  # (n, H), in 0..units
    coins: Ints,  # (n, m), uniform on 0..units−1
    wanted: Mask,  # (C,) or (C+1,) with the start last
    stages: int,
    num_actions: int,
    no_successor: bool,  # the last stage carries no successor
    start: int,  # row of the start cell, −1 if there is none
    items: Ints,  # (n, m) out: row·2S + 2·s' + bit, −1 where there is no report
    columns: int,  # 2S
) -> None:
    """The first m visits of every user to wanted cells. Whether step h is reported is settled before s_{h+1}, r_h."""
    n, H = actions.shape
    m = items.shape[1]
    S = columns // 2
    for i in range(n):
        sent = 0
        if start >= 0 and wanted[start]:
            items[i, 0] = start * columns + 2 * states[i, 0]
            sent = 1
        for h in range(H):
            if sent == m:
                break
            g = min(h, stages - 1)
            c = (g * S + states[i, h]) * num_actions + actions[i, h]
            if wanted[c]:
                bit = 1 if coins[i, sent] < grid_rewards[i, h] else 0
                y = 0 if (no_successor and h == stages - 1) else states[i, h + 1]
                items[i, sent] = c * columns + 2 * y + bit
                sent += 1
        for j in range(sent, m):
            items[i, j] = -1


# Outside: readings to plans -----------------------------------------------------------------------------------------


@compiled_vectorised
def doubt(
    row: Floats,  # (S,)
    spread: Floats,  # (S,): variance of the count of an outcome
    seen: Floats,  # (S,): 1 for states that were seen so far
    values: Floats,  # (S,)
    expected: float,  # of the values
    mean: float,
    mean_variance: float,
    count: float,
) -> float:
    """√(Σ_y Var n_y·(V_y − PV)²/N² + Var r + (Var_P V + r(1−r) + 1/N)/N): standard deviation of r + PV."""
    noise, variance = 0.0, 0.0
    for y in range(row.shape[0]):
        gap = (values[y] - expected) * (values[y] - expected)
        noise += seen[y] * spread[y] * gap
        variance += row[y] * gap
    sampling = (variance + mean * (1.0 - mean) + 1.0 / count) / count
    return float(np.sqrt(noise / (count * count) + mean_variance + sampling))


@compiled_vectorised
def cautious_values(
    rows: Floats,  # (C, S)
    spreads: Floats,  # (C, S)
    means: Floats,  # (C,)
    mean_variances: Floats,  # (C,)
    counts: Floats,  # (C,)
    usable: NDArray[np.bool_],  # (C,)
    seen: Floats,  # (S,)
    caution: float,
    prior: Floats,  # (C, S): rows of cells that nobody has tried
    prior_mean: float,
    belief: float,  # in the prior
    order: Ints,  # (H, S, A)
    fixed: Ints,  # (H, S) actions to follow, or (0, 0) to be greedy
    wanted: NDArray[np.bool_],  # (C,): with fixed actions, `afterwards` follows a step in one of these cells
    afterwards: Floats,  # (H+1, S)
    policy: Floats,  # (H, S, A) out
    values: Floats,  # (H+1, S) out
) -> None:
    """Q = r + PV − caution·doubt on usable cells; a state without any plays evenly, worth belief·(r̄ + πV).

    With fixed actions: the values of these, where an action that is not usable earns the same as such a state.
    """
    H, S, A = policy.shape
    G = rows.shape[0] // (S * A)
    follow = fixed.shape[0] > 0
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        for s in range(S):
            best, best_quality = -1, -np.inf
            policy[h, s] = 0.0
            for j in range(A):
                a = fixed[h, s] if follow else order[h, s, j]
                c = (g * S + s) * A + a
                V = values[h + 1]
                if follow and wanted[c]:
                    V = afterwards[h + 1]
                if usable[c]:
                    mean = expectation(rows[c], V)
                    q = means[c] + mean
                    if caution > 0.0 and (follow or q > best_quality):  # caution only takes away
                        q -= caution * doubt(
                            rows[c], spreads[c], seen, V, mean, means[c], mean_variances[c], counts[c]
                        )
                    q = min(max(q, 0.0), float(H - h))
                    if q > best_quality:
                        best, best_quality = a, q
                elif follow:
                    best, best_quality = a, belief * (prior_mean + expectation(prior[c], V))
                if follow:
                    break
            if best >= 0:
                policy[h, s, best] = 1.0
                values[h, s] = best_quality
            else:
                policy[h, s] = 1.0 / A
                total = 0.0
                if belief > 0.0:
                    for a in range(A):
                        c = (g * S + s) * A + a
                        total += prior_mean + expectation(prior[c], values[h + 1])
                values[h, s] = min(belief * total / A, float(H - h))


@compiled_vectorised
def buying_values(
    rows: Floats,  # (C, S)
    spreads: Floats,  # (C, S)
    means: Floats,  # (C,)
    mean_variances: Floats,  # (C,)
    counts: Floats,  # (C,)
    usable: NDArray[np.bool_],  # (C,)
    seen: Floats,  # (S,)
    caution: float,
    prior: Floats,  # (C, S): rows of cells that are not usable
    prior_mean: float,
    order: Ints,  # (H, S, A)
    wanted: NDArray[np.bool_],  # (C,)
    prices: Floats,  # (H,): what a report is worth, by step
    afterwards: Floats,  # (H+1, S): values of the plan that follows a report
    actions: Ints,  # (H, S) in and out: they stay where no action is usable or wanted
    values: Floats,  # (H+1, S) out
) -> None:
    """Q = price + r + P·afterwards on wanted cells, r + PQ on other usable ones, both less caution·doubt."""
    H, S, A = order.shape
    G = rows.shape[0] // (S * A)
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        for s in range(S):
            best_quality = -np.inf
            for j in range(A):
                a = order[h, s, j]
                c = (g * S + s) * A + a
                if not (wanted[c] or usable[c]):
                    continue
                V = afterwards[h + 1] if wanted[c] else values[h + 1]
                row, reward = (rows[c], means[c]) if usable[c] else (prior[c], prior_mean)
                mean = expectation(row, V)
                q = reward + mean + (prices[h] if wanted[c] else 0.0)
                if usable[c] and q > best_quality:  # caution only takes away
                    q -= caution * doubt(row, spreads[c], seen, V, mean, reward, mean_variances[c], counts[c])
                if q > best_quality:
                    best_quality, actions[h, s] = q, a
            values[h, s] = max(best_quality, 0.0)


@compiled_vectorised
def uniform_values(
    rows: Floats,  # (C, S)
    means: Floats,  # (C,)
    usable: NDArray[np.bool_],  # (C,)
    prior: Floats,  # (C, S)
    prior_mean: float,
    belief: float,
    num_actions: int,
    values: Floats,  # (H+1, S) out
) -> None:
    """Values of playing evenly in the same model."""
    H, S = values.shape[0] - 1, values.shape[1]
    A = num_actions
    G = rows.shape[0] // (S * A)
    even, earned = np.zeros((G * S, S)), np.zeros(G * S)  # the sum over actions is all that matters
    for c in range(G * S * A):
        if usable[c]:
            earned[c // A] += means[c] / A
            for y in range(S):
                even[c // A, y] += rows[c, y] / A
        elif belief > 0.0:
            earned[c // A] += belief * prior_mean / A
            for y in range(S):
                even[c // A, y] += belief * prior[c, y] / A
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        for s in range(S):
            total = earned[g * S + s] + expectation(even[g * S + s], values[h + 1])
            values[h, s] = min(total, float(H - h))


@compiled_vectorised
def exploring_values(
    rows: Floats,  # (C, S)
    spreads: Floats,  # (C, S)
    means: Floats,  # (C,)
    mean_variances: Floats,  # (C,)
    counts: Floats,  # (C,)
    known: NDArray[np.bool_],  # (C,)
    seen: Floats,  # (S,)
    optimism: Floats,  # (C,)
    hidden: Floats,  # (C,) weight of (1 − r + max V − PV): of a successor or reward that hides below the noise
    searching: bool,  # whether that is part of V, or only of the choice
    along: float,  # how much doubt is part of V
    prior: Floats,  # (C, S)
    best_means: Floats,  # (C,): of an unknown cell
    belief: float,
    restricted: bool,  # whether the prior tells which successors are possible at all
    order: Ints,  # (H, S, A)
    actions: Ints,  # (H, S) out
    values: Floats,  # (H+1, S) out
    worth: Floats,  # (H, S) out: of a report on the chosen action
) -> None:
    """Q = r + PV on known cells; the action maximises Q + optimism·doubt + bonus, and V is max Q without the addends
    (with `along`·doubt, where that is given).

    An unknown cell has Q = (1−ρ)·full + ρ·min(full, r⁺ + πV + sd_π V), full = min(H−h, 1 + max V), ρ the belief in π.
    The maximum of V is over states that were seen; while searching, over all; where successors are declared, over
    those.
    """
    H, S, A = order.shape
    C = rows.shape[0]
    G = C // (S * A)
    loose = np.zeros(C)  # Σ_y Var n_y, for a bound on the doubt
    for c in range(C):
        if known[c]:
            for y in range(S):
                loose[c] += spreads[c, y]
    values[H] = 0.0
    for i in range(H):
        h = H - 1 - i
        g = min(h, G - 1)
        V = values[h + 1]
        span = V.max() - V.min()
        top = float(H - h)
        largest = 0.0
        for y in range(S):
            if searching or seen[y] > 0.0:
                largest = max(largest, V[y])
        full = min(top, 1.0 + largest)
        for s in range(S):
            best, best_choice, best_quality = order[h, s, 0], -np.inf, 0.0
            for j in range(A):
                a = order[h, s, j]
                c = (g * S + s) * A + a
                if restricted:
                    largest = 0.0
                    for y in range(S):
                        if prior[c, y] > 0.0:
                            largest = max(largest, V[y])
                    full = min(top, 1.0 + largest)
                if known[c]:
                    mean = expectation(rows[c], V)
                    bonus = hidden[c] * (1.0 - means[c] + max(largest - mean, 0.0))
                    q = min(means[c] + mean + (bonus if searching else 0.0), top)
                    N, square = counts[c], span * span
                    most = mean_variances[c] + (loose[c] / N * square + 0.25 * (square + 1.0) + 1.0 / N) / N
                    reach = np.sqrt(most)
                    likely = q + along * reach
                    chosen = likely + optimism[c] * reach + bonus >= best_choice
                    if not chosen and (along == 0.0 or likely <= best_quality):  # neither the choice nor V
                        best_quality = max(best_quality, q)
                        continue
                    u = doubt(rows[c], spreads[c], seen, V, mean, means[c], mean_variances[c], counts[c])
                    q = min(q + along * u, top)
                    choice = q + optimism[c] * u + (0.0 if searching else bonus)
                    report = bonus if searching else u + bonus
                else:
                    q = full
                    if belief > 0.0:
                        mean = expectation(prior[c], V)
                        variance = 0.0
                        for y in range(S):
                            variance += prior[c, y] * (V[y] - mean) * (V[y] - mean)
                        likely = best_means[c] + mean + np.sqrt(variance)
                        q = (1.0 - belief) * full + belief * min(full, likely)
                    choice, report = q, q
                if choice > best_choice:
                    best, best_choice, worth[h, s] = a, choice, report
                best_quality = max(best_quality, q)
            actions[h, s] = best
            values[h, s] = best_quality


@compiled
def visits(
    rows: Floats,  # (C, S)
    known: NDArray[np.bool_],  # (C,)
    actions: Ints,  # (H, S)
    num_actions: int,
    initial: Floats,  # (S,)
    mass: Floats,  # (H, S) out
) -> None:
    """Forward pass in the model: how likely a user is in s at step h; she leaves the model in an unknown cell."""
    H, S = actions.shape
    G = rows.shape[0] // (S * num_actions)
    mass[:] = 0.0
    mass[0] = initial
    for h in range(H - 1):
        for s in range(S):
            c = (min(h, G - 1) * S + s) * num_actions + actions[h, s]
            if mass[h, s] > 0.0 and known[c]:
                for y in range(S):
                    mass[h + 1, y] += mass[h, s] * rows[c, y]


@compiled
def followed(
    rows: Floats,  # (C, S)
    usable: NDArray[np.bool_],  # (C,)
    prior: Floats,  # (C, S)
    policy: Floats,  # (H, S, A)
    initial: Floats,  # (S,)
    mass: Floats,  # (H, S) out
) -> None:
    """As `visits` for any policy; a cell that is not usable goes where the prior says."""
    H, S, A = policy.shape
    G = rows.shape[0] // (S * A)
    mass[:] = 0.0
    mass[0] = initial
    for h in range(H - 1):
        for s in range(S):
            for a in range(A):
                chance = mass[h, s] * policy[h, s, a]
                if chance > 0.0:
                    c = (min(h, G - 1) * S + s) * A + a
                    for y in range(S):
                        mass[h + 1, y] += chance * (rows[c, y] if usable[c] else prior[c, y])


@compiled
def predicted_reports(
    rows: Floats,  # (C, S)
    known: NDArray[np.bool_],  # (C,)
    actions: Ints,  # (H, S)
    num_actions: int,
    initial: Floats,  # (S,)
    wanted: NDArray[np.bool_],  # (C,)
    reports: int,
    rates: Floats,  # (C,) out: expected reports per user
) -> None:
    """Forward pass in the estimated model: a user leaves it when all her reports are sent, or in an unknown cell.

    With reports = 0 nobody ever reports, and the rates are expected visits.
    """
    H, S = actions.shape
    G = rows.shape[0] // (S * num_actions)
    levels = max(reports, 1)
    rates[:] = 0.0
    here = np.zeros((levels, S))
    here[0] = initial
    for h in range(H):
        g = min(h, G - 1)
        after = np.zeros((levels, S))
        for s in range(S):
            c = (g * S + s) * num_actions + actions[h, s]
            for j in range(levels):
                mass = here[j, s]
                if mass <= 0.0:
                    continue
                sent = j
                if reports == 0:
                    rates[c] += mass
                elif wanted[c]:
                    rates[c] += mass
                    sent = j + 1
                if known[c] and sent < levels:
                    for y in range(S):
                        after[sent, y] += mass * rows[c, y]
        here = after
