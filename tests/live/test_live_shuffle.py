"""A deployment whose people are shuffled: what one of them can change, what is released, and what is learned."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from discreet.device import Announcement, Entry, Noise, Refused, ShuffledEncoder, encoder_from_json
from discreet.device.announcements import START, Forged
from discreet.device.shuffled import SEALED, cut, pass_of
from discreet.live import deployment as machine
from discreet.live import shuffling
from discreet.live.asking import Unreachable
from discreet.live.charter import Charter
from discreet.live.events import Amended, Event, Opened, Released, signed
from discreet.live.learning import instructions, task_of
from discreet.live.shuffling import Passed, Task, counted, mixed, shuffled_encoder
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Announced
from discreet.privacy.trust.shuffler import BadBatch, tally
from unsealed import Quiet, unseal

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SHUFFLER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
HPKE = X25519PrivateKey.from_private_bytes(bytes(range(2, 34)))
PATIENCE = 1_000
LEARNERS = ("spotlight", "shuffle-ucbvi", "sdp-pe")


def charter(learner: str = "spotlight", users: int = 40, **told: Any) -> Charter:
    pooled = learner != "sdp-pe"
    problem = {"states": 2, "actions": 2, "horizon": 2, "rewards": [0, 1], "pooled": pooled, "start": 0}
    privacy = {"model": "shuffle", "epsilon": 5.0, "delta": 0.01, "users": users}
    return Charter.from_document(
        {
            "name": "tiny",
            "problem": problem,
            "privacy": privacy | told,
            "learner": {"name": learner},
            "serving": {"patience": PATIENCE},
            "shuffler": {"url": "http://127.0.0.1:9", "key": SHUFFLER.public_key().public_bytes_raw().hex()},
        }
    )


# A world ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Person:
    """What somebody does once she has a ticket: how states follow, what is earned, and when she sends what."""

    moves: tuple[int, ...] = (0, 0, 0, 0)  # (s, a) → next state
    pays: tuple[int, ...] = (0, 0, 0, 0)  # (s, a) → reward
    sends: tuple[tuple[int, str], ...] = ((10, "episode"),)  # (milliseconds after enrolment, what)

    def episode(self, told: Announcement) -> tuple[list[int], list[int], list[float]]:
        encoder, states, actions, rewards, reported = shuffled_encoder(told), [0], [], [], False
        wanted = frozenset() if encoder.first_visit is None else encoder.first_visit.wanted
        for h in range(encoder.tables.horizon):
            action = told.action(h, states[-1], reported, bytes(16))
            cell = 2 * states[-1] + action
            reported = reported or cell in wanted
            actions.append(action)
            rewards.append(float(self.pays[cell]))
            states.append(self.moves[cell])
        return states, actions, rewards

    def bundle(self, what: str, told: Announcement, noise: Any) -> bytes:
        encoder, episode = shuffled_encoder(told), self.episode(told)
        if what == "other":
            episode = [1, 1, 1], [1, 1], [1.0, 1.0]
        if what == "stale":
            encoder = replace(encoder, task="0" * 64)
        made = encoder.payload(*episode, noise)
        return {"garbage": bytes(range(53)) * (len(made) // SEALED), "short": made[:-SEALED]}.get(what, made)


@dataclass
class Room:
    """The shuffler's rules without a database: one bundle per pass, all of a batch mixed once its epochs are over."""

    opened: Opened
    noise: NoiseSource = field(default_factory=lambda: NoiseSource.seeded(5))
    bundles: dict[tuple[int, int], bytes] = field(default_factory=dict)
    came: int = 0
    over: int = 0  # the last epoch that is closed

    def take(self, announced: Entry, slot: int, admission: bytes, bundle: bytes) -> None:
        task = Task.of(announced, self.opened)
        if task.epoch > self.over and task.admits(self.opened, slot, admission, bundle):
            self.keep((task.epoch, slot), bundle)

    def keep(self, place: tuple[int, int], bundle: bytes) -> None:
        self.bundles.setdefault(place, bundle)

    def mixed(self, encoder: ShuffledEncoder) -> bytes:
        return mixed(encoder, self.bundles.values(), self.noise)

    def closed(self, announced: Entry) -> Passed | None:
        task = Task.of(announced, self.opened)
        encoder, self.over, self.came = task.encoder, task.epoch, self.came + task.size
        if self.came < encoder.bits.users:
            return None
        batch = self.mixed(encoder)
        self.bundles, self.came = {}, 0
        said = shuffling.statement(encoder.task, hashlib.sha256(batch).digest(), len(batch) // SEALED)
        return Passed(batch, SHUFFLER.sign(said))


@dataclass
class Desk:
    """The analyzer without a database or a network."""

    state: machine.State
    log: list[Entry]
    room: Room
    tickets: dict[bytes, machine.Held] = field(default_factory=dict)

    @classmethod
    def of(cls, terms: Charter, room: type[Room] = Room) -> Desk:
        opened = Opened(terms, KEY.public_key().public_bytes_raw(), HPKE.public_key().public_bytes_raw())
        entry = signed(KEY, 0, START, opened)
        return cls(machine.evolve(None, entry), [entry], room(opened))

    def append(self, event: Event) -> None:
        entry = signed(KEY, self.state.number, self.state.head, event)
        self.log.append(entry)
        self.state = machine.evolve(self.state, entry)

    def enrol(self, user: bytes, now: int) -> machine.Reply:
        if (announcement := machine.opening(self.state)) is not None:
            self.append(announcement)
        decision = machine.decide(self.state, machine.Enrol(user, self.tickets.get(user)), now)
        if decision.ticket is not None:
            self.tickets[user] = decision.ticket
            self.state = machine.admitted(self.state, decision.ticket)
        return decision.reply

    def entry(self, epoch: machine.Open) -> Entry:
        return next(entry for entry in self.log if entry.head == epoch.head)

    def send(self, place: machine.Granted, bundle: bytes) -> None:
        announced = next(entry for entry in self.log if entry.head == place.head)
        self.room.take(announced, place.slot, KEY.sign(pass_of(place.head, place.slot)), bundle)


def name_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


#: Of every epoch the numbers that are released, whatever was passed on.
Releases = Callable[[int, int], Any]
Closes = Callable[[Desk, int], machine.Open | None]


def by_tickets(desk: Desk, now: int) -> machine.Open | None:
    return machine.due(desk.state, now)


def deploy(
    terms: Charter,
    people: Iterable[Person],
    releases: Releases,
    noise: Callable[[int], Any] = lambda _: Quiet(),
    room: type[Room] = Room,
    close: Closes = by_tickets,
    every: int = 7,
) -> tuple[Desk, dict[int, bytes]]:
    """Run a deployment; what is passed on to the analyzer, by the epoch that ends a batch.

    One person comes every `every` milliseconds and tries until she has a ticket; bundles arrive at their own times.
    """
    desk, passed = Desk.of(terms, room), dict[int, bytes]()
    waiting, post = list(enumerate(people)), list[tuple[int, int, int, str, machine.Granted]]()
    crowd, now, last = dict(waiting), 0, 0
    while waiting or desk.state.open:
        times = [message[0] for message in post] + [epoch.deadline for epoch in desk.state.open if epoch.full]
        now = max(now + 1, min([*times, *([last + every] if waiting and now < last + every else [])], default=0))
        for message in sorted((m for m in post if m[0] <= now), key=lambda m: m[:3]):
            post.remove(message)
            _, i, _, what, place = message
            told = next(Announcement.from_event(e.event) for e in desk.log if e.head == place.head)
            desk.send(place, crowd[i].bundle(what, told, noise(i)))
        if (epoch := close(desk, now)) is not None:
            found, expected = desk.room.closed(desk.entry(epoch)), desk.state.course.expected(epoch.announcement)
            assert (found is not None) == bool(expected)
            if found is not None:
                passed[epoch.epoch] = found.messages
            values = releases(epoch.epoch, expected) if expected else np.zeros(0, dtype=np.int64)
            desk.append(Released(epoch.epoch, epoch.size, values))
        if waiting and now - last >= every:
            i, person = waiting[0]
            reply = desk.enrol(name_of(i), now)
            if isinstance(reply, machine.Granted):
                waiting.pop(0)
                post += [(now + after, i, k, what, reply) for k, (after, what) in enumerate(person.sends)]
                last = now
            elif isinstance(reply, machine.Spectator) and reply.reason == "all tickets are taken":
                waiting = []
        assert now < 200_000, "the deployment does not end"
    return desk, passed


def some_releases(epoch: int, size: int) -> Any:
    return np.random.default_rng([epoch, size]).integers(0, 12, size)


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


LEAVES = Person(sends=())
AWRY = [
    LEAVES,
    Person(sends=((5, "episode"), (6, "other"), (900, "other"))),  # sends twice, and again
    Person(sends=((5, "garbage"), (6, "other"))),
    Person(sends=((5, "short"), (6, "other"))),
    Person(sends=((5, "stale"),)),  # sealed for another batch
    Person(sends=((9 * PATIENCE, "episode"),)),  # her clock is slow
    Person(sends=((PATIENCE - 1, "other"),)),
    Person(sends=((1, "other"),)),
]
VARIANTS = [
    *(Person(moves, pays) for moves in product((0, 1), repeat=4) for pays in ((0, 0, 0, 0), (1, 1, 1, 1))),
    *AWRY,
]


def encoders(desk: Desk) -> dict[int, ShuffledEncoder]:
    told = [Announcement.from_event(e.event) for e in desk.log if e.event["event"] == "announced"]
    return {each.epoch: shuffled_encoder(each) for each in told}


def tallies(desk: Desk, passed: dict[int, bytes]) -> dict[int, Any]:
    known = encoders(desk)
    return {epoch: counted(known[epoch], HPKE, batch) for epoch, batch in passed.items()}


def moved(before: dict[int, Any], after: dict[int, Any]) -> tuple[int, int]:
    """How many counters fall and rise, each as often as it does; a batch that only one of them has counts in full."""
    nothing = np.zeros(1, dtype=np.int64)
    changes = [after.get(e, nothing) - before.get(e, nothing) for e in before.keys() | after.keys()]
    return sum(int(-c[c < 0].sum()) for c in changes), sum(int(c[c > 0].sum()) for c in changes)


def public(desk: Desk) -> list[bytes]:
    return [entry.body for entry in desk.log]


# Privacy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
def test_one_person_moves_her_own_messages_only_and_never_their_number(
    learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any behaviour against any other, leaving included: the logs are equal to the byte, every batch has as many
    messages as were announced, and counters fall and rise by no more than the noise is made for."""
    unseal(monkeypatch, quiet=True)
    terms, people = charter(learner), crowd(40)
    variants = VARIANTS if learner == "spotlight" else VARIANTS[::5] + VARIANTS[-len(AWRY) :]
    desk, before = deploy(terms, people, some_releases)
    known = encoders(desk)
    assert len(before) >= 3
    reached = 0
    for who in (0, 11):
        worlds = [deploy(terms, [*people[:who], each, *people[who + 1 :]], some_releases) for each in variants]
        assert all(public(other) == public(desk) for other, _ in worlds)
        for _, passed in worlds:
            assert {e: len(batch) for e, batch in passed.items()} == {e: SEALED * known[e].batch_size for e in before}
        counts = [tallies(desk, passed) for passed in (before, *(passed for _, passed in worlds))]
        (mine,) = {e for e in before for c in counts if (c[e] != counts[0][e]).any()}
        most = known[mine].bits.statistic.most_changes
        changes = [moved(a, b) for a in counts for b in counts]
        assert max(max(pair) for pair in changes) <= most
        left = counts[1 + variants.index(LEAVES)]
        assert max(moved(left, each)[0] for each in counts) == 0  # she takes nothing away from others
        reached = max(reached, *(min(pair) for pair in changes)) if learner == "spotlight" else most
    assert reached == most  # the stated change is attained


def test_messages_of_one_person_are_all_that_differs_between_two_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise: as sets, what the analyzer is passed differs by one bundle for one bundle."""
    unseal(monkeypatch)
    monkeypatch.setattr(ShuffledEncoder, "silent", lambda e: e.payload(None, None, None, Quiet()))
    people, terms = crowd(40), charter()

    def views(someone: Person) -> tuple[Desk, dict[int, Counter[Any]]]:
        crowded = [*people[:3], someone, *people[4:]]
        desk, passed = deploy(terms, crowded, some_releases, noise=lambda i: NoiseSource.seeded(100 + i))
        known = encoders(desk)
        return desk, {e: Counter(known[e].opened(HPKE, batch).tolist()) for e, batch in passed.items()}

    desk, one = views(Person())
    known = encoders(desk)
    for variant in (LEAVES, Person((1, 1, 1, 1), (1, 1, 1, 1)), Person(sends=((5, "garbage"),))):
        _, other = views(variant)
        differ = [e for e in one if one[e] != other[e]]
        assert len(differ) == 1
        for e in differ:
            gone, new = one[e] - other[e], other[e] - one[e]
            assert gone.total() == new.total() <= known[e].bits.messages_per_user


# Mutants ------------------------------------------------------------------------------------------------------------


def test_an_epoch_that_closes_by_bundles_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: an epoch ends with its n-th bundle, so that one leaver moves everybody after her."""
    unseal(monkeypatch, quiet=True)

    def by_bundles(desk: Desk, now: int) -> machine.Open | None:
        if not desk.state.open:
            return None
        (oldest,) = desk.state.open
        came = len(desk.room.bundles)
        desk.state = replace(desk.state, open=(replace(oldest, out=came),))
        return oldest if came == oldest.size else None

    class Numbered(Room):
        """Places of those who have not sent are given to others."""

        def keep(self, place: tuple[int, int], bundle: bytes) -> None:
            self.bundles[place[0], len(self.bundles)] = bundle

    people = [Person(sends=((5, "episode"),)) for _ in range(40)]
    border = first_epoch(users=39)[1].size  # the first of the second epoch
    people[border] = replace(people[border], moves=(1, 1, 1, 1), pays=(1, 1, 1, 1))
    worlds = [people, [people[0], LEAVES, *people[2:]]]
    found = [
        deploy(charter(users=39), world, some_releases, close=by_bundles, room=Numbered, every=9) for world in worlds
    ]
    before, after = (tallies(desk, passed) for desk, passed in found)
    assert max(moved(before, after)) > 1


class Unfilled(Room):
    """The mutant: nobody is filled in for."""

    def mixed(self, encoder: ShuffledEncoder) -> bytes:
        return b"".join(self.bundles.values())


class Doubled(Room):
    """The mutant: a second bundle for the same place counts, too."""

    def keep(self, place: tuple[int, int], bundle: bytes) -> None:
        self.bundles[place[0], 1000 * place[1] + len(self.bundles)] = bundle

    def mixed(self, encoder: ShuffledEncoder) -> bytes:
        return b"".join(self.bundles.values())


def ones(encoder: ShuffledEncoder, batch: bytes) -> Any:
    """Of every counter, however many messages there are."""
    found = encoder.opened(HPKE, batch)
    return np.bincount(found["label"][found["bit"] == 1].astype(np.int64), minlength=encoder.size)


def test_without_those_who_are_filled_in_for_the_number_of_messages_tells_who_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a second bundle that counts moves more than the noise is made for; the analyzer counts none of both."""
    unseal(monkeypatch, quiet=True)
    terms, people = charter(), [Person() for _ in range(40)]
    twice = Person(sends=((5, "episode"), (6, "episode"), (7, "episode")))
    for mutant, someone in ((Unfilled, LEAVES), (Doubled, twice)):
        _, usual = deploy(terms, people, some_releases, room=mutant)
        desk, other = deploy(terms, [*people[:3], someone, *people[4:]], some_releases, room=mutant)
        (epoch,) = {e for e in usual if len(usual[e]) != len(other[e])}
        encoder = encoders(desk)[epoch]
        before, after = ({epoch: ones(encoder, world[epoch])} for world in (usual, other))
        assert (max(moved(before, after)) > encoder.bits.statistic.most_changes) == (mutant is Doubled)
        with pytest.raises(BadBatch):
            counted(encoder, HPKE, other[epoch])


@pytest.mark.parametrize("mutant", [Unfilled, Doubled])
def test_an_analyzer_releases_no_batch_of_another_number_of_messages(
    mutant: type[Room], monkeypatch: pytest.MonkeyPatch
) -> None:
    unseal(monkeypatch)
    desk = Desk.of(charter(), mutant)
    place = desk.enrol(name_of(0), 0)
    assert isinstance(place, machine.Granted)
    for number in range(1, desk.state.open[0].size):
        desk.enrol(name_of(number), 0)
    epoch = desk.state.open[0]
    for what in ("episode", "other"):
        desk.send(place, Person().bundle(what, epoch.announcement, Noise()))
    seal = shuffling.analyzer(desk.room, HPKE)
    with pytest.raises(Unreachable, match="no complete batch"):
        seal(desk.state, epoch, desk.entry(epoch), ())


@pytest.mark.parametrize("number", [-1, 1])
def test_a_batch_that_is_not_complete_is_not_mixed(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shuffler's own check of the count: more bundles than people, or one that is too short."""
    unseal(monkeypatch)
    desk = Desk.of(charter())
    desk.enrol(name_of(0), 0)
    encoder = shuffled_encoder(desk.state.open[0].announcement)
    bundles = [encoder.silent() for _ in range(encoder.bits.users + max(number, 0))]
    if number < 0:
        bundles[0] = bundles[0][:-SEALED]
    with pytest.raises(ValueError, match="not those of a complete batch"):
        mixed(encoder, bundles, NoiseSource.seeded(0))


# What is released ---------------------------------------------------------------------------------------------------


def first_epoch(learner: str = "spotlight", **told: Any) -> tuple[Desk, machine.Open, ShuffledEncoder]:
    desk = Desk.of(charter(learner, **told))
    desk.enrol(name_of(0), 0)
    epoch = desk.state.open[0]
    return desk, epoch, shuffled_encoder(epoch.announcement)


def test_a_sealed_bundle_is_read_by_the_analyzer_and_by_nobody_else() -> None:
    """With the seal: what was sent is what is counted; other keys, other batches and changed bytes count as zeros."""
    _, _, encoder = first_epoch()
    bits, quiet = encoder.bits, Quiet()
    ones = [np.array([i % bits.num_counters]) for i in range(bits.users)]
    batch = b"".join(encoder.sealed(bits.messages(one, quiet)) for one in ones)
    assert len(batch) == SEALED * encoder.batch_size
    assert len(set(cut(batch))) == encoder.batch_size
    expected = np.bincount(np.concatenate(ones), minlength=bits.num_counters)
    assert (counted(encoder, HPKE, mixed(encoder, [batch[: encoder.bundle_size]], NoiseSource.seeded(1))) >= 0).all()
    assert (counted(encoder, HPKE, batch) == expected).all()
    assert not counted(encoder, X25519PrivateKey.generate(), batch).any()
    assert not counted(replace(encoder, task="1" * 64), HPKE, batch).any()
    changed = bytes([batch[0] ^ 1]) + batch[1:]
    assert (counted(encoder, HPKE, changed) == expected - (np.arange(bits.num_counters) == 0) * 1).all()


@pytest.mark.parametrize("learner", ["spotlight", "shuffle-ucbvi"])
def test_the_law_of_a_release_is_that_of_the_simulated_shuffle(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two people have left and were filled in for. Chi-square against the exact binomial law, and against the
    simulator's own draws, over all counters."""
    unseal(monkeypatch)
    desk, epoch, encoder = first_epoch(learner)
    bits, people, rounds = encoder.bits, encoder.bits.users, 400
    person, noise, shuffle = Person((1, 0, 0, 1), (1, 0, 1, 0)), NoiseSource.seeded(1), NoiseSource.seeded(2)
    own = sum(
        np.bincount(bits.statistic.ones(*person.episode(epoch.announcement), Quiet()), minlength=bits.num_counters)
        for _ in range(people - 2)
    )
    live, simulated = [], []
    stream: Any = desk.state.course.privatizer.open(desk.state.charter.spec, 10**9, NoiseSource.seeded(3))
    if isinstance(stream, Announced):
        stream.begin(desk.state.course.plan)
    stream._users = people
    for _ in range(rounds):
        bundles = [person.bundle("episode", epoch.announcement, noise) for _ in range(people - 2)]
        live.append(counted(encoder, HPKE, mixed(encoder, bundles, shuffle)) - own)
        simulated.append(stream._shuffled(bits, own).sums - own)
    top = people * bits.noise_bits
    found, other = (np.bincount(np.concatenate(each), minlength=top + 1)[: top + 1] for each in (live, simulated))
    expected = found.sum() * stats.binom.pmf(np.arange(top + 1), top, bits.probability)
    wide = expected >= 5
    groups = [(each[wide].tolist() + [each[~wide].sum()]) for each in (found, other, expected)]
    keep = [i for i in range(len(groups[2])) if groups[2][i] > 1e-9]
    live_, simulated_, exact = (np.array(group)[keep] for group in groups)
    assert stats.chisquare(live_, exact * live_.sum() / exact.sum()).pvalue > 1e-3
    assert stats.chi2_contingency(np.array([live_, simulated_]) + 1e-9).pvalue > 1e-3


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_deployment_plans_as_a_stream_does_that_collects_the_same_batches(
    learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator's stream and agent, given what the shuffler passed on, announce what the deployment did."""
    unseal(monkeypatch)
    users = 200 if learner == "shuffle-ucbvi" else 60
    told, messages, desk = [], dict[int, Any](), Desk.of(terms := charter(learner, users, epsilon=12.0))
    people = crowd(users)
    for i, person in enumerate(people):
        place = desk.enrol(name_of(i), 0)
        assert isinstance(place, machine.Granted)
        epoch = desk.state.open[0]
        desk.send(place, person.bundle("episode", epoch.announcement, NoiseSource.seeded(i)))
        if epoch.full:
            told.append(epoch.announcement)
            encoder = shuffled_encoder(epoch.announcement)
            passed = desk.room.closed(desk.entry(epoch))
            values = np.zeros(0, dtype=np.int64)
            if passed is not None:
                messages[epoch.epoch] = encoder.opened(HPKE, passed.messages)
                values = tally(encoder.bits, messages[epoch.epoch]).sums
            desk.append(Released(epoch.epoch, epoch.size, values))
    assert sum(each.size for each in told) == users
    triple = terms.triple()
    agent, privatizer = triple.agent, triple.privatizer
    stream: Any = privatizer.open(terms.spec, users, NoiseSource.secure())  # type: ignore[union-attr]
    plan, done = None, 0
    for each in told:
        plan = agent.plan(stream.release(), plan)
        assert min(plan.users or triple.schedule.length(done), users - done) == each.size
        assert instructions(plan.policy) == each.policy
        if isinstance(stream, Announced):
            stream.begin(plan)
        done += each.size
        if each.epoch in messages:
            stream.collect(shuffled_encoder(each).bits, messages[each.epoch])
    learned = agent.plan(stream.release(), plan)
    assert (learned.policy == desk.state.course.plan.policy).all()
    assert len(messages) >= 3


# The machine --------------------------------------------------------------------------------------------------------


def test_people_of_one_batch_share_one_encoder_and_its_epochs_are_released_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else messages could be told apart by their epoch: each opens with the encoder of its own epoch only."""
    unseal(monkeypatch, quiet=True)
    desk, passed = deploy(charter("sdp-pe"), crowd(40), some_releases)
    known, released = encoders(desk), {e.event["epoch"]: e.event for e in desk.log if e.event["event"] == "released"}
    sizes = {e.event["epoch"]: e.event["size"] for e in desk.log if e.event["event"] == "announced"}
    batch: list[int] = []
    batches = 0
    for epoch in sorted(known):
        batch.append(epoch)
        assert known[epoch] == known[batch[0]]
        assert known[epoch].task == task_of(desk.state.charter, batch[0])
        complete = sum(sizes[e] for e in batch) == known[epoch].bits.users
        assert complete == bool(released[epoch]["values"]) == (epoch in passed)
        batches, batch = batches + complete, [] if complete else batch
    assert not batch
    assert batches < len(known)
    assert {each.bits.statistic.layer for each in known.values()} == {0, 1, None}  # type: ignore[union-attr]


def test_the_smallest_epoch_has_two_people_and_nobody_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    unseal(monkeypatch, quiet=True)
    for learner, users in (("shuffle-ucbvi", 7), ("shuffle-ucbvi", 40), ("spotlight", 19), ("spotlight", 3)):
        desk, _ = deploy(charter(learner, users), crowd(users + 3), some_releases)
        sizes = [e.event["size"] for e in desk.log if e.event["event"] == "announced"]
        assert sum(sizes) == users
        assert min(sizes) >= 2
    desk, _ = deploy(charter(users=40, honest=0.2), crowd(43), some_releases)
    assert min(e.event["size"] for e in desk.log if e.event["event"] == "announced") >= 5
    desk.append(Amended(41))  # one more could not be hidden among others
    assert machine.opening(desk.state) is None
    assert machine.why_not(desk.state) == "all tickets are taken"


def test_no_report_is_taken_by_the_analyzer_and_no_release_out_of_its_batch() -> None:
    desk, epoch, encoder = first_epoch("sdp-pe")
    held = next(iter(desk.tickets.values()))
    decision = machine.decide(desk.state, machine.Report(held, encoder.silent()), 1)
    assert decision.item is None
    assert isinstance(decision.reply, machine.Refused)
    assert epoch.size < encoder.bits.users
    with pytest.raises(Forged, match="other numbers"):
        desk.append(Released(1, epoch.size, np.zeros(encoder.size, dtype=np.int64)))
    refused = machine.decide(desk.state, machine.Amend(1_000), 1).reply
    assert isinstance(refused, machine.Refused)
    assert "cuts its batches" in refused.why


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_encoder_is_read_as_it_was_published(learner: str) -> None:
    _, epoch, encoder = first_epoch(learner)
    assert encoder_from_json(encoder.to_json()) == encoder
    assert Announcement.from_event(epoch.announcement.to_event()) == epoch.announcement
    with pytest.raises(Refused):
        encoder.encode("somebody", [0], [], [], Noise(), epsilon_at_most=1e9)  # without a delta: never


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"privacy": {"delta": 0}}, "privacy.delta is 0"),
        ({"privacy": {"delta": None}}, "privacy.delta"),
        ({"privacy": {"honest": 1.5}}, "privacy.honest"),
        ({"shuffler": {"key": "ab"}}, "shuffler.key"),
        ({"shuffler": {"url": "mixer"}}, "shuffler.url"),
        ({"serving": {"overlap": "repeat"}}, "overlap must be wait"),
        ({"privacy": {"model": "joint"}}, "shuffle model"),
    ],
)
def test_a_charter_of_a_shuffler_is_strict(told: dict[str, dict[str, Any]], message: str) -> None:
    document = charter().document()
    assert Charter.from_document(document) == charter()
    for name, fields in told.items():
        document[name] = document[name] | fields
    with pytest.raises(ValueError, match=message):
        Charter.from_document(document)
