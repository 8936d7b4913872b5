"""The operator's page and what it is made of: public facts only, alarms for what nobody predicted, all escaped."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import discreet
from discreet.agents.knowledge import model_of
from discreet.device.announcements import Announcement, Entry
from discreet.live import overview as facts
from discreet.live.charter import Charter
from discreet.live.deployment import State, counted, recovered
from discreet.live.people import simulated_log
from discreet.pages.operator import OpenEpoch, Overview, operator_page
from discreet.privacy.noise import NoiseSource

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
WORLD = discreet.make("riverswim", 4, 8)


def charter(model: str = "joint", learner: str = "spotlight", epsilon: float = 2.0, **problem: object) -> Charter:
    told = {"states": 4, "actions": ["left", "right"], "horizon": 8, "pooled": True, "start": 0} | problem
    privacy = {"model": model, "epsilon": epsilon, "users": 500}
    return Charter.from_document({"name": "river", "problem": told, "privacy": privacy, "learner": {"name": learner}})


def lived(*told: str, sends=lambda name, said, payload: payload, seed: int = 0, **problem: object) -> list[Entry]:
    coins = NoiseSource.seeded(50 + seed)
    return simulated_log(
        charter(*told, **problem), WORLD, NoiseSource.seeded(seed), KEY, seed=str(seed), sends=sends, coins=coins
    )


@pytest.fixture(scope="module")
def log() -> list[Entry]:
    return lived()


def at(entries: list[Entry], number: int) -> tuple[State, list[Entry]]:
    return recovered(entries[:number], {}), entries[:number]


def told(entries: list[Entry], number: int | None = None) -> Overview:
    return facts.overview(*at(entries, len(entries) if number is None else number))


def test_numbers_are_those_of_the_log(log):
    found = told(log)
    assert (found.status, found.users, found.tickets) == ("complete", 500, 500)
    assert found.releases == found.epoch == sum(entry.event["event"] == "released" for entry in log)
    assert (found.number, found.head) == (len(log) - 1, log[-1].name)
    assert len(found.cells) == 8
    assert all(cell.known for cell in found.cells if cell.action == "right")
    paid = next(cell for cell in found.cells if (cell.state, cell.action) == ("3", "right"))
    assert abs(paid.reward - WORLD.rewards[0, 3, 1]) < 3 * paid.reward_width + 0.1


def test_tickets_and_deadlines_of_open_epochs_come_from_the_vault(log):
    state, entries = at(log, 2)
    size = state.open[0].size
    some, full = counted(state, {1: (size - 1, 10_000)}), counted(state, {1: (size, 10_000)})
    assert facts.overview(some, entries).open == (OpenEpoch(1, size, size - 1),)
    assert facts.overview(full, entries).open[0].deadline == "1970-01-01 00:00:10 UTC"
    page = facts.page(some, entries, facts.Service(now=130_000, since=10_000, spectators=7, latency=(1.25, 9.0)))
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    for fact in (f"{size - 1} of {size} tickets are out", "2 minutes ago", "spectators 7", "1.2 ms (99 %: 9.0 ms)"):
        assert fact in text


def test_what_the_last_release_has_changed_is_what_differs_from_the_announcement_before(log):
    announced = [i for i, entry in enumerate(log) if entry.event["event"] == "announced"]
    first = told(log, announced[0] + 1)
    assert first.before is None
    for number in (announced[1] + 1, announced[2] + 1, announced[1]):  # the last: released, not yet announced
        found = told(log, number)
        earlier = [Announcement.from_event(log[i].event) for i in announced if i < number]
        last = earlier[-1 if number == announced[1] else -2]
        assert found.before is not None
        assert np.array_equal(found.before, facts.table_of(last.after, (8, 4, 2)))
    changed = replace(told(log), before=np.flip(told(log).plan, axis=2))
    assert operator_page(changed).count("<small>was ") > 0
    assert "0 of 32 fields were changed" in operator_page(replace(changed, before=changed.plan))


@pytest.mark.parametrize("kind", [("joint", "dp-ucbvi"), ("local",)])
def test_every_model_and_learner_has_a_page(kind):
    entries = lived(*kind)
    found = told(entries)
    assert found.cells
    assert found.alarms == ()
    page = facts.page(*at(entries, len(entries)))
    assert found.guarantee in page
    assert kind[0] in page


def test_staged_steps_have_rows_of_their_own():
    entries = lived(epsilon=8.0, pooled=False)
    found = told(entries)
    assert {cell.step for cell in found.cells} <= set(range(8))
    assert len({cell.step for cell in found.cells}) > 1
    assert ">step</button>" in facts.page(*at(entries, len(entries)))


def test_known_is_what_the_learner_takes_for_known():
    """Under normal noise four deviations of reports say as much as five and a half under one Laplace draw."""
    course = recovered(lived("local"), {}).course
    knowledge, alphabet = course.plan.knowledge, facts.learned(course).alphabet
    asked = np.isfinite(knowledge.noise[: alphabet.num_cells])
    for deviations in (3.0, 4.5):
        counts = deviations * np.sqrt(np.where(asked, knowledge.noise[: alphabet.num_cells], 0.0))
        reading = replace(knowledge.reading, counts=counts, branching=np.zeros_like(knowledge.reading.branching))
        as_if = replace(course, plan=replace(course.plan, knowledge=replace(knowledge, reading=reading)))
        assert {cell.known for cell in facts.cells_of(as_if)} == {deviations > 4.0}
        assert (model_of(as_if.plan.knowledge, alphabet)[0].usable == (asked & (deviations > 4.0))).all()


def test_of_a_long_log_the_last_epochs_are_shown(log):
    announced = [entry for entry in log if entry.event["event"] == "announced"]
    long = [*announced * 10, *log]
    assert [entry for entry, _ in facts.last_announced(long)] == (announced * 11)[-30:]
    assert [row["epoch"] for row in told(log).epochs] == list(range(len(announced), 0, -1))[:30]


def test_names_are_escaped():
    states = ["<script>alert(1)</script>", "b&c", '"', "d"]
    page = facts.page(*at(lived(states=states, start=states[0]), 30))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def brought(entries: list[Entry]) -> list[dict[int, tuple[float, float, float]]]:
    """What was predicted of every epoch, and what came."""
    course = recovered(entries, {}).course
    return [facts.brought(course, last) for last in range(1, len(course.sealed) + 1)]


def test_honest_people_raise_no_alarm(log):
    epochs = [*brought(log), *brought(lived(seed=1)), *brought(lived(seed=2)), *brought(lived("local", epsilon=4.0))]
    assert sum(map(len, epochs)) > 40
    assert not any(facts.alarming(*each) for epoch in epochs for each in epoch.values())


def test_a_release_with_far_more_than_was_predicted_raises_one_alarm(log):
    """Messages that nobody randomised weigh more than one: as if everybody in the last epoch had sent one."""
    state = recovered(log, {})
    epoch = state.course.sealed[-1]
    form = state.course.privatizer.form(state.charter.spec, epoch.plan, epoch.users)
    lies = np.zeros_like(epoch.values)
    lies[0] = 15 * max(epoch.users, 20)
    lied = replace(state.course, sealed=(*state.course.sealed[:-1], epoch._replace(values=epoch.values + lies)))
    (cell,) = (found for found in facts.cells_of(lied) if found.alarm)
    place = form.items[0] // 8
    assert (cell.state, cell.action) == (str(place // 2), ("left", "right")[place % 2])
    page = facts.page(replace(state, course=lied), log)
    assert page.count("class='warn'") == page.count(">ALARM<") == 1


def test_an_alarm_is_far_more_and_beyond_chance():
    assert facts.alarming(10.0, 71.0, 10.0)
    assert not facts.alarming(10.0, 69.0, 10.0)
    assert not facts.alarming(100.0, 190.0, 1.0)


def test_the_page_does_not_depend_on_what_was_reported_since_the_last_release(log):
    """Who reported in open epochs is not an argument; the page is a function of the log, tickets and the server."""
    silent = lived(sends=lambda name, said, payload: None)
    announced = [i for i, entry in enumerate(log) if entry.event["event"] == "announced"]
    before = facts.page(*at(log, announced[0] + 1))
    assert before == facts.page(*at(silent, announced[0] + 1))
    assert "report" not in {word for cell in told(log).epochs[0] for word in cell.split()}
