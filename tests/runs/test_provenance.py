"""A stored result says what made it, and is served again only by the very same source."""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import discreet
from discreet import provenance
from discreet.cli import app
from discreet.runs import results
from discreet.runs.experiment import Experiment, run

SMALL = ["--states", "3", "--horizon", "3", "--episodes", "60"]


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_u2_the_digest_covers_every_python_file_of_the_package():
    root = Path(discreet.__file__).parent
    files = sorted((path.relative_to(root).as_posix(), path.read_bytes()) for path in root.rglob("*.py"))
    assert len(files) > 90
    text = b"".join(len(p).to_bytes(8, "big") + p for name, content in files for p in (name.encode(), content))
    assert provenance.source_digest() == hashlib.sha256(text).hexdigest()


def test_u2_any_change_of_names_or_contents_is_another_digest():
    base = [("a.py", b"x = 1\n"), ("b.py", b"y = 2\n")]
    others = [
        [("a.py", b"x = 1\n"), ("b.py", b"y = 3\n")],
        [("a.py", b"x = 1\n"), ("c.py", b"y = 2\n")],
        [("a.py", b"x = 1\n")],
        [("a.py", b"x = 1\nb.py"), ("", b"y = 2\n")],  # the same bytes, cut elsewhere
        [("a.pyx", b" = 1\n"), ("b.py", b"y = 2\n")],
    ]
    digests = {provenance.digest_of(files) for files in (base, *others)}
    assert len(digests) == 1 + len(others)
    assert provenance.digest_of(reversed(base)) == provenance.digest_of(base)


def test_u2_files_carry_versions_source_command_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/discreet", "run", "ucbvi", "--env", "two words"])
    path = results.write(run(Experiment("ucbvi", states=3, horizon=3, episodes=20), 0), tmp_path)
    facts = json.loads(pq.read_schema(path).metadata[b"provenance"])
    assert facts["source"] == provenance.source_digest()
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["numpy"] == np.__version__
    assert set(facts) == {"version", "source", "python", "numpy", "numba", "command", "time"}
    assert facts["command"] == "discreet run ucbvi --env 'two words'"
    assert timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(facts["time"]) < timedelta(minutes=5)
    (row,) = results.read(tmp_path)
    assert row.facts == facts


def test_u2_results_of_another_source_are_run_again_and_replaced(tmp_path, monkeypatch):
    command = ["run", "ucbvi", *SMALL, "--seeds", "0:2", "--out", tmp_path, "--json"]
    invoke(*command)
    assert "they are not run again" in invoke(*command).stderr
    monkeypatch.setattr(provenance, "source_digest", lambda: "0" * 64)
    again = invoke(*command)
    assert "2 of 2 seeds in" in again.stderr
    assert "another version of the source; they are replaced" in again.stderr
    assert "not run again" not in again.stderr
    assert {row.facts["source"] for row in results.read(tmp_path)} == {"0" * 64}
    assert len(list(tmp_path.iterdir())) == 2
    assert "2 of 2 seeds are in" in invoke(*command).stderr
    assert json.loads(again.stdout)["source"] == "0" * 64


def test_u2_a_file_that_does_not_say_what_made_it_is_not_served(tmp_path):
    experiment = Experiment("ucbvi", states=3, horizon=3, episodes=60)
    path = results.write(run(experiment, 0), tmp_path)
    table = pq.read_table(path)
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"provenance"}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    assert results.stored_seeds(tmp_path, experiment.id, provenance.source_digest()) == {}
    assert "they are replaced" in invoke("run", "ucbvi", *SMALL, "--out", tmp_path).stderr
    assert list(results.stored_seeds(tmp_path, experiment.id, provenance.source_digest())) == [0]


def test_u2_a_picture_of_two_sources_says_so(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    invoke("run", "ucbvi", *SMALL, "--out", folder)
    assert "versions of the source" not in invoke("plot", folder).stderr
    monkeypatch.setattr(provenance, "source_digest", lambda: "0" * 64)
    invoke("run", "oppo", *SMALL, "--out", folder)
    assert "2 versions of the source" in invoke("plot", folder).stderr


def test_u5_a_folder_of_results_can_be_read_as_one_table_after_it_was_drawn(tmp_path):
    folder = tmp_path / "results"
    invoke("run", "ucbvi", *SMALL, "--seeds", "0:3", "--out", folder)
    invoke("plot", folder)
    assert (tmp_path / "results-regret.png").read_bytes().startswith(b"\x89PNG")
    assert pq.read_table(folder).num_rows == 3


@pytest.mark.parametrize("typed", [".", "../results", "../results/"])
def test_u5_the_picture_is_beside_the_folder_however_it_is_named(tmp_path, monkeypatch, typed):
    folder = tmp_path / "results"
    invoke("run", "ucbvi", *SMALL, "--out", folder)
    monkeypatch.chdir(folder)
    invoke("plot", typed)
    assert (tmp_path / "results-regret.png").is_file()
    assert [path.suffix for path in folder.iterdir()] == [".parquet"]
