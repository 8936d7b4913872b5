"""Privatizers of adversarial problems: counts of transitions and sums of losses, with a mechanism for each.

A stream takes users with their loss tables, is told when a block of counts or of losses ends (a public decision), and
gives out `PrivateLosses`. Proofs: losses.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Budget, Mechanism, Neighbours, no_privacy, tree_levels
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.families import Blocks, Family, check_common, check_printed, chosen_mechanism, paid, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import stated
from discreet.privacy.sums.sums import BlockSums, ExactSums, Sums
from discreet.privacy.sums.toeplitz import MOST_BITS, Code, ToeplitzSums, bits_for, square_root
from discreet.privacy.sums.tree import Layout, TreeSums, prefix_width
from discreet.releases.counts import PrivateLosses

SumsKind = Literal["blocks", "tree", "constant-tree", "toeplitz"]

PUBLIC_LAYERS = "which states can occur at each step, and where episodes start, is public"
PUBLIC_LOSSES = "the loss tables are public: only trajectories are people's data"
PUBLIC_ENDS = "when a block ends depends on public numbers and releases only"


class TableSums:
    """Raw integer sums of one table and the mechanism that closes its blocks."""

    def __init__(self, family: Family, sums: Sums) -> None:
        self.family, self._sums = family, sums
        self._raw: Ints = np.zeros(family.size, dtype=np.int64)

    def add(self, vector: Ints) -> None:
        self._raw += vector

    def close(self) -> None:
        """End the block: noise is drawn here, once."""
        self._sums.close(self._raw)
        if self._sums.forgets:
            self._raw[:] = 0

    @property
    def value(self) -> Floats:
        """The noisy sum of all closed blocks, in integer units."""
        return self._sums.value.astype(np.float64)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in `value`, in integer units."""
        return self.family.deviation * float(self._sums.spread)


# Streams ------------------------------------------------------------------------------------------------------------


class LossErrors(NamedTuple):
    """Of the transitions, and of the losses of a block: `PrivateLosses`."""

    count_deviation: float = 0.0
    count_width: float = math.inf
    loss_deviation: float = 0.0
    loss_width: float = math.inf


class LossStream(Keeper, ABC):
    """Takes in users, gives out noisy sums; raw sums never leave.

    A subclass says what it keeps of users, and what the sums over everyone are when a block of either kind ends.
    """

    def __init__(self, spec: LossSpec) -> None:
        self.spec = spec
        self._crowd = Crowd(spec.num_episodes)
        self._counted, self._block, self._last_block, self._num_blocks = 0, 0, 0, 0
        self._visits: Floats | None = None
        self._transitions = np.zeros(spec.sizes["transitions"])
        self._losses, self._latest = np.zeros(spec.sizes["losses"]), np.zeros(spec.sizes["losses"])
        self._release: PrivateLosses | None = None

    def _enter(self, users: int) -> None:
        self._crowd.size += users
        self._block += users

    def add(self, episodes: Episodes, losses: Floats) -> None:
        """Users who have not been seen before, with the loss table of each; more than declared are refused.

        A record that cannot be read contributes nothing (`LossSpec.contribution`).
        """
        n = len(episodes)
        self.spec.check(episodes, losses)
        self._crowd.check(n)
        self._add(episodes, losses)
        self._enter(n)

    def close_counts(self) -> None:
        """The next release shows the transitions of everyone so far."""
        if self._counted == self._crowd.size:
            return
        self._visits, self._transitions = self._counts()
        self._counted, self._release = self._crowd.size, None

    def close_losses(self) -> None:
        """The next release shows the losses of everyone so far."""
        if not self._block:
            return
        losses = self._sums_of_losses()
        self._latest, self._losses = losses - self._losses, losses
        self._last_block, self._block = self._block, 0
        self._num_blocks += 1
        self._release = None

    def release(self) -> PrivateLosses:
        """The noisy sums of all closed blocks; the same object until another block is closed."""
        if self._release is None:
            shown = self.spec.unpacked
            self._release = PrivateLosses(
                None if self._visits is None else shown("visits", self._visits),
                shown("transitions", self._transitions),
                shown("losses", self._losses),
                shown("losses", self._latest),
                self._crowd.size - self._block,
                self._counted,
                self._last_block,
                self._num_blocks,
                *self._errors(),
            )
        return self._release

    @abstractmethod
    def _add(self, episodes: Episodes, losses: Floats) -> None: ...
    @abstractmethod
    def _counts(self) -> tuple[Floats | None, Floats]:
        """Close a block: visits, where they are released, and transitions."""

    @abstractmethod
    def _sums_of_losses(self) -> Floats:
        """Close a block: the losses of everyone."""

    @abstractmethod
    def _errors(self) -> LossErrors: ...


class LossPrivatizer(ABC):
    """Configuration only."""

    @abstractmethod
    def open(self, spec: LossSpec, noise: NoiseSource) -> LossStream: ...

    def noise_share(self, spec: LossSpec) -> float:
        """σ/K: deviation of the noise in the final cumulative loss of a cell over the number of users, known before
        anyone plays; 0 where losses carry none."""
        return 0.0


@dataclass(frozen=True)
class CentralLosses(LossPrivatizer):
    """A curator adds noise: to transitions (and visits, where `visits` is set), and to losses unless they are public.

    `counts` and `losses` name the mechanisms: "blocks" (one noise per block, pure or Gaussian), "tree" and
    "constant-tree" (a tree over at most `num_count_blocks`/`num_loss_blocks` blocks), "toeplitz" (Gaussian, losses
    only). `weights` divide the budget over (visits, transitions, losses). `calibration="paper"` uses the printed
    H·log₂K/ε_f (H/ε_f where there is no tree) for every table, and states what that truly guarantees.

    Guarantee: joint DP with the stated budget per user, losses.md.   Width: exact tails, all releases together.
    Source: [BZZDTCC24] §5.1.   Differs: 1. a whole loss table moves by XA, not H; counts by 2H under replace;
    2. integer L, integer noise, losses on a grid; 3. no visits and no last step unless asked for.
    Cost: one draw per counter and block (tree: amortised; constant tree: L draws).
    """

    budget: Budget
    neighbours: Neighbours = "replace"
    mechanism: Mechanism | None = None
    counts: SumsKind = "blocks"
    losses: SumsKind = "blocks"
    num_count_blocks: int = 1
    num_loss_blocks: int = 1
    public_losses: bool = False
    visits: bool = False
    weights: Mapping[str, float] = field(
        default_factory=lambda: {"visits": 1.0, "transitions": 1.0, "losses": 1.0}, hash=False
    )
    beta: float = 0.01
    calibration: Literal["true", "paper"] = "true"

    def __post_init__(self) -> None:
        check_common(self.neighbours, self.beta, 1)
        object.__setattr__(self, "mechanism", chosen_mechanism(self.budget, self.mechanism))
        check_printed(self.calibration, self.mechanism)
        if self.losses == "toeplitz" and self.mechanism != "gaussian":
            raise ValueError("the Toeplitz mechanism adds Gaussian noise, which gives no pure epsilon; state a delta")
        if self.counts == "toeplitz":
            raise ValueError("counts are released in blocks or by a tree")

    def uses(self, name: str) -> int:
        """Noisy values one user's contribution enters."""
        blocks = self.num_loss_blocks if name == "losses" else self.num_count_blocks
        return tree_levels(max(blocks, 1)) if self.sums_of(name) in ("tree", "constant-tree") else 1

    def sums_of(self, name: str) -> SumsKind:
        """How a table is released over time."""
        return self.losses if name == "losses" else self.counts

    def _printed(self, name: str, spec: LossSpec, budget: float) -> float | None:
        """The scale of [BZZDTCC24] §5, in integer units; None where the true one is asked for."""
        if self.calibration == "true":
            return None
        tree = self.sums_of(name) in ("tree", "constant-tree")
        levels = math.log2(max(spec.num_episodes, 2)) if tree else 1.0
        return spec.layers.horizon * levels / budget * (spec.units if name == "losses" else 1.0)

    def families(self, spec: LossSpec) -> dict[str, Family]:
        """The noise of every noisy value, per table; entry None where a table is not released at a cost."""
        if spec.feedback == "bandit" and self.public_losses:
            raise ValueError("bandit losses are seen along people's trajectories, so they cannot be public")
        wanted = {"transitions": self.weights["transitions"], "losses": self.weights["losses"]}
        if self.visits:
            wanted["visits"] = self.weights["visits"]
        if self.public_losses:
            del wanted["losses"]
        moved = spec.sensitivity(self.neighbours)
        if moved["transitions"].l1 == 0.0:
            del wanted["transitions"]
        assert self.mechanism is not None
        budgets = self.budget.split(wanted, self.mechanism) if wanted else {}
        families = {}
        for name, size in spec.sizes.items():
            entry = None
            if name in budgets:
                gain = self.code(spec).norm if name == "losses" and self.losses == "toeplitz" else 1.0
                printed = self._printed(name, spec, budgets[name])
                entry = paid(name, self.mechanism, moved[name], budgets[name], self.uses(name), gain, printed=printed)
            scale, unit = 0.0 if entry is None else entry.scale, spec.grid if name == "losses" else 1.0
            families[name] = Family(name, (size,), unit, self.mechanism, scale, entry)
        return families

    def code(self, spec: LossSpec) -> Code:
        """The Toeplitz code of losses, with as many bits as 64-bit sums and the sampler have room for."""
        norm = square_root(self.num_loss_blocks, MOST_BITS).norm / 2**MOST_BITS
        sigma = spec.sensitivity(self.neighbours)["losses"].l2 * norm / math.sqrt(2e-6)  # room for tiny budgets
        return square_root(self.num_loss_blocks, max(4, bits_for(spec.num_episodes * spec.units, sigma)))

    def noise_share(self, spec: LossSpec) -> float:
        family = self.families(spec)["losses"]
        sums = _sums(self, spec, family, NoiseSource.seeded(0))
        sums.blocks = self.num_loss_blocks
        return family.deviation * float(sums.spread) * spec.grid / spec.num_episodes

    def open(self, spec: LossSpec, noise: NoiseSource) -> CentralStream:
        return CentralStream(self, spec, noise)


class TableStream(LossStream):
    """Sums of tables, each closed by its own mechanism."""

    def __init__(self, spec: LossSpec, tables: Mapping[str, TableSums]) -> None:
        super().__init__(spec)
        self._tables, self._widths = tables, (0.0, 0.0)
        self._visits = tables["visits"].value if "visits" in tables else None

    def _add(self, episodes: Episodes, losses: Floats) -> None:
        contribution = self.spec.contribution(episodes, losses)
        for name, total in self._tables.items():
            total.add(contribution[name])

    def _counts(self) -> tuple[Floats | None, Floats]:
        for name, total in self._tables.items():
            if name != "losses":
                total.close()
        visits = self._tables.get("visits")
        return None if visits is None else visits.value, self._tables["transitions"].value

    def _sums_of_losses(self) -> Floats:
        self._tables["losses"].close()
        return self._tables["losses"].value * self.spec.grid

    def _errors(self) -> LossErrors:
        (counts, losses), transitions = self._widths, self._tables["transitions"].deviation
        return LossErrors(transitions, counts, self._tables["losses"].deviation * self.spec.grid, losses)


class CentralStream(TableStream):
    def __init__(self, privatizer: CentralLosses, spec: LossSpec, noise: NoiseSource) -> None:
        families = privatizer.families(spec)
        told = [PUBLIC_LAYERS, PUBLIC_ENDS, *([PUBLIC_LOSSES] if privatizer.public_losses else [])]
        entries, printed = [family.entry for family in families.values()], privatizer.calibration == "paper"
        common = privatizer.neighbours, privatizer.budget, spec.num_episodes, noise
        self.guarantee = stated(entries, "joint", *common, *told, printed=printed)
        tables = {
            name: TableSums(family, _sums(privatizer, spec, family, noise))
            for name, family in families.items()
            if name != "visits" or privatizer.visits
        }
        super().__init__(spec, tables)
        counts = max((_prefix_width(privatizer, families[name]) for name in tables if name != "losses"), default=0.0)
        losses, blocks = families["losses"], [float(privatizer.num_loss_blocks)]
        noisy = losses.entry is not None and losses.scale > 0.0
        self._widths = counts, spec.grid * union_width(losses, [1], blocks, privatizer.beta / 3) if noisy else 0.0


def _sums(privatizer: CentralLosses, spec: LossSpec, family: Family, noise: NoiseSource) -> Sums:
    drawn = Blocks([family], noise)
    public = family.name == "losses" and privatizer.public_losses
    if public or family.size == 0 or (family.entry is not None and family.entry.cost == math.inf):
        return ExactSums(drawn)
    if family.entry is None or family.scale == 0.0:
        raise ValueError(f"{family.name} have no share of the budget, so that no sum of them is kept")
    kind = privatizer.sums_of(family.name)
    if kind == "blocks":
        return BlockSums(drawn)
    if kind == "toeplitz":
        return ToeplitzSums(drawn, [privatizer.code(spec)], [family.size])
    levels = privatizer.uses(family.name)
    return TreeSums(drawn, Layout((1 << levels) - 1, levels, None, levels), kind == "constant-tree")


def _prefix_width(privatizer: CentralLosses, family: Family) -> float:
    """Width of all prefixes of a table of counts, in counts."""
    if family.entry is None or family.scale == 0.0:
        return 0.0
    B, beta = max(privatizer.num_count_blocks, 1), privatizer.beta / 3
    if privatizer.counts == "blocks":
        return union_width(family, [B], [1.0 if B == 1 else 2.0], beta)  # Lévy: all partial sums
    if privatizer.counts == "constant-tree":
        return union_width(family, [tree_levels(B)], [float(B)], beta)
    return prefix_width(family, Layout(B, tree_levels(B), None, tree_levels(B)), beta)


# Without privacy ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExactLosses(LossPrivatizer):
    """Releases the sums as they are. Guarantee: none."""

    def open(self, spec: LossSpec, noise: NoiseSource) -> ExactLossStream:
        return ExactLossStream(spec)


class ExactLossStream(TableStream):
    guarantee = no_privacy()

    def __init__(self, spec: LossSpec) -> None:
        families = [Family(name, (size,), 1.0, "laplace", 0.0, None) for name, size in spec.sizes.items()]
        noise = NoiseSource.seeded(0)  # of which nothing is drawn
        super().__init__(spec, {f.name: TableSums(f, ExactSums(Blocks([f], noise))) for f in families})
