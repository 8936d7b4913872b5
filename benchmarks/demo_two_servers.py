"""Two servers, each a process with its own folder, keys and log, and people who trust neither: make demo-two-servers.

Everything is what operators and apps do: commands begin and serve both, people talk HTTP to the leader, and in the
end anybody can check that both logs add up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.client.service import Down, Rejected, Service
from discreet.live.people import Visit, visit

PROBLEM = """
name = "river"
[problem]
states = {states}
actions = ["left", "right"]
horizon = {horizon}
pooled = true
start = 0
"""
LEADER = (
    PROBLEM
    + """[privacy]
model = "two-servers"
epsilon = {epsilon}
users = {people}
[serving]
patience = "{patience}s"
"""
)
PROGRAM = (sys.executable, "-c", "from discreet.cli import main; main()")
HELPER = """
name = "second"
[helper]
url = "http://127.0.0.1:{port}"
epsilon_at_most = {epsilon}
"""


def discreet(*arguments: object) -> str:
    """What a command prints."""
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def serving(output: Path, *arguments: object) -> subprocess.Popen[bytes]:
    with output.open("ab") as file:
        return subprocess.Popen([*PROGRAM, "serve", *map(str, arguments)], stdout=file, stderr=file)


def awake(port: int, seconds: float = 120.0) -> None:
    """Wait until it answers."""
    service, end = Service(f"http://127.0.0.1:{port}", "", 5.0, 0.0, True), time.monotonic() + seconds
    while True:
        try:
            service.get("/v1/health")
            break
        except (Down, Rejected):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    service.close()


def learned(
    folder: Path,
    ports: Sequence[int],
    people: int = 2000,
    came: Callable[[], None] = lambda: None,
    **terms: object,
) -> tuple[Visit, dict[str, Any]]:
    """What people visiting two servers made them learn, and what the check of both logs says."""
    told = {"states": 6, "horizon": 20, "epsilon": 1.0, "patience": 2, "people": people, "port": ports[1]} | terms
    files = {"river": LEADER.format(**told), "second": HELPER.format(**told)}
    check = "--helper", f"http://127.0.0.1:{ports[1]}"
    return learned_together(folder, ports, "helper", files, ("url", "key", "hpke"), people, came, check)


def learned_together(
    folder: Path,
    ports: Sequence[int],
    role: str,
    files: Mapping[str, str],
    public: Sequence[str],
    people: int,
    came: Callable[[], None] = lambda: None,
    check: Sequence[object] = (),
    door: int | None = None,
) -> tuple[Visit, dict[str, Any]]:
    """What people made a deployment learn that needs another server, and what the check of its log says.

    `files`: names and contents, of the deployment's own server and of the other one, which has this role; `public`:
    what the other one tells the deployment's charter; `door`: the port that people come to, where it is another."""
    (name, charter), (other, its_file) = files.items()
    homes = [folder / "leader", folder / role]
    for home in homes:
        home.mkdir(parents=True)
    leader, party = homes[0] / f"{name}.toml", homes[1] / f"{other}.toml"
    party.write_text(its_file)
    begun = json.loads(discreet("deploy", "init", party, "--role", role, "--json"))
    lines = "".join(f'{key} = "{begun[key]}"\n' for key in public)
    leader.write_text(f"{charter}[{role}]\n{lines}")
    secret = homes[0] / f"{name}.{role}"
    secret.touch(mode=0o600)
    secret.write_text(begun["secret"])
    tokens = json.loads(discreet("deploy", "init", leader, "--json"))["tokens"]
    processes = [
        serving(homes[1] / "output", party, "--role", role, "--port", ports[1]),
        serving(homes[0] / "output", leader, "--port", ports[0], "--no-page"),
    ]
    try:
        for port in ports:
            awake(port)
        found = visit(f"http://127.0.0.1:{door or ports[0]}", tokens["app"], people, came=came)
        checked = json.loads(discreet("deploy", "verify", leader, *check, "--json"))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    return found, checked


Learned = Callable[[Path, Sequence[int], int, Callable[[], None]], tuple[Visit, dict[str, Any]]]


def demonstrated(
    about: str | None, ports: Sequence[int], who: str, learned: Learned, good: Callable[[dict[str, Any]], list[str]]
) -> None:
    """Let people learn, say how far they are, what came of it, and what the check of the logs has found (`good`)."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--ports", type=int, nargs=2, default=list(ports))
    chosen = parser.parse_args()
    began, number = time.monotonic(), 0

    def came() -> None:
        nonlocal number
        number += 1
        if number % max(1, chosen.people // 20) == 0:
            tell(f"{number:,} people came ({time.monotonic() - began:.0f} s)")

    with tempfile.TemporaryDirectory(prefix="discreet-demo-") as folder:
        tell(who.format(*chosen.ports))
        found, checked = learned(Path(folder), chosen.ports, chosen.people, came)
    tell(*found.sentences())
    tell(*(good(checked) if checked["consistent"] else checked["problems"]))
    tell("here one operator runs both, so that nobody is protected: it is a demonstration")


def tell(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def signatures(checked: dict[str, Any]) -> list[str]:
    return [
        f"signed by the leader with {checked['leader_key']}",
        f"signed by the helper with {checked['helper_key']}",
        f"{checked['shares_checked']} releases are the sum of both servers' shares",
    ]


if __name__ == "__main__":
    demonstrated(__doc__, (8010, 8011), "a leader on port {}, a helper on port {}, ε = 1", learned, signatures)
