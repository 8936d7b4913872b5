"""One session for everybody who has people: the same numbers however they come, one sentence for a misstep."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from discreet.catalog import ALGORITHMS
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.planning import Plan, greedy_plan
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.trust.local import LocalSampled
from discreet.releases.reports import Targets
from discreet.runs.experiment import Experiment, Setting, generators, run
from discreet.runs.regret import Hindsight, RegretCurve, checkpoints
from discreet.runs.simulation import Clock, play, rollouts
from discreet.schedules import GeometricEpochs
from discreet.session import Session

SIZES = {"states": 3, "horizon": 4, "episodes": 300}
TINY = {"env": "nonstationary-dirichlet", "states": 2, "horizon": 2, "episodes": 600}


def experiments(runner: str) -> dict[str, Experiment]:
    """Every learner of this kind, in every model."""
    found = {}
    for name, entry in ALGORITHMS.items():
        for model in entry.models if entry.private else (None,):
            if entry.runner != runner:
                continue
            said = {"algorithm": name, **(TINY if entry.staged else SIZES)}
            if model is not None:
                said |= {"epsilon": 3.0, "model": model, "delta": 1e-6 if model == "shuffle" else 0.0}
            found[f"{name}-{model or 'none'}"] = Experiment(**said)
    return found


EXPERIMENTS, GAMES = experiments("online"), experiments("adversarial")


def opened(experiment: Experiment, seed: int = 5) -> tuple[Setting, Session, MDPSimulator]:
    setting = Setting.of(experiment)
    environment, noise = generators(seed)
    session = Session.open(setting.triple(seed), setting.problem, noise, setting.entry.feedback)
    return setting, session, MDPSimulator(setting.mdp, setting.law, environment)


def pushed(experiment: Experiment, portions) -> tuple[RegretCurve, list[bytes]]:
    """Regret, and every plan, when people come in these portions."""
    setting, session, simulator = opened(experiment)
    curve, plans = RegretCurve(setting.mdp, experiment.episodes), []
    while not session.ended:
        epoch = session.announce()
        policy, *switch = epoch.instructions
        while session.room:
            session.add(simulator.rollout(policy, min(session.room, portions()), *switch))
        session.release()
        curve.add(*epoch.played)
        plans.append(epoch.plan.policy.tobytes())
    return curve, plans


def same(curve: RegretCurve, result) -> bool:
    numbers = curve.last, curve.switches
    return curve.regret.tobytes() == result.regret.tobytes() and numbers == (result.final_value, result.switches)


@pytest.mark.parametrize("name", sorted(name for name in EXPERIMENTS if not name.endswith("local")))
def test_people_who_come_one_by_one_in_portions_and_in_the_simulator_give_the_same_run(name):
    """Bit for bit, for every learner whose noise is drawn when an epoch is released."""
    experiment, rng = EXPERIMENTS[name], np.random.default_rng(0)
    one, plans = pushed(experiment, lambda: 1)
    some, others = pushed(experiment, lambda: int(rng.integers(1, 60)))
    assert plans == others
    assert same(one, run(experiment, 5))
    assert same(some, run(experiment, 5))


@pytest.mark.parametrize("name", sorted(name for name in EXPERIMENTS if name.endswith("local")))
def test_local_sessions_are_the_simulators_where_people_come_in_its_portions(name):
    """Devices draw their own noise; a simulation draws that of a whole portion at once."""
    curve, _ = pushed(EXPERIMENTS[name], lambda: 10**9)
    assert same(curve, run(EXPERIMENTS[name], 5))


@pytest.mark.parametrize("name", sorted(GAMES))
def test_games_are_the_same_however_people_come(name):
    """Counts and losses have clocks of their own; people bring their loss tables. (Local noise: as above.)"""
    experiment, plans = GAMES[name], []
    for most in (10**9,) if name.endswith("local") else (1, 37):
        setting, session, simulator = opened(experiment)
        plans.append([])
        while not session.ended:
            epoch = session.announce()
            plans[-1].append((epoch.start, epoch.plan.policy.tobytes()))
            while session.room:
                following = min(time for time in checkpoints(experiment.episodes) if time > session.done)
                n = min(session.room, most, int(following) - session.done)
                tables = setting.sequence.losses(session.done, session.done + n)
                session.add(simulator.rollout(epoch.plan.policy, n), tables)
            session.release()
    setting, session, simulator = opened(experiment)
    clock = Clock()
    hindsight = Hindsight(simulator, setting.sequence, experiment.episodes, clock)
    simulated = [(epoch.start, epoch.plan.policy.tobytes()) for epoch in play(session, hindsight.arrive, clock)]
    assert all(each == simulated for each in plans)
    assert len(simulated) > 3


def test_an_epoch_is_public_before_anybody_arrives_and_stays_what_it_is():
    _, session, simulator = opened(Experiment("spotlight", epsilon=3.0, **SIZES))
    first = session.announce()
    assert (first.start, session.room) == (0, first.users)
    assert isinstance(first.announcement, Targets)
    session.add(simulator.rollout(first.plan.policy, 1))
    assert session.announce() is first
    assert session.room == first.users - 1
    session.add(simulator.rollout(first.plan.policy, session.room))
    assert session.announce() is first  # until it is released
    release = session.release()
    second = session.announce()
    assert second.start == session.done == first.users
    assert release.num_episodes == first.users
    assert second.plan is not first.plan


def small_session(privatizer=None) -> tuple[Session, MDPSimulator]:
    """Ten people in epochs of four, four and two."""
    setting = Setting.of(Experiment("dp-ucbvi", states=3, horizon=4, episodes=10, epsilon=1.0))
    agent = setting.triple().agent
    stream = (privatizer or Epochs(Budget.pure(1.0))).open(setting.spec, 10, NoiseSource.seeded(0))
    session = Session(
        agent, stream, GeometricEpochs(growth=2.0, first=4), 10, told=("public: a fact", "public: a fact")
    )
    return session, MDPSimulator(setting.mdp, setting.law, 0)


def fill(session: Session, simulator: MDPSimulator) -> None:
    session.add(simulator.rollout(session.announce().plan.policy, session.room))


def test_what_comes_out_of_turn_is_refused_in_one_sentence_and_changes_nothing():
    session, simulator = small_session()
    someone = simulator.rollout(np.full((4, 3, 2), 0.5), 1)
    with pytest.raises(ValueError, match=r"^no epoch is open; announce one before people are added$"):
        session.add(someone)
    with pytest.raises(
        ValueError, match=r"^no epoch is open; announce one and add its people before it is released$"
    ):
        session.release()
    epoch = session.announce()
    with pytest.raises(
        ValueError, match=r"^the open epoch still waits for 4 of 4 people; add those who do not report"
    ):
        session.release()
    with pytest.raises(ValueError, match=r"^5 came and the open epoch has room for 4; nobody was added$"):
        session.add(simulator.rollout(epoch.plan.policy, 5))
    session.add(simulator.rollout(epoch.plan.policy, 3))
    with pytest.raises(ValueError, match=r"^2 came and the open epoch has room for 1; nobody was added$"):
        session.add(simulator.rollout(epoch.plan.policy, 2))
    with pytest.raises(ValueError, match=r"^the open epoch still waits for 1 of 4 people;"):
        session.release()
    assert (session.done, session.room, session.announce()) == (3, 1, epoch)
    session.add(someone)
    with pytest.raises(ValueError, match="room for 0"):
        session.add(someone)
    session.release()
    fill(session, simulator)
    session.release()
    fill(session, simulator)
    assert session.ended
    with pytest.raises(ValueError, match=r"^all 10 people have come; nobody else can be added$"):
        session.add(someone)
    session.release()
    with pytest.raises(ValueError, match=r"^all 10 people have come; nobody is left for another epoch$"):
        session.announce()
    with pytest.raises(ValueError, match=r"^all 10 people have come; nobody else can be added$"):
        session.add(someone)
    assert repr(session) == "Session(10 of 10 people)"


def test_sizes_are_the_schedules_and_the_last_epoch_takes_who_is_left():
    session, simulator = small_session()
    sizes = []
    while not session.ended:
        sizes.append(session.announce().users)
        fill(session, simulator)
        session.release()
    assert sizes == [4, 4, 2]


def test_who_leaves_without_a_record_fills_a_place_and_adds_nothing():
    session, simulator = small_session(Epochs(Budget.pure(np.inf)))
    epoch = session.announce()
    people = simulator.rollout(epoch.plan.policy, 3)
    session.add(people)
    nothing = np.zeros((0, 4))
    session.add(Episodes(np.zeros((0, 5)), nothing, nothing, silent=1))
    release = session.release()
    spec = CountSpec.for_episodes(3, 2, 4, False, 10)
    assert np.array_equal(release.visits, Counts.of(people, spec).visits)
    assert release.num_episodes == 4


def test_sums_enter_with_the_number_of_people_they_are_of():
    session, simulator = small_session()
    spec = CountSpec.for_episodes(3, 2, 4, False, 10)
    sums = Counts.of(simulator.rollout(session.announce().plan.policy, 5), spec)
    with pytest.raises(ValueError, match="5 came and the open epoch has room for 4"):
        session.add(sums)
    session.add(Counts.of(simulator.rollout(session.announce().plan.policy, 4), spec))
    assert session.release().num_episodes == 4


@pytest.mark.parametrize("make", [Epochs, LocalSampled])
def test_the_guarantee_is_that_of_the_stream_people_enter(make):
    session, _ = small_session(make(Budget.pure(0.5)))
    guarantee = session.guarantee
    assert guarantee.epsilon == pytest.approx(0.5)
    assert guarantee.model == ("joint" if make is Epochs else "local")
    assert guarantee.assumptions.count("public: a fact") == 1


def test_noise_is_drawn_once_and_the_last_epoch_may_be_released():
    session, simulator = small_session()
    seen = []
    while not session.ended:
        fill(session, simulator)
        seen.append(session.release())
    assert [release.num_episodes for release in seen] == [4, 8, 10]
    assert session._stream.release().visits.tobytes() == seen[-1].visits.tobytes()


def test_a_session_cannot_be_copied_and_shows_nobody():
    session, simulator = small_session()
    fill(session, simulator)
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copied(session)


def test_a_run_ends_when_nobody_comes_any_more():
    session, simulator = small_session()
    arrive = rollouts(simulator)
    few = (arrive(session.announce(), n) for n in (3, 1, 3))
    epochs = list(play(session, lambda epoch, room: next(few, None), Clock()))
    assert [(epoch.start, epoch.users) for epoch in epochs] == [(0, 4), (4, 4)]
    assert (session.done, session.room) == (7, 1)


class Own:
    """A learner of one's own, which does with a plan what it was told."""

    def __init__(self, change):
        self.change = change

    def plan(self, release, previous):
        return self.change(release, greedy_plan(release.model(), release.horizon))


def with_policy(change):
    return lambda release, best: Plan(change(best.policy), best.value, best.quality, release.num_episodes)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda release, best: None, "the learner planned a NoneType; expected a discreet.Plan"),
        (lambda release, best: best.policy, "the learner planned a ndarray; expected a discreet.Plan"),
        (with_policy(lambda policy: 2 * policy), r"row policy\[0, 0\] sums to 2; it must sum to 1"),
        (with_policy(lambda policy: policy - 0.5), r"policy\[0, 0, \d\] is -0.5; probabilities must not be negative"),
        (with_policy(lambda policy: policy * np.nan), r"policy\[0, 0, 0\] is nan"),
        (with_policy(lambda policy: policy[0]), r"policy has shape \(3, 2\); expected \(H, S, A\) = \(4, 3, 2\)"),
        (lambda release, best: replace(best, users=-5), "the plan is for -5 people; expected a whole number above 0"),
        (lambda release, best: replace(best, users=2.5), "the plan is for 2.5 people; expected a whole number"),
    ],
)
def test_a_plan_that_nobody_could_follow_is_refused_in_one_sentence(change, sentence):
    """A row of twice the probability would otherwise earn more than there is, and nobody would see it."""
    for epsilon in (None, 1.0):
        with pytest.raises(ValueError, match=sentence):
            run(Experiment(Own(change), epsilon=epsilon, pooled=True, **SIZES), 0)


def test_a_policy_in_single_precision_is_followed():
    single = with_policy(lambda policy: (0.7 * policy + 0.3 / 2).astype(np.float32))
    double = with_policy(lambda policy: 0.7 * policy + 0.3 / 2)
    found = [run(Experiment(Own(each), pooled=True, **SIZES), 0).regret_ratio for each in (single, double)]
    assert found[0] == pytest.approx(found[1], rel=1e-3)
