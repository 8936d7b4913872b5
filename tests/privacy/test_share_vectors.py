"""Vectors of shares for two servers: (encoder, bucket, randomness, ephemeral key) → payload, for all languages.

`python tests/privacy/test_share_vectors.py` writes the file anew. The TypeScript client reads the same one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from discreet.device import ShareEncoder, Tables, encoder_from_json
from discreet.device.shares import hpke
from discreet.vdaf import best_chunk_length

FILE = Path(__file__).parents[1] / "vectors" / "live" / "shares.json"
RANGES = (0.0, 1.0), (-1.0, 2.0), (0.1, 0.3), (-1e300, 1e300), (-7.0, -3.5), (1e-7, 1e16), (0.0001, 123456789.125)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -2.5,
    0.1,
    1e-4,
    9.9e-5,
    1e-5,
    1e15,
    1e16,
    123456789012345680.0,
    2.0**-20,
    5e-324,
    1.7e308,
    1e22,
)


# HPKE with a given ephemeral key, written from RFC 9180 -------------------------------------------------------------


def extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")


def expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    message = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info + b"\x01"
    return hmac.digest(key, message, "sha256")[:length]


def sealed(message: bytes, receiver: bytes, info: bytes, ephemeral: bytes, aad: bytes = b"") -> bytes:
    """DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode, the first message."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"
    own = X25519PrivateKey.from_private_bytes(ephemeral)
    public = own.public_key().public_bytes_raw()
    dh = own.exchange(X25519PublicKey.from_public_bytes(receiver))
    shared = expand(kem, extract(kem, b"", b"eae_prk", dh), b"shared_secret", public + receiver, 32)
    context = b"\x00" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    secret = extract(suite, shared, b"secret", b"")
    key, nonce = (expand(suite, secret, *each) for each in ((b"key", context, 16), (b"base_nonce", context, 12)))
    return public + AESGCM(key).encrypt(nonce, message, aad)


# The file ----------------------------------------------------------------------------------------------------------


def vectors() -> dict[str, Any]:
    draws = random.Random(7)
    found = []
    for _ in range(40):
        S, A, H = draws.randint(1, 6), draws.randint(1, 4), draws.randint(1, 5)
        tables = Tables(S, A, H, draws.choice([1, H]), 2.0 ** -draws.randint(0, 22), draws.choice(RANGES))
        start = draws.random() < 0.3
        places = 2 * S * (tables.stages * S * A + start)
        items = tuple(sorted(draws.sample(range(places), draws.randint(1, min(places, 40)))))
        helper = X25519PrivateKey.from_private_bytes(draws.randbytes(32))
        key, task = helper.public_key().public_bytes_raw(), draws.randbytes(32).hex()
        chunk = best_chunk_length(len(items) + 1)
        encoder = ShareEncoder(tables, items, task, key.hex(), chunk, start, draws.random() < 0.5)
        bucket, nonce, rand = (
            draws.randint(0, len(items)),
            draws.randbytes(16),
            draws.randbytes(encoder.vdaf.rand_size),
        )
        ephemeral = draws.randbytes(32)
        public, (leader, second) = encoder.vdaf.shard(encoder.context, bucket, nonce, rand)
        payload = nonce + public + leader + sealed(second, key, encoder.info(nonce, public), ephemeral)
        said = {"nonce": nonce, "rand": rand, "ephemeral": ephemeral, "opens": helper.private_bytes_raw()}
        told = {name: part.hex() for name, part in said.items()} | {"payload": payload.hex()}
        found.append({"encoder": encoder.to_json(), "bucket": bucket, **told})
    return {"floats": [[value, repr(value)] for value in FLOATS], "vectors": found}


def test_the_first_vector_of_the_standard() -> None:
    """RFC 9180, A.1.1: what is sealed here with a given key is HPKE."""
    receiver = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
    )
    found = sealed(
        bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479"),
        receiver.public_key().public_bytes_raw(),
        bytes.fromhex("4f6465206f6e2061204772656369616e2055726e"),
        bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"),
        b"Count-0",
    )
    assert found.hex() == (
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    )


def test_the_file_is_what_devices_make_and_both_servers_count_it() -> None:
    told = json.loads(FILE.read_text())
    assert told == json.loads(json.dumps(vectors()))
    for vector in told["vectors"]:
        encoder = encoder_from_json(vector["encoder"])
        assert isinstance(encoder, ShareEncoder)
        payload = bytes.fromhex(vector["payload"])
        nonce, public, leader, box = encoder.parts(payload)
        helper = X25519PrivateKey.from_private_bytes(bytes.fromhex(vector["opens"]))
        second = bytes(hpke().decrypt(box, helper, encoder.info(nonce, public)))
        vdaf, key, context = encoder.vdaf, hashlib.sha256(nonce).digest(), encoder.context
        checked = [vdaf.verify_init(key, context, i, nonce, public, own) for i, own in enumerate((leader, second))]
        message = vdaf.verifier_shares_to_message(context, [says for _, says in checked])
        counted = vdaf.unshard([vdaf.verify_next(state, message) for state, _ in checked])
        assert counted == [int(i == vector["bucket"]) for i in range(encoder.num_items + 1)]
        again = encoder.shared(vector["bucket"], nonce, bytes.fromhex(vector["rand"]))
        assert again[: -len(box)] == payload[: -len(box)]
        assert again[-len(box) :] != box  # a fresh key every time


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
