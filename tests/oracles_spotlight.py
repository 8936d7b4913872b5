"""Plain versions of Spotlight's parts, and mechanisms that are broken on purpose."""

from __future__ import annotations

import itertools

import numpy as np

from discreet.kernels import spotlight as kernel
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.trust.reports import Reports, ReportStream, encoded
from discreet.releases.reports import Targets


def announced(alphabet, cells, policy=None) -> Plan:
    """A plan that does nothing but ask for some cells."""
    H, S, A = alphabet.horizon, alphabet.num_states, alphabet.num_actions
    wanted = np.zeros(alphabet.num_rows, dtype=bool)
    wanted[list(cells)] = True
    policy = np.full((H, S, A), 1.0 / A) if policy is None else policy
    return Plan(policy, np.zeros((H + 1, S)), np.zeros((H, S, A)), announcement=Targets(wanted))


def all_episodes(S, A, H, rewards=(0.0, 1.0)) -> Episodes:
    """Every episode there is."""
    rows = [
        (states, actions, paid)
        for states in itertools.product(range(S), repeat=H + 1)
        for actions in itertools.product(range(A), repeat=H)
        for paid in itertools.product(rewards, repeat=H)
    ]
    states, actions, paid = zip(*rows, strict=True)
    return Episodes(np.array(states), np.array(actions), np.array(paid, dtype=float))


def first_visits(states, actions, bits, wanted, pooled, A, S, m, start=None):
    """The reports of one user, from the definition: (cell, s', bit) of her first m visits."""
    H = len(actions)
    found = []
    if start is not None and start in wanted:
        found.append((start, states[0], 0))
    for h in range(H):
        cell = ((0 if pooled else h) * S + states[h]) * A + actions[h]
        if cell in wanted and len(found) < m:
            successor = 0 if not pooled and h == H - 1 else states[h + 1]
            found.append((cell, successor, bits[h]))
    return found


def contributions(episodes, spec, alphabet, targets, m, noise):
    """(n, C·2S): what each user adds to the histogram, through the shipped encoder and tally."""
    items = encoded(episodes, spec, alphabet, targets, m, noise)
    rows = []
    place = np.arange(alphabet.num_rows)
    for row in items:
        table = np.zeros(alphabet.admitted.shape, dtype=np.int64)
        kernel.tally(row[None, :], place, alphabet.admitted, alphabet.admitted.shape[1], table)
        rows.append(table.reshape(-1))
    return np.array(rows)


def reported_law(mdp, policy, choose):
    """Exact law of the outcome of the reported step given its cell: {cell: {(s', bit): probability}}.

    `choose(states, actions, rewards)` is the step a user reports, or None; rewards are Bernoulli.
    """
    H, S, A = policy.shape
    law: dict[int, dict[tuple[int, int], float]] = {}
    for states in itertools.product(range(S), repeat=H + 1):
        for actions in itertools.product(range(A), repeat=H):
            for bits in itertools.product((0, 1), repeat=H):
                p = mdp.initial[states[0]]
                for h in range(H):
                    s, a, y = states[h], actions[h], states[h + 1]
                    r = mdp.rewards[0, s, a]
                    p *= policy[h, s, a] * mdp.transitions[0, s, a, y] * (r if bits[h] else 1 - r)
                h = choose(states, actions, bits)
                if p > 0 and h is not None:
                    cell = law.setdefault(states[h] * A + actions[h], {})
                    outcome = states[h + 1], bits[h]
                    cell[outcome] = cell.get(outcome, 0.0) + p
    return {c: {k: v / sum(d.values()) for k, v in d.items()} for c, d in law.items()}


def optimistic_values(rows, means, counts, known, hidden, possible, confidence, iota, H, A):
    """Loops over h, s, a from the formula in `discreet.agents.spotlight.Spotlight`."""
    S = rows.shape[1]
    G = rows.shape[0] // (S * A)
    Q, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        for s in range(S):
            for a in range(A):
                c = (min(h, G - 1) * S + s) * A + a
                ys = [y for y in range(S) if possible is None or possible[c, y]]
                high, low = max(V[h + 1, y] for y in ys), min(V[h + 1, y] for y in ys)
                q = 1 + high
                if known[c]:
                    mean = sum(rows[c, y] * V[h + 1, y] for y in range(S))
                    second = sum(rows[c, y] * (V[h + 1, y] - mean) ** 2 for y in range(S))
                    spread = 2 * (second + means[c] * (1 - means[c])) * iota / counts[c]
                    q = means[c] + mean + confidence * (spread**0.5 + (high - low) * iota / 3 / counts[c])
                    q += hidden[c] * (1 - means[c] + max(high - mean, 0))
                Q[h, s, a] = min(q, H - h)
            V[h, s] = Q[h, s].max()
    return Q, V


def expected_reports(rows, known, actions, A, initial, wanted, m):
    """Reports per user by walking all paths; a path ends in an unknown cell or with its last report."""
    H, S = actions.shape
    G = rows.shape[0] // (S * A)
    rates = np.zeros(rows.shape[0])

    def walk(h, s, sent, p):
        if h == H or p == 0.0:
            return
        c = (min(h, G - 1) * S + s) * A + actions[h, s]
        if m == 0 or wanted[c]:
            rates[c] += p
            sent += 1
        if (m and sent == m) or not known[c]:
            return
        for y in range(S):
            walk(h + 1, y, sent, p * rows[c, y])

    for s in range(S):
        walk(0, s, 0, initial[s])
    return rates


# Broken on purpose --------------------------------------------------------------------------------------------------


class VisitedOnlyStream(ReportStream):
    """Adds noise only where somebody reported."""

    def release(self):
        if self._users:
            exists = self._histogram > 0
            noisy = self._histogram
            noisy[exists] += self._noise.laplace(self._scale, int(exists.sum()))
            self._last = self._released(noisy)
            self._histogram, self._targets, self._users = np.zeros_like(noisy[:0]), None, 0
        return self._last


class TwoReports(Reports):
    """Sends two reports with the noise of one."""

    def open(self, spec, num_episodes, noise):
        stream = super().open(spec, num_episodes, noise)
        stream._m = 2
        return stream


class VisitedOnly(Reports):
    def open(self, spec, num_episodes, noise):
        return VisitedOnlyStream(self, spec, num_episodes, noise)
