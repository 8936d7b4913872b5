/** Shares for two servers: what Python's devices send, byte for byte given the same randomness. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { encoderOf, ShareEncoder } from "../src/encoders.js";
import { sealed } from "../src/hpke.js";
import { Noise } from "../src/sampler.js";
import { fromHex, pythonFloat, toHex, type Bytes, type Fields, type Json } from "../src/wire.js";

interface Shares {
  floats: [number, string][];
  vectors: { encoder: Fields; bucket: number; nonce: string; rand: string; ephemeral: string; payload: string }[];
}
const told = JSON.parse(
  readFileSync(new URL("../../../../tests/vectors/live/shares.json", import.meta.url), "utf8"),
) as Shares;

/** A key pair of a private key's bytes, which WebCrypto takes in a wrapping only. */
async function pair(secret: string): Promise<CryptoKeyPair> {
  const wrapped = fromHex("key", `302e020100300506032b656e04220420${secret}`, 48);
  const privateKey = await crypto.subtle.importKey("pkcs8", wrapped, "X25519", true, ["deriveBits"]);
  const { x } = await crypto.subtle.exportKey("jwk", privateKey);
  const open = { kty: "OKP", crv: "X25519", x: x! };
  return { privateKey, publicKey: await crypto.subtle.importKey("jwk", open, "X25519", true, []) };
}

function bytes(digits: string): Bytes {
  return fromHex("digits", digits, digits.length / 2);
}

test("HPKE is that of RFC 9180, A.1.1", async () => {
  const found = await sealed(
    bytes("4265617574792069732074727574682c20747275746820626561757479"),
    bytes("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"),
    bytes("4f6465206f6e2061204772656369616e2055726e"),
    await pair("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"),
    new TextEncoder().encode("Count-0"),
  );
  assert.equal(
    toHex(found),
    "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431" +
      "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
  );
});

test("nothing is sealed to a key that gives the secret away", async () => {
  await assert.rejects(sealed(new Uint8Array(1), new Uint8Array(32), new Uint8Array()));
});

test("doubles are written as Python writes them", () => {
  for (const [value, text] of told.floats) assert.equal(pythonFloat(value), text);
});

test("forty reports are those of Python", async () => {
  assert.equal(told.vectors.length, 40);
  for (const { encoder, bucket, nonce, rand, ephemeral, payload } of told.vectors) {
    const made = encoderOf(encoder);
    assert(made instanceof ShareEncoder);
    assert.equal(toHex(await made.shared(bucket, bytes(nonce), bytes(rand), await pair(ephemeral))), payload);
  }
});

test("whatever happened, a report has one length and nothing twice", async () => {
  const encoder = encoderOf({
    encoder: "shares",
    tables: { num_states: 2, num_actions: 2, horizon: 3, stages: 1, grid: 2 ** -10, reward_range: [0, 1] },
    items: [4, 5, 6, 7],
    has_start: false,
    last_successor: true,
    task: "0a".repeat(32),
    helper: told.vectors[0]!.encoder["helper"]!,
    chunk: 2,
  });
  const episodes: unknown[][] = [[[0, 1], [1], [1]], [[0], [], []], [[0, 0], [0], [0]], ["?", null, 7]];
  const sent = await Promise.all(
    episodes.flatMap((episode) => [0, 1].map(() => encoder.payload(episode as unknown as [unknown, unknown, unknown], new Noise()))),
  );
  assert.equal(new Set(sent.map((payload) => payload.length)).size, 1);
  const pieces = sent.flatMap((payload) => [payload.slice(0, 16), payload.slice(16, 48), payload.slice(-112, -80), payload.slice(-16)]);
  assert.equal(new Set(pieces.map(toHex)).size, pieces.length);
});

test("what is no share encoder is refused", () => {
  const good = told.vectors[0]!.encoder;
  const items = (good["items"] as Json[]).length;
  const changes: Fields[] = [{ task: "00" }, { helper: "zz".repeat(32) }, { chunk: 0 }, { chunk: items + 2 }, { more: 1 }];
  for (const change of changes) {
    assert.throws(() => encoderOf({ ...good, ...change }));
  }
});
