"""Names for objects: a digest of what a learner of one's own is made of, so that no two share their results."""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from discreet.mdp import FiniteMDP

Seen: TypeAlias = dict[int, Any]  # by identity; the objects themselves are kept, so that no identity is used twice


def fingerprint(thing: Any) -> str:
    """SHA-256 of an object's classes, code and values; the package's own code is left to `provenance`."""
    return hashlib.sha256(json.dumps(_described(thing, {}), sort_keys=True).encode()).hexdigest()


def _described(thing: Any, seen: Seen) -> Any:
    """Nested lists of texts. Code that was met before, and what contains itself, is only named."""
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        return [type(thing).__name__, repr(thing)]
    if isinstance(thing, FiniteMDP):
        return ["model", thing.name, thing.digest]
    if isinstance(thing, (np.ndarray, np.generic)) and thing.dtype != object:
        array = np.ascontiguousarray(thing)
        return ["array", str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    if id(thing) in seen:
        return ["again", _path(thing if isinstance(thing, (type, FunctionType)) else type(thing))]
    seen[id(thing)] = thing
    told = _contents(thing, seen)
    if not isinstance(thing, (type, FunctionType)):
        del seen[id(thing)]
    return told


def _contents(thing: Any, seen: Seen) -> Any:
    for kinds, describe in _CONTENTS:
        if isinstance(thing, kinds):
            return [_path(type(thing)), describe(thing, seen)]
    if is_dataclass(thing):
        values = {each.name: _described(getattr(thing, each.name), seen) for each in fields(thing)}
        return ["object", _described(type(thing), seen), values]
    if getattr(thing, "__dict__", None) is not None and not isinstance(thing, ModuleType):
        return ["object", _described(type(thing), seen), _described(vars(thing), seen)]
    return ["value", _path(type(thing)), _pickled(thing)]


def _path(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"


def _pickled(thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return thing.__name__
    try:
        return hashlib.sha256(pickle.dumps(thing, protocol=4)).hexdigest()
    except Exception:  # somebody else's object
        name = type(thing).__name__
        raise ValueError(f"a {name} cannot be told from another {name}, so its results cannot be named") from None


def _of_mapping(thing: Mapping[Any, Any], seen: Seen) -> Any:
    return [
        [str(key), _described(value, seen)] for key, value in sorted(thing.items(), key=lambda pair: str(pair[0]))
    ]


def _of_sequence(thing: Any, seen: Seen) -> Any:
    return [_described(value, seen) for value in thing]


def _of_set(thing: Any, seen: Seen) -> Any:
    return sorted(repr(value) for value in thing)


def _of_partial(thing: functools.partial[Any], seen: Seen) -> Any:
    return [_described(part, seen) for part in (thing.func, thing.args, thing.keywords)]


def _of_method(thing: MethodType, seen: Seen) -> Any:
    return [_described(part, seen) for part in (thing.__self__, thing.__func__)]


def _of_class(thing: type, seen: Seen) -> Any:
    """Its name, and where it is not the package's or Python's own, the functions that it and its bases define."""
    own = [base for base in thing.__mro__ if _is_foreign(base)]
    parts = [
        [name, _described(part, seen)]
        for base in own
        for name, part in sorted(vars(base).items())
        if isinstance(part, FunctionType)
    ]
    return [_path(thing), parts]


def _of_function(thing: FunctionType, seen: Seen) -> Any:
    """Its code, its defaults, what it has closed over, and the functions of its own module that it names."""
    around = [cell.cell_contents for cell in thing.__closure__ or ()]
    if not _is_foreign(thing):
        return [_path(thing), *([_described(around, seen)] if around else [])]
    called = [
        found
        for name in thing.__code__.co_names
        if isinstance(found := thing.__globals__.get(name), FunctionType) and found.__module__ == thing.__module__
    ]
    parts = (thing.__defaults__, thing.__kwdefaults__, around, called)
    return [_path(thing), _code(thing.__code__), *(_described(part, seen) for part in parts)]


def _is_foreign(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] not in ("discreet", "builtins")


def _code(code: CodeType) -> Any:
    constants = [_code(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


_CONTENTS: tuple[tuple[Any, Callable[[Any, Seen], Any]], ...] = (
    (type, _of_class),
    (FunctionType, _of_function),
    (MethodType, _of_method),
    (functools.partial, _of_partial),
    (Mapping, _of_mapping),
    ((list, tuple), _of_sequence),
    ((set, frozenset), _of_set),
)
