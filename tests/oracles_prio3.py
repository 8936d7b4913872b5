"""Prio3Histogram for any vector, with polynomials by their coefficients; only the XOF is that of the package.

`forged` is what a dishonest device can do: share a vector that is not one-hot, with an honest proof.
"""

from __future__ import annotations

from functools import cache

from discreet.vdaf import xof

P = 2**128 - 28 * 2**64 + 1


def points_of(calls: int) -> int:
    n = 1
    while n < calls + 1:
        n *= 2
    return n


def root(n: int) -> int:
    return pow(pow(7, (P - 1) // 2**66, P), 2**66 // n, P)


@cache
def _powers(w: int, n: int) -> list[int]:
    return [pow(w, i, P) for i in range(n)]


def interpolated(values: list[int]) -> list[int]:
    """Coefficients of the polynomial with these values at the roots of unity: aᵢ = Σ_j v_j·w^(−ij)/n."""
    n = len(values)
    powers = _powers(pow(root(n), -1, P), n)
    return [sum(v * powers[i * j % n] for j, v in enumerate(values)) * pow(n, -1, P) % P for i in range(n)]


def at(polynomial: list[int], x: int) -> int:
    value = 0
    for a in reversed(polynomial):
        value = (value * x + a) % P
    return value


def times(f: list[int], g: list[int]) -> list[int]:
    product = [0] * (len(f) + len(g) - 1)
    for i, a in enumerate(f):
        for j, b in enumerate(g):
            product[i + j] = (product[i + j] + a * b) % P
    return product


def wires(vector: list[int], seeds: list[int], joint: list[int], c: int, one: int) -> list[list[int]]:
    """Coefficients of all wires: r^(j+1)·m and m − 1 in turn, for the c places of a chunk."""
    n = points_of(len(joint))
    padded = vector + [0] * (c * len(joint) - len(vector))
    values = [[seed] + [0] * (n - 1) for seed in seeds]
    for k, r in enumerate(joint):
        for j in range(c):
            x = padded[k * c + j]
            values[2 * j][k + 1] = pow(r, j + 1, P) * x % P
            values[2 * j + 1][k + 1] = (x - one) % P
    return [interpolated(wire) for wire in values]


def prove(vector: list[int], seeds: list[int], joint: list[int], c: int) -> list[int]:
    polynomials = wires(vector, seeds, joint, c, 1)
    n = 2 * points_of(len(joint))
    gadget = [0] * (n - 1)
    for j in range(c):
        gadget = [(a + b) % P for a, b in zip(gadget, times(*polynomials[2 * j : 2 * j + 2]), strict=True)]
    return [*seeds, *(at(gadget, x) for x in _powers(root(n), n)[:-1])]


def query(vector: list[int], proof: list[int], points: list[int], joint: list[int], c: int, shares: int) -> list[int]:
    one, n = pow(shares, -1, P), 2 * points_of(len(joint))
    polynomials, values = wires(vector, proof[: 2 * c], joint, c, one), proof[2 * c :]
    # The values at n − 1 points fix the value at the last: subtract what it adds to the highest coefficient.
    short, unit = interpolated([*values, 0]), interpolated([0] * (n - 1) + [1])
    last = -short[-1] * pow(unit[-1], -1, P) % P
    gadget = interpolated([*values, last])
    assert gadget[-1] == 0
    of_range = sum(at(gadget, pow(root(n // 2), k + 1, P)) for k in range(len(joint)))
    verdict = (points[0] * of_range + points[1] * (sum(vector) - one)) % P
    return [verdict, *(at(wire, points[2]) for wire in polynomials), at(gadget, points[2])]


def numbers(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 16], "little") for i in range(0, len(data), 16)]


def octets(vector: list[int]) -> bytes:
    return b"".join(x.to_bytes(16, "little") for x in vector)


def forged(
    shares: int, vector: list[int], c: int, ctx: bytes, nonce: bytes, rand: bytes
) -> tuple[bytes, list[bytes]]:
    """Public share and input shares of a vector that need not be one-hot."""

    def tag(usage: int) -> bytes:
        return bytes([18, 0, 0, 0, 0, 4, 0, usage]) + ctx

    calls = -(-len(vector) // c)
    length = 2 * c + 2 * points_of(calls) - 1
    seeds = [rand[i : i + 32] for i in range(0, 64 * shares, 32)]
    helpers, blinds = seeds[: 2 * shares - 2 : 2], [seeds[2 * shares - 2], *seeds[1 : 2 * shares - 2 : 2]]
    masks = [xof.expanded(s, tag(1), bytes([i + 1]), len(vector)) for i, s in enumerate(helpers)]
    leader = [(x - sum(ys)) % P for x, *ys in zip(vector, *map(numbers, masks), strict=True)]
    everybody = [octets(leader), *masks]
    parts = [xof.derived(blinds[i], tag(7), bytes([i]) + nonce + everybody[i]) for i in range(shares)]
    joint = xof.expanded(xof.derived(bytes(32), tag(6), b"".join(parts)), tag(3), b"\1", calls)
    wire_seeds = xof.expanded(seeds[-1], tag(4), b"\1", 2 * c)
    proof = prove(vector, numbers(wire_seeds), numbers(joint), c)
    masks = [xof.expanded(s, tag(2), bytes([1, i + 1]), length) for i, s in enumerate(helpers)]
    proof = [(x - sum(ys)) % P for x, *ys in zip(proof, *map(numbers, masks), strict=True)]
    return b"".join(parts), [octets(leader + proof) + blinds[0]] + [
        seed + blind for seed, blind in zip(helpers, blinds[1:], strict=True)
    ]
