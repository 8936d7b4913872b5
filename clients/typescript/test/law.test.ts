/** The sampler: with words of a seed, and with those of this platform. */

import assert from "node:assert/strict";
import test from "node:test";

import { below, Noise, type Randomness } from "../src/sampler.js";
import { verdict } from "./law.js";

/** SplitMix64. */
class Seeded implements Randomness {
  constructor(private state: bigint) {}

  words(count: number): BigUint64Array {
    return BigUint64Array.from({ length: count }, () => {
      this.state = BigInt.asUintN(64, this.state + 0x9e3779b97f4a7c15n);
      let z = this.state;
      z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
      z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
      return z ^ (z >> 31n);
    });
  }
}

for (const method of ["unary", "response"] as const) {
  for (const [name, noise] of [["a seed", new Seeded(18n)], ["this platform", new Noise()]] as const) {
    test(`${method}, words of ${name}: the law is accepted, .9 and 1.1 of its noise are rejected`, () => {
      assert.equal(verdict(method, 1, noise).rejected, false);
      assert.equal(verdict(method, 0.9, noise).rejected, true);
      assert.equal(verdict(method, 1.1, noise).rejected, true);
    });
  }
}

test("numbers below a limit are even, to the last word", () => {
  const words = [2n ** 64n - 1n, 2n ** 64n - 2n, 0n];
  const noise = { words: () => BigUint64Array.of(words.shift()!) };
  assert.equal(below(noise, 3n), 2n); // 2⁶⁴ = 1 (mod 3): the last word is drawn again
  assert.equal(words.length, 1);
});

test("many words are read in pieces that every platform gives", () => {
  const words = new Noise().words(100_000);
  assert.equal(words.length, 100_000);
  assert(new Set(words.subarray(99_000)).size === 1000);
});
