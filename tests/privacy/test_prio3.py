"""Prio3Histogram: the draft's own vectors, what is refused, and that sums of shares are sums of items."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles_prio3 as oracle
from discreet.kernels import field128
from discreet.vdaf import InvalidReport, Prio3Histogram, VerifyState, best_chunk_length, field, prio3, xof
from discreet.vdaf.compiled import Circuit
from discreet.vdaf.field import MODULUS

VECTORS = Path(__file__).parents[1] / "vectors" / "vdaf"
CTX, KEY, NONCE = b"a task", bytes(range(32)), bytes(range(100, 116))
FLIPS = 10_000


def of_hex(texts: list[str]) -> list[bytes]:
    return [bytes.fromhex(text) for text in texts]


def verified(
    scheme: Prio3Histogram,
    public: bytes,
    inputs: list[bytes],
    *,
    keys: list[bytes] | None = None,
    contexts: list[bytes] | None = None,
    nonces: list[bytes] | None = None,
) -> list[bytes]:
    """Output shares of a report that all servers verify, each by what it believes."""
    n = scheme.shares
    keys, contexts, nonces = keys or [KEY] * n, contexts or [CTX] * n, nonces or [NONCE] * n
    begun = [scheme.verify_init(keys[i], contexts[i], i, nonces[i], public, share) for i, share in enumerate(inputs)]
    message = scheme.verifier_shares_to_message(contexts[0], [share for _, share in begun])
    return [scheme.verify_next(state, message) for state, _ in begun]


# The draft's vectors ------------------------------------------------------------------------------------------------


def operations(scheme: Prio3Histogram, vector: dict[str, Any]) -> Callable[[dict[str, Any]], tuple[object, object]]:
    """What an operation of a vector computes, and what it should."""
    ctx, key = of_hex([vector["ctx"], vector["verify_key"]])
    states: dict[tuple[int, int], VerifyState] = {}

    def result(operation: dict[str, Any]) -> tuple[object, object]:
        kind, server, i = operation["operation"], operation.get("aggregator_id"), operation.get("report_index")
        if kind == "aggregate":
            shares = [report["out_shares"][server] for report in vector["reports"]]
            return scheme.aggregate(of_hex(shares)).hex(), vector["agg_shares"][server]
        if kind == "unshard":
            return scheme.unshard(of_hex(vector["agg_shares"])), vector["agg_result"]
        report = vector["reports"][i]
        nonce, public = of_hex([report["nonce"], report["public_share"]])
        if kind == "shard":
            public, inputs = scheme.shard(ctx, report["measurement"], nonce, bytes.fromhex(report["rand"]))
            return [public.hex(), *(share.hex() for share in inputs)], [
                report["public_share"],
                *report["input_shares"],
            ]
        if kind == "verify_init":
            share = bytes.fromhex(report["input_shares"][server])
            states[i, server], verifier = scheme.verify_init(key, ctx, server, nonce, public, share)
            return verifier.hex(), report["verifier_shares"][0][server]
        if kind == "verifier_shares_to_message":
            message = scheme.verifier_shares_to_message(ctx, of_hex(report["verifier_shares"][0]))
            return message.hex(), report["verifier_messages"][0]
        assert kind == "verify_next"
        out = scheme.verify_next(states[i, server], bytes.fromhex(report["verifier_messages"][0]))
        return out.hex(), report["out_shares"][server]

    return result


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("path", sorted(VECTORS.glob("Prio3Histogram_*.json")), ids=lambda path: path.stem)
def test_the_vectors_of_the_draft(path: Path, plain: bool) -> None:
    vector = json.loads(path.read_text())
    result = operations(Prio3Histogram(vector["shares"], vector["length"], vector["chunk_length"], plain), vector)
    refused = 0
    for operation in vector["operations"]:
        if operation["success"]:
            computed, expected = result(operation)
            assert computed == expected, operation
        else:
            refused += 1
            with pytest.raises(InvalidReport):
                result(operation)
    assert refused == ("_bad_" in path.stem)


def test_the_vector_of_the_xof() -> None:
    vector = json.loads((VECTORS / "XofTurboShake128.json").read_text())
    seed, tag, binder = of_hex([vector["seed"], vector["dst"], vector["binder"]])
    assert xof.derived(seed, tag, binder).hex() == vector["derived_seed"]
    assert xof.expanded(seed, tag, binder, vector["length"]).hex() == vector["expanded_vec_field128"]


# The field ----------------------------------------------------------------------------------------------------------


def test_numbers_from_the_modulus_on_are_skipped_by_the_sampler() -> None:
    """An official vector that holds one would take 2⁵⁹ elements."""
    stream = [5, MODULUS, 2**128 - 1, MODULUS - 1, MODULUS + 1, 2**64, 7, 9]
    data = bytearray(b"".join(x.to_bytes(16, "little") for x in stream))

    def read(n: int) -> bytes:
        taken = bytes(data[:n])
        del data[:n]
        return taken

    assert field.decoded(xof.first_elements(read, 4)) == [5, MODULUS - 1, 2**64, 7]
    assert len(data) == 16  # nothing is read that is not needed


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_encoding_is_one_of_elements_below_the_modulus(place: int) -> None:
    for x, valid in ((MODULUS - 1, True), (MODULUS, False), (2**128 - 1, False), (2**128 - 2**56, False)):
        for beside in (4, 2**120 - 1):  # fifteen bytes of ones are a number like any other
            data = b"".join((x if i == place else beside).to_bytes(16, "little") for i in range(3))
            assert field.is_vector(data, 3) == valid
            assert not field.is_vector(data, 2)
            assert not field.is_vector(data + b"\0", 3)


def test_the_generator_has_the_order_that_roots_need() -> None:
    assert MODULUS == 2**128 - 28 * 2**64 + 1
    assert pow(field.GENERATOR, 2**65, MODULUS) == MODULUS - 1
    assert [pow(w, 8, MODULUS) for w in field.roots(8)] == [1] * 8
    assert len(set(field.roots(8))) == 8


# Against the oracle -------------------------------------------------------------------------------------------------

EDGES = [0, 1, 2, 2**32, 2**64 - 29, 2**64 - 28, 2**64 - 1, 2**64, 2**64 + 1, 2**127, MODULUS - 2**64, MODULUS - 1]
EDGES += [MODULUS - 2, 2**128 - 29 * 2**64, 2**128 - 28 * 2**64, 28 * 2**64 - 1, (MODULUS + 1) // 2]
ELEMENTS = st.one_of(st.sampled_from(EDGES), st.integers(0, MODULUS - 1))


def test_compiled_arithmetic_at_all_pairs_of_edges() -> None:
    """Where words carry, and where sums are p or p ± 1."""
    edges = [
        0,
        1,
        2,
        27,
        28,
        2**32,
        2**63 - 1,
        2**63,
        2**64 - 29,
        2**64 - 28,
        2**64 - 27,
        2**64 - 2,
        2**64 - 1,
        0x9E3779B97F4A7C15,
    ]
    numbers = [high << 64 | low for high in edges for low in edges if high << 64 | low < MODULUS]

    def words(x: int) -> tuple[np.uint64, np.uint64]:
        return np.uint64(x % 2**64), np.uint64(x >> 64)

    def number(pair: tuple[np.uint64, np.uint64]) -> int:
        return int(pair[1]) << 64 | int(pair[0])

    by_radix = pow(2**128, -1, MODULUS)
    for a, b in product(numbers, numbers):
        assert number(field128._sum(words(a), words(b))) == (a + b) % MODULUS
        assert number(field128._product(words(a), words(b))) == a * b * by_radix % MODULUS
    for a in numbers:
        assert number(field128._minus(words(a))) == -a % MODULUS


@st.composite
def queries(draw: st.DrawFn) -> tuple[int, int, int, list[int], list[int], list[int], list[int]]:
    shares, length, c = draw(st.integers(2, 255)), draw(st.integers(1, 12)), draw(st.integers(1, 14))
    circuit = prio3.OneHot(length, c)

    def vector(n: int) -> list[int]:
        return draw(st.lists(ELEMENTS, min_size=n, max_size=n))

    points = vector(3)
    if draw(st.booleans()):  # a root of unity of order 2P, which is none of order P
        points[2] = field.roots(2 * circuit.points)[1]
    return shares, length, c, vector(length), vector(circuit.proof_length), points, vector(circuit.calls)


@given(queries())
def test_queries_are_those_of_polynomials_by_coefficients(case: tuple[Any, ...]) -> None:
    """Plain and compiled code, with elements at which words carry."""
    shares, length, c, vector, proof, points, joint = case
    circuit = prio3.OneHot(length, c)
    expected = oracle.query(vector, proof, points, joint, c, shares)
    assert circuit.query(vector, proof, points, joint, shares) == expected
    encoded = [field.encoded(x) for x in (vector, proof, points, joint)]
    assert field.decoded(Circuit.of(circuit.points, shares).query(*encoded)) == expected


@given(st.integers(2, 4), st.integers(1, 20), st.integers(1, 22), st.data())
def test_reports_are_those_of_a_dense_proof(shares: int, length: int, c: int, data: st.DataObject) -> None:
    """The prover's short cut gives the polynomial that multiplying the wires gives; and the report is accepted."""
    item, rand = (
        data.draw(st.integers(0, length - 1)),
        data.draw(st.binary(min_size=64 * shares, max_size=64 * shares)),
    )
    vector = [int(i == item) for i in range(length)]
    scheme = Prio3Histogram(shares, length, c)
    public, inputs = scheme.shard(CTX, item, NONCE, rand)
    assert (public, inputs) == oracle.forged(shares, vector, c, CTX, NONCE, rand)
    sizes = [scheme.leader_share_size] + [scheme.helper_share_size] * (shares - 1)
    assert [len(public), *map(len, inputs)] == [scheme.public_share_size, *sizes]
    assert scheme.unshard(verified(scheme, public, inputs)) == vector


@given(st.lists(st.lists(ELEMENTS, min_size=3, max_size=3), max_size=6))
def test_sums_in_compiled_code_are_those_of_integers(vectors: list[list[int]]) -> None:
    encoded = [field.encoded(vector) for vector in vectors]
    expected = [sum(vector[i] for vector in vectors) % MODULUS for i in range(3)]
    for plain in (False, True):
        assert field.decoded(Prio3Histogram(2, 3, 1, plain).aggregate(encoded)) == expected


# What is refused ----------------------------------------------------------------------------------------------------


def flips_of(scheme: Prio3Histogram, draws: random.Random) -> Iterator[Callable[[], object]]:
    """Verifications of one report after one flip: once in each of its messages, the servers' own included."""
    public, inputs = scheme.shard(CTX, draws.randrange(scheme.length), NONCE, draws.randbytes(scheme.rand_size))
    begun = [scheme.verify_init(KEY, CTX, i, NONCE, public, share) for i, share in enumerate(inputs)]
    states, shares = [state for state, _ in begun], [share for _, share in begun]
    message = scheme.verifier_shares_to_message(CTX, shares)

    def ended(bad_shares: list[bytes]) -> list[bytes]:
        combined = scheme.verifier_shares_to_message(CTX, bad_shares)
        return [scheme.verify_next(state, combined) for state in states]

    assert ended(shares) == verified(scheme, public, inputs)

    def flipped(data: bytes) -> bytes:
        byte, bit = divmod(draws.randrange(8 * len(data)), 8)
        return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]

    def one_flipped(messages: list[bytes], i: int) -> list[bytes]:
        return [flipped(data) if j == i else data for j, data in enumerate(messages)]

    yield partial(verified, scheme, flipped(public), inputs)
    for i, state in enumerate(states):
        yield partial(verified, scheme, public, one_flipped(inputs, i))
        yield partial(verified, scheme, public, inputs, nonces=one_flipped([NONCE] * scheme.shares, i))
        yield partial(ended, one_flipped(shares, i))
        yield partial(scheme.verify_next, state, flipped(message))


def test_no_flipped_bit_of_any_message_is_accepted() -> None:
    """10⁴ flips in messages of reports to two and to three servers; a refusal says which check failed and no more."""
    draws, schemes = random.Random(1), cycle((Prio3Histogram(2, 25, 4), Prio3Histogram(3, 5, 2)))
    said: Counter[str] = Counter()
    for attempt in islice((flip for scheme in schemes for flip in flips_of(scheme, draws)), FLIPS):
        with pytest.raises(InvalidReport) as refusal:
            attempt()
        said[str(refusal.value)] += 1
    assert sum(said.values()) == FLIPS
    assert len(said) <= 2 + 2 * 2  # two checks, and elements that are none in messages of either size


@pytest.mark.parametrize("message", range(5))
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""])
def test_messages_of_other_sizes_are_refused(message: int, change: Callable[[bytes], bytes]) -> None:
    scheme = Prio3Histogram(2, 7, 3)
    public, inputs = scheme.shard(CTX, 3, NONCE)
    (state, leader), (_, helper) = (scheme.verify_init(KEY, CTX, i, NONCE, public, inputs[i]) for i in (0, 1))
    combined = scheme.verifier_shares_to_message(CTX, [leader, helper])
    assert scheme.verify_next(state, combined) == inputs[0][: scheme.agg_share_size]
    with pytest.raises(InvalidReport):
        (
            lambda: scheme.verify_init(KEY, CTX, 0, NONCE, change(public), inputs[0]),
            lambda: scheme.verify_init(KEY, CTX, 0, NONCE, public, change(inputs[0])),
            lambda: scheme.verify_init(KEY, CTX, 1, NONCE, public, change(inputs[1])),
            lambda: scheme.verifier_shares_to_message(CTX, [leader, change(helper)]),
            lambda: scheme.verify_next(state, change(combined)),
        )[message]()
    with pytest.raises(InvalidReport):
        scheme.verify_init(KEY, CTX, 0, change(NONCE), public, inputs[0])
    with pytest.raises(InvalidReport):
        scheme.aggregate([change(inputs[0][: scheme.agg_share_size])])


def test_numbers_of_shares_are_checked() -> None:
    scheme = Prio3Histogram(2, 7, 3)
    public, inputs = scheme.shard(CTX, 3, NONCE)
    _, share = scheme.verify_init(KEY, CTX, 0, NONCE, public, inputs[0])
    for shares in ([], [share], [share] * 3):
        with pytest.raises(InvalidReport, match="verifier shares; expected 2"):
            scheme.verifier_shares_to_message(CTX, shares)
        with pytest.raises(ValueError, match="aggregate shares; expected 2"):
            scheme.unshard([bytes(scheme.agg_share_size)] * len(shares))


@pytest.mark.parametrize(
    "vector",
    [
        [0] * 10,
        [1, 1] + [0] * 8,
        [0] * 9 + [2],
        [2, MODULUS - 1] + [0] * 8,
        [0, 0, 0, 1, 1, MODULUS - 1] + [0] * 4,
        [(MODULUS + 1) // 2] * 2 + [0] * 8,
        [0] * 8 + [1, 100],
        [MODULUS - 1] + [0] * 9,
    ],
)
@pytest.mark.parametrize("shares", [2, 3])
def test_a_dishonest_device_with_an_honest_proof_is_refused(shares: int, vector: list[int]) -> None:
    """Ballot stuffing, negative and halved items, none at all: refused; its own one-hot vectors are accepted."""
    scheme, draws = Prio3Histogram(shares, 10, 3), random.Random(2)
    for _ in range(10):
        rand = draws.randbytes(scheme.rand_size)
        with pytest.raises(InvalidReport, match="the proof of this report does not hold"):
            verified(scheme, *oracle.forged(shares, vector, 3, CTX, NONCE, rand))
    honest = [int(i == 9) for i in range(10)]
    assert scheme.unshard(verified(scheme, *oracle.forged(shares, honest, 3, CTX, NONCE, rand))) == honest


def test_what_servers_do_not_agree_on_is_refused() -> None:
    """Another nonce, key, context or place; a report of another task, of another nonce, or with another's share."""
    scheme = Prio3Histogram(2, 25, 4)
    public, inputs = scheme.shard(CTX, 3, NONCE)
    other_public, other_inputs = scheme.shard(CTX, 3, NONCE)
    other_key, other_nonce = bytes(32), bytes(16)
    assert scheme.unshard(verified(scheme, public, inputs)) == [int(i == 3) for i in range(25)]
    assert verified(scheme, public, inputs, keys=[other_key] * 2)  # the servers' own business, where they agree
    for refused in (
        lambda: verified(scheme, public, inputs, keys=[KEY, other_key]),
        lambda: verified(scheme, public, inputs, contexts=[CTX, b"another"]),
        lambda: verified(scheme, public, inputs, contexts=[b"another"] * 2),
        lambda: verified(scheme, public, inputs, nonces=[NONCE, other_nonce]),
        lambda: verified(scheme, public, inputs, nonces=[other_nonce] * 2),
        lambda: verified(scheme, public, [inputs[0], other_inputs[1]]),
        lambda: verified(scheme, public, [other_inputs[0], inputs[1]]),
        lambda: verified(scheme, other_public, inputs),
        lambda: verified(scheme, public, [inputs[0], inputs[0]]),
        lambda: verified(scheme, public, [inputs[1], inputs[1]]),
        lambda: verified(Prio3Histogram(2, 24, 4), public, inputs),
        lambda: verified(Prio3Histogram(2, 25, 5), public, inputs),
        lambda: verified(Prio3Histogram(2, 26, 4), public, inputs),
    ):
        with pytest.raises(InvalidReport):
            refused()
    three = Prio3Histogram(3, 25, 4)
    public, inputs = three.shard(CTX, 3, NONCE)
    with pytest.raises(InvalidReport):  # two helpers change places
        verified(three, public, [inputs[0], inputs[2], inputs[1]])


@pytest.mark.parametrize("plain", [False, True])
def test_a_test_point_that_is_a_root_of_unity_is_refused(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a verifier share would show an input of the gadget."""
    scheme = Prio3Histogram(2, 25, 4, plain)
    public, inputs = scheme.shard(CTX, 3, NONCE)
    honest = Prio3Histogram._vector

    def rig(point: int) -> None:
        def rigged(self: Prio3Histogram, usage: int, *arguments: Any) -> bytes:
            return field.encoded([1, 1, point]) if usage == prio3.QUERY else honest(self, usage, *arguments)

        monkeypatch.setattr(Prio3Histogram, "_vector", rigged)

    points = field.roots(2 * scheme.circuit.points)
    for point in points[::2]:
        rig(point)
        with pytest.raises(InvalidReport, match="root of unity"):
            scheme.verify_init(KEY, CTX, 0, NONCE, public, inputs[0])
    for point in (0, *points[1::2]):
        rig(point)
        assert scheme.unshard(verified(scheme, public, inputs))[3] == 1


def test_settings_out_of_range_are_refused() -> None:
    for sizes in ((1, 5, 2), (256, 5, 2), (2, 0, 1), (2, 5, 0)):
        with pytest.raises(ValueError, match="expected"):
            Prio3Histogram(*sizes)
    scheme = Prio3Histogram(2, 5, 2)
    public, inputs = scheme.shard(CTX, 4, NONCE)
    for bad in (
        lambda: scheme.shard(CTX, 5, NONCE),
        lambda: scheme.shard(CTX, -1, NONCE),
        lambda: scheme.shard(CTX, 4, NONCE[1:]),
        lambda: scheme.shard(CTX, 4, NONCE, bytes(127)),
        lambda: scheme.shard(bytes(2**16 - 8), 4, NONCE),
        lambda: scheme.verify_init(KEY[1:], CTX, 0, NONCE, public, inputs[0]),
        lambda: scheme.verify_init(KEY, CTX, 2, NONCE, public, inputs[1]),
        lambda: scheme.verify_init(KEY, CTX, -1, NONCE, public, inputs[1]),
        lambda: scheme.noised(bytes(80), [1] * 4),
    ):
        with pytest.raises(ValueError, match="expected"):
            bad()
    assert scheme.shard(bytes(2**16 - 9), 4, NONCE)


# Sums ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [2, 3])
def test_sums_of_shares_are_the_histogram(shares: int) -> None:
    """Of many devices, whatever portions a server adds them in; one share alone is left out of nothing."""
    draws, length = random.Random(3), 25
    scheme = Prio3Histogram(shares, length, best_chunk_length(length))
    items = [draws.randrange(length) for _ in range(300)]
    outs = []
    for item in items:
        nonce = draws.randbytes(16)
        public, inputs = scheme.shard(CTX, item, nonce)
        outs.append(verified(scheme, public, inputs, nonces=[nonce] * shares))
    truth = [items.count(i) for i in range(length)]
    servers = list(zip(*outs, strict=True))
    whole = [scheme.aggregate(server) for server in servers]
    assert scheme.unshard(whole) == truth
    halves = [scheme.aggregate([scheme.aggregate(s[:100]), scheme.aggregate([]), *s[100:]]) for s in servers]
    assert halves == whole
    assert scheme.unshard([scheme.aggregate(servers[0][1:]), *whole[1:]]) != truth
    noise = [[draws.randrange(-500, 500) for _ in range(length)] for _ in range(shares)]
    noised = [scheme.noised(share, added) for share, added in zip(whole, noise, strict=True)]
    assert scheme.unshard(noised) == [sum(column) for column in zip(truth, *noise, strict=True)]
    assert min(scheme.unshard(noised)) < 0


def test_a_helper_is_sent_the_same_for_every_item_and_a_leader_a_masked_vector() -> None:
    scheme, rand = Prio3Histogram(2, 9, 3), random.Random(4).randbytes(128)
    reports = [scheme.shard(CTX, item, NONCE, rand) for item in range(9)]
    assert len({inputs[1] for _, inputs in reports}) == 1
    mask = field.decoded(xof.expanded(rand[:32], bytes([18, 0, 0, 0, 0, 4, 0, 1]) + CTX, b"\1", 9))
    for item, (_, inputs) in enumerate(reports):
        leader = field.decoded(inputs[0][: scheme.agg_share_size])
        assert [(x + y) % MODULUS for x, y in zip(leader, mask, strict=True)] == [int(i == item) for i in range(9)]
    fresh = [scheme.shard(CTX, 0, NONCE)[1] for _ in range(2)]
    assert not set(fresh[0]) & set(fresh[1])  # randomness of its own, where none is given


def test_the_best_chunks_have_the_shortest_proofs() -> None:
    for length in [*range(1, 200), 1000, 2001]:
        proofs = {c: prio3.OneHot(length, c).proof_length for c in range(1, length + 1)}
        best = best_chunk_length(length)
        assert proofs[best] == min(proofs.values())
        assert best == min(c for c, proof in proofs.items() if proof == proofs[best])
    some = [1, 2, 3, 4, 10, 25, 100, 1000, 2001]
    assert [best_chunk_length(length) for length in some] == [1, 2, 1, 2, 4, 4, 7, 33, 32]  # other languages' too


def test_a_device_that_shards_loads_nothing_heavy() -> None:
    script = """
import sys
from discreet.vdaf import Prio3Histogram
public, inputs = Prio3Histogram(2, 25, 4).shard(b"a task", 3, bytes(16))
assert (len(public), *map(len, inputs)) == (64, 800, 64)
print(*[name for name in ("numpy", "numba", "scipy", "cryptography", "discreet.kernels") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
