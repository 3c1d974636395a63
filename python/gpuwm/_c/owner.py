"""Objects of the C library that end with the last reference to them."""

from __future__ import annotations

import weakref
from collections.abc import Callable


class Owner:
    """Owns a pointer. It is passed to functions as it is: the call then has a reference to it, so
    that another thread can't end the object during the call."""

    def __init__(self, pointer: int, end: Callable[[int], object]) -> None:
        self._as_parameter_ = pointer  # ctypes passes this attribute
        weakref.finalize(self, end, pointer).atexit = False
