"""An engine's classes, and what gpuwm tells type checkers of them (`_bases.py`)."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any


def differences(told: types.ModuleType, *users: types.ModuleType) -> list[str]:
    """Classes, methods and parameters that checkers are told of and the engine lacks. users: the
    modules that have the engine's classes, under the same names."""
    real = {name: each for user in users for name, each in vars(user).items()}
    found = []
    for name, ours in vars(told).items():
        if isinstance(ours, type) and ours.__module__ == told.__name__:
            lacks = _lacks(ours, real[name]) if name in real else [""]
            found += [f"{name}{each}" for each in lacks]
    return found


def _lacks(ours: type, real: Any) -> Iterator[str]:
    assert real is not ours
    for name in vars(ours):
        method = getattr(ours, name)
        if not inspect.isroutine(method):
            continue
        theirs = getattr(real, name, None)
        if theirs is None:
            yield f".{name}"
            continue
        there = inspect.signature(theirs).parameters
        yield from (
            f".{name}({each})" for each in inspect.signature(method).parameters if each not in there
        )
