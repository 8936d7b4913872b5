"""Adversarial problems in the local model: every user randomises her own record. Proofs: losses.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.device.encoders import below, unary_cost
from discreet.mdp import Floats, Ints
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Budget, LedgerEntry, guarantee_of
from discreet.privacy.families import check_common, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import assumptions
from discreet.privacy.trust.local import COMPOUND, ONE_REPORT, sum_of_noises, summed_width, unary_flips
from discreet.privacy.trust.losses import PUBLIC_LAYERS, PUBLIC_LOSSES, CentralLosses, LossPrivatizer, LossStream
from discreet.releases.counts import PrivateLosses


def chosen_cells(epsilon: float, num_cells: int) -> int:
    """How many loss cells a user reports: the j of least variance, (XA/j)·(e^{ε/j}/(e^{ε/j} − 1)² + ¼)."""

    def variance(j: int) -> float:
        odds = math.exp(min(epsilon / j, 50.0))
        return (odds / (odds - 1.0) ** 2 + 0.25) / j

    return min(range(1, num_cells + 1), key=variance)


def report_variance(num_cells: int, j: int, q: float) -> float:
    """Largest variance, about, that one reporter adds to the estimate of a cell: flips with probability q, and ¼ for
    the bit, at weight 2·XA/j in the j/XA of cases where the cell is drawn."""
    return 4.0 * num_cells / j * (q * (1.0 - q) / (1.0 - 2.0 * q) ** 2 + 0.25)


@dataclass(frozen=True)
class LocalLosses(LossPrivatizer):
    """Every user sends one report about one thing, at full ε, made on her own device.

    Full information: a fair public coin decides. Heads, she reports a step: drawn by her own coin, as one item
    (h,x,a,y) in optimised unary encoding. Tails, she reports j loss cells, drawn by public coins, each rounded to a
    bit by her own coin and flipped with probability 1/(e^{ε/j}+1). With public losses all users report a step.
    Bandit: all users report a step together with a bit that is 1 with probability her loss there.
    `laplace` (paper mode) adds noise to all counters instead: DLap(2H/ε_N), DLap(2(H−1)/ε_T), DLap(XA/ε_L).

    Guarantee: ε-LDP for any two records, losses.md.   Source: [BZZDTCC24] §5.2 (Laplace); sampled reports: ours.
    """

    budget: Budget
    public_losses: bool = False
    laplace: bool = False
    beta: float = 0.01

    def __post_init__(self) -> None:
        check_common("replace", self.beta, 1)
        if self.budget.kind != "pure":
            raise ValueError(
                f"local reports spend pure epsilon, got a {self.budget.kind} budget; state epsilon alone"
            )
        unary_flips(self.budget.total("laplace"))

    def noise_share(self, spec: LossSpec) -> float:
        if self.public_losses or spec.feedback == "bandit":
            return 0.0
        epsilon, XA, K = self.budget.total("laplace"), spec.layers.num_cells, spec.num_episodes
        if self.laplace:
            families = CentralLosses(self.budget, visits=True).families(spec)
            return families["losses"].deviation * spec.grid / math.sqrt(K)
        j = chosen_cells(epsilon, XA)
        return math.sqrt(K / 2.0 * report_variance(XA, j, unary_flips(epsilon / j) / 2**64)) / K

    def open(self, spec: LossSpec, noise: NoiseSource) -> LossStream:
        if spec.feedback == "bandit" and self.public_losses:
            raise ValueError("bandit losses are seen along people's trajectories, so they cannot be public")
        return LocalLaplaceLossStream(self, spec, noise) if self.laplace else LocalLossStream(self, spec, noise)


class LocalLossStream(LossStream):
    """Sums of randomised reports: holds no raw number."""

    def __init__(self, privatizer: LocalLosses, spec: LossSpec, noise: NoiseSource) -> None:
        super().__init__(spec)
        epsilon, XA = privatizer.budget.total("laplace"), spec.layers.num_cells
        self._noise = noise
        self._bandit = spec.feedback == "bandit"
        self._public = privatizer.public_losses
        self._step_items = spec.sizes["visits"] if spec.layers.horizon == 1 else self._num_items(spec)
        self._flips = unary_flips(epsilon)
        self._q = self._flips / 2**64
        self._cells = chosen_cells(epsilon, XA)
        self._bit_flips = unary_flips(epsilon / self._cells)
        self._bit_q = self._bit_flips / 2**64
        told = [PUBLIC_LAYERS, ONE_REPORT, *([PUBLIC_LOSSES] if self._public else [])]
        unary = LedgerEntry(
            "steps",
            "optimised-unary-encoding",
            "l1",
            2.0,
            math.sqrt(self._q * (1.0 - self._q)) / (0.5 - self._q),
            1,
            unary_cost(self._flips),
        )
        # Everyone sends one of two reports, chosen by a public coin: the guarantee is the larger of the two.
        bits = LedgerEntry(
            "loss cells",
            "randomised-response",
            "l1",
            float(self._cells),
            math.sqrt(self._bit_q * (1.0 - self._bit_q)) / (1.0 - 2.0 * self._bit_q),
            self._cells,
            self._cells * unary_cost(self._bit_flips),
        )
        split = not (self._bandit or self._public)
        entries = [max((unary, bits), key=lambda entry: entry.cost)] if split else [unary]
        self.guarantee = guarantee_of(
            entries,
            "local",
            "replace",
            privatizer.budget,
            assumptions=assumptions(
                spec.num_episodes,
                noise,
                *told,
                *([f"a public coin decides who reports a step and who {self._cells} loss cell(s)"] if split else []),
            ),
        )
        self._split = split
        self._ons = np.zeros(self._width_of_items, dtype=np.int64)
        self._steppers = 0
        self._loss_sums, self._loss_variance = np.zeros(XA), 0.0
        self._public_sums = np.zeros(XA, dtype=np.int64)
        self._counts = np.zeros(spec.sizes["transitions"])
        self._count_deviation = 0.0
        self._losses, self._latest, self._block_start = np.zeros(XA), np.zeros(XA), np.zeros(XA)

    def _num_items(self, spec: LossSpec) -> int:
        """One item per triple between layers, and per cell of the last layer."""
        return spec.sizes["transitions"] + len(spec.layers.states[-1]) * spec.layers.num_actions

    @property
    def _width_of_items(self) -> int:
        return self._step_items * (2 if self._bandit else 1)

    def _items(self, episodes: Episodes, losses: Floats) -> Ints:
        """The item of a step drawn by every user's own coin, −1 where her episode cannot be read. Full information
        never needs the last step."""
        spec = self.spec
        n, H = len(episodes), spec.layers.horizon
        cells = spec.cells(episodes)
        if not self._bandit and H == 1:
            return np.full(n, -1, dtype=np.int64)
        h = below(self._noise, H if self._bandit else H - 1, n)
        rows = np.arange(n)
        items = np.empty(n, dtype=np.int64)
        last = h == H - 1
        first_last = spec.sizes["visits"] - len(spec.layers.states[-1]) * spec.layers.num_actions
        items[last] = spec.sizes["transitions"] + cells[last, H - 1] - first_last
        if H > 1:
            items[~last] = spec.triples(cells)[rows[~last], h[~last]]
        if self._bandit:
            units = spec.on_grid(losses)[rows, cells[rows, h]]
            items = 2 * items + (below(self._noise, spec.units, n) < units)
        return np.where(cells[:, 0] >= 0, items, -1)

    def _sum_of_messages(self, items: Ints) -> Ints:
        """How many messages have each bit on; a simulation with many users draws Bin(c, ½) + Bin(n−c, q)."""
        n, D = items.size, self._width_of_items
        if self._noise.simulation and n >= COMPOUND:
            own = np.bincount(items[items >= 0], minlength=D)
            rng = self._noise.generator()
            return np.asarray(rng.binomial(own, 0.5) + rng.binomial(n - own, self._q), dtype=np.int64)
        total = np.zeros(D, dtype=np.int64)
        for item in items:
            words = self._noise.words(D)
            on = words < np.uint64(self._flips)
            if item >= 0:
                on[item] = words[item] < np.uint64(2**63)
            total += on
        return total

    def _add(self, episodes: Episodes, losses: Floats) -> None:
        n = len(episodes)
        if self._public:
            self._public_sums += self.spec.on_grid(losses).sum(axis=0)
        # Fair public coins, not turns: an adversary who knows the turns could show the reporters what it likes.
        order = self._noise.generator().integers(2, size=n) if self._split else np.zeros(n, dtype=np.int64)
        steppers, reporters = np.flatnonzero(order == 0), np.flatnonzero(order == 1)
        chosen = Episodes(episodes.states[steppers], episodes.actions[steppers], episodes.rewards[steppers])
        self._ons += self._sum_of_messages(self._items(chosen, losses[steppers]))
        self._steppers += len(steppers)
        if len(reporters):
            self._report_cells(losses[reporters])

    def _report_cells(self, losses: Floats) -> None:
        """j cells per user by public coins; each as a randomised bit, unbiased after the server's correction."""
        spec, j = self.spec, self._cells
        n, XA = len(losses), spec.layers.num_cells
        units = spec.on_grid(losses)
        rng = self._noise.generator()  # public coins
        chosen = np.argpartition(rng.random((n, XA)), j - 1, axis=1)[:, :j]
        bits = below(self._noise, spec.units, n * j).reshape(n, j) < np.take_along_axis(units, chosen, axis=1)
        flips = self._noise.words(n * j).reshape(n, j) < np.uint64(self._bit_flips)
        values = ((bits ^ flips) - self._bit_q) / (1.0 - 2.0 * self._bit_q)
        # Two users stand for one reporter (the other reported a step), XA/j cells for one drawn.
        weight = 2.0 * XA / j
        np.add.at(self._loss_sums, chosen, weight * values)
        self._loss_variance += n * report_variance(XA, j, self._bit_q)

    def _estimates(self) -> Floats:
        """Unbiased sums over all users per item."""
        spec = self.spec
        steps = spec.layers.horizon if self._bandit else max(spec.layers.horizon - 1, 1)
        factor = steps * (2.0 if self._split else 1.0) / (0.5 - self._q)
        self._count_deviation = factor * math.sqrt(max(self._steppers, 0) * self._q * (1.0 - self._q))
        return np.asarray(factor * (self._ons - self._steppers * self._q), dtype=np.float64)

    def _close_counts(self) -> None:
        estimates = self._estimates()
        pairs = estimates.reshape(-1, 2).sum(axis=1) if self._bandit else estimates
        if self._bandit:
            self._count_deviation *= math.sqrt(2.0)
        self._counts = pairs[: self.spec.sizes["transitions"]]

    def _close_losses(self) -> None:
        if self._bandit:
            ones = self._estimates().reshape(-1, 2)[:, 1]
            losses = self._along(ones)
        elif self._public:
            losses = np.asarray(self._public_sums * self.spec.grid, dtype=np.float64)
        else:
            losses = self._loss_sums.copy()
        self._latest, self._losses = losses - self._losses, losses

    def _along(self, ones: Floats) -> Floats:
        """Losses per cell from items with bit 1: summed over successors."""
        spec = self.spec
        table = np.zeros((*spec.cell_index.shape,))
        if spec.layers.horizon > 1:
            table[:] = spec.unpacked("transitions", ones[: spec.sizes["transitions"]]).sum(axis=-1)
        last = np.asarray(ones[spec.sizes["transitions"] :])
        table[-1][spec.cell_index[-1] >= 0] = last
        return np.asarray(table[spec.cell_index >= 0])

    def _build(self) -> PrivateLosses:
        spec = self.spec
        deviation = 0.0 if self._public else math.sqrt(self._loss_variance)
        if self._bandit:
            successors = max((len(layer) for layer in spec.layers.states[1:]), default=1)
            deviation = self._count_deviation * math.sqrt(successors / 2.0)
        return PrivateLosses(
            None,
            spec.unpacked("transitions", self._counts),
            spec.unpacked("losses", self._losses),
            spec.unpacked("losses", self._latest),
            self._crowd.size - self._block,
            self._counted,
            self._last_block,
            self._num_blocks,
            self._count_deviation,
            math.inf,
            deviation,
            math.inf,
        )


class LocalLaplaceLossStream(LossStream):
    """Laplace noise on every counter of every user: the printed local form at its true scale."""

    def __init__(self, privatizer: LocalLosses, spec: LossSpec, noise: NoiseSource) -> None:
        super().__init__(spec)
        self._noise = noise
        central = CentralLosses(privatizer.budget, visits=True, public_losses=privatizer.public_losses)
        self._families = central.families(spec)
        entries = [family.entry for family in self._families.values() if family.entry is not None]
        told = [PUBLIC_LAYERS, ONE_REPORT, *([PUBLIC_LOSSES] if privatizer.public_losses else [])]
        self.guarantee = guarantee_of(
            entries, "local", "replace", privatizer.budget, assumptions=assumptions(spec.num_episodes, noise, *told)
        )
        self._totals = {name: np.zeros(size, dtype=np.int64) for name, size in spec.sizes.items()}
        self._shown = {name: np.zeros(size) for name, size in spec.sizes.items()}
        self._latest = np.zeros(spec.sizes["losses"])
        widths = {
            name: summed_width(family.scale, spec.num_episodes, family.size, privatizer.beta / 3)
            for name, family in self._families.items()
            if family.entry is not None
        }
        self._count_width = max(width for name, width in widths.items() if name != "losses")
        # Bandit: one loss report enters one estimate, so that its own tail counts.
        self._loss_width = 0.0
        if "losses" in widths:
            self._loss_width = spec.grid * union_width(
                self._families["losses"], [1], [float(spec.num_episodes)], privatizer.beta / 3
            )

    def _add(self, episodes: Episodes, losses: Floats) -> None:
        n = len(episodes)
        for name, table in self.spec.contribution(episodes, losses).items():
            family = self._families[name]
            if family.entry is not None or name == "losses":  # without a share of the budget losses are public
                self._totals[name] += table + sum_of_noises(family.scale, n, family.size, self._noise)

    def _close_counts(self) -> None:
        for name in ("visits", "transitions"):
            self._shown[name] = self._totals[name].astype(np.float64)

    def _close_losses(self) -> None:
        before = self._shown["losses"]
        self._shown["losses"] = np.asarray(self._totals["losses"] * self.spec.grid, dtype=np.float64)
        self._latest = self._shown["losses"] - before

    def _build(self) -> PrivateLosses:
        spec, shown = self.spec, self._shown
        root = math.sqrt(self._crowd.size)
        return PrivateLosses(
            spec.unpacked("visits", shown["visits"]),
            spec.unpacked("transitions", shown["transitions"]),
            spec.unpacked("losses", shown["losses"]),
            spec.unpacked("losses", self._latest),
            self._crowd.size - self._block,
            self._counted,
            self._last_block,
            self._num_blocks,
            root * self._families["transitions"].deviation,
            self._count_width,
            root * self._families["losses"].deviation * spec.grid,
            self._loss_width,
        )
