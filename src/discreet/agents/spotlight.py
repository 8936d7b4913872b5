"""Spotlight: every user reports at most one step, where the server still needs to know."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.kernels import spotlight as kernel
from discreet.mdp import Floats, Ints
from discreet.planning import Plan, tie_order
from discreet.structure import Mask, PublicStructure
from discreet.targets import Alphabet, PrivateReports, Targets


@dataclass(frozen=True, eq=False)
class Knowledge:
    """All that was learned from releases so far; a function of them, so free of privacy cost."""

    sums: Floats  # (C, 2S) noisy reports per sub-cell
    variances: Floats  # (C,) of the noise on one sub-cell; infinite: never asked
    trust: Floats  # (C,) in predictions about a cell
    expected: Floats  # (C,) reports that were predicted in the epochs summed
    refine: bool = False  # the last exploring epoch came back nearly empty

    @classmethod
    def nothing(cls, alphabet: Alphabet) -> Knowledge:
        C = alphabet.num_rows
        return cls(np.zeros(alphabet.admitted.shape), np.full(C, np.inf), np.ones(C), np.zeros(C))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A model of the known cells."""

    rows: Floats  # (C, S)
    means: Floats  # (C,)
    counts: Floats  # (C,)
    known: Mask  # (C,)


@dataclass(frozen=True, eq=False)
class SpotlightPlan(Plan):
    """A plan, what is known, and what the next epoch is expected to bring."""

    knowledge: Knowledge | None = None
    rates: Floats | None = None  # (C,) predicted reports per user
    unknown: Mask | None = None  # (C,) unknown cells among the targets
    exploring: bool = False


@dataclass(frozen=True)
class Spotlight:
    num_episodes: int
    initial: Floats | None = None
    confidence_scale: float = 0.1
    hiding: float = 0.25
    doubt: float = 0.2
    surplus: float = 0.7
    explore_mass: float = 0.3
    level_start: float = 20.0
    level_growth: float = 1.5
    signal: float = 8.0
    refine_signal: float = 10.0
    cap: float = 0.3
    floor: float = 0.02
    first: int = 200
    drop: float = 0.25
    restart: float = 1.2
    fewest: float = 5.0  # reports of the most visited target that an epoch is sized for, at least
    missing: float = 0.0
    slack: float = 1.0
    tie_seed: int = 0

    @classmethod
    def configured(
        cls,
        num_episodes: int,
        structure: PublicStructure,
        local: bool = False,
        confidence_scale: float | None = None,
        tie_seed: int = 0,
    ) -> Spotlight:
        """The defaults for a trusted curator, or for messages randomised at home (longer epochs)."""
        scale = 0.1 if confidence_scale is None else confidence_scale
        if local:
            return cls(
                num_episodes,
                structure.initial,
                scale,
                signal=4.0,
                refine_signal=4.0,
                first=1000,
                floor=0.05,
                fewest=40.0,
                tie_seed=tie_seed,
            )
        return cls(num_episodes, structure.initial, scale, tie_seed=tie_seed)

    def plan(self, release: PrivateReports, previous: Plan | None) -> SpotlightPlan:
        alphabet = release.alphabet
        H, S, A = shape = release.shape
        C = alphabet.num_cells
        knowledge = self._learned(release, previous)
        estimate = self.estimate(knowledge, alphabet)
        iota = math.log(S * A * H * max(math.log2(max(self.num_episodes, 2)), 1.0) / 0.1)
        sd = np.sqrt(knowledge.variances[:C])
        with np.errstate(divide="ignore", invalid="ignore"):
            missing = np.maximum(0.0, 1.0 - (estimate.counts + self.slack * sd) / knowledge.expected[:C])
            hidden = np.where(
                estimate.known, np.minimum(1.0, self.hiding * sd / estimate.counts + self.missing * missing), 0.0
            )
        possible = np.empty((0, 0), dtype=np.bool_)
        if alphabet.restricted:
            possible = alphabet.admitted[:C].reshape(C, S, 2).any(axis=2)
        quality, value = np.empty(shape), np.empty((H + 1, S))
        actions = np.empty((H, S), dtype=np.int64)
        kernel.optimistic_values(
            estimate.rows,
            estimate.means,
            estimate.counts,
            estimate.known,
            hidden,
            possible,
            self.confidence_scale,
            iota,
            tie_order(shape, self.tie_seed),
            quality,
            value,
            actions,
        )
        policy = np.zeros(shape)
        np.put_along_axis(policy, actions[..., None], 1.0, axis=2)
        initial = self.initial if self.initial is not None else self.start(knowledge, alphabet)
        if initial is None:
            wanted = np.zeros(C + 1, dtype=np.bool_)
            wanted[C] = True
            users = self._length(release, np.ones(1), S, 4.0 * self.signal, release.num_episodes)
            return SpotlightPlan(
                policy,
                value,
                quality,
                release.num_episodes,
                users,
                Targets(wanted),
                knowledge,
                wanted.astype(np.float64),
                wanted,
                False,
            )
        wanted, rates, users, exploring = self.targets(release, knowledge, estimate, actions, initial)
        if alphabet.has_start:
            wanted, rates = np.append(wanted, False), np.append(rates, 0.0)
        return SpotlightPlan(
            policy,
            value,
            quality,
            release.num_episodes,
            users,
            Targets(wanted),
            knowledge,
            rates,
            wanted & ~np.append(estimate.known, True)[: wanted.size],
            exploring,
        )

    def start(self, knowledge: Knowledge, alphabet: Alphabet) -> Floats | None:
        """The distribution of first states as reported, or None while it is unknown."""
        C = alphabet.num_cells
        rows, means, counts = np.empty((1, alphabet.num_states)), np.empty(1), np.empty(1)
        known = np.empty(1, dtype=np.bool_)
        kernel.estimate(
            knowledge.sums[C:],
            knowledge.variances[C:],
            alphabet.admitted[C:],
            alphabet.sizes[C:],
            self.doubt,
            self.surplus,
            5.0,
            rows,
            means,
            counts,
            known,
        )
        return rows[0] if known[0] else None

    def estimate(self, knowledge: Knowledge, alphabet: Alphabet) -> Estimate:
        C, S = alphabet.num_cells, alphabet.num_states
        rows, means, counts = np.empty((C, S)), np.empty(C), np.empty(C)
        known = np.empty(C, dtype=np.bool_)
        kernel.estimate(
            knowledge.sums[:C],
            knowledge.variances[:C],
            alphabet.admitted[:C],
            alphabet.sizes[:C],
            self.doubt,
            self.surplus,
            5.0,
            rows,
            means,
            counts,
            known,
        )
        return Estimate(rows, means, counts, known)

    def _learned(self, release: PrivateReports, previous: Plan | None) -> Knowledge:
        if previous is None or release.targets is None:
            return Knowledge.nothing(release.alphabet)
        assert isinstance(previous, SpotlightPlan)
        assert previous.knowledge is not None
        assert previous.rates is not None
        old = previous.knowledge
        rows = release.targets.rows
        sums, variances, trust = old.sums.copy(), old.variances.copy(), old.trust.copy()
        new = release.histogram
        totals = new.sum(axis=1)
        sd = math.sqrt(release.variance)
        first = np.isinf(variances[rows])
        old_totals = sums[rows].sum(axis=1)
        old_var = np.where(first, 0.0, variances[rows])
        fresh = first | (totals * np.sqrt(old_var + release.variance) > self.restart * (old_totals + totals) * sd)
        sums[rows] = np.where(fresh[:, None], new, sums[rows] + new)
        variances[rows] = np.where(fresh, release.variance, old_var + release.variance)
        predicted = previous.rates[rows] * release.users
        expected = old.expected.copy()
        expected[rows] = np.where(fresh, predicted, expected[rows] + predicted)
        sizes = release.alphabet.sizes[rows]
        short = totals < 0.3 * predicted - 0.5 * sd * np.sqrt(sizes)
        trust = np.minimum(1.0, trust * 1.15)
        trust[rows] = np.where(short, old.trust[rows] * 0.4, 1.0)
        refine = False
        if previous.exploring and previous.unknown is not None:
            unknown = previous.unknown[rows]
            refine = bool(totals[unknown].sum() < 0.3 * predicted[unknown].sum())
        return Knowledge(sums, variances, trust, expected, refine)

    def targets(
        self,
        release: PrivateReports,
        knowledge: Knowledge,
        estimate: Estimate,
        actions: Ints,
        initial: Floats,
    ) -> tuple[Mask, Floats, int, bool]:
        alphabet, m = release.alphabet, release.reports
        C, A = alphabet.num_cells, alphabet.num_actions
        trusted = knowledge.trust[:C] >= 0.5
        rates = np.empty(C)
        nobody = np.zeros(C, dtype=np.bool_)

        def predict(wanted: Mask, reports: int) -> Floats:
            out = np.empty(C)
            kernel.predicted_reports(estimate.rows, estimate.known, actions, A, initial, wanted, reports, out)
            return out

        visits = predict(nobody, 0)
        unknown = ~estimate.known & trusted
        reachable = visits > 0
        exploring = bool(visits[unknown].sum() >= self.explore_mass) and not knowledge.refine
        if exploring:
            wanted = unknown & reachable
        else:
            variances = np.where(np.isinf(knowledge.variances[:C]), 0.0, knowledge.variances[:C])
            N = estimate.counts
            with np.errstate(divide="ignore", invalid="ignore"):
                effective = np.where(N > 0, N * N / (N + variances), 0.0)
            level = self.level_start
            candidates = estimate.known & trusted & reachable
            wanted = candidates & (effective < level)
            while visits[wanted].sum() < 1.0 and (wanted != candidates).any():
                level *= self.level_growth
                wanted = candidates & (effective < level)
            wanted = wanted | (unknown & reachable)
        if not wanted.any():
            wanted = reachable
        rates = predict(wanted, m)
        k = release.num_episodes
        signal = self.signal if exploring else self.refine_signal
        items = int(alphabet.sizes[:C][wanted].sum())
        users = self._length(release, rates, items, signal, k)
        sd = math.sqrt(release.noise.variance(users, items))
        keep = wanted & (rates * users >= self.drop * 2.0 * sd)
        if keep.any() and not (keep == wanted).all():
            wanted = keep
            rates = predict(wanted, m)
        return wanted, rates, users, exploring

    def _length(self, release: PrivateReports, rates: Floats, items: int, signal: float, k: int) -> int:
        rate = max(float(rates.max()), 1e-9)
        n = 1.0
        for _ in range(40):  # n·rate = 2·signal·sd(n); the noise of one message per user grows like √n
            n = 2.0 * signal * math.sqrt(release.noise.variance(max(1, math.ceil(n)), items)) / rate
        n = min(max(n, self.fewest / rate), max(self.first, self.cap * k))
        return max(1, math.ceil(max(n, self.floor * k)))
