"""Measures the steps of a load or a switch."""

from __future__ import annotations

import time


class Clock:
    """times: the seconds of each step, by its name. A step begins where the one before it ended,
    the first when the clock is made."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, what: str) -> None:
        """Notes that a step has ended."""
        now = time.perf_counter()
        self.times[what] = now - self._last
        self._last = now
