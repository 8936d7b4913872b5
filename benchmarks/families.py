"""Problems that a learner meets for the first time: generators with many instances, grouped into families.

A family is used either to choose constants ("tuning") or to report ("reporting"), or was written when the learner was
finished ("textbook"); its instances are functions of a number. Tuning uses instances from 100 on and seeds from 5000
on, tables instances and seeds below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from discreet.envs import tabular
from discreet.envs.generators import (
    bandit,
    birth_death,
    branch,
    changing,
    deep_sea,
    dense,
    diffuse,
    dirichlet,
    exceptions,
    garnet,
    grid,
    inventory,
    jumps,
    ladder,
    lognormal,
    lure,
    nonstationary,
    queue,
    riverswim,
    routing,
    segments,
    strens,
    swapping,
)
from discreet.mdp import FiniteMDP
from textbook import (
    cliff,
    dosage,
    epidemic,
    forest,
    gambler,
    graph,
    latent,
    layers,
    lock,
    machine,
    puddles,
    recommender,
    ring,
    taxi,
    tree,
    tutor,
)

Split = Literal["tuning", "reporting", "textbook"]


@dataclass(frozen=True)
class Problem:
    """One generator; `staged` learners get a model per step."""

    family: str
    name: str
    split: Split
    build: Callable[[int], FiniteMDP]
    staged: bool = False
    instances: int = 2


PROBLEMS: tuple[Problem, ...] = (
    Problem("riverswim", "R6", "tuning", riverswim(6, 20), instances=1),
    Problem("riverswim", "M3", "tuning", riverswim(3, 6), instances=1),
    Problem("riverswim", "R8", "tuning", riverswim(8, 24), instances=1),
    Problem("grid", "grid 4", "tuning", grid(4, 16)),
    Problem("grid", "grid 5", "tuning", grid(5, 20)),
    Problem("grid", "grid 5, random start", "tuning", grid(5, 20, random_start=True)),
    Problem("dense", "dense 5", "tuning", dense(5, 3, 10)),
    Problem("dense", "dense 10", "tuning", dense(10, 5, 10)),
    Problem("queue", "queue 8", "tuning", queue(8)),
    Problem("queue", "queue 12", "tuning", queue(12)),
    Problem("branch", "branch 1", "tuning", branch(1)),
    Problem("branch", "branch 2", "tuning", branch(2)),
    Problem("branch", "branch 5", "tuning", branch(5)),
    Problem("branch", "branch 10", "tuning", branch(10)),
    Problem("branch", "branch 20", "tuning", branch(20)),
    Problem("diffuse", "diffuse 12", "tuning", diffuse(12)),
    Problem("diffuse", "diffuse 20", "tuning", diffuse(20)),
    Problem("lure", "lure 5", "tuning", lure(5)),
    Problem("lure", "lure 8", "tuning", lure(8)),
    Problem("lognormal", "lognormal 20", "tuning", lognormal(20, 1 / 8), instances=4),
    Problem("lognormal", "lognormal 40", "tuning", lognormal(40, 1 / 8), instances=4),
    Problem("wide and dense", "lognormal 30, all pay", "tuning", lognormal(30, 1.0), instances=4),
    Problem("jumps", "jumps 24", "tuning", jumps(24), instances=4),
    Problem("jumps", "jumps 50", "tuning", jumps(50, 2), instances=4),
    Problem("ladder", "ladder 5", "tuning", ladder(5), instances=4),
    Problem("ladder", "ladder 8", "tuning", ladder(8), instances=4),
    Problem("riverswim, staged", "M3 staged", "tuning", riverswim(3, 6), True, 1),
    Problem("riverswim, staged", "R6 staged", "tuning", riverswim(6, 20), True, 1),
    Problem("changing", "change 4", "tuning", changing, True),
    Problem("dense, staged", "dense 5 staged", "tuning", dense(5, 3, 8), True),
    Problem("segments", "segments 1", "tuning", segments(4, 8, 1), True, 4),
    Problem("segments", "segments 3", "tuning", segments(3, 9, 3), True, 4),
    Problem("exceptions", "exceptions 4", "tuning", exceptions, True, 4),
    Problem("two rooms", "two rooms", "reporting", lambda i: tabular.two_rooms(), instances=1),
    Problem("deep sea", "deep sea 8, slip", "reporting", deep_sea(8, 0.05)),
    Problem("deep sea", "deep sea 12, slip", "reporting", deep_sea(12, 0.05)),
    Problem("garnet", "garnet 10", "reporting", garnet(10, 3, 15)),
    Problem("garnet", "garnet 20", "reporting", garnet(20, 3, 20)),
    Problem("lake", "lake 4", "reporting", grid(4, 20, 0.3, holes=2)),
    Problem("lake", "lake 5", "reporting", grid(5, 24, 0.2, holes=3)),
    Problem("bandit", "bandit 10", "reporting", bandit(10, 4)),
    Problem("bandit", "bandit 20", "reporting", bandit(20, 5)),
    Problem("dirichlet", "dirichlet 5", "reporting", dirichlet(5)),
    Problem("dirichlet", "dirichlet 10", "reporting", dirichlet(10)),
    Problem("dirichlet", "dirichlet 20", "reporting", dirichlet(20)),
    Problem("dirichlet", "dirichlet 40", "reporting", dirichlet(40)),
    Problem("birth-death", "birth-death 8", "reporting", birth_death(8)),
    Problem("birth-death", "birth-death 16", "reporting", birth_death(16)),
    Problem("routing", "routing 3×3", "reporting", routing(3)),
    Problem("routing", "routing 4×4", "reporting", routing(4)),
    Problem("chain", "chain 5", "reporting", strens(5)),
    Problem("chain", "chain 8", "reporting", strens(8)),
    Problem("inventory", "inventory 6", "reporting", inventory(6)),
    Problem("inventory", "inventory 12", "reporting", inventory(12)),
    Problem("swapping", "swap once", "reporting", swapping(4, 12, 1), True),
    Problem("swapping", "swap often", "reporting", swapping(3, 6, 3), True),
    Problem("nonstationary", "nonstationary 4", "reporting", nonstationary, True, 4),
    Problem("deep sea, staged", "deep sea 6 staged", "reporting", deep_sea(6, 0.05), True),
    Problem("garnet, staged", "garnet 6 staged", "reporting", garnet(6, 2, 8), True),
    Problem("bandit, staged", "bandit 20 staged", "reporting", bandit(20, 5), True),
    Problem("machine", "machine 8", "textbook", machine(8)),
    Problem("machine", "machine 15", "textbook", machine(15)),
    Problem("forest", "forest 8", "textbook", forest(8)),
    Problem("dosage", "dosage 8", "textbook", dosage(8, 4)),
    Problem("dosage", "dosage 12", "textbook", dosage(12, 5)),
    Problem("epidemic", "epidemic", "textbook", epidemic()),
    Problem("tutor", "tutor 6", "textbook", tutor(6, 4)),
    Problem("tutor", "tutor 10", "textbook", tutor(10, 3)),
    Problem("recommender", "recommender 4×4", "textbook", recommender(4, 4, 6)),
    Problem("recommender", "recommender 6×4", "textbook", recommender(6, 4, 6)),
    Problem("lock", "lock 6", "textbook", lock(6, 2)),
    Problem("lock", "lock 7", "textbook", lock(7, 3)),
    Problem("tree", "tree 3", "textbook", tree(3)),
    Problem("tree", "tree 4", "textbook", tree(4)),
    Problem("graph", "graph 30", "textbook", graph(30)),
    Problem("graph", "graph 50", "textbook", graph(50)),
    Problem("layers", "layers 4×5", "textbook", layers(4, 5, 3, 2)),
    Problem("layers", "layers 6×6", "textbook", layers(6, 6, 4, 3)),
    Problem("taxi", "taxi 3", "textbook", taxi(3)),
    Problem("taxi", "taxi 4", "textbook", taxi(4)),
    Problem("cliff", "cliff", "textbook", cliff()),
    Problem("puddles", "puddles 5", "textbook", puddles(5)),
    Problem("puddles", "puddles 6", "textbook", puddles(6)),
    Problem("gambler", "gambler", "textbook", gambler()),
    Problem("ring", "ring 15", "textbook", ring(15, 20)),
    Problem("ring", "ring 30", "textbook", ring(30, 30)),
    Problem("latent", "latent 18", "textbook", latent(18)),
    Problem("latent", "latent 30", "textbook", latent(30)),
)
