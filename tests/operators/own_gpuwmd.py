"""A gpuwmd of a test's own, and how tests wait for other processes."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

BUILD = pathlib.Path(os.environ["GPUWM_BUILD"])
FAKECUDA = BUILD / "fakecuda"
SOON = 20.0  # for what takes milliseconds, on a machine that is busy with all else


def wait_for(condition: Callable[[], Any], what: str, seconds: float = SOON) -> None:
    """Polls a state that other processes change."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def short_folder(name: str) -> Iterator[pathlib.Path]:
    """The body of a fixture: a folder with a short path, since that of a socket has 107 bytes."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Gpuwmd:
    """A gpuwmd with a folder for sockets and models. `words` is its command line, until start."""

    def __init__(self, folder: pathlib.Path, *, kept: bool = False) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.socket = folder / "gpuwm.sock"
        self.env = {
            **os.environ,
            "GPUWM_SOCKET": str(self.socket),
            "XDG_RUNTIME_DIR": str(folder),
            "FAKECUDA_RUN": folder.name,
        }
        if FAKECUDA.exists():
            self.env["LD_LIBRARY_PATH"] = str(FAKECUDA)
        self.words = [str(BUILD / "bin/gpuwmd"), "--socket", str(self.socket)]
        self.words += ["--root", str(self.root), "--log-level", "error"]
        if kept:
            keeper = [str(BUILD / "bin/gpuwm-keeper"), "--restart-delay", "1", "--"]
            self.words = [*keeper, *self.words]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until its loader stands by."""
        self.process = subprocess.Popen(self.words, env=self.env)
        wait_for(self.stands_by, "gpuwmd did not start")

    def stands_by(self) -> bool:
        """Whether gpuwmd answers and has a loader."""
        told = self.ctl("-o", "json", "status", check=False)
        return told.returncode == 0 and bool(json.loads(told.stdout)["standby"])

    def ctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs gpuwmctl without a terminal."""
        command = [str(BUILD / "bin/gpuwmctl"), *words]
        return subprocess.run(command, env=self.env, check=check, capture_output=True, text=True)

    def data(self, *words: str) -> Any:
        """Runs gpuwmctl -o json."""
        return json.loads(self.ctl("-o", "json", *words).stdout)

    def stop(self) -> None:
        """Ends it; twice is fine."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
