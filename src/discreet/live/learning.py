"""What a deployment has learned: a fold of what it has published, so that everybody can compute it again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from discreet.catalog import Triple
from discreet.device.announcements import WHOLE, Announcement, Instructions
from discreet.device.bits import BitEncoder
from discreet.device.encoders import Form, ItemEncoder, first_visit
from discreet.device.shares import ShareEncoder, task_name
from discreet.device.shuffled import ShuffledEncoder
from discreet.live.charter import Charter
from discreet.mdp import Floats, frozen
from discreet.planning import Plan
from discreet.privacy.protocol import Deployable, Sealed
from discreet.releases.batches import Batch
from discreet.releases.reports import Targets
from discreet.vdaf.flp import best_chunk_length


@dataclass(frozen=True, eq=False)
class Course:
    """The learner between two announcements: all its releases, and its plan for the next epoch.

    `plans` are those of the epochs that are still out. A release is read with the plan that announced it and with
    everything that was learned meanwhile (`Plan.told_by`).
    """

    charter: Charter
    users: int  # who may come by now
    plan: Plan
    plans: Mapping[int, Plan] = field(default_factory=dict)
    sealed: tuple[Sealed, ...] = ()
    before: Plan | None = None  # what the plan was made from, beside the last release
    analyzer: str | None = None  # what messages that come through a shuffler are sealed for (X25519, hex)

    @classmethod
    def begun(cls, charter: Charter, hpke: bytes | None = None) -> Course:
        plan = _planned(charter.triple(), charter, charter.users, (), None)
        return cls(charter, charter.users, plan, analyzer=None if hpke is None else hpke.hex())

    @cached_property
    def privatizer(self) -> Deployable[Any]:
        privatizer = self.charter.triple(self.users).privatizer
        assert isinstance(privatizer, Deployable)
        return privatizer

    def size(self, given_out: int) -> int:
        """People of the next epoch, when so many have a place in one before it."""
        wished = self.plan.users or self.charter.triple(self.users).schedule.length(given_out)
        left, least = self.users - given_out, self.least
        size = min(max(wished, least), left)
        return size if isinstance(self.plan.announcement, Batch) or left - size >= least else left

    @property
    def least(self) -> int:
        """The fewest people of an epoch: a shuffler hides one among others, of whom one can be relied on."""
        batched = self.charter.shuffler is not None and not isinstance(self.plan.announcement, Batch)
        return max(2, math.ceil(1.0 / self.charter.honest)) if batched else 1

    def announcement(self, epoch: int, given_out: int) -> Announcement:
        plan, told = self.plan, self.plan.announcement
        after, size = told.after if isinstance(told, Targets) else None, self.size(given_out)
        return Announcement(
            epoch,
            None,
            size,
            instructions(plan.policy),
            None if after is None else instructions(after),
            self._form(plan, epoch, size),
        )

    def _form(self, plan: Plan, epoch: int, users: int) -> Form:
        """What the people of an epoch are asked for; it names the task and whom it is sealed for, where it is."""
        form, helper = self.privatizer.form(self.charter.spec, plan, users), self.charter.helper
        if isinstance(form, BitEncoder):
            assert self.analyzer is not None
            return ShuffledEncoder(form, self.analyzer, task_of(self.charter, epoch - len(self.waiting)))
        if helper is None or not isinstance(form, ItemEncoder):
            return form
        task, chunk = task_of(self.charter, epoch), best_chunk_length(form.num_items + 1)
        told = form.tables, form.items, task, helper.hpke, chunk
        return ShareEncoder(*told, form.has_start, form.last_successor)

    @property
    def waiting(self) -> tuple[Sealed, ...]:
        """The epochs whose people are released together with those of the next one."""
        ends = (i for i in range(len(self.sealed), 0, -1) if self.sealed[i - 1].values.size)
        return self.sealed[next(ends, 0) :]

    def expected(self, announcement: Announcement) -> int:
        """How many numbers the release of the oldest epoch has: none where its batch goes on."""
        encoder = announcement.encoder
        if isinstance(encoder, ShuffledEncoder):
            came = announcement.size + sum(epoch.users for epoch in self.waiting)
            return encoder.size if came == encoder.bits.users else 0
        return encoder.size

    def told(self, announcement: Announcement) -> Course:
        """After an epoch was announced. What it is told counts as written, whatever would be planned today."""
        if announcement.repeats is not None:
            plan = self.plans[announcement.repeats]
        else:
            plan = replace(self.plan, announcement=_targets(announcement, self.plan))
        return replace(self, plans={**self.plans, announcement.epoch: plan})

    def released(self, epoch: int, users: int, values: Any) -> Course:
        """After the release of an epoch of so many people."""
        plans = dict(self.plans)
        announced = plans.pop(epoch)
        sealed = (*self.sealed, Sealed(announced, users, frozen(values, np.int64)))
        triple = self.charter.triple(self.users)
        before = self.plan.told_by(announced)
        plan = _planned(triple, self.charter, self.users, sealed, before)
        return replace(self, plan=plan, plans=plans, sealed=sealed, before=before)

    def amended(self, users: int) -> Course:
        """With a plan for as many as may come now: the last epoch of a smaller crowd would have been another one."""
        plan = _planned(self.charter.triple(users), self.charter, users, self.sealed, self.before)
        return replace(self, users=users, plan=plan)


def _planned(triple: Triple, charter: Charter, users: int, sealed: Sequence[Sealed], previous: Plan | None) -> Plan:
    privatizer: Any = triple.privatizer
    return triple.agent.plan(privatizer.released(charter.spec, users, sealed), previous)


def task_of(charter: Charter, epoch: int) -> str:
    """Names an epoch of a deployment (`task_name`)."""
    return task_name(charter.digest, epoch)


def _targets(announcement: Announcement, plan: Plan) -> Any:
    """What the epoch was asked for, as it was published."""
    told = plan.announcement
    asked = first_visit(announcement.encoder)
    if not isinstance(told, Targets) or asked is None:
        return told
    cells = np.zeros_like(told.cells)
    cells[sorted(asked.wanted)] = True
    return replace(told, cells=cells)


def instructions(policy: Floats) -> Instructions:
    """A policy (H, S, A) as whole weights of 2³²; as actions where it is deterministic. Ties of rounding go to the
    likeliest action."""
    if ((policy == 0.0) | (policy == 1.0)).all():
        return Instructions(actions=_tuples(policy.argmax(axis=2)))
    weights = np.floor(policy * WHOLE).astype(np.int64)
    best = policy.argmax(axis=2)[..., None]
    left = WHOLE - weights.sum(axis=2, keepdims=True)
    np.put_along_axis(weights, best, np.take_along_axis(weights, best, 2) + left, 2)
    return Instructions(weights=_tuples(weights))


def _tuples(table: Any) -> Any:
    return tuple(map(_tuples, table)) if table.ndim > 1 else tuple(table.tolist())
