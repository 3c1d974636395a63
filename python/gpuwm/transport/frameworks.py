"""The modules for tensors of torch and arrays of NumPy, which are imported when they are first
needed. An import statement in a function would take longer than the rest of many a call here."""

from __future__ import annotations

import functools
import sys
from typing import Any

from .. import _needs
from . import layouts


@functools.cache
def of_torch() -> Any:
    """The module of_torch. Raises NotInstalled if there is no torch."""
    _needs.torch("a tensor in a pool")
    from . import of_torch as module

    return module


@functools.cache
def of_numpy() -> Any:
    """The module of_numpy."""
    from . import of_numpy as module

    return module


def is_of_one(value: Any) -> bool:
    """Whether the value is a tensor of torch, or an array of NumPy, of any class."""
    numpy: Any = sys.modules.get("numpy")
    return layouts.is_tensor(value) or (numpy is not None and isinstance(value, numpy.ndarray))


def layout_of(value: Any) -> layouts.Layout | None:
    """The layout that the value's bytes get in a chunk. None: the value is neither a tensor of
    torch nor an array of NumPy, or its bytes do not say all about it."""
    found: layouts.Layout | None = None
    numpy: Any = sys.modules.get("numpy")
    if layouts.is_tensor(value):
        found = of_torch().layout(value)
    elif numpy is not None and type(value) in (numpy.ndarray, numpy.memmap):
        found = of_numpy().layout(value)
    return found
