"""The modules for tensors of torch and arrays of NumPy, which are imported when they are first
needed. An import statement in a function would take longer than the rest of many a call here."""

from __future__ import annotations

import functools
from typing import Any

from .. import _needs


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
