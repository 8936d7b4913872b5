"""A deployment as a pure machine: who is in which epoch, what one person can change, and what the log proves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from discreet.device import Announcement, Entry, EpisodeEncoder, Forged, ItemEncoder, Tables
from discreet.device.announcements import START, WHOLE, Instructions, check_chain, coin_of, forks
from discreet.live import deployment as machine
from discreet.live.charter import Charter, read
from discreet.live.events import Amended, Event, Opened, Released, event_of, signed
from discreet.live.learning import instructions
from discreet.privacy.noise import NoiseSource

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PATIENCE = 1_000


def charter(**told: Any) -> Charter:
    problem = {"states": 2, "actions": 2, "horizon": 2, "rewards": [0, 1], "pooled": True, "start": 0}
    document: dict[str, Any] = {
        "name": "tiny",
        "problem": problem | told.pop("problem", {}),
        "privacy": {"model": "joint", "epsilon": 20.0, "users": 60} | told.pop("privacy", {}),
        "learner": {"name": told.pop("learner", "spotlight")},
        "serving": {"patience": PATIENCE, "overlap": "wait"} | told,
    }
    return Charter.from_document(document)


@dataclass(frozen=True)
class Person:
    """What somebody does once she has a ticket: how states follow, what is earned, and when she sends what."""

    moves: tuple[int, ...] = (0, 0, 0, 0)  # (s, a) → next state
    pays: tuple[int, ...] = (0, 0, 0, 0)  # (s, a) → reward
    sends: tuple[tuple[int, str], ...] = ((10, "episode"),)  # (milliseconds after enrolment, what)

    def episode(self, announced: Announcement, ticket: bytes) -> tuple[list[int], list[int], list[float]]:
        encoder, states, actions, rewards, reported = announced.encoder, [0], [], [], False
        for h in range(encoder.tables.horizon):
            action = announced.action(h, states[-1], reported, ticket)
            cell = 2 * states[-1] + action
            reported = reported or (isinstance(encoder, ItemEncoder) and cell in encoder.wanted)
            actions.append(action)
            rewards.append(float(self.pays[cell]))
            states.append(self.moves[cell])
        return states, actions, rewards

    def payload(self, what: str, announced: Announcement, ticket: bytes) -> bytes:
        if what == "garbage":
            return b"\x07" * 5
        episode = self.episode(announced, ticket)
        if what == "other":
            episode = [1, 1, 1], [1, 1], [1.0, 1.0]
        return announced.encoder.payload(*episode, NoiseSource.seeded(int.from_bytes(ticket, "big")))


@dataclass
class Desk:
    """A deployment without a database or a network: the machine, a vault, a clock."""

    state: machine.State
    log: list[Entry]
    vault: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)
    tickets: dict[bytes, machine.Held] = field(default_factory=dict)

    @classmethod
    def of(cls, terms: Charter) -> Desk:
        opened = signed(KEY, 0, START, Opened(terms, KEY.public_key().public_bytes_raw()))
        return cls(machine.evolve(None, opened), [opened])

    def append(self, event: Event) -> None:
        entry = signed(KEY, self.state.number, self.state.head, event)
        self.log.append(entry)
        self.state = machine.evolve(self.state, entry)

    def enrol(self, user: bytes, now: int) -> machine.Reply:
        if (announcement := machine.opening(self.state)) is not None:
            self.append(announcement)
        held = self.tickets.get(user)
        decision = machine.decide(self.state, machine.Enrol(user, held), now)
        if decision.ticket is not None:
            self.tickets[user] = decision.ticket
            self.vault.setdefault(decision.ticket.epoch, {})[user] = None
            self.state = machine.admitted(self.state, decision.ticket)
        return decision.reply

    def report(self, user: bytes, payload: bytes, now: int) -> machine.Reply:
        held = self.tickets[user]
        decision = machine.decide(self.state, machine.Report(held, payload), now)
        if decision.item is not None:
            self.tickets[user] = replace(held, reported=True)
            self.vault[held.epoch][user] = decision.item
        return decision.reply

    def items(self, epoch: int) -> list[bytes]:
        return [item for item in self.vault[epoch].values() if item is not None]


def name_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


Releases = Callable[[int, int], Any]


def deploy(
    terms: Charter,
    people: Iterable[Person],
    releases: Releases,
    every: int = 7,
    close: Callable[[Desk, int], machine.Open | None] = lambda desk, now: machine.due(desk.state, now),
) -> tuple[Desk, dict[int, Any]]:
    """Run a deployment whose releases are what `releases(epoch, size)` says, whatever was reported; the tallies.

    One person comes every `every` milliseconds and tries until she has a ticket; reports arrive at their own times.
    """
    desk, tallies = Desk.of(terms), {}
    waiting = list(enumerate(people))
    post: list[tuple[int, int, int, str]] = []  # time, person, number of the message, what
    crowd, now, last = dict(waiting), 0, 0
    while waiting or desk.state.open:
        times = [message[0] for message in post] + [epoch.deadline for epoch in desk.state.open if epoch.full]
        now = max(now + 1, min([*times, *([last + every] if waiting and now < last + every else [])], default=0))
        for message in sorted(m for m in post if m[0] <= now):
            post.remove(message)
            _, i, _, what = message
            held = desk.tickets[name_of(i)]
            opened = desk.state.epoch(held.epoch)
            if opened is not None:
                payload = crowd[i].payload(what, opened.announcement, name_of(i))
            else:
                payload = b""
            desk.report(name_of(i), payload, now)
        if (epoch := close(desk, now)) is not None:
            items = desk.items(epoch.epoch)
            tallies[epoch.epoch], _ = machine.tally(epoch.announcement.encoder, items)
            del desk.vault[epoch.epoch]
            desk.append(Released(epoch.epoch, epoch.size, releases(epoch.epoch, epoch.announcement.encoder.size)))
        if waiting and now - last >= every:
            i, person = waiting[0]
            reply = desk.enrol(name_of(i), now)
            if isinstance(reply, machine.Granted):
                waiting.pop(0)
                post += [(now + after, i, k, what) for k, (after, what) in enumerate(person.sends)]
                last = now
            elif reply == machine.Spectator(desk.state.told_head, "all tickets are taken"):
                waiting = []
        if now > 200_000:
            raise AssertionError("the deployment does not end")
    return desk, tallies


def some_releases(epoch: int, size: int) -> Any:
    return np.random.default_rng([epoch, size]).integers(-3, 25, size)


def crowd(number: int) -> list[Person]:
    rng = np.random.default_rng(5)
    return [
        Person(
            tuple(rng.integers(0, 2, 4).tolist()),
            tuple(rng.integers(0, 2, 4).tolist()),
            ((int(rng.integers(1, PATIENCE - 1)), "episode"),) if rng.random() < 0.8 else (),
        )
        for _ in range(number)
    ]


VARIANTS = [
    *(Person(moves, pays) for moves in product((0, 1), repeat=4) for pays in ((0, 0, 0, 0), (1, 1, 1, 1))),
    Person(sends=()),  # leaves
    Person(sends=((5, "episode"), (6, "other"), (900, "other"))),  # sends twice, and again
    Person(sends=((5, "garbage"), (6, "other"))),
    Person(sends=((5, "garbage"),)),
    Person(sends=((PATIENCE + 3, "episode"),)),  # her clock is slow
    Person(sends=((PATIENCE - 1, "other"),)),
    Person(sends=((1, "other"),)),
]


def moved(before: dict[int, Any], after: dict[int, Any]) -> int:
    """L1 distance of all tallies; those of epochs that only one of them has count in full."""
    nothing = np.zeros(1, dtype=np.int64)
    return sum(
        int(np.abs(before.get(e, nothing) - after.get(e, nothing)).sum()) for e in before.keys() | after.keys()
    )


def public(desk: Desk) -> list[bytes]:
    return [entry.body for entry in desk.log]


# Privacy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["wait", "repeat"])
def test_one_person_moves_one_tally_by_at_most_two_and_nothing_else(overlap: str) -> None:
    """Any behaviour against any other, leaving included: with the same releases the logs are equal to the byte."""
    terms, people = charter(overlap=overlap), crowd(60)
    desk, before = deploy(terms, people, some_releases)
    assert desk.state.released >= 4
    reached = 0
    for who in (0, 40):
        worlds = [deploy(terms, [*people[:who], variant, *people[who + 1 :]], some_releases) for variant in VARIANTS]
        assert all(public(other) == public(desk) for other, _ in worlds)
        tallies = [before, *(tally for _, tally in worlds)]
        distances = [moved(a, b) for a in tallies for b in tallies]
        assert max(distances) <= 2
        leaver = tallies[1 + VARIANTS.index(Person(sends=()))]
        assert max(moved(leaver, tally) for tally in tallies) <= 1
        reached = max(reached, *distances)
    assert reached == 2  # the stated sensitivity is attained


def test_counts_move_by_at_most_their_sensitivity() -> None:
    terms = charter(learner="dp-ucbvi")
    people = crowd(60)
    spec = terms.spec
    worlds = [deploy(terms, [*people[:9], v, *people[10:]], some_releases) for v in VARIANTS]
    assert len({tuple(public(desk)) for desk, _ in worlds}) == 1
    tallies = [tally for _, tally in worlds]
    tables = {name: value.l1 for name, value in spec.sensitivity("replace").items()}
    ends = np.cumsum(spec.sizes)[:-1]
    most = dict.fromkeys(tables, 0)
    for a, b in product(tallies, repeat=2):
        for e in a:
            for name, part in zip(tables, np.split(np.abs(a[e] - b[e]), ends), strict=True):
                most[name] = max(most[name], int(part.sum()))
    assert most == tables


def test_an_epoch_that_closes_by_reports_is_caught() -> None:
    """The mutant: an epoch ends with its n-th report. One leaver then moves everybody after her."""

    def by_reports(desk: Desk, now: int) -> machine.Open | None:
        if not desk.state.open:
            return None
        (oldest,) = desk.state.open
        reports = len(desk.items(oldest.epoch)) if oldest.epoch in desk.vault else 0
        # the places of those who have not reported are given to others
        desk.state = replace(desk.state, open=(replace(oldest, out=reports),))
        return oldest if reports == oldest.size else None

    people = [Person((i % 2, 1, 1, 0), (i % 2, 1, 0, 1), ((5, "episode"),)) for i in range(40)]
    terms = charter(privacy={"users": 39})
    _, before = deploy(terms, people, some_releases, close=by_reports)
    _, after = deploy(terms, [people[0], Person(sends=()), *people[2:]], some_releases, close=by_reports)
    assert moved(before, after) > 2


def test_a_release_says_nothing_of_how_many_reported_in_the_joint_model() -> None:
    """The noise and what it is added to are the same whether silent people are known or not."""
    desk = Desk.of(charter())
    desk.enrol(name_of(0), 0)
    epoch = desk.state.open[0]
    privatizer, form = desk.state.course.privatizer, epoch.announcement.encoder
    tally = np.zeros(form.size, dtype=np.int64)
    all_of_them = [
        privatizer.seal(desk.state.charter.spec, form, tally, 9, silent, NoiseSource.seeded(3)) for silent in range(9)
    ]
    assert all((values == all_of_them[0]).all() for values in all_of_them)
    assert b"reports" not in json.dumps(Released(1, 9, tally).to_event()).encode()


def test_a_missing_message_of_the_local_model_has_the_law_of_one_with_nothing_to_report() -> None:
    """Exact: by every item, the chance that a leaver's replacement is on is q; with an item it would be ½ there."""
    desk = Desk.of(charter(privacy={"model": "local"}))
    desk.enrol(name_of(0), 0)
    form: Any = desk.state.open[0].announcement.encoder
    privatizer, spec = desk.state.course.privatizer, desk.state.charter.spec
    nothing = np.zeros(form.size, dtype=np.int64)
    n, noise = 4_000, NoiseSource.seeded(8)
    left = privatizer.seal(spec, form, nothing, n, n, noise)
    stayed = sum(
        (form.tally(form.payload([0, 0, 0], [0, 0], "no record", noise)) for _ in range(n)), start=nothing.copy()
    )
    share = form.share if form.method == "unary" else (1 - form.share) / (form.num_items + 1)
    deviation = np.sqrt(n * share * (1 - share))
    assert np.abs(left - n * share).max() < 4.5 * deviation
    assert np.abs(stayed - n * share).max() < 4.5 * deviation
    estimate = form.unbiased(left, n)
    assert np.abs(estimate).max() < 4.5 * np.sqrt(privatizer.law.variance(n, form.num_items))  # nobody was there


# Tickets ------------------------------------------------------------------------------------------------------------


def test_a_user_has_one_ticket_and_one_report_and_the_first_stands() -> None:
    desk = Desk.of(charter())
    first = desk.enrol(name_of(1), 100)
    assert first == machine.Granted(1, 0, 100 + PATIENCE, desk.state.told_head, False)
    assert desk.enrol(name_of(1), 150) == replace(first, again=True)
    form = desk.state.open[0].announcement.encoder
    one, two = (place.to_bytes(4, "little") for place in (0, 1))
    assert form.size > 1
    assert desk.report(name_of(1), one, 200) == machine.Accepted(False)
    assert desk.report(name_of(1), two, 210) == machine.Accepted(True)
    assert desk.items(1) == [one]
    assert isinstance(desk.enrol(name_of(1), 100 + PATIENCE), machine.Spectator)


def test_a_report_is_late_when_its_ticket_has_expired_and_malformed_ones_may_be_corrected() -> None:
    desk = Desk.of(charter())
    desk.enrol(name_of(1), 0)
    desk.enrol(name_of(2), 0)
    size = desk.state.open[0].announcement.encoder.size
    assert isinstance(desk.report(name_of(1), size.to_bytes(4, "little"), 5), machine.Refused)
    assert isinstance(desk.report(name_of(1), b"", 5), machine.Refused)
    assert desk.report(name_of(1), b"\xff" * 4, PATIENCE - 1) == machine.Accepted(False)
    assert desk.report(name_of(2), b"\xff" * 4, PATIENCE) == machine.Late()


def test_an_epoch_is_due_when_all_its_tickets_are_out_and_the_last_has_expired() -> None:
    desk = Desk.of(charter())
    desk.enrol(name_of(0), 0)
    size = desk.state.open[0].size
    for i in range(1, size):
        assert machine.due(desk.state, 10**9) is None
        desk.enrol(name_of(i), i)
    assert machine.due(desk.state, size - 1 + PATIENCE - 1) is None
    assert machine.due(desk.state, size - 1 + PATIENCE) is desk.state.open[0]
    assert desk.enrol(name_of(size), size) == machine.Spectator(
        desk.state.told_head, "the last people of an epoch are still reporting"
    )


def test_while_an_epoch_drains_the_next_one_follows_the_same_announcement_and_no_third_is_open() -> None:
    desk = Desk.of(charter(overlap="repeat"))
    desk.enrol(name_of(0), 0)
    size = desk.state.open[0].size
    for i in range(1, 2 * size):
        desk.enrol(name_of(i), 1)
    one, two = desk.state.open
    assert two.announcement == replace(one.announcement, epoch=2, repeats=1)
    assert isinstance(desk.enrol(name_of(2 * size), 2), machine.Spectator)
    desk.append(Released(1, size, some_releases(1, one.announcement.encoder.size)))
    desk.enrol(name_of(2 * size), 3)
    assert desk.state.open[-1].announcement.repeats is None
    assert desk.state.open[-1].epoch == 3
    desk.append(Released(2, size, some_releases(2, one.announcement.encoder.size)))  # read with the plan of epoch 1


def test_no_more_tickets_than_users_and_an_amendment_lets_more_come() -> None:
    terms, people = charter(), crowd(80)
    desk, _ = deploy(terms, people, some_releases)
    assert desk.state.tickets == 60
    assert desk.enrol(name_of(99), 10**6) == machine.Spectator(desk.state.told_head, "all tickets are taken")
    fewer = machine.decide(desk.state, machine.Amend(60), 10**6)
    assert isinstance(fewer.reply, machine.Refused)
    (event,) = machine.decide(desk.state, machine.Amend(90), 10**6).events
    desk.append(event)
    assert isinstance(desk.enrol(name_of(99), 10**6), machine.Granted)
    assert desk.state.open[0].size == 30  # and not the one who would have been left of sixty
    assert machine.recovered(desk.log, {}).head == desk.state.head


def test_a_paused_deployment_gives_no_tickets_and_takes_reports() -> None:
    desk = Desk.of(charter())
    desk.enrol(name_of(1), 0)
    (event,) = machine.decide(desk.state, machine.Pause(), 1).events
    desk.append(event)
    assert machine.decide(desk.state, machine.Pause(), 1).events == ()
    assert isinstance(desk.enrol(name_of(2), 1), machine.Spectator)
    assert desk.report(name_of(1), b"\xff" * 4, 2) == machine.Accepted(False)
    (event,) = machine.decide(desk.state, machine.Resume(), 3).events
    desk.append(event)
    assert isinstance(desk.enrol(name_of(2), 3), machine.Granted)


def test_a_retired_deployment_is_over() -> None:
    desk = Desk.of(charter())
    desk.enrol(name_of(1), 0)
    (event,) = machine.decide(desk.state, machine.Retire(), 1).events
    desk.append(event)
    assert desk.state.open == ()
    assert isinstance(desk.enrol(name_of(2), 3), machine.Spectator)
    assert desk.report(name_of(1), b"\xff" * 4, 2) == machine.Late()
    with pytest.raises(Forged, match="retired"):
        desk.append(Amended(1000))


# The log ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["wait", "repeat"])
def test_the_state_is_a_function_of_the_log_and_of_the_tickets(overlap: str) -> None:
    desk, _ = deploy(charter(overlap=overlap), crowd(60), some_releases)
    again = machine.recovered([Entry.from_json(json.loads(json.dumps(e.to_json()))) for e in desk.log], {})
    assert again.head == desk.state.head
    assert (again.course.plan.policy == desk.state.course.plan.policy).all()
    assert again.places == desk.state.places == 60
    check_chain(desk.log, again.key)


def test_an_edited_log_is_refused() -> None:
    desk, _ = deploy(charter(), crowd(60), some_releases)
    log, key = desk.log, desk.state.key
    for i in range(len(log)):
        with pytest.raises((Forged, ValueError)):
            check_chain([*log[:i], replace(log[i], body=log[i].body[:-2] + b"?}"), *log[i + 1 :]], key)
        with pytest.raises(Forged):
            check_chain([*log[:i], *log[i + 1 :], log[i]], key) if i < len(log) - 1 else check_chain(log[1:], key)
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with pytest.raises(Forged, match="signature"):
        check_chain([signed(stranger, 0, START, event_of(log[0]))], key)
    with pytest.raises(Forged, match="signature"):
        check_chain([replace(log[0], signature=b"")], key)


@pytest.mark.parametrize(
    "event",
    [
        Released(1, 3, np.zeros(4, dtype=np.int64)),
        Amended(60),
        Opened(charter(), bytes(32)),
    ],
)
def test_an_event_out_of_its_turn_is_refused_even_if_it_is_signed(event: Event) -> None:
    desk = Desk.of(charter())
    with pytest.raises(Forged):
        desk.append(event)


def test_an_announcement_out_of_its_turn_is_refused() -> None:
    desk = Desk.of(charter())
    right = machine.opening(desk.state)
    assert right is not None
    other = Instructions(actions=((1, 1), (1, 1)))
    for wrong in (
        replace(right, epoch=2),
        replace(right, size=61),
        replace(right, epoch=1, repeats=1),
    ):
        with pytest.raises((Forged, ValueError)):
            desk.append(wrong)
    desk.append(right)
    assert machine.opening(desk.state) is None
    with pytest.raises(Forged, match="repeats"):
        desk.append(replace(right, epoch=2, repeats=1, policy=other, size=1))


def test_two_entries_with_one_number_are_evidence() -> None:
    desk, _ = deploy(charter(), crowd(60), some_releases)
    other = signed(KEY, 3, desk.log[2].head, Amended(70))
    assert forks(desk.log, other) == desk.log[3]
    assert forks(desk.log, desk.log[3]) is None


def test_a_new_plan_does_not_change_what_an_epoch_was_told() -> None:
    """After an upgrade the planner may choose other targets: the reports are read as those that were asked for."""
    announced = machine.opening(Desk.of(charter(problem={"states": 4, "start": [0.25] * 4})).state)
    assert announced is not None
    assert isinstance(announced.encoder, ItemEncoder)
    assert len(announced.encoder.wanted) > 1
    kept = tuple(item for item in announced.encoder.items if item // 8 == min(announced.encoder.wanted))
    fewer = replace(announced, encoder=replace(announced.encoder, items=kept))
    other = Desk.of(charter(problem={"states": 4, "start": [0.25] * 4}))
    other.append(fewer)
    other.append(Released(1, fewer.size, np.arange(len(kept))))
    last = other.state.course.sealed[-1]
    assert last.plan.announcement.rows.tolist() == sorted(fewer.encoder.wanted)


# What is told -------------------------------------------------------------------------------------------------------


def test_coins_are_those_of_the_ticket_and_weights_are_followed() -> None:
    policy = np.array([[[0.25, 0.75], [1.0, 0.0]]])
    told = instructions(policy)
    assert told.weights is not None
    assert Instructions.from_json(told.to_json(), (1, 2, 2)) == told
    tosses = [told.action(0, 0, coin_of(name_of(i), 0)) for i in range(4_000)]
    assert abs(np.mean(tosses) - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / 4_000)
    assert {told.action(0, 1, coin_of(name_of(i), 0)) for i in range(50)} == {0}
    assert told.action(0, 0, WHOLE // 4 - 1) == 0
    assert told.action(0, 0, WHOLE // 4) == 1
    assert coin_of(name_of(3), 1) == coin_of(name_of(3), 1) != coin_of(name_of(3), 2)
    thirds = instructions(np.full((1, 1, 3), 1 / 3))
    assert thirds.weights is not None
    assert sum(thirds.weights[0][0]) == WHOLE


TABLES = Tables(2, 2, 3, 1, 0.25, (-1.0, 1.0))


def test_an_episode_is_told_as_its_counters() -> None:
    encoder = EpisodeEncoder(TABLES)
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(0, 4))
        episode = rng.integers(0, 2, n + 1).tolist(), rng.integers(0, 2, n).tolist(), rng.uniform(-2, 2, n).tolist()
        payload = encoder.payload(*episode, NoiseSource.seeded(0))
        assert (encoder.tally(payload) == np.concatenate(TABLES.counters(*episode))).all()
        assert len(payload) == 8 * 11  # however many steps she took
    for unreadable in (([0], [1], [0.0]), ([0, 5], [1], [0.0]), ([0, 1], [1], [float("nan")]), ("no", [], [])):
        payload = encoder.payload(*unreadable, NoiseSource.seeded(0))
        assert payload == bytes(8 * 11)
        assert not encoder.tally(payload).any()


@pytest.mark.parametrize("place", range(11))
def test_a_changed_byte_of_an_episode_is_refused_or_another_episode(place: int) -> None:
    """Whatever is sent adds what one episode can add: at most 3 steps."""
    encoder = EpisodeEncoder(TABLES)
    payload = bytearray(encoder.payload([0, 1, 1], [1, 0], [0.5, 1.0], NoiseSource.seeded(0)))
    for value in range(256):
        payload[8 * place] = value
        for message in (bytes(payload), bytes(payload)[:-1], bytes(payload) + bytes(8)):
            try:
                tally = encoder.tally(message)
            except ValueError:
                continue
            visits, transitions, rewards = np.split(tally, np.cumsum(TABLES.cells)[:-1])
            assert visits.sum() == transitions.sum() <= 3
            assert (rewards <= visits * TABLES.reward_units).all()
            assert tally.min() >= 0


# The file -----------------------------------------------------------------------------------------------------------

FILE = """
name = "shop"
[problem]
states = ["new", "browsing", "cart", "gone"]
actions = ["none", "tip", "coupon"]
horizon = 8
rewards = [0, 1]
start = "new"
gone = "gone"
[privacy]
model = "joint"
epsilon = 1.0
unit = "user"
users = 200_000
[serving]
patience = "10m"
overlap = "repeat"
default_action = "tip"
[store]
url = "sqlite:///shop.db"
anchor = "elsewhere/shop.head"
"""


def test_a_file_is_read_and_its_public_part_says_the_same(tmp_path: Any) -> None:
    (tmp_path / "shop.toml").write_text(FILE)
    found = read(tmp_path / "shop.toml")
    terms = found.charter
    assert (terms.num_states, terms.num_actions, terms.default_action, terms.gone) == (4, 3, 1, 3)
    assert terms.start == (1.0, 0.0, 0.0, 0.0)
    assert terms.patience == 600_000
    assert Charter.from_document(json.loads(json.dumps(terms.document()))) == terms
    assert found.store.url == f"sqlite:///{tmp_path}/shop.db"
    assert found.store.anchor == tmp_path / "elsewhere" / "shop.head"
    assert terms.guarantee.epsilon == 1.0
    assert "sqlite" not in json.dumps(terms.document())


@pytest.mark.parametrize(
    ("line", "instead", "message"),
    [
        ('name = "shop"', 'name = "../shop"', "name"),
        ("horizon = 8", "horizon = 0", "problem.horizon is 0"),
        ("horizon = 8", "horison = 8", "no setting 'horison'"),
        ("rewards = [0, 1]", "rewards = [1, 0]", "problem.rewards"),
        ('"none", "tip"', '"tip", "tip"', "names one of them twice"),
        ('start = "new"', 'start = "old"', "problem.start"),
        ('start = "new"', "start = [0.5, 0.5, 0.5, 0.5]", "problem.start"),
        ("epsilon = 1.0", "epsilon = 0", "privacy.epsilon is 0"),
        ("epsilon = 1.0", "epsilon = nan", "privacy.epsilon"),
        ("users = 200_000", "users = 0.5", "privacy.users"),
        ('unit = "user"', 'unit = "row"', "privacy.unit"),
        ('model = "joint"', 'model = "trust-me"', "privacy.model"),
        ('patience = "10m"', 'patience = "ten"', "serving.patience"),
        ('default_action = "tip"', 'default_action = "hug"', "serving.default_action"),
        ("[store]", '[learner]\nname = "pucb"\n[store]', "only learners that plan in epochs"),
        ("[store]", '[learner]\nname = "sdp-pe"\n[store]', "choose one of shuffle"),
        ("[store]", '[learner]\nname = "dp-ucbvi"\n[store]', None),
        ('url = "sqlite:///shop.db"', 'url = "mysql://shop"', "store.url"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path: Any, line: str, instead: str, message: str | None) -> None:
    assert line in FILE
    (tmp_path / "shop.toml").write_text(FILE.replace(line, instead))
    if message is None:
        read(tmp_path / "shop.toml")
        return
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path / "shop.toml")
    assert "\n" not in str(error.value)
