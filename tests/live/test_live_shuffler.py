"""A shuffler: what it takes, what it passes on, what it forgets, and what becomes of one that does something else."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.device.announcements import Entry, Forged
from discreet.device.sampler import Noise
from discreet.device.shuffled import SEALED, ShuffledEncoder, cut
from discreet.live import shuffler as shufflers
from discreet.live import shuffling, sqlite
from discreet.live.asking import Unreachable
from discreet.live.deployment import Retire
from discreet.live.desk import Desk, Wish
from discreet.live.events import Announcement, event_of, signed
from discreet.live.party import Settled
from discreet.live.shuffler import Late, Shuffler
from discreet.live.shuffling import Passed, mixed, statement
from discreet.live.store import RolledBack
from discreet.privacy.noise import NoiseSource
from live_world import told
from shuffle_world import Direct, Trio, admission, bundle, encoder_of, enrolled, filled, trio
from two_world import releases


@pytest.fixture(autouse=True)
def _without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is filled in for adds no noise here, so that what a release says is exact."""
    monkeypatch.setattr(ShuffledEncoder, "silent", bundle)


def started(folder: Path, **said: Any) -> tuple[Trio, Direct, Desk]:
    world = trio(folder, **said)
    link = Direct(world.shuffler())
    desk = world.desk(link)
    desk.release()
    return world, link, desk


HONEST = (0, 1, 1, None, 3)  # their counters; None has nothing to report


def honest(desk: Desk) -> list[bytes]:
    return [bundle(encoder_of(told(desk)), counter) for counter in HONEST]


def counts(desk: Desk) -> list[int]:
    found = np.bincount([each for each in HONEST if each is not None], minlength=encoder_of(told(desk)).size)
    return [int(each) for each in found]


# Admission ----------------------------------------------------------------------------------------------------------


def test_one_bundle_per_place_of_whoever_has_its_pass(tmp_path: Path) -> None:
    _, link, desk = started(tmp_path)
    entry, announcement = enrolled(desk)
    encoder, shuffler = encoder_of(announcement), link.shuffler
    mine, other = bundle(encoder, 1), bundle(encoder, 1)
    card = admission(desk, entry, 0)
    assert mine != other
    shuffler.taken(entry, 0, card, mine)
    wrong: list[tuple[int, bytes, bytes]] = [
        (1, card, other),  # of another place
        (announcement.size, admission(desk, entry, announcement.size), other),  # there is no such place
        (1, bytes(64), other),
        (1, b"", other),
        (1, admission(desk, desk.visible.entries[0], 1), other),  # of another announcement
        (1, admission(desk, entry, 1), other[:-1]),
        (1, admission(desk, entry, 1), other + other[:SEALED]),
        (1, admission(desk, entry, 1), other[SEALED:]),
        (1, admission(desk, entry, 1), b""),
    ]
    for slot, shown, messages in wrong:
        with pytest.raises(Forged, match="pass of the analyzer"):
            shuffler.taken(entry, slot, shown, messages)
    shuffler.taken(entry, 1, admission(desk, entry, 1), other)
    shuffler.taken(entry, 0, card, bundle(encoder, 2))
    with shuffler._store.writing() as transaction:
        assert list(transaction.bundles([entry.head])) == [mine, other]


def test_a_bundle_for_what_is_closed_or_not_yet_announced_is_not_taken(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path)
    messages = honest(desk)
    entry = desk.visible.told
    assert entry is not None
    filled(world, desk, link.shuffler, messages)
    desk.release()
    late = admission(desk, entry, 6)
    with pytest.raises(Late):
        link.shuffler.taken(entry, 6, late, messages[0])
    event = told(desk)
    future = signed(desk.secrets.signing, 9, bytes(32), replace(event, epoch=event.epoch + 1))
    with pytest.raises(Settled, match="has not ended"):
        link.shuffler.taken(future, 0, admission(desk, future, 0), bundle(encoder_of(event)))
    with pytest.raises(Settled, match="has not ended"):
        link.shuffler.closed(future)


def test_an_announcement_must_be_the_analyzers_only_one_for_its_epoch(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path)
    entry, announcement = enrolled(desk)
    encoder, shuffler, key = encoder_of(announcement), link.shuffler, desk.secrets.signing
    forged = replace(entry, signature=bytes(64))
    with pytest.raises(Forged, match="signature"):
        shuffler.taken(forged, 0, admission(desk, forged, 0), bundle(encoder))
    others = {
        "sealed for somebody else": replace(encoder, analyzer="00" * 32),
        "another batch": replace(encoder, task="00" * 32),
        "more people than its batch": replace(encoder, bits=replace(encoder.bits, users=3, reliable=3)),
    }
    for why, other in others.items():
        told_so = signed(key, entry.number, entry.previous, replace(announcement, encoder=other))
        with pytest.raises(Forged, match=why):
            shuffler.closed(told_so)
    shuffler.taken(entry, 0, admission(desk, entry, 0), bundle(encoder, 1))
    second = signed(key, entry.number, entry.previous, replace(announcement, size=announcement.size - 1))
    shuffler.taken(second, 1, admission(desk, second, 1), bundle(encoder, 1))
    world.clock.now += 2_000
    desk.release()
    assert releases(desk)[0].values.tolist() == [0, 1, *[0] * (encoder.size - 2)]  # who followed the other is silent
    with pytest.raises(Forged, match="in another way before"):
        shuffler.closed(second)


def test_a_shuffler_works_for_one_deployment_that_names_it(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path / "first")
    other = trio(tmp_path / "second").desk()
    with pytest.raises(Forged, match="names another shuffler"):
        link.shuffler.joined(other.visible.entries[0])
    opening = desk.visible.entries[0]
    again = signed(other.secrets.signing, 0, opening.previous, _Opened(opening, other))
    with pytest.raises(Forged, match="another deployment"):
        link.shuffler.joined(again)
    fresh = trio(tmp_path / "third").shuffler()
    entry, announcement = enrolled(desk)
    with pytest.raises(Settled, match="no leader"):
        fresh.taken(entry, 0, admission(desk, entry, 0), bundle(encoder_of(announcement)))
    assert shuffling.signed_by(
        bytes.fromhex(world.begun.key), link.shuffler.joined(opening), shuffling.welcome(opening)
    )


class _Opened:
    """The opening of one deployment, told by another."""

    def __init__(self, opening: Entry, other: Desk) -> None:
        self._event = opening.event | {"key": other.visible.entries[0].event["key"]}

    def to_event(self) -> dict[str, Any]:
        return self._event


# Batches ------------------------------------------------------------------------------------------------------------


def test_a_release_counts_everybody_who_has_sent_whoever_has_not(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path)
    while not told(desk).epoch > 2:
        expected = counts(desk)
        filled(world, desk, link.shuffler, honest(desk))
        desk.release()
        assert releases(desk)[-1].values.tolist() == expected
        size = encoder_of(desk_announced(desk, -1)).batch_size
        assert len(link.passed[-1].messages) == SEALED * size
    filled(world, desk, link.shuffler, [])
    desk.release()
    assert releases(desk)[-1].values.sum() == 0
    assert [entry.event["event"] for entry in link.shuffler.entries] == ["joined", "closed", "closed", "closed"]


def desk_announced(desk: Desk, place: int) -> Any:
    """What the release at this place was announced by."""
    epoch = releases(desk)[place].epoch
    events = map(event_of, desk.visible.entries)
    return next(event for event in events if isinstance(event, Announcement) and event.epoch == epoch)


def test_the_number_of_messages_says_nothing_about_who_has_sent(tmp_path: Path) -> None:
    """Neither what is passed on nor the shuffler's log tells how many there were."""
    told_of = []
    for number, came in enumerate((0, 1, 5)):
        world, link, desk = started(tmp_path / str(number))
        filled(world, desk, link.shuffler, honest(desk)[:came])
        desk.release()
        event = link.shuffler.entries[1].event
        told_of.append((len(link.passed[0].messages), event["messages"], event["people"], sorted(event)))
    assert told_of[0] == told_of[1] == told_of[2]


def test_as_much_is_sealed_for_a_batch_whoever_has_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealing is what a batch takes its time for. An analyzer that has sent for everybody else in their places would
    hear from the time of one more bundle whether the last one has sent hers."""
    desk, usual, counted = started(tmp_path)[2], ShuffledEncoder.sealed, list[int]()
    encoder = encoder_of(told(desk))
    bundles = [bundle(encoder, 1) for _ in range(encoder.bits.users)]

    def counting(encoder: ShuffledEncoder, messages: Any) -> bytes:
        counted[-1] += len(messages)
        return usual(encoder, messages)

    monkeypatch.setattr(ShuffledEncoder, "sealed", counting)
    for came in ([], bundles[:1], bundles[1:], bundles, bundles[:2] * 2):
        counted.append(0)
        mixed(encoder, came, NoiseSource.seeded(1))
    assert set(counted) == {encoder.batch_size}


def test_what_is_sent_twice_counts_for_nobody_and_stops_nobody(tmp_path: Path) -> None:
    """No honest device makes one ciphertext twice. Whoever does takes away her own messages, and no batch is held
    up."""
    world, link, desk = started(tmp_path)
    encoder, expected = encoder_of(told(desk)), counts(desk)
    twice = cut(bundle(encoder, 2))
    twice[0] = twice[1]
    pair = bundle(encoder, 2)
    filled(world, desk, link.shuffler, [*honest(desk), b"".join(twice), pair, pair])
    desk.release()
    assert releases(desk)[0].values.tolist() == expected


def test_messages_that_cannot_be_opened_take_away_their_senders_only(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path)
    encoder, expected = encoder_of(told(desk)), counts(desk)
    rubbish = NoiseSource.seeded(1).words(encoder.bundle_size // 8 + 1).tobytes()[: encoder.bundle_size]
    elsewhere = bundle(replace(encoder, task="11" * 32), 2)
    filled(world, desk, link.shuffler, [*honest(desk), rubbish, elsewhere])
    desk.release()
    assert releases(desk)[0].values.tolist() == expected


def test_a_batch_of_several_epochs_is_passed_on_with_the_last_of_them(tmp_path: Path) -> None:
    """Their people are mixed with each other; until then there are no numbers, and nothing is passed on."""
    world, link, desk = started(tmp_path, learner="sdp-pe", users=80)
    batches, ends = 0, list[int]()
    while batches < 2:
        announcement = told(desk)
        encoder = encoder_of(announcement)
        filled(world, desk, link.shuffler, [bundle(encoder, 0), bundle(encoder, 1)])
        desk.release()
        values = releases(desk)[-1].values
        if values.size:
            assert values.tolist()[:3] == [len(ends) + 1, len(ends) + 1, 0]
            batches, ends = batches + 1, []
            assert len(link.passed) == batches
            assert len(link.passed[-1].messages) == SEALED * encoder.batch_size
        else:
            ends.append(announcement.size)
            assert len(link.passed) == batches
    epochs = [entry.event for entry in link.shuffler.entries[1:]]
    assert any(not event["messages"] for event in epochs), "no batch had several epochs"


# Order --------------------------------------------------------------------------------------------------------------


def sealed(encoder: ShuffledEncoder, seed: int) -> list[bytes]:
    """A bundle for everybody of a batch: ciphertexts are random bytes to whoever cannot open them."""
    noise = NoiseSource.seeded(seed)
    return [
        noise.words(encoder.bundle_size // 8 + 1).tobytes()[: encoder.bundle_size] for _ in range(encoder.bits.users)
    ]


def test_what_is_passed_on_depends_on_neither_the_order_nor_the_time_of_arrival(tmp_path: Path) -> None:
    """With the same random numbers and the same messages the analyzer gets the same bytes, whoever came first."""
    found, begun = set(), trio(tmp_path / "begun")
    for number, order in enumerate((sorted, reversed, np.random.default_rng(0).permutation)):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "begun", folder)
        world = replace(
            begun, path=folder / "analyzer" / "tiny.toml", shuffler_path=folder / "shuffler" / "mixer.toml"
        )
        link = Direct(world.shuffler(NoiseSource.seeded(5)))
        desk = world.desk(link)
        desk.release()
        messages = sealed(encoder_of(told(desk)), 3)
        filled(world, desk, link.shuffler, messages, [int(slot) for slot in order(range(len(messages)))])
        desk.release()
        found.add(link.passed[0].messages)
    assert len(found) == 1


def test_every_message_can_be_anywhere(tmp_path: Path) -> None:
    """Places of the first message of the first person, and of the last, and of both together, are even."""
    encoder = encoder_of(told(trio(tmp_path, users=20, states=2).desk()))
    encoder = replace(encoder, bits=replace(encoder.bits, users=2, reliable=2, noise_bits=0))
    bundles, noise = sealed(encoder, 1), NoiseSource.seeded(2)
    n = encoder.batch_size
    first, last = bundles[0][:SEALED], bundles[1][-SEALED:]
    seen = np.zeros((n, n), np.int64)
    for _ in range(200 * n):
        places = {message: place for place, message in enumerate(cut(mixed(encoder, bundles, noise)))}
        seen[places[first], places[last]] += 1
    assert not seen.diagonal().any()
    assert stats.chisquare(seen.sum(axis=0)).pvalue > 1e-4
    assert stats.chisquare(seen.sum(axis=1)).pvalue > 1e-4
    assert stats.chisquare(seen[~np.eye(n, dtype=bool)]).pvalue > 1e-4


# What is left, and mutants ------------------------------------------------------------------------------------------


def seams(bundles: list[bytes], batch: bytes = b"") -> list[bytes]:
    """What shows that two messages came together: the end of one and the beginning of the next. A permuted batch has
    some of them by chance."""
    found = (each[i - 20 : i + 20] for each in bundles for i in range(SEALED, len(each), SEALED))
    return [seam for seam in found if seam not in batch]


def together(batch: bytes, bundles: list[bytes]) -> bool:
    """Whether somebody's messages stand side by side, in whatever order; by chance once in 10¹⁰ batches."""
    places = {message: place for place, message in enumerate(cut(batch))}
    spans = [[places[message] for message in cut(each) if message in places] for each in bundles]
    return any(len(found) > 4 and max(found) - min(found) == len(found) - 1 for found in spans)


def _unpermuted(messages: Any, noise: NoiseSource) -> Any:
    return messages


def _kept(self: Any, batch: bytes) -> None:
    self._db.execute("INSERT INTO part VALUES (0, ?)", (batch,))


def _kept_row_by_row(self: Any, batch: bytes) -> None:
    _kept(self, batch)
    self._db.execute("UPDATE bundle SET slot = -slot - 1")


def _anew(self: Shuffler, task: str, start: int, usual: Callable[..., bytes] = Shuffler.part) -> bytes:
    messages = np.frombuffer(usual(self, task, start), dtype=f"V{SEALED}")
    return shuffling.permuted(messages, self._noise).tobytes()


def _unfilled(encoder: ShuffledEncoder, bundles: Any, noise: NoiseSource) -> bytes:
    return shuffling.permuted(np.frombuffer(b"".join(bundles), dtype=f"V{SEALED}"), noise).tobytes()


@pytest.mark.parametrize(
    ("mutant", "caught"),
    [
        ("none", set()),
        ("no permutation", {"order"}),
        ("no filler", {"held up"}),
        ("no filler and no count", {"not released"}),
        ("rows kept after a batch", {"linkable", "left"}),
        ("rows kept under other numbers", {"linkable", "left"}),
        ("deleted but not overwritten", {"linkable", "left"}),
        ("not moved out of the log", {"linkable", "left"}),
        ("kept after the release", {"left"}),
        ("a fresh permutation for every question", {"changed", "not released"}),
    ],
)
def test_a_shuffler_that_is_none_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str, caught: set[str]
) -> None:
    """Two people send nothing; the others' messages are sought in every file, as they came and one by one."""
    if mutant == "no permutation":
        monkeypatch.setattr(shuffling, "permuted", _unpermuted)
    elif mutant == "no filler":
        monkeypatch.setattr(ShuffledEncoder, "silent", lambda self: b"")
    elif mutant == "no filler and no count":
        monkeypatch.setattr(shufflers, "mixed", _unfilled)
    elif mutant == "rows kept after a batch":
        monkeypatch.setattr(shufflers.ShufflerTransaction, "pass_on", _kept)
    elif mutant == "rows kept under other numbers":
        monkeypatch.setattr(shufflers.ShufflerTransaction, "pass_on", _kept_row_by_row)
    elif mutant == "deleted but not overwritten":
        monkeypatch.setattr(
            sqlite, "SETTINGS", tuple(each.replace("delete=ON", "delete=OFF") for each in sqlite.SETTINGS)
        )
    elif mutant == "not moved out of the log":
        monkeypatch.setattr(sqlite.Database, "tidy", lambda self: None)
    elif mutant == "kept after the release":
        monkeypatch.setattr(shufflers.ShufflerTransaction, "forget_batch", lambda self: None)
    elif mutant == "a fresh permutation for every question":
        monkeypatch.setattr(Shuffler, "part", _anew)
    assert found_wrong(tmp_path) == caught


def found_wrong(folder: Path) -> set[str]:
    world, link, desk = started(folder)
    encoder, size, found = encoder_of(told(desk)), told(desk).size, set[str]()
    sent = [bundle(encoder, i % encoder.size) for i in range(size - 2)]
    order = np.random.default_rng(1).permutation(size - 2).tolist()
    filled(world, desk, link.shuffler, sent, order)
    assert any(seam in world.stored("shuffler") for seam in seams(sent))  # until the batch is passed on
    entry = desk.visible.told
    assert entry is not None
    try:
        link.closed(entry)
    except ValueError:
        return {"held up"}
    with link.shuffler._store.writing() as transaction:
        kept = transaction.part(0)  # the order on the disk, whatever order is handed out
    assert kept is not None
    if any(seam in world.stored("shuffler") for seam in seams(sent, kept)):
        found.add("linkable")
    link.shuffler.close()
    link.shuffler = world.shuffler()
    link.closed(entry)
    first, second = link.passed
    if together(first.messages, sent):
        found.add("order")
    if first != second:
        found.add("changed")
    desk.release()
    if not releases(desk):
        return found | {"not released"}
    desk.release()  # the shuffler hears of the release
    if any(message in world.stored("shuffler") for each in sent for message in cut(each)):
        found.add("left")
    return found


def test_no_page_of_the_store_keeps_what_came_together(tmp_path: Path) -> None:
    """Many epochs in one store, arrivals in any order, some of them twice."""
    world, link, desk = started(tmp_path, users=200, epsilon=8.0)
    rng, sought = np.random.default_rng(2), list[bytes]()
    while desk.state.tickets < 200 and told(desk).epoch <= 12:
        encoder, size = encoder_of(told(desk)), told(desk).size
        sent: list[bytes | None] = [bundle(encoder, i % encoder.size) for i in range(size)]
        sent = [None if rng.random() < 0.2 else each for each in sent]
        order = rng.permutation(size).tolist()
        filled(world, desk, link.shuffler, sent, order + order[:3])
        desk.release()
        sought += seams([each for each in sent if each is not None], link.passed[-1].messages)
        for _ in range(2):
            stored = world.stored("shuffler")
            assert not any(seam in stored for seam in sought)
            desk.release()
    assert len(sought) > 400


# A shuffler that lies -----------------------------------------------------------------------------------------------


def _resigned(link: Direct, encoder: ShuffledEncoder, messages: list[bytes]) -> Passed:
    """What a shuffler says that does not do what it should, and signs it."""
    batch = b"".join(messages)
    told_so = statement(encoder.task, hashlib.sha256(batch).digest(), len(messages))
    return Passed(batch, link.shuffler.secrets.signing.sign(told_so))


LIES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "drops": lambda messages: messages[:-1],
    "drops a user": lambda messages: messages[8:],
    "adds": lambda messages: [*messages, bytes(SEALED)],
    "repeats": lambda messages: [*messages[:-1], messages[0]],
    "repeats all": lambda messages: messages[: len(messages) // 2] * 2,
    "passes on nothing": lambda messages: [],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_shuffler_that_drops_adds_or_repeats_messages_is_caught_by_the_count(tmp_path: Path, lie: str) -> None:
    world, link, desk = started(tmp_path)
    encoder = encoder_of(told(desk))
    filled(world, desk, link.shuffler, honest(desk))
    usual = link.closed

    def lying(announced: Entry) -> Passed | None:
        passed = usual(announced)
        assert passed is not None
        return _resigned(link, encoder, LIES[lie](cut(passed.messages)))

    link.closed = lying  # type: ignore[method-assign]
    desk.release()
    assert releases(desk) == []
    link.closed = usual  # type: ignore[method-assign]
    world.clock.now += 1_000
    desk.release()
    assert releases(desk)[0].values.tolist() == counts(desk)


def test_a_shuffler_that_sends_for_everybody_else_reads_the_last_one_from_the_public_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a shuffler is trusted with beyond order, and the documents say so: it knows the noise of every bundle that
    it makes itself. Nobody catches it, and against it she has her own noise only."""
    world, link, desk = started(tmp_path)
    entry, announcement = enrolled(desk)
    encoder, made = encoder_of(announcement), list[bytes]()
    hers = encoder.payload([0, 0, 0], [0, 0], [1.0, 1.0], Noise())

    def remembered(encoder: ShuffledEncoder) -> bytes:
        made.append(encoder.payload(None, None, None, Noise()))
        return made[-1]

    def ones(messages: bytes) -> Any:
        found = encoder.opened(desk.secrets.hpke, messages)
        return np.bincount(found["label"], weights=found["bit"], minlength=encoder.size)

    monkeypatch.setattr(ShuffledEncoder, "silent", remembered)
    link.shuffler.taken(entry, 0, admission(desk, entry, 0), hers)  # what others send it leaves out
    world.clock.now += 2_000
    desk.release()
    left = releases(desk)[0].values - sum(map(ones, made[1:]))
    assert left.tolist() == ones(hers).tolist()
    assert left.max() <= 1 + encoder.bits.noise_bits


def test_what_the_shuffler_has_not_signed_is_not_counted(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path)
    filled(world, desk, link.shuffler, honest(desk))
    usual = link.closed
    for change in (
        lambda passed: passed._replace(signature=bytes(64)),
        lambda passed: passed._replace(messages=passed.messages[SEALED:] + passed.messages[:SEALED]),
        lambda passed: None,
    ):
        link.closed = lambda announced, change=change: change(usual(announced))  # type: ignore[method-assign, misc]
        desk.release()
        world.clock.now += 10_000
        assert releases(desk) == []
    with pytest.raises(Unreachable):
        shuffling.analyzer(link, desk.secrets.hpke)(desk.state, desk.state.open[0], desk.visible.entries[1], iter(()))


# Crashes ------------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("point", ["before closed", "after closed", "before part", "after part", "before settled"])
@pytest.mark.parametrize("who", ["analyzer", "shuffler", "both"])
def test_a_crash_at_any_point_loses_nothing_and_releases_once(tmp_path: Path, point: str, who: str) -> None:
    world, link, desk = started(tmp_path)
    expected = counts(desk)
    filled(world, desk, link.shuffler, honest(desk))
    when, step = point.split()

    def crash(name: str) -> None:
        if name == step:
            setattr(link, when, lambda _: None)
            raise Crash

    setattr(link, when, crash)
    if step == "settled":
        desk.release()
    with pytest.raises(Crash):
        desk.release()
    if who != "analyzer":
        link.shuffler.close()
        link.shuffler = world.shuffler()
    if who != "shuffler":
        desk.close()
        desk = world.desk(link)
    for _ in range(3):
        world.clock.now += 10_000
        desk.release()
    (release,) = releases(desk)
    assert release.values.tolist() == expected
    assert len({passed.messages for passed in link.passed}) == 1
    assert not any(message in world.stored("shuffler") for message in cut(link.passed[0].messages))


def test_a_crash_while_a_batch_is_made_leaves_the_bundles_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, link, desk = started(tmp_path)
    expected, head = counts(desk), desk.visible.head.head
    filled(world, desk, link.shuffler, honest(desk))
    for name in ("forget_batch", "pass_on", "append"):
        kind: Any = shufflers.ShufflerTransaction
        usual = getattr(kind, name)

        def crashing(self: Any, *parts: Any, usual: Any = usual) -> None:
            usual(self, *parts)
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(kind, name, crashing)
            with pytest.raises(Crash):
                desk.release()
        assert len(link.shuffler.entries) == 1
        with link.shuffler._store.writing() as transaction:
            assert len(list(transaction.bundles([head]))) == len(HONEST)
            assert transaction.part(0) is None
    desk.release()
    assert releases(desk)[0].values.tolist() == expected


def test_an_old_copy_of_the_shufflers_store_is_refused(tmp_path: Path) -> None:
    """It would fill in and permute again: of the same people the analyzer would see another batch."""
    world, link, desk = started(tmp_path)
    filled(world, desk, link.shuffler, honest(desk))
    link.shuffler.close()
    store = world.shuffler_path.with_name("mixer.db")
    shutil.copy(store, tmp_path / "old")
    link.shuffler = world.shuffler()
    desk.release()
    link.shuffler.close()
    shutil.copy(tmp_path / "old", store)
    with pytest.raises(RolledBack):
        world.shuffler()


def test_the_end_of_a_deployment_erases_what_waits_at_the_shuffler(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path)
    entry, announcement = enrolled(desk)
    mine = bundle(encoder_of(announcement), 1)
    link.shuffler.taken(entry, 0, admission(desk, entry, 0), mine)
    assert mine[:40] in world.stored("shuffler")
    desk.decided([Wish.operate(Retire())])
    for _ in range(2):
        desk.release()
    assert not any(message[:40] in world.stored("shuffler") for message in cut(mine))
    for _ in range(2):
        with pytest.raises(Late):
            link.shuffler.taken(entry, 1, admission(desk, entry, 1), mine)
        link.shuffler.close()
        link.shuffler = world.shuffler()
    assert [each.event["event"] for each in link.shuffler.entries] == ["joined", "retired"]
    link.shuffler.settled(desk.visible.entries[-1])
    with pytest.raises(Forged, match="releases nothing"):
        link.shuffler.settled(entry)


def test_a_release_that_is_no_news_erases_nothing(tmp_path: Path) -> None:
    world, link, desk = started(tmp_path)
    for _ in range(2):
        filled(world, desk, link.shuffler, honest(desk))
        desk.release()
    first, second = (entry for entry in desk.visible.entries if entry.event["event"] == "released")
    link.shuffler.settled(first)
    closed = link.shuffler.entries[2].event
    assert link.shuffler.part(closed["task"], 0) == link.passed[1].messages
    assert link.shuffler.part(closed["task"], 5) == link.passed[1].messages[5 * SEALED :]
    for task, start in ((closed["task"], closed["messages"]), (link.shuffler.entries[1].event["task"], 0)):
        with pytest.raises(Settled, match="no such part"):
            link.shuffler.part(task, start)
    link.shuffler.settled(second)
    with pytest.raises(Settled, match="erased"):
        link.shuffler.part(closed["task"], 0)
