"""Two servers as parties: what they count, what they refuse, what either of them holds, and what a crash changes."""

from __future__ import annotations

import base64
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

import oracles_prio3 as oracle
from discreet.device.announcements import Entry, Forged
from discreet.device.shares import ShareEncoder, hpke
from discreet.live.asking import Unreachable
from discreet.live.desk import FIRST_WAIT, Desk, Wish
from discreet.live.events import event_of, signed
from discreet.live.helper import Helper, Place
from discreet.live.learning import task_of
from discreet.live.party import Joined, Settled
from discreet.live.store import RolledBack
from discreet.live.two_servers import Shared, check_both, noised, scale
from discreet.privacy.noise import NoiseSource
from discreet.vdaf import Prio3Histogram
from discreet.vdaf.field import encoded
from live_world import told
from two_world import Pair, Said, Watching, asked_of, encoder_of, filled, honest, joined, paired, releases


def started(tmp_path: Path, **said: Any) -> tuple[Pair, Watching, Desk]:
    pair = paired(tmp_path, **said)
    desk = pair.desk()
    link = Watching(joined(pair, desk))
    desk.close()
    return pair, link, pair.desk(link)


# Together -----------------------------------------------------------------------------------------------------------


def test_epochs_are_learned_and_both_logs_add_up(tmp_path: Path) -> None:
    pair, link, desk = started(tmp_path)
    for epoch in range(1, 4):
        filled(pair, desk, honest)
        desk.release()
        assert releases(desk)[-1].values.tolist() == [1, 2, 0, 0]
        assert link.helper.entries[epoch].event["event"] == "shared"
        assert told(desk).epoch == epoch + 1
    logs = desk.visible.entries, link.helper.entries
    assert check_both(*logs) == 3
    desk.close()
    link.helper.close()
    again = pair.helper()
    assert (pair.desk().visible.entries, again.entries) == logs


def test_an_epoch_of_nobody_is_released_too(tmp_path: Path) -> None:
    pair, _, desk = started(tmp_path)
    filled(pair, desk, lambda _: [])
    desk.release()
    assert releases(desk)[-1].values.tolist() == [0, 0, 0, 0]


def changed(entries: Iterable[Entry], number: int, key: Any, fields: dict[str, Any]) -> list[Entry]:
    """The log with another entry there, signed and followed by the later entries as if nothing had happened."""
    found: list[Entry] = []
    for entry in entries:
        event = Said(entry.event | (fields if entry.number == number else {}))
        found.append(signed(key, entry.number, found[-1].head if found else bytes(32), event))
    return found


@pytest.mark.parametrize(
    ("whose", "fields", "why"),
    [
        (
            "leader",
            {"values": base64.b64encode(np.array([1, 2, 0, 1]).astype("<i8").tobytes()).decode()},
            "not the sum",
        ),
        ("leader", {"helper": "00" * 32}, "another entry"),
        ("helper", {"epoch": 2}, "another entry"),
        ("helper", {"values": base64.b64encode(encoded([0] * 5)).decode()}, "another entry"),
    ],
)
def test_a_release_that_is_not_the_sum_of_both_shares_is_found(
    tmp_path: Path, whose: str, fields: dict[str, Any], why: str
) -> None:
    pair, link, desk = started(tmp_path)
    filled(pair, desk, honest)
    desk.release()
    log, helper_log = list(desk.visible.entries), list(link.helper.entries)
    if whose == "leader":
        number = next(entry.number for entry in log if entry.event["event"] == "released")
        log = changed(log, number, desk.secrets.signing, fields)
    else:
        helper_log = changed(helper_log, 1, link.helper.secrets.signing, fields)
    with pytest.raises(Forged, match=why):
        check_both(log, helper_log)
    for broken in ([], helper_log[:1]):
        with pytest.raises(Forged):
            check_both(desk.visible.entries, broken)


# Again and again ----------------------------------------------------------------------------------------------------


class Died(Exception):
    """As if the process had been killed: nothing is caught, nothing is closed in order."""


@pytest.mark.parametrize("who", ["leader", "helper", "both"])
@pytest.mark.parametrize(
    "point", ["before verified", "after verified", "before finished", "after finished", "commit"]
)
def test_a_crash_at_any_point_loses_nothing_and_releases_once(
    tmp_path: Path, point: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, link, desk = started(tmp_path)
    filled(pair, desk, honest)
    moment, _, what = point.partition(" ")

    def die(name: str) -> None:
        if name == what:
            raise Died

    if moment == "commit":
        monkeypatch.setattr(desk, "_appended", lambda *_: die(what))
    setattr(link, moment, die)
    with pytest.raises(Died):
        desk.release()
    monkeypatch.undo()
    published = list(link.helper.entries)
    assert len(published) == (2 if point in ("after finished", "commit") else 1)
    helper = link.helper
    if who != "leader":
        helper.close()
        helper = pair.helper(seed=7)
    if who != "helper":
        desk.close()
        desk = pair.desk(Watching(helper), seed=8)
    else:
        desk.sealed_by(pair.desk(Watching(helper))._sealer)
    desk.release()
    desk.release()
    assert [release.values.tolist() for release in releases(desk)] == [[1, 2, 0, 0]]
    assert list(helper.entries)[: len(published)] == published
    assert check_both(desk.visible.entries, helper.entries) == 1


def test_whatever_is_asked_again_gets_the_same_answer(tmp_path: Path) -> None:
    pair, link, desk = started(tmp_path)
    filled(pair, desk, lambda encoder: [*honest(encoder)[:3], bytes(len(encoder.shared(0)))])
    desk.release()
    (questions, answers), entry = link.heard
    assert [answer is None for answer in answers] == [False, False, False, True]
    announced = desk.visible.entries[1]
    for helper in (link.helper, pair.helper(seed=9)):
        assert helper.verified(announced, questions) == answers
        assert helper.verified(announced, questions[::-1]) == answers[::-1]
        assert helper.finished(announced) == entry
        assert len(helper.entries) == 2


def test_a_corrupt_leader_that_asks_again_with_other_reports_learns_nothing_new(tmp_path: Path) -> None:
    """One answer per nonce, one sum per epoch, none after it."""
    _, link, desk = started(tmp_path)
    helper, announced, encoder = link.helper, desk.visible.entries[1], encoder_of(told(desk))
    secret = helper.secrets.verify
    first, second, third = asked_of(desk, secret, [encoder.shared(item) for item in (0, 1, 2)])
    (message,) = helper.verified(announced, [first])
    assert message is not None
    wrong = second._replace(verifier=third.verifier)
    assert helper.verified(announced, [wrong]) == [None]
    assert helper.verified(announced, [second]) == [None]  # it was refused once, and stays so
    assert helper.verified(announced, [second._replace(nonce=first.nonce)]) == [message]
    entry = helper.finished(announced)
    assert helper.verified(announced, [first, third]) == [message, None]
    assert helper.finished(announced) == entry
    assert len(helper.entries) == 2


def test_what_a_helper_is_not_to_be_asked_is_refused(tmp_path: Path) -> None:
    _, link, desk = started(tmp_path)
    helper, (opening, announced), encoder = link.helper, desk.visible.entries, encoder_of(told(desk))
    asked = asked_of(desk, helper.secrets.verify, [encoder.shared(0) for _ in range(6)])
    key = desk.secrets.signing

    def told_as(**fields: Any) -> Entry:
        return signed(key, 1, opening.head, Said(announced.event | fields))

    for why, forged in {
        "signature": replace(announced, signature=bytes(64)),
        "another task": told_as(encoder=announced.event["encoder"] | {"task": "00" * 32}),
        "another helper": told_as(encoder=announced.event["encoder"] | {"helper": "00" * 32}),
        "announces no epoch": opening,
    }.items():
        with pytest.raises(Forged, match=why):
            helper.verified(forged, asked[:1])
        with pytest.raises(Forged, match=why):
            helper.finished(forged)
    with pytest.raises(Forged, match="one nonce"):
        helper.verified(announced, [asked[0], asked[0]])
    with pytest.raises(Forged, match="more reports than"):
        helper.verified(announced, asked)
    assert None not in helper.verified(announced, asked[:5])
    with pytest.raises(Forged, match="more reports than"):
        helper.verified(announced, asked[5:])
    with pytest.raises(Forged, match="in another way before"):
        helper.finished(told_as(size=4))
    later = replace_epoch(desk, announced, 2)
    with pytest.raises(Settled, match="has not ended"):
        helper.verified(later, [])
    helper.finished(announced)
    helper.verified(later, [])
    with pytest.raises(Settled, match="has gone on"):
        helper.verified(announced, asked[:5])
    assert helper.finished(announced) == helper.entries[1]


def replace_epoch(desk: Desk, announced: Entry, epoch: int) -> Entry:
    encoder = announced.event["encoder"] | {"task": task_of(desk.charter, epoch)}
    return signed(
        desk.secrets.signing, 1, announced.previous, Said(announced.event | {"epoch": epoch, "encoder": encoder})
    )


def test_a_helper_joins_one_deployment_and_only_one_that_is_private_enough(tmp_path: Path) -> None:
    _, link, desk = started(tmp_path / "one")
    opening = desk.visible.entries[0]
    assert link.helper.joined(opening) == link.helper.entries[0]
    assert Joined.from_event(link.helper.entries[0].event).charter == desk.charter
    key = desk.secrets.signing
    other = signed(key, 0, bytes(32), Said(opening.event | {"charter": opening.event["charter"] | {"name": "other"}}))
    with pytest.raises(Forged, match="another deployment"):
        link.helper.joined(other)
    with pytest.raises(Forged, match="names another helper"):
        joined(paired(tmp_path / "two"), desk)
    strict = paired(tmp_path / "three", epsilon=2.0, epsilon_at_most=1.0)
    with pytest.raises(Forged, match="more than the 1"):
        joined(strict, strict.desk())
    fresh = paired(tmp_path / "four")
    with pytest.raises(Settled, match="no leader"):
        fresh.helper().finished(fresh.desk().visible.entries[1])
    assert fresh.helper().entries == ()


def test_a_helper_that_dies_between_its_first_entry_and_its_anchor_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = paired(tmp_path)
    opening, helper = pair.desk().visible.entries[0], pair.helper()

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr("discreet.live.helper.Anchor.advance", die)
        with pytest.raises(Died):
            helper.joined(opening)
    helper.close()
    again = pair.helper()
    assert again.joined(opening) == again.entries[0]
    assert pair.helper_path.with_name("second.head").exists()


def test_a_helper_on_an_old_copy_does_not_start(tmp_path: Path) -> None:
    pair, link, desk = started(tmp_path)
    link.helper.close()
    kept = pair.helper_path.with_name("second.db").read_bytes()
    link.helper = pair.helper()
    filled(pair, desk, honest)
    desk.release()
    link.helper.close()
    pair.helper_path.with_name("second.db").write_bytes(kept)
    with pytest.raises(RolledBack):
        pair.helper()


def test_mistakes_in_the_file_of_a_helper_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "second.toml"
    for text, why in {
        'name = "x"\n[helper]\nurl = "http://a"': "epsilon_at_most is None",
        'name = "x"\n[helper]\nepsilon_at_most = 1': "helper.url",
        'name = "x"\n[helper]\nkey = "a"': "no setting",
        '[helper]\nurl = "http://a"\nepsilon_at_most = 1': "name is missing",
        'name = "x"\n[helper]\nurl = "http://a"\nepsilon_at_most = 1\n[store]\nurl = "postgresql://b"': "sqlite",
    }.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=why):
            Place.read(path)


# Dishonest people ---------------------------------------------------------------------------------------------------


def crafted(encoder: ShareEncoder, vector: list[int]) -> bytes:
    """A report of any vector, with a proof made as honest people make it."""
    nonce, rand = random.Random(repr(vector)).randbytes(16), random.Random(5).randbytes(encoder.vdaf.rand_size)
    public, (leader, helper) = oracle.forged(2, vector, encoder.chunk, encoder.context, nonce, rand)
    return nonce + public + leader + encoder._seal(helper, nonce, public)


def test_malformed_and_malicious_reports_are_dropped_and_honest_ones_counted(tmp_path: Path) -> None:
    """Two items, negative ones, too many, random bytes; for another epoch, sealed for another helper, or cut from two
    reports. What comes twice counts once, and so do two reports with one nonce."""
    pair, link, desk = started(tmp_path, users=5000, epsilon=1.0, states=2)
    quiet = Quiet()
    link.helper._noise, desk = quiet, pair.desk(link, noise=quiet)
    before = encoder_of(told(desk))
    filled(pair, desk, lambda encoder: [encoder.shared(0)])
    desk.release()
    stranger = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()

    def people(encoder: ShareEncoder) -> list[bytes | None]:
        one, two = encoder.parts(encoder.shared(0)), encoder.parts(encoder.shared(1))
        wrong_key = replace(encoder, helper=stranger)
        object.__setattr__(wrong_key, "context", encoder.context)
        twice, renamed = encoder.shared(2), encoder.shared(2, nonce=two.nonce)
        size = encoder.num_items + 1
        bad = [
            crafted(encoder, [1, 1] + [0] * (size - 2)),
            crafted(encoder, [1, -1, 1] + [0] * (size - 3)),
            crafted(encoder, [-1] + [0] * (size - 1)),
            crafted(encoder, [100] + [0] * (size - 1)),
            crafted(encoder, [0] * size),
            random.Random(1).randbytes(len(twice)),
            bytes(len(twice)),
            before.shared(0),
            wrong_key.shared(0),
            b"".join(one._replace(sealed=two.sealed)),
            b"".join(one._replace(leader=two.leader)),
            b"".join(one._replace(public=two.public)),
            b"".join(two._replace(nonce=one.nonce)),
        ]
        good = [encoder.shared(0), encoder.shared(encoder.num_items), twice, b"".join(two)]
        return [*bad, *good, twice, twice, renamed, crafted(encoder, [0, 0, 0, 1] + [0] * (size - 4))]

    filled(pair, desk, people)
    desk.release()
    assert releases(desk)[-1].values.tolist() == [1, 1, 1, 1]
    assert check_both(desk.visible.entries, link.helper.entries) == 2


def test_reports_of_other_lengths_are_refused_at_once(tmp_path: Path) -> None:
    _, _, desk = started(tmp_path)
    whole = encoder_of(told(desk)).shared(0)
    user = bytes(16)
    desk.decided([Wish.enrol(user)])
    for payload in (b"", whole[:-1], whole + b"x", bytes(4)):
        (reply,) = desk.decided([Wish.report(user, payload)])
        assert type(reply).__name__ == "Refused"


# What either of them holds ------------------------------------------------------------------------------------------


class Quiet(NoiseSource):
    """No noise: what is counted can be read."""

    def __init__(self) -> None:
        pass

    def laplace(self, scale: float, size: Any = None) -> Any:
        return np.zeros(size, dtype=np.int64)


def view(pair: Pair, link: Watching, desk: Desk, items: Iterable[int | None]) -> list[int]:
    """Everything that is published of an epoch, "none" included, without noise."""
    encoder = encoder_of(told(desk))
    filled(pair, desk, lambda _: [None if item is None else encoder.shared(item) for item in items])
    desk.release()
    last = releases(desk)[-1]
    assert last.share is not None
    theirs = Shared.from_event(link.helper.entries[last.epoch].event).values
    return encoder.vdaf.unshard([last.share, theirs])


def test_what_one_person_can_change_by_brute_force(tmp_path: Path) -> None:
    """Every report instead of every other, and leaving, through both servers: at most two counts by one each."""
    pair, link, _ = started(tmp_path, users=1000, epsilon=1.0)
    link.helper._noise = quiet = Quiet()
    desk = pair.desk(link, noise=quiet)
    others = [0, 1, 4, None]
    seen = {item: np.array(view(pair, link, desk, [item, *others])) for item in (None, 0, 1, 2, 3, 4)}
    moves = [np.abs(a - b).sum() for a in seen.values() for b in seen.values()]
    assert max(moves) == 2
    assert max(np.abs(seen[None] - other).sum() for other in seen.values()) == 1
    assert scale(desk.charter) == pytest.approx(2.0 / desk.charter.epsilon)


def byte_counts(parts: Iterable[bytes]) -> np.ndarray:
    return np.bincount(np.frombuffer(b"".join(parts), dtype=np.uint8), minlength=256)


@pytest.mark.parametrize("who", ["leader", "helper"])
def test_one_server_sees_the_same_for_every_item(tmp_path: Path, who: str) -> None:
    """Two-sample chi-square on all bytes that a server sees of reports of two items, and byte by byte where the items
    differ; the same test tells masked from unmasked vectors, and finds the items in both views put together."""
    _, link, desk = started(tmp_path)
    encoder, place = encoder_of(told(desk)), ["leader", "helper"].index(who)
    vdaf, key = encoder.vdaf, link.helper.secrets.verify

    def seen(item: int) -> tuple[bytes, bytes, list[int]]:
        parts = encoder.parts(encoder.shared(item))
        opened = hpke().decrypt(parts.sealed, link.helper.secrets.hpke, encoder.info(parts.nonce, parts.public))
        own = parts.leader, bytes(opened)
        checked = [vdaf.verify_init(key, encoder.context, i, parts.nonce, parts.public, own[i]) for i in range(2)]
        shares = [state.out_share for state, _ in checked]
        view = parts.nonce + parts.public + own[place] + checked[0][1] + checked[1][1]
        return view + (parts.sealed if who == "leader" else b""), shares[place], vdaf.unshard(shares)

    people = 300
    views = {item: [seen(item) for _ in range(people)] for item in (0, 3)}
    assert all(found[2] == [int(i == item) for i in range(5)] for item in views for found in views[item])

    def p_value(index: int, cut: slice) -> float:
        table = [byte_counts(found[index][cut] for found in views[item]) for item in views]
        kept = np.array(table)[:, np.sum(table, axis=0) > 0]
        return float(stats.chi2_contingency(kept).pvalue) if kept.shape[1] > 1 else 0.0

    assert p_value(0, slice(None)) > 1e-9
    for bucket in (0, 3):
        assert p_value(1, slice(16 * bucket, 16 * bucket + 16)) > 1e-9
    unmasked = [
        byte_counts(encoded([int(i == item) for i in range(5)])[:16] for _ in range(people)) for item in views
    ]
    assert stats.chi2_contingency(np.array(unmasked)[:, np.sum(unmasked, axis=0) > 0]).pvalue < 1e-30


def test_nothing_of_a_report_is_left_once_its_epoch_is_released(tmp_path: Path) -> None:
    """Shares, sums without noise and sealed shares are in the stores before, in none of their bytes after; the helper
    never hears a raw vector or a share of the leader. (In a store, whose erased pages are zeros, the bytes of a raw
    vector say nothing.)"""
    pair, link, desk = started(tmp_path)
    encoder = encoder_of(told(desk))
    payloads = [encoder.shared(item) for item in (0, 1, 2)]
    filled(pair, desk, lambda _: list(payloads))
    parts = [encoder.parts(payload) for payload in payloads]
    assert all(part.leader in pair.stored("leader") and part.sealed in pair.stored("leader") for part in parts)
    sums: list[bytes] = []
    total = link.helper.finished

    def finished(announced: Entry) -> Entry:
        with link.helper._store.writing() as transaction:
            sums.append(transaction.total(1))
        assert sums[0] in pair.stored("helper")
        return total(announced)

    link.helper.finished = finished  # type: ignore[method-assign]
    desk.release()
    for who in ("leader", "helper"):
        stored = pair.stored(who)
        secrets = [sums[0], *(piece for part in parts for piece in (part.leader, part.sealed, part.public))]
        assert not [piece for piece in secrets if piece in stored]
    raw = [encoded([int(i == item) for i in range(5)]) for item in range(5)]
    heard = b"".join(
        b"".join(question) + (answer or b"")
        for questions, answers in link.heard[:1]
        for question, answer in zip(questions, answers, strict=True)
    )
    assert not [piece for piece in [*raw, *(part.leader for part in parts)] if piece in heard]


# Noise --------------------------------------------------------------------------------------------------------------


def half_noise(width: float, size: int, draws: np.random.Generator) -> np.ndarray:
    """One of two parts that add up to one discrete Laplace noise."""
    q = np.exp(-1.0 / width)
    return draws.negative_binomial(0.5, 1.0 - q, size) - draws.negative_binomial(0.5, 1.0 - q, size)


def test_a_corrupt_leader_that_takes_off_its_share_finds_one_whole_noise(tmp_path: Path) -> None:
    """What is left of the helper's sum is count + noise: an audit bounds ε from below by how often counts of 0 and 1
    look alike. It stays at ε for the protocol, and refutes it for one noise that both have split."""
    epsilon, vdaf = 1.0, Prio3Histogram(2, 30_000, 173)
    width = 2.0 / epsilon
    secret_share = vdaf.aggregate([encoded([7] * vdaf.length)])

    def bound(helper_values: bytes) -> float:
        """Lower bound (99.9 %) of 2·ln P(X = 0)/P(X = 1): a report moves two counts by one each."""
        left = np.array(vdaf.unshard([helper_values, vdaf.aggregate([encoded([-7] * vdaf.length)])]))
        zero, one = (left == 0).sum(), (left == 1).sum()
        low = stats.beta.ppf(0.0005, zero, vdaf.length - zero + 1)
        high = stats.beta.ppf(0.9995, one + 1, vdaf.length - one)
        return float(2.0 * np.log(low / high))

    assert 0.7 * epsilon < bound(noised(vdaf, secret_share, width, NoiseSource.seeded(3))) <= epsilon
    split = half_noise(width, vdaf.length, np.random.default_rng(3)).tolist()
    assert bound(vdaf.noised(secret_share, split)) > 1.5 * epsilon


def test_both_draw_their_own_noise_with_the_width_of_the_charter(tmp_path: Path) -> None:
    asked: list[tuple[str, float, int]] = []

    class Noting(Quiet):
        def __init__(self, name: str) -> None:
            self.name = name

        def laplace(self, scale: float, size: Any = None) -> Any:
            asked.append((self.name, scale, size))
            return np.zeros(size, dtype=np.int64)

    pair, link, _ = started(tmp_path, users=1000, epsilon=0.5)
    link.helper._noise = Noting("helper")
    desk = pair.desk(link, noise=Noting("leader"))
    filled(pair, desk, honest)
    desk.release()
    assert [(name, size) for name, _, size in asked] == [("helper", 5), ("leader", 5)]
    assert [width for _, width, _ in asked] == pytest.approx([4.0, 4.0])


# A helper that does not answer --------------------------------------------------------------------------------------


def test_an_unreachable_helper_postpones_a_release_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair, link, desk = started(tmp_path)

    def down(_: str) -> None:
        raise Unreachable("the helper does not answer")

    filled(pair, desk, honest)
    link.before = down
    tries: list[int] = []
    with caplog.at_level(logging.WARNING):
        for _ in range(400):
            pair.clock.now += FIRST_WAIT // 2
            before = len(caplog.records)
            desk.release()
            if len(caplog.records) > before:
                tries.append(pair.clock.now)
    gaps = np.diff(tries)
    assert gaps[0] == FIRST_WAIT
    assert (gaps[1:] >= gaps[:-1]).all()
    assert gaps.max() <= 30_000
    assert "the helper does not answer" in caplog.text
    (reply,) = desk.decided([Wish.enrol(b"another person..")])
    assert type(reply).__name__ == "Spectator"
    assert releases(desk) == []
    assert len(desk.visible.entries) == 2
    link.before = lambda _: None
    pair.clock.now += 30_000
    desk.release()
    assert releases(desk)[-1].values.tolist() == [1, 2, 0, 0]


def test_a_helper_that_lies_postpones_a_release(tmp_path: Path) -> None:
    """Another key, another epoch, nonsense, too few answers: nothing of it is counted or published."""
    pair, link, desk = started(tmp_path)
    filled(pair, desk, honest)
    helper, other = link.helper, joined_elsewhere(tmp_path / "other")

    def answering(finish: Callable[[Entry], Entry]) -> Any:
        return type("Lying", (), {"verified": staticmethod(helper.verified), "finished": staticmethod(finish)})()

    helper_down = type("Down", (), {"verified": staticmethod(helper.verified), "finished": staticmethod(unreachable)})
    desk.sealed_by(pair.desk(helper_down())._sealer)
    desk.release()
    key, entry = helper.secrets.signing, helper.finished(desk.visible.entries[1])
    lies = [
        lambda _: other,
        lambda _: helper.entries[0],
        lambda _: signed(key, 2, entry.head, Said(entry.event | {"epoch": 2})),
        lambda _: signed(key, 1, entry.previous, Said(entry.event | {"values": "AAAA"})),
        lambda _: signed(
            key, 1, entry.previous, Said(entry.event | {"values": base64.b64encode(encoded([1 << 100] * 5)).decode()})
        ),
        lambda _: replace(entry, signature=bytes(64)),
    ]
    links = [answering(lie) for lie in lies]
    links.append(
        type("Mute", (), {"verified": staticmethod(lambda *_: []), "finished": staticmethod(helper.finished)})()
    )
    for lying in links:
        desk.sealed_by(pair.desk(lying)._sealer)
        pair.clock.now += 60_000
        desk.release()
        assert releases(desk) == []
    desk.sealed_by(pair.desk(helper)._sealer)
    pair.clock.now += 60_000
    desk.release()
    assert releases(desk)[-1].values.tolist() == [1, 2, 0, 0]


def unreachable(_: Entry) -> Entry:
    raise Unreachable("it is far away")


def joined_elsewhere(folder: Path) -> Entry:
    pair, _, desk = started(folder)
    filled(pair, desk, honest)
    return pair.helper().finished(desk.visible.entries[1])


def test_a_desk_without_a_link_releases_nothing_of_two_servers(tmp_path: Path) -> None:
    """Shares alone would be a release of noise."""
    pair, _, desk = started(tmp_path)
    filled(pair, desk, honest)
    desk.close()
    alone = pair.desk()
    alone.release()
    assert releases(alone) == []
    assert alone.state.open
    assert [type(event_of(entry)).__name__ for entry in alone.visible.entries] == ["Opened", "Announcement"]


def test_a_helper_is_a_link(tmp_path: Path) -> None:
    pair = paired(tmp_path)
    first = pair.desk()
    helper: Helper = joined(pair, first)
    first.close()
    desk = pair.desk(helper)
    filled(pair, desk, honest)
    desk.release()
    assert releases(desk)[-1].values.tolist() == [1, 2, 0, 0]
