/**
 * What a deployment tells everybody, signed and in order.
 *
 * Entry i of its public log holds the bytes of one event, the SHA-256 head of the entry before it, and an Ed25519
 * signature over both and its number. Two entries with one number are evidence against whoever signed them.
 */

import { encoderOf, type Encoder } from "./encoders.js";
import {
  bytesOf,
  fieldsOf,
  fromBase64,
  fromHex,
  isObject,
  joined,
  listOf,
  Malformed,
  Refused,
  smallNumber,
  smallNumbers,
  toHex,
  type Bytes,
  type Fields,
  type Json,
} from "./wire.js";

const PURPOSE = new TextEncoder().encode("discreet-log-1");
const WHOLE = 2 ** 32;

/** One event of a public log; `head` names it. */
export class Entry {
  private constructor(
    readonly number: number,
    readonly previous: string,
    readonly event: Fields,
    readonly head: string,
    readonly json: Fields,
    private readonly message: Bytes,
    private readonly signature: Bytes,
  ) {}

  static async fromJson(json: Json | undefined): Promise<Entry> {
    const fields = fieldsOf("an entry of a log", json, "number", "previous", "body", "signature");
    const number = smallNumber("number", fields["number"]);
    if (number < 0) throw new Malformed("an entry of a log is numbered from 0 on");
    const previous = fromHex("previous", fields["previous"], 32);
    const body = fromBase64("body", fields["body"]);
    const signature = fromBase64("signature", fields["signature"]);
    const message = joined(PURPOSE, bytesOf(number, 8, "big"), previous, body);
    const head = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", message)));
    return new Entry(number, toHex(previous), eventOf(body, number), head, fields, message, signature);
  }

  /** Refuse an entry that the owner of this public key did not sign. */
  async check(key: Bytes): Promise<void> {
    const owner = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]).catch(() => null);
    if (owner === null) throw new Refused("this is no public key, or signatures cannot be checked here (Ed25519)");
    if (!(await crypto.subtle.verify("Ed25519", owner, this.signature, this.message))) {
      throw new Refused(`entry ${this.number} of the log does not carry the deployment's signature`);
    }
  }
}

function eventOf(body: Bytes, number: number): Fields {
  try {
    const event: Json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
    if (isObject(event) && typeof event["event"] === "string") return event;
  } catch {
    // said below
  }
  throw new Malformed(`entry ${number} of the log is no event`);
}

/** Refuse entries that are not signed, numbered from `first` on, and one after the other from `head` on. */
export async function checkChain(entries: readonly Entry[], key: Bytes, first: number, head: string): Promise<string> {
  let [number, previous] = [first, head];
  for (const entry of entries) {
    if (entry.number !== number || entry.previous !== previous) {
      throw new Refused(`the log is broken at entry ${number}: it does not follow the entry before it`);
    }
    await entry.check(key);
    [number, previous] = [number + 1, entry.head];
  }
  return previous;
}

/** What to do at every step in every state: an action, or whole weights of all actions, 2³² together. */
class Instructions {
  private constructor(
    private readonly actions: number[][] | null,
    private readonly weights: number[][][] | null,
  ) {}

  static fromJson(message: Json | undefined, H: number, S: number, A: number): Instructions {
    if (isObject(message) && Object.keys(message).join() === "actions") {
      const actions = listOf("actions", message["actions"], H).map((row) => smallNumbers("actions", row, S));
      if (actions.every((row) => row.every((a) => a >= 0 && a < A))) return new Instructions(actions, null);
    } else if (isObject(message) && Object.keys(message).join() === "weights") {
      const weights = listOf("weights", message["weights"], H).map((states) =>
        listOf("weights", states, S).map((row) => smallNumbers("weights", row, A)),
      );
      const fits = (row: number[]) => Math.min(...row) >= 0 && row.reduce((sum, w) => sum + w, 0) === WHOLE;
      if (weights.every((states) => states.every(fits))) return new Instructions(null, weights);
    }
    throw new Malformed("instructions are one action, or whole weights of all actions, for every step and state");
  }

  get tosses(): boolean {
    return this.weights !== null;
  }

  action(step: number, state: number, coin: number): number {
    if (this.actions) return this.actions[step]![state]!;
    let left = coin;
    return this.weights![step]![state]!.findIndex((weight) => (left -= weight) < 0);
  }
}

/** What the people of one epoch follow and are asked; `after`: what they do once they have something to report. */
export class Announcement {
  private constructor(
    readonly epoch: number,
    readonly encoder: Encoder,
    private readonly policy: Instructions,
    private readonly after: Instructions | null,
  ) {}

  static fromEvent(event: Fields): Announcement {
    const names = ["epoch", "repeats", "size", "policy", "after", "encoder"];
    const fields = fieldsOf("an announcement", event, "event", ...names);
    const encoder = encoderOf(fields["encoder"]);
    const { horizon: H, numStates: S, numActions: A } = encoder.tables;
    const [epoch, size] = [smallNumber("epoch", fields["epoch"]), smallNumber("size", fields["size"])];
    const repeats = fields["repeats"] === null ? null : smallNumber("repeats", fields["repeats"]);
    if (fields["event"] !== "announced" || epoch < 1 || size < 1 || (repeats !== null && !(repeats >= 1 && repeats < epoch))) {
      throw new Malformed("an announcement numbers its epoch from 1 on, and has at least one place");
    }
    const after = fields["after"] === null ? null : Instructions.fromJson(fields["after"], H, S, A);
    return new Announcement(epoch, encoder, Instructions.fromJson(fields["policy"], H, S, A), after);
  }

  /** What to do; `reported`: whether what will be reported was settled before, or nothing will be. */
  action(step: number, state: number, reported: boolean, coin: number): number {
    return ((reported && this.after) || this.policy).action(step, state, coin);
  }

  /** Whether anything is left to chance. */
  get tosses(): boolean {
    return this.policy.tosses || Boolean(this.after?.tosses);
  }
}

/** A ticket's own coins, one per step, in 0..2³²−1: the same whenever they are asked for. */
export async function coinsOf(ticket: Bytes, steps: number): Promise<number[]> {
  const key = await crypto.subtle.importKey("raw", ticket, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const named = new TextEncoder().encode("step");
  return Promise.all(
    Array.from({ length: steps }, async (_, step) => {
      const digest = await crypto.subtle.sign("HMAC", key, joined(named, bytesOf(step, 4, "big")));
      return new DataView(digest).getUint32(0);
    }),
  );
}
