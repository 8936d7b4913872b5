/**
 * What runs on a user's own device: one episode in, one report out.
 *
 * The device trusts no number it is given: it computes the ε of what it is asked to send from the announcement alone and
 * refuses more than it was allowed. Any record can be encoded: one that cannot be read is sent like an episode in which
 * nothing happened. The twin of discreet/device in Python, byte for byte given the same words.
 */

import { logOf, rint } from "./exact.js";
import { sealed } from "./hpke.js";
import { NONCE_SIZE, Prio3Histogram, randomBytes } from "./prio3.js";
import { below, biased, unary, WORD, type Randomness } from "./sampler.js";
import {
  bytesOf,
  fieldsOf,
  fromHex,
  isObject,
  joined,
  listOf,
  Malformed,
  pythonFloat,
  realNumber,
  Refused,
  smallNumber,
  smallNumbers,
  text,
  toHex,
  truth,
  wholeNumber,
  type Bytes,
  type Json,
} from "./wire.js";

const LARGEST = 1n << 61n;

/** States (one more than actions), actions and rewards of one person: anything at all. */
export type Episode = readonly [unknown, unknown, unknown];
type Readable = readonly [number[], number[], number[]];
type Step = { cell: number; successor: number; units: bigint };

function numbers(values: unknown): number[] | null {
  if (!Array.isArray(values) && !ArrayBuffer.isView(values)) return null;
  const list: unknown[] = Array.from(values as unknown as ArrayLike<unknown>);
  return list.every((value) => typeof value === "number" || typeof value === "boolean") ? list.map(Number) : null;
}

function allInside(values: number[], limit: number): boolean {
  return values.every((value) => Number.isInteger(value) && value >= 0 && value < limit);
}

/** Public description of the tables reports are about; stages = 1 when steps are pooled over time. */
export class Tables {
  private constructor(
    readonly numStates: number,
    readonly numActions: number,
    readonly horizon: number,
    readonly stages: number,
    readonly grid: number,
    readonly low: number,
    readonly high: number,
  ) {}

  static fromJson(message: Json | undefined): Tables {
    const names = ["num_states", "num_actions", "horizon", "stages", "grid", "reward_range"];
    const fields = fieldsOf("a description of tables", message, ...names);
    const [S, A, H, G] = ["num_states", "num_actions", "horizon", "stages"].map((name) =>
      smallNumber(name, fields[name]),
    ) as [number, number, number, number];
    const grid = realNumber("grid", fields["grid"]);
    const range = listOf("reward_range", fields["reward_range"], 2);
    const [low, high] = range.map((end) => realNumber("reward_range", end)) as [number, number];
    if (Math.min(S, A, H) < 1 || (G !== 1 && G !== H)) {
      throw new Malformed("tables need at least one state, action and step, and 1 or `horizon` stages");
    }
    if (!(low < high && Number.isFinite(high - low))) {
      throw new Malformed("reward_range is not two finite numbers, the lower one first");
    }
    if (!(grid > 0 && grid <= 1 && Number.isInteger(Math.log2(grid)) && 2 ** Math.log2(grid) === grid)) {
      throw new Malformed("grid is not a power of two, at most 1");
    }
    const tables = new Tables(S, A, H, G, grid, low, high);
    const items = 2n * BigInt(S) * (BigInt(G) * BigInt(S) * BigInt(A) + 1n);
    if (BigInt(H) * tables.rewardUnits >= LARGEST || items > BigInt(Number.MAX_SAFE_INTEGER)) {
      throw new Malformed("the tables are too large for this client; use a coarser grid or fewer states");
    }
    return tables;
  }

  /** Largest reward in grid units, once the reward range has been scaled to [0, 1]. */
  get rewardUnits(): bigint {
    return BigInt(1 / this.grid);
  }

  /** Cells (g,s,a). */
  get cells(): number {
    return this.stages * this.numStates * this.numActions;
  }

  cell(step: number, state: number, action: number): number {
    return (Math.min(step, this.stages - 1) * this.numStates + state) * this.numActions + action;
  }

  /** One person's episode, n actions, n rewards and n + 1 states; null if it cannot be read. */
  read([states, actions, rewards]: Episode): Readable | null {
    const [s, a, r] = [numbers(states), numbers(actions), numbers(rewards)];
    if (!s || !a || !r || a.length > this.horizon || r.length !== a.length || s.length !== a.length + 1) return null;
    if (!allInside(s, this.numStates) || !allInside(a, this.numActions) || r.some(Number.isNaN)) return null;
    return [s, a, r];
  }

  /** A reward, clipped to the range, in whole grid units: half a unit goes to the even one. */
  units(reward: number): bigint {
    const clipped = Math.min(Math.max(reward, this.low), this.high);
    return BigInt(rint((clipped - this.low) / (this.high - this.low) / this.grid));
  }

  steps([states, actions, rewards]: Readable): Step[] {
    return actions.map((action, h) => ({
      cell: this.cell(h, states[h]!, action),
      successor: states[h + 1]!,
      units: this.units(rewards[h]!),
    }));
  }
}

/**
 * At most one item per episode: her first visit to a wanted cell, as (cell, successor, reward bit).
 *
 * Items are 2S·cell + 2·s' + bit, increasing; an outcome that is not among them counts as no report. With `hasStart` the
 * cell after all others is where she started; without `lastSuccessor` the item of the last step carries no successor.
 */
export class FirstVisit {
  static readonly names = ["tables", "items", "has_start", "last_successor"];
  readonly tables: Tables;
  readonly items: readonly number[];
  readonly hasStart: boolean;
  readonly lastSuccessor: boolean;
  readonly wanted: ReadonlySet<number>;
  private readonly place: ReadonlyMap<number, number>;

  constructor(fields: { [name: string]: Json }) {
    this.tables = Tables.fromJson(fields["tables"]);
    this.items = smallNumbers("items", fields["items"]);
    this.hasStart = truth("has_start", fields["has_start"]);
    this.lastSuccessor = truth("last_successor", fields["last_successor"]);
    const width = 2 * this.tables.numStates;
    if (this.items.length === 0 || this.items.some((item, i) => i > 0 && item <= this.items[i - 1]!)) {
      throw new Malformed("items must be increasing, and there must be at least one");
    }
    const end = width * (this.tables.cells + Number(this.hasStart));
    if (this.items[0]! < 0 || this.items.at(-1)! >= end) {
      throw new Malformed(`an item lies outside 0..${end - 1}, the sub-cells of the tables`);
    }
    this.wanted = new Set(this.items.map((item) => Math.floor(item / width)));
    this.place = new Map(this.items.map((item, place) => [item, place]));
  }

  /** Whether where she started is what is asked for. */
  get asksStart(): boolean {
    return this.hasStart && this.wanted.has(this.tables.cells);
  }

  /**
   * Place of her item among `items`, −1 for none: raw, it stays on the device unless its server is trusted.
   *
   * Her coin is tossed in any case, and the step is chosen before its outcome is looked at.
   */
  answer(episode: Episode, noise: Randomness): number {
    const coin = below(noise, this.tables.rewardUnits);
    const read = this.tables.read(episode);
    return (read && this.place.get(this.item(read, coin))) ?? -1;
  }

  private item(episode: Readable, coin: bigint): number {
    const { numStates: S, cells, horizon } = this.tables;
    if (this.asksStart) return 2 * S * cells + 2 * episode[0][0]!;
    const steps = this.tables.steps(episode);
    const h = steps.findIndex((step) => this.wanted.has(step.cell));
    if (h < 0) return -1;
    const { cell, successor, units } = steps[h]!;
    const ends = h === horizon - 1 && !this.lastSuccessor;
    return 2 * (cell * S + (ends ? 0 : successor)) + (coin < units ? 1 : 0);
  }
}

/** What a report is made with. */
export interface Encoder {
  readonly kind: string;
  readonly tables: Tables;
  /** Cells whose first visit settles the report; null where the whole episode is reported. */
  readonly visits: FirstVisit | null;
  /** Largest log-ratio of the probability of a message between any two records, rounded up. */
  readonly epsilon: number;
  /** Later where it has to be sealed. */
  payload(episode: Episode, noise: Randomness): Bytes | Promise<Bytes>;
}

/** Refuse to spend more than the device was given, also when that is not a number. */
export function checkCost(encoder: Encoder, epsilonAtMost: number): void {
  if (!(encoder.epsilon <= epsilonAtMost)) {
    throw new Refused(
      `the encoder costs epsilon = ${encoder.epsilon}, more than the ${epsilonAtMost} this device may spend; ` +
        "nothing was sent",
    );
  }
}

/**
 * Her first visit to a target as one of `items`, or "none", randomised.
 *
 * `unary`: a bit per item, on with probability ½ at her item and q = words/2⁶⁴ elsewhere; none has no item.
 * `response`: her answer (an item or none) with probability words/2⁶⁴, else one of all D answers, drawn evenly.
 */
export class ReportEncoder extends FirstVisit implements Encoder {
  static readonly kind = "first-visit";
  readonly kind = ReportEncoder.kind;
  readonly visits = this;
  readonly method: "unary" | "response";
  readonly words: bigint;
  readonly epsilon: number;

  constructor(message: Json) {
    const fields = fieldsOf("a first-visit encoder", message, "encoder", ...FirstVisit.names, "method", "words", "version");
    super(fields);
    const method = text("method", fields["method"]);
    text("version", fields["version"]);
    this.words = wholeNumber("words", fields["words"]);
    if (method !== "unary" && method !== "response") throw new Malformed("method is neither 'unary' nor 'response'");
    this.method = method;
    if (this.words < 0n || this.words >= (method === "unary" ? WORD / 2n : WORD)) {
      throw new Malformed("words is not a share of 2⁶⁴, below one half for unary encoding");
    }
    // ln((1−q)/q) of a bit; ln(1 + w·D/(1−w)) of one of D answers.
    const D = BigInt(this.items.length + 1);
    this.epsilon =
      method === "unary"
        ? logOf(WORD - this.words, this.words)
        : logOf(WORD - this.words + this.words * D, WORD - this.words);
  }

  payload(episode: Episode, noise: Randomness): Bytes {
    const place = this.answer(episode, noise);
    const size = this.items.length;
    if (this.method === "unary") return packed(unary(place, size, this.words, noise));
    const truthful = biased(noise, this.words);
    const other = below(noise, BigInt(size + 1));
    return bytesOf(truthful ? (place < 0 ? size : place) : other, 8, "little");
  }
}

/** Bits as bytes, the first bit the highest of its byte. */
function packed(bits: Uint8Array): Bytes {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((bit, i) => (bytes[i >> 3]! |= bit << (7 - (i & 7))));
  return bytes;
}

// Told to a trusted curator ------------------------------------------------------------------------------------------

/** Her first visit to a target as it is: the place of her item in four bytes, the least first; 2³²−1 is none. */
export class ItemEncoder extends FirstVisit implements Encoder {
  static readonly kind = "item";
  readonly kind = ItemEncoder.kind;
  readonly visits = this;
  readonly epsilon = Infinity;

  constructor(message: Json) {
    super(fieldsOf("an item encoder", message, "encoder", ...FirstVisit.names));
  }

  payload(episode: Episode, noise: Randomness): Bytes {
    const place = this.answer(episode, noise);
    return bytesOf(place < 0 ? 2 ** 32 - 1 : place, 4, "little");
  }
}

/**
 * Her whole episode as it is, in numbers of eight bytes, the least first, as many in every message: n, H + 1 states, H
 * actions, H rewards in grid units, of which those beyond n steps are 0. A record that cannot be read is all zeros.
 */
export class EpisodeEncoder implements Encoder {
  static readonly kind = "episode";
  readonly kind = EpisodeEncoder.kind;
  readonly visits = null;
  readonly epsilon = Infinity;
  readonly tables: Tables;

  constructor(message: Json) {
    this.tables = Tables.fromJson(fieldsOf("an episode encoder", message, "encoder", "tables")["tables"]);
  }

  payload(episode: Episode, _noise: Randomness): Bytes {
    const read = this.tables.read(episode);
    const { horizon } = this.tables;
    const [states, actions, rewards] = read && read[1].length > 0 ? read : [[], [], []];
    const filled = (part: readonly (number | bigint)[], size: number) => [...part, ...Array(size - part.length).fill(0)];
    const units = rewards.map((reward) => this.tables.units(reward));
    const numbers = [actions.length, ...filled(states, horizon + 1), ...filled(actions, horizon), ...filled(units, horizon)];
    return joined(...numbers.map((number) => bytesOf(number, 8, "little")));
  }
}

// For two servers ----------------------------------------------------------------------------------------------------

/** Before what binds shares to their encoder. */
const PURPOSE = new TextEncoder().encode("discreet-two-1");

/**
 * Her first visit to a target as one of `items`, or "none" (the last bucket), in two shares, the second one sealed for the
 * helper: the nonce, the public share, the leader's share, the sealed share.
 */
export class ShareEncoder extends FirstVisit implements Encoder {
  static readonly kind = "shares";
  readonly kind = ShareEncoder.kind;
  readonly visits = this;
  /** Without noise: it is the servers that add it, each its own. */
  readonly epsilon = Infinity;
  readonly task: string;
  readonly helper: string;
  readonly chunk: number;

  constructor(message: Json) {
    const fields = fieldsOf("a share encoder", message, "encoder", ...FirstVisit.names, "task", "helper", "chunk");
    super(fields);
    this.task = toHex(fromHex("task", fields["task"], 32));
    this.helper = toHex(fromHex("helper", fields["helper"], 32));
    this.chunk = smallNumber("chunk", fields["chunk"]);
    if (this.chunk < 1 || this.chunk > this.items.length + 1) {
      throw new Malformed(`a chunk of the proof does not have 1 to ${this.items.length + 1} buckets`);
    }
  }

  async payload(episode: Episode, noise: Randomness): Promise<Bytes> {
    const place = this.answer(episode, noise);
    return this.shared(place < 0 ? this.items.length : place);
  }

  /** What binds shares to everything that is published here. */
  async context(): Promise<Bytes> {
    const { grid, horizon, numActions, numStates, low, high, stages } = this.tables;
    const tables =
      `{"grid":${pythonFloat(grid)},"horizon":${horizon},"num_actions":${numActions},"num_states":${numStates},` +
      `"reward_range":[${pythonFloat(low)},${pythonFloat(high)}],"stages":${stages}}`;
    const canonical =
      `{"chunk":${this.chunk},"encoder":"shares","has_start":${this.hasStart},"helper":"${this.helper}",` +
      `"items":[${this.items.join()}],"last_successor":${this.lastSuccessor},"tables":${tables},"task":"${this.task}"}`;
    return joined(PURPOSE, new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical))));
  }

  /** Everything random is fresh, unless a test gives it. */
  async shared(bucket: number, nonce?: Uint8Array, rand?: Uint8Array, ephemeral?: CryptoKeyPair): Promise<Bytes> {
    const [context, named] = [await this.context(), nonce ?? randomBytes(NONCE_SIZE)];
    const scheme = new Prio3Histogram(2, this.items.length + 1, this.chunk);
    const [open, [leader, helper]] = scheme.shard(context, bucket, named, rand) as [Uint8Array, [Uint8Array, Uint8Array]];
    const box = await sealed(helper, fromHex("helper", this.helper, 32), joined(context, named, open), ephemeral);
    return joined(named, open, leader, box);
  }
}

const KINDS: { [kind: string]: new (message: Json) => Encoder } = {
  [ReportEncoder.kind]: ReportEncoder,
  [ItemEncoder.kind]: ItemEncoder,
  [EpisodeEncoder.kind]: EpisodeEncoder,
  [ShareEncoder.kind]: ShareEncoder,
};

/** The encoder a server has published; what is not one, to the letter, is refused. */
export function encoderOf(message: Json | undefined): Encoder {
  const kind = isObject(message) ? message["encoder"] : undefined;
  if (message === undefined || typeof kind !== "string" || !Object.hasOwn(KINDS, kind)) {
    throw new Malformed(`the kind of encoder is not known; expected ${Object.keys(KINDS).join(", ")}`);
  }
  return new KINDS[kind]!(message);
}
