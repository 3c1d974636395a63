"""Other processes that do what a test tells them."""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

_LOOP = """
import ctypes, pickle, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with the tests
import torch, gpuwm
names = {"torch": torch, "gpuwm": gpuwm}
out = sys.stdout.buffer
while True:
    try:
        code, given = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
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
    out.write(answer)
    out.flush()
"""


class Peer:
    """A process that evaluates what `run` sends. Names stay from one run to the next."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _LOOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, code: str, **names: Any) -> None:
        """Sends an expression, or statements, with values for names."""
        assert self._process.stdin is not None
        pickle.dump((code, names), self._process.stdin)
        self._process.stdin.flush()

    def result(self) -> Any:
        """The value of what was started last, or its exception."""
        assert self._process.stdout is not None
        value, error = pickle.load(self._process.stdout)
        if error is not None:
            raise error
        return value

    def run(self, code: str, **names: Any) -> Any:
        self.start(code, **names)
        return self.result()

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def peers(count: int) -> Iterator[list[Peer]]:
    started = [Peer() for _ in range(count)]
    try:
        yield started
    finally:
        for peer in started:
            peer.end()
