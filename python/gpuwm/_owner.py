"""What the C library gave, ended with the last reference to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable


class Owner:
    """A pointer, given to functions as it is: a call has a reference while it lasts, so that it is
    not ended by another thread."""

    def __init__(self, pointer: int, end: Callable[[int], object]) -> None:
        self._as_parameter_ = pointer  # what ctypes passes
        weakref.finalize(self, end, pointer).atexit = False
