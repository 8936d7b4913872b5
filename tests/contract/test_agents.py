"""What every agent promises, checked for every learner, model and form of the catalog."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from desks import FEATURES, numbers, people

from discreet.agents.vapvi import VAPVI
from discreet.catalog import ALGORITHMS, MODES
from discreet.offline.learners import answered
from discreet.people.counting import LoggedData, OneStep, Rows, StepRows
from discreet.people.counts import Counts
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.people.logs import LogFormat, table_of
from discreet.privacy.accounting import Budget
from discreet.privacy.crowd import Crowd, Keeper
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.raw import RawSums
from discreet.privacy.trust.linear import LinearMoments, MomentStream
from discreet.runs.experiment import Experiment, Setting
from oracles_streams import stacked

SIZES = {"states": 3, "horizon": 3, "episodes": 300}
TINY = {"env": "nonstationary-dirichlet", "states": 2, "horizon": 2, "episodes": 600}
LOG = LogFormat(2, 2, 2, early_end="keep")
#: What holds people's data, or makes it.
RAW = (Keeper, Crowd, RawSums, Counts, Episodes, NoiseSource, MDPSimulator, np.random.Generator)


def experiments() -> dict[str, Experiment]:
    found = {}
    for name, entry in ALGORITHMS.items():
        if entry.runner == "offline":
            continue
        for model in entry.models if entry.private else (None,):
            for mode in MODES if "mode" in entry.options else ("practical",):
                said: dict[str, Any] = {"algorithm": name, "mode": mode, **(TINY if entry.staged else SIZES)}
                if model is not None:
                    said |= {"epsilon": 3.0, "model": model, "delta": 1e-6 if model == "shuffle" else 0.0}
                found[f"{name}-{model or 'none'}-{mode}"] = Experiment(**said)
    return found


EXPERIMENTS = experiments()
every = pytest.mark.parametrize("name", sorted(EXPERIMENTS))


def planned(experiment: Experiment, rounds: int = 3):
    """(agent, [(release, previous plan, plan)]) of the first rounds of a run."""
    setting = Setting.of(experiment)
    simulator = MDPSimulator(setting.mdp, setting.law, 0)
    steps, plan = [], None
    agent, privatizer, _ = setting.triple()
    if setting.sequence is not None:
        stream = privatizer.open(setting.spec, NoiseSource.seeded(0))
        losses = np.random.default_rng(0)
        for _ in range(rounds):
            release = stream.release()
            steps.append((release, plan, agent.plan(release, plan)))
            plan = steps[-1][2]
            stream.add(simulator.rollout(plan.policy, 20), losses.random((20, *plan.policy.shape)))
            stream.close_counts()
            stream.close_losses()
        return agent, steps
    stream = privatizer.open(setting.spec, experiment.episodes, NoiseSource.seeded(0))
    for _ in range(rounds):
        release = stream.release()
        steps.append((release, plan, agent.plan(release, plan)))
        plan = steps[-1][2]
        if hasattr(stream, "begin"):
            stream.begin(plan)
        stream.add(simulator.rollout(plan.policy, min(plan.users or 20, 90)))
    return agent, steps


def reachable(thing: Any) -> list[Any]:
    """Everything that can be got at from an object: attributes, containers, closures, defaults."""
    seen: dict[int, Any] = {}
    waiting = [thing]
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type | str | bytes | int | float | complex | None):
            continue
        seen[id(found)] = found
        if isinstance(found, dict):
            waiting += [*found.keys(), *found.values()]
        elif isinstance(found, list | tuple | set | frozenset):
            waiting += list(found)
        elif isinstance(found, np.ndarray):
            waiting.append(found.base)
        else:
            waiting += list(getattr(found, "__dict__", {}).values())
            waiting += [getattr(found, slot, None) for slot in getattr(type(found), "__slots__", ())]
            waiting += [cell.cell_contents for cell in getattr(found, "__closure__", None) or ()]
            waiting += [getattr(found, "__self__", None), *(getattr(found, "args", ()) or ())]
    return list(seen.values())


@every
def test_agents_are_frozen_and_plan_purely(name):
    """The same release and previous plan give the same plan, and neither is changed by it."""
    agent, steps = planned(EXPERIMENTS[name])
    assert is_dataclass(agent)
    with pytest.raises(FrozenInstanceError):
        setattr(agent, fields(agent)[0].name, None)
    told = repr(agent)
    for release, previous, plan in steps:
        given = [array.copy() for array in [*numbers(release), *numbers(previous)]]
        again = agent.plan(release, previous)
        assert all(np.array_equal(a, b) for a, b in zip(numbers(plan), numbers(again), strict=True))
        after = [*numbers(release), *numbers(previous)]
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(given, after, strict=True))
    assert repr(agent) == told


@every
def test_policies_are_distributions(name):
    _, steps = planned(EXPERIMENTS[name])
    for _, _, plan in steps:
        assert plan.policy.min() >= 0.0
        assert plan.policy.sum(axis=-1) == pytest.approx(np.ones(plan.policy.shape[:-1]), abs=1e-9)
        assert not plan.policy.flags.writeable


@every
def test_nothing_that_holds_raw_data_can_be_reached_from_an_agent_or_a_plan(name):
    agent, steps = planned(EXPERIMENTS[name])
    for release, previous, plan in steps:
        assert not [type(found) for found in reachable((agent, release, previous, plan)) if isinstance(found, RAW)]


def test_the_search_finds_what_is_hidden():
    source = NoiseSource.seeded(0)
    for hidden in ({"a": [source]}, lambda: source, source.laplace):
        assert any(isinstance(found, RAW) for found in reachable(hidden))


def test_an_agent_that_asks_for_regressions_holds_none_of_what_answers_them():
    """Between a question and its answer the agent is at rest: nothing raw can be reached, whatever it remembers."""
    stream = LinearMoments(Budget.zcdp(1.0), variances=True).open(
        LoggedData(table_of(stacked(people(40))), LOG).rows(), LOG.spec, 2, NoiseSource.seeded(0)
    )
    asked = VAPVI(FEATURES, weighted=True).questions(stream.horizon, stream.num_successors, stream.num_users)
    steps = []

    class Watched:
        def regress(self, *question):
            kept = reachable((asked.gi_frame.f_locals, question))
            assert not [
                found
                for found in kept
                if isinstance(found, (*RAW, MomentStream, LoggedData, OneStep, Rows, StepRows))
            ]
            steps.append(question[:2])
            return stream.regress(*question)

    plan, _ = answered(asked, Watched())
    assert steps == [(1, "values"), (0, "variances"), (0, "values")]
    assert plan.policy.sum(axis=-1) == pytest.approx(1.0)
