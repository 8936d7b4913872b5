"""Tables and curves: the numbers, not the pixels."""

from __future__ import annotations

from statistics import median
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection

from discreet.privacy.accounting import no_privacy
from discreet.runs import report, results, statistics
from discreet.runs.experiment import Experiment, run


def row(algorithm="a", seed=0, regret=(1.0, 3.0, 4.0), seconds=0.5, gap=0.5, **settings):
    checkpoints = np.array([2, 4, 8])
    values = {"algorithm": algorithm, "env": "riverswim", "states": 6, "horizon": 20, "instance": 0, "episodes": 8}
    return results.RunResult(
        id=f"{algorithm}-{sorted(settings.items())}",
        settings={**values, **settings},
        seed=seed,
        checkpoints=checkpoints,
        regret=np.array(regret),
        random_regret=8 * gap,
        value_optimal=0.5 + gap,
        value_random=0.5,
        final_value=0.9,
        switches=1,
        guarantee=no_privacy(),
        seconds=seconds,
        diagnostics={},
        version="0",
    )


def test_spread_by_hand():
    spread = statistics.Variation.of([1.0, 2.0, 6.0])
    assert spread == statistics.Variation(mean=3.0, sd=pytest.approx(7**0.5), median=2.0, worst=6.0)
    assert statistics.Variation.of([2.0]).sd is None


def test_summary_of_three_seeds():
    rows = [row(seed=s, regret=(0, 0, r), seconds=t) for s, r, t in ((0, 1.0, 0.5), (1, 2.0, 2.0), (2, 3.0, 1.0))]
    (summary,) = report.summaries(rows)
    assert summary.ratio == statistics.Variation(0.5, pytest.approx(0.25), 0.5, 0.75)
    assert summary.regret.mean == 2.0
    assert summary.episodes_per_second == median([16.0, 4.0, 8.0])


def test_the_best_comes_first_and_the_undefined_last():
    rows = [row("bad", regret=(0, 0, 4)), row("flat", gap=0.0), row("good", regret=(0, 0, 1))]
    found = report.summaries(rows)
    assert [s.label for s in found] == ["good", "bad", "flat"]
    assert found[-1].ratio is None
    assert [c.label for c in report.curves(rows)] == ["good", "bad"]


def test_curves_divide_by_the_random_policy_so_far():
    (curve,) = report.curves([row(regret=(1.0, 2.0, 2.0)), row(seed=1, regret=(0.5, 1.0, 4.0))])
    assert curve.episodes.tolist() == [2, 4, 8]  # the random policy has lost 1, 2 and 4 by then
    np.testing.assert_array_equal(curve.mean, [0.75, 0.75, 0.75])
    np.testing.assert_array_equal(curve.low, [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(curve.high, [1.0, 1.0, 1.0])


def test_a_curve_of_a_real_run_ends_at_its_regret_ratio():
    result = run(Experiment("ucbvi", states=3, horizon=3, episodes=300), 0)
    (curve,) = report.curves([result])
    assert curve.mean[-1] == pytest.approx(result.regret_ratio, rel=1e-12)
    assert curve.episodes[-1] == 300


def test_labels_name_what_differs_and_nothing_else():
    rows = [
        row("ucbvi", epsilon=None, pooled=True),
        row("dp-ucbvi", epsilon=1.0, pooled=True),
        row("dp-ucbvi", epsilon=0.5, pooled=True),
        row("dp-ucbvi", epsilon=0.5, pooled=False),
    ]
    assert sorted(s.label for s in report.summaries(rows)) == [
        "dp-ucbvi, ε = 0.5",
        "dp-ucbvi, ε = 0.5, pooled",
        "dp-ucbvi, ε = 1, pooled",
        "ucbvi, pooled",
    ]


def test_environments_get_panels_of_their_own():
    rows = [row(), row("b"), row(env="two-rooms", states=16, horizon=15), row(instance=3)]
    assert {title: len(group) for title, group in report.panels(rows).items()} == {
        "riverswim, 6 states, horizon 20": 2,
        "riverswim, 6 states, horizon 20, instance 3": 1,
        "two-rooms, 16 states, horizon 15": 1,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    for name in ("ucbvi", "oppo"):
        for seed in range(2):
            results.write(run(Experiment(name, states=3, horizon=3, episodes=200), seed), path)
    return path


def test_plot_draws_every_learner(folder, tmp_path):
    svg = report.plot(folder, tmp_path / "curves.svg")
    text = svg.read_text()
    ElementTree.fromstring(text)
    for words in ("ucbvi", "oppo", "random policy", "episodes", "regret so far", "range over seeds"):
        assert words in text
    png = report.plot(folder, tmp_path / "curves.png")
    pixels = matplotlib.image.imread(png)
    assert min(pixels.shape[:2]) > 400
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 50
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.png", "curves.svg"]


def test_runs_are_drawn_as_their_folder_is(folder, tmp_path):
    drawn = [report.plot(runs, tmp_path / "curves.png").read_bytes() for runs in (folder, results.read(folder))]
    assert drawn[0] == drawn[1]
    with pytest.raises(ValueError, match="there are no runs to draw"):
        report.plot([], tmp_path / "curves.png")


def test_the_figure_holds_the_curves(folder):
    rows = results.read(folder)
    figure = report._figure(report.panels(rows))
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    lines = {line.get_label(): line for line in axes.get_lines()}
    for curve in report.curves(rows):
        np.testing.assert_array_equal(lines[curve.label].get_xdata(), curve.episodes)
        np.testing.assert_array_equal(lines[curve.label].get_ydata(), curve.mean)
    bands = [each for each in axes.collections if isinstance(each, PolyCollection)]
    assert len(bands) == 2  # one each
    marks = [each.get_offsets().tolist() for each in axes.collections if isinstance(each, PathCollection)]
    gaps = {summary.label: summary.gap.mean for summary in report.summaries(rows)}
    assert marks == [[[200.0, gaps[curve.label]]] for curve in report.curves(rows)]
    assert "gap of the last policy" in axes.get_legend().get_title().get_text()


def test_many_learners_stay_apart():
    rows = [row(f"learner{i:02}", regret=(0, 0, 0.1 * i)) for i in range(25)]
    (axes,) = report._figure(report.panels(rows)).axes
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.get_lines()[1:]}
    assert len(looks) == 25


def test_plot_refuses_what_it_cannot_do(folder, tmp_path):
    with pytest.raises(ValueError, match=r"its ending must be one of .pdf, .png, .svg"):
        report.plot(folder, tmp_path / "curves.jpeg2")
    with pytest.raises(ValueError, match="there are no results in"):
        report.plot(tmp_path, tmp_path / "curves.png")


def test_models_and_learners_of_ones_own_go_by_their_names_where_these_are_enough():
    one, two, same = "coach@0123456789ab, 4 states", "river@0123456789ab, 6 states", "river@ba9876543210, 6 states"
    assert report.spoken([one, two]) == {one: "coach, 4 states", two: "river, 6 states"}
    assert report.spoken([one, two, same]) == {one: "coach, 4 states", two: two, same: same}
    assert report.distinct_labels({"a": {"algorithm": "mine@0123456789ab"}}) == {"a": "mine"}
    envs = {"coach@0123456789ab", "coach@ba9876543210"}
    rows = [row("ucbvi", env=env, states=None, horizon=None) for env in envs]
    (line,) = report.table(rows[:1])
    assert line["environment"] == "coach"
    assert {line["environment"] for line in report.table(rows)} == envs | {report.ALL}
    assert report._figure(report.panels(rows[:1])).axes[0].get_title() == "coach"


def test_labels_leave_out_what_other_learners_do_not_have():
    plain = {"algorithm": "ucbvi", "epsilon": None, "model": None, "schedule": "epochs", "public_initial": False}
    private = {"algorithm": "spotlight", "epsilon": 1.0, "model": "joint", "schedule": None, "public_initial": True}
    labels = report.distinct_labels({"a": plain, "b": private})
    assert labels == {"a": "ucbvi", "b": "spotlight, ε = 1"}
    other = {**private, "public_initial": False}
    labels = report.distinct_labels({"a": plain, "b": private, "c": other})
    assert labels == {"a": "ucbvi", "b": "spotlight, ε = 1, public initial", "c": "spotlight, ε = 1"}
    labels = report.distinct_labels({"b": private, "c": {**private, "model": "local"}})
    assert labels == {"b": "spotlight, ε = 1, joint", "c": "spotlight, ε = 1, local"}
