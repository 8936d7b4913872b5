"""The wall: what plans, reports and schedules may never reach, checked in the source and at run time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
#: Raw data, and what holds them: people, their worlds and devices, and every privatizer.
INSIDE = ("people", "envs", "device", "client", "privacy.noise", "privacy.sums", "privacy.trust", "privacy.audit")
#: Rooms with a door in the wall: they hand people to privatizers and releases to everybody else.
DOORS = ("privacy", "session", "live", "runs", "offline", "catalog", "cli", "provenance")


def in_any(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == f"discreet.{room}" or name.startswith(f"discreet.{room}.") for room in rooms)


def outside(name: str) -> bool:
    """Every other module and folder, those that are yet to be written included; and what is shown of runs."""
    return name == "discreet.runs.report" or (name != "discreet" and not in_any(name, (*INSIDE, *DOORS)))


def modules(source: Path) -> dict[str, Path]:
    found = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of the package that this one imports, wherever in the file, with the packages they live in."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    targets = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            targets.add(base)
            targets.update(f"{base}.{alias.name}" for alias in node.names)
    reached = set()
    for target in targets & known.keys():
        parts = target.split(".")
        reached.update(".".join(parts[:i]) for i in range(2, len(parts) + 1))
    return reached & known.keys()


def violations(source: Path) -> list[str]:
    """Chains of imports from the outside of the wall to what it protects."""
    known = modules(source)
    graph = {name: imports(name, path, known) for name, path in known.items()}
    found = []
    for start in known:
        if not outside(start):
            continue
        trail, waiting = {start: start}, [start]
        while waiting:
            here = waiting.pop()
            for target in graph[here] - trail.keys():
                trail[target] = f"{trail[here]} → {target}"
                waiting.append(target)
                if in_any(target, INSIDE):
                    found.append(trail[target])
    return found


def test_nothing_outside_the_wall_imports_what_is_inside():
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("agents/planted.py", "from discreet.people.episodes import Episodes"),
        ("agents/planted.py", "from discreet import people"),
        ("agents/planted.py", "from ..people import episodes"),
        ("planning_helper.py", "import discreet.privacy.noise"),
        ("agents/planted.py", "def f():\n    from discreet.envs import registry"),
    ],
)
def test_a_planted_import_is_found(tmp_path, module, line):
    for path in SOURCE.rglob("*.py"):
        copy = tmp_path / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    planted = tmp_path / "discreet" / module
    planted.write_text(line + "\n")
    if planted.name == "planning_helper.py":  # reached only through another module
        agent = tmp_path / "discreet" / "agents" / "ucbvi.py"
        agent.write_text(agent.read_text() + "\nimport discreet.planning_helper\n")
    found = violations(tmp_path)
    assert found
    assert all("planted" in chain or "planning_helper" in chain for chain in found)


def test_the_wall_holds_at_run_time():
    """Import everything outside the wall in a fresh interpreter and look at what got loaded."""
    rooms = [name for name in modules(SOURCE) if outside(name)]
    script = "\n".join(f"import {name}" for name in rooms) + "\nimport sys; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"discreet.agents.ucbvi", "discreet.releases.counts", "discreet.runs.report"} <= set(rooms)
    assert not [name for name in loaded if in_any(name, INSIDE)]
