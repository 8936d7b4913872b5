/** One person's steps: what she does, and the one report about it. */

import type { Announcement } from "./announcements.js";
import type { Encoder, Episode as Episodes } from "./encoders.js";
import { isObject, listOf, Malformed, realNumber, Refused, smallNumber, text, type Json } from "./wire.js";

export type Name = string | number;
type Names = readonly string[] | number;

/** What a client needs to know of a charter; states and actions are names, or just numbered. */
export class Terms {
  private constructor(
    readonly states: Names,
    readonly actions: Names,
    readonly horizon: number,
    readonly gone: number | null,
    readonly model: string,
    readonly epsilon: number,
    readonly apprentice: boolean,
    readonly helper: string | null,
    readonly learner: string,
  ) {}

  static of(charter: Json | undefined): Terms {
    const names = ["problem", "privacy", "serving", "learner"];
    const [problem, privacy, serving, learner] = names.map((name) => (isObject(charter) ? charter[name] : undefined));
    if (!isObject(problem) || !isObject(privacy) || !isObject(serving) || !isObject(learner)) {
      throw new Malformed("the charter lacks what a client needs; it was written by another version");
    }
    return new Terms(
      namesOf("states", problem["states"]),
      namesOf("actions", problem["actions"]),
      smallNumber("horizon", problem["horizon"]),
      problem["gone"] === null ? null : smallNumber("gone", problem["gone"]),
      text("model", privacy["model"]),
      realNumber("epsilon", privacy["epsilon"]),
      serving["mode"] === "apprentice",
      privacy["model"] === "two-servers" ? helperOf(charter) : null,
      text("learner", learner["name"]),
    );
  }

  state(name: Name): number {
    return placeOf("state", name, this.states);
  }

  action(name: Name): number {
    return placeOf("action", name, this.actions);
  }

  /** An action as the app calls it. */
  called(action: number): Name {
    return typeof this.actions === "number" ? action : this.actions[action]!;
  }

  /** Refuse to be asked about another problem than the charter's, or for more of it. */
  check({ tables, visits }: Encoder): void {
    const asked = [tables.numStates, tables.numActions, tables.horizon];
    if (asked.join() !== [sizeOf(this.states), sizeOf(this.actions), this.horizon].join()) {
      throw new Refused("the announcement is about another problem than the charter; nothing is sent");
    }
    if (visits === null && this.learner === "spotlight") {
      throw new Refused("the announcement asks for whole episodes where one step was promised; nothing is sent");
    }
  }
}

/** The key that shares for the second server are sealed to. */
function helperOf(charter: Json | undefined): string {
  const helper = isObject(charter) ? charter["helper"] : undefined;
  if (!isObject(helper)) throw new Malformed("the charter of two servers names no helper");
  return text("hpke", helper["hpke"]);
}

function sizeOf(names: Names): number {
  return typeof names === "number" ? names : names.length;
}

function namesOf(name: string, value: Json | undefined): Names {
  if (!Array.isArray(value)) return smallNumber(name, value);
  return listOf(name, value).map((item) => text(`one of ${name}`, item));
}

function placeOf(what: string, name: Name, names: Names): number {
  const place = typeof name === "number" ? name : typeof names === "number" ? -1 : names.indexOf(name);
  if (!Number.isInteger(place) || place < 0 || place >= sizeOf(names)) {
    throw new RangeError(`${JSON.stringify(name)} is no ${what} of this deployment's charter`);
  }
  return place;
}

/**
 * Steps so far, and when what they say is settled: once the first visit to a target has its outcome.
 *
 * `reached` is the step of that visit, −1 where the start is the target.
 */
export class Walk {
  readonly states: number[] = [];
  readonly actions: number[] = [];
  readonly rewards: number[] = [];
  reached: number | null;

  constructor(readonly encoder: Encoder) {
    this.reached = encoder.visits?.wanted.has(encoder.tables.cells) ? -1 : null;
  }

  /** Whether all steps have been taken. */
  get over(): boolean {
    return this.actions.length === this.encoder.tables.horizon;
  }

  get settled(): boolean {
    return this.reached !== null && this.states.length >= this.reached + 2;
  }

  /** Her state: the outcome of the step before, unless that is known already. */
  arrive(state: number): void {
    if (this.states.length === this.actions.length) this.states.push(state);
  }

  act(action: number): void {
    const step = this.actions.length;
    this.actions.push(action);
    this.rewards.push(0);
    const cell = this.encoder.tables.cell(step, this.states[step]!, action);
    if (this.reached === null && this.encoder.visits?.wanted.has(cell)) this.reached = step;
  }

  /** The episode as encoders read it; a last step whose outcome is not known and matters is left out. */
  record(): Episodes {
    const states = [...this.states];
    if (states.length === this.actions.length && this.over && this.encoder.visits?.lastSuccessor === false) states.push(0);
    const n = Math.min(this.actions.length, Math.max(states.length - 1, 0));
    return [states.slice(0, n + 1), this.actions.slice(0, n), this.rewards.slice(0, n)];
  }
}

/** Where an episode takes place: what is known, and the coins of the ticket. */
export interface Place {
  readonly terms: Terms | null;
  readonly announcement: Announcement | null;
  readonly fallback: Name;
  readonly ticket: string | null;
  readonly spectator: string | null;
  readonly coins: readonly number[];
}

/**
 * A participant with a ticket, or a spectator, who sends nothing; `spectator` says why, null for participants.
 *
 * A participant follows the announcement that her ticket names; a spectator the best policy known, or the default action
 * where none is.
 */
export class Episode {
  private readonly walk: Walk | null;

  constructor(
    private readonly place: Place,
    private readonly report: (walk: Walk, leaving: boolean) => Promise<void>,
  ) {
    this.walk = place.announcement && place.terms ? new Walk(place.announcement.encoder) : null;
  }

  get spectator(): string | null {
    return this.place.spectator;
  }

  get ticket(): string | null {
    return this.place.ticket;
  }

  /** What to do here. In apprentice mode that is what the app does at present; beyond the horizon, the default. */
  act(state: Name, present?: Name): Name {
    const { walk } = this;
    const { terms, fallback } = this.place;
    if (!walk || !terms) return present ?? fallback;
    this.arrived(walk, terms.state(state));
    if (walk.over) return fallback;
    const action = this.action(walk, terms, present);
    walk.act(action);
    return terms.called(action);
  }

  /** What the step before paid; several payments add up. */
  reward(reward: number): void {
    if (typeof reward !== "number" || Number.isNaN(reward)) throw new RangeError("a reward is not a number; expected one");
    if (this.walk && this.walk.rewards.length > 0) this.walk.rewards[this.walk.rewards.length - 1]! += reward;
  }

  /**
   * The state after the last step, which no further `act` tells. Without it that step is not reported, or, in a charter with
   * a state "gone", who leaves early is there.
   */
  end(state: Name): void {
    if (this.walk && this.place.terms) this.arrived(this.walk, this.place.terms.state(state));
  }

  /** Send what is left to be sent. */
  async leave(): Promise<void> {
    const { walk } = this;
    const { terms, spectator } = this.place;
    if (spectator !== null || !walk || !terms) return;
    if (terms.gone !== null && walk.states.length > 0 && !walk.over) {
      walk.arrive(terms.gone);
      while (!walk.over) {
        walk.act(this.action(walk, terms, undefined));
        walk.arrive(terms.gone);
      }
    }
    await this.report(walk, true);
  }

  private arrived(walk: Walk, state: number): void {
    walk.arrive(state);
    if (this.place.spectator === null && walk.settled) void this.report(walk, false);
  }

  private action(walk: Walk, terms: Terms, present: Name | undefined): number {
    const { announcement, fallback, ticket, coins } = this.place;
    if (terms.apprentice) return terms.action(present ?? fallback);
    const step = walk.actions.length;
    return announcement!.action(step, walk.states[step]!, ticket === null || walk.reached !== null, coins[step] ?? 0);
  }
}
