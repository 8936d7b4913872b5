/**
 * Field128 (§6.1 of draft-irtf-cfrg-vdaf-20): whole numbers modulo p = 2¹²⁸ − 28·2⁶⁴ + 1.
 *
 * Between modules a vector is its encoding, 16 bytes per element, the lowest first. BigInt is not constant-time: how long an
 * operation takes depends on the numbers.
 */

export const MODULUS = 2n ** 66n * 4611686018427387897n + 1n;
export const SIZE = 16;
const ORDER = 2n ** 66n;

export function modulo(x: bigint): bigint {
  const rest = x % MODULUS;
  return rest < 0n ? rest + MODULUS : rest;
}

export function power(x: bigint, exponent: bigint): bigint {
  let [result, square] = [1n, modulo(x)];
  for (let left = exponent; left > 0n; left >>= 1n) {
    if (left & 1n) result = (result * square) % MODULUS;
    square = (square * square) % MODULUS;
  }
  return result;
}

export function inverse(x: bigint): bigint {
  return power(x, MODULUS - 2n);
}

const GENERATOR = power(7n, 4611686018427387897n);

/** Of any whole numbers, modulo p. */
export function encoded(numbers: readonly bigint[]): Uint8Array {
  const data = new Uint8Array(SIZE * numbers.length);
  const view = new DataView(data.buffer);
  numbers.forEach((number, i) => {
    const x = modulo(number);
    view.setBigUint64(SIZE * i, BigInt.asUintN(64, x), true);
    view.setBigUint64(SIZE * i + 8, x >> 64n, true);
  });
  return data;
}

/** What 16 bytes say each, whether it is below p or not. */
export function decoded(data: Uint8Array): bigint[] {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  return Array.from({ length: data.length / SIZE }, (_, i) => {
    return (view.getBigUint64(SIZE * i + 8, true) << 64n) | view.getBigUint64(SIZE * i, true);
  });
}

/** Whether these bytes encode so many elements, each below p. */
export function isVector(data: Uint8Array, length: number): boolean {
  return data.length === SIZE * length && decoded(data).every((x) => x < MODULUS);
}

/** Σ_v v, element by element. */
export function total(vectors: readonly Uint8Array[], length: number): Uint8Array {
  const sums = new Array<bigint>(length).fill(0n);
  for (const vector of vectors) decoded(vector).forEach((x, i) => (sums[i]! += x));
  return encoded(sums);
}

const KNOWN_ROOTS = new Map<number, readonly bigint[]>();

/** wⁱ, i < n, of the principal n-th root of unity w; n is a power of two. */
export function roots(n: number): readonly bigint[] {
  let powers = KNOWN_ROOTS.get(n);
  if (powers === undefined) {
    const w = power(GENERATOR, ORDER / BigInt(n));
    powers = running(new Array<bigint>(n - 1).fill(w), 1n);
    KNOWN_ROOTS.set(n, powers);
  }
  return powers;
}

/** The Lagrange polynomials of the n-th roots of unity at t, Lᵢ(t) = wⁱ/n · Π_{j≠i} (t − wʲ), at any t. */
export function basis(n: number, t: bigint): bigint[] {
  const differences = roots(n).map((w) => modulo(t - w));
  const before = running(differences.slice(0, -1), inverse(BigInt(n)));
  const after = running(differences.slice(1).reverse(), 1n).reverse();
  return roots(n).map((w, i) => (((w * before[i]!) % MODULUS) * after[i]!) % MODULUS);
}

/** first, first·x₀, first·x₀·x₁, … */
function running(factors: readonly bigint[], first: bigint): bigint[] {
  const products = [first];
  for (const x of factors) products.push((products.at(-1)! * x) % MODULUS);
  return products;
}

export function sum(numbers: readonly bigint[]): bigint {
  return numbers.reduce((a, b) => a + b, 0n);
}

export function dot(a: readonly bigint[], b: readonly bigint[]): bigint {
  return modulo(a.reduce((result, x, i) => result + x * b[i]!, 0n));
}
