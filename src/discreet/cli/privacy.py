"""Questions about privacy: what it would cost, and whether a claim holds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import completing
from discreet.cli.columns import grid_json, show_grid
from discreet.cli.logs import declared, log_format
from discreet.cli.options import (
    Declare,
    Delta,
    Json,
    NeighboursOption,
    State,
    doubt_delta,
    number_of_users,
    one_of,
    own_or_named,
    spoken,
    warn_of_a_weak_promise,
)
from discreet.cli.terminal import compilation_notice, say, say_json, show

if TYPE_CHECKING:
    from rich.table import Table

    from discreet.offline.declaration import Declaration
    from discreet.runs.feasibility import Calibration

FAMILY_NAMES = {"N": "N visits", "T": "T transitions", "R": "R rewards", "losses": "losses", "reports": "reports"}


def calibrate(
    context: typer.Context,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget per user.", show_default=False)] = None,
    states: Annotated[int, typer.Option(help="Number of states.")] = 6,
    actions: Annotated[int, typer.Option(help="Number of actions.")] = 2,
    horizon: Annotated[int, typer.Option(help="Steps per episode.")] = 20,
    episodes: Annotated[int, number_of_users("every episode is another one; of a log, how many it has.")] = 20_000,
    delta: Delta = 0.0,
    rho: Annotated[
        float | None, typer.Option(help="zCDP budget per user, instead of epsilon.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Whom users trust: joint, two-servers, shuffle or local.",
            autocompletion=completing.models,
            show_default="joint",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="When to learn: every (episode) or epochs (growing).", show_default="epochs"),
    ] = None,
    neighbours: NeighboursOption = "replace",
    pooled: Annotated[bool, typer.Option("--pooled", help="Count over all steps together.")] = False,
    adversarial: Annotated[
        bool, typer.Option("--adversarial", help="For adversarial learners: private loss tables instead of rewards.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="For `discreet fit`: how many users which budget needs.")
    ] = False,
    dimension: Annotated[
        int | None, typer.Option(help="With --offline: of the features, for dp-pevi and dp-vapvi.")
    ] = None,
    branching: Annotated[
        float | None,
        typer.Option(help="States that a cell leads to on average, where that is expected.", show_default="unknown"),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="An environment, on which spotlight is tried: more than sizes say. Or module:name of your own.",
            autocompletion=completing.environments,
            show_default="none",
        ),
    ] = None,
    declare: Declare = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """How much noise a budget needs, and whether one can learn with it. No data is touched.

    [bold]Examples[/bold]

    discreet calibrate --epsilon 1 --states 6 --actions 2 --horizon 20 --episodes 20000 --schedule every

    discreet calibrate --epsilon 1 --pooled                      sharing counts between steps helps

    discreet calibrate --epsilon 4 --model local --pooled --json

    discreet calibrate --epsilon 1 --model shuffle --delta 1e-6

    discreet calibrate --epsilon 1 --model two-servers --pooled   one report per user, of which nobody sees any

    discreet calibrate --epsilon 1 --env two-rooms --pooled       simulated runs instead of a rule

    discreet calibrate --rho 0.1 --pooled                        zCDP and Gaussian noise

    discreet calibrate --offline --epsilon 1 --states 12 --actions 3 --horizon 10 --episodes 5000 --pooled

    discreet calibrate --offline --epsilon 1 --delta 1e-6 --dimension 10 --horizon 20 --episodes 5000

    discreet calibrate --offline --epsilon 1 --declare stays.toml --users 10000      the bins of declared columns
    """
    check_budget(epsilon, rho, largest=not offline)
    doubt_delta(delta, episodes)
    if offline:
        said = {
            "--model": model,
            "--schedule": schedule,
            "--adversarial": adversarial or None,
            "--branching": branching,
            "--env": env,
        }
        for option, given in said.items():
            if given is not None:
                raise ValueError(f"a release from a log is made once, by its holder, of rewards; leave {option} out")
        if epsilon is None:
            raise ValueError("--offline compares several epsilons; give --epsilon, with or without --delta")
        declaration = declared(context)
        if declaration is not None:
            for option in spoken(context, ("dimension", "pooled")):
                raise ValueError(f"{option} is for logs of numbered states, not of declared columns; leave it out")
            calibrate_declared(declaration, episodes, epsilon, delta, neighbours, as_json)
            return
        calibrate_offline(states, actions, horizon, episodes, epsilon, delta, neighbours, pooled, as_json, dimension)
        return
    for option in spoken(context, ("dimension", "declare", "state")):
        raise ValueError(f"{option} is for learners from logs: give --offline too")
    from discreet.runs import feasibility
    from discreet.runs.experiment import Experiment, Setting
    from discreet.runs.rehearsal import MOST_PEOPLE, rehearsed

    relation = one_of("--neighbours", neighbours)
    setting = None
    if env is not None:
        for option in spoken(context, ("actions", "rho", "schedule", "adversarial", "branching")):
            raise ValueError(f"{option} has no use beside --env, which spotlight is tried on; leave it out")
        sizes = {name: context.params[name] for name in ("states", "horizon") if spoken(context, (name,))}
        told: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "model": model,
            "pooled": pooled,
            "neighbours": relation,
        }
        setting = Setting.of(Experiment("spotlight", env=own_or_named(env)[0], episodes=episodes, **told, **sizes))
        states, actions, horizon = setting.mdp.num_states, setting.mdp.num_actions, setting.mdp.horizon
    model, schedule = model or "joint", schedule or "epochs"
    found = feasibility.calibrate(
        *(states, actions, horizon, episodes, epsilon, delta, model, schedule, relation, pooled, rho, branching),
        losses=adversarial,
    )
    if setting is not None:
        with compilation_notice():
            found = replace(found, spotlight=rehearsed(setting, setting.forecast(), MOST_PEOPLE))
    if as_json:
        say_json(found.to_json())
        return
    show(noise_table(found))
    say(f"guarantee: {found.guarantee.sentence()}")
    say(f"verdict: {found.forecast.verdict}")
    if found.sampled is not None:
        say(f"sampled step: {found.sampled.verdict}")
    if found.spotlight not in (None, found.forecast):
        assert found.spotlight is not None
        say(f"spotlight: {found.spotlight.verdict}")


def check_budget(epsilon: float | None, rho: float | None, largest: bool) -> None:
    """Refuse what is no budget; `largest`: also more than a run would take."""
    from discreet.runs.feasibility import LARGEST_EPSILON, LARGEST_RHO

    if (epsilon is None) == (rho is None):
        raise ValueError("state a budget: either --epsilon (with or without --delta) or --rho")
    if rho is not None and not 0 < rho <= LARGEST_RHO:
        raise ValueError(f"--rho is {rho:g}; it must be above 0 and at most {LARGEST_RHO:g}")
    if epsilon is None:
        return
    if epsilon == math.inf:
        raise ValueError("--epsilon is infinite: that is no privacy and needs no noise; give a number")
    if largest and epsilon > LARGEST_EPSILON:
        raise ValueError(
            f"--epsilon is {epsilon:g}, and above {LARGEST_EPSILON:g} nothing worth the name is promised"
        )
    warn_of_a_weak_promise(epsilon)


def calibrate_offline(
    states: int,
    actions: int,
    horizon: int,
    users: int,
    epsilon: float,
    delta: float,
    neighbours: str,
    pooled: bool,
    as_json: bool,
    dimension: int | None = None,
) -> None:
    """How many users which budget needs, for a fit from logs; with a dimension, for the learners on features."""
    from discreet.privacy.accounting import Budget
    from discreet.runs.forecasts import forecast_fit

    log = log_format(str(states), str(actions), horizon, pooled)
    relation = one_of("--neighbours", neighbours)
    names, what = ("one-hot", "dp-apvi"), f"{states} × {actions} pairs are visited"
    if dimension is not None:
        if dimension < 1 or pooled or not delta:
            raise ValueError("--dimension is at least 1, for regressions at every step: with a --delta, not --pooled")
        names, what = ("dp-pevi", "dp-vapvi"), f"{dimension} directions of the features are taken"
    found = {}
    for factor in (0.1, 0.3, 1.0, 3.0, 10.0):
        each = epsilon * factor
        budget = Budget.approximate(each, delta) if delta else Budget.pure(each)
        found[each] = {name: forecast_fit(log, budget, users, relation, name, dimension=dimension) for name in names}
    asked = found[epsilon][names[0]]
    if as_json:
        say_json(
            {
                "users": users,
                "epsilon": epsilon,
                "delta": delta,
                "learners": {name: outlook.to_json() for name, outlook in found[epsilon].items()},
                "users_needed": {f"{each:g}": both[names[0]].users_needed for each, both in found.items()},
                "verdict": asked.verdict,
            }
        )
        return
    from rich.table import Table

    say(f"users needed when all {what} evenly:")
    sheet = Table("ε", *names)
    for each, both in found.items():
        sheet.add_row(f"{each:g}", *(f"{both[name].users_needed:,}" for name in names))
    show(sheet)
    say(f"verdict for {users:,} users at ε = {epsilon:g}: {asked.verdict}")


def calibrate_declared(
    declaration: Declaration, users: int, epsilon: float, delta: float, neighbours: str, as_json: bool
) -> None:
    """What becomes of declared columns with so many users: known before any data is read."""
    from discreet.people.logs import LogFormat
    from discreet.privacy.accounting import Budget
    from discreet.runs.forecasts import forecast_fit

    relation = one_of("--neighbours", neighbours)
    budget = Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)
    grid = declaration.grid(users, budget, relation)
    log = LogFormat(
        grid.num_states,
        declaration.num_actions,
        declaration.horizon,
        declaration.pooled,
        episodes_per_user=declaration.episodes_per_user,
        reward_range=declaration.reward_range,
        ended_pays=declaration.ended_pays,
    )
    outlook = forecast_fit(log, budget, users, relation)
    if as_json:
        say_json(
            {
                "users": users,
                "epsilon": epsilon,
                "delta": delta,
                "grid": grid_json(grid),
                "learners": {"one-hot": outlook.to_json()},
                "verdict": outlook.verdict,
            }
        )
        return
    show_grid(grid, users)
    say(f"states: {grid.num_states}, with {declaration.num_actions} actions in each")
    say(f"unused columns: {', '.join(grid.unused) or 'none'}")
    say(f"users needed: {grid.users_needed:,} for these bins, {grid.users_for_all:,} for all columns")
    say(f"verdict for {users:,} users at ε = {epsilon:g}: {outlook.verdict}")


def noise_table(found: Calibration) -> Table:
    """The families side by side, in natural units (the JSON form has the integers that are noised)."""
    from rich.table import Table

    values = f"{found.levels} noisy values" if found.levels > 1 else "one noisy value"
    table = Table(title=f"noise per family; each user enters {values} of each", title_justify="left")
    table.add_column("family", style="bold", no_wrap=True)
    gaussian = found.guarantee.entries[0].is_gaussian
    norm, share = ("L2", "ρ") if gaussian else ("L1", "ε")
    for column in (f"sensitivity ({norm})", share, "scale", "sd at the end", "width"):
        table.add_column(column, justify="right")
    for letter, noise in found.families.items():
        unit = found.grid if letter in ("R", "losses") else 1.0
        sensitivity = (noise.l2 if gaussian else noise.l1) * unit
        numbers = sensitivity, noise.budget, noise.scale * unit, noise.deviation, noise.width
        table.add_row(FAMILY_NAMES[letter], *(f"{number:,.5g}" for number in numbers))
    return table


def audit(
    mechanism: Annotated[
        str,
        typer.Argument(
            help="What to attack; --list names everything.", show_default=False, autocompletion=completing.mechanisms
        ),
    ] = "",
    epsilon: Annotated[float, typer.Option(help="Privacy budget per user, as the mechanism claims it.")] = 1.0,
    trials: Annotated[int, typer.Option(help="Rounds of the attack in each of the two worlds.")] = 100_000,
    horizon: Annotated[int, typer.Option(help="Steps per episode.")] = 1,
    episodes: Annotated[
        int | None,
        number_of_users("of a mechanism that releases again and again, or hides one in a crowd.", "4, crowd 1000"),
    ] = None,
    states: Annotated[int, typer.Option(help="Number of states.")] = 2,
    actions: Annotated[int, typer.Option(help="Number of actions.")] = 2,
    delta: Annotated[float, typer.Option(help="Delta of the budget, for mechanisms that have one.")] = 1e-6,
    confidence: Annotated[float, typer.Option(help="With which the lower bound holds.")] = 0.999,
    seed: Annotated[int, typer.Option(help="Seed of all randomness: the attack's.")] = 0,
    as_json: Json = False,
    names: Annotated[bool, typer.Option("--list", help="List the names: what can be audited.")] = False,
) -> None:
    """Attack a mechanism: how much epsilon can an adversary prove has leaked?

    A lower bound above the claim refutes it; one below it proves nothing, but says how hard was tried.

    [bold]Examples[/bold]

    discreet audit reports --epsilon 1              what spotlight releases: stands

    discreet audit tree --epsilon 1 --trials 100000

    discreet audit paper-local --epsilon 1          the calibration as printed: refuted

    discreet audit --list
    """
    from discreet.privacy.audit import attacks

    if names:
        show(mechanism_table({name: entry.description for name, entry in attacks.MECHANISMS.items()}))
        return
    if not mechanism:
        raise ValueError(f"name a mechanism to audit: {', '.join(attacks.MECHANISMS)}")
    if mechanism not in attacks.MECHANISMS and (releases := released_by(mechanism)):
        raise ValueError(f"{mechanism} is a learner; what it releases is audited as {' or '.join(releases)}")
    if seed < 0:
        raise ValueError(f"--seed is {seed}; it must be at least 0")
    with compilation_notice():
        found = attacks.audit(
            *(mechanism, epsilon, trials, horizon, 4 if episodes is None else episodes, states, actions),
            *(1000 if episodes is None else episodes, delta, confidence, seed),
        )
    if as_json:
        say_json({k: None if v in (math.inf, -math.inf) else v for k, v in found.to_json().items()})
        return
    say(f"{found.mechanism} claims ε = {found.claimed:g}")
    say(f"shown to leak at least ε = {found.lower_bound:.4f} (confidence {found.confidence:g}, {trials:,} trials)")
    if found.exact is not None:
        say(f"exact for this attack: ε = {found.exact:.6g}")
    if not found.refuted:
        say("not refuted: no attack here beat the claim")
    elif found.lower_bound > found.claimed:
        say("REFUTED: it leaks more than it claims")
    else:
        say("REFUTED: it leaks more than it claims, as computed; so few trials do not show it")


def released_by(learner: str) -> list[str]:
    """The audits of what a learner releases, and in which model."""
    from discreet import catalog
    from discreet.privacy.audit.attacks import ATTACKED
    from discreet.problem import Problem

    entry = catalog.ALGORITHMS.get(learner)
    if entry is None or not entry.private or entry.runner != "online" or entry.staged:
        return []
    asked = Problem(2, 2, 2, 100, pooled=True, epsilon=1.0)
    found = []
    for model in entry.models:
        delta = 1e-6 if model == "shuffle" else 0.0
        privatizer = entry.build(replace(asked, trust=model, delta=delta)).privatizer
        if (name := ATTACKED.get(type(privatizer))) is not None:
            found.append(f"{name} ({model})")
    return found


def mechanism_table(descriptions: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table("mechanism", "what it is", title="discreet audit MECHANISM", title_justify="left")
    for name, description in descriptions.items():
        table.add_row(f"[bold]{name}[/bold]", description)
    return table
