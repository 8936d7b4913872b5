"""What one report of secret shares costs: a server beside plain Python and beside its limit, and a device."""

from __future__ import annotations

from functools import partial

from discreet.vdaf import Prio3Histogram, best_chunk_length
from measuring import Row, row, seconds, seconds_in_turn

#: Buckets, seconds that one server may take, how much sooner than plain code.
SIZES = ((25, 1e-3, 1.3), (2001, 10e-3, 3.0))
CTX, KEY, NONCE = b"a task", bytes(32), bytes(16)
ROUNDS = 30


def _verified(scheme: Prio3Histogram, public: bytes, share: bytes, leader: bytes) -> bytes:
    """All that a helper does with a report: query, combine, decide, compare."""
    state, own = scheme.verify_init(KEY, CTX, 1, NONCE, public, share)
    return scheme.verify_next(state, scheme.verifier_shares_to_message(CTX, [leader, own]))


def rows() -> list[Row]:
    found: list[Row] = []
    for length, limit, times in SIZES:
        chunk = best_chunk_length(length)
        compiled, plain = Prio3Histogram(2, length, chunk), Prio3Histogram(2, length, chunk, plain=True)
        public, inputs = compiled.shard(CTX, length // 2, NONCE, bytes(range(compiled.rand_size)))
        _, leader = compiled.verify_init(KEY, CTX, 0, NONCE, public, inputs[0])
        works = [partial(_verified, scheme, public, inputs[1], leader) for scheme in (compiled, plain)]
        assert works[0]() == works[1]()
        ours, baseline = seconds_in_turn(*works, rounds=ROUNDS)
        device = seconds(partial(compiled.shard, CTX, length // 2, NONCE), ROUNDS)
        name = f"Prio3Histogram of {length:,} buckets"
        found += [
            row(f"{name}, one server verifies", ours, baseline, "plain Python", "s", times, less=True),
            row(f"{name}, one server verifies, limit", ours, limit, "fixed", "s", 1.0, less=True),
            row(f"{name}, a device shards, limit", device, 10 * limit, "fixed", "s", 1.0, less=True),
        ]
    return found


if __name__ == "__main__":
    for line in rows():
        print(line)
