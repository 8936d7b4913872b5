"""`discreet explore`: strict questions, the answers of `calibrate`, a server that answers nobody but its own page."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from discreet.catalog import TRUST
from discreet.cli import app
from discreet.pages import explore as pages
from discreet.pages.serving import HOST, Late, Local
from discreet.runs import exploring, feasibility, results
from discreet.runs.experiment import Experiment, run

ROOT = Path(__file__).parents[2]
SAID = {
    "users": "20000",
    "epsilon": "1",
    "delta": "0",
    "states": "6",
    "actions": "2",
    "horizon": "20",
    "branching": "2",
    "model": "joint",
    "pooled": "true",
}


def said(**changes):
    return {name: [value] for name, value in (SAID | changes).items()}


def asked(**changes):
    return exploring.Question.of(said(**changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"users": "many"}, "users is 'many'; it must be a number"),
        ({"users": "2.5"}, "users is '2.5'; it must be a whole number"),
        ({"users": "5"}, "users is 5; it must lie between 10 and 1e+08"),
        ({"users": "nan"}, "users is 'nan'; it must be a whole number"),
        ({"epsilon": "nan"}, "epsilon is nan; it must lie between 0.01 and 20"),
        ({"epsilon": "inf"}, "epsilon is inf; it must lie between 0.01 and 20"),
        ({"epsilon": "-1"}, "epsilon is -1; it must lie between 0.01 and 20"),
        ({"delta": "1"}, "delta is 1; it must lie between 0 and 0.01"),
        ({"states": "0"}, "states is 0; it must lie between 1 and 500"),
        ({"model": "trusting"}, "unknown model 'trusting'; choose one of joint, two-servers, local, shuffle"),
        ({"pooled": "yes"}, "pooled is 'yes'; it must be true or false"),
        ({"colour": "red"}, "there is no 'colour' to choose"),
        ({"states": "500", "horizon": "200", "pooled": "false"}, "a table of 100,000,000 transitions is too large"),
    ],
)
def test_a_question_is_read_strictly(changes, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        asked(**changes)


def test_every_word_is_said_once():
    for words in ({**said(), "users": ["1000", "2000"]}, {k: v for k, v in said().items() if k != "users"}):
        with pytest.raises(ValueError, match=r"users was given \d times; give it once"):
            exploring.Question.of(words)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooled": "false", "users": "3000"},
        {"model": "local", "epsilon": "4"},
        {"delta": "1e-6", "states": "4"},
        {"model": "shuffle", "delta": "1e-6", "states": "3", "horizon": "4", "users": "5000"},
    ],
)
def test_the_answer_is_that_of_its_command(changes):
    """What the page shows is what the command that it names prints."""
    found = exploring.answer(asked(**changes), [])
    program, *words = shlex.split(found["command"])
    assert program == "discreet"
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert found["counts"] == printed
    if printed["spotlight"] is not None:
        assert found["reports"] == printed["spotlight"]
    json.dumps(found, allow_nan=False)


def test_what_a_model_does_not_have_is_said():
    two = exploring.answer(asked(model="two-servers"), [])
    assert two["counts"] is None
    assert "two servers take reports" in two["no_counts"]
    one = exploring.answer(asked(), [])
    assert two["reports"]["users_needed"] > one["reports"]["users_needed"]
    done = CliRunner().invoke(app, [*shlex.split(two["command"])[1:], "--json"])
    assert json.loads(done.stdout)["spotlight"] == two["reports"]
    gaussian = exploring.answer(asked(delta="1e-6"), [])
    assert gaussian["reports"] is None
    assert "pure epsilon" in gaussian["no_reports"]
    assert exploring.answer(asked(model="shuffle", states="3", horizon="3"), [])["counts"] is None


def test_more_outcomes_need_more_users_and_between_the_ends_lies_the_middle():
    told = [exploring.answer(asked(branching=b), [])["reports"]["users_needed"] for b in ("1", "2", "6")]
    assert told == sorted(told)
    assert len(set(told)) == 3
    unknown = feasibility.calibrate(6, 2, 20, 20_000, 1.0, pooled=True).spotlight
    assert told[0] < unknown.users_needed < told[2]
    assert "unknown branching" in unknown.verdict
    assert (
        "unknown branching"
        not in feasibility.calibrate(6, 2, 20, 20_000, 1.0, pooled=True, branching=2).spotlight.verdict
    )
    with pytest.raises(ValueError, match="branching is 7; it must lie between 1 and the 6 states"):
        feasibility.calibrate(6, 2, 20, 20_000, 1.0, pooled=True, branching=7)
    once = [feasibility.calibrate(6, 2, 1, 20_000, 1.0, branching=b).spotlight for b in (None, 6.0)]
    assert once[0] == once[1]  # nothing follows the only step


@pytest.mark.parametrize("option", ["--offline", "--adversarial"])
def test_branching_is_refused_where_it_has_no_meaning(option):
    done = CliRunner().invoke(app, ["calibrate", "--epsilon", "1", "--branching", "2", option])
    assert done.exit_code == 2
    assert re.search("leave (--)?branching out", done.stderr)


# What was measured


def test_what_is_shipped_is_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import measured

    found = exploring.shipped()
    assert found == measured.measured()
    row = next(each for each in found if (each.problem, each.learner) == ("R6", "spotlight"))
    assert (row.states, row.actions, row.horizon, row.users, row.model, row.epsilon) == (
        6,
        2,
        20,
        20_000,
        "joint",
        1.0,
    )
    assert (round(row.ratio, 3), round(row.worst, 2)) == (0.018, 0.03)  # as docs/results-families.md says


def test_the_nearest_is_the_nearest():
    found = exploring.nearest(asked(), exploring.shipped())
    assert [row.problem for row in found[:3]] == ["R6"] * 3
    assert len({row.setting for row in found}) == exploring.NEAREST
    assert [row.ratio for row in found[:3]] == sorted(row.ratio for row in found[:3])
    away = [min(exploring.distance(asked(), row) for row in found[i : i + 3]) for i in range(0, 12, 3)]
    assert away == sorted(away)
    (row, *_) = found
    private = replace(row, model="joint", epsilon=2.0, states=12)
    at = exploring.Question.of(said(branching=str(private.branching)))
    assert exploring.distance(at, private) == pytest.approx(2 * 0.6931472)
    assert exploring.distance(replace(at, model="local"), private) == pytest.approx(2 * 0.6931472 + 1)


def test_a_folder_of_results_is_measured_too(tmp_path):
    for seed in range(2):
        results.write(run(Experiment("dp-ucbvi", states=3, horizon=4, episodes=300, epsilon=2.0), seed), tmp_path)
    (row,) = exploring.of_folder(tmp_path)
    stored = results.read(tmp_path)
    assert row.ratio == pytest.approx(sum(each.regret_ratio for each in stored) / 2)
    assert (row.learner, row.model, row.epsilon, row.users, row.seeds) == ("dp-ucbvi", "joint", 2.0, 300, 2)
    assert (row.states, row.actions, row.horizon, row.branching) == (3, 2, 4, None)
    near = exploring.nearest(asked(states="3", horizon="4", users="300", epsilon="2"), [*exploring.shipped(), row])
    assert near[0] == row
    assert json.loads(json.dumps(asdict(row)))["problem"] == "riverswim, 3 states, horizon 4"


# The page and its server


def test_the_page_is_well_formed_and_loads_nothing():
    text, policy = pages.page(exploring.NUMBERS, TRUST, "<b>here</b>")
    plain = re.sub(r"<(script|style)>.*?</\1>", "", text.removeprefix("<!doctype html>"), flags=re.S)
    root = ElementTree.fromstring(plain)
    assert "<b>here" not in text
    assert not re.search(r"https?://|@import|url\(|src=", text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    names = [p.get("data-name") for p in root.iter("p") if p.get("data-name")]
    assert names == list(exploring.NUMBERS)
    labels = {label.get("for") for label in root.iter("label")}
    assert set(names) <= labels
    for slider in (e for e in root.iter("input") if e.get("type") == "range"):
        stops = json.loads(slider.get("data-stops"))
        assert stops == sorted(set(stops))
        assert int(slider.get("max")) == len(stops) - 1
        assert slider.get("aria-label")


def test_sliders_stop_at_round_numbers_within_their_limits():
    assert pages.stops(0.01, 0.1) == [0.01, 0.02, 0.03, 0.05, 0.1]
    assert pages.stops(0.0, 0.01)[:3] == [0.0, 1e-9, 2e-9]
    assert pages.stops(10, 45) == [10, 20, 30, 45]
    for low, high, first in exploring.NUMBERS.values():
        assert (min(pages.stops(low, high)), max(pages.stops(low, high))) == (low, high)
        assert low <= first <= high


@pytest.fixture
def server():
    def answer(words):
        if "late" in words:
            raise Late("too late")
        if "broken" in words:
            raise RuntimeError("a mistake of ours")
        return {"heard": exploring.Question.of(words).users}

    with Local("<p>page</p>", "default-src 'none'", answer) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def get(server, path, host=None, method="GET", **headers):
    port = server.server_address[1]
    link = http.client.HTTPConnection(HOST, port, timeout=30)
    link.request(method, path, headers={"Host": host or f"{HOST}:{port}", **headers})
    found = link.getresponse()
    body = found.read().decode()
    link.close()
    return found.status, body, found.headers


def test_the_page_answers_itself(server):
    place = urlsplit(server.url).path
    status, body, headers = get(server, place)
    assert (status, body) == (200, "<p>page</p>")
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers
    status, body, _ = get(server, f"{place}answer?{urlencode(SAID)}", **{"Sec-Fetch-Site": "same-origin"})
    assert (status, json.loads(body)) == (200, {"heard": 20_000})
    status, body, _ = get(server, f"{place}answer?users=x")
    assert status == 400
    assert "give it once" in json.loads(body)["error"]
    assert get(server, f"{place}answer?late=1")[:2] == (503, '{"error": "too late"}')


def test_a_mistake_of_ours_is_told_in_the_terminal_and_not_to_the_page(server, capfd):
    status, body, _ = get(server, f"{urlsplit(server.url).path}answer?broken=1")
    assert status == 500
    assert "a mistake of ours" not in body
    while "a mistake of ours" not in capfd.readouterr().err:
        pass


def test_nobody_else_is_answered(server):
    place, port = urlsplit(server.url).path, server.server_address[1]
    ask = f"{place}answer?{urlencode(SAID)}"
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}"):
        assert get(server, place, host)[0] == get(server, ask, host)[0] == 403
    for site in ("cross-site", "same-site"):
        assert get(server, ask, **{"Sec-Fetch-Site": site})[0] == 403
    for path in ("/", "/answer", "/x/", f"{place}other", f"{place}../", "/%C3%A9/", place[:-2] + "/"):
        assert get(server, path)[0] == 404
    assert get(server, place, method="POST")[0] == get(server, place, method="PUT")[0] == 501
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.secret) >= 24
    assert get(server, place)[0] == 200


def test_two_servers_have_two_secrets(server):
    with Local("", "", dict) as other:
        assert other.secret != server.secret


def test_an_answer_that_takes_too_long_is_given_up_and_the_next_one_comes(monkeypatch):
    """Shuffled bits of many users with a tiny ε take minutes; the process that thinks about it is ended."""
    worker = exploring.Worker([], patience=3.0)
    try:
        slow = said(
            model="shuffle", delta="1e-6", epsilon="0.1", users="1000000", states="50", actions="4", horizon="50"
        )
        with pytest.raises(Late, match="longer than 3 seconds; ask: discreet calibrate"):
            worker(slow)
        worker._patience = 60.0
        found = worker(said())
        assert found["reports"]["feasible"]
        worker._process.kill()
        worker._process.join()
        with pytest.raises(Late, match="got lost"):
            worker(said())
        assert worker(said()) == found
    finally:
        worker.close()


def test_ctrl_c_ends_it_cleanly_and_nothing_is_left_running(tmp_path):
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # ignored behind an `&`
    program = [sys.executable, "-c", f"{heard}; from discreet.cli import main; main()", "explore", "--no-browser"]
    running = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = urlsplit(running.stdout.readline().split()[1])
        link = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
        link.request("GET", f"{url.path}answer?{urlencode(SAID)}")
        assert link.getresponse().status == 200
        link.close()
        running.send_signal(signal.SIGINT)
        rest, complaints = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 0
    assert rest.splitlines()[-1] == "ended"
    assert complaints == ""
    with pytest.raises(OSError):
        socket.create_connection((url.hostname, url.port), timeout=5)


def test_wrong_options_are_refused_in_one_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        for words, sentence in (
            (("--port", "70000"), "--port is 70000"),
            (("--port", str(taken.getsockname()[1])), os.strerror(98)),
            (("--results", str(tmp_path / "none")), "there is no folder"),
        ):
            done = CliRunner().invoke(app, ["explore", "--no-browser", *words])
            assert done.exit_code == 2
            assert sentence in done.stderr
