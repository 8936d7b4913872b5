"""One decorator for all compiled code: cached on disk, quiet where no cache folder can be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast


def writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _choose_cache_folder() -> None:
    """Numba refuses to import where it finds no writable cache; give it the first folder that works."""
    if os.environ.get("NUMBA_CACHE_DIR") or writable(Path(__file__).parent / "__pycache__"):
        return
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "discreet"
    fallback = Path(tempfile.gettempdir()) / f"discreet-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    os.environ["NUMBA_CACHE_DIR"] = str(caches if writable(caches) else fallback)


_choose_cache_folder()

import numba  # noqa: E402

Function = TypeVar("Function", bound=Callable[..., Any])

#: Reordering of sums lets the compiler use vector registers; infinities and NaN keep their meaning.
REASSOCIATE = {"reassoc", "contract", "nsz"}


def compiled(function: Function) -> Function:
    """Compile in nopython mode with strict floating point and an on-disk cache."""
    return cast(Function, numba.njit(cache=True)(function))


def compiled_vectorised(function: Function) -> Function:
    """As `compiled`, and sums may be reordered (only for code that never relies on their order).

    Last digits then depend on the processor, and on whether this process compiled the code or found it in the cache:
    not for what the next step starts from, as in mirror descent, where they would grow.
    """
    return cast(Function, numba.njit(cache=True, fastmath=REASSOCIATE)(function))


def compiled_beside(function: Function) -> Function:
    """As `compiled`, for code that other threads may run beside."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))
