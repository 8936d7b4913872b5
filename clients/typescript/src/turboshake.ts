/** TurboSHAKE128 (RFC 9861): Keccak with twelve rounds, in halves of words, because numbers are exact to 2⁵³ only. */

const RATE = 168;
const ROUNDS = 12;
const ALL_ROUNDS = 24;

/** Low and high halves of what each of Keccak's 24 rounds adds (FIPS 202, algorithm 5). */
const CONSTANTS = (() => {
  const constants = new Int32Array(2 * ALL_ROUNDS);
  let register = 1;
  for (let round = 0; round < ALL_ROUNDS; round++) {
    for (let j = 0; j < 7; j++) {
      const bit = 2 ** j - 1;
      if (register & 1) constants[2 * round + (bit >> 5)]! ^= 1 << (bit & 31);
      register = ((register << 1) ^ ((register >> 7) * 0x71)) & 0xff;
    }
  }
  return constants;
})();

/** Where lanes go and how far they are turned, in the order of the walk (FIPS 202, algorithms 2 and 3). */
const [PLACES, TURNS] = (() => {
  const places = new Uint8Array(24);
  const turns = new Uint8Array(24);
  let [x, y] = [1, 0];
  for (let t = 0; t < 24; t++) {
    [x, y] = [y, (2 * x + 3 * y) % 5];
    places[t] = x + 5 * y;
    turns[t] = (((t + 1) * (t + 2)) / 2) % 64;
  }
  return [places, turns];
})();

/** The permutation, in place, of 25 lanes as (low, high). */
function permute(lanes: Int32Array): void {
  const columns = new Int32Array(10);
  const row = new Int32Array(10);
  for (let round = ALL_ROUNDS - ROUNDS; round < ALL_ROUNDS; round++) {
    for (let x = 0; x < 10; x++) {
      columns[x] = lanes[x]! ^ lanes[x + 10]! ^ lanes[x + 20]! ^ lanes[x + 30]! ^ lanes[x + 40]!;
    }
    for (let x = 0; x < 5; x++) {
      const [before, after] = [2 * ((x + 4) % 5), 2 * ((x + 1) % 5)];
      const low = columns[before]! ^ ((columns[after]! << 1) | (columns[after + 1]! >>> 31));
      const high = columns[before + 1]! ^ ((columns[after + 1]! << 1) | (columns[after]! >>> 31));
      for (let lane = 2 * x; lane < 50; lane += 10) {
        lanes[lane]! ^= low;
        lanes[lane + 1]! ^= high;
      }
    }
    let low = lanes[2]!;
    let high = lanes[3]!;
    for (let t = 0; t < 24; t++) {
      const lane = 2 * PLACES[t]!;
      const turn = TURNS[t]!;
      const [a, b] = turn < 32 ? [low, high] : [high, low];
      const left = turn & 31;
      low = lanes[lane]!;
      high = lanes[lane + 1]!;
      lanes[lane] = left ? (a << left) | (b >>> (32 - left)) : a;
      lanes[lane + 1] = left ? (b << left) | (a >>> (32 - left)) : b;
    }
    for (let start = 0; start < 50; start += 10) {
      for (let x = 0; x < 10; x++) row[x] = lanes[start + x]!;
      for (let x = 0; x < 10; x++) lanes[start + x]! ^= ~row[(x + 2) % 10]! & row[(x + 4) % 10]!;
    }
    lanes[0]! ^= CONSTANTS[2 * round]!;
    lanes[1]! ^= CONSTANTS[2 * round + 1]!;
  }
}

/** Absorbs a message, with a domain byte from 1 to 127 behind it; `read` gives the next bytes of its endless output. */
export class TurboShake128 {
  readonly #lanes = new Int32Array(50);
  #at = 0;

  constructor(message: Uint8Array, domain: number) {
    for (const byte of message) {
      if (this.#at === RATE) this.#turn();
      this.#mix(this.#at++, byte);
    }
    if (this.#at === RATE) this.#turn();
    this.#mix(this.#at, domain);
    this.#mix(RATE - 1, 0x80);
    this.#turn();
  }

  read(length: number): Uint8Array {
    const output = new Uint8Array(length);
    for (let i = 0; i < length; i++) {
      if (this.#at === RATE) this.#turn();
      output[i] = this.#lanes[this.#at >> 2]! >>> (8 * (this.#at & 3));
      this.#at++;
    }
    return output;
  }

  #mix(place: number, byte: number): void {
    this.#lanes[place >> 2]! ^= byte << (8 * (place & 3));
  }

  #turn(): void {
    permute(this.#lanes);
    this.#at = 0;
  }
}
