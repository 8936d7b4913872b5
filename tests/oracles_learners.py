"""Bonus and Q of every count-based learner, in plain loops over a release written by hand.

`python tests/oracles_learners.py` rewrites the golden files from here; the tests compare library, oracle and file.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"

#: Three stages, two states, two actions: N̂(h,s,a,y), totals off by the noise, one negative, and reward sums.
TRANSITIONS = [
    [[[30.0, 11.0], [2.0, 19.0]], [[50.0, 52.0], [-3.0, 1.0]]],
    [[[14.0, 9.0], [41.0, -2.0]], [[20.0, 66.0], [8.0, 0.0]]],
    [[[75.0, 12.0], [10.0, 13.0]], [[-1.0, 33.0], [22.0, 20.0]]],
]
VISITS = [[[44.0, 18.0], [99.0, -4.0]], [[22.0, 43.0], [90.0, 5.0]], [[85.0, 27.0], [30.0, 44.0]]]
REWARDS = [[[20.0, 5.0], [70.0, 2.0]], [[3.0, 11.0], [-4.0, 1.0]], [[50.0, 30.0], [1.0, 20.0]]]
H, S, A = 3, 2, 2


def project(counts, total, e):
    """Bisection on t for: min t with x ≥ 0, |x − c| ≤ t, |Σx − n| ≤ e; then Σx as near n as t allows."""

    def box(t):
        return [max(0.0, c - t) for c in counts], [c + t for c in counts]

    def feasible(t):
        low, high = box(t)
        return min(high) >= 0 and sum(low) <= total + e and sum(high) >= max(total - e, 0.0)

    if total + e < 0:
        return [0.0] * len(counts)
    lo, hi = 0.0, 1.0 + sum(abs(c) for c in counts) + abs(total) + e
    for _ in range(200):
        middle = (lo + hi) / 2
        lo, hi = (lo, middle) if feasible(middle) else (middle, hi)
    t = hi
    a, b = -t, t
    for _ in range(200):
        middle = (a + b) / 2
        a, b = (a, middle) if sum(max(0.0, c + middle) for c in counts) >= max(total, 0.0) else (middle, b)
    return [max(0.0, c + b) for c in counts]


def projected(config, shift):
    e = max(config["widths"][0], config["widths"][1])
    P, n = [], []
    for h in range(H):
        P.append([])
        n.append([])
        for s in range(S):
            P[h].append([])
            n[h].append([])
            for a in range(A):
                x = [y + (2 * e / S if shift else 0.0) for y in project(TRANSITIONS[h][s][a], VISITS[h][s][a], e)]
                total = sum(x)
                n[h][s].append(total)
                P[h][s].append([y / total for y in x] if total > 1e-9 else [1 / S] * S)
    return P, n


def cells():
    return [(h, s, a) for h in range(H) for s in range(S) for a in range(A)]


def estimate(config):
    """(P, r, fixed, per_std) as nested lists."""
    K, beta, c = config["num_episodes"], config["beta"], config["scale"]
    E1, E3, E2 = config["widths"]
    T = K * H
    kind = config["kind"]
    r, fixed, per_std = ([[[0.0] * A for _ in range(S)] for _ in range(H)] for _ in range(3))
    if kind.startswith("qiao-wang"):
        P, n = projected(config, shift=True)
        E = 4 * max(config["widths"])
        iota = math.log(30 * H * S * A * T / beta)
        for h, s, a in cells():
            m = n[h][s][a]
            r[h][s][a] = min(max(REWARDS[h][s][a] / m, 0.0), 1.0)
            b = math.sqrt(2 * iota / m) + 20 * H * S * E * iota / m
            if kind.endswith("hoeffding"):
                b += 2 * H * math.sqrt(iota / m)
            else:
                per_std[h][s][a] = c * 2 * math.sqrt(iota / m)
                inner = 0.0
                for y in range(S):
                    later = sum(n[min(h + 1, H - 1)][y])
                    bound = 1e6 * H**3 * S * A * iota**2 / later
                    bound += 1e6 * H**4 * S**4 * A**2 * E**2 * iota**4 / later**2
                    bound += 1e6 * H**6 * S**4 * A**2 * iota**4 / later**2
                    inner += P[h][s][a][y] * min(bound, H**2)
                b += 4 * math.sqrt(iota) * math.sqrt(inner / m)
            fixed[h][s][a] = c * b
        return P, r, fixed, per_std
    if kind.startswith("practical"):
        P, n = projected(config, shift=False)
        iota = math.log(S * A * H * math.log2(K) / beta)
        for h, s, a in cells():
            m = n[h][s][a]
            if m < max(1.0, config["unknown_below"] * config["deviation"]):
                fixed[h][s][a] = math.inf
                continue
            r[h][s][a] = min(max(REWARDS[h][s][a] / m, 0.0), 1.0)
            if kind.endswith("hoeffding"):
                fixed[h][s][a] = c * H * math.sqrt(iota / (2 * m))
            else:
                fixed[h][s][a] = c * H * iota / (3 * m)
                per_std[h][s][a] = c * math.sqrt(2 * iota / m)
        return P, r, fixed, per_std
    if kind == "heavy-practical":
        P, n = projected(config, shift=False)
        iota = math.log(S * A * H * math.log2(K) / beta)
        u, v, tau = (config["moments"][name] for name in ("bound", "order", "mean"))
        for h, s, a in cells():
            m, R = n[h][s][a], REWARDS[h][s][a]
            if m < max(1.0, config["unknown_below"] * config["deviation"]):
                fixed[h][s][a] = math.inf
                continue
            if abs(R) >= config["shrink_below"] * config["deviation"]:
                r[h][s][a] = min(max(R / m, -tau), tau)
            cut = (config["rate"] * u * (math.sqrt(m) if config["root"] else m)) ** (1 / (1 + v))
            fixed[h][s][a] = c * (tau * H * math.sqrt(iota / (2 * m)) + 2 * math.sqrt(u * cut ** (1 - v) / m))
        return P, r, fixed, per_std
    P = [[[[0.0] * S for _ in range(A)] for _ in range(S)] for _ in range(H)]
    for h, s, a in cells():
        N = VISITS[h][s][a]
        M = max(N if kind == "vietri" else N + E1, 1.0)
        P[h][s][a] = [y / M for y in TRANSITIONS[h][s][a]]
        r[h][s][a] = REWARDS[h][s][a] / M
        hoeffding = math.sqrt(2 * math.log(4 * S * A * T / beta) / M)
        optimisation = math.sqrt(4 * S * math.log(6 * A * T / beta) / M)
        transitions = (2 * E1 + S * E3) / M
        if kind == "vietri":
            E = max(config["widths"])
            if N < 2 * E:
                fixed[h][s][a] = math.inf
                continue
            b = (H + 1) * math.sqrt(2 * math.log(T / beta) / max(M - E, 1.0))
            b += (1 + S * H) * (3 * E / M + 2 * E * E / M**2)
        elif kind == "chowdhury-zhou-vi":
            b = (1 + H) * hoeffding + (2 * E1 + E2 + H * (2 * E1 + S * E3)) / M
        elif kind == "chowdhury-zhou-po":
            b = hoeffding + (2 * E1 + E2) / M + H * (optimisation + transitions)
        else:  # heavy tails as printed, with the corrections
            u, v, tau = (config["moments"][name] for name in ("bound", "order", "mean"))
            count = math.sqrt(M) if config["root"] else M
            b = (2 * tau * E1 + E2) / M + 4 * u ** (1 / (1 + v)) * (config["rate"] * count) ** (-v / (1 + v))
            b += tau * H * ((optimisation if kind == "heavy-po" else hoeffding) + transitions)
        fixed[h][s][a] = c * b
    return P, r, fixed, per_std


def quality(config):
    """Q by backward induction: greedy, or the uniform policy's for policy optimisation."""
    P, r, fixed, per_std = estimate(config)
    tau = config["moments"]["mean"] if "moments" in config else None
    V = [0.0] * S
    Q = [None] * H
    for h in reversed(range(H)):
        low, high = (0.0, float(H - h)) if tau is None else (-(H - h) * tau, (H - h) * tau)
        Q[h] = []
        for s in range(S):
            row = []
            for a in range(A):
                mean = sum(p * x for p, x in zip(P[h][s][a], V, strict=True))
                spread = sum(p * (x - mean) ** 2 for p, x in zip(P[h][s][a], V, strict=True))
                q = r[h][s][a] + mean + fixed[h][s][a]
                if per_std[h][s][a]:
                    q += per_std[h][s][a] * math.sqrt(spread)
                row.append(min(max(q, low), high))
            Q[h].append(row)
        V = [sum(row) / A if config["optimises_policy"] else max(row) for row in Q[h]]
    return Q


def configurations():
    common = {"num_episodes": 1000, "beta": 0.1, "scale": 1.0, "widths": [5.0, 4.0, 3.0], "optimises_policy": False}
    common["deviation"] = 6.0
    moments = {"order": 0.5, "bound": 2.0, "mean": 1.0}
    heavy = {"moments": moments, "rate": 0.05, "root": False}
    return {
        "dp-ucbvi-bernstein": {**common, "kind": "qiao-wang-bernstein", "scale": 1e-4},
        "dp-ucbvi-hoeffding": {**common, "kind": "qiao-wang-hoeffding", "scale": 1e-3},
        "private-ucb-vi": {**common, "kind": "chowdhury-zhou-vi", "scale": 0.05},
        "private-ucb-po": {**common, "kind": "chowdhury-zhou-po", "scale": 0.05, "optimises_policy": True},
        "pucb": {**common, "kind": "vietri", "scale": 0.05},
        "private-heavy-ucbvi": {**common, **heavy, "kind": "heavy-vi", "scale": 0.05},
        "private-heavy-ucbpo": {**common, **heavy, "kind": "heavy-po", "scale": 0.05, "optimises_policy": True},
        "private-heavy-ucbvi-local": {**common, **heavy, "kind": "heavy-vi", "scale": 0.05, "root": True},
        "practical-bernstein": {**common, "kind": "practical-bernstein", "scale": 0.3, "unknown_below": 1.0},
        "practical-hoeffding": {**common, "kind": "practical-hoeffding", "scale": 0.3, "unknown_below": 2.0},
        "practical-heavy": {
            **common,
            **heavy,
            "kind": "heavy-practical",
            "scale": 0.2,
            "unknown_below": 3.0,
            "shrink_below": 2.0,
        },
    }


def finite(value):
    """Infinity as a word, so that the files are strict JSON."""
    if isinstance(value, list):
        return [finite(item) for item in value]
    return "unknown" if value == math.inf else value


def golden(name):
    config = configurations()[name]
    return {"config": config, "bonus": finite(estimate(config)[2]), "quality": quality(config)}


if __name__ == "__main__":
    for name in configurations():
        (GOLDEN / f"{name}.json").write_text(json.dumps(golden(name), indent=1) + "\n")
