"""Runs, their results, and pictures of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.completing import learners
from discreet.cli.options import Jobs, Json, doubt_delta, taking, written
from discreet.cli.settings import SETTINGS
from discreet.cli.terminal import compilation_notice, note, progress_bar, say, say_json, show, warn
from discreet.runs.seeds import seed_list

if TYPE_CHECKING:
    from discreet.runs.experiment import Experiment, Setting
    from discreet.runs.forecasts import Forecast
    from discreet.runs.report import Summary
    from discreet.runs.results import RunResult
    from discreet.runs.statistics import Variation

NOT_A_RELEASE = "simulation: all randomness came from a seed, so this is not a private release"

Secure = Annotated[bool, typer.Option("--secure", help="Once, without a seed: noise from cryptographic randomness.")]
Results = Annotated[
    Path | None, written("a folder for results; seeds that this source left there are not run again.")
]


@taking(SETTINGS)
def run(
    name: Annotated[
        str,
        typer.Argument(
            help="A learner; `discreet algorithms` lists them. Or module:name of your own.",
            show_default=False,
            autocompletion=learners,
        ),
    ],
    seeds: Annotated[
        str | None, typer.Option(help="Seeds: 0:10 (half-open), 3, or 1,5,9.", show_default="0:1")
    ] = None,
    secure: Secure = False,
    out: Results = None,
    as_json: Json = False,
    jobs: Jobs = 1,
    **settings: Any,
) -> None:
    """Let a learner learn, and measure its exact regret. `discreet run NAME --help` shows that learner's options.

    [bold]Examples[/bold]

    discreet run ucbvi-bernstein                              RiverSwim, 20 000 users

    discreet run dp-ucbvi --pooled --epsilon 1                with joint privacy

    discreet run spotlight --pooled --epsilon 1 --env two-rooms --seeds 0:2 --jobs 2

    discreet run ucbvi --env gym:FrozenLake-v1 --users 2000 --json

    discreet run ucbvi --seeds 0:3 --out results/             stop it, start it again: it goes on

    discreet run spotlight --env mine:mdp --pooled --epsilon 1           your own model, in mine.py
    """
    if secure and seeds is not None:
        raise ValueError("--secure draws fresh randomness, so it takes no --seeds; leave one of the two out")
    if jobs != -1 and jobs < 1:
        raise ValueError(f"--jobs is {jobs}; it must be at least 1, or -1 for every core")
    experiment = asked_for(name, **settings)
    wanted = [None] if secure else seed_list(seeds or "0:1")
    with compilation_notice():
        setting = prepared(experiment)
        summary = executed(setting, wanted, out, jobs)
    if said := limits_notice(summary.rows):
        warn(said)
    if as_json:
        say_json(document(setting, summary))
        return
    say(heading(setting, summary))
    show(result_table(summary))
    say(guarantee_line(summary, twin_run(setting, wanted[0])))
    if out is not None:
        say(f"results are in {out}; `discreet plot {out}` draws them")


def asked_for(name: str, env: str, **settings: Any) -> Experiment:
    """The experiment; `module:name` is a learner or a model of one's own, installed or in this folder."""
    from discreet.runs.sweeps import experiment_of, importable, learner_of, place_of

    importable(Path.cwd())
    return experiment_of(learner_of(name), place_of(env), settings)


def prepared(experiment: Experiment) -> Setting:
    """Build everything but the run, so that whatever is wrong is said before anything is computed."""
    from discreet.privacy.noise import NoiseSource
    from discreet.runs.experiment import Setting
    from discreet.session import Session

    setting = Setting.of(experiment)
    Session.open(setting.triple(), setting.problem, NoiseSource.seeded(0), setting.entry.feedback)
    if setting.problem.private and not (outlook := foreseen(setting)).feasible:
        warn(outlook.verdict)
    doubt_delta(setting.said.delta, setting.said.episodes)
    return setting


def foreseen(setting: Setting) -> Forecast:
    """Whether its people teach the learner: by the rule, or tried out where the rule leaves it open."""
    from discreet.runs.rehearsal import doubtful, rehearsed

    law = setting.forecast()
    return rehearsed(setting, law) if doubtful(setting, law) else law


def executed(
    setting: Setting, seeds: Sequence[int | None], out: Path | None, jobs: int, tell: Callable[[str], None] = note
) -> Summary:
    """Run the seeds that this source has not left in the folder yet, and summarise all in the order asked for."""
    from discreet import provenance
    from discreet.runs import results
    from discreet.runs.experiment import run_seeds
    from discreet.runs.report import summaries

    experiment = setting.said
    rows: dict[int | None, RunResult] = {}
    if out is not None:
        results.prepare(out)
        stored = results.stored_seeds(out, experiment.id)
        fresh = {seed for seed, row in stored.items() if row.facts.get("source") == provenance.source_digest()}
        rows |= {seed: stored[seed] for seed in seeds if seed in fresh}
        if rows:
            tell(f"{len(rows)} of {len(seeds)} seeds are in {out} already; they are not run again")
        if stale := len((stored.keys() - fresh) & set(seeds)):
            tell(f"{stale} of {len(seeds)} seeds in {out} come from another version of the source; they are replaced")

    def finished(result: RunResult) -> None:
        rows[result.seed] = result
        if out is not None:
            results.write(result, out)

    missing = [seed for seed in seeds if seed not in rows]
    if missing:
        with progress_bar(experiment.entry.name, experiment.episodes * len(missing)) as advance:
            run_seeds(experiment, missing, jobs, advance, finished)
    return summaries(rows[seed] for seed in seeds)[0]


def document(setting: Setting, summary: Summary) -> dict[str, Any]:
    """The result as `--json` prints it; infinite and undefined numbers are null."""
    experiment, rows = setting.said, summary.rows
    guarantee = summary.guarantee.to_json()
    ledger = guarantee.pop("entries")
    return {
        "algorithm": experiment.settings["algorithm"],
        "env": experiment.settings["env"],
        "states": experiment.states,
        "actions": setting.mdp.num_actions,
        "horizon": experiment.horizon,
        "instance": experiment.instance,
        "episodes": experiment.episodes,
        "seeds": [row.seed for row in rows],
        "pooled": experiment.pooled,
        "schedule": experiment.schedule,
        "mode": experiment.mode,
        "noise": experiment.noise,
        "confidence_scale": experiment.confidence_scale,
        "reward_law": setting.law.kind,
        "regret": [float(row.regret[-1]) for row in rows],
        "regret_ratio": spread_json(summary.ratio, [row.regret_ratio for row in rows]),
        "final_gap": spread_json(summary.gap, [row.final_gap for row in rows]),
        "values_are": "losses" if is_adversarial(experiment) else "returns",
        "value_optimal": rows[0].value_optimal,
        "value_random": rows[0].value_random,
        "value_last_policy": [row.final_value for row in rows],
        "switches": [row.switches for row in rows],
        "episodes_per_second": summary.episodes_per_second,
        "guarantee": {**guarantee, "simulation": rows[0].simulation},
        "ledger": ledger,
        **adversarial_part(experiment, rows),
        **thresholds_part(rows),
        "id": rows[0].id,
        "version": rows[0].version,
        "source": rows[0].facts.get("source"),
    }


def spread_json(spread: Variation | None, per_seed: list[float | None]) -> dict[str, Any]:
    names = ("mean", "sd", "median", "worst")
    return {**{name: getattr(spread, name, None) for name in names}, "per_seed": per_seed}


def is_adversarial(experiment: Experiment) -> bool:
    return experiment.entry.runner == "adversarial"


def adversarial_part(experiment: Experiment, rows: Sequence[RunResult]) -> dict[str, Any]:
    """What only runs against an adversary have; values are then mean losses, regret is against hindsight."""
    if not is_adversarial(experiment):
        return {}
    return {
        "adversary": experiment.adversary,
        "losses": experiment.losses,
        "estimator": experiment.estimator,
        "regret_per_step": [row.diagnostics["regret_per_step"] for row in rows],
        "unsolved": [row.diagnostics["unsolved"] for row in rows],
    }


def thresholds_part(rows: Sequence[RunResult]) -> dict[str, Any]:
    """What only learners of heavy tails have: how many of the last thresholds are at their limits, per seed."""
    from discreet.problem import THRESHOLDS

    if "largest_thresholds" not in rows[0].diagnostics:
        return {}
    counts = {name: [row.diagnostics[f"{name}_thresholds"] for row in rows] for name in ("smallest", "largest")}
    return {"thresholds": {"limits": list(THRESHOLDS), **{f"at_{name}": each for name, each in counts.items()}}}


def limits_notice(rows: Sequence[RunResult]) -> str | None:
    """That rewards were cut at a limit of ours and not where the learner wanted, or None."""
    found = thresholds_part(rows).get("thresholds")
    if found is None or not any((*found["at_smallest"], *found["at_largest"])):
        return None
    (smallest, largest), low, high = found["limits"], max(found["at_smallest"]), max(found["at_largest"])
    at = [f"{count} at {limit:g}" for count, limit in ((low, smallest), (high, largest)) if count]
    return (
        f"thresholds for rewards stay within {smallest:g} and {largest:g}, and the last plan has {' and '.join(at)}; "
        "rewards in other units, with moment-bound and mean-bound to match, would need no limit"
    )


def plus_minus(spread: Variation | None, digits: str) -> str:
    if spread is None:
        return "undefined: every policy is optimal"
    return f"{spread.mean:{digits}}" + (f" ± {spread.sd:{digits}}" if spread.sd is not None else "")


def heading(setting: Setting, summary: Summary) -> str:
    """What was run, in words."""
    experiment, rows = setting.said, summary.rows
    which = "pooled over steps" if experiment.pooled else "staged"
    seeds = "secure noise" if rows[0].seed is None else f"{len(rows)} seed{'s' if len(rows) > 1 else ''}"
    return (
        f"{experiment.entry.name} on {experiment.place.name}: {experiment.states} states, "
        f"horizon {experiment.horizon}, {experiment.episodes:,} episodes, {which}, {seeds}"
    )


def result_table(summary: Summary) -> Any:
    """One experiment for the eye."""
    import statistics

    from rich.table import Table

    rows, ratio, gap = summary.rows, summary.ratio, summary.gap
    losses = "comparator_loss" in rows[0].diagnostics
    table = Table(show_header=False)
    table.add_row("regret / regret of the random policy", plus_minus(ratio, ".4f"))
    if ratio is not None and len(rows) > 1:
        table.add_row("  median, worst seed", f"{ratio.median:.4f}, {ratio.worst:.4f}")
    if gap is not None:
        table.add_row("gap of the last policy / gap of the random policy", plus_minus(gap, ".4f"))
    table.add_row("regret", plus_minus(summary.regret, ",.1f"))
    last = statistics.fmean(row.final_value for row in rows)
    table.add_row("mean loss of the last policy" if losses else "value of the last policy", f"{last:.4f}")
    table.add_row(
        f"  {'best fixed' if losses else 'optimal'}, random policy",
        f"{rows[0].value_optimal:.4f}, {rows[0].value_random:.4f}",
    )
    rate = summary.episodes_per_second
    table.add_row("episodes per second", f"{rate:,.0f}" if rate is not None else "too fast to measure")
    return table


def twin_run(setting: Setting, seed: int | None) -> RunResult | None:
    """What the learner's twin without privacy reaches, on one seed: the price of privacy is the difference."""
    from discreet.runs.experiment import run as run_once

    twin = setting.said.twin
    return None if twin is None else run_once(twin, 0 if seed is None else seed)


def guarantee_line(summary: Summary, twin: RunResult | None = None) -> str:
    """One line anyone can read: what is promised, and what it cost."""
    row, ratio, gap = summary.rows[0], summary.ratio, summary.gap
    parts = [row.guarantee.sentence()]
    if ratio is not None and gap is not None:
        without = last = ""
        if twin is not None and twin.regret_ratio is not None:
            name, last = twin.settings["algorithm"].partition("@")[0], f", non-private {twin.final_gap:.3g}"
            without = f", non-private {twin.regret_ratio:.3g} ({name})"
        parts.append(f"regret {ratio.mean:.3g} of random{without}; gap of the last policy {gap.mean:.3g}{last}")
    if row.simulation:
        parts.append(NOT_A_RELEASE)
    return "guarantee: " + "; ".join(parts)


def plot(
    folder: Annotated[
        Path, typer.Argument(help="A folder that `discreet run … --out` has written.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        written("a .png, .svg or .pdf file.", "FOLDER-regret.png beside the folder"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw the learning curves of all results in a folder but those of seeds for tuning.

    [bold]Examples[/bold]

    discreet plot results/                                    results-regret.png

    discreet plot results/ --out curves.svg
    """
    from discreet.runs import report

    path = report.plot(folder, beside(folder) if out is None else out)
    rows = report.reportable(folder)
    found = report.summaries(rows)
    tell_sources(folder, rows)
    if as_json:
        say_json({"picture": str(path), "table": report.table(rows)})
        return
    show(comparison_table(found))
    say(guarantees(found))
    say(f"learning curves are in {path}")


def tell_sources(folder: Path, rows: Sequence[RunResult]) -> None:
    """Say where a table mixes what several versions of the program have computed."""
    if (sources := len({row.facts.get("source") for row in rows})) > 1:
        note(f"the results in {folder} come from {sources} versions of the source")


def beside(folder: Path, what: str = "regret.png") -> Path:
    """Where a picture of a folder of results goes: not into it, so that every file there is a table."""
    named = folder.resolve() if folder.name in ("", "..") else folder
    return named.parent / f"{named.name}-{what}"


def comparison_table(found: list[Summary]) -> Any:
    """Several experiments for the eye, the best first."""
    from rich import box
    from rich.table import Table

    seeds = sorted({len(summary.rows) for summary in found})
    runs = f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    title = f"regret, and gap of the last policy, relative to the random policy (1 = learned nothing), {runs} each"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("learner", style="bold", min_width=min(max(len(summary.label) for summary in found), 30))
    for column in ("mean ± sd", "median", "worst", "last gap"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("privacy")
    for summary in found:
        ratio, gap = summary.ratio, summary.gap
        table.add_row(
            summary.label,
            plus_minus(ratio, ".4f"),
            "" if ratio is None else f"{ratio.median:.4f}",
            "" if ratio is None else f"{ratio.worst:.4f}",
            "" if gap is None else f"{gap.mean:.4f}",
            summary.guarantee.model,
        )
    return table


def guarantees(found: list[Summary]) -> str:
    """The different promises behind a comparison, in words."""
    sentences = dict.fromkeys(summary.guarantee.sentence() for summary in found)
    return "guarantees: " + "; ".join(sentences)
