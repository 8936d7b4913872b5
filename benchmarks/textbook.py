"""Problems as textbooks and practitioners have them, written when the learners were finished.

Every generator is a function of sizes; what it returns is a function of an instance's number, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import comb

import numpy as np

from discreet.mdp import FiniteMDP, Floats

Build = Callable[[int], FiniteMDP]
#: What a state and an action lead to: (chance, state).
Outcomes = Iterable[tuple[float, int]]
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))


def _rng(name: str, instance: int) -> np.random.Generator:
    return np.random.default_rng([instance, *name.encode()])


def _mdp(
    S: int,
    A: int,
    H: int,
    start: int | Floats,
    moves: Callable[[int, int], Outcomes],
    pay: Callable[[int, int], float],
) -> FiniteMDP:
    P, r = np.zeros((S, A, S)), np.zeros((S, A))
    for s in range(S):
        for a in range(A):
            r[s, a] = pay(s, a)
            for chance, successor in moves(s, a):
                P[s, a, successor] += chance
    initial = np.eye(S)[start] if isinstance(start, int) else start
    return FiniteMDP(P[None], r[None], initial, H)


def _moved(place: int, move: int, height: int, width: int) -> int:
    """Where a move leads on a grid with walls around it."""
    x, y = place // width + MOVES[move][0], place % width + MOVES[move][1]
    return x * width + y if 0 <= x < height and 0 <= y < width else place


# Care and upkeep ----------------------------------------------------------------------------------------------------


def machine(S: int, H: int = 20) -> Build:
    """A machine wears out while it runs; repair undoes two degrees, a new one all of them, and earns nothing."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("machine", i)
        wear, cheap = rng.uniform(0.15, 0.4), rng.uniform(0.01, 0.03)

        def moves(s: int, a: int) -> Outcomes:
            run = ((1 - wear, s), (0.7 * wear, min(s + 1, S - 1)), (0.3 * wear, min(s + 2, S - 1)))
            return (run, ((0.7, max(s - 2, 0)), (0.3, s)), ((1.0, 0),))[a]

        def pay(s: int, a: int) -> float:
            return (0.9 * (1 - (s / (S - 1)) ** 2), 0.3 * (1 - s / S), cheap)[a]

        return _mdp(S, 3, H, S // 2, moves, pay)

    return build


def forest(S: int, H: int = 30) -> Build:
    """Trees grow unless there is a fire; wood can be cut at any age, and an old forest is worth the most."""

    def build(i: int) -> FiniteMDP:
        fire = _rng("forest", i).uniform(0.05, 0.15)

        def pay(s: int, a: int) -> float:
            return float(s == S - 1) if a == 0 else (0.0 if s == 0 else 0.5 if s == S - 1 else 0.25)

        return _mdp(
            S, 2, H, 0, lambda s, a: ((fire, 0), (1 - fire, min(s + 1, S - 1))) if a == 0 else ((1.0, 0),), pay
        )

    return build


def dosage(S: int, A: int, H: int = 20) -> Build:
    """The right dose grows with how ill somebody is; the worst state is not left again."""

    def build(i: int) -> FiniteMDP:
        right = np.sort(_rng("dosage", i).uniform(0.0, A - 1.0, S))

        def moves(s: int, a: int) -> Outcomes:
            if s == S - 1:
                return ((1.0, s),)
            fit = float(np.exp(-0.7 * (a - right[s]) ** 2))
            better, worse = 0.1 + 0.5 * fit, 0.45 - 0.4 * fit
            return ((better, max(s - 1, 0)), (worse, s + 1), (1 - better - worse, s))

        return _mdp(S, A, H, S // 2, moves, lambda s, a: 0.8 * (1 - s / (S - 1)))

    return build


def epidemic(S: int = 11, H: int = 25) -> Build:
    """How many are ill tomorrow is binomial; measures slow it down and cost."""

    def build(i: int) -> FiniteMDP:
        contagion, people = _rng("epidemic", i).uniform(0.75, 1.2), S - 1
        measures = ((1.0, 0.0), (0.6, 0.15), (0.25, 0.4))

        def moves(s: int, a: int) -> Outcomes:
            x = s / people
            p = min(max(0.75 * x + contagion * measures[a][0] * x * (1 - x) + 0.01, 0.001), 0.999)
            return ((comb(people, y) * p**y * (1 - p) ** (people - y), y) for y in range(S))

        return _mdp(S, 3, H, 3, moves, lambda s, a: min(max(1 - s / people - measures[a][1], 0.0), 1.0))

    return build


# Teaching and advice ------------------------------------------------------------------------------------------------


def tutor(S: int, A: int, H: int = 24) -> Build:
    """One exercise fits each level of knowledge; what is known is forgotten now and then; the top level pays."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("tutor", i)
        fits, luck = rng.integers(A, size=S), 0.1 * rng.random((S, A))

        def moves(s: int, a: int) -> Outcomes:
            up = 0.6 if a == fits[s] else float(luck[s, a])
            return ((up, min(s + 1, S - 1)), (0.1, max(s - 1, 0)), (0.9 - up, s))

        return _mdp(S, A, H, 0, moves, lambda s, a: 1.0 if s == S - 1 else 0.1 * (s == S // 2))

    return build


def recommender(kinds: int, bored: int, A: int, H: int = 12) -> Build:
    """Kinds of people like different things, tire of them at different speeds, and change their kind now and then."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("recommender", i)
        liked, tires, S = rng.beta(0.6, 1.5, (kinds, A)), rng.uniform(0.1, 0.7, (kinds, A)), kinds * bored

        def moves(s: int, a: int) -> Outcomes:
            kind, degree = divmod(s, bored)
            more, less = s + (degree < bored - 1), s - (degree > 0)
            tired = float(tires[kind, a])
            return ((tired, more), (0.9 - tired, less), (0.1, (kind + 1) % kinds * bored))

        def pay(s: int, a: int) -> float:
            return float(liked[s // bored, a]) * (1 - s % bored / bored)

        start = np.zeros(S)
        start[::bored] = 1 / kinds
        return _mdp(S, A, H, start, moves, pay)

    return build


# Searching ----------------------------------------------------------------------------------------------------------


def lock(S: int, A: int) -> Build:
    """One action leads on, all others back to the start, where a little can be earned; the end pays 1."""

    def build(i: int) -> FiniteMDP:
        key = _rng("combination", i).integers(A, size=S)

        def moves(s: int, a: int) -> Outcomes:
            return ((0.9, min(s + 1, S - 1) if a == key[s] else 0), (0.1, s))

        return _mdp(S, A, 3 * (S - 1), 0, moves, lambda s, a: 1.0 if s == S - 1 else 0.02 * (s == 0))

    return build


def tree(depth: int) -> Build:
    """Left or right; leaves pay something, one of them 1, and lead back to the root."""

    def build(i: int) -> FiniteMDP:
        rng, S = _rng("tree", i), 2 ** (depth + 1) - 1
        leaves = 0.3 * rng.random(S)
        leaves[S - 1 - rng.integers(2**depth)] = 1.0

        def moves(s: int, a: int) -> Outcomes:
            return ((0.9, 2 * s + 1 + a), (0.1, 2 * s + 2 - a)) if 2 * s + 2 < S else ((1.0, 0),)

        return _mdp(S, 2, 4 * (depth + 1), 0, moves, lambda s, a: float(leaves[s]) if 2 * s + 2 >= S else 0.0)

    return build


def graph(S: int, A: int = 3, H: int = 25) -> Build:
    """Every move is certain; one leads around a ring, the others anywhere; one place pays."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("graph", i)
        goal, leads = int(rng.integers(S // 2, S)), rng.integers(S, size=(S, A))
        leads[:, 0] = (np.arange(S) + 1) % S
        return _mdp(S, A, H, 0, lambda s, a: ((1.0, int(leads[s, a])),), lambda s, a: float(s == goal))

    return build


def layers(L: int, W: int, A: int, b: int) -> Build:
    """From layer to layer, b successors per cell; everything pays a little, one place of the last layer 1."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("layers", i)
        r = rng.uniform(0.0, 0.3, (L * W, A))
        r[(L - 1) * W + rng.integers(W)] = 1.0
        rows = {
            (s, a): tuple(
                zip(rng.dirichlet(np.ones(b)), (s // W + 1) * W + rng.choice(W, b, replace=False), strict=True)
            )
            for s in range((L - 1) * W)
            for a in range(A)
        }
        start = np.zeros(L * W)
        start[:W] = 1 / W
        return _mdp(L * W, A, L, start, lambda s, a: rows.get((s, a), ((1.0, 0),)), lambda s, a: float(r[s, a]))

    return build


# Grids --------------------------------------------------------------------------------------------------------------


def taxi(n: int, H: int = 25) -> Build:
    """Fetch somebody at one place of a grid and bring her to another one, again and again."""

    def build(i: int) -> FiniteMDP:
        rng, N = _rng("taxi", i), n * n
        source, target, start = (int(place) for place in (*rng.choice(N, 2, replace=False), rng.integers(N)))

        def moves(s: int, a: int) -> Outcomes:
            carrying, place = divmod(s, N)
            if a < 4:
                return ((0.95, carrying * N + _moved(place, a, n, n)), (0.05, s))
            if place == (target if carrying else source):
                return ((1.0, start if carrying else N + place),)
            return ((1.0, s),)

        return _mdp(2 * N, 5, H, start, moves, lambda s, a: float(a == 4 and s == N + target))

    return build


def cliff(height: int = 3, width: int = 6, H: int = 20) -> Build:
    """Along the edge of a cliff to the goal, or around it; whoever falls begins again."""

    def build(i: int) -> FiniteMDP:
        slip, S = _rng("cliff", i).uniform(0.02, 0.1), height * width
        start = S - width

        def moves(s: int, a: int) -> Outcomes:
            if s == S - 1:
                yield 1.0, start
                return
            for move in range(4):
                place = _moved(s, move, height, width)
                yield 1 - slip if move == a else slip / 3, start if start < place < S - 1 else place

        return _mdp(S, 4, H, start, moves, lambda s, a: float(s == S - 1))

    return build


def puddles(n: int, H: int = 24) -> Build:
    """A grid that pays more the closer to the far corner, and nothing in puddles."""

    def build(i: int) -> FiniteMDP:
        S = n * n
        wet = set(_rng("puddles", i).choice(np.arange(1, S - 1), n, replace=False).tolist())

        def moves(s: int, a: int) -> Outcomes:
            return ((0.85 if move == a else 0.05, _moved(s, move, n, n)) for move in range(4))

        return _mdp(S, 4, H, 0, moves, lambda s, a: 0.0 if s in wet else ((s // n + s % n) / (2 * n - 2)) ** 2)

    return build


# Chance -------------------------------------------------------------------------------------------------------------


def gambler(goal: int = 12, H: int = 20) -> Build:
    """Stakes of 1, 2, 3 or 5 on a coin, until everything is won or lost."""

    def build(i: int) -> FiniteMDP:
        heads, start = _rng("gambler", i).uniform(0.35, 0.55), goal // 3

        def moves(s: int, a: int) -> Outcomes:
            stake = min((1, 2, 3, 5)[a], s, goal - s)
            return ((heads, s + stake), (1 - heads, s - stake)) if stake else ((1.0, start),)

        return _mdp(goal + 1, 4, H, start, moves, lambda s, a: float(s == goal))

    return build


def ring(S: int, H: int) -> Build:
    """Left, stay or right on a ring with two hills, whose places have numbers that say nothing."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("ring", i)
        number, phases = rng.permutation(S), rng.uniform(0.0, 2 * np.pi, 2)
        place = np.argsort(number)

        def moves(s: int, a: int) -> Outcomes:
            steps = ((0.7, a - 1), (0.1, a), (0.1, a - 2), (0.1, 0))
            return ((chance, int(number[(place[s] + step) % S])) for chance, step in steps)

        def pay(s: int, a: int) -> float:
            x = 2 * np.pi * place[s] / S
            return float(0.5 + 0.25 * np.cos(x + phases[0]) + 0.24 * np.cos(2 * x + phases[1]))

        return _mdp(S, 3, H, int(number[0]), moves, pay)

    return build


def latent(S: int, A: int = 4, H: int = 12, kinds: int = 4) -> Build:
    """Rows and rewards are mixtures of a few kinds: wide rows, and every cell pays."""

    def build(i: int) -> FiniteMDP:
        rng = _rng("latent", i)
        shares, kind = rng.dirichlet(np.full(kinds, 0.3), (S, A)), rng.dirichlet(np.full(S, 0.3), kinds)
        rows, r = shares @ kind, shares @ rng.random(kinds) ** 3
        return _mdp(S, A, H, 0, lambda s, a: zip(rows[s, a], range(S), strict=True), lambda s, a: float(r[s, a]))

    return build
