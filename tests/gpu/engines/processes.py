"""Engines as processes: started, watched, asked, ended. One thread reads logs and samples memory
while it waits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import logs
from engine import Options
from memory import Gpus, Watch

HERE = pathlib.Path(__file__).resolve().parent
LOOK_S = 0.002  # between two looks at logs and memory: a publish of some GiB takes 0.1 s and more
END_S = 30.0  # for an engine that was asked to end; then it is killed
IMPORTS_S = 180.0  # of vLLM, from a disk that was never read
LAST_LINES = 6
READY = b'"event": "ready"'


class Failed(Exception):
    """An engine ended, or did not do something in time."""


class Spares:
    """Processes that have imported all that an engine needs, and wait for its options: an import
    takes longer than an eager start. `batch` of them are made at a time, so that none imports while
    an engine is measured, and each runs one engine."""

    def __init__(self, program: str, folder: pathlib.Path, batch: int) -> None:
        self._program, self._folder, self._batch = program, folder, batch
        self._waiting: list[Process] = []
        self._made = 0

    def have(self, count: int) -> None:
        """So many are ready then. Failed: one ended, or was not ready in time."""
        if len(self._waiting) >= count:
            return
        for _ in range(self._batch):
            self._made += 1
            path = self._folder / f"spare-{self._made}.log"
            self._waiting.append(Process(self._program, path, {}))
        for process in self._waiting:
            process.wait_until_ready()

    def take(self) -> Process:
        """One that is ready; errors of `have`."""
        self.have(1)
        return self._waiting.pop(0)

    def stop(self) -> None:
        for process in self._waiting:
            process.kill()
        self._waiting.clear()


class Process:
    """One that runs an engine as soon as it has its options. `log`: what it writes."""

    def __init__(self, program: str, log: pathlib.Path, environment: dict[str, str]) -> None:
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, program],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env={**os.environ, **environment},
                bufsize=0,
                start_new_session=True,  # what it starts ends with it: a signal to its group
            )
        self.pid, self.status = self._process.pid, self._process.poll

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + IMPORTS_S
        while READY not in self.log.read_bytes():
            if self.status() is not None or time.monotonic() > deadline:
                self.kill()
                last = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
                raise Failed(f"a process was not ready for an engine: {' | '.join(last)}")
            time.sleep(LOOK_S)

    def become(self, name: str) -> None:
        """Its log gets this name."""
        self.log = self.log.rename(self.log.with_name(f"{name}.log"))

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, as its status says
            self._process.stdin.write(line.encode() + b"\n")

    def let_end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        self.let_end()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(END_S)


class Engine:
    """One of them: in a spare process or, without one, in a process that still has to import
    everything. FOLDER/NAME.log has what it writes, FOLDER/NAME.answers what it answers."""

    def __init__(
        self,
        name: str,
        options: Options,
        folder: pathlib.Path,
        gpus: Gpus,
        spare: Process | None,
        program: str,
    ) -> None:
        self.name, self.options, self.spare = name, options, spare is not None
        options.answers = str(folder / f"{name}.answers")
        self.log, self.peak = logs.Log(), Watch(gpus).begin()
        self.peak_loading: int | None = None
        self.status: int | None = None
        self._rest = b""
        self.began = time.monotonic()  # imports count where there is no spare
        self._process = spare or Process(program, folder / f"{name}.log", options.environment)
        self._process.become(name)
        self.path, self.pid = self._process.log, self._process.pid
        self._file = self.path.open("rb")
        self.ask(json.dumps(dataclasses.asdict(options)))

    # ---- what it says ----

    def look(self) -> None:
        """Reads what is new in its log, and whether it ended."""
        if self.status is None:
            self.status = self._process.status()
        data = self._rest + self._file.read()
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            self.log.feed(line.decode(errors="replace").rstrip("\r"))
        self.peak.look()
        if self.peak_loading is None and "loaded s" in self.log.numbers:
            self.peak_loading = self.peak.most

    def says(self, text: str) -> bool:
        """Whether its log has that text by now."""
        return text.encode() in self.path.read_bytes()

    @property
    def alive(self) -> bool:
        return self.status is None

    def why(self) -> str:
        """Why it failed: gpuwm's error, else the last error, else its last lines."""
        ours = [line for line in self.log.errors if "gpuwm." in line]
        if ours or self.log.errors:
            return (ours or self.log.errors)[-1].strip()[:600]
        return " | ".join(self.path.read_text(errors="replace").splitlines()[-LAST_LINES:])[:600]

    # ---- what it is asked ----

    def ask(self, line: str) -> None:
        self._process.tell(line)

    def let_end(self) -> None:
        self._process.let_end()

    def kill(self) -> None:
        """It and all its processes; returns when it has ended."""
        self._process.kill()
        self.look()

    def hashes(self) -> dict[str, str] | None:
        found = self.log.event("answered")
        return found["hashes"] if found else None

    def answers(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(pathlib.Path(self.options.answers).read_text())
        return found


def wait(
    engines: Iterable[Engine], holds: Callable[[Engine], Any], seconds: float, what: str
) -> None:
    """Until it holds for each. Failed: names an engine that ended before, or did not in time."""
    waiting = list(engines)
    deadline = time.monotonic() + seconds
    while True:
        for engine in waiting:
            engine.look()
        waiting = [engine for engine in waiting if not holds(engine)]
        if not waiting:
            return
        if ended := [engine for engine in waiting if not engine.alive]:
            engine = ended[0]
            raise Failed(
                f"{engine.name} ended with {engine.status} before it {what}: {engine.why()}"
            )
        if time.monotonic() > deadline:
            engine = waiting[0]
            raise Failed(f"{engine.name} has not {what} after {seconds:.0f} s: {engine.why()}")
        time.sleep(LOOK_S)


def told(engines: Iterable[Engine], event: str, seconds: float, times: int = 1) -> None:
    """Until each has told the event so many times since its start."""
    wait(engines, lambda engine: engine.log.count(event) >= times, seconds, event)


def answered(engines: Iterable[Engine], seconds: float, times: int = 1) -> None:
    told(engines, "answered", seconds, times)


def end(engines: Iterable[Engine]) -> None:
    """Asks all to end, and kills those that do not."""
    ending = list(engines)
    for engine in ending:
        engine.let_end()
    deadline = time.monotonic() + END_S
    while any(engine.alive for engine in ending) and time.monotonic() < deadline:
        for engine in ending:
            engine.look()
        time.sleep(LOOK_S)
    for engine in ending:
        engine.kill()
