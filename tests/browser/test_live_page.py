"""The TypeScript client in a browser: its bytes, its sampler, its memory; and a page that teaches a server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from discreet.device import Announcement
from discreet.envs.tabular import riverswim
from discreet.live.events import Released, event_of
from discreet.planning import optimal_plan, policy_value
from live_world import World, client_of, deployed, log_of, running, serving
from ports import free_port
from two_world import paired

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"
VECTORS = Path(__file__).parents[1] / "vectors" / "live"
STATES, HORIZON = 3, 8
PAGES = "tick=0.02, files=__import__('pathlib').Path({!r})"
HELPING = "import sys; from discreet.live.helper_server import run; run(sys.argv[1], port=int(sys.argv[2]))"


@pytest.fixture(scope="module")
def built() -> Path:
    """The client and its page, built anew, as `make test-typescript` builds them."""
    subprocess.run(["make", "--silent", "typescript"], cwd=CLIENT.parents[1], check=True, capture_output=True)
    return CLIENT / "dist"


@contextmanager
def river(folder: Path, built: Path, model: str, epsilon: float, people: int) -> Iterator[tuple[World, int]]:
    """A server of a river that serves the page."""
    told = {"states": STATES, "horizon": HORIZON, "model": model, "epsilon": epsilon, "users": people}
    world, port = deployed(folder, **told, overlap="repeat"), free_port()
    with serving(world, port, PAGES.format(str(built))):
        yield world, port


@contextmanager
def two_servers(folder: Path, built: Path, epsilon: float, people: int) -> Iterator[tuple[World, int]]:
    """The same, with a helper on another port."""
    port, second = free_port(), free_port()
    told = {"states": STATES, "horizon": HORIZON, "epsilon": epsilon, "users": people, "patience": "2s"}
    pair = paired(folder, f"http://127.0.0.1:{second}", **told)
    world = World(pair.path, pair.tokens)
    with running(pair.helper_path, second, HELPING), serving(world, port, PAGES.format(str(built))):
        yield world, port


@pytest.fixture(scope="module")
def server(built, tmp_path_factory):
    with river(tmp_path_factory.mktemp("river"), built, "joint", 1.0, 100) as found:
        yield found


def opened(browser, port):
    """The page, without people."""
    tab = browser.open(f"http://127.0.0.1:{port}/app/#people=0")
    tab.until(lambda: tab.run("document.body.dataset.done") == "0")
    return tab


@pytest.fixture
def tab(browser, server):
    found = opened(browser, server[1])
    yield found
    assert found.complaints() == []
    found.close()


def test_a_thousand_payloads_are_those_of_python(tab):
    vectors = (VECTORS / "payloads.json").read_text()
    sent = tab.run(
        """(async ({encoders, vectors}) => {
          const {encoderOf} = await import('/app/src/encoders.js');
          const {Replayed} = await import('/app/src/sampler.js');
          const {toHex} = await import('/app/src/wire.js');
          const SAID = {Infinity, '-Infinity': -Infinity, NaN};
          const said = part => Array.isArray(part) ? part.map(x => typeof x === 'string' ? SAID[x] ?? x : x) : part;
          return vectors.map(([which, ...rest]) => {
            const words = rest[3].split(' ').filter(Boolean).map(word => BigInt('0x' + word));
            return toHex(encoderOf(encoders[which].encoder).payload(rest.slice(0, 3).map(said), new Replayed(words)));
          });
        })"""
        + f"({vectors})"
    )
    assert sent == [vector[-1] for vector in json.loads(vectors)["vectors"]]


@pytest.mark.parametrize("method", ["unary", "response"])
def test_the_sampler_follows_its_law_and_nine_tenths_of_the_noise_are_noticed(tab, method):
    """False alarms and misses have a chance below 10⁻⁹ each (clients/typescript/test/law.ts)."""
    found = tab.run(
        f"""(async () => {{
          const {{verdict}} = await import('/app/test/law.js');
          const {{Noise}} = await import('/app/src/sampler.js');
          return [1, .9, 1.1].map(scale => verdict('{method}', scale, new Noise()).rejected);
        }})()"""
    )
    assert found == [False, True, True]


def test_a_browser_remembers_and_its_tabs_know_of_each_other(browser, server, tab):
    """A user plays in one tab at a time, and who has reported is a spectator for ever, in all of them."""
    world, port = server
    other = opened(browser, port)
    script = f"""(async () => {{
      const {{connect, browser}} = await import('/app/src/index.js');
      const store = browser('river:');
      const agent = await connect(location.origin, '{world.tokens.app}', {{epsilonAtMost: 1, fallback: 0, store}});
      globalThis.episode = await agent.episode('ann');
      return episode.spectator;
    }})()"""
    assert tab.run(script) is None
    assert other.run(script) == "this user is busy elsewhere"
    tab.run("(async () => { for (const s of [0, 1, 2]) episode.act(s); await episode.leave() })()")
    assert tab.run(script) == "reported"
    other.until(lambda: other.run(script) == "reported")  # tabs hear a moment later that a lock is free
    assert other.complaints() == []
    other.close()
    kept = tab.run("JSON.stringify(localStorage)")
    assert "ann" not in kept.replace("announce", "")


def test_only_the_folder_is_served_and_its_pages_reach_nothing_of_another_origin(browser, server):
    world, port = server
    with client_of(world, port) as client:
        for path in ("/app/../package.json", "/app/%2e%2e/package.json", "/app/nothing", "/app//etc/passwd"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()) == (404, {"error": "there is no such address"})
        answer = client.get("/app/")
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert client.post("/app/").status_code == 405
    tab = opened(browser, port)
    assert tab.run("fetch('http://127.0.0.1:1/').then(() => 'reached', () => 'blocked')") == "blocked"
    assert "Content Security Policy" in tab.complaints()[0]
    tab.close()


def table(policy) -> np.ndarray:
    """Instructions as a policy (H, S, A)."""
    found = np.zeros((HORIZON, STATES, 2))
    for h in range(HORIZON):
        for s in range(STATES):
            if policy.weights is None:
                found[h, s, policy.actions[h][s]] = 1.0
            else:
                found[h, s] = np.array(policy.weights[h][s]) / 2**32
    return found


@pytest.mark.parametrize(("model", "epsilon", "people"), [("joint", 1.0, 1000), ("local", 4.0, 1500)])
def test_people_on_a_page_teach_the_river(browser, built, tmp_path, model, epsilon, people):
    """In 40 simulated runs of each of these sizes the last policy was worth at least 2.247 of 2.248."""
    with river(tmp_path, built, model, epsilon, people) as (world, port):
        teach(browser, world, port, model, epsilon, people)


def test_people_on_a_page_teach_two_servers_what_neither_sees(browser, built, tmp_path):
    """Shares are made and sealed on the page; in ten simulated runs of this size the last policy was worth 2.247."""
    with two_servers(tmp_path, built, 3.0, 300) as (world, port):
        teach(browser, world, port, "two-servers", 3.0, 300)


def teach(browser, world, port, model, epsilon, people):
    url = f"http://127.0.0.1:{port}"
    tab = browser.open(f"{url}/app/#token={world.tokens.app}&people={people}&epsilon={epsilon}")
    tab.until(lambda: tab.run("document.body.dataset.done") == str(people))
    assert tab.complaints() == []
    assert all(address.startswith(url) or address == "data:," for address in tab.requests())
    assert tab.run("document.getElementById('guarantee').textContent") == f"ε = {epsilon:g}, {model}"
    shown = tab.run("[...document.querySelectorAll('#policy tr')].map(r => [...r.cells].map(c => c.textContent))")
    tab.close()
    with client_of(world, port) as client:
        events = [event_of(entry) for entry in log_of(client)]
    last = [event for event in events if isinstance(event, Announcement)][-1]
    played = table(last.after or last.policy)
    arrows = [["→" if played[h, s, 1] > 0.5 else "←" for h in range(HORIZON)] for s in range(STATES)]
    assert [row[1:] for row in shown] == arrows
    swim = riverswim(STATES, HORIZON)
    worth, best = policy_value(swim, played), policy_value(swim, optimal_plan(swim).policy)
    assert worth >= 0.95 * best
    assert sum(event.tickets for event in events if isinstance(event, Released)) > people / 2
