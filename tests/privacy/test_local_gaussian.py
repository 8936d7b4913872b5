"""Local reports with discrete Gaussian noise: what they cost, what devices allow, and one law on every path."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import signal, stats
from typer.testing import CliRunner

from discreet.cli import app
from discreet.device import (
    GaussianEncoder,
    LaplaceEncoder,
    LossTables,
    Noise,
    Refused,
    Reporter,
    Tables,
    encoder_from_json,
)
from discreet.occupancies import Layers
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Budget, epsilon_of, rho_of
from discreet.privacy.noise import DiscreteGaussian, NoiseSource
from discreet.privacy.trust import local
from discreet.privacy.trust.local import LocalGaussian
from discreet.privacy.trust.local_losses import LocalLosses
from discreet.runs.experiment import Experiment, Setting, run

RHO = Budget.zcdp(0.5)
EPISODE = [0, 1, 1], [1, 0], [1.0, 0.5]


def records(tables: Tables | LossTables) -> list[tuple]:
    """Every record of two steps, and bad ones."""
    found: list[tuple] = [([0, 5, 0], [0, 0], [1.0, 1.0])]
    walks = itertools.product(itertools.product(range(2), repeat=3), itertools.product(range(2), repeat=2))
    if isinstance(tables, LossTables) and tables.feedback == "full":
        paid: list = [np.full((2, 2, 2), value) for value in (0.0, 1.0)]
    else:
        paid = list(itertools.product((0.0, 1.0), repeat=2))
    return found + [(states, actions, amount) for (states, actions), amount in itertools.product(walks, paid)]


@pytest.mark.parametrize(
    "tables",
    [
        Tables(2, 2, 2, 2, 0.5, (0.0, 1.0)),
        Tables(2, 2, 2, 1, 0.5, (0.0, 1.0)),
        LossTables(((0, 1), (0, 1)), 2, 2, "full", 0.5),
        LossTables(((0, 1), (0, 1)), 2, 2, "bandit", 0.5),
    ],
    ids=["staged", "pooled", "losses", "bandit losses"],
)
@pytest.mark.parametrize("scales", [(3.0, 5.0, 7.0), (2.5, None, 11.0)])
def test_rho_of_gaussian_reports_is_the_worst_of_all_pairs_of_records(tables, scales):
    """Brute force: Σ_f ‖x_f − x'_f‖²/(2σ_f²); tables are moved apart, so that their worst cases may add up."""
    encoder = GaussianEncoder(tables, scales)
    values = np.unique([encoder.contribution(*record) for record in records(tables)], axis=0)
    worst, start = Fraction(0), 0
    for size, sigma in zip(encoder.sizes, scales, strict=True):
        part = values[:, start : start + size]
        start += size
        if sigma is not None:
            most = max(int(((part - one) ** 2).sum(axis=1).max()) for one in part)
            worst += most / (2 * Fraction(sigma) ** 2)
    assert Fraction(math.nextafter(encoder.rho, 0.0)) < worst <= Fraction(encoder.rho)
    assert encoder.epsilon == math.inf


def test_the_device_computes_the_rho_that_the_server_charges():
    for spec in (CountSpec(3, 2, 5, False, 2.0**-10), CountSpec(3, 2, 5, True, 2.0**-10)):
        for budget in (RHO, Budget.zcdp(1e-3), Budget.approximate(1.0, 1e-6)):
            stream = LocalGaussian(budget).open(spec, 100, NoiseSource.secure())
            charged = math.fsum(entry.cost for entry in stream.ledger)
            assert charged == pytest.approx(stream.encoder.rho, rel=1e-12)
            assert 0.9999 * budget.total("gaussian") < stream.encoder.rho <= budget.total("gaussian")
            assert stream.guarantee.model == "local"


def test_a_device_refuses_more_than_its_rho_before_any_noise_is_drawn():
    encoder = encoder_from_json(
        LocalGaussian(RHO).open(CountSpec(2, 2, 2, False), 5, NoiseSource.secure()).encoder.to_json()
    )
    assert isinstance(encoder, GaussianEncoder)
    drained = Noise.replayed([])
    for limits in ({"rho_at_most": 0.49}, {"epsilon_at_most": 20.0}, {"rho_at_most": math.nan}):
        with pytest.raises(Refused, match="nothing was sent"):
            encoder.encode("ann", *EPISODE, drained, **limits)
    with pytest.raises(TypeError, match="must be stated"):
        encoder.encode("ann", *EPISODE, drained)
    device = Reporter("ann", rho_at_most=0.5)
    report = device.report("shop", encoder, *EPISODE)
    assert len(report.payload) == 8 * sum(encoder.sizes)
    with pytest.raises(Refused, match="already reported"):
        device.report("shop", encoder, *EPISODE)
    with pytest.raises(Refused, match="may spend none"):
        device.bits("clinic", None, *EPISODE, delta_at_most=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("scales", [(0.0, 5.0, 5.0), (5.0, 0.0, None)])
def test_an_edited_announcement_without_noise_costs_everything(scales):
    encoder = GaussianEncoder(Tables(2, 2, 2, 2, 0.5, (0.0, 1.0)), scales)
    assert encoder.rho == encoder.epsilon == math.inf
    with pytest.raises(Refused):
        encoder.encode("ann", *EPISODE, Noise(), rho_at_most=1e9)


def test_a_pure_message_also_has_a_rho():
    encoder = LaplaceEncoder(Tables(2, 2, 2, 2, 0.5, (0.0, 1.0)), (8.0, 8.0, 16.0))
    assert encoder.epsilon == 1.5
    assert encoder.rho == 1.125
    Reporter("ann", rho_at_most=1.125).report("shop", encoder, *EPISODE)
    with pytest.raises(Refused, match=r"costs rho = 1\.125, more than the 1\.12"):
        Reporter("ann", rho_at_most=1.12).report("shop", encoder, *EPISODE)


@pytest.mark.parametrize("limits", [(), (0.0,), (-1.0,)])
def test_a_device_without_a_limit_is_refused(limits):
    with pytest.raises(ValueError, match="positive number"):
        Reporter("ann", *limits)


USERS = 40
#: One state, many actions: thousands of counters with independent noise in one release.
WIDE = CountSpec(1, 2500, 1, True, grid=1.0)


def noise_of(path: str, sigma: float) -> np.ndarray:
    budget = Budget.zcdp(3.0 / sigma**2)  # σ² = 3Δ²/(2ρ), Δ² = 2
    stream = LocalGaussian(budget).open(WIDE, USERS, NoiseSource.seeded(11))
    assert stream.ledger[0].scale == pytest.approx(sigma)
    idle = Episodes(np.zeros((USERS, 2), int), np.zeros((USERS, 1), int), np.zeros((USERS, 1)))
    if path == "compound":
        stream.add(idle)
    elif path == "direct":
        for i in range(0, USERS, 20):
            stream.add(Episodes(idle.states[i : i + 20], idle.actions[i : i + 20], idle.rewards[i : i + 20]))
    else:
        device = NoiseSource.seeded(12)
        for user in range(USERS):
            stream.add_report(stream.encoder.encode(str(user), [0, 0], [0], [0.0], device, rho_at_most=budget.rho))
    release = stream.release()
    return np.concatenate([t.reshape(-1)[1:] for t in (release.visits, release.transitions, release.reward_sums)])


def summed_law(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    one = DiscreteGaussian(sigma).pmf(np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1))
    total = np.array([1.0])
    for _ in range(USERS):
        total = signal.fftconvolve(total, one)
    total = np.maximum(total, 0.0)
    return np.arange(-(total.size // 2), total.size // 2 + 1), total / total.sum()


def fits(sample: np.ndarray, support: np.ndarray, pmf: np.ndarray) -> float:
    edges = np.unique(support[np.searchsorted(np.cumsum(pmf), np.arange(1, 30) / 30)])
    below = np.concatenate([[0.0], np.cumsum(pmf)[np.searchsorted(support, edges)], [1.0]])
    observed = np.bincount(np.searchsorted(edges, sample, side="left"), minlength=edges.size + 1)
    return float(stats.chisquare(observed, np.diff(below) * sample.size).pvalue)


@pytest.mark.parametrize("sigma", [0.6, 4.0])
def test_devices_the_server_and_simulations_have_one_law_and_wrong_ones_do_not(sigma):
    support, law = summed_law(sigma)
    samples = {path: noise_of(path, sigma) for path in ("compound", "direct", "reports")}
    for sample in samples.values():
        assert fits(sample, support, law) > 1e-3
    for factor in (0.9, 1.1):
        assert fits(samples["compound"], *summed_law(factor * sigma)) < 1e-6


def test_many_gaussian_noises_of_three_or_more_are_one_with_the_sum_of_their_variances():
    """By convolution, in exact sums: the laws differ by less than the rounding of the convolution itself."""
    support, law = summed_law(local.SMOOTH)
    one = DiscreteGaussian(local.SMOOTH * math.sqrt(USERS)).pmf(support)
    assert np.abs(law - one).sum() < 1e-12
    support, law = summed_law(0.3)
    assert np.abs(law - DiscreteGaussian(0.3 * math.sqrt(USERS)).pmf(support)).sum() > 0.1  # so small ones are summed


def test_secure_gaussian_sums_draw_everybodys_noise():
    encoder = GaussianEncoder(WIDE.tables, (5.0, 5.0, 5.0))
    sums = local.summed_noises(encoder, USERS, NoiseSource.secure())
    assert sums.var() == pytest.approx(USERS * 25.0, rel=0.12)  # sd of this ratio: 1.6 %


def test_pure_epsilon_buys_no_gaussian_reports():
    with pytest.raises(ValueError, match="never gives pure epsilon"):
        LocalGaussian(Budget.pure(1.0))
    with pytest.raises(ValueError, match="'replace'"):
        LocalGaussian(RHO, neighbours="zero-out")


@pytest.mark.parametrize("feedback", ["full", "bandit"])
@pytest.mark.parametrize("paper", [False, True])
def test_losses_have_gaussian_reports_of_the_stated_cost(feedback, paper):
    layers = Layers(((0,), (0, 1), (1,)), np.array([1.0, 0.0]), 2)
    spec = LossSpec(layers, feedback, 9, 0.25)
    stream = LocalLosses(RHO, laplace=paper).open(spec, NoiseSource.seeded(0))
    assert isinstance(stream.encoder, GaussianEncoder)
    assert stream.encoder.rho == pytest.approx(0.5, rel=1e-9)
    assert stream.encoder.rho <= 0.5
    assert stream.guarantee.rho == pytest.approx(0.5, rel=1e-9)
    assert (stream.encoder.scales[0] is None) != paper  # visits are printed only
    assert (stream.release().visits is None) != paper
    with pytest.raises(ValueError, match="state epsilon alone"):
        LocalLosses(RHO, laplace=True, calibration="paper").open(spec, NoiseSource.seeded(0))


@pytest.mark.parametrize("budget", [{"rho": 2.0}, {"epsilon": 4.0, "delta": 1e-6}])
@pytest.mark.parametrize("name", ["dp-ucbvi", "private-ucb-po", "private-uc-o-reps", "private-uob-lbps"])
def test_learners_run_locally_on_gaussian_reports(name, budget):
    sizes = {"env": "layered"} if "uo" in name or "uc-o" in name else {"states": 3, "horizon": 4}
    done = run(Experiment(name, model="local", episodes=200, **sizes, **budget), 0)
    rho = budget.get("rho") or rho_of(4.0, 1e-6)
    assert done.guarantee.rho == pytest.approx(rho, rel=1e-9)
    assert done.guarantee.epsilon == pytest.approx(epsilon_of(rho, 1e-6), rel=1e-6)
    assert {entry.mechanism for entry in done.guarantee.entries} == {"discrete-gaussian"}


def test_the_kind_of_reports_follows_from_the_budget():
    said = {"model": "local", "states": 3, "horizon": 4, "episodes": 50}
    assert Experiment("dp-ucbvi", rho=1.0, **said).resolved.local_reports == "gaussian"
    assert Experiment("dp-ucbvi", rho=1.0, mode="paper", **said).resolved.local_reports == "gaussian"
    assert Experiment("dp-ucbvi", epsilon=1.0, **said).resolved.local_reports == "sampled"
    same = [Experiment("dp-ucbvi", rho=1.0, local_reports=kind, **said).id for kind in (None, "gaussian")]
    assert same[0] == same[1]
    for arguments, words in (
        ("--rho 1 --local-reports laplace", "buys Gaussian noise on every counter; leave local-reports out"),
        ("--epsilon 1 --local-reports gaussian", "needs rho, or a delta; leave local-reports out"),
        ("--rho 1 --noise printed", "state epsilon alone"),
    ):
        result = CliRunner().invoke(
            app, ["run", "dp-ucbvi", "--model", "local", "--episodes", "20", *arguments.split()]
        )
        assert result.exit_code == 2
        assert words in result.stderr


def test_gaussian_reports_are_less_noisy_than_laplace_reports_of_the_same_epsilon():
    """At (1, 10⁻⁶) and many steps, where one report moves √(2H) and not 2H."""
    spreads = {}
    for name, budget in (("gaussian", {"epsilon": 1.0, "delta": 1e-6}), ("laplace", {"epsilon": 1.0})):
        said = Experiment("dp-ucbvi", model="local", horizon=40, local_reports=name, episodes=100, **budget)
        setting = Setting.of(said)
        stream = setting.triple().privatizer.open(setting.spec, 100, NoiseSource.seeded(0))
        spreads[name] = stream._families[0].deviation
    assert spreads["gaussian"] < 0.6 * spreads["laplace"]
