"""Continual release by a square-root factorisation of the prefix-sum matrix. Proof: toeplitz.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from discreet.mdp import Floats, Ints, frozen
from discreet.people.counts import LARGEST_SUM, CountSpec
from discreet.privacy.envelope import LARGEST_SCALE
from discreet.privacy.families import Blocks, Family, reward_rounding
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import CountPrivatizer, CountStream
from discreet.privacy.sums.sums import Sums

#: Finest and coarsest grid of the coefficients, as powers of two.
MOST_BITS, FEWEST_BITS = 20, 8
#: Largest num_blocks × counters: one GiB of measured and one GiB of raw blocks.
LARGEST_HISTORY = 2**27
#: Decoded sums are rounded to multiples of this.
DECODED = 2.0**-8


@dataclass(frozen=True)
class Toeplitz(CountPrivatizer):
    """Noisy measurements y_t = Σ_{j≤t} ĉ_{t−j}·x_j + N_ℤ(0, σ²) of the blocks x_j, decoded into prefix sums.

    ĉ_k = round(2^g·C(2k,k)/4^k): the lower-triangular square root of the prefix-sum matrix with coefficients on a
    public grid, so that measurements are integers and nothing has to be charged for rounding them. The users between
    two releases form a block; `num_blocks` of them are declared. σ² = (Δ₂·‖ĉ‖₂)²/(2ρ_f).

    Guarantee: joint DP with the stated budget per user, toeplitz.md.   Width: sub-Gaussian tail, all releases.
    Source: Fichtenberger, Henzinger & Upadhyay 2023; Henzinger, Upadhyay & Upadhyay 2023.
    Differs: integer coefficients and noise.   Cost: memory and work per release grow with the number of blocks.
    """

    num_blocks: int = field(kw_only=True)

    def __post_init__(self) -> None:
        pure = self.budget.kind == "pure" and math.isfinite(self.budget.total("laplace"))
        if pure or self.mechanism == "laplace":
            raise ValueError("Toeplitz adds Gaussian noise, which gives no pure epsilon; state a delta or rho")
        if int(self.num_blocks) != self.num_blocks or self.num_blocks < 1:
            raise ValueError(f"num_blocks is {self.num_blocks!r}; declare a whole number of at least 1")
        object.__setattr__(self, "mechanism", "gaussian")
        super().__post_init__()

    def families(self, spec: CountSpec, num_episodes: int) -> tuple[Family, ...]:
        """The noise of every measurement, per table, in units of its own grid of coefficients."""
        gains = {name: self.code(bits).norm for name, bits in self.grids(spec, num_episodes).items()}
        return self._calibrated(spec, gain=gains)

    def grids(self, spec: CountSpec, num_episodes: int) -> dict[str, int]:
        """Bits of the coefficients per table: as many as 64-bit sums and the sampler have room for."""
        norm = square_root(self.num_blocks, MOST_BITS).norm / 2**MOST_BITS
        grids = {}
        for family in self._calibrated(spec):
            largest = num_episodes * spec.horizon * (spec.reward_units if family.name == "rewards" else 1)
            grids[family.name] = bits_for(largest, family.scale * norm)
            if grids[family.name] < FEWEST_BITS:
                raise ValueError(
                    f"the measurements of {family.name} would not fit in 64 bits; use a coarser reward grid"
                )
        return grids

    def code(self, bits: int) -> Code:
        return square_root(int(self.num_blocks), bits)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> ToeplitzStream:
        return ToeplitzStream(self, spec, num_episodes, noise)


def bits_for(largest: int, scale: float) -> int:
    """Bits of the coefficients of sums up to `largest` with noise of this scale: as many as 64 bits have room for."""
    room = math.log2(LARGEST_SUM / largest)
    if scale > 0.0:
        room = min(room, math.log2(LARGEST_SCALE / scale))
    return min(MOST_BITS, math.floor(room - 0.01))


@dataclass(frozen=True, eq=False)
class Code:
    """First columns of the encoder Ĉ (integers) and of the decoder D = A·Ĉ⁻¹, A the prefix-sum matrix."""

    encoder: Ints  # (B,)
    decoder: Floats  # (B,)

    @property
    def norm(self) -> float:
        """Largest column norm of Ĉ, that of the first column."""
        return math.sqrt(sum(int(c) ** 2 for c in self.encoder.tolist()))

    def row_norm(self, block: int) -> float:
        """Norm of the row of D that makes up the prefix of so many blocks."""
        return float(np.linalg.norm(self.decoder[:block]))


@lru_cache(maxsize=32)
def square_root(num_blocks: int, bits: int) -> Code:
    """c_k = c_{k−1}·(2k−1)/(2k) on a grid of 2^−bits; d from Σ_{k≤t} ĉ_k·d_{t−k} = 1 for every t."""
    k = np.arange(1, num_blocks, dtype=np.float64)
    c = np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))])
    encoder = np.rint(c * 2.0**bits)
    decoder = np.zeros(num_blocks)
    for t in range(num_blocks):
        decoder[t] = (1.0 - encoder[1 : t + 1] @ decoder[:t][::-1]) / encoder[0]
    return Code(frozen(encoder, np.int64), frozen(decoder))


class ToeplitzSums(Sums):
    """Raw blocks (secret), measurements (public) and the present estimate, of tables that each have a code."""

    state = (*Sums.state, "_raw", "measured")

    def __init__(self, noise: Blocks, codes: Sequence[Code], sizes: Sequence[int]) -> None:
        super().__init__(noise)
        self.codes, self.limit = codes, len(codes[0].encoder)
        self._raw = [np.zeros((self.limit, size), dtype=np.int64) for size in sizes]
        self.measured = [np.zeros((self.limit, size)) for size in sizes]

    def close(self, raw: Ints, blocks: int = 1) -> None:
        t = self.blocks
        if not blocks:
            return
        if t == self.limit:
            raise ValueError(f"all {t} declared blocks have been released; open the stream with a larger num_blocks")
        noise, start, found = self.noise.draw(), 0, []
        for code, kept, measured in zip(self.codes, self._raw, self.measured, strict=True):
            part = slice(start, start + kept.shape[1])
            kept[t] = raw[part]
            measured[t] = code.encoder[t::-1] @ kept[: t + 1] + noise[part]
            found.append(code.decoder[t::-1] @ measured[: t + 1])
            start = part.stop
        self.value, self.blocks = np.concatenate(found), t + 1

    @property
    def spread(self) -> float:
        return self.codes[0].row_norm(self.blocks)

    def spreads(self, tables: int) -> list[float]:
        return [code.row_norm(self.blocks) for code in self.codes]


class ToeplitzStream(CountStream):
    _mechanism: ToeplitzSums

    def __init__(self, toeplitz: Toeplitz, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        counters = sum(spec.sizes)
        if toeplitz.num_blocks * counters > LARGEST_HISTORY:
            raise ValueError(
                f"{toeplitz.num_blocks} blocks of {counters} counters exceed the {LARGEST_HISTORY} values this "
                "stream may remember; declare fewer blocks, pool the stages, or use Tree"
            )
        families = toeplitz.families(spec, num_episodes)
        codes = [toeplitz.code(bits) for bits in toeplitz.grids(spec, num_episodes).values()]
        mechanism = ToeplitzSums(Blocks(families, noise), codes, [family.size for family in families])
        told = f"at most {toeplitz.num_blocks} releases, declared in advance"
        super().__init__(toeplitz, spec, num_episodes, noise, families, mechanism, told)

    def _noisy(self) -> Floats:
        rounded: Floats = np.rint(self._mechanism.value / DECODED) * DECODED  # sums are whole: drops rounding errors
        return rounded

    def _width(self, family: Family, beta: float) -> float:
        """σ·‖row of D‖·√(2·ln(2mB/β_f)): a discrete Gaussian is sub-Gaussian with its own σ [CKS20]."""
        spread = self._mechanism.spreads(3)[self._families.index(family)]
        tail = math.sqrt(2.0 * math.log(2.0 * family.size * self._mechanism.limit / beta))
        units = self._sums.spec.reward_units if family.name == "rewards" else 1
        decoding = 0.5 * DECODED + 1e-12 * reward_rounding(self._sums.spec, self._crowd.size) * units
        return family.scale * spread * tail + decoding
