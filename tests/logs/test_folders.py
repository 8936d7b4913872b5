"""Folders come whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from discreet.offline import fitting as offline
from discreet.offline import folders
from discreet.offline.folders import completed
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat
from discreet.privacy.accounting import Budget

NAMES = ("one", "two", "last")


def write(folder, text, names=NAMES):
    with completed(folder, NAMES) as part:
        for name in names:
            (part / name).write_text(text)


def fail(folder, error):
    with completed(folder, NAMES) as part:
        (part / "one").write_text("new")
        raise error


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_nothing_is_there_until_all_is(tmp_path):
    folder = tmp_path / "deep" / "policy"
    with completed(folder, NAMES) as part:
        (part / "one").write_text("1")
        assert not folder.exists()
    assert content(folder) == {"one": "1"}
    assert os.listdir(folder.parent) == ["policy"]


@pytest.mark.parametrize("exchange", [True, False])
def test_an_older_folder_is_replaced_or_stays(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(folders, "_exchanged", lambda *_: False)
    folder = tmp_path / "policy"
    write(folder, "old")
    folder.chmod(0o750)
    for error in (OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), ValueError("no")):
        with pytest.raises(type(error)):
            fail(folder, error)
        assert content(folder) == dict.fromkeys(NAMES, "old")
        assert os.listdir(tmp_path) == ["policy"]
    write(folder, "new", ("one", "last"))
    assert content(folder) == dict.fromkeys(("one", "last"), "new")
    assert folder.stat().st_mode & 0o777 == 0o750
    assert os.listdir(tmp_path) == ["policy"]


def test_a_move_that_fails_half_way_is_undone(tmp_path, monkeypatch):
    folder = tmp_path / "policy"
    write(folder, "old")
    monkeypatch.setattr(folders, "_exchanged", lambda *_: False)
    real, moved = os.rename, []

    def failing(source, target):
        moved.append(target)
        if len(moved) == 2:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(KeyboardInterrupt):
        write(folder, "new")
    assert content(folder) == dict.fromkeys(NAMES, "old")
    assert os.listdir(tmp_path) == ["policy"]


def test_files_of_others_are_kept_and_ours_replaced_in_order(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, "old")
    order = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(Path(b).name), real(a, b)))
    write(tmp_path, "new", ("one", "last"))
    assert order == ["one", "last"]
    assert content(tmp_path) == {"notes.txt": "mine", "one": "new", "last": "new"}


def test_the_working_directory_is_not_moved_away(tmp_path, monkeypatch):
    folder = tmp_path / "policy"
    write(folder, "old")
    monkeypatch.chdir(folder)
    before = os.stat(folder).st_ino
    write(Path(), "new")
    assert os.stat(folder).st_ino == before
    assert content(folder) == dict.fromkeys(NAMES, "new")


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    write(tmp_path / "v1", "old")
    (tmp_path / "policy").symlink_to(tmp_path / "v1")
    write(tmp_path / "policy", "new")
    assert (tmp_path / "policy").is_symlink()
    assert content(tmp_path / "v1") == dict.fromkeys(NAMES, "new")


def test_what_the_killed_have_left_is_removed_and_an_old_folder_comes_back(tmp_path):
    folder = tmp_path / "policy"
    for name in (".policy.0123abcd.part", ".policy.0123abcd.old", ".other.0123abcd.part", ".policy.mine.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one").write_text(name)
    folders.tidy(folder)
    assert sorted(os.listdir(tmp_path)) == [".other.0123abcd.part", ".policy.mine.part", "policy"]
    assert content(folder) == {"one": ".policy.0123abcd.old"}


def test_what_somebody_is_writing_is_left_alone(tmp_path):
    folder = tmp_path / "policy"
    with completed(folder, NAMES) as part:
        write(folder, "the faster one")
        assert part.exists()
        (part / "one").write_text("the slower one")
    assert content(folder) == {"one": "the slower one"}


LOG = LogFormat(2, 2, 3, pooled=True)


def fitted(seed):
    rng = np.random.default_rng(0)
    episodes = Episodes(rng.integers(2, size=(30, 4)), rng.integers(2, size=(30, 3)), rng.random((30, 3)))
    return offline.fit(episodes, LOG, Budget.pure(1.0), seed=seed)


KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path

import numpy as np

from discreet.offline import certificate
from discreet.offline import folders
from discreet.policy import Policy

root, way = Path(sys.argv[1]), sys.argv[2]
folder = root / "policy"
document = json.loads((root / "document.json").read_text())
policy = Policy(np.zeros((3, 2), int), np.zeros((3, 2)), np.ones((3, 2), bool), 2)
moment = steps = 0


def dies(real):
    def wrapped(*given, **named):
        global steps
        steps += 1
        if steps == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)

    return wrapped


def saved(serial):
    child = os.fork()
    if not child:
        try:
            certificate.write(folder, policy, {**document, "origin": {**document["origin"], "serial": serial}})
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content():
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else None


assert saved("1" * 32) == 0
old = content()
assert saved("2" * 32) == 0
new = content()
if way == "two moves":
    folders._exchanged = lambda *_: False
for name in ("write_text", "mkdir", "open"):
    setattr(Path, name, dies(getattr(Path, name)))
for name in ("rename", "replace", "rmdir", "unlink"):
    setattr(os, name, dies(getattr(os, name)))
folders._exchanged = dies(folders._exchanged)
outcomes, code = [], 0
while True:
    moment = 0
    assert saved("1" * 32) == 0 and content() == old
    assert sorted(os.listdir(root)) == ["document.json", "policy"], "what was left is not removed"
    moment, steps = len(outcomes) + 1, 0
    code = saved("2" * 32)
    moment = 0
    outcomes.append({str(old): "old", str(new): "new", "None": "none"}.get(str(content()), "neither"))
    if code == 0:
        break
    assert code == -signal.SIGKILL, code
print(json.dumps(outcomes))
"""


@pytest.mark.parametrize(("way", "states"), [("at once", {"old", "new"}), ("two moves", {"old", "new", "none"})])
def test_kill_9_at_any_moment_leaves_the_old_folder_or_the_new_one(tmp_path, way, states):
    """A process kills itself at its n-th step of writing, for every n; the next one cleans up.

    Where the system cannot swap two folders there is a moment between two moves; the old one then comes back.
    """
    (tmp_path / "document.json").write_text(json.dumps(fitted(1).certificate))
    command = [sys.executable, "-c", KILLED, str(tmp_path), way]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert set(outcomes) == states
    assert outcomes == sorted(outcomes, key=["old", "none", "new"].index)
    assert len(outcomes) > 10


def test_a_full_disk_is_one_sentence_and_leaves_the_old_folder(tmp_path):
    folder = tmp_path / "policy"
    fitted(1).save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found = fitted(2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 100, 2500):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(ValueError, match="policy cannot be written: File too large") as error:
                found.save(folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "\n" not in str(error.value)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert os.listdir(tmp_path) == ["policy"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_whatever_a_disk_says_is_one_sentence(tmp_path, monkeypatch, number):
    def failing(self, *_, **__):
        raise OSError(number, os.strerror(number))

    found = fitted(2)
    monkeypatch.setattr(Path, "write_text", failing)
    with pytest.raises(ValueError, match=f"policy cannot be written: {os.strerror(number)}$"):
        found.save(tmp_path / "policy")
    assert os.listdir(tmp_path) == []
