/**
 * Prio3Histogram (§7 of draft-irtf-cfrg-vdaf-20, VERSION 18): servers add up items, and none of them sees one.
 *
 * A device splits the one-hot vector of its item into shares, one per server, with a proof. Each server queries its share
 * alone and tells the others its verifier share; it counts its share where all verifier shares together prove that it
 * belongs to one item. Messages are bytes, as the draft encodes them, and those of `discreet.vdaf` in Python.
 *
 * Not constant-time: BigInt, and tables looked up at a secret place (`OneHot.prove`). Who can time a device closely may
 * learn about its item.
 */

import { MODULUS, SIZE, basis, decoded, dot, encoded, inverse, isVector, modulo, power, roots, sum, total } from "./field.js";
import { TurboShake128 } from "./turboshake.js";

export const SEED_SIZE = 32;
export const NONCE_SIZE = 16;
const VERSION = 18;
const ALGORITHM = 4;
const LONGEST_TAG = 2 ** 16 - 1;
/** There is one proof per report, and the draft writes the number of them into binders. */
const ONE_PROOF = Uint8Array.of(1);

/** What randomness is for. */
const [MEASUREMENT, PROOF, JOINT, PROVE, QUERY, JOINT_SEED, JOINT_PART] = [1, 2, 3, 4, 5, 6, 7] as const;

/** A report, or a message about one, that must not be counted. Says nothing about what is in it. */
export class InvalidReport extends Error {
  override name = "InvalidReport";
}

/** What a server keeps of a report until the verifier message is there: its output share, the seed it expects. */
export interface VerifyState {
  readonly outShare: Uint8Array;
  readonly jointSeed: Uint8Array;
}

// Randomness: XofTurboShake128 (§6.2.1).

export function stream(seed: Uint8Array, tag: Uint8Array, binder: Uint8Array): TurboShake128 {
  const tagLength = Uint8Array.of(tag.length & 0xff, tag.length >> 8);
  return new TurboShake128(joined(tagLength, tag, Uint8Array.of(seed.length), seed, binder), 1);
}

export function derived(seed: Uint8Array, tag: Uint8Array, binder: Uint8Array): Uint8Array {
  return stream(seed, tag, binder).read(SEED_SIZE);
}

export function expanded(seed: Uint8Array, tag: Uint8Array, binder: Uint8Array, length: number): Uint8Array {
  const source = stream(seed, tag, binder);
  return firstElements((n) => source.read(n), length);
}

/** The first so many 16 bytes of a stream that are below p (28·2⁶⁴ of 2¹²⁸ are not). */
export function firstElements(read: (bytes: number) => Uint8Array, length: number): Uint8Array {
  const data = read(SIZE * length);
  if (isVector(data, length)) return data;
  const vector = decoded(data).filter((x) => x < MODULUS);
  while (vector.length < length) vector.push(...decoded(read(SIZE)).filter((x) => x < MODULUS));
  return encoded(vector);
}

// The proof that a secret-shared vector has a single one and zeros else (§7.3, §7.4.4); the mathematics is in vdaf/flp.py.

function pointsOf(calls: number): number {
  let points = 1;
  while (points < calls + 1) points *= 2;
  return points;
}

function proofLength(length: number, chunkLength: number): number {
  return 2 * chunkLength + 2 * pointsOf(Math.ceil(length / chunkLength)) - 1;
}

/** The least chunk length among those with the shortest proof. */
export function bestChunkLength(length: number): number {
  let best = length;
  for (let points = 2; points <= 2 * length; points *= 2) {
    const c = Math.ceil(length / (points - 1));
    if (proofLength(length, c) <= proofLength(length, best)) best = c;
  }
  return best;
}

/** The circuit of vectors of `length` elements, read in chunks of `chunkLength`. */
export class OneHot {
  readonly length: number;
  readonly chunkLength: number;
  readonly calls: number;
  readonly points: number;
  readonly proofLength: number;
  readonly verifierLength: number;
  #tables: [bigint[], bigint[]] | undefined;

  constructor(length: number, chunkLength: number) {
    this.length = length;
    this.chunkLength = chunkLength;
    this.calls = Math.ceil(length / chunkLength);
    this.points = pointsOf(this.calls);
    this.proofLength = proofLength(length, chunkLength);
    this.verifierLength = 2 * chunkLength + 2;
  }

  /** L₀ and U = L₁ + … + L_G, those of order P, at the roots of order 2P. */
  get #atRoots(): [bigint[], bigint[]] {
    if (this.#tables === undefined) {
      const [n, factor] = [2 * this.points, -2n * inverse(BigInt(this.points))]; // (x^P − 1)/P at odd powers
      const zeroth = roots(n).map((x, i) => (i % 2 ? modulo(factor * inverse(x - 1n)) : BigInt(i === 0)));
      const others = zeroth.map((_, i) =>
        modulo(sum(Array.from({ length: this.calls }, (_, k) => zeroth[(i - 2 * (k + 1) + n) % n]!))),
      );
      this.#tables = [zeroth, others];
    }
    return this.#tables;
  }

  /** For the vector whose one is at `item`; `seeds` are one random element per wire, `joint` one per chunk. */
  prove(item: number, seeds: bigint[], joint: bigint[]): bigint[] {
    const [chunk, j] = [Math.floor(item / this.chunkLength), item % this.chunkLength];
    const [left, right] = [everySecond(seeds, 0), everySecond(seeds, 1)];
    const r = power(joint[chunk]!, BigInt(j + 1));
    const [squares, sides, own, opposite] = [dot(left, right), sum(left) % MODULUS, left[j]!, right[j]!];
    const [zeroth, others] = this.#atRoots;
    const n = 2 * this.points;
    const polynomial = zeroth.slice(0, -1).map((a, i) => {
      const [b, c] = [others[i]!, zeroth[(i - 2 * (chunk + 1) + n) % n]!]; // with a: U, L_k, L₀ at wⁱ
      const hers = own * a + r * modulo(opposite * a - b + c);
      return modulo(a * modulo(squares * a - sides * b) + c * hers);
    });
    return [...seeds, ...polynomial];
  }

  /** One server's share of what `decide` needs, from its shares of the vector and the proof. */
  query(vector: bigint[], proof: bigint[], query: bigint[], joint: bigint[], shares: number): bigint[] {
    const [G, c, P] = [this.calls, this.chunkLength, this.points];
    const [forRange, forSum, t] = query as [bigint, bigint, bigint];
    const [one, w, values] = [inverse(BigInt(shares)), roots(2 * P), proof.slice(2 * c)];
    values.push(modulo(-w[1]! * dot(values, w))); // no term of degree 2P − 1
    const checked = everySecond(values, 2).slice(0, G);
    const weights = basis(P, t);
    const wires = proof.slice(0, 2 * c).map((seed) => seed * weights[0]!);
    joint.forEach((r, k) => {
      const weight = weights[k + 1]!;
      let rising = weight;
      vector.slice(k * c, (k + 1) * c).forEach((x, j) => {
        rising = (rising * r) % MODULUS;
        wires[2 * j]! += rising * x;
        wires[2 * j + 1]! += weight * x;
      });
    });
    const ones = one * sum(weights.slice(1, G + 1));
    for (let j = 0; j < c; j++) wires[2 * j + 1]! -= ones;
    const verdict = forRange * sum(checked) + forSum * (sum(vector) - one);
    return [verdict, ...wires, dot(values, basis(2 * P, t))].map(modulo);
  }

  /** Whether the sum of all shares of `query` is that of a one-hot vector. */
  decide(verifier: bigint[]): boolean {
    const wires = verifier.slice(1, -1);
    return verifier[0] === 0n && dot(everySecond(wires, 0), everySecond(wires, 1)) === verifier.at(-1);
  }

  /** At a root of unity a verifier would show an input of the gadget; it happens with probability P/2¹²⁸. */
  refuseRoot(t: bigint): void {
    if (power(t, BigInt(this.points)) === 1n) {
      throw new InvalidReport("the test point of this report is a root of unity; expected any other");
    }
  }
}

/** Histograms of `length` buckets by `shares` servers, of which number 0 is the leader. */
export class Prio3Histogram {
  readonly shares: number;
  readonly length: number;
  readonly chunkLength: number;
  readonly #circuit: OneHot;

  constructor(shares: number, length: number, chunkLength: number) {
    if (!Number.isInteger(shares) || shares < 2 || shares > 255) {
      throw new RangeError(`${shares} shares are asked for; expected 2 to 255`);
    }
    if (!Number.isInteger(length) || !Number.isInteger(chunkLength) || length < 1 || chunkLength < 1) {
      throw new RangeError(`${length} buckets in chunks of ${chunkLength} are asked for; expected at least 1 of both`);
    }
    [this.shares, this.length, this.chunkLength] = [shares, length, chunkLength];
    this.#circuit = new OneHot(length, chunkLength);
  }

  // Sizes of messages, in bytes.

  get randSize(): number {
    return 2 * SEED_SIZE * this.shares;
  }

  get publicShareSize(): number {
    return SEED_SIZE * this.shares;
  }

  get leaderShareSize(): number {
    return SIZE * (this.length + this.#circuit.proofLength) + SEED_SIZE;
  }

  get helperShareSize(): number {
    return 2 * SEED_SIZE;
  }

  get verifierShareSize(): number {
    return SIZE * this.#circuit.verifierLength + SEED_SIZE;
  }

  get verifierMessageSize(): number {
    return SEED_SIZE;
  }

  get aggShareSize(): number {
    return SIZE * this.length;
  }

  // Devices.

  /**
   * The public share and every server's input share of one item; `rand` is fresh where it is not given. Both it and the
   * nonce must be drawn at random for every report: `randomBytes(NONCE_SIZE)`.
   */
  shard(ctx: Uint8Array, item: number, nonce: Uint8Array, rand?: Uint8Array): [Uint8Array, Uint8Array[]] {
    const drawn = rand ?? randomBytes(this.randSize);
    if (!Number.isInteger(item) || item < 0 || item >= this.length) {
      throw new RangeError(`the item is not among the ${this.length} buckets; expected 0 to ${this.length - 1}`);
    }
    if (nonce.length !== NONCE_SIZE || drawn.length !== this.randSize) {
      throw new RangeError(
        `a nonce of ${nonce.length} and randomness of ${drawn.length} bytes are given; ` +
          `expected ${NONCE_SIZE} and ${this.randSize}`,
      );
    }
    const all = seedsOf(drawn);
    const [leaderBlind, proveSeed] = all.slice(-2) as [Uint8Array, Uint8Array];
    const [seeds, helperBlinds] = [everySecond(all.slice(0, -2), 0), everySecond(all.slice(0, -2), 1)];
    const masks = seeds.map((seed, i) => this.#expanded(ctx, i + 1, seed));
    const vector = new Array<bigint>(this.length).fill(0n);
    vector[item] = 1n;
    const measurements = [without(vector, masks.map(([mask]) => mask)), ...masks.map(([mask]) => mask)];
    const parts = [leaderBlind, ...helperBlinds].map((blind, i) =>
      this.#jointPart(ctx, i, blind, measurements[i]!, nonce),
    );
    const wires = expanded(proveSeed, tagOf(PROVE, ctx), ONE_PROOF, 2 * this.chunkLength);
    const joint = this.#joint(ctx, jointSeedOf(ctx, parts));
    const proof = this.#circuit.prove(item, decoded(wires), decoded(joint));
    const leader = joined(measurements[0]!, without(proof, masks.map(([, mask]) => mask)), leaderBlind);
    return [joined(...parts), [leader, ...seeds.map((seed, i) => joined(seed, helperBlinds[i]!))]];
  }

  // Servers.

  /** Server `aggId`'s state and its verifier share, which all servers must see. */
  verifyInit(
    verifyKey: Uint8Array,
    ctx: Uint8Array,
    aggId: number,
    nonce: Uint8Array,
    publicShare: Uint8Array,
    inputShare: Uint8Array,
  ): [VerifyState, Uint8Array] {
    if (verifyKey.length !== SEED_SIZE) {
      throw new RangeError(`the verification key has ${verifyKey.length} bytes; expected ${SEED_SIZE}`);
    }
    if (!Number.isInteger(aggId) || aggId < 0 || aggId >= this.shares) {
      throw new RangeError(`there is no server ${aggId}; expected 0 to ${this.shares - 1}`);
    }
    if (nonce.length !== NONCE_SIZE || publicShare.length !== this.publicShareSize) {
      throw new InvalidReport(
        `nonce and public share have ${nonce.length} and ${publicShare.length} bytes; ` +
          `expected ${NONCE_SIZE} and ${this.publicShareSize}`,
      );
    }
    const [measurement, proof, blind] = this.#opened(ctx, aggId, inputShare);
    const part = this.#jointPart(ctx, aggId, blind, measurement, nonce);
    const parts = seedsOf(publicShare);
    parts[aggId] = part; // what the device claims about this server's own part is not believed
    const jointSeed = jointSeedOf(ctx, parts);
    const query = decoded(expanded(verifyKey, tagOf(QUERY, ctx), joined(ONE_PROOF, nonce), 3));
    this.#circuit.refuseRoot(query[2]!);
    const joint = decoded(this.#joint(ctx, jointSeed));
    const verifier = this.#circuit.query(decoded(measurement), decoded(proof), query, joint, this.shares);
    return [{ outShare: measurement, jointSeed }, joined(encoded(verifier), part)];
  }

  /** The verifier message, where the shares of all servers (in their order) prove that there is one item. */
  verifierSharesToMessage(ctx: Uint8Array, verifierShares: readonly Uint8Array[]): Uint8Array {
    const length = this.#circuit.verifierLength;
    const split = verifierShares.map((share) => splitOf(share, length, "verifier share"));
    if (split.length !== this.shares) {
      throw new InvalidReport(`there are ${split.length} verifier shares; expected ${this.shares}`);
    }
    const verifier = total(split.map(([vector]) => vector), length);
    if (!this.#circuit.decide(decoded(verifier))) {
      throw new InvalidReport("the proof of this report does not hold; expected shares of one item");
    }
    return jointSeedOf(ctx, split.map(([, part]) => part));
  }

  /** The output share, to be counted, where the verifier message holds what this server expects. */
  verifyNext(state: VerifyState, message: Uint8Array): Uint8Array {
    if (!equal(state.jointSeed, message)) {
      throw new InvalidReport("the joint randomness of this report is not that of all servers; expected their common seed");
    }
    return state.outShare;
  }

  /** The sum of output shares, or of aggregate shares of the same server: an aggregate share. */
  aggregate(shares: readonly Uint8Array[]): Uint8Array {
    for (const share of shares) check(share, this.length, "share to be added");
    return total(shares, this.length);
  }

  /** The histogram, from the aggregate shares of all servers; noise may have made it negative. */
  unshard(aggShares: readonly Uint8Array[]): bigint[] {
    if (aggShares.length !== this.shares) {
      throw new RangeError(`there are ${aggShares.length} aggregate shares; expected ${this.shares}`);
    }
    return decoded(this.aggregate(aggShares)).map((x) => (x <= MODULUS / 2n ? x : x - MODULUS));
  }

  /** A helper's shares of vector and proof. */
  #expanded(ctx: Uint8Array, aggId: number, seed: Uint8Array): [Uint8Array, Uint8Array] {
    const server = Uint8Array.of(aggId);
    return [
      expanded(seed, tagOf(MEASUREMENT, ctx), server, this.length),
      expanded(seed, tagOf(PROOF, ctx), joined(ONE_PROOF, server), this.#circuit.proofLength),
    ];
  }

  #jointPart(ctx: Uint8Array, aggId: number, blind: Uint8Array, measurement: Uint8Array, nonce: Uint8Array): Uint8Array {
    return derived(blind, tagOf(JOINT_PART, ctx), joined(Uint8Array.of(aggId), nonce, measurement));
  }

  #joint(ctx: Uint8Array, seed: Uint8Array): Uint8Array {
    return expanded(seed, tagOf(JOINT, ctx), ONE_PROOF, this.#circuit.calls);
  }

  /** Shares of vector and proof, and the blind. */
  #opened(ctx: Uint8Array, aggId: number, inputShare: Uint8Array): [Uint8Array, Uint8Array, Uint8Array] {
    if (aggId === 0) {
      const [vector, blind] = splitOf(inputShare, this.length + this.#circuit.proofLength, "leader's input share");
      return [vector.slice(0, this.aggShareSize), vector.slice(this.aggShareSize), blind];
    }
    if (inputShare.length !== this.helperShareSize) {
      throw new InvalidReport(`a helper's input share has ${inputShare.length} bytes; expected ${this.helperShareSize}`);
    }
    const [seed, blind] = seedsOf(inputShare) as [Uint8Array, Uint8Array];
    return [...this.#expanded(ctx, aggId, seed), blind];
  }
}

/** From the browser's or Node's own generator. */
export function randomBytes(length: number): Uint8Array {
  return globalThis.crypto.getRandomValues(new Uint8Array(length));
}

function tagOf(usage: number, ctx: Uint8Array): Uint8Array {
  const tag = joined(Uint8Array.of(VERSION, 0, 0, 0, 0, ALGORITHM, 0, usage), ctx);
  if (tag.length > LONGEST_TAG) {
    throw new RangeError(`the context has ${ctx.length} bytes; expected at most ${LONGEST_TAG - 8}`);
  }
  return tag;
}

function jointSeedOf(ctx: Uint8Array, parts: readonly Uint8Array[]): Uint8Array {
  return derived(new Uint8Array(SEED_SIZE), tagOf(JOINT_SEED, ctx), joined(...parts));
}

function check(vector: Uint8Array, length: number, what: string): void {
  if (!isVector(vector, length)) {
    throw new InvalidReport(`a ${what} is not a vector of ${length} field elements, as it was expected to be`);
  }
}

/** A vector, and the seed behind it. */
function splitOf(message: Uint8Array, length: number, what: string): [Uint8Array, Uint8Array] {
  const [vector, seed] = [message.slice(0, SIZE * length), message.slice(SIZE * length)];
  check(vector, length, what);
  if (seed.length !== SEED_SIZE) {
    throw new InvalidReport(`a ${what} ends with ${seed.length} bytes; expected a seed of ${SEED_SIZE}`);
  }
  return [vector, seed];
}

/** The leader's share: the vector minus all others' shares. */
function without(vector: readonly bigint[], masks: readonly Uint8Array[]): Uint8Array {
  const others = decoded(total(masks, vector.length));
  return encoded(vector.map((x, i) => x - others[i]!));
}

function seedsOf(data: Uint8Array): Uint8Array[] {
  return Array.from({ length: data.length / SEED_SIZE }, (_, i) => data.slice(SEED_SIZE * i, SEED_SIZE * (i + 1)));
}

function everySecond<Type>(list: readonly Type[], first: number): Type[] {
  return list.filter((_, i) => i >= first && (i - first) % 2 === 0);
}

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Looks at all bytes, whether or not the first differ. */
function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.reduce((difference, x, i) => difference | (x ^ b[i]!), 0) === 0;
}
