"""The Python client: what it plays, what it sends, what it refuses, and what it remembers."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from discreet.client import connect
from discreet.client.service import Down, Service
from discreet.device import Entry, EpisodeEncoder, ItemEncoder, ReportEncoder, Tables
from discreet.device.announcements import START, Instructions, check_chain, coin_of
from discreet.privacy.trust.local import unary_flips
from fake_server import TOKEN, Dropped, Fake, Status

#: Two states and two actions; (cell 1) = state 0, action 1.
STATES, ACTIONS, HORIZON = ["home", "away"], ["stay", "go"], 3
POOLED = Tables(2, 2, HORIZON, 1, 2.0**-10, (0.0, 1.0))
STAGED = Tables(2, 2, HORIZON, HORIZON, 2.0**-10, (0.0, 1.0))
GO, STAY = (Instructions(actions=((a, a),) * HORIZON) for a in (1, 0))
#: The four outcomes of going from home.
WENT = (4, 5, 6, 7)
NONE = b"\xff" * 4


def charter(**changes: Any) -> dict[str, Any]:
    told = {"states": STATES, "actions": ACTIONS, "gone": None, "model": "joint", "mode": "learn", "epsilon": 1.0}
    told |= {"learner": "spotlight"} | changes
    problem = {name: told[name] for name in ("states", "actions", "gone")} | {"horizon": HORIZON, "rewards": [0, 1]}
    return {
        "name": "walk",
        "problem": problem | {"pooled": True, "start": None},
        "privacy": {"model": told["model"], "epsilon": told["epsilon"], "unit": "user", "users": 1000},
        "learner": {"name": told["learner"]},
        "serving": {"patience": 1000, "overlap": "wait", "default_action": 0, "mode": told["mode"]},
    }


#: Of a learner that takes whole episodes.
COUNTING = charter(learner="dp-ucbvi")


def unary(epsilon: float) -> ReportEncoder:
    return ReportEncoder(POOLED, WENT, "unary", unary_flips(epsilon), "v")


@pytest.fixture
def made(tmp_path):
    """Make a server and a client of it, `made(charter, encoder)`; all are closed at the end."""
    opened: list[Any] = []

    def make(told=None, encoder=None, policy=GO, after=STAY, **options):
        server = Fake(told or charter())
        opened.insert(0, server)
        server.announce(policy, after, encoder or ItemEncoder(POOLED, WENT))
        return server, again(server, **options)

    def again(server, **options):
        cache = options.pop("cache", tmp_path / "cache")
        agent = connect(
            server.url, TOKEN, **{"epsilon_at_most": 1.0, "default": "stay", "cache": cache, "rest": 0.0} | options
        )
        opened.insert(0, agent)
        return agent

    make.again = again
    yield make
    for each in opened:
        each.close()


def walked(agent, user, steps, present=None):
    """Play (state, reward) one after the other; the last one has no reward. The actions, and the episode."""
    with agent.episode(user) as e:
        actions = []
        for state, reward in steps[:-1]:
            actions.append(e.act(state, present))
            e.reward(reward)
        e.end(steps[-1][0])
    return actions, e


# What is played and sent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reward", "item"),
    [("home", 0.0, 0), ("home", 1.0, 1), ("away", 0.0, 2), ("away", 7.0, 3)],
)
def test_the_first_visit_is_reported_and_then_the_other_policy_is_played(made, first, reward, item):
    server, agent = made()
    actions, e = walked(agent, "ann", [("home", reward), (first, 1.0), ("home", 0.0), ("away", None)])
    assert actions == ["go", "stay", "stay"]
    assert e.spectator is None
    assert server.reports == {"ann": [item.to_bytes(4, "little")]}


def test_without_a_visit_the_exploring_policy_goes_on_and_none_is_reported(made):
    server, agent = made()
    actions, _ = walked(agent, "ann", [("away", 1.0)] * 3 + [("away", None)])
    assert actions == ["go"] * 3
    assert server.reports == {"ann": [NONE]}


def test_a_report_is_sent_right_after_the_target_step(made):
    """Who leaves afterwards, without a word, is counted."""
    server, agent = made()
    arrived = threading.Event()
    server.after = lambda path: arrived.set() if path == "/v1/report" else None
    e = agent.episode("ann")
    e.act("home")
    e.reward(1.0)
    assert not arrived.wait(0.05)
    e.act("away")
    assert arrived.wait(5.0)
    assert server.reports == {"ann": [b"\x03\0\0\0"]}
    e.leave()
    assert server.reports == {"ann": [b"\x03\0\0\0"]}


def test_a_randomised_report_waits_until_the_episode_is_left(made):
    """Its moment would tell what its bits hide; but it is on disk as soon as it is settled."""
    server, agent = made(charter(model="local"), unary(1.0))
    e = agent.episode("ann")
    e.act("home")
    e.act("away")
    (kept,) = agent._cache.pending(9, ready=False)
    agent.episode("bob")
    assert agent.deliver() == 1
    assert all(path != "/v1/report" for path, _ in server.asked)
    e.leave()
    assert server.reports == {"ann": [kept.payload]}


def test_a_randomised_report_of_a_process_that_is_no_more_is_sent_by_the_next(made):
    server, agent = made(charter(model="local"), unary(1.0))
    e = agent.episode("ann")
    e.act("home")
    e.act("away")
    agent.close()
    made.again(server)
    assert set(server.reports) == {"ann"}


def test_a_report_that_cannot_be_written_down_is_not_sent(made, caplog):
    server, agent = made()
    with agent.episode("ann") as e:
        e.act("home")
        agent._cache._base.execute("PRAGMA query_only=ON")
        assert e.act("away") == "stay"
    assert server.reports == {}
    assert "readonly" in caplog.text


def test_the_start_is_reported_where_it_is_asked_for(made):
    server, agent = made(encoder=ItemEncoder(POOLED, (16, 18), True))
    actions, _ = walked(agent, "ann", [("away", 0.0), ("home", None)])
    assert actions == ["stay"]
    assert server.reports == {"ann": [b"\x01\0\0\0"]}


def test_the_last_step_of_staged_problems_needs_no_outcome(made):
    last = ItemEncoder(STAGED, (36, 37), last_successor=False)  # cell 9: step 2, home, go
    server, agent = made(encoder=last)
    with agent.episode("ann") as e:
        for _ in range(HORIZON):
            e.act("home")
            e.reward(1.0)
    assert server.reports == {"ann": [b"\x01\0\0\0"]}


def test_a_last_step_without_outcome_is_left_out_of_pooled_problems(made):
    server, agent = made()
    with agent.episode("ann") as e:
        e.act("away")
        e.act("away")
        e.act("home")
    assert server.reports == {"ann": [NONE]}


def test_beyond_the_horizon_the_default_is_played_and_nothing_recorded(made):
    server, agent = made(COUNTING, EpisodeEncoder(POOLED), after=None)
    with agent.episode("ann") as e:
        played = [e.act(0) for _ in range(5)]
    assert played == ["go"] * 3 + ["stay"] * 2
    numbers = [3, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert server.reports == {"ann": [b"".join(n.to_bytes(8, "little") for n in numbers)]}


def test_payments_add_up_and_rewards_are_those_of_the_step_before(made):
    server, agent = made(COUNTING, EpisodeEncoder(POOLED), after=None)
    with agent.episode("ann") as e:
        e.reward(1.0)  # of no step
        e.act("home")
        e.reward(0.25)
        e.reward(0.25)
        e.act("away")
        e.end("away")
    numbers = [2, *(0, 1, 1, 0), *(1, 1, 0), *(512, 0, 0)]
    assert server.reports == {"ann": [b"".join(n.to_bytes(8, "little") for n in numbers)]}


def test_who_leaves_early_is_gone_for_the_rest(made):
    """The state of those who left is a state: the step that led there has it as outcome, and she stays there."""
    server, agent = made(charter(gone=1, learner="dp-ucbvi"), EpisodeEncoder(POOLED), after=None)
    with agent.episode("ann") as e:
        e.act("home")
        e.reward(1.0)
    numbers = [3, 0, 1, 1, 1, 1, 1, 1, 1024, 0, 0]
    assert server.reports == {"ann": [b"".join(n.to_bytes(8, "little") for n in numbers)]}


def test_an_apprentice_watches_what_the_app_does(made):
    server, agent = made(charter(mode="apprentice"))
    with agent.episode("ann") as e:
        assert e.act("home", present="stay") == "stay"
        assert e.act("home") == "stay"
        assert e.act("home", present="go") == "go"
        e.end("away")
    assert server.reports == {"ann": [b"\x02\0\0\0"]}


def test_a_randomised_policy_tosses_the_coins_of_the_ticket(made):
    even = Instructions(weights=(((1 << 31, 1 << 31),) * 2,) * HORIZON)
    _, agent = made(COUNTING, EpisodeEncoder(POOLED), policy=even, after=None)
    for user in map(str, range(20)):
        with agent.episode(user) as e:
            ticket = bytes.fromhex(e.ticket)
            played = [e.act(0) for _ in range(HORIZON)]
        assert played == [ACTIONS[coin_of(ticket, h) >> 31] for h in range(HORIZON)]


def test_numbers_will_do_and_are_given_back_where_there_are_no_names(made):
    _, agent = made(charter(states=2, actions=2), default=0)
    with agent.episode("ann") as e:
        assert e.act(0) == 1
    with pytest.raises(ValueError, match="no state of"):
        agent.episode("bob").act("home")


@pytest.mark.parametrize("state", ["nowhere", 2, -1, 0.5, None])
def test_an_unknown_state_is_an_error(made, state):
    _, agent = made()
    with pytest.raises(ValueError, match="is no state of this deployment's charter"):
        agent.episode("ann").act(state)


@pytest.mark.parametrize("user", ["", "x" * 257, "\ud800", 7])
def test_an_id_that_no_server_takes_is_an_error(made, user):
    _, agent = made()
    with pytest.raises(ValueError, match="1 to 256 characters"):
        agent.episode(user)


def test_a_reward_that_is_not_a_number_is_an_error(made):
    _, agent = made()
    with pytest.raises(ValueError, match="not a number"):
        agent.episode("ann").reward(float("nan"))


# Spectators, and a server that is down ------------------------------------------------------------------------------


def test_a_spectator_plays_the_policy_of_those_who_have_reported_and_sends_nothing(made):
    server, agent = made()
    server.spectator = "all tickets are taken"
    actions, e = walked(agent, "ann", [("home", 1.0), ("away", 1.0), ("home", None)])
    assert e.spectator == "all tickets are taken"
    assert e.ticket is None
    assert actions == ["stay", "stay"]
    assert server.reports == {}


def test_where_nothing_was_ever_announced_the_default_is_played(made, tmp_path):
    server, _ = made()
    server.announcing, server.spectator = False, "the deployment is paused"
    agent = made.again(server, cache=tmp_path / "other")
    with agent.episode("ann") as e:
        assert (e.spectator, e.act("home")) == ("the deployment is paused", "stay")


def test_without_server_and_cache_the_default_is_played(made, tmp_path):
    server, _ = made()
    server.close()
    agent = made.again(server, cache=tmp_path / "other")
    with agent.episode("ann") as e:
        assert e.spectator == "offline"
        assert e.act("anything") == "stay"
        assert e.act("anything", present="run") == "run"


def test_while_the_server_is_down_the_table_is_that_of_the_cache(made):
    server, agent = made(after=GO)
    agent.close()
    server.close()
    agent = made.again(server)
    with agent.episode("ann") as e:
        assert e.spectator == "offline"
        assert e.act("home") == "go"


@pytest.mark.parametrize("status", [408, 429, 503])
def test_an_app_does_not_wait_for_a_server_that_was_down_a_moment_ago(made, status):
    server, agent = made(rest=60.0)

    def fails(path):
        raise Status(status)

    server.before = fails
    assert agent.episode("ann").spectator == "offline"
    asked = len(server.asked)
    assert agent.episode("bob").spectator == "offline"
    assert len(server.asked) == asked


@pytest.mark.parametrize("lost", [Dropped(), Status(503), Status(429), Status(401)])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_report_that_was_not_acknowledged_is_kept_and_sent_again_with_the_same_bytes(made, lost, moment):
    """Also by another process, and whether or not the server has had it."""
    server, agent = made(charter(model="local"), unary(1.0))

    def fails(path):
        if path == "/v1/report":
            raise lost

    setattr(server, moment, fails)
    walked(agent, "ann", [("home", 1.0), ("away", None)])
    kept = agent._cache.pending(9)[0]
    agent.close()
    setattr(server, moment, lambda path: None)
    agent = made.again(server)
    assert set(server.reports["ann"]) == {kept.payload}
    assert agent.deliver() == 0
    tickets = {body["ticket"] for path, body in server.asked if path == "/v1/report"}
    assert tickets == {kept.ticket.hex()}


@pytest.mark.parametrize("model", ["joint", "local"])
def test_reports_that_are_kept_are_sent_when_somebody_enrols(made, model):
    server, agent = made(charter(model=model), unary(1.0) if model == "local" else None)

    def fails(path):
        if path == "/v1/report":
            raise Status(503)

    server.before = fails
    walked(agent, "ann", [("home", 1.0), ("away", None)])
    assert server.reports == {}
    server.before = lambda path: None
    agent.episode("bob")
    assert set(server.reports) == {"ann"}


@pytest.mark.parametrize("status", [404, 410, 422])
def test_a_report_that_comes_to_nothing_is_not_repeated(made, status):
    server, agent = made()

    def fails(path):
        if path == "/v1/report":
            raise Status(status)

    server.before = fails
    walked(agent, "ann", [("home", 1.0), ("away", None)])
    assert agent.deliver() == 0
    assert agent.episode("ann").spectator == "reported"


def test_of_a_user_who_has_reported_only_a_hash_stays_on_disk(made, tmp_path):
    _, agent = made()
    name = "a-very-long-name-of-ann"
    walked(agent, name, [("home", 1.0), ("away", None)])
    agent.close()
    for path in (tmp_path / "cache").rglob("*"):
        assert path.is_dir() or name.encode() not in path.read_bytes()
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


# What is refused ----------------------------------------------------------------------------------------------------


def test_a_second_report_is_refused_also_after_a_restart(made):
    server, agent = made()
    walked(agent, "ann", [("home", 1.0), ("away", None)])
    for client in (agent, made.again(server)):
        _, e = walked(client, "ann", [("home", 0.0), ("home", None)])
        assert e.spectator == "reported"
    assert len(server.reports["ann"]) == 1


def test_of_two_episodes_at_once_one_reports(made, caplog):
    server, agent = made()
    with agent.episode("ann") as one, agent.episode("ann") as two:
        for e in (one, two):
            e.act("home")
            e.act("away")
    assert len(server.reports["ann"]) == 1
    assert "already reported" in caplog.text


def test_the_device_computes_epsilon_itself_and_refuses_more_than_its_limit(made, caplog):
    """Whatever the charter says."""
    server, agent = made(charter(model="local", epsilon=1.0), unary(1.01))
    assert unary(1.01).epsilon > 1.0
    _, e = walked(agent, "ann", [("home", 1.0), ("away", None)])
    assert "more than the 1 this device may spend" in e.spectator
    assert server.reports == {}
    server.announce(GO, STAY, unary(1.0))
    _, e = walked(agent, "ann", [("home", 1.0), ("away", None)])
    assert e.spectator is None
    assert set(server.reports) == {"ann"}


def test_a_raw_item_is_never_sent_to_a_deployment_that_claims_to_be_local(made):
    server, agent = made(charter(model="local"), ItemEncoder(POOLED, WENT))
    _, e = walked(agent, "ann", [("home", 1.0), ("away", None)])
    assert "epsilon = inf" in e.spectator
    assert server.reports == {}


def test_a_curator_who_promised_to_ask_for_one_step_does_not_get_the_whole_episode(made):
    server, agent = made(encoder=EpisodeEncoder(POOLED), after=None)
    refused(agent, server, "where one step was promised")


def test_a_curator_who_promises_too_little_gets_nothing(made):
    _, agent = made(charter(epsilon=1.5))
    assert "promises epsilon = 1.5" in agent.episode("ann").spectator


def test_another_trust_model_than_the_app_asked_for_is_refused(made):
    _, agent = made(model="local")
    assert "trust model is joint, not local" in agent.episode("ann").spectator


def test_another_problem_than_that_of_the_charter_is_refused(made):
    larger = Tables(3, 2, HORIZON, 1, 0.5, (0.0, 1.0))
    policy = Instructions(actions=((1, 1, 1),) * HORIZON)
    _, agent = made(encoder=ItemEncoder(larger, (0,)), policy=policy, after=None)
    assert "another problem" in agent.episode("ann").spectator


def evidence(agent):
    return {json.loads(path.read_text())["number"]: path for path in agent.evidence}


def refused(agent, server, match):
    e = agent.episode("ann")
    e.act("home")
    e.act("home")
    e.leave()
    assert match in e.spectator
    assert server.reports == {}


def test_an_announcement_that_is_not_signed_is_refused(made):
    server, agent = made()
    entry = server.announce(STAY, GO, ItemEncoder(POOLED, WENT))
    server.served = replace(entry, signature=bytes(64))
    refused(agent, server, "signature")
    server.served = replace(entry, body=entry.body.replace(b'"size":100', b'"size":101'))
    refused(agent, server, "signature")
    assert agent.evidence == ()


def test_an_older_announcement_is_refused_and_kept_as_evidence(made):
    server, agent = made()
    first = server.announced
    server.announce(STAY, GO, ItemEncoder(POOLED, WENT))
    agent.close()
    agent = made.again(server)
    server.served = first
    refused(agent, server, "older than one this device has seen")
    assert set(evidence(agent)) == {1, 2}
    agent.close()
    agent = made.again(server)
    refused(agent, server, "older than one this device has seen")


def test_two_announcements_with_one_number_are_refused_and_both_kept(made):
    server, agent = made()
    server.served = server.signed(1, server.entries[0].head, server.announced.event | {"size": 7})
    refused(agent, server, "two announcements have one number")
    kept = [Entry.from_json(json.loads(path.read_text())) for path in agent.evidence]
    assert {entry.name for entry in kept} == {server.announced.name, server.served.name}
    for entry in kept:
        check_chain([server.entries[0], entry], server.public)


def test_a_log_that_does_not_lead_from_what_was_seen_is_refused_and_kept(made):
    """A server that was set back and went on differently: a higher number, another history."""
    server, agent = made()
    seen = server.entries.pop()
    server.append(seen.event | {"size": 7})
    server.append({"event": "paused"})
    server.announce(STAY, GO, ItemEncoder(POOLED, WENT))
    refused(agent, server, "does not lead here")
    assert seen.name in "".join(path.name for path in agent.evidence)
    assert len(agent.evidence) == 3


def test_an_announcement_that_is_not_in_the_log_is_refused(made):
    server, agent = made()
    entry = server.announce(STAY, GO, ItemEncoder(POOLED, WENT))
    server.served = server.signed(entry.number, entry.previous, entry.event | {"size": 7})
    refused(agent, server, "another announcement than was served")


def test_a_log_that_goes_on_is_followed(made):
    """Over several pages and other events."""
    server, agent = made()
    for _ in range(300):
        server.append({"event": "paused"})
        server.append({"event": "resumed"})
    server.announce(STAY, GO, ItemEncoder(POOLED, WENT))
    actions, e = walked(agent, "ann", [("home", 1.0), ("away", None)])
    assert (actions, e.spectator) == (["stay"], None)
    assert agent.announcement.epoch == 2


def test_processes_that_share_a_cache_follow_the_log_together(made):
    """What another one has seen meanwhile is no contradiction, and what it saw before is remembered by all."""
    server, one = made()
    two = made.again(server)
    first = server.announced
    for number, (policy, after) in enumerate([(STAY, GO), (GO, STAY), (STAY, STAY)]):
        server.announce(policy, after, ItemEncoder(POOLED, WENT))
        for agent in (one, two):
            assert agent.episode(f"ann {number}").spectator is None
    server.announce(GO, GO, ItemEncoder(POOLED, WENT))
    assert two.episode("bob").spectator is None
    server.served = first
    assert "older than one" in one.episode("bob").spectator


def test_an_answer_that_another_process_overtook_is_no_evidence(made, monkeypatch):
    server, one = made()
    two = made.again(server)
    slow = server.announce(STAY, GO, ItemEncoder(POOLED, WENT))
    answer = server.answer

    def overtaken(path, query, body):
        monkeypatch.setattr(server, "answer", answer)
        told = answer(path, query, body)
        server.announce(GO, STAY, ItemEncoder(POOLED, WENT))
        two._look()
        return told

    monkeypatch.setattr(server, "answer", overtaken)
    one._look()
    assert one.evidence == ()
    assert (one._entry, two.announcement.epoch) == (slow, 3)


def test_the_first_key_is_kept_and_another_one_is_refused(made):
    _, agent = made()
    agent.close()
    other = Fake(charter(), seed=b"x" * 32)
    other.announce(GO, STAY, ItemEncoder(POOLED, WENT))
    agent = made.again(other)
    assert "signature" in agent.episode("ann").spectator
    assert other.reports == {}
    other.close()


def test_a_kept_report_is_shown_to_no_other_deployment_than_its_own(made):
    """A raw item waits in the cache; the url, or whoever answers there, is another one now."""
    server, agent = made()

    def fails(path):
        if path == "/v1/report":
            raise Status(503)

    server.before = fails
    walked(agent, "ann", [("home", 1.0), ("away", None)])
    agent.close()
    other = Fake(charter(), seed=b"x" * 32)
    other.announce(GO, STAY, ItemEncoder(POOLED, WENT))
    agent = made.again(other)
    agent.episode("bob")
    assert agent.deliver() == 1
    assert other.reports == {}
    assert all(body is None or body["user"] != "ann" for _, body in other.asked)
    agent.close()
    server.before = lambda path: None
    assert made.again(server).deliver() == 0
    assert set(server.reports) == {"ann"}
    other.close()


@pytest.mark.parametrize("change", [{"privacy": {}}, {"problem": None}, {"serving": {"mode": "learn"}}])
def test_a_charter_that_cannot_be_read_is_refused(made, tmp_path, change):
    server, _ = made()
    broken = server.entries[0].event
    server.entries[0] = server.signed(0, START, broken | {"charter": broken["charter"] | change})
    agent = made.again(server, cache=tmp_path / "other")
    assert "another version" in agent.episode("ann").spectator


def test_a_key_that_was_told_is_the_only_one(made, tmp_path, caplog):
    server, _ = made()
    agent = made.again(server, key="AA" * 21 + "A=", cache=tmp_path / "other")
    assert "another public key" in caplog.text
    assert agent.terms is None
    assert "another public key" in agent.episode("ann").spectator


@pytest.mark.parametrize("named", ["0b" * 32, None])
def test_a_leader_cannot_name_another_helper_than_the_one_that_was_told(made, tmp_path, caplog, named):
    """Its own key signs whatever charter it shows: one whose helper is itself, or another trust model."""
    honest = {"url": "https://second.example", "key": "0c" * 32, "hpke": "0a" * 32}
    two = charter(model="two-servers")
    server, _ = made(two | {"helper": honest})
    assert made.again(server, helper="0a" * 32, cache=tmp_path / "honest").terms is not None
    own = charter() if named is None else two | {"helper": honest | {"hpke": named}}
    server.entries[0] = server.signed(0, START, server.entries[0].event | {"charter": own})
    agent = made.again(server, helper="0a" * 32, cache=tmp_path / "other")
    assert "another helper" in caplog.text
    assert agent.terms is None
    assert "another helper" in agent.episode("ann").spectator


def test_an_opening_that_its_own_key_did_not_sign_is_refused(made, tmp_path):
    server, _ = made()
    server.entries[0] = server.signed(0, START, server.entries[0].event | {"key": "AA" * 21 + "A="})
    agent = made.again(server, cache=tmp_path / "other")
    assert "signature" in agent.episode("ann").spectator


def test_a_ticket_for_an_announcement_that_was_never_seen_is_refused(made, monkeypatch):
    server, agent = made()
    answer = server.answer

    def other(path, query, body):
        status, told = answer(path, query, body)
        return status, told | ({"announcement": "0" * 64} if path == "/v1/enrol" else {})

    monkeypatch.setattr(server, "answer", other)
    refused(agent, server, "never saw")


def test_a_ticket_of_the_epoch_before_is_played_by_its_own_table(made, monkeypatch):
    server, agent = made()
    first = server.announced
    server.announce(STAY, GO, ItemEncoder(POOLED, WENT))
    agent.close()
    agent = made.again(server)
    answer = server.answer

    def other(path, query, body):
        status, told = answer(path, query, body)
        return status, told | ({"announcement": first.name} if path == "/v1/enrol" else {})

    monkeypatch.setattr(server, "answer", other)
    actions, e = walked(agent, "ann", [("home", 1.0), ("away", None)])
    assert (actions, e.spectator) == (["go"], None)


@pytest.mark.parametrize("url", ["ftp://host", "host", "https://host?x=1", "http://example.org"])
def test_a_url_that_is_unsafe_or_none_is_an_error(tmp_path, url):
    with pytest.raises(ValueError, match=r"url must look like|plain http"):
        connect(url, TOKEN, epsilon_at_most=1.0, default=0, cache=tmp_path)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_an_error(tmp_path, limit):
    with pytest.raises(ValueError, match="positive number"):
        connect("http://localhost:1", TOKEN, epsilon_at_most=limit, default=0, cache=tmp_path)


def test_a_default_that_the_charter_does_not_know_is_an_error(made):
    with pytest.raises(ValueError, match="is no action"):
        made(default="jump")


@pytest.mark.parametrize("answer", [b"[]", b"{", b"{}", b"\xff", b'{"entries": 3}', b'{"entries": []}', b"[" * 10**5])
def test_nonsense_is_like_no_answer(made, answer):
    server, agent = made()
    server.nonsense = answer
    e = agent.episode("ann")
    assert e.spectator == "offline"
    assert e.act("home") == "stay"


# What it needs ------------------------------------------------------------------------------------------------------


def test_an_app_does_not_wait_for_an_answer_that_comes_drop_by_drop(tmp_path):
    """Every drop comes in time, and the whole never."""
    slow = socket.create_server(("127.0.0.1", 0))

    def drip():
        with slow.accept()[0] as peer, suppress(OSError):
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(1000):
                peer.sendall(b" ")
                time.sleep(0.05)

    threading.Thread(target=drip, daemon=True).start()
    service = Service(f"http://127.0.0.1:{slow.getsockname()[1]}", TOKEN, 0.2, 0.0, False)
    began = time.monotonic()
    with pytest.raises(Down, match="too slowly"):
        service.get("/v1/log")
    assert time.monotonic() - began < 20.0
    slow.close()


def test_a_client_needs_numpy_and_cryptography_and_nothing_else():
    script = "import sys, discreet.client, discreet.device.announcements; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("discreet.")}
    assert rooms <= {"client", "device", "privacy", "mdp"}
    outside = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert not {"numba", "scipy", "msgspec", "apsw", "starlette", "requests", "pandas"} & outside


def test_warnings_tell_no_id_and_no_step(made, caplog):
    caplog.set_level(logging.DEBUG)
    server, agent = made()

    def fails(path):
        if path == "/v1/report":
            raise Status(503)

    server.before = fails
    walked(agent, "canary-ann", [("home", 1.0), ("away", None)])
    assert caplog.records
    assert "canary" not in caplog.text
    assert Path(server.url).name not in caplog.text
