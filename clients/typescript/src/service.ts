/** HTTP to one deployment, by `fetch`. */

import { isObject, type Fields, type Json } from "./wire.js";

/** No answer that means anything: later may be better. */
export class Down extends Error {
  override name = "Down";
}

/** An answer that will stay the same. */
export class Rejected extends Error {
  override name = "Rejected";

  constructor(readonly status: number) {
    super(`the server refuses this with status ${status}`);
  }
}

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

/** After a failure it asks nobody for `rest` milliseconds. Redirections are not followed: the token is for this host. */
export class Service {
  private asleepUntil = -Infinity;

  constructor(
    private readonly url: string,
    private readonly token: string,
    private readonly timeout: number,
    private readonly rest: number,
    private readonly fetcher: typeof fetch,
    plain: boolean,
  ) {
    const { protocol, hostname, search, hash } = new URL(url);
    if (!/^https?:$/.test(protocol) || search || hash) {
      throw new TypeError("url must look like https://host:port, without a query");
    }
    if (protocol === "http:" && !LOOPBACK.includes(hostname) && !plain) {
      throw new TypeError("over plain http tokens and reports can be read by others; use https, or say plain: true");
    }
    this.url = url.replace(/\/+$/, "");
  }

  get(path: string): Promise<Fields> {
    return this.ask(path, { method: "GET" });
  }

  /** `keepalive`: a message that is sent while its page is closed arrives all the same. */
  post(path: string, message: Json): Promise<Fields> {
    const headers = { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" };
    const body = JSON.stringify(message);
    return this.ask(path, { method: "POST", headers, body, keepalive: body.length < 32_768 });
  }

  private async ask(path: string, request: RequestInit): Promise<Fields> {
    if (performance.now() < this.asleepUntil) throw new Down("the server did not answer a moment ago");
    try {
      return await this.exchange(path, request);
    } catch (error) {
      if (error instanceof Down) this.asleepUntil = performance.now() + this.rest;
      throw error;
    }
  }

  private async exchange(path: string, request: RequestInit): Promise<Fields> {
    const signal = AbortSignal.timeout(this.timeout);
    const options: RequestInit = { ...request, signal, redirect: "error", credentials: "omit", cache: "no-store" };
    const heard = await this.fetcher(this.url + path, options)
      .then(async (answer) => ({ status: answer.status, told: (await answer.json().catch(() => null)) as unknown }))
      .catch(() => null);
    if (heard === null) throw new Down("the server does not answer");
    if (heard.status === 408 || heard.status === 429 || heard.status >= 500) throw new Down(`status ${heard.status}`);
    if (heard.status !== 200) throw new Rejected(heard.status);
    if (!isObject(heard.told)) throw new Down("the answer is not a JSON object");
    return heard.told;
  }
}
