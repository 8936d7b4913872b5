"""Every example of every help is run, as it stands there, by whoever has the files that it names."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
from test_vocabulary import COMMANDS
from typer.testing import CliRunner

from discreet.cli import app
from ports import free_port

PROGRAM = [sys.executable, "-c", "from discreet.cli import main; main()"]
#: Examples that leave what others start from, in the order in which they are run.
MAKERS = [
    "discreet run ucbvi --seeds 0:3 --out results/",
    "discreet fit visits.csv --states 3 --actions 2 --horizon 4 --pooled --epsilon 1 --out policy/",
    "discreet fit stays.parquet --declare stays.toml --epsilon 1 --out stays/",
    "discreet suite run spotlight --problem one-step --problem rewards --model joint --epsilon 1 --runs 1",
    "discreet deploy init shop.toml",
    "discreet deploy init second.toml --role helper",
    "discreet deploy init mixer.toml --role shuffler",
    "discreet deploy export shop.toml --out exported/",
]
#: What they make, for those who are run beside it.
MADE = {"fit": ("policy", "stays"), "suite run": ("results",), "deploy export": ("exported",)}
#: A page of the help that names no command.
GENERAL = "discreet COMMAND --help"
SERVERS = ("serve", "explore", "visit")


def examples(command: object) -> list[str]:
    """The commands at the end of a help: what follows three spaces is said about them."""
    lines = (command.epilog or "").split("\n\n")  # type: ignore[attr-defined]
    return [re.split(r" {3,}", line)[0].replace("\\[", "[") for line in lines if line.startswith("discreet ")]


ROOT = typer.main.get_command(app)
ALL = {path: examples(command) for path, command in COMMANDS.items()}
GENERALS = [*examples(ROOT), *(line for name in ("suite", "deploy") for line in examples(ROOT.commands[name]))]
RUN = dict.fromkeys([*GENERALS, *(line for lines in ALL.values() for line in lines)])
ALONE = [line for line in RUN if line not in (*MAKERS, GENERAL) and line.split()[1] not in SERVERS]


@pytest.mark.parametrize("path", COMMANDS)
def test_every_help_ends_with_an_example_of_its_command(path):
    assert any(line.startswith(f"discreet {path}") for line in ALL[path])
    shown = CliRunner().invoke(app, [*path.split(), "--help"], env={"COLUMNS": "400"}).stdout.split()
    last = [word for word in ALL[path][-1].split() if word.isascii()]
    assert " ".join(last) in " ".join(shown[shown.index("Examples") :])


def test_makers_are_examples():
    assert set(MAKERS) <= set(RUN)
    assert GENERAL in RUN


# Files --------------------------------------------------------------------------------------------------------------

STAYS = """
user = "user"
step = "step"
horizon = 10
pooled = true
action = "action"
actions = 3
propensity = "p_action"
reward = "reward"
[[state]]
name = "map"
range = [20, 140]
edges = [65, 75, 95]
[[state]]
name = "ward"
names = ["A", "B", "C"]
"""
SWEEP = """
users = 200
epsilon = 1
algorithms = ["ucbvi", {name = "spotlight", pooled = true}]
environments = [{name = "riverswim", states = 3, horizon = 4}]
seeds = {tuning = "5000:5001", reporting = "0:2"}
"""
SHOP = """
name = "shop"
[problem]
states = 3
actions = ["left", "right"]
horizon = 4
pooled = true
start = 0
[privacy]
model = "joint"
epsilon = 4.0
users = 120
[serving]
patience = "1s"
"""
MINE = """
import discreet
class Greedy:
    def plan(self, release, previous):
        best = discreet.greedy_plan(release.model(), release.horizon)
        return discreet.Plan(best.policy, best.value, best.quality, release.num_episodes)
learner = Greedy()
mdp = discreet.make("riverswim", 3, 4)
"""


def steps(users: int, horizon: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(first, first + users), horizon), np.tile(np.arange(horizon), users)


def visits(users: int, first: int, states: list[str], actions: list[str]) -> str:
    rng, (user, step) = np.random.default_rng(first), steps(users, 4, first)
    s, a = rng.integers(0, 3, user.size), rng.integers(0, 2, user.size)
    reward = (s == 2) * a
    rows = zip(user, step, s, a, reward, strict=True)
    lines = [f"{u},{h},{states[i]},{actions[j]},{r}" for u, h, i, j, r in rows]
    return "\n".join(["user,step,state,action,reward", *lines]) + "\n"


def stays(file: Path, users: int, first: int) -> None:
    rng, (user, step) = np.random.default_rng(first), steps(users, 10, first)
    action, pressure = rng.integers(0, 3, user.size), rng.uniform(40, 120, user.size)
    columns = {
        "user": user,
        "step": step,
        "map": pressure,
        "lactate": rng.uniform(0.5, 10, user.size),
        "ward": np.array(["A", "B", "C"])[rng.integers(0, 3, user.size)],
        "action": action,
        "p_action": np.full(user.size, 1 / 3),
        "reward": ((pressure > 70) * (action == 1)).astype(float),
    }
    pq.write_table(pa.table(columns), file)


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A folder with small files of every kind, and with what the makers make of them."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "visits.csv").write_text(visits(1000, 0, ["0", "1", "2"], ["0", "1"]))
    (folder / "logs").mkdir()
    for i, name in enumerate(("a", "b")):
        (folder / "logs" / f"{name}.csv").write_text(visits(500, 1000 * i, ["home", "ward", "icu"], ["stay", "move"]))
    (folder / "states.txt").write_text("home\nward\nicu\n")
    np.save(folder / "phi.npy", np.eye(6).reshape(3, 2, 6))
    stays(folder / "stays.parquet", 5000, 0)
    stays(folder / "others.parquet", 5000, 10_000)
    (folder / "app").mkdir()
    (folder / "app" / "index.html").write_text("<p>hello</p>")
    second = 'name = "second"\n[helper]\nurl = "https://helper.example"\nepsilon_at_most = 1.0\n'
    (folder / "mixer.toml").write_text('name = "mixer"\n[shuffler]\nurl = "https://shuffler.example"\n')
    texts = {"stays.toml": STAYS, "sweep.toml": SWEEP, "shop.toml": SHOP, "second.toml": second, "mine.py": MINE}
    for name, text in texts.items():
        (folder / name).write_text(text)
    run(folder, "discreet run dp-ucbvi --epsilon 1 --seeds 0:3 --out results/")
    for line in MAKERS:
        said = run(folder, line)
        if line == "discreet deploy init shop.toml":
            (folder / "token").write_text(re.findall(r"^app token: (\S+)$", said, re.M)[0])
    return folder


@pytest.fixture
def place(desk, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(desk, tmp_path / "desk"))


def run(folder: Path, line: str) -> str:
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(app, shlex.split(line)[1:], input="y\n")
    finally:
        os.chdir(before)
    assert done.exit_code == 0, (line, done.output, done.exception)
    assert done.stdout, line
    return done.stdout


# Runs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ALONE)
def test_an_example_runs(line, place, monkeypatch):
    """In a folder of its own, in which nothing that it makes is there yet."""
    monkeypatch.syspath_prepend(str(place))
    for made in re.findall(r"(?:--out|-o) (\S+)", line):
        path = place / made.rstrip("/")
        if path.is_dir() and line.split()[1] not in ("run", "sweep"):
            shutil.rmtree(path)
    run(place, line)


class Served:
    """An example that goes on until Ctrl-C, on a port that is free here."""

    def __init__(self, line: str, folder: Path) -> None:
        self.port = free_port()
        words = [str(self.port) if re.fullmatch(r"8\d\d\d", word) else word for word in shlex.split(line)[1:]]
        if "--port" not in words:
            words += ["--port", str(self.port)]
        environment = {**os.environ, "BROWSER": "true"}
        self.process = subprocess.Popen(
            [*PROGRAM, *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell's background jobs ignore
        )
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Served:
        deadline = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
                return self
            except urllib.error.HTTPError as error:  # it answers, if only that this is no page
                error.close()
                return self
            except OSError:
                time.sleep(0.1)
        self.process.kill()
        raise AssertionError(self.process.communicate()[1])

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode in (0, 130), said


@pytest.mark.parametrize("line", [line for line in RUN if line.split()[1] in ("serve", "explore")])
def test_a_server_starts_and_stops(line, place):
    with Served(line, place):
        pass


def test_people_visit_what_is_served(place):
    (line,) = ALL["visit"]
    with Served("discreet serve shop.toml", place) as served:
        told = line.replace("http://127.0.0.1:8000", served.url).replace("TOKEN", (place / "token").read_text())
        found = json.loads(run(place, f"{told} --json --quiet"))
    assert (found["people"], found["tickets"]) == (20, 20)


# --json and --quiet -------------------------------------------------------------------------------------------------

#: Commands without --json, and why.
NO_JSON = {
    "serve": "it goes on until Ctrl-C, and answers its clients",
    "explore": "it goes on until Ctrl-C, and answers a browser",
    "declare": "its result is a file of TOML",
}
#: A quick example of every command; the others are as quick as the first of theirs.
QUICK = {
    "run": "discreet run ucbvi --users 5000",
    "demo": "discreet demo --users 200 --seeds 0 --out small",
    "poison": "discreet poison --measured",
    "reproduce": "discreet reproduce --list",
    "sweep": "discreet sweep sweep.toml --out fresh/",
    "audit": "discreet audit paper-local --epsilon 1 --trials 1000",
}


def strict(text: str) -> object:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in (*NO_JSON, "visit")])
def test_json_is_one_object_and_quiet_is_quiet(path, place, monkeypatch):
    """Nothing on standard error but what must be heard."""
    line = QUICK.get(path, ALL[path][0]).replace(" --json", "")
    if path in ("fit", "deploy init", "deploy export", "suite run"):
        for made in ("policy", "exported", "shop.db", "shop.keys", "shop.pem", "shop.head"):
            target = place / made
            if made.startswith("shop") == (path == "deploy init"):
                shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    monkeypatch.chdir(place)
    words = [*shlex.split(line)[1:], "--json", "--quiet", *(["--yes"] if path == "deploy retire" else [])]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (words, done.output, done.exception)
    assert isinstance(strict(done.stdout), dict)
    assert all(line.startswith(("warning: ", "notice: nothing records")) for line in done.stderr.splitlines())


def test_every_command_is_quiet_and_all_but_three_have_json():
    without = set()
    for path, command in COMMANDS.items():
        names = {name for option in command.params for name in option.opts}
        assert "--quiet" in names, path
        if "--json" not in names:
            without.add(path)
    assert without == set(NO_JSON)
