"""A gpuwmd that has something of everything, and a terminal of 80 columns to look at it with."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import struct
import subprocess
import unicodedata
from collections.abc import Iterator

import own_gpuwmd
import pytest
from own_gpuwmd import BUILD, FAKECUDA, wait_for

COLUMNS = 80
ROWS = 200  # no screen scrolls
SOON = 30.0  # for what takes milliseconds, on a machine that is busy with all else

LONG = "team/llama-3.1-70b-instruct-fp8-dynamic@2026-11-26-nightly-rc.2"
# A text that YAML, a shell or a terminal could take for something else.
ODD = 'no: "1.5" # \\ \u0085\u2028\ufeff\u202e\x7f 模型 🚀 \x1b[31m - ? | > & * ! % @ `'


def width_of(line: str) -> int:
    """The columns that a line takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in line
    )


class Screen:
    """What a command left on the terminal."""

    def __init__(self, code: int, rows: str, lines: str, colours: str) -> None:
        self.code = code
        self.rows = rows.rstrip("\n").split("\n")  # as they stand there
        self.lines = lines.rstrip("\n").split(
            "\n"
        )  # as they were written, before the terminal wrapped them
        self.text = "\n".join(line.rstrip() for line in self.rows)
        self.is_coloured = bool(re.search(r"\x1b\[[0-9;]*3[0-9]", colours))

    def fits(self) -> None:
        """No line was longer than the terminal is wide.

        A word that is longer stays whole, in a line of its own, so that people can copy it.
        """
        for line in self.lines:
            if len(line.split()) == 1:
                continue
            assert width_of(line.rstrip()) <= COLUMNS, (
                f"{width_of(line)} columns: {line!r}\n{self.text}"
            )

    def says(self, *texts: str) -> None:
        """The texts are there, wherever a line goes on in the next row."""
        flat = re.sub(r"\s+", " ", self.text)
        for text in texts:
            assert text in flat, f"no {text!r} in:\n{self.text}"


class Terminal:
    """tmux with one window, in which commands run."""

    def __init__(self, folder: pathlib.Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.count = 0
        self.tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "sleep 1000")
        self.tmux("set-option", "-g", "remain-on-exit", "on")

    def tmux(self, *words: str) -> str:
        """Runs tmux with a server of its own."""
        command = ["tmux", "-u", "-f", "/dev/null", "-S", str(self.folder / "tmux"), *words]
        return subprocess.run(
            command, env=self.env, check=True, capture_output=True, text=True
        ).stdout

    def begin(self, words: list[str], **env: str) -> pathlib.Path:
        """Starts gpuwmctl in the window. The file that is returned will have its exit status."""
        self.count += 1
        status = self.folder / f"status{self.count}"
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
        command = shlex.join([str(BUILD / "bin/gpuwmctl"), *words])
        ending = f"echo $? >{status}.part; mv {status}.part {status}; exec sleep 1000"
        self.tmux("respawn-window", "-k", f"{settings} {command}; {ending}")
        self.tmux("clear-history")
        return status

    def end(self, status: pathlib.Path) -> Screen:
        """Waits until the command has ended."""
        wait_for(status.exists, f"the command did not end:\n{self.seen()}", SOON)
        code = int(status.read_text())
        return Screen(code, self.seen(), self.seen("-J"), self.seen("-e"))

    def seen(self, *how: str) -> str:
        """What stands on the terminal now."""
        return self.tmux("capture-pane", "-p", *how)

    def shows(self, text: str) -> None:
        """Waits until the text stands there."""
        wait_for(lambda: text in self.seen(), f"no {text!r} in:\n{self.seen()}", SOON)

    def press(self, *keys: str) -> None:
        """Presses keys, by their names in tmux."""
        self.tmux("send-keys", *keys)

    def run(self, *words: str, **env: str) -> Screen:
        """Runs gpuwmctl to its end."""
        return self.end(self.begin(list(words), **env))

    def close(self) -> None:
        """Ends tmux and what runs in it."""
        self.tmux("kill-server")


class Gpuwmd(own_gpuwmd.Gpuwmd):
    """One that has something of everything."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.env["TERM"] = "xterm-256color"
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            self.env.pop(name, None)
        self.device = "cuda:0" if FAKECUDA.exists() else "host"
        self.helpers: list[subprocess.Popen[bytes]] = []

    def checkpoint(self, name: str, size: int = 1 << 20) -> str:
        """Writes a file with one tensor and metadata."""
        path = self.root / f"{name}.safetensors"
        header = {
            "__metadata__": {"odd": ODD, "no": "yes", "k" * 300: "long"},
            "layers.0000.attention.query_key_value.weight_that_has_a_long_name": {
                "dtype": "F32",
                "shape": [size // 4096, 1024],
                "data_offsets": [0, size],
            },
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + name.encode()[:1] * size)
        return str(path)

    def load(self, name: str, *words: str) -> None:
        """Loads a checkpoint of its own as that version."""
        source = self.checkpoint(re.sub("[@/]", "-", name))
        self.ctl("load", source, name, "--device", self.device, "--wait", *words)

    def helper(self, tool: str, *words: str) -> None:
        """Starts a process that uses gpuwmd, and waits until it does."""
        command = [str(BUILD / "tests/tools" / tool), *words]
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE)
        self.helpers.append(process)
        assert process.stdout
        assert process.stdout.readline()

    def stop(self) -> None:
        """Ends it with all of its processes."""
        for process in self.helpers:
            process.kill()
            process.communicate()
        super().stop()


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder for sockets."""
    yield from own_gpuwmd.short_folder("terminal")


@pytest.fixture
def gpuwmd(folder: pathlib.Path) -> Iterator[Gpuwmd]:
    """A gpuwmd with versions, leases, jobs and a region."""
    it = Gpuwmd(folder)
    try:
        it.start()
        it.load("m@v1", "--alias", "prod")
        it.load("m@v2", "--swap")
        it.load(LONG)
        it.ctl("pin", "m@v1", "nightly-tests")
        (it.root / "bad.safetensors").write_bytes(b"{")
        it.ctl(
            "load",
            str(it.root / "bad.safetensors"),
            "m@v3",
            "--device",
            it.device,
            "--wait",
            check=False,
        )
        it.helper("steady-worker", "m@prod", "1000000")
        it.helper("steady-worker", "m", "1000000")
        it.helper("steady-worker", LONG, "1000000")
        yield it
    finally:
        it.stop()


@pytest.fixture
def terminal(gpuwmd: Gpuwmd) -> Iterator[Terminal]:
    """A terminal for one test."""
    it = Terminal(gpuwmd.folder, gpuwmd.env)
    try:
        yield it
    finally:
        it.close()
