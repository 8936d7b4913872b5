"""What privatizers of other things than tables of counts promise, checked for each of them (desks.py)."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pytest
from desks import DESKS, SPEC, numbers, people, same

from discreet.privacy import sums, trust
from discreet.privacy.noise import NoiseSource
from oracles_streams import random_episodes, spends_its_budget, stacked

every = pytest.mark.parametrize("desk", DESKS, ids=lambda desk: desk.name)
declaring = pytest.mark.parametrize("desk", [d for d in DESKS if d.declares], ids=lambda desk: desk.name)


@every
def test_two_releases_without_an_add_are_identical(desk):
    opened = desk.open(8, NoiseSource.seeded(1))
    users = people(8)
    if desk.again:
        assert same(opened.release(), opened.release())
    opened.add([stacked(users[:5])])
    first = opened.release()
    before = [array.copy() for array in numbers(first)]
    assert same(first, opened.release())
    if desk.again:
        opened.add([stacked(users[5:])])
        assert not same(first, opened.release())
        assert all(np.array_equal(a, b) for a, b in zip(before, numbers(first), strict=True))  # nothing moves later


@every
def test_seeded_runs_repeat_and_secure_ones_do_not(desk):
    def run(noise):
        opened = desk.open(8, noise)
        opened.add([stacked(people(8))])
        return opened.release()

    assert same(run(NoiseSource.seeded(5)), run(NoiseSource.seeded(5)))
    assert not same(run(NoiseSource.seeded(5)), run(NoiseSource.seeded(6)))
    assert any(not same(run(NoiseSource.secure()), run(NoiseSource.secure())) for _ in range(8))


@declaring
def test_more_users_than_declared_are_refused_before_anything_is_added(desk):
    users = people(6)
    opened, alone = (desk.open(4, NoiseSource.seeded(0)) for _ in range(2))
    if not desk.again:
        with pytest.raises(ValueError, match="declared"):
            opened.add([stacked(users[:5])])
        for each in (opened, alone):
            each.add([stacked(users[:4])])
        assert same(opened.release(), alone.release())
        return
    for each in (opened, alone):
        each.add([stacked(users[:2])])
    first = opened.release()
    alone.release()
    with pytest.raises(ValueError, match="3 more episodes would exceed the 4 declared"):
        opened.add([stacked(users[2:5])])
    assert same(first, opened.release())
    for each in (opened, alone):
        each.add([stacked(users[2:4])])
    assert same(opened.release(), alone.release())
    assert opened.release().num_episodes == 4


@every
def test_the_ledger_composes_to_the_guarantee_and_the_guarantee_to_the_budget(desk):
    """Where parts of the users are released by themselves, each of them may spend the whole budget."""
    for neighbours in desk.relations:
        for guarantee in desk.open(16, NoiseSource.seeded(0), neighbours).parts():
            assert (guarantee.model, guarantee.neighbours) == (desk.model, neighbours)
            spends_its_budget(guarantee, desk.budget)


@every
def test_p8_a_bad_record_is_a_user_who_contributes_nothing_and_nobody_else_notices(desk):
    """Whatever is wrong with it, alone or among others: the same release."""
    good, alone, among = people(3), [], []
    for bad in desk.open(4, NoiseSource.seeded(0)).bad:
        opened = desk.open(4, NoiseSource.seeded(0))
        opened.add([bad, *good])
        alone.append(opened.release())
        if bad.horizon == SPEC.horizon:
            opened = desk.open(4, NoiseSource.seeded(0))
            opened.add([stacked([good[0], bad, *good[1:]])])
            among.append(opened.release())
    assert len(alone) >= 5
    for releases in (alone, among):
        assert all(same(releases[0], release) for release in releases[1:])


@pytest.mark.parametrize("desk", [d for d in DESKS if d.exact], ids=lambda desk: desk.name)
def test_p8_without_noise_bad_records_add_nothing(desk):
    """The tables are those of the others alone; the number of users is not."""
    good = people(3)

    def tables(records):
        opened = desk.open(4, NoiseSource.seeded(0), budget=desk.endless)
        opened.add(records)
        return [array for array in numbers(opened.release()) if array.ndim]

    expected = tables(good)
    assert any(array.any() for array in expected)
    for bad in desk.open(4, NoiseSource.seeded(0)).bad:
        found = tables([*good, bad])
        assert all(np.allclose(a, b, rtol=0.0, atol=1e-6) for a, b in zip(expected, found, strict=True))


@every
def test_streams_cannot_be_pickled_or_copied_and_show_no_more_than_how_many_they_hold(desk):
    opened = desk.open(8, NoiseSource.seeded(0))
    opened.add([stacked(people(8))])
    stream = opened.stream
    if stream is None:  # a function of a log: nothing is left that could be pickled
        return
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            action(stream)
    assert re.fullmatch(r"\w+\(8( of 8)? (episodes|users)\)", repr(stream))


def test_streams_of_counts_cannot_be_pickled_or_copied_either(case, spec):
    stream = case.privatizer().open(spec, 8, NoiseSource.seeded(0))
    stream.add(stacked(random_episodes(spec, 5)))
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            action(stream)
    assert re.fullmatch(r"\w+\(5 of 8 episodes\)", repr(stream))


def privatizers() -> set[str]:
    """Every class with a budget that opens a stream, or releases by itself."""
    return {
        name
        for room in (sums, trust)
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")
        for name, kind in inspect.getmembers(importlib.import_module(found.name), is_dataclass)
        if "budget" in kind.__dataclass_fields__ and (hasattr(kind, "open") or hasattr(kind, "release"))
        if not inspect.isabstract(kind)
    }


def test_every_privatizer_of_the_package_is_under_contract():
    """It must be made by some case of this folder, not merely imported."""
    listed = "".join((Path(__file__).parent / name).read_text() for name in ("desks.py", "conftest.py"))
    used = {node.id for node in ast.walk(ast.parse(listed)) if isinstance(node, ast.Name)}
    assert {"Tree", "Reports", "Tilted", "CentralLosses", "TruncatedLocal", "TruncatedTree"} <= privatizers()
    assert privatizers() <= used
