/** Costs of messages, computed with whole numbers and rounded up: never less than the truth. */

const PRECISION = 160n;
const ONE = 1n << PRECISION;

/** ⌈ln(n/d)·2¹⁶⁰⌉ or a little above, for n ≥ d > 0: n/d = m·2^k with 1 ≤ m < 2, and ln m = 2·artanh((m−1)/(m+1)). */
function logarithm(n: bigint, d: bigint): bigint {
  let shift = 0n;
  while (n >= d << (shift + 1n)) shift += 1n;
  return artanh(n - (d << shift), n + (d << shift)) + shift * artanh(1n, 3n);
}

/** 2·artanh(n/d)·2¹⁶⁰ for 0 ≤ n/d ≤ 1/3, rounded up: Σ 2·x^(2i+1)/(2i+1), each term rounded up, and what is left. */
function artanh(n: bigint, d: bigint): bigint {
  if (n === 0n) return 0n;
  let power = up(2n * n * ONE, d);
  let sum = 0n;
  // Rounding up keeps powers from vanishing: once they are at most 2, all that is left is below the 3 added at the end.
  for (let i = 1n; power > 2n; i += 2n) {
    sum += up(power, i);
    power = up(power * n * n, d * d);
  }
  return sum + 3n;
}

function up(n: bigint, d: bigint): bigint {
  return (n + d - 1n) / d;
}

/** The least double that is not below n/d, for n ≥ 0 and d > 0. */
export function roundedUp(n: bigint, d: bigint): number {
  if (n === 0n) return 0;
  let exponent = BigInt(n.toString(2).length - d.toString(2).length) - 53n;
  const scaled = (by: bigint): bigint => (by >= 0n ? up(n, d << by) : up(n << -by, d));
  let digits = scaled(exponent);
  while (digits > 1n << 53n) digits = scaled(++exponent);
  return Number(digits) * 2 ** Number(exponent);
}

/** ln(n/d), rounded up; n ≥ d ≥ 0, infinite for d = 0. */
export function logOf(n: bigint, d: bigint): number {
  return d === 0n ? Infinity : roundedUp(logarithm(n, d), ONE);
}

/** The even one of two neighbours, where a number lies just between them; else the nearest whole number. */
export function rint(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest === 0.5) return below % 2 === 0 ? below : below + 1;
  return rest < 0.5 ? below : below + 1;
}
