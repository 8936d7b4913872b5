"""Plain versions of Spotlight's parts, and mechanisms that are broken on purpose."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.noise import Balanced
from discreet.privacy.trust.reports import CuratorReportStream, Reports, encoded, numbered
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
    wanted, place = numbered(alphabet, targets)
    table = np.zeros((len(items), alphabet.admitted.size), dtype=np.int64)
    for user, places in enumerate(place[items]):
        np.add.at(table[user], wanted[places[places >= 0]], 1)
    return table


def worst_ratio(scale, one, other):
    """Exact largest |log-ratio| of a release of two contributions under balanced noise: by the triangle inequality it
    is that of the release that equals one of them, and no release near by has a larger one."""
    law, rng = Balanced(scale, one.size), np.random.default_rng(0)
    near = rng.integers(-2, 4, size=(30, one.size)) * (rng.random((30, one.size)) < 0.3)
    y = np.concatenate([[one, other], near])
    ratios = np.abs(law.log_weight(y - one) - law.log_weight(y - other))
    assert ratios.max() <= ratios[0] + 1e-12
    assert ratios[0] == ratios[1]
    return float(ratios[0])


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


def doubt(row, spread, seen, V, r, mean_variance, N):
    """Standard deviation of r + PV from its formula."""
    mean = row @ V
    noise = sum(spread[y] * (V[y] - mean) ** 2 for y in range(len(V)) if seen[y]) / N**2
    sampling = (row @ (V - mean) ** 2 + r * (1 - r) + 1 / N) / N
    return (noise + mean_variance + sampling) ** 0.5


def exploring_values(model, seen, optimism, hidden, searching, along, prospect, H, A, restricted=False):
    """(actions, values, worth) by loops over h, s, a from the formulas of Spotlight; ties to action 0."""
    rows, spreads, means, mean_variances, counts, known = model
    prior, best_means, belief = prospect
    S = rows.shape[1]
    G = rows.shape[0] // (S * A)
    actions, V, worth = np.zeros((H, S), dtype=int), np.zeros((H + 1, S)), np.zeros((H, S))
    for h in reversed(range(H)):
        W = V[h + 1]
        for s in range(S):
            options = []
            for a in range(A):
                c = (min(h, G - 1) * S + s) * A + a
                allowed = [y for y in range(S) if (prior[c, y] > 0 if restricted else searching or seen[y])]
                top = max([0.0, *(W[y] for y in allowed)])
                full = min(H - h, 1 + top)
                if known[c]:
                    u = doubt(rows[c], spreads[c], seen, W, means[c], mean_variances[c], counts[c])
                    bonus = hidden[c] * (1 - means[c] + max(top - rows[c] @ W, 0))
                    q = min(means[c] + rows[c] @ W + bonus * searching + along * u, H - h)
                    bound = q + optimism[c] * u + bonus * (not searching)
                    options.append((bound, q, bonus if searching else u + bonus))
                else:
                    m = prior[c] @ W
                    likely = best_means[c] + m + (prior[c] @ (W - m) ** 2) ** 0.5
                    q = (1 - belief) * full + belief * min(full, likely)
                    options.append((q, q, q))
            best = max(range(A), key=lambda a, options=options: (options[a][0], -a))
            actions[h, s], worth[h, s] = best, options[best][2]
            V[h, s] = max(q for _, q, _ in options)
    return actions, V, worth


def bought(model, seen, caution, prior, prior_mean, H, wanted, prices, afterwards):
    """(S,): value at step 0 of the best of all deterministic plans with two actions; a plan may use usable and
    wanted cells only, and there is one of them in every state."""
    rows, spreads, means, mean_variances, counts, usable = model
    S = rows.shape[1]
    G = rows.shape[0] // S // 2
    pairs = [(min(h, G - 1) * S + s) * 2 for h in range(H) for s in range(S)]
    best = np.full(S, -np.inf)
    for plan in itertools.product(*([c for c in (p, p + 1) if usable[c] or wanted[c]] for p in pairs)):
        V = np.zeros(S)
        for h in reversed(range(H)):
            now = np.zeros(S)
            for s in range(S):
                c = plan[h * S + s]
                row, now[s] = (rows[c], means[c]) if usable[c] else (prior[c], prior_mean)
                after = afterwards[h + 1] if wanted[c] else V
                if usable[c]:
                    now[s] -= caution * doubt(row, spreads[c], seen, after, means[c], mean_variances[c], counts[c])
                now[s] += row @ after + prices[h] * wanted[c]
            V = now
        best = np.maximum(best, V)
    return best


def followed(rows, usable, prior, policy, initial):
    """(H, S) chances under a policy, by loops; cells that are not usable go where the prior says."""
    H, S, A = policy.shape
    G = rows.shape[0] // (S * A)
    mass = np.zeros((H, S))
    mass[0] = initial
    for h in range(H - 1):
        for s in range(S):
            for a in range(A):
                c = (min(h, G - 1) * S + s) * A + a
                mass[h + 1] += mass[h, s] * policy[h, s, a] * (rows[c] if usable[c] else prior[c])
    return mass


def cautious_values(model, seen, caution, prior, prior_mean, belief, H, A, fixed=None, wanted=None, afterwards=None):
    """(policy, values) by loops; ties to action 0."""
    rows, spreads, means, mean_variances, counts, usable = model
    S = rows.shape[1]
    G = rows.shape[0] // (S * A)
    policy, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        for s in range(S):
            cells = [(min(h, G - 1) * S + s) * A + a for a in range(A)]
            options = {}
            for a in range(A) if fixed is None else [fixed[h, s]]:
                c = cells[a]
                W = V[h + 1] if fixed is None or not wanted[c] else afterwards[h + 1]
                if usable[c]:
                    u = doubt(rows[c], spreads[c], seen, W, means[c], mean_variances[c], counts[c])
                    options[a] = min(max(means[c] + rows[c] @ W - caution * u, 0), H - h)
                elif fixed is not None:
                    options[a] = belief * (prior_mean + prior[c] @ W)
            if options:
                best = max(options, key=lambda a, options=options: (options[a], -a))
                policy[h, s, best], V[h, s] = 1.0, options[best]
            else:
                policy[h, s] = 1 / A
                V[h, s] = min(belief * np.mean([prior_mean + prior[c] @ V[h + 1] for c in cells]), H - h)
    return policy, V


def chances(rows, known, actions, A, initial):
    """(H, S) by walking all paths; a path ends in an unknown cell."""
    H, S = actions.shape
    G = rows.shape[0] // (S * A)
    mass = np.zeros((H, S))

    def walk(h, s, p):
        if h == H or p == 0.0:
            return
        mass[h, s] += p
        c = (min(h, G - 1) * S + s) * A + actions[h, s]
        if known[c]:
            for y in range(S):
                walk(h + 1, y, p * rows[c, y])

    for s in range(S):
        walk(0, s, initial[s])
    return mass


def switching_value(mdp, before, targets):
    """Expected return of users who switch plans, by walking all paths with the number of reports left."""
    H, S, A = before.shape
    wanted = targets.steps(S, A)

    def walk(h, s, left):
        if h == H:
            return 0.0
        g, stage = min(h, mdp.transitions.shape[0] - 1), min(h, wanted.shape[0] - 1)
        plan = before if left > 0 else targets.after
        total = 0.0
        for a in range(A):
            if plan[h, s, a] > 0.0:
                rest = left - 1 if left > 0 and wanted[stage, s, a] else left
                row = mdp.transitions[g, s, a]
                future = sum(row[y] * walk(h + 1, y, rest) for y in range(S) if row[y] > 0)
                total += plan[h, s, a] * (mdp.rewards[g, s, a] + future)
        return total

    return sum(mdp.initial[s] * walk(0, s, targets.left(S, A)) for s in range(S) if mdp.initial[s] > 0)


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


class VisitedOnlyStream(CuratorReportStream):
    """Adds noise only where somebody reported."""

    def _estimate(self):
        seen = self._tally > 0
        self._tally[seen] += self._noise.laplace(self._privatizer.entry().scale, int(seen.sum()))
        return self._tally, self._law.variance(0, 0)


class BothStatisticsStream(CuratorReportStream):
    """Releases the class of a successor and, in the columns beyond, the successor as well: each at the full ε."""

    def _collect(self, items, users):
        columns = self.alphabet.admitted.shape[1]
        self._single = np.zeros(self.alphabet.admitted.size, dtype=np.int64)
        np.add.at(self._single, items[items >= 0], 1)
        self._single = self._single.reshape(-1, columns)
        super()._collect(items, users)

    def _drawn(self, users):
        told = super()._drawn(users)
        both = told.histogram.copy()
        extra = both.shape[1] // 2
        noise = self._noise.laplace(self._privatizer.entry().scale, (both.shape[0], extra))
        both[:, extra:] = self._single[told.targets.rows][:, -extra:] + noise
        return replace(told, histogram=both)


class BothStatistics(Reports):
    def open(self, spec, num_episodes, noise):
        return BothStatisticsStream(self, spec, num_episodes, noise)


class TwoReports(Reports):
    """Sends two reports with the noise of one."""

    def open(self, spec, num_episodes, noise):
        stream = super().open(spec, num_episodes, noise)
        stream._reports = 2
        return stream


class VisitedOnly(Reports):
    def open(self, spec, num_episodes, noise):
        return VisitedOnlyStream(self, spec, num_episodes, noise)
