"""The Python client where people are shuffled: three parties that are three processes, and what a device refuses."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from typer.testing import CliRunner

import shuffle_world
from discreet.cli import app
from discreet.client import connect
from discreet.client.service import Service
from discreet.client.terms import Terms
from discreet.device import Announcement, ItemEncoder, Refused
from discreet.live import certificate
from discreet.live.events import Released, event_of
from discreet.live.people import published
from discreet.live.shuffling import shuffled_encoder
from live_world import PROGRAM, earned_by, played, running, told, until
from ports import free_port
from shuffle_world import Trio, encoder_of, trio

SHUFFLER = "import sys; from discreet.live.shuffler_server import run; run(sys.argv[1], port=int(sys.argv[2]))"


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tickets of three tenths of a second."""
    monkeypatch.setattr(shuffle_world, "TOML", shuffle_world.TOML.replace('"{patience}"', "{patience}"))


def three(opened: ExitStack, folder: Path, **said: Any) -> tuple[Trio, int, int, Any]:
    """An analyzer and a shuffler at work: the world, their ports, and the shuffler's process."""
    port, other = free_port(), free_port()
    world = trio(folder, f"http://127.0.0.1:{other}", **{"patience": 300, **said})
    shuffler = opened.enter_context(running(world.shuffler_path, other, SHUFFLER))
    opened.enter_context(running(world.path, port, PROGRAM.format(options="tick=0.02")))
    return world, port, other, shuffler


def agent_of(opened: ExitStack, world: Trio, port: int, **told: Any) -> Any:
    usual = {"epsilon_at_most": 20.0, "delta_at_most": 0.1, "rest": 0.0, "default": 0}
    usual["cache"] = world.path.with_name("cache")
    return opened.enter_context(connect(f"http://127.0.0.1:{port}", world.tokens.app, **(usual | told)))


@pytest.mark.parametrize(("learner", "people"), [("spotlight", 240), ("shuffle-ucbvi", 60), ("sdp-pe", 32)])
def test_people_of_the_client_teach_an_analyzer_that_sees_nobody(
    opened: ExitStack, tmp_path: Path, learner: str, people: int
) -> None:
    """Three processes, all learners: everybody's messages count, the log verifies, and is certified in the end."""
    world, port, _, _ = three(opened, tmp_path, users=people, learner=learner)
    agent = agent_of(opened, world, port, shuffler=world.begun.url)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: played(agent, f"person {number}"), range(people)))
    assert agent.deliver() == 0

    def done() -> list[Any]:
        entries = published(f"http://127.0.0.1:{port}", "")
        found = [event for event in map(event_of, entries) if isinstance(event, Released)]
        return entries if sum(event.tickets for event in found) == people else []

    entries = until(done, 30.0)
    problems, audit = certificate.audited(entries)
    assert problems == []
    assert audit is not None
    assert audit.batches >= 3
    events = [event_of(entry) for entry in entries]
    last = next(event for event in reversed(events) if isinstance(event, Announcement))
    if learner == "spotlight":  # at ε = 20, nearly without noise
        assert earned_by(last.after or last.policy) == 1.0
    out = tmp_path / "log.jsonl"
    out.write_text(certificate.written_log(entries))
    found = CliRunner().invoke(app, ["deploy", "verify", str(out), "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert (told["shuffler_key"], told["batches_signed"]) == (world.begun.key, audit.batches)
    assert "shuffle" in told["guarantee"]


def bundles(world: Trio) -> int:
    """How many the shuffler holds."""
    database = world.shuffler_path.with_name("mixer.db")
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    found = int(connection.execute("SELECT count(*) FROM bundle").get)
    connection.close()
    return found


def test_a_bundle_survives_a_shuffler_that_is_killed_and_is_counted_once(opened: ExitStack, tmp_path: Path) -> None:
    world, port, other, process = three(opened, tmp_path, patience=600_000)
    agent = agent_of(opened, world, port)
    with agent.episode("ann") as e:
        e.act(0)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        e.act(1)
    assert e.spectator is None
    (kept,) = agent._cache.pending(9)
    assert agent.episode("bob").spectator is None  # the analyzer is there
    opened.enter_context(running(world.shuffler_path, other, SHUFFLER))
    until(lambda: agent.deliver() == 0)
    assert agent.episode("ann").spectator == "reported"
    bundle = json.loads(kept.payload)
    assert set(bundle) == {"announced", "slot", "admission", "messages"}  # neither her name nor her ticket
    changed = {**bundle, "messages": "AAAA" + bundle["messages"][4:]}
    for later in (bundle, changed):
        answer = httpx.post(f"http://127.0.0.1:{other}/v1/bundle", json=later)
        assert (answer.status_code, answer.json()) == (200, {})
    assert bundles(world) == 1
    with agent.episode("cy") as e:  # what she has to report is settled long before she leaves
        e.act(0)
        e.act(0)
        e.end(0)
        time.sleep(0.5)
        assert bundles(world) == 1
    assert bundles(world) == 2


def test_the_apps_token_is_for_the_analyzer_only() -> None:
    service = Service("http://127.0.0.1:1", "secret", 1.0, 0.0, False)
    other = service.elsewhere("http://127.0.0.1:2")
    assert "secret" in str(vars(service))
    assert "secret" not in str(vars(other))
    with pytest.raises(ValueError, match="plain http"):
        service.elsewhere("http://mixer.example")


# What a device refuses ----------------------------------------------------------------------------------------------


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Terms, Announcement]:
    desk = trio(tmp_path, patience=300).desk()
    opening = desk.visible.entries[0].event
    found = Terms.of(opening["charter"], opening["hpke"]), told(desk)
    desk.close()
    return found


def test_a_device_sends_at_its_own_epsilon_and_delta_only(asked: tuple[Terms, Announcement]) -> None:
    terms, announcement = asked
    bits = encoder_of(announcement).bits
    terms.check(announcement, 20.0, 0.1)
    for epsilon, delta, honest in ((20.0, 0.0, 1.0), (19.0, 0.05, 1.0), (20.0, 0.1, 0.3)):
        assert bits.delta(epsilon, "replace", honest) > delta
        with pytest.raises(Refused):
            terms.check(announcement, epsilon, delta, honest)
    quiet = replace(announcement, encoder=replace(encoder_of(announcement), bits=replace(bits, flips=0)))
    with pytest.raises(Refused, match="epsilon = inf"):
        terms.check(quiet, 20.0, 0.1)


def test_a_device_seals_for_the_analyzer_of_the_log_and_for_a_whole_batch(asked: tuple[Terms, Announcement]) -> None:
    terms, announcement = asked
    encoder = shuffled_encoder(announcement)
    other = replace(announcement, encoder=replace(encoder, analyzer="ab" * 32))
    more = replace(announcement, size=encoder.bits.users + 1)
    visit = encoder.first_visit
    assert visit is not None
    plain = replace(announcement, encoder=ItemEncoder(visit.tables, visit.items, visit.has_start, True))
    for wrong, why in ((other, "the analyzer"), (more, "smaller batch"), (plain, "another trust model")):
        with pytest.raises(Refused, match=why):
            terms.check(wrong, 20.0, 0.1)
    for model in ("joint", "local", "two-servers"):
        with pytest.raises(Refused):
            replace(terms, model=model).check(announcement, 20.0, 0.1)


def test_nothing_is_sent_where_a_device_refuses(opened: ExitStack, tmp_path: Path) -> None:
    world, port = trio(tmp_path, patience=300), free_port()
    opened.enter_context(running(world.path, port, PROGRAM.format(options="tick=0.02")))
    for number, said in enumerate(({"delta_at_most": 1e-9}, {"epsilon_at_most": 0.5}, {"shuffler": "http://else"})):
        agent = agent_of(opened, world, port, cache=tmp_path / str(number), **said)
        with agent.episode("ann") as e:
            e.act(0)
        assert e.spectator is not None
        assert "nothing is sent" in e.spectator
        assert agent._cache.pending(9, ready=False) == []
