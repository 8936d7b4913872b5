"""Questions about privacy: what it would cost, and whether a claim holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.columns import grid_json, show_grid
from discreet.cli.logs import declared, log_format
from discreet.cli.options import Declare, Delta, Json, NeighboursOption, State, one_of, spoken
from discreet.cli.terminal import compilation_notice, say, say_json, show

if TYPE_CHECKING:
    from rich.table import Table

    from discreet.offline.declaration import Declaration
    from discreet.runs.feasibility import Calibration

FAMILY_NAMES = {"N": "N visits", "T": "T transitions", "R": "R rewards", "losses": "losses"}


def calibrate(
    context: typer.Context,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget per user.", show_default=False)] = None,
    states: Annotated[int, typer.Option(help="Number of states.")] = 6,
    actions: Annotated[int, typer.Option(help="Number of actions.")] = 2,
    horizon: Annotated[int, typer.Option(help="Steps per episode.")] = 20,
    episodes: Annotated[
        int, typer.Option("--episodes", "--users", help="Episodes; every episode is another user.")
    ] = 20_000,
    delta: Delta = 0.0,
    rho: Annotated[
        float | None, typer.Option(help="zCDP budget per user, instead of epsilon.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="joint, shuffle or local.", show_default="joint")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="When to release: every (episode) or epochs (growing).", show_default="epochs"),
    ] = None,
    neighbours: NeighboursOption = "replace",
    pooled: Annotated[bool, typer.Option("--pooled", help="Count over all steps together.")] = False,
    losses: Annotated[
        bool, typer.Option("--losses", help="For adversarial learners: private loss tables instead of rewards.")
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

    discreet calibrate --rho 0.1 --pooled                        zCDP and Gaussian noise

    discreet calibrate --offline --epsilon 1 --states 12 --actions 3 --horizon 10 --episodes 5000 --pooled

    discreet calibrate --offline --epsilon 1 --delta 1e-6 --dimension 10 --horizon 20 --episodes 5000

    discreet calibrate --offline --epsilon 1 --declare stays.toml --users 10000      the bins of declared columns
    """
    check_budget(epsilon, rho, largest=not offline)
    if offline:
        said = {"--model": model, "--schedule": schedule, "--losses": losses or None, "--branching": branching}
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

    relation = one_of("--neighbours", neighbours)
    model, schedule = model or "joint", schedule or "epochs"
    found = feasibility.calibrate(
        *(states, actions, horizon, episodes, epsilon, delta, model, schedule, relation, pooled, rho, branching),
        losses=losses,
    )
    if as_json:
        say_json(found.to_json())
        return
    show(noise_table(found))
    say(f"guarantee: {found.guarantee.sentence()}")
    say(f"verdict: {found.forecast.verdict}")
    if found.sampled is not None:
        say(f"sampled step: {found.sampled.verdict}")
    if found.spotlight is not None:
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
    from discreet.runs.feasibility import forecast_fit

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
    from discreet.runs.feasibility import forecast_fit

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
        str, typer.Argument(help="What to attack; --list names everything.", show_default=False)
    ] = "",
    epsilon: Annotated[float, typer.Option(help="The epsilon that the mechanism claims.")] = 1.0,
    trials: Annotated[int, typer.Option(help="Rounds of the attack in each of the two worlds.")] = 100_000,
    horizon: Annotated[int, typer.Option(help="Steps per episode.")] = 1,
    episodes: Annotated[int, typer.Option(help="Episodes, for mechanisms that release repeatedly.")] = 4,
    states: Annotated[int, typer.Option(help="Number of states.")] = 2,
    actions: Annotated[int, typer.Option(help="Number of actions.")] = 2,
    users: Annotated[int, typer.Option(help="Users, for mechanisms that hide in a crowd.")] = 1000,
    delta: Annotated[float, typer.Option(help="For mechanisms that are (epsilon, delta)-private.")] = 1e-6,
    confidence: Annotated[float, typer.Option(help="With which the lower bound holds.")] = 0.999,
    seed: Annotated[int, typer.Option(help="Of the attack.")] = 0,
    as_json: Json = False,
    names: Annotated[bool, typer.Option("--list", help="List what can be audited.")] = False,
) -> None:
    """Attack a mechanism: how much epsilon can an adversary prove has leaked?

    A lower bound above the claim refutes it; one below it proves nothing, but says how hard was tried.

    [bold]Examples[/bold]

    discreet audit tree --epsilon 1 --trials 100000

    discreet audit paper-local --epsilon 1          the calibration as printed: refuted
    """
    from discreet.privacy.audit import attacks

    if names:
        show(mechanism_table({name: entry.description for name, entry in attacks.MECHANISMS.items()}))
        return
    if not mechanism:
        raise ValueError(f"name a mechanism to audit: {', '.join(attacks.MECHANISMS)}")
    if seed < 0:
        raise ValueError(f"--seed is {seed}; it must be at least 0")
    with compilation_notice():
        found = attacks.audit(
            mechanism, epsilon, trials, horizon, episodes, states, actions, users, delta, confidence, seed
        )
    if as_json:
        say_json({k: None if v in (math.inf, -math.inf) else v for k, v in found.to_json().items()})
        return
    say(f"{found.mechanism} claims ε = {found.claimed:g}")
    say(f"shown to leak at least ε = {found.lower_bound:.4f} (confidence {found.confidence:g}, {trials:,} trials)")
    if found.exact is not None:
        say(f"exact for this attack: ε = {found.exact:.6g}")
    say("REFUTED: it leaks more than it claims" if found.refuted else "not refuted: no attack here beat the claim")


def mechanism_table(descriptions: dict[str, str]) -> Table:
    from rich.table import Table

    table = Table("mechanism", "what it is", title="discreet audit MECHANISM", title_justify="left")
    for name, description in descriptions.items():
        table.add_row(f"[bold]{name}[/bold]", description)
    return table
