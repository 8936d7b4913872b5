"""Adversarial problems in the local model: every user randomises her own record. Proofs: losses.md.

`add` simulates users; real ones ask for `encoder_for` them, fill it in on their devices (discreet/device/losses.py)
and send one report, which `add_report` admits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.device import GaussianEncoder, LaplaceEncoder, LossEncoder, Report, SampledEncoder
from discreet.device.losses import flipped
from discreet.device.sampler import below, chosen, unary_cost
from discreet.mdp import Floats, Ints
from discreet.people.episodes import Episodes
from discreet.people.losses import TABLES, LossSpec
from discreet.privacy.accounting import Budget, LedgerEntry
from discreet.privacy.families import Family, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import stated
from discreet.privacy.trust.local import (
    ONE_REPORT,
    CounterSums,
    check_local,
    check_relation,
    sum_of_noises,
    summed_messages,
    summed_width,
    unary_entry,
    unary_flips,
)
from discreet.privacy.trust.losses import (
    PUBLIC_LAYERS,
    PUBLIC_LOSSES,
    CentralLosses,
    LossErrors,
    LossPrivatizer,
    LossStream,
)


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
    `laplace` (paper mode) adds noise to all counters instead: DLap(2H/ε_N), DLap(2(H−1)/ε_T), DLap(XA/ε_L);
    with `calibration="paper"` DLap(H/ε_f) for each, as printed, and the guarantee that this truly gives. Cumulative
    losses are padded to K noises as in Alg. 4, unless as printed: their noise has then the same law after every user.
    A budget in ρ or (ε, δ) buys discrete Gaussian noise on all counters, of visits only with `laplace` (paper mode).

    Guarantee: ε-LDP, or ρ-zCDP, for any two records, losses.md.
    Source: [BZZDTCC24] §5.2 (Laplace); sampled reports and Gaussian noise: ours.
    """

    budget: Budget
    public_losses: bool = False
    laplace: bool = False
    beta: float = 0.01
    calibration: Literal["true", "paper"] = "true"

    def __post_init__(self) -> None:
        if self.budget.kind == "pure":
            check_local(self.budget, beta=self.beta)
        check_relation("replace", self.beta)
        if self.calibration == "paper" and not self.laplace:
            raise ValueError("the papers print a scale for Laplace noise on every counter only")

    def padded(self, spec: LossSpec) -> bool:
        """Whether sums of losses are filled up to K noises: in the form of the paper, but for its printed scale."""
        return self.laplace and self.calibration == "true" and spec.feedback == "full" and not self.public_losses

    @property
    def counters(self) -> bool:
        """Whether everyone sends all her counters with noise, instead of one thing."""
        return self.laplace or self.budget.kind != "pure"

    def families(self, spec: LossSpec) -> dict[str, Family]:
        """The noise of every counter of one user's message."""
        budget, visits = self.budget, self.laplace
        central = CentralLosses(budget, visits=visits, public_losses=self.public_losses, calibration=self.calibration)
        return central.families(spec)

    def noise_share(self, spec: LossSpec) -> float:
        if self.public_losses or spec.feedback == "bandit":
            return 0.0
        XA, K = spec.layers.num_cells, spec.num_episodes
        if self.counters:
            return self.families(spec)["losses"].deviation * spec.grid / math.sqrt(K)
        epsilon = self.budget.total("laplace")
        j = chosen_cells(epsilon, XA)
        return math.sqrt(K / 2.0 * report_variance(XA, j, unary_flips(epsilon / j) / 2**64)) / K

    def open(self, spec: LossSpec, noise: NoiseSource) -> LossStream:
        if spec.feedback == "bandit" and self.public_losses:
            raise ValueError("bandit losses are seen along people's trajectories, so they cannot be public")
        return LocalCounterLossStream(self, spec, noise) if self.counters else LocalLossStream(self, spec, noise)


class LocalStream(LossStream):
    """What both streams share: users' own messages, and public losses beside them."""

    def __init__(self, privatizer: LocalLosses, spec: LossSpec, noise: NoiseSource) -> None:
        super().__init__(spec)
        self._noise, self._public = noise, privatizer.public_losses
        self._told = [PUBLIC_LAYERS, ONE_REPORT, *([PUBLIC_LOSSES] if self._public else [])]
        self._public_sums = np.zeros(spec.sizes["losses"], dtype=np.int64)

    def add_report(self, report: Report, losses: Floats | None = None) -> None:
        """One user's own message, made with the encoder she was given; a second one of hers is refused.

        `losses` is the loss table (H, S, A) of her episode where losses are public.
        """
        if self._public != (losses is not None):
            raise ValueError("a loss table comes with a report where losses are public, and only there")
        if losses is not None and losses.shape != self.spec.cell_index.shape:
            raise ValueError(
                f"the loss table has shape {losses.shape}; expected (H, S, A) = {self.spec.cell_index.shape}"
            )
        self._crowd.claim(report.user)
        self._add_report(report)
        if losses is not None:
            self._public_sums += self.spec.on_grid(losses[None])[0]
        self._enter(1)

    @abstractmethod
    def _add_report(self, report: Report) -> None:
        """Keep one message, or refuse it."""


class LocalLossStream(LocalStream):
    """Sums of randomised reports: holds no raw number."""

    def __init__(self, privatizer: LocalLosses, spec: LossSpec, noise: NoiseSource) -> None:
        super().__init__(privatizer, spec, noise)
        epsilon, XA = privatizer.budget.total("laplace"), spec.layers.num_cells
        self._bandit = spec.feedback == "bandit"
        self.encoder = SampledEncoder(spec.tables, unary_flips(epsilon))  # of a step; of cells: `encoder_for`
        self._q = self.encoder.share
        self._cells = chosen_cells(epsilon, XA)
        self._bit_flips = unary_flips(epsilon / self._cells)
        self._bit_q = self._bit_flips / 2**64
        self._split = not (self._bandit or self._public)
        entry = unary_entry(self.encoder)
        if self._split:
            # Everyone sends one of two reports, chosen by a public coin: the guarantee is the larger of the two.
            j, spread = self._cells, math.sqrt(self._bit_q * (1.0 - self._bit_q)) / (1.0 - 2.0 * self._bit_q)
            cost = j * unary_cost(self._bit_flips)
            bits = LedgerEntry("loss cells", "randomised-response", "l1", float(j), spread, j, cost)
            entry = max((entry, bits), key=lambda entry: entry.cost)
            self._told.append(f"a public coin decides who reports a step and who {j} loss cell(s)")
        self.guarantee = stated([entry], "local", "replace", privatizer.budget, spec.num_episodes, noise, *self._told)
        self._asked: dict[str, SampledEncoder | LossEncoder] = {}
        self._ons = np.zeros(self.encoder.num_items, dtype=np.int64)
        self._steppers = 0
        self._loss_sums, self._loss_variance = np.zeros(XA), 0.0
        self._count_deviation = 0.0

    # Users' own messages ------------------------------------------------------------------------------------------

    def encoder_for(self, user: str) -> SampledEncoder | LossEncoder:
        """What this user is asked for. Public coins decide when she first asks, and asking again changes nothing."""
        if not self._split:
            return self.encoder
        if user not in self._asked:
            heads = int(below(self._noise, 2, 1)[0]) == 0
            self._asked[user] = self.encoder if heads else self._cells_encoder()
        return self._asked[user]

    def _cells_encoder(self) -> LossEncoder:
        tables = self.spec.tables
        return LossEncoder(tables, chosen(self._noise, tables.cells[2], self._cells), self._bit_flips)

    def _add_report(self, report: Report) -> None:
        encoder = self._asked.pop(report.user, None if self._split else self.encoder)
        if encoder is None:
            raise ValueError("this user has not been asked for a report; nothing was added")
        bits = encoder.values(report)
        if isinstance(encoder, LossEncoder):
            self._add_bits(np.array([encoder.cells]), bits[None])
        else:
            self._ons += bits
            self._steppers += 1

    # Simulated users ----------------------------------------------------------------------------------------------

    def _items(self, episodes: Episodes, losses: Floats) -> Ints:
        """The items of steps drawn by every user's own coin, −1 where an episode cannot be read."""
        units = self.spec.on_grid(losses) if self._bandit else np.zeros((len(episodes), 0), dtype=np.int64)
        return self.spec.tables.items(self.spec.cells(episodes), units, self._noise)

    def _add(self, episodes: Episodes, losses: Floats) -> None:
        n = len(episodes)
        if self._public:
            self._public_sums += self.spec.on_grid(losses).sum(axis=0)
        # Fair public coins, not turns: an adversary who knows the turns could show the reporters what it likes.
        order = self._noise.generator().integers(2, size=n) if self._split else np.zeros(n, dtype=np.int64)
        steppers, reporters = np.flatnonzero(order == 0), np.flatnonzero(order == 1)
        walks = Episodes(episodes.states[steppers], episodes.actions[steppers], episodes.rewards[steppers])
        self._ons += summed_messages(self.encoder, self._items(walks, losses[steppers]), self._noise)
        self._steppers += len(steppers)
        if len(reporters):
            self._report_cells(losses[reporters])

    def _report_cells(self, losses: Floats) -> None:
        """j cells per user by public coins; each as a randomised bit."""
        spec, j = self.spec, self._cells
        n, XA = len(losses), spec.layers.num_cells
        units = spec.on_grid(losses)
        rng = self._noise.generator()  # public coins
        cells = np.argpartition(rng.random((n, XA)), j - 1, axis=1)[:, :j]
        bits = flipped(np.take_along_axis(units, cells, axis=1), spec.units, self._bit_flips, self._noise)
        self._add_bits(cells, bits)

    def _add_bits(self, cells: Ints, bits: NDArray[Any]) -> None:
        """Bits (n, j) on these cells; unbiased after the server's correction."""
        n, j = cells.shape
        XA = self.spec.layers.num_cells
        values = (bits - self._bit_q) / (1.0 - 2.0 * self._bit_q)
        # Two users stand for one reporter (the other reported a step), XA/j cells for one drawn.
        weight = 2.0 * XA / j
        np.add.at(self._loss_sums, cells, weight * values)
        self._loss_variance += n * report_variance(XA, j, self._bit_q)

    def _estimates(self) -> Floats:
        """Unbiased sums over all users per item."""
        spec = self.spec
        steps = spec.layers.horizon if self._bandit else max(spec.layers.horizon - 1, 1)
        factor = steps * (2.0 if self._split else 1.0) / (0.5 - self._q)
        self._count_deviation = factor * math.sqrt(max(self._steppers, 0) * self._q * (1.0 - self._q))
        return np.asarray(factor * (self._ons - self._steppers * self._q), dtype=np.float64)

    def _counts(self) -> tuple[None, Floats]:
        estimates = self._estimates()
        pairs = estimates.reshape(-1, 2).sum(axis=1) if self._bandit else estimates
        if self._bandit:
            self._count_deviation *= math.sqrt(2.0)
        return None, pairs[: self.spec.sizes["transitions"]]

    def _sums_of_losses(self) -> Floats:
        if self._bandit:
            return self._along(self._estimates().reshape(-1, 2)[:, 1])
        if self._public:
            return np.asarray(self._public_sums * self.spec.grid, dtype=np.float64)
        return self._loss_sums.copy()

    def _along(self, ones: Floats) -> Floats:
        """Losses per cell from items with bit 1: summed over successors."""
        spec = self.spec
        table = np.zeros((*spec.cell_index.shape,))
        if spec.layers.horizon > 1:
            table[:] = spec.unpacked("transitions", ones[: spec.sizes["transitions"]]).sum(axis=-1)
        last = np.asarray(ones[spec.sizes["transitions"] :])
        table[-1][spec.cell_index[-1] >= 0] = last
        return np.asarray(table[spec.cell_index >= 0])

    def _errors(self) -> LossErrors:
        deviation = 0.0 if self._public else math.sqrt(self._loss_variance)
        if self._bandit:
            successors = max((len(layer) for layer in self.spec.layers.states[1:]), default=1)
            deviation = self._count_deviation * math.sqrt(successors / 2.0)
        return LossErrors(self._count_deviation, loss_deviation=deviation)


class LocalCounterLossStream(LocalStream):
    """Noise on every counter of every user: with Laplace noise the printed local form, at its true scale."""

    def __init__(self, privatizer: LocalLosses, spec: LossSpec, noise: NoiseSource) -> None:
        super().__init__(privatizer, spec, noise)
        self._families = privatizer.families(spec)
        entries = [family.entry for family in self._families.values()]
        common, printed = (privatizer.budget, spec.num_episodes, noise), privatizer.calibration == "paper"
        self.guarantee = stated(entries, "local", "replace", *common, *self._told, printed=printed)
        self._reports = CounterSums(list(self._families.values()), spec.tables, spec.layers.horizon * spec.units)
        self.encoder = self._reports.encoder
        self._visits = np.zeros(spec.sizes["visits"]) if privatizer.laplace else None
        # Independent of everything and of no use to privacy: a seeded source, which may draw sums of noises.
        fresh = noise.spawn() if noise.simulation else NoiseSource.seeded(np.random.SeedSequence())
        self._padding = fresh if privatizer.padded(spec) else None
        K, beta, losses = spec.num_episodes, privatizer.beta / 3, self._families["losses"]
        counts = max(
            summed_width(family, K, beta)
            for name, family in self._families.items()
            if family.entry is not None and name != "losses"
        )
        # Bandit: one loss report enters one estimate, so that its own tail counts.
        one = 0.0 if losses.entry is None else spec.grid * union_width(losses, [1], [float(K)], beta)
        self._widths = counts, one

    def encoder_for(self, user: str) -> LaplaceEncoder | GaussianEncoder:
        """What this user is asked for: what everyone is."""
        return self.encoder

    def _add_report(self, report: Report) -> None:
        self._reports.add_report(report)

    def _add(self, episodes: Episodes, losses: Floats) -> None:
        contribution = self.spec.contribution(episodes, losses)
        if self._public:
            self._public_sums += contribution["losses"]
        self._reports.add(np.concatenate([contribution[name] for name in TABLES]), len(episodes), self._noise)

    def _counts(self) -> tuple[Floats | None, Floats]:
        visits, transitions, _ = self._reports.tables()
        return None if self._visits is None else visits, transitions

    def _sums_of_losses(self) -> Floats:
        sums = self._reports.tables()[2] + self._public_sums
        if self._padding is not None:
            family, missing = self._families["losses"], self.spec.num_episodes - self._crowd.size
            sums = sums + sum_of_noises(family.scale, missing, family.size, self._padding, family.mechanism)
        return np.asarray(sums * self.spec.grid)

    def _errors(self) -> LossErrors:
        root, families, (counts, losses) = math.sqrt(self._crowd.size), self._families, self._widths
        noises = self.spec.num_episodes if self._padding is not None else self._crowd.size
        deviation = math.sqrt(noises) * families["losses"].deviation * self.spec.grid
        return LossErrors(root * families["transitions"].deviation, counts, deviation, losses)
