"""The log of a deployment, checked by somebody who was not there, and the certificate that is written at its end."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import discreet
from discreet.device import EpisodeEncoder
from discreet.device.announcements import START, Announcement, Entry
from discreet.device.bits import CountBits
from discreet.live import certificate
from discreet.live.charter import Charter
from discreet.live.deployment import recovered
from discreet.live.events import Amended, Event, Opened, Paused, Released, Resumed, Retired, event_of, signed
from discreet.live.people import simulated_log
from discreet.offline.certificate import DIGESTS, HTML, JSON, SIGNATURE, digest, dumped, signature
from discreet.policy import CSV, PARQUET
from discreet.privacy.noise import NoiseSource
from unsealed import unseal

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
WORLD = discreet.make("riverswim", 3, 4)
TINY = discreet.make("riverswim", 2, 2)  # of which all policies are listed


def charter(model: str = "joint", users: int = 150, learner: str = "spotlight", **serving: Any) -> Charter:
    problem = {"states": ["a", "b", "c"], "actions": ["left", "right"], "horizon": 4, "pooled": True, "start": "a"}
    if learner == "sdp-pe":
        problem |= {"states": ["a", "b"], "horizon": 2, "pooled": False}
    privacy = {"model": model, "epsilon": 4.0, "users": users}
    served = {"patience": "1s"} | serving
    told = {"name": "river", "problem": problem, "privacy": privacy, "learner": {"name": learner}, "serving": served}
    if model == "shuffle":
        privacy["delta"] = 0.01
        told["shuffler"] = {"url": "http://127.0.0.1:9", "key": OTHER.public_key().public_bytes_raw().hex()}
    return Charter.from_document(told)


def chained(events: list[Event], key: Ed25519PrivateKey = KEY) -> list[Entry]:
    """A log of these events, as its owner could have written it."""
    entries, head = list[Entry](), START
    for number, event in enumerate(events):
        entries.append(signed(key, number, head, event))
        head = entries[-1].head
    return entries


def lived(model: str = "joint", **told: Any) -> list[Event]:
    coins, shuffler = NoiseSource.seeded(1), OTHER if model == "shuffle" else None
    world = TINY if told.get("learner") == "sdp-pe" else WORLD
    log = simulated_log(charter(model, **told), world, NoiseSource.seeded(0), KEY, coins=coins, shuffler=shuffler)
    return [*map(event_of, log)]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return [*lived(), Retired()]


def where(events: list[Event], kind: type, nth: int = 0) -> int:
    return [i for i, event in enumerate(events) if isinstance(event, kind)][nth]


# The log ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["joint", "local"])
def test_a_log_that_was_lived_keeps_every_rule(model):
    log = chained(lived(model))
    problems, audit = certificate.audited(log, KEY.public_key().public_bytes_raw(), (3, log[3].name))
    assert problems == []
    assert audit is not None
    assert len(audit.released) == audit.epochs >= 3
    assert sum(audit.released.values()) == audit.places == audit.users == 150


def twice(events: list[Event]) -> list[Event]:
    i = where(events, Released)
    return [*events[: i + 1], events[i], *events[i + 1 :]]


def unannounced(events: list[Event]) -> list[Event]:
    i = where(events, Released)
    return [*events[:i], replace(events[i], epoch=9), *events[i:]]


def other_tickets(events: list[Event]) -> list[Event]:
    i = where(events, Released)
    return [*events[:i], replace(events[i], tickets=events[i].tickets - 1), *events[i + 1 :]]


def more_numbers(events: list[Event]) -> list[Event]:
    i = where(events, Released)
    return [*events[:i], replace(events[i], values=np.append(events[i].values, 1)), *events[i + 1 :]]


def too_many(events: list[Event]) -> list[Event]:
    i = where(events, Announcement, -1)
    return [*events[:i], replace(events[i], size=events[i].size + 1), *events[i + 1 :]]


def skipped(events: list[Event]) -> list[Event]:
    i = where(events, Announcement, 1)
    return [*events[:i], replace(events[i], epoch=3), *events[i + 1 :]]


def both_open(events: list[Event]) -> list[Event]:
    i = where(events, Released)
    return [*events[:i], replace(events[1], epoch=2, size=1), *events[i:]]


def no_repeat(events: list[Event]) -> list[Event]:
    i = where(events, Announcement, 1)
    return [*events[:i], replace(events[i], repeats=1), *events[i + 1 :]]


def after_the_end(events: list[Event]) -> list[Event]:
    return [*events, Paused()]


def fewer(events: list[Event]) -> list[Event]:
    return [*events[:1], Amended(150), *events[1:]]


def opened_again(events: list[Event]) -> list[Event]:
    return [*events[:2], events[0], *events[2:]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (twice, "a second time"),
        (unannounced, "not announced"),
        (other_tickets, "tickets of"),
        (more_numbers, "other numbers"),
        (too_many, "people where 150 may come"),
        (skipped, "where 2 is next"),
        (both_open, "more than 1 epochs at once"),
        (no_repeat, "repeats an epoch, and does not"),
        (after_the_end, "after the deployment was retired"),
        (fewer, "lets 150 people come where 150 could"),
        (opened_again, "opens the log once more"),
    ],
)
def test_a_broken_rule_is_named_although_everything_is_signed(events, change, says):
    problems, _ = certificate.audited(chained(change(list(events))))
    assert any(says in problem for problem in problems), problems


def test_a_repeated_epoch_and_an_amendment_keep_the_rules():
    told = lived(overlap="repeat")
    first = told[1]
    assert isinstance(first, Announcement)
    again = replace(first, epoch=2, repeats=1)
    log = [told[0], Amended(1000), Paused(), Resumed(), first, again, told[where(told, Released)]]
    assert certificate.audited(chained(log))[0] == []


def test_a_local_announcement_may_not_cost_more_than_the_charter_says():
    told = lived("local")
    first = told[1]
    assert isinstance(first, Announcement)
    loud = replace(first, encoder=replace(first.encoder, words=first.encoder.words + 2**40, method="response"))
    assert loud.encoder.epsilon > 4.0
    problems, _ = certificate.audited(chained([told[0], loud]))
    assert any("ε = " in problem for problem in problems), problems


def test_a_joint_announcement_is_not_for_a_local_charter():
    joint, local = lived("joint"), lived("local")
    problems, _ = certificate.audited(chained([local[0], joint[1]]))
    assert any("something else than the charter" in problem for problem in problems)


def test_whole_episodes_are_not_asked_of_those_who_were_promised_one_step():
    told = lived("joint")
    first = told[1]
    assert isinstance(first, Announcement)
    greedy = replace(first, after=None, encoder=EpisodeEncoder(first.encoder.tables))
    problems, _ = certificate.audited(chained([told[0], greedy]))
    assert any("something else than the charter" in problem for problem in problems)


def test_bytes_order_keys_and_old_copies_are_seen(events):
    log = chained(events)
    body = bytearray(log[2].body)
    body[-3] ^= 1
    flipped = [*log[:2], replace(log[2], body=bytes(body)), *log[3:]]
    for broken in (flipped, [log[1], log[0], *log[2:]], log[:2] + log[3:], [*log[:2], chained(events, OTHER)[2]]):
        problems, audit = certificate.audited(broken)
        assert len(problems) == 1
        assert audit is None
    assert certificate.audited([])[0] == ["the log does not begin with a charter"]
    assert "another key" in certificate.audited(log, OTHER.public_key().public_bytes_raw())[0][0]
    assert "old copy" in certificate.audited(log[:5], anchor=(7, log[7].name))[0][0]
    assert "old copy" in certificate.audited(log, anchor=(7, log[6].name))[0][0]


def test_no_order_of_bytes_gets_a_log_past_the_audit(events):
    """Any one byte of any one entry, changed on the wire, is seen."""
    log, choice = chained(events), random.Random(0)
    for _ in range(40):
        i = choice.randrange(len(log))
        field = choice.choice(["previous", "body", "signature"])
        value = bytearray(getattr(log[i], field))
        value[choice.randrange(len(value))] ^= 1 << choice.randrange(8)
        changed = [*log[:i], replace(log[i], **{field: bytes(value)}), *log[i + 1 :]]
        assert certificate.audited(changed)[0], (i, field)


# Shuffled -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shuffled() -> dict[str, list[Event]]:
    with pytest.MonkeyPatch.context() as patch:
        unseal(patch)
        users = {"spotlight": 150, "shuffle-ucbvi": 120, "sdp-pe": 60}
        return {name: [*lived("shuffle", learner=name, users=n), Retired()] for name, n in users.items()}


@pytest.mark.parametrize("learner", ["spotlight", "shuffle-ucbvi", "sdp-pe"])
def test_a_shuffled_log_keeps_every_rule_and_is_certified(shuffled, tmp_path, learner):
    log = chained(shuffled[learner])
    problems, audit = certificate.audited(log)
    assert problems == []
    assert audit is not None
    assert sum(audit.released.values()) == audit.places == audit.users
    assert (audit.batches < len(audit.released)) == (learner == "sdp-pe")
    certificate.certify(tmp_path / "out", log, KEY)
    found = certificate.verify(tmp_path / "out")
    assert found.problems == ()
    assert "shuffle" in found.sentence
    document = json.loads((tmp_path / "out" / JSON).read_text())
    assert "the shuffler sees who sends" in document["who_sees_what"][0]
    assert document["guarantee"]["delta"] == 0.01
    policy = discreet.Policy.load(tmp_path / "out")
    assert policy.actions.shape == ((2, 2) if learner == "sdp-pe" else (4, 3))
    page = (tmp_path / "out" / HTML).read_text()
    assert ("released with the next epoch" in page) == (learner == "sdp-pe")


def changed(events: list[Event], kind: type, nth: int, **fields: Any) -> list[Event]:
    i = where(events, kind, nth)
    return [*events[:i], replace(events[i], **fields), *events[i + 1 :]]


def sealed_for(events: list[Event], **fields: Any) -> list[Event]:
    """The first announcement with another encoder."""
    first = events[1]
    assert isinstance(first, Announcement)
    return changed(events, Announcement, 0, encoder=replace(first.encoder, **fields))


def whole_episodes(events: list[Event]) -> list[Event]:
    bits = events[1].encoder.bits  # type: ignore[union-attr]
    return sealed_for(events, bits=replace(bits, statistic=CountBits(bits.statistic.tables)))


def louder(events: list[Event]) -> list[Event]:
    bits = events[1].encoder.bits  # type: ignore[union-attr]
    return sealed_for(events, bits=replace(bits, flips=bits.flips // 2))


def smaller(events: list[Event]) -> list[Event]:
    bits = events[1].encoder.bits  # type: ignore[union-attr]
    return sealed_for(events, bits=replace(bits, users=2, reliable=2))


@pytest.mark.parametrize(
    ("learner", "change", "says"),
    [
        ("spotlight", lambda e: sealed_for(e, analyzer="ab" * 32), "sealed for somebody else"),
        ("spotlight", lambda e: sealed_for(e, task="ab" * 32), "another way than it was begun"),
        ("sdp-pe", lambda e: sealed_for(e, task="ab" * 32), "another way than it was begun"),
        ("spotlight", whole_episodes, "whole episodes where one step"),
        ("spotlight", louder, "δ = "),
        ("spotlight", smaller, "more people than its batch"),
        ("spotlight", lambda e: changed(e, Released, 0, passed=bytes(64)), "has not signed"),
        ("spotlight", lambda e: changed(e, Released, 0, batch=bytes(32)), "has not signed"),
        ("spotlight", lambda e: changed(e, Released, 0, passed=None, batch=None), "has not signed"),
        ("spotlight", lambda e: changed(e, Released, 0, values=e[2].values + 10**6), "no batch of"),
        ("sdp-pe", lambda e: changed(e, Released, 0, values=np.zeros(12, np.int64)), "other numbers"),
        ("spotlight", lambda e: changed(e, Opened, 0, hpke=bytes(32)), "sealed for somebody else"),
    ],
)
def test_a_broken_rule_of_shuffled_epochs_is_named(shuffled, learner, change, says):
    problems, _ = certificate.audited(chained(change(list(shuffled[learner]))))
    assert any(says in problem for problem in problems), problems


# The folder ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(events, tmp_path):
    certificate.certify(tmp_path / "certificate", chained(events), KEY)
    return tmp_path / "certificate"


@pytest.fixture
def pem(tmp_path):
    path = tmp_path / "key.pem"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    path.write_bytes(KEY.public_key().public_bytes(serialization.Encoding.PEM, form))
    return path


def resigned(folder, key: Ed25519PrivateKey = KEY) -> None:
    """Digests and signature of what is there now: what whoever has a key can do."""
    digests = dumped({name: digest(folder / name) for name in certificate.FILES})
    (folder / DIGESTS).write_text(digests)
    (folder / SIGNATURE).write_text(dumped(signature(key, digests)))


def test_a_certificate_follows_from_the_log(folder, pem):
    found = certificate.verify(folder)
    assert found.problems == ()
    assert (found.consistent, found.valid, found.epsilon) == (True, False, 4.0)
    assert found.sentence == "joint DP, ε = 4 per user, replace-one"
    assert certificate.verify(folder, pem).valid
    document = json.loads((folder / JSON).read_text())
    assert document["people"]["released"] == 150
    policy = discreet.Policy.load(folder)
    assert policy.act(0, "c", guess=True) == "right"


def test_a_policy_of_counts_is_certified_too(tmp_path):
    log = chained([*lived(learner="dp-ucbvi"), Retired()])
    certificate.certify(tmp_path / "counts", log, KEY)
    assert certificate.verify(tmp_path / "counts").problems == ()


@pytest.mark.parametrize("name", [*certificate.FILES, SIGNATURE, DIGESTS])
def test_an_altered_file_is_seen(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(bytes(content))
    assert not certificate.verify(folder).consistent


@pytest.mark.parametrize("name", [*certificate.FILES, SIGNATURE, DIGESTS])
def test_a_missing_file_is_seen(folder, name):
    (folder / name).unlink()
    assert not certificate.verify(folder).consistent


def test_what_does_not_follow_from_the_log_is_seen_although_it_is_signed(folder):
    document = json.loads((folder / JSON).read_text())
    (folder / JSON).write_text(dumped(document | {"people": document["people"] | {"released": 149}}))
    resigned(folder)
    (problem,) = certificate.verify(folder).problems
    assert "about people" in problem
    (folder / JSON).write_text(dumped(document | {"remark": "best of all"}))
    resigned(folder)
    (problem,) = certificate.verify(folder).problems
    assert "more or less" in problem


def test_another_policy_or_page_is_seen_although_it_is_signed(folder, events, tmp_path):
    shorter = [*events[: where(events, Released) + 1], Retired()]
    certificate.certify(tmp_path / "other", chained(shorter), KEY)
    for names, says in (((PARQUET, CSV), "the policy is not the one"), ((HTML,), "does not say what the log says")):
        mixed = tmp_path / f"mixed-{names[0]}"
        shutil.copytree(folder, mixed)
        for name in names:
            shutil.copy(tmp_path / "other" / name, mixed / name)
        resigned(mixed)
        (problem,) = certificate.verify(mixed).problems
        assert says in problem


def test_somebody_elses_signature_does_not_make_it_theirs(folder):
    resigned(folder, OTHER)
    assert certificate.verify(folder).problems == ("the certificate is not signed with the key of its log",)


def test_a_deployment_that_goes_on_gets_no_certificate(events, folder, tmp_path):
    running = chained(list(events[:-1]))
    with pytest.raises(ValueError, match="when a deployment is retired"):
        certificate.certify(tmp_path / "early", running, KEY)
    (folder / certificate.LOG).write_text(certificate.written_log(running))
    resigned(folder)
    assert any("not retired" in problem for problem in certificate.verify(folder).problems)


def test_what_is_exported_can_be_read_and_checked(events, tmp_path):
    log = chained(list(events[:-1]))
    certificate.export(tmp_path / "out", log, recovered(log, {}))
    assert certificate.read_log(tmp_path / "out") == log
    assert certificate.audited(certificate.read_log(tmp_path / "out" / "log.jsonl"))[0] == []
    policy = discreet.Policy.load(tmp_path / "out")
    assert policy.actions.shape == (4, 3)
    assert policy.state_names == ("a", "b", "c")


def test_what_is_no_log_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "log.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="not the log of a deployment"):
        certificate.read_log(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"there is no log\.jsonl"):
        certificate.read_log(tmp_path / "empty")
