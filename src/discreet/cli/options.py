"""Options that several commands take, each written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from discreet.cli.terminal import warn

if TYPE_CHECKING:
    from discreet.mdp import FiniteMDP
    from discreet.privacy.accounting import Budget

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
Delta = Annotated[float, typer.Option(help="Delta of the budget: above 0 for (epsilon, delta) and Gaussian noise.")]
NeighboursOption = Annotated[str, typer.Option(help="replace or zero-out: what one user may change.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Runs at the same time; -1 uses every core.")]
Seeds = Annotated[str, typer.Option(help="Seeds: 0:10 (half-open), 3, or 1,5,9.")]
Instance = Annotated[int, typer.Option(help="Which random environment.")]
Folder = Annotated[Path, typer.Argument(help="A folder that `discreet fit` has written.", show_default=False)]
Logs = Annotated[list[str], typer.Argument(help="Parquet, CSV, Arrow or DuckDB files, or globs of them.")]
DatabaseTable = Annotated[str | None, typer.Option(help="Table of a DuckDB database.")]
Users = Annotated[int | None, typer.Option(help="Number of users, declared.", show_default="counted")]
Declare = Annotated[
    Path | None, typer.Option(help="A declaration of columns (TOML); `discreet declare LOG` writes one to fill in.")
]
State = Annotated[
    list[str] | None,
    typer.Option(
        help="A column, the most important first: map:20..140/edges:65,75,95, lactate:0..20/log,missing, "
        "ward:{A,B,C}; instead of --states.",
        show_default=False,
    ),
]
Propensity = Annotated[
    str | None, typer.Option(help="Column with the probability of the logged action.", show_default=False)
]


PEOPLE = ("--episodes", "--users")


class Field(NamedTuple):
    """One option. A default of None means that nothing was said; `shown` is then what will hold."""

    kind: Any
    help: str
    default: Any = None
    shown: str | bool = False
    flags: tuple[str, ...] = ()  # where they are not the name
    names: Callable[[str], list[tuple[str, str]]] | None = None  # what a shell completes

    def annotation(self, name: str) -> Any:
        flags = self.flags or (("--" + name.replace("_", "-"),) if self.default is False else ())
        shown = self.shown if self.default in (None, "") else True
        return Annotated[
            self.kind, typer.Option(*flags, help=self.help, show_default=shown, autocompletion=self.names)
        ]


def written(what: str, shown: str | bool = True) -> Any:
    """The option `--out`."""
    return typer.Option("--out", "-o", help=f"Where to write: {what}", show_default=shown)


def number_of_users(what: str = "every episode is another one.", shown: str | bool = True) -> Any:
    """The option `--episodes`, or `--users`: in a simulation these are one number."""
    return typer.Option(*PEOPLE, help=f"Number of users: {what}", show_default=shown)


#: A field, or an annotation and its default.
Options = Mapping[str, Field | tuple[Any, Any]]


def _parameter(name: str, option: Field | tuple[Any, Any]) -> inspect.Parameter:
    if isinstance(option, Field):
        option = option.annotation(name), option.default
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, annotation=option[0], default=option[1])


def taking(options: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that ends in `**said` these options, behind what it must be given; all come by name."""

    def changed(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        must = sum(p.default is inspect.Parameter.empty for p in named)
        added = [_parameter(name, option) for name, option in options.items()]
        command.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*named[:must], *added, *named[must:]]
        )
        return command

    return changed


#: What a log holds, and how it is written down.
LOG: Options = {
    "states": Field(str | None, "Number of states, or their names: a,b,c, or a file of one per line."),
    "actions": Field(str | None, "Number of actions, or their names: a,b,c, or a file of one per line."),
    "horizon": Field(int | None, "Steps per episode."),
    "declare": (Declare, None),
    "state": (State, None),
    "propensity": (Propensity, None),
    "time": Field(str | None, "Column of timestamps, or seconds, instead of steps."),
    "interval": Field(str | None, "With --time: what is one step, such as 30min, 4h or 1d."),
    "pooled": Field(bool, "Count over all steps together: what happens does not depend on the step.", False),
    "episodes_per_user": Field(int, "Most episodes of one user that count.", 1),
    "columns": Field(str, "Names of columns where they differ: user=patient,reward=score.", ""),
    "first_step": Field(int, "Number of an episode's first step in the log.", 0),
    "reward_range": Field(str, "Rewards are clipped to LOW:HIGH and scaled to [0, 1].", "0:1"),
    "early_end": Field(
        str, "Episodes that stop early: absorb (their people have left) or keep (rows as they are).", "absorb"
    ),
    "ended_pays": Field(
        float, "What a remaining step pays those whose episode has ended, in units of the reward.", 0.0
    ),
    "users": (Users, None),
    "table": (DatabaseTable, None),
    "engine": Field(str, "duckdb, or spark (needs discreet\\[spark]).", "duckdb"),
}
#: What a release from a log spends, and where that is written down.
RELEASE: Options = {
    "epsilon": Field(float | None, "Privacy budget per user."),
    "delta": (Delta, 0.0),
    "rho": Field(float | None, "zCDP budget per user, instead of epsilon."),
    "neighbours": (NeighboursOption, "replace"),
    "seed": Field(int | None, "Seed of all randomness: a simulation that can be repeated, and protects nobody."),
    "sign": Field(Path | None, "Sign with this Ed25519 key (PEM), made by openssl genpkey -algorithm ed25519."),
    "ledger": Field(Path | None, "Where releases are written down.", shown="beside the log: LOG.spent.jsonl"),
    "total_epsilon": Field(
        float | None, "Refuse what brings all releases in the ledger above this, now and from now on."
    ),
    "purpose": Field(str | None, "For the ledger and the certificate: what it is for."),
    "operator": Field(str | None, "For the ledger and the certificate: who releases.", shown="in the ledger: you"),
}
#: Of these, what functions take as it was said.
WRITTEN = ("seed", "ledger", "total_epsilon", "purpose", "operator")


def own_or_named(env: str, instance: int = 0) -> tuple[str | FiniteMDP, int]:
    """What `--env` names, and the instance that is left to choose: a name of ours, or a model of one's own.

    `module:name` is found where it is installed, and in this folder.
    """
    from discreet.runs.sweeps import importable, model_of

    importable(Path.cwd())
    return model_of(env, instance)


def one_of(option: str, value: str) -> Literal["replace", "zero-out"]:
    if value == "replace":
        return "replace"
    if value == "zero-out":
        return "zero-out"
    raise ValueError(f"{option} is {value!r}; it must be replace or zero-out")


#: Between them a warning says what is left of the promise; above, a budget is refused, or infinite.
WEAK, NONE = 10.0, 1000.0


def warn_of_a_weak_promise(epsilon: float) -> None:
    """Of a number at which nobody is protected from whoever wants to know; infinity says so itself."""
    from discreet.pages import odds

    if WEAK < epsilon <= NONE:
        warn(
            f"ε = {epsilon:g} promises next to nothing: what is released may make anybody's records "
            f"{odds.factor(epsilon)} times as likely as others; 1 is usual"
        )


def budget_of(epsilon: float | None, delta: float, rho: float | None = None) -> Budget:
    from discreet.privacy.accounting import Budget

    if (epsilon is None) == (rho is None):
        raise ValueError("state a budget: either --epsilon (with or without --delta) or --rho")
    if rho is not None:
        return Budget.zcdp(rho, delta or None)
    assert epsilon is not None
    warn_of_a_weak_promise(epsilon)
    return Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)


def doubt_delta(delta: float, users: int) -> None:
    """Warn of a δ at which the promise is hardly one."""
    from discreet.privacy.accounting import doubt_about

    if said := doubt_about(delta, users):
        warn(said)


def spoken(context: typer.Context, names: tuple[str, ...]) -> list[str]:
    """Which of these options stand on the command line."""
    said = ((name, context.get_parameter_source(name)) for name in names)
    return [
        f"--{name.replace('_', '-')}" for name, source in said if source is not None and source.name == "COMMANDLINE"
    ]
