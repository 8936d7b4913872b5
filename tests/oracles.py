"""Slow, plain versions of what the library computes, written from the definitions."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np


def backward_induction(P, r, horizon, fixed=None, per_std=None, low=0.0, high=1.0, policy=None):
    """Loops over h, s, a: (Q, V) with V = max_a Q, or the policy's average of Q."""
    G, S, A, _ = P.shape
    fixed = np.zeros((G, S, A)) if fixed is None else fixed
    per_std = np.zeros((G, S, A)) if per_std is None else per_std
    Q, V = np.zeros((horizon, S, A)), np.zeros((horizon + 1, S))
    for h in reversed(range(horizon)):
        g = min(h, G - 1)
        for s in range(S):
            for a in range(A):
                mean = sum(P[g, s, a, y] * V[h + 1, y] for y in range(S))
                variance = sum(P[g, s, a, y] * (V[h + 1, y] - mean) ** 2 for y in range(S))
                q = r[g, s, a] + mean + fixed[g, s, a] + per_std[g, s, a] * variance**0.5
                Q[h, s, a] = min(max(q, (horizon - h) * low), (horizon - h) * high)
            V[h, s] = Q[h, s].max() if policy is None else policy[h, s] @ Q[h, s]
    return Q, V


def best_value_by_enumeration(mdp):
    """max over all deterministic policies of the probability-weighted sum over all trajectories, in fractions."""
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    G = mdp.transitions.shape[0]
    P = np.vectorize(Fraction)(mdp.transitions)
    r = np.vectorize(Fraction)(mdp.rewards)
    start = [Fraction(float(p)) for p in mdp.initial]
    best = None
    for choice in itertools.product(range(A), repeat=H * S):
        actions = np.reshape(choice, (H, S))
        total = Fraction(0)
        for path in itertools.product(range(S), repeat=H + 1):
            probability, reward = start[path[0]], Fraction(0)
            for h in range(H):
                g, a = min(h, G - 1), actions[h, path[h]]
                reward += r[g, path[h], a]
                probability *= P[g, path[h], a, path[h + 1]]
            total += probability * reward
        best = total if best is None else max(best, total)
    return best


def random_mdp_arrays(rng, stages, S, A):
    return rng.dirichlet(np.full(S, 0.5), size=(stages, S, A)), rng.random((stages, S, A))


def tool(name: str):
    """A script of benchmarks/, as a module."""
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module
