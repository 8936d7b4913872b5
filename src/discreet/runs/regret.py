"""Exact regret of what was played, with the true model: for simulations, never a private output."""

from __future__ import annotations

import hashlib

import numpy as np

from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.releases.reports import Targets


class RegretCurve:
    """Σ_k (V* − V^{π_k}) over all episodes; each distinct policy is evaluated once, checkpoints only select."""

    def __init__(self, mdp: FiniteMDP, num_episodes: int, points: int = 100) -> None:
        self.mdp = mdp
        self.optimal = float(mdp.initial @ optimal_plan(mdp).value[0])
        self.random = policy_value(mdp, uniform_policy((mdp.horizon, mdp.num_states, mdp.num_actions)))
        self.checkpoints = np.unique(np.geomspace(1, num_episodes, points).round().astype(np.int64))
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
