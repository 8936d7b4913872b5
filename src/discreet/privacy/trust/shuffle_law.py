"""What all shuffled streams share: how many noise bits a batch takes, and who may enter it. Proof: shuffle.md."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from discreet.device.bits import HALF, BitEncoder, Changes, Messages, Statistic, honest_users
from discreet.device.encoders import Form
from discreet.mdp import Ints
from discreet.people.counts import CountSpec
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget, LedgerEntry
from discreet.privacy.crowd import Keeper
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffler import Tally, noise_sums, tally

MECHANISM = "shuffled-bits"
TRUSTED = "a shuffler permutes the single messages of every complete batch and reveals nothing else"


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

        Printed: ⌈τ/n⌉ fair bits each for n ≤ τ, else one bit with p = τ/(2n), whoever can be relied on.
        """
        if users < 2:
            raise ValueError(f"a batch of {users} cannot be shuffled; at least 2 users are needed")
        if not math.isfinite(self.epsilon):
            return Bits(0, 0)
        reliable = honest_users(users, self.honest)
        most = self.most_noise_bits
        fair = self.printed or binomial.fewest_fair_bits(*self.changes, self.epsilon, self.delta)
        if reliable < 1 or (most is not None and reliable * most < fair):
            needed = math.ceil(math.ceil(fair / most) / self.honest) if most else math.ceil(1.0 / self.honest)
            allowed = "" if most is None else f" with at most {most} noise bit{'s' if most > 1 else ''} each"
            raise ValueError(
                f"{users} users{allowed} cannot hide one of them at epsilon = {self.epsilon:g}, delta = "
                f"{self.delta:g}: a batch needs at least {needed} users"
            )
        if self.printed is not None:
            if users <= self.printed:
                return Bits(math.ceil(self.printed / users), HALF)
            return Bits(1, math.ceil(self.printed / (2.0 * users) * 2.0**64))
        each = math.ceil(fair / reliable)
        p = binomial.least_probability(each * reliable, *self.changes, self.epsilon, self.delta)
        return Bits(each, min(HALF, math.ceil(p * 2.0**64)))

    def encoder(self, statistic: Statistic, users: int) -> BitEncoder:
        """What so many users are sent."""
        bits = self.bits(users)
        return BitEncoder(statistic, users, bits.each, bits.flips, max(1, honest_users(users, self.honest)))

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
    """The true ε of a printed calibration at its δ: the largest over batches of 2 to `most_users`.

    Up to τ users ⌈τ/n⌉·⌊honest·n⌋ fair bits can be relied on; more are post-processing of fewer: the fewest count.
    Above τ, sizes of a geometric grid stand for all (every batch is checked before it is announced).
    """
    assert law.printed is not None
    tau = law.printed
    fewest = max(2, math.floor(1.0 / law.honest))
    while honest_users(fewest, law.honest) < 1:
        fewest += 1
    most = max(fewest, most_users)
    sizes = {most, *(tau * 2**i for i in range(1, 40)), tau + 1}
    users = fewest
    weakest: tuple[float, int] = math.inf, fewest
    while users <= min(most, tau):
        each = -(-tau // users)
        weakest = min(weakest, (each * honest_users(users, law.honest), users))
        users = -(-tau // (each - 1)) if each > 1 else tau + 1  # the next size at which each sends one bit less
    sizes.add(weakest[1])
    return max(honest_epsilon(law, size, law.honest) for size in sorted(sizes) if fewest <= size <= most)


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


def told(honest: float, *others: str) -> tuple[str, ...]:
    """What guarantees of shuffled bits rest on, in words."""
    reliable = (
        "all users of a batch add their noise"
        if honest == 1.0
        else (f"at least a fraction {honest:g} of the users of every batch add their noise and keep it to themselves")
    )
    return TRUSTED, reliable, "batch sizes depend on public numbers and releases only", *others


class Collected:
    """A privatizer whose people send their noise along, through a shuffler: what arrives is what is published."""

    def seal(self, spec: CountSpec, form: Form, tally: Ints, users: int, silent: int, noise: NoiseSource) -> Ints:
        """Whoever sent nothing has had the shuffler send for her, before anybody could count."""
        return tally


# Streams ------------------------------------------------------------------------------------------------------------


class ShuffledStream(Keeper, ABC):
    """The open batch: nobody is counted twice or for free, and nobody's bits are copied."""

    _noise: NoiseSource
    _users: int  # of the open batch

    @abstractmethod
    def _own(self, encoder: BitEncoder) -> BitEncoder:
        """What this stream publishes for a batch of that size."""

    @abstractmethod
    def _arrive(self, encoder: BitEncoder, batch: Tally) -> None:
        """Make a complete batch the newest release."""

    def _shuffled(self, encoder: BitEncoder, own: Ints) -> Tally:
        """The open batch, whose users' own bits add up to this, as it comes out of the shuffler."""
        return Tally(own + noise_sums(encoder, self._users, self._noise), self._users)

    def _published(self, law: BitLaw, statistic: Statistic, users: int) -> BitEncoder:
        """The encoder of a batch, refused unless its own (ε, δ) is no more than what the stream has stated.

        Every release goes through here before anybody is asked to report.
        """
        encoder, stated = law.encoder(statistic, users), self.guarantee
        if math.isfinite(law.epsilon) and encoder.delta(stated.epsilon, stated.neighbours) > law.delta:
            raise ValueError(
                f"{users} users have epsilon = {encoder.epsilon(law.delta, stated.neighbours):.6g}, more than the "
                f"{stated.epsilon:.6g} stated; nothing is released"
            )
        return encoder

    def collect(self, encoder: BitEncoder, messages: Messages) -> None:
        """A whole batch that real users sent through a real shuffler.

        It has been seen, so its users are spent whatever follows: a batch that is refused is not asked for again.
        """
        self._crowd.spend(encoder.users)
        if self._users:
            raise ValueError("users of an open batch are waiting; they cannot be mixed with a shuffled batch")
        if encoder != self._own(encoder):
            raise ValueError("the batch was encoded with other public numbers than this stream's; nothing was added")
        batch = tally(encoder, messages)
        self._crowd.let_in(batch.users, encoder.users)
        self._arrive(encoder, batch)
