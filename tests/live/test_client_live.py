"""The Python client and a real server: what one sends the other understands, also across a kill."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import apsw
import pytest

from discreet.client import connect
from discreet.device import Announcement
from discreet.device.announcements import check_chain
from discreet.live.events import event_of
from live_world import client_of, deployed, earned_by, log_of, played, serving
from ports import free_port


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


def agent_of(opened, world, port):
    url, cache = f"http://127.0.0.1:{port}", world.folder / "cache"
    agent = connect(url, world.tokens.app, epsilon_at_most=20.0, default=0, cache=cache, rest=0.0)
    return opened.enter_context(agent)


@pytest.mark.parametrize(("model", "people"), [("joint", 40), ("local", 200)])
def test_people_of_the_client_teach_a_server(opened, tmp_path, model, people):
    """At ε = 20, nearly without noise: going from 0 pays, and after a few epochs everybody goes."""
    world, port = deployed(tmp_path, model=model, users=people), free_port()
    opened.enter_context(serving(world, port, "tick=0.02"))
    agent = agent_of(opened, world, port)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: played(agent, f"person {number}"), range(people)))
    assert agent.deliver() == 0
    with client_of(world, port) as client:
        entries = log_of(client)
    check_chain(entries, agent._key)
    told = [event for event in map(event_of, entries) if isinstance(event, Announcement)]
    assert sum(event.size for event in told) == people
    assert earned_by(told[-1].after or told[-1].policy) == 1.0


def test_a_report_survives_a_server_that_is_killed(opened, tmp_path):
    """It is kept while nobody is there, and counted once by the next server."""
    world, port = deployed(tmp_path, patience="10m"), free_port()
    first = opened.enter_context(serving(world, port, "tick=0.02"))
    agent = agent_of(opened, world, port)
    with agent.episode("ann") as e:
        e.act(0)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        e.act(1)
    assert e.spectator is None
    assert len(agent._cache.pending(9)) == 1
    assert agent.episode("bob").spectator == "offline"
    opened.enter_context(serving(world, port, "tick=0.02"))
    assert agent.deliver() == 0
    assert agent.episode("ann").spectator == "reported"
    assert agent.episode("bob").spectator is None
    connection = apsw.Connection(str(world.database), flags=apsw.SQLITE_OPEN_READONLY)
    said = "(SELECT count(*) FROM report0) + (SELECT count(*) FROM report1)"
    rows = connection.execute(f"SELECT count(*), {said} FROM ticket").fetchall()
    connection.close()
    assert rows == [(2, 1)]
