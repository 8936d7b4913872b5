"""People who lie: what a share of attackers does to Spotlight under every trust model, and what helps against them.

An attacker sends what the form of her trust model lets through and follows no randomiser. To a curator, or to two
servers whose proofs refuse anything else, that is one item; in unary encoding any bits; in randomised response one
answer; shuffled, any bits for every counter. Everybody else is honest, and nothing else differs from a run: with no
attackers it is one. docs/poisoning.md has what was measured.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from discreet.agents.spotlight import SpotlightPlan
from discreet.device.bits import BitEncoder
from discreet.device.encoders import ReportEncoder
from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.people.counts import CountSpec
from discreet.people.episodes import MDPSimulator
from discreet.planning import Plan, occupancy, optimal_plan, uniform_policy
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.local import summed_messages
from discreet.privacy.trust.local_reports import LocalReports, LocalReportStream
from discreet.privacy.trust.popcount import Popcount
from discreet.privacy.trust.reports import CuratorReportStream, Reports, ReportStream
from discreet.privacy.trust.shuffle_reports import ShuffleReports, ShuffleReportStream
from discreet.privacy.trust.shuffler import Tally, noise_sums
from discreet.problem import Mask
from discreet.releases.reports import PrivateReports, Targets, UserNoise
from discreet.runs.experiment import Experiment, Setting, generators
from discreet.runs.regret import RegretCurve
from discreet.runs.simulation import Clock, play, rollouts
from discreet.session import Session

#: Honest messages that the test of unary reports may refuse, and honest epochs that may raise an alarm.
FALSE_REFUSALS, FALSE_ALARMS = 1e-4, 1e-4
#: People of a run: whoever randomises at home needs more of them.
USERS, USERS_AT_HOME = 20_000, 200_000
#: Whom people trust, and how many of them lie, in the tables.
MODELS, SHARES = ("joint", "two-servers", "shuffle", "local"), (0.0, 0.01, 0.03, 0.05, 0.1)
#: A cell is suspicious from so many times its predicted reports on (beside its noise): predictions err, too.
FAR_MORE = 2.0

Kind: TypeAlias = Literal["item", "unary", "response", "bits"]


# What attackers want ------------------------------------------------------------------------------------------------


def claim(mdp: FiniteMDP) -> Ints:
    """A bad action pays, wherever it leads to: the worst action of every state, its usual successor first and then
    the others by what they are worth; the state that people meet most often at random comes first."""
    quality, values = _worth(mdp)
    actions, even = quality.argmin(axis=1), uniform_policy((mdp.horizon, mdp.num_states, mdp.num_actions))
    likely = mdp.transitions[0][np.arange(mdp.num_states), actions].argmax(axis=1)
    order = np.argsort(np.where(np.eye(mdp.num_states)[likely] > 0.0, -np.inf, -values), axis=1, kind="stable")
    return _items(actions, order, True, _met(mdp, even), quality.shape)


def deny(mdp: FiniteMDP) -> Ints:
    """The best action does not pay, wherever it leads to, and to the worst state above all: the best action of every
    state, the state where most is at stake first."""
    quality, values = _worth(mdp)
    stake = _met(mdp, optimal_plan(mdp).policy) * np.ptp(quality, axis=1)
    order = np.tile(np.argsort(values, kind="stable"), (mdp.num_states, 1))
    return _items(quality.argmax(axis=1), order, False, stake, quality.shape)


def swap(mdp: FiniteMDP) -> Ints:
    """Bad actions pay and good ones do not: `claim` where it can be claimed, else `deny`."""
    return np.concatenate([claim(mdp), deny(mdp)])


def _worth(mdp: FiniteMDP) -> tuple[Floats, Floats]:
    """What actions (S, A) and states (S,) are worth in the first step."""
    plan = optimal_plan(mdp)
    return plan.quality[0], plan.value[0]


def _met(mdp: FiniteMDP, policy: Floats) -> Floats:
    return np.asarray(occupancy(mdp, policy).sum(axis=(0, 2)))


def _items(actions: Ints, successors: Ints, paid: bool, weight: Floats, shape: tuple[int, ...]) -> Ints:
    """row·2S + 2·s' + paid of one cell per state, the heaviest state first, and then by its order of successors."""
    S, A = shape
    states = np.argsort(-weight, kind="stable")
    cells = states * A + actions[states]
    return np.asarray((cells[:, None] * 2 * S + 2 * successors[states] + paid).reshape(-1))


#: What is claimed, the most important item first; garbage claims nothing: random answers, and fair coins for bits.
ATTACKS: Mapping[str, Callable[[FiniteMDP], Ints] | None] = {
    "swap": swap,
    "claim": claim,
    "deny": deny,
    "garbage": None,
}


# What their messages may be -----------------------------------------------------------------------------------------


class Form(NamedTuple):
    """What one person may send: `copies` items, an answer or `copies` bits for each of D `items`."""

    kind: Kind
    items: int
    share: float = 0.0  # q of unary bits, γ of responses, p of noise bits
    copies: int = 1

    @classmethod
    def of(cls, encoder: ReportEncoder | BitEncoder) -> Form:
        if isinstance(encoder, BitEncoder):
            return cls("bits", encoder.num_counters, encoder.probability, 1 + encoder.noise_bits)
        return cls(encoder.method, encoder.num_items, encoder.share)

    @property
    def weight(self) -> float:
        """By how much one message can raise the estimate of a sub-cell, over one with nothing to report."""
        if self.kind == "unary":
            return (1.0 - self.share) / (0.5 - self.share)
        if self.kind == "response":
            return (1.0 - (1.0 - self.share) / (self.items + 1)) / self.share
        return self.copies - (self.copies - 1) * self.share

    @property
    def raised(self) -> int:
        """How many sub-cells one message raises that far."""
        return self.items if self.kind in ("unary", "bits") else 1


def forged(form: Form, aims: Ints | None, attackers: int, coins: np.random.Generator, test: Popcount | None) -> Ints:
    """What the messages of so many attackers add up to, per item; `aims` are places of items, None is garbage.

    Bits are on where they aim and off elsewhere. Attackers know the test and pass it: they put on others at random
    until enough are on, and aim at fewer where too many would be.
    """
    D = form.items
    if form.kind in ("item", "response"):
        sent = attackers * form.copies
        if aims is None:
            return np.asarray(coins.multinomial(sent, np.full(D + 1, 1.0 / (D + 1)))[:D], dtype=np.int64)
        return sent * np.isin(np.arange(D), aims[:1]).astype(np.int64)
    if aims is None:
        if test is None:
            return np.asarray(coins.binomial(attackers * form.copies, 0.5, D), dtype=np.int64)
        aims = np.zeros(0, dtype=np.int64)
    if test is not None:
        aims = aims[: test.most]
    on = np.zeros(D, dtype=np.int64)
    on[aims] = attackers * form.copies
    missing = 0 if test is None else max(test.fewest - aims.size, 0)
    if missing:
        others = np.setdiff1d(np.arange(D), aims)
        on[others] += _spread(attackers, missing, others.size, coins)
    return on


def _spread(attackers: int, each: int, places: int, coins: np.random.Generator) -> Ints:
    """How often each of the places is chosen when everybody chooses `each` of them at random."""
    orders = coins.permuted(np.tile(np.arange(places), (attackers, 1)), axis=1)[:, :each]
    return np.bincount(orders.reshape(-1), minlength=places)


# What helps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Defence:
    """What the server does about lies. All of it reads messages and releases, and costs no privacy.

    `popcount`: refuse unary messages with too few or too many bits on. `unary`: never ask for randomised responses.
    `lies`: believe of a sub-cell only what that share of attackers could not have put there.
    """

    popcount: bool = False
    unary: bool = False
    lies: float = 0.0


DEFENCES: Mapping[str, Defence] = {
    "none": Defence(),
    "popcount": Defence(popcount=True),
    "unary": Defence(unary=True),
    "robust": Defence(lies=0.03),
}


def believed(values: Floats, users: int, form: Form, lies: float) -> Floats:
    """Every sub-cell less what a share of attackers could have added to it: max(x − α·n·w, min(x, 0))."""
    return np.asarray(np.maximum(values - lies * users * form.weight, np.minimum(values, 0.0)))


def alarms(release: PrivateReports, predicted: Floats) -> Mask:
    """(targets,): cells of an epoch that look poisoned; post-processing of the release.

    Too much: more than FAR_MORE times what the learner had predicted, by more than the noise of the cell. Too
    little: a sub-cell further below zero than noise would take it. Honest epochs raise one with probability of
    about FALSE_ALARMS, where predictions are right to a factor of FAR_MORE.
    """
    assert release.targets is not None
    rows = release.targets.rows
    sizes = release.alphabet.sizes[rows]
    z = -NormalDist().inv_cdf(FALSE_ALARMS / (2.0 * float(sizes.sum())))
    mean = FAR_MORE * predicted
    reports = release.histogram.sum(axis=1)
    excess = reports - mean > z * np.sqrt(sizes * release.variance + mean + 1.0)
    # Laplace tails are heavier than Gaussian ones: P(X < −t) ≤ ½·exp(−√2·t/sd) decides where that is more.
    deepest = math.sqrt(release.variance) * max(z, math.log(sizes.sum() / FALSE_ALARMS) / math.sqrt(2.0))
    return np.asarray(excess | (release.histogram.min(axis=1) < -deepest))


class AlwaysUnary(UserNoise):
    """Unary encoding for any number of items."""

    def unary(self, items: int) -> bool:
        return math.isfinite(self.epsilon)


class UnaryReports(LocalReports):
    """Local reports in unary encoding, also where responses would have less variance."""

    @property
    def law(self) -> UserNoise:
        return AlwaysUnary(self.budget.total("laplace"))


# A run with attackers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Campaign:
    """Who lies about what, and what is done about it."""

    share: float
    wanted: Ints | None  # items, the most important first; None: garbage
    defence: Defence
    coins: np.random.Generator  # whose messages are forged, and how


class _Poisoned(ReportStream):
    """Some people of every epoch are attackers, unless nothing that they lie about is asked for."""

    def __init__(self, campaign: Campaign, *opened: Any) -> None:
        super().__init__(*opened)
        self._campaign, self._liars, self.suspicious = campaign, 0, 0
        self._aims: Ints | None = None
        self._predicted: Floats | None = None

    def begin(self, plan: Plan) -> None:
        super().begin(plan)
        focus = plan.focus if isinstance(plan, SpotlightPlan) else None
        self._predicted = None if focus is None else focus.rates[self._announced().rows]

    def _open(self, targets: Targets) -> None:
        super()._open(targets)
        self._liars, self._aims = 0, None
        if self._campaign.wanted is not None:
            places = self._place[self._campaign.wanted]
            self._aims = places[places >= 0]

    def _collect(self, items: Ints, users: int) -> None:
        silent = self._aims is not None and not self._aims.size
        liars = 0 if silent else int(self._campaign.coins.binomial(users, self._campaign.share))
        self._liars += liars
        super()._collect(items[liars:], users - liars)
        self._came(liars)

    def _lies(self, form: Form, test: Popcount | None = None) -> Ints:
        return forged(form, self._aims, self._liars, self._campaign.coins, test)

    def _drawn(self, users: int) -> PrivateReports:
        release = super()._drawn(users)
        if self._predicted is not None:
            self.suspicious += bool(alarms(release, self._predicted * users).any())
        return release

    def _doubted(self, form: Form, estimate: tuple[Ints | Floats, float]) -> tuple[Ints | Floats, float]:
        values, variance = estimate
        lies = self._campaign.defence.lies
        return (believed(np.asarray(values, dtype=np.float64), self._users, form, lies) if lies else values), variance


class _Curator(_Poisoned, CuratorReportStream):
    def _estimate(self) -> tuple[Any, float]:
        form = Form("item", self._items.size, copies=self._reports)
        self._tally += self._lies(form)
        return self._doubted(form, super()._estimate())


class _AtHome(_Poisoned, LocalReportStream):
    def _test(self) -> Popcount | None:
        if not self._campaign.defence.popcount or self.encoder.method != "unary":
            return None
        return _test_of(self.encoder.num_items, self.encoder.share)

    def _named(self, places: Ints) -> Ints:
        test = self._test()
        if test is None:
            return super()._named(places)
        counted, refused = np.zeros(self._items.size, dtype=np.int64), 0
        for part in np.array_split(places[:, 0], 1 + places.size // 4096):
            messages = np.asarray(self.encoder.randomise(part, self._noise), dtype=np.bool_)
            passes = test.passes(messages)
            counted += messages[passes].sum(axis=0)
            refused += int(passes.size - np.count_nonzero(passes))
        nothing = np.full(refused, -1, dtype=np.int64)
        return counted + summed_messages(self.encoder, nothing, self._noise)

    def _estimate(self) -> tuple[Any, float]:
        form = Form.of(self.encoder)
        self._tally += self._lies(form, self._test())
        return self._doubted(form, super()._estimate())


@lru_cache(maxsize=1024)
def _test_of(items: int, share: float) -> Popcount:
    return Popcount.at(items, share, FALSE_REFUSALS)


class _Shuffled(_Poisoned, ShuffleReportStream):
    def _shuffled(self, encoder: BitEncoder, own: Ints) -> Tally:
        """Attackers add no noise."""
        honest = own + noise_sums(encoder, self._users - self._liars, self._noise)
        return Tally(honest + self._lies(Form.of(encoder)), self._users)

    def _estimate(self) -> tuple[Any, float]:
        return self._doubted(Form.of(self.encoder(self._users)), super()._estimate())


def opened(privatizer: Any, spec: CountSpec, users: int, noise: NoiseSource, campaign: Campaign) -> _Poisoned:
    """The stream of a privatizer of reports, with attackers among its people."""
    if isinstance(privatizer, LocalReports):
        if campaign.defence.unary:
            privatizer = UnaryReports(privatizer.budget, privatizer.structure, privatizer.neighbours)
        return _AtHome(campaign, privatizer, spec, users, noise)
    if isinstance(privatizer, ShuffleReports):
        return _Shuffled(campaign, privatizer, spec, users, noise)
    if isinstance(privatizer, Reports):
        return _Curator(campaign, privatizer, spec, users, noise)
    raise ValueError("only learners from reports can be attacked here; take spotlight")


class Outcome(NamedTuple):
    """What became of one run."""

    value: float  # of the last plan
    ratio: float  # regret over that of the uniform policy
    suspicious: int  # epochs with an alarm
    optimal: float
    random: float


def attacked(
    experiment: Experiment,
    attack: str = "swap",
    share: float = 0.0,
    defence: Defence = DEFENCES["none"],
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """A run of Spotlight (pooled) in which that share of people are attackers; with none it is `run`."""
    if attack not in ATTACKS:
        raise ValueError(f"unknown attack {attack!r}; choose one of {', '.join(ATTACKS)}")
    if not 0.0 <= share < 1.0:
        raise ValueError(f"the share of attackers is {share:g}; it must be at least 0 and below 1")
    setting, K = Setting.of(experiment), experiment.episodes
    if not setting.said.pooled:
        raise ValueError("attacks are stated for pooled steps; pool the steps")
    environment, noise = generators(seed)
    simulator = MDPSimulator(setting.mdp, setting.law, environment, setting.problem.reward_range)
    aim, coins = ATTACKS[attack], np.random.default_rng([seed, 0xBAD])
    campaign = Campaign(share, None if aim is None else aim(setting.mdp), defence, coins)
    agent, privatizer, schedule = setting.triple(seed)
    stream = opened(privatizer, setting.spec, K, noise, campaign)
    session = Session(agent, stream, schedule, K, setting.problem.assumptions())
    curve = RegretCurve(setting.mdp, K)
    for epoch in play(session, rollouts(simulator), Clock()):
        curve.add(*epoch.played)
        if progress is not None:
            progress(epoch.users)
    span = K * (curve.optimal - curve.random)
    ratio = float(curve.regret[-1]) / span if span else math.nan
    return Outcome(curve.last, ratio, stream.suspicious, curve.optimal, curve.random)


def experiment_of(
    model: str, env: str | FiniteMDP = "riverswim", epsilon: float = 1.0, users: int | None = None, **others: Any
) -> Experiment:
    """Spotlight under a trust model, with as many people as it needs."""
    users = users or (USERS_AT_HOME if model == "local" else USERS)
    delta = 1e-6 if model == "shuffle" else 0.0
    return Experiment(
        "spotlight", env=env, model=model, epsilon=epsilon, delta=delta, pooled=True, episodes=users, **others
    )


# What was measured --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One setting, over seeds."""

    env: str
    model: str
    users: int
    epsilon: float
    attack: str
    share: float
    defence: str
    seeds: int
    value: float  # of the last plan, mean over seeds
    worst: float
    ratio: float  # regret over that of the uniform policy, mean over seeds
    alarmed: float  # share of runs with an alarm
    optimal: float
    random: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.env, self.model, self.users, self.epsilon, self.attack, self.share, self.defence


def measured(
    experiment: Experiment,
    attack: str,
    share: float,
    defence: str,
    seeds: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> Measured:
    """One setting over seeds."""
    found = [attacked(experiment, attack, share, DEFENCES[defence], seed, progress) for seed in seeds]
    said, values = experiment.resolved.settings, [each.value for each in found]
    assert experiment.epsilon is not None
    return Measured(
        str(said["env"]),
        str(said["model"]),
        experiment.episodes,
        experiment.epsilon,
        attack,
        share,
        defence,
        len(found),
        round(float(np.mean(values)), 4),
        round(min(values), 4),
        round(float(np.mean([each.ratio for each in found])), 4),
        round(float(np.mean([each.suspicious > 0 for each in found])), 4),
        round(found[0].optimal, 4),
        round(found[0].random, 4),
    )


def from_csv(text: str) -> list[Measured]:
    kinds: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
    readers = {each.name: kinds[str(each.type)] for each in fields(Measured)}
    return [
        Measured(**{name: readers[name](value) for name, value in row.items()})
        for row in csv.DictReader(text.splitlines())
    ]


@lru_cache(maxsize=1)
def shipped() -> tuple[Measured, ...]:
    """The tables of docs/poisoning.md, which come with the package (benchmarks/results_poisoning.py writes them)."""
    return tuple(from_csv((files("discreet.runs") / "poisoned.csv").read_text(encoding="utf-8")))


def row(model: str, env: str = "riverswim", attack: str = "swap", defence: str = "none") -> list[Measured]:
    """What was measured under a trust model at ε = 1, by share of attackers: one line of the table.

    Without attackers it makes no difference what they would say.
    """
    found = [r for r in shipped() if (r.env, r.model, r.epsilon, r.defence) == (env, model, 1.0, defence)]
    return sorted((r for r in found if r.attack == attack or not r.share), key=lambda r: r.share)
