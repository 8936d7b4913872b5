"""What all shuffled streams share: how many noise bits a batch takes, and who may enter it. Proof: shuffle.md."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from discreet.privacy import binomial
from discreet.privacy.accounting import Budget, LedgerEntry, Neighbours
from discreet.privacy.client import Tables
from discreet.privacy.noise import NoiseSource
from discreet.privacy.shuffler import HALF, BitEncoder, Messages, Tally, honest_users, tally
from discreet.privacy.streams import assumptions
from discreet.statistics import CountSpec

MECHANISM = "shuffled-bits"
TRUSTED = "a shuffler permutes the single messages of every batch and reveals nothing else"


class Changes(NamedTuple):
    """How many counters one user can lower and raise at once."""

    down: int
    up: int

    @classmethod
    def of(cls, most: int, neighbours: Neighbours) -> Changes:
        """A user of at most `most` ones against another such user, or against one without any."""
        return cls(most, most if neighbours == "replace" else 0)


class Bits(NamedTuple):
    """Noise of one user on one counter: so many bits, each 1 with probability flips/2⁶⁴."""

    each: int
    flips: int

    @property
    def probability(self) -> float:
        return self.flips / 2.0**64

    def variance(self, users: int) -> float:
        return users * self.each * self.probability * (1.0 - self.probability)


@dataclass(frozen=True)
class BitLaw:
    """Which noise a batch needs, as a function of its size. `printed` is τ per counter as in [BTZCC25] Alg. 4."""

    epsilon: float
    delta: float
    changes: Changes
    honest: float = 1.0
    most_noise_bits: int | None = None
    printed: int | None = None

    def bits(self, users: int) -> Bits:
        """n ≥ 2 users, of whom ⌊honest·n⌋ can be relied on: ⌈m₀/that⌉ bits each, with the least probability.

        Printed: ⌈τ/n⌉ fair bits each for n ≤ τ, else one bit with p = τ/(2n).
        """
        if users < 2:
            raise ValueError(f"a batch of {users} cannot be shuffled; at least 2 users are needed")
        if not math.isfinite(self.epsilon):
            return Bits(0, 0)
        if self.printed is not None:
            if users <= self.printed:
                return Bits(math.ceil(self.printed / users), HALF)
            return Bits(1, math.ceil(self.printed / (2.0 * users) * 2.0**64))
        reliable = honest_users(users, self.honest)
        fair = binomial.fewest_fair_bits(*self.changes, self.epsilon, self.delta)
        most = self.most_noise_bits
        if reliable < 1 or (most is not None and reliable * most < fair):
            needed = math.ceil(math.ceil(fair / most) / self.honest) if most else math.ceil(1.0 / self.honest)
            allowed = "" if most is None else f" with at most {most} noise bit{'s' if most > 1 else ''} each"
            raise ValueError(
                f"{users} users{allowed} cannot hide one of them at epsilon = {self.epsilon:g}, delta = "
                f"{self.delta:g}: a batch needs at least {needed} users"
            )
        each = math.ceil(fair / reliable)
        p = binomial.least_probability(each * reliable, *self.changes, self.epsilon, self.delta)
        return Bits(each, min(HALF, math.ceil(p * 2.0**64)))

    def spent(self, users: int, honest: float | None = None) -> float:
        """δ at ε of a batch of so many users, when only a fraction of them can be relied on."""
        bits = self.bits(users)
        if bits.each == 0:
            return 1.0
        reliable = honest_users(users, self.honest if honest is None else honest)
        if reliable < 1:
            return 1.0
        return binomial.delta_of(bits.each * reliable, bits.probability, *self.changes, self.epsilon)

    def variance(self, users: int) -> float:
        """Of the noise on one counter, all users together."""
        return self.bits(users).variance(users)


def honest_epsilon(law: BitLaw, users: int, honest: float) -> float:
    """What is left of ε, at the same δ, when only a fraction of a batch adds its noise; infinite when nothing is."""
    reliable = honest_users(users, honest)
    bits = law.bits(users)
    if reliable < 1 or bits.each == 0:
        return math.inf
    return binomial.epsilon_of(bits.each * reliable, bits.probability, *law.changes, law.delta)


def printed_guarantee(law: BitLaw, most_users: int) -> float:
    """The true ε of a printed calibration at its δ: the largest over some batches of 2 to `most_users`.

    Up to τ users there are at least τ fair bits, and more are post-processing of fewer; above, sizes of a geometric
    grid stand for all (each batch is checked again before it is released).
    """
    assert law.printed is not None
    most = max(2, most_users)
    sizes = {size for size in (2, min(most, law.printed), most) if size >= 2}
    sizes |= {min(most, law.printed * 2**i) for i in range(1, 40)}
    return max(honest_epsilon(law, users, law.honest) for users in sorted(sizes))


def check_shuffle(budget: Budget, honest: float, most_noise_bits: int | None) -> None:
    if budget.rho is not None or (budget.delta == 0.0 and math.isfinite(budget.epsilon or 0.0)):
        raise ValueError("shuffled bits are (epsilon, delta)-private: state an epsilon and a delta above 0")
    honest_users(1, honest)
    if most_noise_bits is not None and (int(most_noise_bits) != most_noise_bits or most_noise_bits < 1):
        raise ValueError(f"most_noise_bits is {most_noise_bits!r}; it must be a whole number of at least 1")


def entry_of(law: BitLaw, statistic: str, epsilon: float) -> LedgerEntry:
    """All counters of a batch together; the scale is the noise of the fewest fair bits (others differ by little)."""
    if not math.isfinite(law.epsilon):
        return LedgerEntry(statistic, MECHANISM, "l1", float(sum(law.changes)), 0.0, 1, math.inf)
    fair = law.printed or binomial.fewest_fair_bits(*law.changes, law.epsilon, law.delta)
    return LedgerEntry(
        statistic, MECHANISM, "l1", float(sum(law.changes)), math.sqrt(fair) / 2.0, 1, epsilon, law.delta
    )


def shared_assumptions(num_episodes: int, noise: NoiseSource, honest: float, *others: str) -> tuple[str, ...]:
    reliable = (
        "all users of a batch add their noise"
        if honest == 1.0
        else (f"at least a fraction {honest:g} of the users of every batch add their noise and keep it to themselves")
    )
    return assumptions(
        num_episodes, noise, TRUSTED, reliable, "batch sizes depend on public numbers and releases only", *others
    )


# Streams ------------------------------------------------------------------------------------------------------------


def tables_of(spec: CountSpec) -> Tables:
    """The description a device needs."""
    if spec.reward_range is None:
        raise ValueError(
            "reward_range is None, so that a reward cannot be turned into a bit; declare the range rewards are "
            "clipped to"
        )
    return Tables(spec.num_states, spec.num_actions, spec.horizon, spec.stages, spec.grid, spec.reward_range)


class ShuffledStream(ABC):
    """The open batch: nobody is counted twice or for free, and nobody's bits are copied."""

    def __init__(self, spec: CountSpec, num_episodes: int, noise: NoiseSource, honest: float) -> None:
        if isinstance(num_episodes, bool) or int(num_episodes) != num_episodes or num_episodes < 1:
            raise ValueError(f"num_episodes is {num_episodes!r}; declare a whole number of at least 1")
        self._spec, self._noise, self._limit, self._honest = spec, noise, int(num_episodes), honest
        self._tables = tables_of(spec)
        self._seen = self._users = 0

    @abstractmethod
    def _enter(self, encoder: BitEncoder, batch: Tally) -> None:
        """Make a complete batch the newest release."""

    def _admit(self, users: int) -> None:
        if self._seen + users > self._limit:
            raise ValueError(
                f"{users} more episodes would exceed the {self._limit} declared when the stream was opened "
                f"({self._seen} seen); nothing was added"
            )

    def _collect(self, encoder: BitEncoder, messages: Messages) -> None:
        """A whole batch that real users sent through a real shuffler; a bad one is refused and leaves no trace."""
        if self._users:
            raise ValueError("users of an open batch are waiting; they cannot be mixed with a shuffled batch")
        self._admit(encoder.users)
        batch = tally(encoder, messages, self._honest)
        self._seen += batch.users
        self._enter(encoder, batch)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream holds raw sums and cannot be pickled or copied")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._seen} of {self._limit} episodes)"


def check_encoder(encoder: BitEncoder, own: BitEncoder) -> None:
    if encoder != own:
        raise ValueError("the batch was encoded with other public numbers than this stream's; nothing was added")
