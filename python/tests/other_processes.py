"""Other processes that do what a test tells them.

They are forked from a process that has imported torch and gpuwm and done nothing else: to import
them takes seconds of a processor, and the tests have some hundred such processes."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

PR_SET_PDEATHSIG = 1
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["torch", "gpuwm"])


def _obey(orders: Connection, environment: dict[str, str]) -> None:
    """In the other process. `environment` is the test's, which may differ from that of the fork."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # ends with the tests
    import torch

    import gpuwm

    os.environ.clear()
    os.environ.update(environment)
    warnings.simplefilter("error")
    names: dict[str, Any] = {"torch": torch, "gpuwm": gpuwm}
    while True:
        try:
            code, given = orders.recv()
        except EOFError:
            return
        names.update(given)
        try:
            try:
                value = eval(compile(code, "<peer>", "eval"), names)
            except SyntaxError:
                exec(compile(code, "<peer>", "exec"), names)
                value = None
            answer = pickle.dumps((value, None))
        except BaseException as error:
            answer = pickle.dumps((None, error))
        given = value = None
        orders.send_bytes(answer)


class Peer:
    """A process that evaluates what `run` sends. Names stay from one run to the next."""

    def __init__(self) -> None:
        self._orders, theirs = _forks.Pipe()
        self._process = _forks.Process(target=_obey, args=(theirs, dict(os.environ)), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def start(self, code: str, **names: Any) -> None:
        """Sends an expression, or statements, with values for names."""
        self._orders.send((code, names))

    def result(self) -> Any:
        """The value of what was started last, or its exception."""
        value, error = self._orders.recv()
        if error is not None:
            raise error
        return value

    def run(self, code: str, **names: Any) -> Any:
        self.start(code, **names)
        return self.result()

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        self._orders.close()
        self._process.join(30)
        self.kill()


@contextlib.contextmanager
def peers(count: int) -> Iterator[list[Peer]]:
    started = [Peer() for _ in range(count)]
    try:
        yield started
    finally:
        for peer in started:
            peer.end()
