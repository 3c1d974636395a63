"""A gpuwmd under gpuwm-keeper, gpuwm-exporter, checkpoints and workers: what the tests of the exporter look at.

The environment (tests/operators/exporter/run): GPUWM_BUILD, GPUWM_LIBRARY, PYTHONPATH with the package gpuwm, and
LD_LIBRARY_PATH for the stand-in of CUDA's driver, if there is one.
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import gpuwm

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = pathlib.Path(os.environ.get("GPUWM_BUILD", ROOT / "build"))
# Its members see everything: the user that runs the tests is one of them.
GROUP = grp.getgrgid(os.getgid()).gr_name
START_S = 30  # on a machine that is busy
PR_SET_PDEATHSIG = 1


def eventually(holds: Callable[[], Any], what: str, seconds: float = START_S, pause_s: float = 0.01) -> Any:
    """Waits until it holds; returns what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come to hold in {seconds} s: {what}")
        time.sleep(pause_s)
    return found


def end_with_tests() -> None:
    """In the child: killed when the process that started it ends, be it by a crash."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Answer:
    """What came over HTTP."""

    def __init__(self, code: int, headers: Any, body: bytes) -> None:
        self.code = code
        self.headers = headers
        self.text = body.decode()

    def json(self) -> Any:
        return json.loads(self.text)


class Stage:
    """One folder with everything that belongs to it. Ends what it started."""

    def __init__(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuwm-exporter-"))
        self.socket = self.folder / "gpuwm.sock"
        self.models = self.folder / "models"
        self.models.mkdir()
        self.processes: list[subprocess.Popen[str]] = []
        os.environ["FAKECUDA_RUN"] = self.folder.name
        os.environ["GPUWM_SOCKET"] = str(self.socket)

    # ---- processes ----

    def spawn(self, command: Sequence[str | os.PathLike[str]], log: str, **more: Any) -> subprocess.Popen[str]:
        with (self.folder / log).open("a") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stderr=file, text=True, preexec_fn=end_with_tests,
                **{"stdout": file, **more},
            )  # fmt: skip
        self.processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / name).read_text()

    def start_gpuwmd(self, *flags: str) -> None:
        self.keeper = self.spawn(
            [BUILD / "bin/gpuwm-keeper", "--restart-delay", "0", "--runtime-dir", self.folder, "--",
             BUILD / "bin/gpuwmd", "--socket", self.socket, "--admin-socket", self.folder / "admin.sock",
             "--root", self.models, *flags],
            "gpuwmd.log",
        )  # fmt: skip
        admin = gpuwm.connect(self.socket, admin=True, wait=START_S)
        # The devices come with the first loader.
        eventually(lambda: admin.status()["standby"], "a loader stands by")
        admin.close()
        self.admin = gpuwm.connect(self.socket, admin=True)
        cuda = [device["device"] for device in self.admin.status()["devices"] if device["kind"] == "cuda"]
        self.devices = cuda or ["host"]

    def start_exporter(self, socket: str = "gpuwm.sock", admission: Sequence[str] = ("--no-token",)) -> int:
        """Returns its port. The kernel chooses it, so that nobody else has it. admission: who sees what."""
        log = f"exporter-{len(self.processes)}.log"
        self.exporter = self.spawn(
            [BUILD / "bin/gpuwm-exporter", "--listen", "127.0.0.1:0", "--socket", self.folder / socket, *admission], log
        )
        told = eventually(lambda: re.search(r"\(port (\d+)\)", self.log(log)), "the exporter listens")
        return int(told[1])

    def worker(self, *refs: str, name: str = "worker", lines: Sequence[str] = ()) -> subprocess.Popen[str]:
        """A process that holds these versions until it is killed. lines: Python that it runs first."""
        process = self.spawn(
            [sys.executable, HERE / "worker.py", name, *refs], "worker.log", stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin and process.stdout
        process.stdin.write("\n".join(lines) + "\n\0\n")
        process.stdin.flush()
        said = process.stdout.readline()
        assert said == "holds\n", (said, self.log("worker.log"))
        return process

    def end(self, process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
        process.send_signal(number)
        process.wait(START_S)
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()
        self.processes.remove(process)

    def close(self) -> None:
        for process in reversed(list(self.processes)):
            if process.poll() is None and process is not self.keeper:
                process.send_signal(signal.SIGCONT)
                process.kill()
        # gpuwm-keeper ends its gpuwmd too.
        self.keeper.terminate()
        for process in list(self.processes):
            process.wait(START_S)
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()
        shutil.rmtree(self.folder)

    def restart_gpuwmd(self) -> None:
        """Kills gpuwmd; returns when the next one answers."""
        before = self.admin.status()["pid"]
        os.kill(before, signal.SIGKILL)
        eventually(lambda: self.admin.status()["pid"] != before, "another gpuwmd answers")

    # ---- versions ----

    def checkpoint(self, name: str, size: str, seed: int) -> pathlib.Path:
        folder = self.models / name
        if not folder.exists():
            subprocess.run(
                [ROOT / "scripts/make-checkpoint", folder, "--bytes", size, "--tensors", "12", "--seed", str(seed)],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        return folder

    def load(self, name: str, size: str = "1M", seed: int = 1, device: int = 0, **more: Any) -> None:
        source = self.checkpoint(f"{size}-{seed}", size, seed)
        assert self.admin.load(source, name, devices=self.devices[device % len(self.devices)], **more).wait(START_S)


class Case(unittest.TestCase):
    """Tests on one stage, with a gpuwmd that shows everything to the group of these tests."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.it = Stage()
        cls.addClassCleanup(cls.it.close)
        cls.it.start_gpuwmd("--set", f"access.observe_group={GROUP}")


class CaseWithOneVersion(Case):
    """The same with llama@v1, and an exporter at a port."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.it.load("llama@v1")
        cls.port = cls.it.start_exporter()


def get(port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            return Answer(error.code, error.headers, error.read())


def series(text: str) -> dict[str, float]:
    """`name{labels}`: value, of Prometheus' text format."""
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
    }


def loader_pids(gpuwmd: int) -> list[int]:
    """The loaders of a gpuwmd."""
    children = pathlib.Path(f"/proc/{gpuwmd}/task/{gpuwmd}/children").read_text().split()
    return [int(pid) for pid in children]
