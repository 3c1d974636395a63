"""gpuwmd under gpuwm-keeper, for one run, asked through gpuwmctl."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

READY_S = 30.0
STANDBY_S = 30.0  # until the next loader waits with the driver initialised
LOAD_S = 120
RETIRE_S = 20


class Service:
    """Started by the constructor. Its folder has the socket and the log; checkpoints lie below
    `roots`. more: options of gpuwmd. From then on GPUWM_SOCKET names its socket, for engines
    too."""

    def __init__(
        self, programs: pathlib.Path, folder: pathlib.Path, roots: list[pathlib.Path], *more: str
    ) -> None:
        self.programs, self.log = programs, folder / "gpuwmd.log"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["GPUWM_SOCKET"] = str(folder / "gpuwm.sock")
        words = [
            str(programs / "gpuwm-keeper"),
            "--restart-delay",
            "0",
            "--",
            str(programs / "gpuwmd"),
        ]
        words += [
            "--socket",
            os.environ["GPUWM_SOCKET"],
            "--loader",
            str(programs / "gpuwm-loader"),
        ]
        for root in roots:
            words += ["--root", str(root)]
        words += more
        self._keeper = subprocess.Popen(words, stderr=self.log.open("ab"), start_new_session=True)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Its standby loader is there too, where there is a GPU."""
        deadline = time.monotonic() + READY_S
        while (status := self.status()) is None or not status.get("standby", True):
            if self._keeper.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"gpuwmd is not ready after {READY_S:.0f} s: {self.log.read_text()[-600:]}"
                )
            time.sleep(0.02)

    def ctl(self, *words: str, timeout: float = LOAD_S) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / "gpuwmctl"), "-o", "json", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def status(self) -> dict[str, Any] | None:
        """None: gpuwmd does not answer."""
        done = self.ctl("status", timeout=READY_S)
        found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
        return found

    def versions(self) -> list[dict[str, Any]]:
        return self._listed("versions")

    def _listed(self, what: str) -> list[dict[str, Any]]:
        done = self.ctl("ls")
        found: list[dict[str, Any]] = json.loads(done.stdout)[what] if done.returncode == 0 else []
        return found

    def version(self, name: str) -> dict[str, Any] | None:
        """Of "model@tag" or an id."""
        for version in self.versions():
            if name in (version["version"], f"{version['model']}@{version['tag']}"):
                return version
        return None

    def leases(self) -> int:
        return sum(version["leases"] for version in self.versions())

    def load(self, folder: pathlib.Path, name: str, devices: list[str], *words: str) -> float:
        """Seconds. words: more for gpuwmctl. RuntimeError: gpuwmctl's words."""
        begin = time.monotonic()
        flags = [word for device in devices for word in ("--device", device)]
        done = self.ctl("load", str(folder), name, *flags, *words, "--wait")
        if done.returncode:
            raise RuntimeError(f"gpuwmctl load {folder} {name}: {done.stderr.strip()}")
        return time.monotonic() - begin

    def retire_all(self, *names: str) -> list[str]:
        """Whatever is there, or these, and what names it. Returns why any could not be retired."""
        chosen = {
            version["version"]
            for version in self.versions()
            if version["state"] == "ready"
            and (not names or f"{version['model']}@{version['tag']}" in names)
        }
        for alias in self._listed("aliases"):
            if alias["version"] in chosen:
                self.ctl("swap", f"{alias['model']}@{alias['alias']}", "--remove")
        done = [self.ctl("retire", version, "--wait", str(RETIRE_S)) for version in chosen]
        return [each.stderr.strip() for each in done if each.returncode]

    def kill(self) -> None:
        """SIGKILL to gpuwmd; the keeper starts the next one at once."""
        os.kill(self._pid(), signal.SIGKILL)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """gpuwmd is killed, and the keeper starts the next one only afterwards."""
        pid = self._pid()
        os.kill(self._keeper.pid, signal.SIGSTOP)
        try:
            os.kill(pid, signal.SIGKILL)
            yield
        finally:
            os.kill(self._keeper.pid, signal.SIGCONT)
        self.wait_until_ready()

    def _pid(self) -> int:
        status = self.status()
        if status is None:
            raise RuntimeError(f"there is no gpuwmd to kill: {self.log.read_text()[-600:]}")
        return int(status["pid"])

    def stop(self) -> None:
        self._keeper.terminate()
        try:
            self._keeper.wait(READY_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
