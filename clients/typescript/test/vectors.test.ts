/** What Python's devices send, byte for byte; and what it costs, to the last digit. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { Announcement, checkChain, coinsOf, Entry } from "../src/announcements.js";
import { checkCost, encoderOf } from "../src/encoders.js";
import { logOf, rint, roundedUp } from "../src/exact.js";
import { Replayed } from "../src/sampler.js";
import { fromBase64, fromHex, toHex, type Fields, type Json } from "../src/wire.js";

const VECTORS = new URL("../../../../tests/vectors/live/", import.meta.url);

type Vector = [encoder: number, states: Json, actions: Json, rewards: Json, words: string, payload: string];
interface Payloads {
  encoders: { encoder: Json; epsilon: string | null }[];
  vectors: Vector[];
}

function read<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(name, VECTORS), "utf8")) as T;
}

/** JSON has no words for these. */
const SAID: { [text: string]: number } = { Infinity, "-Infinity": -Infinity, NaN };

function said(part: Json): unknown {
  return Array.isArray(part) ? part.map((value) => (typeof value === "string" ? (SAID[value] ?? value) : value)) : part;
}

/** m and k of the double m·2^k. */
function parts(value: number): [bigint, bigint] {
  let exponent = 0n;
  while (!Number.isInteger(value)) [value, exponent] = [value * 2, exponent - 1n];
  return [BigInt(value), exponent];
}

/** The next smaller double, of a positive one. */
function before(value: number): number {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigUint64(0, view.getBigUint64(0) - 1n);
  return view.getFloat64(0);
}

/** ⌊value·2¹⁰⁰⌋. */
function scaled(value: number): bigint {
  const [digits, exponent] = parts(value);
  return exponent + 100n >= 0n ? digits << (exponent + 100n) : digits >> -(exponent + 100n);
}

const { encoders, vectors } = read<Payloads>("payloads.json");

test("a thousand payloads are those of Python", () => {
  assert.equal(vectors.length, 1000);
  vectors.forEach(([which, states, actions, rewards, words, payload], i) => {
    const noise = new Replayed(words.split(" ").filter(Boolean).map((word) => BigInt(`0x${word}`)));
    const sent = encoderOf(encoders[which]!.encoder).payload([said(states), said(actions), said(rewards)], noise);
    assert.equal(toHex(sent as Uint8Array), payload, `vector ${i}`);
    assert.equal(noise.left, 0, `vector ${i} leaves words`);
  });
});

test("what encoders cost is the least double that is not below the truth", () => {
  let finite = 0;
  for (const { encoder, epsilon } of encoders) {
    const cost = encoderOf(encoder).epsilon;
    if (epsilon === null) {
      assert.equal(cost, Infinity);
    } else if (epsilon === "0") {
      assert(cost >= 0 && cost < 2 ** -60);
    } else {
      finite += 1;
      assert(scaled(cost) >= BigInt(epsilon), `${cost} is below the truth`);
      assert(scaled(before(cost)) <= BigInt(epsilon), `${cost} is not the least`);
    }
  }
  assert(finite >= 10);
});

test("a limit is a limit to the last digit", () => {
  const { encoder } = encoders.find((each) => each.epsilon !== null && each.epsilon !== "0")!;
  const told = encoderOf(encoder);
  checkCost(told, told.epsilon);
  for (const limit of [before(told.epsilon), 0, NaN]) assert.throws(() => checkCost(told, limit), /nothing was sent/);
});

test("logarithms are rounded up", () => {
  assert.equal(logOf(1n, 1n), 0);
  assert.equal(logOf(5n, 0n), Infinity);
  for (const [n, d, truth] of [[2n, 1n, Math.LN2], [10n, 1n, Math.LN10], [1n << 64n, 1n, 64 * Math.LN2]] as const) {
    assert(Math.abs(logOf(n, d) - truth) <= 2 ** -52 * truth);
  }
  assert.equal(roundedUp(1n, 3n), 0.33333333333333337);
  assert.equal(roundedUp(1n, 4n), 0.25);
  assert.equal(roundedUp((1n << 53n) + 1n, 1n), 2 ** 53 + 2);
});

test("halves go to the even neighbour", () => {
  const told = [0.5, 1.5, 2.5, -0.5, 0.49999999999999994, 2 ** 52 + 1, 4503599627370495.5].map(rint);
  assert.deepEqual(told, [0, 2, 2, 0, 0, 2 ** 52 + 1, 4503599627370496]);
});

test("what is not an encoder, to the letter, is refused", () => {
  const good = encoders[2]!.encoder as Fields;
  const tables = good["tables"] as Fields;
  const broken: Json[] = [
    null,
    [],
    {},
    { ...good, encoder: "laplace" },
    { ...good, encoder: "constructor" },
    { ...good, more: 1 },
    { ...good, words: 0.5 },
    { ...good, words: -1 },
    { ...good, words: String(1n << 63n) },
    { ...good, words: "01" },
    { ...good, method: "binary" },
    { ...good, version: 1 },
    { ...good, items: [] },
    { ...good, items: [1, 1] },
    { ...good, items: [10 ** 6] },
    { ...good, items: [-1] },
    { ...good, has_start: 1 },
    { ...good, tables: { ...tables, grid: 0.3 } },
    { ...good, tables: { ...tables, grid: 2 } },
    { ...good, tables: { ...tables, grid: 0 } },
    { ...good, tables: { ...tables, stages: 7 } },
    { ...good, tables: { ...tables, horizon: 0 } },
    { ...good, tables: { ...tables, reward_range: [1, 1] } },
    { ...good, tables: { ...tables, reward_range: [0, 1, 2] } },
    { ...good, tables: { ...tables, num_states: 2 ** 40 } },
  ];
  encoderOf(good);
  for (const message of broken) assert.throws(() => encoderOf(message), /./);
  const { words: _, ...less } = good;
  assert.throws(() => encoderOf(less), /exactly the fields/);
});

// The log ------------------------------------------------------------------------------------------------------------

interface Log {
  key: string;
  entries: Fields[];
  heads: string[];
  coins: { [ticket: string]: number[] };
  actions: [step: number, coin: number, first: number, second: number][];
}

const log = read<Log>("log.json");
const key = fromBase64("key", log.key);

test("the log of Python is read and checked", async () => {
  const entries = await Promise.all(log.entries.map(Entry.fromJson));
  assert.deepEqual(entries.map((entry) => entry.head), log.heads);
  assert.equal(await checkChain(entries, key, 0, "0".repeat(64)), log.heads.at(-1));
  assert.equal((entries[0]!.event["charter"] as Fields)["name"], "größe");
  const announced = Announcement.fromEvent(entries[1]!.event);
  for (const [step, coin, ...actions] of log.actions) {
    assert.deepEqual([0, 1].map((state) => announced.action(step, state, true, coin)), actions);
  }
  assert.equal(announced.action(1, 0, false, 0), 2);
});

test("a changed, dropped or reordered entry is refused", async () => {
  const start = "0".repeat(64);
  const changed = (i: number, name: string, value: Json) => log.entries.map((e, j) => (i === j ? { ...e, [name]: value } : e));
  const swapped = [log.entries[0]!, log.entries[2]!, log.entries[1]!];
  const other = toHex(crypto.getRandomValues(new Uint8Array(32)));
  const body = btoa('{"event":"retired"}');
  const shorter = [log.entries.slice(1), log.entries.filter((_, i) => i !== 2)];
  const others = [changed(1, "previous", other), changed(2, "body", body), changed(0, "number", 1)];
  for (const messages of [swapped, ...shorter, ...others, changed(3, "signature", btoa("\0".repeat(64)))]) {
    const entries = await Promise.all(messages.map(Entry.fromJson));
    await assert.rejects(checkChain(entries, key, 0, start), /broken|signature/);
  }
  for (const [name, value] of [["number", -1], ["body", "%"], ["previous", "00"], ["body", btoa("[]")]] as const) {
    await assert.rejects(Entry.fromJson({ ...log.entries[0]!, [name]: value }), /./);
  }
});

test("a ticket's coins are those of Python", async () => {
  for (const [ticket, coins] of Object.entries(log.coins)) {
    assert.deepEqual(await coinsOf(fromHex("ticket", ticket, 16), coins.length), coins);
  }
});
