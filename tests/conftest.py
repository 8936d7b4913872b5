"""Shared by all tests."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

# Linear algebra rounds differently on different processors, and where two actions are nearly level another one is
# taken: recorded results are those of the arithmetic that every x86-64 since 2011 has, whatever the environment says.
# Before anybody loads numpy.
if platform.machine() in ("x86_64", "AMD64"):
    os.environ["OPENBLAS_CORETYPE"] = "Sandybridge"

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("house", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("house")
