/**
 * The client of one deployment: follows its log, enrols, and sends one report per user.
 *
 *     const agent = await connect(url, token, { epsilonAtMost: 1, fallback: "none", store: browser("shop:") });
 *     const e = await agent.episode(userId);     // a ticket, or a spectator when full or offline
 *     while (!done) {
 *       const action = e.act(state);             // local table look-up, works offline
 *       ({ state, reward, done } = app.step(action));
 *       e.reward(reward);
 *     }
 *     await e.leave();                           // one report, retried with the same ticket
 */

import { Announcement, checkChain, coinsOf, Entry } from "./announcements.js";
import { checkCost, ShareEncoder } from "./encoders.js";
import { Episode, Terms, type Name, type Walk } from "./episode.js";
import { Noise } from "./sampler.js";
import { Down, Rejected, Service } from "./service.js";
import type { Store } from "./storage.js";
import { bytesOf, fromBase64, fromHex, joined, Malformed, Refused, toBase64, toHex, type Bytes, type Json } from "./wire.js";

/** Announcements kept; entries asked for at once. */
const KEPT = 8;
const PAGE = 256;
/** Answers to a report that no repetition changes. */
const FINAL = [400, 404, 410, 413, 422];
/** Milliseconds after which spectators look for a newer policy. */
const FRESH = 60_000;
const START = "0".repeat(64);
/** Who must keep to the charter's epsilon, by trust model. */
const TRUSTED: { [model: string]: string } = {
  joint: "the server keeps to it",
  "two-servers": "at least one of the two servers keeps to it",
};

export interface Options {
  /**
   * What one report may cost. In the local model the device computes that itself from every announcement; in the joint model
   * and with two servers it is what the charter promises.
   */
  epsilonAtMost: number;
  /** The action where nothing is known. */
  fallback: Name;
  /** Of this deployment alone, and one that stays: who has reported is known from there. */
  store: Store;
  /** The deployment's public key (base64); without it the first one seen is kept. */
  key?: string;
  /**
   * Of two servers, the key that shares for the second one are sealed to (hex), as its owner tells it; without it the
   * leader's first word for it is taken, and a leader that names a key of its own reads everything.
   */
  helper?: string;
  /** Refuse any other trust model. */
  model?: string;
  /** Milliseconds to wait for an answer, and not to ask after none came. */
  timeout?: number;
  rest?: number;
  /** Allow http to other machines. */
  plain?: boolean;
  /** Hears why somebody is a spectator, or a report is kept; never an id or a step. */
  warn?: (why: string) => void;
  fetch?: typeof fetch;
}

/** The client of the deployment at `url`; it needs no server to be there. */
export async function connect(url: string, token: string, options: Options): Promise<Agent> {
  if (!(options.epsilonAtMost > 0)) throw new RangeError("epsilonAtMost is not a positive number");
  const { timeout = 5000, rest = 5000, plain = false } = options;
  const fetcher = options.fetch ?? ((...request) => fetch(...request));
  const agent = new Agent(new Service(url, token, timeout, rest, fetcher, plain), options);
  await agent.begin();
  return agent;
}

type Seat = { announcement: Announcement; ticket: string } | { spectator: string };
type Report = { user: string; ticket: string; payload: string };

export class Agent {
  private known: Terms | null = null;
  private key: Bytes | null = null;
  private opening: Entry | null = null;
  private seen: Entry[] = []; // the newest first
  private looking: Promise<void> | null = null;
  private looked = -Infinity;
  private recognised = false; // whether who answers has shown what this deployment has signed
  private readonly busy = new Set<string>(); // whose episodes have not been left
  private readonly waiting = new Set<string>(); // whose reports have not been acknowledged

  constructor(
    private readonly service: Service,
    readonly options: Options,
  ) {}

  /** What the charter says, null where it was never heard. */
  get terms(): Terms | null {
    return this.known;
  }

  /** The newest one. */
  get announcement(): Announcement | null {
    return this.seen[0] ? announced(this.seen[0]) : null;
  }

  /** Signed entries that contradict each other. */
  get evidence(): Json[] {
    const { store } = this.options;
    const names = store.names().filter((name) => name.startsWith("evidence:"));
    return names.sort().map((name) => JSON.parse(store.get(name)!) as Json);
  }

  /** Read what is remembered, then hear what is new. */
  async begin(): Promise<void> {
    const { store, fallback } = this.options;
    const opening = store.get("opening");
    if (opening !== null) {
      await this.open(await Entry.fromJson(JSON.parse(opening)));
      this.seen = await this.remembered();
    }
    for (const name of store.names()) {
      if (name.startsWith("report:") && store.get(name) !== "done") this.waiting.add(name.slice(7));
    }
    await this.warned("without a server", async () => {
      await this.look();
      await this.deliver();
    });
    this.known?.action(fallback);
  }

  // Episodes -----------------------------------------------------------------------------------------------------------

  /** An episode of this user: with a ticket, or as a spectator when there is none to be had. */
  async episode(user: string): Promise<Episode> {
    if (typeof user !== "string" || user === "" || [...user].length > 256 || /\p{Surrogate}/u.test(user)) {
      throw new RangeError("a user's id must be a text of 1 to 256 characters");
    }
    const id = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(user))));
    const release = await this.alone(id);
    const seat = release === null ? { spectator: "this user is busy elsewhere" } : await this.seat(user, id);
    const taken = "ticket" in seat;
    if (!taken) await release?.();
    const announcement = taken ? seat.announcement : this.announcement;
    const place = {
      terms: this.known,
      announcement,
      fallback: this.options.fallback,
      ticket: taken ? seat.ticket : null,
      spectator: taken ? null : seat.spectator,
      coins: await coins(announcement, taken ? seat.ticket : null),
    };
    const report = { user, ticket: place.ticket ?? "", payload: "" };
    const sending = new Sending(this, report, id, release ?? (async () => undefined));
    return new Episode(place, (walk, leaving) => sending.settle(walk, leaving));
  }

  private async seat(user: string, id: string): Promise<Seat> {
    try {
      return await this.enrol(user, id);
    } catch (error) {
      if (error instanceof Down) return { spectator: "offline" };
      if (!(error instanceof Refused || error instanceof Rejected)) throw error;
      this.options.warn?.(`a spectator: ${error.message}`);
      return { spectator: error.message };
    }
  }

  private async enrol(user: string, id: string): Promise<Seat> {
    if (this.options.store.get(`report:${id}`) !== null) {
      if (performance.now() - this.looked >= FRESH) await this.look();
      return { spectator: "reported" };
    }
    await this.deliver();
    const reply = await this.service.post("/v1/enrol", { user });
    const name = reply["announcement"] ?? null; // where nothing was ever announced
    if (name !== null && this.seen[0]?.head !== name) await this.look();
    if ("spectator" in reply) return { spectator: String(reply["spectator"]) };
    const entry = this.seen.find((each) => each.head === name);
    if (!entry) throw new Refused("the ticket is for an announcement that this device never saw; nothing is sent");
    try {
      const ticket = toHex(fromHex("ticket", reply["ticket"], 16));
      const announcement = announced(entry);
      await this.check(announcement);
      return { announcement, ticket };
    } catch (error) {
      if (error instanceof Malformed) throw new Down("the answer is none to an enrolment");
      throw error;
    }
  }

  /** Refuse an announcement that asks for too much. */
  private async check({ encoder, epoch }: Announcement): Promise<void> {
    const { epsilonAtMost, model } = this.options;
    const terms = this.known!;
    if (model !== undefined && model !== terms.model) {
      throw new Refused(`the deployment's trust model is ${terms.model}, not ${model}; nothing is sent`);
    }
    terms.check(encoder);
    const trusted = TRUSTED[terms.model];
    if (trusted === undefined) return checkCost(encoder, epsilonAtMost);
    if (!(terms.epsilon <= epsilonAtMost)) {
      throw new Refused(
        `the charter promises epsilon = ${terms.epsilon}, if ${trusted}, more than the ${epsilonAtMost} this device ` +
          "may spend; nothing is sent",
      );
    }
    const shares = encoder instanceof ShareEncoder;
    if (shares !== (terms.model === "two-servers")) {
      throw new Refused("the announcement asks for reports of another trust model; nothing is sent");
    }
    if (shares && (encoder.helper !== terms.helper || encoder.task !== (await this.task(epoch)))) {
      throw new Refused("shares are asked for another helper than the charter's, or another epoch; nothing is sent");
    }
  }

  /** Names an epoch of this deployment: SHA-256 of the charter's digest and the epoch's number. */
  private async task(epoch: number): Promise<string> {
    const name = joined(await digestOf(this.opening!), bytesOf(epoch, 8, "big"));
    return toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", name)));
  }

  /** A user plays one episode at a time, in all tabs together; null while she does. What ends it. */
  private async alone(id: string): Promise<(() => Promise<void>) | null> {
    if (this.busy.has(id)) return null;
    this.busy.add(id);
    const leave = await lock(`discreet:${toBase64(this.key ?? new Uint8Array())}:${id}`);
    if (leave === null) this.busy.delete(id);
    return leave === null ? null : () => (this.busy.delete(id), leave());
  }

  // The log ------------------------------------------------------------------------------------------------------------

  private async open(opening: Entry): Promise<void> {
    const key = fromBase64("key", opening.event["key"]);
    if (this.options.key !== undefined && this.options.key !== toBase64(key)) {
      throw new Refused("the deployment has another public key than this device was told; nothing is sent");
    }
    if (opening.event["event"] !== "opened") throw new Refused("the log does not begin with an opening; nothing is sent");
    await checkChain([opening], key, 0, START);
    const terms = Terms.of(opening.event["charter"]);
    if (this.options.helper !== undefined && this.options.helper !== terms.helper) {
      throw new Refused("the charter names another helper than this device was told; nothing is sent");
    }
    [this.known, this.key, this.opening] = [terms, key, opening];
  }

  /** Hear the announcement in force, and follow the log to it; one at a time. */
  private look(): Promise<void> {
    this.looking ??= this.hear().finally(() => (this.looking = null));
    return this.looking;
  }

  private async hear(): Promise<void> {
    this.looked = performance.now();
    try {
      if (this.known === null) {
        const opening = (await this.read(0, 1))[0]!;
        await this.open(opening);
        this.options.store.set("opening", JSON.stringify(opening.json));
      }
      const { number, previous, body, signature } = await this.service.get("/v1/announcement");
      await this.follow(await Entry.fromJson({ number, previous, body, signature } as Json));
    } catch (error) {
      if (error instanceof Malformed) throw new Refused(`${error.message}; nothing is sent`);
      throw error;
    }
  }

  private async follow(entry: Entry): Promise<void> {
    const newest = this.seen[0];
    if (newest?.head !== entry.head) await this.believe(newest, entry);
    this.recognised = true;
  }

  private async believe(newest: Entry | undefined, entry: Entry): Promise<void> {
    await entry.check(this.key!);
    const other = this.seen.find((each) => each.number === entry.number && each.head !== entry.head);
    if (other) this.accuse("two announcements have one number", other, entry);
    if (newest) {
      if (entry.number < newest.number) this.accuse("the announcement is older than one this device has seen", newest, entry);
      await this.link(newest, entry);
    }
    announced(entry);
    this.seen = [entry, ...this.seen].slice(0, KEPT);
    const others = (await this.remembered()).filter((each) => each.number > entry.number); // seen by other tabs
    this.options.store.set("announcements", JSON.stringify([...others, ...this.seen].slice(0, KEPT).map((each) => each.json)));
  }

  private remembered(): Promise<Entry[]> {
    const kept = JSON.parse(this.options.store.get("announcements") ?? "[]") as Json[];
    return Promise.all(kept.map((entry) => Entry.fromJson(entry)));
  }

  /** Check that the log leads from what was seen last to this entry. */
  private async link(newest: Entry, entry: Entry): Promise<void> {
    let [number, head] = [newest.number + 1, newest.head];
    while (number <= entry.number) {
      const entries = await this.read(number, Math.min(PAGE, entry.number + 1 - number));
      head = await checkChain(entries, this.key!, number, head).catch((error: unknown) => {
        if (!(error instanceof Refused)) throw error;
        return this.accuse("the log does not lead here from what this device has seen", newest, ...entries);
      });
      number += entries.length;
    }
    if (head !== entry.head) this.accuse("the log holds another announcement than was served", newest, entry);
  }

  private accuse(what: string, ...entries: Entry[]): never {
    for (const entry of entries) {
      this.options.store.set(`evidence:${entry.number}-${entry.head}`, JSON.stringify(entry.json));
    }
    throw new Refused(`${what}: the server was set back or tells two stories; nothing is sent, evidence is kept`);
  }

  private async read(start: number, count: number): Promise<Entry[]> {
    const { entries } = await this.service.get(`/v1/log?from=${start}&count=${count}`);
    if (!Array.isArray(entries) || entries.length < 1 || entries.length > count) {
      throw new Down("the answer is no part of a log");
    }
    return Promise.all(entries.map((entry) => Entry.fromJson(entry)));
  }

  // Reports ------------------------------------------------------------------------------------------------------------

  /**
   * Send the reports that are still here, each with its own ticket; how many are left. They are for this deployment only:
   * whoever answers must have shown an announcement of it.
   */
  async deliver(): Promise<number> {
    await this.warned("reports are kept until later", async () => {
      for (const id of [...this.waiting].filter((each) => !this.busy.has(each))) {
        if (!this.recognised) await this.look();
        await this.send(id);
      }
    });
    return this.waiting.size;
  }

  /** Take note of the one report of this user before it is sent; the second time it is refused. */
  claim(id: string, report: Report): void {
    const { store } = this.options;
    if (store.get(`report:${id}`) !== null) {
      throw new Refused("this user has already reported to this deployment; a second time would cost epsilon");
    }
    store.set(`report:${id}`, JSON.stringify(report));
    this.waiting.add(id);
  }

  async send(id: string): Promise<void> {
    const { store, warn } = this.options;
    try {
      await this.service.post("/v1/report", JSON.parse(store.get(`report:${id}`)!) as Json);
    } catch (error) {
      if (!(error instanceof Rejected && FINAL.includes(error.status))) throw error;
      warn?.(`a report came to nothing: ${error.message}`);
    }
    store.set(`report:${id}`, "done");
    this.waiting.delete(id);
  }

  async warned(what: string, body: () => Promise<void>): Promise<void> {
    try {
      await body();
    } catch (error) {
      if (!(error instanceof Down || error instanceof Rejected || error instanceof Refused)) throw error;
      this.options.warn?.(`${what}: ${error.message}`);
    }
  }
}

/**
 * The one report of an episode: written down as soon as it is settled, then sent.
 *
 * To a trusted curator it goes at once, so that who leaves afterwards is counted. Randomised reports and shares wait until
 * the episode is left: the moment would tell what the message hides.
 */
class Sending {
  private made = false;
  private sent: Promise<void> | null = null;
  private claiming: Promise<boolean> | null = null;

  constructor(
    private readonly agent: Agent,
    private readonly report: Report,
    private readonly id: string,
    private readonly release: () => Promise<void>,
  ) {}

  /**
   * Before its first `await` all is written down, and on its way if it is to be sent: the page may be closing. Only what
   * has to be sealed takes a moment longer.
   */
  async settle(walk: Walk, leaving: boolean): Promise<void> {
    if (!this.made) {
      this.made = true;
      const claimed = this.claimed(walk);
      if (claimed instanceof Promise) this.claiming = claimed;
      else if (!claimed) this.sent = Promise.resolve();
    }
    if (leaving || (walk.encoder.epsilon === Infinity && !(walk.encoder instanceof ShareEncoder))) {
      this.sent ??= this.agent.warned("a report is kept until later", async () => {
        if (this.claiming === null || (await this.claiming)) await this.agent.send(this.id);
      });
    }
    if (leaving) {
      await this.sent;
      await this.release();
    }
  }

  private claimed(walk: Walk): boolean | Promise<boolean> {
    const kept = (payload: Bytes) => {
      this.agent.claim(this.id, { ...this.report, payload: toBase64(payload) });
      return true;
    };
    const failed = (error: unknown) => {
      this.agent.options.warn?.(`no report: ${(error as Error).message}`);
      return false;
    };
    try {
      const payload = walk.encoder.payload(walk.record(), new Noise());
      return payload instanceof Promise ? payload.then(kept).catch(failed) : kept(payload);
    } catch (error) {
      return failed(error);
    }
  }
}

/** SHA-256 of the charter as the opening has it: the first field of a message that is written in one way only. */
async function digestOf(opening: Entry): Promise<Bytes> {
  const body = new TextDecoder().decode(fromBase64("body", opening.json["body"]));
  const [before, after] = ['{"charter":', `,"event":"opened","key":${JSON.stringify(opening.event["key"])}}`];
  if (!body.startsWith(before) || !body.endsWith(after)) throw new Malformed("the opening of the log is not written in one way");
  const charter = new TextEncoder().encode(body.slice(before.length, -after.length));
  return new Uint8Array(await crypto.subtle.digest("SHA-256", charter));
}

const readBefore = new WeakMap<Entry, Announcement>();

function announced(entry: Entry): Announcement {
  try {
    const found = readBefore.get(entry) ?? Announcement.fromEvent(entry.event);
    readBefore.set(entry, found);
    return found;
  } catch (error) {
    throw new Refused(`the announcement cannot be read: ${(error as Error).message}; nothing is sent`);
  }
}

async function coins(announcement: Announcement | null, ticket: string | null): Promise<number[]> {
  if (!announcement?.tosses) return [];
  const { horizon } = announcement.encoder.tables;
  if (ticket === null) return Array.from(new Noise().words(horizon), (word) => Number(word >> 32n));
  return coinsOf(fromHex("ticket", ticket, 16), horizon);
}

/** A lock of this name among all tabs, where the platform has such; null if it is taken. What gives it back. */
async function lock(name: string): Promise<(() => Promise<void>) | null> {
  const locks = globalThis.navigator?.locks as LockManager | undefined;
  if (!locks) return async () => undefined;
  return new Promise((settle, fail) => {
    const held = (lock: Lock | null) =>
      lock === null ? settle(null) : new Promise<void>((release) => settle(() => (release(), given)));
    const given: Promise<void> = locks.request(name, { ifAvailable: true }, held).then(() => undefined);
    given.catch(fail);
  });
}
