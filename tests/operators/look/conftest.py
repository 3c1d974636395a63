"""What the tests of top and doctor share: a gpuwmd, a terminal, a machine that is made up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from typing import Any

import own_gpuwmd
import pytest
from own_gpuwmd import BUILD, SOON, wait_for

from machine import Machine


class Gpuwmd(own_gpuwmd.Gpuwmd):
    """One that doctor and top look at."""

    def __init__(self, folder: pathlib.Path, *, kept: bool = False) -> None:
        super().__init__(folder, kept=kept)
        self.env["COLUMNS"] = ""

    def load(self, name: str, size: str = "8M") -> None:
        """Loads a checkpoint of random bytes into the host's memory."""
        source = self.root / (name.replace("@", "-").replace("/", "-") + ".safetensors")
        tool = str(BUILD / "tests/tools/make-weights")
        subprocess.run([tool, str(source), size], check=True, capture_output=True)
        self.ctl("load", str(source), name, "--device", "host", "--wait")

    def pid(self) -> int:
        """The process of gpuwmd itself."""
        return int(self.data("status")["pid"])


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder for sockets."""
    yield from own_gpuwmd.short_folder("look")


@pytest.fixture
def machine(folder: pathlib.Path) -> Machine:
    """A machine without anything, and a loader whose probe finds only the host."""
    return Machine(folder)


@pytest.fixture
def gpuwmd(folder: pathlib.Path) -> Iterator[Gpuwmd]:
    """A gpuwmd that nobody keeps."""
    it = Gpuwmd(folder)
    try:
        it.start()
        yield it
    finally:
        it.stop()


@pytest.fixture
def kept(folder: pathlib.Path) -> Iterator[Gpuwmd]:
    """A gpuwmd that gpuwm-keeper keeps."""
    it = Gpuwmd(folder, kept=True)
    try:
        it.start()
        yield it
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
