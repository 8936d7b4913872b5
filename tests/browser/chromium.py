"""Debian's chromium, driven over a pipe with nothing but the standard library (the DevTools protocol)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import Any

PROGRAM = "/usr/bin/chromium"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-default-browser-check",
    ),
    *("--disable-extensions", "--hide-scrollbars", "--password-store=basic", "--remote-debugging-pipe"),
)
PATIENCE = 60.0


class Chromium:
    """One browser with a profile of its own; messages end with a zero byte, over descriptors 3 and 4."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        reads, self.sends = os.pipe()
        self.hears, writes = os.pipe()
        # The shell puts the two ends where chromium looks for them, whatever their numbers are here.
        joined = f'exec "$0" "$@" 3<&{reads} 4>&{writes}'
        self.process = subprocess.Popen(
            ["bash", "-c", joined, PROGRAM, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self.number, self.unread, self.events = 0, b"", []

    def close(self) -> None:
        try:
            self.ask("Browser.close")
        finally:
            os.close(self.sends)
            os.close(self.hears)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            shutil.rmtree(self.profile, ignore_errors=True)

    def ask(self, method: str, session: str | None = None, **given: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": given}
        os.write(self.sends, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (heard := self._hear()).get("id") != self.number:
            self.events.append(heard)
        if "error" in heard:
            raise RuntimeError(f"{method}: {heard['error']['message']}")
        return dict(heard["result"])

    def _hear(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.unread:
            if not select([self.hears], [], [], max(deadline - time.monotonic(), 0.0))[0]:
                raise TimeoutError("chromium does not answer")
            some = os.read(self.hears, 1 << 16)
            if not some:
                raise RuntimeError("chromium has ended; does it start by hand?")
            self.unread += some
        message, _, self.unread = self.unread.partition(b"\0")
        return dict(json.loads(message))

    def open(self, url: str, width: int = 1100, height: int = 900, dark: bool = False) -> Tab:
        return Tab(self, url, width, height, dark)


class Tab:
    """One page, at a width and in light or dark; what its console says is kept."""

    def __init__(self, browser: Chromium, url: str, width: int, height: int, dark: bool) -> None:
        self.browser = browser
        self.target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        phone = width < 500
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=url)
        self.until(lambda: self.run("document.readyState") == "complete")

    def ask(self, method: str, **given: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **given)

    def run(self, script: str) -> Any:
        """The value of an expression, as JSON gives it; a promise is waited for."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"].get("exception", answer)))
        return answer["result"].get("value")

    def until(self, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise TimeoutError("the page never got there")
            time.sleep(0.02)
        return found

    def complaints(self) -> list[str]:
        """Errors, warnings and uncaught exceptions so far."""
        self.run("0")  # what was said before has been heard by now
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        said = [e["params"]["entry"] for e in mine if e["method"] == "Log.entryAdded"]
        spoken = [e["params"] for e in mine if e["method"] == "Runtime.consoleAPICalled"]
        thrown = [e["params"]["exceptionDetails"] for e in mine if e["method"] == "Runtime.exceptionThrown"]
        return [
            *(f"{entry['level']}: {entry['text']}" for entry in said if entry["level"] in ("error", "warning")),
            *(f"{each['type']}: {each['args']}" for each in spoken if each["type"] in ("error", "warning")),
            *(str(each) for each in thrown),
        ]

    def requests(self) -> list[str]:
        mine = [e for e in self.browser.events if e.get("sessionId") == self.session]
        return [e["params"]["request"]["url"] for e in mine if e["method"] == "Network.requestWillBeSent"]

    def press(self, key: str, code: int = 0, shift: bool = False) -> None:
        """A key, as a person presses it."""
        text = {"Enter": "\r", "Space": " "}.get(key)
        name = " " if key == "Space" else key
        typed = {"text": text} if text else {}
        given = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **given, **typed)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **given)

    def move(self, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Scroll there and press the button of the mouse in the middle of it."""
        box = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const b = "
            f"e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def picture(self, path: Path, whole: bool = True) -> Path:
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def paper(self, path: Path) -> Path:
        answer = self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def close(self) -> None:
        self.browser.ask("Target.closeTarget", targetId=self.target)
