"""What strangers can do to shuffled bits: odd batch sizes, published numbers that were edited, records that are none,
messages that are none. Nobody else may notice, and no stated epsilon may be exceeded.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.device import Tables
from discreet.device.bits import (
    HALF,
    MESSAGE,
    BitEncoder,
    Changes,
    CountBits,
    FirstVisitBits,
    honest_users,
    submit_file,
)
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffle import Shuffle, ShuffleBatches, summed_bits
from discreet.privacy.trust.shuffle_law import BitLaw, printed_guarantee
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.shuffler import BadBatch, Shuffler, main, shuffle_files, tally
from discreet.problem import PublicStructure
from discreet.releases.batches import Batch
from discreet.releases.reports import Targets
from discreet.runs.feasibility import calibrate
from oracles_shuffle import exact_delta, plain_delta
from oracles_streams import every_episode, random_episodes, stacked

EPSILON, DELTA = 1.0, 1e-6
BUDGET = Budget.approximate(EPSILON, DELTA)
ALLOWED = {"epsilon_at_most": EPSILON, "delta_at_most": DELTA}
ANYTHING = {"epsilon_at_most": math.inf, "delta_at_most": 1.0}
STAGED, POOLED = (CountSpec(2, 2, 2, pooled, 0.5) for pooled in (False, True))
TABLES = Tables(2, 2, 2, 2, 0.5, (0.0, 1.0))
FRACTIONS = (1.0, 0.9, 0.7, 0.5, 0.4, 0.15)


def plan_of(announcement, spec):
    H, S, A = spec.horizon, spec.num_states, spec.num_actions
    return Plan(np.full((H, S, A), 1 / A), np.zeros((H + 1, S)), np.zeros((H, S, A)), announcement=announcement)


def reliable_of(users: int, honest: float) -> int:
    """⌊honest·n⌋ in exact decimals."""
    return int(Fraction(str(honest)) * users)


# Batches of every size ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [5, 12, 13])
@pytest.mark.parametrize("honest", FRACTIONS)
def test_p5_the_stated_epsilon_of_printed_noise_holds_for_every_batch_size(honest, tau):
    """All sizes up to 20, below τ and above it, in exact fractions; the worst of them comes near what is stated."""
    delta = 0.02
    law = BitLaw(30.0, delta, Changes(1, 1), honest, printed=tau)
    for most in (3, 20):
        stated = printed_guarantee(law, most)
        reached = 0.0
        for users in range(1, most + 1):
            reliable = reliable_of(users, honest)
            if users < 2 or reliable < 1:
                with pytest.raises(ValueError, match="at least"):
                    law.bits(users)
                continue
            bits = law.bits(users)
            noise = bits.each * reliable, Fraction(bits.flips, 2**64)
            assert math.isinf(stated) or exact_delta(*noise, 1, 1, stated) <= delta
            reached = max(reached, exact_delta(*noise, 1, 1, 0.97 * stated)) if math.isfinite(stated) else 1.0
        assert reached > delta or most < 1.0 / honest


def printed_roads(honest):
    """Streams of printed noise with few users, and how each makes the encoder of a batch."""
    spec, budget = CountSpec(2, 1, 1, False, 0.5), Budget.approximate(11.0, 1e-3)  # τ = 55, three bits fall and rise
    stream = Shuffle(budget, honest=honest, calibration="paper").open(spec, 20, NoiseSource.seeded(0))
    yield stream.guarantee, stream.encoder, (3, 3)
    batches = ShuffleBatches(budget, honest=honest, calibration="paper").open(spec, 20, NoiseSource.seeded(0))

    def announced(layer):
        def encoder(users):
            batches.begin(plan_of(Batch(1, users, layer), spec))
            return batches.encoder()

        return encoder

    yield batches.guarantee, announced(None), (3, 3)
    yield batches.guarantee, announced(0), (2, 2)


@pytest.mark.parametrize("honest", FRACTIONS)
def test_p5_no_road_announces_a_batch_that_exceeds_what_is_stated(honest):
    """Brute force, whatever the size: the fraction that can be relied on gives at least the stated privacy."""
    for stated, encoder_of, changes in printed_roads(honest):
        assert math.isfinite(stated.epsilon) == (honest > 0.3)  # else 13 users rely on one, and on 5 bits
        for users in range(1, 21) if math.isfinite(stated.epsilon) else ():
            try:
                encoder = encoder_of(users)
            except ValueError:
                assert users < 2 or reliable_of(users, honest) < 1
                continue
            reliable = reliable_of(users, honest)
            assert plain_delta(encoder.noise_bits * reliable, encoder.probability, *changes, stated.epsilon) <= 1e-3


def test_p5_three_users_of_whom_one_counts():
    """The size 3 lies between those that used to be looked at, and has more epsilon than any of them."""
    spec = CountSpec(2, 1, 1, False, 0.5)
    stream = Shuffle(BUDGET, honest=0.5, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    tau = binomial.printed_bits(1.0 / 3.0, DELTA)
    true = binomial.epsilon_of(math.ceil(tau / 3), 0.5, 3, 3, DELTA)
    assert stream.guarantee.epsilon >= true > 1.2 * binomial.epsilon_of(math.ceil(tau / 2), 0.5, 3, 3, DELTA)
    assert stream.encoder(3).epsilon(DELTA) == true


def test_p5_a_batch_that_exceeds_what_is_stated_is_never_announced():
    """A mutant that states too little: every road refuses, before anybody reports."""
    spec = CountSpec(2, 1, 1, False, 0.5)
    stream = Shuffle(BUDGET, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    batches = ShuffleBatches(BUDGET, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    reports = ShuffleReports(BUDGET).open(spec, 400, NoiseSource.seeded(0))
    honest = stream.encoder(20)
    for one in (stream, batches, reports):
        one.guarantee = copy.copy(one.guarantee)
        object.__setattr__(one.guarantee, "epsilon", 0.05)
    reports.begin(plan_of(Targets(np.ones(reports.alphabet.num_rows, dtype=bool)), spec))
    batches.begin(plan_of(Batch(1, 20), spec))
    users = stacked(random_episodes(spec, 20))
    for one in (stream, batches, reports):
        one.add(users)
        with pytest.raises(ValueError, match=r"more than the 0\.05 stated"):
            one.release()
    fresh = Shuffle(BUDGET, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    fresh.guarantee = stream.guarantee
    with pytest.raises(ValueError, match=r"more than the 0\.05 stated"):
        fresh.collect(honest, np.zeros(0, dtype=MESSAGE))


# Published numbers --------------------------------------------------------------------------------------------------


def published():
    """An encoder of every kind, as streams at (1, 10⁻⁶) publish them."""
    counts = Shuffle(BUDGET).open(STAGED, 300, NoiseSource.seeded(0))
    yield counts.encoder(20)
    yield Shuffle(BUDGET, honest=0.8).open(POOLED, 3000, NoiseSource.seeded(0)).encoder(2500)
    batches = ShuffleBatches(BUDGET).open(STAGED, 300, NoiseSource.seeded(0))
    batches.begin(plan_of(Batch(1, 150, 1), STAGED))
    yield batches.encoder()
    reports = ShuffleReports(BUDGET, honest=0.9).open(POOLED, 300, NoiseSource.seeded(0))
    reports.begin(plan_of(Targets(np.arange(reports.alphabet.num_rows) % 2 == 0), POOLED))
    yield reports.encoder(200)


def leaves(message, path=()):
    """Places of all values of a JSON object, containers included."""
    for key, value in message.items() if isinstance(message, dict) else enumerate(message):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, key))


def edited(message, path, value):
    changed = copy.deepcopy(message)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if value is leaves:  # leave it out
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


def edits(value):
    yield from (leaves, 0, 1, -1, 2, 2**53 + 1, 2**64 - 1, 2**63, str(2**64 - 1), str(2**63), "0", "1", "-1", "all")
    yield from (math.nan, math.inf, -math.inf, 0.5, 1e-9, 1e308, True, False, None, "", [], {}, [0], [0, 1], {"a": 1})
    yield from (str(10**30), "NaN", "counts", "first-visit", 2**-60, 5e-324)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
        yield from (str(value + 1), str(value - 1), str(value // 2))
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (value + 1, value - 1, -value, value * 2, value // 2, str(value), float(value))


@pytest.mark.parametrize("encoder", list(published()), ids=["staged", "pooled", "layer", "reports"])
def test_p3_no_edit_of_a_published_encoder_makes_a_device_say_more(encoder):
    """Every field, and every number in it: what is still encoded has the epsilon that the device was given."""
    message = json.loads(json.dumps(encoder.to_json()))
    assert BitEncoder.from_json(message) == encoder
    episode = [0, 1, 0], [0, 1], [1.0, 0.0]
    assert encoder.encode(*episode, NoiseSource.seeded(0), **ALLOWED).size == encoder.messages_per_user
    tried = sent = 0
    for path in leaves(message):
        old = message
        for key in path:
            old = old[key]
        for value in edits(old):
            tried += 1
            try:
                found = BitEncoder.from_json(edited(message, path, value))
                messages = found.encode(*episode, NoiseSource.seeded(0), **ALLOWED)
            except ValueError:
                continue
            sent += 1
            assert found.epsilon(DELTA) <= EPSILON * 1.0001  # itself found to 10⁻⁴, upwards
            most = found.statistic.most_changes
            assert binomial.delta_of(found.noise_bits * found.reliable, found.probability, most, most, 1.0) <= DELTA
            assert messages.size == found.num_counters * (1 + found.noise_bits)
            assert found == encoder or found.form != encoder.form  # and the shuffler does not take it
    assert tried > 400
    assert sent > 5
    for path in ((), ("tables",)):
        place = message
        for key in path:
            place = place[key]
        with pytest.raises(ValueError, match="no others"):
            BitEncoder.from_json(edited(message, (*path, "more"), 1) if path else {**message, "more": 1})
    for other in (None, [], "encoder", 3, [message]):
        with pytest.raises(ValueError, match="statistic of an encoder"):
            BitEncoder.from_json(other)


def test_p3_an_encoder_knows_its_epsilon_exactly():
    """Against all outcomes in exact fractions, for both relations and for fewer users than it relies on."""
    one = FirstVisitBits(TABLES, (0, 3))
    encoder = BitEncoder(one, 10, 2, HALF // 2, 8)
    quarter = Fraction(1, 4)
    for epsilon in (0.3, 1.0):
        assert encoder.delta(epsilon) == pytest.approx(exact_delta(16, quarter, 1, 1, epsilon), rel=1e-6)
        assert encoder.delta(epsilon, "zero-out") == pytest.approx(exact_delta(16, quarter, 1, 0, epsilon), rel=1e-6)
        assert encoder.delta(epsilon, honest=0.5) == pytest.approx(exact_delta(10, quarter, 1, 1, epsilon), rel=1e-6)
    found = encoder.epsilon(0.05)
    assert exact_delta(16, quarter, 1, 1, found) <= 0.05 < exact_delta(16, quarter, 1, 1, 0.97 * found)
    layer = BitEncoder(CountBits(TABLES, 0), 6, 1, HALF)
    assert layer.delta(0.7) == pytest.approx(exact_delta(6, Fraction(1, 2), 2, 2, 0.7), rel=2e-3)
    assert layer.delta(0.7) >= exact_delta(6, Fraction(1, 2), 2, 2, 0.7)


@pytest.mark.parametrize(
    "silent",
    [(2, 0, HALF), (2, 3, 0), (2, 3, 1), (2**60, 2**60, 1), (10**6, 1, 1)],
    ids=["no bits", "never 1", "hardly ever 1", "beyond counting", "many users"],
)
def test_p3_encoders_without_noise_have_no_epsilon(silent):
    encoder = BitEncoder(FirstVisitBits(TABLES, (0, 3)), *silent)
    assert (encoder.epsilon(DELTA), encoder.delta(5.0)) == (math.inf, 1.0)
    with pytest.raises(ValueError, match="nothing is sent"):
        encoder.encode([0, 0, 0], [0, 0], [0.0, 0.0], NoiseSource.seeded(0), **ALLOWED)


def test_p3_more_noise_than_can_be_counted_is_taken_for_less():
    """2⁶⁰ users with a fair bit each: accounting stops where it fits into memory, and stays an upper bound."""
    encoder = BitEncoder(FirstVisitBits(TABLES, (0, 3)), 2**60, 1, HALF)
    assert encoder.delta(0.01) <= 1e-9
    assert 0.0 < encoder.epsilon(DELTA) < 1e-4


def test_p3_the_device_says_what_it_asks_for():
    encoder = next(published())
    record = [0, 1, 0], [0, 1], [1.0, 0.0], NoiseSource.seeded(0)
    with pytest.raises(TypeError, match="epsilon_at_most"):
        encoder.encode(*record)
    for limits in (
        {"epsilon_at_most": 0.9, "delta_at_most": DELTA},
        {"epsilon_at_most": EPSILON, "delta_at_most": DELTA / 2},
        {"epsilon_at_most": EPSILON, "delta_at_most": 0.0},
        {**ALLOWED, "honest": 0.9},
    ):
        with pytest.raises(ValueError, match="more than the"):
            encoder.encode(*record, **limits)
    for limits in (
        {"epsilon_at_most": math.nan, "delta_at_most": DELTA},
        {"epsilon_at_most": -1.0, "delta_at_most": DELTA},
        {"epsilon_at_most": EPSILON, "delta_at_most": math.nan},
        {"epsilon_at_most": EPSILON, "delta_at_most": 2.0},
        {**ALLOWED, "honest": 0.0},
        {**ALLOWED, "neighbours": "nobody"},
    ):
        with pytest.raises(ValueError, match=r"expected|must be"):
            encoder.encode(*record, **limits)
    zero_out = Shuffle(BUDGET, "zero-out").open(STAGED, 300, NoiseSource.seeded(0)).encoder(20)
    zero_out.encode(*record, **ALLOWED, neighbours="zero-out")
    with pytest.raises(ValueError, match="more than the 1"):  # a device that means replacement is not fooled
        zero_out.encode(*record, **ALLOWED)


def test_p3_large_numbers_are_text_and_names_are_whole_digests():
    encoder = next(published())
    assert encoder.to_json()["flips"] == str(encoder.flips)
    assert encoder.to_json()["users"] == 20
    assert len(encoder.form) == 64
    rounded = {**encoder.to_json(), "flips": encoder.flips}
    with pytest.raises(ValueError, match="as a text"):
        BitEncoder.from_json(rounded)


# Batches that are refused -------------------------------------------------------------------------------------------


def bundles_of(encoder, users, seed=0):
    noise = NoiseSource.seeded(seed)
    return [encoder.encode([0, u % 2, 0], [0, 1], [1.0, 0.0], noise, **ANYTHING) for u in range(users)]


def collecting():
    """Every stream that takes shuffled batches of 20, of 50 users in all: (stream, encoder of a batch, collect)."""
    counts = Shuffle(BUDGET).open(STAGED, 50, NoiseSource.seeded(0))
    yield counts, lambda: counts.encoder(20), counts.collect
    batches = ShuffleBatches(BUDGET).open(STAGED, 50, NoiseSource.seeded(0))

    def announced():
        batches.begin(plan_of(Batch(1, 20), STAGED))
        return batches.encoder()

    yield batches, announced, batches.collect
    reports = ShuffleReports(BUDGET).open(STAGED, 50, NoiseSource.seeded(0))

    def targeted():
        reports.begin(plan_of(Targets(np.ones(reports.alphabet.num_rows, dtype=bool)), STAGED))
        return reports.encoder(20)

    yield reports, targeted, reports.collect


@pytest.mark.parametrize("place", range(3), ids=["counts", "batches", "reports"])
def test_p7_a_refused_batch_spends_its_users(place):
    """Of 50 users, 20 were seen and refused: 20 others may still come, and after them not 20 more."""
    stream, announce, collect = list(collecting())[place]
    encoder = announce()
    messages = np.concatenate(bundles_of(encoder, 20))
    with pytest.raises(BadBatch, match="refused"):
        collect(encoder, messages[1:])
    assert stream.release().num_episodes == 0
    assert "20 of 50" in repr(stream)
    collect(announce(), messages)
    assert stream.release().num_episodes == 20
    assert "40 of 50" in repr(stream)
    encoder = announce()
    with pytest.raises(ValueError, match="exceed the 50"):
        collect(encoder, messages)
    assert "50 of 50" in repr(stream)  # whoever was seen beyond the limit cannot come again in a smaller batch
    with pytest.raises(ValueError, match="declared"):
        stream.add(stacked(random_episodes(STAGED, 1)))
    assert stream.release().num_episodes == 20


def test_p7_other_public_numbers_and_waiting_users_spend_too():
    stream = Shuffle(BUDGET).open(STAGED, 50, NoiseSource.seeded(0))
    other = Shuffle(Budget.approximate(3.0, 1e-6)).open(STAGED, 50, NoiseSource.seeded(0)).encoder(20)
    before = stream.release().visits.copy()
    with pytest.raises(ValueError, match="other public numbers"):
        stream.collect(other, np.concatenate(bundles_of(other, 20)))
    assert "20 of 50" in repr(stream)
    assert np.array_equal(before, stream.release().visits)
    stream.add(random_episodes(STAGED, 1)[0])
    with pytest.raises(ValueError, match="waiting"):
        stream.collect(stream.encoder(20), np.concatenate(bundles_of(stream.encoder(20), 20)))
    assert "41 of 50" in repr(stream)


def test_p7_an_announced_batch_takes_messages_of_its_own_encoder_only():
    stream = ShuffleBatches(BUDGET).open(STAGED, 50, NoiseSource.seeded(0))
    stream.begin(plan_of(Batch(1, 20, 0), STAGED))
    other = stream.encoder()
    stream.begin(plan_of(Batch(1, 20), STAGED))
    with pytest.raises(ValueError, match="other public numbers"):
        stream.collect(other, np.concatenate(bundles_of(other, 20)))
    assert "20 of 50" in repr(stream)
    assert stream.release().num_episodes == 0


@pytest.mark.parametrize("came", [0, 1, 7, 8, 10])
def test_p7_the_shuffler_passes_on_complete_batches_only(came, tmp_path):
    """Ten are announced and eight are needed; in one process, in files and as a command."""
    encoder = BitEncoder(FirstVisitBits(TABLES, (0, 3)), 10, 2, HALF, 8)
    bundles = bundles_of(encoder, came)
    shuffler = Shuffler(encoder, NoiseSource.seeded(1))
    (tmp_path / "in").mkdir()
    (tmp_path / "encoder.json").write_text(json.dumps(encoder.to_json()))
    for one in bundles:
        shuffler.submit(one, encoder.form)
        submit_file(tmp_path / "in", one, encoder.form)
    command = [str(tmp_path / name) for name in ("in", "command.npy")] + ["--encoder", str(tmp_path / "encoder.json")]
    if came >= 8:
        assert shuffler.flush().size == came * encoder.messages_per_user
        assert main(command) == 0
        assert np.load(tmp_path / "command.npy").size == came * encoder.messages_per_user
        assert not list((tmp_path / "in").iterdir())
        return
    with pytest.raises(BadBatch, match=f"{came} users came in"):
        shuffler.flush()
    with pytest.raises(BadBatch, match=f"{came} users came in"):
        shuffle_files(tmp_path / "in", tmp_path / "out.npy", encoder)
    with pytest.raises(SystemExit) as refusal:
        main(command)
    assert refusal.value.code == 1
    assert len(list((tmp_path / "in").iterdir())) == came  # they wait for the others
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder.json", "in"]
    for one in bundles_of(encoder, 9 - came, seed=2):
        shuffler.submit(one, encoder.form)
    assert shuffler.flush().size == 9 * encoder.messages_per_user


def test_p7_an_over_full_batch_is_not_passed_on(tmp_path):
    encoder = BitEncoder(FirstVisitBits(TABLES, (0, 3)), 3, 2, HALF)
    shuffler = Shuffler(encoder, NoiseSource.seeded(1))
    for one in bundles_of(encoder, 4):
        submit_file(tmp_path / "in", one, encoder.form)
    with pytest.raises(BadBatch, match="4 users came in for a batch of 3"):
        shuffle_files(tmp_path / "in", tmp_path / "out.npy", encoder)
    assert not (tmp_path / "out.npy").exists()
    for one in bundles_of(encoder, 3):
        shuffler.submit(one, encoder.form)
    with pytest.raises(BadBatch, match="full"):
        shuffler.submit(bundles_of(encoder, 1)[0], encoder.form)
    assert shuffler.flush().size == 3 * encoder.messages_per_user


def spoiled(encoder, messages):
    """What a user could send instead of her messages."""
    yield messages[1:]
    yield np.concatenate([messages, messages[:1]])
    yield messages[:0]
    yield messages.reshape(2, -1)
    yield messages["label"]
    yield messages.tolist()
    for column, value in (
        ("bit", 2),
        ("bit", 255),
        ("label", encoder.num_counters),
        ("label", 2**32 - 1),
        ("label", 0),
    ):
        changed = messages.copy()
        changed[column][-1] = value
        yield changed


def test_p7_bundles_that_are_none_concern_their_sender_only(tmp_path):
    """They are turned away at the door; the others are passed on as if she had stayed away."""
    encoder = BitEncoder(FirstVisitBits(TABLES, (0, 3)), 10, 2, HALF, 8)
    good = bundles_of(encoder, 8)
    bad = list(spoiled(encoder, bundles_of(encoder, 1, seed=5)[0]))
    shuffler = Shuffler(encoder, NoiseSource.seeded(1))
    for one in good:
        shuffler.submit(one, encoder.form)
        submit_file(tmp_path / "in", one, encoder.form)
    for one in bad:
        with pytest.raises(BadBatch, match="not taken"):
            shuffler.submit(one, encoder.form)
        if isinstance(one, np.ndarray) and one.shape != (2, 3):
            submit_file(tmp_path / "in", one, encoder.form)
    with pytest.raises(BadBatch, match="another encoder"):
        shuffler.submit(good[0], BitEncoder(encoder.statistic, 10, 2, HALF, 7).form)
    (tmp_path / "in" / f"{encoder.form}-folder.bits").mkdir()
    assert len(shuffler) == 8
    shuffle_files(tmp_path / "in", tmp_path / "out.npy", encoder)
    for mixed in (shuffler.flush(), np.load(tmp_path / "out.npy")):
        assert np.array_equal(np.sort(mixed), np.sort(np.concatenate(good)))


def test_p7_nobody_is_passed_on_twice_when_the_disk_is_full(tmp_path):
    encoder = BitEncoder(FirstVisitBits(TABLES, (0, 3)), 3, 2, HALF)
    for one in bundles_of(encoder, 3):
        submit_file(tmp_path / "in", one, encoder.form)
    with pytest.raises(OSError):
        shuffle_files(tmp_path / "in", tmp_path / "no such folder" / "out.npy", encoder)
    with pytest.raises(BadBatch, match="0 users came in"):
        shuffle_files(tmp_path / "in", tmp_path / "out.npy", encoder)


def test_p7_messages_that_are_none_count_as_zeros():
    """Whatever one user's messages hold, a batch that was passed on is counted, and the others' part stays."""
    encoder = BitEncoder(FirstVisitBits(TABLES, (0, 3)), 10, 2, HALF, 8)
    others, rng = np.concatenate(bundles_of(encoder, 9)), np.random.default_rng(0)
    alone = np.bincount(others["label"], others["bit"], minlength=2)
    each = 1 + encoder.noise_bits
    for _ in range(300):
        hers = np.zeros(encoder.messages_per_user, dtype=MESSAGE)
        hers["label"] = rng.choice([0, 1, 2, 7, 2**32 - 1], hers.size)
        hers["bit"] = rng.choice([0, 1, 2, 255], hers.size)
        found = tally(encoder, np.concatenate([others, hers]))
        assert found.users == 10
        own = [int(((hers["label"] == c) & (hers["bit"] == 1)).sum()) for c in (0, 1)]
        assert np.array_equal(found.sums, alone + own)
    everything = np.zeros(10 * encoder.messages_per_user, dtype=MESSAGE)  # all for counter 0
    everything["bit"] = 1
    assert tally(encoder, everything).sums.tolist() == [10 * each, 0]


# Records that are none ----------------------------------------------------------------------------------------------

GOOD = [0, 1, 0], [0, 1], [1.0, 0.0]
BAD_RECORDS = [
    ([0, 2, 0], [0, 1], [1.0, 0.0]),
    ([0, -1, 0], [0, 1], [1.0, 0.0]),
    ([0, 1, 2**63 - 1], [0, 1], [1.0, 0.0]),
    ([0, 1, 2**200], [0, 1], [1.0, 0.0]),
    ([0.5, 1.0, 0.0], [0, 1], [1.0, 0.0]),
    ([0, 1, 0], [0, 2], [1.0, 0.0]),
    ([0, 1, 0], [0, -7], [1.0, 0.0]),
    ([0, 1, 0], [0, 1], [1.0, math.nan]),
    ([0, 1, 0], [0, 1], [1.0]),
    ([0, 1, 0], [0, 1], [[1.0, 0.0]]),
    ([0, 1, 0, 1], [0, 1, 0], [1.0, 0.0, 1.0]),
    ([0, 1], [0, 1], [1.0, 0.0]),
    ([0, 1, 0], [[0, 1]], [[1.0, 0.0]]),
    ([[0, 1, 0], [1, 0, 1]], [[0, 1], [1, 0]], [[1.0, 0.0], [1.0, 1.0]]),
    (["a", "b", "c"], [0, 1], [1.0, 0.0]),
    ([0, 1, 0], [0, 1], ["high", "low"]),
    ([0, 1, 0], [0, 1], [None, {}]),
    ([0, 1, 0], [0, 1], np.array([1.0, 1j])),
    ([0, 1, 0], [0, 1], ["1.0", "0.0"]),
    ([[0], 1, 0], [0, 1], [1.0, 0.0]),
    (None, None, None),
    ("", "", ""),
    ([], [], []),
]


def forms():
    yield CountBits(TABLES)
    yield CountBits(Tables(2, 2, 2, 1, 0.5, (0.0, 1.0)))
    yield CountBits(TABLES, 1)
    yield FirstVisitBits(TABLES, tuple(range(0, 36, 2)), True, False)
    yield FirstVisitBits(Tables(2, 2, 2, 1, 0.5, (0.0, 1.0)), (0, 1, 5, 9))


@pytest.mark.parametrize("form", list(forms()), ids=["staged", "pooled", "layer", "start", "reports"])
def test_p8_whatever_is_no_episode_is_sent_as_one_without_any_step(form):
    encoder = BitEncoder(form, 10, 3, HALF)
    for record in BAD_RECORDS:
        assert form.ones(*record, NoiseSource.seeded(0)).size == 0
        messages = encoder.encode(*record, NoiseSource.seeded(0), **ANYTHING)
        assert (np.bincount(messages["label"], minlength=form.num_counters) == 4).all()
        ordinary = encoder.encode(*GOOD, NoiseSource.seeded(0), **ANYTHING)
        assert np.array_equal(np.sort(messages["label"]), np.sort(ordinary["label"]))
        assert not messages["bit"].reshape(-1, 4)[:, 0].any()
        assert np.array_equal(messages["bit"].reshape(-1, 4)[:, 1:], ordinary["bit"].reshape(-1, 4)[:, 1:])


@pytest.mark.parametrize("form", list(forms()), ids=["staged", "pooled", "layer", "start", "reports"])
def test_p8_bits_read_records_as_all_other_encoders_do(form):
    """Whole floats are whole, and infinite rewards are clipped."""
    plain = form.ones(*GOOD, NoiseSource.seeded(0))
    for same in (([0.0, 1.0, 0.0], [0, 1], [1.0, 0.0]), ([False, True, False], [False, True], [math.inf, -math.inf])):
        assert np.array_equal(form.ones(*same, NoiseSource.seeded(0)), plain)


@pytest.mark.parametrize("form", list(forms()), ids=["staged", "pooled", "layer", "start", "reports"])
def test_p8_no_two_records_differ_in_more_counters_than_stated(form):
    """All episodes of a tiny problem, shorter ones, and everything that is none: what falls in all pairs."""
    records = [(e.states[0], e.actions[0], e.rewards[0]) for e in every_episode(STAGED)]
    records += [(s[: h + 1], a[:h], r[:h]) for s, a, r in records[::5] for h in (0, 1)] + BAD_RECORDS
    sets = {frozenset(form.ones(*record, NoiseSource.seeded(0)).tolist()) for record in records}
    assert frozenset() in sets
    assert max(len(one - other) for one, other in itertools.product(sets, repeat=2)) <= form.most_changes
    assert max(map(len, sets)) == form.most_changes


def crowd(spec, bad_rows):
    """Eight users, of whom some have a state, an action or a reward that does not exist."""
    users = stacked([Episodes(e.states, e.actions, np.rint(e.rewards)) for e in random_episodes(spec, 8)])
    states, actions, rewards = users.states.copy(), users.actions.copy(), users.rewards.copy()
    for i, row in enumerate(bad_rows):
        if i % 4 == 0:
            states[row, 1] = spec.num_states
        elif i % 4 == 1:
            states[row, 0] = -1
        elif i % 4 == 2:
            actions[row, -1] = 10**9
        else:
            rewards[row, 0] = math.nan
    return users, Episodes(states, actions, rewards)


@pytest.mark.parametrize("spec", [STAGED, POOLED], ids=["staged", "pooled"])
@pytest.mark.parametrize("bad_rows", [(3,), (7, 0), (1, 2, 3, 4), tuple(range(8))])
def test_p8_streams_take_bad_records_as_users_who_did_nothing(spec, bad_rows):
    """The sums are those of the others, with the noise of all; nothing is raised, and all are counted."""
    users, spoilt = crowd(spec, bad_rows)
    kept = np.setdiff1d(np.arange(8), bad_rows)
    others = Episodes(users.states[kept], users.actions[kept], users.rewards[kept])
    endless = Budget.approximate(math.inf, DELTA)
    expected = summed_bits(others, spec, NoiseSource.seeded(0))
    assert np.array_equal(summed_bits(spoilt, spec, NoiseSource.seeded(0)), expected)
    stream = Shuffle(endless).open(spec, 8, NoiseSource.seeded(0))
    stream.add(spoilt)
    release = stream.release()
    assert release.num_episodes == 8
    assert release.visits.sum() == expected[: release.visits.size].sum()
    if not spec.pooled:
        batches = ShuffleBatches(None).open(spec, 8, NoiseSource.seeded(0))
        batches.begin(plan_of(Batch(1, 8, 1), spec))
        batches.add(spoilt)
        assert np.array_equal(batches.release().visits, release.visits[1:])
    histograms = []
    for contribution in (others, spoilt):
        reports = ShuffleReports(endless).open(spec, 8, NoiseSource.seeded(0))
        reports.begin(plan_of(Targets(np.arange(reports.alphabet.num_rows) % 3 != 1), spec))
        if len(contribution) >= 2:
            reports.add(contribution)
            histograms.append(reports.release().histogram)
    assert all(np.array_equal(histograms[0], other) or not len(kept) for other in histograms)
    assert len(kept) or not histograms[-1].any()


@pytest.mark.parametrize("spec", [STAGED, POOLED], ids=["staged", "pooled"])
def test_p8_one_bad_record_changes_nothing_of_others_under_the_same_noise(spec):
    """Same seed, one user replaced by a bad record: noise and everybody else's coins stay where they are."""
    users, spoilt = crowd(spec, (3,))
    released = []
    for contribution in (users, spoilt):
        stream = Shuffle(BUDGET).open(spec, 8, NoiseSource.seeded(4))
        stream.add(contribution)
        found = stream.release()
        released.append(np.concatenate([found.visits.ravel(), found.transitions.ravel(), found.reward_sums.ravel()]))
    hers = Episodes(users.states[3:4], users.actions[3:4], users.rewards[3:4])
    moved = released[0] - released[1]
    assert np.allclose(moved, summed_bits(hers, spec, NoiseSource.seeded(0)))


def test_p8_endless_rewards_are_the_largest_and_the_smallest():
    encoder = BitEncoder(CountBits(TABLES), 10, 0, 0)
    record = [0, 1, 0], [0, 1]
    for endless, ends in (((math.inf, -math.inf), (1.0, 0.0)), ((1e308, -1e308), (1.0, 0.0))):
        one, other = (encoder.encode(*record, r, NoiseSource.seeded(0), **ANYTHING) for r in (endless, ends))
        assert np.array_equal(one, other)
        two, four = (Episodes([record[0]] * 2, [record[1]] * 2, [r] * 2) for r in (endless, ends))
        sums = [summed_bits(e, STAGED, NoiseSource.seeded(0)) for e in (two, four)]
        assert np.array_equal(*sums)


def test_p8_episodes_that_are_too_long_are_users_who_did_nothing():
    long = CountSpec(2, 2, 3, False, 0.5)
    too_long = stacked(random_episodes(long, 4))
    stream = Shuffle(Budget.approximate(math.inf, DELTA)).open(STAGED, 8, NoiseSource.seeded(0))
    stream.add(too_long)
    assert stream.release().num_episodes == 4
    assert not stream.release().visits.any()
    for structure in (None, np.array([0.5, 0.5])):
        facts = PublicStructure() if structure is None else PublicStructure(structure)
        reports = ShuffleReports(Budget.approximate(math.inf, DELTA), structure=facts).open(
            STAGED, 8, NoiseSource.seeded(0)
        )
        reports.begin(plan_of(Targets(np.ones(reports.alphabet.num_rows, dtype=bool)), STAGED))
        reports.add(too_long)
        assert not reports.release().histogram.any()


def test_users_who_did_nothing_fill_an_announced_batch_but_do_not_exceed_it():
    batches = ShuffleBatches(BUDGET).open(STAGED, 50, NoiseSource.seeded(0))
    batches.begin(plan_of(Batch(1, 5), STAGED))
    nobody = Counts(*(table for _, table in Counts.zeros(STAGED).tables()), 6)
    with pytest.raises(ValueError, match="5 announced"):
        batches.add(nobody)


# Crowds of any size -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [10**12 - 1, 10**12, 10**12 + 1, 10**13, 10**15 + 7, 2**60])
@pytest.mark.parametrize("honest", [1.0, 0.9, 0.29, 0.7, 1e-9])
def test_those_who_can_be_relied_on_are_counted_exactly(users, honest):
    """Never more than there are, and never more than the stated fraction: a product of floats is off by thousands."""
    found = honest_users(users, honest)
    assert found == math.floor(users * Fraction(str(honest)))
    assert honest_users(100, 0.29) == 29


@pytest.mark.parametrize("users", [2 * 10**12, 10**13, 10**15])
def test_more_than_a_trillion_users_can_be_shuffled(users):
    """The noise of all users together does not grow with them."""
    law = BitLaw(1.0, 1e-6, (3, 3))
    encoder = law.encoder(CountBits(Tables(2, 2, 1, 1, 1.0, (0.0, 1.0))), users)
    assert encoder.reliable == users
    assert law.variance(users) == pytest.approx(law.variance(10**9), rel=1e-3)
    assert encoder.epsilon(1e-6) <= 1.0 + 1e-4


def test_calibrate_answers_for_ten_trillion_users():
    found = calibrate(3, 2, 3, 10**13, 1.0, 1e-6, model="shuffle")
    assert found.forecast.feasible
    assert found.guarantee.epsilon == 1.0
