"""Field128 in words of 64 bits: a server's query of a proof (`vdaf.flp`), and sums of vectors.

Elements are rows (low, high). A product is Montgomery's, a·b/2¹²⁸ mod p: as p = 2¹²⁸ − 28·2⁶⁴ + 1 is 1 modulo 2⁶⁴, a
step of the reduction costs one small product. Weights are kept times 2¹²⁸ and data are not, so that their products
are plain numbers again. No branch of the source depends on data; that the compiler adds none is not promised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from discreet.kernels.jit import compiled_beside

Words = npt.NDArray[np.uint64]
Pair = tuple[np.uint64, np.uint64]

ZERO, ONE = np.uint64(0), np.uint64(1)
HALF, LOW = np.uint64(32), np.uint64(2**32 - 1)
SMALL = np.uint64(28)
#: The modulus is (1, TOP).
TOP = np.uint64(2**64 - 28)


@compiled_beside
def _high(a: np.uint64, b: np.uint64) -> np.uint64:
    """⌊a·b/2⁶⁴⌋."""
    a0, a1, b0, b1 = a & LOW, a >> HALF, b & LOW, b >> HALF
    middle = a1 * b0 + ((a0 * b0) >> HALF)
    return np.uint64(a1 * b1 + (middle >> HALF) + ((a0 * b1 + (middle & LOW)) >> HALF))


@compiled_beside
def _below_modulus(low: np.uint64, high: np.uint64, above: np.uint64) -> Pair:
    """x or x − p, of x = (low, high, above) < 2p."""
    over = above | np.uint64(high > TOP) | (np.uint64(high == TOP) & np.uint64(low != ZERO))
    return np.uint64(low - over), np.uint64(high - over * TOP - (over & np.uint64(low == ZERO)))


@compiled_beside
def _sum(a: Any, b: Any) -> Pair:
    low = a[0] + b[0]
    carry = np.uint64(low < a[0])
    high = a[1] + b[1]
    above = np.uint64(high < a[1])
    high = high + carry
    return _below_modulus(low, high, above + np.uint64(high < carry))


@compiled_beside
def _minus(a: Any) -> Pair:
    """p − a, or 0 of 0."""
    some = np.uint64((a[0] | a[1]) != ZERO)
    return np.uint64(some * (ONE - a[0])), np.uint64(some * (TOP - a[1] - np.uint64(a[0] > ONE)))


@compiled_beside
def _step(
    x0: np.uint64, x1: np.uint64, x2: np.uint64, a: np.uint64, b: Any
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """(x + a·b + m·p)/2⁶⁴, with the m that makes it whole; below 2p + x/2⁶⁴."""
    # y = x + a·b, three words: a < 2⁶⁴ − 27 where x is not zero
    low, carried = a * b[0], _high(a, b[0])
    y0 = x0 + low
    carry = np.uint64(y0 < low)
    low = a * b[1]
    y1 = x1 + low
    above = np.uint64(y1 < low)
    y1 = y1 + carried
    above = above + np.uint64(y1 < carried)
    y1 = y1 + carry
    above = above + np.uint64(y1 < carry)
    y2 = x2 + _high(a, b[1]) + above
    # m = −y₀, and m·p = m·2¹²⁸ − 28·m·2⁶⁴ + m
    m = ZERO - y0
    carry = np.uint64(y0 != ZERO)
    z0 = y1 + carry
    carry = np.uint64(z0 < carry)
    small = m * SMALL
    borrow = np.uint64(z0 < small)
    z0 = z0 - small
    z1 = y2 + m
    above = np.uint64(z1 < m)
    z1 = z1 + carry
    above = above + np.uint64(z1 < carry)
    borrow = borrow + _high(m, SMALL)
    above = above - np.uint64(z1 < borrow)
    return z0, z1 - borrow, above


@compiled_beside
def _product(a: Any, b: Any) -> Pair:
    """a·b/2¹²⁸ mod p."""
    x0, x1, x2 = _step(ZERO, ZERO, ZERO, a[0], b)
    return _below_modulus(*_step(x0, x1, x2, a[1], b))


@compiled_beside
def _basis(t: Any, roots: Words, every: int, inverse: Any) -> Words:
    """`vdaf.field.basis` of every second or of all of the roots, times 2¹²⁸ like its arguments."""
    n = roots.shape[0] // every
    result = np.empty((n, 2), dtype=np.uint64)
    product = (inverse[0], inverse[1])
    for i in range(n):
        result[i] = product
        product = _product(product, _sum(t, _minus(roots[every * i])))
    product = (roots[0, 0], roots[0, 1])
    for i in range(n - 1, -1, -1):
        result[i] = _product(_product(result[i], roots[every * i]), product)
        product = _product(product, _sum(t, _minus(roots[every * i])))
    return result


@compiled_beside
def query(vector: Words, proof: Words, points: Words, joint: Words, roots: Words, constants: Words) -> Words:
    """`vdaf.flp.OneHot.query`, with the roots of order 2P and 1/P, 1/(2P) and 2¹²⁸ times 2¹²⁸, and 1/shares plain."""
    n, G = roots.shape[0], joint.shape[0]
    c = (proof.shape[0] - n + 1) // 2
    one = (constants[3, 0], constants[3, 1])
    t = _product(points[2], constants[0])
    result = np.zeros((2 * c + 2, 2), dtype=np.uint64)

    weights = _basis(t, roots, 2, constants[1])
    ones = (ZERO, ZERO)
    for k in range(G):
        ones = _sum(ones, weights[k + 1])
    ones = _minus(_product(ones, one))
    for j in range(c):
        result[2 * j + 1] = _product(weights[0], proof[2 * j])
        result[2 * j + 2] = _sum(_product(weights[0], proof[2 * j + 1]), ones)
    surplus = _minus(one)
    for k in range(G):
        weight = (weights[k + 1, 0], weights[k + 1, 1])
        power, r = weight, _product(joint[k], constants[0])
        for j in range(min(c, vector.shape[0] - k * c)):
            x = (vector[k * c + j, 0], vector[k * c + j, 1])
            power = _product(power, r)
            result[2 * j + 1] = _sum(result[2 * j + 1], _product(power, x))
            result[2 * j + 2] = _sum(result[2 * j + 2], _product(weight, x))
            surplus = _sum(surplus, x)

    weights = _basis(t, roots, 1, constants[2])
    last, gadget, checked = (ZERO, ZERO), (ZERO, ZERO), (ZERO, ZERO)
    for i in range(n - 1):
        x = (proof[2 * c + i, 0], proof[2 * c + i, 1])
        last = _sum(last, _product(roots[i], x))
        gadget = _sum(gadget, _product(weights[i], x))
        if i % 2 == 0 and 0 < i <= 2 * G:
            checked = _sum(checked, x)
    last = _minus(_product(roots[1], last))  # no term of degree 2P − 1
    result[2 * c + 1] = _sum(gadget, _product(weights[n - 1], last))
    for_range, for_sum = _product(points[0], constants[0]), _product(points[1], constants[0])
    result[0] = _sum(_product(for_range, checked), _product(for_sum, surplus))
    return result


@compiled_beside
def total(vectors: Words) -> Words:
    """Σ_v v, element by element."""
    result = np.zeros(vectors.shape[1:], dtype=np.uint64)
    for v in range(vectors.shape[0]):
        for i in range(vectors.shape[1]):
            result[i] = _sum(result[i], vectors[v, i])
    return result
