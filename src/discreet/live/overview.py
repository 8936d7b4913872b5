"""What is public about a deployment at one moment, for its operator: the page, `status`, and the policy learned."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np

from discreet.agents.knowledge import known_from, model_of, with_borrowed
from discreet.agents.policy_elimination import EliminationPlan, PolicyElimination
from discreet.agents.spotlight import SpotlightPlan
from discreet.device.announcements import WHOLE, Announcement, Entry, Instructions
from discreet.device.encoders import first_visit
from discreet.live import terms
from discreet.live.charter import Charter
from discreet.live.deployment import State
from discreet.live.learning import Course
from discreet.mdp import Floats
from discreet.pages.operator import SHOWN, Cell, OpenEpoch, Overview, operator_page
from discreet.planning import policy_values
from discreet.policy import Policy
from discreet.releases.batches import Batch
from discreet.releases.counts import Model, PrivateCounts
from discreet.releases.reports import PrivateReports

#: Noise stays within so many standard deviations in 95 % of cases.
USUAL = 1.96
#: An alarm: more than so many times the predicted reports, and so many standard deviations beyond them.
FAR_MORE, DEVIATIONS = 2.0, 5.0
#: Epochs that are looked at for what came of the last predictions.
LOOKED_AT = 100


@dataclass(frozen=True)
class Service:
    """What a running server knows of itself; nothing of it concerns one person."""

    now: int | None = None  # milliseconds
    since: int | None = None  # when the last entry was written, as far as it knows
    spectators: int | None = None  # since it was started
    latency: tuple[float, float] | None = None  # of the store, milliseconds: half of all writes, 99 %


def page(state: State, entries: Sequence[Entry], service: Service | None = None) -> str:
    """The operator's page."""
    return operator_page(overview(state, entries, service))


def overview(state: State, entries: Sequence[Entry], service: Service | None = None) -> Overview:
    charter, course = state.charter, state.course
    told = service or Service()
    announced = last_announced(entries)
    cells = cells_of(course)
    alarms = tuple(
        f"Far more reports came from {cell.state}, {cell.action} than were predicted ({cell.came:,.0f} where "
        f"{cell.predicted:,.0f} were expected): look for people who lie, or for a world that has changed."
        for cell in cells
        if cell.alarm
    )
    return Overview(
        name=charter.name,
        guarantee=charter.guarantee.sentence(),
        model=charter.model,
        learner=charter.learner,
        epsilon=charter.epsilon,
        status=status(state),
        users=state.users,
        tickets=state.tickets,
        releases=state.released,
        open=tuple(_open(each) for each in state.open),
        states=names(charter.states),
        actions=names(charter.actions),
        plan=best_plan(course),
        before=plan_before(state, [each for _, each in announced]),
        cells=cells,
        alarms=alarms,
        epochs=_epochs(entries, announced),
        log=tuple(described(entry) for entry in reversed(entries[-SHOWN:])),
        head=state.head.hex(),
        number=state.number - 1,
        trust=terms.seen(charter),
        charter=facts_of(charter),
        as_of="the last entry" if told.now is None else moment(told.now),
        age=None if told.now is None or told.since is None else _age(told.since, told.now),
        spectators=told.spectators,
        latency=None if told.latency is None else f"{told.latency[0]:.1f} ms (99 %: {told.latency[1]:.1f} ms)",
    )


def summary(found: Overview) -> dict[str, Any]:
    """The same for programs, without the tables of the page."""
    kept = {"name", "guarantee", "model", "learner", "epsilon", "status", "users", "tickets", "releases", "head"}
    document = {name: value for name, value in vars(found).items() if name in kept}
    document["entries"] = found.number + 1
    document["open"] = [asdict(epoch) for epoch in found.open]
    document["alarms"] = list(found.alarms)
    return document


def status(state: State) -> str:
    if state.retired:
        return "retired"
    if state.paused:
        return "paused"
    full = state.users - state.places < state.course.least
    return "complete" if not state.open and full else "running"


def names(told: tuple[str, ...] | int) -> tuple[str, ...]:
    return tuple(map(str, range(told))) if isinstance(told, int) else told


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def facts_of(charter: Charter) -> dict[str, Any]:
    """The charter for the eye."""
    document = charter.document()
    document["serving"]["patience"] = f"{charter.patience / 1000:,g} s"
    return {
        f"{section} {name}": _shown(value)
        for section in list(document)[1:]
        for name, value in document[section].items()
    }


def _shown(value: Any) -> Any:
    return (
        value
        if isinstance(value, (int, float, str, bool)) or value is None
        else json.dumps(value, ensure_ascii=False)
    )


def _kind(entry: Entry) -> str:
    return str(entry.event["event"])


def _open(epoch: Any) -> OpenEpoch:
    deadline = moment(epoch.deadline) if epoch.full else None
    return OpenEpoch(epoch.epoch, epoch.size, epoch.out, epoch.announcement.repeats, deadline)


def _age(since: int, now: int) -> str:
    seconds = max(now - since, 0) // 1000
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


# The plan -----------------------------------------------------------------------------------------------------------


def best_plan(course: Course) -> Floats:
    """(H, S, A): what is best by all that was released; nobody explores with it."""
    plan, agent = course.plan, course.charter.triple(course.users).agent
    if isinstance(plan, EliminationPlan) and isinstance(agent, PolicyElimination):
        return agent.best(plan)
    cautious = plan.cautious if isinstance(plan, SpotlightPlan) else None
    return plan.policy if cautious is None else cautious


def table_of(told: Instructions, shape: tuple[int, int, int]) -> Floats:
    """Instructions as probabilities."""
    if told.weights is not None:
        return np.asarray(told.weights, dtype=np.float64) / WHOLE
    return np.asarray(np.eye(shape[2])[np.asarray(told.actions)])


def plan_before(state: State, announced: Sequence[Announcement]) -> Floats | None:
    """The best plan before the last release, as it was announced."""
    new = [each for each in announced if each.repeats is None]
    if not state.fresh:
        new = new[:-1]
    if not new or not state.released:
        return None
    last = new[-1]
    return table_of(
        last.after or last.policy, (state.charter.horizon, state.charter.num_states, state.charter.num_actions)
    )


def policy_of(course: Course) -> Policy:
    """What was learned, as a table that acts: the likeliest action, and whether releases say anything about it."""
    charter, plan = course.charter, best_plan(course)
    H, S, A = plan.shape
    actions = np.ascontiguousarray(plan.argmax(axis=2), dtype=np.int64)
    known = np.zeros((H, S, A), dtype=np.bool_)
    for cell in cells_of(course):
        steps = slice(None) if cell.step is None else cell.step
        known[steps, names(charter.states).index(cell.state), names(charter.actions).index(cell.action)] = cell.known
    low, high = charter.rewards
    left = (H - np.arange(H, dtype=np.float64))[:, None]
    values = left * low + (high - low) * _values(course)
    return Policy(
        actions,
        values,
        np.take_along_axis(known, actions[..., None], axis=2)[..., 0],
        A,
        None if isinstance(charter.states, int) else charter.states,
        None if isinstance(charter.actions, int) else charter.actions,
        charter.pooled,
    )


def _values(course: Course) -> Floats:
    """(H, S): of the plan in the model that was released; where nothing is known, nothing is earned."""
    charter, plan, released = course.charter, course.plan, learned(course)
    if isinstance(released, PrivateCounts):
        model = released.model()
    else:
        assert isinstance(plan, SpotlightPlan)
        assert plan.knowledge is not None
        alphabet = released.alphabet
        cells = with_borrowed(model_of(plan.knowledge, alphabet)[0], plan.knowledge, alphabet)
        shape = alphabet.stages, charter.num_states, charter.num_actions
        rows = np.where(cells.usable[:, None], cells.rows, 0.0).reshape(*shape, charter.num_states)
        means = np.where(cells.usable, cells.means, 0.0).reshape(shape)
        model = Model(np.ascontiguousarray(rows), np.ascontiguousarray(means), cells.counts.reshape(shape))
    return np.asarray(policy_values(model, np.ascontiguousarray(best_plan(course)))[0][: charter.horizon])


# What is known of cells ---------------------------------------------------------------------------------------------


def cells_of(course: Course) -> tuple[Cell, ...]:
    """Every action in every state, from releases and predictions."""
    if not course.sealed:
        return ()
    released = learned(course)
    if isinstance(released, PrivateCounts):
        return _counted_cells(course, released)
    assert isinstance(released, PrivateReports)
    return _reported_cells(course, released)


def learned(course: Course) -> Any:
    """The newest release that is about all steps."""
    whole = 0
    for number, epoch in enumerate(course.sealed, 1):
        told = epoch.plan.announcement
        if epoch.values.size and not (isinstance(told, Batch) and told.layer is not None):
            whole = number
    return course.privatizer.released(course.charter.spec, course.users, course.sealed[:whole])


def _reported_cells(course: Course, released: PrivateReports) -> tuple[Cell, ...]:
    plan, alphabet = course.plan, released.alphabet
    assert isinstance(plan, SpotlightPlan)
    assert plan.knowledge is not None
    knowledge, S, A = plan.knowledge, alphabet.num_states, alphabet.num_actions
    C, reading = alphabet.num_cells, knowledge.reading
    noise = knowledge.noise
    known = known_from(knowledge, alphabet)[1]
    states, actions = names(course.charter.states), names(course.charter.actions)
    asked = last_asked(course)
    found = []
    for cell in range(C):
        if not math.isfinite(noise[cell]):
            continue
        stage, place = divmod(cell, S * A)
        predicted, came, deviation = asked.get(cell, (None, None, 0.0))
        alarm = predicted is not None and came is not None and alarming(predicted, came, deviation)
        found.append(
            Cell(
                None if alphabet.stages == 1 else stage,
                states[place // A],
                actions[place % A],
                float(reading.counts[cell]),
                USUAL * math.sqrt(noise[cell] * alphabet.sizes[cell]),
                float(reading.means[cell]),
                USUAL * math.sqrt(reading.mean_variances[cell]),
                bool(known[cell]),
                predicted,
                came,
                alarm,
            )
        )
    return tuple(found)


def last_asked(course: Course) -> dict[int, tuple[float, float, float]]:
    """Of every cell that one of the last epochs asked for: reports predicted, those that came, and the standard
    deviation of the latter by noise and chance, had the prediction been right."""
    found: dict[int, tuple[float, float, float]] = {}
    for last in range(len(course.sealed), max(len(course.sealed) - LOOKED_AT, 0), -1):
        for cell, asked in brought(course, last).items():
            found.setdefault(cell, asked)
    return found


def brought(course: Course, last: int) -> dict[int, tuple[float, float, float]]:
    """The same for the cells of one epoch, the `last` of so many."""
    epoch = course.sealed[last - 1]
    if not isinstance(epoch.plan, SpotlightPlan) or epoch.plan.focus is None:
        return {}
    release: PrivateReports = course.privatizer.released(course.charter.spec, course.users, course.sealed[:last])
    assert release.targets is not None
    found = {}
    for row, values in zip(release.targets.rows.tolist(), release.histogram, strict=True):
        predicted = float(epoch.plan.focus.rates[row]) * epoch.users
        noise = release.variance * float(release.alphabet.sizes[row])
        found[row] = predicted, float(values.sum()), math.sqrt(noise + predicted)
    return found


def alarming(predicted: float, came: float, deviation: float) -> bool:
    """Whether far more came than was predicted: post-processing of releases."""
    return came > FAR_MORE * predicted + DEVIATIONS * deviation


def _counted_cells(course: Course, released: PrivateCounts) -> tuple[Cell, ...]:
    charter = course.charter
    states, actions = names(charter.states), names(charter.actions)
    G, S, A = released.visits.shape[0], charter.num_states, charter.num_actions
    visits, widths = released.visits, np.broadcast_to(released.widths.visits, released.visits.shape)
    rewards, reward_widths = released.model().rewards, np.broadcast_to(released.widths.rewards, released.visits.shape)
    found = []
    for g, s, a in np.ndindex(G, S, A):
        n = max(float(visits[g, s, a]), 1.0)
        width = min(float(reward_widths[g, s, a]) / n, 1.0)
        known = bool(visits[g, s, a] > widths[g, s, a])
        where = None if G == 1 else g, states[s], actions[a]
        found.append(
            Cell(*where, float(visits[g, s, a]), float(widths[g, s, a]), float(rewards[g, s, a]), width, known)
        )
    return tuple(found)


# The log ------------------------------------------------------------------------------------------------------------


def described(entry: Entry) -> dict[str, Any]:
    """An entry in words."""
    event = entry.event
    return {"entry": entry.number, "event": _kind(entry), "what": _said(event), "head": entry.name[:16]}


def _said(event: Mapping[str, Any]) -> str:
    kind = event["event"]
    if kind == "opened":
        return f"the charter of {event['charter']['name']}, and the key that signs"
    if kind == "announced":
        again = "" if event["repeats"] is None else f", as epoch {event['repeats']}"
        return f"epoch {event['epoch']}: instructions for {_many(event['size'], 'person', 'people')}{again}"
    if kind == "released" and not event["values"]:
        return f"epoch {event['epoch']}: {_many(event['tickets'], 'ticket', 'tickets')}, released with the next epoch"
    if kind == "released":
        return f"epoch {event['epoch']}: noisy sums of {_many(event['tickets'], 'ticket', 'tickets')}"
    if kind == "amended":
        return f"{event['users']:,} people may come"
    return {"paused": "no tickets", "resumed": "tickets again", "retired": "the end; the vault is erased"}[kind]


def _many(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def last_announced(entries: Sequence[Entry]) -> list[tuple[Entry, Announcement]]:
    """Those that the page shows, in order: a long log is not read whole for it."""
    last = islice((entry for entry in reversed(entries) if _kind(entry) == "announced"), SHOWN)
    return [(entry, Announcement.from_event(entry.event)) for entry in last][::-1]


def _epochs(entries: Sequence[Entry], announced: Sequence[tuple[Entry, Announcement]]) -> tuple[dict[str, Any], ...]:
    released = {int(entry.event["epoch"]): entry.number for entry in entries if _kind(entry) == "released"}
    rows = []
    for entry, told in reversed(announced):
        asked = first_visit(told.encoder)
        rows.append(
            {
                "epoch": told.epoch,
                "tickets": told.size,
                "asked for, cells": None if asked is None else len(asked.wanted),
                "numbers in its release": told.encoder.size,
                "repeats": told.repeats,
                "announced in entry": entry.number,
                "released in entry": released.get(told.epoch),
            }
        )
    return tuple(rows)
