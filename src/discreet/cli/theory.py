"""What the papers promise, as numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli import completing
from discreet.cli.options import Instance, Json, NeighboursOption, number_of_users, one_of, own_or_named
from discreet.cli.terminal import say, say_json, show

if TYPE_CHECKING:
    from discreet.problem import Moments
    from discreet.runs.bounds import Case, Comparison, Statement
    from discreet.theory import Bound


def bound(
    name: Annotated[
        str,
        typer.Argument(
            help="A learner of the papers; --list names them.", show_default=False, autocompletion=completing.theorems
        ),
    ] = "",
    epsilon: Annotated[float, typer.Option(help="Privacy budget per user.")] = 1.0,
    env: Annotated[
        str | None,
        typer.Option(
            help="An environment, whose C_M, coverage and tails are then read too; or module:name of your own.",
            autocompletion=completing.environments,
        ),
    ] = None,
    states: Annotated[int | None, typer.Option(help="Number of states.", show_default="6")] = None,
    actions: Annotated[int | None, typer.Option(help="Number of actions.", show_default="2")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps per episode.", show_default="20")] = None,
    instance: Instance = 0,
    episodes: Annotated[int, number_of_users("every episode is another one; of a log, how many it has.")] = 20_000,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Delta of the budget: above 0 for (epsilon, delta).",
            show_default="0, or 1e-6 where pure epsilon has no form",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Whom users trust: joint, local or shuffle.",
            autocompletion=completing.models,
            show_default="the learner's first",
        ),
    ] = None,
    neighbours: NeighboursOption = "replace",
    beta: Annotated[float, typer.Option(help="How often bounds may fail: the theorem, and the errors in it.")] = 0.1,
    moment_order: Annotated[
        float | None, typer.Option(help="Heavy tails: v of E|r|^(1+v), in (0, 1].", show_default="1")
    ] = None,
    moment_bound: Annotated[
        float | None, typer.Option(help="Heavy tails: public bound u on E|r|^(1+v).", show_default="1, or the law's")
    ] = None,
    mean_bound: Annotated[
        float | None, typer.Option(help="Heavy tails: public bound on |mean reward|.", show_default="1, or the law's")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="A folder of results: bounds beside what was measured.")
    ] = None,
    as_json: Json = False,
    names: Annotated[bool, typer.Option("--list", help="List the names: learners and their theorems.")] = False,
) -> None:
    """What the theorems on a learner promise, as numbers: upper and lower bounds, E, C_M, coverage, burn-in.

    [bold]Examples[/bold]

    discreet bound dp-ucbvi --epsilon 1 --states 6 --actions 2 --horizon 20 --episodes 20000

    discreet bound private-uc-o-reps --env layered --model local --json

    discreet bound private-heavy-ucbvi --env heavy-joint:users=20000,epsilon=1,v=1

    discreet bound dp-apvi --env riverswim --epsilon 1 --delta 1e-6 --episodes 100000

    discreet bound --results results/            every stored run beside its theorems

    discreet bound --list
    """
    if names:
        list_theorems(as_json)
        return
    if results is not None:
        compare(results, name or None, beta, as_json)
        return
    if not name:
        raise ValueError("name a learner, for example dp-ucbvi; discreet bound --list shows all of them")
    from discreet.runs import bounds

    moments = _moments(moment_order, moment_bound, mean_bound, env)
    place, instance = (None, instance) if env is None else own_or_named(env, instance)
    found = bounds.case(
        name,
        env=place,
        states=states,
        actions=actions,
        horizon=horizon,
        instance=instance,
        episodes=episodes,
        epsilon=epsilon,
        delta=delta,
        model=model,
        neighbours=one_of("--neighbours", neighbours),
        beta=beta,
        moments=moments,
    )
    told, numbers = bounds.statements(found), bounds.quantities(found)
    if as_json:
        say_json(
            {
                **sizes(found),
                "bounds": [statement_json(each) for each in told],
                "quantities": {key: _finite(value) for key, value in numbers.items()},
            }
        )
        return
    say(heading(found))
    show(bound_table(found, told))
    for each in told:
        say(reading(each.bound))
    say("; ".join(f"{key} = {value:,.5g}" for key, value in numbers.items()))


def _moments(order: float | None, bound: float | None, mean: float | None, env: str | None) -> Moments | None:
    """What was said of the tails; what was not said is read off the environment."""
    from discreet.problem import Moments

    if order is None and bound is None and mean is None:
        return None
    for option, value in (("--moment-order", order), ("--moment-bound", bound), ("--mean-bound", mean)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{option} is {value:g}; it must be a finite number above 0")
    if order is not None and order > 1:
        raise ValueError(f"--moment-order is {order:g}; it must lie in (0, 1]")
    if env is not None and (bound is None or mean is None):
        raise ValueError(f"give --moment-order, --moment-bound and --mean-bound together, or none: {env} has its own")
    return Moments(order or 1.0, bound or 1.0, mean or 1.0)


def sizes(found: Case) -> dict[str, Any]:
    facts = found.facts
    return {
        "algorithm": found.name,
        "states": facts.states,
        "actions": facts.actions,
        "horizon": facts.horizon,
        "episodes": facts.episodes,
        "epsilon": facts.epsilon,
        "delta": found.delta,
        "model": facts.model,
        "neighbours": found.neighbours,
        "beta": facts.beta,
    }


def statement_json(each: Statement) -> dict[str, Any]:
    found = each.bound
    return {
        "theorem": found.theorem,
        "kind": found.kind,
        "value": _finite(found.value),
        "trivial": found.trivial,
        "vacuous": found.vacuous,
        "terms": [{"formula": term.formula, "value": _finite(term.value)} for term in found.terms],
        "constants": found.constants,
        "notes": list(found.notes),
        "conditions_hold": found.holds,
        "informative_from": each.informative_from,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def heading(found: Case) -> str:
    facts = found.facts
    budget = f"ε = {facts.epsilon:g}" + (f", δ = {found.delta:g}" if found.delta else "")
    return (
        f"{found.name}: {facts.states} states, {facts.actions} actions, horizon {facts.horizon}, "
        f"{facts.episodes:,.0f} users, {facts.model} privacy, {budget}, β = {facts.beta:g}"
    )


def reading(shown: Bound) -> str:
    """A bound term by term, whose constants they are, and what to know about it."""
    terms = " + ".join(f"{term.formula} = {term.value:,.4g}" for term in shown.terms)
    failed = ("its condition does not hold",) if shown.holds is False else ()
    return f"{shown.theorem}: {'; '.join((terms, shown.constants, *shown.notes, *failed))}"


def bound_table(found: Case, told: tuple[Statement, ...]) -> Any:
    """Theorems for the eye: each beside what is true of every policy."""
    from rich.table import Table

    offline = found.entry.runner == "offline"
    what = "sub-optimality of the policy" if offline else "regret"
    table = Table(title=f"{what}: every policy has at most {told[0].bound.trivial:,.5g}", title_justify="left")
    table.add_column("theorem", style="bold")
    for column in ("", "value", "says something from"):
        table.add_column(column, justify="right" if column else "left")
    for each in told:
        shown = each.bound
        start = "" if shown.kind == "lower" else f"over {found.largest:.0e} users"
        if shown.holds is False:
            start = "its condition fails"
        if each.informative_from is not None and shown.kind == "upper":
            start = f"{each.informative_from:,.3g} users"
        table.add_row(
            shown.theorem,
            "at most" if shown.kind == "upper" else "at least",
            f"{shown.value:,.5g}{' (says nothing)' if shown.vacuous else ''}",
            start,
        )
    return table


def compare(folder: Path, name: str | None, beta: float, as_json: bool) -> None:
    """The runs of a folder beside the theorems on them."""
    from discreet.runs import bounds
    from discreet.runs.results import read

    found = bounds.comparisons(read(folder), name, beta)
    if as_json:
        say_json({"comparisons": [comparison_json(each) for each in found]})
        return
    if not found:
        say(f"no theorem speaks of a run in {folder}{f' by {name}' if name else ''}")
        return
    for each in found:
        show(comparison_table(each))


def comparison_json(each: Comparison) -> dict[str, Any]:
    return {
        "label": each.summary.label,
        **sizes(each.case),
        "env": each.summary.settings["env"],
        "mode": each.summary.settings.get("mode"),
        "seeds": len(each.summary.rows),
        "regret": each.measured,
        "bounds": [
            {**statement_json(told), "times_measured": each.looseness(told.bound)} for told in each.statements
        ],
    }


def comparison_table(each: Comparison) -> Any:
    """One experiment and its theorems."""
    from rich.table import Table

    trivial = each.statements[0].bound.trivial
    title = f"{each.summary.label}: measured regret {each.measured:,.5g}, every policy has at most {trivial:,.5g}"
    table = Table(title=title, title_justify="left")
    table.add_column("theorem", style="bold")
    for column in ("", "value", "times measured"):
        table.add_column(column, justify="right" if column else "left")
    for told in each.statements:
        shown, loose = told.bound, each.looseness(told.bound)
        table.add_row(
            shown.theorem,
            "at most" if shown.kind == "upper" else "at least",
            f"{shown.value:,.5g}{' (says nothing)' if shown.vacuous else ''}",
            "" if loose is None else f"{loose:,.3g}",
        )
    return table


def list_theorems(as_json: bool) -> None:
    from discreet.theory import THEOREMS

    told = {
        name: [" ".join((theorem.__doc__ or "").split()) for theorem in theorems]
        for name, theorems in THEOREMS.items()
    }
    if as_json:
        say_json({"theorems": told})
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table("learner", "what is proved", title="discreet bound NAME", title_justify="left")
    for name, lines in told.items():
        table.add_row(f"[bold]{name}[/bold]", escape("\n".join(lines)))
    show(table)
