from __future__ import annotations

import pytest

from discreet.schedules import EveryEpisode, FixedTimes, GeometricEpochs


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
    assert ends(FixedTimes((2, 7)), 10) == [2, 7, 10]


def test_epochs_are_few():
    assert len(ends(GeometricEpochs(1.2), 10**6)) < 90


@pytest.mark.parametrize(
    "bad",
    [lambda: GeometricEpochs(1.0), lambda: GeometricEpochs(float("nan")), lambda: GeometricEpochs(first=0)],
)
def test_bad_epochs_are_refused(bad):
    with pytest.raises(ValueError, match=r"must be a finite number above 1|at least one user"):
        bad()


@pytest.mark.parametrize("times", [(), (0, 3), (3, 3), (5, 2)])
def test_bad_times_are_refused(times):
    with pytest.raises(ValueError, match="increasing whole numbers"):
        FixedTimes(times)
