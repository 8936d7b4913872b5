"""Adversaries: one table of losses (H, S, A) in [0, 1] per episode, chosen before the learner plays.

A sequence is a function of (environment, kind, number of episodes, instance) alone and can be read in portions:
`losses(0, 10)[5:]` equals `losses(5, 10)`. Episodes are counted from 0.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.envs.tabular import layers, whole
from discreet.mdp import FiniteMDP, Floats, Ints, frozen


@dataclass(frozen=True, eq=False)
class LossSequence:
    """Losses of `num_episodes` episodes: their means, and Bernoulli draws when `seed` is given (else the means)."""

    name: str
    shape: tuple[int, int, int]  # (H, S, A)
    num_episodes: int
    table: Callable[[Ints], Floats]  # episodes (n,) -> mean losses (n, H, S, A)
    seed: tuple[int, ...] | None = None

    def means(self, start: int, stop: int) -> Floats:
        """Mean losses of episodes start..stop−1, of shape (stop − start, H, S, A)."""
        if not 0 <= start <= stop <= self.num_episodes:
            raise ValueError(f"episodes {start}:{stop} were asked for; expected a portion of 0:{self.num_episodes}")
        return self.table(np.arange(start, stop))

    def losses(self, start: int, stop: int) -> Floats:
        """The losses themselves, of the same shape as `means`."""
        means = self.means(start, stop)
        if self.seed is None:
            return means
        # Every episode owns a fixed number of positions in a counter-based stream, four numbers to a position.
        H, S, A = self.shape
        cells = H * S * A
        positions = -(-cells // 4)
        bits = np.random.Philox(np.random.SeedSequence(self.seed)).advance(start * positions)
        uniforms = np.random.Generator(bits).random((stop - start, 4 * positions))[:, :cells]
        return (uniforms.reshape(means.shape) < means).astype(np.float64)


def adversary(kind: str, mdp: FiniteMDP, num_episodes: int, instance: int = 0) -> LossSequence:
    """The named loss sequence on `mdp`, whose own mean loss m = 1 − mean reward is what the adversary starts from.

    iid          m
    switch       m in the first half, an independent table in the second
    sinusoid     clip(m + amplitude·sin(2π(2k/K + phase)), 0, 1), amplitude ~ U[0.2, 0.5], phase ~ U[0, 1] per cell
    blocks       ½·m + ½·(a fresh table in each tenth)
    flips        every state reverses the order of its actions' losses on random intervals
    alternating  1 for action k mod A, 0 for the others: punishes following the leader

    Fresh tables are ½·U(state) + ½·U(state, action). All but `alternating` are means of Bernoulli losses. States that
    no policy can reach at a step lose nothing there, so that they carry no information.
    """
    if kind not in _KINDS:
        near = difflib.get_close_matches(kind, _KINDS, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown adversary {kind!r}; the nearest is {near!r}, the choices are {', '.join(_KINDS)}")
    K = whole("num_episodes", num_episodes, 1)
    low, high = float(mdp.rewards.min()), float(mdp.rewards.max())
    if low < 0 or high > 1:
        raise ValueError(
            f"mean rewards of {mdp.name} span [{low:g}, {high:g}]; losses 1 − reward need them in [0, 1]"
        )
    mask = np.zeros((mdp.horizon, mdp.num_states, 1))
    for h, states in enumerate(layers(mdp)):
        mask[h, list(states)] = 1.0
    base = (1.0 - mdp.staged().rewards) * mask
    i = whole("instance", instance, 0)
    # The environment of the same instance draws from default_rng(i); other seeds keep the two independent.
    table = _KINDS[kind](base, mask, K, np.random.default_rng([i, 1]))
    return LossSequence(kind, base.shape, K, table, None if kind == "alternating" else (i, 2))


def from_array(losses: Any, name: str = "custom") -> LossSequence:
    """A sequence given outright, of shape (num_episodes, H, S, A) with values in [0, 1]."""
    if np.ndim(losses) != 4 or min(np.shape(losses)) < 1:
        raise ValueError(f"losses have shape {np.shape(losses)}; expected (num_episodes, H, S, A)")
    tables = frozen(losses)
    _check(tables, 0)
    K, H, S, A = tables.shape
    return LossSequence(name, (H, S, A), K, lambda episodes: tables[episodes])


def from_function(
    function: Callable[[int], Any], shape: tuple[int, int, int], num_episodes: int, name: str = "custom"
) -> LossSequence:
    """A sequence whose table of episode k is `function(k)`, checked when it is read.

    The function must not depend on when or how often it is called.
    """
    K = whole("num_episodes", num_episodes, 1)
    H, S, A = (whole(f"shape[{axis}]", size, 1) for axis, size in enumerate(shape))

    def table(episodes: Ints) -> Floats:
        result = np.empty((len(episodes), H, S, A))
        for row, k in enumerate(episodes):
            losses = np.asarray(function(int(k)), dtype=np.float64)
            if losses.shape != (H, S, A):
                raise ValueError(f"the loss table of episode {k} has shape {losses.shape}; expected {(H, S, A)}")
            _check(losses[None], int(k))
            result[row] = losses
        return result

    return LossSequence(name, (H, S, A), K, table)


def _check(tables: Floats, first: int) -> None:
    good = (tables >= 0) & (tables <= 1)
    if not good.all():
        k, *cell = (int(index) for index in np.argwhere(~good)[0])
        raise ValueError(
            f"the loss of episode {first + k} at (step, state, action) {tuple(cell)} is {tables[(k, *cell)]}; "
            f"every loss must lie in [0, 1]"
        )


def _fresh(rng: np.random.Generator, mask: Floats, num_actions: int) -> Floats:
    """A random table ½·U(state) + ½·U(state, action)."""
    H, S, _ = mask.shape
    return (0.5 * rng.random((H, S, 1)) + 0.5 * rng.random((H, S, num_actions))) * mask


LossTable = Callable[[Ints], Floats]


def _iid(base: Floats, mask: Floats, K: int, rng: np.random.Generator) -> LossTable:
    return lambda k: np.broadcast_to(base, (len(k), *base.shape)).copy()


def _switch(base: Floats, mask: Floats, K: int, rng: np.random.Generator) -> LossTable:
    both = np.stack([base, _fresh(rng, mask, base.shape[2])])
    return lambda k: both[(2 * k >= K).astype(np.int64)]


def _sinusoid(base: Floats, mask: Floats, K: int, rng: np.random.Generator) -> LossTable:
    amplitude = rng.uniform(0.2, 0.5, base.shape) * mask
    phase = rng.random(base.shape)

    def table(k: Ints) -> Floats:
        turns = 2.0 * k[:, None, None, None] / K + phase
        return np.clip(base + amplitude * np.sin(2 * np.pi * turns), 0.0, 1.0)

    return table


def _blocks(base: Floats, mask: Floats, K: int, rng: np.random.Generator) -> LossTable:
    tenths = np.stack([0.5 * base + 0.5 * _fresh(rng, mask, base.shape[2]) for _ in range(10)])
    return lambda k: tenths[10 * k // K]


def _flips(base: Floats, mask: Floats, K: int, rng: np.random.Generator) -> LossTable:
    """Poisson(6) + 1 uniform cuts per (step, state); each interval between them is reversed with probability 0.35."""
    H, S, _ = base.shape
    cuts, reversals = [], []
    for _ in range(H * S):
        number = int(rng.poisson(6)) + 1
        cuts.append(np.sort(rng.uniform(0, K, number)))
        reversals.append(rng.random(number + 1) < 0.35)

    def table(k: Ints) -> Floats:
        columns = [r[np.searchsorted(c, k, side="right")] for c, r in zip(cuts, reversals, strict=True)]
        reverse = np.stack(columns, axis=1).reshape(len(k), H, S, 1)
        return np.where(reverse, base[..., ::-1], base)

    return table


def _alternating(base: Floats, mask: Floats, K: int, rng: np.random.Generator) -> LossTable:
    A = base.shape[2]
    tables = mask[None] * np.eye(A)[:, None, None, :]
    return lambda k: tables[k % A]


_KINDS: dict[str, Callable[[Floats, Floats, int, np.random.Generator], LossTable]] = {
    "iid": _iid,
    "switch": _switch,
    "sinusoid": _sinusoid,
    "blocks": _blocks,
    "flips": _flips,
    "alternating": _alternating,
}

#: The names `adversary` knows.
ADVERSARIES = tuple(_KINDS)
