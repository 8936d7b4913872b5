"""The demonstration: what privacy costs online, what it costs from a log, and everything that is left to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from discreet.cli.options import Jobs, Json, Seeds, number_of_users, written
from discreet.cli.running import NOT_A_RELEASE, beside, comparison_table, executed, guarantees
from discreet.cli.terminal import compilation_notice, note, say, say_json, show
from discreet.runs.seeds import seed_list

if TYPE_CHECKING:
    from discreet.runs.experiment import Experiment
    from discreet.runs.report import Summary

#: RiverSwim with six states, counts pooled over steps, and this budget for all learners that are compared.
EPSILON = 1.0
#: Whom users may trust, in words, and with which delta: bits that are shuffled need one.
TRUSTED = {
    "joint": ("a curator", 0.0),
    "two-servers": ("two servers, not both", 0.0),
    "shuffle": ("a mixer", 1e-6),
    "local": ("nobody", 0.0),
}
EPSILONS = (0.5, EPSILON, 4.0)
#: People of the log swim upstream so often, more than a coin would say and far less than they should.
UPSTREAM = 0.65
#: In the log: enough to learn from, and few enough to be counted without code that a new machine would compile first.
USERS = 4000


def demo(
    out: Annotated[Path, written("a folder for results; pages are put beside it.")] = Path("demo"),
    episodes: Annotated[int, number_of_users("of every run.")] = 20_000,
    seeds: Seeds = "0:3",
    jobs: Jobs = 1,
    as_json: Json = False,
) -> None:
    """See all of it once: private policies learned online and from a log, what privacy costs, and the proof of it.

    Leaves a report with learning curves, the log, and the policy with its certificate.

    [bold]Examples[/bold]

    discreet demo

    discreet demo --users 2000 --seeds 0 --out small --quiet
    """
    from discreet.cli.showing import reported
    from discreet.offline import certificate
    from discreet.runs import report, results
    from discreet.runs.experiment import Setting

    wanted, policy, log = seed_list(seeds), beside(out, "policy"), beside(out, "log.parquet")
    asked, others = price_experiments(episodes), learner_experiments(episodes)
    results.prepare(out)
    with compilation_notice():
        note(ONLINE.format(episodes))

        def made(told: Experiment) -> Summary:
            return executed(Setting.of(told), wanted, out, jobs, tell=lambda text: None)

        found = {told.id: made(told) for told in asked}
        priced = list(found.values())
        if not as_json:
            show(price_table(priced))
        note(PRICE)
        found |= {told.id: made(told) for told in others if told.id not in found}
        compared = report.summaries(row for told in others for row in found[told.id].rows)
        if not as_json:
            show(comparison_table(compared))
            say(guarantees(compared))
        note(LOGGED.format(min(episodes, USERS), EPSILON))
        learned = fit(min(episodes, USERS), policy, log)
    page, _ = reported(out, None)
    verdict = certificate.verify(policy, allow_simulation=True).verdict
    places = {"report": page, "certificate": policy / "certificate.html", "log": log, "results": out}
    if as_json:
        told = {"price": prices(priced), "learners": prices(compared), "log": learned, "verdict": verdict}
        say_json({**told, "written": {name: str(path) for name, path in places.items()}})
        return
    say(
        f"from a log of {learned['users']:,} people who earn {learned['now']:.2f} each: a private policy that "
        f"earns {learned['value']:.2f}, where {learned['best']:.2f} is best"
    )
    say(f"discreet verify {policy} --allow-simulation: {verdict}")
    note(PLACES)
    say(f"learning curves, and everything about the runs: {page}")
    say(f"the policy with its certificate: {places['certificate']}")
    say(f"the log: {log}; learn from it yourself, with noise from cryptographic randomness:")
    mine = beside(out, "mine")
    say(f"  discreet fit {log} --states 6 --actions 2 --horizon 20 --pooled --epsilon 1 --out {mine}")
    say(f"RiverSwim, 6 states, horizon 20, {episodes:,} episodes, counts pooled over steps; {NOT_A_RELEASE}")


ONLINE = """
1/3 Online. {:,} people come to RiverSwim, one after the other, and swim 20 steps each. A learner says
which way, and learns from their reports as far as ε and their trust in others allow. What people lose by
following it while it learns is computed exactly."""
PRICE = """0.02 means: all of them lost 2 % of what they would have lost by swimming at random for ever. A smaller
ε promises more and costs more, and so does trusting fewer. At ε = 1, every learner that trusts a curator:"""
LOGGED = """
2/3 From a log. {:,} people have swum as they liked, and it was written down. One count of it, with noise for
ε = {:g}, is all that the next policy is learned from. Its certificate says what is promised; anyone can check it:"""
PLACES = """
3/3 To look at, in a browser or by hand:"""


# Online -------------------------------------------------------------------------------------------------------------


def price_experiments(episodes: int) -> list[Experiment]:
    """One learner for whomever users trust and three budgets, and its twin that promises nothing."""
    from discreet.runs.experiment import Experiment

    private = [
        Experiment("spotlight", episodes=episodes, pooled=True, epsilon=epsilon, model=model, delta=delta)
        for model, (_, delta) in TRUSTED.items()
        for epsilon in EPSILONS
    ]
    return [Experiment("ucbvi-bernstein", episodes=episodes, pooled=True), *private]


def learner_experiments(episodes: int) -> list[Experiment]:
    """Every learner of the catalog that trusts a curator or needs no trust at all."""
    from discreet.catalog import ALGORITHMS
    from discreet.runs.experiment import Experiment

    return [
        Experiment(name, episodes=episodes, pooled=True, epsilon=EPSILON if entry.private else None)
        for name, entry in ALGORITHMS.items()
        if entry.models[0] == "joint" and entry.runner == "online" and "pooled" in entry.options
    ]


def prices(found: Sequence[Summary]) -> list[dict[str, Any]]:
    """What each trust and budget costs: regret, and the gap of the last policy, where 1 is acting at random."""
    return [
        {
            "learner": summary.rows[0].settings["algorithm"],
            "model": summary.guarantee.model,
            "epsilon": summary.rows[0].settings["epsilon"],
            "regret_ratio": None if summary.ratio is None else summary.ratio.mean,
            "final_gap": None if summary.gap is None else summary.gap.mean,
        }
        for summary in found
    ]


def price_table(found: Sequence[Summary]) -> Any:
    """Trust by budget."""
    from rich import box
    from rich.table import Table

    cost = {(each["model"], each["epsilon"]): each["regret_ratio"] for each in prices(found)}
    title = "the price of privacy: regret (0: the best policy at once, 1: random for ever)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("people trust", style="bold", min_width=24)
    for epsilon in EPSILONS:
        table.add_column(f"ε = {epsilon:g}", justify="right")
    table.add_column("no promise", justify="right")
    table.add_row("everybody (no privacy)", *("" for _ in EPSILONS), _short(cost["none", None]))
    for model, (words, _) in TRUSTED.items():
        table.add_row(f"{words} ({model})", *(_short(cost[model, epsilon]) for epsilon in EPSILONS), "")
    return table


def _short(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


# From a log ---------------------------------------------------------------------------------------------------------


def fit(users: int, folder: Path, file: Path) -> dict[str, Any]:
    """Learn from a log of RiverSwim as people swim it now, leave log, policy and certificate, and say how good it is.

    dp-apvi: on a new machine nothing needs to be compiled for it that the other learners do not need as well.
    """
    import numpy as np
    import pyarrow
    from pyarrow import parquet

    from discreet.envs import registry
    from discreet.envs.rewards import RewardLaw
    from discreet.offline import fitting
    from discreet.people.episodes import MDPSimulator
    from discreet.people.logs import LogFormat
    from discreet.planning import policy_value
    from discreet.privacy.accounting import Budget
    from discreet.runs import results

    mdp = registry.make("riverswim", 6, 20, 0)
    H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    habit = np.tile([1.0 - UPSTREAM, UPSTREAM], (H, S, 1))
    log = MDPSimulator(mdp, RewardLaw(), np.random.SeedSequence(0)).rollout(habit, users)
    rows = {
        "user": np.repeat(np.arange(users), H),
        "step": np.tile(np.arange(H), users),
        "state": log.states[:, :-1].ravel(),
        "action": log.actions.ravel(),
        "reward": log.rewards.ravel(),
    }
    results.replaced(file, lambda part: parquet.write_table(pyarrow.table(rows), part))
    budget, form = Budget.pure(EPSILON), LogFormat(S, A, H, pooled=True)
    found = fitting.fit(log, form, budget, algorithm="dp-apvi", seed=0, purpose="demonstration", anyway=True)
    found.save(folder)
    worth = fitting.evaluate(found.policy, mdp)
    earned = {"now": policy_value(mdp, habit), "value": worth["value"], "best": worth["value_optimal"]}
    return {"users": users, "epsilon": EPSILON, **{name: float(value) for name, value in earned.items()}}
