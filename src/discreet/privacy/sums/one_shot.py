"""All users at once, one release: offline learning from a fixed set of episodes. Proof: one_shot.md."""

from __future__ import annotations

from dataclasses import dataclass

from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.families import Blocks, Family, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import CountPrivatizer, CountStream
from discreet.privacy.sums.sums import BlockSums


@dataclass(frozen=True)
class OneShot(CountPrivatizer):
    """One noise per counter on the sums over all users, then nothing more.

    Laplace noise of scale Δ₁/ε_f, or Gaussian noise of variance Δ₂²/(2ρ_f). Known rewards: `shares=(1, 1, 0)` spends
    nothing on them and releases none, which gives the 4H/ε and 2H/ρ of [QW22].

    Guarantee: central DP with the stated budget per user, one_shot.md.   Width: exact tail of one noise.
    Source: [QW22] Eq. 2.   Differs: integer noise; rewards may be noised too.   Cost: one draw per counter.
    """

    def families(self, spec: CountSpec) -> tuple[Family, ...]:
        """The noise of the release, per table."""
        return self._calibrated(spec)

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> OneShotStream:
        return OneShotStream(self, spec, num_episodes, noise)


class OneShotStream(CountStream):
    """Closes with its release: the raw sums are forgotten, and no user can be added."""

    def __init__(self, one_shot: OneShot, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> None:
        families = one_shot.families(spec)
        mechanism = BlockSums(Blocks(families, noise))
        super().__init__(one_shot, spec, num_episodes, noise, families, mechanism, model="central")

    def add(self, contribution: Episodes | Counts) -> None:
        if self._covered:
            raise ValueError(
                "the one release has been made, so that no more users can be added; use Epochs for several"
            )
        super().add(contribution)

    def _advance(self) -> None:
        if not self._crowd.size:
            raise ValueError("no episode has been added; add all users before the one release")
        super()._advance()

    def _width(self, family: Family, beta: float) -> float:
        return union_width(family, [1], [1.0], beta)
