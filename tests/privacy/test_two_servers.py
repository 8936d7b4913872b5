"""Two servers: the law of what they publish, and what either of them sees."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from discreet.cli import app
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget
from discreet.privacy.audit.attacks import server_game
from discreet.privacy.audit.games import audited
from discreet.privacy.noise import DiscreteLaplace, NoiseSource
from discreet.privacy.trust.reports import Reports
from discreet.privacy.trust.two_servers import TwoServerReports
from discreet.releases.reports import Targets
from discreet.runs import feasibility

REACH = 400


def law_of(scale: float) -> np.ndarray:
    """P(X = x), x = −REACH..REACH, of one discrete Laplace noise."""
    q = math.exp(-1.0 / scale)
    return (1.0 - q) / (1.0 + q) * q ** np.abs(np.arange(-REACH, REACH + 1.0))


def half_law(scale: float) -> np.ndarray:
    """Of one of two independent parts whose sum is one discrete Laplace noise: a difference of two negative binomials
    with half a success."""
    q = math.exp(-1.0 / scale)
    part = stats.nbinom.pmf(np.arange(REACH + 1), 0.5, 1.0 - q)
    return np.convolve(part, part[::-1])


def ratio(law: np.ndarray, moved: int) -> float:
    """max over y of ln P(X = y)/P(X = y − moved), where both are far from the ends of the table."""
    inside = law[REACH - 60 : REACH + 60]
    shifted = law[REACH - 60 - moved : REACH + 60 - moved]
    return float(np.abs(np.log(inside / shifted)).max())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_a_corrupt_server_is_left_with_one_whole_noise_and_half_a_noise_would_not_do(epsilon):
    """It takes off its shares and its own noise: a report moves two items by one each."""
    scale = TwoServerReports(Budget.pure(epsilon)).entry().scale
    assert 2 * ratio(law_of(scale), 1) == pytest.approx(epsilon, rel=1e-6)
    split = half_law(scale)
    assert np.convolve(split, split)[REACH * 2] == pytest.approx(
        law_of(scale)[REACH], rel=1e-3
    )  # the sum is one noise
    assert 2 * ratio(split, 1) > 1.15 * epsilon


class OneNoiseInTwoParts(TwoServerReports):
    """Both parts add up to the noise of a curator: half the variance of two whole ones."""

    def drawn(self, size: int, noise: NoiseSource) -> np.ndarray:
        q = math.exp(-1.0 / self.entry().scale)
        up, down = (noise.generator().negative_binomial(0.5, 1.0 - q, (2, size)) for _ in range(2))
        return up - down


def test_a_corrupt_server_sees_at_most_epsilon_and_more_where_one_noise_was_split():
    for items in (4, 24):
        shipped = server_game(TwoServerReports(Budget.pure(1.0)), 1.0, items)
        found = audited("two servers", shipped, 20_000)
        assert found.exact == pytest.approx(1.0, rel=1e-8)
        assert not found.refuted
        split = replace(server_game(OneNoiseInTwoParts(Budget.pure(1.0)), 1.0, items), exact=None)
        assert audited("split", split, 20_000).lower_bound > 1.5


def test_a_noise_known_to_a_corrupt_server_hides_nothing():
    class SameNoise(TwoServerReports):
        def drawn(self, size: int, noise: NoiseSource) -> np.ndarray:
            return np.stack([super().drawn(size, noise)[0], np.zeros(size, dtype=np.int64)])

    bare = replace(server_game(SameNoise(Budget.pure(1.0)), 1.0, 4), exact=None)
    assert audited("one noise", bare, 4000).lower_bound > 5.0


def test_shares_of_one_server_say_nothing_and_both_add_up():
    """All of a tiny protocol modulo 5: B's share is uniform whatever is reported, and so is what A holds."""
    for report in range(5):
        shares = [(u, (report - u) % 5) for u in range(5)]
        assert sorted(b for _, b in shares) == sorted(a for a, _ in shares) == list(range(5))
        assert {(a + b) % 5 for a, b in shares} == {report}


def released(privatizer, seed: int, epochs: int) -> np.ndarray:
    """Noise alone: the only user reports nothing that is asked for."""
    spec = CountSpec(3, 2, 2, True)
    stream = privatizer.open(spec, epochs, NoiseSource.seeded(seed))
    cells = np.zeros(stream.alphabet.num_rows, dtype=bool)
    cells[5] = True
    nobody = Episodes(np.zeros((1, 3), int), np.zeros((1, 2), int), np.zeros((1, 2)))
    policy = np.full((2, 3, 2), 0.5)
    found = []
    for _ in range(epochs):
        stream.begin(Plan(policy, np.zeros((3, 3)), np.zeros((2, 3, 2)), announcement=Targets(cells)))
        stream.add(nobody)
        found.append(stream.release().histogram[0])
    return np.concatenate(found)


def test_the_release_carries_two_noises_and_no_other_number():
    """Chi-square against the convolution of two laws; it rejects one noise, and .9 and 1.1 of the scale."""
    sample = released(TwoServerReports(Budget.pure(1.0)), 3, 2000)
    edges = [-math.inf, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, math.inf]
    seen = np.histogram(sample, bins=[-1e9, *(np.array(edges[1:-1]) + 0.5), 1e9])[0]

    def p_value(law: np.ndarray) -> float:
        middle = law.size // 2
        place = np.arange(law.size) - middle
        due = np.histogram(place, bins=[-1e9, *(np.array(edges[1:-1]) + 0.5), 1e9], weights=law)[0]
        return float(stats.chisquare(seen, due / due.sum() * seen.sum()).pvalue)

    scale = TwoServerReports(Budget.pure(1.0)).entry().scale
    two = lambda factor: np.convolve(law_of(factor * scale), law_of(factor * scale))  # noqa: E731
    assert p_value(two(1.0)) > 0.01
    for wrong in (law_of(scale), two(0.9), two(1.1)):
        assert p_value(wrong) < 1e-6


def test_the_stated_variance_is_that_of_two_noises_and_the_price_is_that_of_a_curator():
    spec, noise = CountSpec(3, 2, 2, True), NoiseSource.seeded(0)
    two, one = (kind(Budget.pure(1.0)).open(spec, 5, noise) for kind in (TwoServerReports, Reports))
    assert two.variance(9) == pytest.approx(2 * DiscreteLaplace(two.ledger[0].scale).variance)
    assert two.variance(9) > 2 * one.variance(9)  # a curator's noise is balanced as well
    assert two.ledger[0].scale == one.ledger[0].scale
    assert (two.guarantee.model, two.guarantee.epsilon) == ("two-servers", one.guarantee.epsilon)
    assert "at least one of the two servers keeps its shares" in " ".join(two.guarantee.assumptions)
    lost = [kind(Budget.pure(1.0)).users_lost(spec) for kind in (TwoServerReports, Reports)]
    assert lost[0] == pytest.approx(
        9.5 / 12.0 * math.sqrt(2.0) * lost[1]
    )  # fewer deviations of two noises say as much


def test_it_is_one_word_on_the_command_line():
    command = "run spotlight --model two-servers --epsilon 1 --pooled --states 3 --horizon 6 --episodes 3000 --json"
    found = CliRunner().invoke(app, command.split())
    assert found.exit_code == 0, found.output
    guarantee = json.loads(found.stdout)["guarantee"]
    assert (guarantee["model"], guarantee["epsilon"]) == ("two-servers", 1.0)
    refused = CliRunner().invoke(app, ["run", "dp-ucbvi", "--model", "two-servers", "--epsilon", "1"])
    assert refused.exit_code == 2


def calibrated(**others: object) -> feasibility.Calibration:
    return feasibility.calibrate(3, 2, 6, 3000, 1.0, model="two-servers", pooled=True, **others)


def test_calibrate_says_what_two_servers_need():
    found = calibrated()
    (reports,) = found.families.values()
    assert (reports.l1, reports.l2, found.levels) == (2.0, math.sqrt(2.0), 1)
    assert reports.deviation == pytest.approx(math.sqrt(2.0) * math.sqrt(DiscreteLaplace(reports.scale).variance))
    assert (found.guarantee.model, found.guarantee.epsilon) == ("two-servers", 1.0)
    assert found.spotlight == found.forecast
    curator = feasibility.calibrate(3, 2, 6, 3000, 1.0, pooled=True).spotlight
    assert curator.users_needed < found.forecast.users_needed < 1.5 * curator.users_needed
    assert calibrated(neighbours="zero-out").families["reports"].l1 == 1.0


def test_the_width_of_reports_covers_every_sub_cell_of_all_epochs():
    """At most one epoch per user, 3·2·6 sub-cells, one in a hundred runs: the least whole number by the exact law."""
    (reports,) = calibrated().families.values()
    law = np.convolve(law_of(reports.scale), law_of(reports.scale))
    place = np.abs(np.arange(law.size) - law.size // 2)

    def missed(width: float) -> float:
        return 3000 * 3 * 2 * 6 * float(law[place > width].sum())

    assert missed(reports.width) <= 0.01 < missed(reports.width - 1.0)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"schedule": "every"}, "use the schedule epochs"),
        ({"delta": 1e-6}, "reports spend pure epsilon"),
        ({"losses": True, "pooled": False}, "joint model"),
    ],
)
def test_what_two_servers_cannot_do_is_refused_in_a_sentence(said, words):
    with pytest.raises(ValueError, match=words):
        feasibility.calibrate(3, 2, 6, 3000, 1.0, model="two-servers", **said)


def test_calibrate_on_the_command_line_gives_the_verdict_once():
    command = ["calibrate", "--epsilon", "1", "--model", "two-servers", "--pooled"]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    assert found.stdout.count("one report each can be learned from") == 1
    assert "two-servers DP, ε = 1 per user" in found.stdout
    printed = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (printed["guarantee"]["model"], list(printed["families"])) == ("two-servers", ["reports"])
