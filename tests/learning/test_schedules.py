from __future__ import annotations

import pytest

from discreet.schedules import EveryEpisode, GeometricEpochs, TwoClocks


def ends(schedule, total):
    done, result = 0, []
    while done < total:
        done = min(total, done + schedule.length(done))
        result.append(done)
    return result


def test_release_times():
    assert ends(EveryEpisode(), 4) == [1, 2, 3, 4]
    assert ends(GeometricEpochs(growth=2.0, first=3), 50) == [3, 6, 12, 24, 48, 50]
    assert ends(GeometricEpochs(growth=1.5), 20) == [1, 2, 3, 5, 8, 12, 18, 20]


def test_epochs_are_few():
    assert len(ends(GeometricEpochs(1.2), 10**6)) < 90


@pytest.mark.parametrize(
    "bad",
    [lambda: GeometricEpochs(1.0), lambda: GeometricEpochs(float("nan")), lambda: GeometricEpochs(first=0)],
)
def test_bad_epochs_are_refused(bad):
    with pytest.raises(ValueError, match=r"must be a finite number above 1|at least one user"):
        bad()


def test_two_clocks_strike_in_public():
    clocks = TwoClocks(100, 30, 2.0, 3)
    assert list(clocks.loss_ends) == [30, 60, 90]
    assert clocks.count_ends == [3, 6, 12, 24, 48, 96]
    every = TwoClocks(5, 1, 1.0)
    assert list(every.loss_ends) == every.count_ends == [1, 2, 3, 4]
    assert TwoClocks(1).num_loss_blocks == TwoClocks(1).num_count_blocks == 1


@pytest.mark.parametrize(
    "clocks", [TwoClocks(100, 30, 2.0, 3), TwoClocks(5, 1, 1.0), TwoClocks(97, 200), TwoClocks(1)]
)
def test_a_policy_is_kept_until_either_clock_strikes(clocks):
    K, done, met = clocks.num_episodes, 0, []
    while done < K:
        done += clocks.length(done)
        met.append(done)
        ends = [*clocks.count_ends, K], [*clocks.loss_ends, K]
        assert clocks.due(done) == (done in ends[0], done in ends[1])
    assert met == sorted({*clocks.count_ends, *clocks.loss_ends, K})
