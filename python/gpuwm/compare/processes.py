"""The processes that are compared: a gpuwmd with gpuwmctl, and one for each other loader."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from . import loaders

LOADER_S = 30  # gpuwmd's start, and its next loader's


# ---- gpuwm ----


class Gpuwm:
    """A gpuwmd, operated by gpuwmctl. keeps: it is to keep a context for the next load, or must
    not."""

    def __init__(self, socket: str, device: str, keeps: bool) -> None:
        self.environment: dict[str, str] = {**os.environ, "GPUWM_SOCKET": socket}
        self.device: str = device
        self.keeps: bool = keeps

    def ctl(self, *arguments: str) -> Any:
        done = subprocess.run(
            ["gpuwmctl", "-o", "json", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            command = " ".join(arguments)
            sys.exit(f"gpuwmctl {command} ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout else {}

    def wait_for_loader(self) -> None:
        """Until a load begins at once, as it is to: with a kept context, or with none."""
        deadline = time.monotonic() + LOADER_S
        while True:
            status = self.ctl("status")
            keeping = [loader for loader in status["keeping"] if not loader["checks"]]
            kept = any(loader["ready"] for loader in keeping)
            if keeping and not self.keeps:
                sys.exit(
                    "--socket names a gpuwmd that keeps contexts: leave keep_context out of its"
                    " configuration"
                )
            if kept if self.keeps else status["standby"]:
                return
            if time.monotonic() > deadline:
                what = "kept context" if self.keeps else "standby loader"
                remedy = (
                    "; --kept-socket needs [loader] keep_context = always" if self.keeps else ""
                )
                sys.exit(f"gpuwmd has had no {what} for {LOADER_S} s: its log says why{remedy}")
            time.sleep(0.01)

    def load(self, source: str, ref: str) -> tuple[float, collections.Counter[str]]:
        """Seconds from request to ready, with the start of gpuwmctl; milliseconds of each phase
        that gpuwmd counted."""
        self.wait_for_loader()
        begin = time.monotonic()
        self.ctl("load", source, ref, "--device", self.device, "--wait")
        ready = time.monotonic() - begin
        jobs = [job for job in self.ctl("jobs")["jobs"] if job["kind"] == "load"]
        phases: collections.Counter[str] = collections.Counter()
        for phase in max(jobs, key=lambda job: job["job"])["phases"]:
            phases[phase["phase"]] += phase["ms"]
        return ready, phases

    def retire(self, ref: str) -> None:
        self.ctl("swap", ref.split("@")[0] + "@current", "--remove")
        self.ctl("retire", ref, "--wait", "30")


@contextlib.contextmanager
def own_gpuwmd(source: str, files: list[str]) -> Iterator[str]:
    """A gpuwmd for this run, whose root holds the files and what they are links to: its socket."""
    real = [os.path.realpath(path) for path in files]
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    root = os.path.commonpath([os.path.realpath(folder), *map(os.path.dirname, real)])
    with tempfile.TemporaryDirectory(prefix="gpuwm-compare-") as place:
        socket, log = os.path.join(place, "gpuwm.sock"), os.path.join(place, "log")
        with open(log, "w", encoding="utf-8") as file:
            daemon = subprocess.Popen(["gpuwmd", "--socket", socket, "--root", root], stderr=file)
        try:
            deadline = time.monotonic() + LOADER_S
            while not os.path.exists(os.path.join(place, "admin.sock")):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    with open(log, encoding="utf-8") as file:
                        sys.exit(f"gpuwmd did not start:\n{file.read()}")
                time.sleep(0.01)
            yield socket
        finally:
            daemon.terminate()
            daemon.wait()


# ---- other loaders ----


class Process:
    """One loader's process: loaders.py."""

    def __init__(self, name: str, device: str, files: list[str], socket: str) -> None:
        self.peer: loaders.Peer = {**loaders.PEERS, **loaders.OTHERS}[name]
        self.began: float = time.monotonic()
        self.child: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, loaders.__file__, name, device, *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.peer.environment, "GPUWM_SOCKET": socket},
        )
        self.started: dict[str, float] = {}

    def answer(self) -> Any:
        assert self.child.stdout
        line = self.child.stdout.readline()
        if not line:
            sys.exit(
                f"{self.peer.label}: its process ended with {self.child.wait()}, as said above."
                f" Install what it lacks (pip install {self.peer.distribution()}), or leave it out"
                " with --loaders"
            )
        return json.loads(line)

    def ask(self, command: str) -> Any:
        assert self.child.stdin
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        return self.answer()

    def wait(self) -> None:
        self.started = self.answer()

    def load(self, ref: str = "") -> float:
        """Seconds."""
        times: dict[str, Any] = self.ask(f"load {ref}")
        notes[self.peer.label] = times["note"]
        took: float = times["ended"] - times["began"]
        return took

    def start_and_load(self, ref: str = "") -> tuple[float, float, float, float]:
        """Seconds from the exec: (to the end of the load, imports, context, load)."""
        self.wait()
        times = self.ask(f"load {ref}")
        notes[self.peer.label] = times["note"]
        imported, ready = self.started["imported"], self.started["ready"]
        return (
            times["ended"] - self.began,
            imported - self.began,
            ready - imported,
            times["ended"] - times["began"],
        )

    def end(self) -> None:
        assert self.child.stdin
        self.child.stdin.close()
        self.child.wait()


# By label: what the loader chose by itself.
notes: dict[str, str] = {}
