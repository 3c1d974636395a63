"""A process that works through models, and that may die of one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from typing import Any

# Forked from a process that has imported the library, which takes seconds.
_forks = multiprocessing.get_context("forkserver")
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 8  # seconds of a busy machine for one of a processor
POLL_SECONDS = 5.0


class Died(Exception):
    """The process ended, or was too slow and was ended."""


class Child:
    """Calls functions of `checking` in another process, which is started when it is needed.

    seconds: of a processor, which all calls together have taken."""

    def __init__(self, library: str) -> None:
        self.seconds = 0.0
        _forks.set_forkserver_preload(["tests_models.checking", f"tests_models.{library}_models"])
        self._process: Any = None
        self._orders: Any = None

    def call(self, seconds: float, function: str, *arguments: Any) -> Any:
        """Raises Died if the process dies, or has no answer in so many seconds of a processor:
        other programs may keep the processors busy."""
        if self._process is None:
            self._start()
        begun, used = time.monotonic(), self._used()
        self._orders.send((function, arguments))
        is_late = False
        try:
            while not is_late:
                if self._orders.poll(min(seconds, POLL_SECONDS)):
                    answer = self._orders.recv()
                    self.seconds += self._used() - used
                    return answer
                waited = time.monotonic() - begun
                is_late = self._used() - used > seconds or waited > PATIENCE * seconds
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            self._process = None
            named = signal.Signals(-code).name if code < 0 else f"code {code}"
            raise Died(f"the process ended with {named}") from None
        self.seconds += self._used() - used
        self.end()
        raise Died(f"no answer in {seconds:.0f} s of a processor, or {PATIENCE} times as long")

    def _used(self) -> float:
        """Seconds of a processor that the process has taken. 0 if it has ended."""
        try:
            with open(f"/proc/{self._process.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        self._orders, theirs = _forks.Pipe()
        self._process = _forks.Process(target=_obey, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()


def _obey(orders: Any) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    from . import checking

    gc.freeze()  # a collection then looks at what the models left, not at all libraries
    while True:
        try:
            function, arguments = orders.recv()
        except EOFError:
            return
        answer = getattr(checking, function)(*arguments)
        orders.send(answer)
        del answer
        checking.collect()
