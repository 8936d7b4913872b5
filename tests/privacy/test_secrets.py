"""Raw sums stay in the stream: we look for them in everything that leaves it."""

from __future__ import annotations

import copy
import gc
import logging
import math
import os
import pickle
import types

import numpy as np
import pytest

from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Azar
from discreet.people.counts import Counts, CountSpec
from discreet.privacy import families
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.sums.raw import RawSums
from discreet.privacy.sums.toeplitz import Toeplitz
from discreet.privacy.sums.tree import Tree
from discreet.runs.experiment import Experiment, run
from oracles_streams import RecordedNoise, random_episodes, stacked

SPEC = CountSpec(3, 2, 4, pooled=False, grid=2.0**-6)
K = 16
PRIVATIZERS = {
    "tree": Tree(Budget.pure(1.0), publish_final=True),
    "tree-honaker": Tree(Budget.pure(1.0), variant="honaker", publish_final=True),
    "tree-smooth": Tree(Budget.zcdp(1.0), variant="smooth", publish_final=True),
    "tree-constant": Tree(Budget.pure(1.0), constant_noise=True, publish_final=True),
    "epochs": Epochs(Budget.pure(1.0)),
    "epochs-restart": Epochs(Budget.zcdp(1.0), window="restart"),
    "toeplitz": Toeplitz(Budget.zcdp(1.0), num_blocks=16),
    "one-shot": OneShot(Budget.pure(1.0)),
}
privatizers = pytest.mark.parametrize("privatizer", PRIVATIZERS.values(), ids=PRIVATIZERS)
continual = pytest.mark.parametrize(
    "privatizer", [p for p in PRIVATIZERS.values() if not isinstance(p, OneShot)], ids=list(PRIVATIZERS)[:-1]
)


def reachable(root):
    """Every object that can be reached from `root` without passing through code, modules or classes."""
    seen, queue = {id(root): root}, [root]
    while queue:
        for found in gc.get_referents(queue.pop()):
            if id(found) in seen or isinstance(found, (type, types.ModuleType, types.FunctionType, types.CodeType)):
                continue
            seen[id(found)] = found
            queue.append(found)
            base = getattr(found, "base", None)
            if isinstance(found, np.ndarray) and base is not None and id(base) not in seen:
                seen[id(base)] = base
                queue.append(base)
    return list(seen.values())


def secrets_of(users) -> list[np.ndarray]:
    """Raw tables of all users together and of the last one alone, in grid and in natural units."""
    tables = []
    for group in (users, users[-1:]):
        counts = Counts.of(stacked(group), SPEC)
        tables += [table.astype(float) for _, table in counts.tables()]
        tables.append(counts.reward_sums * SPEC.grid)
    return tables


def holds(objects, secrets) -> bool:
    for found in objects:
        if isinstance(found, RawSums | Counts):
            return True
        if isinstance(found, np.ndarray) and found.dtype.kind in "if":
            for secret in secrets:
                if found.size == secret.size and np.array_equal(found.reshape(-1), secret.reshape(-1)):
                    return True
    return False


def filled(privatizer, noise=None):
    users = random_episodes(SPEC, 9)
    stream = privatizer.open(SPEC, K, noise or NoiseSource.seeded(2))
    for i, user in enumerate(users):
        stream.add(user)
        if not isinstance(privatizer, OneShot) and i != 6:
            stream.release()
    return stream, users


def test_the_search_finds_what_is_there():
    stream, users = filled(Exact())
    assert holds(reachable(stream), secrets_of(users))
    assert holds(reachable(stream.release()), secrets_of(users))  # no noise, no secret


@privatizers
def test_no_raw_sum_can_be_reached_from_what_leaves_the_stream(privatizer):
    stream, users = filled(privatizer)
    release = stream.release()
    plan = UCBVI(Azar(K)).plan(release, None)
    secrets = secrets_of(users)
    for thing in (release, vars(release), plan, stream.guarantee, stream.ledger, pickle.loads(pickle.dumps(release))):
        objects = reachable(thing)
        assert not holds(objects, secrets)
        assert stream not in [o for o in objects if type(o) is type(stream)]


@privatizers
def test_no_raw_table_is_inside_a_pickled_release_or_plan(privatizer):
    stream, users = filled(privatizer)
    release = stream.release()
    # not seed 0: its order of ties, a public table of zeros and ones, happens to hold one user's visits as bytes
    plan = UCBVI(Azar(K), tie_seed=1).plan(release, None)
    blob = pickle.dumps((release, plan, stream.guarantee, stream.ledger))
    for secret in secrets_of(users):
        for values in (secret, secret.astype(np.int64)):
            assert values.tobytes() not in blob
            if np.count_nonzero(values[0]) > 2:  # nor the first stage alone
                assert values[0].tobytes() not in blob


@privatizers
def test_streams_refuse_to_be_pickled_copied_or_printed_with_their_sums(privatizer):
    stream, _ = filled(privatizer)
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="checkpoint"):
            action(stream)
        with pytest.raises(TypeError, match="checkpoint"):
            action(stream._sums)
    assert repr(stream) == f"{type(stream).__name__}(9 of 16 episodes)"
    assert repr(stream._sums) == "RawSums(9 of 16 episodes)"


@privatizers
def test_errors_and_logs_carry_no_raw_number(privatizer, caplog):
    caplog.set_level(logging.DEBUG)
    stream, _ = filled(privatizer)
    crowd = stacked(random_episodes(SPEC, 8))
    with pytest.raises(ValueError, match="declared") as overrun:
        stream.add(crowd)
    assert [int(word) for word in str(overrun.value).replace("(", " ").split() if word.isdigit()] == [8, 16, 9]
    larger = CountSpec(5, 2, 4, pooled=False, grid=2.0**-6)
    bad = next(e for e in random_episodes(larger, 50) if e.states.max() == 4)
    before = stream._sums.flat.copy()
    stream.add(bad)  # a refusal would tell everybody that there is such a record
    assert np.array_equal(stream._sums.flat, before)
    assert repr(stream) == f"{type(stream).__name__}(10 of 16 episodes)"
    assert not caplog.records


@privatizers
def test_how_many_rewards_were_clipped_stays_inside(privatizer):
    """Same sums after clipping, another number of clipped rewards: the same release, byte for byte."""
    blobs, counted = [], []
    for excess in (1.0, 7.0):
        users = random_episodes(SPEC, 4)
        counts = Counts.of(stacked(users), SPEC)
        stream = privatizer.open(SPEC, K, NoiseSource.seeded(0))
        stream.add(Counts(counts.visits, counts.transitions, counts.reward_sums, 4, clipped=int(excess)))
        blobs.append(pickle.dumps(stream.release()))
        counted.append(stream._sums.clipped)
    assert blobs[0] == blobs[1]
    assert counted == [1, 7]


@privatizers
def test_ledger_scales_are_those_of_the_noise_that_was_drawn(privatizer):
    noise = RecordedNoise(NoiseSource.seeded(11))
    stream, _ = filled(privatizer, noise)
    stream.release()
    law = DiscreteGaussian if stream.ledger[0].is_gaussian else DiscreteLaplace
    for scale in {entry.scale for entry in stream.ledger}:
        drawn = np.concatenate([block.reshape(-1) for drawn_scale, block in noise.drawn if drawn_scale == scale])
        expected = law(scale).variance
        sample = drawn.astype(float) ** 2
        assert abs(sample.mean() - expected) < 5 * sample.std() / math.sqrt(len(sample))
    assert {scale for scale, _ in noise.drawn} == {entry.scale for entry in stream.ledger}


# Checkpoints ------------------------------------------------------------------------------------------------------


def equal(a, b) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("visits", "transitions", "reward_sums")
    )


@privatizers
def test_a_checkpoint_is_unreadable_without_its_key(privatizer):
    stream, users = filled(privatizer)
    key = os.urandom(32)
    blob = stream.checkpoint(key)
    for secret in secrets_of(users):
        assert secret.astype(np.int64).tobytes() not in blob
    for wrong_key, wrong_blob in ((os.urandom(32), blob), (key, blob[:-1] + bytes([blob[-1] ^ 1]))):
        with pytest.raises(ValueError, match="another key"):
            privatizer.open(SPEC, K, NoiseSource.seeded(0)).restore(wrong_blob, wrong_key)
    with pytest.raises(ValueError, match="other settings"):
        privatizer.open(SPEC, K + 1, NoiseSource.seeded(0)).restore(blob, key)
    with pytest.raises(ValueError, match="freshly opened"):
        stream.restore(blob, key)


@continual
def test_a_restored_stream_goes_on_as_if_nothing_had_happened(privatizer):
    """A stream that is replaced by its restored checkpoint gives the releases of one that made it and went on."""
    users = random_episodes(SPEC, K)
    key = os.urandom(16)
    whole, parts = [], []
    for restart, releases in ((False, whole), (True, parts)):
        noise = NoiseSource.seeded(21)
        stream = privatizer.open(SPEC, K, noise)
        for i, user in enumerate(users):
            stream.add(user)
            if i % 2 == 0 and i != 4:
                releases.append(stream.release())
            if i in (4, 9, 12):  # once before its release, once between two, once after its release
                blob = stream.checkpoint(key)
                if restart:
                    stream = privatizer.open(SPEC, K, noise)
                    stream.restore(blob, key)
            if i in (4, 12):  # what was drawn before is not drawn again
                releases.append(stream.release())
                assert i == 4 or equal(releases[-1], releases[-2])
    assert all(equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_noise_drawn_ahead_is_shared_with_nobody(monkeypatch):
    """Neither a checkpoint nor a fork may go on with noise that the stream itself will use."""
    key, users = os.urandom(16), random_episodes(SPEC, K)
    tree = Tree(Budget.pure(1.0))
    stream = tree.open(SPEC, K, NoiseSource.secure())
    stream.add(users[0])
    stream.release()
    ahead = [block.tobytes() for block in stream._mechanism.noise._store]
    assert len(ahead) > 3
    monkeypatch.setattr(families.os, "getpid", lambda: -1)  # as a forked process would see it
    fresh = [stream._mechanism.noise.draw().tobytes() for _ in ahead]
    assert not set(fresh) & set(ahead)
    kept = [block.tobytes() for block in stream._mechanism.noise._store]
    again = tree.open(SPEC, K, NoiseSource.secure())
    again.restore(stream.checkpoint(key), key)
    later = [each._mechanism.noise.draw().tobytes() for each in (stream, again) for _ in kept]
    assert kept
    assert len(set(later) | set(kept)) == len(later) + len(kept)


def test_a_closed_one_shot_stays_closed():
    key = os.urandom(16)
    one_shot = OneShot(Budget.pure(1.0))
    stream, users = filled(one_shot)
    release = stream.release()
    again = one_shot.open(SPEC, K, NoiseSource.secure())
    again.restore(stream.checkpoint(key), key)
    assert equal(again.release(), release)
    for closed in (stream, again):
        with pytest.raises(ValueError, match="no more users"):
            closed.add(users[0])
    with pytest.raises(ValueError, match="add all users"):
        one_shot.open(SPEC, K, NoiseSource.seeded(0)).release()


def test_a_finished_run_holds_no_raw_sum(monkeypatch):
    """Everything the vault of a run ever held, against everything its result can reach or pickle to."""
    vaults = []
    original = RawSums.__init__

    def remembered(self, *arguments):
        original(self, *arguments)
        vaults.append(self)

    monkeypatch.setattr(RawSums, "__init__", remembered)
    monkeypatch.setattr(RawSums, "clear", lambda self: None)  # keep what an epoch would forget
    result = run(Experiment("dp-ucbvi", states=3, horizon=4, episodes=300, epsilon=1.0), 0)
    secrets = [table.astype(float) for vault in vaults for table in vault.spec.split(vault.flat) if table.any()]
    assert secrets
    assert not holds(reachable(result), secrets)
    blob = pickle.dumps(result)
    assert all(secret.astype(kind).tobytes() not in blob for secret in secrets for kind in (float, np.int64))
