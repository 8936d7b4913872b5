"""Where a deployment is kept: durable, forgetful, one ticket per user, one release per epoch; no old copy."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from discreet.device.announcements import Entry
from discreet.live.deployment import (
    Accepted,
    Amend,
    Done,
    Granted,
    Late,
    Pause,
    Refused,
    Resume,
    Retire,
    Spectator,
    State,
    opening,
)
from discreet.live.desk import Desk, Wish
from discreet.live.events import Released, event_of
from discreet.live.sqlite import SETTINGS, SqliteStore, check_version
from discreet.live.store import Anchor, Changes, Place, RolledBack, StoreFailed, written
from live_world import NONE, PATIENCE, World, asked, deployed, place, told


def user(number: int) -> bytes:
    return hashlib.sha256(b"user %d" % number).digest()[:16]


def entry(number: int, body: bytes = b'{"event":"paused"}') -> Entry:
    return Entry(number, bytes(32), body, bytes(64))


# The database -------------------------------------------------------------------------------------------------------


def test_the_store_is_as_durable_and_as_forgetful_as_it_claims(tmp_path):
    store = SqliteStore(tmp_path / "a.db", create=True)
    read = {name: store._db.pragma(name) for name in ("journal_mode", "synchronous", "secure_delete", "temp_store")}
    assert read == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "temp_store": 2}
    assert len(SETTINGS) == 5
    store.close()


@pytest.mark.parametrize("version", ["3.51.3", "3.51.4", "3.52.0", "3.54.1", "4.0.0", "3.50.7", "3.50.9", "3.44.6"])
def test_sound_versions_of_sqlite_are_taken(version):
    check_version(version)


@pytest.mark.parametrize("version", ["3.51.2", "3.50.6", "3.44.5", "3.45.9", "3.49.99", "3.40.1", "3.43.2"])
def test_versions_that_lose_commits_are_refused(version):
    with pytest.raises(ValueError, match=f"SQLite {version} can lose acknowledged commits"):
        check_version(version)


def test_only_the_owner_reads_the_files_of_a_deployment(tmp_path):
    world = deployed(tmp_path)
    desk = world.desk()
    asked(desk, Wish.enrol(user(0)))
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir() if path != world.path}
    assert found.keys() >= {"tiny.db", "tiny.db-wal", "tiny.keys", "tiny.head"}
    assert set(found.values()) == {0o600}
    desk.close()


@pytest.mark.parametrize("second", ["user", "slot"])
def test_one_ticket_per_user_and_one_user_per_place_are_the_databases_own_law(tmp_path, second):
    store = SqliteStore(tmp_path / "a.db", create=True)
    with store.writing() as transaction:
        transaction.write(Changes(places={user(0): Place(user(0), 1, 0, 10)}))
    other = Place(user(0), 1, 1, 10) if second == "user" else Place(user(1), 1, 0, 10)
    with pytest.raises(StoreFailed), store.writing() as transaction:
        transaction.write(Changes(places={other.user: other}))
    with store.writing() as transaction:
        assert transaction.held([user(0), user(1)]) == {user(0): Place(user(0), 1, 0, 10)}
    store.close()


def test_one_release_per_epoch_is_the_databases_own_law(tmp_path):
    store = SqliteStore(tmp_path / "a.db", create=True)
    body = b'{"epoch":1,"event":"released","tickets":1,"values":""}'
    with store.writing() as transaction:
        transaction.write(Changes(entries=[entry(0, body)]))
    with pytest.raises(StoreFailed), store.writing() as transaction:
        transaction.write(Changes(entries=[entry(1, body)]))
    with store.writing() as transaction:
        assert transaction.length() == 1
    store.close()


def test_the_first_report_stands(tmp_path):
    store = SqliteStore(tmp_path / "a.db", create=True)
    with store.writing() as transaction:
        transaction.write(Changes(places={user(0): Place(user(0), 1, 0, 10)}, items={user(0): (1, b"first")}))
    with store.writing() as transaction:
        transaction.write(Changes(items={user(0): (1, b"second")}))
    with store.writing() as transaction:
        assert list(transaction.items(1)) == [b"first"]
        assert transaction.held([user(0)])[user(0)].reported
    store.close()


def test_tickets_out_and_the_last_expiry_are_those_of_the_last_place(tmp_path):
    store = SqliteStore(tmp_path / "a.db", create=True)
    with store.writing() as transaction:
        transaction.write(Changes(places={user(i): Place(user(i), 1 + i // 3, i % 3, 100 + i) for i in range(5)}))
        assert transaction.outs([1, 2, 3]) == {1: (3, 102), 2: (2, 104)}
    store.close()


def test_what_is_no_store_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="there is no store"):
        SqliteStore(tmp_path / "a.db")
    (tmp_path / "b.db").write_bytes(b"not a database, although it is quite long" * 100)
    with pytest.raises(ValueError, match=r"b\.db is not the store of a deployment"):
        SqliteStore(tmp_path / "b.db")
    apsw.Connection(str(tmp_path / "c.db")).execute("CREATE TABLE log (number INTEGER)")
    with pytest.raises(ValueError, match=r"c\.db is not the store of a deployment"):
        SqliteStore(tmp_path / "c.db")
    with pytest.raises(ValueError, match="exists already"):
        SqliteStore(tmp_path / "b.db", create=True)


def test_a_transaction_that_fails_leaves_nothing(tmp_path):
    store = SqliteStore(tmp_path / "a.db", create=True)
    rows = Changes(places={user(0): Place(user(0), 1, 0, 10)}, items={user(0): (1, "no bytes")})  # type: ignore[dict-item]
    store._db.execute("CREATE TRIGGER no BEFORE UPDATE ON ticket BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreFailed), store.writing() as transaction:
        transaction.write(rows)
    with store.writing() as transaction:
        assert transaction.held([user(0)]) == {}
    store.close()


# Erasure ------------------------------------------------------------------------------------------------------------


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def released_once(desk: Desk, world: World, payload: Callable[[int], bytes]) -> None:
    """Fill an epoch, and let its time run out."""
    size, first = told(desk).size, 100 * told(desk).epoch
    asked(desk, *(Wish.enrol(user(first + i)) for i in range(size)))
    asked(desk, *(Wish.report(user(first + i), payload(i)) for i in range(size)))
    world.clock.now += PATIENCE
    desk.release()


def test_after_a_release_no_raw_item_is_in_any_file(tmp_path):
    """Items of dp-ucbvi are whole episodes, long enough to search for."""
    world = deployed(tmp_path, learner="dp-ucbvi", epsilon=1.0, users=2_000)
    desk = world.desk()
    encoder = told(desk).encoder
    canary = encoder.payload([0, 1, 0], [1, 1], [1.0, 0.5], None)[8:]
    released_once(desk, world, lambda _: canary_payload(canary))
    assert sum(isinstance(event_of(e), Released) for e in desk.visible.entries) == 1
    assert canary not in everything(tmp_path)
    desk.close()
    assert canary not in everything(tmp_path)


def canary_payload(tail: bytes) -> bytes:
    return (2).to_bytes(8, "little") + tail


def test_before_the_release_it_is_there_and_without_the_truncation_it_stays(tmp_path):
    """That the search above can find something."""
    world = deployed(tmp_path, learner="dp-ucbvi", epsilon=1.0, users=2_000)
    desk = world.desk()
    canary = told(desk).encoder.payload([0, 1, 0], [1, 1], [1.0, 0.5], None)[8:]
    desk._store.erased = lambda through: None  # type: ignore[method-assign]
    asked(desk, Wish.enrol(user(0)))
    asked(desk, Wish.report(user(0), canary_payload(canary)))
    assert canary in everything(tmp_path)
    released_once(desk, world, lambda _: canary_payload(canary))
    assert canary in everything(tmp_path)
    desk.close()


def test_a_reader_only_delays_the_erasure(tmp_path):
    world = deployed(tmp_path, learner="dp-ucbvi", epsilon=1.0, users=2_000)
    desk = world.desk()
    canary = told(desk).encoder.payload([0, 1, 0], [1, 1], [1.0, 0.5], None)[8:]
    asked(desk, Wish.enrol(user(0)))
    asked(desk, Wish.report(user(0), canary_payload(canary)))
    reader = apsw.Connection(str(world.database), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT count(*) FROM ticket").fetchall()
    size = told(desk).size
    asked(desk, *(Wish.enrol(user(i)) for i in range(size)))
    world.clock.now += PATIENCE
    desk.release()
    assert canary in everything(tmp_path)
    reader.execute("COMMIT")
    desk.release()
    assert canary not in everything(tmp_path)
    desk.close()


def test_a_crash_before_the_erasure_is_made_up_for_at_the_start(tmp_path):
    world = deployed(tmp_path / "a", learner="dp-ucbvi", epsilon=1.0, users=2_000)
    desk = world.desk()
    canary = told(desk).encoder.payload([0, 1, 0], [1, 1], [1.0, 0.5], None)[8:]
    desk._store.erased = lambda through: None  # type: ignore[method-assign]
    released_once(desk, world, lambda _: canary_payload(canary))
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # as a crash leaves it
    desk.close()
    assert canary in everything(tmp_path / "b")
    again = World(tmp_path / "b" / "tiny.toml", world.tokens, world.clock).desk()
    assert canary not in everything(tmp_path / "b")
    again.close()


def test_to_retire_erases_the_whole_vault(tmp_path):
    world = deployed(tmp_path)
    desk = world.desk()
    asked(desk, *(Wish.enrol(user(i)) for i in range(3)))
    asked(desk, Wish.report(user(0), NONE))
    assert user(1) in everything(tmp_path)
    assert asked(desk, Wish.operate(Retire())) == [Done()]
    assert not [i for i in range(3) if user(i) in everything(tmp_path)]
    assert isinstance(asked(desk, Wish.enrol(user(1)))[0], Spectator)
    desk.close()
    world.desk().close()  # it can be looked at again


# The anchor ---------------------------------------------------------------------------------------------------------


def test_the_anchor_is_the_number_and_the_head_of_the_last_entry(tmp_path):
    world = deployed(tmp_path)
    desk = world.desk()
    assert world.anchor.read_text() == f"1 {desk.visible.entries[1].name}\n"
    asked(desk, Wish.operate(Pause()))
    assert world.anchor.read_text() == f"2 {desk.visible.head.name}\n"
    desk.close()


def test_the_anchor_moves_before_anything_is_visible_and_an_entry_that_is_not_anchored_is_not_shown(tmp_path):
    world = deployed(tmp_path)
    desk, seen = world.desk(), []
    advance = Anchor.advance

    class Watched(Anchor):
        def advance(self, entry: Entry) -> None:
            seen.append(len(desk.visible.entries))
            advance(self, entry)

    desk._anchor = Watched(world.anchor)
    asked(desk, Wish.operate(Pause()))
    assert seen == [2]
    assert len(desk.visible.entries) == 3

    class Broken(Anchor):
        def advance(self, entry: Entry) -> None:
            raise StoreFailed("no")

    desk._anchor = Broken(world.anchor)
    with pytest.raises(StoreFailed):
        asked(desk, Wish.operate(Retire()))
    assert len(desk.visible.entries) == 3
    desk.close()
    again = world.desk()  # the store is ahead of the anchor: that is no rollback
    assert len(again.visible.entries) == 4
    assert world.anchor.read_text().startswith("3 ")
    again.close()


def test_the_anchor_never_moves_back(tmp_path):
    anchor = Anchor(tmp_path / "head")
    anchor.advance(entry(5))
    anchor.advance(entry(4))
    assert anchor.read() == (5, entry(5).name)


@pytest.mark.parametrize("entries", [1, 4])
def test_an_old_copy_of_the_store_is_refused(tmp_path, entries):
    """A copy from before a release, put back after it, would release the same people a second time."""
    world = deployed(tmp_path)
    for _ in range(entries):
        desk = world.desk()
        desk.close()
        shutil.copy(world.database, tmp_path / "old")
        desk = world.desk()
        released_once(desk, world, lambda _: NONE)
        desk.close()
    shutil.copy(tmp_path / "old", world.database)
    with pytest.raises(RolledBack, match="would release the same people twice"):
        world.desk()


def test_another_history_of_the_same_length_is_refused(tmp_path):
    world = deployed(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    other = World(tmp_path / "b" / "tiny.toml", world.tokens)
    for each, command in ((world, Pause()), (other, Retire())):
        desk = each.desk()
        asked(desk, Wish.operate(command))
        desk.close()
    other.anchor.write_bytes(world.anchor.read_bytes())
    with pytest.raises(RolledBack, match="does not hold entry 2 as it was published"):
        other.desk()
    world.desk().close()


def test_a_missing_or_broken_anchor_is_refused(tmp_path):
    world = deployed(tmp_path)
    content = world.anchor.read_text()
    world.anchor.unlink()
    with pytest.raises(RolledBack, match="is missing"):
        world.desk()
    world.anchor.write_text("yesterday\n")
    with pytest.raises(ValueError, match="does not hold the number and the head"):
        world.desk()
    world.anchor.write_text(content)
    world.desk().close()


def test_a_log_that_was_changed_or_that_another_key_signed_is_refused(tmp_path):
    world = deployed(tmp_path)
    database = apsw.Connection(str(world.database))
    (body,) = database.execute("SELECT body FROM log WHERE number = 0").fetchone()
    database.execute("UPDATE log SET body = ? WHERE number = 0", (body.replace(b'"users":60', b'"users":61'),))
    with pytest.raises(ValueError, match="log"):
        world.desk()
    database.execute("UPDATE log SET body = ? WHERE number = 0", (body,))
    world.desk().close()
    other = deployed(tmp_path / "other")
    shutil.copy(other.folder / "tiny.keys", tmp_path / "tiny.keys")
    with pytest.raises(ValueError, match="does not carry the deployment's signature"):
        world.desk()


def test_another_charter_in_the_file_is_refused(tmp_path):
    world = deployed(tmp_path)
    world.path.write_text(world.path.read_text().replace("epsilon = 20.0", "epsilon = 19.0"))
    with pytest.raises(ValueError, match="another charter than the log"):
        world.desk()


def test_nothing_is_begun_twice(tmp_path):
    world = deployed(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(ValueError, match="belongs to a deployment already"):
        deployed(tmp_path)
    world.anchor.rename(tmp_path / "away")
    with pytest.raises(ValueError, match="holds the keys of a deployment already"):
        deployed(tmp_path)
    (tmp_path / "tiny.keys").rename(tmp_path / "keys")
    with pytest.raises(ValueError, match="exists already"):
        deployed(tmp_path)
    assert not (tmp_path / "tiny.keys").exists()
    (tmp_path / "keys").rename(tmp_path / "tiny.keys")
    (tmp_path / "away").rename(world.anchor)
    assert everything(tmp_path) == before


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fsync", "rename", "write"])
def test_a_file_that_cannot_be_made_durable_is_a_failure_and_leaves_the_old_one(tmp_path, monkeypatch, call):
    path = tmp_path / "head"
    written(path, b"old")

    def fails(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    if call == "write":
        monkeypatch.setattr(os, "fdopen", fails)
    else:
        monkeypatch.setattr(os, call, fails)
    with pytest.raises(StoreFailed, match="Input/output error"):
        written(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["head"]


def test_the_folder_of_a_new_deployment_is_synced(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    deployed(tmp_path, anchor="tiny.head")
    assert synced.count(str(tmp_path)) >= 3  # after the keys, the database and the anchor


def test_whoever_asks_twice_in_one_transaction_gets_one_place_and_her_first_report_stands(tmp_path):
    world = deployed(tmp_path)
    desk = world.desk()
    size = told(desk).size
    twice = [Wish.enrol(user(0)), Wish.enrol(user(0)), Wish.report(user(0), place(1)), Wish.report(user(0), place(2))]
    first, again, *reports = asked(desk, *twice)
    assert isinstance(first, Granted)
    assert again == dataclasses.replace(first, again=True)
    assert reports == [Accepted(False), Accepted(True)]
    asked(desk, *(Wish.enrol(user(i)) for i in range(size)))
    world.clock.now += PATIENCE
    desk.release()
    (release,) = (event for event in map(event_of, desk.visible.entries) if isinstance(event, Released))
    assert release.values.tolist()[:4] == [0, 1, 0, 0]
    desk.close()


# Two writers --------------------------------------------------------------------------------------------------------


def test_what_another_writer_has_done_is_seen_before_anything_is_decided(tmp_path):
    """An operator's command and the server write to one store."""
    world = deployed(tmp_path)
    one, two = world.desk(), world.desk()
    size = told(one).size
    for i in range(size):
        (reply,) = asked(one if i % 2 else two, Wish.enrol(user(i)))
        assert isinstance(reply, Granted)
        assert reply.slot == i
    asked(one, Wish.operate(Pause()))
    assert asked(two, Wish.enrol(user(99))) == [Spectator(told_head(two), "the deployment is paused")]
    world.clock.now += PATIENCE
    two.release()
    one.release()
    assert one.visible.entries == two.visible.entries
    (release,) = (event_of(e) for e in one.visible.entries if e.event["event"] == "released")
    assert isinstance(release, Released)
    assert release.tickets == size
    one.close()
    two.close()


def told_head(desk: Desk) -> bytes:
    assert desk.visible.told is not None
    return desk.visible.told.head


def test_time_does_not_go_back_behind_the_last_ticket(tmp_path):
    world = deployed(tmp_path)
    desk = world.desk()
    (first,) = asked(desk, Wish.enrol(user(0)))
    desk.close()
    world.clock.now -= 500_000
    desk = world.desk()
    (second,) = asked(desk, Wish.enrol(user(1)))
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert second.expires >= first.expires
    desk.close()


# The memo -----------------------------------------------------------------------------------------------------------


class Boom:
    """What a hostile pickle does when it is read."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOOM"],)


def same(one: State, other: State) -> bool:
    """All that is decided and announced next depends on."""

    def facts(state: State) -> list[Any]:
        numbers = [state.number, state.epochs, state.places, state.released, state.tickets, state.users]
        out = [(epoch.epoch, epoch.out, epoch.deadline, epoch.head) for epoch in state.open]
        learned = [state.course.plan.policy.tolist(), len(state.course.sealed)]
        return [*numbers, state.head, state.paused, out, learned, None if state.open else opening(state)]

    return facts(one) == facts(other)


def learned(world: World, epochs: int) -> Desk:
    desk = world.desk()
    for _ in range(epochs):
        released_once(desk, world, lambda i: place(i % 4))
    asked(desk, Wish.enrol(user(9_999)))
    return desk


def test_what_is_remembered_is_what_the_log_amounts_to(tmp_path):
    world = deployed(tmp_path)
    desk = learned(world, 4)
    state = desk.state
    desk.close()
    memo = tmp_path / "tiny.memo"
    assert stat.S_IMODE(memo.stat().st_mode) == 0o600
    again = world.desk()
    assert again._kept == state.number
    assert same(again.state, state)
    again.close()
    memo.unlink()
    folded = world.desk()
    assert folded._kept == 0
    assert same(folded.state, state)
    folded.close()


def test_a_memo_is_only_as_old_as_it_may_be_and_the_rest_is_folded(tmp_path, monkeypatch):
    world = deployed(tmp_path)
    desk = world.desk()
    desk.close()
    monkeypatch.setattr("discreet.live.desk.REMEMBERED", 6)
    desk = learned(world, 4)  # eight entries, and no farewell
    state = desk.state
    again = world.desk()
    assert again._kept == 8
    assert same(again.state, state)
    again.close()
    desk.close()


def test_what_others_wrote_into_the_memo_is_not_read(tmp_path, monkeypatch):
    world, other = deployed(tmp_path / "a"), deployed(tmp_path / "b")
    desk = learned(world, 2)
    state = desk.state
    desk.close()
    learned(other, 3).close()
    memo = tmp_path / "a" / "tiny.memo"
    ours, theirs = memo.read_bytes(), (tmp_path / "b" / "tiny.memo").read_bytes()
    monkeypatch.setenv("BOOM", str(tmp_path / "boom"))
    bomb = pickle.dumps(Boom())
    forged = [ours[:32] + bomb, bomb, theirs, b"", ours[:-1], ours[:40], bytes([ours[0] ^ 1]) + ours[1:]]
    for content in forged:
        memo.write_bytes(content)
        again = world.desk()
        assert again._kept == 0
        assert same(again.state, state)
        again._memo = None
        again.close()
    assert not (tmp_path / "boom").exists()


def test_a_memo_of_entries_that_the_log_does_not_have_is_not_read(tmp_path):
    """It was kept after a commit that a copy of the store does not have (whether it may be used, the anchor says)."""
    world = deployed(tmp_path)
    world.desk().close()
    shutil.copy(world.database, tmp_path / "old")
    shutil.copy(world.anchor, tmp_path / "head")
    learned(world, 1).close()
    shutil.copy(tmp_path / "old", world.database)
    shutil.copy(tmp_path / "head", world.anchor)
    desk = world.desk()
    assert desk._kept == 0
    assert desk.state.released == 0
    desk.close()


# A model ------------------------------------------------------------------------------------------------------------


class Deployments(RuleBasedStateMachine):
    """A deployment on the real store against a dictionary: who has which place, who said what, what was released."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, tuple[int, int, int]] = {}  # user → epoch, slot, expiry
        self.said: dict[int, int | None] = {}  # user → place of her item
        self.epoch, self.paused, self.most = 1, False, 60

    @initialize(overlap=st.sampled_from(["wait", "repeat"]))
    def begin(self, overlap: str) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.world = deployed(Path(self.folder.name), overlap=overlap)
        self.desk = self.world.desk()
        self.overlap = overlap
        self.items = told(self.desk).encoder.size

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            self.desk.close()
            self.folder.cleanup()

    def members(self, epoch: int) -> list[int]:
        return [name for name, (found, _, _) in self.places.items() if found == epoch]

    def sizes(self) -> dict[int, int]:
        events = (e.event for e in self.desk.visible.entries)
        return {event["epoch"]: event["size"] for event in events if event["event"] == "announced"}

    def released(self) -> dict[int, Released]:
        events = (event_of(e) for e in self.desk.visible.entries)
        return {event.epoch: event for event in events if isinstance(event, Released)}

    @rule(names=st.lists(st.integers(0, 70), min_size=1, max_size=6))
    def enrol(self, names: list[int]) -> None:
        """One of them twice at once, and some for the second time."""
        names, now = [*names, names[0]], self.world.clock.now
        for name, reply in zip(names, asked(self.desk, *(Wish.enrol(user(name)) for name in names)), strict=True):
            known = self.places.get(name)
            if known is not None:
                epoch, slot, expires = known
                if epoch in self.released() or now >= expires:
                    assert isinstance(reply, Spectator)
                else:
                    assert isinstance(reply, Granted)
                    assert (reply.epoch, reply.slot, reply.expires, reply.again) == (epoch, slot, expires, True)
            elif isinstance(reply, Granted):
                assert not self.paused
                assert not reply.again
                assert reply.expires == now + PATIENCE
                assert reply.slot == len(self.members(reply.epoch)) < self.sizes()[reply.epoch]
                assert reply.epoch not in self.released()
                self.places[name] = reply.epoch, reply.slot, reply.expires
            else:
                assert isinstance(reply, Spectator)
                out = [e for e in self.sizes() if e not in self.released()]
                full = all(len(self.members(e)) == self.sizes()[e] for e in out)
                assert self.paused or (full and len(out) == (2 if self.overlap == "repeat" else 1)) or self.taken()

    def taken(self) -> bool:
        return len(self.places) >= self.most

    @rule(names=st.lists(st.integers(0, 70), min_size=1, max_size=6), items=st.integers(0, 10**6))
    def report(self, names: list[int], items: int) -> None:
        """In any order, one of them twice at once with something else, some too late, or without a ticket."""
        names = [*names, names[0]]
        now, places = self.world.clock.now, [(items + i) % (self.items + 1) for i in range(len(names))]
        payloads = [NONE if p == self.items else place(p) for p in places]
        wishes = [Wish.report(user(name), payload) for name, payload in zip(names, payloads, strict=True)]
        for name, item, reply in zip(names, places, asked(self.desk, *wishes), strict=True):
            if name not in self.places:
                assert reply is None
            elif self.places[name][0] in self.released():
                assert reply == Late()
            elif name in self.said:
                assert reply == Accepted(True)
            elif now >= self.places[name][2]:
                assert reply == Late()
            else:
                assert reply == Accepted(False)
                self.said[name] = None if item == self.items else item

    @rule(name=st.integers(0, 70))
    def garbage(self, name: int) -> None:
        (reply,) = asked(self.desk, Wish.report(user(name), b"\x00" * 5))
        if name in self.places and name not in self.said and self.places[name][0] not in self.released():
            late = self.world.clock.now >= self.places[name][2]
            assert isinstance(reply, Late if late else Refused)
        assert name in self.said or name not in self.places or not isinstance(reply, Accepted)

    @rule(milliseconds=st.sampled_from([1, 400, PATIENCE, 5 * PATIENCE]))
    def wait(self, milliseconds: int) -> None:
        self.world.clock.now += milliseconds

    @rule()
    def tick(self) -> None:
        before = self.released()
        self.desk.release()
        now = self.world.clock.now
        for epoch, size in self.sizes().items():
            members = self.members(epoch)
            due = len(members) == size and all(now >= self.places[name][2] for name in members)
            assert (epoch in self.released()) == (epoch in before or due)

    @rule()
    def crash(self) -> None:
        """Without a word: as the files are."""
        lost, self.desk = self.desk, self.world.desk(seed=len(self.places))
        lost._store._db.close(True)  # type: ignore[attr-defined]

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        assert asked(self.desk, Wish.operate(Pause() if paused else Resume())) == [Done()]
        self.paused = paused

    @precondition(lambda self: self.most < 70)
    @rule()
    def amend(self) -> None:
        self.most += 1
        assert asked(self.desk, Wish.operate(Amend(self.most))) == [Done()]

    @invariant()
    def the_releases_are_what_people_said(self) -> None:
        if not hasattr(self, "desk"):
            return
        for epoch, release in self.released().items():
            sums = [0] * self.items
            for name in self.members(epoch):
                item = self.said.get(name)
                if item is not None:
                    sums[item] += 1
            assert release.tickets == self.sizes()[epoch] == len(self.members(epoch))
            assert sum(abs(int(v) - s) for v, s in zip(release.values, sums, strict=False)) <= 1

    @invariant()
    def the_anchor_is_the_head(self) -> None:
        if hasattr(self, "desk"):
            head = self.desk.visible.head
            assert Anchor(self.world.anchor).read() == (head.number, head.name)


Deployments.TestCase.settings = settings(max_examples=12, stateful_step_count=35, deadline=None, derandomize=True)
TestDeployments = Deployments.TestCase
