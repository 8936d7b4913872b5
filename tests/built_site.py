"""Builds the documentation site for the tests that look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built(folder: Path) -> str:
    """What mkdocs says; "" if all is well. Warnings are errors."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, text=True, capture_output=True, cwd=ROOT, env=env)
    said = done.stdout + done.stderr
    return said if done.returncode or "WARNING" in said else ""
