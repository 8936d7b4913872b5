/** Whether messages follow the law that their ε is computed from: χ², in Node and in browsers. */

import { encoderOf, type ReportEncoder } from "../src/encoders.js";
import type { Randomness } from "../src/sampler.js";

/** Chances of a false alarm and of a miss are each below e^(−TAIL) = 8·10⁻¹⁰. */
const TAIL = 21;
const TABLES = { num_states: 3, num_actions: 2, horizon: 2, stages: 1, grid: 0.5, reward_range: [0, 1] };
/** Her first step is cell 1, from state 0 to 2, unpaid: item 10, place 4. */
const EPISODE = [[0, 2, 0], [1, 0], [0, 1]] as const;
const ITEMS = [6, 7, 8, 9, 10, 11, 12, 20];
const PLACE = 4;
const WORD = 2 ** 64;

function encoder(method: string, words: number): ReportEncoder {
  const rest = { words: String(BigInt(words)), version: "v", has_start: false, last_successor: true };
  return encoderOf({ encoder: "first-visit", tables: TABLES, items: ITEMS, method, ...rest }) as ReportEncoder;
}

/** How often each bit is on, or each answer given, in one message. */
function chances(method: string, words: number): number[] {
  const share = words / WORD;
  if (method === "unary") return ITEMS.map((_, i) => (i === PLACE ? 0.5 : share));
  const D = ITEMS.length + 1;
  return Array.from({ length: D }, (_, i) => (i === PLACE ? share : 0) + (1 - share) / D);
}

/** Of bits each has its own variance; answers exclude each other. */
function variance(method: string, chance: number): number {
  return method === "unary" ? chance * (1 - chance) : chance;
}

/** P(χ²_k > this) < e^(−TAIL) [Laurent and Massart 2000, lemma 1]. */
function threshold(degrees: number): number {
  return degrees + 2 * Math.sqrt(degrees * TAIL) + 2 * TAIL;
}

/** A noncentral χ² is less than this with probability below e^(−TAIL) [Birgé 2001, lemma 8.1]. */
function least(degrees: number, shift: number): number {
  return degrees + shift - 2 * Math.sqrt((degrees + 2 * shift) * TAIL);
}

export interface Verdict {
  statistic: number;
  threshold: number;
  rejected: boolean;
  messages: number;
}

/**
 * Messages whose noise has `scale` of the announced one (q of bits, the share of random answers), against the law at 1.
 *
 * There are so many messages that .9 of the noise is missed with probability below e^(−TAIL).
 */
export function verdict(method: "unary" | "response", scale: number, noise: Randomness): Verdict {
  const noisy = method === "unary" ? 1 / (1 + Math.E) : 1 - (Math.E - 1) / (Math.E + ITEMS.length);
  const words = (factor: number): number => WORD * (method === "unary" ? factor * noisy : 1 - factor * noisy);
  const law = chances(method, words(1));
  const degrees = method === "unary" ? law.length : law.length - 1;
  const shift = chances(method, words(0.9)).reduce((sum, p, i) => sum + (p - law[i]!) ** 2 / variance(method, law[i]!), 0);
  let messages = 1000;
  while (least(degrees, messages * shift) <= threshold(degrees)) messages += 1000;
  const told = encoder(method, words(scale));
  const seen = new Array<number>(law.length).fill(0);
  for (let i = 0; i < messages; i++) {
    const message = told.payload(EPISODE, noise);
    if (method === "response") seen[message[0]!]! += 1;
    else law.forEach((_, bit) => (seen[bit]! += (message[bit >> 3]! >> (7 - (bit & 7))) & 1));
  }
  const statistic = law.reduce((sum, p, i) => sum + (seen[i]! - messages * p) ** 2 / (messages * variance(method, p)), 0);
  return { statistic, threshold: threshold(degrees), rejected: statistic > threshold(degrees), messages };
}
