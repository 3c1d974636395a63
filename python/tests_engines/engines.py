"""Engines as a test sees them: processes that load a model, and what became of it."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pathlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

# An engine may take as long as it works: on processors that others use too an import takes minutes.
# All engines of a test count, since one may wait for what another one builds.
STILL_S = 60  # in which engines that go on use a processor for more than WORKS_S
WORKS_S = 0.3  # who only waits, and looks now and then, uses less
CPU_MAX_S = 600  # of all engines: what uses more goes round in circles. A start takes 10 to 20 s
processes = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Job:
    """What one rank of an engine loads."""

    arguments: dict[str, Any]  # of vLLM's EngineArgs, or SGLang's ServerArgs
    meet: str  # a file that is not there yet, by which the ranks of the engine find each other
    rank: int = 0
    environment: dict[str, str | None] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)  # "parallel_config.enable_eplb": True
    serving: str = ""  # the module that loads it


class Failed(Exception):
    """The engine could not load. `error`: the class of vLLM's or gpuwm's error."""

    def __init__(self, error: str, text: str, trace: str) -> None:
        super().__init__(f"{error}: {text}")
        self.error = error
        self.text = text
        self.trace = trace


class Engine:
    """One rank of an engine: a process that loads as soon as it is made."""

    def __init__(self, job: Job, log: pathlib.Path) -> None:
        self.log = log
        self._description: str | None = None
        self._pipe, theirs = processes.Pipe()
        self._process = processes.Process(
            target=self._target(), args=(theirs, str(log), job), daemon=True
        )
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @staticmethod
    def _target() -> Any:
        return _serve

    def loaded(self) -> str:
        """The description of its model, as JSON, once it has one. Failed: it could not load it;
        EOFError: it is dead."""
        if self._description is None:
            what, *content = heard(self._pipe, self.text)
            if what == "failed":
                self._process.join()
                raise Failed(*content)
            (self._description,) = content
        return self._description

    def failed(self) -> Failed:
        """The error with which its load ended; it has to."""
        try:
            self.loaded()
        except Failed as failed:
            return failed
        raise AssertionError(f"it loaded, though it should have failed:\n{self.text()}")

    def is_waiting(self) -> bool:
        """It has neither loaded nor failed."""
        return self._description is None and not self._pipe.poll(0)

    def ask(self, what: str, *arguments: Any) -> Any:
        """The answer of a model that was loaded: `serving._ANSWERS`, or a method of its worker."""
        self.tell(what, *arguments)
        return self.answer()

    def tell(self, what: str, *arguments: Any) -> None:
        """Asks without waiting for the answer: other ranks are to be asked the same."""
        self.loaded()
        self._pipe.send((what, *arguments))

    def answer(self) -> Any:
        return heard(self._pipe, self.text)

    def is_stopped(self) -> bool:
        """It has stopped itself: see `stopping`."""
        assert self._process.is_alive(), self.text()
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] == "T"

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Ends it, whatever it does, and waits until it is gone."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def text(self) -> str:
        """What it wrote."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def heard(pipe: Connection, text: Callable[[], str]) -> Any:
    """What an engine says, as soon as it does. Waits as long as any engine works. text: what the
    engine wrote, for the error."""
    before, used = _cpu_seconds(), 0.0
    while not pipe.poll(STILL_S):
        now = _cpu_seconds()
        work = sum(seconds - before.get(pid, 0) for pid, seconds in now.items())
        assert work > WORKS_S, f"still silent, and no engine works:\n{text()}"
        before, used = now, used + work
        assert used < CPU_MAX_S, f"still silent after {used:.0f} s of a processor:\n{text()}"
    return pipe.recv()


def _cpu_seconds() -> dict[int, float]:
    """What each engine has used so far, with the processes that it started and that have ended."""
    found = {}
    for process in multiprocessing.active_children():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            told = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            found[process.pid or 0] = sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def _serve(pipe: Connection, log: str, job: Job) -> None:
    # It imports the engine: only in the fork server.
    importlib.import_module(job.serving).serve(pipe, log, job)


def preload(*modules: str) -> None:
    """Lets the fork server import what every engine needs, so that each starts within a second."""
    processes.set_forkserver_preload(list(modules))
