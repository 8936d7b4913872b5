/**
 * Simulated people on the devices of this page: `#token=…&people=1000` behind its address.
 *
 * RiverSwim: drifting (0) leads one state back and pays .005 at the first; swimming (1) leads on with probability .35, or
 * .6 at both ends, and pays 1 at the last.
 */

import { connect, memory, type Agent } from "../src/index.js";

const AT_ONCE = 12;
/** Milliseconds until somebody who found no place comes back. */
const LATER = 100;
/** There will be no place for anybody. */
const OVER = /all tickets|retired|token|status|nothing is sent/;

const settings = new URLSearchParams(location.hash.slice(1));
const people = Number(settings.get("people") ?? 1000);

function shown(id: string, text: string): void {
  document.getElementById(id)!.textContent = text;
}

function swum(states: number, state: number, action: number): number {
  const chance = Math.random();
  if (action === 0) return Math.max(state - 1, 0);
  if (state === 0) return chance < 0.6 ? 1 : 0;
  if (state === states - 1) return chance < 0.6 ? state : state - 1;
  return chance < 0.05 ? state - 1 : chance < 0.65 ? state : state + 1;
}

function paid(states: number, state: number, action: number): number {
  if (state === 0 && action === 0) return 0.005;
  return state === states - 1 && action === 1 ? 1 : 0;
}

/** What one person earned, or why she found no place. */
async function visit(agent: Agent, name: string): Promise<number | string> {
  const e = await agent.episode(name);
  if (e.spectator !== null) return e.spectator;
  const { numStates, horizon } = agent.announcement!.encoder.tables;
  let [state, earned] = [0, 0];
  for (let h = 0; h < horizon; h++) {
    const action = agent.terms!.action(e.act(state));
    const reward = paid(numStates, state, action);
    e.reward(reward);
    earned += reward;
    state = swum(numStates, state, action);
  }
  e.end(state);
  await e.leave();
  return earned;
}

function drawPolicy(agent: Agent): void {
  const announcement = agent.announcement;
  if (!announcement) return;
  const { numStates, horizon } = announcement.encoder.tables;
  const table = document.getElementById("policy") as HTMLTableElement;
  table.replaceChildren();
  for (let state = 0; state < numStates; state++) {
    const row = table.insertRow();
    row.append(Object.assign(document.createElement("th"), { textContent: `state ${state}` }));
    for (let h = 0; h < horizon; h++) {
      const swims = announcement.action(h, state, true, 0) === 1;
      Object.assign(row.insertCell(), { textContent: swims ? "→" : "←", className: swims ? "swim" : "" });
    }
  }
}

function mean(values: number[]): string {
  return values.length ? (values.reduce((sum, value) => sum + value, 0) / values.length).toFixed(2) : "–";
}

const agent = await connect(location.origin, settings.get("token") ?? "", {
  epsilonAtMost: Number(settings.get("epsilon") ?? 1),
  fallback: 0,
  store: memory(),
  rest: LATER,
  warn: (why) => shown("status", why),
});
const { terms } = agent;
shown("guarantee", terms ? `ε = ${terms.epsilon}, ${terms.model}` : "no server");
const earned: number[] = [];
let [next, over] = [0, false];

/** Somebody comes, as often as it takes to find a place, swims and goes; then the next. */
async function comeAndGo(): Promise<void> {
  while (next < people && !over) {
    const name = `swimmer ${next++}`;
    let found = await visit(agent, name);
    for (; typeof found === "string"; found = await visit(agent, name)) {
      shown("status", found);
      over ||= OVER.test(found);
      if (over) return;
      await new Promise((settle) => setTimeout(settle, LATER));
    }
    earned.push(found);
    shown("people", String(earned.length));
    shown("epoch", String(agent.announcement!.epoch));
    (document.getElementById("bar") as HTMLProgressElement).value = earned.length / people;
    if (earned.length % 20 === 0) drawPolicy(agent);
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, comeAndGo));
await agent.deliver();
drawPolicy(agent);
const tenth = Math.ceil(people / 10);
shown("early", mean(earned.slice(0, tenth)));
shown("late", mean(earned.slice(-tenth)));
if (!over) shown("status", "All have been here.");
document.body.dataset["done"] = String(earned.length);
