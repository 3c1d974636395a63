"""A process that works through models, and that may die of one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from typing import Any

# Forked from a process that has imported the library, which takes seconds.
_forks = multiprocessing.get_context("forkserver")


class Died(Exception):
    """The process ended, or was too slow and was ended."""


class Child:
    """Calls functions of `checking` in another process, which is started when it is needed."""

    def __init__(self, library: str) -> None:
        _forks.set_forkserver_preload(["tests_models.checking", f"tests_models.{library}_models"])
        self._process: Any = None
        self._orders: Any = None

    def call(self, seconds: float, function: str, *arguments: Any) -> Any:
        """Raises Died if the process dies, or has no answer in time."""
        if self._process is None:
            self._start()
        self._orders.send((function, arguments))
        try:
            if self._orders.poll(seconds):
                return self._orders.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            self._process = None
            named = signal.Signals(-code).name if code < 0 else f"code {code}"
            raise Died(f"the process ended with {named}") from None
        self.end()
        raise Died(f"no answer in {seconds:.0f} s")

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
