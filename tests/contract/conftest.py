"""Every privatizer, once: a newcomer added here is put through all contracts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from discreet.people.counts import CountSpec
from discreet.planning import Plan
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.sums.toeplitz import Toeplitz
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalGaussian, LocalLaplace, LocalSampled
from discreet.privacy.trust.shuffle import Shuffle
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedTree
from discreet.releases.counts import Thresholds

PURE, APPROXIMATE, ZCDP = Budget.pure(1.0), Budget.approximate(1.0, 1e-6), Budget.zcdp(0.5)


@dataclass(frozen=True)
class Case:
    """A privatizer up to its budget, and what the contracts must know about it."""

    name: str
    budget: Budget
    make: Callable[..., Any]
    continual: bool = True  # may release again after more users
    counters: bool = True  # independent noise of one law on every counter
    linear: bool = True  # the release is sum + noise, whatever the noise turned out to be
    sums: bool = True  # takes sums of users as well as their episodes
    batch: int = 1  # fewest users between two releases
    bounded: bool = True  # needs a declared range of rewards
    relations: tuple[str, ...] = ("replace", "zero-out")

    def privatizer(self, **settings: Any) -> Any:
        return self.make(self.budget, **settings)

    def without_noise(self) -> Any:
        endless = Budget.pure(math.inf) if self.budget.kind == "pure" else Budget.approximate(math.inf, 1e-6)
        return self.make(endless)


def with_settings(kind: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda budget, **settings: kind(budget, **(fixed | settings))


@dataclass(frozen=True)
class AtThresholdOne:
    """A truncating privatizer whose users were told to keep rewards up to 1: on [0, 1] it must be its plain twin."""

    inner: Any

    def open(self, spec: CountSpec, num_episodes: int, noise: NoiseSource) -> Any:
        stream = self.inner.open(replace(spec, reward_range=None), num_episodes, noise)
        nothing = np.zeros((1, 1, 1))
        thresholds = Thresholds(np.ones(spec.shapes()["visits"]))
        stream.begin(Plan(nothing, nothing[0], nothing, announcement=thresholds))
        return stream


def at_threshold_one(kind: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda budget, **settings: AtThresholdOne(kind(budget, **(fixed | settings)))


CASES = [
    Case("tree-laplace", PURE, with_settings(Tree, publish_final=True)),
    Case("tree-laplace-from-zcdp", ZCDP, with_settings(Tree, publish_final=True, mechanism="laplace")),
    Case("tree-gaussian", APPROXIMATE, with_settings(Tree, publish_final=True)),
    Case("tree-honaker", PURE, with_settings(Tree, publish_final=True, variant="honaker")),
    Case("tree-honaker-gaussian", ZCDP, with_settings(Tree, publish_final=True, variant="honaker")),
    Case("tree-smooth", PURE, with_settings(Tree, publish_final=True, variant="smooth")),
    Case("tree-smooth-gaussian", APPROXIMATE, with_settings(Tree, publish_final=True, variant="smooth")),
    Case("tree-constant-noise", PURE, with_settings(Tree, publish_final=True, constant_noise=True)),
    Case("epochs-laplace", PURE, Epochs),
    Case("epochs-gaussian", ZCDP, Epochs),
    Case("epochs-restart", PURE, with_settings(Epochs, window="restart"), linear=False),
    Case("epochs-restart-gaussian", APPROXIMATE, with_settings(Epochs, window="restart"), linear=False),
    Case("toeplitz", APPROXIMATE, with_settings(Toeplitz, num_blocks=16)),
    Case("one-shot-laplace", PURE, OneShot, continual=False),
    Case("one-shot-gaussian", APPROXIMATE, OneShot, continual=False),
    Case("truncated-tree", PURE, at_threshold_one(TruncatedTree, publish_final=True), sums=False, bounded=False),
    Case("truncated-epochs", PURE, at_threshold_one(TruncatedEpochs), sums=False, bounded=False),
    Case(
        "truncated-epochs-restart",
        PURE,
        at_threshold_one(TruncatedEpochs, window="restart"),
        linear=False,
        sums=False,
        bounded=False,
    ),
    Case("local-laplace", PURE, LocalLaplace, relations=("replace",)),
    Case("local-gaussian", ZCDP, LocalGaussian, relations=("replace",)),
    Case("local-gaussian-approximate", APPROXIMATE, LocalGaussian, relations=("replace",)),
    Case("shuffle", APPROXIMATE, Shuffle, counters=False, linear=False, sums=False, batch=2),
    Case("local-sampled", PURE, LocalSampled, counters=False, linear=False, sums=False, relations=("replace",)),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        wanted = CASES
        for name in ("continual", "counters", "linear", "sums", "bounded"):
            if metafunc.definition.get_closest_marker(name):
                wanted = [case for case in wanted if getattr(case, name)]
        metafunc.parametrize("case", wanted, ids=lambda case: case.name)
    if "spec" in metafunc.fixturenames:
        specs = [CountSpec(2, 2, 2, pooled, grid=2.0**-4) for pooled in (False, True)]
        metafunc.parametrize("spec", specs, ids=["staged", "pooled"])


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in (
        ("continual", "privatizers that may release more than once"),
        ("counters", "privatizers with independent noise of one law on every counter"),
        ("linear", "privatizers whose release is sum + noise"),
        ("sums", "privatizers that take sums of users"),
        ("bounded", "privatizers that need a declared range of rewards"),
    ):
        config.addinivalue_line("markers", f"{name}: {meaning}")
