"""Slow and obvious: all episodes of a tiny problem, brute-force sensitivities, nodes by definition, tagged noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget, Guarantee, guarantee_of
from discreet.privacy.sums.tree import Layout


def every_episode(spec: CountSpec, rewards: tuple[float, ...] = (0.0, 1.0)) -> Iterator[Episodes]:
    """Every episode with the spec's states, actions and horizon and rewards from a short list."""
    H = spec.horizon
    for states in itertools.product(range(spec.num_states), repeat=H + 1):
        for actions in itertools.product(range(spec.num_actions), repeat=H):
            for received in itertools.product(rewards, repeat=H):
                yield Episodes(np.array([states]), np.array([actions]), np.array([received]))


def brute_sensitivity(spec: CountSpec, neighbours: str) -> dict[str, tuple[float, float]]:
    """Largest L1 and L2 change of every table over all pairs of records, bad ones included (or one and nothing)."""
    tables = {name: [] for name in spec.shapes()}
    for episode in [*every_episode(spec, (0.0, 1.0, -np.inf, np.inf)), *bad_records(spec)]:
        for name, table in Counts.of(episode, spec).tables():
            tables[name].append(table.reshape(-1))
    found = {}
    for name, rows in tables.items():
        X = np.unique(np.array(rows), axis=0)
        others = X if neighbours == "replace" else np.zeros((1, X.shape[1]), dtype=np.int64)
        moves = X[:, None, :] - others[None, :, :]
        found[name] = (
            float(np.abs(moves).sum(axis=2).max()),
            float(np.sqrt((moves.astype(float) ** 2).sum(2)).max()),
        )
    return found


@lru_cache(maxsize=4096)
def users_of_node(layout: Layout, bit: int, above: int) -> frozenset[int]:
    """Node (i, p) by definition: user j sits at label j−1; it holds the labels whose upper bits are p, then a 0."""
    return frozenset(
        user for user in range(1, layout.num_prefixes + 1) if layout.label(user - 1) >> bit == above << 1
    )


def nodes_of_prefix(layout: Layout, prefix: int) -> set[tuple[int, int]]:
    """The noisy nodes that make up a prefix."""
    label = layout.label(prefix)
    noisy = layout.noisy_bits(label)
    return {(bit, label >> (bit + 1)) for bit in range(layout.bits) if noisy >> bit & 1}


class TaggedNoise:
    """A mock source: the n-th row of each scale is 2ⁿ everywhere, so that sums tell which blocks they hold."""

    simulation = True

    def __init__(self) -> None:
        self.draws: dict[float, int] = {}

    def laplace(self, scale: float, shape: tuple[int, int]) -> np.ndarray:
        n = self.draws.get(scale, 0)
        self.draws[scale] = n + shape[0]
        tags = [1 << tag if tag < 61 else 0 for tag in range(n, n + shape[0])]  # no tag left: no block's
        return np.tile(np.array(tags, dtype=np.int64)[:, None], shape[1])

    gaussian = laplace


class RecordedNoise:
    """A real source that remembers what it drew."""

    def __init__(self, source) -> None:
        self.source, self.drawn = source, []
        self.simulation = source.simulation

    def laplace(self, scale, shape):
        block = self.source.laplace(scale, shape)
        self.drawn.append((scale, block.copy()))
        return block

    def gaussian(self, sigma, shape):
        block = self.source.gaussian(sigma, shape)
        self.drawn.append((sigma, block.copy()))
        return block


def random_episodes(spec: CountSpec, count: int, seed: int = 0) -> list[Episodes]:
    """So many single-user contributions."""
    rng = np.random.default_rng(seed)
    H = spec.horizon
    return [
        Episodes(
            rng.integers(0, spec.num_states, (1, H + 1)),
            rng.integers(0, spec.num_actions, (1, H)),
            rng.random((1, H)),
        )
        for _ in range(count)
    ]


def bad_records(spec: CountSpec) -> list[Episodes]:
    """Single records that are not episodes of this problem, each in another way."""
    H, S, A = spec.horizon, spec.num_states, spec.num_actions
    rows = [
        ([S] + [0] * H, [0] * H, [1.0] * H),
        ([0] * H + [S + 10**9], [0] * H, [1.0] * H),
        ([0] * H + [-1], [0] * H, [1.0] * H),
        ([0] * (H + 1), [0] * (H - 1) + [A], [1.0] * H),
        ([0] * (H + 1), [-1] * H, [1.0] * H),
        ([0] * (H + 1), [0] * H, [1.0] * (H - 1) + [np.nan]),
        ([0.5] + [0] * H, [0] * H, [1.0] * H),
        ([2**70] + [0] * H, [0] * H, [1.0] * H),
        (["east"] + [0] * H, [0] * H, [1.0] * H),
        ([0] * (H + 1), [0] * H, [None] * H),
        ([0] * (H + 2), [0] * (H + 1), [1.0] * (H + 1)),  # too long
    ]
    return [Episodes([states], [actions], [rewards]) for states, actions, rewards in rows]


def stacked(episodes: list[Episodes]) -> Episodes:
    """Several contributions as one."""
    return Episodes(
        np.concatenate([e.states for e in episodes]),
        np.concatenate([e.actions for e in episodes]),
        np.concatenate([e.rewards for e in episodes]),
    )


def spends_its_budget(guarantee: Guarantee, budget: Budget) -> None:
    """The ledger's costs add up to the budget, compose to the guarantee, and the guarantee is the budget."""
    entries = guarantee.entries
    spent = math.fsum(entry.cost for entry in entries)
    allowed = budget.total("gaussian" if entries[0].is_gaussian else "laplace")
    assert allowed * (1 - 1e-8) <= spent <= allowed
    again = guarantee_of(entries, guarantee.model, guarantee.neighbours, budget)
    assert (again.epsilon, again.delta, again.rho) == (guarantee.epsilon, guarantee.delta, guarantee.rho)
    if budget.epsilon is not None:
        assert budget.epsilon * (1 - 1e-8) <= guarantee.epsilon <= budget.epsilon
        assert guarantee.delta <= budget.delta
    else:
        assert guarantee.rho <= budget.rho
