"""Generators of problems with many instances: each is a function of the instance's number, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from discreet.envs import tabular
from discreet.mdp import FiniteMDP, Floats


def _rng(name: str, instance: int) -> np.random.Generator:
    return np.random.default_rng([instance, *name.encode()])


def _first(num_states: int, state: int = 0) -> Floats:
    initial = np.zeros(num_states)
    initial[state] = 1.0
    return initial


def _mdp(P: Floats, r: Floats, initial: Floats, horizon: int) -> FiniteMDP:
    return FiniteMDP(P[None], r[None], initial, horizon)


def random_rows(rng: np.random.Generator, shape: tuple[int, ...], S: int, concentration: float, b: int) -> Floats:
    rows = np.zeros((*shape, S))
    for index in np.ndindex(shape):
        rows[(*index, rng.choice(S, b, replace=False))] = rng.dirichlet(np.full(b, concentration))
    return rows


# Rows without order -------------------------------------------------------------------------------------------------


def dirichlet(S: int) -> Callable[[int], FiniteMDP]:
    return lambda i: tabular.dirichlet(S, 3, 10, instance=i)


def branch(b: int, S: int = 20) -> Callable[[int], FiniteMDP]:
    """Rows with exactly b outcomes; three cells pay."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("branch", i)
        r = np.zeros(S * 3)
        r[rng.choice(S * 3, 3, replace=False)] = rng.uniform(0.5, 1.0, 3)
        return _mdp(random_rows(rng, (S, 3), S, 1.0, b), r.reshape(S, 3), _first(S), 15)

    return build


def garnet(S: int, A: int, H: int) -> Callable[[int], FiniteMDP]:
    """Three successors per cell, one state in ten pays whatever is done there."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("garnet", i)
        r = np.zeros((S, A))
        r[rng.choice(S, max(1, S // 10), replace=False)] = rng.uniform(0.5, 1.0)
        return _mdp(random_rows(rng, (S, A), S, 1.0, 3), r, _first(S), H)

    return build


def dense(S: int, A: int, H: int) -> Callable[[int], FiniteMDP]:
    """Every successor possible, every cell pays U[0, 1]."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("dense", i)
        return _mdp(rng.dirichlet(np.full(S, 0.3), size=(S, A)), rng.random((S, A)), _first(S), H)

    return build


def lognormal(S: int, paying: float, A: int = 3, H: int = 12) -> Callable[[int], FiniteMDP]:
    """Every successor possible, with weights e^{1.5·N(0, 1)}; so many of the cells pay."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("lognormal", i)
        weights = np.exp(rng.normal(0.0, 1.5, (S, A, S)))
        r = rng.uniform(0.3 if paying < 1.0 else 0.0, 1.0, (S, A)) * (rng.random((S, A)) < paying)
        return _mdp(weights / weights.sum(axis=2, keepdims=True), r, _first(S), H)

    return build


def jumps(S: int, A: int = 3, H: int = 15) -> Callable[[int], FiniteMDP]:
    """On a ring, half of the steps are short and half go anywhere, rather to popular places; some places pay."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("jumps", i)
        popular, P = rng.gamma(0.7, size=S), np.zeros((S, A, S))
        for s in range(S):
            for a in range(A):
                far, near, share = popular * rng.gamma(1.0, size=S), rng.dirichlet(np.ones(5)), rng.uniform(0.3, 0.7)
                P[s, a] = (1.0 - share) * far / far.sum()
                P[s, a, (s + np.arange(-2, 3)) % S] += share * near
        r = rng.random((S, 1)) * rng.uniform(0.5, 1.0, (S, A)) * (rng.random((S, 1)) < 0.3)
        return _mdp(P, r, _first(S), H)

    return build


def bandit(S: int, A: int) -> Callable[[int], FiniteMDP]:
    """One step from a random context."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("bandit", i)
        return _mdp(rng.dirichlet(np.ones(S), size=(S, A)), rng.random((S, A)), np.full(S, 1.0 / S), 1)

    return build


# Chains -------------------------------------------------------------------------------------------------------------


def deep_sea(N: int, slip: float) -> Callable[[int], FiniteMDP]:
    """Which action dives right differs from column to column; with `slip` the other one happens."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("sea", i)
        right = rng.integers(2, size=N)
        P, r = np.zeros((N, 2, N)), np.zeros((N, 2))
        for s in range(N):
            for a in range(2):
                chance = 1.0 - slip if a == right[s] else slip
                P[s, a, min(s + 1, N - 1)] += chance
                P[s, a, max(s - 1, 0)] += 1.0 - chance
        r[N - 1, right[N - 1]] = 1.0
        return _mdp(P, r, _first(N), N + 2)

    return build


def riverswim(S: int, H: int) -> Callable[[int], FiniteMDP]:
    return lambda i: tabular.riverswim(S, H)


def strens(S: int) -> Callable[[int], FiniteMDP]:
    return lambda i: tabular.chain(S, 20, float(_rng("chain", i).uniform(0.1, 0.3)))


def lure(S: int, H: int = 20) -> Callable[[int], FiniteMDP]:
    """One action leads on and may slip back, the other one pays a little and returns to the start; the end pays 1."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("lure", i)
        P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
        ahead, luck, sure = rng.integers(2, size=S), rng.uniform(0.7, 0.95), rng.uniform(0.1, 0.25)
        for s in range(S):
            P[s, ahead[s], min(s + 1, S - 1)] += luck
            P[s, ahead[s], max(s - 1, 0)] += 1.0 - luck
            P[s, 1 - ahead[s], 0] = 1.0
            r[s, 1 - ahead[s]] = sure
        r[S - 1, ahead[S - 1]] = 1.0
        return _mdp(P, r, _first(S), H)

    return build


def ladder(S: int, H: int = 20) -> Callable[[int], FiniteMDP]:
    """One action climbs, the other one pays a little and falls to any rung below; sometimes the other one happens."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("ladder", i)
        P, r = np.zeros((S, 2, S)), np.zeros((S, 2))
        climb, slip, sure = rng.integers(2, size=S), rng.uniform(0.1, 0.3), rng.uniform(0.1, 0.3)
        for s in range(S):
            for a, chance in ((climb[s], 1.0 - slip), (1 - climb[s], slip)):
                P[s, a, : s + 1] += (1.0 - chance) / (s + 1)
                P[s, a, min(s + 1, S - 1)] += chance
                r[s, a] = (1.0 - chance) * sure + chance * float(s == S - 1)
        return _mdp(P, r, _first(S), H)

    return build


def birth_death(S: int, H: int = 20) -> Callable[[int], FiniteMDP]:
    """Up, down or stay with chances that depend on state and action; every cell pays a little."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("birth", i)
        P = np.zeros((S, 3, S))
        for s in range(S):
            for a in range(3):
                for to, chance in zip((s - 1, s, s + 1), rng.dirichlet(np.ones(3)), strict=True):
                    P[s, a, min(max(to, 0), S - 1)] += chance
        return _mdp(P, rng.random((S, 1)) * rng.uniform(0.4, 1.0, (S, 3)), _first(S, S // 2), H)

    return build


def queue(S: int, H: int = 20) -> Callable[[int], FiniteMDP]:
    """Arrivals and a server at three speeds: an empty queue pays, and speed costs."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("queue", i)
        arrive, speeds = rng.uniform(0.3, 0.6), np.sort(rng.uniform(0.1, 0.9, 3))
        cost = rng.uniform(0.1, 0.5)
        P, r = np.zeros((S, 3, S)), np.zeros((S, 3))
        for s in range(S):
            for a in range(3):
                for up, p in ((1, arrive), (0, 1 - arrive)):
                    for down, q in ((1, speeds[a]), (0, 1 - speeds[a])):
                        P[s, a, min(max(s + up - down, 0), S - 1)] += p * q
                r[s, a] = np.clip(1.0 - s / (S - 1) - cost * speeds[a], 0.0, 1.0)
        return _mdp(P, r, _first(S, S // 2), H)

    return build


def routing(n: int, H: int = 20) -> Callable[[int], FiniteMDP]:
    """Two queues: send the next customer to one of them, or away; short queues pay."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("routing", i)
        arrive, served = rng.uniform(0.5, 0.8), rng.uniform(0.2, 0.7, 2)
        S = n * n
        P, r = np.zeros((S, 3, S)), np.zeros((S, 3))
        for x in range(n):
            for y in range(n):
                for a in range(3):
                    for come, p in ((1, arrive), (0, 1 - arrive)):
                        u, v = x + come * (a == 0), y + come * (a == 1)
                        for d, q in ((1, served[0]), (0, 1 - served[0])):
                            for e, t in ((1, served[1]), (0, 1 - served[1])):
                                to = min(max(u - d, 0), n - 1) * n + min(max(v - e, 0), n - 1)
                                P[x * n + y, a, to] += p * q * t
                    r[x * n + y, a] = np.clip(1.0 - (x + y) / (2 * n - 2) - 0.5 * (a == 2), 0.0, 1.0)
        return _mdp(P, r, _first(S, S - 1), H)

    return build


def diffuse(S: int, H: int = 15) -> Callable[[int], FiniteMDP]:
    """On a ring, each action drifts by its own amount with a wide spread; one arc pays."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("diffuse", i)
        P, r = np.zeros((S, 3, S)), np.zeros((S, 3))
        centre = rng.integers(S)
        for s in range(S):
            for a in range(3):
                drift, width = rng.normal((a - 1) * 2.0, 0.7), rng.uniform(1.0, 2.0)
                away = (np.arange(S) - s - drift + S / 2) % S - S / 2
                P[s, a] = np.exp(-0.5 * (away / width) ** 2)
            far = min((s - centre) % S, (centre - s) % S)
            r[s] = max(0.0, 1.0 - far / 3.0)
        P /= P.sum(axis=2, keepdims=True)
        P[P < 0.01] = 0.0
        P /= P.sum(axis=2, keepdims=True)
        return _mdp(P, r, _first(S, int(centre + S // 2) % S), H)

    return build


def inventory(S: int, H: int = 20) -> Callable[[int], FiniteMDP]:
    """Order up to three units, sell what a random demand takes; sales pay, orders and stock cost."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("inventory", i)
        demand = rng.dirichlet(np.ones(4))
        price, hold = rng.uniform(0.1, 0.25), rng.uniform(0.01, 0.05)
        P, r = np.zeros((S, 4, S)), np.zeros((S, 4))
        for s in range(S):
            for a in range(4):
                stock = min(s + a, S - 1)
                for d, p in enumerate(demand):
                    sold = min(d, stock)
                    P[s, a, stock - sold] += p
                    r[s, a] += p * np.clip(0.2 + 0.26 * sold - price * (stock - s) - hold * stock, 0.0, 1.0)
        return _mdp(P, r, _first(S), H)

    return build


# Grids --------------------------------------------------------------------------------------------------------------


def grid(n: int, H: int, slip: float = 0.1, random_start: bool = False, holes: int = 0) -> Callable[[int], FiniteMDP]:
    """Four moves that slip sideways; one goal pays 1 and sends back to the start. Holes swallow."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("grid", i)
        S = n * n
        places = 1 + rng.permutation(S - 1)
        goal = next(int(p) for p in places if sum(divmod(int(p), n)) >= n - 1)
        pits = {int(p) for p in places if p != goal and sum(divmod(int(p), n)) > 1}
        pits = set(sorted(pits, key=lambda p: int(np.flatnonzero(places == p)[0]))[:holes])
        P, r = np.zeros((S, 4, S)), np.zeros((S, 4))
        moves = ((0, -1), (1, 0), (0, 1), (-1, 0))
        for s in range(S):
            for a in range(4):
                if s == goal or s in pits:
                    P[s, a, 0 if s == goal else s] = 1.0
                    r[s, a] = float(s == goal)
                    continue
                for turn, chance in ((0, 1 - 2 * slip), (1, slip), (-1, slip)):
                    down, right = moves[(a + turn) % 4]
                    x, y = s // n + down, s % n + right
                    P[s, a, x * n + y if 0 <= x < n and 0 <= y < n else s] += chance
        start = np.full(S, 1.0 / S) if random_start else _first(S)
        return _mdp(P, r, start, H)

    return build


# A model per step ---------------------------------------------------------------------------------------------------


def changing(i: int) -> FiniteMDP:
    """RiverSwim whose left bank pays 1 from a random step on."""
    rng = _rng("changing", i)
    mdp = tabular.riverswim(4, 12).staged()
    rewards = mdp.rewards.copy()
    rewards[int(rng.integers(4, 8)) :, 0, 0] = rng.uniform(0.7, 1.0)
    return FiniteMDP(mdp.transitions, rewards, mdp.initial, 12)


def swapping(S: int, H: int, switches: int) -> Callable[[int], FiniteMDP]:
    """RiverSwim whose actions trade places at random steps."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("swapping", i)
        P, r = tabular._swim(S)
        changes = np.zeros(H, dtype=np.int64)
        changes[rng.choice(np.arange(1, H), switches, replace=False)] = 1
        swapped = np.cumsum(changes) % 2 == 1
        return FiniteMDP(
            np.where(swapped[:, None, None, None], P[:, ::-1], P),
            np.where(swapped[:, None, None], r[:, ::-1], r),
            _first(S),
            H,
        )

    return build


def segments(S: int, H: int, switches: int) -> Callable[[int], FiniteMDP]:
    """Everything is drawn anew at random steps, and stays in between; half of the cells pay."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("segments", i)
        cuts = np.sort(rng.choice(np.arange(1, H), switches, replace=False))
        which = np.searchsorted(cuts, np.arange(H), side="right")
        shape = switches + 1, S, 2
        rows = rng.dirichlet(np.full(S, 0.3), size=shape)
        rewards = rng.random(shape) * (rng.random(shape) < 0.5)
        return FiniteMDP(rows[which], rewards[which], _first(S), H)

    return build


def exceptions(i: int) -> FiniteMDP:
    """The same at all steps, but for six cells (h, s, a)."""
    rng = _rng("partly", i)
    mdp = dense(4, 2, 10)(i).staged()
    rows, rewards = mdp.transitions.copy(), 0.5 * mdp.rewards
    for _ in range(6):
        cell = tuple(int(rng.integers(n)) for n in (10, 4, 2))
        rewards[cell], rows[cell] = rng.random(), rng.dirichlet(np.full(4, 0.3))
    return FiniteMDP(rows, rewards, mdp.initial, 10)


def nonstationary(i: int) -> FiniteMDP:
    return tabular.nonstationary_dirichlet(4, 2, 8, instance=i)
