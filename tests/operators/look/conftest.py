"""What the tests of top and doctor share: a gpuwmd, a terminal, a machine that is made up."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from machine import BUILD, Machine

FAKECUDA = BUILD / "fakecuda"
SOON = 20.0  # for what takes milliseconds, on a machine that is busy with all else


def wait_for(condition: Any, what: str) -> None:
    """Polls a state that other processes change."""
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Gpuwmd:
    """A gpuwmd of its own, with a folder for sockets and models."""

    def __init__(self, folder: pathlib.Path, *, kept: bool = False) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.socket = folder / "gpuwm.sock"
        self.env = {
            **os.environ,
            "GPUWM_SOCKET": str(self.socket),
            "XDG_RUNTIME_DIR": str(folder),
            "FAKECUDA_RUN": f"look{os.getpid()}",
            "COLUMNS": "",
        }
        if FAKECUDA.exists():
            self.env["LD_LIBRARY_PATH"] = str(FAKECUDA)
        self.words = [str(BUILD / "bin/gpuwmd"), "--socket", str(self.socket)]
        self.words += ["--root", str(self.root), "--log-level", "error"]
        if kept:
            self.words = [
                str(BUILD / "bin/gpuwm-keeper"),
                "--restart-delay",
                "1",
                "--",
                *self.words,
            ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Gpuwmd:
        """Starts it, and waits until its loader stands by."""
        self.process = subprocess.Popen(self.words, env=self.env)
        wait_for(self.stands_by, "gpuwmd did not start")
        return self

    def stands_by(self) -> bool:
        """Whether gpuwmd answers and has a loader."""
        told = self.ctl("-o", "json", "status", check=False)
        return told.returncode == 0 and bool(json.loads(told.stdout)["standby"])

    def ctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs gpuwmctl."""
        words = (str(BUILD / "bin/gpuwmctl"), *words)
        return subprocess.run(words, env=self.env, check=check, capture_output=True, text=True)

    def load(self, name: str, size: str = "8M") -> None:
        """Loads a checkpoint of random bytes into the host's memory."""
        source = self.root / (name.replace("@", "-").replace("/", "-") + ".safetensors")
        tool = str(BUILD / "tests/tools/make-weights")
        subprocess.run([tool, str(source), size], check=True, capture_output=True)
        self.ctl("load", str(source), name, "--device", "host", "--wait")

    def pid(self) -> int:
        """The process of gpuwmd itself."""
        return int(json.loads(self.ctl("-o", "json", "status").stdout)["pid"])

    def stop(self) -> None:
        """Ends it; twice is fine."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder with a short path: that of a socket has 107 bytes."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="look-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def machine(folder: pathlib.Path) -> Machine:
    """A machine without anything, and a loader whose probe finds only the host."""
    return Machine(folder)


@pytest.fixture
def gpuwmd(folder: pathlib.Path) -> Iterator[Gpuwmd]:
    """A gpuwmd that nobody keeps."""
    it = Gpuwmd(folder)
    try:
        yield it.start()
    finally:
        it.stop()


@pytest.fixture
def kept(folder: pathlib.Path) -> Iterator[Gpuwmd]:
    """A gpuwmd that gpuwm-keeper keeps."""
    it = Gpuwmd(folder, kept=True)
    try:
        yield it.start()
    finally:
        it.stop()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words: list[str], env: dict[str, str], columns: int = 80, rows: int = 24):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.seen = ""
        self.process = subprocess.Popen(
            words,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
        )

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size, as a window does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> None:
        """Takes what the program has written."""
        while select.select([self.master], [], [], 0.01)[0]:
            self.seen += os.read(self.master, 65536).decode()

    def shows(self, *texts: str) -> None:
        """Waits until all texts came since the last key."""

        def there() -> bool:
            self.read()
            return all(text in self.seen for text in texts)

        try:
            wait_for(there, "")
        except AssertionError:
            pytest.fail(f"no {texts} in {self.seen[-4000:]!r}")

    def press(self, keys: str) -> None:
        """Presses keys; what comes from now on is new."""
        self.read()
        self.seen = ""
        os.write(self.master, keys.encode())

    def is_stuck(self) -> bool:
        """Whether a key that always redraws does nothing."""
        self.press("r")
        return not select.select([self.master], [], [], 0.5)[0]

    def signal(self, number: int) -> None:
        """Sends a signal; what comes from now on is new."""
        self.read()
        self.seen = ""
        self.process.send_signal(number)

    def is_as_before(self) -> None:
        """Asserts that the terminal is as the program found it."""
        self.read()
        assert self.seen.endswith("\x1b[?25h\x1b[?1049l"), repr(self.seen[-100:])
        assert termios.tcgetattr(self.slave) == self.before

    def ends(self) -> int:
        """Waits for the program's end. The terminal must be as it was."""
        code: int = self.process.wait(SOON)
        self.is_as_before()
        return code

    def close(self) -> None:
        """Ends what is left."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def top(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A function that starts top on a terminal."""
    terminals: list[Terminal] = []

    def start(gpuwmd: Gpuwmd, columns: int = 80, rows: int = 24, **env: str) -> Terminal:
        words = [str(BUILD / "bin/gpuwmctl"), "top"]
        terminals.append(Terminal(words, {**gpuwmd.env, **env}, columns, rows))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
