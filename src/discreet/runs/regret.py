"""Exact regret of what was played, with the true model: for simulations, never a private output."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from discreet.envs.adversaries import LossSequence
from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.people.episodes import MDPSimulator
from discreet.planning import occupancy, optimal_plan, policy_value, uniform_policy
from discreet.releases.reports import Targets
from discreet.runs.simulation import Clock
from discreet.session import Epoch

#: Loss tables read at once.
CHUNK = 8192


def checkpoints(num_episodes: int, points: int = 100) -> Ints:
    """Up to so many numbers of episodes, about evenly spaced by ratio; the last is all of them."""
    return np.unique(np.geomspace(1, num_episodes, points).round().astype(np.int64))


class RegretCurve:
    """Σ_k (V* − V^{π_k}) over all episodes; each distinct policy is evaluated once, checkpoints only select."""

    def __init__(self, mdp: FiniteMDP, num_episodes: int, points: int = 100) -> None:
        self.mdp = mdp
        self.optimal = float(mdp.initial @ optimal_plan(mdp).value[0])
        self.random = policy_value(mdp, uniform_policy((mdp.horizon, mdp.num_states, mdp.num_actions)))
        self.checkpoints = checkpoints(num_episodes, points)
        self.regret = np.zeros(len(self.checkpoints))
        self.last, self.switches = self.random, -1
        self._known: dict[bytes, float] = {}
        self._current = b""
        self._since, self._before = 0, 0.0  # when the current policy came, and the regret until then
        self._done, self._filled = 0, 0

    def add(self, policy: Floats | Ints, users: int, *targets: Targets) -> None:
        """So many consecutive users under one policy, up to their report where there are targets."""
        key = hashlib.blake2b(policy.tobytes(), digest_size=16).digest()
        for each in targets:
            key += each.version(policy.astype(np.float64)).encode()
        if key != self._current:
            if key not in self._known:
                self._known[key] = policy_value(self.mdp, policy, *targets)
            self._before = self._at(self._done)
            self._since, self._current, self.last = self._done, key, self._known[key]
            self.switches += 1
        self._done += users
        while self._filled < len(self.checkpoints) and self.checkpoints[self._filled] <= self._done:
            self.regret[self._filled] = self._at(int(self.checkpoints[self._filled]))
            self._filled += 1

    def _at(self, episode: int) -> float:
        return self._before + (self.optimal - self.last) * (episode - self._since)

    def measured(self) -> dict[str, Any]:
        """What a result says of it."""
        return {
            "checkpoints": self.checkpoints,
            "regret": self.regret,
            "random_regret": int(self.checkpoints[-1]) * (self.optimal - self.random),
            "value_optimal": self.optimal,
            "value_random": self.random,
            "final_value": self.last,
            "switches": self.switches,
        }


class Hindsight:
    """People who meet an adversary's losses, and the exact regret against the best fixed policy in hindsight.

    Losses may end early: then nobody comes any more, what was recorded is kept and `stopped` says why.
    """

    def __init__(self, simulator: MDPSimulator, sequence: LossSequence, num_episodes: int, clock: Clock) -> None:
        self._simulator, self._sequence, self._clock, self.mdp = simulator, sequence, clock, simulator.mdp
        self.times, self.done, self.switches = checkpoints(num_episodes), 0, -1
        self.stopped: str | None = None
        self._policy: Floats | Ints = np.empty(0)
        self._measure = np.empty(0)
        self._total = np.zeros(sequence.shape)
        self._loss, self._losses, self._tables = 0.0, [], []  # type: float, list[float], list[Floats]

    def arrive(self, epoch: Epoch, room: int) -> tuple[Any, ...] | None:
        """Users up to the next checkpoint, with the loss table of each."""
        start, policy = self.done, epoch.plan.policy
        following = self.times[np.searchsorted(self.times, start, side="right")]
        stop = min(start + room, int(following), start + CHUNK - (start - epoch.start) % CHUNK)
        with self._clock.stopped():
            try:
                tables = self._sequence.losses(start, stop)
                _check(tables, (stop - start, *self._sequence.shape))
            except Exception as error:  # whatever a user's function raises ends the run, not the record
                self.stopped = f"the losses of episodes {start} to {stop - 1} failed: {error}"
                return None
            if start == epoch.start:
                self._measure = occupancy(self.mdp, policy)
            self._record(tables.sum(axis=0), stop)
        return self._simulator.rollout(policy, stop - start), tables

    def add(self, policy: Floats | Ints, users: int) -> None:
        """An epoch that was played."""
        self.switches += not np.array_equal(policy, self._policy)
        self._policy = policy

    def _record(self, table: Floats, stop: int) -> None:
        self._total += table
        self._loss += float((self._measure * table).sum())
        self.done = stop
        if stop == self.times[len(self._losses)]:
            self._losses.append(self._loss)
            self._tables.append(self._total.copy())

    def measured(self) -> dict[str, Any]:
        """What a result says of it; values are mean losses per episode."""
        if not self.done:
            raise ValueError(self.stopped)
        if self.done != self.times[len(self._losses) - 1]:
            self.times = np.append(self.times[: len(self._losses)], self.done)
            self._losses.append(self._loss)
            self._tables.append(self._total.copy())
        mdp, K = self.mdp, self.done
        staged = mdp.staged()
        whole = FiniteMDP(staged.transitions, -self._total, staged.initial, staged.horizon)
        best, even = optimal_plan(whole).policy, uniform_policy(self._total.shape)
        tables, loss = np.stack(self._tables), np.array(self._losses)
        comparator, uniform = ((tables * occupancy(mdp, policy)).sum(axis=(1, 2, 3)) for policy in (best, even))
        regret, random_regret = loss - comparator, float(uniform[-1] - comparator[-1])
        return {
            "checkpoints": self.times,
            "regret": regret,
            "random_regret": random_regret if random_regret > 1e-9 * K else 0.0,  # 0 where all are as good
            "value_optimal": float(comparator[-1]) / K,
            "value_random": float(uniform[-1]) / K,
            "final_value": float((self._measure * self._total).sum()) / K,
            "switches": self.switches,
            "diagnostics": {
                "regret_per_step": float(regret[-1]) / (K * mdp.horizon),
                "loss": loss.tolist(),
                "comparator_loss": comparator.tolist(),
                "stopped": self.stopped,
            },
        }


def _check(tables: Floats, shape: tuple[int, ...]) -> None:
    if tables.shape != shape:
        raise ValueError(f"tables have shape {tables.shape}; expected {shape}")
    if not ((tables >= 0.0) & (tables <= 1.0)).all():
        raise ValueError("a loss lies outside [0, 1]")
