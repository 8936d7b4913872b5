/** The client against a deployment by hand: what it plays, what it sends, what it refuses, and what it remembers. */

import assert from "node:assert/strict";
import files, { mkdtempSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import test from "node:test";

import { connect, type Agent, type Options } from "../src/client.js";
import { folder, memory, type Store } from "../src/storage.js";
import { bytesOf, fromBase64, joined, toBase64, toHex, type Fields, type Json } from "../src/wire.js";

const TOKEN = "an app's token";
/** Two states and two actions; cell 1 is state 0, action 1. */
const TABLES = { num_states: 2, num_actions: 2, horizon: 3, stages: 1, grid: 2 ** -10, reward_range: [0, 1] };
const GO = { actions: [[1, 1], [1, 1], [1, 1]] };
const STAY = { actions: [[0, 0], [0, 0], [0, 0]] };
const VISITS = { tables: TABLES, items: [4, 5, 6, 7], has_start: false, last_successor: true };
const ITEM: Json = { encoder: "item", ...VISITS };
const EPISODE: Json = { encoder: "episode", tables: TABLES };
const NONE = "ffffffff";
/** ⌈2⁶⁴/(1 + e)⌉: ε is 1, hardly less. */
const FLIPS = 4961113481241018369n;

function unary(words: bigint): Json {
  return { encoder: "first-visit", ...VISITS, method: "unary", words: String(words), version: "v" };
}

type Change = { model?: string; epsilon?: number; mode?: string; gone?: number; names?: false; learner?: string };

function charter(change: Change = {}): Fields {
  const { model = "joint", epsilon = 1, mode = "learn", gone = null, names, learner = "spotlight" } = change;
  const [states, actions] = names === false ? [2, 2] : [["home", "away"], ["stay", "go"]];
  return {
    name: "walk",
    problem: { states, actions, horizon: 3, rewards: [0, 1], pooled: true, start: null, gone } as Json,
    privacy: { model, epsilon, unit: "user", users: 1000 },
    learner: { name: learner },
    serving: { patience: 1000, overlap: "wait", default_action: 0, mode },
  };
}

class Fake {
  entries: Fields[] = [];
  heads: string[] = [];
  served: number | null = null;
  spectator: string | null = null;
  reports = new Map<string, string[]>();
  asked: string[] = [];
  fails: (path: string) => number | "lost" | "lost after" | null = () => null;
  private epochs = 0;

  private constructor(private readonly key: CryptoKeyPair) {}

  static async open(told = charter()): Promise<Fake> {
    const key = (await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"])) as CryptoKeyPair;
    const fake = new Fake(key);
    const raw = new Uint8Array(await crypto.subtle.exportKey("raw", key.publicKey));
    await fake.append({ charter: told, event: "opened", key: toBase64(raw) });
    return fake;
  }

  async signed(number: number, previous: string, event: Fields): Promise<[Fields, string]> {
    const body = new TextEncoder().encode(JSON.stringify(event));
    const links = Uint8Array.from(previous.match(/../g)!, (pair) => parseInt(pair, 16));
    const message = joined(new TextEncoder().encode("discreet-log-1"), bytesOf(number, 8, "big"), links, body);
    const signature = toBase64(new Uint8Array(await crypto.subtle.sign("Ed25519", this.key.privateKey, message)));
    const head = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", message)));
    return [{ number, previous, body: toBase64(body), signature }, head];
  }

  async append(event: Fields): Promise<void> {
    const [entry, head] = await this.signed(this.entries.length, this.heads.at(-1) ?? "0".repeat(64), event);
    this.entries.push(entry);
    this.heads.push(head);
  }

  async announce(encoder: Json, policy: Json = GO, after: Json = STAY): Promise<this> {
    this.epochs += 1;
    await this.append({ event: "announced", epoch: this.epochs, repeats: null, size: 100, policy, after, encoder });
    return this;
  }

  fetch: typeof fetch = async (url, request) => {
    const { pathname: path, searchParams } = new URL(String(url));
    this.asked.push(path);
    const failure = this.fails(path);
    if (failure === "lost") throw new TypeError("lost");
    if (typeof failure === "number") return new Response('{"error":"no"}', { status: failure });
    const body = request?.body ? (JSON.parse(String(request.body)) as Fields) : {};
    const told = await this.answer(path, searchParams, body);
    if (failure === "lost after") throw new TypeError("lost");
    return new Response(JSON.stringify(told));
  };

  private async answer(path: string, query: URLSearchParams, body: Fields): Promise<Json> {
    const announcing = this.entries.map((each) => atob(String(each["body"])).includes('"announced"'));
    const at = this.served ?? announcing.lastIndexOf(true);
    if (path === "/v1/log") {
      const start = Number(query.get("from"));
      return { entries: this.entries.slice(start, start + Number(query.get("count"))), next: 0 };
    }
    if (path === "/v1/announcement") return { ...this.entries[at]!, head: this.heads[at]!, epoch: 1 };
    if (path === "/v1/enrol") {
      if (this.spectator !== null) return { spectator: this.spectator, announcement: this.heads[at]! };
      const user = new TextEncoder().encode(String(body["user"]));
      const ticket = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", user)).subarray(0, 16));
      return { ticket, epoch: 1, slot: 0, expires: 2 ** 50, announcement: this.heads[at]!, again: false };
    }
    const sent = this.reports.get(String(body["user"])) ?? [];
    sent.push(toHex(fromBase64("payload", body["payload"])));
    this.reports.set(String(body["user"]), sent);
    return { again: sent.length > 1 };
  }
}

function joins(fake: Fake, options: Partial<Options> = {}): Promise<Agent> {
  const given = { epsilonAtMost: 1, fallback: "stay", store: memory(), rest: 0, fetch: fake.fetch, ...options };
  return connect("http://localhost:1", TOKEN, given);
}

/** Play (state, reward) one after the other; the last one has no reward. */
async function walked(agent: Agent, user: string, steps: [string, number][], present?: string) {
  const e = await agent.episode(user);
  const actions = steps.slice(0, -1).map(([state, reward]) => {
    const action = e.act(state, present);
    e.reward(reward);
    return action;
  });
  e.end(steps.at(-1)![0]);
  await e.leave();
  return { e, actions };
}

const VISIT: [string, number][] = [["home", 1], ["away", 1], ["home", 0]];

// What is played and sent --------------------------------------------------------------------------------------------

for (const [first, reward, item] of [["home", 0, 0], ["home", 1, 1], ["away", 0, 2], ["away", 7, 3]] as const) {
  test(`the first visit is reported, then the other policy is played: ${first}, ${reward}`, async () => {
    const fake = await (await Fake.open()).announce(ITEM);
    const { e, actions } = await walked(await joins(fake), "ann", [["home", reward], [first, 1], ["home", 0], ["away", 0]]);
    assert.deepEqual([e.spectator, actions], [null, ["go", "stay", "stay"]]);
    assert.deepEqual([...fake.reports], [["ann", [`0${item}000000`]]]);
  });
}

test("without a visit none is reported", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const { actions } = await walked(await joins(fake), "ann", [["away", 1], ["away", 1], ["away", 1], ["away", 0]]);
  assert.deepEqual([actions, fake.reports.get("ann")], [["go", "go", "go"], [NONE]]);
});

test("a report to a trusted curator is sent right after the target step", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const e = await (await joins(fake)).episode("ann");
  e.act("home");
  e.reward(1);
  assert(!fake.asked.includes("/v1/report"));
  e.act("away");
  await new Promise((settle) => setTimeout(settle, 20));
  assert.deepEqual(fake.reports.get("ann"), ["03000000"]);
  await e.leave();
  await e.leave();
  assert.deepEqual(fake.reports.get("ann"), ["03000000"]);
});

test("a randomised report waits until the episode is left, but is written down", async () => {
  const fake = await (await Fake.open(charter({ model: "local" }))).announce(unary(FLIPS));
  const store = memory();
  const agent = await joins(fake, { store });
  const e = await agent.episode("ann");
  e.act("home");
  e.act("away");
  await agent.episode("bob");
  assert.equal(await agent.deliver(), 1);
  assert.equal(fake.reports.size, 0);
  await joins(fake, { store }); // as after a restart
  assert.equal(fake.reports.get("ann")!.length, 1);
});

test("who leaves early is gone for the rest", async () => {
  const fake = await (await Fake.open(charter({ gone: 1, learner: "dp-ucbvi" }))).announce(EPISODE, GO, null);
  const e = await (await joins(fake)).episode("ann");
  e.act("home");
  e.reward(0.5);
  e.reward(0.5);
  await e.leave();
  const numbers = [3, 0, 1, 1, 1, 1, 1, 1, 1024, 0, 0].map((n) => toHex(bytesOf(n, 8, "little")));
  assert.deepEqual(fake.reports.get("ann"), [numbers.join("")]);
});

test("the start is reported where it is asked for, and the last step of staged problems needs no outcome", async () => {
  const start = await (await Fake.open()).announce({ ...(ITEM as Fields), items: [16, 18], has_start: true });
  const { actions } = await walked(await joins(start), "ann", [["away", 0], ["home", 0]]);
  assert.deepEqual([actions, start.reports.get("ann")], [["stay"], ["01000000"]]);
  const tables = { ...TABLES, stages: 3 };
  const staged = await (await Fake.open()).announce({ ...(ITEM as Fields), tables, items: [36, 37], last_successor: false });
  const e = await (await joins(staged)).episode("ann");
  for (let h = 0; h < 3; h++) {
    e.act("home");
    e.reward(1);
  }
  assert.equal(e.act("home"), "stay"); // beyond the horizon
  await e.leave();
  assert.deepEqual(staged.reports.get("ann"), ["01000000"]);
});

test("an apprentice watches what the app does", async () => {
  const fake = await (await Fake.open(charter({ mode: "apprentice" }))).announce(ITEM);
  const e = await (await joins(fake)).episode("ann");
  assert.deepEqual([e.act("home", "stay"), e.act("home"), e.act("home", "go")], ["stay", "stay", "go"]);
  e.end("away");
  await e.leave();
  assert.deepEqual(fake.reports.get("ann"), ["02000000"]);
});

test("a randomised policy tosses the coins of the ticket", async () => {
  const half = 2 ** 31;
  const row = [[half, half], [half, half]];
  const fake = await (await Fake.open(charter({ names: false, learner: "dp-ucbvi" }))).announce(EPISODE, { weights: [row, row, row] }, null);
  const agent = await joins(fake, { fallback: 0 });
  const played = [];
  for (let i = 0; i < 40; i++) {
    const again = [];
    for (const store of [memory(), memory()]) {
      const e = await (i ? agent : await joins(fake, { fallback: 0, store })).episode(`${i}${i ? again.length : ""}`);
      again.push([0, 0, 0].map((s) => e.act(s)).join(""));
      await e.leave();
    }
    if (i === 0) assert.equal(again[0], again[1]);
    played.push(...again);
  }
  assert.equal(new Set(played).size, 8);
});

test("names and numbers that are none are errors", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const agent = await joins(fake);
  const e = await agent.episode("ann");
  for (const state of ["nowhere", 2, -1, 0.5, NaN]) assert.throws(() => e.act(state), /is no state of/);
  assert.throws(() => e.reward(NaN), /not a number/);
  for (const user of ["", "x".repeat(257), "\ud800"]) await assert.rejects(agent.episode(user), /1 to 256/);
  await assert.rejects(joins(fake, { fallback: "jump" }), /no action/);
  for (const limit of [0, -1, NaN]) await assert.rejects(joins(fake, { epsilonAtMost: limit }), /positive/);
  const options: Options = { epsilonAtMost: 1, fallback: 0, store: memory() };
  for (const url of ["http://example.org", "ftp://localhost", "https://host?x"]) await assert.rejects(connect(url, "", options));
});

// Spectators, and a server that is down ------------------------------------------------------------------------------

test("a spectator plays the policy of those who have reported and sends nothing", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  fake.spectator = "all tickets are taken";
  const { e, actions } = await walked(await joins(fake), "ann", VISIT);
  assert.deepEqual([e.spectator, e.ticket, actions], ["all tickets are taken", null, ["stay", "stay"]]);
  assert.equal(fake.reports.size, 0);
});

test("while the server is down answers come from the cache, or are the default", async () => {
  const fake = await (await Fake.open()).announce(ITEM, GO, GO);
  const store = memory();
  await joins(fake, { store });
  fake.fails = () => "lost";
  for (const [kept, action] of [[store, "go"], [memory(), "stay"]] as const) {
    const e = await (await joins(fake, { store: kept })).episode("ann");
    assert.deepEqual([e.spectator, e.act("home")], ["offline", action]);
  }
});

test("an app does not wait for a server that was down a moment ago", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const agent = await joins(fake, { rest: 60_000 });
  fake.fails = () => 503;
  await agent.episode("ann");
  const asked = fake.asked.length;
  assert.equal((await agent.episode("bob")).spectator, "offline");
  assert.equal(fake.asked.length, asked);
});

for (const failure of ["lost", "lost after", 503, 429, 401] as const) {
  test(`a report that was not acknowledged is sent again with the same bytes: ${failure}`, async () => {
    const fake = await (await Fake.open(charter({ model: "local" }))).announce(unary(FLIPS));
    const store = memory();
    fake.fails = (path) => (path === "/v1/report" ? failure : null);
    await walked(await joins(fake, { store }), "ann", VISIT);
    fake.fails = () => null;
    assert.equal(await (await joins(fake, { store })).deliver(), 0);
    assert.equal(new Set(fake.reports.get("ann")).size, 1);
  });
}

for (const status of [404, 410, 422]) {
  test(`a report that comes to nothing is not repeated: ${status}`, async () => {
    const fake = await (await Fake.open()).announce(ITEM);
    const agent = await joins(fake);
    fake.fails = (path) => (path === "/v1/report" ? status : null);
    await walked(agent, "ann", VISIT);
    assert.equal(await agent.deliver(), 0);
    assert.equal((await agent.episode("ann")).spectator, "reported");
  });
}

// What is refused ----------------------------------------------------------------------------------------------------

async function refused(fake: Fake, agent: Agent, why: RegExp): Promise<void> {
  const { e } = await walked(agent, "ann", VISIT);
  assert.match(e.spectator, why);
  assert.equal(fake.reports.size, 0);
}

test("a second report is refused, also after a restart and in two episodes at once", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const store = memory();
  const agent = await joins(fake, { store });
  const one = await agent.episode("ann");
  assert.equal((await agent.episode("ann")).spectator, "this user is busy elsewhere");
  one.act("home");
  one.act("away");
  await one.leave();
  for (const each of [agent, await joins(fake, { store })]) {
    assert.equal((await walked(each, "ann", VISIT)).e.spectator, "reported");
  }
  assert.equal(fake.reports.get("ann")!.length, 1);
});

test("a report that cannot be written down is not sent", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const store: Store = memory();
  const told: string[] = [];
  const agent = await joins(fake, { store, warn: (why) => told.push(why) });
  store.set = () => {
    throw new Error("the disk is full");
  };
  await walked(agent, "ann", VISIT);
  assert.deepEqual([fake.reports.size, told], [0, ["no report: the disk is full"]]);
});

test("the device computes epsilon itself and refuses more than its limit", async () => {
  const fake = await (await Fake.open(charter({ model: "local", epsilon: 0.1 }))).announce(unary(FLIPS - 10n ** 15n));
  const agent = await joins(fake);
  await refused(fake, agent, /costs epsilon = 1\.000\d+, more than the 1 /);
  await fake.announce(ITEM);
  await refused(fake, agent, /costs epsilon = Infinity/);
  await fake.announce(unary(FLIPS));
  assert.equal((await walked(agent, "ann", VISIT)).e.spectator, null);
});

test("a curator who promises too little, another trust model, and another problem get nothing", async () => {
  const little = await (await Fake.open(charter({ epsilon: 1.5 }))).announce(ITEM);
  await refused(little, await joins(little), /promises epsilon = 1.5/);
  const fake = await (await Fake.open()).announce(ITEM);
  await refused(fake, await joins(fake, { model: "local" }), /trust model is joint/);
  const wide = [[1, 1, 1], [1, 1, 1], [1, 1, 1]];
  const other = await (await Fake.open()).announce({ ...(ITEM as Fields), tables: { ...TABLES, num_states: 3 } }, { actions: wide }, null);
  await refused(other, await joins(other), /another problem/);
});

test("an older announcement is refused, and both are kept", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  await fake.announce(ITEM, STAY, GO);
  const store = memory();
  let agent = await joins(fake, { store });
  fake.served = 1;
  await refused(fake, agent, /older than one/);
  agent = await joins(fake, { store });
  await refused(fake, agent, /older than one/);
  assert.deepEqual(agent.evidence, [fake.entries[1]!, fake.entries[2]!]);
});

test("two announcements with one number are refused, and both are kept", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const agent = await joins(fake);
  const [entry, head] = [fake.entries.pop()!, fake.heads.pop()!];
  await fake.announce(ITEM, STAY, GO);
  await refused(fake, agent, /two announcements have one number/);
  const named = (json: Json) => String((json as Fields)["signature"]);
  assert.deepEqual(new Set(agent.evidence.map(named)), new Set([entry, fake.entries[1]!].map(named)));
  assert(head !== fake.heads[1]);
});

test("a log that does not lead from what was seen is refused and kept", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const agent = await joins(fake);
  fake.entries.pop();
  fake.heads.pop();
  await fake.append({ event: "paused" });
  await fake.announce(ITEM);
  await refused(fake, agent, /does not lead here/);
  assert.equal(agent.evidence.length, 2);
});

test("an announcement that is not signed is refused", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const agent = await joins(fake);
  await fake.announce(ITEM, STAY, GO);
  fake.entries[2] = { ...fake.entries[2]!, signature: toBase64(new Uint8Array(64)) };
  await refused(fake, agent, /signature/);
});

test("a log that goes on is followed over several pages", async () => {
  const fake = await (await Fake.open()).announce(ITEM);
  const agent = await joins(fake);
  for (let i = 0; i < 300; i++) await fake.append({ event: i % 2 ? "resumed" : "paused" });
  await fake.announce(ITEM, STAY, GO);
  assert.deepEqual((await walked(agent, "ann", VISIT)).actions, ["stay", "stay"]);
  assert.equal(agent.announcement!.epoch, 2);
});

test("the first key is kept; one that was told is the only one", async () => {
  const [fake, other] = [await (await Fake.open()).announce(ITEM), await (await Fake.open()).announce(ITEM)];
  const store = memory();
  await joins(fake, { store });
  await refused(other, await joins(other, { store }), /signature/);
  await refused(other, await joins(other, { key: toBase64(new Uint8Array(32)) }), /another public key/);
});

test("a kept report is shown to no other deployment than its own", async () => {
  const [fake, other] = [await (await Fake.open()).announce(ITEM), await (await Fake.open()).announce(ITEM)];
  const store = memory();
  fake.fails = (path) => (path === "/v1/report" ? 503 : null);
  await walked(await joins(fake, { store }), "ann", VISIT);
  const agent = await joins(other, { store });
  await agent.episode("bob");
  assert.equal(await agent.deliver(), 1);
  assert.equal(other.reports.size, 0);
  fake.fails = () => null;
  assert.equal(await (await joins(fake, { store })).deliver(), 0);
  assert.deepEqual([...fake.reports.keys()], ["ann"]);
});

test("a leader cannot name another helper than the one that was told", async () => {
  const two = (hpke: string): Fields => ({ ...charter({ model: "two-servers" }), helper: { url: "https://b", key: "", hpke } });
  const [honest, own] = ["0a".repeat(32), "0b".repeat(32)];
  assert((await joins(await (await Fake.open(two(honest))).announce(ITEM), { helper: honest })).terms);
  for (const told of [two(own), charter()]) {
    const fake = await (await Fake.open(told)).announce(ITEM);
    await refused(fake, await joins(fake, { helper: honest }), /another helper/);
  }
});

test("a curator who promised to ask for one step does not get the whole episode", async () => {
  const fake = await (await Fake.open()).announce(EPISODE, GO, null);
  await refused(fake, await joins(fake), /where one step was promised/);
});

test("a folder remembers on a disk, for its owner only", async () => {
  const path = mkdtempSync(`${tmpdir()}/discreet-`);
  const fake = await (await Fake.open()).announce(ITEM);
  await walked(await joins(fake, { store: folder(files, `${path}/cache`) }), "a very long name", VISIT);
  const agent = await joins(fake, { store: folder(files, `${path}/cache`) });
  assert.equal((await agent.episode("a very long name")).spectator, "reported");
  assert.equal(statSync(`${path}/cache`).mode & 0o077, 0);
  for (const name of folder(files, `${path}/cache`).names()) {
    assert(!`${name}${folder(files, `${path}/cache`).get(name)}`.includes("a very long name"));
  }
});

// Two servers --------------------------------------------------------------------------------------------------------

const HELPER = "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d";

function twoServers(epsilon = 1): Fields {
  return { ...charter({ model: "two-servers", epsilon }), helper: { url: "https://second", key: "0b".repeat(32), hpke: HELPER } };
}

async function sha256(...parts: Uint8Array[]): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
}

async function shares(told: Fields, epoch: number, change: Fields = {}): Promise<Json> {
  const digest = await sha256(new TextEncoder().encode(JSON.stringify(told)));
  const task = toHex(await sha256(digest, bytesOf(epoch, 8, "big")));
  return { encoder: "shares", ...VISITS, task, helper: HELPER, chunk: 2, ...change };
}

test("two servers get shares, when the episode is left", async () => {
  const told = twoServers();
  const fake = await (await Fake.open(told)).announce(await shares(told, 1));
  const agent = await joins(fake);
  const episode = await agent.episode("ann");
  assert.equal(episode.spectator, null);
  for (const state of ["home", "away", "away"]) {
    episode.act(state);
    episode.reward(1);
  }
  episode.end("away");
  await new Promise((settle) => setTimeout(settle, 50));
  assert.equal(fake.reports.size, 0); // the moment would tell
  await episode.leave();
  const sent = fake.reports.get("ann")!;
  assert.equal(sent.length, 1);
  assert.equal(sent[0]!.length / 2, 16 + 64 + 288 + 64 + 48);
  assert.equal((await agent.episode("ann")).spectator, "reported");
});

test("shares are made for the charter's helper and this epoch only", async () => {
  const told = twoServers();
  const wrong: [Json, RegExp][] = [
    [await shares(told, 2), /another epoch/],
    [await shares(told, 1, { helper: "0c".repeat(32) }), /another helper/],
    [await shares(twoServers(0.5), 1), /another epoch/],
    [ITEM, /another trust model/],
    [unary(FLIPS), /another trust model/],
  ];
  for (const [encoder, why] of wrong) {
    const agent = await joins(await (await Fake.open(told)).announce(encoder));
    assert.match((await agent.episode("ann")).spectator!, why);
  }
  const joint = await joins(await (await Fake.open()).announce(await shares(told, 1)));
  assert.match((await joint.episode("ann")).spectator!, /another trust model/);
  const dear = await (await Fake.open(told)).announce(await shares(told, 1));
  assert.match((await (await joins(dear, { epsilonAtMost: 0.5 })).episode("ann")).spectator!, /one of the two servers keeps/);
});
