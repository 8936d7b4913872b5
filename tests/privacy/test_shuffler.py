"""The three roles of the shuffle model: what users send, what a shuffler does with it, what an analyzer accepts."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from discreet.device import Tables
from discreet.device.bits import HALF, MESSAGE, BitEncoder, CountBits, FirstVisitBits, honest_users, submit_file
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.reports import alphabet_of, encoded
from discreet.privacy.trust.shuffler import BadBatch, Shuffler, estimated, permuted, shuffle_files, tally
from discreet.problem import PublicStructure
from discreet.releases.reports import Targets
from oracles_streams import every_episode, random_episodes

STAGED = Tables(2, 2, 3, 3, 0.5, (0.0, 1.0))
POOLED = Tables(2, 2, 3, 1, 0.5, (0.0, 1.0))
ANYTHING = {"epsilon_at_most": float("inf"), "delta_at_most": 1.0}


def test_counters_of_an_episode_by_hand():
    """s: 0 → 1 → 0 → 0 under actions 1, 0, 1 with rewards 1, 0, 1; cells are 2s + a, per step or pooled."""
    states, actions, rewards = [0, 1, 0, 0], [1, 0, 1], [1.0, 0.0, 1.0]
    noise = NoiseSource.seeded(0)
    staged = CountBits(STAGED).ones(states, actions, rewards, noise)
    assert sorted(staged) == [1, 6, 9, *(12 + x for x in (3, 12, 18)), *(36 + x for x in (1, 9))]
    pooled = CountBits(POOLED).ones(states, actions, rewards, noise)  # the second visit to (0, 1) is not counted
    assert sorted(pooled) == [1, 2, 4 + 3, 4 + 4, 12 + 1]
    assert sorted(CountBits(STAGED, 1).ones(states, actions, rewards, noise)) == [2, 4 + 4]
    assert (CountBits(STAGED).num_counters, CountBits(POOLED).num_counters, CountBits(STAGED, 1).num_counters) == (
        48,
        16,
        12,
    )


@pytest.mark.parametrize(
    "tables",
    [STAGED, POOLED, Tables(2, 1, 3, 1, 0.5, (0.0, 1.0))],
    ids=["staged", "pooled", "fewer cells than steps"],
)
def test_no_user_moves_more_counters_than_stated_and_none_by_more_than_one(tables):
    """All episodes of a tiny problem: the largest sets of ones, and of ones that another user does not share."""
    spec = CountSpec(2, tables.num_actions, 3, tables.stages == 1, 0.5)
    forms = [CountBits(tables)] + ([CountBits(tables, h) for h in range(3)] if tables.stages > 1 else [])
    for form in forms:
        sets = set()
        for episode in every_episode(spec):
            if not np.isin(episode.rewards, (0.0, 1.0)).all():
                continue
            ones = form.ones(episode.states[0], episode.actions[0], episode.rewards[0], NoiseSource.seeded(0))
            assert len(set(ones.tolist())) == len(ones)
            assert ones.size == 0 or 0 <= ones.min() <= ones.max() < form.num_counters
            sets.add(frozenset(ones.tolist()))
        largest = max(len(one - other) for one in sets for other in sets)
        assert largest <= form.most_changes
        assert tables.stages == 1 or largest == form.most_changes


def test_first_visit_bits_are_the_reports_of_spotlight():
    """The encoder of one device and the compiled one of the simulation agree, for every kind of cell."""
    for pooled, structure in itertools.product(
        (True, False), (PublicStructure(), PublicStructure(np.array([0.5, 0.5])))
    ):
        spec = CountSpec(2, 2, 3, pooled, 1.0)
        alphabet = alphabet_of(spec, structure)
        rng = np.random.default_rng(1)
        for _ in range(6):
            cells = rng.random(alphabet.num_rows) < 0.4
            cells[int(rng.integers(alphabet.num_rows))] = True
            targets = Targets(cells)
            items = np.flatnonzero(alphabet.admitted & cells[:, None])
            tables = Tables(2, 2, 3, spec.stages, 1.0, (0.0, 1.0))
            form = FirstVisitBits(tables, tuple(items.tolist()), alphabet.has_start, pooled)
            for episode in random_episodes(spec, 40, seed=int(rng.integers(1000))):
                one = Episodes(episode.states, episode.actions, np.rint(episode.rewards))
                (expected,) = encoded(one, spec, alphabet, targets, 1, NoiseSource.seeded(0))[:, 0]
                found = form.ones(one.states[0], one.actions[0], one.rewards[0], NoiseSource.seeded(0))
                assert [items[i] for i in found] == ([expected] if expected in items else [])


def test_every_user_sends_the_same_number_of_messages_for_every_counter():
    encoder = BitEncoder(CountBits(POOLED), 10, 3, HALF // 4)
    for episode in random_episodes(CountSpec(2, 2, 3, True, 0.5), 5):
        messages = encoder.encode(
            episode.states[0], episode.actions[0], episode.rewards[0], NoiseSource.secure(), **ANYTHING
        )
        assert messages.dtype == MESSAGE
        assert messages.size == encoder.messages_per_user == 16 * 4
        assert (np.bincount(messages["label"], minlength=16) == 4).all()
        assert set(np.unique(messages["bit"])) <= {0, 1}


def test_noise_bits_have_the_announced_probability():
    encoder = BitEncoder(CountBits(POOLED), 10, 5000, round(0.1 * 2**64))
    messages = encoder.messages(np.array([3]), NoiseSource.seeded(4))
    ones = np.bincount(messages["label"], messages["bit"], minlength=16)
    ones[3] -= 1
    assert stats.binomtest(int(ones.sum()), 16 * 5000, 0.1).pvalue > 1e-3
    assert stats.binomtest(int(ones.sum()), 16 * 5000, 0.11).pvalue < 1e-6


def test_encoders_survive_publication():
    for form in (CountBits(STAGED, 2), CountBits(POOLED), FirstVisitBits(POOLED, (0, 3, 7), True, False)):
        encoder = BitEncoder(form, 20, 2, 12345)
        copy = BitEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
        assert copy == encoder
        assert copy.form == encoder.form
        assert len(encoder.form) == 64
        assert BitEncoder(form, 21, 2, 12345).form != encoder.form
        assert BitEncoder(form, 20, 2, 12345, 19).form != encoder.form


def test_a_device_needs_nothing_of_the_server():
    script = "import discreet.device, sys; print(*[m for m in sys.modules if m.startswith('discreet')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    allowed = {
        "discreet",
        "discreet.privacy",
        "discreet.privacy.binomial",
        "discreet.privacy.envelope",
        "discreet.mdp",
    }
    assert {name for name in loaded if not name.startswith("discreet.device")} <= allowed


# The shuffler -------------------------------------------------------------------------------------------------------


def bundle(*pairs):
    return np.array(list(pairs), dtype=MESSAGE)


def test_permutations_are_uniform():
    messages, noise = bundle((0, 0), (1, 0), (2, 0)), NoiseSource.seeded(3)
    seen = Counter(tuple(permuted(messages, noise)["label"].tolist()) for _ in range(3000))
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def three_counters(users, noise_bits=1, reliable=None):
    """An encoder of three counters, and what so many users send; user u has counter u mod 3."""
    encoder = BitEncoder(FirstVisitBits(POOLED, (0, 2, 5)), users, noise_bits, HALF, reliable)
    noise = NoiseSource.seeded(2)
    return encoder, [encoder.messages(np.array([u % 3]), noise) for u in range(users)]


def test_shuffling_keeps_messages_and_nothing_else():
    encoder, bundles = three_counters(8, noise_bits=20)
    shuffler = Shuffler(encoder, NoiseSource.seeded(1))
    for one in bundles:
        shuffler.submit(one, encoder.form)
    assert len(shuffler) == 8
    mixed = shuffler.flush()
    together = np.concatenate(bundles)
    assert np.array_equal(np.sort(mixed, order=["label", "bit"]), np.sort(together, order=["label", "bit"]))
    assert not np.array_equal(mixed, together)
    with pytest.raises(BadBatch, match="passed on"):
        shuffler.flush()
    with pytest.raises(BadBatch, match="passed on"):
        shuffler.submit(bundles[0], encoder.form)


def test_files_are_mixed_and_deleted(tmp_path):
    encoder, bundles = three_counters(4)
    for one in bundles:
        submit_file(tmp_path / "in", one, encoder.form)
    other, foreign = three_counters(5)
    submit_file(tmp_path / "in", foreign[0], other.form)
    (tmp_path / "in" / f"{encoder.form}-half.part").write_bytes(b"unfinished")
    assert shuffle_files(tmp_path / "in", tmp_path / "out.npy", encoder) == 4 * 6
    mixed, together = np.load(tmp_path / "out.npy"), np.concatenate(bundles)
    assert np.array_equal(np.sort(mixed, order=["label", "bit"]), np.sort(together, order=["label", "bit"]))
    left = sorted(path.name.partition("-")[0] for path in (tmp_path / "in").iterdir())
    assert left == sorted([encoder.form, other.form])  # the unfinished file, and who belongs to another batch


# The analyzer -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sent():
    """Ten users of three counters with one noise bit each."""
    return three_counters(10)


def test_a_good_batch_is_counted(sent):
    encoder, bundles = sent
    batch = tally(encoder, np.concatenate(bundles))
    assert batch.users == 10
    expected = np.zeros(3)
    for one in bundles:
        np.add.at(expected, one["label"], one["bit"])
    assert np.array_equal(batch.sums, expected)
    values, variance = estimated(encoder, batch)
    assert np.array_equal(values, expected - 5.0)
    assert variance == 2.5  # ten fair noise bits


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda m: m[1:], "dropped or doubled"),
        (lambda m: np.concatenate([m, m[:1]]), "dropped or doubled"),
        (lambda m: np.concatenate([m, m[:6]]), "of 11 users came in"),
        (lambda m: m[6:], "needs at least 10"),
        (lambda m: m[:0], "needs at least 10"),
        (lambda m: m["label"].astype(np.int64), "one row of"),
        (lambda m: m.reshape(2, -1), "one row of"),
        (lambda m: m.tolist(), "one row of"),
    ],
)
def test_bad_batches_are_refused(sent, spoil, message):
    encoder, bundles = sent
    with pytest.raises(BadBatch, match=message):
        tally(encoder, spoil(np.concatenate(bundles)))


def test_whole_users_may_stay_away_if_that_was_allowed_for():
    encoder, bundles = three_counters(10, reliable=8)
    assert tally(encoder, np.concatenate(bundles[2:])).users == 8
    with pytest.raises(BadBatch, match="at least 8"):
        tally(encoder, np.concatenate(bundles[3:]))
    assert [honest_users(n, 0.7) for n in (1, 10, 1000)] == [0, 7, 700]
    with pytest.raises(ValueError, match="fraction"):
        honest_users(10, 0.0)


@pytest.mark.parametrize("users", [0, 1])
def test_nobody_and_a_single_user_cannot_be_shuffled(users):
    with pytest.raises(ValueError, match="at least 2 users"):
        BitEncoder(CountBits(POOLED), users, 1, HALF)


USERS = """
import json, sys
import numpy as np
from pathlib import Path
from discreet.privacy.noise import NoiseSource
from discreet.device.bits import BitEncoder, submit_file
encoder = BitEncoder.from_json(json.loads(Path(sys.argv[1]).read_text()))
noise = NoiseSource.secure()
for user in range(encoder.users):
    s = user % 2
    messages = encoder.encode(
        [0, s, s, s], [s, 1, 0], [1.0, 0.0, float(s)], noise, epsilon_at_most=1.0, delta_at_most=1e-6
    )
    submit_file(Path(sys.argv[2]), messages, encoder.form)
"""
ANALYZER = """
import json, sys
import numpy as np
from pathlib import Path
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffle import Shuffle
from discreet.device.bits import BitEncoder
from discreet.people.counts import CountSpec
spec = CountSpec(2, 2, 3, False, 1.0)
stream = Shuffle(Budget.approximate(1.0, 1e-6), beta=1e-9).open(spec, 100, NoiseSource.secure())
encoder = BitEncoder.from_json(json.loads(Path(sys.argv[1]).read_text()))
stream.collect(encoder, np.load(sys.argv[2]))
release = stream.release()
print(json.dumps([release.visits.ravel().tolist(), release.num_episodes, release.widths.visits.max()]))
"""


def test_three_processes_run_end_to_end(tmp_path):
    """The server publishes an encoder; users, shuffler and analyzer are processes that share files only."""
    from discreet.privacy.accounting import Budget
    from discreet.privacy.trust.shuffle import Shuffle

    spec = CountSpec(2, 2, 3, False, 1.0)
    encoder = Shuffle(Budget.approximate(1.0, 1e-6)).open(spec, 100, NoiseSource.secure()).encoder(60)
    (tmp_path / "encoder.json").write_text(json.dumps(encoder.to_json()))

    def process(*arguments):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    process("-c", USERS, tmp_path / "encoder.json", tmp_path / "in")
    shuffler = "-m", "discreet.privacy.trust.shuffler", tmp_path / "in", tmp_path / "mixed.npy", "--encoder"
    process(*shuffler, tmp_path / "encoder.json")
    assert not list((tmp_path / "in").iterdir())
    visits, users, width = json.loads(process("-c", ANALYZER, tmp_path / "encoder.json", tmp_path / "mixed.npy"))
    truth = np.zeros((3, 2, 2))
    truth[0, 0], truth[1, [0, 1], 1], truth[2, [0, 1], 0] = 30, 30, 30
    assert users == 60
    assert np.abs(np.array(visits).reshape(3, 2, 2) - truth).max() <= width
