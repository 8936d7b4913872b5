"""What other packages add: entry points of the groups `discreet.envs` and `discreet.algorithms`.

They are looked up when a name is not known here, and when names are listed; nothing is imported before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

#: Names that can be written on a command line and in the name of a file.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

#: Group → what is wrong with its plug-ins, one sentence each; a group is here once it was loaded.
_FAILURES: dict[str, list[str]] = {}


def load(group: str, add: Callable[[str, Any], None]) -> list[str]:
    """Hand every entry point of a group, by name, to `add`, once; what could not be added, in sentences."""
    if group not in _FAILURES:
        _FAILURES[group] = []
        for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
            try:
                add(point.name, point.load())
            except (Exception, SystemExit) as error:  # whatever somebody else's code does, the rest must work
                _FAILURES[group].append(_sentence(point, error))
    return list(_FAILURES[group])


def _sentence(point: EntryPoint, error: BaseException) -> str:
    package = point.dist.name if point.dist is not None else "an unknown package"
    reason = " ".join(str(error).split()) or type(error).__name__
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"the plug-in {point.name!r} of {package} could not be loaded ({kind}{reason})"


def checked_name(kind: str, name: Any, taken: bool) -> str:
    """The name of an addition, refused where it cannot be written or is somebody else's."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of {kind}; expected letters, digits, dots and dashes")
    if taken:
        raise ValueError(f"there is {kind} named {name!r} already; choose another name")
    return name
