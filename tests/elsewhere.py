"""The tests where source or usual libraries are not: built packages, oldest and newest libraries, other Pythons.

`python tests/elsewhere.py dist DIST`, `oldest`, `newest` or `pythons`: see the Makefile. Environments are made by uv
where there is one, else by venv and pip.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Kept from one time to the next, one environment per question.
KEPT = ROOT / ".elsewhere"
UV = shutil.which("uv")
PYTHONS = ("3.12", "3.13")
#: What is in no package: how this repository is kept.
LEFT_OUT = re.compile(r"\.gitignore|\.ci/.*")

#: Where another library, or a file that was left out of the wheel, would show; with nothing but the base installed.
BASE = (
    "golden",
    *(f"privacy/test_{name}.py" for name in ("noise", "accounting", "tails")),
    *(f"learning/test_{name}.py" for name in ("planning", "policy", "gym")),
    *(f"logs/test_{name}.py" for name in ("logs", "fit", "certificate")),
    *("runs/test_results.py", "pages/test_report.py", "cli/test_cli.py"),
)
#: The same with the extra `live`.
LIVE = ("privacy/test_prio3.py", *(f"live/test_{name}.py" for name in ("live_server", "live_store", "client_live")))
#: With everything the tests use: solvers, and more readers of logs and results.
WHOLE = (
    *BASE,
    *LIVE,
    *("privacy/test_projection.py", "logs/test_counting.py"),
    *("runs/test_results_tables.py", "live/test_live_vectors.py"),
)


# Environments -------------------------------------------------------------------------------------------------------


def call(*command: str | Path, cwd: Path = ROOT, **variables: str) -> None:
    """Run it, or end with what it ended with."""
    sys.stdout.write(f"$ {shlex.join(map(str, command))}\n")
    sys.stdout.flush()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if code := subprocess.run([str(word) for word in command], cwd=cwd, env={**kept, **variables}).returncode:
        sys.exit(code)


def environment(folder: Path, python: str = sys.executable) -> Path:
    """The Python of an environment in this folder, which is made if it is not there."""
    found = folder / "bin" / "python"
    if not found.exists():
        made = (UV, "venv", "--quiet", "--python", python) if UV else (python, "-m", "venv")
        call(*made, folder)
    return found


def install(python: Path, *words: str | Path) -> None:
    if UV:
        call(UV, "pip", "install", "--quiet", "--python", python, *words)
    else:
        call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)


def oldest() -> str:
    """Constraints: every library, the tests' own included, in the lowest version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["live"], *extras["dev"]]
    found = re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)$", "\n".join(asked), re.MULTILINE)
    assert len(found) == len(asked) - 1, "every library but discreet[live] itself has a lower bound and nothing else"
    return "".join(f"{name}=={version}\n" for name, version in found)


def other_python(version: str) -> str | None:
    """One on the path, of uv or of pyenv that starts."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    asked = subprocess.run([UV, "python", "find", version], capture_output=True, text=True).stdout if UV else ""
    known = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    for path in (shutil.which(f"python{version}"), asked.strip(), *map(str, known)):
        if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    return None


def check(python: Path, names: tuple[str, ...], cwd: Path = ROOT, options: tuple[str, ...] = ()) -> None:
    """In a place and with a cache of compiled code of their own."""
    words = ("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *options)
    cache = str(python.parents[1] / "numba")
    call(python, *words, *(f"tests/{name}" for name in names), cwd=cwd, NUMBA_CACHE_DIR=cache, OMP_NUM_THREADS="1")


# Questions ----------------------------------------------------------------------------------------------------------


def on_oldest() -> None:
    """Old libraries may use what newer ones of theirs call deprecated: that is not ours to mend."""
    python = environment(KEPT / "oldest")
    (KEPT / "oldest.txt").write_text(oldest())
    install(python, "--constraint", KEPT / "oldest.txt", "--editable", ".[dev]")
    check(python, WHOLE, options=("-W", "ignore::DeprecationWarning"))


def on_newest() -> None:
    """Whatever the registry has today; warnings are errors, so that deprecations are met here first."""
    python = environment(KEPT / "newest")
    install(python, "--upgrade", "--editable", ".[dev]")
    check(python, WHOLE)


def on_pythons() -> None:
    found = {version: other_python(version) for version in PYTHONS}
    for version, path in found.items():
        if path:
            python = environment(KEPT / f"python{version}", path)
            install(python, "--constraint", "constraints.txt", "--editable", ".[dev]")
            check(python, WHOLE)
    sys.stdout.write("".join(f"Python {each}: {path or 'not found, not tested'}\n" for each, path in found.items()))


def contents(dist: Path) -> Path:
    """The wheel, when it has all of src and nothing else, and the source distribution all of the repository."""
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    with zipfile.ZipFile(wheel) as opened:
        inside = {name for name in opened.namelist() if not name.startswith("discreet-")}
    assert inside == {name.removeprefix("src/") for name in listed if name.startswith("src/")}, "the wheel is not src"
    with tarfile.open(source) as packed:
        unpacked = {name.partition("/")[2] for name in packed.getnames()}
    missing = {name for name in listed if not LEFT_OUT.fullmatch(name)} - unpacked
    assert not missing, f"the source distribution lacks {sorted(missing)}"
    return wheel


IMPORTS = """
import importlib, pkgutil, sys
import discreet
from importlib.metadata import version
assert discreet.__file__.startswith(sys.prefix), discreet.__file__
assert version("discreet") == discreet.__version__
walked = pkgutil.walk_packages(discreet.__path__, "discreet.", onerror=lambda name: None)
lacking = set()
for name in sorted(each.name for each in walked):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        lacking.add((name.split(".")[1], error.name.split(".")[0]))
print("rooms that need more than the base:", sorted(lacking))
assert {room for room, _ in lacking} <= set(sys.argv[1:]), lacking
"""


def from_dist(dist: Path) -> None:
    """Away from the source: first with nothing but the base, then with the extra `live`."""
    wheel = contents(dist)
    shown = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^(?:\$ )?discreet (.+)$", "".join(shown), re.MULTILINE)
    assert len(commands) >= 3, "the README has no console block with commands to run"
    with tempfile.TemporaryDirectory() as made:
        away = Path(made)
        for name in ("tests", "docs"):
            shutil.copytree(ROOT / name, away / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, away)
        python = environment(away / "env")
        program = away / "env" / "bin" / "discreet"
        pins = ("--constraint", ROOT / "constraints.txt")
        install(python, *pins, wheel, "pytest", "pytest-xdist", "hypothesis", "opendp")
        call(python, "-c", IMPORTS, "live", "vdaf", cwd=away)
        refused = subprocess.run([program, "serve", "shop.toml"], cwd=away, capture_output=True, text=True)
        assert (refused.returncode, "pip install 'discreet[live]'" in refused.stderr) == (2, True), refused.stderr
        for command in commands:
            call(program, *shlex.split(command), cwd=away)
        check(python, BASE, away)
        install(python, *pins, f"{wheel}[live]", "httpx")
        call(python, "-c", IMPORTS, cwd=away)
        check(python, LIVE, away)


if __name__ == "__main__":
    {"oldest": on_oldest, "newest": on_newest, "pythons": on_pythons, "dist": lambda: from_dist(Path(sys.argv[2]))}[
        sys.argv[1]
    ]()
