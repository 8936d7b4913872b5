/**
 * HPKE of RFC 9180 for one message, in base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, by WebCrypto.
 *
 * Needs a platform with X25519: Node 20, Firefox 130, Safari 17, Chromium 133 or later.
 */

import { bytesOf, joined, type Bytes } from "./wire.js";

const EMPTY = new Uint8Array();
const VERSION = ascii("HPKE-v1");
const KEM = joined(ascii("KEM"), bytesOf(0x0020, 2, "big"));
const SUITE = joined(ascii("HPKE"), bytesOf(0x0020, 2, "big"), bytesOf(0x0001, 2, "big"), bytesOf(0x0001, 2, "big"));

function ascii(text: string): Bytes {
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

async function hmac(key: Uint8Array, message: Bytes): Promise<Bytes> {
  // An empty key is one of zeros, and not every platform takes it.
  const raw = joined(key.length === 0 ? new Uint8Array(32) : key);
  const made = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", made, message));
}

/** LabeledExtract of §4. */
function extracted(suite: Bytes, salt: Uint8Array, label: string, secret: Uint8Array): Promise<Bytes> {
  return hmac(salt, joined(VERSION, suite, ascii(label), secret));
}

/** LabeledExpand of §4, for at most 32 bytes. */
async function expanded(suite: Bytes, key: Bytes, label: string, info: Uint8Array, length: number): Promise<Bytes> {
  const message = joined(bytesOf(length, 2, "big"), VERSION, suite, ascii(label), info, Uint8Array.of(1));
  return (await hmac(key, message)).slice(0, length);
}

/** An ephemeral key, fresh unless a test gives one. */
export async function sealed(
  message: Uint8Array,
  receiver: Bytes,
  info: Uint8Array,
  ephemeral?: CryptoKeyPair,
  aad: Bytes = EMPTY,
): Promise<Bytes> {
  const pair = ephemeral ?? ((await crypto.subtle.generateKey("X25519", false, ["deriveBits"])) as CryptoKeyPair);
  const theirs = await crypto.subtle.importKey("raw", receiver, "X25519", false, []);
  const own = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  const dh = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: theirs }, pair.privateKey, 256));
  if (dh.every((byte) => byte === 0)) throw new RangeError("this is no key that anything can be sealed to");
  const shared = await expanded(KEM, await extracted(KEM, EMPTY, "eae_prk", dh), "shared_secret", joined(own, receiver), 32);
  const id = await extracted(SUITE, EMPTY, "psk_id_hash", EMPTY);
  const context = joined(Uint8Array.of(0), id, await extracted(SUITE, EMPTY, "info_hash", info));
  const secret = await extracted(SUITE, shared, "secret", EMPTY);
  const key = await expanded(SUITE, secret, "key", context, 16);
  const iv = await expanded(SUITE, secret, "base_nonce", context, 12);
  const aes = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const box = await crypto.subtle.encrypt({ name: "AES-GCM", iv, additionalData: aad }, aes, joined(message));
  return joined(own, new Uint8Array(box));
}
