"""The common half of every stream of counts: the vault, the memory of the last release, encrypted checkpoints."""

from __future__ import annotations

import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from discreet.kernels.models import scaled_tables
from discreet.mdp import Floats, Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Mechanism, Neighbours, Trust, guarantee_of
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.families import (
    Family,
    Shares,
    calibrated,
    check_common,
    chosen_mechanism,
    reward_rounding,
    share_weights,
)
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.raw import RawSums
from discreet.privacy.sums.sums import Sums
from discreet.releases.counts import PerTable, PrivateCounts

NONCE_BYTES = 12
#: Checkpoints of another form are refused.
CHECKPOINTS = "form 2:"
PRINTED = "scale as printed in the papers"
SIMULATION = "the noise is seeded: a simulation, which protects nobody"


def assumptions(num_episodes: int, noise: NoiseSource, *others: str) -> tuple[str, ...]:
    """What the guarantee of a stream rests on, in words."""
    declared = f"at most {num_episodes} episodes, declared in advance"
    return (declared, *others, *((SIMULATION,) if noise.simulation else ()))


def stated(
    entries: Iterable[LedgerEntry | None],
    model: Trust,
    neighbours: Neighbours,
    budget: Budget | None,
    num_episodes: int,
    noise: NoiseSource,
    *told: str,
    episodes_per_user: int = 1,
    printed: bool = False,
) -> Guarantee:
    """What a stream of at most so many episodes guarantees, whatever it will be asked for.

    `printed`: its noise has a printed scale, and the budget is what is claimed for it.
    """
    words, true = assumptions(num_episodes, noise, *told), None if printed else budget
    paid = [entry for entry in entries if entry is not None]
    found = guarantee_of(paid, model, neighbours, true, episodes_per_user=episodes_per_user, assumptions=words)
    return as_printed(found, budget) if printed and budget is not None else found


def as_printed(true: Guarantee, claimed: Budget) -> Guarantee:
    """The true guarantee of noise with a printed scale, with what is claimed for it."""
    told = (*true.assumptions, PRINTED)
    return replace(true, assumptions=told, claimed_epsilon=claimed.epsilon, claimed_rho=claimed.rho)


@dataclass(frozen=True)
class CountPrivatizer:
    """What a curator of counts is told: a budget, its division over the tables, and how often widths may fail."""

    budget: Budget
    neighbours: Neighbours = "replace"
    mechanism: Mechanism | None = None
    shares: Shares = None
    beta: float = 0.01
    episodes_per_user: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        check_common(self.neighbours, self.beta, self.episodes_per_user)
        object.__setattr__(self, "mechanism", chosen_mechanism(self.budget, self.mechanism))
        object.__setattr__(self, "shares", share_weights(self.shares))

    def _calibrated(self, spec: CountSpec, **more: Any) -> tuple[Family, ...]:
        """The noise of one noisy value, per table (`calibrated`)."""
        assert self.mechanism is not None
        each = self.episodes_per_user
        return calibrated(
            self.budget, self.mechanism, self.neighbours, spec, self.shares, episodes_per_user=each, **more
        )


class CountStream(Keeper, ABC):
    """Takes in users, gives out noisy sums. Raw sums stay in `_sums`; nothing made here refers to them.

    A subclass brings the mechanism that closes blocks of users (`Sums`) and says how wide its noise is. A block is
    closed once, by the first release after its users, so that two releases without an `add` are the same object.
    """

    #: Names of the attributes that make up the mutable state beside the raw sums and the mechanism.
    _state: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        privatizer: CountPrivatizer,
        spec: CountSpec,
        num_episodes: int,
        noise: NoiseSource,
        families: Sequence[Family],
        mechanism: Sums,
        *told: str,
        model: Trust = "joint",
        printed: bool = False,
    ) -> None:
        self._crowd = Crowd(num_episodes)
        self._sums = RawSums(spec, self._crowd)
        self._families = tuple(families)
        self._units = np.array([0.0 if family.entry is None else family.unit for family in families])
        ends = np.cumsum([family.size for family in families]).tolist()
        # Where tables without a share of the budget lie: nothing of them is kept.
        self._unpaid = [slice(end - f.size, end) for f, end in zip(families, ends, strict=True) if f.entry is None]
        self._mechanism = mechanism
        self._beta = privatizer.beta
        self._configuration = f"{CHECKPOINTS} {privatizer!r} {spec!r} {int(num_episodes)}".encode()
        self._drawn = False  # whether the noise of the present sums has been drawn
        self._covered = 0  # users in closed blocks
        self._last: PrivateCounts | None = None
        entries, each = [family.entry for family in families], privatizer.episodes_per_user
        common = privatizer.neighbours, privatizer.budget, num_episodes, noise
        self.guarantee = stated(entries, model, *common, *told, episodes_per_user=each, printed=printed)

    def _advance(self) -> None:
        """Close the block of users since the last release, or refuse it before anything is drawn."""
        self._mechanism.close(self._sums.flat, self._crowd.size - self._covered)
        self._covered = self._crowd.size
        if self._mechanism.forgets:
            self._sums.clear()

    def _noisy(self) -> Ints | Floats:
        """All noisy sums, flat, in integer units."""
        return self._mechanism.value

    @abstractmethod
    def _width(self, family: Family, beta: float) -> Any:
        """Of one table, all releases together, in integer units; a number or one per counter."""

    def _bounds(self, users: int) -> PerTable:
        """Widths of all tables together after so many users."""
        return divided(self._families, self._beta, reward_rounding(self._sums.spec, users), self._width)

    def _widths(self) -> PerTable:
        return self._bounds(self._crowd.size)

    def _deviations(self) -> PerTable:
        spreads = zip(self._mechanism.spreads(len(self._families)), self._families, strict=True)
        return natural(self._families, [spread * family.deviation for spread, family in spreads])

    def add(self, contribution: Episodes | Counts) -> None:
        if self._sums.add(contribution):
            self._drawn, self._last = False, None
        for part in self._unpaid:
            self._sums.flat[part] = 0

    def release(self) -> PrivateCounts:
        if not self._drawn:
            self._advance()
            self._drawn = True
        if self._last is None:
            self._last = self._build()
        return self._last

    def restated(self, beta: float) -> PrivateCounts:
        """The release with widths that fail with another probability: the same numbers, public facts of the noise."""
        found = self.release()
        if beta == self._beta:
            return found
        rounding = reward_rounding(self._sums.spec, self._crowd.size)
        return replace(found, widths=divided(self._families, beta, rounding, self._width), beta=beta)

    def _build(self) -> PrivateCounts:
        visits, transitions, rewards = tables = tuple(np.empty(family.shape) for family in self._families)
        scaled_tables(self._noisy(), self._units, *tables)
        for table in tables:
            table.setflags(write=False)
        noise = self._widths(), self._deviations(), self._beta
        return released(self._sums.spec, self._crowd.size, (visits, transitions, rewards), *noise)

    def checkpoint(self, key: bytes) -> bytes:
        """The whole state, raw sums included, encrypted with AES-GCM under `key` (16, 24 or 32 bytes)."""
        state = {name: getattr(self, name) for name in (*self._state, "_drawn", "_covered")}
        sums = (self._sums.flat, self._crowd.size, self._sums.clipped)
        self._mechanism.noise.forget()  # whoever goes on from here draws noise of her own
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(key).encrypt(
            nonce, pickle.dumps((sums, state, self._mechanism.saved())), self._configuration
        )

    def restore(self, blob: bytes, key: bytes) -> None:
        """Continue from a checkpoint of a stream opened with the same settings; this stream must be fresh.

        Restore once: two streams grown from one checkpoint draw different noise for the same users and cost twice.
        """
        if self._crowd.size or self._drawn:
            raise ValueError("this stream has been used; restore into a freshly opened one")
        try:
            plain = AESGCM(key).decrypt(blob[:NONCE_BYTES], blob[NONCE_BYTES:], self._configuration)
        except InvalidTag:
            raise ValueError("the checkpoint was made with another key or other settings, or was altered") from None
        sums, state, mechanism = pickle.loads(plain)  # authenticated: made by `checkpoint` under this key
        self._sums.flat[...], self._crowd.size, self._sums.clipped = sums
        for name, value in state.items():
            setattr(self, name, value)
        self._mechanism.restore(mechanism)


def released(
    spec: CountSpec,
    num_episodes: int,
    tables: tuple[Floats, Floats, Floats],
    widths: PerTable,
    deviations: PerTable,
    beta: float,
) -> PrivateCounts:
    """What leaves a stream of counts: tables and their errors, in natural units."""
    return PrivateCounts(
        *tables,
        horizon=spec.horizon,
        num_episodes=num_episodes,
        widths=widths,
        deviations=deviations,
        beta=beta,
        reward_range=spec.reward_range,
    )


def divided(
    families: Sequence[Family], beta: float, rounding: float, width: Callable[[Family, float], Any]
) -> PerTable:
    """Widths of all tables together, in natural units: β is divided over those that are released."""
    released = [family for family in families if family.entry is not None]
    widths = {family.name: width(family, beta / len(released)) for family in released}
    if "rewards" in widths:
        widths["rewards"] = widths["rewards"] + rounding
    return natural(families, [widths.get(family.name, 0.0) for family in families])


def natural(families: Sequence[Family], values: Sequence[Any]) -> PerTable:
    """One number or array per table, from integer units to natural ones; infinite where a table is not released."""
    return PerTable(
        *(
            np.inf if family.entry is None else value * family.unit
            for family, value in zip(families, values, strict=True)
        )
    )
