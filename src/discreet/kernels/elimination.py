"""Compiled evaluation of all deterministic policies at once.

A policy is a number whose digits, base A, are its actions at the decision points: the states that can be reached at
each step, first step first. Policies that agree from step h on share their values there, so that step h costs one
product per continuation, not one per policy.
"""

from __future__ import annotations

import numpy as np

from discreet.kernels.jit import compiled
from discreet.mdp import Floats


@compiled
def continue_with(rows: Floats, rewards: Floats, following: Floats, quality: Floats) -> None:
    """Q(x, a) = r(x, a) + ⟨P(x, a), V'⟩ of one continuation."""
    D, A = rewards.shape
    for x in range(D):
        for a in range(A):
            total = rewards[x, a]
            for y in range(following.shape[0]):
                total += rows[x, a, y] * following[y]
            quality[x, a] = total


@compiled
def extend(rows: Floats, rewards: Floats, following: Floats, values: Floats) -> None:
    """Values of all continuations from one step on, out of those from the next step on.

    rows (D, A, D'), rewards (D, A), following (N', D'), values (A^D·N', D) out: continuation c·N' + j takes the
    actions with digits c and then continuation j.   V(c·N' + j, x) = r(x, c_x) + ⟨P(x, c_x), V'(j)⟩
    """
    D, A = rewards.shape
    N = following.shape[0]
    quality = np.empty((D, A))
    for j in range(N):
        continue_with(rows, rewards, following[j], quality)
        for c in range(values.shape[0] // N):
            rest = c
            for i in range(D):
                x = D - 1 - i
                values[c * N + j, x] = quality[x, rest % A]
                rest //= A


@compiled
def finish(initial: Floats, rows: Floats, rewards: Floats, following: Floats, values: Floats) -> None:
    """As `extend` at the first step, and then the mean over initial states: one number per policy."""
    D, A = rewards.shape
    N = following.shape[0]
    quality = np.empty((D, A))
    for j in range(N):
        continue_with(rows, rewards, following[j], quality)
        quality *= initial.reshape(D, 1)
        for c in range(values.shape[0] // N):
            rest = c
            total = 0.0
            for i in range(D):
                total += quality[D - 1 - i, rest % A]
                rest //= A
            values[c * N + j] = total
