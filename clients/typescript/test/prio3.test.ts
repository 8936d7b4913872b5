/** The draft's own vectors, byte for byte; what is refused; and that sums of shares are sums of items. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";

import { MODULUS, decoded, encoded, isVector, roots } from "../src/field.js";
import * as prio3 from "../src/prio3.js";
import { InvalidReport, OneHot, Prio3Histogram, type VerifyState, bestChunkLength, randomBytes } from "../src/prio3.js";
import { TurboShake128 } from "../src/turboshake.js";

const VECTORS = new URL("../../../../tests/vectors/vdaf/", import.meta.url);
const CTX = new TextEncoder().encode("a task");
const KEY = Uint8Array.from({ length: 32 }, (_, i) => i);
const NONCE = Uint8Array.from({ length: 16 }, (_, i) => 100 + i);
const FLIPS = 10_000;

interface Report {
  measurement: number;
  nonce: string;
  rand: string;
  public_share: string;
  input_shares: string[];
  verifier_shares: [string[]];
  verifier_messages: [string];
  out_shares: string[];
}

interface Operation {
  operation: string;
  aggregator_id: number;
  report_index: number;
  success: boolean;
}

interface Vector {
  shares: number;
  length: number;
  chunk_length: number;
  ctx: string;
  verify_key: string;
  operations: Operation[];
  reports: Report[];
  agg_shares: string[];
  agg_result: number[];
}

function read(name: string): any {
  return JSON.parse(readFileSync(new URL(name, VECTORS), "utf8"));
}

function bytes(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

function hex(data: Uint8Array): string {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What an operation of a vector computes, and what it should. */
function runner(vector: Vector): (operation: Operation) => [unknown, unknown] {
  const scheme = new Prio3Histogram(vector.shares, vector.length, vector.chunk_length);
  const [ctx, key] = [bytes(vector.ctx), bytes(vector.verify_key)];
  const states = new Map<string, VerifyState>();
  return ({ operation, aggregator_id: server, report_index: index }) => {
    if (operation === "aggregate") {
      const shares = vector.reports.map((report) => bytes(report.out_shares[server]!));
      return [hex(scheme.aggregate(shares)), vector.agg_shares[server]];
    }
    if (operation === "unshard") return [scheme.unshard(vector.agg_shares.map(bytes)).map(Number), vector.agg_result];
    const report = vector.reports[index]!;
    const nonce = bytes(report.nonce);
    switch (operation) {
      case "shard": {
        const [published, inputs] = scheme.shard(ctx, report.measurement, nonce, bytes(report.rand));
        return [[hex(published), ...inputs.map(hex)], [report.public_share, ...report.input_shares]];
      }
      case "verify_init": {
        const input = bytes(report.input_shares[server]!);
        const [state, share] = scheme.verifyInit(key, ctx, server, nonce, bytes(report.public_share), input);
        states.set(`${index} ${server}`, state);
        return [hex(share), report.verifier_shares[0][server]];
      }
      case "verifier_shares_to_message":
        return [hex(scheme.verifierSharesToMessage(ctx, report.verifier_shares[0].map(bytes))), report.verifier_messages[0]];
      case "verify_next": {
        const state = states.get(`${index} ${server}`)!;
        return [hex(scheme.verifyNext(state, bytes(report.verifier_messages[0]))), report.out_shares[server]];
      }
      default:
        throw new Error(`unknown operation ${operation}`);
    }
  };
}

const names = readdirSync(VECTORS).filter((name) => name.startsWith("Prio3Histogram_"));

test("there are seven vectors", () => assert.equal(names.length, 7));

for (const name of names) {
  test(`the draft's vector ${name}`, () => {
    const vector: Vector = read(name);
    const result = runner(vector);
    let refused = 0;
    for (const operation of vector.operations) {
      if (operation.success) {
        const [computed, expected] = result(operation);
        assert.deepEqual(computed, expected, JSON.stringify(operation));
      } else {
        refused++;
        assert.throws(() => result(operation), InvalidReport);
      }
    }
    assert.equal(refused, Number(name.includes("_bad_")));
  });
}

test("the draft's vector of the XOF", () => {
  const vector = read("XofTurboShake128.json");
  const [seed, tag, binder] = [bytes(vector.seed), bytes(vector.dst), bytes(vector.binder)];
  assert.equal(hex(prio3.derived(seed, tag, binder)), vector.derived_seed);
  assert.equal(hex(prio3.expanded(seed, tag, binder, vector.length)), vector.expanded_vec_field128);
});

test("TurboSHAKE128 of RFC 9861, around the edges of its blocks", () => {
  const pattern = (length: number) => Uint8Array.from({ length }, (_, i) => i % 251);
  const known: [Uint8Array, number, string][] = [
    [new Uint8Array(0), 0x1f, "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"],
    [pattern(1), 0x1f, "55cedd6f60af7bb29a4042ae832ef3f58db7299f893ebb9247247d856958daa9"],
    [pattern(17), 0x1f, "9c97d036a3bac819db70ede0ca554ec6e4c2a1a4ffbfd9ec269ca6a111161233"],
    [Uint8Array.of(0xff, 0xff, 0xff), 0x01, "bf323f940494e88ee1c540fe660be8a0c93f43d15ec006998462fa994eed5dab"],
    [Uint8Array.of(0xff), 0x06, "8ec9c66465ed0d4a6c35d13506718d687a25cb05c74cca1e42501abd83874a67"],
  ];
  for (const [message, domain, output] of known) assert.equal(hex(new TurboShake128(message, domain).read(32)), output);
  const whole = new TurboShake128(pattern(168), 1).read(500);
  const stream = new TurboShake128(pattern(168), 1);
  assert.deepEqual([1, 167, 0, 168, 164].flatMap((length) => [...stream.read(length)]), [...whole]);
});

test("numbers from the modulus on are no elements: skipped by the sampler, refused in messages", () => {
  const numbers = [5n, MODULUS, 2n ** 128n - 1n, MODULUS - 1n, MODULUS + 1n, 2n ** 64n, 7n, 9n];
  let data = new Uint8Array(16 * numbers.length);
  numbers.forEach((x, i) => data.set(bytes(x.toString(16).padStart(32, "0")).reverse(), 16 * i));
  assert.deepEqual(decoded(data), numbers);
  assert(isVector(data.slice(48, 64), 1));
  assert(!isVector(data.slice(0, 32), 2) && !isVector(data.slice(32, 48), 1) && !isVector(data.slice(0, 16), 2));
  const take = (n: number) => {
    const taken = data.slice(0, n);
    data = data.slice(n);
    return taken;
  };
  assert.deepEqual(decoded(prio3.firstElements(take, 4)), [5n, MODULUS - 1n, 2n ** 64n, 7n]);
  assert.equal(data.length, 16);
});

interface Beliefs {
  keys?: Uint8Array[];
  contexts?: Uint8Array[];
  nonces?: Uint8Array[];
}

/** Output shares of a report that all servers verify, each by what it believes. */
function verified(scheme: Prio3Histogram, published: Uint8Array, inputs: Uint8Array[], beliefs: Beliefs = {}): Uint8Array[] {
  const [key, ctx, nonce] = [
    (i: number) => beliefs.keys?.[i] ?? KEY,
    (i: number) => beliefs.contexts?.[i] ?? CTX,
    (i: number) => beliefs.nonces?.[i] ?? NONCE,
  ];
  const begun = inputs.map((input, i) => scheme.verifyInit(key(i), ctx(i), i, nonce(i), published, input));
  const message = scheme.verifierSharesToMessage(ctx(0), begun.map(([, share]) => share));
  return begun.map(([state]) => scheme.verifyNext(state, message));
}

/** Seeded, so that a failure can be seen again: xorshift of 32 bits. */
function draws(seed: number): (below: number) => number {
  let x = seed;
  return (below) => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) % below;
  };
}

/** Verifications of one report after one flip: once in each of its messages, the servers' own included. */
function flips(scheme: Prio3Histogram, draw: (below: number) => number): (() => unknown)[] {
  const rand = Uint8Array.from({ length: scheme.randSize }, () => draw(256));
  const [published, inputs] = scheme.shard(CTX, draw(scheme.length), NONCE, rand);
  const begun = inputs.map((input, i) => scheme.verifyInit(KEY, CTX, i, NONCE, published, input));
  const [states, shares] = [begun.map(([state]) => state), begun.map(([, share]) => share)];
  const message = scheme.verifierSharesToMessage(CTX, shares);
  const ended = (some: Uint8Array[]) => {
    const combined = scheme.verifierSharesToMessage(CTX, some);
    return states.map((state) => scheme.verifyNext(state, combined));
  };
  assert.equal(ended(shares).length, scheme.shares);
  const flipped = (data: Uint8Array) => {
    const copy = data.slice();
    copy[draw(data.length)]! ^= 1 << draw(8);
    return copy;
  };
  const oneFlipped = (list: Uint8Array[], i: number) => list.map((data, j) => (i === j ? flipped(data) : data));
  return [
    () => verified(scheme, flipped(published), inputs),
    ...states.flatMap((state, i) => [
      () => verified(scheme, published, oneFlipped(inputs, i)),
      () => verified(scheme, published, inputs, { nonces: oneFlipped(inputs.map(() => NONCE), i) }),
      () => ended(oneFlipped(shares, i)),
      () => scheme.verifyNext(state, flipped(message)),
    ]),
  ];
}

test("no flipped bit of any message is accepted, of 10⁴", () => {
  const draw = draws(1);
  const schemes = [new Prio3Histogram(2, 7, 3), new Prio3Histogram(3, 5, 2)];
  for (let tried = 0; tried < FLIPS; ) {
    for (const attempt of schemes.flatMap((scheme) => flips(scheme, draw))) {
      assert.throws(attempt, InvalidReport);
      tried++;
    }
  }
});

test("what servers do not agree on is refused", () => {
  const scheme = new Prio3Histogram(2, 25, 4);
  const [published, inputs] = scheme.shard(CTX, 3, NONCE) as [Uint8Array, [Uint8Array, Uint8Array]];
  const [otherPublished, others] = scheme.shard(CTX, 3, NONCE) as [Uint8Array, [Uint8Array, Uint8Array]];
  const [elsewhere, zeros] = [new TextEncoder().encode("another"), new Uint8Array(16)];
  assert.equal(scheme.unshard(verified(scheme, published, inputs))[3], 1n);
  for (const refused of [
    () => verified(scheme, published, inputs, { keys: [KEY, new Uint8Array(32)] }),
    () => verified(scheme, published, inputs, { contexts: [elsewhere, elsewhere] }),
    () => verified(scheme, published, inputs, { nonces: [zeros, zeros] }),
    () => verified(scheme, published, [inputs[0], others[1]]),
    () => verified(scheme, otherPublished, inputs),
    () => verified(scheme, published, [inputs[1], inputs[1]]),
    () => verified(new Prio3Histogram(2, 24, 4), published, inputs),
    () => verified(new Prio3Histogram(2, 25, 5), published, inputs),
    () => verified(scheme, published.slice(1), inputs),
    () => verified(scheme, published, [inputs[0].slice(1), inputs[1]]),
    () => verified(scheme, published, [inputs[0], inputs[1].slice(1)]),
    () => scheme.verifierSharesToMessage(CTX, []),
    () => scheme.aggregate([encoded([1n])]),
  ]) {
    assert.throws(refused, InvalidReport);
  }
});

test("a verdict that is not zero, or a gadget that is not its wires', is refused", () => {
  const circuit = new OneHot(4, 2);
  const wires = [2n, 3n, MODULUS - 1n, 4n]; // 2·3 − 1·4
  assert(circuit.decide([0n, ...wires, 2n]));
  assert(!circuit.decide([1n, ...wires, 2n]));
  assert(!circuit.decide([0n, ...wires, 3n]));
});

test("a test point that is a root of unity is refused: a verifier share would show an input of the gadget", () => {
  const circuit = new OneHot(25, 4); // seven calls, eight points
  for (const root of roots(8)) assert.throws(() => circuit.refuseRoot(root), InvalidReport);
  for (const point of [0n, 2n, roots(16)[1]!]) circuit.refuseRoot(point);
  const scheme = new Prio3Histogram(2, 25, 4);
  const [published, inputs] = scheme.shard(CTX, 3, NONCE);
  const asked: bigint[] = [];
  const honest = OneHot.prototype.refuseRoot;
  OneHot.prototype.refuseRoot = (point) => void asked.push(point);
  verified(scheme, published, inputs);
  OneHot.prototype.refuseRoot = honest;
  const tag = Uint8Array.from([18, 0, 0, 0, 0, 4, 0, 5, ...CTX]);
  const point = decoded(prio3.expanded(KEY, tag, Uint8Array.from([1, ...NONCE]), 3))[2];
  assert.deepEqual(asked, [point, point]);
});

test("reports of all shapes are accepted, and are the item", () => {
  const shapes = [[2, 1, 1], [2, 1, 3], [3, 2, 1], [2, 7, 7], [4, 8, 3], [2, 9, 20], [255, 3, 2]] as const;
  for (const [shares, length, chunk] of shapes) {
    const scheme = new Prio3Histogram(shares, length, chunk);
    for (let item = 0; item < length; item++) {
      const [published, inputs] = scheme.shard(CTX, item, NONCE);
      const outs = verified(scheme, published, inputs);
      assert.deepEqual(scheme.unshard(outs).map(Number), Array.from({ length }, (_, i) => Number(i === item)));
    }
  }
});

test("settings out of range are refused", () => {
  for (const [shares, length, chunk] of [[1, 5, 2], [256, 5, 2], [2, 0, 1], [2, 5, 0], [2, 5.5, 1]] as const) {
    assert.throws(() => new Prio3Histogram(shares, length, chunk), RangeError);
  }
  const scheme = new Prio3Histogram(2, 5, 2);
  for (const item of [-1, 5, 1.5, NaN]) assert.throws(() => scheme.shard(CTX, item, NONCE), RangeError);
  assert.throws(() => scheme.shard(CTX, 1, NONCE.slice(1)), RangeError);
  assert.throws(() => scheme.shard(CTX, 1, NONCE, new Uint8Array(127)), RangeError);
  assert.throws(() => scheme.shard(new Uint8Array(2 ** 16 - 8), 1, NONCE), RangeError);
  assert.throws(() => scheme.unshard([new Uint8Array(80)]), RangeError);
});

test("sums of shares are the histogram", () => {
  const [draw, length] = [draws(3), 25];
  const scheme = new Prio3Histogram(2, length, bestChunkLength(length));
  const truth = new Array<bigint>(length).fill(0n);
  const servers: [Uint8Array[], Uint8Array[]] = [[], []];
  for (let person = 0; person < 100; person++) {
    const [item, nonce] = [draw(length), randomBytes(16)];
    truth[item]! += 1n;
    const [published, inputs] = scheme.shard(CTX, item, nonce);
    const sizes = [scheme.publicShareSize, scheme.leaderShareSize, scheme.helperShareSize];
    assert.deepEqual([published, ...inputs].map((message) => message.length), sizes);
    verified(scheme, published, inputs, { nonces: [nonce, nonce] }).forEach((out, i) => servers[i]!.push(out));
  }
  const whole = servers.map((shares) => scheme.aggregate(shares));
  assert.deepEqual(scheme.unshard(whole), truth);
  const portions = servers.map((s) => scheme.aggregate([scheme.aggregate(s.slice(0, 30)), ...s.slice(30)]));
  assert.deepEqual(portions, whole);
  const noise = truth.map((_, i) => BigInt(i - 40));
  const noised = [scheme.aggregate([whole[0]!, encoded(noise)]), whole[1]!];
  assert.deepEqual(scheme.unshard(noised), truth.map((count, i) => count + noise[i]!));
});

test("the best chunks are those of Python", () => {
  assert.deepEqual([1, 2, 3, 4, 10, 25, 100, 1000, 2001].map(bestChunkLength), [1, 2, 1, 2, 4, 4, 7, 33, 32]);
});
