"""The public names: sorted, lazy, and all there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import discreet


def test_names_are_sorted_and_unique():
    assert discreet.__all__ == sorted(set(discreet.__all__))


@pytest.mark.parametrize("name", discreet.__all__)
def test_every_name_resolves_to_what_its_module_defines(name):
    found = getattr(discreet, name)
    assert found.__name__ == name
    assert found.__module__ == f"discreet.{discreet._HOMES[name]}"
    assert name in dir(discreet)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(discreet.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module.removeprefix("discreet.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == discreet._HOMES
    assert sorted(seen) == discreet.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'secrets'"):
        _ = discreet.secrets


@pytest.mark.parametrize("module", ["discreet", "discreet.cli"])
def test_importing_is_light(module):
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "numpy", "scipy", "gymnasium", "matplotlib", "pyarrow"} & set(loaded)


def test_a_fit_of_numbered_states_loads_nothing_that_only_declared_columns_and_datasets_need():
    script = "import sys, discreet.offline.fitting, discreet.offline.learners; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "pyarrow.parquet" in loaded
    assert not {"pyarrow.dataset", "pyarrow.compute", "discreet.offline.auto", "discreet.people.stays"} & set(loaded)
