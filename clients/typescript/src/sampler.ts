/** Randomness on a device: 64-bit words of WebCrypto, and what encoders make of them, exactly. */

import { Refused } from "./wire.js";

/** Where words come from. */
export interface Randomness {
  words(count: number): BigUint64Array;
}

/** The platform's own cryptographic randomness: every word is read when it is used and kept nowhere. */
export class Noise implements Randomness {
  words(count: number): BigUint64Array {
    const words = new BigUint64Array(count);
    for (let start = 0; start < count; start += 8192) crypto.getRandomValues(words.subarray(start, start + 8192));
    return words;
  }
}

/** A source that reads these words and then no more: for test vectors, and protects nobody. */
export class Replayed implements Randomness {
  private read = 0;

  constructor(private readonly all: readonly bigint[]) {}

  get left(): number {
    return this.all.length - this.read;
  }

  words(count: number): BigUint64Array {
    if (count > this.left) throw new Refused("the words to be replayed are used up");
    this.read += count;
    return BigUint64Array.from(this.all.slice(this.read - count, this.read));
  }
}

export const WORD = 1n << 64n;

function one(noise: Randomness): bigint {
  return noise.words(1)[0]!;
}

/** Uniform on 0..limit−1, exactly: words in the incomplete last block are drawn again. */
export function below(noise: Randomness, limit: bigint): bigint {
  const largest = WORD - 1n - (WORD % limit);
  let word = one(noise);
  while (word > largest) word = one(noise);
  return word % limit;
}

/** On with probability share/2⁶⁴: one word below a threshold. */
export function biased(noise: Randomness, share: bigint): boolean {
  return one(noise) < share;
}

/** `size` bits, P(on) = ½ at the item and flips/2⁶⁴ elsewhere; −1 is no item. Every bit reads one word in any case. */
export function unary(item: number, size: number, flips: bigint, noise: Randomness): Uint8Array {
  const words = noise.words(size);
  return Uint8Array.from({ length: size }, (_, i) => (words[i]! < (i === item ? WORD / 2n : flips) ? 1 : 0));
}
