"""The connector's answer to errors of gpuwm while the engine serves: it goes on without shared KV,
and says so in the log."""

from __future__ import annotations

import logging
import time

log: logging.Logger = logging.getLogger("vllm.gpuwm")
_EVERY_S = 60.0  # a full or ended region fails in every step; the log needs one line


class Failures:
    """Logs one of them a minute, with how many there were."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._next = 0.0
        self.count: int = 0
        self._unlogged = 0

    def tell(self, what: str, error: Exception | str) -> None:
        self.count += 1
        self._unlogged += 1
        now = time.monotonic()
        if now < self._next:
            return
        log.warning(
            "gpuwm: the KV connector's %s could not %s (%d times since the last such line): %s",
            self._who,
            what,
            self._unlogged,
            error,
        )
        self._next, self._unlogged = now + _EVERY_S, 0
