"""After a release nothing that was reported is in any file, whoever looks: not even after a crash."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import signal
from pathlib import Path

import pytest
from live_direct import Direct
from live_people import Acknowledged, Clock, Crowd, begun, needles
from live_process import Http, Nursery, Server, members

from discreet.device.announcements import Entry
from discreet.live import secrets, sqlite
from discreet.live.store import Changes, Place


def canaries(promised: Acknowledged, tokens: secrets.Tokens) -> list[bytes]:
    """What people reported, as it came and as it is; their names, their tickets, and whoever asked for them."""
    found = [tokens.app.encode(), tokens.operator.encode()]
    for name, place in promised.places.items():
        found += [name.encode(), place.ticket, place.ticket.hex().encode()]
    for payload in promised.reports.values():
        found += [*needles(payload), base64.b64encode(payload)[-44:-4]]
    return found


def found_in(folder: Path, canaries: list[bytes]) -> dict[str, int]:
    """How many canaries the files of a folder hold."""
    files = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    counts = {name: sum(canary in content for canary in canaries) for name, content in files.items()}
    return {name: count for name, count in counts.items() if count}


def deployed(folder: Path) -> tuple[Path, secrets.Tokens]:
    return begun(folder / "live", users=150, learner="dp-ucbvi", horizon=6)


def server_with_people(nursery: Nursery, folder: Path, dumps: bool = False) -> tuple[Server, list[bytes]]:
    """A server that runs as it would, with noise, after everybody has come and everything is released."""
    toml, tokens = deployed(folder)
    server = Server(nursery, toml, Clock(folder / "clock"), noise=True, dumps=dumps)
    assert server.clock is not None
    server.start()
    crowd = Crowd(Http(server.port, tokens.app), server.clock)
    asyncio.run(crowd.run())
    found = canaries(crowd.promised, tokens)
    assert len(found) > 700
    return server, found


def crashed(server: Server) -> None:
    """Whoever has seen reports crashes in a way that dumps memory, and the server ends."""
    for member in members(server.pid):
        if member != server.pid:
            os.kill(member, signal.SIGSEGV)
    assert server.ended() != 0


def test_after_the_last_release_and_after_a_crash_no_canary_is_in_any_file(nursery: Nursery, tmp_path: Path) -> None:
    server, sought = server_with_people(nursery, tmp_path)
    folder = server.toml.parent
    assert {"shop.db", "shop.db-wal", "shop.db-shm", "server.out"} <= {path.name for path in folder.iterdir()}
    assert found_in(folder, sought) == {}
    for member in members(server.pid):
        limits = Path(f"/proc/{member}/limits").read_text().splitlines()
        assert [line.split()[4:6] for line in limits if line.startswith("Max core file size")] == [["0", "0"]]
    crashed(server)
    assert found_in(folder, sought) == {}


@pytest.mark.long
def test_a_server_that_leaves_its_memory_behind_is_caught(nursery: Nursery, tmp_path: Path) -> None:
    """Where the system writes dumps beside the program; the limit that is checked above holds everywhere."""
    server, sought = server_with_people(nursery, tmp_path, dumps=True)
    crashed(server)
    dumps = [path for path in server.toml.parent.iterdir() if path.name.startswith("core")]
    assert bool(dumps) == (Path("/proc/sys/kernel/core_pattern").read_text()[0] not in "|/")
    for dump in dumps:
        content = dump.read_bytes()
        dump.unlink()
        assert any(canary in content for canary in sought[:50])


@pytest.mark.parametrize("mutant", ["no mutant", "deleted but not overwritten", "not moved out of the log"])
def test_a_store_that_does_not_forget_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    if mutant == "deleted but not overwritten":
        lax = tuple(each.replace("secure_delete=ON", "secure_delete=OFF") for each in sqlite.SETTINGS)
        assert lax != sqlite.SETTINGS
        monkeypatch.setattr(sqlite, "SETTINGS", lax)
    if mutant == "not moved out of the log":
        monkeypatch.setattr(sqlite.SqliteStore, "tidy", lambda self: None)
    toml, tokens = deployed(tmp_path)
    clock = Clock(tmp_path / "clock")
    clock.set(0)
    direct = Direct(toml, clock)
    crowd = Crowd(direct, clock)
    asyncio.run(crowd.run())
    found = found_in(toml.parent, canaries(crowd.promised, tokens))
    direct.close()
    assert (
        set(found)
        == {
            "no mutant": set(),
            "deleted but not overwritten": {"shop.db"},
            "not moved out of the log": {"shop.db-wal"},
        }[mutant]
    )


def test_what_a_crash_leaves_of_an_open_epoch_is_gone_after_its_release(tmp_path: Path) -> None:
    """Crashes all along; the files of the last restart hold nothing in the end."""
    toml, tokens = deployed(tmp_path)
    clock = Clock(tmp_path / "clock")
    clock.set(0)

    class Crashing(Direct):
        def _together(self) -> None:
            super()._together()
            if len(self.promises) % 3 == 0:
                self.crash()

    direct = Crashing(toml, clock)
    crowd = Crowd(direct, clock)
    asyncio.run(crowd.run())
    sought = canaries(crowd.promised, tokens)
    assert direct.crashes >= 5
    assert found_in(tmp_path, sought)  # what ran before, as it was left
    assert found_in(direct.toml.parent, sought) == {}
    direct.close()


def test_no_page_keeps_copies_of_reports_that_had_moved_on(tmp_path: Path) -> None:
    """People come and report in any order, a few at a time, so that rows move between pages; erased row by row, one
    store in twenty kept a report."""
    rng = random.Random(1)
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        store = sqlite.SqliteStore(folder / "shop.db", create=True)
        sought: list[bytes] = []
        for epoch in (1, 2, 3):
            users = [rng.randbytes(16) for _ in range(40)]
            for few in (users[i : i + 7] for i in range(0, 40, 7)):
                places = {user: Place(user, epoch, users.index(user), 1000) for user in few}
                with store.writing() as transaction:
                    transaction.write(Changes(places=places))
            rng.shuffle(users)
            for few in (users[i : i + 7] for i in range(0, 40, 7)):
                items = {user: (epoch, rng.randbytes(160)) for user in few}
                sought += [part for _, item in items.values() for part in (item[40:64], item[-24:])]
                with store.writing() as transaction:
                    transaction.write(Changes(items=items))
            body = b'{"epoch":%d,"event":"released"}' % epoch
            with store.writing() as transaction:
                transaction.write(Changes(entries=[Entry(epoch, bytes(32), body, bytes(64))]))
            store.erased(epoch)
            assert found_in(folder, sought) == {}
        store.close()
