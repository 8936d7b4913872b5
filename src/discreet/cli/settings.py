"""The settings of an experiment as options of a command: one table, and help that shows a learner's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from discreet.cli import completing
from discreet.cli.commands import Command
from discreet.cli.options import PEOPLE, Field

#: All settings but the learner's name, as `discreet run` takes them.
SETTINGS = {
    "env": Field(
        str,
        "An environment; `discreet envs` lists them. Or module:name of your own.",
        "riverswim",
        names=completing.environments,
    ),
    "states": Field(int | None, "Number of states, where it can be chosen."),
    "horizon": Field(int | None, "Steps per episode, where it can be chosen."),
    "instance": Field(int, "Which random environment (this is not the seed of the run).", 0),
    "discount": Field(
        float | None, "Every step is the last with probability 1 - discount, in a state of its own.", shown="1"
    ),
    "episodes": Field(int, "Number of users: every episode is another one.", 20_000, flags=PEOPLE),
    "pooled": Field(bool, "Count over all steps together: the MDP is stationary.", False),
    "allow_pooled": Field(bool, "Printed constants on pooled counts, which no paper has.", False),
    "schedule": Field(str | None, "When to learn: every (episode) or epochs (growing).", shown="epochs"),
    "confidence_scale": Field(
        float | None,
        "Factor on widths of confidence: on the exploration bonus, where 1 is the theorem.",
        shown="the learner's",
    ),
    "rate_scale": Field(float | None, "Factor on the learning rate; 1 is the theorem's.", shown="the learner's"),
    "beta": Field(
        float | None,
        "How often bounds may fail: bonuses and widths, divided as in the paper.",
        shown="0.1, in widths of practical constants 0.01; of printed losses XA/K",
    ),
    "reward_law": Field(
        str | None,
        "bernoulli, deterministic, gaussian, alpha-stable, student-t or pareto.",
        shown="the environment's",
    ),
    "alpha": Field(float | None, "Tail of the alpha-stable law, in (1, 2].", shown="2"),
    "df": Field(float | None, "Degrees of freedom of Student's law, above 1.", shown="3"),
    "tail_index": Field(float | None, "Tail index of Pareto's law, above 1.", shown="3"),
    "moment_order": Field(
        float | None,
        "Heavy tails: v of E|r|^(1+v), in (0, 1]; with alpha below 2 take 1+v < alpha.",
        shown="1",
    ),
    "moment_bound": Field(float | None, "Heavy tails: public bound u on E|r|^(1+v).", shown="the law's"),
    "mean_bound": Field(float | None, "Heavy tails: public bound on |mean reward|.", shown="the law's"),
    "bonus": Field(str | None, "bernstein or hoeffding, where the learner has both.", shown="bernstein"),
    "mode": Field(
        str | None,
        "Constants: practical (discreet's own learner), or paper (as printed).",
        shown="practical",
        flags=("--constants",),
    ),
    "noise": Field(
        str | None,
        "Scale of the noise: true (gives the budget), or printed (a paper's, and what it truly gives).",
        shown="true",
    ),
    "epsilon": Field(float | None, "Privacy budget per user, of private learners: at most 20."),
    "delta": Field(
        float, "Delta of the budget: above 0 for (epsilon, delta), with Gaussian noise or shuffled bits.", 0.0
    ),
    "rho": Field(
        float | None,
        "zCDP budget per user, instead of epsilon; its epsilon is stated at delta, 1e-6 where none is said.",
    ),
    "local_reports": Field(
        str | None,
        "Local model: sampled (one step, unary code) or noise on every counter (laplace, gaussian).",
        shown="sampled; with rho or delta gaussian",
    ),
    "honest": Field(
        float | None, "Shuffle model: the fraction of every batch that surely adds its noise.", shown="1"
    ),
    "model": Field(
        str | None,
        "Whom users trust: joint (a curator), two-servers, shuffle (a mixer) or local (nobody).",
        shown="the learner's first",
        names=completing.models,
    ),
    "neighbours": Field(str | None, "replace or zero-out: what one user may change.", shown="replace"),
    "public_initial": Field(
        bool | None,
        "Where episodes start is declared public, hence known to the learner.",
        shown="public-initial",
    ),
    "known_successors": Field(bool, "Declare public which states can follow which.", False),
    "known_zero_rewards": Field(bool, "Declare public which cells never pay.", False),
    "adversary": Field(
        str | None, "Adversarial losses: iid, switch, sinusoid, blocks, flips or alternating.", shown="iid"
    ),
    "losses": Field(str | None, "Adversarial losses: private, or public tables.", shown="private"),
    "estimator": Field(
        str | None, "Bandit losses: corrected, or paper (as printed).", shown="corrected; with paper constants paper"
    ),
}


class LearnerCommand(Command):
    """A command whose help, once a learner is named, leaves out the settings that this learner has no use for."""

    _useless: frozenset[str] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._useless = frozenset() if {"-h", "--help"}.isdisjoint(args) else useless(args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return [param for param in super().get_params(ctx) if param.name not in self._useless]


def useless(args: Sequence[str]) -> frozenset[str]:
    """The settings without a use for the first learner among the words of a command; none where there is none."""
    from discreet.catalog import ALGORITHMS, load_plugins, settings_of

    named = [word for word in args if word in ALGORITHMS]
    if not named:
        load_plugins()
        named = [word for word in args if word in ALGORITHMS]
    return frozenset(SETTINGS) - settings_of(ALGORITHMS[named[0]]) if named else frozenset()
