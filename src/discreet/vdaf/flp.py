"""The proof that a secret-shared vector has a single one and zeros else (§7.3 and §7.4.4 of the draft).

The vector m is cut into G chunks of c. The circuit's one gadget adds up c products, and with a random r_k per chunk

    Σ_k Σ_j r_k^(j+1)·m_kj · (m_kj − 1) = 0   and   Σ m = 1

hold for one-hot vectors, and for others with probability at most about (c + 1)/p. A wire of the gadget is a
polynomial through its inputs at the powers of α, a root of unity of order P = 2^⌈log₂(1+G)⌉, with a random seed at
1. The proof is the seeds and the gadget's polynomial at the roots of order 2P; the last follows from its degree of
2P − 2.

Neither side needs a transform. A verifier evaluates at one point t, where the Lagrange polynomials are weights. A
prover knows that her vector has a single one, so her wires are combinations of L₀, of L_k of her chunk, and of U =
L₁ + … + L_G, at points where all of them are tabled: O(P + c) instead of O(P·c·log P).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from discreet.vdaf.field import MODULUS, basis, roots


class InvalidReport(ValueError):
    """A report, or a message about one, that must not be counted. Says nothing about what is in it."""


def _points(calls: int) -> int:
    """The least power of two above the number of calls."""
    return 1 << calls.bit_length()


def _calls(length: int, chunk_length: int) -> int:
    return -(-length // chunk_length)


def _proof_length(length: int, chunk_length: int) -> int:
    return 2 * chunk_length + 2 * _points(_calls(length, chunk_length)) - 1


def best_chunk_length(length: int) -> int:
    """The least chunk length among those with the shortest proof."""
    candidates = {_calls(length, 2**power - 1) for power in range(1, length.bit_length() + 1)}
    return min(candidates, key=lambda c: (_proof_length(length, c), c))


@lru_cache(maxsize=64)
def _at_roots(calls: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """L₀ and U = L₁ + … + L_G, those of order P, at the roots of order 2P."""
    P = _points(calls)
    shift = -2 * pow(P, -1, MODULUS)  # (x^P − 1)/P at odd powers
    first = [int(i == 0) if i % 2 == 0 else shift * pow(x - 1, -1, MODULUS) for i, x in enumerate(roots(2 * P))]
    others = [sum(first[i - 2 * k] for k in range(1, calls + 1)) for i in range(2 * P)]
    return tuple(x % MODULUS for x in first), tuple(x % MODULUS for x in others)


@dataclass(frozen=True)
class OneHot:
    """The circuit of vectors of `length` elements, read in chunks of `chunk_length`.

    Not constant-time: `prove` looks up what belongs to her chunk and raises to a power that her item names.
    Cost: `prove` O(P + c), `query` O(length + P) multiplications.
    """

    length: int
    chunk_length: int

    @property
    def calls(self) -> int:
        return _calls(self.length, self.chunk_length)

    @property
    def points(self) -> int:
        return _points(self.calls)

    @property
    def arity(self) -> int:
        return 2 * self.chunk_length

    @property
    def proof_length(self) -> int:
        return _proof_length(self.length, self.chunk_length)

    @property
    def verifier_length(self) -> int:
        return self.arity + 2

    def prove(self, item: int, seeds: Sequence[int], joint: Sequence[int]) -> list[int]:
        """For the vector whose one is at `item`; `seeds` are one random element per wire, `joint` the r_k."""
        chunk, j = divmod(item, self.chunk_length)
        left, right = seeds[::2], seeds[1::2]
        power = pow(joint[chunk], j + 1, MODULUS)
        squares = sum(x * y for x, y in zip(left, right, strict=True)) % MODULUS
        sides, own, opposite = sum(left) % MODULUS, left[j], right[j]
        zeroth, others = _at_roots(self.calls)
        polynomial = []
        for i in range(2 * self.points - 1):
            a, b, c = zeroth[i], others[i], zeroth[i - 2 * (chunk + 1)]  # L₀, U, L_k at wⁱ
            hers = own * a + power * ((opposite * a - b + c) % MODULUS)
            polynomial.append((a * ((squares * a - sides * b) % MODULUS) + c * hers) % MODULUS)
        return [*seeds, *polynomial]

    def query(
        self, vector: Sequence[int], proof: Sequence[int], query: Sequence[int], joint: Sequence[int], shares: int
    ) -> list[int]:
        """One server's share of what `decide` needs, from its shares of the vector and the proof."""
        G, c, P = self.calls, self.chunk_length, self.points
        for_range, for_sum, t = query
        one = pow(shares, -1, MODULUS)
        values, w = list(proof[2 * c :]), roots(2 * P)
        values.append(-w[1] * sum(x * y for x, y in zip(values, w, strict=False)))  # no term of degree 2P − 1
        verdict = for_range * sum(values[2 : 2 * G + 1 : 2]) + for_sum * (sum(vector) - one)
        weights = basis(P, t)
        left, right = (
            [weights[0] * seed for seed in proof[: 2 * c : 2]],
            [weights[0] * s for s in proof[1 : 2 * c : 2]],
        )
        for k in range(G):
            power = weight = weights[k + 1]
            for j, x in enumerate(vector[k * c : (k + 1) * c]):
                power = power * joint[k] % MODULUS
                left[j] += power * x
                right[j] += weight * x
        ones = one * sum(weights[1 : G + 1])
        wires = [x for pair in zip(left, (x - ones for x in right), strict=True) for x in pair]
        gadget = sum(x * y for x, y in zip(values, basis(2 * P, t), strict=True))
        return [x % MODULUS for x in (verdict, *wires, gadget)]

    def decide(self, verifier: Sequence[int]) -> bool:
        """Whether the sum of all shares of `query` is that of a one-hot vector."""
        verdict, *wires, gadget = verifier
        return verdict == 0 and sum(x * y for x, y in zip(wires[::2], wires[1::2], strict=True)) % MODULUS == gadget

    def refuse_root(self, t: int) -> None:
        """At a root of unity a verifier would show an input of the gadget; it happens with probability P/2¹²⁸."""
        if pow(t, self.points, MODULUS) == 1:
            raise InvalidReport("the test point of this report is a root of unity; expected any other")
