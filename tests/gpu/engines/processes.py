"""Engines as processes: started, watched, asked, ended. One thread reads logs and samples memory
while it waits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import select
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


class Failed(Exception):
    """An engine ended, or did not do something in time."""


class Starter:
    """starter.py, for engines that need not import vLLM themselves. The first one starts it."""

    def __init__(self, program: str, log: pathlib.Path) -> None:
        self._program, self._log = program, log
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: dict[int, int] = {}
        self.imports: dict[str, float] = {}

    def fork(self, request: dict[str, Any]) -> int:
        """The pid of an engine."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return int(self._until("pid", END_S))

    def status(self, pid: int) -> int | None:
        """The exit status of an engine that ended."""
        while self._process is not None and self._told(0.0) is not None:
            pass
        return self._ended.get(pid)

    def _started(self) -> subprocess.Popen[bytes]:
        """With all imports or, if one of them makes forks impossible, with few."""
        if self._process is None:
            try:
                return self._start()
            except Failed:
                self.stop()
                return self._start("few")
        return self._process

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(HERE / "starter.py"), self._program, *words]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        try:
            self.imports = self._until("ready", IMPORTS_S)
        except Failed:
            self.stop()
            raise
        return self._process

    def _until(self, key: str, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while (told := self._told(deadline - time.monotonic())) is not None:
            if key in told:
                return told[key]
        last = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise Failed(f"starter.py did not say {key!r} within {seconds:.0f} s: {' | '.join(last)}")

    def _told(self, seconds: float) -> dict[str, Any] | None:
        """Its next line, or None."""
        assert self._process is not None
        out = self._process.stdout
        assert out is not None
        while select.select([out], [], [], max(0.0, seconds))[0]:
            line = out.readline()
            if not line:
                return None
            if not line.startswith(b"{"):
                continue  # an import printed it
            told: dict[str, Any] = json.loads(line)
            if "ended" in told:
                self._ended[told["ended"]] = told["status"]
            return told
        return None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Engine:
    """One of them. With a starter it is forked by that, otherwise it is a program of its own that
    imports everything. FOLDER/NAME.log has what it writes, FOLDER/NAME.answers what it answers."""

    def __init__(
        self,
        name: str,
        options: Options,
        folder: pathlib.Path,
        gpus: Gpus,
        starter: Starter | None,
        program: str,
    ) -> None:
        self.name, self.options, self.forked = name, options, starter is not None
        self.path, stdin = folder / f"{name}.log", folder / f"{name}.stdin"
        options.answers, options.imported = str(folder / f"{name}.answers"), self.forked
        self.log, self.peak = logs.Log(), Watch(gpus).begin()
        self.peak_loading: int | None = None
        self.status: int | None = None
        self._rest = b""
        self.path.write_bytes(b"")
        self._file = self.path.open("rb")
        stdin.unlink(missing_ok=True)
        os.mkfifo(stdin)
        self._stdin = os.open(
            stdin, os.O_RDWR
        )  # a fifo that is only written to waits for its reader
        self._starter = starter
        self._process: subprocess.Popen[bytes] | None = None
        self.began = time.monotonic()
        if starter:
            request = {
                "options": dataclasses.asdict(options),
                "stdin": str(stdin),
                "log": str(self.path),
            }
            self.pid = starter.fork(request)
        else:
            self._process = self._program(program, stdin)
            self.pid = self._process.pid
        # Of the time from `began`; a starter that imported first is not part of it.
        self.began = time.monotonic() if starter else self.began

    def _program(self, program: str, stdin: pathlib.Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, program, json.dumps(dataclasses.asdict(self.options))]
        environment = {**os.environ, **self.options.environment}
        with stdin.open("rb") as source, self.path.open("ab") as out:
            return subprocess.Popen(
                words, stdin=source, stdout=out, stderr=out, env=environment, start_new_session=True
            )

    # ---- what it says ----

    def look(self) -> None:
        """Reads what is new in its log, and whether it ended."""
        if self.status is None:
            self.status = self._ended()
        data = self._rest + self._file.read()
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            self.log.feed(line.decode(errors="replace").rstrip("\r"))
        self.peak.look()
        if self.peak_loading is None and "loaded s" in self.log.numbers:
            self.peak_loading = self.peak.most

    def _ended(self) -> int | None:
        if self._starter:
            return self._starter.status(self.pid)
        return self._process.poll() if self._process else None

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
        os.write(self._stdin, line.encode() + b"\n")

    def let_end(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def kill(self) -> None:
        """It and all its processes; returns when it has ended."""
        self.let_end()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + END_S
        while self.alive:
            self.look()
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} was killed {END_S:.0f} s ago and has not ended")
            time.sleep(LOOK_S)

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
