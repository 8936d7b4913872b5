"""The tables of docs/live.md: epochs that drain, people who leave, people who lie, alarms, and live
beside simulated.

    python benchmarks/results_live.py              all of them (about 15 minutes on one core)
    python benchmarks/results_live.py --only drain one of drain, leaving, alarms, parity

Simulations of Spotlight's epochs with the law of a deployment, seeds 0 to 9 (parity: from 100 on,
alarms: from 200 on); no constant was chosen on them.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import tables
from discreet.agents.spotlight import SpotlightPlan
from discreet.device.announcements import Announcement as Told
from discreet.live.charter import Charter
from discreet.live.deployment import recovered
from discreet.live.overview import alarming, brought
from discreet.live.people import simulated_log
from discreet.live.people import worth as exact_worth
from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.privacy.noise import NoiseSource
from discreet.problem import Problem, PublicStructure
from discreet.releases.reports import PrivateReports, Targets
from discreet.runs.experiment import Experiment, Setting, built
from discreet.runs.regret import RegretCurve
from discreet.runs.simulation import Clock, play, rollouts
from discreet.session import Session, statistic

PROBLEMS: dict[str, dict[str, Any]] = {
    "RiverSwim": {"env": "riverswim", "states": 6, "horizon": 20},
    "two rooms": {"env": "two-rooms"},
    "sparse dirichlet": {"env": "sparse-dirichlet"},
    "dirichlet": {"env": "dirichlet"},
}
SEEDS, ALARMED = range(10), range(200, 206)
USERS = 20_000


def shop(pays: float) -> FiniteMDP:
    """Four steps of "nothing", which pays .40, or "coupon", which pays so much and drives people away."""
    return FiniteMDP(np.ones((1, 2, 1)), [[0.4, pays]], [1.0], 4, name=f"shop-{pays:g}")


#: Problems and, by state and action, how likely somebody leaves whom a step paid nothing; None: LEAVERS in all.
LEFT: dict[str, tuple[dict[str, Any], list[list[float]] | None]] = {
    "shop, coupon pays .35": ({"env": shop(0.35)}, [[0.0, 0.3]]),
    "shop, coupon pays .45": ({"env": shop(0.45)}, [[0.0, 0.3]]),
    "RiverSwim": (PROBLEMS["RiverSwim"], None),
    "sparse dirichlet": (PROBLEMS["sparse dirichlet"], None),
}


def setting(problem: str, users: int = USERS, **options: Any) -> Setting:
    place = LEFT[problem][0] if problem in LEFT else PROBLEMS[problem]
    said = {"epsilon": 1.0, "pooled": True, **place, **options}
    return Setting.of(Experiment("spotlight", episodes=users, **said))


@dataclass
class Learner:
    """Spotlight and its stream. A release is read with the plan that announced it and all that is known by now."""

    problem: Problem
    entry: Any
    seed: int
    latest: Any = None  # plan
    agent: Any = field(init=False)
    stream: Any = field(init=False)

    def __post_init__(self) -> None:
        self.agent, privatizer, _ = built(self.entry, replace(self.problem, tie_seed=self.seed))
        noise = NoiseSource.seeded(1000 + self.seed)
        self.stream = privatizer.open(statistic(self.problem), self.problem.num_episodes, noise)
        self.latest = self.agent.plan(self.stream.release(), None)

    def collected(self, plan: SpotlightPlan, people: Callable[[Any], None]) -> PrivateReports:
        """One epoch under a plan."""
        self.stream.begin(plan)
        people(self.stream)
        found: PrivateReports = self.stream.release()
        return found

    def learn(self, release: PrivateReports, plan: SpotlightPlan, promised: int) -> None:
        """`promised`: tickets of all epochs that were announced, so that nobody is planned for twice."""
        told = replace(plan, knowledge=self.latest.knowledge)
        self.latest = self.agent.plan(replace(release, num_episodes=promised), told)


def worth(mdp: FiniteMDP, plan: SpotlightPlan) -> tuple[float, float]:
    """What ticket holders get, and what those get who follow the cautious plan."""
    assert plan.cautious is not None
    targets = plan.announcement
    assert isinstance(targets, Targets)
    told = () if targets.after is None else (targets,)
    return policy_value(mdp, plan.policy, *told), policy_value(mdp, plan.cautious)


# Epochs that drain --------------------------------------------------------------------------------------------------


def drained(problem: str, overlap: str, drain: int, seed: int) -> tuple[float, float, int]:
    """(regret over that of the random policy, of the first USERS who come; last gap; releases)."""
    place = setting(problem)
    mdp, K = place.mdp, USERS
    best, even = ends(mdp)
    learner = Learner(place.problem, place.entry, seed)
    simulator = MDPSimulator(mdp, place.law, np.random.SeedSequence(seed).spawn(1)[0])
    regret, came, out, releases = 0.0, 0, 0, 0
    waiting: deque[tuple[int, PrivateReports, SpotlightPlan]] = deque()  # when an epoch may be read

    def play(users: int, value: float) -> None:
        nonlocal regret, came
        counted = max(min(users, K - came), 0)
        regret, came = regret + counted * (best - value), came + users

    def read() -> None:
        nonlocal releases
        _, release, plan = waiting.popleft()
        learner.learn(release, plan, out)
        releases += 1

    while came < K and out < K:
        plan: SpotlightPlan = learner.latest
        users = min(plan.users or K, K - out)
        out += users
        told = () if plan.announcement.after is None else (plan.announcement,)  # type: ignore[union-attr]
        people = simulator.rollout(plan.policy, users, *told)
        release = learner.collected(plan, lambda stream, people=people: stream.add(people))
        mine, theirs = worth(mdp, plan)
        play(users, mine)
        waiting.append((came + drain, release, plan))
        while waiting and waiting[0][0] <= came:
            read()
        most = 1 if overlap == "wait" else 2  # epochs that are open at once
        while len(waiting) >= most:
            play(waiting[0][0] - came, theirs)
            read()
    play(K - came, theirs)
    return regret / (K * (best - even)), (best - worth(mdp, learner.latest)[1]) / (best - even), releases


def ends(mdp: FiniteMDP) -> tuple[float, float]:
    """Values of the best and of the uniform policy."""
    shape = mdp.horizon, mdp.num_states, mdp.num_actions
    return float(mdp.initial @ optimal_plan(mdp).value[0]), policy_value(mdp, uniform_policy(shape))


def drain_table() -> Iterator[str]:
    yield "| problem | draining takes | wait: regret | last gap | releases | repeat: regret | last gap | releases |"
    yield "|---|---|---|---|---|---|---|---|"
    for problem in PROBLEMS:
        for drain in (0, 30, 100, 1000):
            columns = [np.array([drained(problem, how, drain, seed) for seed in SEEDS]) for how in ("wait", "repeat")]
            cells = [
                f"{v[:, 0].mean():.3f} ± {v[:, 0].std(ddof=1):.3f} | {v[:, 1].mean():.3f} | {v[:, 2].mean():.0f}"
                for v in columns
            ]
            yield f"| {problem} | {drain:,} arrivals | {cells[0]} | {cells[1]} |"


# People who leave ---------------------------------------------------------------------------------------------------

LEAVERS = 0.3


def leaving(mdp: FiniteMDP, hazard: Floats) -> FiniteMDP:
    """After a step that pays nothing people leave with this probability (S, A), for a state that pays nothing."""
    _, S, A, _ = mdp.transitions.shape
    gone = hazard * (1.0 - mdp.rewards[0])
    P = np.zeros((S + 1, A, S + 1))
    P[:S, :, :S] = mdp.transitions[0] * (1.0 - gone)[..., None]
    P[:S, :, S] = gone
    P[S, :, S] = 1.0
    return FiniteMDP(P, np.vstack([mdp.rewards[0], np.zeros((1, A))]), np.append(mdp.initial, 0.0), mdp.horizon)


def hazard_of(problem: str, mdp: FiniteMDP) -> Floats:
    """(S, A): as declared, or that at which LEAVERS of those who act at random leave before the end."""
    given = LEFT[problem][1]
    if given is not None:
        return np.array(given)
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        world = leaving(mdp, np.full(mdp.rewards[0].shape, middle))
        here, S = world.initial, world.num_states
        for _ in range(mdp.horizon):
            here = here @ world.transitions[0].mean(axis=1)
        low, high = (middle, high) if here[S - 1] < LEAVERS else (low, middle)
    return np.full(mdp.rewards[0].shape, high)


@dataclass(frozen=True)
class Leavers:
    """Simulated people: (n, H+1) states, (n, H) actions and bits as if nobody left, and when each left (H: never)."""

    mdp: FiniteMDP
    hazard: Floats
    rng: np.random.Generator

    def visit(self, policy: Floats, after: Floats, wanted: Any, n: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """… and the step of the first visit to a target (H: none)."""
        H, A = self.mdp.horizon, self.mdp.num_actions
        P, r = self.mdp.transitions[0].cumsum(axis=-1), self.mdp.rewards[0]
        states, actions = np.zeros((n, H + 1), dtype=np.int64), np.zeros((n, H), dtype=np.int64)
        bits, left, told = np.zeros((n, H), dtype=np.int64), np.full(n, H), np.full(n, H)
        states[:, 0] = (self.rng.random((n, 1)) > self.mdp.initial.cumsum()[:-1]).sum(axis=1)
        for h in range(H):
            s = states[:, h]
            rows = np.where((told < h)[:, None], after[h][s], policy[h][s]).cumsum(axis=1)
            a = np.minimum((self.rng.random((n, 1)) >= rows).sum(axis=1), A - 1)
            following = np.minimum((self.rng.random((n, 1)) >= P[s, a]).sum(axis=1), self.mdp.num_states - 1)
            paid = self.rng.random(n) < r[s, a]
            goes = ~paid & (self.rng.random(n) < self.hazard[s, a])
            states[:, h + 1], actions[:, h], bits[:, h] = following, a, paid
            told = np.where((told == H) & wanted[s * A + a], h, told)
            left = np.where((left == H) & goes, h, left)
        return states, actions, bits, left, told


def with_gone(place: Setting) -> Problem:
    """One more state, declared."""
    problem = place.problem
    assert problem.structure.initial is not None
    start = PublicStructure(np.append(problem.structure.initial, 0.0))
    return replace(problem, num_states=problem.num_states + 1, structure=start)


def left(problem: str, how: str, seed: int) -> tuple[float, float, float]:
    """(regret ratio, last gap, the largest error of the reward of a cell with more than 100 reports)."""
    place = setting(problem, reward_law="bernoulli")
    mdp, K, S, A = place.mdp, USERS, place.mdp.num_states, place.mdp.num_actions
    hazard = hazard_of(problem, mdp)
    world = leaving(mdp, hazard)
    best, even = ends(world)
    learner = Learner(with_gone(place) if how == "gone" else place.problem, place.entry, seed)
    people = Leavers(mdp, hazard, np.random.default_rng(seed))

    def wider(policy: Floats) -> Floats:
        return policy if policy.shape[1] > S else np.concatenate([policy, policy[:, :1]], axis=1)

    out, regret = 0, 0.0
    while out < K:
        plan: SpotlightPlan = learner.latest
        users = min(plan.users or K, K - out)
        targets, cautious = plan.announcement, plan.cautious
        assert isinstance(targets, Targets)
        assert cautious is not None
        after = plan.policy if targets.after is None else targets.after
        wanted = np.append(targets.cells[: S * A], np.zeros(A, dtype=np.bool_))
        states, actions, bits, gone, told = people.visit(plan.policy, after, wanted, users)
        if how == "gone":  # a time-out is where she went, and pays nothing
            late = np.arange(people.mdp.horizon)[None] >= gone[:, None]
            states[:, 1:][late] = S
            bits[:, 1:][late[:, :-1]] = 0
            silent = np.zeros(users, dtype=np.bool_)
        else:
            silent = gone < people.mdp.horizon if how == "end" else gone < np.minimum(told, people.mdp.horizon)
        episodes = Episodes(states, actions, bits.astype(np.float64)).without(silent)
        release = learner.collected(plan, lambda stream, episodes=episodes: stream.add(episodes))
        out += users
        known = Targets(wanted, wider(after))
        regret += users * (best - policy_value(world, wider(plan.policy), known))
        learner.learn(release, plan, out)
    knowledge = learner.latest.knowledge
    counts, means = knowledge.reading.counts[: S * A], knowledge.reading.means[: S * A]
    seen = counts > 100
    errors = (means - mdp.rewards[0].reshape(-1))[seen]
    error = float(errors[np.abs(errors).argmax()]) if seen.any() else math.nan
    last = policy_value(world, wider(learner.latest.cautious))
    return regret / (K * (best - even)), (best - last) / (best - even), error


def leaving_table() -> Iterator[str]:
    yield "| problem | reported | regret | last gap | worst error of a known reward |"
    yield "|---|---|---|---|---|"
    names = {
        "end": "at the end, or not at all",
        "step": "right after the target",
        "gone": "right after it, with a state for those who left",
    }
    for problem in LEFT:
        for how, text in names.items():
            found = np.array([left(problem, how, seed) for seed in SEEDS])
            mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
            yield f"| {problem} | {text} | {mean[0]:.3f} ± {spread[0]:.3f} | {mean[1]:.3f} | {mean[2]:+.3f} |"


# People who lie -----------------------------------------------------------------------------------------------------


def lie_of(targets: Targets, S: int, A: int) -> int | None:
    """The item "left: I stayed, and it paid" of the first such cell that is asked for; where none is, "right: I was
    thrown back to the start, and it did not pay"."""
    cells = [int(c) for c in targets.rows if c < S * A]
    if not cells:
        return None
    left = [c for c in cells if c % A == 0]
    return 2 * S * left[0] + 2 * (left[0] // A) + 1 if left else 2 * S * cells[0]


# Alarms -------------------------------------------------------------------------------------------------------------


def lying(share: float) -> Callable[[str, Told, bytes], bytes]:
    """So many people tell what `lie_of` says; the others what happened to them."""

    def sends(name: str, told: Told, payload: bytes) -> bytes:
        encoder: Any = told.encoder
        if int.from_bytes(hashlib.sha256(f"liar {name}".encode()).digest()[:4], "big") >= share * 2**32:
            return payload
        cells = np.zeros(encoder.tables.cells[0] + 1, dtype=np.bool_)
        cells[sorted(encoder.wanted)] = True
        item = lie_of(Targets(cells), encoder.tables.num_states, encoder.tables.num_actions)
        return payload if item is None else encoder.items.index(item).to_bytes(4, "little")

    return sends


def alarms(problem: str, share: float, seed: int, model: str = "joint", users: int = 3000) -> tuple[int, int]:
    """(alarms, predictions) of all epochs of a deployment."""
    mdp, key = setting(problem).mdp, Ed25519PrivateKey.generate()
    terms = charter(model, 1.0 if model == "joint" else 3.0, users, mdp)
    noise, coins = NoiseSource.seeded(seed), NoiseSource.seeded(1000 + seed)
    log = simulated_log(terms, mdp, noise, key, seed=str(seed), sends=lying(share), coins=coins)
    course = recovered(log, {}).course
    found = [each for last in range(len(course.sealed)) for each in brought(course, last + 1).values()]
    return sum(alarming(*each) for each in found), len(found)


def alarm_table() -> Iterator[str]:
    yield "| people | runs with an alarm | alarms | predictions |"
    yield "|---|---|---|---|"
    for problem, share, model, seeds in (
        *(("RiverSwim", share, "joint", ALARMED) for share in (0.0, 0.05, 0.1, 0.2)),
        *((problem, 0.0, "joint", ALARMED[:3]) for problem in PROBLEMS if problem != "RiverSwim"),
        ("RiverSwim", 0.0, "local", ALARMED[:3]),
    ):
        found = np.array([alarms(problem, share, seed, model) for seed in seeds])
        runs = f"{np.count_nonzero(found[:, 0])} of {len(found)}"
        who = f"{problem}, {model}, {f'{100 * share:g} % lie' if share else 'all honest'}"
        yield f"| {who} | {runs} | {found[:, 0].sum()} | {found[:, 1].sum()} |"


# Live beside simulated ----------------------------------------------------------------------------------------------

REHEARSED, SIMULATED = range(100, 130), range(100, 300)


def charter(model: str, epsilon: float, users: int, mdp: FiniteMDP) -> Charter:
    problem = {"states": mdp.num_states, "actions": mdp.num_actions, "horizon": mdp.horizon, "pooled": True}
    problem["start"] = mdp.initial.tolist()
    privacy = {"model": model, "epsilon": epsilon, "users": users}
    return Charter.from_document({"name": "river", "problem": problem, "privacy": privacy})


def live(model: str, epsilon: float, users: int, seed: int) -> float:
    """The regret ratio of a deployment to which people come one after the other, each with a report of her own."""
    mdp, key = setting("RiverSwim").mdp, Ed25519PrivateKey.generate()
    noise, coins = NoiseSource.seeded(seed), NoiseSource.seeded(1000 + seed)
    log = simulated_log(charter(model, epsilon, users, mdp), mdp, noise, key, seed=str(seed), coins=coins)
    return exact_worth(log, mdp).regret_ratio


def simulated(place: Setting, seed: int) -> float:
    """The same of a simulation that breaks ties as deployments do, always in the same order."""
    session = Session.open(place.triple(0), place.problem, NoiseSource.seeded(seed))
    people = MDPSimulator(place.mdp, place.law, np.random.SeedSequence(seed).spawn(1)[0])
    curve = RegretCurve(place.mdp, place.problem.num_episodes)
    for epoch in play(session, rollouts(people), Clock()):
        curve.add(*epoch.played)
    found = curve.measured()
    return float(found["regret"][-1] / found["random_regret"])


def parity_table() -> Iterator[str]:
    yield "| RiverSwim | live: regret | simulated: regret | difference over its standard error |"
    yield "|---|---|---|---|"
    for model, epsilon, users in (("joint", 1.0, 2000), ("local", 4.0, 4000)):
        place = setting("RiverSwim", users, epsilon=epsilon, model=model)
        found = [
            np.array([live(model, epsilon, users, seed) for seed in REHEARSED]),
            np.array([simulated(place, seed) for seed in SIMULATED]),
        ]
        error = math.sqrt(sum(v.var(ddof=1) / v.size for v in found))
        cells = " | ".join(f"{v.mean():.3f} ± {v.std(ddof=1):.3f}" for v in found)
        z = (found[0].mean() - found[1].mean()) / error
        yield f"| {model}, ε = {epsilon:g}, {users:,} people | {cells} | {z:+.1f} |"


TABLES = {
    "drain": drain_table,
    "leaving": leaving_table,
    "alarms": alarm_table,
    "parity": parity_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES, help="one of the tables, to the terminal")
    options = parser.parse_args()
    page = tables.DOCS / "live.md"
    for name, made in TABLES.items():
        if options.only not in (None, name):
            continue
        lines = []
        for line in made():
            print(line, file=sys.stderr, flush=True)
            lines.append(line)
        if options.only is None:
            before = page.read_text()
            start, end = before.index(f"<!-- {name} -->"), before.index(f"<!-- end of {name} -->")
            page.write_text(before[:start] + f"<!-- {name} -->\n" + "\n".join(lines) + "\n" + before[end:])


if __name__ == "__main__":
    main()
