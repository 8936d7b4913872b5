"""Prio3Histogram (§7 of draft-irtf-cfrg-vdaf-20, VERSION 18): servers add up items, and none of them sees one.

A device splits the one-hot vector of its item into shares, one per server, with a proof (`flp`). Each server queries
its share alone and tells the others its verifier share; it counts its share where all verifier shares together prove
that it belongs to one item. Messages are bytes, as the draft encodes them. What must not be counted raises
`InvalidReport`.

Not constant-time: Python's integers, tables looked up at a secret place (`flp.OneHot.prove`), and compilers that may
branch (`kernels.field128`). Who can time a device or a server closely may learn about items, shares and keys.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from discreet.vdaf import field, xof
from discreet.vdaf.flp import InvalidReport, OneHot

if TYPE_CHECKING:
    from discreet.vdaf.compiled import Circuit

VERSION = 18
ALGORITHM = 4
NONCE_SIZE = 16
#: What randomness is for.
MEASUREMENT, PROOF, JOINT, PROVE, QUERY, JOINT_SEED, JOINT_PART = range(1, 8)
#: There is one proof per report, and the draft writes the number of them into binders.
_ONE_PROOF = bytes([1])


class VerifyState(NamedTuple):
    """What a server keeps of a report until the verifier message is there: its output share, the seed it expects."""

    out_share: bytes
    joint_seed: bytes


@dataclass(frozen=True)
class Prio3Histogram:
    """Histograms of `length` buckets by `shares` servers, of which number 0 is the leader.

    Servers compute with compiled code; `plain` servers and all devices with Python's integers, to the same bytes.
    """

    shares: int
    length: int
    chunk_length: int
    plain: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.shares < 256:
            raise ValueError(f"{self.shares} shares are asked for; expected 2 to 255")
        if self.length < 1 or self.chunk_length < 1:
            raise ValueError(
                f"{self.length} buckets in chunks of {self.chunk_length} are asked for; expected at least 1 of both"
            )

    @cached_property
    def circuit(self) -> OneHot:
        return OneHot(self.length, self.chunk_length)

    @cached_property
    def _compiled(self) -> Circuit:
        from discreet.vdaf.compiled import Circuit

        return Circuit.of(self.circuit.points, self.shares)

    # Sizes of messages, in bytes.

    @property
    def rand_size(self) -> int:
        return 2 * xof.SEED_SIZE * self.shares

    @property
    def public_share_size(self) -> int:
        return xof.SEED_SIZE * self.shares

    @property
    def leader_share_size(self) -> int:
        return field.SIZE * (self.length + self.circuit.proof_length) + xof.SEED_SIZE

    @property
    def helper_share_size(self) -> int:
        return 2 * xof.SEED_SIZE

    @property
    def agg_share_size(self) -> int:
        return field.SIZE * self.length

    # Devices.

    def shard(self, ctx: bytes, item: int, nonce: bytes, rand: bytes | None = None) -> tuple[bytes, list[bytes]]:
        """The public share and every server's input share of one item; `rand` is fresh where it is not given.

        Both must be drawn at random for every report: `secrets.token_bytes(NONCE_SIZE)`.
        """
        rand = secrets.token_bytes(self.rand_size) if rand is None else rand
        if not 0 <= item < self.length:
            raise ValueError(f"the item is not among the {self.length} buckets; expected 0 to {self.length - 1}")
        if len(nonce) != NONCE_SIZE or len(rand) != self.rand_size:
            raise ValueError(
                f"a nonce of {len(nonce)} and randomness of {len(rand)} bytes are given; "
                f"expected {NONCE_SIZE} and {self.rand_size}"
            )
        *helpers, leader_blind, prove_seed = _seeds(rand)
        seeds, blinds = helpers[::2], [leader_blind, *helpers[1::2]]
        masks = [self._expanded(ctx, i + 1, seed) for i, seed in enumerate(seeds)]
        vector = [0] * self.length
        vector[item] = 1
        measurements = [_without(vector, [mask for mask, _ in masks]), *(mask for mask, _ in masks)]
        parts = [
            self._joint_part(ctx, i, blind, share, nonce)
            for i, (blind, share) in enumerate(zip(blinds, measurements, strict=True))
        ]
        wires = self._vector(PROVE, ctx, prove_seed, _ONE_PROOF, self.circuit.arity)
        joint = self._joint(ctx, self._joint_seed(ctx, parts))
        proof = self.circuit.prove(item, field.decoded(wires), field.decoded(joint))
        leader = measurements[0] + _without(proof, [mask for _, mask in masks]) + leader_blind
        return b"".join(parts), [leader, *(seed + blind for seed, blind in zip(seeds, blinds[1:], strict=True))]

    # Servers.

    def verify_init(
        self, verify_key: bytes, ctx: bytes, agg_id: int, nonce: bytes, public_share: bytes, input_share: bytes
    ) -> tuple[VerifyState, bytes]:
        """Server `agg_id`'s state and its verifier share, which all servers must see.

        The servers agree on the key before the first report, and devices never see it. A report is verified once:
        servers refuse a nonce they have seen. The histogram's sizes are not bound to a report: name them in `ctx`.
        """
        if len(verify_key) != xof.SEED_SIZE:
            raise ValueError(f"the verification key has {len(verify_key)} bytes; expected {xof.SEED_SIZE}")
        if not 0 <= agg_id < self.shares:
            raise ValueError(f"there is no server {agg_id}; expected 0 to {self.shares - 1}")
        if len(nonce) != NONCE_SIZE or len(public_share) != self.public_share_size:
            raise InvalidReport(
                f"nonce and public share have {len(nonce)} and {len(public_share)} bytes; "
                f"expected {NONCE_SIZE} and {self.public_share_size}"
            )
        measurement, proof, blind = self._opened(ctx, agg_id, input_share)
        part = self._joint_part(ctx, agg_id, blind, measurement, nonce)
        parts = _seeds(public_share)
        parts[agg_id] = part  # what the device claims about this server's own part is not believed
        joint_seed = self._joint_seed(ctx, parts)
        query = self._vector(QUERY, ctx, verify_key, _ONE_PROOF + nonce, 3)
        self.circuit.refuse_root(field.decoded(query)[2])
        verifier = self._query(measurement, proof, query, self._joint(ctx, joint_seed))
        return VerifyState(measurement, joint_seed), verifier + part

    def verifier_shares_to_message(self, ctx: bytes, verifier_shares: Sequence[bytes]) -> bytes:
        """The verifier message, where the shares of all servers (in their order) prove that there is one item."""
        split = [self._split(share, self.circuit.verifier_length, "verifier share") for share in verifier_shares]
        if len(split) != self.shares:
            raise InvalidReport(f"there are {len(split)} verifier shares; expected {self.shares}")
        verifier = field.total([vector for vector, _ in split], self.circuit.verifier_length)
        if not self.circuit.decide(field.decoded(verifier)):
            raise InvalidReport("the proof of this report does not hold; expected shares of one item")
        return self._joint_seed(ctx, [part for _, part in split])

    def verify_next(self, state: VerifyState, message: bytes) -> bytes:
        """The output share, to be counted, where the verifier message holds what this server expects."""
        if not hmac.compare_digest(state.joint_seed, message):
            raise InvalidReport(
                "the joint randomness of this report is not that of all servers; expected their common seed"
            )
        return state.out_share

    def aggregate(self, shares: Sequence[bytes]) -> bytes:
        """The sum of output shares, or of aggregate shares of the same server: an aggregate share."""
        for share in shares:
            self._check(share, self.length, "share to be added")
        if self.plain:
            return field.total(shares, self.length)
        from discreet.vdaf import compiled

        return compiled.total(shares, self.length)

    def noised(self, agg_share: bytes, noise: Sequence[int]) -> bytes:
        """The aggregate share with a whole number, negative ones too, added to every bucket."""
        if len(noise) != self.length:
            raise ValueError(f"there is noise for {len(noise)} buckets; expected {self.length}")
        return self.aggregate([agg_share, field.encoded(noise)])

    def unshard(self, agg_shares: Sequence[bytes]) -> list[int]:
        """The histogram, from the aggregate shares of all servers; noise may have made it negative."""
        if len(agg_shares) != self.shares:
            raise ValueError(f"there are {len(agg_shares)} aggregate shares; expected {self.shares}")
        sums = field.decoded(self.aggregate(agg_shares))
        return [x if x <= field.MODULUS // 2 else x - field.MODULUS for x in sums]

    # Randomness.

    def _tag(self, usage: int, ctx: bytes) -> bytes:
        tag = bytes([VERSION, 0]) + ALGORITHM.to_bytes(4, "big") + usage.to_bytes(2, "big") + ctx
        if len(tag) > xof.LONGEST_TAG:
            raise ValueError(f"the context has {len(ctx)} bytes; expected at most {xof.LONGEST_TAG - 8}")
        return tag

    def _vector(self, usage: int, ctx: bytes, seed: bytes, binder: bytes, length: int) -> bytes:
        return xof.expanded(seed, self._tag(usage, ctx), binder, length)

    def _expanded(self, ctx: bytes, agg_id: int, seed: bytes) -> tuple[bytes, bytes]:
        """A helper's shares of vector and proof."""
        server = bytes([agg_id])
        return (
            self._vector(MEASUREMENT, ctx, seed, server, self.length),
            self._vector(PROOF, ctx, seed, _ONE_PROOF + server, self.circuit.proof_length),
        )

    def _joint_part(self, ctx: bytes, agg_id: int, blind: bytes, measurement: bytes, nonce: bytes) -> bytes:
        return xof.derived(blind, self._tag(JOINT_PART, ctx), bytes([agg_id]) + nonce + measurement)

    def _joint_seed(self, ctx: bytes, parts: Sequence[bytes]) -> bytes:
        return xof.derived(bytes(xof.SEED_SIZE), self._tag(JOINT_SEED, ctx), b"".join(parts))

    def _joint(self, ctx: bytes, seed: bytes) -> bytes:
        return self._vector(JOINT, ctx, seed, _ONE_PROOF, self.circuit.calls)

    # Messages.

    def _check(self, vector: bytes, length: int, what: str) -> None:
        if not field.is_vector(vector, length):
            raise InvalidReport(f"a {what} is not a vector of {length} field elements, as it was expected to be")

    def _split(self, message: bytes, length: int, what: str) -> tuple[bytes, bytes]:
        """A vector, and the seed behind it."""
        vector, seed = message[: field.SIZE * length], message[field.SIZE * length :]
        self._check(vector, length, what)
        if len(seed) != xof.SEED_SIZE:
            raise InvalidReport(f"a {what} ends with {len(seed)} bytes; expected a seed of {xof.SEED_SIZE}")
        return vector, seed

    def _opened(self, ctx: bytes, agg_id: int, input_share: bytes) -> tuple[bytes, bytes, bytes]:
        """Shares of vector and proof, and the blind."""
        if agg_id == 0:
            vector, blind = self._split(input_share, self.length + self.circuit.proof_length, "leader's input share")
            return vector[: self.agg_share_size], vector[self.agg_share_size :], blind
        if len(input_share) != self.helper_share_size:
            raise InvalidReport(
                f"a helper's input share has {len(input_share)} bytes; expected {self.helper_share_size}"
            )
        seed, blind = _seeds(input_share)
        return *self._expanded(ctx, agg_id, seed), blind

    def _query(self, measurement: bytes, proof: bytes, query: bytes, joint: bytes) -> bytes:
        if not self.plain:
            return self._compiled.query(measurement, proof, query, joint)
        vector, proof_share, points, rs = map(field.decoded, (measurement, proof, query, joint))
        return field.encoded(self.circuit.query(vector, proof_share, points, rs, self.shares))


def _seeds(data: bytes) -> list[bytes]:
    return [data[i : i + xof.SEED_SIZE] for i in range(0, len(data), xof.SEED_SIZE)]


def _without(vector: Sequence[int], masks: Sequence[bytes]) -> bytes:
    """The leader's share: the vector minus all others' shares."""
    columns = zip(vector, *map(field.decoded, masks), strict=True)
    return field.encoded(x - sum(others) for x, *others in columns)
