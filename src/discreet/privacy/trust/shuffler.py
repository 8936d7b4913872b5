"""Three roles that share nothing but messages: users encode bits, a shuffler permutes messages, an analyzer counts.

Users run discreet/device/bits.py (`BitEncoder`) and nothing of this file. The shuffler
permutes single messages of a complete batch and passes on no other; what leaves it is, per counter, how many ones
there are, and no more. The analyzer sees a batch once: whatever it makes of it, its users have reported.

Nothing here needs the server. Proof: shuffle.md.
As a process of its own the shuffler is `python -m discreet.privacy.trust.shuffler FOLDER OUT --encoder FILE`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from discreet.device.bits import MESSAGE, BitEncoder, Messages
from discreet.device.sampler import Ints
from discreet.privacy.noise import NoiseSource

#: Random words drawn at once while bits are made.
CHUNK = 1 << 18


class BadBatch(ValueError):
    """Messages are not what users of this batch would have sent: they are not passed on, or nothing is estimated."""


# The shuffler -------------------------------------------------------------------------------------------------------


def check_size(encoder: BitEncoder, users: int) -> None:
    """Refuse a batch that is not complete, for its noise would not do, and one of more users than announced."""
    if not encoder.needed <= users <= encoder.users:
        raise BadBatch(
            f"messages of {users} users came in for a batch of {encoder.users}, whose noise needs at least "
            f"{encoder.needed}; the batch is refused"
        )


def check_bundle(encoder: BitEncoder, messages: Messages, form: str) -> None:
    """Refuse what no user of the batch would have sent: it concerns its sender only."""
    if form != encoder.form:
        raise BadBatch("the messages were made with another encoder than this batch's; they are not taken")
    if not isinstance(messages, np.ndarray) or messages.dtype != MESSAGE or messages.ndim != 1:
        raise BadBatch("messages must be one row of (label, bit); they are not taken")
    if messages.size != encoder.messages_per_user or (messages["bit"] > 1).any():
        raise BadBatch(f"a user sends {encoder.messages_per_user} bits; these messages are not taken")
    counts = np.bincount(messages["label"][messages["label"] < encoder.num_counters], minlength=encoder.num_counters)
    if (counts != 1 + encoder.noise_bits).any():
        raise BadBatch(f"a user sends {1 + encoder.noise_bits} bits for every counter; these messages are not taken")


def permuted(messages: Messages, noise: NoiseSource) -> Messages:
    """The messages in an order drawn evenly from all orders (random keys are sorted; equal keys are drawn again)."""
    while True:
        keys = noise.words(messages.size)
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        if not (sorted_keys[1:] == sorted_keys[:-1]).any():
            return messages[order]


class Shuffler:
    """One batch in one process: takes bundles of messages, gives back single messages in random order, once."""

    def __init__(self, encoder: BitEncoder, noise: NoiseSource | None = None) -> None:
        self._encoder, self._noise = encoder, noise or NoiseSource.secure()
        self._bundles: list[Messages] = []
        self._open = True

    def __len__(self) -> int:
        """Users who have sent their messages."""
        return len(self._bundles)

    def submit(self, messages: Messages, form: str) -> None:
        """All messages of one user, with the name of the encoder that made them."""
        if not self._open or len(self) == self._encoder.users:
            raise BadBatch(f"the batch of {self._encoder.users} users is full or passed on; nobody else can enter")
        check_bundle(self._encoder, messages, form)
        self._bundles.append(messages.copy())

    def flush(self) -> Messages:
        """All messages of the complete batch, permuted; who sent which is forgotten. An incomplete one stays here."""
        if not self._open:
            raise BadBatch("the batch has been passed on; that is done once")
        check_size(self._encoder, len(self))
        bundles, self._bundles, self._open = self._bundles, [], False
        return permuted(np.concatenate(bundles), self._noise)


def _bundle_in(path: Path, encoder: BitEncoder) -> Messages | None:
    """The messages in a file; None for what no user of the batch would have sent."""
    try:
        if path.stat().st_size != MESSAGE.itemsize * encoder.messages_per_user:
            return None
        bundle: Messages = np.frombuffer(path.read_bytes(), dtype=MESSAGE)
        check_bundle(encoder, bundle, path.name.partition("-")[0])
    except (OSError, ValueError):
        return None
    return bundle


def shuffle_files(folder: Path, out: Path, encoder: BitEncoder, noise: NoiseSource | None = None) -> int:
    """Permute the messages of a complete batch into one file and delete what came in; how many messages.

    Bundles that no user of the batch would have sent are left out. A batch that is not complete stays where it is.
    """
    inbox = sorted(path for path in folder.glob(f"{encoder.form}-*.bits") if path.is_file())
    bundles = [bundle for bundle in (_bundle_in(path, encoder) for path in inbox) if bundle is not None]
    check_size(encoder, len(bundles))
    mixed = permuted(np.concatenate(bundles), noise or NoiseSource.secure())
    taken = [path.replace(path.with_suffix(".taken")) for path in inbox]  # nobody is passed on twice, whatever fails
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        np.save(file, mixed, allow_pickle=False)
    part.replace(out)
    for path in taken:
        path.unlink()
    return int(mixed.size)


# The analyzer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """A complete batch: ones per counter, and how many users took part."""

    sums: Ints
    users: int


def tally(encoder: BitEncoder, messages: Messages) -> Tally:
    """Count the ones of every counter of a batch that a shuffler passed on.

    Only the number of messages is checked, and every number that says nothing about one user. A message that is no
    bit or names no counter counts as a zero, and no counter has more ones than it can have: whoever sent it took away
    her own noise and nobody else's, which `reliable` allows for.
    """
    if not isinstance(messages, np.ndarray) or messages.dtype != MESSAGE or messages.ndim != 1:
        raise BadBatch("a batch must be one row of (label, bit); the batch is refused")
    users, rest = divmod(messages.size, encoder.messages_per_user)
    if rest:
        raise BadBatch(
            f"{messages.size} messages came in, and every user sends {encoder.messages_per_user}: some were dropped "
            "or doubled, and the batch is refused"
        )
    check_size(encoder, users)
    ones = messages["label"][(messages["bit"] == 1) & (messages["label"] < encoder.num_counters)]
    sums = np.bincount(ones.astype(np.int64), minlength=encoder.num_counters)
    return Tally(np.minimum(sums, users * (1 + encoder.noise_bits)).astype(np.int64), users)


def noise_sums(encoder: BitEncoder, users: int, noise: NoiseSource) -> Ints:
    """What the noise bits of so many users add up to, per counter: Bin(users·noise_bits, p).

    Bit by bit from secure randomness; a simulation draws the binomial itself, of the same law.
    """
    C, each = encoder.num_counters, users * encoder.noise_bits
    if noise.simulation:
        generator = noise.generator()
        return generator.binomial(each, encoder.probability, C).astype(np.int64)
    sums = np.zeros(C, dtype=np.int64)
    rows = max(1, CHUNK // C)
    for start in range(0, each, rows):
        words = noise.words(min(rows, each - start) * C).reshape(-1, C)
        sums += np.count_nonzero(words < np.uint64(encoder.flips), axis=0)
    return sums


def estimated(encoder: BitEncoder, batch: Tally) -> tuple[NDArray[np.float64], float]:
    """Expected ones per counter, sum − users·noise_bits·p, and the variance of the noise in each."""
    bits, p = batch.users * encoder.noise_bits, encoder.probability
    return np.asarray(batch.sums - bits * p, dtype=np.float64), bits * p * (1.0 - p)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Permute the messages of a complete batch.")
    parser.add_argument("folder", type=Path, help="where users put their messages")
    parser.add_argument("out", type=Path, help="the file for the analyzer")
    parser.add_argument("--encoder", type=Path, required=True, help="the published encoder of the batch, as JSON")
    options = parser.parse_args(arguments)
    try:
        encoder = BitEncoder.from_json(json.loads(options.encoder.read_text()))
        shuffle_files(options.folder, options.out, encoder)
    except (OSError, ValueError) as error:
        parser.exit(1, f"Nothing was passed on: {error}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
