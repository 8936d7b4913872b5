"""A deployment from beginning to certificate, with simulated people who talk to a server: `make demo-live`.

python benchmarks/demo_live.py [--people 2000] [--model joint] [--folder demo-live]
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

CHARTER = """name = "river"
[problem]
states = 6                  # places in the river; swimming to the right pays, but only at its end
actions = ["left", "right"]
horizon = 20
rewards = [0, 1]
pooled = true
start = 0
[privacy]
model = "{model}"
epsilon = {epsilon}
users = {people}
[serving]
patience = "2s"             # so short for the demonstration only: reports later than this are lost
overlap = "repeat"
"""
#: With so many people each; noise that everybody adds herself needs a weaker promise to be learned from.
EPSILON = {"joint": 1.0, "local": 4.0}


def discreet(*words: object) -> str:
    """A command, as it would be typed; what it prints."""
    print(f"$ discreet {' '.join(map(str, words))}", flush=True)
    program = [sys.executable, "-c", "from discreet.cli import main; main()", *map(str, words)]
    said = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(said, flush=True)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--model", choices=EPSILON, default="joint")
    parser.add_argument("--folder", type=Path, default=Path("demo-live"))
    told = parser.parse_args()
    shutil.rmtree(told.folder, ignore_errors=True)
    told.folder.mkdir(parents=True)
    file = told.folder / "river.toml"
    file.write_text(CHARTER.format(model=told.model, epsilon=EPSILON[told.model], people=told.people))
    said = discreet("deploy", "init", file)
    token = next(line.split(": ")[1] for line in said.splitlines() if line.startswith("app token"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    print(f"$ discreet serve {file} --port {port} &", flush=True)
    program = [sys.executable, "-c", "from discreet.cli import main; main()", "serve", str(file), "--port", str(port)]
    server = subprocess.Popen(program)
    try:
        answers(url)
        discreet("visit", url, "--token", token, "--users", told.people)
        (told.folder / "operator.html").write_bytes(urlopen(f"{url}/operator", timeout=30).read())
        discreet("deploy", "status", file)
    finally:
        server.terminate()
        server.wait(60)
    discreet("deploy", "verify", file)
    discreet("deploy", "retire", file, "--out", told.folder / "certificate", "--yes")
    discreet("verify", told.folder / "certificate", "--public-key", told.folder / "river.pem")
    lines = (told.folder / "certificate" / "policy.csv").read_text().splitlines()
    print("the policy at the first step (certificate/policy.csv):", *lines[:7], sep="\n  ")
    print(f"the operator's page as it was: {told.folder}/operator.html")


def answers(url: str) -> None:
    """Wait until the server does."""
    deadline = time.monotonic() + 120
    while True:
        try:
            if json.load(urlopen(f"{url}/v1/health", timeout=5))["status"] == "ok":
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
