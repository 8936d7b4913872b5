/** What goes over the wire, read strictly: whatever is not exactly what was expected is refused in one sentence. */

/** The device sends nothing. Why depends on what a server said and on the device's own limits, never on an episode. */
export class Refused extends Error {
  override name = "Refused";
}

/** What was said is not what the format allows. */
export class Malformed extends Error {
  override name = "Malformed";
}

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Fields = { [name: string]: Json };

/** The message, refused unless it has exactly these fields. */
export function fieldsOf(what: string, message: Json | undefined, ...names: string[]): Fields {
  const found = isObject(message) ? Object.keys(message) : [];
  if (!isObject(message) || found.length !== names.length || !names.every((name) => Object.hasOwn(message, name))) {
    throw new Malformed(`${what} has exactly the fields ${names.join(", ")} and no others`);
  }
  return message;
}

export function isObject(message: unknown): message is Fields {
  return typeof message === "object" && message !== null && !Array.isArray(message);
}

/** A whole number: a JSON integer up to 2⁵³, or the decimal digits of any. */
export function wholeNumber(name: string, value: Json | undefined): bigint {
  if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) <= 2 ** 53) return BigInt(value);
  if (typeof value === "string" && /^(0|-?[1-9][0-9]{0,39})$/.test(value)) return BigInt(value);
  throw new Malformed(`${name} is not a whole number, which beyond 2⁵³ is written as a text of its digits`);
}

/** A whole number that JavaScript counts with. */
export function smallNumber(name: string, value: Json | undefined): number {
  const found = Number(wholeNumber(name, value));
  if (!Number.isSafeInteger(found)) throw new Malformed(`${name} is larger than this client counts`);
  return found;
}

export function realNumber(name: string, value: Json | undefined): number {
  if (typeof value !== "number" || !Number.isFinite(value)) throw new Malformed(`${name} is not a finite number`);
  return value;
}

export function listOf(name: string, value: Json | undefined, length?: number): Json[] {
  if (!Array.isArray(value) || (length !== undefined && value.length !== length)) {
    throw new Malformed(`${name} is not a list${length === undefined ? "" : ` of ${length}`}`);
  }
  return value;
}

export function smallNumbers(name: string, value: Json | undefined, length?: number): number[] {
  return listOf(name, value, length).map((item) => smallNumber(`one of ${name}`, item));
}

export function truth(name: string, value: Json | undefined): boolean {
  if (typeof value !== "boolean") throw new Malformed(`${name} is neither true nor false`);
  return value;
}

export function text(name: string, value: Json | undefined): string {
  if (typeof value !== "string") throw new Malformed(`${name} is not a text`);
  return value;
}

// One way to write ---------------------------------------------------------------------------------------------------

/** A double as Python writes it. */
export function pythonFloat(value: number): string {
  const [digits, power] = Math.abs(value).toExponential().split("e") as [string, string];
  const [exponent, mantissa] = [Number(power), digits.replace(".", "")];
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    return `${sign}${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${mantissa}`;
  const whole = mantissa.padEnd(exponent + 1, "0");
  return `${sign}${whole.slice(0, exponent + 1)}.${whole.slice(exponent + 1) || "0"}`;
}

// Bytes --------------------------------------------------------------------------------------------------------------

export type Bytes = Uint8Array<ArrayBuffer>;

export function fromHex(name: string, value: Json | undefined, size: number): Bytes {
  const digits = text(name, value);
  if (digits.length !== 2 * size || !/^[0-9a-f]*$/.test(digits)) {
    throw new Malformed(`${name} is not a text of ${2 * size} hex digits`);
  }
  return Uint8Array.from({ length: size }, (_, i) => parseInt(digits.slice(2 * i, 2 * i + 2), 16));
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromBase64(name: string, value: Json | undefined): Bytes {
  const letters = text(name, value);
  if (!/^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(letters)) {
    throw new Malformed(`${name} is not base64`);
  }
  return Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
}

export function toBase64(bytes: Uint8Array): string {
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

export function joined(...parts: Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let start = 0;
  for (const part of parts) {
    whole.set(part, start);
    start += part.length;
  }
  return whole;
}

/** `value` in `size` bytes, the least first or, of numbers in names, the greatest. */
export function bytesOf(value: number | bigint, size: number, order: "little" | "big"): Bytes {
  const bytes = Uint8Array.from({ length: size }, (_, i) => Number((BigInt(value) >> BigInt(8 * i)) & 0xffn));
  return order === "little" ? bytes : bytes.reverse();
}
