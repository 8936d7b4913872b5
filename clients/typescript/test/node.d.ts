/** The few functions of Node that tests use: its full types would be a second dependency. */

declare module "node:test" {
  export default function test(name: string, body: () => void | Promise<void>): void;
}

declare module "node:assert/strict" {
  const assert: {
    (value: unknown, message?: string): asserts value;
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    match(actual: string | null, expected: RegExp, message?: string): void;
    throws(body: () => unknown, error?: RegExp | (new (...inputs: never[]) => Error)): void;
    rejects(body: Promise<unknown> | (() => Promise<unknown>), error?: RegExp): Promise<void>;
  };
  export default assert;
}

declare module "node:fs" {
  export function readFileSync(path: URL, encoding: "utf8"): string;
  export function readdirSync(path: URL): string[];
  export function mkdtempSync(prefix: string): string;
  export function statSync(path: string): { mode: number };
  const files: import("../src/storage.js").Files;
  export default files;
}

declare module "node:os" {
  export function tmpdir(): string;
}
