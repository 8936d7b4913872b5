"""Sweeps: what a file means, what is refused before anything runs, and what survives whatever happens then."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from discreet import FiniteMDP, provenance
from discreet.catalog import algorithm
from discreet.cli import app
from discreet.runs import backends, claims, engine, results
from discreet.runs.claims import Claims
from discreet.runs.experiment import Experiment, run
from discreet.runs.sweeps import Cell, grid, read_sweep, run_cells

SMALL = {"states": 3, "horizon": 3, "users": 60}
SOURCE = str(Path(__file__).parents[2] / "src")


def written(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def small(*learners, seeds="0:2", **more):
    return grid(learners or ("ucbvi", "oppo"), ["riverswim"], seeds, **{**SMALL, **more})


def numbers(folder: Path) -> dict[tuple[str, int | None], tuple]:
    """Everything of the runs in a folder that must not depend on how they were computed."""
    return {
        (row.id, row.seed): (
            *(row.role, row.settings, row.checkpoints.tobytes(), row.regret.tobytes(), row.random_regret),
            *(row.value_optimal, row.value_random, row.final_value, row.switches, row.guarantee),
            row.diagnostics,
        )
        for row in results.read(folder)
    }


# What a file means --------------------------------------------------------------------------------------------------

EXAMPLE = """
    description = "an example"
    users = [50, 60]
    epsilon = [1, 2.5]
    algorithms = ["ucbvi", {name = "dp-ucbvi", constants = "paper"}]

    [[environments]]
    name = "riverswim"
    sizes = [[3, 3], {states = 4, horizon = 5}]

    [[environments]]
    name = "dirichlet"
    states = 3
    horizon = 3
    instance = [0, 7]

    [seeds]
    tuning = "5000:5002"
    reporting = [0, 4, 2]
"""


def test_a_file_is_the_product_of_its_lists(tmp_path):
    found = read_sweep(written(tmp_path / "a.toml", EXAMPLE))
    places = [
        {"env": "riverswim", "states": 3, "horizon": 3},
        {"env": "riverswim", "states": 4, "horizon": 5},
        {"env": "dirichlet", "states": 3, "horizon": 3},
        {"env": "dirichlet", "states": 3, "horizon": 3, "instance": 7},
    ]
    expected = {Experiment("ucbvi", **place, episodes=users).id for place in places for users in (50, 60)}
    expected |= {
        Experiment("dp-ucbvi", **place, episodes=users, epsilon=budget, mode="paper").id
        for place in places
        for users in (50, 60)
        for budget in (1.0, 2.5)
    }
    assert {each.id for each in found.experiments} == expected
    assert (found.tuning, found.reporting, found.description) == ((5000, 5001), (0, 4, 2), "an example")
    cells = found.cells()
    assert len(cells) == len({cell.id for cell in cells}) == 24 * 5
    assert all(cell.id == f"{cell.experiment.id}-seed{cell.seed}" for cell in cells)
    assert {(cell.seed, cell.role) for cell in cells} == {
        *((seed, "tuning") for seed in (5000, 5001)),
        *((seed, "reporting") for seed in (0, 2, 4)),
    }
    assert found.cells("tuning") == tuple(cell for cell in cells if cell.role == "tuning")


def test_the_environment_goes_before_the_learner_and_the_learner_before_the_sweep():
    (one,) = grid(
        [{"name": "dp-ucbvi", "users": 70, "pooled": True, "epsilon": 2.0}],
        [{"name": "riverswim", "pooled": False, "states": 3}],
        users=50,
        epsilon=1.0,
        horizon=3,
    ).experiments
    assert one == Experiment("dp-ucbvi", states=3, horizon=3, episodes=70, epsilon=2.0)


def test_one_experiment_written_twice_is_run_once():
    assert len(grid(["ucbvi"], [{"name": "riverswim", "states": [6, 6]}, "riverswim"]).experiments) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("algoritms = ['ucbvi']", r"unknown key 'algoritms' in the sweep; did you mean 'algorithms'\?"),
        ("algorithms = [{name='ucbvi', poled=true}]", r"unknown key 'poled' in algorithms, ucbvi; .* 'pooled'\?"),
        ("algorithms=['ucbvi']\nenvironments=[{name='chain', state=5}]", r"unknown key 'state' .* 'states'\?"),
        ("algorithms=['ucbvi']\nseeds={report='0:3'}", r"unknown key 'report' in seeds; did you mean 'reporting'\?"),
        ("algorithms=['ucbvi']\nsizes=[{state=3}]", r"unknown key 'state' in sizes; did you mean 'states'\?"),
        ("algorithms=['ucbvy']", r"unknown algorithm 'ucbvy'; did you mean 'ucbvi'\?"),
        (
            "algorithms=['ucbvi']\nenvironments=['rivrswim']",
            r"unknown environment 'rivrswim'; did you mean 'riverswim'",
        ),
        ("algorithms=['ucbvi']\nusers=10\nepisodes=20", "'episodes', which are one setting; leave one out"),
        ("algorithms=['ucbvi']\nknown-successors=true\nknown_successors=true", "twice, with a dash"),
        ("environments=['chain']", "names no algorithms; expected a list of them"),
        ("algorithms='ucbvi'", r"algorithms is 'ucbvi'; expected a list"),
        ("algorithms=[]", "algorithms is an empty list; expected at least one"),
        ("algorithms=['ucbvi']\nusers=[]", "episodes is an empty list"),
        ("algorithms=[{pooled=true}]", "an entry of algorithms has no name"),
        ("algorithms=['ucbvi']\nsizes=[5]", r"a size is 5; expected \{states = 6"),
        ("algorithms=['ucbvi']\nseeds='3:3'", "seeds is '3:3', and 3:3 is empty"),
        ("algorithms=['ucbvi']\nseeds=[1, 1]", "names a seed twice"),
        ("algorithms=['ucbvi']\nseeds=1.5", r"seeds is 1.5; expected a text such as"),
        ("algorithms=['ucbvi']\nseeds={}", "there are no seeds; give some"),
        ("algorithms=['ucbvi']\nimpossible='perhaps'", "impossible is 'perhaps'; choose one of refuse, skip"),
        ("algorithms=['nowhere:learner']", r"'nowhere:learner' cannot be imported .* expected module:name"),
        ("algorithms=['json:dumbs']", r"json has no 'dumbs'; did you mean 'dumps'\?"),
        ("algorithms=[", r"is not TOML: "),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, text, sentence):
    path = written(tmp_path / "wrong.toml", text)
    with pytest.raises(ValueError, match=sentence):
        read_sweep(path)
    told = CliRunner().invoke(app, ["sweep", str(path), "--out", str(tmp_path / "out")])
    assert told.exit_code == 2
    assert told.stderr.startswith("Error: ")
    assert not (tmp_path / "out").exists()


def test_seeds_for_tuning_and_for_reporting_are_apart():
    with pytest.raises(ValueError, match=r"seed 4 is for tuning and for reporting; constants look better on seeds"):
        small(seeds={"tuning": "0:5", "reporting": "4:10"})
    experiment = small().experiments[0]
    with pytest.raises(ValueError, match="seed 4 is for tuning and for reporting"):
        run_cells([Cell(experiment, 4, "tuning"), Cell(replace(experiment, beta=0.2), 4)], "never-made")
    with pytest.raises(ValueError, match="is for tuning and for reporting"):
        run_cells([Cell(experiment, 4, "tuning"), Cell(experiment, 4)], "never-made")
    assert not Path("never-made").exists()


# What is impossible is said before anything runs --------------------------------------------------------------------


def test_impossible_cells_are_all_named_before_anything_runs(tmp_path):
    path = written(
        tmp_path / "a.toml",
        """
        epsilon = 1
        model = ["joint", "local"]
        pooled = true
        users = 60
        algorithms = ["pucb", "dp-ucbvi"]
        environments = ["riverswim", "flipswim"]
        """,
    )
    with pytest.raises(ValueError) as refused:
        read_sweep(path)
    told = str(refused.value)
    assert told.startswith("5 of 8 combinations are impossible, and nothing was run: ")
    assert "pucb on riverswim" in told
    assert "pucb has no local form" in told
    assert "flipswim changes with the step, so its counts cannot be pooled over steps" in told
    assert 'impossible = "skip"' in told
    path.write_text('impossible = "skip"\n' + path.read_text())
    found = read_sweep(path)
    assert len(found.experiments) == 3
    assert len(found.skipped) == 5
    done = CliRunner().invoke(app, ["sweep", str(path), "--out", str(tmp_path / "out"), "--dry-run"])
    assert done.stderr.count("left out: ") == 5


def test_cells_given_as_objects_are_checked_as_well(tmp_path):
    staged = Experiment("ucbvi", "flipswim", episodes=60, pooled=True)
    fine = Experiment("ucbvi", states=3, horizon=3, episodes=60)
    with pytest.raises(ValueError, match=r"1 of 2 combinations are impossible, and nothing was run: .*flipswim"):
        run_cells([Cell(fine, 0), Cell(staged, 0)], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_what_does_not_fit_into_memory_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("discreet.runs.memory.available", lambda: 10_000_000, raising=True)
    with pytest.raises(ValueError, match=r"1 of 1 combinations are impossible.* take fewer states"):
        grid(["dp-ucbvi"], [{"name": "riverswim", "states": 500}], epsilon=1.0)


# Cells are computed once --------------------------------------------------------------------------------------------


def test_cells_are_the_runs_that_run_makes(tmp_path):
    found = small("ucbvi", "dp-ucbvi", epsilon=1.0)
    outcome = run_cells(found.cells(), tmp_path)
    assert outcome.done == found.cells()
    assert (outcome.reused, outcome.failed) == ((), ())
    for cell in found.cells():
        expected = run(cell.experiment, cell.seed)
        (row,) = results.read(tmp_path, f"{cell.id}.parquet")
        assert (row.id, row.seed, row.role) == (cell.experiment.id, cell.seed, "reporting")
        assert row.regret.tobytes() == expected.regret.tobytes()
        assert row.guarantee == expected.guarantee
        assert row.facts["source"] == provenance.source_digest()


def test_nothing_but_results_is_ever_in_the_folder(tmp_path, monkeypatch):
    """Also while a file is being written, for Polars reads hidden files too."""
    out, real, seen = tmp_path / "out", os.fsync, []

    def look(descriptor):
        seen.append({path.suffix for path in out.rglob("*")})
        real(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    run_cells(small(seeds="0:2").cells(), out)
    assert len(seen) >= 4
    assert set().union(*seen) == {".parquet"}


def test_finished_cells_are_not_run_again(tmp_path, monkeypatch):
    first = small(seeds="0:2")
    run_cells(first.cells(), tmp_path)
    monkeypatch.setattr(engine, "run", lambda *_: pytest.fail("it was run again"))
    told = []
    again = run_cells(first.cells(), tmp_path, progress=lambda cell, how: told.append((cell, how)))
    assert again.reused == first.cells()
    assert again.done == ()
    assert told == [(cell, "reused") for cell in first.cells()]
    monkeypatch.undo()
    more = run_cells(small(seeds="0:3").cells(), tmp_path)
    assert len(more.reused) == 4
    assert {cell.seed for cell in more.done} == {2}


def test_cells_of_another_source_are_replaced_and_it_is_said(tmp_path, monkeypatch):
    path = written(tmp_path / "a.toml", "algorithms=['ucbvi']\nusers=60\nsizes=[[3, 3]]\nseeds='0:2'")
    out = tmp_path / "out"
    command = ["sweep", str(path), "--out", str(out)]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert "2 of 2 cells are in" in CliRunner().invoke(app, command).stderr
    monkeypatch.setattr(provenance, "source_digest", lambda: "0" * 64)
    again = CliRunner().invoke(app, command)
    assert "2 of 2 cells in" in again.stderr
    assert "another version of the source; they are replaced" in again.stderr
    assert "2 cells computed, 0 were there" in again.stdout
    assert {row.facts["source"] for row in results.read(out)} == {"0" * 64}


def test_a_folder_of_a_later_layout_is_refused_before_anything_runs(tmp_path):
    found = small(seeds="0:2")
    run_cells(found.cells()[:1], tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"discreet": b"2"}), path)
    with pytest.raises(ValueError, match=r"has layout '2' of another version of discreet"):
        run_cells(found.cells(), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_roles_are_kept_by_the_folder(tmp_path):
    found = small("ucbvi", seeds={"tuning": "50:52", "reporting": "0:2"})
    run_cells(found.cells(), tmp_path)
    assert {(row.seed, row.role) for row in results.read(tmp_path)} == {
        *((seed, "tuning") for seed in (50, 51)),
        *((seed, "reporting") for seed in (0, 1)),
    }
    other = small("oppo", seeds="51:53")
    with pytest.raises(ValueError, match=r"seed 51 is for reporting, but the folder holds it as a seed for tuning"):
        run_cells(other.cells(), tmp_path)
    with pytest.raises(ValueError, match=r"seed 0 is for tuning, but the folder holds it as a seed for reporting"):
        run_cells(small("oppo", seeds={"tuning": "0"}).cells(), tmp_path)
    assert len(results.read(tmp_path)) == 4


def test_runs_without_a_role_get_it_from_the_sweep(tmp_path):
    found = small("ucbvi", seeds={"tuning": "5:7"})
    results.write(run(found.experiments[0], 5), tmp_path)
    assert results.read(tmp_path)[0].role is None
    outcome = run_cells(found.cells(), tmp_path)
    assert [cell.seed for cell in outcome.reused] == [5]
    assert [row.role for row in results.read(tmp_path)] == ["tuning", "tuning"]


# Objects ------------------------------------------------------------------------------------------------------------

MINE = """
    import numpy as np

    from discreet import FiniteMDP
    from discreet.catalog import algorithm
    from discreet.planning import greedy_plan
    from helper import NAME


    def learner(problem):
        return algorithm(NAME).build(problem)


    class Greedy:
        def plan(self, release, previous):
            return greedy_plan(release.model(), release.horizon, num_episodes=release.num_episodes)


    greedy = Greedy()


    def world(instance):
        P = np.random.default_rng(instance).dirichlet(np.ones(3), size=(3, 2))
        r = np.array([[0.0, 1.0], [0.5, 0.2], [0.1, 0.9]])
        return FiniteMDP(P[None], r[None], np.array([1.0, 0.0, 0.0]), 4, f"mine-{instance}")


    coin = world(7)
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> Path:
    """A sweep of somebody's own learners and models, in modules beside it."""
    folder = tmp_path_factory.mktemp("mine")
    written(folder / "discreet_mine.py", MINE.replace("helper", "discreet_helper"))
    (folder / "discreet_helper.py").write_text("NAME = 'ucbvi'\n")
    return written(
        folder / "sweep.toml",
        """
        users = 60
        algorithms = ["discreet_mine:learner", "discreet_mine:greedy", "ucbvi", {name = "dp-ucbvi", epsilon = 1}]
        environments = [{name = "discreet_mine:world", instance = [1, 2]}, "discreet_mine:coin"]
        seeds = "0:2"
        """,
    )


@pytest.fixture(scope="module")
def alone(mine, tmp_path_factory) -> Path:
    """The same sweep, computed in this process."""
    out = tmp_path_factory.mktemp("alone")
    assert len(run_cells(read_sweep(mine).cells(), out).done) == 24
    return out


def test_own_models_and_learners_go_through_a_file(mine, alone):
    found = numbers(alone)
    assert len(found) == 24
    names = {row.settings["env"].partition("@")[0] for row in results.read(alone)}
    assert names == {"mine-1", "mine-2", "mine-7"}
    by_learner = {}
    for row in results.read(alone):
        by_learner.setdefault(row.settings["algorithm"].partition("@")[0], []).append(row.regret.tobytes())
    assert by_learner["learner"] == by_learner["ucbvi"]  # which it builds
    assert by_learner["Greedy"] != by_learner["ucbvi"]


def test_objects_are_allowed_in_python(tmp_path):
    P = np.full((2, 2, 2), 0.5)
    coin = FiniteMDP(P[None], np.array([[[0.0, 1.0], [0.5, 0.2]]]), np.array([1.0, 0.0]), 4, "coin")

    def closure(problem):
        return algorithm("ucbvi").build(problem)

    found = grid([closure, {"name": "ucbvi", "pooled": True}], [coin, {"name": lambda i: coin}], "0:2", users=60)
    assert len(found.experiments) == 2
    assert len(run_cells(found.cells(), tmp_path, jobs=2).done) == 4
    assert {row.settings["algorithm"].partition("@")[0] for row in results.read(tmp_path)} == {"closure", "ucbvi"}


def test_a_function_that_makes_no_model_is_refused():
    with pytest.raises(ValueError, match=r"returned int; expected a FiniteMDP"):
        grid(["ucbvi"], [lambda instance: 3])


# Backends -----------------------------------------------------------------------------------------------------------


def test_processes_give_the_same_numbers_bit_for_bit(mine, alone, tmp_path):
    outcome = run_cells(read_sweep(mine).cells(), tmp_path, jobs=2)
    assert (len(outcome.done), outcome.failed) == (24, ())
    assert numbers(tmp_path) == numbers(alone)


@pytest.fixture(scope="module")
def cluster():
    """A real Dask cluster of two worker processes."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as started:
        yield started


def forget(folder):
    """Make a worker one that has not got somebody's modules."""
    sys.path = [part for part in sys.path if part != folder]
    return os.getpid(), importlib.util.find_spec("discreet_mine") is None


def test_dask_workers_give_the_same_numbers_bit_for_bit(mine, alone, tmp_path, cluster):
    """Two processes, which cannot import the modules beside the file."""
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        told = client.run(forget, str(mine.parent)).values()
        assert len({pid for pid, _ in told} - {os.getpid()}) == 2
        assert all(gone for _, gone in told)
        outcome = run_cells(read_sweep(mine).cells(), tmp_path, backend="dask", address=cluster.scheduler_address)
        assert (len(outcome.done), outcome.failed) == (24, ())
        assert numbers(tmp_path) == numbers(alone)
        assert min(client.run(lambda: len(engine._WARM)).values()) > 0  # both have worked


def test_a_backend_that_is_not_installed_or_unknown_is_refused(tmp_path, monkeypatch):
    cells = small().cells()
    with pytest.raises(ValueError, match=r"unknown backend 'spark'; choose one of loky, dask, ray"):
        run_cells(cells, tmp_path / "out", backend="spark")
    with pytest.raises(ValueError, match=r"jobs is 0; it must be at least 1, or -1 for every core"):
        run_cells(cells, tmp_path / "out", jobs=0)
    with pytest.raises(ValueError, match="loky works on this machine; leave the address out"):
        run_cells(cells, tmp_path / "out", address="tcp://somewhere:1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in ("dask", "ray"):
        with pytest.raises(ValueError, match=rf"{name} is not installed; pip install 'discreet\[{name}\]', or take"):
            run_cells(cells, tmp_path / "out", backend=name)


# Failures -----------------------------------------------------------------------------------------------------------


def failing(problem):
    if problem.tie_seed == 1:
        raise RuntimeError("seed 1 is unlucky")
    return algorithm("ucbvi").build(problem)


def killing(problem):
    """Kills its worker on seed 1, which no other seed notices."""
    if problem.tie_seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return algorithm("ucbvi").build(problem)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_cell_is_recorded_and_does_not_stop_the_others(tmp_path, jobs):
    out = tmp_path / "out"
    found = small(failing, "oppo", seeds="0:3")
    outcome = run_cells(found.cells(), out, jobs=jobs)
    (failure,) = outcome.failed
    assert len(outcome.done) == 5
    assert (failure.cell.seed, failure.error) == (1, "RuntimeError: seed 1 is unlucky")
    assert "in failing" in failure.trace
    (record,) = engine.failures(out)
    assert (record["cell"], record["error"]) == (failure.cell.id, failure.error)
    assert (record["seed"], record["role"], record["source"]) == (1, "reporting", provenance.source_digest())
    assert record["settings"]["episodes"] == 60
    assert {path.suffix for path in out.iterdir()} == {".parquet"}
    again = run_cells(found.cells(), out, jobs=jobs)  # it is tried again
    assert (len(again.reused), len(again.failed)) == (5, 1)


def test_a_cell_that_succeeds_later_leaves_no_record(tmp_path, monkeypatch):
    out = tmp_path / "out"
    found = small("ucbvi", seeds="0:2")
    real = engine.run

    def unlucky(experiment, seed):
        if seed == 1:
            raise MemoryError("none left")
        return real(experiment, seed)

    monkeypatch.setattr(engine, "run", unlucky)
    assert [each.error for each in run_cells(found.cells(), out).failed] == ["MemoryError: none left"]
    monkeypatch.undo()
    assert len(run_cells(found.cells(), out).done) == 1
    assert engine.failures(out) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]  # nothing is left beside the folder either


def test_the_command_tells_failures_and_ends_with_1(tmp_path):
    (tmp_path / "discreet_bad.py").write_text("def learner(problem):\n    raise RuntimeError('always\\nwrong')\n")
    text = "algorithms=['ucbvi', 'discreet_bad:learner']\nusers=60\nsizes=[[3, 3]]\nseeds='0:2'"
    path, out = written(tmp_path / "a.toml", text), tmp_path / "out"
    done = CliRunner().invoke(app, ["sweep", str(path), "--out", str(out)])
    assert done.exit_code == 1
    assert "2 cells computed, 0 were there, 2 failed" in done.stdout
    assert done.stderr.count("RuntimeError: always wrong") == 2
    assert "the same command tries 2 cells again" in done.stderr
    assert "2 cells of the sweep have failed" in CliRunner().invoke(app, ["results", str(out)]).stderr


def test_a_killed_worker_takes_one_cell_with_it(tmp_path):
    """Processes of this machine: all that were in flight are tried again, each by itself."""
    out = tmp_path / "out"
    found = small(killing, "oppo", seeds="0:4")
    outcome = run_cells(found.cells(), out, jobs=2)
    assert [(each.cell.seed, each.error) for each in outcome.failed] == [(1, engine.KILLED)]
    assert len(outcome.done) == 7
    assert engine.failures(out)[0]["error"] == engine.KILLED
    healthy = tmp_path / "healthy"
    run_cells([cell for cell in found.cells() if cell not in {each.cell for each in outcome.failed}], healthy)
    assert numbers(out) == numbers(healthy)


def test_a_killed_worker_of_dask_takes_one_cell_with_it(tmp_path, cluster, monkeypatch):
    """Its nanny starts another; Dask blames all cells that waited there, at once here: each is tried alone."""
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    out = tmp_path / "out"
    found = small(killing, seeds="0:4")
    outcome = run_cells(found.cells(), out, backend="dask", address=cluster.scheduler_address)
    ((cell, error),) = [(each.cell, each.error) for each in outcome.failed]
    assert cell.seed == 1
    assert error.startswith(engine.KILLED)
    assert "KilledWorker" in error
    assert {each.seed for each in outcome.done} == {0, 2, 3}


def test_a_worker_of_another_version_is_not_believed(tmp_path, monkeypatch):
    real = engine.work
    monkeypatch.setattr(engine, "work", lambda blob, seed: (real(blob, seed)[0], "another"))
    (failure,) = run_cells(small("ucbvi", seeds="0:1").cells(), tmp_path).failed
    assert "another version of the source; install the same one on every machine" in failure.error
    monkeypatch.setattr(
        engine, "work", lambda blob, seed: (replace(real(blob, seed)[0], id="x"), real(blob, seed)[1])
    )
    (failure,) = run_cells(small("ucbvi", seeds="0:1").cells(), tmp_path).failed
    assert "its worker ran x" in failure.error


def test_a_full_disk_ends_the_sweep_in_one_sentence_and_keeps_what_is_there(tmp_path, monkeypatch):
    """The third file is written to a device that is always full."""
    path = written(tmp_path / "a.toml", "algorithms=['ucbvi', 'oppo']\nusers=60\nsizes=[[3, 3]]\nseeds='0:4'")
    out, real, files = tmp_path / "out", Path.open, []

    def full(self, mode="r", *args, **kwargs):
        if self.name.endswith(".parquet.part") or (self.suffix == ".part" and ".parquet." in self.name):
            files.append(self)
            if len(files) == 3:
                real(self, mode, *args, **kwargs).close()  # a piece of it is there
                return open("/dev/full", "wb")
        return real(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    command = ["sweep", str(path), "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert os.strerror(errno.ENOSPC) in sentence
    assert "2 cells were computed and are kept; the same command goes on from here" in sentence
    assert len(results.read(out)) == 2
    assert not list(engine.desk(out).glob("*"))
    monkeypatch.undo()
    assert "6 cells computed, 2 were there, 0 failed" in CliRunner().invoke(app, command).stdout


# Killed, and several at once ----------------------------------------------------------------------------------------

BIG = """
    algorithms = ["ucbvi", "oppo", {name = "dp-ucbvi", epsilon = 1}]
    environments = [{name = "riverswim", states = 4, horizon = 6}]
    users = 500
    schedule = "every"
    seeds = {tuning = "90:92", reporting = "0:6"}
"""
PROGRAM = """
import signal; signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background
from discreet.cli import main; main()
"""


def started(*arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Path]:
    """A sweep, and its results when nothing happens."""
    folder = tmp_path_factory.mktemp("whole")
    path = written(folder / "big.toml", BIG)
    assert len(run_cells(read_sweep(path).cells(), folder / "out").done) == 24
    return path, folder / "out"


def test_a_sweep_that_is_killed_again_and_again_ends_with_the_same_results(whole, tmp_path):
    """Five times kill −9, each after a cell or two more; then once to the end."""
    path, expected = whole
    out = tmp_path / "out"
    for jobs in (1, 2, 1, 2, 1):
        before = len(list(out.glob("*.parquet")))
        process = started("sweep", path, "--out", out, "--jobs", jobs)
        while process.poll() is None and len(list(out.glob("*.parquet"))) < before + 2:
            time.sleep(0.005)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    kept = {file.name: file.stat().st_mtime_ns for file in out.glob("*.parquet")}
    assert 10 <= len(kept) < 24
    process = started("sweep", path, "--out", out)
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert f"{24 - len(kept)} cells computed, {len(kept)} were there, 0 failed" in told
    assert numbers(out) == numbers(expected)
    assert all((out / name).stat().st_mtime_ns == moment for name, moment in kept.items())  # not computed again
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out"]
    assert {each.suffix for each in out.iterdir()} == {".parquet"}


def test_what_the_killed_have_left_is_removed(tmp_path):
    """A claim after the file was written, and a file that was being written; not those of the living."""
    out = tmp_path / "out"
    found = small("ucbvi", seeds="0:2")
    run_cells(found.cells(), out)
    desk = engine.desk(out)
    desk.mkdir()
    dead = {"where": claims._where(), "pid": 2**22 + 5, "started": "1"}
    (desk / f"{found.cells()[0].id}.claim").write_text(json.dumps(dead))
    (desk / f".{found.cells()[1].id}.parquet.0a1b.part").write_text("half of it")
    living = Claims(desk)
    assert living.take("other-seed3")
    (desk / ".other-seed3.parquet.0a1b.part").write_text("half of it")
    run_cells(found.cells(), out)
    assert sorted(each.name for each in desk.iterdir()) == [".other-seed3.parquet.0a1b.part", "other-seed3.claim"]
    living.release("other-seed3")
    run_cells(found.cells(), out)
    assert not desk.exists()


def test_two_processes_share_a_folder(whole, tmp_path):
    """Every cell is computed by one of them, and both end when all are there."""
    path, expected = whole
    out = tmp_path / "out"
    both = [started("sweep", path, "--out", out, "--json") for _ in range(2)]
    told = [json.loads(process.communicate(timeout=300)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    done = [set(each["done"]) for each in told]
    assert not done[0] & done[1]
    assert len(done[0] | done[1]) == 24
    assert min(len(each) for each in done) >= 4
    assert all(len(each["done"]) + len(each["reused"]) == 24 for each in told)
    assert numbers(out) == numbers(expected)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out"]


def test_an_interrupted_sweep_says_that_it_keeps_its_cells(whole, tmp_path):
    path, _ = whole
    out = tmp_path / "out"
    process = started("sweep", path, "--out", out)
    while process.poll() is None and not list(out.glob("*.parquet")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; seeds that were finished are kept" in told
    assert not engine.desk(out).exists()


# Claims -------------------------------------------------------------------------------------------------------------


def test_a_claim_is_made_once(tmp_path):
    first, second = Claims(tmp_path), Claims(tmp_path)
    assert first.take("a")
    assert not second.take("a")
    assert second.take("b")
    first.release("a")
    assert second.take("a")


@pytest.mark.parametrize("what", ["gone", "reused number", "zombie"])
def test_the_claim_of_a_dead_process_counts_for_nothing(tmp_path, what):
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    owner = {"where": claims._where(), "pid": process.pid, "started": claims._started(process.pid)}
    if what == "gone":
        process.wait()
    elif what == "reused number":
        owner["pid"] = os.getpid()
    else:
        while claims._started(process.pid) is not None:
            time.sleep(0.01)
    (tmp_path / "a.claim").write_text(json.dumps(owner))
    assert Claims(tmp_path).take("a")
    process.wait()


KILLED_HALFWAY = """
import os, signal, sys
from pathlib import Path
from discreet.runs.claims import Claims
path = Path(sys.argv[1]) / "a.claim"
def halfway(event, arguments):
    if event == "open" and path.exists() and not path.stat().st_size:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(halfway)
Claims(path.parent).take("a")
"""


def test_who_is_killed_while_claiming_leaves_nothing_to_wait_for(tmp_path):
    """A claim that does not say whose it is would count for two minutes: there is none at any moment."""
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    subprocess.run([sys.executable, "-c", KILLED_HALFWAY, str(tmp_path)], env=environment, timeout=60)
    assert Claims(tmp_path).take("a")
    assert [each.name for each in tmp_path.iterdir()] == ["a.claim"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_claims_are_made_where_there_are_no_hard_links(tmp_path, monkeypatch, number):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    assert Claims(tmp_path).take("a")
    assert not Claims(tmp_path).take("a")
    assert [each.name for each in tmp_path.iterdir()] == ["a.claim"]


def test_a_living_process_keeps_its_claim_however_long_it_takes(tmp_path):
    assert Claims(tmp_path).take("a")
    os.utime(tmp_path / "a.claim", (1, 1))
    assert not Claims(tmp_path).take("a")


@pytest.mark.parametrize("text", ['{"where": "another machine", "pid": 1, "started": "5"}', "", "{"])
def test_a_claim_from_elsewhere_ends_when_its_signs_of_life_do(tmp_path, text):
    """The same holds for one that is being written."""
    path = tmp_path / "a.claim"
    path.write_text(text)
    assert not Claims(tmp_path).take("a")
    past = time.time() - claims.STALE - 1
    os.utime(path, (past, past))
    assert Claims(tmp_path).take("a")


def test_claims_give_signs_of_life_and_end_with_their_block(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT", 0.02)
    with Claims(tmp_path).kept() as held:
        assert held.take("a")
        os.utime(tmp_path / "a.claim", (1, 1))
        deadline = time.monotonic() + 5
        while (tmp_path / "a.claim").stat().st_mtime < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (tmp_path / "a.claim").stat().st_mtime > 2
    assert not list(tmp_path.iterdir())


def test_of_many_who_find_a_dead_claim_one_gets_it(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    dead = {"where": claims._where(), "pid": 2**22 + 5, "started": "1"}
    for turn in range(50):
        (tmp_path / f"{turn}.claim").write_text(json.dumps(dead))
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda _, name=str(turn): Claims(tmp_path).take(name), range(8)))
        assert sum(got) == 1


def test_a_cell_that_another_process_finishes_is_not_computed(tmp_path, monkeypatch):
    """It is claimed elsewhere at first; then its file is there."""
    found = small("ucbvi", seeds="0:2")
    mine, other = found.cells()
    out = tmp_path / "out"
    elsewhere = Claims(engine.desk(results.prepare(out)))
    assert elsewhere.take(other.id)

    def finish(cell, how):
        if how == "done":
            results.write(replace(run(other.experiment, other.seed), role="reporting"), out)
            elsewhere.release(other.id)

    monkeypatch.setattr(engine, "LOOK", 0.01)
    outcome = run_cells(found.cells(), out, progress=finish)
    assert (outcome.done, outcome.reused) == ((mine,), (other,))


def test_the_desk_is_inside_where_it_cannot_be_beside(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    assert engine.desk(out) == tmp_path.resolve() / ".out.sweep"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert engine.desk(out) == out.resolve() / ".sweep"
    assert backends.count(-1) == os.cpu_count()
