"""Attacks on the shipped report streams: near the claim, never above it; broken ones are refuted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from discreet.agents.spotlight import Spotlight
from discreet.envs.rewards import RewardLaw
from discreet.mdp import FiniteMDP
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.privacy.accounting import Budget
from discreet.privacy.audit.games import Game, audited, balanced_score
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.reports import Reports
from discreet.problem import PublicStructure
from oracles_spotlight import BothStatistics, TwoReports, VisitedOnly, announced

START = PublicStructure(initial=np.array([1.0, 0.0]))
SPEC = CountSpec(2, 2, 2, True, 1.0)
TRIALS = 16_000
#: Where the other users live: nothing ever happens.
STAY = FiniteMDP(np.eye(2)[None, :, None, :].repeat(2, axis=2), np.zeros((1, 2, 2)), np.array([1.0, 0.0]), 2)

#: The user in question: she stays and never pays, or she goes right twice and pays both times.
WORLDS = (
    Episodes(np.array([[0, 0, 0]]), np.array([[0, 0]]), np.zeros((1, 2))),
    Episodes(np.array([[0, 1, 1]]), np.array([[1, 1]]), np.ones((1, 2))),
)


def report_game(privatizer, reports=1, classes=None):
    """One user per epoch, everything asked for: what is seen is the released histogram."""
    alphabet = privatizer.open(SPEC, 1, NoiseSource.seeded(0)).alphabet
    plan = asked(alphabet, classes)
    exactly = replace(privatizer, budget=Budget.pure(np.inf), reports=reports)
    centres = np.array([_alone(world, exactly, classes) for world in (0, 1)])

    def views(world, trials, noise):
        stream = privatizer.open(SPEC, trials, noise)
        rows = np.empty((trials, 16))
        for i in range(trials):
            stream.begin(plan)
            stream.add(WORLDS[world])
            rows[i] = stream.release().histogram.reshape(-1)
        return rows

    def scores(view):
        near = [np.abs(view - centre).sum(axis=1) for centre in centres]
        exact = [(view == centre)[:, centre != centres[1 - i]].sum(axis=1) for i, centre in enumerate(centres)]
        ways = balanced_score(view, centres, 2.0), near[0] - near[1], exact[1] - exact[0]
        return np.stack(ways, axis=1).astype(float)

    return Game(1.0, views, scores)


def asked(alphabet, classes=None):
    """Everything, successors one by one or in classes."""
    plan = announced(alphabet, range(4))
    return replace(plan, announcement=replace(plan.announcement, classes=classes))


def _alone(world, exactly=None, classes=None):
    """Her histogram without noise: the attacker knows both stories."""
    exactly = Reports(Budget.pure(np.inf), structure=START) if exactly is None else exactly
    stream = exactly.open(SPEC, 1, NoiseSource.seeded(0))
    stream.begin(asked(stream.alphabet, classes))
    stream.add(WORLDS[world])
    return stream.release().histogram.reshape(-1)


def test_the_shipped_stream_leaks_nearly_what_it_claims_and_no_more():
    found = audited("reports", report_game(Reports(Budget.pure(1.0), structure=START)), TRIALS)
    assert not found.refuted
    assert 0.75 < found.lower_bound <= 1.0


@pytest.mark.parametrize("classes", [np.array([0, 0]), np.array([1, 0])])
def test_reports_on_classes_leak_nearly_what_they_claim_and_no_more(classes):
    found = audited("classes", report_game(Reports(Budget.pure(1.0), structure=START), 1, classes), TRIALS)
    assert not found.refuted
    assert 0.75 < found.lower_bound <= 1.0


def test_single_outcomes_beside_their_class_at_the_noise_of_one_are_refuted():
    game = report_game(BothStatistics(Budget.pure(1.0), structure=START), 1, np.array([0, 0]))
    assert audited("both", game, TRIALS).refuted


def test_two_reports_leak_nearly_what_they_claim():
    found = audited("two reports", report_game(Reports(Budget.pure(1.0), reports=2, structure=START), 2), TRIALS)
    assert not found.refuted
    assert 0.65 < found.lower_bound <= 1.0


def test_a_second_report_with_the_noise_of_one_is_refuted():
    assert audited("second report", report_game(TwoReports(Budget.pure(1.0), structure=START), 2), TRIALS).refuted


def test_noise_on_visited_sub_cells_only_is_refuted():
    assert audited("visited only", report_game(VisitedOnly(Budget.pure(1.0), structure=START)), 4000).refuted


def local_game():
    privatizer = LocalReports(Budget.pure(1.0), START)

    def views(world, trials, noise):
        stream = privatizer.open(SPEC, trials, noise)
        stream.begin(announced(stream.alphabet, range(4)))
        one = WORLDS[world]
        noise_of_user = noise.spawn()
        rows = np.empty((trials, 16))
        answer = stream.encoder.answer(one.states[0], one.actions[0], one.rewards[0], noise_of_user)
        rows[:] = stream.encoder.randomise(np.full(trials, answer), noise_of_user)
        return rows

    def scores(view):
        places = [0, 7]  # (cell 0, s'=0, no reward) and (cell 1, s'=1, reward)
        return (view[:, places[1]] - view[:, places[0]])[:, None]

    return Game(1.0, views, scores)


def test_the_local_message_leaks_nearly_what_it_claims_and_no_more():
    found = audited("local report", local_game(), 60_000)
    assert not found.refuted
    assert 0.85 < found.lower_bound <= 1.0


# Targets ------------------------------------------------------------------------------------------------------------


PRIVATIZER = Reports(Budget.pure(1.0), structure=START)
AGENT = Spotlight(1000, START.initial)


def nearer(view):
    """Which world the histogram, the first 16 numbers, is nearer to; and what was seen beside it."""
    near = [np.abs(view[:, :16] - _alone(world)).sum(axis=1) for world in (0, 1)]
    return np.stack([near[0] - near[1], view[:, 16]], axis=1)


def adaptive_game(raw_targets):
    """Two epochs: the user in question is in the first, somebody else in the second, whose targets follow.

    Seen are the first release and the second targets: chosen by the shipped learner from the release, or by the
    mutant from the raw sums.
    """

    def views(world, trials, noise):
        rows = np.empty((trials, 17))
        for i in range(trials):
            stream = PRIVATIZER.open(SPEC, 3, noise)
            first = AGENT.plan(stream.release(), None)
            plan = announced(stream.alphabet, range(4))
            focus = first.focus._replace(wanted=plan.announcement.cells, rates=np.full(4, 0.25), users=1)
            asked = replace(first, announcement=plan.announcement, focus=focus)
            stream.begin(asked)
            stream.add(WORLDS[world])
            raw = stream._tally.reshape(4, 4).copy()
            release = stream.release()
            targets = AGENT.plan(release, asked).announcement.cells
            if raw_targets:
                targets = raw.sum(axis=1) > 0
            rows[i, :16] = release.histogram.reshape(-1)
            rows[i, 16] = float(targets[1]) - float(targets[0])
        return rows

    return Game(1.0, views, nearer)


# The plan for after the report --------------------------------------------------------------------------------------


def after_game(raw_after):
    """Two users of one epoch: the first is in question, the second reports and then follows the plan for afterwards.

    Seen are the release and what the second one does then: as the shipped learner announced it, or by the mutant that
    looks at the raw reports of the epoch so far.
    """

    def views(world, trials, noise):
        rows = np.empty((trials, 17))
        for i in range(trials):
            stream = PRIVATIZER.open(SPEC, 3, noise)
            first = AGENT.plan(stream.release(), None)
            everything = np.ones(4, dtype=bool)
            after = np.asarray(first.announcement.after)
            plan = replace(first, announcement=replace(first.announcement, cells=everything))
            stream.begin(plan)
            stream.add(WORLDS[world])
            if raw_after:  # play what the others have done
                raw = stream._tally.reshape(4, 4).sum(axis=1).reshape(2, 2).sum(axis=0)
                after = np.broadcast_to(np.eye(2)[int(raw.argmax())], after.shape)
            targets = replace(plan.announcement, after=after)
            second = MDPSimulator(STAY, RewardLaw("bernoulli"), int(noise.words(1)[0] % 2**31)).rollout(
                plan.policy, 1, targets
            )
            stream.add(second)
            rows[i, :16] = stream.release().histogram.reshape(-1)
            rows[i, 16] = float(second.actions[0, 1])
        return rows

    return Game(1.0, views, nearer)


@pytest.mark.parametrize(("game", "trials"), [(adaptive_game, 1200), (after_game, 1500)])
@pytest.mark.parametrize("raw", [False, True], ids=["releases", "raw sums"])
def test_targets_and_plans_that_follow_from_releases_add_nothing_and_from_raw_sums_are_refuted(game, trials, raw):
    assert audited("announcements", game(raw), trials).refuted == raw
