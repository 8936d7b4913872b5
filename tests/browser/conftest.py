"""One browser for all tests of pages, and one folder of results for them to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium
from typer.testing import CliRunner

from discreet.cli import app
from discreet.runs import results
from discreet.runs.experiment import Experiment, run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    assert Path(PROGRAM).exists(), f"{PROGRAM} is missing: apt-get install chromium, or make test-browser as root"
    found = Chromium()
    yield found
    found.close()


EXPERIMENTS = (
    Experiment("ucbvi", states=4, horizon=5, episodes=400, pooled=True),
    *(Experiment("spotlight", states=4, horizon=5, episodes=400, pooled=True, epsilon=e) for e in (0.5, 2.0)),
    *(
        Experiment("spotlight", states=4, horizon=5, episodes=400, pooled=True, epsilon=2.0, model=model)
        for model in ("local", "two-servers")
    ),
    Experiment("spotlight", states=4, horizon=5, episodes=1600, pooled=True, epsilon=2.0),
)


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "results"
    for experiment in EXPERIMENTS:
        for seed in range(2):
            results.write(run(experiment, seed), folder)
    made = folder.parent / "report.html"
    done = CliRunner().invoke(app, ["report", str(folder), "-o", str(made)])
    assert done.exit_code == 0, done.output
    return made
