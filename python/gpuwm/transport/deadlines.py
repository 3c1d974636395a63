"""When a wait ends."""

from __future__ import annotations

import math
import time

from .._c import lib


class Deadline:
    """seconds: None: now. math.inf: never."""

    def __init__(self, seconds: float | None, name: str = "wait") -> None:
        lib.milliseconds(seconds, name)  # raises if it can't be meant
        self._at = math.inf if seconds == math.inf else time.monotonic() + (seconds or 0)

    def left(self) -> float:
        return max(self._at - time.monotonic(), 0)

    def milliseconds(self) -> int:
        """What is left, as the library takes it."""
        return lib.milliseconds(self.left(), "wait")
